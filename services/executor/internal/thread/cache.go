package thread

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/workgraph"
)

var _ Reader = (*Cache)(nil)

const (
	// DefaultCacheBytes is how many bytes of items a cache keeps unless the caller says otherwise.
	DefaultCacheBytes = 64 << 20
	// readRows is how many items are read from the store at a time.
	readRows = 1000
)

// Cache is a Reader over a store. It keeps the newest items of threads that were read lately, since items
// never change. What it answers is as new as the store. It is safe for concurrent use.
type Cache struct {
	Store

	mu      sync.Mutex
	windows *lru.Cache[windowKey, *window]
	most    int64
}

// windowKey names the items of one kind of a segment. end is 0 for a segment that grows, and the last
// sequence of one that ends with a fork.
type windowKey struct {
	namespace, thread string
	kind              Kind
	end               int64
}

// NewCache returns an empty cache for up to most bytes of items; 0 means DefaultCacheBytes.
func NewCache(s Store, most int64) *Cache {
	if most <= 0 {
		most = DefaultCacheBytes
	}
	return &Cache{Store: s, windows: lru.New[windowKey, *window](most), most: most}
}

// Items implements Reader.
func (c *Cache) Items(ctx context.Context, namespace, id string, q Query) ([]Item, error) {
	segments, err := c.Lineage(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	kinds := slices.Compact(slices.Sorted(slices.Values(q.Kinds)))
	if len(kinds) == 0 {
		kinds = []Kind{workgraph.ThreadMessage, workgraph.ThreadState, workgraph.ThreadLearning, workgraph.ThreadSummary}
	}
	out := collected{q: q}
	for i, g := range segments {
		k := windowKey{namespace: namespace, thread: g.Thread}
		if i > 0 {
			k.end = g.Last
		}
		to := g.Last
		if q.Before > 0 {
			to = min(to, q.Before-1)
		}
		if to < g.First {
			continue
		}
		lists := make([][]Item, len(kinds))
		for i := range kinds {
			k.kind = kinds[i]
			if lists[i], err = c.segment(ctx, k, g, to, out.room()); err != nil {
				return nil, err
			}
		}
		if out.add(lists); out.full {
			break
		}
	}
	return out.items, nil
}

// room is what may still be read.
type room struct{ items, bytes int }

// collected are the items of an answer, newest first.
type collected struct {
	q     Query
	items []Item
	bytes int
	full  bool
}

func (c *collected) room() room {
	r := room{items: maxInt, bytes: maxInt}
	if c.q.Limit > 0 {
		r.items = c.q.Limit - len(c.items)
	}
	if c.q.MaxBytes > 0 {
		r.bytes = c.q.MaxBytes - c.bytes
	}
	return r
}

const maxInt = int(^uint(0) >> 1)

// add merges lists that are newest first, each of another kind.
func (c *collected) add(lists [][]Item) {
	if len(lists) == 1 && c.items == nil {
		c.items = make([]Item, 0, len(lists[0]))
	}
	for {
		next := -1
		for i, l := range lists {
			if len(l) > 0 && (next < 0 || l[0].Seq > lists[next][0].Seq) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		it := lists[next][0]
		n := it.Size()
		if c.q.Limit > 0 && len(c.items) == c.q.Limit || c.q.MaxBytes > 0 && len(c.items) > 0 && c.bytes+n > c.q.MaxBytes {
			c.full = true
			return
		}
		c.items, c.bytes, lists[next] = append(c.items, it), c.bytes+n, lists[next][1:]
	}
}

// segment returns items of one kind of a segment up to a sequence, newest first, as many as there may be room
// for.
func (c *Cache) segment(ctx context.Context, k windowKey, g Segment, to int64, r room) ([]Item, error) {
	c.mu.Lock()
	w, ok := c.windows.Get(k)
	if !ok {
		w = &window{first: to + 1, last: to}
		c.windows.Put(k, w, 0)
	}
	c.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if to+1 < w.first {
		// What lies between is not asked for.
		apart := &window{first: to + 1, last: to}
		err := apart.grow(ctx, c.Store, k, g, to, r)
		return apart.read(to, r), err
	}
	err := w.grow(ctx, c.Store, k, g, to, r)
	c.mu.Lock()
	if now, ok := c.windows.Get(k); ok && now == w {
		if w.bytes <= c.most/4 {
			c.windows.Put(k, w, w.bytes)
		} else {
			c.windows.Delete(k) // one thread leaves room for others
		}
	}
	c.mu.Unlock()
	return w.read(to, r), err
}

// window holds all items of one kind of one thread with sequences from first to last.
type window struct {
	mu          sync.Mutex
	first, last int64
	// newer are the items after the sequence at which the window began, oldest first, and older the others,
	// newest first. Both only grow at their ends.
	newer, older []Item
	bytes        int64
}

// grow reads what the window lacks of a segment up to a sequence: the items after it, and as many before it
// as there is room for.
func (w *window) grow(ctx context.Context, s Store, k windowKey, g Segment, to int64, r room) error {
	var tail [][]Item
	for end := to; end > w.last; {
		items, whole, err := read(ctx, s, k, w.last+1, end)
		if err != nil {
			return err
		}
		if tail = append(tail, items); whole {
			break
		}
		end = items[len(items)-1].Seq - 1
	}
	for _, items := range slices.Backward(tail) {
		for _, it := range slices.Backward(items) {
			w.newer = append(w.newer, it)
			w.bytes += int64(it.Size())
		}
	}
	w.last = max(w.last, to)
	for w.first > g.First && !w.enough(to, r) {
		items, whole, err := read(ctx, s, k, g.First, w.first-1)
		if err != nil {
			return err
		}
		w.older = append(w.older, items...)
		for i := range items {
			w.bytes += int64(items[i].Size())
			w.first = items[i].Seq
		}
		if whole {
			w.first = g.First
		}
	}
	return nil
}

// read reads items of the store, newest first. whole reports whether there are no others in the range.
func read(ctx context.Context, s Store, k windowKey, first, last int64) (items []Item, whole bool, err error) {
	items, err = s.SegmentItems(ctx, k.namespace, Segment{k.thread, first, last}, []Kind{k.kind}, readRows)
	bytes := 0
	for i := range items {
		bytes += items[i].Size()
		if i > 0 { // most items of a thread name the same runs and nodes
			items[i].RunID, items[i].NodeID = shared(items[i-1].RunID, items[i].RunID), shared(items[i-1].NodeID, items[i].NodeID)
		}
	}
	return items, len(items) < readRows && bytes <= page.MaxBytes, err
}

// shared is s, in the memory of was if both are equal.
func shared(was, s string) string {
	if was == s {
		return was
	}
	return s
}

// enough reports whether the window fills the room with items up to a sequence.
func (w *window) enough(to int64, r room) bool {
	if r.items == maxInt && r.bytes == maxInt {
		return false
	}
	n, bytes := 0, 0
	for it := range w.down(to) {
		n, bytes = n+1, bytes+it.Size()
		if n >= r.items || bytes > r.bytes {
			return true
		}
	}
	return false
}

// read returns items up to a sequence, newest first, until the room is full.
func (w *window) read(to int64, r room) []Item {
	out := make([]Item, 0, min(r.items, len(w.newer)+len(w.older)))
	bytes := 0
	for it := range w.down(to) {
		if len(out) == r.items || bytes > r.bytes {
			break
		}
		out, bytes = append(out, *it), bytes+it.Size()
	}
	return out
}

// down goes through the items up to a sequence, newest first.
func (w *window) down(to int64) iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for i := len(w.newer) - 1; i >= 0; i-- {
			if w.newer[i].Seq <= to && !yield(&w.newer[i]) {
				return
			}
		}
		for i := range w.older {
			if w.older[i].Seq <= to && !yield(&w.older[i]) {
				return
			}
		}
	}
}
