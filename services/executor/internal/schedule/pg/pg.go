// Package pg keeps schedules in the schema of the journal in a PostgreSQL database, for any number of
// executors. It owns the SQL and the locks of that driver; package schedule decides about times.
package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
)

// Conns are how many connections the pool has: for firing and for the API.
const Conns = 4

var _ schedule.Store = (*Store)(nil)

// Store is a schedule.Store with a small pool of its own: a firing must wait neither for readers nor for
// commits.
type Store struct{ pool *pgxpool.Pool }

// Open connects. The journal's migrations make the tables.
func Open(ctx context.Context, url string, tracer trace.TracerProvider) (*Store, error) {
	pool, err := dbkit.OpenPostgres(ctx, url, journalpg.Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor-schedules", TracerProvider: tracer, MaxConns: Conns, ByIndex: true,
	})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool}, nil
}

// Close implements schedule.Store.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

func null(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = dbkit.Micros(t)
	return &t
}

func whole(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

const columns = `s.namespace, s.id, s.uid, s.revision, s.turns, s.skipped, s.done, s.ahead, s.due, s.create_time, s.update_time, s.principal, s.spec, s.recent`

func scan(row pgx.Row, more ...any) (schedule.Schedule, error) {
	var (
		s            schedule.Schedule
		ahead, due   *time.Time
		spec, recent []byte
	)
	to := append([]any{&s.Namespace, &s.ID, &s.UID, &s.Revision, &s.Turns, &s.Skipped, &s.Done, &ahead, &due, &s.CreateTime, &s.UpdateTime, &s.Principal, &spec, &recent}, more...)
	if err := row.Scan(to...); err != nil {
		return s, err
	}
	s.Done, s.CreateTime, s.UpdateTime, s.Ahead, s.Due = s.Done.UTC(), s.CreateTime.UTC(), s.UpdateTime.UTC(), whole(ahead), whole(due)
	return s, schedule.Decode(&s, spec, recent)
}

// Create implements schedule.Store.
func (s *Store) Create(ctx context.Context, x schedule.Schedule, most int) error {
	spec, recent, err := schedule.Encode(&x)
	if err != nil {
		return err
	}
	return dbkit.PostgresTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		// Two that create at once must not both find room for one.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('epigraph/schedules/' || $1, 0))`, x.Namespace); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM schedules WHERE namespace = $1`, x.Namespace).Scan(&n); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO schedules (namespace, id, uid, revision, turns, skipped, done, ahead, due, create_time, update_time, principal, spec, recent)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (namespace, id) DO NOTHING`,
			x.Namespace, x.ID, x.UID, x.Revision, x.Turns, x.Skipped, dbkit.Micros(x.Done), null(x.Ahead), null(x.Due), x.CreateTime, x.UpdateTime, x.Principal, spec, recent)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return schedule.Exists(x.ID)
		}
		if n >= most {
			return schedule.TooMany(most)
		}
		var b pgx.Batch
		b.Queue(`INSERT INTO schedule_bodies (uid, namespace, body) VALUES ($1, $2, $3)`, x.UID, x.Namespace, x.Start)
		if !x.Due.IsZero() {
			queueJobs(&b, x.Key, x.Due)
		}
		return tx.SendBatch(ctx, &b).Close()
	})
}

func queueJobs(b *pgx.Batch, k schedule.Key, at ...time.Time) {
	rows := make([]journal.JobRow, len(at))
	for i, t := range at {
		rows[i] = journal.MakeJob(k.Namespace, "", journal.ScheduleJob(k.Namespace, k.ID, t))
	}
	journalpg.QueueJobs(b, rows)
}

// Get implements schedule.Store.
func (s *Store) Get(ctx context.Context, k schedule.Key) (schedule.Schedule, error) {
	var body []byte
	x, err := scan(s.pool.QueryRow(ctx, `SELECT `+columns+`, b.body FROM schedules s LEFT JOIN schedule_bodies b ON b.uid = s.uid
		WHERE s.namespace = $1 AND s.id = $2`, k.Namespace, k.ID), &body)
	if errors.Is(err, pgx.ErrNoRows) {
		return x, schedule.NotFound(k.ID)
	}
	x.Start = body
	return x, err
}

// List implements schedule.Store.
func (s *Store) List(ctx context.Context, namespace, after string, limit int) ([]schedule.Schedule, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+columns+` FROM schedules s WHERE s.namespace = $1 AND s.id > $2 ORDER BY s.id LIMIT $3`, namespace, after, limit)
	return dbkit.CollectPagePostgres(ctx, rows, err, func(row pgx.CollectableRow) (schedule.Schedule, error) { return scan(row) })
}

