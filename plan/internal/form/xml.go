package form

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TextKey is the key of an element's text among its attributes and children.
const TextKey = "#text"

// XML returns the outermost elements of the text that contain other elements or attributes, with any names.
// An element is an object whose Str is the name of the tag. Its fields are attributes, children and text, in
// order. An element that contains only text is a text. HTML tables are lists of rows.
func XML(src *Source) []*Tree {
	p := &xmlParser{src: src, s: src.Text, budget: maxValueNodes}
	p.run()
	return p.trees
}

type element struct {
	val  *Value
	text strings.Builder
	// textOff is the offset of its text.
	textOff int
}

type xmlParser struct {
	src    *Source
	s      string
	open   []*element
	trees  []*Tree
	faults []Fault
	budget int
	// missing holds the end signs that do not occur in the rest of the text.
	missing map[string]bool
}

func (p *xmlParser) run() {
	for i := 0; i < len(p.s) && p.budget > 0; {
		n := strings.IndexByte(p.s[i:], '<')
		if n < 0 {
			p.addText(i, len(p.s))
			break
		}
		p.addText(i, i+n)
		i += n
		if m := p.tag(i); m > 0 {
			i += m
		} else {
			p.addText(i, i+1)
			i++
		}
	}
	if len(p.open) > 0 {
		cut := p.open[len(p.open)-1]
		p.fault(cut.val.Off, cut.val.Str, "the element "+cut.val.Str+" is not closed")
	}
	for len(p.open) > 0 {
		p.close(len(p.s), true)
	}
}

func (p *xmlParser) fault(off int, element, message string) {
	if len(p.faults) < 1000 {
		p.faults = append(p.faults, Fault{true, CodeUnclosed, off, element, message, "write its end tag"})
	}
}

func (p *xmlParser) addText(from, to int) {
	if len(p.open) == 0 || from >= to {
		return
	}
	e := p.open[len(p.open)-1]
	if e.text.Len() == 0 {
		if strings.TrimSpace(p.s[from:to]) == "" {
			return
		}
		e.textOff = from + len(p.s[from:to]) - len(strings.TrimLeft(p.s[from:to], " \t\r\n"))
	}
	e.text.WriteString(p.s[from:to])
}

// index returns the place of a sign behind i, or -1. It records a sign that does not occur any more, so that
// the text is searched for it only once.
func (p *xmlParser) index(i int, sign string) int {
	if p.missing[sign] {
		return -1
	}
	n := strings.Index(p.s[i:], sign)
	if n < 0 {
		if p.missing == nil {
			p.missing = map[string]bool{}
		}
		p.missing[sign] = true
	}
	return n
}

// tag reads the tag at i and returns its length, or 0 if there is no tag.
func (p *xmlParser) tag(i int) int {
	rest := p.s[i:]
	for _, x := range [...][2]string{{"<!--", "-->"}, {"<?", "?>"}, {"<!DOCTYPE", ">"}} {
		if strings.HasPrefix(rest, x[0]) {
			if n := p.index(i, x[1]); n >= 0 {
				return n + len(x[1])
			}
			return len(x[0])
		}
	}
	if strings.HasPrefix(rest, "<![CDATA[") {
		n := p.index(i, "]]>")
		if n < 0 {
			n = len(rest)
		}
		p.addText(i+9, i+n)
		return min(n+3, len(rest))
	}
	if strings.HasPrefix(rest, "</") {
		name := xmlName(rest[2:])
		n := strings.IndexByte(rest[:min(len(rest), len(name)+40)], '>')
		if name == "" || n < 0 {
			return 0
		}
		p.end(name, i, i+n+1)
		return n + 1
	}
	name := xmlName(rest[1:])
	if name == "" {
		return 0
	}
	v := &Value{Kind: KindObject, Str: name, Off: i}
	j, selfClosing, ok := p.attributes(v, i+1+len(name))
	if !ok {
		return 0
	}
	if strings.EqualFold(name, "br") || strings.EqualFold(name, "hr") {
		p.addText(i, i) // a line break separates two words
		if len(p.open) > 0 {
			p.open[len(p.open)-1].text.WriteString("; ")
		}
		return j - i
	}
	p.budget--
	if len(p.open) >= p.src.MaxDepth {
		return j - i
	}
	p.open = append(p.open, &element{val: v})
	if selfClosing {
		p.close(j, false)
	}
	return j - i
}

// maxTag bounds the length of a tag.
const maxTag = 4000

// attributes reads the attributes of a tag, up to the end of the tag.
func (p *xmlParser) attributes(v *Value, i int) (end int, selfClosing, ok bool) {
	s := p.s[:min(len(p.s), i+maxTag)]
	for i < len(s) {
		switch c := s[i]; {
		case c == '>':
			return i + 1, false, true
		case c == '/' && i+1 < len(s) && s[i+1] == '>':
			return i + 2, true, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '/':
			i++
			continue
		}
		name := xmlName(s[i:])
		if name == "" {
			return i, false, false
		}
		f := Field{Key: name, Off: i}
		i += len(name)
		for i < len(s) && (s[i] == ' ' || s[i] == '=') {
			i++
		}
		if i >= len(s) {
			return i, false, false
		}
		q := s[i]
		if q != '"' && q != '\'' {
			if s[i-1] != '=' {
				return i, false, false
			}
			j := i
			for j < len(s) && strings.IndexByte(" \t\r\n>/<", s[j]) < 0 {
				j++
			}
			f.Val = &Value{Kind: KindString, Str: s[i:j], Off: i, End: j}
			i = j
		} else {
			n := strings.IndexByte(s[i+1:], q)
			if n < 0 {
				return i, false, false
			}
			f.Val = &Value{Kind: KindString, Str: unentity(s[i+1 : i+1+n]), Off: i + 1, End: i + 1 + n}
			i += n + 2
		}
		v.Fields = append(v.Fields, f)
	}
	return i, false, false
}

