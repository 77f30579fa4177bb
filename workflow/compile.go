package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Compile makes the graph of a definition. Every fault is told at once, in the order of the text; the
// graph is nil if there is any. Whether the actors exist, and take what they are given, is for
// workgraph.Validate, with the actors of a server: Place says where the fault of a node stands in the
// text.
func Compile(d *Definition) (*workgraph.Graph, Faults) {
	c := &compiler{teller: &teller{lines: d.lines}, d: d, g: &workgraph.Graph{Name: d.Name}, steps: map[string]*Step{}, place: map[string]int{}, claims: map[string][]end{},
		number: map[string]int{}, home: map[string]int{}, homes: []int{-1}, exprs: map[string]error{}}
	c.declare(d.Steps, 0)
	begin := workgraph.Node{ID: inputsID, Name: "inputs", Actor: "cel", Named: map[string]json.RawMessage{"expr": jsonText("input.named")},
		PassDown: workgraph.Merge("{'args': [], 'named': {}}")}
	if d.Inputs != nil {
		begin.Check, begin.Retry = &workgraph.Check{Schema: d.Inputs}, workgraph.Retry{MaxAttempts: 1}
		c.declareInputs()
	}
	c.put(begin, nil)
	ends := c.sequence(d.Steps, []end{{from: inputsID}}, false)
	for _, s := range c.order {
		c.routes(s)
	}
	if len(d.Outputs) > 0 && !c.tooLarge {
		c.outputs(ends)
	}
	if len(c.faults) > 0 {
		return nil, c.faults.sorted()
	}
	return c.g, nil
}

// declareInputs notes what is known of the inputs.
func (c *compiler) declareInputs() {
	c.inputs, _ = closed(c.d.Inputs)
	if _, ok := c.inputs["expr"]; ok { // it would take the place of the node's own argument
		c.at(c.d.inputs, "BAD_ID", "choose another", "`expr` cannot be the name of an input: it has a meaning of its own")
	}
	if properties := c.d.inputs.get("properties"); properties != nil {
		c.noDefaults(properties)
	} else {
		c.noDefaults(c.d.inputs)
	}
}

// noDefaults tells of defaults of inputs, which nothing fills in.
func (c *compiler) noDefaults(properties *value) {
	for i := range properties.entries {
		if given := properties.entries[i].value.get("default"); given != nil {
			c.at(given, "FIELD_NOT_USED", "leave it out, and give the input at each start", "defaults of inputs are not filled in")
		}
	}
}

// outputsID is the node that makes the result of a run.
const outputsID = "outputs"

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
	// when are the routes without which a node does not run, by number: see certain.
	when []conds
	// home is the sequence that a step stands in, and homes the sequence that each sequence stands in.
	home  map[string]int
	homes []int
	// inputs are the declared ones, and whether each must be given. nil if any may come.
	inputs map[string]bool
	// exprs are the expressions that were compiled.
	exprs map[string]error
	// bytes are those of the arguments so far.
	bytes int
	// tooLarge says that the graph is beyond its bounds, so that no more of it is made.
	tooLarge bool
}

// The bounds of a graph.
const maxEdges, maxGraphBytes = 50_000, 16 << 20

// reserved are words that expressions, scripts or this language use otherwise.
var reserved = map[string]bool{
	inputsID: true, outputsID: true, itemID: true, onward: true, "default": true, "script": true, "max_steps": true, "named": true, "args": true, "main": true, "result": true,
	// of CEL
	"in": true, "true": true, "false": true, "null": true, "as": true, "break": true, "const": true, "else": true, "for": true, "function": true, "if": true, "import": true,
	"let": true, "loop": true, "package": true, "namespace": true, "return": true, "var": true, "void": true, "while": true,
	// of Starlark
	"and": true, "def": true, "elif": true, "lambda": true, "load": true, "not": true, "or": true, "pass": true, "assert": true, "async": true, "await": true,
	"class": true, "del": true, "except": true, "finally": true, "from": true, "global": true, "is": true, "nonlocal": true, "raise": true, "try": true, "with": true, "yield": true,
	"None": true, "True": true, "False": true,
}

