package executor_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// Somebody who reconciles an UNSAFE call looks it up by the key that it carried, so the API must return
// exactly that.
func TestEffectKeyIsReportedAsItWasCarried(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		dir := t.TempDir()
		serverTLS, clientTLS := authority(t)
		executorOf := func(id string) *replica {
			return openWith(t, id, serverTLS, clientTLS, func(c *executor.Config) {
				c.SQLitePath = filepath.Join(dir, "executor.db")
				c.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"}
				store(c)
			})
		}
		r := executorOf("one")
		c := r.client(keyAcme)
		// intents are the keys in the events of a visit or item, oldest first.
		intents := func(t *testing.T, id, node string, visit, item int32) (keys []string) {
			t.Helper()
			at, err := c.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := c.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: id, DurableOnly: true})
			require.NoError(t, err)
			for seq := int64(0); seq < at.GetLastSeq(); {
				ev, err := stream.Recv()
				require.NoError(t, err)
				seq = max(seq, ev.GetSeq())
				if x := ev.GetAttemptIntended(); x.GetVisit().GetNodeId() == node && x.GetVisit().GetVisit() == visit && x.GetVisit().GetItem() == item {
					keys = append(keys, x.GetEffectKey())
				}
			}
			return keys
		}
		// questions are the keys of the calls that need reconciliation, by item.
		questions := func(t *testing.T, id, node string, visit int32) map[int32]string {
			t.Helper()
			x, err := c.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: id})
			require.NoError(t, err)
			keys := map[int32]string{}
			for _, b := range x.GetBlockers() {
				if b.GetKind() == executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION && b.GetVisit().GetNodeId() == node && b.GetVisit().GetVisit() == visit {
					keys[b.GetVisit().GetItem()] = b.GetEffectKey()
				}
			}
			return keys
		}
		listed := func(t *testing.T, id, node string, visit int32) string {
			t.Helper()
			list, err := c.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: id, NodeId: node})
			require.NoError(t, err)
			at := slices.IndexFunc(list.GetVisits(), func(v *executorv1.Visit) bool { return v.GetVisit() == visit })
			require.GreaterOrEqual(t, at, 0)
			return list.GetVisits()[at].GetEffectKey()
		}
		paused := func(t *testing.T, got run) {
			t.Helper()
			require.Equal(t, "NEEDS_RECONCILIATION", got.is(executorv1.RunState_RUN_STATE_PAUSED).GetStateReason())
		}
		lost := &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_UNKNOWN, Reason: "LOST"}
		notPerformed := func(t *testing.T, id string, ref *executorv1.VisitRef) {
			t.Helper()
			_, err := c.ReconcileVisit(t.Context(), &executorv1.ReconcileVisitRequest{RunId: id, Visit: ref,
				Outcome: &executorv1.ReconcileVisitRequest_NotPerformed{NotPerformed: &executorv1.AttemptNotPerformed{}}})
			require.NoError(t, err)
			_, err = c.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: id})
			require.NoError(t, err)
		}
		// becomesUnsafe amends a node that backs off after a retryable error. A definite failure ends an
		// UNSAFE visit, so that this is how an UNSAFE call comes to another generation than the first.
		becomesUnsafe := func(t *testing.T, id string, n *graphv1.Node) {
			t.Helper()
			testkit.Eventually(t, func() bool {
				list, err := c.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: id, NodeId: n.GetId()})
				require.NoError(t, err)
				return len(list.GetVisits()) > 0 && list.GetVisits()[0].GetState() == executorv1.VisitState_VISIT_STATE_BACKING_OFF
			})
			require.Empty(t, listed(t, id, n.GetId(), 1), "a call that is not UNSAFE has no intent")
			n.Effect = graphv1.Effect_EFFECT_UNSAFE
			_, err := c.AmendRun(t.Context(), &executorv1.AmendRunRequest{RunId: id, Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{n}}})
			require.NoError(t, err)
		}
		hourly := &graphv1.Retry{InitialInterval: durationpb.New(time.Hour), MaxAttempts: 5}

		t.Run("HTTP/AmendedAfterARetryableError", func(t *testing.T) {
			carried := make(chan string, 8)
			busy := make(chan struct{}, 1)
			busy <- struct{}{}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				carried <- req.Header.Get("Idempotency-Key")
				select {
				case <-busy:
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					panic(http.ErrAbortHandler) // the effect is unknown
				}
			}))
			defer srv.Close()
			n := &graphv1.Node{Id: "pay", Actor: "http", Effect: graphv1.Effect_EFFECT_IDEMPOTENT, Retry: hourly,
				Named: map[string]*graphv1.Payload{"url": value(`"` + srv.URL + `"`), "method": value(`"POST"`)}}
			got := start(t, c, nodes(n))
			require.Equal(t, got.GetId()+"/pay/1/0/1", <-carried)
			becomesUnsafe(t, got.GetId(), n)
			key := <-carried
			require.Equal(t, got.GetId()+"/pay/1/0/3", key)
			paused(t, got)
			require.Equal(t, []string{key}, intents(t, got.GetId(), "pay", 1, 0))
			require.Equal(t, map[int32]string{0: key}, questions(t, got.GetId(), "pay", 1))
			require.Equal(t, key, listed(t, got.GetId(), "pay", 1))
		})
		t.Run("Worker/AmendedAfterARetryableErrorAndCalledAgain", func(t *testing.T) {
			w := r.worker(t, hello(1, unsafe("pays")))
			n := &graphv1.Node{Id: "pay", Actor: "pays", Effect: graphv1.Effect_EFFECT_IDEMPOTENT, Retry: hourly}
			got := start(t, c, nodes(n))
			w.fail(w.visit().GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_RETRYABLE, Reason: "BUSY"})
			becomesUnsafe(t, got.GetId(), n)
			v := w.visit()
			w.fail(v.GetToken(), lost)
			paused(t, got)
			key := v.GetEffectKey()
			require.Equal(t, []string{key}, intents(t, got.GetId(), "pay", 1, 0))
			require.Equal(t, map[int32]string{0: key}, questions(t, got.GetId(), "pay", 1))
			notPerformed(t, got.GetId(), &executorv1.VisitRef{NodeId: "pay", Visit: 1})
			v = w.visit()
			require.Equal(t, key, v.GetEffectKey())
			w.answer(v.GetToken(), `1`)
			got.is(executorv1.RunState_RUN_STATE_COMPLETED)
			require.Equal(t, []string{key, key}, intents(t, got.GetId(), "pay", 1, 0))
			require.Equal(t, key, listed(t, got.GetId(), "pay", 1))
		})
		t.Run("Worker/Items", func(t *testing.T) {
			w := r.worker(t, hello(2, unsafe("each")))
			got := start(t, c, nodes(&graphv1.Node{Id: "m", Actor: "each", Map: &graphv1.Map{Over: "[1, 2]"}}))
			carried := map[int32]string{}
			for range 2 {
				v := w.visit()
				carried[v.GetVisit().GetItem()] = v.GetEffectKey()
				w.fail(v.GetToken(), lost)
			}
			paused(t, got)
			testkit.Eventually(t, func() bool { return len(questions(t, got.GetId(), "m", 1)) == 2 })
			require.Equal(t, carried, questions(t, got.GetId(), "m", 1))
			for item, key := range carried {
				require.Equal(t, []string{key}, intents(t, got.GetId(), "m", 1, item))
			}
			require.Empty(t, listed(t, got.GetId(), "m", 1), "each item has its own")
		})
		t.Run("Worker/SecondRound", func(t *testing.T) {
			w := r.worker(t, hello(1, unsafe("rounds")))
			g := nodes(&graphv1.Node{Id: "a", Actor: "rounds"})
			g.Edges = append(g.Edges, &graphv1.Edge{From: "a", To: "a", Kind: graphv1.EdgeKind_EDGE_KIND_BACK, When: "visit < 2"})
			got := start(t, c, g)
			w.answer(w.visit().GetToken(), `1`)
			v := w.visit()
			w.fail(v.GetToken(), lost)
			paused(t, got)
			require.Equal(t, []string{v.GetEffectKey()}, intents(t, got.GetId(), "a", 2, 0))
			require.Equal(t, map[int32]string{0: v.GetEffectKey()}, questions(t, got.GetId(), "a", 2))
			require.Equal(t, v.GetEffectKey(), listed(t, got.GetId(), "a", 2))
			require.NotEqual(t, v.GetEffectKey(), listed(t, got.GetId(), "a", 1))
		})
		t.Run("Worker/ChildRun", func(t *testing.T) {
			w := r.worker(t, hello(2, unsafe("inner"), pure("spawns")))
			got := start(t, c, nodes(&graphv1.Node{Id: "a", Actor: "spawns"}))
			w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Outcome{Outcome: &executorv1.AttemptOutcome{Token: w.visit().GetToken(),
				Outcome: &executorv1.Outcome{Wait: &executorv1.Wait{Wait: &executorv1.Wait_Children{Children: &executorv1.ChildrenWait{Children: []*executorv1.ChildRun{
					{Target: &executorv1.ChildRun_Graph{Graph: nodes(&graphv1.Node{Id: "b", Actor: "inner"})}}}}}}}}}})
			v := w.visit()
			require.NotEqual(t, got.GetId(), v.GetRunId())
			w.fail(v.GetToken(), lost)
			child, err := c.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: v.GetRunId()})
			require.NoError(t, err)
			paused(t, run{t, c, child})
			require.Equal(t, []string{v.GetEffectKey()}, intents(t, v.GetRunId(), "b", 1, 0))
			require.Equal(t, map[int32]string{0: v.GetEffectKey()}, questions(t, v.GetRunId(), "b", 1))
			require.Equal(t, v.GetEffectKey(), listed(t, v.GetRunId(), "b", 1))
		})
		t.Run("Worker/EndedUnknown", func(t *testing.T) {
			w := r.worker(t, hello(1, unsafe("ends")))
			got := start(t, c, nodes(&graphv1.Node{Id: "a", Actor: "ends"}))
			v := w.visit()
			w.fail(v.GetToken(), lost)
			paused(t, got)
			_, err := c.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: got.GetId()})
			require.NoError(t, err)
			got.is(executorv1.RunState_RUN_STATE_CANCELED)
			require.Equal(t, map[int32]string{0: v.GetEffectKey()}, questions(t, got.GetId(), "a", 1))
			require.Equal(t, v.GetEffectKey(), listed(t, got.GetId(), "a", 1))
		})
		t.Run("Worker/TakenOver", func(t *testing.T) {
			w := r.worker(t, hello(1, unsafe("taken")))
			n := &graphv1.Node{Id: "pay", Actor: "taken", Effect: graphv1.Effect_EFFECT_IDEMPOTENT, Retry: hourly}
			got := start(t, c, nodes(n))
			w.fail(w.visit().GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_RETRYABLE, Reason: "BUSY"})
			becomesUnsafe(t, got.GetId(), n)
			key := w.visit().GetEffectKey()
			r.server.Stop()
			r.cancel()
			<-r.done

			r = executorOf("two")
			c = r.client(keyAcme)
			got.c = c
			paused(t, got)
			require.Equal(t, []string{key}, intents(t, got.GetId(), "pay", 1, 0))
			require.Equal(t, map[int32]string{0: key}, questions(t, got.GetId(), "pay", 1))
			require.Equal(t, key, listed(t, got.GetId(), "pay", 1))
			w = r.worker(t, hello(1, unsafe("taken")))
			notPerformed(t, got.GetId(), &executorv1.VisitRef{NodeId: "pay", Visit: 1})
			require.Equal(t, key, w.visit().GetEffectKey())
			require.Equal(t, []string{key, key}, intents(t, got.GetId(), "pay", 1, 0))
		})
	})
}
