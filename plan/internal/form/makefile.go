package form

import "strings"

// makeRule is one rule of a Makefile or a justfile.
type makeRule struct {
	targets, needs []Piece
	line, last     int
	recipe         string
	title          string
}

// makeTries counts the vain attempts to read rules from the lines up to end.
type makeTries struct{ end, count int }

// maxTries bounds the attempts to read the same lines as rules from different first lines.
const maxTries = 3

// makeAt reads the Makefile, justfile or the like that begins on line i: rules with recipes below them.
func makeAt(src *Source, i int, tries *makeTries) *Diagram {
	l := &src.Lines[i]
	fenced := l.InCode && makeLang(l.Lang)
	if l.InCode && !fenced && l.Lang != "" && l.Lang != "text" && l.Lang != "txt" && l.Lang != "plaintext" {
		return nil
	}
	if i > 0 && src.Lines[i-1].Text != "" && !src.Lines[i-1].Fence && !fenced && !makeComment(src.Lines[i-1].Text) && !strings.HasSuffix(src.Lines[i-1].Text, ":") {
		return nil
	}
	if i >= tries.end {
		tries.count = 0
	}
	if tries.count >= maxTries || !makeBegins(l.Text) {
		return nil
	}
	m := &maker{src: src, known: map[string]bool{}}
	end := src.blockEnd(i)
	tries.end, tries.count = max(tries.end, m.read(i, end, fenced)), tries.count+1
	if len(m.rules) > 0 && len(m.rules[0].targets) > 2 && len(m.rules[0].needs) == 0 && m.rules[0].recipe == "" {
		m.rules = m.rules[1:] // "Here is the Makefile:"
	}
	if len(m.rules) < 2 || !m.fits(fenced) {
		return nil
	}
	i = m.rules[0].line
	g := newDiagram(src, "make", i)
	g.Closed = src.closedFence(end)
	for _, r := range m.rules {
		for _, t := range r.targets {
			if strings.Contains(t.Text, "%") {
				g.fault(false, "SKIPPED_TEXT", t.Off, t.Text, "the pattern rule "+t.Text+" was left out", "name its targets")
				continue
			}
			title := r.title
			if title == "" {
				title = r.recipe
			}
			g.node(t.Text, title, t.Off)
		}
		g.Last, g.End = r.last, src.Lines[r.last].End
	}
	g.sortAs(m.named)
	for _, r := range m.rules {
		for _, t := range r.targets {
			for _, n := range r.needs {
				if _, ok := g.index[n.Text]; ok || !makeFile(n.Text) {
					g.link([]string{n.Text}, []string{t.Text}, n.Off, "")
				} else {
					g.addField(t.Text, "prerequisite", n.Text)
				}
			}
		}
	}
	return g
}

func makeLang(s string) bool {
	switch s {
	case "make", "makefile", "just", "justfile", "mk", "gnumakefile":
		return true
	}
	return false
}

// makeFile reports whether a prerequisite is a file that no rule makes, or a variable. Neither is a problem.
func makeFile(s string) bool { return strings.ContainsAny(s, "./$%*(){}\\") }

func makeComment(s string) bool { return strings.HasPrefix(s, "#") }

// makeBegins is a fast check whether a file of rules may begin with a line.
func makeBegins(s string) bool {
	_, isVar := makeVariable(s)
	_, _, isRule := makeHead(Piece{Text: s})
	return isVar || isRule || makeComment(s) || strings.HasPrefix(s, ".") && strings.ContainsAny(s, ":=") || strings.HasPrefix(s, "export ") || strings.HasPrefix(s, "set ") || strings.HasPrefix(s, "default:")
}

// makeVariable reports whether a line sets a variable.
func makeVariable(s string) (string, bool) {
	n := nameEnd(s, "-")
	if n == 0 || n > 60 {
		return "", false
	}
	rest := strings.TrimLeft(s[n:], " ")
	for _, sign := range [...]string{":=", "::=", "?=", "+=", "="} {
		if strings.HasPrefix(rest, sign) {
			return s[:n], !strings.HasPrefix(rest, "==")
		}
	}
	return "", false
}

