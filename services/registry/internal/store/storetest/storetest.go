// Package storetest owns the one conformance suite of the registry's stores. It drives a store through
// package accounting, as the service does, so that a driver is right when every use case is right on it,
// under concurrency too. It must not know any driver.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// ns is the namespace of cases that need only one.
const ns = "default"

// Open returns a fresh, migrated and empty store that is closed at the end of the test.
type Open func(testing.TB) store.Store

// Run runs every case against stores of one driver.
func Run(t *testing.T, open Open) {
	for _, group := range []map[string]func(*testing.T, *fixture){
		epicCases(), taskCases(), dependencyCases(), claimCases(), orderCases(), pauseCases(), runningCases(), stopCases(), namespaceCapCases(), usageCases(), randomCases(), turnCases(), lookCases(),
		workflowCases(), policyCases(), searchCases(), importCases(), ledgerCases(), reportCases(), feedCases(), memoryCases(), learnedCases(), forgetCases(), vectorCases(), procedureCases(), apiKeyCases(), auditCases(),
	} {
		for name, run := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, newFixture(t, open))
			})
		}
	}
}

// fixture is the environment of a case. Its ctx is that of a service.
type fixture struct {
	*accounting.Accounts
	store   store.Store
	catalog *cataloging.Catalog
	ctx     context.Context
}

func newFixture(t testing.TB, open Open) *fixture {
	t.Helper()
	s := open(t)
	prices, err := usage.Defaults()
	require.NoError(t, err)
	require.NoError(t, s.SeedPrices(t.Context(), prices))
	return &fixture{Accounts: accounting.New(s), store: s, catalog: cataloging.New(s), ctx: access.With(t.Context(), access.Principal{Kind: access.Internal})}
}

// database is where the runs of cases are recorded that need only one.
const database = "db"

// ClaimTask claims for a run of the one database.
func (f *fixture) ClaimTask(ctx context.Context, namespace, taskID, runID string, lease time.Duration) (epic.Task, time.Time, error) {
	return f.Accounts.ClaimTask(ctx, namespace, taskID, runID, database, lease)
}

// ConfirmClaim confirms for a run of the one database.
func (f *fixture) ConfirmClaim(ctx context.Context, namespace, taskID, runID string, start time.Time) (epic.Task, error) {
	return f.Accounts.ConfirmClaim(ctx, namespace, taskID, runID, database, "", start)
}

// Epics lists epics; there are fewer than are examined for a page.
func (f *fixture) Epics(ctx context.Context, q store.EpicQuery) ([]epic.Epic, error) {
	found, err := f.Accounts.Epics(ctx, q)
	return found.Rows, err
}

// Tasks lists tasks; there are fewer than are examined for a page.
func (f *fixture) Tasks(ctx context.Context, q store.TaskQuery) ([]epic.Task, error) {
	found, err := f.Accounts.Tasks(ctx, q)
	return found.Rows, err
}

// LeaseOrders leases those of the one database.
func (f *fixture) LeaseOrders(ctx context.Context, limit int, hold time.Duration) ([]epic.Order, error) {
	return f.Accounts.LeaseOrders(ctx, database, limit, hold)
}

func (f *fixture) epic(t testing.TB, in epic.Epic) epic.Epic {
	t.Helper()
	e, err := f.CreateEpic(f.ctx, ns, accounting.Once{}, in)
	require.NoError(t, err)
	return e
}

func (f *fixture) task(t testing.TB, epicID string, dependsOn ...string) epic.Task {
	t.Helper()
	v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: epicID, Title: "task", DependsOn: dependsOn})
	require.NoError(t, err)
	return v
}

func (f *fixture) move(t testing.TB, id string, to epic.TaskState) epic.Task {
	t.Helper()
	v, err := f.MoveTask(f.ctx, ns, id, accounting.Change{}, to, accounting.Outcome{})
	require.NoError(t, err)
	return v
}

func (f *fixture) moveEpic(t testing.TB, id string, to epic.State) epic.Epic {
	t.Helper()
	e, err := f.MoveEpic(f.ctx, ns, id, accounting.Change{}, to, "")
	require.NoError(t, err)
	return e
}

func (f *fixture) state(t testing.TB, id string) epic.TaskState {
	t.Helper()
	v, err := f.Task(f.ctx, ns, id)
	require.NoError(t, err)
	return v.State
}

// recount compares the counters of an epic, kept step by step, with what its tasks and entries say.
func (f *fixture) recount(t require.TestingT, namespace, epicID string) {
	e, err := f.Epic(f.ctx, namespace, epicID)
	require.NoError(t, err)
	tasks, err := f.Tasks(f.ctx, store.TaskQuery{Namespace: namespace, EpicID: epicID, Limit: 1000})
	require.NoError(t, err)
	var completed, failed, dependencies int32
	for _, v := range tasks {
		dependencies += int32(len(v.DependsOn))
		switch v.State {
		case epic.TaskCompleted:
			completed++
		case epic.TaskFailed:
			failed++
		}
		require.Equal(t, f.sum(t, store.EntryQuery{Namespace: namespace, TaskID: v.ID}), v.Actual, "task %s", v.ID)
	}
	require.Equal(t, []int32{int32(len(tasks)), completed, failed, dependencies},
		[]int32{e.TotalTasks, e.CompletedTasks, e.FailedTasks, e.Dependencies}, "counters")
	require.Equal(t, f.sum(t, store.EntryQuery{Namespace: namespace, EpicID: epicID}), e.Spent)
}

// sum adds up the entries of a query.
func (f *fixture) sum(t require.TestingT, q store.EntryQuery) usage.Totals {
	q.Limit = 1_000_000
	entries, err := f.Entries(f.ctx, q)
	require.NoError(t, err)
	var out usage.Totals
	for _, e := range entries {
		one, err := e.Totals()
		require.NoError(t, err)
		out, err = out.Plus(one)
		require.NoError(t, err)
	}
	return out
}

// requireError asks for a kind and a reason.
func requireError(t require.TestingT, err error, kind errs.Kind, reason string) *errs.Error {
	require.Error(t, err)
	require.True(t, errs.Is(err, kind), "want %s, got %v", kind, err)
	require.Equal(t, reason, errs.ReasonOf(err), "got %v", err)
	e, _ := errors.AsType[*errs.Error](err)
	return e
}

// together runs fn n times at once and returns the errors.
func together(n int, fn func(i int) error) []error {
	out := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			out[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return out
}

func count(errors []error, is func(error) bool) (n int) {
	for _, err := range errors {
		if is(err) {
			n++
		}
	}
	return n
}

func succeeded(err error) bool { return err == nil }

func ptr[T any](v T) *T { return &v }

// entry returns a model call whose key differs by call.
func entry(run string, call int, taskID string, in, out int64) usage.Entry {
	return usage.Entry{
		Key:  usage.Key{RunID: run, NodeID: "node", Attempt: 1, Call: int32(call)},
		Kind: usage.Model, TaskID: taskID, Provider: "openai", Model: "fake-model", InputTokens: in, OutputTokens: out,
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// Bench books batches of entries on one task and reports entries per second.
func Bench(b *testing.B, open Open) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			f := newFixture(b, open)
			v := f.task(b, f.epic(b, epic.Epic{}).ID)
			n := 0
			for b.Loop() {
				batch := make([]usage.Entry, size)
				for i := range batch {
					batch[i] = entry("run", n, v.ID, 100, 10)
					n++
				}
				_, err := f.RecordUsage(f.ctx, ns, batch)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}
