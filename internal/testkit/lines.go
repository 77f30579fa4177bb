package testkit

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// GzipLines writes records as gzipped JSON Lines, as recorded plans are kept, and returns the file.
func GzipLines[T any](t testing.TB, records ...T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "records.jsonl.gz")
	f, err := os.Create(name) //nolint:gosec // a temporary file of the test
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	for _, r := range records {
		require.NoError(t, json.NewEncoder(z).Encode(r))
	}
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
	return name
}
