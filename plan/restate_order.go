package plan

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// denies reports whether a text holds a negation outside its phrases of order. "not before" is such a phrase.
func denies(text string) bool {
	off := 0
	for _, t := range lexicon.Scan(text) {
		if t.Is(lexicon.Not) && t.Kinds&lexicon.Relations == 0 {
			return true
		}
		if t.Kinds&lexicon.Relations != 0 {
			if deniesIn(text[min(off, t.Off):t.Off]) {
				return true
			}
			off = t.End
		}
	}
	return deniesIn(text[min(off, len(text)):])
}

func deniesIn(text string) bool {
	for s := range strings.FieldsSeq(wordsOf(text).joined) {
		if lexicon.Is(lexicon.Not, s) {
			return true
		}
	}
	return false
}

// order is a word or sign of order at a place. The step in its reference comes first if needs is set, else
// last.
type order struct {
	span
	// ref is where the reference stands; the other end may stand anywhere else.
	ref   span
	needs bool
	// flow is set for an arrow or "then": the step to the left of it comes first.
	flow bool
}

// maxOrders bounds the words of order in one quote.
const maxOrders = 16

// states reports whether the quote at place says that from comes before to, and says nothing else of the two.
func (v *verifier) states(place span, from, to int) bool {
	q := v.text[place.from:place.to]
	orders, denied := ordersOf(q)
	if denied || v.deniedAround(place) || len(orders) > maxOrders || sentenceEnd(q, 0) < len(q) {
		return false
	}
	a, b := v.mentions(q, from), v.mentions(q, to)
	if len(a) == 0 && v.before(q, len(orders) > 0, place, from, to) {
		return true
	}
	inTo, inFrom := overlap(place, v.at[to].extent), overlap(place, v.at[from].extent)
	if len(a) == 0 && !inFrom || len(b) == 0 && !inTo {
		return false
	}
	right, wrong := false, false
	for i, o := range orders {
		if v.ofAnother(place.from+o.from, from, to) {
			continue
		}
		near := span{0, len(q)} // up to the neighboring words of order
		for k, x := range orders {
			if k != i && x.to <= o.from {
				near.from = max(near.from, x.to)
			}
			if k != i && x.from >= o.to {
				near.to = min(near.to, x.from)
			}
		}
		o.ref = span{max(o.ref.from, near.from), min(o.ref.to, near.to)}
		switch {
		case len(a) > 0 && !near.holds(a), len(b) > 0 && !near.holds(b):
		case o.flow:
			left, behind := span{near.from, o.from}, span{o.to, near.to}
			right = right || left.holds(a) && behind.holds(b)
			wrong = wrong || left.holds(b) && behind.holds(a)
		case o.needs:
			right = right || o.refers(a, b)
			wrong = wrong || o.refers(b, a)
		default:
			right = right || o.refers(b, a)
			wrong = wrong || o.refers(a, b)
		}
	}
	return right && !wrong
}

// deniedAround reports whether the sentence around a quote negates it. The negation may be in the clause of
// the quote, or at the end of an earlier clause, as in "never, ever, plant …".
func (v *verifier) deniedAround(place span) bool {
	const marks = ",;:(，、；：—"
	begin, end := sentenceStart(v.text, place.from), sentenceEnd(v.text, place.from)
	if place.to < end {
		rest, _, _ := strings.Cut(v.text[place.to:end], "\n")
		if i := strings.IndexAny(rest, marks); i >= 0 {
			rest = rest[:i]
		}
		if denies(rest) {
			return true
		}
	}
	clauses := strings.FieldsFunc(v.text[begin:place.from]+" ", func(r rune) bool { return strings.ContainsRune(marks, r) })
	for i, c := range clauses {
		if i < len(clauses)-1 {
			words := strings.Fields(c)
			c = strings.Join(words[max(0, len(words)-1):], " ")
		}
		if denies(c) {
			return true
		}
	}
	return false
}

// ofAnother reports whether the word of order at off belongs to the sentence of a third step.
func (v *verifier) ofAnother(off, from, to int) bool {
	k := sort.Search(len(v.at), func(i int) bool { return v.at[i].extent.to > off })
	if k == len(v.at) || k == from || k == to || v.at[k].extent.from > off {
		return false
	}
	q := v.at[k].quote
	return off < q.to || sentenceEnd(v.text[:off+1], q.to) > off
}

// refers reports whether the reference of o is the end mentioned at the places in ref rather than the one
// mentioned at the places in other.
func (o order) refers(ref, other []int) bool {
	near := func(list []int) int {
		best := -1
		for _, at := range list {
			if at < o.ref.from || at >= o.ref.to {
				continue
			}
			d := at - o.to
			if at < o.from {
				d = o.from - at
			}
			if best < 0 || d < best {
				best = d
			}
		}
		return best
	}
	r, x := near(ref), near(other)
	return r >= 0 && (x < 0 || r < x)
}

// before reports whether a quote at the step to that names no step means the step right before it: "then",
// "after that". A quote such as "all of the above" means every earlier step.
func (v *verifier) before(q string, ordered bool, place span, from, to int) bool {
	if from >= to || !overlap(place, v.at[to].extent) {
		return false
	}
	means := false
	for _, t := range lexicon.Scan(q) {
		switch {
		case t.Is(lexicon.Before) && !t.Is(lexicon.Then):
			return false
		case ordered && (t.Is(lexicon.All) || t.Is(lexicon.Both) && from >= to-2 || t.Is(lexicon.Previous) && from == to-1),
			(t.Is(lexicon.Then) || t.Is(lexicon.Last)) && from == to-1:
			means = true
		}
	}
	return means
}

