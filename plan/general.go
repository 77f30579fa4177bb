package plan

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// leastWeight is the weight from which a reading is taken for a plan.
const leastWeight = 30

// readGeneral reads whatever the text is written in: package form makes trees of it, package meaning says what they mean.
func readGeneral(d *document) *reading {
	src := form.NewSource(d.text)
	src.MaxDepth, src.MaxItems = d.limits.MaxDepth, d.limits.MaxProblems
	all := meaning.Read(src)
	if len(all) == 0 || all[0].Weight < leastWeight {
		return nil
	}
	return d.reading(all[0])
}

// reading turns what package meaning says into problems and edges with places.
func (d *document) reading(m *meaning.Reading) *reading {
	r := &reading{start: m.Start, end: m.End, openEnded: m.Open, edgesStated: m.Stated || len(m.Links) > 0}
	for i := range m.Items {
		it := &m.Items[i]
		p := d.problem(it.ID, it.Title, it.Off)
		if it.Parent >= 0 {
			p.ParentID = m.Items[it.Parent].ID
		}
		for _, a := range it.Attrs {
			arg := Arg{Name: a.Key, Kind: Literal, Value: a.Value}
			for _, f := range it.Refs {
				if f.Arg == a.Key {
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
	type pair struct{ from, to string }
	seen := make(map[pair]bool, len(m.Links))
	for _, l := range m.Links {
		if k := (pair{l.From, l.To}); !seen[k] {
			seen[k] = true
			r.edge(d, l.From, l.To, EdgeSource(l.Source), l.Off)
		}
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
