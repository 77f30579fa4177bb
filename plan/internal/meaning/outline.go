package meaning

import (
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readOutline reads lists, checklists, phases, tickets and other texts with a line for each step.
func readOutline(src *form.Source) []*Reading {
	root := form.Outline(src)
	o := &outline{src: src, parent: map[*form.Item]*form.Item{}, looks: map[string]looks{}, said: map[*form.Item]bool{}}
	o.collect(root)
	o.statements()
	o.grouping()
	var out []*Reading
	for _, s := range o.series() {
		if src.Ended() {
			return nil
		}
		if r := o.read(s); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// outline is the tree of items in a text, with frequently used properties of the items.
type outline struct {
	src    *form.Source
	all    []*form.Item // in the order of the text
	parent map[*form.Item]*form.Item
	looks  map[string]looks
	said   map[*form.Item]bool // items that only state the needs of steps
	// groups are items that only group the entries below them. unsure are items for which this is uncertain.
	groups, unsure map[*form.Item]bool
}

func (o *outline) collect(it *form.Item) {
	for _, k := range it.Kids {
		o.parent[k] = it
		o.all = append(o.all, k)
		o.collect(k)
	}
}

// series is a set of items that may be the steps, and the property that they share.
type series struct {
	name  string
	items []*form.Item
	bonus int
	above int // number of items with steps among the entries below them
}

// groupWeight is the highest weight of a series of groups.
const groupWeight = 45

// series returns the sets of items that may be the steps of the plan.
func (o *outline) series() []series {
	boxes := series{name: "check boxes", bonus: 12}
	codes := series{name: "labels", bonus: 12}
	words := series{name: "names", bonus: 8}
	numbers := series{name: "numbers", bonus: 6}
	headings := series{name: "numbered headings", bonus: 4}
	plain := series{name: "bullets"}
	lines := series{name: "headings"}
	for _, it := range o.all {
		m := it.Mark
		p := o.parent[it]
		if o.said[it] {
			continue
		}
		switch it.Kind {
		case form.Heading:
			switch {
			case it.Box != 0:
				boxes.items = append(boxes.items, it)
			case m.Style == form.Code:
				codes.items = append(codes.items, it)
			case m.Style != form.NoMark:
				headings.items = append(headings.items, it)
			default:
				lines.items = append(lines.items, it)
			}
		case form.Entry:
			if it.Box != 0 {
				boxes.items = append(boxes.items, it)
			}
			switch {
			case m.Style == form.Code:
				codes.items = append(codes.items, it)
			case m.Style == form.Word:
				words.items = append(words.items, it)
			case m.Style != form.NoMark:
				numbers.items = append(numbers.items, it)
			case (p.Kind != form.Entry || o.groups[p]) && it.Box == 0 && !o.groups[it]:
				plain.items = append(plain.items, it)
			}
		}
	}
	numbers.items = withoutStrays(numbers.items)
	numbers.items, plain.items, boxes.items = o.mixed(numbers.items, plain.items, boxes.items)
	for _, s := range [...]*series{&headings, &lines, &numbers} {
		for _, it := range s.items {
			s.above += b2i(o.groups[it] || it.Kind == form.Heading && holdsEntries(it))
		}
		s.bonus -= 20 * s.above / max(1, len(s.items))
	}
	var out []series
	for _, s := range [...]series{boxes, codes, words, numbers, headings, plain, lines} {
		if len(s.items) > 0 {
			s.items = s.items[:min(len(s.items), o.src.MaxItems+1)] // one more shows that there are more
			out = append(out, s)
		}
	}
	return out
}

// withoutStrays drops a single letter or number that is no step, such as the initial of a signature or "P.
// S.".
func withoutStrays(items []*form.Item) []*form.Item {
	style := func(it *form.Item) form.MarkStyle {
		if it.Mark.Style == form.Lettered {
			return form.Number
		}
		return it.Mark.Style
	}
	var count [form.Word + 1]int
	for _, it := range items {
		count[style(it)]++
	}
	var out []*form.Item
	for _, it := range items {
		if n := count[style(it)]; n > 1 || len(items) < 3 {
			out = append(out, it)
		}
	}
	return out
}

// holdsEntries reports whether there are marked entries or headings below an item. Such an item is a group
// rather than a step.
func holdsEntries(it *form.Item) bool {
	return slices.ContainsFunc(it.Kids, func(k *form.Item) bool {
		return k.Kind == form.Entry && (k.Mark.Style != form.NoMark || k.Box != 0) || k.Kind == form.Heading
	})
}

// step is an item of a series that becomes a problem.
type step struct {
	it    *form.Item
	id    string
	shown bool
	group *form.Item // the heading or entry above it, or nil
	up    int        // index of the step above it, or -1
	holds bool       // whether there are steps below it
	attrs []Attr
	texts []text // the texts about it
}

// text is a part of the source with its offset.
type text struct {
	s   string
	off int
}

// read reads the steps of a series, or of its likeliest part.
func (o *outline) read(s series) *Reading {
	var left []run
	s.items, left = o.choosePlan(s)
	r := o.readSeries(s)
	if r != nil {
		o.noteOthers(r, s, left)
		if s.above > 1 && s.above == len(s.items) {
			r.Weight = min(r.Weight, groupWeight)
		}
	}
	return r
}

// readSeries reads all items of a series as steps.
func (o *outline) readSeries(s series) *Reading {
	steps := o.steps(s)
	r := &Reading{Form: "outline", Start: steps[0].it.Off, End: steps[0].it.End}
	named, members, heads := o.name(steps)
	in := map[*form.Item]bool{}
	for i := range steps {
		in[steps[i].it] = true
		r.Start, r.End = min(r.Start, steps[i].it.Off), max(r.End, steps[i].it.End)
	}
	var w *linker
	for k, lang := range o.languages(named) {
		names := namesIn(named, lang)
		names.ended = o.src.Ended
		x := &linker{r: &Reading{}, maxLinks: o.src.MaxLinks, pathed: -1, names: names, steps: steps, members: members, heads: heads}
		x.readSteps(o, in)
		if k == 0 || x.understood() > w.understood() {
			w = x
		}
	}
	r.Links, r.Around, w.r = w.r.Links, w.r.Around, r
	w.link()
	o.weigh(r, s, steps, w)
	below, between := details(o.src, steps)
	r.Around = append(r.Around, between...)
	for i := range steps {
		st := &steps[i]
		item := Item{ID: st.id, Shown: st.shown, Title: st.title(), Details: below[i], Parent: st.up, Off: st.it.Off, End: st.it.End}
		for _, a := range append(st.attrs, remarked(st.texts[0])...) {
			if role, _ := lexicon.Field(a.Key); role != lexicon.ID && role != lexicon.Requires && role != lexicon.Next {
				item.Attrs = append(item.Attrs, unpacked(a)...)
			}
		}
		r.Items = append(r.Items, item)
		if st.shown && st.it.Text == "" && st.it.Mark.Style != form.Word && len(st.it.Kids) == 0 {
			r.Notes = append(r.Notes, Note{Code: "MISSING_FIELD", Element: st.id, Off: item.Off, Message: "the step has a number and no text", Hint: "write what is to be done"})
		}
	}
	o.unsureOf(r, steps)
	withoutStruck(r, steps)
	r.Open = r.End >= len(strings.TrimRight(o.src.Text, " \n\t\r"))
	return r
}

// maxGuessed bounds the texts whose language is chosen by comparing readings, in bytes.
const maxGuessed = 16 << 10

// languages returns the possible languages of the texts about the steps, the most likely first. There are
// several if the common words do not decide.
func (o *outline) languages(named []Named) []lexicon.Lang {
	out := []lexicon.Lang{titlesLanguage(named)}
	if l := lexicon.Lang(languageOf(o.src)); out[0] == "" && l != "" {
		out = []lexicon.Lang{l, ""}
	}
	list, votes := lexicon.Languages(o.src.Text)
	for i, l := range list {
		if len(o.src.Text) > maxGuessed || i > 5 || votes[i]*4 < votes[0] {
			break
		}
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// steps makes steps from the items of a series. The items below a step are its fields, its texts, or steps
// themselves.
func (o *outline) steps(s series) []step {
	in := make(map[*form.Item]int, len(s.items))
	steps := make([]step, 0, len(s.items))
	for _, it := range s.items {
		up := -1
		var group *form.Item
		depth := 0
		for p := o.parent[it]; p != nil && depth < o.src.MaxDepth; p = o.parent[p] {
			if k, ok := in[p]; ok && up < 0 {
				up = k
			}
			if group == nil && (p.Kind == form.Heading && p.Level > 0 || p.Kind == form.Entry) {
				group = p
			}
			depth++
		}
		if up >= 0 && !sub(steps[up].it, it) {
			continue
		}
		in[it] = len(steps)
		steps = append(steps, step{it: it, up: up, group: group})
		if up >= 0 {
			steps[up].holds = true
		}
	}
	for i := range steps {
		steps[i].below(o.src, in, steps[i].it, 0)
	}
	return steps
}

// sub reports whether an item below a step is a step rather than a detail: it continues the number of the
// upper step, or has a label of another kind.
func sub(up, it *form.Item) bool {
	a, b := up.Mark, it.Mark
	switch {
	case it.Box != 0 && b.Style == form.NoMark:
		return up.Box != 0
	case a.Style == form.Number && b.Style == form.Number:
		return len(b.Path) > len(a.Path) || it.Indent > up.Indent && it.Bullet == 0
	case b.Style == form.Code:
		return a.Style != form.Code || strings.HasPrefix(b.Label, a.Label+".")
	}
	return b.Style == form.Letter || b.Style == form.Lettered || isRoman(b)
}

// below adds the items below an item to the fields and texts of the step.
func (st *step) below(src *form.Source, in map[*form.Item]int, it *form.Item, depth int) {
	if depth == 0 {
		st.texts = append(st.texts, text{it.Text, it.TextOff})
		switch {
		case it.State != "" && it.State != "TODO":
			st.attrs = append(st.attrs, Attr{Key: "status", Value: it.State, Off: it.Off})
		case it.Box == 'x':
			st.attrs = append(st.attrs, Attr{Key: "status", Value: "done", Off: it.Off})
		}
		if it.Tags != "" {
			st.attrs = append(st.attrs, Attr{Key: "tags", Value: it.Tags, Off: it.Off})
		}
	}
	for _, k := range it.Kids {
		if _, ok := in[k]; ok || depth > 20 {
			continue
		}
		if fs := fields(k); len(fs) > 0 && (!inCode(src, k) || inCode(src, st.it)) {
			st.attrs = append(st.attrs, fs...)
		} else {
			st.texts = append(st.texts, marked(src, k))
		}
		st.below(src, in, k, depth+1)
	}
}

// inCode reports whether an item is inside a code fence.
func inCode(src *form.Source, it *form.Item) bool { return src.Lines[src.LineAt(it.Off)].InCode }

// marked returns the text of an item including a mark that may be a reference: "T1 must be done" refers to
// T1.
func marked(src *form.Source, it *form.Item) text {
	m := it.Mark
	if m.Style == form.NoMark || m.Noun == "" && m.Style == form.Number || m.Off > it.TextOff {
		return text{it.Text, it.TextOff}
	}
	return whole(src, it)
}

// maxKey bounds the name of a field, in characters.
const maxKey = 40

// fields splits "Depends on: 1, 2", ":ID: x", "depende :: x" and "Who: Ann. By: May. Needs: 1" into names and
// values.
func fields(it *form.Item) []Attr {
	first, ok := field(it.Text, it.TextOff)
	if !ok {
		return nil
	}
	out := []Attr{first}
	for len(out) < maxFields {
		last := &out[len(out)-1]
		next, at := Attr{}, -1
		for i := range len(last.Value) {
			if strings.IndexByte(".;|,", last.Value[i]) < 0 {
				continue
			}
			a, ok := field(last.Value[i+1:], last.Off+i+1)
			if _, known := lexicon.Field(a.Key); ok && known {
				next, at = a, i
				break
			}
		}
		if at < 0 {
			break
		}
		last.Value = strings.TrimSpace(last.Value[:at])
		out = append(out, next)
	}
	return out
}

// maxFields bounds the fields of a line.
const maxFields = 8

// field splits a text into the name of a field and its value.
func field(s string, off int) (a Attr, ok bool) {
	lead := len(s) - len(strings.TrimLeft(s, " :→➜-–>_"))
	at := strings.IndexAny(s[lead:min(len(s), lead+2*maxKey)], ":=：")
	if at <= 0 {
		return a, false
	}
	a.Key = strings.TrimSpace(s[lead : lead+at])
	if strings.Count(a.Key, " ") > 4 || strings.ContainsAny(a.Key, "0123456789.,;()?!|") {
		return a, false
	}
	rest := strings.TrimLeft(s[lead+at:], ":= >：")
	a.Value, a.Off = strings.TrimRight(rest, " "), off+len(s)-len(rest)
	return a, true
}

// unpacked returns a field with its role. If its value is an object of arguments, unpacked returns the
// arguments instead.
func unpacked(a Attr) []Attr {
	a.Role = roleOf(a.Key, a.Value)
	if a.Role != Args || !strings.HasPrefix(a.Value, "{") {
		return []Attr{a}
	}
	t, end := form.ValueAt(a.Value, 0, maxFields, false)
	if t == nil || t.Root == nil || t.CutOff || !isMap(t.Root) || len(t.Root.Fields) == 0 || end < len(a.Value) {
		return []Attr{a}
	}
	out := make([]Attr, 0, len(t.Root.Fields))
	for _, f := range t.Root.Fields[:min(len(t.Root.Fields), maxAttrs)] {
		out = append(out, Attr{Key: f.Key, Role: Args, Value: form.JSON(f.Val), Off: a.Off + f.Off})
	}
	return out
}

// timeUnits are the units of durations in remarks.
var timeUnits = wordsOf("units of time")

// remarked returns the owner, the tool and the duration in a remark in brackets at the end of a step's text:
// "(owner: Alice, 2 days)".
func remarked(t text) (out []Attr) {
	from := strings.LastIndexByte(t.s, '(')
	n := strings.IndexByte(t.s[max(from, 0):], ')')
	if from < 0 || n < 0 || n > 4*maxKey {
		return nil
	}
	at, tool := from+1, false
	for _, part := range strings.FieldsFunc(t.s[at:from+n], func(r rune) bool { return r == ',' || r == ';' || r == '|' }) {
		off := t.off + at + strings.Index(t.s[at:], part)
		a, ok := field(part, off)
		role, _ := lexicon.Field(a.Key)
		switch words := strings.Fields(part); {
		case ok && (role == lexicon.Owner || role == lexicon.Duration || roleOf(a.Key, a.Value) == Tool):
			out, tool = append(out, a), tool || role == lexicon.Tool
		case ok && tool && roleOf(a.Key, a.Value) == "" && role == "": // an argument of the tool
			out = append(out, a)
		case len(words) == 2 && timeUnits[strings.ToLower(words[1])] && strings.Trim(words[0], "0123456789.½") == "":
			out = append(out, Attr{Key: "duration", Role: Duration, Value: strings.Join(words, " "), Off: off})
		}
	}
	return out
}

// title returns the request of a step: the text of its line, or the first text below it if the line holds
// only a mark.
func (st *step) title() string {
	t := squeeze(st.texts[0].s)
	if t == "" && len(st.texts) > 1 {
		t = squeeze(st.texts[1].s)
	}
	if t == "" {
		return st.id
	}
	if m := st.it.Mark; m.Style == form.Word && m.Noun == "" && t[0] == '(' {
		return m.Label + " " + t // for example "plant (after dig)"
	}
	return t
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// name assigns an id to each step. It returns the names of the steps followed by the names of their groups,
// and the steps that each name refers to. heads holds the index of each group's name.
func (o *outline) name(steps []step) (named []Named, members [][]int, heads map[*form.Item]int) {
	o.ids(steps)
	named, members = make([]Named, len(steps)), make([][]int, len(steps))
	var above []Named
	var held [][]int
	heads = map[*form.Item]int{}
	holders := o.holders(steps)
	for i := range steps {
		st := &steps[i]
		it := st.it
		n := Named{ID: st.id, Noun: it.Mark.Noun, Parent: st.up, Group: st.holds, Made: !st.shown}
		if it.Strong > 0 && it.Strong < len(it.Text) {
			n.Titles = append(n.Titles, squeeze(it.Text[:it.Strong]))
		}
		n.Titles = append(n.Titles, squeeze(it.Text))
		n.Exact = behindOwner(squeeze(it.Text))
		for _, g := range holders[i] {
			k, ok := heads[g]
			if !ok {
				k = len(above)
				heads[g] = k
				h := Named{Parent: -1, Group: true}
				if g.Mark.Noun != "" {
					h.ID, h.Noun, h.Titles = g.Mark.Noun+" "+g.Mark.Label, g.Mark.Noun, []string{squeeze(g.Text)}
					if len(g.Mark.Path) == 1 {
						h.Number = g.Mark.Path[0]
					}
				} else if g.Kind == form.Heading {
					h.Whole, h.Titles = true, []string{squeeze(g.Text)}
				}
				above = append(above, h)
				held = append(held, nil)
			}
			held[k] = append(held[k], i)
			if n.Parent < 0 {
				n.Parent = len(steps) + k
			}
		}
		named[i] = n
		if !st.holds {
			members[i] = []int{i}
		}
		for up, d := st.up, 0; up >= 0 && !st.holds && d < o.src.MaxDepth; up, d = steps[up].up, d+1 {
			members[up] = append(members[up], i)
		}
	}
	for g := range heads {
		heads[g] += len(steps)
	}
	return slices.Concat(named, above), slices.Concat(members, held), heads
}

// behindOwner returns the text behind the first part of a text if that part may be an owner: "Ann – dig –
// after the survey", "Ann: dig".
func behindOwner(s string) []string {
	for _, sign := range [...]string{" – ", " — ", " - ", ": ", " | ", "："} {
		if head, rest, ok := strings.Cut(s, sign); ok && len(strings.Fields(head)) <= 3 && !strings.ContainsAny(head, "([（") && !lexicon.Relates(head+sign) {
			next, _, _ := strings.Cut(rest, sign)
			return []string{next}
		}
	}
	return nil
}

// holders returns, for each step, the headings above it, the nearest first, after the line that announces it:
// "Then, all after 1:". An item that holds all steps is the title of the plan and left out.
func (o *outline) holders(steps []step) [][]*form.Item {
	out := make([][]*form.Item, len(steps))
	place := make(map[*form.Item]int, len(steps))
	count := map[*form.Item]int{}
	for i := range steps {
		place[steps[i].it] = i
		if steps[i].up >= 0 {
			continue
		}
		for p, d := o.parent[steps[i].it], 0; p != nil && d < o.src.MaxDepth && len(out[i]) < maxNested; p, d = o.parent[p], d+1 {
			if p.Kind == form.Heading && p.Level > 0 || p.Kind == form.Entry && (p.Mark.Noun != "" || o.groups[p]) {
				out[i] = append(out[i], p)
				count[p]++
			}
		}
	}
	var line *form.Item
	indent := -1
	for _, it := range o.all {
		i, isStep := place[it]
		switch {
		case it.Kind == form.Heading && !isStep, it.Kind == form.Plain && o.parent[it].Kind == form.Heading:
			line, indent = nil, -1
			if it.Kind == form.Plain && strings.HasSuffix(strings.TrimRight(it.Text, " "), ":") {
				line = it
			}
		case !isStep || steps[i].up >= 0 || line == nil:
		case indent < 0 || it.Indent == indent:
			indent = it.Indent
			out[i] = append([]*form.Item{line}, out[i]...)
			count[line]++
		default:
			line = nil
		}
	}
	for i := range out {
		out[i] = slices.DeleteFunc(out[i], func(p *form.Item) bool { return count[p] == len(steps) && p.Mark.Noun == "" })
	}
	return out
}

// ids gives each step the id in the text, or else one made from its position.
func (o *outline) ids(steps []step) {
	seen := map[string]int{}
	marks := 0
	for i := range steps {
		st := &steps[i]
		m := st.it.Mark
		for _, a := range st.attrs {
			if role, _ := lexicon.Field(a.Key); role == lexicon.ID && !strings.ContainsAny(strings.TrimSpace(a.Value), " ,") && a.Value != "" {
				st.id, st.shown = strings.TrimSpace(a.Value), true
			}
		}
		if st.id == "" && m.Style != form.NoMark {
			st.id, st.shown = strings.TrimRight(m.Label, "."), true
			marks++
		}
		if st.id != "" {
			seen[st.id]++
		}
	}
	if marks == 0 && len(seen) == 0 && o.byTitle(steps) {
		return
	}
	countBullets(steps, seen)
	repeated := 0
	for _, n := range seen {
		repeated += n - 1
	}
	if nested(steps, seen); repeated > 0 {
		o.restart(steps, seen)
	}
	for i := range steps {
		if steps[i].id == "" {
			steps[i].id = strconv.Itoa(i + 1)
		}
	}
}

// countBullets numbers the bullets of a phase from 1 if other phases have numbers.
func countBullets(steps []step, seen map[string]int) {
	numbered, count := map[*form.Item]bool{}, map[*form.Item]int{}
	for i := range steps {
		numbered[steps[i].group] = numbered[steps[i].group] || steps[i].id != ""
	}
	for i := range steps {
		st := &steps[i]
		if g := st.group; len(seen) > 0 && g != nil && g.Kind == form.Heading && !numbered[g] {
			count[g]++
			st.id = strconv.Itoa(count[g])
			seen[st.id]++
		}
	}
}

// nested prefixes numbers and repeated letters below a number: a below 1 becomes 1a, and 2 below 1 becomes
// 1.2.
func nested(steps []step, seen map[string]int) {
	for i := range steps {
		st := &steps[i]
		m := st.it.Mark
		if st.up < 0 || len(m.Path) != 1 || steps[st.up].it.Mark.Style != form.Number {
			continue
		}
		if m.Style == form.Number {
			seen[st.id]--
			st.id = steps[st.up].id + "." + st.id
			seen[st.id]++
		} else if m.Style == form.Letter && seen[st.id] > 1 {
			st.id = steps[st.up].id + st.id
		}
	}
}

// byTitle uses the titles as ids if they are short, different, and headings or in bold. Otherwise it returns
// false.
func (o *outline) byTitle(steps []step) bool {
	seen := map[string]bool{}
	titles := make([]string, len(steps))
	for i := range steps {
		it := steps[i].it
		t := it.Text
		if it.Kind != form.Heading {
			if it.Strong == 0 {
				return false
			}
			t = t[:it.Strong]
		}
		t = strings.Trim(squeeze(t), " :：.")
		if t == "" || len(t) > 80 || seen[t] {
			return false
		}
		seen[t], titles[i] = true, t
	}
	for i := range steps {
		steps[i].id, steps[i].shown = titles[i], true
	}
	return true
}

// restart makes unique ids from numbers that start again. If all are the same, as in Markdown lists of ones,
// the steps are counted. If they start again below each heading, they get the number of the heading as a
// prefix.
func (o *outline) restart(steps []step, seen map[string]int) {
	groups := map[*form.Item]int{}
	var order []*form.Item
	inGroup := map[*form.Item]map[string]bool{}
	same := true
	for i := range steps {
		st := &steps[i]
		g := st.group
		if _, ok := groups[g]; !ok {
			groups[g] = len(order) + 1
			order = append(order, g)
			inGroup[g] = map[string]bool{}
		}
		if inGroup[g][st.id] {
			same = false
		}
		inGroup[g][st.id] = true
	}
	if len(seen) == 1 {
		for i := range steps {
			steps[i].id = strconv.Itoa(i + 1)
		}
		return
	}
	for i := range steps {
		st := &steps[i]
		if !same || st.up >= 0 || st.group == nil {
			continue
		}
		n := strconv.Itoa(groups[st.group])
		st.id = n + "." + st.id
	}
}
