package mcpserver

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Properties of the schemas. The tools of agents have the same: a test compares them.
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

	canceledWord = "cancelled"
)

// The words for what the API numbers, in the order of the numbers, from 1.
func epicStates() []string {
	return []string{"planning", "active", "paused", "completed", "failed", canceledWord}
}

func taskStates() []string {
	return []string{"pending", "blocked", "running", "completed", "failed", canceledWord}
}

func sources() []string  { return []string{"inline", "existing", "created", "template"} }
func policies() []string { return []string{"block", "skip", "fail"} }

// wordOf is the word for a number of the API, or "".
func wordOf[E ~int32](words []string, n E) string {
	if n < 1 || int(n) > len(words) {
		return ""
	}
	return words[n-1]
}

// numberOf is the number of a word, and 0 for none.
func numberOf[E ~int32](name, word string, words []string) (E, error) {
	if word = strings.ToLower(strings.TrimSpace(word)); word == "canceled" && slices.Contains(words, canceledWord) {
		word = canceledWord
	}
	if word != "" && !slices.Contains(words, word) {
		return 0, badArguments("Invalid %s %q. Must be one of: %s", name, errs.Clip(word, 60), strings.Join(slices.Sorted(slices.Values(words)), ", "))
	}
	return E(slices.Index(words, word) + 1), nil
}

// listOf is a list of texts, or a text with commas between its parts; empty parts and repetitions
// do not count.
func listOf(name string, raw json.RawMessage, most int) (out []string, err error) {
	var parts []string
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case json.Unmarshal(raw, &text) == nil:
		parts = strings.Split(text, ",")
	case json.Unmarshal(raw, &parts) != nil:
		return nil, badArguments("%s must be a list of texts, or a text with commas between them", name)
	}
	seen := map[string]bool{}
	for _, s := range parts {
		if s = strings.TrimSpace(s); s == "" || seen[s] {
			continue
		}
		if seen[s] = true; len(out) == most {
			return nil, badArguments("Too many %s specified. Maximum is %d.", name, most)
		}
		out = append(out, s)
	}
	return out, nil
}

func priorityOf(p *int) (registryv1.Priority, error) {
	if p == nil {
		return 0, nil
	}
	if *p < 1 || *p > 4 {
		return 0, badArguments("Priority must be between 1 and 4")
	}
	return registryv1.Priority(*p), nil
}

func epicTools() []*tool {
	return []*tool{
		{name: "epic_create", repeats: true, description: "Makes an epic: a goal that takes several tasks, with tags to find it by and a budget. Answers its epic_id.",
			schema: object(`"title"`, `"title": {"type": "string", "maxLength": 512, "description": "Its short name."},
    "description": {"type": "string", "description": "The goal, its constraints, and how success is judged."}, `+tagsProperty+`, `+priorityProperty+`, `+budgetProperties+`, `+requestProperty), does: createEpic},
		{name: "epic_status", reads: true, description: "Tells how far an epic is: its counters, what it cost, and its tasks.", schema: object(`"epic_id"`, epicProperty), does: epicStatus},
		{name: "epic_update", repeats: true, destroys: true, description: "Changes an epic: its status (active, paused, completed, failed, cancelled), texts, tags, priority and budget. A completed epic takes a result_summary. Canceling it cancels its open tasks and their runs.",
			schema: object(`"epic_id"`, epicProperty+`, "status": {"type": "string", "description": "Where it goes: active, paused, completed, failed or cancelled."},
    "title": {"type": "string", "maxLength": 512}, "description": {"type": "string"}, `+tagsProperty+`, `+priorityProperty+`, `+budgetProperties+`, "result_summary": {"type": "string", "description": "What came of it."}, `+requestProperty), does: updateEpic},
		{name: "epic_search", reads: true, description: "Looks for epics of the past by words of their titles, tags, descriptions and results and those of their tasks, best first, with their workflows, success rate and cost.",
			schema: object(``, `"query": {"type": "string", "maxLength": 1024, "description": "Words to look for; the newest epics when absent."}, `+tagsProperty+`,
    "status": {"type": "string", "description": "Only epics of this status, such as completed."}, "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 10 when absent."}`), does: searchEpics},
	}
}

