package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

// TriggerServer answers epigraph.executor.v1.TriggerService.
type TriggerServer struct {
	executorv1.UnimplementedTriggerServiceServer
	controller *trigger.Controller
}

// NewTriggerServer returns a server of the triggers of a controller.
func NewTriggerServer(c *trigger.Controller) *TriggerServer { return &TriggerServer{controller: c} }

func triggerKey(ctx context.Context, id string) trigger.Key {
	return trigger.Key{Namespace: grpckit.Namespace(ctx), ID: id}
}

// ActivateTriggers implements the service.
func (s *TriggerServer) ActivateTriggers(ctx context.Context, req *executorv1.ActivateTriggersRequest) (*executorv1.TriggerActivation, error) {
	a, list, err := s.controller.Activate(ctx, grpckit.Namespace(ctx), strings.TrimPrefix(req.GetWorkflow(), "workflow/"))
	if err != nil {
		return nil, away(err)
	}
	return activationMessage(&a, list)
}

// DeactivateTriggers implements the service.
func (s *TriggerServer) DeactivateTriggers(ctx context.Context, req *executorv1.DeactivateTriggersRequest) (*executorv1.TriggerActivation, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(req.GetWorkflow(), "workflow/"), "@")
	a, err := s.controller.Deactivate(ctx, grpckit.Namespace(ctx), name)
	if err != nil {
		return nil, away(err)
	}
	list, err := s.controller.List(ctx, a.Namespace, a.Workflow, "", page.MaxSize)
	if err != nil {
		return nil, away(err)
	}
	return activationMessage(&a, list)
}

// ListTriggers implements the service.
func (s *TriggerServer) ListTriggers(ctx context.Context, req *executorv1.ListTriggersRequest) (*executorv1.ListTriggersResponse, error) {
	ns := grpckit.Namespace(ctx)
	pg, err := page.Parse(req.GetPageSize(), req.GetPageToken(), page.Query{Method: "ListTriggers", Parent: ns, Filter: req.GetWorkflow(), Order: "id"})
	if err != nil {
		return nil, err
	}
	rows, err := s.controller.List(ctx, ns, req.GetWorkflow(), pg.After.ID, pg.Limit+1)
	if err != nil {
		return nil, away(err)
	}
	rows, next := page.Cut(pg, rows, func(t trigger.Trigger) page.Cursor { return page.Cursor{CreateTime: t.CreateTime, ID: t.ID} })
	out := &executorv1.ListTriggersResponse{NextPageToken: next}
	for i := range rows {
		m, err := triggerMessage(&rows[i])
		if err != nil {
			return nil, err
		}
		out.Triggers = append(out.Triggers, m)
	}
	return out, nil
}

// GetTrigger implements the service.
func (s *TriggerServer) GetTrigger(ctx context.Context, req *executorv1.GetTriggerRequest) (*executorv1.Trigger, error) {
	t, err := s.controller.Get(ctx, triggerKey(ctx, req.GetTriggerId()))
	if err != nil {
		return nil, away(err)
	}
	return triggerMessage(&t)
}

// RotateTriggerSecret implements the service.
func (s *TriggerServer) RotateTriggerSecret(ctx context.Context, req *executorv1.RotateTriggerSecretRequest) (*executorv1.Trigger, error) {
	t, err := s.controller.Rotate(ctx, triggerKey(ctx, req.GetTriggerId()))
	if err != nil {
		return nil, away(err)
	}
	m, err := triggerMessage(&t)
	if err == nil {
		m.Secret = t.Secret
	}
	return m, err
}

// ListTriggerDeliveries implements the service.
func (s *TriggerServer) ListTriggerDeliveries(ctx context.Context, req *executorv1.ListTriggerDeliveriesRequest) (*executorv1.ListTriggerDeliveriesResponse, error) {
	ns := grpckit.Namespace(ctx)
	f := trigger.Filter{Trigger: req.GetTriggerId(), Status: statusOf(req.GetState())}
	pg, err := page.Parse(req.GetPageSize(), req.GetPageToken(), page.Query{Method: "ListTriggerDeliveries", Parent: ns, Filter: f.Trigger + "/" + string(f.Status), Order: "id desc"})
	if err != nil {
		return nil, err
	}
	rows, err := s.controller.Deliveries(ctx, ns, f, pg.After.ID, pg.Limit+1)
	if err != nil {
		return nil, away(err)
	}
	rows, next := page.Cut(pg, rows, func(d trigger.Delivery) page.Cursor { return page.Cursor{CreateTime: d.ReceiveTime, ID: d.ID} })
	out := &executorv1.ListTriggerDeliveriesResponse{NextPageToken: next}
	for i := range rows {
		out.Deliveries = append(out.Deliveries, deliveryMessage(&rows[i], false))
	}
	return out, nil
}

