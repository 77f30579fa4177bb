package plan

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// taskList reads a list of tasks that each name their dependencies: [{"task_id", "dependent_task_ids"}],
// [{"id", "dep", "args"}], {"steps": [{"step_number", "depends_on"}]}. A dependency is an id, a position, a
// name or a text.
func taskList(d *document, v *form.Value) *reading {
	items := v.Items
	if v.Kind == form.KindObject || v.Kind == form.KindCall {
		inner := v.Get("steps", "tasks", "plan", "subtasks", "tasklist", "todo", "todos", "problems", "nodes", "actions", "jobs", "workflow")
		if inner != nil && inner.Kind == form.KindObject {
			if list := keyedTasks(inner, true); list != nil {
				inner = list
			}
		} else if inner == nil {
			inner = keyedTasks(v, false)
		}
		if inner == nil || inner.Kind != form.KindList {
			if v.Get(depKeys...) == nil || itemText(v) == "" {
				return nil
			}
			if _, ok := itemID(v); !ok {
				return nil
			}
			items = []*form.Value{v} // a plan of one task, or the rest of a damaged one
		} else {
			items = inner.Items
		}
	}
	if len(items) == 0 {
		return nil
	}
	deps, objects, named := 0, 0, 0
	for _, it := range items {
		if it.Kind != form.KindObject && it.Kind != form.KindCall {
			if it.IsScalar() {
				return nil
			}
			continue
		}
		objects++
		if _, ok := itemID(it); ok || itemText(it) != "" {
			named++
		}
		if it.Get(depKeys...) != nil || it.Get(nextKeys...) != nil {
			deps++
		}
	}
	if deps == 0 || deps*2 < objects || named == 0 || named*2 < objects {
		return nil
	}
	r := &reading{edgesStated: true}
	readTasks(d, r, items)
	return r
}

// keyedTasks makes a list of {"a": {…}, "b": {"depends_on": ["a"]}}: tasks under their ids. named says that
// the text around the value calls it a list of tasks. If it is false, the keys or the fields must show it,
// because an object of objects is common.
func keyedTasks(v *form.Value, named bool) *form.Value {
	deps, asks, numbers := 0, 0, 0
	for i := range v.Fields {
		x := v.Fields[i].Val
		if x.Kind != form.KindObject {
			return nil
		}
		if _, ok := itemID(x); ok {
			return nil
		}
		if x.Get(depKeys...) != nil {
			deps++
		}
		if x.Get("instruction", "description", "request", "task", "step", "action", "goal") != nil {
			asks++
		}
		if bareNumber(v.Fields[i].Key) != "" {
			numbers++
		}
	}
	n := len(v.Fields)
	if n == 0 || deps == 0 || deps*2 < n || !named && numbers < n && (asks < n || deps < n) {
		return nil
	}
	list := &form.Value{Kind: form.KindList, Off: v.Off, End: v.End, Open: v.Open}
	for i := range v.Fields {
		f := v.Fields[i]
		item := *f.Val
		item.Off = f.Off
		item.Fields = append([]form.Field{{Key: "id", Off: f.Off, Val: &form.Value{Kind: form.KindString, Str: f.Key, Off: f.Off, End: f.Off}}}, f.Val.Fields...)
		list.Items = append(list.Items, &item)
	}
	return list
}

// task is an item of a task list and the id of its problem.
type task struct {
	v      *form.Value
	id     string
	stated bool
}

// taskReader reads a task list in two phases: it adds all tasks, and then the edges between them.
type taskReader struct {
	d         *document
	r         *reading
	names     *nameIndex
	tasks     []task
	allStated bool // every task states its id
}

func readTasks(d *document, r *reading, items []*form.Value) {
	t := &taskReader{d: d, r: r, names: newNameIndex(), allStated: true}
	r.unnamed = true
	t.add(items, "", 0)
	t.link()
	r.contradictions()
}

