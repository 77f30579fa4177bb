// Package sqlstore holds the SQL of the journal that PostgreSQL and SQLite share: reads, commands, workers,
// interrupts, the outbox, kept outcomes, blobs, deletes and retention. What differs is a fragment of
// dbkit.Dialect, or a text that the driver gives. The drivers hold the rest: commits, locks, take-overs,
// notices, jobs and partitions. It must not know which driver calls it, nor what events mean.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Database describes the database to the store.
type Database struct {
	// Read answers the API. It reports a server that cannot be reached by Away.
	Read dbkit.Pool
	// Engine serves the executor itself, and returns errors as they are. It may be the same as Read.
	Engine  dbkit.Pool
	Dialect dbkit.Dialect
	// DueOutbox is a CTE up to its "due (id)", with $1 as the limit: see ClaimOutbox.
	DueOutbox string
	// TellThread makes the outbox items of changes of threads; nil makes none.
	TellThread journal.TellThread
	// TryLock returns whether the transaction now holds the lock named $1; WaitLock waits for the lock.
	// Empty means that a transaction is alone anyway.
	TryLock, WaitLock string
	// NotifyWorkers wakes the executors that wait for workers, at the commit. Empty means that the driver
	// does it itself.
	NotifyWorkers string
	// NotifyOwner tells the executor $1, at the commit, that there are commands for a run of it. Empty means
	// that the driver does it itself.
	NotifyOwner string
	// InsertJobs makes the statements that insert jobs, and tell the workers of their queues at the commit. A
	// driver may do the latter itself.
	InsertJobs func([]journal.JobRow) []dbkit.Stmt
	// Suspicions are those queries of Store.Suspicions that only this database has.
	Suspicions map[journal.Suspicion]string
	// Timeout ends the statements of a transaction after a number of milliseconds, $1. Empty means that the
	// end of the context does.
	Timeout string
	// ByValue goes before the arguments of a statement that is to be planned for them.
	ByValue []any
}

// Store is the shared part of a journal. It is safe for concurrent use.
type Store struct {
	db Database
	d  dbkit.Dialect
	statements
}

// New returns the shared part of the journal in a database. The database stays the caller's.
func New(db Database) *Store {
	return &Store{db: db, d: db.Dialect, statements: newStatements(db.Dialect)}
}

// Away turns the error of a server that cannot be reached into the error for callers of the API: it is
// neither their fault nor ours. Other errors stay as they are.
func Away(err error) error {
	if dbkit.ConnectionLost(err) {
		return errs.DatabaseUnreachable("executor").With(err)
	}
	return err
}

// none reports whether a row was not there.
func none(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// write runs one statement of the engine for its effect.
func (s *Store) write(ctx context.Context, query string, args ...any) error {
	_, err := s.db.Engine.Exec(ctx, query, args...)
	return err
}
