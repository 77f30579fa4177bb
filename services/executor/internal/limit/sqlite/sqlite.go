// Package sqlite keeps limits in the SQLite file of the journal, for the executors of one machine, which in practice is one. It owns the
// SQL of that driver; what becomes of an ask is package limit's to say.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// now is the database's clock in microseconds.
const now = `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`

var _ limit.Store = (*Store)(nil)

// Store is a limit.Store on a file that is the journal's too. Executors of other processes on the same file find out by asking again.
type Store struct {
	db *dbkit.SQLite

	mu    sync.Mutex
	wakes map[chan limit.Key]struct{}
}

// New returns a store on an open file, which stays the caller's. The journal's migrations make the tables.
func New(db *dbkit.SQLite) *Store { return &Store{db: db, wakes: map[chan limit.Key]struct{}{}} }

// Close implements limit.Store.
func (s *Store) Close() error { return nil }

// update runs fn in a write transaction, which ctx does not end in the middle: it is short.
func (s *Store) update(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.Update(context.WithoutCancel(ctx), fn)
}

// Sync implements limit.Store.
func (s *Store) Sync(ctx context.Context, owner journal.Owner, turn int64, asks []limit.Ask) (grants []limit.Grant, err error) {
	var told []limit.Key
	err = s.update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		grants, told = make([]limit.Grant, len(asks)), nil
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM executors WHERE id = ? AND incarnation = ?`, owner.ID, owner.Incarnation).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return journal.Fenced(owner)
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO limit_turns AS t (owner_id, incarnation, turn) VALUES (?, ?, ?)
			ON CONFLICT (owner_id) DO UPDATE SET incarnation = excluded.incarnation, turn = excluded.turn
			WHERE (t.incarnation, t.turn) < (excluded.incarnation, excluded.turn)`, owner.ID, owner.Incarnation, turn)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, limit.Stale())
		}
		for i, a := range asks {
			st, at, err := standing(ctx, tx, a.Key)
			if err != nil {
				return err
			}
			st.Others = slices.DeleteFunc(st.Others, func(h limit.Holding) bool {
				mine := h.Owner == owner
				if mine {
					st.Mine = h
				}
				return mine
			})
			if a.Also != "" {
				also, _, err := standing(ctx, tx, a.AlsoKey())
				if err != nil {
					return err
				}
				st.Also = &also
			}
			d := limit.Decide(st, a, owner, at)
			if err := write(ctx, tx, a, st, d); err != nil {
				return err
			}
			if grants[i] = d.Grant; d.Notify {
				told = append(told, a.Key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.tell(told...)
	return grants, nil
}

func write(ctx context.Context, tx *sql.Tx, a limit.Ask, st limit.Standing, d limit.Decision) (err error) {
	switch o := d.Row.Owner; {
	case a.Rate && !d.Last.Equal(st.Last):
		for _, name := range []string{a.Name, a.Also} {
			if name != "" && err == nil {
				_, err = tx.ExecContext(ctx, `INSERT INTO limit_rates (namespace, name, last) VALUES (?, ?, ?)
					ON CONFLICT (namespace, name) DO UPDATE SET last = excluded.last`, a.Namespace, name, d.Last.UnixMicro())
			}
		}
	case d.Write && d.Row.Held == 0 && d.Row.Waiting == 0:
		_, err = tx.ExecContext(ctx, `DELETE FROM limit_holdings WHERE namespace = ? AND name = ? AND owner_id = ?`, a.Namespace, a.Name, o.ID)
	case d.Write:
		_, err = tx.ExecContext(ctx, `INSERT INTO limit_holdings (namespace, name, owner_id, owner_incarnation, held, waiting, since, asked, runs)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (namespace, name, owner_id) DO UPDATE SET owner_incarnation = excluded.owner_incarnation, held = excluded.held,
				waiting = excluded.waiting, since = excluded.since, asked = excluded.asked, runs = excluded.runs`,
			a.Namespace, a.Name, o.ID, o.Incarnation, d.Row.Held, d.Row.Waiting, d.Row.Since.UnixMicro(), d.Row.Asked.UnixMicro(), d.Row.Runs)
	}
	return err
}

// queryer is a transaction or a pool.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// standing reads one limit; its holdings are those of live executors.
func standing(ctx context.Context, q queryer, k limit.Key) (st limit.Standing, at time.Time, err error) {
	var us int64
	var last sql.NullInt64
	if err = q.QueryRowContext(ctx, `SELECT `+now+`, (SELECT last FROM limit_rates WHERE namespace = ? AND name = ?)`, k.Namespace, k.Name).Scan(&us, &last); err != nil {
		return st, at, err
	}
	at = time.UnixMicro(us).UTC()
	if last.Valid {
		st.Last = time.UnixMicro(last.Int64).UTC()
	}
	ls, err := limits(q.QueryContext(ctx, selectLimits+` WHERE namespace = ? AND name = ?`, k.Namespace, k.Name))
	if err != nil {
		return st, at, err
	}
	if len(ls) > 0 {
		st.Limit = &ls[0]
	}
	if len(ls) > 0 && k.Name == limit.Namespace {
		if err := q.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = ? AND state IN (2, 3, 4, 5) LIMIT ?)`,
			k.Namespace, st.Limit.MaxOpenRuns).Scan(&st.Open); err != nil {
			return st, at, err
		}
	}
	rows, err := q.QueryContext(ctx, `SELECT h.owner_id, h.owner_incarnation, h.held, h.waiting, h.since, h.asked, h.runs FROM limit_holdings h
		JOIN executors e ON e.id = h.owner_id AND e.incarnation = h.owner_incarnation WHERE h.namespace = ? AND h.name = ?`, k.Namespace, k.Name)
	st.Others, err = dbkit.Collect(rows, err, func(rows *sql.Rows) (h limit.Holding, err error) {
		var since, asked int64
		err = rows.Scan(&h.Owner.ID, &h.Owner.Incarnation, &h.Held, &h.Waiting, &since, &asked, &h.Runs)
		h.Since, h.Asked = time.UnixMicro(since).UTC(), time.UnixMicro(asked).UTC()
		return h, err
	})
	return st, at, err
}

const selectLimits = `SELECT namespace, name, max_concurrent, max_rate, rate_interval_us, max_open_runs, max_fan_out, max_bytes, max_pending_runs, retention_us, update_time, principal FROM limits`

func limits(rows *sql.Rows, err error) ([]limit.Limit, error) {
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (l limit.Limit, err error) {
		var us, retention, at int64
		err = rows.Scan(&l.Namespace, &l.Name, &l.MaxConcurrent, &l.MaxRate, &us, &l.MaxOpenRuns, &l.MaxFanOut, &l.MaxBytes, &l.MaxPendingRuns, &retention, &at, &l.Principal)
		l.Retention = time.Duration(retention) * time.Microsecond
		l.RateInterval, l.UpdateTime = time.Duration(us)*time.Microsecond, time.UnixMicro(at).UTC()
		return l, err
	})
}

// Figures implements limit.Store.
func (s *Store) Figures(ctx context.Context, ks []limit.Key) ([]limit.Figure, error) {
	out := make([]limit.Figure, len(ks))
	err := s.db.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i, k := range ks {
			st, at, err := standing(ctx, tx, k)
			if err != nil {
				return err
			}
			out[i] = st.Figure(k, at)
		}
		return nil
	})
	return out, err
}

// All implements limit.Store.
func (s *Store) All(ctx context.Context, have int64) (version int64, ls []limit.Limit, err error) {
	err = s.db.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT version FROM limits_version`).Scan(&version); err != nil || version == have {
			return err
		}
		ls, err = limits(tx.QueryContext(ctx, selectLimits+` ORDER BY namespace, name`))
		return err
	})
	return version, ls, err
}

