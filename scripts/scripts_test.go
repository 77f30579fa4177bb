// Package scripts_test runs the scripts whose silent failure would not be noticed.
package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestTest runs scripts/test on a package with a given number of failures.
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

// TestStamp runs scripts/stamp in repositories of its own.
func TestStamp(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("stamp")
	require.NoError(t, err)
	// in runs the script in a folder, with git's settings of the machine out of the way.
	in := func(t *testing.T, dir, name string, args ...string) (out string, err error) {
		t.Helper()
		c := exec.CommandContext(testkit.Context(t, time.Minute), name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
			"GIT_CONFIG_COUNT=0", "GIT_COMMITTER_DATE=2026-01-02T04:05:06+01:00", "VERSION=", "COMMIT=", "DATE=")
		text, err := c.Output()
		return strings.TrimSpace(string(text)), err
	}
	folder := func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "scripts", "stamp"), script, 0o755))
		return dir
	}
	must := func(t *testing.T, dir, name string, args ...string) string {
		t.Helper()
		out, err := in(t, dir, name, args...)
		require.NoError(t, err, "%s %v", name, args)
		return out
	}

	t.Run("Git/TagCommitAndDateInUTC", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		git := func(args ...string) string {
			return must(t, dir, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		}
		git("init", "-q")
		git("add", ".")
		git("commit", "-q", "-m", "x")
		commit := git("rev-parse", "HEAD")
		require.Equal(t, git("rev-parse", "--short", "HEAD"), must(t, dir, "scripts/stamp", "version"), "without a tag")
		git("tag", "v0.1.0")
		git("tag", "proto/v0.3.0")
		require.Equal(t, "-s -w -X main.version=v0.1.0 -X main.commit="+commit+" -X main.date=2026-01-02T03:05:06Z", must(t, dir, "scripts/stamp"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "scripts", "stamp"), append(script, '\n'), 0o755))
		require.Equal(t, "v0.1.0-dirty", must(t, dir, "scripts/stamp", "version"))
	})
	t.Run("NoGit/WhatIsSaid", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		require.Equal(t, "-s -w -X main.version=dev -X main.commit= -X main.date=", must(t, dir, "scripts/stamp"))
		require.Equal(t, "-s -w -X main.version=v1 -X main.commit=abc -X main.date=now", must(t, dir, "env", "VERSION=v1", "COMMIT=abc", "DATE=now", "scripts/stamp"))
		_, err := in(t, dir, "scripts/stamp", "nonsense")
		require.Error(t, err)
	})
	t.Run("Linker/SetsWhatIsDeclared", func(t *testing.T) {
		t.Parallel()
		main, err := os.ReadFile("../cmd/epigraph/main.go")
		require.NoError(t, err)
		declared := regexp.MustCompile(`(?m)^var (\w+), (\w+), (\w+) string`).FindSubmatch(main)
		require.Len(t, declared, 4)
		for _, name := range declared[1:] {
			require.Contains(t, string(script), "-X main."+string(name)+"=", "the linker says nothing of a variable that is not there")
		}
	})
}
