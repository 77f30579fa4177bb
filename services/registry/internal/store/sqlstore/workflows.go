package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const (
	historyColumns  = `completed, failed, canceled, nano_usd, tokens`
	workflowColumns = `namespace, id, slug, slug_base, slug_number, name, description, tags, state, deprecation, latest_version, version_count,
		aliases, forked_from, capabilities, nodes, edges, change, create_time, update_time, delete_time, revision, principal, exposed`
	versionColumns = `v.namespace, v.workflow_id, v.version, v.form, v.hash, v.graph_hash, v.name, v.label, v.description, v.nodes, v.edges,
		v.budget_nano_usd, v.budget_tokens, v.create_time, v.principal, v.completed, v.failed, v.canceled, v.nano_usd, v.tokens`
)

func historyInto(h *catalog.History) []any {
	return []any{&h.Completed, &h.Failed, &h.Canceled, &h.NanoUSD, &h.Tokens}
}

func scanWorkflow(row dbkit.Scanner) (catalog.Workflow, error) {
	var w catalog.Workflow
	var aliases, can string
	into := []any{
		&w.Namespace, &w.ID, &w.Slug, &w.Base, &w.Number, &w.Name, &w.Description, &w.Tags, &w.State, &w.Deprecation, &w.Latest, &w.Versions,
		&aliases, &w.ForkedFrom, &can, &w.Extent.Nodes, &w.Extent.Edges, &w.Change, dbkit.At(&w.CreateTime), dbkit.At(&w.UpdateTime),
		dbkit.At(&w.DeleteTime), &w.Revision, &w.Principal, &w.Exposed,
	}
	if err := row.Scan(append(into, historyInto(&w.History)...)...); err != nil {
		return catalog.Workflow{}, err
	}
	err := decode(aliases, &w.Aliases)
	if err == nil {
		err = decode(can, &w.Can)
	}
	for _, names := range []*[]string{&w.Can.Triggers, &w.Can.NodeTypes, &w.Can.Tools, &w.Can.Models} {
		*names = trim(*names)
	}
	w.Tags, w.Aliases = trim(w.Tags), trim(w.Aliases)
	return w, err
}

func versionInto(v *catalog.Version) []any {
	return append([]any{
		&v.Namespace, &v.WorkflowID, &v.Number, &v.Form, &v.Hash, &v.GraphHash, &v.Name, &v.Label, &v.Description, &v.Extent.Nodes, &v.Extent.Edges,
		&v.BudgetNanoUSD, &v.BudgetTokens, dbkit.At(&v.CreateTime), &v.Principal,
	}, historyInto(&v.History)...)
}

func scanVersion(row dbkit.Scanner) (v catalog.Version, err error) {
	err = row.Scan(versionInto(&v)...)
	return v, err
}

// Workflow implements store.Reader.
func (t tx) Workflow(ctx context.Context, namespace, name string) (catalog.Workflow, error) {
	column := "slug"
	if strings.HasPrefix(name, catalog.Prefix+"_") {
		column = "id"
	}
	return one(ctx, t, store.WorkflowNotFound(name), scanWorkflow,
		`SELECT `+workflowColumns+`, `+historyColumns+` FROM workflows WHERE namespace = $1 AND `+column+` = $2 AND state < 3`, namespace, name)
}

// Slugs implements store.Reader.
func (t tx) Slugs(ctx context.Context, namespace string, ids []string) (map[string]string, error) {
	rows, err := collect(ctx, t, func(row dbkit.Scanner) (r [2]string, err error) {
		err = row.Scan(&r[0], &r[1])
		return r, err
	}, `SELECT id, slug FROM workflows WHERE namespace = $1 AND state < 3 AND `+t.d.In(`id`, `$2`), namespace, ids)
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		out[r[0]] = r[1]
	}
	return out, err
}

