package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Register implements journal.Members.
func (s *Store) Register(ctx context.Context, id, addr string) (journal.Owner, error) {
	o := journal.Owner{ID: id}
	err := dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		// The plain update would not wait for a commit of the incarnation before.
		if _, err := tx.Exec(ctx, `SELECT FROM executors WHERE id = $1 FOR UPDATE`, id); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `INSERT INTO executors (id, addr) VALUES ($1, $2)
			ON CONFLICT (id) DO UPDATE SET incarnation = nextval('executor_incarnations'), heartbeat = clock_timestamp(), addr = excluded.addr
			RETURNING incarnation`, id, addr).Scan(&o.Incarnation)
	})
	if err != nil {
		return journal.Owner{}, fmt.Errorf("register executor: %w", err)
	}
	return o, nil
}

// Heartbeat implements journal.Members.
func (s *Store) Heartbeat(ctx context.Context, owner journal.Owner) error {
	tag, err := s.hot.Exec(ctx, `UPDATE executors SET heartbeat = clock_timestamp() WHERE id = $1 AND incarnation = $2`, owner.ID, owner.Incarnation)
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return journal.Fenced(owner)
	}
	return nil
}

// Executors implements journal.Members.
func (s *Store) Executors(ctx context.Context) ([]journal.Executor, error) {
	rows, err := s.read.Query(ctx, `SELECT id, incarnation, addr, greatest(clock_timestamp() - heartbeat, interval '0') FROM executors ORDER BY id`)
	return collect(rows, err, func(row pgx.CollectableRow) (e journal.Executor, err error) {
		err = row.Scan(&e.ID, &e.Incarnation, &e.Addr, &e.SinceHeartbeat)
		return e, err
	})
}

// TakeOver implements journal.Members. The executors' rows go first and in the same transaction: a
// commit of one that is taken over either ends before that delete or finds its row gone, and the
// runs are read by a later statement, which sees what it wrote.
func (s *Store) TakeOver(ctx context.Context, self journal.Owner, o journal.TakeOverOptions) (res journal.TakeOverResult, err error) {
	err = dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		res = journal.TakeOverResult{}
		if _, err := tx.Exec(ctx, `SELECT executor_fence($1, $2)`, self.ID, self.Incarnation); err != nil {
			return err
		}
		// One that is just committing is skipped: it lives, or the next scan finds it.
		if _, err := tx.Exec(ctx, `DELETE FROM executors WHERE id IN (
			SELECT id FROM executors WHERE id <> $1 AND heartbeat < clock_timestamp() - $2::interval ORDER BY id FOR UPDATE SKIP LOCKED)`,
			self.ID, interval(o.Lease)); err != nil {
			return err
		}
		// A row that another take-over has just claimed may slip through the first statement, since it
		// waits for nothing and is checked again only in part. The second sees it as it is under our lock.
		const orphaned = ` r.state < 6 AND (r.state < 4 OR r.cancel_state = 1)
			AND NOT EXISTS (SELECT FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)`
		rows, err := tx.Query(ctx, `SELECT r.run_id FROM runs r WHERE`+orphaned+` ORDER BY r.run_id LIMIT $1 FOR UPDATE OF r SKIP LOCKED`, o.Limit)
		locked, err := collect(rows, err, pgx.RowTo[string])
		if err != nil {
			return err
		}
		rows, err = tx.Query(ctx, `SELECT r.namespace, r.run_id, r.state, r.last_seq, r.takeovers, r.owner_id, r.owner_incarnation FROM runs r
			WHERE r.run_id = ANY ($1) AND`+orphaned+` ORDER BY r.run_id`, locked)
		found, err := collect(rows, err, func(row pgx.CollectableRow) (f journal.RunRef, err error) {
			err = row.Scan(&f.Namespace, &f.RunID, &f.State, &f.LastSeq, &f.Takeovers, &f.From.ID, &f.From.Incarnation)
			return f, err
		})
		if err != nil {
			return err
		}
		res = journal.SortOut(found, o)
		res.More = len(locked) >= o.Limit
		var b pgx.Batch
		for _, f := range res.Claimed {
			b.Queue(`UPDATE runs SET owner_id = $2, owner_incarnation = $3, takeovers = $4 WHERE run_id = $1`, f.RunID, self.ID, self.Incarnation, f.Takeovers)
		}
		for i := range res.Quarantined {
			s.queueQuarantine(&b, &res.Quarantined[i], o)
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return journal.TakeOverResult{}, fenced(err, self)
	}
	return res, nil
}

