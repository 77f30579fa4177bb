package form

import (
	"strings"
	"unicode/utf8"
)

// Clip shortens s for an element or a message.
func Clip(s string) string {
	const limit = 80
	s = s[:min(len(s), 8*limit)]
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "")), " ")
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// IsName reports whether s consists of ASCII letters, digits, underscores and dashes.
func IsName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if !IsWordByte(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}
