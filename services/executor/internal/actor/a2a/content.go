package a2a

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// part is a part of a message as arguments and results write it. Exactly one of Text, Data, URL and Raw
// is set.
type part struct {
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	URL       string          `json:"url,omitempty"`
	Raw       []byte          `json:"raw,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	MediaType string          `json:"media_type,omitempty"`
}

// maxParts bounds the parts of a message.
const maxParts = 100

// partsOf are the parts of a message: a text, or a list of parts, and structured data.
func partsOf(message, data json.RawMessage) ([]part, error) {
	var out []part
	var text string
	message = bytes.TrimSpace(message)
	switch {
	case len(message) > 0 && message[0] == '[':
		d := json.NewDecoder(bytes.NewReader(message))
		d.DisallowUnknownFields()
		if err := d.Decode(&out); err != nil {
			return nil, actor.BadArguments("message: a part has text, data, url or raw, and filename and media_type: %v", err)
		}
	case json.Unmarshal(message, &text) == nil && text != "":
		out = []part{{Text: &text}}
	}
	if len(out) == 0 || len(out) > maxParts {
		return nil, actor.BadArguments("message: give a text, or 1 to %d parts", maxParts)
	}
	for i := range out {
		n := 0
		for _, set := range []bool{out[i].Text != nil, len(out[i].Data) > 0, out[i].URL != "", out[i].Raw != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			return nil, actor.BadArguments("message[%d]: give exactly one of text, data, url and raw", i)
		}
	}
	if len(data) > 0 && string(data) != "null" {
		out = append(out, part{Data: data})
	}
	return out, nil
}

// answerParts are the parts of the answer to a question: a text as it is, and any other value as data.
func answerParts(answer json.RawMessage) []part {
	var text string
	if json.Unmarshal(answer, &text) == nil {
		return []part{{Text: &text}}
	}
	return []part{{Data: answer}}
}

func toSDK(parts []part) sdk.ContentParts {
	out := make(sdk.ContentParts, len(parts))
	for i, p := range parts {
		out[i] = &sdk.Part{Filename: p.Filename, MediaType: p.MediaType}
		switch {
		case p.Text != nil:
			out[i].Content = sdk.Text(*p.Text)
		case len(p.Data) > 0:
			out[i].Content = sdk.Data{Value: p.Data}
		case p.URL != "":
			out[i].Content = sdk.URL(p.URL)
		default:
			out[i].Content = sdk.Raw(p.Raw)
		}
	}
	return out
}

// content are parts of an agent taken apart.
type content struct {
	text  strings.Builder
	data  []json.RawMessage
	files []part
}

func (c *content) add(parts sdk.ContentParts) error {
	for _, p := range parts {
		if p == nil {
			continue
		}
		switch v := p.Content.(type) {
		case sdk.Text:
			c.text.WriteString(clean(string(v)))
		case sdk.Data:
			raw, err := actor.Encode(v.Value)
			if err != nil {
				return fmt.Errorf("data cannot be written as JSON: %w", err)
			}
			c.data = append(c.data, raw)
		case sdk.URL:
			c.files = append(c.files, part{URL: clean(string(v)), Filename: clean(p.Filename), MediaType: clean(p.MediaType)})
		case sdk.Raw:
			c.files = append(c.files, part{Raw: v, Filename: clean(p.Filename), MediaType: clean(p.MediaType)})
		}
	}
	return nil
}

// value is the content as one value: the text if there is nothing else, the data if there is one piece
// of it and nothing else, else an object of all; null for nothing.
func (c *content) value() (json.RawMessage, error) {
	text := c.text.String()
	switch {
	case len(c.data) == 0 && len(c.files) == 0 && text == "":
		return json.RawMessage("null"), nil
	case len(c.data) == 0 && len(c.files) == 0:
		return actor.Encode(text)
	case len(c.data) == 1 && len(c.files) == 0 && text == "":
		return c.data[0], nil
	}
	return actor.Encode(struct {
		Text  string            `json:"text,omitempty"`
		Data  []json.RawMessage `json:"data,omitempty"`
		Files []part            `json:"files,omitempty"`
	}{text, c.data, c.files})
}

// messageValue is the value of a message; null if there is none.
func messageValue(m *sdk.Message) (json.RawMessage, error) {
	var c content
	if m != nil {
		if err := c.add(m.Parts); err != nil {
			return nil, err
		}
	}
	return c.value()
}

// resultOf is the value of a task that is completed: its artifacts, or without any its last message.
// Texts of one artifact are its pieces, and those of several are joined by line breaks.
func resultOf(t *sdk.Task) (json.RawMessage, error) {
	var c content
	for _, a := range t.Artifacts {
		if a == nil {
			continue
		}
		if c.text.Len() > 0 && !strings.HasSuffix(c.text.String(), "\n") && strings.TrimSpace(textOf(a.Parts)) != "" {
			c.text.WriteByte('\n')
		}
		if err := c.add(a.Parts); err != nil {
			return nil, err
		}
	}
	if c.text.Len() == 0 && len(c.data) == 0 && len(c.files) == 0 {
		return messageValue(t.Status.Message)
	}
	return c.value()
}

// textOf is the text of parts.
func textOf(parts sdk.ContentParts) string {
	var b strings.Builder
	for _, p := range parts {
		if p != nil {
			b.WriteString(clean(p.Text()))
		}
	}
	return b.String()
}

// said is what an agent says about a task that it ended, or why it says nothing.
func said(m *sdk.Message) string {
	if m != nil {
		if text := strings.TrimSpace(textOf(m.Parts)); text != "" {
			return errs.Clip(text, maxWords)
		}
		if raw, err := messageValue(m); err == nil && string(raw) != "null" {
			return errs.Clip(string(raw), maxWords)
		}
	}
	return "it does not say why"
}

// unusable is the error of a result that cannot be written.
func unusable(name string, err error) error {
	return workgraph.Errorf(workgraph.Permanent, ReasonProtocol, "the result of the remote agent %q cannot be used: %v", name, err)
}
