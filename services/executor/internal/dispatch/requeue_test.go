package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
)

// table is a table of jobs in which some cannot come again.
type table struct {
	riverdriver.Executor
	taken      map[int64]bool
	ended      map[int64]rivertype.JobState
	statements int
	// most is how many statements it carries out before the time is over.
	most int
}

func (t *table) JobSetStateIfRunningMany(_ context.Context, p *riverdriver.JobSetStateIfRunningManyParams) (rows []*rivertype.JobRow, err error) {
	if t.statements++; t.most > 0 && t.statements > t.most {
		return nil, context.DeadlineExceeded
	}
	for i, id := range p.ID {
		if t.ended[id] == "" && t.taken[id] && p.State[i] != rivertype.JobStateCompleted {
			return nil, &pgconn.PgError{Code: "23505"}
		}
	}
	for i, id := range p.ID {
		if t.ended[id] == "" {
			t.ended[id] = p.State[i]
		}
		rows = append(rows, &rivertype.JobRow{ID: id})
	}
	return rows, nil
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	batch := func(n int) *riverdriver.JobSetStateIfRunningManyParams {
		p := &riverdriver.JobSetStateIfRunningManyParams{}
		for i := range n {
			at := time.Unix(int64(i), 0)
			p.ID, p.State, p.ScheduledAt = append(p.ID, int64(i)), append(p.State, rivertype.JobStateScheduled), append(p.ScheduledAt, &at)
			p.FinalizedAt, p.Attempt, p.ErrData = append(p.FinalizedAt, nil), append(p.Attempt, nil), append(p.ErrData, nil)
			p.MetadataDoMerge, p.MetadataUpdates = append(p.MetadataDoMerge, false), append(p.MetadataUpdates, nil)
		}
		return p
	}
	t.Run("FewOfMany", func(t *testing.T) {
		t.Parallel()
		db := &table{taken: map[int64]bool{7: true, 1200: true, 4999: true}, ended: map[int64]rivertype.JobState{}}
		rows, err := executor{db}.JobSetStateIfRunningMany(t.Context(), batch(5000))
		require.NoError(t, err)
		require.Len(t, rows, 5000)
		for i, r := range rows {
			require.EqualValues(t, i, r.ID, "in their order")
			want := rivertype.JobStateScheduled
			if db.taken[r.ID] {
				want = rivertype.JobStateCompleted
			}
			require.Equal(t, want, db.ended[r.ID])
		}
		require.Less(t, db.statements, 100)
	})
	t.Run("AllInPieces", func(t *testing.T) {
		t.Parallel()
		db := &table{taken: map[int64]bool{}, ended: map[int64]rivertype.JobState{}, most: 200}
		for i := range int64(1000) {
			db.taken[i] = true
		}
		tries := 0
		for done := false; !done; tries++ {
			require.Less(t, tries, 30, "no try gets further than the one before")
			db.statements = 0
			_, err := executor{db}.JobSetStateIfRunningMany(t.Context(), batch(1000))
			done = err == nil
		}
		require.Greater(t, tries, 1)
		require.Len(t, db.ended, 1000)
	})
}
