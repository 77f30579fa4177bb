package view

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// harmless tells that a character can be shown: none that moves a terminal's cursor, colors it, breaks the line or turns the
// direction of what follows. The joiners stay, since many scripts and all composed emoji need them.
func harmless(r rune) bool {
	if r == '\u200c' || r == '\u200d' {
		return true
	}
	return !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// OneLine is text from anywhere, fit to be printed: on one line of at most most columns (0 is no limit), with single spaces, and
// without characters that could move a terminal's cursor or hide what is there.
func OneLine(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\ufffd"), func(r rune) bool { return r == ' ' || !harmless(r) }), " ")
	if most <= 0 || Columns(text) <= most {
		return text
	}
	return cut(text, most-1) + "…"
}

// Lines is text from anywhere, fit to be printed on lines of its own: line breaks and indentation stay, everything else is as in
// OneLine. It has no empty lines at its ends.
func Lines(text string) []string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\t", "    ").Replace(strings.ToValidUTF8(text, "\ufffd"))
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(strings.Map(func(r rune) rune {
			if harmless(r) {
				return r
			}
			return -1
		}, l), " ")
	}
	return lines
}

// Columns is how wide a terminal shows text: East Asian wide characters take two columns, combining ones none.
func Columns(text string) int {
	n := 0
	for _, r := range text {
		n += columns(r)
	}
	return n
}

func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut is the longest beginning of text that fits into so many columns.
func cut(text string, most int) string {
	n := 0
	for i, r := range text {
		if n += columns(r); n > most {
			return text[:i]
		}
	}
	return text
}

// pad fills text with spaces up to so many columns.
func pad(text string, to int) string {
	if n := to - Columns(text); n > 0 {
		return text + strings.Repeat(" ", n)
	}
	return text
}

// clip cuts a line with colors to so many columns; 0 is no limit.
func clip(line string, most int) string {
	if most <= 0 {
		return line
	}
	var b strings.Builder
	seen, escape, full := 0, false, false
	for _, r := range line {
		switch {
		case escape:
			b.WriteRune(r)
			escape = r != 'm'
			continue
		case r == '\x1b':
			b.WriteRune(r)
			escape = true
			continue
		}
		if seen += columns(r); seen > most {
			full = true
		}
		if !full {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Plain is a line without its colors.
func Plain(line string) string {
	for {
		before, after, found := strings.Cut(line, "\x1b[")
		if !found {
			return line
		}
		_, rest, _ := strings.Cut(after, "m")
		line = before + rest
	}
}

// tail is the end of text, at most so many characters.
func tail(text string, most int) string {
	for i := len(text); i > 0; most-- {
		if most == 0 {
			return text[i:]
		}
		_, size := utf8.DecodeLastRuneInString(text[:i])
		i -= size
	}
	return text
}
