package sqlite

import "context"

// Version returns the schema version of the database (0 before the first migration) and the version that this
// binary needs.
func (s *Store) Version(ctx context.Context) (have, want int64, err error) {
	return s.migrations.Version(ctx)
}
