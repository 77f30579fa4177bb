package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const taskColumns = `namespace, id, epic_id, title, description, tags, state, priority, depends_on, requirements, workflow_slug,
	workflow_source, run_id, estimated_tokens, ` + totalColumns + `, duration_us, retry_count, max_retries, result_summary,
	error_message, notes, created_by_node_id, labels, create_time, update_time, start_time, end_time, revision, principal`

func scanTask(row pgx.CollectableRow) (epic.Task, error) {
	var v epic.Task
	var start, end *time.Time
	var micros int64
	var notes string
	into := append([]any{
		&v.Namespace, &v.ID, &v.EpicID, &v.Title, &v.Description, &v.Tags, &v.State, &v.Priority, &v.DependsOn, &v.Requirements,
		&v.WorkflowSlug, &v.Source, &v.RunID, &v.EstimatedTokens,
	}, totalsInto(&v.Actual)...)
	if err := row.Scan(append(into, &micros, &v.RetryCount, &v.MaxRetries, &v.ResultSummary, &v.ErrorMessage, &notes,
		&v.CreatedByNode, &v.Labels, &v.CreateTime, &v.UpdateTime, &start, &end, &v.Revision, &v.Principal)...); err != nil {
		return epic.Task{}, err
	}
	if err := json.Unmarshal([]byte(notes), &v.Notes); err != nil {
		return epic.Task{}, fmt.Errorf("decode notes: %w", err)
	}
	v.Tags, v.DependsOn, v.Notes, v.Requirements = trim(v.Tags), trim(v.DependsOn), trim(v.Notes), trim(v.Requirements)
	if len(v.Labels) == 0 {
		v.Labels = nil
	}
	v.Duration = time.Duration(micros) * time.Microsecond
	v.CreateTime, v.UpdateTime, v.StartTime, v.EndTime = v.CreateTime.UTC(), v.UpdateTime.UTC(), utc(start), utc(end)
	return v, nil
}

// Task implements store.Reader.
func (t tx) Task(ctx context.Context, namespace, id string) (epic.Task, error) {
	return one(ctx, t, store.TaskNotFound(id), scanTask,
		`SELECT `+taskColumns+` FROM tasks WHERE namespace = $1 AND id = $2`, namespace, id)
}

