// Package sqlstore holds the SQL of triggers and their deliveries, which PostgreSQL and SQLite share except
// for the fragments of dbkit.Dialect. The drivers hold the lock of a namespace and the insert of jobs.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
)

// Database describes the database to the store.
type Database struct {
	Pool    dbkit.Pool
	Dialect dbkit.Dialect
	// Lock waits for the lock named $1, which the transaction then holds. Empty means that a transaction is
	// alone anyway.
	Lock string
	// Jobs makes the statements of a transaction that insert jobs.
	Jobs func([]journal.JobRow) []dbkit.Stmt
	// Inserted is called after a commit with the jobs; nil means that the workers know of them already.
	Inserted func([]journal.JobRow)
}

// Store is the shared part of a trigger.Store. It is safe for concurrent use.
type Store struct {
	db Database
	d  dbkit.Dialect
}

// New returns the shared part of the triggers in a database, which stays the caller's. The journal's
// migrations make the tables.
func New(db Database) *Store {
	if db.Inserted == nil {
		db.Inserted = func([]journal.JobRow) {}
	}
	return &Store{db: db, d: db.Dialect}
}

const (
	activationColumns = `namespace, workflow, workflow_id, ref, version, state, reason, settled, checked, create_time, update_time, principal`
	triggerColumns    = `namespace, id, workflow, version, path, state, reason, secret, spec, create_time, update_time, since`
	deliveryColumns   = `namespace, id, trigger_id, event_id, state, run_id, reason, message, attempts, repeats, depth, repeat_of, details,
		receive_time, due, end_time, event`
)

func scanActivation(row dbkit.Scanner) (a trigger.Activation, err error) {
	settled := 0
	err = row.Scan(&a.Namespace, &a.Workflow, &a.WorkflowID, &a.Ref, &a.Version, &a.State, &a.Reason, &settled, dbkit.At(&a.Checked),
		dbkit.At(&a.CreateTime), dbkit.At(&a.UpdateTime), &a.Principal)
	a.Settled = settled != 0
	return a, err
}

func scanTrigger(row dbkit.Scanner) (t trigger.Trigger, err error) {
	var spec []byte
	if err := row.Scan(&t.Namespace, &t.ID, &t.Workflow, &t.Version, &t.Path, &t.State, &t.Reason, &t.Secret, &spec,
		dbkit.At(&t.CreateTime), dbkit.At(&t.UpdateTime), &t.Since); err != nil {
		return t, err
	}
	return t, trigger.DecodeSpec(&t, spec)
}

func scanDelivery(row dbkit.Scanner) (d trigger.Delivery, err error) {
	var details, event []byte
	if err := row.Scan(&d.Namespace, &d.ID, &d.Trigger, &d.EventID, &d.Status, &d.RunID, &d.Reason, &d.Message, &d.Attempts, &d.Repeats,
		&d.Depth, &d.RepeatOf, &details, dbkit.At(&d.ReceiveTime), dbkit.At(&d.Due), dbkit.At(&d.EndTime), &event); err != nil {
		return d, err
	}
	d.Event = event
	return d, trigger.DecodeDetails(&d, details)
}

// lock serializes what is decided by the whole of a namespace.
func (s *Store) lock(ctx context.Context, tx dbkit.Querier, namespace string) error {
	if s.db.Lock == "" {
		return nil
	}
	_, err := tx.Exec(ctx, s.db.Lock, `epigraph/triggers/`+namespace)
	return err
}

func count(ctx context.Context, tx dbkit.Querier, query string, args ...any) (n int, err error) {
	err = dbkit.FirstRow(tx.Query(ctx, query, args...)).Scan(&n)
	return n, err
}

