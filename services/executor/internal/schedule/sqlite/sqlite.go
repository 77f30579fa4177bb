// Package sqlite keeps schedules in the SQLite file of the journal. It owns the SQL of that driver; package
// schedule decides about times.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	journalsqlite "github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
)

var _ schedule.Store = (*Store)(nil)

// Store is a schedule.Store on a file that is the journal's too.
type Store struct{ j *journalsqlite.Store }

// New returns a store on an open journal, which stays the caller's. The journal's migrations make the tables.
func New(j *journalsqlite.Store) *Store { return &Store{j: j} }

// Close implements schedule.Store.
func (s *Store) Close() error { return nil }

func micros(t time.Time) int64 { return dbkit.ToUnixMicros(dbkit.Micros(t)) }

const columns = `s.namespace, s.id, s.uid, s.revision, s.turns, s.skipped, s.done, s.ahead, s.due, s.create_time, s.update_time, s.principal, s.spec, s.recent`

func scan(row interface{ Scan(to ...any) error }, more ...any) (schedule.Schedule, error) {
	var (
		s                                 schedule.Schedule
		done, ahead, due, created, update int64
		spec, recent                      []byte
	)
	to := append([]any{&s.Namespace, &s.ID, &s.UID, &s.Revision, &s.Turns, &s.Skipped, &done, &ahead, &due, &created, &update, &s.Principal, &spec, &recent}, more...)
	if err := row.Scan(to...); err != nil {
		return s, err
	}
	s.Done, s.Ahead, s.Due = dbkit.FromUnixMicros(done), dbkit.FromUnixMicros(ahead), dbkit.FromUnixMicros(due)
	s.CreateTime, s.UpdateTime = dbkit.FromUnixMicros(created), dbkit.FromUnixMicros(update)
	return s, schedule.Decode(&s, spec, recent)
}

