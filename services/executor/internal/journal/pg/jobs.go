package pg

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

const (
	// River's leader looks every five seconds for scheduled jobs that are due within the next five. A job
	// that is due before long must not wait for that: it is available at once, and workers leave it alone
	// until its time. insertJobs and uniqueJobs are the two ends of an insert into River's table. A job
	// that waits already is not written again.
	insertJobs = `INSERT INTO river_job (kind, queue, args, priority, scheduled_at, state, max_attempts, unique_key, unique_states)
		SELECT j.kind, j.queue, convert_from(j.args, 'UTF8')::jsonb, j.priority, coalesce(j.at, now()),
			CASE WHEN j.at > now() + interval '10 seconds' THEN 'scheduled' ELSE 'available' END::river_job_state, 1000, j.unique_key, B'10000001'`
	uniqueJobs = `ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND river_job_state_in_bitmask(unique_states, state) DO NOTHING`
	// notifyQueue is what River's workers listen for. Its column q is the queue.
	notifyQueue = `pg_notify('` + Schema + `.river_insert', '{"queue": "' || q || '"}')`

	// ownerless holds for a run that is open and that no registered executor owns.
	ownerless = ` r.state < 6 AND NOT EXISTS (SELECT FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation)`
)

// JobDriver is what the workers of the queue reach the jobs by. It serves for as long as the store is open.
func (s *Store) JobDriver() riverdriver.Driver[pgx.Tx] { return riverpgxv5.New(s.jobs) }

