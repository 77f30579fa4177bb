package workflow

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// inputsID is the node that every run of a workflow begins with. Its result are the inputs.
const inputsID = "inputs"

// ref is a reference in a text: `{{ fetch.body.items[0] }}`.
type ref struct {
	// mark is the reference as it was written, braces included.
	mark string
	// step is the id of the step whose result is meant, or inputsID.
	step string
	// path are the fields of the result; none means all of it.
	path []part
	at   Place
	// node is the node whose result is read, step if it is empty. base is the value as an expression,
	// and there the condition that it is there; both are those of the node if they are empty.
	node, base, there string
	// key is the key of the state that is read, empty for none.
	key string
	// is is the type of the value, and whence says who says so.
	is     typing.Type
	whence string
}

// part is a step into a value: a field, or the item of a list.
type part struct {
	field string
	item  int // fieldOnly for a field
}

// fieldOnly marks a field, and lastItem the last item of a list.
const fieldOnly, lastItem = -1, -2

// maxRef bounds the text of a reference, in bytes, and maxPath its parts: a rule asks of each whether
// it is there.
const maxRef, maxPath = 240, 16

var (
	marks  = regexp.MustCompile(`\{\{([^{}]*)\}\}`)
	heads  = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_]*)\s*`)
	fields = regexp.MustCompile(`^\.\s*([A-Za-z_][A-Za-z0-9_-]*)\s*`)
	items  = regexp.MustCompile(`^\[\s*([0-9]{1,6})\s*\]\s*`)
)

// readRef reads what stands between the braces.
func readRef(s string) (r ref, ok bool) {
	if len(s) > maxRef {
		return r, false
	}
	m := heads.FindStringSubmatch(s)
	if m == nil {
		return r, false
	}
	r.step, s = m[1], s[len(m[0]):]
	for s != "" {
		if len(r.path) == maxPath {
			return r, false
		}
		if m := fields.FindStringSubmatch(s); m != nil {
			r.path, s = append(r.path, part{m[1], -1}), s[len(m[0]):]
			continue
		}
		m := items.FindStringSubmatch(s)
		if m == nil {
			return r, false
		}
		n, _ := strconv.Atoi(m[1]) // six digits
		r.path, s = append(r.path, part{"", n}), s[len(m[0]):]
	}
	return r, true
}

// field is the path as a binding has it.
func (r ref) field() string {
	var b strings.Builder
	for _, p := range r.path {
		switch {
		case p.item == lastItem:
			b.WriteString("[-1]")
		case p.item >= 0:
			b.WriteString("[" + strconv.Itoa(p.item) + "]")
		case b.Len() > 0:
			b.WriteString("." + p.field)
		default:
			b.WriteString(p.field)
		}
	}
	return b.String()
}

// from is the node whose result is read.
func (r ref) from() string {
	if r.node != "" {
		return r.node
	}
	return r.step
}

// at is a node as it is named behind `nodes` in an expression.
func at(node string) string {
	if strings.Contains(node, ".") {
		return "[" + literal(node) + "]"
	}
	return "." + node
}

// hasNode is the condition that a node has completed.
func hasNode(node string) string {
	if strings.Contains(node, ".") {
		return literal(node) + " in nodes"
	}
	return "has(nodes." + node + ")"
}

// expr is the value as an expression.
func (r ref) expr() string { return r.exprs()[len(r.path)] }

// exprs are the values that the reference goes through, from the whole result on.
func (r ref) exprs() []string {
	out := []string{"nodes" + at(r.from()) + ".result"}
	if r.base != "" {
		out[0] = r.base
	}
	for _, p := range r.path {
		last := out[len(out)-1]
		switch {
		case p.item == lastItem:
			out = append(out, last+"["+last+".size() - 1]")
		case p.item >= 0:
			out = append(out, last+"["+strconv.Itoa(p.item)+"]")
		default:
			out = append(out, last+"["+literal(p.field)+"]")
		}
	}
	return out
}

// present is the condition that the value is there.
func (r ref) present() string {
	conds := []string{hasNode(r.from())}
	if r.there != "" {
		conds[0] = r.there
	}
	exprs := r.exprs()
	for i, p := range r.path {
		in := exprs[i]
		switch {
		case p.item == lastItem:
			conds = append(conds, "type("+in+") == list && "+in+".size() > 0")
		case p.item >= 0:
			conds = append(conds, "type("+in+") == list && "+in+".size() > "+strconv.Itoa(p.item))
		default:
			conds = append(conds, "type("+in+") == map && "+literal(p.field)+" in "+in)
		}
	}
	return strings.Join(conds, " && ")
}

// literal is a text as an expression.
func literal(s string) string {
	var b bytes.Buffer
	writeText(&b, s)
	return b.String()
}

// refs are the references in the texts of a value, each mark once. Faults are told.
func (t *teller) refs(v *value) []ref {
	var out []ref
	t.collect(v, &out)
	if len(out) > maxRefs {
		t.at(v, "TOO_LARGE", "put parts together in steps before", "a value may have %d references", maxRefs)
		return out[:maxRefs]
	}
	return out
}

// maxRefs bounds the references of one value. It is what a node may bind.
const maxRefs = 100

func (t *teller) collect(v *value, out *[]ref) {
	for _, item := range v.items {
		t.collect(item, out)
	}
	for i := range v.entries {
		t.collect(v.entries[i].value, out)
	}
	if v.kind != text {
		return
	}
	for _, m := range marks.FindAllStringSubmatch(v.text, -1) {
		if len(*out) > maxRefs || t.full() {
			return
		}
		if slices.ContainsFunc(*out, func(r ref) bool { return r.mark == m[0] }) {
			continue
		}
		r, ok := readRef(m[1])
		r.mark, r.at = m[0], t.placeOf(v, m[0])
		if !ok {
			t.add(Fault{Code: "BAD_REFERENCE", Place: r.at, Path: v.path(), Message: clip(m[0]) + " is no reference",
				Hint: "write {{ STEP }} or {{ STEP.FIELD }}; a computation is a step of the type `transform` with `expr`"})
			continue
		}
		*out = append(*out, r)
	}
}

// maxPlaced is the length of the longest line in which a piece is looked for, in bytes.
const maxPlaced = 4 << 10

// placeOf is the place of a piece of a text. It is that of the whole text if the piece is written
// otherwise.
func (t *teller) placeOf(v *value, piece string) Place {
	most := strings.Count(v.text, "\n") + 2
	for i := v.at.Line - 1; i >= 0 && i < len(t.lines) && i < v.at.Line-1+most; i++ {
		if len(t.lines[i]) > maxPlaced {
			break
		}
		from := 0
		if i == v.at.Line-1 {
			from = min(len(string([]rune(t.lines[i])[:min(v.at.Column-1, len([]rune(t.lines[i])))])), len(t.lines[i]))
		}
		if k := strings.Index(t.lines[i][from:], piece); k >= 0 {
			return Place{i + 1, 1 + len([]rune(t.lines[i][:from+k]))}
		}
	}
	return v.at
}

// argument sets an argument of a node to a value with references.
func argument(n *workgraph.Node, name string, v json.RawMessage, refs []ref) {
	if len(refs) == 0 {
		if n.Named == nil {
			n.Named = map[string]json.RawMessage{}
		}
		n.Named[name] = v
		return
	}
	b := workgraph.Binding{Value: v}
	for _, r := range refs {
		b.Uses = append(b.Uses, workgraph.ResultUse{Mark: r.mark, Node: r.from(), Field: r.field()})
	}
	if n.Bind == nil {
		n.Bind = map[string]workgraph.Binding{}
	}
	n.Bind[name] = b
}
