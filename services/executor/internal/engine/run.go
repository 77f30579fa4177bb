package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// run is one run in the memory of its owner. The machine advances ahead of the database: every decision is
// queued with the writer at once, in order, and acted on when the writer says that it is durable.
//
// Its locks are taken in the order mu, kmu, amu. Each of the parts below says which lock guards it; identity
// is set before the run is live and does not change.
type run struct {
	t *session
	identity

	// mu guards the machine, and all parts that do not say otherwise.
	mu sync.Mutex
	replay.Position
	usage   journal.Usage
	started time.Time
	// metadata is that of its row.
	metadata []byte
	// children are those that it waits for, by id; the value tells whether the child is known to be recorded.
	children map[string]bool
	// regraphed is set once the run's graph is another one than its program's, or is to become so.
	regraphed atomic.Bool
	// gone is set when this value no longer stands for the run: it was evicted or lost.
	gone atomic.Bool
	// mending is not nil while the machine is of no use, and closed when it is whole again: see mend.
	mending chan struct{}
	// suspect is set while one more death of its owner may quarantine the run: it gets its turn first, so
	// that it soon shows whether it is to blame.
	suspect atomic.Bool
	marks   marks

	writes
	inbox
	heartbeats
	asks
	firstStep
	footprint
	turnHeld
	motion

	// kmu guards acks, the answers that came while mu was held, for catchUp; nil while there is none. acked,
	// which holds it alone, only tries mu.
	kmu  sync.Mutex
	acks []ack
}

// identity is what a run is called and where it comes from.
type identity struct {
	id, namespace, root, task, schedule string
	// priority is 1 to 4, 0 for the default.
	priority int
	created  time.Time
	// trace is what attempts hang below: the span that started the run, or the one that loaded it.
	trace   trace.SpanContext
	lineage record.Lineage
	// deadline is when the run is ended whatever it does; zero means never.
	deadline time.Time
}

// writes tell how far the writer has come with a run.
type writes struct {
	// durable is the last event that is known to be written; over says that the end is.
	durable int64
	over    bool
	pending int // writes that are not answered yet
	// quiet is closed once none is pending; nil when nobody waits for that: see awaitQuiet.
	quiet chan struct{}
	// released is closed when the write that gives the run away was answered; nil before that write.
	released chan struct{}
}

// inbox are durable commands on their way into a run.
type inbox struct {
	// taken are the commands that are applied by writes which are not answered yet.
	taken map[int64]bool
	// heard are those of which such an answer has come while commands of the run are read, as what is read
	// may name them still; nil at other times.
	heard map[int64]bool
	// early is set while commands wait for the end of a call under way.
	early bool
	// opening and canceling are set while commands are applied beside the reading of others, missed when more
	// came meanwhile. They need no lock.
	opening, canceling, missed atomic.Bool
}

// heartbeats tell when details of calls were written.
type heartbeats struct {
	// detailsWritten is when they were last written for their own sake.
	detailsWritten time.Time
	// said is set while some of them are in no position that was given to the writer.
	said bool
}

// asks tell when prices are asked for that a run waits for.
type asks struct {
	// askAt is the zero time for at once; asking says that somebody asks.
	askAt  time.Time
	asking bool
}

// firstStep is what a run that was recorded and never begun begins with.
type firstStep struct {
	// pendingStart is nil for a run that has begun.
	pendingStart  *workgraph.Begin
	pendingSignal *command.Signal
	// refused is why the run must not begin after all.
	refused string
	// room is to be called when the beginning is durable or came to nothing; nil when nothing is kept for it.
	room func()
}

// footprint is what a run counts for in memory.
type footprint struct {
	// size counts in the memory of live runs. It needs no lock.
	size atomic.Int64
	// beyond counts in memory.Canceled. It is set before the run is live; then the session's mu guards it.
	beyond int64
}

// turnHeld tells whether the holder of a run's mu may compute.
type turnHeld struct {
	// turn is set while the holder of mu has a turn to compute. ends is closed, under mu, once the run is to
	// end: from then on nothing waits for a turn.
	turn bool
	ends chan struct{}
}

