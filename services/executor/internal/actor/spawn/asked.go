package spawn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// asked is one run that is asked for.
type asked struct {
	Slug   string          `json:"workflow_slug"`
	Data   json.RawMessage `json:"input_data"`
	Text   *string         `json:"input_text"`
	TaskID string          `json:"task_id"`
}

func (a *asked) empty() bool {
	return a.Slug == "" && absent(a.Data) && a.Text == nil && a.TaskID == ""
}

// orList is the one run, or the list of runs that is given in its place, or why there is neither.
func (a *asked) orList(raw json.RawMessage) (list []asked, single bool, why string) {
	if absent(raw) {
		return []asked{*a}, true, ""
	}
	if !a.empty() {
		return nil, false, "give either tasks, or workflow_slug with its inputs and task_id"
	}
	if len(raw) > maxTasks {
		return nil, false, fmt.Sprintf("tasks has %d bytes, the limit is %d", len(raw), maxTasks)
	}
	var entries []json.RawMessage
	raw = untexted(raw)
	switch {
	case json.Unmarshal(raw, &entries) != nil:
		return nil, false, "tasks must be a list, or its JSON as a text, and is " + kindOf(raw)
	case len(entries) == 0:
		return nil, false, "tasks list cannot be empty"
	case len(entries) > maxAsked:
		return nil, false, fmt.Sprintf("%d tasks at once, the limit is %d: ask for them in parts", len(entries), maxAsked)
	}
	list = make([]asked, len(entries))
	for i, entry := range entries {
		entry = untexted(entry)
		if kindOf(entry) != "an object" {
			return nil, false, fmt.Sprintf("Task %d must be an object, got %s", i, kindOf(entry))
		}
		d := json.NewDecoder(bytes.NewReader(entry))
		d.DisallowUnknownFields()
		if err := d.Decode(&list[i]); err != nil {
			return nil, false, fmt.Sprintf("Task %d: %s", i, misfit(err))
		}
	}
	return list, false, ""
}

// inputs are the inputs by name, or why they are none.
func (a *asked) inputs() (named map[string]json.RawMessage, why string) {
	if absent(a.Data) {
		return nil, ""
	}
	raw := untexted(a.Data)
	if err := json.Unmarshal(raw, &named); err != nil || named == nil {
		return nil, "input_data must be an object, or its JSON as a text, and is " + kindOf(raw)
	}
	return named, ""
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// untexted is the JSON that a text holds, or what is no text as it is. A model may write arguments as texts.
func untexted(raw json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) != nil || !json.Valid([]byte(text)) {
		return raw
	}
	return bytes.TrimSpace([]byte(text))
}

// kindOf names what a JSON value is.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// misfit says which field of an object has the wrong type, or is not known.
func misfit(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return wrong.Field + " must be a " + wrong.Type.String() + ", got " + wrong.Value
	}
	return err.Error()
}
