package form

import (
	"strings"
)

// umlAt reads the PlantUML diagram that begins on line i: with @startuml or @startgantt, or in a fence that
// names the language.
func umlAt(src *Source, i int) *Diagram {
	l := &src.Lines[i]
	lower := strings.ToLower(l.Text)
	started := strings.HasPrefix(lower, "@start")
	fenced := l.InCode && i > 0 && src.Lines[i-1].Fence && (l.Lang == "plantuml" || l.Lang == "puml" || l.Lang == "uml")
	if !started && !fenced || strings.HasPrefix(lower, "@startmindmap") || strings.HasPrefix(lower, "@startjson") || strings.HasPrefix(lower, "@startyaml") {
		return nil
	}
	g := newDiagram(src, "plantuml", i)
	u := &uml{Diagram: g, root: &Flow{Kind: "seq"}, alias: map[string]string{}, src: src}
	u.stack = []*Flow{u.root}
	end := src.blockEnd(i)
	for k := i; k < end; k++ {
		text := src.Lines[k].Text
		if strings.HasPrefix(strings.ToLower(text), "@end") {
			g.Last, g.End, g.Closed = k, src.Lines[k].End, true
			break
		}
		if text == "" || strings.HasPrefix(text, "'") || k == i && started {
			continue
		}
		g.Last, g.End = k, src.Lines[k].End
		if k = u.line(k, end); k > g.Last {
			g.Last, g.End = k, src.Lines[k].End
		}
	}
	if started && !g.Closed && len(g.Nodes) > 0 {
		last := g.Nodes[len(g.Nodes)-1].ID
		g.fault(true, "TRUNCATED", g.End, last, "the diagram has no end: what came after "+last+" may be lost", "ask for the rest of the diagram")
	}
	u.root.Order(nil, 0, func(a, b int) { u.link([]string{g.Nodes[a].ID}, []string{g.Nodes[b].ID}, g.Nodes[b].Off, "") })
	return g
}

// uml is the state of the reader of a diagram. stack holds the open blocks of an activity diagram.
type uml struct {
	*Diagram
	src    *Source
	root   *Flow
	stack  []*Flow
	alias  map[string]string
	last   string // the node that a line with a leading arrow continues from
	ending string // the end mark of the part that is being skipped
}

// line reads line k and returns the last line that belongs to it.
func (u *uml) line(k, end int) int {
	text, off := u.src.Lines[k].Text, u.src.Lines[k].Off
	lower := strings.ToLower(text)
	if u.ending != "" {
		if strings.HasPrefix(lower, u.ending) {
			u.ending = ""
		}
		return k
	}
	if text[0] == ':' || text[0] == '-' && strings.HasSuffix(text, ";") && !ContainsArrow(text) {
		j := k
		for j < end-1 && j < k+50 && !strings.ContainsAny(u.src.Lines[j].Text[max(0, len(u.src.Lines[j].Text)-1):], ";|<>/]}") {
			j++
		}
		body := u.src.Text[off+1 : u.src.Lines[j].End]
		u.step(strings.TrimRight(body, ";|<>/]} \n"), off+1)
		return j
	}
	if u.block(lower, text, off) || u.gantt(text, off) || u.declare(text, off) || umlDirective(lower) {
		if strings.HasPrefix(lower, "note") && !strings.Contains(text, ":") {
			u.ending = "end note"
		} else if strings.HasPrefix(lower, "skinparam") && strings.HasSuffix(text, "{") || strings.HasPrefix(lower, "<style>") {
			u.ending = map[bool]string{true: "}", false: "</style>"}[text[0] != '<']
		}
		return k
	}
	u.arrows(text, off)
	return k
}

func (u *uml) top() *Flow { return u.stack[len(u.stack)-1] }

func (u *uml) push(f *Flow) { u.stack = append(u.stack, f) }

