// Package scripts_test runs the scripts whose silence would not be noticed.
package scripts_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestTest runs scripts/test on a package whose tests fail as often as they are told to.
func TestTest(t *testing.T) {
	t.Parallel()
	require.FileExists(t, "../bin/gotestsum", "`make bin/.tools-test` builds it")
	run := func(t *testing.T, falls string, env ...string) (out string, passed bool) {
		t.Helper()
		c := exec.CommandContext(testkit.Context(t, 5*time.Minute), "./test", "./scripts/testdata/flaky")
		c.Env = append(os.Environ(), "FALLS_DIR="+t.TempDir(), "FALLS="+falls, "GOTESTFLAGS=", "FLAKY=", "HOGS=")
		c.Env = append(c.Env, env...)
		text, err := c.CombinedOutput()
		var failed *exec.ExitError
		if err != nil {
			require.ErrorAs(t, err, &failed, "%s", text)
		}
		t.Logf("%s", text)
		return string(text), err == nil
	}
	// flaky are the tests that the end of the output calls flaky.
	flaky := func(t *testing.T, out string) (names []string) {
		t.Helper()
		for line := range strings.Lines(out) {
			if rest, ok := strings.CutPrefix(line, "FLAKY "); ok {
				require.Regexp(t, `^github\.com/epigraph-run/epigraph/scripts/testdata/flaky Test\w+ -shuffle=\d+\n$`, rest)
				names = append(names, strings.Fields(rest)[1])
			}
		}
		return names
	}

	t.Run("Flaky/OneThatPassesTheSecondTimeIsNamedWithItsSeed", func(t *testing.T) {
		out, passed := run(t, "Two=1")
		require.True(t, passed)
		require.Equal(t, []string{"TestTwo"}, flaky(t, out))
	})
	t.Run("Flaky/BeforeAReleaseItIsAnError", func(t *testing.T) {
		out, passed := run(t, "Two=1", "FLAKY=fail")
		require.False(t, passed)
		require.Equal(t, []string{"TestTwo"}, flaky(t, out))
	})
	t.Run("Flaky/NoneIsNoError", func(t *testing.T) {
		out, passed := run(t, "", "FLAKY=fail")
		require.True(t, passed)
		require.Empty(t, flaky(t, out))
	})
	t.Run("Failed/OneThatFailsTwiceIsNotFlaky", func(t *testing.T) {
		out, passed := run(t, "One=2 Two=1")
		require.False(t, passed)
		require.Equal(t, []string{"TestTwo"}, flaky(t, out))
	})
	t.Run("Failed/MoreThanThreeAreNotTriedAgain", func(t *testing.T) {
		out, passed := run(t, "One=1 Two=1 Three=1 Four=1")
		require.False(t, passed)
		require.Empty(t, flaky(t, out))
	})
}

// TestCounted feeds scripts/counted what a build says.
func TestCounted(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(testkit.Context(t, time.Minute), "./counted")
	c.Stdin = strings.NewReader("go: downloading example.com/x v1.2.3\n" + strings.Repeat("example.com/x/y-z\n", 150) + "# example.com/x\nx.go:1:2: undefined: y\n")
	out, err := c.CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "go: downloading example.com/x v1.2.3\n  100 packages compiled\n# example.com/x\nx.go:1:2: undefined: y\n  150 packages compiled\n", string(out))
}
