package llm

import "strings"

// Assembly makes the message of the pieces of a stream. The zero value is empty.
type Assembly struct {
	text  strings.Builder
	calls []*callParts
}

type callParts struct {
	id, name  string
	arguments strings.Builder
}

// Add adds a piece. The error is about a call whose index leaves a gap, or about more calls than an answer
// may have.
func (a *Assembly) Add(d Delta) error {
	a.text.WriteString(d.Text)
	c := d.Call
	if c == nil {
		return nil
	}
	if err := nextCall(c.Index, len(a.calls)); err != nil {
		return err
	}
	if c.Index == len(a.calls) {
		a.calls = append(a.calls, &callParts{})
	}
	into := a.calls[c.Index]
	if c.ID != "" {
		into.id = c.ID
	}
	if into.name == "" {
		into.name = c.Name
	}
	into.arguments.WriteString(c.Arguments)
	return nil
}

// Message is the message of all pieces.
func (a *Assembly) Message() Message {
	m := Message{Role: Assistant, Content: a.text.String()}
	for _, c := range a.calls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: c.id, Name: c.name, Arguments: Arguments(c.arguments.String())})
	}
	return m
}
