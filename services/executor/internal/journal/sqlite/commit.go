package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

const (
	fenceSQL = `SELECT 1 FROM executors WHERE id = ? AND incarnation = ?`

	appendSet   = `last_seq = ?, revision = revision + 1, takeovers = CASE WHEN ? THEN 0 ELSE takeovers END`
	appendWhere = ` WHERE run_id = ?`
	returning   = ` RETURNING revision`

	// placeSQL finds the row of a run if it is the owner's and its journal ends where an append must find it.
	// The row's last_seq is that of the last change of the row, so it may lie behind.
	placeSQL = `SELECT r.takeovers, r.root_run_id FROM runs r WHERE r.run_id = ?1 AND r.namespace = ?2 AND r.owner_id = ?3 AND r.owner_incarnation = ?4
		AND (?5 = 0 OR EXISTS (SELECT 1 FROM events p WHERE p.run_id = ?1 AND p.seq = ?5))
		AND NOT EXISTS (SELECT 1 FROM events p WHERE p.run_id = ?1 AND p.seq = ?5 + 1)`
	progressSQL = `UPDATE runs SET takeovers = 0 WHERE run_id = ?`
	appendSQL   = `UPDATE runs SET ` + appendSet + appendWhere + returning
	releaseSQL  = `UPDATE runs SET owner_id = '', owner_incarnation = 0 WHERE run_id = ?`
	repinSQL    = `UPDATE runs SET first_graph = iif(graph_revision = 0, graph_hash, first_graph), graph_hash = ?, graph_revision = graph_revision + ? WHERE run_id = ?`

	// tidyInterrupts closes the open interrupts of a run that has ended.
	tidyInterrupts = `UPDATE interrupts SET state = 4, close_time = ` + now + ` WHERE run_id = ? AND state = 1
		AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = interrupts.run_id AND r.state >= 6)`
	// The use of a graph is noted with the run that takes it, at most once an hour.
	insertGraph = `INSERT INTO graphs (namespace, hash, body, use_time) VALUES (?, ?, ?, ` + now + `)
		ON CONFLICT (namespace, hash) DO UPDATE SET use_time = excluded.use_time WHERE graphs.use_time < excluded.use_time - 3600000000`
)

// Commit implements journal.Log.
func (s *Store) Commit(ctx context.Context, owner journal.Owner, writes []journal.Write) ([]journal.Result, error) {
	return journal.CommitBatches(ctx, writes, inRow, func(ctx context.Context, units []*journal.RunBatch, done *journal.Outcomes) error {
		var woken []string
		err := s.update(ctx, func(ctx context.Context, t txn) (err error) {
			woken, err = t.attempt(ctx, owner, units, done)
			return err
		})
		if err == nil {
			s.wake(woken...)
		}
		return err
	})
}

func (t txn) fence(ctx context.Context, owner journal.Owner) error {
	var one int
	err := t.row(ctx, fenceSQL, owner.ID, owner.Incarnation).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return journal.Fenced(owner)
	}
	return err
}

