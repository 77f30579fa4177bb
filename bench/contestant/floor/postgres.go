package main

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// pgConns is with how many connections floor-1 commits: more gave no more on two cores.
const pgConns = 16

type postgres struct{ pool *pgxpool.Pool }

func isPostgres(store string) bool { return strings.HasPrefix(store, "postgres://") }

func openPostgres(ctx context.Context, url string) (table, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = pgConns, pgConns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS event (run text, seq bigint, kind int, node text, at timestamptz, data bytea, PRIMARY KEY (run, seq))`)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &postgres{pool}, nil
}

func (p *postgres) insert(ctx context.Context, rows []row) error {
	if len(rows) == 1 {
		r := rows[0]
		_, err := p.pool.Exec(ctx, `INSERT INTO event VALUES ($1, $2, $3, $4, $5, $6)`, r.run, r.seq, kind(r), name(r), r.at, r.data)
		return err
	}
	runs, seqs, kinds := make([]string, len(rows)), make([]int64, len(rows)), make([]int32, len(rows))
	nodes, ats, data := make([]string, len(rows)), make([]time.Time, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		runs[i], seqs[i], kinds[i], nodes[i], ats[i], data[i] = r.run, r.seq, int32(kind(r)), name(r), r.at, r.data
	}
	_, err := p.pool.Exec(ctx, `INSERT INTO event SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::text[], $5::timestamptz[], $6::bytea[])`,
		runs, seqs, kinds, nodes, ats, data)
	return err
}

func (p *postgres) count(ctx context.Context) (n int64, err error) {
	err = p.pool.QueryRow(ctx, `SELECT count(*) FROM event`).Scan(&n)
	return n, err
}

func (p *postgres) most() int { return pgConns }

func (p *postgres) Close() error {
	p.pool.Close()
	return nil
}
