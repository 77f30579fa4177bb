package workflow

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has the steps that go round: once for each item of a list, or for as long as a condition
// says.
//
//	before -> ID.list -> ID -> body … -> ID.end
//	                     ^ |              |
//	                     | '-> ID.results -> after
//	                     '------- BACK ---'
//
// ID decides in every round whether there is another one. ID.list is there with a list alone, ID.end
// only where the body has several ends.

// loopBody is a step that goes round.
type loopBody struct {
	over *value // nil for one with conditions
	when condition
	// until says that the condition ends the loop. Else the loop goes on while it holds.
	until bool
	as    string
	max   int
	limit string // what happens at max
	steps []*Step

	inline *value
}

// condition holds if all its parts do.
type condition struct {
	at       *value
	all, any []rule
	expr     *value
}

// bodySuffix ends what default ids of the steps of a body begin with.
const bodySuffix = "_body_"

// maxRounds bounds `max_iterations`.
const maxRounds = 100_000

func readLoop(t *teller, o *object) body {
	b := &loopBody{as: t.as(o), max: o.whole("max_iterations", 1, maxRounds, 100)}
	v, key := o.one("over", "while", "until")
	switch {
	case v == nil:
		o.missing("over", "a list such as `{{ STEP.items }}`, or `while` or `until` with a condition")
	case key == "over":
		b.over = t.over(v)
	default:
		b.when, b.until = t.condition(v), key == "until"
	}
	b.limit = o.word("on_limit", "pause", "pause", "fail", "continue")
	if given := o.v.get("on_limit"); given != nil && key == "over" {
		t.at(given, "FIELD_NOT_USED", "raise `max_iterations`, or cut the list before", "a list that is longer than `max_iterations` fails the run before any item")
	}
	if given := o.v.get("as"); given != nil && key != "over" && key != "" {
		t.at(given, "FIELD_NOT_USED", "remove it", "a loop without a list has no items")
	}
	b.inline = t.inline(o, "a loop")
	return b
}

// inline is the `body` of a step, which must not be empty.
func (t *teller) inline(o *object, what string) *value {
	v := o.value("body")
	switch {
	case v == nil:
		o.missing("body", "a list of steps")
	case t.is(v, list) && len(v.items) == 0:
		t.at(v, "EMPTY", "give it a step", "the body of %s is empty", what)
	}
	return v
}

// handed is what the inputs of a map's runs are called.
var handed = regexp.MustCompile(`^given_[0-9]+$`)

// as is the name of an item.
func (t *teller) as(o *object) string {
	name := o.line("as", maxName)
	switch {
	case name == "":
		return itemID
	case !idPattern.MatchString(name):
		t.at(o.v.get("as"), "BAD_ID", idHint, "%q cannot be the name of an item", clip(name))
	case name != itemID && reserved[name] || name == "index" || handed.MatchString(name):
		t.at(o.v.get("as"), "BAD_ID", "choose another", "%q cannot be the name of an item: it has a meaning of its own", name)
	}
	return name
}

// over is what is gone through: a list, or a reference with or without braces, which becomes one with
// them.
func (t *teller) over(v *value) *value {
	if v.kind == list {
		return v
	}
	if !t.is(v, text) {
		return nil
	}
	inner := strings.TrimSpace(v.text)
	if marks.FindString(inner) == inner && inner != "" {
		return v
	}
	if _, ok := readRef(inner); !ok {
		t.at(v, "BAD_REFERENCE", "write {{ STEP.FIELD }}, or a list", "%q is no reference", clip(v.text))
		return nil
	}
	bare := *v
	bare.text = "{{" + v.text + "}}"
	return &bare
}

// condition reads an expression, a rule, a list of rules that all hold, or `{all, any, expr}`.
func (t *teller) condition(v *value) condition {
	c := condition{at: v}
	switch {
	case v.kind == text:
		c.expr = v
	case v.kind == list:
		c.all = t.ruleList(v)
	case !t.is(v, mapping):
	case v.get("field") != nil:
		in := t.object(v, "a condition")
		c.all = []rule{t.rule(in)}
		in.done()
	default:
		in := t.object(v, "a condition")
		for _, r := range in.rulesOf("all") {
			c.all = append(c.all, t.rule(r))
			r.done()
		}
		for _, r := range in.rulesOf("any") {
			c.any = append(c.any, t.rule(r))
			r.done()
		}
		if e := in.value("expr"); e != nil && t.is(e, text) {
			c.expr = e
		}
		if in.done(); len(c.all)+len(c.any) == 0 && c.expr == nil {
			in.missing("all", "a list of rules; or `any`, or `expr`")
		}
	}
	return c
}

