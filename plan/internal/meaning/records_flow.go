package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// flow is a tree of steps in groups that run one after the other or in parallel.
type flow struct {
	tree     *form.Tree
	src      *form.Source
	val      *form.Value
	form     string
	labels   []string
	nested   bool
	xml      bool
	leaves   []*form.Value
	links    [][2]int
	side     bool // some steps run in parallel
	named    bool // a name states how the steps run
	maxLinks int
}

// order is the order in which the parts of a group run.
type order uint8

const (
	unordered order = iota
	serial
	abreast
)

// groupParts is a part of a flow that contains other parts.
type groupParts struct {
	order order
	parts []*form.Value
	// isStep is set if the group is a step itself, such as a decision or a fork, in front of its parts.
	// passes is set if a successor may follow the step directly.
	isStep, passes bool
	list           bool
}

// readFlow reads a value that is a group of steps with parallel groups in it, or returns nil. Groups are
// lists in a list, which alternate between parallel and sequential, and values with a name or a sibling field
// that states an order.
func (c *collector) readFlow(v *form.Value) *flow {
	f := &flow{src: c.src, val: v, xml: isElement(v), maxLinks: c.src.MaxLinks}
	g, ok := f.group(v, unordered)
	f.named = ok && f.xml
	if !ok && f.xml {
		g, ok = f.withGroups(v)
	}
	if !ok || !f.mayBegin(v, g) {
		return nil
	}
	if g.list {
		g.order = serial
	}
	if _, _, ok := f.run(g, 0); !ok || len(f.leaves) < 2 || !f.side && !isEngine(f.leaves) && !listOfLists(v) {
		return nil
	}
	f.named = f.named || isEngine(f.leaves)
	return f
}

// mayBegin reports whether a group may be a whole flow: it states an order, or it is a list that contains
// groups.
func (f *flow) mayBegin(v *form.Value, g groupParts) bool {
	if !g.list {
		return g.order != unordered && !g.isStep
	}
	if isEngine(v.Items) {
		return true
	}
	if len(v.Items) < 2 && !(len(v.Items) == 1 && v.Items[0].Kind == form.KindList) {
		return false
	}
	groups := 0
	for _, x := range v.Items {
		if x.Kind == form.KindList {
			groups++
			for _, y := range x.Items {
				if y.Kind == form.KindNumber || y.Kind == form.KindNull {
					return false
				}
			}
		} else if in, ok := f.group(x, serial); ok && (in.order != unordered || in.isStep) {
			groups++
		}
	}
	return groups > 0
}

// isEngine reports whether all records are tasks of an engine that runs a list in order, regardless of the
// references between the tasks.
func isEngine(list []*form.Value) bool {
	for _, x := range list {
		if !isMap(x) || x.Get("taskreferencename") == nil {
			return false
		}
	}
	return len(list) > 0
}

func isElement(v *form.Value) bool { return v != nil && v.Kind == form.KindObject && v.Str != "" }

// orderOf returns the order that a name or value states.
func orderOf(name string) order {
	if len(name) > 60 {
		return unordered
	}
	role, ok := lexicon.Field(name)
	switch {
	case ok && role == lexicon.Series, lexicon.Is(lexicon.Sequence, splitName(name)):
		return serial
	case isParallel(name):
		return abreast
	}
	return unordered
}

// group returns the parts of a value that contains steps or groups; in is the order of the group around it.
func (f *flow) group(x *form.Value, in order) (g groupParts, ok bool) {
	switch {
	case x.Kind == form.KindList:
		g = groupParts{parts: x.Items, list: true, order: abreast}
		if in == abreast {
			g.order = serial
		}
		return g, len(x.Items) > 0
	case isElement(x):
		return f.element(x)
	case isMap(x):
		return f.object(x)
	}
	return g, false
}

// element reads an XML element whose tag or attribute states the order of its parts.
func (f *flow) element(x *form.Value) (g groupParts, ok bool) {
	g.order = orderOf(x.Str)
	for i := range x.Fields {
		y := &x.Fields[i]
		switch {
		case isElement(y.Val):
			g.parts = append(g.parts, y.Val)
		case y.Val.Kind != form.KindString || y.Key == form.TextKey:
		case f.tagged(y):
			g.parts = append(g.parts, y.Val)
		case g.order == unordered:
			g.order = modeOf(y.Key, y.Val)
		}
	}
	return g, g.order != unordered && len(g.parts) > 0
}

// tagged reports whether a field is an element with a text rather than an attribute.
func (f *flow) tagged(y *form.Field) bool {
	return y.Val.Kind == form.KindString && y.Key != form.TextKey && y.Off < len(f.src.Text) && f.src.Text[y.Off] == '<'
}

