package stack_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestFiles looks at the files that processes make and read: they hold keys, arguments and results.
func TestFiles(t *testing.T) {
	t.Parallel()
	t.Run("Dev/AllItMakesIsTheOwnersAlone", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		var log testkit.LogBuffer
		c := quiet()
		c.Telemetry.LogWriter = &log
		d := openDev(t, stack.DevOptions{DataDir: dir, Config: c})
		stop := run(t, d)
		require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
		var seen []string
		require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := e.Info()
			require.NoError(t, err)
			require.Zero(t, info.Mode().Perm()&0o077, "%s has mode %v", path, info.Mode())
			seen = append(seen, filepath.Base(path))
			return nil
		}))
		require.Subset(t, seen, []string{"executor.db", "executor.db-wal", "executor.db-shm", "registry.db", "api_key", "lock"})
		stop()
		require.NotContains(t, log.String(), "others can read")
	})
	t.Run("Start/WarnsOfWhatOthersCanRead", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write := func(name, text string, mode fs.FileMode) string {
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			require.NoError(t, os.Chmod(path, mode))
			return path
		}
		start := func(file string) string {
			var log testkit.LogBuffer
			c := quiet()
			require.NoError(t, stack.Load(&c, conf.Sources{File: file, Env: []string{}}))
			c.Telemetry.LogWriter, c.GRPC.PlannerAddr = &log, "127.0.0.1:0"
			p, err := stack.Open(t.Context(), stack.Planner, c)
			require.NoError(t, err)
			require.NoError(t, p.Close())
			return log.String()
		}
		const secret = "auth: {service_token: hunter2, keys: [{name: a, namespace: a, secret: s}]}\n"
		require.Contains(t, start(write("open.yaml", secret, 0o644)), "open.yaml")
		require.Contains(t, start(write("group.yaml", secret, 0o640)), "group.yaml")
		require.NotContains(t, start(write("private.yaml", secret, 0o600)), "others can read")
		require.NotContains(t, start(write("dull.yaml", "executor: {parallel: 3}\n", 0o644)), "others can read", "nothing in it is secret")
	})
}
