package generate

import (
	"fmt"
	"strconv"
	"strings"
)

// lists are the styles of outlines, with a line or a block for each step.
var lists = []style{
	{"numbered_words", 14, (*writer).numberedWords},
	{"bullets", 10, (*writer).bullets},
	{"bold_titles", 6, (*writer).boldTitles},
	{"checklist", 7, (*writer).checklist},
	{"phases", 8, (*writer).phases},
	{"lettered", 7, (*writer).lettered},
	{"spelled", 6, (*writer).spelled},
	{"actions", 6, (*writer).actions},
	{"corrected", 6, (*writer).corrected},
	{"alternatives", 5, (*writer).alternatives},
	{"orgmode", 5, (*writer).org},
}

// tail appends a relation to a title, in the given form.
func (t *writer) tail(title, relation, form string) string {
	if relation == "" {
		if form == ". %s." {
			return title + t.stop()
		}
		return title
	}
	switch form {
	case ". %s.":
		return title + t.stop() + t.gap() + t.cap(relation) + t.stop()
	case "\n%s":
		return title + "\n   " + t.cap(relation)
	case "\n- %s":
		return title + "\n   - " + t.cap(relation)
	}
	return title + fmt.Sprintf(form, relation)
}

// tailForm draws the form in which relations follow titles.
func (t *writer) tailForm() string {
	return t.one(" (%s)", " (%s)", " (%s)", " – %s", " — %s", ", %s", "; %s", ". %s.", " [%s]", ": %s", "\n%s", "\n- %s", " *(%s)*", " → %s")
}

// field returns the needs of node i as a label with a value on a line of its own, or "".
func (t *writer) field(i int, form string, always bool) string {
	label, nodes := "label.needs", t.needs[i]
	if t.how.before {
		label, nodes = "label.blocks", t.after(i)
	}
	value := t.choose("nothing")
	switch {
	case len(nodes) > 0 && t.yes(0.85):
		value = t.bare(nodes)
	case len(nodes) > 0:
		value = t.join(t.refs(nodes))
	case !always || t.how.before:
		return ""
	}
	return fmt.Sprintf(form, t.choose(label), value)
}

func (t *writer) fieldForm() string {
	return t.one("   %s: %s", "   - %s: %s", "   *%s:* %s", "   - **%s:** %s", "   - **%s**: %s", "     %s: %s", "   * %s: %s", "   _%s_: %s")
}

// lines writes a line for each node: marker, title and relation. The relation is in words, or a field below
// the line.
func (t *writer) lines(marker func(int) string, dress func(string) string) string {
	var b strings.Builder
	form, field := t.tailForm(), ""
	if t.yes(0.25) {
		field, t.how.many = t.fieldForm(), false
	}
	always, gap := t.yes(0.5), t.yes(0.12)
	for i := range t.needs {
		title := dress(t.cap(t.title[i]))
		if field == "" {
			title = t.tail(title, t.relation(i), form)
		}
		b.WriteString(marker(i) + title + "\n")
		if field != "" {
			if f := t.field(i, field, always); f != "" {
				b.WriteString(f + "\n")
			}
		}
		if gap {
			b.WriteString("\n")
		}
	}
	return b.String()
}

func plainly(s string) string { return s }

func boldly(s string) string { return "**" + s + "**" }

// listed writes a line for each node and no relations; the steps follow one another.
func (t *writer) listed(marker func(int) string, dress func(string) string) string {
	var b strings.Builder
	dot := t.one("", "", t.stop())
	for i := range t.needs {
		b.WriteString(marker(i) + dress(t.cap(t.title[i])) + dot + "\n")
	}
	return b.String()
}

func (t *writer) numberedWords() bool {
	silent := t.yes(0.15)
	if silent {
		t.chain(25)
	} else {
		t.draw(60)
		if t.yes(0.1) {
			t.shuffle()
		}
	}
	t.numbers()
	t.manners()
	form := t.one("%d. ", "%d. ", "%d. ", "%d) ", "(%d) ", "%d – ", "%d: ", "S%d: ", "**%d.** ", "S**%d:** ", "%d.  ")
	if word := t.pick("step"); strings.HasPrefix(form, "S") {
		form = word + " " + form[1:]
		if strings.Contains(form, "**") {
			form = "**" + word + " %d:** "
		}
	}
	marker := func(i int) string { return fmt.Sprintf(form, i+1) }
	dress := plainly
	if t.yes(0.1) && !strings.Contains(form, "*") {
		dress = boldly
	}
	if silent {
		if t.yes(0.2) { // every number is the same, as Markdown allows
			t.hide()
			marker = func(int) string { return "1. " }
		}
		t.wrap(t.listed(marker, dress))
	} else {
		t.wrap(t.lines(marker, dress))
	}
	t.truth()
	return true
}

