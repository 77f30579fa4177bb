package meaning

import (
	"slices"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readRecords reads plans that are written as values: JSON, Python, YAML, XML, tables and CSV. It finds all
// collections of records in all values, whatever they are called and wherever they stand, and weighs what
// each of them says.
func readRecords(src *form.Source) []*Reading {
	c := &collector{src: src, budget: 300_000, by: map[*Reading]*analysis{}, owned: map[*form.Value][]linkMap{}, flowOf: map[*Reading]*flow{}}
	bracketed := form.Bracketed(src.Text, src.MaxDepth)
	all := bracketed
	for _, t := range append(bracketed, scattered(src, bracketed)...) {
		c.tree(t, "records")
	}
	for _, t := range form.YAML(src) {
		for len(bracketed) > 0 && bracketed[0].Root.End < t.Root.Off {
			bracketed = bracketed[1:]
		}
		if len(bracketed) == 0 || bracketed[0].Root.Off > t.Root.Off || bracketed[0].Root.End < t.Root.End {
			c.tree(t, "records")
		}
	}
	for _, t := range form.Blocks(src) {
		c.tree(t, "records")
	}
	tables := form.Tables(src)
	loose := map[int]bool{} // the lines of tables of HTML whose cells are not closed
	for _, t := range tables {
		if src.Text[t.Root.Off] == '<' {
			loose[t.Root.Off] = true
		}
	}
	for _, t := range form.XML(src) {
		if !loose[t.Root.Off] {
			c.tree(t, "records")
		}
	}
	var out []*Reading
	for _, t := range tables {
		if r := matrix(src, t); r != nil {
			out = append(out, r)
			continue
		}
		c.tree(t, "table")
	}
	c.merge()
	for _, f := range c.flows {
		if r := c.flowReading(f); r != nil {
			out = append(out, r)
		}
	}
	flows := out[:len(out):len(out)]
	if r := nestedCalls(src); r != nil {
		out = append(out, r)
	}
	for _, t := range all {
		if r := nestedOps(src, t.Root); r != nil {
			out = append(out, r)
		}
	}
	for _, s := range c.sets {
		if src.Ended() {
			return nil
		}
		if r := c.read(s); r != nil {
			out = append(out, r)
		}
	}
	for _, p := range c.pairs {
		if r := c.pairsAlone(p); r != nil {
			out = append(out, r)
		}
	}
	c.withoutLinks(out)
	c.surer(out, flows)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Weight > out[j].Weight })
	out = c.severalReadings(out)
	if len(out) > 0 && c.by[out[0]] != nil && len(out[0].Items) > 1 {
		c.by[out[0]].around()
	}
	return out
}

// scattered makes lists of the objects that stand one by one in the text and begin with the same key: the
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
				key += "|" + ahead // the value of a key: those of one key belong together
			}
		}
		l := at[key]
		if l == nil {
			l = &form.Tree{Root: &form.Value{Kind: form.KindList, Off: t.Root.Off}, AnyKeys: true}
			at[key] = l
			out = append(out, l)
		}
		l.Root.Items, l.Root.End = append(l.Root.Items, t.Root), t.Root.End
		l.Faults, l.CutOff = append(l.Faults, t.Faults...), t.CutOff
	}
	return slices.DeleteFunc(out, func(t *form.Tree) bool { return len(t.Root.Items) < 2 })
}

// flat reports whether an object holds no list of objects.
func flat(v *form.Value) bool {
	for i := range v.Fields {
		if x := v.Fields[i].Val; x.Kind == form.KindList && holdsMaps(x) {
			return false
		}
	}
	return len(v.Fields) > 0
}

// withoutLinks takes the records in lists and maps of links, which other records have read, for no plan.
func (c *collector) withoutLinks(all []*Reading) {
	var spans []Span
	for _, r := range all {
		if a := c.by[r]; a != nil && r.Weight >= sureLinks {
			spans = append(spans, a.taken...)
		}
	}
	if len(spans) == 0 {
		return
	}
	sort.Slice(spans, func(i, j int) bool {
		return spans[i].Off < spans[j].Off || spans[i].Off == spans[j].Off && spans[i].End > spans[j].End
	})
	outer := spans[:1]
	for _, s := range spans[1:] {
		if s.Off >= outer[len(outer)-1].End {
			outer = append(outer, s)
		}
	}
	for _, r := range all {
		var val *form.Value
		if a := c.by[r]; a != nil && len(a.s.merged) == 0 {
			val = a.s.val
		} else if f := c.flowOf[r]; f != nil {
			val = f.val
		}
		if val == nil {
			continue
		}
		i := sort.Search(len(outer), func(i int) bool { return outer[i].End >= val.End })
		if i < len(outer) && outer[i].Off <= val.Off {
			r.Weight = min(r.Weight, 20)
		}
	}
}

