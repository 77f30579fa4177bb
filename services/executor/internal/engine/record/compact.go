package record

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// compactForm is the first byte of an event in the compact form. That form omits what the row's columns
// have, and writes a repeated string once. It covers the most frequent events: the end of a node, and the
// beginning and the end of a run. Other events are JSON, with another first byte. The first byte of a row
// decides how it is read.
//
// The compact end of a node takes 71 bytes instead of 477, and less than a third of the time to write and
// read (BenchmarkEventForm). A node of W3 takes 622 bytes of log instead of 960.
const compactForm = 1

// These lists are stored by index, so new entries go to the end.
var (
	compactOps = [...]workgraph.Op{
		workgraph.OpEdge, workgraph.OpEnter, workgraph.OpSkip, workgraph.OpComplete, workgraph.OpFail, workgraph.OpUpdate, workgraph.OpItem,
		workgraph.OpRetry, workgraph.OpWait, workgraph.OpWake, workgraph.OpStart, workgraph.OpReconcile, workgraph.OpLimit, workgraph.OpLoop,
		workgraph.OpUnlimit, workgraph.OpLoopEnd, workgraph.OpMoot, workgraph.OpCancel, workgraph.OpDrop, workgraph.OpReset, workgraph.OpGraph,
		workgraph.OpDrain,
	}
	compactEdges = [...]workgraph.EdgeKind{"", workgraph.DataEdge, workgraph.ErrorEdge, workgraph.BackEdge}
	compactKinds = [...]workgraph.EventKind{
		workgraph.RunStarted, workgraph.AttemptStarted, workgraph.AttemptEnded, workgraph.TimerFired, workgraph.RunPaused, workgraph.RunResumed,
		workgraph.CancelRequested, workgraph.RunEnded,
	}
)

// Flags in the head of a compact event: which parts follow.
const (
	hasNanos = 1 << iota
	hasItem
	hasAttempt
	hasInput
	hasOutcome
	hasStop
	hasReason
	hasEnd
	hasStart
	hasActor
	hasRequest
	isCached
	hasGeneration
)

// Flags in the head of a step: which parts follow.
const (
	stepVisit = 1 << iota
	stepItem
	stepTo
	stepEdge
	stepLive
	stepNote
	stepDetail
	stepMapped
)

// compactWriter writes a compact event. fits becomes false if the form cannot express it.
type compactWriter struct {
	b     []byte
	names []string
	fits  bool
}

