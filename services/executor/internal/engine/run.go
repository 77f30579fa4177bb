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
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// run is one run in the memory of its owner. The machine advances ahead of the database: each decision is
// queued with the writer at once, in order. Its effects follow when the writer reports that it is durable.
//
// Locks are taken in the order mu, kmu, amu. Each embedded part says which lock guards it. identity is set
// before the run is live and does not change.
type run struct {
	t *session
	identity

	// mu guards the machine, and every part that does not name another lock.
	mu sync.Mutex
	replay.Position
	usage   journal.Usage
	started time.Time
	// metadata is the encoded metadata of the run's row.
	metadata []byte
	// children are the child runs that this run waits for, by id. The value says whether the child is known
	// to be recorded.
	children map[string]bool
	// held is set while children are not started because the run is paused.
	held bool
	// said is what the run said last; none after it was read again.
	said said
	// holds is set when threads may be held in the name of the run: it has added to one, or has children,
	// whose agents hold in the name of the root. A run that was read from the journal may have done either.
	holds bool
	// programEvaluates says whether the program evaluates anything. The program stays, so this needs no lock.
	programEvaluates bool
	// graphChanged is set when the run's graph differs from its program's, or is about to.
	graphChanged atomic.Bool
	// gone is set when this value no longer represents the run, because the run was evicted or lost.
	gone atomic.Bool
	// rebuilding is not nil while the machine is unusable. It is closed when the machine is whole again: see
	// rebuild.
	rebuilding chan struct{}
	// suspect is set while one more death of its owner may quarantine the run. Attempts of a suspect go
	// first, so that it soon shows whether the run is to blame.
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

	above lineageBudgets
	// payer is who pays for the next calls of a run without a task; nil for the namespace alone.
	payer atomic.Pointer[record.Payer]

	// leftCalls are the calls whose ends a request for something else waits for; nil if there is none.
	leftCalls *leftCalls

	// kmu guards acks: the answers that arrived while mu was held, for catchUp. acks is nil if there are
	// none. A holder of kmu may only try to lock mu.
	kmu  sync.Mutex
	acks []ack
}

// identity says what a run is called and where it comes from.
type identity struct {
	id, namespace, root, task, epic, schedule string
	// priority is 1 to 4; 0 is the default.
	priority int
	created  time.Time
	// trace is the parent span of attempts: the span that started the run, or the one that loaded it.
	trace trace.SpanContext
	// origin is the span that started the run.
	origin  trace.SpanContext
	lineage record.Lineage
	// deadline is when the run is ended, whatever it does. Zero means never.
	deadline time.Time
}

// writes says how far the writer has come with a run.
type writes struct {
	// durable is the last event that is known to be written. over is set when the end of the run is.
	durable int64
	over    bool
	pending int // writes without an answer
	// quiet is closed when no write is pending. It is nil while nothing waits for that: see awaitQuiet.
	quiet chan struct{}
	// released is closed when the write that releases ownership is answered. It is nil before that write.
	released chan struct{}
}

// inbox holds durable commands that are being applied.
type inbox struct {
	// applying are the commands in writes that have no answer yet.
	applying map[int64]bool
	// appliedMeanwhile are the commands that became applied while commands of the run are being read: the
	// result of that read may still list them. It is nil at other times.
	appliedMeanwhile map[int64]bool
	// early is set while commands wait for the end of a call that is in flight.
	early bool
	// opening and canceling are set while applyBeside is at work. missed is set when more commands arrived
	// meanwhile. They need no lock.
	opening, canceling, missed atomic.Bool
}

// heartbeats says when details of calls were written.
type heartbeats struct {
	// detailsWritten is when a position was last written only because of details.
	detailsWritten time.Time
	// unsaved is set while some details are in no position that was given to the writer.
	unsaved bool
}

// asks says when the prices that a run waits for are requested.
type asks struct {
	// askAt is when to ask; zero means at once. asking is set while a goroutine asks.
	askAt  time.Time
	asking bool
}

// firstStep is what a recorded run that has not begun begins with.
type firstStep struct {
	// pendingStart is nil for a run that has begun.
	pendingStart  *workgraph.Begin
	pendingSignal *command.Signal
	// refused is the reason why the run must end without beginning, or "".
	refused string
	// room must be called when the beginning is durable or has failed. It is nil if no room is reserved.
	room func()
}

