package workflow

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has the state of a run: keys that steps set and read.

// StateKey is a key of the state of a run.
type StateKey struct {
	Name string
	// Type is one of JSON Schema, empty for any.
	Type string
	// Reducer combines what a step sets with the value that is there; empty replaces it.
	Reducer workgraph.Reducer
	// Initial is nil for null, or for the reducers append and add the empty list and 0.
	Initial json.RawMessage
}

// stateID is how references name the state.
const stateID = "state"

// Parts of the ids of nodes that set the state behind a step, and read it before one.
const setPart, statePart = ".set", ".state"

var (
	stateTypes = []string{"array", "boolean", "integer", "number", "object", "string"}
	reducers   = []string{"replace", "append", "append_by_id", "add"}
)

// state reads the keys of `state`.
func (t *teller) state(o *object) []StateKey {
	var out []StateKey
	entries := o.entries(stateID)
	if len(entries) > maxFew {
		t.at(entries[maxFew].value, "TOO_LARGE", "", "`state` may have %d keys", maxFew)
		entries = entries[:maxFew]
	}
	for _, e := range entries {
		if !idPattern.MatchString(e.key) {
			t.add(Fault{Code: "BAD_ID", Place: e.at, Path: e.value.path(), Message: strconv.Quote(clip(e.key)) + " is no key of a state", Hint: idHint})
			continue
		}
		out = append(out, t.stateKey(e))
	}
	return out
}

func (t *teller) stateKey(e entry) StateKey {
	in := t.object(e.value, "a key of the state")
	k := StateKey{Name: e.key, Type: in.word("type", "", stateTypes...)}
	reducer := in.word("reducer", "replace", reducers...)
	k.Reducer = workgraph.Reducer(strings.ToUpper(reducer))
	initial := in.value("initial")
	if in.done(); in.bad {
		return k
	}
	// What a reducer combines, it must be able to combine.
	want := map[string][]string{"append": {"array"}, "append_by_id": {"array"}, "add": {"integer", "number"}}[reducer]
	if k.Type != "" && want != nil && !slices.Contains(want, k.Type) {
		t.at(e.value.get("type"), "WRONG_TYPE", "use "+words(want, "or"), "the reducer `%s` cannot combine values of the type `%s`", reducer, k.Type)
		return k
	}
	if k.Type == "" && want != nil {
		k.Type = want[len(want)-1]
	}
	if initial != nil {
		t.unfilled(initial)
		if k.Initial = initial.json(); k.Type != "" && !fits(initial, k.Type) {
			t.at(initial, "WRONG_TYPE", "", "the key %q is of the type `%s`, its initial value is %s", e.key, k.Type, initial.kind)
		}
	}
	return k
}

// fits reports whether a value that was written is of a type of JSON Schema.
func fits(v *value, kind string) bool {
	switch v.kind {
	case boolean:
		return kind == "boolean"
	case number:
		return kind == "number" || kind == "integer" && !strings.ContainsAny(v.text, ".eE")
	case text:
		return kind == "string"
	case list:
		return kind == "array"
	case mapping:
		return kind == "object"
	}
	return false
}

// declareState declares the keys to the graph.
func (c *compiler) declareState() {
	for _, k := range c.d.State {
		if c.g.State == nil {
			c.g.State = map[string]workgraph.StateKey{}
		}
		c.g.State[k.Name] = workgraph.StateKey{Reducer: k.Reducer, Initial: k.Initial}
		c.keys[k.Name] = k
	}
}

// knownKey tells of a reference to a key of the state that there is not.
func (c *compiler) knownKey(r *ref, v *value) bool {
	switch {
	case len(c.keys) == 0:
		return c.tellRef(*r, v, "UNKNOWN_STATE", "declare it: `state: {KEY: {type: string}}`", "the workflow has no `state`")
	case len(r.path) == 0 || r.path[0].item != fieldOnly:
		return c.tellRef(*r, v, "UNKNOWN_STATE", "there is "+words(c.keyNames(), "and"), "name a key of the state, such as `state.%s`", c.keyNames()[0])
	}
	key := r.path[0].field
	if _, ok := c.keys[key]; !ok {
		return c.tellRef(*r, v, "UNKNOWN_STATE", c.didYouMean(key, c.keyNames()), "the state has no key %q", clip(key))
	}
	r.base, r.there, r.key, r.path = "state["+literal(key)+"]", "true", key, r.path[1:]
	return true
}

