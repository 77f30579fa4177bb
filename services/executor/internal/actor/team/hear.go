package team

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// hear ends a turn: what was said is appended, and the next move is found.
func (l *loop) hear(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	rules, err := l.rules.of(ctx, c.Own[argTeam])
	if err != nil {
		return workgraph.Outcome{}, err
	}
	p, err := positionOf(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	var logged []team.Message
	var move team.Move
	if p.Team.Choosing != nil {
		u, _ := standing.Source(c, nodeChoose)
		if request, ok := actor.RequestOf(u.Error); ok && u.Outcome != workgraph.VisitCompleted {
			logged, p.Team, move, err = rules.Turned(ctx, p.Team, nil, []string{request}, used(c), c.Stopping, time.Now().UTC())
		} else {
			p.Team, move, err = rules.Chosen(p.Team, actor.AsText(actor.Result(u.Values)), c.Stopping)
		}
	} else {
		given, works, requests := answers(c, rules, p.Team)
		for i := range given {
			if err := l.spoke(ctx, p, rules.Member(given[i].From), works[i]); err != nil {
				return workgraph.Outcome{}, err
			}
		}
		if now := time.Now().UTC(); len(requests) > 0 {
			logged, p.Team, move, err = rules.Turned(ctx, p.Team, given, requests, used(c), c.Stopping, now)
		} else {
			logged, p.Team, move, err = rules.Hear(ctx, p.Team, given, used(c), c.Stopping, now)
		}
	}
	if err != nil {
		return workgraph.Outcome{}, failed(err)
	}
	last := &team.Message{}
	if move.Over != nil {
		if last, err = l.final(ctx, p, logged); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	items, err := p.items(logged, move)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	a, place, err := standing.Append(ctx, l.threads, c, p.Place, items)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	p.Place = place
	out, err := p.outcome(a, move, last)
	out.Routed = move.Routed
	for i := range out.Routed {
		out.Routed[i].Workflow = workflowOf(c)
	}
	return out, err
}

// final is the response of a team that ends: the last message of a member in this run. It is one of an
// earlier turn if nobody has spoken in this one, as when the team is to end while a model chooses. Empty if
// no member has spoken.
func (l *loop) final(ctx context.Context, p *position, logged []team.Message) (*team.Message, error) {
	for i := len(logged) - 1; i >= 0; i-- {
		if logged[i].From != team.Input {
			return &logged[i], nil
		}
	}
	const atOnce = 16
	before := p.Seq + 1
	for n := p.Team.Messages - len(logged); n > 0; { // those of this run
		items, err := l.messages(ctx, p, before, min(n, atOnce))
		if err != nil || len(items) == 0 {
			return &team.Message{}, err
		}
		for i := range items {
			var m line
			if json.Unmarshal(items[i].Body, &m) == nil && m.Role != "user" {
				said := m.message(items[i].Seq)
				return &said, nil
			}
		}
		n, before = n-len(items), items[len(items)-1].Seq
	}
	return &team.Message{}, nil
}

// workflowOf is the name of the graph whose team the run is of.
func workflowOf(c *workgraph.Call) string {
	raw, _ := c.Var("input")
	var in struct {
		Named struct {
			Team *instance `json:"team"`
		} `json:"named"`
	}
	if json.Unmarshal(raw, &in) != nil || in.Named.Team == nil {
		return ""
	}
	return in.Named.Team.Workflow
}

// used is what the team's run has consumed.
func used(c *workgraph.Call) team.Used {
	var u team.Used
	if raw, ok := c.Var("usage"); ok {
		_ = json.Unmarshal(raw, &u) // it is an object of numbers
	}
	return u
}

// answers are what those say who spoke, in the order of the move, the thread on which each has worked, and
// what the user asks for in place of an answer to one of them.
func answers(c *workgraph.Call, rules *team.Rules, st *team.State) (out []team.Message, works, requests []string) {
	for i := range st.Speaking {
		name := st.Speaking[i].Name
		u, ok := standing.Source(c, speakNode(name))
		if !ok {
			continue
		}
		m := team.Message{From: name}
		if u.Outcome != workgraph.VisitCompleted {
			m.Text = "Error: " + failure(u.Error)
			if request, ok := actor.RequestOf(u.Error); ok {
				m.Text = "The user asked for something else."
				if !slices.Contains(requests, request) { // several who speak may be left for the same
					requests = append(requests, request)
				}
			}
			out, works = append(out, m), append(works, "")
			continue
		}
		read, on := said(actor.Result(u.Values), rules.Member(name))
		read.From = name
		out, works = append(out, read), append(works, on)
	}
	return out, works, requests
}

// said reads what a member gave: a text, an object with text, or any other value. on is the thread that an
// agent or a team says it has worked on.
func said(raw json.RawMessage, m *team.Member) (out team.Message, on string) {
	var o struct {
		ThreadID json.RawMessage `json:"thread_id"` // of any type: a workflow gives what it likes
		Text     *string         `json:"text"`
		Handoff  string          `json:"handoff"`
		Signals  []team.Call     `json:"signals"`
		Calls    []string        `json:"calls"`
	}
	if json.Unmarshal(raw, &o) != nil || o.Text == nil {
		out = team.Message{Text: actor.AsText(raw)}
		var text string
		if json.Unmarshal(raw, &text) != nil && len(raw) <= maxData {
			out.Data = raw
		}
		return out, ""
	}
	out = team.Message{Text: *o.Text, To: o.Handoff, Calls: o.Calls}
	for _, call := range o.Signals {
		if m == nil {
			continue
		}
		if _, ok := m.Signals[call.Name]; ok {
			out.Signals = append(out.Signals, call)
		}
	}
	if m != nil && m.Kind != team.Agent && len(raw) <= maxData {
		out.Data = raw
	}
	if m != nil && (m.Kind == team.Agent || m.Keeps) && json.Unmarshal(o.ThreadID, &on) != nil {
		on = ""
	}
	return out, on
}

// maxData bounds a value that is kept beside its text, in bytes.
const maxData = 256 << 10

// result is what a team gives.
type result struct {
	// Text is the final response: that of the member who spoke last.
	Text     string                     `json:"text"`
	From     string                     `json:"from,omitempty"`
	Data     json.RawMessage            `json:"data,omitempty"`
	Stop     *team.Stopped              `json:"stop"`
	Turns    int                        `json:"turns"`
	Messages int                        `json:"messages"`
	State    map[string]json.RawMessage `json:"state,omitempty"`
	ThreadID string                     `json:"thread_id"`
	// Threads are those of the members, by name.
	Threads map[string]string `json:"threads,omitempty"`
}

// outcome is the end of a visit: the next turn, or the result.
func (p *position) outcome(a workgraph.ThreadAppend, move team.Move, last *team.Message) (workgraph.Outcome, error) {
	out := workgraph.Outcome{Threads: []workgraph.ThreadAppend{a}, Pause: move.Pause, Select: &workgraph.Select{Others: workgraph.SelectNames, Names: []string{nodeTurn}}}
	var value any
	if move.Over != nil {
		out.Select = &workgraph.Select{Others: workgraph.SelectNone}
		value = result{Text: last.Text, From: last.From, Data: last.Data, Stop: move.Over, Turns: p.Team.Turns, Messages: p.Team.Messages, State: p.Team.Values, ThreadID: a.Thread, Threads: p.Threads}
	}
	raw, err := actor.Encode(value)
	if err != nil {
		return out, actor.BadArguments("%v", err)
	}
	out.Values = []json.RawMessage{raw}
	out.State, err = p.state()
	return out, err
}
