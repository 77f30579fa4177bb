package meaning

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// openers are the roles of lines that begin a block of steps.
const openers = lexicon.BlockParallel | lexicon.BlockSequence | lexicon.BlockIf | lexicon.BlockElse | lexicon.BlockLoop | lexicon.BlockBranch | lexicon.BlockBegin

// parallelWord reports whether words say that the following lines run in parallel.
func parallelWord(s string) bool {
	s = lexicon.Fold(s)
	if w := strings.Trim(s, " :{}()[]"); w == "par" || w == "in par" {
		return true
	}
	return lexicon.HasBlock(lexicon.BlockParallel, s)
}

// sequenceWord reports whether words say that the following lines, or the arguments of a function, run one
// after the other.
func sequenceWord(s string) bool {
	s = lexicon.Fold(s)
	return s == "seq" || lexicon.HasBlock(lexicon.BlockSequence, strings.ReplaceAll(s, "_", " "))
}

// pseudoLine is a line with the lines that are indented below it.
type pseudoLine struct {
	text         string
	off, end     int
	indent, line int
	kids         []*pseudoLine
	// fold is the folded text. lead is the role of its first leadEnd bytes.
	fold    string
	lead    lexicon.Block
	leadEnd int
	// closed is set if a later line ends the block that this line begins.
	closed bool
}

func newPseudoLine(p form.Piece, indent, line int) *pseudoLine {
	n := &pseudoLine{text: p.Text, off: p.Off, end: p.Off + len(p.Text), indent: indent, line: line}
	n.classify()
	return n
}

// classify looks up the role of the first words of a line.
func (n *pseudoLine) classify() {
	n.fold = strings.Trim(lexicon.Fold(n.text), " :：{}[]<>#*-=;,.|\"'`…")
	n.lead, n.leadEnd = lexicon.LeadingBlock(strings.ReplaceAll(n.fold, "_", " "))
}

// is reports whether the line begins with a word of one of the roles.
func (n *pseudoLine) is(b lexicon.Block) bool { return n.lead&b != 0 }

// alone reports whether the line consists of a word with one of the roles.
func (n *pseudoLine) alone(b lexicon.Block) bool {
	return n.is(b) && strings.Trim(n.fold[n.leadEnd:], " ()") == ""
}

// parallel reports whether the line says that the following lines run in parallel.
func (n *pseudoLine) parallel() bool { return parallelWord(n.text) }

// conditional reports whether the line begins with a word for a condition or a loop.
func (n *pseudoLine) conditional() bool {
	return n.is(lexicon.BlockIf | lexicon.BlockElse | lexicon.BlockLoop)
}

// opens reports whether the line may begin a block: it is short and begins with a word for one.
func (n *pseudoLine) opens() bool {
	return len(n.text) < 120 && n.conditional() || short(n.text) && (n.parallel() || n.is(lexicon.BlockSequence|lexicon.BlockBegin) && (n.alone(openers) || capitals(firstWord(n.text))))
}

// ends reports whether the line ends the block of head: END, END PARALLEL, coend, FIN SI, 並列終わり, or the words
// of the head and one more. head is nil if any block will do.
func (n *pseudoLine) ends(head *pseudoLine) bool {
	if len(n.kids) > 0 || !short(n.text) || n.fold == "" {
		return n.text == "}" && len(n.kids) == 0
	}
	if strings.HasSuffix(n.text, ":") || strings.HasSuffix(n.text, "{") {
		return false
	}
	if n.is(lexicon.BlockEnd) && (head.blockish(n.fold[n.leadEnd:]) || head != nil && capitals(firstWord(n.text)) && strings.Count(n.fold, " ") < 2) {
		return true
	}
	if head == nil {
		return false
	}
	h := strings.Trim(head.fold, " ()")
	if strings.Contains(n.fold, h) && len(n.fold) > len(h) && utf8.RuneCountInString(n.fold)-utf8.RuneCountInString(h) < 16 && head.lead&openers != 0 {
		return true
	}

	word := h[strings.LastIndexByte(h, ' ')+1:]
	return len(word) > 3 && head.parallel() && n.parallel() && strings.Contains(n.fold, word) && len(n.fold) > len(word)
}

