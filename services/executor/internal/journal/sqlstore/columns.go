package sqlstore

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// Column is a column that a commit writes, with its value in a row of type T. A value that is a
// *time.Time may be nil, which means unset, and one that is bytes may be nil, which means null.
type Column[T any] struct {
	Name string
	// Type is that of PostgreSQL.
	Type  string
	Value func(T) any
	// Array makes an array of the values of rows, for PostgreSQL.
	Array func(rows []T) dbkit.Array
}

// Col makes a column of a function that returns its value.
func Col[T any, V dbkit.Scalar](name, typ string, get func(T) V) Column[T] {
	return Column[T]{
		Name: name, Type: typ, Value: func(r T) any { return get(r) },
		Array: func(rows []T) dbkit.Array { return dbkit.ArrayOf(rows, get) },
	}
}

// Columns are those of one statement.
type Columns[T any] []Column[T]

// Names lists the names, but for some.
func (cs Columns[T]) Names(skip ...string) string {
	names := make([]string, 0, len(cs))
	for _, c := range cs {
		if !slices.Contains(skip, c.Name) {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}

// The rows of the tables that both databases have. Columns that only the database sets are in no list below.
type (
	// EventRow is an event of a run.
	EventRow struct {
		Namespace string
		*journal.Event
	}
	// OutRow is an outbox item of a run.
	OutRow struct {
		Namespace, RunID string
		*journal.OutRow
	}
	// LabelRow is a label of a run that begins.
	LabelRow struct {
		Batch      *journal.RunBatch
		Key, Value string
	}
	// CommandRow is a command that the batch of a run, From, sends.
	CommandRow struct {
		From string
		*journal.Command
	}
	// NewThreadRow is a thread that a batch begins.
	NewThreadRow struct {
		Batch *journal.RunBatch
		*thread.Thread
	}
	// ThreadItemRow is an item that a batch adds to a thread.
	ThreadItemRow struct {
		Batch *journal.RunBatch
		*thread.ItemOf
	}
	// BlobRow is a blob that a run refers to.
	BlobRow struct {
		Batch *journal.RunBatch
		*journal.BlobRef
	}
)

// RunColumns are those of the row of a run that begins, but for its status, its owner, and what is the same
// for all runs.
func RunColumns() Columns[*journal.RunBatch] {
	run := func(u *journal.RunBatch) *journal.Run { return &u.Start.Run }
	return Columns[*journal.RunBatch]{
		Col("run_id", "text", func(u *journal.RunBatch) string { return u.RunID }),
		Col("namespace", "text", func(u *journal.RunBatch) string { return u.Namespace }),
		Col("last_seq", "bigint", (*journal.RunBatch).LastSeq),
		Col("create_time", "timestamptz", func(u *journal.RunBatch) *time.Time { return instant(run(u).CreateTime) }),
		Col("cancel_time", "timestamptz", func(u *journal.RunBatch) *time.Time { return instant(u.CancelTime) }),
		Col("deadline", "timestamptz", func(u *journal.RunBatch) *time.Time { return instant(run(u).Deadline) }),
		Col("priority", "int", func(u *journal.RunBatch) int32 { return run(u).Priority }),
		Col("forked_from", "text", func(u *journal.RunBatch) string { return run(u).ForkedFrom }),
		Col("schedule_id", "text", func(u *journal.RunBatch) string { return run(u).ScheduleID }),
		Col("epic_id", "text", func(u *journal.RunBatch) string { return run(u).EpicID }),
		Col("workflow", "text", func(u *journal.RunBatch) string { slug, _, _ := strings.Cut(run(u).WorkflowVersion, "@"); return slug }),
		Col("workflow_version", "text", func(u *journal.RunBatch) string { return run(u).WorkflowVersion }),
		Col("cancel_reason", "text", func(u *journal.RunBatch) string { return u.CancelReason }),
		Col("holds_key", "boolean", func(u *journal.RunBatch) bool { return u.HoldsKey }),
		Col("machine_version", "int", func(u *journal.RunBatch) int32 { return int32(run(u).MachineVersion) }),
		Col("sampled", "boolean", func(u *journal.RunBatch) bool { return run(u).Sampled }),
		Col("graph_name", "text", func(u *journal.RunBatch) string { return run(u).GraphName }),
		Col("graph_hash", "text", func(u *journal.RunBatch) string { return run(u).GraphHash }),
		Col("task_id", "text", func(u *journal.RunBatch) string { return run(u).TaskID }),
		Col("user_id", "text", func(u *journal.RunBatch) string { return run(u).UserID }),
		Col("chat_id", "text", func(u *journal.RunBatch) string { return run(u).ChatID }),
		Col("thread_id", "text", func(u *journal.RunBatch) string { return run(u).ThreadID }),
		Col("business_key", "text", func(u *journal.RunBatch) string { return run(u).BusinessKey }),
		Col("parent_run_id", "text", func(u *journal.RunBatch) string { return run(u).ParentID }),
		Col("root_run_id", "text", func(u *journal.RunBatch) string { return cmp.Or(run(u).RootID, u.RunID) }),
		Col("trace_parent", "text", func(u *journal.RunBatch) string { return run(u).TraceParent }),
		Col("trace_state", "text", func(u *journal.RunBatch) string { return run(u).TraceState }),
	}
}

// StatusColumns are those of the row of a run that change while the run goes on.
func StatusColumns() Columns[*journal.RunBatch] {
	status := func(u *journal.RunBatch) *journal.Status {
		if u.Status == nil {
			return &journal.Status{}
		}
		return u.Status
	}
	return Columns[*journal.RunBatch]{
		Col("state", "int", func(u *journal.RunBatch) int32 { return int32(status(u).State) }),
		Col("state_reason", "text", func(u *journal.RunBatch) string { return status(u).Reason }),
		Col("start_time", "timestamptz", func(u *journal.RunBatch) *time.Time { return instant(status(u).StartTime) }),
		Col("end_time", "timestamptz", func(u *journal.RunBatch) *time.Time { return instant(status(u).EndTime) }),
		Col("update_time", "timestamptz", func(u *journal.RunBatch) *time.Time { return instant(status(u).UpdateTime) }),
		Col("wake_time", "timestamptz", func(u *journal.RunBatch) *time.Time { return instant(status(u).WakeTime) }),
		Col("input_tokens", "bigint", func(u *journal.RunBatch) int64 { return status(u).Usage.InputTokens }),
		Col("cached_input_tokens", "bigint", func(u *journal.RunBatch) int64 { return status(u).Usage.CachedInputTokens }),
		Col("output_tokens", "bigint", func(u *journal.RunBatch) int64 { return status(u).Usage.OutputTokens }),
		Col("reasoning_tokens", "bigint", func(u *journal.RunBatch) int64 { return status(u).Usage.ReasoningTokens }),
		Col("calls", "bigint", func(u *journal.RunBatch) int64 { return status(u).Usage.Calls }),
		Col("nodes_total", "int", func(u *journal.RunBatch) int32 { return status(u).Nodes.Total }),
		Col("nodes_completed", "int", func(u *journal.RunBatch) int32 { return status(u).Nodes.Completed }),
		Col("nodes_failed", "int", func(u *journal.RunBatch) int32 { return status(u).Nodes.Failed }),
		Col("nodes_skipped", "int", func(u *journal.RunBatch) int32 { return status(u).Nodes.Skipped }),
		Col("nodes_running", "int", func(u *journal.RunBatch) int32 { return status(u).Nodes.Running }),
	}
}

// DetailColumns are those of what belongs to the row of a run that begins. The form in which the result is
// kept is StoredResult or PlainResult.
func DetailColumns(result func(*journal.Outcome) []byte) Columns[*journal.RunBatch] {
	run := func(u *journal.RunBatch) *journal.Run { return &u.Start.Run }
	return Columns[*journal.RunBatch]{
		Col("run_id", "text", func(u *journal.RunBatch) string { return u.RunID }),
		Col("namespace", "text", func(u *journal.RunBatch) string { return u.Namespace }),
		Col("labels", "bytea", func(u *journal.RunBatch) []byte { return journal.EncodeLabels(run(u).Labels) }),
		Col("metadata", "bytea", func(u *journal.RunBatch) []byte { return null(run(u).Metadata) }),
		Col("args", "bytea", func(u *journal.RunBatch) []byte { return null(run(u).Args) }),
		Col("named", "bytea", func(u *journal.RunBatch) []byte { return null(run(u).Named) }),
		Col("context", "bytea", func(u *journal.RunBatch) []byte { return null(run(u).Context) }),
		Col("attachments", "bytea", func(u *journal.RunBatch) []byte { return null(run(u).Attachments) }),
		Col("result", "bytea", func(u *journal.RunBatch) []byte { return result(u.Outcome) }),
		Col("outputs", "bytea", func(u *journal.RunBatch) []byte { return null(u.Outcome.Outputs) }),
		Col("error", "bytea", func(u *journal.RunBatch) []byte { return null(u.Outcome.Error) }),
	}
}

// OutcomeColumns are those of what a run ended with. As to the result see DetailColumns.
func OutcomeColumns(result func(*journal.Outcome) []byte) Columns[*journal.RunBatch] {
	return Columns[*journal.RunBatch]{
		Col("run_id", "text", func(u *journal.RunBatch) string { return u.RunID }),
		Col("result", "bytea", func(u *journal.RunBatch) []byte { return result(u.Outcome) }),
		Col("outputs", "bytea", func(u *journal.RunBatch) []byte { return null(u.Outcome.Outputs) }),
		Col("error", "bytea", func(u *journal.RunBatch) []byte { return null(u.Outcome.Error) }),
	}
}

// LabelColumns are those of the labels of a run that begins.
func LabelColumns() Columns[LabelRow] {
	return Columns[LabelRow]{
		Col("run_id", "text", func(l LabelRow) string { return l.Batch.RunID }),
		Col("namespace", "text", func(l LabelRow) string { return l.Batch.Namespace }),
		Col("key", "text", func(l LabelRow) string { return l.Key }),
		Col("value", "text", func(l LabelRow) string { return l.Value }),
		Col("create_time", "timestamptz", func(l LabelRow) *time.Time { return instant(l.Batch.Start.Run.CreateTime) }),
	}
}

// EventColumns are those of an event.
func EventColumns() Columns[EventRow] {
	return Columns[EventRow]{
		Col("seq", "bigint", func(e EventRow) int64 { return e.Seq }),
		Col("time", "timestamptz", func(e EventRow) time.Time { return e.Time }),
		Col("kind", "int", func(e EventRow) int32 { return e.Kind }),
		Col("visit", "int", func(e EventRow) int32 { return e.Visit }),
		Col("run_id", "text", func(e EventRow) string { return e.RunID }),
		Col("namespace", "text", func(e EventRow) string { return e.Namespace }),
		Col("node_id", "text", func(e EventRow) string { return e.NodeID }),
		Col("data", "bytea", func(e EventRow) []byte { return null(e.Data) }),
	}
}

// SnapshotColumns are those of the snapshot of a run.
func SnapshotColumns() Columns[*journal.RunBatch] {
	return Columns[*journal.RunBatch]{
		Col("run_id", "text", func(u *journal.RunBatch) string { return u.RunID }),
		Col("namespace", "text", func(u *journal.RunBatch) string { return u.Namespace }),
		Col("seq", "bigint", func(u *journal.RunBatch) int64 { return u.SnapshotSeq }),
		Col("data", "bytea", func(u *journal.RunBatch) []byte { return u.Snapshot }),
	}
}

// OutboxColumns are those of an outbox item. The first one is no column of the table.
func OutboxColumns() Columns[OutRow] {
	return Columns[OutRow]{
		Col("by_run", "text", func(o OutRow) string { return o.RunID }),
		Col("seq", "bigint", func(o OutRow) int64 { return o.Seq }),
		Col("ordinal", "int", func(o OutRow) int32 { return int32(o.Ordinal) }),
		Col("run_id", "text", func(o OutRow) string { return cmp.Or(o.Thread, o.RunID) }),
		Col("namespace", "text", func(o OutRow) string { return o.Namespace }),
		Col("kind", "text", func(o OutRow) string { return o.Kind }),
		Col("body", "bytea", func(o OutRow) []byte { return null(o.Body) }),
	}
}

// CommandColumns are those of a command.
func CommandColumns() Columns[CommandRow] {
	return Columns[CommandRow]{
		Col("run_id", "text", func(m CommandRow) string { return m.RunID }),
		Col("namespace", "text", func(m CommandRow) string { return m.Namespace }),
		Col("kind", "text", func(m CommandRow) string { return string(m.Kind) }),
		Col("key", "text", func(m CommandRow) string { return m.Key }),
		Col("body", "bytea", func(m CommandRow) []byte { return null(m.Body) }),
		Col("time", "timestamptz", func(m CommandRow) time.Time { return m.Time }),
	}
}

// InterruptColumns are those of an interrupt.
func InterruptColumns() Columns[*journal.Interrupt] {
	return Columns[*journal.Interrupt]{
		Col("id", "text", func(i *journal.Interrupt) string { return i.ID }),
		Col("namespace", "text", func(i *journal.Interrupt) string { return i.Namespace }),
		Col("run_id", "text", func(i *journal.Interrupt) string { return i.RunID }),
		Col("root_run_id", "text", func(i *journal.Interrupt) string { return i.RootID }),
		Col("node_id", "text", func(i *journal.Interrupt) string { return i.NodeID }),
		Col("visit", "int", func(i *journal.Interrupt) int32 { return i.Visit }),
		Col("item", "int", func(i *journal.Interrupt) int32 { return i.Item }),
		Col("state", "int", func(i *journal.Interrupt) int32 { return int32(i.State) }),
		Col("create_time", "timestamptz", func(i *journal.Interrupt) *time.Time { return instant(i.CreateTime) }),
		Col("expire_time", "timestamptz", func(i *journal.Interrupt) *time.Time { return instant(i.ExpireTime) }),
		Col("close_time", "timestamptz", func(i *journal.Interrupt) *time.Time { return instant(i.CloseTime) }),
		Col("decision", "text", func(i *journal.Interrupt) string { return i.Decision }),
		Col("closed_by", "text", func(i *journal.Interrupt) string { return i.By }),
		Col("prompt", "bytea", func(i *journal.Interrupt) []byte { return null(i.Prompt) }),
		Col("schema", "bytea", func(i *journal.Interrupt) []byte { return null(i.Schema) }),
		Col("approve", "bytea", func(i *journal.Interrupt) []byte { return null(i.Approve) }),
		Col("of_agent", "boolean", func(i *journal.Interrupt) bool { return i.OfAgent }),
		Col("binds", "text", func(i *journal.Interrupt) string { return i.Binds }),
		Col("default_value", "bytea", func(i *journal.Interrupt) []byte { return null(i.Default) }),
		Col("answer", "bytea", func(i *journal.Interrupt) []byte { return null(i.Answer) }),
	}
}

// BlobColumns are those of a blob that a run, or a thread, refers to. The first one is no column of the
// table.
func BlobColumns() Columns[BlobRow] {
	return Columns[BlobRow]{
		Col("by_run", "text", func(b BlobRow) string { return b.Batch.RunID }),
		Col("run_id", "text", func(b BlobRow) string { return cmp.Or(b.Thread, b.Batch.RunID) }),
		Col("namespace", "text", func(b BlobRow) string { return b.Batch.Namespace }),
		Col("hash", "bytea", func(b BlobRow) []byte { return b.Hash[:] }),
		Col("snapshot", "boolean", func(b BlobRow) bool { return b.Snapshot }),
	}
}

// ThreadColumns are those of a thread that begins.
func ThreadColumns() Columns[*thread.Thread] {
	return Columns[*thread.Thread]{
		Col("thread_id", "text", func(t *thread.Thread) string { return t.ID }),
		Col("namespace", "text", func(t *thread.Thread) string { return t.Namespace }),
		Col("parent_seq", "bigint", func(t *thread.Thread) int64 { return t.ParentSeq }),
		Col("create_time", "timestamptz", func(t *thread.Thread) *time.Time { return instant(t.CreateTime) }),
		Col("use_time", "timestamptz", func(t *thread.Thread) *time.Time { return instant(t.CreateTime) }),
		Col("lifetime", "int", func(t *thread.Thread) int32 { return int32(t.Lifetime) }),
		Col("depth", "int", func(t *thread.Thread) int32 { return int32(t.Depth) }),
		Col("key", "text", func(t *thread.Thread) string { return t.Key }),
		Col("agent", "text", func(t *thread.Thread) string { return t.Agent }),
		Col("title", "text", func(t *thread.Thread) string { return t.Title }),
		Col("user_id", "text", func(t *thread.Thread) string { return t.UserID }),
		Col("chat_id", "text", func(t *thread.Thread) string { return t.ChatID }),
		Col("parent_id", "text", func(t *thread.Thread) string { return t.ParentID }),
		Col("part_of", "text", func(t *thread.Thread) string { return t.PartOf }),
		Col("holder", "text", func(t *thread.Thread) string { return t.Holder }),
		Col("below", "text", func(t *thread.Thread) string { return strings.Join(t.Below, " ") }),
	}
}

// NewThreadColumns are those of a thread that a batch begins. The first one is no column of the table.
func NewThreadColumns() Columns[NewThreadRow] {
	columns := Columns[NewThreadRow]{Col("by_run", "text", func(r NewThreadRow) string { return r.Batch.RunID })}
	for _, c := range ThreadColumns() {
		columns = append(columns, Column[NewThreadRow]{
			Name: c.Name, Type: c.Type, Value: func(r NewThreadRow) any { return c.Value(r.Thread) },
			Array: func(rows []NewThreadRow) dbkit.Array {
				threads := make([]*thread.Thread, len(rows))
				for i := range rows {
					threads[i] = rows[i].Thread
				}
				return c.Array(threads)
			},
		})
	}
	return columns
}

// ThreadItemColumns are those of an item that a batch adds to a thread.
func ThreadItemColumns() Columns[ThreadItemRow] {
	return Columns[ThreadItemRow]{
		Col("by_run", "text", func(i ThreadItemRow) string { return i.Batch.RunID }),
		Col("seq", "bigint", func(i ThreadItemRow) int64 { return i.Seq }),
		Col("time", "timestamptz", func(i ThreadItemRow) *time.Time { return instant(i.Time) }),
		Col("kind", "int", func(i ThreadItemRow) int32 { return int32(i.Kind) }),
		Col("visit", "int", func(i ThreadItemRow) int32 { return i.Visit }),
		Col("thread_id", "text", func(i ThreadItemRow) string { return i.ItemOf.Thread }),
		Col("namespace", "text", func(i ThreadItemRow) string { return i.Batch.Namespace }),
		Col("run_id", "text", func(i ThreadItemRow) string { return i.RunID }),
		Col("node_id", "text", func(i ThreadItemRow) string { return i.NodeID }),
		Col("weight", "bigint", func(i ThreadItemRow) int64 { return i.Weight }),
		Col("brief", "bytea", func(i ThreadItemRow) []byte { return null(i.Brief) }),
		Col("body", "bytea", func(i ThreadItemRow) []byte { return null(i.Body) }),
	}
}

// instant is nil for a time that is not set, and else a pointer to it, cut to microseconds.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = dbkit.Micros(t)
	return &t
}

// null keeps an empty value as null, as the contract of the journal says.
func null(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
