package workgraph

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// refRun is the slow, obvious interpreter with which the machine is compared. It gets the loops from the
// generator instead of finding them, keeps everything in maps, and checks everything after every event until
// nothing changes.
type refRun struct {
	g      *Graph
	loopOf map[string]string // node -> the head of its innermost loop, "" for none
	up     map[string]string // loop head -> the head of the loop around it
	input  Input

	frames  map[string][]*refFrame // by loop head, "" is the whole graph
	started map[string]*refVisit
	status  Status
	stopped string // "", FAIL or TERMINATE
	queue   []refDelivery
}

type refDelivery struct {
	f *refFrame
	i int
	x refEdge
}

type refFrame struct {
	loop    string
	serial  int
	parent  *refFrame
	prev    *refFrame
	visits  map[string]*refVisit
	edges   map[int]refEdge
	loops   map[string]*refLoop
	carried bool // its BACK edges opened the next round
}

type refLoop struct {
	rounds []*refFrame
	exits  map[int]refEdge
	ended  bool
}

type refEdge struct {
	live bool
	src  *refVisit
	used bool
}

type refVisit struct {
	node    *Node
	frame   *refFrame
	status  VisitStatus
	attempt int
	args    []string
	named   map[string]string
	values  []string
	failure *Error
	sink    bool
}

func (v *refVisit) ref() Ref { return Ref{Node: v.node.ID, Visit: v.frame.serial} }

func (v *refVisit) over() bool {
	switch v.status {
	case VisitCompleted, VisitAbstained, VisitFailed, VisitSkipped, VisitCanceled:
		return true
	}
	return false
}

func newRefRun(g *Graph, loopOf, up map[string]string, in Input) *refRun {
	r := &refRun{g: g, loopOf: loopOf, up: up, input: in, frames: map[string][]*refFrame{}, started: map[string]*refVisit{}, status: StatusRunning}
	r.newFrame("", nil, nil)
	r.runToRest()
	return r
}

func (r *refRun) newFrame(loop string, parent, prev *refFrame) *refFrame {
	f := &refFrame{loop: loop, serial: len(r.frames[loop]) + 1, parent: parent, prev: prev,
		visits: map[string]*refVisit{}, edges: map[int]refEdge{}, loops: map[string]*refLoop{}}
	for i := range r.g.Nodes {
		n := &r.g.Nodes[i]
		if r.loopOf[n.ID] == loop {
			f.visits[n.ID] = &refVisit{node: n, frame: f, status: VisitPending}
		}
	}
	for head, around := range r.up {
		if around == loop {
			f.loops[head] = &refLoop{exits: map[int]refEdge{}}
		}
	}
	r.frames[loop] = append(r.frames[loop], f)
	return f
}

// scope is the loop in whose frames an edge is delivered.
func (r *refRun) scope(e *Edge) string {
	l := r.loopOf[e.To]
	if e.Kind != BackEdge && l == e.To && !r.inside(r.loopOf[e.From], l) {
		return r.up[l]
	}
	return l
}

func (r *refRun) inside(l, around string) bool {
	for {
		if l == around {
			return true
		}
		if l == "" {
			return false
		}
		l = r.up[l]
	}
}

// deliver records the decision of edge i, in frame f or at the exit of f's loop.
func (r *refRun) deliver(f *refFrame, i int, x refEdge) {
	if r.scope(&r.g.Edges[i]) == f.loop {
		f.edges[i] = x
		return
	}
	exits := f.parent.loops[f.loop].exits
	if old, ok := exits[i]; !ok || x.live && (!old.live || x.src.frame.serial >= old.src.frame.serial) {
		exits[i] = x
	}
}

// inputs are the edges that a visit joins and the frame that holds them.
func (r *refRun) inputs(v *refVisit) (idx []int, f *refFrame) {
	head := v.frame.loop == v.node.ID
	f = v.frame
	if head && v.frame.prev != nil {
		f = v.frame.prev
	} else if head {
		f = v.frame.parent
	}
	for i := range r.g.Edges {
		e := &r.g.Edges[i]
		if e.To == v.node.ID && (e.Kind == BackEdge) == (head && v.frame.prev != nil) {
			idx = append(idx, i)
		}
	}
	return idx, f
}

