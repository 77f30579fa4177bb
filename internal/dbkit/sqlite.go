package dbkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"modernc.org/sqlite" // registers the "sqlite" driver with database/sql, too
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	scope         = "github.com/epigraph-run/epigraph/internal/dbkit"
	sqlitePragmas = "_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"
)

// SQLite is one database file with one writer and a pool of readers. Write has a single connection
// whose transactions take the write lock at once; Read refuses to change anything and sees the last
// commit. It is safe for concurrent use.
type SQLite struct {
	Write *sql.DB
	Read  *sql.DB

	name   string
	tracer trace.Tracer
}

// SQLiteOptions are the settings that differ between callers; the zero value is usable.
type SQLiteOptions struct {
	// TracerProvider gets one span per Update and View that runs below another span; nil means none.
	TracerProvider trace.TracerProvider
	// MaxReaders bounds the read pool; 0 means the number of CPUs, at least 4.
	MaxReaders int
}

// OpenSQLite opens or creates the file at path, and its directory, with write-ahead log, full
// synchronization and foreign keys. In-memory databases are refused, since each connection would
// see one of its own. At most one opts is used.
func OpenSQLite(ctx context.Context, path string, opts ...SQLiteOptions) (*SQLite, error) {
	var o SQLiteOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	if path == "" || path == ":memory:" {
		return nil, errs.New(errs.InvalidArgument, "SQLITE_PATH_INVALID", "a SQLite store needs a file path, got %q", path)
	}
	if o.MaxReaders <= 0 {
		o.MaxReaders = max(4, runtime.NumCPU())
	}
	if o.TracerProvider == nil {
		o.TracerProvider = noop.NewTracerProvider()
	}
	unreachable := errs.New(errs.Unavailable, ReasonUnreachable, "cannot open SQLite file %s", path).
		Hint("check that the directory exists, is writable and has space")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, unreachable.With(err)
	}
	if err := createPrivate(path); err != nil {
		return nil, unreachable.With(err)
	}
	file := "file:" + (&url.URL{Path: path}).EscapedPath() + "?"
	base := file + sqlitePragmas
	// Free pages can be given back only in a file that was so from its first page on.
	w, err := sql.Open("sqlite", file+"_pragma=auto_vacuum(2)&"+sqlitePragmas+"&_txlock=immediate")
	if err != nil {
		return nil, unreachable.With(err)
	}
	// The writer goes first: it creates the file and turns the log on.
	w.SetMaxOpenConns(1)
	w.SetMaxIdleConns(1)
	if err := w.PingContext(ctx); err != nil {
		return nil, opening(path, unreachable, errors.Join(err, w.Close()))
	}
	r, err := sql.Open("sqlite", base+"&_pragma=query_only(1)&_txlock=deferred")
	if err != nil {
		return nil, unreachable.With(errors.Join(err, w.Close()))
	}
	r.SetMaxOpenConns(o.MaxReaders)
	r.SetMaxIdleConns(o.MaxReaders)
	if err := r.PingContext(ctx); err != nil {
		return nil, unreachable.With(errors.Join(err, r.Close(), w.Close()))
	}
	return &SQLite{Write: w, Read: r, name: filepath.Base(path), tracer: o.TracerProvider.Tracer(scope)}, nil
}

// createPrivate makes an empty file that only its owner can read. SQLite would make it readable by everyone,
// and gives the log and the index beside it the mode of the file. An existing file is not even opened:
// closing it would drop the locks that this process has on it.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// opening distinguishes a faulty file from one that cannot be reached.
func opening(path string, unreachable *errs.Error, err error) error {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		if code := lite.Code() & 0xff; code == sqlite3.SQLITE_NOTADB || code == sqlite3.SQLITE_CORRUPT {
			return errs.New(errs.FailedPrecondition, ReasonDamaged, "%s is no SQLite database, or a damaged one", path).
				Hint("restore it from a backup, or move it out of the way").With(err)
		}
	}
	return unreachable.With(err)
}

// Update runs fn in one write transaction: commit if fn returns nil, else roll back. fn may run more
// than once if another process holds the file, so it must have no effect besides the transaction.
func (s *SQLite) Update(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.tx(ctx, "sqlite.update", s.Write, fn)
}

// View runs fn on one snapshot that sees no later commit. Writes inside it fail.
func (s *SQLite) View(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.tx(ctx, "sqlite.view", s.Read, fn)
}

// Close waits for running queries and closes both pools. It may be called more than once.
func (s *SQLite) Close() error { return errors.Join(s.Read.Close(), s.Write.Close()) }

func (s *SQLite) tx(ctx context.Context, span string, db *sql.DB, fn func(context.Context, *sql.Tx) error) error {
	// Like otelpgx, spans only below a caller's span: pollers would else fill the store with lone roots.
	if !trace.SpanFromContext(ctx).IsRecording() {
		return retry(ctx, func() error { return sqlTx(ctx, db, fn) })
	}
	ctx, sp := s.tracer.Start(ctx, span, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", "sqlite"), attribute.String("db.namespace", s.name)))
	defer sp.End()
	err := retry(ctx, func() error { return sqlTx(ctx, db, fn) })
	if err != nil && errs.Is(err, errs.Internal) {
		sp.SetStatus(codes.Error, err.Error())
	}
	return err
}

func sqlTx(ctx context.Context, db *sql.DB, fn func(context.Context, *sql.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	done := false
	defer func() {
		if done {
			return
		}
		// Also the way out of a panic in fn: without it the only writer would stay locked for ever.
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
		}
	}()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	done = true
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// SQLiteExists refuses a path at which there is no file yet, for those who must not make one.
func SQLiteExists(path string) error {
	if _, err := os.Stat(path); err != nil {
		return errs.New(errs.NotFound, ReasonFileMissing, "there is no SQLite file %s", path).Hint("name the file that the service uses").With(err)
	}
	return nil
}
