package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
)

func job(k trigger.Key, due time.Time) journal.JobRow {
	return journal.MakeJob(k.Namespace, "", journal.DeliveryJob(k.Namespace, k.ID, due))
}

const insertDelivery = `INSERT INTO trigger_deliveries (` + deliveryColumns + `)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
	ON CONFLICT (namespace, trigger_id, event_id) DO `

func deliveryArgs(d *trigger.Delivery) ([]any, error) {
	details, err := trigger.EncodeDetails(d)
	return []any{
		d.Namespace, d.ID, d.Trigger, d.EventID, string(d.Status), d.RunID, d.Reason, d.Message, d.Attempts, d.Repeats, d.Depth, d.RepeatOf, details,
		d.ReceiveTime, d.Due, d.EndTime, []byte(d.Event),
	}, err
}

// Receive implements trigger.Store.
func (s *Store) Receive(ctx context.Context, d trigger.Delivery, most int) (out trigger.Delivery, err error) {
	args, err := deliveryArgs(&d)
	if err != nil {
		return d, err
	}
	var inserted []journal.JobRow
	err = s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		inserted, out = nil, d
		made, err := tx.Exec(ctx, insertDelivery+`NOTHING`, args...)
		if err != nil {
			return err
		}
		if made == 0 {
			out, err = s.again(ctx, tx, d)
			return err
		}
		n, err := count(ctx, tx, `SELECT count(*) FROM (SELECT 1 FROM trigger_deliveries WHERE namespace = $1 AND state = 'RECEIVED' LIMIT $2) w`, d.Namespace, most+1)
		switch {
		case err != nil:
			return err
		case n > most:
			return trigger.Busy(most)
		case d.Status != trigger.Received:
			return nil
		}
		inserted = []journal.JobRow{job(d.Key, d.Due)}
		return tx.Batch(ctx, s.db.Jobs(inserted)...)
	})
	if err == nil {
		s.db.Inserted(inserted)
	}
	return out, err
}

// again counts that an event came once more, and returns its delivery.
func (s *Store) again(ctx context.Context, tx dbkit.Querier, d trigger.Delivery) (trigger.Delivery, error) {
	out, err := scanDelivery(dbkit.FirstRow(tx.Query(ctx, `UPDATE trigger_deliveries SET repeats = repeats + 1
		WHERE namespace = $1 AND trigger_id = $2 AND event_id = $3 RETURNING `+deliveryColumns, d.Namespace, d.Trigger, d.EventID)))
	out.Repeated = true
	return out, err
}

// Record implements trigger.Store.
func (s *Store) Record(ctx context.Context, d trigger.Delivery) error {
	args, err := deliveryArgs(&d)
	if err != nil {
		return err
	}
	_, err = s.db.Pool.Exec(ctx, insertDelivery+`UPDATE SET state = excluded.state, run_id = excluded.run_id, reason = excluded.reason, message = excluded.message,
		attempts = trigger_deliveries.attempts + 1, due = excluded.due, end_time = excluded.end_time WHERE trigger_deliveries.state <> 'STARTED'`, args...)
	return err
}

