package workgraph

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// Result is how a run in memory ended, or where it paused.
type Result struct {
	RunEnd
	// Events counts the journal entries of the run.
	Events int64
	// Usage sums up what all attempts consumed, by provider and model.
	Usage []Usage
}

// Option changes how Run works.
type Option func(*runConfig)

type runConfig struct {
	runID    string
	parent   string // the run that waits for this one
	agent    *AgentRun
	parallel int
	context  []byte
	budget   *Budget
	progress func(Event)

	ask       func(context.Context, OpenedInterrupt) (Answer, error)
	workflows func(string) (*Graph, error)
	in        <-chan Command
	refused   func(Command, error)
	depth     int
}

// WithRunID names the run; the name is the first part of every effect key. The default is "run".
func WithRunID(id string) Option { return func(c *runConfig) { c.runID = id } }

// WithParallel caps how many actors run at once. The default is 64.
func WithParallel(n int) Option { return func(c *runConfig) { c.parallel = max(1, n) } }

// WithContext sets the CEL variable "context" from raw JSON.
func WithContext(raw []byte) Option { return func(c *runConfig) { c.context = raw } }

// WithBudget caps what the run may use. A run that comes to a cap stands PAUSED with BUDGET_EXHAUSTED.
func WithBudget(b Budget) Option { return func(c *runConfig) { c.budget = &b } }

// WithProgress receives every event in order. It is called under the run's lock and must be quick.
func WithProgress(f func(Event)) Option { return func(c *runConfig) { c.progress = f } }

// Run compiles g and runs it in this process. Nothing is stored. A run that pauses returns with the status
// PAUSED, the reason and its partial outputs: for a loop at its limit, an UNSAFE attempt whose outcome is
// unknown, a budget that is used up, or a wait that nothing here can end. Children run in this process too,
// beside the run.
//
// The error is non-nil only if the graph or the input is at fault; the Result says how the run went.
// Canceling ctx cancels the run. All actors have returned when Run returns.
func Run(ctx context.Context, g *Graph, actors Actors, input Input, opts ...Option) (Result, error) {
	// A run whose context has ended is a canceled run and not an error.
	p, err := Compile(context.WithoutCancel(ctx), g, actors)
	if err != nil {
		return Result{}, err
	}
	return p.Run(ctx, actors, input, opts...)
}

// Run runs the program once; see the function Run. Any number of runs of one program may go on at once.
func (p *Program) Run(ctx context.Context, actors Actors, input Input, opts ...Option) (Result, error) {
	cfg := runConfig{runID: "run", parallel: 64}
	for _, o := range opts {
		o(&cfg)
	}
	return p.run(ctx, actors, input, cfg)
}

func (p *Program) run(ctx context.Context, actors Actors, input Input, cfg runConfig) (Result, error) {
	for i := range p.nodes {
		if name := p.nodes[i].Actor; actors[name] == nil {
			return Result{}, Faults{{Code: CodeUnknownActor, Node: p.nodes[i].ID, Field: "actor", Message: "no actor is called " + name}}
		}
	}
	// Canceling ctx below stops attempts. Canceling asked cancels the run.
	asked := ctx
	ctx, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	r := &runner{s: New(p, cfg.runID), actors: actors, cfg: cfg, fine: p.fineCancel, halt: halt, fresh: func() (context.Context, context.CancelCauseFunc) { return context.WithCancelCause(asked) }, over: make(chan struct{})}
	r.scope = func(ref Ref) Scope { return runnerScope{r, ref} }
	r.out = outside{program: p, fresh: func() (context.Context, context.CancelCauseFunc) {
		return context.WithCancelCause(context.WithoutCancel(asked))
	}, all: actors, fed: cfg.in != nil}
	r.mu.Lock()
	r.workers, r.idle = 1, 1 // this goroutine is the first worker
	err := r.advance(ctx, Begin{Input: input, Context: cfg.context, Budget: cfg.budget, Now: time.Now()})
	r.mu.Unlock()
	if err != nil {
		return Result{}, err
	}
	if asked.Done() != nil {
		stop := context.AfterFunc(asked, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.done {
				// It is refused once the run has ended.
				_ = r.advance(ctx, Cancel{Reason: context.Cause(asked).Error(), Now: time.Now()})
			}
		})
		defer stop()
	}
	if cfg.in != nil {
		r.wg.Add(1)
		go r.listen(ctx)
	}
	r.wg.Add(1)
	r.work(ctx)
	<-r.over
	r.wg.Wait()
	return r.result(), nil
}

func (r *runner) result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	res := Result{Events: r.s.Seq(), Usage: r.s.Usage()}
	if end := r.s.End(); end != nil {
		res.RunEnd = *end
		return res
	}
	if res.Status, res.Reason = r.s.Status(); res.Status != StatusPaused {
		res.Status, res.Reason = StatusPaused, ReasonWaiting
	}
	res.Outputs, res.Result = r.s.outputs()
	return res
}

