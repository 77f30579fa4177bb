package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
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

// count adds what an attempt used to the run's row. The caller holds r.mu.
func (r *run) count(usage []workgraph.Usage) {
	for _, u := range usage {
		r.usage.InputTokens += u.InputTokens
		r.usage.CachedInputTokens += u.CachedTokens
		r.usage.OutputTokens += u.OutputTokens
		r.usage.ReasoningTokens += u.ReasoningTokens
		r.usage.Calls++
	}
}

const (
	// bookTime bounds how long the end of a run is kept back until everything that it used is booked: the
	// registry may be away.
	bookTime = 2 * time.Second
	// bookPause is the shortest pause between two looks, bookPoll the longest: the executor of another
	// replica may deliver what is left.
	bookPause, bookPoll = 20 * time.Millisecond, 500 * time.Millisecond
)

// Accounting are the costs of a run, and how many attempts of it, and of all below it, have used something
// that is not booked yet. Those of a run that has just ended are kept back as its end is, and no longer than
// that: who finds out about the end by asking again and again is told the whole cost, too.
func (e *Engine) Accounting(ctx context.Context, row journal.Run) (journal.Accounting, error) {
	left := bookTime - time.Since(row.EndTime)
	if !row.State.Ended() || left <= 0 {
		return e.booked(ctx, row.Namespace, row.ID)
	}
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end)/2) // an answer in time is worth more
	}
	return e.awaitAccounting(ctx, row.Namespace, row.ID, min(left, bookTime))
}

func (e *Engine) booked(ctx context.Context, namespace, runID string) (journal.Accounting, error) {
	if e.claims == nil {
		return journal.Accounting{}, nil
	}
	return e.journal.Accounting(ctx, namespace, runID, outbox.KindUsage)
}

// awaitAccounting waits until everything is booked that a run and all below it used, or for so long, or until
// the registry is known to be away. It returns the books as they are then.
func (e *Engine) awaitAccounting(ctx context.Context, namespace, runID string, most time.Duration) (journal.Accounting, error) {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		next, away := e.delivered()
		b, err := e.booked(ctx, namespace, runID)
		if err != nil || b.Waiting == 0 || away {
			return b, err
		}
		soonest, poll := time.NewTimer(bookPause), time.NewTimer(bookPoll)
		select {
		case <-next:
		case <-poll.C:
		case <-late.C:
			return e.booked(ctx, namespace, runID)
		case <-ctx.Done():
		}
		select {
		case <-soonest.C:
		case <-ctx.Done():
		}
		soonest.Stop()
		poll.Stop()
		if ctx.Err() != nil {
			return b, ctx.Err()
		}
	}
}

// uses reports whether an event tells of calls that are booked.
func uses(d *record.Durable) bool {
	return d.Usage != nil || d.Outcome != nil && len(d.Outcome.Usage) > 0 || d.Error != nil && len(d.Error.Usage) > 0 || d.Child != nil
}

// entries are the lines for the registry's books, one per call of the attempt, numbered in their order. What
// the node of an agent uses is that agent's own reasoning.
func (r *run) entries(a *attempt, usage []workgraph.Usage, failed bool, now time.Time) []outbox.Entry {
	if r.t.e.claims == nil {
		return nil
	}
	var out []outbox.Entry
	for i, u := range usage {
		out = append(out, outbox.Entry{
			RunID: r.id, Node: a.start.Node, Visit: a.start.Visit, Item: a.start.Item, Attempt: a.start.Attempt, Call: i,
			TaskID: r.task, Provider: u.Provider, Model: u.Model, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens,
			OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens, Time: now, Failed: failed,
			Tool: u.Model == "", Overhead: a.start.Kind == workgraph.AgentKind, CostNanoUSD: u.CostNanoUSD,
		})
	}
	return out
}

// Limits of what a worker says that its calls used: those of the registry, and sums that stay far from
// overflowing.
const (
	maxProvider = 128
	maxModel    = 256
	maxTokens   = 1_000_000_000_000
	maxCost     = 10_000_000_000_000 // ten thousand dollars
)

// plausible is usage that the books can take. What a call claims beyond that is cut, so that its run's other
// entries are booked.
func plausible(usage []workgraph.Usage) []workgraph.Usage {
	out := slices.Clone(usage)
	for i := range out {
		u := &out[i]
		u.Unsettled = false // that is not for calls to say
		u.Provider, u.Model, u.Call = clean(u.Provider, maxProvider), clean(u.Model, maxModel), clean(u.Call, maxModel)
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

// clean is a text of at most n bytes that every store can keep.
func clean(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// accounting are the outbox items that leave with a decision.
func (r *run) accounting(x extra, end *workgraph.RunEnd, now time.Time) ([]journal.Out, error) {
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
	return out, nil
}

func (r *run) settlement(end *workgraph.RunEnd, now time.Time) outbox.Settle {
	s := outbox.Settle{TaskID: r.task, RunID: r.id, Outcome: outbox.Failed, Summary: summary(end.Result), End: now, Trace: tracing.OfSpan(r.trace)}
	if !r.started.IsZero() {
		s.Duration = max(now.Sub(r.started), 0)
	}
	switch end.Status {
	case workgraph.StatusCompleted:
		s.Outcome = outbox.Completed
	case workgraph.StatusCanceled:
		s.Outcome = outbox.Canceled
	}
	if e := runError(end); e != nil {
		s.Error = e.Reason
		if e.Message != "" {
			s.Error += ": " + e.Message
		}
		s.Error = phrase.Cut(s.Error, 4096)
	}
	return s
}

// summary is the beginning of a result: of the text if it is one, else of its JSON.
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