func (u *uml) step(title string, off int) {
	title = label(title)
	n := len(u.Nodes) + 1
	for u.has(stepID(n)) {
		n++
	}
	id := stepID(n)
	u.node(id, title, off)
	k := len(u.Nodes) - 1
	u.Nodes[k].Hidden, u.Nodes[k].End = true, off+len(title)
	u.top().Add("step", k)
}

func (u *uml) has(id string) bool {
	_, ok := u.index[id]
	return ok
}

// umlBlocks are the keywords that begin, divide and end blocks of activity diagrams.
var umlBlocks = []struct{ word, act, kind string }{
	{"fork again", "again", "par"}, {"split again", "again", "par"}, {"end fork", "end", "par"}, {"endfork", "end", "par"}, {"end merge", "end", "par"},
	{"end split", "end", "par"}, {"endsplit", "end", "par"}, {"fork", "begin", "par"}, {"split", "begin", "par"}, {"elseif", "again", "alt"}, {"else if", "again", "alt"},
	{"else", "again", "alt"}, {"endif", "end", "alt"}, {"end if", "end", "alt"}, {"if", "begin", "alt"}, {"switch", "begin", "alt"}, {"case", "again", "alt"},
	{"endswitch", "end", "alt"}, {"repeat while", "end", "seq"}, {"repeat", "begin", "seq"}, {"endwhile", "end", "seq"}, {"end while", "end", "seq"},
	{"while", "begin", "seq"}, {"partition", "begin", "seq"}, {"group", "begin", "seq"}, {"end group", "end", "seq"}, {"}", "end", "seq"},
}

// block reads the lines that open and close blocks.
func (u *uml) block(lower, text string, off int) bool {
	for _, b := range umlBlocks {
		rest, ok := cutWord(lower, b.word)
		if b.word == "}" {
			ok = lower == "}"
		}
		if !ok || ContainsArrow(text) && b.act == "begin" && rest != "" && rest[0] == '-' {
			continue
		}
		if b.kind == "alt" && b.act == "begin" {
			u.fault(false, "SKIPPED_TEXT", off, text, "a decision was left out; the steps of all its branches were taken", "say which branch is taken")
		}
		switch b.act {
		case "begin":
			f := u.top().Add(b.kind, 0)
			u.push(f)
			if b.kind != "seq" {
				u.push(f.Add("seq", 0))
			}
		case "again":
			if len(u.stack) > 2 {
				u.stack = u.stack[:len(u.stack)-1]
				if u.top().Kind == "seq" {
					break
				}
				u.push(u.top().Add("seq", 0))
			}
		case "end":
			drop := 1
			if b.kind != "seq" {
				drop = 2
			}
			if len(u.stack) <= drop {
				u.fault(false, "UNBALANCED", off, text, text+" ends no block", "check the blocks")
				return true
			}
			u.stack = u.stack[:len(u.stack)-drop]
		}
		return true
	}
	return false
}

// umlKinds are the keywords that declare a node.
var umlKinds = map[string]bool{"rectangle": true, "component": true, "node": true, "state": true, "usecase": true, "agent": true, "artifact": true, "card": true, "file": true, "folder": true, "object": true, "class": true, "storage": true, "database": true, "cloud": true, "queue": true, "actor": true, "process": true, "action": true, "hexagon": true, "stack": true, "boundary": true, "control": true, "entity": true, "interface": true, "label": true, "person": true, "package": true, "frame": true, "collections": true}

