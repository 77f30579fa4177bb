package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// writer writes one text.
type writer struct {
	*rand.Rand
	lang, english *language
	// needs holds, for each node in the order of the text, its direct predecessors.
	needs [][]int
	title []string
	// id is the name of each node in the truth; ref is how the text refers to it.
	id, ref []string
	// number is set if the ids are plain numbers, so that "step 2" is possible.
	number bool
	how    manner
	chosen map[string]string
	domain *int
	out    Text
}

// manner is how a text states the needs of its steps. It is the same for the whole text.
type manner struct {
	// before: state the successors of a step; data: state that results are used; many: vary the phrases in
	// one text.
	before, data, many bool
	// free is the probability that a step without needs says so. aside is that of "in parallel with 2".
	free, aside, previous float64
}

func (t *writer) yes(p float64) bool { return t.Float64() < p }

func (t *writer) one(of ...string) string { return of[t.IntN(len(of))] }

// pick draws a phrase of a section.
func (t *writer) pick(section string) string {
	of := t.lang.phrases[section]
	if len(of) == 0 {
		of = t.english.phrases[section]
	}
	return t.one(of...)
}

// choose draws a phrase of a section, and returns the same one for the rest of the text.
func (t *writer) choose(section string) string {
	if t.how.many {
		return t.phrase(section)
	}
	s, ok := t.chosen[section]
	if !ok {
		s = t.phrase(section)
		if t.chosen == nil {
			t.chosen = map[string]string{}
		}
		t.chosen[section] = s
	}
	return s
}

// phrase draws a phrase that fits the kind of ids.
func (t *writer) phrase(section string) string {
	for {
		s, numeric := strings.CutPrefix(t.pick(section), "n: ")
		if !numeric || t.number {
			return s
		}
	}
}

func (t *writer) cap(s string) string { return t.lang.capital(s) }

// stop returns the sign that ends a sentence.
func (t *writer) stop() string {
	switch t.lang.code {
	case "zh", "ja":
		return "。"
	case "hi":
		return "।"
	}
	return "."
}

// gap returns the text between sentences.
func (t *writer) gap() string {
	if t.lang.spaced() {
		return " "
	}
	return ""
}

func fill(phrase string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(phrase)
}

// size draws the number of nodes.
func (t *writer) size(most int) int {
	n := 3 + t.IntN(7)
	switch x := t.Float64(); {
	case x < 0.03:
		n = 2
	case x > 0.97:
		n = 21 + t.IntN(40)
	case x > 0.89:
		n = 10 + t.IntN(11)
	}
	return min(n, most)
}

// draw makes a random graph of at most the given number of nodes, with titles.
func (t *writer) draw(most int) {
	n := t.size(most)
	t.needs = make([][]int, n)
	kind := t.IntN(10)
	for i := 1; i < n; i++ {
		switch {
		case kind == 0:
			t.needs[i] = []int{i - 1}
		case kind == 1: // one, then many, then one
			t.needs[i] = []int{0}
			if i == n-1 && n > 3 {
				t.needs[i] = span(1, n-1)
			}
		case kind == 2: // diamonds
			switch i % 3 {
			case 0:
				t.needs[i] = []int{i - 2, i - 1}
			case 1:
				t.needs[i] = []int{i - 1}
			case 2:
				t.needs[i] = []int{i - 2}
			}
		case kind == 3 && i == n-1: // many, then one
			t.needs[i] = span(0, n-1)
		case kind == 3 && n > 2:
		case t.yes(0.16) && i < n-1:
		default:
			for range 1 + t.IntN(2) + t.IntN(2)*t.IntN(2) {
				k := i - 1 - min(t.IntN(4), t.IntN(4))
				if k >= 0 && !slices.Contains(t.needs[i], k) {
					t.needs[i] = append(t.needs[i], k)
				}
			}
			slices.Sort(t.needs[i])
		}
	}
	if t.edgeless() {
		t.needs[n-1] = []int{0}
	}
	t.title = t.titles(n)
}

func span(from, to int) (out []int) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// chain makes a graph of consecutive steps.
func (t *writer) chain(most int) {
	n := t.size(most)
	t.needs = make([][]int, n)
	for i := 1; i < n; i++ {
		t.needs[i] = []int{i - 1}
	}
	t.title = t.titles(n)
}

