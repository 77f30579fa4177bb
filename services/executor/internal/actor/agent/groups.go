package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// groups runs the groups, or the graph, of a round as a run of its own. The run has the depth of the agent's,
// so that the nesting of agents is not affected by the form of their decisions.
func (l *loop) groups(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	d, err := l.definitions.of(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	in, err := instanceOf(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	at, err := positionOf(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	from, _ := standing.Source(c, nodeAct)
	var v verdict
	if err := json.Unmarshal(actor.Result(from.Values), &v); err != nil {
		return workgraph.Outcome{}, badLoop("the verdict: %v", err)
	}
	b := &groupBuilder{d: d, calls: map[string]string{}, definition: c.Own["definition"], branch: branchOf(d, in, at, v.State)}
	if v.Graph != nil {
		b.actions(v.Graph, v.Problems)
	} else {
		for i, group := range v.Groups {
			b.layer(i+1, group)
		}
	}
	g, err := b.graph()
	if err != nil {
		return workgraph.Outcome{}, err
	}
	g.Name = "round " + strconv.Itoa(c.Visit)
	of := in.run()
	of.Thread, of.Round = at.Thread, true
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{AsResult: true, Runs: []workgraph.Child{{Graph: g, SameDepth: true, Agent: of,
		Input: workgraph.Input{Named: map[string]json.RawMessage{argPrevious: v.Previous}}}}}}}, nil
}

// branchOf is the input of an agent that goes on with one action of a parallel group: a copy of this one, in
// the state of the present round.
func branchOf(d *definition, in *instance, at position, now *state.Brief) *instance {
	b := &instance{Agent: in.Agent, Name: in.Name, Create: &createThread{Agent: in.Agent, Lifetime: workgraph.ThreadEphemeral}, Depth: in.Depth + 1, Context: in.Context, UserProfile: in.UserProfile, Attachments: in.Attachments}
	if !d.StartAsNew {
		b.Create.Parent, b.Create.ParentSeq, b.Input, b.State = at.Thread, at.Seq, at.Input, now
	}
	return b
}

// groupBuilder makes the graph of a round: layers one after another, then the node that lists the results.
// Results reach every later action as one growing list, which a gather node after each layer extends.
type groupBuilder struct {
	d *definition
	// definition is d as it came with the call.
	definition json.RawMessage
	branch     *instance
	g          workgraph.Graph
	layers     []layer
	// calls are the ids by which the model asked for actions, by node.
	calls map[string]string
	// before is the gather node of the layer before.
	before string
	err    error
}

// layer is a group for the node that lists the results.
type layer struct {
	Nodes []actionNode `json:"nodes"`
	// Summary is the node whose value stands for the group, if there is a summarizer.
	Summary string `json:"summary,omitempty"`
}

func (b *groupBuilder) edge(from, to string, kind workgraph.EdgeKind) {
	b.g.Edges = append(b.g.Edges, workgraph.Edge{From: from, To: to, Kind: kind})
}

func (b *groupBuilder) named(of map[string]any) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for k, v := range of {
		raw, err := actor.Encode(v)
		if err != nil {
			b.err = err
		}
		out[k] = raw
	}
	return out
}

// routed is what a failure means for the run of a round: the node that lists the results says it.
var routed = workgraph.OnError{Action: workgraph.Route}

// layer adds a group. An action of a group of several is followed by an agent that goes on with its result.
// The ids of actions begin with a number, and those of other nodes with a letter, so that no name of an
// action makes two nodes one.
func (b *groupBuilder) layer(number int, group []doing) {
	l := layer{}
	var ends []string
	for k, w := range group {
		id := fmt.Sprintf("%d.%d-%s", number, k+1, w.Action)
		if len(group) == 1 {
			id = fmt.Sprintf("%d-%s", number, w.Action)
		}
		a := b.d.Actions[w.Action]
		b.g.Nodes = append(b.g.Nodes, workgraph.Node{ID: id, Name: w.Action, Kind: workgraph.ToolKind, Actor: a.Actor, Named: undisturbed(a.Actor, w.Arguments), Timeout: a.Timeout,
			Effect: cmp.Or(a.Effect, a.OwnEffect), Retry: workgraph.Retry{MaxAttempts: a.MaxAttempts}, OnError: routed})
		if w.Call != "" {
			b.calls[id] = callID(w.Call)
		}
		if b.before != "" {
			b.edge(b.before, id, "")
		}
		end := id
		if len(group) > 1 && b.d.branches() {
			end = fmt.Sprintf("agent.%d.%d", number, k+1)
			b.g.Nodes = append(b.g.Nodes, workgraph.Node{ID: end, Kind: workgraph.AgentKind, Actor: actorBranch, OnError: routed,
				Named: b.named(map[string]any{"action": w.Action})})
			b.branching()
			b.edge(id, end, "")
			l.Nodes = append(l.Nodes, actionNode{ID: id, Action: w.Action})
		}
		l.Nodes = append(l.Nodes, actionNode{ID: end, Action: w.Action, Call: w.Call})
		ends = append(ends, end)
	}
	l.Nodes = lasts(l.Nodes, len(group))
	from := ends
	if s := b.d.Summarizer; s != nil && len(group) > 1 && b.d.branches() {
		l.Summary = b.summary(number, s, ends)
		from = []string{l.Summary}
	}
	mode := gatherAppend
	if len(group) > 1 && l.Summary == "" {
		mode = gatherAppendList
	}
	b.before = b.gather(gatherNode(number), mode, from, workgraph.Key(argPrevious), nil)
	if l.Summary != "" {
		b.g.Edges[len(b.g.Edges)-1].PassDown = workgraph.Merge(passNothing)
	}
	b.layers = append(b.layers, l)
}

