package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Config defines agents by name: the agent NAME is the actor agent/NAME.
type Config map[string]Named

// Named is the definition of an agent with a name. Exactly one of Definition and File is set.
type Named struct {
	// Description says what the agent does, to people and to agents that may call it.
	Description string `conf:"description" help:"what the agent does"`
	// Definition is a JSON object of the arguments that a node of the actor agent would state itself. A
	// budget and a timeout in it bound each call: a caller may lower them.
	Definition string `conf:"definition" format:"json" help:"arguments of the actor agent, as keys and values or a JSON text; callers can read it in the runs of the agent, so it must hold no secrets"`
	// File holds the same.
	File string `conf:"file" help:"file with the definition"`
}

// maxDefinition bounds a definition, in bytes.
const maxDefinition = 1 << 20

// Specs describes the agents, by name. Limits are those of Specs. The error has every fault.
func (c Config) Specs(limits Limits) ([]actor.Spec, error) {
	var out []actor.Spec
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(c)) {
		s, err := c[name].spec(name, limits)
		if err != nil {
			faults = append(faults, fmt.Errorf("agents.%s: %w", name, err))
			continue
		}
		out = append(out, s)
	}
	return out, errors.Join(faults...)
}

func (n Named) spec(name string, limits Limits) (actor.Spec, error) {
	if err := actor.CheckName(name); err != nil {
		return actor.Spec{}, err
	}
	own, err := n.arguments()
	if err != nil {
		return actor.Spec{}, err
	}
	d, err := ownDefinition(context.Background(), own)
	if err != nil {
		return actor.Spec{}, err
	}
	if d.limits, err = limitsOf(own); err != nil {
		return actor.Spec{}, err
	}
	description := n.Description
	if description == "" {
		description = "The agent " + name + "."
	}
	whole, err := actor.Encode(own)
	if err != nil {
		return actor.Spec{}, err
	}
	sum := sha256.Sum256(whole)
	uncached := uncached
	if d.Thread != nil {
		uncached = func(*workgraph.Node) string { return "the agent goes on with a thread" }
	}
	return actor.Spec{Name: actorAgent + "/" + name, Version: "1-" + hex.EncodeToString(sum[:8]), Uncached: uncached, Effect: workgraph.Idempotent, SeesPlace: true, Computes: true, Description: description,
		WaitsFor: []string{"timeout"}, MakesInternal: true, Examine: d.examineCall,
		Inner:  func(*workgraph.Node) []workgraph.InnerNode { return inner(&workgraph.Node{Named: own}) },
		Schema: `{"type": "object", "additionalProperties": false, "properties": {` + givenProperties + `,` + callProperties + `}}`,
		Actor: workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			mine := *d
			mine.Actions = make(map[string]*action, len(d.Actions))
			for k, a := range d.Actions { // a call takes over what the actors state of themselves
				one := *a
				mine.Actions[k] = &one
			}
			if err := mine.add(ctx, c.Own); err != nil {
				return workgraph.Outcome{}, err
			}
			return mine.call(ctx, c, limits)
		})}, nil
}

// examineCall returns the faults of the own arguments of a node that calls an agent with a name.
func (d *definition) examineCall(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	if text, ok := actor.OwnText(n, "timeout"); ok {
		if _, err := wait.Timeout(text); err != nil {
			return actor.Faulty("timeout", err)
		}
	}
	mine := *d
	err := mine.add(ctx, n.Named)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	name := argSignals
	if e, ok := errors.AsType[*argumentError](err); ok {
		name = e.argument
	}
	return actor.Faulty(name, err)
}

// arguments reads the definition as the own arguments of a node.
func (n Named) arguments() (map[string]json.RawMessage, error) {
	text, err := actor.Configured("definition", n.Definition, n.File, maxDefinition)
	if err != nil {
		return nil, err
	}
	var own map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&own); err != nil {
		return nil, fmt.Errorf("the definition must be a JSON object: %w", err)
	}
	parts := slices.Concat(definitionFields, policyFields, limitFields)
	for _, k := range sorted(own) {
		if !slices.Contains(parts, k) {
			return nil, fmt.Errorf("%.80q is no part of a definition: use %s", k, strings.Join(parts, ", "))
		}
	}
	return own, nil
}