func rows[T any](rs *sql.Rows, err error, scan func(*sql.Rows) (T, error)) (out []T, rerr error) {
	if err != nil {
		return nil, err
	}
	defer func() { rerr = errors.Join(rerr, rs.Close()) }()
	for rs.Next() {
		v, err := scan(rs)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rs.Err()
}

func jobs(k schedule.Key, at ...time.Time) []journal.JobRow {
	out := make([]journal.JobRow, len(at))
	for i, t := range at {
		out[i] = journal.MakeJob(k.Namespace, "", journal.ScheduleJob(k.Namespace, k.ID, t))
	}
	return out
}

// Create implements schedule.Store.
func (s *Store) Create(ctx context.Context, x schedule.Schedule, most int) error {
	spec, recent, err := schedule.Encode(&x)
	if err != nil {
		return err
	}
	return s.j.UpdateWithJobs(ctx, func(ctx context.Context, tx *sql.Tx, insert func([]journal.JobRow) error) error {
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM schedules WHERE namespace = ?`, x.Namespace).Scan(&n); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO schedules (namespace, id, uid, revision, turns, skipped, done, ahead, due, create_time, update_time, principal, spec, recent)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (namespace, id) DO NOTHING`,
			x.Namespace, x.ID, x.UID, x.Revision, x.Turns, x.Skipped, micros(x.Done), micros(x.Ahead), micros(x.Due), micros(x.CreateTime), micros(x.UpdateTime), x.Principal, spec, recent)
		if err != nil {
			return err
		}
		if made, err := res.RowsAffected(); err != nil || made == 0 {
			return errors.Join(err, schedule.Exists(x.ID))
		}
		if n >= most {
			return schedule.TooMany(most)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO schedule_bodies (uid, namespace, body) VALUES (?, ?, ?)`, x.UID, x.Namespace, x.Start); err != nil || x.Due.IsZero() {
			return err
		}
		return insert(jobs(x.Key, x.Due))
	})
}

const whole = `SELECT ` + columns + `, b.body FROM schedules s LEFT JOIN schedule_bodies b ON b.uid = s.uid WHERE s.namespace = ? AND s.id = ?`

func get(row *sql.Row, k schedule.Key) (schedule.Schedule, error) {
	var body []byte
	x, err := scan(row, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return x, schedule.NotFound(k.ID)
	}
	x.Start = body
	return x, err
}

// Get implements schedule.Store.
func (s *Store) Get(ctx context.Context, k schedule.Key) (schedule.Schedule, error) {
	return get(s.j.DB().Read.QueryRowContext(ctx, whole, k.Namespace, k.ID), k)
}

// List implements schedule.Store.
func (s *Store) List(ctx context.Context, namespace, after string, limit int) ([]schedule.Schedule, error) {
	rs, err := s.j.DB().Read.QueryContext(ctx, `SELECT `+columns+` FROM schedules s WHERE s.namespace = ? AND s.id > ? ORDER BY s.id LIMIT ?`, namespace, after, limit)
	return dbkit.CollectPage(ctx, rs, err, func(rs *sql.Rows) (schedule.Schedule, error) { return scan(rs) })
}

// Change implements schedule.Store.
func (s *Store) Change(ctx context.Context, k schedule.Key, f func(context.Context, schedule.Tx, *schedule.Schedule) (schedule.Change, error)) error {
	err := s.j.UpdateWithJobs(ctx, func(ctx context.Context, tx *sql.Tx, insert func([]journal.JobRow) error) error {
		x, err := get(tx.QueryRowContext(ctx, whole, k.Namespace, k.ID), k)
		if err != nil {
			return err
		}
		revision := x.Revision
		c, err := f(ctx, view{tx, k, x.UID}, &x)
		if err != nil {
			return err
		}
		spec, recent, err := schedule.Encode(&x)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE schedules SET revision = ?, turns = ?, skipped = ?, done = ?, ahead = ?, due = ?, update_time = ?, principal = ?, spec = ?, recent = ?
			WHERE namespace = ? AND id = ?`, x.Revision, x.Turns, x.Skipped, micros(x.Done), micros(x.Ahead), micros(x.Due), micros(x.UpdateTime), x.Principal, spec, recent, k.Namespace, k.ID)
		if err != nil {
			return err
		}
		if x.Revision != revision {
			if _, err := tx.ExecContext(ctx, `UPDATE schedule_bodies SET body = ? WHERE uid = ?`, x.Start, x.UID); err != nil {
				return err
			}
		}
		for _, st := range c.Put {
			_, err := tx.ExecContext(ctx, `INSERT INTO schedule_starts (uid, turn, namespace, time, tried, actual, origin, overlap, run_id, result, message, request_id, principal)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
				ON CONFLICT (uid, turn) DO UPDATE SET tried = excluded.tried, actual = excluded.actual, run_id = excluded.run_id, result = excluded.result,
					message = excluded.message`,
				x.UID, st.Turn, k.Namespace, micros(st.Time), micros(st.Tried), micros(st.Actual), int32(st.Origin), int32(st.Overlap), st.RunID, string(st.Result), st.Message, st.Request, st.Principal)
			if err != nil {
				return err
			}
		}
		return insert(jobs(k, c.Jobs...))
	})
	if errors.Is(err, schedule.ErrUnchanged) {
		return nil
	}
	return err
}

// Delete implements schedule.Store.
func (s *Store) Delete(ctx context.Context, k schedule.Key, revision int64) error {
	return s.j.DB().Update(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		var uid string
		var have int64
		err := tx.QueryRowContext(ctx, `DELETE FROM schedules WHERE namespace = ? AND id = ? RETURNING uid, revision`, k.Namespace, k.ID).Scan(&uid, &have)
		if errors.Is(err, sql.ErrNoRows) {
			return schedule.NotFound(k.ID)
		}
		if err != nil {
			return err
		}
		if revision != 0 && have != revision {
			return schedule.EtagMismatch(k.ID)
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM schedule_bodies WHERE uid = ?`, uid); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM schedule_starts WHERE uid = ? AND result = 'QUEUED'`, uid)
		return err
	})
}

