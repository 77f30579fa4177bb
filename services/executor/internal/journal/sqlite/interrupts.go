package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	interruptColumns = `i.id, i.namespace, i.run_id, i.root_run_id, i.node_id, i.visit, i.item, i.state, i.prompt, i.schema, i.approve, i.binds, i.answer,
		i.default_value, i.decision, i.closed_by, i.create_time, i.expire_time, i.close_time, i.principal`
	selectInterrupts = `SELECT ` + interruptColumns + ` FROM interrupts i`
	// ofRoot holds for questions of the run ?2 in namespace ?1 and of all below it.
	ofRoot = ` i.root_run_id = (SELECT root_run_id FROM runs WHERE namespace = ?1 AND run_id = ?2) AND (i.root_run_id = ?2 OR i.run_id IN (
		WITH RECURSIVE below AS (SELECT ?2 AS run_id UNION ALL
			SELECT r.run_id FROM below b JOIN runs r ON r.namespace = ?1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> '')
		SELECT run_id FROM below))`
	// tidyInterrupts closes what a run that is over still asked.
	tidyInterrupts = `UPDATE interrupts SET state = 4, close_time = ` + now + ` WHERE run_id = ? AND state = 1
		AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = interrupts.run_id AND r.state >= 6)`
)

func scanInterrupt(row interface{ Scan(...any) error }) (i journal.Interrupt, err error) {
	var create, expire, closed int64
	err = row.Scan(&i.ID, &i.Namespace, &i.RunID, &i.RootID, &i.NodeID, &i.Visit, &i.Item, &i.State, &i.Prompt, &i.Schema, &i.Approve, &i.Binds, &i.Answer,
		&i.Default, &i.Decision, &i.By, &create, &expire, &closed, &i.Principal)
	i.CreateTime, i.ExpireTime, i.CloseTime = dbkit.FromUnixMicros(create), dbkit.FromUnixMicros(expire), dbkit.FromUnixMicros(closed)
	return i, err
}

func (t txn) open(ctx context.Context, i *journal.Interrupt) error {
	root := i.RootID
	if root == "" {
		root = i.RunID
	}
	_, err := t.exec(ctx, `INSERT INTO interrupts (id, namespace, run_id, root_run_id, node_id, visit, item, state, prompt, schema, approve, binds, answer,
		default_value, decision, closed_by, create_time, expire_time, close_time) VALUES `+tuples(1, 19)+` ON CONFLICT DO NOTHING`,
		i.ID, i.Namespace, i.RunID, root, i.NodeID, i.Visit, i.Item, int32(i.State), blob(i.Prompt), blob(i.Schema), blob(i.Approve), i.Binds, blob(i.Answer),
		blob(i.Default), i.Decision, i.By, micros(i.CreateTime), micros(i.ExpireTime), micros(i.CloseTime))
	return err
}

// GetInterrupt implements journal.Interrupts.
func (s *Store) GetInterrupt(ctx context.Context, namespace, id string) (journal.Interrupt, error) {
	i, err := scanInterrupt(s.db.Read.QueryRowContext(ctx, selectInterrupts+` WHERE i.namespace = ? AND i.id = ?`, namespace, id))
	if errors.Is(err, sql.ErrNoRows) {
		return journal.Interrupt{}, journal.InterruptNotFound(id)
	}
	return i, err
}

// ListInterrupts implements journal.Interrupts.
func (s *Store) ListInterrupts(ctx context.Context, namespace string, f journal.InterruptFilter, after page.Cursor, limit int) ([]journal.Interrupt, error) {
	query, args := listInterrupts(namespace, f, after, limit)
	rows, err := s.db.Read.QueryContext(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows *sql.Rows) (journal.Interrupt, error) { return scanInterrupt(rows) })
}

func listInterrupts(namespace string, f journal.InterruptFilter, after page.Cursor, limit int) (query string, args []any) {
	a := arguments{namespace, f.RunID}
	last := a.add(limit)
	conds := []string{"i.namespace = ?1"}
	states := f.States
	if f.RunID != "" {
		// Found by their family; states must not lead away from there.
		conds[0] = "+i.namespace = ?1 AND" + ofRoot
		if len(states) > 0 {
			conds = append(conds, "+i.state IN ("+numbers(states)+")")
			states = nil
		}
	} else if len(states) == 0 {
		states = []journal.InterruptState{journal.InterruptOpen, journal.InterruptAnswered, journal.InterruptExpired, journal.InterruptCanceled}
	}
	if !after.IsZero() {
		conds = append(conds, "(i.create_time, i.id) < ("+a.add(micros(after.CreateTime))+", "+a.add(after.ID)+")")
	}
	found := dbkit.Merged(states, func(state string) string {
		return "SELECT i.create_time AS create_time, i.id AS id FROM interrupts i WHERE " + strings.Join(append(conds[:len(conds):len(conds)], state), " AND ")
	}, "i", "create_time DESC, id DESC", last)
	return "SELECT " + interruptColumns + " FROM (" + found + ") p CROSS JOIN interrupts i ON i.id = p.id ORDER BY p.create_time DESC, p.id DESC", a
}

// openInterrupts counts open questions of the run ?2 in namespace ?1 and of all below it.
const openInterrupts = `SELECT count(*) FROM interrupts i WHERE +i.namespace = ?1 AND +i.state = 1 AND` + ofRoot
