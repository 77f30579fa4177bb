package view

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// harmless reports whether a character can be shown: it does not move a terminal's cursor, color it, break
// the line or turn the direction of the following text. The joiners stay, since many scripts and all composed
// emoji need them.
func harmless(r rune) bool {
	if r == '\u200c' || r == '\u200d' {
		return true
	}
	return !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// OneLine makes any text fit to be printed: on one line of at most most columns (0 is no limit), with single
// spaces, and without characters that could move a terminal's cursor or hide text.
func OneLine(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\ufffd"), func(r rune) bool { return r == ' ' || !harmless(r) }), " ")
	if most <= 0 || Columns(text) <= most {
		return text
	}
	return atWord(text, cut(text, most-1)) + "…"
}

// atWord is the beginning of text without the part of a word at its end, unless little would be left.
func atWord(text, begin string) string {
	if len(begin) == len(text) || text[len(begin)] == ' ' {
		return begin
	}
	if i := strings.LastIndexByte(begin, ' '); i > len(begin)/2 {
		return begin[:i]
	}
	return begin
}

// Lines is text from anywhere, fit to be printed on lines of its own: line breaks and indentation stay,
// everything else is as in OneLine. It has no empty lines at its ends.
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

// Columns is how wide a terminal shows text: East Asian wide characters take two columns, combining ones
// none.
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

// shorten cuts a line with colors to so many columns, between words if it has them; 0 is no limit.
func shorten(line string, most int) string {
	if most <= 0 || Columns(Plain(line)) <= most {
		return line
	}
	first := breakLine(line, most-2, "")[0]
	n := Columns(Plain(first))
	switch {
	case most < 3:
		return clip(line, most)
	case n > most-2 || n < most/2:
		return clip(line, most-1) + "…"
	case strings.Contains(first, "\x1b"):
		first += "\x1b[0m"
	}
	return first + " …"
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

// Fit breaks the lines of text that are wider than the style's width. They are broken between words, and
// indented by two columns more than the line. Text in backquotes, and a word that is wider, stays whole, so
// that it can be copied.
func (s Style) Fit(text string) string {
	if s.Width <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if Columns(Plain(l)) <= s.Width {
			continue
		}
		lead := l[:len(l)-len(strings.TrimLeft(l, " "))]
		lead = lead[:min(len(lead), s.Width/4)]
		lines[i] = strings.Join(breakLine(l, s.Width, lead+"  "), "\n")
	}
	return strings.Join(lines, "\n")
}

// Paragraph is text as one paragraph whose lines all begin with lead.
func (s Style) Paragraph(text, lead string) string {
	text = strings.Join(strings.Fields(text), " ")
	if s.Width <= 0 {
		return lead + text
	}
	return lead + strings.Join(breakLine(text, max(s.Width-len(lead), 1), ""), "\n"+lead)
}

// Prose is text of our own: paragraphs, and indented lines, which are commands. Commands that are too wide
// continue after a backslash, so that they can be copied.
func (s Style) Prose(text string) string {
	var out []string
	for _, part := range strings.Split(text, "\n\n") {
		if !strings.HasPrefix(part, " ") {
			out = append(out, s.Paragraph(part, ""))
			continue
		}
		var lines []string
		for l := range strings.SplitSeq(part, "\n") {
			lines = append(lines, s.Command(strings.TrimSpace(l), "  "))
		}
		out = append(out, strings.Join(lines, "\n"))
	}
	return strings.Join(out, "\n\n")
}

// Command is a command of a shell as lines that begin with lead. Where it is too wide it goes on behind a
// backslash; it is not broken within quotes.
func (s Style) Command(line, lead string) string {
	if s.Width <= 0 || Columns(lead+line) <= s.Width {
		return lead + line
	}
	command, comment, found := strings.Cut(line, " #")
	var b strings.Builder
	if found {
		b.WriteString(s.Paragraph("#"+comment, lead) + "\n")
	}
	at := 0
	for rest := strings.TrimSpace(command); rest != ""; {
		end := shellWordEnd(rest)
		word := rest[:end]
		rest = strings.TrimLeft(rest[end:], " ")
		n, spare := Columns(word), 2 // of the backslash
		if rest == "" {
			spare = 0
		}
		switch {
		case at == 0:
			b.WriteString(lead + word)
			at = len(lead) + n
		case at+1+n+spare > s.Width:
			b.WriteString(" \\\n" + lead + "  " + word)
			at = len(lead) + 2 + n
		default:
			b.WriteString(" " + word)
			at += 1 + n
		}
	}
	return b.String()
}

// shellWordEnd is where the first word of a command ends: at a space outside of quotes.
func shellWordEnd(text string) int {
	var quote byte
	for i := range len(text) {
		switch c := text[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '\'' || c == '"':
			quote = c
		case c == ' ':
			return i
		}
	}
	return len(text)
}

// breakLine breaks a line, which may have colors, into lines of at most most columns where words allow it;
// those after the first begin with lead.
func breakLine(line string, most int, lead string) []string {
	var out []string
	var b strings.Builder
	at, begins := 0, true // columns of the line that is written, and whether it has no word yet
	for rest := line; rest != ""; {
		word := strings.TrimLeft(rest, " ")
		gap := rest[:len(rest)-len(word)]
		end := wordEnd(word)
		word, rest = word[:end], word[end:]
		n := Columns(Plain(word))
		if !begins && n > 0 && at+len(gap)+n > most {
			out = append(out, b.String())
			b.Reset()
			b.WriteString(lead)
			at, begins, gap = len(lead), true, ""
		}
		b.WriteString(gap + word)
		at += len(gap) + n
		begins = begins && n == 0
	}
	return append(out, b.String())
}

// wordEnd is where the first word of text ends: at a space outside of backquotes.
func wordEnd(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ':
			return i
		case '`':
			if n := strings.IndexByte(text[i+1:], '`'); n >= 0 {
				i += n + 1
			}
		}
	}
	return len(text)
}

