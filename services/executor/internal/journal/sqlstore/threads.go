package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

var _ thread.Store = (*Store)(nil)

const (
	// lastItem selects a column of the last item of a thread t.
	lastItem = `(SELECT i.%s FROM thread_items i WHERE i.thread_id = t.thread_id ORDER BY i.seq DESC LIMIT 1)`
	// threadColumns are those of a thread t for scanThread.
	threadColumns = `t.thread_id, t.namespace, t.key, t.agent, t.title, t.user_id, t.chat_id, t.lifetime, t.parent_id, t.parent_seq, t.depth, t.part_of, t.holder, t.below, t.create_time, t.use_time`
	// thisThread holds for the thread t that is $2 of namespace $1, and thisKey for that with the key $2.
	thisThread = ` t.thread_id = $2 AND t.namespace || '' = $1`
	thisKey    = ` t.namespace = $1 AND t.key = $2 AND t.key <> ''`
	// held holds for a thread t whose holder is open. It must be asked after the row was locked: what a
	// statement that waits for a lock sees of other rows may be older than the row.
	held = `EXISTS (SELECT 1 FROM runs r WHERE r.run_id = t.holder AND r.namespace = t.namespace AND r.state < 6)`
)

// scanThread reads threadColumns, the last sequence and the time of the last item.
func scanThread(row dbkit.Scanner, more ...any) (t thread.Thread, err error) {
	var below string
	var last time.Time
	if err := row.Scan(append([]any{&t.ID, &t.Namespace, &t.Key, &t.Agent, &t.Title, &t.UserID, &t.ChatID, &t.Lifetime, &t.ParentID, &t.ParentSeq, &t.Depth, &t.PartOf, &t.Holder, &below,
		dbkit.At(&t.CreateTime), dbkit.At(&t.UseTime), &t.Last, dbkit.At(&last)}, more...)...); err != nil {
		return t, err
	}
	if last.After(t.UseTime) {
		t.UseTime = last
	}
	if below != "" {
		t.Below = strings.Fields(below)
	}
	return t, nil
}

// selectThread reads threads t for scanThread.
func selectThread() string {
	return `SELECT ` + threadColumns + `, coalesce(` + strings.Replace(lastItem, `%s`, `seq`, 1) + `, t.parent_seq), ` + strings.Replace(lastItem, `%s`, `time`, 1)
}

// Thread implements thread.Store.
func (s *Store) Thread(ctx context.Context, namespace, id string) (thread.Thread, error) {
	return s.thread(ctx, s.db.Read, thisThread, namespace, id)
}

// ThreadByKey implements thread.Store.
func (s *Store) ThreadByKey(ctx context.Context, namespace, key string) (thread.Thread, error) {
	return s.thread(ctx, s.db.Read, thisKey, namespace, key)
}

// ThreadsByKeys implements thread.Store.
func (s *Store) ThreadsByKeys(ctx context.Context, namespace string, keys []string) ([]thread.Thread, error) {
	rows, err := s.db.Read.Query(ctx, selectThread()+` FROM threads t WHERE t.namespace = $1 AND `+s.d.In(`t.key`, `$2`)+` AND t.key <> '' AND `+s.d.Unset(`t.hide_time`), namespace, keys)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (thread.Thread, error) { return scanThread(rows) })
}

func (s *Store) thread(ctx context.Context, q dbkit.Querier, cond, namespace, name string) (thread.Thread, error) {
	t, err := scanThread(dbkit.FirstRow(q.Query(ctx, selectThread()+` FROM threads t WHERE`+cond+` AND `+s.d.Unset(`t.hide_time`), namespace, name)))
	if none(err) {
		return t, thread.NotFound(name)
	}
	return t, err
}

// ListThreads implements thread.Store.
func (s *Store) ListThreads(ctx context.Context, namespace string, f thread.Filter, after page.Cursor, limit int) ([]thread.Thread, error) {
	query, args := s.listThreads(namespace, f, after, limit)
	rows, err := s.db.Read.Query(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (thread.Thread, error) { return scanThread(rows) })
}

