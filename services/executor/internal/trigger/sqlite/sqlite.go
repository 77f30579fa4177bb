// Package sqlite keeps triggers in the SQLite file of the journal. The SQL is that of package sqlstore.
package sqlite

import (
	"github.com/epigraph-run/epigraph/internal/dbkit"
	journalsqlite "github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger/sqlstore"
)

var _ trigger.Store = (*Store)(nil)

// Store is a trigger.Store on a file that is the journal's too.
type Store struct{ *sqlstore.Store }

// New returns a store on an open journal, which stays the caller's. The journal's migrations make the tables.
func New(j *journalsqlite.Store) *Store {
	return &Store{sqlstore.New(sqlstore.Database{
		Pool: j.Pool(), Dialect: dbkit.DialectSQLite, Jobs: journalsqlite.InsertJobs, Inserted: j.AnnounceJobs,
	})}
}

// Close implements trigger.Store.
func (s *Store) Close() error { return nil }