// sureLinks is the weight from which a reading is sure enough for what it took for links.
const sureLinks = 80

// record is one part of a collection.
type record struct {
	// key is the key under which it stands in a map, or the tag of an element.
	key      string
	off, end int
	val      *form.Value
	fields   []form.Field
	// group is what stands around it, of another set, or nil.
	group *around
}

// around is a value with those that it stands in, the nearest first.
type around struct {
	val *form.Value
	up  *around
}

// set is a collection of records that may be a plan.
type set struct {
	tree *form.Tree
	form string
	// labels are the keys under which it stands, the nearest last.
	labels []string
	// keyed tells that the records stand under keys that may be their ids.
	keyed bool
	// plain tells that the records are texts only.
	plain bool
	recs  []record
	// val is the collection, owner the object that holds it, shape the way to it without places.
	val   *form.Value
	owner *form.Value
	shape string
	// merged are the sets of other values that were joined to this one.
	merged []*set
	nested bool // was read out of a string
	// wrapped tells that the records are what others hold, so that they have to show that they are steps.
	wrapped bool
	// texts tells that only texts stand under the keys, so that links have to show that they are steps.
	texts bool
}

type collector struct {
	src    *form.Source
	sets   []*set
	shapes map[string]*set
	pairs  []*pairs
	flows  []*flow
	flowOf map[*Reading]*flow
	// flowEnd is where the last flow ends.
	flowEnd int
	budget  int
	length  int // of all records that were read
	by      map[*Reading]*analysis
	owned   map[*form.Value][]linkMap
	cur     *form.Tree
	form    string
	nested  bool
}

// way is where a value stands.
type way struct {
	labels []string
	shape  string
	owner  *form.Value
	group  *around
	depth  int
}

func (w way) into(name, step string) way {
	if name != "" {
		w.labels = append(w.labels[:len(w.labels):len(w.labels)], name)
	}
	w.shape += step
	w.depth++
	return w
}

func (c *collector) tree(t *form.Tree, formName string) {
	c.cur, c.form, c.shapes = t, formName, map[string]*set{}
	c.walk(t.Root, way{})
}

// maxStrings bounds how deep values stand in strings of values.
const maxStrings = 3

// walk adds the collections in v.
func (c *collector) walk(v *form.Value, w way) {
	if v == nil || w.depth > c.src.MaxDepth || c.budget <= 0 {
		return
	}
	c.budget--
	switch {
	case v.Kind == form.KindString:
		c.inString(v, w)
	case v.Kind == form.KindList:
		c.list(v, w)
	case isMap(v):
		c.object(v, w)
	}
}

func isMap(v *form.Value) bool {
	return v != nil && (v.Kind == form.KindObject || v.Kind == form.KindCall && len(v.Fields) > 0)
}

// inString reads a value that stands, as text, in a string.
func (c *collector) inString(v *form.Value, w way) {
	s := strings.TrimSpace(v.Str)
	if len(s) < 12 || strings.IndexByte("{[", s[0]) < 0 || strings.Count(w.shape, "!") >= maxStrings {
		return
	}
	trees := form.Bracketed(v.Str, c.src.MaxDepth)
	if len(trees) == 0 {
		return
	}
	t := trees[0]
	shift(t.Root, v)
	for i := range t.Faults {
		t.Faults[i].Off = v.Off
	}
	t.CutOff = t.CutOff || v.Open
	cur, shapes, nested := c.cur, c.shapes, c.nested
	t.Root.End = max(t.Root.End, cur.Root.End) // what follows the plan stands below the value that holds the string
	c.cur, c.shapes, c.nested = t, map[string]*set{}, true
	c.walk(t.Root, w.into("", "!"))
	c.cur, c.shapes, c.nested = cur, shapes, nested
}

