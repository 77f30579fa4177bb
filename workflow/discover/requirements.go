// Package discover finds, among the workflows of a namespace, those that can do what somebody needs. It
// knows how well a workflow fits, and searches an index in memory; where workflows are kept is for its
// callers.
package discover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow"
)

// Requirements are what a workflow is looked for by. None at all are met by every workflow.
type Requirements struct {
	Triggers  []string `json:"triggers,omitempty"`
	NodeTypes []string `json:"node_types,omitempty"`
	// Tools are actors that its agents or its steps call, by any name that workflow.ToolName knows.
	Tools []string `json:"tools,omitempty"`
	Tags  []string `json:"tags,omitempty"`
	// Description is part of the description of a workflow that fits, in any case.
	Description string `json:"description,omitempty"`
	// ModelCapability is part of the name of one of its models, in any case. Requirements may call it
	// `model`.
	ModelCapability string `json:"model_capability,omitempty"`
}

// Bounds of requirements.
const (
	// MaxRequirements is the longest text of requirements that is read, in bytes.
	MaxRequirements = 128 << 10
	// maxRequired is how many names one of the lists may have, and maxName how many bytes each.
	maxRequired, maxName = 100, 200
	// maxDescription bounds a description, in bytes. What an index keeps of one is not longer, either.
	maxDescription = 4 << 10
)

// words that the messages name.
const requirementKeys = "`triggers`, `node_types`, `tools`, `tags`, `description` and `model`"

// ReadRequirements reads requirements from a JSON object, or from a JSON text that holds one, as models
// write them. A list has a singular and a plural key, which mean the same, and may be a single text. An
// empty text has no requirements. Faults are told all at once.
func ReadRequirements(src []byte) (Requirements, workflow.Faults) {
	var r reader
	if len(src) > MaxRequirements {
		r.fault("TOO_LARGE", "", "leave out what need not be asked", "the requirements have %d bytes, the limit is %d", len(src), MaxRequirements)
		return Requirements{}, r.faults
	}
	var inside string
	if json.Unmarshal(src, &inside) == nil {
		src = []byte(inside)
	}
	if src = bytes.TrimSpace(src); len(src) > 0 {
		r.object(src)
	}
	if r.faults = append(r.faults, r.out.Check()...); len(r.faults) > 0 {
		return Requirements{}, r.faults
	}
	return r.out, nil
}

// Check tells which parts are larger than a search takes: 100 names in a list, 200 bytes in a name, and
// 4 KiB in the description. It is for requirements that were not read from a text.
func (r Requirements) Check() workflow.Faults {
	var c reader
	for _, part := range []struct {
		key   string
		names []string
	}{{"triggers", r.Triggers}, {"node_types", r.NodeTypes}, {"tools", r.Tools}, {"tags", r.Tags}, {"model_capability", []string{r.ModelCapability}}} {
		if len(part.names) > maxRequired {
			c.fault("TOO_LARGE", part.key, "", "`%s` may have %d names, this has %d", part.key, maxRequired, len(part.names))
		}
		if i := slices.IndexFunc(part.names, func(name string) bool { return len(name) > maxName }); i >= 0 {
			c.fault("TOO_LONG", part.key, "", "a name in `%s` may have %d bytes, one has %d", part.key, maxName, len(part.names[i]))
		}
	}
	if len(r.Description) > maxDescription {
		c.fault("TOO_LONG", "description", "", "`description` may have %d bytes, this has %d", maxDescription, len(r.Description))
	}
	return c.faults
}

// reader reads the keys of requirements.
type reader struct {
	out    Requirements
	faults workflow.Faults
	seen   map[string]bool
}

func (r *reader) fault(code, path, hint, format string, args ...any) {
	if len(r.faults) < maxRequired {
		r.faults = append(r.faults, workflow.Fault{Code: code, Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

func (r *reader) object(src []byte) {
	dec := json.NewDecoder(bytes.NewReader(src))
	open, err := dec.Token()
	if err == nil && open != json.Delim('{') {
		r.fault("NOT_A_MAPPING", "", `such as {"tools": ["http"]}`, "requirements are a JSON object")
		return
	}
	r.seen = map[string]bool{}
	for err == nil && dec.More() {
		var key json.Token
		var v json.RawMessage
		if key, err = dec.Token(); err == nil {
			if err = dec.Decode(&v); err == nil {
				name, _ := key.(string)
				r.value(name, v)
			}
		}
	}
	if err == nil {
		_, err = dec.Token() // the closing brace
	}
	if err == nil && dec.More() {
		err = errors.New("something follows the object")
	}
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends too early")
		}
		r.fault("SYNTAX", "", `such as {"tools": ["http"]}`, "the requirements are no JSON: %v", err)
	}
}

func (r *reader) value(key string, v json.RawMessage) {
	if r.seen[key] {
		r.fault("DUPLICATE_KEY", clip(key), "remove one of them", "the key `%s` is there twice", clip(key))
		return
	}
	r.seen[key] = true
	switch key {
	case "trigger", "triggers":
		r.list(key, v, &r.out.Triggers)
	case "node_type", "node_types":
		r.list(key, v, &r.out.NodeTypes)
	case "tool", "tools":
		r.list(key, v, &r.out.Tools)
	case "tag", "tags":
		r.list(key, v, &r.out.Tags)
	case "description":
		r.text(key, v, &r.out.Description)
	case "model_capability", "model":
		r.model(key, v)
	default:
		r.fault("UNKNOWN_KEY", clip(key), "use "+requirementKeys, "requirements have no key `%s`", clip(key))
	}
}

func (r *reader) text(key string, v json.RawMessage, into *string) {
	var s *string
	if json.Unmarshal(v, &s) != nil {
		r.fault("WRONG_TYPE", key, "put it into quotes", "`%s` must be a text", key)
	} else if s != nil {
		*into = strings.TrimSpace(*s)
	}
}

// model takes the one model that is asked for, under either key.
func (r *reader) model(key string, v json.RawMessage) {
	if r.out.ModelCapability != "" {
		r.fault("DUPLICATE_KEY", clip(key), "remove one of them", "`model` and `model_capability` mean the same")
		return
	}
	r.text(key, v, &r.out.ModelCapability)
}

// list adds the names of a list, or a single one, each once.
func (r *reader) list(key string, v json.RawMessage, into *[]string) {
	var names []string
	if v[0] == '"' {
		v = slices.Concat([]byte("["), v, []byte("]"))
	}
	if json.Unmarshal(v, &names) != nil {
		r.fault("WRONG_TYPE", key, `such as ["http"]`, "`%s` must be a text or a list of texts", key)
		return
	}
	for _, name := range names {
		if name = strings.TrimSpace(name); name != "" {
			*into = append(*into, name)
		}
	}
	*into = unique(*into)
}

// clip shortens a key for messages.
func clip(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