// Delivery implements trigger.Store.
func (s *Store) Delivery(ctx context.Context, k trigger.Key) (trigger.Delivery, error) {
	d, err := scanDelivery(dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT `+deliveryColumns+` FROM trigger_deliveries WHERE namespace = $1 AND id = $2`, k.Namespace, k.ID)))
	if errors.Is(err, sql.ErrNoRows) {
		return d, trigger.DeliveryNotFound(k.ID)
	}
	return d, err
}

// top is above every id.
const top = "~"

// Deliveries implements trigger.Store.
func (s *Store) Deliveries(ctx context.Context, namespace string, f trigger.Filter, before string, limit int) ([]trigger.Delivery, error) {
	if before == "" {
		before = top
	}
	where, args := `namespace = $1 AND id < $2`, []any{namespace, before, limit}
	if f.Trigger != "" {
		args = append(args, f.Trigger)
		where += ` AND trigger_id = $4`
	}
	if f.Status != "" {
		args = append(args, string(f.Status))
		where += map[bool]string{true: ` AND state = $5`, false: ` AND state = $4`}[f.Trigger != ""]
	}
	rows, err := s.db.Pool.Query(ctx, `SELECT `+deliveryColumns+` FROM trigger_deliveries WHERE `+where+` ORDER BY id DESC LIMIT $3`, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (trigger.Delivery, error) { return scanDelivery(rows) })
}

// Tried implements trigger.Store.
func (s *Store) Tried(ctx context.Context, d trigger.Delivery, attempts int) error {
	var inserted []journal.JobRow
	err := s.db.Pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		inserted = nil
		n, err := tx.Exec(ctx, `UPDATE trigger_deliveries SET state = $4, run_id = $5, reason = $6, message = $7, attempts = $8, due = $9, end_time = $10
			WHERE namespace = $1 AND id = $2 AND attempts = $3 AND state = 'RECEIVED'`,
			d.Namespace, d.ID, attempts, string(d.Status), d.RunID, d.Reason, d.Message, d.Attempts, d.Due, d.EndTime)
		if err != nil || n == 0 || d.Status != trigger.Received {
			return err
		}
		inserted = []journal.JobRow{job(d.Key, d.Due)}
		return tx.Batch(ctx, s.db.Jobs(inserted)...)
	})
	if err == nil {
		s.db.Inserted(inserted)
	}
	return err
}

// Overdue implements trigger.Store.
func (s *Store) Overdue(ctx context.Context, before time.Time, limit int) (int, error) {
	rows, err := s.db.Pool.Query(ctx, `SELECT namespace, id FROM trigger_deliveries WHERE state = 'RECEIVED' AND due < $1 ORDER BY due LIMIT $2`, before, limit)
	found, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (journal.JobRow, error) {
		var k trigger.Key
		err := rows.Scan(&k.Namespace, &k.ID)
		// Without a time, so that a job for its time which stands somewhere does not keep it out.
		return job(k, time.Time{}), err
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if err := s.db.Pool.Batch(ctx, s.db.Jobs(found)...); err != nil {
		return 0, err
	}
	s.db.Inserted(found)
	return len(found), nil
}

// Forget implements trigger.Store.
func (s *Store) Forget(ctx context.Context, before time.Time, room trigger.Room, limit int) (n int, err error) {
	for _, q := range []struct {
		query string
		args  []any
	}{
		{s.d.DeleteSome(`trigger_deliveries`, `namespace, id`,
			`SELECT namespace, id FROM trigger_deliveries WHERE `+s.d.Set(`end_time`)+` AND end_time < $1 ORDER BY end_time LIMIT $2`), []any{before, limit}},
		{s.d.DeleteSome(`triggers`, `namespace, id`, `SELECT namespace, id FROM triggers t WHERE state = 'ENDED' AND update_time < $1
			AND NOT EXISTS (SELECT 1 FROM trigger_deliveries d WHERE d.namespace = t.namespace AND d.trigger_id = t.id)
			AND NOT EXISTS (SELECT 1 FROM trigger_activations a WHERE a.namespace = t.namespace AND a.workflow = t.workflow AND a.settled = 0) LIMIT $2`),
			[]any{before, limit}},
		{s.d.DeleteSome(`trigger_activations`, `namespace, workflow`, `SELECT namespace, workflow FROM trigger_activations
			WHERE state = 'ENDED' AND settled = 1 AND update_time < $1 LIMIT $2`), []any{before, limit}},
	} {
		more, err := s.db.Pool.Exec(ctx, q.query, q.args...)
		if err != nil {
			return n, err
		}
		n += int(more)
	}
	if n >= limit {
		return n, nil // there is more that is old
	}
	more, err := s.forgetMost(ctx, room, limit)
	return n + more, err
}

// forgetMost removes the oldest deliveries that have ended in namespaces that have no room for them. What is
// too much is found by reads, which hold nobody up, but read all there are: so it is looked for once, and
// removed in statements of limit rows.
func (s *Store) forgetMost(ctx context.Context, room trigger.Room, limit int) (n int, err error) {
	rows, err := s.db.Pool.Query(ctx, `SELECT namespace FROM trigger_deliveries WHERE state <> 'RECEIVED' GROUP BY namespace
		HAVING count(*) > $1 OR sum(length(event) + $2) > $3`, room.Deliveries, trigger.DeliveryBytes, room.Bytes)
	full, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (namespace string, err error) { return namespace, rows.Scan(&namespace) })
	if err != nil {
		return 0, err
	}
	for _, namespace := range full {
		last := ""
		err := dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT id FROM (
				SELECT id, row_number() OVER newest AS place, sum(length(event) + $2) OVER newest AS bytes FROM trigger_deliveries
				WHERE namespace = $1 AND state <> 'RECEIVED' WINDOW newest AS (ORDER BY id DESC)) d
			WHERE place > $3 OR bytes > $4 ORDER BY id DESC LIMIT 1`, namespace, trigger.DeliveryBytes, room.Deliveries, room.Bytes)).Scan(&last)
		if errors.Is(err, sql.ErrNoRows) {
			continue // others have removed them
		}
		if err != nil {
			return n, err
		}
		more, err := s.forgetUpTo(ctx, namespace, last, limit)
		if n += more; err != nil {
			return n, err
		}
	}
	return n, nil
}

// forgetUpTo removes the ended deliveries of a namespace up to an id, limit of them at a time.
func (s *Store) forgetUpTo(ctx context.Context, namespace, last string, limit int) (n int, err error) {
	for {
		more, err := s.db.Pool.Exec(ctx, `DELETE FROM trigger_deliveries WHERE namespace = $1 AND `+
			s.d.InSelect(`id`, `SELECT id FROM trigger_deliveries WHERE namespace = $1 AND state <> 'RECEIVED' AND id <= $2 ORDER BY id LIMIT $3`), namespace, last, limit)
		if n += int(more); err != nil || int(more) < limit {
			return n, err
		}
	}
}
