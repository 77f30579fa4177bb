package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/purse"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Purse reserves what model calls may use, before they are made. Package purse implements it.
type Purse interface {
	// Try reserves what a call may use at most. An error is the cause of the end of ctx.
	Try(ctx context.Context, namespace string, call purse.Call) (purse.Answer, error)
	// Room answers as Try does, and reserves nothing.
	Room(ctx context.Context, namespace string, call purse.Call) (purse.Answer, error)
	// Release gives back what was reserved for a call that was not made. It does not block.
	Release(namespace string, call outbox.Entry)
}

// reserve asks for what a model call may use. It returns the error of a call that must not be made.
func (t *session) reserve(ctx context.Context, a *attempt) *workgraph.Error {
	if t.e.purse == nil || t.e.mostUsed == nil {
		return nil
	}
	most, ok := t.e.mostUsed(&a.start)
	if !ok {
		return nil
	}
	entries := a.run.entries(a, plausible([]workgraph.Usage{most}), false, dbkit.Micros(time.Now()))
	if len(entries) == 0 {
		return nil
	}
	entries[0].Incarnation = t.owner.Incarnation
	runs, err := t.budgets(ctx, a.run)
	if err != nil {
		return notPerformed(err)
	}
	answer, err := t.e.purse.Try(ctx, a.run.namespace, purse.Call{Entry: entries[0], Runs: runs, Unlimited: unlimited(most)})
	switch {
	case err != nil:
		return notPerformed(err)
	case answer.Refusal != nil:
		a.capped = true
		no := workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCap, "%s", capText(answer.Refusal))
		no.Wanted = &most
		return no
	case answer.Capped:
		a.reserved, a.overSoft = &entries[0], len(answer.OverSoft) > 0
	}
	return nil
}

// unlimited reports whether what a call wants tells that it states no limit of its answer.
func unlimited(wanted workgraph.Usage) bool { return wanted.Unlimited || wanted.OutputTokens == 0 }

// unused is what was reserved for the calls that end with the decision and used nothing.
func (x *extra) unused() (out []outbox.Entry) {
	if x.attempt.unused != nil {
		out = append(out, *x.attempt.unused)
	}
	for _, of := range x.left {
		if of.unused != nil {
			out = append(out, *of.unused)
		}
	}
	return out
}

// giveBack gives back what was reserved for calls that used nothing. It is called once their ends are
// durable, and before anything starts that follows from them. Until then whoever owns the run may make a
// call again under the same key, and so with what was reserved for it.
func (t *session) giveBack(namespace string, unused []outbox.Entry) {
	for i := range unused {
		t.e.purse.Release(namespace, unused[i])
	}
}

// capText says whose cap leaves no room, and which command helps.
func capText(r *purse.Refusal) string {
	level, id, named := strings.Cut(r.Budget, "/")
	command := "epigraph budgets set"
	if named {
		command += " --" + level + " " + id
	}
	switch {
	case r.Budget == "":
		return r.Message
	case r.Reason == "ESTIMATE_UNKNOWN":
		return r.Message + "; `max_output_tokens` of the call states one"
	case level == "run":
		command = "epigraph runs resume " + id
		if strings.Contains(r.Message, "nano-USD") {
			return r.Message + "; `" + command + " --budget-usd X` gives it more"
		}
		return r.Message + "; `" + command + " --budget-tokens N` gives it more"
	case r.Reason == "PRICE_UNKNOWN":
		return r.Message + "; `epigraph prices set` gives the model a price"
	case strings.Contains(r.Message, "nano-USD"):
		command += " --hard-usd X"
	default:
		command += " --hard-tokens N"
	}
	return r.Message + "; `" + command + "` raises the cap"
}

// awaitRoom asks whether there is room now for the call that a cap above the run left none for. Without
// room the run goes on waiting, in memory at first and then as a row.
func (t *session) awaitRoom(r *run) {
	payer := t.payer(t.background, r)
	r.lock()
	refused := r.State.Refused()
	var call purse.Call
	if refused != nil {
		a := &attempt{run: r, start: workgraph.Start{Ref: refused.Ref, Attempt: refused.Attempt}, payer: payer}
		if entries := r.entries(a, plausible([]workgraph.Usage{refused.Wanted}), false, dbkit.Micros(time.Now())); len(entries) > 0 {
			call.Entry, call.Unlimited = entries[0], unlimited(refused.Wanted)
		}
	}
	r.mu.Unlock()
	var answer purse.Answer
	err := error(nil)
	if refused != nil && t.e.purse != nil {
		if call.Runs, err = t.budgets(t.background, r); err == nil {
			answer, err = t.e.purse.Room(t.background, r.namespace, call)
		}
	}
	leave, over := r.step(t.background)
	if over != nil {
		return
	}
	defer leave()
	r.asking = false
	if r.gone.Load() || refused == nil || r.State.Refused() == nil {
		return
	}
	if err == nil && answer.Refusal == nil {
		r.askAt = time.Time{}
		err = r.advance(workgraph.Resume{Reason: workgraph.ReasonRoom, Now: time.Now().UTC()}, extra{})
		if err == nil || errors.Is(err, errDropped) || errors.Is(err, workgraph.ErrEnded) {
			return
		}
	}
	// Its own budget, or a call of unknown outcome, may hold it as well.
	t.e.log.DebugContext(t.background, "the run waits for room under a cap", "err", err, "run_id", r.id)
	r.askAt = time.Now().Add(r.askPause(time.Since(refused.At)))
	if at, ok := r.next(); ok {
		r.setTimer(at)
	}
	if r.idle() {
		t.evictIdleSoon(r, 0)
	}
}
