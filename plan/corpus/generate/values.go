package generate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// values are the styles of JSON, YAML and XML.
var values = []style{
	{"json", 16, (*writer).json},
	{"yaml", 9, (*writer).yaml},
	{"xml", 7, (*writer).xml},
	{"stepfunctions", 4, (*writer).states},
	{"transcript", 6, (*writer).transcript},
	{"tool_calls", 5, (*writer).toolCalls},
}

// key returns a label written as a key: "depends_on".
func (t *writer) key(section string) string {
	l := strings.ToLower(t.pick(section))
	l = strings.Trim(strings.NewReplacer(" ", "_", ".", "", "-", "_", "'", "_", "’", "_", "#", "no", "/", "_").Replace(l), "_")
	return l
}

// word returns a key in English, or in the language of the text if foreign is set.
func (t *writer) word(foreign bool, section string, english ...string) string {
	if foreign {
		return t.key(section)
	}
	return t.one(english...)
}

// pair is a member of an object, in order.
type pair struct {
	key   string
	value any
}

// object is a JSON object with ordered members.
type object []pair

func (o object) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, p := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		v, err := plainJSON(p.value)
		if err != nil {
			return nil, err
		}
		k, err := plainJSON(p.key)
		if err != nil {
			return nil, err
		}
		b.WriteString(k + ":" + v)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

func plainJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSpace(b.String()), err
}

