package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

const (
	findThread = `SELECT thread_id, namespace, key, agent, lifetime, parent_id, parent_seq, depth, part_of FROM threads WHERE thread_id = ? AND hide_time = 0`
	// The item that an append must find is usually the only one, and its values are not needed.
	findItems = `SELECT seq, kind, run_id, node_id, visit, iif(seq > ?2, brief, NULL), iif(seq > ?2, body, NULL) FROM thread_items
		WHERE thread_id = ?1 AND seq >= ?2 AND seq <= ?3`
	findUsage = `SELECT ` + sqlstore.SumOfUsage + ` FROM thread_usage u WHERE u.namespace = ?`
)

// findThreads reads what decides about the appends of batches to threads.
func (t txn) findThreads(ctx context.Context, units []*journal.RunBatch, found *thread.Found) error {
	items, keys := journal.Looks(units)
	for _, id := range thread.IDs(items) {
		var th thread.Thread
		err := t.row(ctx, findThread, id).Scan(&th.ID, &th.Namespace, &th.Key, &th.Agent, &th.Lifetime, &th.ParentID, &th.ParentSeq, &th.Depth, &th.PartOf)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		found.Add(th)
	}
	for _, r := range items {
		rows, err := t.query(ctx, findItems, r.Thread, r.From, r.To)
		there, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (it thread.Item, err error) {
			err = rows.Scan(&it.Seq, &it.Kind, &it.RunID, &it.NodeID, &it.Visit, &it.Brief, &it.Body)
			return it, err
		})
		if err != nil {
			return err
		}
		for _, it := range there {
			found.AddItem(r.Thread, it)
		}
	}
	for _, namespace := range journal.Appending(units) {
		var u thread.Usage
		if err := t.row(ctx, findUsage, namespace).Scan(&u.Threads, &u.Bytes); err != nil {
			return err
		}
		found.AddUsage(namespace, u)
	}
	for _, k := range keys {
		var id string
		err := t.row(ctx, `SELECT thread_id FROM threads WHERE namespace = ? AND key = ? AND key <> ''`, k.Namespace, k.Name).Scan(&id)
		if err == nil {
			found.AddKey(k.Namespace, k.Name, id)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// threads writes what a batch adds to threads.
func (t txn) threads(ctx context.Context, u *journal.RunBatch) error {
	for i := range u.NewThreads {
		if _, err := put(ctx, t, t.w.thread, &u.NewThreads[i]); err != nil {
			return err
		}
	}
	for i := range u.ThreadItems {
		if _, err := put(ctx, t, t.w.threadItem, sqlstore.ThreadItemRow{Batch: u, ItemOf: &u.ThreadItems[i]}); err != nil {
			return err
		}
	}
	for _, a := range u.ThreadAgents {
		if _, err := t.exec(ctx, `UPDATE threads SET agent = ? WHERE thread_id = ?`, a.Agent, a.Thread); err != nil {
			return err
		}
	}
	if u.ThreadUsage != (thread.Usage{}) {
		if _, err := put(ctx, t, t.w.usage, sqlstore.UsageRow{Batch: u}); err != nil {
			return err
		}
	}
	return nil
}
