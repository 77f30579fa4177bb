package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Compile makes the graph of a definition. Every fault is told at once, in the order of the text; the
// graph is nil if there is any. Whether the actors exist, and take what they are given, is for
// workgraph.Validate, with the actors of a server: Place says where the fault of a node stands in the
// text.
func Compile(d *Definition) (*workgraph.Graph, Faults) {
	c := &compiler{teller: &teller{lines: d.lines}, d: d, g: &workgraph.Graph{Name: d.Name}, steps: map[string]*Step{}, place: map[string]int{}, claims: map[string][]end{}}
	c.declare(d.Steps)
	begin := workgraph.Node{ID: inputsID, Name: "inputs", Actor: "cel", Named: map[string]json.RawMessage{"expr": jsonText("input.named")}, PassDown: workgraph.Merge("{'args': [], 'named': {}}")}
	if d.Inputs != nil {
		begin.Check, begin.Retry = &workgraph.Check{Schema: d.Inputs}, workgraph.Retry{MaxAttempts: 1}
	}
	c.put(begin, nil)
	ends := c.sequence(d.Steps, []end{{from: inputsID}})
	for _, s := range c.order {
		c.routes(s)
	}
	if len(d.Outputs) > 0 {
		c.outputs(ends)
	}
	if len(c.faults) > 0 {
		return nil, c.faults.sorted()
	}
	return c.g, nil
}

// Place is where a step stands in the text that a definition was read from. ok is false for other ids.
func (d *Definition) Place(step string) (p Place, ok bool) {
	var find func(steps []*Step) bool
	find = func(steps []*Step) bool {
		for _, s := range steps {
			if s.ID == step && s.Parallel == nil {
				p = s.at.at
				return true
			}
			for _, in := range s.within() {
				if find(in) {
					return true
				}
			}
		}
		return false
	}
	ok = find(d.Steps)
	return p, ok
}

// Size is how many steps there are, those within others included.
func (d *Definition) Size() int {
	var count func(steps []*Step) int
	count = func(steps []*Step) int {
		n := 0
		for _, s := range steps {
			if s.Parallel == nil {
				n++
			}
			for _, in := range s.within() {
				n += count(in)
			}
		}
		return n
	}
	return count(d.Steps)
}

// within are the sequences of steps in a step.
func (s *Step) within() [][]*Step {
	out := slices.Clone(s.Parallel)
	if b, ok := s.body.(*switchBody); ok {
		for _, r := range b.rules {
			out = append(out, r.steps)
		}
		out = append(out, b.rest)
	}
	return out
}

// compiler makes one graph.
type compiler struct {
	*teller
	d *Definition
	g *workgraph.Graph
	// steps are all steps by id, and place is the number of each in the order in which they are compiled.
	steps map[string]*Step
	place map[string]int
	order []*Step
	// before are the nodes before each node, as a set of numbers of nodes, by number.
	before []set
	number map[string]int
	// claims are the ways to steps that a switch names.
	claims map[string][]end
}

// end is a way on from a node, and what must hold for it.
type end struct{ from, when string }

// set is a set of small numbers.
type set []uint64

func (s set) has(n int) bool { return n/64 < len(s) && s[n/64]&(1<<(n%64)) != 0 }

