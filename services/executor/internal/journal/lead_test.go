package journal_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// answers are what came back, in order.
type answers struct {
	mu  sync.Mutex
	got []journal.Result
}

func (a *answers) note(r journal.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, r)
}

func (a *answers) runs() (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.got {
		ids = append(ids, r.RunID)
	}
	return ids
}

// sent are the batches so far.
func (s *scripted) sent() [][]journal.Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

func TestLead(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, f)
		})
	}
	nap := func(d time.Duration) {
		time.Sleep(d) //nolint:forbidigo // fake time: inside a synctest bubble
		synctest.Wait()
	}
	// leading is a writer for which somebody else than Run commits a first write just now.
	leading := func(t *testing.T, c *scripted) (w *journal.Writer, outcomes *answers, stop func() error) {
		w, stop = run(t, c, journal.WriterOptions{})
		synctest.Wait()
		outcomes = &answers{}
		require.NoError(t, w.Leave(appendOf("n", "a", 1), outcomes.note))
		go w.Lead()
		synctest.Wait()
		return w, outcomes, stop
	}
	bubble("Lead/CommitsWhereItIsCalled", func(t *testing.T) {
		c := &scripted{}
		w, stop := run(t, c, journal.WriterOptions{})
		synctest.Wait()
		var outcomes answers
		require.NoError(t, w.Leave(appendOf("n", "a", 1), outcomes.note))
		nap(time.Minute)
		require.Empty(t, c.sent())
		w.Lead()
		require.Equal(t, []string{"a"}, outcomes.runs())
		w.Lead() // there is nothing
		require.NoError(t, stop())
		require.Len(t, c.sent(), 1)
	})
	bubble("Lead/RunGoesOnWithWhatCameMeanwhile", func(t *testing.T) {
		c := &scripted{perCall: time.Second}
		w, outcomes, stop := leading(t, c)
		require.NoError(t, w.Submit(appendOf("n", "b", 1), outcomes.note))
		require.NoError(t, w.Leave(appendOf("n", "c", 1), outcomes.note))
		w.Lead() // somebody does already
		require.Empty(t, outcomes.runs())
		nap(time.Second)
		require.Equal(t, []string{"a"}, outcomes.runs())
		nap(time.Second)
		require.Equal(t, []string{"a", "b", "c"}, outcomes.runs())
		require.Len(t, c.sent(), 2)
		require.NoError(t, stop())
	})
	bubble("Lead/LeavesNothingBehindThatRunTook", func(t *testing.T) {
		c := &scripted{perCall: time.Second}
		w, stop := run(t, c, journal.WriterOptions{})
		var outcomes answers
		require.NoError(t, w.Submit(appendOf("n", "a", 1), outcomes.note))
		synctest.Wait()
		require.NoError(t, w.Leave(appendOf("n", "b", 1), outcomes.note))
		w.Lead()
		nap(2 * time.Second)
		require.Equal(t, []string{"a", "b"}, outcomes.runs())
		require.NoError(t, stop())
	})
	bubble("Lead/AFenceEndsRun", func(t *testing.T) {
		c := &scripted{perCall: time.Second, answer: func(context.Context, int) error { return journal.Fenced(journal.Owner{ID: "a"}) }}
		w, outcomes, stop := leading(t, c)
		require.NoError(t, w.Submit(appendOf("n", "b", 1), outcomes.note))
		nap(time.Second)
		<-w.Done()
		require.True(t, journal.IsFenced(stop()))
		require.Len(t, c.sent(), 1)
		require.Len(t, outcomes.runs(), 2)
		for _, r := range outcomes.got {
			require.True(t, journal.IsFenced(r.Err))
		}
		require.True(t, journal.IsFenced(w.Leave(appendOf("n", "c", 1), outcomes.note)))
		w.Lead() // it is over
		require.Len(t, c.sent(), 1)
	})
	bubble("Lead/AStopWaitsForIt", func(t *testing.T) {
		c := &scripted{perCall: time.Second}
		w, outcomes, stop := leading(t, c)
		require.NoError(t, w.Leave(appendOf("n", "b", 1), outcomes.note))
		require.NoError(t, stop())
		require.Equal(t, []string{"a", "b"}, outcomes.runs())
		for _, r := range outcomes.got {
			require.NoError(t, r.Err)
		}
		require.Equal(t, journal.ReasonWriterStopped, errs.ReasonOf(w.Leave(appendOf("n", "c", 1), func(journal.Result) {})))
	})
	bubble("Lead/RowsThatAreBehindAreWrittenAllTheSame", func(t *testing.T) {
		c := &scripted{}
		w, stop := run(t, c, journal.WriterOptions{RowEvery: time.Second})
		_, err := w.Do(t.Context(), startOf("n", "r", 1))
		require.NoError(t, err)
		synctest.Wait()
		wr := appendOf("n", "r", 1)
		wr.Append.Status = &journal.Status{State: journal.StateRunning, Nodes: journal.NodeCounts{Total: 7}}
		require.NoError(t, w.Leave(wr, func(journal.Result) {}))
		w.Lead()
		require.Len(t, c.sent(), 2)
		require.Nil(t, c.sent()[1][0].Append.Status)
		nap(2 * time.Second)
		require.Len(t, c.sent(), 3)
		require.Equal(t, int32(7), c.sent()[2][0].Append.Status.Nodes.Total)
		require.NoError(t, stop())
	})
}
