package meaning

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// labels finds items by the names that a text uses.
type labels struct {
	ids     []string
	exact   map[string]int
	folded  map[string]int
	other   map[string]int // titles and other names
	numeric bool
	zero    bool // numbers count records from 0
}

// newNames prepares lookups of ids. Of equal ids the first one counts.
func newNames(ids []string) *labels {
	n := &labels{ids: ids, exact: make(map[string]int, len(ids)), folded: make(map[string]int, len(ids)), other: map[string]int{}, numeric: true}
	for i, id := range ids {
		if _, ok := n.exact[id]; !ok {
			n.exact[id] = i
		}
		if k := squash(id); k != "" {
			if _, ok := n.folded[k]; !ok {
				n.folded[k] = i
			}
		}
		n.numeric = n.numeric && digits(id)
	}
	return n
}

// also adds another name for an item. A name of several items is dropped.
func (n *labels) also(name string, i int) {
	name = strings.TrimSpace(name)
	if name == "" {
		return
	}
	if _, ok := n.exact[name]; ok {
		return
	}
	if k, ok := n.other[name]; ok && k != i {
		n.other[name] = -1
		return
	}
	n.other[name] = i
}

// find returns the index of the item that s names: by id, by another name, or by position.
func (n *labels) find(s string) (int, bool) {
	s = strings.TrimSpace(s)
	if i, ok := n.exact[s]; ok {
		return i, true
	}
	if i, ok := n.other[s]; ok && i >= 0 {
		return i, true
	}
	t := strings.Trim(s, "\"'`#[]()<>*.。")
	if i, ok := n.exact[t]; ok && t != "" {
		return i, true
	}
	if i, ok := n.folded[squash(t)]; ok && t != "" {
		return i, true
	}
	if i, ok := n.other[t]; ok && i >= 0 {
		return i, true
	}
	if digits(t) && len(t) < 9 && !n.numeric {
		k, _ := strconv.Atoi(t)
		if !n.zero {
			k--
		}
		if k >= 0 && k < len(n.ids) {
			return k, true
		}
	}
	return 0, false
}

// byName is find without positions.
func (n *labels) byName(s string) (int, bool) {
	if _, ok := n.exact[s]; !ok && digits(strings.TrimSpace(s)) {
		return 0, false
	}
	return n.find(s)
}

