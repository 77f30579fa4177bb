package dbkit

import (
	"fmt"
	"slices"
	"strings"
)

// Merged renders a list in an order that an index has only within each state. It reads the first rows of each
// state, as many as the whole list may have, and merges them. query renders the select without its order
// under a condition; the column state is that of the table alias. No states mean that the order holds over
// all. Both databases understand it.
func Merged[S ~int32](states []S, query func(state string) string, alias, order, limit string) string {
	end := " ORDER BY " + order + " LIMIT " + limit
	if len(states) == 0 {
		return query("true") + end
	}
	states = slices.Compact(slices.Sorted(slices.Values(states))) // one that is named twice is listed once
	parts := make([]string, len(states))
	for i, state := range states {
		parts[i] = query(fmt.Sprintf("%s.state = %d", alias, state)) + end
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return "SELECT * FROM (" + strings.Join(parts, ") x UNION ALL SELECT * FROM (") + ") x" + end
}
