package thread_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// rows is a store that holds items in memory and counts what is read. Its answers are cut to few rows.
type rows struct {
	thread.Store

	mu       sync.Mutex
	lineages map[string][]thread.Segment
	items    map[string][]thread.Item
	// read counts items that were read, and asked questions about lineages.
	read, asked int
}

func (r *rows) Lineage(_ context.Context, _, id string) ([]thread.Segment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	l, ok := r.lineages[id]
	if !ok {
		return nil, thread.NotFound(id)
	}
	return slices.Clone(l), nil
}

func (r *rows) Thread(_ context.Context, _, id string) (thread.Thread, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return thread.Thread{ID: id, Last: r.lineages[id][0].Last}, nil
}

func (r *rows) SegmentItems(_ context.Context, _ string, g thread.Segment, q thread.Selection) (out []thread.Item, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range slices.Backward(r.items[g.Thread]) {
		if len(out) < q.Limit && it.Seq >= g.First && it.Seq <= g.Last && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, it.Kind)) {
			if !q.Body {
				it.Body = nil
			}
			out = append(out, it)
			r.read++
		}
	}
	return out, nil
}

// add appends n items to a thread of its own lineage.
func (r *rows) add(id string, n int, kind func(seq int64) thread.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := &r.lineages[id][0]
	for range n {
		own.Last++
		r.items[id] = append(r.items[id], thread.Item{Seq: own.Last, Kind: kind(own.Last), Brief: []byte(`{}`), Body: fmt.Appendf(nil, `"%s %d"`, id, own.Last)})
	}
}

func (r *rows) fork(id, parent string, seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := []thread.Segment{{Thread: id, First: seq + 1, Last: seq}}
	for _, g := range r.lineages[parent] {
		g.Last = min(g.Last, seq)
		l = append(l, g)
	}
	r.lineages[id] = l
}

// all are the items that a query means, read without a cache.
func (r *rows) all(id string, q thread.Query) (out []thread.Item) {
	bytes := 0
	for _, g := range r.lineages[id] {
		for _, it := range slices.Backward(r.items[g.Thread]) {
			if it.Seq < g.First || it.Seq > g.Last || q.Before > 0 && it.Seq >= q.Before || len(q.Kinds) > 0 && !slices.Contains(q.Kinds, it.Kind) {
				continue
			}
			if q.Briefs {
				it.Body = nil
			}
			if q.Limit > 0 && len(out) == q.Limit || q.MaxBytes > 0 && len(out) > 0 && bytes+it.Size() > q.MaxBytes {
				return out
			}
			out, bytes = append(out, it), bytes+it.Size()
		}
	}
	return out
}

func mixed(seq int64) thread.Kind { return thread.Kind(seq*seq%3 + 1) }

func messages(int64) thread.Kind { return workgraph.ThreadMessage }

