package pg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	totalColumns = `tokens, nano_usd, unpriced_calls, overhead_tokens, overhead_nano_usd, model_calls, tool_calls`
	epicColumns  = `namespace, id, title, description, tags, state, priority, budget_tokens, budget_nano_usd, ` + totalColumns + `,
		total_tasks, completed_tasks, failed_tasks, result_summary, workflow_slug, user_id, created_by_node_id, labels,
		create_time, update_time, end_time, revision, principal, dependencies`
)

// where gathers conditions and their arguments. Each condition has one %d for the number of its argument.
type where struct {
	parts []string
	args  []any
}

func (w *where) add(cond string, arg any) {
	w.args = append(w.args, arg)
	w.parts = append(w.parts, fmt.Sprintf(cond, len(w.args)))
}

// after adds the keyset condition on a time column and id; cmp is "<" or ">".
func (w *where) after(column, cmp string, c page.Cursor) {
	if c.IsZero() {
		return
	}
	w.args = append(w.args, c.CreateTime, c.ID)
	w.parts = append(w.parts, fmt.Sprintf("(%s, id) %s ($%d, $%d)", column, cmp, len(w.args)-1, len(w.args)))
}

// end returns the clause, with room for an order and a limit.
func (w *where) end(order string, limit int) string {
	w.args = append(w.args, limit)
	return fmt.Sprintf(" WHERE %s ORDER BY %s LIMIT $%d", strings.Join(w.parts, " AND "), order, len(w.args))
}

func totalsInto(t *usage.Totals) []any {
	return []any{&t.Tokens, &t.NanoUSD, &t.UnpricedCalls, &t.OverheadTokens, &t.OverheadNanoUSD, &t.ModelCalls, &t.ToolCalls}
}

func scanEpic(row pgx.CollectableRow) (epic.Epic, error) {
	var e epic.Epic
	var end *time.Time
	into := append([]any{
		&e.Namespace, &e.ID, &e.Title, &e.Description, &e.Tags, &e.State, &e.Priority, &e.BudgetTokens, &e.BudgetNanoUSD,
	}, totalsInto(&e.Spent)...)
	err := row.Scan(append(into, &e.TotalTasks, &e.CompletedTasks, &e.FailedTasks, &e.ResultSummary, &e.WorkflowSlug, &e.UserID,
		&e.CreatedByNode, &e.Labels, &e.CreateTime, &e.UpdateTime, &end, &e.Revision, &e.Principal, &e.Dependencies)...)
	e.Tags = trim(e.Tags)
	if len(e.Labels) == 0 {
		e.Labels = nil
	}
	e.CreateTime, e.UpdateTime, e.EndTime = e.CreateTime.UTC(), e.UpdateTime.UTC(), utc(end)
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
		table: "epics", columns: epicColumns, scan: scanEpic, newest: true,
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.add("namespace = $%d", q.Namespace)
	if len(q.States) > 0 {
		l.fit("state = ANY($%d)", bigints(q.States))
	}
	if len(q.AnyTag) > 0 {
		l.fit("tags && $%d::text[]", q.AnyTag)
	}
	if q.Text != "" {
		l.fit("strpos(search, $%d) > 0", q.Text)
	}
	if len(q.Labels) > 0 {
		l.fit("labels @> $%d", q.Labels)
	}
	return l.rows(ctx, t)
}

// LockEpic implements store.Tx.
func (t tx) LockEpic(ctx context.Context, namespace, id string) (epic.Epic, error) {
	return one(ctx, t, store.EpicNotFound(id), scanEpic,
		`SELECT `+epicColumns+` FROM epics WHERE namespace = $1 AND id = $2 FOR UPDATE`, namespace, id)
}

// LockSpent implements store.Tx.
func (t tx) LockSpent(ctx context.Context, namespace string, ids []string) (map[string]usage.Totals, error) {
	rows, err := t.Query(ctx, `SELECT id, `+totalColumns+` FROM epics WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`, namespace, list(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[string]usage.Totals, len(ids))
	var id string
	var v usage.Totals
	_, err = pgx.ForEachRow(rows, append([]any{&id}, totalsInto(&v)...), func() error {
		out[id] = v
		return nil
	})
	return out, err
}

func epicArgs(e epic.Epic) []any {
	return []any{
		e.Namespace, e.ID, e.Title, e.Description, e.SearchText(), list(e.Tags), e.State, e.Priority, e.BudgetTokens, e.BudgetNanoUSD,
		e.TotalTasks, e.CompletedTasks, e.FailedTasks, e.ResultSummary, e.WorkflowSlug, e.UserID, e.CreatedByNode, labels(e.Labels),
		e.CreateTime, e.UpdateTime, null(e.EndTime), e.Revision, e.Principal, e.Dependencies,
	}
}

// CountEpics implements store.Tx.
func (t tx) CountEpics(ctx context.Context, namespace string, most int) (n int, err error) {
	err = t.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM epics WHERE namespace = $1 LIMIT $2) AS c`, namespace, most).Scan(&n)
	return n, err
}

// InsertEpic implements store.Tx.
func (t tx) InsertEpic(ctx context.Context, e epic.Epic) error {
	_, err := t.Exec(ctx, `INSERT INTO epics (namespace, id, title, description, search, tags, state, priority, budget_tokens,
			budget_nano_usd, total_tasks, completed_tasks, failed_tasks, result_summary, workflow_slug, user_id, created_by_node_id,
			labels, create_time, update_time, end_time, revision, principal, dependencies)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)`, epicArgs(e)...)
	return err
}

// PutEpic implements store.Tx.
func (t tx) PutEpic(ctx context.Context, e epic.Epic, over int64) error {
	return t.change(ctx, store.Changed("epic", e.ID), `UPDATE epics SET title = $3, description = $4, search = $5, tags = $6, state = $7,
			priority = $8, budget_tokens = $9, budget_nano_usd = $10, total_tasks = $11, completed_tasks = $12, failed_tasks = $13,
			result_summary = $14, workflow_slug = $15, user_id = $16, created_by_node_id = $17, labels = $18, create_time = $19,
			update_time = $20, end_time = $21, revision = $22, principal = $23, dependencies = $24
		WHERE namespace = $1 AND id = $2 AND revision = $25`, append(epicArgs(e), over)...)
}

// DeleteEpic implements store.Tx.
func (t tx) DeleteEpic(ctx context.Context, namespace, id string, revision int64) error {
	return t.change(ctx, store.Changed("epic", id),
		`DELETE FROM epics WHERE namespace = $1 AND id = $2 AND revision = $3`, namespace, id, revision)
}