// stateBranch is the key of the state of a round's run with what all branches of it have in common.
const stateBranch = "branch"

// common is what all branches of a round have in common.
type common struct {
	Definition json.RawMessage `json:"definition"`
	Branch     *instance       `json:"branch"`
}

func (b *groupBuilder) branching() {
	if _, set := b.g.State[stateBranch]; !set {
		b.state(stateBranch, common{b.definition, b.branch})
	}
}

// state sets a value of the state of the round's run.
func (b *groupBuilder) state(key string, v any) {
	if b.g.State == nil {
		b.g.State = map[string]workgraph.StateKey{}
	}
	b.g.State[key] = workgraph.StateKey{Initial: b.named(map[string]any{key: v})[key]}
}

// gatherNode is the node that extends the results by those of a layer.
func gatherNode(number int) string { return fmt.Sprintf("gather.%d", number) }

// listNode is the node with the results that the summarizer of a layer gets.
func listNode(number int) string { return fmt.Sprintf("list.%d", number) }

// lasts are the nodes of a layer, of which a branch has two, the action and then its agent: the last of each.
func lasts(nodes []actionNode, n int) []actionNode {
	if len(nodes) == n {
		return nodes
	}
	out := make([]actionNode, 0, n)
	for i := 1; i < len(nodes); i += 2 {
		s := nodes[i]
		s.Of = nodes[i-1].ID
		out = append(out, s)
	}
	return out
}

// gather adds a node that puts the values of others together. It runs if all of them succeed.
func (b *groupBuilder) gather(id, mode string, from []string, pass workgraph.PassDown, more map[string]any) string {
	named := map[string]any{"mode": mode, "from": from}
	for k, v := range more {
		named[k] = v
	}
	n := workgraph.Node{ID: id, Kind: workgraph.SummarizerKind, Actor: actorGather, Named: b.named(named), PassDown: pass, OnError: routed}
	if len(from) > 1 {
		n.Join = workgraph.Join{Mode: workgraph.Quorum, N: len(from)}
	}
	b.g.Nodes = append(b.g.Nodes, n)
	for _, f := range from {
		b.edge(f, id, "")
	}
	return id
}

// summary adds the summarizer of a group.
func (b *groupBuilder) summary(number int, s *summarizer, ends []string) string {
	id := fmt.Sprintf("summary.%d", number)
	n := workgraph.Node{ID: id, Kind: workgraph.SummarizerKind, Actor: s.Actor, Named: s.Named, OnError: routed, Retry: workgraph.Retry{MaxAttempts: 3}}
	var list string
	if s.Prompt != "" {
		n.Actor = actorLLM
		n.Named = b.named(map[string]any{"upstream": false})
		for k, v := range b.d.ReasonerArgs {
			if b.d.Reasoner == actorLLM {
				n.Named[k] = v // the model that reasons summarizes
			}
		}
		for k, v := range s.Named {
			n.Named[k] = v
		}
		list = b.gather(listNode(number), gatherPrompt, ends, workgraph.Merge(passRequest), map[string]any{"prompt": s.Prompt, "names": b.names(ends),
			"max_bytes": b.d.MaxResultBytes, "all_bytes": b.d.History.share()})
	} else {
		list = b.gather(listNode(number), gatherList, ends, workgraph.Key("results"), nil)
	}
	b.g.Nodes = append(b.g.Nodes, n)
	b.edge(list, id, "")
	// What the summarizer is told does not reach the actions behind it.
	b.g.Edges = append(b.g.Edges, workgraph.Edge{From: list, To: gatherNode(number), PassDown: workgraph.PassDown{Mode: workgraph.NoPassDown}})
	return id
}