// queueTables brings River's tables up, which live in our schema.
func (s *Store) queueTables() dbkit.Step {
	migrator := func() (*rivermigrate.Migrator[pgx.Tx], error) {
		return rivermigrate.New(riverpgxv5.New(s.jobs), &rivermigrate.Config{Schema: Schema, Logger: slog.New(slog.DiscardHandler)})
	}
	return dbkit.Step{
		Name: "job tables",
		Up: func(ctx context.Context) (n int, err error) {
			m, err := migrator()
			if err != nil {
				return 0, err
			}
			// The lock is that of this connection; the migrator uses others.
			guard, err := s.hot.Acquire(ctx)
			if err != nil {
				return 0, err
			}
			defer guard.Release()
			const name = `hashtextextended('epigraph/migrate/` + Schema + `/river', 0)`
			if _, err := guard.Exec(ctx, `SELECT pg_advisory_lock(`+name+`)`); err != nil {
				return 0, err
			}
			defer func() {
				_, uerr := guard.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock(`+name+`)`)
				err = errors.Join(err, uerr)
			}()
			res, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil)
			if err != nil {
				return 0, err
			}
			// Nothing here looks for jobs by what is in them, and each insert would pay for it.
			_, err = guard.Exec(ctx, `DROP INDEX IF EXISTS river_job_args_index, river_job_metadata_index`)
			return len(res.Versions), err
		},
		Current: func(ctx context.Context) (bool, error) {
			m, err := migrator()
			if err != nil {
				return false, err
			}
			res, err := m.Validate(ctx, nil)
			if err != nil {
				return false, err
			}
			return res.OK, nil
		},
	}
}

// jobInserts inserts the jobs of runs.
func jobInserts() statement[journal.JobRow] {
	return newStatement("jb", "j", "j.run_id", sqlstore.Columns[journal.JobRow]{
		sqlstore.Col("run_id", "text", func(j journal.JobRow) string { return j.RunID }),
		sqlstore.Col("kind", "text", func(j journal.JobRow) string { return j.Kind }),
		sqlstore.Col("queue", "text", func(j journal.JobRow) string { return j.Queue }),
		sqlstore.Col("args", "bytea", func(j journal.JobRow) []byte { return j.Args }),
		sqlstore.Col("priority", "int", func(j journal.JobRow) int32 { return int32(j.Priority) }),
		sqlstore.Col("at", "timestamptz", func(j journal.JobRow) *time.Time { return null(j.At) }),
		sqlstore.Col("unique_key", "bytea", func(j journal.JobRow) []byte { return j.Unique }),
	}, func(from, only string, _ int) string { return insertJobs + " FROM " + from + only + " " + uniqueJobs })
}

// queueWakes inserts the wake-up jobs of those runs that have commands and no owner. The rows of the runs
// must be locked, so that neither an owner that leaves nor one that comes is missed.
func (s *statements) queueWakes(b *pgx.Batch, wakes []journal.JobRow) {
	b.Queue(`WITH jb AS (`+insertJobs+` FROM `+s.jobs.from(1, "j")+` CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.run_id = j.run_id AND`+ownerless+`
			AND`+hasCommands+` OFFSET 0) r `+uniqueJobs+` RETURNING queue AS q)
		SELECT `+notifyQueue+` FROM (SELECT DISTINCT q FROM jb) d`, s.jobs.args(wakes)...)
}

// queueFreed inserts the jobs of those runs that hold threads for which messages wait. Whoever queues a
// message locks the row of the holder first, and the commit has locked it before: so none is missed.
func (s *statements) queueFreed(b *pgx.Batch, freed []journal.JobRow) {
	b.Queue(`WITH jb AS (`+insertJobs+` FROM `+s.jobs.from(1, "j")+` CROSS JOIN LATERAL (SELECT FROM threads t WHERE t.holder = j.run_id AND`+
		sqlstore.TurnsWait(dbkit.DialectPostgres)+` OFFSET 0 LIMIT 1) t `+uniqueJobs+` RETURNING queue AS q)
		SELECT `+notifyQueue+` FROM (SELECT DISTINCT q FROM jb) d`, s.jobs.args(freed)...)
}

// jobStatement inserts jobs whatever their runs do.
func (s *statements) jobStatement(jobs []journal.JobRow) (query string, args []any) {
	return `WITH jb AS (` + insertJobs + ` FROM ` + s.jobs.from(1, "j") + ` ` + uniqueJobs + ` RETURNING queue AS q)
		SELECT ` + notifyQueue + ` FROM (SELECT DISTINCT q FROM jb) d`, s.jobs.args(jobs)
}

// queueJobs adds jobStatement to a batch.
func (s *statements) queueJobs(b *pgx.Batch, jobs []journal.JobRow) {
	query, args := s.jobStatement(jobs)
	b.Queue(query, args...)
}

// queueNotices tells the workers of queues that they have jobs.
func queueNotices(b *pgx.Batch, queues []string) {
	b.Queue(`SELECT `+notifyQueue+` FROM unnest($1::text[]) AS d (q)`, queues)
}

// InsertJobs makes the statements that insert jobs in a transaction of this schema that is not the journal's.
func InsertJobs(jobs []journal.JobRow) []dbkit.Stmt {
	s := statements{jobs: jobInserts()}
	return s.insertJobs(jobs)
}

func (s *statements) insertJobs(jobs []journal.JobRow) []dbkit.Stmt {
	query, args := s.jobStatement(jobs)
	return []dbkit.Stmt{{Query: query, Args: args}}
}

// InsertJobs implements journal.Jobs.
func (s *Store) InsertJobs(ctx context.Context, namespace string, jobs []journal.Job) error {
	rows := make([]journal.JobRow, len(jobs))
	for i, j := range jobs {
		rows[i] = journal.MakeJob(namespace, "", j)
	}
	var b pgx.Batch
	s.sql.queueJobs(&b, rows)
	return s.hot.SendBatch(ctx, &b).Close()
}

// SweepOwnerless implements journal.Members.
func (s *Store) SweepOwnerless(ctx context.Context, late time.Duration, limit int) (n int, err error) {
	rows, err := s.hot.Query(ctx, `(SELECT namespace, run_id FROM runs WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time < now() - $1::interval
			ORDER BY wake_time LIMIT $2)
		UNION
		SELECT namespace, run_id FROM (SELECT m.namespace, m.run_id FROM commands m WHERE m.time < now() - $1::interval
			AND (SELECT r.owner_id = '' AND r.state < 6 FROM runs r WHERE r.run_id = m.run_id) ORDER BY m.id LIMIT $2) x`, interval(late), limit)
	jobs, err := collect(rows, err, func(row pgx.CollectableRow) (journal.JobRow, error) {
		var ns, id string
		err := row.Scan(&ns, &id)
		return journal.MakeJob(ns, id, journal.Job{Kind: journal.JobWake}), err
	})
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	tag, err := s.hot.Exec(ctx, insertJobs+` FROM `+s.sql.jobs.from(1, "j")+` `+uniqueJobs, s.sql.jobs.args(jobs)...)
	if err != nil || tag.RowsAffected() == 0 {
		return 0, err
	}
	_, err = s.hot.Exec(ctx, `SELECT `+notifyQueue+` FROM (SELECT $1::text AS q) d`, journal.JobWake.Queue())
	return int(tag.RowsAffected()), err
}

// readyJobs looks at each queue and priority by itself, so that the index gives what is due soon and
// nothing else. It skips rows that River's leader has locked: the leader is making them available.
const readyJobs = `WITH due AS (SELECT d.id FROM unnest($3::text[]) AS q (queue) CROSS JOIN generate_series(1, 4) AS p (priority)
			CROSS JOIN LATERAL (SELECT j.id FROM river_job j WHERE j.state = 'scheduled' AND j.queue = q.queue AND j.priority = p.priority
				AND j.scheduled_at <= now() + $1::interval ORDER BY j.scheduled_at, j.id LIMIT $2 FOR UPDATE SKIP LOCKED) d),
		ready AS (UPDATE river_job j SET state = 'available' FROM due WHERE j.id = due.id RETURNING j.queue AS q, j.scheduled_at)
	SELECT count(*), (SELECT count(*) FROM (SELECT ` + notifyQueue + ` FROM (SELECT DISTINCT q FROM ready WHERE scheduled_at <= now()) d) n) FROM ready`

// ReadyJobs implements journal.Members.
func (s *Store) ReadyJobs(ctx context.Context, ahead time.Duration, limit int) (n int, err error) {
	var told int
	err = s.hot.QueryRow(ctx, readyJobs, interval(ahead), limit, journal.Queues()).Scan(&n, &told)
	return n, err
}

// lastUnsent looks arguments up in the index of River that holds them. The case keeps those of other
// kinds from being read as numbers.
const lastUnsent = `SELECT coalesce(max(CASE WHEN j.kind = 'webhook' THEN (j.args ->> 'seq')::bigint END), 0) FROM river_job j
	WHERE j.kind = 'webhook' AND j.finalized_at IS NULL AND j.args @> jsonb_build_object('event', 'chat.said', 'namespace', $1::text, 'thread', $2::text)
	AND CASE WHEN j.kind = 'webhook' THEN (j.args ->> 'seq')::bigint END < $3`

const wakeUnsent = `WITH ready AS (UPDATE river_job j SET state = 'available', scheduled_at = now()
		WHERE j.kind = 'webhook' AND j.finalized_at IS NULL AND j.state IN ('available', 'scheduled') AND j.args @> jsonb_build_object('event', 'chat.said', 'namespace', $1::text, 'thread', $2::text)
		AND CASE WHEN j.kind = 'webhook' THEN (j.args ->> 'seq')::bigint END > $3 RETURNING j.queue AS q)
	SELECT count(*) FROM (SELECT ` + notifyQueue + ` FROM (SELECT DISTINCT q FROM ready) d) n`

// WakeUnsent implements journal.Members.
func (s *Store) WakeUnsent(ctx context.Context, namespace, thread string, after int64) error {
	_, err := s.hot.Exec(ctx, wakeUnsent, namespace, thread, after)
	return err
}

// LastUnsent implements journal.Members.
func (s *Store) LastUnsent(ctx context.Context, namespace, thread string, before int64) (seq int64, err error) {
	err = s.hot.QueryRow(ctx, lastUnsent, namespace, thread, before).Scan(&seq)
	return seq, err
}
