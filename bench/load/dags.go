package load

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// MaxDAGNodes bounds a graph of the sample, so that one giant does not decide how long the whole takes.
const MaxDAGNodes = 1000

type dag struct {
	ID      string    `json:"id"`
	Family  string    `json:"family"`
	N       int       `json:"n"`
	Runtime []float64 `json:"runtime_s"`
	Edges   [][2]int  `json:"edges"`
}

// ReadDAGs reads graphs with measured run times from a file of JSON lines (gzip if its name says so), one
// object per line: id, family, n, runtime_s (seconds by node) and edges ([before, after]). It returns about
// want of them, spread evenly over families and, within a family, over sizes, each scaled so that its
// critical path is max(200 ms, 20 ms x levels).
func ReadDAGs(path string, want int) (_ []Graph, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var r io.Reader = bufio.NewReader(f)
	if len(path) > 3 && path[len(path)-3:] == ".gz" {
		if r, err = gzip.NewReader(r); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	families := map[string][]dag{}
	for dec := json.NewDecoder(r); ; {
		var d dag
		if err := dec.Decode(&d); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if d.N > 0 && d.N <= MaxDAGNodes {
			families[d.Family] = append(families[d.Family], d)
		}
	}
	var out []Graph
	for _, d := range stratify(families, want) {
		g, ok := d.graph()
		if ok {
			out = append(out, g)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no graph that can be used", path)
	}
	return out, nil
}

// stratify gives every family an equal share, or all that it has, and takes within it every k-th by size.
func stratify(families map[string][]dag, want int) []dag {
	names := make([]string, 0, len(families))
	for name := range families {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(families[a]), len(families[b])), cmp.Compare(a, b))
	})
	var out []dag
	for i, name := range names { // the smallest first, so that what they lack goes to the larger ones
		all := families[name]
		slices.SortFunc(all, func(a, b dag) int { return cmp.Or(cmp.Compare(a.N, b.N), cmp.Compare(a.ID, b.ID)) })
		share := min(len(all), (want-len(out))/(len(names)-i))
		for k := range share {
			out = append(out, all[k*len(all)/share])
		}
	}
	return out
}

// graph sorts the nodes topologically and scales their times; ok is false if it cannot be sorted or takes no
// time.
func (d dag) graph() (Graph, bool) {
	next, waits := make([][]int, d.N), make([]int, d.N)
	seen := map[[2]int]bool{}
	for _, e := range d.Edges {
		if e[0] < 0 || e[1] < 0 || e[0] >= d.N || e[1] >= d.N || seen[e] {
			continue
		}
		seen[e] = true
		next[e[0]] = append(next[e[0]], e[1])
		waits[e[1]]++
	}
	var order []int
	for i, w := range waits {
		if w == 0 {
			order = append(order, i)
		}
	}
	g, place := Graph{Name: d.ID, Nodes: make([]Node, d.N)}, make([]int, d.N)
	for at := 0; at < len(order); at++ {
		i := order[at]
		place[i] = at
		if i < len(d.Runtime) {
			g.Nodes[at].Sleep = time.Duration(d.Runtime[i] * float64(time.Second))
		}
		for _, s := range next[i] {
			if waits[s]--; waits[s] == 0 {
				order = append(order, s)
			}
		}
	}
	if len(order) != d.N {
		return Graph{}, false
	}
	for e := range seen {
		to := &g.Nodes[place[e[1]]]
		to.Deps = append(to.Deps, place[e[0]])
	}
	for i := range g.Nodes {
		slices.Sort(g.Nodes[i].Deps)
	}
	path := g.CriticalPath()
	if path <= 0 {
		return Graph{}, false
	}
	scale := float64(max(200*time.Millisecond, 20*time.Millisecond*time.Duration(g.Levels()))) / float64(path)
	for i := range g.Nodes {
		g.Nodes[i].Sleep = time.Duration(float64(g.Nodes[i].Sleep) * scale).Truncate(time.Microsecond)
	}
	return g, true
}
