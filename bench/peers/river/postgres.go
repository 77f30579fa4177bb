package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgres is tables on PostgreSQL.
type postgres struct{ *pgxpool.Pool }

func openPostgres(ctx context.Context, url string, conns int32) (postgres, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return postgres{}, err
	}
	pc.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return postgres{}, err
	}
	_, err = pool.Exec(ctx, `CREATE TABLE node (run bigint, node int, waits int, data bytea, PRIMARY KEY (run, node))`)
	return postgres{pool}, err
}

func (p postgres) begin(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, p.Pool, f)
}

func (p postgres) add(ctx context.Context, tx pgx.Tx, run int64, waits []int32) error {
	_, err := tx.Exec(ctx, `INSERT INTO node (run, node, waits) SELECT $1, n - 1, w FROM unnest($2::int[]) WITH ORDINALITY AS t (w, n)`, run, waits)
	return err
}

func (p postgres) finish(ctx context.Context, tx pgx.Tx, run int64, node int, result []byte, next []int) (ready []int, err error) {
	if _, err := tx.Exec(ctx, `UPDATE node SET data = $3 WHERE run = $1 AND node = $2`, run, node, result); err != nil || len(next) == 0 {
		return nil, err
	}
	// Counted down in order of the nodes, so that two that end at once do not wait for each other.
	rows, err := tx.Query(ctx, `UPDATE node SET waits = waits - 1 WHERE (run, node) IN (
		SELECT run, node FROM node WHERE run = $1 AND node = ANY ($2) ORDER BY node FOR UPDATE) RETURNING node, waits`, run, next)
	if err != nil {
		return nil, err
	}
	var n, waits int
	_, err = pgx.ForEachRow(rows, []any{&n, &waits}, func() error {
		if waits == 0 {
			ready = append(ready, n)
		}
		return nil
	})
	return ready, err
}

func (p postgres) count(ctx context.Context) (done, jobs int64, err error) {
	err = p.QueryRow(ctx, `SELECT (SELECT count(*) FROM node WHERE data IS NOT NULL AND waits = 0), (SELECT count(*) FROM river_job WHERE state = 'completed')`).Scan(&done, &jobs)
	return done, jobs, err
}

func (p postgres) close() { p.Close() }
