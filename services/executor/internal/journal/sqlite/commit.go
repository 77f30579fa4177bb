package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	fenceSQL = `SELECT 1 FROM executors WHERE id = ? AND incarnation = ?`

	// SQLite rewrites every index that names a column which is set, changed or not. So the columns that
	// indexes name are set only when they change, which is seldom: the first statement fails if they would.
	statusSet = `state_reason = ?, start_time = ?, end_time = ?, update_time = ?, wake_time = ?,
		input_tokens = ?, cached_input_tokens = ?, output_tokens = ?, reasoning_tokens = ?, calls = ?,
		nodes_total = ?, nodes_completed = ?, nodes_failed = ?, nodes_skipped = ?, nodes_running = ?, `
	appendSet = `last_seq = ?, revision = revision + 1, takeovers = CASE WHEN ? THEN 0 ELSE takeovers END,
		cancel_state = CASE WHEN ? AND cancel_state = 1 THEN 2 ELSE cancel_state END`
	appendWhere = ` WHERE run_id = ? AND namespace = ? AND last_seq = ? AND owner_id = ? AND owner_incarnation = ?`
	returning   = ` RETURNING revision`

	appendSQL      = `UPDATE runs SET ` + appendSet + appendWhere + returning
	appendSameSQL  = `UPDATE runs SET ` + statusSet + appendSet + appendWhere + ` AND state = ?` + returning
	appendStateSQL = `UPDATE runs SET state = ?, holds_key = holds_key AND NOT ?, ` + statusSet + appendSet + appendWhere + returning
	outcomeSQL     = `UPDATE run_details SET result = ?, outputs = ?, error = ? WHERE run_id = ?`

	runColumnNames = `state, state_reason, start_time, end_time, update_time, wake_time,
		input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, calls,
		nodes_total, nodes_completed, nodes_failed, nodes_skipped, nodes_running,
		run_id, namespace, owner_id, owner_incarnation, last_seq, revision, create_time, cancel_time, cancel_state, cancel_reason, holds_key,
		takeovers, machine_version, sampled, graph_name, graph_hash, task_id, user_id, chat_id, thread_id, business_key, parent_run_id,
		root_run_id, trace_parent, trace_state`
	runColumnCount = 41

	insertDetails = `INSERT INTO run_details (run_id, namespace, labels, metadata, error, args, named, context, attachments, result, outputs)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	insertLabel    = `INSERT INTO run_labels (run_id, key, namespace, value, create_time) VALUES (?, ?, ?, ?, ?)`
	insertGraph    = `INSERT INTO graphs (namespace, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	insertSnapshot = `INSERT INTO snapshots (run_id, namespace, seq, data) VALUES (?, ?, ?, ?)
		ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, data = excluded.data WHERE snapshots.seq <= excluded.seq`
	insertOut = `INSERT INTO outbox (run_id, seq, ordinal, namespace, kind, next_at, attempts, last_error, body)
		VALUES (?, ?, ?, ?, ?, ` + now + `, 0, '', ?)`

	eventColumns = 8
)

func insertRun() string {
	return `INSERT INTO runs (` + runColumnNames + `) VALUES ` + tuples(1, runColumnCount) + ` ON CONFLICT (run_id) DO NOTHING`
}

func insertEvents(n int) string {
	return `INSERT INTO events (run_id, seq, namespace, time, kind, node_id, visit, data) VALUES ` + tuples(n, eventColumns)
}

// eventChunks are how many events go into one statement.
func eventChunks() []int { return []int{64, 8, 1} }

func hotStatements() []string {
	qs := []string{fenceSQL, appendSQL, appendSameSQL, appendStateSQL, outcomeSQL, insertRun(), insertDetails, insertLabel, insertGraph, insertSnapshot, insertOut}
	for _, n := range eventChunks() {
		qs = append(qs, insertEvents(n))
	}
	return qs
}

