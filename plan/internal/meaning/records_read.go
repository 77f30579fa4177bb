package meaning

import (
	"slices"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// analysis is the state of reading one set.
type analysis struct {
	c     *collector
	s     *set
	g     *grid
	r     *Reading
	n     *labels
	names *Names // for cells with sentences; see nameAll
	// unread are fields that are named as dependencies but were not understood.
	unread []*found
	id     *candidate
	title  *column
	deps   map[*column]bool
	// hits counts the references to items, lost the other references. forward is set if links lead to
	// successors.
	hits, lost, used int
	stated           bool
	// said counts the relations that texts of records state in words.
	said int
	// guessed is set if some of these name items only by words of titles.
	guessed bool
	forward bool
	seen    map[[2]string]bool
	// parent holds, for each record, the index of the record that it is a part of, or -1. It is nil if there
	// are no parts.
	parent []int
	inner  map[*form.Value]bool
	has    []bool // records with stated needs
	// drawn is set if lists or maps next to the records contain links.
	drawn bool
	// namedHits counts the references in fields whose names mean dependencies.
	namedHits int
}

// analyze reads a set as a plan, or returns nil.
func (c *collector) analyze(s *set) *Reading {
	recs := s.recs
	if n := len(recs) - 1; n > 0 && recs[n].val != nil && recs[n].val.Open && !recs[n].said() {
		recs = recs[:n] // the text ends before the record has content
	}
	recs = recs[:min(len(recs), 4*c.src.MaxItems)]
	if len(recs) == 0 || !c.affords(recs) {
		return nil
	}
	a := &analysis{c: c, s: s, g: newGrid(s, recs), deps: map[*column]bool{}, seen: map[[2]string]bool{}, has: make([]bool, len(recs))}
	a.r = &Reading{Form: s.form, root: s.tree.Root, Apart: s.tree.Apart, Start: s.tree.Root.Off, End: s.tree.Root.End, Open: s.tree.YAML || s.form == "table"}
	if s.tree.Outer != nil {
		a.r.outer = []*form.Value{s.tree.Outer}
	}
	if a.isChat() {
		return nil
	}
	if s.plain {
		return a.plain()
	}
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

// affords reports whether the records are within the limit for all sets. Nested records contain each other's
// text, so the total is limited to a multiple of the text.
func (c *collector) affords(recs []record) bool {
	for i := range recs {
		c.length += recs[i].end - recs[i].off
	}
	return c.length <= 6*len(c.src.Text)+1<<16
}

// said reports whether a record has any complete value.
func (r *record) said() bool {
	return slices.ContainsFunc(r.fields, func(f form.Field) bool {
		return f.Val != nil && !f.Val.Open && (f.Val.Text() != "" || len(f.Val.Items)+len(f.Val.Fields) > 0)
	})
}

// isChat reports whether the records are messages of a conversation, or parts of one.
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
		if chat*2 >= len(a.g.recs) {
			return true
		}
	}
	return false
}

// plain reads a list of texts, which is a plan if the name above it says so.
func (a *analysis) plain() *Reading {
	labels := a.s.labels
	if r := a.linkedTexts(); r != nil {
		return r
	}
	if len(labels) == 0 || !planish(labels[len(labels)-1]) || len(a.g.recs) < 2 {
		return nil
	}
	ids := countedIDs(len(a.g.recs))
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
		a.r.Weight = 31 // more likely a list in Markdown
	}
	if words*2 < len(ids) {
		a.r.Weight = 40
	}
	a.r.Evidence = append(a.r.Evidence, "texts under "+labels[len(labels)-1])
	if a.r.Weight == 31 {
		a.faults()
		return a.r
	}
	a.n = newNames(ids)
	a.words(func(i int) []text { return []text{{a.g.recs[i].val.Text(), a.g.recs[i].val.Off}} })
	if a.said > 0 {
		a.r.Weight = max(a.r.Weight+20, 80)
	}
	a.faults()
	return a.r
}

// joined reports whether links between texts meet. Pairs without a common end are names with descriptions,
// and so are texts that repeat.
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

// linkedTexts reads a list of texts with links in another list.
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

// name chooses the ids, and collects other names of the records.
func (a *analysis) name() {
	g := a.g
	a.id = g.choose(a.outer)
	ids := countedIDs(len(g.recs))
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

// full reports whether there are more links than a plan may have.
func (a *analysis) full() bool { return len(a.r.Links) > a.c.src.MaxLinks }

// link adds a link unless it exists or there are too many.
func (a *analysis) link(from, to string, source Source, off int) {
	k := [2]string{from, to}
	if a.seen[k] || a.full() {
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

// roleOfAttr maps the role of a field to the role of an attribute.
var roleOfAttr = map[lexicon.Role]Role{lexicon.Tool: Tool, lexicon.Args: Args, lexicon.Owner: Owner, lexicon.Duration: Duration, lexicon.Status: Status}

// maxAttrs bounds the attributes of an item.
const maxAttrs = 1000

// items makes an item from each record.
func (a *analysis) items() {
	r := a.r
	r.Items = grow(r.Items, len(a.g.recs))
	shown := a.id != nil
	for i := range r.Items {
		it, rec := &r.Items[i], &a.g.recs[i]
		if rec.wrapped {
			r.outside = append(r.outside, Span{rec.off, rec.off + 1})
		}
		it.ID, it.Shown, it.Parent, it.Off, it.End = a.n.ids[i], shown && a.id.ids[i] != "", -1, rec.off, rec.end
	}
	ends := make(map[string]bool, len(r.Links))
	for _, l := range r.Links {
		ends[l.From], ends[l.To] = true, true
	}
	for _, col := range a.g.cols {
		if a.id != nil && col == a.id.col || col.name == "" {
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
			if a.deps[col] && !a.saysMore(x.val, ends, 0) {
				continue
			}
			if col == a.title && x.val.IsScalar() {
				it.Title = x.val.Text()
				continue
			}
			if role == Args && isMap(x.val) && x.val.Str == "" {
				for k := range x.val.Fields {
					if f := &x.val.Fields[k]; len(it.Attrs) < maxAttrs {
						it.Attrs = append(it.Attrs, Attr{Key: f.Key, Role: role, Value: a.s.tree.JSON(f.Val), Off: f.Off})
					}
				}
				continue
			}
			if len(it.Attrs) < maxAttrs && !a.arePart(x.val) { // parts are items themselves
				it.Attrs = append(it.Attrs, Attr{Key: col.name, Role: role, Value: a.s.tree.JSON(x.val), Off: x.off})
			}
		}
	}
	for i := range r.Items {
		if r.Items[i].Title == "" {
			r.Items[i].Title = a.fallback(i)
		}
	}
}

// fallback returns a title for a record without one: its tool and arguments, or its id.
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

// faults notes the faults in the text of the values, each with the closest record before it.
func (a *analysis) faults() {
	near := func(off int) string {
		i := sort.Search(len(a.r.Items), func(i int) bool { return a.r.Items[i].Off > off })
		if i == 0 {
			return ""
		}
		return a.r.Items[i-1].ID
	}
	t := a.s.tree
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

// isList reports whether each record is one sentence behind a colon, as in the Markdown list "- Maria: send
// the contract".
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
