// Package actor owns what every built-in actor has in common: how it describes itself, how its arguments are
// read, and the registry by which nodes find it. It must not know how attempts are scheduled or journaled.
package actor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/epigraph-run/epigraph/internal/plainjson"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Spec is an actor with everything that callers, validation and compilation need to know about it.
type Spec struct {
	// Name is what nodes call it by.
	Name string
	// Description says in one sentence what it does.
	Description string
	// Version changes when equal calls may give different results than before.
	Version string
	// Effect is what a call does to the world unless EffectOf knows better.
	Effect workgraph.Effect
	// EffectOf decides the effect from a node's own arguments; nil leaves it to Effect.
	EffectOf func(*workgraph.Node) workgraph.Effect
	// SeesPlace says that results depend on the node or visit that calls.
	SeesPlace bool
	// NamedOnly says that results depend on the named arguments alone.
	NamedOnly bool
	// Computes says that a call uses a processor for all of its time.
	Computes bool
	// Elsewhere says that the work of a call is done by others: here it only waits for them, and what it
	// holds meanwhile is small.
	Elsewhere bool
	// Schema is the JSON Schema (2020-12) of the named arguments. With additionalProperties false a node may
	// state no other arguments; other propagated inputs are ignored, since results become arguments too.
	Schema string
	// Examine looks at a node's own arguments beyond the schema; nil has nothing to say.
	Examine func(context.Context, *workgraph.Node) []workgraph.Argument
	// Expressions are the texts among named arguments that a call evaluates over what it sees of its run; nil
	// of an actor that evaluates none.
	Expressions func(named map[string]json.RawMessage) []string
	// Inner, WaitsFor and Approves are those of workgraph.ActorInfo.
	Inner    func(*workgraph.Node) []workgraph.InnerNode
	WaitsFor []string
	Approves func(*workgraph.Node) bool
	// Uncached is that of workgraph.ActorInfo.
	Uncached func(*workgraph.Node) string
	// Internal and MakesInternal are those of workgraph.ActorInfo.
	Internal, MakesInternal bool
	// Expands says that outcomes may insert a sub-graph.
	Expands bool
	// Unavailable says why calls would fail now; empty if nothing is known to be in their way.
	Unavailable string
	// Actor does the work.
	Actor workgraph.Actor
}

// Waits is why outcomes of an actor are not kept for equal calls whose calls only wait.
func Waits(*workgraph.Node) string { return "a call only waits" }

// Interrupted is the error of a call that ended with its context, by its timeout or because somebody ended
// it. The caller knows which, and sets the reason. used is what it cost all the same.
func Interrupted(t workgraph.ErrorType, used ...workgraph.Usage) error {
	return &workgraph.Error{Type: t, Usage: used}
}

// Registry is a fixed set of actors. It is immutable and safe for concurrent use.
type Registry struct {
	specs map[string]Spec
	// schemas are those of the specs. Each call of an actor holds its own for as long as it takes.
	schemas map[string]json.RawMessage
	names   []string
}

// NewRegistry makes a registry. It refuses two actors of one name and a schema that is none.
func NewRegistry(specs ...Spec) (*Registry, error) {
	r := &Registry{specs: make(map[string]Spec, len(specs)), schemas: make(map[string]json.RawMessage, len(specs))}
	for _, s := range specs {
		if _, ok := r.specs[s.Name]; ok || s.Name == "" || s.Actor == nil {
			return nil, fmt.Errorf("actor %q: needs a name of its own and an implementation", s.Name)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(s.Schema)))
		if err != nil {
			return nil, fmt.Errorf("actor %q: schema: %w", s.Name, err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("args.json", doc); err != nil {
			return nil, fmt.Errorf("actor %q: schema: %w", s.Name, err)
		}
		if _, err := c.Compile("args.json"); err != nil {
			return nil, fmt.Errorf("actor %q: schema: %w", s.Name, err)
		}
		r.specs[s.Name], r.schemas[s.Name] = s, json.RawMessage(s.Schema)
		r.names = append(r.names, s.Name)
	}
	slices.Sort(r.names)
	return r, nil
}

// ActorInfo is what validation and compilation ask for. Its schema must not be changed.
func (r *Registry) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	s, ok := r.specs[name]
	if !ok {
		return workgraph.ActorInfo{}, false
	}
	return workgraph.ActorInfo{Effect: s.Effect, EffectOf: s.EffectOf, SeesPlace: s.SeesPlace, Computes: s.Computes, Elsewhere: s.Elsewhere, Description: s.Description, Version: s.Version, Schema: r.schemas[name],
		Examine: s.Examine, NeverExpands: !s.Expands, Inner: s.Inner, WaitsFor: slices.Clone(s.WaitsFor), Approves: s.Approves, Uncached: s.Uncached, NamedOnly: s.NamedOnly, Internal: s.Internal, MakesInternal: s.MakesInternal}, true
}