func (t *writer) bullets() bool {
	t.draw(60)
	if t.yes(0.15) {
		t.shuffle()
	}
	switch {
	case t.yes(0.15):
		t.slugs("_")
		if t.yes(0.5) {
			t.ref = nil
			for _, x := range t.id {
				t.ref = append(t.ref, "`"+x+"`")
			}
		}
	case t.yes(0.1) && t.letters(false):
	default:
		t.codes()
	}
	t.manners()
	bullet := t.one("- ", "- ", "* ", "• ", "", "– ")
	form := t.one("%s: ", "%s – ", "**%s** – ", "**%s**: ", "**%s:** ", "[%s] ", "%s) ", "%s | ", "%s. ")
	if strings.HasPrefix(t.ref[0], "`") {
		form = t.one("%s: ", "%s – ")
	}
	t.wrap(t.lines(func(i int) string { return bullet + fmt.Sprintf(form, t.ref[i]) }, plainly))
	t.truth()
	return true
}

// boldTitles writes bullets whose dependencies are named by title.
func (t *writer) boldTitles() bool {
	t.draw(20)
	t.byTitle()
	t.how.before = t.yes(0.1)
	always := t.yes(0.5)
	field := t.one("  - %s: %s", "  %s: %s", "  *%s:* %s", "  - **%s:** %s")
	bullet, dress := t.one("- ", "* ", "• "), boldly
	if t.yes(0.2) {
		dress = plainly
	}
	var b strings.Builder
	for i := range t.needs {
		b.WriteString(bullet + dress(t.id[i]) + "\n")
		if f := t.field(i, field, always); f != "" {
			b.WriteString(f + "\n")
		}
	}
	t.wrap(b.String())
	t.truth()
	return true
}

func (t *writer) checklist() bool {
	t.draw(60)
	t.manners()
	box := func(int) string { return t.one("- [ ] ", "- [ ] ", "- [ ] ", "- [x] ") }
	if t.yes(0.2) {
		box = func(int) string { return t.one("☐ ", "☐ ", "☑ ") }
	}
	switch {
	case t.yes(0.15):
		t.chain(15)
		t.hide()
		t.wrap(t.listed(box, plainly))
		t.truth()
		return true
	case t.yes(0.4):
		t.numbers()
		form := t.one("%d. ", "%d) ", "#%d ")
		if form == "#%d " {
			t.ref = nil
			for _, x := range t.id {
				t.ref = append(t.ref, "#"+x)
			}
			t.number = false
			t.out.Alt = append(t.out.Alt, t.ref)
		}
		t.wrap(t.lines(func(i int) string { return box(i) + fmt.Sprintf(form, i+1) }, plainly))
	default:
		t.codes()
		form := t.one("%s ", "%s: ", "**%s** ", "%s – ")
		t.wrap(t.lines(func(i int) string { return box(i) + fmt.Sprintf(form, t.id[i]) }, plainly))
	}
	t.truth()
	return true
}

// phases writes headings above the steps. The numbers of the steps run on, or restart with the phase as first
// part.
func (t *writer) phases() bool {
	t.draw(40)
	n := len(t.needs)
	if n < 4 {
		return false
	}
	parts := 2 + t.IntN(2)
	t.manners()
	t.how.previous = 0
	phase := func(i int) int { return i * parts / n }
	dotted := t.yes(0.4)
	t.numbers()
	if dotted {
		t.id = nil
		at := 0
		for i := range n {
			if i > 0 && phase(i) != phase(i-1) {
				at = i
			}
			t.id = append(t.id, strconv.Itoa(phase(i)+1)+"."+strconv.Itoa(i-at+1))
		}
		t.ref, t.number = t.id, false
	} else if t.yes(0.3) {
		t.number = false
		t.codes()
	}
	word := t.pick("phase")
	head := t.one("## W %d: ", "### W %d – ", "**W %d: ", "W %d: ", "# W %d. ")
	mark := t.one("%s. ", "%s) ", "- %s: ", "- **%s** ", "%s ")
	if t.number {
		mark = t.one("%s. ", "%s) ")
	}
	names := t.Perm(len(t.lang.phrases["phasename"]))
	body := t.lines(func(i int) string {
		h := ""
		if i == 0 || phase(i) != phase(i-1) {
			h = fmt.Sprintf(strings.ReplaceAll(head, "W", word), phase(i)+1) + t.lang.phrases["phasename"][names[phase(i)]]
			if strings.HasPrefix(h, "**") {
				h += "**"
			}
			h += "\n\n"
			if i > 0 {
				h = "\n" + h
			}
		}
		return h + fmt.Sprintf(mark, t.id[i])
	}, plainly)
	t.wrap(body)
	t.truth()
	return true
}