// blockish reports whether words are empty, name a kind of block, or are among the words of the head n, which
// may be nil.
func (n *pseudoLine) blockish(s string) bool {
	s = strings.Trim(s, " _-()")
	if s == "" || parallelWord(s) || sequenceWord(s) {
		return true
	}
	b, k := lexicon.LeadingBlock(s)
	if b&openers != 0 && len(strings.Fields(s[k:])) < 2 {
		return true
	}
	return n != nil && (strings.HasPrefix(n.fold, s) || n.is(lexicon.BlockLoop|lexicon.BlockBegin) && strings.Contains(n.fold, s))
}

// separates reports whether the line separates the branches of a block: and, fork again, ||.
func (n *pseudoLine) separates() bool {
	return n.alone(lexicon.BlockBranch) && !strings.HasSuffix(n.text, ":") || strings.Trim(n.text, "|-&") == "" && n.text != ""
}

// readPseudo reads pseudo code: blocks such as BEGIN … END, PARALLEL … END PARALLEL and par { a; b },
// branches, conditions, loops, and lists of jobs with their needs.
func readPseudo(src *form.Source, first, end int) *Reading {
	root, ok := pseudoTree(src, first, end)
	if root == nil {
		return nil
	}
	r := &pseudo{program: newProgram(src, 0, "pseudo code"), items: map[string]int{}, tails: map[int]string{}, joins: map[int][]string{}, src: src}
	root.kids = grouped(root.kids, 0)
	if !ok && !closedBlock(root.kids, 0) && !conditions(root.kids, src, first) {
		return nil
	}
	parts := r.frame(root.kids)
	f := &form.Flow{Kind: "seq"}
	r.verbs = commonVerbs(parts)
	r.block(parts, f, 0)
	if len(r.r.Items) < 2 || r.par == 0 && r.blocks > 0 && programLines(root.kids) {
		return nil
	}

	r.needs()
	switch {
	case r.par > 0 && r.stated == 0:
		f.Order(nil, 0, func(a, b int) { r.link(a, b, Stated, r.r.Items[b].Off) })
	case r.stated == 0 && (r.framed || r.blocks > 0):
		f.Order(nil, 0, func(a, b int) { r.link(a, b, ListedOrder, r.r.Items[b].Off) })
	case r.stated == 0:
		return nil
	}
	r.r.Stated = true
	r.r.Weight = 91
	if r.par == 0 {
		r.r.Weight = 70
		if r.stated > 0 && len(r.verbs) > 0 || r.stated > 1 && r.stated*2 > len(r.r.Items) || r.blocks > 0 && r.stated == 0 {
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

func isNumber(word string) bool {
	_, ok := lexicon.Number(word)
	return ok
}

// pseudoTree builds a tree of lines from indents and braces. likely is set if the lines look like pseudo code
// even without a line that ends a block. It returns nil for text that belongs to other readers.
func pseudoTree(src *form.Source, first, end int) (root *pseudoLine, likely bool) {
	if onlyListed(src.Lines[first:end]) {
		return nil, false
	}
	root = &pseudoLine{indent: -1}
	stack := []*pseudoLine{root}
	braces := 0
	listed, lines, rules := 0, 0, 0
	var words []string
	for k := first; k < end; k++ {
		l := &src.Lines[k]
		if l.Text == "" || isComment(l.Text) || strings.HasPrefix(l.Text, "-- ") {
			continue
		}
		if strings.HasPrefix(l.Text, "@") || strings.HasPrefix(l.Text, "import ") || strings.HasPrefix(l.Text, "from ") || strings.HasPrefix(l.Text, "with ") || strings.HasPrefix(l.Text, "async ") || strings.HasPrefix(l.Text, "def ") || len(l.Text) > 300 {
			return nil, false
		}
		lines++
		listed += b2i(isListed(l.Text))
		rules += b2i(isRule(l.Text))

		likely = likely || parallelWord(l.Text) && blockHead(src, k, end)
		if w := strings.Fields(l.Text); len(w) > 1 && !strings.HasSuffix(w[1], ":") && !strings.HasSuffix(w[1], ".") && !(isNumber(w[1]) && lexicon.Is(lexicon.Steps, w[0])) {
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
				return nil, false
			}
			n := newPseudoLine(part, indent, k)
			up := stack[len(stack)-1]
			up.kids = append(up.kids, n)
			stack = append(stack, n)
			root.end = n.end
		}
	}
	likely = listed*2 < lines && (likely || isFrame(root.kids) || jobVerb(words) || spawned(root.kids)) || rules >= 2
	return root, likely
}

// isRule reports whether a line in capitals waits or states a condition, or a line in any case waits and then
// starts a step.
func isRule(s string) bool {
	w := firstWord(s)
	if capitals(w) && len(w) > 3 && (waitsFor(s) || isCondition(s)) {
		return true
	}
	_, rest, ok := pseudoRule(form.Piece{Text: s})
	// For example: await a then start b; when a is done: run b.
	return ok && strings.Contains(rest.Text, " ") && runs(firstWord(rest.Text))
}

// grouped nests the lines of blocks that are not indented below the line that begins the block: PARALLEL, a,
// b, END.
func grouped(lines []*pseudoLine, depth int) []*pseudoLine {
	type open struct {
		at   int // index in out
		head *pseudoLine
	}
	var out []*pseudoLine
	var stack []open
	for _, n := range lines {
		if depth < 100 {
			n.kids = grouped(n.kids, depth+1)
		}
		if len(out) > 0 && len(out[len(out)-1].kids) > 0 && !out[len(out)-1].closed && n.ends(out[len(out)-1]) && !n.separates() {
			out[len(out)-1].closed = true
			continue
		}
		closing := -1
		for k := len(stack) - 1; k >= 0 && k >= len(stack)-3 && n.ends(nil) || k >= 0 && k == len(stack)-1; k-- {
			if n.ends(stack[k].head) {
				closing = k
				break
			}
		}
		if closing >= 0 {
			o := stack[closing]
			o.head.kids, o.head.closed = slices.Clone(out[o.at+1:]), true
			out, stack = out[:o.at+1], stack[:closing]
			continue
		}
		out = append(out, n)
		if len(n.kids) == 0 && n.opens() && !n.is(lexicon.BlockElse) {
			stack = append(stack, open{len(out) - 1, n})
		}
	}
	return out
}

// closedBlock reports whether a parallel block has a line that ends it.
func closedBlock(lines []*pseudoLine, depth int) bool {
	return depth < 100 && slices.ContainsFunc(lines, func(n *pseudoLine) bool {
		return n.closed && n.parallel() && short(n.text) && !isListed(n.text) && len(n.kids) > 0 || closedBlock(n.kids, depth+1)
	})
}

// programLines reports whether at least a third of the lines are in a programming language.
func programLines(lines []*pseudoLine) bool {
	all, strange := 0, 0
	var visit func([]*pseudoLine, int)
	visit = func(lines []*pseudoLine, depth int) {
		for _, n := range lines {
			all++
			strange += b2i(isProgram(n.text))
			if depth < 100 {
				visit(n.kids, depth+1)
			}
		}
	}
	visit(lines, 0)
	return strange*3 >= all
}

// conditions reports whether the lines are steps with conditions or loops, in words rather than in a
// programming language: the heads of the blocks are in capitals or end in THEN or DO, or a line ends the
// block.
func conditions(lines []*pseudoLine, src *form.Source, first int) bool {
	if l := &src.Lines[first]; l.InCode && l.Lang != "" && !strings.HasPrefix(l.Lang, "pseudo") && !strings.HasPrefix(l.Lang, "text") && l.Lang != "txt" && l.Lang != "plaintext" {
		return false
	}
	conditions, steps, strange := 0, 0, 0
	var visit func([]*pseudoLine, int)
	visit = func(lines []*pseudoLine, depth int) {
		for _, n := range lines {
			if len(n.kids) > 0 && depth < 100 {
				last := n.fold[strings.LastIndexByte(n.fold, ' ')+1:]
				good := n.closed || capitals(firstWord(n.text)) || last == "then" || last == "do" || strings.HasSuffix(n.text, ":") && !isProgram(n.text)
				conditions += b2i(n.conditional() && good)
				visit(n.kids, depth+1)
				continue
			}
			steps++
			t := n.text
			strange += b2i(isProgram(t) || isListed(t) || strings.HasSuffix(t, ".") || len(t) > 120 || strings.HasSuffix(t, "?"))
		}
	}
	visit(lines, 0)
	return conditions > 0 && steps > 2 && strange*4 <= steps
}

// isProgram reports whether a line is in a programming language: it assigns, compares, returns or prints.
func isProgram(s string) bool {
	for _, sign := range [...]string{"==", "+=", "-=", " = ", "!=", "[", "++", " <- ", ":= ", " in ", "&&"} {
		if strings.Contains(s, sign) {
			return true
		}
	}
	word := strings.TrimRight(firstWord(s), "(;:")
	if i := strings.IndexByte(word, '('); i >= 0 {
		word = word[:i]
	}
	return word == "return" || trivial[word] || word == "def" || word == "class"
}

// onlyListed reports whether at least half of the lines are list entries and no line mentions parallel steps.
func onlyListed(lines []form.Line) bool {
	all, listed, rules := 0, 0, 0
	for i := range lines {
		if s := lines[i].Text; s != "" {
			all++
			listed += b2i(isListed(s))
			rules += b2i(isRule(s))
		}
	}
	return listed*2 >= all && rules < 2 && !slices.ContainsFunc(lines, func(l form.Line) bool { return parallelWord(l.Text) })
}

// isListed reports whether a line is a list entry, a table row or part of a value. Other readers read these.
func isListed(s string) bool {
	if i := strings.IndexByte(s, '('); i > 0 && form.IsName(s[:i]) {
		return false // a call
	}
	_, _, marked := form.SplitMark(form.Piece{Text: s})
	return strings.IndexByte("-*|<\"[>#", s[0]) >= 0 || strings.HasPrefix(s, "•") || leadNumber(s) > 0 || marked && strings.ContainsAny(s[:min(len(s), 6)], "0123456789") || strings.HasSuffix(s, ",") || isField(s)
}

// isField reports whether a line is a key with a value.
func isField(s string) bool {
	key, value, ok := strings.Cut(s, ": ")
	return ok && !strings.ContainsAny(key, " (") && strings.TrimSpace(value) != ""
}

// blockHead reports whether line k begins a block: it is short, and the following line is indented further.
func blockHead(src *form.Source, k, end int) bool {
	l := &src.Lines[k]
	if i := strings.IndexByte(l.Text, '{'); i >= 0 && !isListed(l.Text) {
		return !strings.Contains(l.Text[:i], "=") && !strings.Contains(l.Text, "} =")
	}
	if len(l.Text) > 60 || strings.Count(l.Text, " ") > 4 || isListed(l.Text) || strings.HasSuffix(l.Text, ".") {
		return false
	}
	n := k + 1
	for n < end && src.Lines[n].Text == "" {
		n++
	}
	return n < end && src.Lines[n].Indent > l.Indent && (!isListed(src.Lines[n].Text) || strings.HasSuffix(l.Text, ":") && strings.Count(l.Text, " ") < 3 && !isField(src.Lines[n].Text))
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

// isFrame reports whether the lines are a short first and a short last line around an indented block.
func isFrame(kids []*pseudoLine) bool {
	for k, n := range kids {
		if len(n.kids) < 2 {
			continue
		}
		return k+1 < len(kids) && len(kids[k+1].kids) == 0 && short(n.text) && short(kids[k+1].text) && k+2 >= len(kids)-1 &&
			(upper(firstWord(n.text)) && upper(firstWord(kids[k+1].text)) || n.is(lexicon.BlockBegin) && kids[k+1].ends(n))
	}
	return false
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

func short(s string) bool { return utf8.RuneCountInString(s) < 40 && strings.Count(s, " ") < 4 }

// upper reports whether a text has no lower-case letters.
func upper(s string) bool { return strings.ToUpper(s) == s }

// capitals reports whether a word has letters and none of them is lower-case.
func capitals(s string) bool { return upper(s) && strings.ContainsFunc(s, unicode.IsLetter) }

// jobVerb reports whether most lines begin with the same word or with words that start a step, as in "job a",
// "job b WAIT FOR a".
func jobVerb(words []string) bool {
	count := map[string]int{}
	for _, w := range words {
		if count[w]++; runs(w) && count[w] >= 2 && count[w]*2 >= len(words) {
			return true
		}
	}
	n := 0
	for _, w := range words {
		n += b2i(runs(w))
	}
	return n >= 3 && n*2 > len(words)
}

// runs reports whether a word before the name of a step only says that the step runs, or that it is a step.
func runs(word string) bool {
	return wordIs(word, lexicon.BlockRun) || lexicon.Is(lexicon.Steps, word)
}

// wordIs reports whether a whole word has one of the roles.
func wordIs(word string, b lexicon.Block) bool {
	word = lexicon.Fold(word)
	roles, n := lexicon.LeadingBlock(word)
	return roles&b != 0 && n == len(word)
}

// pseudo is the state of a reader of pseudo code.
type pseudo struct {
	*program
	src    *form.Source
	items  map[string]int
	verbs  map[string]bool
	framed bool
	// par counts parallel blocks, blocks counts conditions and loops.
	par, blocks int
	stated      int
	tails       map[int]string // the text behind an item's name
	joins       map[int][]string
	wait        []string
}

// frame drops the text around the plan: the outermost begin and end, and prose before and after.
func (r *pseudo) frame(kids []*pseudoLine) []*pseudoLine {
	kids = withoutProse(kids)
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
		if deep < 0 || kids[deep].parallel() || kids[deep].conditional() || waitsFor(kids[deep].text) || len(kids) > deep+4 && !strings.HasSuffix(kids[deep].text, ":") {
			return kids
		}
		head := kids[deep]
		closed := head.closed || deep+1 < len(kids) && short(kids[deep+1].text) && len(kids[deep+1].kids) == 0

		r.framed = r.framed || closed && len(kids) <= deep+3
		kids = withoutProse(head.kids)
	}
	return kids
}

// withoutProse drops leading and trailing sentences: lines that end with a full stop or, if they open no
// block, a colon.
func withoutProse(kids []*pseudoLine) []*pseudoLine {
	prose := func(n *pseudoLine) bool {
		last, _ := utf8.DecodeLastRuneInString(n.text)
		return len(n.kids) == 0 && (strings.ContainsRune(":：", last) && !n.opens() || strings.ContainsRune(".!?。！？।", last) && strings.Count(n.text, " ") > 2)
	}
	for len(kids) > 2 && prose(kids[0]) {
		kids = kids[1:]
	}
	for len(kids) > 2 && prose(kids[len(kids)-1]) {
		kids = kids[:len(kids)-1]
	}
	return kids
}

// commonVerbs returns the verbs before names, if most lines with more than a name begin with a verb of
// BlockRun.
func commonVerbs(lines []*pseudoLine) map[string]bool {
	out := map[string]bool{}
	total, others := 0, 0
	var visit func([]*pseudoLine)
	visit = func(ls []*pseudoLine) {
		for _, n := range ls {
			visit(n.kids)
			if len(n.kids) > 0 || n.parallel() && short(n.text) {
				continue
			}
			_, p, _ := pseudoRule(form.Piece{Text: n.text})
			if w, rest, ok := strings.Cut(p.Text, " "); ok && rest != "" && runs(w) {
				out[w] = true
				total++
			} else if ok && !waitsFor(p.Text) && !n.is(lexicon.BlockEnd) {
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
