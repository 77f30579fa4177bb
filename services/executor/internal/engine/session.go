package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// session is one time of ownership: from a registration to its loss or return. Everything in it dies with it.
type session struct {
	e      *Engine
	owner  journal.Owner
	lease  *journal.Lease
	writer *journal.Writer
	sched  *sched.Scheduler
	// calls is the context below which actors are called, background that of scans and loads.
	calls      context.Context //nolint:containedctx // a term is a scope of its own: everything it starts ends with it
	background context.Context //nolint:containedctx // as above
	commands   chan struct{}
	alarms     *alarms
	memory     *memory.Ledger
	held       holdings
	peers      peers
	asking     *obs.Outage // what attempts need to know before or after they call
	work       sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	runs         map[string]*run
	loading      map[string]*loading
	pendingLoads map[string]bool // runs that wait for their turn to be read
	reads        loadLine
	lines        roomLines
	losses       map[string]loss

	applied appliedCommands
}

// close lets no run in any more.
func (t *session) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

func (t *session) all() []*run {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*run, 0, len(t.runs))
	for _, r := range t.runs {
		out = append(out, r)
	}
	return out
}

func (t *session) live() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.runs)
}

func (t *session) get(id string) *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs[id]
}

// insert makes r the run of its id. It reports false when the term is over.
func (t *session) insert(r *run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.put(r)
	return true
}

// insertNew is insert for a run that has only just got its id. It reports false when there is one already.
func (t *session) insertNew(r *run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.runs[r.id] != nil {
		return false
	}
	t.put(r)
	return true
}

// put is called with t.mu held.
func (t *session) put(r *run) {
	if was := t.runs[r.id]; was != nil {
		t.drop(was)
	}
	t.runs[r.id] = r
	r.size.Store(0)
	t.hold(r)
}

func (t *session) remove(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs[r.id] == r {
		t.drop(r)
	}
}

// drop is called with t.mu held.
func (t *session) drop(r *run) {
	delete(t.runs, r.id)
	t.letGo(r)
	if size := r.size.Swap(uncounted); size != uncounted {
		t.memory.Add(r.namespace, -size)
	}
	if r.beyond > 0 {
		t.memory.Canceled.Add(r.namespace, -r.beyond)
		r.beyond = 0
	}
}

// spawn runs f beside everything else; the term does not end before it. It reports false, and does nothing,
// when the term is over.
func (t *session) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Go(f)
	return true
}

// maxBacklog is how many bytes may wait to be written before new runs are refused.
const maxBacklog = 64 << 20

// rest waits, and reports whether the term goes on.
func (t *session) rest(d time.Duration) bool {
	return sleep.For(t.background, d)
}

// graced is a context for what the term's end must not cut off at once.
func (t *session) graced() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.background))
	stop := context.AfterFunc(t.background, func() { time.AfterFunc(t.e.cfg.Grace, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// peers is what was found out last about other executors.
type peers struct {
	mu    sync.Mutex
	asked time.Time
	live  bool
}

// holdings are the graphs of live runs.
type holdings struct {
	mu sync.Mutex
	by map[*program.Program]*holding
}

type holding struct {
	namespace string
	runs      int
}

// pollCommandsSoon makes the owner look for commands at once.
func (t *session) pollCommandsSoon() {
	select {
	case t.commands <- struct{}{}:
	default:
	}
}

// loss is how often decisions of a run could not be written, and why the last one could not.
type loss struct {
	times  int
	reason string
}

// maxLosses is after how many losses a run is paused: reading it again does not help. A paused run is seen,
// an endless loop is not.
const maxLosses = 3

// lost is why the run is to be paused when it is read; empty if it is not.
func (t *session) lost(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.losses[id]
	if l.times < maxLosses {
		return ""
	}
	delete(t.losses, id)
	return l.reason
}

// uncounted is the size of a run that is not among the live ones, yet or any more.
const uncounted = -1

// hold counts the run's graph, once for all live runs of this executor that share it.
func (t *session) hold(r *run) {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	h := t.held.by[r.Program]
	if h == nil {
		h = &holding{namespace: r.namespace}
		t.held.by[r.Program] = h
		t.memory.Add(h.namespace, r.Program.Bytes())
	}
	h.runs++
}

// letGo is the end of hold.
func (t *session) letGo(r *run) {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	h := t.held.by[r.Program]
	if h == nil {
		return
	}
	if h.runs--; h.runs == 0 {
		delete(t.held.by, r.Program)
		t.memory.Add(h.namespace, -r.Program.Bytes())
	}
}

// holds reports whether the graph is counted already.
func (t *session) holds(p *program.Program) bool {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	return t.held.by[p] != nil
}

// maxFaulty is how long an answer is asked for that nobody has classified: it may be a database in distress,
// or a fault of ours.
const maxFaulty = time.Minute

// steadily repeats what asks a database until it answers, or ctx ends.
func (t *session) steadily(ctx context.Context, ask func() error) error {
	began := time.Now()
	for wait := soonestTry; ; wait = min(2*wait, time.Second) {
		err := ask()
		if err == nil {
			t.asking.Answered()
			return nil
		}
		if !passing(err) || ctx.Err() != nil || errs.Is(err, errs.ResourceExhausted) || errs.Is(err, errs.Internal) && time.Since(began) > maxFaulty {
			return err
		}
		// One line for all attempts that ask, one while it lasts, and one at the end.
		t.asking.Logger().WarnContext(ctx, "what an attempt needs to know cannot be asked", "err", err)
		sleep.For(ctx, wait)
	}
}

// passing reports whether a start may succeed when it is tried again.
func passing(err error) bool {
	if _, ok := errors.AsType[workgraph.Faults](err); ok {
		return false
	}
	return errs.Is(err, errs.Unavailable) || errs.Is(err, errs.ResourceExhausted) || errs.Is(err, errs.Internal) || errs.Is(err, errs.DeadlineExceeded)
}
