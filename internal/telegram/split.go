package telegram

import (
	"strings"
	"unicode/utf16"
)

// MaxText is how long a message may be. The server counts in UTF-16 as clients do, so that a character
// beyond the first plane is two.
const MaxText = 4096

// Split cuts a text into messages of at most MaxText, at most limit of them: at the end of a line if
// there is one in the second half, else at a space, else between characters. It leaves out messages
// without anything visible, which the server refuses. The last of too many ends with "…".
func Split(text string, limit int) []string {
	var out []string
	text = strings.ToValidUTF8(text, "�")
	for text = strings.TrimSpace(text); text != ""; {
		n := fit(text)
		if n == len(text) {
			return append(out, text)
		}
		if len(out) == limit-1 {
			return append(out, strings.TrimSpace(cutRune(text[:n]))+"…")
		}
		if at := strings.LastIndexByte(text[:n], '\n'); at > n/2 {
			n = at
		} else if at := strings.LastIndexByte(text[:n], ' '); at > n/2 {
			n = at
		}
		if part := strings.TrimSpace(text[:n]); part != "" {
			out = append(out, part)
		}
		text = strings.TrimSpace(text[n:])
	}
	return out
}

// cutRune takes the last character off.
func cutRune(text string) string {
	last := 0
	for i := range text {
		last = i
	}
	return text[:last]
}

// fit is how many bytes of a text fit into one message.
func fit(text string) int {
	units := 0
	for i, r := range text {
		if units += utf16.RuneLen(r); units > MaxText {
			return i
		}
	}
	return len(text)
}
