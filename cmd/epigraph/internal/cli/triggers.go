package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type triggersOnCmd struct {
	Workflow string `arg:"" help:"The workflow: NAME, NAME@ALIAS or NAME@VERSION. What it stands for later is followed."`
}

// Help gives examples.
func (triggersOnCmd) Help() string {
	return `A workflow does not begin to act by itself: its triggers are turned on. Secrets of webhooks are shown this once.

    epigraph triggers on digest
    epigraph triggers on digest@prod`
}

// Run turns on.
func (c *triggersOnCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error { return e.activate(ctx, s, c.Workflow) })
}

// activate turns the triggers of a workflow on, and shows them.
func (e *env) activate(ctx context.Context, s *services, ref string) error {
	a, err := s.triggers.ActivateTriggers(ctx, &executorv1.ActivateTriggersRequest{Workflow: ref})
	if err != nil {
		return err
	}
	return e.print(a, func() string { return activationText(e, a) })
}

func activationText(e *env, a *executorv1.TriggerActivation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "triggers of %s are %s at version %d\n", a.GetRef(), triggerState(a.GetState()), a.GetVersion())
	if a.GetReason() != "" {
		fmt.Fprintf(&b, "note: %s\n", view.OneLine(a.GetReason(), 200))
	}
	b.WriteString(triggerTable(e, a.GetTriggers()))
	for _, t := range a.GetTriggers() {
		if t.GetSecret() != "" {
			fmt.Fprintf(&b, "secret of %s, shown this once: %s\n", t.GetName(), t.GetSecret())
		}
	}
	return b.String()
}

func triggerState(s executorv1.TriggerState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "TRIGGER_STATE_"))
}

func triggerTable(e *env, list []*executorv1.Trigger) string {
	var rows [][]string
	for _, t := range list {
		rows = append(rows, []string{
			t.GetId(), fmt.Sprintf("%s@%d", t.GetWorkflow(), t.GetVersion()), t.GetName(), t.GetType(), triggerState(t.GetState()),
			view.OneLine(cmp.Or(t.GetPath(), t.GetScheduleId()), 60), view.OneLine(t.GetReason(), 60),
		})
	}
	return view.Table(e.io.style(), []string{"TRIGGER", "WORKFLOW", "NAME", "TYPE", "STATE", "PATH OR SCHEDULE", "WHY"}, rows)
}

type triggersOffCmd struct {
	Workflow string `arg:"" help:"The workflow."`
}

// Run turns off.
func (c *triggersOffCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		a, err := s.triggers.DeactivateTriggers(ctx, &executorv1.DeactivateTriggersRequest{Workflow: c.Workflow})
		if err != nil {
			return err
		}
		return e.print(a, func() string { return activationText(e, a) })
	})
}

type triggersListCmd struct {
	page
	Workflow string `help:"Triggers of this workflow." placeholder:"NAME"`
}

// Run lists.
func (c *triggersListCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.triggers.ListTriggers(ctx, &executorv1.ListTriggersRequest{Workflow: c.Workflow, PageSize: c.Limit, PageToken: c.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetTriggers()) == 0 {
				return "no triggers\n"
			}
			return triggerTable(e, r.GetTriggers())
		})
	})
}

type triggersShowCmd struct {
	ID string `arg:"" help:"The trigger, or a delivery."`
}

// Run shows.
func (c *triggersShowCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		if strings.HasPrefix(c.ID, "tdl_") {
			d, err := s.triggers.GetTriggerDelivery(ctx, &executorv1.GetTriggerDeliveryRequest{DeliveryId: c.ID})
			if err != nil {
				return err
			}
			return e.print(d, func() string {
				return deliveryTable(e, []*executorv1.TriggerDelivery{d}) + string(d.GetEvent().GetJson()) + "\n"
			})
		}
		t, err := s.triggers.GetTrigger(ctx, &executorv1.GetTriggerRequest{TriggerId: c.ID})
		if err != nil {
			return err
		}
		return e.print(t, func() string {
			return triggerTable(e, []*executorv1.Trigger{t}) + string(t.GetDefinition().GetJson()) + "\n"
		})
	})
}

type triggersDeliveriesCmd struct {
	page
	Trigger string `arg:"" optional:"" help:"Deliveries of this trigger."`
	State   string `help:"Deliveries in this state: received, started, refused or failed." placeholder:"STATE"`
}

// Run lists.
func (c *triggersDeliveriesCmd) Run(e *env) error {
	req := &executorv1.ListTriggerDeliveriesRequest{TriggerId: c.Trigger, PageSize: c.Limit, PageToken: c.Token}
	if c.State != "" {
		states, err := enums[executorv1.TriggerDeliveryState]("--state", "TRIGGER_DELIVERY_STATE_", executorv1.TriggerDeliveryState_value, []string{c.State})
		if err != nil {
			return err
		}
		if len(states) != 1 {
			return usage(errs.New(errs.InvalidArgument, "STATE_UNKNOWN", "--state is received, started, refused or failed"))
		}
		req.State = states[0]
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.triggers.ListTriggerDeliveries(ctx, req)
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetDeliveries()) == 0 {
				return "no deliveries\n"
			}
			return deliveryTable(e, r.GetDeliveries())
		})
	})
}

func deliveryTable(e *env, list []*executorv1.TriggerDelivery) string {
	var rows [][]string
	for _, d := range list {
		why := d.GetReason()
		if d.GetMessage() != "" {
			why += ": " + d.GetMessage()
		}
		rows = append(rows, []string{
			d.GetId(), d.GetTriggerId(), view.When(d.GetReceiveTime()), strings.ToLower(strings.TrimPrefix(d.GetState().String(), "TRIGGER_DELIVERY_STATE_")),
			d.GetRunId(), view.OneLine(d.GetEventId(), 40), view.OneLine(why, 80),
		})
	}
	return view.Table(e.io.style(), []string{"DELIVERY", "TRIGGER", "AT", "STATE", "RUN", "EVENT", "WHY"}, rows)
}

type triggersRepeatCmd struct {
	ID        string `arg:"" help:"The delivery."`
	RequestID string `help:"Make the command repeatable." placeholder:"ID"`
}

// Run repeats.
func (c *triggersRepeatCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		d, err := s.triggers.RepeatTriggerDelivery(ctx, &executorv1.RepeatTriggerDeliveryRequest{DeliveryId: c.ID, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		return e.print(d, func() string { return d.GetId() + "\n" })
	})
}

type triggersRotateCmd struct {
	ID string `arg:"" help:"The trigger, a webhook."`
}

// Run rotates.
func (c *triggersRotateCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		t, err := s.triggers.RotateTriggerSecret(ctx, &executorv1.RotateTriggerSecretRequest{TriggerId: c.ID})
		if err != nil {
			return err
		}
		return e.print(t, func() string { return t.GetSecret() + "\n" })
	})
}
