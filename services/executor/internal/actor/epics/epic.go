package epics

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

func createEpic(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	e := Epic{Title: strings.TrimSpace(f.text("title", a.Title, maxTitle)), Description: f.text("description", a.Description, maxText), Tags: f.list("tags", a.Tags, maxTags, maxTag),
		Priority: f.priority(a.Priority), User: call.UserID, Node: errs.Clip(call.Node, maxTitleTold)}
	e.BudgetTokens, e.BudgetNanoUSD = f.budget(&a)
	if e.Title == "" && len(f) == 0 {
		f.add("title is missing")
	}
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	e, err := r.CreateEpic(ctx, actor.NamespaceOf(ctx), e, catalog.RequestID(call))
	if err != nil {
		return told(ctx, err)
	}
	return paidBy(&workgraph.Payer{EpicID: e.ID}, map[string]any{"success": true, "epic_id": e.ID, "title": e.Title, "status": e.Status})
}

func statusOfEpic(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	id := f.id("epic_id", a.EpicID, "ep_")
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	namespace := actor.NamespaceOf(ctx)
	e, err := r.Epic(ctx, namespace, id)
	if err != nil {
		return told(ctx, err)
	}
	if err := e.refused(call.UserID); err != nil {
		return told(ctx, err)
	}
	tasks, _, err := pages(ctx, r, Filter{EpicID: id, Limit: maxFound})
	if err != nil {
		return told(ctx, err)
	}
	out := shown(&e)
	out["success"] = true
	list := make([]map[string]any, len(tasks))
	for i := range tasks {
		list[i] = taskShown(&tasks[i])
	}
	out["tasks"] = list
	if left := int(e.Total) - len(list); left > 0 {
		out["tasks_left_out"] = left
	}
	return actor.Value(out)
}

// shown is an epic as a model reads it.
func shown(e *Epic) map[string]any {
	out := map[string]any{
		"epic_id": e.ID, "title": errs.Clip(e.Title, maxTitleTold), "status": e.Status, "priority": e.Priority, "total_tasks": e.Total, "completed_tasks": e.Completed,
		"failed_tasks": e.Failed, "spent_tokens": e.SpentTokens, "spent_usd": dollars(e.SpentNanoUSD),
	}
	if e.OverheadTokens > 0 {
		out["agent_overhead_tokens"], out["agent_overhead_usd"] = e.OverheadTokens, dollars(e.OverheadNanoUSD)
	}
	if e.UnpricedCalls > 0 { // spent_usd is not all of it
		out["unpriced_calls"] = e.UnpricedCalls
	}
	if e.BudgetTokens != nil {
		out["budget_tokens"] = *e.BudgetTokens
	}
	if e.BudgetNanoUSD != nil {
		out["budget_usd"] = dollars(*e.BudgetNanoUSD)
	}
	if e.Result != "" {
		out["result_summary"] = errs.Clip(e.Result, maxTold)
	}
	return out
}

func dollars(nano int64) float64 { return math.Round(float64(nano)) / 1e9 }