// epicArguments are those of tools that make or change an epic.
type epicArguments struct {
	EpicID      string          `json:"epic_id"`
	Title       *string         `json:"title"`
	Description *string         `json:"description"`
	Tags        json.RawMessage `json:"tags"`
	Priority    *int            `json:"priority"`
	Tokens      *int64          `json:"budget_tokens"`
	USD         *float64        `json:"budget_usd"`
	Status      string          `json:"status"`
	Result      *string         `json:"result_summary"`
	Request     string          `json:"request_id"`
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// epic is the epic that the arguments say.
func (a *epicArguments) epic() (e *registryv1.Epic, err error) {
	e = &registryv1.Epic{Id: a.EpicID, Title: strings.TrimSpace(text(a.Title)), Description: text(a.Description), ResultSummary: text(a.Result), BudgetTokens: a.Tokens}
	if e.Tags, err = listOf("tags", a.Tags, 20); err != nil {
		return nil, err
	}
	if e.Priority, err = priorityOf(a.Priority); err != nil {
		return nil, err
	}
	if a.USD != nil {
		if !(*a.USD >= 0 && *a.USD <= 1e9) {
			return nil, badArguments("budget_usd must be from 0 to 1000000000")
		}
		nano := int64(math.Round(*a.USD * 1e9))
		e.BudgetNanoUsd = &nano
	}
	return e, nil
}

func createEpic(ctx context.Context, c *call) (any, error) {
	var a epicArguments
	if err := c.read(&a); err != nil {
		return nil, err
	}
	e, err := a.epic()
	if err != nil {
		return nil, err
	}
	got, err := asked(ctx, c.Server, c.Registry.CreateEpic, &registryv1.CreateEpicRequest{Epic: e, RequestId: a.Request})
	if err != nil {
		return nil, err
	}
	return map[string]any{"success": true, "epic_id": got.GetId(), "title": got.GetTitle(), "status": wordOf(epicStates(), got.GetState())}, nil
}

// shownEpic is an epic as a model reads it.
func shownEpic(e *registryv1.Epic) map[string]any {
	out := map[string]any{
		"epic_id": e.GetId(), "title": errs.Clip(e.GetTitle(), 200), "status": wordOf(epicStates(), e.GetState()), "priority": int32(e.GetPriority()), "total_tasks": e.GetTotalTasks(),
		"completed_tasks": e.GetCompletedTasks(), "failed_tasks": e.GetFailedTasks(), "spent_tokens": e.GetSpentTokens(), "spent_usd": dollars(e.GetSpentNanoUsd()),
	}
	if e.GetAgentOverheadTokens() > 0 {
		out["agent_overhead_tokens"], out["agent_overhead_usd"] = e.GetAgentOverheadTokens(), dollars(e.GetAgentOverheadNanoUsd())
	}
	if e.GetUnpricedCalls() > 0 { // spent_usd is not all of it
		out["unpriced_calls"] = e.GetUnpricedCalls()
	}
	if e.BudgetTokens != nil {
		out["budget_tokens"] = e.GetBudgetTokens()
	}
	if e.BudgetNanoUsd != nil {
		out["budget_usd"] = dollars(e.GetBudgetNanoUsd())
	}
	if e.GetResultSummary() != "" {
		out["result_summary"] = errs.Clip(e.GetResultSummary(), maxTold)
	}
	return out
}

func epicStatus(ctx context.Context, c *call) (any, error) {
	var a epicArguments
	if err := c.read(&a); err != nil {
		return nil, err
	}
	return c.epicWithTasks(ctx, a.EpicID)
}

func (s *Server) epicWithTasks(ctx context.Context, id string) (map[string]any, error) {
	e, err := asked(ctx, s, s.Registry.GetEpic, &registryv1.GetEpicRequest{EpicId: id})
	if err != nil {
		return nil, err
	}
	tasks, _, err := s.tasks(ctx, &registryv1.ListTasksRequest{EpicId: id, PageSize: maxList})
	if err != nil {
		return nil, err
	}
	out, list := shownEpic(e), make([]map[string]any, len(tasks))
	for i, t := range tasks {
		list[i] = shownTask(t)
	}
	out["success"], out["tasks"] = true, list
	if left := int(e.GetTotalTasks()) - len(list); left > 0 {
		out["tasks_left_out"] = left
	}
	return out, nil
}

// change changes fields first, since a raised budget may be what a move needs, and then moves. Requests
// are known by their method and id, so one id serves both. If only the move is refused, the error says
// that the fields are changed.
func change[T any](fields []string, moves bool, request string, set, move func(request string) (T, error)) (out T, err error) {
	if len(fields) > 0 {
		if out, err = set(request); err != nil {
			return out, err
		}
	}
	if !moves {
		return out, nil
	}
	if out, err = move(request); err != nil && len(fields) > 0 {
		e := *errs.From(err)
		e.Message += "; changed are: " + strings.Join(fields, ", ")
		err = &e
	}
	return out, err
}

// given are the names of what is there.
func given(fields ...field) (out []string) {
	for _, f := range fields {
		if f.there {
			out = append(out, f.name)
		}
	}
	return out
}

type field struct {
	name  string
	there bool
}

func updateEpic(ctx context.Context, c *call) (any, error) {
	var a epicArguments
	if err := c.read(&a); err != nil {
		return nil, err
	}
	e, err := a.epic()
	if err != nil {
		return nil, err
	}
	to, err := numberOf[registryv1.EpicState]("status", a.Status, epicStates())
	if err != nil {
		return nil, err
	}
	moves := to != 0
	fields := given(field{"title", a.Title != nil}, field{"description", a.Description != nil}, field{"priority", a.Priority != nil}, field{"budget_tokens", a.Tokens != nil},
		field{"budget_nano_usd", a.USD != nil}, field{"result_summary", a.Result != nil && (!moves || *a.Result == "")}, field{"tags", there(a.Tags)})
	if len(fields) == 0 && !moves {
		return nil, badArguments("there is nothing to change: give status, title, description, tags, priority, budget_tokens, budget_usd or result_summary")
	}
	got, err := change(fields, moves, a.Request, func(request string) (*registryv1.Epic, error) {
		return asked(ctx, c.Server, c.Registry.UpdateEpic, &registryv1.UpdateEpicRequest{Epic: e, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}, RequestId: request})
	}, func(request string) (*registryv1.Epic, error) {
		return asked(ctx, c.Server, c.Registry.TransitionEpic, &registryv1.TransitionEpicRequest{EpicId: e.GetId(), State: to, ResultSummary: e.GetResultSummary(), RequestId: request})
	})
	if err != nil {
		return nil, err
	}
	out := shownEpic(got)
	out["success"] = true
	return out, nil
}

