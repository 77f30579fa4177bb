package meaning

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// arrowSet collects the items and links of lines of arrows.
type arrowSet struct {
	r        *Reading
	index    map[string]int
	bare     map[string]bool   // ids that occur without a title
	isID     func(string) bool // whether an id may stand on either side of a word for "and"
	apart    bool
	full     bool // there is a note about too many links
	listed   bool // ids stand alone on lines
	maxLinks int
	titles   bool // parts before the last one of a line have titles, too
}

// arrowLine reads the links of a line such as "1 → 2, 1 → 3" or "Order: A, B -> C". known reports whether an
// id belongs to the list around the line; most bounds the links. ok is false if anything else stands between
// the arrows.
func arrowLine(text string, off int, known func(string) bool, most int) (links []Link, ok bool) {
	text = strings.TrimRight(text, " .。")
	if !form.ContainsArrow(text) && strings.IndexByte(text, '>') > 0 && !strings.ContainsAny(text, "<=") {
		text = strings.ReplaceAll(text, ">", string(form.BareArrow)) // as in "1 > 2"; only known ids pass
	}
	p := arrowPrefix(form.Piece{Text: text, Off: off})
	if !form.ContainsArrow(p.Text) || lexicon.Has(lexicon.None, p.Text) {
		return nil, false // for example "1 → 2 → 4, 3 any time"
	}
	s := &arrowSet{r: &Reading{}, index: map[string]int{}, bare: map[string]bool{}, isID: known, apart: true, maxLinks: most}
	s.line(s.ands(p))
	for _, it := range s.r.Items {
		if !known(it.ID) {
			return nil, false
		}
	}
	return s.r.Links, len(s.r.Links) > 0
}

// arrowPrefix drops a bullet, and a label such as "Order:" in front of the first id. Text that is short,
// contains a digit, or precedes other ids with titles is an id rather than a label.
func arrowPrefix(p form.Piece) form.Piece {
	p = cutBullet(p)
	p.Text = plainBrackets.Replace(p.Text)
	k := strings.IndexAny(p.Text, ":：")
	if k < 0 {
		return unquoted(p)
	}
	_, n := utf8.DecodeRuneInString(p.Text[k:])
	head, rest := strings.Trim(p.Text[:k], " *_`"), p.Text[k+n:]
	switch {
	case len(head) > 60 || form.ContainsArrow(head) || !form.ContainsArrow(rest) || n == 1 && strings.IndexByte(" *", rest[0]) < 0:
	case len(head) <= 2 || utf8.RuneCountInString(head) == 1 || strings.ContainsAny(head, "0123456789") || strings.ContainsAny(rest, ":：") && !announcesGraph(head):
	default:
		rest = strings.TrimLeft(rest, " *_")
		p = form.Piece{Text: rest, Off: p.Off + len(p.Text) - len(rest)}
	}
	return unquoted(p)
}

// plainBrackets replaces full-width brackets by ASCII brackets of the same length in bytes.
var plainBrackets = strings.NewReplacer("（", "(  ", "）", "  )", "【", "[  ", "】", "  ]", "［", "[  ", "］", "  ]", "｛", "{  ", "｝", "  }")

// unquoted drops a pair of code or emphasis marks around a whole line of arrows.
func unquoted(p form.Piece) form.Piece {
	s := strings.TrimRight(p.Text, " .。")
	for _, q := range [...]string{"`", "**"} {
		if n := len(s) - 2*len(q); n > 0 && strings.HasPrefix(s, q) && strings.HasSuffix(s, q) && !strings.Contains(s[len(q):len(q)+n], q) {
			return form.Piece{Text: s[len(q) : len(q)+n], Off: p.Off + len(q)}
		}
	}
	return p
}

// announcesGraph reports whether words announce lines of arrows.
func announcesGraph(s string) bool { return stemAt(strings.ToLower(s), "that announce a graph") >= 0 }

