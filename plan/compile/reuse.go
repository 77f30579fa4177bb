package compile

import (
	"container/heap"
	"slices"

	"github.com/epigraph-run/epigraph/plan"
)

// SplitReused applies the repair REUSED_TOOL. Problems get the ids in renames, by position. Every edge is
// taken to mean two uses of its tools in listed order, the nearest ones first; a repeated edge means the next
// nearest. Edges for which no such pair is left are returned as lost. The result has no cycle.
func SplitReused(g plan.Graph, renames []string) (out plan.Graph, lost []plan.Edge) {
	if len(renames) != len(g.Problems) {
		return g, nil
	}
	uses := map[string][]int{}
	out.Problems = slices.Clone(g.Problems)
	for i := range out.Problems {
		uses[g.Problems[i].ID] = append(uses[g.Problems[i].ID], i)
		out.Problems[i].ID = renames[i]
	}
	for i := range out.Problems {
		p := &out.Problems[i]
		p.Refs = slices.Clone(p.Refs)
		for k := range p.Refs {
			if before := lastBefore(uses[p.Refs[k].To], i); before >= 0 {
				p.Refs[k].To = renames[before]
			}
		}
		if parents := uses[p.ParentID]; len(parents) > 0 {
			p.ParentID = renames[parents[0]]
		}
	}
	left := map[[2]string]*pairs{}
	for _, e := range g.Edges {
		from, to := uses[e.From], uses[e.To]
		if len(from) == 0 || len(to) == 0 {
			out.Edges = append(out.Edges, e) // an unknown end is not changed: validation reports it
			continue
		}
		ends := [2]string{e.From, e.To}
		if left[ends] == nil {
			left[ends] = newPairs(from, to)
		}
		pair, ok := left[ends].next()
		if !ok {
			lost = append(lost, e)
			continue
		}
		e.From, e.To = renames[pair[0]], renames[pair[1]]
		out.Edges = append(out.Edges, e)
	}
	return out, lost
}

// pairs are the pairs of uses of two tools, the first listed before the second. The closest pairs come first,
// and of equally close ones the first listed. It is a heap with the next pair of each second use.
type pairs struct {
	from, to []int
	// of holds, for each second use in the heap, its index in to and the index of the first use in from.
	of [][2]int
}

func newPairs(from, to []int) *pairs {
	p := &pairs{from: from, to: to}
	for j, use := range to {
		if i, _ := slices.BinarySearch(from, use); i > 0 {
			p.of = append(p.of, [2]int{j, i - 1})
		}
	}
	heap.Init(p)
	return p
}

// next removes the first pair. ok is false if there is none left.
func (p *pairs) next() (pair [2]int, ok bool) {
	if len(p.of) == 0 {
		return pair, false
	}
	top := &p.of[0]
	pair = [2]int{p.from[top[1]], p.to[top[0]]}
	if top[1]--; top[1] >= 0 {
		heap.Fix(p, 0)
	} else {
		heap.Pop(p)
	}
	return pair, true
}

func (p *pairs) Len() int { return len(p.of) }
func (p *pairs) Less(a, b int) bool {
	x, y := p.of[a], p.of[b]
	if dx, dy := p.to[x[0]]-p.from[x[1]], p.to[y[0]]-p.from[y[1]]; dx != dy {
		return dx < dy
	}
	return x[0] < y[0]
}
func (p *pairs) Swap(a, b int) { p.of[a], p.of[b] = p.of[b], p.of[a] }
func (p *pairs) Push(any)      {} // nothing is added
func (p *pairs) Pop() any {
	last := len(p.of) - 1
	out := p.of[last]
	p.of = p.of[:last]
	return out
}

// lastBefore returns the last of the uses before i, or -1. uses are in listed order.
func lastBefore(uses []int, i int) int {
	at, _ := slices.BinarySearch(uses, i)
	if at == 0 {
		return -1
	}
	return uses[at-1]
}
