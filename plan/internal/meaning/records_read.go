package meaning

import (
	"slices"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// analysis is what is found out about one set.
type analysis struct {
	c     *collector
	s     *set
	g     *grid
	r     *Reading
	n     *labels
	names *Names // made when a cell says something in words
	// unread are the fields that are called dependencies, and in which nothing was understood.
	unread []*found
	id     *candidate
	title  *column
	deps   map[*column]bool
	// hits and lost count the references that are items and those that are not; forward tells that links run
	// on to the next.
	hits, lost, used int
	stated           bool
	// said counts the relations that the texts of records state in words.
	said int
	// guessed is set when they state some only by words of titles.
	guessed bool
	forward bool
	seen    map[[2]string]bool
	// parent has, for each record, the place of the record that it is a part of, or -1; nil when there are no
	// parts.
	parent []int
	inner  map[*form.Value]bool
	has    []bool // records that state their needs
	// drawn tells that lists or maps of links beside the records say what comes before what.
	drawn bool
	// known counts the references in fields whose names say that they are dependencies.
	known int
	// taken are the places of these lists and maps.
	taken []Span
}

// analyze reads a set, or several that were joined, as a plan.
func (c *collector) analyze(s *set, recs []record) *Reading {
	if n := len(recs) - 1; n > 0 && recs[n].val != nil && recs[n].val.Open && !recs[n].said() {
		recs = recs[:n] // the text ends before the record says anything
	}
	if len(recs) == 0 || len(recs) > 4*c.src.MaxItems || !c.affords(recs) {
		return nil
	}
	a := &analysis{c: c, s: s, g: newGrid(s, recs), deps: map[*column]bool{}, seen: map[[2]string]bool{}, has: make([]bool, len(recs))}
	a.r = &Reading{Form: s.form, Start: s.tree.Root.Off, End: s.tree.Root.End, Open: s.tree.YAML || s.form == "table"}
	if a.isChat() {
		return nil
	}
	if s.plain {
		return a.plain()
	}
	a.repeated()
	a.groups()
	a.name()
	a.edges()
	a.needs()
	a.references()
	a.stages()
	a.stated = a.stated || len(a.r.Links) == 0 && a.noLinks()
	if a.title == nil {
		a.title = a.g.titleOf(a.idColumn(), a.deps)
	}
	if !a.stated && len(a.r.Links) == 0 && !a.forward && !a.s.keyed {
		a.words(a.cellTexts())
	}
	a.weigh()
	a.items()
	a.ungroup()
	c.by[a.r] = a
	a.noteUnread()
	a.faults()
	return a.r
}

// affords reports whether records are to be read: of records in records in records, each of which is as
// long as all that it holds, no more is read than a multiple of the text.
func (c *collector) affords(recs []record) bool {
	for i := range recs {
		c.length += recs[i].end - recs[i].off
	}
	return c.length <= 6*len(c.src.Text)+1<<16
}

// said reports whether a record holds any value.
func (r *record) said() bool {
	return slices.ContainsFunc(r.fields, func(f form.Field) bool {
		return f.Val != nil && (f.Val.Text() != "" || len(f.Val.Items)+len(f.Val.Fields) > 0)
	})
}

// isChat reports whether the records are messages of a conversation or parts of one.
func (a *analysis) isChat() bool {
	for _, col := range a.g.cols {
		switch strings.ToLower(col.name) {
		case "role", "type", "from", "rolle", "sender":
		default:
			continue
		}
		chat := 0
		for _, x := range col.cells {
			switch strings.ToLower(x.val.Text()) {
			case "user", "assistant", "system", "tool", "model", "human", "developer", "text", "tool_result", "ai":
				chat++
			}
		}
		if chat > 0 && chat*2 >= len(a.g.recs) {
			return true
		}
	}
	return false
}

// plain reads a list of texts: a plan when the name above it says so.
func (a *analysis) plain() *Reading {
	labels := a.s.labels
	if r := a.linkedTexts(); r != nil {
		return r
	}
	if len(labels) == 0 || !planish(labels[len(labels)-1]) || len(a.g.recs) < 2 {
		return nil
	}
	ids := places(len(a.g.recs))
	words := 0
	for i, r := range a.g.recs {
		text := r.val.Text()
		if strings.ContainsAny(text, " \u3000") || !isASCII(text) {
			words++
		}
		a.r.Items = append(a.r.Items, Item{ID: ids[i], Title: text, Parent: -1, Off: r.off, End: r.end})
	}
	a.r.Weight = 58
	if a.s.tree.YAML && !a.fenced() {
		a.r.Weight = 31 // as likely a list of Markdown
	}
	if words*2 < len(ids) {
		a.r.Weight = 40
	}
	a.r.Evidence = append(a.r.Evidence, "texts under "+labels[len(labels)-1])
	if a.r.Weight == 31 {
		a.faults()
		return a.r
	}
	if marks := a.marks(); marks != nil {
		for i := range a.r.Items {
			a.r.Items[i].ID, a.r.Items[i].Shown = marks[i], true
		}
		ids = marks
	}
	a.n = newNames(ids)
	a.words(func(i int) []text { return []text{{a.g.recs[i].val.Text(), a.g.recs[i].val.Off}} })
	if a.said > 0 {
		a.r.Weight = max(a.r.Weight+20, 80)
	}
	a.faults()
	return a.r
}

// marks returns the labels that the texts of a list begin with, or nil.
func (a *analysis) marks() []string {
	out := make([]string, len(a.g.recs))
	seen := map[string]bool{}
	for i, r := range a.g.recs {
		out[i] = leadingLabel(r.val.Text())
		if out[i] == "" || seen[out[i]] {
			return nil
		}
		seen[out[i]] = true
	}
	return out
}

// joined reports whether links between texts meet: pairs of which no two have an end in common are names with
// what is said of them, and so are those that repeat a text.
func (a *analysis) joined() bool {
	seen := map[string]bool{}
	for _, r := range a.g.recs {
		id := r.val.Text()
		if seen[id] {
			return false
		}
		seen[id] = true
	}
	ends := map[string]bool{}
	for _, l := range a.r.Links {
		if ends[l.From] || ends[l.To] {
			return true
		}
		ends[l.From], ends[l.To] = true, true
	}
	return len(a.r.Links) < 2 && (len(a.s.labels) == 0 || planish(a.s.labels[len(a.s.labels)-1]))
}

// linkedTexts reads a list of texts between which links stand in another list.
func (a *analysis) linkedTexts() *Reading {
	ids := make([]string, len(a.g.recs))
	for i, r := range a.g.recs {
		ids[i] = r.val.Text()
	}
	a.n = newNames(ids)
	a.edges()
	a.stated = a.stated || len(a.r.Links) == 0 && a.noLinks()
	if a.hits == 0 || !a.joined() {
		return nil
	}
	for i, r := range a.g.recs {
		a.r.Items = append(a.r.Items, Item{ID: ids[i], Shown: true, Title: ids[i], Parent: -1, Off: r.off, End: r.end})
	}
	a.r.Stated, a.r.Weight = true, 92
	a.r.Evidence = append(a.r.Evidence, "links between the texts of a list")
	a.faults()
	return a.r
}

// name decides on the ids, and by what else the records may be called.
func (a *analysis) name() {
	g := a.g
	a.id = g.choose(a.outer())
	ids := places(len(g.recs))
	var idCol *column
	if a.id != nil {
		for i, s := range a.id.ids {
			if s != "" {
				ids[i] = s
			}
		}
		idCol = a.id.col
	}
	a.n = newNames(ids)
	a.title = g.titleOf(idCol, nil)
	for i := range g.recs {
		if k := g.recs[i].key; k != "" && g.s.keyed {
			a.n.also(k, i)
		}
	}
	for _, col := range g.cols {
		if col == idCol {
			continue
		}
		output := col.is(lexicon.Output) || isOutput(col.name)
		if !output && !col.is(lexicon.Title) && !col.is(lexicon.ID) && !col.is(lexicon.Tool) && col != a.title {
			continue
		}
		for _, x := range col.cells {
			switch {
			case x.val.IsScalar() && len(x.val.Text()) < 200:
				a.n.also(x.val.Text(), x.rec)
			case output && x.val.Kind == form.KindList:
				for _, y := range x.val.Items[:min(len(x.val.Items), 50)] {
					if y.IsScalar() {
						a.n.also(y.Text(), x.rec)
					}
				}
			}
		}
	}
}

// isOutput reports whether a field names the variable or file that a step makes.
func isOutput(name string) bool {
	switch squash(name) {
	case "result", "results", "output", "outputs", "register", "saveas", "as", "outputkey", "outputvariable", "resultvar", "produces", "out", "var", "variable", "returns", "writes":
		return true
	}
	return false
}

func (a *analysis) idColumn() *column {
	if a.id == nil {
		return nil
	}
	return a.id.col
}

func (a *analysis) link(from, to string, source Source, off int) {
	k := [2]string{from, to}
	if a.seen[k] {
		return
	}
	a.seen[k] = true
	a.r.Links = append(a.r.Links, Link{From: from, To: to, Source: source, Off: off})
}

func grow(items []Item, n int) []Item {
	if items == nil {
		items = make([]Item, n)
	}
	return items
}

// stages links jobs by the stages they are in, when a list beside them says in which order these come.
func (a *analysis) stages() {
	if a.s.owner == nil && a.s.shape != "" {
		return
	}
	var col *column
	var order []string
	root := a.s.owner
	if root == nil {
		root = a.s.tree.Root
	}
	for i := range root.Fields {
		f := &root.Fields[i]
		if f.Val.Kind != form.KindList || len(f.Val.Items) < 2 {
			continue
		}
		for _, c := range a.g.cols {
			if !strings.HasPrefix(squash(f.Key), squash(c.name)) || len(c.name) < 3 || len(c.cells)*2 < len(a.g.recs) {
				continue
			}
			col, order = c, nil
			for _, x := range f.Val.Items {
				order = append(order, x.Text())
			}
		}
	}
	if col == nil {
		return
	}
	at := map[string]int{}
	for i, s := range order {
		at[s] = i
	}
	in := make([][]int, len(order))
	for _, x := range col.cells {
		k, ok := at[x.val.Text()]
		if !ok {
			return
		}
		in[k] = append(in[k], x.rec)
	}
	var before []int
	for _, jobs := range in {
		for _, j := range jobs {
			if a.has[j] || len(before)*len(jobs) > 10_000 {
				continue
			}
			for _, b := range before {
				a.link(a.n.ids[b], a.n.ids[j], Stated, a.g.recs[j].off)
				a.hits++
				a.stated = true
			}
		}
		if len(jobs) > 0 {
			before = jobs
		}
	}
}

// edges takes the links that stand in lists and maps of their own, when their ends are these records.
func (a *analysis) edges() {
	before := len(a.r.Links)
	for _, p := range a.c.pairs {
		if p.used && a.s.tree != p.tree || a.holds(p) {
			continue
		}
		if len(p.columns) > 0 {
			a.takeTable(p)
		} else {
			a.takePairs(p)
		}
	}
	a.linkMaps()
	a.sentences()
	a.drawn = len(a.r.Links) > before
}

// holds reports whether a list of links is that of the records, or a part of it: another reading of the same
// text may be in c, too.
func (a *analysis) holds(p *pairs) bool {
	if p.set != nil && (p.set == a.s || slices.Contains(a.s.merged, p.set)) {
		return true
	}
	return p.val != nil && a.s.val != nil && p.val.Off < a.s.val.End && a.s.val.Off < p.val.End
}

// linkMaps takes the links in maps that stand beside the records: {"connections": {"a": {"main": [[{"node":
// "b"}]]}}} and {"edges": {"a": ["b"]}}.
func (a *analysis) linkMaps() {
	if a.s.owner == nil {
		return
	}
	for i := range a.s.owner.Fields {
		f := &a.s.owner.Fields[i]
		if !isMap(f.Val) || len(f.Val.Fields) == 0 || f.Val == a.s.val {
			continue
		}
		var links []drawnLink
		known := 0
		for k := range f.Val.Fields {
			x := &f.Val.Fields[k]
			key, ok := a.n.find(x.Key)
			if !ok {
				if known*4 < k*3 {
					break
				}
				continue
			}
			known++
			var walk func(v *form.Value, depth int)
			walk = func(v *form.Value, depth int) {
				if v == nil || depth > 8 {
					return
				}
				if v.IsScalar() && v.Kind != form.KindNumber {
					if at, ok := a.n.find(v.Text()); ok && v.Text() != "" && at != key {
						links = append(links, drawnLink{key, at, v.Off})
					}
				}
				for _, y := range v.Items {
					walk(y, depth+1)
				}
				for j := range v.Fields {
					if !otherRole(v.Fields[j].Key) {
						walk(v.Fields[j].Val, depth+1)
					}
				}
			}
			walk(x.Val, 0)
		}
		if known*4 < len(f.Val.Fields)*3 || len(links) == 0 {
			continue
		}
		way := 0
		switch {
		case isNeedsName(f.Key):
			way = -1
		case isNext(f.Key) || isArcs(f.Key):
			way = 1
		}
		a.taken = append(a.taken, Span{f.Val.Off, f.Val.End})
		a.draw(links, way, f.Key)
	}
}

// sentences takes the links that a list of sentences beside the records states: "dependencies": ["b depends
// on a"].
func (a *analysis) sentences() {
	if a.s.owner == nil {
		return
	}
	for i := range a.s.owner.Fields {
		f := &a.s.owner.Fields[i]
		if f.Val.Kind != form.KindList || f.Val == a.s.val || !isArcs(f.Key) && !isNeedsName(f.Key) {
			continue
		}
		for _, x := range f.Val.Items[:min(len(f.Val.Items), maxMentions)] {
			if x.Kind != form.KindString || !strings.Contains(x.Str, " ") && isASCII(x.Str) || len(x.Str) > maxSentence {
				break
			}
			if _, ok := arrowChain(x.Str, x.Off); ok {
				break
			}
			a.nameAll()
			rels, _ := a.names.Relations(-1, x.Str, x.Off)
			for _, r := range rels {
				if r.Kind > Before || len(r.Subjects)*len(r.Items) > 100 {
					continue
				}
				a.taken = append(a.taken, Span{f.Val.Off, f.Val.End})
				for _, y := range r.Subjects {
					for _, z := range r.Items {
						from, to := a.n.ids[z], a.n.ids[y]
						if r.Kind == Before {
							from, to = to, from
						}
						a.stated = true
						a.hits++
						a.link(from, to, Stated, x.Off)
					}
				}
			}
		}
	}
}

// drawnLink is a link between the records at two places, as it is written: the first one may be the earlier
// one or not.
type drawnLink struct{ from, to, off int }

// draw makes links. Way says whether they run as they are written (1), back (-1), or whether no name says it
// (0): then they run with the list of the records, and where that does not decide, it is said.
func (a *analysis) draw(links []drawnLink, way int, name string) {
	if way == 0 {
		ahead := 0
		for _, l := range links {
			ahead += b2i(l.to > l.from)
		}
		way = 1
		if ahead*2 < len(links) {
			way, ahead = -1, len(links)-ahead
		}
		if ahead < len(links) {
			a.undirected(links, way, name)
		}
	}
	a.stated = true
	for _, l := range links {
		from, to := a.n.ids[l.from], a.n.ids[l.to]
		if way < 0 {
			from, to = to, from
		}
		a.hits++
		a.link(from, to, Stated, l.off)
	}
}

// undirected says that no name tells which way links run.
func (a *analysis) undirected(links []drawnLink, way int, name string) {
	for _, l := range links[:min(len(links), maxUnread)] {
		from, to := a.n.ids[l.from], a.n.ids[l.to]
		if way < 0 {
			from, to = to, from
		}
		a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS", Element: from + " -> " + to, Off: l.off, Message: "“" + name + "” does not say which of " + from + " and " + to + " comes first; " + from + " was taken", Hint: "call the ends of links from and to"})
	}
}

// takeTable takes the links in a list of maps with two fields whose values are steps.
func (a *analysis) takeTable(p *pairs) {
	var cols []*linkColumn
	for i := range p.columns {
		col, known, all := &p.columns[i], 0, 0
		for _, e := range col.ends {
			for _, s := range e {
				all++
				_, ok := a.n.byName(s)
				known += b2i(ok)
			}
		}
		if known*5 >= all*4 {
			cols = append(cols, col)
		}
	}
	if len(cols) != 2 {
		return
	}
	ways := p.ways(cols)
	if a.s.plain && (ways != nil || len(p.columns) > 2 && direction(cols[0].key, cols[1].key) == 0) {
		return // relations between texts are a notation of their own
	}
	var links []drawnLink
	for i := range cols[0].ends {
		for _, x := range cols[0].ends[i] {
			for _, y := range cols[1].ends[i] {
				from, ok := a.n.byName(x)
				to, ok2 := a.n.byName(y)
				if !ok || !ok2 {
					a.lost++
					a.r.Notes = append(a.r.Notes, Note{Code: "UNKNOWN_REFERENCE", Element: x + " -> " + y, Off: cols[0].offs[i], Message: "the link of " + x + " and " + y + " names a step that is not there"})
					continue
				}
				if ways != nil && ways[i] < 0 {
					from, to = to, from
				}
				links = append(links, drawnLink{from, to, cols[0].offs[i]})
			}
		}
	}
	loops := 0
	for _, l := range links {
		loops += b2i(l.from == l.to)
	}
	if len(links) == 0 || len(links) > maxLinks || loops*2 > len(links) {
		return
	}
	p.used = true
	a.taken = append(a.taken, Span{p.val.Off, p.val.End})
	way := direction(cols[0].key, cols[1].key)
	if ways != nil {
		way = 1
	}
	a.draw(links, way, cols[0].key+"” and “"+cols[1].key)
}

func (a *analysis) takePairs(p *pairs) {
	hits, all, zero := 0, 0, false
	for _, e := range p.list {
		for _, list := range [...][]string{e.from, e.to} {
			for _, s := range list {
				all++
				hits += b2i(a.knows(s))
				zero = zero || s == "0"
			}
		}
	}
	if zero && !a.n.numeric && p.tree == a.s.tree {
		a.n.zero = true
	} else if hits*3 < all*2 {
		return
	}
	p.used = true
	if p.val != nil {
		a.taken = append(a.taken, Span{p.val.Off, p.val.End})
	}
	a.stated = true
	for _, e := range p.list {
		for _, x := range e.from {
			for _, y := range e.to {
				for _, from := range a.ends(x) {
					for _, to := range a.ends(y) {
						a.hits++
						a.link(from, to, Stated, e.off)
					}
				}
			}
		}
	}
	a.r.Start, a.r.End = min(a.r.Start, p.tree.Root.Off), max(a.r.End, p.tree.Root.End)
}

// knows reports whether the end of a link is a record, or several.
func (a *analysis) knows(s string) bool {
	if _, ok := a.n.find(s); ok {
		return true
	}
	list, _ := a.n.cell(s, 0)
	for _, x := range list {
		if x.at < 0 {
			return false
		}
	}
	return len(list) > 1
}

// ends returns the ids that one end of a link names: "a", or "a, b".
func (a *analysis) ends(s string) []string {
	if i, ok := a.n.find(s); ok {
		return []string{a.n.ids[i]}
	}
	if !a.knows(s) {
		a.lost++
		return []string{s}
	}
	list, _ := a.n.cell(s, 0)
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = a.n.ids[x.at]
	}
	return out
}