// declare reads "rectangle "Title" as id", "[Title] as id" and "id : text".
func (u *uml) declare(text string, off int) bool {
	n := nameEnd(text, "")
	rest := text
	if umlKinds[strings.ToLower(text[:n])] {
		rest = strings.TrimSpace(text[n:])
	} else if text[0] != '[' && text[0] != '(' || !strings.Contains(text, " as ") || ContainsArrow(text) {
		return false
	}
	if n > 0 && ContainsArrow(rest) && rest != "" && strings.IndexByte("-.=<", rest[0]) >= 0 {
		return false
	}
	if strings.HasSuffix(rest, "{") {
		return true
	}
	title, id := rest, ""
	if i := strings.LastIndex(rest, " as "); i > 0 {
		title, id = strings.TrimSpace(rest[:i]), strings.TrimSpace(rest[i+4:])
	}
	if i := strings.Index(id, " "); i > 0 {
		id = id[:i]
	}
	title, id = umlName(title), umlName(id)
	if id == "" || strings.HasPrefix(rest[strings.LastIndex(rest, " as ")+1:], "as \"") {
		if id == "" {
			id = title
		} else {
			id, title = title, id
		}
	}
	if strings.Contains(text, "<<fork>>") || strings.Contains(text, "<<join>>") || strings.Contains(text, "<<choice>>") {
		id, _, _ = strings.Cut(id, " ")
		u.node(id, "", off)
		if k, ok := u.index[id]; ok {
			u.Nodes[k].Pseudo = true
		}
		return true
	}
	u.alias[title] = id
	u.node(id, title, off)
	return true
}

// umlName removes brackets, quotes and stereotypes from a name.
func umlName(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.Index(s, "<<"); i > 0 {
		s = strings.TrimSpace(s[:i])
	}
	if i := strings.LastIndex(s, " #"); i > 0 {
		s = strings.TrimSpace(s[:i])
	}
	return label(Bare(Piece{Text: s}).Text)
}

func umlDirective(lower string) bool {
	for _, w := range [...]string{"title", "skinparam", "hide", "show", "scale", "left to right", "top to bottom", "note", "end note", "legend", "end legend", "header", "footer", "caption", "!", "start", "stop", "end", "kill", "detach", "swimlane", "|", "<style>", "#", "center", "printscale", "project", "saturday", "sunday", "language", "today", "allowmixing", "{", "}", "autonumber", "mainframe", "backward", "--", "== ", "'"} {
		if strings.HasPrefix(lower, w) && (nameEnd(w, "") != len(w) || nameEnd(lower, "") == len(w) || strings.Contains(w, " ")) && !ContainsArrow(lower) {
			return true
		}
	}
	return false
}

// arrows reads "a --> b : label", "[A] -down-> [B]", "(*) --> "x"" and "--> "y"".
func (u *uml) arrows(text string, off int) {
	from, to, back, ok := umlArrow(text)
	if !ok {
		if id, title, ok := strings.Cut(text, " : "); ok {
			if _, known := u.index[umlName(id)]; known {
				u.node(umlName(id), title, off)
				return
			}
		}
		u.fault(false, "SKIPPED_TEXT", off, text, "this line of the diagram was left out: "+Clip(text), "write A --> B")
		return
	}
	label := ""
	if i := strings.Index(to, " : "); i >= 0 {
		to, label = to[:i], strings.TrimSpace(to[i+3:])
	}
	to = strings.TrimSpace(to)
	if i := strings.LastIndex(to, ":"); i > 0 && !strings.HasSuffix(to, ")") && !strings.HasSuffix(to, "\"") && !strings.HasSuffix(to, "]") {
		to = to[:i]
	}
	a, b := u.end(from, off, "start"), u.end(to, off, "end")
	if from == "" {
		a = u.last
	}
	if a == "" || b == "" {
		u.fault(true, "EMPTY_ID", off, text, "an arrow has nothing on one side: "+Clip(text), "name a node on both sides")
		return
	}
	u.last = b
	if back {
		a, b = b, a
	}
	n := len(u.Links)
	u.link([]string{a}, []string{b}, off, "")
	u.labelFrom(n, label)
}