// Message is the text of an error on one line, without the picture that may stand below it: the faulty line,
// and a caret.
func Message(text string) string {
	var kept []string
	eachLine(text, func(l string) { kept = append(kept, l) }, func(string, string) {})
	return OneLine(Dollars(strings.Join(kept, " ")), 0)
}

// Said is a heading and what an error says, with the picture that may stand below it. All lines but the first
// begin with lead.
func (s Style) Said(heading, text, lead string) string {
	most := 0
	if s.Width > 0 {
		most = max(s.Width-len(lead), 1)
	}
	words := []string{heading}
	var out []string
	flush := func() {
		line := strings.Join(words, " ")
		words = nil
		switch {
		case line == "":
		case most == 0:
			out = append(out, line)
		case len(out) == 0: // its first line has the width of the heading's
			first := breakLine(line, s.Width, "")
			out = append(out, first[0])
			if rest := strings.Join(first[1:], " "); rest != "" {
				out = append(out, breakLine(rest, most, "")...)
			}
		default:
			out = append(out, breakLine(line, most, "")...)
		}
	}
	eachLine(text, func(l string) {
		if l = OneLine(l, 0); l != "" {
			words = append(words, l)
		}
	}, func(line, caret string) {
		flush()
		below := Columns(caret) - 1
		if most > 0 && Columns(line) > most {
			runes := []rune(line)
			from := min(max(below-most/2, 0), len(runes))
			line, below = cut(string(runes[from:]), most), below-from
		}
		out = append(out, line, strings.Repeat(" ", max(below, 0))+"^")
	})
	flush()
	return strings.Join(out, "\n"+lead)
}

// eachLine hands over the lines of a message, and those of a picture in it together.
func eachLine(text string, plain func(string), picture func(line, caret string)) {
	lines := Lines(text)
	for i := 0; i < len(lines); i++ {
		if i > 0 && i+1 < len(lines) && strings.TrimLeft(lines[i+1], " ") == "^" {
			picture(lines[i], lines[i+1])
			i++
			continue
		}
		plain(lines[i])
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
