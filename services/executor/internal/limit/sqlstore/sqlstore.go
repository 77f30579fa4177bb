// Package sqlstore holds the SQL of limits, which PostgreSQL and SQLite share except for the fragments of
// dbkit.Dialect. The drivers hold the locks of an exchange and the notifications of waiters. Package limit
// decides the exchange.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// Database describes the database to the store.
type Database struct {
	Pool    dbkit.Pool
	Dialect dbkit.Dialect
	// Lock makes the statements by which an exchange about these limits waits for others; nil means that it
	// is alone anyway.
	Lock func([]limit.Key) []dbkit.Stmt
	// NotifyInTx makes the statements of a transaction that wake, at its commit, the waiters for limits; nil
	// means that NotifyAfter does it. The zero key says that limits were changed.
	NotifyInTx func([]limit.Key) []dbkit.Stmt
	// NotifyAfter is called after a commit; nil means that NotifyInTx did it.
	NotifyAfter func(...limit.Key)
	// JobDue holds for a job of the queue whose time has come.
	JobDue string
}

// Store is the shared part of a limit.Store. It is safe for concurrent use.
type Store struct {
	db Database
	d  dbkit.Dialect
}

// New returns the shared part of the limits in a database, which stays the caller's. The journal's migrations
// make the tables.
func New(db Database) *Store {
	if db.Lock == nil {
		db.Lock = func([]limit.Key) []dbkit.Stmt { return nil }
	}
	if db.NotifyInTx == nil {
		db.NotifyInTx = func([]limit.Key) []dbkit.Stmt { return nil }
	}
	if db.NotifyAfter == nil {
		db.NotifyAfter = func(...limit.Key) {}
	}
	return &Store{db: db, d: db.Dialect}
}

// Sync implements limit.Store. One half of the exchange locks and reads, the other one writes.
func (s *Store) Sync(ctx context.Context, owner journal.Owner, turn int64, asks []limit.Ask) ([]limit.Grant, error) {
	ks := make([]limit.Key, 0, len(asks))
	for _, a := range asks {
		if ks = append(ks, a.Key); a.Also != "" {
			ks = append(ks, a.AlsoKey())
		}
	}
	var grants []limit.Grant
	var notified []limit.Key
	err := s.db.Pool.Exchange(ctx, func() ([]dbkit.Stmt, func() ([]dbkit.Stmt, error)) {
		registered, fresh := false, false
		r, read := s.read(ks)
		first := slices.Concat([]dbkit.Stmt{
			{
				Query: `SELECT id FROM executors WHERE id = $1 AND incarnation = $2` + s.d.Kept(), Args: []any{owner.ID, owner.Incarnation},
				Rows: func(rows dbkit.Rows) error {
					registered = rows.Next()
					return rows.Err()
				},
			},
			{
				Query: `INSERT INTO limit_turns AS t (owner_id, incarnation, turn) VALUES ($1, $2, $3)
					ON CONFLICT (owner_id) DO UPDATE SET incarnation = excluded.incarnation, turn = excluded.turn
					WHERE (t.incarnation, t.turn) < (excluded.incarnation, excluded.turn)`,
				Args: []any{owner.ID, owner.Incarnation, turn},
				Done: func(n int64) error {
					fresh = n == 1
					return nil
				},
			},
		}, s.db.Lock(ks), read, s.openRuns(r, ks))
		return first, func() (stmts []dbkit.Stmt, err error) {
			switch {
			case !registered:
				return nil, journal.Fenced(owner)
			case !fresh:
				return nil, limit.Stale()
			}
			grants, notified, stmts = decide(r, owner, asks)
			return append(stmts, s.db.NotifyInTx(notified)...), nil
		}
	})
	if err != nil {
		return nil, err
	}
	s.db.NotifyAfter(notified...)
	return grants, nil
}

