package view

import (
	"regexp"
	"strconv"
)

// refusal is the sentence by which the registry refuses a call that does not fit under a cap of money. Its
// amounts are nano-USD, for programs.
var refusal = regexp.MustCompile(`a call of up to (\d+) nano-USD does not fit: (.{1,200}?) has spent (\d+) and reserved (\d+) of (\d+)`)

// Dollars is a text of a server in which the amounts of such refusals are dollars.
func Dollars(text string) string {
	return refusal.ReplaceAllStringFunc(text, func(said string) string {
		m := refusal.FindStringSubmatch(said)
		usd := func(i int) string {
			n, err := strconv.ParseInt(m[i], 10, 64)
			if err != nil {
				return m[i] + " nano-USD"
			}
			return Money(n)
		}
		return "a call of up to " + usd(1) + " does not fit: " + m[2] + " has spent " + usd(3) + " and reserved " + usd(4) + " of " + usd(5)
	})
}
