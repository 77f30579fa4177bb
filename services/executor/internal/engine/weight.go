package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// errFull is the refusal of a run for which there is no room in memory.
func (t *session) errFull(kind errs.Kind) *errs.Error {
	return errs.New(kind, memory.ReasonMemoryFull, "the live runs of this executor, or those of this namespace, have used up their memory (%d MiB, half of it for one namespace)", t.memory.Total>>20).
		Hint("try again in a moment: there is room when other runs end or wait").RetryAfter(retryWhenFull)
}

// peersKnown is how long hasPeers repeats its last answer.
const peersKnown = time.Second

// hasPeers reports whether another executor lived within the last second. It is false if the journal cannot
// tell.
func (t *session) hasPeers() bool {
	p := &t.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked.IsZero() || time.Since(p.asked) >= peersKnown {
		all, err := t.e.journal.Executors(t.background)
		p.live = err == nil && slices.ContainsFunc(all, func(x journal.Executor) bool {
			return x.Owner.ID != t.owner.ID && x.SinceHeartbeat < t.e.cfg.Lease
		})
		p.asked = time.Now()
	}
	return p.live
}

// readPause is the pause between two tries to get a place to read a run.
const readPause = 5 * time.Millisecond

// readTurn waits for a place to read a run. ok is false if the session ends first. done gives the place back,
// and may be called more than once.
func (t *session) readTurn() (done func(), ok bool) {
	for !t.memory.BeginRead(min(t.e.cfg.MaxRunBytes, t.memory.Total/4)) {
		if !t.sleep(readPause) {
			return nil, false
		}
	}
	return sync.OnceFunc(t.memory.EndRead), true
}

// startNeeds is how many bytes a run takes while it begins. Its inputs count three times: in the machine, in
// the row and in the first event.
func (t *session) startNeeds(p *program.Program, req *command.StartRequest) int64 {
	n := replay.Weight(p.Nodes) + 3*record.InputSize(req.Propagates(), req.Context)
	if !t.countsGraph(p) {
		n += p.Bytes() + int64(len(p.Body))
	}
	return n
}

// retryWhenFull is when a refused client should try again.
const retryWhenFull = 2 * time.Second

// Positions reads the positions of runs.
func (e *Engine) Positions() replay.Source { return replay.NewSource(e.journal, e.programs, e.log) }
