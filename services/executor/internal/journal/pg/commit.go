package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// Commit implements journal.Log. Without request ids and business keys everything is one message, which
// PostgreSQL runs as one transaction. With them, one more message looks them up first. There are two
// routes:
//   - The optimistic one is for runs that begin, and for appends to runs that are known to be as the append
//     expects. Its statements look for nothing. One that finds something else fails the transaction.
//   - The general one is for all others, and for everything after the optimistic one has failed. Its
//     statements write only for the runs that are as expected, and the others are classified afterwards.
func (s *Store) Commit(ctx context.Context, owner journal.Owner, writes []journal.Write) ([]journal.Result, error) {
	return journal.CommitBatches(ctx, writes, inRow, func(ctx context.Context, units []*journal.RunBatch, done *journal.Outcomes) error {
		return s.attempt(ctx, owner, units, done)
	})
}

// attempt writes on the optimistic route what can be written so. If that fails, it writes everything on the
// general one. A second copy of the commit that was under way meanwhile makes that fail too, once; the next
// try finds what the copy wrote.
func (s *Store) attempt(ctx context.Context, owner journal.Owner, units []*journal.RunBatch, done *journal.Outcomes) error {
	err := s.try(ctx, owner, units, done, true)
	for range 2 {
		if c := code(err); c == fenceFailed || c == uniqueViolation {
			err = s.try(ctx, owner, units, done, false)
		}
	}
	if code(err) == fenceFailed {
		s.known.forget(owner, nil)
		return journal.Fenced(owner)
	}
	return err
}

const (
	uniqueViolation = "23505"
	// fenceFailed is the SQLSTATE of a division by zero, of which there are no others in a commit.
	fenceFailed = "22012"
)

// fence locks the row of the executor whose id and incarnation are the parameters from $first on, in its
// present version, whatever the snapshot of the statement is. It divides by zero if the row is not there.
// The lock is held until the commit. It is the weakest that a DELETE or FOR UPDATE waits for, so that
// heartbeats do not wait for commits.
func fence(first int) string {
	return fmt.Sprintf("1 / coalesce((SELECT 1 FROM executors WHERE id = $%d AND incarnation = $%d FOR KEY SHARE), 0)", first, first+1)
}

func queueFence(b *pgx.Batch, owner journal.Owner) {
	b.Queue("SELECT "+fence(1), owner.ID, owner.Incarnation)
}

func (s *Store) try(ctx context.Context, owner journal.Owner, units []*journal.RunBatch, done *journal.Outcomes, optimistic bool) error {
	conn, err := s.commit.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	// A connection that is left inside a transaction is closed by the pool, which rolls back.
	defer conn.Release()
	w := writing{owner: owner, conn: conn, number: s.known.connection(conn.Conn()), optimistic: optimistic}
	w.known = s.known.take(w.number, owner, units)
	ground := journal.Preconditions{Tell: s.tell}
	asked := ask(units)
	w.explicit = asked.any()
	if w.explicit {
		if ground, err = lookUp(ctx, conn, owner, units, asked); err != nil {
			return rollback(ctx, conn, err)
		}
		ground.Tell = s.tell
	}
	lost, err := s.write(ctx, &w, journal.Resolve(units, ground, done), ground, done)
	if err != nil {
		return rollback(ctx, conn, err)
	}
	return s.classifyConflicts(ctx, conn, owner, lost, done)
}

// writing is one try of a commit.
type writing struct {
	owner  journal.Owner
	conn   *pgxpool.Conn
	number uint64
	known  map[*journal.RunBatch]bool
	// optimistic lets batches whose runs are known go the optimistic route. explicit says that a transaction
	// was begun and the owner's row is locked.
	optimistic, explicit bool
}

// hopes reports whether a batch goes the optimistic route.
func (w *writing) hopes(u *journal.RunBatch, g journal.Preconditions) bool {
	switch {
	case !w.optimistic:
		return false
	case u.Start != nil:
		return !g.Exists[u.RunID]
	case u.TouchesRow() && (u.Status == nil || u.GraphChanges > 0 || u.Metadata != nil):
		return false
	}
	return w.known[u]
}

