package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// TokenKey implements journal.Members. A second caller reads what the first one wrote.
func (s *Store) TokenKey(ctx context.Context, fresh []byte) (key []byte, err error) {
	if err := s.write(ctx, `INSERT INTO token_key (id, key) VALUES (1, $1) ON CONFLICT DO NOTHING`, fresh); err != nil {
		return nil, Away(fmt.Errorf("keep key of attempt tokens: %w", err))
	}
	err = dbkit.FirstRow(s.db.Engine.Query(ctx, `SELECT key FROM token_key`)).Scan(&key)
	return key, Away(err)
}

// WorkJobsAs implements journal.Members.
func (s *Store) WorkJobsAs(ctx context.Context, owner journal.Owner, worker string) error {
	return s.write(ctx, `UPDATE executors SET worker = $3 WHERE id = $1 AND incarnation = $2`, owner.ID, owner.Incarnation, worker)
}

// Mark implements journal.Members.
func (s *Store) Mark(ctx context.Context, owner journal.Owner, runID, doing, harmless string) error {
	n, err := s.db.Engine.Exec(ctx, `UPDATE runs SET doing = $4, died_doing = CASE WHEN died_doing = $5 THEN '' ELSE died_doing END
		WHERE run_id = $1 AND owner_id = $2 AND owner_incarnation = $3`, runID, owner.ID, owner.Incarnation, doing, harmless)
	if err == nil && n == 0 {
		return journal.NotOwner(runID)
	}
	return err
}

// overdue is by how much ExpediteUnpriced makes runs overdue.
const overdue = 10 * time.Second

// ExpediteUnpriced implements journal.Members. The state by itself would lead away from the index of what is to
// be woken.
func (s *Store) ExpediteUnpriced(ctx context.Context, reason string, limit int) (int, error) {
	now := s.d.Now()
	n, err := s.db.Engine.Exec(ctx, `UPDATE runs SET wake_time = `+now+` - `+s.d.Span(`$3`)+` WHERE `+s.d.InSelect(`run_id`, `
		SELECT run_id FROM runs WHERE state IN (1, 3, 4) AND state + 0 = 4 AND state_reason = $1 AND owner_id = ''
			AND `+s.d.Set(`wake_time`)+` AND wake_time > `+now+` ORDER BY wake_time LIMIT $2`+s.d.LockedFree())+` AND owner_id = ''`,
		reason, limit, overdue)
	return int(n), err
}
