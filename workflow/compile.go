package workflow

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Compile makes the graph of a definition. Every fault is told at once, in the order of the text; the
// graph is nil if there is any. Whether the actors exist, and take what they are given, is for
// workgraph.Validate, with the actors of a server: Place says where the fault of a node stands in the
// text.
func Compile(d *Definition) (*workgraph.Graph, Faults) {
	c := newCompiler(&teller{lines: d.lines}, d)
	c.compile()
	if len(c.faults) > 0 {
		return nil, c.faults.sorted()
	}
	return c.g, nil
}

// Warnings are what is likely to be wrong with a definition that compiles, in the order of the text.
func Warnings(d *Definition) Faults {
	c := newCompiler(&teller{lines: d.lines}, d)
	c.compile()
	return c.warnings.sorted()
}

// compile makes the graph.
func (c *compiler) compile() {
	d := c.d
	c.g.Name = d.Name
	c.declareState()
	c.declare(d.Steps, place{})
	c.begin(d.Inputs)
	ends := c.sequence(d.Steps, []end{{from: inputsID}}, false)
	for _, s := range c.order {
		c.routes(s)
	}
	if len(d.Outputs) > 0 && !c.tooLarge {
		c.outputs(ends)
	}
	c.unusedMembers()
	c.unusedThreads()
}

func newCompiler(t *teller, d *Definition) *compiler {
	return &compiler{teller: t, d: d, g: &workgraph.Graph{}, steps: map[string]*Step{}, place: map[string]int{}, claims: map[string][]end{}, number: map[string]int{}, home: map[string]int{},
		homes: []int{-1}, exprs: map[string]error{}, teamed: map[string]bool{}, worked: map[string]bool{}, scope: d.Name, inner: map[*Definition]*workgraph.Graph{}, loop: map[string]*Step{}, inMap: map[string]*Step{}, keys: map[string]StateKey{}, reads: map[string]*reader{}, in: map[string][]end{},
		stepsAre: map[string]typing.Type{}, itemsAre: map[string]typing.Type{}, toolsSet: setByTools(d.Agents), hidden: map[string]bool{}}
}

// begin puts the node that every run begins with.
func (c *compiler) begin(inputs json.RawMessage) {
	n := workgraph.Node{ID: inputsID, Name: inputsID, Actor: "cel", Named: map[string]json.RawMessage{"expr": jsonText("input.named")}, PassDown: workgraph.Merge(passNothing)}
	if inputs != nil {
		n.Check, n.Retry = &workgraph.Check{Schema: inputs}, workgraph.Retry{MaxAttempts: 1}
		c.declareInputs()
	}
	c.put(n, nil)
}

// declareInputs notes what is known of the inputs.
func (c *compiler) declareInputs() {
	c.inputs, _ = closed(c.d.Inputs)
	for _, name := range slices.Sorted(maps.Keys(c.inputs)) {
		if c.inputs[name] {
			c.mustInputs = append(c.mustInputs, name)
		}
	}
	c.inputsAre = typing.OfSchema(c.d.Inputs)
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
	// steps are all steps by id, and place is the number of each in the order in which they are
	// compiled.
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
	// loop is the loop around a step, or around a node that stands for one, and inMap the map around a
	// step.
	loop, inMap map[string]*Step
	// keys are those of the state, and reads the nodes that read them before a step.
	keys  map[string]StateKey
	reads map[string]*reader
	// in are the ways to each step.
	in map[string][]end
	// mustInputs are the inputs that must be given, sorted.
	mustInputs []string
	// inputsAre is the type of the inputs, stepsAre are those of the results of steps, and itemsAre
	// those of the items that steps go through, by id.
	inputsAre          typing.Type
	stepsAre, itemsAre map[string]typing.Type
	// hidden are the ids of steps of which nothing is known.
	hidden map[string]bool
	// toolsSet says that tools of agents set the state.
	toolsSet bool
	// above is the compiler of the workflow around the body of the map `of`, whose items are called
	// `as`. nil for a workflow itself.
	above *compiler
	of    *Step
	as    string
	// handed names the input by which something of the workflow around is known here.
	handed  func(r *ref, v *value) (string, bool)
	handing handing
	// exprs are the expressions that were compiled.
	exprs map[string]error
	// inner are the workflows within this one that were compiled, nil for one with faults.
	inner map[*Definition]*workgraph.Graph
	// teamed are the agents that belong to a team.
	teamed   map[string]bool
	warnings Faults
	// working are the steps on threads that others may work on, too, and worked the threads with a name that
	// somebody works on. scope is the name under which the agents remember.
	working []working
	worked  map[string]bool
	scope   string
	// fanned is the map around the graph whose runs work side by side, nil for none.
	fanned *Step
	// bytes are those of the arguments so far.
	bytes int
	// tooLarge says that the graph is beyond its bounds, so that no more of it is made.
	tooLarge bool
}

// The bounds of a graph.
const maxEdges, maxGraphBytes = 50_000, 16 << 20

