package view

import (
	"fmt"
	"slices"
	"strings"
)

// Diagram is a graph to draw.
type Diagram struct {
	Nodes []DiagramNode
	Edges []DiagramEdge
}

// DiagramNode is a box; Group is the id of the box that holds it.
type DiagramNode struct{ ID, Label, Group string }

// DiagramEdge is an arrow; a dashed one is drawn for edges that nobody stated.
type DiagramEdge struct {
	From, To, Label string
	Dashed          bool
}

// Mermaid draws the diagram as a Mermaid flowchart. Ids and labels may be any text.
func (d Diagram) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	ids, groups := d.index()
	escape := strings.NewReplacer(`"`, "#quot;", "#", "#35;", "&", "#amp;", "<", "#lt;", ">", "#gt;", "`", "'")
	var draw func(group, indent string)
	draw = func(group, indent string) {
		for _, n := range d.Nodes {
			if n.Group != group {
				continue
			}
			if groups[n.ID] {
				fmt.Fprintf(&b, "%ssubgraph %s[\"%s\"]\n", indent, ids[n.ID], escape.Replace(OneLine(n.Label, 60)))
				draw(n.ID, indent+"  ")
				fmt.Fprintf(&b, "%send\n", indent)
				continue
			}
			fmt.Fprintf(&b, "%s%s[\"%s\"]\n", indent, ids[n.ID], escape.Replace(OneLine(n.Label, 60)))
		}
	}
	draw("", "  ")
	for _, e := range d.Edges {
		arrow := "-->"
		if e.Dashed {
			arrow = "-.->"
		}
		if e.Label != "" {
			arrow += "|\"" + escape.Replace(OneLine(e.Label, 40)) + "\"|"
		}
		fmt.Fprintf(&b, "  %s %s %s\n", ids[e.From], arrow, ids[e.To])
	}
	return b.String()
}

// Dot draws the diagram for Graphviz.
func (d Diagram) Dot() string {
	var b strings.Builder
	b.WriteString("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n")
	ids, groups := d.index()
	quote := func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(OneLine(s, 60)) + `"`
	}
	var draw func(group, indent string)
	draw = func(group, indent string) {
		for _, n := range d.Nodes {
			if n.Group != group {
				continue
			}
			if groups[n.ID] {
				// A cluster cannot be an arrow's end, so an invisible point in it stands for it.
				fmt.Fprintf(&b, "%ssubgraph cluster_%s {\n%s  label=%s;\n%s  %s [shape=point style=invis];\n", indent, ids[n.ID], indent, quote(n.Label), indent, ids[n.ID])
				draw(n.ID, indent+"  ")
				b.WriteString(indent + "}\n")
				continue
			}
			fmt.Fprintf(&b, "%s%s [label=%s];\n", indent, ids[n.ID], quote(n.Label))
		}
	}
	draw("", "  ")
	for _, e := range d.Edges {
		var attrs []string
		if e.Label != "" {
			attrs = append(attrs, "label="+quote(e.Label))
		}
		if e.Dashed {
			attrs = append(attrs, "style=dashed")
		}
		tail := ""
		if len(attrs) > 0 {
			tail = " [" + strings.Join(attrs, " ") + "]"
		}
		fmt.Fprintf(&b, "  %s -> %s%s;\n", ids[e.From], ids[e.To], tail)
	}
	b.WriteString("}\n")
	return b.String()
}

// index gives every id a name that both languages accept, ends of edges that are no nodes included, and says
// which nodes hold others. A group that is unknown, or that would hold itself, is left out.
func (d *Diagram) index() (ids map[string]string, groups map[string]bool) {
	ids, groups = map[string]string{}, map[string]bool{}
	name := func(id string) {
		if _, ok := ids[id]; !ok {
			ids[id] = fmt.Sprintf("n%d", len(ids)+1)
		}
	}
	d.Nodes = slices.Clone(d.Nodes)
	group := make(map[string]*string, len(d.Nodes))
	for i, n := range d.Nodes {
		name(n.ID)
		group[n.ID] = &d.Nodes[i].Group
	}
	for i, n := range d.Nodes {
		if group[n.Group] == nil {
			d.Nodes[i].Group = ""
			continue
		}
		up := n.Group
		for steps := 0; up != "" && up != n.ID && group[up] != nil && steps < len(d.Nodes); steps++ {
			up = *group[up]
		}
		if up == n.ID {
			d.Nodes[i].Group = ""
		}
	}
	for _, n := range d.Nodes {
		if n.Group != "" {
			groups[n.Group] = true
		}
	}
	for _, e := range d.Edges {
		for _, id := range []string{e.From, e.To} {
			if group[id] == nil {
				group[id] = new(string)
				d.Nodes = append(d.Nodes, DiagramNode{ID: id, Label: id + " (unknown)"})
				name(id)
			}
		}
	}
	return ids, groups
}
