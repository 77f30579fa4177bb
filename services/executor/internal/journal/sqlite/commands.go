package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

const (
	// pollCommands is how often another process's commands are looked for.
	pollCommands = 500 * time.Millisecond

	insertCommand = `INSERT INTO commands (run_id, namespace, kind, key, body, time) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	// sendCommand is insertCommand to a run that may be another namespace's. Such a run gets none.
	sendCommand = `INSERT INTO commands (run_id, namespace, kind, key, body, time) SELECT ?1, ?2, ?3, ?4, ?5, ?6
		WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = ?1 AND r.namespace <> ?2) ON CONFLICT DO NOTHING`
	// pendingCommands is that of an owner's runs.
	pendingCommands = ` FROM commands m WHERE EXISTS (SELECT 1 FROM runs r WHERE r.run_id = m.run_id AND r.owner_id = ?1 AND r.owner_incarnation = ?2 AND +r.state < 6)`
	// pendingByRun is the same, looked for by the owner's runs. CROSS keeps this order.
	pendingByRun = ` FROM runs r CROSS JOIN commands m WHERE r.owner_id = ?1 AND r.owner_incarnation = ?2 AND r.owner_id <> '' AND r.state < 6 AND m.run_id = r.run_id`
	// inHand leaves out the runs that the owner is busy with. small says which bodies come along.
	inHand  = ` AND (m.kind = 'CANCEL' OR m.run_id NOT IN (SELECT value FROM json_each(?4))) AND m.run_id NOT IN (SELECT value FROM json_each(?5))`
	small   = `SELECT m.id, m.namespace, m.run_id, m.kind, m.key, iif(` + isSmall + `, m.body, NULL), m.time, NOT (` + isSmall + `)`
	isSmall = `?6 = 0 OR m.kind = 'CANCEL' OR coalesce(length(m.body), 0) <= ?6`
	// commandScan counts commands, up to a number.
	commandScan = `SELECT count(*) FROM (SELECT 1 FROM commands LIMIT ?)`
	// claimOwnerless gives an owner a run that waits or is paused without an owner and has commands.
	claimOwnerless = `UPDATE runs SET owner_id = ?, owner_incarnation = ?, doing = '' WHERE run_id = ? AND owner_id = '' AND state IN (3, 4)
		AND EXISTS (SELECT 1 FROM commands m WHERE m.run_id = runs.run_id)`
	// tidyCommands removes the commands of a run that has ended, or is not there. It asks for the run once
	// and not for each command: a run that goes on may have thousands.
	tidyCommands = `DELETE FROM commands WHERE run_id = ?1 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = ?1 AND r.state < 6)`
)

// ownerOf returns the id of the owner of an open run, or nothing.
func (t txn) ownerOf(ctx context.Context, runID string) (owner string, err error) {
	err = t.row(ctx, `SELECT owner_id FROM runs WHERE run_id = ? AND state < 6`, runID).Scan(&owner)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return owner, err
}

// Enqueue implements journal.Commands.
func (s *Store) Enqueue(ctx context.Context, p journal.EnqueueRequest) (posted journal.Enqueued, err error) {
	if err := journal.ValidateEnqueue(p, journal.DefaultLimits()); err != nil {
		return journal.Enqueued{}, err
	}
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		posted = journal.Enqueued{}
		repeated, err := t.request(ctx, p)
		if err != nil {
			return err
		}
		m := p.Command
		var f journal.Found
		err = t.row(ctx, `SELECT r.revision, r.state, r.cancel_time > 0, r.owner_id, r.owner_incarnation,`+live+` FROM runs r WHERE r.namespace = ? AND r.run_id = ?`,
			m.Namespace, m.RunID).Scan(&f.Revision, &f.State, &f.CancelAsked, &f.Owner.ID, &f.Owner.Incarnation, &f.OwnerLive)
		if errors.Is(err, sql.ErrNoRows) {
			return journal.RunNotFound(m.RunID)
		} else if err != nil {
			return err
		}
		if journal.Endless(m.Kind) {
			if err := t.row(ctx, `SELECT count(*), coalesce(sum(length(body)), 0) FROM (SELECT body FROM commands WHERE run_id = ? AND kind IN ('SIGNAL', 'MESSAGE') LIMIT ?)`,
				m.RunID, journal.MaxWaiting).Scan(&f.Waiting, &f.WaitingBytes); err != nil {
				return err
			}
		}
		write := !repeated && !p.Idle
		if write {
			if write, err = f.Takes(p); err != nil {
				return err
			}
		}
		if write && p.Answer != nil {
			if write, err = t.answer(ctx, p); err != nil {
				return err
			}
		}
		if write && f.State.Ended() {
			return journal.RunEnded(m.RunID)
		}
		if f.OwnerLive && !f.State.Ended() {
			posted.Owner = f.Owner
		}
		if write && f.Claims(p) {
			switch err := t.fence(ctx, p.Claimant); {
			case err == nil:
				posted.Owner, posted.Claimed = p.Claimant, true
			case !journal.IsFenced(err):
				return err
			}
		}
		if write {
			if posted.Claimed {
				if _, err := t.exec(ctx, `UPDATE runs SET owner_id = ?, owner_incarnation = ?, doing = '' WHERE run_id = ?`, p.Claimant.ID, p.Claimant.Incarnation, m.RunID); err != nil {
					return err
				}
			}
			if posted.New, err = t.deliver(ctx, m, p.Reason); err != nil {
				return err
			}
		}
		posted.Run, err = s.ReadRun(ctx, dbkit.SQLiteTx(t.tx), m.Namespace, m.RunID)
		return err
	})
	if err != nil {
		return journal.Enqueued{}, err
	}
	if posted.New {
		s.wake(posted.Owner.ID)
	}
	return posted, nil
}

// request remembers the request id of p and reports whether it was seen before with the same body.
func (t txn) request(ctx context.Context, p journal.EnqueueRequest) (repeated bool, err error) {
	if p.Request.ID == "" {
		return false, nil
	}
	n, err := t.exec(ctx, `INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time)
		VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, p.Command.Namespace, p.Request.Method, p.Request.ID, p.Request.BodyHash, p.Command.RunID, micros(p.Command.Time))
	if err != nil || n > 0 {
		return false, err
	}
	var hash, id string
	if err := t.row(ctx, `SELECT body_hash, run_id FROM request_ids WHERE namespace = ? AND method = ? AND request_id = ?`,
		p.Command.Namespace, p.Request.Method, p.Request.ID).Scan(&hash, &id); err != nil {
		return false, err
	}
	if hash != p.Request.BodyHash || id != p.Command.RunID {
		return false, journal.RequestIDReused(p.Request.ID)
	}
	return true, nil
}

