package plan

import (
	"strings"
)

// shapeReader reads a plan from one value. It returns nil when the value is not of its shape.
type shapeReader func(d *document, v *value) *reading

// maxUnwrap bounds how deep inside wrappers, such as {"result": {"plan": …}}, a plan is looked for.
const maxUnwrap = 4

// readShape makes a dialect of a shape: it looks at every value of the text and, within wrappers, at their parts.
func readShape(shape shapeReader) func(*document) *reading {
	return func(d *document) *reading { return readTrees(d, d.findTrees(), shape) }
}

// readScattered is readShape for lists whose items may also stand one by one in the text, each in a fence or under a
// heading of its own.
func readScattered(shape shapeReader) func(*document) *reading {
	return func(d *document) *reading {
		r := readTrees(d, d.findTrees(), shape)
		if r != nil && len(r.graph.Problems) > 1 {
			return r
		}
		if t := gather(d.findTrees()); t != nil {
			if all := matchTree(d, t, shape); all != nil && len(all.graph.Problems) == len(t.root.items) {
				return all
			}
		}
		return r
	}
}

// gather makes one list of the objects that stand one by one in the text, if they have the same keys.
func gather(trees []*tree) *tree {
	if len(trees) < 2 || len(trees) > 1000 {
		return nil
	}
	out := &tree{root: &value{kind: kindList, off: trees[0].root.off}}
	for _, t := range trees {
		if t.root.kind != kindObject || len(t.root.fields) == 0 || t.root.fields[0].key != trees[0].root.fields[0].key {
			return nil
		}
		out.root.items = append(out.root.items, t.root)
		out.root.end = t.root.end
		out.faults = append(out.faults, t.faults...)
		out.quirks += t.quirks
		out.python = out.python || t.python
		out.cutOff = out.cutOff || t.cutOff
	}
	return out
}

func readTrees(d *document, trees []*tree, shape shapeReader) *reading {
	var found *reading
	plans := 0
	for _, t := range trees {
		var rs []*reading
		if r := matchTree(d, t, shape); r != nil {
			rs = append(rs, r)
		} else if t.sequence {
			for _, p := range t.parts() {
				if r := matchTree(d, p, shape); r != nil {
					rs = append(rs, r)
				}
			}
			if len(rs) == 1 && t.joined() && rs[0].noPlan == nil {
				rs[0].diag(d, Error, Unbalanced, rs[0].end, rs[0].nearest(d, rs[0].end), "after the plan there is more data that does not fit: a bracket may close it too early", "check the brackets")
			}
		}
		for _, r := range rs {
			switch {
			case found == nil || found.noPlan != nil:
				found = r
			case r.noPlan != nil:
			case plans < 8:
				found = pick(d, found, r)
			}
			plans++
		}
	}
	return found
}

// matchTree looks for the shape in t, outermost values first, and adds the faults of the text around what it finds.
func matchTree(d *document, t *tree, shape shapeReader) *reading {
	level := []*value{t.root}
	seen := 0
	for depth := 0; depth <= maxUnwrap && len(level) > 0; depth++ {
		var next []*value
		for _, v := range level {
			if v.isScalar() {
				continue
			}
			seen++
			if seen > 2000 {
				return nil
			}
			if r := shape(d, v); r != nil {
				r.start, r.end = v.off, v.end
				if v.end == 0 {
					r.end = len(d.text)
				}
				r.adopt(d, t, v)
				return r
			}
			for i := range v.fields {
				next = append(next, v.fields[i].val)
			}
			// The elements of a list of objects are not wrappers.
			if v.kind != kindList || len(v.items) == 1 || !allObjects(v) {
				next = append(next, v.items...)
			}
		}
		level = next
	}
	return nil
}

func allObjects(v *value) bool {
	for _, it := range v.items {
		if it.kind != kindObject {
			return false
		}
	}
	return len(v.items) > 0
}

// adopt turns the faults of the tree that lie in or around v into diagnostics that name the nearest problem.
func (r *reading) adopt(d *document, t *tree, v *value) {
	end := r.end
	if v == t.root {
		end = len(d.text)
	}
	for _, f := range t.faults {
		// Faults outside of v count when the brackets around v are in doubt.
		if v != t.root && (f.off < v.off || f.off > end) && f.sev != Error {
			continue
		}
		element := f.element
		near := r.nearest(d, f.off)
		if near != "" {
			element = near
		}
		r.diag(d, f.sev, f.code, f.off, element, f.message, f.hint)
	}
	if t.cutOff {
		r.diag(d, Error, Truncated, len(d.text), r.nearest(d, len(d.text)), "the text ends in the middle of the plan: this problem may be incomplete, and what came after it is lost", "ask for the rest of the plan")
	}
	if t.python {
		r.repair(d, PythonLiteral, v.off, "read Python literals as JSON")
	} else if t.quirks > 0 {
		r.repair(d, SyntaxTolerated, v.off, "read what is almost JSON")
	}
}

