package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// verdict is the value of act, unless what it inserts gives the results of a round.
type verdict struct {
	// Started are the ids of the nodes of a round.
	Started []string        `json:"started,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

// step is an action of a round, for the node that lists the results.
type step struct {
	ID     string `json:"id"`
	Action string `json:"action"`
}

// rules reads the policy of a step of the loop, from its own arguments.
func rules(ctx context.Context, c *workgraph.Call) (*policy, error) {
	var a struct {
		Policy *policy `json:"policy"`
	}
	if err := actor.Decode(c.Own, &a); err != nil {
		return nil, err
	}
	if a.Policy == nil {
		return nil, actor.BadArguments("policy is missing: this actor is a step of the agent actor's loop")
	}
	return a.Policy, a.Policy.check(ctx)
}

// source is what a node of the loop, or what it has expanded to, handed to this visit.
func source(c *workgraph.Call, node string) (u workgraph.Upstream, ok bool) {
	for _, up := range c.Upstream {
		if up.Node == node || strings.HasPrefix(up.Node, node+"#") {
			if u = up; up.Outcome == workgraph.VisitCompleted {
				return up, true
			}
			ok = true
		}
	}
	return u, ok
}

// act carries a decision out, or refuses it as a whole.
func act(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	p, err := rules(ctx, c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	from, _ := source(c, nodeReason)
	d, err := read(actor.Result(from.Values))
	if err != nil {
		return value(verdict{Refused: err.Error()})
	}
	switch {
	case len(d.groups) > 0:
		return p.round(ctx, c, d.groups)
	case d.graph != nil:
		return p.graph(ctx, c, d.graph)
	}
	result, err := p.checkResult(ctx, d.result)
	if err != nil {
		return value(verdict{Refused: err.Error()})
	}
	return value(verdict{Result: result})
}

// round inserts the actions: groups one after another, then the node that lists what became of them.
func (p *policy) round(ctx context.Context, c *workgraph.Call, groups [][]wanted) (workgraph.Outcome, error) {
	var f faults
	n := 0
	for _, group := range groups {
		n += len(group)
	}
	if n > p.MaxActions {
		return value(verdict{Refused: fmt.Sprintf("there are %d actions, at most %d are done in one round: begin with the first ones", n, p.MaxActions)})
	}
	var layers [][]workgraph.Node
	for i, group := range groups {
		var layer []workgraph.Node
		for k, w := range group {
			place := fmt.Sprintf("actions[%d][%d]", i, k)
			a, ok := p.Actions[w.action]
			if !ok {
				f.add("%s: %s", place, p.unknown(w.action))
				continue
			}
			layer = append(layer, a.node(ctx, place, w.action, w.arguments, &f))
		}
		layers = append(layers, layer)
	}
	if len(f) > 0 {
		return value(verdict{Refused: f.String()})
	}
	return p.insert(c, layers)
}

// expandedRounds are the rounds whose actions become part of the agent's run. Each expansion writes the whole
// graph, so the actions of later rounds are runs of their own: a round of a long agent then costs as much as
// one of a short agent.
const expandedRounds = 32

// insert makes the graph of a round.
func (p *policy) insert(c *workgraph.Call, layers [][]workgraph.Node) (workgraph.Outcome, error) {
	g := &workgraph.Graph{}
	var steps []step
	var started, before []string
	for _, layer := range layers {
		var ids []string
		for _, n := range layer {
			name := n.Name
			n.ID, n.Name = fmt.Sprintf("%d-%s", len(steps)+1, name), ""
			// The reasoner sees a failure. The actions after it are not made, since they were requested in
			// the belief that it succeeds.
			n.OnError = workgraph.OnError{Action: workgraph.Route}
			if len(before) > 0 {
				n.Join = workgraph.Join{Mode: workgraph.Quorum, N: len(before)}
			}
			for _, b := range before {
				g.Edges = append(g.Edges, workgraph.Edge{From: b, To: n.ID})
			}
			g.Nodes = append(g.Nodes, n)
			steps, ids = append(steps, step{n.ID, name}), append(ids, n.ID)
		}
		before, started = ids, append(started, ids...)
	}
	for _, s := range steps {
		g.Edges = append(g.Edges, workgraph.Edge{From: s.ID, To: nodeResults}, workgraph.Edge{From: s.ID, To: nodeResults, Kind: workgraph.ErrorEdge})
	}
	list, err := encode(steps)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	most, err := encode(min(p.MaxResultBytes, p.MaxHistoryBytes/(2*len(steps))))
	if err != nil {
		return workgraph.Outcome{}, err
	}
	g.Nodes = append(g.Nodes, workgraph.Node{ID: nodeResults, Kind: workgraph.SummarizerKind, Actor: actorResults,
		Named: map[string]json.RawMessage{"steps": list, "max_bytes": most}})
	if c.Visit > expandedRounds {
		g.Name = "round " + strconv.Itoa(c.Visit)
		return workgraph.Outcome{Wait: part(g)}, nil
	}
	out, err := value(verdict{Started: started})
	out.Expand = g
	return out, err
}

// unknown says that there is no such action, and which there are.
func (p *policy) unknown(name string) string {
	names := sorted(p.Actions)
	name = errs.Clip(name, 80)
	for _, n := range names {
		if _, ok := near.Within(strings.ToLower(name), strings.ToLower(n), len(n)/4); ok {
			return fmt.Sprintf("there is no action %q, did you mean %q?", name, n)
		}
	}
	return fmt.Sprintf("there is no action %q, use one of %s", name, strings.Join(names, ", "))
}

// graph runs a graph of actions as a run of its own, so that a failure in it fails nothing else.
func (p *policy) graph(ctx context.Context, c *workgraph.Call, raw json.RawMessage) (workgraph.Outcome, error) {
	if !p.AllowGraph {
		return value(verdict{Refused: `graphs are not allowed here: give "actions"`})
	}
	if raw[0] == '"' {
		raw = json.RawMessage(unfence(text(raw)))
	}
	g, err := graphpb.ReadModel(raw)
	if err != nil {
		return value(verdict{Refused: errs.Clip(err.Error(), 2000)})
	}
	clean, err := p.clean(ctx, g)
	if err != nil {
		return value(verdict{Refused: err.Error()})
	}
	b, err := encode(clean)
	if err != nil {
		return value(verdict{Refused: "the graph is not JSON: " + err.Error()})
	}
	return p.insert(c, [][]workgraph.Node{{{Name: "graph", Actor: actorGraph, Named: map[string]json.RawMessage{"graph": b}}}})
}

// part is a piece of the agent's own work in a run of its own, at the depth of the agent's run: the nesting
// of agents is not affected by the number of rounds of one, or by the form of its decisions.
func part(g *workgraph.Graph) *workgraph.Wait {
	return &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{{Graph: g, SameDepth: true}}, AsResult: true}}
}

// runGraph runs the graph of a decision, which act has cleaned.
func runGraph(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Graph *workgraph.Graph `json:"graph"`
	}
	if err := actor.Decode(c.Own, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Graph == nil {
		return workgraph.Outcome{}, actor.BadArguments("graph is missing: this actor is a step of the agent actor's loop")
	}
	return workgraph.Outcome{Wait: part(a.Graph)}, nil
}

// clean is a reasoner's graph with the actions in place of their names. It may order actions and propagate
// results under unrestricted names. Arguments that the policy fixes or checks cannot be set that way.
func (p *policy) clean(ctx context.Context, g *workgraph.Graph) (*workgraph.Graph, error) {
	var f faults
	if n := len(g.Nodes); n == 0 || n > p.MaxActions {
		return nil, fmt.Errorf("the graph has %d nodes, 1 to %d are allowed", n, p.MaxActions)
	}
	if len(g.Edges) > 10*p.MaxActions*p.MaxActions {
		return nil, errors.New("the graph has far too many edges")
	}
	if len(g.State) > 0 {
		f.add("state is not allowed")
	}
	out := &workgraph.Graph{Name: errs.Clip(g.Name, 80)}
	used := map[string]*action{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		place := fmt.Sprintf("graph.nodes[%d]", i)
		a, ok := p.Actions[n.Actor]
		if !ok {
			f.add("%s: %s", place, p.unknown(n.Actor))
			continue
		}
		used[n.Actor] = a
		rest := *n
		rest.ID, rest.Name, rest.Kind, rest.Actor, rest.Named, rest.When, rest.Join, rest.OnError, rest.PassDown =
			"", "", "", "", nil, "", workgraph.Join{}, workgraph.OnError{}, workgraph.PassDown{}
		if len(rest.Args) == 0 {
			rest.Args = nil
		}
		if !reflect.DeepEqual(rest, workgraph.Node{}) {
			f.add("%s: a node may have id, name, actor, named, when, join, on_error and result_pass_down_mode, leave out the rest", place)
		}
		clean := a.node(ctx, place, n.Actor, n.Named, &f)
		clean.ID, clean.Name, clean.When, clean.Join, clean.OnError, clean.PassDown = n.ID, errs.Clip(n.Name, 80), n.When, n.Join, n.OnError, n.PassDown
		out.Nodes = append(out.Nodes, clean)
	}
	for i := range g.Nodes {
		p.pass(fmt.Sprintf("graph.nodes[%d]", i), g.Nodes[i].PassDown, used, &f)
	}
	for i := range g.Edges {
		e := g.Edges[i]
		place := fmt.Sprintf("graph.edges[%d]", i)
		if e.Kind == workgraph.BackEdge {
			f.add("%s: loops are not allowed", place)
		}
		p.pass(place, e.PassDown, used, &f)
		out.Edges = append(out.Edges, e)
	}
	if len(f) > 0 {
		return nil, errors.New(f.String())
	}
	return out, nil
}

// pass refuses ways by which an argument could reach an action unchecked.
func (p *policy) pass(place string, d workgraph.PassDown, used map[string]*action, f *faults) {
	switch d.Mode {
	case "", workgraph.NoPassDown:
	case workgraph.KeyPassDown:
		for _, name := range sorted(used) {
			a := used[name]
			if why := a.takes(d.Key); why != "" || a.open[d.Key] || a.closed {
				f.add("%s: results cannot be passed down as %q, which is an argument of %s", place, errs.Clip(d.Key, 80), name)
				return
			}
		}
	default:
		f.add("%s: results may be passed down by KEY only", place)
	}
}
