package form

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// Outline returns the text as an outline. The root is a heading of level 0 without a text.
func Outline(src *Source) *Item {
	o := outliner{src: src, org: orgMode(src)}
	o.root = &Item{Kind: Heading, End: len(src.Text)}
	o.stack = append(o.stack, o.root)
	items := make([]*Item, 0, len(src.Lines))
	gap := false
	for i := range src.Lines {
		l := &src.Lines[i]
		switch {
		case l.Text == "" || l.Fence:
			gap = true
			continue
		case l.InCode && !ProseFence(l.Lang):
			continue
		case isRule(l.Text):
			if last := len(items) - 1; last >= 0 && !gap && items[last].Kind == Plain && strings.Trim(l.Text, "=-") == "" {
				items[last].Kind, items[last].Level = Heading, 1+b2i(l.Text[0] == '-')
			}
			continue
		}
		it := o.item(l)
		it.Gap = gap
		gap = false
		items = append(items, it)
	}
	ledMarks(items)
	signedLines(items)
	items = o.splitGroups(o.splitLetters(o.splitInline(items)))
	romans(items)
	dropAmounts(items)
	dropWeakMarks(items)
	promoteGroups(items)
	labelsBehind(items)
	nameEntries(items)
	for i, it := range items {
		it.opens = it.Kind == Plain && i+1 < len(items) && items[i+1].Mark.Style != NoMark && strings.HasSuffix(strings.TrimRight(it.Text, " "), ":")
		o.place(it)
	}
	for _, it := range o.stack {
		it.End = max(it.End, it.Off)
	}
	return o.root
}

// ProseFence reports whether a fence of this language contains text for people.
func ProseFence(lang string) bool {
	switch lang {
	case "", "text", "txt", "markdown", "md", "plain", "plaintext", "org", "todo", "plan", "none":
		return true
	}
	return false
}

// isRule reports whether a line is only a rule or an underline.
func isRule(s string) bool {
	return len(s) >= 3 && strings.Trim(s, "-=_*~ ─—═+") == ""
}

// org describes the headings of org-mode: the column of their stars, and the keywords behind the stars.
type org struct {
	indent int
	todo   map[string]bool
}

// orgMode returns the description of org-mode headings if stars begin headings rather than entries, else nil.
func orgMode(src *Source) *org {
	o := &org{indent: -1, todo: map[string]bool{}}
	for _, w := range todoWords {
		o.todo[w] = true
	}
	count := map[string]int{}
	sure := false
	for i := range src.Lines {
		l := &src.Lines[i]
		t := strings.TrimPrefix(l.Text, ",")
		if list, ok := strings.CutPrefix(t, "#+TODO:"); ok {
			for _, w := range strings.Fields(list) {
				o.todo[strings.TrimRight(w, "()!@/abcdefghijklmnopqrstuvwxyz")] = true
			}
			sure = true
		}
		if l.Text != "" && !l.Fence && (o.indent < 0 || l.Indent < o.indent) {
			o.indent = l.Indent
		}
		if l.Indent > o.indent || !strings.HasPrefix(t, "*") {
			continue
		}
		stars := len(t) - len(strings.TrimLeft(t, "*"))
		rest := t[stars:]
		if !strings.HasPrefix(rest, " ") {
			continue
		}
		w := capitals(strings.TrimSpace(rest))
		if count[w]++; w != "" && count[w] > 1 {
			o.todo[w] = true
		}
		sure = sure || stars > 1 && !strings.Contains(rest, "**") || o.todo[w]
	}
	if !sure {
		return nil
	}
	return o
}

// capitals returns the first word of s if it is written in capitals and another word follows.
func capitals(s string) string {
	end := strings.IndexByte(s, ' ')
	if end < 3 || end > 24 {
		return ""
	}
	w := s[:end]
	if w != strings.ToUpper(w) || w == strings.ToLower(w) || strings.ContainsAny(w, "0123456789-.:()#[]") {
		return ""
	}
	return w
}

