package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

const (
	insertCommand = `INSERT INTO commands (run_id, namespace, kind, key, body, time) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	// hasCommands holds for a run that has commands. It looks at one of them, however many there are.
	hasCommands = ` (SELECT true FROM commands m WHERE m.run_id = r.run_id LIMIT 1)`
	// claimOwnerless gives an owner those of the runs that wait or are paused without an owner and have
	// commands. The caller has locked the rows. By the state as it is, PostgreSQL could look through all
	// runs in these states, if it believes that they are few.
	claimOwnerless = `UPDATE runs r SET owner_id = $2, owner_incarnation = $3, doing = '' WHERE r.run_id = ANY ($1) AND r.owner_id = '' AND r.state + 0 IN (3, 4)
		AND` + hasCommands + ` RETURNING r.run_id`
)

// queueOwnerNotices wakes the owners of runs that got commands, except the owner that knows of them
// already. PostgreSQL lets one transaction with a NOTIFY commit at a time, so needless ones are avoided.
func queueOwnerNotices(b *pgx.Batch, runIDs []string, knows journal.Owner) {
	// OFFSET 0 keeps each a look-up by key.
	b.Queue(`SELECT pg_notify('`+commandChannel+`', owner_id) FROM (SELECT DISTINCT r.owner_id FROM unnest($1::text[]) AS t (id)
		CROSS JOIN LATERAL (SELECT r.owner_id, r.owner_incarnation, r.state FROM runs r WHERE r.run_id = t.id OFFSET 0) r
		WHERE r.owner_id <> '' AND r.state < 6 AND (r.owner_id <> $2 OR r.owner_incarnation <> $3)) o`, runIDs, knows.ID, knows.Incarnation)
}

// Enqueue implements journal.Commands. The run's row is locked before its owner is read, so that a command
// and the end of an ownership see each other.
func (s *Store) Enqueue(ctx context.Context, p journal.EnqueueRequest) (posted journal.Enqueued, err error) {
	if err := journal.ValidateEnqueue(p, journal.DefaultLimits()); err != nil {
		return journal.Enqueued{}, err
	}
	err = s.inBatches(ctx, s.read, func(tx *pgxpool.Conn) error {
		f, q, mine, repeated, err := found(ctx, tx, p)
		if err != nil {
			return err
		}
		write := !repeated && !p.Idle
		if write {
			if write, err = f.Takes(p); err != nil {
				return err
			}
		}
		if write && p.Answer != nil {
			if q.ID == "" {
				return journal.InterruptNotFound(p.Answer.InterruptID)
			}
			said, err := p.Answer.Closes(&q)
			if err != nil {
				return err
			}
			write = !said
		}
		if write && f.State.Ended() {
			return journal.RunEnded(p.Command.RunID)
		}
		if f.OwnerLive && !f.State.Ended() {
			posted.Owner = f.Owner
		}
		if mine && write && f.Claims(p) {
			posted.Owner, posted.Claimed = p.Claimant, true
		}
		return s.hand(ctx, tx, p, write, &posted)
	})
	if err = sqlstore.Away(err); err != nil {
		if errs.Is(err, errs.Internal) {
			return journal.Enqueued{}, fmt.Errorf("post commands: %w", err)
		}
		return journal.Enqueued{}, err
	}
	return posted, nil
}

// found begins a transaction, remembers the request id of p, locks the run and the interrupt that p
// answers, and reads both. The interrupt has no id if there is none. mine says that the claimant is
// registered and locked. repeated says that the request was seen before with the same body. All of it is
// one round trip.
func found(ctx context.Context, tx *pgxpool.Conn, p journal.EnqueueRequest) (f journal.Found, q journal.Interrupt, mine, repeated bool, err error) {
	var b pgx.Batch
	b.Queue("BEGIN")
	if !p.Claimant.IsZero() {
		b.Queue(`SELECT FROM executors WHERE id = $1 AND incarnation = $2 FOR KEY SHARE`, p.Claimant.ID, p.Claimant.Incarnation).Exec(func(tag pgconn.CommandTag) error {
			mine = tag.RowsAffected() > 0
			return nil
		})
	}
	if p.Request.ID != "" {
		b.Queue(`INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`, p.Command.Namespace, p.Request.Method, p.Request.ID, p.Request.BodyHash, p.Command.RunID, dbkit.Micros(p.Command.Time)).Exec(func(tag pgconn.CommandTag) error {
			repeated = tag.RowsAffected() == 0
			return nil
		})
	}
	b.Queue(`SELECT FROM runs r WHERE`+sqlstore.ThisRun+` FOR NO KEY UPDATE`, p.Command.Namespace, p.Command.RunID)
	// The row is read by a statement of its own: the snapshot of the statement that locks it may be older
	// than the end of a take-over.
	there := true
	b.Queue(`SELECT r.revision, r.state, r.cancel_time IS NOT NULL, r.owner_id, r.owner_incarnation,
			EXISTS (SELECT FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)
		FROM runs r WHERE`+sqlstore.ThisRun, p.Command.Namespace, p.Command.RunID).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&f.Revision, &f.State, &f.CancelAsked, &f.Owner.ID, &f.Owner.Incarnation, &f.OwnerLive)
		if there = !errors.Is(err, pgx.ErrNoRows); !there {
			return nil
		}
		return err
	})
	if journal.Endless(p.Command.Kind) {
		b.Queue(`SELECT count(*), coalesce(sum(octet_length(w.body)), 0) FROM (SELECT m.body FROM commands m WHERE m.run_id = $1 AND m.kind IN ('SIGNAL', 'MESSAGE') LIMIT $2) w`,
			p.Command.RunID, journal.MaxWaiting).QueryRow(func(row pgx.Row) error { return row.Scan(&f.Waiting, &f.WaitingBytes) })
	}
	if p.Answer != nil {
		b.Queue(sqlstore.SelectInterrupts+` FROM interrupts i WHERE i.namespace = $1 AND i.id = $2 AND i.run_id = $3 FOR UPDATE`, p.Command.Namespace, p.Answer.InterruptID, p.Command.RunID).
			QueryRow(func(row pgx.Row) (err error) {
				if q, err = sqlstore.ScanInterrupt(row); errors.Is(err, pgx.ErrNoRows) {
					q, err = journal.Interrupt{}, nil
				}
				return err
			})
	}
	if err = tx.SendBatch(ctx, &b).Close(); err == nil && repeated {
		err = sameRequest(ctx, tx, p)
	}
	if err == nil && !there {
		err = journal.RunNotFound(p.Command.RunID)
	}
	return f, q, mine, repeated, err
}

// sameRequest returns an error if the request id of p was given to another request.
func sameRequest(ctx context.Context, tx *pgxpool.Conn, p journal.EnqueueRequest) error {
	var hash, id string
	if err := tx.QueryRow(ctx, `SELECT body_hash, run_id FROM request_ids WHERE namespace = $1 AND method = $2 AND request_id = $3`,
		p.Command.Namespace, p.Request.Method, p.Request.ID).Scan(&hash, &id); err != nil {
		return err
	}
	if hash != p.Request.BodyHash || id != p.Command.RunID {
		return journal.RequestIDReused(p.Request.ID)
	}
	return nil
}

// hand writes what p says to a run whose row is locked, if write is set, wakes the run's reader, reads the
// run and commits. All of it is one round trip.
func (s *Store) hand(ctx context.Context, tx *pgxpool.Conn, p journal.EnqueueRequest, write bool, posted *journal.Enqueued) error {
	var b pgx.Batch
	m := p.Command
	if a := p.Answer; a != nil && write {
		b.Queue(`UPDATE interrupts SET state = $2, answer = $3, decision = $4, closed_by = $5, close_time = $6, principal = $7 WHERE id = $1`,
			a.InterruptID, int32(journal.InterruptAnswered), blob(a.Answer), a.Decision, a.By, null(m.Time), a.Principal)
	}
	if write {
		// The run's row records a cancel only if its commands are new.
		query, args := insertCommand, []any{m.RunID, m.Namespace, string(m.Kind), m.Key, blob(m.Body), dbkit.Micros(m.Time)}
		if m.Kind == journal.CommandCancel {
			query = `WITH c AS (` + insertCommand + ` RETURNING run_id) UPDATE runs r SET cancel_reason = $7, cancel_time = $8, revision = revision + 1 FROM c WHERE r.run_id = c.run_id`
			args = append(args, p.Reason, null(m.Time))
		}
		b.Queue(query, args...).Exec(func(tag pgconn.CommandTag) error {
			posted.New = tag.RowsAffected() > 0
			return nil
		})
		// A command that was there before has woken its reader. To wake it again does no harm.
		switch {
		case posted.Claimed:
			b.Queue(claimOwnerless, []string{m.RunID}, posted.Owner.ID, posted.Owner.Incarnation)
		case posted.Owner.IsZero():
			s.sql.queueWakes(&b, []journal.JobRow{journal.MakeJob(m.Namespace, m.RunID, journal.Job{Kind: journal.JobWake})})
		case posted.Owner != p.Claimant:
			b.Queue(`SELECT pg_notify('`+commandChannel+`', $1)`, posted.Owner.ID)
		}
	}
	b.Queue(s.SelectRun+sqlstore.ThisRun, m.Namespace, m.RunID).QueryRow(func(row pgx.Row) (err error) {
		posted.Run, err = sqlstore.ScanRun(row, true)
		return err
	})
	b.Queue("COMMIT")
	return tx.SendBatch(ctx, &b).Close()
}

// PendingCommands implements journal.Commands.
func (s *Store) PendingCommands(ctx context.Context, owner journal.Owner, look journal.CommandQuery) ([]journal.Command, error) {
	// mine has two halves, of which one gives no rows. While there are few commands in all (look is shorter
	// than look.Reads), the first half looks up the run of each. Otherwise the second half reads the
	// commands of each of this owner's runs. PostgreSQL evaluates the condition on the length once, before
	// it begins a half.
	rows, err := s.hot.Query(ctx, `WITH look AS MATERIALIZED (SELECT id, run_id, kind FROM commands ORDER BY id LIMIT $4),
		busy AS MATERIALIZED (SELECT unnest($5::text[]) AS run_id),
		ending AS MATERIALIZED (SELECT unnest($6::text[]) AS run_id),
		mine AS (
			SELECT l.id FROM look l CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.run_id = l.run_id AND r.owner_id = $1 AND r.owner_incarnation = $2 AND r.state + 0 < 6 OFFSET 0) r
			WHERE (SELECT count(*) FROM look) < $4
				AND (l.kind = 'CANCEL' OR l.run_id NOT IN (SELECT run_id FROM busy)) AND l.run_id NOT IN (SELECT run_id FROM ending)
			UNION ALL
			SELECT m.id FROM (SELECT run_id, run_id IN (SELECT run_id FROM busy) AS busy FROM runs
					WHERE owner_id = $1 AND owner_incarnation = $2 AND owner_id <> '' AND state < 6 AND run_id NOT IN (SELECT run_id FROM ending) OFFSET 0) r
				CROSS JOIN LATERAL (SELECT id, kind FROM commands WHERE run_id = r.run_id OFFSET 0) m
			WHERE (SELECT count(*) FROM look) >= $4 AND (m.kind = 'CANCEL' OR NOT r.busy)
			ORDER BY id LIMIT $3)
		SELECT m.id, m.namespace, m.run_id, m.kind, m.key, CASE WHEN l.small THEN m.body END, m.time, NOT l.small
			FROM mine CROSS JOIN LATERAL (SELECT * FROM commands WHERE id = mine.id OFFSET 0) m
			CROSS JOIN LATERAL (SELECT $7 = 0 OR m.kind = 'CANCEL' OR coalesce(length(m.body), 0) <= $7 AS small) l ORDER BY m.id`,
		owner.ID, owner.Incarnation, look.Limit, look.Reads(), look.Busy, look.Ending, look.Small)
	return collect(rows, err, func(row pgx.CollectableRow) (journal.Command, error) { return sqlstore.ScanCommand(row) })
}

// CommandWakes implements journal.Commands.
func (s *Store) CommandWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	return dbkit.Listen(ctx, s.hot, commandChannel, 1, struct{}{}, func(payload string) (struct{}, bool) { return struct{}{}, payload == owner.ID })
}