// nearest returns the id of the last problem that starts at or before off.
func (r *reading) nearest(d *document, off int) string {
	line, col := d.place(off)
	id := ""
	for i := range r.graph.Problems {
		p := &r.graph.Problems[i]
		if p.Line > line || p.Line == line && p.Column > col {
			break
		}
		id = p.ID
	}
	return id
}

var (
	idKeys   = []string{"id", "stepid", "taskid", "nodeid", "problemid", "stepnumber", "tasknumber", "stepno", "number", "idx", "index", "num", "no"}
	textKeys = []string{"instruction", "description", "request", "nodestateinstruction", "step", "task", "title", "content", "action", "goal", "objective", "text", "name", "label", "summary", "details", "tool", "function"}
	depKeys  = []string{"dependenttaskids", "dependson", "dependencies", "dependency", "deps", "dep", "dependents", "dependencyids", "prerequisites", "prerequisite", "predecessors", "predecessor", "needs", "requires", "blockedby", "waitsfor", "after", "parents", "dependentids", "dependenton", "previoussteps", "parentids", "dependencytaskids", "dependsontasks", "dependenttasks", "depends", "prereqs", "prereq", "upstream", "upstreamtasks", "runafter", "waitfor", "requiredsteps", "requirestasks", "previoustasks", "previous", "inputsfrom"}
	nextKeys = []string{"next", "nextsteps", "nexttasks", "successors", "successor", "unlocks", "blocks", "leadsto", "downstream"}
	subKeys  = []string{"subtasks", "substeps", "children", "subproblems", "steps", "tasks"}
	argKeys  = []string{"args", "arguments", "param", "params", "parameters", "input", "inputs", "kwargs", "toolinput"}
)

// itemID returns the id that an item states, and whether it does.
func itemID(v *value) (string, bool) {
	for _, k := range idKeys {
		if x := v.get(k); x.isScalar() && x.text() != "" {
			return strings.TrimSpace(x.text()), true
		}
	}
	for _, k := range []string{"step", "task"} {
		if x := v.get(k); x != nil && x.kind == kindNumber {
			return x.text(), true
		}
	}
	return "", false
}

// itemText returns what an item asks for.
func itemText(v *value) string {
	for _, k := range textKeys {
		if x := v.get(k); x.isScalar() && x.kind != kindNumber && x.text() != "" {
			return x.text()
		}
	}
	return ""
}

// numberPrefix splits "1.2 text" into "1.2" and "text"; the number is empty if there is none.
func numberPrefix(s string) (string, string) {
	t := strings.TrimSpace(s)
	for _, w := range []string{"Step", "Task", "步骤", "任务"} {
		if hasFold(t, w) {
			rest := strings.TrimLeft(t[len(w):], " #:")
			if rest != "" && '0' <= rest[0] && rest[0] <= '9' {
				t = rest
				break
			}
		}
	}
	n, rest, ok := cutNumber(t)
	if !ok {
		return "", s
	}
	return n, rest
}

// cutNumber splits a leading decimal number such as 1, 1., 1), 1.2 or 1.2.3 from s.
func cutNumber(s string) (number, rest string, ok bool) {
	i := 0
	for {
		j := i
		for j < len(s) && '0' <= s[j] && s[j] <= '9' {
			j++
		}
		if j == i || j-i > 6 {
			break
		}
		number = s[:j]
		i = j
		if i < len(s) && s[i] == '.' && i+1 < len(s) && '0' <= s[i+1] && s[i+1] <= '9' {
			i++
			continue
		}
		break
	}
	if number == "" {
		return "", s, false
	}
	rest = s[len(number):]
	mark := false
	for _, m := range []string{".", ")", ":", "、", "．", "：", "）"} {
		if strings.HasPrefix(rest, m) {
			rest, mark = rest[len(m):], true
			break
		}
	}
	trimmed := strings.TrimLeft(rest, " \t\u00a0\u3000")
	if !mark && trimmed == rest && rest != "" {
		// "3D model" and "2023年" are no numbers of steps; "1获取" and "1.1获取" are.
		if !strings.Contains(number, ".") {
			return "", s, false
		}
	}
	return number, trimmed, true
}

// args lists an item's arguments as typed values and the references in them.
func (p *Problem) addArgs(d *document, v *value) []Reference {
	if v == nil {
		return nil
	}
	var refs []Reference
	add := func(name string, x *value) {
		if len(p.Args) >= 1000 {
			return
		}
		found := findRefs(d, x, name)
		a := Arg{Name: name, Kind: Literal, Value: toJSON(x)}
		if len(found) > 0 {
			a.Kind = Referring
		}
		p.Args = append(p.Args, a)
		refs = append(refs, found...)
	}
	switch v.kind {
	case kindObject, kindCall:
		for _, x := range v.items {
			add("", x)
		}
		for _, f := range v.fields {
			add(f.key, f.val)
		}
	case kindList:
		for _, x := range v.items {
			if n, val := x.get("name"), x.get("value"); x.kind == kindObject && len(x.fields) == 2 && n.isScalar() && val != nil {
				add(n.text(), val)
				continue
			}
			add("", x)
		}
	default:
		if v.kind != kindNull {
			add("", v)
		}
	}
	return refs
}
