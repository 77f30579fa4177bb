package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The forms of the reasoner.
const (
	formPrompt = "prompt"
	formTools  = "tools"
)

// The kinds of dispatch. Any other text is the actor that turns a response into one of them.
const (
	dispatchGroups = "groups"
	dispatchPlan   = "plan"
)

// definition is what an agent is: everything that does not differ between two calls of it. Only the node
// itself may state it, since propagated inputs may come from the caller of the run, or from a model.
type definition struct {
	policy
	System       string                     `json:"system,omitempty"`
	Reasoner     string                     `json:"reasoner"`
	ReasonerArgs map[string]json.RawMessage `json:"reasoner_args,omitempty"`
	Form         string                     `json:"form"`
	Template     string                     `json:"template,omitempty"`
	Dispatch     string                     `json:"dispatch"`
	// DispatchArgs are the arguments of the actor that Dispatch names, besides the response.
	DispatchArgs map[string]json.RawMessage `json:"dispatch_args,omitempty"`
	// Solver are the arguments of the agent, or the actor, that does a problem of a plan.
	Solver     map[string]json.RawMessage `json:"solver,omitempty"`
	Summarizer *summarizer                `json:"summarizer,omitempty"`
	// Branch says whether each action of a parallel group is followed by an agent of its own.
	Branch     bool `json:"branch"`
	StartAsNew bool `json:"branching_agent_start_as_new,omitempty"`

	MaxRounds      int  `json:"max_rounds"`
	MaxBranchDepth int  `json:"max_branch_depth"`
	MaxBranches    int  `json:"max_branches"`
	MaxNoProgress  int  `json:"max_no_progress"`
	StepByStep     bool `json:"step_by_step,omitempty"`
	// AsMessage says that the result tells what was called and signaled beside the text.
	AsMessage bool `json:"as_message,omitempty"`
	// TaskTools are the tools of the agent's own, in the tools form.
	TaskTools []string `json:"task_tools"`

	// Servers are MCP servers whose tools are actions, too. The agent's call makes actions of them.
	Servers []string `json:"mcp_servers,omitempty"`

	History history `json:"history"`
	// Thread says how the threads of calls are kept that do not say so themselves.
	Thread *keeping `json:"thread,omitempty"`

	// ToolsText describes the actions in a prompt. The agent's call fills it in.
	ToolsText string `json:"tools_text,omitempty"`

	// limits are those of each call. Only an agent with a name has any: a node's own are those of its call.
	limits callLimits

	template *prompt.Template
}

// callLimits bound one call of an agent. The zero value bounds nothing.
type callLimits struct {
	timeout workgraph.Duration
	budget  *workgraph.Budget
}

// lowered are the lower ones of both.
func (l callLimits) lowered(o callLimits) callLimits {
	out := callLimits{timeout: l.timeout, budget: l.budget.Lowered(o.budget)}
	if o.timeout > 0 && (out.timeout == 0 || o.timeout < out.timeout) {
		out.timeout = o.timeout
	}
	return out
}

// summarizer makes one result of those of the branches: an actor, or llm with a prompt.
type summarizer struct {
	Actor  string                     `json:"actor,omitempty"`
	Named  map[string]json.RawMessage `json:"named,omitempty"`
	Prompt string                     `json:"prompt,omitempty"`

	template *prompt.Template
}

// definitionFields are the arguments that make up a definition, besides those of the policy.
var definitionFields = []string{"system", "reasoner", "reasoner_args", "form", "template", "dispatch", "dispatch_args", "solver", "summarizer", "branch",
	"branching_agent_start_as_new", "task_tools", "max_rounds", "max_branch_depth", "max_branches", "max_no_progress", "step_by_step", "history", argServers, argThread, argAsMessage}

// limitFields are the arguments that bound a call.
var limitFields = []string{"timeout", "budget"}

// callFields are arguments of the node's own that one call of the agent uses and its loop does not.
var callFields = append([]string{argUpstream, argAsMessage, standing.ArgOwnThread}, limitFields...)

