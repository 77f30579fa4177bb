package plan

import (
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
	r.start = n.items[0].off
	r.end = d.lines[n.last].off + len(d.lines[n.last].text)
	if several >= 0 {
		r.diag(d, Warning, SeveralPlans, runs[several].items[0].off, runs[several].items[0].text, "the text holds another numbered list that may be a plan; the one at line "+strconv.Itoa(n.first+1)+" was read", "ask for one list")
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

// itemLine reads "1. text", "**1.** text", "- 1.2 text", "### Step 3: text", "第一步：text".
func itemLine(s string) (id, text string, ok bool) {
	t := s
	if strings.HasPrefix(t, "#") {
		t = strings.TrimLeft(t, "# ")
	}
	if len(t) > 1 && (t[0] == '-' || t[0] == '*' || t[0] == '+') && t[1] == ' ' {
		t = strings.TrimLeft(t[2:], " ")
	}
	bold := strings.HasPrefix(t, "**")
	if bold {
		t = t[2:]
	}
	if n, rest, ok := wideNumber(t); ok {
		return n, strings.TrimSpace(rest), true
	}
	num, rest, ok := cutNumber(asciiDigits(t))
	if !ok {
		for _, w := range [...]string{"Step", "Task", "Subtask", "Phase", "Étape", "Schritt", "Paso", "Шаг", "步骤", "任务", "ステップ"} {
			if !hasFold(t, w) {
				continue
			}
			after := strings.TrimLeft(t[len(w):], " #")
			num, rest, ok = cutNumber(asciiDigits(after))
			if ok && rest != "" && strings.TrimLeft(after[min(len(num), len(after)):], " ") == rest && strings.IndexByte("-*", rest[0]) < 0 && !strings.HasPrefix(rest, "–") && !strings.HasPrefix(rest, "—") {
				ok = false // "Task 2 and 3 depend on it" is no item
			}
			break
		}
	}
	if !ok {
		return "", "", false
	}
	if bold {
		rest = strings.Replace(rest, "**", "", 1)
	}
	return num, strings.TrimSpace(strings.TrimLeft(rest, " :：-–—")), true
}

// asciiDigits turns full-width and Arabic digits at the start of s into ASCII ones.
func asciiDigits(s string) string {
	if s == "" || s[0] < 0x80 {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		switch {
		case '０' <= c && c <= '９':
			b.WriteRune(c - '０' + '0')
		case '٠' <= c && c <= '٩':
			b.WriteRune(c - '٠' + '0')
		case '۰' <= c && c <= '۹':
			b.WriteRune(c - '۰' + '0')
		case c == '．' && b.Len() > 0:
			b.WriteByte('.')
		case '0' <= c && c <= '9' || c == '.':
			b.WriteRune(c)
		default:
			if b.Len() == 0 {
				return s
			}
			return b.String() + s[i:]
		}
	}
	return b.String()
}

const wideDigits = "一二三四五六七八九十"

// wideNumber reads "一、text", "（二）text", "第三步：text" and "①text"; the id is what stands there.
func wideNumber(s string) (id, rest string, ok bool) {
	if s == "" || s[0] < 0x80 && s[0] != '(' {
		return "", s, false
	}
	t := s
	paren := ""
	if strings.HasPrefix(t, "（") {
		paren, t = "）", t[len("（"):]
	} else if strings.HasPrefix(t, "第") {
		paren, t = "步", t[len("第"):]
	} else if t[0] == '(' {
		paren, t = ")", t[1:]
	}
	n := 0
	for _, c := range t {
		if !strings.ContainsRune(wideDigits, c) {
			break
		}
		n += len(string(c))
	}
	if n == 0 || n > 9 {
		return "", s, false
	}
	id, rest = t[:n], t[n:]
	if paren != "" {
		if !strings.HasPrefix(rest, paren) {
			return "", s, false
		}
		return id, strings.TrimLeft(rest[len(paren):], " ：:、，"), true
	}
	for _, m := range []string{"、", "．", ".", "："} {
		if strings.HasPrefix(rest, m) {
			return id, rest[len(m):], true
		}
	}
	return "", s, false
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
		id, text, ok := itemLine(l.text)
		isHead := strings.HasPrefix(l.text, "#")
		if ok && isHead && cur == nil && !strings.Contains(l.text, ".") && !strings.Contains(l.text, ":") {
			ok = false // "# 3 things"
		}
		if ok {
			// A list that starts again is another list, unless it is nested.
			if cur != nil && (id == "1" || id == "一") && l.indent <= cur.items[0].indent && len(cur.items) > 0 && cur.items[0].id == id {
				flush()
			}
			if cur == nil {
				cur = &run{first: i, intro: intro, heading: heading}
			}
			cur.items = append(cur.items, numberedItem{id: id, text: text, line: i, off: l.off, indent: l.indent})
			cur.last = i
			gap = 0
			continue
		}
		detail := l.indent > 0 || strings.HasPrefix(l.text, "- ") || strings.HasPrefix(l.text, "* ") || strings.HasPrefix(l.text, "• ") || strings.HasPrefix(l.text, "+ ")
		switch {
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
			prose++
		default:
			flush()
			prose++
			intro = i
		}
		gap = 0
	}
	flush()
	return runs, prose, headings, code
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
		return chosen, several
	}
	if headings > 1 || code || len(runs) > 1 {
		return -1, -1
	}
	n := &runs[0]
	if n.heading >= 0 && !neutralHeading(d.lines[n.heading].text) {
		return -1, -1
	}
	if !startsLow(n.items[0].id) {
		return -1, -1
	}
	if prose == 0 {
		return 0, -1
	}
	if len(n.items) >= 2 && prose <= max(2, min(4, len(n.items)/2)) && !soundsLikeTalk(d, n) {
		return 0, -1
	}
	return -1, -1
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
	return id == "0" || id == "1" || id == "一" || strings.HasPrefix(id, "1.") || strings.HasPrefix(id, "0.")
}

// assigned reports whether every item names who does it, as in "WebSearcher: find …".
func assigned(items []numberedItem) bool {
	for k, it := range items {
		i := strings.IndexByte(it.text, ':')
		if i < 0 && k > 0 && k == len(items)-1 && isName(it.text) {
			continue // the text may have been cut off inside a name
		}
		if i <= 0 || i > 40 || !isName(strings.Trim(it.text[:i], "*` ")) {
			return false
		}
	}
	return true
}

// mostlyInOrder reports whether the numbers count up; numbers that jump about are data, not a list.
func mostlyInOrder(items []numberedItem) bool {
	jumps := 0
	for i := 1; i < len(items); i++ {
		if items[i].indent == items[i-1].indent && !follows(items[i-1].id, items[i].id) {
			jumps++
		}
	}
	return jumps*3 <= len(items)
}

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

// soundsLikeTalk reports whether the prose around a list asks or refuses rather than announces.
func soundsLikeTalk(d *document, n *run) bool {
	questions := 0
	for _, it := range n.items {
		if strings.HasSuffix(it.text, "?") || strings.HasSuffix(it.text, "？") {
			questions++
		}
	}
	return questions*2 > len(n.items) || isRefusal(d.text)
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
		if i := strings.LastIndexByte(id, '.'); i > 0 {
			parent = id[:i]
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
		}
		last[p.ParentID] = n
	}
}
