package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// round is what the present round of the loop began with: the input, or what the agent's last state left.
func (l *loop) round(ctx context.Context, c *workgraph.Call, d *definition) (*round, error) {
	in, err := instanceOf(c)
	if err != nil {
		return nil, err
	}
	r := &round{d: d, in: in, c: c, userInput: in.UserInput, results: in.ActionResults}
	if r.at, err = positionOf(c); err != nil || r.at.Round <= 1 {
		r.number = 1
		return r, err
	}
	r.number = r.at.Round
	it, err := l.threads.Item(ctx, actor.NamespaceOf(ctx), r.at.Thread, r.at.State)
	if err != nil {
		return nil, standing.Error(err)
	}
	last := &state.Item{}
	if it.Kind != workgraph.ThreadState || json.Unmarshal(it.Body, last) != nil {
		return nil, workgraph.Errorf(workgraph.Permanent, thread.ReasonInvalid, "thread %s has no state at item %d", r.at.Thread, r.at.State)
	}
	r.last = last
	r.userInput, r.results = strings.Join(replies(last.Answer), "\n"), last.Next()
	return r, nil
}

// observe closes a round: it appends the state to the thread, and gives the result or what is told next.
func (l *loop) observe(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	d, err := l.definitions.of(c)
	if err == nil && len(d.Signals) > 0 {
		// Which calls are signals depends on their schemas.
		d, err = l.definitions.whole(ctx, c.Own["definition"])
	}
	if err != nil {
		return workgraph.Outcome{}, err
	}
	r, err := l.round(ctx, c, d)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	said, err := l.read(ctx, c, d, r)
	if err != nil { // act has refused it
		said = &response.Response{Status: response.Ongoing}
	}
	item := r.item(said)
	end, err := r.outcome(said, item)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if c.Stopping && !end.over && end.instead == nil {
		end = ending{over: true, result: r.soFar(item)}
	}
	r.compare(item)
	items, err := r.items(item, said)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	a, at, err := standing.Append(ctx, l.threads, c, r.at.Place, items)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	pos := r.moved(a, item)
	pos.Runs, pos.Called = at.Runs, r.called(said, item)
	var out workgraph.Outcome
	switch {
	case end.instead != nil:
		out, err = leaving(*end.instead)
	case end.over:
		out, err = r.final(&end, said, &pos)
	case end.handOver != "":
		out, err = d.handOver(&end, &a, pos)
	default:
		out, err = r.goOn(ctx, l, item, a, &pos)
	}
	if err != nil {
		return workgraph.Outcome{}, err
	}
	a.Learnings = r.learnings(said)
	out.Threads = []workgraph.ThreadAppend{a}
	out.State, err = pos.state()
	return out, err
}

// learnings are those of a round as they are kept beyond the thread.
func (r *round) learnings(said *response.Response) (out []workgraph.Learning) {
	for _, learned := range said.Learnings {
		out = append(out, workgraph.Learning{Agent: cmp.Or(r.in.Name, actorAgent), User: r.c.UserID, Name: learned.ID, Content: learned.Content})
	}
	return out
}

// item is what is kept of the round whatever comes of it.
func (r *round) item(said *response.Response) *state.Item {
	from, _ := standing.Source(r.c, nodeReason)
	item := &state.Item{Round: r.number, RawResponse: actor.Result(from.Values), ReasonerInput: actor.AsText(r.c.Named["request"]), Brief: stateOf(said, r.userInput),
		Response: state.Response{InstantResponse: said.InstantResponse, NextActions: said.Groups, Graph: r.d.shown(said), InstantLearnings: said.Learnings},
		Sent:     r.at.Sent}
	if r.d.Form == formTools && r.number == 1 {
		item.ReasonerInput = r.about()
	}
	return item
}

// goOn is the outcome that begins the next round, after the append of this one. It notes in the position what
// the reasoner is told.
func (r *round) goOn(ctx context.Context, l *loop, item *state.Item, a workgraph.ThreadAppend, pos *position) (workgraph.Outcome, error) {
	next := &round{d: r.d, in: r.in, c: r.c, number: pos.Round, userInput: strings.Join(replies(item.Answer), "\n"), results: item.Next(), at: *pos, from: standing.Before(a)}
	out, err := next.told(ctx, l, a.Items)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	next.next(&out, nodeSummary)
	pos.Sent, pos.Asked = next.sent, next.asked
	switch {
	case r.d.MaxNoProgress > 0 && item.Repeats >= r.d.MaxNoProgress:
		out.Pause = ReasonNoProgress
	case r.d.StepByStep:
		out.Pause = ReasonStep
	}
	return out, nil
}

