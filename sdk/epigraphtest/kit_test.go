package epigraphtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/sdk/epigraphtest"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestOrders shows a whole test of a graph: fake actors, an interrupt, a day that passes in no time, and a
// crash.
func TestOrders(t *testing.T) {
	k := epigraphtest.New(t)
	k.Returns("price", workgraph.Errorf(workgraph.Retryable, "BUSY", "later"), 120)
	k.Returns("ask", workgraph.Outcome{Wait: &workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"buy?"`)}}})
	k.Actor("rest", func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Wait: &workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(24 * time.Hour)}}}, nil
	})
	epigraphtest.Func(k, "buy", func(_ context.Context, in struct{ Answer string }) (string, error) {
		return "bought: " + in.Answer, nil
	})
	g := workgraph.NewBuilder("order").
		Node("price", "price").Node("ask", "ask", workgraph.Pass(workgraph.Key("answer"))).Node("rest", "rest").Node("buy", "buy").
		Chain("price", "ask", "rest", "buy").Graph()

	r := k.Start(g)
	require.Len(t, k.Calls("price"), 1, "the first try failed, the next one has to wait")
	k.Pass(time.Minute)
	require.Len(t, k.Calls("price"), 2)
	require.Equal(t, "run1/price/1/0/1", k.Calls("price")[0].EffectKey())
	require.Len(t, r.Interrupts(), 1)
	k.Crash()
	require.Len(t, r.Interrupts(), 1, "the interrupt outlives the process")
	r.Answer("ask", "yes")
	require.Empty(t, k.Calls("buy"))
	k.Pass(24 * time.Hour)
	var got string
	r.Result(&got)
	require.Equal(t, "bought: yes", got)
}

func TestKit(t *testing.T) {
	wait := func(w workgraph.Wait) workgraph.Outcome { return workgraph.Outcome{Wait: &w} }
	one := func(id, actor string) *workgraph.Graph { return workgraph.NewBuilder("g").Node(id, actor).Graph() }

	t.Run("Crash/UnsafeIsNeverRepeated", func(t *testing.T) {
		for _, at := range []epigraphtest.CrashPoint{epigraphtest.BeforeCall, epigraphtest.AfterCall} {
			k := epigraphtest.New(t)
			k.Actor("pay", func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { return workgraph.Outcome{}, nil }, workgraph.Unsafe)
			k.CrashAt("pay", at)
			r := k.Start(one("pay", "pay"))
			status, _ := r.Status()
			require.Equal(t, workgraph.StatusPaused, status)
			require.Len(t, k.Calls("pay"), int(at)-1)
		}
	})
	t.Run("Crash/IdempotentIsRepeatedUnderItsKey", func(t *testing.T) {
		k := epigraphtest.New(t)
		k.Returns("put", "done").CrashAt("put", epigraphtest.AfterCall)
		k.Start(one("put", "put")).Result(nil)
		calls := k.Calls("")
		require.Len(t, calls, 2)
		require.Equal(t, calls[0].EffectKey(), calls[1].EffectKey())
	})
	t.Run("Children/AreRunsOfTheKit", func(t *testing.T) {
		k := epigraphtest.New(t)
		k.Returns("work", "w").Workflow("workflow/sub@1", one("work", "work"))
		k.Returns("spawn", wait(workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{{Ref: "workflow/sub@1"}, {Graph: one("x", "work")}, {Ref: "workflow/none@1"}}}}))
		r := k.Start(one("s", "spawn"))
		var slots []struct{ Status, Result string }
		r.Result(&slots)
		require.Equal(t, []string{"COMPLETED", "COMPLETED", "FAILED"}, []string{slots[0].Status, slots[1].Status, slots[2].Status})
		r.Child(1).Result(nil)
	})
	t.Run("Outside/SignalsTasksMessages", func(t *testing.T) {
		k := epigraphtest.New(t)
		k.Returns("signal", wait(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}))
		k.Returns("completion", wait(workgraph.Wait{Completion: &workgraph.CompletionWait{}}))
		r := k.Start(workgraph.NewBuilder("g").Node("a", "signal").Node("b", "completion").Chain("a", "b").Graph())
		r.Signal("go", 1)
		r.CompleteAttempt("b", "finished")
		var got string
		r.Result(&got)
		require.Equal(t, "finished", got)
	})
	t.Run("Failure/IsToldByItsReason", func(t *testing.T) {
		k := epigraphtest.New(t)
		k.Returns("bad", errors.New("no"))
		r := k.Start(one("bad", "bad"))
		k.Finish()
		r.Failed(workgraph.ReasonActorError)
		require.Len(t, k.Calls("bad"), 3, "with all its attempts")
	})
	t.Run("Cancel/EndsTheRun", func(t *testing.T) {
		k := epigraphtest.New(t)
		k.Returns("signal", wait(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}))
		r := k.Start(one("a", "signal"))
		r.Cancel()
		status, _ := r.Status()
		require.Equal(t, workgraph.StatusCanceled, status)
	})
}
