package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const taskColumns = `t.namespace, t.id, epic_id, title, description, tags, state, priority, depends_on, requirements, workflow_slug,
	workflow_source, run_id, estimated_tokens, ` + totalColumns + `, duration_us, retry_count, max_retries, result_summary,
	error_message, notes, created_by_node_id, labels, create_time, update_time, start_time, end_time, revision, principal,
	dependency_policy, ended_by, input, definition, run_workflow`

// bodies joins the bodies of the tasks t, which are looked up one by one.
func (t tx) bodies() string {
	return t.d.LookUp(`task_bodies`, `b`, `b.namespace = t.namespace AND b.id = t.id`)
}

func scanTask(row dbkit.Scanner) (epic.Task, error) {
	var v epic.Task
	var micros int64
	var notes, labels string
	into := append([]any{
		&v.Namespace, &v.ID, &v.EpicID, &v.Title, &v.Description, &v.Tags, &v.State, &v.Priority, &v.DependsOn, &v.Requirements,
		&v.WorkflowSlug, &v.Source, &v.RunID, &v.EstimatedTokens,
	}, totalsInto(&v.Actual)...)
	if err := row.Scan(append(into, &micros, &v.RetryCount, &v.MaxRetries, &v.ResultSummary, &v.ErrorMessage, &notes,
		&v.CreatedByNode, &labels, dbkit.At(&v.CreateTime), dbkit.At(&v.UpdateTime), dbkit.At(&v.StartTime), dbkit.At(&v.EndTime),
		&v.Revision, &v.Principal, &v.DependencyPolicy, &v.EndedBy, &v.Input, &v.Definition, &v.RunWorkflow)...); err != nil {
		return epic.Task{}, err
	}
	if err := decode(notes, &v.Notes); err != nil {
		return epic.Task{}, err
	}
	if err := decode(labels, &v.Labels); err != nil {
		return epic.Task{}, err
	}
	v.Tags, v.DependsOn, v.Notes, v.Requirements, v.Input = trim(v.Tags), trim(v.DependsOn), trim(v.Notes), trim(v.Requirements), trim(v.Input)
	if len(v.Labels) == 0 {
		v.Labels = nil
	}
	v.Duration = time.Duration(micros) * time.Microsecond
	return v, nil
}

// Task implements store.Reader.
func (t tx) Task(ctx context.Context, namespace, id string) (epic.Task, error) {
	return one(ctx, t, store.TaskNotFound(id), scanTask,
		`SELECT `+taskColumns+` FROM tasks t`+t.bodies()+` WHERE t.namespace = $1 AND t.id = $2`, namespace, id)
}

