package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// claimSQL gives a run another owner.
const claimSQL = `UPDATE runs SET owner_id = $2, owner_incarnation = $3, takeovers = $4, doing = $5, died_doing = $6 WHERE run_id = $1`

// Register implements journal.Members.
func (s *Store) Register(ctx context.Context, id, addr string) (journal.Owner, error) {
	o := journal.Owner{ID: id}
	err := dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		// The update alone would not wait for a commit of the incarnation before.
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
	// It need not reach the disk: one that a crash of the server takes back was at worst a moment younger. So
	// a slow disk, or a commit under way, does not look like a dead executor.
	tag, err := s.hot.Exec(ctx, `UPDATE executors SET heartbeat = clock_timestamp() WHERE id = $1 AND incarnation = $2
		AND set_config('synchronous_commit', 'off', true) <> ''`, owner.ID, owner.Incarnation)
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
	if quiet, err := s.quiet(ctx, self, o); err != nil || quiet {
		return res, fenced(err, self)
	}
	err = dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		res = journal.TakeOverResult{}
		if _, err := tx.Exec(ctx, `SELECT executor_fence($1, $2)`, self.ID, self.Incarnation); err != nil {
			return err
		}
		// A clock that was set back would keep the dead alive for as long: their time begins anew. The living
		// renew theirs anyway.
		if _, err := tx.Exec(ctx, `UPDATE executors SET heartbeat = clock_timestamp() WHERE id IN (
			SELECT id FROM executors WHERE heartbeat > clock_timestamp() + $1::interval ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)`, interval(o.Lease)); err != nil {
			return err
		}
		// One that is just committing is skipped: it lives, or the next scan finds it.
		if _, err := tx.Exec(ctx, `DELETE FROM executors WHERE id IN (
			SELECT id FROM executors WHERE id <> $1 AND heartbeat < clock_timestamp() - $2::interval ORDER BY id FOR UPDATE SKIP LOCKED)`,
			self.ID, interval(o.Lease)); err != nil {
			return err
		}
		lock, claimable := lockOrphans, ` (r.owner_id <> '' OR r.state = 2) AND`+ownerless
		if o.Canceled {
			lock, claimable = lockCanceled, canceledOrphan
		}
		locked, err := lock(ctx, tx, o)
		if err != nil {
			return err
		}
		// A row that another take-over has just claimed may pass the statements before: they wait for
		// nothing and are checked again only in part. This statement sees it as it is under our lock.
		rows, err := tx.Query(ctx, `SELECT r.namespace, r.run_id, r.state, `+lastSeq()+`, r.takeovers, r.owner_id, r.owner_incarnation, r.doing, r.died_doing FROM runs r
			WHERE r.run_id = ANY ($1) AND`+claimable+` ORDER BY r.run_id`, locked)
		found, err := collect(rows, err, func(row pgx.CollectableRow) (f journal.RunRef, err error) {
			err = row.Scan(&f.Namespace, &f.RunID, &f.State, &f.LastSeq, &f.Takeovers, &f.From.ID, &f.From.Incarnation, &f.Doing, &f.DiedDoing)
			return f, err
		})
		if err != nil {
			return err
		}
		var released []journal.RunRef
		res, released = journal.SortOut(found, o)
		res.More = res.More || len(locked) >= o.Limit
		var b pgx.Batch
		for _, f := range res.Claimed {
			b.Queue(claimSQL, f.RunID, self.ID, self.Incarnation, f.Takeovers, f.Doing, f.DiedDoing)
		}
		for i := range res.Quarantined {
			s.queueQuarantine(&b, &res.Quarantined[i], o)
			if err := s.queueOutboxOfQuarantine(ctx, tx, &b, &res.Quarantined[i], o); err != nil {
				return err
			}
		}
		s.queueOwnerless(&b, released)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return journal.TakeOverResult{}, fenced(err, self)
	}
	return res, nil
}

