package pg

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// blob keeps an empty value as null, as the contract says.
func blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// table is the columns of rows of type T that a statement reads from its parameters.
type table[T any] sqlstore.Columns[T]

// from renders the rows under an alias. Each column is an array; $first is the first one.
func (t table[T]) from(first int, alias string) string {
	return "unnest(" + t.params(first, "[]") + ") AS " + alias + " (" + t.names() + ")"
}

// fromOne renders a single row under an alias. It has as many parameters as from.
func (t table[T]) fromOne(first int, alias string) string {
	return "(SELECT " + t.params(first, "") + ") AS " + alias + " (" + t.names() + ")"
}

func (t table[T]) params(first int, suffix string) string {
	params := make([]string, len(t))
	for i, c := range t {
		params[i] = fmt.Sprintf("$%d::%s%s", first+i, c.Type, suffix)
	}
	return strings.Join(params, ", ")
}

func (t table[T]) names(skip ...string) string { return sqlstore.Columns[T](t).Names(skip...) }

// args are the parameters of from.
func (t table[T]) args(rows []T) []any {
	out := make([]any, len(t), len(t)+3)
	for i, c := range t {
		out[i] = c.Array(rows)
	}
	return out
}

// argsOne are the parameters of fromOne.
func (t table[T]) argsOne(row T) []any {
	out := make([]any, len(t), len(t)+3)
	for i, c := range t {
		out[i] = c.Value(row)
	}
	return out
}

// statement writes rows of type T. On the optimistic route it stands alone. On the general route it is a part
// of a larger one: see builder.
type statement[T any] struct {
	table[T]
	// name is that of the part, alias that of the rows in it, and run the column with the id of a row's run.
	name, alias, run string
	// text reads the rows from a source and keeps those for which a condition holds. $next is the first of
	// its own parameters, which follow those of the rows.
	text func(from, only string, next int) string
	// one and many are the statement by itself, for a single row and for any number.
	one, many string
}

func newStatement[T any](name, alias, run string, columns sqlstore.Columns[T], text func(from, only string, next int) string) statement[T] {
	s := statement[T]{table: table[T](columns), name: name, alias: alias, run: run, text: text}
	s.one = text(s.fromOne(1, alias), only(run, ""), len(columns)+1)
	s.many = text(s.from(1, alias), only(run, ""), len(columns)+1)
	return s
}

// inserts makes a statement that inserts the rows as they are.
func inserts[T any](name, into string, columns sqlstore.Columns[T], conflict string) statement[T] {
	names := columns.Names()
	return newStatement(name, "n", "run_id", columns, func(from, only string, _ int) string {
		return "INSERT INTO " + into + " (" + names + ") SELECT " + names + " FROM " + from + only + conflict
	})
}

// insertsBy is inserts for rows whose column by_run, which the table does not have, is the run of the batch.
func insertsBy[T any](name, into string, columns sqlstore.Columns[T], conflict string) statement[T] {
	names := columns.Names("by_run")
	return newStatement(name, "n", "by_run", columns, func(from, only string, _ int) string {
		return "INSERT INTO " + into + " (" + names + ") SELECT " + names + " FROM " + from + only + conflict
	})
}

// few is up to how many rows are written by a statement each. That costs less than arrays, because the
// database unnests every array by itself: without it, BenchmarkCommit/start/rows=1 takes half as much again
// of the processor, and rows/rows=1 a fifth.
const few = 4

// portions calls do with the text and the parameters of the statement by itself, for each of a few rows or
// once for all.
func (s statement[T]) portions(rows []T, do func(query string, args []any, rows int)) {
	if len(rows) > few {
		do(s.many, s.args(rows), len(rows))
		return
	}
	for _, r := range rows {
		do(s.one, s.argsOne(r), 1)
	}
}

type (
	runBatch = *journal.RunBatch

	closingRow struct {
		runID string
		*journal.Closing
	}

	// agentRow is the agent that a run gives a thread.
	agentRow struct {
		runID string
		thread.AgentOf
	}

	// appliedRow is a command that a run has applied.
	appliedRow struct {
		runID string
		id    int64
	}
)

