package form

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// letter reports whether the sign at a cell belongs to a word rather than to a line.
func (a *art) letter(r, c int) bool {
	x := a.at(r, c)
	if x == filler {
		return true
	}
	if x == ' ' {
		return false
	}
	word := func(y rune) bool { return unicode.IsLetter(y) || unicode.IsDigit(y) || y == filler }
	if (x == 'v' || x == 'V') && !word(a.at(r, c-1)) && !word(a.at(r, c+1)) && a.head(r, c) != 0 {
		return false
	}
	if opens[x] == 0 && arrowHeads[x] == 0 {
		return true
	}
	// A hyphen, slash or colon inside a word.
	return strings.ContainsRune("-/:+_*", x) && word(a.at(r, c-1)) && (word(a.at(r, c+1)) || x == ':' && a.at(r, c+1) == ' ') || x == '_' && (word(a.at(r, c-1)) || word(a.at(r, c+1)))
}

// head returns the direction in which an arrow head at a cell points, or 0. A v is a head only below a line.
func (a *art) head(r, c int) int {
	x := a.at(r, c)
	if d := arrowHeads[x]; d != 0 {
		return d
	}
	if x == 'v' || x == 'V' {
		for _, d := range [...]int{0, -1, 1} {
			if y := a.at(r-1, c+d); opens[y]&(up|down) != 0 && a.own(r-1, c+d) <= 0 {
				return down
			}
		}
		if n := a.own(r-1, c); n > 0 && a.at(r, c-1) == ' ' && a.at(r, c+1) == ' ' {
			return down
		}
	}
	return 0
}

// open returns the directions in which the sign at a cell continues.
func (a *art) open(r, c int) int {
	if a.own(r, c) != 0 {
		return 0
	}
	switch a.head(r, c) {
	case right:
		return right | left | upLeft | downLeft
	case left:
		return right | left | upRight | downRight
	case down:
		return down | up | upLeft | upRight
	case up:
		return up | down | downLeft | downRight
	}
	d := opens[a.at(r, c)]
	if d&(left|right) != 0 && d&(up|down) == 0 {
		return d
	}
	if d != 0 {
		d |= upLeft | upRight | downLeft | downRight
	}
	return d
}

// step reports whether a line leads from a cell in the direction of m, and to which cell. Heads are passed
// only in the direction in which they point.
func (a *art) step(r, c int, m struct{ dir, back, dr, dc int }) (nr, nc int, ok bool) {
	nr, nc = r+m.dr, c+m.dc
	if a.open(r, c)&m.dir == 0 || a.open(nr, nc)&m.back == 0 {
		return nr, nc, false
	}
	if m.dr != 0 && m.dc != 0 {
		// A diagonal step needs a diagonal line at one of its ends.
		slash, other := a.at(r, c), a.at(nr, nc)
		want := '\\'
		if m.dir == upRight || m.dir == downLeft {
			want = '/'
		}
		if slash != want && other != want {
			return nr, nc, false
		}
	}
	if h := a.head(r, c); h != 0 && h != m.dir {
		return nr, nc, false
	}
	h := a.head(nr, nc)
	if h != 0 && (h == right && m.dc < 0 || h == left && m.dc > 0 || h == down && m.dr < 0 || h == up && m.dr > 0 || (h == right || h == left) && m.dc == 0 || (h == up || h == down) && m.dr == 0) {
		return nr, nc, false
	}
	return nr, nc, true
}

// artTouch is a cell in which a line meets a node, and the side of the node.
type artTouch struct{ r, c, side int }

// touches returns the cells at which lines may leave a node.
func (a *art) touches(n *artNode) (out []artTouch) {
	for r := n.r1; r <= n.r2; r++ {
		for _, side := range [...]int{left, right} {
			c, d := n.c1-1, -1
			if side == right {
				c, d = n.c2+1, 1
			}
			for k := 0; k < 4 && a.at(r, c) == ' '; k++ {
				c += d
			}
			if o := a.open(r, c); o&(left|right) != 0 && (!isVertical(a.at(r, c)) || a.own(r, c+d) == 0 && opens[a.at(r, c+d)]&(left|right) != 0) {
				out = append(out, artTouch{r, c, side})
			}
		}
	}
	for _, side := range [...]int{up, down} {
		r := n.r1 - 1
		if side == down {
			r = n.r2 + 1
		}
		found := false
		for pass := 0; pass < 2 && !found; pass++ {
			for c := n.c1 - pass*2; c <= n.c2+pass*2; c++ {
				x := a.at(r, c)
				if o := a.open(r, c); o&(up|down) != 0 && opens[x]&(left|right) == 0 || o&(up|down) != 0 && (isVertical(x) || x == '/' || x == '\\' || strings.ContainsRune("+┬┴├┤┼└┘┌┐╭╮╰╯", x) || a.head(r, c) == up || a.head(r, c) == down) {
					out, found = append(out, artTouch{r, c, side}), true
				}
			}
		}
	}
	return out
}