func (t *writer) lettered() bool {
	if t.yes(0.5) {
		t.draw(20)
		small := t.yes(0.4)
		if !t.letters(small) {
			return false
		}
		mark := t.one("%s. ", "%s) ", "(%s) ", "%s – ", "%s: ")
		if small {
			mark = t.one("%s) ", "(%s) ", "%s. ")
			if strings.Contains("en fr es it pt pl", t.lang.code) { // a bare letter may be a word
				mark = "(%s) "
			}
			if mark == "(%s) " {
				t.ref = nil
				for _, x := range t.id {
					t.ref = append(t.ref, "("+x+")")
				}
				t.out.Alt = append(t.out.Alt, t.ref)
			}
		}
		t.manners()
		t.how.previous = 0
		t.wrap(t.lines(func(i int) string { return fmt.Sprintf(mark, t.id[i]) }, plainly))
		t.truth()
		return true
	}
	stages := t.stages(20, 3)
	t.id = nil
	for k, stage := range stages {
		for j := range stage {
			id := strconv.Itoa(k + 1)
			if len(stage) > 1 {
				id += string(rune('a' + j))
			}
			t.id = append(t.id, id)
		}
	}
	if len(t.id) == len(stages) {
		return false
	}
	t.ref = t.id
	t.manners()
	t.how.previous, t.how.before = 0, false
	mark := t.one("%s. ", "%s) ", "- %s: ", "**%s** ", "%s – ")
	t.wrap(t.lines(func(i int) string { return fmt.Sprintf(mark, t.id[i]) }, plainly))
	t.truth()
	return true
}

var romans = strings.Fields("I II III IV V VI VII VIII IX X XI XII")

func (t *writer) spelled() bool {
	t.draw(10)
	n := len(t.needs)
	t.numbers()
	numbers := t.id
	t.number = false
	t.id = nil
	mark := "%s "
	switch kind := t.IntN(4); kind {
	case 0:
		words := t.lang.phrases["spelled"]
		if len(words) < n {
			return false
		}
		step := t.pick("step")
		for _, w := range words[:n] {
			t.id = append(t.id, step+" "+w)
		}
		t.out.Alt = append(t.out.Alt, words[:n])
		mark = t.one("%s: ", "**%s** – ", "**%s:** ", "%s – ")
	case 1:
		t.id = romans[:n]
		mark = t.one("%s. ", "%s) ", "%s – ")
	case 2:
		for i := range n {
			t.id = append(t.id, string(rune('①'+i)))
		}
	case 3:
		for i := range min(n, 9) {
			t.id = append(t.id, strconv.Itoa(i+1)+"\ufe0f\u20e3")
		}
		if n == 10 {
			t.id = append(t.id, "🔟")
		}
	}
	t.ref = t.id
	t.out.Alt = append(t.out.Alt, numbers)
	t.manners()
	t.wrap(t.lines(func(i int) string { return fmt.Sprintf(mark, t.id[i]) }, plainly))
	t.truth()
	return true
}

// actions writes steps with owners and dates.
func (t *writer) actions() bool {
	t.draw(15)
	t.manners()
	t.how.before, t.how.previous = false, 0
	if t.yes(0.5) {
		t.numbers()
	} else {
		t.codes()
	}
	owner, due := t.pick("label.owner"), t.one("5 May", "2027-03-04", "12.06.", "3/14")
	form := t.IntN(5)
	tail := t.one(" (%s)", ". %s.", "; %s", " – %s")
	var b strings.Builder
	for i := range t.needs {
		name, title := t.pick("name"), t.cap(t.title[i])
		rel := t.relation(i)
		line := ""
		switch form {
		case 0:
			line = fmt.Sprintf("%s. %s%s%s%s: %s%s", t.id[i], title, t.stop(), t.gap(), owner, name, t.stop())
			if rel != "" {
				line += t.gap() + t.cap(rel) + t.stop()
			}
		case 1:
			line = t.tail(fmt.Sprintf("%s. %s → %s", t.id[i], boldly(name), t.title[i]), rel, " (%s)")
		case 2:
			line = t.tail(fmt.Sprintf("- %s: %s (%s)", t.id[i], title, name), rel, " – %s")
		case 3:
			line = t.tail(fmt.Sprintf("- [%s] @%s: %s", t.id[i], strings.ReplaceAll(name, " ", ""), title), rel, tail)
		case 4:
			line = t.tail(fmt.Sprintf("%s) %s (%s, %s)", t.id[i], title, name, due), rel, tail)
		}
		b.WriteString(line + "\n")
	}
	t.wrap(b.String())
	t.truth()
	return true
}