// Causes of a canceled attempt.
var (
	errCanceled    = errors.New("the attempt was canceled")
	errTimeout     = errors.New("the attempt ran into its timeout")
	errIdleTimeout = errors.New("the attempt gave no sign of life within its idle timeout")
)

// runner drives one State. The goroutine that finishes an attempt takes the lock, advances the state and goes
// on with the next start, so that a chain of nodes runs on one goroutine.
type runner struct {
	s      *State
	actors Actors
	cfg    runConfig
	// fine says that attempts may be canceled one by one. Otherwise halt cancels all of them.
	fine bool
	halt context.CancelCauseFunc
	// fresh makes the context of an attempt that may be canceled by itself. coarse counts the other attempts
	// in flight.
	fresh  func() (context.Context, context.CancelCauseFunc)
	coarse int

	mu       sync.Mutex
	wg       sync.WaitGroup
	queue    []Start
	head     int
	workers  int
	idle     int                // workers that are about to take from the queue
	blocked  map[string][]Start // by concurrency key in use: the starts that wait for it
	cancels  map[Ref]context.CancelCauseFunc
	canceled map[Ref]bool // asked to stop before they began
	timer    *time.Timer
	armed    time.Time
	done     bool
	over     chan struct{}
	out      outside
	scope    func(Ref) Scope
}

// runnerScope is the Scope of a call. It reads the state under the run's lock.
type runnerScope struct {
	r   *runner
	ref Ref
}

func (v runnerScope) Var(name string) (json.RawMessage, bool) {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	return v.r.s.ScopeOf(v.ref).Var(name)
}

func (v runnerScope) Ancestor(id string) (NodeResult, bool) {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	return v.r.s.ScopeOf(v.ref).Ancestor(id)
}

func (v runnerScope) Ancestors() []string {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	return v.r.s.ScopeOf(v.ref).Ancestors()
}

func (v runnerScope) Rounds(id string) []json.RawMessage {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	return v.r.s.ScopeOf(v.ref).Rounds(id)
}

// advance takes a command and acts on its effects. The lock is held.
func (r *runner) advance(ctx context.Context, cmd Command) error {
	evs, fx, err := r.s.Advance(cmd)
	if err == nil {
		r.effects(ctx, evs, &fx)
	}
	return err
}

// effects acts on the effects of a command. The lock is held.
func (r *runner) effects(ctx context.Context, evs []Event, fx *Effects) {
	if r.cfg.progress != nil {
		for i := range evs {
			r.cfg.progress(evs[i])
		}
	}
	if fx.Graph != nil && r.s.p.fineCancel {
		r.fine = true
	}
	r.cancel(fx.Cancels)
	for i := range fx.Starts {
		r.enqueue(&fx.Starts[i])
	}
	for r.workers < r.cfg.parallel && len(r.queue)-r.head > r.idle {
		r.workers++
		r.idle++
		r.wg.Add(1)
		go r.work(ctx)
	}
	if len(fx.Spawns)+len(fx.CancelChildren)+len(fx.Opened)+len(fx.Closed) > 0 {
		r.actOutside(ctx, fx)
	}
	r.arm(ctx)
	r.checkOver()
}

func (r *runner) cancel(refs []Ref) {
	if len(refs) > 0 && (!r.fine || r.coarse > 0 && r.s.Draining()) {
		r.halt(errCanceled) // this also reaches attempts that began before fine was set
		if !r.fine {
			return
		}
	}
	for _, ref := range refs {
		if stop := r.cancels[ref]; stop != nil {
			stop(errCanceled)
			continue
		}
		if r.canceled == nil {
			r.canceled = map[Ref]bool{}
		}
		r.canceled[ref] = true
	}
}

// enqueue queues a start unless another one holds its concurrency key.
func (r *runner) enqueue(st *Start) {
	if k := st.ConcurrencyKey; k != "" {
		if r.blocked == nil {
			r.blocked = map[string][]Start{}
		}
		if waiting, held := r.blocked[k]; held {
			r.blocked[k] = append(waiting, *st)
			return
		}
		r.blocked[k] = nil
	}
	r.queue = append(r.queue, *st)
}

// releaseKey gives the concurrency key of an attempt that is over to the next start that waits for it.
func (r *runner) releaseKey(k string) {
	if k == "" {
		return
	}
	waiting := r.blocked[k]
	if len(waiting) == 0 {
		delete(r.blocked, k)
		return
	}
	r.blocked[k] = waiting[1:]
	r.queue = append(r.queue, waiting[0])
}

// arm sets the timer for the next back-off or wait that is due.
func (r *runner) arm(ctx context.Context) {
	at, ok := r.s.NextTimer()
	if !ok || r.done || r.timer != nil && at.Equal(r.armed) {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.armed = at
	r.timer = time.AfterFunc(time.Until(at)+time.Microsecond, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.timer = nil
		if !r.done {
			// It is refused once the run has ended.
			_ = r.advance(ctx, TimerDue{Now: time.Now()})
		}
	})
}

