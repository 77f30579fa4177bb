package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// lastSeq is where the journal of r ends: its row tells only of the last change of the row.
	lastSeq    = `greatest(r.last_seq, (SELECT e.seq FROM events e WHERE e.run_id = r.run_id ORDER BY e.seq DESC LIMIT 1))`
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
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func scanRun(row pgx.Row, big bool) (journal.Run, error) {
	var r journal.Run
	var start, end, update, wake, cancel, deadline *time.Time
	var labels []byte
	dst := []any{
		&r.ID, &r.Namespace, &r.Owner.ID, &r.Owner.Incarnation, &r.LastSeq, &r.Revision, &r.CreateTime, &start, &end,
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
	r.Result = readResult(r.Result, r.Outputs)
	r.CreateTime = r.CreateTime.UTC()
	r.StartTime, r.EndTime, r.UpdateTime, r.WakeTime, r.CancelTime = timeOf(start), timeOf(end), timeOf(update), timeOf(wake), timeOf(cancel)
	r.Deadline = timeOf(deadline)
	var err error
	r.Labels, err = journal.DecodeLabels(labels)
	return r, err
}

func scanEvent(row pgx.CollectableRow) (journal.Event, error) {
	var e journal.Event
	err := row.Scan(&e.RunID, &e.Seq, &e.Time, &e.Kind, &e.NodeID, &e.Visit, &e.Data)
	e.Time = e.Time.UTC()
	return e, err
}

const (
	// thisRun is the run $2 of namespace $1. While tables are empty every index looks as good as any other,
	// and one that begins with the namespace would stay the way to find a run by its id: so it is told that
	// it is none.
	thisRun   = ` r.run_id = $2 AND r.namespace || '' = $1`
	selectRun = `SELECT ` + runColumns + bigColumns + ` FROM runs r` + joins + ` WHERE` + thisRun
	itsHead   = `SELECT ` + runColumns + ` FROM runs r` + joins + ` WHERE` + thisRun
	itsGraph  = ` CROSS JOIN LATERAL (SELECT g.hash, g.body FROM graphs g WHERE g.namespace = r.namespace AND g.hash = r.graph_hash OFFSET 0) g`
	// itsChildren follows on a list of runs called b; OFFSET 0 keeps it a look-up for each of them.
	itsChildren = ` CROSS JOIN LATERAL (SELECT * FROM runs r WHERE r.namespace = $1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> '' OFFSET 0) r`
)

func get(ctx context.Context, q querier, namespace, runID string) (journal.Run, error) {
	r, err := scanRun(q.QueryRow(ctx, selectRun, namespace, runID), true)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, journal.RunNotFound(runID)
	}
	return r, err
}

// Get implements journal.Reader.
func (s *Store) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := get(ctx, s.read, namespace, runID)
	return r, away(err)
}

// Head implements journal.Reader.
func (s *Store) Head(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := scanRun(s.read.QueryRow(ctx, itsHead, namespace, runID), false)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, journal.RunNotFound(runID)
	}
	return r, away(err)
}

// Graph implements journal.Reader.
func (s *Store) Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error) {
	err = s.read.QueryRow(ctx, `SELECT g.hash, g.body FROM runs r`+itsGraph+` WHERE`+thisRun, namespace, runID).Scan(&hash, &body)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil, journal.RunNotFound(runID)
	}
	return hash, body, away(err)
}

// GraphBody implements journal.Reader.
func (s *Store) GraphBody(ctx context.Context, namespace, hash string) (body []byte, err error) {
	err = s.read.QueryRow(ctx, `SELECT body FROM graphs WHERE namespace = $1 AND hash = $2`, namespace, hash).Scan(&body)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, journal.GraphNotFound(hash)
	}
	return body, away(err)
}

// Requested implements journal.Reader.
func (s *Store) Requested(ctx context.Context, namespace, method, requestID string) (runID, bodyHash string, err error) {
	err = s.read.QueryRow(ctx, `SELECT run_id, body_hash FROM request_ids WHERE namespace = $1 AND method = $2 AND request_id = $3`,
		namespace, method, requestID).Scan(&runID, &bodyHash)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", nil
	}
	return runID, bodyHash, away(err)
}