func (w *compactWriter) uint(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

// count writes a number. A negative number does not fit.
func (w *compactWriter) count(n int) {
	if n < 0 {
		w.fits = false
		return
	}
	w.uint(uint64(n))
}

// name writes a string that may be repeated.
func (w *compactWriter) name(s string) {
	if i := slices.Index(w.names, s); i >= 0 {
		w.uint(uint64(i)<<1 | 1)
		return
	}
	w.uint(uint64(len(s)) << 1)
	w.b = append(w.b, s...)
	if len(w.names) < maxNames {
		w.names = append(w.names, s)
	}
}

// maxNames bounds the strings that are searched for a repetition.
const maxNames = 32

func (w *compactWriter) raw(v json.RawMessage) {
	if len(v) == 0 {
		v = rawNull
	}
	if !json.Valid(v) {
		w.fits = false
		return
	}
	w.uint(uint64(len(v)))
	w.b = append(w.b, v...)
}

var rawNull = json.RawMessage("null")

func (w *compactWriter) code(i int) {
	if i < 0 {
		w.fits = false
		return
	}
	w.uint(uint64(i))
}

// compactEvent is the compact form of d in a row with these columns. ok is false if the form cannot express
// d.
func compactEvent(d *Durable, row journal.Event) ([]byte, bool) {
	ev := &d.Event
	if slices.Index(compactKinds[:], ev.Kind) < 0 || int(row.Visit) != ev.Visit || ev.Version <= 0 || ev.At.Location() != time.UTC ||
		len(ev.Context) > 0 || ev.Error != nil || ev.By != "" || d.Principal != "" || ev.Child != nil || ev.Usage != nil || ev.Closed != nil || ev.Signal != "" ||
		ev.Payload != nil || ev.Message != nil || ev.Graph != nil || ev.Revision != 0 || ev.Budget != nil || ev.Spent != nil || ev.Unsettled != nil || ev.Costs != nil || ev.Step || d.GraphChange != nil {
		return nil, false
	}
	w := compactWriter{b: make([]byte, 0, 256), names: make([]string, 0, 8), fits: true}
	w.names = append(w.names, ev.Node)
	head := 0
	set := func(flag int, is bool) {
		if is {
			head |= flag
		}
	}
	nanos := ev.At.Nanosecond() % 1000
	begun := row.Time.Sub(d.StartTime)
	if !d.StartTime.IsZero() && (begun < 0 || d.StartTime.Nanosecond()%1000 != 0 || d.StartTime.Location() != time.UTC) {
		return nil, false
	}
	set(hasNanos, nanos > 0)
	set(hasItem, ev.Item != 0)
	set(hasAttempt, ev.Attempt != 0)
	set(hasInput, ev.Input != nil)
	set(hasOutcome, ev.Outcome != nil)
	set(hasStop, ev.Outcome != nil && ev.Outcome.Stop != "")
	set(hasReason, ev.Reason != "")
	set(hasEnd, ev.End != nil)
	set(hasStart, !d.StartTime.IsZero())
	set(hasActor, d.Actor != "")
	set(hasRequest, d.RequestID != "")
	set(isCached, d.Cached)
	set(hasGeneration, ev.Generation != 0)
	w.b = append(w.b, compactForm)
	w.uint(uint64(ev.Version))
	w.uint(uint64(head))
	if head&hasNanos != 0 {
		w.count(nanos)
	}
	if head&hasItem != 0 {
		w.count(ev.Item)
	}
	if head&hasAttempt != 0 {
		w.count(ev.Attempt)
	}
	if head&hasGeneration != 0 {
		w.count(ev.Generation)
	}
	if in := ev.Input; in != nil && (len(in.Args) > 0 || len(in.Named) > 0) {
		return nil, false
	}
	if head&hasOutcome != 0 {
		w.outcome(ev.Outcome)
	}
	if head&hasReason != 0 {
		w.name(ev.Reason)
	}
	if head&hasEnd != 0 {
		w.end(ev.End)
	}
	if head&hasStart != 0 {
		w.uint(uint64(begun.Microseconds()))
	}
	if head&hasActor != 0 {
		w.name(d.Actor)
	}
	if head&hasRequest != 0 {
		w.name(d.RequestID)
	}
	w.count(len(ev.Steps))
	for i := range ev.Steps {
		w.step(&ev.Steps[i])
	}
	return w.b, w.fits
}

func (w *compactWriter) outcome(o *workgraph.Outcome) {
	if o.Select != nil || o.Expand != nil || o.Pause != "" || o.Wait != nil || len(o.State) > 0 || len(o.Usage) > 0 || o.Saved != nil || o.Routed != nil {
		w.fits = false
		return
	}
	w.count(len(o.Values))
	for _, v := range o.Values {
		w.raw(v)
	}
	if o.Stop != "" {
		w.name(string(o.Stop))
	}
}

func (w *compactWriter) end(e *workgraph.RunEnd) {
	if e.Message != "" || e.Failed != nil || e.Error != nil || e.Unknown != nil {
		w.fits = false
		return
	}
	w.name(string(e.Status))
	w.name(e.Reason)
	nodes := make([]string, 0, len(e.Outputs))
	for n := range e.Outputs {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	w.count(len(nodes))
	for _, n := range nodes {
		w.name(n)
		w.raw(e.Outputs[n])
	}
	// The result of a run with one sink is its output, which is written once.
	if only := len(nodes) == 1 && string(e.Outputs[nodes[0]]) == string(e.Result); only {
		w.uint(1)
	} else if len(e.Result) == 0 {
		w.uint(0)
	} else {
		w.uint(2)
		w.raw(e.Result)
	}
}

func (w *compactWriter) step(s *workgraph.Step) {
	w.code(slices.Index(compactOps[:], s.Op))
	head := 0
	if s.Visit != 0 {
		head |= stepVisit
	}
	if s.Item != 0 {
		head |= stepItem
	}
	if s.To != "" {
		head |= stepTo
	}
	if s.Kind != "" {
		head |= stepEdge
	}
	if s.Live {
		head |= stepLive
	}
	if s.Note != "" {
		head |= stepNote
	}
	if d := s.Detail; d != nil {
		if d.Items != nil || d.Key != "" || d.Propagated != nil || d.Values != nil || d.Error != nil || d.Action != "" || d.Stop != "" || !d.Due.IsZero() ||
			d.Attempt != 0 || d.Generation != 0 || d.Lost != 0 || d.From != 0 || d.Within != 0 || d.Select != nil || d.Expired != 0 || d.Taken != 0 || d.State != nil || d.Graph != nil || d.Decision != "" || d.Binds != "" || len(d.Seen) > 0 || len(d.Workflows) > 0 {
			w.fits = false
			return
		}
		head |= stepDetail
		if d.Mapped {
			head |= stepMapped
		}
	}
	w.uint(uint64(head))
	w.name(s.Node)
	if s.Visit != 0 {
		w.count(s.Visit)
	}
	if s.Item != 0 {
		w.count(s.Item)
	}
	if s.To != "" {
		w.name(s.To)
	}
	if s.Kind != "" {
		w.code(slices.Index(compactEdges[:], s.Kind))
	}
	if s.Note != "" {
		w.name(s.Note)
	}
	if d := s.Detail; d != nil {
		w.count(len(d.Inputs))
		for _, in := range d.Inputs {
			w.name(in.Node)
			w.count(in.Visit)
			w.code(slices.Index(compactEdges[:], in.Kind))
		}
	}
}

// compactReader reads a compact event. After a fault it returns zero values, and bad is set.
type compactReader struct {
	b     []byte
	names []string
	bad   bool
}

func (r *compactReader) fail() {
	r.bad, r.b = true, nil
}

func (r *compactReader) uint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *compactReader) count() int {
	n := r.uint()
	if n > 1<<31-1 {
		r.fail()
		return 0
	}
	return int(n)
}

// list reads a number of elements, each of which takes at least so many bytes.
func (r *compactReader) list(least int) int {
	n := r.count()
	if n > len(r.b)/least {
		r.fail()
		return 0
	}
	return n
}

func (r *compactReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *compactReader) name() string {
	n := r.uint()
	if n&1 == 1 {
		if n>>1 >= uint64(len(r.names)) {
			r.fail()
			return ""
		}
		return r.names[n>>1]
	}
	s := string(r.take(n >> 1))
	if len(r.names) < maxNames {
		r.names = append(r.names, s)
	}
	return s
}

func (r *compactReader) raw() json.RawMessage { return slices.Clone(r.take(r.uint())) }

// pick reads an index and returns that entry of the list.
func pick[T any](r *compactReader, from []T) T {
	var none T
	i := r.uint()
	if i >= uint64(len(from)) {
		r.fail()
		return none
	}
	return from[i]
}

// expandEvent is the inverse of compactEvent. ok is false if row has no valid compact event.
func expandEvent(row journal.Event) (*Durable, bool) {
	kind := slices.IndexFunc(compactKinds[:], func(k workgraph.EventKind) bool { return rowKind(k) == row.Kind })
	if kind < 0 || len(row.Data) == 0 || row.Data[0] != compactForm {
		return nil, false
	}
	r := compactReader{b: row.Data[1:], names: append(make([]string, 0, 8), row.NodeID)}
	d := &Durable{Event: workgraph.Event{Kind: compactKinds[kind], Seq: row.Seq, At: row.Time.UTC()}}
	ev := &d.Event
	ev.Node, ev.Visit = row.NodeID, int(row.Visit)
	ev.Version = r.count()
	head := r.count()
	if head&hasNanos != 0 {
		ev.At = ev.At.Add(time.Duration(r.count()))
	}
	if head&hasItem != 0 {
		ev.Item = r.count()
	}
	if head&hasAttempt != 0 {
		ev.Attempt = r.count()
	}
	if head&hasGeneration != 0 {
		ev.Generation = r.count()
	}
	if head&hasInput != 0 {
		ev.Input = &workgraph.Input{}
	}
	if head&hasOutcome != 0 {
		ev.Outcome = r.outcome(head&hasStop != 0)
	}
	if head&hasReason != 0 {
		ev.Reason = r.name()
	}
	if head&hasEnd != 0 {
		ev.End = r.end()
	}
	if head&hasStart != 0 {
		d.StartTime = dbkit.Micros(row.Time).Add(-time.Duration(r.uint()) * time.Microsecond)
	}
	if head&hasActor != 0 {
		d.Actor = r.name()
	}
	if head&hasRequest != 0 {
		d.RequestID = r.name()
	}
	d.Cached = head&isCached != 0
	if n := r.list(3); n > 0 {
		ev.Steps = make([]workgraph.Step, n)
		for i := range ev.Steps {
			r.step(&ev.Steps[i])
		}
	}
	return d, !r.bad && len(r.b) == 0
}

func (r *compactReader) outcome(stop bool) *workgraph.Outcome {
	o := &workgraph.Outcome{}
	if n := r.list(1); n > 0 {
		o.Values = make([]json.RawMessage, n)
		for i := range o.Values {
			o.Values[i] = r.raw()
		}
	}
	if stop {
		o.Stop = workgraph.Stop(r.name())
	}
	return o
}

func (r *compactReader) end() *workgraph.RunEnd {
	e := &workgraph.RunEnd{Status: workgraph.Status(r.name()), Reason: r.name()}
	var last json.RawMessage
	if n := r.list(2); n > 0 {
		e.Outputs = make(map[string]json.RawMessage, n)
		for range n {
			node := r.name()
			last = r.raw()
			e.Outputs[node] = last
		}
	}
	switch r.uint() {
	case 1:
		e.Result = last
	case 2:
		e.Result = r.raw()
	}
	return e
}

func (r *compactReader) step(s *workgraph.Step) {
	s.Op = pick(r, compactOps[:])
	head := r.count()
	s.Node = r.name()
	if head&stepVisit != 0 {
		s.Visit = r.count()
	}
	if head&stepItem != 0 {
		s.Item = r.count()
	}
	if head&stepTo != 0 {
		s.To = r.name()
	}
	if head&stepEdge != 0 {
		s.Kind = pick(r, compactEdges[:])
	}
	s.Live = head&stepLive != 0
	if head&stepNote != 0 {
		s.Note = r.name()
	}
	if head&stepDetail == 0 {
		return
	}
	s.Detail = &workgraph.Detail{Mapped: head&stepMapped != 0}
	if n := r.list(3); n > 0 {
		s.Inputs = make([]workgraph.InputRef, n)
		for i := range s.Inputs {
			s.Inputs[i] = workgraph.InputRef{Node: r.name(), Visit: r.count(), Kind: pick(r, compactEdges[:])}
		}
	}
}