// arrowReadings reads the blocks of lines of arrows.
func arrowReadings(src *form.Source) (out []*Reading) {
	for i := 0; i < len(src.Lines); {
		n, arrows := arrowBlock(src, i)
		if arrows > 0 {
			if r := readArrowBlock(src, i, n); r != nil {
				out = append(out, r)
			}
		}
		i += max(n, 1)
		for n == 0 && i < len(src.Lines) && isComment(src.Lines[i-1].Text) && isComment(src.Lines[i].Text) {
			i++ // the other comments of the block cannot begin a block, either
		}
		if len(out) > 32 || src.Ended() {
			return out
		}
	}
	return out
}

// arrowBlock returns the number of lines from i on that form a block of lines of arrows, and how many of them
// contain arrows.
func arrowBlock(src *form.Source, i int) (n, arrows int) {
	code := src.Lines[i].InCode
	for j := i; j < len(src.Lines); j++ {
		l := &src.Lines[j]
		if l.InCode != code || l.Fence {
			break
		}
		if l.Text == "" {
			if j+1 < len(src.Lines) && n > 0 && IsArrowLine(src.Lines[j+1].Text) {
				continue
			}
			break
		}
		switch {
		case IsArrowLine(l.Text):
			arrows++
		case isComment(l.Text) && (code || l.Text[0] != '#'):
			continue
		case !isSingleID(l.Text) && !(j > i && IsBroken(l.Text)):
			return n, arrows
		}
		n = j - i + 1
	}
	return n, arrows
}

func isComment(s string) bool {
	return strings.HasPrefix(s, "# ") || strings.HasPrefix(s, "//") || strings.HasPrefix(s, "%%") || strings.HasPrefix(s, "<!--") && strings.HasSuffix(s, "-->")
}

// brokenSigns are the remains of damaged arrows.
var brokenSigns = [...]string{" - ", " > ", " = ", " -- "}

// IsBroken reports whether s looks like "A - B" or "A > B" with one word or quoted id on each side, or like
// "A -".
func IsBroken(s string) bool {
	for _, sign := range brokenSigns {
		a, b, ok := strings.Cut(s, sign)
		if ok && isSingleID(strings.TrimSpace(a)) && isSingleID(strings.TrimSpace(b)) {
			return true
		}
		if a, ok := strings.CutSuffix(s, strings.TrimRight(sign, " ")); ok && isSingleID(strings.TrimSpace(a)) && !strings.HasSuffix(strings.TrimSpace(a), "-") {
			return true
		}
	}
	return false
}

// IsArrowLine reports whether s consists of short ids between arrows and commas.
func IsArrowLine(s string) bool {
	if len(s) > 100_000 || !form.ContainsArrow(s) || strings.HasPrefix(s, "|") || strings.Contains(s, "://") || strings.HasSuffix(s, "{") || strings.HasSuffix(s, ":") || strings.HasSuffix(s, " do") {
		return false
	}
	p := arrowPrefix(form.Piece{Text: form.CutComment(s)})
	if parts, back := form.SplitArrows(p.Text, 0); len(back) == 1 && back[0] {
		_, _, titled := form.SplitMark(parts[0])
		if assignsCall(parts[1].Text) || titled && !strings.ContainsFunc(parts[1].Text, unicode.IsLetter) {
			return false // "raw ← load("x")", "2. rent <- 1"
		}
	}
	arrows := 0
	chains, _ := form.Chains(p.Text, 0, false)
	for _, c := range chains {
		arrows += len(c.Back)
		for k, g := range c.Groups {
			for _, x := range g {
				t := form.Bare(x).Text
				if k == len(c.Groups)-1 {
					t, _, _ = strings.Cut(t, ": ")
				}
				// A part in brackets may be a chain itself.
				if t != "" && !isLooseID(t) && (len(t) == len(x.Text) || !form.ContainsArrow(t)) {
					return false
				}
			}
		}
	}
	return arrows > 0
}

// maxBrackets bounds the nesting of brackets.
const maxBrackets = 6