// motion is what acknowledged decisions have set in motion.
type motion struct {
	// amu guards motion. It may be taken while mu is held, not the other way round.
	amu       sync.Mutex
	attempts  map[workgraph.Ref]*attempt
	timer     *time.Timer
	timerAt   time.Time
	idleTimer *time.Timer
	stopped   bool
	// evaluating aborts the evaluation under way, if there is one; aborted lets none go on.
	evaluating context.CancelCauseFunc
	aborted    bool
	// begun says that the run has come to be what its journal says.
	begun bool
	// concluding counts the UNSAFE calls that have ended and whose outcomes are not decided yet.
	concluding int
}

// extra is what goes along with a command besides the machine's own decision.
type extra struct {
	attempt endedAttempt
	from    origin
	// progress says that the run has come on with it: what counts against it in take-overs is forgotten.
	progress bool
	// keep has the position written, though nothing happened.
	keep bool
	// begins says that a run which was recorded earlier begins with this.
	begins bool
	// recover starts what is outstanding instead of what the decision alone would start.
	recover bool
	// leads says that the caller lets the writer lead right after it has given r.mu back.
	leads bool
	// after is called once the decision is durable, or cannot become so; it must not block. It is not called
	// if advance returns an error.
	after func(error)
	// again is called with r.mu held when the evaluation of the command was aborted and the machine is whole
	// again: see mend. Nil is for what comes again by itself, as commands and timers do.
	again func(*closing)
}

// endedAttempt is what the journal and the accounts keep of an attempt that ends with a decision.
type endedAttempt struct {
	start time.Time
	actor string
	// reporter is whose key told how the attempt ended.
	reporter string
	cached   bool
	usage    []workgraph.Usage
	entries  []outbox.Entry
	trace    outbox.Trace
}

// origin is the durable command that a decision comes from; the zero value is none.
type origin struct {
	// id is that of the command; more says that another one waits already.
	id   int64
	more bool
	// requestID and principal are those of the request that wrote it. They go into its event.
	requestID, principal string
	// rollup is what a child used.
	rollup journal.Usage
	// change are the nodes that an amendment changes.
	change *record.GraphChange
}

var errDropped = errors.New("engine: the run is no longer held here")

// idle reports whether the run holds nothing but rows: paused, or waiting for something that is not near. The
// caller holds r.mu.
func (r *run) idle() bool {
	if r.State.InFlight() > 0 {
		return false
	}
	for _, recorded := range r.children {
		if !recorded {
			return false
		}
	}
	switch st, _ := r.State.Status(); st {
	case workgraph.StatusPaused, workgraph.StatusRunning:
		at, ok := r.next()
		return !ok || time.Until(at) > r.t.e.cfg.EvictAfter
	}
	return false
}

// next is when the run goes on by itself. The caller holds r.mu.
func (r *run) next() (at time.Time, ok bool) {
	switch st, _ := r.State.Status(); st {
	case workgraph.StatusRunning:
		at, ok = r.State.NextTimer()
	case workgraph.StatusPaused:
		at, ok = r.nextAsk()
	default:
		return at, false
	}
	if d := r.deadline; !d.IsZero() && (!ok || d.Before(at)) {
		return d, true
	}
	return at, ok
}

// snapshot is the stored form of the run's position. The caller holds r.mu.
func (r *run) snapshot() ([]byte, error) {
	all := true
	for _, recorded := range r.children {
		all = all && recorded
	}
	b, err := r.Encode(all)
	if err == nil {
		r.said = false
	}
	return b, err
}

// retire takes the run out of motion: nothing starts, no timer fires, calls in flight are told cause. It is
// idempotent and safe while r.mu is held.
func (r *run) retire(cause error) {
	r.amu.Lock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.idleTimer != nil {
		r.idleTimer.Stop()
	}
	attempts := r.attempts
	r.t.memory.Add(r.namespace, -attemptWeight*int64(len(r.attempts)))
	r.attempts = nil
	r.amu.Unlock()
	for _, a := range attempts {
		a.reported.Store(true)
		a.stop(cause)
		r.t.sched.Remove(&a.task)
	}
}