func (c *compiler) keyNames() []string { return slices.Sorted(maps.Keys(c.keys)) }

// reading lets a reference to the state read the node that reads it right before n, which was just put.
func (c *compiler) reading(n *workgraph.Node, r *ref) {
	id := n.ID + statePart
	if c.reads[id] == nil {
		for i := len(c.g.Edges) - 1; i >= 0 && c.g.Edges[i].To == n.ID; i-- {
			c.g.Edges[i].To = id
		}
		c.g.Edges = append(c.g.Edges, workgraph.Edge{From: id, To: n.ID})
		c.g.Nodes = append(c.g.Nodes, workgraph.Node{ID: id, Actor: "cel"})
		c.reads[id] = &reader{at: len(c.g.Nodes) - 1, keys: map[string]bool{}}
	}
	rd := c.reads[id]
	rd.keys[r.key] = true
	parts := make([]string, 0, len(rd.keys))
	for _, key := range slices.Sorted(maps.Keys(rd.keys)) {
		parts = append(parts, literal(key)+": dyn(state["+literal(key)+"])")
	}
	c.g.Nodes[rd.at].Named = map[string]json.RawMessage{"expr": jsonText("{" + strings.Join(parts, ", ") + "}")}
	r.node, r.path = id, append([]part{{r.key, fieldOnly}}, r.path...)
}

// reader is a node that reads keys of the state.
type reader struct {
	at   int
	keys map[string]bool
}

// setBody sets keys of the state.
type setBody struct{ state *value }

func readSet(t *teller, o *object) body {
	b := &setBody{state: o.must(stateID)}
	t.updates(b.state)
	return b
}

// updates are the values by key that a step sets.
func (t *teller) updates(v *value) {
	if v != nil && t.is(v, mapping) && len(v.entries) == 0 {
		t.at(v, "EMPTY", "write {KEY: VALUE}", "nothing is set")
	}
}

func (b *setBody) node(c *compiler, s *Step, n *workgraph.Node) { c.sets(s, n, b.state) }

// sets fills in a node that sets keys of the state.
func (c *compiler) sets(s *Step, n *workgraph.Node, v *value) {
	n.Actor = flow.SetActor
	if v == nil || v.kind != mapping {
		return
	}
	if c.above != nil {
		c.at(v, "SET_IN_MAP", "set it behind the `map`, which gives the list of results", "the runs of a `map` do not set the state of the workflow")
		return
	}
	kinds := map[string]json.RawMessage{}
	for i := range v.entries {
		e := &v.entries[i]
		k, ok := c.keys[e.key]
		appends := k.Reducer == workgraph.Append || k.Reducer == workgraph.AppendByID
		_, open := wholeMark(e.value)
		switch {
		case !ok && c.d.unread.state:
		case !ok:
			c.add(Fault{Code: "UNKNOWN_STATE", Place: e.at, Path: e.value.path(), Message: "the state has no key " + strconv.Quote(clip(e.key)), Hint: c.keyHint(e.key)})
		case k.Type == "" || appends:
		case !open && e.value.kind != null && !fits(e.value, k.Type):
			c.at(e.value, "WRONG_TYPE", "", "the key %q is of the type `%s`, this is %s", e.key, k.Type, e.value.kind)
		default:
			kinds[e.key] = jsonText(k.Type)
		}
	}
	if len(kinds) > 0 {
		n.Named = map[string]json.RawMessage{"types": encode(kinds)}
	}
	refs := c.argument(s, n, stateID, v)
	for i := range v.entries {
		if e := &v.entries[i]; kinds[e.key] != nil {
			key := typing.Named(c.keys[e.key].Type)
			c.filledFits(e.value, refs, want{key.Kinds, key.String(), "the key `" + e.key + "` of the state"})
		}
	}
}

func (c *compiler) keyHint(key string) string {
	if len(c.keys) == 0 {
		return "declare it: `state: {" + clip(key) + ": {type: string}}`"
	}
	return c.didYouMean(key, c.keyNames())
}

// wholeMark is the reference that a text is, and nothing else.
func wholeMark(v *value) (mark string, ok bool) {
	if v.kind != text {
		return "", false
	}
	mark = marks.FindString(v.text)
	return mark, mark != "" && mark == strings.TrimSpace(v.text)
}
