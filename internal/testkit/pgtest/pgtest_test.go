package pgtest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv("PGTEST_CHILD") == "" {
		testkit.Main(m)
		return
	}
	// The child of TestServer/EndsWithItsProcess: start a server, say where, wait to be killed.
	s, err := pgtest.Start(context.Background(), "", pgtest.Options{NoFsync: true})
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(s.URL("") + "\n")
	select {}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `CREATE TABLE marks (n int)`)
	return err
})

func TestDatabases(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"A", "B", "C"} {
		t.Run("Template/EachTestHasItsOwnCopy/"+name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, template.New(t))
			_, err := c.Exec(t.Context(), `INSERT INTO marks VALUES (1)`)
			require.NoError(t, err)
			var n int
			require.NoError(t, c.QueryRow(t.Context(), `SELECT count(*) FROM marks`).Scan(&n))
			require.Equal(t, 1, n)
		})
	}
	t.Run("New/EmptyAndDurable", func(t *testing.T) {
		t.Parallel()
		c := connect(t, pgtest.New(t))
		var tables int
		require.NoError(t, c.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&tables))
		require.Zero(t, tables)
		if os.Getenv(pgtest.URLEnv) == "" && os.Getenv(pgtest.FsyncEnv) == "" {
			var fsync string
			require.NoError(t, c.QueryRow(t.Context(), `SHOW fsync`).Scan(&fsync))
			require.Equal(t, "on", fsync)
		}
	})
}

func TestServer(t *testing.T) {
	t.Parallel()
	t.Run("Server/CrashKeepsWhatWasCommitted", func(t *testing.T) {
		t.Parallel()
		ctx := testkit.Context(t, time.Minute)
		s, err := pgtest.Start(ctx, "", pgtest.Options{Settings: map[string]string{"max_connections": "20"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Stop()) }()
		c, err := pgx.Connect(ctx, s.URL(""))
		require.NoError(t, err)
		_, err = c.Exec(ctx, `CREATE TABLE kept AS SELECT 42 AS n`)
		require.NoError(t, err)
		require.NoError(t, s.Crash())
		_ = c.Close(ctx)
		_, err = pgx.Connect(ctx, s.URL(""))
		require.Error(t, err)
		require.NoError(t, s.Restart(ctx))
		c, err = pgx.Connect(ctx, s.URL(""))
		require.NoError(t, err)
		defer c.Close(ctx)
		var n int
		require.NoError(t, c.QueryRow(ctx, `SELECT n FROM kept`).Scan(&n))
		require.Equal(t, 42, n)
	})
	t.Run("Server/EndsWithItsProcess", func(t *testing.T) {
		t.Parallel()
		exe, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), "PGTEST_CHILD=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line := make([]byte, 512)
		n, err := out.Read(line)
		require.NoError(t, err)
		_, rest, _ := strings.Cut(strings.TrimSpace(string(line[:n])), "host=")
		sock, _, _ := strings.Cut(rest, "&")
		require.DirExists(t, sock)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		testkit.Eventually(t, func() bool {
			_, err := os.Stat(sock)
			return os.IsNotExist(err)
		})
	})
	t.Run("Start/GivenDirectoryIsKept", func(t *testing.T) {
		t.Parallel()
		base, err := os.MkdirTemp("", "epigraph-keep") //nolint:usetesting // the server's user must be able to enter every folder above it
		require.NoError(t, err)
		defer os.RemoveAll(base)
		require.NoError(t, os.Chmod(base, 0o755))
		ctx := testkit.Context(t, time.Minute)
		s, err := pgtest.Start(ctx, filepath.Join(base, "pg"))
		require.NoError(t, err)
		require.NoError(t, s.Stop())
		require.NoError(t, s.Stop())
		require.FileExists(t, filepath.Join(base, "pg", "data", "PG_VERSION"))
	})
}