// statements are those of a commit, rendered once.
type statements struct {
	runs, details statement[runBatch]
	labels        statement[sqlstore.LabelRow]
	// appends changes the rows of runs on the optimistic route, anyAppends those of runs on the general one.
	appends    statement[runBatch]
	anyAppends table[runBatch]
	outcomes   statement[runBatch]
	events     statement[sqlstore.EventRow]
	// fenced has the two statements of events with the fence in them. The key is the text without the fence.
	fenced    map[string]string
	outbox    statement[sqlstore.OutRow]
	snapshots statement[runBatch]
	blobs     statement[sqlstore.BlobRow]
	applied   statement[appliedRow]
	commands  statement[sqlstore.CommandRow]
	jobs      statement[journal.JobRow]
	opened    statement[*journal.Interrupt]
	closed    statement[closingRow]
	// newThreads and threadItems are what batches add to threads.
	newThreads  statement[sqlstore.NewThreadRow]
	threadItems statement[sqlstore.ThreadItemRow]
	// threadAgents gives threads another agent.
	threadAgents statement[agentRow]
	// threadUsage adds to what the threads of namespaces take.
	threadUsage statement[sqlstore.UsageRow]
}

func newStatements() statements {
	opened := sqlstore.InterruptColumns()
	s := statements{
		runs:    startStatement(),
		details: inserts("de", "run_details", sqlstore.DetailColumns(sqlstore.StoredResult), ""),
		labels:  inserts("la", "run_labels", sqlstore.LabelColumns(), ""),

		appends:    appendStatement(),
		anyAppends: table[runBatch](anyAppendColumns()),
		outcomes: newStatement("oc", "c", "c.run_id", sqlstore.OutcomeColumns(sqlstore.StoredResult), func(from, only string, _ int) string {
			return "UPDATE run_details d SET result = c.result, outputs = c.outputs, error = c.error FROM " + from + only + " AND d.run_id = c.run_id"
		}),
		events: inserts("ev", "events", sqlstore.EventColumns(), ""),
		outbox: insertsBy("ob", "outbox", sqlstore.OutboxColumns(), ""),
		snapshots: inserts("sn", "snapshots", sqlstore.SnapshotColumns(),
			" ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, data = excluded.data WHERE snapshots.seq <= excluded.seq"),
		blobs:       insertsBy("br", "blob_refs", sqlstore.BlobColumns(), " ON CONFLICT DO NOTHING"),
		newThreads:  insertsBy("nt", "threads", sqlstore.NewThreadColumns(), ""),
		threadItems: insertsBy("ti", "thread_items", sqlstore.ThreadItemColumns(), ""),
		applied: newStatement("ap", "a", "a.run_id", sqlstore.Columns[appliedRow]{
			sqlstore.Col("run_id", "text", func(a appliedRow) string { return a.runID }),
			sqlstore.Col("id", "bigint", func(a appliedRow) int64 { return a.id }),
		}, func(from, only string, _ int) string {
			return "DELETE FROM commands m USING " + from + only + " AND m.id = a.id AND m.run_id = a.run_id"
		}),
		commands: commandStatement(),
		jobs:     jobInserts(),
		opened: newStatement("op", "i", "run_id", opened, func(from, only string, _ int) string {
			names := opened.Names("root_run_id")
			return "INSERT INTO interrupts (" + names + ", root_run_id) SELECT " + names + `,
				coalesce(nullif(root_run_id, ''), (SELECT r.root_run_id FROM runs r WHERE r.run_id = i.run_id), run_id)
				FROM ` + from + only + " ON CONFLICT DO NOTHING"
		}),
		closed: newStatement("cl", "c", "c.run_id", sqlstore.Columns[closingRow]{
			sqlstore.Col("run_id", "text", func(c closingRow) string { return c.runID }),
			sqlstore.Col("id", "text", func(c closingRow) string { return c.ID }),
			sqlstore.Col("state", "int", func(c closingRow) int32 { return int32(c.State) }),
			sqlstore.Col("answer", "bytea", func(c closingRow) []byte { return blob(c.Answer) }),
			sqlstore.Col("decision", "text", func(c closingRow) string { return c.Decision }),
			sqlstore.Col("closed_by", "text", func(c closingRow) string { return c.By }),
			sqlstore.Col("close_time", "timestamptz", func(c closingRow) *time.Time { return null(c.Time) }),
		}, func(from, only string, _ int) string {
			return `UPDATE interrupts i SET state = c.state, answer = c.answer, decision = c.decision, closed_by = c.closed_by,
				close_time = c.close_time FROM ` + from + only + " AND i.id = c.id AND i.run_id = c.run_id AND i.state = 1"
		}),
	}
	s.threadAgents = newStatement("ta", "a", "a.by_run", sqlstore.Columns[agentRow]{
		sqlstore.Col("by_run", "text", func(a agentRow) string { return a.runID }),
		sqlstore.Col("thread_id", "text", func(a agentRow) string { return a.Thread }),
		sqlstore.Col("agent", "text", func(a agentRow) string { return a.Agent }),
	}, func(from, only string, _ int) string {
		return `UPDATE threads t SET agent = a.agent FROM ` + from + only + " AND t.thread_id = a.thread_id"
	})
	s.threadUsage = newStatement("tu", "w", "w.by_run", sqlstore.UsageColumns(), func(from, only string, _ int) string {
		return `INSERT INTO thread_usage (namespace, shard, threads, bytes) SELECT namespace, shard, sum(threads), sum(bytes) FROM ` + from + only +
			` GROUP BY namespace, shard ORDER BY namespace` + sqlstore.AddedUsage
	})
	s.fenced = map[string]string{}
	for _, text := range []string{s.events.one, s.events.many} {
		s.fenced[text] = text + " AND " + fence(len(s.events.table)+1) + " = 1"
	}
	return s
}

