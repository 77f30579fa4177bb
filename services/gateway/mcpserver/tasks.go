package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// maxDepends is how many tasks one may wait for, and maxPages how many pages are read for one
	// answer.
	maxDepends, maxPages = 100, 5
)

func taskTools() []*tool {
	return []*tool{
		{name: "task_create", repeats: true, description: "Adds a task to an epic. It is blocked until the tasks that it depends on are completed. Answers its task_id.",
			schema: object(`"epic_id", "title"`, epicProperty+`, "title": {"type": "string", "maxLength": 512, "description": "What is to be done, in few words."}, "description": {"type": "string"}, `+tagsProperty+`,
    `+dependsProperty+`, `+policyProperty+`, `+inputProperty+`, `+priorityProperty+`, `+requirementsProperty+`, "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow that is to do it."}, `+sourceProperty+`, `+estimateProperties+`, `+requestProperty), does: createTask},
		{name: "task_list", reads: true, description: "Lists tasks, oldest first, by epic, status and tags.",
			schema: object(``, epicProperty+`, "status": {"type": "string", "description": "pending, blocked, running, completed, failed or cancelled."}, `+tagsProperty+`,
    "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 20 when absent."}, "page_token": {"type": "string", "maxLength": 2048, "description": "The next_page_token of the answer before."}`), does: listTasks},
		{name: "task_update", repeats: true, destroys: true, description: "Changes a task: its status (pending to try it again, running, completed, failed, cancelled), texts, tags, priority, workflow, requirements, input, estimate, retries and what it waits for, or adds a note. Work that is done without a run begins with running, from when on it is booked on the task, and ends with completed and a result_summary.",
			schema: object(`"task_id"`, taskProperty+`, "status": {"type": "string", "description": "Where it goes: pending, running, completed, failed or cancelled."}, "title": {"type": "string", "maxLength": 512},
    "description": {"type": "string"}, `+priorityProperty+`, "result_summary": {"type": "string", "description": "What came of it."}, "error_message": {"type": "string", "description": "What went wrong."},
    "notes": {"type": "string", "description": "A remark to add."}, `+dependsProperty+`, `+policyProperty+`, `+inputProperty+`, "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow that does it."}, `+sourceProperty+`, `+tagsProperty+`, `+requirementsProperty+`, `+estimateProperties+`, `+requestProperty), does: updateTask},
		{name: "task_cancel", repeats: true, destroys: true, description: "Cancels a task, and the run that works on it.",
			schema: object(`"task_id"`, taskProperty+`, "reason": {"type": "string", "description": "Why."}, `+requestProperty), does: cancelTask},
	}
}

// taskArguments are those of tools that make or change a task.
type taskArguments struct {
	EpicID       string          `json:"epic_id"`
	TaskID       string          `json:"task_id"`
	Title        *string         `json:"title"`
	Description  *string         `json:"description"`
	Tags         json.RawMessage `json:"tags"`
	DependsOn    json.RawMessage `json:"depends_on"`
	Policy       *string         `json:"dependency_policy"`
	Input        json.RawMessage `json:"input"`
	Priority     *int            `json:"priority"`
	Requirements json.RawMessage `json:"requirements"`
	Workflow     *string         `json:"workflow_slug"`
	Source       *string         `json:"workflow_source"`
	Estimated    *int64          `json:"estimated_tokens"`
	Retries      *int32          `json:"max_retries"`
	Status       string          `json:"status"`
	Result       *string         `json:"result_summary"`
	Error        *string         `json:"error_message"`
	Notes        string          `json:"notes"`
	Request      string          `json:"request_id"`
}

// objectOf is a JSON object, given as such or as a text.
func objectOf(name string, raw json.RawMessage) (*graphv1.Payload, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(strings.TrimSpace(text))
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil //nolint:nilnil // it is absent
	}
	var object map[string]json.RawMessage
	var out bytes.Buffer
	if json.Unmarshal(raw, &object) != nil || object == nil || json.Compact(&out, raw) != nil {
		return nil, badArguments("%s must be an object, or its JSON as a text", name)
	}
	return &graphv1.Payload{Json: out.Bytes()}, nil
}

