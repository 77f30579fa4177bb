package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// boundedDelete is a delete whose bound stands in a sub-select. Postgres may evaluate that again while it
// looks for rows, and then removes more than the bound.
var boundedDelete = regexp.MustCompile(`(?s)DELETE FROM .*\bIN\s*\(\s*SELECT\b.*\bLIMIT\b`)

// TestSweepsAreBounded holds deletes with a bound to the forms of package dbkit, InSelect and DeleteSome,
// which evaluate the bound once. Statements of SQLite alone may have any form.
func TestSweepsAreBounded(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"services", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", root), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || filepath.Base(filepath.Dir(name)) == "sqlite" {
				return err
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				if text, is := joined(e); is {
					if boundedDelete.MatchString(text) {
						t.Errorf("%s: a delete whose bound Postgres may evaluate again", files.Position(e.Pos()))
					}
					return false
				}
				return true
			})
			return nil
		}))
	}
}

// joined is the text of a literal, or of a sum of which one part is a literal; what is computed is a question
// mark. What calls take is not looked at.
func joined(e ast.Expr) (text string, is bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, l := joined(e.X)
		right, r := joined(e.Y)
		if !l && !r {
			return "", false
		}
		return strings.Join([]string{or(left, l), or(right, r)}, ""), true
	}
	return "", false
}

func or(text string, is bool) string {
	if is {
		return text
	}
	return "?"
}
