package meaning

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readDiagram reads drawings: diagram languages, lines of arrows, boxes and lines, charts and Makefiles.
func readDiagram(src *form.Source) []*Reading {
	if chartAlone(src) {
		return nil
	}
	var out []*Reading
	for _, g := range form.Diagrams(src) {
		if r := diagramReading(src, g); r != nil {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		for _, g := range form.Drawings(src) {
			if r := diagramReading(src, g); r != nil {
				out = append(out, r)
			}
		}
	}
	for _, read := range [...]func(*form.Source) []*Reading{readTree, readAssigned, arrowReadings, readChart} {
		if len(out) == 0 {
			out = read(src)
		}
	}
	if len(out) > 1 {
		differ(out)
	}
	return out
}

// differ lowers the weight of all diagrams but the best one, and notes on the best one where the others
// disagree. The best one has the largest weight; among equals it is one that revises another, or has the most
// links.
func differ(all []*Reading) {
	best := all[0]
	for _, r := range all[1:] {
		if r.Weight > best.Weight || r.Weight == best.Weight && (Replaces(best, r) || len(r.Links) > len(best.Links)) {
			best = r
		}
	}
	for _, r := range all {
		if r != best {
			r.Weight -= 10
			best.Notes = append(best.Notes, OtherPlan(best, r)...)
		}
	}
}

// maxUnsureLinks bounds how many unsure links of a reading get a note of their own.
const maxUnsureLinks = 300

// moreUnsure notes how many of n unsure links got no note of their own.
func (r *Reading) moreUnsure(n int) {
	if n > maxUnsureLinks {
		r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: "links", Off: r.Start, Message: strconv.Itoa(n-maxUnsureLinks) + " more links are uncertain", Hint: "say which way the links run"})
	}
}

// diagramReading turns a diagram into a reading, or returns nil if the diagram is too small.
func diagramReading(src *form.Source, g *form.Diagram) *Reading {
	if len(g.Nodes) < 2 && len(g.Links) == 0 {
		return nil
	}
	r := &Reading{Form: "diagram", Start: g.Start, End: g.End, Stated: true, Open: !g.Closed, Weight: 95, Evidence: []string{g.Kind}}
	switch {
	case len(g.Links) == 0:
		r.Weight = 40
	case g.Kind == "art":
		r.Weight = 90
	}
	for _, n := range g.Nodes {
		title := n.Label
		if title == "" {
			title = n.ID
		}
		it := Item{ID: n.ID, Shown: !n.Hidden, Title: title, Parent: -1, Off: n.Off, End: n.End}
		for _, f := range n.Fields {
			it.Attrs = append(it.Attrs, Attr{Key: f.Key, Role: roleOf(f.Key, f.Text), Value: form.Typed(f.Text), Off: n.Off})
		}
		r.Items = append(r.Items, it)
	}
	turned, assumed := false, 0
	var last form.Arc
	says := ""
	for i, l := range g.Links {
		// Links of one line share label and fields.
		if i == 0 || l.Off != last.Off || l.Label != last.Label || len(l.Fields) != len(last.Fields) {
			says = arcSays(&l)
		}
		last = l
		if needsLabel(l.Label) {
			l.From, l.To = l.To, l.From
			turned = true
		}
		source := Stated
		if l.Assumed != "" {
			source = ListedOrder
			if assumed++; assumed <= maxUnsureLinks {
				r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: l.To, Off: l.Off, Message: l.From + " was taken to come before " + l.To + ": " + l.Assumed, Hint: "state what " + l.To + " waits for"})
			}
		}
		r.Links = append(r.Links, Link{From: l.From, To: l.To, Source: source, Off: l.Off, Says: says})
	}
	r.moreUnsure(assumed)
	for _, f := range g.Faults {
		r.Notes = append(r.Notes, Note{Fault: f.Serious, Code: f.Code, Element: f.Element, Message: f.Message, Hint: f.Hint, Off: f.Off})
	}
	if !turned && pointsToNeeds(src, g.First, g.Last) {
		turn(r)
	}
	if g.Flow {
		flowOrder(r)
	} else if g.Kind == "mermaid" || g.Kind == "dot" {
		markOrder(r)
	}
	legend(src, r, g.First, g.Last)
	if g.Undirected > 0 && g.Undirected == len(g.Links) {
		r.Weight, r.Not = 20, "a graph whose edges have no direction"
	}
	return r
}

// arcSays returns the label of a link as JSON, or an object of label and fields if the link has fields. It
// returns "" if the link has neither.
func arcSays(l *form.Arc) string {
	if len(l.Fields) == 0 {
		if l.Label == "" {
			return ""
		}
		return form.Quote(l.Label)
	}
	v := &form.Value{Kind: form.KindObject}
	for _, f := range append(l.Fields[:len(l.Fields):len(l.Fields)], form.TextField{Key: "label", Text: l.Label}) {
		if f.Text != "" {
			v.Fields = append(v.Fields, form.Field{Key: f.Key, Val: &form.Value{Kind: form.KindString, Str: f.Text}})
		}
	}
	return (&form.Tree{Texts: true}).JSON(v)
}

// flowOrder sorts the items topologically; the order of the text decides between items without an order.
func flowOrder(r *Reading) {
	index, before := make(map[string]int, len(r.Items)), make([]int, len(r.Items))
	for i, it := range r.Items {
		index[it.ID] = i
	}
	next := make([][]int, len(r.Items))
	for _, l := range r.Links {
		a, okA := index[l.From]
		b, okB := index[l.To]
		if okA && okB {
			next[a] = append(next[a], b)
			before[b]++
		}
	}
	order := make([]Item, 0, len(r.Items))
	ready := &intHeap{}
	for i, n := range before {
		if n == 0 {
			ready.push(i)
		}
	}
	for len(*ready) > 0 {
		i := ready.pop()
		order = append(order, r.Items[i])
		for _, k := range next[i] {
			if before[k]--; before[k] == 0 {
				ready.push(k)
			}
		}
	}
	if len(order) == len(r.Items) {
		r.Items = order
	}
}

