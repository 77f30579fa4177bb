package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// parallelStems are parts of words that say that steps run side by side, in many languages.
var parallelStems = [...]string{
	"parall", "paralel", "parallèl", "concurren", "simult", "gleichzeitig", "nebenläufig", "at once", "fork", "cobegin", "side by side", "together", "coroutine", "taskgroup", "task_group", "threadpool", "nursery",
	"paralelo", "paralela", "a la vez", "al mismo tiempo", "ao mesmo tempo", "en même temps", "tegelijk", "gelijktijdig", "samtidig", "samtidigt", "równoleg", "współbież", "jednocześ", "паралл", "парал", "одноврем", "одночас",
	"aynı anda", "eşzaman", "eş zaman", "bersamaan", "serentak", "sekaligus", "song song", "đồng thời", "cùng lúc", "並列", "並行", "同時", "并行", "并列", "同时", "병렬", "동시", "متواز", "بالتواز", "في نفس الوقت", "समानांतर", "एक साथ", "साथ-साथ", "par {", "par:",
}

// conditionWords begin blocks that run on a condition or again and again.
var conditionWords = setOf("if else elif elseif elsif unless while for foreach loop repeat until switch case when try catch wenn falls solange wiederhole sonst si sinon tant pour mientras para cada sino enquanto se senão als zolang als dopóki jeśli gdy если пока для иначе якщо поки eğer iken jika selama untuk nếu khi trong 如果 当 循环 若 もし 繰り返し 만약 반복 अगर जब إذا")

