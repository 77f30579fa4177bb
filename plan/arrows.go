package plan

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

var arrowSigns = [...]string{"-->", "->", "==>", "=>", "→", "⟶", "➔", "⇒"}

// splitArrows splits a line at its arrows and trims the parts. Quoted parts are kept whole and lose their quotes later.
func splitArrows(s string) (parts []string, arrows int) {
	if !mayHoldArrow(s) {
		return []string{strings.TrimSpace(s)}, 0
	}
	start := 0
	quote := byte(0)
	for i := 0; i < len(s); {
		if quote != 0 {
			if s[i] == '\\' {
				i++
			} else if s[i] == quote {
				quote = 0
			}
			i++
			continue
		}
		if s[i] == '"' && strings.TrimSpace(s[start:i]) == "" {
			quote = '"'
			i++
			continue
		}
		n := 0
		if s[i] == '-' || s[i] == '=' || s[i] == 0xe2 {
			for _, a := range arrowSigns {
				if strings.HasPrefix(s[i:], a) {
					n = len(a)
					break
				}
			}
		}
		if n == 0 {
			if s[i] == ',' {
				// A quote may open after a comma as well.
				j := i + 1
				for j < len(s) && s[j] == ' ' {
					j++
				}
				if j < len(s) && s[j] == '"' {
					quote = '"'
					i = j + 1
					continue
				}
			}
			i++
			continue
		}
		parts = append(parts, strings.TrimSpace(s[start:i]))
		arrows++
		i += n
		start = i
	}
	return append(parts, strings.TrimSpace(s[start:])), arrows
}

// mayHoldArrow is a quick test: every arrow sign has a > or begins with the byte 0xe2.
func mayHoldArrow(s string) bool {
	return strings.IndexByte(s, '>') >= 0 || strings.IndexByte(s, 0xe2) >= 0
}

// splitGroup splits "A, B" into its ids.
func splitGroup(s string) []string {
	if !strings.Contains(s, `"`) {
		parts := strings.FieldsFunc(s, func(c rune) bool { return c == ',' || c == '，' || c == '、' })
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		return parts
	}
	var out []string
	for s = strings.TrimSpace(s); s != ""; {
		if s[0] == '"' {
			j := 1
			for j < len(s) && s[j] != '"' {
				if s[j] == '\\' {
					j++
				}
				j++
			}
			end := min(j, len(s))
			out = append(out, unescape(s[1:end], true))
			s = strings.TrimSpace(s[min(end+1, len(s)):])
			s = strings.TrimSpace(strings.TrimPrefix(s, ","))
			continue
		}
		j := strings.IndexByte(s, ',')
		if j < 0 {
			out = append(out, s)
			break
		}
		out = append(out, strings.TrimSpace(s[:j]))
		s = strings.TrimSpace(s[j+1:])
	}
	return out
}

// arrowEdges returns the edges of a line such as "A, B -> C".
func arrowEdges(s string) [][2]string {
	parts, arrows := splitArrows(s)
	if arrows == 0 {
		return nil
	}
	var out [][2]string
	for i := 0; i+1 < len(parts); i++ {
		for _, a := range splitGroup(parts[i]) {
			for _, b := range splitGroup(parts[i+1]) {
				if a != "" && b != "" {
					out = append(out, [2]string{a, b})
				}
			}
		}
	}
	return out
}

// maxProduct bounds the edges that one line of comma groups may stand for.
const maxProduct = 100_000

// arrowLine adds the edges of one line to r and calls each with every id in it, in order.
func arrowLine(d *document, r *reading, text string, off int, each func(id string)) {
	parts, arrows := splitArrows(text)
	groups := make([][]string, len(parts))
	empty := false
	for i, p := range parts {
		groups[i] = splitGroup(p)
		kept := groups[i][:0]
		for _, id := range groups[i] {
			if id != "" {
				kept = append(kept, id)
				each(id)
			}
		}
		groups[i] = kept
		if len(kept) == 0 && arrows > 0 && !empty {
			empty = true
			r.diag(d, Error, EmptyID, off, clip(text), "an arrow has nothing on one side", "name a problem on both sides of the arrow")
		}
	}
	for i := 0; i+1 < len(groups); i++ {
		if len(groups[i])*len(groups[i+1]) > maxProduct {
			r.diag(d, Error, LimitReached, off, clip(text), "the groups on this line stand for too many edges", "split the line")
			continue
		}
		for _, a := range groups[i] {
			for _, b := range groups[i+1] {
				r.edge(d, a, b, Stated, off)
			}
		}
	}
}

