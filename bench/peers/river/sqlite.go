package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// lite is tables on SQLite. One connection serves everything, as River asks of this store.
type lite struct{ *sql.DB }

func openSQLite(ctx context.Context, path string) (lite, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return lite{}, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, `CREATE TABLE node (run INTEGER, node INTEGER, waits INTEGER, data BLOB, PRIMARY KEY (run, node)) WITHOUT ROWID`)
	return lite{db}, err
}

func (l lite) begin(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := l.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (l lite) add(ctx context.Context, tx *sql.Tx, run int64, waits []int32) error {
	list, err := json.Marshal(waits)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO node (run, node, waits) SELECT ?, key, value FROM json_each(?)`, run, string(list))
	return err
}

func (l lite) finish(ctx context.Context, tx *sql.Tx, run int64, node int, result []byte, next []int) (ready []int, err error) {
	if _, err := tx.ExecContext(ctx, `UPDATE node SET data = ? WHERE run = ? AND node = ?`, result, run, node); err != nil || len(next) == 0 {
		return nil, err
	}
	list, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, `UPDATE node SET waits = waits - 1 WHERE run = ? AND node IN (SELECT value FROM json_each(?)) RETURNING node, waits`, run, string(list))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var n, waits int
		if err := rows.Scan(&n, &waits); err != nil {
			return nil, err
		}
		if waits == 0 {
			ready = append(ready, n)
		}
	}
	return ready, rows.Err()
}

func (l lite) count(ctx context.Context) (done, jobs int64, err error) {
	err = l.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM node WHERE data IS NOT NULL AND waits = 0), (SELECT count(*) FROM river_job WHERE state = 'completed')`).Scan(&done, &jobs)
	return done, jobs, err
}

func (l lite) close() { _ = l.Close() }