// assignsCall reports whether a text is a call with arguments.
func assignsCall(s string) bool {
	k := strings.IndexByte(s, '(')
	return k > 0 && isWord(s[k-1]) && strings.HasSuffix(s, ")") && len(s) > k+2
}

// leadNumber returns the length of "2. " or "2) " at the start of s.
func leadNumber(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	if n > 0 && n+1 < len(s) && (s[n] == '.' || s[n] == ')') && s[n+1] == ' ' {
		return n + 2
	}
	return 0
}

// isLooseID accepts names of up to nine words without the punctuation of sentences.
func isLooseID(id string) bool {
	if len(id) > 120 || strings.Count(id, `"`)%2 == 1 || strings.Count(id, " ") > 8 || strings.Contains(id, "--") || strings.Contains(id, "  ") && len(id) > 60 {
		return false
	}
	word := false
	for _, c := range id {
		switch {
		case unicode.IsLetter(c) || unicode.IsDigit(c):
			word = true
		case unicode.IsMark(c) || unicode.Is(unicode.So, c) || c == '\u200d' || strings.ContainsRune("_- .:()[]{}#$\"/'’&?!+@（）【】％%°№·", c):
		default:
			return false
		}
	}
	if i := strings.IndexByte(id, ':'); i > 0 && i < 3 && strings.Trim(id[:i], "0123456789") == "" {
		return false // a time of day
	}
	return word && !strings.HasSuffix(id, ".")
}

// isSingleID accepts a line that is one id: a quoted text, or a word without the punctuation of sentences.
func isSingleID(s string) bool {
	s = strings.TrimLeft(s, "-*• ")
	if len(s) > 2 && s[0] == '"' {
		return form.QuotedLength(s) == len(s)
	}
	if strings.HasPrefix(s, "【") && strings.HasSuffix(s, "】") {
		return false // a heading
	}
	s = form.Bare(form.Piece{Text: strings.TrimRight(s, ";")}).Text
	return s != "" && !strings.ContainsAny(s, " \t|+\\") && strings.IndexByte(".:!?;", s[len(s)-1]) < 0 && isLooseID(s)
}

// readArrowBlock reads the n lines from first on.
func readArrowBlock(src *form.Source, first, n int) *Reading {
	weight := arrowWeight(src, first, n)
	if weight == 0 {
		return nil
	}
	end := src.Lines[first+n-1].End
	r := &Reading{Form: "diagram", Stated: true, Start: src.Lines[first].Off, End: end, Weight: weight, Evidence: []string{"arrows"}}
	r.Open = !(first+n < len(src.Lines) && src.Lines[first+n].Fence)
	s := &arrowSet{r: r, index: map[string]int{}, bare: map[string]bool{}, maxLinks: src.MaxLinks}
	s.isID = func(id string) bool { return s.bare[id] || digits(id) }
	lines := arrowLines(src, first, n)
	for _, p := range lines {
		s.survey(p)
	}
	for _, p := range lines {
		p = s.ands(p)
		switch {
		case isSingleID(p.Text):
			s.listed = true
			s.line(p)
		case !form.ContainsArrow(p.Text):
			r.Notes = append(r.Notes, Note{Fault: true, Code: "MALFORMED", Element: p.Text, Message: "this looks like an edge whose arrow is broken: " + p.Text, Hint: "write A -> B", Off: p.Off})
		default:
			s.line(p)
		}
	}
	if pointsToNeeds(src, first, first+n-1) {
		turn(r)
	}
	if !s.listed {
		markOrder(r)
	}
	legend(src, r, first, first+n-1)
	return r
}

