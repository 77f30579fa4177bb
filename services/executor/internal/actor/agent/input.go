package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/workgraph"
)

// instance is what one call of an agent is about: the input of its loop.
type instance struct {
	// Thread is the thread that it works on. Create is set if the thread is to be made.
	Thread string        `json:"thread"`
	Create *createThread `json:"create,omitempty"`
	// Shared says that the caller holds the thread.
	Shared bool `json:"shared,omitempty"`
	// Agent is the actor that was called.
	Agent string `json:"agent,omitempty"`
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
}

// given are the arguments of a call that are not its definition.
type given struct {
	UserInput     json.RawMessage   `json:"user_input"`
	Goal          json.RawMessage   `json:"goal"`
	Request       json.RawMessage   `json:"request"`
	ActionResults json.RawMessage   `json:"action_results"`
	Previous      json.RawMessage   `json:"previous_agent_results"`
	Context       json.RawMessage   `json:"context"`
	UserProfile   json.RawMessage   `json:"user_profile"`
	Attachments   []json.RawMessage `json:"attachments"`
	Tool          json.RawMessage   `json:"tool"`
	Arguments     []json.RawMessage `json:"arguments"`
	References    []json.RawMessage `json:"references"`
	Before        json.RawMessage   `json:"previous_action_results"`
	ThreadID      string            `json:"thread_id"`
	SharedThread  string            `json:"shared_thread"`
}

// taskFields are the arguments that a positional mapping may hold.
var taskFields = []string{"user_input", "goal", "request", "action_results", "previous_agent_results", "context", "user_profile", "attachments", "tool", "arguments", "references"}

// readInput reads the input contract: a mapping of named arguments, into which a single positional mapping is
// taken as it is. Any other first positional argument is the user input.
func readInput(c *workgraph.Call) (*instance, error) {
	named := c.Named
	var alone json.RawMessage
	if len(c.Args) > 0 {
		var task map[string]json.RawMessage
		raw := bytes.TrimSpace(c.Args[0])
		if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &task) == nil && slices.ContainsFunc(taskFields, func(k string) bool {
			_, ok := task[k]
			return ok
		}) {
			named = make(map[string]json.RawMessage, len(c.Named)+len(task))
			for k, v := range c.Named {
				named[k] = v
			}
			for _, k := range taskFields {
				if v, ok := task[k]; ok {
					named[k] = v
				}
			}
		} else {
			alone = raw
		}
	}
	var g given
	if err := actor.Decode(named, &g); err != nil {
		return nil, err
	}
	in := &instance{Context: actor.AsText(g.Context), UserProfile: actor.AsText(g.UserProfile), ActionResults: state.Given(g.ActionResults)}
	for _, raw := range []json.RawMessage{g.UserInput, g.Goal, g.Request, alone} {
		if in.Inputs = inputs(raw); len(in.Inputs) > 0 {
			break
		}
	}
	if more := g.problem(); more != "" {
		if len(in.Inputs) == 0 {
			in.Inputs = []string{""}
		}
		in.Inputs[len(in.Inputs)-1] += more
	}
	if in.UserInput = strings.Join(in.Inputs, "\n"); len(in.Inputs) < 2 {
		in.Inputs = nil
	}
	var err error
	if in.Attachments, err = g.attachments(c); err != nil {
		return nil, err
	}
	in.Thread = g.ThreadID
	if g.SharedThread != "" {
		in.Thread, in.Shared = g.SharedThread, true
	}
	if in.Thread == "" && c.RunID == c.RootRunID {
		in.Thread = c.Thread // the run's own; the agents of runs below it have threads of their own
	}
	if in.UserInput == "" && len(in.ActionResults) == 0 && in.Thread == "" && len(in.Attachments) == 0 {
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
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) > maxInputs {
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

// problem is what a plan says of its problem, besides the request.
func (g *given) problem() string {
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

// attachments are those that are given, and what the nodes before the agent gave.
func (g *given) attachments(c *workgraph.Call) ([]prompt.Attachment, error) {
	var out []prompt.Attachment
	for i, raw := range g.Attachments {
		var a prompt.Attachment
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, actor.BadArguments(`attachments[%d]: write {"id", "description", "content"}: %v`, i, err)
		}
		out = append(out, a)
	}
	if actor.Filled(g.Before) {
		out = append(out, prompt.Attachment{ID: argPrevious, Description: "The results of the actions before this one, in order", Content: g.Before})
	}
	var told bool
	upstream := c.Upstream
	if string(c.Own[argUpstream]) == "false" {
		upstream = nil
	}
	for _, u := range upstream {
		if u.Outcome != workgraph.VisitCompleted || len(u.Values) == 0 {
			continue
		}
		told = true
		// A result that came as the positional mapping is the task itself.
		if len(c.Args) == 0 || !bytes.Equal(c.Args[0], actor.Result(u.Values)) {
			out = append(out, resultOf(u.Node, actor.Result(u.Values)))
		}
	}
	if !told && len(g.Previous) > 0 && string(g.Previous) != "null" {
		out = append(out, resultOf("unknown_task", g.Previous))
	}
	return out, nil
}

// resultOf is the result of another agent as an attachment.
func resultOf(id string, content json.RawMessage) prompt.Attachment {
	return prompt.Attachment{ID: id, Description: fmt.Sprintf("The result of the '%s' agent", id), Content: content}
}
