package program

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/near"
)

// Near returns up to three names that are similar to name.
func Near(name string, names []string) []string {
	steps := MaxNearSteps
	return Nearest(name, names, &steps)
}

// Nearest is Near within a number of steps. A step compares two bytes. The steps used are subtracted from
// steps.
func Nearest(name string, names []string, steps *int) []string {
	type scored struct {
		name string
		d    int
	}
	var found []scored
	lower := strings.ToLower(name)
	for _, n := range names {
		if most := max(2, len(n)/3); max(len(name)-len(n), len(n)-len(name)) <= most {
			*steps -= len(name) * len(n)
		}
		if *steps < 0 {
			break
		}
		d, ok := near.Within(lower, strings.ToLower(n), max(2, len(n)/3))
		if !ok {
			d = max(len(n)-len(name), 0)
		}
		if ok || strings.HasPrefix(n, name) && name != "" {
			found = append(found, scored{n, d})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return a.d - b.d })
	var out []string
	for _, c := range found[:min(3, len(found))] {
		out = append(out, c.name)
	}
	return out
}
