package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// calls are the names of all calls of the API.
func calls() (out []string) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "epigraph.") {
			return true
		}
		for i := range f.Services().Len() {
			for m := range f.Services().Get(i).Methods().Len() {
				out = append(out, string(f.Services().Get(i).Methods().Get(m).Name()))
			}
		}
		return true
	})
	return out
}

// requireCommand fails unless words name a command that there is, with flags that it has.
func requireCommand(t *testing.T, root *kong.Node, words string) {
	t.Helper()
	at := root
	for _, w := range strings.Fields(words) {
		if flag, ok := strings.CutPrefix(w, "--"); ok {
			has := false
			for _, group := range at.AllFlags(false) {
				has = has || slices.ContainsFunc(group, func(f *kong.Flag) bool { return f.Name == flag })
			}
			require.True(t, has, "epigraph %s: there is no flag --%s", words, flag)
			continue
		}
		next := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == w || slices.Contains(n.Aliases, w) })
		require.GreaterOrEqual(t, next, 0, "epigraph %s: there is no command %q", words, w)
		at = at.Children[next]
	}
	require.Empty(t, at.Children, "epigraph %s is a group of commands", words)
}

func TestHints(t *testing.T) {
	t.Parallel()
	var cmds commands
	k, err := kong.New(&cmds, kong.Vars{"default_addr": DefaultAddr})
	require.NoError(t, err)
	known := calls()
	t.Run("Command/Exists", func(t *testing.T) {
		t.Parallel()
		for call, words := range commandOf {
			if !strings.HasPrefix(call, "DECISION_") {
				require.Contains(t, known, call, "no such call")
			}
			requireCommand(t, k.Model.Node, words)
		}
	})
	t.Run("Call/IsReplacedWhole", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "see `epigraph runs visits`, then `epigraph runs bulk-delete`; RunState stays", inCommands("see ListVisits, then BulkDeleteRuns; RunState stays"))
	})
	t.Run("Field/IsReplacedByItsFlag", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "allow it with --allow-unsafe; raise executor.workers.max_streams or state_keys", inCommands("allow it with allow_unsafe; raise executor.workers.max_streams or state_keys"))
		for field, flag := range flagOf {
			found := false
			_ = kong.Visit(k.Model, func(n kong.Visitable, next kong.Next) error {
				f, ok := n.(*kong.Flag)
				found = found || ok && "--"+f.Name == flag
				return next(nil)
			})
			require.True(t, found, "%s: no command has %s", field, flag)
		}
	})
	// A hint that is written anywhere in the suite and names a call has a command for it.
	t.Run("Source/NamesOnlyCallsWithACommand", func(t *testing.T) {
		t.Parallel()
		seen := 0
		for _, root := range []string{"services", "internal", "plan", "workgraph", "cmd"} {
			require.NoError(t, filepath.WalkDir(filepath.Join("../../../..", root), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				ast.Inspect(file, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Hint" {
						return true
					}
					for _, a := range call.Args {
						ast.Inspect(a, func(n ast.Node) bool {
							if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
								text, _ := strconv.Unquote(lit.Value)
								for _, name := range apiName.FindAllString(text, -1) {
									if slices.Contains(known, name) {
										seen++
										require.Contains(t, commandOf, name, "%s: %s", path, text)
									}
								}
							}
							return true
						})
					}
					return true
				})
				return nil
			}))
		}
		require.Positive(t, seen, "hints name calls")
	})
}
