package workgraph

import (
	"encoding/json"
	"strings"
)

// Builder makes a Graph in Go code. Its methods return the Builder. Faults of the graph are left to Validate.
// The zero value is ready to use.
type Builder struct {
	g Graph
}

// NewBuilder starts a graph with a name.
func NewBuilder(name string) *Builder { return &Builder{g: Graph{Name: name}} }

// Add declares nodes.
func (b *Builder) Add(nodes ...Node) *Builder {
	b.g.Nodes = append(b.g.Nodes, nodes...)
	return b
}

// Node declares a node that calls actor, changed by opts.
func (b *Builder) Node(id, actor string, opts ...func(*Node)) *Builder {
	n := Node{ID: id, Actor: actor}
	for _, o := range opts {
		o(&n)
	}
	return b.Add(n)
}

// Edge declares an edge, changed by opts.
func (b *Builder) Edge(from, to string, opts ...func(*Edge)) *Builder {
	e := Edge{From: from, To: to}
	for _, o := range opts {
		o(&e)
	}
	b.g.Edges = append(b.g.Edges, e)
	return b
}

// Chain declares an edge from each id to the next.
func (b *Builder) Chain(ids ...string) *Builder {
	for i := 1; i < len(ids); i++ {
		b.Edge(ids[i-1], ids[i])
	}
	return b
}

// Back declares the edge that closes a loop. It is followed while the condition when holds.
func (b *Builder) Back(from, to, when string) *Builder {
	return b.Edge(from, to, func(e *Edge) { e.Kind, e.When = BackEdge, when })
}

// State declares a key of the run's state.
func (b *Builder) State(key string, r Reducer) *Builder {
	if b.g.State == nil {
		b.g.State = map[string]StateKey{}
	}
	b.g.State[key] = StateKey{Reducer: r}
	return b
}

// Graph is a copy of what was declared so far.
func (b *Builder) Graph() *Graph { return b.g.Clone() }

// Pass sets how a node hands on its result.
func Pass(p PassDown) func(*Node) { return func(n *Node) { n.PassDown = p } }

// Arg adds a positional argument of a node. A json.RawMessage is taken as it is. A value that cannot be
// written as JSON makes the graph invalid.
func Arg(value any) func(*Node) {
	return func(n *Node) { n.Args = append(n.Args, inJSON(value)) }
}

// Named binds one named argument of a node. See Arg for the value.
func Named(name string, value any) func(*Node) {
	return func(n *Node) {
		if n.Named == nil {
			n.Named = map[string]json.RawMessage{}
		}
		n.Named[name] = inJSON(value)
	}
}

// inJSON is a value as JSON. A value that cannot be written becomes text that is not JSON, which Validate
// refuses at its place.
func inJSON(value any) json.RawMessage {
	if raw, ok := value.(json.RawMessage); ok {
		return raw
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return json.RawMessage("cannot be written as JSON: " + err.Error())
	}
	return raw
}

// WithMap calls the node once for each element of a list.
func WithMap(m Map) func(*Node) { return func(n *Node) { n.Map = &m } }

// WithRetry says how often the node is called again when it fails, and after which waits.
func WithRetry(r Retry) func(*Node) { return func(n *Node) { n.Retry = r } }

// WithOnError says what happens when the node has failed for good.
func WithOnError(e OnError) func(*Node) { return func(n *Node) { n.OnError = e } }

// FallbackTo gives a failed node a value, as Arg takes it, in place of a result.
func FallbackTo(value any) OnError { return OnError{Action: Fallback, Value: inJSON(value)} }

// When sets an edge's condition.
func When(cond string) func(*Edge) { return func(e *Edge) { e.When = cond } }

// OnFailure makes an edge carry its source's routed errors.
func OnFailure() func(*Edge) { return func(e *Edge) { e.Kind = ErrorEdge } }

// Paths makes a graph of paths: one node for each distinct id over all paths, in the order of first
// appearance, and one edge for each distinct step. Empty paths are skipped. node makes each node. Cycles are
// left to Validate.
func Paths(paths [][]string, node func(id string) Node) *Graph {
	g := &Graph{}
	seen := map[string]bool{}
	edges := map[[2]string]bool{}
	for _, p := range paths {
		for i, id := range p {
			if !seen[id] {
				seen[id] = true
				n := node(id)
				n.ID = id
				g.Nodes = append(g.Nodes, n)
			}
			if i == 0 {
				continue
			}
			if step := [2]string{p[i-1], id}; !edges[step] {
				edges[step] = true
				g.Edges = append(g.Edges, Edge{From: step[0], To: step[1]})
			}
		}
	}
	return g
}

// FromText makes a graph of graph text: one line per group of paths, "->" between steps, "," between the ids
// of one step. Every id of a step leads to every id of the next one. Ids are trimmed, blank lines skipped. An
// empty id, as after a trailing "->", is kept for Validate to report.
func FromText(text string, node func(id string) Node) *Graph {
	var paths [][]string
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var prev []string
		for step := range strings.SplitSeq(line, "->") {
			var ids []string
			for id := range strings.SplitSeq(step, ",") {
				ids = append(ids, strings.TrimSpace(id))
			}
			for _, id := range ids {
				if len(prev) == 0 {
					paths = append(paths, []string{id})
				}
				for _, from := range prev {
					paths = append(paths, []string{from, id})
				}
			}
			prev = ids
		}
	}
	return Paths(paths, node)
}