// Workflows implements store.Reader.
func (t tx) Workflows(ctx context.Context, q store.WorkflowQuery) (store.Found[catalog.Workflow], error) {
	l := listing[catalog.Workflow]{
		table: "workflows", columns: workflowColumns + `, ` + historyColumns, scan: scanWorkflow, newest: true,
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.add("t.namespace = %s AND t.state < 3", q.Namespace)
	if q.Exposed {
		l.add("t.exposed <> ''")
	}
	if err := filter(&l, t.d, q.States, q.AnyTag, nil); err != nil {
		return store.Found[catalog.Workflow]{}, err
	}
	return l.rows(ctx, t)
}

// WorkflowVersion implements store.Reader.
func (t tx) WorkflowVersion(ctx context.Context, namespace, id, slug string, number int64) (catalog.Version, error) {
	return one(ctx, t, store.VersionNotFound(slug, number), func(row dbkit.Scanner) (v catalog.Version, err error) {
		err = row.Scan(append(versionInto(&v), &v.Source, &v.Packed)...)
		return v, err
	}, `SELECT `+versionColumns+`, x.source, x.graph FROM workflow_versions v
		JOIN workflow_texts x ON x.namespace = v.namespace AND x.workflow_id = v.workflow_id AND x.version = v.version
		WHERE v.namespace = $1 AND v.workflow_id = $2 AND v.version = $3`, namespace, id, number)
}

// WorkflowVersions implements store.Reader.
func (t tx) WorkflowVersions(ctx context.Context, namespace, id string, before int64, limit int) ([]catalog.Version, error) {
	var w where
	w.add("v.namespace = %s AND v.workflow_id = %s", namespace, id)
	if before > 0 {
		w.add("v.version < %s", before)
	}
	return collectPage(ctx, t, scanVersion, `SELECT `+versionColumns+` FROM workflow_versions v`+w.end("v.version DESC", limit), w.args...)
}

// ChangedWorkflows implements store.Reader.
func (t tx) ChangedWorkflows(ctx context.Context, namespace string, after int64, limit int) ([]catalog.Workflow, error) {
	return collect(ctx, t, scanWorkflow, `SELECT `+workflowColumns+`, `+historyColumns+` FROM workflows
		WHERE namespace = $1 AND change > $2 ORDER BY change LIMIT $3`, namespace, after, limit)
}

// NextChange implements store.Tx.
func (t tx) NextChange(ctx context.Context, namespace string) (change int64, err error) {
	err = t.row(ctx, `INSERT INTO catalogs (namespace, change) VALUES ($1, 1)
		ON CONFLICT (namespace) DO UPDATE SET change = catalogs.change + 1 RETURNING change`, namespace).Scan(&change)
	return change, err
}

// CountWorkflows implements store.Tx.
func (t tx) CountWorkflows(ctx context.Context, namespace string, most int) (int, error) {
	return t.count(ctx, `SELECT 1 FROM workflows WHERE namespace = $1 LIMIT $2`, namespace, most)
}

// CountExposed implements store.Tx.
func (t tx) CountExposed(ctx context.Context, namespace string, most int) (int, error) {
	return t.count(ctx, `SELECT 1 FROM workflows WHERE namespace = $1 AND exposed <> '' AND state < 3 LIMIT $2`, namespace, most)
}

// LastSlug implements store.Tx.
func (t tx) LastSlug(ctx context.Context, namespace, base string) (n int64, err error) {
	err = t.row(ctx, `SELECT COALESCE(max(slug_number), 0) FROM workflows WHERE namespace = $1 AND slug_base = $2`, namespace, base).Scan(&n)
	return n, err
}

// TakenSlugs implements store.Tx.
func (t tx) TakenSlugs(ctx context.Context, namespace string, slugs []string) ([]string, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (s string, err error) {
		err = row.Scan(&s)
		return s, err
	}, `SELECT slug FROM workflows WHERE namespace = $1 AND `+t.d.In(`slug`, `$2`), namespace, slugs)
}

func workflowArgs(w catalog.Workflow) ([]any, error) {
	aliases, err := text(w.Aliases)
	if err != nil {
		return nil, err
	}
	can, err := text(w.Can)
	return []any{
		w.Namespace, w.ID, w.Slug, w.Base, w.Number, w.Name, w.Description, w.Tags, w.State, w.Deprecation, w.Latest, w.Versions,
		aliases, w.ForkedFrom, can, w.Extent.Nodes, w.Extent.Edges, w.Change, w.CreateTime, w.UpdateTime, w.DeleteTime, w.Revision, w.Principal, w.Exposed,
	}, err
}

