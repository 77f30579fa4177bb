package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Looking for what may have been meant ends after so many steps, however many long names a namespace has.
func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"summarize"}
	for i := range 10_000 {
		names = append(names, strings.Repeat("x", 250)+fmt.Sprintf("%05d", i))
	}
	steps := maxNearSteps
	require.Equal(t, []string{"summarize"}, nearest("sumarize", names, &steps))
	require.Greater(t, steps, maxNearSteps/2, "names of other lengths cost nothing")
	require.NotEmpty(t, nearest(strings.Repeat("x", 255), names, &steps))
	require.Negative(t, steps)
	require.GreaterOrEqual(t, steps, -256*256)
	require.Empty(t, nearest("sumarize", names, &steps), "nothing is left for others")
	require.Equal(t, []string{"summarize"}, Near("sumarize", names))
}