// startStatement inserts the rows of new runs. Its own parameters are the owner's id and incarnation.
func startStatement() statement[runBatch] {
	columns := slices.Concat(sqlstore.RunColumns(), sqlstore.StatusColumns())
	names := columns.Names()
	columns = append(columns, sqlstore.Col("pending", "boolean", runBatch.Pending))
	return newStatement("upd", "u", "run_id", columns, func(from, only string, next int) string {
		return "INSERT INTO runs (owner_id, owner_incarnation, revision, takeovers, " + names + fmt.Sprintf(`)
			SELECT CASE WHEN pending THEN '' ELSE $%d::text END, CASE WHEN pending THEN 0 ELSE $%d::bigint END, 1, 0, `, next, next+1) + names +
			" FROM " + from + only
	})
}

// commandStatement inserts commands to other runs, but not to those of another namespace.
func commandStatement() statement[sqlstore.CommandRow] {
	columns := sqlstore.CommandColumns()
	names := columns.Names()
	columns = append(columns, sqlstore.Col("from_run", "text", func(m sqlstore.CommandRow) string { return m.From }))
	return newStatement("co", "m", "from_run", columns, func(from, only string, _ int) string {
		return "INSERT INTO commands (" + names + ") SELECT " + names + " FROM " + from + only +
			" AND NOT EXISTS (SELECT FROM runs r WHERE r.run_id = m.run_id AND r.namespace <> m.namespace) ON CONFLICT DO NOTHING"
	})
}

// appendColumns are what an append changes in the row of its run, but for the graph.
func appendColumns() sqlstore.Columns[runBatch] {
	return append(sqlstore.Columns[runBatch]{
		sqlstore.Col("run_id", "text", func(u runBatch) string { return u.RunID }),
		sqlstore.Col("namespace", "text", func(u runBatch) string { return u.Namespace }),
		sqlstore.Col("expected", "bigint", func(u runBatch) int64 { return u.Expected }),
		sqlstore.Col("last_seq", "bigint", runBatch.LastSeq),
		sqlstore.Col("ended", "boolean", runBatch.Ends),
		sqlstore.Col("progress", "boolean", func(u runBatch) bool { return u.Progress }),
		sqlstore.Col("release", "boolean", func(u runBatch) bool { return u.Release }),
	}, sqlstore.StatusColumns()...)
}

// anyAppendColumns are all that the general route must know of an append.
func anyAppendColumns() sqlstore.Columns[runBatch] {
	return append(appendColumns(),
		sqlstore.Col("touches", "boolean", runBatch.TouchesRow),
		sqlstore.Col("has_status", "boolean", func(u runBatch) bool { return u.Status != nil }),
		sqlstore.Col("new_graph", "text", func(u runBatch) string { return u.GraphHash }),
		sqlstore.Col("graph_changes", "bigint", func(u runBatch) int64 { return int64(u.GraphChanges) }))
}