// add adds the tasks of a list below a parent, and those below each of them.
func (t *taskReader) add(items []*form.Value, parent string, depth int) {
	r := t.r
	for i, it := range items {
		if it.Kind != form.KindObject && it.Kind != form.KindCall {
			r.diag(t.d, Error, Malformed, it.Off, form.Clip(form.JSON(it)), "this is no task", "write an object")
			continue
		}
		text := itemText(it)
		if _, stated := itemID(it); !stated && it.Open && i > 0 {
			continue // cut off before it has an id: it names nothing
		}
		id, stated := taskID(items, i, parent)
		if !stated {
			r.diag(t.d, Warning, MissingField, it.Off, id, "the task has no id; it was given its position", "give each task an id")
		}
		t.allStated = t.allStated && stated
		r.unnamed = r.unnamed && !stated
		p := t.d.problem(id, text, it.Off)
		p.ParentID = parent
		if parent == "" {
			if x := it.Get("parentid", "parent", "parenttaskid"); x.IsScalar() && !isNoDependency(x.Text()) {
				p.ParentID = x.Text()
			}
		}
		p.Tool = itemTool(it)
		args, sub := it.Get(argKeys...), it.Get(subKeys...)
		p.Refs = p.addArgs(t.d, args)
		if sub != nil && !(sub.Kind == form.KindList && allObjects(sub) && depth < 50) {
			sub = nil
		}
		p.addFields(it, args, sub, it.Get(depKeys...), it.Get(nextKeys...))
		r.graph.Problems = append(r.graph.Problems, p)
		t.names.add(id, text)
		t.tasks = append(t.tasks, task{it, id, stated})
		if sub != nil {
			t.add(sub.Items, id, depth+1)
		}
	}
}

// taskID returns the id of the i-th item: the one that it states, the number of its text, its name if other
// tasks refer to names, or its position below the parent. stated is false for a position.
func taskID(items []*form.Value, i int, parent string) (id string, stated bool) {
	it := items[i]
	if id, stated = itemID(it); stated {
		return id, true
	}
	if n, _ := numberPrefix(itemText(it)); n != "" {
		return n, true
	}
	if name := it.Get("name", "title", "task"); name.IsScalar() && name.Text() != "" && dependsByName(items) {
		return name.Text(), true
	}
	id = strconv.Itoa(i + 1)
	if parent != "" {
		id = parent + "." + id
	}
	return id, false
}

// link adds the edges that the tasks state.
func (t *taskReader) link() {
	base := 1
	if !t.allStated {
		base = indexBase(t.d, t.r, t.tasks)
	}
	for _, x := range t.tasks {
		next := x.v.Get(nextKeys...)
		for _, v := range depValues(next) {
			if name := endText(v); !isNoDependency(name) {
				to := t.names.resolve(t.d, t.r, name, v.Off)
				t.r.edge(t.d, x.id, to, Stated, v.Off)
				t.r.addEdgeText(v, x.id, to)
			}
		}
		f := x.v.Field(depKeys...)
		if f == nil {
			if x.stated && next == nil {
				t.r.diag(t.d, Warning, MissingField, x.v.Off, x.id, "the task does not say what it depends on; taken as nothing", "write an empty list")
			}
			continue
		}
		for _, v := range depValues(f.Val) {
			t.dependency(x, v, base)
		}
	}
}

// dependency adds the edges for one value in the dependencies of a task. Positions count from base.
func (t *taskReader) dependency(x task, v *form.Value, base int) {
	names := t.names
	name := v.Text()
	if v.Kind == form.KindObject {
		name = endText(v)
	}
	if isNoDependency(name) || name == "-1" && names.ids["-1"] == 0 {
		return
	}
	if v.Kind == form.KindNumber && !x.stated && names.ids[name] >= 0 {
		if n, err := strconv.Atoi(name); err == nil {
			name = strconv.Itoa(n + 1 - base)
		}
	}
	if v.Kind == form.KindString && strings.ContainsAny(name, ",;，") && names.ids[name] == 0 && names.exact[name] == "" {
		// One string may hold several ids, such as "1, 2".
		for _, part := range strings.FieldsFunc(name, func(c rune) bool { return c == ',' || c == ';' || c == '，' }) {
			if !isNoDependency(part) {
				t.r.edge(t.d, names.resolve(t.d, t.r, part, v.Off), x.id, Stated, v.Off)
			}
		}
		return
	}
	name, lag := names.cutLag(name)
	from := names.resolve(t.d, t.r, name, v.Off)
	t.r.edge(t.d, from, x.id, Stated, v.Off)
	if t.r.addEdgeText(v, from, x.id); lag != "" {
		t.r.edgeTexts = append(t.r.edgeTexts, edgeText{from, x.id, form.Quote(lag)})
	}
}

