package tasktree

import (
	"slices"
	"strings"
)

// after reads what the task at a place depends on.
func (r *reader) after(v value, task int) {
	if v.kind == null || !r.is(v, list) {
		return
	}
	r.from = slices.Grow(r.from, len(v.children))
	for i := range v.items() {
		item := &v.children[i]
		if id, ok := r.scalar(*item); ok {
			r.from = append(r.from, dependency{task, id, item})
		}
	}
}

// edges reads pairs of ids: the first one comes before the second.
func (r *reader) edges(v value) {
	if v.kind == null || !r.is(v, list) {
		return
	}
	r.from = slices.Grow(r.from, len(v.children))
	for _, pair := range v.items() {
		if !r.is(pair, list) {
			continue
		}
		ends := pair.children
		if len(ends) != 2 {
			r.faults.add("VALUE_INVALID", int(pair.at), pair.path, `write ["first", "second"]`, "an edge has two ids, not %d", len(ends))
			continue
		}
		first, ok := r.scalar(ends[0])
		second, too := r.scalar(ends[1])
		if !ok || !too {
			continue
		}
		at, known := r.at[second]
		if !known {
			r.unknown(second, ends[1])
			// The other end is looked at here, since no task is there to look at it for.
			if _, known := r.at[first]; !known {
				r.unknown(first, ends[0])
			}
			continue
		}
		r.from = append(r.from, dependency{at, first, &ends[0]})
	}
}

func (r *reader) unknown(id string, v value) {
	r.faults.add("DEPENDENCY_UNKNOWN", int(v.at), v.path, "name a task of the document, or leave it out", "there is no task %q", cut(id))
}

// resolve finds the tasks that others depend on, each once.
func (r *reader) resolve() {
	for _, d := range r.from {
		at, known := r.at[d.id]
		t := &r.tree.Tasks[d.task]
		switch {
		case !known:
			r.unknown(d.id, *d.of)
		case slices.Contains(t.After, at):
		case len(t.After) == maxDependencies:
			r.faults.add("TOO_MANY", int(d.of.at), d.of.path, "depend on those right before it only", "a task may depend on %d others", maxDependencies)
		default:
			t.After = append(t.After, at)
		}
	}
}

// order puts each task behind those that it depends on, or tells the cycles.
func (r *reader) order() {
	r.resolve()
	tasks := r.tree.Tasks
	waits, next := make([]int, len(tasks)), make([][]int, len(tasks))
	var ready, done []int
	for i, t := range tasks {
		for _, d := range t.After {
			next[d] = append(next[d], i)
		}
		if waits[i] = len(t.After); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	place := make([]int, len(tasks))
	seen := make([]bool, len(tasks))
	for len(done) < len(tasks) {
		for len(ready) > 0 {
			at := ready[0]
			ready = ready[1:]
			if seen[at] {
				continue
			}
			seen[at], place[at] = true, len(done)
			done = append(done, at)
			for _, d := range next[at] {
				if waits[d]--; waits[d] == 0 {
					ready = append(ready, d)
				}
			}
		}
		if len(done) < len(tasks) {
			if len(r.faults.told) >= maxFaults {
				return
			}
			ready = r.cycle(seen)
		}
	}
	if len(r.faults.told) > 0 {
		return
	}
	sorted := make([]Task, len(tasks))
	for i, t := range tasks {
		for j := range t.After {
			t.After[j] = place[t.After[j]]
		}
		sorted[place[i]] = t
	}
	r.tree.Tasks = sorted
}

// cycle tells one cycle among the tasks that were not seen, and returns a task of it, from which the search
// for others goes on.
func (r *reader) cycle(seen []bool) []int {
	at := slices.Index(seen, false)
	var path []int
	stands := map[int]int{}
	for _, on := stands[at]; !on; _, on = stands[at] {
		stands[at] = len(path)
		path = append(path, at)
		after := r.tree.Tasks[at].After
		at = after[slices.IndexFunc(after, func(d int) bool { return !seen[d] })]
	}
	path = append(path[stands[at]:], at)
	ids := make([]string, len(path))
	for i, p := range path {
		ids[i] = r.tree.Tasks[p].ID
	}
	if len(ids) > 20 {
		ids = append(ids[:18], "…", ids[len(ids)-1])
	}
	r.faults.add("DEPENDENCY_CYCLE", int(r.where[at].at), r.where[at].path, "leave one of these dependencies out", "tasks would wait for each other: %s", strings.Join(ids, " <- "))
	return []int{at}
}
