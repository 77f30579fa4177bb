// Package sqlite keeps limits in the SQLite file of the journal, for the executors of one machine, which in
// practice is one. It owns the notifications of waiters; the SQL is that of package sqlstore.
package sqlite

import (
	"context"
	"sync"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	journalsqlite "github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit/sqlstore"
)

var _ limit.Store = (*Store)(nil)

// Store is a limit.Store on a file that is the journal's too. Executors of other processes on the same file
// find out by asking again.
type Store struct {
	*sqlstore.Store

	mu    sync.Mutex
	wakes map[chan limit.Key]struct{}
}

// New returns a store on an open journal, which stays the caller's. The journal's migrations make the tables.
func New(j *journalsqlite.Store) *Store {
	s := &Store{wakes: map[chan limit.Key]struct{}{}}
	s.Store = sqlstore.New(sqlstore.Database{
		Pool:        j.Pool(),
		Dialect:     dbkit.DialectSQLite,
		NotifyAfter: s.notify,
		JobDue:      `scheduled_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')`,
	})
	return s
}

// Close implements limit.Store.
func (s *Store) Close() error { return nil }

// Wakes implements limit.Store.
func (s *Store) Wakes(ctx context.Context) (<-chan limit.Key, error) {
	wakes := make(chan limit.Key, 1024)
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

// notify passes keys on to the executors of this process.
func (s *Store) notify(ks ...limit.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.wakes {
		for _, k := range ks {
			select {
			case ch <- k:
			default:
			}
		}
	}
}