// stages makes a graph of stages and returns them. Each step of a stage needs all steps of the stage before.
func (t *writer) stages(most, width int) (out [][]int) {
	n := min(t.size(most), most)
	wide := false
	for i := 0; i < n; {
		w := 1
		if !wide && i > 0 && n-i > 2 && t.yes(0.5) {
			w = 2 + t.IntN(width-1)
		}
		w = min(w, n-i)
		wide = w > 1
		out = append(out, span(i, i+w))
		i += w
	}
	t.needs = make([][]int, n)
	for k, stage := range out {
		if k > 0 {
			for _, i := range stage {
				t.needs[i] = slices.Clone(out[k-1])
			}
		}
	}
	t.title = t.titles(n)
	return out
}

// shuffle changes the order of the nodes in the text.
func (t *writer) shuffle() {
	n := len(t.needs)
	at := t.Perm(n)
	needs := make([][]int, n)
	for i, x := range t.needs {
		for _, k := range x {
			needs[at[i]] = append(needs[at[i]], at[k])
		}
		slices.Sort(needs[at[i]])
	}
	t.needs = needs
}

func (t *writer) edgeless() bool {
	return !slices.ContainsFunc(t.needs, func(x []int) bool { return len(x) > 0 })
}

// after returns the nodes that need node i.
func (t *writer) after(i int) (out []int) {
	for k, x := range t.needs {
		if slices.Contains(x, i) {
			out = append(out, k)
		}
	}
	return out
}

// titles draws n tasks of one domain, with as few common words as possible. If the domain is too small, it
// uses several.
func (t *writer) titles(n int) []string {
	var out []string
	seen, used := map[string]bool{}, map[string]bool{}
	sep := ""
	if t.lang.spaced() {
		sep = " "
	}
	if t.domain == nil {
		d := t.IntN(len(t.lang.domains))
		t.domain = &d
	}
	d := *t.domain
	for tries := 0; len(out) < n; tries++ {
		domain := t.lang.domains[d]
		h := domain[t.IntN(len(domain))]
		a, b := h.first[t.IntN(len(h.first))], h.second[t.IntN(len(h.second))]
		title := a + sep + b
		object := b
		if len(h.first) > len(h.second) {
			object = a
		}
		if seen[title] || used[object] && tries < 20*n {
			if tries > 20*n && tries%10 == 0 {
				d = (d + 1) % len(t.lang.domains)
			}
			continue
		}
		seen[title], used[object] = true, true
		out = append(out, title)
	}
	return out
}

// numbers sets the ids 1, 2, 3 and so on.
func (t *writer) numbers() {
	t.number = true
	t.id = nil
	for i := range t.needs {
		t.id = append(t.id, strconv.Itoa(i+1))
	}
	t.ref = t.id
}

// codes sets ids such as T1 and AP-03.
func (t *writer) codes() {
	n := len(t.needs)
	prefix := t.one("T", "T", "S", "AP", "WP", "P", "A", "M", "K", "X", "TASK-", "WP-", "T-", "AP-", "OPS-", "DEV-", "REQ-", "U", "Q", "AB-")
	form, from := "%d", 1
	switch {
	case n > 9 || t.yes(0.15):
		form = "%02d"
	case strings.HasSuffix(prefix, "-") && len(prefix) > 3 && t.yes(0.5):
		from = 11 + t.IntN(400)
	}
	t.id = nil
	for i := range n {
		t.id = append(t.id, prefix+fmt.Sprintf(form, from+i))
	}
	t.ref = t.id
}

// letters sets the ids A, B, C and so on, or small letters. It returns false if there are not enough letters.
func (t *writer) letters(small bool) bool {
	if len(t.needs) > 26 {
		return false
	}
	t.id = nil
	for i := range t.needs {
		c := 'A' + rune(i)
		if small {
			c += 'a' - 'A'
		}
		t.id = append(t.id, string(c))
	}
	t.ref = t.id
	return true
}

// slugs sets ids such as fetch_orders, with sep between the words. "" means camel case.
func (t *writer) slugs(sep string) {
	g := t.slugHalves()
	seen := map[string]bool{}
	t.id = nil
	short := len(t.needs) <= 8 && t.yes(0.25)
	for len(t.id) < len(t.needs) {
		a, b := g.first[t.IntN(len(g.first))], g.second[t.IntN(len(g.second))]
		s := a + sep + b
		switch {
		case short && sep != "":
			s = b
		case sep == "":
			s = t.english.capital(a) + t.english.capital(b)
		}
		if seen[s] {
			continue
		}
		seen[s] = true
		t.id = append(t.id, s)
	}
	t.ref = t.id
}

func (t *writer) slugHalves() halves {
	a, b, _ := strings.Cut(t.english.phrases["slug"][0], " + ")
	return halves{strings.Split(a, "|"), strings.Split(b, "|")}
}

