package meaning

import (
	"slices"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readRecords reads plans in values: JSON, Python, YAML, XML, tables and CSV. It finds and weighs all
// collections of records in all values, regardless of their names and depth.
func readRecords(src *form.Source) []*Reading {
	c := &collector{src: src, budget: 300_000, by: map[*Reading]*analysis{}, listed: map[*form.Value][]*form.Field{}, flowOf: map[*Reading]*flow{}}
	bracketed := form.Bracketed(src.Text, src.MaxDepth)
	for _, t := range append(bracketed, scattered(src, bracketed)...) {
		c.tree(t, "records")
	}
	next := 0
	for _, t := range form.YAML(src) {
		for next < len(bracketed) && bracketed[next].Root.End < t.Root.Off {
			next++
		}
		if next == len(bracketed) || bracketed[next].Root.Off > t.Root.Off || bracketed[next].Root.End < t.Root.End {
			c.tree(t, "records")
		}
	}
	for _, t := range form.Blocks(src) {
		c.tree(t, "records")
	}
	for _, t := range form.XML(src) {
		c.tree(t, "records")
	}
	var out []*Reading
	for _, t := range form.Tables(src) {
		if r := matrix(src, t); r != nil {
			out = append(out, r)
			continue
		}
		c.tree(t, "table")
	}
	c.index()
	c.tries = 8_000
	for _, p := range c.pairs {
		c.tries += 8 * (1 + len(p.list))
	}
	for _, f := range c.flows {
		if r := c.flowReading(f); r != nil {
			out = append(out, r)
		}
	}
	flows := out[:len(out):len(out)]
	if r := nestedCalls(src); r != nil {
		out = append(out, r)
	}
	for _, t := range bracketed {
		if r := nestedOps(src, t.Root); r != nil {
			out = append(out, r)
		}
	}
	for _, s := range c.sets {
		if src.Ended() {
			return nil
		}
		if r := c.analyze(s); r != nil {
			out = append(out, r)
		}
	}
	for _, p := range c.pairs {
		if r := c.pairsAlone(p); r != nil {
			out = append(out, r)
		}
	}
	c.surer(out, flows)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Weight > out[j].Weight })
	out = c.severalReadings(out)
	if len(out) > 0 && c.by[out[0]] != nil && len(out[0].Items) > 1 {
		c.by[out[0]].applyProse()
	}
	return out
}

// scattered makes lists of objects that stand one by one in the text and begin with the same key, such as the
// arguments of calls in a log.
func scattered(src *form.Source, trees []*form.Tree) []*form.Tree {
	at := map[string]*form.Tree{}
	var out []*form.Tree
	for _, t := range trees {
		if t.Root.Kind != form.KindObject || !flat(t.Root) {
			continue
		}
		key := t.Root.Fields[0].Key
		if line := src.Lines[src.LineAt(t.Root.Off)]; line.Off < t.Root.Off {
			if ahead := strings.TrimRight(src.Text[line.Off:t.Root.Off], " "); strings.HasSuffix(ahead, ":") || strings.HasSuffix(ahead, "=") {
				key += "|" + ahead // the object is the value of a key; values of the same key belong together
			}
		}
		l := at[key]
		if l == nil {
			l = &form.Tree{Root: &form.Value{Kind: form.KindList, Off: t.Root.Off}, AnyKeys: true, Apart: true}
			at[key] = l
			out = append(out, l)
		}
		l.Root.Items, l.Root.End = append(l.Root.Items, t.Root), t.Root.End
		l.Faults, l.CutOff = append(l.Faults, t.Faults...), t.CutOff
	}
	return slices.DeleteFunc(out, func(t *form.Tree) bool { return len(t.Root.Items) < 2 })
}

// flat reports whether an object has fields but no list of objects.
func flat(v *form.Value) bool {
	for i := range v.Fields {
		if x := v.Fields[i].Val; x.Kind == form.KindList && holdsMaps(x) {
			return false
		}
	}
	return len(v.Fields) > 0
}

// record is an element of a collection.
type record struct {
	// key is the key of the record in a map, or the tag of an element.
	key      string
	off, end int
	val      *form.Value
	fields   []form.Field
	// wrapped is set if the value around the record has other fields, which are no part of the record.
	wrapped bool
	// group is the nearest value around the record that belongs to another set, or nil.
	group *enclosing
}

// enclosing is a value and the values around it.
type enclosing struct {
	val *form.Value
	up  *enclosing
}

// set is a collection of records that may be a plan.
type set struct {
	tree *form.Tree
	form string
	// labels are the keys above the collection, the nearest last.
	labels []string
	// keyed is set if the records are values of keys that may be their ids.
	keyed bool
	// plain is set if the records are only texts.
	plain bool
	recs  []record
	// val is the collection, owner the object that holds it. shape is the path to the collection without
	// indexes.
	val    *form.Value
	owner  *form.Value
	shape  string
	nested bool // the collection was in a string
	// wrapped is set if the records are parts of other values. Such records need evidence that they are
	// steps.
	wrapped bool
	// texts is set if all values of the keys are texts. Then only links can show that the records are steps.
	texts bool
}