func (s *Store) listThreads(namespace string, f thread.Filter, after page.Cursor, limit int) (query string, args []any) {
	var a arguments
	conds := []string{"t.namespace = " + a.add(namespace), s.d.Unset("t.hide_time")}
	if f.Agent != "" {
		conds = append(conds, "t.agent = "+a.add(f.Agent)+" AND t.agent <> ''")
	}
	if f.ParentID != "" {
		conds = append(conds, "t.parent_id = "+a.add(f.ParentID)+" AND t.parent_id <> ''")
	}
	if f.Lifetime != 0 {
		conds = append(conds, "t.lifetime = "+a.add(int32(f.Lifetime)))
	}
	if f.KeyPrefix != "" {
		p := a.add(f.KeyPrefix)
		conds = append(conds, "t.key >= "+p+" AND substr(t.key, 1, length("+s.d.Text(p)+")) = "+p)
	}
	if !after.IsZero() {
		conds = append(conds, "(t.create_time, t.thread_id) < ("+a.add(after.CreateTime)+", "+a.add(after.ID)+")")
	}
	return selectThread() + " FROM threads t WHERE " + strings.Join(conds, " AND ") + " ORDER BY t.create_time DESC, t.thread_id DESC LIMIT " + a.add(limit), a
}

// CreateThread implements thread.Store.
func (s *Store) CreateThread(ctx context.Context, c thread.Create) (made thread.Thread, err error) {
	err = s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		t := c.Thread
		id, err := s.requested(ctx, tx, t.Namespace, c.Request, t.ID, t.CreateTime)
		if err != nil {
			return err
		}
		if id != t.ID {
			made, err = s.thread(ctx, tx, thisThread, t.Namespace, id)
			return err
		}
		if c.Refused != nil {
			return c.Refused
		}
		if t.ParentID != "" {
			p, err := s.lockedThread(ctx, tx, t.Namespace, t.ParentID)
			switch {
			case err != nil:
				return err
			case t.ParentSeq > p.Last:
				return thread.SeqNotThere(p.ID, t.ParentSeq, p.Last)
			case p.Depth >= thread.MaxDepth:
				return thread.TooDeep(p.ID)
			case t.ParentSeq == 0:
				t.ParentSeq = p.Last
			}
			t.Depth = p.Depth + 1
		}
		if err := s.use(ctx, tx, t.Namespace, thread.Usage{Threads: 1}, c.Room); err != nil {
			return err
		}
		if err := s.insertThread(ctx, tx, &t); err != nil {
			return err
		}
		if err := s.tell(ctx, tx, t.Namespace, thread.Tell([]thread.Thread{t}, nil, "")); err != nil {
			return err
		}
		t.CreateTime, t.UseTime, t.Last = dbkit.Micros(t.CreateTime), dbkit.Micros(t.CreateTime), t.ParentSeq
		made = t
		return nil
	})
	return made, err
}

