package plan

import (
	"html"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// maxViews bounds how deep texts are nested in texts, such as a plan in a string in a string.
const maxViews = 4

// found is a reading together with the view of the text that it was read from.
type found struct {
	d       *document
	dialect string
	r       *reading
	noPlan  *NoPlan
}

// find reads the plan in d, or in a text that d only wraps: a string of JSON, a quotation, escaped markup.
func find(d *document, o options, depth int) found {
	if strings.IndexByte(d.text, '"') < 0 && strings.ContainsAny(d.text, "＂”") {
		if v := d.wideView(); v != nil {
			if g := findDirect(v, o, true); g.r != nil {
				return g
			}
		}
	}
	if depth < maxViews {
		if f := findPacked(d, o, depth); f.r != nil {
			return f
		}
	}
	f := findDirect(d, o, false)
	if f.r != nil || depth >= maxViews || d.cut {
		return f
	}
	for _, t := range d.findTrees() {
		if o.ended() {
			return found{}
		}
		if g := findInStrings(d, t, o, depth); g.r != nil {
			return g
		}
	}
	for _, v := range [...]*document{d.lineEscapesView(), d.htmlView()} {
		if v == nil {
			continue
		}
		if g := find(v, o, depth+1); g.r != nil {
			return g
		}
	}
	if v := d.wideView(); v != nil {
		if g := findDirect(v, o, true); g.r != nil {
			return g
		}
	}
	return f
}

// findDirect reads d itself, with the dialects and with the general reader. With dataOnly it reads values
// only.
func findDirect(d *document, o options, dataOnly bool) found {
	old, general := found{}, found{}
	for i := range dialects {
		if o.ended() {
			return found{}
		}
		dl := &dialects[i]
		if o.dialect != "" && o.dialect != dl.name || dataOnly && !dl.data {
			continue
		}
		r := readOnce(d, dl, 0)
		switch {
		case r == nil:
			continue
		case r.noPlan != nil:
			old.noPlan = r.noPlan
			continue
		case !dl.data:
			return found{d: d, dialect: dl.name, r: r}
		}
		old = found{d: d, dialect: dl.name, r: r}
		break
	}
	// Data that a dialect recognizes as no plan is not given to the general reader.
	if old.noPlan == nil && (o.dialect == "" || slices.Contains(forms[:], o.dialect)) {
		general = readGeneral(d, o, dataOnly)
	}
	switch {
	case general.r == nil && (old.r != nil || general.noPlan == nil):
		return old
	case old.r == nil || !old.r.strict && general.findsMore(old):
		return general
	}
	return old
}

// findsMore reports whether f, a reading of the general reader, finds more in the text than old, a reading of
// a dialect. f must be certain and must not have fewer problems or links. It then wins if old shows no ids or
// has no links, if both have the same problems, or if f knows all ends of its links and has all problems of
// old.
func (f found) findsMore(old found) bool {
	known, loose := f.r.ends()
	oldKnown, oldLoose := old.r.ends()
	fewer := len(f.r.graph.Problems) < len(old.r.graph.Problems) && !(old.dialect == "nested_calls" && oldKnown == 0 && known > 0)
	if f.r.weight < sureWeight || f.r.end <= old.r.start || f.r.loops() || fewer {
		return false
	}
	switch {
	case known < oldKnown || loose > oldLoose || known == 0 || f.r.unnamed && !old.r.unnamed && oldKnown+oldLoose > 0:
		return false
	case known == oldKnown && loose == oldLoose:
		// Steps that have numbers are not named after their tools.
		return old.r.unnamed && !f.r.unnamed || old.dialect == "nested_calls" && !f.r.unnamed && f.r.sharesNone(old.r) && len(f.r.graph.Problems) == len(old.r.graph.Problems)
	}
	return old.r.unnamed || oldKnown == 0 || f.r.sameProblems(old.r) || loose == 0 && f.r.includes(old.r)
}

// ids returns the ids of the problems of a reading.
func (r *reading) ids() map[string]bool {
	ids := make(map[string]bool, len(r.graph.Problems))
	for _, p := range r.graph.Problems {
		ids[p.ID] = true
	}
	return ids
}

// includes reports whether a reading has all problems of part, by their ids.
func (r *reading) includes(part *reading) bool {
	ids := r.ids()
	return !slices.ContainsFunc(part.graph.Problems, func(p Problem) bool { return !ids[p.ID] })
}

// sharesNone reports whether the two readings have no id in common.
func (r *reading) sharesNone(other *reading) bool {
	ids := r.ids()
	return !slices.ContainsFunc(other.graph.Problems, func(p Problem) bool { return ids[p.ID] })
}

// loops reports whether a problem waits for itself.
func (r *reading) loops() bool {
	return slices.ContainsFunc(r.graph.Edges, func(e Edge) bool { return e.From == e.To })
}

// ends counts the edges between two problems, and the ends of edges that name no problem.
func (r *reading) ends() (known, loose int) {
	ids := r.ids()
	seen := make(map[pairKey]bool, len(r.graph.Edges))
	for _, e := range r.graph.Edges {
		if n := b2i(!ids[e.From]) + b2i(!ids[e.To]); n > 0 {
			loose += n
		} else if k := (pairKey{e.From, e.To}); !seen[k] {
			seen[k] = true
			known++
		}
	}
	return known, loose
}

// sameProblems reports whether two readings have the same problems in the same order.
func (r *reading) sameProblems(other *reading) bool {
	return slices.EqualFunc(r.graph.Problems, other.graph.Problems, func(a, b Problem) bool { return a.ID == b.ID })
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// findPacked reads a text that is only a wrapper: every line is quoted, markup is escaped, or the text is one
// string or value of JSON.
func findPacked(d *document, o options, depth int) found {
	for _, v := range [...]*document{d.quotedView(), d.markupView(), d.escapedView(), d.stringView(), d.spokenView()} {
		if v == nil {
			continue
		}
		if f := find(v, o, depth+1); f.r != nil {
			return f
		}
	}
	first, last := d.bounds()
	if first >= len(d.text) || strings.IndexByte("{[", d.text[first]) < 0 {
		return found{}
	}
	ts := d.findTrees()
	if len(ts) == 0 || ts[0].Root.Off != first || ts[0].Root.End < last && !ts[0].CutOff {
		return found{}
	}
	if f := findDirect(d, o, true); f.r != nil || f.noPlan != nil {
		return f
	}
	return findInStrings(d, ts[0], o, depth)
}

// bounds returns the start and end of the text within the fences around it.
func (d *document) bounds() (first, last int) {
	first, last = len(d.text), 0
	for _, l := range d.lines {
		if l.text != "" && !l.fence {
			first = min(first, l.off)
			last = max(last, l.off+len(l.text))
		}
	}
	return first, last
}

// isPacking reports whether a text or value under key stands for the whole answer.
func isPacking(key string) bool {
	for _, k := range [...]string{"plan", "output", "outputs", "response", "result", "answer", "finalanswer", "content", "text", "message", "graph", "problemgraph", "choices", "arguments", "function", "functioncall", "toolcalls", "toolinput", "input", "actioninput", "completion", "generatedtext", "data", "body", "value", "reply", "steps", "tasks", "workflow", "structuredresponse", "parts", "candidates", "generations", "payload", "parameters", "args", "xml", "markdown"} {
		if form.SameKey(key, k) {
			return true
		}
	}
	return false
}

// findInStrings looks for a plan in the strings of t that stand for a whole answer.
func findInStrings(d *document, t *form.Tree, o options, depth int) found {
	var out found
	var walk func(v *form.Value, level int)
	walk = func(v *form.Value, level int) {
		if out.r != nil || level > 8 {
			return
		}
		switch v.Kind {
		case form.KindString:
			if len(v.Str) < 8 && !form.ContainsArrow(v.Str) || v.Out <= v.In {
				return
			}
			in := d.unescapedView(int(v.In), int(v.Out))
			if f := find(in, o, depth+1); f.r != nil {
				if v.Open && len(f.r.graph.Problems) > 0 {
					last := f.r.graph.Problems[len(f.r.graph.Problems)-1].ID
					f.r.diag(in, Error, Truncated, len(in.text), last, "the string that holds the plan is not closed: what came after "+last+" may be lost", "ask for the rest of the plan")
				}
				out = f
			}
		case form.KindList:
			if len(v.Items) > 8 {
				return
			}
			for _, x := range v.Items {
				if x.Kind == form.KindObject {
					walk(x, level+1)
				}
			}
		case form.KindObject:
			if role := v.Get("role"); role != nil && role.Text() != "assistant" && role.Text() != "model" {
				return
			}
			for i := range v.Fields {
				if isPacking(v.Fields[i].Key) {
					walk(v.Fields[i].Val, level+1)
				}
			}
		}
	}
	walk(t.Root, 0)
	return out
}

// viewBuilder builds a text from another one and records where each byte comes from.
type viewBuilder struct {
	b    strings.Builder
	back []int32
}

func (v *viewBuilder) add(s string, from int) {
	v.b.WriteString(s)
	for range len(s) {
		v.back = append(v.back, int32(from))
	}
}

func (v *viewBuilder) copy(s string, from int) {
	v.b.WriteString(s)
	for i := range len(s) {
		v.back = append(v.back, int32(from+i))
	}
}

func (v *viewBuilder) document(d *document, end int) *document {
	in := &document{limits: d.limits, outer: d, cut: d.cut, repairs: nil}
	in.back = append(v.back, int32(end))
	in.text = in.maskThoughts(v.b.String())
	in.splitLines()
	return in
}

// unescapedView returns the content of the string of JSON or Python in [from, to), without its escapes.
func (d *document) unescapedView(from, to int) *document {
	s := d.text[from:to]
	var v viewBuilder
	v.b.Grow(len(s))
	v.back = make([]int32, 0, len(s)+1)
	for i := 0; i < len(s); {
		j := strings.IndexByte(s[i:], '\\')
		if j < 0 || i+j+1 >= len(s) {
			v.copy(s[i:], from+i)
			break
		}
		v.copy(s[i:i+j], from+i)
		i += j
		n := form.EscapeAt(s, i, func(r rune) { v.add(string(r), from+i) })
		if n == 0 {
			_, size := utf8.DecodeRuneInString(s[i+1:])
			v.copy(s[i+1:i+1+size], from+i+1)
			n = 1 + size
		}
		i += n
	}
	return v.document(d, to)
}

// stringView returns the text without quotes and escapes, if the text is one string.
func (d *document) stringView() *document {
	first, last := d.bounds()
	if last-first < 4 {
		return nil
	}
	s := d.text[first:last]
	q := s[0]
	if q != '"' && q != '\'' || !strings.Contains(s, `\n`) && !strings.Contains(s, `\"`) && s[len(s)-1] != q {
		return nil
	}
	if three := s[:3]; s[1] == q && s[2] == q {
		if end := strings.Index(s[3:], three); end >= 0 && 3+end+3 == len(s) {
			return d.unescapedView(first+3, last-3)
		}
		return nil
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case q:
			if i == len(s)-1 {
				return d.unescapedView(first+1, last-1)
			}
			return nil
		}
	}
	return d.unescapedView(first+1, last) // the string is not closed
}

// escapedView returns the content of a string that lost its quotes: every quote in it is escaped.
func (d *document) escapedView() *document {
	n := strings.Count(d.text, `\"`)
	if n < 4 || n != strings.Count(d.text, `"`) {
		return nil
	}
	return d.unescapedView(0, len(d.text))
}

// lineEscapesView returns a text of one line, in which line ends are written as \n, as several lines.
func (d *document) lineEscapesView() *document {
	if strings.Count(d.text, `\n`) < 2 || len(d.lines) > 3 || strings.IndexByte(d.text, '{') >= 0 {
		return nil
	}
	return d.unescapedView(0, len(d.text))
}

// quotedView returns a text of which most lines start with >, without those signs.
func (d *document) quotedView() *document {
	quoted, all := 0, 0
	for _, l := range d.lines {
		if l.text != "" {
			all++
			if l.text[0] == '>' {
				quoted++
			}
		}
	}
	if quoted < 2 || quoted*3 < all*2 {
		return nil
	}
	var v viewBuilder
	for i, l := range d.lines {
		end := len(d.text)
		if i+1 < len(d.lines) {
			end = d.starts[i+1]
		}
		from := d.starts[i]
		if l.text != "" && l.text[0] == '>' {
			from = l.off + 1
			if from < end && d.text[from] == ' ' {
				from++
			}
		}
		v.copy(d.text[from:end], from)
	}
	return v.document(d, len(d.text))
}

// markupView returns a text whose tags, quotes or arrows are written as entities, with the entities decoded.
func (d *document) markupView() *document {
	s := d.text
	if strings.IndexByte(s, '&') < 0 {
		return nil
	}
	tags := indexFold(s, "&lt;problem") >= 0 || indexFold(s, "&lt;function.") >= 0
	quotes := strings.Contains(s, "&quot;") && strings.IndexByte(s, '"') < 0
	arrows := strings.Contains(s, "-&gt;") && strings.IndexByte(s, '<') < 0 && !strings.Contains(s, "->")
	if !tags && !quotes && !arrows {
		return nil
	}
	var v viewBuilder
	for i := 0; i < len(s); {
		j := strings.IndexByte(s[i:], '&')
		if j < 0 {
			v.copy(s[i:], i)
			break
		}
		v.copy(s[i:i+j], i)
		i += j
		end := strings.IndexByte(s[i:min(len(s), i+12)], ';')
		if end < 0 {
			end = 0
		}
		v.add(html.UnescapeString(s[i:i+end+1]), i)
		i += end + 1
	}
	return v.document(d, len(s))
}

// wideView returns the text with ASCII for the full-width brackets, quotes and separators of East Asian
// keyboards.
func (d *document) wideView() *document {
	r := strings.NewReplacer("［", "[", "］", "]", "｛", "{", "｝", "}", "：", ":", "，", ",", "＂", `"`, "“", `"`, "”", `"`, "„", `"`, "\u200b", "", "\u2060", "")
	if r.Replace(d.text) == d.text {
		return nil
	}
	var v viewBuilder
	for i := 0; i < len(d.text); {
		if d.text[i] < utf8.RuneSelf {
			j := i + 1
			for j < len(d.text) && d.text[j] < utf8.RuneSelf {
				j++
			}
			v.copy(d.text[i:j], i)
			i = j
			continue
		}
		_, n := utf8.DecodeRuneInString(d.text[i:])
		v.add(r.Replace(d.text[i:i+n]), i)
		i += n
	}
	return v.document(d, len(d.text))
}