// shift moves the places of a value that was read out of the string s to where they are in the text, or near.
func shift(v *form.Value, s *form.Value) {
	if v == nil {
		return
	}
	place := func(off int) int { return min(int(s.In)+off, max(int(s.Out), int(s.In))) }
	v.Off, v.End = place(v.Off), place(v.End)
	for _, x := range v.Items {
		shift(x, s)
	}
	for i := range v.Fields {
		v.Fields[i].Off = place(v.Fields[i].Off)
		shift(v.Fields[i].Val, s)
	}
}

// list adds a list of records, of texts, of records under one key each, and what stands in it.
func (c *collector) list(v *form.Value, w way) {
	maps, texts, single := 0, 0, 0
	for _, x := range v.Items {
		switch {
		case isMap(x):
			maps++
			if len(x.Fields) == 1 && isMap(x.Fields[0].Val) && len(x.Items) == 0 {
				single++
			}
		case x.IsScalar():
			texts++
		}
	}
	n := len(v.Items)
	switch p := readPairs(v); {
	case p != nil:
		p.tree, p.form, p.owner, p.labels = c.cur, c.form, w.owner, w.labels
		c.pairs = append(c.pairs, p)
	case single > 0 && (single == n || single+texts == n && !c.src.Ended() && c.form == "records"):
		s := c.at(w, true)
		s.home(v)
		for _, x := range v.Items {
			if x.IsScalar() {
				s.recs = append(s.recs, record{key: x.Text(), off: x.Off, end: x.End, val: x, group: w.group})
				continue
			}
			f := &x.Fields[0]
			s.recs = append(s.recs, record{key: f.Key, off: x.Off, end: x.End, val: f.Val, fields: f.Val.Fields, group: w.group})
			c.object(f.Val, w.into("", "[]").inside(f.Val))
		}
		return
	case maps > 0 && maps*4 >= n*3:
		s := c.at(w, false)
		s.home(v)
		if p := linkTable(v); p != nil {
			p.tree, p.owner, p.labels, p.set = c.cur, w.owner, w.labels, s
			c.pairs = append(c.pairs, p)
		}
		var heads map[*form.Value]bool
		if c.form == "table" {
			heads = headingRows(c.src, v)
		}
		for _, x := range v.Items {
			if isMap(x) && !heads[x] {
				s.recs = append(s.recs, record{off: x.Off, end: x.End, val: x, fields: unwrapped(x), group: w.group})
			}
		}
	case n > 0 && texts == n && v.Items[0].Kind != form.KindNumber && (n > 1 || n == 1 && strings.Contains(w.shape, "[]")):
		s := c.at(w, false)
		s.home(v)
		s.plain = true
		for _, x := range v.Items {
			s.recs = append(s.recs, record{off: x.Off, end: max(x.End, x.Off), val: x, group: w.group})
		}
	}
	c.flow(v, w)
	if maps > 1 {
		c.wrapped(v, w)
	}
	for _, x := range v.Items {
		in := w.into("", "[]")
		if isMap(x) {
			in = in.inside(x)
		}
		c.walk(x, in)
	}
}

func (w way) inside(v *form.Value) way {
	w.group = &around{v, w.group}
	return w
}

// at returns the set at a way; collections at the same way in different groups are one.
func (c *collector) at(w way, keyed bool) *set {
	key := w.shape
	if s := c.shapes[key]; s != nil {
		return s
	}
	s := &set{tree: c.cur, form: c.form, labels: w.labels, keyed: keyed, owner: w.owner, shape: w.shape, nested: c.nested}
	c.shapes[key] = s
	c.sets = append(c.sets, s)
	return s
}

// wrapped adds what the records of a list wrap as a list of its own: the arguments of calls that each add a
// step.
func (c *collector) wrapped(v *form.Value, w way) {
	sets := map[string]*set{}
	for _, x := range v.Items {
		if !isMap(x) || x.Str != "" {
			continue
		}
		for i := range x.Fields {
			f := &x.Fields[i]
			in := c.inner(f.Val)
			if in == nil || len(sets) > 8 {
				continue
			}
			s := sets[f.Key]
			if s == nil {
				way := w.into(f.Key, "[]|"+f.Key)
				way.owner = nil
				s = c.at(way, false)
				s.wrapped = true
				sets[f.Key] = s
			}
			s.recs = append(s.recs, record{off: x.Off, end: x.Off + min(x.End-x.Off, max(0, f.Val.End-f.Val.Off)), val: in, fields: unwrapped(in)})
		}
	}
}