// squash removes the separators between the words of a name, except between two numbers.
func squash(s string) string {
	s = lexicon.Fold(s)
	var sb strings.Builder
	var last, gap rune
	for _, r := range s {
		if r == '_' || r == '-' || r == ' ' || r == '\u200c' {
			gap = r
			continue
		}
		if gap != 0 && unicode.IsDigit(last) && unicode.IsDigit(r) {
			sb.WriteByte(' ')
		}
		sb.WriteRune(r)
		last, gap = r, 0
	}
	return sb.String()
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// saidOf is a reference in a cell: the index of the item, or -1 and the text.
type saidOf struct {
	at   int
	text string
	off  int
}

// maxMentions bounds the references in a cell.
const maxMentions = 2000

// mentions returns the references in the value of a field. rest is set if the value holds anything else.
func (n *labels) mentions(v *form.Value) (all []saidOf, rest bool) {
	var walk func(v *form.Value, depth int)
	walk = func(v *form.Value, depth int) {
		if v == nil || depth > 8 || len(all) > maxMentions {
			return
		}
		switch {
		case v.Kind == form.KindNull, v.Kind == form.KindBool:
			rest = rest || v.Kind == form.KindBool
		case v.IsScalar():
			m, r := n.cell(v.Str, v.Off)
			all, rest = append(all, m...), rest || r
		case v.Kind == form.KindList:
			for _, x := range v.Items {
				walk(x, depth+1)
			}
		case isMap(v):
			if v.Str != "" && v.Kind == form.KindObject {
				n.inElement(v, walk, depth)
				return
			}
			hits := 0
			for i := range v.Fields {
				if _, ok := n.find(v.Fields[i].Key); ok {
					hits++
				}
			}
			if hits > 0 {
				for i := range v.Fields {
					f := &v.Fields[i]
					k, ok := n.find(f.Key)
					if !ok {
						k = -1
					}
					all = append(all, saidOf{k, f.Key, f.Off})
				}
				return
			}
			n.inMap(v, walk, depth)
		}
	}
	walk(v, 0)
	return all, rest
}

// inMap looks for the reference in an object such as {"job": "a", "artifacts": true}: the values that are
// ids, or else the value of a field for references.
func (n *labels) inMap(v *form.Value, walk func(*form.Value, int), depth int) {
	var named *form.Value
	found := false
	for i := range v.Fields {
		f := &v.Fields[i]
		if !f.Val.IsScalar() {
			if f.Val.Kind == form.KindList || isMap(f.Val) {
				walk(f.Val, depth+1)
			}
			continue
		}
		if _, ok := n.find(f.Val.Text()); ok && !otherRole(f.Key) && !(found && digits(f.Val.Text())) {
			walk(f.Val, depth+1)
			found = true
		}
		if role, ok := lexicon.Field(f.Key); named == nil && ok && (role == lexicon.ID || role == lexicon.Title || role == lexicon.Requires) {
			named = f.Val
		}
	}
	if !found && named != nil {
		walk(named, depth+1)
	}
}

// inElement reads the references in an element such as <after ref="x"/> or <after><ref>x</ref></after>: the
// texts that are ids, or else all texts.
func (n *labels) inElement(v *form.Value, walk func(*form.Value, int), depth int) {
	var ids, other []*form.Value
	for i := range v.Fields {
		f := &v.Fields[i]
		if !f.Val.IsScalar() {
			walk(f.Val, depth+1)
		} else if _, ok := n.find(f.Val.Text()); otherRole(f.Key) {
			continue
		} else if ok {
			ids = append(ids, f.Val)
		} else {
			other = append(other, f.Val)
		}
	}
	if len(ids) == 0 {
		ids = other
	}
	for _, x := range ids {
		walk(x, depth+1)
	}
}

// otherRole reports whether a field has a role that excludes references.
func otherRole(key string) bool {
	switch role, _ := lexicon.Field(key); role {
	case lexicon.Status, lexicon.Owner, lexicon.Duration, lexicon.Output, lexicon.Tool:
		return true
	}
	return strings.EqualFold(key, "type") || strings.EqualFold(key, "kind") || strings.EqualFold(key, "condition")
}

// usage is a use of an item's result in a text.
type usage struct {
	text, path string
	at, off    int
}

// uses finds the uses of results in a text: $x, ${x.y}, {{x.output}}, ${{ needs.x.outputs.y }}, #E1, <x>,
// %x%, @x. It calls lost, which may be nil, with labels that no item has.
func (n *labels) uses(s string, lost func(name string)) []usage {
	var out []usage
	for i := 0; i < len(s) && len(out) < 1000; {
		open, body, size := openAt(s[i:])
		if size == 0 {
			i++
			continue
		}
		at, path, ok := n.path(body)
		if ok {
			out = append(out, usage{s[i : i+size], path, at, i})
			i += size
			continue
		}
		if open == "{{" || open == "${" {
			// In {{ x.y | filter }} a name may be an item although the whole is an expression.
			found := false
			for _, w := range expressionNames(body) {
				if at, path, ok := n.path(w); ok && strings.ContainsAny(w, ".[") {
					out = append(out, usage{s[i : i+size], path, at, i})
					found = true
				}
			}
			if !found && lost != nil {
				lost(body)
			}
		} else if lost != nil && open == "$" {
			lost(body)
		}
		i += len(open)
	}
	return out
}

// openAt returns the opening sign of a reference at the start of s, the text inside, and the length of the
// whole reference, or 0.
func openAt(s string) (open, body string, size int) {
	for _, p := range [...][2]string{{"${{", "}}"}, {"{{", "}}"}, {"${", "}"}, {"$(", ")"}} {
		if strings.HasPrefix(s, p[0]) {
			if end := strings.Index(s[:min(len(s), 300)], p[1]); end > 0 {
				sign := p[0]
				if sign != "{{" {
					sign = "${"
				}
				return sign, strings.TrimSpace(s[len(p[0]):end]), end + len(p[1])
			}
			return "", "", 0
		}
	}
	switch s[0] {
	case '$', '@', '#':
		if s[0] == '$' && priced(s[:min(len(s), 24)]) && strings.IndexByte(s[:min(len(s), 6)], ',') > 1 {
			return "", "", 0 // an amount of money
		}
		j := 1
		for j < len(s) && j < 200 {
			r, w := utf8.DecodeRuneInString(s[j:])
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && !(r == '-' && s[0] != '$') && !(r == '.' && j > 1 && j+w < len(s) && wordAt(s[j+w:])) && r != '[' && r != ']' {
				break
			}
			j += w
		}
		if j > 1 {
			return s[:1], s[1:j], j
		}
	case '<', '%', '{':
		closing := map[byte]byte{'<': '>', '%': '%', '{': '}'}[s[0]]
		if end := strings.IndexByte(s[1:min(len(s), 120)], closing); end > 0 && !strings.ContainsAny(s[1:1+end], " \n\"'=/:,") {
			return s[:1], s[1 : 1+end], end + 2
		}
	}
	return "", "", 0
}

func wordAt(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r) || r == '_' || unicode.IsDigit(r)
}

// path resolves "steps.x.outputs.y" or "x[0].y" to the first of its labels that names an item, and the rest.
func (n *labels) path(s string) (at int, path string, ok bool) {
	from := 0
	for c := 0; c < 4 && from < len(s); c++ {
		end := from
		for end < len(s) && strings.IndexByte(".[]'\"()", s[end]) < 0 {
			end++
		}
		name := strings.TrimSpace(s[from:end])
		if k, found := n.named(name); found {
			return k, strings.Trim(s[end:], ".]'\""), true
		}
		from = end + 1
	}
	return 0, "", false
}

// named finds an item by a name inside a reference: its id, another name, or its id behind #, E or "step".
func (n *labels) named(s string) (int, bool) {
	if s == "" {
		return 0, false
	}
	if i, ok := n.exact[s]; ok {
		return i, true
	}
	if i, ok := n.other[s]; ok && i >= 0 {
		return i, true
	}
	if i, ok := n.folded[squash(s)]; ok && len(s) > 1 {
		return i, true
	}
	if n.numeric || len(n.exact) == 0 {
		if cut := strings.TrimRight(s, "0123456789"); cut != s && cut != "" {
			if _, ok := n.exact[s[len(cut):]]; ok && (lexicon.Is(lexicon.Steps, strings.Trim(splitName(cut), " ")) || len(cut) == 1) {
				return n.exact[s[len(cut):]], true
			}
		}
	}
	return 0, false
}

// expressionNames returns the dotted names in an expression.
func expressionNames(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '.' && r != '-' && r != '[' && r != ']'
	})
}
