package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

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
	if inner, ok := r.waits(p.Text); ok {
		if inner != "" {
			r.wait = append(r.wait, inner)
		}
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
		if a, b, ok := strings.Cut(strings.Replace(p.Text, "：", ": ", 1), " "); ok {
			id, tail, title, shown = strings.Trim(a, ":,"), b, p.Text, true
			// SAMPLE WHEN DONE(CALIBRATE): run the soil sample
			if i := strings.Index(b, ": "); i > 0 && !strings.HasPrefix(b[i+2:], "[") {
				tail, title = b[:i], strings.TrimSpace(b[i+2:])
			}
		}
	}
	if !shown {
		id = itoa(len(r.r.Items) + 1)
	}
	k := r.item(id, title, shown, p.Off, n.end)
	r.items[id] = k
	r.tails[k] = tail
	if r.wait != nil {
		r.joins[k], r.wait = r.wait, nil
	}
	f.Add("step", k)
}

// waits returns the text behind a word for waiting: names of steps, or "" for all steps that were started. A
// line that waits for a time or for something unknown is a step, and ok is false.
func (r *pseudo) waits(s string) (inner string, ok bool) {
	folded := lexicon.Fold(s)
	b, n := lexicon.LeadingBlock(folded)
	if b&lexicon.BlockJoin == 0 {
		return "", false
	}
	inner = strings.Trim(s[min(n, len(s)):], " ()[]:：")
	if inner == "" || capitals(firstWord(s)) && !strings.Contains(s, "_") || strings.HasPrefix(strings.TrimSpace(folded[n:]), "(") {
		return inner, true
	}
	for _, w := range pseudoWords(inner) {
		if _, known := r.items[w]; known {
			return inner, true
		}
	}
	for _, t := range lexicon.Scan(inner) {
		if t.Kinds&lexicon.KindsOf(lexicon.All, lexicon.Both) != 0 {
			return "", true
		}
	}
	return inner, lexicon.HasBlock(lexicon.BlockParallel, folded)
}

// pseudoRule splits "WHEN a DONE: START b" and "当 a 完成 则 b" into the text that is waited for and the step.
func pseudoRule(p form.Piece) (needs string, rest form.Piece, ok bool) {
	word, _, _ := strings.Cut(p.Text, " ")
	waits := wordIs(word, lexicon.BlockJoin)
	if !isCondition(p.Text) && !waits && !lexicon.Is(lexicon.Needs, strings.ToLower(word)) {
		return "", p, false
	}
	at, after := -1, "" // the offset of the first sign, and the text behind it
	for k, sign := range [...]string{":", "：", " THEN ", " then ", " → ", " -> ", " => ", " ⇒ ", "则", "就", ", ", "，"} {
		i := strings.Index(p.Text, sign)
		if k >= 10 && (waits || at >= 0) || i <= len(word) || strings.HasPrefix(p.Text[i:], ":=") || at >= 0 && i > at {
			continue
		}
		if t := strings.TrimLeft(p.Text[i+len(sign):], " "); t != "" {
			at, after = i, t
		}
	}
	if at < 0 {
		return "", p, false
	}
	return p.Text[len(word):at], form.Piece{Text: after, Off: p.Off + len(p.Text) - len(after)}, true
}

// quoted reports whether a text is a mark, a colon and a quoted text: A: "collect".
func quoted(s string) bool {
	mark, text, ok := strings.Cut(s, ": ")
	return ok && !strings.Contains(mark, " ") && strings.HasPrefix(text, "\"")
}

// pseudoMark returns the mark and the title of a step: "S2: sort", "2. sort", "STEP A: sort", "b := sort".
// tail is the part of the title that states needs.
func pseudoMark(p form.Piece) (id, title, tail string, ok bool) {
	word, rest, _ := strings.Cut(p.Text, " ")
	if rest != "" && (lexicon.Is(lexicon.Steps, word) || runs(word) && (strings.Contains(rest, ":= ") || quoted(rest))) {
		p = form.Piece{Text: strings.TrimSpace(rest), Off: p.Off + len(p.Text) - len(rest)}
	}
	a, b, found := form.SplitMark(p)
	if !found || strings.Contains(a.Text, "(") && !strings.Contains(a.Text, ")") || !strings.HasPrefix(strings.TrimLeft(p.Text[len(a.Text):], " "), ":") && leadNumber(p.Text) == 0 || strings.HasSuffix(p.Text, ":") {
		return "", "", "", false
	}
	tail = ""
	// Needs stand in the title: flights: [needs book]
	if first, _, _ := strings.Cut(b.Text, " "); strings.HasPrefix(b.Text, "[") || lexicon.Is(lexicon.Needs, first) {
		tail = b.Text
		if i := strings.IndexByte(tail, ']'); i > 0 {
			tail = tail[:i]
		}
	}
	return a.Text, b.Text, tail, true
}

// pseudoName returns the id of a step whose line is one word or a call.
func pseudoName(s string) (id, title string, shown bool) {
	t := s
	if i := strings.IndexByte(t, '('); i > 0 && strings.HasSuffix(t, ")") {
		t = t[:i] // the arguments are not part of the name
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

// needs links the steps to the ids in the text behind their names, and to the ids that were waited for before
// them.
func (r *pseudo) needs() {
	for _, it := range r.r.Items {
		if k, ok := r.items[it.ID]; ok {
			r.r.Items[k].Also = append(r.r.Items[k].Also, it.Title)
		}
	}
	for k := range r.r.Items {
		it := &r.r.Items[k]
		found := 0
		for _, w := range pseudoWords(r.tails[k]) {
			if x, ok := r.items[w]; ok && x != k {
				r.link(x, k, Stated, it.Off)
				found++
			} else if ok {
				r.r.Links = append(r.r.Links, Link{From: it.ID, To: it.ID, Source: Stated, Off: it.Off})
				found++
			} else if strings.ContainsAny(w, "_0123456789") || found > 0 && capitals(w) == capitals(it.ID) && !lexicon.Is(lexicon.And, w) && !lexicon.Is(lexicon.Done, w) && !lexicon.Is(lexicon.Needs, w) {
				r.r.Links = append(r.r.Links, Link{From: w, To: it.ID, Source: Stated, Off: it.Off})
			}
		}
		r.stated += found
		for _, inner := range r.joins[k] {
			hits := 0
			for _, w := range pseudoWords(inner) {
				if x, ok := r.items[w]; ok && x != k {
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

// pseudoWords splits a text into words that may be names.
func pseudoWords(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(" ,()[]&+;:，、", c) })
}