// decide answers asks from the rows that were read, and returns the rows to be written and the limits whose
// waiters must be woken.
func decide(r *reading, owner journal.Owner, asks []limit.Ask) (grants []limit.Grant, notified []limit.Key, stmts []dbkit.Stmt) {
	do := func(query string, args ...any) { stmts = append(stmts, dbkit.Stmt{Query: query, Args: args}) }
	grants = make([]limit.Grant, len(asks))
	for i, a := range asks {
		st := r.state(a.Key)
		st.Others = slices.DeleteFunc(st.Others, func(h limit.Holding) bool {
			mine := h.Owner == owner
			if mine {
				st.Mine = h
			}
			return mine
		})
		if a.Also != "" {
			also := r.state(a.AlsoKey())
			st.Also = &also
		}
		d := limit.Decide(st, a, owner, r.now)
		grants[i] = d.Grant
		switch {
		case a.Rate && !d.Last.Equal(st.Last):
			const setLast = `INSERT INTO limit_rates (namespace, name, last) VALUES ($1, $2, $3)
				ON CONFLICT (namespace, name) DO UPDATE SET last = excluded.last`
			r.last[a.Key] = d.Last
			if do(setLast, a.Namespace, a.Name, d.Last); a.Also != "" {
				r.last[a.AlsoKey()] = d.Last
				do(setLast, a.Namespace, a.Also, d.Last)
			}
		case d.Write && d.Row.Held == 0 && d.Row.Waiting == 0:
			do(`DELETE FROM limit_holdings WHERE namespace = $1 AND name = $2 AND owner_id = $3`, a.Namespace, a.Name, owner.ID)
		case d.Write:
			do(`INSERT INTO limit_holdings (namespace, name, owner_id, owner_incarnation, held, waiting, since, asked, runs)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
				ON CONFLICT (namespace, name, owner_id) DO UPDATE SET owner_incarnation = excluded.owner_incarnation, held = excluded.held,
					waiting = excluded.waiting, since = excluded.since, asked = excluded.asked, runs = excluded.runs`,
				a.Namespace, a.Name, owner.ID, owner.Incarnation, d.Row.Held, d.Row.Waiting, d.Row.Since, d.Row.Asked, d.Row.Runs)
		}
		if d.Notify {
			notified = append(notified, a.Key)
		}
	}
	return grants, notified, stmts
}

// reading is what the tables say of some limits.
type reading struct {
	now      time.Time
	limits   map[limit.Key]*limit.Limit
	holdings map[limit.Key][]limit.Holding
	last     map[limit.Key]time.Time
	open     map[string]int64
}

func (r *reading) state(k limit.Key) limit.State {
	return limit.State{Limit: r.limits[k], Others: r.holdings[k], Last: r.last[k], Open: r.open[k.Namespace]}
}

