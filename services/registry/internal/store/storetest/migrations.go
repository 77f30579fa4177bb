package storetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// Migrations are the first n in the folder of the package under test: those that an earlier release had.
func Migrations(t *testing.T, n int) fs.FS {
	t.Helper()
	files, err := filepath.Glob("migrations/*.sql") // in their order
	require.NoError(t, err)
	require.Greater(t, len(files), n)
	out := fstest.MapFS{}
	for _, f := range files[:n] {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		out[filepath.Base(f)] = &fstest.MapFile{Data: text}
	}
	return out
}
