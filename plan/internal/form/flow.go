package form

import "strconv"

// Flow is a structure of steps that run in sequence, in parallel, or as alternatives.
type Flow struct {
	// Kind is "step", "seq", "par" or "alt".
	Kind string
	// Step is the index of a step in the diagram or list that the flow belongs to.
	Step int
	Kids []*Flow
}

// Add appends a part and returns it.
func (f *Flow) Add(kind string, step int) *Flow {
	kid := &Flow{Kind: kind, Step: step}
	f.Kids = append(f.Kids, kid)
	return kid
}

// Order calls link for each pair of consecutive steps and returns the last steps of f. before holds the steps
// before f.
func (f *Flow) Order(before []int, depth int, link func(from, to int)) []int {
	if depth > 200 {
		return before
	}
	switch f.Kind {
	case "step":
		for _, x := range before {
			link(x, f.Step)
		}
		return []int{f.Step}
	case "par", "alt":
		var last []int
		seen := map[int]bool{}
		for _, k := range f.Kids {
			for _, x := range k.Order(before, depth+1, link) {
				if !seen[x] {
					seen[x] = true
					last = append(last, x)
				}
			}
		}
		if len(last) == 0 {
			return before
		}
		if len(last) > 1000 {
			last = last[:1000]
		}
		return last
	}
	for _, k := range f.Kids {
		before = k.Order(before, depth+1, link)
	}
	return before
}

// stepID returns the id of a step without an id: its 1-based place.
func stepID(n int) string { return strconv.Itoa(n) }
