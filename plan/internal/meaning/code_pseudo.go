package meaning

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// parallelStems are parts of words that say that steps run side by side, in many languages.
var parallelStems = [...]string{
	"parall", "paralel", "parallèl", "concurren", "simult", "gleichzeitig", "nebenläufig", "at once", "fork", "cobegin", "parbegin", "coend", "parend", "side by side", "together", "coroutine", "taskgroup", "task_group", "threadpool", "nursery",
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

// sequenceStems are parts of words that say that steps run one after the other.
var sequenceStems = [...]string{"sequen", "sequên", "secuen", "séquen", "sequenz", "nacheinander", "hintereinander", "последоват", "послідовн", "sekwen", "kolejn", "urutan", "berurut", "ardışık", "sırayla", "sekvens", "tuần_tự", "tuần tự", "順番", "順次", "顺序", "依次", "순서", "순차", "تسلسل", "क्रम"}

// sequenceWord reports whether the name of a function says that its arguments run one after the other.
func sequenceWord(s string) bool {
	s = strings.ToLower(s)
	for _, w := range sequenceStems {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// pseudoLine is one line with those that stand deeper below it.
type pseudoLine struct {
	text         string
	off, end     int
	indent, line int
	kids         []*pseudoLine
}

// readPseudo reads steps in blocks: BEGIN … END, PARALLEL … END PARALLEL, branches, par { a; b }, and lists of jobs that
// say what they wait for.
func readPseudo(src *form.Source, first, end int) *Reading {
	root := pseudoTree(src, first, end)
	if root == nil {
		return nil
	}
	r := &pseudo{program: newProgram(0, "pseudo code"), known: map[string]int{}, tails: map[int]string{}, joins: map[int][]string{}, src: src}
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
	if onlyListed(src.Lines[first:end]) {
		return nil
	}
	root := &pseudoLine{indent: -1}
	stack := []*pseudoLine{root}
	braces := 0
	likely, closed := false, false
	listed, lines, rules := 0, 0, 0
	var words []string
	for k := first; k < end; k++ {
		l := &src.Lines[k]
		if l.Text == "" || isComment(l.Text) || strings.HasPrefix(l.Text, "-- ") {
			continue
		}
		if strings.HasPrefix(l.Text, "@") || strings.HasPrefix(l.Text, "import ") || strings.HasPrefix(l.Text, "from ") || strings.HasPrefix(l.Text, "with ") || strings.HasPrefix(l.Text, "async ") || strings.HasPrefix(l.Text, "def ") || len(l.Text) > 300 {
			return nil
		}
		lines++
		listed += b2i(isListed(l.Text))
		rules += b2i(upper(firstWord(l.Text)) && len(firstWord(l.Text)) > 3 && (waitsFor(l.Text) || isCondition(l.Text)))
		if w := firstWord(l.Text); lexicon.Is(lexicon.Then, strings.ToLower(w)) && parallelWord(l.Text) && strings.HasSuffix(l.Text, ")") {
			likely = true // then parallel(B, C)
		}
		likely = likely || strings.Contains(l.Text, " || ") && !strings.ContainsAny(l.Text, "={\"'")
		if parallelWord(l.Text) {
			likely = likely || blockHead(src, k, end)
			closed = closed || closedBelow(src, k, end)
		}
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
			n := &pseudoLine{text: part.Text, off: part.Off, end: part.Off + len(part.Text), indent: indent, line: k}
			up := stack[len(stack)-1]
			up.kids = append(up.kids, n)
			stack = append(stack, n)
			root.end = n.end
		}
	}
	if !closed && (listed*2 >= lines || !likely && !isFrame(root.kids) && !jobVerb(words) && !spawned(root.kids) && rules < 2) {
		return nil
	}
	return root
}

// closedBelow reports whether a short line in front of a block has a line below it that ends the block:
// PARALLEL … END PARALLEL.
func closedBelow(src *form.Source, k, end int) bool {
	head := src.Lines[k].Text
	if !short(head) || isListed(head) {
		return false
	}
	for j := k + 2; j < min(end, k+60); j++ {
		if t := src.Lines[j].Text; t != "" && closes(t, head) && (parallelWord(t) || src.Lines[j].Indent == src.Lines[k].Indent && !isListed(t)) {
			return true
		}
	}
	return false
}

// onlyListed reports whether half of the lines, or more, are listed, and none says that something runs
// beside.
func onlyListed(lines []form.Line) bool {
	all, listed := 0, 0
	for i := range lines {
		if s := lines[i].Text; s != "" {
			all++
			listed += b2i(isListed(s))
		}
	}
	return listed*2 >= all && !slices.ContainsFunc(lines, func(l form.Line) bool { return parallelWord(l.Text) })
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
		return !isListed(src.Lines[n].Text) || strings.HasSuffix(l.Text, ":") && strings.Count(l.Text, " ") < 3
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
		return k+1 < len(kids) && len(kids[k+1].kids) == 0 && short(n.text) && short(kids[k+1].text) && k+2 >= len(kids)-1 && upper(firstWord(n.text)) && upper(firstWord(kids[k+1].text))
	}
	return false
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
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
var jobVerbs = setOf("启动 run job task start call do exec execute spawn step launch begin perform process invoke go async node stage action 执行 运行 调用 実行 실행 führe starte lancer exécuter ejecutar iniciar executar eseguire uruchom выполнить запустить çalıştır jalankan chạy")

// joinVerbs begin lines that wait for steps and are none themselves.
var joinVerbs = setOf("join wait await barrier sync waitall wait_all joinall warte warten attendre attends esperar espera esperer aguardar aguarde czekaj ждать жди чекай чекати bekle tunggu chờ 等待 待つ 待機 대기 기다림 انتظر")

// spawnVerbs start a step that runs beside what follows, up to a line that joins them.
var spawnVerbs = setOf("spawn fork async launch go start thread")

// pseudo is the state in which pseudo code is read.
type pseudo struct {
	*program
	src    *form.Source
	known  map[string]int
	verbs  map[string]bool
	framed bool
	par    int
	stated int
	tails  map[int]string // of an item, what stands behind its name
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
		if deep < 0 || parallelWord(kids[deep].text) || isCondition(kids[deep].text) || waitsFor(kids[deep].text) || len(kids) > deep+4 && !strings.HasSuffix(kids[deep].text, ":") {
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

// commonVerbs are the known verbs before names, if most lines that are more than a name begin with one.
func commonVerbs(lines []*pseudoLine) map[string]bool {
	out := map[string]bool{}
	total, others := 0, 0
	var visit func([]*pseudoLine)
	visit = func(ls []*pseudoLine) {
		for _, n := range ls {
			visit(n.kids)
			if len(n.kids) > 0 || parallelWord(n.text) && short(n.text) {
				continue
			}
			_, p, _ := pseudoRule(form.Piece{Text: n.text})
			if w, rest, ok := strings.Cut(p.Text, " "); ok && rest != "" && jobVerbs[strings.ToLower(w)] {
				out[w] = true
				total++
			} else if ok && !waitsFor(p.Text) && !endWords[strings.ToLower(w)] {
				others++
			}
		}
	}
	visit(lines)
	if total < others || total < 2 {
		return nil
	}
	return out
}

// block reads lines of one depth.
func (r *pseudo) block(lines []*pseudoLine, f *form.Flow, depth int) {
	if depth > 100 {
		return
	}
	wide := f.Kind == "par" && len(lines) > 1 && lines[0].line != lines[len(lines)-1].line
	for k := 0; k < len(lines); k++ {
		n := lines[k]
		if n.text == "" || len(n.kids) == 0 && k > 0 && ends(n, lines[k-1]) {
			continue
		}
		if wide && len(n.kids) == 0 {
			if j := sameLine(lines, k); j > k+1 || branchHead(n.text) > 0 { // a branch on a line of its own
				seq := f.Add("seq", 0)
				n.text, n.off = n.text[branchHead(n.text):], n.off+branchHead(n.text)
				r.block(lines[k:j], seq, depth+1)
				k = j - 1
				continue
			}
		}
		if len(n.kids) == 0 {
			if j := spawnEnd(lines, k); j > k && f.Kind != "par" {
				r.par++
				side := f.Add("par", 0)
				for _, x := range lines[k:j] {
					_, x.text, _ = strings.Cut(x.text, " ")
					x.off = x.end - len(x.text)
					r.leaf(x, side)
				}
				k = j
				continue
			}
			if parallelWord(n.text) && short(n.text) && f.Kind != "par" {
				if j := r.flatEnd(lines, k); j > k+1 { // a block that is not indented
					r.par++
					r.block(lines[k+1:j], f.Add("par", 0), depth+1)
					k = j
					continue
				}
			}
			r.leaf(n, f)
			continue
		}
		if k+1 < len(lines) && len(lines[k+1].kids) == 0 && closes(lines[k+1].text, n.text) {
			lines[k+1].text = ""
		}
		switch {
		case parallelWord(n.text):
			r.par++
			r.block(n.kids, f.Add("par", 0), depth+1)
		case isCondition(n.text) && !waitsFor(n.text):
			r.note(false, "SKIPPED_TEXT", n.text, "the condition "+n.text+" was left out; the steps below it were taken", "write the steps that are to be done", n.off)
			before := len(r.r.Items)
			r.block(n.kids, f.Add("seq", 0), depth+1)
			for _, it := range r.r.Items[before:] {
				r.note(false, "AMBIGUOUS", it.ID, it.ID+" stands below the condition "+n.text+"; it was taken as one step", "write each step that is to be done", it.Off)
			}
		case waitsFor(n.text):
			r.leaf(n, f)
			r.block(n.kids, f.Add("seq", 0), depth+1)
		default:
			r.block(n.kids, f.Add("seq", 0), depth+1)
		}
	}
}

// ends reports whether a line without any below it ends the block before it.
func ends(n, before *pseudoLine) bool {
	if parallelWord(n.text) && short(n.text) && (len(before.kids) > 0 || closes(n.text, before.text)) {
		return true
	}
	return (parallelWord(before.text) || isCondition(before.text)) && (endsWord(n.text, before.kids) || len(before.kids) > 0 && closes(n.text, before.text))
}

// isCondition reports whether a line begins with a word of a condition or a loop.
func isCondition(s string) bool {
	word, _, _ := strings.Cut(strings.ToLower(strings.Trim(s, " :")), " ")
	return conditionWords[strings.Trim(word, "(:")]
}

// waitsFor reports whether a line begins with a word that waits, and names something.
func waitsFor(s string) bool {
	word, rest, ok := strings.Cut(strings.ToLower(s), " ")
	if k := strings.IndexByte(word, '('); k > 0 {
		word, rest, ok = word[:k], word[k:], true
	}
	return ok && rest != "" && joinVerbs[strings.TrimRight(word, "(:")]
}

// sameLine returns the place behind the last statement on the line of statement k.
func sameLine(lines []*pseudoLine, k int) int {
	j := k + 1
	for j < len(lines) && lines[j].line == lines[k].line && len(lines[j].kids) == 0 {
		j++
	}
	return j
}

// branchHead returns the length of "thread 1: " or "- " at the start of a line in a block whose parts run
// side by side.
func branchHead(s string) int {
	if strings.HasPrefix(s, "- ") || strings.HasPrefix(s, "|| ") {
		return strings.IndexByte(s, ' ') + 1
	}
	head, rest, ok := strings.Cut(s, ":")
	word, mark, two := strings.Cut(head, " ")
	if !ok || !two || strings.TrimSpace(rest) == "" || utf8.RuneCountInString(mark) > 2 || lexicon.Is(lexicon.Steps, strings.ToLower(word)) {
		return 0
	}
	return len(s) - len(strings.TrimLeft(rest, " "))
}

// spawnEnd returns the place of the line that joins the steps that are started on the lines from k on, or -1.
func spawnEnd(lines []*pseudoLine, k int) int {
	j := k
	for j < len(lines) && len(lines[j].kids) == 0 {
		word, rest, _ := strings.Cut(lines[j].text, " ")
		if !spawnVerbs[strings.ToLower(word)] || rest == "" || strings.ContainsAny(rest, " ") {
			break
		}
		j++
	}
	if j == k || j >= len(lines) {
		return -1
	}
	word, _, _ := strings.Cut(strings.ToLower(lines[j].text), " ")
	if joinVerbs[strings.Trim(word, "():;")] {
		return j
	}
	return -1
}

// spawned reports whether steps are started and joined somewhere.
func spawned(lines []*pseudoLine) bool {
	for k, n := range lines {
		if spawnEnd(lines, k) > k+1 || spawned(n.kids) {
			return true
		}
	}
	return false
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