// withGroups reads an element as a sequence if elements in it state the order of their parts.
func (f *flow) withGroups(x *form.Value) (g groupParts, ok bool) {
	g.order = serial
	tags := map[string]bool{} // of the texts that are steps
	for i := range x.Fields {
		if y := x.Fields[i].Val; isElement(y) {
			in, group := f.element(y)
			ok = ok || group && (in.order == abreast || len(in.parts) > 1)
			if group {
				f.tags(y, tags, 0)
			}
		}
	}
	for i := range x.Fields {
		if y := &x.Fields[i]; isElement(y.Val) || f.tagged(y) && tags[y.Key] {
			g.parts = append(g.parts, y.Val)
		}
	}
	return g, ok && len(g.parts) > 1
}

// tags collects the names of the text elements in a group.
func (f *flow) tags(x *form.Value, out map[string]bool, depth int) {
	for i := range x.Fields {
		if y := &x.Fields[i]; f.tagged(y) {
			out[y.Key] = true
		} else if isElement(y.Val) && depth < 3 {
			f.tags(y.Val, out, depth+1)
		}
	}
}

// modeOf returns the order that a field states: "mode": "parallel", "parallel": true.
func modeOf(key string, v *form.Value) order {
	if !v.IsScalar() {
		return unordered
	}
	if o := orderOf(key); o != unordered {
		switch strings.ToLower(v.Text()) {
		case "true", "yes":
			return o
		case "false", "no":
			return serial + abreast - o
		}
		return unordered
	}
	if role, ok := lexicon.Field(key); ok && (role == lexicon.ID || role == lexicon.Title) && !strings.EqualFold(key, "action") {
		return unordered
	}
	return orderOf(v.Text())
}

// branchWords are names of fields that hold the parts of a group.
var branchWords = wordsOf("branches")

// object reads a map in which a field, or the value of one, states the order of the parts in another field.
func (f *flow) object(x *form.Value) (g groupParts, ok bool) {
	named, engine := false, x.Get("taskreferencename") != nil // it has an id or a title
	numbered := false                                         // the id or title is a number
	var child *form.Field
	var branches []*form.Value // of a decision or a fork
	for i := range x.Fields {
		y := &x.Fields[i]
		role, known := lexicon.Field(y.Key)
		if y.Val.IsScalar() {
			named = named || known && (role == lexicon.ID || role == lexicon.Title) || strings.HasSuffix(squash(y.Key), "referencename")
			numbered = numbered || y.Val.Kind == form.KindNumber
			if o := modeOf(y.Key, y.Val); o != unordered {
				g.order = o
			}
			continue
		}
		if known && (role == lexicon.Args || role == lexicon.Output || role == lexicon.Requires || role == lexicon.Owner || role == lexicon.Status) || isOutput(y.Key) {
			continue
		}
		switch o := orderOf(y.Key); {
		case engine && y.Val.Kind == form.KindList && listOfLists(y.Val):
			branches = append(branches, y.Val.Items...)
		case engine && y.Val.Kind == form.KindList && holdsMaps(y.Val):
			branches = append(branches, y.Val)
		case y.Val.Kind == form.KindList && len(y.Val.Items) > 0 && o != unordered && (holdsMaps(y.Val) || !named || numbered && !holdsNumbers(y.Val)):
			g.order, child = o, y
		case y.Val.Kind == form.KindList && listOfLists(y.Val) && !planish(y.Key):
			branches = append(branches, y.Val.Items...)
		case y.Val.Kind == form.KindList && len(y.Val.Items) > 0 && f.holdsSteps(x, y):
			if child == nil || branchWords[strings.ToLower(y.Key)] || planish(y.Key) {
				child = y
			}
			branches = append(branches, y.Val)
		case isMap(y.Val) && mapOfLists(y.Val):
			for k := range y.Val.Fields {
				branches = append(branches, y.Val.Fields[k].Val)
			}
		}
	}
	switch {
	case (named || engine) && (len(branches) > 1 || len(branches) == 1 && child == nil):
		return groupParts{order: abreast, parts: branches, isStep: true, passes: passes(x, branches)}, true
	case child == nil:
		return g, false
	}
	g.parts = child.Val.Items
	return g, g.order != unordered || len(x.Fields) == 1 || !named || holdsMaps(child.Val)
}

