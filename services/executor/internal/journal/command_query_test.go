package journal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandQueryReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ runs, want int }{
		"Few":  {runs: 3, want: CommandScanLeast},
		"Many": {runs: 1000, want: 4000},
		"Most": {runs: 1_000_000, want: CommandScanMost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, CommandQuery{Runs: c.runs}.Reads())
		})
	}
}
