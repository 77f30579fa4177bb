package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// maxCommentColumns is the width of a line with a comment, with a tab as four columns. A line of code may be
// wider, and so may a word, a directive or the example of an output.
const maxCommentColumns = 110

// TestCommentsFit holds the width of comments in all Go files of the repository that are not generated. A
// linter for line lengths would hold code to the same width.
func TestCommentsFit(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "proto/gen" || rel == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		for _, p := range wideCommentLines(t, name) {
			t.Errorf("%s:%d: a comment beyond column %d", rel, p, maxCommentColumns)
		}
		return nil
	}))
}

// wideCommentLines returns the lines of a file with a comment that is too wide.
func wideCommentLines(t *testing.T, name string) (wide []int) {
	t.Helper()
	src, err := os.ReadFile(name)
	require.NoError(t, err)
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, src, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	if ast.IsGenerated(f) {
		return nil
	}
	lines := strings.Split(string(src), "\n")
	for _, group := range f.Comments {
		if strings.HasPrefix(strings.TrimSpace(group.Text()), "Output:") {
			continue
		}
		for _, c := range group.List {
			first := files.Position(c.Pos()).Line
			for i, text := range strings.Split(c.Text, "\n") {
				line := lines[first-1+i]
				columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
				directive := strings.HasPrefix(text, "//") && !strings.HasPrefix(text, "// ")
				if columns > maxCommentColumns && !directive && len(strings.Fields(text)) > 2 {
					wide = append(wide, first+i)
				}
			}
		}
	}
	return wide
}