// names are the actions of the ends of a group.
func (b *groupBuilder) names(ends []string) []string {
	var out []string
	for _, end := range ends {
		for i := range b.g.Nodes {
			if n := &b.g.Nodes[i]; n.ID == end {
				name := n.Name
				if raw, ok := n.Named["action"]; ok && n.Actor == actorBranch {
					name = actor.AsText(raw)
				}
				out = append(out, name)
			}
		}
	}
	return out
}

// actions adds a graph of actions as it is. Its nodes are listed one after another.
func (b *groupBuilder) actions(g *workgraph.Graph, problems []actionNode) {
	b.g.Edges = append(b.g.Edges, g.Edges...)
	for i := range g.Nodes {
		n := g.Nodes[i]
		if n.OnError.Action == "" {
			n.OnError = routed
		}
		b.g.Nodes = append(b.g.Nodes, n)
	}
	for _, p := range problems {
		b.layers = append(b.layers, layer{Nodes: []actionNode{p}})
	}
}

// graph ends the graph with the node that lists the results.
func (b *groupBuilder) graph() (*workgraph.Graph, error) {
	ids := map[string]workgraph.ErrorAction{}
	for i := range b.g.Nodes {
		ids[b.g.Nodes[i].ID] = b.g.Nodes[i].OnError.Action
	}
	for _, id := range sorted(ids) {
		e := workgraph.Edge{From: id, To: nodeResults, PassDown: workgraph.PassDown{Mode: workgraph.NoPassDown}}
		b.g.Edges = append(b.g.Edges, e)
		if e.Kind = workgraph.ErrorEdge; ids[id] == workgraph.Route {
			b.g.Edges = append(b.g.Edges, e)
		}
	}
	b.g.Nodes = append(b.g.Nodes, workgraph.Node{ID: nodeResults, Kind: workgraph.SummarizerKind, Actor: actorResults, Named: b.named(map[string]any{"layers": b.layers})})
	if len(b.calls) > 0 {
		b.state(workgraph.StateToolCalls, b.calls)
	}
	if b.err != nil {
		return nil, actor.BadArguments("%v", b.err)
	}
	return &b.g, nil
}

// The modes of gather.
const (
	gatherAppend     = "append"
	gatherAppendList = "append_list"
	gatherList       = "list"
	gatherPrompt     = "prompt"
)

// gather puts the values of the nodes before it together: as a list, as the prompt of a summarizer, or as one
// more element of the results that came before.
func gather(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Mode   string   `json:"mode"`
		From   []string `json:"from"`
		Prompt string   `json:"prompt"`
		Names  []string `json:"names"`
		Each   int      `json:"max_bytes"`
		All    int      `json:"all_bytes"`
	}
	if err := actor.Decode(c.Own, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var values []json.RawMessage
	for _, node := range a.From {
		if u, ok := standing.Source(c, node); ok && u.Outcome == workgraph.VisitCompleted {
			values = append(values, actor.Result(u.Values))
		}
	}
	switch a.Mode {
	case gatherList:
		return workgraph.Outcome{Values: []json.RawMessage{actor.List(values)}}, nil
	case gatherPrompt:
		t, err := prompt.Parse(a.Prompt)
		if err != nil {
			return workgraph.Outcome{}, actor.BadArguments("prompt: %v", err)
		}
		rs := make(state.Results, len(values))
		for i, v := range values {
			if rs[i].OK = v; i < len(a.Names) {
				rs[i].Action = a.Names[i]
			}
		}
		return value(t.Render(map[string]string{prompt.ActionResult: prompt.ActionResults(rs, a.Each, a.All)}))
	case gatherAppend, gatherAppendList:
	default:
		return workgraph.Outcome{}, badLoop("it has no mode")
	}
	one := actor.List(values)
	if a.Mode == gatherAppend {
		if len(values) != 1 {
			return workgraph.Outcome{}, badLoop("%d results came where one was expected", len(values))
		}
		one = values[0]
	}
	var before []json.RawMessage
	if raw := c.Named[argPrevious]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &before); err != nil {
			return workgraph.Outcome{}, badLoop("%s: %v", argPrevious, err)
		}
	}
	return workgraph.Outcome{Values: []json.RawMessage{actor.List(append(before, one))}}, nil
}

// results lists what became of a round's actions: an entry for each group, in the order asked.
func results(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Layers []layer `json:"layers"`
	}
	if err := actor.Decode(c.Own, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if len(a.Layers) == 0 {
		return workgraph.Outcome{}, badLoop("layers are missing")
	}
	out := make(state.Results, len(a.Layers))
	for i, l := range a.Layers {
		var group state.Results
		for _, s := range l.Nodes {
			group = append(group, became(c, s))
		}
		switch {
		case l.Summary != "":
			u, ok := standing.Source(c, l.Summary)
			switch {
			case ok && u.Outcome == workgraph.VisitCompleted:
				out[i].Value = actor.Result(u.Values)
			case ok && u.Error != nil:
				out[i].Group = append(group, state.Result{Action: "summarizer", Error: failureOf(u.Error)})
			default:
				out[i].Group = group
			}
		case len(group) == 1:
			out[i] = group[0]
		default:
			out[i].Group = group
		}
	}
	return value(out)
}