// gone lists the owners of open runs that are registered no more. It looks once for each owner there is,
// however many runs they have.
func gone(ctx context.Context, tx pgx.Tx) ([]journal.Owner, error) {
	const next = `SELECT r.owner_id, r.owner_incarnation FROM runs r WHERE r.state < 6 AND r.owner_id <> '' `
	rows, err := tx.Query(ctx, `WITH RECURSIVE o AS (
			(`+next+`ORDER BY r.owner_id, r.owner_incarnation LIMIT 1)
			UNION ALL
			SELECT n.owner_id, n.owner_incarnation FROM o CROSS JOIN LATERAL (`+next+`AND (r.owner_id, r.owner_incarnation) > (o.owner_id, o.owner_incarnation)
				ORDER BY r.owner_id, r.owner_incarnation LIMIT 1) n)
		SELECT o.owner_id, o.owner_incarnation FROM o
		WHERE NOT EXISTS (SELECT FROM executors e WHERE e.id = o.owner_id AND e.incarnation = o.owner_incarnation)`)
	return collect(rows, err, func(row pgx.CollectableRow) (o journal.Owner, err error) {
		err = row.Scan(&o.ID, &o.Incarnation)
		return o, err
	})
}

// lockOrphans locks up to o.Limit runs of each owner that is gone, and up to so many running ones that were
// released, and returns the oldest of them. Besides it locks some of each that are suspects.
func lockOrphans(ctx context.Context, tx pgx.Tx, o journal.TakeOverOptions) ([]string, error) {
	owners, err := gone(ctx, tx)
	if err != nil {
		return nil, err
	}
	var locked, suspects []string
	for _, owner := range append(owners, journal.Owner{}) {
		cond, args := ` state < 6 AND owner_id <> '' AND owner_id = $4 AND owner_incarnation = $5`, []any{owner.ID, owner.Incarnation}
		if owner.IsZero() {
			cond, args = ` state = 2 AND owner_id = ''`, nil
		}
		lock := func(order string, limit int) ([]string, error) {
			rows, err := tx.Query(ctx, `SELECT run_id FROM runs WHERE`+cond+` AND namespace <> ALL ($3::text[]) AND takeovers `+order+` LIMIT $2 FOR UPDATE SKIP LOCKED`,
				append([]any{o.MaySuspect(), limit, append([]string{}, o.Except...)}, args...)...)
			return collect(rows, err, pgx.RowTo[string])
		}
		more, err := lock(`< $1 ORDER BY run_id`, o.Limit)
		if err != nil {
			return nil, err
		}
		locked = append(locked, more...)
		if o.NoSuspects {
			continue
		}
		if more, err = lock(`>= $1 ORDER BY doing = '', run_id`, journal.SuspectsFound); err != nil {
			return nil, err
		}
		suspects = append(suspects, more...)
	}
	slices.Sort(locked)
	return append(suspects, locked[:min(len(locked), o.Limit)]...), nil
}

const (
	// canceledOrphan holds for a canceled run that is open, that no registered executor owns and that has
	// something to go on with.
	canceledOrphan = ` r.cancel_time IS NOT NULL AND` + ownerless + ` AND (r.owner_id <> '' OR r.state = 2
		OR EXISTS (SELECT FROM commands m WHERE m.run_id = r.run_id AND (r.state <> 5 OR m.kind IN ('RESUME', 'CANCEL'))))`
	// canceledTenants skips from one namespace to the next, however many canceled runs each has.
	canceledTenants = `WITH RECURSIVE ns (n) AS ((SELECT min(namespace) FROM runs WHERE state < 6 AND cancel_time IS NOT NULL) UNION ALL
		SELECT (SELECT min(r.namespace) FROM runs r WHERE r.state < 6 AND r.cancel_time IS NOT NULL AND r.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL)`
)

