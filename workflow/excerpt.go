package workflow

import (
	"strings"
	"unicode/utf8"
)

// Excerpt is the line of a text that has a place, and below it a line with a caret at the column. Of a long
// line it has the part around the column, of at most that many characters. It is nil if the text has no such
// place.
func Excerpt(src string, at Place, most int) []string {
	if at.Line < 1 || at.Column < 1 || most < 1 {
		return nil
	}
	for range at.Line - 1 {
		end := strings.IndexByte(src, '\n')
		if end < 0 {
			return nil
		}
		src = src[end+1:]
	}
	line, _, _ := strings.Cut(src, "\n")
	line = strings.TrimSuffix(line, "\r")
	column := at.Column - 1
	if before := column - most/2; before > 0 && utf8.RuneCountInString(line) > most {
		line = behind(line, before)
		column -= before
	}
	if rest := behind(line, most); rest != "" {
		line = line[:len(line)-len(rest)]
	}
	// A tab is as wide below as it is above.
	var pad strings.Builder
	for _, c := range line {
		if pad.Len() == column {
			break
		}
		if c != '\t' {
			c = ' '
		}
		pad.WriteRune(c)
	}
	if pad.Len() < column {
		column = pad.Len()
	}
	return []string{line, pad.String()[:column] + "^"}
}

// behind is the text without its first n characters.
func behind(s string, n int) string {
	for ; n > 0 && s != ""; n-- {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	return s
}