// moved is where the agent stands after the append of a round.
func (r *round) moved(a workgraph.ThreadAppend, item *state.Item) position {
	p := r.at
	p.Thread, p.Seq, p.Round, p.Sent = a.Thread, a.After+int64(len(a.Items)), r.number+1, nil
	p.State = p.Seq // the state is the last item
	if item.ReasonerInput != "" && r.number == 1 && r.d.Form == formTools {
		p.About = p.Seq
	}
	if n := int64(len(replies(item.Answer))); n > 0 && !r.answeredCall {
		for i := range a.Items {
			if a.Items[i].Kind == workgraph.ThreadMessage { // the answers are the last ones
				p.Input = &state.Span{First: a.After + int64(i) + 2 - n, Last: a.After + int64(i) + 1}
			}
		}
	}
	return p
}

// stateOf is the part of a round's state that prompts show.
func stateOf(said *response.Response, userInput string) state.Brief {
	return state.Brief{NewTask: said.NewTask, Status: said.Status, Description: said.Description, DescriptionExtended: said.DescriptionExtended,
		UserInput: userInput, InstantResponse: said.InstantResponse}
}

// ending is how a round goes on. With over the task has come to its end with the result, with handOver
// another agent goes on with the arguments; else there is a next round.
type ending struct {
	over      bool
	result    json.RawMessage
	handOver  string
	arguments map[string]json.RawMessage
	// instead is what the user asks for in place of an answer.
	instead *string
}

// outcome fills in what became of the round, and says how it goes on.
func (r *round) outcome(said *response.Response, item *state.Item) (ending, error) {
	if u, ok := standing.Source(r.c, nodeDispatch); ok && u.Outcome != workgraph.VisitCompleted {
		r.refuse(item, "the response could not be read: "+because(u.Error))
		return ending{}, nil
	}
	act, ok := standing.Source(r.c, nodeAct)
	switch {
	case !ok:
	case act.Outcome != workgraph.VisitCompleted:
		r.refuse(item, "this cannot be done: "+because(act.Error))
		return ending{}, nil
	case said.Status == response.Pending:
		item.Answer, item.Given = actor.Result(act.Values), r.results.WithoutRefusals()
		if text, ok := r.insteadOfAnswer(); ok {
			// Texts always marshal.
			item.Answer, _ = actor.Encode("The user did not answer, and asked for something else: " + text)
			return ending{instead: &text}, nil
		}
		if len(replies(item.Answer)) == 0 {
			item.Answer = json.RawMessage(`"(no answer)"`)
		}
		return ending{}, nil
	default:
		var v verdict
		if err := json.Unmarshal(actor.Result(act.Values), &v); err != nil {
			return ending{}, badLoop("the verdict on round %d: %v", r.number, err)
		}
		if end, decided := r.decided(&v, said, item); decided {
			return end, nil
		}
	}
	if err := r.acted(said, item); err != nil || len(said.Signals) == 0 {
		return ending{}, err
	}
	return r.signal(said, item), nil
}

// decided is how the round goes on if nothing was done in it. decided is false if there was something to do.
func (r *round) decided(v *verdict, said *response.Response, item *state.Item) (end ending, decided bool) {
	switch {
	case v.Refused != "":
		r.refuse(item, v.Refused)
	case v.Done && len(said.Signals) > 0:
		end = r.signal(said, item)
	case v.Done && said.Status == response.Completed:
		end = ending{over: true, result: r.result(v.Result)}
	case v.HandOver != "":
		gone := state.Result{Action: v.HandOver, OK: json.RawMessage(`"It goes on with the conversation."`), Call: said.FirstCall()}
		item.ActionResults = state.Results{gone}
		end = ending{handOver: v.HandOver, arguments: v.Arguments}
	case v.Done:
		item.Given = r.results.WithoutRefusals() // the task goes on without an action
	default:
		return end, false
	}
	return end, true
}