// runToRest delivers edges in the order in which they were fired and checks the target of each. Then it
// checks everything until nothing changes any more.
func (r *refRun) runToRest() {
	for changed := true; changed && r.stopped == ""; {
		for len(r.queue) > 0 && r.stopped == "" {
			d := r.queue[0]
			r.queue = r.queue[1:]
			r.deliver(d.f, d.i, d.x)
			r.look(d.f, d.i)
		}
		if r.stopped != "" {
			return
		}
		changed = false
		for _, loop := range r.loops() {
			for _, f := range slices.Clone(r.frames[loop]) {
				changed = changed || r.settleFrame(f) || len(r.queue) > 0
			}
		}
	}
}

// look decides what edge i means for its target if f is the frame that delivers it.
func (r *refRun) look(f *refFrame, i int) {
	e := &r.g.Edges[i]
	if r.scope(e) != f.loop {
		return
	}
	switch {
	case e.Kind == BackEdge:
		r.nextRound(f)
	case f.visits[e.To] != nil:
		if v := f.visits[e.To]; v.status == VisitPending {
			r.decide(v)
		}
	default:
		r.open(f, e.To)
	}
}

// open enters a loop within f once its head's join is decided.
func (r *refRun) open(f *refFrame, head string) bool {
	l := f.loops[head]
	if len(l.rounds) > 0 || r.joinVerdict(&refVisit{node: r.node(head), frame: &refFrame{loop: head, parent: f}}) == verdictWait {
		return false
	}
	nf := r.newFrame(head, f, nil)
	l.rounds = append(l.rounds, nf)
	r.decide(nf.visits[head])
	return true
}

func (r *refRun) node(id string) *Node {
	for i := range r.g.Nodes {
		if r.g.Nodes[i].ID == id {
			return &r.g.Nodes[i]
		}
	}
	return nil
}

// nextRound opens the next round of a loop when the BACK edges of this one are decided and one is live.
func (r *refRun) nextRound(f *refFrame) bool {
	if f.loop == "" || f.carried {
		return false
	}
	found := false
	for i := range r.g.Edges {
		if e := &r.g.Edges[i]; e.Kind == BackEdge && e.To == f.loop {
			x, ok := f.edges[i]
			if !ok {
				return false
			}
			found = found || x.live
		}
	}
	if !found {
		return false
	}
	f.carried = true
	nf := r.newFrame(f.loop, f.parent, f)
	l := f.parent.loops[f.loop]
	l.rounds = append(l.rounds, nf)
	r.decide(nf.visits[f.loop])
	return true
}

func (r *refRun) loops() []string {
	ls := []string{""}
	for l := range r.up {
		ls = append(ls, l)
	}
	sort.Strings(ls)
	return ls
}

func (r *refRun) settleFrame(f *refFrame) bool {
	for i := range r.g.Nodes {
		n := &r.g.Nodes[i]
		if v := f.visits[n.ID]; v != nil && v.status == VisitPending && r.decide(v) {
			return true
		}
		if f.loops[n.ID] != nil && r.open(f, n.ID) {
			return true
		}
	}
	if r.nextRound(f) {
		return true
	}
	for _, head := range r.loops() {
		l := f.loops[head]
		if l == nil || l.ended || len(l.rounds) == 0 || !r.loopDone(l) {
			continue
		}
		l.ended = true
		for i := range r.g.Edges {
			if x, ok := l.exits[i]; ok {
				r.deliver(f, i, x)
			}
		}
		for i := range r.g.Edges {
			if _, ok := l.exits[i]; ok && r.stopped == "" {
				r.look(f, i)
			}
		}
		return true
	}
	return false
}

func (r *refRun) loopDone(l *refLoop) bool {
	for _, f := range l.rounds {
		if !r.frameDone(f) {
			return false
		}
	}
	return true
}

func (r *refRun) frameDone(f *refFrame) bool {
	for _, v := range f.visits {
		if !v.over() {
			return false
		}
	}
	for _, l := range f.loops {
		if !l.ended {
			return false
		}
	}
	return true
}

// joinVerdict applies the design's join rule to the edges.
func (r *refRun) joinVerdict(v *refVisit) verdict {
	idx, f := r.inputs(v)
	if len(idx) == 0 {
		return verdictRun
	}
	seen, live, ran := 0, 0, false
	for _, i := range idx {
		if x, ok := f.edges[i]; ok {
			seen++
			if x.live {
				live++
			}
			ran = ran || x.src.status != VisitSkipped
		}
	}
	// A round opens only after its BACK edges are decided.
	if v.frame.prev != nil && v.frame.loop == v.node.ID {
		return verdictRun
	}
	switch v.node.Join.Mode {
	case Any:
		if live > 0 {
			return verdictRun
		}
	case Quorum:
		switch {
		case live >= v.node.Join.N:
			return verdictRun
		case live+len(idx)-seen < v.node.Join.N && ran:
			return verdictFail
		}
	}
	switch {
	case seen < len(idx):
		return verdictWait
	case live > 0:
		return verdictRun
	}
	return verdictSkip
}

