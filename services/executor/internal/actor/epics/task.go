package epics

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

func createTask(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	t := Task{
		EpicID: f.id("epic_id", a.EpicID, "ep_"), Title: strings.TrimSpace(f.text("title", a.Title, maxTitle)), Description: f.text("description", a.Description, maxText),
		Tags: f.list("tags", a.Tags, maxTags, maxTag), DependsOn: f.list("depends_on", a.DependsOn, maxDepends, maxID), Priority: f.priority(a.Priority),
		Requirements: f.object("requirements", a.Requirements, maxRequirements), Input: f.object("input", a.Input, maxInput), Workflow: f.text("workflow_slug", a.Workflow, maxSlug),
		Source: f.source(&a), EstimatedTokens: f.estimate(a.Estimated), MaxRetries: f.retries(a.Retries), Node: errs.Clip(call.Node, maxTitleTold),
	}
	if a.Policy != nil {
		t.Policy = f.word("dependency_policy", *a.Policy, Policies())
	}
	if t.Title == "" && len(f) == 0 {
		f.add("title is missing")
	}
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	if err := CheckEpic(ctx, r, actor.NamespaceOf(ctx), call.UserID, t.EpicID); err != nil {
		return told(ctx, err)
	}
	t, err := r.CreateTask(ctx, actor.NamespaceOf(ctx), t, catalog.RequestID(call))
	if err != nil {
		return told(ctx, err)
	}
	return paidWith(ctx, r, call, workgraph.Payer{EpicID: t.EpicID}, map[string]any{"success": true, "task_id": t.ID, "epic_id": t.EpicID, "title": t.Title, "status": t.Status, "depends_on": orNone(t.DependsOn)})
}

// taskShown is a task as a model reads it.
func taskShown(t *Task) map[string]any {
	out := map[string]any{"id": t.ID, "title": errs.Clip(t.Title, maxTitleTold), "status": t.Status, "priority": t.Priority, "depends_on": orNone(t.DependsOn), "execution_id": t.RunID}
	for key, text := range map[string]string{"workflow_slug": t.Workflow, "run_workflow": t.RunWorkflow, "result_summary": t.Result, "error_message": t.Error} {
		if text != "" {
			out[key] = errs.Clip(text, maxTold)
		}
	}
	if len(t.BlockedBy) > 0 {
		out["blocked_by"] = t.BlockedBy
	}
	return out
}

// pages reads tasks until there are enough, or no more: a page with a filter may have fewer than asked for.
func pages(ctx context.Context, r Registry, f Filter) (all []Task, next string, err error) {
	most := f.Limit
	for range maxPages {
		f.Limit = most - len(all)
		part, next, err := r.ListTasks(ctx, actor.NamespaceOf(ctx), f)
		if err != nil {
			return nil, "", err
		}
		if all = append(all, part...); next == "" || len(all) >= most {
			return all, next, nil
		}
		f.Page = next
	}
	return all, f.Page, nil
}

func listTasks(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	q := Filter{Status: f.word("status", a.Status, TaskStates()), Tags: f.list("tags", a.Tags, maxTags, maxTag), Limit: limit(a.Limit, 20), Page: f.text("page_token", &a.Page, 2048)}
	if a.EpicID != "" {
		q.EpicID = f.id("epic_id", a.EpicID, "ep_")
	}
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	var e Epic
	if q.EpicID != "" {
		var err error
		if e, err = r.Epic(ctx, actor.NamespaceOf(ctx), q.EpicID); err == nil {
			err = e.refused(call.UserID)
		}
		if err != nil {
			return told(ctx, err)
		}
	}
	tasks, next, err := pages(ctx, r, q)
	if err != nil {
		return told(ctx, err)
	}
	if q.EpicID == "" {
		if tasks, err = open(ctx, r, actor.NamespaceOf(ctx), call.UserID, tasks); err != nil {
			return told(ctx, err)
		}
	}
	list := make([]map[string]any, len(tasks))
	for i := range tasks {
		list[i] = taskShown(&tasks[i])
		list[i]["epic_id"] = tasks[i].EpicID
	}
	out := map[string]any{"success": true, "tasks": list}
	if next != "" {
		out["next_page_token"] = next
	}
	if n, known := q.counted(&e); known {
		out["total"] = n
	} else if out["total"] = len(list); next != "" || q.Page != "" {
		out["total_is_minimum"] = true
	}
	return actor.Value(out)
}

// counted is how many tasks there are, if the epic counts them.
func (q *Filter) counted(e *Epic) (int32, bool) {
	switch {
	case e.ID == "" || len(q.Tags) > 0:
		return 0, false
	case q.Status == "":
		return e.Total, true
	case q.Status == completed:
		return e.Completed, true
	case q.Status == failed:
		return e.Failed, true
	}
	return 0, false
}