const (
	// owned holds for runs r that are owned by the executor whose id and incarnation are two parameters.
	owned = ` r.run_id = u.run_id AND r.namespace = u.namespace AND r.owner_id = $%d AND r.owner_incarnation = $%d`
	// follows is where an append must find the journal: it ends with the event before the first new one. The
	// row's last_seq is that of the last change of the row, so it may lie behind. It keeps a second copy of a
	// commit from passing while the first is under way.
	follows = ` (u.expected = 0 OR EXISTS (SELECT FROM events p WHERE p.run_id = u.run_id AND p.seq = u.expected))
		AND NOT EXISTS (SELECT FROM events p WHERE p.run_id = u.run_id AND p.seq = u.expected + 1)`
)

// updateRows renders the update of rows of runs by appends of their owner u, up to the condition. A column of
// the status is set to what the format value makes of its name.
func updateRows(value, more string) string {
	set := `UPDATE runs r SET last_seq = u.last_seq, revision = r.revision + 1, holds_key = r.holds_key AND NOT u.ended,
		takeovers = CASE WHEN u.progress THEN 0 ELSE r.takeovers END,
		owner_id = CASE WHEN u.release THEN '' ELSE r.owner_id END,
		owner_incarnation = CASE WHEN u.release THEN 0 ELSE r.owner_incarnation END` + more
	for _, c := range sqlstore.StatusColumns() {
		set += fmt.Sprintf(", %[1]s = "+value, c.Name)
	}
	return set
}

// appendStatement updates rows by appends that have a status and leave the graph. Its own parameters are
// the owner's id and incarnation, and the number of rows. It divides by zero unless it updates so many. It
// returns the id and the revision of each.
func appendStatement() statement[runBatch] {
	return newStatement("upd", "u", "u.run_id", appendColumns(), func(from, only string, next int) string {
		return "WITH upd AS (" + updateRows("u.%[1]s", "") + " FROM " + from + only + " AND" + fmt.Sprintf(owned, next, next+1) +
			fmt.Sprintf(` AND r.last_seq <= u.expected RETURNING r.run_id, r.revision)
			SELECT so, upd.run_id, upd.revision
			FROM (SELECT 1 / coalesce((SELECT 1 FROM upd OFFSET $%d::bigint - 1 LIMIT 1), 0)) AS whole (so) LEFT JOIN upd ON true`, next+2)
	})
}

// optimistic queues what batches write whose runs are new, or known to be as the batches expect them. If
// one of its statements finds something else, the whole commit fails. written gets the revision of each row
// that an append changed.
func (s *statements) optimistic(batch *pgx.Batch, owner journal.Owner, starts, appends []runBatch, written func(runID string, revision int64)) {
	var rows, ended []runBatch
	for _, u := range appends {
		if u.TouchesRow() {
			rows = append(rows, u)
		}
		if u.Outcome != nil {
			ended = append(ended, u)
		}
	}
	b := &builder{batch: batch}
	s.runs.portions(starts, func(query string, args []any, _ int) {
		batch.Queue(query, append(args, owner.ID, owner.Incarnation)...)
	})
	s.begun(b, starts)
	s.appends.portions(rows, func(query string, args []any, n int) {
		batch.Queue(query, append(args, owner.ID, owner.Incarnation, n)...).Query(func(rows pgx.Rows) error {
			var so int32
			var id string
			var revision int64
			_, err := pgx.ForEachRow(rows, []any{&so, &id, &revision}, func() error { written(id, revision); return nil })
			return err
		})
	})
	put(b, s.outcomes, ended)
	s.children(b, owner, slices.Concat(starts, appends))
}

// generalStarts queues what the general route writes for new runs. written gets those that were new.
func (s *statements) generalStarts(batch *pgx.Batch, owner journal.Owner, units []runBatch, written func(runID string, revision int64)) {
	if len(units) == 0 {
		return
	}
	b := &builder{batch: batch, done: "upd"}
	b.with("upd", s.runs.text(s.runs.from(1, s.runs.alias), " ON CONFLICT DO NOTHING RETURNING run_id, revision", len(s.runs.table)+1),
		append(s.runs.args(units), owner.ID, owner.Incarnation)...)
	s.begun(b, units)
	s.children(b, owner, units)
	b.queue(written)
}

