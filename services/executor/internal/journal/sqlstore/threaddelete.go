package sqlstore

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// deletePage is how many rows one transaction of a deletion changes.
const deletePage = 500

// DeleteThread implements thread.Store. The thread is gone with the first transaction. Its parts and
// deliveries follow in pages. If that breaks off, HideParts and PurgeThreads go on with it, so that the
// answer does not depend on it.
func (s *Store) DeleteThread(ctx context.Context, namespace, id string) error {
	if err := s.familyIsFree(ctx, namespace, id); err != nil {
		return err
	}
	err := s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		if _, err := s.lockedThread(ctx, tx, namespace, id); err != nil {
			return err
		}
		var holder string
		err := dbkit.FirstRow(tx.Query(ctx, `SELECT t.holder FROM threads t WHERE`+thisThread+` AND `+held, namespace, id)).Scan(&holder)
		if err == nil {
			return thread.Busy(id, holder)
		} else if !none(err) {
			return err
		}
		_, err = s.hide(ctx, tx, thisThread, namespace, id)
		return err
	})
	if err != nil {
		return err
	}
	if s.hideBelow(ctx, s.db.Read, []string{id}, deletePage) == nil {
		for more := true; more; {
			n, err := s.forgetEvents(ctx, s.db.Read, namespace, id, deletePage)
			more = err == nil && n == deletePage
		}
	}
	return nil
}

// familyIsFree returns the error of a thread of which an open run holds the whole or a part. A run that
// begins on a part at the same moment keeps that part until it ends.
func (s *Store) familyIsFree(ctx context.Context, namespace, id string) error {
	var busy, holder string
	err := dbkit.FirstRow(s.db.Read.Query(ctx, `WITH RECURSIVE below (thread_id) AS (
			SELECT t.thread_id FROM threads t WHERE`+thisThread+` AND `+s.d.Unset(`t.hide_time`)+`
			UNION SELECT t.thread_id FROM below JOIN threads t ON t.part_of = below.thread_id WHERE t.namespace = $1 AND t.part_of <> '' AND `+s.d.Unset(`t.hide_time`)+`)
		SELECT t.thread_id, t.holder FROM threads t WHERE t.thread_id IN (SELECT thread_id FROM below) AND `+held+` ORDER BY t.thread_id LIMIT 1`, namespace, id)).Scan(&busy, &holder)
	if none(err) {
		return nil
	} else if err != nil {
		return err
	}
	return thread.Busy(busy, holder)
}

// updater is a database in which transactions are made.
type updater interface {
	Update(ctx context.Context, fn func(context.Context, dbkit.Querier) error) error
}

// hideBelow hides the parts of threads, however deep, in transactions of limit rows. Those that an open
// run holds stay.
func (s *Store) hideBelow(ctx context.Context, db updater, wholes []string, limit int) error {
	for len(wholes) > 0 {
		some := wholes[:min(limit, len(wholes))]
		for more := true; more; {
			var ids []string
			err := db.Update(ctx, func(ctx context.Context, tx dbkit.Querier) (err error) {
				ids, err = s.hideSome(ctx, tx, some, limit)
				return err
			})
			if err != nil {
				return err
			}
			wholes, more = append(wholes, ids...), len(ids) == limit
		}
		wholes = wholes[len(some):]
	}
	return nil
}

// hideSome hides up to limit parts of threads, and returns them.
func (s *Store) hideSome(ctx context.Context, tx dbkit.Querier, wholes []string, limit int) ([]string, error) {
	free := s.d.Unset(`t.hide_time`) + ` AND NOT ` + held
	rows, err := tx.Query(ctx, `SELECT t.thread_id FROM threads t WHERE `+s.d.In(`t.part_of`, `$1`)+` AND t.part_of <> '' AND `+free+` LIMIT $2`, wholes, limit)
	ids, err := dbkit.Collect(rows, err, scanID)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if lock := s.d.LockedToUpdate(); lock != "" {
		if _, err := tx.Exec(ctx, `SELECT 1 FROM threads t WHERE `+s.d.In(`t.thread_id`, `$1`)+` ORDER BY t.thread_id`+lock, ids); err != nil {
			return nil, err
		}
	}
	_, err = s.hide(ctx, tx, s.d.In(`t.thread_id`, `$1`)+` AND `+free, ids)
	return ids, err
}

// hide hides the threads t for which a condition holds, tells of them and returns how many they are.
func (s *Store) hide(ctx context.Context, tx dbkit.Querier, cond string, args ...any) (int, error) {
	rows, err := tx.Query(ctx, `UPDATE threads AS t SET hide_time = `+s.d.Now()+`, key = '' WHERE `+cond+`
		RETURNING thread_id, namespace, agent, title, user_id, lifetime, parent_id, parent_seq, part_of`, args...)
	gone, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (t thread.Thread, err error) {
		err = rows.Scan(&t.ID, &t.Namespace, &t.Agent, &t.Title, &t.UserID, &t.Lifetime, &t.ParentID, &t.ParentSeq, &t.PartOf)
		return t, err
	})
	now := dbkit.Now()
	for i := range gone {
		if err == nil {
			err = s.tell(ctx, tx, gone[i].Namespace, []thread.Told{{ID: gone[i].ID, Gone: &gone[i], Time: now}})
		}
	}
	return len(gone), err
}

// tell writes outbox items of changes of threads that no run made.
func (s *Store) tell(ctx context.Context, tx dbkit.Querier, namespace string, list []thread.Told) error {
	var rows []OutRow
	for _, row := range s.db.TellThread.Rows(list) {
		rows = append(rows, OutRow{Namespace: namespace, OutRow: &row})
	}
	return s.putOutbox(ctx, tx, rows)
}

