// Package sqlite keeps the journal in one SQLite file, for the executors of one machine, which in
// practice is one. It owns the SQL of that driver; it must not know what events mean nor who calls it.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

const (
	// now is the database's clock in microseconds.
	now = `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`
)

//go:embed migrations/*.sql
var migrations embed.FS

var _ journal.Journal = (*Store)(nil)

// Options tune a Store; the zero value is usable.
type Options struct {
	// TracerProvider gets a span per transaction; nil means none.
	TracerProvider trace.TracerProvider
	// TellThread makes the outbox items of changes of threads; nil makes none.
	TellThread journal.TellThread
}

// Store is a journal.Journal on one file. Its writers take turns.
type Store struct {
	*sqlstore.Store
	db   *dbkit.SQLite
	pool dbkit.Pool
	m    *dbkit.Migrations
	// path is that of the file, without symbolic links.
	path string
	tell journal.TellThread

	mu sync.Mutex
	// owners are the locked files of the owners that were registered here, by id.
	owners map[string]*os.File
	stmts  map[string]*sql.Stmt
	w      *writes
	wakes  map[chan struct{}]string
	feeds  map[chan string]bool
}

// Open opens or creates the file. It neither migrates nor checks the schema: see Migrations.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	db, err := dbkit.OpenSQLite(ctx, path, dbkit.SQLiteOptions{
		TracerProvider: o.TracerProvider,
		// A batch must not spill in the middle of it, so its pages stay in memory, however many they are. The
		// cache bounds what stays after the commit. A page takes twice its size in memory, and those of runs
		// that have ended are of no more use: W3 of bench is as fast with 4 MiB as with 16 MiB.
		WriterCache: 4096, WriterNoSpill: true,
	})
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, w: newWrites(), path: resolved(path), tell: o.TellThread, owners: map[string]*os.File{}, wakes: map[chan struct{}]string{}, feeds: map[chan string]bool{}}
	s.pool = dbkit.SQLitePool(db, func(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
		return s.update(ctx, func(ctx context.Context, t txn) error { return fn(ctx, t.tx) })
	})
	s.Store = sqlstore.New(sqlstore.Database{Read: s.pool, Engine: s.pool, Dialect: dbkit.DialectSQLite, DueOutbox: dueOutbox(), Suspicions: suspicions(), InsertJobs: InsertJobs,
		TellThread: o.TellThread})
	files, err := fs.Sub(migrations, "migrations")
	if err == nil {
		s.m, err = dbkit.SQLiteMigrations(db, files)
	}
	if err == nil {
		s.m.With(s.queueTables())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// lastSeq is where the journal of r ends.
func lastSeq() string { return sqlstore.LastSeq(dbkit.DialectSQLite) }

// Migrations brings the schema up or checks it.
func (s *Store) Migrations() *dbkit.Migrations { return s.m }

// Readers implements journal.Reader.
func (s *Store) Readers() int { return s.db.Read.Stats().MaxOpenConnections }

// Close implements journal.Journal.
func (s *Store) Close() error {
	s.mu.Lock()
	stmts := s.stmts
	s.stmts = nil
	// The files stay. Others find them free, and know by that that their owners are gone.
	errs := []error{closeAll(slices.Collect(maps.Values(s.owners)))}
	clear(s.owners)
	s.mu.Unlock()
	for _, st := range stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}

// inRow reports whether err lies in the values of a row and would come again.
func inRow(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return true
	}
	return false
}

// txn is a write transaction whose statements live as long as the store.
type txn struct {
	tx    *sql.Tx
	w     *writes
	stmts map[string]*sql.Stmt
	// bound are those of stmts that this transaction has used.
	bound map[string]*sql.Stmt
	// graphs are those that this transaction has stored.
	graphs map[journal.Key]bool
	// queued gets the queues that were given jobs.
	queued map[string]bool
	tell   journal.TellThread
}

// update runs fn in a write transaction with the given statements at hand. It does not end in the
// middle when ctx does: it is short, and watching ctx would cost a goroutine per statement.
func (s *Store) update(ctx context.Context, fn func(context.Context, txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stmts, err := s.prepare(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("prepare statements: %w", err)
	}
	queued := map[string]bool{}
	err = s.db.UpdateWhole(ctx, func(ctx context.Context, tx *sql.Tx) error {
		clear(queued)
		return fn(ctx, txn{tx, s.w, stmts, make(map[string]*sql.Stmt, len(stmts)), map[journal.Key]bool{}, queued, s.tell})
	})
	if err == nil && len(queued) > 0 {
		s.announce(queued)
	}
	return err
}

// prepare compiles the hot statements on the one connection of the writer, at the first use, when
// the schema is there.
func (s *Store) prepare(ctx context.Context) (map[string]*sql.Stmt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stmts != nil {
		return s.stmts, nil
	}
	stmts := map[string]*sql.Stmt{}
	for _, q := range s.w.hot() {
		st, err := s.db.Write.PrepareContext(ctx, q) //nolint:sqlclosecheck // lives until Close
		if err != nil {
			for _, st := range stmts {
				err = errors.Join(err, st.Close())
			}
			return nil, err
		}
		stmts[q] = st
	}
	s.stmts = stmts
	return stmts, nil
}

// stmt returns the prepared statement for this transaction, or nil.
func (t txn) stmt(ctx context.Context, query string) *sql.Stmt {
	if st := t.bound[query]; st != nil {
		return st
	}
	st := t.stmts[query]
	if st != nil {
		st = t.tx.StmtContext(ctx, st)
		t.bound[query] = st
	}
	return st
}

func (t txn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	var res sql.Result
	var err error
	if st := t.stmt(ctx, query); st != nil { //nolint:sqlclosecheck // the transaction closes it
		res, err = st.ExecContext(ctx, args...)
	} else {
		res, err = t.tx.ExecContext(ctx, query, args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t txn) row(ctx context.Context, query string, args ...any) *sql.Row {
	if st := t.stmt(ctx, query); st != nil { //nolint:sqlclosecheck // the transaction closes it
		return st.QueryRowContext(ctx, args...)
	}
	return t.tx.QueryRowContext(ctx, query, args...)
}

func (t txn) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if st := t.stmt(ctx, query); st != nil { //nolint:sqlclosecheck // the transaction closes it
		return st.QueryContext(ctx, args...)
	}
	return t.tx.QueryContext(ctx, query, args...)
}

func micros(t time.Time) int64 { return dbkit.ToUnixMicros(dbkit.Micros(t)) }

// textList is a list of texts for json_each.
func textList(texts []string) string {
	if len(texts) == 0 {
		return "[]" // nil too, which json would make null
	}
	b, err := json.Marshal(texts)
	if err != nil {
		panic("sqlite: " + err.Error()) // texts always marshal
	}
	return string(b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tuples renders n groups of k placeholders.
func tuples(n, k int) string {
	one := "(" + strings.Repeat("?, ", k-1) + "?)"
	return strings.Repeat(one+", ", n-1) + one
}
