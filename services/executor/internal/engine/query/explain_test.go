package query_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestArrange(t *testing.T) {
	t.Parallel()
	t.Run("WaitForMemory/HidesAttemptsThatCannotRun", func(t *testing.T) {
		here := []query.Blocker{{Kind: query.BlockerExecutorFull, Message: "the run waits for memory"}}
		x := query.Explanation{Blockers: []query.Blocker{{Kind: query.BlockerRunning, Ref: workgraph.Ref{Node: "a", Visit: 1}}}}
		x.Arrange(here)
		require.Equal(t, here, x.Blockers, "nothing of it runs meanwhile")
		require.Contains(t, x.Summary, "waits for memory")
	})
}
