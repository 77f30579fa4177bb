package pg_test

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/pg"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/storetest"
)

func TestMain(m *testing.M) {
	// Each check of the random case is some thirty transactions; the command line may ask for more.
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

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

//nolint:paralleltest // it measures what the process allocates
func TestMemory(t *testing.T) { storetest.RunMemory(t, open) }

func TestBusyIsUnavailable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := pg.Open(ctx, template.New(t), dbkit.PostgresOptions{MaxConns: 4, LockTimeout: 20 * time.Millisecond})
	require.NoError(t, err)
	e := epic.New("n", epic.Epic{}, dbkit.Now())
	require.NoError(t, s.Update(ctx, "n", func(ctx context.Context, tx store.Tx) error { return tx.InsertEpic(ctx, e) }))
	lock := func(ctx context.Context, tx store.Tx) error {
		_, err := tx.LockEpic(ctx, "n", e.ID)
		return err
	}
	require.NoError(t, s.Update(ctx, "n", func(ctx context.Context, tx store.Tx) error {
		require.NoError(t, lock(ctx, tx))
		err := s.Update(ctx, "n", lock)
		require.True(t, errs.Is(err, errs.Unavailable), "got %v", err)
		return nil
	}))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

func BenchmarkReserve(b *testing.B) { storetest.BenchReserve(b, open) }

func BenchmarkReservation(b *testing.B) { storetest.BenchReservation(b, open) }

func BenchmarkSettle(b *testing.B) { storetest.BenchSettle(b, open) }

func BenchmarkRecordUsage(b *testing.B) { storetest.Bench(b, open) }

func BenchmarkLeaseOrders(b *testing.B) { storetest.BenchLease(b, open) }

func BenchmarkCompleteTask(b *testing.B) { storetest.BenchComplete(b, open) }

func BenchmarkSearchEpics(b *testing.B) { storetest.BenchSearch(b, open) }

func BenchmarkSearchByMeaning(b *testing.B) { storetest.BenchSimilar(b, open) }

func BenchmarkFailTask(b *testing.B) { storetest.BenchEnd(b, open) }

func BenchmarkChangeDependencies(b *testing.B) { storetest.BenchDepend(b, open) }

func BenchmarkRecordUsageWithManyPrices(b *testing.B) { storetest.BenchPrices(b, open) }
