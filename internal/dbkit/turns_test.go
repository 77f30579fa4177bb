package dbkit_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
)

func asClient(ctx context.Context) context.Context {
	return access.With(ctx, access.Principal{Kind: access.Key, Name: "k", Scopes: access.DefaultScopes()})
}

func TestTurns(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	// crowd starts n calls of a namespace, which last until goOn is closed, and returns how many have a turn.
	crowd := func(ctx context.Context, all *dbkit.Turns, n int, namespace string, goOn <-chan struct{}) (busy *int) {
		var mu sync.Mutex
		busy = new(int)
		for range n {
			go func() {
				_ = all.Read(ctx, namespace, func(context.Context) error {
					mu.Lock()
					*busy++
					mu.Unlock()
					<-goOn
					return nil
				})
			}()
		}
		synctest.Wait()
		return busy
	}
	t.Run("Namespace/HasHalf", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, goOn, ctx := dbkit.NewTurns(4), make(chan struct{}), asClient(t.Context())
			defer close(goOn)
			require.Equal(t, 2, *crowd(ctx, all, 50, "a", goOn))
			require.NoError(t, all.Read(ctx, "b", nothing))
		})
	})
	t.Run("Clients/LeaveOne", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, goOn, ctx := dbkit.NewTurns(4), make(chan struct{}), asClient(t.Context())
			defer close(goOn)
			require.Equal(t, 2, *crowd(ctx, all, 9, "a", goOn))
			require.Equal(t, 1, *crowd(ctx, all, 9, "b", goOn))
		})
	})
	t.Run("Services/DoNotWaitForClients", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, goOn, ctx := dbkit.NewTurns(4), make(chan struct{}), asClient(t.Context())
			defer close(goOn)
			crowd(ctx, all, 50, "a", goOn)
			crowd(ctx, all, 50, "b", goOn)
			require.NoError(t, all.Do(access.With(t.Context(), access.Principal{Kind: access.Internal}), "a", nothing))
			require.NoError(t, all.Do(t.Context(), "a", nothing), "the service itself")
		})
	})
	t.Run("Open/IsAClient", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, goOn := dbkit.NewTurns(2), make(chan struct{})
			defer close(goOn)
			open := access.With(t.Context(), access.Principal{Kind: access.Open, Scopes: []access.Scope{access.Service}})
			require.Equal(t, 1, *crowd(open, all, 2, "a", goOn))
			require.NoError(t, all.Do(t.Context(), "a", nothing))
		})
	})
	t.Run("Waiting/IsBoundedForANamespace", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, goOn, ctx := dbkit.NewTurns(4), make(chan struct{}), asClient(t.Context())
			defer close(goOn)
			crowd(ctx, all, 2+dbkit.MaxWaiting, "a", goOn)
			err := all.Read(ctx, "a", nothing)
			require.True(t, errs.Is(err, errs.ResourceExhausted), "got %v", err)
			require.Equal(t, dbkit.ReasonBusy, errs.ReasonOf(err))
			require.Equal(t, "1", errs.From(err).Meta[errs.MetaRetryAfter])
			require.NoError(t, all.Read(ctx, "b", nothing))
		})
	})
	t.Run("Waiting/EndsWithItsContext", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all, goOn := dbkit.NewTurns(1), make(chan struct{})
			defer close(goOn)
			ctx, cancel := context.WithCancelCause(asClient(t.Context()))
			crowd(ctx, all, 1, "a", goOn)
			gone := errors.New("gone")
			cancel(gone)
			require.ErrorIs(t, all.Read(ctx, "b", nothing), gone)
		})
	})
	t.Run("Read/OfAClientEnds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := dbkit.NewTurns(4)
			err := all.Read(asClient(t.Context()), "a", func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			require.True(t, errs.Is(err, errs.ResourceExhausted), "got %v", err)
			require.Equal(t, dbkit.ReasonReadTooLong, errs.ReasonOf(err))
			require.NoError(t, all.Read(t.Context(), "a", func(ctx context.Context) error {
				_, ends := ctx.Deadline()
				require.False(t, ends, "what services read is bounded by their own deadlines")
				return nil
			}))
		})
	})
	t.Run("Read/EndOfTheCallIsTheCallers", func(t *testing.T) {
		ctx, cancel := context.WithCancel(asClient(t.Context()))
		err := dbkit.NewTurns(4).Read(ctx, "a", func(ctx context.Context) error {
			cancel()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, errs.ReasonInternal, errs.ReasonOf(err))
	})
}

// A statement without an end gives its connection back when its context ends. The time bound of reads relies
// on it.
func TestSQLiteInterrupt(t *testing.T) {
	t.Parallel()
	db, err := dbkit.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "x.db"), dbkit.SQLiteOptions{MaxReaders: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	err = db.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
		go cancel()
		var n int
		return tx.QueryRowContext(ctx, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`).Scan(&n)
	})
	require.Error(t, err)
	require.NoError(t, db.View(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT 1`).Scan(new(int))
	}))
}

// BenchmarkRead is a read of one row, by itself and in a turn that is free, and such a turn without a read.
func BenchmarkRead(b *testing.B) {
	db, err := dbkit.OpenSQLite(b.Context(), filepath.Join(b.TempDir(), "x.db"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	service, cancel := context.WithCancel(b.Context())
	defer cancel()
	client := asClient(service)
	read := func(ctx context.Context) error {
		return db.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(new(int))
		})
	}
	nothing := func(context.Context) error { return nil }
	all := dbkit.NewTurns(4)
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"row", func() error { return read(client) }},
		{"row/service", func() error { return all.Read(service, "a", read) }},
		{"row/client", func() error { return all.Read(client, "a", read) }},
		{"none/service", func() error { return all.Read(service, "a", nothing) }},
		{"none/client", func() error { return all.Read(client, "a", nothing) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, c.run())
			}
		})
	}
}