type collector struct {
	src    *form.Source
	sets   []*set
	shapes map[string]*set
	pairs  []*pairs
	// setsIn and pairsIn hold the sets and lists of links by tree.
	setsIn  map[*form.Tree][]*set
	pairsIn map[*form.Tree][]*pairs
	looks   int // how many more comparisons with sets, lists of links and fields are allowed
	tries   int // how many more links may be tried on sets; each may belong to any list of links
	flows   []*flow
	flowOf  map[*Reading]*flow
	// flowEnd is the end of the last flow.
	flowEnd int
	budget  int
	length  int // of all records read so far
	by      map[*Reading]*analysis
	listed  map[*form.Value][]*form.Field // the lists of links in an object
	cur     *form.Tree
	form    string
	nested  bool
}

// way is the path to a value.
type way struct {
	labels []string
	shape  string
	owner  *form.Value
	group  *enclosing
	depth  int
}

// into returns the way to a part of the value. step is the part's step in the shape.
func (w way) into(name, step string) way {
	if name != "" {
		w.labels = append(w.labels[:len(w.labels):len(w.labels)], name)
	}
	w.shape += step
	w.depth++
	return w
}

// maxLooks bounds the comparisons of all sets of a text, which would grow with the square of their number.
const maxLooks = 4_000_000

// index builds setsIn and pairsIn.
func (c *collector) index() {
	c.setsIn, c.pairsIn, c.looks = map[*form.Tree][]*set{}, map[*form.Tree][]*pairs{}, maxLooks
	for _, s := range c.sets {
		c.setsIn[s.tree] = append(c.setsIn[s.tree], s)
	}
	for _, p := range c.pairs {
		c.pairsIn[p.tree] = append(c.pairsIn[p.tree], p)
	}
}

// looksAt counts n comparisons and reports whether they are allowed.
func (c *collector) looksAt(n int) bool {
	if n > c.looks {
		return false
	}
	c.looks -= n
	return true
}

// severalReadings notes on the best reading how other readings of the text with a similar weight differ. If
// one revises an earlier one, the later one counts.
func (c *collector) severalReadings(all []*Reading) []*Reading {
	if len(all) < 2 || all[0].Weight < 80 {
		return all
	}
	best := all[0]
	for _, r := range all[1:] {
		if r.Weight < 80 || r.Weight < best.Weight-8 || c.together(best, r) {
			continue
		}
		if c.span(r).Off > c.span(best).Off && Replaces(best, r) {
			r.Notes = append(r.Notes, OtherPlan(r, best)...)
			r.Weight = best.Weight + 1
			best = r
			continue
		}
		best.Notes = append(best.Notes, OtherPlan(best, r)...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Weight > all[j].Weight })
	return all
}

// span returns the extent of a reading. For records in a string it is the extent within the string.
func (c *collector) span(r *Reading) Span {
	if a := c.by[r]; a != nil && a.s.nested && a.s.val != nil {
		return Span{a.s.val.Off, a.s.val.End}
	}
	return Span{r.Start, r.End}
}

// together reports whether two readings overlap, also within strings.
func (c *collector) together(r, q *Reading) bool {
	a, b := c.span(r), c.span(q)
	return a.Off < b.End && b.Off < a.End
}

func overlaps(a, b *Reading) bool { return a.Start < b.End && b.Start < a.End }

// sharedIDs counts the items of b whose ids a has, too.
func sharedIDs(a, b *Reading) int {
	ids := make(map[string]bool, len(a.Items))
	for i := range a.Items {
		ids[a.Items[i].ID] = true
	}
	n := 0
	for i := range b.Items {
		if ids[b.Items[i].ID] {
			n++
		}
	}
	return n
}

// planish reports whether a name is one for a collection of steps.
func planish(name string) bool {
	name = splitName(name)
	if lexicon.Is(lexicon.Plan, name) || lexicon.Is(lexicon.Steps, name) {
		return true
	}
	if f := strings.Fields(name); len(f) > 1 {
		for _, w := range f {
			if lexicon.Is(lexicon.Plan, w) || lexicon.Is(lexicon.Steps, w) {
				return true
			}
		}
	}
	return false
}

// splitName splits a name into lower-case words: stepsList, steps_list and steps-list become "steps list".
func splitName(name string) string {
	var sb strings.Builder
	var last rune
	for _, r := range name {
		switch {
		case r == '_' || r == '-' || r == '.' || r == ':' || r == '/':
			r = ' '
		case r >= 'A' && r <= 'Z' && last >= 'a' && last <= 'z':
			sb.WriteByte(' ')
		}
		sb.WriteRune(r)
		last = r
	}
	return strings.ToLower(strings.TrimSpace(sb.String()))
}