// work performs queued attempts until there are none.
func (r *runner) work(ctx context.Context) {
	defer r.wg.Done()
	var call Call
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		r.idle--
		if r.head == len(r.queue) {
			break
		}
		call = Call{Start: r.queue[r.head], scope: r.scope}
		call.ParentRunID, call.Agent = r.cfg.parent, r.cfg.agent
		r.queue[r.head] = Start{}
		if r.head++; r.head == len(r.queue) {
			r.queue, r.head = r.queue[:0], 0
		}
		end := Ended{Ref: call.Ref, Attempt: call.Attempt}
		if r.s.Draining() {
			end.Err, end.Now = Errorf(NotPerformed, ReasonCanceled, "the run ended before the attempt began"), time.Now()
		} else if r.intend(ctx, &call) {
			end.Outcome, end.Err = r.perform(ctx, &call)
			end.Now = time.Now()
		}
		r.idle++
		r.releaseKey(call.ConcurrencyKey)
		if end.Outcome != nil || end.Err != nil {
			// Only a dropped attempt is refused, and nothing waits for its end.
			if evs, fx, err := r.s.advanceEnded(&end); err == nil {
				r.effects(ctx, evs, &fx)
			}
		}
	}
	r.workers--
}

// intend journals the intent of an UNSAFE attempt. It is false if the attempt is no longer wanted.
func (r *runner) intend(ctx context.Context, c *Call) bool {
	return !c.NeedsIntent() || r.advance(ctx, Attempt{Ref: c.Ref, Attempt: c.Attempt, Now: time.Now()}) == nil
}

// perform calls the actor. It releases the lock during the call.
func (r *runner) perform(ctx context.Context, c *Call) (*Outcome, *Error) {
	var stop context.CancelCauseFunc
	if r.fine {
		if r.canceled[c.Ref] {
			delete(r.canceled, c.Ref)
			return nil, Errorf(NotPerformed, ReasonCanceled, "canceled before it began")
		}
		ctx, stop = r.fresh()
		if r.cancels == nil {
			r.cancels = map[Ref]context.CancelCauseFunc{}
		}
		r.cancels[c.Ref] = stop
	} else {
		r.coarse++
	}
	actor, p := r.actors[c.Actor], r.s.p
	r.mu.Unlock()
	out, err := p.reuse(ctx, actor, c)
	if out != nil && out.Wait != nil {
		out.Wait = nameWaits(c, out.Wait)
	}
	r.mu.Lock()
	if stop != nil {
		delete(r.cancels, c.Ref)
		stop(nil)
	} else {
		r.coarse--
	}
	return out, err
}

// reuse answers a call with the outcome of an equal earlier one of this program if the node has a cache, and
// calls the actor otherwise.
func (p *Program) reuse(ctx context.Context, actor Actor, c *Call) (*Outcome, *Error) {
	key := c.CacheKey(nil)
	if key == "" || p.outcomes == nil || c.Cache.Key != "" {
		return call(ctx, actor, c)
	}
	if out, ok := p.outcomes.Get(key, time.Now()); ok {
		return &out, nil
	}
	out, err := call(ctx, actor, c)
	if err == nil && !c.Looked() {
		p.outcomes.Put(key, *out, time.Now().Add(time.Duration(c.Cache.TTL)))
	}
	return out, err
}

// call calls the actor within its timeouts and makes a typed error of a failure.
func call(ctx context.Context, actor Actor, c *Call) (*Outcome, *Error) {
	if ctx.Err() != nil {
		return nil, Errorf(NotPerformed, ReasonCanceled, "%v", context.Cause(ctx))
	}
	if c.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
		defer stop()
	}
	if c.IdleTimeout > 0 {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		idle := time.AfterFunc(c.IdleTimeout, func() { stop(errIdleTimeout) })
		defer idle.Stop()
		c.heartbeat = func(json.RawMessage) { idle.Reset(c.IdleTimeout) }
	}
	out := new(Outcome)
	err := guard(ctx, actor, c, out)
	if err == nil {
		return out, nil
	}
	var cut *Error
	if ctx.Err() != nil {
		cut = cutShort(ctx, c)
	}
	return nil, Classify(err, c.Effect, cut)
}

// cutShort is the error of a call whose context has ended.
func cutShort(ctx context.Context, c *Call) *Error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return Errorf(Unknown, ReasonTimeout, "%v (%s)", errTimeout, c.Timeout)
	case errors.Is(cause, errIdleTimeout):
		return Errorf(Unknown, ReasonIdleTimeout, "%v (%s)", errIdleTimeout, c.IdleTimeout)
	default:
		return Errorf(Unknown, ReasonCanceled, "%v", cause)
	}
}

// guard turns a panic of the actor into a typed error.
func guard(ctx context.Context, actor Actor, c *Call, out *Outcome) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t := Permanent
			if c.Effect == Unsafe {
				t = Unknown
			}
			err = Errorf(t, ReasonPanic, "%v\n%s", p, debug.Stack())
		}
	}()
	*out, err = actor.Call(ctx, c)
	if err == nil && len(out.Threads) > 0 {
		refused := Errorf(Permanent, ReasonNoThreads, "a run in memory keeps no threads")
		refused.Usage = out.Usage
		err = refused
	}
	return err
}