// markOrder sorts items whose ids count up: A, B, C or T1, T2, T3. Diagrams name ids in the order of their
// links.
func markOrder(r *Reading) {
	for _, it := range r.Items {
		if it.ID == "" {
			return
		}
		counts := utf8.RuneCountInString(it.ID) == 1 || strings.ContainsAny(it.ID[len(it.ID)-1:], "0123456789")
		if !counts || markShape(it.ID) != markShape(r.Items[0].ID) {
			return
		}
	}
	sort.SliceStable(r.Items, func(i, j int) bool {
		a, b := r.Items[i].ID, r.Items[j].ID
		return len(a) < len(b) || len(a) == len(b) && a < b
	})
}

// markShape returns an id without its trailing number. A single letter becomes "a".
func markShape(s string) string {
	if utf8.RuneCountInString(s) == 1 && !digits(s) {
		return "a"
	}
	return strings.TrimRight(s, "0123456789")
}

// intHeap is a heap of numbers with the smallest on top.
type intHeap []int

func (h *intHeap) push(x int) {
	*h = append(*h, x)
	s := *h
	for i := len(s) - 1; i > 0 && s[(i-1)/2] > s[i]; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *intHeap) pop() int {
	s := *h
	x, n := s[0], len(s)-1
	s[0] = s[n]
	*h = s[:n]
	for i := 0; ; {
		k := 2*i + 1
		if k+1 < n && s[k+1] < s[k] {
			k++
		}
		if k >= n || s[k] >= s[i] {
			return x
		}
		s[i], s[k] = s[k], s[i]
		i = k
	}
}

// legend looks for a list outside of a diagram that explains at least half of its ids. The titles and the
// order of the list are used.
func legend(src *form.Source, r *Reading, first, last int) {
	index := make(map[string]int, len(r.Items))
	for i, it := range r.Items {
		index[it.ID] = i
	}
	items, used := make([]Item, 0, len(r.Items)), make([]bool, len(r.Items))
	start, end := r.Start, r.End
	for i := range src.Lines {
		l := &src.Lines[i]
		if i >= first && i <= last || len(l.Text) > 4000 {
			continue
		}
		for _, e := range legendEntries(l) {
			k, ok := index[e.id.Text]
			if !ok || used[k] {
				continue
			}
			it := r.Items[k]
			if it.Title == it.ID || len(e.title.Text) > len(it.Title) {
				it.Title = e.title.Text
			}
			used[k] = true
			items = append(items, it)
			start, end = min(start, l.Off), max(end, l.End)
		}
	}
	if n := len(items); n < 2 || n*2 < len(r.Items) {
		return
	}
	if len(items) == len(r.Items) && r.Weight > excerptWeight {
		r.Weight = max(r.Weight, 95)
	}
	for k, it := range r.Items {
		if !used[k] {
			items = append(items, it)
		}
	}
	r.Items, r.Start, r.End = items, start, end
}

// entry is the title of an id in a legend.
type entry struct{ id, title form.Piece }

// plainMarks blanks the marks of emphasis and code.
var plainMarks = strings.NewReplacer("**", "  ", "__", "  ", "`", " ")

// legendEntries reads the entries in a line: one behind a bullet or in a table row, or several as in "A =
// dig, B = sow".
func legendEntries(l *form.Line) (out []entry) {
	p := form.Piece{Text: l.Text, Off: l.Off}
	if row, ok := strings.CutPrefix(l.Text, "|"); ok {
		id, title, _ := strings.Cut(row, "|")
		title, _, _ = strings.Cut(title, "|")
		return []entry{{form.Piece{Text: strings.Trim(id, " *`"), Off: l.Off}, form.Piece{Text: strings.TrimSpace(title), Off: l.Off}}}
	}
	parts := []form.Piece{p}
	if all := form.SplitGroup(p); strings.Count(p.Text, "=") == len(all) {
		parts = all
		head, _, _ := strings.Cut(all[0].Text, "=")
		if k := strings.LastIndexAny(head, ":："); k >= 0 { // for example "Tasks: A = dig"
			_, n := utf8.DecodeRuneInString(head[k:])
			rest := strings.TrimLeft(all[0].Text[k+n:], " ")
			parts[0] = form.Piece{Text: rest, Off: p.Off + len(all[0].Text) - len(rest)}
		}
	}
	for _, p := range parts {
		p.Text = plainMarks.Replace(p.Text)
		if id, title, ok := form.SplitMark(cutBullet(p)); ok {
			out = append(out, entry{id, title})
		}
	}
	return out
}

// cutBullet drops a bullet and a check box.
func cutBullet(p form.Piece) form.Piece {
	s := strings.TrimLeft(p.Text, " ")
	for _, b := range [...]string{"- ", "* ", "+ ", "• ", "· ", "– ", "◦ ", "> ", "#### ", "### ", "## "} {
		if rest, ok := strings.CutPrefix(s, b); ok {
			s = strings.TrimLeft(rest, " ")
			break
		}
	}
	if len(s) > 4 && s[0] == '[' && s[2] == ']' && strings.IndexByte(" xX-", s[1]) >= 0 {
		s = strings.TrimLeft(s[3:], " ")
	}
	return form.Piece{Text: s, Off: p.Off + len(p.Text) - len(s)}
}