// footprint is what a run counts for in memory.
type footprint struct {
	// size is what counts for the run in the memory of live runs. It needs no lock.
	size atomic.Int64
	// beyond is what counts for the run in memory.Canceled. It is set before the run is live; then the
	// session's mu guards it.
	beyond int64
}

// turnHeld says whether the holder of a run's mu may compute.
type turnHeld struct {
	// turn is set while the holder of mu has a turn to compute. ends is closed, under mu, once the run is to
	// end; no step of the run waits for a turn after that.
	turn bool
	ends chan struct{}
}

// motion is what durable decisions have set going: attempts and timers.
type motion struct {
	// amu guards motion. It may be taken while mu is held, but not the other way round.
	amu      sync.Mutex
	attempts map[workgraph.Ref]*attempt
	// toLeave are the attempts of calls that are left, by visit: one that begins now is stopped.
	toLeave   map[workgraph.Ref]int
	timer     *time.Timer
	timerAt   time.Time
	idleTimer *time.Timer
	stopped   bool
	// evaluating aborts the evaluation in progress; nil if there is none. While aborted is set, every
	// evaluation is aborted.
	evaluating context.CancelCauseFunc
	aborted    bool
	// begun is set once the machine agrees with the journal.
	begun bool
	// undecided counts UNSAFE calls that have ended and whose outcomes are not decided yet.
	undecided int
}

// extra is what accompanies a command to the machine.
type extra struct {
	attempt endedAttempt
	from    origin
	// progress resets the count of take-overs without progress.
	progress bool
	// keep has the position written even though there are no events.
	keep bool
	// begins marks the decision with which a recorded run begins.
	begins bool
	// recover starts everything outstanding instead of what the decision itself starts.
	recover bool
	// leads says that the caller lets the writer lead as soon as it has unlocked r.mu.
	leads bool
	// leaves has the children that are canceled with the decision, and why.
	leaves leaving
	// left are the calls that end with the decision since they were left. attempt has the usage of all
	// of them.
	left map[workgraph.Ref]endedAttempt
	// after is called once the decision is durable or has failed. It must not block. It is not called if
	// advance returns an error.
	after func(error)
	// again is called with r.mu held after the evaluation of the command was aborted and the machine was
	// rebuilt: see rebuild. It is nil for commands and timers, which come again by themselves.
	again func(*ending)
}

// endedAttempt is what the journal and the accounting keep of an attempt that ends with a decision.
type endedAttempt struct {
	start time.Time
	actor string
	// reporter is the principal of the worker that reported the end of the attempt.
	reporter string
	cached   bool
	// kept is the outcome of the attempt, to be saved if its visit completes; nil if it is not to be.
	kept    *workgraph.KeptOutcome
	usage   []workgraph.Usage
	entries []outbox.Entry
	trace   outbox.Trace
	// unused is what was reserved for the call if it used nothing, or nil.
	unused *outbox.Entry
	// payer is what the outcome says about who pays from then on.
	payer *workgraph.Payer
}

// origin is the durable command that causes a decision. The zero value means none.
type origin struct {
	// id is the id of the command. more is set if another command waits already.
	id   int64
	more bool
	// requestID and principal come from the request that enqueued the command. They are recorded in its
	// event.
	requestID, principal string
	// rollup is what a child used.
	rollup journal.Usage
	// change lists the nodes that an amendment changes.
	change *record.GraphChange
}

var errDropped = errors.New("engine: the run is no longer held here")

// idle reports whether the run needs nothing but its rows: it is paused, or waits for something that is not
// near. The caller holds r.mu.
func (r *run) idle() bool {
	if r.State.InFlight() > 0 {
		return false
	}
	st, _ := r.State.Status()
	for _, recorded := range r.children {
		if !recorded && st != workgraph.StatusPaused { // children of a paused run start when it goes on
			return false
		}
	}
	switch st {
	case workgraph.StatusPaused, workgraph.StatusRunning:
		at, ok := r.next()
		return !ok || time.Until(at) > r.t.e.cfg.EvictAfter
	}
	return false
}

