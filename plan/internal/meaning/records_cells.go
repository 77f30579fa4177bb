package meaning

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// isNone reports whether a cell is empty or has a word or sign for "none".
func isNone(s string) bool {
	s = strings.Trim(strings.TrimSpace(s), "().[]{}<>*_ \"'")
	if s == "" || strings.Trim(s, "-–—−‒―ー－~～∅/.…·•*×✗✕Ø") == "" || lexicon.Is(lexicon.None, s) {
		return true
	}
	return slices.Contains(lexicon.Fields(s), lexicon.Nothing)
}

// isName reports whether a cell is the name of an item, in any case.
func (n *labels) isName(s string) bool {
	s = strings.TrimSpace(s)
	_, ok := n.exact[s]
	if !ok && strings.ContainsFunc(s, unicode.IsLetter) {
		_, ok = n.folded[squash(s)]
	}
	return ok
}

// noneFirst reports whether a cell has a word for "none" and a remark: "none (start)", "– can start today".
func (n *labels) noneFirst(s string) bool {
	head, rest, _ := strings.Cut(s, " ")
	if !isNone(head) || head == "" {
		i := max(0, strings.IndexAny(s, "(（[–—,;:，；："))
		head, rest = s[:i], s[i:]
	}
	if rest == "" || head == "" || !isNone(head) {
		return false
	}
	for _, p := range splitCell(rest, listSigns+" ()（）[]") {
		if _, ok := n.find(p.text); ok || brief(p.text) && strings.IndexAny(rest, "(（[") != 0 {
			return false
		}
	}
	return true
}

// listSigns separate the references in a cell.
const listSigns = ",;|&\n、，；・·،؛\t"

// cellReader splits the text of a cell into references.
type cellReader struct {
	n    *labels
	off  int
	all  []saidOf
	rest bool
}

// cell splits the text of a cell into references. rest is set if it holds anything else.
func (n *labels) cell(s string, off int) (all []saidOf, rest bool) {
	if !n.isName(s) && (isNone(s) || n.noneFirst(s)) {
		return nil, false
	}
	c := &cellReader{n: n, off: off}
	if c.whole(cellPart{s, 0}) {
		return c.all, false
	}
	s = withoutLags(s)
	for _, p := range splitCell(s, listSigns) {
		if isNone(p.text) || c.whole(p) || c.words(p) {
			continue
		}
		more := splitAnd(p)
		if len(more) < 2 {
			more = []cellPart{p}
		}
		for _, m := range more {
			if !c.whole(m) && !c.words(m) && !isNone(m.text) {
				c.rest = c.rest || strings.Count(m.text, " ") > 3
				c.add(-1, m)
			}
		}
	}
	return c.all, c.rest
}

// lags match the kind of a link or a lag behind a number, as in schedules: 3FS+2d, 12EA, 4SS + 1 day, 5+3d.
var lags = regexp.MustCompile(`\pN(?: ?(\p{Lu}{2})\b)?(?: ?[+−-] ?\d+(?:[.,]\d+)? ?(\pL+|%)?)?`)

// withoutLags blanks the kinds of links and the lags in a cell.
func withoutLags(s string) string {
	if len(s) > maxSentence {
		return s
	}
	b := []byte(s)
	for _, m := range lags.FindAllStringSubmatchIndex(s, -1) {
		if m[2] < 0 && (m[4] < 0 || !lexicon.Is(lexicon.Units, s[m[4]:m[5]])) {
			continue
		}
		_, size := utf8.DecodeRuneInString(s[m[0]:])
		for i := m[0] + size; i < m[1]; i++ {
			b[i] = ' '
		}
	}
	return string(b)
}

// saysMore reports whether a cell of references holds more than names: a lag, a condition, a remark. ends are
// the names of the ends of links.
func (a *analysis) saysMore(v *form.Value, ends map[string]bool, depth int) bool {
	if v == nil || depth > 20 {
		return false
	}
	for _, x := range v.Items {
		if a.saysMore(x, ends, depth+1) {
			return true
		}
	}
	for i := range v.Fields {
		if a.saysMore(v.Fields[i].Val, ends, depth+1) {
			return true
		}
	}
	s := v.Text()
	if !v.IsScalar() || a.n.isName(s) || isNone(s) {
		return false
	}
	if len(s) > maxSentence {
		return true
	}
	for _, p := range splitCell(s, listSigns+" ()[]/+") {
		word := strings.Trim(p.text, ".:")
		if _, ok := a.n.find(p.text); !ok && !ends[p.text] && !isNone(p.text) && !lexicon.Is(lexicon.Steps, word) && !lexicon.Is(lexicon.And, word) {
			return true
		}
	}
	return false
}

