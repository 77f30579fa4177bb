package actor

import (
	"fmt"
	"strings"
)

// References are the uses of other problems' results in what a plan says of a problem, as the planner
// compiles them.
type References []struct {
	Text  string `json:"text"`
	Node  string `json:"node"`
	Field string `json:"field"`
}

// Text tells a model what the uses stand for, a line each after a heading; it is empty if there are none.
func (rs References) Text() string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, r := range rs {
		line := fmt.Sprintf("\n%s is the result of '%s'", r.Text, r.Node)
		if r.Field != "" {
			line = fmt.Sprintf("\n%s is %s of the result of '%s'", r.Text, r.Field, r.Node)
		}
		if r.Text == "" || seen[line] {
			continue
		}
		if len(seen) == 0 {
			b.WriteString("\n\nReferences:")
		}
		seen[line] = true
		b.WriteString(line)
	}
	return b.String()
}