// next is when the run continues by itself. The caller holds r.mu.
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

// snapshot encodes the run's position. The caller holds r.mu.
func (r *run) snapshot() ([]byte, error) {
	all := true
	for _, recorded := range r.children {
		all = all && recorded
	}
	b, err := r.Encode(all)
	if err == nil {
		r.unsaved = false
	}
	return b, err
}

// retire stops the run's attempts and timers: nothing starts, no timer fires, and contexts of calls in flight
// end with cause. It is idempotent, and safe while r.mu is held.
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

// awaitQuiet returns a channel that is closed once every write of r has its answer. The caller holds r.mu.
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

// ending is the command that ends a run, with what accompanies it.
type ending struct {
	cmd workgraph.Command
	x   extra
}

// lock takes r.mu when the machine is whole. It waits no longer than the session lasts; the run is gone then.
func (r *run) lock() {
	for {
		r.mu.Lock()
		whole := r.rebuilding
		if whole == nil {
			return
		}
		r.mu.Unlock()
		<-whole
	}
}

// tryLock takes r.mu if it is free and the machine is whole.
func (r *run) tryLock() bool {
	if !r.mu.TryLock() {
		return false
	}
	if r.rebuilding == nil {
		return true
	}
	r.mu.Unlock()
	return false
}

// wholeLock is a sync.Locker over lock.
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
	// idleTimer is how long an idle run still stays in memory.
	idleTimer time.Duration
	outbox    wakes
	commands  []journal.Command
	applied   []int64
	threads   []thread.Append
	// routes are the decisions about which way the run goes.
	routes []routed
	// saved are the outcomes that equal calls may have from then on.
	saved []saved
	// unused is what was reserved for calls that used nothing.
	unused []outbox.Entry
	// heldBack are children that the run did not start while it was paused.
	heldBack []workgraph.Spawn
	// recovered is set for effects of recovery: what they ask for may have been done before.
	recovered bool
	// released is set if the decision also releases ownership of the run.
	released bool
	// keep is set if nothing was decided, so that the timer stays as it is.
	keep bool
}

// ack is the answer to a write, with what follows from it. before and after are called before and after that,
// if they are not nil.
type ack struct {
	res    journal.Result
	c      consequence
	before func()
	after  func(error)
}

// pendingExtras is stored in the snapshot column of a run that has not begun.
type pendingExtras struct {
	Reuse  []workgraph.ReusedVisit `json:"reuse,omitempty"`
	Signal *command.Signal         `json:"signal,omitempty"`
}

// removeAttempt takes an ended attempt out of those in flight. The outcome of an UNSAFE one counts as
// undecided until outcomeDecided is called.
func (r *run) removeAttempt(a *attempt) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if a.unsafe() {
		r.undecided++
	}
	if r.attempts[a.start.Ref] == a {
		delete(r.attempts, a.start.Ref)
		r.t.memory.Add(r.namespace, -attemptWeight)
	}
}

// outcomeDecided says that the outcome of an attempt is with the writer, or is not needed.
func (r *run) outcomeDecided(a *attempt) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if a.unsafe() {
		r.undecided--
	}
}

// marks are what a suspect is doing, as recorded in the journal.
type marks struct {
	mu  sync.Mutex
	now []string
}

func (m *marks) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.now) > 0
}

// weigh updates what counts for the run in memory, while it is live. The caller holds r.mu.
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

// attemptWeight is about how many bytes an attempt takes besides its values, from its launch to its end.
const attemptWeight = 2 << 10

// nextAsk is when to ask for what a paused run waits for: prices, or room under a cap above it. The
// caller holds r.mu.
func (r *run) nextAsk() (at time.Time, ok bool) {
	if len(r.State.Unsettled()) == 0 && r.State.Refused() == nil {
		r.askAt = time.Time{}
		return time.Time{}, false
	}
	if r.askAt.IsZero() {
		r.askAt = time.Now()
	}
	return r.askAt, true
}

// idleTTL is how long a small idle run stays in memory: a moment while it waits for children, since most
// children are quick. The caller holds r.mu.
func (r *run) idleTTL() time.Duration {
	if len(r.children) > 0 {
		return r.t.e.cfg.IdleTTL
	}
	return 0
}
