package meaning

import (
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// maxRange bounds the items of a reference such as "steps 2-90".
const maxRange = 2000

// grouper combines atoms that refer to steps: "steps 2, 3 and 5" becomes one group.
type grouper struct {
	n    *Names
	self int
	text string
	in   []atom
	out  []atom
	// before are the items of the last group; "both" refers to them.
	before []int
}

// groups returns the atoms with references combined into groups. The result is valid until the next call.
func (n *Names) groups(self int, text string, in []atom) []atom {
	g := grouper{n: n, self: self, text: text, in: in, out: n.put[:0]}
	for i := 0; i < len(in); {
		a, next, ok := g.list(i)
		if !ok {
			g.out = append(g.out, in[i])
			i++
			continue
		}
		if len(a.items) > 1 {
			g.before = a.items
		}
		g.out = append(g.out, a)
		i = next
	}
	n.put = g.out
	return g.out
}

func (g *grouper) at(i int) *atom {
	if i < 0 || i >= len(g.in) {
		return &atom{class: stop}
	}
	return &g.in[i]
}

// list reads references that are joined by "and", commas and the like, or a range of references.
func (g *grouper) list(i int) (atom, int, bool) {
	a, next, ok := g.unit(i)
	if !ok {
		return a, i, false
	}
	joined := false
	for {
		sep, j, isRange := g.separator(next)
		if !sep {
			break
		}
		b, after, ok := g.unit(j)
		if !ok || b.positional && !a.positional && !g.at(j).is(lexicon.Previous) {
			break
		}
		if !b.sure && !b.positional && (g.at(after).isUnit() || !a.sure && g.isAmount(after)) || g.at(next).class == slash && !g.paired(next, &a, &b) {
			break
		}
		if isRange && (a.positional || b.positional || !g.span(&a, &b)) {
			break
		}
		if g.at(next).class == comma && g.begins(after) {
			break
		}
		if !joined {
			a.items, a.unknown, joined = slices.Clone(a.items), slices.Clone(a.unknown), true
		}
		a = join(a, b)
		next = after
	}
	a.class = group
	return a, next, true
}

// begins reports whether the text behind a reference is about this reference alone, not about those before
// the comma: "after 1, 2 does not matter", "1, 2, and 3 at the end".
func (g *grouper) begins(i int) bool {
	c := g.at(i)
	if c.class != phrase {
		return false
	}
	return c.is(lexicon.Apart) && c.tok.Side == lexicon.Behind || g.self < 0 && c.kinds&lexicon.KindsOf(lexicon.None, lexicon.Last) != 0
}

// join combines two references. It may append to the lists of the first one.
func join(a, b atom) atom {
	a.items = append(a.items, b.items...)
	a.unknown = append(a.unknown, b.unknown...)
	a.sure = a.sure || b.sure
	a.ordinal = a.ordinal || b.ordinal
	a.end = b.end
	a.count += b.count
	a.bare = a.bare && b.bare
	a.spelled = a.spelled || b.spelled
	a.value = b.value
	return a
}

func without(list, drop []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool { return slices.Contains(drop, i) })
}

// span fills b with the items behind a up to b. It returns false if there is no such range.
func (g *grouper) span(a, b *atom) bool {
	if len(a.items) == 0 || len(b.items) == 0 {
		return false
	}
	from, to := a.items[len(a.items)-1], b.items[len(b.items)-1]
	if to <= from || to-from > maxRange {
		return false
	}
	b.items = nil
	for i := from + 1; i <= to; i++ {
		if !g.n.items[i].Group || i == to {
			b.items = append(b.items, i)
			b.count++
		}
	}
	return true
}

