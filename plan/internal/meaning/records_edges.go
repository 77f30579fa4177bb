package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// pair is a link that is written as a value of its own.
type pair struct {
	from, to string
	off      int
}

// pairs is a list of links.
type pairs struct {
	tree   *form.Tree
	owner  *form.Value
	form   string
	labels []string
	list   []pair
	used   bool
}

// sources and targets are what the ends of links are called. The names of ends in the lexicon of fields are used, too.
var sources, targets = wordSet("from, source, src, sourceref, from_node, fromnode, before, tail, predecessor, pred, parent, upstream, first, earlier, start, u, a, von, quelle, de, origen, desde, origem, source_id, source_node, sourcenode, from_step, fromid, from_id, da, origine, sorgente, van, bron, od, z, źródło, från, källa, из, от, откуда, источник, від, 从, 起点, 来源, 源, 前, から, 元, 始点, 에서, 출발, kaynak, nereden, dari, asal, từ, nguồn, من, المصدر, से, स्रोत, départ"),
	wordSet("to, target, tgt, dst, dest, destination, targetref, to_node, tonode, after, head, successor, succ, child, downstream, second, later, end, v, b, nach, ziel, zu, a, à, cible, destino, hasta, hacia, para, target_id, target_node, targetnode, to_step, toid, to_id, destinazione, naar, doel, do, cel, till, mål, в, к, куда, цель, до, 到, 终点, 目标, 后, 後, へ, まで, 先, 終点, 로, 도착, hedef, nereye, ke, tujuan, đến, đích, tới, إلى, الهدف, को, तक, लक्ष्य, vers, arrivée")

func wordSet(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Split(list, ", ") {
		m[w] = true
	}
	return m
}

// endOf says whether a name is that of the end where a link begins (-1), where it ends (1), or of neither.
func endOf(name string) int {
	k := strings.ToLower(strings.Trim(name, " :*"))
	switch {
	case k == "after" || k == "a":
		return 1
	case sources[k]:
		return -1
	case targets[k]:
		return 1
	}
	return 0
}

// readPairs returns the links in a list of which every item is one: [a, b], {"from": a, "to": b}, "a -> b".
func readPairs(v *form.Value) *pairs {
	if len(v.Items) == 0 {
		return nil
	}
	p := &pairs{}
	for _, x := range v.Items {
		e, ok := pairOf(x)
		if !ok {
			return nil
		}
		p.list = append(p.list, e)
	}
	return p
}

// linkHeads are what columns beside the ends of a link hold, of a table that is nothing but links.
var linkHeads = wordSet("type, kind, label, lag, relation, relationship, reason, note, notes, comment, weight, id, #, no, nr, typ, art, grund, tipo, motivo, raison, тип, причина, 类型, 備考, 備註, 备注, 種類, 유형")

// pairsAlone reads a table that is nothing but links: its steps are their ends. Links that do not meet, or that have
// anything else to say, are no plan.
func (c *collector) pairsAlone(p *pairs) *Reading {
	if p.used || p.form != "table" || len(p.list) < 2 || p.tree.Headless {
		return nil
	}
	for _, f := range p.tree.Root.Items[0].Fields {
		if endOf(f.Key) == 0 && !linkHeads[strings.ToLower(f.Key)] {
			return nil
		}
	}
	r := &Reading{Form: "table", Stated: true, Open: true, Start: p.tree.Root.Off, End: p.tree.Root.End, Weight: 86, Evidence: []string{"a table of links"}}
	from, to := map[string]bool{}, map[string]bool{}
	meets := 0
	for _, e := range p.list {
		for _, id := range [2]string{e.from, e.to} {
			if !from[id] && !to[id] {
				r.Items = append(r.Items, Item{ID: id, Shown: true, Title: id, Parent: -1, Off: e.off, End: e.off})
			}
			from[id] = from[id] || id == e.from
			to[id] = to[id] || id == e.to
		}
		r.Links = append(r.Links, Link{From: e.from, To: e.to, Source: Stated, Off: e.off})
	}
	for id := range from {
		meets += b2i(from[id] && to[id])
	}
	if meets == 0 || len(r.Items) > len(p.list)+meets {
		return nil
	}
	return r
}