// render returns a value as JSON, indented or not.
func render(v any, indent string) string {
	s, err := plainJSON(v)
	if err != nil {
		return err.Error()
	}
	if indent == "" {
		return s
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// valueIDs draws ids as used in values.
func (t *writer) valueIDs() {
	switch {
	case t.yes(0.45):
		t.slugs(t.one("_", "_", "-"))
	case t.yes(0.5):
		t.numbers()
	default:
		t.codes()
	}
}

// refValue returns a list of references as a value. With asNumber, ids that are numbers become JSON numbers.
func (t *writer) refValue(nodes []int, asNumber, single bool, none any) any {
	var out []any
	for _, i := range nodes {
		if n, err := strconv.Atoi(t.id[i]); err == nil && asNumber {
			out = append(out, n)
		} else {
			out = append(out, t.id[i])
		}
	}
	if len(out) == 1 && single {
		return out[0]
	}
	if len(out) == 0 {
		return none
	}
	return out
}

type missing struct{}

// planValue returns the plan as a value of one of several shapes.
func (t *writer) planValue() any {
	foreign := t.lang.code != "en" && t.yes(0.6)
	asNumber := t.number && t.yes(0.7)
	single := t.yes(0.15)
	var none any = []any{}
	switch x := t.Float64(); {
	case x < 0.15:
		none = missing{}
	case x < 0.25:
		none = nil
	}
	id := t.word(foreign, "label.id", "id", "id", "key", "step", "task_id", "name")
	task := t.word(foreign, "label.task", "title", "task", "description", "action", "what", "instruction")
	needs := t.word(foreign, "label.needs", "depends_on", "dependencies", "needs", "requires", "after", "dependsOn", "prerequisites", "blocked_by", "deps", "parents")
	next := t.word(foreign, "label.blocks", "next", "unlocks", "blocks", "then", "successors", "children_tasks")
	if next == "children_tasks" {
		next = "precedes"
	}
	if id == task {
		id = "id"
	}
	list := t.word(foreign, "label.task", "tasks", "steps", "plan", "nodes", "items", "jobs", "work")
	if list == task {
		list = "plan"
	}
	own := func(i int) any {
		if n, err := strconv.Atoi(t.id[i]); err == nil && asNumber {
			return n
		}
		return t.id[i]
	}
	extra := func(o object) object {
		if t.yes(0.2) {
			o = append(o, pair{t.word(foreign, "label.owner", "owner", "assignee"), t.pick("name")})
		}
		if t.yes(0.2) {
			o = append(o, pair{t.word(foreign, "label.time", "estimate", "duration"), t.pick("unit")})
		}
		return o
	}
	top := func(v any, more ...pair) any {
		if len(more) == 0 && t.yes(0.3) {
			return v
		}
		o := object{}
		if t.yes(0.5) {
			o = append(o, pair{t.one("goal", "project", "title", "name"), t.pick("title")})
		}
		return append(append(o, pair{list, v}), more...)
	}
	kind := t.IntN(6)
	var items []object
	for i := range t.needs {
		o := object{}
		if kind != 1 {
			o = append(o, pair{id, own(i)})
		}
		o = append(o, pair{task, t.cap(t.title[i])})
		o = extra(o)
		switch kind {
		case 2: // edges elsewhere
		case 3:
			if v := t.refValue(t.after(i), asNumber, single, none); v != (missing{}) || single {
				o = append(o, pair{next, v})
			}
		default:
			o = append(o, pair{needs, t.refValue(t.needs[i], asNumber, single, none)})
		}
		o = slices.DeleteFunc(o, func(p pair) bool { _, gone := p.value.(missing); return gone })
		items = append(items, o)
	}
	switch kind {
	case 1:
		m := object{}
		for i := range items {
			m = append(m, pair{t.id[i], items[i]})
		}
		return top(m)
	case 2:
		ends := strings.Fields(t.one("from to", "source target", "from to", "first then", "src dst"))
		edges := []any{}
		pairs := t.yes(0.3)
		for i, x := range t.needs {
			for _, k := range x {
				if pairs {
					edges = append(edges, []any{own(k), own(i)})
				} else {
					edges = append(edges, object{{ends[0], own(k)}, {ends[1], own(i)}})
				}
			}
		}
		if t.yes(0.3) {
			t.Shuffle(len(edges), func(a, b int) { edges[a], edges[b] = edges[b], edges[a] })
		}
		return top(items, pair{t.one("edges", "edges", "links", "connections", "transitions"), edges})
	}
	return top(items)
}

// argsValue returns calls whose arguments use the outputs of other calls.
func (t *writer) argsValue() any {
	t.slugs("_")
	form := t.one("{{%s.output}}", "${%s.output}", "${steps.%s.result}", "{{steps.%s.outputs}}", "$%s", "<%s>", "@%s", "{{%s}}", "from", "ref")
	id, args := t.one("id", "name", "step", "key"), t.one("args", "input", "inputs", "with", "parameters", "arguments")
	tool := t.one("tool", "uses", "action")
	var items []object
	for i := range t.needs {
		in := object{}
		for k, x := range t.needs[i] {
			var v any = strings.ReplaceAll(form, "%s", t.id[x])
			switch form {
			case "from":
				v = object{{"$from", t.id[x]}}
			case "ref":
				v = object{{"$ref", t.id[x] + ".output"}}
			}
			in = append(in, pair{[]string{"data", "other", "extra", "context", "more", "rest"}[k%6] + strings.Repeat("_", k/6), v})
		}
		if len(in) == 0 || t.yes(0.2) {
			in = append(in, pair{t.one("limit", "year", "mode", "region"), t.one("20", "fast", "north")})
		}
		items = append(items, object{{id, t.id[i]}, {tool, t.one("http.get", "sql.query", "llm.call", "file.write")}, {args, in}})
	}
	return object{{t.one("steps", "plan", "calls", "tasks"), items}}
}

func (t *writer) json() bool {
	t.draw(60)
	if t.yes(0.1) {
		t.shuffle()
	}
	var v any
	switch x := t.Float64(); {
	case x < 0.15:
		v = t.argsValue()
	case x < 0.22: // a list of consecutive tasks
		t.chain(20)
		t.hide()
		var list []any
		for _, s := range t.title {
			list = append(list, t.cap(s))
		}
		v = object{{t.one("steps", "plan", "tasks"), list}}
	default:
		t.valueIDs()
		v = t.planValue()
	}
	s := render(v, t.one("  ", "  ", "    ", "", "\t"))
	if t.yes(0.3) {
		s = rows(v)
	}
	switch x := t.Float64(); {
	case x < 0.1:
		s = "plan = " + python(v)
		t.fence(s, "python")
	case x < 0.2 && !strings.Contains(s, "\n"):
		t.out.Body = t.pick("intro") + " " + s + " " + t.pick("outro")
	default:
		t.fence(s, "json")
	}
	t.truth()
	return true
}

// rows writes each item of the plan on a line of its own.
func rows(v any) string {
	switch x := v.(type) {
	case []object:
		var out []string
		for _, o := range x {
			out = append(out, "  "+render(o, ""))
		}
		return "[\n" + strings.Join(out, ",\n") + "\n]"
	case object:
		var out []string
		for _, p := range x {
			out = append(out, render(p.key, "")+": "+rows(p.value))
		}
		return "{\n" + strings.Join(out, ",\n") + "\n}"
	}
	return render(v, "")
}

// python writes a value as Python would print it.
func python(v any) string {
	switch x := v.(type) {
	case object:
		var out []string
		for _, p := range x {
			out = append(out, python(p.key)+": "+python(p.value))
		}
		return "{" + strings.Join(out, ", ") + "}"
	case []object:
		var out []string
		for _, p := range x {
			out = append(out, python(p))
		}
		return "[" + strings.Join(out, ",\n  ") + "]"
	case []any:
		var out []string
		for _, p := range x {
			out = append(out, python(p))
		}
		return "[" + strings.Join(out, ", ") + "]"
	case string:
		if strings.Contains(x, "'") {
			return strconv.Quote(x)
		}
		return "'" + x + "'"
	case nil:
		return "None"
	}
	return fmt.Sprint(v)
}

func (t *writer) yaml() bool {
	t.draw(40)
	var b strings.Builder
	flow := t.yes(0.5)
	refs := func(indent, key string, nodes []int) {
		if len(nodes) == 0 {
			return
		}
		if flow {
			fmt.Fprintf(&b, "%s%s: [%s]\n", indent, key, strings.Join(t.refs(nodes), ", "))
			return
		}
		fmt.Fprintf(&b, "%s%s:\n", indent, key)
		for _, x := range t.refs(nodes) {
			fmt.Fprintf(&b, "%s  - %s\n", indent, x)
		}
	}
	foreign := t.lang.code != "en" && t.yes(0.6)
	switch t.IntN(7) {
	case 0:
		t.slugs("-")
		b.WriteString("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata:\n  generateName: job-\nspec:\n  entrypoint: main\n  templates:\n    - name: main\n      dag:\n        tasks:\n")
		for i := range t.needs {
			fmt.Fprintf(&b, "          - name: %s\n            template: %s\n", t.id[i], t.one("run", "python", "shell"))
			refs("            ", "dependencies", t.needs[i])
		}
	case 1:
		t.slugs("-")
		b.WriteString("name: CI\non: [push]\njobs:\n")
		for i := range t.needs {
			fmt.Fprintf(&b, "  %s:\n    runs-on: ubuntu-latest\n", t.id[i])
			refs("    ", "needs", t.needs[i])
			fmt.Fprintf(&b, "    steps:\n      - uses: actions/checkout@v4\n      - run: ./run.sh %d\n", i+3)
		}
	case 2:
		t.slugs("-")
		b.WriteString("services:\n")
		for i := range t.needs {
			fmt.Fprintf(&b, "  %s:\n    image: %s\n", t.id[i], t.one("postgres:16", "redis:7", "caddy:2", "app/web", "app/api"))
			refs("    ", "depends_on", t.needs[i])
		}
	case 3, 4:
		t.valueIDs()
		id, task := t.word(foreign, "label.id", "id", "name", "key"), t.word(foreign, "label.task", "title", "task", "description", "do")
		needs := t.word(foreign, "label.needs", "needs", "depends_on", "after", "requires", "dependencies")
		if id == task {
			id = "id"
		}
		fmt.Fprintf(&b, "%s:\n", t.one("tasks", "steps", "plan"))
		for i := range t.needs {
			fmt.Fprintf(&b, "  - %s: %s\n    %s: %s\n", id, t.id[i], task, t.cap(t.title[i]))
			refs("    ", needs, t.needs[i])
		}
	case 5:
		t.slugs("_")
		task := t.word(foreign, "label.task", "what", "do", "description")
		needs := t.word(foreign, "label.needs", "needs", "depends_on", "after", "requires")
		for i := range t.needs {
			fmt.Fprintf(&b, "%s:\n  %s: %s\n", t.id[i], task, t.cap(t.title[i]))
			refs("  ", needs, t.needs[i])
		}
	case 6:
		t.slugs("_")
		next := t.word(foreign, "label.blocks", "next", "unlocks", "then", "precedes")
		b.WriteString("workflow:\n  steps:\n")
		for i := range t.needs {
			fmt.Fprintf(&b, "    - name: %s\n      run: ./%s.sh\n", t.id[i], strings.ReplaceAll(t.id[i], "_", "-"))
			refs("      ", next, t.after(i))
		}
	}
	t.fence(b.String(), "yaml")
	t.truth()
	return true
}

func (t *writer) xml() bool {
	t.draw(40)
	switch {
	case t.yes(0.4):
		t.numbers()
	case t.yes(0.5):
		t.codes()
	default:
		t.slugs("_")
	}
	foreign := t.lang.code != "en" && t.yes(0.5)
	top, item := t.one("plan", "workflow", "tasks", "project", "job-list"), t.one("step", "task", "node", "item", "activity")
	id, title := t.one("id", "id", "name", "nr", "key"), t.word(foreign, "label.task", "title", "description", "what", "do")
	needs := t.word(foreign, "label.needs", "depends", "dependsOn", "needs", "requires", "after", "predecessors", "depends-on")
	if title == item || title == id {
		title = "label"
	}
	sep := t.one(" ", ",", ", ", ";")
	kind, empty := t.IntN(4), t.yes(0.3)
	var b strings.Builder
	if t.yes(0.3) {
		b.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
	}
	fmt.Fprintf(&b, "<%s>\n", top)
	for i := range t.needs {
		text, refs := t.cap(t.title[i]), t.refs(t.needs[i])
		attr := ""
		if len(refs) > 0 || empty {
			attr = fmt.Sprintf(` %s="%s"`, needs, strings.Join(refs, sep))
		}
		switch kind {
		case 0:
			fmt.Fprintf(&b, "  <%s %s=\"%s\"%s>%s</%s>\n", item, id, t.id[i], attr, text, item)
		case 1:
			fmt.Fprintf(&b, "  <%s %s=\"%s\" %s=\"%s\"%s/>\n", item, id, t.id[i], title, strings.ReplaceAll(text, `"`, "'"), attr)
		case 2:
			fmt.Fprintf(&b, "  <%s>\n    <%s>%s</%s>\n    <%s>%s</%s>\n", item, id, t.id[i], id, title, text, title)
			for _, r := range refs {
				fmt.Fprintf(&b, "    <%s>%s</%s>\n", needs, r, needs)
			}
			fmt.Fprintf(&b, "  </%s>\n", item)
		case 3:
			fmt.Fprintf(&b, "  <%s %s=\"%s\">\n    <%s>%s</%s>\n", item, id, t.id[i], title, text, title)
			if len(refs) > 0 {
				fmt.Fprintf(&b, "    <%s>\n", needs)
				for _, r := range refs {
					fmt.Fprintf(&b, "      <ref>%s</ref>\n", r)
				}
				fmt.Fprintf(&b, "    </%s>\n", needs)
			}
			fmt.Fprintf(&b, "  </%s>\n", item)
		}
	}
	fmt.Fprintf(&b, "</%s>\n", top)
	t.fence(b.String(), "xml")
	t.truth()
	return true
}

// states writes state machines: a chain, or actions with dependencies.
func (t *writer) states() bool {
	if t.yes(0.5) {
		t.chain(20)
		t.slugs("")
		o := object{}
		for i, id := range t.id {
			s := object{{"Type", t.one("Task", "Task", "Task", "Pass")}, {"Resource", "arn:aws:lambda:eu-west-1:111122223333:function:" + strings.ToLower(id)}}
			if i+1 < len(t.id) {
				s = append(s, pair{"Next", t.id[i+1]})
			} else {
				s = append(s, pair{"End", true})
			}
			o = append(o, pair{id, s})
		}
		t.fence(render(object{{"StartAt", t.id[0]}, {"States", o}}, "  "), "json")
	} else {
		t.draw(20)
		t.slugs("_")
		o := object{}
		for i, id := range t.id {
			after := object{}
			for _, k := range t.needs[i] {
				after = append(after, pair{t.id[k], []any{"Succeeded"}})
			}
			o = append(o, pair{id, object{{"type", t.one("Http", "Function", "ApiConnection")}, {"runAfter", after}}})
		}
		t.fence(render(object{{"actions", o}}, "  "), "json")
	}
	t.truth()
	return true
}

// transcript writes a conversation in which the plan is a string in a call.
func (t *writer) transcript() bool {
	t.draw(20)
	t.valueIDs()
	plan := render(t.planValue(), "")
	name := t.one("submit_plan", "create_plan", "planner", "save_plan")
	var v any
	switch t.IntN(4) {
	case 0:
		call := object{{"id", "call_9fK2"}, {"type", "function"}, {"function", object{{"name", name}, {"arguments", plan}}}}
		v = []any{object{{"role", "user"}, {"content", t.pick("title")}}, object{{"role", "assistant"}, {"content", nil}, {"tool_calls", []any{call}}}, object{{"role", "tool"}, {"tool_call_id", "call_9fK2"}, {"content", "ok"}}}
		t.out.Body = render(v, t.one("", "  "))
	case 1:
		v = object{{"role", "assistant"}, {"content", []any{object{{"type", "text"}, {"text", t.pick("intro")}}, object{{"type", "tool_use"}, {"id", "toolu_014"}, {"name", name}, {"input", object{{"plan_json", plan}}}}}}}
		t.out.Body = render(v, t.one("", "  "))
	case 2:
		t.out.Body = "<tool_call>\n" + render(object{{"name", name}, {"arguments", plan}}, "") + "\n</tool_call>\n<tool_response>\n{\"status\": \"accepted\"}\n</tool_response>"
	case 3:
		t.out.Body = "Thought: " + t.pick("chatter") + "\nAction: " + name + "\nAction Input: " + plan + "\nObservation: ok"
	}
	t.truth()
	return true
}

// toolCalls writes calls that use the results of earlier ones.
func (t *writer) toolCalls() bool {
	t.draw(15)
	g := t.slugHalves()
	fn := func() string { return t.one(g.first...) + "_" + t.one(g.second...) }
	var b strings.Builder
	kind := t.IntN(3)
	t.id = nil
	for i := range t.needs {
		t.id = append(t.id, []string{strconv.Itoa(i + 1), "#E" + strconv.Itoa(i+1), "call_" + strconv.Itoa(i+1)}[kind])
	}
	t.ref = t.id
	if kind == 2 {
		var calls []any
		for i := range t.needs {
			args := object{{"mode", t.one("fast", "full")}}
			for k, x := range t.needs[i] {
				args = append(args, pair{"input" + strconv.Itoa(k+1), "{{" + t.id[x] + ".result}}"})
			}
			calls = append(calls, object{{"id", t.id[i]}, {"name", fn()}, {"arguments", args}})
		}
		t.fence(render(calls, "  "), "json")
		t.truth()
		return true
	}
	for i, x := range t.needs {
		var args []string
		for _, k := range x {
			args = append(args, []string{"$" + t.id[k], t.id[k]}[kind])
		}
		if len(args) == 0 {
			args = []string{`"` + t.one("north", "2027", "all", "spring") + `"`}
		}
		if kind == 0 {
			fmt.Fprintf(&b, "%d. %s(%s)\n", i+1, fn(), strings.Join(args, ", "))
		} else {
			fmt.Fprintf(&b, "Plan: %s.\n%s = %s[%s]\n", t.cap(t.title[i]), t.id[i], t.one("Search", "LLM", "Calculator", "Wikipedia"), strings.Join(args, " and "))
		}
	}
	t.out.Body = strings.TrimRight(b.String(), "\n")
	t.truth()
	return true
}
