package workgraph

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// This file connects a run in memory with things outside of it: child runs, interrupts, and commands from
// outside.

// ReasonWaiting is the reason of a Result that is PAUSED because nothing in this process can end the run's
// waits.
const ReasonWaiting = "WAITING"

// maxDepth is how deep runs in memory may spawn each other.
const maxDepth = 3

// Answer is the answer to an interrupt. Decision must be set exactly for an approval.
type Answer struct {
	Value    json.RawMessage
	Decision string
	By       string
}

// WithInterrupts asks f the interrupts of the run and of its children. f is called in a goroutine per
// interrupt, with a context that ends with the interrupt. After an error the interrupt stays open until it
// expires.
func WithInterrupts(f func(ctx context.Context, q OpenedInterrupt) (Answer, error)) Option {
	return func(c *runConfig) { c.ask = f }
}

// WithCommands takes commands from outside: Signaled, Delivered, Answered, AttemptCompleted, Pause, EndLoops,
// Resume, Settled, Cancel and DeadlinePassed. A zero Now is set to the current time. While the channel is
// open a run that waits goes on waiting. A command that is not accepted goes to refused, unless that is nil.
func WithCommands(in <-chan Command, refused func(Command, error)) Option {
	return func(c *runConfig) { c.in, c.refused = in, refused }
}

// WithWorkflows finds the graphs of children that are named by another ref than "self".
func WithWorkflows(f func(ref string) (*Graph, error)) Option {
	return func(c *runConfig) { c.workflows = f }
}

// outside is the part of a runner that connects its run with things outside. Most runs do not use it.
type outside struct {
	program *Program
	// fresh makes a context that only this run ends. A child must not be seen to end before the run itself is
	// canceled.
	fresh func() (context.Context, context.CancelCauseFunc)
	all   Actors
	// going are the functions that stop children and interrupts, by id.
	going map[string]context.CancelCauseFunc
	busy  int // goroutines that will report something
	fed   bool
}

// nameWaits gives ids to children and interrupts without one. It does not change the actor's values.
func nameWaits(c *Call, w *Wait) *Wait {
	name := func(i int) string {
		id := fmt.Sprintf("%s/%d/%d", c.EffectKey(), c.Attempt, i)
		if len(id) > maxWaitID {
			sum := sha256.Sum256([]byte(id))
			id = hex.EncodeToString(sum[:])
		}
		return id
	}
	named := *w
	if w.Children != nil {
		kids := *w.Children
		kids.Runs = slices.Clone(kids.Runs)
		for i := range kids.Runs {
			if r := &kids.Runs[i]; r.ID == "" {
				r.ID = name(i)
			}
		}
		named.Children = &kids
	}
	if w.Interrupt != nil && w.Interrupt.ID == "" {
		q := *w.Interrupt
		q.ID = name(0)
		named.Interrupt = &q
	}
	return &named
}

// actOutside acts on the effects that concern things outside of the run. The lock is held.
func (r *runner) actOutside(ctx context.Context, fx *Effects) {
	for _, id := range fx.CancelChildren {
		r.out.stop(id)
	}
	for i := range fx.Closed {
		r.out.stop(fx.Closed[i].ID)
	}
	for i := range fx.Spawns {
		sp := fx.Spawns[i]
		sp.Child.Budget = r.s.Allowance(sp.Child.Budget)
		r.start(sp.Child.ID, func(own context.Context) {
			slot := r.child(own, &sp.Child)
			r.report(ctx, sp.Child.ID, ChildEnded{Ref: sp.Ref, Slot: slot, Now: time.Now()})
		})
	}
	for i := range fx.Opened {
		q := fx.Opened[i]
		if r.cfg.ask == nil {
			break
		}
		r.start(q.Interrupt.ID, func(own context.Context) {
			a, err := r.cfg.ask(own, q)
			if err != nil {
				r.report(ctx, q.Interrupt.ID, nil)
				return
			}
			r.report(ctx, q.Interrupt.ID, Answered{ID: q.Interrupt.ID, Answer: a.Value, Decision: a.Decision, By: a.By, Now: time.Now()})
		})
	}
}

// start runs f beside the run until it has reported.
func (r *runner) start(id string, f func(context.Context)) {
	own, stop := r.out.fresh()
	if r.out.going == nil {
		r.out.going = map[string]context.CancelCauseFunc{}
	}
	r.out.going[id] = stop
	r.out.busy++
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		defer stop(nil)
		f(own)
	}()
}

func (o *outside) stop(id string) {
	if stop := o.going[id]; stop != nil {
		stop(errCanceled)
		delete(o.going, id)
	}
}