// List implements limit.Store.
func (s *Store) List(ctx context.Context, namespace, after string, most int) ([]limit.Limit, error) {
	return limits(s.db.Read.QueryContext(ctx, selectLimits+` WHERE namespace = ? AND name > ? ORDER BY name LIMIT ?`, namespace, after, most))
}

const changed = `UPDATE limits_version SET version = version + 1`

// Update implements limit.Store.
func (s *Store) Update(ctx context.Context, k limit.Key, change limit.Change) (kept limit.Limit, err error) {
	err = s.update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, changed); err != nil {
			return err
		}
		old, err := limits(tx.QueryContext(ctx, selectLimits+` WHERE namespace = ? AND name = ?`, k.Namespace, k.Name))
		if err != nil {
			return err
		}
		l := limit.Limit{Key: k}
		if len(old) > 0 {
			l = old[0]
		}
		if l, err = change(l, len(old) > 0); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM limits WHERE namespace = ? AND name <> ?`, l.Namespace, l.Name).Scan(&n); err != nil {
			return err
		}
		if n >= limit.MaxLimits {
			return limit.TooMany()
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO limits (namespace, name, max_concurrent, max_rate, rate_interval_us, max_open_runs, max_fan_out,
				max_bytes, max_pending_runs, retention_us, update_time, principal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, `+now+`, ?)`,
			l.Namespace, l.Name, l.MaxConcurrent, l.MaxRate, l.RateInterval.Microseconds(), l.MaxOpenRuns, l.MaxFanOut, l.MaxBytes, l.MaxPendingRuns, l.Retention.Microseconds(), l.Principal); err != nil {
			return err
		}
		ls, err := limits(tx.QueryContext(ctx, selectLimits+` WHERE namespace = ? AND name = ?`, l.Namespace, l.Name))
		if err == nil {
			kept = ls[0]
		}
		return err
	})
	if err != nil {
		return limit.Limit{}, err
	}
	s.tell(limit.Key{}, k)
	return kept, nil
}

