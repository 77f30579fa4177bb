package sqlite

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

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
		`SELECT `+taskColumns+` FROM tasks WHERE namespace = ? AND id = ?`, namespace, id)
}

// Tasks implements store.Reader.
func (t tx) Tasks(ctx context.Context, q store.TaskQuery) ([]epic.Task, error) {
	var w where
	w.add("namespace = ?", q.Namespace)
	if q.EpicID != "" {
		w.add("epic_id = ?", q.EpicID)
	}
	w.in("state", anys(q.States))
	w.tagged(q.AnyTag)
	w.labeled(q.Labels)
	if !q.After.IsZero() {
		w.add("(create_time, id) > (?, ?)", q.After.CreateTime.UnixMicro(), q.After.ID)
	}
	return collectPage(ctx, t, scanTask, `SELECT `+taskColumns+` FROM tasks`+w.end("create_time, id", q.Limit), w.args...)
}

func taskArgs(v epic.Task) ([]any, error) {
	j, err := texts(list(v.Tags), list(v.DependsOn), list(v.Notes), labels(v.Labels))
	if err != nil {
		return nil, err
	}
	return []any{
		v.Namespace, v.ID, v.EpicID, v.Title, v.Description, j[0], v.State, v.Priority, j[1], v.Requirements,
		v.WorkflowSlug, v.Source, v.RunID, v.EstimatedTokens, v.Duration.Microseconds(), v.RetryCount, v.MaxRetries,
		v.ResultSummary, v.ErrorMessage, j[2], v.CreatedByNode, j[3],
		v.CreateTime.UnixMicro(), v.UpdateTime.UnixMicro(), null(v.StartTime), null(v.EndTime), v.Revision, v.Principal,
	}, nil
}

// InsertTask implements store.Tx.
func (t tx) InsertTask(ctx context.Context, v epic.Task) error {
	args, err := taskArgs(v)
	if err != nil {
		return err
	}
	if err := t.exec(ctx, `INSERT INTO tasks (namespace, id, epic_id, title, description, tags, state, priority, depends_on,
			requirements, workflow_slug, workflow_source, run_id, estimated_tokens, duration_us, retry_count, max_retries,
			result_summary, error_message, notes, created_by_node_id, labels, create_time, update_time, start_time, end_time, revision, principal)
		VALUES (`+marks(len(args))+`)`, args...); err != nil {
		return err
	}
	return t.depend(ctx, v)
}

// PutTask implements store.Tx.
func (t tx) PutTask(ctx context.Context, v epic.Task, over int64) error {
	args, err := taskArgs(v)
	if err != nil {
		return err
	}
	if err := t.change(ctx, store.Changed("task", v.ID), `UPDATE tasks SET epic_id = ?3, title = ?4, description = ?5, tags = ?6,
			state = ?7, priority = ?8, depends_on = ?9, requirements = ?10, workflow_slug = ?11, workflow_source = ?12, run_id = ?13,
			estimated_tokens = ?14, duration_us = ?15, retry_count = ?16, max_retries = ?17, result_summary = ?18, error_message = ?19,
			notes = ?20, created_by_node_id = ?21, labels = ?22, create_time = ?23, update_time = ?24, start_time = ?25, end_time = ?26,
			revision = ?27, principal = ?28
		WHERE namespace = ?1 AND id = ?2 AND revision = ?29`, append(args, over)...); err != nil {
		return err
	}
	if err := t.exec(ctx, `DELETE FROM dependencies WHERE namespace = ?1 AND task_id = ?2
		AND depends_on NOT IN (SELECT value FROM json_each(?3))`, v.Namespace, v.ID, args[8]); err != nil {
		return err
	}
	return t.depend(ctx, v)
}

func (t tx) depend(ctx context.Context, v epic.Task) error {
	for _, d := range v.DependsOn {
		if err := t.exec(ctx, `INSERT INTO dependencies (namespace, task_id, depends_on) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
			v.Namespace, v.ID, d); err != nil {
			return err
		}
	}
	return nil
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
	_, err = collect(ctx, t, func(row scanner) (struct{}, error) {
		var id string
		var state epic.TaskState
		err := row.Scan(&id, &state)
		out[id] = state
		return struct{}{}, err
	}, `SELECT id, state FROM tasks WHERE namespace = ? AND epic_id = ? AND id IN (SELECT value FROM json_each(?))`, namespace, epicID, set)
	return out, err
}

// CountTasks implements store.Tx.
func (t tx) CountTasks(ctx context.Context, namespace, epicID string, state epic.TaskState) (n int, err error) {
	err = t.QueryRowContext(ctx, `SELECT count(*) FROM tasks WHERE namespace = ? AND epic_id = ? AND state = ?`,
		namespace, epicID, state).Scan(&n)
	return n, err
}

// Dependents implements store.Tx.
func (t tx) Dependents(ctx context.Context, namespace, taskID string) ([]epic.Task, error) {
	return collect(ctx, t, scanTask, `SELECT `+taskColumns+` FROM tasks WHERE namespace = ?1 AND id IN
		(SELECT task_id FROM dependencies WHERE namespace = ?1 AND depends_on = ?2) ORDER BY id`, namespace, taskID)
}

// Edges implements store.Tx.
func (t tx) Edges(ctx context.Context, namespace, epicID string) (map[string][]string, error) {
	out := map[string][]string{}
	_, err := collect(ctx, t, func(row scanner) (struct{}, error) {
		var id, depends string
		if err := row.Scan(&id, &depends); err != nil {
			return struct{}{}, err
		}
		var deps []string
		err := decode(&depends, &deps)
		out[id] = deps
		return struct{}{}, err
	}, `SELECT id, depends_on FROM tasks WHERE namespace = ? AND epic_id = ? AND depends_on <> '[]'`, namespace, epicID)
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