// readArrows reads lines such as "A -> B, C -> D" and single ids, and Mermaid flowcharts.
func readArrows(d *document) *reading {
	if !mayHoldArrow(d.text) {
		return nil
	}
	best, bestLen := -1, 0
	for i := 0; i < len(d.lines); {
		n, arrows := arrowBlock(d, i)
		if arrows > 0 && n > bestLen {
			best, bestLen = i, n
		}
		i += max(n, 1)
	}
	if best < 0 || !arrowsStandOut(d, best, bestLen) {
		return nil
	}
	r := &reading{edgesStated: true, start: d.lines[best].off}
	seen := map[string]bool{}
	mermaid := false
	block := d.lines[best : best+bestLen]
	for _, l := range block {
		if isMermaidHead(l.text) {
			mermaid = true
		}
	}
	labels := map[string]string{}
	for _, l := range block {
		text := l.text
		if text == "" || isMermaidHead(text) || l.fence {
			continue
		}
		text = strings.TrimRight(text, ";")
		if i := strings.IndexAny(text, "-*•"); i == 0 {
			text = strings.TrimLeft(strings.TrimLeft(text, "-*•"), " ")
		}
		if mermaid {
			text = stripMermaid(text, labels)
		}
		if isBrokenArrow(text) {
			r.diag(d, Error, Malformed, l.off, clip(text), "this looks like an edge whose arrow is broken", "write A -> B")
			continue
		}
		before := len(r.graph.Edges)
		arrowLine(d, r, text, l.off, func(id string) {
			if !seen[id] {
				seen[id] = true
				r.graph.Problems = append(r.graph.Problems, d.problem(id, "", l.off))
			}
		})
		r.end = l.off + len(l.text)
		r.last = ""
		if n := len(r.graph.Edges); n > before {
			r.last = r.graph.Edges[n-1].To
		}
	}
	for i := range r.graph.Problems {
		p := &r.graph.Problems[i]
		if p.Request = labels[p.ID]; p.Request == "" {
			p.Request = p.ID
		}
	}
	if len(r.graph.Edges) == 0 && len(r.graph.Problems) < 2 {
		return nil
	}
	r.openEnded = true
	return r
}

// arrowsStandOut reports whether a block of arrow lines is what the text is about: most of it, fenced, or announced.
// An arrow in the middle of an essay is not a plan.
func arrowsStandOut(d *document, first, n int) bool {
	l := d.lines[first]
	if l.inCode {
		return true
	}
	for i := first - 1; i >= 0 && i >= first-3; i-- {
		if t := d.lines[i].text; t != "" {
			t = strings.ToLower(t)
			if saysPlan(t) || strings.Contains(t, "graph") || strings.Contains(t, "depend") || strings.Contains(t, "order") {
				return true
			}
			break
		}
	}
	others := 0
	for i, l := range d.lines {
		if (i < first || i >= first+n) && l.text != "" && !l.fence {
			others++
		}
	}
	return others <= 3 || others <= 2*n
}

// arrowBlock returns how many lines from i on belong together as arrow lines, and how many of them have arrows.
func arrowBlock(d *document, i int) (n, arrows int) {
	code := d.lines[i].inCode
	if code && isCodeLang(d.lines[i].lang) && (d.lines[i].lang != "mermaid" || !isMermaidHead(d.lines[i].text)) {
		return 0, 0
	}
	for j := i; j < len(d.lines); j++ {
		l := d.lines[j]
		if l.inCode != code || l.fence {
			break
		}
		if l.text == "" {
			// Blank lines may stand between arrow lines only.
			if j+1 < len(d.lines) && arrows > 0 && isArrowLine(d.lines[j+1].text) {
				continue
			}
			break
		}
		if isMermaidHead(l.text) {
			if j != i {
				break
			}
			n = j - i + 1
			continue
		}
		if isArrowLine(l.text) {
			arrows++
		} else if j > i && isBrokenArrow(l.text) {
			// Its arrow has lost a sign; reading says so.
			if n == 0 {
				break
			}
		} else if !isSingleID(l.text) {
			break
		}
		n = j - i + 1
	}
	return n, arrows
}

