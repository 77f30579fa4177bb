package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// pollCancels is how often another process's wishes are looked for.
const pollCancels = 500 * time.Millisecond

// Register implements journal.Members.
func (s *Store) Register(ctx context.Context, id, addr string) (journal.Owner, error) {
	o := journal.Owner{ID: id}
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		if err := t.row(ctx, `UPDATE incarnations SET last = last + 1 RETURNING last`).Scan(&o.Incarnation); err != nil {
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO executors (id, incarnation, heartbeat, addr) VALUES (?, ?, `+now+`, ?)
			ON CONFLICT (id) DO UPDATE SET incarnation = excluded.incarnation, heartbeat = excluded.heartbeat, addr = excluded.addr`, id, o.Incarnation, addr)
		return err
	})
	if err != nil {
		return journal.Owner{}, fmt.Errorf("register executor: %w", err)
	}
	return o, nil
}

// Heartbeat implements journal.Members.
func (s *Store) Heartbeat(ctx context.Context, owner journal.Owner) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		n, err := t.exec(ctx, `UPDATE executors SET heartbeat = `+now+` WHERE id = ? AND incarnation = ?`, owner.ID, owner.Incarnation)
		if err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		if n == 0 {
			return journal.Fenced(owner)
		}
		return nil
	})
}

// Executors implements journal.Members.
func (s *Store) Executors(ctx context.Context) ([]journal.Executor, error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT id, incarnation, addr, max(`+now+` - heartbeat, 0) FROM executors ORDER BY id`)
	return all(rows, err, func(rows *sql.Rows) (e journal.Executor, err error) {
		var age int64
		err = rows.Scan(&e.ID, &e.Incarnation, &e.Addr, &age)
		e.SinceHeartbeat = time.Duration(age) * time.Microsecond
		return e, err
	})
}

// TakeOver implements journal.Members.
func (s *Store) TakeOver(ctx context.Context, self journal.Owner, o journal.TakeOverOptions) (res journal.TakeOverResult, err error) {
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		if err := t.fence(ctx, self); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `DELETE FROM executors WHERE id <> ? AND heartbeat < `+now+` - ?`, self.ID, o.Lease.Microseconds()); err != nil {
			return err
		}
		rows, err := t.tx.QueryContext(ctx, `SELECT r.namespace, r.run_id, r.state, r.last_seq, r.takeovers, r.owner_id, r.owner_incarnation FROM runs r
			WHERE r.state < 6 AND (r.state < 4 OR r.cancel_state = 1)
			AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)
			ORDER BY r.run_id LIMIT ?`, o.Limit)
		found, err := all(rows, err, func(rows *sql.Rows) (f journal.RunRef, err error) {
			err = rows.Scan(&f.Namespace, &f.RunID, &f.State, &f.LastSeq, &f.Takeovers, &f.From.ID, &f.From.Incarnation)
			return f, err
		})
		if err != nil {
			return err
		}
		res = journal.SortOut(found, o)
		for _, f := range res.Claimed {
			if _, err := t.exec(ctx, `UPDATE runs SET owner_id = ?, owner_incarnation = ?, takeovers = ? WHERE run_id = ?`,
				self.ID, self.Incarnation, f.Takeovers, f.RunID); err != nil {
				return err
			}
		}
		for i := range res.Quarantined {
			if err := t.quarantine(ctx, &res.Quarantined[i], o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return journal.TakeOverResult{}, err
	}
	return res, nil
}

func (t txn) quarantine(ctx context.Context, f *journal.RunRef, o journal.TakeOverOptions) error {
	if o.QuarantineEvent != nil {
		e := o.QuarantineEvent(*f)
		f.LastSeq++
		if _, err := t.exec(ctx, insertEvents(1), f.RunID, f.LastSeq, f.Namespace, dbkit.Micros(e.Time).UnixMicro(), e.Kind, e.NodeID, e.Visit, blob(e.Data)); err != nil {
			return err
		}
	}
	_, err := t.exec(ctx, `UPDATE runs SET owner_id = '', owner_incarnation = 0, takeovers = ?, state = ?, state_reason = ?, last_seq = ?,
		update_time = `+now+`, revision = revision + 1 WHERE run_id = ?`,
		f.Takeovers, int32(journal.StateQuarantined), journal.ReasonQuarantined, f.LastSeq, f.RunID)
	return err
}