// requested remembers a request, and returns the id of what it made: the given one if it was not seen before.
func (s *Store) requested(ctx context.Context, tx dbkit.Querier, namespace string, q thread.Request, id string, now time.Time) (string, error) {
	if q.ID == "" {
		return id, nil
	}
	n, err := tx.Exec(ctx, `INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		namespace, q.Method, q.ID, q.BodyHash, id, now)
	if err != nil || n > 0 {
		return id, err
	}
	var hash string
	err = dbkit.FirstRow(tx.Query(ctx, `SELECT body_hash, run_id FROM request_ids WHERE namespace = $1 AND method = $2 AND request_id = $3`,
		namespace, q.Method, q.ID)).Scan(&hash, &id)
	if err == nil && hash != q.BodyHash {
		err = journal.RequestIDReused(q.ID)
	}
	return id, err
}

// lockedThread locks the row of a thread and reads it.
func (s *Store) lockedThread(ctx context.Context, tx dbkit.Querier, namespace, id string) (thread.Thread, error) {
	if lock := s.d.LockedToUpdate(); lock != "" {
		// A statement of its own, so that the next one sees what was committed before the lock was had.
		if _, err := tx.Exec(ctx, `SELECT 1 FROM threads t WHERE`+thisThread+lock, namespace, id); err != nil {
			return thread.Thread{}, err
		}
	}
	return s.thread(ctx, tx, thisThread, namespace, id)
}

// HoldThread implements thread.Store.
func (s *Store) HoldThread(ctx context.Context, namespace, id string, runs []string) error {
	return s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		t, err := s.lockedThread(ctx, tx, namespace, id)
		if err != nil {
			return err
		}
		had := []string{}
		if t.Holder != "" {
			had = append([]string{t.Holder}, t.Below...)
		}
		// Below the root a run that was told to end is as good as ended: the one that takes its place may not
		// have to wait for it.
		rows, err := tx.Query(ctx, `SELECT r.run_id, r.state < 6 AND (r.run_id = $2 OR NOT EXISTS (
			SELECT 1 FROM commands c WHERE c.run_id = r.run_id AND c.kind = '`+string(journal.CommandCancel)+`')) FROM runs r WHERE r.namespace = $3 AND `+s.d.In(`r.run_id`, `$1`), had, t.Holder, namespace)
		open := map[string]bool{}
		if _, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (id string, err error) {
			var is bool
			err = rows.Scan(&id, &is)
			open[id] = is
			return id, err
		}); err != nil {
			return err
		}
		next, by := thread.Hold(had, func(run string) bool { return open[run] }, runs)
		if by != "" {
			return thread.Busy(id, by)
		}
		_, err = tx.Exec(ctx, `UPDATE threads AS t SET holder = $3, below = $4, use_time = `+s.d.Now()+` WHERE`+thisThread,
			namespace, id, next[0], strings.Join(next[1:], " "))
		return err
	})
}

// Lineage implements thread.Store.
func (s *Store) Lineage(ctx context.Context, namespace, id string) ([]thread.Segment, error) {
	rows, err := s.db.Read.Query(ctx, `WITH RECURSIVE up (thread_id, parent_id, parent_seq, last, level) AS (
			SELECT t.thread_id, t.parent_id, t.parent_seq, coalesce(`+strings.Replace(lastItem, `%s`, `seq`, 1)+`, t.parent_seq), 0
			FROM threads t WHERE`+thisThread+` AND `+s.d.Unset(`t.hide_time`)+`
			UNION ALL SELECT p.thread_id, p.parent_id, p.parent_seq, `+s.d.Least(`up.last`, `up.parent_seq`)+`, up.level + 1
			FROM up JOIN threads p ON p.thread_id = up.parent_id WHERE up.parent_id <> '' AND up.parent_seq > 0 AND up.level <= $3)
		SELECT thread_id, parent_seq + 1, last FROM up ORDER BY level`, namespace, id, thread.MaxDepth)
	found, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (g thread.Segment, err error) {
		err = rows.Scan(&g.Thread, &g.First, &g.Last)
		return g, err
	})
	if err == nil && len(found) == 0 {
		return nil, thread.NotFound(id)
	}
	return found, err
}

// SegmentItems implements thread.Store.
func (s *Store) SegmentItems(ctx context.Context, namespace string, g thread.Segment, q thread.Selection) ([]thread.Item, error) {
	var a arguments
	conds := []string{"i.thread_id = " + a.add(g.Thread), "i.seq >= " + a.add(g.First), "i.seq <= " + a.add(g.Last)}
	switch len(q.Kinds) { // rows of other kinds are looked at, too: an equality costs the least
	case 0:
	case 1:
		conds = append(conds, "i.kind = "+a.add(int32(q.Kinds[0])))
	default:
		conds = append(conds, s.d.In("i.kind", a.add(numbers(q.Kinds))))
	}
	conds = append(conds, "i.namespace = "+a.add(namespace))
	var blank thread.Item
	var it thread.Item // thousands of rows are read into the same places
	columns, into := `i.seq, i.brief`, []any{&it.Seq, &it.Brief}
	if len(q.Kinds) == 1 {
		blank.Kind = q.Kinds[0]
	} else {
		columns, into = columns+`, i.kind`, append(into, &it.Kind)
	}
	if q.Body {
		columns, into = columns+`, i.body`, append(into, &it.Body)
	}
	if q.Origin {
		columns, into = columns+`, i.time, i.run_id, i.node_id, i.visit`, append(into, dbkit.At(&it.Time), &it.RunID, &it.NodeID, &it.Visit)
	}
	rows, err := s.db.Read.Query(ctx, `SELECT `+columns+` FROM thread_items i WHERE `+strings.Join(conds, " AND ")+` ORDER BY i.seq DESC LIMIT `+a.add(q.Limit), a...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (thread.Item, error) {
		it = blank
		err := rows.Scan(into...)
		return it, err
	})
}

// SweepThreads implements thread.Store.
func (s *Store) SweepThreads(ctx context.Context, unusedSince time.Time, after string, limit int) (hidden int, next string, err error) {
	last := strings.Replace(lastItem, `%s`, `time`, 1)
	over := `t.lifetime > 1 AND ` + s.d.Unset(`t.hide_time`) + ` AND NOT ` + held + `
		AND (t.lifetime = 3 AND t.holder <> '' OR t.use_time < $1 AND coalesce(` + last + ` < $1, true)
			AND NOT EXISTS (SELECT 1 FROM threads o WHERE o.thread_id = t.part_of AND t.part_of <> '' AND ` + s.d.Unset(`o.hide_time`) + `))`
	err = s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		hidden, next = 0, ""
		rows, err := tx.Query(ctx, `SELECT t.thread_id, t.holder, t.below, `+over+` FROM threads t WHERE t.lifetime > 1 AND `+s.d.Unset(`t.hide_time`)+`
			AND t.thread_id > $2 ORDER BY t.thread_id LIMIT $3`, unusedSince, after, limit)
		var past []thread.Thread
		seen := 0
		if _, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (t thread.Thread, err error) {
			var over bool
			var below string
			if err = rows.Scan(&t.ID, &t.Holder, &below, &over); over {
				t.Below = strings.Fields(below)
				past = append(past, t)
			}
			seen, next = seen+1, t.ID
			return t, err
		}); err != nil {
			return err
		}
		if seen < limit {
			next = ""
		}
		ids, err := s.unneeded(ctx, tx, past)
		if err != nil || len(ids) == 0 {
			return err
		}
		if lock := s.d.LockedToUpdate(); lock != "" {
			if _, err := tx.Exec(ctx, `SELECT 1 FROM threads t WHERE `+s.d.In(`t.thread_id`, `$1`)+` ORDER BY t.thread_id`+lock, ids); err != nil {
				return err
			}
		}
		hidden, err = s.hide(ctx, tx, s.d.In(`t.thread_id`, `$2`)+` AND `+over, unusedSince, ids)
		return err
	})
	return hidden, next, err
}

// unneeded are those of threads whose time is over that no failed run needs: one can be retried from any of
// its visits.
func (s *Store) unneeded(ctx context.Context, tx dbkit.Querier, past []thread.Thread) ([]string, error) {
	var runs []string
	for i := range past {
		if t := &past[i]; t.Holder != "" {
			runs = append(append(runs, t.Holder), t.Below...)
		}
	}
	failed := map[string]bool{}
	if len(runs) > 0 {
		rows, err := tx.Query(ctx, `SELECT r.run_id FROM runs r WHERE `+s.d.In(`r.run_id`, `$1`)+` AND r.state = `+strconv.Itoa(int(journal.StateFailed))+` AND r.namespace <> '`+journal.Deleted+`'`, runs)
		if _, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (id string, err error) {
			err = rows.Scan(&id)
			failed[id] = true
			return id, err
		}); err != nil {
			return nil, err
		}
	}
	var ids []string
	for i := range past {
		t := &past[i]
		if !failed[t.Holder] && !slices.ContainsFunc(t.Below, func(id string) bool { return failed[id] }) {
			ids = append(ids, t.ID)
		}
	}
	return ids, nil
}

// parameters renders the first n parameters.
func parameters(n int) string {
	var a arguments
	out := make([]string, n)
	for i := range out {
		out[i] = a.add(nil)
	}
	return strings.Join(out, ", ")
}
