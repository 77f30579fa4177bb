// Package phrase has the wording that errors and explanations of runs share: counts, used budgets, and
// commands to type.
package phrase

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/money"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Cut returns the first characters of s, at most this many.
func Cut(s string, runes int) string {
	if utf8.RuneCountInString(s) <= runes {
		return s
	}
	n := 0
	for i := range s {
		if n == runes {
			return s[:i]
		}
		n++
	}
	return s
}

// Spent says how much of a budget is used.
func Spent(b *workgraph.Budget, used workgraph.Spent) string {
	var parts []string
	if b.NanoUSD != nil {
		parts = append(parts, fmt.Sprintf("%s of %s", money.Dollars(used.NanoUSD), money.Dollars(*b.NanoUSD)))
	}
	if b.Tokens != nil {
		parts = append(parts, fmt.Sprintf("%d of %s", used.Tokens, Counted(int(min(*b.Tokens, 1<<62)), "token")))
	}
	text := strings.Join(parts, ", ")
	if b.NanoUSD != nil && used.Unpriced > 0 {
		text += "; " + NoPrice(used.Unpriced)
	}
	return text
}

// RaiseHint is the command that raises the used-up caps of a run's budget.
func RaiseHint(runID string, b *workgraph.Budget, used workgraph.Spent) string {
	hint := "runs resume " + runID
	if b.NanoUSD != nil && used.NanoUSD >= *b.NanoUSD {
		hint += " --budget-usd X"
	}
	if b.Tokens != nil && used.Tokens >= *b.Tokens {
		hint += " --budget-tokens N"
	}
	return Command(hint) + " continues it with more than it has used"
}

// WithoutPrice describes calls whose money is not counted.
const WithoutPrice = " without a known price not counted"

// NoPrice says how many calls have no known price.
func NoPrice(calls int64) string { return Counted(int(calls), "call") + WithoutPrice }

// Counted is a number with its noun, in the plural unless n is 1.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Command quotes a command line as hints show it.
func Command(args string) string { return "`epigraph " + args + "`" }

// Clean returns valid text of at most n bytes that every database can store.
func Clean(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}