func isNeedsName(name string) bool {
	role, _ := lexicon.Field(name)
	return role == lexicon.Requires
}

// weigh says how sure it is that the records are a plan.
func (a *analysis) weigh() {
	r := a.r
	r.Stated = a.stated
	n := len(a.g.recs)
	steps, named := false, false
	for _, name := range a.s.labels[max(0, len(a.s.labels)-2):] {
		steps = steps || planish(name)
		named = named || lexicon.Is(lexicon.Plan, splitName(name))
	}
	if !steps && a.xml() {
		for _, rec := range a.g.recs[:min(n, 5)] {
			steps = steps || planish(rec.key)
		}
	}
	if !steps {
		for k, col := range a.g.cols {
			if name := splitName(col.name); k < 3 && lexicon.Is(lexicon.Steps, name) && (!weakHeads[lexicon.Fold(name)] || a.acting()) {
				steps = true
			}
		}
	}
	announced := a.announced()
	calls := a.calls()
	switch {
	case a.hits > 0:
		r.Weight = 90
		if a.lost > a.hits {
			r.Weight = 72
		}
		if steps || announced {
			r.Weight += 3
		}
		r.Weight += min(4, n/4)
		if a.strangers() {
			r.Weight -= 4
		}
		if !steps && !announced && !a.drawn && a.onlyHinted() && (a.hits*3 < n || a.s.form == "table" && a.n.numeric && !a.hinted() && !a.acting()) {
			r.Weight = 28 // some data name others
		}
		r.Evidence = append(r.Evidence, "values that are ids of other records")
	case a.used > 0:
		r.Weight = 88 + min(3, n/4)
		r.Evidence = append(r.Evidence, "uses of results of other records")
	case a.said > 0 && !steps && !named && !announced && !calls && !(a.s.form == "table" && a.said*2 > n && a.labeled()):
		r.Weight = 28 // sentences in data name other keys; nothing says that they are steps
	case a.said > 0:
		r.Weight = 20
		switch {
		case a.figures():
		case steps || named || announced:
			r.Weight = 86
		case a.said*2 >= n:
			r.Weight = 70
		}
		r.Evidence = append(r.Evidence, "relations in words")
	case a.stated && a.lost == 0 && (!a.guessed || steps || announced):
		r.Weight = 60
		if steps || announced {
			r.Weight = 85
		}
		r.Evidence = append(r.Evidence, "a field for dependencies that is always empty")
	case a.stated && !a.guessed:
		r.Weight = 50
	case n < 2:
		r.Weight = 0
	case named && (a.title != nil || calls) && (calls || !a.figures()):
		r.Weight = 62
	case calls:
		r.Weight = 56
	case (announced || steps) && a.title != nil && (a.inWords() || steps && a.s.form == "table") && !a.figures():
		r.Weight = 54
	default:
		r.Weight = 10
		r.Not = "records without anything that says that they are steps"
	}
	if a.s.texts && a.hits == 0 {
		r.Weight = min(r.Weight, 10)
	}
	if a.s.wrapped && (a.known == 0 || a.id == nil || !a.id.clear) {
		r.Weight = min(r.Weight, 20)
	}
	if a.packages() || a.asks() {
		r.Weight = 20
	}
	if a.hits > 0 && !steps && !announced && mutual(r.Links) {
		r.Weight, r.Not = 20, "records that refer to each other"
	}
	if a.s.keyed && isMap(a.s.val) && !steps && !alikeMaps(a.s.val) && len(a.g.cols) > 1 {
		r.Weight = min(r.Weight, 25) // the parts of one thing, of which one names another
	}
	if n == 1 && a.hits == 0 && a.used == 0 && !(a.stated && a.id != nil && a.title != nil && a.g.statesNeeds()) {
		r.Weight = min(r.Weight, 20)
	}
	if len(a.s.labels) > 0 && r.Weight < 85 && r.Weight > 30 && lexicon.Is(lexicon.List, splitName(a.s.labels[len(a.s.labels)-1])) {
		r.Weight = 20
	}
	if a.s.tree.Headless && a.hits == 0 {
		r.Weight = min(r.Weight, 20)
	}
	if a.s.nested && r.Weight >= 60 {
		r.Weight++
	}
	if a.s.tree.YAML && !a.fenced() && (len(a.s.tree.Faults) > 0 && a.hits < 2 || a.hits == 0 && a.isList()) {
		r.Weight = min(r.Weight, 31)
	}
}

