package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonMemoryFull is the reason when no more runs are taken into memory for the moment.
const ReasonMemoryFull = errs.ReasonMemoryFull

const (
	// defaultLive is what live runs may take in a process that has no memory limit, minLive in one with a small limit.
	defaultLive = 1 << 30
	minLive     = 32 << 20
)

// DefaultLive is what live runs may take together unless the configuration says otherwise: three tenths of Go's memory limit, 1 GiB without one. Requests
// under way have a quarter, and the rest is for what is collected, encoded and sent meanwhile.
func DefaultLive() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return defaultLive
	}
	return max(limit/10*3, minLive)
}

// memory is the account of what live runs take, with their graphs and with what they have waiting to be written. A namespace may have half
// of it, of which the last quarter is for runs that are small. What happens to a run that is live is always counted and never refused. It is safe for concurrent use.
type memory struct {
	total int64

	mu   sync.Mutex
	used int64
	by   map[string]int64
}

func newMemory(total int64) *memory { return &memory{total: total, by: map[string]int64{}} }

// add counts n bytes more, or less.
func (m *memory) add(namespace string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(namespace, n)
}

func (m *memory) count(namespace string, n int64) {
	m.used += n
	if m.by[namespace] += n; m.by[namespace] == 0 {
		delete(m.by, namespace)
	}
}

// take adds n bytes if there is room for them.
func (m *memory) take(namespace string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.fits(namespace, n) {
		return false
	}
	m.count(namespace, n)
	return true
}

// room reports whether there is room for n bytes.
func (m *memory) room(namespace string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fits(namespace, n)
}

// fits is called with m.mu held. A namespace that has nothing here gets its first run however large it is, as soon as the whole has room for it; and when there is nothing
// at all, anything fits: what was accepted once can always go on.
func (m *memory) fits(namespace string, n int64) bool {
	share, total := m.total/2, m.total
	if n > inflight.Small {
		share, total = share/4*3, total/4*3
	}
	if m.used == 0 {
		return true
	}
	return m.used+n <= total && (m.by[namespace] == 0 || m.by[namespace]+n <= share)
}

// full reports whether nothing at all can be taken, whoever it is for.
func (m *memory) full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used >= m.total
}

func (m *memory) bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// maxBacklog is how many bytes may wait to be written before new runs are refused.
const maxBacklog = 64 << 20

// retryWhenFull is when it is worth asking again.
const retryWhenFull = 2 * time.Second

// errFull is the answer to who wants a run in memory for which there is no room.
func (t *term) errFull(kind errs.Kind) *errs.Error {
	return errs.New(kind, ReasonMemoryFull, "the live runs of this executor, or those of this namespace, hold the memory that they may (%d MiB, half of it for a namespace)", t.memory.total>>20).
		Hint("try again in a moment: there is room when others have ended or wait").RetryAfter(retryWhenFull)
}

// noRoomError says that a run is not brought into memory before there is room for it.
type noRoomError struct {
	namespace string
	size      int64
}

func (e *noRoomError) Error() string {
	return fmt.Sprintf("there is no room for a run of %d bytes", e.size)
}

// roomPause is the pause between two looks for room.
const roomPause = 200 * time.Millisecond

// awaitRoom waits until there is room, and reports whether the term goes on.
func (t *term) awaitRoom(e *noRoomError) bool {
	for !t.memory.room(e.namespace, e.size) {
		if !t.rest(roomPause/2 + rand.N(roomPause)) {
			return false
		}
	}
	return true
}

// needs is what a run takes while it is begun. What it is given counts three times: in the machine, in its row and in its first event.
func (t *term) needs(p *program, req *StartRequest) int64 {
	n := weight(p.nodes) + 3*inputSize(req.travels(), req.Context)
	if !t.holds(p) {
		n += p.bytes() + int64(len(p.body))
	}
	return n
}

// weigh counts the run anew. The caller holds r.mu.
func (r *run) weigh() {
	size := weight(r.program.nodes) + r.kept + r.given
	r.t.memory.add(r.namespace, size-r.size.Swap(size))
}

// weight is about what a run takes in memory before it has results: the machine keeps a state for every node.
func weight(nodes int) int64 { return 8<<10 + 512*int64(nodes) }

// hold counts the run's graph, once for all live runs of this executor that share it.
func (t *term) hold(r *run) {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	h := t.held.by[r.program]
	if h == nil {
		h = &holding{namespace: r.namespace}
		t.held.by[r.program] = h
		t.memory.add(h.namespace, r.program.bytes())
	}
	h.runs++
}

// letGo is the end of hold.
func (t *term) letGo(r *run) {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	h := t.held.by[r.program]
	if h == nil {
		return
	}
	if h.runs--; h.runs == 0 {
		delete(t.held.by, r.program)
		t.memory.add(h.namespace, -r.program.bytes())
	}
}

// holds reports whether the graph is counted already.
func (t *term) holds(p *program) bool {
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

// inputSize is what a run is given at its start.
func inputSize(in workgraph.Input, more ...json.RawMessage) int64 {
	n := 0
	for _, v := range in.Args {
		n += len(v)
	}
	for k, v := range in.Named {
		n += len(k) + len(v)
	}
	for _, v := range more {
		n += len(v)
	}
	return int64(n)
}
