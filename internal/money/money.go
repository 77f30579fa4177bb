// Package money writes amounts for people. It knows neither prices nor budgets.
package money

import (
	"fmt"
	"strings"
)

// Dollars formats nano-USD, which must not be negative, exactly: cents, and the digits below them that are
// not zero.
func Dollars(nano int64) string {
	cents, rest := nano/1e7, strings.TrimRight(fmt.Sprintf("%07d", nano%1e7), "0")
	return fmt.Sprintf("$%d.%02d%s", cents/100, cents%100, rest)
}
