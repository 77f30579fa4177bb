package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

func TestOwnerFiles(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, path string) *sqlite.Store {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	register := func(t *testing.T, s *sqlite.Store, id string) journal.Owner {
		o, err := s.Register(t.Context(), id, "")
		require.NoError(t, err)
		return o
	}
	files := func(t *testing.T, path string) int {
		found, err := filepath.Glob(path + "-owner-*")
		require.NoError(t, err)
		return len(found)
	}
	t.Run("Deregister/LeavesNone", func(t *testing.T) {
		path := driver().Fresh(t)
		s := open(t, path)
		o := register(t, s, "a")
		require.Equal(t, 1, files(t, path))
		require.NoError(t, s.Deregister(t.Context(), o))
		require.Zero(t, files(t, path))
	})
	t.Run("Register/TakesThePlaceOfTheLifeBefore", func(t *testing.T) {
		path := driver().Fresh(t)
		s := open(t, path)
		register(t, s, "a")
		register(t, s, "a")
		require.Equal(t, 1, files(t, path), "of this process")
		require.NoError(t, s.Close())
		register(t, open(t, path), "a")
		require.Equal(t, 1, files(t, path), "of one that has ended")
	})
	t.Run("TakeOver/RemovesThatOfTheEnded", func(t *testing.T) {
		path := driver().Fresh(t)
		gone, s := open(t, path), open(t, path)
		register(t, gone, "gone")
		me := register(t, s, "a")
		require.NoError(t, gone.Close())
		_, err := s.TakeOver(t.Context(), me, journal.TakeOverOptions{Lease: time.Hour, Limit: 1})
		require.NoError(t, err)
		require.Equal(t, 1, files(t, path))
		left, err := s.Executors(t.Context())
		require.NoError(t, err)
		require.Len(t, left, 1)
	})
}
