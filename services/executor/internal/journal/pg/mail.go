package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	insertMail = `INSERT INTO mail (run_id, namespace, kind, key, body, time) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	selectMail = `SELECT m.id, m.namespace, m.run_id, m.kind, m.key, m.body, m.time FROM mail m`
)

func scanMail(row pgx.CollectableRow) (m journal.Mail, err error) {
	err = row.Scan(&m.ID, &m.Namespace, &m.RunID, &m.Kind, &m.Key, &m.Body, &m.Time)
	m.Time = m.Time.UTC()
	if len(m.Body) == 0 {
		m.Body = nil
	}
	return m, err
}

// queueOwnerNotices wakes the owners of runs that got mail.
func queueOwnerNotices(b *pgx.Batch, runIDs []string) {
	b.Queue(`SELECT pg_notify('`+mailChannel+`', owner_id) FROM (SELECT DISTINCT owner_id FROM runs WHERE run_id = ANY ($1) AND owner_id <> '' AND state < 6) o`, runIDs)
}

// Post implements journal.Mailbox. The run's row is locked before its owner is looked at, so that mail and the end of an ownership see each other.
func (s *Store) Post(ctx context.Context, p journal.Post) (posted journal.Posted, err error) {
	if err := journal.ValidatePost(p, journal.DefaultLimits()); err != nil {
		return journal.Posted{}, err
	}
	err = pgx.BeginFunc(ctx, s.read, func(tx pgx.Tx) error {
		posted = journal.Posted{}
		repeated, err := request(ctx, tx, p)
		if err != nil {
			return err
		}
		m := p.Mail
		var f journal.Found
		err = tx.QueryRow(ctx, `SELECT r.revision, r.state, r.cancel_time IS NOT NULL, r.owner_id, r.owner_incarnation FROM runs r
			WHERE r.namespace = $1 AND r.run_id = $2 FOR NO KEY UPDATE`, m.Namespace, m.RunID).Scan(&f.Revision, &f.State, &f.CancelAsked, &f.Owner.ID, &f.Owner.Incarnation)
		if errors.Is(err, pgx.ErrNoRows) {
			return journal.RunNotFound(m.RunID)
		} else if err != nil {
			return err
		}
		// The owner is looked for by a statement of its own: that of the lock may have begun before a take-over ended.
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM executors WHERE id = $1 AND incarnation = $2)`, f.Owner.ID, f.Owner.Incarnation).Scan(&f.OwnerLive); err != nil {
			return err
		}
		write := !repeated
		if write {
			if write, err = f.Takes(p); err != nil {
				return err
			}
		}
		if write && p.Answer != nil {
			if write, err = answer(ctx, tx, p); err != nil {
				return err
			}
		}
		if write && f.State.Ended() {
			return journal.RunEnded(m.RunID)
		}
		if write {
			if posted.New, err = s.deliver(ctx, tx, m); err != nil {
				return err
			}
		}
		if f.OwnerLive && !f.State.Ended() {
			posted.Owner = f.Owner
		}
		posted.Run, err = get(ctx, tx, m.Namespace, m.RunID)
		return err
	})
	if err = away(err); err != nil {
		if errs.Is(err, errs.Internal) {
			return journal.Posted{}, fmt.Errorf("post mail: %w", err)
		}
		return journal.Posted{}, err
	}
	return posted, nil
}

// request remembers the request id of p and reports whether it was seen before with the same body.
func request(ctx context.Context, tx pgx.Tx, p journal.Post) (repeated bool, err error) {
	if p.Request.ID == "" {
		return false, nil
	}
	tag, err := tx.Exec(ctx, `INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`, p.Mail.Namespace, p.Method, p.Request.ID, p.Request.BodyHash, p.Mail.RunID, dbkit.Micros(p.Mail.Time))
	if err != nil || tag.RowsAffected() > 0 {
		return false, err
	}
	var hash, id string
	if err := tx.QueryRow(ctx, `SELECT body_hash, run_id FROM request_ids WHERE namespace = $1 AND method = $2 AND request_id = $3`,
		p.Mail.Namespace, p.Method, p.Request.ID).Scan(&hash, &id); err != nil {
		return false, err
	}
	if hash != p.Request.BodyHash || id != p.Mail.RunID {
		return false, journal.RequestIDReused(p.Request.ID)
	}
	return true, nil
}

// answer closes the question that p answers and reports whether that was new.
func answer(ctx context.Context, tx pgx.Tx, p journal.Post) (closed bool, err error) {
	a := p.Answer
	i, err := scanInterrupt(tx.QueryRow(ctx, selectInterrupts+` WHERE i.namespace = $1 AND i.id = $2 AND i.run_id = $3 FOR UPDATE`, p.Mail.Namespace, a.InterruptID, p.Mail.RunID))
	if errors.Is(err, pgx.ErrNoRows) {
		return false, journal.InterruptNotFound(a.InterruptID)
	} else if err != nil {
		return false, err
	}
	if repeated, err := a.Closes(&i); err != nil || repeated {
		return false, err
	}
	_, err = tx.Exec(ctx, `UPDATE interrupts SET state = $2, answer = $3, decision = $4, closed_by = $5, close_time = $6 WHERE id = $1`,
		a.InterruptID, int32(journal.InterruptAnswered), blob(a.Answer), a.Decision, a.By, null(p.Mail.Time))
	return true, err
}

// deliver writes one piece of mail to a run whose row is locked, and wakes whoever is to read it.
func (s *Store) deliver(ctx context.Context, tx pgx.Tx, m journal.Mail) (isNew bool, err error) {
	tag, err := tx.Exec(ctx, insertMail, m.RunID, m.Namespace, string(m.Kind), m.Key, blob(m.Body), dbkit.Micros(m.Time))
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	var b pgx.Batch
	if m.Kind == journal.MailCancel {
		b.Queue(`UPDATE runs SET cancel_reason = $2, cancel_time = $3, revision = revision + 1 WHERE run_id = $1`, m.RunID, string(m.Body), null(m.Time))
	}
	s.sql.queueWakes(&b, []journal.JobRow{journal.MakeJob(m.Namespace, m.RunID, journal.Job{Kind: journal.JobWake})})
	queueOwnerNotices(&b, []string{m.RunID})
	return true, tx.SendBatch(ctx, &b).Close()
}

// PendingMail implements journal.Mailbox.
func (s *Store) PendingMail(ctx context.Context, owner journal.Owner, limit int) ([]journal.Mail, error) {
	rows, err := s.hot.Query(ctx, selectMail+` CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.run_id = m.run_id AND r.owner_id = $1 AND r.owner_incarnation = $2 OFFSET 0) r
		ORDER BY m.id LIMIT $3`, owner.ID, owner.Incarnation, limit)
	return collect(rows, err, scanMail)
}

// UnreadMail implements journal.Mailbox.
func (s *Store) UnreadMail(ctx context.Context, namespace, runID string, limit int) ([]journal.Mail, error) {
	rows, err := s.hot.Query(ctx, selectMail+` WHERE m.run_id = $2 AND m.namespace = $1 ORDER BY m.id LIMIT $3`, namespace, runID, limit)
	return collect(rows, err, scanMail)
}

// MailWakes implements journal.Mailbox.
func (s *Store) MailWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	return dbkit.Listen(ctx, s.hot, mailChannel, 1, struct{}{}, func(payload string) (struct{}, bool) { return struct{}{}, payload == owner.ID })
}
