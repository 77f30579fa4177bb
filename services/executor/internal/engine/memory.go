package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
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
	// line are runs that wait for room, the oldest first; grants is what was kept for those that got it, by run.
	line   []*waiter
	grants map[string]int64
	// reading counts runs that are being read, of which it is not known yet what they take.
	reading int
}

// waiter is a run that waits for room.
type waiter struct {
	run, namespace string
	size           int64
	// since is when it began to wait, turn when its turn began; zero before that.
	since, turn time.Time
}

const (
	// lineAge is how long a run waits for room until it is let in before all that are not small, and lineTurn for how long it keeps them out;
	// then it stands in line anew.
	lineAge, lineTurn = 5 * time.Second, 10 * time.Second
)

func newMemory(total int64) *memory {
	return &memory{total: total, by: map[string]int64{}, grants: map[string]int64{}}
}

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
	switch {
	case m.used == 0:
		return true
	case n > inflight.Small && m.by[namespace] > 0 && m.overdue() != nil:
		return false
	}
	return m.used+n <= total && (m.by[namespace] == 0 || m.by[namespace]+n <= share)
}

// overdue is the run whose turn it is, since it has waited for long; nil if there is none. It is called with m.mu held.
func (m *memory) overdue() *waiter {
	if len(m.line) == 0 || time.Since(m.line[0].since) < lineAge {
		return nil
	}
	w := m.line[0]
	switch {
	case w.turn.IsZero():
		w.turn = time.Now()
	case time.Since(w.turn) >= lineTurn:
		w.since, w.turn = time.Now(), time.Time{}
		m.line = append(m.line[1:], w)
		return m.overdue() // the others have turns of their own, however long they have waited
	}
	return w
}

// enter puts a run in line.
func (m *memory) enter(run, namespace string, size int64) *waiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &waiter{run: run, namespace: namespace, size: size, since: time.Now()}
	m.line = append(m.line, w)
	return w
}

// leave takes a run out of the line.
func (m *memory) leave(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.line = slices.DeleteFunc(m.line, func(o *waiter) bool { return o == w })
}

// admit takes the room that a run in line needs, if it is there, and keeps it until claim or forfeit. One whose turn it is needs no share, and if it is
// larger than three quarters of the whole, no more than that the rest holds a quarter: else it would wait until there is nothing at all.
func (m *memory) admit(w *waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	turn := m.overdue() == w
	if turn && (m.used+w.size <= m.total || m.used <= m.total/4) || !turn && m.fits(w.namespace, w.size) {
		m.count(w.namespace, w.size)
		m.grants[w.run] += w.size
		return true
	}
	return false
}

// claim returns what is kept for a run. It stays counted, and is the caller's to give back.
func (m *memory) claim(run string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.grants[run]
	delete(m.grants, run)
	return n
}

// read takes a place to read a run, of which it is known afterwards only what it takes: there are as many as would fit if each took most.
func (m *memory) read(most int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reading > 0 && m.used+int64(m.reading+1)*most > m.total {
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

// awaitRoom waits until there is room for a run, which is kept for it, and reports whether the term goes on.
func (t *term) awaitRoom(id string, e *noRoomError) bool {
	w := t.memory.enter(id, e.namespace, e.size)
	defer t.memory.leave(w)
	for !t.memory.admit(w) {
		if !t.rest(roomPause/2 + rand.N(roomPause)) {
			return false
		}
	}
	return true
}

// forfeit gives back what was kept for a run that was not read.
func (t *term) forfeit(id string, e *noRoomError) {
	if e != nil {
		t.memory.add(e.namespace, -t.memory.claim(id))
	}
}

// readPause is the pause between two looks for a place to read a run.
const readPause = 5 * time.Millisecond

// readTurn waits for a place to read a run. It reports whether there is one; then done, which may be called more than once, gives it back.
func (t *term) readTurn() (done func(), ok bool) {
	for !t.memory.read(min(t.e.cfg.MaxRunBytes, t.memory.total/4)) {
		if !t.rest(readPause) {
			return nil, false
		}
	}
	return sync.OnceFunc(t.memory.wasRead), true
}

// needs is what a run takes while it is begun. What it is given counts three times: in the machine, in its row and in its first event.
func (t *term) needs(p *program, req *StartRequest) int64 {
	n := weight(p.nodes) + 3*inputSize(req.travels(), req.Context)
	if !t.holds(p) {
		n += p.bytes() + int64(len(p.body))
	}
	return n
}

// weight is about what the run takes, without the graph that it began with. The caller holds r.mu, or is the only one who knows r.
func (r *run) weight() int64 {
	return weight(max(r.program.nodes, int(r.tally.counts.Total))) + r.kept + r.given + r.grown
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
			r.t.memory.add(r.namespace, size-was)
			return
		}
	}
}

// attemptWeight is about what an attempt takes besides its values while it stands in line or is under way.
const attemptWeight = 2 << 10

// came is what an event brought into the run from outside. What a call of the run brought is counted with its results.
func came(d *Durable, encoded int) int64 {
	switch d.Kind {
	case workgraph.SignalReceived, workgraph.MessageReceived, workgraph.InterruptClosed, workgraph.ChildClosed:
		return int64(encoded)
	}
	return 0
}

// brought is what an event adds to the results that the run holds, besides those of its own attempts.
func brought(d *Durable) int64 {
	if d.Outcome == nil || d.Kind == workgraph.AttemptEnded {
		return 0
	}
	return int64(outcomeSize(*d.Outcome))
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