// Change implements schedule.Store.
func (s *Store) Change(ctx context.Context, k schedule.Key, f func(context.Context, schedule.Tx, *schedule.Schedule) (schedule.Change, error)) error {
	err := dbkit.PostgresTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		x, err := scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM schedules s WHERE s.namespace = $1 AND s.id = $2 FOR UPDATE`, k.Namespace, k.ID))
		if errors.Is(err, pgx.ErrNoRows) {
			return schedule.NotFound(k.ID)
		}
		if err != nil {
			return err
		}
		// This is a separate statement: a statement that waits for a lock sees the locked row as it is now,
		// but the rows joined to it as they were.
		if err := tx.QueryRow(ctx, `SELECT body FROM schedule_bodies WHERE uid = $1`, x.UID).Scan(&x.Start); err != nil && !errors.Is(err, pgx.ErrNoRows) {
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
		var b pgx.Batch
		b.Queue(`UPDATE schedules SET revision = $3, turns = $4, skipped = $5, done = $6, ahead = $7, due = $8, update_time = $9, principal = $10, spec = $11, recent = $12
			WHERE namespace = $1 AND id = $2`, k.Namespace, k.ID, x.Revision, x.Turns, x.Skipped, dbkit.Micros(x.Done), null(x.Ahead), null(x.Due), x.UpdateTime, x.Principal, spec, recent)
		if x.Revision != revision {
			b.Queue(`UPDATE schedule_bodies SET body = $2 WHERE uid = $1`, x.UID, x.Start)
		}
		for _, st := range c.Put {
			b.Queue(`INSERT INTO schedule_starts (uid, turn, namespace, time, tried, actual, origin, overlap, run_id, result, message, request_id, principal)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
				ON CONFLICT (uid, turn) DO UPDATE SET tried = excluded.tried, actual = excluded.actual, run_id = excluded.run_id, result = excluded.result,
					message = excluded.message`,
				x.UID, st.Turn, k.Namespace, st.Time, null(st.Tried), null(st.Actual), int32(st.Origin), int32(st.Overlap), st.RunID, string(st.Result), st.Message, st.Request, st.Principal)
		}
		if len(c.Jobs) > 0 {
			queueJobs(&b, k, c.Jobs...)
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if errors.Is(err, schedule.ErrUnchanged) {
		return nil
	}
	return err
}

// Delete implements schedule.Store.
func (s *Store) Delete(ctx context.Context, k schedule.Key, revision int64) error {
	return dbkit.PostgresTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		var uid string
		var have int64
		err := tx.QueryRow(ctx, `DELETE FROM schedules WHERE namespace = $1 AND id = $2 RETURNING uid, revision`, k.Namespace, k.ID).Scan(&uid, &have)
		if errors.Is(err, pgx.ErrNoRows) {
			return schedule.NotFound(k.ID)
		}
		if err != nil {
			return err
		}
		if revision != 0 && have != revision {
			return schedule.EtagMismatch(k.ID)
		}
		var b pgx.Batch
		b.Queue(`DELETE FROM schedule_bodies WHERE uid = $1`, uid)
		b.Queue(`DELETE FROM schedule_starts WHERE uid = $1 AND result = 'QUEUED'`, uid)
		return tx.SendBatch(ctx, &b).Close()
	})
}

// Overdue implements schedule.Store.
func (s *Store) Overdue(ctx context.Context, before time.Time, limit int) (int, error) {
	rows, err := s.pool.Query(ctx, `SELECT namespace, id FROM schedules WHERE due < $1 ORDER BY due LIMIT $2`, before, limit)
	if err != nil {
		return 0, err
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (journal.JobRow, error) {
		var k schedule.Key
		err := row.Scan(&k.Namespace, &k.ID)
		// Without a time, so that a job for its time which stands somewhere does not keep it out.
		return journal.MakeJob(k.Namespace, "", journal.ScheduleJob(k.Namespace, k.ID, time.Time{})), err
	})
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	var b pgx.Batch
	journalpg.QueueJobs(&b, jobs)
	return len(jobs), s.pool.SendBatch(ctx, &b).Close()
}

// Forget implements schedule.Store.
func (s *Store) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, `DELETE FROM schedule_starts WHERE (uid, turn) IN (SELECT uid, turn FROM schedule_starts WHERE actual < $1 ORDER BY actual LIMIT $2)`, before, limit)
	return int(tag.RowsAffected()), err
}

// view is a schedule.Tx.
type view struct {
	tx  pgx.Tx
	k   schedule.Key
	uid string
}

// Open implements schedule.Tx.
func (v view) Open(ctx context.Context, n int) ([]string, error) {
	rows, err := v.tx.Query(ctx, `SELECT run_id FROM runs WHERE namespace = $1 AND schedule_id = $2 AND schedule_id <> '' AND state < 6 ORDER BY run_id LIMIT $3`, v.k.Namespace, v.k.ID, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const startColumns = `turn, time, tried, actual, origin, overlap, run_id, result, message, request_id, principal`

func scanStart(row pgx.CollectableRow) (schedule.Start, error) {
	var st schedule.Start
	var tried, actual *time.Time
	err := row.Scan(&st.Turn, &st.Time, &tried, &actual, &st.Origin, &st.Overlap, &st.RunID, &st.Result, &st.Message, &st.Request, &st.Principal)
	st.Time, st.Tried, st.Actual = st.Time.UTC(), whole(tried), whole(actual)
	return st, err
}

func (v view) starts(ctx context.Context, where string, args ...any) ([]schedule.Start, error) {
	rows, err := v.tx.Query(ctx, `SELECT `+startColumns+` FROM schedule_starts WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanStart)
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
	err = v.tx.QueryRow(ctx, `SELECT uid FROM schedule_starts WHERE namespace = $1 AND request_id = $2 AND request_id <> ''`, v.k.Namespace, id).Scan(&uid)
	return uid, list[0], err == nil, err
}
