// Package pg keeps limits in the schema of the journal in a PostgreSQL database, for any number of executors. It owns the SQL and the
// locks of that driver; what becomes of an ask is package limit's to say.
package pg

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

const (
	// channel gets the namespace and the name of a limit, or nothing after limits were changed.
	channel = "executor_limit"
	// between stands between the two.
	between = "\x1f"
	// fencedCode is the SQLSTATE that executor_fence raises.
	fencedCode = "EG001"
	// Conns are how many connections the pool has: for exchanges and for the API.
	Conns = 4
)

var _ limit.Store = (*Store)(nil)

// Store is a limit.Store with a small pool of its own: an exchange must wait neither for readers nor for commits.
type Store struct{ pool *pgxpool.Pool }

// Open connects. The journal's migrations make the tables.
func Open(ctx context.Context, url string, tracer trace.TracerProvider) (*Store, error) {
	pool, err := dbkit.OpenPostgres(ctx, url, journalpg.Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor-limits", TracerProvider: tracer, MaxConns: Conns, IdleInTransactionTimeout: 2 * time.Second, ByIndex: true,
	})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool}, nil
}

// Close implements limit.Store.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// names are keys as two arrays.
func names(ks []limit.Key) (namespaces, ns []string) {
	namespaces, ns = make([]string, len(ks)), make([]string, len(ks))
	for i, k := range ks {
		namespaces[i], ns[i] = k.Namespace, k.Name
	}
	return namespaces, ns
}

