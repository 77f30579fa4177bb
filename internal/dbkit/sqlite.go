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
	"strconv"
	"time"

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

	// maxWrite is how long a transaction may write. Waiting for the writer does not count.
	maxWrite = time.Minute
	// ReasonWriteTooLong is the reason of an Unavailable error when a transaction wrote for longer.
	ReasonWriteTooLong = "WRITE_TOO_LONG"
)

var errWriteTooLong = errors.New("the write took too long")

// SQLite is one database file with one writer and a pool of readers. Write has a single connection
// whose transactions take the write lock at once; Read refuses to change anything and sees the last
// commit. It is safe for concurrent use.
type SQLite struct {
	Write *sql.DB
	Read  *sql.DB

	name     string
	tracer   trace.Tracer
	maxWrite time.Duration
}

// SQLiteOptions are the settings that differ between callers; the zero value is usable.
type SQLiteOptions struct {
	// TracerProvider gets one span per Update and View that runs below another span; nil means none.
	TracerProvider trace.TracerProvider
	// MaxReaders bounds the read pool; 0 means the number of CPUs, at least 4.
	MaxReaders int
	// WriterCache is how many KiB of pages the writer keeps between transactions; 0 means SQLite's default.
	WriterCache int
	// WriterNoSpill keeps the pages of a transaction in memory until its commit, however many they are.
	WriterNoSpill bool
	// MaxWrite is how long a transaction may write; 0 means a minute.
	MaxWrite time.Duration
}

// writerPragmas are those of the writer alone. They stand in the name of the data source, because
// database/sql opens the connection again after a fault.
func (o *SQLiteOptions) writerPragmas() (s string) {
	if o.WriterCache > 0 {
		s += "&_pragma=cache_size(-" + strconv.Itoa(o.WriterCache) + ")"
	}
	if o.WriterNoSpill {
		s += "&_pragma=cache_spill(off)"
	}
	return s
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
	if o.MaxWrite <= 0 {
		o.MaxWrite = maxWrite
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
	w, err := sql.Open("sqlite", file+"_pragma=auto_vacuum(2)&"+sqlitePragmas+o.writerPragmas()+"&_txlock=immediate")
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
	return &SQLite{Write: w, Read: r, name: filepath.Base(path), tracer: o.TracerProvider.Tracer(scope), maxWrite: o.MaxWrite}, nil
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
// than once if another process holds the file, so it must have no effect besides the transaction. The
// end of ctx ends the wait for the writer, and the transaction. A transaction that writes for longer
// than MaxWrite is rolled back with ReasonWriteTooLong.
func (s *SQLite) Update(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.tx(ctx, "sqlite.update", func(ctx context.Context) error {
		return s.write(ctx, func(ctx context.Context, conn *sql.Conn) error {
			ctx, cancel := context.WithTimeoutCause(ctx, s.maxWrite, errWriteTooLong)
			defer cancel()
			err := sqlTx(ctx, conn, fn)
			if err != nil && errors.Is(context.Cause(ctx), errWriteTooLong) {
				return errs.New(errs.Unavailable, ReasonWriteTooLong, "a transaction wrote to %s for more than %s", s.name, s.maxWrite).
					Hint("change fewer rows at once, or look at the disk").With(err)
			}
			return err
		})
	})
}

// UpdateWhole is Update for transactions that must not end in the middle: the end of ctx ends the wait
// for the writer, and nothing ends the transaction. So fn must be bounded by what it writes. Its
// statements do not pay for a context that can end.
func (s *SQLite) UpdateWhole(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.tx(ctx, "sqlite.update", func(ctx context.Context) error {
		return s.write(ctx, func(ctx context.Context, conn *sql.Conn) error { return sqlTx(context.WithoutCancel(ctx), conn, fn) })
	})
}

// write waits for the writer until ctx ends.
func (s *SQLite) write(ctx context.Context, fn func(context.Context, *sql.Conn) error) (err error) {
	conn, err := s.Write.Conn(ctx)
	if err != nil {
		return fmt.Errorf("wait for the writer: %w", err)
	}
	defer func() {
		// A transaction that a fault of its connection has ended leaves it closed.
		if cerr := conn.Close(); cerr != nil && !errors.Is(cerr, sql.ErrConnDone) {
			err = errors.Join(err, cerr)
		}
	}()
	return fn(ctx, conn)
}

// View runs fn on one snapshot that sees no later commit. Writes inside it fail.
func (s *SQLite) View(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	return s.tx(ctx, "sqlite.view", func(ctx context.Context) error { return sqlTx(ctx, s.Read, fn) })
}

// Close waits for running queries and closes both pools. It may be called more than once.
func (s *SQLite) Close() error { return errors.Join(s.Read.Close(), s.Write.Close()) }

func (s *SQLite) tx(ctx context.Context, span string, fn func(context.Context) error) error {
	// Like otelpgx, spans only below a caller's span: pollers would else fill the store with lone roots.
	if !trace.SpanFromContext(ctx).IsRecording() {
		return retry(ctx, func() error { return fn(ctx) })
	}
	ctx, sp := s.tracer.Start(ctx, span, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", "sqlite"), attribute.String("db.namespace", s.name)))
	defer sp.End()
	err := retry(ctx, func() error { return fn(ctx) })
	if err != nil && errs.Is(err, errs.Internal) {
		sp.SetStatus(codes.Error, err.Error())
	}
	return err
}

type beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

func sqlTx(ctx context.Context, db beginner, fn func(context.Context, *sql.Tx) error) (err error) {
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
