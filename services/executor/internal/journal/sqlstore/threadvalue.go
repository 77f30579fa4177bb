package sqlstore

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// Family implements thread.Store. It is one statement, so that all threads are of the same moment.
func (s *Store) Family(ctx context.Context, namespace, id string, limit int) ([]thread.Relative, error) {
	rows, err := s.db.Read.Query(ctx, `WITH RECURSIVE below (thread_id) AS (
			SELECT t.thread_id FROM threads t WHERE`+thisThread+` AND `+s.d.Unset(`t.hide_time`)+`
			UNION SELECT t.thread_id FROM below JOIN threads t ON t.part_of = below.thread_id WHERE t.namespace = $1 AND t.part_of <> '' AND `+s.d.Unset(`t.hide_time`)+`)
		`+selectThread()+`, CASE WHEN `+held+` THEN t.holder ELSE '' END FROM threads t
		WHERE t.thread_id IN (SELECT thread_id FROM below LIMIT $3) ORDER BY CASE WHEN t.thread_id = $2 THEN 0 ELSE 1 END, t.thread_id`, namespace, id, limit)
	found, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (r thread.Relative, err error) {
		r.Thread, err = scanThread(rows, &r.By)
		return r, err
	})
	if err == nil && len(found) == 0 {
		return nil, thread.NotFound(id)
	}
	return found, err
}

// importChunk is how many items one batch of an import inserts.
const importChunk = 500

// ImportThreads implements thread.Store.
func (s *Store) ImportThreads(ctx context.Context, m thread.Import) (made thread.Thread, err error) {
	whole := &m.Threads[0]
	err = s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		id, err := s.requested(ctx, tx, m.Namespace, m.Request, whole.Thread, whole.Time)
		if err != nil {
			return err
		}
		if id != whole.Thread {
			made, err = s.thread(ctx, tx, thisThread, m.Namespace, id)
			return err
		}
		if m.Refused != nil {
			return m.Refused
		}
		if err := s.use(ctx, tx, m.Namespace, m.Usage(), m.Room); err != nil {
			return err
		}
		var threads []thread.Thread
		var items []thread.ItemOf
		for i := range m.Threads {
			t := m.Threads[i].New(m.Namespace, "")
			if err := s.insertThread(ctx, tx, &t); err != nil {
				return err
			}
			threads = append(threads, t)
			for j := range m.Threads[i].Items {
				items = append(items, thread.ItemOf{Thread: t.ID, Item: &m.Threads[i].Items[j]})
			}
		}
		if err := s.insertItems(ctx, tx, m.Namespace, items); err != nil {
			return err
		}
		if err := s.tell(ctx, tx, m.Namespace, thread.Tell(threads, items, "")); err != nil {
			return err
		}
		made, err = s.thread(ctx, tx, thisThread, m.Namespace, whole.Thread)
		return err
	})
	return made, err
}

// insertThread makes the row of a thread. ReasonExists is of its key.
func (s *Store) insertThread(ctx context.Context, tx dbkit.Querier, t *thread.Thread) error {
	columns := ThreadColumns()
	n, err := tx.Exec(ctx, `INSERT INTO threads (`+columns.Names()+`) VALUES (`+parameters(len(columns))+`)
		ON CONFLICT (namespace, key) WHERE key <> '' DO NOTHING`, values(columns, t)...)
	if err != nil || n > 0 {
		return err
	}
	other, err := s.thread(ctx, tx, thisKey, t.Namespace, t.Key)
	if err != nil {
		return err
	}
	return thread.Exists(t.Key, other.ID)
}

func (s *Store) insertItems(ctx context.Context, tx dbkit.Querier, namespace string, items []thread.ItemOf) error {
	columns := ThreadItemColumns()[1:] // the first one is of commits
	insert := `INSERT INTO thread_items (` + columns.Names() + `) VALUES (` + parameters(len(columns)) + `)`
	u := &journal.RunBatch{}
	u.Namespace = namespace
	var stmts []dbkit.Stmt
	flush := func() error {
		err := tx.Batch(ctx, stmts...)
		stmts = stmts[:0]
		return err
	}
	for i := range items {
		row := ThreadItemRow{Batch: u, ItemOf: &items[i]}
		if stmts = append(stmts, dbkit.Stmt{Query: insert, Args: values(columns, row)}); len(stmts) < importChunk {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return flush()
}

// values are the arguments of an insert of a row whose times are set.
func values[R any](columns Columns[R], row R) []any {
	args := make([]any, len(columns))
	for i, col := range columns {
		args[i] = col.Value(row)
		if at, ok := args[i].(*time.Time); ok {
			args[i] = *at
		}
	}
	return args
}
