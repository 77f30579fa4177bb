package sqlite

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

const (
	// riverTime is the form in which River keeps times; others compare wrongly with its own.
	riverTime = "2006-01-02 15:04:05.000"
	// insertJob writes into River's table. A job that waits already is not written again. 129 is the mask
	// of available (1) and scheduled (128).
	insertJob = `INSERT INTO river_job (kind, queue, args, priority, scheduled_at, state, max_attempts, unique_key, unique_states)
		VALUES (?, ?, jsonb(?), ?, ?, ?, 1000, ?, 129)
		ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND CASE state
			WHEN 'available' THEN unique_states & (1 << 0) WHEN 'cancelled' THEN unique_states & (1 << 1) WHEN 'completed' THEN unique_states & (1 << 2)
			WHEN 'discarded' THEN unique_states & (1 << 3) WHEN 'pending' THEN unique_states & (1 << 4) WHEN 'retryable' THEN unique_states & (1 << 5)
			WHEN 'running' THEN unique_states & (1 << 6) WHEN 'scheduled' THEN unique_states & (1 << 7) ELSE 0 END >= 1
		DO NOTHING`
	// wakesSQL finds out whether a run has commands and no owner.
	wakesSQL = `SELECT count(*) FROM runs r WHERE r.run_id = ? AND r.state < 6 AND NOT` + live + `
		AND EXISTS (SELECT 1 FROM commands m WHERE m.run_id = r.run_id)`
)

// freedSQL finds out whether a run holds a thread for which a message waits.
func freedSQL() string {
	return `SELECT count(*) FROM threads t WHERE t.holder = ? AND` + sqlstore.TurnsWait(dbkit.DialectSQLite)
}

// queueTables brings River's tables up, which live in our file.
func (s *Store) queueTables() dbkit.Step {
	migrator := func() (*rivermigrate.Migrator[*sql.Tx], error) {
		return rivermigrate.New(riversqlite.New(s.db.Write), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	}
	return dbkit.Step{
		Name: "job tables",
		Up: func(ctx context.Context) (int, error) {
			m, err := migrator()
			if err != nil {
				return 0, err
			}
			res, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil)
			if err != nil {
				return 0, err
			}
			return len(res.Versions), nil
		},
		Current: func(ctx context.Context) (bool, error) {
			m, err := migrator()
			if err != nil {
				return false, err
			}
			var n, have int
			if err := s.db.Read.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'river_migration'`).Scan(&n); err != nil || n == 0 {
				return false, err
			}
			versions := m.AllVersions()
			err = s.db.Read.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM river_migration`).Scan(&have)
			return have >= versions[len(versions)-1].Version, err
		},
	}
}

