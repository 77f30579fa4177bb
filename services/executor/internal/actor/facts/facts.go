// Package facts is the actor that tells what an agent keeps as facts. It owns how they are chosen and shown;
// it must not know how they are stored.
package facts

import (
	"context"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/fact"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Name is the name of the actor.
const Name = "facts"

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "agent": {"type": "string", "minLength": 1, "maxLength": 256, "description": "The agent whose facts are told, such as agent/NAME; read from the node's own arguments only."},
    "about": {"type": "string", "description": "Only facts whose name or text has all of these words."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "How many are told, those that were learned last; 100 when absent."}
  }
}`

// Bounds of one call.
const (
	defaultLimit = 100
	maxAbout     = 4 << 10
	pageSize     = 200
	// maxMemory bounds the text of the memory, in bytes.
	maxMemory = 256 << 10
)

// Spec describes the actor, which reads facts from a store.
func Spec(store fact.Store) actor.Spec {
	return actor.Spec{
		Name: Name, Version: "1", Effect: workgraph.Pure, SeesPlace: true, Schema: schema,
		Description: "Tells what an agent has learned about the user of the run.",
		Actor: workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			return call(ctx, store, c)
		}),
	}
}

// told is a fact as a result shows it.
type told struct {
	Name    string    `json:"name"`
	Content string    `json:"content"`
	Learned time.Time `json:"learned"`
}

// result has the facts, and the same as the memory of an action, which prompts show as {action_memory}.
type result struct {
	Facts  []told `json:"facts"`
	Memory struct {
		Memory string `json:"memory"`
	} `json:"action_memory"`
}

func call(ctx context.Context, store fact.Store, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		About string `json:"about"`
		Limit int    `json:"limit"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	agent, _ := actor.Text(c.Own, "agent")
	switch {
	case agent == "":
		return workgraph.Outcome{}, actor.BadArguments("agent is missing: name the agent whose facts are told on the node itself")
	case len(a.About) > maxAbout:
		return workgraph.Outcome{}, actor.BadArguments("about has %d bytes, the limit is %d", len(a.About), maxAbout)
	case a.Limit == 0:
		a.Limit = defaultLimit
	}
	if a.Limit < 1 || a.Limit > fact.MaxFacts {
		return workgraph.Outcome{}, actor.BadArguments("limit must be from 1 to %d", fact.MaxFacts)
	}
	words := strings.Fields(strings.ToLower(a.About))
	out := result{Facts: []told{}}
	var memory strings.Builder
	for after := (page.Cursor{}); ; {
		found, err := store.ListFacts(ctx, actor.NamespaceOf(ctx), fact.Filter{Agent: agent, User: &c.UserID}, after, pageSize)
		if err != nil {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Retryable, "FACTS_UNAVAILABLE", "the facts cannot be read: %v", err)
		}
		for i := range found {
			f := &found[i]
			after = page.Cursor{CreateTime: f.Time, ID: f.ID}
			if len(out.Facts) == a.Limit || memory.Len()+len(f.Content) > maxMemory {
				found = nil
				break
			}
			if has(f, words) {
				out.Facts = append(out.Facts, told{f.Name, f.Content, f.Time})
				memory.WriteString("- " + f.Content + "\n")
			}
		}
		if len(found) == 0 {
			break
		}
	}
	out.Memory.Memory = strings.TrimSuffix(memory.String(), "\n")
	return actor.Value(out)
}

// has reports whether the name or the text of a fact has all of the words, which are in lower case.
func has(f *fact.Fact, words []string) bool {
	text := strings.ToLower(f.Name + "\n" + f.Content)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
