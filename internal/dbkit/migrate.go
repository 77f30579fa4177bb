package dbkit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonSchemaOld is the reason of FailedPrecondition when migrations are still to be applied.
	ReasonSchemaOld = "SCHEMA_TOO_OLD"
	// ReasonSchemaNew is the reason of FailedPrecondition when a later binary has migrated the store.
	ReasonSchemaNew = "SCHEMA_TOO_NEW"
	// ReasonSchemaOther is the reason of FailedPrecondition when the store was migrated with files of
	// the same numbers that say something else.
	ReasonSchemaOther = "SCHEMA_OF_ANOTHER_BUILD"

	versionQuery = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`
)

// Migrations are the forward-only, numbered SQL files of one store and the database they belong to.
// The files are NNNN_verb_noun.sql in the root of the file system, in goose's format.
type Migrations struct {
	target  int64
	name    string
	version func(context.Context) (int64, error)
	up      func(context.Context) (int, error)
	with    []Step
	// files are the hashes of the files by version. recorded are those of the files that the database was
	// migrated with; one that was migrated without a record has none.
	files    map[int64]migrationFile
	recorded func(context.Context) (map[int64]string, error)
	same     atomic.Bool // recorded is known to agree with files
}

// migrationFile is one numbered file.
type migrationFile struct{ name, hash string }

// migrationFiles hashes the files of a provider. Comments and empty lines do not count, so that a comment can
// be mended when the file has long been applied.
func migrationFiles(fsys fs.FS, p *goose.Provider) (map[int64]migrationFile, error) {
	files := map[int64]migrationFile{}
	for _, s := range p.ListSources() {
		text, err := fs.ReadFile(fsys, s.Path)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		h := sha256.New()
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "--") && !strings.HasPrefix(line, "-- +goose") {
				continue
			}
			_, _ = io.WriteString(h, line+"\n") // a hash takes everything
		}
		files[s.Version] = migrationFile{name: path.Base(s.Path), hash: hex.EncodeToString(h.Sum(nil))}
	}
	return files, nil
}

// applied are the files that were applied, also if one after them failed.
func applied(res []*goose.MigrationResult, err error) ([]*goose.MigrationResult, error) {
	if part, ok := errors.AsType[*goose.PartialError](err); ok {
		return part.Applied, err
	}
	return res, err
}

// record keeps the hashes of files that were just applied.
func record(ctx context.Context, db *sql.DB, files map[int64]migrationFile, applied []*goose.MigrationResult) error {
	if len(applied) == 0 {
		return nil
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migration_files (version_id bigint PRIMARY KEY, hash text NOT NULL)`); err != nil {
		return fmt.Errorf("record migrations: %w", err)
	}
	for _, a := range applied {
		v := a.Source.Version
		if _, err := db.ExecContext(ctx, `INSERT INTO migration_files (version_id, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING`, v, files[v].hash); err != nil {
			return fmt.Errorf("record migrations: %w", err)
		}
	}
	return nil
}

// checkFiles returns FailedPrecondition with ReasonSchemaOther if the database was migrated with other files.
func (m *Migrations) checkFiles(ctx context.Context) error {
	if m.same.Load() {
		return nil
	}
	recorded, err := m.recorded(ctx)
	if err != nil {
		return lost(fmt.Errorf("read the migrations of %s: %w", m.name, err))
	}
	for _, v := range slices.Sorted(maps.Keys(m.files)) {
		if was, ok := recorded[v]; ok && was != m.files[v].hash {
			return errs.New(errs.FailedPrecondition, ReasonSchemaOther, "the tables of %s were made by another build of epigraph, whose %s differs from this one's", m.name, m.files[v].name).
				Hint("go on with the binary that made them, or begin with an empty database (epigraph dev: another --data directory)")
		}
	}
	m.same.Store(true)
	return nil
}

// Step is something besides the files that has migrations of its own in the same database.
type Step struct {
	// Name says what it is, for messages.
	Name string
	// Up applies the missing migrations and returns how many it applied. Several processes may call it at
	// once.
	Up func(context.Context) (int, error)
	// Current reports whether nothing is missing, without changing anything.
	Current func(context.Context) (bool, error)
}

// With adds a step that comes after the files and returns m.
func (m *Migrations) With(s Step) *Migrations {
	m.with = append(m.with, s)
	return m
}

