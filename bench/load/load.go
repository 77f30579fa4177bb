// Package load owns what every contestant of the comparison is asked to run: graphs of nodes that do nothing,
// or sleep, and give back about 100 bytes. It must not know how any contestant runs them.
package load

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ResultSize is how many bytes of JSON a node gives back.
const ResultSize = 100

// Node is one step. It may start when all of Deps, which are indices of nodes before it, have ended and are
// durable.
type Node struct {
	Deps []int `json:"d,omitempty"`
	// Sleep is how long the node takes; 0 is a node that does nothing.
	Sleep time.Duration `json:"s,omitempty"`
}

// Graph is what one run consists of. Nodes are in a topological order.
type Graph struct {
	Name  string `json:"name"`
	Nodes []Node `json:"nodes"`
}

// Chain is n nodes, each after the one before.
func Chain(n int) Graph {
	g := Graph{Name: "chain-" + strconv.Itoa(n), Nodes: make([]Node, n)}
	for i := 1; i < n; i++ {
		g.Nodes[i].Deps = []int{i - 1}
	}
	return g
}

// Fan is one node, n nodes after it, and one after all of those.
func Fan(n int) Graph {
	g := Graph{Name: "fan-" + strconv.Itoa(n), Nodes: make([]Node, n+2)}
	for i := 1; i <= n; i++ {
		g.Nodes[i].Deps = []int{0}
		g.Nodes[n+1].Deps = append(g.Nodes[n+1].Deps, i)
	}
	return g
}

// Layers is levels of width sleepers, each after all of the level before.
func Layers(levels, width int, sleep time.Duration) Graph {
	g := Graph{Name: fmt.Sprintf("layers-%dx%d", levels, width)}
	for l := range levels {
		for range width {
			n := Node{Sleep: sleep}
			for k := range width {
				if l > 0 {
					n.Deps = append(n.Deps, (l-1)*width+k)
				}
			}
			g.Nodes = append(g.Nodes, n)
		}
	}
	return g
}

// CriticalPath is the shortest time in which the graph could run.
func (g *Graph) CriticalPath() time.Duration {
	ends, longest := make([]time.Duration, len(g.Nodes)), time.Duration(0)
	for i, n := range g.Nodes {
		for _, d := range n.Deps {
			ends[i] = max(ends[i], ends[d])
		}
		ends[i] += n.Sleep
		longest = max(longest, ends[i])
	}
	return longest
}

// Levels is the number of nodes on the longest path.
func (g *Graph) Levels() int {
	depth, deepest := make([]int, len(g.Nodes)), 0
	for i, n := range g.Nodes {
		for _, d := range n.Deps {
			depth[i] = max(depth[i], depth[d])
		}
		depth[i]++
		deepest = max(deepest, depth[i])
	}
	return deepest
}

// Successors are, for each node, the nodes that wait for it.
func (g *Graph) Successors() [][]int {
	next := make([][]int, len(g.Nodes))
	for i, n := range g.Nodes {
		for _, d := range n.Deps {
			next[d] = append(next[d], i)
		}
	}
	return next
}

// Sinks are the nodes that nothing waits for.
func (g *Graph) Sinks() []int {
	var sinks []int
	for i, next := range g.Successors() {
		if len(next) == 0 {
			sinks = append(sinks, i)
		}
	}
	return sinks
}

const (
	resultHead = `{"t":`
	resultTail = `,"pad":"`
)

var pad = strings.Repeat("x", ResultSize)

// Result is what a node that began at t gives back: ResultSize bytes of JSON from which Began reads t.
func Result(t time.Time) []byte {
	b := make([]byte, 0, ResultSize)
	b = append(b, resultHead...)
	b = strconv.AppendInt(b, t.UnixNano(), 10)
	b = append(b, resultTail...)
	b = append(b, pad[:ResultSize-2-len(b)]...)
	return append(b, `"}`...)
}

// Began is when the node began that gave this result.
func Began(result []byte) (time.Time, error) {
	s, ok := strings.CutPrefix(string(result), resultHead)
	if !ok {
		return time.Time{}, fmt.Errorf("not the result of a node: %.40q", result)
	}
	digits, _, _ := strings.Cut(s, ",")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the result of a node: %w", err)
	}
	return time.Unix(0, n), nil
}
