package journaltest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func outboxCases(t *testing.T, d Driver) {
	out := func(kinds ...string) func(*journal.Append) {
		return func(a *journal.Append) {
			for _, k := range kinds {
				a.Outbox = append(a.Outbox, journal.Out{Kind: k, Body: []byte("body of " + k)})
			}
		}
	}
	claim := func(w *world, limit int, ttl time.Duration) (kinds string, items []journal.OutboxItem) {
		items, err := w.j.ClaimOutbox(w.t.Context(), limit, ttl)
		require.NoError(w.t, err)
		var ks []string
		for _, i := range items {
			ks = append(ks, i.Kind)
		}
		return strings.Join(ks, " "), items
	}
	t.Run("ComesInOrderOnce", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		w.commit(appendTo(id, 1, 2, out("a", "b")), appendTo(id, 3, 1, out("c")))
		got, items := claim(w, 2, time.Minute)
		require.Equal(t, "a b", got)
		require.Equal(t, journal.OutboxItem{ID: items[1].ID, Namespace: ns, RunID: id, Seq: 3, Ordinal: 1, Kind: "b", Body: []byte("body of b"), Attempts: 1}, items[1])
		got, _ = claim(w, 9, time.Minute)
		require.Empty(t, got, "c waits for a and b")
		require.NoError(t, w.j.AckOutbox(t.Context(), []journal.OutboxAck{{ID: items[0].ID}, {ID: items[1].ID}}))
		got, items = claim(w, 9, time.Minute)
		require.Equal(t, "c", got)
		require.EqualValues(t, 4, items[0].Seq)
	})
	t.Run("RetriesBlockTheirRunOnly", func(t *testing.T) {
		w := open(t, d)
		x, y := w.started(1), w.started(1)
		w.commit(appendTo(x, 1, 1, out("x1", "x2")), appendTo(y, 1, 1, out("y1")))
		_, items := claim(w, 9, time.Minute)
		require.Len(t, items, 3)
		retries := make([]journal.OutboxRetry, len(items))
		for i, it := range items {
			retries[i] = journal.OutboxRetry{ID: it.ID, Err: "down"}
			if it.Kind == "x1" {
				retries[i].After = time.Hour
			}
		}
		require.NoError(t, w.j.RetryOutbox(t.Context(), retries))
		got, items := claim(w, 9, time.Minute)
		require.Equal(t, "y1", got)
		require.Equal(t, 2, items[0].Attempts)
		require.Equal(t, "down", items[0].LastError)
	})
	t.Run("NamespacesTakeTurns", func(t *testing.T) {
		w := open(t, d)
		of := func(namespace string, kinds ...string) {
			id := w.started(1, func(s *journal.Start) { s.Run.Namespace = namespace })
			w.commit(appendTo(id, 1, 1, out(kinds...), func(a *journal.Append) { a.Namespace = namespace }))
		}
		of("full", "f1", "f2", "f3", "f4")
		of("full", "f5", "f6")
		of("late", "l1", "l2")
		of("later", "m1")
		got, items := claim(w, 4, time.Minute)
		require.Equal(t, "f1 f2 l1 m1", got)
		got, _ = claim(w, 1, time.Minute)
		require.Equal(t, "f5", got, "f3 and l2 wait for those before them")
		acks := make([]journal.OutboxAck, len(items))
		for i, it := range items {
			acks[i] = journal.OutboxAck{ID: it.ID}
		}
		require.NoError(t, w.j.AckOutbox(t.Context(), acks))
		got, _ = claim(w, 9, time.Minute)
		require.Equal(t, "f3 f4 l2", got, "whatever is due when there is room for all")
	})
	t.Run("ExpiredClaimsComeBack", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		w.commit(appendTo(id, 1, 1, out("a", "b")))
		claim(w, 9, 50*time.Millisecond)
		testkit.Eventually(t, func() bool {
			got, items := claim(w, 9, time.Minute)
			return got == "a b" && items[0].Attempts == 2
		})
	})
	t.Run("AckAddsCostOnce", func(t *testing.T) {
		w := open(t, d)
		x, y := w.started(1), w.started(1)
		w.commit(appendTo(x, 1, 1, out("a", "b")), appendTo(y, 1, 1, out("c", "d")))
		rev := w.get(x).Revision
		_, items := claim(w, 9, time.Minute)
		acks := []journal.OutboxAck{}
		for i, it := range items {
			acks = append(acks, journal.OutboxAck{ID: it.ID, CostNanoUSD: int64(100 * (i + 1)), UnpricedCalls: int64(i % 2)})
		}
		acks = append(acks, acks[0])
		require.NoError(t, w.j.AckOutbox(t.Context(), acks))
		require.NoError(t, w.j.AckOutbox(t.Context(), acks))
		require.EqualValues(t, 300, w.get(x).CostNanoUSD)
		require.EqualValues(t, 1, w.get(x).UnpricedCalls)
		require.EqualValues(t, 700, w.get(y).CostNanoUSD)
		require.Equal(t, rev, w.get(x).Revision)
		w.commit(appendTo(x, 2, 1, out("e")))
		_, items = claim(w, 9, time.Minute)
		require.NoError(t, w.j.AckOutbox(t.Context(), []journal.OutboxAck{{ID: items[0].ID, CostNanoUSD: 1}}))
		require.EqualValues(t, 301, w.get(x).CostNanoUSD)
		n, err := w.j.OutboxBacklog(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, w.j.AckOutbox(t.Context(), nil))
	})
	t.Run("CostsReachAncestors", func(t *testing.T) {
		w := open(t, d)
		top := w.started(1)
		below := func(parent string) string {
			return w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = parent, top })
		}
		a := below(top)
		b, beside := below(a), below(top)
		w.commit(appendTo(b, 1, 1, out("b")), appendTo(a, 1, 1, out("a")), appendTo(beside, 1, 1, out("beside")))
		items, err := w.j.ClaimOutbox(t.Context(), 9, time.Minute)
		require.NoError(t, err)
		require.Len(t, items, 3)
		waits := func(runID, kind string) int64 {
			b, err := w.j.Accounting(t.Context(), ns, runID, kind)
			require.NoError(t, err)
			r := w.get(runID)
			require.Equal(t, [2]int64{r.CostNanoUSD, r.UnpricedCalls}, [2]int64{b.CostNanoUSD, b.UnpricedCalls})
			return b.Waiting
		}
		require.Equal(t, []int64{1, 1, 1, 1, 0, 0, 0}, []int64{waits(top, "b"), waits(a, "b"), waits(b, "b"), waits(top, "beside"), waits(a, "beside"), waits(b, "a"), waits(top, "c")})
		cost := map[string]int64{b: 100, a: 10, beside: 1}
		var acks []journal.OutboxAck
		for _, it := range items {
			acks = append(acks, journal.OutboxAck{ID: it.ID, CostNanoUSD: cost[it.RunID], UnpricedCalls: 1, Calls: 1, InputTokens: 2 * cost[it.RunID], OutputTokens: cost[it.RunID]})
		}
		for range 2 {
			require.NoError(t, w.j.AckOutbox(t.Context(), acks))
		}
		require.Zero(t, waits(top, "b"))
		for id, want := range map[string][2]int64{top: {111, 3}, a: {110, 2}, b: {100, 1}, beside: {1, 1}} {
			r := w.get(id)
			require.Equal(t, want, [2]int64{r.CostNanoUSD, r.UnpricedCalls})
			b, err := w.j.Accounting(t.Context(), ns, id, "b")
			require.NoError(t, err)
			require.Equal(t, []int64{want[1], 2 * want[0], want[0]}, []int64{b.Calls, b.InputTokens, b.OutputTokens})
			alone, err := w.j.Accounting(t.Context(), ns, id, "")
			require.NoError(t, err)
			require.Equal(t, b, alone)
		}
	})
	t.Run("AcksOfAFullBatchAddTheirCosts", func(t *testing.T) {
		w := open(t, d)
		id, parent, total := "", w.started(1), int64(0)
		// The second batch is as large as those that are claimed. Where the time grows by a power of
		// the number of acks, it does not come to an end.
		for _, n := range []int{40, 500} {
			id = w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = parent, parent })
			for i := range n {
				w.commit(appendTo(id, 1+i, 1, out("a")))
			}
			items, err := w.j.ClaimOutbox(t.Context(), n, time.Minute)
			require.NoError(t, err)
			require.Len(t, items, n)
			acks := make([]journal.OutboxAck, n)
			for i, it := range items {
				acks[i] = journal.OutboxAck{ID: it.ID, CostNanoUSD: int64(i), UnpricedCalls: 1, Calls: 2, InputTokens: 3, OutputTokens: 4}
				total += int64(i)
			}
			require.NoError(t, w.j.AckOutbox(t.Context(), acks))
		}
		got, err := w.j.Accounting(t.Context(), ns, id, "a")
		require.NoError(t, err)
		require.Equal(t, journal.Accounting{CostNanoUSD: 499 * 500 / 2, UnpricedCalls: 500, Calls: 1000, InputTokens: 1500, OutputTokens: 2000}, got)
		require.Equal(t, total, w.get(parent).CostNanoUSD)
	})
	t.Run("AccountingIsOfOneInstant", func(t *testing.T) {
		w := open(t, d)
		const each = 40
		id := w.started(1)
		for i := range each {
			w.commit(appendTo(id, 1+i, 1, out("a")))
		}
		items, err := w.j.ClaimOutbox(t.Context(), each, time.Minute)
		require.NoError(t, err)
		require.Len(t, items, each)
		done := make(chan error, 1)
		go func() {
			for _, it := range items {
				if err := w.j.AckOutbox(context.WithoutCancel(t.Context()), []journal.OutboxAck{{ID: it.ID, CostNanoUSD: 1}}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for left := int64(each); left > 0; {
			b, err := w.j.Accounting(t.Context(), ns, id, "a")
			require.NoError(t, err)
			require.EqualValues(t, each, b.CostNanoUSD+b.Waiting)
			left = b.Waiting
		}
		require.NoError(t, <-done)
	})
	t.Run("ManyClaimersKeepEachRunInOrder", func(t *testing.T) {
		w := open(t, d)
		const runs, each = 6, 15
		var batch []journal.Write
		for r := range runs {
			id := w.started(1)
			for i := range each {
				batch = append(batch, appendTo(id, 1+i, 1, out(fmt.Sprintf("%d/%d", r, i))))
			}
		}
		w.commit(batch...)
		var mu sync.Mutex
		got := map[string][]int64{}
		total := 0
		var wg sync.WaitGroup
		for range 4 {
			j := w.another()
			wg.Go(func() {
				for t.Context().Err() == nil {
					mu.Lock()
					over := total == runs*each
					mu.Unlock()
					if over {
						return
					}
					items, err := j.ClaimOutbox(t.Context(), 4, time.Minute)
					if err != nil {
						t.Error(err)
						return
					}
					var acks []journal.OutboxAck
					mu.Lock()
					for _, it := range items {
						got[it.RunID] = append(got[it.RunID], it.Seq)
						acks = append(acks, journal.OutboxAck{ID: it.ID, CostNanoUSD: 1})
						total++
					}
					mu.Unlock()
					if err := j.AckOutbox(t.Context(), acks); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, got, runs)
		for id, seqs := range got {
			require.Len(t, seqs, each)
			for i, s := range seqs {
				require.EqualValues(t, 2+i, s)
			}
			require.EqualValues(t, each, w.get(id).CostNanoUSD)
		}
	})
}
