package pg

import (
	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// asked is what batches must know before they are resolved.
type asked struct {
	requests []journal.RequestKey
	keys     []journal.Key
	// items are those of threads that are looked for, and threadKeys the keys that new threads take.
	items      []thread.Range
	threadKeys []journal.Key
	// appending are the namespaces whose usage of threads is asked for.
	appending []string
}

func ask(units []*journal.RunBatch) (a asked) {
	a.requests, a.keys = journal.Needs(units)
	a.items, a.threadKeys = journal.Looks(units)
	a.appending = journal.Appending(units)
	return a
}

func (a asked) any() bool { return len(a.requests)+len(a.keys)+len(a.items) > 0 }

// queueThreads locks the rows of threads, in order, and reads what decides about appends. A statement that
// follows the lock sees what was committed before it was had.
func queueThreads(b *pgx.Batch, a asked, found *thread.Found) {
	if len(a.items) == 0 {
		return
	}
	ids := thread.IDs(a.items)
	b.Queue("SELECT FROM threads WHERE thread_id = ANY ($1) ORDER BY thread_id FOR NO KEY UPDATE", ids)
	b.Queue(`SELECT thread_id, namespace, key, agent, lifetime, parent_id, parent_seq, depth, part_of FROM threads WHERE thread_id = ANY ($1) AND hide_time IS NULL`, ids).
		Query(func(rows pgx.Rows) error {
			var t thread.Thread
			_, err := pgx.ForEachRow(rows, []any{&t.ID, &t.Namespace, &t.Key, &t.Agent, &t.Lifetime, &t.ParentID, &t.ParentSeq, &t.Depth, &t.PartOf}, func() error {
				found.Add(t)
				return nil
			})
			return err
		})
	in, from, to := make([]string, len(a.items)), make([]int64, len(a.items)), make([]int64, len(a.items))
	for i, r := range a.items {
		in[i], from[i], to[i] = r.Thread, r.From, r.To
	}
	// The item that an append must find is usually the only one, and its values are not needed.
	b.Queue(`SELECT w.thread_id, f.seq, f.kind, f.run_id, f.node_id, f.visit, f.brief, f.body
		FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS w (thread_id, first, last)
		CROSS JOIN LATERAL (SELECT i.seq, i.kind, i.run_id, i.node_id, i.visit, CASE WHEN i.seq > w.first THEN i.brief END AS brief,
			CASE WHEN i.seq > w.first THEN i.body END AS body
			FROM thread_items i WHERE i.thread_id = w.thread_id AND i.seq >= w.first AND i.seq <= w.last OFFSET 0) f`, in, from, to).
		Query(func(rows pgx.Rows) error {
			var id string
			var it thread.Item
			_, err := pgx.ForEachRow(rows, []any{&id, &it.Seq, &it.Kind, &it.RunID, &it.NodeID, &it.Visit, &it.Brief, &it.Body}, func() error {
				found.AddItem(id, it)
				it.Brief, it.Body = nil, nil
				return nil
			})
			return err
		})
	b.Queue(`SELECT u.namespace, `+sqlstore.SumOfUsage+` FROM thread_usage u WHERE u.namespace = ANY ($1) GROUP BY u.namespace`, a.appending).Query(func(rows pgx.Rows) error {
		var namespace string
		var u thread.Usage
		_, err := pgx.ForEachRow(rows, []any{&namespace, &u.Threads, &u.Bytes}, func() error {
			found.AddUsage(namespace, u)
			return nil
		})
		return err
	})
	if len(a.threadKeys) == 0 {
		return
	}
	ns, names := split(a.threadKeys)
	b.Queue(`SELECT w.namespace, w.key, f.thread_id FROM unnest($1::text[], $2::text[]) AS w (namespace, key)
		CROSS JOIN LATERAL (SELECT t.thread_id FROM threads t WHERE t.namespace = w.namespace AND t.key = w.key AND t.key <> '' OFFSET 0) f`, ns, names).
		Query(func(rows pgx.Rows) error {
			var namespace, key, id string
			_, err := pgx.ForEachRow(rows, []any{&namespace, &key, &id}, func() error {
				found.AddKey(namespace, key, id)
				return nil
			})
			return err
		})
}