// List implements journal.Reader.
func (s *Store) List(ctx context.Context, namespace string, f journal.Filter, after page.Cursor, limit int) ([]journal.Run, error) {
	var a arguments
	tenant, last := a.add(namespace), a.add(limit)
	conds := []string{"r.namespace = " + tenant}
	keys := 0
	for _, c := range []struct{ name, value string }{
		{"task_id", f.TaskID}, {"user_id", f.UserID}, {"chat_id", f.ChatID}, {"thread_id", f.ThreadID},
		{"business_key", f.BusinessKey}, {"parent_run_id", f.ParentID},
		{"schedule_id", f.ScheduleID},
	} {
		if c.value != "" {
			keys++
			// The second half lets the planner use the partial index.
			conds = append(conds, "r."+c.name+" = "+a.add(c.value)+" AND r."+c.name+" <> ''")
		}
	}
	labels := slices.Sorted(maps.Keys(f.Labels))
	labeled := keys == 0 && len(labels) > 0
	states := f.States
	// Without a key, runs are found in the order of time state by state. With one, its index knows the order,
	// and whatever the planner believes about states must not lead it away from there.
	if (keys > 0 || labeled) && len(states) > 0 {
		conds = append(conds, "r.state + 0 = ANY ("+a.add(numbers(states))+")")
		states = nil
	} else if keys == 0 && !labeled && len(states) == 0 {
		states = journal.States()
	}
	if f.Reason != "" {
		conds = append(conds, "r.state_reason = "+a.add(f.Reason))
	}
	from, place := "runs r", "r"
	if labeled {
		place = "l"
		from = "run_labels l CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.run_id = l.run_id AND " + strings.Join(conds, " AND ") + " OFFSET 0) r"
		conds = []string{"l.namespace = " + tenant + " AND l.key = " + a.add(labels[0]) + " AND l.value = " + a.add(f.Labels[labels[0]])}
		labels = labels[1:]
	}
	for i, k := range labels {
		// OFFSET 0 makes each a look-up by key.
		from += fmt.Sprintf(" CROSS JOIN LATERAL (SELECT FROM run_labels m WHERE m.run_id = %s.run_id AND m.key = %s AND m.value = %s OFFSET 0) m%d", place, a.add(k), a.add(f.Labels[k]), i)
	}
	if !after.IsZero() {
		conds = append(conds, fmt.Sprintf("(%[1]s.create_time, %[1]s.run_id) < (%[2]s, %[3]s)", place, a.add(after.CreateTime), a.add(after.ID)))
	}
	if !f.CreatedAfter.IsZero() {
		conds = append(conds, place+".create_time >= "+a.add(journal.CeilMicros(f.CreatedAfter)))
	}
	if !f.CreatedBefore.IsZero() {
		conds = append(conds, place+".create_time < "+a.add(journal.CeilMicros(f.CreatedBefore)))
	}
	found := dbkit.Merged(states, func(state string) string {
		return "SELECT " + place + ".create_time, " + place + ".run_id FROM " + from + " WHERE " + strings.Join(append(conds[:len(conds):len(conds)], state), " AND ")
	}, "r", "create_time DESC, run_id DESC", last)
	if keys > 1 {
		// Which index is best depends on the values.
		a = append(arguments{pgx.QueryExecModeCacheDescribe}, a...)
	}
	rows, err := s.read.Query(ctx, "SELECT "+runColumns+" FROM ("+found+") p JOIN runs r ON r.run_id = p.run_id"+joins+" ORDER BY p.create_time DESC, p.run_id DESC", a...)
	runs, err := dbkit.CollectPagePostgres(ctx, rows, err, func(row pgx.CollectableRow) (journal.Run, error) { return scanRun(row, false) })
	return runs, away(err)
}

// arguments are those of a statement that is put together.
type arguments []any

// add returns the name of the new parameter.
func (a *arguments) add(v any) string {
	*a = append(*a, v)
	return fmt.Sprintf("$%d", len(*a))
}

