package e2e_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the commands of docs/tour.md print into it")

// TestTour runs every command of docs/tour.md against the suite and compares its output with the page, ids
// and times apart.
func TestTour(t *testing.T) {
	t.Parallel()
	d := startDev(t)

	const name = "docs/tour.md"
	text := page(t, name)
	vars := filepath.Join(d.dir, "vars")
	shell := func(command string) string {
		// Variables live from one command to the next.
		script := `[ -f "$VARS" ] && . "$VARS"; eval "$COMMAND"; for v in run interrupt fork; do declare -p $v 2>/dev/null; done > "$VARS"; true`
		c := exec.CommandContext(within(t), "bash", "-c", script)
		c.Dir = "../.."
		c.Env = append(slices.Clone(d.env), "VARS="+vars, "COMMAND="+command)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimRight(string(out), "\n")
	}
	var written strings.Builder
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		command, is := strings.CutPrefix(lines[i], "$ ")
		written.WriteString(lines[i] + "\n")
		if !is {
			continue
		}
		var want []string
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") && lines[i+1] != "```" {
			i++
			want = append(want, lines[i])
		}
		expected := plain(strings.Join(want, "\n"))
		var got string
		// A reading command may come a moment too early.
		looks := regexp.MustCompile(`runs (explain|show|visits)|interrupts (list|show)`).MatchString(command)
		for until := time.Now().Add(timeout); ; {
			got = shell(command)
			switch {
			case *update && looks:
				for range 5 {
					got = shell(command)
				}
			case looks && (plain(got) != expected || strings.HasPrefix(command, "interrupt=") && !asked(t, vars)) && time.Now().Before(until):
				continue
			}
			break
		}
		if *update {
			if got != "" {
				written.WriteString(got + "\n")
			}
			continue
		}
		require.Equal(t, expected, plain(got), "$ %s", command)
	}
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join("../..", name), []byte(written.String()), 0o644))
	}
}

// asked reports whether an interrupt was found.
func asked(t *testing.T, vars string) bool {
	t.Helper()
	text, err := os.ReadFile(vars)
	require.NoError(t, err)
	return regexp.MustCompile(`interrupt="int_`).Match(text)
}

// plain is an output without the parts that differ each time.
func plain(s string) string {
	for _, c := range [][2]string{
		{`\b(run|int|req|tk|ep)_[0-9a-z]{26}\b`, "${1}_ID"},
		{`\b[0-9a-f]{32}\b`, "TRACE"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "INSTANT"}, // as machines read it
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`, "TIME"},
		{`\b[\d.]+(ns|µs|ms|s|m)( \d+(\.\d+)?s)?\b`, "SPAN"},
		// it moves on meanwhile
		{`(it is|is) (running|waiting|completed|pending still|canceled)\b`, "$1 STATE"},
		// it takes longer on a busy machine
		{`will pause; it is STATE still`, "is paused"},
		{` +`, " "},
	} {
		s = regexp.MustCompile(c[0]).ReplaceAllString(s, c[1])
	}
	return s
}
