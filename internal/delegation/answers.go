package delegation

import (
	"context"
	"math"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// EpicCreated is the answer of epic_create.
func EpicCreated(e *Epic) map[string]any {
	return map[string]any{"success": true, "epic_id": e.ID, "title": e.Title, "status": e.Status}
}

// EpicShown is an epic as a model reads it.
func EpicShown(e *Epic) map[string]any {
	out := map[string]any{
		"epic_id": e.ID, "title": errs.Clip(e.Title, MaxTitleTold), "status": e.Status, "priority": e.Priority, "total_tasks": e.Total, "completed_tasks": e.Completed,
		"failed_tasks": e.Failed, "spent_tokens": e.SpentTokens, "spent_usd": Dollars(e.SpentNanoUSD),
	}
	if e.OverheadTokens > 0 {
		out["agent_overhead_tokens"], out["agent_overhead_usd"] = e.OverheadTokens, Dollars(e.OverheadNanoUSD)
	}
	if e.UnpricedCalls > 0 { // spent_usd is not all of it
		out["unpriced_calls"] = e.UnpricedCalls
	}
	if e.BudgetTokens != nil {
		out["budget_tokens"] = *e.BudgetTokens
	}
	if e.BudgetNanoUSD != nil {
		out["budget_usd"] = Dollars(*e.BudgetNanoUSD)
	}
	if e.Result != "" {
		out["result_summary"] = errs.Clip(e.Result, MaxTold)
	}
	return out
}

// EpicChanged is the answer of epic_update.
func EpicChanged(e *Epic) map[string]any {
	out := EpicShown(e)
	out["success"] = true
	return out
}

// EpicWithTasks is the answer of epic_status. It says how many tasks are left out.
func EpicWithTasks(e *Epic, tasks []Task) map[string]any {
	out, list := EpicShown(e), make([]map[string]any, len(tasks))
	for i := range tasks {
		list[i] = TaskShown(&tasks[i])
	}
	out["success"], out["tasks"] = true, list
	if left := int(e.Total) - len(list); left > 0 {
		out["tasks_left_out"] = left
	}
	return out
}

// EpicsFound is the answer of epic_search. Its success_rate is which part of the tasks that ended was
// completed, of all epics that were found; null if none ended.
func EpicsFound(found []Epic) map[string]any {
	results := make([]map[string]any, len(found))
	var cost int64
	var completed, ended float64
	for i := range found {
		e := &found[i]
		m := EpicShown(e)
		m["description"], m["tags"], m["workflow_slugs"], m["success_rate"] = errs.Clip(e.Description, MaxTold), OrNone(e.Tags), OrNone(e.Workflows), e.SuccessRate
		results[i] = m
		cost += e.SpentNanoUSD
		completed += float64(e.Completed)
		ended += float64(e.Completed + e.Failed)
	}
	out := map[string]any{"success": true, "results": results, "success_rate": nil, "avg_cost": nil}
	if ended > 0 {
		out["success_rate"] = math.Round(completed/ended*1e4) / 1e4
	}
	if len(found) > 0 {
		out["avg_cost"] = Dollars(cost / int64(len(found)))
	}
	return out
}

// TaskCreated is the answer of task_create.
func TaskCreated(t *Task) map[string]any {
	return map[string]any{"success": true, "task_id": t.ID, "epic_id": t.EpicID, "title": t.Title, "status": t.Status, "depends_on": OrNone(t.DependsOn)}
}

// TaskShown is a task as a model reads it.
func TaskShown(t *Task) map[string]any {
	out := map[string]any{"id": t.ID, "title": errs.Clip(t.Title, MaxTitleTold), "status": t.Status, "priority": t.Priority, "depends_on": OrNone(t.DependsOn), "execution_id": t.RunID}
	for key, text := range map[string]string{"workflow_slug": t.Workflow, "run_workflow": t.RunWorkflow, "result_summary": t.Result, "error_message": t.Error} {
		if text != "" {
			out[key] = errs.Clip(text, MaxTold)
		}
	}
	if len(t.BlockedBy) > 0 {
		out["blocked_by"] = t.BlockedBy
	}
	return out
}

// TaskChanged is the answer of task_update.
func TaskChanged(t *Task) map[string]any {
	out := TaskShown(t)
	out["success"], out["task_id"], out["epic_id"] = true, t.ID, t.EpicID
	return out
}

// TaskCanceled is the answer of task_cancel. An earlier attempt may have canceled the task already: then it
// had a run if one worked on it last.
func TaskCanceled(before, after *Task) map[string]any {
	ran := after.RunID != "" && (before.Status == Running || before.Status == Canceled)
	return map[string]any{"success": true, "task_id": after.ID, "execution_cancelled": ran}
}

// TasksListed is the answer of task_list. e is the epic of the filter, or nil.
func TasksListed(tasks []Task, next string, q *Filter, e *Epic) map[string]any {
	list := make([]map[string]any, len(tasks))
	for i := range tasks {
		list[i] = TaskShown(&tasks[i])
		list[i]["epic_id"] = tasks[i].EpicID
	}
	out := map[string]any{"success": true, "tasks": list, "total": len(list)}
	if next != "" {
		out["next_page_token"] = next
	}
	switch {
	case e != nil && e.ID != "" && q.Counted():
		out["total"] = q.count(e)
	case next != "" || q.Page != "":
		out["total_is_minimum"] = true
	}
	return out
}

// Counted reports whether the epic of the filter counts its tasks.
func (q *Filter) Counted() bool {
	return q.EpicID != "" && len(q.Tags) == 0 && (q.Status == "" || q.Status == Completed || q.Status == Failed)
}

func (q *Filter) count(e *Epic) int32 {
	switch q.Status {
	case Completed:
		return e.Completed
	case Failed:
		return e.Failed
	}
	return e.Total
}

// Pages reads tasks until there are enough, or no more: a page with a filter may have fewer than asked for.
func Pages(ctx context.Context, q Filter, list func(context.Context, Filter) ([]Task, string, error)) (all []Task, next string, err error) {
	most := q.Limit
	for range MaxPages {
		q.Limit = most - len(all)
		part, next, err := list(ctx, q)
		if err != nil {
			return nil, "", err
		}
		if all = append(all, part...); next == "" || len(all) >= most {
			return all, next, nil
		}
		q.Page = next
	}
	return all, q.Page, nil
}