// read makes the statements that read all that is known of limits. Holdings are those of live executors.
func (s *Store) read(ks []limit.Key) (*reading, []dbkit.Stmt) {
	r := &reading{limits: map[limit.Key]*limit.Limit{}, holdings: map[limit.Key][]limit.Holding{}, last: map[limit.Key]time.Time{}, open: map[string]int64{}}
	keys := [][2]string{{"namespace", "text"}, {"name", "text"}}
	rows := make([][]any, len(ks))
	for i, k := range ks {
		rows[i] = []any{k.Namespace, k.Name}
	}
	asked := func(columns, table string) string {
		return `SELECT ` + columns + ` FROM (SELECT DISTINCT * FROM ` + s.d.Rows(`u`, 1, keys...) + `) w` +
			s.d.LookUp(table, `x`, `x.namespace = w.namespace AND x.name = w.name`)
	}
	stmt := func(query string, each func(dbkit.Rows) error) dbkit.Stmt {
		return dbkit.Stmt{Query: query, Args: s.d.RowArgs(len(keys), rows), Rows: func(rows dbkit.Rows) error {
			for rows.Next() {
				if err := each(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		}}
	}
	return r, []dbkit.Stmt{
		{Query: `SELECT ` + s.d.Now(), Rows: func(rows dbkit.Rows) error { return dbkit.FirstRow(rows, nil).Scan(dbkit.At(&r.now)) }},
		stmt(asked(columns(`x.`), `limits`), func(rows dbkit.Rows) error {
			l, err := scan(rows)
			r.limits[l.Key] = &l
			return err
		}),
		stmt(asked(`x.namespace, x.name, x.owner_id, x.owner_incarnation, x.held, x.waiting, x.since, x.asked, x.runs`, `limit_holdings`)+`
			WHERE EXISTS (SELECT 1 FROM executors e WHERE e.id = x.owner_id AND e.incarnation = x.owner_incarnation)`, func(rows dbkit.Rows) error {
			var k limit.Key
			var h limit.Holding
			err := rows.Scan(&k.Namespace, &k.Name, &h.Owner.ID, &h.Owner.Incarnation, &h.Held, &h.Waiting, dbkit.At(&h.Since), dbkit.At(&h.Asked), &h.Runs)
			r.holdings[k] = append(r.holdings[k], h)
			return err
		}),
		stmt(asked(`x.namespace, x.name, x.last`, `limit_rates`), func(rows dbkit.Rows) error {
			var k limit.Key
			var at time.Time
			err := rows.Scan(&k.Namespace, &k.Name, dbkit.At(&at))
			r.last[k] = at
			return err
		}),
	}
}

// openRuns makes the statements that count the open runs of namespaces, no further than they are bounded.
func (s *Store) openRuns(r *reading, ks []limit.Key) (stmts []dbkit.Stmt) {
	for _, k := range ks {
		if k.Name != limit.Namespace {
			continue
		}
		stmts = append(stmts, dbkit.Stmt{
			Query: `SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = $1 AND state IN (2, 3, 4, 5)
				LIMIT coalesce((SELECT max_open_runs FROM limits WHERE namespace = $1 AND name = $2), 0)) o`,
			Args: []any{k.Namespace, k.Name},
			Rows: func(rows dbkit.Rows) error {
				var n int64
				err := dbkit.FirstRow(rows, nil).Scan(&n)
				r.open[k.Namespace] = n
				return err
			},
		})
	}
	return stmts
}

// columns are those of a limit, with a prefix.
func columns(x string) string {
	return fmt.Sprintf(`%[1]snamespace, %[1]sname, %[1]smax_concurrent, %[1]smax_rate, %[1]srate_interval_us, %[1]smax_open_runs, %[1]smax_fan_out,
		%[1]smax_bytes, %[1]smax_pending_runs, %[1]sretention_us, %[1]supdate_time, %[1]sprincipal`, x)
}

func scan(row dbkit.Scanner) (l limit.Limit, err error) {
	var us, retention int64
	err = row.Scan(&l.Namespace, &l.Name, &l.MaxConcurrent, &l.MaxRate, &us, &l.MaxOpenRuns, &l.MaxFanOut, &l.MaxBytes, &l.MaxPendingRuns,
		&retention, dbkit.At(&l.UpdateTime), &l.Principal)
	l.RateInterval, l.Retention = time.Duration(us)*time.Microsecond, time.Duration(retention)*time.Microsecond
	return l, err
}

func limits(rows dbkit.Rows, err error) ([]limit.Limit, error) {
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (limit.Limit, error) { return scan(rows) })
}

// Figures implements limit.Store.
func (s *Store) Figures(ctx context.Context, ks []limit.Key) ([]limit.Figure, error) {
	r, stmts := s.read(ks)
	if err := s.db.Pool.View(ctx, stmts...); err != nil {
		return nil, fmt.Errorf("read holdings: %w", err)
	}
	out := make([]limit.Figure, len(ks))
	for i, k := range ks {
		out[i] = r.state(k).Figure(k, r.now)
	}
	return out, nil
}

// All implements limit.Store. The limits may be newer than the version, but not older.
func (s *Store) All(ctx context.Context, have int64) (version int64, ls []limit.Limit, err error) {
	err = dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT version FROM limits_version`)).Scan(&version)
	if err != nil || version == have {
		return version, nil, err
	}
	ls, err = limits(s.db.Pool.Query(ctx, `SELECT `+columns(``)+` FROM limits ORDER BY namespace, name`))
	return version, ls, err
}

// List implements limit.Store.
func (s *Store) List(ctx context.Context, namespace, after string, most int) ([]limit.Limit, error) {
	return limits(s.db.Pool.Query(ctx, `SELECT `+columns(``)+` FROM limits WHERE namespace = $1 AND name > $2 ORDER BY name LIMIT $3`, namespace, after, most))
}

// change runs fn in a transaction that changes a limit. Changes take turns by the row of the version.
func (s *Store) change(ctx context.Context, k limit.Key, fn func(ctx context.Context, tx dbkit.Querier) error) error {
	notified := []limit.Key{{}, k}
	err := s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		if _, err := tx.Exec(ctx, `UPDATE limits_version SET version = version + 1`); err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return tx.Batch(ctx, s.db.NotifyInTx(notified)...)
	})
	if err == nil {
		s.db.NotifyAfter(notified...)
	}
	return err
}

// Update implements limit.Store.
func (s *Store) Update(ctx context.Context, k limit.Key, change limit.Change) (put limit.Limit, err error) {
	err = s.change(ctx, k, func(ctx context.Context, tx dbkit.Querier) error {
		old, err := limits(tx.Query(ctx, `SELECT `+columns(``)+` FROM limits WHERE namespace = $1 AND name = $2`, k.Namespace, k.Name))
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
		if err := dbkit.FirstRow(tx.Query(ctx, `SELECT count(*) FROM limits WHERE namespace = $1 AND name <> $2`, l.Namespace, l.Name)).Scan(&n); err != nil {
			return err
		}
		if n >= limit.MaxLimits {
			return limit.TooMany()
		}
		put, err = scan(dbkit.FirstRow(tx.Query(ctx, `INSERT INTO limits (namespace, name, max_concurrent, max_rate, rate_interval_us, max_open_runs, max_fan_out,
				max_bytes, max_pending_runs, retention_us, update_time, principal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, `+s.d.Now()+`, $11)
			ON CONFLICT (namespace, name) DO UPDATE SET max_concurrent = excluded.max_concurrent, max_rate = excluded.max_rate,
				rate_interval_us = excluded.rate_interval_us, max_open_runs = excluded.max_open_runs, max_fan_out = excluded.max_fan_out,
				max_bytes = excluded.max_bytes, max_pending_runs = excluded.max_pending_runs, retention_us = excluded.retention_us,
				update_time = excluded.update_time, principal = excluded.principal
			RETURNING `+columns(``), l.Namespace, l.Name, l.MaxConcurrent, l.MaxRate, l.RateInterval.Microseconds(), l.MaxOpenRuns, l.MaxFanOut, l.MaxBytes,
			l.MaxPendingRuns, l.Retention.Microseconds(), l.Principal)))
		return err
	})
	return put, err
}

// Delete implements limit.Store.
func (s *Store) Delete(ctx context.Context, k limit.Key) error {
	return s.change(ctx, k, func(ctx context.Context, tx dbkit.Querier) error {
		n, err := tx.Exec(ctx, `DELETE FROM limits WHERE namespace = $1 AND name = $2`, k.Namespace, k.Name)
		if err == nil && n == 0 {
			return limit.NotFound(k.Name)
		}
		return err
	})
}

// OpenRuns implements limit.Store.
func (s *Store) OpenRuns(ctx context.Context, namespace string, bound int64) (open, pending int64, err error) {
	err = dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = $1 AND state IN (2, 3, 4, 5) LIMIT $2) o),
		(SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = $1 AND state = 1 LIMIT $2) p)`, namespace, bound)).Scan(&open, &pending)
	return open, pending, err
}

