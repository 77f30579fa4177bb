package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/epigraph-run/epigraph/"

// source is a package of the module as its source says, without its tests, unexported names included.
type source struct {
	types *types.Package
	info  *types.Info
	files []*ast.File
}

// load type-checks packages of the module, named by patterns below its root. Their imports are read in
// compiled form.
func load(t *testing.T, patterns ...string) map[string]source {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly"}
	for _, p := range patterns {
		args = append(args, module+p)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
		DepOnly                 bool
	}
	exports := map[string]string{}
	var wanted []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		exports[l.ImportPath] = l.Export
		if !l.DepOnly {
			wanted = append(wanted, l)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	got := map[string]source{}
	for _, l := range wanted {
		s := source{info: &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}}}
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			s.files = append(s.files, f)
		}
		s.types, err = (&types.Config{Importer: imports}).Check(l.ImportPath, fset, s.files, s.info)
		require.NoError(t, err)
		got[strings.TrimPrefix(l.ImportPath, module)] = s
	}
	return got
}