// Tasks implements store.Reader.
func (t tx) Tasks(ctx context.Context, q store.TaskQuery) (store.Found[epic.Task], error) {
	l := listing[epic.Task]{
		table: "tasks", rest: t.bodies(), columns: taskColumns, scan: scanTask, byState: q.EpicID == "",
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.add("t.namespace = %s", q.Namespace)
	if q.EpicID != "" {
		l.add("t.epic_id = %s", q.EpicID)
	}
	if err := filter(&l, t.d, q.States, q.AnyTag, q.Labels); err != nil {
		return store.Found[epic.Task]{}, err
	}
	return l.rows(ctx, t)
}

func taskArgs(v epic.Task) ([]any, error) {
	labels, err := labelText(v.Labels)
	return []any{
		v.Namespace, v.ID, v.EpicID, v.Title, v.Tags, v.State, v.Priority, v.DependsOn, v.WorkflowSlug, v.Source, v.RunID,
		v.EstimatedTokens, v.Duration.Microseconds(), v.RetryCount, v.MaxRetries, v.CreatedByNode, labels,
		v.CreateTime, v.UpdateTime, v.StartTime, v.EndTime, v.Revision, v.Principal,
		v.DependencyPolicy, v.EndedBy, v.RunWorkflow,
	}, err
}

// InsertTask implements store.Tx.
func (t tx) InsertTask(ctx context.Context, v epic.Task) error {
	args, err := taskArgs(v)
	if err != nil {
		return err
	}
	c := t.changes.task(v.ID)
	c.created, c.whole = true, true
	return t.putTask(ctx, v, dbkit.Stmt{Query: `INSERT INTO tasks (namespace, id, epic_id, title, tags, state, priority, depends_on, workflow_slug,
			workflow_source, run_id, estimated_tokens, duration_us, retry_count, max_retries, created_by_node_id, labels,
			create_time, update_time, start_time, end_time, revision, principal, dependency_policy, ended_by, run_workflow)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)`, Args: args})
}

// PutTask implements store.Tx.
func (t tx) PutTask(ctx context.Context, v epic.Task, over int64) error {
	args, err := taskArgs(v)
	if err != nil {
		return err
	}
	t.changes.task(v.ID).whole = true
	return t.putTask(ctx, v, dbkit.Stmt{
		Query: `UPDATE tasks SET epic_id = $3, title = $4, tags = $5, state = $6,
			priority = $7, depends_on = $8, workflow_slug = $9, workflow_source = $10, run_id = $11, estimated_tokens = $12,
			duration_us = $13, retry_count = $14, max_retries = $15, created_by_node_id = $16, labels = $17, create_time = $18,
			update_time = $19, start_time = $20, end_time = $21, revision = $22, principal = $23,
			dependency_policy = $24, ended_by = $25, run_workflow = $26
		WHERE namespace = $1 AND id = $2 AND revision = $27`,
		Args: append(args, over),
		Done: func(n int64) error {
			if n != 1 {
				return store.Changed("task", v.ID)
			}
			return nil
		},
	}, dbkit.Stmt{
		Query: `DELETE FROM dependencies WHERE namespace = $1 AND task_id = $2 AND NOT ` + t.d.In(`depends_on`, `$3`),
		Args:  []any{v.Namespace, v.ID, v.DependsOn},
	})
}

// putTask runs statements that write a task, and writes its body and what it depends on.
func (t tx) putTask(ctx context.Context, v epic.Task, stmts ...dbkit.Stmt) error {
	notes := "[]"
	if v.Notes != nil {
		var err error
		if notes, err = text(v.Notes); err != nil {
			return err
		}
	}
	stmts = append(stmts, dbkit.Stmt{
		Query: `INSERT INTO task_bodies (namespace, id, description, requirements, result_summary, error_message, notes, input, definition)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (namespace, id) DO UPDATE SET description = excluded.description,
			requirements = excluded.requirements, result_summary = excluded.result_summary,
			error_message = excluded.error_message, notes = excluded.notes, input = excluded.input, definition = excluded.definition`,
		Args: []any{v.Namespace, v.ID, v.Description, v.Requirements, v.ResultSummary, v.ErrorMessage, notes, v.Input, v.Definition},
	})
	if len(v.DependsOn) > 0 {
		stmts = append(stmts, dbkit.Stmt{
			Query: `INSERT INTO dependencies (namespace, task_id, depends_on) SELECT $2, $3, w.id FROM ` + t.d.Lists(`w`, [2]string{"id", "text"}) + `
				WHERE true ON CONFLICT DO NOTHING`,
			Args: []any{v.DependsOn, v.Namespace, v.ID},
		})
	}
	return t.Batch(ctx, stmts...)
}

// DeleteTask implements store.Tx.
func (t tx) DeleteTask(ctx context.Context, namespace, id string, revision int64) error {
	if _, err := t.Exec(ctx, `DELETE FROM accounts WHERE namespace = $1 AND level = 2 AND id = $2`, namespace, id); err != nil {
		return err
	}
	c := t.changes.task(id)
	c.deleted = true
	err := t.row(ctx, `DELETE FROM tasks WHERE namespace = $1 AND id = $2 AND revision = $3 RETURNING epic_id, title, state, run_id`, namespace, id, revision).
		Scan(&c.epicID, &c.gone.Title, &c.gone.State, &c.gone.RunID)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.Changed("task", id)
	}
	return err
}

