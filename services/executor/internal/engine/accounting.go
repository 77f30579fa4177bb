package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// summaryLength is how many characters of a result go to the task.
const summaryLength = 500

// addUsage adds the usage of an attempt to the run's row. The caller holds r.mu.
func (r *run) addUsage(usage []workgraph.Usage) {
	for _, u := range usage {
		r.usage.InputTokens += u.InputTokens
		r.usage.CachedInputTokens += u.CachedTokens
		r.usage.OutputTokens += u.OutputTokens
		r.usage.ReasoningTokens += u.ReasoningTokens
		r.usage.Calls++
	}
}

// entries are the usage entries for the registry, one for each call of the attempt, in order. What an
// agent's node uses for no task counts as overhead; for a task it is the work.
func (r *run) entries(a *attempt, usage []workgraph.Usage, failed bool, now time.Time) []outbox.Entry {
	if r.t.e.claims == nil {
		return nil
	}
	task, epic := r.task, ""
	if p := a.payer; p != nil && task == "" {
		if task = p.Task; task == "" {
			epic = p.Epic
		}
	}
	var out []outbox.Entry
	for i, u := range usage {
		out = append(out, outbox.Entry{
			RunID: r.id, Node: a.start.Node, Visit: a.start.Visit, Item: a.start.Item, Attempt: a.start.Attempt, Call: i,
			TaskID: task, EpicID: epic, Actor: phrase.Clean(a.start.Actor, maxModel), Provider: u.Provider, Model: u.Model, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens,
			OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens, Time: now, Failed: failed,
			Tool: u.Model == "", Overhead: a.start.Kind == workgraph.AgentKind && task == "", CostNanoUSD: u.CostNanoUSD,
			Embedding: u.Call == workgraph.EmbeddingCall,
		})
	}
	return out
}

// Bounds of the usage that a worker reports: those of the registry, and sums that stay far from overflow.
const (
	maxProvider = 128
	maxModel    = 256
	maxTokens   = 1_000_000_000_000
	maxCost     = 10_000_000_000_000 // ten thousand dollars
)

// plausible returns usage within these bounds. Larger values are cut, so that the run's other entries can be
// booked.
func plausible(usage []workgraph.Usage) []workgraph.Usage {
	out := slices.Clone(usage)
	for i := range out {
		u := &out[i]
		u.Unsettled, u.Unlimited = false, false // calls cannot say that
		u.Provider, u.Model, u.Call = phrase.Clean(u.Provider, maxProvider), phrase.Clean(u.Model, maxModel), phrase.Clean(u.Call, maxModel)
		for _, n := range []*int64{&u.InputTokens, &u.CachedTokens, &u.OutputTokens, &u.ReasoningTokens} {
			*n = min(max(*n, 0), maxTokens)
		}
		if u.CostNanoUSD != nil {
			cost := min(max(*u.CostNanoUSD, 0), maxCost)
			u.CostNanoUSD = &cost
		}
	}
	return out
}