// ofRule is the name of the route of a rule that has steps of its own.
var ofRule = regexp.MustCompile(`^rule_[0-9]+$`)

// declare notes all steps, so that references and routes to later ones are known. home is the sequence that
// they stand in.
func (c *compiler) declare(steps []*Step, home int) {
	for _, s := range steps {
		if s.Parallel == nil {
			at := s.at
			if id := s.at.get("id"); id != nil {
				at = id
			}
			switch was := c.steps[s.ID]; {
			case reserved[s.ID] || ofRule.MatchString(s.ID):
				c.at(at, "BAD_ID", "choose another", "%q cannot be the id of a step: it has a meaning of its own", s.ID)
			case was != nil:
				c.at(at, "DUPLICATE_ID", "give one of them another `id`", "there is a step %q already, in line %d", clip(s.ID), was.at.at.Line)
			default:
				c.steps[s.ID], c.place[s.ID], c.home[s.ID] = s, len(c.order), home
				c.order = append(c.order, s)
			}
		}
		for _, in := range s.within() {
			c.homes = append(c.homes, home)
			c.declare(in, len(c.homes)-1)
		}
	}
}

// sequence compiles steps that follow each other, and returns the ways on from the last ones. routed says
// that they are the own steps of a switch.
func (c *compiler) sequence(steps []*Step, ends []end, routed bool) []end {
	ends = slices.Clone(ends) // other branches begin with them, too
	// What stands behind a step does not follow those that it needs besides.
	needed := map[string]bool{}
	open := func() []end {
		ends = slices.DeleteFunc(ends, func(e end) bool { return needed[e.from] })
		return ends
	}
	for _, s := range steps {
		if c.full() || c.tooLarge {
			break
		}
		if s.Parallel != nil {
			var out []end
			seen := map[end]bool{}
			for _, branch := range s.Parallel {
				for _, e := range c.sequence(branch, open(), routed) {
					if !seen[e] {
						seen[e] = true
						out = append(out, e)
					}
				}
			}
			ends = out
			continue
		}
		var in []end
		claimed := c.claims[s.ID]
		if s.needsAt != nil && (routed || len(claimed) > 0) {
			c.at(s.needsAt, "NEEDS_BESIDE_ROUTE", "leave `needs` out", "the step %q follows the route of a switch alone", clip(s.ID))
		}
		switch {
		case s.needsAt != nil:
			in = c.needed(s)
			for _, n := range in {
				needed[n.from] = true
			}
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
	for _, v := range s.needs {
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
	if len(s.needs) == 0 {
		out = []end{{from: inputsID}}
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
	s.body.node(c, s, &n)
	c.g.Nodes[at] = n
	c.weigh(s, &n)
	if sw, ok := s.body.(*switchBody); ok {
		return c.branches(s, sw)
	}
	return []end{{from: s.ID}}
}

// weigh counts the arguments of a node, so that what is written once and used often stays bounded.
func (c *compiler) weigh(s *Step, n *workgraph.Node) {
	for _, v := range n.Named {
		c.bytes += len(v)
	}
	for _, b := range n.Bind {
		c.bytes += len(b.Value)
	}
	if c.bytes > maxGraphBytes && !c.tooLarge {
		c.tooLarge = true
		c.at(s.at, "TOO_LARGE", "shorten what agents are told, or name agents of the configuration by agent/NAME", "the arguments of the steps come to more than %d bytes", maxGraphBytes)
	}
}

// direct are the steps whose ends lead to a step that was just put.
func (c *compiler) direct(s *Step) []string {
	var out []string
	seen := map[string]bool{}
	for _, e := range slices.Backward(c.g.Edges) {
		if e.To != s.ID {
			break
		}
		if _, isSwitch := c.body(e.From).(*switchBody); e.From != inputsID && !isSwitch && !seen[e.From] {
			seen[e.From] = true
			out = append(out, e.From)
		}
	}
	slices.Reverse(out)
	return out
}

// body is that of a step, nil for other nodes.
func (c *compiler) body(id string) body {
	if s := c.steps[id]; s != nil {
		return s.body
	}
	return nil
}

// known tells of a reference to something that is not there, or does not come before a step, or with sure may
// not have run.
func (c *compiler) known(s *Step, r ref, v *value, sure bool) bool {
	tell := func(code, hint, format string, args ...any) bool {
		c.add(Fault{Code: code, Place: r.at, Path: v.path(), Message: fmt.Sprintf(format, args...), Hint: hint})
		return false
	}
	if r.step == inputsID {
		if len(r.path) == 0 || c.inputs == nil {
			return true
		}
		name := r.path[0].field
		switch must, ok := c.inputs[name]; {
		case !ok:
			return tell("UNKNOWN_INPUT", c.didYouMean(name, slices.Sorted(maps.Keys(c.inputs))), "the workflow has no input %q", clip(name))
		case !must && sure:
			return tell("MAY_BE_MISSING", "name it in `required`, or read it in an expression that asks for it by has()", "the input %q may be missing", clip(name))
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
	if sure && !c.certain(r.step, s.ID) {
		return tell("MAY_NOT_RUN", "put the results of the branches together by a `merge` with `mode: first`, and name that one", "the step %q stands behind a switch and may not have run", clip(r.step))
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

// argument gives a node a value with references, and returns these.
func (c *compiler) argument(s *Step, n *workgraph.Node, name string, v *value) []ref {
	if v == nil {
		return nil
	}
	refs := c.refs(v)
	for _, r := range refs {
		if !c.known(s, r, v, true) {
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
		if !c.known(s, r, v, true) {
			return
		}
		if inText(v.text, r.mark) {
			c.add(Fault{Code: "BAD_REFERENCE", Place: r.at, Path: v.path(), Message: clip(r.mark) + " stands within a text of the expression", Hint: "put texts together by +, as in 'Hi ' + {{ STEP }}"})
			return
		}
		src = strings.ReplaceAll(src, r.mark, r.expr())
	}
	c.evaluates(n, v, src)
}

// inText reports whether a mark stands between the quotation marks of an expression.
func inText(src, mark string) bool {
	var quote byte
	for i := 0; i < len(src); i++ {
		switch ch := src[i]; {
		case quote != 0 && strings.HasPrefix(src[i:], mark):
			return true
		case quote != 0 && ch == '\\':
			i++
		case quote == 0 && (ch == '"' || ch == '\''):
			quote = ch
		case ch == quote:
			quote = 0
		}
	}
	return false
}

// evaluates gives a node its expression, and tells a fault of it at v.
func (c *compiler) evaluates(n *workgraph.Node, v *value, src string) {
	err, known := c.exprs[src]
	if !known && !c.full() {
		_, err = workgraph.CompileExpr(context.Background(), src)
		c.exprs[src] = err
	}
	if err != nil {
		c.at(v, "BAD_EXPRESSION", "", "the expression cannot be used: %v", err)
	}
	if n.Named == nil {
		n.Named = map[string]json.RawMessage{}
	}
	n.Named["expr"] = jsonText(src)
}

// around reports whether a sequence is another one, or holds it.
func (c *compiler) around(outer, inner int) bool {
	for ; inner >= 0; inner = c.homes[inner] {
		if inner == outer {
			return true
		}
	}
	return false
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
		case !c.around(c.home[v.text], c.home[s.ID]):
			c.at(v, "ROUTE_LEADS_INTO", "route to a step of the same list", "the step %q stands in another branch, or in the own steps of a switch", clip(v.text))
		}
	}
	for _, r := range b.rules {
		check(r.route)
	}
	check(b.route)
}

// outputs adds the node that makes the result of the run.
func (c *compiler) outputs(ends []end) {
	n := workgraph.Node{ID: outputsID, Actor: "cel", Named: map[string]json.RawMessage{"expr": jsonText("named.value")}}
	c.put(n, ends)
	s := &Step{ID: outputsID, at: c.d.outputs}
	c.argument(s, &n, "value", c.d.outputs)
	c.g.Nodes[len(c.g.Nodes)-1] = n
}
