package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// The join is made in this order: bodies are looked up one by one, for the tasks that are read.
const wholeTasks = `tasks CROSS JOIN task_bodies USING (namespace, id)`

const taskColumns = `namespace, id, epic_id, title, description, tags, state, priority, depends_on, requirements, workflow_slug,
	workflow_source, run_id, estimated_tokens, ` + totalColumns + `, duration_us, retry_count, max_retries, result_summary,
	error_message, notes, created_by_node_id, labels, create_time, update_time, start_time, end_time, revision, principal`

func scanTask(row scanner) (epic.Task, error) {
	var v epic.Task
	var tags, depends, notes, labels string
	var created, updated, micros int64
	var start, end *int64
	into := append([]any{
		&v.Namespace, &v.ID, &v.EpicID, &v.Title, &v.Description, &tags, &v.State, &v.Priority, &depends, &v.Requirements,
		&v.WorkflowSlug, &v.Source, &v.RunID, &v.EstimatedTokens,
	}, totalsInto(&v.Actual)...)
	if err := row.Scan(append(into, &micros, &v.RetryCount, &v.MaxRetries, &v.ResultSummary, &v.ErrorMessage, &notes,
		&v.CreatedByNode, &labels, &created, &updated, &start, &end, &v.Revision, &v.Principal)...); err != nil {
		return epic.Task{}, err
	}
	if err := decode(&tags, &v.Tags, &depends, &v.DependsOn, &notes, &v.Notes, &labels, &v.Labels); err != nil {
		return epic.Task{}, err
	}
	v.Tags, v.DependsOn, v.Notes, v.Requirements = trim(v.Tags), trim(v.DependsOn), trim(v.Notes), trim(v.Requirements)
	if len(v.Labels) == 0 {
		v.Labels = nil
	}
	v.Duration = time.Duration(micros) * time.Microsecond
	v.CreateTime, v.UpdateTime = dbkit.FromUnixMicros(created), dbkit.FromUnixMicros(updated)
	v.StartTime, v.EndTime = utc(start), utc(end)
	return v, nil
}

// Task implements store.Reader.
func (t tx) Task(ctx context.Context, namespace, id string) (epic.Task, error) {
	return one(ctx, t, store.TaskNotFound(id), scanTask,
		`SELECT `+taskColumns+` FROM `+wholeTasks+` WHERE namespace = ? AND id = ?`, namespace, id)
}

