package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// tree adds the collections in a tree.
func (c *collector) tree(t *form.Tree, formName string) {
	c.cur, c.form, c.shapes = t, formName, map[string]*set{}
	c.walk(t.Root, way{})
}

// maxStrings bounds the nesting of values inside strings.
const maxStrings = 3

// walk adds the collections in v.
func (c *collector) walk(v *form.Value, w way) {
	if v == nil || w.depth > c.src.MaxDepth || c.budget <= 0 {
		return
	}
	if c.budget--; c.budget&1023 == 0 && c.src.Ended() {
		c.budget = 0
	}
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

// inString reads a value inside a string.
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
	if t.Outer = c.cur.Outer; t.Outer == nil {
		t.Outer = c.cur.Root
	}
	cur, shapes, nested := c.cur, c.shapes, c.nested
	// Text after the plan comes after the value that contains the string.
	t.Root.End = max(t.Root.End, cur.Root.End)
	c.cur, c.shapes, c.nested = t, map[string]*set{}, true
	c.walk(t.Root, w.into("", "!"))
	c.cur, c.shapes, c.nested = cur, shapes, nested
}

// shift converts the offsets of a value that was read from the string s to offsets in the text, which are
// approximate.
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

// list adds a list of records, texts, links, or records with one key each, and the collections in it.
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
	w.group = &enclosing{v, w.group}
	return w
}

// at returns the set at a path. Collections at the same path in different groups are one set.
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

// wrapped adds the objects inside the records of a list as a set of their own, such as the arguments of calls
// that add a step each.
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
			s.recs = append(s.recs, record{off: x.Off, end: x.Off + min(x.End-x.Off, max(0, f.Val.End-f.Val.Off)), val: in, fields: unwrapped(in), wrapped: len(x.Fields) > 1})
		}
	}
}

// inner returns the object that a value is or, as a text, contains. It returns nil for other values.
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

// flow adds the flow that v is, unless it is inside of one.
func (c *collector) flow(v *form.Value, w way) {
	if n := len(c.flows); n > 0 && c.flows[n-1].tree == c.cur && v.Off < c.flowEnd {
		return
	}
	if f := c.readFlow(v); f != nil {
		f.tree, f.form, f.labels, f.nested = c.cur, c.form, w.labels, c.nested
		c.flows, c.flowEnd = append(c.flows, f), v.End
	}
}

// home sets the collection of the records, unless it is set.
func (s *set) home(v *form.Value) {
	if s.val == nil {
		s.val = v
	}
}

// unwrapped returns the fields of a record. If the record has an object for the call that it makes, its
// fields replace the object.
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

// titled reports whether all values in v are texts.
func titled(v *form.Value) bool {
	for i := range v.Fields {
		if x := v.Fields[i].Val; x.Kind != form.KindString && x.Kind != form.KindBare {
			return false
		}
	}
	return true
}

// related returns the fields of a record, and the fields of objects in it that relate it to other records.
func related(v *form.Value) []form.Field {
	if v.Str != "" {
		return v.Fields
	}
	out := v.Fields[:len(v.Fields):len(v.Fields)]
	for i := range v.Fields {
		if f := &v.Fields[i]; isMap(f.Val) && f.Val.Str == "" && !otherRole(f.Key) && len(f.Val.Fields) <= 12 {
			out = append(out, relationsIn(f)...)
		}
	}
	return out
}

// relationsIn returns the fields for predecessors and successors of an object in a record: "links":
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

// object adds the map of records that v is, and the collections in it.
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
	case lists >= 2 && lists == len(v.Fields) && !strings.HasSuffix(w.shape, "]"):
		names := namesItself(v)
		if !names && !(len(w.labels) > 0 && planish(w.labels[len(w.labels)-1]) && titled(v)) {
			break
		}
		s := c.at(w, true)
		s.home(v)
		key := ""
		if !names {
			s.texts, key = true, form.TextKey
		} else if n := len(w.labels); n > 0 {
			if role, _ := lexicon.Field(w.labels[n-1]); role == lexicon.Requires || role == lexicon.Next {
				key = w.labels[n-1] // for example "dependencies": {"plant": ["survey"]}
			}
		}
		for i := range v.Fields {
			f := &v.Fields[i]
			s.recs = append(s.recs, record{key: f.Key, off: f.Off, end: f.Val.End, val: f.Val, fields: []form.Field{{Key: key, Off: f.Off, Val: f.Val}}, group: w.group})
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

// namesItself reports whether a value in v is one of the keys of v.
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

// alikeMaps reports whether more than half of the maps in v share a key.
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

// idList reports whether v may be the needs of its key: nothing, a text, or a list of texts.
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

// element adds the collections in an XML element.
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

// byTag adds the elements of each tag as a separate set if there are several tags.
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