var todoWords = [...]string{"TODO", "NEXT", "DONE", "WAITING", "WAIT", "HOLD", "DOING", "STARTED", "CANCELED", "CANCELLED", "BLOCKED", "LATER", "NOW", "SOMEDAY", "KLAR", "OFFEN", "ERLEDIGT", "PROJ", "PENDING"} //nolint:misspell // plans have both

// todoWord returns the length of the org-mode keyword at the start of s.
func (o *org) todoWord(s string) int {
	if w := capitals(s); o.todo[w] {
		return len(w)
	}
	return 0
}

// tags returns the index at which the tags at the end of an org-mode heading begin (":home:garden:"), or
// len(s).
func tags(s string) int {
	if !strings.HasSuffix(s, ":") {
		return len(s)
	}
	at := strings.LastIndexByte(s, ' ') + 1
	if at > 0 && len(s) > at+2 && s[at] == ':' && !strings.Contains(s[at:], "::") {
		return at
	}
	return len(s)
}

type outliner struct {
	src   *Source
	org   *org
	root  *Item
	stack []*Item
}

const bullets = "-*+•◦▪▫‣⁃–—○●◐◑◒◓◔◕◇◆■□✓✔✗✘☐☑☒→➤➜►▶▸»·・‧∙※★☆✅❌⬜🔲🔳⏳👉"

// boxes are signs that are bullet and check box in one.
const boxes = "☐☑☒⬜🔲🔳✅❌○□✓✔✗✘"

// item reads one line.
func (o *outliner) item(l *Line) *Item {
	it := &Item{Kind: Plain, Off: l.Off, End: l.End, Indent: l.Indent}
	s := l.Text
	at := 0
	for strings.HasPrefix(s[at:], ">") {
		at = skipSpace(s, at+1)
	}
	if branch := "⎿"; strings.HasPrefix(s[at:], branch) {
		at = skipSpace(s, at+len(branch))
		it.Indent = l.Indent + utf8.RuneCountInString(s[:at])
	}
	s, at = o.heading(it, l, at)
	if it.Kind != Heading && strings.HasPrefix(s[at:], "|") && strings.Count(s[at:], "|") > 2 {
		it.Kind = Row
		it.Text, it.TextOff = s[at:], l.Off+at
		return it
	}
	if it.Kind != Heading {
		at = it.bullet(s, at)
	}
	at = it.box(s, at)
	text := blankEmphasis(blankLinks(s))
	bold := boldSpan(s, at)
	at = it.readMark(s, text, l.Off, at)
	at = skipSpace(text, at)
	it.line, it.Text, it.TextOff = text, text[min(at, len(text)):], l.Off+at
	it.bold = bold
	it.Strong = max(0, min(len(it.Text), bold-at))
	it.Struck = struck(l.Text)
	if it.Kind == Plain && it.Strong > 0 && (strings.Trim(it.Text[it.Strong:], " :：.*") == "" || isRemark(it.Text[it.Strong:])) {
		it.Kind, it.Level = Heading, 7
	}
	if it.Kind == Plain && strings.HasPrefix(it.Text, "【") && strings.Contains(it.Text, "】") {
		it.Kind, it.Level = Heading, 7
	}
	return it
}

