package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// sqliteRows is how many rows one statement inserts: variables are limited.
const sqliteRows = 100

type sqlite struct {
	db        *dbkit.SQLite
	one, many *sql.Stmt
}

func openSQLite(ctx context.Context, path string) (_ table, err error) {
	db, err := dbkit.OpenSQLite(ctx, path)
	if err != nil {
		return nil, err
	}
	s := &sqlite{db: db}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	_, err = db.Write.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS event (run TEXT, seq INTEGER, kind INTEGER, node TEXT, at INTEGER, data BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID`)
	if err != nil {
		return nil, err
	}
	const values = `(?, ?, ?, ?, ?, ?)`
	if s.one, err = db.Write.PrepareContext(ctx, `INSERT INTO event VALUES `+values); err != nil {
		return nil, err
	}
	s.many, err = db.Write.PrepareContext(ctx, `INSERT INTO event VALUES `+values+strings.Repeat(`, `+values, sqliteRows-1))
	return s, err
}

func (s *sqlite) insert(ctx context.Context, rows []row) error {
	return s.db.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		one, many := tx.StmtContext(ctx, s.one), tx.StmtContext(ctx, s.many)
		for len(rows) >= sqliteRows {
			args := make([]any, 0, 6*sqliteRows)
			for _, r := range rows[:sqliteRows] {
				args = append(args, r.run, r.seq, kind(r), name(r), r.at.UnixMicro(), r.data)
			}
			if _, err := many.ExecContext(ctx, args...); err != nil {
				return err
			}
			rows = rows[sqliteRows:]
		}
		for _, r := range rows {
			if _, err := one.ExecContext(ctx, r.run, r.seq, kind(r), name(r), r.at.UnixMicro(), r.data); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) count(ctx context.Context) (n int64, err error) {
	err = s.db.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM event`).Scan(&n)
	})
	return n, err
}

func (s *sqlite) most() int { return 1 }

func (s *sqlite) Close() error { return errors.Join(s.one.Close(), s.many.Close(), s.db.Close()) }

func kind(r row) int {
	if r.node < 0 {
		return 1
	}
	return 2
}

func name(r row) string {
	if r.node < 0 {
		return ""
	}
	return "n" + strconv.Itoa(r.node)
}

var errNoLoads = fmt.Errorf("this contestant measures limits and runs no loads")
