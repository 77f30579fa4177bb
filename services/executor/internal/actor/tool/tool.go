// Package tool makes actors of other built-in ones: a tool has arguments that the operator fixes, which no
// caller, graph or model sees or changes. So credentials stand in the configuration and in no run.
package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Prefix is how the names of tools begin: the tool NAME is the actor tool/NAME.
const Prefix = "tool/"

// Actors are the actors of which tools can be made. Others depend on more than their arguments.
var Actors = []string{"http", "starlark"}

// Config defines tools by name.
type Config map[string]Tool

// Tool is an actor with fixed arguments. Exactly one of Arguments and File is set.
type Tool struct {
	// Actor does the work; http if it is empty. See Actors.
	Actor string
	// Description says what a call does, to people and models.
	Description string
	// Arguments is a JSON object of the fixed arguments.
	Arguments conf.Secret `format:"json"`
	// File holds the same.
	File string
	// Schema is the JSON Schema of the other arguments. A call gives those that it lists and no others. If it
	// is empty, a call gives what the actor takes besides the fixed arguments.
	Schema string `format:"json"`
	// Effect is what a call does to the world, if the actor cannot know it.
	Effect workgraph.Effect
	// Namespaces are those whose runs may call the tool; empty means all.
	Namespaces []string
}

// ReasonNamespace is the reason when the runs of a namespace may not call a tool.
const ReasonNamespace = "TOOL_NOT_ALLOWED"

// maxTools bounds the tools of one executor, and maxText the arguments and the schema of each, in bytes.
const (
	maxTools = 1000
	maxText  = 1 << 20
)

// Specs describes the tools, by name. The given specs are those of the actors that tools are made of. The
// error has every fault.
func (c Config) Specs(of ...actor.Spec) ([]actor.Spec, error) {
	if len(c) > maxTools {
		return nil, fmt.Errorf("tools: at most %d, got %d", maxTools, len(c))
	}
	var out []actor.Spec
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		t := c[name]
		s, err := t.spec(name, of)
		if err != nil {
			faults = append(faults, fmt.Errorf("tools.%s: %w", name, err))
			continue
		}
		out = append(out, s)
	}
	return out, errors.Join(faults...)
}

// tool is a Tool that is ready for calls. It is immutable.
type tool struct {
	name       string
	actor      actor.Spec
	fixed      map[string]json.RawMessage
	namespaces []string
	// open are the arguments that a call may give, and schema checks them. Both are nil if it may give all
	// others.
	open   map[string]bool
	schema *workgraph.Schema
}

func (c *Tool) spec(name string, of []actor.Spec) (actor.Spec, error) {
	if err := actor.CheckName(name); err != nil {
		return actor.Spec{}, err
	}
	base, err := c.base(of)
	if err != nil {
		return actor.Spec{}, err
	}
	t := &tool{name: name, actor: base, namespaces: c.Namespaces}
	if t.fixed, err = c.arguments(); err != nil {
		return actor.Spec{}, err
	}
	theirs, err := readSchema(json.RawMessage(base.Schema))
	if err != nil {
		return actor.Spec{}, err
	}
	if err := t.check(theirs); err != nil {
		return actor.Spec{}, err
	}
	own := actor.SchemaWithout(json.RawMessage(base.Schema), func(name string) bool { _, fixed := t.fixed[name]; return fixed })
	if c.Schema != "" {
		if own, err = t.restrict(c.Schema, theirs); err != nil {
			return actor.Spec{}, err
		}
	}
	s := base
	s.Name, s.Description, s.Actor, s.Examine = Prefix+name, c.Description, workgraph.ActorFunc(t.call), t.examine
	if s.Description == "" {
		s.Description = "The tool " + name + "."
	}
	s.Schema = string(own)
	s.Version = t.version(s.Schema)
	switch c.Effect {
	case "":
		if base.EffectOf != nil {
			s.EffectOf = func(n *workgraph.Node) workgraph.Effect { return base.EffectOf(t.node(n)) }
		}
	case workgraph.Pure, workgraph.Idempotent, workgraph.Unsafe:
		s.Effect, s.EffectOf = c.Effect, nil
	default:
		return actor.Spec{}, fmt.Errorf("effect must be PURE, IDEMPOTENT or UNSAFE, got %q", c.Effect)
	}
	return s, nil
}

// base is the actor that the tool is made of.
func (c *Tool) base(of []actor.Spec) (actor.Spec, error) {
	name := c.Actor
	if name == "" {
		name = Actors[0]
	}
	i := slices.IndexFunc(of, func(s actor.Spec) bool { return s.Name == name })
	if i < 0 || !slices.Contains(Actors, name) {
		return actor.Spec{}, fmt.Errorf("actor %.80q: tools are made of %s", name, strings.Join(Actors, " and "))
	}
	return of[i], nil
}

// arguments reads the fixed arguments. Errors do not show them.
func (c *Tool) arguments() (map[string]json.RawMessage, error) {
	text, err := actor.Configured("arguments", c.Arguments.Reveal(), c.File, maxText)
	if err != nil {
		return nil, err
	}
	var fixed map[string]json.RawMessage
	if err := json.Unmarshal(text, &fixed); err != nil || len(fixed) == 0 {
		return nil, errors.New("arguments: write a JSON object with the arguments that are fixed")
	}
	return fixed, nil
}

