package plan

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"

	"strconv"
	"strings"
)

// numberedItem is one line of a numbered list.
type numberedItem struct {
	id, text string
	detail   []string // the lines below it that belong to it
	line     int
	off      int
	indent   int
	heading  int
	weak     bool
	lazy     bool // its number was 1, like all others
}

// run is a numbered list: items with nothing between them but blank lines, details and continuations.
type run struct {
	items       []numberedItem
	first, last int // lines
	intro       int // line of the nearest text before it, -1 if none
	heading     int // line of the heading it stands under, -1 if none
}

// readNumbered reads numbered lists and hierarchies in any language: the whole text, the list under a heading that
// says "plan" or "steps", or the list that a sentence announces. In a hierarchy the leaves are run and parents group.
func readNumbered(d *document) *reading {
	runs, prose, headings, code := d.findRuns()
	if len(runs) == 0 {
		return nil
	}
	chosen, several := chooseRun(d, runs, prose, headings, code)
	if chosen < 0 {
		return nil
	}
	n := runs[chosen]
	if !mostlyInOrder(n.items) {
		return nil
	}
	r := &reading{}
	n.items = r.splitItems(d, n.items)
	r.start = n.items[0].off
	r.end = d.lines[n.last].off + len(d.lines[n.last].text)
	if several >= 0 {
		other := &reading{start: runs[several].items[0].off}
		other.buildHierarchy(d, runs[several].items)
		this := &reading{}
		this.buildHierarchy(d, n.items)
		if !sameGraph(this.graph, other.graph) {
			this.severalPlans(d, other)
			r.diags = append(r.diags, this.diags...)
		}
	}
	for _, it := range n.items {
		if it.lazy {
			r.diag(d, Warning, Ambiguous, it.off, it.id, "all steps have the number 1; they were numbered by their places", "number the steps")
		}
	}
	r.buildHierarchy(d, n.items)
	r.readNotes(d, n.items)
	r.checkNumbers(d, n.items)
	for _, it := range n.items {
		unbalancedText(d, r, it.text, it.off)
		if it.text == "" {
			r.diag(d, Warning, MissingField, it.off, it.id, "the step has a number and no text", "write what is to be done")
		}
	}
	r.openEnded = chosen == len(runs)-1
	return r
}

