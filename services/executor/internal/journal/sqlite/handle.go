package sqlite

import "github.com/epigraph-run/epigraph/internal/dbkit"

// DB is the open file, for stores whose tables are in it too: a file must have one writer only.
func (s *Store) DB() *dbkit.SQLite { return s.db }