func rollback(ctx context.Context, conn *pgxpool.Conn, err error) error {
	if conn.Conn().PgConn().TxStatus() != 'I' && ctx.Err() == nil {
		// If this fails the pool closes the connection.
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
	return err
}

// inBatches lets fn send a transaction in batches of its own, with BEGIN in the first and COMMIT in the
// last, to save round trips.
func (s *Store) inBatches(ctx context.Context, pool *pgxpool.Pool, fn func(conn *pgxpool.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	// A connection that is left inside a transaction is closed by the pool, which rolls back.
	defer conn.Release()
	if err := fn(conn); err != nil {
		return rollback(ctx, conn, err)
	}
	return nil
}

// lookUp begins a transaction, locks the owner's row and the names that batches ask for, and reads
// what they stand for.
func lookUp(ctx context.Context, conn *pgxpool.Conn, owner journal.Owner, units []*journal.RunBatch, a asked) (journal.Preconditions, error) {
	requests, keys := a.requests, a.keys
	g := journal.Preconditions{Requests: map[journal.RequestKey]journal.Seen{}, Holders: map[journal.Key]string{}, Exists: map[string]bool{}}
	var ids []string
	for _, u := range units {
		if u.Start != nil {
			ids = append(ids, u.RunID)
		}
	}
	var b pgx.Batch
	b.Queue("BEGIN")
	queueFence(&b, owner)
	if names := locks(requests, keys); len(names) > 0 {
		b.Queue("SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS l (k)", names)
	}
	queueThreads(&b, a, &g.Threads)
	if len(requests)+len(keys) == 0 {
		return g, conn.SendBatch(ctx, &b).Close()
	}
	var ns, methods, names []string
	for _, k := range requests {
		ns, methods, names = append(ns, k.Namespace), append(methods, k.Method), append(names, k.ID)
	}
	// OFFSET 0 keeps each of these a look-up by key per name.
	b.Queue(`SELECT w.namespace, w.method, w.request_id, f.body_hash, f.run_id
		FROM unnest($1::text[], $2::text[], $3::text[]) AS w (namespace, method, request_id)
		CROSS JOIN LATERAL (SELECT q.body_hash, q.run_id FROM request_ids q
			WHERE q.namespace = w.namespace AND q.method = w.method AND q.request_id = w.request_id OFFSET 0) f`, ns, methods, names).Query(func(rows pgx.Rows) error {
		var k journal.RequestKey
		var v journal.Seen
		_, err := pgx.ForEachRow(rows, []any{&k.Namespace, &k.Method, &k.ID, &v.BodyHash, &v.RunID}, func() error { g.Requests[k] = v; return nil })
		return err
	})
	ns, names = split(keys)
	b.Queue(`SELECT w.namespace, w.business_key, f.run_id FROM unnest($1::text[], $2::text[]) AS w (namespace, business_key)
		CROSS JOIN LATERAL (SELECT r.run_id FROM runs r
			WHERE r.namespace = w.namespace AND r.business_key = w.business_key AND r.holds_key OFFSET 0) f`, ns, names).Query(func(rows pgx.Rows) error {
		var k journal.Key
		var id string
		_, err := pgx.ForEachRow(rows, []any{&k.Namespace, &k.Name, &id}, func() error { g.Holders[k] = id; return nil })
		return err
	})
	b.Queue(`SELECT run_id FROM runs WHERE run_id = ANY ($1)`, ids).Query(func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { g.Exists[id] = true; return nil })
		return err
	})
	return g, conn.SendBatch(ctx, &b).Close()
}

func split(ks []journal.Key) (namespaces, names []string) {
	namespaces, names = make([]string, len(ks)), make([]string, len(ks))
	for i, k := range ks {
		namespaces[i], names[i] = k.Namespace, k.Name
	}
	return namespaces, names
}

// locks are the advisory locks of names, sorted so that no two commits wait for each other in a circle.
func locks(requests []journal.RequestKey, keys []journal.Key) []int64 {
	hash := func(parts ...string) int64 {
		h := fnv.New64a()
		for _, s := range parts {
			h.Write([]byte(s))
			h.Write([]byte{0})
		}
		return int64(h.Sum64())
	}
	var ls []int64
	for _, k := range requests {
		ls = append(ls, hash("epigraph/request/"+k.Method, k.Namespace, k.ID))
	}
	for _, k := range keys {
		ls = append(ls, hash("epigraph/business-key", k.Namespace, k.Name))
	}
	slices.Sort(ls)
	return slices.Compact(ls)
}

