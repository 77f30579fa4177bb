package author

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

type ends struct{ from, to string }

// patcher makes the patch of an answer.
type patcher struct {
	v *reviser
	// ids are the node ids in the run by those of the compiled answer.
	ids map[string]string
	// replaced are the new ids of open nodes that are put anew, because an edge into them that was decided
	// goes.
	replaced map[string]string
	// kept are the open nodes that the answer lists.
	kept map[string]bool
	// needs are the edges of the answer, by the ids of the run before replacements.
	needs map[ends]bool
	order []ends
	taken map[string]bool
	out   workgraph.Patch
}

// patch is the change from the graph of the run to the compiled answer. Nodes that the answer leaves as they
// are keep all that a plan does not say, such as retries and conditions.
func (v *reviser) patch(made *workgraph.Graph, read plan.Graph) workgraph.Patch {
	p := &patcher{v: v, ids: map[string]string{}, replaced: map[string]string{}, kept: map[string]bool{}, needs: map[ends]bool{}, taken: map[string]bool{}}
	for id := range v.nodes {
		p.taken[id] = true
	}
	for i := range made.Nodes {
		n := &made.Nodes[i]
		switch {
		case v.nodes[n.Name] != nil:
			p.ids[n.ID] = n.Name
			p.kept[n.Name] = !v.fixed[n.Name]
		default:
			p.ids[n.ID] = p.free(n.ID)
		}
	}
	for _, e := range made.Edges {
		x := ends{p.ids[e.From], p.ids[e.To]}
		p.needs[x] = true
		p.order = append(p.order, x)
	}
	p.replace()
	p.putNodes(made, read)
	p.edges()
	return p.out
}

// free is an id that no node has.
func (p *patcher) free(id string) string {
	base := id
	for n := 2; p.taken[id]; n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	p.taken[id] = true
	return id
}

// replace finds the open nodes that lose an edge from a node that has begun.
func (p *patcher) replace() {
	for i := range p.v.Graph.Edges {
		e := &p.v.Graph.Edges[i]
		if isData(e) && p.kept[e.To] && p.v.begun[e.From] && !p.needs[ends{e.From, e.To}] && p.replaced[e.To] == "" {
			p.replaced[e.To] = p.free(e.To)
		}
	}
}

func isData(e *workgraph.Edge) bool { return e.Kind == "" || e.Kind == workgraph.DataEdge }

// now is the id that a node has after the patch.
func (p *patcher) now(id string) string {
	if other := p.replaced[id]; other != "" {
		return other
	}
	return id
}

func (p *patcher) putNodes(made *workgraph.Graph, read plan.Graph) {
	for i := range p.v.Graph.Nodes {
		if id := p.v.Graph.Nodes[i].ID; !p.v.fixed[id] && (!p.kept[id] || p.replaced[id] != "") {
			p.out.RemoveNodes = append(p.out.RemoveNodes, id)
		}
	}
	said := make(map[string]*plan.Problem, len(read.Problems))
	for i := range read.Problems {
		said[read.Problems[i].ID] = &read.Problems[i]
	}
	for i := range made.Nodes {
		n := made.Nodes[i]
		n.ID = p.ids[n.ID]
		if p.v.fixed[n.ID] {
			continue
		}
		n, _ = p.renamed(n, p.ids)
		old := p.v.nodes[n.ID]
		if old == nil {
			p.out.PutNodes = append(p.out.PutNodes, n)
			continue
		}
		was, moved := p.renamed(*old, nil)
		changed, differs := p.v.merged(&was, &n, said[n.Name])
		if changed.ID = p.now(n.ID); differs || moved || changed.ID != n.ID {
			p.out.PutNodes = append(p.out.PutNodes, changed)
		}
	}
}

