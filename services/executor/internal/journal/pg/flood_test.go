package pg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal/journaltest"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

func BenchmarkCommands(b *testing.B) {
	journaltest.BenchCommands(b, driver(), func(b *testing.B, place, sql string) {
		conn, err := pgx.Connect(b.Context(), place)
		require.NoError(b, err)
		defer func() { require.NoError(b, conn.Close(b.Context())) }()
		_, err = conn.Exec(b.Context(), `SET search_path = `+pg.Schema)
		require.NoError(b, err)
		_, err = conn.Exec(b.Context(), sql)
		require.NoError(b, err)
	})
}