// lockCanceled is lockOrphans for canceled runs, whoever owned them: of each namespace in turn.
func lockCanceled(ctx context.Context, tx pgx.Tx, o journal.TakeOverOptions) (locked []string, err error) {
	find := func(suspects, order string, limit int) error {
		rows, err := tx.Query(ctx, canceledTenants+`
			SELECT d.run_id FROM ns CROSS JOIN LATERAL (
				SELECT r.run_id, row_number() OVER (ORDER BY `+order+`) AS turn FROM (
					SELECT r.run_id, r.doing FROM runs r
					WHERE r.namespace = ns.n AND r.takeovers `+suspects+` $1 AND`+canceledOrphan+` ORDER BY `+order+` LIMIT $2) r) d
			WHERE ns.n <> ALL ($3::text[]) ORDER BY d.turn, d.run_id LIMIT $2`, o.MaySuspect(), limit, append([]string{}, o.Except...))
		found, err := collect(rows, err, pgx.RowTo[string])
		if err != nil || len(found) == 0 {
			return err
		}
		// Another take-over may be at them: then they are its own, or are found by the next.
		rows, err = tx.Query(ctx, `SELECT run_id FROM runs WHERE run_id = ANY ($1) ORDER BY run_id FOR UPDATE SKIP LOCKED`, found)
		more, err := collect(rows, err, pgx.RowTo[string])
		locked = append(locked, more...)
		return err
	}
	if !o.NoSuspects {
		if err := find(`>=`, `r.doing = '', r.run_id`, journal.SuspectsFound); err != nil {
			return nil, err
		}
	}
	return locked, find(`<`, `r.run_id`, o.Limit)
}

// queueOwnerless takes the owner, which is gone, from runs that are not to go on by themselves. A
// quarantined run loses the RESUME command that it was trying: it has brought its owner down once more.
func (s *Store) queueOwnerless(b *pgx.Batch, released []journal.RunRef) {
	var wakes []journal.JobRow
	for _, f := range released {
		b.Queue(`UPDATE runs SET owner_id = '', owner_incarnation = 0 WHERE run_id = $1`, f.RunID)
		if f.State == journal.StateQuarantined {
			b.Queue(`DELETE FROM commands WHERE run_id = $1 AND kind = $2`, f.RunID, string(journal.CommandResume))
		}
		wakes = append(wakes, journal.MakeJob(f.Namespace, f.RunID, journal.Job{Kind: journal.JobWake}))
	}
	if len(wakes) > 0 {
		s.sql.queueWakes(b, wakes)
	}
}

func (s *Store) queueQuarantine(b *pgx.Batch, f *journal.RunRef, o journal.TakeOverOptions) {
	if o.QuarantineEvent != nil {
		e := o.QuarantineEvent(*f)
		f.LastSeq++
		e.RunID, e.Seq, e.Time = f.RunID, f.LastSeq, dbkit.Micros(e.Time)
		put(&builder{batch: b}, s.sql.events, []sqlstore.EventRow{{Namespace: f.Namespace, Event: &e}})
	}
	b.Queue(`UPDATE runs SET owner_id = '', owner_incarnation = 0, takeovers = $2, state = $3, state_reason = $4, last_seq = $5,
		update_time = now(), revision = revision + 1, doing = '', died_doing = $6 WHERE run_id = $1`,
		f.RunID, f.Takeovers, int32(journal.StateQuarantined), journal.ReasonQuarantined, f.LastSeq, f.DiedDoing)
	if jobs := o.JobsOfQuarantine(*f); len(jobs) > 0 {
		s.sql.queueJobs(b, jobs)
	}
}

// queueOutboxOfQuarantine queues what is told of a quarantine that is queued.
func (s *Store) queueOutboxOfQuarantine(ctx context.Context, tx pgx.Tx, b *pgx.Batch, f *journal.RunRef, o journal.TakeOverOptions) error {
	if o.QuarantineOutbox == nil {
		return nil
	}
	run, err := sqlstore.ScanQuarantined(tx.QueryRow(ctx, sqlstore.QuarantinedSQL("$1"), f.RunID))
	if err != nil {
		return err
	}
	var rows []sqlstore.OutRow
	for _, item := range o.OutboxOfQuarantine(*f, &run) {
		rows = append(rows, sqlstore.OutRow{Namespace: f.Namespace, RunID: f.RunID, OutRow: &item})
	}
	put(&builder{batch: b}, s.sql.outbox, rows)
	return nil
}

