package compile

import (
	"slices"

	"github.com/epigraph-run/epigraph/plan"
)

// TellApart accepts the repair REUSED_TOOL: problems get the ids in renames, by position, and every edge is taken to mean two
// uses of its tools that are listed in that order, nearest uses first; a repeated edge means the next nearest. Edges that no
// such pair is left for are returned as lost. The result has no cycle.
func TellApart(g plan.Graph, renames []string) (out plan.Graph, lost []plan.Edge) {
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
	taken := map[[2]int]bool{}
	for _, e := range g.Edges {
		from, to := uses[e.From], uses[e.To]
		if len(from) == 0 || len(to) == 0 {
			out.Edges = append(out.Edges, e) // an unknown end stays what it is: validation names it
			continue
		}
		pair, ok := nearest(from, to, taken)
		if !ok {
			lost = append(lost, e)
			continue
		}
		taken[pair] = true
		e.From, e.To = renames[pair[0]], renames[pair[1]]
		out.Edges = append(out.Edges, e)
	}
	return out, lost
}

// nearest is the pair of uses, the first listed before the second, that lie closest together and are not taken; of equally
// close ones, the first listed.
func nearest(from, to []int, taken map[[2]int]bool) (best [2]int, ok bool) {
	for _, j := range to {
		for _, i := range from {
			if i >= j || taken[[2]int{i, j}] {
				continue
			}
			if !ok || j-i < best[1]-best[0] {
				best, ok = [2]int{i, j}, true
			}
		}
	}
	return best, ok
}

func lastBefore(uses []int, i int) int {
	last := -1
	for _, u := range uses {
		if u < i {
			last = u
		}
	}
	return last
}
