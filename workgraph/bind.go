package workgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file gives named arguments the results of nodes before. That is a copy of values, so replaying a
// journal does it again, and nothing of it is in the journal.

// Binding is a named argument that is made of the results of nodes before.
type Binding struct {
	// Value is the argument with marks in its texts. A text that is a mark becomes the result itself.
	// In a longer text a mark becomes the result as text: a text as it is, another value as JSON.
	// Absent means the result of the only use.
	Value json.RawMessage `json:"value,omitempty"`
	Uses  []ResultUse     `json:"uses"`
}

// ResultUse is a use of the result of a node. It is the one that an expression finds as nodes.ID.
type ResultUse struct {
	// Mark stands for the result in the texts of the value. A mark that begins or ends with a letter, a
	// digit or _ is not found within a longer word.
	Mark string `json:"mark,omitempty"`
	Node string `json:"node"`
	// Field is a part of the result, such as "items[0].name"; empty is the result. "[-1]" is the last
	// element of a list. A result that is a text is read as JSON. A result without the field fails the
	// visit.
	Field string `json:"field,omitempty"`
	// OrWhole takes the result itself if it has no such field.
	OrWhole bool `json:"or_whole,omitempty"`
}

// ReasonBindingFailed is the reason of a visit whose bound argument cannot be made.
const ReasonBindingFailed = "BINDING_FAILED"

// CodeBadBinding is the code of a binding that cannot be used.
const CodeBadBinding = "BAD_BINDING"

// Bounds of the bindings of one node.
const (
	maxUses      = 100
	maxMark      = 256
	maxFieldText = 512
	maxFieldDeep = 32
	// maxMarkWork bounds the bytes of a value times its marks, which is what compiling it costs.
	maxMarkWork = 16 << 20
	// maxBoundBytes bounds the bytes that are read and written for the bindings of one visit.
	maxBoundBytes = 64 << 20
)

// pbinding is a compiled binding: its value cut at the marks.
type pbinding struct {
	arg    string
	uses   []puse
	pieces []piece
}

type puse struct {
	ResultUse
	path []string
}

// piece is a part of a value: raw JSON, and then the result of a use unless that is negative. quoted
// says that the result stands within a text.
type piece struct {
	raw    []byte
	use    int
	quoted bool
}

// Check is an error if the binding cannot be used, whatever the graph. It is that of ctx if ctx ended
// first.
func (b Binding) Check(ctx context.Context) error {
	_, err := b.compile(ctx)
	return err
}

func (b Binding) compile(ctx context.Context) (p pbinding, err error) {
	if len(b.Uses) == 0 {
		return p, errors.New("the binding uses no result: put the value into named")
	}
	if len(b.Uses) > maxUses {
		return p, fmt.Errorf("the binding uses more than %d results", maxUses)
	}
	p.uses = make([]puse, len(b.Uses))
	for i, u := range b.Uses {
		path, err := fieldPath(u.Field)
		switch {
		case err != nil:
			return p, err
		case u.Node == "":
			return p, fmt.Errorf("use number %d names no node", i+1)
		case len(u.Mark) > maxMark || !utf8.ValidString(u.Mark):
			return p, fmt.Errorf("the mark of use number %d is longer than %d bytes or not UTF-8", i+1, maxMark)
		}
		p.uses[i] = puse{u, path}
	}
	return p, p.cut(ctx, b.Value)
}

// checkBindings compiles the bindings of a node and reports their faults.
func (c *checker) checkBindings(n *Node) []pbinding {
	if len(n.Bind) == 0 {
		return nil
	}
	var out []pbinding
	uses := 0
	for _, arg := range sortedKeys(n.Bind) {
		b, place := n.Bind[arg], "bind."+arg
		fault := func(hint, format string, args ...any) { c.node(CodeBadBinding, n.ID, place, hint, format, args...) }
		uses += len(b.Uses)
		_, own := n.Named[arg]
		switch {
		case arg == "":
			fault("name the argument", "a binding has no name")
			continue
		case own || n.Map != nil && n.Map.As == arg:
			fault("give it once", "the argument %q is given in another way as well", arg)
			continue
		case uses > maxUses:
			fault("bind fewer arguments", "the bindings use more than %d results", maxUses)
			return nil
		}
		p, err := b.compile(c.ctx)
		if err != nil {
			fault("", "%s", err)
			continue
		}
		for _, u := range b.Uses {
			shown := u.Mark
			if shown == "" {
				shown = "nodes." + u.Node
			}
			c.uses = append(c.uses, exprUse{expr: &Expr{src: shown, nodeRefs: []string{u.Node}}, place: Fault{Node: n.ID, Field: place}, of: n.ID, at: n.ID})
		}
		p.arg = arg
		out = append(out, p)
	}
	return out
}

