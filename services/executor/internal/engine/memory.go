package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/memlimit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonMemoryFull is the reason when no more runs are taken into memory for the moment.
const ReasonMemoryFull = errs.ReasonMemoryFull

const (
	// defaultLive is what live runs may take in a process that has no memory limit, minLive in one with a
	// small limit.
	defaultLive = 1 << 30
	minLive     = 32 << 20
)

// DefaultLive is what live runs may take together unless the configuration says otherwise: an eighth of Go's
// memory limit, 1 GiB without one. Requests under way have a fifth; calls and their results, what is made of
// requests, and what is encoded and sent take as much again. So less than half of the limit is in use when
// one tenant takes all that it may: beyond that the collector runs without a pause, and all tenants wait for
// it.
func DefaultLive() int64 {
	limit := memlimit.Bytes()
	if limit == 0 {
		return defaultLive
	}
	return max(limit/8, minLive)
}

// memory counts the bytes that live runs hold, with their graphs and with what they have waiting to be
// written, against a budget. Only runs that are to become live wait for room or are refused. What a live run
// takes later is counted without a check, and relieve evicts runs when that is too much. It is safe for
// concurrent use.
type memory struct {
	*inflight.Budget
	total int64
	// canceled bounds what canceled runs hold that were read though the budget had no room for them. The
	// budget counts it as well, as it does what live runs are given.
	canceled *inflight.Budget

	mu sync.Mutex
	// grants is what is kept for runs that stood in line, by run.
	grants map[string]grant
	// reading counts runs that are being read, of which it is not known yet what they take.
	reading int

	// unwritten is how much of what each namespace holds waits to be written.
	unwritten map[string]int64

	// over gets a value when a namespace holds more than it may.
	over chan struct{}
}

// grant is what is kept for a run: in the budget, or in that of canceled runs.
type grant struct {
	size     int64
	canceled bool
}

// canceledShare is the part of the memory of live runs that canceled ones may take beyond it while they end,
// which they do at once: none of what they did goes on.
const canceledShare = 8

func newMemory(total int64) *memory {
	return &memory{Budget: inflight.New(total), total: total, canceled: inflight.New(max(total/canceledShare, 1)), grants: map[string]grant{}, unwritten: map[string]int64{},
		over: make(chan struct{}, 1)}
}

// Add counts n bytes more, or less, of what the live runs of a namespace hold.
func (m *memory) Add(namespace string, n int64) {
	if m.Budget.Add(namespace, n) && n > 0 {
		select {
		case m.over <- struct{}{}:
		default:
		}
	}
}

// write counts n bytes more, or less, that wait to be written.
func (m *memory) write(namespace string, n int64) {
	m.mu.Lock()
	if m.unwritten[namespace] += n; m.unwritten[namespace] == 0 {
		delete(m.unwritten, namespace)
	}
	m.mu.Unlock()
	m.Add(namespace, n)
}

// isWriting reports whether something of the namespace waits to be written.
func (m *memory) isWriting(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwritten[namespace] > 0
}

// wait stands in line for the room that a run lacks, which is kept for it until take or forfeit.
func (m *memory) wait(ctx context.Context, run string, lacks *noRoomError) error {
	budget := m.Budget
	if lacks.canceled {
		budget = m.canceled
	}
	if err := budget.Await(ctx, lacks.namespace, lacks.size); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grants[run] = grant{lacks.size, lacks.canceled}
	return nil
}

// claim returns what is kept for a run. It stays counted, and is the caller's to give back.
func (m *memory) claim(run string) grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.grants[run]
	delete(m.grants, run)
	return g
}

// take counts a run of this size that was read, and reports whether there is room for it. A run that was
// canceled may exceed the budget within m.canceled: then beyond is what it has of that, for the caller to
// give back.
func (m *memory) take(run, namespace string, size int64, canceled bool) (beyond int64, ok bool) {
	switch g := m.claim(run); {
	case g.canceled:
		beyond = g.size
	case g.size > 0:
		m.Add(namespace, size-g.size)
		return 0, true
	case m.Try(namespace, size):
		return 0, true
	case canceled && m.canceled.Try(namespace, size):
		beyond = size
	default:
		return 0, false
	}
	m.Add(namespace, size)
	return beyond, true
}

// forfeit gives back what is kept for a run that was not read, if anything is.
func (m *memory) forfeit(run, namespace string) {
	switch g := m.claim(run); {
	case g.canceled:
		m.canceled.Add(namespace, -g.size)
	case g.size > 0:
		m.Add(namespace, -g.size)
	}
}

// read takes a place to read a run, and reports whether there was one. How much a run takes is known only
// after it was read, so there are as many places as runs of most bytes would fit. There is always one.
func (m *memory) read(most int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reading > 0 && m.Used()+int64(m.reading+1)*most > m.total {
		return false
	}
	m.reading++
	return true
}

// wasRead gives the place back.
func (m *memory) wasRead() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading--
}

