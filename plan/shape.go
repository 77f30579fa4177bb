package plan

import (
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// shapeReader reads a plan from one value. It returns nil if the value does not have its shape.
type shapeReader func(d *document, v *form.Value) *reading

// maxUnwrap bounds the depth of wrappers, such as {"result": {"plan": …}}, in which a plan is looked for.
const maxUnwrap = 4

// readShape makes a dialect of a shape. It tries every value of the text and the parts of wrappers.
func readShape(shape shapeReader) func(*document) *reading {
	return func(d *document) *reading { return readTrees(d, d.findTrees(), shape) }
}

// readScattered is readShape for lists whose items may also stand separately in the text, each in a fence or
// under a heading of its own.
func readScattered(shape shapeReader) func(*document) *reading {
	return func(d *document) *reading {
		r := readTrees(d, d.findTrees(), shape)
		if r != nil && len(r.graph.Problems) > 1 {
			return r
		}
		if t := gather(d.findTrees()); t != nil {
			if all := matchTree(d, t, shape); all != nil && len(all.graph.Problems) == len(t.Root.Items) {
				return all
			}
		}
		return r
	}
}

// gather makes one list of the objects that stand separately in the text, if they have the same keys.
func gather(trees []*form.Tree) *form.Tree {
	if len(trees) < 2 || len(trees) > 1000 {
		return nil
	}
	out := &form.Tree{Root: &form.Value{Kind: form.KindList, Off: trees[0].Root.Off}}
	for _, t := range trees {
		if t.Root.Kind != form.KindObject || len(t.Root.Fields) == 0 || t.Root.Fields[0].Key != trees[0].Root.Fields[0].Key {
			return nil
		}
		out.Root.Items = append(out.Root.Items, t.Root)
		out.Root.End = t.Root.End
		out.Faults = append(out.Faults, t.Faults...)
		out.Quirks += t.Quirks
		out.Python = out.Python || t.Python
		out.CutOff = out.CutOff || t.CutOff
	}
	return out
}

func readTrees(d *document, trees []*form.Tree, shape shapeReader) *reading {
	var found *reading
	plans := 0
	for _, t := range trees {
		var rs []*reading
		if r := matchTree(d, t, shape); r != nil {
			rs = append(rs, r)
		} else if t.Sequence {
			for _, p := range t.Parts() {
				if r := matchTree(d, p, shape); r != nil {
					rs = append(rs, r)
				}
			}
			if len(rs) == 1 && t.Joined() && rs[0].noPlan == nil {
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

// matchTree looks for the shape in t, outermost values first. It adds the faults of the text around the value
// that it finds.
func matchTree(d *document, t *form.Tree, shape shapeReader) *reading {
	level := []*form.Value{t.Root}
	seen := 0
	for depth := 0; depth <= maxUnwrap && len(level) > 0; depth++ {
		var next []*form.Value
		for _, v := range level {
			if v.IsScalar() {
				continue
			}
			seen++
			if seen > 2000 {
				return nil
			}
			if r := shape(d, v); r != nil {
				r.start, r.end, r.openEnded = v.Off, v.End, t.YAML
				if v.End == 0 {
					r.end = len(d.text)
				}
				r.addFaults(d, t, v)
				r.markOutside(d, t.Root)
				return r
			}
			for i := range v.Fields {
				next = append(next, v.Fields[i].Val)
			}
			// The elements of a list of objects are not wrappers.
			if v.Kind != form.KindList || len(v.Items) == 1 || !allObjects(v) {
				next = append(next, v.Items...)
			}
		}
		level = next
	}
	return nil
}

func allObjects(v *form.Value) bool {
	for _, it := range v.Items {
		if it.Kind != form.KindObject {
			return false
		}
	}
	return len(v.Items) > 0
}

// addFaults turns the faults of the tree that lie in or around v into diagnostics that name the nearest
// problem.
func (r *reading) addFaults(d *document, t *form.Tree, v *form.Value) {
	end := r.end
	if v == t.Root {
		end = len(d.text)
	}
	for _, f := range t.Faults {
		// Serious faults outside of v count, because they put the brackets around v in doubt.
		if v != t.Root && (f.Off < v.Off || f.Off > end) && !f.Serious {
			continue
		}
		element := f.Element
		near := r.nearest(d, f.Off)
		if near != "" {
			element = near
		}
		severity := Warning
		if f.Serious {
			severity = Error
		}
		r.diag(d, severity, Code(f.Code), f.Off, element, f.Message, f.Hint)
	}
	if t.CutOff {
		r.diag(d, Error, Truncated, len(d.text), r.nearest(d, len(d.text)), "the text ends in the middle of the plan: this problem may be incomplete, and what came after it is lost", "ask for the rest of the plan")
	}
	if t.Python {
		r.repair(d, PythonLiteral, v.Off, "read Python literals as JSON")
	} else if t.Quirks > 0 {
		r.repair(d, SyntaxTolerated, v.Off, "read what is almost JSON")
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
func itemID(v *form.Value) (string, bool) {
	for _, k := range idKeys {
		if x := v.Get(k); x.IsScalar() && x.Text() != "" {
			return strings.TrimSpace(x.Text()), true
		}
	}
	for _, k := range []string{"step", "task"} {
		if x := v.Get(k); x != nil && x.Kind == form.KindNumber {
			return x.Text(), true
		}
	}
	return "", false
}

// itemText returns the request of an item.
func itemText(v *form.Value) string {
	for _, k := range textKeys {
		if x := v.Get(k); x.IsScalar() && x.Kind != form.KindNumber && x.Text() != "" {
			return x.Text()
		}
	}
	return ""
}

// itemTool returns the tool that an item names, or "".
func itemTool(v *form.Value) string {
	if x := v.Get("tool", "toolname", "function"); x.IsScalar() {
		return x.Text()
	}
	return ""
}

// numberPrefix splits "1.2 text" into "1.2" and "text". The number is empty if there is none.
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
		// "3D model" and "2023年" have no step numbers; "1获取" and "1.1获取" do.
		if !strings.Contains(number, ".") {
			return "", s, false
		}
	}
	return number, trimmed, true
}

// addArgs appends the arguments of an item as typed values. It returns the references in them.
func (p *Problem) addArgs(d *document, v *form.Value) []Reference {
	if v == nil {
		return nil
	}
	var refs []Reference
	add := func(name string, x *form.Value) {
		if len(p.Args) >= maxArgs {
			return
		}
		found := findRefs(d, x, name)
		a := Arg{Name: name, Kind: Literal, Value: form.JSON(x)}
		if len(found) > 0 {
			a.Kind = Referring
		}
		p.Args = append(p.Args, a)
		refs = append(refs, found...)
	}
	if x := unpacked(d, v); x != nil {
		v = x
	}
	switch v.Kind {
	case form.KindObject, form.KindCall:
		for _, x := range v.Items {
			add("", x)
		}
		for _, f := range v.Fields {
			add(f.Key, f.Val)
		}
	case form.KindList:
		for _, x := range v.Items {
			if n, val := x.Get("name"), x.Get("value"); x.Kind == form.KindObject && len(x.Fields) == 2 && n.IsScalar() && val != nil {
				add(n.Text(), val)
				continue
			}
			add("", x)
		}
	default:
		if v.Kind != form.KindNull {
			add("", v)
		}
	}
	return refs
}

// maxUnpacked bounds the length of a string that is read as arguments.
const maxUnpacked = 10_000

// unpacked returns the JSON object that a string holds, or nil. OpenAI's form writes the arguments of a call
// this way. Every part of the object has the place of the string.
func unpacked(d *document, v *form.Value) *form.Value {
	s := strings.TrimSpace(v.Text())
	if v.Kind != form.KindString || v.Open || len(s) > maxUnpacked || !strings.HasPrefix(s, "{") || !json.Valid([]byte(s)) {
		return nil
	}
	t, _ := form.ValueAt(s, 0, d.limits.MaxDepth, true)
	if t == nil || t.Root.Kind != form.KindObject || t.CutOff {
		return nil
	}
	var move func(x *form.Value)
	move = func(x *form.Value) {
		x.Off, x.End = v.Off, v.End
		for _, y := range x.Items {
			move(y)
		}
		for i := range x.Fields {
			move(x.Fields[i].Val)
		}
	}
	move(t.Root)
	return t.Root
}
