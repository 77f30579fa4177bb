package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/epigraph-run/epigraph/bench/measure"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// store makes databases and looks at them.
type store interface {
	name() string
	// executors is with how many at once it is worth to look at throughput.
	executors() []int
	// fresh makes a database, and returns its name for executors.
	fresh(ctx context.Context) (database, error)
	close() error
}

// database is one that executors work on.
type database interface {
	target() string
	// evicted counts the runs that wait without an owner.
	evicted(ctx context.Context) (int, error)
	// tables returns rows and bytes by table, the largest first, and the bytes of all.
	tables(ctx context.Context) ([]table, int64, error)
	// log is called before and after a measurement; the second call returns the bytes written.
	log(ctx context.Context) (measure.WAL, error)
	// cpu is what the database's own processes have used.
	cpu() (time.Duration, error)
	close() error
}

type table struct {
	name        string
	rows, bytes int64
}

type postgresStore struct {
	server *pgtest.Server
	watch  *measure.Postgres
	root   int
	n      atomic.Int64
}

func openPostgres(ctx context.Context) (*postgresStore, error) {
	server, err := pgtest.Start(ctx, "", pgtest.Options{Settings: map[string]string{
		"max_connections": "200", "checkpoint_timeout": "30min", "max_wal_size": "16GB",
	}})
	if err != nil {
		return nil, err
	}
	p := &postgresStore{server: server}
	if p.watch, err = measure.OpenPostgres(ctx, server.URL("")); err == nil {
		if err = p.watch.Durable(ctx); err == nil {
			p.root, err = p.watch.Root(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return p, nil
}

func (*postgresStore) name() string     { return "PostgreSQL" }
func (*postgresStore) executors() []int { return []int{1, 2} }

func (p *postgresStore) close() error {
	return errors.Join(p.watch.Close(context.Background()), p.server.Stop())
}

func (p *postgresStore) fresh(ctx context.Context) (database, error) {
	name := fmt.Sprintf("waiting_%d", p.n.Add(1))
	if err := p.watch.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", p.server.URL(name))
	return &postgresDB{postgresStore: p, dbName: name, db: db}, err
}

type postgresDB struct {
	*postgresStore
	dbName, from string
	db           *sql.DB
}

func (d *postgresDB) target() string { return d.server.URL(d.dbName) }
func (d *postgresDB) close() error   { return d.db.Close() }

func (d *postgresDB) cpu() (time.Duration, error) { return measure.PostgresCPU(d.root, d.dbName) }

func (d *postgresDB) evicted(ctx context.Context) (n int, err error) {
	err = d.db.QueryRowContext(ctx, `SELECT count(*) FROM executor.runs WHERE state < 6 AND owner_id = ''`).Scan(&n)
	return n, err
}

func (d *postgresDB) tables(ctx context.Context) ([]table, int64, error) {
	// Partitions count for their table.
	const list = `SELECT c.oid::regclass::text, coalesce((SELECT sum(pg_total_relation_size(t.relid))::bigint FROM pg_partition_tree(c.oid) t), pg_total_relation_size(c.oid))
		FROM pg_class c WHERE c.relnamespace = 'executor'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 2 DESC`
	out, err := scan(ctx, d.db, list)
	if err != nil {
		return nil, 0, err
	}
	return count(ctx, d.db, out)
}

func scan(ctx context.Context, db *sql.DB, query string) (out []table, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var t table
		var bytes sql.NullInt64
		if err := rows.Scan(&t.name, &bytes); err != nil {
			return nil, err
		}
		t.bytes = bytes.Int64
		out = append(out, t)
	}
	return out, rows.Err()
}

func count(ctx context.Context, db *sql.DB, ts []table) (_ []table, sum int64, err error) {
	for i := range ts {
		// The names come from the catalog.
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM `+ts[i].name).Scan(&ts[i].rows); err != nil {
			return nil, 0, err
		}
		sum += ts[i].bytes
	}
	return ts, sum, nil
}

func (d *postgresDB) log(ctx context.Context) (w measure.WAL, err error) {
	if d.from == "" {
		if err := d.watch.Checkpoint(ctx); err != nil {
			return w, err
		}
		d.from, err = d.watch.WALPosition(ctx)
		return w, err
	}
	to, err := d.watch.WALPosition(ctx)
	if err != nil {
		return w, err
	}
	return d.watch.WALBetween(ctx, d.from, to)
}

type sqliteStore struct {
	dir string
	n   int
}

func (*sqliteStore) name() string     { return "SQLite" }
func (*sqliteStore) executors() []int { return []int{1} }
func (*sqliteStore) close() error     { return nil }

func (s *sqliteStore) fresh(context.Context) (database, error) {
	s.n++
	path := filepath.Join(s.dir, fmt.Sprintf("waiting-%d.db", s.n))
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=query_only(1)")
	return &sqliteDB{path: path, db: db}, err
}

type sqliteDB struct {
	path string
	db   *sql.DB
}

func (d *sqliteDB) target() string              { return d.path }
func (d *sqliteDB) close() error                { return d.db.Close() }
func (d *sqliteDB) cpu() (time.Duration, error) { return 0, nil } // it is the executor's

func (d *sqliteDB) evicted(ctx context.Context) (n int, err error) {
	err = d.db.QueryRowContext(ctx, `SELECT count(*) FROM runs WHERE state < 6 AND owner_id = ''`).Scan(&n)
	return n, err
}

func (d *sqliteDB) tables(ctx context.Context) ([]table, int64, error) {
	ts, err := scan(ctx, d.db, `SELECT name, NULL FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'`)
	if err != nil {
		return nil, 0, err
	}
	if ts, _, err = count(ctx, d.db, ts); err != nil {
		return nil, 0, err
	}
	bytes, err := measure.Files(d.path)
	return ts, bytes, err
}

func (d *sqliteDB) log(context.Context) (measure.WAL, error) { return measure.WAL{}, nil }