// fieldPath reads "items[0].name". Names with other characters stand in brackets and quotes.
func fieldPath(field string) (path []string, err error) {
	if len(field) > maxFieldText || !utf8.ValidString(field) {
		return nil, fmt.Errorf("the field is longer than %d bytes or not UTF-8", maxFieldText)
	}
	for rest := field; rest != ""; {
		var part string
		if rest[0] == '[' {
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, fmt.Errorf("the field %q lacks a ]", field)
			}
			part, rest = strings.Trim(strings.TrimSpace(rest[1:end]), `"'`), rest[end+1:]
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			part, rest = strings.TrimSpace(rest[:end]), rest[end:]
		}
		if part == "" {
			return nil, fmt.Errorf("the field %q has an empty part", field)
		}
		if path = append(path, part); len(path) > maxFieldDeep {
			return nil, fmt.Errorf("the field has more than %d parts", maxFieldDeep)
		}
		rest = strings.TrimPrefix(rest, ".")
	}
	return path, nil
}

// cut cuts the value at the marks of the uses. Every mark must stand in it.
func (p *pbinding) cut(ctx context.Context, value json.RawMessage) error {
	if len(value) == 0 {
		if len(p.uses) != 1 || p.uses[0].Mark != "" {
			return errors.New("without a value there is one use, which has no mark")
		}
		p.pieces = []piece{{use: 0}}
		return nil
	}
	if fault := ValueFault(value); fault != "" {
		return fmt.Errorf("the value %s", fault)
	}
	if len(value)*len(p.uses) > maxMarkWork {
		return fmt.Errorf("the value has %d bytes, too many for %d marks", len(value), len(p.uses))
	}
	longest := make([]int, len(p.uses)) // longer marks are found first
	for i := range p.uses {
		longest[i] = i
		switch mark := p.uses[i].Mark; {
		case mark == "":
			return fmt.Errorf("use number %d has no mark, so that it stands nowhere in the value", i+1)
		case slices.ContainsFunc(p.uses[:i], func(u puse) bool { return u.Mark == mark }):
			return fmt.Errorf("two uses have the mark %q", clipText(mark, 100))
		}
	}
	slices.SortStableFunc(longest, func(a, b int) int { return len(p.uses[b].Mark) - len(p.uses[a].Mark) })
	found := make([]bool, len(p.uses))
	var raw []byte
	put := func(use int, quoted bool) {
		p.pieces, raw = append(p.pieces, piece{raw, use, quoted}), nil
		found[use] = true
	}
	for i := 0; i < len(value); {
		if value[i] != '"' {
			raw = append(raw, value[i])
			i++
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		end := i + 1
		for value[end] != '"' {
			if value[end] == '\\' {
				end++
			}
			end++
		}
		text := value[i : end+1]
		i = end + 1
		if after := bytes.TrimLeft(value[i:], " \t\r\n"); len(after) > 0 && after[0] == ':' {
			raw = append(raw, text...) // the name of a field
			continue
		}
		var s string
		if json.Unmarshal(text, &s) != nil {
			return errors.New("the value holds a text that is none")
		}
		if at := slices.IndexFunc(p.uses, func(u puse) bool { return u.Mark == strings.TrimSpace(s) }); at >= 0 {
			put(at, false)
			continue
		}
		raw = append(raw, '"')
		from := 0
		for k := 0; k < len(s); {
			at := slices.IndexFunc(longest, func(u int) bool { return standsAt(s, k, p.uses[u].Mark) })
			if at < 0 {
				k++
				continue
			}
			raw = append(raw, inText(s[from:k])...)
			put(longest[at], true)
			k += len(p.uses[longest[at]].Mark)
			from = k
		}
		raw = append(append(raw, inText(s[from:])...), '"')
	}
	if len(raw) > 0 {
		p.pieces = append(p.pieces, piece{raw, -1, false})
	}
	if at := slices.Index(found, false); at >= 0 {
		return fmt.Errorf("the mark %q stands nowhere in the value", clipText(p.uses[at].Mark, 100))
	}
	return nil
}

// standsAt reports whether a mark stands in s at k, and not within a longer word.
func standsAt(s string, k int, mark string) bool {
	if !strings.HasPrefix(s[k:], mark) {
		return false
	}
	end := k + len(mark)
	return !(k > 0 && word(mark[0]) && word(s[k-1])) && !(end < len(s) && word(mark[len(mark)-1]) && word(s[end]))
}

func word(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b >= utf8.RuneSelf
}

// inText is s as it stands between the quotation marks of a JSON text.
func inText(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return nil // texts always marshal
	}
	return b[1 : len(b)-1]
}

