package journaltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func writerCases(t *testing.T, d Driver) {
	t.Run("ManyRunsAtOnce", func(t *testing.T) {
		w := open(t, d)
		counts := drive(w, w.j)
		for id, n := range counts {
			require.Len(t, w.events(id), n)
		}
	})
	t.Run("LostAnswers", func(t *testing.T) {
		// Every other commit happens and its answer is lost; some never reach the store.
		w := open(t, d)
		for id, n := range drive(w, &lossy{Journal: w.j}) {
			require.Len(t, w.events(id), n)
			require.EqualValues(t, n, w.get(id).LastSeq)
		}
		backlog, err := w.j.OutboxBacklog(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 20*9, backlog)
	})
	t.Run("FencedStopsAndFailsAllWrites", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		wr := journal.NewWriter(w.j, w.me, journal.WriterOptions{})
		w.register(w.me.ID)
		done := make(chan error, 1)
		go func() { done <- wr.Run(t.Context()) }()
		_, err := wr.Do(t.Context(), appendTo(id, 1, 1))
		require.True(t, journal.IsFenced(err), "got %v", err)
		require.True(t, journal.IsFenced(<-done))
		<-wr.Done()
		require.True(t, journal.IsFenced(wr.Err()))
		require.True(t, journal.IsFenced(wr.Submit(appendTo(id, 1, 1), nil)))
	})
}

// drive writes 20 runs of 10 events each through one writer and returns how long each journal must be.
func drive(w *world, c journal.Committer) map[string]int {
	w.t.Helper()
	var batches atomic.Int64
	wr := journal.NewWriter(c, w.me, journal.WriterOptions{Observe: func(journal.Batch) { batches.Add(1) }})
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- wr.Run(ctx) }()
	counts := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			s := start(1, func(s *journal.Start) {
				if i%2 == 0 {
					s.Request = journal.Request{Method: "StartRun", ID: fmt.Sprint("req", i), BodyHash: "h"}
				}
			})
			res, err := wr.Do(ctx, journal.Write{Start: s})
			if err != nil || !res.Created {
				w.t.Errorf("start: %+v, %v", res, err)
				return
			}
			for n := 1; n < 10; n++ {
				a := appendTo(s.Run.ID, n, 1, func(a *journal.Append) { a.Outbox = []journal.Out{{Kind: "k"}} })
				if _, err := wr.Do(ctx, a); err != nil {
					w.t.Errorf("append: %v", err)
					return
				}
			}
			mu.Lock()
			counts[s.Run.ID] = 10
			mu.Unlock()
		})
	}
	wg.Wait()
	stop()
	require.NoError(w.t, <-done)
	require.Len(w.t, counts, 20)
	require.Less(w.t, batches.Load(), int64(200), "nothing was grouped")
	return counts
}

type lossy struct {
	journal.Journal
	n int
}

func (l *lossy) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	l.n++
	if l.n%5 == 3 {
		return nil, errors.New("never arrived")
	}
	res, err := l.Journal.Commit(ctx, o, ws)
	if l.n%2 == 0 && err == nil {
		return nil, errors.New("answer lost")
	}
	return res, err
}

// waitLong bounds waits for other processes.
const waitLong = 60 * time.Second
