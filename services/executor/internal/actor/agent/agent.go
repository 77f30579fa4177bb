// Package agent is the actor that lets a reasoner decide, round by round, on the next actions. It owns the
// input contract, the policy of allowed actions, the loop, and what a round leaves in the agent's thread. It
// must not know which reasoner that is, nor how visits are started and journaled: the loop is a graph of
// ordinary nodes in a run of its own.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The actors. Those with loopPrefix are the loop's own.
const (
	actorAgent   = "agent"
	actorLLM     = "llm"
	loopPrefix   = "loop/"
	actorBegin   = loopPrefix + "begin"
	actorAct     = loopPrefix + "act"
	actorGroups  = loopPrefix + "groups"
	actorGather  = loopPrefix + "gather"
	actorResults = loopPrefix + "results"
	actorBranch  = loopPrefix + "branch"
	actorObserve = loopPrefix + "observe"
	actorSummary = loopPrefix + "summary"
)

// givenProperties are the arguments that propagated inputs may state.
const givenProperties = `
    "user_input": {"description": "What the user wants; null goes on with the task of the thread. A single positional mapping is taken as the arguments of this part, any other first positional argument as the user input."},
    "goal": {"description": "The same as user_input; only one of the three is given."},
    "request": {"description": "The same as user_input."},
    "action_results": {"description": "Results of actions that the first round begins with."},
    "previous_agent_results": {"description": "Results of earlier agents, told as an attachment beside those of the nodes before this one."},
    "context": {"description": "What the reasoner is told besides, in every round."},
    "user_profile": {"description": "What is known of the user, told in every round."},
    "attachments": {"type": "array", "description": "Documents for the reasoner, {id, description, content}; results of the nodes before this one are added.", "items": {"type": "object", "additionalProperties": false, "properties": {"id": {"type": "string"}, "description": {"type": "string"}, "content": {}, "uri": {"type": "string"}}}},
    "tool": {"description": "The tool that a plan names for the problem, told to the reasoner."},
    "arguments": {"type": "array", "description": "The arguments that a plan gave the problem, told to the reasoner.", "items": {"type": "object"}},
    "references": {"type": "array", "description": "What texts like #E1 in the problem of a plan stand for, told to the reasoner.", "items": {"type": "object"}},
    "previous_action_results": {"description": "Results of the actions that another agent did before it called this one as an action; told as an attachment."},
    "thread_id": {"type": "string", "description": "The thread to work on; when absent a new one, which is kept for an hour after its last use."},
    "conversation": {
      "type": "object", "additionalProperties": false,
      "description": "The thread to work on, which is made if it is not there; a team gives it to its members.",
      ` + standing.ConversationSchema + `
    },
    "shared_thread": {"type": "object", "description": "Where the agent stands that calls this one; share_thread sets it."}`

// callProperties are arguments of the node's own that bound one call.
const callProperties = `
    "budget": {
      "type": "object", "additionalProperties": false,
      "description": "What the agent may use before its run pauses.",
      "properties": {"nano_usd": {"type": "integer", "minimum": 0}, "tokens": {"type": "integer", "minimum": 0}}
    },
    "timeout": {"type": "string", "description": "How long the agent may take at most, like 1h."},
    "signals": {
      "type": "object", "maxProperties": 64,
      "description": "Tools that end the turn of an agent of the tools form, by name. Nothing is called; the result of the agent tells of them. An agent with a name takes these besides its own.",
      "propertyNames": {"pattern": "^[A-Za-z0-9_.-]{1,64}$"},
      "additionalProperties": {
        "type": "object", "additionalProperties": false,
        "properties": {
          "description": {"type": "string", "description": "What it is for, for the reasoner."},
          "schema": {"type": "object", "description": "JSON Schema of the arguments; any when absent."},
          "reply": {"type": "string", "maxLength": 2048, "description": "What the reasoner is told, with the first 100 characters of an argument as {NAME}; noted when absent."}
        }
      }
    },
    "as_message": {"type": "boolean", "description": "Whether the result is {text, calls, signals, thread_id}: the text, the names of the actions that were called in this turn, the signals that ended it, and the thread."},
    "thread": {
      "type": "object", "additionalProperties": false,
      "description": "How the thread is kept if no thread_id is given: a conversation until it is deleted, an ephemeral one for an hour after its last use (the default), that of a run until the agent's run has ended.",
      "properties": {
        "lifetime": {"enum": ["CONVERSATION", "EPHEMERAL", "RUN"]},
        "key": {"type": "string", "minLength": 1, "maxLength": 256, "description": "A conversation is found again by its key, or made. Without one the user, the chat and the agent of a run that has them are the key."},
        "name": {"type": "string", "minLength": 1, "maxLength": 256, "description": "What calls with this name share: a conversation of the run's user and chat, or without a lifetime the thread of one run. A call that finds the conversation at work in another run goes on with a copy."}
      }
    },
    "own_thread": {"type": "boolean", "description": "The agent takes a thread of its own and not that of the run: a part of that one, which the same node finds again in the next run there."},
    "upstream": {"type": "boolean", "description": "Whether the results of the nodes before this one are attached; true when absent."}`

var schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {` + givenProperties + `,
    "system": {"type": "string", "description": "Who the reasoner is to be; how to decide is told to it besides. Read from the node's own arguments only, as all that follow."},
    "reasoner": {"type": "string", "minLength": 1, "description": "The actor that decides: llm when absent, or any other, a remote worker's included."},
    "reasoner_args": {"type": "object", "description": "Named arguments of the reasoner, such as the model."},
    "form": {"enum": ["prompt", "tools"], "description": "How the reasoner is asked: by a prompt that a template makes of what is known (prompt, the default), or by the messages of the thread with the actions as native tools (tools)."},
    "template": {"type": "string", "description": "The template of the prompt, with placeholders like {conversation}; one that shows everything when absent."},
    "dispatch": {"type": "string", "minLength": 1, "description": "What a response means: groups of actions (groups, the default), a plan (plan), or the name of an actor that turns it into a decision."},
    "dispatch_args": {"type": "object", "description": "Named arguments of that actor, such as the script of starlark."},
    "solver": {"type": "object", "description": "What does a problem of a plan: {actor, …named arguments}; an agent gets the results of the problems before it as attachments."},
    "mcp_servers": {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 64}, "description": "MCP servers of the configuration whose tools may be called, besides the actions: those that each has when the agent begins."},
    "actions": {
      "type": "object", "maxProperties": 64,
      "description": "What may be done, by name. Nothing else is, whatever the reasoner writes.",
      "propertyNames": {"pattern": "^[A-Za-z0-9_.-]{1,64}$"},
      "additionalProperties": {
        "type": "object",
        "properties": {
          "actor": {"type": "string", "minLength": 1, "description": "The actor that does it; the one of the action's name when absent."},
          "description": {"type": "string", "description": "What it does, for the reasoner."},
          "named": {"type": "object", "description": "Arguments that it is called with. They are fixed, but those that the schema names among its properties may be given by the reasoner."},
          "schema": {"type": "object", "description": "JSON Schema of the arguments; without one any that named does not fix and the actor takes."},
          "timeout": {"type": "string", "description": "How long one call may take, like 30s."},
          "max_attempts": {"type": "integer", "minimum": 1, "maximum": 100},
          "effect": {"enum": ["PURE", "IDEMPOTENT", "UNSAFE"], "description": "Overrides what the actor says of itself."},
          "share_thread": {"type": "boolean", "description": "Whether an agent that is called works on the thread of its caller. When absent it does if it is handed over to."},
          "hand_over": {"type": "boolean", "description": "Whether an agent that is called goes on in the place of its caller: its result is the caller's, and it gets the later turns of the thread."}
        },
        "additionalProperties": false
      }
    },
    "allow_graph": {"type": "boolean", "description": "Whether the reasoner may also write a graph of actions."},
    "result_schema": {"type": "object", "description": "JSON Schema of the result; another result is given back to the reasoner."},
    "branch": {"type": "boolean", "description": "Whether each action of a parallel group is followed by a copy of the agent that goes on with its result; true when absent."},
    "branching_agent_start_as_new": {"type": "boolean", "description": "Whether such a copy begins without the states of the agent; it inherits them when absent."},
    "summarizer": {
      "type": "object", "additionalProperties": false,
      "description": "What makes one result of those of the branches: an actor, which gets them as results, or llm with a prompt that shows them as {action_result}; the list of them when absent.",
      "properties": {"actor": {"type": "string", "minLength": 1}, "named": {"type": "object"}, "prompt": {"type": "string", "minLength": 1}}
    },
    "max_rounds": {` + numberOf("max_rounds") + `, "description": "Decisions before the agent's run pauses; 10 when absent."},
    "max_actions": {` + numberOf("max_actions") + `, "description": "Actions in one round; 16 when absent."},
    "max_branches": {` + numberOf("max_branches") + `, "description": "Branches of one round before the agent's run pauses; 16 when absent."},
    "max_branch_depth": {` + numberOf("max_branch_depth") + `, "description": "How deep branches may lie in branches before the agent's run pauses; 5 when absent."},
    "max_no_progress": {` + numberOf("max_no_progress") + `, "description": "Equal rounds with equal results before the agent's run pauses; 5 when absent, 0 for no limit."},
    "history": {
      "type": "object", "additionalProperties": false,
      "description": "How much of the thread the reasoner is told. The oldest gives way; the thread keeps all of it.",
      "properties": {
        "messages": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "The newest messages that are told, or the newest states in the prompt form; 100 when absent."},
        "tokens": {"type": "integer", "minimum": 256, "maximum": 400000, "description": "Estimated tokens of all that is told in a round. When absent, the context_tokens of the reasoner's model profile without its answer and what is sent besides, or 65536 where that is not known. Never more than that."},
        "summarize": {
          "type": "object", "additionalProperties": false,
          "description": "Has the older part of the thread summarized before it gives way. The summary is kept in the thread and told in its place.",
          "properties": {
            "above": {"type": "integer", "minimum": 128, "maximum": 400000, "description": "Estimated tokens of the thread above which its older part is summarized; three quarters of tokens when absent."},
            "keep": {"type": "integer", "minimum": 1, "maximum": 200000, "description": "Estimated tokens of the newest part, which is told as it is; a quarter of above when absent."},
            "profile": {"type": "string", "minLength": 1, "description": "The model profile that summarizes; the reasoner's model when absent."},
            "actor": {"type": "string", "minLength": 1, "description": "The actor that summarizes in place of a model. It is told the request, and its result is the summary."},
            "prompt": {"type": "string", "minLength": 1, "description": "The request, with what is summarized as {conversation}."}
          }
        }
      }
    },
    "max_result_bytes": {` + numberOf("max_result_bytes") + `, "description": "What the reasoner is told of one result; 16384 when absent."},
    "task_tools": {"type": "array", "uniqueItems": true, "items": {"enum": ["ask_user", "learn", "new_task", "task_status"]}, "description": "Tools of the agent's own in the tools form, by which the reasoner asks the user, keeps a fact, says that a new task begins, and says how far the task is; all of them when absent."},
    "step_by_step": {"type": "boolean", "description": "Whether the agent's run pauses after every round."},` + callProperties + `
  }
}`

// Specs describes the actor and the actors of its loop. All of them compute: validation by an agent's schemas
// may take seconds. Limits tell what the models of reasoners take; nil means that it is not known.
func Specs(threads thread.Reader, limits Limits) []actor.Spec {
	l := &loop{threads: threads, definitions: newDefinitions(), plans: newPlans()}
	part := func(name, properties, description string, effect workgraph.Effect, f workgraph.ActorFunc) actor.Spec {
		return actor.Spec{Name: name, Version: "1", Effect: effect, SeesPlace: true, Computes: true, Internal: true, MakesInternal: true, Actor: uninterrupted(f),
			Schema:      `{"type": "object", "additionalProperties": false, "properties": {` + properties + `}}`,
			Description: description + " The agent actor uses it."}
	}
	const definition = `"definition": {"type": "object"}`
	return []actor.Spec{
		{Name: actorAgent, Version: "1", Effect: workgraph.Idempotent, SeesPlace: true, Computes: true, Schema: schema, Examine: examine, Inner: inner, WaitsFor: []string{"timeout"}, MakesInternal: true, Uncached: uncached,
			Actor:       limits.call(),
			Description: "Works toward a goal: a reasoner decides which of the allowed actions are done, hears their results, and decides again until the task is completed."},
		part(actorBegin, definition+`, "agent": {"type": "object"}`, "Begins an agent's loop on its thread.", workgraph.Idempotent, l.begin),
		part(actorAct, definition, "Turns a reasoner's response into actions, or refuses it. What it says is appended to the thread.", workgraph.Idempotent, l.act),
		part(actorLeave, `"text": {"type": "string"}`, "Fails the run of an agent whose question the user answers with another request.", workgraph.Pure, leave),
		part(actorGroups, definition, "Runs groups of actions.", workgraph.Pure, l.groups),
		part(actorGather, `"mode": {"type": "string"}, "from": {"type": "array"}, "prompt": {"type": "string"}, "names": {"type": "array"}, "max_bytes": {"type": "integer"}, "all_bytes": {"type": "integer"}`, "Puts results of actions together.", workgraph.Pure, gather),
		part(actorResults, `"layers": {"type": "array"}`, "Lists what became of the actions of a round.", workgraph.Pure, results),
		part(actorBranch, `"action": {"type": "string"}`, "Goes on with the result of one action of a parallel group.", workgraph.Idempotent, l.branch),
		part(actorSummary, definition, "Keeps a summary of the older part of an agent's thread.", workgraph.Idempotent, l.summarized),
		part(actorObserve, definition, "Ends an agent's round: its state is appended to the thread, and the next prompt or the result is made.", workgraph.Idempotent, l.observe),
	}
}

// uninterrupted is an actor whose outcome does not count if its call was ended meanwhile. Reading and
// checking fail then, and the reasoner must not be told so.
func uninterrupted(f workgraph.ActorFunc) workgraph.ActorFunc {
	return func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		out, err := f(ctx, c)
		if err == nil && ctx.Err() != nil {
			return workgraph.Outcome{}, actor.Interrupted(workgraph.NotPerformed)
		}
		return out, err
	}
}

// loop has what its actors need.
type loop struct {
	threads     thread.Reader
	definitions *definitions
	plans       *plans
}

// examine returns the faults of the arguments that only the node itself may state, as far as the schema does
// not find them.
func examine(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	if text, ok := actor.OwnText(n, "timeout"); ok {
		if _, err := wait.Timeout(text); err != nil {
			return actor.Faulty("timeout", err)
		}
	}
	if len(n.Named["actions"]) == 0 && len(n.Named["solver"]) == 0 {
		return []workgraph.Argument{{Arg: "actions", Fault: noActions, Hint: "they are read from the node's own arguments only"}}
	}
	_, err := ownDefinition(ctx, n.Named)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	name := "actions"
	if e, ok := errors.AsType[*argumentError](err); ok {
		name = e.argument
	}
	return actor.Faulty(name, err)
}

// inner are the reasoner, the actions, and what else the loop calls once it runs.
func inner(n *workgraph.Node) []workgraph.InnerNode {
	d := defaultDefinition()
	if own(n.Named, &d, []string{"reasoner", "reasoner_args", "dispatch_args", "dispatch", "solver", "summarizer", "history"}) != nil || own(n.Named, &d.policy, []string{"actions"}) != nil {
		return nil // examine has said so
	}
	at := func(place, name string, named map[string]json.RawMessage) workgraph.InnerNode {
		return workgraph.InnerNode{Node: &workgraph.Node{Actor: name, Named: named}, Place: "named." + place, ActorPlace: "named." + place + ".actor"}
	}
	reasoner := at("reasoner", d.Reasoner, d.ReasonerArgs)
	reasoner.ActorPlace = reasoner.Place
	out := []workgraph.InnerNode{reasoner}
	if d.Dispatch != dispatchGroups && d.Dispatch != dispatchPlan {
		of := at("dispatch", d.Dispatch, d.DispatchArgs)
		of.ActorPlace = of.Place
		out = append(out, of)
	}
	if s := d.Summarizer; s != nil && s.Actor != "" {
		out = append(out, at("summarizer", s.Actor, s.Named))
	}
	if len(d.Solver) > 0 {
		name, named := d.solver()
		out = append(out, at("solver", name, named))
	}
	if d.History.Summarize != nil {
		if s, err := d.summarizerNode(""); err == nil {
			out = append(out, at("history.summarize", s.Actor, s.Named))
		}
	}
	for _, name := range sorted(d.Actions) {
		x := d.Actions[name]
		if x == nil {
			x = &action{}
		}
		place := "actions." + errs.Clip(name, 64)
		in := at(place, x.Actor, x.Named)
		in.Node.Timeout, in.Node.Effect = x.Timeout, x.Effect
		if x.Actor == "" {
			in.Node.Actor, in.ActorPlace = name, in.Place
		}
		out = append(out, in)
	}
	return out
}

// ReasonActionsUnusable is the reason when an actor of the agent's node does not exist, or states a schema
// that cannot be used: no decision can correct that.
const ReasonActionsUnusable = "AGENT_ACTIONS_UNUSABLE"

// call is the actor that starts the run of an agent's loop and waits for it.
func (l Limits) call() workgraph.Actor {
	return workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		d, err := ownDefinition(ctx, c.Own)
		if err != nil {
			return workgraph.Outcome{}, err
		}
		return d.call(ctx, c, l)
	})
}

func (d *definition) call(ctx context.Context, c *workgraph.Call, limits Limits) (workgraph.Outcome, error) {
	given, err := limitsOf(c.Own)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	kept, err := keepingOf(c.Own, d.Thread)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	in, err := readInput(c, kept)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	in.Agent, in.Name, d.Thread = c.Actor, nameOf(c), nil // the loop depends on the definition alone
	if err := d.serve(ctx); err != nil {
		return workgraph.Outcome{}, err
	}
	if err := d.resolve(ctx); err != nil {
		return workgraph.Outcome{}, err
	}
	d.ToolsText = d.tools()
	d.bound(limits)
	return d.start(in, d.limits.lowered(given), false)
}

// start spawns the run of the loop.
func (d *definition) start(in *instance, limits callLimits, sameDepth bool) (workgraph.Outcome, error) {
	g, err := d.graph()
	if err != nil {
		return workgraph.Outcome{}, err
	}
	raw, err := actor.Encode(in)
	if err != nil {
		return workgraph.Outcome{}, actor.BadArguments("%v", err)
	}
	run := workgraph.Child{Graph: g, Input: workgraph.Input{Named: map[string]json.RawMessage{"agent": raw}}, Budget: limits.budget, SameDepth: sameDepth, Agent: in.run()}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{run}, Timeout: limits.timeout, AsResult: true}}}, nil
}

// resolve finds the actors of the definition, and takes over the schemas that they state.
func (d *definition) resolve(ctx context.Context) error {
	names := map[string]string{d.Reasoner: "reasoner"}
	if d.Dispatch != dispatchGroups && d.Dispatch != dispatchPlan {
		names[d.Dispatch] = "dispatch"
	}
	if s := d.Summarizer; s != nil && s.Actor != "" {
		names[s.Actor] = "summarizer"
	}
	if len(d.Solver) > 0 {
		name, _ := d.solver()
		names[name] = "solver"
	}
	if s := d.History.Summarize; s != nil {
		names[cmp.Or(s.Actor, actorLLM)] = "history.summarize"
	}
	for name, a := range d.Actions {
		names[a.Actor] = "actions." + name
	}
	known, err := actor.DirectoryOf(ctx).Find(ctx, sorted(names))
	if err != nil {
		return workgraph.Errorf(workgraph.Retryable, ReasonActionsUnusable, "the actors cannot be looked up: %v", err)
	}
	for _, name := range sorted(names) {
		if _, ok := known[name]; !ok {
			return workgraph.Errorf(workgraph.Permanent, ReasonActionsUnusable, "%s: there is no actor %q", names[name], name)
		}
	}
	for name, a := range d.Actions {
		if of := known[a.Actor].EffectOf; of != nil {
			a.OwnEffect = of(&workgraph.Node{Actor: a.Actor, Named: a.Named})
		}
		if a.Description == "" && a.Actor != actorAgent {
			a.Description = errs.Clip(known[a.Actor].Description, maxDescription)
		}
		if isAgent(a.Actor) {
			continue // its schema is about its definition
		}
		a.ActorSchema = known[a.Actor].Schema
		if err := a.check(ctx); err != nil {
			return workgraph.Errorf(workgraph.Permanent, ReasonActionsUnusable, "actions.%s: %v", name, err)
		}
	}
	return nil
}

func value(v any) (workgraph.Outcome, error) {
	raw, err := actor.Encode(v)
	if err != nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, workgraph.ReasonBadOutcome, "%v", err)
	}
	return workgraph.Outcome{Values: []json.RawMessage{raw}}, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// faults collects the faults of a decision, for the reasoner.
type faults []string

const maxFaults = 10

func (f *faults) add(format string, args ...any) {
	*f = append(*f, fmt.Sprintf(format, args...))
}

func (f faults) String() string {
	if n := len(f) - maxFaults; n > 0 {
		return strings.Join(f[:maxFaults], "\n") + fmt.Sprintf("\nand %d more", n)
	}
	return strings.Join(f, "\n")
}
