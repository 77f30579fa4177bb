// Package chat is the run of a turn whose thread belongs to a workflow: the message is appended to the
// thread, the workflow runs, and what it answers is appended. It owns the graph of such a run and the
// actor that appends. It must not know where messages come from, nor where answers go.
package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	actorSay = "chat/say"
	// The nodes of a run.
	nodeHeard, nodeWorkflow, nodeAnswer = "message", "workflow", "answer"

	roleUser, roleAssistant = "user", "assistant"
	// maxMessage bounds a message that is kept, in bytes of its text.
	maxMessage = 256 << 10
)

// Spec describes the actor.
func Spec(threads thread.Reader) actor.Spec {
	s := sayer{threads}
	return actor.Spec{
		Name: actorSay, Version: "1", Effect: workgraph.Idempotent, SeesPlace: true, Internal: true, Actor: workgraph.ActorFunc(s.say),
		Description: "Appends a message to the thread of a chat. The turns of threads that belong to workflows use it.",
		Schema:      `{"type": "object", "additionalProperties": false, "properties": {"thread_id": {"type": "string"}, "role": {"enum": ["user", "assistant"]}, "text": {"type": "string"}}}`,
	}
}

// Graph is the run of a turn on a thread: what was said, and the workflow that answers it, as
// SLUG@VERSION, with its inputs. The result of the run is that of the workflow.
func Graph(threadID, text, version string, inputs map[string]json.RawMessage) (*workgraph.Graph, error) {
	values := func(in map[string]any) (map[string]json.RawMessage, error) {
		out := make(map[string]json.RawMessage, len(in))
		for k, v := range in {
			b, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", k, err)
			}
			out[k] = b
		}
		return out, nil
	}
	heard, err := values(map[string]any{"thread_id": threadID, "role": roleUser, "text": text})
	if err != nil {
		return nil, err
	}
	runs, err := values(map[string]any{"ref": "workflow/" + version, "as_result": true, "input": map[string]any{"named": inputs}})
	if err != nil {
		return nil, err
	}
	answer, err := values(map[string]any{"thread_id": threadID, "role": roleAssistant})
	if err != nil {
		return nil, err
	}
	return &workgraph.Graph{
		Name: "turn of " + version,
		Nodes: []workgraph.Node{
			{ID: nodeHeard, Actor: actorSay, Named: heard},
			{ID: nodeWorkflow, Actor: "spawn", Named: runs},
			{ID: nodeAnswer, Actor: actorSay, Named: answer},
		},
		Edges: []workgraph.Edge{{From: nodeHeard, To: nodeWorkflow}, {From: nodeWorkflow, To: nodeAnswer}},
	}, nil
}

type sayer struct{ threads thread.Reader }

// say appends a message. That of the assistant is what the workflow answered, which is the result as
// well.
func (s sayer) say(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Thread string `json:"thread_id"`
		Role   string `json:"role"`
		Text   string `json:"text"`
	}
	if err := actor.Decode(c.Own, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	result := json.RawMessage("null")
	if a.Role == roleAssistant {
		u, _ := standing.Source(c, nodeWorkflow)
		result = actor.Result(u.Values)
		if a.Text = Text(result); a.Text == "" {
			return workgraph.Outcome{Values: []json.RawMessage{result}}, nil // it has nothing to say
		}
	}
	body, err := message(a.Role, a.Text)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	add, at, err := standing.Begin(ctx, s.threads, c, a.Thread, nil, nil)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	out := workgraph.Outcome{Values: []json.RawMessage{result}}
	if a.Role == roleAssistant {
		said, err := s.said(ctx, at, body)
		if err != nil || said {
			return out, err
		}
		add.Says = true
	}
	add.Items = []workgraph.ThreadItem{{Kind: workgraph.ThreadMessage, Body: body}}
	out.Threads = []workgraph.ThreadAppend{add}
	return out, nil
}

// message is an item of the thread.
func message(role, text string) (json.RawMessage, error) {
	body, err := actor.Encode(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{role, errs.Clip(text, maxMessage)})
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	return body, nil
}

// said reports whether a message was just said, by a step that replies. What was said in the turn before
// has the message of the user behind it.
func (s sayer) said(ctx context.Context, at standing.Place, body json.RawMessage) (bool, error) {
	items, err := s.threads.Items(ctx, actor.NamespaceOf(ctx), at.Thread, thread.Query{Before: at.Seq + 1, Limit: 1})
	if err != nil {
		return false, standing.Error(err)
	}
	return len(items) == 1 && items[0].Kind == workgraph.ThreadMessage && bytes.Equal(items[0].Body, body), nil
}

// Text is what a workflow answers in a chat: its result if that is a text, else the field text, answer,
// message or reply of it, else a lone field that is a text, else all of it as JSON. Nothing stays
// nothing.
func Text(result json.RawMessage) string {
	var s string
	if json.Unmarshal(result, &s) == nil {
		return s
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(result, &fields) != nil || len(fields) == 0 {
		return plain(result)
	}
	for _, name := range []string{"text", "answer", "message", "reply"} {
		if raw, ok := fields[name]; ok && json.Unmarshal(raw, &s) == nil && s != "" {
			return s
		}
	}
	if len(fields) == 1 {
		for _, raw := range fields {
			if json.Unmarshal(raw, &s) == nil {
				return s
			}
		}
	}
	return plain(result)
}

func plain(result json.RawMessage) string {
	switch text := string(result); text {
	case "", "null", "{}", "[]":
		return ""
	default:
		return text
	}
}
