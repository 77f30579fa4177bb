package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	totalColumns = `tokens, nano_usd, unpriced_calls, overhead_tokens, overhead_nano_usd, model_calls, tool_calls`
	epicColumns  = `namespace, id, title, description, tags, state, priority, budget_tokens, budget_nano_usd, ` + totalColumns + `,
		total_tasks, completed_tasks, failed_tasks, result_summary, workflow_slug, user_id, created_by_node_id, labels,
		create_time, update_time, end_time, revision, principal, dependencies, dependency_policy, parallel, pause_reason, maker_root, maker_principal`
)

func totalsInto(t *usage.Totals) []any {
	return []any{&t.Tokens, &t.NanoUSD, &t.UnpricedCalls, &t.OverheadTokens, &t.OverheadNanoUSD, &t.ModelCalls, &t.ToolCalls}
}

func scanEpic(row dbkit.Scanner) (epic.Epic, error) {
	var e epic.Epic
	var labels string
	into := append([]any{
		&e.Namespace, &e.ID, &e.Title, &e.Description, &e.Tags, &e.State, &e.Priority, &e.BudgetTokens, &e.BudgetNanoUSD,
	}, totalsInto(&e.Spent)...)
	if err := row.Scan(append(into, &e.TotalTasks, &e.CompletedTasks, &e.FailedTasks, &e.ResultSummary, &e.WorkflowSlug, &e.UserID,
		&e.CreatedByNode, &labels, dbkit.At(&e.CreateTime), dbkit.At(&e.UpdateTime), dbkit.At(&e.EndTime), &e.Revision, &e.Principal,
		&e.Dependencies, &e.DependencyPolicy, &e.Parallel, &e.PauseReason, &e.Maker.Root, &e.Maker.Principal)...); err != nil {
		return epic.Epic{}, err
	}
	err := decode(labels, &e.Labels)
	e.Tags = trim(e.Tags)
	if len(e.Labels) == 0 {
		e.Labels = nil
	}
	return e, err
}

// Epic implements store.Reader.
func (t tx) Epic(ctx context.Context, namespace, id string) (epic.Epic, error) {
	return one(ctx, t, store.EpicNotFound(id), scanEpic,
		`SELECT `+epicColumns+` FROM epics WHERE namespace = $1 AND id = $2`, namespace, id)
}

// Epics implements store.Reader.
func (t tx) Epics(ctx context.Context, q store.EpicQuery) (store.Found[epic.Epic], error) {
	l := listing[epic.Epic]{
		table: "epics", columns: epicColumns, scan: scanEpic, newest: true, byState: true,
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.add("t.namespace = %s", q.Namespace)
	if q.Text != "" {
		l.fit(func(column, param string) string { return t.d.Position(param, column) + ` > 0` }, "search", q.Text)
	}
	if q.Owners.UserID != "" {
		l.fit(same, "user_id", q.Owners.UserID)
	}
	if q.Owners.OpenTo != "" {
		l.fit(sameOrNone, "user_id", q.Owners.OpenTo)
	}
	if !q.From.IsZero() {
		l.add("t.create_time >= %s", dbkit.Exact(q.From))
	}
	if !q.Until.IsZero() {
		l.add("t.create_time < %s", dbkit.Exact(q.Until))
	}
	if err := filter(&l, t.d, q.States, q.AnyTag, q.Labels); err != nil {
		return store.Found[epic.Epic]{}, err
	}
	return l.rows(ctx, t)
}

func same(column, param string) string { return column + ` = ` + param }

func sameOrNone(column, param string) string {
	return `(` + column + ` = ` + param + ` OR ` + column + ` = '')`
}

// LockEpic implements store.Tx.
func (t tx) LockEpic(ctx context.Context, namespace, id string) (epic.Epic, error) {
	return one(ctx, t, store.EpicNotFound(id), scanEpic,
		`SELECT `+epicColumns+` FROM epics WHERE namespace = $1 AND id = $2`+t.d.Locked(), namespace, id)
}

// LockSpent implements store.Tx.
func (t tx) LockSpent(ctx context.Context, namespace string, ids []string) (map[string]usage.Totals, error) {
	out := make(map[string]usage.Totals, len(ids))
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var id string
		var v usage.Totals
		err := row.Scan(append([]any{&id}, totalsInto(&v)...)...)
		out[id] = v
		return err
	}, `SELECT id, `+totalColumns+` FROM epics WHERE namespace = $1 AND `+t.d.In(`id`, `$2`)+` ORDER BY id`+t.d.Locked(), namespace, ids)
	return out, err
}

