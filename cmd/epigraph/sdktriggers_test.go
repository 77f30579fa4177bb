package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// TestSDKTriggers has the calls of the SDK for triggers, on a server.
func TestSDKTriggers(t *testing.T) {
	d := serve(t, fakellm.Script{})
	c, err := epigraph.Dial(d.GRPCAddr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ctx := t.Context()
	_, err = c.CreateWorkflow(ctx, "name: Orders\ntrigger: {type: webhook, path: orders/new, signature: token}\nsteps:\n  - {id: say, type: transform, template: thanks}\n")
	require.NoError(t, err)
	triggers := c.Triggers("orders")
	on, err := triggers.Activate(ctx)
	require.NoError(t, err)
	require.Len(t, on.GetTriggers(), 1)
	hook := on.GetTriggers()[0]
	require.NotEmpty(t, hook.GetSecret())

	// deliveries waits until there are so many, all of them started.
	deliveries := func(t *testing.T, n int) (out []*executorv1.TriggerDelivery) {
		t.Helper()
		testkit.Eventually(t, func() bool {
			out = nil
			for m, err := range c.ListTriggerDeliveries(ctx, &executorv1.ListTriggerDeliveriesRequest{TriggerId: hook.GetId(), PageSize: 1}) {
				require.NoError(t, err)
				if m.GetState() == executorv1.TriggerDeliveryState_TRIGGER_DELIVERY_STATE_STARTED {
					out = append(out, m)
				}
			}
			return len(out) == n
		})
		return out
	}
	call := func(t *testing.T, secret string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.HTTPAddr()+"/v1/hooks/default/"+hook.GetPath(), strings.NewReader(`{"order": 7}`))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	t.Run("List", func(t *testing.T) {
		var names []string
		for x, err := range triggers.List(ctx) {
			require.NoError(t, err)
			require.Empty(t, x.GetSecret(), "it is shown once")
			names = append(names, x.GetType())
		}
		require.Equal(t, []string{"webhook"}, names)
		x, err := c.Trigger(ctx, hook.GetId())
		require.NoError(t, err)
		require.Equal(t, executorv1.TriggerState_TRIGGER_STATE_ACTIVE, x.GetState())
	})
	t.Run("Deliveries", func(t *testing.T) {
		require.Less(t, call(t, hook.GetSecret()), 300)
		first := deliveries(t, 1)[0]
		m, err := c.TriggerDelivery(ctx, first.GetId())
		require.NoError(t, err)
		require.Contains(t, string(m.GetEvent().GetJson()), `"order"`)
		text, err := epigraph.Result[string](ctx, c.Run(first.GetRunId()))
		require.NoError(t, err)
		require.Equal(t, "thanks", text)
	})
	t.Run("Repeat", func(t *testing.T) {
		first := deliveries(t, 1)[0]
		again, err := c.RepeatTriggerDelivery(ctx, first.GetId())
		require.NoError(t, err)
		require.Equal(t, first.GetId(), again.GetRepeatOf())
		two := deliveries(t, 2)
		require.NotEqual(t, two[0].GetRunId(), two[1].GetRunId())
	})
	t.Run("Rotate", func(t *testing.T) {
		x, err := c.RotateTriggerSecret(ctx, hook.GetId())
		require.NoError(t, err)
		require.NotEqual(t, hook.GetSecret(), x.GetSecret())
		require.GreaterOrEqual(t, call(t, hook.GetSecret()), 400, "the old one is worth nothing")
	})
	t.Run("Deactivate", func(t *testing.T) {
		_, err := triggers.Deactivate(ctx)
		require.NoError(t, err)
		x, err := c.Trigger(ctx, hook.GetId())
		require.NoError(t, err)
		require.Equal(t, executorv1.TriggerState_TRIGGER_STATE_ENDED, x.GetState())
	})
}
