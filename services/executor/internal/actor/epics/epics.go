// Package epics has the actors that make epics and tasks, change them and look for them. It owns what they
// take, and how they tell it to a model; it must not know where epics are kept.
package epics

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Bounds of one call.
const (
	// maxTitle, maxText, maxTag and maxSlug bound texts, in bytes; maxTags and maxDepends bound lists.
	maxTitle, maxText, maxTag, maxSlug, maxTags, maxDepends = 512, 16 << 10, 128, 256, 20, 100
	// maxRequirements and maxInput bound the requirements and the input of a task in bytes, and maxID an id.
	maxRequirements, maxInput, maxID = 16 << 10, 64 << 10, 64
	// maxEstimate bounds the estimate of a task in tokens, and maxRetries how often it is tried again.
	maxEstimate, maxRetries = 1_000_000_000_000, 100
	// maxFound is how many epics or tasks are told at most. maxTold and maxTitleTold bound their texts.
	maxFound, maxTold, maxTitleTold = 100, 300, 200
	// maxPages is how many pages are read for one answer.
	maxPages = 5
)

// Epic is an epic as an actor makes, changes and tells it.
type Epic struct {
	ID, Title, Description, Status, Result, Workflow, User, Node string
	Tags                                                         []string
	Priority                                                     int
	BudgetTokens, BudgetNanoUSD                                  *int64
	SpentTokens, SpentNanoUSD, OverheadTokens, OverheadNanoUSD   int64
	UnpricedCalls                                                int64
	Total, Completed, Failed                                     int32
	// Root is the maker of the epic, as the registry has it of the executor: see access.Maker. It is
	// empty if no run made it.
	Root string
	// Workflows and SuccessRate are known of epics that were searched for.
	Workflows   []string
	SuccessRate *float64
}

// Task is a task as an actor makes, changes and tells it.
type Task struct {
	ID, EpicID, Title, Description, Status, Result, Error, Note, Workflow, Source, RunID, Node, Policy string
	Tags, DependsOn, BlockedBy                                                                         []string
	Priority                                                                                           int
	// Requirements is a JSON object, or empty.
	Requirements json.RawMessage
	// Input is a JSON object, or empty.
	Input                       json.RawMessage
	EstimatedTokens             int64
	MaxRetries, RetryCount      int32
	ActualTokens, ActualNanoUSD int64
	// RunWorkflow is the version of the catalog that RunID runs, as SLUG@VERSION; empty for another graph.
	RunWorkflow string
}

// Search says which epics are looked for.
type Search struct {
	Text   string
	Tags   []string
	Status string
	Limit  int
	// User leaves out epics of other users; all are found if it is empty.
	User string
}

// Filter says which tasks are listed.
type Filter struct {
	EpicID, Status, Page string
	Tags                 []string
	Limit                int
}

// Registry keeps the epics and tasks of namespaces. It is safe for concurrent use. A request id makes a
// change once, however often it is asked for. Statuses are the words of States and TaskStates.
type Registry interface {
	CreateEpic(ctx context.Context, namespace string, e Epic, request string) (Epic, error)
	Epic(ctx context.Context, namespace, id string) (Epic, error)
	// ChangeEpic takes the named fields from e.
	ChangeEpic(ctx context.Context, namespace string, e Epic, fields []string, request string) (Epic, error)
	// MoveEpic takes the epic to the status of e; its result is kept if it is empty.
	MoveEpic(ctx context.Context, namespace string, e Epic, request string) (Epic, error)
	// SearchEpics finds epics, the best first, or without a text the newest first.
	SearchEpics(ctx context.Context, namespace string, s Search) ([]Epic, error)
	CreateTask(ctx context.Context, namespace string, t Task, request string) (Task, error)
	Task(ctx context.Context, namespace, id string) (Task, error)
	// ListTasks returns a page of tasks, oldest first, and the token of the next one.
	ListTasks(ctx context.Context, namespace string, f Filter) ([]Task, string, error)
	// ChangeTask takes the named fields from t; a note is added.
	ChangeTask(ctx context.Context, namespace string, t Task, fields []string, request string) (Task, error)
	// MoveTask takes the task to the status of t, with its result, error and note if there are such. From
	// pending to completed it passes through running, at once.
	MoveTask(ctx context.Context, namespace string, t Task, request string) (Task, error)
}