// acted fills in what became of the actions: of the one that the round had, or of all by groups. What
// completed counts before what failed.
func (r *round) acted(said *response.Response, item *state.Item) error {
	var last workgraph.Upstream
	for _, u := range r.c.Upstream {
		if _, one := actionOf(u.Node); !one && !standing.IsPart(u.Node, nodeGroups) {
			continue
		}
		if last = u; u.Outcome == workgraph.VisitCompleted {
			break
		}
	}
	name, one := actionOf(last.Node)
	switch {
	case last.Node == "":
	case one:
		result := found(last, name)
		result.Call = said.FirstCall()
		item.ActionResults = state.Results{result}
	case last.Outcome != workgraph.VisitCompleted:
		item.ActionResults = state.Results{{Error: failureOf(last.Error)}}
	default:
		if err := json.Unmarshal(actor.Result(last.Values), &item.ActionResults); err != nil {
			return badLoop("the results of round %d: %v", r.number, err)
		}
	}
	if len(item.ActionResults) == 0 {
		r.refuse(item, "no action gave a result")
	}
	return nil
}

// handOver is the outcome of a round after which another agent goes on. From the append on it takes the turns
// of the thread, if it has a name and works there.
func (d *definition) handOver(end *ending, a *workgraph.ThreadAppend, at position) (workgraph.Outcome, error) {
	to := d.Actions[end.handOver]
	named := end.arguments
	if to.shares() {
		var err error
		if named, err = sharing(named, at.Place); err != nil {
			return workgraph.Outcome{}, err
		}
		if to.Actor != actorAgent {
			a.Agent = to.Actor
		}
	}
	out, err := value(verdict{Arguments: named})
	out.Select = &workgraph.Select{Others: workgraph.SelectNames, Names: []string{doNode(end.handOver)}}
	return out, err
}

// result is the result of the agent: what the response states, or the results of the last actions.
func (r *round) result(stated json.RawMessage) json.RawMessage {
	if len(stated) > 0 {
		return stated
	}
	if raw, ok := r.results.Plain(); ok {
		return raw
	}
	return json.RawMessage("null")
}

// soFar is the result of an agent that is stopped: the results of its last actions.
func (r *round) soFar(item *state.Item) json.RawMessage {
	if len(item.ActionResults) > 0 && item.Refused == "" {
		if raw, ok := item.ActionResults.Plain(); ok {
			return raw
		}
	}
	done := *r
	done.results = r.results.WithoutRefusals()
	return done.result(nil)
}

// refuse records why nothing was done: the task goes on. The results of the round before are told again.
func (r *round) refuse(item *state.Item, why string) {
	item.Status, item.Refused, item.Given = response.Ongoing, errs.Clip(why, maxTold+maxPlanTold), r.results.WithoutRefusals()
	item.ActionResults = state.Results{state.Refusal(item.Refused)}
}

func because(e *workgraph.Error) string {
	if e == nil {
		return workgraph.ReasonActorError
	}
	return e.Error()
}

// maxAppend bounds what a round leaves in the thread, in bytes. An outcome may have executor.max_payload.
const maxAppend = 3 << 20

// items are what the round leaves in the thread: messages, learnings and, at last, the state, which has the
// room that the others leave.
func (r *round) items(item *state.Item, said *response.Response) ([]workgraph.ThreadItem, error) {
	out, err := r.messagesOf(item, said)
	if err != nil {
		return nil, err
	}
	for _, learned := range said.Learnings {
		raw, err := actor.Encode(learned)
		if err != nil {
			return nil, badLoop("a learning: %v", err)
		}
		out = append(out, workgraph.ThreadItem{Kind: workgraph.ThreadLearning, Body: raw})
	}
	left := maxAppend
	for i := range out {
		left -= len(out[i].Body)
	}
	st, err := stateItem(item, min(maxState, left))
	return append(out, st), err
}

// maxState bounds the state of a round, in bytes. A longer one is shortened.
const maxState = thread.MaxBody - 64<<10

