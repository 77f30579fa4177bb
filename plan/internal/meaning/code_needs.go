package meaning

import (
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// needsLine is a line that names a step, and behind a word of needs the steps that it waits for.
type needsLine struct {
	id, title string
	needs     []string
	off, end  int
	stated    bool // a word of needs stands on it
}

// readNeedsLines reads lists in which each line is a name, and what it waits for behind a word:
//
//	TASK draw_vacuum   WAITS_FOR seal_tank
//	p3 := print table  requires p1, p2
//
// Each name that is waited for has a line of its own.
func readNeedsLines(src *form.Source, first, end int) *Reading {
	var all []*needsLine
	other, stated := 0, 0
	known := map[string]bool{}
	for k := first; k < end; k++ {
		l := &src.Lines[k]
		if l.Text == "" || isComment(l.Text) {
			continue
		}
		n := readNeedsLine(form.Piece{Text: l.Text, Off: l.Off})
		if n == nil || known[n.id] {
			other++
			continue
		}
		all = append(all, n)
		known[n.id] = true
		stated += b2i(n.stated)
	}
	if len(all) < 3 || stated < 2 || stated*2 < len(all) || other > 2 {
		return nil
	}
	p := newProgram(93, "names and what they wait for")
	p.r.Stated = true
	index := map[string]int{}
	for _, n := range all {
		index[n.id] = p.item(n.id, n.title, true, n.off, n.end)
	}
	for _, n := range all {
		for _, need := range n.needs {
			from, ok := index[need]
			switch {
			case !ok:
				return nil
			case from == index[n.id]:
				p.r.Links = append(p.r.Links, Link{From: need, To: need, Source: Stated, Off: n.off})
			default:
				p.link(from, index[n.id], Stated, n.off)
			}
		}
	}
	if len(p.r.Links) == 0 {
		return nil
	}
	r := p.reading()
	r.Start, r.End = all[0].off, all[len(all)-1].end
	return r
}

// readNeedsLine reads one line, or returns nil.
func readNeedsLine(p form.Piece) *needsLine {
	s := strings.TrimRight(p.Text, " ;,.")
	if i := strings.Index(s, " #"); i > 0 {
		s = strings.TrimSpace(s[:i])
	}
	off := p.Off
	if word, rest, ok := strings.Cut(s, " "); ok && runs(word) {
		t := strings.TrimLeft(rest, " ")
		off += len(s) - len(t)
		s = t
	}
	k := nameLength(s, "_-.")
	if k == 0 || !strings.ContainsFunc(s[:k], unicode.IsLetter) {
		return nil
	}
	if capitals(s[:k]) && wordIs(s[:k], lexicon.BlockEnd|lexicon.BlockBegin) {
		return nil
	}
	n := &needsLine{id: s[:k], title: s[:k], off: off, end: p.Off + len(p.Text)}
	rest := strings.TrimLeft(s[k:], " \t")
	if rest == "" {
		return n
	}
	assigned := false
	for _, sign := range [...]string{":=", "=", "←"} {
		if t, ok := strings.CutPrefix(rest, sign); ok {
			rest, assigned = strings.TrimSpace(t), true
			break
		}
	}
	words := strings.Fields(rest)
	if !assigned && !(len(words) > 0 && needsWord(words[0])) {
		return nil
	}
	for i, w := range words {
		if !needsWord(w) {
			continue
		}
		refs := refsOf(words[i+1:])
		if refs == nil {
			continue
		}
		n.stated = true
		if title := strings.Join(words[:i], " "); title != "" {
			n.title = title
		}
		if len(refs) > 1 || !isNone(refs[0]) {
			n.needs = refs
		}
		return n
	}
	n.title = rest
	if !assigned {
		return nil
	}
	return n
}

// needsWord reports whether a word, however it is written, says that names of steps follow that must be done
// first.
func needsWord(w string) bool {
	w = strings.Trim(w, ":()[]")
	if role, ok := lexicon.Field(w); ok {
		return role == lexicon.Requires
	}
	return lexicon.Is(lexicon.Needs, splitName(w))
}

// refsOf returns the names that words are, or nil if they are something else, too.
func refsOf(words []string) (out []string) {
	for _, w := range words {
		if lexicon.Is(lexicon.And, w) {
			continue
		}
		for _, x := range strings.FieldsFunc(w, func(r rune) bool { return strings.ContainsRune(",;&+()[]、", r) }) {
			if nameLength(x, "_-.") != len(x) {
				return nil
			}
			out = append(out, x)
		}
	}
	if len(out) > 0 && len(words) > 2*len(out)+1 {
		return nil
	}
	return out
}
