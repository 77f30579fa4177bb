package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// generated is a random graph together with the loops that it was made of.
type generated struct {
	g          *Graph
	loopOf, up map[string]string
}

type gen struct {
	t      *rapid.T
	out    generated
	losers bool
}

func (g *gen) num(lo, hi int, label string) int { return rapid.IntRange(lo, hi).Draw(g.t, label) }

func (g *gen) chance(percent int, label string) bool { return g.num(1, 100, label) <= percent }

// graph makes a block of nodes and nested loops with random forward edges, then random policies.
func (g *gen) graph() generated {
	g.out = generated{g: &Graph{}, loopOf: map[string]string{}, up: map[string]string{}}
	g.block("", g.num(1, 9, "size"), 0)
	for i := range g.out.g.Nodes {
		g.policies(&g.out.g.Nodes[i])
	}
	for i := range g.out.g.Edges {
		if e := &g.out.g.Edges[i]; g.chance(10, "edge mode") {
			e.PassDown = g.mode()
		}
	}
	return g.out
}

func (g *gen) node(loop string) string {
	id := fmt.Sprintf("n%d", len(g.out.g.Nodes))
	g.out.g.Nodes = append(g.out.g.Nodes, Node{ID: id, Actor: "act", Effect: Idempotent})
	g.out.loopOf[id] = loop
	return id
}

// item is a node or a loop in a block. Edges lead to in and from any of outs.
type item struct {
	in   string
	outs []string
}

func (g *gen) block(loop string, size, depth int) []item {
	var items []item
	for k := range size {
		if depth < 2 && k > 0 && g.chance(15, "loop") {
			items = append(items, g.loop(loop, depth+1))
			continue
		}
		id := g.node(loop)
		items = append(items, item{in: id, outs: []string{id}})
	}
	for k, it := range items {
		first := 0
		if loop != "" {
			first = -1 // nodes of a loop follow its head, which the caller has made
		}
		n := 0
		for j := range k {
			if g.chance(35, "edge") {
				g.edge(items[j], it)
				n++
			}
		}
		if n == 0 && first < 0 {
			g.out.g.Edges = append(g.out.g.Edges, g.cond(Edge{From: loop, To: it.in}))
		}
	}
	return items
}

func (g *gen) loop(around string, depth int) item {
	head := g.node("")
	g.out.loopOf[head] = head
	g.out.up[head] = around
	body := g.block(head, g.num(0, 3, "body"), depth)
	outs := []string{head}
	for _, it := range body {
		outs = append(outs, it.outs...)
	}
	// The nodes that lead back to the head form a natural loop, so every node without a path back gets one.
	back := map[string]bool{}
	for i := len(body) - 1; i >= 0; i-- {
		if !g.leadsBack(body[i].outs, head, back) {
			from := body[i].outs[g.num(0, len(body[i].outs)-1, "back from")]
			back[from] = true
			g.out.g.Edges = append(g.out.g.Edges, Edge{From: from, To: head, Kind: BackEdge, When: g.round()})
		}
	}
	if len(body) == 0 || g.chance(10, "self") {
		e := Edge{From: head, To: head, Kind: BackEdge}
		if g.chance(50, "self when") {
			e.When = g.round()
		}
		g.out.g.Edges = append(g.out.g.Edges, e)
	}
	return item{in: head, outs: outs}
}

// leadsBack reports whether one of the nodes reaches head by edges declared so far.
func (g *gen) leadsBack(from []string, head string, _ map[string]bool) bool {
	seen := map[string]bool{}
	todo := append([]string(nil), from...)
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[v] {
			continue
		}
		seen[v] = true
		for _, e := range g.out.g.Edges {
			if e.From == v {
				if e.To == head {
					return true
				}
				todo = append(todo, e.To)
			}
		}
	}
	return false
}

func (g *gen) round() string { return fmt.Sprintf("visit < %d", g.num(1, 4, "rounds")) }

func (g *gen) cond(e Edge) Edge {
	if g.chance(15, "conditional") {
		e.When = rapid.SampledFrom([]string{"true", "false", "named.missing", "visit < 2"}).Draw(g.t, "when")
	}
	return e
}

func (g *gen) edge(from, to item) {
	src := from.outs[g.num(0, len(from.outs)-1, "from")]
	g.out.g.Edges = append(g.out.g.Edges, g.cond(Edge{From: src, To: to.in}))
}

func (g *gen) mode() PassDown {
	switch g.num(0, 4, "mode") {
	case 1:
		return FirstArg()
	case 2:
		return LeadingArgs()
	case 3:
		return Key("x")
	case 4:
		return Key("y")
	}
	return PassDown{Mode: NoPassDown}
}

