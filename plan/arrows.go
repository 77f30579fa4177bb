package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// arrowNames resolves the ids between arrows. known reports whether an id is certain; a nil known knows no
// ids.
type arrowNames struct {
	known func(id string) bool
}

func (n arrowNames) is(id string) bool { return n.known != nil && n.known(id) }

// name returns the known id that s decorates, as in "[A]", "- A", "1. A" or "A.". It returns s if there is
// none.
func (n arrowNames) name(s string) string {
	if n.known == nil || n.is(s) {
		return s
	}
	t := s
	for range 3 {
		u := t
		if l := len(u); l > 2 && form.Enclosed(u) {
			u = bareID(strings.TrimSpace(u[1 : l-1]))
		}
		u = strings.TrimRight(u, ".;")
		u = strings.TrimLeft(u, "-*•+ ")
		if num, rest, ok := cutNumber(u); ok && rest != "" && strings.IndexByte(".)", u[len(num)]) >= 0 && n.is(bareID(rest)) {
			return bareID(rest)
		}
		if n.is(u) {
			return u
		}
		if u == t {
			break
		}
		t = u
	}
	return s
}

// maxJoined bounds how many pieces of a group one known id may have.
const maxJoined = 5

// group returns the ids of one side of an arrow: the pieces between commas and signs such as "&". A known id
// may itself contain commas or such signs.
func (n arrowNames) group(s string) []string {
	s = strings.TrimSpace(s)
	if n.is(s) {
		return []string{s}
	}
	pieces := form.SplitGroup(form.Piece{Text: s})
	var out []string
	for i := 0; i < len(pieces); i++ {
		id := n.name(bareID(pieces[i].Text))
		for j := min(len(pieces), i+maxJoined) - 1; j > i; j-- {
			if whole := n.name(bareID(s[pieces[i].Off : pieces[j].Off+len(pieces[j].Text)])); n.is(whole) {
				id, i = whole, j
			}
		}
		out = append(out, id)
	}
	return out
}

// arrowLine adds the edges of one line to r and calls each with every id in it, in order.
func arrowLine(d *document, r *reading, text string, off int, names arrowNames, each func(id string)) {
	statements := []form.Piece{{Text: text}}
	if !names.is(bareID(text)) {
		kept := form.CutComment(text)
		if comment := strings.TrimSpace(text[len(kept):]); comment != "" {
			r.diag(d, Warning, SkippedText, off+len(kept), form.Clip(comment), "a comment was left out", "")
		}
		statements = form.SplitSemicolons(kept, 0)
	}
	for k, st := range statements {
		parts, back := splitArrows(st.Text)
		if k > 0 && len(back) == 0 {
			// In "A -> B; C" the writer may have meant that C follows A as well.
			r.diag(d, Warning, Ambiguous, off, form.Clip(parts[0]), "a semicolon ends a statement, so "+form.Clip(parts[0])+" stands by itself", "write a comma where two problems follow")
		}
		groups := make([][]string, len(parts))
		empty := false
		for i, p := range parts {
			groups[i] = names.group(p)
			kept := groups[i][:0]
			for _, id := range groups[i] {
				if id != "" {
					kept = append(kept, id)
					each(id)
				}
			}
			groups[i] = kept
			if len(kept) == 0 && len(back) > 0 && !empty {
				empty = true
				r.diag(d, Error, EmptyID, off, form.Clip(text), "an arrow has nothing on one side", "name a problem on both sides of the arrow")
			}
		}
		for i := range back {
			if len(groups[i])*len(groups[i+1]) > d.limits.MaxEdges {
				if !r.limited {
					r.limited = true
					r.diag(d, Error, LimitReached, off, form.Clip(text), "the groups on this line stand for too many edges", "split the line")
				}
				continue
			}
			for _, a := range groups[i] {
				if r.full(d) {
					return
				}
				for _, b := range groups[i+1] {
					if back[i] {
						a, b := b, a
						r.edge(d, a, b, Stated, off)
						continue
					}
					r.edge(d, a, b, Stated, off)
				}
			}
		}
	}
}

// unpaired returns a bracket of s that has no partner, or 0.
func unpaired(s string) rune {
	const opening, closing = "([{（【《", ")]}）】》"
	var stack []rune
	for _, c := range s {
		if strings.ContainsRune(opening, c) {
			if stack = append(stack, c); len(stack) > 32 {
				return 0
			}
			continue
		}
		at := strings.IndexRune(closing, c)
		if at < 0 {
			continue
		}
		if len(stack) == 0 {
			return c
		}
		last := stack[len(stack)-1]
		if stack = stack[:len(stack)-1]; strings.IndexRune(opening, last) != at && !(strings.ContainsRune("(（", last) && strings.ContainsRune(")）", c)) {
			return c
		}
	}
	if len(stack) > 0 {
		return stack[len(stack)-1]
	}
	return 0
}

// splitArrows splits a line at its arrows. back reports for each arrow whether it points back. Quoted parts
// stay whole and keep their quotes.
func splitArrows(s string) (parts []string, back []bool) {
	pieces, back := form.SplitArrows(s, 0)
	parts = make([]string, len(pieces))
	for i, p := range pieces {
		parts[i] = p.Text
	}
	return parts, back
}

// bareID drops quotes and decoration around an id.
func bareID(s string) string {
	for {
		n := len(s)
		switch {
		case n > 2 && s[0] == '"' && s[n-1] == '"' && form.QuotedLength(s) == n:
			return form.Unescape(s[1:n-1], true)
		case n > 2 && (s[0] == '`' || s[0] == '\'') && s[n-1] == s[0] && strings.IndexByte(s[1:n-1], s[0]) < 0:
			s = strings.TrimSpace(s[1 : n-1])
		case n > 4 && strings.HasPrefix(s, "**") && strings.HasSuffix(s, "**"):
			s = strings.TrimSpace(s[2 : n-2])
		default:
			return s
		}
	}
}

func isCommentLine(s string) bool {
	return strings.HasPrefix(s, "# ") || strings.HasPrefix(s, "// ") || strings.HasPrefix(s, "%%") || strings.HasPrefix(s, "<!--") && strings.HasSuffix(s, "-->")
}
