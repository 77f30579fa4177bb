package sqlstore

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Enqueue implements journal.Commands. The first half of the exchange locks and reads, the second half
// writes. The run's row is locked before its owner is read, so that a command and the end of an ownership see
// each other.
func (s *Store) Enqueue(ctx context.Context, p journal.EnqueueRequest) (res journal.Enqueued, err error) {
	if err := journal.ValidateEnqueue(p, journal.DefaultLimits()); err != nil {
		return journal.Enqueued{}, err
	}
	err = s.db.Read.Exchange(ctx, func() ([]dbkit.Stmt, func() ([]dbkit.Stmt, error)) {
		e := enqueuing{Store: s, p: &p}
		res = journal.Enqueued{}
		return e.read(), func() ([]dbkit.Stmt, error) { return e.write(&res) }
	})
	switch {
	case err == nil:
		return res, nil
	case errs.Is(err, errs.Internal):
		return journal.Enqueued{}, fmt.Errorf("enqueue command: %w", err)
	}
	return journal.Enqueued{}, err
}

// enqueuing is one try of an Enqueue, with what it has read.
type enqueuing struct {
	*Store
	p *journal.EnqueueRequest
	// registered says that the claimant is. Its row stays locked.
	registered bool
	// repeated says that the request id was seen before: with a request of this hash, to this run.
	repeated        bool
	bodyHash, runID string
	// there says that there is the run.
	there bool
	run   journal.Found
	// interrupt is what the request answers. It has no id if there is none.
	interrupt journal.Interrupt
}

