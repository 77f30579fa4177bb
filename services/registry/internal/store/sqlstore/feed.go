package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
)

// feedTypes are the columns of an event behind its namespace and time, with their types on PostgreSQL.
// n is its number in the statement, from 1.
func feedTypes() [][2]string {
	return [][2]string{{"n", "bigint"}, {"epic_id", "text"}, {"slug", "text"}, {"run_id", "text"}, {"thread_id", "text"}, {"kind", "text"}, {"body", "text"}}
}

// appendFeed adds events to the feed of a namespace, which stays locked until the end of the
// transaction.
func (t tx) appendFeed(ctx context.Context, namespace string, events []feed.Event) error {
	rows, size := make([][]any, len(events)), int64(0)
	for i, e := range events {
		body, err := text(e.Body)
		if err != nil {
			return err
		}
		size += int64(len(body))
		rows[i] = []any{int64(i + 1), e.EpicID, e.Slug, e.Body.Run, e.ThreadID, string(e.Kind), body}
	}
	columns := feedTypes()
	return t.Batch(ctx, dbkit.Stmt{
		Query: `INSERT INTO feeds (namespace, seq, bytes) VALUES ($1, $2, $3)
			ON CONFLICT (namespace) DO UPDATE SET seq = feeds.seq + excluded.seq, bytes = feeds.bytes + excluded.bytes`,
		Args: []any{namespace, int64(len(events)), size},
	}, dbkit.Stmt{
		Query: `INSERT INTO feed (namespace, seq, time, epic_id, slug, run_id, thread_id, kind, body)
			SELECT f.namespace, f.seq - $2 + r.n, ` + t.d.Now() + `, r.epic_id, r.slug, r.run_id, r.thread_id, r.kind, r.body
			FROM ` + t.d.Rows(`r`, 3, columns...) + ` CROSS JOIN feeds f WHERE f.namespace = $1`,
		Args: append([]any{namespace, int64(len(events))}, t.d.RowArgs(len(columns), rows)...),
	})
}

// Sequences that one query of the feed looks at: without a filter that has an index, and with one.
const lookedAt, lookedUp = 1000, 20_000

// Events implements store.Reader.
func (t tx) Events(ctx context.Context, q feed.Query) (feed.Page, error) {
	window := int64(lookedAt)
	w := where{args: []any{q.Namespace, q.After, q.After}}
	if q.EpicID != "" {
		w.add("e.epic_id = %s AND e.epic_id <> ''", q.EpicID)
		window = lookedUp
	}
	if q.Slug != "" {
		w.add("e.slug = %s AND e.slug <> ''", q.Slug)
		window = lookedUp
	}
	if q.RunID != "" {
		w.add("e.run_id = %s AND e.run_id <> ''", q.RunID)
		window = lookedUp
	}
	if q.ThreadID != "" {
		w.add("e.thread_id = %s AND e.thread_id <> ''", q.ThreadID)
		window = lookedUp
	}
	kinds := make([]string, len(q.Kinds))
	for i, k := range q.Kinds {
		kinds[i] = string(k)
	}
	if len(kinds) > 0 {
		w.parts = append(w.parts, t.d.In("e.kind", w.arg(kinds)))
	}
	last, gone, err := t.feedEnds(ctx, q.Namespace)
	if err != nil {
		return feed.Page{}, err
	}
	if err := feed.CheckCursor(q.After, gone, last); err != nil {
		return feed.Page{}, err
	}
	from := max(q.After, gone)
	if from >= last { // so whoever looks in vain reads nothing
		return feed.Page{Cursor: from, End: true}, nil
	}
	until := min(last, from+window)
	w.args[1], w.args[2] = from, until
	w.parts = append([]string{"e.namespace = $1", "e.seq > $2", "e.seq <= $3"}, w.parts...)
	rows, err := collectPage(ctx, t, scanEvent, `SELECT e.namespace, e.seq, e.time, e.epic_id, e.slug, e.thread_id, e.kind, e.body FROM feed e`+w.end("e.seq", q.Limit), w.args...)
	if err != nil {
		return feed.Page{}, err
	}
	// On PostgreSQL each statement sees what is committed by then: events may have been removed
	// meanwhile, and would be left out as if there had never been any.
	if _, removed, err := t.feedEnds(ctx, q.Namespace); err != nil || removed > from {
		if err == nil {
			err = feed.CheckCursor(max(from, 1), removed, last)
		}
		return feed.Page{}, err
	}
	rows, cut := fitting(rows, q.Limit)
	if cut {
		until = rows[len(rows)-1].Seq
	}
	return feed.Page{Events: rows, Cursor: until, End: until == last}, nil
}

