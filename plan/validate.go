package plan

import (
	"context"
	"strconv"
	"strings"
)

// Validate reports every fault of g at once: duplicate and empty ids, edges to problems that do not exist,
// loops and an empty plan. Each diagnostic names its element. The time is linear in the size of the graph. A
// graph as large as a request may be takes a second or more; Validate therefore stops soon after ctx ends and
// returns its error.
func Validate(ctx context.Context, g Graph) ([]Diagnostic, error) {
	if len(g.Problems) == 0 {
		return []Diagnostic{{Code: EmptyPlan, Severity: Error, Message: "the plan has no problems", Hint: "write at least one problem"}}, nil
	}
	v := &validator{ctx: ctx, g: g, index: make(map[string]int, len(g.Problems))}
	for _, part := range []func(){v.problems, v.edges, v.cycles, v.parents} {
		part()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return v.out, nil
}

type validator struct {
	ctx   context.Context //nolint:containedctx // it lives as long as the one call that it is for
	steps int             // iterations so far, over all loops
	over  bool            // the last state of the context
	g     Graph
	index map[string]int // id -> first problem
	// last is the last edge with a place between two ends, numbered as in cycles. It is made when the first
	// cycle is found.
	last map[[2]int]Edge
	// squashed finds a problem by its id without case and separators. It is made at the first use.
	squashed map[string]string
	out      []Diagnostic
}

// maxGraphDiagnostics bounds the diagnostics of one graph.
const maxGraphDiagnostics = 1000

// ended reports whether ctx has ended. It checks ctx at every 1,024th call; every loop calls it.
func (v *validator) ended() bool {
	if v.steps++; v.steps%1024 == 0 && !v.over {
		v.over = v.ctx.Err() != nil
	}
	return v.over
}

func (v *validator) add(code Code, sev Severity, line, col int, element, message, hint string) {
	switch n := len(v.out); {
	case n > maxGraphDiagnostics:
		return
	case n == maxGraphDiagnostics:
		code, sev, element, message, hint = LimitReached, Error, "diagnostics", "the graph has too many faults; the rest is not listed", "correct the first ones"
	}
	v.out = append(v.out, Diagnostic{Code: code, Severity: sev, Line: line, Column: col, Element: element, Message: message, Hint: hint})
}

func (v *validator) problems() {
	count := make(map[string]int, len(v.g.Problems))
	for i, p := range v.g.Problems {
		if v.ended() {
			return
		}
		if p.ID == "" {
			v.add(EmptyID, Error, p.Line, p.Column, "problem "+strconv.Itoa(i+1), "a problem has an empty id", "give it an id")
			continue
		}
		if count[p.ID]++; count[p.ID] == 1 {
			v.index[p.ID] = i
		}
	}
	reported := map[string]bool{}
	for _, p := range v.g.Problems {
		if v.ended() {
			return
		}
		if n := count[p.ID]; n > 1 {
			first := v.g.Problems[v.index[p.ID]]
			if reported[p.ID] || first.Line == p.Line && first.Column == p.Column && !reported[p.ID] {
				if reported[p.ID] {
					continue
				}
				if first.Line != 0 {
					continue // reported at the second problem
				}
			}
			reported[p.ID] = true
			v.add(DuplicateID, Error, p.Line, p.Column, p.ID, strconv.Itoa(n)+" problems have the id "+p.ID, "give each problem an id of its own")
		}
	}
	for _, p := range v.g.Problems {
		if v.ended() {
			return
		}
		if count[p.ID] > 1 && !reported[p.ID] {
			reported[p.ID] = true
			v.add(DuplicateID, Error, p.Line, p.Column, p.ID, strconv.Itoa(count[p.ID])+" problems have the id "+p.ID, "give each problem an id of its own")
		}
	}
}

func (v *validator) edges() {
	type key struct{ from, to string }
	seen := make(map[key]int, len(v.g.Edges))
	unknown := map[string]bool{}
	for _, e := range v.g.Edges {
		if v.ended() {
			return
		}
		for _, end := range [2]string{e.From, e.To} {
			if _, ok := v.index[end]; ok || unknown[end] {
				continue
			}
			unknown[end] = true
			v.add(UnknownReference, Error, e.Line, e.Column, end, "the edge "+e.From+" -> "+e.To+" names "+strconv.Quote(end)+", which is no problem"+v.suggest(end), "add the problem or correct the name")
		}
		k := key{e.From, e.To}
		seen[k]++
		switch {
		case e.From == e.To && seen[k] == 1:
			v.add(SelfLoop, Error, e.Line, e.Column, e.From, e.From+" depends on itself", "take the edge out, or use different ids if two problems are meant")
		case seen[k] == 2 && e.Source == Stated:
			v.add(DuplicateEdge, Warning, e.Line, e.Column, e.From+" -> "+e.To, "the edge is stated more than once", "state it once")
		}
	}
}

// suggest returns " (did you mean …?)" if an id differs in case or separators only.
func (v *validator) suggest(name string) string {
	if v.squashed == nil {
		v.squashed = make(map[string]string, len(v.g.Problems))
		for _, p := range v.g.Problems {
			if v.ended() {
				return ""
			}
			k := squash(p.ID)
			if _, ok := v.squashed[k]; !ok {
				v.squashed[k] = p.ID
			}
		}
	}
	if id, ok := v.squashed[squash(name)]; ok {
		return " (did you mean " + strconv.Quote(id) + "?)"
	}
	return ""
}

func squash(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || c == '-' || c == ' ' {
			return -1
		}
		return c
	}, strings.ToLower(s))
}

