package registry_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry"
)

// TestExamine damages the database in one way after the other, and checks the findings.
func TestExamine(t *testing.T) {
	t.Parallel()
	harms := []struct {
		harm, mend string
		wants      []string
		// all are the findings of a whole examination only.
		all []string
	}{
		{harm: `UPDATE accounts SET spent_tokens = spent_tokens + 1 WHERE level < 3`, mend: `UPDATE accounts SET spent_tokens = spent_tokens - 1 WHERE level < 3`, wants: []string{"ledger-spent"}},
		{harm: `UPDATE accounts SET spent_tokens = spent_tokens + 1 WHERE level = 3`, mend: `UPDATE accounts SET spent_tokens = spent_tokens - 1 WHERE level = 3`, wants: []string{"ledger-runs"}},
		{harm: `UPDATE accounts SET spent_nano_usd = spent_nano_usd - 1 WHERE level = 3`, mend: `UPDATE accounts SET spent_nano_usd = spent_nano_usd + 1 WHERE level = 3`, wants: []string{"ledger-runs"}},
		{harm: `UPDATE accounts SET beyond_tokens = beyond_tokens - 1 WHERE id = 'run_0'`, mend: `UPDATE accounts SET beyond_tokens = beyond_tokens + 1 WHERE id = 'run_0'`, wants: []string{"ledger-runs"}},
		{harm: `UPDATE accounts SET spent_tokens = 10, beyond_tokens = NULL, beyond_nano_usd = NULL WHERE id = 'run_1'`,
			mend: `UPDATE accounts SET spent_tokens = 12, beyond_tokens = NULL, beyond_nano_usd = NULL WHERE id = 'run_1'`, wants: []string{"ledger-runs"}},
		{harm: `UPDATE accounts SET spent_tokens = 11, beyond_tokens = 0, beyond_nano_usd = 0 WHERE id = 'run_1'`},
		{harm: `UPDATE accounts SET reserved_nano_usd = 5`, mend: `UPDATE accounts SET reserved_nano_usd = 0`, wants: []string{"ledger-reserved"}},
		{harm: `UPDATE tasks SET nano_usd = nano_usd + 1`, mend: `UPDATE tasks SET nano_usd = nano_usd - 1`, wants: []string{"task-totals"}},
		{harm: `UPDATE epics SET tokens = tokens + 1`, mend: `UPDATE epics SET tokens = tokens - 1`, wants: []string{"epic-totals", "ledger-spent"}},
		{harm: `UPDATE namespace_totals SET model_calls = model_calls + 1`, mend: `UPDATE namespace_totals SET model_calls = model_calls - 1`, all: []string{"namespace-totals"}},
		{harm: `UPDATE epics SET total_tasks = 7`, mend: `UPDATE epics SET total_tasks = 2`, wants: []string{"task-counts"}},
		{harm: `UPDATE epics SET overhead_nano_usd = 1`, mend: `UPDATE epics SET overhead_nano_usd = 0`, wants: []string{"epic-totals"}},
		{harm: `UPDATE tasks SET unpriced_calls = unpriced_calls + 1`, mend: `UPDATE tasks SET unpriced_calls = unpriced_calls - 1`, wants: []string{"task-totals"}},
		{harm: `UPDATE epics SET model_calls = model_calls - 1, tool_calls = tool_calls + 1`, mend: `UPDATE epics SET model_calls = model_calls + 1, tool_calls = tool_calls - 1`, wants: []string{"epic-totals"}},
		{harm: `UPDATE epics SET failed_tasks = 1`, mend: `UPDATE epics SET failed_tasks = 0`, wants: []string{"task-counts"}},
		{harm: `UPDATE epics SET dependencies = 2`, mend: `UPDATE epics SET dependencies = 1`, wants: []string{"dependency-counts"}},
		{harm: `UPDATE tasks SET state = 1 WHERE title = 'after'`, mend: `UPDATE tasks SET state = 2 WHERE title = 'after'`, wants: []string{"task-early"}},
		{harm: `UPDATE tasks SET state = 6, dependency_policy = 3 WHERE title = 'work'`, mend: `UPDATE tasks SET state = 1, dependency_policy = 0`},
		{harm: `UPDATE tasks SET state = CASE title WHEN 'work' THEN 6 ELSE 2 END, dependency_policy = 3`, mend: `UPDATE tasks SET state = CASE title WHEN 'work' THEN 1 ELSE 2 END, dependency_policy = 0`, wants: []string{"task-waiting"}},
		{harm: `UPDATE usage_days SET nano_usd = nano_usd + 1 WHERE NOT whole`, mend: `UPDATE usage_days SET nano_usd = nano_usd - 1 WHERE NOT whole`, wants: []string{"usage-days"}},
		{harm: `UPDATE usage_days SET day = day + 1 WHERE NOT whole`, mend: `UPDATE usage_days SET day = day - 1 WHERE NOT whole`, wants: []string{"usage-days"}},
		{harm: `UPDATE usage_days SET cached_input_tokens = 1 WHERE whole`, mend: `UPDATE usage_days SET cached_input_tokens = 0 WHERE whole`, all: []string{"namespace-days"}},
		{harm: `UPDATE usage_epics SET reasoning_tokens = 1`, mend: `UPDATE usage_epics SET reasoning_tokens = 0`, wants: []string{"usage-epics"}},
		{harm: `UPDATE usage_runs SET failed_calls = 1`, mend: `UPDATE usage_runs SET failed_calls = 0`, wants: []string{"usage-runs"}},
		{harm: `UPDATE usage_runs SET run_id = 'other'`, mend: `UPDATE usage_runs SET run_id = 'run_1'`, wants: []string{"usage-runs"}},
		{harm: `UPDATE usage_nodes SET output_tokens = output_tokens + 1 WHERE NOT whole`, mend: `UPDATE usage_nodes SET output_tokens = output_tokens - 1 WHERE NOT whole`, wants: []string{"usage-nodes"}},
		{harm: `UPDATE usage_nodes SET node_id = 'other' WHERE NOT whole`, mend: `UPDATE usage_nodes SET node_id = 'n' WHERE NOT whole`, wants: []string{"usage-nodes"}},
		{harm: `UPDATE usage_nodes SET calls = 2 WHERE whole`, mend: `UPDATE usage_nodes SET calls = 1 WHERE whole`, all: []string{"namespace-nodes"}},
		{harm: `UPDATE namespace_totals SET used_epics = 7`, mend: `UPDATE namespace_totals SET used_epics = 1`, all: []string{"used-epics"}},
		{harm: `DELETE FROM usage_entries`, wants: []string{"epic-totals", "ledger-runs", "task-totals", "usage-days", "usage-epics", "usage-nodes", "usage-runs"},
			all: []string{"epic-totals", "ledger-runs", "namespace-days", "namespace-nodes", "namespace-totals", "task-totals", "usage-days", "usage-epics", "usage-nodes", "usage-runs"}},
	}
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run("Books/"+store, func(t *testing.T) {
			t.Parallel()
			cfg := sqliteConfig(t)
			if cfg.Store = store; store == "postgres" {
				cfg.PostgresURL = conf.NewSecret(pgtest.New(t))
			}
			c := serve(t, cfg)
			tokens := int64(1000)
			e, err := c.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal", BudgetTokens: &tokens}})
			require.NoError(t, err)
			task := newTask(t, c, &registryv1.Task{Title: "work", EpicId: e.GetId()})
			_, err = c.CreateTask(t.Context(), &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: task.GetEpicId(), Title: "after", DependsOn: []string{task.GetId()}}})
			require.NoError(t, err)
			_, err = c.RecordUsage(t.Context(), &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{{
				RunId: "run_1", NodeId: "n", Visit: 1, Attempt: 1, TaskId: task.GetId(), Kind: registryv1.UsageKind_USAGE_KIND_MODEL, Provider: "p", Model: "m", InputTokens: 5, OutputTokens: 6}}})
			require.NoError(t, err)
			most, used := int64(100), int64(30)
			_, err = c.ReserveUsage(t.Context(), &registryv1.ReserveUsageRequest{AskOnly: true, Calls: []*registryv1.UsageEntry{{RunId: "run_1", NodeId: "n", Visit: 2, Attempt: 1, InputTokens: 5}},
				Runs: []*registryv1.RunBudget{{RunId: "run_0", Hard: &registryv1.Caps{Tokens: &most}, SpentTokens: used, Calls: []int32{0}}, {RunId: "run_1", Hard: &registryv1.Caps{Tokens: &most}, Calls: []int32{0}}}})
			require.NoError(t, err)
			exec := func(stmt string) {
				t.Helper()
				if store == "sqlite" {
					db, err := sql.Open("sqlite", cfg.SQLitePath)
					require.NoError(t, err)
					_, err = db.ExecContext(t.Context(), stmt)
					require.NoError(t, err)
					require.NoError(t, db.Close())
					return
				}
				conn, err := pgx.Connect(t.Context(), cfg.PostgresURL.Reveal())
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), `SET search_path = registry`)
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), stmt)
				require.NoError(t, err)
				require.NoError(t, conn.Close(t.Context()))
			}
			found := func(all bool) (names []string) {
				t.Helper()
				r, err := registry.Examine(t.Context(), cfg, doctor.Options{All: all})
				require.NoError(t, err)
				for _, f := range r.Findings {
					names = append(names, f.Check)
					require.Equal(t, doctor.Fault, f.Severity, "%+v", f)
				}
				slices.Sort(names)
				return names
			}
			require.Empty(t, found(true))
			for _, h := range harms {
				exec(h.harm)
				require.Equal(t, h.wants, found(false), h.harm)
				if h.all == nil {
					h.all = h.wants
				}
				require.Equal(t, h.all, found(true), h.harm)
				if h.mend != "" {
					exec(h.mend)
				}
			}
		})
	}
}
