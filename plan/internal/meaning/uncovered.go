package meaning

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// Covered is a problem that was read, with the offset of its text.
type Covered struct {
	ID, Title string
	Off       int
	Group     bool
	Parent    int
}

// maxUncovered bounds the notes of a text.
const maxUncovered = 300

// cover compares a text with the plan that was read from it.
type cover struct {
	src   *form.Source
	items []Covered
	names *Names
	links map[Link]bool
	at    map[int]int // the item that begins on a line
	said  map[Note]bool
	notes []Note
}

// Uncovered returns a note for each relation in the text that no link represents. Relations are looked for in
// all lines. If data is set, the text between from and to is data and left out.
func Uncovered(src *form.Source, items []Covered, links []Link, from, to int, data bool) []Note {
	c := cover{src: src, items: items, links: make(map[Link]bool, len(links)), at: make(map[int]int, len(items)), said: map[Note]bool{}}
	named := make([]Named, len(items))
	for i, it := range items {
		named[i] = Named{ID: it.ID, Titles: []string{it.Title}, Parent: it.Parent, Group: it.Group}
		if line := src.LineAt(it.Off); len(c.at) == 0 || line != src.LineAt(items[max(0, i-1)].Off) || i == 0 {
			c.at[line] = i
		}
	}
	c.names = NewNames(named)
	for _, l := range links {
		c.links[Link{From: l.From, To: l.To}] = true
	}
	self := -1
	for k := range src.Lines {
		l := &src.Lines[k]
		if src.Ended() || len(c.notes) >= maxUncovered {
			break
		}
		i, begins := c.at[k]
		switch {
		case begins:
			self = i
		case l.Text == "" || l.Indent == 0 && self >= 0:
			self = -1
		}
		if l.Text == "" || l.Fence || data && l.Start >= from && l.Start < to {
			continue
		}
		c.line(self, begins, l)
	}
	return c.notes
}

// line compares the relations in a line with the links.
func (c *cover) line(self int, begins bool, l *form.Line) {
	text, off := l.Text, l.Off
	if begins {
		// The item's own label is no reference.
		if at := strings.Index(text, c.items[self].ID); at >= 0 && at < 12 {
			off += at + len(c.items[self].ID)
			text = text[at+len(c.items[self].ID):]
		}
	}
	if a, ok := field(text, off); ok && a.isData() {
		return
	}
	rels, doubts := c.names.Relations(self, text, off)
	for _, r := range rels {
		if r.Guessed || r.Kind == None || r.Kind == Ditto {
			continue
		}
		for _, s := range r.Subjects {
			if len(c.notes) >= maxUncovered {
				return
			}
			for _, x := range r.Items {
				if s != x && c.related(s, x) == (r.Kind == Apart || r.Kind == Beside) {
					c.note("AMBIGUOUS", s, c.items[x].ID, r.Off, "the text relates it to "+c.items[x].ID+", but the plan was read otherwise")
				}
			}
			for _, u := range r.Unknown {
				if id := c.items[s].ID; !c.links[Link{From: u, To: id}] && !c.links[Link{From: id, To: u}] {
					c.note("UNKNOWN_REFERENCE", s, u, r.Off, "the text relates it to "+u+", which is no problem of the plan")
				}
			}
		}
	}
	for _, d := range doubts {
		if d.Item >= 0 && (self < 0 || !c.related(self, d.Item)) {
			c.note("AMBIGUOUS", d.Item, d.Text, d.Off, "the text names it in a way that was not understood: "+squeeze(d.Text))
		}
	}
}

// related reports whether a link joins two items in either direction. It is true if one of them is a group.
func (c *cover) related(a, b int) bool {
	x, y := c.items[a].ID, c.items[b].ID
	return c.items[a].Group || c.items[b].Group || c.links[Link{From: x, To: y}] || c.links[Link{From: y, To: x}]
}

func (c *cover) note(code string, item int, other string, off int, message string) {
	key := Note{Element: c.items[item].ID, Hint: other}
	if c.said[key] || len(c.notes) >= maxUncovered {
		return
	}
	c.said[key] = true
	c.notes = append(c.notes, Note{Code: code, Element: c.items[item].ID, Off: off, Message: message, Hint: "say which step waits for which"})
}

// CutOff returns why the last line of a text is incomplete, or "". other are lines of the same kind.
func CutOff(line string, other []string) string {
	line = strings.TrimRight(line, " \t\r")
	depth := 0
	for _, r := range line {
		switch r {
		case '(', '[', '{', '（', '【':
			depth++
		case ')', ']', '}', '）', '】':
			depth--
		}
	}
	if depth > 0 && !strings.HasSuffix(line, "[") {
		return "it ends within brackets"
	}
	ends, stops := 0, 0
	for _, s := range other {
		if ended(s) {
			ends++
			stops += b2i(!strings.HasSuffix(s, ")") && !strings.HasSuffix(s, "]") && !strings.HasSuffix(s, "）"))
		}
	}
	if ended(line) {
		return ""
	}
	for _, t := range lexicon.ScanIn(lexicon.Language(line), line) {
		if t.End == len(line) && t.Off > 0 && (t.Is(lexicon.And) && line[t.Off] != '&' && lexicon.Fold(line[t.Off:t.End]) == line[t.Off:t.End] || t.Is(lexicon.Needs) && t.Side == lexicon.Ahead && ends*2 > len(other)) {
			return "it ends with “" + line[t.Off:t.End] + "”"
		}
	}
	if len(other) > 2 && stops == len(other) {
		return "it does not end like the others"
	}
	return ""
}

// ended reports whether a text ends like a sentence.
func ended(s string) bool {
	s = strings.TrimRightFunc(s, func(r rune) bool { // signs of emphasis, quotation marks, emoji
		return strings.ContainsRune(" \t\r*_`\"'”»\u200d", r) || r > 0x80 && unicode.In(r, unicode.So, unicode.Sk, unicode.Mn)
	})
	r, _ := utf8.DecodeLastRuneInString(s)
	return strings.ContainsRune(".!?:;)]}。！？）】।…", r)
}
