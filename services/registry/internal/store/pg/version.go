package pg

import "context"

// Version returns the schema version of the database (0 before the first migration) and the one that this binary wants.
func (s *Store) Version(ctx context.Context) (have, want int64, err error) {
	return s.migrations.Version(ctx)
}
