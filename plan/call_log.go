package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// readCallLog reads the log that LLMCompiler prints of its tasks: blocks of "idx: 1", "tool: …", "args: …",
// "dependencies: [1]".
func readCallLog(d *document) *reading {
	stated := strings.Contains(d.text, "dependencies:")
	if !strings.Contains(d.text, "idx:") || !stated && (!strings.Contains(d.text, "tool:") || !strings.Contains(d.text, "args:")) {
		return nil
	}
	r := &reading{edgesStated: true, start: -1, openEnded: true}
	cur := -1
	hasDeps := true
	for _, l := range d.lines {
		key, val, ok := strings.Cut(l.text, ":")
		if cur >= 0 && (ok || l.text == "---") {
			r.end = l.off + len(l.text)
		}
		if !ok {
			if l.text != "" && l.text != "---" {
				r.mark(d, []meaning.Span{{Off: l.off, End: l.off + 1}})
			}
			continue
		}
		val = strings.TrimSpace(val)
		off := l.off + len(key) + 1
		switch key {
		case "idx":
			if !hasDeps && cur >= 0 {
				r.diag(d, Error, MissingField, l.off, r.graph.Problems[cur].ID, "the task does not say what it depends on", "write its dependencies")
			}
			if i := strings.IndexByte(val, ' '); i > 0 {
				r.diag(d, Error, Malformed, off, val[:i], "more than a number stands behind idx: "+form.Clip(val), "write each field on a line of its own")
				val = val[:i]
			}
			cur = len(r.graph.Problems)
			hasDeps = !stated
			r.graph.Problems = append(r.graph.Problems, d.problem(val, "", l.off))
			if r.start < 0 {
				r.start = l.off
			}
		case "tool", "name":
			if cur >= 0 {
				r.graph.Problems[cur].Request, r.graph.Problems[cur].Tool = val, val
			}
		case "args":
			if cur >= 0 {
				if t, end := form.ValueAt(d.text, off, d.limits.MaxDepth, false); t.Root != nil && end <= l.off+len(l.text) {
					refs := r.graph.Problems[cur].addArgs(d, t.Root)
					r.graph.Problems[cur].Refs = refs
					for _, ref := range refs {
						if !stated {
							// A task waits for the results that it uses.
							r.edge(d, ref.To, r.graph.Problems[cur].ID, Variable, off)
						}
					}
				}
			}
		case "dependencies":
			if cur < 0 {
				continue
			}
			hasDeps = true
			to := r.graph.Problems[cur].ID
			if unpaired(val) != 0 || !strings.HasPrefix(val, "[") {
				r.diag(d, Error, Unclosed, off, to, "the list of dependencies is not well formed: "+form.Clip(val), "write [1, 2]")
			}
			for _, x := range strings.FieldsFunc(val, func(c rune) bool { return strings.ContainsRune("[](), '\"", c) }) {
				r.edge(d, x, to, Stated, off)
			}
			r.end = l.off + len(l.text)
		default:
			if cur >= 0 && form.IsName(key) && val != "" && len(r.graph.Problems[cur].Args) < maxArgs {
				r.graph.Problems[cur].Args = append(r.graph.Problems[cur].Args, Arg{Name: key, Kind: Literal, Value: form.Typed(val)})
			} else {
				r.mark(d, []meaning.Span{{Off: l.off, End: l.off + 1}})
			}
		}
	}
	if len(r.graph.Problems) == 0 {
		return nil
	}
	if !hasDeps {
		r.diag(d, Error, Truncated, len(d.text), r.graph.Problems[cur].ID, "the text ends inside this task", "ask for the rest of the plan")
	}
	return r
}