func defaultDefinition() definition {
	return definition{policy: defaults(), Reasoner: actorLLM, Form: formPrompt, Dispatch: dispatchGroups, Branch: true,
		TaskTools: response.TaskTools(), MaxRounds: 10, MaxBranchDepth: 5, MaxBranches: 16, MaxNoProgress: 5, History: history{Messages: 100}}
}

// ownDefinition reads a definition from the arguments that only the node itself may give.
func ownDefinition(ctx context.Context, given map[string]json.RawMessage) (*definition, error) {
	d := defaultDefinition()
	if err := own(given, &d.policy, policyFields); err != nil {
		return nil, err
	}
	if err := own(given, &d, definitionFields); err != nil {
		return nil, err
	}
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	return &d, d.idle(given)
}

// idle reports a field that is stated and has no effect.
func (d *definition) idle(given map[string]json.RawMessage) error {
	stated := func(name string) bool { v, ok := given[name]; return ok && string(v) != "null" }
	for _, c := range []struct {
		idle bool
		why  string
		of   []string
	}{
		{d.Form == formTools, "the tools form has no template, its input is the messages of the thread", []string{"template"}},
		{d.Form == formTools, "the tools form knows no graphs: every call is answered", []string{"allow_graph"}},
		{d.Form == formTools, "the tools form does not branch: every call is answered", branchFields},
		{d.Form != formTools, "only the tools form has tools of the agent's own", []string{"task_tools"}},
		{d.Dispatch != dispatchPlan, "it does the problems of plans: write \"dispatch\": \"plan\" too", []string{"solver"}},
		{!d.Branch, "nothing branches with \"branch\": false", branchFields[1:]},
		{len(d.Actions) == 0 && len(d.Servers) == 0, "there are no actions", append([]string{"allow_graph", "max_actions"}, branchFields...)},
	} {
		for _, name := range c.of {
			if c.idle && stated(name) {
				return badArgument(name, "%s has no effect: %s", name, c.why)
			}
		}
	}
	return nil
}

// bounds are the least and the most of each argument that is a number.
var bounds = map[string][2]int{"max_rounds": {1, 100_000}, "max_actions": {1, 100}, "max_branches": {1, 100}, "max_branch_depth": {0, 20},
	"max_no_progress": {0, 1000}, "max_result_bytes": {256, 1 << 20}}

// inBounds reports a number that is out of bounds.
func inBounds(name string, v int) error {
	if b := bounds[name]; v < b[0] || v > b[1] {
		return badArgument(name, "%s must be from %d to %d", name, b[0], b[1])
	}
	return nil
}

// numberOf is the part of the schema of a number that bounds it.
func numberOf(name string) string {
	return fmt.Sprintf(`"type": "integer", "minimum": %d, "maximum": %d`, bounds[name][0], bounds[name][1])
}

// branchFields are about branches.
var branchFields = []string{"branch", "branching_agent_start_as_new", "summarizer", "max_branches", "max_branch_depth"}

// check reports what cannot be used, and makes the rest ready.
func (d *definition) check(ctx context.Context) error {
	if err := cmp.Or(inBounds("max_rounds", d.MaxRounds), inBounds("max_branch_depth", d.MaxBranchDepth), inBounds("max_branches", d.MaxBranches),
		inBounds("max_no_progress", d.MaxNoProgress)); err != nil {
		return err
	}
	switch {
	case d.Form != formPrompt && d.Form != formTools:
		return badArgument("form", "form %.80q is neither prompt nor tools", d.Form)
	case d.Form == formTools && d.Dispatch != dispatchGroups:
		return badArgument("dispatch", "dispatch: the tools form has groups only, since every call is answered")
	case d.Dispatch == dispatchPlan && len(d.Solver) == 0:
		return badArgument("solver", "solver is missing: name what does the problems of a plan, like {\"actor\": \"llm\"}")
	case len(d.DispatchArgs) > 0 && (d.Dispatch == dispatchGroups || d.Dispatch == dispatchPlan):
		return badArgument("dispatch_args", "dispatch_args: %s is no actor, so it takes no arguments", d.Dispatch)
	case d.Dispatch == "":
		return badArgument("dispatch", "dispatch is empty: write groups, plan or the name of an actor")
	}
	if err := cmp.Or(d.checkTools(), d.checkServers()); err != nil {
		return err
	}
	if err := d.templates(); err != nil {
		return err
	}
	if err := d.History.check(d); err != nil {
		return err
	}
	if err := d.Thread.check(); err != nil {
		return err
	}
	if err := d.policy.check(ctx, d.Dispatch != dispatchPlan); err != nil {
		return err
	}
	if len(d.Signals) > 0 && d.Form != formTools {
		return badArgument(argSignals, "%s", toolsOnly)
	}
	return d.checkSignals()
}