// findRuns returns the numbered lists of the text, how many lines of prose and headings it has, and whether it holds code.
func (d *document) findRuns() (runs []run, prose, headings int, code bool) {
	var cur *run
	intro, heading := -1, -1
	flush := func() {
		if cur != nil && len(cur.items) > 0 {
			runs = append(runs, *cur)
		}
		cur = nil
	}
	lettered := d.letteredItems()
	gap := 0
	for i, l := range d.lines {
		if l.fence {
			if isCodeLang(l.lang) && !l.inCode {
				code = true
			}
			continue
		}
		if l.inCode && isCodeLang(l.lang) {
			continue
		}
		if l.text == "" {
			gap++
			continue
		}
		m, ok := itemLine(l.text)
		if !ok {
			m, ok = lettered[i]
		}
		if !ok && cur != nil {
			if m.id, m.text, ok = dashNumber(l.text, cur.items[len(cur.items)-1].id); !ok {
				m = marker{}
			}
		}
		if !ok && i == 0 || !ok && intro < 0 && cur == nil {
			// "Plan: 1. first 2. second"
			if head, rest, found := strings.Cut(l.text, ":"); found && len(head) < 40 && saysPlan(head) {
				if m, ok = itemLine(strings.TrimSpace(rest)); ok && len(splitInline(m, "")) < 2 {
					ok = false
				}
			}
		}
		isHead := strings.HasPrefix(l.text, "#") && (!ok || m.heading > 0)
		if ok && isHead && cur == nil && !strings.Contains(l.text, ".") && !strings.ContainsAny(l.text, ":：、") {
			ok = false // "# 3 things"
		}
		if ok && cur != nil && m.heading > 0 && cur.items[0].heading == 0 {
			flush() // headings are not items of a plain list
			headings++
			heading, intro = i, i
		}
		if ok {
			indent := l.indent
			if cur != nil && cur.items[0].heading > 0 && m.heading == 0 {
				indent += headingIndent // a list below a heading that is an item itself
			}
			// A list that starts again is another list, unless it is nested.
			if cur != nil && indent <= cur.items[0].indent && isFirst(m.id) && cur.items[0].id == m.id && m.heading == cur.items[0].heading {
				flush()
			}
			if cur == nil {
				cur = &run{first: i, intro: intro, heading: heading}
			}
			cur.items = append(cur.items, numberedItem{id: m.id, text: m.text, line: i, off: l.off, indent: indent, heading: m.heading, weak: m.weak})
			cur.last = i
			gap = 0
			continue
		}
		detail := l.indent > 0 || strings.HasPrefix(l.text, "- ") || strings.HasPrefix(l.text, "* ") || strings.HasPrefix(l.text, "• ") || strings.HasPrefix(l.text, "+ ")
		below := cur != nil && cur.items[0].heading > 0
		switch {
		case below && (!isHead && !isBoldHeading(l.text) || isHead && headingLevel(l.text) > cur.items[0].heading):
			// What stands below a heading belongs to it.
			it := &cur.items[len(cur.items)-1]
			cur.last = i
			it.detail = append(it.detail, l.text)
		case isHead || isBoldHeading(l.text):
			flush()
			headings++
			heading, intro = i, i
		case cur != nil && detail && !strings.HasPrefix(l.text, "#"):
			cur.last = i
			it := &cur.items[len(cur.items)-1]
			it.detail = append(it.detail, l.text)
		case cur != nil && gap == 0 && !strings.HasSuffix(l.text, ":"):
			// The text of the item goes on.
			cur.last = i
			it := &cur.items[len(cur.items)-1]
			it.detail = append(it.detail, l.text)
			if it.text != "" && len(it.detail) > 1 {
				prose++ // one line below an item is its text; more is talk
			}
		default:
			flush()
			prose++
			intro = i
		}
		gap = 0
	}
	flush()
	return joinLazy(runs), prose, headings, code
}

// headingIndent is more than any heading: what stands below a heading is nested in it.
const headingIndent = 1000

func headingLevel(s string) int { return len(s) - len(strings.TrimLeft(s, "#")) }

func isFirst(id string) bool {
	switch id {
	case "1", "一", "①", "I", "i", "A", "a":
		return true
	}
	return false
}

// joinLazy makes one list of lists of one item each that all have the number 1, as Markdown allows.
func joinLazy(runs []run) []run {
	if len(runs) < 2 {
		return runs
	}
	for _, n := range runs {
		if len(n.items) != 1 || n.items[0].id != "1" {
			return runs
		}
	}
	for i, n := range runs[1:] {
		n.items[0].id = strconv.Itoa(i + 2)
		n.items[0].lazy = true
		runs[0].items = append(runs[0].items, n.items[0])
		runs[0].last = n.last
	}
	return runs[:1]
}

// splitInline splits the text of an item at the markers in it that go on counting: "a 2. b 3. c". After the last one,
// next must follow, if it is not empty.
func splitInline(m marker, next string) []marker {
	out := []marker{{id: m.id, text: m.text}}
	for len(out) < 1000 {
		last := &out[len(out)-1]
		at, n, id := nextInline(last.id, last.text)
		if at < 0 {
			break
		}
		rest := strings.TrimLeft(last.text[at+n:], " ")
		last.text = strings.TrimRight(last.text[:at], " ;；,，")
		out = append(out, marker{id: id, text: rest})
	}
	if next != "" {
		for len(out) > 1 && !isSuccessor(out[len(out)-1].id, next) {
			last := out[len(out)-1]
			out = out[:len(out)-1]
			out[len(out)-1].text += " " + last.id + ". " + last.text
		}
	}
	return out
}