// arrowLines returns the lines of a block without comments, numbers and prefixes. A line that continues an
// arrow of the line before is joined to it.
func arrowLines(src *form.Source, first, n int) (out []form.Piece) {
	numbered, trails := true, false
	for i := first; i < first+n; i++ {
		l := &src.Lines[i]
		if l.Text == "" || isComment(l.Text) {
			continue
		}
		p := arrowPrefix(form.Piece{Text: strings.TrimRight(form.CutComment(l.Text), ".。"), Off: l.Off})
		if len(out) > 0 && (startsWithArrow(p.Text) || trails) && p.Off-out[len(out)-1].Off < 8192 {
			last := &out[len(out)-1]
			last.Text += strings.Repeat(" ", p.Off-last.Off-len(last.Text)) + p.Text
			trails = endsWithArrow(p.Text)
			continue
		}
		lead := leadNumber(p.Text)
		numbered = numbered && lead > 0 && !startsWithArrow(p.Text[lead:])
		out, trails = append(out, p), endsWithArrow(p.Text)
	}
	if numbered && len(out) > 1 {
		for i, p := range out {
			lead := leadNumber(p.Text)
			out[i] = form.Piece{Text: p.Text[lead:], Off: p.Off + lead}
		}
	}
	return out
}

func startsWithArrow(s string) bool {
	if s == "" {
		return false
	}
	n, left := form.ArrowAt(s, 0)
	return n > 0 && !left
}

func endsWithArrow(s string) bool {
	parts, back := form.SplitArrows(s, 0)
	return len(back) > 0 && parts[len(parts)-1].Text == ""
}

// survey records the ids that occur without a title, and whether parts before the last one of a line have
// titles.
func (s *arrowSet) survey(p form.Piece) {
	chains, _ := form.Chains(p.Text, p.Off, s.apart)
	for _, c := range chains {
		for k, g := range c.Groups {
			for _, x := range g {
				b := form.Bare(x)
				if _, _, ok := form.SplitMark(b); !ok {
					s.bare[b.Text] = true
				} else if k < len(c.Groups)-1 && strings.Contains(b.Text, ":") {
					s.titles = true
				}
			}
		}
	}
}

// node adds an item, or a title to an existing one, and returns its id.
func (s *arrowSet) node(p form.Piece, title string) string {
	k, ok := s.index[p.Text]
	if !ok {
		k = len(s.r.Items)
		s.index[p.Text] = k
		s.r.Items = append(s.r.Items, Item{ID: p.Text, Shown: true, Title: p.Text, Parent: -1, Off: p.Off, End: p.Off + len(p.Text)})
	}
	if it := &s.r.Items[k]; title != "" && it.Title == it.ID {
		it.Title = title
	}
	return p.Text
}

// side adds the nodes on one side of an arrow and returns their ids.
func (s *arrowSet) side(g []form.Piece, last bool) (ids []string) {
	for _, x := range g {
		b := form.Bare(x)
		if b.Text == "" {
			continue
		}
		quoted := x.Text[0] == '"'
		if !quoted && !s.bare[b.Text] {
			b = withoutParallel(cutBullet(b))
		}
		if b.Text == "" {
			continue
		}
		if id, title, ok := form.SplitMark(b); ok && !quoted && (s.bare[id.Text] || strings.ContainsAny(id.Text, "0123456789") || s.titles || utf8.RuneCountInString(id.Text) < 3 || last && strings.Contains(b.Text, ": ")) {
			if last && !s.titles && strings.Contains(b.Text, ": ") {
				title.Text = ""
			}
			ids = append(ids, s.node(id, title.Text))
			continue
		}
		if head, _, ok := strings.Cut(b.Text, ": "); ok && last && !quoted && !s.titles {
			b.Text = head
		}
		ids = append(ids, s.node(b, ""))
	}
	return ids
}

// withoutParallel drops "in parallel" behind the ids on one side of an arrow.
func withoutParallel(p form.Piece) form.Piece {
	if !strings.Contains(p.Text, " ") && isASCII(p.Text) || len(p.Text) > 300 {
		return p
	}
	for _, t := range lexicon.Scan(p.Text) {
		if (t.Is(lexicon.Meanwhile) || t.Is(lexicon.Beside)) && t.Off > 0 && t.End == len(p.Text) {
			p.Text = strings.TrimRight(p.Text[:t.Off], " ,:–-")
			break
		}
	}
	return p
}

