package meaning

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readDiagram reads drawings: what has a language of its own, lines of arrows, boxes and lines, charts and
// Makefiles.
func readDiagram(src *form.Source) []*Reading {
	if chartAlone(src) {
		return nil
	}
	var out []*Reading
	drawn := form.Diagrams(src)
	for _, g := range drawn {
		if r := diagramReading(src, g); r != nil {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		for _, g := range form.Drawings(src) {
			if onlyArrows(src, g.First, g.Last) {
				continue
			}
			if r := diagramReading(src, g); r != nil {
				out = append(out, r)
			}
		}
	}
	if len(out) == 0 {
		out = append(out, readTree(src)...)
	}
	if len(out) == 0 {
		out = append(out, arrowReadings(src)...)
	}
	if len(out) == 0 {
		out = append(out, readChart(src)...)
	}
	if len(out) > 1 {
		differ(out)
	}
	return out
}

// onlyArrows reports whether all lines of a drawing are lines of arrows, which say more when they are read
// as such.
func onlyArrows(src *form.Source, first, last int) bool {
	for _, l := range src.Lines[first : last+1] {
		if l.Text != "" && !IsArrowLine(l.Text) {
			return false
		}
	}
	return true
}

// maxUnsureLinks bounds how many links of one reading are noted one by one to be unsure.
const maxUnsureLinks = 300

// moreUnsure notes how many more links are unsure than were noted one by one.
func (r *Reading) moreUnsure(n int) {
	if n > maxUnsureLinks {
		r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: "links", Off: r.Start, Message: strconv.Itoa(n-maxUnsureLinks) + " more links may be meant otherwise", Hint: "say which way the links run"})
	}
}

// diagramReading turns a diagram into a reading.
func diagramReading(src *form.Source, g *form.Diagram) *Reading {
	if len(g.Nodes) == 0 || len(g.Nodes) < 2 && len(g.Links) == 0 {
		return nil
	}
	r := &Reading{Form: "diagram", Start: g.Start, End: g.End, Stated: true, Open: !g.Closed, Weight: diagramWeight(g), Evidence: []string{g.Kind}}
	for _, n := range g.Nodes {
		title := n.Label
		if title == "" {
			title = n.ID
		}
		r.Items = append(r.Items, Item{ID: n.ID, Shown: !n.Hidden, Title: title, Parent: -1, Off: n.Off, End: n.End})
	}
	turned, straight, assumed := 0, 0, 0
	for _, l := range g.Links {
		if needsLabel(l.Label) {
			l.From, l.To = l.To, l.From
			turned++
		} else {
			straight++
		}
		source := Stated
		if l.Assumed != "" {
			source = ListedOrder
			if assumed++; assumed <= maxUnsureLinks {
				r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: l.To, Off: l.Off, Message: l.From + " was taken to come before " + l.To + ": " + l.Assumed, Hint: "state what " + l.To + " waits for"})
			}
		}
		r.Links = append(r.Links, Link{From: l.From, To: l.To, Source: source, Off: l.Off})
	}
	r.moreUnsure(assumed)
	for _, f := range g.Faults {
		r.Notes = append(r.Notes, Note{Fault: f.Serious, Code: f.Code, Element: f.Element, Message: f.Message, Hint: f.Hint, Off: f.Off})
	}
	switch {
	case turned > 0 && straight > 0:
		for _, l := range r.Links[:min(len(r.Links), maxUnsureLinks)] {
			r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: l.From + " -> " + l.To, Off: l.Off, Message: "some arrows say that they lead to what is needed; " + l.From + " was taken to come before " + l.To, Hint: "let all arrows lead forward"})
		}
		r.moreUnsure(len(r.Links))
	case turned == 0 && pointsToNeeds(src, g.First, g.Last):
		turn(r)
	}
	if g.Flow {
		flowOrder(r)
	} else if g.Kind == "mermaid" || g.Kind == "dot" {
		markOrder(r)
	}
	legend(src, r, g.First, g.Last)
	if g.Undirected > 0 && g.Undirected == len(g.Links) && !demands(src, r.Items) {
		r.Weight, r.Not = 20, "a graph whose edges have no direction"
	}
	return r
}