// InsertWorkflow implements store.Tx.
func (t tx) InsertWorkflow(ctx context.Context, w catalog.Workflow) error {
	args, err := workflowArgs(w)
	if err != nil {
		return err
	}
	c := t.changes.workflow(w.ID)
	c.Workflow, c.created = w, true
	_, err = t.Exec(ctx, `INSERT INTO workflows (`+workflowColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)`, args...)
	if _, taken := dbkit.UniqueViolation(err); taken {
		return catalog.SlugTaken(w.Slug)
	}
	return err
}

// PutWorkflow implements store.Tx.
func (t tx) PutWorkflow(ctx context.Context, w catalog.Workflow, over int64) error {
	args, err := workflowArgs(w)
	if err != nil {
		return err
	}
	t.changes.workflow(w.ID).Workflow = w
	return t.change(ctx, store.Changed("workflow", w.Slug), `UPDATE workflows SET slug = $3, slug_base = $4, slug_number = $5, name = $6, description = $7,
			tags = $8, state = $9, deprecation = $10, latest_version = $11, version_count = $12, aliases = $13, forked_from = $14, capabilities = $15,
			nodes = $16, edges = $17, change = $18, create_time = $19, update_time = $20, delete_time = $21, revision = $22, principal = $23, exposed = $24
		WHERE namespace = $1 AND id = $2 AND revision = $25`, append(args, over)...)
}

// InsertVersion implements store.Tx.
func (t tx) InsertVersion(ctx context.Context, v catalog.Version) error {
	t.changes.workflow(v.WorkflowID).version = v.Number
	return t.Batch(ctx, dbkit.Stmt{
		Query: `INSERT INTO workflow_versions (namespace, workflow_id, version, form, hash, graph_hash, name, label, description, nodes, edges,
				budget_nano_usd, budget_tokens, create_time, principal)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
		Args: []any{
			v.Namespace, v.WorkflowID, v.Number, v.Form, v.Hash, v.GraphHash, v.Name, v.Label, v.Description, v.Extent.Nodes, v.Extent.Edges,
			v.BudgetNanoUSD, v.BudgetTokens, v.CreateTime, v.Principal,
		},
	}, dbkit.Stmt{
		Query: `INSERT INTO workflow_texts (namespace, workflow_id, version, source, graph) VALUES ($1, $2, $3, $4, $5)`,
		Args:  []any{v.Namespace, v.WorkflowID, v.Number, v.Source, v.Packed},
	})
}

// VersionOf implements store.Reader.
func (t tx) VersionOf(ctx context.Context, namespace, id, hash string) (n int64, err error) {
	err = t.row(ctx, `SELECT COALESCE(max(version), 0) FROM workflow_versions WHERE namespace = $1 AND workflow_id = $2 AND hash = $3`, namespace, id, hash).Scan(&n)
	return n, err
}

// VersionsAmong implements store.Tx.
func (t tx) VersionsAmong(ctx context.Context, namespace, id string, numbers []int64) ([]int64, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (n int64, err error) {
		err = row.Scan(&n)
		return n, err
	}, `SELECT version FROM workflow_versions WHERE namespace = $1 AND workflow_id = $2 AND `+t.d.In(`version`, `$3`), namespace, id, numbers)
}

