// Package cel is the actor that evaluates one CEL expression: filters, choices and small sums between other
// nodes. It owns nothing but that; the language and its cost limit are workgraph's.
package cel

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const schema = `{
  "type": "object",
  "required": ["expr"],
  "properties": {
    "expr": {
      "type": "string",
      "description": "A CEL expression over args, named, node, visit, attempt, item, input, context, state and nodes.ID.result of every node before this one that has completed."
    }
  }
}`

// Spec describes the actor.
func Spec() actor.Spec {
	exprs := actor.NewExpressions()
	return actor.Spec{
		Name: "cel", Version: "1", Effect: workgraph.Pure, SeesPlace: true, Computes: true, Schema: schema, Examine: examine, Expressions: expressions,
		Description: "Evaluates a CEL expression over its arguments and the results of the nodes before it.",
		Actor:       workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) { return call(ctx, exprs, c) }),
	}
}

// examine names the expression, so that it is looked at before anything runs.
func examine(_ context.Context, n *workgraph.Node) []workgraph.Argument {
	src, ok := actor.OwnText(n, "expr")
	switch {
	case !ok:
		return nil // another type is the schema's to refuse
	case src == "":
		return []workgraph.Argument{{Arg: "expr", Fault: "the expression is empty", Hint: "write a CEL expression"}}
	}
	return []workgraph.Argument{{Arg: "expr", Expr: src}}
}

// expressions is the one that a call evaluates.
func expressions(named map[string]json.RawMessage) []string {
	if src, ok := actor.Text(named, "expr"); ok {
		return []string{src}
	}
	return nil
}

// ReasonExpression is the reason when an expression cannot be compiled or evaluated.
const ReasonExpression = "EXPRESSION_FAILED"

func call(ctx context.Context, exprs *actor.Expressions, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Expr string `json:"expr"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Expr == "" {
		return workgraph.Outcome{}, actor.BadArguments("expr is missing")
	}
	limited, cancel := actor.Limited(ctx)
	defer cancel()
	v, err := exprs.Eval(limited, a.Expr, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return workgraph.Outcome{}, context.Cause(ctx)
	case err != nil:
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonExpression, "%v", err)
	}
	return workgraph.Outcome{Values: []json.RawMessage{v}}, nil
}
