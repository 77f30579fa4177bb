package agent

import (
	"encoding/json"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

// maxKeptCalls is how many calls of one message are kept, each with an answer: as many as max_actions allows
// at most.
const maxKeptCalls = 100

// answerable reports whether a model server takes the message back once its calls are answered. It does not
// if calls lack a name, or an id of their own.
func answerable(raw json.RawMessage) bool {
	var m struct {
		Calls []llm.ToolCall `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &m) != nil || len(m.Calls) > maxKeptCalls {
		return false
	}
	req := llm.Request{Messages: []llm.Message{{Role: llm.Assistant, ToolCalls: m.Calls}}}
	for i := range m.Calls {
		if c := &m.Calls[i]; len(c.Arguments) == 0 {
			c.Arguments = json.RawMessage("{}") // a reasoner of its own may leave them out
		}
		req.Messages = append(req.Messages, llm.Message{Role: llm.ToolRole, ToolCallID: m.Calls[i].ID})
	}
	return req.Check() == nil
}

// inWords is what a reasoner wrote as a text. Of a message whose calls cannot be kept it tells how many there
// were.
func inWords(raw json.RawMessage) string {
	var m struct {
		Role    string            `json:"role"`
		Content string            `json:"content"`
		Calls   []json.RawMessage `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Role != llm.Assistant || len(m.Calls) == 0 {
		return actor.AsText(raw)
	}
	if m.Content != "" {
		m.Content += "\n\n"
	}
	return fmt.Sprintf("%s(%d tool calls)", m.Content, len(m.Calls))
}
