package thread

import (
	"context"
	"iter"
	"math"
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
	// firstRows is how many items are read from the store at first, when nothing is known of their length,
	// and mostRows is how many are read at once later.
	firstRows, mostRows = 500, 4000
	// windowBytes is about what an empty window takes in memory.
	windowBytes = 256
	// segmentBytes is about what a part of a lineage takes in memory.
	segmentBytes = 128
	// lineageShare is the part of the memory that lineages may take: one of so many.
	lineageShare = 16
)

// Cache is a Reader over a store. It keeps the newest items of threads that were read lately, since items
// never change. What it answers is as new as the store, but that a thread that was deleted may still be read
// up to a sequence. It is safe for concurrent use.
type Cache struct {
	Store

	mu       sync.Mutex
	windows  *lru.Cache[windowKey, *window]
	lineages *lru.Cache[nameKey, []Segment]
	most     int64
}

// windowKey names the items of one kind of a segment, whole or their briefs. end is 0 for a segment that
// grows, and the last sequence of one that ends with a fork.
type windowKey struct {
	namespace, thread string
	kind              Kind
	briefs            bool
	end               int64
}

// size is about what an empty window with the key takes in memory.
func (k windowKey) size() int64 { return int64(windowBytes + len(k.namespace) + len(k.thread)) }

// NewCache returns an empty cache for up to most bytes of items; 0 means DefaultCacheBytes.
func NewCache(s Store, most int64) *Cache {
	if most <= 0 {
		most = DefaultCacheBytes
	}
	return &Cache{Store: s, windows: lru.New[windowKey, *window](most), lineages: lru.New[nameKey, []Segment](most / lineageShare), most: most}
}

// Thread implements Reader.
func (c *Cache) Thread(ctx context.Context, namespace, id string) (Thread, error) {
	t, err := c.Store.Thread(ctx, namespace, id)
	if err != nil {
		return t, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := nameKey{namespace, id}
	if l, ok := c.lineages.Get(k); ok && t.Last > l[0].Last {
		c.keep(k, grown(l, t.Last))
	}
	return t, nil
}

// Item implements Reader. It is not kept: a state holds all that was said in its round.
func (c *Cache) Item(ctx context.Context, namespace, id string, seq int64) (Item, error) {
	l, err := c.lineage(ctx, namespace, id, 0)
	if err != nil {
		return Item{}, err
	}
	at := slices.IndexFunc(l, func(g Segment) bool { return seq >= g.First })
	if at < 0 || at > 0 && seq > l[at].Last {
		return Item{}, noItem(id, seq)
	}
	items, err := c.SegmentItems(ctx, namespace, Segment{l[at].Thread, seq, seq}, Selection{Limit: 1, Body: true})
	if err == nil && len(items) == 0 {
		err = noItem(id, seq)
	}
	if err != nil {
		return Item{}, err
	}
	return items[0], nil
}

func noItem(id string, seq int64) error { return invalid("thread %q has no item %d", id, seq) }

// lineage returns the segments of a thread. They are known to reach a sequence, or else as new as the store.
func (c *Cache) lineage(ctx context.Context, namespace, id string, to int64) ([]Segment, error) {
	k := nameKey{namespace, id}
	c.mu.Lock()
	l, ok := c.lineages.Get(k)
	c.mu.Unlock()
	if ok && to <= l[0].Last {
		return l, nil
	}
	l, err := c.Lineage(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.lineages.Get(k); !ok || known[0].Last < l[0].Last {
		c.keep(k, l)
	}
	return l, nil
}

// keep keeps a lineage. c.mu is locked.
func (c *Cache) keep(k nameKey, l []Segment) {
	c.lineages.Put(k, l, int64(segmentBytes*(1+len(l))))
}

// grown is a lineage whose first segment ends later. The given one may be in use.
func grown(l []Segment, last int64) []Segment {
	l = slices.Clone(l)
	l[0].Last = last
	return l
}

// Items implements Reader.
func (c *Cache) Items(ctx context.Context, namespace, id string, q Query) ([]Item, error) {
	upTo := q.Before - 1
	if q.Before <= 0 {
		upTo = math.MaxInt64 // as far as there is anything
	}
	segments, err := c.lineage(ctx, namespace, id, upTo)
	if err != nil {
		return nil, err
	}
	kinds := slices.Compact(slices.Sorted(slices.Values(q.Kinds)))
	if len(kinds) == 0 {
		kinds = []Kind{workgraph.ThreadMessage, workgraph.ThreadState, workgraph.ThreadLearning, workgraph.ThreadSummary}
	}
	out := collected{q: q}
	for i, g := range segments {
		k := windowKey{namespace: namespace, thread: g.Thread, briefs: q.Briefs}
		if i > 0 {
			k.end = g.Last
		}
		to := min(g.Last, upTo)
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
		c.windows.Put(k, w, k.size())
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
			c.windows.Put(k, w, k.size()+w.bytes)
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
	p := pages{most: firstRows}
	for end := to; end > w.last; {
		items, whole, err := p.read(ctx, s, k, w.last+1, end, mostRows)
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
	for w.first > g.First {
		lacks := w.lacks(to, r)
		if lacks <= 0 {
			break
		}
		items, whole, err := p.read(ctx, s, k, g.First, w.first-1, lacks)
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

// pages reads items of a segment. most is how many are read next, from the length of those that were read
// last: what a page has no room for is read in vain.
type pages struct{ most int }

// read reads items of the store, newest first, and not many more than are needed. whole reports whether there
// are no others in the range.
func (p *pages) read(ctx context.Context, s Store, k windowKey, first, last int64, need int) (items []Item, whole bool, err error) {
	limit := min(p.most, need)
	items, err = s.SegmentItems(ctx, k.namespace, Segment{k.thread, first, last}, Selection{Kinds: []Kind{k.kind}, Limit: limit, Body: !k.briefs})
	bytes := 0
	for i := range items {
		bytes += items[i].Size()
	}
	p.most = max(1, min(mostRows, page.MaxBytes*len(items)/max(1, bytes)))
	return items, len(items) < limit && bytes <= page.MaxBytes, err
}

// lacks is how many items up to a sequence the window should have besides, to fill the room; 0 if it does.
func (w *window) lacks(to int64, r room) int {
	if r.items == maxInt && r.bytes == maxInt {
		return mostRows
	}
	n, bytes := 0, 0
	for it := range w.down(to) {
		n, bytes = n+1, bytes+it.Size()
		if n >= r.items || bytes > r.bytes {
			return 0
		}
	}
	more := min(r.items-n, mostRows)
	if n > 0 && r.bytes < maxInt { // one more says that the room is full
		more = min(more, (r.bytes-bytes)/max(1, bytes/n)+1)
	}
	return more
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