// States are the words for the states of an epic, and TaskStates those for the states of a task, in the order
// of the numbers that the registry has for them, from 1.
func States() []string {
	return []string{"planning", "active", "paused", completed, failed, CanceledWord}
}

// TaskStates are the words for the states of a task.
func TaskStates() []string {
	return []string{"pending", "blocked", running, completed, failed, CanceledWord}
}

// Sources are the words for where the workflow of a task came from, in the order of their numbers.
func Sources() []string { return []string{"inline", sourceExisting, "created", "template"} }

// Policies are the words for what becomes of a task that waits in vain, in the order of their numbers.
func Policies() []string { return []string{"block", "skip", "fail"} }

const running, completed, failed, sourceExisting = "running", "completed", "failed", "existing"

// ended reports whether nothing follows a status of an epic.
func ended(status string) bool {
	return status == "completed" || status == "failed" || status == CanceledWord
}

// CanceledWord is the word of the tools for what the API calls canceled.
const CanceledWord = "cancelled"

// Properties of the schemas.
const (
	tagsProperty     = `"tags": {"description": "A list of words, or words with commas between them; 20 at most."}`
	priorityProperty = `"priority": {"type": "integer", "minimum": 1, "maximum": 4, "description": "1 critical, 2 high, 3 medium, 4 low."}`
	budgetProperties = `"budget_tokens": {"type": "integer", "minimum": 0, "description": "How many tokens may be spent; no bound when absent."},
    "budget_usd": {"type": "number", "minimum": 0, "description": "How many dollars may be spent; no bound when absent."}`
	epicProperty         = `"epic_id": {"type": "string", "maxLength": 64, "description": "The id of the epic, ep_…"}`
	inputProperty        = `"input": {"description": "Inputs of the workflow that does it, as an object or its JSON as a text. The workflow is told title, description, task_id and epic_id besides."}`
	policyProperty       = `"dependency_policy": {"type": "string", "description": "What becomes of it when a task that it depends on has failed or was cancelled: block (it waits), skip (it is cancelled) or fail; as the epic says when absent."}`
	dependsProperty      = `"depends_on": {"description": "Ids of tasks of the same epic that come first: a list, or ids with commas between them."}`
	requirementsProperty = `"requirements": {"description": "What a workflow must offer to do it, as an object or its JSON as a text: triggers, node_types, tools, tags, description, model_capability."}`
	sourceProperty       = `"workflow_source": {"type": "string", "enum": ["inline", "existing", "created"], "description": "Where that workflow comes from: existing, or created for the task; inline is done without one."}`
	estimateProperties   = `"estimated_tokens": {"type": "integer", "minimum": 0, "description": "How many tokens it will use, as far as you know; a cap must leave room for them."},
    "max_retries": {"type": "integer", "minimum": 0, "maximum": 100, "description": "How often it may be tried again; 2 when absent."}`
	taskProperty = `"task_id": {"type": "string", "maxLength": 64, "description": "The id of the task, tk_…"}`
)

func schema(required, properties string) string {
	return `{"type": "object", "additionalProperties": false, "required": [` + required + `], "properties": {` + properties + `}}`
}

// reasonNone is the reason where no registry is configured.
const reasonNone = "NO_CATALOG"

// act is what an actor does.
type act func(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error)