// GetTriggerDelivery implements the service.
func (s *TriggerServer) GetTriggerDelivery(ctx context.Context, req *executorv1.GetTriggerDeliveryRequest) (*executorv1.TriggerDelivery, error) {
	return deliveryReply(s.controller.Delivery(ctx, triggerKey(ctx, req.GetDeliveryId())))
}

// RepeatTriggerDelivery implements the service.
func (s *TriggerServer) RepeatTriggerDelivery(ctx context.Context, req *executorv1.RepeatTriggerDeliveryRequest) (*executorv1.TriggerDelivery, error) {
	d, err := s.controller.Repeat(ctx, triggerKey(ctx, req.GetDeliveryId()), req.GetRequestId())
	if err == nil && d.Repeated {
		grpckit.MarkRepeated(ctx)
	}
	return deliveryReply(d, err)
}

func deliveryReply(d trigger.Delivery, err error) (*executorv1.TriggerDelivery, error) {
	if err != nil {
		return nil, away(err)
	}
	return deliveryMessage(&d, true), nil
}

// activationMessage shows an activation with its triggers. The secret is shown of those that are new.
func activationMessage(a *trigger.Activation, list []trigger.Trigger) (*executorv1.TriggerActivation, error) {
	out := &executorv1.TriggerActivation{
		Workflow: a.Workflow, Ref: a.Ref, Version: a.Version, State: triggerState(a.State), Reason: a.Reason, CreateTime: stamp(a.CreateTime),
		UpdateTime: stamp(a.UpdateTime), Principal: a.Principal,
	}
	for i := range list {
		m, err := triggerMessage(&list[i])
		if err != nil {
			return nil, err
		}
		if list[i].Fresh {
			m.Secret = list[i].Secret
		}
		out.Triggers = append(out.Triggers, m)
	}
	return out, nil
}

func triggerState(s trigger.State) executorv1.TriggerState {
	if s == trigger.Active {
		return executorv1.TriggerState_TRIGGER_STATE_ACTIVE
	}
	return executorv1.TriggerState_TRIGGER_STATE_ENDED
}

// triggerMessage is a trigger as callers see it, without its secret.
func triggerMessage(t *trigger.Trigger) (*executorv1.Trigger, error) {
	spec, err := json.Marshal(t.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode trigger %s: %w", t.ID, err)
	}
	m := &executorv1.Trigger{
		Id: t.ID, Workflow: t.Workflow, Version: t.Version, Name: t.Spec.ID, Type: t.Spec.Type, State: triggerState(t.State), Reason: t.Reason, Path: t.Path,
		Signature: t.Spec.Signature, Definition: &graphv1.Payload{Json: spec}, CreateTime: stamp(t.CreateTime), UpdateTime: stamp(t.UpdateTime),
	}
	if t.Spec.Type == workflow.CronTrigger && t.State == trigger.Active {
		m.ScheduleId = t.ID
	}
	return m, nil
}

// statuses are the states of deliveries in the order of the API.
func statuses() []trigger.Status {
	return []trigger.Status{"", trigger.Received, trigger.Started, trigger.Refused, trigger.Failed}
}

func statusOf(s executorv1.TriggerDeliveryState) trigger.Status {
	if all := statuses(); s > 0 && int(s) < len(all) {
		return all[s]
	}
	return ""
}

func deliveryMessage(d *trigger.Delivery, whole bool) *executorv1.TriggerDelivery {
	m := &executorv1.TriggerDelivery{
		Id: d.ID, TriggerId: d.Trigger, EventId: d.EventID, Reason: d.Reason, Message: d.Message, Attempts: int32(d.Attempts), Repeats: int32(d.Repeats),
		RepeatOf: d.RepeatOf, Depth: int32(d.Depth), ReceiveTime: stamp(d.ReceiveTime), NextTime: stamp(d.Due), EndTime: stamp(d.EndTime),
	}
	for i, s := range statuses() {
		if s == d.Status {
			m.State = executorv1.TriggerDeliveryState(i)
		}
	}
	if d.Status == trigger.Started {
		m.RunId = d.RunID
	}
	if whole {
		m.Event = &graphv1.Payload{Json: d.Event}
	}
	return m
}
