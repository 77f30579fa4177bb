// Package dbkit owns the plumbing that every SQL store shares: opening SQLite and PostgreSQL with
// the settings the suite relies on, running a closure in a transaction with retries, applying
// embedded migrations, and the one precision of time. It must not know any table of any service.
package dbkit

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

const (
	// ReasonUnreachable is the reason of an Unavailable error when the database cannot be reached or opened.
	ReasonUnreachable = errs.ReasonDatabaseUnreachable
	// ReasonFileMissing is the reason of a NotFound error when there is no SQLite file of that name.
	ReasonFileMissing = "SQLITE_FILE_MISSING"
	// ReasonDamaged is the reason of a FailedPrecondition error when a file is no database that can be read.
	ReasonDamaged = "DATABASE_DAMAGED"

	maxTries  = 8
	firstWait = 2 * time.Millisecond
	longWait  = 200 * time.Millisecond
)

// Now returns the present as stores keep it: UTC, whole microseconds, no monotonic part.
func Now() time.Time { return Micros(time.Now()) }

// Micros rounds t down to the precision of the stores, so that a time is read back as it was written. The
// zero time stays the zero time.
func Micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// ToUnixMicros is the integer form in which SQLite stores keep a time; the zero time becomes 0.
func ToUnixMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromUnixMicros is the inverse of ToUnixMicros.
func FromUnixMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Retryable reports whether err means that a transaction lost a race and may simply be run again:
// a PostgreSQL serialization failure or deadlock, or a busy SQLite file.
func Retryable(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "40001" || pg.Code == "40P01"
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		code := lite.Code() & 0xff
		return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
	}
	return false
}

// UniqueViolation reports whether err is a breach of a unique or primary-key constraint. The name is
// the constraint on PostgreSQL and the driver's text on SQLite.
func UniqueViolation(err error) (name string, ok bool) {
	if pg, found := errors.AsType[*pgconn.PgError](err); found && pg.Code == "23505" {
		return pg.ConstraintName, true
	}
	if lite, found := errors.AsType[*sqlite.Error](err); found &&
		(lite.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || lite.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY) {
		return lite.Error(), true
	}
	return "", false
}

// ConnectionLost reports whether err means that the server went away or could not be reached. The fate of a
// commit under way is then unknown.
func ConnectionLost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Class 08 is connection trouble, 57P01-57P03 a server that shuts down or starts, 53300 a server
		// without a free connection.
		return strings.HasPrefix(pg.Code, "08") || pg.Code == "57P01" || pg.Code == "57P02" || pg.Code == "57P03" || pg.Code == "53300"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*sqlite.Error](err); ok {
		return false
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return false
	}
	return isNetwork(err)
}

// awayTexts are in errors of a server that cannot be reached, when only their text is left.
var awayTexts = []string{
	"failed to connect", "connection refused", "connection reset", "broken pipe", "conn closed", "closed pool", "unexpected EOF",
	"SQLSTATE 57P01", "SQLSTATE 57P02", "SQLSTATE 57P03", "SQLSTATE 08", "SQLSTATE 53300",
}

// Away reports whether err means that the database server does not answer. It is for logs, where an error may
// be a text or the answer to a caller; ConnectionLost decides whether something may have been done.
func Away(err error) bool {
	if err == nil {
		return false
	}
	if ConnectionLost(err) || errs.ReasonOf(err) == ReasonUnreachable {
		return true
	}
	text := err.Error()
	if strings.Contains(text, "rpc error: ") {
		return false // another service does not answer, or its connection broke
	}
	return slices.ContainsFunc(awayTexts, func(s string) bool { return strings.Contains(text, s) })
}

// retry runs fn until it succeeds, fails for good, or has lost maxTries races.
func retry(ctx context.Context, fn func() error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := fn()
		if err == nil || !Retryable(err) {
			return err
		}
		if try == maxTries {
			return errs.New(errs.Conflict, "TRANSACTION_CONTENTION", "too many concurrent changes, try again").With(err)
		}
		if !sleep.For(ctx, wait/2+rand.N(wait)) {
			return errors.Join(ctx.Err(), err)
		}
		wait = min(2*wait, longWait)
	}
}