// hide makes the titles the ids, because the text shows no ids.
func (t *writer) hide() {
	t.id, t.ref = t.title, t.title
	t.out.Hidden = true
}

// byTitle makes the titles the ids. The text refers to steps by their titles.
func (t *writer) byTitle() {
	t.id = nil
	for _, x := range t.title {
		t.id = append(t.id, t.cap(x))
	}
	t.ref = t.id
	t.out.Hidden = true
}

// truth sets the nodes and edges of the text.
func (t *writer) truth() {
	t.out.Nodes = slices.Clone(t.id)
	for i, x := range t.needs {
		for _, k := range x {
			t.out.Edges = append(t.out.Edges, Edge{t.id[k], t.id[i]})
		}
	}
}

// refs returns the references to nodes.
func (t *writer) refs(nodes []int) (out []string) {
	for _, i := range nodes {
		out = append(out, t.ref[i])
	}
	return out
}

// join writes several references as in a sentence: "1, 2 and 3".
func (t *writer) join(refs []string) string {
	comma, and := ", ", " "+t.choose("and")+" "
	if !t.lang.spaced() {
		comma, and = "、", t.choose("and")
	}
	if len(refs) < 2 {
		return strings.Join(refs, "")
	}
	last := len(refs) - 1
	return strings.Join(refs[:last], comma) + and + refs[last]
}

// bare writes references as a value: "1, 2".
func (t *writer) bare(nodes []int) string {
	sep := ", "
	if !t.lang.spaced() && t.yes(0.3) {
		sep = "、"
	}
	return strings.Join(t.refs(nodes), sep)
}

// manners draws how the text states needs.
func (t *writer) manners() {
	t.how = manner{many: t.yes(0.35), before: t.yes(0.1), data: t.yes(0.1)}
	if t.yes(0.4) {
		t.how.free = t.rate(1, 1, 0.5)
	}
	if t.yes(0.25) {
		t.how.aside = 0.5
	}
	if t.yes(0.12) {
		t.how.previous = 0.6
	}
}

func (t *writer) rate(of ...float64) float64 { return of[t.IntN(len(of))] }

// relation states the needs of node i, or returns "".
func (t *writer) relation(i int) string {
	need := t.needs[i]
	if t.how.before {
		next := t.after(i)
		switch len(next) {
		case 0:
			return ""
		case 1:
			return fill(t.choose("before"), "{r}", t.ref[next[0]])
		}
		return fill(t.choose("beforemany"), "{r}", t.join(t.refs(next)))
	}
	for k := range i {
		// The other step states its own needs.
		if slices.Equal(need, t.needs[k]) && len(need) > 0 && t.yes(t.how.aside) && !t.aside(k) {
			t.chosen = t.set("aside"+strconv.Itoa(i), "x")
			return fill(t.choose("parallel"), "{r}", t.ref[k])
		}
	}
	switch {
	case len(need) == 0 && t.yes(t.how.free):
		return t.choose("none")
	case len(need) == 0:
		return ""
	case len(need) == 1 && need[0] == i-1 && t.yes(t.how.previous):
		return t.choose("prev")
	case t.number && len(need) > 2 && need[len(need)-1] < len(t.id) && need[len(need)-1]-need[0] == len(need)-1 && t.yes(0.4):
		return fill(t.choose("range"), "{a}", t.ref[need[0]], "{b}", t.ref[need[len(need)-1]])
	case t.how.data && len(need) <= 3:
		return fill(t.choose("data"), "{r}", t.join(t.refs(need)))
	case len(need) == 1:
		return fill(t.choose("one"), "{r}", t.ref[need[0]])
	}
	return fill(t.choose("many"), "{r}", t.join(t.refs(need)))
}

func (t *writer) aside(k int) bool { return t.chosen["aside"+strconv.Itoa(k)] != "" }

func (t *writer) set(key, value string) map[string]string {
	if t.chosen == nil {
		t.chosen = map[string]string{}
	}
	t.chosen[key] = value
	return t.chosen
}

// wrap puts a heading or an opening before the plan, and sometimes closing words behind it.
func (t *writer) wrap(body string) {
	head, tail := "", ""
	switch x := t.Float64(); {
	case x < 0.35:
		head = t.pick("intro") + "\n\n"
	case x < 0.5:
		head = t.one("# ", "## ", "", "**") + t.pick("title")
		if strings.HasPrefix(head, "**") {
			head += "**"
		}
		head += "\n\n"
	}
	if t.yes(0.25) {
		tail = "\n\n" + t.pick("outro")
	}
	t.out.Body = head + strings.TrimRight(body, "\n") + tail
}