// ordersOf finds the words and signs of order in a quote. A quote that negates one of them states nothing.
func ordersOf(q string) (out []order, denied bool) {
	plain := strings.ReplaceAll(q, "_", " ")
	whole := func(from, to int) order { return order{span: span{from, to}, ref: span{to, len(q)}, needs: true} }
	taken := 0
	for _, t := range lexicon.Scan(plain) {
		if !strings.ContainsFunc(t.Phrase, unicode.IsLetter) {
			continue // signs are read below
		}
		o := whole(t.Off, t.End)
		switch {
		case t.Is(lexicon.Apart), t.Is(lexicon.Beside), t.Is(lexicon.Not), t.Is(lexicon.Except), t.Is(lexicon.Choice):
			return nil, true
		case t.Is(lexicon.Needs), t.Is(lexicon.Uses):
		case t.Is(lexicon.Before):
			o.needs = false
		case t.Is(lexicon.Then):
			o.flow = true
		default:
			continue
		}
		switch t.Side {
		case lexicon.Behind:
			o.ref = span{0, t.Off}
		case lexicon.Around:
			o.ref = span{t.End, t.CloseOff}
		}
		out = append(out, o)
		taken = max(taken, t.End)
	}
	for off := 0; off < len(q); {
		i := strings.IndexAny(q[off:], "-=→⟶⇒➔➜<←⇐:")
		if i < 0 {
			break
		}
		off += i
		switch n := arrowSign(q[off:]); {
		case n > 0:
			o := whole(off, off+n)
			o.flow = true
			out = append(out, o)
			off += n
		case n < 0:
			out = append(out, whole(off, off-n))
			off -= n
		case q[off] == ':':
			if o, ok := fieldAt(q, off); ok {
				out = append(out, o)
			}
			off++
		default:
			_, size := utf8.DecodeRuneInString(q[off:])
			off += size
		}
	}
	return out, deniesIn(plain[taken:])
}

// arrowSign returns the length of the arrow at the start of s, negative if it points to the left, or 0.
func arrowSign(s string) int {
	for _, a := range []string{"-->", "==>", "->", "=>", "→", "⟶", "⇒", "➔", "➜"} {
		if strings.HasPrefix(s, a) {
			return len(a)
		}
	}
	for _, a := range []string{"<--", "<-", "←", "⇐"} {
		if strings.HasPrefix(s, a) {
			return -len(a)
		}
	}
	return 0
}

// fieldAt returns the field whose name ends before the colon at off, if it is a field of dependencies.
func fieldAt(q string, off int) (order, bool) {
	head := strings.TrimRight(q[:off], "\"'` *")
	begin := strings.LastIndexFunc(head, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' && r != '-' && r != ' ' }) + 1
	role, _ := lexicon.Field(head[begin:])
	o := order{span: span{begin, off + 1}, ref: span{off + 1, len(q)}, needs: role == lexicon.Requires}
	return o, o.needs || role == lexicon.Next
}

// mentions returns the places in a quote that name a step, by its id or by words that no other step has.
func (v *verifier) mentions(q string, step int) []int {
	at := &v.at[step]
	w := wordsOf(q)
	var out []int
	id := wordsOf(at.id)
	for i := 0; id.some(); {
		k := strings.Index(w.joined[i:], id.joined)
		if k < 0 {
			break
		}
		i += k
		if !unitBehind(q, w.end(i+len(id.joined)-1)) {
			out = append(out, w.offset(i))
		}
		i += len(id.joined) - 1
	}
	last, lastAt, some, own := "", 0, []int(nil), false
	left := map[string]bool{}
	for _, s := range at.stems {
		left[s] = true
	}
	hit := func(s string, off int) {
		if o, ok := v.owner[s]; ok && (o == step || left[s]) {
			own = own || o == step
			some = append(some, off)
			delete(left, s)
		}
	}
	for i := 0; i < len(w.joined)-1; {
		s, _, _ := strings.Cut(w.joined[i+1:], " ")
		r, _ := utf8.DecodeRuneInString(s)
		off := w.offset(i)
		i += len(s) + 1
		switch {
		case unspaced(r):
			if last != "" {
				hit(last+s, lastAt)
			}
			last, lastAt = s, off
			continue
		case unicode.IsLetter(r) && utf8.RuneCountInString(s) >= 4:
			hit(stem(s), off)
		case at.number >= 0:
			if n, ok := lexicon.Number(s); ok && n == at.number && utf8.RuneCountInString(s) > 2 {
				out = append(out, off)
			}
		}
		last = ""
	}
	if own || len(at.stems) > 0 && len(left) == 0 {
		out = append(out, some...)
	}
	return out
}

// unitBehind reports whether the number that ends at off counts something: "2 days".
func unitBehind(q string, off int) bool {
	next, _, _ := strings.Cut(strings.TrimLeft(q[off:], " "), " ")
	next = strings.TrimRight(next, ".,;:)")
	return lexicon.Is(lexicon.Units, next)
}

func overlap(a, b span) bool { return a.from < b.to && b.from < a.to }

// holds reports whether one of the places is in the span.
func (s span) holds(list []int) bool {
	for _, at := range list {
		if at >= s.from && at < s.to {
			return true
		}
	}
	return false
}
