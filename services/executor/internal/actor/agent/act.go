package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// verdict is the value of act. Exactly one of Refused, Arguments, Groups, Graph and Done is set; with
// HandOver the arguments are those of the agent that goes on.
type verdict struct {
	Refused string `json:"refused,omitempty"`
	// Arguments are those of the one action of the round.
	Arguments map[string]json.RawMessage `json:"arguments,omitempty"`
	HandOver  string                     `json:"hand_over,omitempty"`
	Groups    [][]doing                  `json:"groups,omitempty"`
	Graph     *workgraph.Graph           `json:"graph,omitempty"`
	// Problems are the nodes of Graph with the names under which their results are told.
	Problems []actionNode `json:"problems,omitempty"`
	// Previous are the results that the round began with, as later actions see them.
	Previous json.RawMessage `json:"previous,omitempty"`
	// State is the state of the round as branches inherit it.
	State  *state.Brief    `json:"state,omitempty"`
	Done   bool            `json:"done,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// doing is an action with its final arguments.
type doing struct {
	Action    string                     `json:"action"`
	Arguments map[string]json.RawMessage `json:"arguments,omitempty"`
	Call      string                     `json:"call,omitempty"`
}

// actionNode is the node of an action of a round, for the node that lists the results.
type actionNode struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	Call   string `json:"call,omitempty"`
	// Of is the action with whose result an agent goes on, if the node is such an agent.
	Of string `json:"of,omitempty"`
}

// Reasons for which an agent's run pauses. A resume goes on beyond the limit.
const (
	// ReasonBranchDepth is the reason when branches would lie deeper in branches than max_branch_depth.
	ReasonBranchDepth = "AGENT_BRANCH_DEPTH"
	// ReasonBranches is the reason when a round would have more than max_branches branches.
	ReasonBranches = "AGENT_BRANCHES"
	// ReasonNoProgress is the reason when max_no_progress rounds did the same with the same result.
	ReasonNoProgress = "AGENT_NO_PROGRESS"
	// ReasonStep is the reason after each round of an agent that goes step by step.
	ReasonStep = "AGENT_STEP"
)

// read is the response of the round: that of the reasoner, or what the dispatcher made of it.
func (l *loop) read(ctx context.Context, c *workgraph.Call, d *definition, r *round) (*response.Response, error) {
	from, ok := standing.Source(c, nodeDispatch)
	if !ok || from.Outcome != workgraph.VisitCompleted {
		from, _ = standing.Source(c, nodeReason)
	}
	raw := actor.Result(from.Values)
	if d.Dispatch == dispatchPlan {
		begins := c.Visit == 1 && r.in.Depth == 0 // a branch continues what was begun
		refused := r.last != nil && r.last.Refused != ""
		_, done := r.results.Plain()
		talks := r.at.Input != nil && r.at.Input.First > 1 // about what was done, maybe
		return l.plans.read(ctx, d, c, raw, begins || refused, !talks && (begins || refused && !done))
	}
	if v, ok := response.Bare(raw); ok && len(d.ResultSchema) > 0 {
		return &response.Response{InstantResponse: actor.AsText(v), Result: v, Status: response.Completed}, nil
	}
	if d.Form != formTools {
		return response.Read(raw)
	}
	resp, err := response.ReadCalls(raw, d.Reasoner != actorLLM)
	if err == nil {
		resp.TakeTaskCalls(d.TaskTools)
		d.signals(ctx, resp)
	}
	return resp, err
}

// act decides where the loop goes: to the node of an action, to groups, to a person, or to the end of the
// round. A response is carried out as a whole or not at all.
func (l *loop) act(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	d, err := l.definitions.whole(ctx, c.Own["definition"])
	if err != nil {
		return workgraph.Outcome{}, err
	}
	r, err := l.round(ctx, c, d)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	said, err := l.read(ctx, c, d, r)
	if err != nil {
		return toObserve(verdict{Refused: errs.Clip(err.Error(), maxTold+maxPlanTold)})
	}
	if c.Stopping && (said.Status == response.Pending || said.Acts() || len(said.Signals) > 0) {
		// Not a verdict, which could be taken for the answer of a person.
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, workgraph.ReasonStopped, "the agent was stopped before it was done")
	}
	say, err := l.say(ctx, c, said, r)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	out, err := d.decide(ctx, said, r)
	if why, ok := errors.AsType[refusal](err); ok {
		return toObserve(verdict{Refused: errs.Clip(string(why), maxTold)})
	}
	if err != nil || say == nil {
		return out, err
	}
	if say.Create != nil || len(say.Items) > 0 {
		out.Threads = []workgraph.ThreadAppend{*say}
	}
	moved, err := r.at.state()
	if out.State == nil {
		out.State = moved
	}
	maps.Copy(out.State, moved)
	return out, err
}

// refusal is the error of a response that is not carried out. It is for the reasoner.
type refusal string

func (r refusal) Error() string { return string(r) }

// decide is what comes of a response. The error may be a refusal.
func (d *definition) decide(ctx context.Context, said *response.Response, r *round) (workgraph.Outcome, error) {
	switch {
	case said.Status == response.Pending:
		return ask(said)
	case !said.Acts():
		return d.end(ctx, said, r)
	}
	v := verdict{Previous: previous(r.results)}
	if said.Graph != nil {
		return d.actGraph(ctx, said, v)
	}
	return d.actGroups(ctx, said, v, r)
}

// shares reports whether an action of the response works on the thread of the agent.
func (d *definition) shares(said *response.Response) bool {
	for _, group := range said.Groups {
		for i := range group {
			if a := d.Actions[group[i].Type]; a != nil && a.shares() {
				return true
			}
		}
	}
	return false
}

// say is what a response adds to the thread before anything of it is done, so that branches, agents on the
// same thread and whoever reads it know what was said. It moves the agent to the end of that, and to where
// agents may share its thread. In the tools form a message is appended with the answers to its calls, at the
// end of the round.
func (l *loop) say(ctx context.Context, c *workgraph.Call, said *response.Response, r *round) (*workgraph.ThreadAppend, error) {
	var items []workgraph.ThreadItem
	if r.d.Form != formTools && said.InstantResponse != "" {
		item, err := messageItem(message{Role: "assistant", Content: said.InstantResponse}, maxMessage)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if len(items) == 0 && (r.at.Of(c.RunID) || !r.d.shares(said)) {
		return nil, nil
	}
	a, at, err := standing.Append(ctx, l.threads, c, r.at.Place, items)
	if err != nil {
		return nil, err
	}
	r.at.Place = at
	return &a, nil
}

// maxTold bounds what a reasoner is told of one fault.
const maxTold = 4000

func to(v verdict, node string) (workgraph.Outcome, error) {
	out, err := value(v)
	out.Select = &workgraph.Select{Others: workgraph.SelectNames, Names: []string{node}}
	return out, err
}

func toObserve(v verdict) (workgraph.Outcome, error) { return to(v, nodeObserve) }

// ask waits for a person's answer.
func ask(said *response.Response) (workgraph.Outcome, error) {
	raw, err := actor.Encode(said.InstantResponse)
	if err != nil {
		return workgraph.Outcome{}, actor.BadArguments("%v", err)
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: raw}},
		Select: &workgraph.Select{Others: workgraph.SelectNames, Names: []string{nodeObserve}}}, nil
}

// end checks the result of a task that is completed.
func (d *definition) end(ctx context.Context, said *response.Response, r *round) (workgraph.Outcome, error) {
	v := verdict{Done: true}
	if said.Status != response.Completed {
		return toObserve(v)
	}
	raw := said.Result
	if len(raw) == 0 && said.InstantResponse != "" {
		var err error
		if raw, err = actor.Encode(said.InstantResponse); err != nil {
			return workgraph.Outcome{}, actor.BadArguments("%v", err)
		}
	}
	if len(raw) == 0 && len(d.ResultSchema) == 0 {
		if r.results.WasCut() {
			return workgraph.Outcome{}, refusal(state.ReasonCut + ": the results of the last actions are too large to stand for the result of the task: write it as the InstantResponse")
		}
		return toObserve(v) // the results of the last actions stand for it
	}
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	var err error
	if v.Result, err = d.checkResult(ctx, raw); err != nil {
		return workgraph.Outcome{}, refusal(err.Error())
	}
	return toObserve(v)
}

// previous is the list with the results that a round began with, as one element, or an empty list.
func previous(results state.Results) json.RawMessage {
	if raw, ok := results.Plain(); ok {
		return actor.List([]json.RawMessage{raw})
	}
	return json.RawMessage("[]")
}

// actGroups checks every action, and goes to the node of a single one or to groups.
func (d *definition) actGroups(ctx context.Context, said *response.Response, v verdict, r *round) (workgraph.Outcome, error) {
	var f faults
	n := 0
	for _, group := range said.Groups {
		n += len(group)
	}
	if n > d.MaxActions {
		return workgraph.Outcome{}, refusal(fmt.Sprintf("there are %d actions, at most %d are done in one round: begin with the first ones", n, d.MaxActions))
	}
	branches := 0
	for i, group := range said.Groups {
		var layer []doing
		for k := range group {
			w := &group[k]
			place := fmt.Sprintf("actions[%d][%d]", i, k)
			a, ok := d.Actions[w.Type]
			if !ok {
				f.add("%s: %s", place, d.unknown(w.Type))
				continue
			}
			if a.fault != nil {
				return workgraph.Outcome{}, actor.BadArguments("actions.%s: %v", w.Type, a.fault)
			}
			arguments := w.Arguments
			if w.Texts() {
				arguments = a.typed(arguments)
			}
			named := a.node(ctx, place, w.Type, arguments, &f).Named
			if a.HandOver && n+len(said.Signals) > 1 {
				f.add("%s: %s hands over to another agent, which ends the round: make it the only action", place, w.Type)
			}
			if a.shares() && !a.HandOver {
				var err error
				if named, err = sharing(named, r.at.Place); err != nil {
					return workgraph.Outcome{}, err
				}
			}
			layer = append(layer, doing{w.Type, named, w.Call})
		}
		if len(layer) > 1 && d.branches() {
			branches += len(layer)
		}
		d.apart(i, group, &f)
		v.Groups = append(v.Groups, layer)
	}
	if len(f) > 0 {
		return workgraph.Outcome{}, refusal(f.String())
	}
	if branches > 0 {
		now := brief(stateOf(said, r.userInput))
		v.State = &now
	}
	if n == 1 {
		if one := v.Groups[0][0]; d.Actions[one.Action].HandOver {
			return one.handOver(v.Previous)
		} else if exact(one.Arguments, v.Previous) {
			return one.alone(v.Previous, d.Form == formTools)
		}
	}
	out, err := to(v, nodeGroups)
	switch {
	case branches > d.MaxBranches:
		out.Pause = ReasonBranches
	case branches > 0 && r.in.Depth >= d.MaxBranchDepth:
		out.Pause = ReasonBranchDepth
	}
	return out, err
}

// apart refuses agents of one group that would work on the agent's thread at the same time, or beside
// branches, which do not see each other.
func (d *definition) apart(i int, group []response.Action, f *faults) {
	sharing := 0
	for k := range group {
		if a := d.Actions[group[k].Type]; a != nil && a.shares() && !a.HandOver {
			sharing++
			if sharing > 1 || len(group) > 1 && d.branches() {
				f.add("actions[%d][%d]: %s works on your own thread and cannot be done at the same time as others: give it a group of its own", i, k, group[k].Type)
			}
		}
	}
}

// branches reports whether the actions of a parallel group are followed by agents.
func (d *definition) branches() bool { return d.Branch && d.Form != formTools }

// alone goes to the action's own node. With calls the run's state says by which id the model asked for it.
func (w *doing) alone(previous json.RawMessage, calls bool) (workgraph.Outcome, error) {
	named := map[string]json.RawMessage{argPrevious: previous}
	for k, v := range w.Arguments {
		named[k] = v
	}
	out, err := to(verdict{Arguments: named}, doNode(w.Action))
	if err != nil || !calls {
		return out, err
	}
	ids := map[string]string{}
	if w.Call != "" {
		ids[doNode(w.Action)] = callID(w.Call)
	}
	raw, err := actor.Encode(ids)
	if err != nil {
		return out, actor.BadArguments("%v", err)
	}
	out.State = map[string]json.RawMessage{workgraph.StateToolCalls: raw}
	return out, nil
}

// maxCallID bounds an id of a model's call where traces show it, in bytes.
const maxCallID = 200

func callID(id string) string { return errs.Clip(id, maxCallID) }

// handOver ends the round with another agent in the place of this one.
func (w *doing) handOver(previous json.RawMessage) (workgraph.Outcome, error) {
	if !exact(w.Arguments, previous) {
		return workgraph.Outcome{}, refusal(fmt.Sprintf("the arguments of %s have numbers of more digits than can be handed over: write them as texts", w.Action))
	}
	named := map[string]json.RawMessage{argPrevious: previous}
	for k, v := range w.Arguments {
		named[k] = v
	}
	return toObserve(verdict{HandOver: w.Action, Arguments: named})
}

// sharing are the arguments of an agent that works on the thread of its caller.
func sharing(named map[string]json.RawMessage, at standing.Place) (map[string]json.RawMessage, error) {
	raw, err := actor.Encode(at)
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	out := map[string]json.RawMessage{"shared_thread": raw}
	for k, v := range named {
		out[k] = v
	}
	return out, nil
}

// exact reports whether expressions hand the values on unchanged: they know integers of 64 bits and doubles.
// Other numbers are arguments of a node of their own.
func exact(named map[string]json.RawMessage, more json.RawMessage) bool {
	for _, v := range named {
		if !exactNumbers(v) {
			return false
		}
	}
	return exactNumbers(more)
}

func exactNumbers(raw json.RawMessage) bool {
	for i := 0; i < len(raw); i++ {
		switch ch := raw[i]; {
		case ch == '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case ch == '-' || ch >= '0' && ch <= '9':
			from := i
			for i+1 < len(raw) && strings.IndexByte("+-.eE0123456789", raw[i+1]) >= 0 {
				i++
			}
			number := string(raw[from : i+1])
			if _, err := strconv.ParseInt(number, 10, 64); err == nil {
				continue
			}
			v, err := strconv.ParseFloat(number, 64)
			if err != nil || strconv.FormatFloat(v, 'f', -1, 64) != number {
				return false
			}
		}
	}
	return true
}

// unknown says that there is no such action, and which there are.
func (p *policy) unknown(name string) string {
	names := sorted(p.Actions)
	if p.Signals[name] != nil {
		return fmt.Sprintf("%s is no action but a signal: call it as a tool", name)
	}
	name = errs.Clip(name, 80)
	for _, n := range names {
		if _, ok := near.Within(strings.ToLower(name), strings.ToLower(n), len(n)/4); ok {
			return fmt.Sprintf("there is no action %q, did you mean %q?", name, n)
		}
	}
	return fmt.Sprintf("there is no action %q, use one of %s", name, strings.Join(names, ", "))
}