func updateEpic(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	e := Epic{ID: f.id("epic_id", a.EpicID, "ep_"), Title: f.text("title", a.Title, maxTitle), Description: f.text("description", a.Description, maxText),
		Result: f.text("result_summary", a.Result, maxText), Priority: f.priority(a.Priority), Status: f.word("status", a.Status, States()), Tags: f.list("tags", a.Tags, maxTags, maxTag)}
	e.BudgetTokens, e.BudgetNanoUSD = f.budget(&a)
	// The result goes with a move, so that a completed epic is never seen without.
	moves := e.Status != ""
	fields := fieldsOf(field{"title", a.Title != nil}, field{"description", a.Description != nil}, field{"tags", given(a.Tags)}, field{"priority", a.Priority != nil},
		field{"budget_tokens", e.BudgetTokens != nil}, field{"budget_nano_usd", e.BudgetNanoUSD != nil}, field{"result_summary", a.Result != nil && (!moves || e.Result == "")})
	if len(f) == 0 && len(fields) == 0 && !moves {
		f.add("there is nothing to change: give status, title, description, tags, priority, budget_tokens, budget_usd or result_summary")
	}
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	if err := CheckEpic(ctx, r, actor.NamespaceOf(ctx), call.UserID, e.ID); err != nil {
		return told(ctx, err)
	}
	out, err := change(fields, moves, catalog.RequestID(call), func(request string) (Epic, error) {
		return r.ChangeEpic(ctx, actor.NamespaceOf(ctx), e, fields, request)
	}, func(request string) (Epic, error) { return r.MoveEpic(ctx, actor.NamespaceOf(ctx), e, request) })
	if err != nil {
		return told(ctx, err)
	}
	answer := shown(&out)
	answer["success"] = true
	if moves && ended(e.Status) {
		return paidBy(&workgraph.Payer{EpicID: out.ID, Done: true}, answer)
	}
	return paidWith(ctx, r, call, workgraph.Payer{EpicID: out.ID}, answer)
}

// paidWith is an answer after which the calls of the run are booked on the epic that it has changed, or on
// the task that it does itself, if that epic pays for the run.
func paidWith(ctx context.Context, r Registry, call *workgraph.Call, p workgraph.Payer, answer map[string]any) (workgraph.Outcome, error) {
	payer, err := Payer(ctx, r, call, p)
	if err != nil {
		return told(ctx, err) // a repetition of the call finds its change made
	}
	return paidBy(payer, answer)
}

// paidBy is an answer that says who pays from then on; nil leaves that as it is.
func paidBy(p *workgraph.Payer, answer map[string]any) (workgraph.Outcome, error) {
	out, err := actor.Value(answer)
	if err == nil {
		out.Payer = p
	}
	return out, err
}

type field struct {
	name  string
	given bool
}

func fieldsOf(all ...field) (out []string) {
	for _, f := range all {
		if f.given {
			out = append(out, f.name)
		}
	}
	return out
}

// change changes fields first, since a raised budget may be what a move needs, and then moves. The two have
// request ids of their own. If only the move is refused, the error says that the fields are changed.
func change[T any](fields []string, moves bool, request string, set, move func(request string) (T, error)) (out T, err error) {
	if len(fields) > 0 {
		if out, err = set(request + "-fields"); err != nil {
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

func searchEpics(ctx context.Context, r Registry, call *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	s := Search{Text: strings.TrimSpace(f.text("query", &a.Query, 1024)), Tags: f.list("tags", a.Tags, maxTags, maxTag), Status: f.word("status", a.Status, States()),
		Limit: limit(a.Limit, 10), User: call.UserID}
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	found, err := r.SearchEpics(ctx, actor.NamespaceOf(ctx), s)
	if err != nil {
		return told(ctx, err)
	}
	found = slices.DeleteFunc(found, func(e Epic) bool { return e.closedTo(call.UserID) })
	results := make([]map[string]any, len(found))
	var cost int64
	for i := range found {
		e := &found[i]
		m := shown(e)
		m["description"], m["tags"], m["workflow_slugs"], m["success_rate"] = errs.Clip(e.Description, maxTold), orNone(e.Tags), orNone(e.Workflows), e.SuccessRate
		results[i] = m
		cost += e.SpentNanoUSD
	}
	out := map[string]any{"success": true, "results": results, "success_rate": rate(found), "avg_cost": nil}
	if len(found) > 0 {
		out["avg_cost"] = dollars(cost / int64(len(found)))
	}
	return actor.Value(out)
}

// rate is which part of the tasks that ended was completed, of all that were found; nil if none ended.
func rate(found []Epic) *float64 {
	var completed, ended float64
	for i := range found {
		completed += float64(found[i].Completed)
		ended += float64(found[i].Completed + found[i].Failed)
	}
	if ended == 0 {
		return nil
	}
	part := math.Round(completed/ended*1e4) / 1e4
	return &part
}

func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
