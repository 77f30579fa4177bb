package plan

import (
	"strconv"
	"strings"
)

// nestedCalls reads a list of calls whose arguments use each other's results:
// [{"name", "arguments": {"x": "$var1.field$"}, "label": "var1"}]. Edges come from those uses.
func nestedCalls(d *document, v *value) *reading {
	if v.kind == kindObject {
		v = v.get("toolcalls", "calls", "functioncalls", "plan", "steps")
	}
	if v == nil || v.kind != kindList || len(v.items) == 0 {
		return nil
	}
	if len(v.items) == 1 {
		if a := v.items[0].get("function").get("arguments"); a != nil && a.kind == kindString && strings.HasPrefix(strings.TrimSpace(a.str), "{") {
			return nil // the plan may be what this one call hands over
		}
	}
	good := 0
	for _, it := range v.items {
		if it.kind != kindObject || it.get(depKeys...) != nil {
			return nil
		}
		if f := it.get("function"); f != nil && f.kind == kindObject {
			it = f
		}
		name, args := it.get("name", "function", "tool", "toolname"), it.get("arguments", "parameters", "args", "input", "kwargs")
		if args != nil && args.kind == kindObject && args.get("properties") != nil && args.get("type") != nil {
			return nil // the schema of a tool, not a call
		}
		if name.isScalar() && name.text() != "" && args != nil {
			good++
		} else if it.get("step", "description", "instruction", "nodeid") != nil {
			return nil
		}
	}
	if good == 0 || good*2 < len(v.items) {
		return nil
	}
	r := &reading{edgesStated: true}
	known := map[string]int{}
	labeled := false
	type call struct {
		refs []Reference
		off  int
	}
	calls := make([]call, 0, len(v.items))
	for i, it := range v.items {
		label := it.get("label", "var", "output", "id", "assignto", "resultvar")
		body := it
		if f := it.get("function"); f != nil && f.kind == kindObject {
			body = f
		}
		name := body.get("name", "function", "tool", "toolname").text()
		id := strings.Trim(label.text(), "$")
		if id == "" {
			id = name
		} else {
			labeled = true
		}
		if id == "" {
			r.diag(d, Error, MissingField, it.off, "call "+strconv.Itoa(i+1), "the call has no name and no label", "name the function")
			id = strconv.Itoa(i + 1)
		}
		args := body.get("arguments", "parameters", "args", "input", "kwargs")
		if args == nil && name != "" {
			r.diag(d, Warning, MissingField, it.off, id, "the call has no arguments", "write an empty object")
		}
		p := d.problem(id, name, it.off)
		p.Refs = p.addArgs(d, args)
		r.graph.Problems = append(r.graph.Problems, p)
		known[id]++
		calls = append(calls, call{p.Refs, it.off})
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

// resolveCallRef returns the id of the call that ref uses and whether there is one.
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
	if labeled {
		for _, prefix := range []string{"var", "#E"} {
			if known[prefix+ref.To] > 0 {
				return prefix + ref.To, true
			}
		}
	}
	return ref.To, false
}
