package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// hearer receives webhooks and may let one wait for ever.
type hearer struct {
	*httptest.Server
	mu sync.Mutex
	// ids are the deliveries of each run, with how often each came and was answered.
	ids map[string]map[string]int
	// hold makes the next one wait, and receives when it has come; gone is closed when the caller of a
	// waiting one is gone.
	hold, gone chan struct{}
}

func newHearer(t *testing.T) *hearer {
	t.Helper()
	h := &hearer{ids: map[string]map[string]int{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hearer) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var m struct {
		RunID string `json:"run_id"`
		Type  string `json:"type"`
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil || m.Type != "run.ended" {
		return
	}
	h.mu.Lock()
	hold, gone := h.hold, h.gone
	h.hold = nil
	if hold == nil {
		if h.ids[m.RunID] == nil {
			h.ids[m.RunID] = map[string]int{}
		}
		h.ids[m.RunID][r.Header.Get("webhook-id")]++
	}
	h.mu.Unlock()
	if hold != nil {
		close(hold)
		<-r.Context().Done()
		close(gone)
	}
}

// next lets the next one wait.
func (h *hearer) next() (hold, gone <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hold, h.gone = make(chan struct{}), make(chan struct{})
	return h.hold, h.gone
}

// repeatTime is the limit for the repetition of a webhook after the kill of its sender. Waiting until the job
// queue gives up on the job would take minutes.
const repeatTime = 10 * time.Second

// TestWebhookSurvivor kills the executor that sends a webhook about the end of a run. The other one sends it.
func TestWebhookSurvivor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	h := newHearer(t)
	c := newCluster(t, clusterOptions{store: "postgres", replicas: 2})
	for i := range hookHolds {
		hold, gone := h.next()
		run, err := ask(ctx, c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
			return e.StartRun(ctx, &executorv1.StartRunRequest{RequestId: fmt.Sprintf("survivor-%d", i), Webhooks: []*executorv1.Webhook{{Url: h.URL}},
				Graph: &graphv1.Graph{Name: "hook", Nodes: []*graphv1.Node{{Id: "s", Actor: "sleep", Named: map[string]*graphv1.Payload{"seconds": {Json: []byte("0.3")}}}}}})
		})
		require.NoError(t, err)
		<-hold
		var killed time.Time
		for _, r := range c.replicas {
			killed = time.Now()
			r.kill()
			notHere := time.NewTimer(time.Second)
			select {
			case <-gone:
			case <-notHere.C:
				r.launch(nil)
				continue
			}
			testkit.Within(t, repeatTime, 10*time.Millisecond, func() bool { return h.heard(run.GetId()) > 0 }, "the end of %s is not delivered", run.GetId())
			t.Logf("delivered %s after the kill", time.Since(killed).Round(time.Millisecond))
			r.launch(nil)
			break
		}
		require.Positive(t, h.heard(run.GetId()), "one of them reported it")
	}
}

func (h *hearer) heard(run string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ids[run])
}

// TestWebhooks kills an executor right after the commit that ends a run, and while it sends the webhook:
// every receiver gets it all the same.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			h := newHearer(t)
			c := newCluster(t, clusterOptions{store: store, replicas: 1})
			r := c.replicas[0]
			var all []string
			begin := func() string {
				run, err := ask(ctx, c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
					return e.StartRun(ctx, &executorv1.StartRunRequest{RequestId: fmt.Sprintf("hook-%d", len(all)), Webhooks: []*executorv1.Webhook{{Url: h.URL}},
						Graph: &graphv1.Graph{Name: "hook", Nodes: []*graphv1.Node{{Id: "s", Actor: "sleep", Named: map[string]*graphv1.Payload{"seconds": {Json: []byte("0.3")}}}}}})
				})
				require.NoError(t, err)
				all = append(all, run.GetId())
				return run.GetId()
			}
			delivered := func(run string, killed time.Time) {
				testkit.Within(t, repeatTime, 10*time.Millisecond, func() bool { return h.heard(run) > 0 }, "the end of %s is not delivered", run)
				t.Logf("delivered %s after the kill", time.Since(killed).Round(time.Millisecond))
			}
			for range hookKills {
				r.kill()
				// Its first commit is the start, its second the sleep, its third the end.
				r.launch(map[failpoint.Point]int{failpoint.CommitAfter: 3})
				run := begin()
				<-r.over()
				killed := time.Now()
				c.died(failpoint.CommitAfter)
				t.Logf("ended by then: %t", slices.Contains(c.rows(ctx, `SELECT run_id FROM runs WHERE state = 6`), run))
				r.launch(nil)
				delivered(run, killed)
			}
			for range hookHolds {
				hold, _ := h.next()
				run := begin()
				<-hold
				killed := time.Now()
				r.kill()
				r.launch(nil)
				delivered(run, killed)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			unlike := 0
			for _, run := range all {
				if len(h.ids[run]) != 1 {
					unlike++
				}
				for id := range h.ids[run] {
					require.True(t, strings.HasPrefix(id, run+"/"), id)
				}
			}
			require.Zero(t, unlike, "each end is one delivery, however often it comes: %v", h.ids)
			totals.trial(len(all), 0, 0, 0, map[string]int{"ends not delivered to a webhook, or as several": unlike})
		})
	}
}