// cycles reports each strongly connected component of several problems, and each self loop, as one cycle.
func (v *validator) cycles() {
	ids := make(map[string]int, len(v.g.Problems))
	var names []string
	node := func(id string) int {
		n, ok := ids[id]
		if !ok {
			n = len(names)
			ids[id] = n
			names = append(names, id)
		}
		return n
	}
	for _, p := range v.g.Problems {
		if v.ended() {
			return
		}
		node(p.ID)
	}
	self := map[int]Edge{}
	var next [][]int32
	grow := func(n int) {
		for len(next) <= n {
			next = append(next, nil)
		}
	}
	for _, e := range v.g.Edges {
		if v.ended() {
			return
		}
		a, b := node(e.From), node(e.To)
		if a == b {
			if _, ok := self[a]; !ok {
				self[a] = e
			}
			continue
		}
		grow(max(a, b))
		next[a] = append(next[a], int32(b))
	}
	grow(len(names) - 1)
	comp := v.components(next)
	members := map[int32]int{}
	for _, c := range comp {
		members[c]++
	}
	reported := map[int32]bool{}
	for n := range comp {
		if v.ended() {
			return
		}
		c := comp[n]
		if members[c] > 1 && !reported[c] {
			reported[c] = true
			path := v.cyclePath(next, comp, n)
			parts := make([]string, 0, len(path)+1)
			for _, k := range path {
				parts = append(parts, names[k])
				if len(parts) == 12 {
					parts = append(parts, "…")
					break
				}
			}
			parts = append(parts, names[n])
			line, col := v.closing(path, ids, names[n])
			v.add(Cycle, Error, line, col, names[n], "these problems wait for each other: "+strings.Join(parts, " -> "), "take one of these edges out")
		}
	}
	for n := range names {
		if e, ok := self[n]; ok && members[comp[n]] == 1 {
			v.add(Cycle, Error, e.Line, e.Column, names[n], "this problem waits for itself: "+names[n]+" -> "+names[n], "take the edge out")
		}
	}
}