// reserved are words that expressions, scripts or this language use otherwise.
var reserved = map[string]bool{
	inputsID: true, outputsID: true, itemID: true, stateID: true, onward: true, "default": true, "script": true, "max_steps": true, "named": true, "args": true, "main": true, "result": true,
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

// place is where steps stand: in which sequence, and within which loop and map.
type place struct {
	home         int
	loop, around *Step
}

// declare notes all steps, so that references and routes to later ones are known.
func (c *compiler) declare(steps []*Step, p place) {
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
				c.enlist(s, p)
			}
		}
		c.declareIn(s, p, c.declare)
	}
}

// enlist notes one step.
func (c *compiler) enlist(s *Step, p place) {
	c.steps[s.ID], c.place[s.ID], c.home[s.ID], c.loop[s.ID], c.inMap[s.ID] = s, len(c.order), p.home, p.loop, p.around
	c.order = append(c.order, s)
}

// declareIn declares the steps within a step.
func (c *compiler) declareIn(s *Step, p place, declare func([]*Step, place)) {
	switch s.body.(type) {
	case *loopBody:
		p.loop = s
	case *mapBody, *bestBody:
		p.around = s
	}
	for _, in := range s.within() {
		c.homes = append(c.homes, p.home)
		inner := p
		inner.home = len(c.homes) - 1
		declare(in, inner)
	}
}

// enlistAll notes the steps of a body whose faults were told with those of the workflow around it.
func (c *compiler) enlistAll(steps []*Step, p place) {
	for _, s := range steps {
		if s.Parallel == nil && c.steps[s.ID] == nil {
			c.enlist(s, p)
		}
		c.declareIn(s, p, c.enlistAll)
	}
}

// sequence compiles steps that follow each other, and returns the ways on from the last ones. routed
// says that they are the own steps of a switch.
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
			if in, ends = open(), nil; len(in) == 0 && c.d.unread.any {
				c.hide(s) // what leads to it may be what could not be read
				continue
			} else if len(in) == 0 {
				c.at(s.at, "ORPHAN_STEP", "let the switch before it lead to it by `route`, or say `default: continue`", "nothing leads to the step %q", clip(s.ID))
			}
		}
		ends = append(ends, c.step(s, in)...)
	}
	return open()
}

// after is the way on from a step that another one needs.
func (c *compiler) after(s *Step) end {
	if s.set != nil {
		return end{from: s.ID + setPart}
	}
	return end{from: c.resultNode(s)}
}

