package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Postgres looks at one server from outside of the contestants' databases. It is not safe for concurrent use.
type Postgres struct {
	conn *pgx.Conn
	// walks says that the server distinguishes full-page images from records.
	walks bool
}

// OpenPostgres connects to the maintenance database.
func OpenPostgres(ctx context.Context, url string) (*Postgres, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	p := &Postgres{conn: conn}
	_, err = conn.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_walinspect`)
	p.walks = err == nil
	return p, nil
}

// Close ends the connection.
func (p *Postgres) Close(ctx context.Context) error { return p.conn.Close(ctx) }

// CreateDatabase makes an empty database.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	_, err := p.conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize())
	return err
}

// Checkpoint makes all dirty pages durable, so that no checkpoint falls into the next measurement.
func (p *Postgres) Checkpoint(ctx context.Context) error {
	_, err := p.conn.Exec(ctx, `CHECKPOINT`)
	return err
}

// WALPosition is where the log stands.
func (p *Postgres) WALPosition(ctx context.Context) (lsn string, err error) {
	err = p.conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&lsn)
	return lsn, err
}

// WAL is the log written between two positions.
type WAL struct {
	// Records is the records' bytes, Pages those of full-page images, which depend on when the last
	// checkpoint was.
	Records, Pages int64
}

// WALBetween reads the log. Without the extension pg_walinspect everything counts as records.
func (p *Postgres) WALBetween(ctx context.Context, from, to string) (w WAL, err error) {
	if !p.walks {
		err = p.conn.QueryRow(ctx, `SELECT ($2::pg_lsn - $1::pg_lsn)::bigint`, from, to).Scan(&w.Records)
		return w, err
	}
	if from == to {
		return WAL{}, nil
	}
	// The end must be flushed before it can be read.
	if _, err := p.conn.Exec(ctx, `SELECT pg_switch_wal()`); err != nil {
		return WAL{}, err
	}
	err = p.conn.QueryRow(ctx, `SELECT coalesce(sum(record_size), 0)::bigint, coalesce(sum(fpi_size), 0)::bigint FROM pg_get_wal_stats($1::pg_lsn, $2::pg_lsn)`, from, to).
		Scan(&w.Records, &w.Pages)
	return w, err
}

// Size is how many bytes databases hold together.
func (p *Postgres) Size(ctx context.Context, databases ...string) (n int64, err error) {
	err = p.conn.QueryRow(ctx, `SELECT sum(pg_database_size(d))::bigint FROM unnest($1::text[]) AS d`, databases).Scan(&n)
	return n, err
}

// Durable fails unless the server syncs what it commits.
func (p *Postgres) Durable(ctx context.Context) error {
	var faults []error
	for _, s := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var v string
		if err := p.conn.QueryRow(ctx, `SELECT current_setting($1)`, s).Scan(&v); err != nil {
			return err
		}
		if v != "on" {
			faults = append(faults, fmt.Errorf("%s is %s: the figures would mean nothing", s, v))
		}
	}
	return errors.Join(faults...)
}

// Version is what the server calls itself.
func (p *Postgres) Version(ctx context.Context) (v string, err error) {
	err = p.conn.QueryRow(ctx, `SHOW server_version`).Scan(&v)
	return v, err
}

// Root is the process id of the postmaster.
func (p *Postgres) Root(ctx context.Context) (pid int, err error) {
	err = p.conn.QueryRow(ctx, `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int`).Scan(&pid)
	return pid, err
}

// Socket is the directory of the server's socket.
func (p *Postgres) Socket(ctx context.Context) (dir string, err error) {
	err = p.conn.QueryRow(ctx, `SHOW unix_socket_directories`).Scan(&dir)
	return dir, err
}