// fitting are the first events that there is room for, and whether others may follow.
func fitting(rows []feed.Event, limit int) (fit []feed.Event, cut bool) {
	var g page.Gauge
	for i, e := range rows {
		if g.Add(e) {
			return rows[:i], true
		}
	}
	return rows, len(rows) > 0 && len(rows) == limit
}

// FeedEnd implements store.Reader.
func (t tx) FeedEnd(ctx context.Context, namespace string) (int64, error) {
	last, _, err := t.feedEnds(ctx, namespace)
	return last, err
}

// feedEnds are the last event of a namespace and the last one that was removed.
func (t tx) feedEnds(ctx context.Context, namespace string) (last, gone int64, err error) {
	err = t.row(ctx, `SELECT seq, gone FROM feeds WHERE namespace = $1`, namespace).Scan(&last, &gone)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return last, gone, err
}

func scanEvent(row dbkit.Scanner) (e feed.Event, err error) {
	var body string
	if err := row.Scan(&e.Namespace, &e.Seq, dbkit.At(&e.Time), &e.EpicID, &e.Slug, &e.ThreadID, &e.Kind, &body); err != nil {
		return e, err
	}
	err = decode(body, &e.Body)
	e.Body = e.Body.Sized(len(body))
	return e, err
}

// FeedChanges implements store.Store.
func (s *Store) FeedChanges(namespace string) (changed <-chan struct{}, stop func()) {
	return s.feeds.follow(namespace)
}

// Heard wakes those who wait for events of a namespace, and with an empty name all who wait.
func (s *Store) Heard(namespace string) {
	if namespace == "" {
		s.feeds.wakeAll()
		return
	}
	s.feeds.wake(namespace)
}

// Feeds of one sweep, events that it removes of each at a time, since that holds up those who
// change anything, and how often it does before the next one has its turn.
const sweptFeeds, sweptEvents, sweptTimes = 200, 5000, 20

// SweepFeed implements store.Store.
func (s *Store) SweepFeed(ctx context.Context, b feed.Bounds, now time.Time) (removed int64, err error) {
	due, err := s.dueFeeds(ctx, b, now.Add(-b.Age))
	for _, namespace := range due {
		for range sweptTimes {
			n, err := s.sweepFeed(ctx, namespace, b, now.Add(-b.Age))
			if err != nil {
				return removed, err
			}
			if removed += n; n == 0 {
				break
			}
		}
	}
	return removed, err
}

// dueFeeds are namespaces whose feed is longer or larger than it may be, or begins before a time.
// Each call goes on behind the last one, so that all have their turn, however many are due.
func (s *Store) dueFeeds(ctx context.Context, b feed.Bounds, before time.Time) (due []string, err error) {
	s.feeds.mu.Lock()
	from := s.feeds.swept
	s.feeds.mu.Unlock()
	err = s.db.Pool.Read(ctx, func(ctx context.Context, q dbkit.Querier) error {
		due, err = collect(ctx, tx{q, s.d, nil}, func(row dbkit.Scanner) (n string, err error) {
			err = row.Scan(&n)
			return n, err
		}, `SELECT f.namespace FROM feeds f WHERE (f.seq - f.gone > $1 OR f.seq > f.gone AND f.bytes > $2 OR EXISTS
			(SELECT 1 FROM feed e WHERE e.namespace = f.namespace AND e.seq = f.gone + 1 AND e.time < $3))
			ORDER BY CASE WHEN f.namespace > $4 THEN 0 ELSE 1 END, f.namespace LIMIT $5`, b.Rows, b.Bytes, before, from, sweptFeeds)
		return err
	})
	if len(due) > 0 {
		s.feeds.mu.Lock()
		s.feeds.swept = due[len(due)-1]
		s.feeds.mu.Unlock()
	}
	return due, err
}

