package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// position is where a team stands: on its thread, and in its conversation. It is a key of the run's
// state, so that a fork of the run stands where the run stood at that visit.
type position struct {
	standing.Place
	Kept
}

func positionOf(c *workgraph.Call) (*position, error) {
	raw, _ := c.Var("state")
	var s struct {
		At *position `json:"at"`
	}
	if err := json.Unmarshal(raw, &s); err != nil || s.At == nil || s.At.Team == nil || s.At.Thread == "" {
		return nil, badLoop("the state of its run does not say where the team stands")
	}
	return s.At, nil
}

// state is the update that sets the position.
func (p *position) state() (map[string]json.RawMessage, error) {
	raw, err := actor.Encode(p)
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	return map[string]json.RawMessage{stateAt: raw}, nil
}

// Reasons of failures.
const (
	// ReasonTeam is the reason when a rule of a team cannot be followed.
	ReasonTeam = "TEAM_FAILED"
	// ReasonNoSpeaker is the reason when nobody can go on with a conversation.
	ReasonNoSpeaker = "TEAM_NO_SPEAKER"
)

func failed(err error) error {
	if errors.Is(err, team.ErrNoSpeaker) {
		return workgraph.Errorf(workgraph.Permanent, ReasonNoSpeaker, "%v", err)
	}
	return workgraph.Errorf(workgraph.Permanent, ReasonTeam, "%v", err)
}

// begin makes or takes the thread, and appends what the team is told.
func (l *loop) begin(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	rules, err := l.rules.of(ctx, c.Own[argTeam])
	if err != nil {
		return workgraph.Outcome{}, err
	}
	raw, _ := c.Var("input")
	var in struct {
		Named struct {
			Team *instance `json:"team"`
		} `json:"named"`
	}
	if json.Unmarshal(raw, &in) != nil || in.Named.Team == nil || in.Named.Team.Thread == "" {
		return workgraph.Outcome{}, badLoop("it has no input")
	}
	of := in.Named.Team
	a, place, err := l.take(ctx, c, of)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	p := &position{Place: place, Kept: Kept{Team: &team.State{}}}
	if of.After != nil || a.Create == nil {
		if err := l.recall(ctx, p, standing.Before(a)); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	if err := p.of(rules.Team(), p.Thread); err != nil {
		return workgraph.Outcome{}, err
	}
	p.forget(rules.Team())
	p.Team.Seq = place.Seq
	input := make([]team.Message, len(of.Told))
	for i, one := range of.Told {
		input[i] = team.Message{Text: one.Text, To: one.To}
	}
	logged, st, move, err := rules.Begin(ctx, p.Team, input, time.Now().UTC())
	if err != nil {
		return workgraph.Outcome{}, failed(err)
	}
	p.Team = st
	if a.Items, err = p.items(logged, move); err != nil {
		return workgraph.Outcome{}, err
	}
	p.Seq = a.After + int64(len(a.Items))
	return p.outcome(a, move, &team.Message{})
}

// take is where the loop begins on its thread, with what makes the thread if it is not there.
func (l *loop) take(ctx context.Context, c *workgraph.Call, of *instance) (workgraph.ThreadAppend, standing.Place, error) {
	if of.Make == "" {
		return standing.Begin(ctx, l.threads, c, of.Thread, nil, nil)
	}
	conv := standing.Conversation{ThreadID: of.Thread, Lifetime: of.Make, PartOf: of.PartOf}
	if of.Of != "" {
		if err := l.within(ctx, c, of, &conv); err != nil {
			return workgraph.ThreadAppend{}, standing.Place{}, err
		}
	}
	create, err := conv.Create()
	if err != nil {
		return workgraph.ThreadAppend{}, standing.Place{}, err
	}
	create.OfRoot, create.Key = of.Of != "", of.Key
	return standing.GoOn(ctx, l.threads, c, of.Thread, *create, of.After)
}

// within takes the thread of the run, and finds the part of it that is the team's.
func (l *loop) within(ctx context.Context, c *workgraph.Call, of *instance, conv *standing.Conversation) error {
	whole, err := standing.HoldWhole(ctx, l.threads, c, of.Of)
	if err != nil {
		return err
	}
	id, err := standing.Find(ctx, l.threads, of.Key)
	if id != "" {
		of.Thread = id
	}
	conv.ThreadID, conv.Lifetime, conv.PartOf = of.Thread, madeIn(whole), of.Of
	return err
}

// recall reads where the team stood at the end of an earlier run.
func (l *loop) recall(ctx context.Context, p *position, at standing.Place) error {
	if at.Thread == "" {
		return nil
	}
	last, err := l.threads.Items(ctx, actor.NamespaceOf(ctx), at.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadState}, Before: at.Seq + 1, Limit: 1})
	if err != nil {
		return standing.Error(err)
	}
	if len(last) == 0 {
		return nil
	}
	var k Kept
	if json.Unmarshal(last[0].Body, &k) != nil || k.Team == nil {
		return workgraph.Errorf(workgraph.Permanent, thread.ReasonInvalid, "the thread %s is that of an agent, not of a team: give the team one of its own", p.Thread)
	}
	p.Kept = k
	return nil
}

