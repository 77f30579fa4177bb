package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// flatEnd returns where the line stands that ends the block of line k, or -1.
func (r *pseudo) flatEnd(lines []*pseudoLine, k int) int {
	for j := k + 1; j < len(lines) && j < k+200; j++ {
		if lines[j].text != "" && closes(lines[j].text, lines[k].text) {
			return j
		}
	}
	return -1
}

// closes reports whether a line ends the block that another one begins: it holds its words and one more, or
// is short and in capitals as the other is.
func closes(s, head string) bool {
	if s == "" || head == "" || !short(s) {
		return false
	}
	s, head = strings.ToLower(strings.Trim(s, " :()")), strings.ToLower(strings.Trim(head, " :()"))
	first, _, more := strings.Cut(s, " ")
	if s == "}" || endWords[first] && (!more || strings.Contains(s[len(first):], strings.Trim(firstWord(head), "(:"))) {
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

// endWords end blocks, alone or in front of the word that began the block.
var endWords = setOf("end done fin ende join fim fine einde slut slutt koniec конец кінець 结束 結束 終了 終わり 끝 종료 son bitti selesai akhir kết_thúc hết نهاية समाप्त finsi finpour fi endif endfor endwhile next stop stopp")

// leaf adds the step of one line.
func (r *pseudo) leaf(n *pseudoLine, f *form.Flow) {
	text := n.text
	for _, mark := range [...]string{" //", "  #", " # ", " -- "} {
		if i := strings.Index(text, mark); i > 0 {
			text = strings.TrimSpace(text[:i])
		}
	}
	text = strings.TrimRight(text, " ;,.")
	p := cutBullet(form.Piece{Text: strings.TrimLeft(text, "| "), Off: n.off + len(text) - len(strings.TrimLeft(text, "| "))})
	if p.Text == "" {
		return
	}
	if needs, rest, ok := pseudoRule(p); ok {
		r.wait = append(r.wait, needs)
		p = rest
	}
	word, rest, _ := strings.Cut(p.Text, " ")
	if lexicon.Is(lexicon.Then, strings.ToLower(word)) && rest != "" {
		p = form.Piece{Text: strings.TrimSpace(rest), Off: p.Off + len(p.Text) - len(rest)}
		word, rest, _ = strings.Cut(p.Text, " ")
	}
	word = strings.TrimRight(word, "(:")
	if joinVerbs[strings.ToLower(strings.Trim(word, "()"))] {
		if inner := strings.Trim(strings.TrimPrefix(p.Text, word), " ()[]"); inner != "" {
			r.wait = append(r.wait, inner)
		}
		return
	}
	if e := form.ParseExpr(p.Text, p.Off); (strings.Contains(p.Text, "||") || parallelWord(callPath(e))) && r.flow(e, f.Add("seq", 0), 1) {
		r.par++
		return
	}
	verb := r.verbs[word] && rest != ""
	if verb {
		p = form.Piece{Text: strings.TrimSpace(rest), Off: p.Off + len(p.Text) - len(rest)}
	}
	id, title, tail, shown := pseudoMark(p)
	if !shown {
		id, title, shown = pseudoName(p.Text)
	}
	if len(r.verbs) > 0 && !verb && !shown && r.par == 0 {
		r.note(false, "SKIPPED_TEXT", p.Text, "this line was left out: "+p.Text, "begin it as the other lines begin", p.Off)
		return
	}
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
	r.tails[k] = tail
	if r.wait != nil {
		r.joins[k], r.wait = r.wait, nil
	}
	f.Add("step", k)
}

// pseudoRule splits "WHEN a DONE: START b" and "当 a 完成 则 b" into what is waited for and what is done then.
func pseudoRule(p form.Piece) (needs string, rest form.Piece, ok bool) {
	word, _, _ := strings.Cut(p.Text, " ")
	if !isCondition(p.Text) && !joinVerbs[strings.ToLower(word)] && !lexicon.Is(lexicon.Needs, strings.ToLower(word)) {
		return "", p, false
	}
	for k, sign := range [...]string{":", "：", " THEN ", " then ", " → ", " -> ", " => ", " ⇒ ", "则", "就", ", ", "，"} {
		i := strings.Index(p.Text, sign)
		if k >= 10 && joinVerbs[strings.ToLower(word)] || i <= len(word) || strings.HasPrefix(p.Text[i:], ":=") {
			continue
		}
		if t := strings.TrimLeft(p.Text[i+len(sign):], " "); t != "" {
			return p.Text[len(word):i], form.Piece{Text: t, Off: p.Off + len(p.Text) - len(t)}, true
		}
	}
	return "", p, false
}

// pseudoMark returns the mark in front of a step: "S2: sort", "2. sort", "STEP A: sort", "b := sort".
func pseudoMark(p form.Piece) (id, title, tail string, ok bool) {
	word, rest, _ := strings.Cut(p.Text, " ")
	if lexicon.Is(lexicon.Steps, strings.ToLower(word)) && rest != "" {
		p = form.Piece{Text: strings.TrimSpace(rest), Off: p.Off + len(p.Text) - len(rest)}
	}
	if jobVerbs[strings.ToLower(word)] && strings.Contains(rest, ":= ") {
		p = form.Piece{Text: strings.TrimSpace(rest), Off: p.Off + len(p.Text) - len(rest)}
	}
	a, b, found := form.SplitMark(p)
	if !found || !strings.HasPrefix(strings.TrimLeft(p.Text[len(a.Text):], " "), ":") && leadNumber(p.Text) == 0 || strings.HasSuffix(p.Text, ":") {
		return "", "", "", false
	}
	return a.Text, b.Text, "", true
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

// needs reads what stands behind the names of jobs, and what was waited for in front of them: words and ids
// of other jobs.
func (r *pseudo) needs() {
	for _, it := range r.r.Items {
		if k, ok := r.known[it.ID]; ok {
			r.r.Items[k].Also = append(r.r.Items[k].Also, it.Title)
		}
	}
	for k := range r.r.Items {
		it := &r.r.Items[k]
		found := 0
		for _, w := range pseudoWords(r.tails[k]) {
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
			hits := 0
			for _, w := range pseudoWords(inner) {
				if x, ok := r.known[w]; ok && x != k {
					r.link(x, k, Stated, it.Off)
					hits++
				}
			}
			if r.stated += hits; hits == 0 && len(pseudoWords(inner)) > 0 && r.par == 0 {
				r.note(false, "AMBIGUOUS", it.ID, "what "+it.ID+" waits for was not found: "+strings.TrimSpace(inner), "name a step", it.Off)
			}
		}
	}
}

// pseudoWords splits a text into what may be names.
func pseudoWords(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(" ,()[]&+;:，、", c) })
}
