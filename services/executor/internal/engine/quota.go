package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// waitsForRoom is the state reason of a pending run for which its namespace has no room.
	waitsForRoom = "QUOTA"
	// noRoomPause is how long a run without room stays claimed if it has commands.
	noRoomPause = 2 * time.Second
)

// noRoom releases a pending run for which its namespace has no room; Quotas has it begun when there is some.
// If the run has commands it would be claimed again at once, so it stays claimed and is tried again after
// noRoomPause.
func (t *session) noRoom(ctx context.Context, row journal.Run) error {
	commands, err := t.e.journal.UnappliedCommands(ctx, row.Namespace, row.ID, 1)
	if err != nil {
		return err
	}
	if len(commands) > 0 {
		t.alarms.set(row.Namespace, row.ID, time.Now().Add(noRoomPause))
		return nil
	}
	s := row.Status
	s.Reason, s.WakeTime, s.UpdateTime = waitsForRoom, time.Time{}, dbkit.Now()
	w := &journal.Append{Namespace: row.Namespace, RunID: row.ID, ExpectedLastSeq: row.LastSeq, Status: &s, Release: true}
	return t.writer.Submit(journal.Write{Append: w}, func(journal.Result) {})
}

// takeRoom hands the duty to call room to the caller. The result is never nil.
func (r *run) takeRoom() func() {
	f := r.room
	r.room = nil
	if f == nil {
		return func() {}
	}
	return f
}
