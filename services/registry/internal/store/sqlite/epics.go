package sqlite

import (
	"context"
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
		create_time, update_time, end_time, revision, principal, dependencies`
)

func scanEpic(row scanner) (epic.Epic, error) {
	var e epic.Epic
	var tags, labels string
	var created, updated int64
	var end *int64
	into := append([]any{
		&e.Namespace, &e.ID, &e.Title, &e.Description, &tags, &e.State, &e.Priority, &e.BudgetTokens, &e.BudgetNanoUSD,
	}, totalsInto(&e.Spent)...)
	if err := row.Scan(append(into, &e.TotalTasks, &e.CompletedTasks, &e.FailedTasks, &e.ResultSummary, &e.WorkflowSlug, &e.UserID,
		&e.CreatedByNode, &labels, &created, &updated, &end, &e.Revision, &e.Principal, &e.Dependencies)...); err != nil {
		return epic.Epic{}, err
	}
	if err := decode(&tags, &e.Tags, &labels, &e.Labels); err != nil {
		return epic.Epic{}, err
	}
	e.Tags = trim(e.Tags)
	if len(e.Labels) == 0 {
		e.Labels = nil
	}
	e.CreateTime, e.UpdateTime, e.EndTime = dbkit.FromUnixMicros(created), dbkit.FromUnixMicros(updated), utc(end)
	return e, nil
}

// Epic implements store.Reader.
func (t tx) Epic(ctx context.Context, namespace, id string) (epic.Epic, error) {
	return one(ctx, t, store.EpicNotFound(id), scanEpic,
		`SELECT `+epicColumns+` FROM epics WHERE namespace = ? AND id = ?`, namespace, id)
}

// Epics implements store.Reader.
func (t tx) Epics(ctx context.Context, q store.EpicQuery) (store.Found[epic.Epic], error) {
	l := listing[epic.Epic]{
		table: "epics", whole: "epics", columns: epicColumns, scan: scanEpic, newest: true,
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.scope.add("namespace = ?", q.Namespace)
	l.fits.in("state", anys(q.States))
	l.fits.tagged(q.AnyTag)
	if q.Text != "" {
		l.fits.add("instr(search, ?) > 0", q.Text)
	}
	l.fits.labeled(q.Labels)
	return l.rows(ctx, t)
}

// LockEpic implements store.Tx.
func (t tx) LockEpic(ctx context.Context, namespace, id string) (epic.Epic, error) {
	return t.Epic(ctx, namespace, id)
}

// LockSpent implements store.Tx.
func (t tx) LockSpent(ctx context.Context, namespace string, ids []string) (map[string]usage.Totals, error) {
	set, err := text(list(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[string]usage.Totals, len(ids))
	_, err = collect(ctx, t, func(row scanner) (struct{}, error) {
		var id string
		var v usage.Totals
		err := row.Scan(append([]any{&id}, totalsInto(&v)...)...)
		out[id] = v
		return struct{}{}, err
	}, `SELECT id, `+totalColumns+` FROM epics WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))`, namespace, set)
	return out, err
}

func epicArgs(e epic.Epic) ([]any, error) {
	j, err := texts(list(e.Tags), labels(e.Labels))
	if err != nil {
		return nil, err
	}
	return []any{
		e.Namespace, e.ID, e.Title, e.Description, e.SearchText(), j[0], e.State, e.Priority, e.BudgetTokens, e.BudgetNanoUSD,
		e.TotalTasks, e.CompletedTasks, e.FailedTasks, e.ResultSummary, e.WorkflowSlug, e.UserID, e.CreatedByNode, j[1],
		e.CreateTime.UnixMicro(), e.UpdateTime.UnixMicro(), null(e.EndTime), e.Revision, e.Principal, e.Dependencies,
	}, nil
}

// CountEpics implements store.Tx.
func (t tx) CountEpics(ctx context.Context, namespace string, most int) (n int, err error) {
	err = t.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM epics WHERE namespace = ? LIMIT ?) AS c`, namespace, most).Scan(&n)
	return n, err
}

// InsertEpic implements store.Tx.
func (t tx) InsertEpic(ctx context.Context, e epic.Epic) error {
	args, err := epicArgs(e)
	if err != nil {
		return err
	}
	return t.exec(ctx, `INSERT INTO epics (namespace, id, title, description, search, tags, state, priority, budget_tokens,
			budget_nano_usd, total_tasks, completed_tasks, failed_tasks, result_summary, workflow_slug, user_id, created_by_node_id,
			labels, create_time, update_time, end_time, revision, principal, dependencies)
		VALUES (`+marks(len(args))+`)`, args...)
}

// PutEpic implements store.Tx.
func (t tx) PutEpic(ctx context.Context, e epic.Epic, over int64) error {
	args, err := epicArgs(e)
	if err != nil {
		return err
	}
	return t.change(ctx, store.Changed("epic", e.ID), `UPDATE epics SET title = ?3, description = ?4, search = ?5, tags = ?6, state = ?7,
			priority = ?8, budget_tokens = ?9, budget_nano_usd = ?10, total_tasks = ?11, completed_tasks = ?12, failed_tasks = ?13,
			result_summary = ?14, workflow_slug = ?15, user_id = ?16, created_by_node_id = ?17, labels = ?18, create_time = ?19,
			update_time = ?20, end_time = ?21, revision = ?22, principal = ?23, dependencies = ?24
		WHERE namespace = ?1 AND id = ?2 AND revision = ?25`, append(args, over)...)
}

// DeleteEpic implements store.Tx.
func (t tx) DeleteEpic(ctx context.Context, namespace, id string, revision int64) error {
	return t.change(ctx, store.Changed("epic", id),
		`DELETE FROM epics WHERE namespace = ? AND id = ? AND revision = ?`, namespace, id, revision)
}

// optional turns a missing row, which is no error here, into nil.
func optional[T any](v T, err error) (*T, error) {
	if errors.Is(err, errNone) {
		return nil, nil //nolint:nilnil // the contract says nil for none
	}
	if err != nil {
		return nil, err
	}
	return &v, nil
}

var errNone = errors.New("no such row")