// makeHead splits "a b: c d | e" into targets and prerequisites.
func makeHead(p Piece) (targets, needs []Piece, ok bool) {
	s := p.Text
	if i := strings.Index(s, " #"); i > 0 {
		s = s[:i]
	}
	i := colonOutside(s)
	if i <= 0 || i > 200 || strings.HasPrefix(s[i:], "://") || strings.HasPrefix(s[i:], ":=") {
		return nil, nil, false
	}
	if s[i-1] == ' ' && i+1 < len(s) && s[i+1] != ' ' && s[i+1] != ':' || strings.Contains(s, "=>") {
		return nil, nil, false // "task :two => :one" is Ruby
	}
	left, right := s[:i], strings.TrimLeft(s[i:], ":")
	rightOff := p.Off + len(s) - len(right)
	if k := strings.IndexByte(right, ';'); k >= 0 {
		right = right[:k]
	}
	names := strings.Fields(left)
	just := len(names) > 1 && strings.ContainsAny(left, "=\"'*+")
	if just {
		names = names[:1] // a just recipe with parameters
	}
	for _, t := range names {
		if t == "" || nameEnd(t, ".-/%@$(){}&") != len(t) {
			return nil, nil, false
		}
		t = strings.TrimPrefix(t, "@")
		targets = append(targets, Piece{t, p.Off + strings.Index(s, t)})
	}
	for k := 0; k < len(right); {
		switch c := right[k]; {
		case c == ' ' || c == '\t' || c == '|' || c == '&' || c == ',' || c == '\\' || c == '\n':
			k++
		case c == '(':
			n := strings.IndexByte(right[k:], ')')
			if n < 0 {
				return nil, nil, false
			}
			name := strings.TrimSpace(right[k+1 : k+n])
			name = name[:nameEnd(name, "-")]
			if name != "" {
				needs = append(needs, Piece{name, rightOff + k + 1})
			}
			k += n + 1
		default:
			n := k
			for n < len(right) && strings.IndexByte(" \t,|(\\\n", right[n]) < 0 {
				n++
			}
			if n < len(right) && right[n] == '(' && n > k && right[n-1] == '$' {
				if e := strings.IndexByte(right[n:], ')'); e > 0 {
					n += e + 1
				}
			}
			name := right[k:n]
			if n == k || nameEnd(name, ".-/%@$(){}*") != len(name) {
				return nil, nil, false
			}
			needs = append(needs, Piece{name, rightOff + k})
			k = n
		}
	}
	return targets, needs, len(targets) > 0 && len(targets) <= 40
}

// colonOutside returns the index of the first colon outside quotes and brackets, or -1.
func colonOutside(s string) int {
	depth, open := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\'':
			if c == open {
				break
			}
			if n := QuotedLength(s[i:]); n > 0 {
				i += n - 1
			} else {
				open = c
			}
		case '(', '{':
			depth++
		case ')', '}':
			depth--
		case ':':
			if depth <= 0 {
				return i
			}
		}
	}
	return -1
}

type maker struct {
	src   *Source
	rules []makeRule
	known map[string]bool
	phony bool
	// named are the targets that .PHONY lists before the first rule.
	named []string
	// recipes counts lines below rules. yamlLike counts those of them that look like keys and entries of
	// YAML.
	recipes, yamlLike int
}