// check reports fixed arguments that the actor would refuse.
func (t *tool) check(theirs *objectSchema) error {
	optional := maps.Clone(theirs.parts)
	delete(optional, "required")
	raw, err := actor.Encode(optional)
	if err != nil {
		return err
	}
	whole, err := workgraph.CompileSchema(context.Background(), raw)
	if err != nil {
		return err
	}
	given, err := actor.Encode(t.fixed)
	if err != nil {
		return err
	}
	if err := whole.Check(context.Background(), given); err != nil {
		faults, ok := errors.AsType[workgraph.SchemaFaults](err)
		if !ok {
			return fmt.Errorf("arguments: they cannot be checked")
		}
		places := make([]string, len(faults))
		for i, f := range faults { // the messages may show values
			places[i] = f.Place
		}
		return fmt.Errorf("arguments: %s does not take them: look at %s", t.actor.Name, strings.Join(places, ", "))
	}
	if t.actor.Examine == nil {
		return nil
	}
	for _, a := range t.actor.Examine(context.Background(), &workgraph.Node{Named: t.fixed}) {
		if a.Fault != "" {
			return fmt.Errorf("arguments: %s cannot be used", a.Arg) // the fault may show the value
		}
	}
	return nil
}

// restrict reads the schema of the arguments that calls give.
func (t *tool) restrict(text string, theirs *objectSchema) (json.RawMessage, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("schema: more than %d bytes", maxText)
	}
	own, err := readSchema(json.RawMessage(text))
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if t.schema, err = workgraph.CompileSchema(context.Background(), json.RawMessage(text)); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	t.open = map[string]bool{}
	for name := range own.properties {
		_, fixed := t.fixed[name]
		switch {
		case fixed:
			return nil, fmt.Errorf("schema: properties.%s is fixed by the arguments", name)
		case theirs.closed() && theirs.properties[name] == nil:
			return nil, fmt.Errorf("schema: properties.%s is no argument of %s, which takes %s", name, t.actor.Name, strings.Join(slices.Sorted(maps.Keys(theirs.properties)), ", "))
		}
		t.open[name] = true
	}
	own.parts["additionalProperties"] = json.RawMessage("false")
	return actor.Encode(own.parts)
}

// version tells caches two definitions apart. Headers are left out: a new credential changes no result.
func (t *tool) version(schema string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t.fixed)) {
		if name != "headers" {
			_, _ = fmt.Fprintf(h, "%q %q ", name, t.fixed[name])
		}
	}
	_, _ = io.WriteString(h, schema)
	return t.actor.Version + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// node is the node of a tool as its actor would see it.
func (t *tool) node(n *workgraph.Node) *workgraph.Node {
	whole := *n
	whole.Named = t.whole(n.Named)
	return &whole
}

// whole are the arguments of the actor: those that are given and may be, and the fixed ones.
func (t *tool) whole(given map[string]json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(given)+len(t.fixed))
	for k, v := range given {
		if t.open == nil || t.open[k] {
			out[k] = v
		}
	}
	maps.Copy(out, t.fixed)
	return out
}

// examine is that of the actor, of what a node states itself.
func (t *tool) examine(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	if t.actor.Examine == nil {
		return nil
	}
	return slices.DeleteFunc(t.actor.Examine(ctx, t.node(n)), func(a workgraph.Argument) bool { _, own := n.Named[a.Arg]; return !own })
}

func (t *tool) call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	if ns := actor.NamespaceOf(ctx); len(t.namespaces) > 0 && !slices.Contains(t.namespaces, ns) {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonNamespace, "the tool %s is not for the namespace %q: ask the operator to add it to its namespaces", t.name, ns)
	}
	if err := t.checkCall(ctx, c.Named); err != nil {
		return workgraph.Outcome{}, err
	}
	named, own := c.Named, c.Own
	defer func() { c.Named, c.Own = named, own }() // what is fixed is for the actor alone
	c.Named, c.Own = t.whole(named), t.whole(own)
	return t.actor.Actor.Call(ctx, c)
}

// checkCall reports arguments that the schema of the tool refuses. They may have come from other nodes or a
// model, so that nobody has seen them before.
func (t *tool) checkCall(ctx context.Context, named map[string]json.RawMessage) error {
	if t.schema == nil {
		return nil
	}
	given := map[string]json.RawMessage{}
	for k := range t.open {
		if v, ok := named[k]; ok {
			given[k] = v
		}
	}
	raw, err := actor.Encode(given)
	if err != nil {
		return actor.BadArguments("%v", err)
	}
	err = t.schema.Check(ctx, raw)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return actor.BadArguments("the arguments are not what the schema of the tool %s asks for: %v", t.name, err)
	}
	return nil
}

// objectSchema is the schema of an object, in its parts.
type objectSchema struct {
	parts      map[string]json.RawMessage
	properties map[string]json.RawMessage
}

func readSchema(raw json.RawMessage) (*objectSchema, error) {
	var s objectSchema
	var typed struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(raw, &s.parts) != nil || json.Unmarshal(raw, &typed) != nil || typed.Type != "object" {
		return nil, errors.New(`write the JSON Schema of an object: {"type": "object", "properties": {…}}`)
	}
	s.properties = typed.Properties
	return &s, nil
}

// closed reports whether the object has no other properties.
func (s *objectSchema) closed() bool {
	return string(bytes.TrimSpace(s.parts["additionalProperties"])) == "false"
}
