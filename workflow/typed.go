package workflow

import (
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file knows of which types the values are that references stand for, and tells of those that
// cannot be what is wanted. A value of which nothing is known may be anything.

// typed notes the type of what a reference stands for, which said has as it was written. It tells of a
// part that the value cannot have, and is false then.
func (c *compiler) typed(s *Step, said ref, r *ref, v *value) bool {
	is, path, from := c.rooted(s, said)
	name := said.step
	for _, p := range said.path[:len(said.path)-len(path)] {
		name += partText(p)
	}
	for _, p := range path {
		// A text is read as JSON where a part of it is asked for.
		if want := partOf(p); !is.May(want | typing.String) {
			return c.tellRef(said, v, "WRONG_TYPE", from, "`%s` is %s, which has no `%s`", clip(name), is, clip(partText(p)))
		}
		next, known := inner(is, p)
		if !known {
			return c.tellRef(said, v, "UNKNOWN_FIELD", c.didYouMean(p.field, is.Fields.Names()), "`%s` has no field %q", clip(name), clip(p.field))
		}
		is = next
		name += partText(p)
	}
	r.is, r.whence = is, from
	return true
}

// partText is a part as it is written.
func partText(p part) string {
	switch {
	case p.item == lastItem:
		return ".last"
	case p.item >= 0:
		return "[" + strconv.Itoa(p.item) + "]"
	}
	return "." + p.field
}

// partOf are the kinds of values that may have a part.
func partOf(p part) typing.Kinds {
	if p.item == fieldOnly {
		return typing.Object
	}
	return typing.Array | typing.Object // whose field is a number
}

// inner is the type of a part of a value. known is false for a field that there is not.
func inner(is typing.Type, p part) (next typing.Type, known bool) {
	switch kinds := is.Kinds &^ typing.Null; {
	case p.item != fieldOnly && kinds == typing.Array && is.Items != nil:
		return *is.Items, true
	case p.item == fieldOnly && kinds == typing.Object && is.Fields != nil:
		next, there := is.Fields.Of[p.field]
		return next, there || is.Fields.Open
	}
	return typing.Type{}, true
}

// rooted is the type of what a reference begins with, the parts of the reference that are within it, and
// who says so.
func (c *compiler) rooted(s *Step, r ref) (is typing.Type, path []part, from string) {
	if l := c.itemOf(s, r.step); l != nil {
		return c.itemsAre[l.ID], r.path, itemFrom(l)
	}
	if c.above != nil && c.steps[r.step] == nil {
		return c.rootedAbove(r)
	}
	switch other := c.steps[r.step]; {
	case r.step == stateID:
		return c.keyType(r.path[0].field), r.path[1:], "`state` declares it"
	case r.step == inputsID:
		return c.inputsAre, r.path, "`inputs` declares it"
	case other == nil:
		return typing.Type{}, r.path, ""
	case c.inside(s, other):
		if len(r.path) > 0 && r.path[0].field == itemID {
			return c.itemsAre[other.ID], r.path[1:], itemFrom(other)
		}
		return typing.Record(map[string]typing.Type{"index": typing.Of(typing.Integer)}), r.path, "the loop counts its rounds by it"
	default:
		is, from = c.stepsAre[other.ID], "the step \""+clip(other.ID)+"\" in line "+strconv.Itoa(other.at.at.Line)+" gives it"
		if _, loop := other.body.(*loopBody); loop && len(r.path) > 0 && r.path[0].field == "last" {
			is, _ = inner(is, part{item: lastItem})
			return is, r.path[1:], from
		}
		return is, r.path, from
	}
}

// rootedAbove is rooted for what is not in the body of a map.
func (c *compiler) rootedAbove(r ref) (is typing.Type, path []part, from string) {
	switch {
	case r.step == c.of.ID && len(r.path) > 0 && r.path[0].field == itemID:
		return c.above.itemsAre[c.of.ID], r.path[1:], itemFrom(c.of)
	case r.step == c.of.ID:
		return typing.Record(map[string]typing.Type{"index": typing.Of(typing.Integer)}), r.path, "the items are counted by it"
	case r.step == c.as:
		return c.above.itemsAre[c.of.ID], r.path, itemFrom(c.of)
	}
	return c.above.rooted(c.of, r)
}

func itemFrom(l *Step) string { return "it is an item of what \"" + clip(l.ID) + "\" goes through" }

// keyType is the type of a key of the state.
func (c *compiler) keyType(name string) typing.Type {
	k := c.keys[name]
	switch {
	case k.Reducer == workgraph.Append || k.Reducer == workgraph.AppendByID:
		return typing.Of(typing.Array)
	case k.Type == "" || c.toolsSet: // what tools of a team set is not looked at
		return typing.Type{}
	case k.Initial == nil && k.Reducer != workgraph.Add:
		return typing.Named(k.Type).Or(typing.Of(typing.Null))
	}
	return typing.Named(k.Type)
}

// setByTools reports whether agents of a team set the state.
func setByTools(agents []AgentDefinition) bool {
	return slices.ContainsFunc(agents, func(a AgentDefinition) bool {
		return a.member != nil && a.member.sets != nil || slices.ContainsFunc(a.signals, func(s signal) bool { return s.signal.Set != nil })
	})
}

// resultType is what is known of the result of a node.
func (c *compiler) resultType(node string) typing.Type {
	if s := c.stepOf(node); s != nil && node == c.resultNode(s) {
		return c.stepsAre[s.ID]
	}
	return typing.Type{}
}

// want is what a value is to be.
type want struct {
	kinds typing.Kinds
	// what names it, and by who wants it.
	what, by string
}

// fits tells if the value of a reference cannot be what is wanted.
func (c *compiler) fits(r ref, v *value, w want) bool {
	if r.is.May(w.kinds) {
		return true
	}
	hint, name := r.whence, clip(strings.TrimSpace(strings.Trim(r.mark, "{}")))
	likes := w.kinds
	if likes&typing.Array != 0 {
		likes = typing.Array // a text is one only by chance
	}
	if instead := r.is.Fields.Fitting(likes); instead != "" && r.is.Kinds == typing.Object {
		hint += "; name a field of it, such as `" + name + "." + instead + "`"
	}
	return c.tellRef(r, v, "WRONG_TYPE", hint, "%s wants %s, and `%s` is %s", w.by, w.what, name, r.is)
}

// filledFits tells if a value in which references were filled in cannot be what is wanted. A reference
// keeps its type where it stands alone; beside other text it becomes a text.
func (c *compiler) filledFits(v *value, refs []ref, w want) {
	if v == nil || v.kind != text || len(refs) == 0 || c.full() {
		return
	}
	mark, alone := wholeMark(v)
	for _, r := range refs {
		switch {
		case alone && r.mark == mark:
			c.fits(r, v, w)
			return
		case !alone && w.kinds&typing.String == 0:
			c.tellRef(r, v, "WRONG_TYPE", "write the reference alone; beside other text it becomes a part of that", "%s wants %s, and this is a text", w.by, w.what)
			return
		}
	}
}

// argumentFits gives a node an argument, which cannot be of another type than what is wanted.
func (c *compiler) argumentFits(s *Step, n *workgraph.Node, name string, v *value, w want) []ref {
	refs := c.argument(s, n, name, v)
	c.filledFits(v, refs, w)
	return refs
}

// valueType is what is known of a value once references are filled in.
func valueType(v *value, refs []ref) typing.Type {
	switch v.kind {
	case null:
		return typing.Of(typing.Null)
	case boolean:
		return typing.Of(typing.Boolean)
	case number:
		return typing.OfJSON([]byte(v.text))
	case list:
		if len(v.items) == 0 {
			return typing.Of(typing.Array)
		}
		items := valueType(v.items[0], refs)
		for _, item := range v.items[1:] {
			items = items.Or(valueType(item, refs))
		}
		return typing.List(items)
	case mapping:
		of := make(map[string]typing.Type, len(v.entries))
		for i := range v.entries {
			of[v.entries[i].key] = valueType(v.entries[i].value, refs)
		}
		return typing.Record(of)
	}
	mark, alone := wholeMark(v)
	if !alone {
		return typing.Of(typing.String)
	}
	if i := slices.IndexFunc(refs, func(r ref) bool { return r.mark == mark }); i >= 0 {
		return refs[i].is
	}
	return typing.Type{}
}

// wanted is what some actors want as arguments, by actor and name.
func wanted(actor, name string) (w want, ok bool) {
	kinds := map[string]typing.Kinds{
		"sleep seconds": typing.Number, "http url": typing.String, "http method": typing.String, "http body": typing.String, "http headers": typing.Object, "http query": typing.Object,
		"human choices": typing.Array, "human multiple": typing.Boolean, "human schema": typing.Object, "human timeout": typing.String,
	}[actor+" "+name]
	shown := map[string]string{"sleep seconds": "delay", "human timeout": "answer_within"}[actor+" "+name]
	if shown == "" {
		shown = name
	}
	return want{kinds, typing.Of(kinds).String(), "`" + shown + "`"}, kinds != typing.Any
}

// want is what a rule compares.
func (r rule) want() (w want, ok bool) {
	kinds := typing.Any
	switch {
	case slices.Contains(bySize, r.operator), r.operator == "equals", r.operator == "not_equals":
		kinds = likeOf(r.value)
	case slices.Contains(ofText, r.operator):
		kinds = typing.String | typing.Number | typing.Boolean
	case slices.Contains(ofTime, r.operator):
		kinds = typing.String
	case slices.Contains(ofLength, r.operator):
		kinds = typing.String | typing.Array | typing.Object
	case r.operator == "is_true" || r.operator == "is_false":
		kinds = typing.Boolean
	case slices.Contains(ofList, r.operator) && r.value != nil:
		for _, item := range r.value.items {
			one := likeOf(item)
			if one == typing.Any {
				return want{}, false
			}
			kinds |= one
		}
	}
	what := typing.Of(kinds).String()
	if slices.Contains(ofText, r.operator) {
		what = "a text" // others are taken as texts
	}
	return want{kinds, what, "`" + r.operator + "`"}, kinds != typing.Any
}

// likeOf are the kinds that can be equal to a value, or be compared with it by size.
func likeOf(v *value) typing.Kinds {
	if v == nil {
		return typing.Any
	}
	switch v.kind {
	case boolean:
		return typing.Boolean
	case number:
		return typing.Number
	case text:
		return typing.String
	case list:
		return typing.Array
	case mapping:
		return typing.Object
	}
	return typing.Any // nothing is compared with what may be missing
}

// ownInputs tells of what the workflow's own inputs cannot be, where it runs itself.
func (c *compiler) ownInputs(s *Step, given []entry, refs []ref) {
	outer := c
	for outer.above != nil {
		outer = outer.above
	}
	inputs := outer.inputsAre.Fields
	if inputs == nil {
		return
	}
	there := map[string]bool{}
	for i := range given {
		e := &given[i]
		there[e.key] = true
		is := inputs.Of[e.key]
		w := want{is.Kinds, is.String(), "the input `" + e.key + "`"}
		if own := valueType(e.value, nil); !marksIn(e.value) && !own.May(is.Kinds) {
			c.at(e.value, "WRONG_TYPE", "`inputs` declares it", "%s wants %s, and this is %s", w.by, w.what, own)
			continue
		}
		c.filledFits(e.value, refs, w)
	}
	for _, name := range outer.mustInputs {
		if !there[name] {
			c.at(s.at, "MISSING_INPUT", "give it in `payload`", "the workflow needs the input %q", clip(name))
		}
	}
}

// marksIn reports whether a value is a text with references.
func marksIn(v *value) bool { return v.kind == text && marks.MatchString(v.text) }

// ruleFits tells of a rule whose outcome does not depend on its field, for that is of another type.
func (c *compiler) ruleFits(r rule) {
	w, ok := r.want()
	if !ok || r.ref.is.May(w.kinds) {
		return
	}
	if r.ref.mark = strings.TrimSpace(r.field.text); r.value != nil && r.value.kind == text && r.ref.is.Kinds&typing.Number != 0 {
		r.ref.whence += "; write the number without quotes, in a rule of a `switch`"
	}
	c.fits(r.ref, r.field, w)
}

// itemPart is the type of what a rule of an item is about.
func (c *compiler) itemPart(r rule, item typing.Type) typing.Type {
	for _, p := range r.ref.path {
		item, _ = inner(item, p)
	}
	return item
}
