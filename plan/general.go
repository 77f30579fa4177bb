package plan

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// leastWeight is the smallest weight of a reading that is taken for a plan.
const leastWeight = 30

// sureWeight is the smallest weight of a reading that is certain.
const sureWeight = 80

// closeCall is the largest difference in weight at which another reading of the same text is reported.
const closeCall = 4

// readGeneral reads text of any form: package form makes trees of it, and package meaning interprets them.
// The dialect of the result is the form of the text.
func readGeneral(d *document, o options, dataOnly bool) found {
	src := form.NewSource(d.text)
	src.MaxDepth, src.MaxItems, src.MaxLinks = d.limits.MaxDepth, d.limits.MaxProblems, d.limits.MaxEdges
	src.Ended = o.ended
	var best *meaning.Reading
	var next []*meaning.Reading
	var f found
	for _, m := range meaning.Read(src) {
		switch {
		case m.Not != "" && best == nil && !dataOnly:
			f.noPlan = &NoPlan{Reason: Prose, Message: "the text holds " + m.Not}
			if m.Form != "outline" && m.Form != "prose" {
				f.noPlan.Reason = NotAGraph
			}
		case m.Weight < leastWeight || o.dialect != "" && m.Form != o.dialect || dataOnly && m.Form != "records":
		case best == nil:
			best = m
		case m.Weight >= best.Weight-closeCall:
			next = append(next, m)
		}
	}
	if best == nil {
		return f
	}
	r := d.reading(best)
	for _, m := range next[:min(len(next), maxRunnersUp)] {
		r.ambiguous(d, best, m)
	}
	return found{d: d, dialect: best.Form, r: r}
}

// toolName returns the text that the value of an attribute holds, or "" if the value is not a text.
func toolName(value string) string {
	var name string
	switch err := json.Unmarshal([]byte(value), &name); {
	case err == nil:
		value = name
	case json.Valid([]byte(value)):
		return ""
	}
	return strings.TrimSpace(value)
}

// maxRunnersUp bounds the number of other readings whose differences are listed.
const maxRunnersUp = 16

// maxAlternative bounds the number of differences that are listed of one other reading.
const maxAlternative = 40

// ambiguous reports how the text can be read as well, and names every difference between the two readings.
func (r *reading) ambiguous(d *document, as, also *meaning.Reading) {
	if also.End <= as.Start || also.Start >= as.End {
		return // it is another part of the text
	}
	said := 0
	meaning.Differences(as, also, func(element string, _ int, link, there bool) {
		if said++; said > maxAlternative {
			return
		}
		message := element + " is a problem, too"
		switch from, to, _ := strings.Cut(element, " -> "); {
		case link && there:
			message = from + " comes before " + to
		case link:
			message = from + " does not come before " + to
		case !there:
			message = element + " is no problem"
		}
		r.diag(d, Warning, AmbiguousPlan, also.Start, element, "the text was read as "+as.Form+"; read as "+also.Form+", "+message, "write the plan in one way")
	})
}