// putOutbox writes outbox items outside of a commit.
func (s *Store) putOutbox(ctx context.Context, tx dbkit.Querier, rows []OutRow) error {
	if len(rows) == 0 {
		return nil
	}
	columns := OutboxColumns()[1:] // the first one is of commits
	stmts := make([]dbkit.Stmt, len(rows))
	for i, row := range rows {
		stmts[i] = dbkit.Stmt{
			Query: `INSERT INTO outbox (` + columns.Names() + `, next_at, attempts, last_error) VALUES (` + parameters(len(columns)) + `, ` + s.d.Now() + `, 0, '')`,
			Args:  values(columns, row),
		}
	}
	return tx.Batch(ctx, stmts...)
}

func scanID(rows dbkit.Rows) (id string, err error) {
	err = rows.Scan(&id)
	return id, err
}

// HideParts implements thread.Store.
func (s *Store) HideParts(ctx context.Context, after string, limit int) (next string, err error) {
	rows, err := s.db.Engine.Query(ctx, `SELECT t.thread_id FROM threads t WHERE `+s.d.Set(`t.hide_time`)+` AND t.thread_id > $1 ORDER BY t.thread_id LIMIT $2`, after, limit)
	wholes, err := dbkit.Collect(rows, err, scanID)
	if err != nil || len(wholes) == 0 {
		return "", err
	}
	if len(wholes) == limit {
		next = wholes[limit-1]
	}
	return next, s.hideBelow(ctx, s.db.Engine, wholes, limit)
}

// forgetEvents removes up to limit deliveries of chat triggers that hold the messages of a thread: see
// trigger.ThreadEvent. "0" is the character behind "/".
func (s *Store) forgetEvents(ctx context.Context, q dbkit.Querier, namespace, id string, limit int) (int, error) {
	n, err := q.Exec(ctx, `DELETE FROM trigger_deliveries WHERE namespace = $1 AND `+s.d.InSelect(`id`, `SELECT d.id FROM trigger_deliveries d WHERE d.namespace = $1
		AND d.event_id > $2 AND d.event_id < $3 AND d.trigger_id IN (SELECT id FROM triggers WHERE namespace = $1 AND kind = 'chat') LIMIT $4`), namespace, id+"/", id+"0", limit)
	return int(n), err
}

// PurgeThreads implements thread.Store.
func (s *Store) PurgeThreads(ctx context.Context, limit int) (more bool, err error) {
	err = s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		more = false
		var id, namespace string
		// HideParts finds the parts of a thread by its row.
		err := dbkit.FirstRow(tx.Query(ctx, `SELECT t.thread_id, t.namespace FROM threads t WHERE `+s.d.Set(`t.hide_time`)+`
			AND NOT `+s.d.Holds(`threads`, `f`, `f.parent_id = t.thread_id AND f.parent_id <> ''`)+`
			AND NOT `+s.d.Holds(`threads`, `p`, `p.part_of = t.thread_id AND p.part_of <> '' AND `+s.d.Unset(`p.hide_time`))+`
			ORDER BY t.thread_id LIMIT 1`+s.d.LockedFree())).Scan(&id, &namespace)
		if none(err) {
			return nil
		} else if err != nil {
			return err
		}
		more = true
		less, err := s.purge(ctx, tx, namespace, id, limit)
		if err != nil {
			return err
		}
		return s.use(ctx, tx, namespace, thread.Usage{Threads: -less.Threads, Bytes: -less.Bytes}, thread.Room{})
	})
	return more, err
}

// purge removes up to limit items, deliveries or messages of a thread, and with the last of them the
// thread itself. It returns what the namespace takes less.
func (s *Store) purge(ctx context.Context, tx dbkit.Querier, namespace, id string, limit int) (less thread.Usage, err error) {
	first := ` FROM thread_items WHERE thread_id = $1 ORDER BY seq LIMIT $2`
	if err := dbkit.FirstRow(tx.Query(ctx, `SELECT CAST(coalesce(sum(i.weight), 0) AS bigint) FROM (SELECT weight`+first+`) i`, id, limit)).Scan(&less.Bytes); err != nil {
		return less, err
	}
	gone, err := tx.Exec(ctx, `DELETE FROM thread_items WHERE thread_id = $1 AND `+s.d.InSelect(`seq`, `SELECT seq`+first), id, limit)
	if err != nil || int(gone) >= limit {
		return less, err
	}
	if n, err := s.forgetEvents(ctx, tx, namespace, id, limit); err != nil || n >= limit {
		return less, err
	}
	var messages int64
	first = ` FROM thread_turns WHERE thread_id = $1 ORDER BY number LIMIT $2`
	if err := dbkit.FirstRow(tx.Query(ctx, `SELECT CAST(coalesce(sum(length(u.message) + $3), 0) AS bigint) FROM (SELECT message`+first+`) u`, id, limit, thread.Overhead)).Scan(&messages); err != nil {
		return less, err
	}
	less.Bytes += messages
	gone, err = tx.Exec(ctx, `DELETE FROM thread_turns WHERE thread_id = $1 AND `+s.d.InSelect(`number`, `SELECT number`+first), id, limit)
	if err != nil || int(gone) >= limit {
		return less, err
	}
	less.Threads = 1
	return less, tx.Batch(ctx, dbkit.Stmt{Query: `DELETE FROM blob_refs WHERE run_id = $1`, Args: []any{id}}, dbkit.Stmt{Query: `DELETE FROM threads WHERE thread_id = $1`, Args: []any{id}})
}