// EndTasks implements store.Tx.
func (t tx) EndTasks(ctx context.Context, namespace, epicID string, from []epic.TaskState, to epic.TaskState, now time.Time, principal string) error {
	_, err := t.touched(ctx, `UPDATE tasks SET state = $4, end_time = $5, update_time = $5, revision = revision + 1,
			principal = coalesce(nullif($6, ''), principal)
		WHERE namespace = $1 AND epic_id = $2 AND `+t.d.In(`state`, `$3`), namespace, epicID, states(from), to, now, principal)
	return err
}

// touched runs an update of tasks, and returns how many it has changed.
func (t tx) touched(ctx context.Context, update string, args ...any) (n int, err error) {
	ids, err := collect(ctx, t, func(row dbkit.Scanner) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, update+` RETURNING id`, args...)
	slices.Sort(ids)
	for _, id := range ids {
		t.changes.task(id)
	}
	return len(ids), err
}

// TaskStates implements store.Tx.
func (t tx) TaskStates(ctx context.Context, namespace, epicID string, ids []string) (map[string]epic.TaskState, error) {
	out := make(map[string]epic.TaskState, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var id string
		var state epic.TaskState
		err := row.Scan(&id, &state)
		out[id] = state
		return err
	}, `SELECT t.id, t.state FROM `+t.d.Lists(`w`, [2]string{"want", "text"})+t.d.LookUp(`tasks`, `t`, `t.namespace = $2 AND t.id = w.want`)+`
		WHERE t.epic_id = $3`, ids, namespace, epicID)
	return out, err
}

// CountTasks implements store.Tx.
func (t tx) CountTasks(ctx context.Context, namespace, epicID string, state epic.TaskState) (int, error) {
	return t.count(ctx, `SELECT 1 FROM tasks WHERE namespace = $1 AND epic_id = $2 AND state = $3`, namespace, epicID, state)
}

// Blocked implements store.Tx.
func (t tx) Blocked(ctx context.Context, namespace, taskID, after string, limit int) ([]epic.Dependent, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (d epic.Dependent, err error) {
		err = row.Scan(&d.ID, &d.State, &d.DependsOn, &d.Revision)
		return d, err
	}, `SELECT t.id, t.state, t.depends_on, t.revision FROM dependencies d`+t.d.LookUp(`tasks`, `t`, `t.namespace = d.namespace AND t.id = d.task_id`)+`
		WHERE d.namespace = $1 AND d.depends_on = $2 AND d.task_id > $3 AND t.state = $4 ORDER BY d.task_id LIMIT $5`,
		namespace, taskID, after, epic.TaskBlocked, limit)
}

// isDead holds for the state of a task that has failed or was canceled.
const isDead = `t.state IN (5, 6)`

// Doomed implements store.Tx.
func (t tx) Doomed(ctx context.Context, namespace, epicID string, policy epic.DependencyPolicy, tasks []string) ([]epic.Dependent, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (d epic.Dependent, err error) {
		err = row.Scan(&d.ID, &d.State, &d.Revision, &d.Policy, &d.DependsOn)
		d.Policy = d.Policy.In(policy)
		return d, err
	}, `WITH RECURSIVE gone (id) AS (SELECT w.id FROM `+t.d.Lists(`w`, [2]string{"id", "text"})+` UNION
			SELECT t.id FROM gone`+t.d.LookUp(`dependencies`, `d`, `d.namespace = $2 AND d.depends_on = gone.id`)+
		t.d.LookUp(`tasks`, `t`, `t.namespace = $2 AND t.id = d.task_id`)+`
			WHERE t.epic_id = $3 AND t.state = 2 AND CASE t.dependency_policy WHEN 0 THEN $4 ELSE t.dependency_policy END > 1)
		SELECT t.id, t.state, t.revision, t.dependency_policy, t.depends_on FROM gone`+t.d.LookUp(`tasks`, `t`, `t.namespace = $2 AND t.id = gone.id`)+` WHERE t.state = 2 ORDER BY t.id`,
		tasks, namespace, epicID, int16(policy))
}

