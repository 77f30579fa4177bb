package pg

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// workerChannel is told when workers come; the payload is empty, so that many notifications of one moment
// become one.
const workerChannel = "executor_workers"

// alive limits rows r of an executor's to those that count. $1 is the lease.
const alive = ` EXISTS (SELECT FROM executors e WHERE e.id = r.executor_id AND e.incarnation = r.incarnation AND e.heartbeat >= clock_timestamp() - $1::interval)`

// actorSize is the Size of a row a of remote_actors.
const actorSize = `(octet_length(a.name) + octet_length(a.description) + octet_length(a.version) + octet_length(a.args_schema))`

// PutActors implements journal.Workers.
func (s *Store) PutActors(ctx context.Context, self journal.Owner, namespace string, actors []journal.RemoteActor, lease time.Duration, limit int) error {
	return dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		// One registration of a namespace after the other: two of one moment must see each other's effects.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('remote_actors/' || $1, 0))`, namespace); err != nil {
			return err
		}
		names := make([]string, len(actors))
		wants := make(map[string]string, len(actors))
		grown := int64(0)
		for i := range actors {
			names[i], wants[actors[i].Name] = actors[i].Name, actors[i].Effect
			grown += actors[i].Size()
		}
		rows, err := tx.Query(ctx, `SELECT a.name, a.effect, `+actorSize+`, EXISTS (SELECT FROM worker_routes r WHERE r.namespace = a.namespace AND r.actor = a.name
			AND r.executor_id <> $2 AND`+alive+`) FROM remote_actors a WHERE a.namespace = $3 AND a.name = ANY ($4) ORDER BY a.name`, interval(lease), self.ID, namespace, names)
		type known struct {
			name, effect string
			size         int64
			served       bool
		}
		old, err := collect(rows, err, func(row pgx.CollectableRow) (k known, err error) {
			err = row.Scan(&k.name, &k.effect, &k.size, &k.served)
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
				err = tx.QueryRow(ctx, `SELECT count(*), coalesce(sum(`+actorSize+`), 0) FROM remote_actors a WHERE namespace = $1`, namespace).Scan(&n, &size)
				return journal.ActorRoom(n, fresh, limit, size, grown), err
			}
			why, err := full()
			if err == nil && why != nil {
				if _, err = tx.Exec(ctx, `DELETE FROM remote_actors WHERE namespace = $1 AND last_seen < clock_timestamp() - $2::interval AND name <> ALL ($3)`,
					namespace, interval(journal.ForgetActors), names); err == nil {
					why, err = full()
				}
			}
			if err != nil || why != nil {
				return cmp.Or(err, why)
			}
		}
		var b pgx.Batch
		for _, a := range actors {
			b.Queue(`INSERT INTO remote_actors (namespace, name, description, effect, version, args_schema, last_seen) VALUES ($1, $2, $3, $4, $5, $6, $7)
				ON CONFLICT (namespace, name) DO UPDATE SET description = excluded.description, effect = excluded.effect, version = excluded.version,
				args_schema = excluded.args_schema, last_seen = excluded.last_seen`,
				namespace, a.Name, a.Description, a.Effect, a.Version, append([]byte{}, a.Schema...), dbkit.Micros(a.LastSeen))
		}
		return tx.SendBatch(ctx, &b).Close()
	})
}

// RemoteActors implements journal.Workers.
func (s *Store) RemoteActors(ctx context.Context, namespace string, names []string) ([]journal.RemoteActor, error) {
	rows, err := s.hot.Query(ctx, `SELECT name, description, effect, version, args_schema, last_seen FROM remote_actors
		WHERE namespace = $1 AND ($2::text[] IS NULL OR name = ANY ($2)) ORDER BY name`, namespace, names)
	out, err := collect(rows, err, func(row pgx.CollectableRow) (a journal.RemoteActor, err error) {
		err = row.Scan(&a.Name, &a.Description, &a.Effect, &a.Version, &a.Schema, &a.LastSeen)
		a.LastSeen = a.LastSeen.UTC()
		if len(a.Schema) == 0 {
			a.Schema = nil
		}
		return a, cmp.Or(err, inflight.Read(ctx, a.Size()))
	})
	return out, away(err)
}

// ActorNames implements journal.Workers.
func (s *Store) ActorNames(ctx context.Context, namespace string) ([]string, error) {
	rows, err := s.hot.Query(ctx, `SELECT name FROM remote_actors WHERE namespace = $1 ORDER BY name`, namespace)
	out, err := collect(rows, err, pgx.RowTo[string])
	return out, away(err)
}

