package meaning

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// declared is a task that a line declares. rest is the text behind its name and in its body.
type declared struct {
	id, title        string
	off, end, indent int
	rest             []form.Piece
	keyword          bool // a keyword such as "task" or "job" stands before its name
	call             bool // the line is a single call
}

// makers are the last name parts of the calls with which build files declare tasks.
var makers = setOf("register create task job step stage target node action named")

// readDeclared reads lines that declare a task each. The needs of a task follow its name or stand in its
// body:
//
//	TASK draw_vacuum   WAITS_FOR seal_tank
//	p3 := print table  requires p1, p2
//	tasks.register("two") { dependsOn("one") }
//	build app: link x.o y.o
func readDeclared(src *form.Source, first, end int) *Reading {
	var all []*declared
	title := ""
	bodies, other := 0, 0
	for k := first; k < end; k++ {
		l := &src.Lines[k]
		if l.Text == "" || isComment(l.Text) || len(l.Text) > 2000 {
			continue
		}
		inside := len(all) > 0 && l.Indent > all[len(all)-1].indent
		if d, body := declaration(l); d != nil && (d.keyword || !inside) {
			if title != "" {
				d.title, title = title, ""
			}
			all, bodies = append(all, d), bodies+b2i(body)
			continue
		}
		if word, rest, ok := strings.Cut(l.Text, " "); ok && (word == "desc" || word == "description") {
			title = strings.Trim(rest, "\"'= ")
		} else if inside {
			d := all[len(all)-1]
			d.rest, d.end = append(d.rest, form.Piece{Text: l.Text, Off: l.Off}), l.End
		} else {
			other++
		}
	}
	if bodies > 0 {
		all = slices.DeleteFunc(all, func(d *declared) bool { return !d.keyword })
	}
	if len(all) < 2 || bodies == 0 && (len(all) < 3 || other > 2) {
		return nil
	}
	p := linkDeclared(src, all, bodies > 0)
	if p == nil || !slices.ContainsFunc(all, func(d *declared) bool { return !d.call }) && readTasks(src, form.Statements(src, first, end)) != nil {
		return nil // calls with arguments belong to readProgram
	}
	p.arguments(src.Text)
	r := p.reading()
	r.Start, r.End, r.Open = all[0].off, max(r.End, all[len(all)-1].end), !(end < len(src.Lines) && src.Lines[end].Fence)
	return r
}

// linkDeclared links the tasks. It returns nil unless they have bodies, or most lines state needs that name
// only tasks.
func linkDeclared(src *form.Source, all []*declared, bodies bool) *program {
	p := newProgram(src, 93, "declarations")
	p.r.Stated = true
	index := map[string]int{}
	for k, d := range all {
		if _, twice := index[d.id]; !twice { // a later declaration of the same id only adds needs
			index[d.id] = k
		}
	}
	stated := 0
	for _, d := range all {
		for _, line := range d.rest {
			lists, chosen := needLists(line.Text), -1
			for k := len(lists) - 1; k >= 0; k-- {
				if lists[k].within(index) {
					chosen = k
				}
			}
			if !bodies {
				if len(lists) > 0 && chosen < 0 {
					return nil
				} else if chosen < 0 {
					continue
				}
				stated, lists = stated+1, lists[chosen:chosen+1]
				if t := strings.TrimSpace(line.Text[:lists[0].at]); t != "" {
					d.title = t
				}
			}
			for _, list := range lists {
				p.r.Links = append(p.r.Links, list.links(d.id, index, line.Off)...)
			}
		}
	}
	if len(p.r.Links) == 0 || !bodies && (stated < 2 || stated*2 < len(all)) {
		return nil
	}
	for k, d := range all {
		if index[d.id] == k {
			p.origins[p.item(d.id, d.title, true, d.off, d.end)] = origin{body: true}
		}
	}
	return p
}

