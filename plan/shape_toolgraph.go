package plan

import (
	"strconv"
	"strings"
	"unicode"
)

// toolGraph reads {"task_steps": […], "task_nodes": [{"task": tool, "arguments": …}], "task_links": [{"source", "target"}]}
// and the generic {"nodes": […], "edges": […]}. Problems are named by their tools, so a tool used twice is one name.
func toolGraph(d *document, v *value) *reading {
	if v.kind != kindObject {
		return nil
	}
	nodes, links := v.get("tasknodes", "nodes"), v.get("tasklinks", "edges", "links")
	strict := v.get("tasknodes") != nil || v.get("tasklinks") != nil
	if nodes == nil || nodes.kind != kindList || !strict && (links == nil || links.kind != kindList) {
		return nil
	}
	if !strict && !looksLikeNodes(nodes) {
		return nil
	}
	r := &reading{edgesStated: true}
	steps := v.get("tasksteps", "steps")
	if steps != nil && steps.kind == kindList && strict && len(steps.items) != len(nodes.items) {
		r.diag(d, Warning, Contradiction, steps.off, "task_steps", "there are "+strconv.Itoa(len(steps.items))+" steps and "+strconv.Itoa(len(nodes.items))+" nodes", "write one node per step")
	}
	for i, n := range nodes.items {
		id := ""
		var args *value
		switch {
		case n.kind == kindObject:
			id, _ = itemID(n)
			if id == "" || strict {
				for _, k := range []string{"task", "tool", "name", "label", "title"} {
					if x := n.get(k); x.isScalar() && x.text() != "" {
						id = x.text()
						break
					}
				}
			}
			args = n.get(argKeys...)
		case n.isScalar():
			if id = n.text(); n.kind == kindBare && !strings.ContainsFunc(id, unicode.IsLetter) {
				r.diag(d, Error, Malformed, n.off, clip(id), "this is no node", "write {task: name}")
				continue
			}
		}
		if id == "" {
			r.diag(d, Error, MissingField, n.off, "node "+strconv.Itoa(i+1), "the node has no name", "name its tool")
			continue
		}
		p := d.problem(id, "", n.off)
		if steps != nil && steps.kind == kindList && len(steps.items) == len(nodes.items) {
			p.Request = steps.items[i].text()
			if steps.items[i].kind == kindObject {
				p.Request = itemText(steps.items[i])
			}
		}
		if p.Request == "" && n.kind == kindObject {
			p.Request = itemText(n)
		}
		p.Refs = p.addArgs(d, args)
		r.graph.Problems = append(r.graph.Problems, p)
	}
	if links == nil {
		r.diag(d, Error, MissingField, v.off, "task_links", "the plan has nodes and no links: its dependencies are not known", "write task_links, empty if there are none")
		return r
	}
	if links.kind != kindList {
		if links.kind != kindNull {
			r.diag(d, Error, Malformed, links.off, "task_links", "the links are no list", "write a list of {source, target}")
		}
		return r
	}
	for i, l := range links.items {
		from, to := linkEnds(l)
		if from == "" || to == "" {
			r.diag(d, Error, Malformed, l.off, "link "+strconv.Itoa(i+1), "the link does not name its two ends: "+clip(toJSON(l)), "write {source, target} with one name each")
			continue
		}
		r.edge(d, from, to, Stated, l.off)
	}
	return r
}

func looksLikeNodes(v *value) bool {
	for _, n := range v.items {
		if n.isScalar() {
			continue
		}
		if _, ok := itemID(n); !ok && itemText(n) == "" {
			return false
		}
	}
	return len(v.items) > 0
}

// linkEnds returns the two ends of a link in any of its forms.
func linkEnds(l *value) (from, to string) {
	switch l.kind {
	case kindObject:
		for _, pair := range [][2]string{{"source", "target"}, {"from", "to"}, {"before", "after"}, {"start", "end"}, {"predecessor", "successor"}, {"src", "dst"}, {"parent", "child"}} {
			a, b := l.get(pair[0]), l.get(pair[1])
			if a != nil && b != nil {
				return endText(a), endText(b)
			}
		}
	case kindList:
		if len(l.items) == 2 {
			return endText(l.items[0]), endText(l.items[1])
		}
	case kindString, kindBare:
		if es := arrowEdges(l.str, arrowNames{}); len(es) == 1 {
			return es[0][0], es[0][1]
		}
	}
	return "", ""
}

func endText(v *value) string {
	if v.kind == kindObject {
		if id, ok := itemID(v); ok {
			return id
		}
		return itemText(v)
	}
	return v.text()
}
