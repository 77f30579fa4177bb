package pg

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// blob keeps an empty value as null, as the contract says.
func blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// column is one array that a multi-row statement unnests.
type column[T any] struct {
	name, typ string
	array     func([]T) any
}

func col[T, V any](name, typ string, get func(T) V) column[T] {
	return column[T]{name: name, typ: typ, array: func(rows []T) any {
		vs := make([]V, len(rows))
		for i, r := range rows {
			vs[i] = get(r)
		}
		return vs
	}}
}

// table is the columns of a multi-row statement.
type table[T any] []column[T]

// from renders the unnest of all columns, whose first parameter is $first, under an alias.
func (t table[T]) from(first int, alias string) string {
	args, names := make([]string, len(t)), make([]string, len(t))
	for i, c := range t {
		args[i] = fmt.Sprintf("$%d::%s[]", first+i, c.typ)
		names[i] = c.name
	}
	return "unnest(" + strings.Join(args, ", ") + ") AS " + alias + " (" + strings.Join(names, ", ") + ")"
}

func (t table[T]) names(prefix string, skip ...string) string {
	var b strings.Builder
next:
	for _, c := range t {
		for _, s := range skip {
			if c.name == s {
				continue next
			}
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(prefix + c.name)
	}
	return b.String()
}

func (t table[T]) args(rows []T) []any {
	out := make([]any, len(t))
	for i, c := range t {
		out[i] = c.array(rows)
	}
	return out
}

type eventRow struct {
	namespace string
	*journal.Event
}

type outRow struct {
	namespace, runID string
	*journal.OutRow
}

type labelRow struct {
	u          *journal.Unit
	key, value string
}

// statements holds the multi-row statements, rendered once.
type statements struct {
	events    table[eventRow]
	outbox    table[outRow]
	labels    table[labelRow]
	runs      table[*journal.Unit]
	details   table[*journal.Unit]
	appends   table[*journal.Unit]
	outcomes  table[*journal.Unit]
	snapshots table[*journal.Unit]
}

type unit = *journal.Unit

func newStatements() statements {
	status := func(u unit) *journal.Status {
		if u.Status == nil {
			return &journal.Status{}
		}
		return u.Status
	}
	progress := table[unit]{
		col("state", "int", func(u unit) int32 { return int32(status(u).State) }),
		col("state_reason", "text", func(u unit) string { return status(u).Reason }),
		col("start_time", "timestamptz", func(u unit) *time.Time { return null(status(u).StartTime) }),
		col("end_time", "timestamptz", func(u unit) *time.Time { return null(status(u).EndTime) }),
		col("update_time", "timestamptz", func(u unit) *time.Time { return null(status(u).UpdateTime) }),
		col("wake_time", "timestamptz", func(u unit) *time.Time { return null(status(u).WakeTime) }),
		col("input_tokens", "bigint", func(u unit) int64 { return status(u).Usage.InputTokens }),
		col("cached_input_tokens", "bigint", func(u unit) int64 { return status(u).Usage.CachedInputTokens }),
		col("output_tokens", "bigint", func(u unit) int64 { return status(u).Usage.OutputTokens }),
		col("reasoning_tokens", "bigint", func(u unit) int64 { return status(u).Usage.ReasoningTokens }),
		col("calls", "bigint", func(u unit) int64 { return status(u).Usage.Calls }),
		col("nodes_total", "int", func(u unit) int32 { return status(u).Nodes.Total }),
		col("nodes_completed", "int", func(u unit) int32 { return status(u).Nodes.Completed }),
		col("nodes_failed", "int", func(u unit) int32 { return status(u).Nodes.Failed }),
		col("nodes_skipped", "int", func(u unit) int32 { return status(u).Nodes.Skipped }),
		col("nodes_running", "int", func(u unit) int32 { return status(u).Nodes.Running }),
	}
	run := func(u unit) *journal.Run { return &u.Start.Run }
	return statements{
		events: table[eventRow]{
			col("seq", "bigint", func(e eventRow) int64 { return e.Seq }),
			col("time", "timestamptz", func(e eventRow) time.Time { return e.Time }),
			col("kind", "int", func(e eventRow) int32 { return e.Kind }),
			col("visit", "int", func(e eventRow) int32 { return e.Visit }),
			col("run_id", "text", func(e eventRow) string { return e.RunID }),
			col("namespace", "text", func(e eventRow) string { return e.namespace }),
			col("node_id", "text", func(e eventRow) string { return e.NodeID }),
			col("data", "bytea", func(e eventRow) []byte { return blob(e.Data) }),
		},
		outbox: table[outRow]{
			col("seq", "bigint", func(o outRow) int64 { return o.Seq }),
			col("ordinal", "int", func(o outRow) int32 { return int32(o.Ordinal) }),
			col("run_id", "text", func(o outRow) string { return o.runID }),
			col("namespace", "text", func(o outRow) string { return o.namespace }),
			col("kind", "text", func(o outRow) string { return o.Kind }),
			col("body", "bytea", func(o outRow) []byte { return blob(o.Body) }),
		},
		labels: table[labelRow]{
			col("run_id", "text", func(l labelRow) string { return l.u.RunID }),
			col("namespace", "text", func(l labelRow) string { return l.u.Namespace }),
			col("key", "text", func(l labelRow) string { return l.key }),
			col("value", "text", func(l labelRow) string { return l.value }),
			col("create_time", "timestamptz", func(l labelRow) *time.Time { return null(run(l.u).CreateTime) }),
		},
		runs: append(table[unit]{
			col("run_id", "text", func(u unit) string { return u.RunID }),
			col("namespace", "text", func(u unit) string { return u.Namespace }),
			col("last_seq", "bigint", unit.LastSeq),
			col("create_time", "timestamptz", func(u unit) *time.Time { return null(run(u).CreateTime) }),
			col("cancel_time", "timestamptz", func(u unit) *time.Time { return null(u.CancelTime) }),
			col("cancel_state", "smallint", func(u unit) int16 {
				if u.CancelTime.IsZero() {
					return 0
				}
				return 1
			}),
			col("cancel_reason", "text", func(u unit) string { return u.CancelReason }),
			col("holds_key", "boolean", func(u unit) bool { return u.HoldsKey }),
			col("machine_version", "int", func(u unit) int32 { return int32(run(u).MachineVersion) }),
			col("sampled", "boolean", func(u unit) bool { return run(u).Sampled }),
			col("graph_name", "text", func(u unit) string { return run(u).GraphName }),
			col("graph_hash", "text", func(u unit) string { return run(u).GraphHash }),
			col("task_id", "text", func(u unit) string { return run(u).TaskID }),
			col("user_id", "text", func(u unit) string { return run(u).UserID }),
			col("chat_id", "text", func(u unit) string { return run(u).ChatID }),
			col("thread_id", "text", func(u unit) string { return run(u).ThreadID }),
			col("business_key", "text", func(u unit) string { return run(u).BusinessKey }),
			col("parent_run_id", "text", func(u unit) string { return run(u).ParentID }),
			col("root_run_id", "text", func(u unit) string {
				if run(u).RootID == "" {
					return u.RunID
				}
				return run(u).RootID
			}),
			col("trace_parent", "text", func(u unit) string { return run(u).TraceParent }),
			col("trace_state", "text", func(u unit) string { return run(u).TraceState }),
		}, progress...),
		details: table[unit]{
			col("run_id", "text", func(u unit) string { return u.RunID }),
			col("namespace", "text", func(u unit) string { return u.Namespace }),
			col("labels", "bytea", func(u unit) []byte { return journal.EncodeLabels(run(u).Labels) }),
			col("metadata", "bytea", func(u unit) []byte { return blob(run(u).Metadata) }),
			col("args", "bytea", func(u unit) []byte { return blob(run(u).Args) }),
			col("named", "bytea", func(u unit) []byte { return blob(run(u).Named) }),
			col("context", "bytea", func(u unit) []byte { return blob(run(u).Context) }),
			col("attachments", "bytea", func(u unit) []byte { return blob(run(u).Attachments) }),
			col("result", "bytea", func(u unit) []byte { return blob(u.Outcome.Result) }),
			col("outputs", "bytea", func(u unit) []byte { return blob(u.Outcome.Outputs) }),
			col("error", "bytea", func(u unit) []byte { return blob(u.Outcome.Error) }),
		},
		appends: append(table[unit]{
			col("run_id", "text", func(u unit) string { return u.RunID }),
			col("namespace", "text", func(u unit) string { return u.Namespace }),
			col("expected", "bigint", func(u unit) int64 { return u.Expected }),
			col("last_seq", "bigint", unit.LastSeq),
			col("has_status", "boolean", func(u unit) bool { return u.Status != nil }),
			col("ended", "boolean", func(u unit) bool { return u.Status != nil && u.Status.State.Ended() }),
			col("progress", "boolean", func(u unit) bool { return u.Progress }),
			col("cancel_seen", "boolean", func(u unit) bool { return u.CancelSeen }),
		}, progress...),
		outcomes: table[unit]{
			col("run_id", "text", func(u unit) string { return u.RunID }),
			col("result", "bytea", func(u unit) []byte { return blob(u.Outcome.Result) }),
			col("outputs", "bytea", func(u unit) []byte { return blob(u.Outcome.Outputs) }),
			col("error", "bytea", func(u unit) []byte { return blob(u.Outcome.Error) }),
		},
		snapshots: table[unit]{
			col("run_id", "text", func(u unit) string { return u.RunID }),
			col("namespace", "text", func(u unit) string { return u.Namespace }),
			col("seq", "bigint", func(u unit) int64 { return u.SnapshotSeq }),
			col("data", "bytea", func(u unit) []byte { return u.Snapshot }),
		},
	}
}

// builder renders one statement whose later parts write only for the runs that its first part wrote:
// so a write that lost takes nothing else along, and the whole goes out in one message.
type builder struct {
	sql  strings.Builder
	args []any
}

func (b *builder) next() int { return len(b.args) + 1 }

func (b *builder) with(name, sql string, args ...any) {
	sep := "WITH "
	if b.sql.Len() > 0 {
		sep = ",\n"
	}
	b.sql.WriteString(sep + name + " AS (" + sql + ")")
	b.args = append(b.args, args...)
}

// only keeps the rows whose run the part called done wrote. IS TRUE keeps the planner from making a join of
// it, which it would do row by row for want of an estimate; as it is, it looks each up in a hash table.
func only(column, done string) string {
	return " WHERE (" + column + " IN (SELECT run_id FROM " + done + ")) IS TRUE"
}

// children adds what hangs on the runs that done wrote. Empty parts are left out; there are few
// combinations, so each soon is a prepared statement.
func (s *statements) children(b *builder, units []unit, done string) {
	var events []eventRow
	var out []outRow
	var snaps []unit
	for _, u := range units {
		for i := range u.Events {
			events = append(events, eventRow{u.Namespace, &u.Events[i]})
		}
		for i := range u.Outbox {
			out = append(out, outRow{u.Namespace, u.RunID, &u.Outbox[i]})
		}
		if u.Snapshot != nil {
			snaps = append(snaps, u)
		}
	}
	mine := only("run_id", done)
	if len(events) > 0 {
		names := s.events.names("")
		b.with("ev", "INSERT INTO events ("+names+") SELECT "+names+" FROM "+s.events.from(b.next(), "e")+mine, s.events.args(events)...)
	}
	if len(out) > 0 {
		names := s.outbox.names("")
		b.with("ob", "INSERT INTO outbox ("+names+") SELECT "+names+" FROM "+s.outbox.from(b.next(), "o")+mine, s.outbox.args(out)...)
	}
	if len(snaps) > 0 {
		names := s.snapshots.names("")
		b.with("sn", "INSERT INTO snapshots ("+names+") SELECT "+names+" FROM "+s.snapshots.from(b.next(), "n")+mine+
			" ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, data = excluded.data WHERE snapshots.seq <= excluded.seq", s.snapshots.args(snaps)...)
	}
}

// appendRuns queues the update of existing runs; it returns run_id and revision of those that took it.
func (s *statements) appendRuns(batch *pgx.Batch, owner journal.Owner, units []unit) {
	var b builder
	var set strings.Builder
	for _, c := range s.appends[8:] {
		fmt.Fprintf(&set, ", %[1]s = CASE WHEN u.has_status THEN u.%[1]s ELSE r.%[1]s END", c.name)
	}
	n := len(s.appends)
	b.with("upd", `UPDATE runs r SET last_seq = u.last_seq, revision = r.revision + 1,
		holds_key = r.holds_key AND NOT u.ended,
		takeovers = CASE WHEN u.progress THEN 0 ELSE r.takeovers END,
		cancel_state = CASE WHEN u.cancel_seen AND r.cancel_state = 1 THEN 2 ELSE r.cancel_state END`+set.String()+`
		FROM `+s.appends.from(1, "u")+fmt.Sprintf(`
		WHERE r.run_id = u.run_id AND r.namespace = u.namespace AND r.last_seq = u.expected
		AND r.owner_id = $%d AND r.owner_incarnation = $%d
		RETURNING r.run_id, r.revision`, n+1, n+2), append(s.appends.args(units), owner.ID, owner.Incarnation)...)
	var ended []unit
	for _, u := range units {
		if u.Outcome != nil {
			ended = append(ended, u)
		}
	}
	if len(ended) > 0 {
		b.with("oc", "UPDATE run_details d SET result = c.result, outputs = c.outputs, error = c.error FROM "+s.outcomes.from(b.next(), "c")+
			only("c.run_id", "upd")+" AND d.run_id = c.run_id", s.outcomes.args(ended)...)
	}
	s.children(&b, units, "upd")
	batch.Queue(b.sql.String()+"\nSELECT run_id, revision FROM upd", b.args...)
}

// insertRuns queues the insert of new runs; it returns the run_id of those that were new.
func (s *statements) insertRuns(batch *pgx.Batch, owner journal.Owner, units []unit) {
	var b builder
	names, n := s.runs.names(""), len(s.runs)
	b.with("ins", "INSERT INTO runs (owner_id, owner_incarnation, revision, takeovers, "+names+fmt.Sprintf(") SELECT $%d::text, $%d::bigint, 1, 0, ", n+1, n+2)+names+
		" FROM "+s.runs.from(1, "u")+" ON CONFLICT DO NOTHING RETURNING run_id", append(s.runs.args(units), owner.ID, owner.Incarnation)...)
	mine := only("run_id", "ins")
	names = s.details.names("")
	b.with("det", "INSERT INTO run_details ("+names+") SELECT "+names+" FROM "+s.details.from(b.next(), "d")+mine, s.details.args(units)...)
	var labels []labelRow
	for _, u := range units {
		for k, v := range u.Start.Run.Labels {
			labels = append(labels, labelRow{u, k, v})
		}
	}
	if len(labels) > 0 {
		names = s.labels.names("")
		b.with("lab", "INSERT INTO run_labels ("+names+") SELECT "+names+" FROM "+s.labels.from(b.next(), "l")+mine, s.labels.args(labels)...)
	}
	s.children(&b, units, "ins")
	batch.Queue(b.sql.String()+"\nSELECT run_id FROM ins", b.args...)
}
