package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

func TestUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		usage *executorv1.Usage
		want  []string
	}{
		"Nothing": {&executorv1.Usage{}, nil},
		"AllIsItsOwn": {
			&executorv1.Usage{Calls: 2, InputTokens: 20, OutputTokens: 4, CostNanoUsd: 5_000_000, BookedCalls: 2, BookedInputTokens: 20, BookedOutputTokens: 4},
			[]string{"used: 20 input and 4 output tokens in 2 calls, $0.005"},
		},
		"NotBookedYet": {
			&executorv1.Usage{Calls: 2, InputTokens: 20, OutputTokens: 4, UnbookedAttempts: 2},
			[]string{"used: 20 input and 4 output tokens in 2 calls, 2 attempts not booked yet"},
		},
		"GivenUp": {
			&executorv1.Usage{Calls: 1, InputTokens: 10, OutputTokens: 2, CostNanoUsd: 5_000_000, BookedCalls: 3, BookedInputTokens: 30, BookedOutputTokens: 6},
			[]string{"used: 10 input and 2 output tokens in 1 call", "booked in all, with what was given up: 30 input and 6 output tokens in 3 calls, $0.005"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, used(&executorv1.Run{Usage: c.usage}))
		})
	}
}