// meets returns the node that the line at a cell reaches in the direction of m, or 0.
func (a *art) meets(r, c int, m struct{ dir, back, dr, dc int }) int {
	if a.open(r, c)&m.dir == 0 {
		return 0
	}
	if h := a.head(r, c); h != 0 && h != m.dir {
		return 0
	}
	nr, nc := r+m.dr, c+m.dc
	if m.dr == 0 {
		if isVertical(a.at(r, c)) {
			return 0
		}
		for k := 0; k < 4 && a.at(nr, nc) == ' ' && a.own(nr, nc) == 0; k++ {
			nc += m.dc
		}
		return a.own(nr, nc)
	}
	for _, d := range [...]int{0, 1, -1, 2, -2} {
		if n := a.own(nr, nc+d); n > 0 && (d == 0 || a.open(r+m.dr, nc)&(up|down) == 0) {
			return n
		}
	}
	return 0
}

// reached is a node that a line leads to.
type reached struct {
	node        int
	headed      bool
	exit, enter int
	r, c        int
}

// follow returns the nodes that the lines of a node lead to, and whether any of the lines has a head.
func (a *art) follow(k int) (out []reached, anyHead bool) {
	type state struct{ r, c, headed, exit int }
	var queue []state
	a.gen++
	push := func(r, c, headed, exit int) {
		if a.seen[r][headed][c] != a.gen {
			a.seen[r][headed][c] = a.gen
			queue = append(queue, state{r, c, headed, exit})
		}
	}
	n := &a.nodes[k]
	for _, t := range a.touches(n) {
		h := a.head(t.r, t.c)
		if h != 0 {
			anyHead = true
			if h != t.side {
				continue // it points at this node
			}
		}
		push(t.r, t.c, b2i(h != 0), t.side)
	}
	for len(queue) > 0 && a.steps < maxSteps {
		s := queue[0]
		queue = queue[1:]
		a.steps++
		for _, m := range moves {
			nr, nc, ok := a.step(s.r, s.c, m)
			if ok {
				push(nr, nc, b2i(s.headed == 1 || a.head(nr, nc) != 0), s.exit)
				anyHead = anyHead || a.head(nr, nc) != 0
				continue
			}
			anyHead = anyHead || a.open(s.r, s.c)&m.dir != 0 && a.head(nr, nc) != 0 && a.own(nr, nc) == 0
			switch to := a.meets(s.r, s.c, m); {
			case to > 0 && to-1 != k:
				out = append(out, reached{to - 1, s.headed == 1, s.exit, m.back, s.r, s.c})
			case to < 0: // a note on the line: the line continues behind it
				for x := nc; x >= 0 && x < len(a.grid[nr]) && m.dr == 0; x += m.dc {
					if a.own(nr, x) == 0 && a.at(nr, x) != ' ' {
						if a.open(nr, x)&m.back != 0 {
							push(nr, x, b2i(s.headed == 1 || a.head(nr, x) != 0), s.exit)
						}
						break
					}
				}
			}
		}
	}
	return out, anyHead
}

// diagram converts the drawing into nodes and links.
func (a *art) diagram(g *Diagram) *Diagram {
	type pair struct{ from, to int }
	linked := map[int]bool{}
	var links []pair
	assumed := map[pair]bool{}
	seen := map[pair]bool{}
	for k := range a.nodes {
		all, anyHead := a.follow(k)
		for _, x := range all {
			p := pair{k, x.node}
			plain := !x.headed && !anyHead && (x.exit == down || x.exit == right) && (x.enter == up || x.enter == left)
			if !x.headed && !plain || seen[p] {
				continue
			}
			seen[p], linked[k], linked[x.node] = true, true, true
			assumed[p] = plain
			links = append(links, p)
		}
	}
	if len(links) == 0 {
		return nil
	}
	if a.steps >= maxSteps {
		g.fault(true, "LIMIT_REACHED", g.Start, a.nodes[0].text, "the drawing is too large", "state the order in words")
	}
	ids := make([][]string, len(a.nodes))
	marks, count, taken := map[string]bool{}, 0, 0
	split := func(k int) (Piece, Piece, bool) { return SplitMark(Bare(Piece{a.nodes[k].text, a.nodes[k].off})) }
	for k := range a.nodes {
		if !linked[k] && a.nodes[k].bare {
			continue
		}
		count++
		if id, _, ok := split(k); ok && !marks[id.Text] && (strings.ContainsAny(id.Text, "0123456789") || utf8.RuneCountInString(id.Text) <= 2) {
			marks[id.Text] = true
			taken++
		}
	}
	for k := range a.nodes {
		if !linked[k] && a.nodes[k].bare {
			continue
		}
		p := Bare(Piece{a.nodes[k].text, a.nodes[k].off})
		title := ""
		if taken == count {
			id, t, _ := split(k)
			p, title = id, t.Text
		}
		if pieces := SplitGroup(p); len(pieces) > 1 && a.nodes[k].bare && title == "" {
			for _, x := range pieces {
				ids[k] = append(ids[k], x.Text)
				g.node(x.Text, "", x.Off)
			}
			continue
		}
		ids[k] = []string{p.Text}
		g.node(p.Text, label(title), p.Off)
		if !linked[k] {
			g.fault(false, "AMBIGUOUS", p.Off, p.Text, "no line of the drawing leads to "+p.Text+" or from it", "draw its lines to the end")
		}
	}
	for _, p := range links {
		why := ""
		if assumed[p] {
			why = "the line between them has no head"
		}
		g.link(ids[p.from], ids[p.to], a.nodes[p.to].off, why)
	}
	return g
}
