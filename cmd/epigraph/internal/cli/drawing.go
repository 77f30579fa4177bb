package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// drawGraph prints a graph as a Mermaid flowchart or for Graphviz, or as JSON.
func (e *env) drawGraph(g *graphv1.Graph, dot bool) error {
	if e.json {
		return printJSON(e.io.Out, g)
	}
	model, err := graphpb.FromProto(g)
	if err != nil {
		return err
	}
	var d drawing
	d.graph(model, "", 0)
	text := d.Mermaid()
	if dot {
		text = d.Dot()
	}
	_, err = fmt.Fprint(e.io.Out, text)
	return err
}

// drawing is a diagram of a graph. A team, the body of a map and a workflow that stands in the text are boxes
// around what is in them.
type drawing struct{ view.Diagram }

// maxDrawn is how deep graphs within graphs are drawn.
const maxDrawn = 16

// graph draws a graph within a box, whose id is also before the ids of the nodes.
func (d *drawing) graph(g *workgraph.Graph, box string, deep int) {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		id := boxed(box, n.ID)
		d.box(id, n.ID+": "+n.Actor, box)
		d.inside(n.Named, id, deep)
	}
	for _, x := range g.Edges {
		d.Edges = append(d.Edges, view.DiagramEdge{From: boxed(box, x.From), To: boxed(box, x.To), Label: x.When, Dashed: x.Kind == workgraph.BackEdge})
	}
}

func boxed(box, id string) string {
	if box == "" {
		return id
	}
	return box + "/" + id
}

func (d *drawing) box(id, label, in string) {
	d.Nodes = append(d.Nodes, view.DiagramNode{ID: id, Label: label, Group: in})
}

// inside draws the graph or the team that the arguments of an actor have.
func (d *drawing) inside(named map[string]json.RawMessage, box string, deep int) {
	if deep >= maxDrawn {
		return
	}
	if raw := named["graph"]; raw != nil {
		if g, err := workgraph.Decode(raw); err == nil {
			d.graph(g, box, deep+1)
		}
	}
	if raw := named["team"]; raw != nil {
		var t team.Team
		if json.Unmarshal(raw, &t) == nil {
			d.team(&t, box, deep+1)
		}
	}
}

// team draws who speaks after whom and who hears whom. What a member may choose is dashed.
func (d *drawing) team(t *team.Team, box string, deep int) {
	arrow := func(from, to, label string, dashed bool) {
		for _, end := range []string{from, to} {
			if id := boxed(box, end); !slices.ContainsFunc(d.Nodes, func(n view.DiagramNode) bool { return n.ID == id }) {
				d.box(id, end, box)
			}
		}
		d.Edges = append(d.Edges, view.DiagramEdge{From: boxed(box, from), To: boxed(box, to), Label: label, Dashed: dashed})
	}
	for i := range t.Members {
		m := &t.Members[i]
		d.box(boxed(box, m.Name), m.Name+": "+performer(m), box)
		d.inside(m.Named, boxed(box, m.Name), deep)
	}
	for _, name := range t.Start {
		arrow(team.Input, name, "", false)
	}
	for _, x := range t.Transitions {
		label := ""
		if x.When != nil {
			label = x.When.String()
		}
		arrow(x.From, x.To, label, false)
	}
	if t.Choose != nil {
		for i := range t.Members {
			arrow("choose", t.Members[i].Name, "", true)
		}
	}
	for _, x := range t.Routes {
		for _, from := range x.From {
			arrow(from, x.To, "hears", true)
		}
	}
	for i := range t.Members {
		for _, x := range handoffs(&t.Members[i]) {
			if slices.ContainsFunc(t.Transitions, func(y team.Transition) bool { return y.From == t.Members[i].Name && y.To == x.to }) {
				continue // it is drawn
			}
			arrow(t.Members[i].Name, x.to, x.by, true)
		}
	}
}

// performer says who does what a member does.
func performer(m *team.Member) string {
	switch m.Kind {
	case team.Human:
		return "a person"
	case team.Workflow:
		return "a workflow"
	}
	return m.Actor
}

// handoff is a signal by which a member hands over.
type handoff struct{ by, to string }

// handoffs are those of a member, in the order of the names of the signals.
func handoffs(m *team.Member) []handoff {
	var out []handoff
	for _, name := range slices.Sorted(maps.Keys(m.Signals)) {
		s := m.Signals[name]
		if s.Handoff != "" {
			out = append(out, handoff{name, s.Handoff})
		}
		if s.Ask == nil {
			continue
		}
		to := slices.Sorted(maps.Values(s.Ask.To))
		for _, member := range slices.Compact(to) {
			out = append(out, handoff{name, member})
		}
	}
	return slices.DeleteFunc(out, func(x handoff) bool { return strings.TrimSpace(x.to) == "" })
}
