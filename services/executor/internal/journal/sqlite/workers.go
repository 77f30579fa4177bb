package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// pollWorkers is how often another process's workers are looked for.
const pollWorkers = 500 * time.Millisecond

// workersWoken is under which name waiters for workers are kept among those that wait for something; no
// executor is called so.
const workersWoken = "\x00workers"

// alive limits rows r of an executor's to those that count. Its parameter is the lease in microseconds.
const alive = ` EXISTS (SELECT 1 FROM executors e WHERE e.id = r.executor_id AND e.incarnation = r.incarnation AND e.heartbeat >= ` + now + ` - ?)`

// actorSize is the Size of a row a of remote_actors.
const actorSize = `(octet_length(a.name) + octet_length(a.description) + octet_length(a.version) + octet_length(a.args_schema))`

// PutActors implements journal.Workers.
func (s *Store) PutActors(ctx context.Context, self journal.Owner, namespace string, actors []journal.RemoteActor, lease time.Duration, limit int) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		names := make([]string, len(actors))
		wants := make(map[string]string, len(actors))
		grown := int64(0)
		for i := range actors {
			names[i], wants[actors[i].Name] = actors[i].Name, actors[i].Effect
			grown += actors[i].Size()
		}
		type known struct {
			name, effect string
			size         int64
			served       bool
		}
		rows, err := t.tx.QueryContext(ctx, `SELECT a.name, a.effect, `+actorSize+`, EXISTS (SELECT 1 FROM worker_routes r WHERE r.namespace = a.namespace AND r.actor = a.name
			AND r.executor_id <> ? AND`+alive+`) FROM remote_actors a WHERE a.namespace = ? AND a.name IN (SELECT value FROM json_each(?)) ORDER BY a.name`,
			self.ID, lease.Microseconds(), namespace, textList(names))
		old, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (k known, err error) {
			err = rows.Scan(&k.name, &k.effect, &k.size, &k.served)
			return k, err
		})
		if err != nil {
			return err
		}
		for _, k := range old {
			grown -= k.size
			if k.served && k.effect != wants[k.name] {
				return journal.ActorConflict(k.name, k.effect, wants[k.name])
			}
		}
		if fresh := len(wants) - len(old); fresh > 0 || grown > 0 {
			full := func() (why error, err error) {
				var n int
				var size int64
				err = t.row(ctx, `SELECT count(*), coalesce(sum(`+actorSize+`), 0) FROM remote_actors a WHERE namespace = ?`, namespace).Scan(&n, &size)
				return journal.ActorRoom(n, fresh, limit, size, grown), err
			}
			why, err := full()
			if err == nil && why != nil {
				if _, err = t.exec(ctx, `DELETE FROM remote_actors WHERE namespace = ? AND last_seen < `+now+` - ?
					AND name NOT IN (SELECT value FROM json_each(?))`, namespace, journal.ForgetActors.Microseconds(), textList(names)); err == nil {
					why, err = full()
				}
			}
			if err != nil || why != nil {
				return cmp.Or(err, why)
			}
		}
		for _, a := range actors {
			if _, err := t.exec(ctx, `INSERT INTO remote_actors (namespace, name, description, effect, version, args_schema, last_seen) VALUES (?, ?, ?, ?, ?, ?, ?)
				ON CONFLICT (namespace, name) DO UPDATE SET description = excluded.description, effect = excluded.effect, version = excluded.version,
				args_schema = excluded.args_schema, last_seen = excluded.last_seen`,
				namespace, a.Name, a.Description, a.Effect, a.Version, append([]byte{}, a.Schema...), micros(a.LastSeen)); err != nil {
				return err
			}
		}
		return nil
	})
}

// RemoteActors implements journal.Workers.
func (s *Store) RemoteActors(ctx context.Context, namespace string, names []string) ([]journal.RemoteActor, error) {
	query, args := `SELECT name, description, effect, version, args_schema, last_seen FROM remote_actors WHERE namespace = ?`, []any{namespace}
	if names != nil {
		query, args = query+` AND name IN (SELECT value FROM json_each(?))`, append(args, textList(names))
	}
	rows, err := s.db.Read.QueryContext(ctx, query+` ORDER BY name`, args...)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (a journal.RemoteActor, err error) {
		var seen int64
		err = rows.Scan(&a.Name, &a.Description, &a.Effect, &a.Version, &a.Schema, &seen)
		a.LastSeen = dbkit.FromUnixMicros(seen)
		if len(a.Schema) == 0 {
			a.Schema = nil
		}
		return a, cmp.Or(err, inflight.Read(ctx, a.Size()))
	})
}

