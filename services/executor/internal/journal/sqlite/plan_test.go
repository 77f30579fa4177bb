package sqlite

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// Lists follow an index, which has the rows in the order in which they are wanted, and end when the page is
// full.
func TestListsFollowAnIndex(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "journal.db"), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Migrations().Up(ctx)
	require.NoError(t, err)
	asked := &lastQuery{Pool: dbkit.SQLitePool(s.db, s.db.Update)}
	s.Store = sqlstore.New(sqlstore.Database{Read: asked, Engine: asked, Dialect: dbkit.DialectSQLite})
	listed, now := "runs_listed", time.Now()
	for name, c := range map[string]struct {
		filter journal.Filter
		index  string
	}{
		"all":       {journal.Filter{}, listed},
		"time":      {journal.Filter{CreatedAfter: now, CreatedBefore: now}, listed},
		"states":    {journal.Filter{States: []journal.State{journal.StateFailed, journal.StateWaiting}}, listed},
		"task":      {journal.Filter{TaskID: "x", States: []journal.State{journal.StateFailed}}, "runs_by_task"},
		"user":      {journal.Filter{UserID: "x", CreatedAfter: now}, "runs_by_user"},
		"chat":      {journal.Filter{ChatID: "x", Labels: map[string]string{"a": "b"}}, "runs_by_chat"},
		"thread":    {journal.Filter{ThreadID: "x"}, "runs_by_thread"},
		"business":  {journal.Filter{BusinessKey: "x"}, "runs_by_business"},
		"parent":    {journal.Filter{ParentID: "x"}, "runs_by_parent"},
		"schedule":  {journal.Filter{ScheduleID: "x"}, "runs_by_schedule"},
		"epic":      {journal.Filter{EpicID: "x"}, "runs_by_epic"},
		"its few":   {journal.Filter{EpicID: "x", States: []journal.State{journal.StateFailed}}, "runs_by_epic_state"},
		"failed":    {journal.Filter{Workflow: "x", States: []journal.State{journal.StateFailed, journal.StatePaused}}, "runs_by_workflow_state"},
		"of one":    {journal.Filter{WorkflowVersion: "x@1", States: []journal.State{journal.StateFailed}}, "runs_by_workflow_state"},
		"workflow":  {journal.Filter{Workflow: "x"}, "runs_by_workflow"},
		"version":   {journal.Filter{WorkflowVersion: "x@1"}, "runs_by_workflow_version"},
		"labels":    {journal.Filter{Labels: map[string]string{"a": "b", "c": "d"}}, "run_labels_by_value"},
		"its state": {journal.Filter{Labels: map[string]string{"a": "b"}, States: []journal.State{journal.StateFailed}}, "run_labels_by_value"},
	} {
		for _, after := range []page.Cursor{{}, {CreateTime: now, ID: "run_1"}} {
			_, err := s.List(ctx, "n", c.filter, after, 20)
			require.NoError(t, err)
			followed(t, s, name, c.index, asked.query, asked.args)
		}
	}
	for name, c := range map[string]struct {
		filter journal.InterruptFilter
		index  string
	}{
		"interrupts": {journal.InterruptFilter{}, "interrupts_listed"},
		"expired":    {journal.InterruptFilter{States: []journal.InterruptState{journal.InterruptExpired}}, "interrupts_listed"},
		"of run":     {journal.InterruptFilter{RunID: "x", States: []journal.InterruptState{journal.InterruptOpen}}, "interrupts_by_root"},
	} {
		_, err := s.ListInterrupts(ctx, "n", c.filter, page.Cursor{CreateTime: now, ID: "int_1"}, 20)
		require.NoError(t, err)
		followed(t, s, name, c.index, asked.query, asked.args)
	}
	for _, ofAgent := range []bool{false, true} {
		_, err = s.OldestQuestion(ctx, "n", "x", ofAgent)
		require.NoError(t, err)
		followed(t, s, "oldest question", "interrupts_by_root", asked.query, asked.args)
	}
	_, err = s.HeldTurns(ctx, "n", "run", "thr", 10)
	require.NoError(t, err)
	for name, q := range map[string]lastQuery{"held turns": {query: asked.query, args: asked.args}, "freed threads": {query: freedSQL(), args: []any{"run"}}} {
		followed(t, s, name, "threads_by_holder", q.query, q.args)
		followed(t, s, name, "thread_turns_next", q.query, q.args)
	}
	_, _, err = s.FindCommand(ctx, "n", "run", journal.CommandSignal, "key", true)
	require.NoError(t, err)
	followed(t, s, "commands", "sqlite_autoindex_commands_1", asked.query, asked.args)
}

// lastQuery remembers the last query of a pool.
type lastQuery struct {
	dbkit.Pool
	query string
	args  []any
}

func (q *lastQuery) Query(ctx context.Context, query string, args ...any) (dbkit.Rows, error) {
	q.query, q.args = query, slices.Clone(args)
	return q.Pool.Query(ctx, query, args...)
}

func followed(t *testing.T, s *Store, name, index, query string, args []any) {
	rows, err := dbkit.SQLitePool(s.db, s.db.Update).Query(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	require.NoError(t, err, query)
	defer func() { require.NoError(t, rows.Close()) }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var step string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &step))
		plan.WriteString(step + "\n")
		for _, table := range []string{"r", "l", "i", "m", "d", "k", "t", "u"} {
			require.NotEqual(t, "SCAN "+table, strings.SplitN(step+" ", " USING", 2)[0], "%s: %s", name, plan.String())
		}
	}
	require.NoError(t, rows.Err())
	require.Contains(t, plan.String(), index+" (", "%s: %s", name, plan.String())
}

// Take-overs of canceled runs find them by an index of their own, however many others there are.
func TestCanceledRunsHaveAnIndex(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "journal.db"), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Migrations().Up(ctx)
	require.NoError(t, err)
	followed(t, s, "next namespace", "runs_canceled", canceledTenant, []any{"n"})
	followed(t, s, "its runs", "runs_canceled", `SELECT r.run_id`+canceledOrphans+` AND r.takeovers < ? ORDER BY r.run_id LIMIT ?`, []any{"n", 1, 10})
}
