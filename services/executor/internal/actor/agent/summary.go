package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The nodes of a summary: the call, and the node that keeps it. The first two stand before the first round,
// the others between two rounds.
const (
	nodeFirstSummary    = "begin.summary"
	nodeFirstSummarized = "begin.summarized"
	nodeSummary         = "summary"
	nodeSummarized      = "summarized"
)

// summarizerNode is the node that summarizes: an actor, or a model, which is that of the reasoner if none is
// named.
func (d *definition) summarizerNode(id string) (workgraph.Node, error) {
	s := d.History.Summarize
	n := workgraph.Node{ID: id, Kind: workgraph.SummarizerKind, Actor: cmp.Or(s.Actor, actorLLM), Named: map[string]json.RawMessage{},
		OnError: workgraph.OnError{Action: workgraph.Route}, Retry: workgraph.Retry{MaxAttempts: 3}}
	if s.Actor != "" {
		return n, nil
	}
	n.Named["upstream"] = json.RawMessage("false")
	switch {
	case s.Profile != "":
		raw, err := actor.Encode(s.Profile)
		if err != nil {
			return n, err
		}
		n.Named["profile"] = raw
	case d.Reasoner == actorLLM:
		for _, k := range []string{"profile", "model"} {
			if v, ok := d.ReasonerArgs[k]; ok {
				n.Named[k] = v
			}
		}
	}
	return n, nil
}

// summaries adds the nodes of summaries to a loop. Nothing selects them in a round that needs none.
func (d *definition) summaries(own json.RawMessage, add func(workgraph.Node), edge func(from, to string, kind workgraph.EdgeKind, pass workgraph.PassDown)) error {
	nothing, result := workgraph.Merge(passNothing), workgraph.Merge(passResult)
	for _, at := range [][3]string{{nodeBegin, nodeFirstSummary, nodeFirstSummarized}, {nodeObserve, nodeSummary, nodeSummarized}} {
		before, ask, keep := at[0], at[1], at[2]
		n, err := d.summarizerNode(ask)
		if err != nil {
			return err
		}
		add(n)
		add(workgraph.Node{ID: keep, Actor: actorSummary, Named: map[string]json.RawMessage{"definition": own}})
		edge(before, ask, "", result)
		edge(ask, keep, "", nothing)
		edge(ask, keep, workgraph.ErrorEdge, nothing)
	}
	edge(nodeFirstSummarized, nodeReason, "", result)
	return nil
}

// summaryPause is for how many rounds no summary is asked for after one that failed.
const summaryPause = 5

// summarized keeps a summary as an item of the thread, and makes what is told in the round. Without a summary
// the round is told as much as fits.
func (l *loop) summarized(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	d, err := l.definitions.of(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	r, err := l.round(ctx, c, d)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if r.at.Asked == nil || d.History.Summarize == nil {
		return workgraph.Outcome{}, badLoop("no summary was asked for")
	}
	from, ok := standing.Source(c, nodeSummary)
	if !ok {
		from, _ = standing.Source(c, nodeFirstSummary)
	}
	s := &summary{First: r.at.Asked.First, Last: r.at.Asked.Last, Text: strings.TrimSpace(actor.AsText(actor.Result(from.Values)))}
	next := *r
	next.from, next.settled = r.at.Place, true
	pos := r.at
	pos.Asked = nil
	var add []workgraph.ThreadAppend
	failed := ""
	switch {
	case from.Outcome != workgraph.VisitCompleted:
		failed = because(from.Error)
	case s.Text == "":
		failed = "the summary is empty"
	default:
		// What is kept beside it and what comes next have room.
		s.Text = errs.Clip(s.Text, max(minShare, int(d.History.Summarize.Above-d.History.Summarize.Keep)*tokenBytes/2))
		raw, err := actor.Encode(s)
		if err != nil {
			return workgraph.Outcome{}, badLoop("the summary: %v", err)
		}
		brief, err := actor.Encode(r.at.Asked)
		if err != nil {
			return workgraph.Outcome{}, badLoop("the summary: %v", err)
		}
		a, at, err := standing.Append(ctx, l.threads, c, r.at.Place, []workgraph.ThreadItem{{Kind: workgraph.ThreadSummary, Brief: brief, Body: raw}})
		if err != nil {
			return workgraph.Outcome{}, err
		}
		add = []workgraph.ThreadAppend{a}
		s.seq = a.After + 1
		pos.Place = at
		next.from, next.summary = standing.Before(a), s
	}
	out, err := next.told(ctx, l, nil)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if pos.Sent = next.sent; failed != "" {
		pos.Sent.Failed, pos.Again = errs.Clip(failed, maxFailure), r.number+summaryPause
	}
	out.Threads = add
	out.State, err = pos.state()
	return out, err
}
