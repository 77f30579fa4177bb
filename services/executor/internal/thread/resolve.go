package thread

import (
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Found is what a commit finds of the threads that it appends to, before it writes. Only drivers make one.
type Found struct {
	threads map[string]*state
	keys    map[nameKey]string
	usage   map[string]Usage
	// undo takes back what the present call of Resolve changed.
	undo []func()
}

type nameKey struct{ namespace, key string }

type state struct {
	Thread
	// items are those that were looked for and are there. Their bytes may be missing at the sequence that an
	// append must find.
	items map[int64]Item
	// writer is who appended to the thread in this commit.
	writer any
}

// Add notes a thread that is there.
func (f *Found) Add(t Thread) {
	if f.threads == nil {
		f.threads, f.keys = map[string]*state{}, map[nameKey]string{}
	}
	f.threads[t.ID] = &state{Thread: t, items: map[int64]Item{}}
}

// AddItem notes an item that is there, of a thread that was added. It may come without its values where it is
// the first of a range.
func (f *Found) AddItem(id string, it Item) {
	if st := f.threads[id]; st != nil && st.items[it.Seq].Body == nil {
		st.items[it.Seq] = it
	}
}

// AddKey notes which thread has a key.
func (f *Found) AddKey(namespace, key, id string) {
	if f.threads == nil {
		f.threads, f.keys = map[string]*state{}, map[nameKey]string{}
	}
	f.keys[nameKey{namespace, key}] = id
}

// AddUsage notes what the threads of a namespace take.
func (f *Found) AddUsage(namespace string, u Usage) {
	if f.usage == nil {
		f.usage = map[string]Usage{}
	}
	f.usage[namespace] = u
}

// Range names items of a thread, by their first and last sequence.
type Range struct {
	Thread   string
	From, To int64
}

// Looks returns which items are to be looked for before appends are written. The threads are those of the
// ranges.
func Looks(as []Append) []Range {
	var out []Range
	for i := range as {
		a := &as[i]
		out = append(out, Range{a.Thread, a.After, a.Last() + 1})
		if c := a.Create; c != nil && c.Parent != "" {
			out = append(out, Range{c.Parent, c.ParentSeq, c.ParentSeq})
		}
		if c := a.Create; c != nil && c.PartOf != "" {
			out = append(out, Range{Thread: c.PartOf, To: -1}) // no item of it is needed
		}
	}
	return out
}

// Write is what is left to be written of the appends of one run.
type Write struct {
	New   []Thread
	Items []ItemOf
	// Agents are threads whose turns another agent takes from now on, each once.
	Agents []AgentOf
	// Usage is what the namespace takes more with that.
	Usage Usage
}

// AgentOf is the agent of a thread.
type AgentOf struct{ Thread, Agent string }

// ItemOf is an item of a thread.
type ItemOf struct {
	Thread string
	*Item
}

// Resolve decides what is written of the appends of a run, which writer stands for. What is there already is
// left out. The error has ReasonConflict, ReasonTooMany or ReasonTooLarge, and then nothing of the run may be
// written. Found changes with what is to be written, so that a later call sees it.
func (f *Found) Resolve(namespace, runID string, as []Append, room Room, writer any) (Write, error) {
	var w Write
	f.undo = nil
	err := f.all(namespace, runID, as, writer, &w)
	if err == nil {
		err = room.Check(f.usage[namespace], w.Usage)
	}
	if err != nil {
		for _, undo := range slices.Backward(f.undo) {
			undo()
		}
		return Write{}, err
	}
	if w.Usage != (Usage{}) {
		f.AddUsage(namespace, f.usage[namespace].Plus(w.Usage))
	}
	return w, nil
}

func (f *Found) all(namespace, runID string, as []Append, writer any, w *Write) error {
	for i := range as {
		if err := f.one(namespace, runID, &as[i], writer, w); err != nil {
			return err
		}
	}
	return nil
}

func (f *Found) one(namespace, runID string, a *Append, writer any, w *Write) error {
	st := f.threads[a.Thread]
	switch {
	case st != nil && st.Namespace != namespace, st == nil && a.Create == nil:
		return conflict("there is no thread %q", a.Thread)
	case st == nil:
		var err error
		if st, err = f.create(namespace, runID, a, writer); err != nil {
			return err
		}
		w.New = append(w.New, st.Thread)
		w.Usage.Threads++
	case a.Create != nil && !st.madeBy(a):
		return conflict("there is a thread %q already", a.Thread)
	}
	if len(a.Items) == 0 {
		return nil
	}
	if st.writer != nil && st.writer != writer {
		return conflict("another run appends to thread %q at the same time", a.Thread)
	}
	there := 0
	for i := range a.Items {
		if have, ok := st.items[a.Items[i].Seq]; ok && have.same(&a.Items[i]) {
			there++
		}
	}
	if there == len(a.Items) {
		return nil
	}
	if _, taken := st.items[a.After+1]; taken || a.After < st.ParentSeq {
		return conflict("thread %q goes on after item %d", a.Thread, a.After)
	}
	if !st.has(a.After) {
		return conflict("thread %q ends before item %d", a.Thread, a.After)
	}
	was := st.writer
	f.undo = append(f.undo, func() { st.writer = was })
	st.writer = writer
	for i := range a.Items {
		seq := a.Items[i].Seq
		st.items[seq] = a.Items[i]
		f.undo = append(f.undo, func() { delete(st.items, seq) })
		w.Items = append(w.Items, ItemOf{a.Thread, &a.Items[i]})
		w.Usage.Bytes += a.Items[i].Weight
	}
	if a.Agent != "" {
		w.Agents = slices.DeleteFunc(w.Agents, func(of AgentOf) bool { return of.Thread == a.Thread })
		w.Agents = append(w.Agents, AgentOf{a.Thread, a.Agent})
	}
	return nil
}

// has reports whether a sequence is that of an item or of the fork.
func (st *state) has(seq int64) bool {
	_, ok := st.items[seq]
	return ok || seq == st.ParentSeq
}

// madeBy reports whether the thread is the one that an append describes.
func (st *state) madeBy(a *Append) bool {
	c := a.Create
	return st.Key == c.Key && st.Agent == c.Agent && st.ParentID == c.Parent && st.ParentSeq == c.ParentSeq && st.PartOf == c.PartOf && st.Lifetime == lifetime(c)
}

func (f *Found) create(namespace, runID string, a *Append, writer any) (*state, error) {
	c := a.Create
	t := a.New(namespace, runID)
	if c.OfRoot && c.Root != "" && c.Root != runID {
		t.Holder, t.Below = c.Root, []string{runID}
	}
	if c.Key != "" {
		k := nameKey{namespace, c.Key}
		if id, ok := f.keys[k]; ok {
			return nil, errs.From(conflict("thread %q has the key %q", id, c.Key)).Set(metaKey, c.Key)
		}
		f.AddKey(namespace, c.Key, a.Thread)
		f.undo = append(f.undo, func() { delete(f.keys, k) })
	}
	if c.PartOf != "" {
		if o := f.threads[c.PartOf]; o == nil || o.Namespace != namespace {
			return nil, conflict("there is no thread %q of which thread %q could be a part", c.PartOf, a.Thread)
		}
	}
	if c.Parent != "" {
		p := f.threads[c.Parent]
		switch {
		case p == nil || p.Namespace != namespace:
			return nil, conflict("there is no thread %q to fork", c.Parent)
		case p.writer != nil && p.writer != writer:
			return nil, conflict("another run appends to thread %q at the same time", c.Parent)
		case c.ParentSeq > p.ParentSeq && !p.has(c.ParentSeq):
			return nil, conflict("thread %q ends before item %d", c.Parent, c.ParentSeq)
		case p.Depth >= MaxDepth:
			return nil, conflict("thread %q has %d threads above it, which is as many as may be", c.Parent, MaxDepth)
		}
		t.Depth = p.Depth + 1
	}
	f.Add(t)
	f.threads[t.ID].writer = writer
	f.undo = append(f.undo, func() { delete(f.threads, t.ID) })
	return f.threads[t.ID], nil
}

// IDs are the threads of ranges, each once and sorted, so that all commits lock them in one order.
func IDs(rs []Range) []string {
	var ids []string
	for _, r := range rs {
		ids = append(ids, r.Thread)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Keys are the keys that appends take.
func Keys(as []Append) []string {
	var keys []string
	for i := range as {
		if c := as[i].Create; c != nil && c.Key != "" {
			keys = append(keys, c.Key)
		}
	}
	return keys
}