// corrected writes plans that correct themselves at the end.
func (t *writer) corrected() bool {
	if t.yes(0.4) { // two steps of a listed order change places
		t.chain(9)
		n := len(t.needs)
		if n < 4 {
			return false
		}
		t.numbers()
		t.wrap(t.listed(func(i int) string { return fmt.Sprintf("%d. ", i+1) }, plainly))
		k := t.IntN(n - 1)
		order := span(0, n)
		order[k], order[k+1] = k+1, k
		for i := range order {
			t.needs[order[i]] = nil
			if i > 0 {
				t.needs[order[i]] = []int{order[i-1]}
			}
		}
		t.out.Body += "\n\n" + fill(t.pick("swap"), "{a}", t.id[k], "{b}", t.id[k+1])
		t.truth()
		return true
	}
	t.draw(12)
	t.manners()
	t.how = manner{many: t.how.many, free: t.how.free}
	t.numbers()
	for i, x := range t.needs {
		if len(x) != 1 || i < 2 {
			continue
		}
		t.wrap(t.lines(func(i int) string { return fmt.Sprintf("%d. ", i+1) }, plainly))
		old, changed := x[0], t.IntN(i)
		if old == changed {
			return false
		}
		t.needs[i] = []int{changed}
		t.out.Body += "\n\n" + fill(t.pick("correct"), "{x}", t.id[i], "{old}", t.id[old], "{new}", t.id[changed])
		t.truth()
		return true
	}
	return false
}

// alternatives writes two plans, of which one is chosen in the end.
func (t *writer) alternatives() bool {
	t.draw(9)
	t.manners()
	t.how.previous = 0
	needs, titles := t.needs, t.title
	t.draw(6)
	other, otherTitles := t.needs, t.title
	for _, x := range titles {
		for _, y := range otherTitles {
			if x == y {
				return false
			}
		}
	}
	second := t.yes(0.5)
	word := t.pick("option")
	form := t.one("**%s %s**", "## %s %s", "%s %s:", "### %s %s")
	mark := t.one("%s: ", "%s. ", "- %s – ", "- **%s** ")
	body := ""
	for k, name := range []string{"A", "B"} {
		chosen := (k == 1) == second
		t.needs, t.title = other, otherTitles
		if chosen {
			t.needs, t.title = needs, titles
		}
		t.chosen, t.id = nil, nil
		for i := range t.needs {
			t.id = append(t.id, name+strconv.Itoa(i+1))
		}
		t.ref = t.id
		body += fmt.Sprintf(form, word, name) + "\n\n" + t.lines(func(i int) string { return fmt.Sprintf(mark, t.id[i]) }, plainly) + "\n"
		if chosen {
			t.truth()
		}
	}
	name := "A"
	if second {
		name = "B"
	}
	t.wrap(body)
	t.out.Body += "\n\n" + fill(t.pick("choose"), "{o}", name)
	return true
}

// org writes outlines with states and properties, as in org-mode or a ticket system.
func (t *writer) org() bool {
	t.draw(30)
	t.codes()
	var b strings.Builder
	switch t.IntN(3) {
	case 0:
		if t.yes(0.5) {
			t.slugs("-")
		}
		b.WriteString("#+TITLE: " + t.pick("title") + "\n\n")
		for i := range t.needs {
			fmt.Fprintf(&b, "* %s %s\n  :PROPERTIES:\n  :ID: %s\n", t.one("TODO", "TODO", "NEXT", "DONE"), t.cap(t.title[i]), t.id[i])
			if len(t.needs[i]) > 0 {
				fmt.Fprintf(&b, "  :BLOCKER: %s\n", strings.Join(t.refs(t.needs[i]), " "))
			}
			b.WriteString("  :END:\n")
		}
	case 1:
		t.how.before = t.yes(0.3)
		b.WriteString("* " + t.pick("title") + "\n")
		for i := range t.needs {
			fmt.Fprintf(&b, "** TODO %s%s %s\n", t.one("", "", "[#A] ", "[#B] "), t.id[i], t.cap(t.title[i]))
			if f := t.field(i, "   %s: %s", false); f != "" {
				b.WriteString(f + "\n")
			}
		}
	case 2:
		t.how.before = t.yes(0.3)
		b.WriteString(t.pick("title") + "\n\n")
		status := t.pick("label.status")
		for i := range t.needs {
			fmt.Fprintf(&b, "%s | %s | %s: %s", t.id[i], t.cap(t.title[i]), status, t.pick("status"))
			if f := t.field(i, " | %s: %s", false); f != "" {
				b.WriteString(f)
			}
			b.WriteString("\n")
		}
	}
	t.out.Body = strings.TrimRight(b.String(), "\n")
	t.truth()
	return true
}