// numbers are states as the database knows them.
func numbers[S ~int32](states []S) []int32 {
	out := make([]int32, len(states))
	for i, s := range states {
		out[i] = int32(s)
	}
	return out
}

// Events implements journal.Reader.
func (s *Store) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]journal.Event, error) {
	rows, err := s.read.Query(ctx, selectEvents+` WHERE namespace = $1 AND run_id = $2 AND seq > $3 ORDER BY seq LIMIT $4`, namespace, runID, afterSeq, limit)
	events, err := collect(rows, err, scanEvent)
	return events, away(err)
}

// Descendants implements journal.Reader.
func (s *Store) Descendants(ctx context.Context, namespace, runID string) ([]journal.Descendant, error) {
	rows, err := s.read.Query(ctx, `WITH RECURSIVE below AS (
			SELECT run_id, parent_run_id, state, last_seq, create_time FROM runs WHERE namespace = $1 AND parent_run_id = $2 AND parent_run_id <> ''
			UNION ALL
			SELECT r.run_id, r.parent_run_id, r.state, r.last_seq, r.create_time FROM below b`+itsChildren+`)
		SELECT r.run_id, r.parent_run_id, r.state, `+lastSeq+` FROM below r ORDER BY r.create_time, r.run_id`, namespace, runID)
	below, err := collect(rows, err, func(row pgx.CollectableRow) (d journal.Descendant, err error) {
		err = row.Scan(&d.RunID, &d.ParentRunID, &d.State, &d.LastSeq)
		return d, err
	})
	return below, away(err)
}

// CountBelow implements journal.Reader.
func (s *Store) CountBelow(ctx context.Context, namespace, runID string, most int) (n int, err error) {
	err = s.read.QueryRow(ctx, `WITH RECURSIVE below AS (
			SELECT run_id FROM runs WHERE namespace = $1 AND parent_run_id = $2 AND parent_run_id <> ''
			UNION ALL
			SELECT r.run_id FROM below b`+itsChildren+`)
		SELECT count(*) FROM (SELECT FROM below LIMIT $3) x`, namespace, runID, most).Scan(&n)
	return n, away(err)
}

// Load implements journal.Log.
func (s *Store) Load(ctx context.Context, runID string) (l journal.Loaded, err error) {
	err = s.inBatches(ctx, s.hot, func(conn *pgxpool.Conn) error {
		var b pgx.Batch // one round trip: whoever wakes the run waits for it
		b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		b.Queue(`SELECT `+runColumns+bigColumns+` FROM runs r`+joins+` WHERE r.run_id = $1`, runID).QueryRow(func(row pgx.Row) (err error) {
			if l.Run, err = scanRun(row, true); errors.Is(err, pgx.ErrNoRows) {
				return journal.RunNotFound(runID)
			}
			return err
		})
		b.Queue(`SELECT g.body FROM runs r`+itsGraph+` WHERE r.run_id = $1`, runID).QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&l.Graph); err != nil {
				return fmt.Errorf("load graph: %w", err)
			}
			return nil
		})
		b.Queue(`SELECT seq, data FROM snapshots WHERE run_id = $1`, runID).QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&l.SnapshotSeq, &l.Snapshot); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("load snapshot: %w", err)
			}
			return nil
		})
		b.Queue(selectEvents+` WHERE run_id = $1 AND seq > coalesce((SELECT s.seq FROM snapshots s WHERE s.run_id = $1), 0) ORDER BY seq`, runID).Query(func(rows pgx.Rows) (err error) {
			l.Events, err = collect(rows, nil, scanEvent)
			return err
		})
		b.Queue(selectCommands+` WHERE m.run_id = $1`+oldestCommand+` LIMIT $2`, runID, journal.MaxLoadedCommandBytes).Query(func(rows pgx.Rows) (err error) {
			l.Command, err = collect(rows, nil, scanCommand)
			return err
		})
		b.Queue("COMMIT")
		return conn.SendBatch(ctx, &b).Close()
	})
	return l, err
}

// Standing implements journal.Reader.
func (s *Store) Standing(ctx context.Context, namespace, runID string) (journal.Loaded, error) {
	return journal.FoundRowOf(ctx, s, namespace, runID)
}
