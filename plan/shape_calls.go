package plan

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"

	"strconv"
	"strings"
)

// nestedCalls reads a list of calls whose arguments use each other's results: [{"name", "arguments": {"x":
// "$var1.field$"}, "label": "var1"}]. Edges come from those uses.
func nestedCalls(d *document, v *form.Value) *reading {
	if v.Kind == form.KindObject {
		v = v.Get("toolcalls", "calls", "functioncalls", "plan", "steps")
	}
	if v == nil || v.Kind != form.KindList || len(v.Items) == 0 {
		return nil
	}
	if handsOver(v.Items) {
		return nil
	}
	good := 0
	for _, it := range v.Items {
		if it.Kind != form.KindObject || it.Get(depKeys...) != nil {
			return nil
		}
		if f := it.Get("function"); f != nil && f.Kind == form.KindObject {
			it = f
		}
		name, args := it.Get("name", "function", "tool", "toolname"), it.Get("arguments", "parameters", "args", "input", "kwargs")
		if args != nil && args.Kind == form.KindObject && args.Get("properties") != nil && args.Get("type") != nil {
			return nil // the schema of a tool, not a call
		}
		if name.IsScalar() && name.Text() != "" && args != nil {
			good++
		} else if it.Get("step", "description", "instruction", "nodeid") != nil {
			return nil
		}
	}
	if good == 0 || good*2 < len(v.Items) {
		return nil
	}
	r := &reading{edgesStated: true}
	known := map[string]int{}
	labeled := false
	type call struct {
		refs []Reference
		off  int
	}
	calls := make([]call, 0, len(v.Items))
	for i, it := range v.Items {
		label := it.Get("label", "var", "output", "id", "assignto", "resultvar")
		body := it
		if f := it.Get("function"); f != nil && f.Kind == form.KindObject {
			body = f
		}
		name := body.Get("name", "function", "tool", "toolname").Text()
		id := strings.Trim(label.Text(), "$")
		if id == "" {
			id = name
		} else {
			labeled = true
		}
		if id == "" {
			r.diag(d, Error, MissingField, it.Off, "call "+strconv.Itoa(i+1), "the call has no name and no label", "name the function")
			id = strconv.Itoa(i + 1)
		}
		args := body.Get("arguments", "parameters", "args", "input", "kwargs")
		if args == nil && name != "" {
			r.diag(d, Warning, MissingField, it.Off, id, "the call has no arguments", "write an empty object")
		}
		p := d.problem(id, name, it.Off)
		p.Tool = name
		p.Refs = p.addArgs(d, args)
		if body == it {
			p.keep(it, args)
		} else { // {"type": "function", "function": {…}}
			p.keep(it, body, it.Get("type"))
			p.keep(body, args)
		}
		r.graph.Problems = append(r.graph.Problems, p)
		known[id]++
		calls = append(calls, call{p.Refs, it.Off})
	}
	for i := range calls {
		to := r.graph.Problems[i].ID
		seen := map[string]bool{}
		for j := range calls[i].refs {
			ref := &calls[i].refs[j]
			from, ok := resolveCallRef(ref, known, labeled, r.graph.Problems)
			if !ok {
				if strings.HasPrefix(ref.Text, "{{") || strings.HasPrefix(ref.Text, "<") || !strings.HasSuffix(ref.Text, "$") && !strings.HasPrefix(ref.Text, "${") {
					// "$5" or "{{name}}" in a text need not be a reference.
					r.diag(d, Warning, UndefinedVariable, calls[i].off, ref.Text, "this looks like a reference to a call that is not there; taken as text", "use the label of a call")
					continue
				}
			}
			ref.To = from
			if seen[from] {
				continue
			}
			seen[from] = true
			r.edge(d, from, to, Variable, calls[i].off)
		}
		r.graph.Problems[i].Refs = calls[i].refs
	}
	return r
}

// handsOver reports whether exactly one of the items is a call and its arguments are a string. The plan may
// then be in that string.
func handsOver(items []*form.Value) bool {
	calls, packed := 0, 0
	for _, it := range items {
		if f := it.Get("function"); f != nil && f.Kind == form.KindObject {
			it = f
		}
		a := it.Get("arguments", "parameters", "args", "input", "kwargs")
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