// inner returns the object that a value is, or that stands in it as a text.
func (c *collector) inner(v *form.Value) *form.Value {
	if isMap(v) && v.Str == "" {
		return v
	}
	if v.Kind != form.KindString {
		return nil
	}
	s := strings.TrimSpace(v.Str)
	if len(s) < 4 || s[0] != '{' || s[1] == '{' {
		return nil
	}
	t, _ := form.ValueAt(s, 0, c.src.MaxDepth, true)
	if t.Root == nil || len(t.Faults) > 0 || !isMap(t.Root) {
		return nil
	}
	shift(t.Root, v)
	return t.Root
}

// flow adds the flow that v is, unless it stands in one.
func (c *collector) flow(v *form.Value, w way) {
	if n := len(c.flows); n > 0 && c.flows[n-1].tree == c.cur && v.Off < c.flowEnd {
		return
	}
	if f := c.readFlow(v); f != nil {
		f.tree, f.form, f.labels, f.nested = c.cur, c.form, w.labels, c.nested
		c.flows, c.flowEnd = append(c.flows, f), v.End
	}
}

// home says which collection the records stand in; of several it is the first.
func (s *set) home(v *form.Value) {
	if s.val == nil {
		s.val = v
	}
}

// unwrapped returns the fields of a record, with those of the one object that stands in it for the call it
// makes.
func unwrapped(v *form.Value) []form.Field {
	for i := range v.Fields {
		f := &v.Fields[i]
		if k := strings.ToLower(f.Key); (k == "function" || k == "functioncall" || k == "function_call" || k == "task" || k == "node") && isMap(f.Val) {
			out := append([]form.Field(nil), v.Fields[:i]...)
			out = append(out, f.Val.Fields...)
			return append(out, v.Fields[i+1:]...)
		}
	}
	return related(v)
}

// titled reports whether each value in v is a text of its own.
func titled(v *form.Value) bool {
	for i := range v.Fields {
		if x := v.Fields[i].Val; x.Kind != form.KindString && x.Kind != form.KindBare {
			return false
		}
	}
	return true
}

// related returns the fields of a record, and those of the objects in it that relate it to others.
func related(v *form.Value) []form.Field {
	if v.Str != "" {
		return v.Fields
	}
	out := v.Fields
	for i := range v.Fields {
		if f := &v.Fields[i]; isMap(f.Val) && f.Val.Str == "" && !otherRole(f.Key) && len(f.Val.Fields) <= 12 {
			out = append(out[:len(out):len(out)], relationsIn(f)...)
		}
	}
	return out
}

// relationsIn returns the fields of an object in a record that say what comes before or after: "links":
// {"blocks": […]}.
func relationsIn(f *form.Field) (out []form.Field) {
	if role, ok := lexicon.Field(f.Key); ok && role != lexicon.Status || f.Val.Get("properties") != nil {
		return nil // arguments, or the schema of a record
	}
	for i := range f.Val.Fields {
		x := &f.Val.Fields[i]
		if x.Val.Kind == form.KindObject || x.Val.Kind == form.KindList && holdsMaps(x.Val) {
			continue
		}
		name := splitName(x.Key)
		if roles := lexicon.Fields(strings.TrimPrefix(strings.TrimPrefix(name, "is "), "are ")); len(roles) > 0 && (roles[0] == lexicon.Requires || roles[0] == lexicon.Next) {
			out = append(out, *x)
		}
	}
	return out
}

