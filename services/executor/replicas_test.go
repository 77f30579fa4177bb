package executor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

func TestReplicas(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	url := pgtest.New(t)
	serverTLS, clientTLS := authority(t)
	replica := func(id string) *replica {
		return openWith(t, id, serverTLS, clientTLS, func(c *executor.Config) {
			c.Store, c.PostgresURL, c.Lease = "postgres", conf.NewSecret(url), 2*time.Second
		})
	}
	a, b := replica("a"), replica("b")
	node := func(id, actor string) *graphv1.Node { return &graphv1.Node{Id: id, Actor: actor} }

	t.Run("Hop/FindsTheWorkerElsewhere", func(t *testing.T) {
		w := b.worker(t, hello(4, pure("far")))
		go w.echo()
		c := a.client(keyAcme)
		got := start(t, c, nodes(node("x", "far"), node("y", "far"), node("z", "far")))
		require.Equal(t, `"z"`, string(got.is(done).GetResult().GetJson()))
		list, err := executorv1.NewWorkerServiceClient(a.dial(keyAcme)).ListWorkers(t.Context(), &executorv1.ListWorkersRequest{})
		require.NoError(t, err)
		require.Len(t, list.GetWorkers(), 1)
		require.Equal(t, "b", list.GetWorkers()[0].GetExecutorId())
		watch, err := c.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: got.GetId()})
		require.NoError(t, err)
		for reported := 0; reported < 3; {
			ev, err := watch.Recv()
			require.NoError(t, err)
			if ev.GetAttemptEnded() != nil {
				require.Equal(t, "key:acme", ev.GetPrincipal())
				reported++
			}
		}
	})

	t.Run("Hop/WaitsForOneToCome", func(t *testing.T) {
		w := b.worker(t, hello(1, pure("comes")))
		w.cancel()
		got := start(t, a.client(keyAcme), nodes(node("x", "comes")))
		w = b.worker(t, hello(1, pure("comes")))
		began := time.Now()
		v := w.visit()
		t.Logf("a visit came %s after its worker", time.Since(began))
		w.answer(v.GetToken(), `1`)
		got.is(done)
	})

	t.Run("Hop/CancelAsksTheWorker", func(t *testing.T) {
		w := b.worker(t, hello(1, unsafe("stops")))
		c := a.client(keyAcme)
		got := start(t, c, nodes(node("x", "stops")))
		v := w.visit()
		_, err := c.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: got.GetId()})
		require.NoError(t, err)
		require.Equal(t, "CANCELED", w.next().GetCancel().GetReason())
		w.fail(v.GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_NOT_PERFORMED})
		got.is(executorv1.RunState_RUN_STATE_CANCELED)
	})

	t.Run("Hop/BothReplicasGetTheirTurns", func(t *testing.T) {
		w := b.worker(t, hello(1, pure("shared")))
		var far, near run
		g := &graphv1.Graph{}
		for i := range 300 {
			g.Nodes = append(g.Nodes, node(fmt.Sprint("n", i), "shared"))
		}
		near = start(t, b.client(keyAcme), g)
		far = start(t, a.client(keyAcme), nodes(node("x", "shared")))
		turns := 0
		for {
			v := w.visit()
			w.answer(v.GetToken(), `1`)
			if v.GetRunId() == far.GetId() {
				break
			}
			if turns++; turns > 20 {
				// work that takes its time; the other replica looks for workers meanwhile
				<-time.After(20 * time.Millisecond)
			}
		}
		far.is(done)
		require.Less(t, turns, 300, "the one from elsewhere did not wait for all others")
		go w.echo()
		near.is(done)
	})

	t.Run("Hop/LostOnTheWay", func(t *testing.T) {
		w := b.worker(t, hello(1, pure("breaks")))
		got := start(t, a.client(keyAcme), nodes(node("x", "breaks")))
		w.visit()
		w.cancel()
		w = b.worker(t, hello(1, pure("breaks")))
		v := w.visit()
		require.EqualValues(t, 2, v.GetAttempt())
		w.answer(v.GetToken(), `1`)
		got.is(done)
	})

	t.Run("Hop/LostUsesUpNoTry", func(t *testing.T) {
		b.worker(t, hello(1, pure("dies"))).cancel() // now it is known
		got := start(t, a.client(keyAcme), nodes(soonAgain(node("x", "dies"))))
		for range 4 {
			w := b.worker(t, hello(1, pure("dies")))
			w.visit()
			w.cancel()
		}
		// Now with the executor that it is connected to.
		for i := range 2 {
			peer := replica(fmt.Sprint("peer", i))
			peer.worker(t, hello(1, pure("dies"))).visit()
			peer.server.Stop()
			peer.cancel()
			<-peer.done
		}
		w := b.worker(t, hello(1, pure("dies")))
		w.answer(w.visit().GetToken(), `1`)
		got.is(done)
	})

	t.Run("TakeOver/OwnerGone", func(t *testing.T) {
		w := b.worker(t, hello(1, pure("stays")))
		got := start(t, a.client(keyAcme), nodes(node("x", "stays"), node("y", "stays")))
		w.answer(w.visit().GetToken(), `1`)
		w.visit()
		// An engine that waits for such an answer gives it up after this, and no sooner.
		const engineGrace = 10 * time.Second
		began := time.Now()
		a.server.Stop()
		a.cancel()
		<-a.done
		require.Less(t, time.Since(began), engineGrace, "nobody waits for answers that do not count")
		got.c = b.client(keyAcme)
		go w.echo()
		got.is(done)
	})
}
