package errs

import "strings"

// Clip shortens a text for a message to at most that many bytes, whole characters only, and an ellipsis that says so.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
