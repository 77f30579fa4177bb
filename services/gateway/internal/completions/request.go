package completions

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// maxMessages bounds the messages of a request.
	maxMessages = 1000
	// reasonUnsupported refuses a parameter, as the API of OpenAI calls it.
	reasonUnsupported = "unsupported_parameter"
	reasonInvalid     = "invalid_request_error"
)

// request is a request, as far as it is used.
type request struct {
	Model    string
	Messages []message
	Stream   bool
	// With says what is in a stream besides the answer.
	With struct {
		Usage bool `json:"include_usage"`
	}
	User string

	// unused are the parameters that say what an agent decides by itself.
	unused []string
}

// message is a message of a request.
type message struct {
	Role    string `json:"role"`
	Content text   `json:"content"`
}

// text is a text, or a list of parts that are texts.
type text string

// UnmarshalJSON reads either form.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = text(s)
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	var all []string
	for _, p := range parts {
		if p.Type != "text" {
			return fault("messages", reasonUnsupported, "parts of the type %.40q are not read here; the content of a message is text", p.Type)
		}
		all = append(all, p.Text)
	}
	*t = text(strings.Join(all, "\n"))
	return nil
}

// unusedParameters are those that the definition of an agent says, or that are about OpenAI's own service.
// Chat programs send them without being asked to, so they are named in the answer and not refused.
func unusedParameters() []string {
	return []string{
		"frequency_penalty", "logit_bias", "max_completion_tokens", "max_tokens", "metadata", "parallel_tool_calls", "presence_penalty", "prompt_cache_key",
		"prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed", "service_tier", "stop", "store", "temperature", "top_p", "verbosity",
	}
}

// plain are parameters that are taken with the one value that asks for nothing special.
func plain() map[string][]string {
	return map[string][]string{
		"n": {"1"}, "logprobs": {"false"}, "tools": {"[]"}, "functions": {"[]"}, "tool_choice": {`"none"`, `"auto"`},
		"response_format": {`{"type":"text"}`}, "modalities": {`["text"]`},
	}
}

// read reads a request. What it does not use is refused by name, unless it is among unusedParameters.
func read(body []byte) (*request, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fault("body", reasonInvalid, "the body is no JSON object: %v", err)
	}
	req := &request{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		var into any
		switch name {
		case "model":
			into = &req.Model
		case "messages":
			into = &req.Messages
		case "stream":
			into = &req.Stream
		case "stream_options":
			into = &req.With
		case "user":
			into = &req.User
		default:
			if err := req.other(name, raw); err != nil {
				return nil, err
			}
			continue
		}
		err := json.Unmarshal(raw, into)
		if e, ok := errors.AsType[*errs.Error](err); ok {
			return nil, e
		}
		if err != nil {
			return nil, fault(name, reasonInvalid, "%s cannot be read: %v", name, err)
		}
	}
	switch {
	case req.Model == "":
		return nil, fault("model", reasonInvalid, "model is missing: name an agent or a workflow, as GET /v1/models lists them")
	case len(req.Messages) == 0:
		return nil, fault("messages", reasonInvalid, "messages is empty: the last one is what is asked")
	case len(req.Messages) > maxMessages:
		return nil, fault("messages", reasonInvalid, "messages has %d entries, the limit is %d: name the thread in the header %s, and send the last one only", len(req.Messages), maxMessages, HeaderThread)
	case req.Messages[len(req.Messages)-1].Role != "user":
		return nil, fault("messages", reasonInvalid, "the last message is of the role %.40q, and must be of user: it is what is asked", req.Messages[len(req.Messages)-1].Role)
	}
	return req, nil
}

// other takes a parameter that nothing here uses.
func (r *request) other(name string, raw json.RawMessage) error {
	if string(raw) == "null" {
		return nil
	}
	if slices.Contains(unusedParameters(), name) {
		r.unused = append(r.unused, name)
		return nil
	}
	compact := strings.Join(strings.Fields(string(raw)), "")
	if slices.Contains(plain()[name], compact) {
		return nil
	}
	return fault(name, reasonUnsupported, "%.80s is not supported here with this value: an agent has tools, formats and limits of its own", name)
}

// last is what is asked, and history what was said before.
func (r *request) last() string       { return string(r.Messages[len(r.Messages)-1].Content) }
func (r *request) history() []message { return r.Messages[:len(r.Messages)-1] }

// value is the history as a thread.
func (r *request) value() ([]byte, error) {
	type item struct {
		Kind string            `json:"kind"`
		Body map[string]string `json:"body"`
	}
	type thread struct {
		ID    string `json:"id"`
		Items []item `json:"items"`
	}
	main := thread{ID: "main", Items: []item{}}
	for _, m := range r.history() {
		main.Items = append(main.Items, item{"message", map[string]string{"role": m.Role, "content": string(m.Content)}})
	}
	return json.Marshal(map[string]any{"format": "epigraph.thread/1", "threads": []thread{main}})
}