func (g *gen) policies(n *Node) {
	n.PassDown = g.mode()
	n.Retry.MaxAttempts = g.num(1, 2, "attempts")
	in, errs := 0, 0
	for i := range g.out.g.Edges {
		e := &g.out.g.Edges[i]
		if e.To == n.ID && e.Kind == "" {
			in++
		}
	}
	switch g.num(0, 5, "join") {
	case 1:
		n.Join.Mode = Any
	case 2:
		if in > 0 {
			n.Join = Join{Mode: Quorum, N: g.num(1, in, "quorum")}
		}
	}
	if g.losers && g.chance(50, "losers") {
		n.Join.Losers = CancelLosers
	}
	if g.chance(10, "node when") {
		n.When = rapid.SampledFrom([]string{"true", "false", "visit < 3"}).Draw(g.t, "when")
	}
	switch g.num(0, 4, "on_error") {
	case 1:
		n.OnError.Action = Continue
	case 2:
		n.OnError = OnError{Action: Fallback, Value: json.RawMessage(`"fallback"`)}
	case 3:
		for i := range g.out.g.Edges {
			if e := &g.out.g.Edges[i]; e.From == n.ID && e.Kind == "" && g.chance(50, "error edge") {
				e.Kind = ErrorEdge
				errs++
			}
		}
		if errs > 0 {
			n.OnError.Action = Route
		}
	}
}

// outcome is how a random attempt ends.
func (g *gen) outcome(gr *Graph, st *Start) (*Outcome, *Error) {
	switch k := g.num(0, 99, "outcome"); {
	case k < 6:
		return nil, Errorf(Permanent, "BROKEN", "p")
	case k < 14:
		return nil, Errorf(rapid.SampledFrom([]ErrorType{Retryable, Unknown, NotPerformed}).Draw(g.t, "type"), "SHAKY", "r")
	}
	out := &Outcome{}
	for i := range g.num(0, 2, "values") {
		out.Values = append(out.Values, json.RawMessage(fmt.Sprintf(`"%s.%d"`, st.Ref, i)))
	}
	switch k := g.num(0, 99, "stop"); {
	case k < 2:
		out.Stop = Terminate
	case k < 10:
		out.Stop = AbstainResult
	}
	if g.chance(20, "select") {
		out.Select = &Select{Others: rapid.SampledFrom([]Others{SelectAll, SelectNone, SelectNames}).Draw(g.t, "others")}
		for _, e := range gr.Edges {
			if e.From == st.Node && e.To == st.Node {
				out.Select.Self = g.chance(60, "again")
			} else if e.From == st.Node && g.chance(50, "name") {
				out.Select.Names = append(out.Select.Names, e.To)
			}
		}
	}
	return out, nil
}

func startKey(st *Start) string {
	named := map[string]string{}
	for k, v := range st.Named {
		named[k] = string(v)
	}
	return fmt.Sprintf("%s#%d %q %v", st.Ref, st.Attempt, rawStrings(st.Args), named)
}

func refKey(v *refVisit) string {
	args := v.args
	if args == nil {
		args = []string{}
	}
	return fmt.Sprintf("%s#%d %q %v", v.ref(), v.attempt, args, v.named)
}

// journalOf checks that a journal replays: from the first event, from every snapshot to the next, and from
// some of them to the end.
type journalOf struct {
	p      *Program
	events []Event
	snaps  map[int64]string
}

func (j *journalOf) note(t require.TestingT, s *State, evs []Event) {
	for _, ev := range evs {
		b, err := json.Marshal(ev)
		require.NoError(t, err)
		back, err := DecodeEvent(b)
		require.NoError(t, err)
		j.events = append(j.events, back)
	}
	snap, err := s.Snapshot()
	require.NoError(t, err)
	j.snaps[s.Seq()] = string(snap)
}