// closing returns the place of the last stated edge of a cycle, the one that closed it. If no edge has a
// place, it returns the place of the first problem.
func (v *validator) closing(path []int, ids map[string]int, first string) (line, col int) {
	if v.last == nil {
		v.last = make(map[[2]int]Edge, len(v.g.Edges))
		for _, e := range v.g.Edges {
			if v.ended() {
				break
			}
			if e.Line > 0 {
				v.last[[2]int{ids[e.From], ids[e.To]}] = e
			}
		}
	}
	for i, a := range path {
		if v.ended() {
			break
		}
		e, ok := v.last[[2]int{a, path[(i+1)%len(path)]}]
		if ok && (e.Line > line || e.Line == line && e.Column > col) {
			line, col = e.Line, e.Column
		}
	}
	if line == 0 {
		return v.place(first)
	}
	return line, col
}

func (v *validator) place(id string) (int, int) {
	if i, ok := v.index[id]; ok {
		return v.g.Problems[i].Line, v.g.Problems[i].Column
	}
	return 0, 0
}

// components numbers the strongly connected components of a graph (Tarjan's algorithm without recursion). The
// result is of no use if ctx has ended.
func (v *validator) components(next [][]int32) []int32 {
	n := len(next)
	comp := make([]int32, n)
	index := make([]int32, n)
	low := make([]int32, n)
	on := make([]bool, n)
	var stack []int32
	type frame struct{ v, i int32 }
	var frames []frame
	var counter, comps int32
	for s := range n {
		if index[s] != 0 {
			continue
		}
		frames = append(frames[:0], frame{int32(s), 0})
		for len(frames) > 0 {
			if v.ended() {
				return comp
			}
			f := &frames[len(frames)-1]
			x := f.v
			if f.i == 0 {
				counter++
				index[x], low[x] = counter, counter
				stack = append(stack, x)
				on[x] = true
			}
			if int(f.i) < len(next[x]) {
				w := next[x][f.i]
				f.i++
				if index[w] == 0 {
					frames = append(frames, frame{w, 0})
				} else if on[w] {
					low[x] = min(low[x], index[w])
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				u := frames[len(frames)-1].v
				low[u] = min(low[u], low[x])
			}
			if low[x] == index[x] {
				for {
					w := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					on[w] = false
					comp[w] = comps
					if w == x {
						break
					}
				}
				comps++
			}
		}
	}
	return comp
}

// cyclePath returns a shortest cycle through start within its component. It returns start alone if ctx ends
// first.
func (v *validator) cyclePath(next [][]int32, comp []int32, start int) []int {
	from := map[int]int{start: -1}
	queue := []int{start}
	for len(queue) > 0 {
		if v.ended() {
			break
		}
		x := queue[0]
		queue = queue[1:]
		for _, w32 := range next[x] {
			w := int(w32)
			if w == start {
				var path []int
				for k := x; k >= 0; k = from[k] {
					path = append(path, k)
				}
				for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
					path[i], path[j] = path[j], path[i]
				}
				return path
			}
			if comp[w] != comp[start] {
				continue
			}
			if _, ok := from[w]; !ok {
				from[w] = x
				queue = append(queue, w)
			}
		}
	}
	return []int{start}
}

// parents reports parents that do not exist and parents that contain themselves.
func (v *validator) parents() {
	state := make(map[string]uint8, len(v.index)) // 1: being visited, 2: done
	reported := map[string]bool{}
	for _, p := range v.g.Problems {
		if v.ended() {
			return
		}
		if p.ParentID == "" {
			continue
		}
		if _, ok := v.index[p.ParentID]; !ok && !reported[p.ParentID] {
			reported[p.ParentID] = true
			v.add(UnknownParent, Warning, p.Line, p.Column, p.ParentID, p.ID+" belongs to "+p.ParentID+", which is no problem", "add the parent")
		}
		var way []string
		for id := p.ID; id != "" && state[id] != 2; {
			if v.ended() {
				return
			}
			if state[id] == 1 {
				line, col := v.place(id)
				v.add(ParentCycle, Error, line, col, id, id+" contains itself", "correct the hierarchy")
				break
			}
			state[id] = 1
			way = append(way, id)
			i, ok := v.index[id]
			if !ok {
				break
			}
			id = v.g.Problems[i].ParentID
		}
		for _, id := range way {
			state[id] = 2
		}
	}
}