func (t *teller) ruleList(v *value) []rule {
	if len(v.items) == 0 {
		t.at(v, "EMPTY", "give it a rule", "the condition is empty")
	}
	var out []rule
	for _, in := range t.rulesIn(v.items) {
		out = append(out, t.rule(in))
		in.done()
	}
	return out
}

// node is not used: a loop has several nodes.
func (b *loopBody) node(*compiler, *Step, *workgraph.Node) {}

// Parts of the ids of the nodes that a step has besides its own. Ids of steps have no dots.
const listPart, endPart, resultsPart, limitPart = ".list", ".end", ".results", ".limit"

const passNothing = "{'args': [], 'named': {}}"

// goRound compiles a loop, and returns the way on from it.
func (c *compiler) goRound(s *Step, b *loopBody, in []end) []end {
	if b.over != nil {
		n := workgraph.Node{ID: s.ID + listPart, Actor: flow.ItemsActor, Retry: workgraph.Retry{MaxAttempts: 1}, Named: map[string]json.RawMessage{"max": wholeJSON(b.max)}}
		in = c.putWith(s, n, in, func(n *workgraph.Node, pseudo *Step) { c.goesThrough(s, pseudo, n, b.over) })
	}
	first := len(c.g.Nodes)
	head := workgraph.Node{ID: s.ID, Name: s.ID, PassDown: workgraph.Merge(passNothing), Retry: workgraph.Retry{MaxAttempts: 1}}
	c.put(head, in)
	ends := []end{{from: s.ID, when: "!result.done", route: "body"}}
	if b.over == nil && b.limit != "continue" {
		ends = c.atLimit(s, b)
	}
	last, result := c.bodyEnd(s, c.sequence(b.steps, ends, false))
	if c.tooLarge {
		return nil
	}
	if b.over == nil && b.limit == "fail" {
		c.g.Nodes[first+1].Named["last"] = jsonText(result) // the node that atLimit has put behind the head
	}
	c.stepsAre[s.ID] = typing.List(c.resultType(result))
	// Only now is it known what the conditions may read of the body.
	if b.over != nil {
		head.Actor, head.Named = flow.EachActor, map[string]json.RawMessage{"list": jsonText(s.ID + listPart), "loop": jsonText(s.ID)}
	} else {
		head.Actor = "cel"
		c.evaluates(&head, b.when.at, c.headExpr(s, b, last))
	}
	c.g.Nodes[first] = head
	for i := first; i < len(c.g.Nodes); i++ {
		c.g.Nodes[i].MaxVisits = workgraph.Unlimited // the head bounds the rounds
	}
	c.g.Edges = append(c.g.Edges, workgraph.Edge{From: last, To: s.ID, Kind: workgraph.BackEdge, When: "true", PassDown: workgraph.Merge("{'args': [], 'named': {'again': true}}")})
	c.put(workgraph.Node{ID: s.ID + resultsPart, Actor: flow.CollectActor, Named: map[string]json.RawMessage{"from": jsonText(result)}}, []end{{from: s.ID, when: "result.done"}})
	return []end{{from: s.ID + resultsPart}}
}

// goesThrough gives a node the list that a step goes through. A text may be a list as JSON.
func (c *compiler) goesThrough(s, pseudo *Step, n *workgraph.Node, over *value) {
	refs := c.argumentFits(pseudo, n, "over", over, want{typing.Array | typing.String, "a list", "`over`"})
	if over == nil {
		return
	}
	if is := valueType(over, refs); is.Kinds == typing.Array && is.Items != nil {
		c.itemsAre[s.ID] = *is.Items
	}
}

// atLimit puts the node that holds a loop which has gone round as often as it may, and returns the ways
// into the body.
func (c *compiler) atLimit(s *Step, b *loopBody) []end {
	id := s.ID + limitPart
	into := end{from: s.ID, when: "!result.done && !result.limit", route: "body"}
	c.put(workgraph.Node{ID: id, Actor: flow.LimitActor, Named: map[string]json.RawMessage{"max": wholeJSON(b.max), "fail": boolJSON(b.limit == "fail")}},
		[]end{{from: s.ID, when: "!result.done && result.limit", route: "body"}})
	return []end{into, {from: id}}
}

