package workflow

import (
	"encoding/json"
	"strconv"

	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has the step that does its body for all items of a list side by side, each in a run of its
// own.

// mapBody is such a step.
type mapBody struct {
	over     *value
	as       string
	most     int
	parallel int
	// failed is what the failure of an item means, and quorum how many must succeed, 0 for no number.
	failed string
	quorum int
	steps  []*Step
	// score is an expression that each run gives beside its result, nil for none.
	score *value

	inline *value
}

// What the failure of an item means: the map fails, the result of the item is null, or the results of
// all items are {"ok": …} or {"error": …}.
const itemsFail, itemsContinue, itemsKeep = "fail", "continue", "keep"

// errorField is where a kept error stands.
const errorField = "error"

// failedType is the type of a result that is a kept error.
var failedType = typing.Record(map[string]typing.Type{errorField: typing.Of(typing.Object)})

// mapped is the body of a step that is done in runs of their own, nil for another step.
func (s *Step) mapped() *mapBody {
	switch b := s.body.(type) {
	case *mapBody:
		return b
	case *bestBody:
		return &b.mapBody
	}
	return nil
}

func readMap(t *teller, o *object) body {
	b := &mapBody{as: t.as(o), most: o.whole("max_items", 1, 100_000, 1000), parallel: o.whole("max_parallel", 1, workgraph.MaxParallelItems, workgraph.DefaultMapParallel)}
	if v := o.must("over"); v != nil {
		b.over = t.over(v)
	}
	b.failed, b.quorum = o.word("on_item_error", "", itemsFail, itemsContinue, itemsKeep), o.whole("quorum", 1, 100_000, 0)
	switch {
	case b.quorum == 0 && b.failed == "":
		b.failed = itemsFail
	case b.failed == "":
		b.failed = itemsContinue
	case b.quorum > 0 && b.failed == itemsFail:
		t.at(o.v.get("quorum"), "FIELD_NOT_USED", "say `on_item_error: continue` or `keep`, or leave one of them out", "no item may fail, so there is no number that must succeed")
	}
	b.inline = t.inline(o, "a map")
	return b
}

// node is not used: a map has several nodes.
func (b *mapBody) node(*compiler, *Step, *workgraph.Node) {}

const itemsPart = ".items"

// part of a map: what its runs are handed of the workflow around it.
type handing struct {
	refs  []ref
	names map[string]string // of refs, by what they stand for
}

// eachItem compiles a map, and returns the way on from it.
func (c *compiler) eachItem(s *Step, b *mapBody, in []end) []end {
	n, ways := c.perItem(s, b, s.ID, in)
	n.OnError = s.OnError
	item := c.stepsAre[s.ID]
	switch b.failed {
	case itemsKeep: // as the map has it
		item = typing.Record(map[string]typing.Type{"ok": item, errorField: typing.Of(typing.Object)})
	case itemsContinue: // an item that failed is null
		item = item.Or(typing.Of(typing.Null))
		fallthrough
	default:
		n.Transform = "result.map(r, 'ok' in r ? dyn(r.ok) : null)"
	}
	c.stepsAre[s.ID] = typing.List(item)
	c.put(n, ways)
	c.weigh(s, &n)
	return []end{{from: s.ID}}
}

// perItem puts the node that makes the inputs of the runs, and returns the node of the runs with the ways to
// it.
func (c *compiler) perItem(s *Step, b *mapBody, id string, in []end) (workgraph.Node, []end) {
	var child *workgraph.Graph
	items := workgraph.Node{ID: s.ID + itemsPart, Actor: flow.ItemsActor, Retry: workgraph.Retry{MaxAttempts: 1},
		Named: map[string]json.RawMessage{"max": wholeJSON(b.most), "as": jsonText(b.as)}}
	ways := c.putWith(s, items, in, func(n *workgraph.Node, pseudo *Step) {
		c.goesThrough(s, pseudo, n, b.over)
		child = c.child(s, b, n, pseudo)
	})
	n := workgraph.Node{ID: id, Actor: "spawn", Named: map[string]json.RawMessage{"as_result": json.RawMessage("true")},
		Map: &workgraph.Map{Over: "nodes[" + literal(items.ID) + "].result", As: "input", MaxParallel: b.parallel, OnItemError: workgraph.FailFast}}
	switch {
	case b.quorum > 0:
		n.Map.OnItemError, n.Map.Quorum = workgraph.QuorumItems, b.quorum
	case b.failed != itemsFail:
		n.Map.OnItemError = workgraph.ContinueItems
	}
	if child != nil {
		n.Named["graph"], _ = json.Marshal(child) // a graph has a JSON form
	}
	return n, ways
}

// child is the graph of the runs of a map, nil if nothing more is made. What it reads of the workflow
// around it becomes an argument of the node that makes its inputs.
func (c *compiler) child(s *Step, b *mapBody, n *workgraph.Node, pseudo *Step) *workgraph.Graph {
	sub := newCompiler(c.teller, c.d)
	sub.teamed, sub.inner = c.teamed, c.inner
	sub.g.Name = s.ID
	sub.above, sub.of, sub.as, sub.scope, sub.fanned, sub.worked = c, s, b.as, c.scope, s, c.worked
	sub.exprs, sub.bytes, sub.hidden = c.exprs, c.bytes, c.hidden
	sub.handed = func(r *ref, v *value) (string, bool) { return c.hand(pseudo, &sub.handing, r, v) }
	sub.enlistAll(b.steps, place{})
	sub.begin(nil)
	last, result := sub.bodyEnd(s, sub.sequence(b.steps, []end{{from: inputsID}}, false))
	c.stepsAre[s.ID] = sub.resultType(result)
	if last != result { // what is set behind the last step; refused in a map
		return nil
	}
	if b.score != nil {
		sub.scored(s, b.score, last, result)
	}
	c.bytes, c.tooLarge = sub.bytes, c.tooLarge || sub.tooLarge
	if len(sub.handing.refs) > 0 {
		parts := map[string]json.RawMessage{}
		for i := range sub.handing.refs {
			r := &sub.handing.refs[i]
			r.mark = "{{" + strconv.Itoa(i) + "}}"
			parts[handedName(i)] = jsonText(r.mark)
			c.bindable(n, r)
		}
		argument(n, "with", encode(parts), sub.handing.refs)
	}
	return sub.g
}

// handedName is the input of a map's runs that something of the workflow around them becomes.
func handedName(i int) string { return "given_" + strconv.Itoa(i+1) }

// hand hands something of the workflow around a map to its runs, and returns the name of the input.
func (c *compiler) hand(s *Step, h *handing, r *ref, v *value) (name string, ok bool) {
	outer := *r
	if !c.known(s, &outer, v, true) {
		return "", false
	}
	key := outer.expr()
	if name, ok := h.names[key]; ok {
		return name, true
	}
	if len(h.refs) >= maxHanded {
		return "", c.tellRef(*r, v, "TOO_LARGE", "put parts together in steps before the `map`", "the body of a `map` may read %d values of what is around it", maxHanded)
	}
	name = handedName(len(h.refs))
	if h.names == nil {
		h.names = map[string]string{}
	}
	h.names[key] = name
	h.refs = append(h.refs, outer)
	return name, true
}

// maxHanded leaves room among the uses of a node for those of the list.
const maxHanded = 80

// handedIn finds what is not in the body of a map: the item, or something of the workflow around it.
func (c *compiler) handedIn(r *ref, v *value) bool {
	if r.step == c.of.ID && len(r.path) > 0 && (r.path[0].field == itemID || r.path[0].field == "index") {
		name := r.path[0].field
		if name == itemID {
			name = c.as
		}
		r.step, r.path = inputsID, append([]part{{name, fieldOnly}}, r.path[1:]...)
		return true
	}
	if r.step == c.as {
		r.step, r.path = inputsID, append([]part{{c.as, fieldOnly}}, r.path...)
		return true
	}
	if r.step == c.of.ID {
		return c.tellRef(*r, v, "UNKNOWN_FIELD", "there is `index` and `item`", "within the map %q only its item is known", c.of.ID)
	}
	name, ok := c.handed(r, v)
	r.step, r.path = inputsID, []part{{name, fieldOnly}}
	return ok
}
