package sqlstore

import (
	"cmp"
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// actorSize is the Size of a row a of remote_actors.
const actorSize = `(octet_length(a.name) + octet_length(a.description) + octet_length(a.version) + octet_length(a.args_schema))`

// alive limits rows r of an executor's to those that count. The parameter is the lease.
func (s *Store) alive(lease string) string {
	return ` EXISTS (SELECT 1 FROM executors e WHERE e.id = r.executor_id AND e.incarnation = r.incarnation AND ` + s.beats(lease) + `)`
}

// beats holds for an executor e whose heartbeat is younger than the lease.
func (s *Store) beats(lease string) string {
	return `e.heartbeat >= ` + s.d.Now() + ` - ` + s.d.Span(lease)
}

// PutActors implements journal.Workers.
func (s *Store) PutActors(ctx context.Context, self journal.Owner, namespace string, actors []journal.RemoteActor, lease time.Duration, limit int) error {
	return s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		if s.db.WaitLock != "" {
			// Registrations of a namespace take turns: two at once must see each other's effects.
			if _, err := tx.Exec(ctx, s.db.WaitLock, "remote_actors/"+namespace); err != nil {
				return err
			}
		}
		names := make([]string, len(actors))
		wants := make(map[string]string, len(actors))
		added := int64(0)
		for i := range actors {
			names[i], wants[actors[i].Name] = actors[i].Name, actors[i].Effect
			added += actors[i].Size()
		}
		type known struct {
			name, effect string
			size         int64
			served       bool
		}
		rows, err := tx.Query(ctx, `SELECT a.name, a.effect, `+actorSize+`, EXISTS (SELECT 1 FROM worker_routes r
				WHERE r.namespace = a.namespace AND r.actor = a.name AND r.executor_id <> $2 AND`+s.alive(`$1`)+`)
			FROM remote_actors a WHERE a.namespace = $3 AND `+s.d.In(`a.name`, `$4`)+` ORDER BY a.name`, lease, self.ID, namespace, names)
		old, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (k known, err error) {
			err = rows.Scan(&k.name, &k.effect, &k.size, &k.served)
			return k, err
		})
		if err != nil {
			return err
		}
		for _, k := range old {
			added -= k.size
			if k.served && k.effect != wants[k.name] {
				return journal.ActorConflict(k.name, k.effect, wants[k.name])
			}
		}
		if fresh := len(wants) - len(old); fresh > 0 || added > 0 {
			if err := s.makeRoom(ctx, tx, namespace, names, fresh, limit, added); err != nil {
				return err
			}
		}
		stmts := make([]dbkit.Stmt, len(actors))
		for i, a := range actors {
			stmts[i] = dbkit.Stmt{
				Query: `INSERT INTO remote_actors (namespace, name, description, effect, version, args_schema, last_seen) VALUES ($1, $2, $3, $4, $5, $6, $7)
					ON CONFLICT (namespace, name) DO UPDATE SET description = excluded.description, effect = excluded.effect, version = excluded.version,
					args_schema = excluded.args_schema, last_seen = excluded.last_seen`,
				Args: []any{namespace, a.Name, a.Description, a.Effect, a.Version, append([]byte{}, a.Schema...), a.LastSeen},
			}
		}
		return tx.Batch(ctx, stmts...)
	})
}

