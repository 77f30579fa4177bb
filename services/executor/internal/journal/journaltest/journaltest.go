// Package journaltest owns the conformance suite and the benchmark that every journal driver runs.
// It knows the contract of package journal and nothing of any driver.
package journaltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Driver is what the suite needs of a driver.
type Driver struct {
	// Fresh makes a new, migrated and empty store that ends with the test, and says where it is.
	Fresh func(t testing.TB) (place string)
	// Open opens a store; several may be open on one place, also in other processes.
	Open func(ctx context.Context, place string) (journal.Journal, error)
	// JobQuery selects the jobs that wait as "kind state run", in the order of their ids.
	JobQuery string
	// Query runs a query of one column of text, which may change rows.
	Query func(t testing.TB, place, sql string) []string
	// AgeGraphs makes all graphs look as if nobody took one for a week.
	AgeGraphs func(t testing.TB, place string)
	// TakeJobs makes all waiting jobs look as if somebody had begun to work them a minute ago.
	TakeJobs func(t testing.TB, place, worker string)
	// SeesEnds says that the store knows when the process of an owner has ended, and does not wait for its
	// lease.
	SeesEnds bool
}

// Run is the suite.
func Run(t *testing.T, d Driver) {
	for name, cases := range map[string]func(*testing.T, Driver){
		"Start": startCases, "Append": appendCases, "Fence": fenceCases, "TakeOver": takeOverCases, "TakeOverCanceled": canceledCases,
		"Read": readCases, "Commands": commandCases, "Ownerless": ownerlessCases, "Pending": pendingCases, "Interrupt": interruptCases, "Outbox": outboxCases, "Writer": writerCases,
		"Workers": workerCases, "Delete": deleteCases, "Retention": retentionCases, "Outcomes": outcomeCases, "Threads": threadCases, "ToldThreads": toldThreadCases,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases(t, d)
		})
	}
	t.Run("Model/RandomBatches", func(t *testing.T) { modelCase(t, d) })
	t.Run("Crash/KilledWhileCommitting", func(t *testing.T) { crashCase(t, d) })
	t.Run("Crash/KilledOwnerIsNotTakenForAlive", func(t *testing.T) { killedCase(t, d) })
}

const ns = "acme"

var base = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// world is one store with one registered executor.
type world struct {
	t     *testing.T
	d     Driver
	place string
	j     journal.Journal
	me    journal.Owner
}

func open(t *testing.T, d Driver) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, d: d, place: d.Fresh(t)}
	w.j = w.another()
	w.me = w.register("exec-a")
	return w
}

func (w *world) another() journal.Journal {
	w.t.Helper()
	j, err := w.d.Open(w.t.Context(), w.place)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, j.Close()) })
	return j
}

func (w *world) register(id string) journal.Owner {
	w.t.Helper()
	o, err := w.j.Register(w.t.Context(), id, "addr-of-"+id)
	require.NoError(w.t, err)
	return o
}

func (w *world) commit(writes ...journal.Write) []journal.Result {
	w.t.Helper()
	res, err := w.j.Commit(w.t.Context(), w.me, writes)
	require.NoError(w.t, err)
	require.Len(w.t, res, len(writes))
	return res
}

// started commits the start of a run that has n events.
func (w *world) started(n int, change ...func(*journal.Start)) string {
	w.t.Helper()
	s := start(n, change...)
	res := w.commit(journal.Write{Start: s})
	require.NoError(w.t, res[0].Err)
	require.True(w.t, res[0].Created)
	return s.Run.ID
}

// jobs are the jobs that wait, as "kind state run".
func (w *world) jobs() []string {
	w.t.Helper()
	return w.d.Query(w.t, w.place, w.d.JobQuery)
}

func (w *world) pending(o journal.Owner) []journal.Command {
	w.t.Helper()
	ms, err := w.j.PendingCommands(w.t.Context(), o, journal.CommandQuery{Limit: 1000})
	require.NoError(w.t, err)
	return ms
}

func (w *world) unread(id string) []journal.Command {
	w.t.Helper()
	ms, err := w.j.UnappliedCommands(w.t.Context(), ns, id, 1000)
	require.NoError(w.t, err)
	return ms
}

func (w *world) claim(self journal.Owner, id string) journal.Owner {
	w.t.Helper()
	o, err := w.j.ClaimRun(w.t.Context(), self, ns, id, journal.TakeOverPolicy{})
	require.NoError(w.t, err)
	return o
}

func (w *world) get(id string) journal.Run {
	w.t.Helper()
	r, err := w.j.Get(w.t.Context(), ns, id)
	require.NoError(w.t, err)
	return r
}

func (w *world) events(id string) []journal.Event {
	w.t.Helper()
	es, err := w.j.Events(w.t.Context(), ns, id, 0, 1<<20)
	require.NoError(w.t, err)
	for i, e := range es {
		require.EqualValues(w.t, i+1, e.Seq, "the journal has a gap")
		require.Equal(w.t, id, e.RunID)
	}
	return es
}

// expire makes owner look dead: another executor takes over with a lease of nothing.
func (w *world) takeOver(self journal.Owner, o journal.TakeOverOptions) journal.TakeOverResult {
	w.t.Helper()
	if o.Limit == 0 {
		o.Limit = 100
	}
	res, err := w.j.TakeOver(w.t.Context(), self, o)
	require.NoError(w.t, err)
	return res
}

func event(i int) journal.Event {
	return journal.Event{
		Time: base.Add(time.Duration(i) * time.Second), Kind: int32(10 + i%5), NodeID: fmt.Sprintf("n%d", i), Visit: int32(i % 3),
		Data: fmt.Appendf(nil, "data of %d", i),
	}
}

func events(from, n int) []journal.Event {
	es := make([]journal.Event, n)
	for i := range es {
		es[i] = event(from + i)
	}
	return es
}

func start(n int, change ...func(*journal.Start)) *journal.Start {
	s := &journal.Start{
		Run: journal.Run{
			ID: ids.New("run"), Namespace: ns, GraphName: "g", GraphHash: "h1", CreateTime: dbkit.Now(), MachineVersion: 1,
			Status: journal.Status{State: journal.StateRunning, StartTime: base, UpdateTime: base},
		}, Append: journal.Append{Graph: []byte("graph"), Events: events(1, n)},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func appendTo(id string, last, n int, change ...func(*journal.Append)) journal.Write {
	a := &journal.Append{Namespace: ns, RunID: id, ExpectedLastSeq: int64(last), Events: events(last+1, n)}
	for _, c := range change {
		c(a)
	}
	return journal.Write{Append: a}
}

func inState(s journal.State) func(*journal.Append) {
	return func(a *journal.Append) { a.Status = &journal.Status{State: s, UpdateTime: base} }
}

func reason(t *testing.T, err error, want string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, errs.ReasonOf(err), "got %v", err)
}
