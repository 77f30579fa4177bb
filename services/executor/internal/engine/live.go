package engine

import (
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file answers questions of package query that only the memory of this executor can answer.

// live is a run that is in memory here, or nil.
func (e *Engine) live(namespace, runID string) *run {
	if t := e.current(); t != nil {
		if r := t.get(runID); r != nil && r.namespace == namespace {
			return r
		}
	}
	return nil
}

// Flight is an attempt of a live run.
type Flight struct {
	Ref     workgraph.Ref
	Attempt int
	Actor   string
	// Start is when the attempt began; zero while it waits.
	Start time.Time
}

// InFlight lists the attempts of a run that have not ended, in no order; nil if the run is not in memory
// here.
func (e *Engine) InFlight(namespace, runID string) []Flight {
	r := e.live(namespace, runID)
	if r == nil {
		return nil
	}
	all := r.inFlight()
	out := make([]Flight, len(all))
	for i, a := range all {
		out[i] = Flight{Ref: a.start.Ref, Attempt: a.start.Attempt, Actor: a.start.Actor, Start: a.startTime()}
	}
	return out
}

// Held is an attempt that has not begun, and what holds it back.
type Held struct {
	Ref     workgraph.Ref
	Attempt int
	Actor   string
	Wait    sched.GateWait
}

// HeldBack lists the attempts of a run that the machine has started and the scheduler has not; nil if the run
// is not in memory here.
func (e *Engine) HeldBack(namespace, runID string) []Held {
	r := e.live(namespace, runID)
	if r == nil {
		return nil
	}
	var out []Held
	for _, a := range r.inFlight() {
		if b, ok := r.t.sched.WaitOf(&a.task); ok {
			out = append(out, Held{Ref: a.start.Ref, Attempt: a.start.Attempt, Actor: a.start.Actor, Wait: b})
		}
	}
	return out
}

// Backlog counts attempts that wait here for a place and for nothing else.
func (e *Engine) Backlog() int {
	if t := e.current(); t != nil {
		return t.sched.Backlog()
	}
	return 0
}

// WaitsForRoom reports whether a run of this executor waits for memory, and since when.
func (e *Engine) WaitsForRoom(namespace, runID string) (since time.Time, waits bool) {
	t := e.current()
	if t == nil {
		return since, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.lines.by[runID]
	if t.runs[runID] != nil || line == nil || line.lacks.Namespace != namespace {
		return since, false
	}
	return line.since, true
}

// Owns reports whether o is the present ownership session of this executor.
func (e *Engine) Owns(o journal.Owner) bool {
	t := e.current()
	return t != nil && t.owner == o
}

// RunJournal is the journal of the engine.
func (e *Engine) RunJournal() journal.Journal { return e.journal }

// Lease is how long an executor stays registered without a heartbeat.
func (e *Engine) Lease() time.Duration { return e.cfg.Lease }

// Here returns the root of a run in memory here, and how far its journal is durable, so that its row need not
// be read. ok is false for a run that has ended, and for one without a durable event.
func (e *Engine) Here(namespace, runID string) (root string, last int64, ok bool) {
	r := e.live(namespace, runID)
	if r == nil {
		return "", 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.root, r.durable, r.durable > 0 && !r.over && !r.gone.Load()
}

// Holds reports whether the run is in memory here, so that the feed publishes all its events.
func (e *Engine) Holds(runID string) bool {
	t := e.current()
	return t != nil && t.get(runID) != nil
}