// waitsForRoom holds for a run that the index of pending runs has.
func (s *Store) waitsForRoom() string {
	return `state = 1 AND owner_id = '' AND ` + s.d.Unset(`wake_time`)
}

func pending(rows dbkit.Rows, err error) ([]limit.Pending, error) {
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (p limit.Pending, err error) {
		err = rows.Scan(&p.Namespace, &p.RunID)
		return p, err
	})
}

// Next implements limit.Store.
func (s *Store) Next(ctx context.Context, namespace string, most int64, n int) ([]limit.Pending, error) {
	room := `$2 - (SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = $1 AND state IN (2, 3, 4, 5) LIMIT $2) o)`
	return pending(s.db.Pool.Query(ctx, `SELECT namespace, run_id FROM runs WHERE namespace = $1 AND `+s.waitsForRoom()+`
		ORDER BY priority, create_time, run_id LIMIT `+s.d.Least(`$3`, room), namespace, most, n))
}

// Stranded implements limit.Store.
func (s *Store) Stranded(ctx context.Context, age time.Duration, n int) ([]limit.Pending, error) {
	return pending(s.db.Pool.Query(ctx, `SELECT r.namespace, r.run_id FROM runs r WHERE `+s.waitsForRoom()+` AND create_time < `+s.d.Now()+` - `+s.d.Span(`$1`)+`
		AND NOT EXISTS (SELECT 1 FROM limits l WHERE l.namespace = r.namespace AND l.name = '`+limit.Namespace+`' AND l.max_open_runs > 0)
		LIMIT $2`, age, n))
}