// Commit implements journal.Log.
func (s *Store) Commit(ctx context.Context, owner journal.Owner, writes []journal.Write) ([]journal.Result, error) {
	return journal.CommitUnits(ctx, writes, inRow, func(ctx context.Context, units []*journal.Unit, done *journal.Outcomes) error {
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

// attempt writes units and returns the owners whose runs were asked to end.
func (t txn) attempt(ctx context.Context, owner journal.Owner, units []*journal.Unit, done *journal.Outcomes) (woken []string, err error) {
	if err := t.fence(ctx, owner); err != nil {
		return nil, err
	}
	ground, err := t.lookUp(ctx, units)
	if err != nil {
		return nil, err
	}
	r := journal.Resolve(units, ground, done)
	var taken []*journal.Unit
	for _, u := range r.Appends {
		rev, ok, err := t.append(ctx, owner, u)
		if err != nil {
			return nil, err
		}
		if !ok {
			if err := t.judge(ctx, owner, u, done); err != nil {
				return nil, err
			}
			continue
		}
		done.Committed(u, rev)
		taken = append(taken, u)
	}
	for _, c := range r.Cancels {
		id, err := t.cancel(ctx, c)
		if err != nil {
			return nil, err
		}
		woken = append(woken, id)
	}
	graphs := map[journal.Key]bool{}
	insert := insertRun()
	for _, u := range r.Starts {
		ok, err := t.start(ctx, insert, owner, u, graphs)
		if err != nil {
			return nil, err
		}
		if !ok {
			if err := t.judge(ctx, owner, u, done); err != nil {
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
			q.Key.Namespace, methodStart, q.Key.Name, q.Seen.BodyHash, q.Seen.RunID, micros(q.Time)); err != nil {
			return nil, err
		}
	}
	return woken, nil
}

func (t txn) lookUp(ctx context.Context, units []*journal.Unit) (journal.Ground, error) {
	g := journal.Ground{Requests: map[journal.Key]journal.Seen{}, Holders: map[journal.Key]string{}, Exists: map[string]bool{}}
	requests, keys := journal.Needs(units)
	for _, k := range requests {
		var v journal.Seen
		err := t.row(ctx, `SELECT body_hash, run_id FROM request_ids WHERE namespace = ? AND method = ? AND request_id = ?`,
			k.Namespace, methodStart, k.Name).Scan(&v.BodyHash, &v.RunID)
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

// statusArgs are the values of statusSet.
func statusArgs(s *journal.Status) []any {
	return []any{
		s.Reason, micros(s.StartTime), micros(s.EndTime), micros(s.UpdateTime), micros(s.WakeTime),
		s.Usage.InputTokens, s.Usage.CachedInputTokens, s.Usage.OutputTokens, s.Usage.ReasoningTokens, s.Usage.Calls,
		s.Nodes.Total, s.Nodes.Completed, s.Nodes.Failed, s.Nodes.Skipped, s.Nodes.Running,
	}
}

func (t txn) append(ctx context.Context, owner journal.Owner, u *journal.Unit) (revision int64, ok bool, err error) {
	set := []any{u.LastSeq(), b2i(u.Progress), b2i(u.CancelSeen), u.RunID, u.Namespace, u.Expected, owner.ID, owner.Incarnation}
	if u.Status == nil {
		err = t.row(ctx, appendSQL, set...).Scan(&revision)
	} else {
		status, state := statusArgs(u.Status), int32(u.Status.State)
		err = t.row(ctx, appendSameSQL, slices.Concat(status, set, []any{state})...).Scan(&revision)
		if errors.Is(err, sql.ErrNoRows) {
			err = t.row(ctx, appendStateSQL, slices.Concat([]any{state, b2i(u.Status.State.Ended())}, status, set)...).Scan(&revision)
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err == nil && u.Outcome != nil {
		_, err = t.exec(ctx, outcomeSQL, blob(u.Outcome.Result), blob(u.Outcome.Outputs), blob(u.Outcome.Error), u.RunID)
	}
	return revision, err == nil, err
}

func (t txn) start(ctx context.Context, insert string, owner journal.Owner, u *journal.Unit, graphs map[journal.Key]bool) (ok bool, err error) {
	r := &u.Start.Run
	root := r.RootID
	if root == "" {
		root = u.RunID
	}
	args := slices.Concat([]any{int32(u.Status.State)}, statusArgs(u.Status), []any{u.RunID, u.Namespace, owner.ID, owner.Incarnation, u.LastSeq(), 1, micros(r.CreateTime),
		micros(u.CancelTime), b2i(!u.CancelTime.IsZero()), u.CancelReason, b2i(u.HoldsKey), 0, r.MachineVersion, b2i(r.Sampled), r.GraphName, r.GraphHash,
		r.TaskID, r.UserID, r.ChatID, r.ThreadID, r.BusinessKey, r.ParentID, root, r.TraceParent, r.TraceState})
	n, err := t.exec(ctx, insert, args...)
	if err != nil || n == 0 {
		return false, err
	}
	if _, err := t.exec(ctx, insertDetails, u.RunID, u.Namespace, blob(journal.EncodeLabels(r.Labels)), blob(r.Metadata), blob(u.Outcome.Error),
		blob(r.Args), blob(r.Named), blob(r.Context), blob(r.Attachments), blob(u.Outcome.Result), blob(u.Outcome.Outputs)); err != nil {
		return false, err
	}
	for k, v := range r.Labels {
		if _, err := t.exec(ctx, insertLabel, u.RunID, k, u.Namespace, v, micros(r.CreateTime)); err != nil {
			return false, err
		}
	}
	g := journal.Key{Namespace: u.Namespace, Name: r.GraphHash}
	if !graphs[g] {
		graphs[g] = true
		body := u.Start.Graph
		if body == nil {
			body = []byte{}
		}
		if _, err := t.exec(ctx, insertGraph, g.Namespace, g.Name, body); err != nil {
			return false, err
		}
	}
	return true, nil
}

// children writes what hangs on the runs that were written, events in as few statements as can be.
func (t txn) children(ctx context.Context, units []*journal.Unit) error {
	var args []any
	for _, u := range units {
		for i := range u.Events {
			e := &u.Events[i]
			args = append(args, e.RunID, e.Seq, u.Namespace, e.Time.UnixMicro(), e.Kind, e.NodeID, e.Visit, blob(e.Data))
		}
	}
	for _, n := range eventChunks() {
		query := insertEvents(n)
		for ; len(args) >= n*eventColumns; args = args[n*eventColumns:] {
			if _, err := t.exec(ctx, query, args[:n*eventColumns]...); err != nil {
				return err
			}
		}
	}
	for _, u := range units {
		for _, o := range u.Outbox {
			if _, err := t.exec(ctx, insertOut, u.RunID, o.Seq, o.Ordinal, u.Namespace, o.Kind, blob(o.Body)); err != nil {
				return err
			}
		}
		if u.Snapshot != nil {
			if _, err := t.exec(ctx, insertSnapshot, u.RunID, u.Namespace, u.SnapshotSeq, u.Snapshot); err != nil {
				return err
			}
		}
	}
	return nil
}

// blob keeps an empty value as NULL, as the contract says.
func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

func (t txn) judge(ctx context.Context, owner journal.Owner, u *journal.Unit, done *journal.Outcomes) error {
	st := journal.Standing{Found: true}
	err := t.row(ctx, `SELECT namespace, owner_id, owner_incarnation, last_seq, revision FROM runs WHERE run_id = ?`, u.RunID).
		Scan(&st.Namespace, &st.Owner.ID, &st.Owner.Incarnation, &st.LastSeq, &st.Revision)
	if errors.Is(err, sql.ErrNoRows) {
		st.Found = false
	} else if err != nil {
		return fmt.Errorf("read back run: %w", err)
	}
	if st.Found && len(u.Events) > 0 {
		rows, err := t.tx.QueryContext(ctx, selectEvents+` WHERE run_id = ? AND seq > ? AND seq <= ? ORDER BY seq`, u.RunID, u.Expected, u.LastSeq())
		if st.Events, err = all(rows, err, scanEvent); err != nil {
			return fmt.Errorf("read back events: %w", err)
		}
	}
	journal.Judge(u, owner, st, done)
	return nil
}

func (t txn) cancel(ctx context.Context, c journal.Cancel) (owner string, err error) {
	var sets strings.Builder
	for _, col := range []string{"cancel_reason = CASE WHEN %s THEN ?2 ELSE cancel_reason END", "cancel_time = CASE WHEN %s THEN ?3 ELSE cancel_time END",
		"cancel_state = CASE WHEN %s THEN 1 ELSE cancel_state END"} {
		sets.WriteString(", " + fmt.Sprintf(col, "cancel_state = 0 AND state < 6"))
	}
	err = t.row(ctx, `UPDATE runs SET holds_key = 0, revision = revision + 1`+sets.String()+` WHERE run_id = ?1 RETURNING owner_id`,
		c.RunID, c.Reason, micros(c.Time)).Scan(&owner)
	return owner, err
}

// SweepRequestIDs implements journal.Log.
func (s *Store) SweepRequestIDs(ctx context.Context, before time.Time) (n int, err error) {
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		gone, err := t.exec(ctx, `DELETE FROM request_ids WHERE create_time < ?`, micros(before))
		n = int(gone)
		return err
	})
	return n, err
}

// RequestCancel implements journal.Reader.
func (s *Store) RequestCancel(ctx context.Context, c journal.CancelRun) (run journal.Run, err error) {
	woken := ""
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		woken = ""
		if c.Request.ID != "" {
			n, err := t.exec(ctx, `INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time)
				VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, c.Namespace, methodCancel, c.Request.ID, c.Request.BodyHash, c.RunID, micros(c.Now))
			if err != nil {
				return err
			}
			if n == 0 {
				var hash, id string
				if err := t.row(ctx, `SELECT body_hash, run_id FROM request_ids WHERE namespace = ? AND method = ? AND request_id = ?`,
					c.Namespace, methodCancel, c.Request.ID).Scan(&hash, &id); err != nil {
					return err
				}
				if hash != c.Request.BodyHash || id != c.RunID {
					return journal.RequestIDReused(c.Request.ID)
				}
				run, err = get(ctx, t.tx, c.Namespace, c.RunID)
				return err
			}
		}
		var rev int64
		var state journal.State
		var cancel int
		var owner string
		err := t.row(ctx, `SELECT revision, state, cancel_state, owner_id FROM runs WHERE namespace = ? AND run_id = ?`, c.Namespace, c.RunID).
			Scan(&rev, &state, &cancel, &owner)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return journal.RunNotFound(c.RunID)
		case err != nil:
			return err
		case c.Revision != 0 && c.Revision != rev:
			return journal.EtagMismatch(c.RunID)
		case !state.Ended() && cancel == 0:
			if _, err := t.exec(ctx, `UPDATE runs SET cancel_state = 1, cancel_reason = ?, cancel_time = ?, revision = revision + 1 WHERE run_id = ?`,
				c.Reason, micros(c.Now), c.RunID); err != nil {
				return err
			}
			woken = owner
		}
		run, err = get(ctx, t.tx, c.Namespace, c.RunID)
		return err
	})
	if err != nil {
		return journal.Run{}, err
	}
	if woken != "" {
		s.wake(woken)
	}
	return run, nil
}