// locks are the advisory locks of asks, sorted so that no two exchanges wait for each other in a circle.
func locks(ks []limit.Key) []int64 {
	out := make([]int64, len(ks))
	for i, k := range ks {
		h := fnv.New64a()
		for _, s := range []string{"epigraph/limit", k.Namespace, k.Name} {
			h.Write([]byte(s))
			h.Write([]byte{0})
		}
		out[i] = int64(h.Sum64())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Sync implements limit.Store. Two messages: one locks and reads, one writes and commits.
func (s *Store) Sync(ctx context.Context, owner journal.Owner, turn int64, asks []limit.Ask) ([]limit.Grant, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire connection: %w", err)
	}
	// A connection that is left inside a transaction is closed by the pool, which rolls back.
	defer conn.Release()
	grants, err := sync(ctx, conn, owner, turn, asks)
	if err != nil {
		if conn.Conn().PgConn().TxStatus() != 'I' && ctx.Err() == nil {
			_, _ = conn.Exec(ctx, "ROLLBACK")
		}
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == fencedCode {
			return nil, journal.Fenced(owner)
		}
		return nil, err
	}
	return grants, nil
}

func sync(ctx context.Context, conn *pgxpool.Conn, owner journal.Owner, turn int64, asks []limit.Ask) ([]limit.Grant, error) {
	ks := make([]limit.Key, 0, len(asks))
	for _, a := range asks {
		if ks = append(ks, a.Key); a.Also != "" {
			ks = append(ks, a.AlsoKey())
		}
	}
	var b pgx.Batch
	b.Queue("BEGIN")
	b.Queue("SELECT executor_fence($1, $2)", owner.ID, owner.Incarnation)
	fresh := false
	b.Queue(`INSERT INTO limit_turns AS t (owner_id, incarnation, turn) VALUES ($1, $2, $3)
		ON CONFLICT (owner_id) DO UPDATE SET incarnation = excluded.incarnation, turn = excluded.turn
		WHERE (t.incarnation, t.turn) < (excluded.incarnation, excluded.turn)`, owner.ID, owner.Incarnation, turn).Exec(func(tag pgconn.CommandTag) error {
		fresh = tag.RowsAffected() == 1
		return nil
	})
	b.Queue("SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS l (k)", locks(ks))
	r := queueRead(&b, ks)
	for _, k := range ks {
		if k.Name == limit.Namespace {
			queueOpen(&b, r, k)
		}
	}
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	if !fresh {
		return nil, limit.Stale()
	}
	var w pgx.Batch
	grants := make([]limit.Grant, len(asks))
	for i, a := range asks {
		st := r.standing(a.Key)
		st.Others = slices.DeleteFunc(st.Others, func(h limit.Holding) bool {
			mine := h.Owner == owner
			if mine {
				st.Mine = h
			}
			return mine
		})
		if a.Also != "" {
			also := r.standing(a.AlsoKey())
			st.Also = &also
		}
		d := limit.Decide(st, a, owner, r.now)
		grants[i] = d.Grant
		switch {
		case a.Rate && !d.Last.Equal(st.Last):
			r.last[a.Key] = d.Last
			if w.Queue(setLast, a.Namespace, a.Name, d.Last); a.Also != "" {
				r.last[a.AlsoKey()] = d.Last
				w.Queue(setLast, a.Namespace, a.Also, d.Last)
			}
		case d.Write && d.Row.Held == 0 && d.Row.Waiting == 0:
			w.Queue(`DELETE FROM limit_holdings WHERE namespace = $1 AND name = $2 AND owner_id = $3`, a.Namespace, a.Name, owner.ID)
		case d.Write:
			w.Queue(`INSERT INTO limit_holdings (namespace, name, owner_id, owner_incarnation, held, waiting, since, asked, runs)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
				ON CONFLICT (namespace, name, owner_id) DO UPDATE SET owner_incarnation = excluded.owner_incarnation, held = excluded.held,
					waiting = excluded.waiting, since = excluded.since, asked = excluded.asked, runs = excluded.runs`,
				a.Namespace, a.Name, owner.ID, owner.Incarnation, d.Row.Held, d.Row.Waiting, d.Row.Since, d.Row.Asked, d.Row.Runs)
		}
		if d.Notify {
			w.Queue(`SELECT pg_notify('`+channel+`', $1)`, a.Namespace+between+a.Name)
		}
	}
	w.Queue("COMMIT")
	return grants, conn.SendBatch(ctx, &w).Close()
}

const setLast = `INSERT INTO limit_rates (namespace, name, last) VALUES ($1, $2, $3)
	ON CONFLICT (namespace, name) DO UPDATE SET last = excluded.last`

// reading is what the tables say of some limits.
type reading struct {
	now      time.Time
	limits   map[limit.Key]*limit.Limit
	holdings map[limit.Key][]limit.Holding
	last     map[limit.Key]time.Time
	open     map[string]int64
}

func (r *reading) standing(k limit.Key) limit.Standing {
	return limit.Standing{Limit: r.limits[k], Others: r.holdings[k], Last: r.last[k], Open: r.open[k.Namespace]}
}

// queueOpen counts the open runs of a namespace, no further than they are bounded.
func queueOpen(b *pgx.Batch, r *reading, k limit.Key) {
	if r.open == nil {
		r.open = map[string]int64{}
	}
	b.Queue(`SELECT count(*) FROM (SELECT FROM runs WHERE namespace = $1 AND state IN (2, 3, 4, 5)
		LIMIT (SELECT max_open_runs FROM limits WHERE namespace = $1 AND name = $2)) o`, k.Namespace, k.Name).QueryRow(func(row pgx.Row) error {
		var n int64
		err := row.Scan(&n)
		r.open[k.Namespace] = n
		return err
	})
}

const limitColumns = `l.namespace, l.name, l.max_concurrent, l.max_rate, l.rate_interval_us, l.max_open_runs, l.max_fan_out, l.max_bytes, l.max_pending_runs, l.retention_us, l.update_time, l.principal`

func scanLimit(row pgx.CollectableRow) (l limit.Limit, err error) {
	var us, retention int64
	err = row.Scan(&l.Namespace, &l.Name, &l.MaxConcurrent, &l.MaxRate, &us, &l.MaxOpenRuns, &l.MaxFanOut, &l.MaxBytes, &l.MaxPendingRuns, &retention, &l.UpdateTime, &l.Principal)
	l.Retention = time.Duration(retention) * time.Microsecond
	l.RateInterval, l.UpdateTime = time.Duration(us)*time.Microsecond, l.UpdateTime.UTC()
	return l, err
}

// queueRead reads all that is known of ks. OFFSET 0 keeps each a look-up by key per name.
func queueRead(b *pgx.Batch, ks []limit.Key) *reading {
	r := &reading{limits: map[limit.Key]*limit.Limit{}, holdings: map[limit.Key][]limit.Holding{}, last: map[limit.Key]time.Time{}}
	ns, nm := names(ks)
	const asked = ` FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS u (namespace, name)) w CROSS JOIN LATERAL (`
	const where = `.namespace = w.namespace AND `
	b.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error { return row.Scan(&r.now) })
	b.Queue(`SELECT `+limitColumns+asked+`SELECT * FROM limits x WHERE x`+where+`x.name = w.name OFFSET 0) l`, ns, nm).Query(func(rows pgx.Rows) error {
		ls, err := pgx.CollectRows(rows, scanLimit)
		for i := range ls {
			r.limits[ls[i].Key] = &ls[i]
		}
		return err
	})
	b.Queue(`SELECT h.namespace, h.name, h.owner_id, h.owner_incarnation, h.held, h.waiting, h.since, h.asked, h.runs`+asked+`
		SELECT x.* FROM limit_holdings x JOIN executors e ON e.id = x.owner_id AND e.incarnation = x.owner_incarnation
		WHERE x`+where+`x.name = w.name OFFSET 0) h`, ns, nm).Query(func(rows pgx.Rows) error {
		var k limit.Key
		var h limit.Holding
		_, err := pgx.ForEachRow(rows, []any{&k.Namespace, &k.Name, &h.Owner.ID, &h.Owner.Incarnation, &h.Held, &h.Waiting, &h.Since, &h.Asked, &h.Runs}, func() error {
			r.holdings[k] = append(r.holdings[k], h)
			return nil
		})
		return err
	})
	b.Queue(`SELECT t.namespace, t.name, t.last`+asked+`SELECT * FROM limit_rates x WHERE x`+where+`x.name = w.name OFFSET 0) t`, ns, nm).Query(func(rows pgx.Rows) error {
		var k limit.Key
		var at time.Time
		_, err := pgx.ForEachRow(rows, []any{&k.Namespace, &k.Name, &at}, func() error { r.last[k] = at; return nil })
		return err
	})
	return r
}