// stateItem is a state that has at most so many bytes.
func stateItem(item *state.Item, most int) (workgraph.ThreadItem, error) {
	body, err := actor.Encode(item)
	if err == nil && len(body) > most {
		item = shortened(item, most)
		body, err = actor.Encode(item)
	}
	if err != nil {
		return workgraph.ThreadItem{}, badLoop("the state: %v", err)
	}
	short, err := actor.Encode(brief(item.Brief))
	if err != nil {
		return workgraph.ThreadItem{}, badLoop("the state: %v", err)
	}
	return workgraph.ThreadItem{Kind: workgraph.ThreadState, Brief: short, Body: body}, nil
}

// brief is the part of a state that prompts show, in the length in which it is kept.
func brief(b state.Brief) state.Brief {
	for _, s := range []*string{&b.UserInput, &b.InstantResponse, &b.Description, &b.DescriptionExtended} {
		*s = state.Clip(*s, thread.MaxBrief/8)
	}
	return b
}

// shortened is a state of at most so many bytes. Each part has a small share, and the results have the rest.
func shortened(item *state.Item, most int) *state.Item {
	short := *item
	part := max(1<<10, most/32)
	for _, s := range []*string{&short.ReasonerInput, &short.UserInput, &short.InstantResponse, &short.Description, &short.DescriptionExtended,
		&short.Refused, &short.Response.InstantResponse} {
		*s = state.Clip(*s, part)
	}
	for _, raw := range []*json.RawMessage{&short.RawResponse, &short.Answer, &short.Response.Graph} {
		if len(*raw) > part {
			*raw, _ = actor.Encode(state.Clip(string(*raw), part)) // texts always marshal
		}
	}
	short.Response.NextActions, short.Response.InstantLearnings = fewer(item.Response.NextActions, part), nil
	for left, all := part, item.Response.InstantLearnings; len(all) > 0; all = all[1:] {
		if left -= size(all[0]); left < 0 {
			break
		}
		short.Response.InstantLearnings = append(short.Response.InstantLearnings, all[0])
	}
	bare := short
	bare.ActionResults, bare.Given = short.ActionResults.Cut(0), short.Given.Cut(0)
	room, all, given := max(0, most-size(&bare)), short.ActionResults.Bytes(), short.Given.Bytes()
	short.ActionResults = short.ActionResults.Cut(room * all / max(1, all+given))
	short.Given = short.Given.Cut(room * given / max(1, all+given))
	return &short
}

// fewer are the first of the actions, without their arguments, as far as they are within so many bytes.
func fewer(groups [][]response.Action, left int) (out [][]response.Action) {
	most := left / 8 // of a name
	for _, group := range groups {
		var names []response.Action
		for _, a := range group {
			a.Arguments, a.Reasoning, a.Memory = nil, "", ""
			a.Type, a.Call = state.Clip(a.Type, most), state.Clip(a.Call, most)
			if left -= size(a); left < 0 {
				return out
			}
			names = append(names, a)
		}
		out = append(out, names)
	}
	return out
}

// size is how many bytes a value has in JSON.
func size(v any) int {
	raw, err := actor.Encode(v)
	if err != nil {
		return maxState // cannot happen: the parts of a state are texts and JSON
	}
	return len(raw)
}

// actionOf is the action of a node of the loop, or of a node that such a node has expanded to.
func actionOf(node string) (string, bool) {
	name, ok := strings.CutPrefix(node, doNode(""))
	name, _, _ = strings.Cut(name, "#")
	return name, ok
}

// found is what became of one action.
func found(u workgraph.Upstream, name string) state.Result {
	r := state.Result{Action: name}
	switch u.Outcome {
	case workgraph.VisitCompleted:
		r.OK = actor.Result(u.Values)
	case workgraph.VisitAbstained:
		r.Abstained = true
	default:
		r.Error = failureOf(u.Error)
	}
	return r
}

// maxFailure bounds what a reasoner hears of one failure.
const maxFailure = 2000

func failureOf(e *workgraph.Error) *state.Failure {
	if e == nil {
		return &state.Failure{Type: string(workgraph.Permanent), Reason: workgraph.ReasonActorError}
	}
	return &state.Failure{Type: string(e.Type), Reason: e.Reason, Message: errs.Clip(e.Message, maxFailure)}
}