func pairOf(x *form.Value) (pair, bool) {
	switch {
	case x.Kind == form.KindList && len(x.Items) == 2 && x.Items[0].IsScalar() && x.Items[1].IsScalar():
		return pair{x.Items[0].Text(), x.Items[1].Text(), x.Off}, x.Items[0].Text() != "" && x.Items[1].Text() != ""
	case x.Kind == form.KindString || x.Kind == form.KindBare:
		for _, arrow := range [...]string{"-->", "->", "=>", "→", "⇒", "➔", "➜", " > "} {
			a, b, ok := strings.Cut(x.Str, arrow)
			a, b = strings.TrimSpace(a), strings.TrimSpace(b)
			if ok && a != "" && b != "" && len(a) < 80 && len(b) < 80 && !strings.Contains(b, arrow) {
				return pair{a, b, x.Off}, true
			}
		}
	case isMap(x):
		return elementPair(x)
	}
	return pair{}, false
}

// elementPair reads an object or element that is a link by the names of its ends.
func elementPair(x *form.Value) (pair, bool) {
	var from, to *form.Value
	for i := range x.Fields {
		f := &x.Fields[i]
		if !f.Val.IsScalar() || f.Val.Text() == "" {
			continue
		}
		switch end := endOf(f.Key); {
		case end < 0 && from == nil:
			from = f.Val
		case end > 0 && to == nil:
			to = f.Val
		}
	}
	if from == nil || to == nil {
		return pair{}, false
	}
	// A record that has more than a link's ends, an id and a label is a step.
	rest := 0
	for i := range x.Fields {
		switch f := &x.Fields[i]; {
		case f.Val == from || f.Val == to:
		case !f.Val.IsScalar():
			if f.Val.Kind != form.KindObject {
				rest++
			}
		default:
			if role, ok := lexicon.Field(f.Key); ok && role == lexicon.Requires {
				rest += 2
			}
		}
	}
	return pair{from.Text(), to.Text(), x.Off}, rest < 2
}

// flow is a sequence of steps in which some stand side by side.
type flow struct {
	tree        *form.Tree
	form        string
	labels      []string
	nested      bool
	leaves      []*form.Value
	links       [][2]int
	side        bool // steps stand side by side somewhere
	named       bool // and a name says so
	first, last []int
}

// readFlow reads a list that is a sequence of steps and of groups that stand side by side, or nil. Lists in a list are
// groups (and sequences again inside them), and so are the lists under a name that says so.
func readFlow(v *form.Value) *flow {
	f := &flow{}
	if len(v.Items) < 2 && !(len(v.Items) == 1 && v.Items[0].Kind == form.KindList) {
		return nil
	}
	groups := 0
	for _, x := range v.Items {
		if x.Kind == form.KindList {
			groups++
			for _, y := range x.Items {
				if y.Kind == form.KindNumber || y.Kind == form.KindNull {
					return nil
				}
			}
		} else if _, ok := sideBySide(x); ok {
			groups++
		}
	}
	if groups == 0 {
		return nil
	}
	var ok bool
	f.first, f.last, ok = f.sequence(v, 0)
	if !ok || !f.side || len(f.leaves) < 2 {
		return nil
	}
	return f
}

// sideBySide returns the list of steps that an object such as {"parallel": [...]} holds.
func sideBySide(x *form.Value) (*form.Value, bool) {
	if !isMap(x) || len(x.Fields) == 0 || len(x.Fields) > 2 {
		return nil, false
	}
	for i := range x.Fields {
		if f := &x.Fields[i]; f.Val.Kind == form.KindList && len(f.Val.Items) > 0 && isBeside(f.Key) {
			return f.Val, true
		}
	}
	return nil, false
}