// parallelWord reports whether words say that what follows runs side by side.
func parallelWord(s string) bool {
	s = strings.ToLower(s)
	if w := strings.Trim(s, " :{}()[]"); w == "par" || w == "all" || w == "in par" {
		return w != "all"
	}
	for _, w := range parallelStems {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// pseudoLine is one line with those that stand deeper below it.
type pseudoLine struct {
	text     string
	off, end int
	indent   int
	kids     []*pseudoLine
}

// readPseudo reads steps in blocks: BEGIN … END, PARALLEL … END PARALLEL, branches, par { a; b }, and lists of jobs that
// say what they wait for.
func readPseudo(src *form.Source, first, end int) *Reading {
	root := pseudoTree(src, first, end)
	if root == nil {
		return nil
	}
	r := &pseudo{program: newProgram(0, "pseudo code"), known: map[string]int{}, src: src}
	parts := r.frame(root.kids)
	f := &form.Flow{Kind: "seq"}
	r.verbs = commonVerbs(parts)
	r.block(parts, f, 0)
	if len(r.r.Items) < 2 {
		return nil
	}
	r.needs()
	switch {
	case r.par > 0 && r.stated == 0:
		f.Order(nil, 0, func(a, b int) { r.link(a, b, Stated, r.r.Items[b].Off) })
	case r.stated == 0 && r.framed:
		f.Order(nil, 0, func(a, b int) { r.link(a, b, ListedOrder, r.r.Items[b].Off) })
	case r.stated == 0:
		return nil
	}
	r.r.Stated = true
	r.r.Weight = 91
	if r.par == 0 {
		r.r.Weight = 70
		if r.stated > 0 && len(r.verbs) > 0 {
			r.r.Weight = 91
		}
	}
	out := r.reading()
	out.Start = src.Lines[first].Off
	if root.kids != nil {
		out.Start = root.kids[0].off
		out.End = max(out.End, root.end)
	}
	out.Open = !r.framed
	return out
}

// pseudoTree brings lines into a tree by their indents and braces. It returns nil when nothing in the lines looks like
// pseudo code: no block and no list of jobs.
func pseudoTree(src *form.Source, first, end int) *pseudoLine {
	if mostlyListed(src.Lines[first:end]) {
		return nil
	}
	root := &pseudoLine{indent: -1}
	stack := []*pseudoLine{root}
	braces := 0
	likely := false
	var words []string
	for k := first; k < end; k++ {
		l := &src.Lines[k]
		if l.Text == "" {
			continue
		}
		if strings.HasPrefix(l.Text, "@") || strings.HasPrefix(l.Text, "import ") || strings.HasPrefix(l.Text, "from ") || strings.HasPrefix(l.Text, "with ") || strings.HasPrefix(l.Text, "async ") || strings.HasPrefix(l.Text, "def ") || len(l.Text) > 300 {
			return nil
		}
		likely = likely || parallelWord(l.Text) && blockHead(src, k, end)
		if w := strings.Fields(l.Text); len(w) > 1 && !strings.HasSuffix(w[1], ":") && !strings.HasSuffix(w[1], ".") {
			words = append(words, w[0])
		}
		for _, part := range splitBraces(l.Text, l.Off) {
			if part.Text == "{" {
				braces++
				continue
			}
			if part.Text == "}" {
				braces = max(0, braces-1)
				continue
			}
			indent := l.Indent + braces*100
			if braces > 0 {
				indent = braces * 100
			}
			for len(stack) > 1 && stack[len(stack)-1].indent >= indent {
				stack = stack[:len(stack)-1]
			}
			if len(stack) > src.MaxDepth {
				return nil
			}
			n := &pseudoLine{text: part.Text, off: part.Off, end: part.Off + len(part.Text), indent: indent}
			up := stack[len(stack)-1]
			up.kids = append(up.kids, n)
			stack = append(stack, n)
			root.end = n.end
		}
	}
	if !likely && !isFrame(root.kids) && !jobVerb(words) {
		return nil
	}
	return root
}

// mostlyListed reports whether half of the lines, or more, are listed.
func mostlyListed(lines []form.Line) bool {
	all, listed := 0, 0
	for i := range lines {
		if s := lines[i].Text; s != "" {
			all++
			listed += b2i(isListed(s))
		}
	}
	return listed*2 >= all
}

// isListed reports whether a line is an entry of a list, a row of a table or part of a value, which others read.
func isListed(s string) bool {
	_, _, marked := form.SplitMark(form.Piece{Text: s})
	return strings.IndexByte("-*|<\"[>#", s[0]) >= 0 || strings.HasPrefix(s, "•") || leadNumber(s) > 0 || marked && strings.ContainsAny(s[:min(len(s), 6)], "0123456789") || strings.HasSuffix(s, ",") || isField(s)
}

// isField reports whether a line is a key with a value.
func isField(s string) bool {
	key, value, ok := strings.Cut(s, ": ")
	return ok && !strings.ContainsAny(key, " (") && strings.TrimSpace(value) != ""
}

// blockHead reports whether line k begins a block: it is short, and what follows stands deeper or a line ends it.
func blockHead(src *form.Source, k, end int) bool {
	l := &src.Lines[k]
	if strings.Contains(l.Text, "{") && !isListed(l.Text) {
		return true
	}
	if len(l.Text) > 60 || strings.Count(l.Text, " ") > 4 || isListed(l.Text) || strings.HasSuffix(l.Text, ".") {
		return false
	}
	n := k + 1
	for n < end && src.Lines[n].Text == "" {
		n++
	}
	if n < end && src.Lines[n].Indent > l.Indent {
		return !isListed(src.Lines[n].Text)
	}
	for j := k + 1; j < min(end, k+60); j++ {
		if closes(src.Lines[j].Text, l.Text) {
			return j > k+1
		}
	}
	return false
}

// splitBraces splits a line at braces and semicolons outside quotes and round brackets.
func splitBraces(s string, off int) (out []form.Piece) {
	if !strings.ContainsAny(s, "{};") {
		return []form.Piece{{Text: s, Off: off}}
	}
	start, depth := 0, 0
	cut := func(i int) {
		t := s[start:i]
		u := strings.TrimLeft(t, " \t,")
		if v := strings.TrimRight(u, " \t"); v != "" {
			out = append(out, form.Piece{Text: v, Off: off + start + len(t) - len(u)})
		}
		start = i + 1
	}
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth > 0:
		case c == '{' || c == '}':
			cut(i)
			out = append(out, form.Piece{Text: s[i : i+1], Off: off + i})
		case c == ';':
			cut(i)
		}
	}
	cut(len(s))
	return out
}