// heading reads the signs of a heading at l.Text[at:], if there are any. It returns the line without the tags
// and signs behind the title, and the start of the title.
func (o *outliner) heading(it *Item, l *Line, at int) (s string, title int) {
	s = l.Text
	isOrg := o.org != nil && l.Indent <= o.org.indent && strings.HasPrefix(strings.TrimPrefix(s[at:], ","), "*")
	if isOrg && s[at] == ',' {
		at++
	}
	if !isOrg && !strings.HasPrefix(s[at:], "#") {
		return s, at
	}
	n := len(s[at:]) - len(strings.TrimLeft(s[at:], s[at:at+1]))
	if at+n >= len(s) || s[at+n] != ' ' || n > 9 {
		return s, at
	}
	it.Kind, it.Level = Heading, n
	at = skipSpace(s, at+n)
	if isOrg {
		if w := o.org.todoWord(s[at:]); w > 0 {
			it.Box, it.State = 'T', s[at:at+w]
			at = skipSpace(s, at+w)
		}
		if n := tags(s); n > at {
			it.tag(l, s[n:], n)
			s = strings.TrimRight(s[:n], " \t")
		}
	}
	if strings.HasPrefix(s[at:], "[#") && strings.IndexByte(s[at:], ']') == 3 {
		at = skipSpace(s, at+4)
	}
	return s[:max(len(strings.TrimRight(s, "# ")), at)], at
}

// readMark reads the mark at text[at:], where text is the line s, which begins at off, without emphasis. It
// returns the end of the mark and of a check box behind it.
func (it *Item) readMark(s, text string, off, at int) int {
	m := mark(text[at:])
	sign := arrowAt(text[at+m.End:])
	m.Off, m.End = m.Off+off+at, m.End+off+at
	switch {
	case m.Weak && sign > 0:
		it.led = m
		it.led.Weak, it.led.End = false, skipSpace(text, m.End+sign-off)+off
	case m.Style != NoMark:
		it.Mark = m
		at = m.End - off
		if it.Kind == Plain {
			it.Kind = Entry
		}
		if it.Box == 0 {
			at = it.box(s, at)
		}
	}
	return at
}

// isRemark reports whether a text consists of one remark in brackets: "(after phase 1)".
func isRemark(s string) bool {
	s = strings.Trim(s, " :：.")
	return len(s) > 2 && s[0] == '(' && strings.IndexByte(s, ')') == len(s)-1
}

// tag reads the tags of a heading. An id among them, as in ":id:cargo:", becomes a line below the heading.
func (it *Item) tag(l *Line, s string, at int) {
	low := lexicon.Fold(s)
	if strings.HasPrefix(low, ":id:") || strings.HasPrefix(low, ":custom_id:") {
		it.Kids = append(it.Kids, &Item{Kind: Plain, Off: l.Off + at, End: l.Off + at + len(s), Text: s[:len(s)-1], TextOff: l.Off + at})
		return
	}
	it.Tags = strings.ReplaceAll(strings.Trim(s, ":"), ":", ", ")
}

// arrowAt returns the length of the arrow at the start of a text. The mark before it may then be one end of a
// link.
func arrowAt(s string) int {
	for _, a := range [...]string{"->", "=>", "<-", "-->", "--", "==>", "→", "⟶", "⇒", "←", "⟵", "➜", "➔", "➡", "<=", ">>"} {
		if strings.HasPrefix(s, a) {
			return len(a)
		}
	}
	return 0
}

// ledMarks accepts labels before arrows as marks if the arrows lead to texts rather than to other labels: "A1
// → Ann: fill the form".
func ledMarks(items []*Item) {
	var led []*Item
	labels := map[string]bool{}
	for _, it := range items {
		if it.led.Style != NoMark {
			led, labels[it.led.Label] = append(led, it), true
		}
	}
	for _, it := range led {
		rest := it.line[it.led.End-it.Off:]
		head, _, _ := strings.Cut(rest, " ")
		if len(labels) < max(2, len(led)) || labels[strings.Trim(head, ",;:.")] || ContainsArrow(rest) || len(strings.Fields(rest)) < 3 && !strings.ContainsAny(rest, ":：") {
			return
		}
	}
	for _, it := range led {
		it.Mark, it.Strong = it.led, 0
		it.Text, it.TextOff = it.line[it.Mark.End-it.Off:], it.Mark.End
		if it.Kind == Plain {
			it.Kind = Entry
		}
	}
}