// nextInline finds in text the first marker that may follow id, and returns where it starts and how long it is.
func nextInline(id, text string) (at, length int, next string) {
	at = -1
	for _, s := range successors(id) {
		for from := 0; ; {
			i := strings.Index(text[from:], s)
			if i < 0 {
				break
			}
			i += from
			from = i + len(s)
			if i == 0 || text[i-1] != ' ' || from >= len(text) {
				continue
			}
			n := 0
			for _, mark := range [...]string{". ", ") ", "、", ": ", "："} {
				if strings.HasPrefix(text[from:], mark) {
					n = len(mark)
				}
			}
			if n == 0 && strings.Contains(s, ".") && text[from] == ' ' {
				n = 1
			}
			if n > 0 && (at < 0 || i < at) {
				at, length, next = i, len(s)+n, s
			}
			break
		}
	}
	return at, length, next
}

// successors returns the numbers that may come after id: its first child, and one more at each of its levels.
func successors(id string) []string {
	out := []string{id + ".1"}
	for p := id; p != ""; {
		parent, own := "", p
		if i := strings.LastIndexByte(p, '.'); i >= 0 {
			parent, own = p[:i], p[i+1:]
		}
		n, err := strconv.Atoi(own)
		if err != nil {
			break
		}
		next := strconv.Itoa(n + 1)
		if parent != "" {
			next = parent + "." + next
		}
		out = append(out, next)
		p = parent
	}
	return out
}

func isSuccessor(id, next string) bool {
	for _, s := range successors(id) {
		if s == next {
			return true
		}
	}
	return false
}

// splitItems finds items that stand on the line of the one before them. Where the numbers leave it open, it only says so.
func (r *reading) splitItems(d *document, items []numberedItem) []numberedItem {
	out := make([]numberedItem, 0, len(items))
	for i, it := range items {
		next := ""
		if i+1 < len(items) {
			next = items[i+1].id
			if items[i+1].indent > it.indent {
				out = append(out, it)
				continue
			}
		}
		if at, _, id := nextInline(it.id, it.text); at < 0 || isSuccessor(it.id, next) && !isSuccessor(id, next) {
			out = append(out, it)
			continue
		} else if next == "" && len(items) > 1 {
			r.diag(d, Warning, Ambiguous, it.off, id, "step "+it.id+" holds a number "+id+": it may be a step of its own, and was not taken as one", "write each step on a line of its own")
			out = append(out, it)
			continue
		}
		for _, m := range splitInline(marker{id: it.id, text: it.text}, next) {
			part := it
			part.id, part.text = m.id, m.text
			if m.id != it.id {
				part.detail = nil
			}
			out = append(out, part)
		}
	}
	return out
}

func isBoldHeading(s string) bool {
	return strings.HasPrefix(s, "**") && (strings.HasSuffix(s, "**") || strings.HasSuffix(s, "**:") || strings.HasSuffix(s, ":**")) && len(s) < 100
}

func isCodeLang(lang string) bool {
	switch lang {
	case "python", "py", "code", "go", "js", "javascript", "java", "ts", "typescript", "c", "cpp", "c++", "rust", "bash", "sh", "shell", "html", "css", "sql", "mermaid", "ruby", "php":
		return true
	}
	return false
}

var planWords = [...]string{"plan", "step", "subtask", "sub-task", "tasks", "todo", "to-do", "workflow", "计划", "步骤", "规划", "任务", "流程", "étapes", "schritte", "pasos", "шаги", "план", "手順", "計画", "計劃", "步驟", "단계", "계획"}

