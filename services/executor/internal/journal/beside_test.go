package journal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// watched is a store for which each write takes its time. It sees what is committed at once.
type watched struct {
	t       *testing.T
	perRow  time.Duration
	mu      sync.Mutex
	now     map[string]int // namespaces in commits under way
	commits int
	most    int
	last    map[string]int // of each run
	err     error
}

func (s *watched) Commit(_ context.Context, _ journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	in := map[string]bool{}
	s.mu.Lock()
	s.commits++
	s.most = max(s.most, s.commits)
	for _, w := range ws {
		in[w.Namespace()] = true
	}
	for ns := range in {
		if s.now[ns]++; s.now[ns] > 1 {
			s.t.Errorf("%s is in two batches at once", ns)
		}
	}
	err := s.err
	s.mu.Unlock()
	time.Sleep(time.Duration(len(ws)) * s.perRow) //nolint:forbidigo // fake time: inside a synctest bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits--
	for ns := range in {
		s.now[ns]--
	}
	if err != nil {
		return nil, err
	}
	out := make([]journal.Result, len(ws))
	for i, w := range ws {
		out[i] = journal.Result{RunID: w.RunID()}
		if n := int(w.Append.ExpectedLastSeq); n > 0 {
			if n != s.last[w.RunID()]+1 {
				s.t.Errorf("%s: %d after %d", w.RunID(), n, s.last[w.RunID()])
			}
			s.last[w.RunID()] = n
		}
	}
	return out, nil
}

func TestBeside(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, f)
		})
	}
	store := func(t *testing.T) *watched {
		return &watched{t: t, perRow: time.Millisecond, now: map[string]int{}, last: map[string]int{}}
	}
	// crowd is a writer whose commits take long, with many writes of one namespace before it.
	crowd := func(t *testing.T, c *watched) (w *journal.Writer, left *sync.WaitGroup, stop func() error) {
		w, stop = run(t, c, journal.WriterOptions{})
		left = &sync.WaitGroup{}
		left.Add(3000)
		for i := range 3000 {
			require.NoError(t, w.Submit(appendOf("loud", fmt.Sprint(i), 1), func(journal.Result) { left.Done() }))
		}
		// Not at a time at which a commit lands: what comes then may go along with the next one.
		time.Sleep(1500*time.Millisecond + 500*time.Microsecond) //nolint:forbidigo // fake time: inside a synctest bubble
		require.NotZero(t, w.Waiting())
		return w, left, stop
	}
	bubble("Quiet/DoesNotWaitForALoudBatch", func(t *testing.T) {
		c := store(t)
		w, left, stop := crowd(t, c)
		for range 10 {
			begin := time.Now()
			_, err := w.Do(t.Context(), appendOf("quiet", "q", 1))
			require.NoError(t, err)
			require.Equal(t, time.Millisecond, time.Since(begin), "its own commit and nothing else")
		}
		left.Wait()
		require.Equal(t, 2, c.most)
		require.NoError(t, stop())
	})
	bubble("Quiet/DoesNotWaitForTheSecondBatchAlone", func(t *testing.T) {
		c := store(t)
		w, left, stop := crowd(t, c)
		left.Wait()
		var all sync.WaitGroup
		// batch leaves many writes of a namespace, which are committed together.
		batch := func(ns string, many int) {
			all.Add(many)
			for i := range many {
				leave := w.Leave
				if i == many-1 {
					leave = w.Submit
				}
				require.NoError(t, leave(appendOf(ns, fmt.Sprint(ns, i), 1), func(journal.Result) { all.Done() }))
			}
			synctest.Wait()
		}
		batch("first", 10)
		batch("second", 30)
		time.Sleep(15 * time.Millisecond) //nolint:forbidigo // fake time: inside a synctest bubble
		begin := time.Now()
		_, err := w.Do(t.Context(), appendOf("quiet", "q", 1))
		require.NoError(t, err)
		require.Equal(t, time.Millisecond, time.Since(begin), "the first has landed")
		all.Wait()
		require.NoError(t, stop())
	})
	bubble("Alone/OneBatchAtATime", func(t *testing.T) {
		c := store(t)
		_, left, stop := crowd(t, c)
		left.Wait()
		require.Equal(t, 1, c.most)
		require.NoError(t, stop())
	})
	bubble("Short/OneBatchAtATime", func(t *testing.T) {
		c := store(t)
		c.perRow = time.Microsecond
		w, stop := run(t, c, journal.WriterOptions{})
		var left sync.WaitGroup
		for i := range 3000 {
			left.Add(1)
			require.NoError(t, w.Submit(appendOf(fmt.Sprint(i%7), fmt.Sprint(i), 1), func(journal.Result) { left.Done() }))
			if i%50 == 0 {
				synctest.Wait()
			}
		}
		left.Wait()
		require.Equal(t, 1, c.most)
		require.NoError(t, stop())
	})
	bubble("Order/OfEachRun", func(t *testing.T) {
		c := store(t)
		w, left, stop := crowd(t, c)
		var all sync.WaitGroup
		seqs := map[string]int{}
		for range 2000 {
			ns := fmt.Sprint("n", rand.N(5))
			id := fmt.Sprint(ns, "/", rand.N(3))
			seqs[id]++
			wr := appendOf(ns, id, 1)
			wr.Append.ExpectedLastSeq = int64(seqs[id])
			all.Add(1)
			done := func(journal.Result) { all.Done() }
			if rand.N(3) == 0 {
				require.NoError(t, w.Leave(wr, done))
				go w.Lead()
			} else {
				require.NoError(t, w.Submit(wr, done))
			}
			time.Sleep(time.Duration(rand.N(2000)) * time.Microsecond) //nolint:forbidigo // fake time: inside a synctest bubble
		}
		all.Wait()
		left.Wait()
		require.Equal(t, seqs, c.last)
		require.Equal(t, 2, c.most)
		require.NoError(t, stop())
	})
	bubble("Stop/BothLand", func(t *testing.T) {
		c := store(t)
		w, left, stop := crowd(t, c)
		var quiet sync.WaitGroup
		quiet.Add(1)
		require.NoError(t, w.Submit(appendOf("quiet", "q", 1), func(r journal.Result) {
			if r.Err != nil {
				t.Error(r.Err)
			}
			quiet.Done()
		}))
		require.NoError(t, stop())
		quiet.Wait()
		left.Wait()
		require.Zero(t, w.Waiting())
	})
	bubble("Fenced/EndsBoth", func(t *testing.T) {
		c := store(t)
		w, left, stop := crowd(t, c)
		c.mu.Lock()
		c.err = journal.Fenced(journal.Owner{ID: "a", Incarnation: 1})
		c.mu.Unlock()
		_, err := w.Do(t.Context(), appendOf("quiet", "q", 1))
		require.True(t, journal.IsFenced(err), "%v", err)
		left.Wait()
		<-w.Done()
		require.True(t, journal.IsFenced(w.Err()))
		require.True(t, journal.IsFenced(stop()))
		require.Zero(t, w.Waiting())
	})
}