// signedLines makes entries of consecutive lines that begin with the same sign, whatever sign it is: "@ann –
// call the bank". Signs that open or quote something are excluded.
func signedLines(items []*Item) {
	for from := 0; from < len(items); {
		sign, to := firstSign(items[from]), from+1
		for to < len(items) && firstSign(items[to]) == sign && items[to].Indent == items[from].Indent {
			to++
		}
		for _, it := range items[from:to] {
			if sign != 0 && to-from > 2 {
				it.Kind, it.Bullet = Entry, sign
			}
		}
		from = to
	}
}

// firstSign returns the sign at the start of a line without a mark, or 0.
func firstSign(it *Item) rune {
	r, _ := utf8.DecodeRuneInString(it.Text)
	if it.Kind != Plain || !unicode.IsPunct(r) && !unicode.IsSymbol(r) || strings.ContainsRune("\"'“”„«»‹›‘’([{<>)]}#|/\\$%=:.,;!?_~`-—–+&^", r) {
		return 0
	}
	return r
}

// bullet reads the sign of a list entry at s[at:]. It returns the start of the text behind it.
func (it *Item) bullet(s string, at int) int {
	r, n := utf8.DecodeRuneInString(s[at:])
	if n == 0 || !strings.ContainsRune(bullets, r) {
		return at
	}
	end := at + n
	for strings.HasPrefix(s[end:], "\ufe0f") {
		end += 3
	}
	if end < len(s) && s[end] != ' ' && s[end] != '\t' && r < 0x80 || r == '–' && end < len(s) && s[end] != ' ' {
		return at
	}
	if end == len(s) {
		return at
	}
	it.Kind, it.Bullet = Entry, r
	if strings.ContainsRune(boxes, r) {
		it.Box = 'x'
		if strings.ContainsRune("☐⬜🔲🔳○□", r) {
			it.Box = ' '
		}
	}
	return skipSpace(s, end)
}

// box reads a check box at s[at:]. It returns the start of the text behind it.
func (it *Item) box(s string, at int) int {
	if strings.HasPrefix(s[at:], "[") {
		r, n := utf8.DecodeRuneInString(s[at+1:])
		if strings.HasPrefix(s[at+1+n:], "]") && strings.ContainsRune(" xX-~/✔✓✗✘☑", r) {
			it.Box = 'x'
			if r < utf8.RuneSelf {
				it.Box = byte(r) | 0x20
			}
			if it.Kind == Plain {
				it.Kind = Entry
			}
			return skipSpace(s, at+n+2)
		}
	}
	if strings.HasPrefix(s[at:], "[] ") {
		it.Box = ' '
		if it.Kind == Plain {
			it.Kind = Entry
		}
		return skipSpace(s, at+3)
	}
	if it.Box == 0 {
		if r, n := utf8.DecodeRuneInString(s[at:]); n > 0 && strings.ContainsRune("☐☑☒⬜🔲✅", r) && it.Kind == Entry {
			it.Box = ' '
			return skipSpace(s, at+n)
		}
	}
	return at
}

// struck reports whether a line is struck through, except for its bullet and its number.
func struck(s string) bool {
	at := strings.Index(s, "~~")
	if at < 0 || at > 12 || !strings.HasSuffix(strings.TrimRight(s, " ."), "~~") || strings.Count(s, "~~") != 2 || len(s) <= at+4 {
		return false
	}
	head := strings.TrimLeft(s[:at], "-*+•– ")
	return head == "" || mark(head+"x").End == len(head)
}

