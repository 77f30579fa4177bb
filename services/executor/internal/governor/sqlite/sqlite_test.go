package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor/governortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	journalsqlite "github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestConformance(t *testing.T) {
	governortest.Run(t, governortest.Driver{
		Fresh: func(t testing.TB) string {
			path := filepath.Join(t.TempDir(), "accounts.db")
			s, err := journalsqlite.Open(t.Context(), path, journalsqlite.Options{})
			require.NoError(t, err)
			_, err = s.Migrations().Up(t.Context())
			require.NoError(t, errors.Join(err, s.Close()))
			return path
		},
		Open: func(ctx context.Context, place string) (journal.Journal, governor.Store, func() error, error) {
			j, err := journalsqlite.Open(ctx, place, journalsqlite.Options{})
			if err != nil {
				return nil, nil, nil, err
			}
			return j, sqlite.New(j), func() error { return nil }, nil
		},
	})
}
