package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
	"github.com/epigraph-run/epigraph/workgraph"
)

func (r *replica) sdk() *epigraph.Client {
	r.t.Helper()
	c, err := epigraph.Dial(r.addr, epigraph.WithKey(keyAcme), epigraph.WithTLS(r.tls))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// runs runs a worker, whose actors are known from then on, until the returned function is called, which waits
// for its end.
func runs(t testing.TB, w *worker.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	require.NoError(t, w.Ready(testkit.Context(t, time.Minute)))
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

type order struct {
	Item  string `json:"item" jsonschema:"what is ordered"`
	Count int    `json:"count"`
}

func TestSDK(t *testing.T) {
	r := open(t, "one", nil)
	c := r.sdk()
	log := testkit.Logger(t)

	t.Run("Worker/TypedFunctions", func(t *testing.T) {
		w := worker.New(c, worker.Options{Logger: log})
		worker.Register(w, "price", func(ctx context.Context, o order) (map[string]any, error) {
			v := worker.Call(ctx)
			if o.Count < 1 {
				return nil, worker.Permanent("COUNT_INVALID", fmt.Errorf("%d is no count", o.Count))
			}
			return map[string]any{"total": o.Count * len(o.Item), "key": v.EffectKey}, nil
		}, worker.Effect(worker.Pure), worker.Description("prices an order"))
		worker.Register(w, "shout", func(_ context.Context, s string) (string, error) { return s + "!", nil }, worker.Effect(worker.Pure))
		worker.Register(w, "panics", func(context.Context, any) (any, error) { panic("no") }, worker.Effect(worker.Pure))
		runs(t, w)
		g := workgraph.NewBuilder("order").Node("p", "price", workgraph.Named("item", json.RawMessage(`"tea"`)), workgraph.Named("count", json.RawMessage(`2`))).Graph()
		run, err := c.StartRun(t.Context(), g)
		require.NoError(t, err)
		got, err := epigraph.Result[struct {
			Total int
			Key   string
		}](t.Context(), run)
		require.NoError(t, err)
		require.Equal(t, 6, got.Total)
		require.Equal(t, run.ID+"/p/1/0/1", got.Key)

		g.Nodes[0].Named["count"] = json.RawMessage(`"two"`)
		_, err = c.StartRun(t.Context(), g)
		require.Equal(t, "GRAPH_INVALID", epigraph.ReasonOf(err), "the schema is derived: %v", err)
		g.Nodes[0].Named["count"] = json.RawMessage(`0`)
		run, err = c.StartRun(t.Context(), g)
		require.NoError(t, err)
		_, err = epigraph.Result[any](t.Context(), run)
		var failed *epigraph.RunError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, []string{"COUNT_INVALID", "0 is no count", "p"}, []string{failed.Reason, failed.Message, failed.NodeID})

		run, err = c.StartRun(t.Context(), workgraph.NewBuilder("s").Node("s", "shout").Graph(), epigraph.Arg("hey"))
		require.NoError(t, err)
		text, err := epigraph.Result[string](t.Context(), run)
		require.NoError(t, err)
		require.Equal(t, "hey!", text)
		run, err = c.StartRun(t.Context(), workgraph.NewBuilder("s").Node("s", "panics").Graph())
		require.NoError(t, err)
		_, err = epigraph.Result[string](t.Context(), run)
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "PANIC", failed.Reason)
	})

	t.Run("Worker/StopsInGoodOrder", func(t *testing.T) {
		began, end := make(chan struct{}), make(chan struct{})
		w := worker.New(c, worker.Options{Logger: log})
		worker.Register(w, "slow", func(context.Context, any) (string, error) {
			close(began)
			<-end
			return "done", nil
		})
		stop := runs(t, w)
		run, err := c.StartRun(t.Context(), workgraph.NewBuilder("s").Node("s", "slow").Graph())
		require.NoError(t, err)
		<-began
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		select {
		case <-stopped:
			t.Fatal("stopped with a visit under way")
		case <-time.After(50 * time.Millisecond):
		}
		close(end)
		<-stopped
		got, err := epigraph.Result[string](t.Context(), run)
		require.NoError(t, err)
		require.Equal(t, "done", got)
	})

	t.Run("Worker/ThatStopsUsesUpNoTry", func(t *testing.T) {
		var lives atomic.Int64
		began := make(chan struct{})
		life := func() (stop func()) {
			w := worker.New(c, worker.Options{Logger: log, DrainTimeout: time.Millisecond})
			worker.Register(w, "stops", func(ctx context.Context, _ any) (int64, error) {
				if n := lives.Add(1); n > 4 {
					return n, nil
				}
				began <- struct{}{}
				<-ctx.Done()
				return 0, fmt.Errorf("asked somebody: %w", ctx.Err())
			}, worker.Effect(worker.Idempotent))
			return runs(t, w)
		}
		stop := life()
		g := workgraph.NewBuilder("s").Node("s", "stops").Graph()
		g.Nodes[0].Retry = workgraph.Retry{InitialBackoff: workgraph.Duration(time.Millisecond), MaxBackoff: workgraph.Duration(time.Millisecond)}
		run, err := c.StartRun(t.Context(), g)
		require.NoError(t, err)
		for range 4 {
			<-began
			stop()
			stop = life()
		}
		got, err := epigraph.Result[int64](t.Context(), run)
		require.NoError(t, err)
		require.EqualValues(t, 5, got)
	})

	t.Run("Worker/CannotBeAccepted", func(t *testing.T) {
		w := worker.New(c, worker.Options{Logger: log})
		worker.Register(w, "cel", func(context.Context, any) (any, error) { return nil, nil })
		err := w.Run(t.Context())
		require.Equal(t, "HELLO_INVALID", epigraph.ReasonOf(err), "got %v", err)
		require.Equal(t, err, w.Ready(t.Context()), "who waits for the worker hears of it")
		require.Error(t, worker.New(c, worker.Options{}).Run(t.Context()), "nothing is served")
	})

	t.Run("Ready/StartedRightAfterItARunFindsTheActor", func(t *testing.T) {
		for i := range 20 {
			actor := fmt.Sprint("fresh/", i)
			w := worker.New(c, worker.Options{Logger: log})
			worker.Register(w, actor, func(context.Context, any) (string, error) { return actor, nil }, worker.Effect(worker.Pure))
			stop := runs(t, w)
			run, err := c.StartRun(t.Context(), workgraph.NewBuilder("s").Node("s", actor).Graph())
			require.NoError(t, err)
			got, err := epigraph.Result[string](t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, actor, got)
			stop()
			require.NoError(t, w.Ready(t.Context()), "what was accepted stays known")
		}
	})

	t.Run("Ready/SaysWhyNobodyAcceptsTheWorker", func(t *testing.T) {
		nobody, err := epigraph.Dial("127.0.0.1:1")
		require.NoError(t, err)
		defer nobody.Close()
		w := worker.New(nobody, worker.Options{Logger: log})
		worker.Register(w, "lonely", func(context.Context, any) (any, error) { return nil, nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		over, giveUp := context.WithCancel(t.Context())
		giveUp()
		testkit.Eventually(t, func() bool {
			err = w.Ready(over)
			require.ErrorIs(t, err, context.Canceled)
			return epigraph.ReasonOf(err) == "SERVICE_UNAVAILABLE"
		})
		cancel()
		require.NoError(t, <-ended)
		require.Error(t, w.Ready(t.Context()), "it has ended without ever having been accepted")
	})

	t.Run("Worker/CancelEndsTheContext", func(t *testing.T) {
		cause := make(chan error, 1)
		w := worker.New(c, worker.Options{Logger: log})
		began := make(chan struct{})
		worker.Register(w, "waits", func(ctx context.Context, _ any) (any, error) {
			close(began)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil, ctx.Err()
		}, worker.Effect(worker.Pure))
		runs(t, w)
		run, err := c.StartRun(t.Context(), workgraph.NewBuilder("s").Node("s", "waits").Graph())
		require.NoError(t, err)
		<-began
		require.NoError(t, run.Cancel(t.Context(), "enough"))
		require.Equal(t, worker.Canceled{Reason: "CANCELED"}, <-cause)
		m, err := run.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_CANCELED, m.GetState())
	})

	t.Run("Events/AreTheRunsHistory", func(t *testing.T) {
		run, err := c.StartRun(t.Context(), workgraph.NewBuilder("e").Node("a", "cel", workgraph.Named("expr", json.RawMessage(`"1"`))).Graph())
		require.NoError(t, err)
		var last int64
		for ev, err := range run.EventsAfter(t.Context(), &executorv1.WatchRunRequest{DurableOnly: true}) {
			require.NoError(t, err)
			if ev.GetSeq() > 0 {
				require.Equal(t, last+1, ev.GetSeq())
				last = ev.GetSeq()
			}
		}
		require.Greater(t, last, int64(1))
		_, err = c.Run("run_none").Get(t.Context())
		require.Equal(t, "RUN_NOT_FOUND", epigraph.ReasonOf(err))
	})
}

// TestWorkerPace is a sanity check with one worker over TLS; EPIGRAPH_PACE=n measures n nodes in place of a
// few.
func TestWorkerPace(t *testing.T) {
	total := 2000
	if n, err := strconv.Atoi(os.Getenv("EPIGRAPH_PACE")); err == nil {
		total = n
	}
	pace(t, open(t, "one", nil), total)
}

func pace(t *testing.T, r *replica, total int) {
	t.Helper()
	c := r.sdk()
	w := worker.New(c, worker.Options{Slots: 512, Logger: slog.New(slog.DiscardHandler)})
	var calls atomic.Int64
	worker.Register(w, "noop", func(context.Context, json.RawMessage) (string, error) {
		calls.Add(1)
		return "some text of about a hundred bytes, as the results of nodes tend to be when nothing much happens....", nil
	}, worker.Effect(worker.Pure))
	runs(t, w)
	chain := func(n int) *workgraph.Graph {
		b := workgraph.NewBuilder("chain")
		var ids []string
		for i := range n {
			id := fmt.Sprint("n", i)
			b.Node(id, "noop")
			ids = append(ids, id)
		}
		return b.Chain(ids...).Graph()
	}
	_, err := c.StartRun(t.Context(), chain(1))
	require.NoError(t, err)
	best := time.Hour
	for range 5 {
		began := time.Now()
		run, err := c.StartRun(t.Context(), chain(100))
		require.NoError(t, err)
		_, err = run.Wait(t.Context())
		require.NoError(t, err)
		best = min(best, time.Since(began))
	}
	t.Logf("chain of 100: %s", best)
	before, began := calls.Load(), time.Now()
	var wg sync.WaitGroup
	work := make(chan struct{}, total)
	for range total / 10 {
		work <- struct{}{}
	}
	close(work)
	errs := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			for range work {
				run, err := c.StartRun(t.Context(), chain(10))
				if err == nil {
					_, err = run.Wait(t.Context())
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	require.NoError(t, errors.Join(<-errs))
	took := time.Since(began)
	t.Logf("%d nodes in %s: %.0f/s", calls.Load()-before, took, float64(calls.Load()-before)/took.Seconds())
	require.EqualValues(t, total, calls.Load()-before, "every visit was made once")
}