// passes reports whether a decision may choose none of its branches: it has cases but no default.
func passes(x *form.Value, branches []*form.Value) bool {
	cases := x.Get("decisioncases", "cases", "conditions", "rules")
	otherwise := x.Get("defaultcase", "default", "else", "otherwise", "onfalse", "false")
	return cases != nil && (otherwise == nil || len(otherwise.Items) == 0) || cases == nil && otherwise == nil && len(branches) == 1 && x.Get("then", "ontrue", "true", "if") != nil
}

func holdsMaps(v *form.Value) bool {
	for _, y := range v.Items {
		if isMap(y) {
			return true
		}
	}
	return false
}

// holdsNumbers reports whether a list contains a number.
func holdsNumbers(v *form.Value) bool {
	return slices.ContainsFunc(v.Items, func(x *form.Value) bool { return x.Kind == form.KindNumber })
}

func listOfLists(v *form.Value) bool {
	for _, y := range v.Items {
		if y.Kind != form.KindList || !holdsMaps(y) {
			return false
		}
	}
	return len(v.Items) > 0
}

func mapOfLists(v *form.Value) bool {
	for i := range v.Fields {
		if y := v.Fields[i].Val; y.Kind != form.KindList || !holdsMaps(y) && len(y.Items) > 0 {
			return false
		}
	}
	return len(v.Fields) > 0
}

// holdsSteps reports whether a field of a group holds its parts, by its name or because the values resemble
// the group.
func (f *flow) holdsSteps(x *form.Value, y *form.Field) bool {
	if branchWords[strings.ToLower(y.Key)] || planish(y.Key) {
		return true
	}
	if !holdsMaps(y.Val) {
		return len(x.Fields) == 1
	}
	part := y.Val.Items[0]
	if !isMap(part) {
		return false
	}
	same := 0
	for i := range part.Fields {
		same += b2i(x.Field(squash(part.Fields[i].Key)) != nil)
	}
	return same*3 >= len(part.Fields)*2 && same > 1
}

// maxFlow bounds the steps of a flow, maxFlowDepth the depth of its groups.
const maxFlow, maxFlowDepth = 20_000, 20

// run adds the parts of a group and returns its first and last steps.
func (f *flow) run(g groupParts, depth int) (first, last []int, ok bool) {
	if depth > maxFlowDepth {
		return nil, nil, false
	}
	f.side = f.side || g.order == abreast && len(g.parts) > 1
	for _, x := range g.parts {
		a, b, ok := f.part(x, g.order, depth+1)
		switch {
		case !ok:
			return nil, nil, false
		case len(a) == 0:
			continue
		case g.order == abreast:
			first, last = append(first, a...), append(last, b...)
			continue
		case first == nil:
			first = a
		}
		for _, p := range f.joined(x, last) {
			if len(f.links) > f.maxLinks {
				break
			}
			for _, q := range a {
				f.links = append(f.links, [2]int{p, q})
			}
		}
		last = b
	}
	return first, last, true
}

// joined returns the steps that a join names, or all steps if it names none.
func (f *flow) joined(x *form.Value, steps []int) []int {
	on := x.Get("joinon")
	if on == nil {
		return steps
	}
	var out []int
	for _, p := range steps {
		id := f.leaves[p].Get("taskreferencename").Text()
		if slices.ContainsFunc(on.Items, func(y *form.Value) bool { return y.Text() == id }) {
			out = append(out, p)
		}
	}
	if out == nil {
		return steps
	}
	return out
}

// part adds a step or a group. A list in a sequence is a parallel group, and a list in a parallel group is a
// sequence.
func (f *flow) part(x *form.Value, in order, depth int) (first, last []int, ok bool) {
	if len(f.leaves) > maxFlow {
		return nil, nil, false
	}
	g, ok := f.group(x, in)
	if !ok {
		if !isMap(x) && (x.Kind == form.KindNumber || x.Text() == "") {
			return nil, nil, x.Kind == form.KindNull
		}
		f.leaves = append(f.leaves, x)
		at := []int{len(f.leaves) - 1}
		return at, at, true
	}
	if !g.list {
		f.named = f.named || g.order != unordered
	}
	if g.order == unordered {
		g.order = serial
	}
	if !g.isStep {
		return f.run(g, depth)
	}
	f.side = true
	f.leaves = append(f.leaves, x)
	self := []int{len(f.leaves) - 1}
	if g.passes {
		last = append(last, self...)
	}
	for _, y := range g.parts {
		if y.Kind != form.KindList || len(y.Items) == 0 {
			if !g.passes {
				last, g.passes = append(last, self...), true
			}
			continue
		}
		a, b, ok := f.run(groupParts{order: serial, parts: y.Items}, depth+1)
		if !ok {
			return nil, nil, false
		}
		for _, q := range a {
			f.links = append(f.links, [2]int{self[0], q})
		}
		last = append(last, b...)
	}
	return self, last, true
}

