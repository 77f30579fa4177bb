package journal

import (
	"slices"
	"time"
)

const (
	// GraphRest is how long a graph is kept after a run last took it. It is far longer than GraphKnown.
	GraphRest = 24 * time.Hour
	// GraphKnown is how long a store that has recorded the use of a graph need not record it again.
	GraphKnown = time.Hour
	// MaxGraphUsers bounds how many runs of a namespace are looked at for the graphs that they refer to. If
	// there are more that may refer to graphs which nobody took for long, none of these graphs is removed.
	MaxGraphUsers = 10_000
)

// UsedGraph is a graph with the time at which a run last took it. Drivers only.
type UsedGraph struct {
	Key
	Used time.Time
}

// GraphUser is what a group of runs refers to: the graph that they are pinned to, and the one that they
// began with if it is another. Drivers only.
type GraphUser struct {
	Runs        int
	Hash, First string
}

// UnusedGraphs are those of the graphs, all of one namespace, that none of the users refers to; nil if
// there are too many users to know. Drivers only.
func UnusedGraphs(graphs []UsedGraph, users []GraphUser) (hashes []string) {
	runs := 0
	used := map[string]bool{}
	for _, u := range users {
		runs += u.Runs
		used[u.Hash], used[u.First] = true, true
	}
	if runs > MaxGraphUsers {
		return nil
	}
	for _, g := range graphs {
		if !used[g.Name] {
			hashes = append(hashes, g.Name)
		}
	}
	return hashes
}

// OldGraphs are those last taken before a time, by namespace, and for each namespace the time before which
// all of their users began. Drivers only.
func OldGraphs(page []UsedGraph, before time.Time) (groups [][]UsedGraph, begun []time.Time) {
	old := slices.DeleteFunc(page, func(g UsedGraph) bool { return !g.Used.Before(before) })
	for len(old) > 0 {
		n := slices.IndexFunc(old, func(g UsedGraph) bool { return g.Namespace != old[0].Namespace })
		if n < 0 {
			n = len(old)
		}
		var last time.Time
		for _, g := range old[:n] {
			if g.Used.After(last) {
				last = g.Used
			}
		}
		groups, begun, old = append(groups, old[:n]), append(begun, last.Add(GraphRest)), old[n:]
	}
	return groups, begun
}