// generalAppends queues what the general route writes for appends. written gets the runs that it wrote to,
// with the revision of the row if that was changed, and else 0. The owner of the others cannot change
// meanwhile: another executor must fence this one first, and the fence is held until the commit.
func (s *statements) generalAppends(batch *pgx.Batch, owner journal.Owner, units []runBatch, written func(runID string, revision int64)) {
	if len(units) == 0 {
		return
	}
	n := len(s.anyAppends)
	mine := fmt.Sprintf(owned, n+1, n+2)
	b := &builder{batch: batch, done: "upd"}
	b.with("u", "SELECT * FROM "+s.anyAppends.from(1, "u"), append(s.anyAppends.args(units), owner.ID, owner.Incarnation)...)
	b.with("rw", updateRows("CASE WHEN u.has_status THEN u.%[1]s ELSE r.%[1]s END", `,
		first_graph = CASE WHEN u.graph_changes > 0 AND r.graph_revision = 0 THEN r.graph_hash ELSE r.first_graph END,
		graph_hash = CASE WHEN u.graph_changes > 0 THEN u.new_graph ELSE r.graph_hash END,
		graph_revision = r.graph_revision + u.graph_changes`)+" FROM u WHERE u.touches AND"+mine+" AND r.last_seq <= u.expected AND"+follows+
		" RETURNING r.run_id, r.revision")
	b.with("pl", "SELECT u.run_id, u.progress AND f.takeovers > 0 AS calms FROM u CROSS JOIN LATERAL (SELECT r.takeovers FROM runs r WHERE"+mine+
		" OFFSET 0) f WHERE NOT u.touches AND"+follows)
	b.with("ca", "UPDATE runs SET takeovers = 0 WHERE run_id = ANY (ARRAY (SELECT run_id FROM pl WHERE calms))")
	b.with("upd", "SELECT run_id, revision FROM rw UNION ALL SELECT run_id, 0 FROM pl")
	var ended []runBatch
	for _, u := range units {
		if u.Outcome != nil {
			ended = append(ended, u)
		}
	}
	put(b, s.outcomes, ended)
	s.children(b, owner, units)
	b.queue(written)
	for _, u := range units {
		if u.Metadata != nil {
			// A statement of its own, since the one before may set the outcome of the same run.
			batch.Queue("UPDATE run_details SET metadata = $2 WHERE run_id = $1 AND EXISTS (SELECT FROM runs r WHERE r.run_id = $1 AND r.last_seq = $3)",
				u.RunID, blob(u.Metadata), u.LastSeq())
		}
	}
}

// builder takes the parts of what batches write. If done is empty, each part is a statement of its own.
// Else all are one statement, and done is the part that returns the runs that it wrote to. The parts after
// it write only for these runs, so a write that lost writes nothing else either.
type builder struct {
	batch *pgx.Batch
	done  string
	sql   strings.Builder
	args  []any
}

func (b *builder) with(name, sql string, args ...any) {
	sep := "WITH "
	if b.sql.Len() > 0 {
		sep = ",\n"
	}
	b.sql.WriteString(sep + name + " AS (" + sql + ")")
	b.args = append(b.args, args...)
}

// put adds what a statement does for rows, if there are any. Parts without rows are left out; there are few
// combinations, so each soon is a prepared statement.
func put[T any](b *builder, s statement[T], rows []T) {
	if len(rows) == 0 {
		return
	}
	if b.done == "" {
		s.portions(rows, func(query string, args []any, _ int) { b.batch.Queue(query, args...) })
		return
	}
	next := len(b.args) + 1
	b.with(s.name, s.text(s.from(next, s.alias), only(s.run, b.done), next+len(s.table)), s.args(rows)...)
}

// queue queues the one statement. written gets what done returns.
func (b *builder) queue(written func(runID string, revision int64)) {
	b.batch.Queue(b.sql.String()+"\nSELECT run_id, revision FROM "+b.done, b.args...).Query(func(rows pgx.Rows) error {
		var id string
		var revision int64
		_, err := pgx.ForEachRow(rows, []any{&id, &revision}, func() error { written(id, revision); return nil })
		return err
	})
}

// only keeps the rows whose run the part called done wrote. Without a part it keeps all. IS TRUE keeps the
// planner from making a join of it, which would go row by row for want of an estimate: as it is, each is
// looked up in a hash table.
func only(column, done string) string {
	if done == "" {
		return " WHERE true"
	}
	return " WHERE (" + column + " IN (SELECT run_id FROM " + done + ")) IS TRUE"
}