// separator reports whether references continue behind atom i, and at which atom.
func (g *grouper) separator(i int) (ok bool, next int, isRange bool) {
	j := i
	if g.at(j).class == point {
		j++
	}
	seps := 0
	for ; seps < 3; j++ {
		a := g.at(j)
		switch {
		case a.class == dash, a.class == phrase && a.is(lexicon.To):
			if seps > 0 {
				return false, i, false
			}
			isRange = true
		case a.class == phrase && g.self < 0 && a.is(lexicon.Then):
			return false, i, false // "1, then 3"
		case a.class == comma, a.class == slash, a.class == phrase && (a.is(lexicon.And) || a.is(lexicon.Or)):
		default:
			if seps == 0 {
				return false, i, false
			}
			// For example "from 4 and from 5", "auf 2 und auf 3", "both 2 and also 3".
			for n := 0; n < 2 && g.filler(j); n++ {
				j++
			}
			return true, j, isRange
		}
		seps++
	}
	return true, j, isRange
}

// filler reports whether an atom may stand between a separator and a reference.
func (g *grouper) filler(i int) bool {
	a := g.at(i)
	if a.class == word {
		return a.common
	}
	if a.class != phrase || a.kinds&lexicon.Relations != 0 {
		return false
	}
	return a.is(lexicon.Sources) || a.is(lexicon.Same) || a.is(lexicon.Both) && g.refers(i+1)
}

// refers reports whether atom i begins a number or label.
func (g *grouper) refers(i int) bool {
	a := g.at(i)
	return a.class == number || a.class == label || a.is(lexicon.Steps) && a.class == phrase &&
		(g.at(i+1).class == number || g.at(i+1).class == label)
}

// paired reports whether both sides of a slash are items. Otherwise it is part of a date or fraction, or
// separates columns.
func (g *grouper) paired(i int, a, b *atom) bool {
	return g.text[g.at(i).off] != '/' || len(a.unknown) == 0 && len(b.unknown) == 0 && g.text[g.at(i+1).off] != '0'
}

// isAmount reports whether atom i turns a bare number before it into an amount.
func (g *grouper) isAmount(i int) bool { return g.at(i).isAmount(g.text) }

func (g *grouper) skipPoint(i int) int {
	if g.at(i).class == point {
		return i + 1
	}
	return i
}

// unit reads one reference.
func (g *grouper) unit(i int) (atom, int, bool) {
	a := *g.at(i)
	switch {
	case a.class == number && a.spelled && !a.ordinal && a.value > 1 && g.self >= 0 && g.at(i+1).is(lexicon.Earlier):
		b, next, ok := g.byPosition(i, g.recent(a.value)) // for example "all three preceding tasks"
		return b, next + 1 + b2i(g.at(i+2).is(lexicon.Steps)), ok
	case a.class == number || a.class == label:
		return g.numbered(i)
	case a.class != phrase && a.kinds&totals == 0:
		return a, i, false
	case a.is(lexicon.First) && a.is(lexicon.Numeral) && g.ordinal(i):
		g.in[i].class, g.in[i].value, g.in[i].ordinal = number, a.tok.Value, true
		g.in[i].items = g.n.byValue[a.tok.Value]
		return g.numbered(i)
	case a.kinds&(totals|lexicon.KindsOf(lexicon.Recent, lexicon.Leading, lexicon.All)) != 0:
		if b, next, ok := g.counted(i); ok {
			return b, next, true
		}
		if a.is(lexicon.Leading) && !a.is(lexicon.Numeral) && g.ordinal(i) && !g.isAmount(i+1) {
			g.in[i].class, g.in[i].value, g.in[i].ordinal, g.in[i].items = number, 1, true, g.n.byValue[1]
			return g.numbered(i)
		}
	}
	if (a.is(lexicon.Both) || a.is(lexicon.All)) && g.follows() {
		return a, i, false
	}
	switch {
	case a.is(lexicon.Steps):
		return g.noun(i)
	case a.is(lexicon.Previous):
		return g.byPosition(i, g.recent(1))
	case a.is(lexicon.Both):
		if g.refers(i + 1) {
			b, next, ok := g.list(i + 1)
			b.off = a.off
			return b, next, ok
		}
		if len(g.before) > 0 {
			return g.byPosition(i, g.before)
		}
		return g.byPosition(i, g.recent(2))
	case a.is(lexicon.Others):
		return g.byPosition(i, without(g.n.steps, []int{g.self}))
	case a.is(lexicon.All):
		from := i + 1
		for n := 0; n < 2 && (g.at(from).class == word && g.at(from).common || g.at(from).class == phrase && (g.at(from).is(lexicon.Sources) || g.at(from).is(lexicon.Done))); n++ {
			from++ // for example "everything in phase 2"
		}
		if g.refers(from) {
			b, next, ok := g.list(from)
			b.off = a.off
			return b, next, ok
		}
		return g.byPosition(i, g.recent(len(g.n.steps)))
	}
	return a, i, false
}

