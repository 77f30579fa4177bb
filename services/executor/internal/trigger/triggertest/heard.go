package triggertest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

// heard is about deliveries that their callers carry out, as the messages of chats are.
func (d Driver) heard(t *testing.T) {
	start := func(b *bench) func(context.Context, *trigger.Delivery) (string, error) {
		return func(ctx context.Context, x *trigger.Delivery) (string, error) { return b.runs.Start(ctx, &b.t, x, nil) }
	}
	read := func(t *testing.T, b *bench, x trigger.Delivery) trigger.Delivery {
		t.Helper()
		got, err := b.Delivery(t.Context(), x.Key)
		require.NoError(t, err)
		return got
	}
	t.Run("IsOneDeliveryAndOneRun", func(t *testing.T) {
		b := d.bench(t)
		first, err := b.c.Hear(t.Context(), b.event("a"), start(b))
		require.NoError(t, err)
		require.Equal(t, trigger.Started, read(t, b, first).Status)
		again, err := b.c.Hear(t.Context(), b.event("a"), start(b))
		require.NoError(t, err)
		require.Equal(t, first.ID, again.ID)
		require.Len(t, b.runs.runs, 1)
		require.Zero(t, read(t, b, first).Due)
	})
	t.Run("IsLeftToItsCallerForAWhile", func(t *testing.T) {
		b := d.bench(t)
		x, err := b.c.Hear(t.Context(), b.event("a"), func(context.Context, *trigger.Delivery) (string, error) { return "", errDead })
		require.Error(t, err)
		got := b.work(t, x)
		require.Equal(t, trigger.Received, got.Status)
		require.Zero(t, b.runs.starts, "a job that comes too early leaves it alone")
	})
	t.Run("WhoDiesLeavesItToTheJob", func(t *testing.T) {
		for at := 1; at <= 3; at++ {
			for _, after := range []bool{false, true} {
				b := d.bench(t)
				step := new(atomic.Int64)
				dead := controller(t, dying{Store: b.Store, step: step, at: int64(at), after: after}, b.runs, b.shelf)
				_, _ = dead.Hear(t.Context(), b.event("a"), start(b))
				x, err := b.c.Hear(t.Context(), b.event("a"), start(b)) // the caller sends it again
				require.NoError(t, err)
				require.Equal(t, trigger.Started, read(t, b, x).Status)
				require.Len(t, b.runs.runs, 1)
			}
		}
		b := d.bench(t)
		e := b.event("a")
		e.Spare = -time.Hour // its time is over
		x, err := b.c.Receive(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, trigger.Started, b.work(t, x).Status)
		require.Len(t, b.runs.runs, 1)
	})
	t.Run("WhatIsRefusedIsRefusedUntilItComesAgain", func(t *testing.T) {
		b := d.bench(t)
		b.runs.fails = []error{errs.New(errs.ResourceExhausted, "FULL", "no room")}
		x, err := b.c.Hear(t.Context(), b.event("a"), start(b))
		require.Equal(t, "FULL", errs.ReasonOf(err))
		got := read(t, b, x)
		require.Equal(t, "REFUSED FULL", string(got.Status)+" "+got.Reason)
		n, err := b.Overdue(t.Context(), dbkit.Now().Add(time.Hour), 10)
		require.NoError(t, err)
		require.Zero(t, n, "the caller was told, so that nothing tries again")
		_, err = b.c.Hear(t.Context(), b.event("a"), start(b))
		require.NoError(t, err)
		require.Equal(t, trigger.Started, read(t, b, x).Status)
	})
	t.Run("IsRepeatedWithTheRightsOfWhoRepeats", func(t *testing.T) {
		b := d.bench(t)
		e := b.event("a")
		e.Details = trigger.Details{User: "ada", Principal: "key:ada", Approves: true, Request: "r", BodyHash: "h"}
		x, err := b.c.Hear(t.Context(), e, start(b))
		require.NoError(t, err)
		bob := access.With(t.Context(), access.Principal{Kind: access.Key, Name: "bob", Scopes: []access.Scope{access.Run}})
		again, err := b.c.Repeat(bob, x.Key, "once")
		require.NoError(t, err)
		require.Equal(t, trigger.Details{User: "ada", Principal: access.Of(bob).String()}, read(t, b, again).Details)
		require.Equal(t, x.ID, again.RepeatOf)
		require.Equal(t, trigger.Started, b.work(t, again).Status)
		require.Len(t, b.runs.runs, 2)
	})
	t.Run("AnotherBodyUnderTheSameRequestIsRefusedAlone", func(t *testing.T) {
		b := d.bench(t)
		e := b.event("a")
		e.Details = trigger.Details{Request: "r", BodyHash: "h"}
		x, err := b.c.Hear(t.Context(), e, func(context.Context, *trigger.Delivery) (string, error) { return "", errDead })
		require.Error(t, err)
		e.BodyHash = "another"
		_, err = b.c.Hear(t.Context(), e, func(context.Context, *trigger.Delivery) (string, error) {
			t.Error("it is carried out")
			return "", nil
		})
		require.Equal(t, journal.ReasonRequestIDReused, errs.ReasonOf(err))
		require.Equal(t, trigger.Received, read(t, b, x).Status, "the first one is still to be carried out")
	})
	t.Run("AMessageToABotIsRepeatedWithTheRightsOfWhoRepeats", func(t *testing.T) {
		b := d.bench(t)
		b.shelf.put("desk", "wf_3", 1, workflow.Trigger{ID: "telegram_1", Type: "telegram", Bot: "helper"})
		_, list, err := b.c.Activate(t.Context(), "n", "desk")
		require.NoError(t, err)
		x, err := b.c.Receive(t.Context(), trigger.Event{Trigger: list[0].Key, ID: "helper/1", Body: b.event("").Body, Details: trigger.Details{User: "telegram:7", Chat: "70"}})
		require.NoError(t, err)
		for name, scopes := range map[string][]access.Scope{"bob": {access.Run}, "eve": {access.Run, access.Approve}} {
			by := access.With(t.Context(), access.Principal{Kind: access.Key, Name: name, Scopes: scopes})
			again, err := b.c.Repeat(by, x.Key, name)
			require.NoError(t, err)
			require.Equal(t, trigger.Details{User: "telegram:7", Chat: "70", Principal: access.Of(by).String(), Approves: name == "eve"}, read(t, b, again).Details)
		}
	})
	t.Run("FindsTheTriggerThatIsOn", func(t *testing.T) {
		b := d.bench(t)
		b.shelf.put("mute", "wf_2", 1, workflow.Trigger{ID: "x", Type: "workflow", Workflow: "talk", On: "ended"})
		_, _, err := b.c.Activate(t.Context(), "n", "mute")
		require.NoError(t, err)
		for name, want := range map[string]bool{"talk": true, "mute": false, "nobody": false} {
			_, ok, err := b.c.Chat(t.Context(), "n", name)
			require.NoError(t, err)
			require.Equal(t, want, ok, name)
		}
		_, err = b.c.Deactivate(t.Context(), "n", "talk")
		require.NoError(t, err)
		_, ok, err := b.c.Chat(t.Context(), "n", "talk")
		require.NoError(t, err)
		require.False(t, ok)
	})
}
