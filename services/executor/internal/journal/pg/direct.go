package pg

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// direct holds the statements of units that nothing need be asked for, because they begin a run or follow on what is known. They write
// without looking first; what is not as it should be ends the whole commit by an error, and then everything is written again with a look at all.
type direct struct {
	// Each has a second form that has the fence in it, for when it goes first. Ended runs have their rows written before.
	runs, rows, events        [2]string
	details, outcomes, ending string
}

// fence locks the row of the executor whose id and incarnation are the parameters from $first on, as it is now, whatever the snapshot of the
// statement says, and divides by zero if it is not there. The lock is held until the commit. It is the weakest that a delete or FOR UPDATE
// waits for, so that heartbeats need not wait for commits.
func fence(first int) string {
	return fmt.Sprintf("1 / (SELECT count(*) FROM (SELECT FROM executors WHERE id = $%d AND incarnation = $%d FOR KEY SHARE) x)", first, first+1)
}

// fenceFailed is the SQLSTATE of a division by zero, of which there are no others in a commit.
const fenceFailed = "22012"

// few are the numbers of rows that have statements of their own; more than a few times the largest of them are written by arrays.
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
	d.rows = both("WITH upd AS ("+s.updateRows(rows, " AND r.last_seq <= u.expected%s")+fmt.Sprintf(` RETURNING r.run_id, r.revision)
		SELECT array_agg(run_id), array_agg(revision), 1 / (count(*) = $%d::bigint)::int FROM upd`, n+3), n)
	d.outcomes = "UPDATE run_details d SET result = c.result, outputs = c.outputs, error = c.error FROM " + s.outcomes.some(rows, 1, "c") + " WHERE d.run_id = c.run_id"
	n, names = s.events.params(rows), s.events.names("")
	d.events = both("INSERT INTO events ("+names+") SELECT "+names+" FROM "+s.events.some(rows, 1, "e")+" WHERE true%s", n)
	// Nobody adds mail to a run whose row says that it has ended, and what is there by then is seen, since the row was written by a statement before.
	d.ending = fmt.Sprintf("WITH m AS (DELETE FROM mail WHERE run_id = ANY ($%d::text[]))\n", n+1) + d.events[0]
	return d
}

// queueDirect queues what the units write, all that they bring along included. The results of rows go to each. If first is set, nothing in the commit
// has locked the executor's row yet.
func (s *statements) queueDirect(batch *pgx.Batch, owner journal.Owner, starts, appends []unit, first bool, each func(runID string, revision int64)) {
	queue := func(forms [2]string, args []any, more ...any) {
		form := 0
		if first {
			form = 1
		}
		batch.Queue(forms[form], append(append(args, owner.ID, owner.Incarnation), more...)...)
		first = false
	}
	var rows, ended []unit
	var over []string
	for _, u := range appends {
		if u.TouchesRow() {
			rows = append(rows, u)
		}
		if u.Outcome != nil {
			ended = append(ended, u)
		}
		if u.Ends() {
			over = append(over, u.RunID)
		}
	}
	portions(s, starts, func(d *direct, part []unit, few bool) {
		queue(d.runs, s.runs.values(part, few))
		batch.Queue(d.details, s.details.values(part, few)...)
	})
	portions(s, rows, func(d *direct, part []unit, few bool) {
		queue(d.rows, s.appends.values(part, few), len(part))
		last(batch).QueryRow(func(row pgx.Row) error {
			var ids []string
			var revisions []int64
			var all int
			err := row.Scan(&ids, &revisions, &all)
			for i, id := range ids {
				each(id, revisions[i])
			}
			return err
		})
	})
	portions(s, ended, func(d *direct, part []unit, few bool) {
		batch.Queue(d.outcomes, s.outcomes.values(part, few)...)
	})
	both := appends
	if len(starts) > 0 {
		both = append(append(make([]unit, 0, len(starts)+len(appends)), starts...), appends...)
	}
	events := eventRows(both)
	one, d := len(events) == 1, s.direct[0]
	if one {
		d = s.direct[1]
	}
	switch {
	case len(over) > 0 && len(events) > 0:
		batch.Queue(d.ending, append(s.events.values(events, one), over)...)
	case len(events) > 0 && !first:
		batch.Queue(d.events[0], s.events.values(events, one)...)
	case len(events) > 0:
		queue(d.events, s.events.values(events, one))
	}
	if len(over) > 0 && len(events) == 0 {
		batch.Queue("DELETE FROM mail WHERE run_id = ANY ($1)", over)
	}
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