// Overdue implements schedule.Store.
func (s *Store) Overdue(ctx context.Context, before time.Time, limit int) (int, error) {
	rs, err := s.j.DB().Read.QueryContext(ctx, `SELECT namespace, id FROM schedules WHERE due <> 0 AND due < ? ORDER BY due LIMIT ?`, micros(before), limit)
	found, err := rows(rs, err, func(rs *sql.Rows) (journal.JobRow, error) {
		var k schedule.Key
		err := rs.Scan(&k.Namespace, &k.ID)
		// Without a time, so that a job for its time which stands somewhere does not keep it out.
		return jobs(k, time.Time{})[0], err
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return len(found), s.j.UpdateWithJobs(ctx, func(_ context.Context, _ *sql.Tx, insert func([]journal.JobRow) error) error { return insert(found) })
}

// Forget implements schedule.Store.
func (s *Store) Forget(ctx context.Context, before time.Time, limit int) (n int, err error) {
	err = s.j.DB().Update(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM schedule_starts WHERE (uid, turn) IN
			(SELECT uid, turn FROM schedule_starts WHERE actual <> 0 AND actual < ? ORDER BY actual LIMIT ?)`, micros(before), limit)
		if err != nil {
			return err
		}
		many, err := res.RowsAffected()
		n = int(many)
		return err
	})
	return n, err
}

// view is a schedule.Tx.
type view struct {
	tx  *sql.Tx
	k   schedule.Key
	uid string
}

// Open implements schedule.Tx.
func (v view) Open(ctx context.Context, n int) ([]string, error) {
	rs, err := v.tx.QueryContext(ctx, `SELECT run_id FROM runs WHERE namespace = ? AND schedule_id = ? AND schedule_id <> '' AND state < 6 ORDER BY run_id LIMIT ?`, v.k.Namespace, v.k.ID, n)
	return rows(rs, err, func(rs *sql.Rows) (id string, err error) { return id, rs.Scan(&id) })
}

func (v view) starts(ctx context.Context, where string, args ...any) ([]schedule.Start, error) {
	rs, err := v.tx.QueryContext(ctx, `SELECT turn, time, tried, actual, origin, overlap, run_id, result, message, request_id, principal FROM schedule_starts WHERE `+where, args...)
	return rows(rs, err, func(rs *sql.Rows) (st schedule.Start, err error) {
		var at, tried, actual int64
		err = rs.Scan(&st.Turn, &at, &tried, &actual, &st.Origin, &st.Overlap, &st.RunID, &st.Result, &st.Message, &st.Request, &st.Principal)
		st.Time, st.Tried, st.Actual = dbkit.FromUnixMicros(at), dbkit.FromUnixMicros(tried), dbkit.FromUnixMicros(actual)
		return st, err
	})
}

// Queue implements schedule.Tx.
func (v view) Queue(ctx context.Context) ([]schedule.Start, error) {
	return v.starts(ctx, `uid = ? AND result = 'QUEUED' ORDER BY turn`, v.uid)
}

// Times implements schedule.Tx.
func (v view) Times(ctx context.Context, begin, end time.Time) ([]schedule.Start, error) {
	return v.starts(ctx, `uid = ? AND time >= ? AND time < ? AND origin < 2 ORDER BY time, turn`, v.uid, micros(begin), micros(end))
}

// Request implements schedule.Tx.
func (v view) Request(ctx context.Context, id string) (uid string, st schedule.Start, found bool, err error) {
	list, err := v.starts(ctx, `namespace = ? AND request_id = ? AND request_id <> ''`, v.k.Namespace, id)
	if err != nil || len(list) == 0 {
		return "", st, false, err
	}
	err = v.tx.QueryRowContext(ctx, `SELECT uid FROM schedule_starts WHERE namespace = ? AND request_id = ? AND request_id <> ''`, v.k.Namespace, id).Scan(&uid)
	return uid, list[0], err == nil, err
}
