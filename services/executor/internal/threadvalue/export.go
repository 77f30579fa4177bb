package threadvalue

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/plainjson"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Threads is where threads are read.
type Threads interface {
	// Thread, Family, Lineage and SegmentItems are those of thread.Store.
	Thread(ctx context.Context, namespace, id string) (thread.Thread, error)
	Family(ctx context.Context, namespace, id string, limit int) ([]thread.Relative, error)
	Lineage(ctx context.Context, namespace, id string) ([]thread.Segment, error)
	SegmentItems(ctx context.Context, namespace string, s thread.Segment, q thread.Selection) ([]thread.Item, error)
}

// Export writes the document of a thread and its parts. It is of one moment, at which no open run may
// hold any of them. The error is one of thread.ReasonNotFound, thread.ReasonBusy and
// thread.ReasonValueTooLarge.
func Export(ctx context.Context, threads Threads, namespace, id string) ([]byte, error) {
	family, err := threads.Family(ctx, namespace, id, thread.MaxValueThreads+1)
	if err != nil {
		return nil, err
	}
	x := &export{threads: threads, namespace: namespace, of: map[string]int{}}
	for i := range family {
		r := &family[i]
		if r.By != "" {
			return nil, thread.Busy(r.ID, r.By)
		}
		if err := x.add(r.Thread, r.Last, r.PartOf); err != nil {
			return nil, err
		}
	}
	x.entries[0].PartOf, x.entries[0].Name = "", ""
	for done := 0; done < len(x.entries); { // a state may name further threads
		if err := x.read(ctx, done); err != nil {
			return nil, err
		}
		done++
	}
	return x.document()
}

// export is a document that is being written.
type export struct {
	threads   Threads
	namespace string
	entries   []entry
	lasts     []int64
	// of is where a thread stands, by its id.
	of           map[string]int
	items, bytes int64
}

// add adds a thread up to an item.
func (x *export) add(t thread.Thread, last int64, partOf string) error {
	if x.items += last; len(x.entries) >= thread.MaxValueThreads || x.items > thread.MaxValueItems {
		return thread.ValueTooLarge("thread %q has too many parts or items to be a value", x.first(t.ID))
	}
	e := entry{ID: t.ID, PartOf: partOf, Agent: t.Agent, Title: t.Title, Name: t.PartName()}
	x.of[t.ID] = len(x.entries)
	x.entries, x.lasts = append(x.entries, e), append(x.lasts, last)
	return nil
}

// first is the thread that the document is of.
func (x *export) first(id string) string {
	if len(x.entries) > 0 {
		return x.entries[0].ID
	}
	return id
}

// itemOverhead is about what the document holds of an item besides its values.
const itemOverhead = 80

// read reads the items of a thread, and adds the threads that its last state names.
func (x *export) read(ctx context.Context, i int) error {
	id, last := x.entries[i].ID, x.lasts[i]
	segments, err := x.threads.Lineage(ctx, x.namespace, id)
	if err != nil {
		return err
	}
	out := make([]item, last)
	next := last // the one that is read next: the newest comes first
	for _, g := range segments {
		for g.Last = min(g.Last, next); g.Last >= g.First; g.Last = next {
			page, err := x.threads.SegmentItems(ctx, x.namespace, g, thread.Selection{Limit: 500, Body: true, Origin: true})
			if err != nil {
				return err
			}
			if len(page) == 0 || page[0].Seq != next {
				return thread.NotFound(id) // it was removed meanwhile
			}
			for j := range page {
				it := &page[j]
				if x.bytes += int64(len(it.Brief)+len(it.Body)) + itemOverhead; x.bytes > thread.MaxValueBytes {
					return thread.ValueTooLarge("thread %q has more than %d MiB of items with its parts", x.entries[0].ID, thread.MaxValueBytes>>20)
				}
				out[it.Seq-1] = item{Kind: kindName(it.Kind), kind: it.Kind, Time: it.Time.UTC(), Brief: it.Brief, Body: it.Body}
				next = it.Seq - 1
			}
		}
	}
	if next != 0 {
		return thread.NotFound(id)
	}
	x.entries[i].items = out
	return x.named(ctx, i)
}

// named adds the threads that the last state of a team names and that are no parts: a copy of the
// thread of a team goes on with the parts of the first one. Threads that have a key are the memory of
// agents, and stay.
func (x *export) named(ctx context.Context, i int) error {
	e := &x.entries[i]
	for j := range e.items {
		if it := &e.items[j]; it.kind == workgraph.ThreadState && team.Keeps(it.Body) {
			it.team, _ = team.ReadKept(it.Body, int64(j)+1) // one that no team can go on with stays as it is
		}
	}
	for j := len(e.items) - 1; j >= 0; j-- {
		k := e.items[j].team
		if k == nil {
			continue
		}
		id := e.ID
		for _, name := range slices.Sorted(maps.Keys(k.Threads)) {
			if err := x.also(ctx, id, k.Threads[name], k.Ends[name]); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// also adds a thread that a state names, up to an item.
func (x *export) also(ctx context.Context, partOf, id string, end int64) error {
	if _, known := x.of[id]; known {
		return nil
	}
	t, err := x.threads.Thread(ctx, x.namespace, id)
	switch {
	case errs.ReasonOf(err) == thread.ReasonNotFound:
		return nil // its time is over: the member begins anew, as it would here
	case err != nil:
		return err
	case t.Key != "" && !thread.IsPart(t.Key):
		return nil
	}
	t.PartOf, t.Key, t.Title = "", "", "" // it is found by the state alone
	return x.add(t, min(end, t.Last), partOf)
}

// document is the JSON of what was read. States name only what is in it.
func (x *export) document() ([]byte, error) {
	if err := x.order(); err != nil {
		return nil, err
	}
	for i := range x.entries {
		e := &x.entries[i]
		for j := range e.items {
			it := &e.items[j]
			if it.team == nil {
				continue
			}
			own, err := it.team.Mapped(func(id string) string {
				if _, ok := x.of[id]; !ok || id == x.entries[0].ID || id == e.ID {
					return ""
				}
				return id
			})
			if err != nil {
				return nil, err
			}
			it.Body = own
		}
		raw, err := plainjson.Marshal(e.items)
		if err != nil {
			return nil, err
		}
		e.Items, e.items = raw, nil
	}
	out, err := plainjson.Marshal(document{Format: Format, Threads: x.entries})
	if err == nil && len(out) > thread.MaxValueBytes {
		err = thread.ValueTooLarge("thread %q has %d bytes as a value", x.entries[0].ID, len(out))
	}
	return json.RawMessage(out), err
}

// order puts each part after that of which it is one.
func (x *export) order() error {
	depth := func(e entry) (n int) {
		for e.PartOf != "" && n <= len(x.entries) {
			e = x.entries[x.of[e.PartOf]]
			n++
		}
		return n
	}
	type placed struct {
		entry entry
		depth int
	}
	all := make([]placed, len(x.entries))
	for i := range x.entries {
		all[i] = placed{x.entries[i], depth(x.entries[i])}
		if all[i].depth >= thread.MaxValueDepth {
			return thread.ValueTooLarge("thread %q has parts with more than %d threads above them", x.entries[0].ID, thread.MaxValueDepth)
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.depth - b.depth })
	for i := range all {
		x.entries[i] = all[i].entry
	}
	return nil
}
