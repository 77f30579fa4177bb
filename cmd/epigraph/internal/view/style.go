// Package view turns what the suite answers into text for people: trees, tables, diagnostics, diagrams and
// waterfalls. It gets messages and gives text; it must not call anything.
package view

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Style decides about color and width. The zero value is plain and has no limit.
type Style struct {
	Color bool
	// Width is how many columns there are; 0 is no limit.
	Width int
}

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

// State paints the word for how a run stands.
func (s Style) State(word string) string {
	switch word {
	case "completed":
		return s.paint("1;32", word)
	case "failed", "quarantined":
		return s.paint("1;31", word)
	case "canceled", "paused":
		return s.paint("1;33", word)
	}
	return s.Bold(word)
}

// Dim is for what can be passed over.
func (s Style) Dim(t string) string { return s.dim(t) }

// Bold is for headings.
func (s Style) Bold(t string) string { return s.paint("1", t) }

// Cost is an amount with its gaps: calls at no known price, and attempts that are not booked yet. known says
// that the amount includes the money of some call.
func Cost(nano int64, known bool, unpriced, unbooked int64) string {
	var parts []string
	if nano != 0 || known && unbooked == 0 {
		parts = append(parts, Money(nano))
	}
	switch {
	case unpriced > 0 && len(parts) == 0 && unbooked == 0:
		return "price unknown"
	case unpriced > 0:
		parts = append(parts, Count(unpriced)+" unpriced")
	}
	if unbooked > 0 {
		parts = append(parts, Plural(int(unbooked), "attempt")+" not booked yet")
	}
	return strings.Join(parts, " + ")
}

// Money is nano-USD as dollars, with as many digits as small amounts need.
func Money(nano int64) string {
	sign, n := "", uint64(nano)
	if nano < 0 {
		sign, n = "-", -n
	}
	frac := strings.TrimRight(fmt.Sprintf("%09d", n%1e9), "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return sign + "$" + thousands(fmt.Sprint(n/1e9)) + "." + frac
}

// Took is a duration with three digits or so; empty for one that cannot be, as clocks that disagree give.
func Took(d time.Duration) string {
	switch {
	case d < 0:
		return ""
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Count is a number with thousands apart.
func Count(n int64) string {
	if digits, negative := strings.CutPrefix(fmt.Sprint(n), "-"); negative {
		return "-" + thousands(digits)
	}
	return thousands(fmt.Sprint(n))
}

func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// When is a time for a list; empty for none.
func When(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format(time.DateTime)
}

// instantOf finds the times in a server's sentence: those of UTC, to the second or finer.
var instantOf = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z\b`)

// LocalTimes writes the times in a sentence of the server as When does, so that all times shown are of one
// clock.
func LocalTimes(text string) string {
	return instantOf.ReplaceAllStringFunc(text, func(s string) string {
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return s
		}
		return t.Local().Format(time.DateTime)
	})
}

// Word is an enum value's name without its type's prefix, in lower case: RUN_STATE_COMPLETED is "completed".
func Word(value, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value, prefix))
}

// Table lines up rows under headings. Cells may be any text. If the columns are too wide, the last one is
// broken between words, and if that leaves too little room for it, each row is a paragraph with the headings.
// Nothing is left out, since ids are there to be copied.
func Table(s Style, headings []string, rows [][]string) string {
	safe := make([][]string, len(rows))
	wide := make([]int, len(headings))
	shown := make([]bool, len(headings)) // a column that is empty in every row says nothing
	for i, h := range headings {
		wide[i] = Columns(h)
	}
	for i, r := range rows {
		safe[i] = make([]string, len(r))
		for j, c := range r {
			safe[i][j] = OneLine(c, 0)
			wide[j] = max(wide[j], Columns(safe[i][j]))
			shown[j] = shown[j] || c != ""
		}
	}
	last, before := -1, 0 // the last column, and the columns before it with what parts them
	for j := range headings {
		if !shown[j] {
			continue
		}
		if last >= 0 {
			before += wide[last] + len(columnGap)
		}
		last = j
	}
	room := s.Width - before
	switch {
	case last < 0 || s.Width <= 0 || wide[last] <= room:
		room = 0
	case room < leastProse || len(rows) == 0:
		return paragraphs(s, headings, safe)
	}
	var b strings.Builder
	line := func(cells []string, paint func(string) string) {
		var parts []string
		for j, c := range cells {
			switch {
			case !shown[j]:
			case j == last && room > 0:
				parts = append(parts, strings.Join(breakLine(c, room, ""), "\n"+strings.Repeat(" ", before)))
			default:
				parts = append(parts, pad(c, wide[j]))
			}
		}
		b.WriteString(paint(strings.TrimRight(strings.Join(parts, columnGap), " ")) + "\n")
	}
	line(headings, s.dim)
	for _, r := range safe {
		line(r, func(t string) string { return t })
	}
	return b.String()
}

const (
	columnGap = "  "
	// leastProse is how many columns text takes that is broken in a table.
	leastProse = 24
)

// paragraphs shows each row as what its first column says, and below it the others with their headings.
func paragraphs(s Style, headings []string, rows [][]string) string {
	var b strings.Builder
	for _, r := range rows {
		first := true
		var facts []string
		for j, c := range r {
			switch {
			case c == "":
			case first:
				b.WriteString(s.Bold(c) + "\n")
				first = false
			default:
				facts = append(facts, s.dim(strings.ToLower(headings[j]))+" "+c)
			}
		}
		at := 0
		for _, f := range facts {
			n := Columns(Plain(f))
			switch {
			case at == 0:
				b.WriteString("  ")
				at = 2
			case at+len(columnGap)+n > s.Width:
				b.WriteString("\n  ")
				at = 2
			default:
				b.WriteString(columnGap)
				at += len(columnGap)
			}
			lines := breakLine(f, s.Width-2, "  ")
			b.WriteString(strings.Join(lines, "\n  "))
			if at += n; len(lines) > 1 {
				at = s.Width
			}
		}
		if at > 0 {
			b.WriteString("\n")
		}
	}
	return b.String()
}