// isFrame reports whether lines are a first and a last short one around one indented block.
func isFrame(kids []*pseudoLine) bool {
	for k, n := range kids {
		if len(n.kids) < 2 {
			continue
		}
		return k+1 < len(kids) && len(kids[k+1].kids) == 0 && short(n.text) && short(kids[k+1].text) && k+2 >= len(kids)-1 && upper(n.text)
	}
	return false
}

func short(s string) bool { return len(s) < 40 && strings.Count(s, " ") < 4 }

// upper reports whether a line is in capitals, or in letters that have none.
func upper(s string) bool { return strings.ToUpper(s) == s }

// jobVerb reports whether most lines begin with one word, as "job a", "job b WAIT FOR a".
func jobVerb(words []string) bool {
	count := map[string]int{}
	for _, w := range words {
		if count[w]++; jobVerbs[strings.ToLower(w)] && count[w] >= 2 && count[w]*2 >= len(words) {
			return true
		}
	}
	n := 0
	for _, w := range words {
		n += b2i(jobVerbs[strings.ToLower(w)])
	}
	return n >= 3 && n*2 > len(words)
}

// jobVerbs stand before the name of a step and say nothing else.
var jobVerbs = setOf("run job task start call do exec execute spawn step launch begin perform process invoke go async node stage action 执行 运行 调用 実行 실행 führe starte lancer exécuter ejecutar iniciar executar eseguire uruchom выполнить запустить çalıştır jalankan chạy")

// joinVerbs begin lines that wait for steps and are none themselves.
var joinVerbs = setOf("join wait await barrier sync waitall wait_all joinall warte attendre esperar aguardar")

// pseudo is the state in which pseudo code is read.
type pseudo struct {
	*program
	src    *form.Source
	known  map[string]int
	verbs  map[string]bool
	framed bool
	par    int
	stated int
	tails  []string // of each item, what stands behind its name
	joins  map[int][]string
	wait   []string
}

// frame drops what stands around the plan: the outermost begin and end, prose before and behind.
func (r *pseudo) frame(kids []*pseudoLine) []*pseudoLine {
	for range 5 {
		deep := -1
		for k, n := range kids {
			if len(n.kids) > 0 {
				if deep >= 0 {
					return kids
				}
				deep = k
			}
		}
		if deep < 0 || parallelWord(kids[deep].text) || len(kids) > deep+4 && !strings.HasSuffix(kids[deep].text, ":") {
			return kids
		}
		head := kids[deep]
		closed := deep+1 < len(kids) && short(kids[deep+1].text) && len(kids[deep+1].kids) == 0
		if !closed && len(head.kids) < 2 {
			return kids
		}
		if deep > 0 && !strings.ContainsAny(kids[deep-1].text, " ") && !closed {
			return kids
		}
		r.framed = r.framed || closed && len(kids) <= deep+3
		kids = head.kids
		if len(kids) == 1 && len(kids[0].kids) == 0 {
			return kids
		}
	}
	return kids
}

// commonVerbs are the verbs before names: those that are known, and one with which most lines begin.
func commonVerbs(lines []*pseudoLine) map[string]bool {
	count, leaves := map[string]int{}, 0
	var visit func([]*pseudoLine)
	visit = func(ls []*pseudoLine) {
		for _, n := range ls {
			if len(n.kids) == 0 {
				leaves++
				if w, rest, ok := strings.Cut(n.text, " "); ok && rest != "" && jobVerbs[strings.ToLower(w)] {
					count[w]++
				}
			}
			visit(n.kids)
		}
	}
	visit(lines)
	out := map[string]bool{}
	total := 0
	for w, n := range count {
		out[w] = true
		total += n
	}
	if total*2 < leaves {
		return nil
	}
	return out
}