// read remembers the request id, and locks and reads the rows that decide.
func (e *enqueuing) read() (stmts []dbkit.Stmt) {
	m := &e.p.Command
	do := func(st dbkit.Stmt, query string, args ...any) {
		st.Query, st.Args = query, args
		stmts = append(stmts, st)
	}
	if c := e.p.Claimant; !c.IsZero() {
		do(dbkit.Stmt{Rows: func(rows dbkit.Rows) error {
			e.registered = rows.Next()
			return rows.Err()
		}}, `SELECT 1 FROM executors WHERE id = $1 AND incarnation = $2`+e.d.Kept(), c.ID, c.Incarnation)
	}
	if q := e.p.Request; q.ID != "" {
		do(dbkit.Stmt{Done: func(n int64) error {
			e.repeated = n == 0
			return nil
		}}, `INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			m.Namespace, q.Method, q.ID, q.BodyHash, m.RunID, m.Time)
		do(one(nil, &e.bodyHash, &e.runID), `SELECT body_hash, run_id FROM request_ids WHERE namespace = $1 AND method = $2 AND request_id = $3`,
			m.Namespace, q.Method, q.ID)
	}
	if lock := e.d.LockedToUpdate(); lock != "" {
		do(dbkit.Stmt{}, `SELECT 1 FROM runs r WHERE`+ThisRun+lock, m.Namespace, m.RunID)
	}
	// The row is read by a statement of its own: the snapshot of the statement that locks it may be older
	// than the end of a take-over.
	f := &e.run
	do(one(&e.there, &f.Revision, &f.State, &f.CancelAsked, &f.Owner.ID, &f.Owner.Incarnation, &f.OwnerLive),
		`SELECT r.revision, r.state, `+e.d.Set(`r.cancel_time`)+`, r.owner_id, r.owner_incarnation,
			EXISTS (SELECT 1 FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)
		FROM runs r WHERE`+ThisRun, m.Namespace, m.RunID)
	if journal.Endless(m.Kind) {
		do(one(nil, &f.Waiting, &f.WaitingBytes), `SELECT count(*), coalesce(sum(octet_length(w.body)), 0)
			FROM (SELECT m.body FROM commands m WHERE m.run_id = $1 AND m.kind IN ('SIGNAL', 'MESSAGE', 'LEAVE') LIMIT $2) w`, m.RunID, journal.MaxWaiting)
	}
	if e.p.Answer != nil {
		do(dbkit.Stmt{Rows: func(rows dbkit.Rows) (err error) {
			if e.interrupt, err = scanInterrupt(dbkit.FirstRow(rows, nil)); none(err) {
				e.interrupt, err = journal.Interrupt{}, nil
			}
			return err
		}}, selectInterrupts+` FROM interrupts i WHERE i.namespace = $1 AND i.id = $2 AND i.run_id = $3`+e.d.Locked(), m.Namespace, e.p.Answer.InterruptID, m.RunID)
	}
	return stmts
}

// one reads the one row of a statement. there, if set, says whether there is a row; without it there must be
// one.
func one(there *bool, dst ...any) dbkit.Stmt {
	return dbkit.Stmt{Rows: func(rows dbkit.Rows) error {
		err := dbkit.FirstRow(rows, nil).Scan(dst...)
		if there != nil {
			if *there = !none(err); !*there {
				return nil
			}
		}
		return err
	}}
}

// takes reports whether the command is to be written.
func (e *enqueuing) takes() (bool, error) {
	p := e.p
	switch {
	case e.repeated && (e.bodyHash != p.Request.BodyHash || e.runID != p.Command.RunID):
		return false, journal.RequestIDReused(p.Request.ID)
	case !e.there:
		return false, journal.RunNotFound(p.Command.RunID)
	case e.repeated || p.Idle:
		return false, nil
	}
	if takes, err := e.run.Takes(*p); err != nil || !takes {
		return false, err
	}
	if p.Answer != nil {
		if e.interrupt.ID == "" {
			return false, journal.InterruptNotFound(p.Answer.InterruptID)
		}
		if repeated, err := p.Answer.Closes(&e.interrupt); err != nil || repeated {
			return false, err
		}
	}
	if e.run.State.Ended() {
		return false, journal.RunEnded(p.Command.RunID)
	}
	return true, nil
}

// write writes the command if the run takes it, sees to it that somebody applies it, and reads the run.
func (e *enqueuing) write(res *journal.Enqueued) (stmts []dbkit.Stmt, err error) {
	takes, err := e.takes()
	if err != nil {
		return nil, err
	}
	if e.run.OwnerLive && !e.run.State.Ended() {
		res.Owner = e.run.Owner
	}
	if takes && e.registered && e.run.Claims(*e.p) {
		res.Owner, res.Claimed = e.p.Claimant, true
	}
	m := &e.p.Command
	if takes {
		stmts = append(e.insert(res), e.notify(res)...)
	}
	return append(stmts, dbkit.Stmt{
		Query: e.selectRun + ThisRun, Args: []any{m.Namespace, m.RunID},
		Rows: func(rows dbkit.Rows) (err error) {
			res.Run, err = readRun(dbkit.FirstRow(rows, nil), true)
			return err
		},
	}), nil
}

// insert writes the command and what goes along with it.
func (e *enqueuing) insert(res *journal.Enqueued) (stmts []dbkit.Stmt) {
	m := &e.p.Command
	do := func(query string, args ...any) { stmts = append(stmts, dbkit.Stmt{Query: query, Args: args}) }
	if a := e.p.Answer; a != nil {
		do(`UPDATE interrupts SET state = $2, answer = $3, decision = $4, closed_by = $5, close_time = $6, principal = $7 WHERE id = $1`,
			a.InterruptID, int32(journal.InterruptAnswered), null(a.Answer), a.Decision, a.By, m.Time, a.Principal)
	}
	if m.Kind == journal.CommandCancel {
		// The run's row records a cancel only if its command is new.
		do(`UPDATE runs SET cancel_reason = $4, cancel_time = $5, revision = revision + 1 WHERE run_id = $1
			AND NOT EXISTS (SELECT 1 FROM commands m WHERE m.run_id = $1 AND m.kind = $2 AND m.key = $3)`, m.RunID, string(m.Kind), m.Key, e.p.Reason, m.Time)
	}
	return append(stmts, dbkit.Stmt{
		Query: `INSERT INTO commands (run_id, namespace, kind, key, body, time) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		Args:  []any{m.RunID, m.Namespace, string(m.Kind), m.Key, null(m.Body), m.Time},
		Done: func(n int64) error {
			res.New = n > 0
			return nil
		},
	})
}

// notify makes the run the claimant's, or tells its owner, or inserts a wake-up job if it has none. A command
// that was there before has been told of; to do so again does no harm.
func (e *enqueuing) notify(res *journal.Enqueued) []dbkit.Stmt {
	m := &e.p.Command
	switch {
	case res.Claimed:
		return []dbkit.Stmt{{
			Query: `UPDATE runs SET owner_id = $2, owner_incarnation = $3, doing = '' WHERE run_id = $1`,
			Args:  []any{m.RunID, res.Owner.ID, res.Owner.Incarnation},
		}}
	case res.Owner.IsZero():
		return e.db.InsertJobs([]journal.JobRow{journal.MakeJob(m.Namespace, m.RunID, journal.Job{Kind: journal.JobWake})})
	case res.Owner != e.p.Claimant && e.db.NotifyOwner != "":
		return []dbkit.Stmt{{Query: e.db.NotifyOwner, Args: []any{res.Owner.ID}}}
	}
	return nil
}
