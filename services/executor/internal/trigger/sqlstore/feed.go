package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

// beginFeed refuses event triggers for which the namespace has no room, and has the feed followed from where
// they were turned on if it is not followed already. A cursor from the time when others were on is old.
func beginFeed(ctx context.Context, tx dbkit.Querier, a trigger.Activation, kept []trigger.Trigger) ([]dbkit.Stmt, error) {
	own, since := 0, int64(0)
	for i := range kept {
		if kept[i].State == trigger.Active && kept[i].Spec.Type == workflow.EventTrigger {
			if own == 0 || kept[i].Since < since {
				since = kept[i].Since
			}
			own++
		}
	}
	if own == 0 {
		return nil, nil
	}
	others, err := count(ctx, tx, `SELECT count(*) FROM triggers WHERE namespace = $1 AND state = 'ACTIVE' AND kind = $2 AND workflow <> $3`, a.Namespace, workflow.EventTrigger, a.Workflow)
	if err != nil {
		return nil, err
	}
	if own+others > trigger.MaxEventTriggers {
		return nil, trigger.TooManyEvents()
	}
	was, err := count(ctx, tx, `SELECT count(*) FROM triggers WHERE namespace = $1 AND state = 'ACTIVE' AND kind = $2 AND workflow = $3`, a.Namespace, workflow.EventTrigger, a.Workflow)
	conflict := `NOTHING`
	if others+was == 0 {
		conflict = `UPDATE SET cursor = excluded.cursor, update_time = excluded.update_time`
	}
	return []dbkit.Stmt{{
		Query: `INSERT INTO trigger_feeds (namespace, cursor, update_time) VALUES ($1, $2, $3) ON CONFLICT (namespace) DO ` + conflict,
		Args:  []any{a.Namespace, since, a.UpdateTime},
	}}, err
}

// FeedCursor implements trigger.Store.
func (s *Store) FeedCursor(ctx context.Context, namespace string) (cursor int64, err error) {
	err = dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT cursor FROM trigger_feeds WHERE namespace = $1`, namespace)).Scan(&cursor)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return cursor, err
}

const moveFeed = `UPDATE trigger_feeds SET cursor = $3, update_time = $4 WHERE namespace = $1 AND cursor = $2`

// MoveFeed implements trigger.Store.
func (s *Store) MoveFeed(ctx context.Context, namespace string, from, to int64, now time.Time) (bool, error) {
	n, err := s.db.Pool.Exec(ctx, moveFeed, namespace, from, to, now)
	return n > 0, err
}

// ResetFeed implements trigger.Store.
func (s *Store) ResetFeed(ctx context.Context, namespace string, from, to int64, anew bool, now time.Time) error {
	return s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		// Else an activation writes the old beginnings back.
		if err := s.lock(ctx, tx, namespace); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, moveFeed, namespace, from, to, now)
		if err != nil || n == 0 || !anew {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE triggers SET since = $3 WHERE namespace = $1 AND kind = $2 AND state = 'ACTIVE'`, namespace, workflow.EventTrigger, to)
		return err
	})
}