// makeRoom returns an error if a namespace has no room for fresh actors more and added bytes more, even after
// it has forgotten the actors that nobody serves any more. The names are kept.
func (s *Store) makeRoom(ctx context.Context, tx dbkit.Querier, namespace string, names []string, fresh, limit int, added int64) error {
	full := func() (why error, err error) {
		var n int
		var size int64
		err = dbkit.FirstRow(tx.Query(ctx, `SELECT count(*), coalesce(sum(`+actorSize+`), 0) FROM remote_actors a WHERE a.namespace = $1`, namespace)).Scan(&n, &size)
		return journal.ActorRoom(n, fresh, limit, size, added), err
	}
	why, err := full()
	if err != nil || why == nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM remote_actors WHERE namespace = $1 AND last_seen < `+s.d.Now()+` - `+s.d.Span(`$2`)+`
		AND NOT `+s.d.In(`name`, `$3`), namespace, journal.ForgetActors, names); err != nil {
		return err
	}
	why, err = full()
	return cmp.Or(err, why)
}

// RemoteActors implements journal.Workers.
func (s *Store) RemoteActors(ctx context.Context, namespace string, names []string) ([]journal.RemoteActor, error) {
	query, args := `SELECT name, description, effect, version, args_schema, last_seen FROM remote_actors WHERE namespace = $1`, []any{namespace}
	if names != nil {
		query, args = query+` AND `+s.d.In(`name`, `$2`), append(args, names)
	}
	rows, err := s.db.Engine.Query(ctx, query+` ORDER BY name`, args...)
	actors, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (a journal.RemoteActor, err error) {
		err = rows.Scan(&a.Name, &a.Description, &a.Effect, &a.Version, &a.Schema, dbkit.At(&a.LastSeen))
		if len(a.Schema) == 0 {
			a.Schema = nil
		}
		return a, cmp.Or(err, inflight.Read(ctx, a.Size()))
	})
	return actors, Away(err)
}

// ActorNames implements journal.Workers.
func (s *Store) ActorNames(ctx context.Context, namespace string) ([]string, error) {
	rows, err := s.db.Engine.Query(ctx, `SELECT name FROM remote_actors WHERE namespace = $1 ORDER BY name`, namespace)
	names, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (name string, err error) {
		err = rows.Scan(&name)
		return name, err
	})
	return names, Away(err)
}

// SyncWorkers implements journal.Workers.
func (s *Store) SyncWorkers(ctx context.Context, self journal.Owner, w journal.WorkerSync) error {
	return Away(s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		var one int
		err := dbkit.FirstRow(tx.Query(ctx, `SELECT 1 FROM executors WHERE id = $1 AND incarnation = $2`+s.d.Kept(), self.ID, self.Incarnation)).Scan(&one)
		if none(err) {
			return journal.Fenced(self)
		} else if err != nil {
			return err
		}
		return tx.Batch(ctx, s.workerChanges(self, w)...)
	}))
}

// workerChanges are the statements of SyncWorkers.
func (s *Store) workerChanges(self journal.Owner, w journal.WorkerSync) (stmts []dbkit.Stmt) {
	do := func(query string, args ...any) { stmts = append(stmts, dbkit.Stmt{Query: query, Args: args}) }
	if w.All {
		do(`DELETE FROM workers WHERE executor_id = $1`, self.ID)
		do(`DELETE FROM worker_routes WHERE executor_id = $1`, self.ID)
	}
	for _, d := range w.Drop {
		do(`DELETE FROM workers WHERE executor_id = $1 AND namespace = $2 AND worker_id = $3`, self.ID, d.Namespace, d.ID)
	}
	for _, p := range w.Put {
		do(`INSERT INTO workers (executor_id, incarnation, namespace, worker_id, actors, slots, busy, connect_time, user_agent, draining)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (executor_id, namespace, worker_id) DO UPDATE SET incarnation = excluded.incarnation,
			actors = excluded.actors, slots = excluded.slots, busy = excluded.busy, connect_time = excluded.connect_time,
			user_agent = excluded.user_agent, draining = excluded.draining`,
			self.ID, self.Incarnation, p.Namespace, p.ID, append([]string{}, p.Actors...), p.Slots, p.Busy, p.ConnectTime, p.UserAgent, p.Draining)
	}
	for _, r := range w.Routes {
		if r.Slots == 0 {
			do(`DELETE FROM worker_routes WHERE namespace = $1 AND actor = $2 AND executor_id = $3`, r.Namespace, r.Actor, self.ID)
			continue
		}
		do(`INSERT INTO worker_routes (namespace, actor, executor_id, incarnation, slots, busy) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (namespace, actor, executor_id) DO UPDATE SET incarnation = excluded.incarnation, slots = excluded.slots, busy = excluded.busy`,
			r.Namespace, r.Actor, self.ID, self.Incarnation, r.Slots, r.Busy)
	}
	if w.Wakes() && s.db.NotifyWorkers != "" {
		do(s.db.NotifyWorkers)
	}
	return stmts
}

// Routes implements journal.Workers.
func (s *Store) Routes(ctx context.Context, namespace, actor string, lease time.Duration) ([]journal.WorkerRoute, error) {
	rows, err := s.db.Engine.Query(ctx, `SELECT e.id, e.incarnation, e.addr, r.slots, r.busy FROM worker_routes r
		JOIN executors e ON e.id = r.executor_id AND e.incarnation = r.incarnation
		WHERE r.namespace = $2 AND r.actor = $3 AND `+s.beats(`$1`)+` ORDER BY e.id`, lease, namespace, actor)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (r journal.WorkerRoute, err error) {
		err = rows.Scan(&r.Executor.ID, &r.Executor.Incarnation, &r.Addr, &r.Slots, &r.Busy)
		return r, err
	})
}

// Workers implements journal.Workers.
func (s *Store) Workers(ctx context.Context, namespace string, lease time.Duration) ([]journal.Worker, error) {
	rows, err := s.db.Read.Query(ctx, `SELECT r.executor_id, r.namespace, r.worker_id, r.actors, r.slots, r.busy, r.connect_time, r.user_agent, r.draining
		FROM workers r WHERE r.namespace = $2 AND`+s.alive(`$1`)+` ORDER BY r.executor_id, r.worker_id`, lease, namespace)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (w journal.Worker, err error) {
		err = rows.Scan(&w.ExecutorID, &w.Namespace, &w.ID, &w.Actors, &w.Slots, &w.Busy, dbkit.At(&w.ConnectTime), &w.UserAgent, &w.Draining)
		return w, err
	})
}