// ActorNames implements journal.Workers.
func (s *Store) ActorNames(ctx context.Context, namespace string) ([]string, error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT name FROM remote_actors WHERE namespace = ? ORDER BY name`, namespace)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (name string, err error) {
		err = rows.Scan(&name)
		return name, err
	})
}

// SyncWorkers implements journal.Workers.
func (s *Store) SyncWorkers(ctx context.Context, self journal.Owner, w journal.WorkerSync) error {
	wakes := false
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		wakes = false
		if err := t.fence(ctx, self); err != nil {
			return err
		}
		exec := func(query string, args ...any) (err error) {
			_, err = t.exec(ctx, query, args...)
			return err
		}
		if w.All {
			if err := exec(`DELETE FROM workers WHERE executor_id = ?`, self.ID); err != nil {
				return err
			}
			if err := exec(`DELETE FROM worker_routes WHERE executor_id = ?`, self.ID); err != nil {
				return err
			}
		}
		for _, d := range w.Drop {
			if err := exec(`DELETE FROM workers WHERE executor_id = ? AND namespace = ? AND worker_id = ?`, self.ID, d.Namespace, d.ID); err != nil {
				return err
			}
		}
		for _, p := range w.Put {
			if err := exec(`INSERT INTO workers (executor_id, incarnation, namespace, worker_id, actors, slots, busy, connect_time, user_agent, draining)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (executor_id, namespace, worker_id) DO UPDATE SET incarnation = excluded.incarnation,
				actors = excluded.actors, slots = excluded.slots, busy = excluded.busy, connect_time = excluded.connect_time,
				user_agent = excluded.user_agent, draining = excluded.draining`,
				self.ID, self.Incarnation, p.Namespace, p.ID, textList(p.Actors), p.Slots, p.Busy, micros(p.ConnectTime), p.UserAgent, b2i(p.Draining)); err != nil {
				return err
			}
		}
		for _, r := range w.Routes {
			if r.Slots == 0 {
				if err := exec(`DELETE FROM worker_routes WHERE namespace = ? AND actor = ? AND executor_id = ?`, r.Namespace, r.Actor, self.ID); err != nil {
					return err
				}
				continue
			}
			wakes = wakes || r.Busy < r.Slots
			if err := exec(`INSERT INTO worker_routes (namespace, actor, executor_id, incarnation, slots, busy) VALUES (?, ?, ?, ?, ?, ?)
				ON CONFLICT (namespace, actor, executor_id) DO UPDATE SET incarnation = excluded.incarnation, slots = excluded.slots, busy = excluded.busy`,
				r.Namespace, r.Actor, self.ID, self.Incarnation, r.Slots, r.Busy); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && wakes {
		s.wake(workersWoken)
	}
	return err
}

// Routes implements journal.Workers.
func (s *Store) Routes(ctx context.Context, namespace, actor string, lease time.Duration) ([]journal.WorkerRoute, error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT e.id, e.incarnation, e.addr, r.slots, r.busy FROM worker_routes r
		JOIN executors e ON e.id = r.executor_id AND e.incarnation = r.incarnation
		WHERE r.namespace = ? AND r.actor = ? AND e.heartbeat >= `+now+` - ? ORDER BY e.id`, namespace, actor, lease.Microseconds())
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (r journal.WorkerRoute, err error) {
		err = rows.Scan(&r.Executor.ID, &r.Executor.Incarnation, &r.Addr, &r.Slots, &r.Busy)
		return r, err
	})
}

// Workers implements journal.Workers.
func (s *Store) Workers(ctx context.Context, namespace string, lease time.Duration) ([]journal.Worker, error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT executor_id, namespace, worker_id, actors, slots, busy, connect_time, user_agent, draining FROM workers r
		WHERE namespace = ? AND`+alive+` ORDER BY executor_id, worker_id`, namespace, lease.Microseconds())
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (w journal.Worker, err error) {
		var names []byte
		var at int64
		if err := rows.Scan(&w.ExecutorID, &w.Namespace, &w.ID, &names, &w.Slots, &w.Busy, &at, &w.UserAgent, &w.Draining); err != nil {
			return w, err
		}
		w.ConnectTime = dbkit.FromUnixMicros(at)
		return w, json.Unmarshal(names, &w.Actors)
	})
}

// WorkerWakes implements journal.Workers. Workers of this process come at once, those of another on the same
// file by polling.
func (s *Store) WorkerWakes(ctx context.Context) (<-chan struct{}, error) {
	return s.wakesOf(ctx, workersWoken, pollWorkers, func() bool {
		var n int
		err := s.db.Read.QueryRowContext(ctx, `SELECT count(*) FROM executors`).Scan(&n)
		return err != nil || n > 1
	}), nil
}
