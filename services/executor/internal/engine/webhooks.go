package engine

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// webhookJobs adds the webhook jobs of a decision to its transaction. A run without webhooks adds nothing.
// The caller holds r.mu.
func (r *run) webhookJobs(w *journal.Append, evs []workgraph.Event, eff workgraph.Effects) {
	f := &r.lineage
	if len(f.Hooks) == 0 && len(f.Asks) == 0 {
		return
	}
	now := tracing.OfSpan(r.trace)
	say := func(hook int, a webhook.Args) {
		a.Namespace, a.RunID, a.Hook = r.namespace, r.id, hook
		a.TraceParent, a.TraceState = now.Parent, now.State
		w.Jobs = append(w.Jobs, a.Job())
	}
	for i := range evs {
		var what webhook.Event
		switch evs[i].Kind {
		case workgraph.RunEnded:
			what = webhook.RunEnded
		case workgraph.RunPaused:
			what = webhook.RunPaused
		default:
			continue
		}
		for _, hook := range webhook.Wanting(f.Hooks, what) {
			say(hook, webhook.Args{Event: what, Seq: evs[i].Seq})
		}
	}
	r.saidJobs(eff.Threads, say)
	for i := range eff.Opened {
		a := webhook.Args{Event: webhook.InterruptOpened, Seq: openedAt(evs, eff.Opened[i].Ref), InterruptID: eff.Opened[i].Interrupt.ID}
		if r.root != r.id {
			a.Of = r.root
		}
		for _, hook := range f.Asks {
			say(hook, a)
		}
	}
}

// saidJobs tell the chat of the run what was said there. A run below asks the hooks of the root that want
// questions: a hook of a chat wants both, and any other one is passed over when the job is done.
func (r *run) saidJobs(of []workgraph.ThreadsOf, say func(hook int, a webhook.Args)) {
	hooks, root := webhook.Wanting(r.lineage.Hooks, webhook.ChatSaid), ""
	if r.root != r.id {
		hooks, root = r.lineage.Asks, r.root
	}
	for i := range of {
		for k := range of[i].Appends {
			a := &of[i].Appends[k]
			if !a.Says {
				continue
			}
			for _, hook := range hooks {
				say(hook, webhook.Args{Event: webhook.ChatSaid, Seq: a.After + int64(len(a.Items)), Thread: a.Thread, Of: root})
			}
		}
	}
}

// openedAt is the sequence of the event that opened the interrupt of a visit.
func openedAt(evs []workgraph.Event, ref workgraph.Ref) int64 {
	seq := int64(0)
	for i := range evs {
		if evs[i].Kind == workgraph.AttemptEnded && evs[i].Ref == ref {
			return evs[i].Seq
		}
		seq = evs[i].Seq
	}
	return seq
}
