package cataloging

import (
	"context"
	"strings"
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

const (
	// maxIndexed bounds what the indexes of all namespaces take, in bytes; those of namespaces that nobody
	// asked for the longest time are dropped, and read again when somebody does.
	maxIndexed = 512 << 20
	// indexedSize is what a workflow takes in an index beside its texts, and nameSize what a name takes.
	indexedSize, nameSize = 512, 32
	// changesRead is how many changes are read at once.
	changesRead = 1000
)

// indexed is what is known of a workflow in an index.
type indexed struct{ revision, size int64 }

// sizeIn is about what a workflow takes in an index.
func sizeIn(w *catalog.Workflow) int64 {
	n := indexedSize + 2*len(w.Description) + len(w.Name) // its words are kept, too
	for _, names := range [][]string{w.Tags, w.Can.Triggers, w.Can.NodeTypes, w.Can.Tools, w.Can.Models} {
		for _, name := range names {
			n += nameSize + len(name)
		}
	}
	return int64(n)
}

// indexes are the indexes of namespaces. The zero value is ready.
type indexes struct {
	mu sync.Mutex
	of *lru.Cache[string, *index]
}

// index is the index of one namespace, as of a change.
type index struct {
	// turn holds a value while the index is refreshed.
	turn   chan struct{}
	change int64
	known  map[string]indexed // of the workflows in found
	// size is what they take, in bytes.
	size  int64
	found discover.Index
}

func (x *indexes) get(namespace string) *index {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == nil {
		x.of = lru.New[string, *index](maxIndexed)
	}
	i, ok := x.of.Get(namespace)
	if !ok {
		i = &index{turn: make(chan struct{}, 1), known: map[string]indexed{}}
		x.of.Put(namespace, i, 1)
	}
	return i
}

// weigh counts the bytes of an index that has been read.
func (x *indexes) weigh(namespace string, i *index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if kept, ok := x.of.Get(namespace); !ok || kept == i {
		x.of.Put(namespace, i, 1+i.size)
	}
}

// refresh reads what has changed since the index was read last. What was read before ctx ended is not read
// again.
func (i *index) refresh(ctx context.Context, c *Catalog, namespace string) error {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-i.turn }()
	for {
		rows, err := view(ctx, c, namespace, func(ctx context.Context, r store.Reader) ([]catalog.Workflow, error) {
			return r.ChangedWorkflows(ctx, namespace, i.change, changesRead)
		})
		if err != nil {
			return err
		}
		for n := range rows {
			i.put(&rows[n])
		}
		if len(rows) < changesRead {
			return nil
		}
	}
}

func (i *index) put(w *catalog.Workflow) {
	i.change = w.Change
	h := discover.History{Completed: w.History.Completed, Failed: w.History.Failed, Canceled: w.History.Canceled, NanoUSD: w.History.NanoUSD}
	have, known := i.known[w.ID]
	switch {
	case w.State != catalog.Active:
		i.found.Remove(w.ID)
		i.size -= have.size
		delete(i.known, w.ID)
	case known && have.revision == w.Revision:
		i.found.SetHistory(w.ID, h)
	default:
		i.found.Put(discover.Workflow{ID: w.ID, Name: w.Name, Description: w.Description, Tags: w.Tags, Capabilities: w.Can, History: h})
		now := indexed{w.Revision, sizeIn(w)}
		i.size += now.size - have.size
		i.known[strings.Clone(w.ID)] = now
	}
}

// Match is a workflow that was found.
type Match struct {
	discover.Match
	Workflow catalog.Workflow
}

// Discover finds workflows, the best first, and how many it has looked at. Names to exclude are slugs or ids;
// those of nothing are no error.
func (c *Catalog) Discover(ctx context.Context, namespace string, q discover.Query) (out []Match, total int, err error) {
	i := c.indexes.get(namespace)
	if err := i.refresh(ctx, c, namespace); err != nil {
		return nil, 0, err
	}
	c.indexes.weigh(namespace, i)
	err = c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		out = nil
		named := q
		if named.Exclude, err = idsOf(ctx, r, namespace, q.Exclude); err != nil {
			return err
		}
		found, n, err := i.found.Search(ctx, named)
		if err != nil {
			return err
		}
		total = n
		for _, m := range found {
			w, err := r.Workflow(ctx, namespace, m.ID)
			if missing(err) { // deleted a moment ago
				continue
			}
			if err != nil {
				return err
			}
			out = append(out, Match{m, w})
		}
		return nil
	})
	return out, total, err
}

func idsOf(ctx context.Context, r store.Reader, namespace string, names []string) (ids []string, err error) {
	for _, name := range names {
		if strings.HasPrefix(name, catalog.Prefix+"_") {
			ids = append(ids, name)
			continue
		}
		w, err := r.Workflow(ctx, namespace, name)
		switch {
		case err == nil:
			ids = append(ids, w.ID)
		case !missing(err):
			return nil, err
		}
	}
	return ids, nil
}