// Tasks implements store.Reader.
func (t tx) Tasks(ctx context.Context, q store.TaskQuery) (store.Found[epic.Task], error) {
	l := listing[epic.Task]{
		table: "tasks", whole: wholeTasks, columns: taskColumns, scan: scanTask,
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.scope.add("namespace = ?", q.Namespace)
	if q.EpicID != "" {
		l.scope.add("epic_id = ?", q.EpicID)
	}
	l.fits.in("state", anys(q.States))
	l.fits.tagged(q.AnyTag)
	l.fits.labeled(q.Labels)
	return l.rows(ctx, t)
}

func taskArgs(v epic.Task) ([]any, error) {
	j, err := texts(list(v.Tags), list(v.DependsOn), labels(v.Labels))
	if err != nil {
		return nil, err
	}
	return []any{
		v.Namespace, v.ID, v.EpicID, v.Title, j[0], v.State, v.Priority, j[1], v.WorkflowSlug, v.Source, v.RunID,
		v.EstimatedTokens, v.Duration.Microseconds(), v.RetryCount, v.MaxRetries, v.CreatedByNode, j[2],
		v.CreateTime.UnixMicro(), v.UpdateTime.UnixMicro(), null(v.StartTime), null(v.EndTime), v.Revision, v.Principal,
	}, nil
}

// InsertTask implements store.Tx.
func (t tx) InsertTask(ctx context.Context, v epic.Task) error {
	args, err := taskArgs(v)
	if err != nil {
		return err
	}
	if err := t.exec(ctx, `INSERT INTO tasks (namespace, id, epic_id, title, tags, state, priority, depends_on, workflow_slug,
			workflow_source, run_id, estimated_tokens, duration_us, retry_count, max_retries, created_by_node_id, labels,
			create_time, update_time, start_time, end_time, revision, principal)
		VALUES (`+marks(len(args))+`)`, args...); err != nil {
		return err
	}
	if err := t.putBody(ctx, v); err != nil {
		return err
	}
	return t.depend(ctx, v, args[7])
}

// PutTask implements store.Tx.
func (t tx) PutTask(ctx context.Context, v epic.Task, over int64) error {
	args, err := taskArgs(v)
	if err != nil {
		return err
	}
	if err := t.change(ctx, store.Changed("task", v.ID), `UPDATE tasks SET epic_id = ?3, title = ?4, tags = ?5, state = ?6,
			priority = ?7, depends_on = ?8, workflow_slug = ?9, workflow_source = ?10, run_id = ?11, estimated_tokens = ?12,
			duration_us = ?13, retry_count = ?14, max_retries = ?15, created_by_node_id = ?16, labels = ?17, create_time = ?18,
			update_time = ?19, start_time = ?20, end_time = ?21, revision = ?22, principal = ?23
		WHERE namespace = ?1 AND id = ?2 AND revision = ?24`, append(args, over)...); err != nil {
		return err
	}
	if err := t.putBody(ctx, v); err != nil {
		return err
	}
	if err := t.exec(ctx, `DELETE FROM dependencies WHERE namespace = ?1 AND task_id = ?2
		AND depends_on NOT IN (SELECT value FROM json_each(?3))`, v.Namespace, v.ID, args[7]); err != nil {
		return err
	}
	return t.depend(ctx, v, args[7])
}

func (t tx) putBody(ctx context.Context, v epic.Task) error {
	notes, err := text(list(v.Notes))
	if err != nil {
		return err
	}
	return t.exec(ctx, `INSERT INTO task_bodies (namespace, id, description, requirements, result_summary, error_message, notes)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (namespace, id) DO UPDATE SET description = excluded.description,
			requirements = excluded.requirements, result_summary = excluded.result_summary,
			error_message = excluded.error_message, notes = excluded.notes`,
		v.Namespace, v.ID, v.Description, v.Requirements, v.ResultSummary, v.ErrorMessage, notes)
}

func (t tx) depend(ctx context.Context, v epic.Task, dependsOn any) error {
	return t.exec(ctx, `INSERT INTO dependencies (namespace, task_id, depends_on) SELECT ?, ?, value FROM json_each(?) WHERE true
		ON CONFLICT DO NOTHING`, v.Namespace, v.ID, dependsOn)
}

// DeleteTask implements store.Tx.
func (t tx) DeleteTask(ctx context.Context, namespace, id string, revision int64) error {
	return t.change(ctx, store.Changed("task", id),
		`DELETE FROM tasks WHERE namespace = ? AND id = ? AND revision = ?`, namespace, id, revision)
}

// EndTasks implements store.Tx.
func (t tx) EndTasks(ctx context.Context, namespace, epicID string, from []epic.TaskState, to epic.TaskState, now time.Time, principal string) error {
	args := append([]any{to, now.UnixMicro(), now.UnixMicro(), principal, namespace, epicID}, anys(from)...)
	return t.exec(ctx, `UPDATE tasks SET state = ?, end_time = ?, update_time = ?, revision = revision + 1,
			principal = coalesce(nullif(?, ''), principal)
		WHERE namespace = ? AND epic_id = ? AND state IN (`+marks(len(from))+`)`, args...)
}

// TaskStates implements store.Tx.
func (t tx) TaskStates(ctx context.Context, namespace, epicID string, ids []string) (map[string]epic.TaskState, error) {
	out := make(map[string]epic.TaskState, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	set, err := text(ids)
	if err != nil {
		return nil, err
	}
	// The sign keeps the planner from reading all tasks of the epic.
	_, err = collect(ctx, t, func(row scanner) (struct{}, error) {
		var id string
		var state epic.TaskState
		err := row.Scan(&id, &state)
		out[id] = state
		return struct{}{}, err
	}, `SELECT id, state FROM tasks WHERE namespace = ? AND +epic_id = ? AND id IN (SELECT value FROM json_each(?))`, namespace, epicID, set)
	return out, err
}

// CountTasks implements store.Tx.
func (t tx) CountTasks(ctx context.Context, namespace, epicID string, state epic.TaskState) (n int, err error) {
	err = t.QueryRowContext(ctx, `SELECT count(*) FROM tasks WHERE namespace = ? AND epic_id = ? AND state = ?`,
		namespace, epicID, state).Scan(&n)
	return n, err
}

// Blocked implements store.Tx.
func (t tx) Blocked(ctx context.Context, namespace, taskID, after string, limit int) ([]epic.Dependent, error) {
	return collect(ctx, t, func(row scanner) (d epic.Dependent, err error) {
		var depends string
		if err := row.Scan(&d.ID, &d.State, &depends, &d.Revision); err != nil {
			return d, err
		}
		return d, decode(&depends, &d.DependsOn)
	}, `SELECT t.id, t.state, t.depends_on, t.revision FROM dependencies d CROSS JOIN tasks t ON t.namespace = d.namespace AND t.id = d.task_id
		WHERE d.namespace = ? AND d.depends_on = ? AND d.task_id > ? AND t.state = ? ORDER BY d.task_id LIMIT ?`,
		namespace, taskID, after, epic.TaskBlocked, limit)
}

// PutStates implements store.Tx.
func (t tx) PutStates(ctx context.Context, namespace string, tasks []epic.Dependent, now time.Time) (err error) {
	put, err := t.PrepareContext(ctx, `UPDATE tasks SET state = ?, update_time = ?, revision = revision + 1
		WHERE namespace = ? AND id = ? AND revision = ?`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, put.Close()) }()
	for _, d := range tasks {
		res, err := put.ExecContext(ctx, d.State, now.UnixMicro(), namespace, d.ID, d.Revision)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if n != 1 {
			return store.Changed("task", d.ID)
		}
	}
	return nil
}

// ForgetDependency implements store.Tx.
func (t tx) ForgetDependency(ctx context.Context, namespace, taskID string, now time.Time, principal string) (int, error) {
	res, err := t.ExecContext(ctx, `UPDATE tasks SET update_time = ?3, revision = revision + 1, principal = coalesce(nullif(?4, ''), principal),
			depends_on = (SELECT json_group_array(value ORDER BY key) FROM json_each(tasks.depends_on) WHERE value <> ?2)
		WHERE namespace = ?1 AND id IN (SELECT task_id FROM dependencies WHERE namespace = ?1 AND depends_on = ?2)`,
		namespace, taskID, now.UnixMicro(), principal)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, err
	}
	return int(n), t.exec(ctx, `DELETE FROM dependencies WHERE namespace = ? AND depends_on = ?`, namespace, taskID)
}