// SyncWorkers implements journal.Workers.
func (s *Store) SyncWorkers(ctx context.Context, self journal.Owner, w journal.WorkerSync) error {
	err := dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT executor_fence($1, $2)`, self.ID, self.Incarnation); err != nil {
			return err
		}
		var b pgx.Batch
		if w.All {
			b.Queue(`DELETE FROM workers WHERE executor_id = $1`, self.ID)
			b.Queue(`DELETE FROM worker_routes WHERE executor_id = $1`, self.ID)
		}
		for _, d := range w.Drop {
			b.Queue(`DELETE FROM workers WHERE executor_id = $1 AND namespace = $2 AND worker_id = $3`, self.ID, d.Namespace, d.ID)
		}
		for _, p := range w.Put {
			b.Queue(`INSERT INTO workers (executor_id, incarnation, namespace, worker_id, actors, slots, busy, connect_time, user_agent, draining)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (executor_id, namespace, worker_id) DO UPDATE SET incarnation = excluded.incarnation,
				actors = excluded.actors, slots = excluded.slots, busy = excluded.busy, connect_time = excluded.connect_time,
				user_agent = excluded.user_agent, draining = excluded.draining`,
				self.ID, self.Incarnation, p.Namespace, p.ID, append([]string{}, p.Actors...), p.Slots, p.Busy, dbkit.Micros(p.ConnectTime), p.UserAgent, p.Draining)
		}
		wakes := false
		for _, r := range w.Routes {
			if r.Slots == 0 {
				b.Queue(`DELETE FROM worker_routes WHERE namespace = $1 AND actor = $2 AND executor_id = $3`, r.Namespace, r.Actor, self.ID)
				continue
			}
			wakes = wakes || r.Busy < r.Slots
			b.Queue(`INSERT INTO worker_routes (namespace, actor, executor_id, incarnation, slots, busy) VALUES ($1, $2, $3, $4, $5, $6)
				ON CONFLICT (namespace, actor, executor_id) DO UPDATE SET incarnation = excluded.incarnation, slots = excluded.slots, busy = excluded.busy`,
				r.Namespace, r.Actor, self.ID, self.Incarnation, r.Slots, r.Busy)
		}
		if wakes {
			b.Queue(`SELECT pg_notify('` + workerChannel + `', '')`)
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	return away(fenced(err, self))
}

// Routes implements journal.Workers.
func (s *Store) Routes(ctx context.Context, namespace, actor string, lease time.Duration) ([]journal.WorkerRoute, error) {
	rows, err := s.hot.Query(ctx, `SELECT e.id, e.incarnation, e.addr, r.slots, r.busy FROM worker_routes r
		JOIN executors e ON e.id = r.executor_id AND e.incarnation = r.incarnation
		WHERE r.namespace = $2 AND r.actor = $3 AND e.heartbeat >= clock_timestamp() - $1::interval ORDER BY e.id`, interval(lease), namespace, actor)
	return collect(rows, err, func(row pgx.CollectableRow) (r journal.WorkerRoute, err error) {
		err = row.Scan(&r.Executor.ID, &r.Executor.Incarnation, &r.Addr, &r.Slots, &r.Busy)
		return r, err
	})
}

// Workers implements journal.Workers.
func (s *Store) Workers(ctx context.Context, namespace string, lease time.Duration) ([]journal.Worker, error) {
	rows, err := s.read.Query(ctx, `SELECT executor_id, namespace, worker_id, actors, slots, busy, connect_time, user_agent, draining FROM workers r
		WHERE namespace = $2 AND`+alive+` ORDER BY executor_id, worker_id`, interval(lease), namespace)
	out, err := collect(rows, err, func(row pgx.CollectableRow) (w journal.Worker, err error) {
		err = row.Scan(&w.ExecutorID, &w.Namespace, &w.ID, &w.Actors, &w.Slots, &w.Busy, &w.ConnectTime, &w.UserAgent, &w.Draining)
		w.ConnectTime = w.ConnectTime.UTC()
		return w, err
	})
	return out, away(err)
}

// WorkerWakes implements journal.Workers.
func (s *Store) WorkerWakes(ctx context.Context) (<-chan struct{}, error) {
	return dbkit.Listen(ctx, s.hot, workerChannel, 1, struct{}{}, func(string) (struct{}, bool) { return struct{}{}, true })
}