// mutual reports whether each link has one the other way: such references are no order.
func mutual(links []Link) bool {
	have := make(map[[2]string]bool, len(links))
	for _, l := range links {
		have[[2]string{l.From, l.To}] = true
	}
	for _, l := range links {
		if l.From == l.To || !have[[2]string{l.To, l.From}] {
			return false
		}
	}
	return len(links) > 0
}

// packages reports whether the records are the packages of a lock file: they have versions, and no titles.
func (a *analysis) packages() bool {
	for _, col := range a.g.cols {
		if col.name == "version" && (a.title == nil || a.title.name == "version" || a.title.name == "name") {
			return true
		}
	}
	return false
}

// asks reports whether most of the records are questions.
func (a *analysis) asks() bool {
	n := 0
	for i := range a.r.Items {
		n += b2i(asks(a.r.Items[i].Title))
	}
	return n*2 > len(a.r.Items)
}

// fenced reports whether the value stands in a code fence.
func (a *analysis) fenced() bool { return a.c.src.Lines[a.c.src.LineAt(a.s.tree.Root.Off)].InCode }

// inWords reports whether most titles are of more than one word.
func (a *analysis) inWords() bool {
	n := 0
	for _, x := range a.title.cells {
		if s := strings.TrimSpace(x.val.Text()); strings.ContainsAny(s, " \u3000") || !isASCII(s) && len(s) >= 12 {
			n++
		}
	}
	return n*2 > len(a.title.cells)
}