// task is the task that the arguments say.
func (a *taskArguments) task() (t *registryv1.Task, err error) {
	t = &registryv1.Task{
		Id: a.TaskID, EpicId: a.EpicID, Title: strings.TrimSpace(text(a.Title)), Description: text(a.Description), WorkflowSlug: text(a.Workflow),
		ResultSummary: text(a.Result), ErrorMessage: text(a.Error),
	}
	if t.Tags, err = listOf("tags", a.Tags, 20); err != nil {
		return nil, err
	}
	if t.DependsOn, err = listOf("depends_on", a.DependsOn, maxDepends); err != nil {
		return nil, err
	}
	if t.Priority, err = priorityOf(a.Priority); err != nil {
		return nil, err
	}
	if t.DependencyPolicy, err = numberOf[registryv1.DependencyPolicy]("dependency_policy", text(a.Policy), policies()); err != nil {
		return nil, err
	}
	if t.WorkflowSource, err = numberOf[registryv1.WorkflowSource]("workflow_source", text(a.Source), sources()); err != nil {
		return nil, err
	}
	if t.WorkflowSlug != "" && a.Source == nil {
		t.WorkflowSource = registryv1.WorkflowSource_WORKFLOW_SOURCE_EXISTING
	}
	if t.Input, err = objectOf("input", a.Input); err != nil {
		return nil, err
	}
	if t.Requirements, err = objectOf("requirements", a.Requirements); err != nil {
		return nil, err
	}
	if a.Estimated != nil {
		t.EstimatedTokens = *a.Estimated
	}
	switch {
	case a.Retries == nil:
	case *a.Retries < 0 || *a.Retries > 100:
		return nil, badArguments("max_retries must be from 0 to 100")
	case *a.Retries == 0:
		t.MaxRetries = -1 // as the registry says it
	default:
		t.MaxRetries = *a.Retries
	}
	return t, nil
}

func createTask(ctx context.Context, c *call) (any, error) {
	var a taskArguments
	if err := c.read(&a); err != nil {
		return nil, err
	}
	t, err := a.task()
	if err != nil {
		return nil, err
	}
	got, err := asked(ctx, c.Server, c.Registry.CreateTask, &registryv1.CreateTaskRequest{Task: t, RequestId: a.Request})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"success": true, "task_id": got.GetId(), "epic_id": got.GetEpicId(), "title": got.GetTitle(), "status": wordOf(taskStates(), got.GetState()), "depends_on": orNone(got.GetDependsOn()),
	}, nil
}

// shownTask is a task as a model reads it.
func shownTask(t *registryv1.Task) map[string]any {
	out := map[string]any{
		"id": t.GetId(), "title": errs.Clip(t.GetTitle(), 200), "status": wordOf(taskStates(), t.GetState()), "priority": int32(t.GetPriority()), "depends_on": orNone(t.GetDependsOn()),
		"execution_id": t.GetRunId(),
	}
	for key, text := range map[string]string{"workflow_slug": t.GetWorkflowSlug(), "result_summary": t.GetResultSummary(), "error_message": t.GetErrorMessage()} {
		if text != "" {
			out[key] = errs.Clip(text, maxTold)
		}
	}
	if len(t.GetBlockedBy()) > 0 {
		out["blocked_by"] = t.GetBlockedBy()
	}
	return out
}

// tasks reads tasks until there are enough, or no more: a page with a filter may have fewer than
// asked for.
func (s *Server) tasks(ctx context.Context, req *registryv1.ListTasksRequest) (all []*registryv1.Task, next string, err error) {
	most := int(req.GetPageSize())
	for range maxPages {
		req.PageSize = int32(most - len(all))
		r, err := asked(ctx, s, s.Registry.ListTasks, req)
		if err != nil {
			return nil, "", err
		}
		if all = append(all, r.GetTasks()...); r.GetNextPageToken() == "" || len(all) >= most {
			return all, r.GetNextPageToken(), nil
		}
		req.PageToken = r.GetNextPageToken()
	}
	return all, req.GetPageToken(), nil
}