// Actor is the actor of that name.
func (r *Registry) Actor(name string) (workgraph.Actor, bool) {
	s, ok := r.specs[name]
	return s.Actor, ok
}

// Evaluated are the expressions that a call of the actor evaluates when it has these named arguments; nil of
// one that evaluates none.
func (r *Registry) Evaluated(name string, named map[string]json.RawMessage) []string {
	s, ok := r.specs[name]
	if !ok || s.Expressions == nil {
		return nil
	}
	return append([]string{}, s.Expressions(named)...)
}

// Names lists all names in order.
func (r *Registry) Names() []string { return slices.Clone(r.names) }

// Specs lists all actors by name.
func (r *Registry) Specs() []Spec {
	out := make([]Spec, len(r.names))
	for i, n := range r.names {
		out[i] = r.specs[n]
	}
	return out
}

// ReasonArguments is the reason when an actor's arguments cannot be used. It is permanent and nothing was
// performed.
const ReasonArguments = "ARGUMENTS_INVALID"

// BadArguments is the error of faulty arguments of a call.
func BadArguments(format string, args ...any) *workgraph.Error {
	return workgraph.Errorf(workgraph.Permanent, ReasonArguments, format, args...)
}

// Decode reads the named arguments that dst, a pointer to a struct, has fields for, each by its json tag; the
// rest is left alone. Numbers keep all their digits where dst asks for json.Number or json.RawMessage.
func Decode(named map[string]json.RawMessage, dst any) error {
	// Only the fields of the struct are decoded: propagated inputs may be large.
	asked := map[string]json.RawMessage{}
	for f := range reflect.TypeOf(dst).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if v, ok := named[name]; ok {
			asked[name] = v
		}
	}
	if err := json.Unmarshal(object(asked), dst); err != nil {
		return BadArguments("%v", err)
	}
	return nil
}

// OwnText is a node's own argument if it is a text; a propagated input may replace it.
func OwnText(n *workgraph.Node, name string) (text string, ok bool) { return Text(n.Named, name) }

// Text is the argument if it is a text.
func Text(named map[string]json.RawMessage, name string) (text string, ok bool) {
	raw := bytes.TrimSpace(named[name])
	ok = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
	return text, ok
}

// Duration reads the text of an argument that is a length of time; the error is of the arguments and says how
// to write it.
func Duration(name, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	if _, number := strconv.ParseFloat(strings.TrimSpace(s), 64); number == nil {
		return 0, BadArguments("%s %q has no unit; write %q for seconds, or 72h, 1m30s, 500ms", name, s, strings.TrimSpace(s)+"s")
	}
	return 0, BadArguments("%s %q is no length of time; write it like 72h, 1m30s or 500ms", name, s)
}

// Faulty is the finding about an argument of a node's own that an actor would refuse, if err is one.
func Faulty(arg string, err error) []workgraph.Argument {
	if err == nil {
		return nil
	}
	message := err.Error()
	if e, ok := errors.AsType[*workgraph.Error](err); ok {
		message = e.Message
	}
	return []workgraph.Argument{{Arg: arg, Fault: message}}
}

// Value is an outcome of one value.
func Value(v any) (workgraph.Outcome, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, workgraph.ReasonBadOutcome, "the result cannot be written as JSON: %v", err)
	}
	return workgraph.Outcome{Values: []json.RawMessage{raw}}, nil
}

// Encode writes JSON without the escapes that are for web pages, which cost tokens.
func Encode(v any) (json.RawMessage, error) {
	b, err := plainjson.Marshal(v)
	return bytes.Clone(b), err // values are kept for long, without the room to grow
}

// AsText is a value as models and people read it: the text of a JSON string, nothing for null, and any other
// value as JSON without the spaces, which cost tokens.
func AsText(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	var s string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case raw[0] == '"' && json.Unmarshal(raw, &s) == nil:
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// Result is one value for the values of a visit: null for none, the value for one, a list for a tuple.
func Result(values []json.RawMessage) json.RawMessage {
	switch len(values) {
	case 0:
		return json.RawMessage("null")
	case 1:
		return values[0]
	}
	return List(values)
}

// List writes a JSON list of raw values, without reading them again.
func List(vals []json.RawMessage) json.RawMessage {
	n := 2 + len(vals)
	for _, v := range vals {
		n += len(v)
	}
	b := append(make([]byte, 0, n), '[')
	for i, v := range vals {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// object and text write JSON around raw values without reading those again.
func object(m map[string]json.RawMessage) json.RawMessage {
	n := 2
	for k, v := range m {
		n += len(k) + len(v) + 8
	}
	b := append(make([]byte, 0, n), '{')
	first := true
	for k, v := range m {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(b, text(k)...), ':')
		b = append(b, v...)
	}
	return append(b, '}')
}

func text(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`) // texts always marshal
	}
	return raw
}
