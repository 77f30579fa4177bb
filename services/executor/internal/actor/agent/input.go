package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// instance is what one call of an agent is about: the input of its loop.
type instance struct {
	// Thread is the thread that it works on. Create is set if the thread is to be made.
	Thread string        `json:"thread"`
	Create *createThread `json:"create,omitempty"`
	// Runs are those that hold the thread and lend it to the agent.
	Runs []string `json:"runs,omitempty"`
	// Input are the messages of the thread with the newest user input, if they are known.
	Input *state.Span `json:"input,omitempty"`
	// Agent is the actor that was called, and Name the name under which the agent's facts are kept.
	Agent string `json:"agent,omitempty"`
	Name  string `json:"name,omitempty"`
	// Depth is how many branchings lead to it.
	Depth int `json:"depth,omitempty"`

	UserInput string `json:"user_input,omitempty"`
	// Inputs are the members of a user input that is a list.
	Inputs []string `json:"inputs,omitempty"`
	// State is the state of the agent of which this one is a branch, in the round in which it branched.
	State         *state.Brief        `json:"state,omitempty"`
	ActionResults state.Results       `json:"action_results,omitempty"`
	Context       string              `json:"context,omitempty"`
	UserProfile   string              `json:"user_profile,omitempty"`
	Attachments   []prompt.Attachment `json:"attachments,omitempty"`
}

// createThread describes a new thread.
type createThread struct {
	Parent    string `json:"parent,omitempty"`
	ParentSeq int64  `json:"parent_seq,omitempty"`
	Agent     string `json:"agent,omitempty"`
	// Key finds the thread if it is there already.
	Key string `json:"key,omitempty"`
	// Title is the name of a part.
	Title    string                   `json:"title,omitempty"`
	Lifetime workgraph.ThreadLifetime `json:"lifetime"`
	// PartOf is the thread of which it is a part.
	PartOf string `json:"part_of,omitempty"`
	// Maybe says that the thread may be there already.
	Maybe bool `json:"maybe,omitempty"`
	// After is the last item that the caller knows of a thread that is there.
	After *int64 `json:"after,omitempty"`
	// Forks says that the agent works on a fork if another run holds the thread that has the key.
	Forks bool `json:"forks,omitempty"`
}

// create is the thread as an append makes it; nil makes none.
func (t *createThread) create() *workgraph.ThreadCreate {
	if t == nil {
		return nil
	}
	return &workgraph.ThreadCreate{Parent: t.Parent, ParentSeq: t.ParentSeq, Agent: t.Agent, Key: t.Key, Title: t.Title, PartOf: t.PartOf, Lifetime: t.Lifetime}
}

// run names the agent of a run that does its work.
func (in *instance) run() *workgraph.AgentRun {
	r := &workgraph.AgentRun{Name: in.Agent, Thread: in.Thread, Configured: in.Agent != actorAgent}
	if in.Create != nil && (in.Create.Key != "" || in.Create.After != nil) {
		r.Thread = "" // begin may find another one
	}
	return r
}

// arguments are those of a call that are not its definition.
type arguments struct {
	UserInput     json.RawMessage        `json:"user_input"`
	Goal          json.RawMessage        `json:"goal"`
	Request       json.RawMessage        `json:"request"`
	ActionResults json.RawMessage        `json:"action_results"`
	Previous      json.RawMessage        `json:"previous_agent_results"`
	Context       json.RawMessage        `json:"context"`
	UserProfile   json.RawMessage        `json:"user_profile"`
	Attachments   []json.RawMessage      `json:"attachments"`
	Tool          json.RawMessage        `json:"tool"`
	Arguments     []json.RawMessage      `json:"arguments"`
	References    []json.RawMessage      `json:"references"`
	Before        json.RawMessage        `json:"previous_action_results"`
	ThreadID      string                 `json:"thread_id"`
	SharedThread  *standing.Place        `json:"shared_thread"`
	Conversation  *standing.Conversation `json:"conversation"`
}

// taskFields are the arguments that a positional mapping may hold.
var taskFields = []string{"user_input", "goal", "request", "action_results", "previous_agent_results", "previous_action_results", "context", "user_profile", "attachments", "tool", "arguments", "references", "thread_id"}

// inputFields are the three names of the user input. A call states one of them.
var inputFields = []string{"user_input", "goal", "request"}

// task is what the positional arguments of a call are: a mapping with fields of a task, or the user input.
type task struct {
	mapping map[string]json.RawMessage
	alone   json.RawMessage
}

// taskOf reads the positional arguments. Results of the nodes before that are passed down as further ones are
// attachments.
func taskOf(c *workgraph.Call) (t task, err error) {
	if len(c.Args) == 0 {
		return t, nil
	}
	first := bytes.TrimSpace(c.Args[0])
	var m map[string]json.RawMessage
	if len(first) > 0 && first[0] == '{' && json.Unmarshal(first, &m) == nil && slices.ContainsFunc(taskFields, func(k string) bool {
		_, ok := m[k]
		return ok
	}) {
		for _, k := range sorted(m) {
			if !slices.Contains(taskFields, k) {
				return t, actor.BadArguments("args[0]: %.80q is no field of a task: use %s; a definition is stated by the agent's node alone", k, strings.Join(taskFields, ", "))
			}
		}
		t.mapping = m
	} else {
		t.alone = first
	}
	for i, arg := range c.Args[1:] {
		if !isUpstream(c, arg) {
			return t, actor.BadArguments("args[%d]: an agent takes one positional argument: give the others by name, or as attachments", i+1)
		}
	}
	return t, nil
}

