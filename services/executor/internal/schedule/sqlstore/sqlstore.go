// Package sqlstore holds the SQL of schedules, which PostgreSQL and SQLite share except for the fragments of
// dbkit.Dialect. The drivers hold the lock of a namespace and the insert of jobs. Package schedule decides
// about times.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
)

// Database describes the database to the store.
type Database struct {
	Pool    dbkit.Pool
	Dialect dbkit.Dialect
	// Lock waits for the lock named $1, which the transaction then holds. Empty means that a transaction is
	// alone anyway.
	Lock string
	// Jobs makes the statements of a transaction that insert jobs.
	Jobs func([]journal.JobRow) []dbkit.Stmt
	// Inserted is called after a commit with the jobs; nil means that the workers know of them already.
	Inserted func([]journal.JobRow)
}

// Store is the shared part of a schedule.Store. It is safe for concurrent use.
type Store struct {
	db Database
	d  dbkit.Dialect
}

// New returns the shared part of the schedules in a database, which stays the caller's. The journal's
// migrations make the tables.
func New(db Database) *Store {
	if db.Inserted == nil {
		db.Inserted = func([]journal.JobRow) {}
	}
	return &Store{db: db, d: db.Dialect}
}

const (
	columns      = `s.namespace, s.id, s.uid, s.revision, s.turns, s.skipped, s.done, s.ahead, s.due, s.create_time, s.update_time, s.principal, s.spec, s.recent`
	startColumns = `turn, time, tried, actual, origin, overlap, run_id, result, message, request_id, principal`
)

func scan(row dbkit.Scanner, more ...any) (s schedule.Schedule, err error) {
	var spec, recent []byte
	to := append([]any{
		&s.Namespace, &s.ID, &s.UID, &s.Revision, &s.Turns, &s.Skipped, dbkit.At(&s.Done), dbkit.At(&s.Ahead), dbkit.At(&s.Due),
		dbkit.At(&s.CreateTime), dbkit.At(&s.UpdateTime), &s.Principal, &spec, &recent,
	}, more...)
	if err := row.Scan(to...); err != nil {
		return s, err
	}
	return s, schedule.Decode(&s, spec, recent)
}

func scanStart(rows dbkit.Rows) (st schedule.Start, err error) {
	err = rows.Scan(&st.Turn, dbkit.At(&st.Time), dbkit.At(&st.Tried), dbkit.At(&st.Actual), &st.Origin, &st.Overlap, &st.RunID, &st.Result,
		&st.Message, &st.Request, &st.Principal)
	return st, err
}

func jobs(k schedule.Key, at ...time.Time) []journal.JobRow {
	out := make([]journal.JobRow, len(at))
	for i, t := range at {
		out[i] = journal.MakeJob(k.Namespace, "", journal.ScheduleJob(k.Namespace, k.ID, t))
	}
	return out
}

// update runs fn in a transaction, and inserts the jobs that it returns in the same batch as its statements.
func (s *Store) update(ctx context.Context, fn func(context.Context, dbkit.Querier) ([]dbkit.Stmt, []journal.JobRow, error)) error {
	var inserted []journal.JobRow
	err := s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		stmts, jobs, err := fn(ctx, tx)
		if err != nil {
			return err
		}
		if inserted = jobs; len(jobs) > 0 {
			stmts = append(stmts, s.db.Jobs(jobs)...)
		}
		return tx.Batch(ctx, stmts...)
	})
	if err == nil {
		s.db.Inserted(inserted)
	}
	return err
}

// Create implements schedule.Store.
func (s *Store) Create(ctx context.Context, x schedule.Schedule, most int) error {
	spec, recent, err := schedule.Encode(&x)
	if err != nil {
		return err
	}
	return s.update(ctx, func(ctx context.Context, tx dbkit.Querier) ([]dbkit.Stmt, []journal.JobRow, error) {
		if s.db.Lock != "" {
			// Two that create at once must not both find room for one.
			if _, err := tx.Exec(ctx, s.db.Lock, `epigraph/schedules/`+x.Namespace); err != nil {
				return nil, nil, err
			}
		}
		var n int
		if err := dbkit.FirstRow(tx.Query(ctx, `SELECT count(*) FROM schedules WHERE namespace = $1`, x.Namespace)).Scan(&n); err != nil {
			return nil, nil, err
		}
		made, err := tx.Exec(ctx, `INSERT INTO schedules (namespace, id, uid, revision, turns, skipped, done, ahead, due, create_time, update_time, principal, spec, recent)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (namespace, id) DO NOTHING`,
			x.Namespace, x.ID, x.UID, x.Revision, x.Turns, x.Skipped, x.Done, x.Ahead, x.Due, x.CreateTime, x.UpdateTime, x.Principal, spec, recent)
		switch {
		case err != nil:
			return nil, nil, err
		case made == 0:
			return nil, nil, schedule.Exists(x.ID)
		case n >= most:
			return nil, nil, schedule.TooMany(most)
		}
		body := []dbkit.Stmt{{Query: `INSERT INTO schedule_bodies (uid, namespace, body) VALUES ($1, $2, $3)`, Args: []any{x.UID, x.Namespace, x.Start}}}
		if x.Due.IsZero() {
			return body, nil, nil
		}
		return body, jobs(x.Key, x.Due), nil
	})
}