// ordinal reports whether "first" at atom i counts steps and does not merely begin a sentence.
func (g *grouper) ordinal(i int) bool {
	if a := g.at(i + 1); a.class == phrase && a.is(lexicon.Steps) || a.is(lexicon.And) && g.at(i+2).ordinal {
		return true
	}
	for i--; g.at(i).class == word && g.at(i).common; i-- {
	}
	a := g.at(i)
	return a.class == phrase && a.kinds&lexicon.Relations != 0 || a.class == phrase && a.is(lexicon.Sources)
}

// follows reports whether references directly precede, so that "both" and "all" only repeat them.
func (g *grouper) follows() bool {
	for i := len(g.out) - 1; i >= max(0, len(g.out)-3); i-- {
		switch a := &g.out[i]; {
		case a.class == group:
			return !a.positional
		case a.class == opened:
		case a.class == word && (a.common || !isWordLetter(firstRune(g.text[a.off:]))):
		default:
			return false
		}
	}
	return false
}

// byPosition makes a reference from a phrase such as "both".
func (g *grouper) byPosition(i int, items []int) (atom, int, bool) {
	a := *g.at(i)
	a.class, a.positional, a.items, a.count = group, true, items, 1
	return a, i + 1, len(items) > 0
}

// recent returns the last steps before self, at most count.
func (g *grouper) recent(count int) []int {
	if g.self < 0 || g.self >= len(g.n.position) {
		return nil
	}
	p := g.n.position[g.self]
	return g.n.steps[max(0, p-count):p]
}

// noun reads "step 3", "Schritt zwei" and "第三步".
func (g *grouper) noun(i int) (atom, int, bool) {
	j := i + 1
	for ; j < i+3; j++ {
		// For example "step no. 3", "Step #3", "步骤(3)".
		if a := g.at(j); !(a.class == phrase && a.is(lexicon.Steps)) {
			break
		}
	}
	a := *g.at(j)
	if a.class != number && a.class != label || g.at(j-1).end+2 < a.off {
		return a, i, false
	}
	b, next, ok := g.numbered(j)
	if !ok {
		return a, i, false
	}
	b.off, b.sure, b.bare, b.part = g.at(i).off, true, false, g.isPart(g.at(i))
	if b.class == number && !b.part {
		b.items = g.local(b)
	}
	if b.class == number && len(b.items) == 0 && len(b.unknown) == 0 {
		b.unknown = []string{g.spelled(b)}
	}
	return g.inPart(b, next)
}

// inPart combines "phase 2, step 1" or "step 1 of phase 2" if there is such an item.
func (g *grouper) inPart(a atom, next int) (atom, int, bool) {
	k := next
	for k < next+3 && (g.at(k).class == comma || g.at(k).class == opened || g.at(k).class == word && g.at(k).common || g.at(k).is(lexicon.Sources)) {
		k++
	}
	if !a.part && !(k > next && g.isPart(g.at(k))) {
		return a, next, true
	}
	b, after, ok := g.unit(k)
	if !ok || b.part == a.part {
		return a, next, true
	}
	part, step := &a, &b
	if b.part {
		part, step = &b, &a
	}
	value := part.value
	if value == 0 && len(part.items) == 1 && g.n.items[part.items[0]].Group {
		value = g.n.items[part.items[0]].Number // the number of "phase B" is 2
	}
	if i, ok := g.n.byKey[strconv.Itoa(value)+"."+strconv.Itoa(step.value)]; ok {
		step.items, step.unknown, step.sure, step.bare = []int{i}, nil, true, false
		step.off, step.end = a.off, b.end
		return *step, after + b2i(g.at(after).class == closed && g.at(k-1).class == opened), true
	}
	return a, next, true
}