// attempt writes batches and returns the owners of runs that got commands.
func (t txn) attempt(ctx context.Context, owner journal.Owner, units []*journal.RunBatch, done *journal.Outcomes) (woken []string, err error) {
	if err := t.fence(ctx, owner); err != nil {
		return nil, err
	}
	ground, err := t.lookUp(ctx, units)
	if err != nil {
		return nil, err
	}
	r := journal.Resolve(units, ground, done)
	around := r.Surroundings()
	var taken []*journal.RunBatch
	for _, u := range r.Appends {
		rev, ok, err := t.append(ctx, owner, u)
		if err != nil {
			return nil, err
		}
		if !ok {
			if err := t.classifyConflicts(ctx, owner, u, done); err != nil {
				return nil, err
			}
			continue
		}
		done.Committed(u, rev)
		taken = append(taken, u)
	}
	for _, c := range r.Cancels {
		if c.Started {
			continue
		}
		if _, err := t.exec(ctx, `UPDATE runs SET holds_key = 0, revision = revision + 1, cancel_reason = CASE WHEN `+cancelable+` THEN ?2 ELSE cancel_reason END,
			cancel_time = CASE WHEN `+cancelable+` THEN ?3 ELSE cancel_time END WHERE run_id = ?1`, c.RunID, c.Reason, micros(c.Time)); err != nil {
			return nil, err
		}
	}
	for _, u := range r.Starts {
		ok, err := t.start(ctx, owner, u)
		if err != nil {
			return nil, err
		}
		if !ok {
			if err := t.classifyConflicts(ctx, owner, u, done); err != nil {
				return nil, err
			}
			continue
		}
		done.Committed(u, 1)
		taken = append(taken, u)
	}
	if err := t.children(ctx, taken); err != nil {
		return nil, err
	}
	for _, q := range r.Requests {
		if _, err := t.exec(ctx, `INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time) VALUES (?, ?, ?, ?, ?, ?)`,
			q.Key.Namespace, q.Key.Method, q.Key.ID, q.Seen.BodyHash, q.Seen.RunID, micros(q.Time)); err != nil {
			return nil, err
		}
	}
	for _, c := range r.Cancels {
		if _, err := t.exec(ctx, insertCommand, c.RunID, c.Namespace, string(journal.CommandCancel), "", blob(c.Body), micros(c.Time)); err != nil {
			return nil, err
		}
	}
	return t.sideEffects(ctx, owner, around, done)
}

const cancelable = "cancel_time = 0 AND state < 6"

// sideEffects does what follows from the writes of a commit, and returns the owners that have commands.
func (t txn) sideEffects(ctx context.Context, owner journal.Owner, a journal.SideEffects, done *journal.Outcomes) (woken []string, err error) {
	for _, id := range slices.Concat(a.Targets, a.Ended) {
		if _, err := t.exec(ctx, tidyCommands, id); err != nil {
			return nil, err
		}
	}
	for _, id := range a.Ended {
		if _, err := t.exec(ctx, tidyInterrupts, id); err != nil {
			return nil, err
		}
	}
	for _, id := range a.Claims {
		n, err := t.exec(ctx, claimOwnerless, owner.ID, owner.Incarnation, id)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			done.Claimed(id)
		}
	}
	for _, k := range a.Keeps {
		if _, err := t.exec(ctx, t.w.keepOutcome, k.Namespace, k.Key, k.Outcome, micros(k.Until), k.RunID, k.Seq); err != nil {
			return nil, err
		}
	}
	if err := t.jobsIf(ctx, wakesSQL, a.Wakes); err != nil {
		return nil, err
	}
	if err := t.jobsIf(ctx, t.w.freed, a.Freed); err != nil {
		return nil, err
	}
	for _, id := range a.Targets {
		owner, err := t.ownerOf(ctx, id)
		if err != nil {
			return nil, err
		}
		woken = append(woken, owner)
	}
	return woken, nil
}

func (t txn) lookUp(ctx context.Context, units []*journal.RunBatch) (journal.Preconditions, error) {
	g := journal.Preconditions{Requests: map[journal.RequestKey]journal.Seen{}, Holders: map[journal.Key]string{}, Exists: map[string]bool{}, Tell: t.tell}
	if err := t.findThreads(ctx, units, &g.Threads); err != nil {
		return g, err
	}
	requests, keys := journal.Needs(units)
	for _, k := range requests {
		var v journal.Seen
		err := t.row(ctx, `SELECT body_hash, run_id FROM request_ids WHERE namespace = ? AND method = ? AND request_id = ?`,
			k.Namespace, k.Method, k.ID).Scan(&v.BodyHash, &v.RunID)
		if err == nil {
			g.Requests[k] = v
		} else if !errors.Is(err, sql.ErrNoRows) {
			return g, err
		}
	}
	for _, k := range keys {
		var id string
		err := t.row(ctx, `SELECT run_id FROM runs WHERE namespace = ? AND business_key = ? AND holds_key = 1`, k.Namespace, k.Name).Scan(&id)
		if err == nil {
			g.Holders[k] = id
		} else if !errors.Is(err, sql.ErrNoRows) {
			return g, err
		}
	}
	if len(requests)+len(keys) == 0 {
		return g, nil
	}
	for _, u := range units {
		if u.Start == nil {
			continue
		}
		var n int
		if err := t.row(ctx, `SELECT count(*) FROM runs WHERE run_id = ?`, u.RunID).Scan(&n); err != nil {
			return g, err
		}
		g.Exists[u.RunID] = n > 0
	}
	return g, nil
}

