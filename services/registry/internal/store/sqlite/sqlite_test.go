package sqlite_test

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/sqlite"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/storetest"
)

func TestMain(m *testing.M) {
	// Each check of the random case is some thirty transactions; the command line may ask for more.
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

func open(t testing.TB) store.Store {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), dbkit.SQLiteOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

//nolint:paralleltest // it measures what the process allocates
func TestMemory(t *testing.T) { storetest.RunMemory(t, open) }

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
