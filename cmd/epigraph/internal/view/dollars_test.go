package view_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
)

func TestDollars(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"Money":       {"x: a call of up to 16702000 nano-USD does not fit: epic ep_1 has spent 0 and reserved 2500000000 of 100000; raise it", "x: a call of up to $0.016702 does not fit: epic ep_1 has spent $0.00 and reserved $2.50 of $0.0001; raise it"},
		"Tokens":      {"a call of up to 12 tokens does not fit: epic ep_1 has spent 0 and reserved 0 of 1", "a call of up to 12 tokens does not fit: epic ep_1 has spent 0 and reserved 0 of 1"},
		"TooMany":     {"a call of up to 99999999999999999999 nano-USD does not fit: namespace has spent 0 and reserved 0 of 1", "a call of up to 99999999999999999999 nano-USD does not fit: namespace has spent $0.00 and reserved $0.00 of $0.000000001"},
		"NoRefusal":   {"5 nano-USD", "5 nano-USD"},
		"CutOffAtAll": {"a call of up to 16702000 nano-USD does not fit: epic", "a call of up to 16702000 nano-USD does not fit: epic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, view.Dollars(c.text))
		})
	}
}