// lag matches the link type and lag that schedules write behind an id: "a FS+2d", "1SS".
var lag = regexp.MustCompile(`^(.{1,200}?) ?((?:FS|SS|FF|SF)(?: ?[+-] ?\d+ ?\pL*)?|[+-] ?\d+ ?\pL+)$`)

// cutLag splits a lag from the id of a known task.
func (n *nameIndex) cutLag(name string) (id, rest string) {
	if n.ids[name] > 0 || n.exact[name] != "" || len(name) > 250 {
		return name, ""
	}
	if m := lag.FindStringSubmatch(name); m != nil && n.ids[m[1]] > 0 {
		return m[1], m[2]
	}
	return name, ""
}

// maxAncestors bounds the number of ancestors that are searched for a used result.
const maxAncestors = 1000

// contradictions warns of tasks that use the result of a task that they do not wait for.
func (r *reading) contradictions() {
	in := make(map[string][]string, len(r.graph.Problems))
	known := make(map[string]bool, len(r.graph.Problems))
	for _, p := range r.graph.Problems {
		known[p.ID] = true
	}
	seen := make(map[[2]string]bool, len(r.graph.Edges))
	for _, e := range r.graph.Edges {
		if k := [2]string{e.From, e.To}; !seen[k] {
			seen[k] = true
			in[e.To] = append(in[e.To], e.From)
		}
	}
	for _, p := range r.graph.Problems {
		var before map[string]bool
		for _, ref := range p.Refs {
			if !known[ref.To] || ref.To == p.ID {
				continue
			}
			if before == nil {
				before = ancestors(in, p.ID)
			}
			if before[ref.To] || len(before) >= maxAncestors {
				continue
			}
			before[ref.To] = true
			r.diags = append(r.diags, Diagnostic{Code: Contradiction, Severity: Warning, Line: ref.Line, Column: ref.Column, Element: p.ID, Message: p.ID + " uses the result of " + ref.To + " (" + ref.Text + ") and does not depend on it", Hint: "add " + ref.To + " to its dependencies"})
		}
	}
}

// ancestors returns up to maxAncestors problems that come before id.
func ancestors(in map[string][]string, id string) map[string]bool {
	seen := map[string]bool{}
	queue := []string{id}
	for len(queue) > 0 && len(seen) < maxAncestors {
		next := queue[0]
		queue = queue[1:]
		for _, from := range in[next] {
			if !seen[from] {
				seen[from] = true
				queue = append(queue, from)
			}
		}
	}
	return seen
}

// dependsByName reports whether the items name the tasks that they depend on rather than number them.
func dependsByName(items []*form.Value) bool {
	for i, it := range items {
		if i > 2000 {
			break
		}
		for _, x := range depValues(it.Get(depKeys...)) {
			if x.Text() != "" && x.Kind != form.KindNumber {
				return true
			}
		}
	}
	return false
}

func depValues(v *form.Value) []*form.Value {
	if v == nil || v.Kind == form.KindNull {
		return nil
	}
	if v.Kind == form.KindList {
		var out []*form.Value
		for _, x := range v.Items {
			if x.Kind == form.KindList {
				out = append(out, x.Items...)
				continue
			}
			out = append(out, x)
		}
		return out
	}
	return []*form.Value{v}
}

// indexBase returns whether numbers that refer to positions count from 0 or from 1.
func indexBase(d *document, r *reading, all []task) int {
	can0, can1, found := true, true, false
	for i, t := range all {
		for _, x := range depValues(t.v.Get(depKeys...)) {
			n, err := strconv.Atoi(x.Text())
			if err != nil || n < 0 {
				continue
			}
			found = true
			if n >= i {
				can0 = false
			}
			if n == 0 || n-1 >= i {
				can1 = false
			}
		}
	}
	if found && can0 && can1 {
		r.diag(d, Warning, Ambiguous, all[0].v.Off, all[0].id, "the dependencies may count from 0 or from 1; taken from 1", "give the tasks ids")
	}
	if can0 && !can1 {
		return 0
	}
	return 1
}
