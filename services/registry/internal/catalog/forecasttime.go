package catalog

import (
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// took is how long one attempt of a node took, in milliseconds. ok is false if too few are known.
func (c Calls) took(n *workgraph.Node) (a Amount, ok bool) {
	asks, isModel := modelCall(n)
	list := c.byActor[n.Actor]
	if isModel {
		list = c.byActor[modelActor]
		if asks.Model != "" {
			list = c.byModelTook[asks.Model]
		}
	}
	if len(list) < leastCalls {
		return a, false
	}
	return percentiles(list), true
}

// instant reports whether an actor computes and waits for nothing, so that its time does not count.
func instant(actor string) bool { return actor == "cel" || strings.HasPrefix(actor, "flow/") }

// path is how long a run of a graph takes along its critical path: the longest of all ways through it, where
// the nodes of a cycle count one after the other, and items of a map side by side. The time of a node is that
// of its attempts that were booked. unknown are nodes whose time is not known; the path is not known then.
func (c Calls) path(g *workgraph.Graph, visits []int64) (a Amount, unknown []string) {
	p50, p90 := make([]*int64, len(g.Nodes)), make([]*int64, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if instant(n.Actor) {
			p50[i], p90[i] = new(int64), new(int64)
			continue
		}
		one, ok := c.took(n)
		if !ok {
			unknown = append(unknown, n.ID)
			continue
		}
		count := visits[i]
		if count < 0 {
			count = assumedTimes
		}
		if asks, ok := modelCall(n); ok {
			rounds := product(&count, max(asks.Times, 1))
			p50[i], p90[i] = both(one.P50, rounds), both(one.P90, rounds)
			continue
		}
		p50[i], p90[i] = product(one.P50, count), product(one.P90, count)
	}
	if len(unknown) > 0 {
		return a, unknown
	}
	return Amount{P50: longest(g, p50), P90: longest(g, p90)}, nil
}

// longest is the longest way through a graph, each cycle as one place; nil if a time is not known.
func longest(g *workgraph.Graph, took []*int64) *int64 {
	out := links(g)
	cycle := cycles(out)
	// A cycle is the place of its first node.
	place, first := make([]int, len(out)), map[int]int{}
	for i := range out {
		place[i] = i
		if cycle[i] > 0 {
			if _, ok := first[cycle[i]]; !ok {
				first[cycle[i]] = i
			}
			place[i] = first[cycle[i]]
		}
	}
	own, waits := make([]*int64, len(out)), make([]int, len(out))
	for i := range out {
		own[i] = new(int64)
	}
	for i := range out {
		own[place[i]] = plus(own[place[i]], took[i])
		for _, to := range out[i] {
			if place[to] != place[i] {
				waits[place[to]]++
			}
		}
	}
	members := make([][]int, len(out))
	var ready []int
	for i := range out {
		members[place[i]] = append(members[place[i]], i)
		if place[i] == i && waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	before := make([]int64, len(out))
	most := new(int64)
	for len(ready) > 0 {
		at := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		end := plus(&before[at], own[at])
		if end == nil {
			return nil
		}
		if *end > *most {
			most = end
		}
		for _, i := range members[at] {
			for _, to := range out[i] {
				next := place[to]
				if next == at {
					continue
				}
				before[next] = max(before[next], *end)
				if waits[next]--; waits[next] == 0 {
					ready = append(ready, next)
				}
			}
		}
	}
	return most
}