// jobs inserts jobs whatever their runs do.
func (t txn) jobs(ctx context.Context, jobs []journal.JobRow) error {
	for i := range jobs {
		if _, err := t.job(ctx, &jobs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t txn) job(ctx context.Context, j *journal.JobRow) (inserted bool, err error) {
	now := time.Now()
	n, err := t.exec(ctx, insertJob, jobArgs(j, now)...)
	if n > 0 && !j.At.After(now) {
		t.queued[j.Queue] = true
	}
	return n > 0, err
}

// jobArgs are the arguments of insertJob.
func jobArgs(j *journal.JobRow, now time.Time) []any {
	at, state := now, "available"
	if j.At.After(now) {
		// River's leader looks every five seconds for scheduled jobs that are due within the next five. A
		// job that is due before long must not wait for that: it is available at once, and workers leave it
		// alone until its time.
		if at = j.At; at.Sub(now) > 10*time.Second {
			state = "scheduled"
		}
	}
	return []any{j.Kind, j.Queue, string(j.Args), j.Priority, at.UTC().Format(riverTime), state, j.Unique}
}

// jobsIf inserts the jobs of those runs for which a query, whose parameter is the run, counts something.
func (t txn) jobsIf(ctx context.Context, query string, jobs []journal.JobRow) error {
	for i := range jobs {
		var n int
		if err := t.row(ctx, query, jobs[i].RunID).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			if _, err := t.job(ctx, &jobs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// InsertJobs makes the statements that insert jobs in a transaction of this file that is not the journal's.
func InsertJobs(jobs []journal.JobRow) []dbkit.Stmt {
	now := time.Now()
	stmts := make([]dbkit.Stmt, len(jobs))
	for i := range jobs {
		stmts[i] = dbkit.Stmt{Query: insertJob, Args: jobArgs(&jobs[i], now)}
	}
	return stmts
}

// AnnounceJobs tells this process's workers of jobs that another store has inserted.
func (s *Store) AnnounceJobs(jobs []journal.JobRow) {
	now := time.Now()
	queues := map[string]bool{}
	for _, j := range jobs {
		if !j.At.After(now) {
			queues[j.Queue] = true
		}
	}
	s.announce(queues)
}

// InsertJobs implements journal.Jobs.
func (s *Store) InsertJobs(ctx context.Context, namespace string, jobs []journal.Job) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		for _, j := range jobs {
			row := journal.MakeJob(namespace, "", j)
			if _, err := t.job(ctx, &row); err != nil {
				return err
			}
		}
		return nil
	})
}

// SweepOwnerless implements journal.Members.
func (s *Store) SweepOwnerless(ctx context.Context, late time.Duration, limit int) (n int, err error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT * FROM (SELECT namespace, run_id FROM runs WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time > 0 AND wake_time < `+now+` - ?1
			ORDER BY wake_time LIMIT ?2)
		UNION
		SELECT * FROM (SELECT m.namespace, m.run_id FROM commands m WHERE m.time < `+now+` - ?1
			AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = m.run_id AND r.owner_id = '' AND r.state < 6) ORDER BY m.id LIMIT ?2)`, late.Microseconds(), limit)
	found, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (journal.JobRow, error) {
		var ns, id string
		err := rows.Scan(&ns, &id)
		return journal.MakeJob(ns, id, journal.Job{Kind: journal.JobWake}), err
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		n = 0
		for i := range found {
			inserted, err := t.job(ctx, &found[i])
			if err != nil {
				return err
			}
			if inserted {
				n++
			}
		}
		return nil
	})
	return n, err
}

// ReadyJobs implements journal.Members. Nothing is written when nothing is due.
func (s *Store) ReadyJobs(ctx context.Context, ahead time.Duration, limit int) (n int, err error) {
	const due = ` FROM river_job WHERE state = 'scheduled' AND queue = ? AND priority BETWEEN 1 AND 4 AND scheduled_at <= ?`
	for _, q := range journal.Queues() {
		until := time.Now().Add(ahead).UTC().Format(riverTime)
		var some bool
		if err := s.db.Read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1`+due+`)`, q, until).Scan(&some); err != nil || !some {
			if err != nil {
				return n, err
			}
			continue
		}
		if err := s.update(ctx, func(ctx context.Context, t txn) error {
			ready, err := t.exec(ctx, `UPDATE river_job SET state = 'available' WHERE id IN (SELECT id`+due+` ORDER BY priority, scheduled_at, id LIMIT ?)`, q, until, limit)
			if ready > 0 {
				t.queued[q] = true
				n += int(ready)
			}
			return err
		}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// announce tells this process's workers which queues got jobs; others on the same file poll.
func (s *Store) announce(queues map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.feeds {
		for q := range queues {
			select {
			case ch <- q:
			default:
			}
		}
	}
}

// unsent holds for the jobs of what was said in a thread, of a queue, a namespace and a thread.
const unsent = ` AND queue = ? AND kind = 'webhook' AND json_extract(args, '$.event') = 'chat.said'
	AND json_extract(args, '$.namespace') = ? AND json_extract(args, '$.thread') = ? AND json_extract(args, '$.seq')`

// LastUnsent implements journal.Members.
func (s *Store) LastUnsent(ctx context.Context, namespace, thread string, before int64) (seq int64, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT coalesce(max(json_extract(args, '$.seq')), 0) FROM river_job
		WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled')`+unsent+` < ?`, journal.JobWebhook.Queue(), namespace, thread, before).Scan(&seq)
	return seq, err
}

// WakeUnsent implements journal.Members.
func (s *Store) WakeUnsent(ctx context.Context, namespace, thread string, after int64) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		t.queued[journal.JobWebhook.Queue()] = true
		_, err := t.exec(ctx, `UPDATE river_job SET state = 'available', scheduled_at = ? WHERE state IN ('available', 'scheduled')`+unsent+` > ?`,
			time.Now().UTC().Format(riverTime), journal.JobWebhook.Queue(), namespace, thread, after)
		return err
	})
}
