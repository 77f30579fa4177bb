package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// pollCommands is how often another process's commands are looked for.
	pollCommands = 500 * time.Millisecond

	insertCommand = `INSERT INTO commands (run_id, namespace, kind, key, body, time) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	// sendCommand is insertCommand to a run that may be another namespace's. Such a run gets none.
	sendCommand = `INSERT INTO commands (run_id, namespace, kind, key, body, time) SELECT ?1, ?2, ?3, ?4, ?5, ?6
		WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = ?1 AND r.namespace <> ?2) ON CONFLICT DO NOTHING`
	// ownerSQL finds the owner of an open run.
	ownerSQL = `SELECT owner_id FROM runs WHERE run_id = ? AND state < 6`
	// dropCommand removes a command that was applied.
	dropCommand = `DELETE FROM commands WHERE id = ? AND run_id = ?`
	// claimOwnerless gives an owner a run that waits or is paused without an owner and has commands.
	claimOwnerless = `UPDATE runs SET owner_id = ?, owner_incarnation = ?, doing = '' WHERE run_id = ? AND owner_id = '' AND state IN (3, 4)
		AND EXISTS (SELECT 1 FROM commands m WHERE m.run_id = runs.run_id)`
	// tidyCommands removes the commands of a run that has ended, or is not there. It asks for the run once
	// and not for each command: a run that goes on may have thousands.
	tidyCommands = `DELETE FROM commands WHERE run_id = ?1 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = ?1 AND r.state < 6)`
)

// ownerOf returns the id of the owner of an open run, or nothing.
func (t txn) ownerOf(ctx context.Context, runID string) (owner string, err error) {
	err = t.row(ctx, ownerSQL, runID).Scan(&owner)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return owner, err
}

// Enqueue implements journal.Commands.
func (s *Store) Enqueue(ctx context.Context, p journal.EnqueueRequest) (journal.Enqueued, error) {
	res, err := s.Store.Enqueue(ctx, p)
	switch {
	case err != nil || !res.New:
	case res.Owner.IsZero():
		s.announce(map[string]bool{journal.JobWake.Queue(): true})
	default:
		s.wake(res.Owner.ID)
	}
	return res, err
}

// CommandWakes implements journal.Commands. Commands from this process comes at once, that of another on
// the same file by polling.
func (s *Store) CommandWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	return s.wakesOf(ctx, owner.ID, pollCommands, func() bool {
		ms, err := s.PendingCommands(ctx, owner, journal.CommandQuery{Limit: 1, Small: 1})
		return err != nil || len(ms) > 0
	}), nil
}

// wakesOf sends when wake names id, and at each tick at which there may be something, until ctx ends.
func (s *Store) wakesOf(ctx context.Context, id string, every time.Duration, may func() bool) <-chan struct{} {
	signal, out := make(chan struct{}, 1), make(chan struct{}, 1)
	s.mu.Lock()
	s.wakes[signal] = id
	s.mu.Unlock()
	go func() {
		defer close(out)
		defer func() {
			s.mu.Lock()
			delete(s.wakes, signal)
			s.mu.Unlock()
		}()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-signal:
			case <-tick.C:
				if !may() {
					continue
				}
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out
}

func (s *Store) wake(owners ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch, id := range s.wakes {
		for _, o := range owners {
			if o != id {
				continue
			}
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}
