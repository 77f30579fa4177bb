package workgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// Patch changes a graph: nodes and edges are removed first, then nodes put, then edges added.
type Patch struct {
	// RemoveNodes are removed with all of their edges.
	RemoveNodes []string `json:"remove_nodes,omitempty"`
	// RemoveEdges are found by From, To and Kind.
	RemoveEdges []Edge `json:"remove_edges,omitempty"`
	// PutNodes replace nodes with the same id, or are appended.
	PutNodes []Node `json:"put_nodes,omitempty"`
	// AddEdges are appended in this order.
	AddEdges []Edge `json:"add_edges,omitempty"`
}

// ApplyPatch applies p to a copy of g. The faults are those of the patch, all at once; Recompile finds out
// whether the result can run. A node that an expansion made may be replaced, but not added.
func ApplyPatch(g *Graph, p Patch) (*Graph, Faults) {
	out := g.Clone()
	out.fillDefaults()
	var faults Faults
	fault := func(f Fault) {
		switch n := len(faults); {
		case n < MaxFaults:
			faults = append(faults, f)
		case n == MaxFaults:
			faults = append(faults, Fault{Code: CodeMoreFaults, Message: "and more of the kind", Hint: "mend these and send the patch again"})
		}
	}
	known := make(map[string]int, len(out.Nodes))
	for i := range out.Nodes {
		known[out.Nodes[i].ID] = i
	}
	gone := make(map[string]bool, len(p.RemoveNodes))
	for _, id := range p.RemoveNodes {
		if _, ok := known[id]; !ok || gone[id] {
			fault(Fault{Code: CodeUnknownNode, Node: id, Field: "remove_nodes", Message: "there is no such node to remove", Hint: "name each node of the run's graph once"})
			continue
		}
		gone[id] = true
	}
	cut := make(map[edgeName]bool, len(p.RemoveEdges))
	edges := make(map[edgeName]bool, len(out.Edges))
	for i := range out.Edges {
		edges[nameOf(&out.Edges[i])] = true
	}
	for i := range p.RemoveEdges {
		k := nameOf(&p.RemoveEdges[i])
		if !edges[k] || cut[k] {
			fault(Fault{Code: CodeUnknownEdge, From: k.From, To: k.To, Field: "remove_edges", Message: fmt.Sprintf("there is no %s edge to remove", k.Kind),
				Hint: "name each edge by from, to and kind, once"})
			continue
		}
		cut[k] = true
	}
	out.Edges = slices.DeleteFunc(out.Edges, func(e Edge) bool { return gone[e.From] || gone[e.To] || cut[nameOf(&e)] })
	put := make(map[string]bool, len(p.PutNodes))
	var added []Node
	for i := range p.PutNodes {
		n := p.PutNodes[i]
		code, msg := idFault(n.ID)
		at, old := known[n.ID]
		switch {
		case put[n.ID]:
			fault(Fault{Code: CodeDuplicateNode, Node: n.ID, Field: "put_nodes", Message: "the node is put twice", Hint: "put each node once"})
		case old && !gone[n.ID]:
			out.Nodes[at] = n
		case code != "":
			fault(Fault{Code: code, Node: n.ID, Field: "put_nodes", Message: msg, Hint: "use letters, digits, _ and -"})
		default:
			added = append(added, n)
		}
		put[n.ID] = true
	}
	out.Nodes = append(slices.DeleteFunc(out.Nodes, func(n Node) bool { return gone[n.ID] }), added...)
	for i := range out.Nodes {
		known[out.Nodes[i].ID] = i
	}
	for i := range p.AddEdges {
		e := p.AddEdges[i]
		k := nameOf(&e)
		switch {
		case edges[k] && !cut[k] && !gone[k.From] && !gone[k.To]:
			fault(Fault{Code: CodeDuplicateEdge, From: k.From, To: k.To, Field: "add_edges", Message: "the edge is there already",
				Hint: "remove it in the same patch to change it"})
			continue
		case gone[k.From] && !put[k.From], gone[k.To] && !put[k.To]:
			fault(Fault{Code: CodeUnknownNode, From: k.From, To: k.To, Field: "add_edges", Message: "the edge leads from or to a node that is removed"})
			continue
		}
		edges[k], cut[k] = true, false
		out.Edges = append(out.Edges, e)
	}
	if len(out.Nodes) > MaxNodes || len(out.Edges) > MaxEdges {
		fault(Fault{Code: CodeTooLarge, Message: fmt.Sprintf("%d nodes and %d edges are more than %d and %d", len(out.Nodes), len(out.Edges), MaxNodes, MaxEdges)})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	out.fillDefaults()
	return out, nil
}

// Replaceable returns the faults for which a run with graph g cannot get the graph now by an amendment: nodes
// that only an expansion could have made. Recompile finds the other faults.
func Replaceable(g, now *Graph) Faults {
	known := make(map[string]bool, len(g.Nodes))
	for i := range g.Nodes {
		known[g.Nodes[i].ID] = true
	}
	var faults Faults
	for i := range now.Nodes {
		id := now.Nodes[i].ID
		if code, msg := idFault(id); code != "" && !known[id] && len(faults) < MaxFaults {
			faults = append(faults, Fault{Code: code, Node: id, Field: "id", Message: msg, Hint: "use letters, digits, _ and -"})
		}
	}
	return faults
}

// edgeName is the identity of an edge.
type edgeName struct {
	From, To string
	Kind     EdgeKind
}

func nameOf(e *Edge) edgeName {
	k := edgeName{e.From, e.To, e.Kind}
	def(&k.Kind, DataEdge)
	return k
}

// GraphDiff is the difference between two graphs. Nodes are identified by id, edges by From, To and Kind. A
// default that is left out equals one that is stated. Lists are in declared order.
type GraphDiff struct {
	AddedNodes   []string     `json:"added_nodes,omitempty"`
	RemovedNodes []string     `json:"removed_nodes,omitempty"`
	ChangedNodes []NodeChange `json:"changed_nodes,omitempty"`
	AddedEdges   []Edge       `json:"added_edges,omitempty"`
	RemovedEdges []Edge       `json:"removed_edges,omitempty"`
	ChangedEdges []EdgeChange `json:"changed_edges,omitempty"`
	// ChangedState are the keys of the state whose declaration differs.
	ChangedState []string `json:"changed_state,omitempty"`
}

// NodeChange is a node of both graphs with the fields, by their JSON names, that differ.
type NodeChange struct {
	ID     string   `json:"id"`
	Fields []string `json:"fields"`
}

// EdgeChange is an edge of both graphs with the fields that differ.
type EdgeChange struct {
	From   string   `json:"from"`
	To     string   `json:"to"`
	Kind   EdgeKind `json:"kind"`
	Fields []string `json:"fields"`
}

// Empty reports whether the graphs are equal.
func (d *GraphDiff) Empty() bool { return reflect.DeepEqual(*d, GraphDiff{}) }

// Diff compares two graphs. The error is that of ctx if it ended first.
func Diff(ctx context.Context, old, now *Graph) (GraphDiff, error) {
	a, b := old.Clone(), now.Clone()
	a.fillDefaults()
	b.fillDefaults()
	var d GraphDiff
	was := make(map[string]*Node, len(a.Nodes))
	for i := range a.Nodes {
		was[a.Nodes[i].ID] = &a.Nodes[i]
	}
	for i := range b.Nodes {
		if ctx.Err() != nil {
			return GraphDiff{}, context.Cause(ctx)
		}
		n := &b.Nodes[i]
		o := was[n.ID]
		if o == nil {
			d.AddedNodes = append(d.AddedNodes, n.ID)
			continue
		}
		delete(was, n.ID)
		if fields := changedFields(o, n); len(fields) > 0 {
			d.ChangedNodes = append(d.ChangedNodes, NodeChange{n.ID, fields})
		}
	}
	for i := range a.Nodes {
		if id := a.Nodes[i].ID; was[id] != nil {
			d.RemovedNodes = append(d.RemovedNodes, id)
		}
	}
	led := make(map[edgeName]*Edge, len(a.Edges))
	for i := range a.Edges {
		led[nameOf(&a.Edges[i])] = &a.Edges[i]
	}
	for i := range b.Edges {
		if ctx.Err() != nil {
			return GraphDiff{}, context.Cause(ctx)
		}
		e := &b.Edges[i]
		k := nameOf(e)
		o := led[k]
		if o == nil {
			d.AddedEdges = append(d.AddedEdges, *e)
			continue
		}
		delete(led, k)
		if fields := changedFields(o, e); len(fields) > 0 {
			d.ChangedEdges = append(d.ChangedEdges, EdgeChange{k.From, k.To, k.Kind, fields})
		}
	}
	for i := range a.Edges {
		if led[nameOf(&a.Edges[i])] != nil {
			d.RemovedEdges = append(d.RemovedEdges, a.Edges[i])
		}
	}
	keys := map[string]bool{}
	for k := range a.State {
		keys[k] = true
	}
	for k := range b.State {
		keys[k] = true
	}
	for _, k := range sortedKeys(keys) {
		x, inA := a.State[k]
		y, inB := b.State[k]
		if inA != inB || x.Reducer != y.Reducer || !sameJSON(x.Initial, y.Initial) {
			d.ChangedState = append(d.ChangedState, k)
		}
	}
	return d, nil
}

// changedFields names the JSON fields in which two values of one type differ.
func changedFields[T any](a, b *T) []string {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	x, y := fieldsOf(a), fieldsOf(b)
	var out []string
	for k, v := range x {
		if !bytes.Equal(v, y[k]) {
			out = append(out, k)
		}
	}
	for k := range y {
		if _, ok := x[k]; !ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func fieldsOf(v any) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if raw, err := canonicalJSON(v); err == nil {
		_ = json.Unmarshal(raw, &out) // it was marshaled above
	}
	return out
}

func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, errX := canonicalJSON(a)
	y, errY := canonicalJSON(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
