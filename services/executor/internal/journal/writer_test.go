package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// scripted is a store that answers as it is told and keeps what it got.
type scripted struct {
	mu      sync.Mutex
	batches [][]journal.Write
	answer  func(ctx context.Context, call int) error
	perCall time.Duration
}

func (s *scripted) Commit(ctx context.Context, _ journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	s.mu.Lock()
	s.batches = append(s.batches, ws)
	call := len(s.batches)
	s.mu.Unlock()
	if s.perCall > 0 {
		time.Sleep(s.perCall) //nolint:forbidigo // fake time: inside a synctest bubble
	}
	if s.answer != nil {
		if err := s.answer(ctx, call); err != nil {
			return nil, err
		}
	}
	res := make([]journal.Result, len(ws))
	for i, w := range ws {
		res[i] = journal.Result{RunID: w.RunID(), Created: w.Start != nil}
	}
	return res, nil
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func appendOf(ns, run string, size int) journal.Write {
	return journal.Write{Append: &journal.Append{
		Namespace: ns, RunID: run, Events: []journal.Event{{Kind: 1, Time: noon, Data: []byte(strings.Repeat("x", size))}},
	}}
}

func startOf(ns, run string, size int) journal.Write {
	return journal.Write{Start: &journal.Start{
		Run: journal.Run{ID: run, Namespace: ns, GraphHash: "h", CreateTime: noon, Status: journal.Status{State: journal.StateRunning}, Args: []byte(strings.Repeat("x", size))}, Append: journal.Append{Events: []journal.Event{{Kind: 1, Time: noon}}},
	}}
}

func run(t *testing.T, c journal.Committer, o journal.WriterOptions) (w *journal.Writer, stop func() error) {
	t.Helper()
	w = journal.NewWriter(c, journal.Owner{ID: "a", Incarnation: 1}, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return w, func() error { cancel(); return <-done }
}

func TestWriterBatchTakesAllThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{perCall: 10 * time.Millisecond}
		var seen []journal.Batch
		w, stop := run(t, c, journal.WriterOptions{Observe: func(b journal.Batch) { seen = append(seen, b) }})
		var order []string
		for i := range 50 {
			name := fmt.Sprint("r", i)
			require.NoError(t, w.Submit(appendOf("n", name, 1), func(r journal.Result) { order = append(order, r.RunID) }))
			if i == 0 {
				synctest.Wait() // the first is under way, alone
			}
		}
		require.Equal(t, 49, w.Waiting())
		time.Sleep(time.Second) //nolint:forbidigo // fake time: inside a synctest bubble
		synctest.Wait()
		require.Len(t, c.batches, 2)
		require.Len(t, c.batches[0], 1)
		require.Len(t, c.batches[1], 49)
		require.Len(t, order, 50)
		require.Equal(t, "r49", order[49])
		require.NoError(t, stop())
		require.Equal(t, 1, seen[0].Tries)
		require.Equal(t, 49, seen[1].Rows)
		require.Equal(t, 10*time.Millisecond, seen[1].Duration)
		require.Equal(t, 10*time.Millisecond, seen[1].Waited)
	})
}

func TestWriterBatchLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			o    journal.WriterOptions
			size int
			want int
		}{
			"rows":  {journal.WriterOptions{MaxRows: 7}, 1, 7},
			"bytes": {journal.WriterOptions{MaxBytes: 10_000}, 3000, 3},
			"large": {journal.WriterOptions{MaxBytes: 1000}, 3000, 1},
		} {
			store := &scripted{}
			w := journal.NewWriter(store, journal.Owner{}, c.o)
			for i := range 20 {
				require.NoError(t, w.Submit(appendOf("n", fmt.Sprint(i), c.size), func(journal.Result) {}))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, w.Run(ctx))
			total := 0
			for _, b := range store.batches {
				require.LessOrEqual(t, len(b), c.want, name)
				total += len(b)
			}
			require.Len(t, store.batches[0], c.want, name)
			require.Equal(t, 20, total)
		}
	})
}

func TestWriterBatchNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{}
		w := journal.NewWriter(c, journal.Owner{}, journal.WriterOptions{MaxRows: 9})
		for i := range 1000 {
			require.NoError(t, w.Submit(appendOf("loud", fmt.Sprint(i), 1), func(journal.Result) {}))
		}
		for i := range 3 {
			require.NoError(t, w.Submit(appendOf("quiet", fmt.Sprint("q", i), 1), func(journal.Result) {}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, w.Run(ctx))
		quiet, last := 0, -1
		for _, wr := range c.batches[0] {
			if wr.Namespace() == "quiet" {
				require.Equal(t, fmt.Sprint("q", quiet), wr.RunID())
				quiet++
				continue
			}
			require.Equal(t, fmt.Sprint(last+1), wr.RunID())
			last++
		}
		require.Equal(t, 3, quiet, "a quiet tenant does not wait behind a loud one")
	})
}

func TestWriterBatchSmallerWhileCommitsTakeLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{}
		slow, queued := true, make(chan struct{})
		c.answer = func(_ context.Context, call int) error {
			if slow {
				time.Sleep(time.Duration(len(c.batches[call-1])) * 500 * time.Microsecond) //nolint:forbidigo // fake time: inside a synctest bubble
			} else {
				<-queued
			}
			return nil
		}
		w, stop := run(t, c, journal.WriterOptions{})
		crowd := func() (sizes []int) {
			before := len(c.batches)
			var all sync.WaitGroup
			all.Add(4000)
			for i := range 4000 {
				require.NoError(t, w.Submit(appendOf("loud", fmt.Sprint(i), 1), func(journal.Result) { all.Done() }))
			}
			if !slow {
				close(queued)
			}
			all.Wait()
			for _, b := range c.batches[before:] {
				sizes = append(sizes, len(b))
			}
			return sizes
		}
		sizes := crowd()
		require.LessOrEqual(t, slices.Max(sizes[2:]), 50, "25 ms at half a millisecond for each")
		slow = false
		sizes = crowd()
		require.Greater(t, slices.Max(sizes), 500, "as many as there are again")
		require.NoError(t, stop())
	})
}

func TestWriterBatchOfFewerBytesWhileCommitsTakeLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{}
		c.answer = func(_ context.Context, call int) error {
			size := 0
			for _, wr := range c.batches[call-1] {
				size += wr.Size()
			}
			time.Sleep(time.Duration(size) * 100 * time.Nanosecond) //nolint:forbidigo // fake time: inside a synctest bubble
			return nil
		}
		w, stop := run(t, c, journal.WriterOptions{})
		var all sync.WaitGroup
		for i := range 400 {
			all.Add(1)
			require.NoError(t, w.Submit(appendOf("loud", fmt.Sprint(i), 20_000), func(journal.Result) { all.Done() }))
		}
		all.Wait()
		for _, b := range c.batches[3:] {
			require.LessOrEqual(t, len(b), 12, "250,000 bytes take 25 ms")
		}
		require.NoError(t, stop())
	})
}

func TestWriterRowCountsAloneAreWrittenOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{}
		w, stop := run(t, c, journal.WriterOptions{})
		_, err := w.Do(t.Context(), startOf("n", "r", 1))
		require.NoError(t, err)
		with := func(calls int64, s journal.State) journal.Write {
			wr := appendOf("n", "r", 1)
			wr.Append.Status = &journal.Status{State: s, Nodes: journal.NodeCounts{Completed: int32(calls)}}
			return wr
		}
		calls := func(from int) (out []int64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, b := range c.batches[from:] {
				for _, wr := range b {
					if s := wr.Append.Status; s != nil {
						out = append(out, int64(s.Nodes.Completed))
					} else {
						out = append(out, -1)
					}
				}
			}
			return out
		}
		do := func(wr journal.Write) {
			_, err := w.Do(t.Context(), wr)
			require.NoError(t, err)
		}
		sleep := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // fake time: inside a synctest bubble
			synctest.Wait()
		}
		do(with(1, journal.StateRunning))
		do(with(2, journal.StateRunning))
		require.Equal(t, []int64{-1, -1}, calls(1))
		sleep(10 * time.Second)
		require.Equal(t, []int64{2}, calls(3), "the row is brought up by itself, once")
		do(with(3, journal.StateRunning))
		require.Equal(t, []int64{3}, calls(4), "it had been left alone for long enough")
		do(with(4, journal.StateRunning))
		do(with(5, journal.StateWaiting))
		do(with(6, journal.StateWaiting))
		do(with(7, journal.StateCompleted))
		require.Equal(t, []int64{-1, 5, -1, 7}, calls(5), "a change of state is written at once")
		sleep(10 * time.Second)
		require.Empty(t, calls(9), "nothing is owed after the end")
		do(startOf("n", "r", 1))
		do(with(8, journal.StateRunning))
		require.NoError(t, stop())
		require.Equal(t, []int64{-1, 8}, calls(10), "nothing is owed after a stop")
	})
}

func TestWriterFailureIdenticalBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{answer: func(_ context.Context, call int) error {
			if call <= 5 {
				return errors.New("connection reset")
			}
			return nil
		}}
		w, stop := run(t, c, journal.WriterOptions{})
		begin := time.Now()
		_, err := w.Do(t.Context(), appendOf("n", "r", 1))
		require.NoError(t, err)
		require.Greater(t, time.Since(begin), 40*time.Millisecond, "it backs off")
		require.Len(t, c.batches, 6)
		for _, b := range c.batches {
			require.Equal(t, c.batches[0], b)
		}
		require.NoError(t, stop())
	})
}

func TestWriterFailureHangingCommitIsGivenUpAndSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{answer: func(ctx context.Context, call int) error {
			if call > 1 {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		w, stop := run(t, c, journal.WriterOptions{Timeout: time.Minute})
		begin := time.Now()
		_, err := w.Do(t.Context(), appendOf("n", "r", 1))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), time.Minute)
		require.NoError(t, stop())
	})
}

func TestWriterFailureFencedAnswersAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{perCall: time.Second, answer: func(context.Context, int) error { return journal.Fenced(journal.Owner{ID: "a"}) }}
		w, stop := run(t, c, journal.WriterOptions{MaxRows: 1})
		fenced := 0
		for i := range 5 {
			require.NoError(t, w.Submit(appendOf("n", fmt.Sprint(i), 1), func(r journal.Result) {
				if journal.IsFenced(r.Err) {
					fenced++
				}
			}))
		}
		<-w.Done()
		require.Equal(t, 5, fenced)
		require.True(t, journal.IsFenced(w.Err()))
		require.True(t, journal.IsFenced(w.Submit(appendOf("n", "r", 1), nil)))
		require.True(t, journal.IsFenced(stop()))
		require.Len(t, c.batches, 1)
	})
}

func TestWriterStopWritesWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{perCall: time.Second}
		w, stop := run(t, c, journal.WriterOptions{MaxRows: 1})
		ok := 0
		for i := range 5 {
			require.NoError(t, w.Submit(appendOf("n", fmt.Sprint(i), 1), func(r journal.Result) {
				if r.Err == nil {
					ok++
				}
			}))
		}
		require.NoError(t, stop())
		require.Equal(t, 5, ok)
		require.Equal(t, journal.ReasonWriterStopped, errs.ReasonOf(w.Submit(appendOf("n", "r", 1), nil)))
		require.NoError(t, w.Err())
	})
}

func TestWriterStopGivesUpAfterDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{answer: func(context.Context, int) error { return errors.New("database is gone") }}
		w, stop := run(t, c, journal.WriterOptions{Drain: 5 * time.Second})
		var got error
		require.NoError(t, w.Submit(appendOf("n", "r", 1), func(r journal.Result) { got = r.Err }))
		begin := time.Now()
		require.Equal(t, journal.ReasonWriterStopped, errs.ReasonOf(stop()))
		require.Less(t, time.Since(begin), 7*time.Second)
		require.Equal(t, journal.ReasonWriterStopped, errs.ReasonOf(got))
	})
}

func TestWriterStopRestsWhileValuesAreStored(t *testing.T) {
	t.Parallel()
	// The time of a bubble in which a goroutine is busy does not pass.
	spins := time.AfterFunc(30*time.Second, func() { panic("the writer is busy while it waits for values to be stored") })
	defer spins.Stop()
	synctest.Test(t, func(t *testing.T) {
		p := slow{storing: make(chan string, 1), goOn: make(chan struct{})}
		w, stop := run(t, &scripted{}, journal.WriterOptions{Packer: p})
		require.NoError(t, w.Submit(startOf("a", "r", 10), func(r journal.Result) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		}))
		<-p.storing
		time.AfterFunc(time.Second, func() { close(p.goOn) })
		require.NoError(t, stop())
		require.Zero(t, w.Waiting())
	})
}

func TestWriterDoCallerMayLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &scripted{perCall: time.Second}
		w, stop := run(t, c, journal.WriterOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := w.Do(ctx, appendOf("n", "r", 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, stop())
		require.Len(t, c.batches, 1)
	})
}

func TestWriterSubmitBacklogRefusesStartsOnly(t *testing.T) {
	t.Parallel()
	w := journal.NewWriter(&scripted{}, journal.Owner{}, journal.WriterOptions{MaxBacklog: 1000})
	require.NoError(t, w.Submit(startOf("n", "r1", 2000), func(journal.Result) {}))
	err := w.Submit(startOf("n", "r2", 1), func(journal.Result) {})
	require.Equal(t, journal.ReasonBacklogFull, errs.ReasonOf(err))
	require.True(t, errs.Is(err, errs.Unavailable))
	require.NoError(t, w.Submit(appendOf("n", "r1", 2000), func(journal.Result) {}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx))
}

// slow stores the large values of namespace a only when it is told to.
type slow struct {
	storing chan string
	goOn    chan struct{}
}

func (s slow) Pack(w journal.Write) (journal.Write, func(context.Context) journal.Write) {
	return w, func(context.Context) journal.Write {
		if w.Namespace() == "a" {
			s.storing <- w.RunID()
			<-s.goOn
		}
		return w
	}
}