// Activate implements trigger.Store.
func (s *Store) Activate(ctx context.Context, a trigger.Activation, triggers []trigger.Trigger, most int, was time.Time) (out []trigger.Trigger, err error) {
	err = s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		if err := s.lock(ctx, tx, a.Namespace); err != nil {
			return err
		}
		now, err := activation(ctx, tx, a.Namespace, a.Workflow)
		if err != nil && (!was.IsZero() || errs.ReasonOf(err) != trigger.ReasonNotActive) {
			return err
		}
		if !was.IsZero() && (now.State != trigger.Active || !now.UpdateTime.Equal(was)) {
			return trigger.ErrChanged
		}
		if err := checkRoom(ctx, tx, a, triggers, most); err != nil {
			return err
		}
		have, err := of(ctx, tx, a.Namespace, a.Workflow)
		if err != nil {
			return err
		}
		if now.State != trigger.Active || now.WorkflowID != a.WorkflowID {
			// What was off begins with new secrets and at the end of the feed, and so does another
			// workflow of the name.
			for i := range have {
				have[i].Secret, have[i].Since = "", -1
			}
		}
		kept, stmts, err := merge(a, have, triggers)
		if err != nil {
			return err
		}
		begin, err := beginFeed(ctx, tx, a, kept)
		if err != nil {
			return err
		}
		out = kept
		return tx.Batch(ctx, append(append(stmts, putActivation(a)), begin...)...)
	})
	return out, err
}