func (s *set) add(n int) {
	for len(*s) <= n/64 {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s *set) merge(other set) {
	for len(*s) < len(other) {
		*s = append(*s, 0)
	}
	for i, w := range other {
		(*s)[i] |= w
	}
}

// declare notes all steps, so that references and routes to later ones are known.
func (c *compiler) declare(steps []*Step) {
	for _, s := range steps {
		if s.Parallel == nil {
			at := s.at
			if id := s.at.get("id"); id != nil {
				at = id
			}
			switch was := c.steps[s.ID]; {
			case s.ID == inputsID || s.ID == itemID || s.ID == onward:
				c.at(at, "BAD_ID", "choose another", "%q cannot be the id of a step: it has a meaning of its own", s.ID)
			case was != nil:
				c.at(at, "DUPLICATE_ID", "give one of them another `id`", "there is a step %q already, in line %d", clip(s.ID), was.at.at.Line)
			default:
				c.steps[s.ID], c.place[s.ID] = s, len(c.order)
				c.order = append(c.order, s)
			}
		}
		for _, in := range s.within() {
			c.declare(in)
		}
	}
}

// put adds a node with the edges into it.
func (c *compiler) put(n workgraph.Node, in []end) {
	c.g.Nodes = append(c.g.Nodes, n)
	if c.number == nil {
		c.number = map[string]int{}
	}
	var before set
	seen := make(map[end]bool, len(in))
	for _, e := range in {
		if seen[e] {
			continue
		}
		seen[e] = true
		c.g.Edges = append(c.g.Edges, workgraph.Edge{From: e.from, To: n.ID, When: e.when})
		if k, ok := c.number[e.from]; ok {
			before.merge(c.before[k])
			before.add(k)
		}
	}
	c.number[n.ID] = len(c.before)
	c.before = append(c.before, before)
}

// sequence compiles steps that follow each other, and returns the ways on from the last ones.
func (c *compiler) sequence(steps []*Step, ends []end) []end {
	ends = slices.Clone(ends) // other branches begin with them, too
	// What stands behind a step does not follow those that it needs besides.
	needed := map[string]bool{}
	open := func() []end { return slices.DeleteFunc(ends, func(e end) bool { return needed[e.from] }) }
	for _, s := range steps {
		if s.Parallel != nil {
			var out []end
			for _, branch := range s.Parallel {
				out = append(out, c.sequence(branch, open())...)
			}
			ends = out
			continue
		}
		var in []end
		claimed := c.claims[s.ID]
		switch {
		case s.hasNeeds:
			in = c.needed(s)
			for _, n := range in {
				needed[n.from] = true
			}
			in = append(in, claimed...)
		case len(claimed) > 0:
			in = claimed
		default:
			if in, ends = open(), nil; len(in) == 0 {
				c.at(s.at, "ORPHAN_STEP", "let the switch before it lead to it by `route`, or say `default: continue`", "nothing leads to the step %q", clip(s.ID))
			}
		}
		ends = append(ends, c.step(s, in)...)
	}
	return open()
}

// needed are the ways from the steps that a step needs.
func (c *compiler) needed(s *Step) []end {
	var out []end
	for _, v := range c.needs(s) {
		id := v.text
		switch other := c.steps[id]; {
		case other == nil:
			c.at(v, "UNKNOWN_STEP", c.didYouMean(id, c.ids()), "there is no step %q", clip(id))
		case c.place[id] >= c.place[s.ID]:
			c.at(v, "NEEDS_LATER_STEP", "put the other one first", "the step %q stands behind this one", clip(id))
		default:
			out = append(out, end{from: id})
		}
	}
	if len(s.Needs) == 0 {
		out = []end{{from: inputsID}}
	}
	return out
}

// needs are the texts of a step's `needs`.
func (c *compiler) needs(s *Step) []*value {
	if s.needsAt == nil {
		return nil
	}
	if s.needsAt.kind == text {
		return []*value{s.needsAt}
	}
	var out []*value
	for _, v := range s.needsAt.items {
		if v.kind == text {
			out = append(out, v)
		}
	}
	return out
}

func (c *compiler) ids() []string {
	if c.full() {
		return nil // nobody is told
	}
	ids := make([]string, len(c.order))
	for i, s := range c.order {
		ids[i] = s.ID
	}
	return ids
}

// didYouMean is the hint for a name that there is not.
func (c *compiler) didYouMean(name string, among []string) string {
	if c.full() {
		return "" // nobody is told
	}
	if best := nearest(name, among); best != "" {
		return "did you mean `" + best + "`?"
	}
	if len(among) > 0 && len(among) <= 10 {
		return "there is " + words(among, "and")
	}
	return ""
}

// step compiles a step, and returns the ways on from it.
func (c *compiler) step(s *Step, in []end) []end {
	n := workgraph.Node{ID: s.ID, Timeout: workgraph.Duration(s.Timeout), OnError: s.OnError, Retry: workgraph.Retry{MaxAttempts: s.Retry}}
	// What stands before the node is known before its arguments are made.
	c.put(n, in)
	at := len(c.g.Nodes) - 1
	if sw, ok := s.body.(*switchBody); ok {
		c.chooses(s, sw, &n)
		c.g.Nodes[at] = n
		return c.branches(s, sw)
	}
	s.body.node(c, s, &n)
	c.g.Nodes[at] = n
	return []end{{from: s.ID}}
}

// direct are the steps whose ends lead to a step that was just put.
func (c *compiler) direct(s *Step) []string {
	var out []string
	seen := map[string]bool{}
	for _, e := range slices.Backward(c.g.Edges) {
		if e.To != s.ID {
			break
		}
		if e.From != inputsID && !seen[e.From] {
			seen[e.From] = true
			out = append(out, e.From)
		}
	}
	slices.Reverse(out)
	return out
}

// known tells of a reference to something that is not there, or does not come before a step.
func (c *compiler) known(s *Step, r ref, v *value) bool {
	tell := func(code, hint, format string, args ...any) bool {
		c.add(Fault{Code: code, Place: r.at, Path: v.path(), Message: fmt.Sprintf(format, args...), Hint: hint})
		return false
	}
	if r.step == inputsID {
		if fields := c.inputFields(); len(r.path) > 0 && fields != nil && !slices.Contains(fields, r.path[0].field) {
			return tell("UNKNOWN_INPUT", c.didYouMean(r.path[0].field, fields), "the workflow has no input %q", clip(r.path[0].field))
		}
		return true
	}
	other := c.steps[r.step]
	if other == nil {
		return tell("UNKNOWN_STEP", c.didYouMean(r.step, append(c.ids(), inputsID)), "there is no step %q", clip(r.step))
	}
	k, done := c.number[r.step]
	if !done || !c.before[c.number[s.ID]].has(k) {
		return tell("NOT_BEFORE", "let it come before by `needs`, or by the order of the steps", "the step %q does not come before %q", clip(r.step), clip(s.ID))
	}
	if fields := other.fields(); len(r.path) > 0 && fields != nil && !slices.Contains(fields, r.path[0].field) {
		return tell("UNKNOWN_FIELD", c.didYouMean(r.path[0].field, fields), "the result of the step %q has no field %q", clip(r.step), clip(r.path[0].field))
	}
	return true
}

// fields are those of a step's result, nil if they are not known.
func (s *Step) fields() []string {
	switch b := s.body.(type) {
	case *askBody:
		return b.fields
	case *switchBody:
		return []string{"route"}
	case *assertionBody:
		return []string{"passed", "score", "results"}
	}
	return nil
}

// inputFields are the declared inputs, nil if any may come.
func (c *compiler) inputFields() []string {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if c.d.Inputs == nil || json.Unmarshal(c.d.Inputs, &schema) != nil || len(schema.Properties) == 0 {
		return nil
	}
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// argument gives a node a value with references, and returns these.
func (c *compiler) argument(s *Step, n *workgraph.Node, name string, v *value) []ref {
	if v == nil {
		return nil
	}
	refs := c.refs(v)
	for _, r := range refs {
		if !c.known(s, r, v) {
			return refs
		}
	}
	argument(n, name, v.json(), refs)
	return refs
}

// expression lets a node evaluate an expression. References in it stand for the values of steps.
func (c *compiler) expression(s *Step, n *workgraph.Node, v *value) {
	src := v.text
	for _, r := range c.refs(v) {
		if !c.known(s, r, v) {
			return
		}
		src = strings.ReplaceAll(src, r.mark, r.expr())
	}
	n.Named = map[string]json.RawMessage{"expr": jsonText(src)}
}

// conditions checks the references of rules, and returns their conditions.
func (c *compiler) conditions(s *Step, rules []rule) []string {
	var out []string
	for _, r := range rules {
		if r.field == nil || r.ref.step != itemID && !c.known(s, r.ref, r.field) {
			continue
		}
		out = append(out, r.expr())
	}
	return out
}

func (b *switchBody) node(*compiler, *Step, *workgraph.Node) {}

// chooses lets the node of a switch give its route.
func (c *compiler) chooses(s *Step, b *switchBody, n *workgraph.Node) {
	n.Actor = "cel"
	rules := make([]rule, len(b.rules))
	for i := range b.rules {
		rules[i] = b.rules[i].rule
	}
	var src strings.Builder
	for i, cond := range c.conditions(s, rules) {
		if i < len(b.rules) {
			src.WriteString("(" + cond + ") ? {'route': " + literal(b.rules[i].name(i)) + "} : ")
		}
	}
	rest := "default"
	if b.route != nil {
		rest = b.route.text
	}
	src.WriteString("{'route': " + literal(rest) + "}")
	n.Named = map[string]json.RawMessage{"expr": jsonText(src.String())}
	if b.route == nil && b.otherwise == nil {
		n.Check = &workgraph.Check{CEL: "result.route != 'default'"}
		n.Retry = workgraph.Retry{MaxAttempts: 1}
	}
}

// branches are the ways on from a switch: those to steps that it names are taken when these come.
func (c *compiler) branches(s *Step, b *switchBody) []end {
	way := func(route string) end { return end{s.ID, "result.route == " + literal(route)} }
	var out []end
	lead := func(route *value, e end) {
		if route.text == onward {
			out = append(out, e)
			return
		}
		if !slices.Contains(c.claims[route.text], e) {
			c.claims[route.text] = append(c.claims[route.text], e)
		}
	}
	for i, r := range b.rules {
		e := way(r.name(i))
		if r.route != nil {
			lead(r.route, e)
			continue
		}
		out = append(out, c.sequence(r.steps, []end{e})...)
	}
	switch {
	case b.route != nil:
		lead(b.route, way(b.route.text))
	case b.otherwise != nil:
		out = append(out, c.sequence(b.rest, []end{way("default")})...)
	}
	return out
}

// routes tells of routes that lead nowhere, or back.
func (c *compiler) routes(s *Step) {
	b, ok := s.body.(*switchBody)
	if !ok {
		return
	}
	check := func(v *value) {
		if v == nil || v.text == onward {
			return
		}
		switch other := c.steps[v.text]; {
		case other == nil:
			c.at(v, "UNKNOWN_ROUTE", c.didYouMean(v.text, c.ids()), "the route leads to the step %q, which there is not", clip(v.text))
		case c.place[v.text] <= c.place[s.ID]:
			c.at(v, "ROUTE_GOES_BACK", "a switch leads to steps behind it", "the step %q stands before the switch", clip(v.text))
		}
	}
	for _, r := range b.rules {
		check(r.route)
	}
	check(b.route)
}

func (b *assertionBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "cel"
	conds := c.conditions(s, b.rules)
	for i := range conds {
		conds[i] = "(" + conds[i] + ")"
	}
	list := "[" + strings.Join(conds, ", ") + "]"
	count := "double(" + list + ".filter(x, x).size()) / " + strconv.Itoa(max(1, len(conds))) + ".0"
	threshold := strconv.FormatFloat(b.threshold, 'f', 9, 64)
	n.Named = map[string]json.RawMessage{"expr": jsonText("{'passed': " + count + " >= " + threshold + ", 'score': " + count + ", 'results': " + list + "}")}
	n.Check, n.Retry = &workgraph.Check{CEL: "result.passed"}, workgraph.Retry{MaxAttempts: 1}
}

func (b *filterBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "cel"
	if b.over == nil || !c.known(s, b.ref, b.over) {
		return
	}
	conds := c.conditions(s, b.rules)
	for i := range conds {
		conds[i] = "(" + conds[i] + ")"
	}
	n.Named = map[string]json.RawMessage{"expr": jsonText(b.ref.expr() + ".filter(" + itemID + ", " + strings.Join(conds, " && ") + ")")}
}

// outputs adds the node that makes the result of the run.
func (c *compiler) outputs(ends []end) {
	const id = "outputs"
	if c.steps[id] != nil {
		c.at(c.steps[id].at, "BAD_ID", "choose another", "%q cannot be the id of a step: it has a meaning of its own", id)
		return
	}
	n := workgraph.Node{ID: id, Actor: "cel", Named: map[string]json.RawMessage{"expr": jsonText("named.value")}}
	c.put(n, ends)
	s := &Step{ID: id, at: c.d.outputs}
	c.argument(s, &n, "value", c.d.outputs)
	c.g.Nodes[len(c.g.Nodes)-1] = n
}

func number1(n int) json.RawMessage { return json.RawMessage(strconv.Itoa(n)) }
