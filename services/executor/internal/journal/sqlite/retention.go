package sqlite

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// vacuumPages is how many free pages are given back in one go.
const vacuumPages = 2000

// Extend implements journal.Retention. There are no parts in a file.
func (s *Store) Extend(context.Context, time.Duration, time.Duration) (journal.Parts, error) {
	return journal.Parts{}, nil
}

// Shrink implements journal.Retention: free pages go back to the file system, some at a time. A file that
// another program has rewritten without auto_vacuum uses them again instead.
func (s *Store) Shrink(ctx context.Context, _ time.Time, _ int) (more bool, err error) {
	// The pragma does its work row by row, and no transaction may be open around it.
	rows, err := s.db.Write.QueryContext(ctx, `PRAGMA incremental_vacuum(`+strconv.Itoa(vacuumPages)+`)`)
	if _, err := dbkit.Collect(rows, err, func(*sql.Rows) (struct{}, error) { return struct{}{}, nil }); err != nil {
		return false, err
	}
	var free, mode int
	if err := s.db.Write.QueryRowContext(ctx, `PRAGMA auto_vacuum`).Scan(&mode); err != nil {
		return false, err
	}
	if err := s.db.Write.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil {
		return false, err
	}
	return mode == 2 && free > vacuumPages, nil
}