func (c *cellReader) add(at int, p cellPart) {
	if len(c.all) <= maxMentions {
		c.all = append(c.all, saidOf{at, p.text, c.off + p.off})
	}
}

// whole adds a part that is one reference or a range of references. It returns false for other parts.
func (c *cellReader) whole(p cellPart) bool {
	if k, ok := c.n.find(p.text); ok {
		c.add(k, p)
		return true
	}
	if head, state, ok := strings.Cut(p.text, "."); ok && !digits(head) && isID(state) {
		if k, ok := c.n.exact[head]; ok {
			c.add(k, p) // with the state of its end: fetch.Succeeded
			return true
		}
	}
	if list, ok := c.n.span(p.text); ok {
		for _, k := range list {
			c.add(k, p)
		}
		return true
	}
	if i := strings.IndexAny(p.text, "(（["); i > 0 {
		if k, ok := c.n.find(p.text[:i]); ok {
			c.add(k, p)
			return true
		}
	}
	return false
}

// words adds a part that consists of references and nouns for steps: "Step 1 2 4", "1 + 2", "T1/T2". It
// returns false for other parts.
func (c *cellReader) words(p cellPart) bool {
	kept, hits := len(c.all), 0
	for _, w := range splitCell(p.text, " /+\u00a0") {
		w.off += p.off
		word := strings.Trim(w.text, ".:")
		switch {
		case lexicon.Is(lexicon.Steps, word) || lexicon.Is(lexicon.And, w.text):
		case c.whole(w):
			hits++
		case brief(w.text):
			c.add(-1, w)
		default:
			c.all = c.all[:kept]
			return false
		}
	}
	if hits == 0 {
		c.all = c.all[:kept]
	}
	return hits > 0
}

// brief reports whether s looks like an id: a short word with a digit.
func brief(s string) bool {
	return len(s) < 12 && strings.ContainsAny(s, "0123456789") && !strings.ContainsAny(s, " +")
}

type cellPart struct {
	text string
	off  int
}

// splitCell splits a text at any of the separators and drops empty parts.
func splitCell(s, seps string) []cellPart {
	var out []cellPart
	from := 0
	put := func(to int) {
		raw := s[from:to]
		t := strings.TrimSpace(raw)
		if t != "" {
			out = append(out, cellPart{t, from + strings.Index(raw, t)})
		}
	}
	for i, r := range s {
		if strings.ContainsRune(seps, r) {
			put(i)
			from = i + utf8.RuneLen(r)
		}
	}
	put(len(s))
	return out
}

// splitAnd splits a part at words for "and" in any language.
func splitAnd(p cellPart) []cellPart {
	var out []cellPart
	from := 0
	put := func(to int) {
		raw := p.text[from:to]
		if t := strings.TrimSpace(raw); t != "" {
			out = append(out, cellPart{t, p.off + from + strings.Index(raw, t)})
		}
	}
	if len(p.text) > 2000 {
		return nil
	}
	for _, t := range lexicon.Scan(p.text) {
		if t.Is(lexicon.And) && t.Off >= from {
			put(t.Off)
			from = t.End
		}
	}
	if from == 0 {
		return nil
	}
	put(len(p.text))
	return out
}

// span reads a range of items: 2-4, T1–T3, 2 to 5, 2..4.
func (n *labels) span(s string) ([]int, bool) {
	if len(s) > 100 {
		return nil, false
	}
	for _, sep := range rangeSigns(s) {
		a, b, ok := strings.Cut(s, sep)
		if !ok || strings.Contains(b, sep) {
			continue
		}
		a, b = strings.TrimSpace(strings.Trim(a, ".")), strings.TrimSpace(strings.Trim(b, "."))
		i, okA := n.find(a)
		j, okB := n.find(b)
		if !okB && digits(b) && len(a) > 1 && !digits(a) {
			// For example T1-3.
			j, okB = n.find(strings.TrimRight(a, "0123456789") + b)
		}
		if !okA || !okB || j <= i || !strings.ContainsAny(a, "0123456789") || j-i > 500 {
			continue
		}
		list := make([]int, 0, j-i+1)
		for ; i <= j; i++ {
			list = append(list, i)
		}
		return list, true
	}
	return nil, false
}

// rangeSigns returns the signs and words that may stand between the ends of a range in s.
func rangeSigns(s string) []string {
	signs := []string{"–", "—", "..", "…", "~", "～", "-", "至"}
	for _, t := range lexicon.Scan(s) {
		if t.Is(lexicon.To) {
			signs = append(signs, s[t.Off:t.End])
		}
	}
	return signs
}
