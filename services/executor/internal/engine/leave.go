package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// leaving are the runs of members of a team that are canceled, since the user wants something else.
type leaving struct {
	reason   string
	children []string
}

// leave ends what the members of the team do: their calls end here and now, and their runs are canceled. One
// write does all of it, so that after a crash either all are left or the command is applied anew. The caller
// holds r.mu.
func (r *run) leave(m *journal.Command, l *record.Payload, x extra) error {
	who := command.WhoSpeaks(r.State)
	unrecorded := func(child string) bool { return !r.children[child] }
	st, _ := r.State.Status()
	switch {
	case st == workgraph.StatusPaused && slices.ContainsFunc(who.Children, unrecorded):
		// Such a child begins when the run is resumed, until when nobody would hear the request.
		r.Unheard, x.keep = r.Unheard.With(m.Key), true
		return r.drop(m, x, errors.New("the team is paused, and members begin when it goes on"))
	case slices.ContainsFunc(who.Children, unrecorded), who.Nobody() && r.State.InFlight() > 0:
		// A child that is not recorded hears nothing, and between two turns nobody speaks yet. The command
		// waits for the end of a call, or for the child.
		delete(r.applying, m.ID)
		r.early = true
		return nil
	case who.Nobody():
		r.Unheard, x.keep = r.Unheard.With(m.Key), true
		return r.drop(m, x, errors.New("nobody speaks who can be left"))
	}
	evs, eff, err := r.endCalls(who.Calls, l.Reason)
	switch {
	case errors.Is(err, workgraph.ErrAborted):
		r.rebuild(nil)
		return errDropped
	case err != nil:
		r.t.dropAndReload(r, err)
		return errDropped
	}
	x.progress, x.leaves = true, leaving{l.Reason, who.Children}
	if len(who.Calls) > 0 {
		x.attempt.actor = who.Calls[0].Actor
	}
	r.dropLargeOutputs(eff.Ended)
	return r.commit(evs, eff, x)
}

// endCalls ends calls that are under way, as failed by the request. Their contexts end once that is durable;
// what they report then comes too late.
func (r *run) endCalls(list []workgraph.Start, reason string) (evs []workgraph.Event, eff workgraph.Effects, err error) {
	text, _ := actor.LeftFor(reason)
	now := time.Now().UTC()
	for i := range list {
		es, fx, err := r.State.Advance(workgraph.Ended{Ref: list[i].Ref, Attempt: list[i].Attempt, Err: actor.AnotherRequest(text), Now: now})
		if err != nil {
			return nil, eff, err
		}
		evs, eff = append(evs, es...), eff.And(fx)
		eff.Cancels = append(eff.Cancels, list[i].Ref)
	}
	return evs, eff, nil
}

// leaveChildren adds the commands that cancel the runs of members that are left.
func (r *run) leaveChildren(w *journal.Append, of leaving, now time.Time) error {
	for _, id := range of.children {
		body, err := (&record.Payload{Reason: of.reason, Trace: tracing.OfSpan(r.trace)}).Encode()
		if err != nil {
			return fmt.Errorf("encode cancel of member: %w", err)
		}
		w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: id, Kind: journal.CommandCancel, Key: "left", Body: body, Time: now})
	}
	return nil
}
