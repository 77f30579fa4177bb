package plan

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readToolGraph reads a tool graph written as JSON, or one with its own keys written as YAML.
func readToolGraph(d *document) *reading {
	trees := d.findTrees()
	if indexFold(d.text, "task_nodes:") >= 0 || indexFold(d.text, "task_nodes\":") >= 0 {
		trees = append(trees[:len(trees):len(trees)], form.YAML(form.NewSource(d.text))...)
	}
	return readTrees(d, trees, toolGraph)
}

// toolGraph reads {"task_steps": […], "task_nodes": [{"task": tool, "arguments": …}], "task_links":
// [{"source", "target"}]} and the generic {"nodes": […], "edges": […]}. Problems are named by their tools, so
// two uses of a tool have the same name.
func toolGraph(d *document, v *form.Value) *reading {
	if v.Kind != form.KindObject {
		return nil
	}
	nodes, links := v.Get("tasknodes", "nodes"), v.Get("tasklinks", "edges", "links")
	strict := v.Get("tasknodes") != nil || v.Get("tasklinks") != nil
	if nodes == nil || nodes.Kind != form.KindList || !strict && (links == nil || links.Kind != form.KindList) {
		return nil
	}
	if !strict && !looksLikeNodes(nodes) {
		return nil
	}
	r := &reading{edgesStated: true, strict: strict}
	r.addNodes(d, nodes, v.Get("tasksteps", "steps"), strict)
	switch {
	case links == nil:
		r.diag(d, Error, MissingField, v.Off, "task_links", "the plan has nodes and no links: its dependencies are not known", "write task_links, empty if there are none")
	case links.Kind == form.KindList:
		r.addLinks(d, links)
	case links.Kind != form.KindNull:
		r.diag(d, Error, Malformed, links.Off, "task_links", "the links are no list", "write a list of {source, target}")
	}
	return r
}

// addNodes adds the problems of the nodes. steps, which may be nil, holds their requests if there is one for
// each node.
func (r *reading) addNodes(d *document, nodes, steps *form.Value, strict bool) {
	if steps != nil && steps.Kind == form.KindList && strict && len(steps.Items) != len(nodes.Items) {
		r.diag(d, Warning, Contradiction, steps.Off, "task_steps", "there are "+strconv.Itoa(len(steps.Items))+" steps and "+strconv.Itoa(len(nodes.Items))+" nodes", "write one node per step")
	}
	for i, n := range nodes.Items {
		if n.Kind == form.KindBare && !strings.ContainsFunc(n.Text(), unicode.IsLetter) {
			r.diag(d, Error, Malformed, n.Off, form.Clip(n.Text()), "this is no node", "write {task: name}")
			continue
		}
		id := nodeID(n, strict)
		if id == "" {
			r.diag(d, Error, MissingField, n.Off, "node "+strconv.Itoa(i+1), "the node has no name", "name its tool")
			continue
		}
		p := d.problem(id, "", n.Off)
		if steps != nil && steps.Kind == form.KindList && len(steps.Items) == len(nodes.Items) {
			p.Request = steps.Items[i].Text()
			if steps.Items[i].Kind == form.KindObject {
				p.Request = itemText(steps.Items[i])
				p.addFields(steps.Items[i])
			}
			r.owned = append(r.owned, steps.Items[i].Off)
		}
		var args *form.Value
		if n.Kind == form.KindObject {
			args = n.Get(argKeys...)
			if p.Request == "" {
				p.Request = itemText(n)
			}
		}
		p.Refs = p.addArgs(d, args)
		p.Tool = itemTool(n)
		p.addFields(n, args)
		r.graph.Problems = append(r.graph.Problems, p)
	}
}

// nodeID returns the id of a node, or "". With strict the name of its tool takes precedence over an id.
func nodeID(n *form.Value, strict bool) string {
	if n.Kind != form.KindObject {
		return n.Text()
	}
	id, _ := itemID(n)
	if id != "" && !strict {
		return id
	}
	for _, k := range []string{"task", "tool", "name", "label", "title"} {
		if x := n.Get(k); x.IsScalar() && x.Text() != "" {
			return x.Text()
		}
	}
	return id
}

// addLinks adds an edge for each link.
func (r *reading) addLinks(d *document, links *form.Value) {
	for i, l := range links.Items {
		from, to := linkEnds(l)
		if from == "" || to == "" {
			r.diag(d, Error, Malformed, l.Off, "link "+strconv.Itoa(i+1), "the link does not name its two ends: "+form.Clip(form.JSON(l)), "write {source, target} with one name each")
			continue
		}
		r.edge(d, from, to, Stated, l.Off)
		r.addEdgeText(l, from, to)
	}
}

func looksLikeNodes(v *form.Value) bool {
	for _, n := range v.Items {
		if n.IsScalar() {
			continue
		}
		if _, ok := itemID(n); !ok && itemText(n) == "" {
			return false
		}
	}
	return len(v.Items) > 0
}

// linkEnds returns the two ends of a link in any of its forms.
func linkEnds(l *form.Value) (from, to string) {
	switch l.Kind {
	case form.KindObject:
		for _, pair := range [][2]string{{"source", "target"}, {"from", "to"}, {"before", "after"}, {"start", "end"}, {"predecessor", "successor"}, {"src", "dst"}, {"parent", "child"}} {
			a, b := l.Get(pair[0]), l.Get(pair[1])
			if a != nil && b != nil {
				return endText(a), endText(b)
			}
		}
	case form.KindList:
		if len(l.Items) == 2 {
			return endText(l.Items[0]), endText(l.Items[1])
		}
	case form.KindString, form.KindBare:
		if parts, back := splitArrows(l.Str); len(back) == 1 {
			if from, to = bareID(parts[0]), bareID(parts[1]); back[0] {
				return to, from
			}
			return from, to
		}
	}
	return "", ""
}

func endText(v *form.Value) string {
	if v.Kind == form.KindObject {
		if id, ok := itemID(v); ok {
			return id
		}
		return itemText(v)
	}
	return v.Text()
}