// Edges implements store.Tx.
func (t tx) Edges(ctx context.Context, namespace string, ids []string) (map[string][]string, error) {
	set, err := text(list(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[string][]string, len(ids))
	_, err = collect(ctx, t, func(row scanner) (struct{}, error) {
		var id, depends string
		if err := row.Scan(&id, &depends); err != nil {
			return struct{}{}, err
		}
		var deps []string
		err := decode(&depends, &deps)
		out[id] = deps
		return struct{}{}, err
	}, `SELECT id, depends_on FROM tasks WHERE namespace = ? AND id IN (SELECT value FROM json_each(?)) AND depends_on <> '[]'`, namespace, set)
	return out, err
}

func scanClaim(row scanner) (epic.Claim, error) {
	var c epic.Claim
	var lease int64
	err := row.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Database, &c.State, &lease)
	c.LeaseUntil = dbkit.FromUnixMicros(lease)
	return c, err
}

// Claim implements store.Tx.
func (t tx) Claim(ctx context.Context, namespace, taskID, runID string) (*epic.Claim, error) {
	return optional(one(ctx, t, errNone, scanClaim, `SELECT namespace, task_id, run_id, database_id, state, lease_until FROM claims
		WHERE namespace = ? AND task_id = ? AND run_id = ?`, namespace, taskID, runID))
}

// ActiveClaim implements store.Tx.
func (t tx) ActiveClaim(ctx context.Context, namespace, taskID string) (*epic.Claim, error) {
	return optional(one(ctx, t, errNone, scanClaim, `SELECT namespace, task_id, run_id, database_id, state, lease_until FROM claims
		WHERE namespace = ? AND task_id = ? AND state IN (1, 2)`, namespace, taskID))
}

// PutClaim implements store.Tx.
func (t tx) PutClaim(ctx context.Context, c epic.Claim) error {
	return t.exec(ctx, `INSERT INTO claims (namespace, task_id, run_id, state, lease_until, database_id) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, task_id, run_id) DO UPDATE SET state = excluded.state, lease_until = excluded.lease_until`,
		c.Namespace, c.TaskID, c.RunID, c.State, c.LeaseUntil.UnixMicro(), c.Database)
}

// ReleaseClaims implements store.Tx.
func (t tx) ReleaseClaims(ctx context.Context, namespace, epicID string) error {
	return t.exec(ctx, `UPDATE claims SET state = ?3 WHERE namespace = ?1 AND state IN (1, 2) AND task_id IN
		(SELECT id FROM tasks WHERE namespace = ?1 AND epic_id = ?2)`, namespace, epicID, epic.Released)
}