// isBrokenArrow reports whether s looks like "A - B" or "A > B", with one word or quoted id on each side.
func isBrokenArrow(s string) bool {
	for _, sign := range [...]string{" - ", " > ", " = ", " -- "} {
		a, b, ok := strings.Cut(s, sign)
		if ok && a != "" && b != "" && isSingleID(strings.TrimSpace(a)) && isSingleID(strings.TrimSpace(b)) {
			return true
		}
	}
	return false
}

func isMermaidHead(s string) bool {
	for _, h := range []string{"graph TD", "graph LR", "graph TB", "graph BT", "graph RL", "flowchart ", "graph;", "digraph"} {
		if hasFold(s, h) {
			return true
		}
	}
	return false
}

// isArrowLine reports whether s consists of short ids between arrows and commas.
func isArrowLine(s string) bool {
	if len(s) > 100_000 || strings.Contains(s, "->>") || strings.Contains(s, "):") || strings.HasSuffix(s, ":") || strings.HasSuffix(s, "{") {
		return false
	}
	parts, arrows := splitArrows(strings.TrimRight(s, ";"))
	if arrows == 0 {
		return false
	}
	for _, p := range parts {
		for _, id := range splitGroup(p) {
			if !isLooseID(id) {
				return false
			}
		}
	}
	return true
}

// isLooseID accepts names of a few words, without the punctuation of sentences.
func isLooseID(id string) bool {
	if len(id) > 120 || strings.Count(id, " ") > 7 {
		return false
	}
	for _, c := range id {
		if c == '.' || c == ':' || c == '(' || c == ')' || c == '[' || c == ']' || c == '{' || c == '}' || c == '#' || c == '$' || c == '"' || c == '/' || c == '\'' || c == '&' || c == '|' || c == '?' || c == '!' || c == '+' || c == '<' || c == '>' {
			continue
		}
		if unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c) || c == '_' || c == '-' || c == ' ' {
			continue
		}
		return false
	}
	return !strings.HasSuffix(id, ".") || utf8.RuneCountInString(id) < 4
}

// isSingleID accepts a line that is one id: no spaces, and not a word with the punctuation of a sentence.
func isSingleID(s string) bool {
	s = strings.TrimLeft(s, "-*• ")
	if strings.HasPrefix(s, `"`) && strings.HasSuffix(s, `"`) && len(s) > 2 {
		return true
	}
	if s == "" || len(s) > 64 || strings.ContainsAny(s, " \t") || strings.ContainsAny(s[len(s)-1:], ".:!?;") {
		return false
	}
	return isLooseID(s)
}

// stripMermaid takes the labels out of "A[Label] --> B(Other)" and keeps them.
func stripMermaid(s string, labels map[string]string) string {
	parts, _ := splitArrows(s)
	for i, p := range parts {
		if strings.HasPrefix(p, "|") {
			if j := strings.IndexByte(p[1:], '|'); j >= 0 {
				p = strings.TrimSpace(p[j+2:])
			}
		}
		if j := strings.IndexAny(p, "[({"); j > 0 {
			label := strings.Trim(p[j:], "[](){}\"' ")
			p = strings.TrimSpace(p[:j])
			labels[p] = label
		}
		parts[i] = p
	}
	return strings.Join(parts, " -> ")
}

// unbalancedText warns of brackets that do not pair up in a text of one line.
func unbalancedText(d *document, r *reading, s string, off int) {
	if c := unpaired(s); c != 0 {
		r.diag(d, Warning, Unbalanced, off, clip(s), "the bracket "+string(c)+" has no partner on this line", "check the brackets")
	}
}

// unpaired returns a bracket of s that has no partner, or 0.
func unpaired(s string) rune {
	var stack [32]rune
	n := 0
	for _, c := range s {
		switch c {
		case '(', '[', '{', '（', '【', '《':
			if n == len(stack) {
				return 0
			}
			stack[n] = c
			n++
		case ')', ']', '}', '）', '】', '》':
			if n == 0 {
				return c
			}
			n--
			if stack[n] != bracketPartner(c) && !(c == ')' && stack[n] == '（') && !(c == '）' && stack[n] == '(') {
				return c
			}
		}
	}
	if n > 0 {
		return stack[n-1]
	}
	return 0
}

func bracketPartner(c rune) rune {
	switch c {
	case ')':
		return '('
	case ']':
		return '['
	case '}':
		return '{'
	case '）':
		return '（'
	case '】':
		return '【'
	}
	return '《'
}
