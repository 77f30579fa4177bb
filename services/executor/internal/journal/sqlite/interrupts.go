package sqlite

import (
	"context"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// tidyInterrupts closes what a run that is over still asked.
	tidyInterrupts = `UPDATE interrupts SET state = 4, close_time = ` + now + ` WHERE run_id = ? AND state = 1
		AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = interrupts.run_id AND r.state >= 6)`
)

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