// figures reports whether the records hold numbers that say that they are data: two fields, or one with
// prices.
func (a *analysis) figures() bool {
	fields := 0
	for _, col := range a.g.cols {
		if col == a.idColumn() || a.deps[col] || len(col.roles) > 0 && !col.is(lexicon.Title) || len(col.cells)*2 < len(a.g.recs) {
			continue
		}
		n := 0
		for _, x := range col.cells {
			s := strings.TrimSpace(x.val.Text())
			if s != "" && len(s) < 16 && strings.ContainsAny(s[:1]+s[len(s)-1:], "0123456789") && x.val.Kind != form.KindBool {
				n++
			}
			if strings.ContainsAny(s, "€$£¥₽") && len(s) < 16 {
				n += 2
			}
		}
		if n*3 >= len(col.cells)*2 {
			fields++
		}
		if n*3 > len(col.cells)*4 {
			fields++
		}
	}
	return fields >= 2
}

// weakHeads head columns of steps, and of much else.
var weakHeads = wordsOf("weak heads")

// acting reports whether half of the titles say what to do.
func (a *analysis) acting() bool {
	if a.title == nil {
		return false
	}
	n, lang := 0, languageOf(a.c.src)
	for _, x := range a.title.cells[:min(len(a.title.cells), 100)] {
		n += b2i(acts(lang, x.val.Text()))
	}
	return n*2 >= min(len(a.title.cells), 100)
}

