package workflow

import (
	"reflect"
	"slices"
	"time"
)

// This file has the steps of a workflow that is written in Go: one type for each type of the language.

// Steps follow each other.
type Steps []StepSpec

// StepSpec is a step: what all have, and what it does. An ID that is empty is made of the type and the
// place.
type StepSpec struct {
	ID string
	Do Action
	// Needs are the steps that it follows, in place of what stands before it. Empty and not nil, it
	// begins at once.
	Needs []string
	// Retry is how often it is called in all.
	Retry   int
	Timeout time.Duration
	// OnError stands for the result of a step that fails. Nil fails the run.
	OnError *Fallback
	// Set are keys of the state that are set behind the step.
	Set   any
	Cache Cache
}

// Fallback is what stands for the result of a step that failed: a value, or with Keep its error as
// {"error": {"type", "reason", "message"}}.
type Fallback struct {
	Value any
	Keep  bool
}

// Action is what a step does. The types whose names end in Step are the actions.
type Action interface {
	// step is the name of the type of the step, and the steps within it.
	step() (kind string, within []Steps)
}

// each calls f with every action, those of steps within others included, down to a depth.
func (list Steps) each(deep int, f func(Action)) {
	for i := range list {
		if do := list[i].action(); do != nil && deep > 0 {
			f(do)
			_, within := do.step()
			for _, in := range within {
				in.each(deep-1, f)
			}
		}
	}
}

// action is what the step does, no pointer to it. Nil if there is none.
func (s *StepSpec) action() Action {
	v := reflect.ValueOf(s.Do)
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !v.IsValid() {
		return nil
	}
	do, _ := v.Interface().(Action) // the methods are those of values
	return do
}

// source is the step as the language has it.
func (s *StepSpec) source() any {
	do := s.action()
	if p, ok := do.(ParallelStep); ok {
		return pairs{{"id", s.ID}, {"parallel", []Steps(p)}, {"needs", s.Needs}}
	}
	out := pairs{{"id", s.ID}}
	if do != nil {
		kind, _ := do.step()
		out = append(out, pair{"type", kind})
		out = append(out, doing(do)...)
	}
	out = append(out, pair{"needs", s.Needs}, pair{"retry", s.Retry}, pair{"timeout", s.Timeout})
	switch {
	case s.OnError == nil:
	case s.OnError.Keep:
		out = append(out, pair{"on_error", "keep"})
	default:
		out = append(out, pair{"on_error", pairs{{"value", keep{s.OnError.Value}}}})
	}
	return append(out, pair{"set", s.Set}, pair{"cache", s.Cache})
}

// doing are the keys of what a step does.
func doing(do Action) pairs {
	if s, ok := do.(sourcer); ok {
		out, _ := s.source().(pairs) // those of actions are
		return out
	}
	return pairsOf(do)
}

// ParallelStep are lists of steps that run side by side. Its step has no ID and nothing else.
type ParallelStep []Steps

// AgentStep lets an agent work: Agent is one of the workflow, or agent/NAME of the configuration.
// Without one the step describes it.
type AgentStep struct {
	Prompt       string `key:"prompt"`
	Agent        string `key:"agent"`
	SystemPrompt string `key:"system_prompt"`
	Model        Model  `key:"model"`
	Tools        []Tool `key:"tools"`
	// Servers are MCP servers of the configuration, all of whose tools the agent has.
	Servers   []string `key:"mcp_servers"`
	MaxRounds int      `key:"max_rounds"`
	// Memory lets it go on with its thread from run to run, for each user and chat.
	Memory bool `key:"memory"`
	// Thread is a name: agents with the same one share a thread. ThreadID is one by its id.
	Thread   string `key:"thread"`
	ThreadID string `key:"thread_id"`
}

// DeepAgentStep lets an agent work that plans. With Todos it keeps a list of what is to be done. It may
// call Subagents; one that has a name alone is one of the workflow.
type DeepAgentStep struct {
	AgentStep
	Todos     bool     `key:"enable_todos"`
	Subagents []Helper `key:"subagents"`
}

// Helper is an agent below another one.
type Helper struct {
	Name         string `key:"name"`
	Description  string `key:"description"`
	Instructions string `key:"instructions"`
	Model        Model  `key:"model"`
	Tools        []Tool `key:"tools"`
	// Servers are MCP servers of the configuration, all of whose tools the agent has.
	Servers   []string `key:"mcp_servers"`
	MaxRounds int      `key:"max_rounds"`
	// Memory lets it go on with its thread from run to run, for each user and chat.
	Memory bool `key:"memory"`
	// ShareThread lets it work on the thread of the one who calls it.
	ShareThread bool `key:"share_thread"`
}