func TestCache(t *testing.T) {
	t.Parallel()
	fresh := func(n int, kind func(int64) thread.Kind) *rows {
		r := &rows{lineages: map[string][]thread.Segment{"a": {{Thread: "a", First: 1}}}, items: map[string][]thread.Item{}}
		r.add("a", n, kind)
		return r
	}
	t.Run("Items/AreReadOnce", func(t *testing.T) {
		t.Parallel()
		r := fresh(5000, messages)
		c := thread.NewCache(r, 0)
		for i := range 3 {
			its, err := c.Items(t.Context(), "ns", "a", thread.Query{})
			require.NoError(t, err)
			require.Len(t, its, 5000+i)
			require.Equal(t, 5000+i, r.read)
			r.add("a", 1, messages)
		}
	})
	t.Run("Items/OnlyWhatIsAskedForIsRead", func(t *testing.T) {
		t.Parallel()
		r := fresh(5000, mixed)
		c := thread.NewCache(r, 0)
		its, err := c.Items(t.Context(), "ns", "a", thread.Query{Kinds: []thread.Kind{workgraph.ThreadState}, Limit: 1})
		require.NoError(t, err)
		require.Len(t, its, 1)
		require.Equal(t, 1, r.read)
	})
	t.Run("Items/WithoutBodies", func(t *testing.T) {
		t.Parallel()
		r := fresh(10, mixed)
		c := thread.NewCache(r, 0)
		whole, err := c.Items(t.Context(), "ns", "a", thread.Query{})
		require.NoError(t, err)
		its, err := c.Items(t.Context(), "ns", "a", thread.Query{Briefs: true})
		require.NoError(t, err)
		require.Len(t, its, len(whole))
		for i := range its {
			whole[i].Body = nil
			require.Equal(t, whole[i], its[i])
		}
	})
	t.Run("Lineage/IsReadWhenTheThreadHasGrown", func(t *testing.T) {
		t.Parallel()
		r := fresh(10, messages)
		c := thread.NewCache(r, 0)
		items := func(before int64, want int) {
			t.Helper()
			its, err := c.Items(t.Context(), "ns", "a", thread.Query{Before: before})
			require.NoError(t, err)
			require.Len(t, its, want)
		}
		items(11, 10)
		items(5, 4)
		require.Equal(t, 1, r.asked)
		r.add("a", 2, messages)
		items(13, 12)
		require.Equal(t, 2, r.asked)
		r.add("a", 2, messages)
		_, err := c.Thread(t.Context(), "ns", "a")
		require.NoError(t, err)
		items(15, 14)
		require.Equal(t, 2, r.asked, "the thread itself says how far it goes")
		items(0, 14)
		require.Equal(t, 3, r.asked)
	})
	t.Run("Memory/EmptyWindowsCount", func(t *testing.T) {
		t.Parallel()
		r := &rows{lineages: map[string][]thread.Segment{}, items: map[string][]thread.Item{}}
		c := thread.NewCache(r, 64<<10)
		read := func(id string) {
			_, err := c.Items(t.Context(), "ns", id, thread.Query{Before: 1 << 40})
			require.NoError(t, err)
		}
		for i := range 2000 {
			id := fmt.Sprint("t", i)
			r.lineages[id] = []thread.Segment{{Thread: id, First: 1, Last: 1}}
			read(id)
		}
		require.Less(t, c.Kept(), 1000)
	})
	t.Run("Item/OfTheThreadOrOneAbove", func(t *testing.T) {
		t.Parallel()
		r := fresh(5, messages)
		r.fork("f", "a", 3)
		r.add("f", 2, messages)
		c := thread.NewCache(r, 0)
		item := func(id string, seq int64) string {
			it, err := c.Item(t.Context(), "ns", id, seq)
			if err != nil {
				require.Equal(t, thread.ReasonInvalid, errs.ReasonOf(err))
				return ""
			}
			require.Equal(t, seq, it.Seq)
			return string(it.Body)
		}
		for seq, want := range map[int64]string{1: `"a 1"`, 3: `"a 3"`, 4: `"f 4"`, 5: `"f 5"`, 6: "", 0: ""} {
			require.Equal(t, want, item("f", seq), seq)
		}
		r.add("f", 1, messages)
		require.Equal(t, `"f 6"`, item("f", 6))
		require.Equal(t, `"a 4"`, item("a", 4))
		require.Equal(t, 2, r.asked, "once for each thread")
		_, err := c.Item(t.Context(), "ns", "none", 1)
		require.Equal(t, thread.ReasonNotFound, errs.ReasonOf(err))
	})
	t.Run("Memory/OneThreadTakesAQuarterAtMost", func(t *testing.T) {
		t.Parallel()
		r := fresh(2000, messages)
		c := thread.NewCache(r, 100<<10)
		for range 2 {
			_, err := c.Items(t.Context(), "ns", "a", thread.Query{})
			require.NoError(t, err)
		}
		require.Equal(t, 4000, r.read, "it was too large to be kept")
	})
	t.Run("Thread/ThatIsGoneIsNotFound", func(t *testing.T) {
		t.Parallel()
		r := fresh(3, messages)
		c := thread.NewCache(r, 0)
		_, err := c.Items(t.Context(), "ns", "a", thread.Query{})
		require.NoError(t, err)
		delete(r.lineages, "a")
		_, err = c.Items(t.Context(), "ns", "a", thread.Query{})
		require.Equal(t, thread.ReasonNotFound, errs.ReasonOf(err))
	})
	t.Run("Random/EqualsTheStore", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(200) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r := fresh(rnd.IntN(40), mixed)
			c := thread.NewCache(r, int64(rnd.IntN(20<<10)+1))
			ids := []string{"a"}
			for range 60 {
				id := ids[rnd.IntN(len(ids))]
				switch rnd.IntN(5) {
				case 0:
					r.add(id, rnd.IntN(5), mixed)
				case 1:
					f := fmt.Sprint("f", len(ids))
					r.fork(f, id, rnd.Int64N(r.lineages[id][0].Last+1))
					ids = append(ids, f)
				default:
					q := thread.Query{Limit: rnd.IntN(10), Before: rnd.Int64N(50), MaxBytes: rnd.IntN(2) * rnd.IntN(2000), Briefs: rnd.IntN(2) == 0}
					for k := range thread.Kind(3) {
						if rnd.IntN(3) == 0 {
							q.Kinds = append(q.Kinds, k+1)
						}
					}
					want := r.all(id, q)
					got, err := c.Items(t.Context(), "ns", id, q)
					require.NoError(t, err)
					require.Len(t, got, len(want), "seed %d: %+v", seed, q)
					for i := range want {
						require.Equal(t, want[i], got[i], "seed %d: %+v", seed, q)
					}
				}
			}
		}
	})
	t.Run("Concurrent/ReadersAgree", func(t *testing.T) {
		t.Parallel()
		r := fresh(3000, mixed)
		c := thread.NewCache(r, 0)
		var g sync.WaitGroup
		for i := range 8 {
			g.Go(func() {
				its, err := c.Items(t.Context(), "ns", "a", thread.Query{Before: int64(3000 - i*10)})
				if err != nil || len(its) != 2999-i*10 {
					panic(fmt.Sprint(err, len(its)))
				}
			})
		}
		g.Wait()
	})
}