// isUpstream reports whether a positional argument is the result of a node before this one.
func isUpstream(c *workgraph.Call, arg json.RawMessage) bool {
	for _, u := range c.Upstream {
		if u.Outcome == workgraph.VisitCompleted && len(u.Values) > 0 && (bytes.Equal(arg, actor.Result(u.Values)) ||
			slices.ContainsFunc(u.Values, func(v json.RawMessage) bool { return bytes.Equal(v, arg) })) {
			return true
		}
	}
	return false
}

// userInput is the user input from the nearest place that states one: the positional argument, the node's own
// arguments, those that travel with the run. A null is one, too: it goes on with the task. consumed says that
// the positional argument is part of the task.
func (t *task) userInput(c *workgraph.Call) (raw json.RawMessage, consumed bool, err error) {
	stated := func(in map[string]json.RawMessage) (names []string) {
		for _, k := range inputFields {
			if _, ok := in[k]; ok {
				names = append(names, k)
			}
		}
		if given := slices.DeleteFunc(slices.Clone(names), func(k string) bool { return actor.AsText(in[k]) == "" }); len(given) > 0 {
			return given
		}
		return names
	}
	pick := func(in map[string]json.RawMessage, names []string) (json.RawMessage, error) {
		if len(names) > 1 && actor.AsText(in[names[0]]) != "" {
			return nil, actor.BadArguments("%s and %s are both given: they mean the same, give one of them", names[0], names[1])
		}
		return in[names[0]], nil
	}
	if names := stated(t.mapping); len(names) > 0 {
		raw, err = pick(t.mapping, names)
		return raw, true, err
	}
	own := stated(c.Own)
	switch {
	case len(own) > 0:
		if raw, err = pick(c.Named, own); err != nil || actor.AsText(raw) == "" && t.alone != nil {
			return t.alone, t.alone != nil, err
		}
		if t.alone != nil && !isUpstream(c, t.alone) {
			return nil, false, actor.BadArguments("args[0] and %s are both given: give one user input, and the rest as context or attachments", own[0])
		}
		return raw, t.mapping != nil, nil
	case t.alone != nil:
		return t.alone, true, nil
	}
	if names := stated(c.Named); len(names) > 0 {
		raw, err = pick(c.Named, names)
	}
	return raw, t.mapping != nil, err
}

// readInput reads the input contract: a mapping of named arguments, into which a single positional mapping is
// taken as it is. Any other first positional argument is the user input. Whatever a call states is used or
// refused.
func readInput(c *workgraph.Call, kept *keeping) (*instance, error) {
	t, err := taskOf(c)
	if err != nil {
		return nil, err
	}
	said, consumed, err := t.userInput(c)
	if err != nil {
		return nil, err
	}
	named := maps.Clone(c.Named)
	if named == nil {
		named = map[string]json.RawMessage{}
	}
	maps.Copy(named, t.mapping)
	var g arguments
	if err := actor.Decode(named, &g); err != nil {
		return nil, err
	}
	in := &instance{Context: actor.AsText(g.Context), UserProfile: actor.AsText(g.UserProfile), ActionResults: state.Given(g.ActionResults), Inputs: inputs(said)}
	if more := g.problem(); more != "" {
		if len(in.Inputs) == 0 {
			in.Inputs = []string{""}
		}
		in.Inputs[len(in.Inputs)-1] += more
	}
	if in.UserInput = strings.Join(in.Inputs, "\n"); len(in.Inputs) < 2 {
		in.Inputs = nil
	}
	if whole, err := actor.Encode(in.UserInput); err != nil || len(whole) > maxMessage {
		return nil, actor.BadArguments("the user input has %d bytes, the limit is %d: give long texts as attachments", len(whole), maxMessage)
	}
	if n := len(g.Attachments); n > maxAttachments {
		return nil, actor.BadArguments("there are %d attachments, the limit is %d: put several documents into one", n, maxAttachments)
	}
	if in.Attachments, err = g.attachments(c, consumed); err != nil {
		return nil, err
	}
	in.Thread = g.ThreadID
	if err := in.goOn(g.Conversation, c.Actor); err != nil {
		return nil, err
	}
	if at := g.SharedThread; at != nil {
		if c.Agent == nil { // else anybody could write into a thread that a run holds
			return nil, actor.BadArguments("shared_thread is stated by an agent that lends its thread (share_thread of an action), and by nobody else")
		}
		if at.LentTo(c) {
			in.Thread, in.Runs = at.Thread, at.Runs
		} else { // the caller is a fork of the run that lent the thread
			in.Thread, in.Create = ids.New(thread.IDPrefix), &createThread{Parent: at.Thread, ParentSeq: at.Seq, Agent: c.Actor, Lifetime: workgraph.ThreadEphemeral}
		}
	}
	_, stated := c.Own[argThread]
	if in.Thread == "" && c.RunID == c.RootRunID && !stated {
		in.Thread = c.Thread // the run's own; the agents of runs below it have threads of their own
	}
	if _, both := c.Own["thread_id"]; both && stated {
		return nil, actor.BadArguments("thread and thread_id are both given: thread_id names a thread that is there, thread says how one is kept")
	}
	if in.Thread == "" {
		in.Thread, in.Create = kept.thread(c)
	}
	if in.UserInput == "" && len(in.ActionResults) == 0 && in.Create != nil && in.Create.Parent == "" && in.Create.Key == "" && len(in.Attachments) == 0 {
		return nil, actor.BadArguments("user_input is missing: give user_input (or goal, or request), action_results, or the thread_id of a task to go on with")
	}
	return in, nil
}

