package pg

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	selectInterrupts = `SELECT i.id, i.namespace, i.run_id, i.root_run_id, i.node_id, i.visit, i.item, i.state, i.prompt, i.schema, i.approve, i.binds, i.answer,
		i.default_value, i.decision, i.closed_by, i.create_time, i.expire_time, i.close_time, i.principal FROM interrupts i`
	// ofRoot holds for questions of the run $2 and of all below it. Those of a whole family are found by its root at once.
	ofRoot = ` i.root_run_id = (SELECT r.root_run_id FROM runs r WHERE` + thisRun + `) AND (i.root_run_id = $2 OR i.run_id IN (
		WITH RECURSIVE below AS (SELECT $2::text COLLATE "C" AS run_id UNION ALL
			SELECT r.run_id FROM below b` + itsChildren + `)
		SELECT run_id FROM below))`
)

func scanInterrupt(row pgx.Row) (i journal.Interrupt, err error) {
	var expire, closed *time.Time
	err = row.Scan(&i.ID, &i.Namespace, &i.RunID, &i.RootID, &i.NodeID, &i.Visit, &i.Item, &i.State, &i.Prompt, &i.Schema, &i.Approve, &i.Binds, &i.Answer,
		&i.Default, &i.Decision, &i.By, &i.CreateTime, &expire, &closed, &i.Principal)
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
	a := arguments{namespace, f.RunID}
	last := a.add(limit)
	// Unused, the second parameter needs a type.
	conds := []string{"i.namespace = $1", "$2::text IS NOT NULL"}
	states := f.States
	if f.RunID != "" {
		// Found by their family, whatever the planner believes about states.
		conds[0], conds[1] = "i.namespace || '' = $1", ofRoot
		if len(states) > 0 {
			conds = append(conds, "i.state + 0 = ANY ("+a.add(numbers(states))+")")
			states = nil
		}
	} else if len(states) == 0 {
		states = []journal.InterruptState{journal.InterruptOpen, journal.InterruptAnswered, journal.InterruptExpired, journal.InterruptCanceled}
	}
	if !after.IsZero() {
		conds = append(conds, "(i.create_time, i.id) < ("+a.add(after.CreateTime)+", "+a.add(after.ID)+")")
	}
	found := dbkit.Merged(states, func(state string) string {
		return "SELECT i.create_time, i.id FROM interrupts i WHERE " + strings.Join(append(conds[:len(conds):len(conds)], state), " AND ")
	}, "i", "create_time DESC, id DESC", last)
	rows, err := s.read.Query(ctx, selectInterrupts+" JOIN ("+found+") p ON p.id = i.id ORDER BY p.create_time DESC, p.id DESC", a...)
	list, err := dbkit.CollectPagePostgres(ctx, rows, err, func(row pgx.CollectableRow) (journal.Interrupt, error) { return scanInterrupt(row) })
	return list, away(err)
}

// openInterrupts counts open questions of the run $2 and of all below it.
const openInterrupts = `SELECT count(*) FROM interrupts i WHERE i.namespace || '' = $1 AND i.state + 0 = 1 AND` + ofRoot