func (r *refRun) decide(v *refVisit) bool {
	switch r.joinVerdict(v) {
	case verdictWait:
		return false
	case verdictSkip:
		r.skip(v)
	case verdictFail:
		idx, _ := r.inputs(v)
		r.policy(v, Errorf(Permanent, ReasonQuorumUnreachable, "a quorum of %d out of %d inputs can no longer be met", v.node.Join.N, len(idx)))
	case verdictRun:
		r.propagate(v)
		if w := v.node.When; w != "" && !refCond(w, v) {
			r.skip(v)
			return true
		}
		v.status, v.attempt = VisitRunning, 1
		r.started[v.ref().String()] = v
	}
	return true
}

func (r *refRun) skip(v *refVisit) {
	v.status = VisitSkipped
	r.fire(v, func(*Edge) bool { return false })
}

func (r *refRun) fire(v *refVisit, live func(*Edge) bool) {
	for i := range r.g.Edges {
		if e := &r.g.Edges[i]; e.From == v.node.ID {
			r.queue = append(r.queue, refDelivery{v.frame, i, refEdge{live: live(e), src: v}})
		}
	}
}

// refCond evaluates the few conditions that the generator writes.
func refCond(when string, v *refVisit) bool {
	var k int
	switch {
	case when == "true":
		return true
	case when == "false", when == "named.missing":
		return false
	default:
		_, _ = fmt.Sscanf(when, "visit < %d", &k)
		return v.frame.serial < k
	}
}

// propagate follows section 4.3 of the design literally.
func (r *refRun) propagate(v *refVisit) {
	idx, f := r.inputs(v)
	v.named = map[string]string{}
	if len(idx) == 0 {
		for _, a := range r.input.Args {
			v.args = append(v.args, string(a))
		}
		for k, a := range r.input.Named {
			v.named[k] = string(a)
		}
		return
	}
	keyed := map[string][]string{}
	declared := map[string]int{}
	for _, i := range idx {
		e := &r.g.Edges[i]
		mode := r.mode(e)
		if mode.Mode == KeyPassDown {
			declared[mode.Key]++
		}
		x, ok := f.edges[i]
		if !ok || !x.live {
			continue
		}
		x.used = true
		f.edges[i] = x
		vals := x.src.values
		if e.Kind == ErrorEdge {
			vals = []string{string(errorJSON(x.src.failure))}
		}
		switch mode.Mode {
		case ResultAsFirstArg:
			v.args = append(v.args, refSingle(vals))
			if len(x.src.args) > 1 {
				v.args = append(v.args, x.src.args[1:]...)
			}
		case ResultAsLeadingArgs:
			v.args = append(append(v.args, vals...), x.src.args...)
		default:
			v.args = append(v.args, x.src.args...)
		}
		for k, a := range x.src.named {
			v.named[k] = a
		}
		if mode.Mode == KeyPassDown {
			keyed[mode.Key] = append(keyed[mode.Key], refSingle(vals))
		}
	}
	for k, list := range keyed {
		if declared[k] > 1 {
			v.named[k] = "[" + strings.Join(list, ",") + "]"
		} else {
			v.named[k] = list[0]
		}
	}
}

func (r *refRun) mode(e *Edge) PassDown {
	if e.PassDown.Mode != "" {
		return e.PassDown
	}
	for i := range r.g.Nodes {
		if r.g.Nodes[i].ID == e.From {
			return r.g.Nodes[i].PassDown
		}
	}
	return PassDown{}
}

func refSingle(vals []string) string {
	switch len(vals) {
	case 0:
		return "null"
	case 1:
		return vals[0]
	}
	return "[" + strings.Join(vals, ",") + "]"
}

