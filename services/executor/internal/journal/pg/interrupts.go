package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	selectInterrupts = `SELECT i.id, i.namespace, i.run_id, i.root_run_id, i.node_id, i.visit, i.item, i.state, i.prompt, i.schema, i.approve, i.answer,
		i.default_value, i.decision, i.closed_by, i.create_time, i.expire_time, i.close_time FROM interrupts i`
	// ofFamily holds for questions of the run $2 and of all below it. Those of a whole family are found by its root at once.
	ofFamily = ` i.root_run_id = (SELECT root_run_id FROM runs WHERE namespace = $1 AND run_id = $2) AND (i.root_run_id = $2 OR i.run_id IN (
		WITH RECURSIVE below AS (SELECT $2::text COLLATE "C" AS run_id UNION ALL
			SELECT r.run_id FROM below b JOIN runs r ON r.namespace = $1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> '')
		SELECT run_id FROM below))`
)

func scanInterrupt(row pgx.Row) (i journal.Interrupt, err error) {
	var expire, closed *time.Time
	err = row.Scan(&i.ID, &i.Namespace, &i.RunID, &i.RootID, &i.NodeID, &i.Visit, &i.Item, &i.State, &i.Prompt, &i.Schema, &i.Approve, &i.Answer,
		&i.Default, &i.Decision, &i.By, &i.CreateTime, &expire, &closed)
	i.CreateTime, i.ExpireTime, i.CloseTime = i.CreateTime.UTC(), timeOf(expire), timeOf(closed)
	return i, err
}

// GetInterrupt implements journal.Interrupts.
func (s *Store) GetInterrupt(ctx context.Context, namespace, id string) (journal.Interrupt, error) {
	i, err := scanInterrupt(s.read.QueryRow(ctx, selectInterrupts+` WHERE i.namespace = $1 AND i.id = $2`, namespace, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return journal.Interrupt{}, journal.InterruptNotFound(id)
	}
	return i, away(err)
}

// ListInterrupts implements journal.Interrupts.
func (s *Store) ListInterrupts(ctx context.Context, namespace string, f journal.InterruptFilter, after page.Cursor, limit int) ([]journal.Interrupt, error) {
	where := []string{"i.namespace = $1"}
	args := []any{namespace}
	and := func(format string, vs ...any) {
		ns := make([]any, len(vs))
		for i, v := range vs {
			args = append(args, v)
			ns[i] = len(args)
		}
		where = append(where, fmt.Sprintf(format, ns...))
	}
	if f.RunID != "" {
		args = append(args, f.RunID)
		where = append(where, ofFamily)
	}
	switch {
	case len(f.States) == 1 && f.States[0] == journal.InterruptOpen:
		where = append(where, "i.state = 1")
	case len(f.States) > 0:
		states := make([]int32, len(f.States))
		for i, st := range f.States {
			states[i] = int32(st)
		}
		and("i.state = ANY ($%d)", states)
	}
	if !after.IsZero() {
		and("(i.create_time, i.id) < ($%d, $%d)", after.CreateTime, after.ID)
	}
	args = append(args, limit)
	rows, err := s.read.Query(ctx, selectInterrupts+" WHERE "+strings.Join(where, " AND ")+fmt.Sprintf(" ORDER BY i.create_time DESC, i.id DESC LIMIT $%d", len(args)), args...)
	list, err := collect(rows, err, func(row pgx.CollectableRow) (journal.Interrupt, error) { return scanInterrupt(row) })
	return list, away(err)
}

// CountOpenInterrupts implements journal.Interrupts.
func (s *Store) CountOpenInterrupts(ctx context.Context, namespace, runID string) (n int, err error) {
	err = s.read.QueryRow(ctx, `SELECT count(*) FROM interrupts i WHERE i.namespace = $1 AND i.state = 1 AND`+ofFamily, namespace, runID).Scan(&n)
	return n, away(err)
}