// checkTools reports a tool of the agent's own that there is not, or that has the name of an action.
func (d *definition) checkTools() error {
	for _, name := range d.TaskTools {
		if !slices.Contains(response.TaskTools(), name) {
			return badArgument("task_tools", "task_tools: there is no %.80q, use some of %s", name, strings.Join(response.TaskTools(), ", "))
		}
		if _, taken := d.Actions[name]; taken && d.Form == formTools {
			return badArgument("actions", "actions.%s: a tool of the agent's own has this name: name the action otherwise, or leave %s out of task_tools", name, name)
		}
	}
	return nil
}

func (d *definition) templates() (err error) {
	text := d.Template
	if text == "" {
		text = prompt.Default
	}
	if d.template, err = prompt.Parse(text); err != nil {
		return badArgument("template", "template: %v", err)
	}
	if s := d.History.Summarize; s != nil {
		if err := s.parse(); err != nil {
			return err
		}
	}
	s := d.Summarizer
	if s == nil {
		return nil
	}
	if (s.Actor == "") == (s.Prompt == "") {
		return badArgument("summarizer", "summarizer: give exactly one of actor and prompt")
	}
	if s.Prompt != "" {
		if s.template, err = prompt.Parse(s.Prompt); err != nil {
			return badArgument("summarizer", "summarizer: prompt: %v", err)
		}
	}
	return nil
}

// limitsOf reads the arguments that bound a call.
func limitsOf(given map[string]json.RawMessage) (callLimits, error) {
	var a struct {
		Timeout string            `json:"timeout"`
		Budget  *workgraph.Budget `json:"budget"`
	}
	if err := own(given, &a, limitFields); err != nil {
		return callLimits{}, err
	}
	if fault := a.Budget.Fault(); fault != "" {
		return callLimits{}, badArgument("budget", "budget: %s", fault)
	}
	timeout, err := wait.Timeout(a.Timeout)
	return callLimits{timeout, a.Budget}, err
}