// TestWriterNeighbors floods the writer with what one namespace writes, and holds that another's runs start
// all the same.
func TestWriterNeighbors(t *testing.T) {
	t.Parallel()
	t.Run("Backlog/OneNamespaceFillsOnlyItsHalf", func(t *testing.T) {
		t.Parallel()
		w := journal.NewWriter(&scripted{}, journal.Owner{}, journal.WriterOptions{MaxBacklog: 10_000})
		require.NoError(t, w.Submit(startOf("a", "r1", 4000), func(journal.Result) {}))
		require.Equal(t, journal.ReasonBacklogFull, errs.ReasonOf(w.Submit(startOf("a", "r2", 4000), func(journal.Result) {})))
		for range 10 {
			require.NoError(t, w.Submit(appendOf("a", "r1", 9000), func(journal.Result) {}), "what has happened is taken")
		}
		require.NoError(t, w.Submit(startOf("b", "r3", 4000), func(journal.Result) {}))
		require.Equal(t, journal.ReasonBacklogFull, errs.ReasonOf(w.Submit(startOf("b", "r4", 4000), func(journal.Result) {})))
		require.Equal(t, journal.ReasonBacklogFull, errs.ReasonOf(w.Submit(startOf("c", "r5", 4000), func(journal.Result) {})), "the whole is bounded, too")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, w.Run(ctx))
		require.NoError(t, w.Err())
	})
	t.Run("Store/OneNamespaceHasHalfOfThePlaces", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := slow{storing: make(chan string, 100), goOn: make(chan struct{})}
			w, stop := run(t, &scripted{}, journal.WriterOptions{Packer: p})
			for i := range 50 {
				require.NoError(t, w.Submit(startOf("a", fmt.Sprint("r", i), 10), func(journal.Result) {}))
			}
			synctest.Wait()
			require.Len(t, p.storing, 4)
			_, err := w.Do(t.Context(), startOf("b", "own", 10))
			require.NoError(t, err)
			close(p.goOn)
			require.NoError(t, stop())
		})
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	limits := journal.Limits{Payload: 100, Write: 1000}
	ap := func(f func(*journal.Append)) journal.Write { w := appendOf("n", "r", 1); f(w.Append); return w }
	st := func(f func(*journal.Start)) journal.Write { w := startOf("n", "r", 1); f(w.Start); return w }
	for name, c := range map[string]struct {
		w      journal.Write
		reason string
	}{
		"good append":     {ap(func(*journal.Append) {}), ""},
		"good start":      {st(func(*journal.Start) {}), ""},
		"neither":         {journal.Write{}, journal.ReasonWriteInvalid},
		"both":            {journal.Write{Start: &journal.Start{}, Append: &journal.Append{}}, journal.ReasonWriteInvalid},
		"no run":          {ap(func(a *journal.Append) { a.RunID = "" }), journal.ReasonWriteInvalid},
		"no namespace":    {st(func(s *journal.Start) { s.Run.Namespace = "" }), journal.ReasonWriteInvalid},
		"no event":        {st(func(s *journal.Start) { s.Events = nil }), journal.ReasonWriteInvalid},
		"no time":         {st(func(s *journal.Start) { s.Run.CreateTime = time.Time{} }), journal.ReasonWriteInvalid},
		"no kind":         {ap(func(a *journal.Append) { a.Events[0].Kind = 0 }), journal.ReasonWriteInvalid},
		"no state":        {ap(func(a *journal.Append) { a.Status = &journal.Status{} }), journal.ReasonWriteInvalid},
		"negative visit":  {ap(func(a *journal.Append) { a.Events[0].Visit = -1 }), journal.ReasonWriteInvalid},
		"zero byte":       {ap(func(a *journal.Append) { a.Events[0].NodeID = "a\x00b" }), journal.ReasonWriteInvalid},
		"broken UTF-8":    {st(func(s *journal.Start) { s.Run.Labels = map[string]string{"k": "\xff"} }), journal.ReasonWriteInvalid},
		"long text":       {st(func(s *journal.Start) { s.Run.UserID = strings.Repeat("x", 600) }), journal.ReasonWriteInvalid},
		"lonely outbox":   {ap(func(a *journal.Append) { a.Events, a.Outbox = nil, []journal.Out{{Kind: "k"}} }), journal.ReasonWriteInvalid},
		"year 10000":      {ap(func(a *journal.Append) { a.Events[0].Time = noon.AddDate(9000, 0, 0) }), journal.ReasonWriteInvalid},
		"large event":     {ap(func(a *journal.Append) { a.Events[0].Data = make([]byte, 101) }), journal.ReasonPayloadTooLarge},
		"large result":    {ap(func(a *journal.Append) { a.Outcome = &journal.Outcome{Result: make([]byte, 101)} }), journal.ReasonPayloadTooLarge},
		"large argument":  {st(func(s *journal.Start) { s.Run.Named = make([]byte, 101) }), journal.ReasonPayloadTooLarge},
		"large snapshot":  {ap(func(a *journal.Append) { a.Snapshot = make([]byte, 101) }), ""},
		"larger snapshot": {ap(func(a *journal.Append) { a.Snapshot = make([]byte, 1001) }), journal.ReasonPayloadTooLarge},
	} {
		err := journal.Validate(c.w, limits)
		require.Equal(t, c.reason, errs.ReasonOf(err), "%s: %v", name, err)
	}
}
