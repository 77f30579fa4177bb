package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// callLog reads the log that LLMCompiler prints of its tasks: blocks of "idx: 1", "tool: …", "args: …",
// "dependencies: [1]".
type callLog struct {
	d      *document
	r      *reading
	stated bool     // the log states dependencies
	cur    *Problem // the last problem, or nil
	open   bool     // its dependencies are missing so far
}

func readCallLog(d *document) *reading {
	stated := strings.Contains(d.text, "dependencies:")
	if !strings.Contains(d.text, "idx:") || !stated && (!strings.Contains(d.text, "tool:") || !strings.Contains(d.text, "args:")) {
		return nil
	}
	c := &callLog{d: d, r: &reading{edgesStated: true, start: -1, openEnded: true}, stated: stated}
	for i := range d.lines {
		l := &d.lines[i]
		key, val, ok := strings.Cut(l.text, ":")
		if c.cur != nil && (ok || l.text == "---") {
			c.r.end = l.off + len(l.text)
		}
		if ok {
			c.field(l, key, strings.TrimSpace(val))
		} else if l.text != "" && l.text != "---" {
			c.outside(l)
		}
	}
	if c.cur == nil {
		return nil
	}
	if c.open {
		c.r.diag(d, Error, Truncated, len(d.text), c.cur.ID, "the text ends inside this task", "ask for the rest of the plan")
	}
	return c.r
}

// outside counts a line to the surroundings of the plan.
func (c *callLog) outside(l *line) {
	c.r.mark(c.d, []meaning.Span{{Off: l.off, End: l.off + 1}})
}

// field reads one field of a task.
func (c *callLog) field(l *line, key, val string) {
	off := l.off + len(key) + 1
	switch {
	case key == "idx":
		c.begin(l, val, off)
	case key == "tool" || key == "name":
		if c.cur != nil {
			c.cur.Request, c.cur.Tool = val, val
		}
	case key == "args":
		if c.cur != nil {
			c.args(l, off)
		}
	case key == "dependencies":
		if c.cur != nil {
			c.dependencies(l, val, off)
		}
	case c.cur != nil && form.IsName(key) && val != "" && len(c.cur.Args) < maxArgs:
		c.cur.Args = append(c.cur.Args, Arg{Name: key, Kind: Literal, Value: form.Typed(val)})
	default:
		c.outside(l)
	}
}

// begin adds the task with the number val.
func (c *callLog) begin(l *line, val string, off int) {
	if c.open {
		c.r.diag(c.d, Error, MissingField, l.off, c.cur.ID, "the task does not say what it depends on", "write its dependencies")
	}
	if i := strings.IndexByte(val, ' '); i > 0 {
		c.r.diag(c.d, Error, Malformed, off, val[:i], "idx holds more than a number: "+form.Clip(val), "write each field on a line of its own")
		val = val[:i]
	}
	if c.r.start < 0 {
		c.r.start = l.off
	}
	c.r.graph.Problems = append(c.r.graph.Problems, c.d.problem(val, "", l.off))
	c.cur, c.open = &c.r.graph.Problems[len(c.r.graph.Problems)-1], c.stated
}

// args reads the arguments at off. In a log without dependencies a task waits for the results that it uses.
func (c *callLog) args(l *line, off int) {
	t, end := form.ValueAt(c.d.text, off, c.d.limits.MaxDepth, false)
	if t.Root == nil || end > l.off+len(l.text) {
		return
	}
	c.cur.Refs = c.cur.addArgs(c.d, t.Root)
	for _, ref := range c.cur.Refs {
		if !c.stated {
			c.r.edge(c.d, ref.To, c.cur.ID, Variable, off)
		}
	}
}

// dependencies reads "[1, 2]".
func (c *callLog) dependencies(l *line, val string, off int) {
	c.open = false
	if unpaired(val) != 0 || !strings.HasPrefix(val, "[") {
		c.r.diag(c.d, Error, Unclosed, off, c.cur.ID, "the list of dependencies is not well formed: "+form.Clip(val), "write [1, 2]")
	}
	for _, x := range strings.FieldsFunc(val, func(sign rune) bool { return strings.ContainsRune("[](), '\"", sign) }) {
		c.r.edge(c.d, x, c.cur.ID, Stated, off)
	}
	c.r.end = l.off + len(l.text)
}
