package plan

import (
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// stepRelations reads {"substeps": [{"stepId", "step"}], "dependencies": [{"subtask1", "relation",
// "subtask2"}]}. The steps are in one list and their relations in another. A relation names steps by id, by
// text or by position.
func stepRelations(d *document, v *form.Value) *reading {
	if v.Kind != form.KindObject {
		return nil
	}
	steps := v.Get("substeps", "steps", "subtasks", "tasks", "problems")
	rels := v.Get("dependencies", "relations", "edges", "links", "constraints", "order", "problemgraph", "graph")
	if steps == nil || steps.Kind != form.KindList || len(steps.Items) == 0 || rels == nil || rels.Kind != form.KindList {
		return nil
	}
	for _, s := range steps.Items {
		if s.Kind == form.KindObject && s.Get(depKeys...) != nil {
			return nil
		}
		if s.Kind != form.KindObject && s.Kind != form.KindString {
			return nil
		}
	}
	r := &reading{edgesStated: true}
	names := newNameIndex()
	for i, s := range steps.Items {
		var id, text string
		if s.Kind == form.KindObject {
			id, _ = itemID(s)
			if id == "" && s.Open && i > 0 {
				continue // cut off before it has an id: it names nothing
			}
			text = itemText(s)
		} else {
			id, text = numberPrefix(s.Str)
		}
		r.unnamed = id == ""
		if r.unnamed {
			id = strconv.Itoa(i + 1)
		}
		p := d.problem(id, text, s.Off)
		if s.Kind == form.KindObject {
			args := s.Get(argKeys...)
			p.Refs = p.addArgs(d, args)
			p.Tool = itemTool(s)
			p.addFields(s, args)
		}
		r.graph.Problems = append(r.graph.Problems, p)
		names.add(id, text)
	}
	for i, l := range rels.Items {
		from, to := relationEnds(l)
		if from == "" || to == "" {
			r.diag(d, Error, Malformed, l.Off, "dependency "+strconv.Itoa(i+1), "the dependency does not name two steps: "+form.Clip(form.JSON(l)), "name both steps")
			continue
		}
		ends := [2]string{from, to}
		relation := l.Get("relation", "type", "kind")
		sense := direction(l)
		if a, b := linkEnds(l); sense == 0 && a != "" && b != "" {
			sense, relation = 1, nil // the names of the ends give the direction
		}
		switch sense {
		case -1:
			from, to = to, from
		case 0:
			relation = nil
			r.diag(d, Warning, Ambiguous, l.Off, form.Clip(from+" -> "+to), "the relation does not say which step comes first; the first one named was taken", `write "must be done before"`)
		}
		used := []*form.Value{relation}
		for _, f := range l.Fields {
			if x := endText(f.Val); len(used) < 5 && (x == ends[0] || x == ends[1]) {
				used = append(used, f.Val)
			}
		}
		from, to = names.resolve(d, r, from, l.Off), names.resolve(d, r, to, l.Off)
		r.edge(d, from, to, Stated, l.Off)
		r.addEdgeText(l, from, to, used...)
	}
	return r
}

func relationEnds(l *form.Value) (from, to string) {
	if l.Kind == form.KindObject {
		for _, pair := range [][2]string{{"subtask1", "subtask2"}, {"step1", "step2"}, {"task1", "task2"}, {"first", "second"}} {
			a, b := l.Get(pair[0]), l.Get(pair[1])
			if a != nil && b != nil {
				return endText(a), endText(b)
			}
		}
	}
	return linkEnds(l)
}

// direction returns the order of the ends of a relation: 1 if the first comes before the second, -1 for the
// reverse, 0 if unknown.
func direction(l *form.Value) int {
	x := l.Get("relation", "type", "kind")
	if !x.IsScalar() || x.Text() == "" {
		return 1
	}
	t := strings.ToLower(x.Text())
	switch {
	case strings.Contains(t, "before"), strings.Contains(t, "precede"), strings.Contains(t, "then"), strings.Contains(t, "enables"), strings.Contains(t, "finish"), strings.Contains(t, "block") && !strings.Contains(t, "blocked"):
		return 1
	case strings.Contains(t, "after"), strings.Contains(t, "depends"), strings.Contains(t, "requires"), strings.Contains(t, "follow"), strings.Contains(t, "blocked"):
		return -1
	}
	return 0
}

// nameIndex finds problems by the ways in which a text refers to them.
type nameIndex struct {
	ids   map[string]int    // id -> number of problems with it
	texts map[string]string // normalized text -> id, "" when two problems have it
	exact map[string]string
}

func newNameIndex() *nameIndex {
	return &nameIndex{ids: map[string]int{}, texts: map[string]string{}, exact: map[string]string{}}
}

func (n *nameIndex) add(id, text string) {
	n.ids[id]++
	if text == "" {
		return
	}
	put := func(m map[string]string, k string) {
		if old, ok := m[k]; ok && old != id {
			m[k] = ""
			return
		}
		m[k] = id
	}
	put(n.exact, text)
	put(n.texts, normalizeText(text))
}

// normalizeText drops case and punctuation at the ends, and reduces white space to single spaces.
func normalizeText(s string) string {
	s = strings.NewReplacer("“", `"`, "”", `"`, "‘", "'", "’", "'").Replace(s)
	return strings.ToLower(strings.Trim(strings.Join(strings.Fields(s), " "), " .,;:!?。，；：！？\"'`*"))
}

// resolve returns the id that name refers to, or name itself if it is unknown.
func (n *nameIndex) resolve(d *document, r *reading, name string, off int) string {
	name = strings.TrimSpace(name)
	if n.ids[name] > 0 {
		return name
	}
	if id, ok := n.exact[name]; ok {
		if id == "" {
			r.diag(d, Error, Ambiguous, off, form.Clip(name), "several steps have this text", "refer to steps by their ids")
			return name
		}
		return id
	}
	if id, ok := n.texts[normalizeText(name)]; ok && id != "" {
		r.diag(d, Warning, Ambiguous, off, form.Clip(name), "read as step "+id+", whose text differs in case or punctuation only", "refer to steps by their ids")
		return id
	}
	// "Step 2", "task_2", "#2", "2. text", "$2": the number is the id.
	if id := bareNumber(name); id != "" && n.ids[id] > 0 {
		r.diag(d, Warning, Ambiguous, off, form.Clip(name), "read as step "+id, "refer to steps by their ids")
		return id
	}
	return name
}

func bareNumber(s string) string {
	t := strings.ToLower(strings.TrimSpace(s))
	for _, w := range []string{"step", "task", "node", "problem", "subtask", "#", "$", "s", "t"} {
		if rest, ok := strings.CutPrefix(t, w); ok {
			t = strings.TrimLeft(rest, " _-#:")
			break
		}
	}
	num, rest, ok := cutNumber(t)
	if !ok || rest != "" && len(t) == len(s) && !strings.HasPrefix(t, num+".") && !strings.HasPrefix(t, num+":") {
		return ""
	}
	return num
}

func isNoDependency(s string) bool {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "", "none", "null", "n/a", "na", "nil", "[]", "no", "-", "无":
		return true
	}
	return false
}