// labeled reports whether all records have labels of letters and digits, which nothing but them is called
// by.
func (a *analysis) labeled() bool {
	for _, id := range a.n.ids {
		if digits(id) || !strings.ContainsAny(id, "0123456789") {
			return false
		}
	}
	return true
}

// hinted reports whether the name of a field of dependencies tells at least in part that it is one.
func (a *analysis) hinted() bool {
	for col := range a.deps {
		if col.is(lexicon.Requires) || col.is(lexicon.Next) {
			return true
		}
	}
	return false
}

// onlyHinted reports whether no field is called a dependency by its whole name.
func (a *analysis) onlyHinted() bool {
	for col := range a.deps {
		if col.whole {
			return false
		}
	}
	return true
}

// strangers reports whether elements of a tag of their own have no part in the links of the others.
func (a *analysis) strangers() bool {
	if !a.xml() || a.s.keyed {
		return false
	}
	linked := map[string]bool{}
	for _, l := range a.r.Links {
		if l.Source == Stated {
			linked[l.From], linked[l.To] = true, true
		}
	}
	tags := map[string]bool{}
	for i, rec := range a.g.recs {
		tags[rec.key] = tags[rec.key] || linked[a.n.ids[i]]
	}
	for _, ok := range tags {
		if !ok {
			return true
		}
	}
	return false
}