func (t txn) append(ctx context.Context, owner journal.Owner, u *journal.RunBatch) (revision int64, ok bool, err error) {
	var takeovers int
	var root string
	err = t.row(ctx, placeSQL, u.RunID, u.Namespace, owner.ID, owner.Incarnation, u.Expected).Scan(&takeovers, &root)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, err
	}
	for i := range u.Opened {
		if u.Opened[i].RootID == "" {
			u.Opened[i].RootID = root
		}
	}
	if !u.TouchesRow() {
		if u.Progress && takeovers > 0 {
			_, err = t.exec(ctx, progressSQL, u.RunID)
		}
		return 0, err == nil, err
	}
	set := []any{u.LastSeq(), b2i(u.Progress), u.RunID}
	if u.Status == nil {
		err = t.row(ctx, appendSQL, set...).Scan(&revision)
	} else {
		status, state, wake := values(t.w.status, u, apart()...), int32(u.Status.State), micros(u.Status.WakeTime)
		err = t.row(ctx, t.w.appendSame, slices.Concat(status, set, []any{state, wake})...).Scan(&revision)
		if errors.Is(err, sql.ErrNoRows) {
			err = t.row(ctx, t.w.appendState, slices.Concat([]any{state, wake, b2i(u.Ends())}, status, set)...).Scan(&revision)
		}
	}
	if err == nil && u.Release {
		_, err = t.exec(ctx, releaseSQL, u.RunID)
	}
	if err == nil && u.GraphChanges > 0 {
		if err = t.graph(ctx, u.Namespace, u.GraphHash, u.Graph); err == nil {
			_, err = t.exec(ctx, repinSQL, u.GraphHash, u.GraphChanges, u.RunID)
		}
	}
	if err == nil && u.Outcome != nil {
		_, err = t.exec(ctx, t.w.outcomeOf, append(values(t.w.outcome, u, `run_id`), u.RunID)...)
	}
	if err == nil && u.Metadata != nil {
		_, err = t.exec(ctx, `UPDATE run_details SET metadata = ? WHERE run_id = ?`, blob(u.Metadata), u.RunID)
	}
	return revision, err == nil, err
}

func (t txn) graph(ctx context.Context, namespace, hash string, body []byte) error {
	k := journal.Key{Namespace: namespace, Name: hash}
	if t.graphs[k] {
		return nil
	}
	t.graphs[k] = true
	if body == nil {
		body = []byte{}
	}
	_, err := t.exec(ctx, insertGraph, namespace, hash, body)
	return err
}

func (t txn) start(ctx context.Context, owner journal.Owner, u *journal.RunBatch) (ok bool, err error) {
	if u.Pending() {
		owner = journal.Owner{}
	}
	if isNew, err := put(ctx, t, t.w.run, u, owner.ID, owner.Incarnation); err != nil || !isNew {
		return false, err
	}
	if _, err := put(ctx, t, t.w.details, u); err != nil {
		return false, err
	}
	for k, v := range u.Start.Run.Labels {
		if _, err := put(ctx, t, t.w.label, sqlstore.LabelRow{Batch: u, Key: k, Value: v}); err != nil {
			return false, err
		}
	}
	return true, t.graph(ctx, u.Namespace, u.Start.Run.GraphHash, u.Start.Graph)
}