// begun adds what belongs to the rows of new runs.
func (s *statements) begun(b *builder, units []runBatch) {
	var labels []sqlstore.LabelRow
	for _, u := range units {
		for k, v := range u.Start.Run.Labels {
			labels = append(labels, sqlstore.LabelRow{Batch: u, Key: k, Value: v})
		}
	}
	put(b, s.details, units)
	put(b, s.labels, labels)
}

// children adds what hangs on runs.
func (s *statements) children(b *builder, owner journal.Owner, units []runBatch) {
	n := 0
	for _, u := range units {
		n += len(u.Events)
	}
	events := make([]sqlstore.EventRow, 0, n)
	var out []sqlstore.OutRow
	var snaps []runBatch
	var blobs []sqlstore.BlobRow
	var applied []appliedRow
	var commands []sqlstore.CommandRow
	var jobs []journal.JobRow
	var opened []*journal.Interrupt
	var closed []closingRow
	var newThreads []sqlstore.NewThreadRow
	var threadItems []sqlstore.ThreadItemRow
	var threadAgents []agentRow
	for _, u := range units {
		for i := range u.Events {
			events = append(events, sqlstore.EventRow{Namespace: u.Namespace, Event: &u.Events[i]})
		}
		for i := range u.Outbox {
			out = append(out, sqlstore.OutRow{Namespace: u.Namespace, RunID: u.RunID, OutRow: &u.Outbox[i]})
		}
		for i := range u.ThreadOutbox {
			out = append(out, sqlstore.OutRow{Namespace: u.Namespace, RunID: u.RunID, OutRow: &u.ThreadOutbox[i]})
		}
		if u.Snapshot != nil {
			snaps = append(snaps, u)
		}
		for i := range u.Blobs {
			blobs = append(blobs, sqlstore.BlobRow{Batch: u, BlobRef: &u.Blobs[i]})
		}
		for _, id := range u.Applied {
			applied = append(applied, appliedRow{u.RunID, id})
		}
		for i := range u.Command {
			commands = append(commands, sqlstore.CommandRow{From: u.RunID, Command: &u.Command[i]})
		}
		jobs = append(jobs, u.Jobs...)
		for i := range u.Opened {
			opened = append(opened, &u.Opened[i])
		}
		for i := range u.Closed {
			closed = append(closed, closingRow{u.RunID, &u.Closed[i]})
		}
		for i := range u.NewThreads {
			newThreads = append(newThreads, sqlstore.NewThreadRow{Batch: u, Thread: &u.NewThreads[i]})
		}
		for i := range u.ThreadItems {
			threadItems = append(threadItems, sqlstore.ThreadItemRow{Batch: u, ItemOf: &u.ThreadItems[i]})
		}
		for _, a := range u.ThreadAgents {
			threadAgents = append(threadAgents, agentRow{u.RunID, a})
		}
	}
	put(b, s.events, events)
	put(b, s.outbox, out)
	put(b, s.snapshots, snaps)
	put(b, s.blobs, blobs)
	put(b, s.applied, applied)
	put(b, s.commands, commands)
	put(b, s.jobs, jobs)
	put(b, s.opened, opened)
	put(b, s.closed, closed)
	put(b, s.newThreads, newThreads)
	put(b, s.threadItems, threadItems)
	put(b, s.threadAgents, threadAgents)
	put(b, s.threadUsage, usageOf(owner, units))
}

// usageShards is how many rows of a namespace commits add to. Each executor adds to one of them.
const usageShards = 15

// usageOf are the rows of what batches add to the usage of their namespaces. They are sorted, so that two
// executors with the same shard seldom wait for each other in a circle.
func usageOf(owner journal.Owner, units []runBatch) (rows []sqlstore.UsageRow) {
	h := fnv.New32a()
	h.Write([]byte(owner.ID))
	shard := 1 + int32(h.Sum32()%usageShards) // 0 is that of all but commits
	for _, u := range units {
		if u.ThreadUsage != (thread.Usage{}) {
			rows = append(rows, sqlstore.UsageRow{Batch: u, Shard: shard})
		}
	}
	slices.SortStableFunc(rows, func(a, b sqlstore.UsageRow) int { return cmp.Compare(a.Batch.Namespace, b.Batch.Namespace) })
	return rows
}