// ands replaces a word for "and" between two known ids by a comma.
func (s *arrowSet) ands(p form.Piece) form.Piece {
	if len(p.Text) > 4000 {
		return p
	}
	for _, t := range lexicon.Scan(p.Text) {
		if !t.Is(lexicon.And) {
			continue
		}
		before, _ := form.SplitArrows(p.Text[:t.Off], 0)
		behind, _ := form.SplitArrows(p.Text[t.End:], 0)
		left, right := form.SplitGroup(before[len(before)-1]), form.SplitGroup(behind[0])
		bare := func(x form.Piece) string {
			return withoutParallel(form.Piece{Text: strings.Trim(x.Text, "()[]{} ")}).Text
		}
		if s.isID(bare(left[len(left)-1])) && s.isID(bare(right[0])) {
			p.Text = p.Text[:t.Off] + "," + strings.Repeat(" ", t.End-t.Off-1) + p.Text[t.End:]
		}
	}
	return p
}

// line adds the items and links of a line.
func (s *arrowSet) line(p form.Piece) {
	chains, unsure := form.Chains(p.Text, p.Off, s.apart)
	for n, c := range chains {
		if n > 0 && len(c.Back) == 0 {
			s.note(c.Groups[0], "a semicolon ends a statement, so %s stands by itself", "write a comma where two problems follow")
		}
		if unsure && len(c.Back) > 1 {
			for _, g := range c.Groups[1:] {
				s.note(g, "the commas were taken to separate problems on one side of an arrow, here %s", "write one statement a line")
			}
		}
		if len(c.Doubt) > 0 {
			s.note(c.Doubt, "%s may belong to the statement before or behind it; the one before was taken", "write one statement a line")
		}
		var before []string
		for k, g := range c.Groups {
			ids, ends := s.nested(g, k == len(c.Groups)-1, p.Off, 0)
			if len(ids) == 0 && len(c.Back) > 0 {
				s.r.Notes = append(s.r.Notes, Note{Fault: true, Code: "EMPTY_ID", Element: strings.Join(before, ", "), Message: "an arrow at " + strings.Join(before, ", ") + " has nothing on one side: " + p.Text[:min(len(p.Text), 60)], Hint: "name a problem on both sides of the arrow", Off: p.Off})
			}
			switch {
			case k > 0 && c.Back[k-1]:
				s.link(ids, before, false, p.Off)
			case k > 0:
				s.link(before, ids, false, p.Off)
			}
			before = ends
		}
	}
}

// nested adds the nodes on one side of an arrow, and those of the chains in brackets there. It returns the
// ids at which the chains begin and end.
func (s *arrowSet) nested(g []form.Piece, last bool, off, depth int) (first, ends []string) {
	for _, x := range g {
		inner := form.Bare(x)
		if len(g) > 2 && (lexicon.Is(lexicon.Meanwhile, inner.Text) || lexicon.Is(lexicon.Beside, inner.Text)) {
			continue // for example "(A, B, in parallel)"
		}
		if !form.ContainsArrow(inner.Text) || depth > maxBrackets || inner.Text == x.Text && depth == 0 {
			ids := s.side([]form.Piece{x}, last)
			first, ends = append(first, ids...), append(ends, ids...)
			continue
		}
		for _, y := range form.SplitGroup(inner) {
			parts, back := form.SplitArrows(y.Text, y.Off)
			var before []string
			for k, p := range parts {
				a, b := s.nested(form.SplitGroup(p), false, off, depth+1)
				if k == 0 {
					first = append(first, a...)
				} else {
					s.link(before, a, back[k-1], off)
				}
				before = b
			}
			ends = append(ends, before...)
		}
	}
	return first, ends
}

