package plan

import (
	"index/suffixarray"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// VerifyRestatement looks for every statement of r in the text. It returns the graph, and diagnostics in the
// order of the text. An error RESTATEMENT_REFUSED names a step or an edge that was not found; the graph is
// then empty. A warning SKIPPED_TEXT names a sentence that no quote covers. Its time is linear in the text
// and the quotes, times a logarithm.
//
// A step is found if its quote stands in the text behind the quote of the step before, and holds every word
// of its request and the claimed id. An edge is found if its quote stands in the text, names both ends or the
// one that it is not attached to, and holds a word of order that relates them in this direction.
func VerifyRestatement(text string, r Restatement) (Graph, []Diagnostic) {
	v := &verifier{text: text, words: wordsOf(text), doc: newDocument(text, Limits{MaxBytes: len(text) + 1}.withDefaults())}
	v.steps(r)
	if len(v.diags) == 0 {
		v.describe()
		v.edges(r)
	}
	if len(v.diags) > 0 {
		return Graph{}, v.diags
	}
	v.uncovered()
	return v.graph, v.diags
}

type verifier struct {
	text  string
	words words
	index *suffixarray.Index
	doc   *document
	at    []restatedPlace
	owner map[string]int // index of the step by stem; -1 if several steps have it
	used  []span
	graph Graph
	diags []Diagnostic
}

type span struct{ from, to int }

// restatedPlace is where a step stands: its quote, and its extent, which runs from the begin of its sentence
// to the next step.
type restatedPlace struct {
	quote, extent span
	stems         []string
	number        int // the id as a number, or -1
	id            string
}

func (v *verifier) refuse(off int, element, message string) {
	if len(v.diags) >= maxRestateFaults {
		return
	}
	d := Diagnostic{Code: RestatementRefused, Severity: Error, Element: element, Message: message, Hint: "quote the words of the text that say it, or leave it out"}
	if off >= 0 {
		d.Line, d.Column = v.doc.place(off)
	}
	v.diags = append(v.diags, d)
}

// steps finds the place of every step behind the one before, and checks its words.
func (v *verifier) steps(r Restatement) {
	taken := map[string]bool{}
	for _, s := range r.Steps {
		taken[strings.TrimSpace(s.ID)] = true
	}
	seen, next := map[string]bool{}, 0
	for _, s := range r.Steps {
		name := "step " + strconv.Itoa(s.N)
		if len(v.diags) >= maxRestateFaults {
			return
		}
		quote := wordsOf(s.Quote)
		begin := -1
		if quote.some() {
			begin = strings.Index(v.words.joined[next:], quote.joined)
		}
		if begin < 0 {
			v.refuse(-1, name, "the quote of the step is not in the text behind the quote of the step before: "+clipped(s.Quote))
			continue
		}
		begin += next
		next = begin + len(quote.joined) - 1
		at := span{v.words.offset(begin), v.words.end(next)}
		id := strings.TrimSpace(s.ID)
		if id != "" && !v.shows(id, quote, begin) {
			v.refuse(at.from, name, "the text does not show the id "+strconv.Quote(clipped(id))+" at the step")
		}
		if id == "" {
			id = restatedID(s.N, taken)
		}
		if seen[id] {
			v.refuse(at.from, name, "two steps have the id "+strconv.Quote(clipped(id)))
		}
		seen[id] = true
		if missing := quote.lacks(wordsOf(s.Request)); missing != "" {
			v.refuse(at.from, name, "the quote of the step does not hold "+missing)
		}
		if denies(s.Quote) && !denies(s.Request) {
			v.refuse(at.from, name, "the quote of the step denies what the request says")
		}
		p := Problem{ID: id, Request: strings.TrimSpace(s.Request)}
		p.Line, p.Column = v.doc.place(at.from)
		v.graph.Problems = append(v.graph.Problems, p)
		v.at = append(v.at, restatedPlace{quote: at, id: id, stems: wordsOf(s.Request).stems()})
		v.used = append(v.used, at)
	}
}

// shows reports whether an id stands in the quote or right before it.
func (v *verifier) shows(id string, quote words, begin int) bool {
	want := wordsOf(id)
	if !want.some() {
		return false
	}
	if strings.Contains(quote.joined, want.joined) {
		return true
	}
	head := v.words.joined[max(0, begin-len(want.joined)-16) : begin+1]
	i := strings.LastIndex(head, want.joined)
	return i >= 0 && !strings.ContainsFunc(head[i+len(want.joined):], func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) &&
		!strings.Contains(v.text[v.words.offset(begin+1-len(head)+i):v.words.offset(begin)], "\n")
}

// describe prepares the data for the check of edges: the extents of the steps, and the words that name
// exactly one step.
func (v *verifier) describe() {
	v.owner = map[string]int{}
	for i := range v.at {
		a := &v.at[i]
		a.number = -1
		if n, ok := lexicon.Digits(a.id); ok {
			a.number = n
		}
		for _, s := range a.stems {
			if o, ok := v.owner[s]; ok && o != i {
				v.owner[s] = -1
			} else {
				v.owner[s] = i
			}
		}
		begin := sentenceStart(v.text, a.quote.from)
		if i > 0 {
			begin = v.part(&v.at[i-1], a.quote.from, begin)
		}
		a.extent = span{begin, len(v.text)}
		if k := strings.Index(v.text[a.quote.to:], "\n\n"); k >= 0 {
			a.extent.to = a.quote.to + k
		}
	}
}

// part ends the extent of a step before the next one, whose quote and sentence begin at the given places. It
// returns the begin of the next extent. The text between two steps of one sentence belongs to the step that
// no comma separates it from.
func (v *verifier) part(a *restatedPlace, quote, sentence int) int {
	if sentence >= a.quote.to {
		a.extent.to = min(a.extent.to, sentence)
		return sentence
	}
	const marks = ",;:(，、；：—"
	between := v.text[a.quote.to:quote]
	a.extent.to = a.quote.to
	if i := strings.IndexAny(between, marks); i >= 0 {
		a.extent.to += i
		return a.quote.to + strings.LastIndexAny(between, marks) + 1
	}
	return quote
}

// sentenceStart returns the begin of the sentence or line that contains off.
func sentenceStart(text string, off int) int {
	for i := off; i > 0; {
		r, n := utf8.DecodeLastRuneInString(text[:i])
		if r == '\n' || strings.ContainsRune("!?。！？;；", r) || r == '.' && i < len(text) && text[i] == ' ' && !digitBefore(text, i-1) {
			return i
		}
		i -= n
	}
	return 0
}

func digitBefore(text string, i int) bool { return i > 0 && text[i-1] >= '0' && text[i-1] <= '9' }

// edges checks every need.
func (v *verifier) edges(r Restatement) {
	v.index = suffixarray.New([]byte(v.words.joined))
	for to, s := range r.Steps {
		added := map[int]bool{}
		for _, n := range s.Needs {
			if len(v.diags) >= maxRestateFaults {
				return
			}
			from := n.N - 1
			if from < 0 || from >= len(v.at) || from == to {
				v.refuse(-1, strconv.Itoa(n.N)+" -> "+v.at[to].id, "there is no other step "+strconv.Itoa(n.N))
				continue
			}
			name := v.at[from].id + " -> " + v.at[to].id
			place, ok := v.find(n.Quote, v.at[to])
			switch {
			case !ok:
				v.refuse(-1, name, "the quote of the dependency is not in the text: "+clipped(n.Quote))
			case !v.states(place, from, to):
				v.refuse(place.from, name, "the quote does not say that one step comes before the other: "+clipped(n.Quote))
			case !added[from]:
				added[from] = true
				e := Edge{From: v.at[from].id, To: v.at[to].id, Source: Stated}
				e.Line, e.Column = v.doc.place(place.from)
				v.graph.Edges = append(v.graph.Edges, e)
				v.used = append(v.used, place)
			}
		}
	}
}

// find returns the place of a quote, preferably within the extent of the step.
func (v *verifier) find(quote string, near restatedPlace) (span, bool) {
	w := wordsOf(quote)
	if !w.some() {
		return span{}, false
	}
	begin := v.words.index(near.extent.from)
	end := min(len(v.words.joined), v.words.index(near.extent.to)+1)
	if i := strings.Index(v.words.joined[begin:end], w.joined); i >= 0 {
		begin += i
	} else {
		hits := v.index.Lookup([]byte(w.joined), 16)
		if len(hits) == 0 {
			return span{}, false
		}
		begin = slices.Min(hits)
	}
	return span{v.words.offset(begin), v.words.end(begin + len(w.joined) - 1)}, true
}

// uncovered warns of the sentences that no quote covers, even in part.
func (v *verifier) uncovered() {
	slices.SortFunc(v.used, func(a, b span) int { return a.from - b.from })
	more, u, covered := 0, 0, 0
	for off := 0; off < len(v.text); {
		end := sentenceEnd(v.text, off)
		for u < len(v.used) && v.used[u].from < end {
			covered = max(covered, v.used[u].to)
			u++
		}
		sentence := strings.TrimSpace(v.text[off:end])
		if covered <= off && strings.IndexFunc(sentence, unicode.IsLetter) >= 0 {
			if more++; more <= maxRestateFaults {
				d := Diagnostic{Code: SkippedText, Severity: Warning, Element: clipped(sentence), Message: "the restatement leaves this out", Hint: "check that it is not part of the plan"}
				d.Line, d.Column = v.doc.place(off + strings.Index(v.text[off:end], sentence))
				v.diags = append(v.diags, d)
			}
		}
		off = end
	}
	if more > maxRestateFaults {
		v.diags = append(v.diags, Diagnostic{Code: SkippedText, Severity: Warning, Element: "text", Message: "the restatement leaves out " + strconv.Itoa(more-maxRestateFaults) + " more sentences"})
	}
}

// sentenceEnd returns the end of the sentence or line that begins at off.
func sentenceEnd(text string, off int) int {
	for i, r := range text[off:] {
		j := off + i + utf8.RuneLen(max(r, 0))
		if r == utf8.RuneError {
			continue
		}
		if r == '\n' || strings.ContainsRune("!?。！？;；", r) || r == '.' && j < len(text) && text[j] == ' ' && !digitBefore(text, j-1) {
			return j
		}
	}
	return len(text)
}

// clipped shortens a text for a message.
func clipped(s string) string {
	const most = 80
	s = strings.Join(strings.Fields(s[:min(len(s), 4*most)]), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return strings.ToValidUTF8(s, "")
}

// words is a text as folded words and signs with one space around each. White space, emphasis and quotation
// marks are left out. In scripts without spaces each letter is a word.
type words struct {
	joined string
	at     []int32 // place in the text of each byte
	ends   []int32 // end in the text of the word, for the space behind it
}

func wordsOf(text string) words {
	var b strings.Builder
	w := words{}
	put := func(s string, at, end int) {
		b.WriteString(s)
		for range len(s) {
			w.at, w.ends = append(w.at, int32(at)), append(w.ends, int32(end)) //nolint:gosec // texts are far shorter
		}
	}
	put(" ", 0, 0)
	inWord := false
	for i, r := range text {
		if unicode.IsSpace(r) {
			inWord = false
			continue
		}
		if strings.ContainsRune("*_`~\"'“”„‘’«»\\\u200b\ufeff", r) {
			continue
		}
		letter := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
		alone := !letter || unspaced(r)
		s := lexicon.Fold(string(r))
		if s == "" || s == " " {
			continue
		}
		end := i + utf8.RuneLen(r)
		if n := len(w.at); inWord && !alone {
			b.WriteString(s)
			for range len(s) {
				w.at, w.ends = append(w.at, int32(i)), append(w.ends, int32(end)) //nolint:gosec // as above
			}
		} else {
			if n > 1 {
				put(" ", i, int(w.ends[n-1]))
			}
			put(s, i, end)
		}
		inWord = !alone
	}
	put(" ", len(text), len(text))
	if n := len(w.ends); n > 1 {
		w.ends[n-1] = w.ends[n-2]
	}
	w.joined = b.String()
	return w
}

// unspaced reports whether the script of the rune has no spaces between words, or has endings attached to
// words.
func unspaced(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

func (w words) some() bool { return len(w.joined) > 2 }

// offset returns the place in the text of the word behind the space at i.
func (w words) offset(i int) int { return int(w.at[min(i+1, len(w.at)-1)]) }

// end returns the end in the text of the word before the space at i.
func (w words) end(i int) int { return int(w.ends[min(i, len(w.ends)-1)]) }

// index returns the index of the space before the first word that ends behind off.
func (w words) index(off int) int {
	i, _ := slices.BinarySearch(w.at, int32(off)) //nolint:gosec // texts are far shorter
	return max(0, min(i, len(w.joined)-1))
}

// stem returns the common part of the forms of a word: its first four letters, or all of a short word.
func stem(word string) string {
	n := 0
	for i := range word {
		if n++; n > 4 {
			return word[:i]
		}
	}
	return word
}

// lacks returns a word of request that is not in w, or "". Words of four letters or more may have another
// ending.
func (w words) lacks(request words) string {
	has := map[string]bool{}
	for s := range strings.FieldsSeq(w.joined) {
		has[stem(s)] = true
	}
	if !request.some() {
		return "a request"
	}
	for s := range strings.FieldsSeq(request.joined) {
		if r, _ := utf8.DecodeRuneInString(s); (unicode.IsLetter(r) || unicode.IsDigit(r)) && !has[stem(s)] {
			return strconv.Quote(clipped(s))
		}
	}
	return ""
}

// stems returns the words that may describe a step: its longer words, and pairs of letters in scripts without
// spaces.
func (w words) stems() []string {
	var out []string
	last := ""
	for s := range strings.FieldsSeq(w.joined) {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case unspaced(r):
			if last != "" {
				out = append(out, last+s)
			}
			last = s
			continue
		case n > 0 && unicode.IsLetter(r) && utf8.RuneCountInString(s) >= 4 && !lexicon.IsCommon("", s):
			out = append(out, stem(s))
		}
		last = ""
	}
	return out
}
