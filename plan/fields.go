package plan

import (
	"html"
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// addFields adds fields of v to the arguments: those that the reader of a notation does not ask for. It
// leaves out the fields in used and the texts that the problem already shows.
func (p *Problem) addFields(v *form.Value, used ...*form.Value) {
	for _, f := range p.otherFields(v, used) {
		if len(p.Args) >= maxArgs {
			return
		}
		p.Args = append(p.Args, Arg{Name: f.Key, Kind: Literal, Value: form.JSON(f.Val)})
	}
}

// otherFields returns the fields of a value that are not in used, not already shown by the problem, and not
// empty.
func (p *Problem) otherFields(v *form.Value, used []*form.Value) (out []form.Field) {
	for _, f := range v.Fields {
		shown := f.Val.IsScalar() && p.shows(f.Val.Text())
		if !shown && !slices.Contains(used, f.Val) && (f.Val.Text() != "" || len(f.Val.Items)+len(f.Val.Fields) > 0) {
			out = append(out, f)
		}
	}
	return out
}

// maxArgs bounds the arguments of one problem.
const maxArgs = 1000

// shows reports whether a text already is a field of the problem.
func (p *Problem) shows(s string) bool {
	s = strings.Trim(strings.TrimSpace(s), "$")
	return s == p.ID || s == p.Request || s == p.Tool || s == p.ParentID || s == strings.TrimSpace(p.Request)
}

// callArg reads an argument as it is written in a call (n=3, "x", [a, b]) and returns the text of its value
// as well. Anything that is no plain value is a string.
func callArg(text string) (a Arg, value string) {
	a.Kind = Literal
	if k, v, ok := strings.Cut(text, "="); ok && form.IsName(strings.TrimSpace(k)) && !strings.HasPrefix(v, "=") {
		a.Name, text = strings.TrimSpace(k), strings.TrimSpace(v)
	}
	switch {
	case text == "":
		a.Value = `""`
	case (text[0] == '"' || text[0] == '\'') && len(text) > 1 && form.QuotedLength(text) == len(text):
		a.Value = form.Quote(form.Unescape(text[1:len(text)-1], true))
	case text == "None":
		a.Value = "null"
	case text[0] == '[' || text[0] == '{':
		if t, end := form.ValueAt(text, 0, 50, true); t.Root != nil && end == len(text) && len(t.Faults) == 0 && !t.CutOff {
			a.Value = form.JSON(t.Root)
			break
		}
		a.Value = form.Quote(text)
	default:
		a.Value = form.Typed(strings.Trim(text, `"'`))
	}
	return a, text
}

// attributes adds the attributes of a tag to the arguments. The attributes of an element within a problem
// have its name as a prefix: "risk.level".
func (p *Problem) attributes(element string, attrs []form.Field) {
	for _, f := range attrs {
		if s := f.Val.Text(); s != "" && s != p.ID && len(p.Args) < maxArgs {
			p.Args = append(p.Args, Arg{Name: element + f.Key, Kind: Literal, Value: form.Typed(s)})
		}
	}
}

// outsideText reads the text between two tags that the notation knows. Elements of a problem become its
// arguments; everything else counts to the surroundings.
func (x *xmlProblems) outsideText(from, to int) {
	p, element := x.current(), ""
	for i := from; i < to; {
		next := i + strings.IndexByte(x.d.text[i:to], '<')
		if next < i {
			next = to
		}
		text := strings.TrimSpace(html.UnescapeString(x.d.text[i:next]))
		switch {
		case text == "":
		case p != nil && element != "" && len(p.Args) < maxArgs:
			p.Args = append(p.Args, Arg{Name: element, Kind: Literal, Value: form.Typed(text)})
		default:
			x.mark(x.d, []meaning.Span{{Off: i, End: next}})
		}
		if i = next; i == to {
			return
		}
		name, attrs, n := form.Tag(x.d.text, i)
		switch {
		case n == 0:
			n = 1
		case name[0] == '/':
			element = ""
		case p != nil:
			element = name
			p.attributes(element+".", attrs)
		default:
			x.mark(x.d, []meaning.Span{{Off: i, End: i + n}})
		}
		i += n
	}
}

// edgeText is what the text says of an edge besides its ends, as JSON.
type edgeText struct{ from, to, value string }

// addEdgeText records what the fields of a link say besides its ends.
func (r *reading) addEdgeText(l *form.Value, from, to string, used ...*form.Value) {
	ends := Problem{ID: from, Request: to}
	if rest := ends.otherFields(l, used); len(rest) > 0 {
		r.edgeTexts = append(r.edgeTexts, edgeText{from, to, form.JSON(&form.Value{Kind: form.KindObject, Fields: rest})})
	}
}

// attachEdgeTexts turns what is said of edges into arguments of the later problem, named after the edge: "a
// -> b". One line may stand for many edges, so the length of the text bounds the total.
func (r *reading) attachEdgeTexts(d *document, g *Graph) {
	if len(r.edgeTexts) == 0 {
		return
	}
	at := make(map[string]int, len(g.Problems))
	for i := len(g.Problems) - 1; i >= 0; i-- {
		at[g.Problems[i].ID] = i
	}
	budget := 4*len(d.text) + 1<<16
	for _, s := range r.edgeTexts {
		i, ok := at[s.to]
		if !ok {
			i, ok = at[s.from]
		}
		if !ok {
			continue
		}
		p := &g.Problems[i]
		if budget -= len(s.from) + len(s.to) + len(s.value); budget < 0 || len(p.Args) >= maxArgs {
			r.diags = append(r.diags, Diagnostic{Code: SkippedText, Severity: Warning, Line: p.Line, Column: p.Column, Element: s.from + " -> " + s.to, Message: "the details of this and further edges were left out: there are too many", Hint: "write them once"})
			return
		}
		p.Args = append(p.Args, Arg{Name: s.from + " -> " + s.to, Kind: Literal, Value: s.value})
	}
}

// markOutside marks the lines of a value that hold anything that is part of no problem and no edge.
func (r *reading) markOutside(d *document, v *form.Value) {
	var items, links []int
	texts := map[string]bool{}
	for _, p := range r.graph.Problems {
		items = append(items, d.offset(p.Line, p.Column))
		texts[p.ID], texts[p.Request] = true, true
	}
	for _, e := range r.graph.Edges {
		links = append(links, d.offset(e.Line, e.Column))
	}
	r.mark(d, meaning.Outside(v, append(items, r.owned...), links, func(s string) bool { return texts[s] }))
}

// comments clears part for the lines that hold a comment, so that they count to the surroundings.
func (d *document) comments(part []bool) {
	for i, l := range d.lines {
		quotes := 0
		for k := 0; part[i] && k < len(l.text); k++ {
			switch c := l.text[k]; {
			case c == '"':
				quotes++
			case quotes%2 == 1 || k > 0 && l.text[k-1] != ' ':
			case strings.HasPrefix(l.text[k:], "//"), strings.HasPrefix(l.text[k:], "# "), strings.HasPrefix(l.text[k:], "<!--"), strings.HasPrefix(l.text[k:], "/*"):
				part[i] = false
			}
		}
	}
}

// markBefore counts the line at off to the surroundings of the plan if it has words before off.
func (r *reading) markBefore(d *document, off int) {
	i := d.lineAt(off)
	if off > d.starts[i] && strings.ContainsFunc(d.text[d.starts[i]:min(off, len(d.text))], unicode.IsLetter) {
		r.mark(d, []meaning.Span{{Off: d.starts[i], End: d.starts[i] + 1}})
	}
}

// mark counts lines to the surroundings of the plan.
func (r *reading) mark(d *document, spans []meaning.Span) {
	if r.around == nil {
		r.around = map[int]bool{}
	}
	for _, s := range spans {
		for i := d.lineAt(s.Off); i < len(d.starts) && d.starts[i] < s.End; i++ {
			r.around[i] = true
		}
	}
}