// turn says what those hear who speak now, or asks who is to speak.
func (l *loop) turn(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	rules, err := l.rules.of(ctx, c.Own[argTeam])
	if err != nil {
		return workgraph.Outcome{}, err
	}
	p, err := positionOf(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	told := map[string]any{}
	var names []string
	now := time.Now().UTC()
	if q := p.Team.Choosing; q != nil {
		history, _, err := l.log(ctx, p, 0, maxHistory)
		if err != nil {
			return workgraph.Outcome{}, err
		}
		told[nodeChoose], names = map[string]any{"request": rules.Prompt(q, history), "upstream": false}, []string{nodeChoose}
	} else {
		log, left, err := l.log(ctx, p, p.Team.From(), maxInbox)
		if err != nil {
			return workgraph.Outcome{}, err
		}
		x := workgraph.NewAccount(ctx) // of all tasks together
		for i := range p.Team.Speaking {
			s := &p.Team.Speaking[i]
			m := rules.Member(s.Name)
			if m == nil {
				return workgraph.Outcome{}, badLoop("there is no member %q", s.Name)
			}
			cut := left && s.After < log[0].Seq
			inbox := rules.Inbox(p.Team, s, log, cut, now)
			task, given, err := rules.Task(x, p.Team, s, inbox)
			if err != nil {
				return workgraph.Outcome{}, failed(err)
			}
			if given {
				inbox, cut = []team.Message{{From: team.Input, Text: task, At: now}}, false
			}
			if told[s.Name], err = l.given(ctx, c, p, m, inbox, cut); err != nil {
				return workgraph.Outcome{}, err
			}
			names = append(names, speakNode(s.Name))
		}
	}
	raw, err := actor.Encode(told)
	if err != nil {
		return workgraph.Outcome{}, actor.BadArguments("%v", err)
	}
	out := workgraph.Outcome{Values: []json.RawMessage{raw}, Select: &workgraph.Select{Others: workgraph.SelectNames, Names: names}}
	out.State, err = p.state()
	return out, err
}

// What is read of the log at once, in messages and bytes: by the model that chooses, and by a member.
const maxHistory, maxInbox, maxLogBytes = 50, 1_000, 512 << 10

// log reads messages of the team after a sequence, oldest first; the newest if there are too many, and then
// left says that older ones were left out.
func (l *loop) log(ctx context.Context, p *position, after int64, most int) (out []team.Message, left bool, err error) {
	if n := p.Seq - after; n < int64(most) {
		most = max(1, int(n))
	}
	items, err := l.messages(ctx, p, p.Seq+1, most)
	if err != nil {
		return nil, false, err
	}
	for i := len(items) - 1; i >= 0; i-- {
		if items[i].Seq <= after {
			continue
		}
		var m line
		if json.Unmarshal(items[i].Body, &m) != nil {
			continue // not a message of a team
		}
		out = append(out, m.message(items[i].Seq))
	}
	if len(out) == 0 || items[len(items)-1].Seq <= after+1 {
		return out, false, nil
	}
	older, err := l.messages(ctx, p, items[len(items)-1].Seq, 1)
	if err != nil {
		return nil, false, err
	}
	return out, len(older) > 0 && older[0].Seq > after, nil
}

// messages are the newest messages in the thread of the team before a sequence, newest first.
func (l *loop) messages(ctx context.Context, p *position, before int64, most int) ([]thread.Item, error) {
	items, err := l.threads.Items(ctx, actor.NamespaceOf(ctx), p.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadMessage}, Before: before, Limit: most, MaxBytes: maxLogBytes})
	if err != nil {
		return nil, standing.Error(err)
	}
	return items, nil
}

