package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	selectInterrupts = `SELECT i.id, i.namespace, i.run_id, i.root_run_id, i.node_id, i.visit, i.item, i.state, i.prompt, i.schema, i.approve, i.answer,
		i.default_value, i.decision, i.closed_by, i.create_time, i.expire_time, i.close_time FROM interrupts i`
	// ofFamily holds for questions of a run and of all below it; its parameters are (namespace, run, run, run, namespace).
	ofFamily = ` i.root_run_id = (SELECT root_run_id FROM runs WHERE namespace = ? AND run_id = ?) AND (i.root_run_id = ? OR i.run_id IN (
		WITH RECURSIVE below AS (SELECT ? AS run_id UNION ALL
			SELECT r.run_id FROM below b JOIN runs r ON r.namespace = ? AND r.parent_run_id = b.run_id AND r.parent_run_id <> '')
		SELECT run_id FROM below))`
	// tidyInterrupts closes what a run that is over still asked.
	tidyInterrupts = `UPDATE interrupts SET state = 4, close_time = ` + now + ` WHERE run_id = ? AND state = 1
		AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = interrupts.run_id AND r.state >= 6)`
)

func familyArgs(namespace, runID string) []any {
	return []any{namespace, runID, runID, runID, namespace}
}

func scanInterrupt(row interface{ Scan(...any) error }) (i journal.Interrupt, err error) {
	var create, expire, closed int64
	err = row.Scan(&i.ID, &i.Namespace, &i.RunID, &i.RootID, &i.NodeID, &i.Visit, &i.Item, &i.State, &i.Prompt, &i.Schema, &i.Approve, &i.Answer,
		&i.Default, &i.Decision, &i.By, &create, &expire, &closed)
	i.CreateTime, i.ExpireTime, i.CloseTime = dbkit.FromUnixMicros(create), dbkit.FromUnixMicros(expire), dbkit.FromUnixMicros(closed)
	return i, err
}

func (t txn) open(ctx context.Context, i *journal.Interrupt) error {
	root := i.RootID
	if root == "" {
		root = i.RunID
	}
	_, err := t.exec(ctx, `INSERT INTO interrupts (id, namespace, run_id, root_run_id, node_id, visit, item, state, prompt, schema, approve, answer,
		default_value, decision, closed_by, create_time, expire_time, close_time) VALUES `+tuples(1, 18)+` ON CONFLICT DO NOTHING`,
		i.ID, i.Namespace, i.RunID, root, i.NodeID, i.Visit, i.Item, int32(i.State), blob(i.Prompt), blob(i.Schema), blob(i.Approve), blob(i.Answer),
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
	where, args := ` WHERE i.namespace = ?`, []any{namespace}
	and := func(cond string, vs ...any) {
		where += " AND " + cond
		args = append(args, vs...)
	}
	if f.RunID != "" {
		and(ofFamily, familyArgs(namespace, f.RunID)...)
	}
	switch {
	case len(f.States) == 1 && f.States[0] == journal.InterruptOpen:
		and("i.state = 1")
	case len(f.States) > 0:
		states := make([]any, len(f.States))
		for i, st := range f.States {
			states[i] = int32(st)
		}
		and("i.state IN "+tuples(1, len(states)), states...)
	}
	if !after.IsZero() {
		and("(i.create_time, i.id) < (?, ?)", micros(after.CreateTime), after.ID)
	}
	rows, err := s.db.Read.QueryContext(ctx, selectInterrupts+where+` ORDER BY i.create_time DESC, i.id DESC LIMIT ?`, append(args, limit)...)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (journal.Interrupt, error) { return scanInterrupt(rows) })
}

// CountOpenInterrupts implements journal.Interrupts.
func (s *Store) CountOpenInterrupts(ctx context.Context, namespace, runID string) (n int, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT count(*) FROM interrupts i WHERE i.namespace = ? AND i.state = 1 AND`+ofFamily,
		append([]any{namespace}, familyArgs(namespace, runID)...)...).Scan(&n)
	return n, err
}
