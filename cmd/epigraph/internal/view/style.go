// Package view turns what the suite answers into text for people: trees, tables, diagnostics, diagrams and waterfalls. It gets
// messages and gives text; it must not call anything.
package view

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Style decides about color. The zero value is plain.
type Style struct{ Color bool }

// paint puts text in an ANSI color; codes are SGR parameters such as "31" or "1;32".
func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s Style) red(t string) string    { return s.paint("31", t) }
func (s Style) green(t string) string  { return s.paint("32", t) }
func (s Style) yellow(t string) string { return s.paint("33", t) }
func (s Style) cyan(t string) string   { return s.paint("36", t) }
func (s Style) dim(t string) string    { return s.paint("2", t) }

// Bold is for headings.
func (s Style) Bold(t string) string { return s.paint("1", t) }

// OneLine is text on one line of at most width characters, without control characters that could move a terminal's cursor.
func OneLine(text string, width int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == ' ' }), " ")
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	return string(runes[:width-1]) + "…"
}

// pad fills text with spaces up to width characters.
func pad(text string, width int) string {
	if n := width - utf8.RuneCountInString(text); n > 0 {
		return text + strings.Repeat(" ", n)
	}
	return text
}

// Money is nano-USD as dollars, with as many digits as small amounts need.
func Money(nano int64) string {
	sign := ""
	if nano < 0 {
		sign, nano = "-", -nano
	}
	whole, frac := nano/1e9, fmt.Sprintf("%09d", nano%1e9)
	frac = strings.TrimRight(frac, "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return fmt.Sprintf("%s$%d.%s", sign, whole, frac)
}

// Took is a duration with three digits or so.
func Took(d time.Duration) string {
	switch {
	case d < 0:
		return ""
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Count is a number with thousands apart.
func Count(n int64) string {
	s := fmt.Sprint(n)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// When is a time for a list; empty for none.
func When(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format("2006-01-02 15:04:05")
}

// Word is an enum value's name without its type's prefix, in lower case: RUN_STATE_COMPLETED is "completed".
func Word(value, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value, prefix))
}

// Table lines up rows under headings.
func Table(s Style, headings []string, rows [][]string) string {
	width := make([]int, len(headings))
	for i, h := range headings {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	line := func(cells []string, paint func(string) string) {
		var parts []string
		for i, c := range cells {
			if i < len(cells)-1 {
				c = pad(c, width[i])
			}
			parts = append(parts, paint(c))
		}
		b.WriteString(strings.TrimRight(strings.Join(parts, "  "), " ") + "\n")
	}
	line(headings, s.dim)
	for _, r := range rows {
		line(r, func(t string) string { return t })
	}
	return b.String()
}