// block reads lines of one depth.
func (r *pseudo) block(lines []*pseudoLine, f *form.Flow, depth int) {
	if depth > 100 {
		return
	}
	for k := 0; k < len(lines); k++ {
		n := lines[k]
		if len(n.kids) == 0 {
			if parallelWord(n.text) && short(n.text) && k > 0 && (len(lines[k-1].kids) > 0 || closes(n.text, lines[k-1].text)) {
				continue // the end of a block
			}
			if parallelWord(n.text) && short(n.text) && f.Kind != "par" {
				if j := r.flatEnd(lines, k); j > k+1 { // a block that is not indented
					r.par++
					r.side(lines[k+1:j], f.Add("par", 0), depth)
					k = j
					continue
				}
			}
			if k > 0 && parallelWord(lines[k-1].text) && endsWord(n.text, lines[k-1].kids) {
				continue
			}
			r.leaf(n, f)
			continue
		}
		if k+1 < len(lines) && len(lines[k+1].kids) == 0 && closes(lines[k+1].text, n.text) {
			defer func(at *pseudoLine) { at.text = "" }(lines[k+1])
			lines[k+1].text = ""
		}
		head := strings.ToLower(strings.Trim(n.text, " :"))
		word, _, _ := strings.Cut(head, " ")
		switch {
		case parallelWord(n.text):
			r.par++
			r.side(n.kids, f.Add("par", 0), depth)
		case conditionWords[strings.Trim(word, "(:")]:
			r.note(false, "SKIPPED_TEXT", n.text, "the condition "+n.text+" was left out; the steps below it were taken", "write the steps that are to be done", n.off)
			r.block(n.kids, f.Add("seq", 0), depth+1)
		default:
			r.block(n.kids, f.Add("seq", 0), depth+1)
		}
	}
}

// endsWord reports whether a line is one word behind a block whose lines all hold several: it ends the block.
func endsWord(s string, kids []*pseudoLine) bool {
	for _, n := range kids {
		if !strings.Contains(n.text, " ") {
			return false
		}
	}
	return len(kids) > 0 && !strings.ContainsAny(s, " _(")
}

// side reads what stands in a parallel block: branches with steps below them, or single steps.
func (r *pseudo) side(lines []*pseudoLine, f *form.Flow, depth int) {
	r.block(lines, f, depth+1)
}

// flatEnd returns where the line stands that ends the block of line k, or -1.
func (r *pseudo) flatEnd(lines []*pseudoLine, k int) int {
	for j := k + 1; j < len(lines) && j < k+200; j++ {
		if lines[j].text != "" && closes(lines[j].text, lines[k].text) {
			return j
		}
	}
	return -1
}

// closes reports whether a line ends the block that another one begins: it holds its words and one more, or is short
// and in capitals as the other is.
func closes(s, head string) bool {
	if s == "" || head == "" || !short(s) {
		return false
	}
	s, head = strings.ToLower(strings.Trim(s, " :()")), strings.ToLower(strings.Trim(head, " :()"))
	if s == "}" || s == "end" || s == "done" || s == "fin" || s == "ende" || s == "join" || s == "fim" || s == "конец" || s == "结束" {
		return true
	}
	if strings.Contains(s, head) && len(s) > len(head) && utf8.RuneCountInString(s)-utf8.RuneCountInString(head) < 16 {
		return true
	}
	word := head
	if i := strings.LastIndexByte(head, ' '); i >= 0 {
		word = head[i+1:]
	} else if i := strings.IndexByte(head, ' '); i > 0 {
		word = head[:i]
	}
	return len(word) > 3 && strings.Contains(s, word) && len(s) > len(word) && (parallelWord(s) || strings.HasPrefix(s, "end"))
}

