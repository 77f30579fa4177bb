package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/money"
	"github.com/epigraph-run/epigraph/workgraph"
)

// cut is the beginning of s, of at most this many characters.
func cut(s string, runes int) string {
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

// spent says how much of a budget is used.
func spent(b *workgraph.Budget, used workgraph.Spent) string {
	var parts []string
	if b.NanoUSD != nil {
		parts = append(parts, fmt.Sprintf("%s of %s", money.Dollars(used.NanoUSD), money.Dollars(*b.NanoUSD)))
	}
	if b.Tokens != nil {
		parts = append(parts, fmt.Sprintf("%d of %s", used.Tokens, counted(int(min(*b.Tokens, 1<<62)), "token")))
	}
	text := strings.Join(parts, ", ")
	if b.NanoUSD != nil && used.Unpriced > 0 {
		text += "; " + noPrice(used.Unpriced)
	}
	return text
}

// raiseHint is the command that gives a run more than it has used.
func raiseHint(runID string, b *workgraph.Budget, used workgraph.Spent) string {
	hint := "runs resume " + runID
	if b.NanoUSD != nil && used.NanoUSD >= *b.NanoUSD {
		hint += " --budget-usd X"
	}
	if b.Tokens != nil && used.Tokens >= *b.Tokens {
		hint += " --budget-tokens N"
	}
	return command(hint) + " lets it go on, with more than it has used"
}

// withoutPrice is what is said of calls whose money counts nowhere.
const withoutPrice = " without a known price not counted"

// noPrice says how many calls have no known price.
func noPrice(calls int64) string { return counted(int(calls), "call") + withoutPrice }

// counted is how many there are of something.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// command is what can be typed, as hints show it.
func command(args string) string { return "`epigraph " + args + "`" }
