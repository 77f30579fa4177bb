package governor

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// gate lets an attempt that asks a model begin once its account has room for the call, so that it waits
// without a slot, memory for a call, or a timeout that runs. A pass expires soon; what it took is given back.
type gate struct {
	*Governor
	find func(profile string) (llm.Account, bool)
}

// Gate is the gate of attempts. find finds the account of a profile, and whether another profile may answer
// in its place: such an attempt does not wait while the provider wants no calls.
func (g *Governor) Gate(find func(profile string) (llm.Account, bool)) sched.Gate {
	return &gate{g, find}
}

func (g *gate) account(profile string) llm.Account {
	a, _ := g.find(profile)
	return a
}

// Kind implements sched.Gate.
func (g *gate) Kind() sched.GateKind { return sched.GateAccount }

// Concerns implements sched.Gate.
func (g *gate) Concerns(req sched.GateRequest) bool {
	return req.Model.Profile != "" && g.account(req.Model.Profile).Name != ""
}

// Enter implements sched.Gate.
func (g *gate) Enter(req sched.GateRequest, ready func(sched.Pass)) func() {
	queued := req.Queued.Add(time.Duration(sched.Class(req.Priority)-1) * handicap)
	account, fallback := g.find(req.Model.Profile)
	w := &waiter{estimate: llm.Usage{Input: req.Model.Input, Output: req.Model.Output}, queued: queued, leaves: fallback}
	w.ready = func(p *permit) {
		if p == nil {
			ready(sched.Pass{}) // the call itself finds out
			return
		}
		ready(sched.Pass{Release: p.unused, Until: p.until, Carry: func(ctx context.Context) context.Context {
			return context.WithValue(ctx, permitKey{}, p)
		}})
	}
	return g.enter(account, req.Namespace, w)
}

// WaitOf implements sched.Gate.
func (g *gate) WaitOf(req sched.GateRequest) (sched.GateWait, bool) {
	name := g.account(req.Model.Profile).Name
	w, ok := g.wait(name, req.Namespace)
	out := sched.GateWait{Kind: sched.GateAccount, Name: name, Until: w.Until}
	switch {
	case !w.Until.IsZero():
		out.Message = "the provider refused calls and wants none for now"
	case w.Speed < 1:
		out.Message = fmt.Sprintf("the provider refused calls, so %.0f %% of the limits are used", 100*w.Speed)
	}
	if w.Ahead > 1 {
		if out.Message != "" {
			out.Message += "; "
		}
		out.Message += fmt.Sprintf("%d calls of the namespace wait at this executor", w.Ahead)
	}
	return out, ok
}

// Begin implements sched.SessionGate.
func (g *gate) Begin(owner journal.Owner) { g.begin(owner) }

// End implements sched.SessionGate.
func (g *gate) End(owner journal.Owner) {
	g.mu.Lock()
	same := g.owner == owner
	g.mu.Unlock()
	if same {
		g.begin(journal.Owner{})
	}
}
