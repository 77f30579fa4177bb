package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// senseLines bounds how many lines away from a drawing its arrows may be explained.
const senseLines = 12

// pointsToNeeds reports whether the text around a drawing says that its arrows lead to the needed problems,
// against the usual direction.
func pointsToNeeds(src *form.Source, first, last int) bool {
	for i := max(0, first-senseLines); i < min(len(src.Lines), last+senseLines+1); i++ {
		text := src.Lines[i].Text
		inside := i >= first && i <= last
		if text == "" || len(text) > 400 || inside && !isComment(text) && !strings.HasPrefix(text, "'") && !strings.HasPrefix(text, "# ") {
			continue
		}
		if says, turned := arrowSense(text); says {
			return turned
		}
	}
	return false
}

// arrowSense returns whether a line explains an arrow, and whether the arrow leads to the needed problem: "A
// -> B means A needs B".
func arrowSense(text string) (says, turned bool) {
	at, length, count, left := -1, 0, 0, false
	for i := 0; i < len(text); {
		n, back := form.ArrowAt(text, i)
		if n == 0 {
			i++
			continue
		}
		if count++; at < 0 {
			at, length, left = i, n, back
		}
		i += n
	}
	if count > 1 || left || count == 0 && stemAt(strings.ToLower(text), "of words for arrows") < 0 {
		return false, false
	}
	all := lexicon.ScanIn(lexicon.Language(text), text)
	for _, t := range all {
		if t.Is(lexicon.Needs) && quotedAt(text, t.Off, t.End) {
			return true, true
		}
	}
	if count == 1 {
		a, rest := lastWord(strings.TrimSpace(text[:at])), strings.TrimLeft(text[at+length:], " ")
		b := firstWord(rest)
		if a != "" && b != "" && a != b && len(b) < len(rest) {
			return senseOf(all, text, strings.Trim(a, "(\"'`“"), strings.Trim(b, ")\"'`:,”"), len(text)-len(rest)+len(b))
		}
	}
	for _, t := range all {
		if !t.Is(lexicon.Needs) || t.Is(lexicon.Before) {
			continue
		}
		rest := strings.Fields(strings.Trim(text[t.End:], " .:;)»”\"'"))
		if len(rest) == 0 {
			return true, true
		}
	}
	return false, false
}

// senseOf reads the explanation of "a -> b" in the text behind it.
func senseOf(all []lexicon.Token, text, a, b string, from int) (says, turned bool) {
	for _, t := range all {
		if t.Off < from || !t.Is(lexicon.Needs) && !t.Is(lexicon.Before) {
			continue
		}
		subject := ""
		for _, w := range strings.FieldsFunc(text[from:t.Off], func(r rune) bool { return !isLetterOrDigit(r) && r != '_' }) {
			if w == a || w == b {
				subject = w
			}
		}
		if subject != "" {
			return true, (subject == a) == (t.Is(lexicon.Needs) && !t.Is(lexicon.Before))
		}
	}
	return false, false
}

// quotedAt reports whether a phrase stands in quotes.
func quotedAt(s string, from, to int) bool {
	before, after := strings.TrimRight(s[:from], " "), strings.TrimLeft(s[to:], " ")
	for _, q := range [...][2]string{{`"`, `"`}, {"“", "”"}, {"„", "“"}, {"«", "»"}, {"「", "」"}, {"'", "'"}, {"‘", "’"}} {
		if strings.HasSuffix(before, q[0]) && strings.HasPrefix(after, q[1]) {
			return true
		}
	}
	return false
}

func lastWord(s string) string { return s[strings.LastIndexByte(s, ' ')+1:] }

// needsLabel reports whether the label of an arrow says that the arrow leads to the needed problem: A
// -->|depends on| B.
func needsLabel(s string) bool {
	if len(s) > maxNeedsLabel {
		return false
	}
	s = strings.ToLower(strings.Trim(s, " \"'."))
	return s != "" && s != "after" && lexicon.Is(lexicon.Needs, s) && !lexicon.Is(lexicon.Before, s)
}

// maxNeedsLabel bounds, in bytes, the labels of arrows that may say so.
const maxNeedsLabel = 60

// turn reverses all links of a reading.
func turn(r *Reading) {
	for i, l := range r.Links {
		r.Links[i].From, r.Links[i].To = l.To, l.From
	}
}