func (h *Helper) source() any {
	if reflect.DeepEqual(*h, Helper{Name: h.Name}) {
		return h.Name
	}
	return pairsOf(h)
}

// CategorizerStep has a model name one of some categories.
type CategorizerStep struct {
	Prompt     string     `key:"prompt"`
	Model      Model      `key:"model"`
	Categories []Category `key:"categories"`
}

// Category is one of those that a model chooses from.
type Category struct {
	Name        string `key:"name"`
	Description string `key:"description"`
}

// ExtractorStep has a model take values out of a text. Schema is a JSON Schema, or its properties
// alone.
type ExtractorStep struct {
	Prompt string `key:"prompt"`
	Model  Model  `key:"model"`
	Schema any    `key:"schema"`
}

// CodeStep runs a Starlark script.
type CodeStep struct {
	Code string `key:"code"`
}

// HTTPStep makes a request.
type HTTPStep struct {
	URL     string `key:"url"`
	Method  string `key:"method"`
	Headers any    `key:"headers"`
	Query   any    `key:"query"`
	JSON    any    `key:"json"`
	Body    any    `key:"body"`
}

// ActorStep calls any actor, or workflow/NAME@VERSION.
type ActorStep struct {
	Actor string `key:"actor"`
	With  any    `key:"with"`
}

// TransformStep makes a value: Template with references, or Expr, an expression.
type TransformStep struct {
	Template any    `key:"template"`
	Expr     string `key:"expr"`
}

// ReplyStep says something: at once in the workflow of a chat, elsewhere as its result alone.
type ReplyStep struct {
	Message any `key:"message"`
}

// Rule compares a field of a step with a value.
type Rule struct {
	Field    string `key:"field"`
	Operator string `key:"operator"`
	Value    any    `key:"value"`
}

// RouteRule leads to a step by its id, or to steps of its own.
type RouteRule struct {
	Rule
	Route string `key:"route"`
	Steps Steps  `key:"steps"`
}

// SwitchStep leads where the first rule says that holds. Default, the id of a step or continue, or
// Otherwise is where it leads if none does.
type SwitchStep struct {
	Rules     []RouteRule `key:"rules"`
	Default   string      `key:"default"`
	Otherwise Steps
}

func (s SwitchStep) source() any {
	return append(pairsOf(&s), pair{"default", s.Otherwise})
}

// RouterStep leads to the step that the value of a field names: one of Routes, or of Values by value.
type RouterStep struct {
	Field   string   `key:"field"`
	Routes  []string `key:"routes"`
	Values  []ValueRoute
	Default string `key:"default"`
}

// ValueRoute leads to a step if a field has a value.
type ValueRoute struct{ Value, Route string }

func (r RouterStep) source() any {
	values := pairs{}
	for _, x := range r.Values {
		values = append(values, pair{x.Value, x.Route})
	}
	return append(pairsOf(&r), pair{"routes", values})
}

// LoopTest is a condition of a loop: rules of which all or any hold, or an expression.
type LoopTest struct {
	All  []Rule `key:"all"`
	Any  []Rule `key:"any"`
	Expr string `key:"expr"`
}

// LoopStep does its body again and again: Over a list, or a reference to one, While a condition holds
// before a round, or Until it holds after one.
type LoopStep struct {
	Over          any       `key:"over"`
	As            string    `key:"as"`
	While         *LoopTest `key:"while"`
	Until         *LoopTest `key:"until"`
	MaxIterations int       `key:"max_iterations"`
	// OnLimit is pause, which is the default, fail or continue.
	OnLimit string `key:"on_limit"`
	Body    Steps  `key:"body"`
}

// MapStep does its body for all items of a list, or of a reference to one, side by side.
type MapStep struct {
	Over        any    `key:"over"`
	As          string `key:"as"`
	MaxItems    int    `key:"max_items"`
	MaxParallel int    `key:"max_parallel"`
	// OnItemError is fail, which is the default, continue, or keep.
	OnItemError string `key:"on_item_error"`
	// Quorum is how many items must succeed; 0 is no number.
	Quorum int   `key:"quorum"`
	Body   Steps `key:"body"`
}

