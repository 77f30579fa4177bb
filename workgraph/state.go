package workgraph

import (
	"time"
)

// State is the whole position of one run. It is not safe for concurrent use; the caller holds the run's lock. Memory grows
// with the visits of the run, the cost of a command with the edges it touches.
//
// Two ways lead in. Advance takes a command, decides, changes the state and returns the events that record the decision: the
// caller may advance further at once, but must make the events durable, in order, before it acts on the Effects that came with
// them or tells any reader. If the events can never be made durable the State must be discarded and rebuilt. Apply takes an
// event that was journaled earlier and decides nothing.
type State struct {
	p     *Program
	runID string
}

// New is the state of a run before its first event.
func New(p *Program, runID string) *State { return &State{p: p, runID: runID} }

// Restore rebuilds a state from a snapshot made with the same program.
func Restore(p *Program, snapshot []byte) (*State, error) { return nil, ErrCorrupt }

// Snapshot is the state as bytes for Restore of the same machine version. It is a cache: losing it costs a longer replay.
func (s *State) Snapshot() ([]byte, error) { return nil, ErrCorrupt }

// Advance decides what cmd means, changes the state and returns the events to journal with the effects to act on once they
// are durable. On error nothing changed.
func (s *State) Advance(cmd Command) ([]Event, Effects, error) { return nil, Effects{}, ErrState }

// Apply replays one journaled event. Seq must follow the last one applied. The effects are those of the original decision;
// during recovery they are ignored in favor of Outstanding.
func (s *State) Apply(ev Event) (Effects, error) { return Effects{}, ErrCorrupt }

// Outstanding lists every attempt that is in flight as far as the state knows, in the order of their starts: after Recover,
// what the new owner must start again.
func (s *State) Outstanding() []Start { return nil }

// NextTimer is the earliest time at which TimerDue would do something; ok is false when nothing waits for a timer.
func (s *State) NextTimer() (at time.Time, ok bool) { return time.Time{}, false }

// Seq is the number of the last event.
func (s *State) Seq() int64 { return 0 }

// Status is where the run stands, with the reason of a pause or drain.
func (s *State) Status() (Status, string) { return StatusPending, "" }

// InFlight counts attempts that were started and have not ended.
func (s *State) InFlight() int { return 0 }

// End is how the run ended, or nil.
func (s *State) End() *RunEnd { return nil }
