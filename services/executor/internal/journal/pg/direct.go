package pg

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// direct holds the statements for batches that need no look first: they begin a run, or follow on what is
// known. If one of them finds something else than was known, the whole commit fails, and everything is
// written again with a look first.
type direct struct {
	// The second form of each has the fence in it, for when it goes first. statuses updates rows of which
	// nothing but the status changes. Rows of runs that end are written before their commands are removed.
	runs, rows, statuses, events [2]string
	details, outcomes            string
}

// fence locks the row of the executor whose id and incarnation are the parameters from $first on, in its
// present version, whatever the snapshot of the statement is. It divides by zero if the row is not there.
// The lock is held until the commit. It is the weakest that a DELETE or FOR UPDATE waits for, so that
// heartbeats do not wait for commits. Nothing is counted here or below: an aggregate takes longer than a
// row.
func fence(first int) string {
	return fmt.Sprintf("1 / coalesce((SELECT 1 FROM executors WHERE id = $%d AND incarnation = $%d FOR KEY SHARE), 0)", first, first+1)
}

// fenceFailed is the SQLSTATE of a division by zero, of which there are no others in a commit.
const fenceFailed = "22012"

// few are the numbers of rows that have statements of their own. More than many rows are written by arrays.
var few = [...]int{8, 4, 2, 1}

const many = 24

// portions calls write for parts of rows and the statements for so many.
func portions[T any](s *statements, rows []T, write func(d *direct, part []T, few bool)) {
	if len(rows) > many {
		write(s.direct[0], rows, false)
		return
	}
	for _, n := range few {
		for len(rows) >= n {
			write(s.direct[n], rows[:n], true)
			rows = rows[n:]
		}
	}
}

// makeDirect renders the statements for so many rows, or for any number by arrays if it is 0.
func (s *statements) makeDirect(rows int) *direct {
	d := &direct{}
	both := func(format string, params int) (out [2]string) {
		out[0] = fmt.Sprintf(format, "")
		out[1] = fmt.Sprintf(format, " AND "+fence(params+1)+" = 1")
		return out
	}
	n, names := s.runs.params(rows), s.runs.names("", "pending")
	d.runs = both("INSERT INTO runs (owner_id, owner_incarnation, revision, takeovers, "+names+fmt.Sprintf(`)
		SELECT CASE WHEN pending THEN '' ELSE $%d::text END, CASE WHEN pending THEN 0 ELSE $%d::bigint END, 1, 0, `, n+1, n+2)+names+
		" FROM "+s.runs.some(rows, 1, "u")+" WHERE true%s", n)
	names = s.details.names("")
	d.details = "INSERT INTO run_details (" + names + ") SELECT " + names + " FROM " + s.details.some(rows, 1, "d")
	n = s.appends.params(rows)
	update := func(plain bool) [2]string {
		// The statement divides by zero unless it updated so many rows.
		return both("WITH upd AS ("+s.updateRows(rows, plain, " AND r.last_seq <= u.expected%s")+fmt.Sprintf(` RETURNING r.run_id, r.revision)
			SELECT so, upd.run_id, upd.revision FROM (SELECT 1 / coalesce((SELECT 1 FROM upd OFFSET $%d::bigint - 1 LIMIT 1), 0)) AS whole (so) LEFT JOIN upd ON true`, n+3), n)
	}
	d.rows, d.statuses = update(false), update(true)
	d.outcomes = "UPDATE run_details d SET result = c.result, outputs = c.outputs, error = c.error FROM " + s.outcomes.some(rows, 1, "c") + " WHERE d.run_id = c.run_id"
	n, names = s.events.params(rows), s.events.names("")
	d.events = both("INSERT INTO events ("+names+") SELECT "+names+" FROM "+s.events.some(rows, 1, "e")+" WHERE true%s", n)
	return d
}

// queueDirect queues all that the batches write. The revisions of rows go to each. If first is set, nothing
// in the commit has locked the executor's row yet.
func (s *statements) queueDirect(batch *pgx.Batch, owner journal.Owner, starts, appends []runBatch, first bool, each func(runID string, revision int64)) {
	queue := func(forms [2]string, args []any, more ...any) {
		form := 0
		if first {
			form = 1
		}
		batch.Queue(forms[form], append(append(args, owner.ID, owner.Incarnation), more...)...)
		first = false
	}
	var rows, statuses, ended []runBatch
	var over []string
	for _, u := range appends {
		switch {
		case !u.TouchesRow():
		case u.Status != nil && !u.Release && u.GraphChanges == 0:
			statuses = append(statuses, u)
		default:
			rows = append(rows, u)
		}
		if u.Outcome != nil {
			ended = append(ended, u)
		}
		if u.Ends() {
			over = append(over, u.RunID)
		}
	}
	portions(s, starts, func(d *direct, part []runBatch, few bool) {
		queue(d.runs, s.runs.values(part, few))
		batch.Queue(d.details, s.details.values(part, few)...)
	})
	update := func(forms [2]string, part []runBatch, few bool) {
		queue(forms, s.appends.values(part, few), len(part))
		last(batch).Query(func(rows pgx.Rows) error {
			var so int32
			var id string
			var revision int64
			_, err := pgx.ForEachRow(rows, []any{&so, &id, &revision}, func() error { each(id, revision); return nil })
			return err
		})
	}
	portions(s, statuses, func(d *direct, part []runBatch, few bool) { update(d.statuses, part, few) })
	portions(s, rows, func(d *direct, part []runBatch, few bool) { update(d.rows, part, few) })
	portions(s, ended, func(d *direct, part []runBatch, few bool) {
		batch.Queue(d.outcomes, s.outcomes.values(part, few)...)
	})
	both := appends
	if len(starts) > 0 {
		both = append(append(make([]runBatch, 0, len(starts)+len(appends)), starts...), appends...)
	}
	if len(over) > 0 {
		// Nobody adds commands to a run whose row says that it has ended. The row was written by a
		// statement before, so this one sees all commands that there are.
		batch.Queue("DELETE FROM commands WHERE run_id = ANY ($1)", over)
	}
	portions(s, eventRows(both), func(d *direct, part []sqlstore.EventRow, few bool) {
		args := s.events.values(part, few)
		if first {
			queue(d.events, args)
		} else {
			batch.Queue(d.events[0], args...)
		}
	})
	if first {
		queueFence(batch, owner)
	}
	var b builder
	s.labelRows(&b, starts, "")
	s.others(&b, both, "")
	if len(b.args) > 0 {
		batch.Queue(b.sql.String()+"\nSELECT", b.args...)
	}
}

func queueFence(batch *pgx.Batch, owner journal.Owner) {
	batch.Queue("SELECT "+fence(1), owner.ID, owner.Incarnation)
}
