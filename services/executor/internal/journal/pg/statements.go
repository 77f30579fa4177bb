package pg

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
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
	sqlstore.Column[T]
	// pack is List for connections that take packs.
	pack func([]T) packed
}

func col[T, V any](name, typ string, get func(T) V) column[T] {
	return columnOf(sqlstore.Col(name, typ, get))
}

func columnOf[T any](c sqlstore.Column[T]) column[T] { return column[T]{c, packColumn[T](c.Get)} }

// tableOf are the columns of a table.
func tableOf[T any](columns sqlstore.Columns[T]) table[T] {
	t := make(table[T], len(columns))
	for i, c := range columns {
		t[i] = columnOf(c)
	}
	return t
}

// table is the columns of a multi-row statement.
type table[T any] []column[T]

// from renders the unnest of all columns, whose first parameter is $first, under an alias.
func (t table[T]) from(first int, alias string) string {
	args, names := make([]string, len(t)), make([]string, len(t))
	for i, c := range t {
		args[i] = fmt.Sprintf("$%d::%s[]", first+i, c.Type)
		names[i] = c.Name
	}
	return "unnest(" + strings.Join(args, ", ") + ") AS " + alias + " (" + strings.Join(names, ", ") + ")"
}

// fromFew renders so many rows of all columns, whose first parameter is $first, under an alias. For a
// handful of rows that is cheaper than arrays, each of which the database unnests by itself.
func (t table[T]) fromFew(rows, first int, alias string) string {
	names, values := make([]string, len(t)), make([]string, rows)
	for r := range values {
		args := make([]string, len(t))
		for i, c := range t {
			args[i] = fmt.Sprintf("$%d::%s", first+r*len(t)+i, c.Type)
			names[i] = c.Name
		}
		values[r] = "(" + strings.Join(args, ", ") + ")"
	}
	list := "VALUES " + strings.Join(values, ", ")
	if rows == 1 {
		list = "SELECT " + strings.Trim(values[0], "()")
	}
	return "(" + list + ") AS " + alias + " (" + strings.Join(names, ", ") + ")"
}

// some is fromFew, or from if the number of rows is 0.
func (t table[T]) some(rows, first int, alias string) string {
	if rows > 0 {
		return t.fromFew(rows, first, alias)
	}
	return t.from(first, alias)
}

// params is how many parameters some has.
func (t table[T]) params(rows int) int { return max(rows, 1) * len(t) }

// values are the parameters of fromFew, or those of from for connections that take packs.
func (t table[T]) values(rows []T, few bool) []any {
	if !few {
		return t.packs(rows)
	}
	out := make([]any, 0, len(rows)*len(t)+4)
	for _, r := range rows {
		for _, c := range t {
			out = append(out, c.Value(r))
		}
	}
	return out
}

func (t table[T]) names(prefix string, skip ...string) string {
	var b strings.Builder
next:
	for _, c := range t {
		for _, s := range skip {
			if c.Name == s {
				continue next
			}
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(prefix + c.Name)
	}
	return b.String()
}

func (t table[T]) args(rows []T) []any {
	out := make([]any, len(t))
	for i, c := range t {
		out[i] = c.List(rows)
	}
	return out
}

// packs is args for connections that take packs.
func (t table[T]) packs(rows []T) []any {
	out := make([]any, len(t), len(t)+4)
	for i, c := range t {
		out[i] = c.pack(rows)
	}
	return out
}

type closingRow struct {
	runID string
	*journal.Closing
}

// statements holds the multi-row statements, rendered once.
type statements struct {
	events    table[sqlstore.EventRow]
	outbox    table[sqlstore.OutRow]
	labels    table[sqlstore.LabelRow]
	blobs     table[sqlstore.BlobRow]
	runs      table[*journal.RunBatch]
	details   table[*journal.RunBatch]
	appends   table[*journal.RunBatch]
	outcomes  table[*journal.RunBatch]
	snapshots table[*journal.RunBatch]
	plain     table[*journal.RunBatch]
	commands  table[sqlstore.CommandRow]
	jobs      table[journal.JobRow]
	opened    table[*journal.Interrupt]
	closed    table[closingRow]
	// direct are by the number of rows, 0 standing for any.
	direct map[int]*direct
}

type runBatch = *journal.RunBatch

func newStatements() statements {
	progress := tableOf(sqlstore.StatusColumns())
	s := statements{
		events:  tableOf(sqlstore.EventColumns()),
		outbox:  tableOf(sqlstore.OutboxColumns()),
		labels:  tableOf(sqlstore.LabelColumns()),
		blobs:   tableOf(sqlstore.BlobColumns()),
		runs:    slices.Concat(tableOf(sqlstore.RunColumns()), table[runBatch]{col("pending", "boolean", runBatch.Pending)}, progress),
		details: tableOf(sqlstore.DetailColumns(sqlstore.StoredResult)),
		appends: append(table[runBatch]{
			col("run_id", "text", func(u runBatch) string { return u.RunID }),
			col("namespace", "text", func(u runBatch) string { return u.Namespace }),
			col("expected", "bigint", func(u runBatch) int64 { return u.Expected }),
			col("last_seq", "bigint", runBatch.LastSeq),
			col("has_status", "boolean", func(u runBatch) bool { return u.Status != nil }),
			col("ended", "boolean", func(u runBatch) bool { return u.Status != nil && u.Status.State.Ended() }),
			col("progress", "boolean", func(u runBatch) bool { return u.Progress }),
			col("release", "boolean", func(u runBatch) bool { return u.Release }),
			col("graph_hash", "text", func(u runBatch) string { return u.GraphHash }),
			col("graph_changes", "bigint", func(u runBatch) int64 { return int64(u.GraphChanges) }),
		}, progress...),
		plain: table[runBatch]{
			col("run_id", "text", func(u runBatch) string { return u.RunID }),
			col("namespace", "text", func(u runBatch) string { return u.Namespace }),
			col("expected", "bigint", func(u runBatch) int64 { return u.Expected }),
		},
		outcomes:  tableOf(sqlstore.OutcomeColumns(sqlstore.StoredResult)),
		snapshots: tableOf(sqlstore.SnapshotColumns()),
		commands: append(table[sqlstore.CommandRow]{col("from_run", "text", func(m sqlstore.CommandRow) string { return m.From })},
			tableOf(sqlstore.CommandColumns())...),
		jobs:   jobTable(),
		opened: tableOf(sqlstore.InterruptColumns()),
		closed: table[closingRow]{
			col("run_id", "text", func(c closingRow) string { return c.runID }),
			col("id", "text", func(c closingRow) string { return c.ID }),
			col("state", "int", func(c closingRow) int32 { return int32(c.State) }),
			col("answer", "bytea", func(c closingRow) []byte { return blob(c.Answer) }),
			col("decision", "text", func(c closingRow) string { return c.Decision }),
			col("closed_by", "text", func(c closingRow) string { return c.By }),
			col("close_time", "timestamptz", func(c closingRow) *time.Time { return null(c.Time) }),
		},
	}
	s.direct = map[int]*direct{0: s.makeDirect(0)}
	for _, rows := range few {
		s.direct[rows] = s.makeDirect(rows)
	}
	return s
}

// builder renders one statement whose later parts write only for the runs that its first part wrote. So a
// write that lost writes nothing else either, and the whole is one message.
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

// only keeps the rows whose run the part called done wrote. Without a part it keeps all. IS TRUE keeps the
// planner from making a join of it, which would go row by row for want of an estimate: as it is, each is
// looked up in a hash table.
func only(column, done string) string {
	if done == "" {
		return " WHERE true"
	}
	return " WHERE (" + column + " IN (SELECT run_id FROM " + done + ")) IS TRUE"
}

// children adds what hangs on the runs that done wrote. Empty parts are left out; there are few
// combinations, so each soon is a prepared statement. A part that an earlier try of the same commit wrote
// changes nothing.
func (s *statements) children(b *builder, units []runBatch, done string) {
	if events := eventRows(units); len(events) > 0 {
		names := s.events.names("")
		b.with("ev", "INSERT INTO events ("+names+") SELECT "+names+" FROM "+s.events.from(b.next(), "e")+only("run_id", done)+" ON CONFLICT DO NOTHING RETURNING 1",
			s.events.packs(events)...)
	}
	s.others(b, units, done)
}

func eventRows(units []runBatch) []sqlstore.EventRow {
	n := 0
	for _, u := range units {
		n += len(u.Events)
	}
	events := make([]sqlstore.EventRow, 0, n)
	for _, u := range units {
		for i := range u.Events {
			events = append(events, sqlstore.EventRow{Namespace: u.Namespace, Event: &u.Events[i]})
		}
	}
	return events
}

// others is children but for the events.
func (s *statements) others(b *builder, units []runBatch, done string) {
	var out []sqlstore.OutRow
	var snaps []runBatch
	var commands []sqlstore.CommandRow
	var jobs []journal.JobRow
	var opened []*journal.Interrupt
	var closed []closingRow
	var taken []int64
	for _, u := range units {
		for i := range u.Outbox {
			out = append(out, sqlstore.OutRow{Namespace: u.Namespace, RunID: u.RunID, OutRow: &u.Outbox[i]})
		}
		if u.Snapshot != nil {
			snaps = append(snaps, u)
		}
		for i := range u.Command {
			commands = append(commands, sqlstore.CommandRow{From: u.RunID, Command: &u.Command[i]})
		}
		for i := range u.Opened {
			opened = append(opened, &u.Opened[i])
		}
		for i := range u.Closed {
			closed = append(closed, closingRow{u.RunID, &u.Closed[i]})
		}
		jobs = append(jobs, u.Jobs...)
		taken = append(taken, u.Applied...)
	}
	mine := only("run_id", done)
	if len(out) > 0 {
		names := s.outbox.names("")
		again := " ON CONFLICT DO NOTHING"
		if done == "" {
			again = ""
		}
		b.with("ob", "INSERT INTO outbox ("+names+") SELECT "+names+" FROM "+s.outbox.from(b.next(), "o")+mine+again, s.outbox.packs(out)...)
	}
	if len(snaps) > 0 {
		names := s.snapshots.names("")
		b.with("sn", "INSERT INTO snapshots ("+names+") SELECT "+names+" FROM "+s.snapshots.from(b.next(), "n")+mine+
			" ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, data = excluded.data WHERE snapshots.seq <= excluded.seq", s.snapshots.packs(snaps)...)
	}
	s.blobRefs(b, units, done)
	if len(taken) > 0 {
		var readers []string
		for _, u := range units {
			if len(u.Applied) > 0 {
				readers = append(readers, u.RunID)
			}
		}
		b.with("tk", "DELETE FROM commands"+mine+fmt.Sprintf(" AND id = ANY ($%d::bigint[]) AND run_id = ANY ($%d::text[])", b.next(), b.next()+1), taken, readers)
	}
	if len(commands) > 0 {
		names := s.commands.names("", "from_run")
		b.with("ml", "INSERT INTO commands ("+names+") SELECT "+names+" FROM "+s.commands.from(b.next(), "m")+only("from_run", done)+
			" AND NOT EXISTS (SELECT FROM runs r WHERE r.run_id = m.run_id AND r.namespace <> m.namespace) ON CONFLICT DO NOTHING", s.commands.packs(commands)...)
	}
	if len(jobs) > 0 {
		b.with("jb", insertJobs+" FROM "+s.jobs.from(b.next(), "j")+only("j.run_id", done)+" "+uniqueJobs, s.jobs.packs(jobs)...)
	}
	if len(opened) > 0 {
		names := s.opened.names("", "root_run_id")
		b.with("op", "INSERT INTO interrupts ("+names+", root_run_id) SELECT "+names+`,
			coalesce(nullif(root_run_id, ''), (SELECT r.root_run_id FROM runs r WHERE r.run_id = i.run_id), run_id) FROM `+
			s.opened.from(b.next(), "i")+mine+" ON CONFLICT DO NOTHING", s.opened.packs(opened)...)
	}
	if len(closed) > 0 {
		b.with("cl", `UPDATE interrupts i SET state = c.state, answer = c.answer, decision = c.decision, closed_by = c.closed_by, close_time = c.close_time FROM `+
			s.closed.from(b.next(), "c")+only("c.run_id", done)+" AND i.id = c.id AND i.run_id = c.run_id AND i.state = 1", s.closed.packs(closed)...)
	}
}

// blobRefs adds what the values of runs that done wrote refer to.
func (s *statements) blobRefs(b *builder, units []runBatch, done string) {
	var rows []sqlstore.BlobRow
	for _, u := range units {
		for i := range u.Blobs {
			rows = append(rows, sqlstore.BlobRow{Batch: u, BlobRef: &u.Blobs[i]})
		}
	}
	if len(rows) == 0 {
		return
	}
	names := s.blobs.names("")
	b.with("br", "INSERT INTO blob_refs ("+names+") SELECT "+names+" FROM "+s.blobs.from(b.next(), "b")+only("run_id", done)+" ON CONFLICT DO NOTHING", s.blobs.packs(rows)...)
}

// follows is where an append must find the journal: it ends with the event before the first new one. The
// row's last_seq is that of the last change of the row, so it may lie behind. It keeps a second copy of a
// commit from passing while the first is under way.
const (
	follows = ` (u.expected = 0 OR EXISTS (SELECT FROM events p WHERE p.run_id = u.run_id AND p.seq = u.expected))
		AND NOT EXISTS (SELECT FROM events p WHERE p.run_id = u.run_id AND p.seq = u.expected + 1)`
	owned = ` r.run_id = u.run_id AND r.namespace = u.namespace AND r.owner_id = $%d AND r.owner_incarnation = $%d`
)

// appendEvents queues appends that do not change the rows of their runs. It returns how many events were
// new and which runs were not written. The owner of these runs cannot change meanwhile: another executor
// must fence this one first, and the fence is held until the commit.
func (s *statements) appendEvents(batch *pgx.Batch, owner journal.Owner, units []runBatch) {
	var b builder
	n := len(s.plain)
	b.with("upd", "SELECT u.run_id, f.takeovers FROM "+s.plain.from(1, "u")+` CROSS JOIN LATERAL (SELECT r.takeovers FROM runs r WHERE`+
		fmt.Sprintf(owned, n+1, n+2)+" OFFSET 0) f WHERE"+follows, append(s.plain.packs(units), owner.ID, owner.Incarnation)...)
	var progress []string
	ids := make([]string, len(units))
	events := 0
	for i, u := range units {
		ids[i] = u.RunID
		events += len(u.Events)
		if u.Progress {
			progress = append(progress, u.RunID)
		}
	}
	if len(progress) > 0 {
		b.with("pr", fmt.Sprintf("UPDATE runs SET takeovers = 0 WHERE run_id = ANY (ARRAY (SELECT run_id FROM upd WHERE takeovers > 0 AND run_id = ANY ($%d::text[])))", b.next()), progress)
	}
	s.children(&b, units, "upd")
	written := "0::bigint"
	if events > 0 {
		written = "(SELECT count(*) FROM ev)"
	}
	missing := fmt.Sprintf("ARRAY (SELECT x.id FROM unnest($%d::text[]) AS x (id) WHERE (x.id NOT IN (SELECT run_id FROM upd)) IS TRUE)", b.next())
	batch.Queue(b.sql.String()+"\nSELECT "+written+", "+missing, append(b.args, ids)...)
}

// appendSingles is appendEvents for batches of a single event and nothing else, which are most of what many
// runs write at once. It is one statement over one list, and returns the runs that it wrote to. Runs that
// an earlier try of the commit wrote are not among them.
func (s *statements) appendSingles(batch *pgx.Batch, owner journal.Owner, units []runBatch) {
	events := make([]sqlstore.EventRow, len(units))
	var progress []string
	for i, u := range units {
		events[i] = sqlstore.EventRow{Namespace: u.Namespace, Event: &u.Events[0]}
		if u.Progress {
			progress = append(progress, u.RunID)
		}
	}
	var b builder
	n, names := len(s.events), s.events.names("")
	b.with("ok", "SELECT u.*, f.takeovers FROM "+s.events.from(1, "u")+` CROSS JOIN LATERAL (SELECT r.takeovers FROM runs r WHERE`+
		fmt.Sprintf(owned, n+1, n+2)+" OFFSET 0) f WHERE u.seq = 1 OR EXISTS (SELECT FROM events p WHERE p.run_id = u.run_id AND p.seq = u.seq - 1)",
		append(s.events.packs(events), owner.ID, owner.Incarnation)...)
	b.with("ev", "INSERT INTO events ("+names+") SELECT "+names+" FROM ok ON CONFLICT DO NOTHING RETURNING run_id")
	if len(progress) > 0 {
		b.with("pr", fmt.Sprintf("UPDATE runs SET takeovers = 0 WHERE run_id = ANY (ARRAY (SELECT run_id FROM ok WHERE takeovers > 0 AND run_id = ANY ($%d::text[])))", b.next()), progress)
	}
	batch.Queue(b.sql.String()+"\nSELECT run_id FROM ev", b.args...)
}

// single reports whether a batch is one event and nothing else.
func single(u runBatch) bool {
	return !u.TouchesRow() && len(u.Events) == 1 && len(u.Outbox)+len(u.Command)+len(u.Applied)+len(u.Jobs)+len(u.Opened)+len(u.Closed)+len(u.Blobs) == 0 && u.Snapshot == nil
}

// updateRows renders the update of runs' rows by appends of their owner. It is plain if all have a status
// and keep their owner and their graph.
func (s *statements) updateRows(rows int, plain bool, guard string) string {
	var set strings.Builder
	value := "CASE WHEN u.has_status THEN u.%[1]s ELSE r.%[1]s END"
	if plain {
		value = "u.%[1]s"
	} else {
		set.WriteString(`,
		owner_id = CASE WHEN u.release THEN '' ELSE r.owner_id END,
		owner_incarnation = CASE WHEN u.release THEN 0 ELSE r.owner_incarnation END,
		first_graph = CASE WHEN u.graph_changes > 0 AND r.graph_revision = 0 THEN r.graph_hash ELSE r.first_graph END,
		graph_hash = CASE WHEN u.graph_changes > 0 THEN u.graph_hash ELSE r.graph_hash END,
		graph_revision = r.graph_revision + u.graph_changes`)
	}
	for _, c := range s.appends[10:] {
		fmt.Fprintf(&set, ", %[1]s = "+value, c.Name)
	}
	n := s.appends.params(rows)
	return `UPDATE runs r SET last_seq = u.last_seq, revision = r.revision + 1,
		holds_key = r.holds_key AND NOT u.ended,
		takeovers = CASE WHEN u.progress THEN 0 ELSE r.takeovers END` + set.String() + `
		FROM ` + s.appends.some(rows, 1, "u") + " WHERE" + fmt.Sprintf(owned, n+1, n+2) + guard
}

// appendRows queues appends that change the rows of their runs. It returns run_id and revision of those
// that it wrote.
func (s *statements) appendRows(batch *pgx.Batch, owner journal.Owner, units []runBatch) {
	var b builder
	b.with("upd", s.updateRows(0, false, " AND r.last_seq <= u.expected AND"+follows)+"\n\t\tRETURNING r.run_id, r.revision",
		append(s.appends.packs(units), owner.ID, owner.Incarnation)...)
	var ended []runBatch
	for _, u := range units {
		if u.Outcome != nil {
			ended = append(ended, u)
		}
	}
	if len(ended) > 0 {
		b.with("oc", "UPDATE run_details d SET result = c.result, outputs = c.outputs, error = c.error FROM "+s.outcomes.from(b.next(), "c")+
			only("c.run_id", "upd")+" AND d.run_id = c.run_id", s.outcomes.packs(ended)...)
	}
	s.children(&b, units, "upd")
	batch.Queue(b.sql.String()+"\nSELECT run_id, revision FROM upd", b.args...)
}

// insertRuns queues the insert of new runs; it returns the run_id of those that were new.
func (s *statements) insertRuns(batch *pgx.Batch, owner journal.Owner, units []runBatch) {
	var b builder
	names, n := s.runs.names("", "pending"), len(s.runs)
	b.with("ins", "INSERT INTO runs (owner_id, owner_incarnation, revision, takeovers, "+names+fmt.Sprintf(`)
		SELECT CASE WHEN pending THEN '' ELSE $%d::text END, CASE WHEN pending THEN 0 ELSE $%d::bigint END, 1, 0, `, n+1, n+2)+names+
		" FROM "+s.runs.from(1, "u")+" ON CONFLICT DO NOTHING RETURNING run_id", append(s.runs.packs(units), owner.ID, owner.Incarnation)...)
	mine := only("run_id", "ins")
	names = s.details.names("")
	b.with("det", "INSERT INTO run_details ("+names+") SELECT "+names+" FROM "+s.details.from(b.next(), "d")+mine, s.details.packs(units)...)
	s.labelRows(&b, units, "ins")
	s.children(&b, units, "ins")
	batch.Queue(b.sql.String()+"\nSELECT run_id FROM ins", b.args...)
}

// labelRows adds the labels of new runs.
func (s *statements) labelRows(b *builder, units []runBatch, done string) {
	var labels []sqlstore.LabelRow
	for _, u := range units {
		for k, v := range u.Start.Run.Labels {
			labels = append(labels, sqlstore.LabelRow{Batch: u, Key: k, Value: v})
		}
	}
	if len(labels) > 0 {
		names := s.labels.names("")
		b.with("lab", "INSERT INTO run_labels ("+names+") SELECT "+names+" FROM "+s.labels.from(b.next(), "l")+only("run_id", done), s.labels.packs(labels)...)
	}
}
