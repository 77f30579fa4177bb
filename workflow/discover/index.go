package discover

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// Workflow is one that can be found.
type Workflow struct {
	// ID is the caller's name of it; matches tell it. No two workflows of an index have the same.
	ID          string
	Name        string
	Description string
	Tags        []string
	Capabilities
	History
}

// Query says what is looked for. A query that asks nothing finds every workflow, those first that
// succeed.
type Query struct {
	Requirements
	// Text are words that the workflow's name, description or tags should have. With capabilities that
	// are required, they order workflows that fit equally. Without, they are what must fit: a workflow
	// that has none of them is not found, and the share of words that it has stands for the share of
	// capabilities.
	Text string
	// Exclude are ids that are not to be found, such as that of the workflow that asks.
	Exclude []string
	// Limit is how many matches are wanted; 0 means 5, and MaxLimit is the most.
	Limit int
}

const (
	// MaxLimit is how many matches a search can return.
	MaxLimit     = 100
	defaultLimit = 5
	// maxNames is how many names of a kind are known of one workflow, the first ones of their order.
	maxNames = 1000
	// maxExclude is how many ids a query may exclude.
	maxExclude = 1000
)

// The kinds of names of a workflow.
const (
	triggers = iota
	nodeTypes
	tools
	models
	tags
	words
	kinds
)

// entry is a workflow in an index. All its names are numbers.
type entry struct {
	id string
	// description is in lower case.
	description string
	// names are those of each kind, one kind after the other, and ends is where each kind ends.
	names []uint32
	// slots are where the workflow stands among those that have each of the names.
	slots []uint32
	ends  [kinds]uint16
	// free says that there is no workflow in this place.
	free bool
	History
}

func (e *entry) of(kind int) []uint32 {
	from := uint16(0)
	if kind > 0 {
		from = e.ends[kind-1]
	}
	return e.names[from:e.ends[kind]]
}

// Index finds workflows by what they can do. It is exact: every search rates every workflow. It is safe
// for concurrent use, and its zero value is empty. It keeps 256 words and the first 4 KiB of the
// description of a workflow, and 1,000 names of a kind.
type Index struct {
	mu      sync.RWMutex
	tables  [kinds]table
	entries []entry
	at      map[string]uint32
	free    []uint32
	scratch sync.Pool // of *counts
}

// Len is how many workflows there are.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.at)
}

// Put adds a workflow, or replaces the one of its id.
func (x *Index) Put(w Workflow) {
	names := [kinds][]string{unique(w.Triggers), unique(w.NodeTypes), unique(w.Tools), unique(w.Models), unique(w.Tags), wordsOf(maxWords, append([]string{w.Name, w.Description}, w.Tags...)...)}
	description := w.Description[:min(len(w.Description), maxDescription)]
	e := entry{id: strings.Clone(w.ID), description: strings.Clone(strings.ToLower(description)), History: w.History}
	total := 0
	for k := range names {
		names[k] = names[k][:min(len(names[k]), maxNames)]
		total += len(names[k])
	}
	e.names, e.slots = make([]uint32, 0, total), make([]uint32, 0, total)
	x.mu.Lock()
	defer x.mu.Unlock()
	place := x.place(w.ID)
	for k := range names {
		for _, name := range names[k] {
			n, slot := x.tables[k].take(name, place)
			e.names, e.slots = append(e.names, n), append(e.slots, slot)
		}
		e.ends[k] = uint16(len(e.names))
	}
	x.entries[place] = e
	x.at[e.id] = place
}

// place is an empty place for a workflow: that of its id, one that is free, or a new one.
func (x *Index) place(id string) uint32 {
	if x.at == nil {
		x.at = map[string]uint32{}
	}
	if place, ok := x.at[id]; ok {
		x.release(place)
		return place
	}
	if last := len(x.free) - 1; last >= 0 {
		place := x.free[last]
		x.free = x.free[:last]
		return place
	}
	x.entries = append(x.entries, entry{})
	return uint32(len(x.entries) - 1)
}

// release gives the names of an entry back. Its cost does not grow with how many others have them.
func (x *Index) release(place uint32) {
	e := &x.entries[place]
	at := 0
	for k := range kinds {
		for _, n := range e.of(k) {
			slot := e.slots[at]
			if moved := x.tables[k].drop(n, slot); moved != place {
				x.entries[moved].move(k, n, slot)
			}
			at++
		}
	}
}

// move notes that the workflow stands at another slot among those that have a name.
func (e *entry) move(kind int, n, slot uint32) {
	from := 0
	if kind > 0 {
		from = int(e.ends[kind-1])
	}
	e.slots[from+slices.Index(e.of(kind), n)] = slot
}

// Remove takes a workflow out, and reports whether it was there.
func (x *Index) Remove(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	place, ok := x.at[id]
	if !ok {
		return false
	}
	x.release(place)
	x.entries[place] = entry{free: true}
	x.free = append(x.free, place)
	delete(x.at, id)
	return true
}

// SetHistory replaces what is known of the runs of a workflow, and reports whether it is there.
func (x *Index) SetHistory(id string, h History) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	place, ok := x.at[id]
	if ok {
		x.entries[place].History = h
	}
	return ok
}

// Search returns the workflows that fit best, the best one first, and how many it has rated, which are
// all that the query does not exclude. Those that fit equally stand in the order of their ids. The
// error is that of ctx.
func (x *Index) Search(ctx context.Context, q Query) (matches []Match, total int, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.begin(q)
	defer x.scratch.Put(s.counts)
	for i := range x.entries {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if e := &x.entries[i]; !e.free && !s.excluded[i] {
			total++
			s.rate(i, e)
		}
	}
	for _, c := range s.best {
		m := Match{ID: c.id, Relevance: c.relevance.float()}
		e := &x.entries[c.at]
		m.difference(q.Requirements, x.capabilities(e))
		m.rate(c.score, e.History)
		matches = append(matches, m)
	}
	return matches, total, nil
}

func (x *Index) capabilities(e *entry) Capabilities {
	name := func(kind int) []string { return x.tables[kind].named(e.of(kind)) }
	return Capabilities{Triggers: name(triggers), NodeTypes: name(nodeTypes), Tools: name(tools), Models: name(models)}
}