// Claim implements journal.Members.
func (s *Store) Claim(ctx context.Context, self journal.Owner, namespace, runID string) (o journal.Owner, err error) {
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		if err := t.fence(ctx, self); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `UPDATE runs AS r SET owner_id = ?, owner_incarnation = ? WHERE r.run_id = ? AND r.namespace = ? AND r.state = 4
			AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)`,
			self.ID, self.Incarnation, runID, namespace); err != nil {
			return err
		}
		err := t.row(ctx, `SELECT owner_id, owner_incarnation FROM runs WHERE run_id = ? AND namespace = ?`, runID, namespace).Scan(&o.ID, &o.Incarnation)
		if errors.Is(err, sql.ErrNoRows) {
			return journal.RunNotFound(runID)
		}
		return err
	})
	if err != nil {
		return journal.Owner{}, err
	}
	return o, nil
}

// Release implements journal.Members.
func (s *Store) Release(ctx context.Context, owner journal.Owner, runIDs []string) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		if err := t.fence(ctx, owner); err != nil {
			return err
		}
		if runIDs == nil {
			return t.release(ctx, owner)
		}
		for _, id := range runIDs {
			if _, err := t.exec(ctx, `UPDATE runs SET owner_id = '', owner_incarnation = 0
				WHERE run_id = ? AND owner_id = ? AND owner_incarnation = ? AND state < 6`, id, owner.ID, owner.Incarnation); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t txn) release(ctx context.Context, owner journal.Owner) error {
	_, err := t.exec(ctx, `UPDATE runs SET owner_id = '', owner_incarnation = 0 WHERE owner_id = ? AND owner_incarnation = ? AND state < 6`,
		owner.ID, owner.Incarnation)
	return err
}

// Deregister implements journal.Members.
func (s *Store) Deregister(ctx context.Context, owner journal.Owner) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		n, err := t.exec(ctx, `DELETE FROM executors WHERE id = ? AND incarnation = ?`, owner.ID, owner.Incarnation)
		if err != nil || n == 0 {
			return err
		}
		return t.release(ctx, owner)
	})
}

const pendingCancels = ` FROM runs WHERE owner_id = ? AND owner_incarnation = ? AND state < 6 AND cancel_state = 1`

// PendingCancels implements journal.Members.
func (s *Store) PendingCancels(ctx context.Context, owner journal.Owner) ([]journal.CancelRequest, error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT namespace, run_id, cancel_reason, cancel_time`+pendingCancels+` ORDER BY run_id`, owner.ID, owner.Incarnation)
	return all(rows, err, func(rows *sql.Rows) (c journal.CancelRequest, err error) {
		var at int64
		err = rows.Scan(&c.Namespace, &c.RunID, &c.Reason, &at)
		c.Time = dbkit.FromUnixMicros(at)
		return c, err
	})
}

// CancelWakes implements journal.Members. Wishes of this process come at once, those of another on
// the same file by polling.
func (s *Store) CancelWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	signal, out := make(chan struct{}, 1), make(chan struct{}, 1)
	s.mu.Lock()
	s.wakes[signal] = owner.ID
	s.mu.Unlock()
	go func() {
		defer close(out)
		defer func() {
			s.mu.Lock()
			delete(s.wakes, signal)
			s.mu.Unlock()
		}()
		tick := time.NewTicker(pollCancels)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-signal:
			case <-tick.C:
				var n int
				err := s.db.Read.QueryRowContext(ctx, `SELECT count(*)`+pendingCancels, owner.ID, owner.Incarnation).Scan(&n)
				if err == nil && n == 0 {
					continue
				}
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, nil
}

func (s *Store) wake(owners ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch, id := range s.wakes {
		for _, o := range owners {
			if o != id {
				continue
			}
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}
