package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Quotas says how much namespaces may have open. Implementations are safe for concurrent use; a namespace
// without a quota must cost next to nothing.
type Quotas interface {
	// Accept refuses a run that may not be recorded at all, whether it begins now or later.
	Accept(ctx context.Context, namespace string, nodes int) error
	// AcceptPending refuses a run that would have to wait.
	AcceptPending(ctx context.Context, namespace string) error
	// Admit asks for room for one more open run. release, if not nil, is called once the beginning is durable
	// or came to nothing. ok is false when there is no room.
	Admit(ctx context.Context, namespace string) (release func(), ok bool, err error)
	// Room reports whether it is worth while to ask for room for a run that waits.
	Room(ctx context.Context, namespace string) (bool, error)
	// FanOut is how many children one wait may have; 0 does not bound.
	FanOut(namespace string) int
	// Ended is told of every end of a run. It must not block.
	Ended(namespace string)
}

// unbounded is for an engine that is given no quotas.
type unbounded struct{}

func (unbounded) Accept(context.Context, string, int) error           { return nil }
func (unbounded) AcceptPending(context.Context, string) error         { return nil }
func (unbounded) Admit(context.Context, string) (func(), bool, error) { return nil, true, nil }
func (unbounded) Room(context.Context, string) (bool, error)          { return true, nil }
func (unbounded) FanOut(string) int                                   { return 0 }
func (unbounded) Ended(string)                                        {}

const (
	// waitsForRoom is the state reason of a pending run for which its namespace has no room.
	waitsForRoom = "QUOTA"
	// noRoomPause is how long a run is kept that cannot be given back.
	noRoomPause = 2 * time.Second
)

// noRoom gives a pending run back for which its namespace has no room: Quotas has it begun when there is
// some. Commands that waits for it would bring it here again at once, so then it is kept, and looked at again
// later.
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

// takeRoom takes over the duty to call room. The result is never nil.
func (r *run) takeRoom() func() {
	f := r.room
	r.room = nil
	if f == nil {
		return func() {}
	}
	return f
}
