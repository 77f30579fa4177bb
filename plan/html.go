package plan

import (
	"html"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// htmlList is an open list of HTML. next is the number of its next entry, 0 if the list has bullets.
type htmlList struct{ next int }

// htmlView returns the text with its HTML lists written as Markdown lists. Entries have their ids if they
// have any, else their numbers. Headings and paragraphs begin lines; all other tags are left out.
func (d *document) htmlView() *document {
	s := d.text
	if indexFold(s, "<li") < 0 {
		return nil
	}
	var v viewBuilder
	var open []htmlList
	// Behind is the text of an entry's attributes, which follows the text of the entry
	entries, behind := 0, ""
	for i := 0; i < len(s); {
		j := strings.IndexByte(s[i:], '<')
		if j < 0 {
			j = len(s) - i
		}
		v.htmlText(s[i:i+j], i, len(open) > 0)
		if i += j; i == len(s) {
			break
		}
		name, attrs, n := form.Tag(s, i)
		name = strings.ToLower(name)
		switch tag := strings.TrimPrefix(name, "/"); {
		case n == 0:
			v.copy(s[i:i+1], i)
			n = 1
		case name == "ol" || name == "ul":
			v.add(behind, i)
			behind = ""
			next := 0
			if name == "ol" {
				next = max(1, number(attrs, "start"))
			}
			open = append(open, htmlList{next})
		case (tag == "ol" || tag == "ul") && len(open) > 0:
			v.add(behind+"\n", i)
			open, behind = open[:len(open)-1], ""
		case name == "li" && len(open) > 0:
			entries++
			v.newLine(behind, i)
			v.add(strings.Repeat("   ", min(len(open)-1, 20))+open[len(open)-1].mark(attrs), i)
			behind = attributeRemarks(attrs)
		case tag == "li":
			v.add(behind, i)
			behind = ""
		case len(name) == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6':
			v.newLine("", i)
			v.add(strings.Repeat("#", int(name[1]-'0'))+" ", i)
		case len(tag) == 2 && tag[0] == 'h', tag == "p" || tag == "div" || tag == "br":
			v.newLine("", i)
			v.add(strings.Repeat("   ", min(len(open), 20)), i)
		case tag == "strong" || tag == "b":
			v.add("**", i)
		}
		i += n
	}
	if entries < 2 {
		return nil
	}
	return v.document(d, len(s))
}

// newLine ends a line before the tag at from.
func (v *viewBuilder) newLine(behind string, from int) { v.add(behind+"\n", max(0, from-1)) }

// htmlText adds a text between two tags. Line ends within entries become spaces, as in a browser.
func (v *viewBuilder) htmlText(s string, from int, entry bool) {
	if strings.TrimSpace(s) == "" {
		v.add(" "[:b2i(s != "")], from)
		return
	}
	for i := 0; i < len(s); i++ {
		end := strings.IndexByte(s[i:min(len(s), i+12)], ';')
		switch {
		case s[i] == '&' && end > 0:
			v.add(html.UnescapeString(s[i:i+end+1]), from+i)
			i += end
		case s[i] == '\n' && entry:
			v.add(" ", from+i)
		default:
			v.copy(s[i:i+1], from+i)
		}
	}
}

// number returns the number in an attribute, or 0.
func number(attrs []form.Field, key string) int {
	n, _ := strconv.Atoi(attribute(attrs, key))
	return n
}

// attribute returns the value of an attribute, or "".
func attribute(attrs []form.Field, key string) string {
	for i := range attrs {
		if strings.EqualFold(attrs[i].Key, key) {
			return strings.TrimSpace(attrs[i].Val.Str)
		}
	}
	return ""
}

// mark returns the text that an entry begins with.
func (l *htmlList) mark(attrs []form.Field) string {
	n := l.next
	if n > 0 {
		n = max(n, number(attrs, "value"))
		l.next = n + 1
	}
	switch id := attribute(attrs, "id"); {
	case id != "" && strings.Trim(id, "0123456789") == "":
		return id + ". "
	case id != "" && strings.Trim(strings.ReplaceAll(id, "-", "_"), "_") != "" && form.IsName(strings.ReplaceAll(id, "-", "_")):
		return "- [" + id + "] "
	case n > 0:
		return strconv.Itoa(n) + ". "
	}
	return "- "
}

// plainAttrs are attributes that say nothing about an entry.
var plainAttrs = map[string]bool{"id": true, "class": true, "style": true, "value": true, "start": true, "type": true, "role": true, "dir": true, "lang": true}

// attributeRemarks writes the attributes of an entry as remarks: data-after="survey" becomes (after: survey).
func attributeRemarks(attrs []form.Field) string {
	var b strings.Builder
	for i := range attrs {
		if a := &attrs[i]; !plainAttrs[strings.ToLower(a.Key)] && a.Val.Str != "" {
			b.WriteString(" (" + strings.ReplaceAll(strings.TrimPrefix(a.Key, "data-"), "-", " ") + ": " + strings.Join(strings.Fields(a.Val.Str), " ") + ")")
		}
	}
	return b.String()
}
