package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// lastSeq is where the journal of r ends: its row tells only of the last change of the row.
	lastSeq    = `max(r.last_seq, coalesce((SELECT max(e.seq) FROM events e WHERE e.run_id = r.run_id), 0))`
	runColumns = `r.run_id, r.namespace, r.owner_id, r.owner_incarnation, ` + lastSeq + `, r.revision, r.create_time, r.start_time, r.end_time,
		r.update_time, r.wake_time, r.cancel_time, r.input_tokens, r.cached_input_tokens, r.output_tokens, r.reasoning_tokens, r.calls,
		r.takeovers, r.doing, r.died_doing, r.machine_version, r.state, r.nodes_total, r.nodes_completed, r.nodes_failed, r.nodes_skipped, r.nodes_running,
		r.sampled, r.state_reason, r.cancel_reason, r.graph_name, r.graph_hash, r.task_id, r.user_id, r.chat_id, r.thread_id,
		r.business_key, r.parent_run_id, r.root_run_id, r.trace_parent, r.trace_state,
		r.graph_revision, r.deadline, r.priority, r.forked_from, r.schedule_id, coalesce(k.cost_nano_usd, 0), coalesce(k.unpriced_calls, 0), d.labels, d.metadata, d.error`
	bigColumns   = `, d.args, d.named, d.context, d.attachments, d.result, d.outputs`
	joins        = ` JOIN run_details d ON d.run_id = r.run_id LEFT JOIN run_costs k ON k.run_id = r.run_id`
	selectEvents = `SELECT run_id, seq, time, kind, node_id, visit, data FROM events`
)

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func scanRun(row interface{ Scan(...any) error }, big bool) (journal.Run, error) {
	var r journal.Run
	var create, start, end, update, wake, cancel, deadline int64
	var labels []byte
	dst := []any{
		&r.ID, &r.Namespace, &r.Owner.ID, &r.Owner.Incarnation, &r.LastSeq, &r.Revision, &create, &start, &end,
		&update, &wake, &cancel, &r.Usage.InputTokens, &r.Usage.CachedInputTokens, &r.Usage.OutputTokens, &r.Usage.ReasoningTokens, &r.Usage.Calls,
		&r.Takeovers, &r.Doing, &r.DiedDoing, &r.MachineVersion, &r.State, &r.Nodes.Total, &r.Nodes.Completed, &r.Nodes.Failed, &r.Nodes.Skipped, &r.Nodes.Running,
		&r.Sampled, &r.Reason, &r.CancelReason, &r.GraphName, &r.GraphHash, &r.TaskID, &r.UserID, &r.ChatID, &r.ThreadID,
		&r.BusinessKey, &r.ParentID, &r.RootID, &r.TraceParent, &r.TraceState,
		&r.GraphRevision, &deadline, &r.Priority, &r.ForkedFrom, &r.ScheduleID, &r.CostNanoUSD, &r.UnpricedCalls, &labels, &r.Metadata, &r.Error,
	}
	if big {
		dst = append(dst, &r.Args, &r.Named, &r.Context, &r.Attachments, &r.Result, &r.Outputs)
	}
	if err := row.Scan(dst...); err != nil {
		return journal.Run{}, err
	}
	r.CreateTime, r.StartTime, r.EndTime = dbkit.FromUnixMicros(create), dbkit.FromUnixMicros(start), dbkit.FromUnixMicros(end)
	r.UpdateTime, r.WakeTime, r.CancelTime = dbkit.FromUnixMicros(update), dbkit.FromUnixMicros(wake), dbkit.FromUnixMicros(cancel)
	r.Deadline = dbkit.FromUnixMicros(deadline)
	var err error
	r.Labels, err = journal.DecodeLabels(labels)
	return r, err
}

func scanEvent(rows *sql.Rows) (journal.Event, error) {
	var e journal.Event
	var at int64
	err := rows.Scan(&e.RunID, &e.Seq, &at, &e.Kind, &e.NodeID, &e.Visit, &e.Data)
	e.Time = dbkit.FromUnixMicros(at)
	return e, err
}

func get(ctx context.Context, q querier, namespace, runID string) (journal.Run, error) {
	r, err := scanRun(q.QueryRowContext(ctx, `SELECT `+runColumns+bigColumns+` FROM runs r`+joins+` WHERE r.namespace = ? AND r.run_id = ?`, namespace, runID), true)
	if errors.Is(err, sql.ErrNoRows) {
		return r, journal.RunNotFound(runID)
	}
	return r, err
}

// Get implements journal.Reader.
func (s *Store) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	return get(ctx, s.db.Read, namespace, runID)
}