func listTasks(ctx context.Context, c *call) (any, error) {
	var a struct {
		EpicID string          `json:"epic_id"`
		Status string          `json:"status"`
		Tags   json.RawMessage `json:"tags"`
		Limit  *int            `json:"limit"`
		Page   string          `json:"page_token"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	tags, err := listOf("tags", a.Tags, 20)
	if err != nil {
		return nil, err
	}
	state, err := numberOf[registryv1.TaskState]("status", a.Status, taskStates())
	if err != nil {
		return nil, err
	}
	req := &registryv1.ListTasksRequest{EpicId: a.EpicID, Tags: tags, PageSize: limited(a.Limit, 20), PageToken: a.Page}
	if state != 0 {
		req.States = append(req.States, state)
	}
	tasks, next, err := c.tasks(ctx, req)
	if err != nil {
		return nil, err
	}
	list := make([]map[string]any, len(tasks))
	for i, t := range tasks {
		list[i] = shownTask(t)
		list[i]["epic_id"] = t.GetEpicId()
	}
	out := map[string]any{"success": true, "tasks": list}
	if next != "" {
		out["next_page_token"] = next
	}
	n, known, err := c.counted(ctx, req)
	if err != nil {
		return nil, err
	}
	if out["total"] = n; !known {
		if out["total"] = len(list); next != "" || a.Page != "" {
			out["total_is_minimum"] = true
		}
	}
	return out, nil
}

// counted is how many tasks there are, if their epic counts them.
func (s *Server) counted(ctx context.Context, req *registryv1.ListTasksRequest) (n int32, known bool, err error) {
	if req.GetEpicId() == "" || len(req.GetTags()) > 0 {
		return 0, false, nil
	}
	count := (*registryv1.Epic).GetTotalTasks
	for _, state := range req.GetStates() {
		switch state {
		case registryv1.TaskState_TASK_STATE_COMPLETED:
			count = (*registryv1.Epic).GetCompletedTasks
		case registryv1.TaskState_TASK_STATE_FAILED:
			count = (*registryv1.Epic).GetFailedTasks
		default:
			return 0, false, nil
		}
	}
	e, err := asked(ctx, s, s.Registry.GetEpic, &registryv1.GetEpicRequest{EpicId: req.GetEpicId()})
	return count(e), err == nil, err
}

func there(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func updateTask(ctx context.Context, c *call) (any, error) {
	var a taskArguments
	if err := c.read(&a); err != nil {
		return nil, err
	}
	t, err := a.task()
	if err != nil {
		return nil, err
	}
	to, err := numberOf[registryv1.TaskState]("status", a.Status, taskStates())
	if err != nil {
		return nil, err
	}
	moves, note := to != 0, strings.TrimSpace(a.Notes)
	fields := given(field{"title", a.Title != nil}, field{"description", a.Description != nil}, field{"priority", a.Priority != nil}, field{"workflow_slug", a.Workflow != nil},
		field{"input", there(a.Input)}, field{"depends_on", there(a.DependsOn)}, field{"dependency_policy", t.GetDependencyPolicy() != 0}, field{"tags", there(a.Tags)}, field{"requirements", there(a.Requirements)},
		field{"estimated_tokens", a.Estimated != nil}, field{"max_retries", a.Retries != nil}, field{"workflow_source", t.GetWorkflowSource() != 0},
		field{"result_summary", a.Result != nil && (!moves || *a.Result == "")}, field{"error_message", a.Error != nil && (!moves || *a.Error == "")}, field{"notes", note != "" && !moves})
	if len(fields) == 0 && !moves {
		return nil, badArguments("there is nothing to change: give status, title, description, tags, priority, workflow_slug, workflow_source, requirements, input, depends_on, dependency_policy, estimated_tokens, max_retries, result_summary, error_message or notes")
	}
	got, err := change(fields, moves, a.Request, func(request string) (*registryv1.Task, error) {
		if note != "" && !moves {
			t.Notes = []*registryv1.Note{{Text: note}}
		}
		return asked(ctx, c.Server, c.Registry.UpdateTask, &registryv1.UpdateTaskRequest{Task: t, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}, RequestId: request})
	}, func(request string) (*registryv1.Task, error) {
		return asked(ctx, c.Server, c.Registry.TransitionTask, &registryv1.TransitionTaskRequest{
			TaskId: t.GetId(), State: to, ResultSummary: t.GetResultSummary(), ErrorMessage: t.GetErrorMessage(), Note: note, RequestId: request,
		})
	})
	if err != nil {
		return nil, err
	}
	out := shownTask(got)
	out["success"], out["task_id"], out["epic_id"] = true, got.GetId(), got.GetEpicId()
	return out, nil
}

func cancelTask(ctx context.Context, c *call) (any, error) {
	var a struct {
		TaskID  string `json:"task_id"`
		Reason  string `json:"reason"`
		Request string `json:"request_id"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	before, err := asked(ctx, c.Server, c.Registry.GetTask, &registryv1.GetTaskRequest{TaskId: a.TaskID})
	if err != nil {
		return nil, err
	}
	req := &registryv1.TransitionTaskRequest{TaskId: a.TaskID, State: registryv1.TaskState_TASK_STATE_CANCELED, RequestId: a.Request}
	if reason := strings.TrimSpace(a.Reason); reason != "" {
		req.Note = "Cancelled: " + reason
	}
	got, err := asked(ctx, c.Server, c.Registry.TransitionTask, req)
	if err != nil {
		return nil, err
	}
	// An earlier call may have canceled it already: then it had a run if one worked on it last.
	ran := got.GetRunId() != "" && (before.GetState() == registryv1.TaskState_TASK_STATE_RUNNING || before.GetState() == registryv1.TaskState_TASK_STATE_CANCELED)
	return map[string]any{"success": true, "task_id": got.GetId(), "execution_cancelled": ran}, nil
}
