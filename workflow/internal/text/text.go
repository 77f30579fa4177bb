// Package text owns how the packages of workflows show values to people and models. It must not know what
// the values are.
package text

import (
	"encoding/json"
	"strings"
)

// Clip is a text of at most so many bytes, with an ellipsis behind one that was cut.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Of is a text as it is, and any other value as JSON.
func Of(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
