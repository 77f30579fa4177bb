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

// session is one ownership session: the time from a registration to its loss or return. Everything in it ends
// with it.
type session struct {
	e      *Engine
	owner  journal.Owner
	lease  *journal.Lease
	writer *journal.Writer
	sched  *sched.Scheduler
	// calls is the context of calls of actors; background is the context of scans and loads.
	calls      context.Context //nolint:containedctx // a session is a scope of its own: everything it starts ends with it
	background context.Context //nolint:containedctx // as above
	commands   chan struct{}
	alarms     *alarms
	memory     *memory.Ledger
	held       holdings
	peers      peers
	asking     *obs.Outage // logs outages of what attempts ask the journal
	work       sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	runs         map[string]*run
	loading      map[string]*loading
	pendingLoads map[string]bool // runs that wait to be read, by id
	reads        loadLine
	lines        roomLines
	losses       map[string]loss

	applied appliedCommands
}

// close makes the session accept no more runs and no more work.
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

// insert makes r the live run of its id. It reports false if the session is closed.
func (t *session) insert(r *run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.put(r)
	return true
}

// insertNew inserts a run whose id is new. It reports false if the session is closed or has a run of that id.
func (t *session) insertNew(r *run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.runs[r.id] != nil {
		return false
	}
	t.put(r)
	return true
}

// put replaces the live run of that id. The caller holds t.mu.
func (t *session) put(r *run) {
	if was := t.runs[r.id]; was != nil {
		t.drop(was)
	}
	t.runs[r.id] = r
	r.size.Store(0)
	t.countGraph(r)
}

func (t *session) remove(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs[r.id] == r {
		t.drop(r)
	}
}

// drop removes a live run from all counts. The caller holds t.mu.
func (t *session) drop(r *run) {
	delete(t.runs, r.id)
	t.uncountGraph(r)
	if size := r.size.Swap(uncounted); size != uncounted {
		t.memory.Add(r.namespace, -size)
	}
	if r.beyond > 0 {
		t.memory.Canceled.Add(r.namespace, -r.beyond)
		r.beyond = 0
	}
}

// spawn runs f on a goroutine that the session waits for at its end. It reports false, and does not run f, if
// the session is closed.
func (t *session) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Go(f)
	return true
}

// maxBacklog is how many bytes of writes may wait before new runs are refused.
const maxBacklog = 64 << 20

// sleep waits for d. It reports false if the session's background work ends first.
func (t *session) sleep(d time.Duration) bool {
	return sleep.For(t.background, d)
}

// withGrace returns a context that outlives the background context by Config.Grace.
func (t *session) withGrace() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.background))
	stop := context.AfterFunc(t.background, func() { time.AfterFunc(t.e.cfg.Grace, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// peers is the last answer to the question whether other executors live.
type peers struct {
	mu    sync.Mutex
	asked time.Time
	live  bool
}

// holdings counts the live runs of each graph, so that a shared graph is counted once.
type holdings struct {
	mu sync.Mutex
	by map[*program.Program]*holding
}

type holding struct {
	namespace string
	runs      int
}

// pollCommandsSoon requests a look for commands at once.
func (t *session) pollCommandsSoon() {
	select {
	case t.commands <- struct{}{}:
	default:
	}
}

// loss says how often decisions of a run could not be written, and why the last one could not.
type loss struct {
	times  int
	reason string
}

// maxLosses is the number of losses after which a run is paused. Reading it again would not help, and a
// paused run is visible where an endless loop is not.
const maxLosses = 3

// lossReason returns why the run must be paused when it is read, and forgets its losses. It returns "" below
// maxLosses.
func (t *session) lossReason(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.losses[id]
	if l.times < maxLosses {
		return ""
	}
	delete(t.losses, id)
	return l.reason
}

// uncounted is the size of a run that is not live yet, or no longer live.
const uncounted = -1

// countGraph counts the run's graph in memory, once for all live runs that share it.
func (t *session) countGraph(r *run) {
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

// uncountGraph undoes countGraph.
func (t *session) uncountGraph(r *run) {
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

// countsGraph reports whether the memory of the graph is counted already.
func (t *session) countsGraph(p *program.Program) bool {
	t.held.mu.Lock()
	defer t.held.mu.Unlock()
	return t.held.by[p] != nil
}

// maxFaulty is how long an unclassified error is retried. It may come from a database in distress, or from a
// fault of ours.
const maxFaulty = time.Minute

// untilAnswered repeats ask until it succeeds, fails for good, or ctx ends.
func (t *session) untilAnswered(ctx context.Context, ask func() error) error {
	began := time.Now()
	for wait := soonestTry; ; wait = min(2*wait, time.Second) {
		err := ask()
		if err == nil {
			t.asking.Answered()
			return nil
		}
		if !transient(err) || ctx.Err() != nil || errs.Is(err, errs.ResourceExhausted) || errs.Is(err, errs.Internal) && time.Since(began) > maxFaulty {
			return err
		}
		// An outage is logged once when it begins, from time to time while it lasts, and once at its end.
		t.asking.Logger().WarnContext(ctx, "an attempt cannot ask the database", "err", err)
		sleep.For(ctx, wait)
	}
}

// transient reports whether a failed attempt to start a run may succeed later.
func transient(err error) bool {
	if _, ok := errors.AsType[workgraph.Faults](err); ok {
		return false
	}
	return errs.Is(err, errs.Unavailable) || errs.Is(err, errs.ResourceExhausted) || errs.Is(err, errs.Internal) || errs.Is(err, errs.DeadlineExceeded)
}
