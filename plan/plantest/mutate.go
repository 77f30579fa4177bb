package plantest

import (
	"hash/fnv"
	"strings"
	"unicode/utf8"
)

// Mutant is a text after one accident.
type Mutant struct {
	Kind string
	Text string
	// Harmless mutants must be read like the original text.
	Harmless bool
}

// Mutants returns damaged copies of a text: with prose around it, in a code fence, cut off, or with a lost
// bracket. The same text always gives the same mutants.
func Mutants(text string) []Mutant {
	text = strings.TrimRight(text, "\n")
	out := []Mutant{
		{"prose", "Sure, here is the plan you asked for:\n\n" + text + "\n\nLet me know if anything should change.\n", true},
	}
	if !strings.Contains(text, "```") {
		out = append(out, Mutant{"fence", "```\n" + text + "\n```\n", true}, Mutant{"prose+fence", "Here is the plan.\n\n```text\n" + text + "\n```\n\nI hope this helps.\n", true})
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	seed := h.Sum32()
	next := func(n int) int {
		seed = seed*1664525 + 1013904223
		return int(seed>>8) % n
	}
	for range 4 {
		if len(text) < 8 {
			break
		}
		cut := len(text)/8 + next(len(text)-len(text)/8)
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		out = append(out, Mutant{"truncated", text[:cut], false})
	}
	var brackets []int
	for i := range len(text) {
		if strings.IndexByte("()[]{}<>", text[i]) >= 0 {
			brackets = append(brackets, i)
		}
	}
	for range 4 {
		if len(brackets) == 0 {
			break
		}
		i := brackets[next(len(brackets))]
		out = append(out, Mutant{"bracket", text[:i] + text[i+1:], false})
	}
	return out
}
