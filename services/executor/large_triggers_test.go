package executor_test

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// nearCatalog is a catalog in this process.
type nearCatalog struct {
	registryv1.WorkflowServiceClient
	fake *fakeCatalog
}

// ResolveWorkflow implements registryv1.WorkflowServiceClient.
func (c nearCatalog) ResolveWorkflow(ctx context.Context, r *registryv1.ResolveWorkflowRequest, _ ...grpc.CallOption) (*registryv1.ResolveWorkflowResponse, error) {
	return c.fake.ResolveWorkflow(ctx, r)
}

func (w *largeWorld) triggers() executorv1.TriggerServiceClient {
	return executorv1.NewTriggerServiceClient(w.dial(keyAcme))
}

// on turns on a webhook of a workflow whose result is what it is told.
func (w *largeWorld) on(name string) *executorv1.Trigger {
	w.t.Helper()
	w.catalog.stands(name, 1, `{"id": "hook", "type": "webhook", "signature": "token", "inputs": {"big": "{{ event.body }}"}}`)
	a, err := w.triggers().ActivateTriggers(w.t.Context(), &executorv1.ActivateTriggersRequest{Workflow: name})
	require.NoError(w.t, err)
	require.Len(w.t, a.GetTriggers(), 1)
	return a.GetTriggers()[0]
}

// told calls the webhook of a workflow with a large body, and waits until its run has that as its result.
func (w *largeWorld) told(name string) *executorv1.TriggerDelivery {
	w.t.Helper()
	x := w.on(name)
	ctx := grpckit.WithNamespace(w.t.Context(), "acme")
	r, err := executorv1.NewHookServiceClient(w.dial(serviceToken)).ReceiveWebhook(ctx, &executorv1.ReceiveWebhookRequest{
		Path: name + "/hook", Headers: map[string]string{"authorization": "Bearer " + x.GetSecret()}, Body: []byte(large),
	})
	require.NoError(w.t, err)
	return w.delivery(r.GetDeliveryId())
}

// delivery waits until a delivery has started its run, which gives back what it is told.
func (w *largeWorld) delivery(id string) *executorv1.TriggerDelivery {
	w.t.Helper()
	var d *executorv1.TriggerDelivery
	testkit.Eventually(w.t, func() bool {
		var err error
		d, err = w.triggers().GetTriggerDelivery(w.t.Context(), &executorv1.GetTriggerDeliveryRequest{DeliveryId: id})
		require.NoError(w.t, err)
		return d.GetState() == executorv1.TriggerDeliveryState_TRIGGER_DELIVERY_STATE_STARTED
	})
	require.Contains(w.t, string(d.GetEvent().GetJson()), large)
	got := run{w.t, w.c, &executorv1.Run{Id: d.GetRunId()}}.is(completed)
	require.JSONEq(w.t, fmt.Sprintf(`{"big": %s}`, large), string(got.GetResult().GetJson()))
	return d
}

// largeTriggerCases call the RPCs about triggers with large events.
func largeTriggerCases() map[string]func(*largeWorld) {
	return map[string]func(*largeWorld){
		"HookService/ReceiveWebhook":        func(w *largeWorld) { w.told("received") },
		"TriggerService/GetTriggerDelivery": func(w *largeWorld) { w.told("shown") },
		"TriggerService/ActivateTriggers":   func(w *largeWorld) { w.on("activated") },
		"TriggerService/DeactivateTriggers": func(w *largeWorld) {
			w.told("deactivated")
			_, err := w.triggers().DeactivateTriggers(w.t.Context(), &executorv1.DeactivateTriggersRequest{Workflow: "deactivated"})
			require.NoError(w.t, err)
		},
		"TriggerService/GetTrigger": func(w *largeWorld) {
			x, err := w.triggers().GetTrigger(w.t.Context(), &executorv1.GetTriggerRequest{TriggerId: w.on("one").GetId()})
			require.NoError(w.t, err)
			require.Empty(w.t, x.GetSecret(), "it is told once")
		},
		"TriggerService/ListTriggers": func(w *largeWorld) {
			w.on("listed")
			list, err := w.triggers().ListTriggers(w.t.Context(), &executorv1.ListTriggersRequest{Workflow: "listed"})
			require.NoError(w.t, err)
			require.Len(w.t, list.GetTriggers(), 1)
		},
		"TriggerService/ListTriggerDeliveries": func(w *largeWorld) {
			d := w.told("deliveries")
			list, err := w.triggers().ListTriggerDeliveries(w.t.Context(), &executorv1.ListTriggerDeliveriesRequest{TriggerId: d.GetTriggerId()})
			require.NoError(w.t, err)
			require.Len(w.t, list.GetDeliveries(), 1)
			require.Empty(w.t, list.GetDeliveries()[0].GetEvent().GetJson(), "lists do without")
		},
		"TriggerService/RepeatTriggerDelivery": func(w *largeWorld) {
			d := w.told("repeated")
			again, err := w.triggers().RepeatTriggerDelivery(w.t.Context(), &executorv1.RepeatTriggerDeliveryRequest{DeliveryId: d.GetId()})
			require.NoError(w.t, err)
			require.NotEqual(w.t, d.GetRunId(), w.delivery(again.GetId()).GetRunId())
		},
		"TriggerService/RotateTriggerSecret": func(w *largeWorld) {
			x := w.on("rotated")
			now, err := w.triggers().RotateTriggerSecret(w.t.Context(), &executorv1.RotateTriggerSecretRequest{TriggerId: x.GetId()})
			require.NoError(w.t, err)
			require.NotEqual(w.t, x.GetSecret(), now.GetSecret())
		},
	}
}