// Specs describe the actors over a registry; nil stands for none, with which calls fail.
func Specs(r Registry) []actor.Spec {
	unavailable := ""
	if r == nil {
		unavailable = "no registry is configured: upstream.registry"
	}
	spec := func(name string, effect workgraph.Effect, description, schema string, does act) actor.Spec {
		return actor.Spec{
			Name: name, Version: "1", Effect: effect, SeesPlace: true, Elsewhere: true, Schema: schema, Unavailable: unavailable, Description: description,
			Uncached: func(*workgraph.Node) string { return "epics and tasks change between two calls" },
			Actor: workgraph.ActorFunc(func(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
				if r == nil {
					return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, reasonNone, "this executor reaches no registry, so it has no epics and tasks")
				}
				return does(ctx, r, call)
			}),
		}
	}
	return []actor.Spec{
		spec("epic_create", workgraph.Idempotent, "Makes an epic: a goal that takes several tasks, with tags to find it by and a budget. Answers its epic_id.",
			schema(`"title"`, `"title": {"type": "string", "maxLength": 512, "description": "Its short name."},
    "description": {"type": "string", "description": "The goal, its constraints, and how success is judged."}, `+tagsProperty+`, `+priorityProperty+`, `+budgetProperties), createEpic),
		spec("epic_status", workgraph.Pure, "Tells how far an epic is: its counters, what it cost, and its tasks.", schema(`"epic_id"`, epicProperty), statusOfEpic),
		spec("epic_update", workgraph.Idempotent, "Changes an epic: its status (active, paused, completed, failed, cancelled), texts, tags, priority and budget. A completed epic takes a result_summary. Canceling it cancels its open tasks and their runs.",
			schema(`"epic_id"`, epicProperty+`, "status": {"type": "string", "description": "Where it goes: active, paused, completed, failed or cancelled."},
    "title": {"type": "string", "maxLength": 512}, "description": {"type": "string"}, `+tagsProperty+`, `+priorityProperty+`, `+budgetProperties+`, "result_summary": {"type": "string", "description": "What came of it."}`), updateEpic),
		spec("epic_search", workgraph.Pure, "Looks for epics of the past by words of their titles, tags, descriptions and results and those of their tasks, best first, with their workflows, success rate and cost.",
			schema(``, `"query": {"type": "string", "maxLength": 1024, "description": "Words to look for; the newest epics when absent."}, `+tagsProperty+`,
    "status": {"type": "string", "description": "Only epics of this status, such as completed."}, "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 10 when absent."}`), searchEpics),
		spec("task_create", workgraph.Idempotent, "Adds a task to an epic. It is blocked until the tasks that it depends on are completed. Answers its task_id.",
			schema(`"epic_id", "title"`, epicProperty+`, "title": {"type": "string", "maxLength": 512, "description": "What is to be done, in few words."}, "description": {"type": "string"}, `+tagsProperty+`,
    `+dependsProperty+`, `+policyProperty+`, `+inputProperty+`, `+priorityProperty+`, `+requirementsProperty+`, "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow that is to do it."}, `+sourceProperty+`, `+estimateProperties), createTask),
		spec("task_list", workgraph.Pure, "Lists tasks, oldest first, by epic, status and tags.",
			schema(``, epicProperty+`, "status": {"type": "string", "description": "pending, blocked, running, completed, failed or cancelled."}, `+tagsProperty+`,
    "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 20 when absent."}, "page_token": {"type": "string", "maxLength": 2048, "description": "The next_page_token of the answer before."}`), listTasks),
		spec("task_update", workgraph.Idempotent, "Changes a task: its status (pending to try it again, running, completed, failed, cancelled), texts, tags, priority, workflow, requirements, input, estimate, retries and what it waits for, or adds a note. Work that is done without a run begins with running, from when on it is booked on the task, and ends with completed and a result_summary.",
			schema(`"task_id"`, taskProperty+`, "status": {"type": "string", "description": "Where it goes: pending, running, completed, failed or cancelled."}, "title": {"type": "string", "maxLength": 512},
    "description": {"type": "string"}, `+priorityProperty+`, "result_summary": {"type": "string", "description": "What came of it."}, "error_message": {"type": "string", "description": "What went wrong."},
    "notes": {"type": "string", "description": "A remark to add."}, `+dependsProperty+`, `+policyProperty+`, `+inputProperty+`, "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow that does it."}, `+sourceProperty+`, `+tagsProperty+`, `+requirementsProperty+`, `+estimateProperties), updateTask),
		spec("task_cancel", workgraph.Idempotent, "Cancels a task, and the run that works on it.",
			schema(`"task_id"`, taskProperty+`, "reason": {"type": "string", "description": "Why."}`), cancelTask),
	}
}

// told is what comes of an error: an answer that the caller can act on, or the end of the attempt.
func told(ctx context.Context, err error) (workgraph.Outcome, error) {
	return catalog.Answer(ctx, err, "")
}
