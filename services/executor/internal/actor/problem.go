package actor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// References tells a model what the references of a plan's problem stand for, a line each; empty if there are
// none. The elements are those of the argument references of a compiled plan. Others stand for themselves.
func References(refs []json.RawMessage) string {
	if len(refs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("References:")
	for _, raw := range refs {
		var r struct {
			Text  string `json:"text"`
			Node  string `json:"node"`
			Field string `json:"field"`
		}
		if json.Unmarshal(raw, &r) != nil || r.Text == "" || r.Node == "" {
			fmt.Fprintf(&b, "\n%s", raw)
			continue
		}
		fmt.Fprintf(&b, "\n%s is the result of %q", r.Text, r.Node)
		if r.Field != "" {
			fmt.Fprintf(&b, ", field %q", r.Field)
		}
	}
	return b.String()
}

// Filled reports whether an argument holds something: it is there, and neither null nor an empty list.
func Filled(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 1 && raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return false
	}
	return len(raw) > 0 && string(raw) != "null"
}