// needed are the ways from the steps that a step needs.
func (c *compiler) needed(s *Step) []end {
	var out []end
	for _, v := range s.needs {
		id := v.text
		switch other := c.steps[id]; {
		case c.mayBe(id):
		case other == nil:
			c.at(v, "UNKNOWN_STEP", c.didYouMean(id, c.ids()), "there is no step %q", clip(id))
		case c.place[id] >= c.place[s.ID]:
			c.at(v, "NEEDS_LATER_STEP", "put the other one first", "the step %q stands behind this one", clip(id))
		case c.loop[id] != c.loop[s.ID] || c.inMap[id] != c.inMap[s.ID]:
			c.at(v, "NEEDS_ACROSS_LOOP", "name steps of the same body, or the loop itself", "the step %q does not stand in the same loop or map", clip(id))
		default:
			out = append(out, c.after(other))
		}
	}
	if len(s.needs) == 0 {
		out = []end{{from: inputsID}}
		if loop := c.loop[s.ID]; loop != nil {
			c.at(s.needsAt, "NEEDS_ACROSS_LOOP", "name a step of the body, or use `parallel`", "a step within a loop begins with the round, not with the run")
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
	c.in[s.ID] = in
	var out []end
	switch b := s.body.(type) {
	case *loopBody:
		out = c.goRound(s, b, in)
	case *mapBody:
		out = c.eachItem(s, b, in)
	case *bestBody:
		out = c.attempts(s, b, in)
	case *unreadBody:
		c.put(workgraph.Node{ID: s.ID}, in)
		s.body.node(c, s, nil)
		c.hide(s)
		out = []end{{from: s.ID}}
	default:
		n := workgraph.Node{ID: s.ID, Timeout: workgraph.Duration(s.Timeout), OnError: s.OnError, Retry: workgraph.Retry{MaxAttempts: s.Retry}}
		// What stands before the node is known before its arguments are made.
		c.put(n, in)
		at := len(c.g.Nodes) - 1
		s.body.node(c, s, &n)
		c.caches(s, &n)
		c.g.Nodes[at] = n
		c.weigh(s, &n)
		out = []end{{from: s.ID}}
		if sw, ok := s.body.(*switchBody); ok {
			out = c.branches(s, sw)
		}
	}
	switch {
	case s.keepsError():
		c.stepsAre[s.ID] = c.stepsAre[s.ID].Or(failedType)
	case s.OnError.Action == workgraph.Fallback:
		c.stepsAre[s.ID] = c.stepsAre[s.ID].Or(typing.OfJSON(s.OnError.Value))
	}
	if s.set == nil || c.tooLarge {
		return out
	}
	return c.putWith(s, workgraph.Node{ID: s.ID + setPart}, out, func(n *workgraph.Node, as *Step) { c.sets(as, n, s.set) })
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

// direct are the steps right before a step.
func (c *compiler) direct(s *Step) []string { return c.directly(c.in[s.ID]) }

// body is that of a step, nil for other nodes.
func (c *compiler) body(id string) body {
	if s := c.steps[id]; s != nil {
		return s.body
	}
	return nil
}

// keepsError reports whether the error of a failed step is its result, {"error": …}.
func (s *Step) keepsError() bool {
	return s.OnError.Action == workgraph.Fallback && s.OnError.Value == nil
}

// fields are those of a step's result, nil if they are not known.
func (s *Step) fields() []string {
	of := s.resultFields()
	if of != nil && s.keepsError() {
		of = append(slices.Clone(of), errorField)
	}
	return of
}

// resultFields are those of the result of a step that did not fail, nil if they are not known.
func (s *Step) resultFields() []string {
	switch b := s.body.(type) {
	case *askBody:
		return b.fields
	case *switchBody:
		return []string{"route"}
	case *assertionBody:
		return []string{"passed", "score", "results"}
	case *userBody:
		return []string{"user_id", "chat_id", "run_id"}
	case *loopBody:
		return []string{"last"}
	case *bestBody:
		if b.judge != nil {
			return []string{"best", "number", "reason"}
		}
		return []string{"best", "number", "scores"}
	case *teamBody:
		return []string{"text", "from", "data", "stop", "turns", "messages", "state", "thread_id", "threads"}
	}
	return nil
}

// argument gives a node a value with references, and returns these.
func (c *compiler) argument(s *Step, n *workgraph.Node, name string, v *value) []ref {
	if v == nil {
		return nil
	}
	refs := c.refs(v)
	for i := range refs {
		if !c.known(s, &refs[i], v, true) {
			return refs
		}
		c.bindable(n, &refs[i])
	}
	argument(n, name, v.json(), refs)
	return refs
}

// bindable lets a reference read a node, which a binding of n needs.
func (c *compiler) bindable(n *workgraph.Node, r *ref) {
	if r.key != "" {
		c.reading(n, r)
	}
}

// expression lets a node evaluate an expression. References in it stand for the values of steps.
func (c *compiler) expression(s *Step, n *workgraph.Node, v *value) {
	if src, refs, ok := c.filled(v, func(r *ref) bool { return c.known(s, r, v, true) }); ok {
		c.evaluates(n, v, src)
		if _, alone := wholeMark(v); alone {
			c.stepsAre[s.ID] = valueType(v, refs)
		}
	}
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

// safeLength is how long an expression of rules and references may be without anything in it being refused.
const safeLength = 2000

// evaluatesOwn gives a node an expression that is made of references and of those rules. Nothing of it is of
// the author's but names and values, so it is right unless it is long or has a pattern; to compile each one
// would take most of the time of a large workflow.
func (c *compiler) evaluatesOwn(n *workgraph.Node, v *value, src string, rules ...rule) {
	if len(src) > safeLength || slices.ContainsFunc(rules, func(r rule) bool { return strings.HasSuffix(r.operator, "matches") }) {
		c.compiles(v, src)
	}
	c.expressed(n, src)
}

// evaluates gives a node its expression, and tells a fault of it at v.
func (c *compiler) evaluates(n *workgraph.Node, v *value, src string) {
	c.compiles(v, src)
	c.expressed(n, src)
}

func (c *compiler) expressed(n *workgraph.Node, src string) {
	if n.Named == nil {
		n.Named = map[string]json.RawMessage{}
	}
	n.Named["expr"] = jsonText(src)
}

// compiles tells a fault of an expression at v.
func (c *compiler) compiles(v *value, src string) {
	err, known := c.exprs[src]
	if !known && !c.full() {
		_, err = workgraph.CompileExpr(context.Background(), src)
		c.exprs[src] = err
	}
	if err != nil {
		c.at(v, "BAD_EXPRESSION", "", "the expression cannot be used: %v", err)
	}
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
		case c.mayBe(v.text) && other == nil:
		case other == nil:
			c.at(v, "UNKNOWN_ROUTE", c.didYouMean(v.text, c.ids()), "the route leads to the step %q, which there is not", clip(v.text))
		case c.place[v.text] <= c.place[s.ID]:
			c.at(v, "ROUTE_GOES_BACK", "a switch leads to steps behind it", "the step %q stands before the switch", clip(v.text))
		case !c.around(c.home[v.text], c.home[s.ID]):
			c.at(v, "ROUTE_LEADS_INTO", "route to a step of the same list", "the step %q stands in another branch, or in the own steps of a switch", clip(v.text))
		case c.loop[v.text] != c.loop[s.ID] || c.inMap[v.text] != c.inMap[s.ID]:
			c.at(v, "ROUTE_LEAVES_LOOP", "end the body, and route behind the loop; `until` ends a loop early", "the step %q stands outside of the loop or the map that the switch stands in", clip(v.text))
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
	k := len(c.g.Nodes) - 1
	c.argument(s, &n, "value", c.d.outputs)
	c.g.Nodes[k] = n
}