func searchEpics(ctx context.Context, c *call) (any, error) {
	var a struct {
		Query  string          `json:"query"`
		Tags   json.RawMessage `json:"tags"`
		Status string          `json:"status"`
		Limit  *int            `json:"limit"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	tags, err := listOf("tags", a.Tags, 20)
	if err != nil {
		return nil, err
	}
	state, err := numberOf[registryv1.EpicState]("status", a.Status, epicStates())
	if err != nil {
		return nil, err
	}
	var states []registryv1.EpicState
	if state != 0 {
		states = append(states, state)
	}
	found, err := c.foundEpics(ctx, strings.TrimSpace(a.Query), tags, states, limited(a.Limit, 10))
	if err != nil {
		return nil, err
	}
	results := make([]map[string]any, len(found))
	var cost int64
	var completed, ended float64
	for i, m := range found {
		e := m.GetEpic()
		r := shownEpic(e)
		r["description"], r["tags"], r["workflow_slugs"], r["success_rate"] = errs.Clip(e.GetDescription(), maxTold), orNone(e.GetTags()), orNone(m.GetWorkflowSlugs()), m.SuccessRate
		results[i] = r
		cost += e.GetSpentNanoUsd()
		completed += float64(e.GetCompletedTasks())
		ended += float64(e.GetCompletedTasks() + e.GetFailedTasks())
	}
	out := map[string]any{"success": true, "results": results, "success_rate": nil, "avg_cost": nil}
	if ended > 0 {
		out["success_rate"] = math.Round(completed/ended*1e4) / 1e4
	}
	if len(found) > 0 {
		out["avg_cost"] = dollars(cost / int64(len(found)))
	}
	return out, nil
}

// foundEpics are epics by words, the best first, or without words the newest. A page may have fewer than
// asked for.
func (s *Server) foundEpics(ctx context.Context, query string, tags []string, states []registryv1.EpicState, limit int32) (all []*registryv1.EpicMatch, err error) {
	req := &registryv1.SearchEpicsRequest{Query: query, States: states, Tags: tags}
	for range maxPages {
		req.PageSize = limit - int32(len(all))
		r, err := asked(ctx, s, s.Registry.SearchEpics, req)
		if err != nil {
			return nil, err
		}
		if all = append(all, r.GetMatches()...); r.GetNextPageToken() == "" || len(all) >= int(limit) {
			break
		}
		req.PageToken = r.GetNextPageToken()
	}
	return all, nil
}

func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
