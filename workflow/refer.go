package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// This file finds what a reference stands for at the place of a step, and tells of those that stand for
// nothing.

// tellRef tells a fault of a reference in v. It is false.
func (c *compiler) tellRef(r ref, v *value, code, hint, format string, args ...any) bool {
	c.add(Fault{Code: code, Place: r.at, Path: v.path(), Message: fmt.Sprintf(format, args...), Hint: hint})
	return false
}

// known finds what a reference of a step stands for, and of which type it is. It tells of one to
// something that is not there, or does not come before the step, or with sure may not have run.
func (c *compiler) known(s *Step, r *ref, v *value, sure bool) bool {
	if c.mayBe(r.step) {
		return true
	}
	c.wholeOf(s, r)
	said := *r
	return c.finds(s, r, v, sure) && c.typed(s, said, r, v)
}

// wholeOf removes `output` or `result` from the front of a reference to a step: either name means all of the
// step's result, unless the result has a field of that name. Of inputs, items and the state they are fields.
func (c *compiler) wholeOf(s *Step, r *ref) {
	other := c.steps[r.step]
	if other == nil || len(r.path) == 0 || c.itemOf(s, r.step) != nil || c.inside(s, other) {
		return
	}
	name := r.path[0].field
	if name != "output" && name != "result" || slices.Contains(other.fields(), name) {
		return
	}
	if fields := c.stepsAre[other.ID].Fields; fields != nil {
		if _, there := fields.Of[name]; there {
			return
		}
	}
	r.path = r.path[1:]
}

// finds finds what a reference of a step stands for.
func (c *compiler) finds(s *Step, r *ref, v *value, sure bool) bool {
	if l := c.itemOf(s, r.step); l != nil {
		r.node, r.path = l.ID, append([]part{{itemID, -1}}, r.path...)
		return true
	}
	switch {
	case c.above != nil && c.steps[r.step] == nil:
		return c.handedIn(r, v)
	case r.step == stateID:
		return c.knownKey(r, v)
	case r.step == inputsID:
		return c.knownInput(*r, v, sure)
	}
	tell := func(code, hint, format string, args ...any) bool {
		return c.tellRef(*r, v, code, hint, format, args...)
	}
	other := c.steps[r.step]
	if other == nil {
		return tell("UNKNOWN_STEP", c.didYouMean(r.step, append(c.ids(), inputsID)), "there is no step %q", clip(r.step))
	}
	if c.inside(s, other) { // the head of the loop around the step
		if fields := roundFields(other); len(r.path) == 0 || !slices.Contains(fields, r.path[0].field) {
			return tell("UNKNOWN_FIELD", "there is "+words(fields, "and"), "within the loop %q only parts of its round are known", clip(r.step))
		}
		return true
	}
	if around := c.inMap[r.step]; around != nil {
		hint := "name `" + around.ID + "`, the list of what its runs gave"
		if _, best := around.body.(*bestBody); best {
			hint = "name `" + around.ID + ".best`, what the best attempt gave"
		}
		return tell("IN_LOOP", hint, "the step %q stands within %q, which runs it once for each item", clip(r.step), around.ID)
	}
	loop := c.loop[r.step]
	if loop != nil && loop.ID != s.ID && !c.inside(s, loop) {
		return tell("IN_LOOP", "name `"+loop.ID+"`, the list of what its rounds gave", "the step %q stands within %q, which runs it more than once", clip(r.step), loop.ID)
	}
	node := c.resultNode(other)
	k, done := c.number[node]
	if !done || !c.before[c.number[s.ID]].has(k) {
		hint := "let it come before by `needs`, or by the order of the steps"
		if loop != nil {
			hint += "; what a round leaves for the next one is kept in `state`"
		}
		return tell("NOT_BEFORE", hint, "the step %q does not come before %q", clip(r.step), clip(shownID(s.ID)))
	}
	if sure && !c.certain(node, s.ID) {
		return tell("MAY_NOT_RUN", "put the results of the branches together by a `merge` with `mode: first`, and name that one", "the step %q stands behind a switch and may not have run", clip(r.step))
	}
	if fields := other.fields(); len(r.path) > 0 && fields != nil && r.path[0].item < 0 && !slices.Contains(fields, r.path[0].field) {
		return tell("UNKNOWN_FIELD", c.didYouMean(r.path[0].field, fields), "the result of the step %q has no field %q", clip(r.step), clip(r.path[0].field))
	}
	c.inResult(other, r)
	if loop != nil { // what an earlier round gave does not count
		r.there = hasNode(node) + " && nodes" + at(node) + ".visit == nodes" + at(loop.ID) + ".visit"
	}
	return true
}