// Delete implements limit.Store.
func (s *Store) Delete(ctx context.Context, k limit.Key) error {
	err := s.update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, changed); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `DELETE FROM limits WHERE namespace = ? AND name = ?`, k.Namespace, k.Name)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, limit.NotFound(k.Name))
		}
		return nil
	})
	if err == nil {
		s.tell(limit.Key{}, k)
	}
	return err
}

// OpenRuns implements limit.Store.
func (s *Store) OpenRuns(ctx context.Context, namespace string, bound int64) (open, pending int64, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = ?1 AND state IN (2, 3, 4, 5) LIMIT ?2)),
		(SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = ?1 AND state = 1 LIMIT ?2))`, namespace, bound).Scan(&open, &pending)
	return open, pending, err
}

const (
	// waitsForRoom is what the index of pending runs holds.
	waitsForRoom = `state = 1 AND owner_id = '' AND wake_time = 0`
	pendingOrder = ` ORDER BY priority, create_time, run_id LIMIT `
)

func pending(rows *sql.Rows, err error) ([]limit.Pending, error) {
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (p limit.Pending, err error) {
		err = rows.Scan(&p.Namespace, &p.RunID)
		return p, err
	})
}

// Next implements limit.Store.
func (s *Store) Next(ctx context.Context, namespace string, most int64, n int) ([]limit.Pending, error) {
	return pending(s.db.Read.QueryContext(ctx, `SELECT namespace, run_id FROM runs WHERE namespace = ?1 AND `+waitsForRoom+pendingOrder+`min(?3,
		?2 - (SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = ?1 AND state IN (2, 3, 4, 5) LIMIT ?2)))`, namespace, most, n))
}

// Stranded implements limit.Store.
func (s *Store) Stranded(ctx context.Context, age time.Duration, n int) ([]limit.Pending, error) {
	return pending(s.db.Read.QueryContext(ctx, `SELECT r.namespace, r.run_id FROM runs r WHERE `+waitsForRoom+` AND create_time < `+now+` - ?
		AND NOT EXISTS (SELECT 1 FROM limits l WHERE l.namespace = r.namespace AND l.name = '`+limit.Namespace+`' AND l.max_open_runs > 0)
		LIMIT ?`, age.Microseconds(), n))
}

// Bytes implements limit.Store.
func (s *Store) Bytes(ctx context.Context, namespace string) (n int64, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT coalesce(sum(
			coalesce((SELECT sum(length(e.data)) FROM events e WHERE e.run_id = r.run_id), 0)
			+ coalesce((SELECT length(s.data) FROM snapshots s WHERE s.run_id = r.run_id), 0)
			+ coalesce((SELECT coalesce(length(d.args), 0) + coalesce(length(d.named), 0) + coalesce(length(d.context), 0) + coalesce(length(d.attachments), 0)
				FROM run_details d WHERE d.run_id = r.run_id), 0)), 0)
		FROM runs r WHERE r.namespace = ? AND r.state IN (1, 2, 3, 4, 5)`, namespace).Scan(&n)
	return n, err
}

// Backlog implements limit.Store.
func (s *Store) Backlog(ctx context.Context) (jobs, executors int64, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM river_job WHERE state = 'available' AND queue <> 'webhook' AND scheduled_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') LIMIT 10000) j), (SELECT count(*) FROM executors)`).Scan(&jobs, &executors)
	return jobs, executors, err
}

// Sweep implements limit.Store.
func (s *Store) Sweep(ctx context.Context) error {
	return s.update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM limit_holdings AS h WHERE NOT EXISTS (
			SELECT 1 FROM executors e WHERE e.id = h.owner_id AND e.incarnation = h.owner_incarnation)`)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM limit_rates WHERE last < `+now+` - ?`, (25 * time.Hour).Microseconds())
		}
		return err
	})
}

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

// tell passes keys on to the executors of this process.
func (s *Store) tell(ks ...limit.Key) {
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