func updateTask(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	t := Task{
		ID: f.id("task_id", a.TaskID, "tk_"), Title: f.text("title", a.Title, maxTitle), Description: f.text("description", a.Description, maxText), Priority: f.priority(a.Priority),
		Result: f.text("result_summary", a.Result, maxText), Error: f.text("error_message", a.Error, maxText), Note: strings.TrimSpace(f.text("notes", &a.Notes, maxText)),
		Workflow: f.text("workflow_slug", a.Workflow, maxSlug), Source: f.source(&a), Status: f.word("status", a.Status, TaskStates()),
		Tags: f.list("tags", a.Tags, maxTags, maxTag), Requirements: f.object("requirements", a.Requirements, maxRequirements),
		EstimatedTokens: f.estimate(a.Estimated), MaxRetries: f.retries(a.Retries),
	}
	if a.Policy != nil {
		t.Policy = f.word("dependency_policy", *a.Policy, Policies())
	}
	t.Input, t.DependsOn = f.object("input", a.Input, maxInput), f.list("depends_on", a.DependsOn, maxDepends, maxID)
	moves := t.Status != ""
	fields := fieldsOf(field{"title", a.Title != nil}, field{"description", a.Description != nil}, field{"priority", a.Priority != nil}, field{"workflow_slug", a.Workflow != nil},
		field{"input", given(a.Input)}, field{"depends_on", given(a.DependsOn)}, field{"dependency_policy", t.Policy != ""}, field{"tags", given(a.Tags)},
		field{"requirements", given(a.Requirements)}, field{"estimated_tokens", a.Estimated != nil}, field{"max_retries", a.Retries != nil},
		field{"workflow_source", t.Source != ""}, field{"result_summary", a.Result != nil && (!moves || t.Result == "")}, field{"error_message", a.Error != nil && (!moves || t.Error == "")},
		field{"notes", t.Note != "" && !moves})
	if len(f) == 0 && len(fields) == 0 && !moves {
		f.add("there is nothing to change: give status, title, description, tags, priority, workflow_slug, workflow_source, requirements, input, depends_on, dependency_policy, estimated_tokens, max_retries, result_summary, error_message or notes")
	}
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	if err := CheckTask(ctx, r, actor.NamespaceOf(ctx), call.UserID, t.ID); err != nil {
		return told(ctx, err)
	}
	if t.Status == running {
		if err := checkPays(ctx, r, call, t.ID); err != nil {
			return told(ctx, err)
		}
	}
	out, err := change(fields, moves, catalog.RequestID(call), func(request string) (Task, error) {
		return r.ChangeTask(ctx, actor.NamespaceOf(ctx), t, fields, request)
	}, func(request string) (Task, error) { return r.MoveTask(ctx, actor.NamespaceOf(ctx), t, request) })
	if err != nil {
		return told(ctx, err)
	}
	answer := taskShown(&out)
	answer["success"], answer["task_id"], answer["epic_id"] = true, out.ID, out.EpicID
	p := workgraph.Payer{EpicID: out.EpicID}
	if moves { // a task that a run works on cannot be moved to running
		p.TaskID, p.Done = out.ID, t.Status != running
	}
	return paidWith(ctx, r, call, p, answer)
}

// given reports whether an argument was there, and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func cancelTask(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	t := Task{ID: f.id("task_id", a.TaskID, "tk_"), Status: CanceledWord}
	if reason := strings.TrimSpace(f.text("reason", &a.Reason, maxText)); reason != "" {
		t.Note = "Cancelled: " + reason
	}
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	namespace := actor.NamespaceOf(ctx)
	before, err := r.Task(ctx, namespace, t.ID)
	if err != nil {
		return told(ctx, err)
	}
	if err := CheckEpic(ctx, r, namespace, call.UserID, before.EpicID); err != nil {
		return told(ctx, err)
	}
	out, err := r.MoveTask(ctx, namespace, t, catalog.RequestID(call))
	if err != nil {
		return told(ctx, err)
	}
	// An earlier attempt may have canceled it already: then it had a run if one worked on it last.
	ran := out.RunID != "" && (before.Status == "running" || before.Status == CanceledWord)
	answer := map[string]any{"success": true, "task_id": out.ID, "execution_cancelled": ran}
	if before.Status == CanceledWord {
		return actor.Value(answer) // this call changes nothing
	}
	return paidWith(ctx, r, call, workgraph.Payer{EpicID: out.EpicID, TaskID: out.ID, Done: true}, answer)
}
