package meaning

import (
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// found holds the references in a column.
type found struct {
	col                       *column
	list                      []saidOf
	recs                      []int
	hits, self, lost, earlier int
	rest                      bool
	lists, empty              int // cells with lists, cells that mean "none"
}

// find returns the references in a column.
func (a *analysis) find(col *column) *found {
	f := &found{col: col}
	role := lexicon.Requires
	if !col.is(role) {
		role = lexicon.Next
	}
	for _, x := range col.cells {
		m, rest := a.n.mentions(x.val)
		if (rest || inWords(m)) && x.val.IsScalar() && col.is(role) {
			if said, ok := a.inSentence(x, role); ok {
				m, rest = said, false
			}
		}
		f.rest = f.rest || rest
		if x.val.Kind == form.KindList || isMap(x.val) {
			f.lists++
		}
		if len(m) == 0 {
			f.empty++
		}
		for _, y := range m {
			switch {
			case y.at < 0:
				f.lost++
			case y.at == x.rec:
				f.self++
			default:
				f.hits++
				if y.at < x.rec {
					f.earlier++
				}
			}
			f.list = append(f.list, y)
			f.recs = append(f.recs, x.rec)
		}
	}
	return f
}

// inWords reports whether a reference to no item is written in words rather than as an id.
func inWords(all []saidOf) bool {
	return slices.ContainsFunc(all, func(m saidOf) bool { return m.at < 0 && (!isID(m.text) || !isASCII(m.text)) })
}

// nameAll prepares the names of the records for sentences.
func (a *analysis) nameAll() {
	if a.names != nil {
		return
	}
	named := make([]Named, len(a.n.ids))
	for i, id := range a.n.ids {
		named[i] = Named{ID: id, Parent: -1}
	}
	if a.title != nil {
		for _, t := range a.title.cells {
			named[t.rec].Titles = []string{t.val.Text()}
		}
	}
	a.names = NewNames(named)
}

// inSentence reads a cell that states the needs or the successors of a record in words. ok is false if the
// sentence was not understood.
func (a *analysis) inSentence(x cell, role lexicon.Role) (all []saidOf, ok bool) {
	a.nameAll()
	text := strings.ReplaceAll(x.val.Text(), "\n", "; ")
	if len(text) > maxSentence {
		return nil, false
	}
	lead := fieldLeads[role]
	rels, doubts := a.names.Relations(x.rec, lead+text, 0)
	for _, r := range rels {
		switch {
		case r.Kind == None || r.Kind == Apart:
			ok = true
		case r.Guessed || len(r.Subjects) != 1 || r.Subjects[0] != x.rec || (r.Kind == Before) != (role == lexicon.Next) || r.Kind == Beside || r.Kind == Ditto:
			return nil, false
		}
		if r.Kind <= Before {
			for _, i := range r.Items {
				all = append(all, saidOf{i, a.n.ids[i], x.val.Off})
			}
			for _, u := range r.Unknown {
				all = append(all, saidOf{-1, u, x.val.Off})
			}
		}
	}
	return all, len(doubts) == 0 && (ok || len(all) > 0)
}

// maxSentence bounds the text of a cell that is read as a sentence, in bytes.
const maxSentence = 400

// needs decides which fields are dependencies and which way they run, and adds their links.
func (a *analysis) needs() {
	drawn := a.hits
	var known, unknown []*found
	if a.id == nil && a.fromZero() {
		a.n.exact, a.n.folded = make(map[string]int, len(a.n.ids)), map[string]int{}
		for i := range a.n.ids {
			a.n.exact[strconv.Itoa(i)] = i
		}
	}
	for _, col := range a.g.cols {
		if a.id != nil && col == a.id.col || col.is(lexicon.Parallel) || col.is(lexicon.Within) || a.holdsParts(col) {
			continue
		}
		if col.is(lexicon.Requires) || col.is(lexicon.Next) {
			if f := a.find(col); a.isNeeds(f) && (!col.hinted || f.hits > 0) {
				known = append(known, f)
			} else if !col.hinted {
				a.unread = append(a.unread, f)
			} else {
				col.roles = rolesOf(col.name)
			}
			continue
		}
		// "to be finished first" contains a word of time.
		times := col.is(lexicon.Duration) && (col.whole || a.n.numeric)
		if col.is(lexicon.Owner) || times || col.is(lexicon.Status) || col.is(lexicon.Tool) || col.is(lexicon.Output) || isOutput(col.name) || otherRole(col.name) || col == a.title {
			continue
		}
		if a.drawn || !a.refersOnly(col) {
			continue
		}
		if f := a.find(col); a.mayBeNeeds(f) {
			unknown = append(unknown, f)
		}
	}
	for _, f := range known {
		next := f.col.is(lexicon.Next) && !f.col.is(lexicon.Requires)
		if next && f.hits > 1 && f.earlier == f.hits {
			// "Before" may be the heading of predecessors, too. Unless the whole name means successors, the
			// order of the records decides.
			next = f.col.whole && !beforeNames[lexicon.Fold(splitName(f.col.name))]
			a.unsure(f, next)
		}
		a.take(f, next)
		a.forward = a.forward || next && f.hits > 0
	}
	known1 := a.hits
	a.namedHits = known1 - drawn
	a.parallelNeeds()
	a.nested()
	for _, f := range unknown {
		if known1 > 0 && (f.lists == 0 && !a.forward || f.lost > 0) {
			continue
		}
		next := a.forward || known1 == 0 && f.earlier*2 < f.hits
		// Arguments come from steps before, so that the direction is certain.
		if !f.col.is(lexicon.Args) && !flowNames[lexicon.Fold(splitName(f.col.name))] {
			a.unsaid(f, next)
		}
		a.take(f, next)
	}
}

// beforeNames may mean the steps before a step, or the steps that it is before.
var beforeNames = wordsOf("before")

// unsure notes that a field does not state the direction of its references.
func (a *analysis) unsure(f *found, next bool) {
	for i, m := range f.list {
		from, to := m.at, f.recs[i]
		if next {
			from, to = to, from
		}
		if m.at >= 0 && from != to {
			a.doubt(f.col.name, from, to, m.off)
		}
	}
}

// flowNames are names of fields whose ids state predecessors or successors, although such fields may hold
// other data.
var flowNames = wordsOf("flows")

// unsaid notes that a field counts as a dependency only because its values are ids of other records. It may
// run the other way, or state no order.
func (a *analysis) unsaid(f *found, next bool) {
	name := "“" + f.col.name + "” is no known name of a dependency"
	if f.col.name == "" {
		name = "nothing says what the ids behind the names are"
	}
	for i, m := range f.list {
		from, to := m.at, f.recs[i]
		if next {
			from, to = to, from
		}
		if m.at < 0 || from == to || len(a.r.Notes) >= maxUnread {
			continue
		}
		x, y := a.n.ids[from], a.n.ids[to]
		a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS_PLAN", Element: x + " -> " + y, Off: m.off, Message: name + "; " + x + " was taken to come before " + y + ", but the order may be the other way round, or there may be none", Hint: "call the field depends_on or next"})
	}
}

// doubt notes that the name of a field does not tell which of two records comes first.
func (a *analysis) doubt(name string, from, to, off int) {
	if len(a.r.Notes) < maxUnread {
		x, y := a.n.ids[from], a.n.ids[to]
		a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS", Element: x + " -> " + y, Off: off, Message: "“" + name + "” does not say whether it names predecessors or successors; " + x + " was taken to come before " + y, Hint: "call the field depends_on or next, and the ends of links from and to"})
	}
}

// fromZero reports whether dependencies are indexes of records from 0: one of them is 0, and all are smaller
// than the index of their record.
func (a *analysis) fromZero() bool {
	zero, ahead := false, true
	for _, col := range a.g.cols {
		if !col.is(lexicon.Requires) {
			continue
		}
		for _, x := range col.cells {
			for _, v := range append(x.val.Items[:len(x.val.Items):len(x.val.Items)], x.val) {
				if k, err := strconv.Atoi(v.Text()); err == nil {
					zero = zero || k == 0
					ahead = ahead && k < x.rec
				}
			}
		}
	}
	return zero && ahead
}

// parallelNeeds gives records that run in parallel to others, and state no needs, the needs of the others.
func (a *analysis) parallelNeeds() {
	var at [][2]int // a record, and one that it runs in parallel to
	for _, col := range a.g.cols {
		if !col.is(lexicon.Parallel) {
			continue
		}
		f := a.find(col)
		for i, m := range f.list {
			if m.at >= 0 && m.at != f.recs[i] {
				at = append(at, [2]int{f.recs[i], m.at})
			}
		}
	}
	if len(at) == 0 || len(a.r.Links) == 0 {
		return
	}
	needs := make(map[string][]Link, len(a.r.Links))
	for _, l := range a.r.Links {
		needs[l.To] = append(needs[l.To], l)
	}
	for _, p := range at {
		to := a.n.ids[p[0]]
		if len(needs[to]) > 0 {
			continue
		}
		for _, l := range needs[a.n.ids[p[1]]] {
			if l.From != to {
				a.link(l.From, to, Stated, l.Off)
			}
		}
	}
}

// noteUnread notes the values of fields that are named as dependencies but were not understood.
func (a *analysis) noteUnread() {
	for _, f := range a.unread {
		for i, m := range f.list {
			if len(a.r.Notes) >= maxUnread {
				return
			}
			id := a.n.ids[f.recs[i]]
			a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS", Element: id, Off: m.off, Message: "“" + f.col.name + "” of " + id + " names no other step: " + form.Clip(m.text), Hint: "name steps by their ids"})
		}
	}
}

// maxUnread bounds the notes about such fields, and about unclear directions.
const maxUnread = 100

// refersOnly reports whether the values of a field have the form of references: texts, lists of texts, or
// maps of ids.
func (a *analysis) refersOnly(col *column) bool {
	if a.xml() {
		return true
	}
	for _, x := range col.cells {
		switch v := x.val; {
		case isMap(v):
			if a.pointsOnly(v, 0) {
				continue
			}
			for i := range v.Fields {
				if _, ok := a.n.exact[v.Fields[i].Key]; !ok {
					return false
				}
			}
		case v.Kind == form.KindList:
			for _, y := range v.Items {
				if !y.IsScalar() {
					return false
				}
			}
		}
	}
	return true
}

// pointsOnly reports whether all texts in a map are ids of records: {"APPROVE": {"target": "done"}}.
func (a *analysis) pointsOnly(v *form.Value, depth int) bool {
	for i := range v.Fields {
		switch x := v.Fields[i].Val; {
		case isMap(x):
			if depth > 3 || !a.pointsOnly(x, depth+1) {
				return false
			}
		case x.IsScalar():
			if at, ok := a.n.exact[x.Text()]; !ok || at < 0 || digits(x.Text()) {
				return false
			}
		default:
			return false
		}
	}
	return len(v.Fields) > 0
}

// isNeeds reports whether the values of a field confirm that it is a dependency, as its name says.
func (a *analysis) isNeeds(f *found) bool {
	if f.hits == 0 && yesOrNo(f.col) {
		return false
	}
	if f.hits+f.self > 0 {
		return f.lost <= 2*(f.hits+f.self) || f.lists > 0
	}
	if f.lost == 0 {
		return !f.rest
	}
	// No reference is known: either the ids belong to another text, or the values are no ids.
	for _, m := range f.list {
		if !isID(m.text) || !a.alike(m.text) {
			return false
		}
	}
	return f.lists > 0 || a.id != nil && strings.ContainsAny(a.n.ids[0], "0123456789")
}

// askingNames are names of fields that tell whether something is needed; answers are their values.
var (
	askingNames = wordsOf("asking")
	answers     = wordsOf("answers")
)

// yesOrNo reports whether a field tells whether something is needed rather than what.
func yesOrNo(col *column) bool {
	if !askingNames[lexicon.Fold(splitName(col.name))] {
		return false
	}
	said := 0
	for _, x := range col.cells {
		s := lexicon.Fold(strings.TrimSpace(x.val.Text()))
		if s == "" {
			continue
		}
		if !answers[s] {
			return false
		}
		said++
	}
	return said > 0
}

// alike reports whether a text looks like the ids: with digits if these have digits, and only of digits if
// these are numbers.
func (a *analysis) alike(s string) bool {
	id := a.n.ids[0]
	return strings.ContainsAny(s, "0123456789") == strings.ContainsAny(id, "0123456789") && digits(s) == digits(id)
}

// mayBeNeeds reports whether a field whose name is unknown is a dependency: it holds only ids of other
// records.
func (a *analysis) mayBeNeeds(f *found) bool {
	if f.hits == 0 || f.rest || f.lost*3 > f.hits || f.self > 0 && f.self*3 > f.hits {
		return false
	}
	if f.col.is(lexicon.Args) && a.n.numeric && (f.lost > 0 || f.earlier != f.hits || f.empty == 0) {
		return false // numbers in arguments may mean anything
	}
	if f.lists == 0 {
		if f.lost > 0 || f.col.is(lexicon.Title) {
			return false
		}
		for _, m := range f.list {
			if digits(m.text) && a.s.form != "table" && f.col.name != "" && !a.xml() {
				return false
			}
			if digits(m.text) && (f.empty == 0 || f.earlier != f.hits) && f.col.name != "" {
				return false
			}
		}
	}
	return true
}

func (a *analysis) xml() bool {
	return a.s.recs[0].val != nil && a.s.recs[0].val.Str != "" && a.s.recs[0].val.Kind == form.KindObject
}

// take adds the links of a field's references.
func (a *analysis) take(f *found, next bool) {
	a.deps[f.col] = true
	a.stated = true
	for _, x := range f.col.cells {
		a.has[x.rec] = true
	}
	a.hits += f.hits + f.self
	a.lost += f.lost
	var more []Link // repetitions inside one field stay, repetitions between fields do not
	for i, m := range f.list {
		to, from := a.n.ids[f.recs[i]], strings.Trim(m.text, "\"'` ")
		if m.at >= 0 {
			from = a.n.ids[m.at]
		} else if f.hits > 0 && isFile(from) && !isFile(a.n.ids[0]) {
			// Files that no step makes exist from the start.
			a.lost--
			a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS", Element: to, Off: m.off, Message: to + " needs " + form.Clip(from) + ", which no step makes; it was assumed to exist"})
			continue
		}
		if next {
			from, to = to, from
		}
		if len(a.r.Links)+len(more) > a.c.src.MaxLinks {
			break
		}
		if !a.seen[[2]string{from, to}] {
			more = append(more, Link{From: from, To: to, Source: Stated, Off: m.off})
		}
	}
	for _, l := range more {
		a.seen[[2]string{l.From, l.To}] = true
	}
	a.r.Links = append(a.r.Links, more...)
}

// isFile reports whether a name looks like a file: it has a folder or an extension.
func isFile(s string) bool {
	i := strings.LastIndexByte(s, '.')
	return !strings.ContainsAny(s, " \t") && (strings.Contains(s, "/") || i > 0 && len(s)-i > 1 && len(s)-i <= 6 && !digits(s[i+1:]))
}

// nested finds successors deep inside a record, such as the Next of choices, catches and conditions. If no
// other links exist, it finds needs there, too: "plan": [{"get": "repo", "passed": ["unit"]}].
func (a *analysis) nested() {
	on, deep := a.forward || a.anyNext(), a.hits == 0 && !a.n.numeric
	if !on && !deep {
		return
	}
	for i := range a.g.recs {
		link := func(v *form.Value, way int) {
			if at, ok := a.n.exact[v.Text()]; ok && at != i {
				from, to := a.n.ids[i], a.n.ids[at]
				if way < 0 {
					from, to = to, from
				}
				a.link(from, to, Stated, v.Off)
				a.hits++
				a.stated, a.forward, a.has[i] = true, a.forward || way >= 0, true
			}
		}
		var walk func(v *form.Value, depth, way int)
		walk = func(v *form.Value, depth, way int) {
			if v == nil || depth > 8 {
				return
			}
			if depth > 1 && way == 0 {
				way = relation(v)
			}
			for _, x := range v.Items {
				if way < 0 && x.IsScalar() {
					link(x, way)
				}
				walk(x, depth+1, way)
			}
			for k := range v.Fields {
				f := &v.Fields[k]
				if a.inner[f.Val] || len(f.Val.Items) > 0 && a.inner[f.Val.Items[0]] {
					continue
				}
				to := way
				switch {
				case on && isNext(f.Key):
					to = 1
				case deep && depth > 0 && isNeedsName(f.Key):
					to = -1
				}
				if !f.Val.IsScalar() {
					if depth > 0 || !a.isDep(f.Key) {
						walk(f.Val, depth+1, to)
					}
					continue
				}
				if depth == 0 && (a.isDep(f.Key) || to == 0 && a.forward) || otherRole(f.Key) && to == 0 {
					continue
				}
				if to != 0 || a.forward && !digits(f.Val.Text()) {
					link(f.Val, to)
				}
			}
		}
		walk(&form.Value{Kind: form.KindObject, Fields: a.g.recs[i].fields}, 0, 0)
	}
}

// relation returns the direction that a field of an object states in words, or 0: {"type": "is blocked by",
// "issue": "a"}.
func relation(v *form.Value) int {
	for i := range v.Fields {
		switch role, _ := lexicon.Field(v.Fields[i].Val.Text()); role {
		case lexicon.Requires:
			return -1
		case lexicon.Next:
			return 1
		}
	}
	return 0
}

func isNext(key string) bool {
	for _, r := range rolesOf(key) {
		if r == lexicon.Next {
			return true
		}
	}
	k := squash(key)
	return k == "default" || k == "transition" || k == "goto" || k == "nextstate" || k == "otherwise" || k == "else" || k == "catch"
}

// anyNext reports whether any field of the records holds successors.
func (a *analysis) anyNext() bool {
	for _, col := range a.g.cols {
		if isNext(col.name) && !a.holdsParts(col) {
			return true
		}
	}
	return false
}

func (a *analysis) isDep(key string) bool {
	for col := range a.deps {
		if strings.EqualFold(col.name, strings.TrimSpace(key)) {
			return true
		}
	}
	return false
}