// BestOfStep makes N attempts side by side and takes the best: by Score, an expression, or by a Judge.
type BestOfStep struct {
	N           int    `key:"n"`
	As          string `key:"as"`
	MaxParallel int    `key:"max_parallel"`
	// OnItemError is continue, which is the default, or fail.
	OnItemError string `key:"on_item_error"`
	Body        Steps  `key:"body"`
	Score       string `key:"score"`
	Judge       *Judge `key:"judge"`
	// Enough is the score with which an attempt ends the step.
	Enough *float64 `key:"enough"`
}

// Judge is a model that chooses the best attempt.
type Judge struct {
	Prompt string `key:"prompt"`
	Model  Model  `key:"model"`
}

// SetStep sets keys of the state.
type SetStep struct {
	State any `key:"state"`
}

// TeamStep lets agents talk to each other: those of its graph and its router, and Agents by their
// names.
type TeamStep struct {
	Agents   []string
	Graph    *GraphBuilder  `key:"graph"`
	Router   *RouterBuilder `key:"router"`
	Stop     StopCondition  `key:"stop"`
	MaxTurns int            `key:"max_turns"`
	// Task is what the team is told: a text, or a list of them.
	Task     any    `key:"task"`
	ThreadID string `key:"thread_id"`
}

func (t TeamStep) source() any {
	names := slices.Clone(t.Agents)
	add := func(agents []Agent) {
		for _, name := range agentsOf(agents) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	t.Graph.withAgents(add)
	t.Router.withAgents(add)
	return append(pairsOf(&t), pair{"agents", names})
}

// UserStep tells for whom the run is done.
type UserStep struct{}

// AssertionStep fails unless so many of its rules hold: all, if PassThreshold is 0.
type AssertionStep struct {
	Rules         []Rule  `key:"rules"`
	PassThreshold float64 `key:"pass_threshold"`
}

// FilterStep keeps the items of a list for which all rules hold. A field is one of the item.
type FilterStep struct {
	Over  string `key:"over"`
	Rules []Rule `key:"rules"`
}

// MergeStep puts results together: of the steps right before, or those of From. Mode is map, which is
// the default, list or first.
type MergeStep struct {
	From []string `key:"from"`
	Mode string   `key:"mode"`
}

// HumanStep asks a person.
type HumanStep struct {
	Message string `key:"message"`
	Question
	// Approve is what is to be approved.
	Approve any `key:"approve"`
}

// WaitStep waits. Delay is a time.Duration, or a reference to a number of seconds.
type WaitStep struct {
	Delay any `key:"delay"`
}

// WorkflowStep runs a workflow of the catalog, or self. Payload are its inputs.
type WorkflowStep struct {
	Workflow string `key:"workflow"`
	Payload  any    `key:"payload"`
}

func (p ParallelStep) step() (string, []Steps)  { return "parallel", p }
func (AgentStep) step() (string, []Steps)       { return "agent", nil }
func (DeepAgentStep) step() (string, []Steps)   { return "deep_agent", nil }
func (CategorizerStep) step() (string, []Steps) { return "categorizer", nil }
func (ExtractorStep) step() (string, []Steps)   { return "extractor", nil }
func (CodeStep) step() (string, []Steps)        { return "code", nil }
func (HTTPStep) step() (string, []Steps)        { return "http", nil }
func (ActorStep) step() (string, []Steps)       { return "actor", nil }
func (TransformStep) step() (string, []Steps)   { return "transform", nil }
func (ReplyStep) step() (string, []Steps)       { return "reply_chat", nil }
func (RouterStep) step() (string, []Steps)      { return "router", nil }
func (b LoopStep) step() (string, []Steps)      { return "loop", []Steps{b.Body} }
func (b MapStep) step() (string, []Steps)       { return "map", []Steps{b.Body} }
func (b BestOfStep) step() (string, []Steps)    { return "best_of", []Steps{b.Body} }
func (SetStep) step() (string, []Steps)         { return "set", nil }
func (TeamStep) step() (string, []Steps)        { return "team", nil }
func (UserStep) step() (string, []Steps)        { return "identify_user", nil }
func (AssertionStep) step() (string, []Steps)   { return "assertion", nil }
func (FilterStep) step() (string, []Steps)      { return "filter", nil }
func (MergeStep) step() (string, []Steps)       { return "merge", nil }
func (HumanStep) step() (string, []Steps)       { return "human", nil }
func (WaitStep) step() (string, []Steps)        { return "wait", nil }
func (WorkflowStep) step() (string, []Steps)    { return "workflow", nil }

func (s SwitchStep) step() (string, []Steps) {
	within := []Steps{s.Otherwise}
	for i := range s.Rules {
		within = append(within, s.Rules[i].Steps)
	}
	return "switch", within
}