// bodyEnd is the node with which every round of a body ends, and the one with the result of the round:
// that of the last step, or one that puts the results of the last steps together.
func (c *compiler) bodyEnd(s *Step, ends []end) (last, result string) {
	if len(ends) == 1 && ends[0].when == "" {
		if of := c.stepOf(ends[0].from); of != nil {
			return ends[0].from, c.resultNode(of)
		}
	}
	n := workgraph.Node{ID: s.ID + endPart, Actor: "cel"}
	c.put(n, ends)
	pseudo := c.stands(n.ID, s)
	if _, ok := s.body.(*loopBody); ok {
		c.loop[n.ID] = s
	}
	c.evaluatesOwn(&n, s.at, mergeExpr("map", c.merged(pseudo, c.directly(ends))))
	c.g.Nodes[len(c.g.Nodes)-1] = n
	return n.ID, n.ID
}

// headExpr is the expression of the head of a loop without a list: {index, done, limit}.
func (c *compiler) headExpr(s *Step, b *loopBody, last string) string {
	index := roundExpr(s.ID)
	conds := c.holds(s, b, last)
	done := "!(" + conds + ")"
	if b.until {
		done = "has(named.again) && (" + conds + ")"
	}
	most := strconv.Itoa(b.max)
	limit := index + " > 0 && " + index + " % " + most + " == 0"
	if b.limit == "continue" {
		done, limit = index+" >= "+most+" || ("+done+")", "false"
	}
	return "{'index': " + index + ", 'done': " + done + ", 'limit': " + limit + "}"
}

// roundExpr is the number of the rounds that the loop has behind it, at its head.
func roundExpr(id string) string { return "(has(named.again) ? nodes." + id + ".result.index + 1 : 0)" }

// holds is the condition of a loop.
func (c *compiler) holds(s *Step, b *loopBody, last string) string {
	rules := func(list []rule, by string) string {
		var parts []string
		for _, r := range list {
			if r.field != nil && c.atHead(s, b, last, &r.ref, r.field, false) {
				c.ruleFits(r)
				parts = append(parts, "("+r.expr()+")")
			}
		}
		return strings.Join(parts, by)
	}
	var parts []string
	for _, part := range []string{rules(b.when.all, " && "), rules(b.when.any, " || ")} {
		if part != "" {
			parts = append(parts, "("+part+")")
		}
	}
	if e := b.when.expr; e != nil {
		if src, refs, ok := c.filled(e, func(r *ref) bool { return c.atHead(s, b, last, r, e, true) }); ok {
			c.compiles(e, src)
			if _, alone := wholeMark(e); alone {
				c.filledFits(e, refs, want{typing.Boolean, "true or false", "the condition"})
			}
			parts = append(parts, "("+src+")")
		}
	}
	if len(parts) == 0 {
		return "false" // its faults are told
	}
	return strings.Join(parts, " && ")
}

// atHead is known for a condition of a loop, which may also read what the round before it gave.
func (c *compiler) atHead(s *Step, b *loopBody, last string, r *ref, v *value, sure bool) bool {
	if c.mayBe(r.step) {
		return true
	}
	tell := func(code, hint, format string, args ...any) bool {
		return c.tellRef(*r, v, code, hint, format, args...)
	}
	if r.step == s.ID {
		if len(r.path) == 0 || r.path[0].field != "index" {
			return tell("UNKNOWN_FIELD", "use `"+s.ID+".index`, the number of rounds so far", "the condition of a loop knows of it the index only")
		}
		r.base, r.there, r.path = roundExpr(s.ID), "true", r.path[1:]
		r.is, r.whence = typing.Of(typing.Integer), "the loop counts its rounds by it"
		return true
	}
	other := c.steps[r.step]
	if other == nil || c.loop[r.step] != s {
		return c.known(s, r, v, sure)
	}
	node := c.resultNode(other)
	if sure && (!b.until || node != last && !c.certain(node, last)) {
		return tell("MAY_NOT_RUN", "write a rule, which may not hold then; or keep the value in `state`", "the step %q may not have run when the condition is looked at", clip(r.step))
	}
	said := *r
	c.inResult(other, r)
	r.there = "has(named.again) && " + hasNode(node) + " && nodes" + at(node) + ".visit == visit - 1"
	return c.typed(s, said, r, v)
}

func wholeJSON(n int) json.RawMessage { return json.RawMessage(strconv.Itoa(n)) }

func boolJSON(b bool) json.RawMessage { return json.RawMessage(strconv.FormatBool(b)) }