// announced reports whether the text ahead of the value says that a plan follows.
func (a *analysis) announced() bool {
	i := a.c.src.LineAt(a.s.tree.Root.Off)
	for k, n := i-1, 0; k >= 0 && n < 3; k-- {
		l := &a.c.src.Lines[k]
		if l.Text == "" || l.Fence {
			continue
		}
		n++
		if len(l.Text) < 400 && lexicon.Has(lexicon.Plan, l.Text) {
			return true
		}
	}
	return false
}

// calls reports whether most records name a tool and its arguments.
func (a *analysis) calls() bool {
	tools, args := 0, 0
	for _, col := range a.g.cols {
		for _, role := range col.roles {
			switch role {
			case lexicon.Tool:
				tools = max(tools, len(col.cells))
			case lexicon.Args:
				args = max(args, len(col.cells))
			}
		}
	}
	n := len(a.g.recs)
	return tools*2 > n && args*2 > n
}

// roleOfAttr maps the role of a field to that of an attribute.
var roleOfAttr = map[lexicon.Role]Role{lexicon.Tool: Tool, lexicon.Args: Args, lexicon.Owner: Owner, lexicon.Duration: Duration, lexicon.Status: Status}

// maxAttrs bounds the attributes of one item.
const maxAttrs = 100

// items makes an item of each record.
func (a *analysis) items() {
	r := a.r
	r.Items = grow(r.Items, len(a.g.recs))
	shown := a.id != nil
	for i := range r.Items {
		it, rec := &r.Items[i], &a.g.recs[i]
		it.ID, it.Shown, it.Parent, it.Off, it.End = a.n.ids[i], shown && a.id.ids[i] != "", -1, rec.off, rec.end
	}
	for _, col := range a.g.cols {
		if a.id != nil && col == a.id.col || a.deps[col] || col.name == "" {
			continue
		}
		role := Role("")
		for _, x := range col.roles {
			if role == "" {
				role = roleOfAttr[x]
			}
		}
		for _, x := range col.cells {
			it := &r.Items[x.rec]
			if col == a.title && x.val.IsScalar() {
				it.Title = x.val.Text()
				continue
			}
			if role == Args && isMap(x.val) && x.val.Str == "" {
				for k := range x.val.Fields {
					if f := &x.val.Fields[k]; len(it.Attrs) < maxAttrs {
						it.Attrs = append(it.Attrs, Attr{Key: f.Key, Role: role, Value: form.JSON(f.Val), Off: f.Off})
					}
				}
				continue
			}
			if len(it.Attrs) < maxAttrs && !a.arePart(x.val) { // parts are items themselves
				it.Attrs = append(it.Attrs, Attr{Key: col.name, Role: role, Value: form.JSON(x.val), Off: x.off})
			}
		}
	}
	for i := range r.Items {
		if r.Items[i].Title == "" {
			r.Items[i].Title = a.fallback(i)
		}
	}
}