// became is what became of one action: its result, that of the agent that goes on with it, or the failure.
func became(c *workgraph.Call, s actionNode) state.Result {
	u, ok := standing.Source(c, s.ID)
	if s.Of != "" && (!ok || u.Outcome != workgraph.VisitCompleted && u.Outcome != workgraph.VisitFailed) {
		if of, there := standing.Source(c, s.Of); there && of.Outcome != workgraph.VisitCompleted {
			u, ok = of, true
		}
	}
	if !ok || u.Outcome == workgraph.VisitSkipped {
		return state.Result{Action: s.Action, Call: s.Call, Skipped: "an action before it did not succeed"}
	}
	r := found(u, s.Action)
	r.Call = s.Call
	return r
}

// branch goes on with the result of one action of a parallel group: the agent with
// {user_input: null, action_results}.
func (l *loop) branch(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Action string `json:"action"`
	}
	if err := actor.Decode(c.Own, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	raw, ok := c.Var("state")
	var s struct {
		Branch common `json:"branch"`
	}
	if !ok || json.Unmarshal(raw, &s) != nil || s.Branch.Branch == nil || s.Branch.Branch.Create == nil {
		return workgraph.Outcome{}, badLoop("branch is missing")
	}
	d, err := l.definitions.whole(ctx, s.Branch.Definition)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	in := *s.Branch.Branch
	for _, u := range c.Upstream {
		in.ActionResults = append(in.ActionResults, found(u, a.Action))
	}
	in.Thread = ids.New(thread.IDPrefix)
	mine := *d
	mine.AsMessage = false // its result is one of a round
	return mine.start(&in, callLimits{}, true)
}

// actGraph checks a graph of a reasoner, unless it was made of a plan, and goes to groups.
func (d *definition) actGraph(ctx context.Context, r *response.Response, v verdict) (workgraph.Outcome, error) {
	var g *workgraph.Graph
	var err error
	switch {
	case r.Compiled:
		g, err = compiled(r.Graph)
		if err != nil {
			return workgraph.Outcome{}, err
		}
	case !d.AllowGraph:
		return workgraph.Outcome{}, refusal("graphs are not allowed here: give actions")
	default:
		if g, err = d.clean(ctx, r.Graph); err != nil {
			return workgraph.Outcome{}, refusal(err.Error())
		}
	}
	v.Graph = g
	for i := range g.Nodes {
		name := g.Nodes[i].Name
		if name == "" {
			name = g.Nodes[i].ID
		}
		v.Problems = append(v.Problems, actionNode{ID: g.Nodes[i].ID, Action: name})
	}
	return to(v, nodeGroups)
}

// clean is a reasoner's graph with the actions in place of their names. It may order actions and propagate
// results under unrestricted names. Arguments that the policy fixes or checks cannot be set that way.
func (p *policy) clean(ctx context.Context, raw json.RawMessage) (*workgraph.Graph, error) {
	if len(raw) > 0 && raw[0] == '"' {
		inner, err := response.Inner(actor.AsText(raw))
		if err != nil {
			return nil, fmt.Errorf("the graph is not valid JSON: %w", err)
		}
		raw = inner
	}
	g, err := graphpb.ReadModel(raw)
	if err != nil {
		return nil, errors.New(errs.Clip(err.Error(), 2000))
	}
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
		if n.ID == nodeResults {
			f.add("%s: %q is an id of the agent: choose another", place, nodeResults)
		}
		a, ok := p.Actions[n.Actor]
		if !ok {
			f.add("%s: %s", place, p.unknown(n.Actor))
			continue
		}
		if a.fault != nil {
			return nil, a.fault
		}
		switch {
		case a.HandOver:
			f.add("%s: %s hands over to another agent and cannot be part of a graph: make it the only action", place, n.Actor)
		case a.shares():
			f.add("%s: %s works on your own thread and cannot be part of a graph: ask for it as an action", place, n.Actor)
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
		clean.ID, clean.When, clean.Join, clean.OnError, clean.PassDown = n.ID, n.When, n.Join, n.OnError, n.PassDown
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
	found, err := workgraph.ValidateFor(ctx, out, nil, nil)
	switch {
	case err != nil:
		return nil, err
	case len(found) > 0:
		return nil, fmt.Errorf("%v", found[0])
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