// read reads the rules from line i on. It returns the line on which it stops.
func (m *maker) read(i, end int, fenced bool) int {
	title := ""
	base := m.src.Lines[i].Indent
	for k := i; k < end; k++ {
		l := &m.src.Lines[k]
		switch {
		case l.Text == "":
			continue
		case l.Indent > base && len(m.rules) > 0:
			m.recipe(k, l.Text)
			continue
		case makeComment(l.Text):
			title = strings.TrimSpace(strings.TrimLeft(l.Text, "# "))
			if k > i && m.src.Lines[k-1].Text != "" && m.src.Lines[k-1].Indent <= base {
				title = ""
			}
			continue
		case strings.HasPrefix(l.Text, ".PHONY"):
			m.phony = true
			if _, names, ok := strings.Cut(l.Text, ":"); ok && len(m.rules) == 0 {
				m.named = append(m.named, strings.Fields(names)...)
			}
			continue
		case strings.HasPrefix(l.Text, "["), strings.HasPrefix(l.Text, ".") && strings.ContainsAny(l.Text, ":="), strings.HasPrefix(l.Text, "set "), strings.HasPrefix(l.Text, "include "), strings.HasPrefix(l.Text, "export "), strings.HasPrefix(l.Text, "import "), strings.HasPrefix(l.Text, "ifeq"), strings.HasPrefix(l.Text, "ifneq"), strings.HasPrefix(l.Text, "ifdef"), l.Text == "endif", l.Text == "else":
			continue
		}
		if _, ok := makeVariable(l.Text); ok || strings.HasPrefix(l.Text, "alias ") {
			continue
		}
		text, last := l.Text, k
		for strings.HasSuffix(text, "\\") && last+1 < end && last < k+40 {
			last++
			text = m.src.Text[l.Off:m.src.Lines[last].End]
		}
		targets, needs, ok := makeHead(Piece{text, l.Off})
		if !ok || makeWord(targets[0].Text) {
			if fenced {
				title = ""
				continue
			}
			return k
		}
		if h := strings.Index(text, "## "); h > 0 {
			title = strings.TrimSpace(text[h+3:])
		}
		for _, t := range targets {
			m.known[t.Text] = true
		}
		m.rules = append(m.rules, makeRule{targets: targets, needs: needs, line: k, last: last, title: title})
		title, k = "", last
	}
	return end
}

// makeWord reports whether a word before a colon is a keyword of a programming language rather than a target.
func makeWord(s string) bool {
	switch s {
	case "else", "try", "finally", "except", "do":
		return true
	}
	return false
}

func (m *maker) recipe(k int, text string) {
	r := &m.rules[len(m.rules)-1]
	r.last = k
	m.recipes++
	if strings.HasPrefix(text, "- ") || colonOutside(text) == len(text)-1 || strings.HasPrefix(text, "* ") {
		m.yamlLike++
	} else if c := colonOutside(text); c > 0 && c+1 < len(text) && text[c+1] == ' ' && nameEnd(text[:c], "-") == c {
		m.yamlLike++
	}
	if r.recipe == "" {
		r.recipe = strings.TrimLeft(text, "@-")
	}
}

// fits reports whether the rules belong together: there are recipes or a declaration, and prerequisites that
// other rules make.
func (m *maker) fits(fenced bool) bool {
	hits, needs, strange := 0, 0, 0
	for _, r := range m.rules {
		for _, n := range r.needs {
			switch needs++; {
			case m.known[n.Text]:
				hits++
			case !makeFile(n.Text):
				strange++ // "B2: Approve the abstract" is no rule
			}
		}
	}
	if m.yamlLike*2 > m.recipes && m.yamlLike > 0 || needs == 0 && !fenced {
		return false
	}
	if fenced || m.phony {
		return hits > 0
	}
	if hits == needs && hits > 1 && len(m.rules) > 2 && hits >= len(m.rules)-2 {
		return true // every prerequisite is a target
	}
	return hits > 0 && strange <= hits && m.recipes*2 >= len(m.rules) && (hits*2 >= len(m.rules)-1 || hits*3 >= needs)
}

// sortAs sorts the nodes into the order of names, if names lists all of them.
func (g *Diagram) sortAs(names []string) {
	names = unique(names)
	out := make([]Node, 0, len(g.Nodes))
	for _, x := range names {
		if k, ok := g.index[x]; ok {
			out = append(out, g.Nodes[k])
		}
	}
	if len(out) == len(g.Nodes) {
		g.Nodes = out
		for k, n := range out {
			g.index[n.ID] = k
		}
	}
}