// reading converts the result of package meaning into problems and edges with places.
func (d *document) reading(m *meaning.Reading) *reading {
	r := &reading{weight: m.Weight, start: m.Start, end: m.End, openEnded: m.Open, edgesStated: m.Stated || len(m.Links) > 0, unnamed: true}
	for i := range m.Items {
		it := &m.Items[i]
		r.unnamed = r.unnamed && !it.Shown
		p := d.problem(it.ID, it.Title, it.Off)
		p.Details = it.Details
		if it.Parent >= 0 {
			p.ParentID = m.Items[it.Parent].ID
		}
		for _, a := range it.Attrs {
			if a.Role == meaning.Tool && p.Tool == "" {
				if p.Tool = toolName(a.Value); p.Tool != "" {
					continue // it is no argument of the tool
				}
			}
			arg := Arg{Name: a.Key, Kind: Literal, Value: a.Value}
			if a.Refers {
				arg.Kind = Referring
			}
			if !json.Valid([]byte(a.Value)) {
				quoted, _ := json.Marshal(a.Value) // strings always marshal
				arg.Value = string(quoted)
			}
			for _, f := range it.Refs {
				if f.Arg == a.Key && a.Key != "" {
					arg.Kind = Referring
				}
			}
			p.Args = append(p.Args, arg)
		}
		for _, f := range it.Refs {
			ref := Reference{Text: f.Text, To: f.To, Path: f.Path, Arg: f.Arg}
			ref.Line, ref.Column = d.place(f.Off)
			p.Refs = append(p.Refs, ref)
		}
		r.graph.Problems = append(r.graph.Problems, p)
	}
	r.around = d.around(m)
	r.mark(d, m.Outside())
	for i, last := 0, -1; m.Apart && i < len(m.Items); i++ {
		if k := d.lineAt(m.Items[i].Off); k != last {
			r.markBefore(d, m.Items[i].Off)
			last = k
		}
	}
	if m.Form == "outline" {
		r.graph.nameParents()
	}
	// Prose may state an edge twice. An edge that a value or a drawing states twice is a fault.
	words := m.Form == "outline" || m.Form == "prose" || m.Form == "code"
	seen := make(map[pairKey]bool, len(m.Links))
	for _, l := range m.Links {
		if k := (pairKey{l.From, l.To}); !words || !seen[k] {
			seen[k] = true
			r.edge(d, l.From, l.To, EdgeSource(l.Source), l.Off)
			if l.Says != "" {
				r.edgeTexts = append(r.edgeTexts, edgeText{l.From, l.To, l.Says})
			}
		}
	}
	if len(m.Links) > d.limits.MaxEdges && !r.full(d) {
		r.diag(d, Error, LimitReached, m.Start, "links", "the text states more than "+strconv.Itoa(d.limits.MaxEdges)+" edges, some more than once; the rest was not read", "split the plan")
	}
	for _, n := range m.Notes {
		s := Warning
		if n.Fault {
			s = Error
		}
		r.diag(d, s, Code(n.Code), n.Off, n.Element, n.Message, n.Hint)
	}
	return r
}

// around returns the lines of a reading that belong to none of its items.
func (d *document) around(m *meaning.Reading) map[int]bool {
	out := map[int]bool{}
	for _, s := range m.Around {
		for i := d.lineAt(s.Off); i < len(d.starts) && d.starts[i] < s.End; i++ {
			out[i] = true
		}
	}
	if m.Form == "code" || m.Form == "diagram" || m.Apart {
		d.aroundLines(m, out)
	}
	if m.Form == "table" { // rows that only head others, and lines between two tables
		for i := d.lineAt(m.Start) + 1; i <= d.lineAt(m.End); i++ {
			switch text := d.lines[i].text; {
			case text == "":
			case isRule(text): // below a head
				delete(out, i-1)
			default:
				out[i] = true
			}
		}
		for i := range m.Items {
			for k := d.lineAt(m.Items[i].Off); k < len(d.starts) && d.starts[k] < m.Items[i].End; k++ {
				delete(out, k)
			}
		}
	}
	for i := range m.Items {
		delete(out, d.lineAt(m.Items[i].Off))
	}
	return out
}

// aroundLines adds the lines of code and of drawings that hold no item, no link and no note.
func (d *document) aroundLines(m *meaning.Reading, out map[int]bool) {
	covered := make([]bool, len(d.lines)+1)
	// opens[i] is the number of items that begin on line i minus the number that end on the line above.
	opens := make([]int, len(d.lines)+1)
	for i := range m.Items {
		opens[d.lineAt(m.Items[i].Off)]++
		opens[d.lineAt(max(m.Items[i].End-1, m.Items[i].Off))+1]--
	}
	for i, open := 0, 0; i < len(covered); i++ {
		open += opens[i]
		covered[i] = open > 0
	}
	for _, l := range m.Links {
		covered[d.lineAt(l.Off)] = true
	}
	for _, n := range m.Notes {
		covered[d.lineAt(n.Off)] = true
	}
	for i := d.lineAt(m.End); i >= d.lineAt(m.Start); i-- {
		if m.Form == "code" && covered[i+1] && strings.HasPrefix(d.lines[i].text, "@") {
			covered[i] = true // a decorator of the definition below
		}
		if !covered[i] && strings.ContainsFunc(d.lines[i].text, unicode.IsLetter) {
			out[i] = true
		}
	}
}

// isRule reports whether a line is a horizontal rule of a table or between two paragraphs.
func isRule(text string) bool {
	return strings.Trim(text, "|+-=: │┃║─━═┌┬┐├┼┤└┴┘╔╦╗╠╬╣╚╩╝") == ""
}
