package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/buildinfo"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
)

// TestNarrowHelp holds that the help of every command fits a terminal of 40 columns, and says all that the
// wide one does.
func TestNarrowHelp(t *testing.T) {
	t.Parallel()
	const width = 40
	help := func(t *testing.T, width int, words ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		require.Equal(t, exitOK, Main(t.Context(), buildinfo.Info{Version: "test"}, append(words, "--help"), IO{Out: &out, Err: &errs, Width: width}), "%s", errs.String())
		require.Empty(t, errs.String())
		return out.String()
	}
	parser, err := kong.New(&commands{}, kong.Vars{"default_addr": DefaultAddr})
	require.NoError(t, err)
	all := [][]string{{}}
	for _, c := range append(parser.Model.Leaves(true), parser.Model.Children...) {
		if !c.Hidden {
			path, _, _ := strings.Cut(strings.TrimSpace(c.FullPath()), " <")
			all = append(all, strings.Fields(path)[1:])
		}
	}
	require.Greater(t, len(all), 60)
	for _, words := range all {
		words = deleteAliases(words)
		t.Run("Fits/"+strings.Join(words, "-"), func(t *testing.T) {
			t.Parallel()
			narrow := help(t, width, words...)
			for l := range strings.Lines(narrow) {
				l = strings.TrimSuffix(l, "\n")
				if len(strings.Fields(l)) > 1 && !strings.ContainsAny(l, "'`") {
					// one word, or a quoted text, stays whole
					require.LessOrEqual(t, view.Columns(l), width, "%q", l)
				}
			}
			plain := func(text string) string {
				return strings.Join(strings.Fields(strings.ReplaceAll(text, "\\\n", "\n")), " ")
			}
			for l := range strings.Lines(help(t, 0, words...)) {
				if name, _, _ := strings.Cut(strings.TrimSpace(l), " "); strings.HasPrefix(name, "-") {
					require.Contains(t, plain(narrow), strings.TrimSuffix(name, ","))
				}
			}
		})
	}
	t.Run("Layout", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, `Usage: epigraph tasks rm (delete) <id>
  [flags]

Delete a task.

Arguments:
  <id>
      The task.

Flags:
  -h, --help
      Show context-sensitive help.
  --json
      Print answers and errors as JSON.
  --version
      Print the version.
  --etag=STRING
      Delete it only if it still has
      this etag.

Connection:
`, strings.SplitAfter(help(t, width, "tasks", "rm"), "Connection:\n")[0])
	})
}

// deleteAliases leaves the words of a command that are typed.
func deleteAliases(words []string) []string {
	var out []string
	for _, w := range words {
		if !strings.HasPrefix(w, "(") {
			out = append(out, w)
		}
	}
	return out
}