// leaf adds the step of one line.
func (r *pseudo) leaf(n *pseudoLine, f *form.Flow) {
	text := n.text
	for _, mark := range [...]string{" //", "  #", " # "} {
		if i := strings.Index(text, mark); i > 0 {
			text = strings.TrimSpace(text[:i])
		}
	}
	text = strings.TrimRight(text, " ;,.")
	p := cutBullet(form.Piece{Text: text, Off: n.off})
	if p.Text == "" {
		return
	}
	word, rest, _ := strings.Cut(p.Text, " ")
	word = strings.TrimRight(word, "(:")
	if joinVerbs[strings.ToLower(word)] {
		if inner := strings.Trim(strings.TrimPrefix(p.Text, word), " ()[]"); inner != "" {
			r.wait = append(r.wait, inner)
		}
		return
	}
	if r.verbs[word] && rest != "" {
		p = form.Piece{Text: strings.TrimSpace(rest), Off: p.Off + len(p.Text) - len(rest)}
	} else if len(r.verbs) > 0 && r.par == 0 {
		r.note(false, "SKIPPED_TEXT", p.Text, "this line was left out: "+p.Text, "begin it as the other lines begin", p.Off)
		return
	}
	id, title, shown := pseudoName(p.Text)
	tail := ""
	if len(r.verbs) > 0 && !shown {
		if a, b, ok := strings.Cut(p.Text, " "); ok {
			id, tail, title, shown = strings.Trim(a, ":,"), b, p.Text, true
		}
	}
	if !shown {
		id = itoa(len(r.r.Items) + 1)
	}
	k := r.item(id, title, shown, p.Off, n.end)
	r.known[id] = k
	r.tails = append(r.tails, tail)
	if r.wait != nil {
		if r.joins == nil {
			r.joins = map[int][]string{}
		}
		r.joins[k], r.wait = r.wait, nil
	}
	f.Add("step", k)
}

// pseudoName returns the id that a line is: one word, or a call without arguments.
func pseudoName(s string) (id, title string, shown bool) {
	t := s
	if i := strings.IndexByte(t, '('); i > 0 && strings.HasSuffix(t, ")") {
		t = t[:i]
	}
	if strings.ContainsAny(t, " \t") {
		return "", s, false
	}
	if t == s && !strings.Contains(t, "_") && utf8.RuneCountInString(t) < 2 {
		return t, s, true
	}
	for _, c := range t {
		if c >= 0x2e80 && t == s { // words of languages without spaces are no identifiers
			return "", s, false
		}
	}
	return t, s, true
}

// needs reads what stands behind the names of jobs: words and then ids of other jobs.
func (r *pseudo) needs() {
	for k, tail := range r.tails {
		it := &r.r.Items[k]
		found := 0
		for _, w := range strings.FieldsFunc(tail, func(c rune) bool { return strings.ContainsRune(" ,()[]&+;", c) }) {
			if x, ok := r.known[w]; ok && x != k {
				r.link(x, k, Stated, it.Off)
				found++
			} else if ok {
				r.r.Links = append(r.r.Links, Link{From: it.ID, To: it.ID, Source: Stated, Off: it.Off})
				found++
			} else if found > 0 || strings.ContainsAny(w, "_0123456789") {
				r.r.Links = append(r.r.Links, Link{From: w, To: it.ID, Source: Stated, Off: it.Off})
			}
		}
		r.stated += found
		for _, inner := range r.joins[k] {
			for _, w := range strings.FieldsFunc(inner, func(c rune) bool { return strings.ContainsRune(" ,()[]&+;", c) }) {
				if x, ok := r.known[w]; ok {
					r.link(x, k, Stated, it.Off)
					r.stated++
				}
			}
		}
	}
}