// Bytes implements limit.Store.
func (s *Store) Bytes(ctx context.Context, namespace string) (n int64, err error) {
	var sum sql.NullInt64
	err = dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT CAST(sum(
			coalesce((SELECT sum(octet_length(e.data)) FROM events e WHERE e.run_id = r.run_id), 0)
			+ coalesce((SELECT octet_length(s.data) FROM snapshots s WHERE s.run_id = r.run_id), 0)
			+ coalesce((SELECT coalesce(octet_length(d.args), 0) + coalesce(octet_length(d.named), 0) + coalesce(octet_length(d.context), 0)
				+ coalesce(octet_length(d.attachments), 0) FROM run_details d WHERE d.run_id = r.run_id), 0)) AS bigint)
		FROM runs r WHERE r.namespace = $1 AND r.state IN (1, 2, 3, 4, 5)`, namespace)).Scan(&sum)
	return sum.Int64, err
}

// Backlog implements limit.Store.
func (s *Store) Backlog(ctx context.Context) (jobs, executors int64, err error) {
	err = dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM river_job WHERE state = 'available' AND queue <> 'webhook' AND `+
		s.db.JobDue+` LIMIT 10000) j), (SELECT count(*) FROM executors)`)).Scan(&jobs, &executors)
	return jobs, executors, err
}

// Sweep implements limit.Store. Rows are deleted by their incarnation: a row that was written again stays.
func (s *Store) Sweep(ctx context.Context) error {
	_, err := s.db.Pool.Exec(ctx, s.d.DeleteSome(`limit_holdings`, `namespace, name, owner_id, owner_incarnation`, `
		SELECT h.namespace, h.name, h.owner_id, h.owner_incarnation FROM limit_holdings h
		WHERE NOT EXISTS (SELECT 1 FROM executors e WHERE e.id = h.owner_id AND e.incarnation = h.owner_incarnation)
		ORDER BY h.namespace, h.name, h.owner_id LIMIT 10000`))
	_, rates := s.db.Pool.Exec(ctx, `DELETE FROM limit_rates WHERE last < `+s.d.Now()+` - `+s.d.Span(`$1`), 25*time.Hour)
	return errors.Join(err, rates)
}