// saysPlan reports whether a line announces a plan.
func saysPlan(s string) bool {
	t := strings.ToLower(s)
	if strings.Contains(t, "possible next") || strings.Contains(t, "review") || strings.Contains(t, "questions") {
		return false
	}
	for _, w := range planWords {
		if i := strings.Index(t, w); i >= 0 {
			if w[0] < 0x80 && i > 0 && t[i-1] >= 'a' && t[i-1] <= 'z' {
				continue // "explain" is no plan
			}
			if rest := t[i+len(w):]; w == "plan" && (strings.HasPrefix(rest, "t") || strings.HasPrefix(rest, "e")) {
				continue // plant, planet
			}
			return true
		}
	}
	return false
}

// chooseRun returns the list that is the plan, or -1, and another one that could have been.
func chooseRun(d *document, runs []run, prose, headings int, code bool) (chosen, several int) {
	chosen, several = -1, -1
	for i := range runs {
		n := &runs[i]
		if !startsLow(n.items[0].id) {
			continue
		}
		if isOtherList(d, n) {
			continue
		}
		underPlan := n.heading >= 0 && saysPlan(d.lines[n.heading].text)
		announced := n.intro >= 0 && saysPlan(d.lines[n.intro].text)
		if !underPlan && (!announced || code) {
			continue // a sentence before code announces how the code works
		}
		if chosen < 0 {
			chosen = i
			continue
		}
		several = i
		if assigned(n.items) && !assigned(runs[chosen].items) {
			chosen, several = i, chosen
		}
	}
	if chosen >= 0 {
		if several > chosen && !assigned(runs[chosen].items) && d.revised(runs[chosen].items[0].off, runs[several].items[0].off) {
			chosen, several = several, chosen
		}
		return chosen, several
	}
	n := &runs[0]
	plain := n.heading >= 0 && neutralHeading(d.lines[n.heading].text)
	if headings > 1 && !plain || code && (n.intro >= 0 || n.heading >= 0) {
		return -1, -1
	}
	if len(runs) > 1 {
		for i := range runs[1:] {
			if !sameItems(n.items, runs[i+1].items) {
				return -1, -1
			}
		}
	}
	if n.heading >= 0 && !plain {
		return -1, -1
	}
	if n.items[0].weak && prose > 0 {
		return -1, -1
	}
	if !startsLow(n.items[0].id) {
		return -1, -1
	}
	if isOtherList(d, n) || soundsLikeTalk(d, n) {
		return -1, -1
	}
	if prose == 0 {
		return 0, -1
	}
	most := max(2, min(4, len(n.items)/2))
	if isHierarchy(n.items) {
		most = 4 // numbers such as 1.2 are rare in talk
	}
	if len(n.items) >= 2 && prose <= most {
		return 0, -1
	}
	return -1, -1
}

func isHierarchy(items []numberedItem) bool {
	for _, it := range items {
		if strings.IndexByte(it.id, '.') > 0 {
			return true
		}
	}
	return false
}

func sameItems(a, b []numberedItem) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].id != b[i].id || squeeze(a[i].text) != squeeze(b[i].text) {
			return false
		}
	}
	return true
}

// neutralHeading reports whether a heading only says that something follows.
func neutralHeading(s string) bool {
	switch strings.ToLower(strings.Trim(s, "#*: ")) {
	case "answer", "result", "output", "response", "solution", "reply", "final answer", "答案", "结果", "回答", "输出":
		return true
	}
	return false
}

func startsLow(id string) bool {
	return isFirst(id) || id == "0" || id == "00" || id == "01" || strings.HasPrefix(id, "1.") || strings.HasPrefix(id, "0.") || id == "❶" || id == "⑴" || id == "⒈"
}

// assigned reports whether every item names who does it, as in "WebSearcher: find …".
func assigned(items []numberedItem) bool {
	for k, it := range items {
		i := strings.IndexByte(it.text, ':')
		if i < 0 && k > 0 && k == len(items)-1 && form.IsName(it.text) {
			continue // the text may have been cut off inside a name
		}
		if i <= 0 || i > 40 || !form.IsName(strings.Trim(it.text[:i], "*` ")) {
			return false
		}
	}
	return true
}