// demands reports whether most titles say what to do.
func demands(src *form.Source, items []Item) bool {
	langs, n := languagesOf(languageOf(src), src.Text), 0
	for i := range items {
		m := moodIn(langs, items[i].Title)
		n += b2i(m == acting || m == deed)
	}
	return n*2 > len(items)
}

// diagramWeight says how sure it is that a diagram is the plan.
func diagramWeight(g *form.Diagram) int {
	switch {
	case len(g.Links) == 0:
		return 40
	case g.Kind == "art" || g.Kind == "arrows":
		return 90
	}
	return 95
}

// flowOrder sorts the items as they follow one another, those that are not ordered by their places.
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

// markOrder sorts items whose ids count up: A, B, C or T1, T2, T3. A diagram names them as its links need
// them.
func markOrder(r *Reading) {
	shape := ""
	key := func(id string) (string, int) {
		k := len(id)
		for k > 0 && '0' <= id[k-1] && id[k-1] <= '9' && len(id)-k < 6 {
			k--
		}
		n, err := strconv.Atoi(id[k:])
		if err != nil {
			return id, 0
		}
		return id[:k], n
	}
	for _, it := range r.Items {
		head, n := key(it.ID)
		if n == 0 && utf8.RuneCountInString(it.ID) != 1 {
			return
		}
		if n == 0 {
			head = "a"
		}
		if shape != "" && shape != head {
			return
		}
		shape = head
	}
	sort.SliceStable(r.Items, func(i, j int) bool {
		a, m := key(r.Items[i].ID)
		b, n := key(r.Items[j].ID)
		return a < b || a == b && m < n
	})
}

// intHeap gives out its numbers from the least on.
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