// object adds the map of records that v is, and what stands in it.
func (c *collector) object(v *form.Value, w way) {
	c.flow(v, w)
	if v.Str != "" && v.Kind == form.KindObject {
		c.element(v, w)
		return
	}
	maps, lists, other := 0, 0, 0
	for i := range v.Fields {
		switch x := v.Fields[i].Val; {
		case isMap(x):
			maps++
		case idList(x):
			lists++
		default:
			other++
		}
	}
	switch {
	case maps >= 2 || maps == 1 && other+lists == 0:
		s := c.at(w, true)
		s.home(v)
		for i := range v.Fields {
			if f := &v.Fields[i]; isMap(f.Val) {
				s.recs = append(s.recs, record{key: f.Key, off: f.Off, end: f.Val.End, val: f.Val, fields: related(f.Val), group: w.group})
			}
		}
	case lists >= 2 && lists == len(v.Fields) && len(w.labels) > 0 && !strings.HasSuffix(w.shape, "]") && planish(w.labels[len(w.labels)-1]) && titled(v) && !namesItself(v):
		s := c.at(w, true)
		s.home(v)
		s.texts = true
		for i := range v.Fields {
			f := &v.Fields[i]
			s.recs = append(s.recs, record{key: f.Key, off: f.Off, end: f.Val.End, val: f.Val, fields: []form.Field{{Key: form.TextKey, Off: f.Off, Val: f.Val}}, group: w.group})
		}
	case lists >= 2 && maps == 0 && other == 0 && !strings.HasSuffix(w.shape, "]") && namesItself(v):
		s := c.at(w, true)
		s.home(v)
		for i := range v.Fields {
			f := &v.Fields[i]
			s.recs = append(s.recs, record{key: f.Key, off: f.Off, end: f.Val.End, val: f.Val, fields: []form.Field{{Key: "", Off: f.Off, Val: f.Val}}, group: w.group})
		}
	}
	keyed := maps >= 2 && alikeMaps(v)
	for i := range v.Fields {
		f := &v.Fields[i]
		in := w.into(f.Key, "/"+f.Key)
		if keyed && isMap(f.Val) {
			in = w.into(f.Key, "/*").inside(f.Val)
		}
		in.owner = v
		c.walk(f.Val, in)
	}
}

// namesItself reports whether a value in v is one of its keys.
func namesItself(v *form.Value) bool {
	keys := make(map[string]bool, len(v.Fields))
	for i := range v.Fields {
		keys[v.Fields[i].Key] = true
	}
	for i := range v.Fields {
		x := v.Fields[i].Val
		for _, y := range append(x.Items[:len(x.Items):len(x.Items)], x) {
			if y.IsScalar() && keys[y.Text()] {
				return true
			}
		}
	}
	return false
}

// alikeMaps reports whether the maps in v have a key in common.
func alikeMaps(v *form.Value) bool {
	count := map[string]int{}
	maps := 0
	for i := range v.Fields {
		if x := v.Fields[i].Val; isMap(x) {
			maps++
			for k := range x.Fields {
				count[x.Fields[k].Key]++
			}
		}
	}
	for _, n := range count {
		if n*2 > maps {
			return true
		}
	}
	return false
}

// idList reports whether v may be the needs of the key it stands under: nothing, a text, or a list of them.
func idList(v *form.Value) bool {
	switch v.Kind {
	case form.KindNull, form.KindString, form.KindBare, form.KindNumber:
		return true
	case form.KindList:
		for _, x := range v.Items {
			if !x.IsScalar() {
				return false
			}
		}
		return true
	}
	return false
}

// element adds the elements in an element of XML.
func (c *collector) element(v *form.Value, w way) {
	texts := map[string]int{}
	var s, plain *set
	p := &pairs{tree: c.cur, owner: v, labels: w.labels}
	count := map[string]int{}
	for i := range v.Fields {
		if f := &v.Fields[i]; isMap(f.Val) {
			count[f.Key]++
		} else if f.Val.Kind == form.KindString && c.src.Text[min(f.Off, len(c.src.Text)-1)] == '<' {
			texts[f.Key]++
		}
	}
	for i := range v.Fields {
		f := &v.Fields[i]
		in := w.into(f.Key, "/"+f.Key)
		in.owner = v
		switch {
		case isMap(f.Val):
			if x, ok := elementPair(f.Val); ok {
				p.list = append(p.list, x)
				continue
			}
			if s == nil {
				s = c.at(w, false)
			}
			s.recs = append(s.recs, record{key: f.Key, off: f.Off, end: f.Val.End, val: f.Val, fields: f.Val.Fields, group: w.group})
			in = in.inside(f.Val)
		case texts[f.Key] > 1 && c.src.Text[f.Off] == '<':
			if plain == nil {
				plain = c.at(in, false)
				plain.plain = true
			}
			plain.recs = append(plain.recs, record{key: f.Key, off: f.Val.Off, end: f.Val.End, val: f.Val, group: w.group})
		}
		c.walk(f.Val, in)
	}
	if len(p.list) > 0 {
		c.pairs = append(c.pairs, p)
	}
	c.byTag(s, v)
}