// write sends everything in one message and returns the batches whose guard did not hold.
func (s *Store) write(ctx context.Context, w *writing, r journal.Resolved, ground journal.Preconditions, done *journal.Outcomes) ([]*journal.RunBatch, error) {
	var b pgx.Batch
	around := r.Surroundings()
	hopes := func(u *journal.RunBatch) bool { return w.hopes(u, ground) }
	starts, newStarts := divide(r.Starts, hopes)
	appends, newAppends := divide(r.Appends, hopes)
	begun := time.Now()
	graphs := s.newGraphs(w.number, slices.Concat(r.Starts, r.Appends))
	if !w.explicit {
		queueFence(&b, w.owner)
	}
	// Graphs go before any row of a run is locked, so that two commits do not wait for each other.
	queueGraphs(&b, graphs)
	if len(around.Locked) > 0 {
		b.Queue("SELECT FROM runs WHERE run_id = ANY ($1) ORDER BY run_id FOR NO KEY UPDATE", around.Locked)
	}
	revisions := make(map[string]int64, len(r.Starts)+len(r.Appends))
	written := func(runID string, revision int64) { revisions[runID] = revision }
	s.sql.optimistic(&b, w.owner, starts, appends, written)
	s.sql.generalAppends(&b, w.owner, newAppends, written)
	for _, c := range r.Cancels {
		if !c.Started {
			b.Queue(`UPDATE runs SET holds_key = false, revision = revision + 1, cancel_reason = CASE WHEN `+cancelable+` THEN $2 ELSE cancel_reason END,
				cancel_time = CASE WHEN `+cancelable+` THEN $3 ELSE cancel_time END WHERE run_id = $1`, c.RunID, c.Reason, c.Time)
		}
	}
	s.sql.generalStarts(&b, w.owner, newStarts, written)
	for _, c := range r.Cancels {
		b.Queue(insertCommand, c.RunID, c.Namespace, string(journal.CommandCancel), "", blob(c.Body), c.Time)
	}
	for _, q := range r.Requests {
		b.Queue(`INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time) VALUES ($1, $2, $3, $4, $5, $6)`,
			q.Key.Namespace, q.Key.Method, q.Key.ID, q.Seen.BodyHash, q.Seen.RunID, q.Time)
	}
	s.queueSideEffects(&b, w.owner, around, done)
	if w.explicit {
		b.Queue("COMMIT")
	}
	if err := s.send(ctx, w, &b); err != nil {
		return nil, err
	}
	s.known.keepGraphs(w.number, begun, slices.Collect(maps.Keys(graphs)))
	for _, u := range starts {
		written(u.RunID, 1)
	}
	for _, u := range appends {
		written(u.RunID, revisions[u.RunID])
	}
	var lost []*journal.RunBatch
	for _, u := range slices.Concat(r.Appends, r.Starts) {
		revision, ok := revisions[u.RunID]
		if !ok {
			lost = append(lost, u)
			continue
		}
		done.Committed(u, revision)
		s.known.keep(w.number, w.owner, u, w.known[u])
	}
	return lost, nil
}

// send sends a batch. A batch of the fence and one statement for events, as in most commits of runs that go
// on, is sent as one statement: BenchmarkCommit/spread/rows=1 then takes a tenth less of the processor, and
// the server needs a tenth less for single/rows=100.
func (s *Store) send(ctx context.Context, w *writing, b *pgx.Batch) error {
	if q := b.QueuedQueries; len(q) == 2 {
		if text, ok := s.sql.fenced[q[1].SQL]; ok {
			_, err := w.conn.Exec(ctx, text, append(q[1].Arguments, w.owner.ID, w.owner.Incarnation)...)
			return err
		}
	}
	return w.conn.SendBatch(ctx, b).Close()
}

// divide tells the batches for which a condition holds from the others.
func divide(units []*journal.RunBatch, holds func(*journal.RunBatch) bool) (yes, no []*journal.RunBatch) {
	for _, u := range units {
		if holds(u) {
			yes = append(yes, u)
		} else {
			no = append(no, u)
		}
	}
	return yes, no
}

const cancelable = "cancel_time IS NULL AND state < 6"