// flowReading makes a reading of a flow, or returns nil if the flow is no plan.
func (c *collector) flowReading(f *flow) *Reading {
	s := &set{tree: f.tree, form: f.form, labels: f.labels, nested: f.nested}
	ids, title := make([]string, len(f.leaves)), make([]string, len(f.leaves))
	shown := true
	maps := 0
	for i, x := range f.leaves {
		title[i] = x.Text()
		shown = shown && isID(title[i])
		maps += b2i(isMap(x))
	}
	r := &Reading{Form: f.form, root: f.tree.Root, Stated: true, Start: f.tree.Root.Off, End: f.tree.Root.End, Open: f.tree.YAML, Weight: 70, Evidence: []string{"steps and groups side by side in a list"}}
	copy(ids, title)
	switch {
	case maps*2 > len(f.leaves) || maps > 0 && f.xml:
		a := &analysis{c: c, s: s, g: newGrid(s, f.records()), r: r}
		s.recs = a.g.recs
		a.name()
		if a.id == nil && a.title == nil {
			return nil
		}
		a.items()
		for i := range r.Items {
			ids[i] = r.Items[i].ID
		}
	case maps > 0:
		return nil
	default:
		if !shown {
			ids = countedIDs(len(ids))
		}
		for i, x := range f.leaves {
			r.Items = append(r.Items, Item{ID: ids[i], Shown: shown, Title: title[i], Parent: -1, Off: x.Off, End: x.End})
		}
	}
	seen := map[string]bool{}
	marks, words := 0, 0
	for i, id := range ids {
		marks += b2i(len(title[i]) > 0 && len(title[i]) < 4)
		words += b2i(strings.Count(title[i], " ") > 2)
		if seen[id] {
			return nil
		}
		seen[id] = true
	}
	if marks*2 == len(ids) && words == marks {
		return nil // rows of a mark and a text
	}
	for _, l := range f.links {
		r.Links = append(r.Links, Link{From: ids[l[0]], To: ids[l[1]], Source: Stated, Off: f.leaves[l[1]].Off})
	}
	for _, name := range f.labels[max(0, len(f.labels)-2):] {
		if planish(name) || lexicon.Is(lexicon.Then, splitName(name)) || orderOf(name) == serial {
			r.Weight = 88
		}
	}
	if f.named {
		r.Weight = 89
	} else if r.Weight == 88 && maps > 0 && listOfLists(f.val) {
		r.Weight = 92 // for example steps: [[{…}], [{…}, {…}]]
	}
	if (len(ids) < 3 || !f.side) && r.Weight == 70 {
		return nil // a pair of names
	}
	(&analysis{c: c, s: s, r: r}).faults()
	c.flowOf[r] = f
	return r
}

// records returns the steps as records. The text of a step that is only a text becomes the first field of the
// other steps.
func (f *flow) records() []record {
	key := ""
	if f.xml {
		key = form.TextKey
	}
	for _, x := range f.leaves {
		if isMap(x) && len(x.Fields) > 0 && key == "" {
			key = x.Fields[0].Key
		}
	}
	recs := make([]record, len(f.leaves))
	for i, x := range f.leaves {
		recs[i] = record{off: x.Off, end: x.End, val: x}
		if isMap(x) {
			recs[i].key, recs[i].fields = x.Str, unwrapped(x)
		} else {
			recs[i].fields = []form.Field{{Key: key, Off: x.Off, Val: x}}
		}
	}
	return recs
}

// surer ranks flows that state their order above records of the same text without named needs.
func (c *collector) surer(all []*Reading, flows []*Reading) {
	for k, f := range flows {
		if k >= 30 {
			break
		}
		if f.Weight < 89 {
			continue
		}
		ids := make(map[string]bool, len(f.Items))
		for i := range f.Items {
			ids[f.Items[i].ID] = true
		}
		for _, r := range all {
			a := c.by[r]
			if a == nil || a.namedHits > 0 || a.drawn || r.Start != f.Start || r.Weight < 30 {
				continue
			}
			known := 0
			for i := range r.Items {
				known += b2i(ids[r.Items[i].ID])
			}
			if known*2 >= len(r.Items) {
				r.Weight = min(r.Weight, f.Weight-closeReading)
			}
		}
	}
}

func isParallel(name string) bool {
	name = splitName(name)
	if role, ok := lexicon.Field(name); ok && role == lexicon.Parallel || lexicon.Is(lexicon.Meanwhile, name) {
		return true
	}
	return parallelWord(name)
}
