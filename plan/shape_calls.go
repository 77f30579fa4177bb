package plan

import (
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// nestedCalls reads a list of calls whose arguments use each other's results: [{"name", "arguments": {"x":
// "$var1.field$"}, "label": "var1"}]. Edges come from those uses.
func nestedCalls(d *document, v *form.Value) *reading {
	if v.Kind == form.KindObject {
		v = v.Get("toolcalls", "calls", "functioncalls", "plan", "steps")
	}
	if v == nil || v.Kind != form.KindList || len(v.Items) == 0 || handsOver(v.Items) || !areCalls(v.Items) {
		return nil
	}
	r := &reading{edgesStated: true}
	labeled := false
	for i, it := range v.Items {
		labeled = r.addCall(d, it, i) || labeled
	}
	r.linkCalls(d, v.Items, labeled)
	return r
}

// callBody returns the part of an item that holds the name and the arguments of a call. OpenAI's form has it
// under "function".
func callBody(it *form.Value) *form.Value {
	if f := it.Get("function"); f != nil && f.Kind == form.KindObject {
		return f
	}
	return it
}

// callParts returns the name and the arguments of a call. Each is nil if it is missing.
func callParts(body *form.Value) (name, args *form.Value) {
	return body.Get("name", "function", "tool", "toolname"), body.Get("arguments", "parameters", "args", "input", "kwargs")
}

// areCalls reports whether the items are calls: at least half of them, and no item is something else.
func areCalls(items []*form.Value) bool {
	good := 0
	for _, it := range items {
		if it.Kind != form.KindObject || it.Get(depKeys...) != nil {
			return false
		}
		body := callBody(it)
		name, args := callParts(body)
		if args != nil && args.Kind == form.KindObject && args.Get("properties") != nil && args.Get("type") != nil {
			return false // the schema of a tool, not a call
		}
		if name.IsScalar() && name.Text() != "" && args != nil {
			good++
		} else if body.Get("step", "description", "instruction", "nodeid") != nil {
			return false
		}
	}
	return good > 0 && good*2 >= len(items)
}

// addCall adds the problem of the i-th item, and reports whether the item has a label.
func (r *reading) addCall(d *document, it *form.Value, i int) (labeled bool) {
	body := callBody(it)
	nameValue, args := callParts(body)
	name := nameValue.Text()
	id := strings.Trim(it.Get("label", "var", "output", "id", "assignto", "resultvar").Text(), "$")
	if labeled = id != ""; !labeled {
		id = name
	}
	if id == "" {
		r.diag(d, Error, MissingField, it.Off, "call "+strconv.Itoa(i+1), "the call has no name and no label", "name the function")
		id = strconv.Itoa(i + 1)
	}
	if args == nil && name != "" {
		r.diag(d, Warning, MissingField, it.Off, id, "the call has no arguments", "write an empty object")
	}
	p := d.problem(id, name, it.Off)
	p.Tool = name
	p.Refs = p.addArgs(d, args)
	if body == it {
		p.addFields(it, args)
	} else { // {"type": "function", "function": {…}}
		p.addFields(it, body, it.Get("type"))
		p.addFields(body, args)
	}
	r.graph.Problems = append(r.graph.Problems, p)
	return labeled
}

// linkCalls resolves the references of the calls, whose problems are in the order of the items, and adds an
// edge for each call whose result another one uses.
func (r *reading) linkCalls(d *document, items []*form.Value, labeled bool) {
	known := map[string]int{}
	for i := range r.graph.Problems {
		known[r.graph.Problems[i].ID]++
	}
	for i := range r.graph.Problems {
		p, off := &r.graph.Problems[i], items[i].Off
		seen := map[string]bool{}
		for j := range p.Refs {
			ref := &p.Refs[j]
			from, ok := resolveCallRef(ref, known, labeled, r.graph.Problems)
			if !ok && (strings.HasPrefix(ref.Text, "{{") || strings.HasPrefix(ref.Text, "<") || !strings.HasSuffix(ref.Text, "$") && !strings.HasPrefix(ref.Text, "${")) {
				// "$5" or "{{name}}" in a text need not be a reference.
				r.diag(d, Warning, UndefinedVariable, off, ref.Text, "this looks like a reference to an unknown call; taken as text", "use the label of a call")
				continue
			}
			ref.To = from
			if !seen[from] {
				seen[from] = true
				r.edge(d, from, p.ID, Variable, off)
			}
		}
	}
}

// handsOver reports whether exactly one of the items is a call and its arguments are a string. The plan may
// then be in that string.
func handsOver(items []*form.Value) bool {
	calls, packed := 0, 0
	for _, it := range items {
		_, a := callParts(callBody(it))
		if a == nil {
			continue
		}
		calls++
		if s := strings.TrimSpace(a.Text()); a.Kind == form.KindString && strings.HasPrefix(s, "{") {
			packed++
		}
	}
	return calls == 1 && packed == 1
}

// resolveCallRef returns the id of the call that ref uses, and whether there is one.
func resolveCallRef(ref *Reference, known map[string]int, labeled bool, problems []Problem) (string, bool) {
	if known[ref.To] > 0 {
		return ref.To, true
	}
	if strings.HasPrefix(ref.Text, "<") || !labeled {
		if n, err := strconv.Atoi(ref.To); err == nil {
			if strings.HasPrefix(ref.Text, "<") {
				n++ // <node-0> is the first
			}
			if n >= 1 && n <= len(problems) {
				return problems[n-1].ID, true
			}
		}
	}
	return ref.To, false
}
