package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The search for similar names ends after a number of steps, however many long names a namespace has.
func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"summarize"}
	for i := range 10_000 {
		names = append(names, strings.Repeat("x", 250)+fmt.Sprintf("%05d", i))
	}
	steps := MaxNearSteps
	require.Equal(t, []string{"summarize"}, Nearest("sumarize", names, &steps))
	require.Greater(t, steps, MaxNearSteps/2, "names of other lengths cost nothing")
	require.NotEmpty(t, Nearest(strings.Repeat("x", 255), names, &steps))
	require.Negative(t, steps)
	require.GreaterOrEqual(t, steps, -256*256)
	require.Empty(t, Nearest("sumarize", names, &steps), "nothing is left for others")
	require.Equal(t, []string{"summarize"}, Near("sumarize", names))
}