// accounting returns the outbox items of a decision.
func (r *run) accounting(x extra, evs []workgraph.Event, end *workgraph.RunEnd, now time.Time) ([]journal.Out, error) {
	if r.t.e.claims == nil {
		return nil, nil
	}
	var out []journal.Out
	if len(x.attempt.entries) > 0 {
		o, err := outbox.Usage{Entries: x.attempt.entries, Trace: x.attempt.trace}.Out()
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	if end != nil && r.task != "" && !r.lineage.Borrowed {
		o, err := r.settlement(end, now).Out()
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	told, err := r.changes(evs, now)
	return append(out, told...), err
}

// wakes says whether a write has anything for the outbox, and whether somebody waits for its delivery.
type wakes struct{ any, urgent bool }

func waking(w *journal.Append) wakes {
	return wakes{any: len(w.Outbox) > 0 || len(w.Threads) > 0, urgent: outbox.Urgent(w.Outbox)}
}

// changes returns the outbox items of what became of the run, for the feed.
func (r *run) changes(evs []workgraph.Event, now time.Time) (out []journal.Out, err error) {
	if !outbox.Told(r.lineage.Parent, r.lineage.Workflow) {
		return nil, nil
	}
	task, epic := r.concerns()
	for i := range evs {
		c := outbox.RunChange{RunID: r.id, Parent: r.lineage.Parent, Workflow: r.lineage.Workflow, Task: task, Epic: epic, Seq: evs[i].Seq, Time: now, Trace: tracing.OfSpan(r.trace)}
		switch evs[i].Kind {
		case workgraph.RunStarted:
			c.State = outbox.Started
		case workgraph.RunPaused:
			c.State, c.Reason = outbox.Paused, phrase.Clean(evs[i].Reason, maxToldReason)
		case workgraph.RunResumed:
			c.State, c.Reason = outbox.Resumed, phrase.Clean(evs[i].Reason, maxToldReason)
		case workgraph.GraphAmended:
			c.State = outbox.Amended
		case workgraph.RunEnded:
			end := evs[i].End
			c.State, c.Outcome, c.Reason = outbox.Ended, outcomeOf(end), phrase.Clean(end.Reason, maxToldReason)
			if e := record.NewRunError(end); e != nil {
				c.Reason = phrase.Clean(e.Reason, maxToldReason)
			}
			c.Used, c.Activity = r.unused(now), r.activity(now)
		default:
			continue
		}
		o, err := c.Out()
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// concerns are the task that the run works on, or that pays for it now, and the epic of that task, or the one
// that pays.
func (r *run) concerns() (task, epic string) {
	if p := r.payer.Load(); r.task == "" && p != nil {
		return p.Task, p.Epic
	}
	return r.task, r.epic
}

// activity sums up what the run did until its end.
func (r *run) activity(now time.Time) *outbox.Activity {
	a := &outbox.Activity{Nodes: r.Tally.Counts, Calls: r.usage.Calls}
	if !r.started.IsZero() {
		d := max(now.Sub(r.started), 0)
		a.Duration = &d
	}
	return a
}

// unused is what the run used if that is nothing, so that its end can be told at once; nil if it made calls,
// or may have runs below it.
func (r *run) unused(now time.Time) *outbox.Used {
	if r.holds || r.usage.Calls > 0 {
		return nil
	}
	u := &outbox.Used{}
	if !r.started.IsZero() {
		d := max(now.Sub(r.started), 0)
		u.Duration = &d
	}
	return u
}

// maxToldReason bounds the reason that the registry is told, in bytes.
const maxToldReason = 128

func outcomeOf(end *workgraph.RunEnd) outbox.Outcome {
	switch end.Status {
	case workgraph.StatusCompleted:
		return outbox.Completed
	case workgraph.StatusCanceled:
		return outbox.Canceled
	}
	return outbox.Failed
}

func (r *run) settlement(end *workgraph.RunEnd, now time.Time) outbox.Settle {
	s := outbox.Settle{TaskID: r.task, RunID: r.id, Workflow: r.lineage.Workflow, Outcome: outcomeOf(end), Summary: summary(end.Result), End: now, Trace: tracing.OfSpan(r.trace)}
	if !r.started.IsZero() {
		s.Duration = max(now.Sub(r.started), 0)
	}
	if e := record.NewRunError(end); e != nil {
		s.Error = e.Reason
		if e.Message != "" {
			s.Error += ": " + e.Message
		}
		s.Error = phrase.Cut(s.Error, 4096)
	}
	return s
}

// summary is the beginning of a result: of the text if the result is one, else of its JSON.
func summary(result json.RawMessage) string {
	if len(result) == 0 || string(result) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(result, &text) != nil {
		text = string(result)
	}
	return phrase.Cut(text, summaryLength)
}

// addUsageOfChild adds the usage of a child to the run's row.
func (r *run) addUsageOfChild(u journal.Usage) {
	r.usage.InputTokens += u.InputTokens
	r.usage.CachedInputTokens += u.CachedInputTokens
	r.usage.OutputTokens += u.OutputTokens
	r.usage.ReasoningTokens += u.ReasoningTokens
	r.usage.Calls += u.Calls
}
