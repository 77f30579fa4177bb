package sqlite

import "github.com/epigraph-run/epigraph/internal/dbkit"

// DB is the open file, for stores whose tables are in it too: a file must have one writer only.
func (s *Store) DB() *dbkit.SQLite { return s.db }

// Pool is the pool of the journal's transactions, for the same stores. The end of a context does not end a
// transaction in the middle.
func (s *Store) Pool() dbkit.Pool { return s.pool }