// byTag adds the elements of each tag as a set of their own when there are several tags.
func (c *collector) byTag(s *set, v *form.Value) {
	if s == nil {
		return
	}
	tags := map[string]*set{}
	var order []string
	for _, r := range s.recs {
		t := tags[r.key]
		if t == nil {
			t = &set{tree: s.tree, form: s.form, labels: s.labels, owner: v, shape: s.shape, nested: s.nested}
			tags[r.key] = t
			order = append(order, r.key)
		}
		t.recs = append(t.recs, r)
	}
	if len(order) < 2 || len(order) > 20 {
		return
	}
	for _, tag := range order {
		if len(tags[tag].recs) > 1 {
			c.sets = append(c.sets, tags[tag])
		}
	}
}

// merge joins sets of different values whose records are of one kind and refer to each other, as tables of
// parts of one plan.
func (c *collector) merge() {
	first := map[string]*set{}
	for _, s := range c.sets {
		if s.plain || len(s.recs) == 0 || s.nested {
			continue
		}
		sig := signature(s)
		if sig == "" {
			continue
		}
		f := first[sig]
		if f == nil {
			first[sig] = s
			continue
		}
		if f.tree != s.tree && len(f.merged) < 50 {
			f.merged = append(f.merged, s)
		}
	}
}

// signature names what kind of records a set has: the fields of the most complete one of the first few.
func signature(s *set) string {
	labels := map[string]bool{}
	for _, r := range s.recs[:min(len(s.recs), 20)] {
		for i := range r.fields {
			labels[strings.ToLower(r.fields[i].Key)] = true
		}
	}
	list := make([]string, 0, len(labels))
	for n := range labels {
		list = append(list, n)
	}
	if len(list) < 2 {
		return ""
	}
	sort.Strings(list)
	sig := s.form
	if s.keyed {
		sig += "*"
	}
	return sig + "|" + strings.Join(list, "|")
}

// read weighs what the set says, alone and together with those merged into it.
func (c *collector) read(s *set) *Reading {
	r := c.analyze(s, s.recs)
	if len(s.merged) == 0 {
		return r
	}
	all := append([]record(nil), s.recs...)
	for _, m := range s.merged {
		all = append(all, m.recs...)
	}
	both := c.analyze(s, all)
	if both == nil || r == nil || both.Weight < r.Weight || len(both.Notes) > 0 || len(both.Items) > c.src.MaxItems {
		return r
	}
	ids := make(map[string]bool, len(both.Items))
	for i := range both.Items {
		if ids[both.Items[i].ID] || !both.Items[i].Shown {
			return r
		}
		ids[both.Items[i].ID] = true
	}
	last := s.merged[len(s.merged)-1].tree
	both.End = max(both.End, last.Root.End)
	both.Weight++
	return both
}

// severalReadings says of the best reading how others of the text, that are as sure, differ. The last one of
// those that read the same ids counts.
func (c *collector) severalReadings(all []*Reading) []*Reading {
	if len(all) < 2 || all[0].Weight < 80 {
		return all
	}
	best := all[0]
	for _, r := range all[1:] {
		if r.Weight < 80 || r.Weight < best.Weight-8 || overlaps(best, r) && !c.apart(best, r) {
			continue
		}
		if c.begins(r) > c.begins(best) && Replaces(best, r) {
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

// apart reports whether two readings are of strings that stand apart in one value, such as the arguments of
// two calls.
func (c *collector) apart(r, q *Reading) bool {
	a, b := c.by[r], c.by[q]
	if a == nil || b == nil || !a.s.nested || !b.s.nested || a.s.val == nil || b.s.val == nil {
		return false
	}
	return a.s.val.End <= b.s.val.Off || b.s.val.End <= a.s.val.Off
}

// begins returns where the records of a reading begin.
func (c *collector) begins(r *Reading) int {
	if a := c.by[r]; a != nil && a.s.nested && a.s.val != nil {
		return a.s.val.Off
	}
	return r.Start
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

// planish reports whether a name says that what stands under it are steps.
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

// splitName parts the words of a name: stepsList, step_list and step-list are "steps list".
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
