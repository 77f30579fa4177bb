package epics

import (
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

func createEpic(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	e, faults := a.NewEpic()
	if len(faults) > 0 {
		return refuse(faults)
	}
	e.User, e.Node = call.UserID, errs.Clip(call.Node, delegation.MaxTitleTold)
	e, err := r.CreateEpic(ctx, actor.NamespaceOf(ctx), e, catalog.RequestID(call))
	if err != nil {
		return told(ctx, err)
	}
	return paidBy(&workgraph.Payer{EpicID: e.ID}, delegation.EpicCreated(&e))
}

func statusOfEpic(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	id, faults := a.EpicOf()
	if len(faults) > 0 {
		return refuse(faults)
	}
	e, err := r.Epic(ctx, actor.NamespaceOf(ctx), id)
	if err != nil {
		return told(ctx, err)
	}
	if err := refused(&e, call.UserID); err != nil {
		return told(ctx, err)
	}
	tasks, _, err := pages(ctx, r, Filter{EpicID: id, Limit: delegation.MaxFound})
	if err != nil {
		return told(ctx, err)
	}
	return actor.Value(delegation.EpicWithTasks(&e, tasks))
}

func updateEpic(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	e, change, faults := a.ChangedEpic()
	if len(faults) > 0 {
		return refuse(faults)
	}
	namespace, request := actor.NamespaceOf(ctx), catalog.RequestID(call)
	if err := CheckEpic(ctx, r, namespace, call.UserID, e.ID); err != nil {
		return told(ctx, err)
	}
	out, err := delegation.Apply(change, func() (Epic, error) {
		return r.ChangeEpic(ctx, namespace, e, change.Fields, request+fieldsRequest)
	}, func() (Epic, error) { return r.MoveEpic(ctx, namespace, e, request) })
	if err != nil {
		return told(ctx, err)
	}
	answer := delegation.EpicChanged(&out)
	if change.Moves && ended(e.Status) {
		return paidBy(&workgraph.Payer{EpicID: out.ID, Done: true}, answer)
	}
	return paidWith(ctx, r, call, workgraph.Payer{EpicID: out.ID}, answer)
}

// fieldsRequest is behind the request id of a change of fields. Requests are known by their method and id, so
// one id would serve the change and the move; changes that are under way have it with this ending.
const fieldsRequest = "-fields"

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

func searchEpics(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	s, faults := a.Search()
	if len(faults) > 0 {
		return refuse(faults)
	}
	s.User = call.UserID
	found, err := r.SearchEpics(ctx, actor.NamespaceOf(ctx), s)
	if err != nil {
		return told(ctx, err)
	}
	found = slices.DeleteFunc(found, func(e Epic) bool { return closedTo(&e, call.UserID) })
	return actor.Value(delegation.EpicsFound(found))
}