// Head implements journal.Reader.
func (s *Store) Head(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := scanRun(s.db.Read.QueryRowContext(ctx, `SELECT `+runColumns+` FROM runs r`+joins+` WHERE r.namespace = ? AND r.run_id = ?`, namespace, runID), false)
	if errors.Is(err, sql.ErrNoRows) {
		return r, journal.RunNotFound(runID)
	}
	return r, err
}

// Graph implements journal.Reader.
func (s *Store) Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT g.hash, g.body FROM runs r JOIN graphs g ON g.namespace = r.namespace AND g.hash = r.graph_hash
		WHERE r.namespace = ? AND r.run_id = ?`, namespace, runID).Scan(&hash, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil, journal.RunNotFound(runID)
	}
	return hash, body, err
}

// GraphBody implements journal.Reader.
func (s *Store) GraphBody(ctx context.Context, namespace, hash string) (body []byte, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT body FROM graphs WHERE namespace = ? AND hash = ?`, namespace, hash).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, journal.GraphNotFound(hash)
	}
	return body, err
}

// Requested implements journal.Reader.
func (s *Store) Requested(ctx context.Context, namespace, method, requestID string) (runID, bodyHash string, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT run_id, body_hash FROM request_ids WHERE namespace = ? AND method = ? AND request_id = ?`,
		namespace, method, requestID).Scan(&runID, &bodyHash)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", nil
	}
	return runID, bodyHash, err
}

// List implements journal.Reader.
func (s *Store) List(ctx context.Context, namespace string, f journal.Filter, after page.Cursor, limit int) ([]journal.Run, error) {
	query, args := listRuns(namespace, f, after, limit)
	rows, err := s.db.Read.QueryContext(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows *sql.Rows) (journal.Run, error) { return scanRun(rows, false) })
}

func listRuns(namespace string, f journal.Filter, after page.Cursor, limit int) (query string, args []any) {
	var a arguments
	tenant, last := a.add(namespace), a.add(limit)
	conds := []string{"r.namespace = " + tenant}
	keyed := false
	for _, c := range []struct{ name, value string }{
		{"task_id", f.TaskID}, {"user_id", f.UserID}, {"chat_id", f.ChatID}, {"thread_id", f.ThreadID},
		{"business_key", f.BusinessKey}, {"parent_run_id", f.ParentID},
		{"schedule_id", f.ScheduleID},
	} {
		if c.value != "" {
			keyed = true
			// The second half lets the planner use the partial index.
			conds = append(conds, "r."+c.name+" = "+a.add(c.value)+" AND r."+c.name+" <> ''")
		}
	}
	labels := slices.Sorted(maps.Keys(f.Labels))
	labeled := !keyed && len(labels) > 0
	states := f.States
	// Without a key, runs are found in the order of time state by state. With one, its index knows the order,
	// and states must not lead away from there.
	if (keyed || labeled) && len(states) > 0 {
		conds = append(conds, "+r.state IN ("+numbers(states)+")")
		states = nil
	} else if !keyed && !labeled && len(states) == 0 {
		states = journal.States()
	}
	if f.Reason != "" {
		conds = append(conds, "r.state_reason = "+a.add(f.Reason))
	}
	from, place := "runs r", "r"
	if labeled {
		place = "l"
		from = "run_labels l CROSS JOIN runs r ON r.run_id = l.run_id"
		conds = append(conds, "l.namespace = "+tenant+" AND l.key = "+a.add(labels[0])+" AND l.value = "+a.add(f.Labels[labels[0]]))
		conds[0] = "+" + conds[0]
		labels = labels[1:]
	}
	for _, k := range labels {
		conds = append(conds, "EXISTS (SELECT 1 FROM run_labels m WHERE m.run_id = r.run_id AND m.key = "+a.add(k)+" AND m.value = "+a.add(f.Labels[k])+")")
	}
	if !after.IsZero() {
		conds = append(conds, fmt.Sprintf("(%[1]s.create_time, %[1]s.run_id) < (%[2]s, %[3]s)", place, a.add(micros(after.CreateTime)), a.add(after.ID)))
	}
	if !f.CreatedAfter.IsZero() {
		conds = append(conds, place+".create_time >= "+a.add(journal.CeilMicros(f.CreatedAfter).UnixMicro()))
	}
	if !f.CreatedBefore.IsZero() {
		conds = append(conds, place+".create_time < "+a.add(journal.CeilMicros(f.CreatedBefore).UnixMicro()))
	}
	found := dbkit.Merged(states, func(state string) string {
		return "SELECT " + place + ".create_time AS create_time, " + place + ".run_id AS run_id FROM " + from + " WHERE " + strings.Join(append(conds[:len(conds):len(conds)], state), " AND ")
	}, "r", "create_time DESC, run_id DESC", last)
	return "SELECT " + runColumns + " FROM (" + found + ") p CROSS JOIN runs r ON r.run_id = p.run_id" + joins + " ORDER BY p.create_time DESC, p.run_id DESC", a
}

// arguments are those of a statement that is put together.
type arguments []any

// add returns the name of the new parameter.
func (a *arguments) add(v any) string {
	*a = append(*a, v)
	return fmt.Sprintf("?%d", len(*a))
}

// numbers are states as the database knows them.
func numbers[S ~int32](states []S) string {
	out := make([]string, len(states))
	for i, s := range states {
		out[i] = strconv.Itoa(int(s))
	}
	return strings.Join(out, ", ")
}

// Events implements journal.Reader.
func (s *Store) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]journal.Event, error) {
	rows, err := s.db.Read.QueryContext(ctx, selectEvents+` WHERE namespace = ? AND run_id = ? AND seq > ? ORDER BY seq LIMIT ?`, namespace, runID, afterSeq, limit)
	return dbkit.Collect(rows, err, scanEvent)
}

// Descendants implements journal.Reader.
func (s *Store) Descendants(ctx context.Context, namespace, runID string) ([]journal.Descendant, error) {
	rows, err := s.db.Read.QueryContext(ctx, `WITH RECURSIVE below AS (
			SELECT run_id, parent_run_id, state, last_seq, create_time FROM runs WHERE namespace = ?1 AND parent_run_id = ?2 AND parent_run_id <> ''
			UNION ALL
			SELECT r.run_id, r.parent_run_id, r.state, r.last_seq, r.create_time FROM below b
			JOIN runs r ON r.namespace = ?1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> '')
		SELECT r.run_id, r.parent_run_id, r.state, `+lastSeq+` FROM below r ORDER BY r.create_time, r.run_id`, namespace, runID)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (d journal.Descendant, err error) {
		err = rows.Scan(&d.RunID, &d.ParentRunID, &d.State, &d.LastSeq)
		return d, err
	})
}

// CountBelow implements journal.Reader.
func (s *Store) CountBelow(ctx context.Context, namespace, runID string, most int) (n int, err error) {
	err = s.db.Read.QueryRowContext(ctx, `WITH RECURSIVE below (run_id) AS (
			SELECT run_id FROM runs WHERE namespace = ?1 AND parent_run_id = ?2 AND parent_run_id <> ''
			UNION ALL
			SELECT r.run_id FROM below b JOIN runs r ON r.namespace = ?1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> '')
		SELECT count(*) FROM (SELECT 1 FROM below LIMIT ?3)`, namespace, runID, most).Scan(&n)
	return n, err
}

// Load implements journal.Log.
func (s *Store) Load(ctx context.Context, runID string) (l journal.Loaded, err error) {
	err = s.db.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var err error
		l = journal.Loaded{}
		l.Run, err = scanRun(tx.QueryRowContext(ctx, `SELECT `+runColumns+bigColumns+` FROM runs r`+joins+` WHERE r.run_id = ?`, runID), true)
		if errors.Is(err, sql.ErrNoRows) {
			return journal.RunNotFound(runID)
		} else if err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT body FROM graphs WHERE namespace = ? AND hash = ?`, l.Run.Namespace, l.Run.GraphHash).Scan(&l.Graph); err != nil {
			return fmt.Errorf("load graph: %w", err)
		}
		err = tx.QueryRowContext(ctx, `SELECT seq, data FROM snapshots WHERE run_id = ?`, runID).Scan(&l.SnapshotSeq, &l.Snapshot)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("load snapshot: %w", err)
		}
		rows, err := tx.QueryContext(ctx, selectEvents+` WHERE run_id = ? AND seq > ? ORDER BY seq`, runID, l.SnapshotSeq)
		if l.Events, err = dbkit.Collect(rows, err, scanEvent); err != nil {
			return err
		}
		rows, err = tx.QueryContext(ctx, selectCommands+` FROM commands m WHERE m.run_id = ? ORDER BY m.id LIMIT ?`, runID, journal.MaxLoadedCommandBytes)
		l.Command, err = dbkit.Collect(rows, err, scanCommand)
		return err
	})
	return l, err
}

// Standing implements journal.Reader.
func (s *Store) Standing(ctx context.Context, namespace, runID string) (journal.Loaded, error) {
	return journal.FoundRowOf(ctx, s, namespace, runID)
}
