package plan

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"

	"strings"
)

// arrowNames decides what an id between arrows is called. known tells ids that are certain; a nil one knows none.
type arrowNames struct {
	known func(id string) bool
}

func (n arrowNames) is(id string) bool { return n.known != nil && n.known(id) }

// name returns the known id that s is a decorated form of, such as "[A]", "- A", "1. A" or "A.", or s itself.
func (n arrowNames) name(s string) string {
	if n.known == nil || n.is(s) {
		return s
	}
	t := s
	for range 3 {
		u := t
		if l := len(u); l > 2 && bracketOf(u[0]) != 0 && u[l-1] == bracketOf(u[0]) {
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

// group returns the ids of one side of an arrow. "A & B" is a group of two where A and B are known.
func (n arrowNames) group(s string) []string {
	if n.is(strings.TrimSpace(s)) {
		return []string{strings.TrimSpace(s)}
	}
	var out []string
	for _, piece := range splitPieces(s) {
		id := bareID(piece)
		if piece != "" && piece[0] == '"' && id != piece {
			out = append(out, id) // what is quoted is meant as it stands
			continue
		}
		id = n.name(id)
		for _, sep := range [...]string{" & ", " + ", " and ", " | ", " 和 "} {
			if n.is(id) || !strings.Contains(id, sep) {
				continue
			}
			parts := strings.Split(id, sep)
			all := true
			for i := range parts {
				parts[i] = n.name(bareID(strings.TrimSpace(parts[i])))
				all = all && n.is(parts[i])
			}
			if all {
				out = append(out, parts...)
				id = ""
				break
			}
		}
		if id != "" {
			out = append(out, id)
		}
	}
	return out
}

// arrowEdges returns the edges of a line such as "A, B -> C".
func arrowEdges(s string, names arrowNames) [][2]string {
	var out [][2]string
	for _, st := range splitStatements(s) {
		parts, back := splitArrows(st)
		for i := range back {
			for _, a := range names.group(parts[i]) {
				for _, b := range names.group(parts[i+1]) {
					switch {
					case a == "" || b == "" || len(out) >= maxProduct:
					case back[i]:
						out = append(out, [2]string{b, a})
					default:
						out = append(out, [2]string{a, b})
					}
				}
			}
		}
	}
	return out
}

// maxProduct bounds the edges that one line of comma groups may stand for.
const maxProduct = 100_000

// arrowLine adds the edges of one line to r and calls each with every id in it, in order.
func arrowLine(d *document, r *reading, text string, off int, names arrowNames, each func(id string)) {
	if kept, comment := cutLineComment(text); comment != "" && !names.is(bareID(text)) {
		r.diag(d, Warning, SkippedText, off+len(kept), form.Clip(comment), "a comment was left out", "")
		text = kept
	}
	statements := splitStatements(text)
	if names.is(bareID(strings.TrimSpace(text))) {
		statements = []string{text}
	}
	for k, st := range statements {
		parts, back := splitArrows(st)
		if k > 0 && len(back) == 0 {
			// "A -> B; C" may mean that C follows A as well.
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
			if len(groups[i])*len(groups[i+1]) > maxProduct {
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
	var stack [32]rune
	n := 0
	for _, c := range s {
		switch c {
		case '(', '[', '{', '（', '【', '《':
			if n == len(stack) {
				return 0
			}
			stack[n] = c
			n++
		case ')', ']', '}', '）', '】', '》':
			if n == 0 {
				return c
			}
			n--
			if stack[n] != bracketPartner(c) && !(c == ')' && stack[n] == '（') && !(c == '）' && stack[n] == '(') {
				return c
			}
		}
	}
	if n > 0 {
		return stack[n-1]
	}
	return 0
}

func bracketPartner(c rune) rune {
	switch c {
	case ')':
		return '('
	case ']':
		return '['
	case '}':
		return '{'
	case '）':
		return '（'
	case '】':
		return '【'
	}
	return '《'
}