// declaration returns the task that a line declares. body is set if a body opens on the line, or if the call
// is closed.
func declaration(l *form.Line) (d *declared, body bool) {
	s := l.Text
	if i := strings.Index(s, " #"); i > 0 {
		s = s[:i]
	}
	s = strings.TrimRight(s, " ;,.")
	d = &declared{off: l.Off, end: l.End, indent: l.Indent}
	if outs, ins, ok := strings.Cut(strings.TrimPrefix(s, "build "), ": "); ok && strings.HasPrefix(s, "build ") && !strings.ContainsAny(outs, "\"'(") {
		d.id, d.title = outs, outs
		d.rest = []form.Piece{{Text: "needs " + strings.ReplaceAll(ins, "|", " "), Off: l.Off}}
		d.keyword = true
		return d, true
	}
	n := nameLength(s, "._")
	word, t := strings.ToLower(s[:n]), s[n:]
	word = word[strings.LastIndexByte(word, '.')+1:]
	if e := strings.IndexByte(t, '>'); e > 0 && t[0] == '<' {
		t = t[e+1:]
	}
	paren := strings.HasPrefix(t, "(")
	made := (paren || strings.HasPrefix(t, " ")) && (makers[word] || runs(word))
	if d.keyword = made; made {
		t = strings.TrimLeft(t, "( :")
	} else {
		t = s
	}
	if made && t != "" && (t[0] == '"' || t[0] == '\'') {
		q := form.QuotedLength(t)
		if q < 3 {
			return nil, false
		}
		d.id, t = t[1:q-1], t[q:]
	} else if m := nameLength(t, "_-."); !made || !paren || strings.Contains(t, ":") || word == "task" {
		d.id, t = t[:m], t[m:]
	}
	if !strings.ContainsFunc(d.id, unicode.IsLetter) || strings.Contains(d.id, " ") || capitals(d.id) && wordIs(d.id, lexicon.BlockEnd|lexicon.BlockBegin) {
		return nil, false
	}
	body = made && (strings.HasSuffix(s, "{") || strings.HasSuffix(s, " do") || strings.HasSuffix(s, "}") || paren && strings.HasSuffix(s, ")"))
	t = strings.TrimSpace(t)
	d.call = paren && strings.HasSuffix(s, ")")
	d.title = d.id
	if !body && t != "" && !strings.HasPrefix(t, "=>") && !strings.HasPrefix(t, "(") {
		rest := strings.TrimLeft(t, ":=←")
		if n, _ := needPhrase(t); n == 0 && (rest == t || strings.HasPrefix(t, ":") && !strings.HasPrefix(t, ":=") && !made) {
			return nil, false
		}
		if t = strings.TrimSpace(rest); t != "" {
			d.title = t
		}
	}
	d.rest = []form.Piece{{Text: t, Off: l.Off}}
	return d, body
}

// needList holds the names behind a word or sign of need at an offset of a line. next is set if the word
// names successors.
type needList struct {
	at    int
	next  bool
	names []needName
}

type needName struct {
	id     string
	quoted bool
}

// within reports whether the list is not empty and all its names are tasks or a word for "none".
func (n *needList) within(index map[string]int) bool {
	for _, x := range n.names {
		if _, ok := index[x.id]; !ok && !isNone(x.id) {
			return false
		}
	}
	return len(n.names) > 0
}

// links returns the links that a list states. A quoted name that no task has stays, so that it is reported.
func (n *needList) links(to string, index map[string]int, off int) (out []Link) {
	for _, x := range n.names {
		if _, ok := index[x.id]; !ok && (!x.quoted || strings.ContainsAny(x.id, " ./:")) {
			continue
		}
		l := Link{From: x.id, To: to, Source: Stated, Off: off}
		if n.next {
			l.From, l.To = l.To, l.From
		}
		out = append(out, l)
	}
	return out
}

// needLists returns the lists of names behind the words and signs of need in a line.
func needLists(s string) (out []needList) {
	if i := strings.Index(s, " #"); i >= 0 {
		s = s[:i]
	}
	open := false
	add := func(id string, quoted bool) {
		if id = strings.Trim(id, ":-."); open && id != "" && id != "do" && (quoted || !lexicon.Is(lexicon.And, id)) {
			out[len(out)-1].names = append(out[len(out)-1].names, needName{id, quoted})
		}
	}
	for i := 0; i < len(s); {
		if s[i] == '"' || s[i] == '\'' {
			q := form.QuotedLength(s[i:])
			if q < 2 {
				return out
			}
			add(s[i+1:i+q-1], true)
			i += q
			continue
		}
		n, next := needPhrase(s[i:])
		if strings.HasPrefix(s[i:], "=>") {
			n = 2
		}
		switch m := nameLength(s[i:], "_-."); {
		case n > 0:
			out, open = append(out, needList{at: i, next: next}), true
			i += n
		case m > 0:
			if t := strings.TrimLeft(s[i+m:], " "); len(t) > 1 && t[0] == '=' && t[1] != '>' && t[1] != '=' {
				open = false // the key of another argument
			}
			add(s[i:i+m], false)
			i += m
		case s[i] == '{' && len(out) > 0 && len(out[len(out)-1].names) > 0:
			return out
		default:
			_, size := utf8.DecodeRuneInString(s[i:])
			i += size
		}
	}
	return out
}

// needPhrase returns the length of the phrase of need at the start of a text, in any spelling, and whether
// the phrase names successors.
func needPhrase(s string) (n int, next bool) {
	end := 0
	for range 3 {
		m := nameLength(s[end:], "_-.")
		if m == 0 {
			break
		}
		end += m
		w := strings.Trim(s[:end], "-.")
		if role, ok := lexicon.Field(w); ok && (role == lexicon.Requires || role == lexicon.Next) || !ok && lexicon.Is(lexicon.Needs, splitName(w)) {
			n, next = end, role == lexicon.Next
		}
		if end >= len(s) || s[end] != ' ' {
			break
		}
		end++
	}
	return n, next
}