// CountEpics implements store.Tx.
func (t tx) CountEpics(ctx context.Context, namespace string, most int) (int, error) {
	return t.count(ctx, `SELECT 1 FROM epics WHERE namespace = $1 LIMIT $2`, namespace, most)
}

func epicArgs(e epic.Epic) ([]any, error) {
	labels, err := labelText(e.Labels)
	return []any{
		e.Namespace, e.ID, e.Title, e.Description, e.SearchText(), e.Tags, e.State, e.Priority, e.BudgetTokens, e.BudgetNanoUSD,
		e.TotalTasks, e.CompletedTasks, e.FailedTasks, e.ResultSummary, e.WorkflowSlug, e.UserID, e.CreatedByNode, labels,
		e.CreateTime, e.UpdateTime, e.EndTime, e.Revision, e.Principal, e.Dependencies, e.DependencyPolicy,
		e.Parallel, e.PauseReason,
	}, err
}

// InsertEpic implements store.Tx.
func (t tx) InsertEpic(ctx context.Context, e epic.Epic) error {
	args, err := epicArgs(e)
	if err != nil {
		return err
	}
	t.changes.epic(e.ID).created = true
	_, err = t.Exec(ctx, `INSERT INTO epics (namespace, id, title, description, search, tags, state, priority, budget_tokens,
			budget_nano_usd, total_tasks, completed_tasks, failed_tasks, result_summary, workflow_slug, user_id, created_by_node_id,
			labels, create_time, update_time, end_time, revision, principal, dependencies, dependency_policy, parallel, pause_reason, maker_root, maker_principal)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)`, append(args, e.Maker.Root, e.Maker.Principal)...)
	return err
}

// PutEpic implements store.Tx.
func (t tx) PutEpic(ctx context.Context, e epic.Epic, over int64) error {
	args, err := epicArgs(e)
	if err != nil {
		return err
	}
	t.changes.epic(e.ID)
	return t.change(ctx, store.Changed("epic", e.ID), `UPDATE epics SET title = $3, description = $4, search = $5, tags = $6, state = $7,
			priority = $8, budget_tokens = $9, budget_nano_usd = $10, total_tasks = $11, completed_tasks = $12, failed_tasks = $13,
			result_summary = $14, workflow_slug = $15, user_id = $16, created_by_node_id = $17, labels = $18, create_time = $19,
			update_time = $20, end_time = $21, revision = $22, principal = $23, dependencies = $24, dependency_policy = $25,
			parallel = $26, pause_reason = $27
		WHERE namespace = $1 AND id = $2 AND revision = $28`, append(args, over)...)
}

// DeleteEpic implements store.Tx.
func (t tx) DeleteEpic(ctx context.Context, namespace, id string, revision int64) error {
	// Accounts are locked in one order everywhere, and a deletion takes them as it finds them.
	if _, err := collect(ctx, t, func(row dbkit.Scanner) (id string, err error) { return id, row.Scan(&id) },
		`SELECT id FROM accounts WHERE namespace = $1 AND (level = 1 AND id = $2 OR level = 2 AND id IN
		(SELECT id FROM tasks WHERE namespace = $1 AND epic_id = $2)) ORDER BY level, id`+t.d.LockedToUpdate(), namespace, id); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM accounts WHERE namespace = $1 AND (level = 1 AND id = $2 OR level = 2 AND id IN
		(SELECT id FROM tasks WHERE namespace = $1 AND epic_id = $2))`, namespace, id); err != nil {
		return err
	}
	c := t.changes.epic(id)
	c.deleted = true
	err := t.row(ctx, `DELETE FROM epics WHERE namespace = $1 AND id = $2 AND revision = $3 RETURNING title, state, total_tasks`, namespace, id, revision).
		Scan(&c.gone.Title, &c.gone.State, &c.gone.Tasks)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.Changed("epic", id)
	}
	return err
}