// queueSideEffects does what follows from the writes, each by a statement that sees them all.
func (s *Store) queueSideEffects(b *pgx.Batch, owner journal.Owner, a journal.SideEffects, done *journal.Outcomes) {
	if len(a.Targets)+len(a.Ended) > 0 {
		// The state is asked for by run and not by command: a run that goes on may have thousands. A join
		// instead of the sub-select might look through all open runs.
		b.Queue(`DELETE FROM commands WHERE run_id = ANY (ARRAY (SELECT t.id FROM unnest($1::text[]) AS t (id)
			WHERE (SELECT r.state < 6 FROM runs r WHERE r.run_id = t.id) IS NOT TRUE))`, slices.Concat(a.Targets, a.Ended))
	}
	if len(a.Ended) > 0 {
		b.Queue(`UPDATE interrupts i SET state = 4, close_time = clock_timestamp() WHERE i.run_id = ANY ($1) AND i.state = 1
			AND (SELECT r.state >= 6 FROM runs r WHERE r.run_id = i.run_id)`, a.Ended)
	}
	if len(a.Claims) > 0 {
		b.Queue(claimOwnerless, a.Claims, owner.ID, owner.Incarnation).Query(func(rows pgx.Rows) error {
			var id string
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error { done.Claimed(id); return nil })
			return err
		})
	}
	if len(a.Wakes) > 0 {
		s.sql.queueWakes(b, a.Wakes)
	}
	if len(a.Freed) > 0 {
		s.sql.queueFreed(b, a.Freed)
	}
	for _, k := range a.Keeps {
		b.Queue(sqlstore.KeepOutcomeWith, k.Namespace, k.Key, k.Outcome, k.Until, k.RunID, k.Seq)
	}
	if len(a.Targets) > 0 {
		queueOwnerNotices(b, a.Targets, owner)
	}
	if len(a.Queues) > 0 {
		queueNotices(b, a.Queues)
	}
}

// newGraphs are the graphs of batches that are not known to be stored and in use.
func (s *Store) newGraphs(conn uint64, units []*journal.RunBatch) map[journal.Key][]byte {
	graphs := map[journal.Key][]byte{}
	note := func(u *journal.RunBatch, hash string, body []byte) {
		if k := (journal.Key{Namespace: u.Namespace, Name: hash}); !s.known.stored(conn, k) {
			graphs[k] = body
		}
	}
	for _, u := range units {
		if u.Start != nil {
			note(u, u.Start.Run.GraphHash, u.Start.Graph)
		}
		if u.GraphChanges > 0 {
			note(u, u.GraphHash, u.Graph)
		}
	}
	return graphs
}

// queueGraphs stores each graph once; sorted, so that two executors do not wait for each other in a circle.
func queueGraphs(b *pgx.Batch, graphs map[journal.Key][]byte) {
	if len(graphs) == 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(graphs), func(x, y journal.Key) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	ns, hashes := split(keys)
	bodies := make([][]byte, len(keys))
	for i, k := range keys {
		// nil would be null, which the column refuses.
		if bodies[i] = graphs[k]; bodies[i] == nil {
			bodies[i] = []byte{}
		}
	}
	// That a graph is in use is said with the run that uses it, now and then: one that is being removed
	// meanwhile is written again.
	b.Queue(`INSERT INTO graphs (namespace, hash, body) SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[])
		ON CONFLICT (namespace, hash) DO UPDATE SET use_time = now() WHERE graphs.use_time < now() - interval '1 hour'`, ns, hashes, bodies)
}

// classifyConflicts finds out, after the commit, why guards did not hold.
func (s *Store) classifyConflicts(ctx context.Context, conn *pgxpool.Conn, owner journal.Owner, lost []*journal.RunBatch, done *journal.Outcomes) error {
	for _, u := range lost {
		st := journal.FoundRow{Found: true}
		err := conn.QueryRow(ctx, `SELECT r.namespace, r.owner_id, r.owner_incarnation, `+lastSeq()+`, r.revision, r.create_time FROM runs r WHERE r.run_id = $1`, u.RunID).
			Scan(&st.Namespace, &st.Owner.ID, &st.Owner.Incarnation, &st.LastSeq, &st.Revision, &st.CreateTime)
		if errors.Is(err, pgx.ErrNoRows) {
			st.Found = false
		} else if err != nil {
			return fmt.Errorf("read back run: %w", err)
		}
		if st.Found && len(u.Events) > 0 {
			rows, err := conn.Query(ctx, sqlstore.SelectEvents+` WHERE run_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq`, u.RunID, u.Expected, u.LastSeq())
			if st.Events, err = collect(rows, err, func(row pgx.CollectableRow) (journal.Event, error) { return sqlstore.ScanEvent(row) }); err != nil {
				return fmt.Errorf("read back events: %w", err)
			}
		}
		journal.ClassifyConflict(u, owner, st, done)
	}
	return nil
}
