package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// weigh sets the weight of the reading: how likely the records are a plan.
func (a *analysis) weigh() {
	a.r.Stated = a.stated
	steps, named := a.calledSteps()
	a.evidence(steps, named, a.announced())
	a.limit(steps, steps || a.announced())
}

// calledSteps reports whether a name above the records, or of one of their first fields, means steps, and
// whether a name above them means a plan.
func (a *analysis) calledSteps() (steps, named bool) {
	for _, name := range a.s.labels[max(0, len(a.s.labels)-2):] {
		steps = steps || planish(name)
		named = named || lexicon.Is(lexicon.Plan, splitName(name))
	}
	if a.xml() {
		for _, rec := range a.g.recs[:min(len(a.g.recs), 5)] {
			steps = steps || planish(rec.key)
		}
	}
	for _, col := range a.g.cols[:min(len(a.g.cols), 3)] {
		name := splitName(col.name)
		steps = steps || lexicon.Is(lexicon.Steps, name) && (!weakHeads[lexicon.Fold(name)] || a.acting())
	}
	return steps, named
}

// evidence weighs the relations between the records, or else their names.
func (a *analysis) evidence(steps, named, announced bool) {
	r, n := a.r, len(a.g.recs)
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
			r.Weight = 28 // some records of data refer to others
		}
		r.Evidence = append(r.Evidence, "values that are ids of other records")
	case a.used > 0:
		r.Weight = 88 + min(3, n/4)
		r.Evidence = append(r.Evidence, "uses of results of other records")
	case a.said > 0:
		switch {
		case steps || named || announced:
			r.Weight = 86
		case !calls && !(a.s.form == "table" && a.said*2 > n && a.labeled()):
			r.Weight = 28 // sentences in data may name other keys; nothing says that the records are steps
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
	case (named || calls) && (a.title != nil && !a.figures() || calls):
		r.Weight = 62
	case (announced || steps) && a.title != nil && (a.inWords() || steps && a.s.form == "table") && !a.figures():
		r.Weight = 54
	default:
		r.Weight = 10
		r.Not = "records that nothing identifies as steps"
	}
}

// limit lowers the weight of records that look like data.
func (a *analysis) limit(steps, called bool) {
	r, n := a.r, len(a.g.recs)
	if a.s.texts && a.hits == 0 {
		r.Weight = min(r.Weight, 10)
	}
	if slices.ContainsFunc(a.g.cols, func(col *column) bool { return col.name == "version" }) && (a.title == nil || a.title.name == "version" || a.title.name == "name") {
		r.Weight = 20 // the packages of a lock file
	}
	if a.id == nil && !a.calls() && (a.title == nil || digits(a.title.cells[0].val.Text())) {
		r.Weight = min(r.Weight, 25) // links without a description of any step
	}
	if a.s.wrapped && (a.namedHits == 0 || a.id == nil || !a.id.clear) {
		r.Weight = min(r.Weight, 20)
	}
	if a.hits > 0 && !called && mutual(r.Links) {
		r.Weight, r.Not = 20, "records that refer to each other"
	}
	if a.s.keyed && isMap(a.s.val) && !steps && !alikeMaps(a.s.val) && len(a.g.cols) > 1 {
		r.Weight = min(r.Weight, 25) // the parts of one thing, some of which refer to others
	}
	if n == 1 && a.hits == 0 && a.used == 0 && !(a.stated && a.id != nil && a.title != nil && a.g.statesNeeds()) || a.s.tree.Headless && a.hits == 0 {
		r.Weight = min(r.Weight, 20)
	}
	if a.s.nested && r.Weight >= 60 {
		r.Weight++
	}
	if a.s.tree.YAML && !a.fenced() && (len(a.s.tree.Faults) > 0 && a.hits < 2 || a.hits == 0 && a.isList()) {
		r.Weight = min(r.Weight, 31)
	}
}

// mutual reports whether each link has a counterpart in the other direction. Such references are no order.
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

// fenced reports whether the value is in a code fence.
func (a *analysis) fenced() bool { return a.c.src.Lines[a.c.src.LineAt(a.s.tree.Root.Off)].InCode }

// inWords reports whether most titles have several words.
func (a *analysis) inWords() bool {
	n := 0
	for _, x := range a.title.cells {
		if s := strings.TrimSpace(x.val.Text()); strings.ContainsAny(s, " \u3000") || !isASCII(s) && len(s) >= 12 {
			n++
		}
	}
	return n*2 > len(a.title.cells)
}

// figures reports whether the records hold numbers like data: two fields of numbers, or one of prices.
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
		fields += b2i(n*3 >= len(col.cells)*2) + b2i(n*3 > len(col.cells)*4)
	}
	return fields >= 2
}

// weakHeads are headings of columns of steps and of many other things.
var weakHeads = wordsOf("weak heads")

// acting reports whether at least half of the titles demand something.
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

// labeled reports whether all records have labels of letters and digits. Such labels are unambiguous.
func (a *analysis) labeled() bool {
	for _, id := range a.n.ids {
		if digits(id) || !strings.ContainsAny(id, "0123456789") {
			return false
		}
	}
	return true
}

// hinted reports whether the name of a dependency means one, at least in part.
func (a *analysis) hinted() bool {
	for col := range a.deps {
		if col.is(lexicon.Requires) || col.is(lexicon.Next) {
			return true
		}
	}
	return false
}

// onlyHinted reports whether no dependency has a whole name that means one.
func (a *analysis) onlyHinted() bool {
	for col := range a.deps {
		if col.whole {
			return false
		}
	}
	return true
}

// strangers reports whether all elements of some tag have no links.
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

// announced reports whether the three lines above the value announce a plan.
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