// SQLiteMigrations binds the files of fsys to s. One process at a time may migrate a file.
func SQLiteMigrations(s *SQLite, fsys fs.FS) (*Migrations, error) {
	p, err := goose.NewProvider(goose.DialectSQLite3, s.Write, fsys, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	files, err := migrationFiles(fsys, p)
	if err != nil {
		return nil, err
	}
	return &Migrations{
		name:   s.name,
		target: lastVersion(p),
		files:  files,
		version: func(ctx context.Context) (v int64, err error) {
			if has, err := s.hasTable(ctx, "goose_db_version"); err != nil || !has {
				return 0, err
			}
			err = s.Read.QueryRowContext(ctx, versionQuery).Scan(&v)
			return v, err
		},
		recorded: func(ctx context.Context) (map[int64]string, error) {
			if has, err := s.hasTable(ctx, "migration_files"); err != nil || !has {
				return nil, err
			}
			rows, err := s.Read.QueryContext(ctx, `SELECT version_id, hash FROM migration_files`)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			out := map[int64]string{}
			for rows.Next() {
				var v int64
				var hash string
				if err := rows.Scan(&v, &hash); err != nil {
					return nil, err
				}
				out[v] = hash
			}
			return out, rows.Err()
		},
		up: func(ctx context.Context) (int, error) {
			res, err := applied(p.Up(ctx))
			return len(res), errors.Join(err, record(ctx, s.Write, files, res))
		},
	}, nil
}

func (s *SQLite) hasTable(ctx context.Context, name string) (bool, error) {
	var n int
	err := s.Read.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?`, name).Scan(&n)
	return n > 0, err
}

// PostgresMigrations binds the files of fsys to one schema. Processes that migrate the same schema
// at the same time wait for each other. The pool must log in as a role that may create the schema.
func PostgresMigrations(pool *pgxpool.Pool, schema string, fsys fs.FS) (*Migrations, error) {
	if !schemaName.MatchString(schema) {
		return nil, errs.New(errs.InvalidArgument, "SCHEMA_NAME_INVALID", "schema name %q is not valid", schema)
	}
	// A migration may wait longer for its locks, and run longer, than a request may.
	cfg := pool.Config().ConnConfig
	cfg.RuntimeParams["search_path"] = schema
	cfg.RuntimeParams["lock_timeout"] = "60000"
	cfg.RuntimeParams["statement_timeout"] = "0"
	delete(cfg.RuntimeParams, "role")
	for _, name := range scans {
		delete(cfg.RuntimeParams, name)
	}
	check := stdlib.OpenDB(*cfg)
	p, err := goose.NewProvider(goose.DialectPostgres, check, fsys, goose.WithDisableGlobalRegistry(true))
	if err := errors.Join(err, check.Close()); err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	files, err := migrationFiles(fsys, p)
	if err != nil {
		return nil, err
	}
	return &Migrations{
		name:   schema,
		target: lastVersion(p),
		files:  files,
		version: func(ctx context.Context) (v int64, err error) {
			table, err := existing(ctx, pool, schema, "goose_db_version")
			if err != nil || table == "" {
				return 0, err
			}
			err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+table+` WHERE is_applied`).Scan(&v)
			return v, err
		},
		recorded: func(ctx context.Context) (map[int64]string, error) {
			table, err := existing(ctx, pool, schema, "migration_files")
			if err != nil || table == "" {
				return nil, err
			}
			rows, err := pool.Query(ctx, `SELECT version_id, hash FROM `+table)
			if err != nil {
				return nil, err
			}
			out, v, hash := map[int64]string{}, int64(0), ""
			_, err = pgx.ForEachRow(rows, []any{&v, &hash}, func() error { out[v] = hash; return nil })
			return out, err
		},
		up: func(ctx context.Context) (int, error) { return migratePostgres(ctx, cfg, schema, fsys, files) },
	}, nil
}

// existing is the quoted name of a table, or empty if there is none.
func existing(ctx context.Context, pool *pgxpool.Pool, schema, name string) (string, error) {
	var exists bool
	table := pgx.Identifier{schema, name}.Sanitize()
	if err := pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, table).Scan(&exists); err != nil || !exists {
		return "", err
	}
	return table, nil
}

// Up applies the missing migrations and returns how many files it applied. It is safe to call at every start.
// A database that a later binary has migrated, or another build with other files, stays unchanged; the error
// is FailedPrecondition with ReasonSchemaNew or ReasonSchemaOther.
func (m *Migrations) Up(ctx context.Context) (int, error) {
	have, want, err := m.Version(ctx)
	if err != nil {
		return 0, err
	}
	if have > want {
		return 0, m.tooNew(have, want)
	}
	if err := m.checkFiles(ctx); err != nil {
		return 0, err
	}
	n, err := m.up(ctx)
	if err != nil {
		return n, lost(fmt.Errorf("migrate %s: %w", m.name, err))
	}
	for _, s := range m.with {
		more, err := s.Up(ctx)
		if n += more; err != nil {
			return n, lost(fmt.Errorf("migrate %s of %s: %w", s.Name, m.name, err))
		}
	}
	return n, nil
}

// Version returns the version of the database (0 before the first migration) and the one this binary wants.
func (m *Migrations) Version(ctx context.Context) (have, want int64, err error) {
	have, err = m.version(ctx)
	if err != nil {
		return 0, m.target, lost(fmt.Errorf("read schema version of %s: %w", m.name, err))
	}
	return have, m.target, nil
}

// lost makes a fault of the connection Unavailable, so that the caller may wait and retry.
func lost(err error) error {
	if ConnectionLost(err) {
		return errs.New(errs.Unavailable, ReasonUnreachable, "the connection to the database broke").With(err)
	}
	return err
}

// Check returns nil if the database is exactly at the wanted version, and FailedPrecondition with
// ReasonSchemaOld, ReasonSchemaNew or ReasonSchemaOther otherwise. It changes nothing.
func (m *Migrations) Check(ctx context.Context) error {
	have, want, err := m.Version(ctx)
	switch {
	case err != nil:
		return err
	case have < want:
		return errs.New(errs.FailedPrecondition, ReasonSchemaOld, "schema of %s is at version %d, this binary needs %d", m.name, have, want).
			Hint("run: epigraph migrate")
	case have > want:
		return m.tooNew(have, want)
	}
	if err := m.checkFiles(ctx); err != nil {
		return err
	}
	for _, s := range m.with {
		switch current, err := s.Current(ctx); {
		case err != nil:
			return lost(fmt.Errorf("read version of %s of %s: %w", s.Name, m.name, err))
		case !current:
			return errs.New(errs.FailedPrecondition, ReasonSchemaOld, "the %s of %s lack migrations that this binary needs", s.Name, m.name).
				Hint("run: epigraph migrate")
		}
	}
	return nil
}

func (m *Migrations) tooNew(have, want int64) error {
	return errs.New(errs.FailedPrecondition, ReasonSchemaNew, "schema of %s is at version %d, this binary knows only %d", m.name, have, want).
		Hint("run a newer epigraph binary on this database")
}

func lastVersion(p *goose.Provider) int64 {
	var last int64
	for _, s := range p.ListSources() {
		last = max(last, s.Version)
	}
	return last
}

func migratePostgres(ctx context.Context, cfg *pgx.ConnConfig, schema string, fsys fs.FS, files map[int64]migrationFile) (n int, err error) {
	db := stdlib.OpenDB(*cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	guard, err := db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	// The lock ends with its session, so a crash in the middle frees it.
	defer func() { err = errors.Join(err, closeGuard(ctx, guard, schema)) }()
	if err := wait(ctx, guard, schema); err != nil {
		return 0, fmt.Errorf("wait for another migration: %w", err)
	}
	if _, err := guard.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+pgx.Identifier{schema}.Sanitize()); err != nil {
		return 0, fmt.Errorf("create schema: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, fsys, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return 0, err
	}
	res, err := applied(p.Up(ctx))
	return len(res), errors.Join(err, record(ctx, db, files, res))
}

// wait takes the lock. It polls instead of waiting in one statement, because an index that is built
// concurrently would have to wait for that statement.
func wait(ctx context.Context, guard *sql.Conn, schema string) error {
	for {
		var mine bool
		if err := guard.QueryRowContext(ctx, `SELECT pg_try_advisory_lock(hashtextextended('epigraph/migrate/' || $1, 0))`, schema).Scan(&mine); err != nil || mine {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func closeGuard(ctx context.Context, guard *sql.Conn, schema string) error {
	_, err := guard.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock(hashtextextended('epigraph/migrate/' || $1, 0))`, schema)
	return errors.Join(err, guard.Close())
}