// numbered reads a number or label together with the noun that may follow.
func (g *grouper) numbered(i int) (atom, int, bool) {
	a := *g.at(i)
	a.count = 1
	a.bare = a.class == number && !a.sure
	if a.class == number && !a.sure {
		a.items = g.local(a)
	}
	if a.class == number && len(a.items) == 0 && len(a.unknown) == 0 {
		a.unknown = []string{g.spelled(a)}
	}
	j := g.skipPoint(i + 1)
	b := g.at(j)
	if b.class == phrase && b.is(lexicon.Steps) && (b.tok.Side == lexicon.Behind || j > i+1 || a.ordinal) {
		a.sure, a.end, a.part, a.bare = true, b.end, g.isPart(b), false
		return a, j + 1, true
	}
	return a, i + 1, true
}

// local returns the items that a number refers to. If numbers start again in each part, it is the item in the
// part of self.
func (g *grouper) local(a atom) []int {
	if g.self < 0 || len(a.items) == 0 {
		return a.items
	}
	id := g.n.items[g.self].ID
	if dot := strings.LastIndexByte(id, '.'); dot > 0 && !g.n.has(strconv.Itoa(a.value)) {
		if i, ok := g.n.byKey[id[:dot+1]+strconv.Itoa(a.value)]; ok {
			return []int{i}
		}
	}
	return a.items
}

// has reports whether a step has this id.
func (n *Names) has(key string) bool { i, ok := n.byKey[key]; return ok && !n.items[i].Group }

// isPart reports whether a noun is one for parts of a plan and not a noun of the steps.
func (g *grouper) isPart(a *atom) bool {
	return a.is(lexicon.Parts) && !g.n.nouns[a.tok.Phrase]
}

// spelled returns an id that no item has in the spelling of the text.
func (g *grouper) spelled(a atom) string { return strings.Trim(g.text[a.off:a.end], " #.") }

// counted reads "the last two", "the first three steps", "previous 2 steps", "all three", "les trois".
func (g *grouper) counted(i int) (atom, int, bool) {
	a := *g.at(i)
	j := i + 1
	if a.tok.Side == lexicon.Behind {
		return a, i, false
	}
	for j < i+3 && g.at(j).class == word && g.at(j).common {
		j++
	}
	b := g.at(j)
	if b.class != number || b.ordinal || b.value < 2 || b.value > len(g.n.steps) {
		return a, i, false
	}
	next := j + 1
	for g.at(next).class == phrase && (g.at(next).is(lexicon.Steps) || g.at(next).is(lexicon.Earlier)) {
		next++
	}
	// "All three" needs exactly three items.
	exact := a.kinds&lexicon.KindsOf(lexicon.Recent, lexicon.Leading, lexicon.All) == 0
	if next == j+1 && (a.is(lexicon.Leading) && !b.spelled || g.isAmount(next)) || exact && !b.spelled && (a.is(lexicon.Definite) || next == j+1 && len(g.recent(b.value+1)) != b.value) {
		return a, i, false
	}
	a.class, a.positional, a.count, a.end = group, true, 1, g.at(next-1).end
	switch {
	case a.is(lexicon.Leading):
		a.items = without(g.n.steps[:b.value], []int{g.self})
	case exact && len(g.before) == b.value:
		a.items = g.before
	default:
		a.items = g.recent(b.value)
		a.vague = exact && next == j+1 && len(g.recent(b.value+1)) > b.value
	}
	if exact && len(a.items) != b.value {
		g.in[j].class = quantity // it counts something else and is no number of a step
		return *g.at(i), i, false
	}
	return a, next, len(a.items) > 0
}
