package sqlstore

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// selectTurn reads turns u for scanTurn.
const selectTurn = `SELECT u.namespace, u.thread_id, u.number, u.state, u.run_id, u.interrupt_id, u.asked_by, u.message, u.principal, u.answers_any, u.error, u.create_time, u.start_time
	FROM thread_turns u WHERE u.thread_id = $2 AND u.namespace || '' = $1`

// scanTurn reads a row of selectTurn.
func scanTurn(row dbkit.Scanner) (u thread.Turn, err error) {
	err = row.Scan(&u.Namespace, &u.Thread, &u.Number, &u.State, &u.RunID, &u.InterruptID, &u.AskedBy, &u.Message, &u.Principal, &u.AnswersAny, &u.Error,
		dbkit.At(&u.CreateTime), dbkit.At(&u.StartTime))
	return u, err
}

// TurnsWait holds for a thread t that somebody holds, or held, and for which messages wait.
func TurnsWait(d dbkit.Dialect) string {
	return ` t.holder <> '' AND ` + d.Holds(`thread_turns`, `u`, `u.thread_id = t.thread_id AND u.state = 1`)
}

// QueueTurn implements thread.Turns.
func (s *Store) QueueTurn(ctx context.Context, u thread.Turn, q thread.Request, b thread.Bounds) (queued thread.Turn, err error) {
	err = s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		// The request is answered by the run that its turn would start, which names the turn.
		run, err := s.requested(ctx, tx, u.Namespace, q, u.RunID, u.CreateTime)
		if err != nil {
			return err
		}
		if run != u.RunID {
			queued, err = scanTurn(dbkit.FirstRow(tx.Query(ctx, selectTurn+` AND u.run_id = $3`, u.Namespace, u.Thread, run)))
			if none(err) {
				return thread.NotFound(u.Thread)
			}
			return err
		}
		t, err := s.lockedThread(ctx, tx, u.Namespace, u.Thread)
		if err != nil {
			return err
		}
		if t.Agent == "" {
			return thread.NoAgent(t.ID)
		}
		if b.Refused != nil {
			return b.Refused
		}
		if lock := s.d.LockedToUpdate(); lock != "" && t.Holder != "" {
			// The commit that ends the holder sees the turn, or whoever looks for the next turn sees the end.
			if _, err := tx.Exec(ctx, `SELECT 1 FROM runs r WHERE r.run_id = $1`+lock, t.Holder); err != nil {
				return err
			}
		}
		var last int64
		var waiting int
		if err := dbkit.FirstRow(tx.Query(ctx, `SELECT coalesce((SELECT u.number FROM thread_turns u WHERE u.thread_id = $1 ORDER BY u.number DESC LIMIT 1), 0),
			(SELECT count(*) FROM thread_turns u WHERE u.thread_id = $1 AND u.state = 1)`, u.Thread)).Scan(&last, &waiting); err != nil {
			return err
		}
		if waiting >= b.Queued {
			return thread.QueueFull(t.ID, b.Queued)
		}
		if err := s.use(ctx, tx, u.Namespace, thread.Usage{Bytes: u.Weight()}, b.Room); err != nil {
			return err
		}
		queued = u
		queued.Number, queued.State, queued.CreateTime = last+1, thread.TurnQueued, dbkit.Micros(u.CreateTime)
		_, err = tx.Exec(ctx, `INSERT INTO thread_turns (thread_id, number, namespace, state, create_time, run_id, principal, answers_any, message)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			u.Thread, queued.Number, u.Namespace, int32(queued.State), u.CreateTime, u.RunID, u.Principal, u.AnswersAny, u.Message)
		return err
	})
	return queued, err
}

// NextTurn implements thread.Turns.
func (s *Store) NextTurn(ctx context.Context, namespace, id string) (line thread.Line, err error) {
	if line.Thread, err = s.Thread(ctx, namespace, id); err != nil {
		return line, err
	}
	next, err := scanTurn(dbkit.FirstRow(s.db.Read.Query(ctx, selectTurn+` AND u.state = 1 ORDER BY u.number LIMIT 1`, namespace, id)))
	if none(err) {
		return line, nil
	} else if err != nil {
		return line, err
	}
	line.Next = &next
	type work struct {
		run   string
		state int32
	}
	rows, err := s.db.Read.Query(ctx, `SELECT r.run_id, r.state FROM runs r WHERE r.run_id IN ($3, $4, (SELECT u.run_id FROM thread_turns u
		WHERE u.thread_id = $2 AND u.state = 2 ORDER BY u.number DESC LIMIT 1)) AND r.namespace || '' = $1 ORDER BY r.run_id`, namespace, id, line.Thread.Holder, next.RunID)
	found, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (w work, err error) {
		err = rows.Scan(&w.run, &w.state)
		return w, err
	})
	for _, w := range found {
		line.Began = line.Began || w.run == next.RunID
		if !journal.State(w.state).Ended() {
			line.Runs = append(line.Runs, w.run)
		}
	}
	return line, err
}

// SettleTurn implements thread.Turns.
func (s *Store) SettleTurn(ctx context.Context, u thread.Turn) error {
	_, err := s.db.Read.Exec(ctx, `UPDATE thread_turns SET state = $4, interrupt_id = $5, error = $6, start_time = $7, asked_by = $8
		WHERE thread_id = $2 AND number = $3 AND namespace = $1 AND state = 1`, u.Namespace, u.Thread, u.Number, int32(u.State), u.InterruptID, u.Error, u.StartTime, u.AskedBy)
	return err
}

// Turn implements thread.Turns.
func (s *Store) Turn(ctx context.Context, namespace, id string, number int64) (thread.Turn, error) {
	if _, err := s.Thread(ctx, namespace, id); err != nil {
		return thread.Turn{}, err
	}
	u, err := scanTurn(dbkit.FirstRow(s.db.Read.Query(ctx, selectTurn+` AND u.number = $3`, namespace, id, number)))
	if none(err) {
		return u, thread.TurnNotFound(id, number)
	}
	return u, err
}

// ListTurns implements thread.Turns.
func (s *Store) ListTurns(ctx context.Context, namespace, id string, after int64, limit int) ([]thread.Turn, error) {
	if _, err := s.Thread(ctx, namespace, id); err != nil {
		return nil, err
	}
	rows, err := s.db.Read.Query(ctx, selectTurn+` AND u.number > $3 ORDER BY u.number LIMIT $4`, namespace, id, after, limit)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (thread.Turn, error) { return scanTurn(rows) })
}

// HeldTurns implements thread.Turns.
func (s *Store) HeldTurns(ctx context.Context, namespace, runID, after string, limit int) ([]string, error) {
	rows, err := s.db.Engine.Query(ctx, `WITH RECURSIVE up (run_id, parent_run_id, level) AS (
			SELECT r.run_id, r.parent_run_id, 0 FROM runs r WHERE r.run_id = $2 AND r.namespace || '' = $1
			UNION ALL SELECT p.run_id, p.parent_run_id, up.level + 1 FROM up JOIN runs p ON p.run_id = up.parent_run_id WHERE up.parent_run_id <> '' AND up.level < 100)
		SELECT t.thread_id FROM up`+s.d.LookUp(`threads`, `t`, `t.holder = up.run_id AND`+TurnsWait(s.d))+` WHERE t.thread_id > $3 ORDER BY t.thread_id LIMIT $4`,
		namespace, runID, after, limit)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (id string, err error) {
		err = rows.Scan(&id)
		return id, err
	})
}

// OverdueTurns implements thread.Turns.
func (s *Store) OverdueTurns(ctx context.Context, before time.Time, after string, limit int) ([]thread.Name, error) {
	rows, err := s.db.Engine.Query(ctx, `SELECT DISTINCT u.namespace, u.thread_id FROM thread_turns u WHERE u.state = 1 AND u.create_time < $1 AND u.thread_id > $2
		ORDER BY u.thread_id LIMIT $3`, before, after, limit)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (n thread.Name, err error) {
		err = rows.Scan(&n.Namespace, &n.ID)
		return n, err
	})
}
