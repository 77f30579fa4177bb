package chat

import (
	"context"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReplySpec describes the actor of steps that say something.
func ReplySpec(threads thread.Reader) actor.Spec {
	s := sayer{threads}
	return actor.Spec{
		Name: flow.ReplyActor, Version: "1", Effect: workgraph.Idempotent, SeesPlace: true, Actor: workgraph.ActorFunc(s.reply),
		Description: "Gives the value that it is given. In the workflow that takes a turn of a chat it is said there at once.",
		Schema:      `{"type": "object", "additionalProperties": false, "required": ["value"], "properties": {"value": {"description": "What is said: a text, or a value that is said as a result would be."}}}`,
		Uncached:    func(*workgraph.Node) string { return "it says something" },
	}
}

// reply appends what is said to the thread of the chat, with the outcome of the visit, so that it is said
// once. The run of the turn lends the thread.
func (s sayer) reply(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	out, err := flow.Reply(ctx, c)
	if err != nil || !c.InTurn() || c.Thread == "" {
		return out, err
	}
	text := Text(out.Values[0])
	if text == "" {
		return out, nil
	}
	body, err := message(roleAssistant, text)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	add, _, err := standing.Begin(ctx, s.threads, c, c.Thread, nil, []string{c.RootRunID})
	if err != nil {
		return workgraph.Outcome{}, err
	}
	add.Items, add.Says = []workgraph.ThreadItem{{Kind: workgraph.ThreadMessage, Body: body}}, true
	out.Threads = []workgraph.ThreadAppend{add}
	return out, nil
}
