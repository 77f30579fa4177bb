package dbkit_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

func TestArray(t *testing.T) {
	t.Parallel()
	p := openPostgres(t, pgtest.New(t), dbkit.PostgresOptions{})
	type row struct {
		Text    string
		Bytes   []byte
		Big     int64
		Int     int32
		Is      bool
		Time    time.Time
		Instant *time.Time
	}
	at := time.Date(1999, 12, 31, 23, 59, 59, 1000, time.UTC)
	for name, want := range map[string][]row{
		"Empty": {},
		"One":   {{Text: "é", Bytes: []byte{0, 1}, Big: -1 << 40, Int: -7, Is: true, Time: at, Instant: &at}},
		"Nulls": {{Time: at}, {Text: "longer than the first", Bytes: []byte{}, Time: at.AddDate(40, 0, 0), Instant: &at}, {Time: at}},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := p.Query(t.Context(), `SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::int[], $5::boolean[], $6::timestamptz[], $7::timestamptz[])`,
				dbkit.ArrayOf(want, func(r row) string { return r.Text }), dbkit.ArrayOf(want, func(r row) []byte { return r.Bytes }),
				dbkit.ArrayOf(want, func(r row) int64 { return r.Big }), dbkit.ArrayOf(want, func(r row) int32 { return r.Int }),
				dbkit.ArrayOf(want, func(r row) bool { return r.Is }), dbkit.ArrayOf(want, func(r row) time.Time { return r.Time }),
				dbkit.ArrayOf(want, func(r row) *time.Time { return r.Instant }))
			require.NoError(t, err)
			got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
			require.NoError(t, err)
			for i := range got {
				got[i].Time = got[i].Time.UTC()
				if got[i].Instant != nil {
					*got[i].Instant = got[i].Instant.UTC()
				}
			}
			require.Equal(t, want, got)
		})
	}
	t.Run("PlainSlicesStillPass", func(t *testing.T) {
		var n int
		require.NoError(t, p.QueryRow(t.Context(), `SELECT cardinality($1::text[]) + cardinality($2::bigint[])`, []string{"a"}, []int64{1, 2}).Scan(&n))
		require.Equal(t, 3, n)
	})
}