// checkRoom refuses triggers for which the namespace has no room, and paths that others have.
func checkRoom(ctx context.Context, tx dbkit.Querier, a trigger.Activation, triggers []trigger.Trigger, most int) error {
	n, err := count(ctx, tx, `SELECT count(*) FROM triggers WHERE namespace = $1 AND state = 'ACTIVE' AND workflow <> $2`, a.Namespace, a.Workflow)
	switch {
	case err != nil:
		return err
	case n+len(triggers) > most:
		return trigger.TooMany(most)
	}
	for i := range triggers {
		if triggers[i].Path == "" {
			continue
		}
		var by string
		err := dbkit.FirstRow(tx.Query(ctx, `SELECT workflow FROM triggers WHERE namespace = $1 AND path = $2 AND path <> '' AND state = 'ACTIVE' AND workflow <> $3`,
			a.Namespace, triggers[i].Path, a.Workflow)).Scan(&by)
		switch {
		case err == nil:
			return trigger.PathTaken(triggers[i].Path, by)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return nil
}

func of(ctx context.Context, tx dbkit.Querier, namespace, workflow string) ([]trigger.Trigger, error) {
	rows, err := tx.Query(ctx, `SELECT `+triggerColumns+` FROM triggers WHERE namespace = $1 AND workflow = $2 ORDER BY id`, namespace, workflow)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (trigger.Trigger, error) { return scanTrigger(rows) })
}

// merge gives the triggers that a workflow has what its version says. Those that end go first: they may
// leave their paths to others.
func merge(a trigger.Activation, have, want []trigger.Trigger) (kept []trigger.Trigger, stmts []dbkit.Stmt, err error) {
	known := map[string]*trigger.Trigger{}
	for i := range have {
		known[have[i].Spec.ID] = &have[i]
	}
	var puts []dbkit.Stmt
	for _, t := range want {
		old := known[t.Spec.ID]
		if delete(known, t.Spec.ID); t.Secret != "" {
			t.Fresh = true
		}
		if old != nil {
			t.Key, t.CreateTime = old.Key, old.CreateTime
			if old.Secret != "" && old.Spec.Signature == t.Spec.Signature {
				t.Secret, t.Fresh = old.Secret, false
			}
			if old.State == trigger.Active && old.Spec.Type == t.Spec.Type && old.Since >= 0 {
				t.Since = old.Since
			}
			// Two webhooks may change paths with each other.
			stmts = append(stmts, dbkit.Stmt{Query: `UPDATE triggers SET path = '' WHERE namespace = $1 AND id = $2`, Args: []any{a.Namespace, t.ID}})
		}
		t.State, t.Reason, t.Version, t.UpdateTime = trigger.Active, "", a.Version, a.UpdateTime
		put, err := putTrigger(&t)
		if err != nil {
			return nil, nil, err
		}
		kept, puts = append(kept, t), append(puts, put)
	}
	for i := range have {
		t := have[i]
		if known[t.Spec.ID] == nil {
			continue
		}
		if t.State == trigger.Active {
			t.State, t.Reason, t.UpdateTime = trigger.Ended, "version "+a.Ref+" has no such trigger", a.UpdateTime
			stmts = append(stmts, dbkit.Stmt{Query: `UPDATE triggers SET state = $3, reason = $4, update_time = $5 WHERE namespace = $1 AND id = $2`,
				Args: []any{t.Namespace, t.ID, string(t.State), t.Reason, t.UpdateTime}})
		}
		kept = append(kept, t)
	}
	return kept, append(stmts, puts...), nil
}

func putTrigger(t *trigger.Trigger) (dbkit.Stmt, error) {
	spec, err := trigger.EncodeSpec(t)
	return dbkit.Stmt{
		Query: `INSERT INTO triggers (namespace, id, workflow, version, name, kind, path, state, reason, secret, spec, create_time, update_time, since)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
			ON CONFLICT (namespace, id) DO UPDATE SET version = excluded.version, kind = excluded.kind, path = excluded.path, state = excluded.state,
				reason = excluded.reason, secret = excluded.secret, spec = excluded.spec, update_time = excluded.update_time,
				since = excluded.since`,
		Args: []any{t.Namespace, t.ID, t.Workflow, t.Version, t.Spec.ID, t.Spec.Type, t.Path, string(t.State), t.Reason, t.Secret, spec, t.CreateTime, t.UpdateTime, t.Since},
	}, err
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func putActivation(a trigger.Activation) dbkit.Stmt {
	return dbkit.Stmt{
		Query: `INSERT INTO trigger_activations (` + activationColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
			ON CONFLICT (namespace, workflow) DO UPDATE SET workflow_id = excluded.workflow_id, ref = excluded.ref, version = excluded.version,
				state = excluded.state, reason = excluded.reason, settled = excluded.settled, checked = excluded.checked, update_time = excluded.update_time,
				principal = excluded.principal`,
		Args: []any{a.Namespace, a.Workflow, a.WorkflowID, a.Ref, a.Version, string(a.State), a.Reason, number(a.Settled), a.Checked, a.CreateTime, a.UpdateTime, a.Principal},
	}
}

// End implements trigger.Store.
func (s *Store) End(ctx context.Context, a trigger.Activation, was time.Time) (out trigger.Activation, err error) {
	err = s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		if err := s.lock(ctx, tx, a.Namespace); err != nil {
			return err
		}
		if out, err = activation(ctx, tx, a.Namespace, a.Workflow); err != nil {
			return err
		}
		switch {
		case out.State == trigger.Ended:
			return nil
		case !was.IsZero() && !out.UpdateTime.Equal(was):
			return trigger.ErrChanged
		}
		out.State, out.Reason, out.Settled, out.UpdateTime, out.Checked, out.Principal = trigger.Ended, a.Reason, false, a.UpdateTime, a.UpdateTime, a.Principal
		return tx.Batch(ctx, putActivation(out), dbkit.Stmt{
			Query: `UPDATE triggers SET state = 'ENDED', reason = $3, update_time = $4 WHERE namespace = $1 AND workflow = $2 AND state = 'ACTIVE'`,
			Args:  []any{a.Namespace, a.Workflow, a.Reason, a.UpdateTime},
		})
	})
	return out, err
}

func activation(ctx context.Context, q dbkit.Querier, namespace, workflow string) (trigger.Activation, error) {
	a, err := scanActivation(dbkit.FirstRow(q.Query(ctx, `SELECT `+activationColumns+` FROM trigger_activations WHERE namespace = $1 AND workflow = $2`, namespace, workflow)))
	if errors.Is(err, sql.ErrNoRows) {
		return a, trigger.NotActive(workflow)
	}
	return a, err
}

// Activation implements trigger.Store.
func (s *Store) Activation(ctx context.Context, namespace, workflow string) (trigger.Activation, error) {
	return activation(ctx, s.db.Pool, namespace, workflow)
}

// Unchecked implements trigger.Store.
func (s *Store) Unchecked(ctx context.Context, before time.Time, limit int) ([]trigger.Activation, error) {
	rows, err := s.db.Pool.Query(ctx, `SELECT `+activationColumns+` FROM trigger_activations
		WHERE (state = 'ACTIVE' OR settled = 0) AND checked < $1 ORDER BY checked, namespace, workflow LIMIT $2`, before, limit)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (trigger.Activation, error) { return scanActivation(rows) })
}

// Checked implements trigger.Store.
func (s *Store) Checked(ctx context.Context, a trigger.Activation) error {
	_, err := s.db.Pool.Exec(ctx, `UPDATE trigger_activations SET checked = $4, settled = $5, reason = $6 WHERE namespace = $1 AND workflow = $2 AND update_time = $3`,
		a.Namespace, a.Workflow, a.UpdateTime, a.Checked, number(a.Settled), a.Reason)
	return err
}

func (s *Store) one(ctx context.Context, name, where string, args ...any) (trigger.Trigger, error) {
	t, err := scanTrigger(dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT `+triggerColumns+` FROM triggers WHERE `+where, args...)))
	if errors.Is(err, sql.ErrNoRows) {
		return t, trigger.NotFound(name)
	}
	return t, err
}

