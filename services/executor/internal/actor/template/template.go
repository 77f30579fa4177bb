// Package template is the actor that fills a text: every {{ expression }} in it is CEL, so that a text from a model is bounded
// like every other expression. It knows no loops and no files.
package template

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const schema = `{
  "type": "object",
  "required": ["text"],
  "properties": {
    "text": {
      "type": "string",
      "description": "The text. {{ expression }} is replaced by the value of a CEL expression over args, named, node, visit, attempt, input, context, state and nodes.ID.result: a string as it is, anything else as JSON. {{{{ stands for {{."
    }
  }
}`

// maxHoles bounds the expressions of one text, and maxOutput the bytes of what comes out.
const (
	maxHoles  = 1000
	maxOutput = 4 << 20
)

// ReasonTemplate is the reason when a text cannot be filled.
const ReasonTemplate = "TEMPLATE_FAILED"

// Spec describes the actor.
func Spec() actor.Spec {
	exprs := actor.NewExpressions()
	return actor.Spec{
		Name: "template", Version: "2", Effect: workgraph.Pure, SeesPlace: true, Computes: true, Schema: schema,
		Description: "Fills the {{ expressions }} of a text with values of its arguments and of the nodes before it.",
		Actor:       workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) { return call(ctx, exprs, c) }),
	}
}

func call(ctx context.Context, exprs *actor.Expressions, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Text *string `json:"text"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Text == nil {
		return workgraph.Outcome{}, actor.BadArguments("text is missing")
	}
	limited, cancel := actor.Limited(ctx)
	defer cancel()
	out, err := fill(limited, exprs, *a.Text, actor.Vars(c))
	switch {
	case err != nil && ctx.Err() != nil:
		return workgraph.Outcome{}, context.Cause(ctx)
	case err != nil:
		return workgraph.Outcome{}, err
	}
	return actor.Value(out)
}

func fill(ctx context.Context, exprs *actor.Expressions, text string, vars func(string) (json.RawMessage, bool)) (string, error) {
	var b strings.Builder
	rest := text
	for holes := 0; ; {
		before, after, found := strings.Cut(rest, "{{")
		b.WriteString(before)
		if b.Len() > maxOutput {
			return "", workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "the filled text is longer than %d bytes", maxOutput)
		}
		if !found {
			return b.String(), nil
		}
		if tail, ok := strings.CutPrefix(after, "{{"); ok { // an escaped {{
			b.WriteString("{{")
			rest = tail
			continue
		}
		at := len(text) - len(after)
		src, tail, closed := strings.Cut(after, "}}")
		if !closed {
			return "", workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "the {{ on line %d is not closed", line(text, at))
		}
		if holes++; holes > maxHoles {
			return "", workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "the text has more than %d expressions", maxHoles)
		}
		v, err := eval(ctx, exprs, strings.TrimSpace(src), vars)
		if err != nil {
			return "", workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "{{%s}} on line %d: %v", src, line(text, at), err)
		}
		b.WriteString(v)
		rest = tail
	}
}

func eval(ctx context.Context, exprs *actor.Expressions, src string, vars func(string) (json.RawMessage, bool)) (string, error) {
	raw, err := exprs.Eval(ctx, src, vars)
	if err != nil {
		return "", err
	}
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return s, nil
	}
	return string(raw), nil
}

func line(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }
