package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// insert is a statement that inserts a row of type T.
type insert[T any] struct {
	columns sqlstore.Columns[T]
	query   string
}

// fixed is a column whose value is the same SQL for all rows.
type fixed struct{ name, value string }

func insertInto[T any](table string, columns sqlstore.Columns[T], end string, more ...fixed) insert[T] {
	names, values := columns.Names(), strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ")
	for _, f := range more {
		names, values = names+", "+f.name, values+", "+f.value
	}
	return insert[T]{columns, `INSERT INTO ` + table + ` (` + names + `) VALUES (` + values + `)` + end}
}

// put inserts a row and returns whether it was new. more are the values of the fixed columns that are
// parameters.
func put[T any](ctx context.Context, t txn, i insert[T], row T, more ...any) (bool, error) {
	n, err := t.exec(ctx, i.query, append(values(i.columns, row), more...)...)
	return n > 0, err
}

// values are those of a row in the form that SQLite keeps, but for some columns.
func values[T any](columns sqlstore.Columns[T], row T, skip ...string) []any {
	out := make([]any, 0, len(columns)+4)
	for _, c := range columns {
		if slices.Contains(skip, c.Name) {
			continue
		}
		switch v := c.Value(row).(type) {
		case time.Time:
			out = append(out, v.UnixMicro())
		case *time.Time:
			if v == nil {
				out = append(out, 0)
			} else {
				out = append(out, v.UnixMicro())
			}
		default:
			out = append(out, v)
		}
	}
	return out
}

// writes are the statements of commits that name the columns of whole rows, rendered once.
type writes struct {
	run        insert[*journal.RunBatch]
	details    insert[*journal.RunBatch]
	snapshot   insert[*journal.RunBatch]
	label      insert[sqlstore.LabelRow]
	out        insert[sqlstore.OutRow]
	interrupt  insert[*journal.Interrupt]
	blob       insert[sqlstore.BlobRow]
	thread     insert[*thread.Thread]
	threadItem insert[sqlstore.ThreadItemRow]
	usage      insert[sqlstore.UsageRow]
	events     sqlstore.Columns[sqlstore.EventRow]
	// insertEvents inserts so many events: see eventChunks.
	insertEvents map[int]string
	// status and outcome are the columns of updates. appendSame and appendState set the status, outcomeOf
	// the outcome.
	status, outcome                    sqlstore.Columns[*journal.RunBatch]
	appendSame, appendState, outcomeOf string
	// keepOutcome is sqlstore.KeepOutcomeWith, and freed is freedSQL.
	keepOutcome, freed string
}

// apart are the columns of a status that indexes name. SQLite rewrites every index that names a column
// which is set, changed or not. So these are set only when they change, which is seldom: appendSame updates
// no row if one of them would change.
func apart() []string { return []string{"state", "wake_time"} }

// eventChunks are how many events go into one statement.
func eventChunks() []int { return []int{64, 8, 1} }

func newWrites() *writes {
	w := &writes{
		run: insertInto(`runs`, slices.Concat(sqlstore.RunColumns(), sqlstore.StatusColumns()), ` ON CONFLICT (run_id) DO NOTHING`,
			fixed{`owner_id`, `?`}, fixed{`owner_incarnation`, `?`}, fixed{`revision`, `1`}, fixed{`takeovers`, `0`}),
		details: insertInto(`run_details`, sqlstore.DetailColumns(sqlstore.PlainResult), ``),
		snapshot: insertInto(`snapshots`, sqlstore.SnapshotColumns(), `
			ON CONFLICT (run_id) DO UPDATE SET seq = excluded.seq, data = excluded.data WHERE snapshots.seq <= excluded.seq`),
		label:      insertInto(`run_labels`, sqlstore.LabelColumns(), ``),
		out:        insertInto(`outbox`, sqlstore.OutboxColumns()[1:], ``, fixed{`next_at`, now}, fixed{`attempts`, `0`}, fixed{`last_error`, `''`}),
		interrupt:  insertInto(`interrupts`, sqlstore.InterruptColumns(), ` ON CONFLICT DO NOTHING`),
		blob:       insertInto(`blob_refs`, sqlstore.BlobColumns()[1:], ` ON CONFLICT DO NOTHING`),
		thread:     insertInto(`threads`, sqlstore.ThreadColumns(), ``),
		threadItem: insertInto(`thread_items`, sqlstore.ThreadItemColumns()[1:], ``),
		usage:      insertInto(`thread_usage`, sqlstore.UsageColumns()[1:], sqlstore.AddedUsage),
		events:     sqlstore.EventColumns(), insertEvents: map[int]string{},
		status: sqlstore.StatusColumns(), outcome: sqlstore.OutcomeColumns(sqlstore.PlainResult),
	}
	w.freed = freedSQL()
	w.keepOutcome = strings.ReplaceAll(sqlstore.KeepOutcomeWith, "$", "?")
	for _, n := range eventChunks() {
		w.insertEvents[n] = `INSERT INTO events (` + w.events.Names() + `) VALUES ` + tuples(n, len(w.events))
	}
	set := strings.ReplaceAll(w.status.Names(apart()...), `, `, ` = ?, `) + ` = ?, `
	w.appendSame = `UPDATE runs SET ` + set + appendSet + appendWhere + ` AND state = ? AND wake_time = ?` + returning
	w.appendState = `UPDATE runs SET state = ?, wake_time = ?, holds_key = holds_key AND NOT ?, ` + set + appendSet + appendWhere + returning
	w.outcomeOf = `UPDATE run_details SET ` + strings.ReplaceAll(w.outcome.Names(`run_id`), `, `, ` = ?, `) + ` = ? WHERE run_id = ?`
	return w
}

// hot are the statements that are prepared once.
func (w *writes) hot() []string {
	qs := []string{fenceSQL, placeSQL, progressSQL, releaseSQL, appendSQL, insertGraph, w.appendSame, w.appendState, w.outcomeOf,
		w.run.query, w.details.query, w.label.query, w.snapshot.query, w.out.query, findThread, findItems, findUsage, w.threadItem.query, w.usage.query,
		sendCommand, dropCommand, tidyCommands, tidyInterrupts, claimOwnerless, ownerSQL, insertJob, wakesSQL, w.freed}
	for _, n := range eventChunks() {
		qs = append(qs, w.insertEvents[n])
	}
	return qs
}
