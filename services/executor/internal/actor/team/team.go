// Package team is the actor that lets the members of a team speak in turn: agents, people, workflows
// and other actors. It owns the loop, and what a turn leaves in the thread of the team. Who speaks
// next, who hears what and when it is over is decided by package workflow/team, which knows no
// executor.
package team

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The actors. Those with loopPrefix are the loop's own.
const (
	actorTeam    = actor.TeamGraph
	loopPrefix   = "team/"
	actorBegin   = loopPrefix + "begin"
	actorTurn    = loopPrefix + "turn"
	actorHear    = loopPrefix + "hear"
	actorPart    = loopPrefix + "part"
	actorSpawn   = "spawn"
	actorAgent   = "agent"
	argTeam      = "team"
	argContinue  = "conversation"
	argOwnThread = standing.ArgOwnThread
)

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "team": {"type": "object", "description": "Who belongs to the team, who speaks after whom, who hears whom, and when it is over. Read from the node's own arguments only. The language of workflows makes it."},
    "task": {"description": "What the team is told: a text, or a list of texts."},
    "input": {"type": "object", "description": "The inputs of a workflow, which may hold the task as task, user_input or messages, and thread_id."},
    "user_input": {"description": "The same as task."},
    "messages": {"description": "The same as task."},
    "thread_id": {"type": "string", "description": "The thread of the team; when absent that of the run, or a new one, which is kept for an hour after its last use."},
    "own_thread": {"type": "boolean", "description": "The team takes a thread of its own and not that of the run; in the conversation of a run it is the same each time. Read from the node's own arguments only."},
    "conversation": {
      "type": "object", "additionalProperties": false,
      "description": "The thread of the team, which is made if it is not there.",
      ` + standing.ConversationSchema + `
    }
  }
}`

// Specs describes the actor and the actors of its loop.
func Specs(threads thread.Reader) []actor.Spec {
	l := &loop{threads: threads, rules: newRules(maxRules)}
	part := func(name, description string, f workgraph.ActorFunc) actor.Spec {
		return actor.Spec{Name: name, Version: "1", Effect: workgraph.Idempotent, SeesPlace: true, Computes: true, Internal: true, MakesInternal: true, Actor: f,
			Schema:      `{"type": "object", "additionalProperties": false, "properties": {"team": {"type": "object"}}}`,
			Description: description + " The team actor uses it."}
	}
	return []actor.Spec{
		{Name: actorTeam, Version: "1", Effect: workgraph.Idempotent, SeesPlace: true, Computes: true, Schema: schema, Examine: examine, Inner: inner, MakesInternal: true, Uncached: uncached, Actor: workgraph.ActorFunc(l.call),
			Description: "Lets the members of a team speak in turn until a condition ends it: group chats, graphs of agents, and agents that are called by messages."},
		part(actorBegin, "Begins the conversation of a team on its thread.", l.begin),
		part(actorTurn, "Says what each of those hears who speak now.", l.turn),
		{Name: actorPart, Version: "1", Effect: workgraph.Idempotent, Internal: true, NamedOnly: true, Inner: innerPart, Actor: workgraph.ActorFunc(runPart), Description: "Runs a workflow that is a member of a team. The team actor uses it.",
			Schema: `{"type": "object", "additionalProperties": false, "properties": {"graph": {"type": "object"}, "input": {"type": "object"}, "as_result": {"type": "boolean"}}}`},
		part(actorHear, "Ends a turn of a team: what was said is appended to its thread, and the next speakers are found.", l.hear),
	}
}

// loop has what its actors need.
type loop struct {
	threads thread.Reader
	rules   *rules
}

// maxRules bounds the memory of compiled teams, in bytes.
const maxRules = 64 << 20

// rules keeps compiled teams by the hashes of their texts. It is safe for concurrent use.
type rules struct {
	mu   sync.Mutex
	seed maphash.Seed
	kept *lru.Cache[uint64, compiled]
}

// compiled are the rules of a text: another text may have the same hash.
type compiled struct {
	text  json.RawMessage
	rules *team.Rules
}

func newRules(most int64) *rules {
	return &rules{seed: maphash.MakeSeed(), kept: lru.New[uint64, compiled](most)}
}

// of reads and compiles the team of a node's own arguments.
func (k *rules) of(ctx context.Context, raw json.RawMessage) (*team.Rules, error) {
	key := maphash.Bytes(k.seed, raw)
	k.mu.Lock()
	had, ok := k.kept.Get(key)
	k.mu.Unlock()
	if ok && bytes.Equal(had.text, raw) {
		return had.rules, nil
	}
	t, err := read(raw)
	if err != nil {
		return nil, err
	}
	r, faults := team.Compile(ctx, t)
	if r == nil {
		return nil, actor.BadArguments("team: %v", firstFault(faults))
	}
	k.mu.Lock()
	k.kept.Put(key, compiled{raw, r}, r.Weight()+int64(len(raw)))
	k.mu.Unlock()
	return r, nil
}

// read reads a team. Unknown fields are refused.
func read(raw json.RawMessage) (*team.Team, error) {
	if len(raw) == 0 {
		return nil, actor.BadArguments("team is missing: state it in the node's own arguments")
	}
	t := &team.Team{}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(t); err != nil {
		return nil, actor.BadArguments("team: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return t, nil
}

func firstFault(faults []team.Fault) error {
	for _, f := range faults {
		if !f.Warning {
			return f
		}
	}
	return nil
}

// examine returns the faults of a team.
func examine(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	t, err := read(n.Named[argTeam])
	if err != nil {
		return actor.Faulty(argTeam, err)
	}
	r, faults := team.Compile(ctx, t)
	if ctx.Err() != nil {
		return nil
	}
	if r != nil {
		_, err := graph(t, n.Named[argTeam])
		return actor.Faulty(argTeam, err)
	}
	var out []workgraph.Argument
	for _, f := range faults {
		if !f.Warning {
			out = append(out, workgraph.Argument{Arg: argTeam, Fault: f.Error(), Hint: f.Hint})
		}
	}
	return out
}

// inner are the members, and what chooses among them.
func inner(n *workgraph.Node) []workgraph.InnerNode {
	t, err := read(n.Named[argTeam])
	if err != nil {
		return nil // examine has said so
	}
	add := func(place, name string, named map[string]json.RawMessage) workgraph.InnerNode {
		return workgraph.InnerNode{Node: &workgraph.Node{Actor: name, Named: named}, Place: place, ActorPlace: place + ".actor"}
	}
	var out []workgraph.InnerNode
	for i := range t.Members {
		m := &t.Members[i]
		out = append(out, add(fmt.Sprintf("named.team.members[%d]", i), m.Actor, m.Named))
	}
	if t.Choose != nil {
		out = append(out, add("named.team.choose", t.Choose.Actor, t.Choose.Named))
	}
	return out
}

// innerPart are the nodes of the workflow that a member is.
func innerPart(n *workgraph.Node) []workgraph.InnerNode {
	g, err := graphpb.ReadModel(n.Named["graph"])
	if err != nil {
		return nil // it is no graph: the call says so
	}
	return workgraph.InnerNodes("named.graph", g)
}

// uncached is why outcomes of teams are not kept for equal calls.
func uncached(*workgraph.Node) string {
	return "a team goes on with its thread: cache the members that are workflows"
}

// arguments are those of a call.
type arguments struct {
	Task      json.RawMessage `json:"task"`
	UserInput json.RawMessage `json:"user_input"`
	Messages  json.RawMessage `json:"messages"`
	ThreadID  string          `json:"thread_id"`
	Input     json.RawMessage `json:"input"`

	Conversation *standing.Conversation `json:"conversation"`
}

// instance is what one call is about: the input of the loop.
type instance struct {
	Thread string `json:"thread"`
	// Make is the lifetime with which the thread is made if it is not there. Empty makes none. PartOf is
	// the thread of which it is a part then.
	Make   string `json:"make,omitempty"`
	PartOf string `json:"part_of,omitempty"`
	// Of is the thread of the run if the team works on a part of it, which has the Key.
	Of  string `json:"of,omitempty"`
	Key string `json:"key,omitempty"`
	// After is the last item of the thread that the caller knows.
	After *int64 `json:"after,omitempty"`
	Told  []told `json:"told,omitempty"`
	// Workflow is the name of the graph that calls the team.
	Workflow string `json:"workflow,omitempty"`
}

// told is a message to a team.
type told struct {
	Text string `json:"text"`
	// To is who is to go on.
	To string `json:"to,omitempty"`
}

// maxTold bounds what a team is told, in texts and in bytes.
const maxTold, maxToldBytes = 100, 1 << 20

// call starts the run of the loop and waits for it.
func (l *loop) call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	rules, err := l.rules.of(ctx, c.Own[argTeam])
	if err != nil {
		return workgraph.Outcome{}, err
	}
	in, err := instanceOf(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	in.Workflow = c.GraphName
	g, err := graph(rules.Team(), c.Own[argTeam])
	if err != nil {
		return workgraph.Outcome{}, err
	}
	raw, err := actor.Encode(in)
	if err != nil {
		return workgraph.Outcome{}, actor.BadArguments("%v", err)
	}
	works := in.Thread
	if in.After != nil || in.Key != "" {
		works = "" // it may be another one
	}
	run := workgraph.Child{Budget: priced(rules.Team().Stop), Graph: g, Input: workgraph.Input{Named: map[string]json.RawMessage{"team": raw}}, SameDepth: true, Agent: &workgraph.AgentRun{Name: actorTeam, Thread: works}}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{run}, AsResult: true}}}, nil
}

// maxNanoUSD is a cap in money that nothing reaches.
const maxNanoUSD = int64(1) << 50

// priced is the budget of a team that ends at a cost: calls are priced as they are made only under a cap in
// money. Nil for any other.
func priced(s *team.Stop) *workgraph.Budget {
	if s == nil || !s.Costs() {
		return nil
	}
	most := maxNanoUSD
	return &workgraph.Budget{NanoUSD: &most}
}

// runPart runs a workflow that the team holds. How deep these lie in each other is bounded by the text
// that defines them, so that they do not count as runs that spawn runs.
func runPart(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	run := workgraph.Child{SameDepth: true}
	var err error
	if run.Graph, err = graphpb.ReadModel(c.Own["graph"]); err != nil {
		return workgraph.Outcome{}, actor.BadArguments("%v", err)
	}
	if err := json.Unmarshal(c.Named["input"], &run.Input); err != nil {
		return workgraph.Outcome{}, actor.BadArguments("input: %v", err)
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{run}, AsResult: true}}}, nil
}

// madeIn is the lifetime of a thread that is a part of another one.
func madeIn(of thread.Thread) string {
	if thread.PartLifetime(of.Lifetime) == workgraph.ThreadConversation {
		return "CONVERSATION"
	}
	return "EPHEMERAL"
}

// instanceOf reads what a call states, which may stand in the inputs of a workflow.
func instanceOf(c *workgraph.Call) (*instance, error) {
	var a arguments
	named := map[string]json.RawMessage{}
	for k, v := range c.Named {
		if k != argTeam && k != argOwnThread {
			named[k] = v
		}
	}
	if err := actor.Decode(named, &a); err != nil {
		return nil, err
	}
	in := inputs(a.Input)
	out := &instance{}
	for _, raw := range []json.RawMessage{a.Task, a.UserInput, a.Messages, in.Task, in.UserInput, in.Messages} {
		if actor.Filled(raw) {
			out.Told = texts(raw)
			break
		}
	}
	size := 0
	for _, one := range out.Told {
		size += len(one.Text)
	}
	if len(out.Told) > maxTold || size > maxToldBytes {
		return nil, actor.BadArguments("the team is told %d messages of %d bytes, the limit is %d and %d: give long texts by reference", len(out.Told), size, maxTold, maxToldBytes)
	}
	if a.Conversation == nil {
		a.Conversation = in.Conversation
	}
	return out, out.on(c, &a, &in)
}

// on finds the thread that a call states: by itself, or in the inputs of a workflow.
func (out *instance) on(c *workgraph.Call, a, in *arguments) error {
	switch conv := a.Conversation; {
	case a.ThreadID != "":
		out.Thread = a.ThreadID
	case in.ThreadID != "":
		out.Thread = in.ThreadID
	case conv != nil && conv.ThreadID != "":
		if _, err := conv.Create(); err != nil {
			return err
		}
		out.Thread, out.Make, out.PartOf, out.After = conv.ThreadID, cmp.Or(conv.Lifetime, "EPHEMERAL"), conv.PartOf, conv.After
	case string(c.Own[argOwnThread]) == "true" || c.InTurn(): // the thread of a chat has what was said there
		out.Thread, out.Make = ids.New(thread.IDPrefix), "EPHEMERAL"
		if key, ok := standing.PartKey(c); ok { // a later run of the conversation finds it again
			out.Of, out.Key = c.Thread, key
		}
	case c.Thread == "" || c.RunID != c.RootRunID:
		out.Thread, out.Make = ids.New(thread.IDPrefix), "EPHEMERAL"
	default:
		out.Thread = c.Thread
	}
	return nil
}

// inputs are those inputs of a workflow that mean something to a team. Inputs of these names that are of
// other types are the workflow's own.
func inputs(raw json.RawMessage) (in arguments) {
	var given map[string]json.RawMessage
	_ = json.Unmarshal(raw, &given) // the schema says that it is an object
	in.Task, in.UserInput, in.Messages = given["task"], given["user_input"], given["messages"]
	_ = json.Unmarshal(given["thread_id"], &in.ThreadID)
	if json.Unmarshal(given[argContinue], &in.Conversation) != nil {
		in.Conversation = nil
	}
	return in
}

// texts are what a team is told: one message for each member of a list. An object has its text as text or
// content, and may name who is to go on as to.
func texts(raw json.RawMessage) []told {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	var out []told
	for _, one := range list {
		var m struct {
			Text    *string `json:"text"`
			Content *string `json:"content"`
			To      string  `json:"to"`
		}
		said := told{Text: actor.AsText(one)}
		if json.Unmarshal(one, &m) == nil {
			for _, s := range []*string{m.Content, m.Text} {
				if s != nil {
					said = told{*s, m.To}
				}
			}
		}
		if said.Text != "" {
			out = append(out, said)
		}
	}
	return out
}

// badLoop is the error of an actor of the loop that is not in one that the team actor made.
func badLoop(format string, args ...any) error {
	return actor.BadArguments("this actor is for the loop that the team actor makes: "+format, args...)
}

// maxFailure bounds what is told of a member that failed.
const maxFailure = 2000

func failure(e *workgraph.Error) string {
	if e == nil {
		return workgraph.ReasonActorError
	}
	return errs.Clip(e.Message, maxFailure)
}