// Get implements schedule.Store.
func (s *Store) Get(ctx context.Context, k schedule.Key) (schedule.Schedule, error) {
	var body []byte
	x, err := scan(dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT `+columns+`, b.body FROM schedules s LEFT JOIN schedule_bodies b ON b.uid = s.uid
		WHERE s.namespace = $1 AND s.id = $2`, k.Namespace, k.ID)), &body)
	if errors.Is(err, sql.ErrNoRows) {
		return x, schedule.NotFound(k.ID)
	}
	x.Start = body
	return x, err
}

// List implements schedule.Store.
func (s *Store) List(ctx context.Context, namespace, after string, limit int) ([]schedule.Schedule, error) {
	rows, err := s.db.Pool.Query(ctx, `SELECT `+columns+` FROM schedules s WHERE s.namespace = $1 AND s.id > $2 ORDER BY s.id LIMIT $3`, namespace, after, limit)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (schedule.Schedule, error) { return scan(rows) })
}

// Change implements schedule.Store.
func (s *Store) Change(ctx context.Context, k schedule.Key, f func(context.Context, schedule.Tx, *schedule.Schedule) (schedule.Change, error)) error {
	err := s.update(ctx, func(ctx context.Context, tx dbkit.Querier) ([]dbkit.Stmt, []journal.JobRow, error) {
		x, err := s.locked(ctx, tx, k)
		if err != nil {
			return nil, nil, err
		}
		revision := x.Revision
		c, err := f(ctx, view{tx, k, x.UID}, &x)
		if err != nil {
			return nil, nil, err
		}
		spec, recent, err := schedule.Encode(&x)
		if err != nil {
			return nil, nil, err
		}
		stmts := []dbkit.Stmt{{
			Query: `UPDATE schedules SET revision = $3, turns = $4, skipped = $5, done = $6, ahead = $7, due = $8, update_time = $9, principal = $10,
				spec = $11, recent = $12 WHERE namespace = $1 AND id = $2`,
			Args: []any{k.Namespace, k.ID, x.Revision, x.Turns, x.Skipped, x.Done, x.Ahead, x.Due, x.UpdateTime, x.Principal, spec, recent},
		}}
		if x.Revision != revision {
			stmts = append(stmts, dbkit.Stmt{Query: `UPDATE schedule_bodies SET body = $2 WHERE uid = $1`, Args: []any{x.UID, x.Start}})
		}
		for _, st := range c.Put {
			stmts = append(stmts, dbkit.Stmt{
				Query: `INSERT INTO schedule_starts (uid, turn, namespace, time, tried, actual, origin, overlap, run_id, result, message, request_id, principal)
					VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
					ON CONFLICT (uid, turn) DO UPDATE SET tried = excluded.tried, actual = excluded.actual, run_id = excluded.run_id, result = excluded.result,
						message = excluded.message`,
				Args: []any{
					x.UID, st.Turn, k.Namespace, st.Time, st.Tried, st.Actual, int32(st.Origin), int32(st.Overlap), st.RunID, string(st.Result),
					st.Message, st.Request, st.Principal,
				},
			})
		}
		return stmts, jobs(k, c.Jobs...), nil
	})
	if errors.Is(err, schedule.ErrUnchanged) {
		return nil
	}
	return err
}

// locked locks the row of a schedule and reads all of the schedule.
func (s *Store) locked(ctx context.Context, tx dbkit.Querier, k schedule.Key) (schedule.Schedule, error) {
	x, err := scan(dbkit.FirstRow(tx.Query(ctx, `SELECT `+columns+` FROM schedules s WHERE s.namespace = $1 AND s.id = $2`+s.d.Locked(), k.Namespace, k.ID)))
	if errors.Is(err, sql.ErrNoRows) {
		return x, schedule.NotFound(k.ID)
	}
	if err != nil {
		return x, err
	}
	// This is a separate statement: on PostgreSQL, a statement that waits for a lock sees the locked row as
	// it is now, but the rows joined to it as they were.
	err = dbkit.FirstRow(tx.Query(ctx, `SELECT body FROM schedule_bodies WHERE uid = $1`, x.UID)).Scan(&x.Start)
	if errors.Is(err, sql.ErrNoRows) {
		return x, nil
	}
	return x, err
}

// Delete implements schedule.Store.
func (s *Store) Delete(ctx context.Context, k schedule.Key, revision int64) error {
	return s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		var uid string
		var have int64
		err := dbkit.FirstRow(tx.Query(ctx, `DELETE FROM schedules WHERE namespace = $1 AND id = $2 RETURNING uid, revision`, k.Namespace, k.ID)).Scan(&uid, &have)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return schedule.NotFound(k.ID)
		case err != nil:
			return err
		case revision != 0 && have != revision:
			return schedule.EtagMismatch(k.ID)
		}
		return tx.Batch(ctx,
			dbkit.Stmt{Query: `DELETE FROM schedule_bodies WHERE uid = $1`, Args: []any{uid}},
			dbkit.Stmt{Query: `DELETE FROM schedule_starts WHERE uid = $1 AND result = 'QUEUED'`, Args: []any{uid}})
	})
}

// Overdue implements schedule.Store.
func (s *Store) Overdue(ctx context.Context, before time.Time, limit int) (int, error) {
	rows, err := s.db.Pool.Query(ctx, `SELECT namespace, id FROM schedules WHERE `+s.d.Set(`due`)+` AND due < $1 ORDER BY due LIMIT $2`, before, limit)
	found, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (journal.JobRow, error) {
		var k schedule.Key
		err := rows.Scan(&k.Namespace, &k.ID)
		// Without a time, so that a job for its time which stands somewhere does not keep it out.
		return jobs(k, time.Time{})[0], err
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if err := s.db.Pool.Batch(ctx, s.db.Jobs(found)...); err != nil {
		return 0, err
	}
	s.db.Inserted(found)
	return len(found), nil
}

// Forget implements schedule.Store.
func (s *Store) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	n, err := s.db.Pool.Exec(ctx, s.d.DeleteSome(`schedule_starts`, `uid, turn`,
		`SELECT uid, turn FROM schedule_starts WHERE `+s.d.Set(`actual`)+` AND actual < $1 ORDER BY actual LIMIT $2`), before, limit)
	return int(n), err
}

// view is a schedule.Tx.
type view struct {
	tx  dbkit.Querier
	k   schedule.Key
	uid string
}

// Open implements schedule.Tx.
func (v view) Open(ctx context.Context, n int) ([]string, error) {
	rows, err := v.tx.Query(ctx, `SELECT run_id FROM runs WHERE namespace = $1 AND schedule_id = $2 AND schedule_id <> '' AND state < 6 ORDER BY run_id LIMIT $3`,
		v.k.Namespace, v.k.ID, n)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (id string, err error) {
		err = rows.Scan(&id)
		return id, err
	})
}

func (v view) starts(ctx context.Context, where string, args ...any) ([]schedule.Start, error) {
	rows, err := v.tx.Query(ctx, `SELECT `+startColumns+` FROM schedule_starts WHERE `+where, args...)
	return dbkit.Collect(rows, err, scanStart)
}

// Queue implements schedule.Tx.
func (v view) Queue(ctx context.Context) ([]schedule.Start, error) {
	return v.starts(ctx, `uid = $1 AND result = 'QUEUED' ORDER BY turn`, v.uid)
}

// Times implements schedule.Tx.
func (v view) Times(ctx context.Context, begin, end time.Time) ([]schedule.Start, error) {
	return v.starts(ctx, `uid = $1 AND time >= $2 AND time < $3 AND origin < 2 ORDER BY time, turn`, v.uid, begin, end)
}

// Request implements schedule.Tx.
func (v view) Request(ctx context.Context, id string) (uid string, st schedule.Start, found bool, err error) {
	list, err := v.starts(ctx, `namespace = $1 AND request_id = $2 AND request_id <> ''`, v.k.Namespace, id)
	if err != nil || len(list) == 0 {
		return "", st, false, err
	}
	err = dbkit.FirstRow(v.tx.Query(ctx, `SELECT uid FROM schedule_starts WHERE namespace = $1 AND request_id = $2 AND request_id <> ''`, v.k.Namespace, id)).Scan(&uid)
	return uid, list[0], err == nil, err
}