func (s *Store) queueQuarantine(b *pgx.Batch, f *journal.RunRef, o journal.TakeOverOptions) {
	if o.QuarantineEvent != nil {
		e := o.QuarantineEvent(*f)
		f.LastSeq++
		e.RunID, e.Seq, e.Time = f.RunID, f.LastSeq, dbkit.Micros(e.Time)
		names := s.sql.events.names("")
		b.Queue(`INSERT INTO events (`+names+`) SELECT `+names+` FROM `+s.sql.events.from(1, "e"), s.sql.events.args([]eventRow{{f.Namespace, &e}})...)
	}
	b.Queue(`UPDATE runs SET owner_id = '', owner_incarnation = 0, takeovers = $2, state = $3, state_reason = $4, last_seq = $5,
		update_time = now(), revision = revision + 1 WHERE run_id = $1`,
		f.RunID, f.Takeovers, int32(journal.StateQuarantined), journal.ReasonQuarantined, f.LastSeq)
}

// Claim implements journal.Members. The run's row is locked before its owner is looked for: see TakeOver.
func (s *Store) Claim(ctx context.Context, self journal.Owner, namespace, runID string) (o journal.Owner, err error) {
	err = dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT executor_fence($1, $2)`, self.ID, self.Incarnation); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `SELECT FROM runs WHERE run_id = $1 AND namespace = $2 FOR UPDATE`, runID, namespace)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return journal.RunNotFound(runID)
		}
		if _, err := tx.Exec(ctx, `UPDATE runs r SET owner_id = $2, owner_incarnation = $3 WHERE r.run_id = $1 AND r.state = 4
			AND NOT EXISTS (SELECT FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)`,
			runID, self.ID, self.Incarnation); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT owner_id, owner_incarnation FROM runs WHERE run_id = $1`, runID).Scan(&o.ID, &o.Incarnation)
	})
	if err != nil {
		return journal.Owner{}, fenced(err, self)
	}
	return o, nil
}

// Release implements journal.Members.
func (s *Store) Release(ctx context.Context, owner journal.Owner, runIDs []string) error {
	err := dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT executor_fence($1, $2)`, owner.ID, owner.Incarnation); err != nil {
			return err
		}
		return release(ctx, tx, owner, runIDs)
	})
	return fenced(err, owner)
}

func release(ctx context.Context, tx pgx.Tx, owner journal.Owner, runIDs []string) error {
	_, err := tx.Exec(ctx, `UPDATE runs SET owner_id = '', owner_incarnation = 0
		WHERE owner_id = $1 AND owner_incarnation = $2 AND state < 6 AND ($3::text[] IS NULL OR run_id = ANY ($3))`, owner.ID, owner.Incarnation, runIDs)
	return err
}

// Deregister implements journal.Members.
func (s *Store) Deregister(ctx context.Context, owner journal.Owner) error {
	return dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM executors WHERE id = $1 AND incarnation = $2`, owner.ID, owner.Incarnation)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return release(ctx, tx, owner, nil)
	})
}

// PendingCancels implements journal.Members.
func (s *Store) PendingCancels(ctx context.Context, owner journal.Owner) ([]journal.CancelRequest, error) {
	rows, err := s.hot.Query(ctx, `SELECT namespace, run_id, cancel_reason, cancel_time FROM runs
		WHERE owner_id = $1 AND owner_incarnation = $2 AND state < 6 AND cancel_state = 1 ORDER BY run_id`, owner.ID, owner.Incarnation)
	return collect(rows, err, func(row pgx.CollectableRow) (c journal.CancelRequest, err error) {
		var at *time.Time
		err = row.Scan(&c.Namespace, &c.RunID, &c.Reason, &at)
		c.Time = timeOf(at)
		return c, err
	})
}

// CancelWakes implements journal.Members. It keeps one connection, and after losing it wakes the
// owner once more, since a notification may have been lost with it.
func (s *Store) CancelWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	conn, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	wakes := make(chan struct{}, 1)
	go func() {
		defer close(wakes)
		for ctx.Err() == nil {
			if conn != nil {
				waitFor(ctx, conn, owner.ID, wakes)
				closeConn(conn)
			}
			if conn, err = s.listen(ctx); err != nil {
				conn = nil
				pause(ctx, time.Second)
				continue
			}
			wake(wakes)
		}
		if conn != nil {
			closeConn(conn)
		}
	}()
	return wakes, nil
}

func (s *Store) listen(ctx context.Context) (*pgx.Conn, error) {
	// Not of the pool: it is held for long, and must not be counted there nor keep Close waiting.
	conn, err := pgx.ConnectConfig(ctx, s.hot.Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+cancelChannel); err != nil {
		closeConn(conn)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

func waitFor(ctx context.Context, conn *pgx.Conn, id string, wakes chan<- struct{}) {
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		if n.Payload == id {
			wake(wakes)
		}
	}
}

func wake(wakes chan<- struct{}) {
	select {
	case wakes <- struct{}{}:
	default:
	}
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// The connection is given up either way.
	_ = conn.Close(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
