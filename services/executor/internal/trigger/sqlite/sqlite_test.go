package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	journalsqlite "github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger/triggertest"
)

var driver = triggertest.Driver{
	Fresh: func(t testing.TB) string {
		path := filepath.Join(t.TempDir(), "triggers.db")
		s, err := journalsqlite.Open(t.Context(), path, journalsqlite.Options{})
		require.NoError(t, err)
		_, err = s.Migrations().Up(t.Context())
		require.NoError(t, errors.Join(err, s.Close()))
		return path
	},
	Open: func(ctx context.Context, place string) (trigger.Store, func() error, error) {
		j, err := journalsqlite.Open(ctx, place, journalsqlite.Options{})
		if err != nil {
			return nil, nil, err
		}
		return sqlite.New(j), j.Close, nil
	},
}

func TestMain(m *testing.M) { testkit.Main(m) }

func TestConformance(t *testing.T) { triggertest.Run(t, driver) }