// Trigger implements trigger.Store.
func (s *Store) Trigger(ctx context.Context, k trigger.Key) (trigger.Trigger, error) {
	return s.one(ctx, k.ID, `namespace = $1 AND id = $2`, k.Namespace, k.ID)
}

// ByPath implements trigger.Store.
func (s *Store) ByPath(ctx context.Context, namespace, path string) (trigger.Trigger, error) {
	return s.one(ctx, path, `namespace = $1 AND path = $2 AND path <> '' AND state = 'ACTIVE'`, namespace, path)
}

// List implements trigger.Store.
func (s *Store) List(ctx context.Context, namespace, workflow, after string, limit int) ([]trigger.Trigger, error) {
	query, args := `SELECT `+triggerColumns+` FROM triggers WHERE namespace = $1 AND id > $2 ORDER BY id LIMIT $3`, []any{namespace, after, limit}
	if workflow != "" {
		query, args = `SELECT `+triggerColumns+` FROM triggers WHERE namespace = $1 AND workflow = $4 AND id > $2 ORDER BY id LIMIT $3`, append(args, workflow)
	}
	rows, err := s.db.Pool.Query(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (trigger.Trigger, error) { return scanTrigger(rows) })
}

// Active implements trigger.Store.
func (s *Store) Active(ctx context.Context, kind, namespace string, after trigger.Key, limit int) ([]trigger.Trigger, error) {
	where, args := `kind = $1 AND state = 'ACTIVE' AND (namespace, id) > ($2, $3)`, []any{kind, after.Namespace, after.ID, limit}
	if namespace != "" {
		where, args = where+` AND namespace = $5`, append(args, namespace)
	}
	rows, err := s.db.Pool.Query(ctx, `SELECT `+triggerColumns+` FROM triggers WHERE `+where+` ORDER BY namespace, id LIMIT $4`, args...)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (trigger.Trigger, error) { return scanTrigger(rows) })
}

// SetSecret implements trigger.Store.
func (s *Store) SetSecret(ctx context.Context, k trigger.Key, secret string, now time.Time) (t trigger.Trigger, err error) {
	err = s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		if err := s.lock(ctx, tx, k.Namespace); err != nil { // else an activation writes the old one back
			return err
		}
		t, err = scanTrigger(dbkit.FirstRow(tx.Query(ctx, `UPDATE triggers SET secret = $3, update_time = $4 WHERE namespace = $1 AND id = $2 AND state = 'ACTIVE' RETURNING `+triggerColumns,
			k.Namespace, k.ID, secret, now)))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return t, trigger.NotFound(k.ID)
	}
	return t, err
}