func (j *journalOf) check(t interface {
	require.TestingT
	Context() context.Context
}, runID string) {
	s := New(j.p, runID)
	var compared int
	var next *State // restored from the previous snapshot
	// A short journal is replayed from all snapshots, a long one from a share of them, so that the work stays
	// linear.
	far := max(1, len(j.snaps)/8)
	for i, ev := range j.events {
		require.Equal(t, int64(i+1), ev.Seq, "sequence numbers are dense")
		_, err := s.Apply(t.Context(), ev)
		require.NoError(t, err)
		if next != nil {
			_, err := next.Apply(t.Context(), ev)
			require.NoError(t, err)
		}
		want, ok := j.snaps[ev.Seq]
		if !ok {
			continue // within a command
		}
		got, err := s.Snapshot()
		require.NoError(t, err)
		require.Equal(t, want, string(got), "replay up to event %d", ev.Seq)
		if next != nil {
			again, err := next.Snapshot()
			require.NoError(t, err)
			require.Equal(t, want, string(again), "from the snapshot before that at %d", ev.Seq)
		}
		back, err := Restore(t.Context(), j.p, got)
		require.NoError(t, err)
		require.Equal(t, keys(s.Outstanding()), keys(back.Outstanding()))
		next = back
		if compared++; compared%far != 0 {
			continue
		}
		back, err = Restore(t.Context(), j.p, got)
		require.NoError(t, err)
		for _, later := range j.events[i+1:] {
			_, err := back.Apply(t.Context(), later)
			require.NoError(t, err)
		}
		end, err := back.Snapshot()
		require.NoError(t, err)
		require.Equal(t, j.snaps[j.events[len(j.events)-1].Seq], string(end), "from the snapshot at %d", ev.Seq)
	}
}

func keys(starts []Start) []string {
	out := make([]string, len(starts))
	for i := range starts {
		out[i] = startKey(&starts[i])
	}
	return out
}

// TestMachineAgreesWithReference runs random graphs with random ends in random order on the machine and on
// the reference.
func TestMachineAgreesWithReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t}
		spec := g.graph()
		if faults := faultsOf(spec.g, nil); len(faults) > 0 {
			t.Fatalf("%v\n%s", Faults(faults), mustJSON(spec.g))
		}
		p, err := Compile(t.Context(), spec.g, nil)
		require.NoError(t, err)
		in := Input{Args: []json.RawMessage{json.RawMessage("1"), json.RawMessage("2")}, Named: map[string]json.RawMessage{"x": json.RawMessage("0")}}
		now := time.Unix(1000, 0)
		s := New(p, "run")
		ref := newRefRun(spec.g, spec.loopOf, spec.up, in)
		j := &journalOf{p: p, snaps: map[int64]string{}}
		evs, fx, err := s.Advance(Begin{Input: in, Now: now})
		require.NoError(t, err)
		j.note(t, s, evs)
		open := fx.Starts
		for step := 0; ; step++ {
			compareStarts(t, spec.g, s, ref)
			if s.End() != nil {
				break
			}
			if at, ok := s.NextTimer(); ok && (len(open) == 0 || g.chance(50, "timer")) {
				now = at
				evs, fx, err = s.Advance(TimerDue{Now: now})
				require.NoError(t, err)
				j.note(t, s, evs)
				open = append(open, fx.Starts...)
				continue
			}
			require.NotEmpty(t, open, "the run stands still: %s", mustJSON(spec.g))
			k := g.num(0, len(open)-1, "pick")
			st := open[k]
			open = append(open[:k:k], open[k+1:]...)
			out, ferr := g.outcome(spec.g, &st)
			evs, fx, err = s.Advance(Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: out, Err: ferr, Now: now})
			require.NoError(t, err)
			j.note(t, s, evs)
			open = append(open, fx.Starts...)
			ref.end(st.Ref, out, ferr)
			if step > 2000 {
				t.Fatal("the run does not end")
			}
		}
		status, outputs := ref.finish()
		require.Empty(t, ref.started)
		require.Equal(t, status, s.End().Status, "graph %s", mustJSON(spec.g))
		got := map[string]string{}
		for k, v := range s.End().Outputs {
			got[k] = string(v)
		}
		require.Equal(t, outputs, got, "graph %s", mustJSON(spec.g))
		j.check(t, "run")
	})
}

// compareStarts requires the same open attempts with the same arguments in the machine and the reference.
func compareStarts(t *rapid.T, g *Graph, s *State, ref *refRun) {
	got := map[string]bool{}
	for _, st := range s.Outstanding() {
		got[startKey(&st)] = true
	}
	backoff := map[string]bool{}
	s.Visits(func(v VisitInfo) bool {
		if v.Status == VisitBackoff {
			backoff[fmt.Sprintf("%s#%d", v.Ref, v.Attempt)] = true
		}
		return true
	})
	want := map[string]bool{}
	for _, v := range ref.started {
		switch {
		case backoff[fmt.Sprintf("%s#%d", v.ref(), v.attempt)]:
		case ref.stopped != "" && v.attempt > 1 && !got[refKey(v)]:
			delete(ref.started, v.ref().String()) // its back-off was dropped with the run
		default:
			want[refKey(v)] = true
		}
	}
	require.Equal(t, want, got, "graph %s", mustJSON(g))
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