func (r *run) inFlight() []*attempt {
	r.amu.Lock()
	defer r.amu.Unlock()
	out := make([]*attempt, 0, len(r.attempts))
	for _, a := range r.attempts {
		out = append(out, a)
	}
	return out
}

// awaitQuiet returns what is closed once no write of r is without its answer. The caller holds r.mu.
func (r *run) awaitQuiet() <-chan struct{} {
	if r.quiet == nil {
		r.quiet = make(chan struct{})
	}
	quiet := r.quiet
	if r.pending == 0 {
		close(quiet)
		r.quiet = nil
	}
	return quiet
}

// closing is the command that ends a run, with what goes along.
type closing struct {
	cmd workgraph.Command
	x   extra
}

// lock takes r.mu once the machine is whole. It does not wait longer than the term lasts; then the run is
// gone.
func (r *run) lock() {
	for {
		r.mu.Lock()
		whole := r.mending
		if whole == nil {
			return
		}
		r.mu.Unlock()
		<-whole
	}
}

// tryLock takes r.mu if nobody has it and the machine is whole.
func (r *run) tryLock() bool {
	if !r.mu.TryLock() {
		return false
	}
	if r.mending == nil {
		return true
	}
	r.mu.Unlock()
	return false
}

// wholeLock is a run's lock that is taken when its machine is whole.
type wholeLock struct{ r *run }

func (l wholeLock) Lock() { l.r.lock() }

func (l wholeLock) Unlock() { l.r.mu.Unlock() }

// consequence is what happens once a decision is durable.
type consequence struct {
	events  []feed.Event
	effects workgraph.Effects
	timer   time.Time
	ended   bool
	idle    bool
	// idleTimer is how long it stays in memory all the same.
	idleTimer   time.Duration
	outbox      bool
	hasCommands []journal.Command
	applied     []int64
	// recovered says that it follows from reading the run, so that what it asks for may have been done
	// before.
	recovered bool
	// released says that the run is no longer this executor's once the decision is durable.
	released bool
	// keep says that nothing was decided: the timer stays as it is.
	keep bool
}

// ack is the answer to a write, and what follows from it; before and after that these are called, if not nil.
type ack struct {
	res    journal.Result
	c      consequence
	before func()
	after  func(error)
}

// recorded is what a pending run's row keeps in the place of a snapshot.
type recorded struct {
	Reuse  []workgraph.ReusedVisit `json:"reuse,omitempty"`
	Signal *command.Signal         `json:"signal,omitempty"`
}

// forget takes an attempt that has ended out of those in flight; the outcome of an UNSAFE one is owed until
// concluded is called.
func (r *run) forget(a *attempt) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if a.unsafe() {
		r.concluding++
	}
	if r.attempts[a.start.Ref] == a {
		delete(r.attempts, a.start.Ref)
		r.t.memory.Add(r.namespace, -attemptWeight)
	}
}

// concluded says that the outcome of an attempt is with the writer, or nobody waits for it.
func (r *run) concluded(a *attempt) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if a.unsafe() {
		r.concluding--
	}
}

// marks are what a suspect is at work with, as it is recorded.
type marks struct {
	mu  sync.Mutex
	now []string
}

func (m *marks) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.now) > 0
}

// weigh counts the run anew while it is live. The caller holds r.mu.
func (r *run) weigh() {
	for size := r.Weight(); ; {
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

// nextAsk is when prices are asked for that the run waits for; ok is false when it waits for none. The caller
// holds r.mu.
func (r *run) nextAsk() (at time.Time, ok bool) {
	if len(r.State.Unsettled()) == 0 {
		r.askAt = time.Time{}
		return time.Time{}, false
	}
	if r.askAt.IsZero() {
		r.askAt = time.Now()
	}
	return r.askAt, true
}

// idleTTL is how long a run stays in memory that could leave it: while it waits for children a moment, since
// they are mostly quick. The caller holds r.mu.
func (r *run) idleTTL() time.Duration {
	if len(r.children) > 0 {
		return r.t.e.cfg.IdleTTL
	}
	return 0
}