// given are the arguments of a member that speaks.
func (l *loop) given(ctx context.Context, c *workgraph.Call, p *position, m *team.Member, inbox []team.Message, cut bool) (map[string]any, error) {
	texts := make([]string, 0, len(inbox)+1)
	for i := range inbox {
		text := inbox[i].Text
		if inbox[i].From != team.Input {
			text = inbox[i].From + ": " + text
		}
		texts = append(texts, text)
	}
	texts = fitting(texts, cut)
	joined := strings.Join(texts, "\n\n")
	switch m.Kind {
	case team.Agent:
		conv, err := l.conversation(ctx, c, p, m)
		if err != nil {
			return nil, err
		}
		if len(texts) == 0 {
			texts = []string{"Go on."}
		}
		return map[string]any{"user_input": texts, argContinue: conv}, nil
	case team.Human:
		if _, own := m.Named["prompt"]; own {
			return map[string]any{}, nil
		}
		if joined == "" {
			joined = "What do you say?"
		}
		return map[string]any{"prompt": joined}, nil
	case team.Workflow:
		named, err := l.told(ctx, c, p, m)
		if err != nil {
			return nil, err
		}
		named["task"] = joined
		if m.Keeps {
			conv, err := l.conversation(ctx, c, p, m)
			if err != nil {
				return nil, err
			}
			named["task"], named[argContinue] = texts, conv
		}
		return map[string]any{"input": map[string]any{"named": named}}, nil
	}
	return map[string]any{"messages": append([]team.Message{}, inbox...), "text": joined}, nil
}

// What is told of the messages of a team, in messages and in bytes of their texts together.
const maxSaid, maxSaidBytes = 50, 64 << 10

// saidBefore is a message of the team as a workflow is told it.
type saidBefore struct {
	From string `json:"from"`
	Text string `json:"text"`
}

// told is what a workflow is given that names inputs for it.
func (l *loop) told(ctx context.Context, c *workgraph.Call, p *position, m *team.Member) (map[string]any, error) {
	out := map[string]any{}
	for _, name := range m.Told {
		switch name {
		case team.ToldMessages:
			log, _, err := l.log(ctx, p, 0, maxSaid)
			if err != nil {
				return nil, err
			}
			out[name] = lastSaid(log)
		case team.ToldThread:
			out[name] = p.Thread
		case team.ToldUser:
			out[name] = c.UserID
		case team.ToldTask:
			out[name] = c.TaskID
		}
	}
	return out, nil
}

// lastSaid are the last messages, oldest first, as far as there is room. The newest one is cut if need be.
func lastSaid(log []team.Message) []saidBefore {
	room, from := maxSaidBytes, len(log)
	for from > 0 && room >= len(log[from-1].Text) {
		from--
		room -= len(log[from].Text)
	}
	out := []saidBefore{}
	for i := from; i < len(log); i++ {
		out = append(out, saidBefore{log[i].From, log[i].Text})
	}
	if n := len(log); n > 0 && len(out) == 0 {
		out = append(out, saidBefore{log[n-1].From, errs.Clip(log[n-1].Text, maxSaidBytes)})
	}
	return out
}

// maxTexts bounds the texts that a member is told at once. Older ones are put together.
const maxTexts = 90

// fitting are the newest texts, as far as a member is told them at once.
func fitting(texts []string, cut bool) []string {
	room, from := maxLogBytes, len(texts)
	for from > 0 && room >= len(texts[from-1]) {
		from--
		room -= len(texts[from])
	}
	out := texts[from:]
	if n := len(out) - maxTexts; n > 0 {
		out = append([]string{strings.Join(out[:n+1], "\n\n")}, out[n+1:]...)
	}
	switch {
	case from > 0:
		return append([]string{"(" + strconv.Itoa(from) + " earlier messages are left out.)"}, out...)
	case cut:
		return append([]string{"(Earlier messages are left out.)"}, out...)
	}
	return out
}

// conversation is the thread of a member. A new one has its id from now on.
func (l *loop) conversation(ctx context.Context, c *workgraph.Call, p *position, m *team.Member) (standing.Conversation, error) {
	of, err := l.threads.Thread(ctx, actor.NamespaceOf(ctx), p.Thread)
	if err != nil {
		return standing.Conversation{}, standing.Error(err)
	}
	name := m.ThreadName()
	id := p.Threads[name]
	key := ""
	if m.Memory != "" {
		if key = thread.KeyOf(c.UserID, c.ChatID, m.Memory); key != "" && id == "" {
			if id, err = l.remembered(ctx, p, name, key); err != nil {
				return standing.Conversation{}, err
			}
		}
	}
	if id != "" {
		switch _, err := l.threads.Thread(ctx, actor.NamespaceOf(ctx), id); {
		case errs.ReasonOf(err) == thread.ReasonNotFound:
			id = "" // its time was over; or nothing was said there
			delete(p.Ends, name)
		case err != nil:
			return standing.Conversation{}, standing.Error(err)
		}
	}
	if id == "" {
		id = ids.New(thread.IDPrefix)
		p.note(name, id, 0)
	}
	out := standing.Conversation{ThreadID: id, Lifetime: madeIn(of), PartOf: p.Thread}
	if key != "" {
		out.Lifetime, out.PartOf, out.Key = "CONVERSATION", "", key
	}
	if end, ok := p.Ends[name]; ok {
		out.After = &end
	}
	return out, nil
}