// ClaimRun implements journal.Members. The run's row is locked before its owner is looked for: see TakeOver.
func (s *Store) ClaimRun(ctx context.Context, self journal.Owner, namespace, runID string, p journal.TakeOverPolicy) (now journal.Owner, err error) {
	err = s.inBatches(ctx, s.hot, func(tx *pgxpool.Conn) error {
		var c journal.Claimable
		there := true
		var b pgx.Batch
		b.Queue("BEGIN")
		b.Queue(`SELECT executor_fence($1, $2)`, self.ID, self.Incarnation)
		b.Queue(`SELECT FROM runs r WHERE`+sqlstore.ThisRun+` FOR NO KEY UPDATE`, namespace, runID)
		b.Queue(`SELECT r.state, r.owner_id, r.owner_incarnation, r.takeovers, r.doing, r.died_doing,
				EXISTS (SELECT FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation),
				EXISTS (SELECT FROM commands m WHERE m.run_id = r.run_id AND m.kind IN ('RESUME', 'CANCEL'))
			FROM runs r WHERE`+sqlstore.ThisRun, namespace, runID).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&c.State, &c.Owner.ID, &c.Owner.Incarnation, &c.Takeovers, &c.Doing, &c.DiedDoing, &c.OwnerLive, &c.Summoned)
			if there = !errors.Is(err, pgx.ErrNoRows); !there {
				return nil
			}
			return err
		})
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		if !there {
			return journal.RunNotFound(runID)
		}
		next, claimed := c.Claim(self, p)
		now = next.Owner
		b = pgx.Batch{}
		if claimed {
			b.Queue(claimSQL, runID, self.ID, self.Incarnation, next.Takeovers, next.Doing, next.DiedDoing)
		}
		b.Queue("COMMIT")
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return journal.Owner{}, fenced(err, self)
	}
	return now, nil
}

// Release implements journal.Members.
func (s *Store) Release(ctx context.Context, owner journal.Owner, runIDs []string) error {
	s.known.forget(owner, runIDs)
	// A commit may have been under way.
	defer s.known.forget(owner, runIDs)
	err := dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT executor_fence($1, $2)`, owner.ID, owner.Incarnation); err != nil {
			return err
		}
		return s.release(ctx, tx, owner, runIDs)
	})
	return fenced(err, owner)
}

func (s *Store) release(ctx context.Context, tx pgx.Tx, owner journal.Owner, runIDs []string) error {
	rows, err := tx.Query(ctx, `WITH mine AS MATERIALIZED (SELECT run_id FROM runs WHERE owner_id = $1 AND owner_incarnation = $2 AND state < 6 AND owner_id <> ''
			AND ($3::text[] IS NULL OR run_id = ANY ($3)) ORDER BY run_id FOR NO KEY UPDATE)
		UPDATE runs SET owner_id = '', owner_incarnation = 0 WHERE run_id = ANY (ARRAY (SELECT run_id FROM mine))
		RETURNING namespace, run_id, state, wake_time`, owner.ID, owner.Incarnation, runIDs)
	free, err := collect(rows, err, func(row pgx.CollectableRow) (f journal.Freed, err error) {
		var wake *time.Time
		err = row.Scan(&f.Namespace, &f.RunID, &f.State, &wake)
		f.WakeTime = timeOf(wake)
		return f, err
	})
	if err != nil || len(free) == 0 {
		return err
	}
	jobs, wakes := journal.JobsOfFreed(free)
	var b pgx.Batch
	if len(jobs) > 0 {
		s.sql.queueJobs(&b, jobs)
	}
	if len(wakes) > 0 {
		s.sql.queueWakes(&b, wakes)
	}
	return tx.SendBatch(ctx, &b).Close()
}

// Deregister implements journal.Members.
func (s *Store) Deregister(ctx context.Context, owner journal.Owner) error {
	defer s.known.forget(owner, nil)
	return dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM executors WHERE id = $1 AND incarnation = $2`, owner.ID, owner.Incarnation)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return s.release(ctx, tx, owner, nil)
	})
}