// end adds the node at one end of an arrow and returns its id.
func (u *uml) end(s string, off int, side string) string {
	id := umlName(s)
	if t := strings.TrimSpace(s); t == "(*)" || t == "[*]" {
		id = "[*]" + side
	} else if x, ok := u.alias[id]; ok {
		id = x
	}
	u.node(id, "", off)
	if k, ok := u.index[id]; ok && strings.HasPrefix(id, "[*]") {
		u.Nodes[k].Pseudo = true
	}
	return id
}

// umlArrow splits a line at its arrow, which may contain a direction or a color: -->, -down->, ..>,
// <-[#red]-, --o.
func umlArrow(s string) (from, to string, back, ok bool) {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if n := QuotedLength(s[i:]); n > 0 {
				i += n - 1
			}
		case Closer(c) != 0:
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case depth > 0:
		case c >= 0x80:
			if n, left := signAt(s, i); n > 0 {
				return s[:i], s[i+n:], left, true
			}
		case c == '-' || c == '.' || c == '<' && i+1 < len(s) && strings.IndexByte("-.|", s[i+1]) >= 0:
			j := i
			for j < len(s) && j < i+60 && s[j] != ' ' && s[j] != '>' && s[j] != '"' && !(s[j] == '(' || s[j] == ':') {
				if s[j] == '[' {
					if k := strings.IndexByte(s[j:], ']'); k > 0 && strings.IndexByte("-.>", append([]byte(s[j+k+1:]), 0)[0]) >= 0 {
						j += k
					} else {
						break
					}
				}
				j++
			}
			head := j < len(s) && s[j] == '>'
			if head {
				for j < len(s) && s[j] == '>' {
					j++
				}
			}
			if (head || c == '<') && j-i > 1 {
				return strings.TrimSpace(s[:i]), strings.TrimSpace(s[j:]), !head, true
			}
			if j > i {
				i = j - 1
			}
		}
	}
	return "", "", false, false
}

// gantt reads the sentences of PlantUML charts: "[B] starts at [A]'s end", "[A] -> [B]", "then [C] lasts 3
// days".
func (u *uml) gantt(text string, off int) bool {
	rest, then := cutWord(text, "then")
	if !then {
		rest = text
	}
	name, tail, ok := ganttName(rest)
	if !ok || tail == "" && !then || ContainsArrow(tail) && !strings.Contains(tail, "]'s") {
		return false
	}
	if i := strings.Index(tail, "as ["); i == 0 {
		id, more, _ := ganttName(tail[3:])
		u.alias[name] = id
		u.node(id, name, off)
		name, tail = id, more
	}
	if x, ok := u.alias[name]; ok {
		name = x
	}
	u.node(name, "", off)
	if then && u.last != "" && u.last != name {
		u.link([]string{u.last}, []string{name}, off, "")
	}
	u.last = name
	for range 20 {
		i := strings.IndexByte(tail, '[')
		if i < 0 {
			break
		}
		other, more, ok := ganttName(tail[i:])
		if !ok {
			break
		}
		if x, ok := u.alias[other]; ok {
			other = x
		}
		verb := strings.ToLower(tail[:i])
		switch {
		case strings.Contains(verb, "end") && strings.HasPrefix(more, "'s start"):
			u.link([]string{name}, []string{other}, off, "")
		case strings.HasPrefix(more, "'s end") && strings.Contains(verb, "start") || strings.HasPrefix(more, "'s end") && strings.Contains(verb, "happen") || strings.Contains(verb, "after"):
			u.node(other, "", off)
			u.link([]string{other}, []string{name}, off, "")
		case strings.Contains(verb, "before"):
			u.link([]string{name}, []string{other}, off, "")
		}
		tail = more
	}
	return true
}

func ganttName(s string) (name, rest string, ok bool) {
	if !strings.HasPrefix(s, "[") {
		return "", s, false
	}
	i := strings.IndexByte(s, ']')
	if i < 2 {
		return "", s, false
	}
	return strings.TrimSpace(s[1:i]), strings.TrimSpace(s[i+1:]), true
}
