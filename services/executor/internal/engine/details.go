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

func (c callScope) Rounds(id string) []json.RawMessage {
	c.r.lock()
	defer c.r.mu.Unlock()
	return c.r.State.ScopeOf(c.ref).Rounds(id)
}

const (
	// maxDetails bounds the details of one heartbeat in bytes.
	maxDetails = 64 << 10
	// maxDetailsTogether bounds the kept details of a run in bytes, since its position holds all of them.
	maxDetailsTogether = 1 << 20
	// maxDetailsPosition bounds the positions that are written only because of heartbeats. Each detailsStep
	// bytes of a position add one DetailsEvery to the pause between writes, so a large position is written
	// less often.
	maxDetailsPosition = 2 << 20
	detailsStep        = 64 << 10
)

// recordDetails publishes the details of a heartbeat and keeps them for the next attempt: always in memory,
// and from time to time in the journal, with the run's position. If the run has no room for them, the next
// attempt begins with earlier details.
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
	position := r.ResultBytes + r.Details.Bytes
	if time.Since(r.detailsWritten) < t.e.cfg.DetailsEvery*time.Duration(1+position/detailsStep) || position > maxDetailsPosition {
		return
	}
	t.writeDetails(r)
}

// writeDetails writes the run's position with the latest details. The caller holds r.mu.
func (t *session) writeDetails(r *run) {
	r.detailsWritten = time.Now()
	position, err := r.snapshot()
	if err != nil {
		return // decisions are in the journal all the same
	}
	r.SnapSeq = r.Seq
	r.write(&journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq, Snapshot: position})
}

// detailsOf returns the details with which an attempt begins.
func (t *session) detailsOf(a *attempt) json.RawMessage {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	if d := a.run.Details.By[a.start.Ref]; d != nil {
		return d.Said
	}
	return nil
}
