package meaning

import (
	"slices"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// linker collects the statements of a text about the order of steps, and makes links of them.
type linker struct {
	r        *Reading
	maxLinks int
	pathed   int // number of steps with numbers such as 2.1, or -1 before they are counted
	names    *Names
	steps    []step
	members  [][]int            // the steps that each name refers to
	heads    map[*form.Item]int // the names of headings and lines above steps
	rels     []Relation
	doubts   []Doubt
	ids      map[string]bool
	rule     Rule
	// roles are the roles of fields with unknown names.
	roles map[string]lexicon.Role
	// abreast are the groups whose steps run in parallel.
	abreast []int
	// own is the number of relations that the steps state. left is set if the lines below the steps change
	// the listed order, which amend does later.
	own  int
	left bool
}

// readText adds the relations in a text of a step.
func (w *linker) readText(self int, t text) {
	rels, doubts := w.names.Relations(self, t.s, t.off)
	w.rels = append(w.rels, rels...)
	w.doubts = append(w.doubts, doubts...)
}

// readSteps adds the relations in all texts and fields of the steps, and in the lines around them.
func (w *linker) readSteps(o *outline, in map[*form.Item]bool) {
	w.roleByValues()
	for i := range w.steps {
		if i&63 == 0 && o.src.Ended() {
			return
		}
		for _, t := range w.steps[i].texts {
			w.readText(i, t)
		}
		for _, a := range w.steps[i].attrs {
			w.field(i, a)
		}
	}
	w.own = len(w.rels)
	o.readOutside(w, in)
}

// understood counts the references in relations, minus the doubts.
func (w *linker) understood() int {
	n := -2 * len(w.doubts)
	for _, rel := range w.rels {
		switch {
		case rel.Kind == None:
			n++
		case !rel.Guessed:
			n += 2*len(rel.Items) + len(rel.Unknown)
		}
	}
	return n
}

// fieldLeads are the words that precede the values of fields when these are read as sentences.
var fieldLeads = map[lexicon.Role]string{
	lexicon.Requires: "depends on: ", lexicon.Next: "is needed for: ", lexicon.Parallel: "in parallel with ",
}

// field adds the relations in a field of a step.
func (w *linker) field(self int, a Attr) {
	role, ok := lexicon.Field(a.Key)
	if !ok {
		role = w.roles[lexicon.Fold(a.Key)]
	}
	lead := fieldLeads[role]
	switch {
	case ok && (role == lexicon.ID || role == lexicon.Owner || role == lexicon.Status):
		return
	case a.isData():
		w.object(self, a)
		return
	case lead == "":
		lead = a.Key + ": "
	default:
		a.Value = w.names.parted(a.Value)
	}
	rels, doubts := w.names.Relations(self, lead+a.Value, a.Off-len(lead))
	if len(rels) == 0 && role == lexicon.Requires && strings.Trim(a.Value, " -–—./") == "" {
		rels = append(rels, Relation{Kind: None, Subjects: []int{self}, Off: a.Off, End: a.Off + len(a.Value)})
	}
	w.rels = append(w.rels, rels...)
	w.doubts = append(w.doubts, doubts...)
}

// isData reports whether a field holds a tool or an object of arguments, which do not describe steps.
func (a *Attr) isData() bool {
	role, _ := lexicon.Field(a.Key)
	return toolNames[strings.ToLower(a.Key)] || role == lexicon.Args && strings.HasPrefix(a.Value, "{")
}

// object adds the relations in the texts of an object of arguments. Keys and numbers are ignored.
func (w *linker) object(self int, a Attr) {
	t, _ := form.ValueAt(a.Value, 0, maxFields, false)
	if t == nil || t.Root == nil {
		return
	}
	var visit func(v *form.Value)
	visit = func(v *form.Value) {
		if v.Kind == form.KindString {
			w.readText(self, text{v.Str, a.Off + int(v.In)})
		}
		for _, x := range v.Items {
			visit(x)
		}
		for _, f := range v.Fields {
			visit(f.Val)
		}
	}
	visit(t.Root)
}

// parted puts signs between ids that are separated only by spaces. Offsets do not change.
func (n *Names) parted(value string) string {
	words := strings.Fields(value)
	for _, s := range words {
		if _, ok := n.byKey[lexicon.Fold(s)]; !ok {
			return value
		}
	}
	if len(words) < 2 {
		return value
	}
	return strings.ReplaceAll(value, " ", "+")
}

// roleByValues finds fields with unknown names whose values are ids of other steps. These steps come before,
// unless all of them are listed later.
func (w *linker) roleByValues() {
	type evidence struct{ back, ahead, other int }
	found := map[string]*evidence{}
	for i := range w.steps {
		for _, a := range w.steps[i].attrs {
			if _, ok := lexicon.Field(a.Key); ok || lexicon.Relates(a.Key+":") {
				continue
			}
			e := found[lexicon.Fold(a.Key)]
			if e == nil {
				e = &evidence{}
				found[lexicon.Fold(a.Key)] = e
			}
			items := w.names.onlyIDs(i, a.Value)
			if items == nil {
				e.other++
			}
			for _, x := range items {
				e.back += b2i(x < i)
				e.ahead += b2i(x > i)
			}
		}
	}
	w.roles = map[string]lexicon.Role{}
	for key, e := range found {
		switch {
		case e.other > 0 || e.back+e.ahead == 0:
		case e.back == 0 && e.ahead > 1:
			w.roles[key] = lexicon.Next
		default:
			w.roles[key] = lexicon.Requires
		}
	}
}

// onlyIDs returns the steps that a value names if it consists of ids. Otherwise, and for bare numbers, it
// returns nil.
func (n *Names) onlyIDs(self int, value string) (items []int) {
	value = n.parted(value)
	for _, a := range n.groups(self, value, n.atoms(value)) {
		switch {
		case a.class == comma || a.class == slash || a.is(lexicon.And):
		case a.class == group && len(a.unknown) == 0 && !a.bare && !a.positional && !a.ordinal:
			items = append(items, a.items...)
		case a.is(lexicon.None):
			items = append(items, self)
		default:
			return nil
		}
	}
	return items
}

// readLine adds the relations in a line outside of the steps. self is the group that the line heads, or -1.
// It returns whether there are any.
func (w *linker) readLine(self int, t text) bool {
	if self < 0 {
		w.rule = max(w.rule, w.names.Rule(t.s))
	}
	rels, doubts := w.names.Relations(self, t.s, t.off)
	n := len(w.rels)
	for _, rel := range rels {
		called := self >= 0 && (rel.Guessed || rel.titled) && strings.TrimSpace(t.s[:max(0, min(len(t.s), rel.Off-t.off))]) == ""
		if len(rel.Subjects) > 0 && !called { // a group may be called "Before the meeting"
			w.rels = append(w.rels, rel)
		}
	}
	w.doubts = append(w.doubts, doubts...)
	return len(w.rels) > n
}

// readOutside reads the lines that belong to no step.
func (o *outline) readOutside(w *linker, in map[*form.Item]bool) {
	inside := func(it *form.Item) bool {
		for d := 0; it != nil && d <= o.src.MaxDepth; d++ {
			if in[it] {
				return true
			}
			it = o.parent[it]
		}
		return false
	}
	gap := false // some text below the steps was not understood
	for _, it := range o.all {
		if it.Kind == form.Row || inside(it) {
			continue
		}
		end := it.TextOff + len(it.Text)
		w.r.Around = append(w.r.Around, Span{it.Off, end})
		t := text{it.Text, it.TextOff}
		if o.said[it] {
			t = whole(o.src, it)
			if i, ok := w.names.keyed(it.Mark.Label); ok && i < len(w.steps) && o.needed(it) && w.names.onlyIDs(i, it.Text) != nil {
				w.field(i, Attr{Key: "depends on", Value: it.Text, Off: it.TextOff})
				continue
			}
		}
		if links, ok := arrowLine(it.Text, it.TextOff, w.hasStep, w.maxLinks); ok {
			w.r.Links = append(w.r.Links, links...)
			continue
		}
		self, ok := w.heads[it]
		if !ok {
			self = -1
		} else if w.names.sideBySide(it.Mark.Noun, it.Text) {
			w.abreast = append(w.abreast, self)
		}
		said := len(w.rels)
		understood := w.readLine(self, t) && o.said[it]
		if w.changes(it, said) && !o.said[it] || w.left {
			w.rels, w.left, understood = w.rels[:said], true, false
		}
		gap = gap || it.Off >= w.r.End && !understood && !strings.HasSuffix(it.Text, ":") && it.Kind != form.Heading
		if understood && !gap && it.Off >= w.r.End {
			w.r.End = end
		}
	}
}

// changes reports whether a line below steps without relations only moves one step before another: "step 3
// comes before step 2". The other steps stay in listed order.
func (w *linker) changes(it *form.Item, said int) bool {
	if said > 0 || len(w.rels) != 1 || w.rule != NoRule || it.Off < w.steps[len(w.steps)-1].it.Off {
		return false
	}
	r := w.rels[0]
	if len(r.Subjects) != 1 || len(r.Items) != 1 || len(r.Unknown) > 0 {
		return false
	}
	return r.Kind == Before && r.Subjects[0] > r.Items[0] || r.Kind <= Uses && r.Subjects[0] < r.Items[0]
}

// sideBySide reports whether the steps of a group run in parallel. Its title says so, or its noun does, as in
// "Wave 2", and the title does not say that they run in sequence.
func (n *Names) sideBySide(noun, title string) bool {
	wave := lexicon.Is(lexicon.Waves, noun)
	for _, t := range lexicon.ScanIn(n.lang, title) {
		switch {
		case t.Is(lexicon.Abreast), t.Is(lexicon.Loose):
			return true
		case t.Is(lexicon.Sequence), t.Is(lexicon.Chained):
			wave = false
		}
	}
	return wave
}

// hasStep reports whether a step has this id.
func (w *linker) hasStep(id string) bool {
	if w.ids == nil {
		w.ids = make(map[string]bool, len(w.steps))
		for i := range w.steps {
			w.ids[w.steps[i].id] = true
		}
	}
	return w.ids[id]
}

// spread returns the steps that names refer to. A group refers to all its steps.
func (w *linker) spread(names []int) []int {
	var out []int
	for _, x := range names {
		if x >= 0 && x < len(w.members) {
			out = append(out, w.members[x]...)
		}
	}
	return out
}

// link makes links from the relations.
func (w *linker) link() {
	r := w.r
	needs := make([][]int, len(w.steps))
	var beside, ends []Relation
	said := make([]bool, len(w.steps))
	add := func(a, b, off int) {
		if len(r.Links) <= w.maxLinks {
			needs[b] = append(needs[b], a)
			r.Links = append(r.Links, Link{From: w.steps[a].id, To: w.steps[b].id, Source: Stated, Off: off})
		}
	}
	grouped := len(w.abreast) > 0 // only groups state needs
	for _, rel := range append(w.rels, w.dittos()...) {
		if rel.Kind == Ditto {
			continue
		}
		subjects, items := w.spread(rel.Subjects), w.spread(rel.Items)
		grouped = grouped && !slices.ContainsFunc(rel.Subjects, func(s int) bool { return s < len(w.steps) })
		for _, x := range subjects {
			said[x] = said[x] || rel.Kind != Before
		}
		if rel.Kind == Beside {
			rel.Subjects, rel.Items = subjects, items
			beside = append(beside, rel)
			continue
		}
		if rel.Kind == Closing || rel.Kind == Opening {
			ends = append(ends, rel)
			continue
		}
		r.Stated = true
		if rel.Kind == None || rel.Kind == Apart {
			continue
		}
		w.relate(rel, subjects, items, add)
	}
	if grouped && r.Stated {
		w.inTurn(needs, add)
	}
	r.Stated = r.Stated || w.rule == Loose
	if w.rule == Chained {
		w.chain(said, add)
	}
	if !r.Stated && len(r.Links) == 0 {
		w.stages(append(append(beside, w.lettered()...), w.waves()...), ends)
	} else {
		for _, rel := range beside {
			w.parallelNeeds(rel, needs, add)
		}
		for _, rel := range ends[:min(len(ends), maxEnds)] {
			w.end(rel, needs, said, add)
		}
	}
	if len(r.Links) > 0 {
		r.Stated = true
	}
	w.silent(needs)
	for _, d := range w.doubts {
		if !d.Stranger || len(r.Links) > 0 {
			w.doubt(d)
		}
	}
}

// relate adds the links of a relation between steps, and those to ids that no step has.
func (w *linker) relate(rel Relation, subjects, items []int, add func(a, b, off int)) {
	r := w.r
	for _, s := range subjects {
		for _, x := range items {
			switch {
			case s == x && len(subjects) > 1: // a group refers to itself
			case rel.Kind == Before:
				add(s, x, rel.Off)
			default:
				add(x, s, rel.Off)
			}
		}
		for _, u := range rel.Unknown {
			if len(r.Links) >= w.maxLinks {
				break
			}
			if w.strange(u) {
				continue
			}
			l := Link{From: u, To: w.steps[s].id, Source: Stated, Off: rel.Off}
			if rel.Kind == Before {
				l.From, l.To = l.To, l.From
			}
			r.Links = append(r.Links, l)
		}
	}
}

// silent notes phases without stated needs if other groups state theirs.
func (w *linker) silent(needs [][]int) {
	said := map[int]bool{}
	for _, rel := range w.rels {
		for _, x := range slices.Concat(rel.Subjects, rel.Items) {
			said[x] = true
		}
	}
	stated := false
	for _, rel := range w.rels {
		stated = stated || rel.Kind <= Uses && slices.ContainsFunc(rel.Subjects, func(x int) bool { return x >= len(w.steps) })
	}
	for it, g := range w.heads {
		if !stated || said[g] || g >= len(w.members) || it.Mark.Style == form.NoMark || len(w.members[g]) == 0 || w.members[g][0] == 0 {
			continue
		}
		if !slices.ContainsFunc(w.members[g], func(x int) bool { return len(needs[x]) > 0 || said[x] }) {
			name := squeeze(it.Mark.Noun + " " + it.Mark.Label)
			w.r.Notes = append(w.r.Notes, Note{Code: "AMBIGUOUS", Element: name, Off: it.Off, Message: name + " does not state its needs, although other groups do; it was read as needing nothing", Hint: "say which step waits for which"})
		}
	}
}

// inTurn lets each parallel group without needs follow the group before it.
func (w *linker) inTurn(needs [][]int, add func(a, b, off int)) {
	for k, g := range w.abreast[1:] {
		for _, x := range w.members[g] {
			if len(needs[x]) > 0 {
				break
			}
			for _, y := range w.members[w.abreast[k]] {
				add(y, x, w.steps[x].it.Off)
			}
		}
	}
}

// chain lets each step without stated needs follow the step before it.
func (w *linker) chain(said []bool, add func(a, b, off int)) {
	last := -1
	for i := range w.steps {
		if w.steps[i].holds {
			continue
		}
		if last >= 0 && !said[i] {
			add(last, i, w.steps[i].it.Off)
		}
		last = i
	}
}

// strange reports whether a number without a step is an amount rather than a missing step, because most steps
// have numbers such as 2.1.
func (w *linker) strange(u string) bool {
	if _, ok := lexicon.Digits(u); !ok {
		return false
	}
	if w.pathed < 0 {
		w.pathed = 0
		for i := range w.steps {
			w.pathed += b2i(len(w.steps[i].it.Mark.Path) > 1)
		}
	}
	return w.pathed*2 > len(w.steps)
}

// waves returns relations for the steps of parallel groups.
func (w *linker) waves() (out []Relation) {
	for _, g := range w.abreast {
		if list := w.members[g]; len(list) > 1 {
			out = append(out, Relation{Kind: Beside, Subjects: list[1:], Items: list[:1]})
		}
	}
	return out
}

// lettered returns relations for parallel steps such as 2a and 2b.
func (w *linker) lettered() []Relation {
	first := map[int]int{}
	var out []Relation
	for i := range w.steps {
		m := w.steps[i].it.Mark
		if m.Style != form.Lettered || len(m.Path) != 1 {
			continue
		}
		if g := w.steps[i].group; g != nil && lexicon.Is(lexicon.Groups, g.Mark.Noun) && slices.Equal(g.Mark.Path, m.Path) {
			continue // 1a and 1b are the steps of phase 1
		}
		if k, ok := first[m.Path[0]]; ok {
			out = append(out, Relation{Kind: Beside, Subjects: []int{i}, Items: []int{k}})
		} else {
			first[m.Path[0]] = i
		}
	}
	return out
}

// parallelNeeds gives the subjects of a relation the needs of its items, unless they have needs already.
func (w *linker) parallelNeeds(rel Relation, needs [][]int, add func(a, b, off int)) {
	for _, s := range rel.Subjects {
		if len(needs[s]) > 0 {
			continue
		}
		for _, x := range rel.Items {
			for _, n := range needs[x] {
				if n != s && !slices.Contains(needs[s], n) {
					add(n, s, rel.Off)
				}
			}
		}
	}
}

// maxEnds bounds the sentences about the first or last step that are applied.
const maxEnds = 4

// end makes a step the last or the first one in a plan with stated needs. The last step follows all steps
// without successors; the first one precedes all steps without stated needs.
func (w *linker) end(rel Relation, needs [][]int, said []bool, add func(a, b, off int)) {
	waited := make([]bool, len(w.steps))
	for _, list := range needs {
		for _, x := range list {
			waited[x] = true
		}
	}
	s := rel.Subjects[0]
	for i := range w.steps {
		switch {
		case i == s || s >= len(w.steps) || w.steps[i].holds:
		case rel.Kind == Closing && !waited[i]:
			add(i, s, rel.Off)
		case rel.Kind == Opening && !said[i]:
			add(s, i, rel.Off)
		}
	}
}

// listed returns the steps in listed order, with stated first and last steps at the ends.
func (w *linker) listed(ends []Relation) []int {
	var opening, list, closing []int
	at := make(map[int]Kind, len(ends))
	for _, rel := range ends {
		at[rel.Subjects[0]] = rel.Kind
	}
	for i := range w.steps {
		switch at[i] {
		case Closing:
			closing = append(closing, i)
		case Opening:
			opening = append(opening, i)
		default:
			list = append(list, i)
		}
	}
	return slices.Concat(opening, list, closing)
}

// stages links the steps in listed order. Parallel steps form one stage.
func (w *linker) stages(beside, ends []Relation) {
	if len(beside)+len(ends) == 0 {
		return
	}
	stage := make([]int, len(w.steps)) // the first step of each step's stage
	for i := range stage {
		stage[i] = i
	}
	for _, rel := range beside {
		all := append(append([]int{}, rel.Subjects...), rel.Items...)
		sort.Ints(all)
		for _, x := range all {
			stage[x] = stage[all[0]]
		}
	}
	var before, now []int
	for _, i := range w.listed(ends) {
		if w.steps[i].holds {
			continue
		}
		if len(now) > 0 && stage[now[0]] != stage[i] {
			before, now = now, nil
		}
		for _, b := range before {
			w.r.Links = append(w.r.Links, Link{From: w.steps[b].id, To: w.steps[i].id, Source: ListedOrder, Off: w.steps[i].it.Off})
		}
		now = append(now, i)
	}
}

// doubt adds a note about a doubt.
func (w *linker) doubt(d Doubt) {
	element := squeeze(d.Text)
	if d.Item >= 0 && d.Item < len(w.steps) {
		element = w.steps[d.Item].id
	}
	w.r.Notes = append(w.r.Notes, Note{Code: "AMBIGUOUS", Element: element, Off: d.Off, Message: d.message(), Hint: "say which step waits for which"})
}

// lonelyWeight is the highest weight of a single step. It is no plan unless it has the number 1 and is nearly
// the whole text.
const lonelyWeight = 20

// weigh sets the weight of a reading of an outline.
func (o *outline) weigh(r *Reading, s series, steps []step, w *linker) {
	n := len(steps)
	linked := map[string]bool{}
	for _, l := range r.Links {
		if l.From != l.To {
			linked[l.From], linked[l.To] = true, true
		}
	}
	hit := 0
	for i := range steps {
		if linked[steps[i].id] {
			hit++
		}
	}
	body := 0
	for i := range steps {
		if steps[i].up < 0 {
			body += steps[i].it.End - steps[i].it.Off
		}
	}
	r.Weight = 40 + s.bonus + 10*body/max(1, len(strings.TrimSpace(o.src.Text)))
	if r.Stated {
		r.Weight += 10 + 20*hit/n
	}
	if m := steps[0].it.Mark; n == 1 && (m.Style != form.Number || m.Label != "1" || body*10 < 9*len(strings.TrimSpace(o.src.Text))) {
		r.Weight = min(r.Weight-30, lonelyWeight)
	}
	sure, demands := w.surelyRelated()+b2i(w.left), 0
	for i := range steps {
		if s.name == "headings" || s.name == "bullets" {
			demands += b2i(moodOfClause(languageOf(o.src), steps[i].it.Text) == acting)
		}
	}
	if s.name == "headings" && sure == 0 && demands*2 <= n {
		// Text below headings contains words of their titles by chance.
		r.Weight = min(r.Weight, 45) - 20
	}
	r.demands = demands*2 > n
	r.Evidence = append(r.Evidence, s.name)
	r.judge(o.listing(s, steps, sure, r.Stated || w.left))
}

// surelyRelated counts the steps that state a relation by an id or a whole title.
func (w *linker) surelyRelated() int {
	sure := map[int]bool{}
	for _, rel := range w.rels {
		if len(rel.Items) > 0 && !rel.Guessed && rel.Kind != None {
			for _, s := range rel.Subjects {
				sure[s] = true
			}
		}
	}
	return len(sure)
}

// listing returns a series with the text around it for the question whether it is a plan at all.
func (o *outline) listing(s series, steps []step, related int, linked bool) *listing {
	l := &listing{Lang: languageOf(o.src), Related: related, Linked: linked, looks: o.looks}
	in := make(map[*form.Item]bool, len(steps))
	for i := range steps {
		it := steps[i].it
		in[it] = true
		l.Entries = append(l.Entries, it.Text)
		l.Boxes = l.Boxes || it.Box != 0
		l.Checked = (l.Checked || i == 0) && it.Box == 'x'
		l.Nouns = l.Nouns || lexicon.Is(lexicon.Steps, it.Mark.Noun) || it.Mark.Style == form.Code || len(it.Mark.Path) > 1
	}
	for _, it := range o.all {
		switch {
		case in[it] || it.Off >= steps[0].it.Off:
		case it.Kind == form.Heading:
			l.Headings = append(l.Headings, squeeze(it.Text))
		case it.Kind == form.Plain:
			if l.Intro == "" && len(strings.Fields(it.Text)) <= 3 && it == o.all[0] {
				l.Headings = append(l.Headings, squeeze(it.Text))
			}
			l.Intro = squeeze(it.Text)
		}
	}
	return l
}