// Figures implements limit.Store.
func (s *Store) Figures(ctx context.Context, ks []limit.Key) ([]limit.Figure, error) {
	var b pgx.Batch
	r := queueRead(&b, ks)
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("read holdings: %w", err)
	}
	out := make([]limit.Figure, len(ks))
	for i, k := range ks {
		out[i] = r.standing(k).Figure(k, r.now)
	}
	return out, nil
}

// All implements limit.Store.
func (s *Store) All(ctx context.Context, have int64) (version int64, ls []limit.Limit, err error) {
	if err = s.pool.QueryRow(ctx, `SELECT version FROM limits_version`).Scan(&version); err != nil || version == have {
		return version, nil, err
	}
	rows, err := s.pool.Query(ctx, `SELECT `+limitColumns+` FROM limits l ORDER BY l.namespace, l.name`)
	if err != nil {
		return 0, nil, err
	}
	ls, err = pgx.CollectRows(rows, scanLimit)
	return version, ls, err
}

// List implements limit.Store.
func (s *Store) List(ctx context.Context, namespace, after string, most int) ([]limit.Limit, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+limitColumns+` FROM limits l WHERE l.namespace = $1 AND l.name > $2 ORDER BY l.name LIMIT $3`, namespace, after, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanLimit)
}

const changed = `UPDATE limits_version SET version = version + 1`

// Update implements limit.Store. Changes take turns by the row of the version.
func (s *Store) Update(ctx context.Context, k limit.Key, change limit.Change) (l limit.Limit, err error) {
	err = dbkit.PostgresTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, changed); err != nil { // locks out other changes
			return err
		}
		rows, err := tx.Query(ctx, `SELECT `+limitColumns+` FROM limits AS l WHERE namespace = $1 AND name = $2`, k.Namespace, k.Name)
		if err != nil {
			return err
		}
		old, err := pgx.CollectExactlyOneRow(rows, scanLimit)
		found := !errors.Is(err, pgx.ErrNoRows)
		if err != nil && found {
			return err
		}
		if !found {
			old = limit.Limit{Key: k}
		}
		if l, err = change(old, found); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM limits WHERE namespace = $1 AND name <> $2`, l.Namespace, l.Name).Scan(&n); err != nil {
			return err
		}
		if n >= limit.MaxLimits {
			return limit.TooMany()
		}
		rows, err = tx.Query(ctx, `INSERT INTO limits AS l (namespace, name, max_concurrent, max_rate, rate_interval_us, max_open_runs, max_fan_out, max_bytes,
				max_pending_runs, retention_us, update_time, principal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now(), $11)
			ON CONFLICT (namespace, name) DO UPDATE SET max_concurrent = excluded.max_concurrent, max_rate = excluded.max_rate, rate_interval_us = excluded.rate_interval_us,
				max_open_runs = excluded.max_open_runs, max_fan_out = excluded.max_fan_out, max_bytes = excluded.max_bytes,
				max_pending_runs = excluded.max_pending_runs, retention_us = excluded.retention_us, update_time = excluded.update_time, principal = excluded.principal RETURNING `+limitColumns,
			l.Namespace, l.Name, l.MaxConcurrent, l.MaxRate, l.RateInterval.Microseconds(), l.MaxOpenRuns, l.MaxFanOut, l.MaxBytes, l.MaxPendingRuns, l.Retention.Microseconds(), l.Principal)
		if err != nil {
			return err
		}
		if l, err = pgx.CollectExactlyOneRow(rows, scanLimit); err != nil {
			return err
		}
		return notify(ctx, tx, k)
	})
	return l, err
}

// notify tells that limits were changed, and those who wait for this one that it may have more room.
func notify(ctx context.Context, tx pgx.Tx, k limit.Key) error {
	_, err := tx.Exec(ctx, `SELECT pg_notify('`+channel+`', p) FROM unnest($1::text[]) AS n (p)`, []string{"", k.Namespace + between + k.Name})
	return err
}

// Delete implements limit.Store.
func (s *Store) Delete(ctx context.Context, k limit.Key) error {
	return dbkit.PostgresTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, changed); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM limits WHERE namespace = $1 AND name = $2`, k.Namespace, k.Name)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return limit.NotFound(k.Name)
		}
		return notify(ctx, tx, k)
	})
}

