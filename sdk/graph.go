package epigraph

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Graph returns the wire form of a graph. An error is an enum value without a wire form; the service
// validates the rest.
func Graph(g *workgraph.Graph) (*graphv1.Graph, error) {
	w := wire{}
	out := &graphv1.Graph{Name: g.Name}
	for i := range g.Nodes {
		out.Nodes = append(out.Nodes, w.node(&g.Nodes[i]))
	}
	out.Edges = w.edges(g.Edges)
	for k, v := range g.State {
		if out.State == nil {
			out.State = map[string]*graphv1.StateKey{}
		}
		out.State[k] = &graphv1.StateKey{Reducer: graphv1.Reducer(w.word("REDUCER", string(v.Reducer), graphv1.Reducer_value)), Initial: raw(v.Initial)}
	}
	if err := w.fault("GRAPH_INVALID", "the graph"); err != nil {
		return nil, err
	}
	return out, nil
}

// fault is the error of words that are not known; nil without one.
func (w *wire) fault(reason, what string) error {
	if len(w.unknown) == 0 {
		return nil
	}
	return &Error{Reason: reason, Message: what + " uses words that are not known: " + strings.Join(w.unknown, ", ")}
}

func (w *wire) edges(in []workgraph.Edge) (out []*graphv1.Edge) {
	for i := range in {
		e := &in[i]
		out = append(out, &graphv1.Edge{From: e.From, To: e.To, When: e.When, ResultPassDownMode: w.passDown(e.PassDown),
			Kind: graphv1.EdgeKind(w.word("EDGE_KIND", string(e.Kind), graphv1.EdgeKind_value))})
	}
	return out
}

// wire collects the words that it does not know.
type wire struct{ unknown []string }

func (w *wire) word(prefix, s string, values map[string]int32) int32 {
	if s == "" {
		return 0
	}
	n, ok := values[prefix+"_"+s]
	if !ok {
		w.unknown = append(w.unknown, fmt.Sprintf("%q", s))
	}
	return n
}

func (w *wire) node(n *workgraph.Node) *graphv1.Node {
	out := &graphv1.Node{Id: n.ID, Name: n.Name, Kind: graphv1.NodeKind(w.word("NODE_KIND", string(n.Kind), graphv1.NodeKind_value)), Actor: n.Actor,
		Transform: n.Transform, ResultPassDownMode: w.passDown(n.PassDown), When: n.When, Timeout: span(n.Timeout), IdleTimeout: span(n.IdleTimeout),
		MaxVisits: int32(n.MaxVisits), ConcurrencyKey: n.ConcurrencyKey, Thread: n.Thread,
		Effect: graphv1.Effect(w.word("EFFECT", string(n.Effect), graphv1.Effect_value))}
	for _, a := range n.Args {
		out.Args = append(out.Args, raw(a))
	}
	for k, v := range n.Named {
		if out.Named == nil {
			out.Named = map[string]*graphv1.Payload{}
		}
		out.Named[k] = raw(v)
	}
	for arg, b := range n.Bind {
		if out.Bind == nil {
			out.Bind = map[string]*graphv1.Binding{}
		}
		m := &graphv1.Binding{Value: raw(b.Value)}
		for _, u := range b.Uses {
			m.Uses = append(m.Uses, &graphv1.ResultUse{Mark: u.Mark, Node: u.Node, Field: u.Field, OrWhole: u.OrWhole})
		}
		out.Bind[arg] = m
	}
	if j := n.Join; j != (workgraph.Join{}) {
		out.Join = &graphv1.Join{Kind: graphv1.JoinKind(w.word("JOIN_KIND", string(j.Mode), graphv1.JoinKind_value)), Quorum: int32(j.N),
			Losers: graphv1.Losers(w.word("LOSERS", string(j.Losers), graphv1.Losers_value))}
	}
	if n.On != nil {
		out.On = &graphv1.Activation{}
		if in := n.On.Inbox; in != nil {
			out.On.Inbox = &graphv1.Inbox{From: in.From, BatchSize: int32(in.BatchSize), Ttl: span(in.TTL)}
		}
	}
	if r := n.Retry; r != (workgraph.Retry{}) {
		out.Retry = &graphv1.Retry{MaxAttempts: int32(r.MaxAttempts), InitialInterval: span(r.InitialBackoff), BackoffFactor: r.Multiplier,
			MaxInterval: span(r.MaxBackoff), Jitter: r.Jitter}
	}
	if c := n.Check; c != nil {
		out.Check = &graphv1.Check{JsonSchema: raw(c.Schema), Cel: c.CEL}
	}
	if e := n.OnError; e.Action != "" || e.Value != nil {
		out.OnError = &graphv1.OnError{Kind: graphv1.OnErrorKind(w.word("ON_ERROR_KIND", string(e.Action), graphv1.OnErrorKind_value)), Fallback: raw(e.Value)}
	}
	if m := n.Map; m != nil {
		out.Map = &graphv1.Map{Over: m.Over, Until: m.Until, As: m.As, MaxParallel: int32(m.MaxParallel), Quorum: int32(m.Quorum),
			OnItemError: graphv1.OnItemErrorKind(w.word("ON_ITEM_ERROR_KIND", string(m.OnItemError), graphv1.OnItemErrorKind_value))}
	}
	if c := n.Cache; c != nil {
		out.Cache = &graphv1.Cache{Ttl: span(c.TTL), Scope: graphv1.CacheScope(w.word("CACHE_SCOPE", string(c.Scope), graphv1.CacheScope_value)), Key: c.Key}
	}
	return out
}

func (w *wire) passDown(p workgraph.PassDown) *graphv1.PassDown {
	switch p.Mode {
	case "":
		return nil
	case workgraph.NoPassDown:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_NoPassDown{NoPassDown: &graphv1.NoPassDown{}}}
	case workgraph.ResultAsFirstArg:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_ResultAsFirstArg{ResultAsFirstArg: &graphv1.ResultAsFirstArg{}}}
	case workgraph.ResultAsLeadingArgs:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_ResultAsLeadingArgs{ResultAsLeadingArgs: &graphv1.ResultAsLeadingArgs{}}}
	case workgraph.KeyPassDown:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_Key{Key: p.Key}}
	case workgraph.MergePassDown:
		return &graphv1.PassDown{Mode: &graphv1.PassDown_Merge{Merge: p.Expr}}
	}
	w.unknown = append(w.unknown, fmt.Sprintf("%q", p.Mode))
	return nil
}

func raw(v json.RawMessage) *graphv1.Payload {
	if v == nil {
		return nil
	}
	return &graphv1.Payload{Json: v}
}

func span(d workgraph.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(time.Duration(d))
}