// roundFields are what the steps of a loop know of their round.
func roundFields(loop *Step) []string {
	if b, ok := loop.body.(*loopBody); ok && b.over != nil {
		return []string{itemID, "index"}
	}
	return []string{"index"}
}

// knownInput tells of an input that there is not, or with sure may be missing.
func (c *compiler) knownInput(r ref, v *value, sure bool) bool {
	if len(r.path) == 0 || c.inputs == nil {
		return true
	}
	name := r.path[0].field
	switch must, ok := c.inputs[name]; {
	case !ok:
		return c.tellRef(r, v, "UNKNOWN_INPUT", c.didYouMean(name, slices.Sorted(maps.Keys(c.inputs))), "the workflow has no input %q", clip(name))
	case !must && sure:
		return c.tellRef(r, v, "MAY_BE_MISSING", "name it in `required`, or read it in an expression that asks for it by has()", "the input %q may be missing", clip(name))
	}
	return true
}

// shownID is the id of the step that a node belongs to.
func shownID(node string) string {
	id, _, _ := strings.Cut(node, ".")
	return id
}

// resultNode is the node with the result of a step.
func (c *compiler) resultNode(s *Step) string {
	if _, ok := s.body.(*loopBody); ok {
		return s.ID + resultsPart
	}
	return s.ID
}

// inResult lets a reference to a step read the node that has its result.
func (c *compiler) inResult(s *Step, r *ref) {
	if r.node = c.resultNode(s); r.node != s.ID && len(r.path) > 0 && r.path[0].field == "last" {
		r.path = append([]part{{item: lastItem}}, r.path[1:]...)
	}
}

// inside reports whether a step stands within a loop.
func (c *compiler) inside(s, loop *Step) bool {
	for l := c.loop[s.ID]; l != nil; l = c.loop[l.ID] {
		if l == loop {
			return true
		}
	}
	return false
}

// itemOf is the innermost loop around a step whose items have a name, nil if there is none.
func (c *compiler) itemOf(s *Step, name string) *Step {
	for l := c.loop[s.ID]; l != nil; l = c.loop[l.ID] {
		if b, ok := l.body.(*loopBody); ok && b.over != nil && b.as == name {
			return l
		}
	}
	return nil
}

// stepOf is the step whose result is there when a node has ended, nil for nodes that are no end of a
// step.
func (c *compiler) stepOf(node string) *Step {
	if s := c.steps[node]; s != nil {
		return s
	}
	id, part, _ := strings.Cut(node, ".")
	if part = "." + part; part == resultsPart || part == setPart {
		return c.steps[id]
	}
	return nil
}

// stands is a step for a node that stands where another step does.
func (c *compiler) stands(node string, s *Step) *Step {
	c.loop[node] = c.loop[s.ID]
	return &Step{ID: node, at: s.at}
}

// directly are the steps at whose ends something begins, each once.
func (c *compiler) directly(in []end) []string {
	var out []string
	seen := map[string]bool{}
	for _, e := range in {
		s := c.stepOf(e.from)
		if s == nil || e.route != "" || seen[s.ID] {
			continue
		}
		if _, isSwitch := s.body.(*switchBody); !isSwitch {
			seen[s.ID] = true
			out = append(out, s.ID)
		}
	}
	return out
}

// merged are references to results that are put together.
func (c *compiler) merged(s *Step, ids []string) []ref {
	var out []ref
	for _, id := range ids {
		if r := (ref{mark: id, step: id, at: s.at.at}); c.known(s, &r, s.at, false) {
			out = append(out, r)
		}
	}
	return out
}

// filled is an expression in whose place of references stand the values. ok is false if one means
// nothing.
func (c *compiler) filled(v *value, known func(r *ref) bool) (src string, refs []ref, ok bool) {
	src, refs = v.text, c.refs(v)
	for i := range refs {
		r := &refs[i]
		if !known(r) {
			return "", nil, false
		}
		if inText(v.text, r.mark) {
			return "", nil, c.tellRef(*r, v, "BAD_REFERENCE", "put texts together by +, as in 'Hi ' + {{ STEP }}", "%s stands within a text of the expression", clip(r.mark))
		}
		src = strings.ReplaceAll(src, r.mark, r.expr())
	}
	return src, refs, true
}

// putWith puts a node that comes before one of a step, fills it in, and returns the way on from it.
func (c *compiler) putWith(s *Step, n workgraph.Node, in []end, fill func(n *workgraph.Node, as *Step)) []end {
	c.put(n, in)
	k := len(c.g.Nodes) - 1
	fill(&n, c.stands(n.ID, s))
	c.g.Nodes[k] = n
	c.weigh(s, &n)
	return []end{{from: n.ID}}
}