// children writes what hangs on the runs that were written, events in as few statements as possible.
func (t txn) children(ctx context.Context, units []*journal.RunBatch) error {
	var args []any
	for _, u := range units {
		for i := range u.Events {
			args = append(args, values(t.w.events, sqlstore.EventRow{Namespace: u.Namespace, Event: &u.Events[i]})...)
		}
	}
	for _, n := range eventChunks() {
		size := n * len(t.w.events)
		for ; len(args) >= size; args = args[size:] {
			if _, err := t.exec(ctx, t.w.insertEvents[n], args[:size]...); err != nil {
				return err
			}
		}
	}
	for _, u := range units {
		for i := range u.Outbox {
			if _, err := put(ctx, t, t.w.out, sqlstore.OutRow{Namespace: u.Namespace, RunID: u.RunID, OutRow: &u.Outbox[i]}); err != nil {
				return err
			}
		}
		for i := range u.ThreadOutbox {
			if _, err := put(ctx, t, t.w.out, sqlstore.OutRow{Namespace: u.Namespace, RunID: u.RunID, OutRow: &u.ThreadOutbox[i]}); err != nil {
				return err
			}
		}
		if u.Snapshot != nil {
			if _, err := put(ctx, t, t.w.snapshot, u); err != nil {
				return err
			}
		}
		for i := range u.Blobs {
			if _, err := put(ctx, t, t.w.blob, sqlstore.BlobRow{Batch: u, BlobRef: &u.Blobs[i]}); err != nil {
				return err
			}
		}
		if err := t.threads(ctx, u); err != nil {
			return err
		}
		if err := t.attachments(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// attachments writes what a batch has for commands, interrupts and jobs.
func (t txn) attachments(ctx context.Context, u *journal.RunBatch) error {
	for _, id := range u.Applied {
		if _, err := t.exec(ctx, dropCommand, id, u.RunID); err != nil {
			return err
		}
	}
	for i := range u.Command {
		m := &u.Command[i]
		if _, err := t.exec(ctx, sendCommand, m.RunID, m.Namespace, string(m.Kind), m.Key, blob(m.Body), micros(m.Time)); err != nil {
			return err
		}
	}
	for i := range u.Opened {
		q := &u.Opened[i]
		q.RootID = cmp.Or(q.RootID, q.RunID)
		if _, err := put(ctx, t, t.w.interrupt, q); err != nil {
			return err
		}
	}
	for i := range u.Closed {
		c := &u.Closed[i]
		if _, err := t.exec(ctx, `UPDATE interrupts SET state = ?, answer = ?, decision = ?, closed_by = ?, close_time = ? WHERE id = ? AND run_id = ? AND state = 1`,
			int32(c.State), blob(c.Answer), c.Decision, c.By, micros(c.Time), c.ID, u.RunID); err != nil {
			return err
		}
	}
	return t.jobs(ctx, u.Jobs)
}

// blob keeps an empty value as NULL, as the contract says.
func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

func (t txn) classifyConflicts(ctx context.Context, owner journal.Owner, u *journal.RunBatch, done *journal.Outcomes) error {
	st := journal.FoundRow{Found: true}
	var created int64
	err := t.row(ctx, `SELECT r.namespace, r.owner_id, r.owner_incarnation, `+lastSeq()+`, r.revision, r.create_time FROM runs r WHERE r.run_id = ?`, u.RunID).
		Scan(&st.Namespace, &st.Owner.ID, &st.Owner.Incarnation, &st.LastSeq, &st.Revision, &created)
	st.CreateTime = dbkit.FromUnixMicros(created)
	if errors.Is(err, sql.ErrNoRows) {
		st.Found = false
	} else if err != nil {
		return fmt.Errorf("read back run: %w", err)
	}
	if st.Found && len(u.Events) > 0 {
		rows, err := t.tx.QueryContext(ctx, sqlstore.SelectEvents+` WHERE run_id = ? AND seq > ? AND seq <= ? ORDER BY seq`, u.RunID, u.Expected, u.LastSeq())
		if st.Events, err = dbkit.Collect(rows, err, func(rows *sql.Rows) (journal.Event, error) { return sqlstore.ScanEvent(rows) }); err != nil {
			return fmt.Errorf("read back events: %w", err)
		}
	}
	journal.ClassifyConflict(u, owner, st, done)
	return nil
}
