// Package sqlite keeps accounts in the SQLite file of the journal, for the executors of one machine, which in
// practice is one. It owns the notifications; the SQL is that of package sqlstore.
package sqlite

import (
	"context"
	"sync"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor/sqlstore"
	journalsqlite "github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

var _ governor.Store = (*Store)(nil)

// Store is a governor.Store on a file that is the journal's too. Executors of other processes on the same
// file find out by asking again.
type Store struct {
	*sqlstore.Store

	mu    sync.Mutex
	wakes map[chan string]struct{}
}

// New returns a store on an open journal, which stays the caller's. The journal's migrations make the tables.
func New(j *journalsqlite.Store) *Store {
	s := &Store{wakes: map[chan string]struct{}{}}
	s.Store = sqlstore.New(sqlstore.Database{Pool: j.Pool(), Dialect: dbkit.DialectSQLite, NotifyAfter: s.notify})
	return s
}

// Wakes implements governor.Store.
func (s *Store) Wakes(ctx context.Context) (<-chan string, error) {
	wakes := make(chan string, 256)
	s.mu.Lock()
	s.wakes[wakes] = struct{}{}
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.wakes, wakes)
		close(wakes)
	})
	return wakes, nil
}

// notify passes a name on to the executors of this process.
func (s *Store) notify(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.wakes {
		select {
		case ch <- account:
		default:
		}
	}
}