// sweepFeed removes the oldest events of a namespace. The lock of the feed comes last, as for those who
// write.
func (s *Store) sweepFeed(ctx context.Context, namespace string, b feed.Bounds, before time.Time) (removed int64, err error) {
	err = s.db.Pool.Update(ctx, func(ctx context.Context, q dbkit.Querier) error {
		t := tx{q, s.d, nil}
		var last, gone, bytes int64
		err := t.row(ctx, `SELECT seq, gone, bytes FROM feeds WHERE namespace = $1`, namespace).Scan(&last, &gone, &bytes)
		if errors.Is(err, sql.ErrNoRows) {
			removed = 0
			return nil
		}
		if err != nil {
			return err
		}
		// The sums are those of the oldest events, up to each.
		var old, large, size int64
		if err := t.row(ctx, `SELECT COALESCE(max(CASE WHEN o.time < $3 THEN o.seq END), 0), COALESCE(max(CASE WHEN o.sum - o.size < $4 THEN o.seq END), 0)
			FROM (SELECT seq, time, octet_length(body) AS size, SUM(octet_length(body)) OVER (ORDER BY seq) AS sum
				FROM feed WHERE namespace = $1 AND seq <= $2) o`, namespace, gone+sweptEvents, before, bytes-b.Bytes).Scan(&old, &large); err != nil {
			return err
		}
		until := min(gone+sweptEvents, max(old, large, last-b.Rows))
		if until <= gone {
			removed = 0
			return nil
		}
		if err := t.row(ctx, `SELECT COALESCE(SUM(octet_length(body)), 0) FROM feed WHERE namespace = $1 AND seq <= $2`, namespace, until).Scan(&size); err != nil {
			return err
		}
		if removed, err = t.Exec(ctx, `DELETE FROM feed WHERE namespace = $1 AND seq <= $2`, namespace, until); err != nil {
			return err
		}
		if removed == 0 { // another replica was first
			return nil
		}
		_, err = t.Exec(ctx, `UPDATE feeds SET gone = `+t.d.Greatest(`gone`, `$2`)+`, bytes = `+t.d.Greatest(`bytes - $3`, `0`)+` WHERE namespace = $1`, namespace, until, size)
		return err
	})
	return removed, err
}

// followers are those who wait for events of namespaces. It is safe for concurrent use.
type followers struct {
	mu sync.Mutex
	of map[string]map[chan struct{}]bool
	// swept is the last namespace whose feed was swept.
	swept string
}

func newFollowers() *followers { return &followers{of: map[string]map[chan struct{}]bool{}} }

func (f *followers) follow(namespace string) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[namespace] == nil {
		f.of[namespace] = map[chan struct{}]bool{}
	}
	f.of[namespace][c] = true
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.of[namespace], c); len(f.of[namespace]) == 0 {
			delete(f.of, namespace)
		}
	}
}

// wake wakes the followers of a namespace.
func (f *followers) wake(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rouse(f.of[namespace])
}

// wakeAll wakes the followers of all namespaces.
func (f *followers) wakeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range f.of {
		rouse(all)
	}
}

func rouse(all map[chan struct{}]bool) {
	for c := range all {
		select {
		case c <- struct{}{}:
		default: // it will look anyway
		}
	}
}