// maxBacklog is how many bytes may wait to be written before new runs are refused.
const maxBacklog = 64 << 20

// retryWhenFull is when it is worth asking again.
const retryWhenFull = 2 * time.Second

// errFull is the refusal of a run for which there is no room in memory.
func (t *session) errFull(kind errs.Kind) *errs.Error {
	return errs.New(kind, ReasonMemoryFull, "the live runs of this executor, or those of this namespace, hold the memory that they may (%d MiB, half of it for a namespace)", t.memory.total>>20).
		Hint("try again in a moment: there is room when others have ended or wait").RetryAfter(retryWhenFull)
}

// noRoomError says that a run was not brought into memory, since there is no room of this size for it.
type noRoomError struct {
	namespace string
	size      int64
	// canceled says that the run was canceled: it is read as soon as there is room among those that were.
	canceled bool
}

// line names the line in which the run waits.
func (e *noRoomError) line() lineKey { return lineKey{e.namespace, e.canceled} }

// ofCanceled is the same of a run that was canceled.
func (e *noRoomError) ofCanceled() *noRoomError { return &noRoomError{e.namespace, e.size, true} }

func (e *noRoomError) Error() string {
	return fmt.Sprintf("there is no room for a run of %d bytes", e.size)
}

// peersKnown is how long hasPeers repeats its last answer.
const peersKnown = time.Second

// peers is what was found out last about other executors.
type peers struct {
	mu    sync.Mutex
	asked time.Time
	live  bool
}

// hasPeers reports whether another executor lives, as was found out within the last second. If the journal
// cannot tell, none does.
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

// readPause is the pause between two looks for a place to read a run.
const readPause = 5 * time.Millisecond

// readTurn waits for a place to read a run. It reports whether there is one; then done, which may be called
// more than once, gives it back.
func (t *session) readTurn() (done func(), ok bool) {
	for !t.memory.read(min(t.e.cfg.MaxRunBytes, t.memory.total/4)) {
		if !t.rest(readPause) {
			return nil, false
		}
	}
	return sync.OnceFunc(t.memory.wasRead), true
}

// needs is what a run takes while it is begun. What it is given counts three times: in the machine, in its
// row and in its first event.
func (t *session) needs(p *program, req *StartRequest) int64 {
	n := weight(p.nodes) + 3*record.InputSize(req.propagates(), req.Context)
	if !t.holds(p) {
		n += p.bytes() + int64(len(p.body))
	}
	return n
}

// weight is about what the run takes, without the graph that it began with. The caller holds r.mu, or is the
// only one who knows r.
func (r *run) weight() int64 {
	return weight(max(r.program.nodes, int(r.tally.Counts.Total))) + r.kept + r.given + r.expanded + r.detailBytes
}

// uncounted is the size of a run that is not among the live ones, yet or any more.
const uncounted = -1

// weigh counts the run anew while it is live. The caller holds r.mu.
func (r *run) weigh() {
	for size := r.weight(); ; {
		was := r.size.Load()
		if was == size || was == uncounted {
			return
		}
		if r.size.CompareAndSwap(was, size) {
			r.t.memory.Add(r.namespace, size-was)
			return
		}
	}
}

// attemptWeight is about what an attempt takes besides its values while it stands in line or is under way.
const attemptWeight = 2 << 10

// came is what an event brought into the run from outside. What a call of the run brought is counted with its
// results.
func came(d *record.Durable, encoded int) int64 {
	switch d.Kind {
	case workgraph.SignalReceived, workgraph.MessageReceived, workgraph.InterruptClosed, workgraph.ChildClosed:
		return int64(encoded)
	}
	return 0
}

// brought is what an event adds to the results that the run holds, besides those of its own attempts.
func brought(d *record.Durable) int64 {
	if d.Outcome == nil || d.Kind == workgraph.AttemptEnded {
		return 0
	}
	return int64(record.OutcomeSize(*d.Outcome))
}

// weight is about what a run takes in memory before it has results: the machine keeps a state for every node.
func weight(nodes int) int64 { return 8<<10 + 512*int64(nodes) }

// hold counts the run's graph, once for all live runs of this executor that share it.
func (t *session) hold(r *run) {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	h := t.held.by[r.program]
	if h == nil {
		h = &holding{namespace: r.namespace}
		t.held.by[r.program] = h
		t.memory.Add(h.namespace, r.program.bytes())
	}
	h.runs++
}

// letGo is the end of hold.
func (t *session) letGo(r *run) {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	h := t.held.by[r.program]
	if h == nil {
		return
	}
	if h.runs--; h.runs == 0 {
		delete(t.held.by, r.program)
		t.memory.Add(h.namespace, -r.program.bytes())
	}
}

// holds reports whether the graph is counted already.
func (t *session) holds(p *program) bool {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	return t.held.by[p] != nil
}

// holdings are the graphs of live runs.
type holdings struct {
	mu sync.Mutex
	by map[*program]*holding
}

type holding struct {
	namespace string
	runs      int
}