// mostlyInOrder reports whether the numbers count up; numbers that jump about are data, not a list.
func mostlyInOrder(items []numberedItem) bool {
	jumps := 0
	for i := 1; i < len(items); i++ {
		if items[i].indent == items[i-1].indent && isDecimal(items[i].id) && isDecimal(items[i-1].id) && !follows(items[i-1].id, items[i].id) {
			jumps++
		}
	}
	return jumps*3 <= len(items)
}

func isDecimal(id string) bool { return strings.Trim(id, "0123456789.") == "" }

// follows reports whether the number b can come after a: it goes deeper, or on at some level by one or two.
func follows(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range bs {
		if i >= len(as) {
			return true
		}
		if as[i] == bs[i] {
			continue
		}
		x, err1 := strconv.Atoi(as[i])
		y, err2 := strconv.Atoi(bs[i])
		return err1 != nil || err2 != nil || y > x && y <= x+2
	}
	return false
}

// buildHierarchy makes problems of items. Numbers such as 1.2 say their parents; an indented list that starts again at
// 1 belongs to the item above it.
func (r *reading) buildHierarchy(d *document, items []numberedItem) {
	type level struct {
		indent int
		id     string // of the last item at this level
		parent string // of the items at this level
	}
	var levels []level
	for _, it := range items {
		id := it.id
		var parent string
		if i := strings.LastIndexAny(id, ".-"); i > 0 {
			parent = id[:i]
			if j := strings.IndexByte(id, '-'); j > 0 {
				parent = id[:j]
			}
			levels = append(levels[:0], level{indent: it.indent, id: id})
		} else {
			for len(levels) > 0 && it.indent < levels[len(levels)-1].indent {
				levels = levels[:len(levels)-1]
			}
			if len(levels) == 0 {
				levels = append(levels, level{indent: it.indent})
			} else if top := levels[len(levels)-1]; it.indent > top.indent && len(levels) < d.limits.MaxDepth {
				levels = append(levels, level{indent: it.indent, parent: top.id})
			}
			top := &levels[len(levels)-1]
			if parent = top.parent; parent != "" {
				id = parent + "." + id
			}
			top.id = id
		}
		request := strings.ReplaceAll(it.text, "**", "")
		if len(it.detail) > 0 {
			request += "\n" + strings.ReplaceAll(strings.Join(it.detail, "\n"), "**", "")
		}
		p := d.problem(id, request, it.off)
		p.ParentID = parent
		p.Refs = scanRefs(request)
		for k := range p.Refs {
			p.Refs[k].Line, p.Refs[k].Column = p.Line, p.Column
		}
		r.graph.Problems = append(r.graph.Problems, p)
	}
}

// checkNumbers warns of numbers that are missing, because a step may have been lost with them.
func (r *reading) checkNumbers(d *document, items []numberedItem) {
	last := map[string]int{}
	for i, p := range r.graph.Problems {
		own := p.ID[strings.LastIndexByte(p.ID, '.')+1:]
		n := 0
		for _, c := range []byte(own) {
			if c < '0' || c > '9' || n > 1_000_000 {
				n = -1
				break
			}
			n = n*10 + int(c-'0')
		}
		if n < 0 {
			continue
		}
		if prev, ok := last[p.ParentID]; ok && n != prev+1 && n != prev || !ok && n > 1 {
			r.diag(d, Warning, NumberingGap, items[i].off, p.ID, "step "+p.ID+" does not follow the number before it: a step may be missing", "number the steps one by one")
			for k := prev + 1; ok && k < n && k < prev+20; k++ {
				missing := strconv.Itoa(k)
				if p.ParentID != "" {
					missing = p.ParentID + "." + missing
				}
				r.diag(d, Warning, NumberingGap, items[i].off, missing, "there is no step "+missing+": it may be missing, or be part of the text before step "+p.ID, "number the steps one by one")
			}
		}
		last[p.ParentID] = n
	}
}
