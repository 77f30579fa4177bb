// Package mend is a scripted model that mends plans: it takes out of a plan the faults that it was told, and
// no others. It must not look for faults itself.
package mend

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
)

// Fault is a diagnostic as a model is told it.
type Fault struct {
	Code plan.Code
	// Element is the problem or the reference at fault.
	Element string
	Message string
}

// Plan is the plan of a text without the faults, written as a JSON list of problems with what each needs.
func Plan(text string, faults []Fault) string {
	g := plan.Parse(text, plan.WithComplete()).Graph
	for _, f := range faults {
		mendOne(&g, f.Code, f.Element, f.Message)
	}
	if len(g.Problems) == 0 {
		g.Problems = []plan.Problem{{ID: "all", Request: "do it all"}}
	}
	return write(g)
}

func mendOne(g *plan.Graph, code plan.Code, element, message string) {
	switch code {
	case plan.UnknownReference:
		g.Edges = slices.DeleteFunc(g.Edges, func(e plan.Edge) bool { return e.From == element || e.To == element })
		drop(g, element)
	case plan.SelfLoop:
		g.Edges = slices.DeleteFunc(g.Edges, func(e plan.Edge) bool { return e.From == element && e.To == element })
	case plan.Cycle:
		_, path, _ := strings.Cut(message, ": ")
		path, _, _ = strings.Cut(path, ". Hint")
		if steps := strings.Split(path, " -> "); len(steps) > 1 {
			from, to := steps[len(steps)-2], steps[len(steps)-1]
			if from == "…" { // the middle of a long circle is not shown
				from, to = steps[0], steps[1]
			}
			g.Edges = slices.DeleteFunc(g.Edges, func(e plan.Edge) bool { return e.From == from && e.To == to })
		}
	case plan.DuplicateID:
		n := 0
		for i := range g.Problems {
			if p := &g.Problems[i]; p.ID == element {
				if n++; n > 1 {
					p.ID += " (" + strconv.Itoa(n) + ")"
				}
			}
		}
	case plan.EmptyID:
		for i := range g.Problems {
			if g.Problems[i].ID == "" {
				g.Problems[i].ID = "task " + strconv.Itoa(i+1)
			}
		}
	case plan.ParentCycle:
		for i := range g.Problems {
			if g.Problems[i].ID == element {
				g.Problems[i].ParentID = ""
			}
		}
	case plan.UnknownTool:
		for i := range g.Problems {
			if g.Problems[i].ID == element {
				g.Problems[i].Tool = ""
			}
		}
	}
}

// drop removes the uses of a problem that is not there.
func drop(g *plan.Graph, id string) {
	for i := range g.Problems {
		p := &g.Problems[i]
		for _, r := range p.Refs {
			if r.To == id {
				p.Args = slices.DeleteFunc(slices.Clone(p.Args), func(a plan.Arg) bool { return a.Name == r.Arg && a.Kind == plan.Referring })
			}
		}
	}
}

// write writes a plan as a JSON list.
func write(g plan.Graph) string {
	var b strings.Builder
	b.WriteString("[\n")
	for i, p := range g.Problems {
		type task struct {
			ID      string                     `json:"id"`
			Request string                     `json:"request"`
			Parent  string                     `json:"parent,omitempty"`
			Tool    string                     `json:"tool,omitempty"`
			Args    map[string]json.RawMessage `json:"args,omitempty"`
			Needs   []string                   `json:"needs"`
		}
		t := task{ID: p.ID, Request: p.Request, Parent: p.ParentID, Tool: p.Tool, Needs: []string{}}
		if t.Request == "" {
			t.Request = p.ID
		}
		for _, a := range p.Args {
			if p.Tool == "" || a.Name == "" || strings.Contains(a.Name, " -> ") || a.Kind == plan.Referring {
				continue // what is used of others stands in needs
			}
			if t.Args == nil {
				t.Args = map[string]json.RawMessage{}
			}
			t.Args[a.Name] = a.JSON()
		}
		for _, e := range g.Edges {
			if e.To == p.ID && !slices.Contains(t.Needs, e.From) {
				t.Needs = append(t.Needs, e.From)
			}
		}
		line, err := json.Marshal(t)
		if err != nil {
			continue // texts and JSON always marshal
		}
		b.Write(line)
		if i < len(g.Problems)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]")
	return b.String()
}