// report takes the end of a child or interrupt. A nil cmd says that nothing came of it.
func (r *runner) report(ctx context.Context, id string, cmd Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.stop(id)
	r.out.busy--
	if r.done {
		return
	}
	if cmd != nil {
		if err := r.advance(ctx, cmd); err != nil && r.cfg.refused != nil {
			r.cfg.refused(cmd, err)
		}
	}
	r.checkOver()
}

// child runs a child to its end.
func (r *runner) child(ctx context.Context, c *Child) ChildSlot {
	failed := func(reason, format string, args ...any) ChildSlot {
		return ChildSlot{RunID: c.ID, Status: StatusFailed, Reason: reason, Error: Errorf(Permanent, reason, format, args...)}
	}
	depth := r.cfg.depth
	if !c.SameDepth {
		depth++
	}
	if depth > maxDepth {
		return failed(ReasonTooDeep, "runs may spawn each other %d deep", maxDepth)
	}
	p := r.out.program
	if c.Ref != "self" {
		g := c.Graph
		if g == nil {
			if r.cfg.workflows == nil {
				return failed(ReasonUnsupported, "nothing here knows workflows such as %q", c.Ref)
			}
			var err error
			if g, err = r.cfg.workflows(c.Ref); err != nil {
				return failed(ReasonBadChild, "%s: %v", c.Ref, err)
			}
		}
		var err error
		if p, err = Compile(context.WithoutCancel(ctx), g, r.out.all); err != nil {
			return failed(ReasonBadChild, "%v", err)
		}
	}
	cfg := r.cfg
	cfg.runID, cfg.parent, cfg.agent, cfg.depth, cfg.in, cfg.progress, cfg.budget = c.ID, r.cfg.runID, c.Agent, depth, nil, nil, c.Budget
	res, err := p.run(ctx, r.out.all, c.Input, cfg)
	if err != nil {
		return failed(ReasonBadChild, "%v", err)
	}
	slot := ChildSlot{RunID: c.ID, Status: res.Status, Reason: res.Reason, Result: res.Result, Outputs: res.Outputs, Error: res.Error, Usage: res.Usage}
	if res.Status == StatusPaused { // nothing can resume it
		slot.Status, slot.Error = StatusFailed, Errorf(Permanent, res.Reason, "the child stands still")
	}
	return slot
}

// listen takes commands until the channel is closed or the run is over.
func (r *runner) listen(ctx context.Context) {
	defer r.wg.Done()
	for {
		select {
		case <-r.over:
			return
		case cmd, ok := <-r.cfg.in:
			r.mu.Lock()
			if !ok {
				r.out.fed = false
				r.checkOver()
				r.mu.Unlock()
				return
			}
			var err error
			if !r.done {
				cmd, err = stamped(cmd)
				if err == nil {
					err = r.advance(ctx, cmd)
				}
			} else {
				err = ErrEnded
			}
			r.mu.Unlock()
			if err != nil && r.cfg.refused != nil {
				r.cfg.refused(cmd, err)
			}
		}
	}
}

// stamped is a command from outside with its time. It is an error if the command may not come from outside.
func stamped(cmd Command) (Command, error) {
	now := func(t *time.Time) {
		if t.IsZero() {
			*t = time.Now()
		}
	}
	switch c := cmd.(type) {
	case Signaled:
		now(&c.Now)
		return c, nil
	case Delivered:
		now(&c.Now)
		return c, nil
	case Answered:
		now(&c.Now)
		return c, nil
	case AttemptCompleted:
		now(&c.Now)
		return c, nil
	case Pause:
		now(&c.Now)
		return c, nil
	case EndLoops:
		now(&c.Now)
		return c, nil
	case Resume:
		now(&c.Now)
		return c, nil
	case Settled:
		now(&c.Now)
		return c, nil
	case Cancel:
		now(&c.Now)
		return c, nil
	case DeadlinePassed:
		now(&c.Now)
		return c, nil
	}
	return cmd, fmt.Errorf("%w: %T does not come from outside", ErrState, cmd)
}

// checkOver finds out whether the run has ended, or whether nothing in this process can make it go on. The
// lock is held.
func (r *runner) checkOver() {
	if r.done {
		return
	}
	status, _ := r.s.Status()
	over := status.Ended()
	if !over && r.s.InFlight() == 0 {
		_, timed := r.s.NextTimer()
		over = status == StatusPaused || !timed && r.out.busy == 0 && !r.out.fed
	}
	if !over {
		return
	}
	r.done = true
	for id := range r.out.going {
		r.out.stop(id)
	}
	close(r.over)
}
