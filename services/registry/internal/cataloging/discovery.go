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
	// maxIndexed is how many workflows of all namespaces are kept in indexes; those of namespaces that nobody
	// asked for the longest time are dropped, and read again when somebody does.
	maxIndexed = 400_000
	// changesRead is how many changes are read at once.
	changesRead = 1000
)

// indexes are the indexes of namespaces. The zero value is ready.
type indexes struct {
	mu sync.Mutex
	of *lru.Cache[string, *index]
}

// index is the index of one namespace, as of a change.
type index struct {
	// turn holds a value while the index is refreshed.
	turn     chan struct{}
	change   int64
	revision map[string]int64 // of the workflows in found
	found    discover.Index
}

func (x *indexes) get(namespace string) *index {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == nil {
		x.of = lru.New[string, *index](maxIndexed)
	}
	i, ok := x.of.Get(namespace)
	if !ok {
		i = &index{turn: make(chan struct{}, 1), revision: map[string]int64{}}
		x.of.Put(namespace, i, 1)
	}
	return i
}

// weigh counts the workflows of an index that has been read.
func (x *indexes) weigh(namespace string, i *index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if kept, ok := x.of.Get(namespace); !ok || kept == i {
		x.of.Put(namespace, i, int64(1+i.found.Len()))
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
	have, known := i.revision[w.ID]
	switch {
	case w.State != catalog.Active:
		i.found.Remove(w.ID)
		delete(i.revision, w.ID)
	case known && have == w.Revision:
		i.found.SetHistory(w.ID, h)
	default:
		i.found.Put(discover.Workflow{ID: w.ID, Name: w.Name, Description: w.Description, Tags: w.Tags, Capabilities: w.Can, History: h})
		i.revision[strings.Clone(w.ID)] = w.Revision
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
