package dbkit

import (
	"database/sql"
	"errors"
)

// Collect reads and closes the rows of a query whose error, if it failed, comes with them. It returns nil if there are none, and all or nothing:
// no rows with an error.
func Collect[T any](rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) (out []T, rerr error) {
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := errors.Join(rows.Err(), rows.Close()); rerr == nil && err != nil {
			out, rerr = nil, err
		}
	}()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}