// fallback is the title of a record that has none: its tool with its arguments, or its id.
func (a *analysis) fallback(i int) string {
	title, args := "", ""
	for _, x := range a.r.Items[i].Attrs {
		switch {
		case x.Role == Tool && title == "":
			title = strings.Trim(x.Value, `"`)
		case x.Role == Args && args == "" && len(x.Value) < 200:
			args = " " + x.Value
		}
	}
	if title == "" {
		return a.n.ids[i]
	}
	return title + args
}

// faults notes what is wrong with the text of the values, by the record that it stands in or near.
func (a *analysis) faults() {
	near := func(off int) string {
		i := sort.Search(len(a.r.Items), func(i int) bool { return a.r.Items[i].Off > off })
		if i == 0 {
			return ""
		}
		return a.r.Items[i-1].ID
	}
	trees := []*form.Tree{a.s.tree}
	for _, m := range a.s.merged {
		if m.recs[0].off <= a.r.Items[len(a.r.Items)-1].Off {
			trees = append(trees, m.tree)
		}
	}
	for _, t := range trees {
		a.r.Notes = slices.Grow(a.r.Notes, len(t.Faults)+1)
		for _, f := range t.Faults {
			element := f.Element
			if id := near(f.Off); id != "" {
				element = id
			}
			a.r.Notes = append(a.r.Notes, Note{Fault: f.Serious, Code: f.Code, Element: element, Message: f.Message, Hint: f.Hint, Off: f.Off})
		}
		if t.CutOff {
			a.r.Notes = append(a.r.Notes, Note{Fault: true, Code: "TRUNCATED", Element: near(len(a.c.src.Text)), Off: len(a.c.src.Text), Message: "the text ends in the middle of the plan: this problem may be incomplete, and what came after it is lost", Hint: "ask for the rest of the plan"})
		}
	}
}

// isList reports whether each record is one sentence after a colon, "- Maria: send the contract": a list of
// Markdown.
func (a *analysis) isList() bool {
	cells := 0
	for _, col := range a.g.cols {
		for _, x := range col.cells {
			cells++
			if !x.val.IsScalar() || !strings.Contains(x.val.Text(), " ") && isASCII(x.val.Text()) {
				return false
			}
		}
	}
	return cells == len(a.g.recs) && len(a.g.cols) > 1
}