// bound are the bound arguments of a visit.
func (s *State) bound(ns *nodeState) (map[string]json.RawMessage, *Error) {
	bindings := s.node(ns).bindings
	if len(bindings) == 0 {
		return nil, nil
	}
	out := make(map[string]json.RawMessage, len(bindings))
	room := maxBoundBytes
	for i := range bindings {
		b := &bindings[i]
		values := make([]json.RawMessage, len(b.uses))
		for k := range b.uses {
			v, err := s.used(ns, &b.uses[k], &room)
			if err != nil {
				return nil, Errorf(Permanent, ReasonBindingFailed, "argument %q: %v", b.arg, err)
			}
			values[k] = v
		}
		v, ok := b.filled(values, &room)
		if !ok {
			return nil, Errorf(Permanent, ReasonBindingFailed, "argument %q: the results have more than %d bytes together: keep large results outside and pass references", b.arg, maxBoundBytes)
		}
		out[b.arg] = v
	}
	return out, nil
}

// boundOf are the bound arguments of a visit that has begun.
func (s *State) boundOf(ns *nodeState) map[string]json.RawMessage {
	if ns.m != nil && ns.m.bound != nil {
		return ns.m.bound
	}
	out, err := s.bound(ns)
	if err != nil {
		return nil // cannot happen: the visit began, so they could be made
	}
	if ns.m != nil {
		ns.m.bound = out
	}
	return out
}

// used is the value of a use. What is read is taken off room.
func (s *State) used(ns *nodeState, u *puse, room *int) (json.RawMessage, error) {
	var from *nodeState
	if x, ok := s.p.resolve(s.p.nodes[ns.n].ID, u.Node); ok {
		from = s.ancestor(ns, x, nil)
	}
	if from == nil {
		return nil, fmt.Errorf("node %q has no result here", u.Node)
	}
	whole := single(from.values)
	if len(u.path) == 0 {
		return whole, nil
	}
	v := whole
	for i, name := range u.path {
		if *room -= len(v); *room < 0 {
			return nil, fmt.Errorf("the results have more than %d bytes together", maxBoundBytes)
		}
		part, has, ok := member(v, name)
		if !ok && u.OrWhole {
			return whole, nil
		}
		if !ok {
			return nil, fmt.Errorf("the result of %q has no %q%s", u.Node, strings.Join(u.path[:i+1], "."), has)
		}
		v = part
	}
	return v, nil
}

// maxHas bounds the names of fields in a message.
const maxHas = 10

// member is a part of a value: a field of an object, or an element of a list by its number from 0, or
// from -1 downwards from the end. has says what there is instead.
func member(v json.RawMessage, name string) (part json.RawMessage, has string, ok bool) {
	v = bytes.TrimSpace(v)
	if len(v) > 0 && v[0] == '"' {
		var text string
		if json.Unmarshal(v, &text) != nil || !json.Valid([]byte(text)) {
			return nil, ": it is a text", false
		}
		v = bytes.TrimSpace([]byte(text))
	}
	switch {
	case len(v) > 0 && v[0] == '{':
		var m map[string]json.RawMessage
		if json.Unmarshal(v, &m) != nil {
			return nil, "", false
		}
		if part, ok = m[name]; !ok {
			names := sortedKeys(m)
			for i := range names {
				names[i] = clipText(names[i], 50)
			}
			has = ": it has " + strings.Join(names[:min(len(names), maxHas)], ", ")
		}
	case len(v) > 0 && v[0] == '[':
		list, _ := splitList(v)
		i, err := strconv.Atoi(name)
		if i < 0 {
			i += len(list) // from the end
		}
		if err == nil && i >= 0 && i < len(list) {
			return list[i], "", true
		}
		has = fmt.Sprintf(": it is a list of %d", len(list))
	default:
		has = ": it is no object"
	}
	return part, has, ok
}

// filled is the argument with these results. ok is false if there is no room for it.
func (p *pbinding) filled(values []json.RawMessage, room *int) (out json.RawMessage, ok bool) {
	if q := p.pieces[0]; len(p.pieces) == 1 && q.use >= 0 && len(q.raw) == 0 {
		return values[q.use], true
	}
	for _, q := range p.pieces {
		n := len(q.raw)
		if q.use >= 0 {
			n += len(values[q.use])
		}
		if *room -= n; *room < 0 {
			return nil, false
		}
		out = append(out, q.raw...)
		switch {
		case q.use < 0:
		case q.quoted:
			out = append(out, asText(values[q.use])...)
		default:
			out = append(out, values[q.use]...)
		}
	}
	return out, true
}

// asText is a value as it stands within a JSON text: a text as it is, another value as JSON.
func asText(v json.RawMessage) []byte {
	var s string
	if json.Unmarshal(v, &s) == nil && string(bytes.TrimSpace(v)) != "null" {
		return inText(s)
	}
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return nil // values are JSON
	}
	return inText(b.String())
}
