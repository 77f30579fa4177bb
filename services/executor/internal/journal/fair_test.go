package journal_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// busy is a journal whose counts take until they are let go.
type busy struct {
	journal.Journal

	counts chan string
	goOn   chan struct{}
}

func (b busy) Readers() int { return 4 }

func (b busy) CountBelow(_ context.Context, namespace, _ string, _ int) (all, open int, err error) {
	b.counts <- namespace
	<-b.goOn
	return 0, 0, nil
}

func (busy) Get(context.Context, string, string) (journal.Run, error) { return journal.Run{}, nil }

func (b busy) PutActors(_ context.Context, _ journal.Owner, namespace string, _ []journal.RemoteActor, _ time.Duration, _ int) error {
	b.counts <- namespace
	<-b.goOn
	return nil
}

func TestFair(t *testing.T) {
	t.Run("Workers/RegisterOneAtATime", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := busy{counts: make(chan string, 100), goOn: make(chan struct{})}
			f := journal.Fair(b, dbkit.NewTurns(b.Readers()))
			for range 20 {
				for _, ns := range []string{"a", "b"} {
					go func() { _ = f.PutActors(t.Context(), journal.Owner{}, ns, nil, time.Second, 1) }()
				}
			}
			synctest.Wait()
			require.ElementsMatch(t, []string{"a", "b"}, []string{<-b.counts, <-b.counts})
			require.Empty(t, b.counts)
			_, err := f.Get(t.Context(), "a", "run_1")
			require.NoError(t, err, "nobody's reads wait for it")
			close(b.goOn)
			synctest.Wait()
			require.Len(t, b.counts, 38)
		})
	})
	t.Run("Reads/HalfAreForOneNamespace", testFairReads)
	t.Run("Reads/ClientsOfManyLeaveOneToTheEngine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := busy{counts: make(chan string, 2*dbkit.MaxWaiting), goOn: make(chan struct{})}
			f := journal.Fair(b, dbkit.NewTurns(b.Readers()))
			client := access.With(t.Context(), access.Principal{Kind: access.Key, Name: "k"})
			for _, ns := range []string{"a", "b", "c"} {
				for range 50 {
					go func() { _, _, _ = f.CountBelow(client, ns, "run_1", 10) }()
				}
			}
			synctest.Wait()
			require.Len(t, b.counts, 3, "of four readers")
			_, err := f.Get(t.Context(), "a", "run_1")
			require.NoError(t, err, "what the engine asks for a namespace does not wait for its clients")
			close(b.goOn)
			synctest.Wait()
			require.Len(t, b.counts, 150)
		})
	})
	t.Run("Reads/TooManyThatWaitAreRefused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := busy{counts: make(chan string, 2*dbkit.MaxWaiting), goOn: make(chan struct{})}
			f := journal.Fair(b, dbkit.NewTurns(b.Readers()))
			defer close(b.goOn)
			client := access.With(t.Context(), access.Principal{Kind: access.Key, Name: "k"})
			for range 2 + dbkit.MaxWaiting {
				go func() { _, _, _ = f.CountBelow(client, "a", "run_1", 10) }()
			}
			synctest.Wait()
			_, err := f.Get(client, "a", "run_1")
			require.Equal(t, dbkit.ReasonBusy, errs.ReasonOf(err), "got %v", err)
			_, err = f.Get(client, "b", "run_1")
			require.NoError(t, err)
		})
	})
	t.Run("Methods/EachIsDecidedOn", testFairMethods)
}

func testFairReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := busy{counts: make(chan string, 100), goOn: make(chan struct{})}
		f := journal.Fair(b, dbkit.NewTurns(b.Readers()))
		for range 50 {
			go func() { _, _, _ = f.CountBelow(t.Context(), "a", "run_1", 10) }()
		}
		synctest.Wait()
		require.Len(t, b.counts, 2, "half of the readers")
		_, err := f.Get(t.Context(), "b", "run_2")
		require.NoError(t, err, "another namespace finds one at once")
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = f.Get(ended, "a", "run_1")
		require.ErrorIs(t, err, context.Canceled)
		close(b.goOn)
		synctest.Wait()
		require.Len(t, b.counts, 50)
		_, err = f.Get(t.Context(), "a", "run_1")
		require.NoError(t, err)
	})
}

// turnless are the methods that wait for no turn: the engine asks them for all namespaces, or to write down
// what has happened already.
var turnless = []string{
	"Close", "Register", "TokenKey", "Heartbeat", "Executors", "TakeOver", "ClaimRun", "Mark", "SweepOwnerless", "ReadyJobs", "WorkJobsAs", "RescueJobs", "ExpediteUnpriced", "Release", "Deregister",
	"Commit", "Load", "SweepRequestIDs", "Readers", "ClaimOutbox", "AckOutbox", "RetryOutbox", "OutboxBacklog", "PendingCommands", "CommandWakes", "SyncWorkers", "WorkerWakes", "PurgeRuns",
	"NoteBlobs", "OrphanBlobs", "ForgetBlobs", "Expired", "NoteArchive", "Extend", "Shrink", "SweepGraphs", "SweepOutcomes", "SweepThreads", "HideParts", "OverdueTurns", "HeldTurns", "PurgeThreads", "KeptTools", "KeepTools",
}

// testFairMethods calls every method with a context that has ended, of a journal that answers nothing: what
// waits for a turn says so, and the rest gets through.
func testFairMethods(t *testing.T) {
	ended, end := context.WithCancelCause(t.Context())
	reason := errors.New("ended before its turn")
	end(reason)
	all := reflect.TypeFor[journal.Journal]()
	var without []string
	for i := range all.NumMethod() {
		synctest.Test(t, func(t *testing.T) {
			b := busy{counts: make(chan string, 100), goOn: make(chan struct{})}
			f := journal.Fair(b, dbkit.NewTurns(b.Readers()))
			// The turns of the namespace without a name are taken, whichever kind a method needs.
			for range 2 {
				go func() { _, _, _ = f.CountBelow(t.Context(), "", "run_1", 1) }()
				go func() { _ = f.PutActors(t.Context(), journal.Owner{}, "", nil, 0, 0) }()
			}
			synctest.Wait()
			defer close(b.goOn)
			if name := all.Method(i).Name; !testkit.Returns(f, name, reason, ended) {
				without = append(without, name)
			}
		})
	}
	require.ElementsMatch(t, turnless, without)
}