// end takes the end of an attempt and reports whether it is retried.
func (r *refRun) end(ref Ref, out *Outcome, err *Error) (again bool) {
	v := r.started[ref.String()]
	delete(r.started, ref.String())
	if err != nil {
		limit := v.node.Retry.MaxAttempts
		if r.stopped == "" && err.Type != Permanent && v.attempt < limit {
			v.attempt++
			r.started[ref.String()] = v
			return true
		}
		r.policy(v, err)
		r.runToRest()
		return false
	}
	for _, x := range out.Values {
		v.values = append(v.values, string(x))
	}
	v.status = VisitCompleted
	switch {
	case out.Stop == AbstainResult:
		v.status, v.values = VisitAbstained, nil
		if r.stopped == "" {
			r.fire(v, func(*Edge) bool { return false })
		}
	case r.stopped != "":
		v.sink = out.Stop == Terminate
	case out.Stop == Terminate:
		v.sink = true
		r.stopped = "TERMINATE"
	default:
		r.fire(v, func(e *Edge) bool {
			return e.Kind != ErrorEdge && r.chosen(e, out.Select) && (e.When == "" || refCond(e.When, v))
		})
	}
	r.runToRest()
	return false
}

func (r *refRun) chosen(e *Edge, sel *Select) bool {
	if e.From == e.To {
		if sel == nil {
			return e.When != ""
		}
		return sel.Self
	}
	switch {
	case sel == nil || sel.Others == "" || sel.Others == SelectAll:
		return true
	case sel.Others == SelectNone:
		return false
	}
	return slices.Contains(sel.Names, e.To)
}

func (r *refRun) policy(v *refVisit, err *Error) {
	v.failure = err
	v.status = VisitFailed
	if r.stopped != "" {
		return
	}
	switch v.node.OnError.Action {
	case Continue:
		r.fire(v, func(*Edge) bool { return false })
	case Fallback:
		v.status = VisitCompleted
		v.values = []string{string(v.node.OnError.Value)}
		r.fire(v, func(e *Edge) bool {
			return e.Kind != ErrorEdge && r.chosen(e, nil) && (e.When == "" || refCond(e.When, v))
		})
	case Route:
		found := false
		for i := range r.g.Edges {
			e := &r.g.Edges[i]
			found = found || e.From == v.node.ID && e.Kind == ErrorEdge && (e.When == "" || refCond(e.When, v))
		}
		if !found {
			r.stopped = "FAIL"
			return
		}
		r.fire(v, func(e *Edge) bool { return e.Kind == ErrorEdge && (e.When == "" || refCond(e.When, v)) })
	default:
		r.stopped = "FAIL"
	}
}

// finish is how the run ended. Nothing may be in flight.
func (r *refRun) finish() (Status, map[string]string) {
	status := StatusCompleted
	if r.stopped == "FAIL" {
		status = StatusFailed
	}
	return status, r.outputs()
}

// outputs finds the effective sinks by their definition: completed visits without a completed descendant. Of
// a node in a loop only the last completed visit can be one, and only while no later round has completed the
// loop's head.
func (r *refRun) outputs() map[string]string {
	last := map[string]*refVisit{}
	for _, fs := range r.frames {
		for _, f := range fs {
			for id, v := range f.visits {
				if v.status == VisitCompleted && (last[id] == nil || last[id].frame.serial < f.serial) {
					last[id] = v
				}
			}
		}
	}
	counts := map[string]bool{}
	for id, v := range last {
		counts[id] = true
		for f := v.frame; f.loop != ""; f = f.parent {
			if h := last[f.loop]; h != nil && h.frame.serial > f.serial {
				counts[id] = false
			}
		}
	}
	out := map[string]string{}
	for id, v := range last {
		if counts[id] && !r.completedBelow(id, counts, map[string]bool{}) {
			out[id] = refSingle(v.values)
		}
	}
	for _, fs := range r.frames {
		for _, f := range fs {
			for id, v := range f.visits {
				if v.sink {
					out[id] = refSingle(v.values)
				}
			}
		}
	}
	return out
}

func (r *refRun) completedBelow(id string, counts, seen map[string]bool) bool {
	for i := range r.g.Edges {
		e := &r.g.Edges[i]
		if e.From != id || e.Kind == BackEdge || seen[e.To] {
			continue
		}
		seen[e.To] = true
		if counts[e.To] || r.completedBelow(e.To, counts, seen) {
			return true
		}
	}
	return false
}

func rawStrings(in []json.RawMessage) []string {
	out := make([]string, len(in))
	for i := range in {
		out[i] = string(in[i])
	}
	return out
}
