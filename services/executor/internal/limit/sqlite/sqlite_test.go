package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	journalsqlite "github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit/limittest"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit/sqlite"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestConformance(t *testing.T) {
	limittest.Run(t, limittest.Driver{
		Fresh: func(t testing.TB) string {
			path := filepath.Join(t.TempDir(), "limits.db")
			s, err := journalsqlite.Open(t.Context(), path, journalsqlite.Options{})
			require.NoError(t, err)
			_, err = s.Migrations().Up(t.Context())
			require.NoError(t, errors.Join(err, s.Close()))
			return path
		},
		Open: func(ctx context.Context, place string) (journal.Journal, limit.Store, error) {
			j, err := journalsqlite.Open(ctx, place, journalsqlite.Options{})
			if err != nil {
				return nil, nil, err
			}
			return j, sqlite.New(j), nil
		},
	})
}