// Tasks implements store.Reader.
func (t tx) Tasks(ctx context.Context, q store.TaskQuery) (store.Found[epic.Task], error) {
	l := listing[epic.Task]{
		table: "tasks", columns: taskColumns, scan: scanTask,
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.add("namespace = $%d", q.Namespace)
	if q.EpicID != "" {
		l.add("epic_id = $%d", q.EpicID)
	}
	if len(q.States) > 0 {
		l.fit("state = ANY($%d)", bigints(q.States))
	}
	if len(q.AnyTag) > 0 {
		l.fit("tags && $%d::text[]", q.AnyTag)
	}
	if len(q.Labels) > 0 {
		l.fit("labels @> $%d", q.Labels)
	}
	return l.rows(ctx, t)
}

func taskArgs(v epic.Task) ([]any, error) {
	notes, err := json.Marshal(list(v.Notes))
	if err != nil {
		return nil, fmt.Errorf("encode notes: %w", err)
	}
	return []any{
		v.Namespace, v.ID, v.EpicID, v.Title, v.Description, list(v.Tags), v.State, v.Priority, list(v.DependsOn), v.Requirements,
		v.WorkflowSlug, v.Source, v.RunID, v.EstimatedTokens, v.Duration.Microseconds(), v.RetryCount, v.MaxRetries,
		v.ResultSummary, v.ErrorMessage, string(notes), v.CreatedByNode, labels(v.Labels),
		v.CreateTime, v.UpdateTime, null(v.StartTime), null(v.EndTime), v.Revision, v.Principal,
	}, nil
}

// InsertTask implements store.Tx.
func (t tx) InsertTask(ctx context.Context, v epic.Task) error {
	args, err := taskArgs(v)
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `INSERT INTO tasks (namespace, id, epic_id, title, description, tags, state, priority, depends_on,
			requirements, workflow_slug, workflow_source, run_id, estimated_tokens, duration_us, retry_count, max_retries,
			result_summary, error_message, notes, created_by_node_id, labels, create_time, update_time, start_time, end_time, revision, principal)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
			$26, $27, $28)`, args...); err != nil {
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
	if err := t.change(ctx, store.Changed("task", v.ID), `UPDATE tasks SET epic_id = $3, title = $4, description = $5, tags = $6,
			state = $7, priority = $8, depends_on = $9, requirements = $10, workflow_slug = $11, workflow_source = $12, run_id = $13,
			estimated_tokens = $14, duration_us = $15, retry_count = $16, max_retries = $17, result_summary = $18, error_message = $19,
			notes = $20, created_by_node_id = $21, labels = $22, create_time = $23, update_time = $24, start_time = $25, end_time = $26,
			revision = $27, principal = $28
		WHERE namespace = $1 AND id = $2 AND revision = $29`, append(args, over)...); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM dependencies WHERE namespace = $1 AND task_id = $2 AND depends_on <> ALL($3)`,
		v.Namespace, v.ID, list(v.DependsOn)); err != nil {
		return err
	}
	return t.depend(ctx, v)
}

func (t tx) depend(ctx context.Context, v epic.Task) error {
	if len(v.DependsOn) == 0 {
		return nil
	}
	_, err := t.Exec(ctx, `INSERT INTO dependencies (namespace, task_id, depends_on) SELECT $1, $2, unnest($3::text[])
		ON CONFLICT DO NOTHING`, v.Namespace, v.ID, v.DependsOn)
	return err
}

// DeleteTask implements store.Tx.
func (t tx) DeleteTask(ctx context.Context, namespace, id string, revision int64) error {
	return t.change(ctx, store.Changed("task", id),
		`DELETE FROM tasks WHERE namespace = $1 AND id = $2 AND revision = $3`, namespace, id, revision)
}

// EndTasks implements store.Tx.
func (t tx) EndTasks(ctx context.Context, namespace, epicID string, from []epic.TaskState, to epic.TaskState, now time.Time, principal string) error {
	_, err := t.Exec(ctx, `UPDATE tasks SET state = $4, end_time = $5, update_time = $5, revision = revision + 1,
			principal = coalesce(nullif($6, ''), principal)
		WHERE namespace = $1 AND epic_id = $2 AND state = ANY($3)`, namespace, epicID, bigints(from), to, now, principal)
	return err
}

// TaskStates implements store.Tx.
func (t tx) TaskStates(ctx context.Context, namespace, epicID string, ids []string) (map[string]epic.TaskState, error) {
	out := make(map[string]epic.TaskState, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := t.Query(ctx, `SELECT id, state FROM tasks WHERE namespace = $1 AND epic_id = $2 AND id = ANY($3)`, namespace, epicID, ids)
	if err != nil {
		return nil, err
	}
	var id string
	var state epic.TaskState
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		out[id] = state
		return nil
	})
	return out, err
}

// CountTasks implements store.Tx.
func (t tx) CountTasks(ctx context.Context, namespace, epicID string, state epic.TaskState) (n int, err error) {
	err = t.QueryRow(ctx, `SELECT count(*) FROM tasks WHERE namespace = $1 AND epic_id = $2 AND state = $3`, namespace, epicID, state).Scan(&n)
	return n, err
}

// Blocked implements store.Tx.
func (t tx) Blocked(ctx context.Context, namespace, taskID, after string, limit int) ([]epic.Dependent, error) {
	return collect(ctx, t, func(row pgx.CollectableRow) (d epic.Dependent, err error) {
		err = row.Scan(&d.ID, &d.State, &d.DependsOn, &d.Revision)
		return d, err
	}, `SELECT t.id, t.state, t.depends_on, t.revision FROM dependencies d JOIN tasks t ON t.namespace = d.namespace AND t.id = d.task_id
		WHERE d.namespace = $1 AND d.depends_on = $2 AND d.task_id > $3 AND t.state = $4 ORDER BY d.task_id LIMIT $5`,
		namespace, taskID, after, epic.TaskBlocked, limit)
}

// PutStates implements store.Tx.
func (t tx) PutStates(ctx context.Context, namespace string, tasks []epic.Dependent, now time.Time) error {
	ids, states, over := make([]string, len(tasks)), make([]epic.TaskState, len(tasks)), make([]int64, len(tasks))
	for i, d := range tasks {
		ids[i], states[i], over[i] = d.ID, d.State, d.Revision
	}
	tag, err := t.Exec(ctx, `UPDATE tasks SET state = n.state, update_time = $2, revision = tasks.revision + 1
		FROM unnest($3::text[], $4::smallint[], $5::bigint[]) AS n (id, state, revision)
		WHERE tasks.namespace = $1 AND tasks.id = n.id AND tasks.revision = n.revision`, namespace, now, ids, bigints(states), over)
	if err == nil && tag.RowsAffected() != int64(len(tasks)) {
		return store.Changed("one of the tasks", strings.Join(ids, ", "))
	}
	return err
}

// ForgetDependency implements store.Tx.
func (t tx) ForgetDependency(ctx context.Context, namespace, taskID string, now time.Time, principal string) (int, error) {
	tag, err := t.Exec(ctx, `WITH gone AS (DELETE FROM dependencies WHERE namespace = $1 AND depends_on = $2 RETURNING task_id)
		UPDATE tasks SET depends_on = array_remove(depends_on, $2), update_time = $3, revision = revision + 1,
			principal = coalesce(nullif($4, ''), principal)
		FROM gone WHERE tasks.namespace = $1 AND tasks.id = gone.task_id`, namespace, taskID, now, principal)
	return int(tag.RowsAffected()), err
}

// Edges implements store.Tx.
func (t tx) Edges(ctx context.Context, namespace string, ids []string) (map[string][]string, error) {
	rows, err := t.Query(ctx, `SELECT id, depends_on FROM tasks WHERE namespace = $1 AND id = ANY($2) AND depends_on <> '{}'`, namespace, ids)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]string, len(ids))
	var id string
	var deps []string
	_, err = pgx.ForEachRow(rows, []any{&id, &deps}, func() error {
		out[id] = append([]string(nil), deps...)
		return nil
	})
	return out, err
}

func scanClaim(row pgx.CollectableRow) (*epic.Claim, error) {
	var c epic.Claim
	err := row.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Database, &c.State, &c.LeaseUntil)
	c.LeaseUntil = c.LeaseUntil.UTC()
	return &c, err
}

// Claim implements store.Tx.
func (t tx) Claim(ctx context.Context, namespace, taskID, runID string) (*epic.Claim, error) {
	return one(ctx, t, nil, scanClaim, `SELECT namespace, task_id, run_id, database_id, state, lease_until FROM claims
		WHERE namespace = $1 AND task_id = $2 AND run_id = $3 FOR UPDATE`, namespace, taskID, runID)
}

// ActiveClaim implements store.Tx.
func (t tx) ActiveClaim(ctx context.Context, namespace, taskID string) (*epic.Claim, error) {
	return one(ctx, t, nil, scanClaim, `SELECT namespace, task_id, run_id, database_id, state, lease_until FROM claims
		WHERE namespace = $1 AND task_id = $2 AND state IN (1, 2) FOR UPDATE`, namespace, taskID)
}

// PutClaim implements store.Tx.
func (t tx) PutClaim(ctx context.Context, c epic.Claim) error {
	_, err := t.Exec(ctx, `INSERT INTO claims (namespace, task_id, run_id, state, lease_until, database_id) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (namespace, task_id, run_id) DO UPDATE SET state = excluded.state, lease_until = excluded.lease_until`,
		c.Namespace, c.TaskID, c.RunID, c.State, c.LeaseUntil, c.Database)
	return err
}

// ReleaseClaims implements store.Tx.
func (t tx) ReleaseClaims(ctx context.Context, namespace, epicID string) error {
	_, err := t.Exec(ctx, `UPDATE claims SET state = $3 WHERE namespace = $1 AND state IN (1, 2) AND task_id IN
		(SELECT id FROM tasks WHERE namespace = $1 AND epic_id = $2)`, namespace, epicID, epic.Released)
	return err
}
