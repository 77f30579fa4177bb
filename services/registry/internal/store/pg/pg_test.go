package pg_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/pg"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/storetest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := pg.Open(ctx, url, dbkit.PostgresOptions{})
	if err != nil {
		return err
	}
	_, err = s.Migrate(ctx)
	return errors.Join(err, s.Close())
})

func open(t testing.TB) store.Store {
	s, err := pg.Open(t.Context(), template.New(t), dbkit.PostgresOptions{MaxConns: 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

func BenchmarkRecordUsage(b *testing.B) { storetest.Bench(b, open) }