// remembered is the thread that has a key, noted with its end. Empty if there is none.
func (l *loop) remembered(ctx context.Context, p *position, name, key string) (string, error) {
	id, err := standing.Find(ctx, l.threads, key)
	if err != nil || id == "" {
		return "", err
	}
	t, err := l.threads.Thread(ctx, actor.NamespaceOf(ctx), id)
	if err != nil {
		return "", standing.Error(err)
	}
	p.note(name, id, t.Last)
	return id, nil
}

// note keeps which thread is that of a name, and where it ends.
func (p *position) note(name, id string, end int64) {
	if p.Threads == nil {
		p.Threads = map[string]string{}
	}
	if p.Ends == nil {
		p.Ends = map[string]int64{}
	}
	p.Threads[name], p.Ends[name] = id, end
}

// forget lets members with a memory find their threads again: other runs may have gone on with them.
func (p *position) forget(t *team.Team) {
	for i := range t.Members {
		if m := &t.Members[i]; m.Memory != "" {
			delete(p.Threads, m.ThreadName())
			delete(p.Ends, m.ThreadName())
		}
	}
}

// spoke notes where the threads end of those who spoke. What was said in a fork is gone on with there.
func (l *loop) spoke(ctx context.Context, p *position, m *team.Member, works string) error {
	name := m.ThreadName()
	id := p.Threads[name]
	if id == "" {
		return nil // it has none
	}
	if ids.Valid(thread.IDPrefix, works) {
		id = works
	}
	switch t, err := l.threads.Thread(ctx, actor.NamespaceOf(ctx), id); {
	case errs.ReasonOf(err) == thread.ReasonNotFound:
	case err != nil:
		return standing.Error(err)
	default:
		p.note(name, id, t.Last)
	}
	return nil
}

// line is a message in the form of the items of threads.
type line struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Name    string `json:"name,omitempty"`

	To      string          `json:"to,omitempty"`
	Signals []team.Call     `json:"signals,omitempty"`
	Calls   []string        `json:"calls,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	At      time.Time       `json:"at"`
}

func (m *line) message(seq int64) team.Message {
	from := m.Name
	if m.Role == "user" {
		from = team.Input
	}
	return team.Message{Seq: seq, From: from, Text: m.Content, To: m.To, Signals: m.Signals, Calls: m.Calls, Data: m.Data, At: m.At}
}

// maxMessage bounds a message that is kept, in bytes of its text.
const maxMessage = 256 << 10

// items are what a turn leaves in the thread: messages and the state. The state counts itself.
func (p *position) items(logged []team.Message, move team.Move) ([]workgraph.ThreadItem, error) {
	var out []workgraph.ThreadItem
	for i := range logged {
		m := &logged[i]
		l := line{Role: "assistant", Content: errs.Clip(m.Text, maxMessage), Name: m.From, To: m.To, Signals: m.Signals, Calls: m.Calls, Data: m.Data, At: m.At}
		if m.From == team.Input {
			l.Role, l.Name = "user", ""
		}
		raw, err := actor.Encode(l)
		if err != nil {
			return nil, badLoop("%v", err)
		}
		out = append(out, workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: raw})
	}
	p.Team.Seq++
	body, err := actor.Encode(p.Kept)
	if err != nil {
		return nil, badLoop("%v", err)
	}
	what := map[string]any{"task_status": "Ongoing", "task_status_description": fmt.Sprintf("turn %d: next is %s", p.Team.Turns+1, strings.Join(move.Speak, ", "))}
	switch {
	case move.Over != nil:
		what = map[string]any{"task_status": "Completed", "task_status_description": move.Over.Text}
	case move.Ask != nil:
		what["task_status_description"] = fmt.Sprintf("turn %d: to choose from %s", p.Team.Turns+1, strings.Join(move.Ask.Among, ", "))
	}
	brief, err := actor.Encode(what)
	if err != nil {
		return nil, badLoop("%v", err)
	}
	return append(out, workgraph.ThreadItem{Kind: workgraph.ThreadState, Brief: brief, Body: body}), nil
}
