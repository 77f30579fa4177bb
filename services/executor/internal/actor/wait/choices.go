package wait

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	maxChoices = 100
	// maxChoice bounds a value or a label in bytes.
	maxChoice = 1 << 10
)

// choice is one of the answers to choose from.
type choice struct {
	Value json.RawMessage `json:"value"`
	Label string          `json:"label"`
}

// options is the schema of one of several values. EnumNames are the labels, where forms of JSON Schema look
// for them.
type options struct {
	Enum      []json.RawMessage `json:"enum"`
	EnumNames []string          `json:"enumNames,omitempty"`
}

// choose is the schema of the answers to choices. The error is of the arguments.
func choose(raw json.RawMessage, multiple, hasSchema, approves bool) (json.RawMessage, error) {
	switch {
	case approves:
		return nil, actor.BadArguments("give choices or approve, not both: an approval is answered by yes or no")
	case hasSchema:
		return nil, actor.BadArguments("give choices or schema, not both")
	}
	list, err := readChoices(raw)
	if err != nil {
		return nil, err
	}
	var o options
	labeled := false
	for _, c := range list {
		o.Enum = append(o.Enum, c.Value)
		labeled = labeled || c.Label != ""
		title := c.Label
		if title == "" {
			title = plain(c.Value)
		}
		o.EnumNames = append(o.EnumNames, title)
	}
	if !labeled {
		o.EnumNames = nil
	}
	var schema any = o
	if multiple {
		schema = struct {
			Type   string  `json:"type"`
			Items  options `json:"items"`
			Unique bool    `json:"uniqueItems"`
		}{"array", o, true}
	}
	out, err := json.Marshal(schema)
	if err != nil {
		return nil, actor.BadArguments("choices: %v", err)
	}
	return out, nil
}

// plain is a value as a person reads it.
func plain(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// readChoices reads choices, each a value or an object with value and label. Values and labels are distinct,
// so that either names one choice.
func readChoices(raw json.RawMessage) ([]choice, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, actor.BadArguments("choices: this must be a list")
	}
	if len(items) == 0 || len(items) > maxChoices {
		return nil, actor.BadArguments("choices: give 1 to %d, not %d", maxChoices, len(items))
	}
	out := make([]choice, len(items))
	for i, item := range items {
		c := choice{Value: item}
		if bytes.HasPrefix(item, []byte("{")) {
			d := json.NewDecoder(bytes.NewReader(item))
			d.DisallowUnknownFields()
			c = choice{}
			if err := d.Decode(&c); err != nil {
				return nil, actor.BadArguments("choices[%d]: an object has value and label: %v", i, err)
			}
		}
		if len(c.Value) == 0 || strings.ContainsAny(string(c.Value[:1]), "{[n") {
			return nil, actor.BadArguments("choices[%d]: the value must be a text, a number, true or false", i)
		}
		if len(c.Value) > maxChoice || len(c.Label) > maxChoice {
			return nil, actor.BadArguments("choices[%d]: a value and a label have at most %d bytes", i, maxChoice)
		}
		if slices.ContainsFunc(out[:i], func(o choice) bool { return string(o.Value) == string(c.Value) }) {
			return nil, actor.BadArguments("choices[%d]: the value %s is there already", i, c.Value)
		}
		if c.Label != "" && slices.ContainsFunc(out[:i], func(o choice) bool { return strings.EqualFold(o.Label, c.Label) }) {
			return nil, actor.BadArguments("choices[%d]: the label %q is there already", i, c.Label)
		}
		out[i] = c
	}
	return out, nil
}

// examineChoices returns the faults of a node's own choices and of a default among them.
func examineChoices(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	var multiple bool
	if raw := n.Named["multiple"]; len(raw) > 0 && json.Unmarshal(raw, &multiple) != nil {
		return nil // another type is the schema's to refuse
	}
	schema, err := choose(n.Named["choices"], multiple, len(n.Named["schema"]) > 0, len(n.Named["approve"]) > 0)
	if err != nil {
		return fault("choices", err)
	}
	if err := answerable(ctx, schema, n.Named["default"]); err != nil {
		return fault("default", err)
	}
	return nil
}

// fault is the finding about an argument, which the message need not name again.
func fault(arg string, err error) []workgraph.Argument {
	found := actor.Faulty(arg, err)
	for i := range found {
		found[i].Fault = strings.TrimPrefix(found[i].Fault, arg+": ")
	}
	return found
}
