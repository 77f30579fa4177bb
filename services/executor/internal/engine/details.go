package engine

import (
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// callScope is what a call sees of its run, under the run's lock.
type callScope struct {
	r   *run
	ref workgraph.Ref
}

func (c callScope) Var(name string) (json.RawMessage, bool) {
	c.r.lock()
	defer c.r.mu.Unlock()
	return c.r.state.ScopeOf(c.ref).Var(name)
}

func (c callScope) Ancestor(id string) (workgraph.NodeResult, bool) {
	c.r.lock()
	defer c.r.mu.Unlock()
	return c.r.state.ScopeOf(c.ref).Ancestor(id)
}

func (c callScope) Ancestors() []string {
	c.r.lock()
	defer c.r.mu.Unlock()
	return c.r.state.ScopeOf(c.ref).Ancestors()
}

// detail is what the last heartbeat of a call said; the next attempt of its visit or item begins with it.
type detail struct {
	Ref     workgraph.Ref   `json:"ref"`
	Attempt int             `json:"attempt"`
	Said    json.RawMessage `json:"said"`

	written time.Time
}

// maxDetails bounds what one heartbeat says, and maxDetailsPosition the positions that are written for the sake of heartbeats alone.
const (
	maxDetails         = 64 << 10
	maxDetailsPosition = 1 << 20
)

// keepDetails tells watchers what a heartbeat says, and keeps it for the next attempt: in memory always, in the journal from time to time,
// together with the run's position.
func (t *term) keepDetails(a *attempt, details json.RawMessage) {
	if len(details) == 0 || len(details) > maxDetails || workgraph.ValueFault(details) != "" {
		return
	}
	reporter{t.e.hub, a}.Progress(details)
	r := a.run
	r.lock()
	defer r.mu.Unlock()
	if r.gone.Load() || a.reported.Load() {
		return
	}
	d := r.details[a.start.Ref]
	if d == nil {
		d = &detail{Ref: a.start.Ref}
		if r.details == nil {
			r.details = map[workgraph.Ref]*detail{}
		}
		r.details[a.start.Ref] = d
	}
	d.Attempt, d.Said, r.said = a.start.Attempt, details, true
	if time.Since(d.written) < t.e.cfg.DetailsEvery || r.kept > maxDetailsPosition {
		return
	}
	t.keepSaid(r)
}

// keepSaid writes what heartbeats said last, with the run's position. The caller holds r.mu.
func (t *term) keepSaid(r *run) {
	for _, d := range r.details {
		d.written = time.Now() // one position has them all
	}
	position, err := r.snapshot()
	if err != nil {
		return // what was decided is in the journal all the same
	}
	r.snapSeq = r.seq
	r.write(&journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.seq, Snapshot: position})
}

// detailsOf is what an attempt begins with.
func (t *term) detailsOf(a *attempt) json.RawMessage {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	if d := a.run.details[a.start.Ref]; d != nil {
		return d.Said
	}
	return nil
}
