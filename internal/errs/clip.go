package errs

import "strings"

// Clip shortens a text for a message to at most that many bytes, in whole characters, and marks the cut with
// an ellipsis.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