// own reads some of the node's own arguments; the others stay as they are.
func own(given map[string]json.RawMessage, dst any, fields []string) error {
	for _, name := range fields {
		v, ok := given[name]
		if !ok || string(v) == "null" {
			continue
		}
		raw, err := actor.Encode(map[string]json.RawMessage{name: v})
		if err != nil {
			return badArgument(name, "%s: %v", name, err)
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(dst); err != nil {
			return badArgument(name, "%s: %s", name, strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	return nil
}

// argumentError is the error of one argument of the node's own.
type argumentError struct {
	argument string
	err      *workgraph.Error
}

func (e *argumentError) Error() string { return e.err.Error() }
func (e *argumentError) Unwrap() error { return e.err }

func badArgument(name, format string, args ...any) error {
	return &argumentError{name, actor.BadArguments(format, args...)}
}

// instructions is the system prompt that explains decisions to a model.
func (d *definition) instructions() string {
	var b strings.Builder
	if d.System != "" {
		b.WriteString(d.System + "\n\n")
	}
	switch {
	case d.Form == formTools:
		b.WriteString("Call tools to work toward what the user wants. Answer without calling a tool when it is reached, or cannot be reached")
		if slices.Contains(d.TaskTools, response.AskUser) {
			b.WriteString(". Call " + response.AskUser + " when you need an answer from the user, and nothing else besides.\n")
		} else {
			b.WriteString(", or when you need an answer from the user.\n")
		}
		if len(d.Signals) > 0 {
			fmt.Fprintf(&b, "Your turn ends with a call of %s: what is to be done besides in this turn, call in the same message.\n", strings.Join(sorted(d.Signals), " or "))
		}
	case d.Dispatch == dispatchPlan:
		b.WriteString(planInstructions)
	default:
		d.explain(&b)
	}
	if len(d.ResultSchema) > 0 {
		where := "When the task is completed the InstantResponse"
		switch {
		case d.Form == formTools:
			where = "Your last message, which calls no tool,"
		case d.Dispatch == dispatchPlan:
			where = "Your answer to the user"
		}
		fmt.Fprintf(&b, "%s must be JSON and nothing else, and fit this JSON Schema: %s\n", where, d.ResultSchema)
	}
	return strings.TrimSpace(b.String())
}

// explain says how decisions are written in the prompt form.
func (d *definition) explain(b *strings.Builder) {
	fmt.Fprintf(b, `You work toward what the user wants in rounds. In each round you decide what is done next, and answer with this and nothing else:
<StructuredResponse>
  <InstantResponse>what you say to the user: the result, or a question</InstantResponse>
  <TaskStatus>Ongoing, Completed, or Pending to wait for the user's answer</TaskStatus>
  <TaskStatusDescription>how far the task is</TaskStatusDescription>
  <ImmediateNextActions>
    <Action><Type>NAME OF AN ACTION</Type><Args>{"ARGUMENT": VALUE}</Args></Action>
    <AlternativeActions><Action>...</Action><Action>...</Action></AlternativeActions>
  </ImmediateNextActions>
</StructuredResponse>
Actions are done one after the other, those within AlternativeActions at the same time, at most %d in all. After a failure those that follow are skipped. Leave ImmediateNextActions out when there is nothing to do. Write <NewTask>true</NewTask> when the user begins another task, and <InstantLearnings><LearningID>...</LearningID><LearningContent>...</LearningContent></InstantLearnings> for what is worth keeping.
`, d.MaxActions)
	if d.AllowGraph {
		fmt.Fprintf(b, `Actions that depend on each other may be a graph of at most %d instead: {"graph": {"nodes": [{"id": ID, "actor": NAME OF AN ACTION, "named": {ARGUMENTS}}, ...], "edges": [{"from": ID, "to": ID}, ...]}}.
`, d.MaxActions)
	}
	b.WriteString("You are told the results of the actions of the last round only. What was refused was not done: mend it.\n")
}

const planInstructions = `Break what the user wants down into problems, and answer with this and nothing else:
<StructuredResponse>
  <Problems>
    <Problem><Request>what is to be done</Request><ProblemID>A_NAME</ProblemID></Problem>
  </Problems>
  <ProblemGraph>
    A_NAME -> ANOTHER_NAME
  </ProblemGraph>
</StructuredResponse>
A line of the graph says what comes before what; problems that do not depend on each other stand on lines of their own. A plan with faults is not done: you are told the faults, with your plan, and answer with the whole plan, mended. When you are told the results, answer the user in plain text. When there is nothing to plan, answer with this instead:
<StructuredResponse>
  <InstantResponse>the answer</InstantResponse>
  <TaskStatus>Completed</TaskStatus>
</StructuredResponse>
`

// reasonerText and reasonerNumber are arguments of the reasoner, or zero if they are of another type.
func (d *definition) reasonerText(name string) (s string) {
	_ = json.Unmarshal(d.ReasonerArgs[name], &s) // the reasoner says what is wrong with it
	return s
}

func (d *definition) reasonerNumber(name string) (n int64) {
	_ = json.Unmarshal(d.ReasonerArgs[name], &n)
	return n
}
