package registry

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/workflowfiles"
)

func TestFolder(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"sqlite": func(c *Config) { c.SQLitePath = filepath.Join(t.TempDir(), "registry.db") },
		"postgres": func(c *Config) {
			c.Store, c.PostgresURL, c.MaxConns = "postgres", conf.NewSecret(pgtest.New(t)), 4
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := DefaultConfig()
			change(&cfg)
			folderOf(t, cfg)
		})
	}
	t.Run("Open/NeedsTheFolder", func(t *testing.T) {
		t.Parallel()
		cfg := DefaultConfig()
		cfg.SQLitePath, cfg.Workflows = filepath.Join(t.TempDir(), "registry.db"), filepath.Join(t.TempDir(), "nowhere")
		_, err := Open(t.Context(), cfg, Deps{})
		require.ErrorContains(t, err, "registry.workflows: open folder of workflows")
	})
}

func folderOf(t *testing.T, cfg Config) {
	dir := t.TempDir()
	changed := time.Now()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		changed = changed.Add(time.Second)
		require.NoError(t, os.Chtimes(name, changed, changed))
	}
	letter := func(text string) string {
		return "name: Letter\nsteps:\n  - {id: text, type: transform, template: " + text + "}\n"
	}
	put("letter@2.yaml", letter("second"))
	put("letter.yaml", letter("third"))
	put("acme/double@1.json", `{"name": "double", "nodes": [{"id": "n", "actor": "cel", "named": {"expr": "2"}}]}`)
	put("large.yaml", strings.Repeat("# long\n", workflowfiles.MaxBytes/7+1))
	put("broken.yaml", "name: Broken\nsteps:\n  - {id: a, type: nothing}\n")
	cfg.Workflows = dir
	var logs bytes.Buffer
	tel := obs.Noop()
	tel.Logger = slog.New(slog.NewTextHandler(&logs, nil))
	open := func(t *testing.T) *Service {
		t.Helper()
		s, err := Open(t.Context(), cfg, Deps{Telemetry: tel})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	s := open(t)
	latest := func(t *testing.T, namespace, slug string) catalog.Workflow {
		t.Helper()
		w, err := s.catalog.Get(t.Context(), namespace, slug)
		require.NoError(t, err)
		return w
	}

	t.Run("Start/TakesWhatThereIs", func(t *testing.T) {
		require.EqualValues(t, 3, latest(t, "default", "letter").Latest, "the file without a number is the next version")
		require.EqualValues(t, 2, latest(t, "default", "letter").Versions)
		require.EqualValues(t, 1, latest(t, "acme", "double").Latest)
	})
	t.Run("Refused/ToldWithItsFile", func(t *testing.T) {
		require.Contains(t, logs.String(), "file=broken.yaml")
		require.Contains(t, logs.String(), "file=large.yaml")
		require.Contains(t, logs.String(), "more than 1048576 bytes")
		require.Contains(t, logs.String(), "3:19 steps[0].type: the type of a step cannot be")
	})
	t.Run("Again/ChangesNothing", func(t *testing.T) {
		before := latest(t, "default", "letter")
		open(t)
		require.Equal(t, before, latest(t, "default", "letter"))
	})
	t.Run("Change/IsANewVersion", func(t *testing.T) {
		put("letter.yaml", letter("fourth"))
		require.NoError(t, s.folder.keep(t.Context()))
		require.EqualValues(t, 4, latest(t, "default", "letter").Latest)
	})
	t.Run("Number/KeepsItsText", func(t *testing.T) {
		put("letter@2.yaml", letter("other"))
		logs.Reset()
		require.NoError(t, s.folder.keep(t.Context()))
		require.Contains(t, logs.String(), "file=letter@2.yaml")
		require.Contains(t, logs.String(), "is not newer than the newest, 4")
		require.EqualValues(t, 4, latest(t, "default", "letter").Latest)
		logs.Reset()
		require.NoError(t, s.folder.keep(t.Context()))
		require.Empty(t, logs.String(), "a refusal is told once")
	})
	t.Run("Mended/IsTaken", func(t *testing.T) {
		put("broken.yaml", letter("whole"))
		require.NoError(t, s.folder.keep(t.Context()))
		require.EqualValues(t, 1, latest(t, "default", "broken").Latest)
	})
}
