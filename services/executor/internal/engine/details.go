package engine

import (
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
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
	return c.r.State.ScopeOf(c.ref).Var(name)
}

func (c callScope) Ancestor(id string) (workgraph.NodeResult, bool) {
	c.r.lock()
	defer c.r.mu.Unlock()
	return c.r.State.ScopeOf(c.ref).Ancestor(id)
}

func (c callScope) Ancestors() []string {
	c.r.lock()
	defer c.r.mu.Unlock()
	return c.r.State.ScopeOf(c.ref).Ancestors()
}

const (
	// maxDetails bounds what one heartbeat says.
	maxDetails = 64 << 10
	// maxDetailsTogether bounds what is kept of a run's heartbeats: its position holds all of it.
	maxDetailsTogether = 1 << 20
	// maxDetailsPosition bounds the positions that are written for the sake of heartbeats alone, and
	// detailsStep how much of a position takes DetailsEvery once more: a large one is written less often.
	maxDetailsPosition = 2 << 20
	detailsStep        = 64 << 10
)

// recordDetails tells watchers what a heartbeat says, and keeps it for the next attempt: in memory always, in
// the journal from time to time, together with the run's position. Where the run has no room for it, the next
// attempt begins with what was said before.
func (t *session) recordDetails(a *attempt, details json.RawMessage) {
	if len(details) == 0 || len(details) > maxDetails || workgraph.ValueFault(details) != "" {
		return
	}
	reporter{t.e.feed, a}.Progress(details)
	r := a.run
	r.lock()
	defer r.mu.Unlock()
	if r.gone.Load() || a.reported.Load() {
		return
	}
	d := &record.Detail{Ref: a.start.Ref, Attempt: a.start.Attempt, Said: details}
	if r.Details.Bytes-r.Details.By[d.Ref].Size()+d.Size() > maxDetailsTogether {
		return
	}
	r.Details.Put(d)
	r.unsaved = true
	r.weigh()
	position := r.Kept + r.Details.Bytes
	if time.Since(r.detailsWritten) < t.e.cfg.DetailsEvery*time.Duration(1+position/detailsStep) || position > maxDetailsPosition {
		return
	}
	t.writeDetails(r)
}

// writeDetails writes what heartbeats said last, with the run's position. The caller holds r.mu.
func (t *session) writeDetails(r *run) {
	r.detailsWritten = time.Now()
	position, err := r.snapshot()
	if err != nil {
		return // what was decided is in the journal all the same
	}
	r.SnapSeq = r.Seq
	r.write(&journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq, Snapshot: position})
}

// detailsOf is what an attempt begins with.
func (t *session) detailsOf(a *attempt) json.RawMessage {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	if d := a.run.Details.By[a.start.Ref]; d != nil {
		return d.Said
	}
	return nil
}