// OpenRuns implements limit.Store.
func (s *Store) OpenRuns(ctx context.Context, namespace string, bound int64) (open, pending int64, err error) {
	err = s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM (SELECT FROM runs WHERE namespace = $1 AND state IN (2, 3, 4, 5) LIMIT $2) o),
		(SELECT count(*) FROM (SELECT FROM runs WHERE namespace = $1 AND state = 1 LIMIT $2) p)`, namespace, bound).Scan(&open, &pending)
	return open, pending, err
}

const (
	// waitsForRoom is what the index of pending runs holds.
	waitsForRoom = `state = 1 AND owner_id = '' AND wake_time IS NULL`
	pendingOrder = ` ORDER BY priority, create_time, run_id LIMIT `
)

func pending(rows pgx.Rows, err error) ([]limit.Pending, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[limit.Pending])
}

// Next implements limit.Store.
func (s *Store) Next(ctx context.Context, namespace string, most int64, n int) ([]limit.Pending, error) {
	return pending(s.pool.Query(ctx, `SELECT namespace, run_id FROM runs WHERE namespace = $1 AND `+waitsForRoom+pendingOrder+`least($3,
		$2 - (SELECT count(*) FROM (SELECT FROM runs WHERE namespace = $1 AND state IN (2, 3, 4, 5) LIMIT $2) o))`, namespace, most, n))
}

// Stranded implements limit.Store.
func (s *Store) Stranded(ctx context.Context, age time.Duration, n int) ([]limit.Pending, error) {
	return pending(s.pool.Query(ctx, `SELECT r.namespace, r.run_id FROM runs r WHERE `+waitsForRoom+` AND create_time < now() - $1::interval
		AND NOT EXISTS (SELECT FROM limits l WHERE l.namespace = r.namespace AND l.name = '`+limit.Namespace+`' AND l.max_open_runs > 0)
		LIMIT $2`, age, n))
}

// Bytes implements limit.Store.
func (s *Store) Bytes(ctx context.Context, namespace string) (n int64, err error) {
	err = s.pool.QueryRow(ctx, `SELECT coalesce(sum(x.n), 0)::bigint FROM runs r CROSS JOIN LATERAL (
			SELECT sum(octet_length(e.data)) AS n FROM events e WHERE e.run_id = r.run_id
			UNION ALL SELECT octet_length(s.data) FROM snapshots s WHERE s.run_id = r.run_id
			UNION ALL SELECT coalesce(octet_length(d.args), 0) + coalesce(octet_length(d.named), 0) + coalesce(octet_length(d.context), 0) + coalesce(octet_length(d.attachments), 0)
				FROM run_details d WHERE d.run_id = r.run_id) x
		WHERE r.namespace = $1 AND r.state IN (1, 2, 3, 4, 5)`, namespace).Scan(&n)
	return n, err
}

// Backlog implements limit.Store.
func (s *Store) Backlog(ctx context.Context) (jobs, executors int64, err error) {
	err = s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM river_job WHERE state = 'available' AND queue <> 'webhook' AND scheduled_at <= now() LIMIT 10000) j), (SELECT count(*) FROM executors)`).Scan(&jobs, &executors)
	return jobs, executors, err
}

// Sweep implements limit.Store. What is deleted is told by its incarnation: a row that was taken up anew stays.
func (s *Store) Sweep(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM limit_holdings h USING (
			SELECT d.namespace, d.name, d.owner_id, d.owner_incarnation FROM limit_holdings d
			WHERE NOT EXISTS (SELECT FROM executors e WHERE e.id = d.owner_id AND e.incarnation = d.owner_incarnation)
			ORDER BY d.namespace, d.name, d.owner_id LIMIT 10000) g
		WHERE h.namespace = g.namespace AND h.name = g.name AND h.owner_id = g.owner_id AND h.owner_incarnation = g.owner_incarnation`)
	if err == nil {
		_, err = s.pool.Exec(ctx, `DELETE FROM limit_rates WHERE last < now() - interval '25 hours'`)
	}
	return err
}

// Wakes implements limit.Store. After a lost connection it says once more that limits were changed.
func (s *Store) Wakes(ctx context.Context) (<-chan limit.Key, error) {
	return dbkit.Listen(ctx, s.pool, channel, 1024, limit.Key{}, func(payload string) (limit.Key, bool) {
		namespace, name, _ := strings.Cut(payload, between)
		return limit.Key{Namespace: namespace, Name: name}, true
	})
}