// CountRun implements store.Tx.
func (t tx) CountRun(ctx context.Context, namespace, runID, workflowID string, version int64, now time.Time) (bool, error) {
	n, err := t.Exec(ctx, `INSERT INTO workflow_runs (namespace, run_id, workflow_id, version, time) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
		namespace, runID, workflowID, version, now)
	return n == 1, err
}

// RunTotals implements store.Tx.
func (t tx) RunTotals(ctx context.Context, namespace, runID string) (h catalog.History, err error) {
	err = t.row(ctx, `SELECT CAST(COALESCE(sum(cost_nano_usd), 0) AS bigint), CAST(COALESCE(sum(input_tokens + output_tokens), 0) AS bigint)
		FROM usage_entries WHERE namespace = $1 AND run_id = $2`, namespace, runID).Scan(&h.NanoUSD, &h.Tokens)
	return h, err
}

// AddHistory implements store.Tx.
func (t tx) AddHistory(ctx context.Context, namespace, id string, version int64, h catalog.History, change int64) error {
	const sums = `completed = completed + $3, failed = failed + $4, canceled = canceled + $5, nano_usd = nano_usd + $6, tokens = tokens + $7`
	args := []any{namespace, id, h.Completed, h.Failed, h.Canceled, h.NanoUSD, h.Tokens}
	return t.Batch(ctx,
		dbkit.Stmt{Query: `UPDATE workflows SET ` + sums + `, change = $8 WHERE namespace = $1 AND id = $2`, Args: append(args[:len(args):len(args)], change)},
		dbkit.Stmt{Query: `UPDATE workflow_versions SET ` + sums + ` WHERE namespace = $1 AND workflow_id = $2 AND version = $8`, Args: append(args[:len(args):len(args)], version)})
}

// AddSamples implements store.Tx. The place of a sample is the number of its run among those that have
// ended, so a new one overwrites the oldest and nothing has to be deleted.
func (t tx) AddSamples(ctx context.Context, namespace, id string, version int64, samples []catalog.Sample) error {
	if len(samples) == 0 {
		return nil
	}
	var ended int64
	if err := t.row(ctx, `SELECT completed + failed FROM workflow_versions WHERE namespace = $1 AND workflow_id = $2 AND version = $3`,
		namespace, id, version).Scan(&ended); err != nil {
		return err
	}
	samples = samples[max(0, len(samples)-catalog.MaxSamples):]
	first := ended - int64(len(samples))
	rows := make([][]any, len(samples))
	for i, s := range samples {
		rows[i] = []any{(first + int64(i)) % catalog.MaxSamples, s.Failed, s.Unpriced, s.NanoUSD, s.Tokens, s.DurationMS}
	}
	columns := [][2]string{{"place", "int"}, {"failed", "boolean"}, {"unpriced", "boolean"}, {"nano_usd", "bigint"}, {"tokens", "bigint"}, {"duration_ms", "bigint"}}
	_, err := t.Exec(ctx, `INSERT INTO workflow_samples (namespace, workflow_id, version, place, failed, unpriced, nano_usd, tokens, duration_ms)
		SELECT $1, $2, $3, n.* FROM `+t.d.Rows(`n`, 4, columns...)+` WHERE true
		ON CONFLICT (namespace, workflow_id, version, place) DO UPDATE SET failed = excluded.failed, unpriced = excluded.unpriced,
			nano_usd = excluded.nano_usd, tokens = excluded.tokens, duration_ms = excluded.duration_ms`,
		append([]any{namespace, id, version}, t.d.RowArgs(len(columns), rows)...)...)
	return err
}

// Samples implements store.Reader.
func (t tx) Samples(ctx context.Context, namespace, id string, version int64) ([]catalog.Sample, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (s catalog.Sample, err error) {
		err = row.Scan(&s.Failed, &s.Unpriced, &s.NanoUSD, &s.Tokens, &s.DurationMS)
		return s, err
	}, `SELECT failed, unpriced, nano_usd, tokens, duration_ms FROM workflow_samples WHERE namespace = $1 AND workflow_id = $2 AND version = $3`,
		namespace, id, version)
}

// SweepWorkflows implements store.Store.
func (s *Store) SweepWorkflows(ctx context.Context, deletedBefore, runsBefore time.Time) (workflows, runs int64, err error) {
	workflows, err = s.sweep(ctx, s.d.DeleteSome(`workflows`, `namespace, id`,
		`SELECT namespace, id FROM workflows WHERE state = 3 AND delete_time < $1 LIMIT $2`), deletedBefore, sweptWorkflows)
	if err != nil {
		return workflows, 0, err
	}
	runs, err = s.sweep(ctx, s.d.DeleteSome(`workflow_runs`, `namespace, run_id`,
		`SELECT namespace, run_id FROM workflow_runs WHERE time < $1 LIMIT $2`), runsBefore, sweptRuns)
	if err != nil {
		return workflows, runs, err
	}
	places, err := s.sweep(ctx, s.d.DeleteSome(`change_places`, `namespace, source`,
		`SELECT namespace, source FROM change_places WHERE time < $1 LIMIT $2`), runsBefore, sweptRuns)
	return workflows, runs + places, err
}

// Rows of one transaction of a sweep. A workflow goes with its versions, each of which may have megabytes.
const sweptWorkflows, sweptRuns = 10, 1000

// sweep repeats a statement with a bound until nothing is left to delete, so that nobody waits long for it.
func (s *Store) sweep(ctx context.Context, query string, before time.Time, most int) (all int64, err error) {
	for {
		n, err := s.db.Pool.Exec(ctx, query, before, most)
		all += n
		if err != nil || n < int64(most) {
			return all, err
		}
	}
}