func isBeside(name string) bool {
	name = splitName(name)
	if role, ok := lexicon.Field(name); ok && role == lexicon.Parallel || lexicon.Is(lexicon.Meanwhile, name) {
		return true
	}
	for _, w := range [...]string{"parallel", "concurren", "simultan", "together", "fork", "gleichzeitig", "paral", "параллел", "паралел", "并行", "並行", "同时", "並列", "병렬", "동시", "equidisanti", "równoleg", "samtidig", "serentak", "bersamaan", "song song", "متواز", "समानांतर", "eşzamanlı", "tegelijk"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

func (f *flow) sequence(v *form.Value, depth int) (first, last []int, ok bool) {
	for _, x := range v.Items {
		a, b, ok := f.part(x, true, depth+1)
		if !ok {
			return nil, nil, false
		}
		if len(a) == 0 {
			continue
		}
		if first == nil {
			first = a
		}
		if len(last)*len(a) > 10_000 {
			return nil, nil, false
		}
		for _, p := range last {
			for _, q := range a {
				f.links = append(f.links, [2]int{p, q})
			}
		}
		last = b
	}
	return first, last, true
}

func (f *flow) parallel(v *form.Value, depth int) (first, last []int, ok bool) {
	f.side = f.side || len(v.Items) > 1
	for _, x := range v.Items {
		a, b, ok := f.part(x, false, depth+1)
		if !ok {
			return nil, nil, false
		}
		first, last = append(first, a...), append(last, b...)
	}
	return first, last, true
}

// part adds a step or a group. Inside a sequence a list is a group side by side, and the other way round.
func (f *flow) part(x *form.Value, inSequence bool, depth int) (first, last []int, ok bool) {
	if depth > 20 || len(f.leaves) > 20_000 {
		return nil, nil, false
	}
	if list, ok := sideBySide(x); ok {
		f.named = true
		return f.parallel(list, depth)
	}
	if x.Kind == form.KindList {
		if inSequence {
			return f.parallel(x, depth)
		}
		return f.sequence(x, depth)
	}
	if isMap(x) && len(x.Fields) == 1 && x.Fields[0].Val.Kind == form.KindList && len(x.Fields[0].Val.Items) > 0 {
		return f.sequence(x.Fields[0].Val, depth)
	}
	if !isMap(x) && (x.Kind == form.KindNumber || x.Text() == "") {
		return nil, nil, false
	}
	f.leaves = append(f.leaves, x)
	at := []int{len(f.leaves) - 1}
	return at, at, true
}

// readFlow makes a reading of a sequence with groups side by side.
func (c *collector) readFlow(f *flow) *Reading {
	s := &set{tree: f.tree, form: f.form, labels: f.labels, nested: f.nested}
	ids, title := make([]string, len(f.leaves)), make([]string, len(f.leaves))
	shown := true
	var recs []record
	for i, x := range f.leaves {
		title[i] = x.Text()
		shown = shown && isID(title[i])
		if isMap(x) {
			recs = append(recs, record{off: x.Off, end: x.End, val: x, fields: unwrapped(x)})
		}
	}
	r := &Reading{Form: f.form, Stated: true, Start: f.tree.Root.Off, End: f.tree.Root.End, Open: f.tree.YAML, Weight: 70, Evidence: []string{"steps and groups side by side in a list"}}
	copy(ids, title)
	if len(recs) == len(f.leaves) {
		a := &analysis{c: c, s: s, g: newGrid(s, recs), r: r}
		a.name()
		if a.id == nil && a.title == nil {
			return nil
		}
		a.items()
		for i := range r.Items {
			ids[i] = r.Items[i].ID
		}
	} else {
		if len(recs) > 0 {
			return nil
		}
		if !shown {
			ids = places(len(ids))
		}
		for i, x := range f.leaves {
			r.Items = append(r.Items, Item{ID: ids[i], Shown: shown, Title: title[i], Parent: -1, Off: x.Off, End: x.End})
		}
	}
	seen := map[string]bool{}
	marks, texts := 0, 0
	for i, id := range ids {
		marks += b2i(len(title[i]) > 0 && len(title[i]) < 4)
		texts += b2i(strings.Count(title[i], " ") > 2)
		if seen[id] {
			return nil
		}
		seen[id] = true
	}
	if marks*2 == len(ids) && texts == marks {
		return nil // rows of a mark and a text
	}
	for _, l := range f.links {
		r.Links = append(r.Links, Link{From: ids[l[0]], To: ids[l[1]], Source: Stated, Off: f.leaves[l[1]].Off})
	}
	for _, name := range f.labels[max(0, len(f.labels)-2):] {
		if planish(name) || lexicon.Is(lexicon.Then, splitName(name)) || strings.Contains(splitName(name), "sequence") {
			r.Weight = 88
		}
	}
	if f.named {
		r.Weight = 89
	}
	if len(ids) < 3 && r.Weight == 70 {
		return nil // a pair of names
	}
	(&analysis{c: c, s: s, r: r}).faults()
	return r
}

// arcWords are the last words of the names of lists of links.
var arcWords = wordSet("links, edges, arcs, dependencies, connections, relations, kanten, abhängigkeiten, aristas, arêtes, dépendances, dependencias, связи, зависимости, 依赖, 边, 依存関係")

// noLinks reports whether the object around the records has a list of links that is empty.
func (a *analysis) noLinks() bool {
	if a.s.owner == nil {
		return false
	}
	for _, f := range a.s.owner.Fields {
		words := strings.Fields(splitName(f.Key))
		if len(words) > 0 && arcWords[words[len(words)-1]] && f.Val != nil && f.Val.Kind == form.KindList && len(f.Val.Items) == 0 {
			return true
		}
	}
	return false
}