// differ reports where the other diagrams of a text say something else than the one that is read first: the
// heaviest, and of those the one with the most links.
func differ(all []*Reading) {
	best := all[0]
	for _, r := range all[1:] {
		switch {
		case r.Weight >= best.Weight && r.Start > best.Start && Replaces(best, r),
			r.Weight > best.Weight, r.Weight == best.Weight && len(r.Links) > len(best.Links):
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

// entry is a line of a legend: a mark and what it stands for.
type entry struct {
	id, title form.Piece
	line      int
}

// legend looks outside of a diagram for a list that says what its ids stand for. Its titles and its order are
// taken; what the list has and the diagram has not is added, as it stands in the list only.
func legend(src *form.Source, r *Reading, first, last int) {
	index := make(map[string]int, len(r.Items))
	for i, it := range r.Items {
		index[it.ID] = i
	}
	var found []entry
	named := map[string]bool{}
	matched := 0
	for i := range src.Lines {
		if i >= first && i <= last || src.Lines[i].Text == "" || src.Lines[i].Fence {
			continue
		}
		for _, e := range legendEntries(src, i) {
			if _, known := index[e.id.Text]; known && !named[e.id.Text] {
				matched++
			}
			if named[e.id.Text] {
				continue
			}
			named[e.id.Text] = true
			found = append(found, e)
		}
		if len(found) > 20_000 {
			return
		}
	}
	if matched < 2 || matched*2 < len(r.Items) {
		return
	}
	from, to := -1, -1
	for i, e := range found {
		if _, ok := index[e.id.Text]; ok {
			if from < 0 {
				from = i
			}
			to = i
		}
	}
	// Entries of the same list before the first and behind the last known one belong to it as well.
	same := func(a, b entry) bool {
		return b.line-a.line <= 1 && sameMark(a.id.Text, b.id.Text)
	}
	for from > 0 && same(found[from-1], found[from]) {
		from--
	}
	for to+1 < len(found) && same(found[to], found[to+1]) {
		to++
	}
	var items []Item
	used := make([]bool, len(r.Items))
	for _, e := range found[from : to+1] {
		k, ok := index[e.id.Text]
		if !ok {
			if len(items) > 0 && sameMark(items[0].ID, e.id.Text) {
				items = append(items, Item{ID: e.id.Text, Shown: true, Title: e.title.Text, Parent: -1, Off: e.id.Off, End: e.title.Off + len(e.title.Text)})
			}
			continue
		}
		it := r.Items[k]
		if it.Title == it.ID || len(e.title.Text) > len(it.Title) {
			it.Title = e.title.Text
		}
		used[k] = true
		items = append(items, it)
	}
	if matched == len(r.Items) {
		if r.Weight > excerptWeight {
			r.Weight = max(r.Weight, 95)
		}
		r.Items = items
	} else {
		for k, it := range r.Items {
			if !used[k] {
				items = append(items, it)
			}
		}
		r.Items = items
	}
	if len(found) > 0 {
		r.Start = min(r.Start, src.Lines[found[from].line].Off)
		r.End = max(r.End, src.Lines[found[to].line].End)
	}
}

// sameMark reports whether two ids are of one kind: both numbers, or the same letters before a number, or
// both letters.
func sameMark(a, b string) bool {
	return markShape(a) == markShape(b)
}

func markShape(s string) string {
	var b strings.Builder
	last := rune(0)
	for _, r := range s {
		switch {
		case '0' <= r && r <= '9':
			r = '0'
		case len(s) <= 2:
			r = 'a'
		}
		if r != last || r != '0' {
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

// legendEntries reads the entries of line i: one behind a bullet or in a row of a table, or several as in "A
// = dig, B = sow".
func legendEntries(src *form.Source, i int) []entry {
	l := &src.Lines[i]
	text, off := l.Text, l.Off
	if len(text) > 4000 {
		return nil
	}
	if parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ';' || r == '，' || r == '；' }); len(parts) > 1 && strings.Count(text, "=") == len(parts) {
		var out []entry
		at := 0
		for _, p := range parts {
			k := strings.Index(text[at:], p) + at
			at = k + len(p)
			a, b, _ := strings.Cut(p, "=")
			if head := strings.LastIndexAny(a, ":："); len(out) == 0 && head >= 0 { // "Tasks: A = dig"
				_, size := utf8.DecodeRuneInString(a[head:])
				a, k = a[head+size:], k+head+size
			}
			out = append(out, entry{form.Piece{Text: strings.TrimSpace(a), Off: off + k}, form.Piece{Text: strings.TrimSpace(b), Off: off + k + len(a) + 1}, i})
		}
		return out
	}
	p := form.Piece{Text: text, Off: off}
	if strings.HasPrefix(text, "|") {
		cells := strings.SplitN(strings.Trim(text, "|"), "|", 3)
		if len(cells) < 2 {
			return nil
		}
		id := strings.Trim(cells[0], " *`")
		return []entry{{form.Piece{Text: id, Off: off + strings.Index(text, id)}, form.Piece{Text: strings.TrimSpace(cells[1]), Off: off + 1 + len(cells[0]) + 1}, i}}
	}
	p = cutBullet(p)
	for _, q := range [...]string{"**", "__", "`", "*"} {
		if rest, ok := strings.CutPrefix(p.Text, q); ok {
			if k := strings.Index(rest, q); k > 0 {
				inner := form.Piece{Text: rest[:k], Off: p.Off + len(q)}
				if id, title, ok := form.SplitMark(inner); ok {
					title.Text += rest[k+len(q):]
					return []entry{{id, title, i}}
				}
				title := strings.TrimLeft(rest[k+len(q):], " :：–—-=")
				return []entry{{form.Piece{Text: strings.TrimRight(inner.Text, ".:)"), Off: inner.Off}, form.Piece{Text: title, Off: l.End - len(title)}, i}}
			}
		}
	}
	if id, title, ok := form.SplitMark(p); ok {
		return []entry{{id, title, i}}
	}
	return nil
}

// cutBullet drops a bullet and a check box.
func cutBullet(p form.Piece) form.Piece {
	s := p.Text
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
