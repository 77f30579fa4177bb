// Package template is the actor that fills a text: every {{ expression }} in it is CEL, so that a text from a
// model is bounded like every other expression. It knows no loops and no files.
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
      "description": "The text. {{ expression }} is replaced by the value of a CEL expression over args, named, node, visit, attempt, item, input, context, state and nodes.ID.result of every node before this one that has completed: a string as it is, anything else as JSON. {{{{ stands for {{."
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
		Name: "template", Version: "1", Effect: workgraph.Pure, SeesPlace: true, Computes: true, Schema: schema, Examine: examine, Expressions: expressions,
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
	out, err := fill(limited, exprs, *a.Text, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return workgraph.Outcome{}, context.Cause(ctx)
	case err != nil:
		return workgraph.Outcome{}, err
	}
	return actor.Value(out)
}

// piece is a part of a text: literal text, then an expression unless it is the last part.
type piece struct {
	words, expr string
	hole        bool
	line        int
}

// parse takes a text apart.
func parse(text string) ([]piece, *workgraph.Error) {
	var out []piece
	var words strings.Builder
	rest := text
	for holes := 0; ; {
		before, after, found := strings.Cut(rest, "{{")
		words.WriteString(before)
		if !found {
			return append(out, piece{words: words.String()}), nil
		}
		if tail, ok := strings.CutPrefix(after, "{{"); ok { // an escaped {{
			words.WriteString("{{")
			rest = tail
			continue
		}
		at := line(text, len(text)-len(after))
		src, tail, closed := strings.Cut(after, "}}")
		if !closed {
			return nil, workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "the {{ on line %d is not closed", at)
		}
		if holes++; holes > maxHoles {
			return nil, workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "the text has more than %d expressions", maxHoles)
		}
		if src = strings.TrimSpace(src); src == "" {
			return nil, workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "the {{ }} on line %d is empty", at)
		}
		out = append(out, piece{words.String(), src, true, at})
		words.Reset()
		rest = tail
	}
}

// examine names the expressions of a node's own text, so that they are looked at before anything runs.
func examine(_ context.Context, n *workgraph.Node) []workgraph.Argument {
	text, ok := actor.OwnText(n, "text")
	if !ok {
		return nil // another type is the schema's to refuse
	}
	pieces, err := parse(text)
	if err != nil {
		return []workgraph.Argument{{Arg: "text", Fault: err.Message, Hint: "write {{ expression }}, and {{{{ for {{ itself"}}
	}
	var out []workgraph.Argument
	for _, p := range pieces {
		if p.hole {
			out = append(out, workgraph.Argument{Arg: "text", Expr: p.expr})
		}
	}
	return out
}

// expressions are those that a call evaluates.
func expressions(named map[string]json.RawMessage) []string {
	text, ok := actor.Text(named, "text")
	if !ok {
		return nil
	}
	pieces, err := parse(text)
	if err != nil {
		return nil // the call fails
	}
	var out []string
	for _, p := range pieces {
		if p.hole {
			out = append(out, p.expr)
		}
	}
	return out
}

func fill(ctx context.Context, exprs *actor.Expressions, text string, sc workgraph.Scope) (string, error) {
	pieces, fault := parse(text)
	if fault != nil {
		return "", fault
	}
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.words)
		if p.hole {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			v, err := eval(ctx, exprs, p.expr, sc)
			if err != nil {
				return "", workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "{{%s}} on line %d: %v", p.expr, p.line, err)
			}
			b.WriteString(v)
		}
		if b.Len() > maxOutput {
			return "", workgraph.Errorf(workgraph.Permanent, ReasonTemplate, "the filled text is longer than %d bytes", maxOutput)
		}
	}
	return b.String(), nil
}

func eval(ctx context.Context, exprs *actor.Expressions, src string, sc workgraph.Scope) (string, error) {
	raw, err := exprs.Eval(ctx, src, sc)
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