// Dead implements store.Tx.
func (t tx) Dead(ctx context.Context, namespace, epicID string) ([]string, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `SELECT t.id FROM tasks t WHERE t.namespace = $1 AND t.epic_id = $2 AND `+isDead, namespace, epicID)
}

// BlockedBy implements store.Reader.
func (t tx) BlockedBy(ctx context.Context, namespace, taskID string, limit int) ([]string, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `WITH RECURSIVE up (id) AS (SELECT `+t.d.Text(`$2`)+` UNION
			SELECT d.depends_on FROM up`+t.d.LookUp(`tasks`, `t`, `t.namespace = $1 AND t.id = up.id`)+
		t.d.LookUp(`dependencies`, `d`, `d.namespace = $1 AND d.task_id = t.id`)+` WHERE t.state = 2)
		SELECT t.id FROM up`+t.d.LookUp(`tasks`, `t`, `t.namespace = $1 AND t.id = up.id`)+` WHERE `+isDead+` ORDER BY t.id LIMIT $3`,
		namespace, taskID, limit)
}

// PutStates implements store.Tx.
func (t tx) PutStates(ctx context.Context, namespace string, tasks []epic.Dependent, now time.Time) error {
	ids, rows := make([]string, len(tasks)), make([][]any, len(tasks))
	for i, d := range tasks {
		by := ""
		if d.State.Ended() {
			by = d.EndedBy
		}
		t.changes.task(d.ID)
		ids[i], rows[i] = d.ID, []any{namespace, d.ID, int16(d.State), d.Revision, by, d.State.Ended()}
	}
	columns := [][2]string{{"namespace", "text"}, {"id", "text"}, {"state", "smallint"}, {"revision", "bigint"}, {"ended_by", "text"}, {"ends", "boolean"}}
	n, err := t.Exec(ctx, `UPDATE tasks SET state = n.state, update_time = $1, revision = tasks.revision + 1, ended_by = n.ended_by,
			end_time = CASE WHEN n.ends THEN $1 ELSE tasks.end_time END
		FROM `+t.d.Rows(`n`, 2, columns...)+` WHERE tasks.namespace = n.namespace AND tasks.id = n.id AND tasks.revision = n.revision`,
		append([]any{now}, t.d.RowArgs(len(columns), rows)...)...)
	if err == nil && n != int64(len(tasks)) {
		return store.Changed("one of the tasks", strings.Join(ids, ", "))
	}
	return err
}

// ForgetDependency implements store.Tx.
func (t tx) ForgetDependency(ctx context.Context, namespace, taskID string, now time.Time, principal string) (int, error) {
	n, err := t.touched(ctx, `UPDATE tasks SET depends_on = `+t.d.Without(`depends_on`, `$2`)+`, update_time = $3, revision = revision + 1,
			principal = coalesce(nullif($4, ''), principal)
		WHERE namespace = $1 AND `+t.d.InSelect(`id`, `SELECT task_id FROM dependencies WHERE namespace = $1 AND depends_on = $2`),
		namespace, taskID, now, principal)
	if err != nil {
		return 0, err
	}
	_, err = t.Exec(ctx, `DELETE FROM dependencies WHERE namespace = $1 AND depends_on = $2`, namespace, taskID)
	return n, err
}

// Edges implements store.Tx.
func (t tx) Edges(ctx context.Context, namespace string, ids []string) (map[string][]string, error) {
	out := make(map[string][]string, len(ids))
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var id string
		var deps []string
		err := row.Scan(&id, &deps)
		if len(deps) > 0 {
			out[id] = deps
		}
		return err
	}, `SELECT id, depends_on FROM tasks WHERE namespace = $1 AND `+t.d.In(`id`, `$2`), namespace, ids)
	return out, err
}