// answer closes the interrupt that p answers and reports whether that was new.
func (t txn) answer(ctx context.Context, p journal.EnqueueRequest) (closed bool, err error) {
	a := p.Answer
	i, err := sqlstore.ScanInterrupt(t.row(ctx, sqlstore.SelectInterrupts+` FROM interrupts i WHERE i.namespace = ? AND i.id = ? AND i.run_id = ?`, p.Command.Namespace, a.InterruptID, p.Command.RunID))
	if errors.Is(err, sql.ErrNoRows) {
		return false, journal.InterruptNotFound(a.InterruptID)
	} else if err != nil {
		return false, err
	}
	if repeated, err := a.Closes(&i); err != nil || repeated {
		return false, err
	}
	_, err = t.exec(ctx, `UPDATE interrupts SET state = ?, answer = ?, decision = ?, closed_by = ?, close_time = ?, principal = ? WHERE id = ?`,
		int32(journal.InterruptAnswered), blob(a.Answer), a.Decision, a.By, micros(p.Command.Time), a.Principal, a.InterruptID)
	return true, err
}

// deliver writes one command to a run, and sees to it that somebody reads it. reason is that of a
// cancel.
func (t txn) deliver(ctx context.Context, m journal.Command, reason string) (isNew bool, err error) {
	n, err := t.exec(ctx, insertCommand, m.RunID, m.Namespace, string(m.Kind), m.Key, blob(m.Body), micros(m.Time))
	if err != nil || n == 0 {
		return false, err
	}
	if m.Kind == journal.CommandCancel {
		if _, err := t.exec(ctx, `UPDATE runs SET cancel_reason = ?, cancel_time = ?, revision = revision + 1 WHERE run_id = ?`,
			reason, micros(m.Time), m.RunID); err != nil {
			return false, err
		}
	}
	return true, t.wakeUps(ctx, []journal.JobRow{journal.MakeJob(m.Namespace, m.RunID, journal.Job{Kind: journal.JobWake})})
}

// PendingCommands implements journal.Commands.
func (s *Store) PendingCommands(ctx context.Context, owner journal.Owner, look journal.CommandQuery) ([]journal.Command, error) {
	var n int
	if err := s.db.Read.QueryRowContext(ctx, commandScan, look.Reads()).Scan(&n); err != nil {
		return nil, err
	}
	query := pendingCommands
	if n >= look.Reads() {
		query = pendingByRun
	}
	rows, err := s.db.Read.QueryContext(ctx, small+query+inHand+` ORDER BY m.id LIMIT ?3`, owner.ID, owner.Incarnation, look.Limit,
		textList(look.Busy), textList(look.Ending), look.Small)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (journal.Command, error) { return sqlstore.ScanCommand(rows) })
}

// CommandWakes implements journal.Commands. Commands from this process comes at once, that of another on
// the same file by polling.
func (s *Store) CommandWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	return s.wakesOf(ctx, owner.ID, pollCommands, func() bool {
		ms, err := s.PendingCommands(ctx, owner, journal.CommandQuery{Limit: 1, Small: 1})
		return err != nil || len(ms) > 0
	}), nil
}

// wakesOf sends when wake names id, and at each tick at which there may be something, until ctx ends.
func (s *Store) wakesOf(ctx context.Context, id string, every time.Duration, may func() bool) <-chan struct{} {
	signal, out := make(chan struct{}, 1), make(chan struct{}, 1)
	s.mu.Lock()
	s.wakes[signal] = id
	s.mu.Unlock()
	go func() {
		defer close(out)
		defer func() {
			s.mu.Lock()
			delete(s.wakes, signal)
			s.mu.Unlock()
		}()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-signal:
			case <-tick.C:
				if !may() {
					continue
				}
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out
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