// blankEmphasis replaces signs of emphasis by spaces. It also replaces text that is struck through within a
// line.
func blankEmphasis(s string) string {
	if !strings.ContainsAny(s, "*_`~") {
		return s
	}
	b := []byte(s)
	if strings.Contains(s, "~~") && !struck(s) {
		for at := 0; ; {
			i := strings.Index(s[at:], "~~")
			if i < 0 {
				break
			}
			n := strings.Index(s[at+i+2:], "~~")
			if n <= 0 {
				break
			}
			end := at + i + 2 + n + 2
			for k := at + i; k < end; k++ {
				b[k] = ' '
			}
			at = end
		}
	}
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '`':
			b[i] = ' '
		case (c == '*' || c == '_' || c == '~') && i+1 < len(b) && b[i+1] == c:
			if c == '_' && i > 0 && isWordByte(b[i-1]) && i+2 < len(b) && isWordByte(b[i+2]) {
				i++
				continue
			}
			b[i], b[i+1] = ' ', ' '
			i++
		case c == '_' && i > 0 && b[i-1] == '_': // one more within a word: A___1
		case (c == '*' || c == '_') && edge(b, i):
			b[i] = ' '
		}
	}
	return string(b)
}

// blankLinks replaces a link of org-mode by its target if that is an id, else by its text: [[id:survey]],
// [[#survey][the survey]], [[https://…][the form]].
func blankLinks(s string) string {
	if !strings.Contains(s, "[[") {
		return s
	}
	b := []byte(s)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			b[i] = ' '
		}
	}
	for at := 0; ; {
		from := strings.Index(s[at:], "[[")
		if from < 0 {
			return string(b)
		}
		from += at
		end := strings.Index(s[from:], "]]")
		if end < 0 {
			return string(b)
		}
		end += from
		to, shown := from+2, end
		if k := strings.Index(s[to:end], "]["); k >= 0 {
			shown = to + k
		}
		head := 0
		for _, h := range [...]string{"id:", "#", "*"} {
			if strings.HasPrefix(s[to:], h) {
				head = len(h)
			}
		}
		if head > 0 || shown == end {
			blank(from, to+head)
			blank(shown, end+2)
		} else {
			blank(from, shown+2)
			blank(end, end+2)
		}
		at = end + 2
	}
}

// edge reports whether the single * or _ at i opens or closes emphasis: a space or bracket on one side, a
// word on the other.
func edge(b []byte, i int) bool {
	open := i == 0 || strings.IndexByte(" (*_[\"", b[i-1]) >= 0
	shut := i+1 == len(b) || strings.IndexByte(" ).,:;!?*_]\"", b[i+1]) >= 0
	return open != shut
}

func isWordByte(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || (c|0x20) >= 'a' && (c|0x20) <= 'z'
}

// boldSpan returns the end of the bold text at s[at:], or at.
func boldSpan(s string, at int) int {
	for _, sign := range [...]string{"**", "__", "`"} {
		if strings.HasPrefix(s[at:], sign) {
			if n := strings.Index(s[at+len(sign):], sign); n > 0 {
				return at + len(sign) + n
			}
		}
	}
	return at
}

// romans reads I, V and X as numbers if there are others such as II or IV, and no letters.
func romans(items []*Item) {
	longer, other := false, false
	for _, it := range items {
		switch l := it.Mark.Label; it.Mark.Style {
		case Spelled:
			if _, ok := lexicon.Roman(lexicon.Fold(l)); ok && len(l) > 1 {
				longer = true
			}
		case Letter:
			other = other || !strings.Contains("IVXivx", l)
		}
	}
	if !longer || other {
		return
	}
	for _, it := range items {
		if it.Mark.Style == Letter {
			v, _ := lexicon.Roman(lexicon.Fold(it.Mark.Label))
			it.Mark.Style, it.Mark.Path = Spelled, []int{v}
		}
	}
}

// shape is the common form of the entries of one level.
type shape struct {
	kind        ItemKind
	bullet, box bool
	indent      int
}

// unmark makes the mark part of the text again.
func (it *Item) unmark() {
	at := it.Mark.Off - it.Off
	it.Text, it.TextOff, it.Mark = it.line[at:], it.Mark.Off, Mark{}
	it.Strong = max(0, min(len(it.Text), it.bold-at))
	if it.Kind == Entry && it.Bullet == 0 && it.Box == 0 {
		it.Kind = Plain
	}
}
