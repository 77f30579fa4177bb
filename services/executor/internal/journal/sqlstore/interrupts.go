package sqlstore

import (
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// selectInterrupts reads rows i for scanInterrupt.
const selectInterrupts = `SELECT i.id, i.namespace, i.run_id, i.root_run_id, i.node_id, i.visit, i.item, i.state, i.prompt, i.schema,
	i.approve, i.of_agent, i.binds, i.answer, i.default_value, i.decision, i.closed_by, i.create_time, i.expire_time, i.close_time, i.principal`

// scanInterrupt reads a row of selectInterrupts.
func scanInterrupt(row dbkit.Scanner) (i journal.Interrupt, err error) {
	err = row.Scan(&i.ID, &i.Namespace, &i.RunID, &i.RootID, &i.NodeID, &i.Visit, &i.Item, &i.State, &i.Prompt, &i.Schema,
		&i.Approve, &i.OfAgent, &i.Binds, &i.Answer, &i.Default, &i.Decision, &i.By, dbkit.At(&i.CreateTime), dbkit.At(&i.ExpireTime),
		dbkit.At(&i.CloseTime), &i.Principal)
	return i, err
}

// GetInterrupt implements journal.Interrupts.
func (s *Store) GetInterrupt(ctx context.Context, namespace, id string) (journal.Interrupt, error) {
	i, err := scanInterrupt(dbkit.FirstRow(s.db.Read.Query(ctx, selectInterrupts+` FROM interrupts i WHERE i.namespace = $1 AND i.id = $2`, namespace, id)))
	if none(err) {
		return journal.Interrupt{}, journal.InterruptNotFound(id)
	}
	return i, err
}

// ListInterrupts implements journal.Interrupts.
func (s *Store) ListInterrupts(ctx context.Context, namespace string, f journal.InterruptFilter, after page.Cursor, limit int) ([]journal.Interrupt, error) {
	query, args := s.listInterrupts(namespace, f, after, limit)
	rows, err := s.db.Read.Query(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (journal.Interrupt, error) { return scanInterrupt(rows) })
}

// OldestQuestion implements journal.Interrupts.
func (s *Store) OldestQuestion(ctx context.Context, namespace, runID string, ofAgent bool) (id string, err error) {
	asked := ` AND i.approve IS NULL`
	if ofAgent {
		asked += ` AND i.of_agent`
	}
	// The root finds them, as in listInterrupts.
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT i.id FROM interrupts i WHERE i.namespace || '' = $1 AND i.state + 0 = 1`+asked+` AND`+
		s.ofRoot+` ORDER BY i.create_time, i.id LIMIT 1`, namespace, runID)).Scan(&id)
	if none(err) {
		return "", nil
	}
	return id, err
}

func (s *Store) listInterrupts(namespace string, f journal.InterruptFilter, after page.Cursor, limit int) (query string, args []any) {
	var a arguments
	conds := []string{"i.namespace = " + a.add(namespace)}
	states := f.States
	if f.RunID != "" {
		a.add(f.RunID)
		// The root finds them; states must not lead away from there.
		conds = []string{"i.namespace || '' = $1 AND" + s.ofRoot}
		if len(states) > 0 {
			conds = append(conds, s.d.In("i.state + 0", a.add(numbers(states))))
			states = nil
		}
	} else if len(states) == 0 {
		states = []journal.InterruptState{journal.InterruptOpen, journal.InterruptAnswered, journal.InterruptExpired, journal.InterruptCanceled}
	}
	if !after.IsZero() {
		conds = append(conds, "(i.create_time, i.id) < ("+a.add(after.CreateTime)+", "+a.add(after.ID)+")")
	}
	found := dbkit.Merged(states, func(state string) string {
		return "SELECT i.create_time AS create_time, i.id AS id FROM interrupts i WHERE " + strings.Join(append(conds[:len(conds):len(conds)], state), " AND ")
	}, "i", "create_time DESC, id DESC", a.add(limit))
	return selectInterrupts + " FROM (" + found + ") p" + s.d.LookUp("interrupts", "i", "i.id = p.id") + " ORDER BY p.create_time DESC, p.id DESC", a
}