// said is the user input as messages.
func (in *instance) said() []string {
	if len(in.Inputs) > 0 || in.UserInput == "" {
		return in.Inputs
	}
	return []string{in.UserInput}
}

// maxInputs bounds the members of a user input. A longer list is one text.
const maxInputs = 100

// inputs are the texts of a user input: one for each member of a list.
func inputs(raw json.RawMessage) []string {
	list, ok := state.Members(raw, maxInputs)
	if !ok {
		list = []json.RawMessage{raw}
	}
	var out []string
	for _, one := range list {
		if text := actor.AsText(one); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// replies are the texts of a person's answer, as inputs reads them. They are cut to about maxMessage bytes.
func replies(raw json.RawMessage) []string {
	out := inputs(raw)
	if len(raw) > maxMessage {
		for i := range out {
			out[i] = state.Clip(out[i], maxMessage/len(out))
		}
	}
	return out
}

// maxAttachments bounds the attachments that a call states.
const maxAttachments = 1000

// problem is what a plan says of its problem, besides the request.
func (g *arguments) problem() string {
	var b strings.Builder
	if tool := actor.AsText(g.Tool); tool != "" {
		b.WriteString("\n\nTool: " + tool)
	}
	for i, a := range g.Arguments {
		if i == 0 {
			b.WriteString("\n\nArguments:")
		}
		b.WriteString("\n" + actor.AsText(a))
	}
	if refs := actor.References(g.References); refs != "" {
		b.WriteString("\n\n" + refs)
	}
	return b.String()
}

// attachments are those that are given, what the nodes before the agent gave, and the results of earlier
// agents and actions that a call states besides. consumed says that the first positional argument is the
// task.
func (g *arguments) attachments(c *workgraph.Call, consumed bool) ([]prompt.Attachment, error) {
	var out []prompt.Attachment
	for i, raw := range g.Attachments {
		a, err := attachment(raw)
		if err != nil {
			return nil, actor.BadArguments(`attachments[%d]: %v: write {"id", "description", "content"}, or "uri" in place of the content`, i, err)
		}
		out = append(out, a)
	}
	if actor.Filled(g.Before) {
		out = append(out, prompt.Attachment{ID: argPrevious, Description: "The results of the actions before this one, in order", Content: g.Before})
	}
	var told []json.RawMessage
	upstream := c.Upstream
	if string(c.Own[argUpstream]) == "false" {
		upstream = nil
	}
	for _, u := range upstream {
		if u.Outcome != workgraph.VisitCompleted || len(u.Values) == 0 {
			continue
		}
		result := actor.Result(u.Values)
		told = append(told, result)
		// A result that came as the positional argument is the task itself.
		if !consumed || len(c.Args) == 0 || !bytes.Equal(c.Args[0], result) {
			out = append(out, resultOf(u.Node, result))
		}
	}
	if actor.Filled(g.Previous) && !isOf(g.Previous, told) {
		out = append(out, resultOf("unknown_task", g.Previous))
	}
	return out, nil
}

// attachment reads a document. Its fields are those of prompt.Attachment.
func attachment(raw json.RawMessage) (a prompt.Attachment, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return a, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if (len(a.Content) == 0 || string(a.Content) == "null") && a.URI == "" {
		return a, errors.New("it has no content")
	}
	return a, nil
}

// isOf reports whether a value is one of the results, or a list of them.
func isOf(raw json.RawMessage, results []json.RawMessage) bool {
	one := func(v json.RawMessage) bool {
		return slices.ContainsFunc(results, func(r json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(v), bytes.TrimSpace(r)) })
	}
	list, _ := state.Members(raw, maxAttachments)
	return one(raw) || len(list) > 0 && !slices.ContainsFunc(list, func(v json.RawMessage) bool { return !one(v) })
}

// resultOf is the result of another agent as an attachment.
func resultOf(id string, content json.RawMessage) prompt.Attachment {
	return prompt.Attachment{ID: id, Description: actor.DescribeResult(id), Content: content}
}
