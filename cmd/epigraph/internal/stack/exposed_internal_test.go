//go:build unix

package stack

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExposed has each file or folder with secrets or data read by others, one at a time.
func TestExposed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		service string
		set     func(c *Config, path string)
		folder  bool
	}{
		"KeyOfGRPC":        {Planner, func(c *Config, path string) { c.GRPC.TLS.KeyFile = path }, false},
		"KeyOfGateway":     {Gateway, func(c *Config, path string) { c.Gateway.TLS.KeyFile = path }, false},
		"ExecutorDatabase": {Executor, func(c *Config, path string) { c.Executor.SQLitePath = path }, false},
		"RegistryDatabase": {Registry, func(c *Config, path string) { c.Registry.SQLitePath = path }, false},
		"Blobs":            {Executor, func(c *Config, path string) { c.Executor.Blobs = "file://" + path + "?prefix=a/" }, true},
		"BlobsBesideSQLite": {Executor, func(c *Config, path string) {
			c.Executor.Blobs, c.Executor.SQLitePath = "", path[:len(path)-len(".blobs")]
		}, true},
		"Archive": {Executor, func(c *Config, path string) { c.Executor.Archive = "file://" + path }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "it.blobs")
			private, open := fs.FileMode(0o600), fs.FileMode(0o640)
			if tc.folder {
				private, open = 0o700, 0o750
				require.NoError(t, os.Mkdir(path, private))
			} else {
				require.NoError(t, os.WriteFile(path, nil, private))
			}
			c := DefaultConfig()
			c.Executor.SQLitePath, c.Registry.SQLitePath = filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "none")
			tc.set(&c, path)
			warned := func() string {
				var log bytes.Buffer
				warnExposed(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), c.secretFiles(tc.service)...)
				return log.String()
			}
			require.Empty(t, warned())
			require.NoError(t, os.Chmod(path, open))
			require.Contains(t, warned(), "file="+path)
		})
	}
}
