package main

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

// trips counts the round trips and mutants of one dialect or family.
type trips struct {
	written, back, skipped int
	harmless, same         int
	harmful, silent        int
}

// graph converts an expectation into a graph, so that it can be rendered.
func (e *expected) graph() plan.Graph {
	var g plan.Graph
	parent := map[string]string{}
	if e.Hierarchy != nil {
		for _, h := range *e.Hierarchy {
			parent[h[1]] = h[0]
		}
	}
	for _, n := range e.Nodes {
		id := fmt.Sprint(n[0])
		g.Problems = append(g.Problems, plan.Problem{ID: id, ParentID: parent[id]})
	}
	if e.Edges != nil {
		for _, x := range *e.Edges {
			g.Edges = append(g.Edges, plan.Edge{From: x[0], To: x[1]})
		}
	}
	return g
}

// expect converts a graph into an expectation, to be compared with the result of reading.
func expect(g plan.Graph, edges bool) *expected {
	e := &expected{}
	var hierarchy [][2]string
	for _, p := range g.Problems {
		e.Nodes = append(e.Nodes, []any{p.ID})
		if p.ParentID != "" {
			hierarchy = append(hierarchy, [2]string{p.ParentID, p.ID})
		}
	}
	e.Hierarchy = &hierarchy
	if edges {
		list := [][]string{}
		for _, x := range g.Edges {
			list = append(list, []string{x.From, x.To})
		}
		e.Edges = &list
	}
	return e
}

// tripper measures round trips and mutants, and lists failures.
type tripper struct {
	w        io.Writer
	dialects map[string]*trips
	families map[string]*trips
	list     int
	every    int
}

func (t *tripper) of(m map[string]*trips, name string) *trips {
	if m[name] == nil {
		m[name] = &trips{}
	}
	return m[name]
}

func (t *tripper) miss(format string, args ...any) {
	if t.list > 0 {
		t.list--
		fmt.Fprintf(t.w, format, args...)
	}
}

// add renders the expected graph of record i in every dialect, reads it back, and reads damaged copies. If
// the text of the record itself was read exactly, it reads damaged copies of that as well.
func (t *tripper) add(i int, r *record, o outcome) error {
	if r.Expected == nil || i%max(1, t.every/10) != 0 {
		return nil
	}
	g := r.Expected.graph()
	for _, name := range plantest.Notations() {
		s := t.of(t.dialects, name)
		rd, err := plantest.Render(g, name)
		if errors.Is(err, plantest.ErrCannotExpress) {
			s.skipped++
			continue
		}
		if err != nil {
			return err
		}
		s.written++
		want := expect(rd.Want, rd.Edges)
		res := plan.Parse(rd.Text)
		if diffs := compare(want, res.Graph); len(diffs) == 0 && res.NoPlan == nil {
			s.back++
		} else {
			t.miss("--- round trip of %s in %s: read as %q %v\n%.600s\n", r.ID, name, res.Dialect, diffs, rd.Text)
			continue
		}
		if i%t.every == 0 {
			t.damage(s, r.ID+" in "+name, rd.Text, want)
		}
	}
	if o.verdict == exact {
		want := expect(o.result.Graph, r.Expected.Edges != nil)
		t.damage(t.of(t.families, r.Family), r.ID, r.Raw, want)
	}
	return nil
}

func (t *tripper) damage(s *trips, what, text string, want *expected) {
	for _, m := range plantest.Mutants(text) {
		res := plan.Parse(m.Text)
		diffs := compare(want, res.Graph)
		if m.Harmless {
			s.harmless++
			if len(diffs) == 0 && res.NoPlan == nil {
				s.same++
			} else {
				t.miss("--- %s of %s: read as %q %v %v\n", m.Kind, what, res.Dialect, res.NoPlan, diffs)
			}
			continue
		}
		s.harmful++
		if res.NoPlan != nil || len(diffs) == 0 || res.HasErrors() {
			continue
		}
		if m.Kind == "truncated" && reportsCut(res.Diagnostics) {
			continue
		}
		for _, d := range diffs {
			if !named(res.Diagnostics, d) {
				s.silent++
				t.miss("--- %s of %s is silently wrong: %s\n%.1200s\n%v\n", m.Kind, what, d.text, m.Text, res.Diagnostics)
				break
			}
		}
	}
}

// reportsCut reports whether the reader says that the text may have been cut off. The missing elements cannot
// be named.
func reportsCut(ds []plan.Diagnostic) bool {
	for _, d := range ds {
		if d.Element != "" && (d.Code == plan.Truncated || d.Code == plan.OpenEnd || d.Code == plan.Unclosed) {
			return true
		}
	}
	return false
}

func (t *tripper) print() bool {
	met := true
	table := func(title string, m map[string]*trips) {
		names := make([]string, 0, len(m))
		for n := range m {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintf(t.w, "\n%-17s %9s %9s %9s %10s %9s %9s %7s  %s\n", title, "written", "back", "no form", "harmless", "same", "harmful", "silent", "aims")
		for _, n := range names {
			s := m[n]
			verdict := "met"
			if s.back != s.written || s.silent > 0 || s.same != s.harmless {
				verdict = "MISSED"
				met = false
			}
			fmt.Fprintf(t.w, "%-17s %9d %9d %9d %10d %9d %9d %7d  %s\n", n, s.written, s.back, s.skipped, s.harmless, s.same, s.harmful, s.silent, verdict)
		}
	}
	table("round trip", t.dialects)
	table("own texts", t.families)
	return met
}
