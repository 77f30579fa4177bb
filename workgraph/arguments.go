package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/near"
)

// This file checks a node's arguments against the schema of its actor, and finds required arguments that
// nothing in the graph can give.

// maxDemanded bounds how many of an actor's required names are checked here. The actor itself finds the rest
// missing.
const maxDemanded = 100

// argSchema is the part of the JSON Schema of an actor's named arguments that validation reads.
type argSchema struct {
	properties map[string]json.RawMessage
	// names are those of the properties, sorted.
	names []string
	// closed says that there are no other properties.
	closed bool
	// demands are what a call needs. Each of them is a list of alternatives, of which all names of one are
	// needed.
	demands [][][]string
	// schemas are those of single arguments that were checked. It is nil for one that cannot be used alone.
	schemas map[string]*Schema
}

func readArgSchema(raw json.RawMessage) *argSchema {
	var m struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional *bool                      `json:"additionalProperties"`
		Required   []string                   `json:"required"`
		AnyOf      []struct {
			Required []string `json:"required"`
		} `json:"anyOf"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &m) != nil {
		return nil
	}
	s := &argSchema{properties: m.Properties, names: sortedKeys(m.Properties), closed: m.Additional != nil && !*m.Additional, schemas: map[string]*Schema{}}
	left := maxDemanded
	for _, name := range m.Required[:min(len(m.Required), left)] {
		s.demands = append(s.demands, [][]string{{name}})
		left--
	}
	var either [][]string
	for _, alt := range m.AnyOf {
		if left -= len(alt.Required); len(alt.Required) == 0 || left < 0 {
			return s // an alternative asks for something else too, or for too much
		}
		either = append(either, alt.Required)
	}
	if either != nil {
		s.demands = append(s.demands, either)
	}
	return s
}

// argumentsOf reads an actor's schema once. It is nil if the actor states none.
func (c *checker) argumentsOf(actor string, schema json.RawMessage) *argSchema {
	s, ok := c.argSchemas[actor]
	if ok {
		return s
	}
	if c.argSchemas == nil {
		c.argSchemas = map[string]*argSchema{}
	}
	s = readArgSchema(schema)
	c.argSchemas[actor] = s
	return s
}

// PlanArgument reports whether a compiled plan may give a node of ProblemKind this named argument, whatever
// its actor.
func PlanArgument(name string) bool {
	switch name {
	case "request", "user_input", "arguments", "tool", "references":
		return true
	}
	return false
}

// checkArguments checks the node's own arguments.
func (c *checker) checkArguments(i int32, n *Node, info *ActorInfo) {
	if info.Examine != nil {
		for _, a := range info.Examine(c.ctx, n) {
			if a.Fault != "" {
				c.node(CodeBadArg, n.ID, "named."+a.Arg, a.Hint, "%s", a.Fault)
				continue
			}
			c.nodeExpr(n.ID, "named."+a.Arg, a.Expr)
		}
	}
	s := c.argumentsOf(n.Actor, info.Schema)
	if s == nil {
		return
	}
	unknown := func(field, k string) {
		if _, ok := s.properties[k]; ok || !s.closed || c.full() {
			return
		}
		hint := "known are " + strings.Join(s.names[:min(len(s.names), maxNamed)], ", ")
		if near := nearName(k, s.names); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		c.node(CodeUnknownArg, n.ID, field+k, hint, "actor %q takes no argument %q", n.Actor, k)
	}
	for _, k := range sortedKeys(n.Named) {
		if _, ok := s.properties[k]; ok {
			c.checkArg(n, k, s)
		} else if n.Kind != ProblemKind || !PlanArgument(k) {
			unknown("named.", k)
		}
	}
	for _, k := range sortedKeys(n.Bind) {
		unknown("bind.", k)
	}
	for _, alternatives := range s.demands {
		if !slices.ContainsFunc(alternatives, func(names []string) bool { return given(names, n) }) {
			c.needs = append(c.needs, need{i, alternatives})
		}
	}
}

// given reports whether the node itself gives all of these arguments.
func given(names []string, n *Node) bool {
	for _, name := range names {
		_, own := n.Named[name]
		_, bound := n.Bind[name]
		if !own && !bound && (n.Map == nil || n.Map.As != name) {
			return false
		}
	}
	return true
}

// maxLikeNames bounds how many names are compared with one that may be misspelled, and maxNearName the bytes
// of each: a comparison takes the product of two lengths.
const maxLikeNames, maxNearName = 200, 64

// nearName is the one of names that was probably meant, or empty: a name with a small edit distance, else one
// that begins with the other. Only the first maxLikeNames are compared.
func nearName(name string, names []string) string {
	best, most := "", max(1, len(name)/3)
	for _, n := range names[:min(len(names), maxLikeNames)] {
		if max(len(name), len(n)) > maxNearName {
			continue
		}
		if d, ok := near.Within(strings.ToLower(name), strings.ToLower(n), most); ok {
			best, most = n, d-1
		}
		if most < 0 {
			break
		}
	}
	if best != "" || len(name) < minCommon {
		return best
	}
	for _, n := range names[:min(len(names), maxLikeNames)] {
		if len(n) >= minCommon && (strings.HasPrefix(n, name) || strings.HasPrefix(name, n)) {
			return n
		}
	}
	return ""
}

// minCommon is the least length of a name that may count as the beginning of another one.
const minCommon = 3

// need is a required argument that the node itself does not give. All names of one alternative are needed.
type need struct {
	node         int32
	alternatives [][]string
}

// Missing are faults about arguments that actors require and nothing can give in a run with this input: not
// the node itself, not the input, and no node before it. A nil input may hold everything. The error is that
// of ctx if it ended first.
func (p *Program) Missing(ctx context.Context, in *Input) ([]Fault, error) {
	var l faultList
	p.missing(ctx, in, nil, &l)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return l.all(), nil
}

// maxNameWords bounds the memory of propagatedNames, in words of 64 names of one node. Further names are left
// to the actors.
const maxNameWords = 2 << 20

// missing is Missing, as far as ctx lasts. Nodes in unsure may receive anything.
func (p *Program) missing(ctx context.Context, in *Input, unsure map[int32]bool, l *faultList) {
	if len(p.needs) == 0 {
		return
	}
	most := max(1, maxNameWords/len(p.nodes)) * 64
	names := map[string]int{}
	number := func(d *need) bool {
		for _, alt := range d.alternatives {
			for _, name := range alt {
				if _, ok := names[name]; !ok && len(names) == most {
					return false
				} else if !ok {
					names[name] = len(names)
				}
			}
		}
		return true
	}
	var needs []*need
	for i := range p.needs {
		if number(&p.needs[i]) {
			needs = append(needs, &p.needs[i])
		}
	}
	may := p.propagatedNames(ctx, in, unsure, names)
	for _, d := range needs {
		if ctx.Err() != nil {
			return
		}
		n := p.nodes[d.node].Node
		if slices.ContainsFunc(d.alternatives, func(alt []string) bool {
			return !slices.ContainsFunc(alt, func(name string) bool { return !may[d.node].has(names[name]) && !given([]string{name}, n) })
		}) || l.full() {
			continue
		}
		l.add(missing(n, d.alternatives))
	}
}

// Warnings are what may be wrong with a graph that can run, for runs with this input. A nil input stands for
// an input that is not known. The error is that of ctx if it ended first.
func (p *Program) Warnings(ctx context.Context, in *Input) ([]Fault, error) {
	var l faultList
	if in == nil {
		p.missing(ctx, &Input{}, nil, &l)
		l.faults = OnlyWithoutInput(l.faults, nil)
	}
	p.endlessCycles(ctx, &l)
	p.beforeAnswers(ctx, &l)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return l.all(), nil
}

// OnlyWithoutInput are the warnings about a graph for which no input is known: the faults of missing
// arguments with an empty input, without those in told.
func OnlyWithoutInput(empty, told []Fault) []Fault {
	type place struct{ node, field string }
	known := map[place]bool{}
	for _, f := range told {
		known[place{f.Node, f.Field}] = true
	}
	var out []Fault
	for _, f := range empty {
		if f.Code == CodeMissingArg && !known[place{f.Node, f.Field}] {
			f.Hint += "; with an input that has it nothing is wrong"
			out = append(out, f)
		}
	}
	return out
}

// maxLikeDemands bounds how many missing names are compared with the names of the node.
const maxLikeDemands = 10

func missing(n *Node, alternatives [][]string) Fault {
	lists := make([]string, len(alternatives))
	names := 0
	for i, alt := range alternatives {
		lists[i] = strings.Join(alt, " and ")
	}
	what := strings.Join(lists, " or ")
	f := Fault{Code: CodeMissingArg, Node: n.ID, Field: "named." + alternatives[0][0],
		Message: fmt.Sprintf("actor %q needs the argument %s, and nothing gives it to the node", n.Actor, what),
		Hint:    "set it in named, give it with the run's input, or let a node before this one pass it down by KEY"}
	own := sortedKeys(n.Named)
	for _, alt := range alternatives {
		for _, name := range alt {
			if names++; names > maxLikeDemands {
				return f
			}
			if near := nearName(name, own); near != "" {
				f.Hint = fmt.Sprintf("did you mean %q by named.%s?", name, near)
			}
		}
	}
	return f
}

// ordered is a partial order of the nodes of a graph whose edges are at fault. It leaves out nodes that are
// on an undeclared cycle or after one.
func (p *Program) ordered() []int32 {
	left := make([]int32, len(p.nodes))
	order := make([]int32, 0, len(p.nodes))
	for i := range p.nodes {
		if left[i] = int32(len(p.nodes[i].in)); left[i] == 0 {
			order = append(order, int32(i))
		}
	}
	for k := 0; k < len(order); k++ {
		for _, e := range p.nodes[order[k]].out {
			if pe := &p.edges[e]; pe.kind != BackEdge && !pe.message {
				if left[pe.to]--; left[pe.to] == 0 {
					order = append(order, pe.to)
				}
			}
		}
	}
	return order
}

// carriesAnything reports whether the edge by itself may pass on any named argument.
func (e *pedge) carriesAnything() bool {
	switch e.mode {
	case "", NoPassDown, ResultAsFirstArg, ResultAsLeadingArgs:
		return false
	case KeyPassDown:
		return e.key == "" // an empty key is a fault of its own
	}
	return true
}

// propagatedNames says for every node which of the named arguments may be propagated to it.
func (p *Program) propagatedNames(ctx context.Context, in *Input, unsure map[int32]bool, names map[string]int) []bitset {
	all := newBitset(len(names))
	words := len(all)
	for i := range all {
		all[i] = ^uint64(0)
	}
	input := all
	if in != nil {
		input = newBitset(len(names))
		for name, i := range names {
			if _, ok := in.Named[name]; ok {
				input.add(i)
			}
		}
	}
	sets := make([]bitset, len(p.nodes))
	buf := make(bitset, words*len(p.nodes))
	for i := range sets {
		sets[i] = buf[i*words : (i+1)*words]
		if n := &p.nodes[i]; n.inbox != nil {
			if k, ok := names["messages"]; ok {
				sets[i].add(k)
			}
		} else if len(n.in) == 0 {
			sets[i].join(input)
		}
	}
	for i := range unsure {
		sets[i].join(all)
	}
	if len(p.topo) < len(p.nodes) {
		sorted := make([]bool, len(p.nodes))
		for _, v := range p.topo {
			sorted[v] = true
		}
		for i := range sets {
			if !sorted[i] {
				sets[i].join(all)
			}
		}
	}
	out := newBitset(len(names))
	for changed := true; changed; { // one pass, and one more for each level of nested loops
		changed = false
		for _, v := range p.topo {
			if ctx.Err() != nil {
				return sets
			}
			n := &p.nodes[v]
			for _, e := range n.out {
				pe := &p.edges[e]
				if pe.message {
					continue
				}
				clear(out)
				switch {
				case pe.carriesAnything() || n.mayExpand:
					out.join(all)
				case n.inbox == nil: // messages are not propagated
					out.join(sets[v])
				}
				if k, ok := names[pe.key]; ok && pe.mode == KeyPassDown {
					out.add(k)
				}
				if sets[pe.to].join(out) && pe.kind == BackEdge {
					changed = true
				}
			}
		}
	}
	return sets
}