// renamed is a node whose references and bindings name nodes as they are called after the patch. ids are the
// ids of the run by those in the node; nil if they are the same.
func (p *patcher) renamed(n workgraph.Node, ids map[string]string) (out workgraph.Node, differs bool) {
	now := func(id string) string {
		if ids != nil {
			id = ids[id]
		}
		return p.now(id)
	}
	for arg, b := range n.Bind {
		var uses []workgraph.ResultUse
		for i, u := range b.Uses {
			if id := now(u.Node); id != u.Node {
				if uses == nil {
					uses = slices.Clone(b.Uses)
				}
				uses[i].Node = id
			}
		}
		if uses != nil {
			if !differs {
				n.Bind, differs = maps.Clone(n.Bind), true
			}
			n.Bind[arg] = workgraph.Binding{Value: b.Value, Uses: uses}
		}
	}
	var refs []compile.Reference
	if len(n.Named[compile.ArgReferences]) == 0 || json.Unmarshal(n.Named[compile.ArgReferences], &refs) != nil {
		return n, differs
	}
	moved := false
	for i := range refs {
		if id := now(refs[i].Node); id != refs[i].Node {
			refs[i].Node, moved = id, true
		}
	}
	raw, err := json.Marshal(refs)
	if err != nil || !moved {
		return n, differs // texts always marshal
	}
	n.Named = maps.Clone(n.Named)
	n.Named[compile.ArgReferences] = raw
	return n, true
}

// merged is an open node with what the answer says differently. What the answer does not say stays.
func (v *reviser) merged(old, compiled *workgraph.Node, said *plan.Problem) (out workgraph.Node, differs bool) {
	request, key := requestOf(old)
	if said.Tool != "" && said.Tool != old.Actor {
		return *compiled, true
	}
	out = *old
	out.Named = maps.Clone(old.Named)
	if key != "" && said.Request != "" && said.Request != request {
		_, from := requestOf(compiled)
		out.Named[key], differs = compiled.Named[from], true
	}
	had, has := v.argsOf(old), v.argsOf(compiled)
	if len(said.Args) == 0 || maps.EqualFunc(had, has, sameValue) {
		return out, differs
	}
	if out.Named == nil {
		out.Named = map[string]json.RawMessage{}
	}
	if out.Actor != v.defaultActor() {
		for name := range had {
			delete(out.Named, name)
		}
		for name := range has {
			if value, ok := compiled.Named[name]; ok {
				out.Named[name] = value
			}
		}
	}
	for _, name := range []string{compile.ArgArguments, compile.ArgReferences} {
		if value, ok := compiled.Named[name]; ok {
			out.Named[name] = value
		} else {
			delete(out.Named, name)
		}
	}
	out.Bind = compiled.Bind
	return out, true
}

// sameValue compares values of arguments, whatever their spaces.
func sameValue(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// edges removes and adds edges into open nodes. Edges of replaced nodes move to the new node, and those of
// removed ones go with them.
func (p *patcher) edges() {
	gone := map[string]bool{}
	for _, id := range p.out.RemoveNodes {
		gone[id] = p.replaced[id] == ""
	}
	has := map[ends]bool{} // data edges after the patch
	for i := range p.v.Graph.Edges {
		e := p.v.Graph.Edges[i]
		if gone[e.From] || gone[e.To] || p.v.fixed[e.To] {
			continue
		}
		moved := p.now(e.From) != e.From || p.now(e.To) != e.To
		if isData(&e) && !p.needs[ends{e.From, e.To}] {
			if !moved {
				p.out.RemoveEdges = append(p.out.RemoveEdges, e)
			}
			continue
		}
		if moved {
			e.From, e.To = p.now(e.From), p.now(e.To)
			p.out.AddEdges = append(p.out.AddEdges, e)
		}
		if isData(&e) {
			has[ends{e.From, e.To}] = true
		}
	}
	for _, x := range p.order {
		if x = (ends{p.now(x.from), p.now(x.to)}); !has[x] {
			has[x] = true
			p.out.AddEdges = append(p.out.AddEdges, workgraph.Edge{From: x.from, To: x.to})
		}
	}
}
