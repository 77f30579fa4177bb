package executor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/archive"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

func TestMaintenance(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	j, err := sqlite.Open(ctx, filepath.Join(dir, "j.db"), sqlite.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	_, err = j.Migrations().Up(ctx)
	require.NoError(t, err)
	me, err := j.Register(ctx, "me", "")
	require.NoError(t, err)
	cfg := DefaultConfig()
	cfg.SQLitePath = filepath.Join(dir, "j.db")
	cfg.Retention, cfg.Archive = time.Hour, "file://"+filepath.ToSlash(dir)+"/archive"
	cfg.BlobOver = 4 << 10
	require.NoError(t, cfg.Validate())
	kept, err := openOffload(ctx, cfg, j, obs.Noop().Logger)
	require.NoError(t, err)
	defer func() { require.NoError(t, kept.Close()) }()
	u, err := openMaintenance(ctx, cfg, j, kept.Around(j), obs.Noop())
	require.NoError(t, err)
	defer func() { require.NoError(t, u.Close()) }()

	now := time.Now().UTC()
	big := `"` + strings.Repeat("0123456789", 1000) + `"`
	begin := func(state journal.State, end time.Time, parent string, graph ...string) string {
		hash := append(graph, "g")[0]
		id := ids.New("run")
		_, store := kept.Pack(journal.Write{Start: &journal.Start{Append: journal.Append{Graph: []byte(`{"nodes":[]}`), Events: []journal.Event{{Kind: 10, Data: []byte(`{"a":1}`)}, {Kind: 17, NodeID: "n", Visit: 1, Data: []byte(big)}}}, Run: journal.Run{ID: id, Namespace: "acme", ParentID: parent, GraphHash: hash, CreateTime: now.Add(-3 * time.Hour), Args: []byte(`[1]`), Status: journal.Status{State: state, EndTime: end},
			Metadata: []byte(`{"user":{"k":"v"},"webhooks":[{"url":"https://example.com","headers":{"authorization":"hidden"},"secret":"hidden"}]}`)}}})
		require.NotNil(t, store)
		res, err := j.Commit(ctx, me, []journal.Write{store(ctx)})
		require.NoError(t, err)
		require.NoError(t, res[0].Err)
		return id
	}
	old := begin(journal.StateCompleted, now.Add(-2*time.Hour), "")
	child := begin(journal.StateFailed, now.Add(-2*time.Hour), old)
	young := begin(journal.StateCompleted, now.Add(-time.Minute), "")
	live := begin(journal.StateRunning, time.Time{}, "")
	_, err = archived{kept.Around(j)}.Get(ctx, "acme", old)
	require.NoError(t, err)

	require.NoError(t, u.work(ctx, dispatch.Job{}))
	require.NoError(t, u.work(ctx, dispatch.Job{}), "again")
	for more := true; more; {
		more, err = j.PurgeRuns(ctx, 100)
		require.NoError(t, err)
	}
	for _, id := range []string{young, live} {
		_, err := j.Get(ctx, "acme", id)
		require.NoError(t, err)
	}
	for _, id := range []string{old, child} {
		_, err := archived{kept.Around(j)}.Get(ctx, "acme", id)
		require.Equal(t, reasonArchived, errs.ReasonOf(err))
		require.ErrorContains(t, err, "/archive/acme/"+id+".jsonl.zst")
	}
	_, err = archived{kept.Around(j)}.Get(ctx, "other", old)
	require.Equal(t, journal.ReasonRunNotFound, errs.ReasonOf(err), "another tenant learns nothing")

	files := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "archive"), func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s has mode %v", path, info.Mode())
		if !e.IsDir() {
			require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
			files++
		}
		return nil
	}))
	require.Equal(t, 2, files, "what is archived is its owner's alone")

	raw, err := u.archive.Get(ctx, archive.Name("acme", old), 0)
	require.NoError(t, err)
	z, err := zstd.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	defer z.Close()
	var lines []archive.Line
	for sc := bufio.NewScanner(z); sc.Scan(); {
		var l archive.Line
		require.NoError(t, json.Unmarshal(sc.Bytes(), &l))
		lines = append(lines, l)
	}
	require.Len(t, lines, 4)
	require.Equal(t, old, lines[0].Run.ID)
	require.Equal(t, "COMPLETED", lines[0].Run.State)
	meta, err := json.Marshal(lines[0].Run.Metadata)
	require.NoError(t, err)
	require.JSONEq(t, `{"user":{"k":"v"},"webhooks":[{"url":"https://example.com"}]}`, string(meta), "without what is secret")
	require.Equal(t, "g", lines[1].Graph.Hash)
	require.Equal(t, strings.Trim(big, `"`), lines[3].Event.Data, "values are whole")

	t.Run("Graphs/GoOnceNoRunRefersToThem", func(t *testing.T) {
		defer func() { u.now = dbkit.Now }()
		lone := begin(journal.StateCompleted, now, "", "lone")
		_, err := j.DeleteRun(ctx, "acme", lone, 0, nil)
		require.NoError(t, err)
		require.NoError(t, u.work(ctx, dispatch.Job{}))
		_, err = j.GraphBody(ctx, "acme", "lone")
		require.NoError(t, err, "a run took it just now")
		u.now = func() time.Time { return dbkit.Now().Add(3 * 24 * time.Hour) }
		require.NoError(t, u.work(ctx, dispatch.Job{}))
		_, err = j.GraphBody(ctx, "acme", "lone")
		require.Equal(t, journal.ReasonGraphNotFound, errs.ReasonOf(err))
		_, err = j.GraphBody(ctx, "acme", "g")
		require.NoError(t, err, "a run that goes on refers to it")
	})

	t.Run("Namespace/KeepsItsRunsByItsOwnWord", func(t *testing.T) {
		defer func() { u.retention, u.limits = time.Hour, nil }()
		store, err := openLimits(ctx, cfg, j, dbkit.NewTurns(j.Readers()), obs.Noop())
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		u.limits = limit.New(store, obs.Noop().Logger)
		say := func(keep time.Duration) {
			_, err := store.Update(ctx, limit.Key{Namespace: "acme", Name: limit.Namespace}, limit.To(limit.Limit{Key: limit.Key{Namespace: "acme", Name: limit.Namespace}, Retention: keep}))
			require.NoError(t, err)
			require.NoError(t, u.limits.Refresh(ctx))
		}
		there := func(id string) bool {
			_, err := j.Get(ctx, "acme", id)
			if err != nil {
				require.Equal(t, journal.ReasonRunNotFound, errs.ReasonOf(err))
			}
			return err == nil
		}
		id := begin(journal.StateCompleted, now.Add(-2*time.Hour), "")
		say(24 * time.Hour) // longer than the hour of the others
		require.NoError(t, u.work(ctx, dispatch.Job{}))
		require.True(t, there(id))
		u.retention = 0 // the others keep theirs for ever
		say(3 * time.Hour)
		require.NoError(t, u.work(ctx, dispatch.Job{}))
		require.True(t, there(id))
		say(90 * time.Minute)
		require.NoError(t, u.work(ctx, dispatch.Job{}))
		require.False(t, there(id))
	})

	t.Run("Config/Faults", func(t *testing.T) {
		for want, change := range map[string]func(*Config){
			"retention must be": func(c *Config) { c.Retention = time.Second },
			"archive needs":     func(c *Config) { c.Retention = 0 },
			"archive: ":         func(c *Config) { c.Archive = "ftp://x" },
			"blobs: ":           func(c *Config) { c.Blobs = "nowhere" },
			"blob_over":         func(c *Config) { c.BlobOver = 1 },
			"blob_grace":        func(c *Config) { c.BlobGrace = time.Second },
			"partition must":    func(c *Config) { c.Partition = time.Second },
		} {
			bad := cfg
			change(&bad)
			require.ErrorContains(t, bad.Validate(), want)
		}
	})
}