// Tag reads the tag at s[i:]. It returns the name as written, with a leading / for an end tag, the
// attributes, and the length, which is 0 if there is no tag.
func Tag(s string, i int) (name string, attrs []Field, n int) {
	at := i + 1
	if strings.HasPrefix(s[i:], "</") {
		name, at = "/", i+2
	}
	word := xmlName(s[at:])
	v := &Value{}
	end, _, ok := (&xmlParser{s: s}).attributes(v, at+len(word))
	if word == "" || !ok {
		return "", nil, 0
	}
	return name + word, v.Fields, end - i
}

// end closes the innermost open element with the name, and the unclosed elements inside it.
func (p *xmlParser) end(name string, from, to int) {
	at := len(p.open) - 1
	for at >= 0 && at >= len(p.open)-8 && p.open[at].val.Str != name {
		at--
	}
	if at < 0 || p.open[at].val.Str != name {
		return
	}
	for len(p.open)-1 > at {
		e := p.open[len(p.open)-1]
		if !strings.EqualFold(e.val.Str, "p") && !strings.EqualFold(e.val.Str, "li") && !strings.EqualFold(e.val.Str, "td") && !strings.EqualFold(e.val.Str, "tr") {
			p.fault(e.val.Off, e.val.Str, "the element "+e.val.Str+" is not closed")
		}
		p.close(from, false)
	}
	p.close(to, false)
}

// close removes the innermost element from the stack and adds it to the element around it.
func (p *xmlParser) close(end int, cut bool) {
	e := p.open[len(p.open)-1]
	p.open = p.open[:len(p.open)-1]
	v := e.val
	v.End, v.Open = end, cut
	if text := strings.TrimSpace(unentity(e.text.String())); text != "" {
		t := &Value{Kind: KindString, Str: strings.Join(strings.Fields(text), " "), Off: e.textOff, End: end}
		if len(v.Fields) == 0 {
			if len(p.open) > 0 {
				p.give(v.Str, v.Off, t)
			}
			return
		}
		v.Fields = append(v.Fields, Field{Key: TextKey, Off: e.textOff, Val: t})
	}
	if rows := p.htmlRows(v); rows != nil {
		v = rows
	}
	if len(p.open) > 0 {
		p.give(e.val.Str, e.val.Off, v)
		return
	}
	if len(v.Fields)+len(v.Items) > 0 {
		p.trees = append(p.trees, &Tree{Root: v, AnyKeys: true, Texts: true, Faults: p.faults, CutOff: cut})
		p.faults = nil
	}
}

// inline are the HTML tags that only change the look of a text.
var inline = map[string]bool{"b": true, "strong": true, "i": true, "em": true, "code": true, "span": true, "u": true, "a": true, "tt": true, "small": true, "sup": true, "sub": true, "s": true, "del": true}

func (p *xmlParser) give(name string, off int, v *Value) {
	e := p.open[len(p.open)-1]
	if v.Kind == KindString && inline[strings.ToLower(name)] {
		e.text.WriteString(v.Str)
		if e.textOff == 0 {
			e.textOff = v.Off
		}
		return
	}
	e.val.Fields = append(e.val.Fields, Field{Key: name, Off: off, Val: v})
}

// htmlRows returns the rows of an HTML table as objects, or nil if v is no table.
func (p *xmlParser) htmlRows(v *Value) *Value {
	if !strings.EqualFold(v.Str, "table") {
		return nil
	}
	var rows []*Value
	var walk func(*Value, int)
	walk = func(v *Value, depth int) {
		for i := range v.Fields {
			f := &v.Fields[i]
			switch {
			case strings.EqualFold(f.Key, "tr") && f.Val.Kind == KindObject:
				rows = append(rows, f.Val)
			case f.Val.Kind == KindObject && depth < 4:
				walk(f.Val, depth+1)
			}
		}
	}
	walk(v, 0)
	if len(rows) < 2 {
		return nil
	}
	t := newTable(v.Off)
	for _, r := range rows {
		var cells []*Value
		for i := range r.Fields {
			if k := strings.ToLower(r.Fields[i].Key); k == "td" || k == "th" {
				c := r.Fields[i].Val
				if c.Kind != KindString {
					c = &Value{Kind: KindString, Str: p.allText(c), Off: c.Off, End: c.End}
				}
				cells = append(cells, c)
			}
		}
		t.row(cells, r.Off, r.End)
	}
	return t.list
}

// allText joins the texts in an element, without its attributes.
func (p *xmlParser) allText(v *Value) string {
	if v.Kind == KindString {
		return v.Str
	}
	var parts []string
	for i := range v.Fields {
		if f := &v.Fields[i]; f.Key == TextKey || p.s[f.Off] == '<' {
			parts = append(parts, p.allText(f.Val))
		}
	}
	return strings.Join(parts, "; ")
}

// unentity decodes the entities of XML.
func unentity(s string) string {
	if strings.IndexByte(s, '&') < 0 {
		return s
	}
	return html.UnescapeString(s)
}

// xmlName returns the name at the start of s: letters of any script, digits, and . - _ :.
func xmlName(s string) string {
	for i, r := range s {
		switch {
		case unicode.IsLetter(r) || r == '_', unicode.IsMark(r) && i > 0:
			continue
		case i > 0 && (unicode.IsDigit(r) || r == '-' || r == '.' || r == ':'):
			continue
		}
		if i > 100 || r == utf8.RuneError {
			return ""
		}
		return s[:i]
	}
	return s
}
