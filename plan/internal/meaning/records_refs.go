package meaning

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// labels finds items by how a text calls them.
type labels struct {
	ids     []string
	exact   map[string]int
	folded  map[string]int
	other   map[string]int // titles and places
	numeric bool
	zero    bool // places count from 0
}

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

// also makes an item known by another name, unless another item has it.
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

// find returns the place of the item that is called s.
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

func squash(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '\u200c' {
			return -1
		}
		return r
	}, lexicon.Fold(s))
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// saidOf is one reference in a cell: the item it means, or -1 and the text as written.
type saidOf struct {
	at   int
	text string
	off  int
}

// maxMentions bounds what is read of one cell.
const maxMentions = 2000

// mentions returns what the value of a field refers to. Rest is set when it holds more than references.
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

// inMap looks for the reference in an object such as {"job": "a", "artifacts": true}: the values that are ids, or the one
// under a name that refers.
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
		if _, ok := n.find(f.Val.Text()); ok && !found && !otherRole(f.Key) {
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

// inElement reads the reference in an element such as <after ref="x"/> or <after><ref>x</ref></after>.
func (n *labels) inElement(v *form.Value, walk func(*form.Value, int), depth int) {
	hit := false
	for i := range v.Fields {
		if f := &v.Fields[i]; f.Val.IsScalar() {
			if _, ok := n.find(f.Val.Text()); ok {
				hit = true
			}
		}
	}
	for i := range v.Fields {
		f := &v.Fields[i]
		if !f.Val.IsScalar() {
			walk(f.Val, depth+1)
			continue
		}
		if _, ok := n.find(f.Val.Text()); ok || !hit && !otherRole(f.Key) {
			walk(f.Val, depth+1)
		}
	}
}

// otherRole reports whether a field is known to be about something else than references.
func otherRole(key string) bool {
	switch role, _ := lexicon.Field(key); role {
	case lexicon.Status, lexicon.Owner, lexicon.Duration, lexicon.Output, lexicon.Tool:
		return true
	}
	return strings.EqualFold(key, "type") || strings.EqualFold(key, "kind") || strings.EqualFold(key, "condition")
}

// isNone reports whether a cell says that there is nothing.
func isNone(s string) bool {
	s = strings.Trim(strings.TrimSpace(s), "().[]{}<>*_ \"'")
	if s == "" || strings.Trim(s, "-–—−‒―∅/") == "" || lexicon.Is(lexicon.None, s) {
		return true
	}
	switch strings.ToLower(s) {
	case "null", "nil", "none", "n/a", "na", "false", "start", "–", "-1":
		return true
	}
	return false
}

// cell splits the text of a cell into references.
func (n *labels) cell(s string, off int) (all []saidOf, rest bool) {
	if isNone(s) {
		return nil, false
	}
	if k, ok := n.find(s); ok {
		return []saidOf{{k, s, off}}, false
	}
	parts := splitCell(s, ",;|&\n、，；・·،؛\t")
	var add func(p cellPart, level int)
	add = func(p cellPart, level int) {
		if len(all) > maxMentions || isNone(p.text) {
			return
		}
		if k, ok := n.find(p.text); ok {
			all = append(all, saidOf{k, p.text, off + p.off})
			return
		}
		if list, ok := n.span(p.text); ok {
			for _, k := range list {
				all = append(all, saidOf{k, p.text, off + p.off})
			}
			return
		}
		if k, ok := n.lagged(p.text); ok {
			all = append(all, saidOf{k, p.text, off + p.off})
			return
		}
		if level == 0 {
			if more := splitAnd(p); len(more) > 1 {
				for _, m := range more {
					add(m, 1)
				}
				return
			}
		}
		if level < 2 {
			if more := splitCell(p.text, " +/\u00a0"); len(more) > 1 && n.some(more) {
				for _, m := range more {
					m.off += p.off
					if lexicon.Is(lexicon.Steps, strings.Trim(m.text, ".:")) || lexicon.Is(lexicon.And, m.text) {
						continue
					}
					add(m, 2)
				}
				return
			}
		}
		rest = rest || strings.Count(p.text, " ") > 3
		all = append(all, saidOf{-1, p.text, off + p.off})
	}
	for _, p := range parts {
		add(p, 0)
	}
	return all, rest
}

// some reports whether all parts but nouns for steps are items, or have numbers of items with signs of a schedule.
func (n *labels) some(parts []cellPart) bool {
	hits := 0
	for _, p := range parts {
		if _, ok := n.find(p.text); ok {
			hits++
			continue
		}
		if _, ok := n.lagged(p.text); ok {
			hits++
			continue
		}
		if !lexicon.Is(lexicon.Steps, strings.Trim(p.text, ".:")) && !lexicon.Is(lexicon.And, p.text) && !brief(p.text) {
			return false
		}
	}
	return hits > 0
}

// brief reports whether s looks like an id: one word with a digit.
func brief(s string) bool {
	return len(s) < 12 && strings.ContainsAny(s, "0123456789") && !strings.ContainsAny(s, " +")
}

type cellPart struct {
	text string
	off  int
}

func splitCell(s, seps string) []cellPart {
	var out []cellPart
	from := 0
	put := func(to int) {
		raw := s[from:to]
		t := strings.TrimSpace(raw)
		if t != "" {
			out = append(out, cellPart{t, from + strings.Index(raw, t)})
		}
	}
	for i, r := range s {
		if strings.ContainsRune(seps, r) {
			put(i)
			from = i + utf8.RuneLen(r)
		}
	}
	put(len(s))
	return out
}

// splitAnd splits a part at the words for "and" of all languages.
func splitAnd(p cellPart) []cellPart {
	var out []cellPart
	from := 0
	put := func(to int) {
		raw := p.text[from:to]
		if t := strings.TrimSpace(raw); t != "" {
			out = append(out, cellPart{t, p.off + from + strings.Index(raw, t)})
		}
	}
	if len(p.text) > 2000 {
		return nil
	}
	for _, t := range lexicon.Scan(p.text) {
		if t.Is(lexicon.And) && t.Off >= from {
			put(t.Off)
			from = t.End
		}
	}
	if from == 0 {
		return nil
	}
	put(len(p.text))
	return out
}

// span reads a range of items: 2-4, T1–T3, 2 to 5, 2..4.
func (n *labels) span(s string) ([]int, bool) {
	for _, sep := range [...]string{"–", "—", "..", "…", "~", "～", "-", " to ", " bis ", "至", "から"} {
		a, b, ok := strings.Cut(s, sep)
		if !ok || strings.Contains(b, sep) {
			continue
		}
		a, b = strings.TrimSpace(strings.Trim(a, ".")), strings.TrimSpace(strings.Trim(b, "."))
		i, okA := n.find(a)
		j, okB := n.find(b)
		if !okB && digits(b) && len(a) > 1 && !digits(a) {
			// T1-3
			j, okB = n.find(strings.TrimRight(a, "0123456789") + b)
		}
		if !okA || !okB || j <= i || !strings.ContainsAny(a, "0123456789") || j-i > 500 {
			continue
		}
		list := make([]int, 0, j-i+1)
		for ; i <= j; i++ {
			list = append(list, i)
		}
		return list, true
	}
	return nil, false
}

// lagged reads an item with a kind of link and a lag, as schedules write them: 3FS+2d, 12EA, 4SS + 1 day, 5+3d.
func (n *labels) lagged(s string) (int, bool) {
	// The lag is cut off first, then up to three letters.
	t := s
	if i := strings.IndexAny(t, "+-−"); i > 0 {
		lag := strings.TrimSpace(strings.TrimLeft(t[i:], "+-−"))
		if lag == "" || lag[0] < '0' || lag[0] > '9' {
			return 0, false
		}
		t = strings.TrimSpace(t[:i])
		if k, ok := n.find(t); ok {
			return k, true
		}
	}
	if i := strings.IndexAny(t, "(（["); i > 0 {
		t = strings.TrimSpace(t[:i])
		if k, ok := n.find(t); ok {
			return k, true
		}
	}
	for range 3 {
		r, size := utf8.DecodeLastRuneInString(t)
		if !unicode.IsLetter(r) {
			return 0, false
		}
		t = strings.TrimSpace(t[:len(t)-size])
		if k, ok := n.exact[t]; ok && t[len(t)-1] <= '9' {
			return k, true
		}
	}
	return 0, false
}

// usage is a reference to an item's result in a text.
type usage struct {
	text, path string
	at, off    int
}

// uses finds the references to the results of items in a text: $x, ${x.y}, {{x.output}}, ${{ needs.x.outputs.y }},
// #E1, <x>, %x%, @x. Lost are labels in them that no item has.
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
			// {{ x.y | filter }}: the first word may be an item although the rest is an expression.
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

// openAt returns the sign that opens a reference at the start of s, what stands in it, and its whole length.
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

// path resolves "steps.x.outputs.y" and "x[0].y" to the first of its labels that is an item's.
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
	if k, found := n.named(s); found {
		return k, "", true
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
	if i, ok := n.exact["#"+s]; ok {
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