// note adds a note about an assumption on some ids. %s in the message stands for the ids.
func (s *arrowSet) note(ids []form.Piece, message, hint string) {
	names := make([]string, len(ids))
	for i, x := range ids {
		names[i] = form.Bare(x).Text
	}
	if all := strings.Join(names, ", "); all != "" && len(s.r.Notes) < 200 {
		s.r.Notes = append(s.r.Notes, Note{Code: "AMBIGUOUS", Element: all, Message: strings.Replace(message, "%s", all, 1), Hint: hint, Off: ids[0].Off})
	}
}

func (s *arrowSet) link(from, to []string, back bool, off int) {
	if back {
		from, to = to, from
	}
	for _, a := range from {
		for _, b := range to {
			if len(s.r.Links) > s.maxLinks {
				if !s.full {
					s.full = true
					s.r.Notes = append(s.r.Notes, Note{Fault: true, Code: "LIMIT_REACHED", Element: from[0], Message: "the groups on this line make too many edges", Hint: "split the line", Off: off})
				}
				return
			}
			s.r.Links = append(s.r.Links, Link{From: a, To: b, Source: Stated, Off: off})
		}
	}
}

// alone reports whether a line with at least two arrows has no neighboring lines.
func alone(src *form.Source, i int) bool {
	_, back := form.SplitArrows(src.Lines[i].Text, 0)
	return len(back) > 1 && (i == 0 || src.Lines[i-1].Text == "") && (i+1 == len(src.Lines) || src.Lines[i+1].Text == "")
}

// isEntry reports whether a line begins like a list entry.
func isEntry(s string) bool {
	return leadNumber(s) > 0 || len(cutBullet(form.Piece{Text: s}).Text) < len(s)
}

// excerptWeight is the weight of a drawing of a part of a plan, such as its critical path. It is less than
// the weight of the plan.
const excerptWeight = 58

// excerpt reports whether the text announces lines of arrows as a part of a plan.
func excerpt(src *form.Source, first, n int) bool {
	if n == 1 && lexicon.Has(lexicon.Path, src.Lines[first].Text[:min(len(src.Lines[first].Text), 200)]) {
		return true
	}
	for i := first - 1; i >= 0 && i >= first-3; i-- {
		if t := src.Lines[i].Text; t != "" && !src.Lines[i].Fence {
			return len(t) < 200 && lexicon.Has(lexicon.Path, t)
		}
	}
	return false
}

type filledKey struct{}

// filledLines returns how many lines of a text are neither empty nor fences.
func filledLines(src *form.Source) int {
	return form.Once(src, filledKey{}, func() (n int) {
		for i := range src.Lines {
			n += b2i(src.Lines[i].Text != "" && !src.Lines[i].Fence)
		}
		return n
	})
}

// arrowWeight returns the weight of a block of arrow lines. It is high if the block is most of the text,
// fenced or announced, and 0 if an essay or a list merely contains an arrow.
func arrowWeight(src *form.Source, first, n int) int {
	if otherArrows(src, first, n) {
		return 0
	}
	if excerpt(src, first, n) {
		return excerptWeight
	}
	if src.Lines[first].InCode {
		return 90
	}
	others := filledLines(src) - n
	if others > 3*n && others > 20 {
		return 55 // a part of something larger
	}
	if head, _, ok := strings.Cut(src.Lines[first].Text, ":"); ok && len(head) < 60 && announcesGraph(head) {
		return 90
	}
	for i, seen := first-1, 0; i >= 0 && i >= first-4 && seen < 2; i-- {
		if t := src.Lines[i].Text; t != "" {
			if seen++; strings.HasSuffix(t, ":") || strings.HasSuffix(t, "：") || announcesGraph(t) {
				return 90
			}
		}
	}
	if isEntry(src.Lines[first].Text) && (first+n < len(src.Lines) && isEntry(src.Lines[first+n].Text) || first > 0 && isEntry(src.Lines[first-1].Text)) {
		return 0 // entries of a list
	}
	switch {
	case others <= 2 && n > 2:
		return 95
	case n == 1 && others <= 4 && alone(src, first):
		return 80
	case others <= n && others <= 2 || n > 1 && others <= 2*n:
		return 85
	case n > 1:
		return 45
	}
	return 0
}
