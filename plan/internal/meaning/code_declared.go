package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// declared is a task that a build file declares: its name, the words behind it and in its body.
type declared struct {
	name, title string
	off, end    int
	rest        []form.Piece
}

// makers are the last parts of the calls with which build files declare tasks.
var makers = setOf("register create task job step stage target node action named")

// readDeclared reads declarations of tasks with bodies: those of Gradle, Rake, HCL, Ninja and the like. A
// line in a body that begins with a name of needs names other tasks.
func readDeclared(src *form.Source, first, end int) *Reading {
	var all []*declared
	title := ""
	bodies, builds := 0, 0
	for k := first; k < end; k++ {
		l := &src.Lines[k]
		if l.Text == "" || len(l.Text) > 2000 {
			continue
		}
		if d, build, body := declaration(l); d != nil {
			d.title, title = title, ""
			all = append(all, d)
			bodies += b2i(body)
			builds += b2i(build)
			continue
		}
		if word, rest, ok := strings.Cut(l.Text, " "); ok && (word == "desc" || word == "description") {
			title = strings.Trim(rest, "\"'= ")
		} else if len(all) > 0 && l.Indent > 0 {
			d := all[len(all)-1]
			d.rest, d.end = append(d.rest, form.Piece{Text: l.Text, Off: l.Off}), l.End
		}
	}
	if len(all) < 2 || bodies == 0 && builds < 2 {
		return nil
	}
	return declaredReading(src, all, end)
}

// declaration returns the task that a line declares. build tells Ninja's, body that a block opens or a call
// closes.
func declaration(l *form.Line) (d *declared, build, body bool) {
	s := l.Text
	n := nameLength(s, "._")
	word := s[:n]
	rest := s[n:]
	if word == "val" || word == "def" || word == "var" { // val x by tasks.registering {
		name, more, ok := strings.Cut(strings.TrimSpace(rest), " by tasks.")
		if !ok || nameLength(name, "_") != len(name) {
			return nil, false, false
		}
		return &declared{name: name, off: l.Off, end: l.End, rest: []form.Piece{{Text: more, Off: l.Off}}}, false, true
	}
	if word == "build" && strings.HasPrefix(rest, " ") {
		outs, ins, ok := strings.Cut(rest[1:], ": ")
		if !ok || strings.ContainsAny(outs, "\"'(") {
			return nil, false, false
		}
		name := strings.TrimSpace(outs)
		return &declared{name: name, off: l.Off, end: l.End, rest: []form.Piece{{Text: "needs " + strings.NewReplacer("|", " ", "||", " ").Replace(ins), Off: l.Off}}}, true, false
	}
	last := strings.ToLower(word[strings.LastIndexByte(word, '.')+1:])
	if strings.HasPrefix(rest, "<") {
		if e := strings.IndexByte(rest, '>'); e > 0 {
			rest = rest[e+1:]
		}
	}
	paren := strings.HasPrefix(rest, "(")
	if !paren && !strings.HasPrefix(rest, " ") || !makers[last] && !lexicon.Is(lexicon.Steps, last) {
		return nil, false, false
	}
	t := strings.TrimLeft(rest, "( :")
	name := ""
	if t != "" && (t[0] == '"' || t[0] == '\'') {
		q := form.QuotedLength(t)
		if q < 3 {
			return nil, false, false
		}
		name, t = t[1:q-1], t[q:]
	} else if m := nameLength(t, "_-"); m > 0 && (!paren || strings.Contains(rest, ":") || last == "task") {
		name, t = t[:m], t[m:]
	}
	body = strings.HasSuffix(s, "{") || strings.HasSuffix(s, " do") || strings.HasSuffix(s, "}") || paren && strings.HasSuffix(s, ")")
	if name == "" || strings.Contains(name, " ") || !body && strings.TrimSpace(t) != "" && !strings.HasPrefix(strings.TrimSpace(t), "=>") && !strings.HasPrefix(strings.TrimSpace(t), "(") {
		return nil, false, false
	}
	return &declared{name: name, off: l.Off, end: l.End, rest: []form.Piece{{Text: t, Off: l.End - len(t)}}}, false, body
}

// declaredReading links the tasks that are declared.
func declaredReading(src *form.Source, all []*declared, end int) *Reading {
	p := newProgram(93, "declarations")
	p.r.Stated = true
	index := map[string]int{}
	for _, d := range all {
		if _, twice := index[d.name]; twice {
			continue // a later declaration only adds to it
		}
		title := d.title
		if title == "" {
			title = d.name
		}
		index[d.name] = p.item(d.name, title, true, d.off, d.end)
	}
	for _, d := range all {
		for _, line := range d.rest {
			for _, ref := range declaredRefs(line.Text) {
				name := strings.TrimPrefix(ref.name, ":")
				from, ok := index[name]
				switch {
				case ok && ref.next:
					p.link(index[d.name], from, Stated, line.Off)
				case ok && from == index[d.name]:
					p.r.Links = append(p.r.Links, Link{From: name, To: name, Source: Stated, Off: line.Off})
				case ok:
					p.link(from, index[d.name], Stated, line.Off)
				case ref.quoted && !strings.ContainsAny(name, " ./:"):
					p.r.Links = append(p.r.Links, Link{From: name, To: d.name, Source: Stated, Off: line.Off})
				}
			}
		}
	}
	if len(p.seen) == 0 {
		return nil
	}
	r := p.reading()
	r.Start, r.End, r.Open = all[0].off, max(r.End, all[len(all)-1].end), !(end < len(src.Lines) && src.Lines[end].Fence)
	return r
}

// declaredRef is a name behind a word of needs; next tells that the task comes first.
type declaredRef struct {
	name         string
	quoted, next bool
}

// declaredRefs returns the names that stand behind a word of needs or a sign of it.
func declaredRefs(s string) (out []declaredRef) {
	if i := strings.Index(s, " #"); i >= 0 {
		s = s[:i]
	}
	active, next := false, false
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\'':
			n := form.QuotedLength(s[i:])
			if n < 2 {
				return out
			}
			if active {
				out = append(out, declaredRef{s[i+1 : i+n-1], true, next})
			}
			i += n
		case strings.HasPrefix(s[i:], "=>"):
			active, next = true, false
			i += 2
		case c == '{' && active && len(out) > 0:
			return out
		case c == ';':
			active = false
			i++
		default:
			n := nameLength(s[i:], "_-.")
			if n == 0 {
				_, size := utf8.DecodeRuneInString(s[i:])
				i += size
				continue
			}
			word := strings.Trim(s[i:i+n], "-.")
			if role, ok := lexicon.Field(word); ok && (role == lexicon.Requires || role == lexicon.Next) || strings.HasSuffix(word, "RunAfter") || word == "finalizedBy" {
				active, next = true, role == lexicon.Next || word == "finalizedBy"
			} else if active && word != "" && word != "do" {
				out = append(out, declaredRef{word, false, next})
			}
			i += n
		}
	}
	return out
}
