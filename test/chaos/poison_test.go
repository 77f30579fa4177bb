package chaos_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// poison is an actor that takes its process down, as one does that asks for all the memory there is.
func poison(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dead reports whether the process has ended and nobody has waited for it yet.
func (s *server) dead() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	_, state, _ := strings.Cut(string(b), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

// TestPoison has one run that takes every executor down, beside many whose calls are under way elsewhere. It
// alone is quarantined, even while other kills hit the executors of the others.
func TestPoison(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, dir: t.TempDir(), store: store, parallel: 256}
			if store == "postgres" {
				w.url = pgtest.New(t)
			}
			poisoned(t, w)
		})
	}
}

func poisoned(t *testing.T, w *world) {
	const bystanders = 128
	var open atomic.Int64
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		select {
		case <-free:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(release)
	allOpen := func() {
		t.Helper()
		testkit.Within(t, timeout, 10*time.Millisecond, func() bool { return open.Load() == bystanders }, "the calls of the others are not made again")
	}
	start := func(s *server, label, actor, named string) (string, error) {
		g := &graphv1.Graph{Name: label, Nodes: []*graphv1.Node{{Id: "n1", Actor: actor}}}
		if named != "" {
			g.Nodes[0].Named = map[string]*graphv1.Payload{"url": {Json: fmt.Appendf(nil, "%q", named)}}
		}
		r, err := s.exec.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g, Labels: map[string]string{"who": label}})
		return r.GetId(), err
	}
	list := func(s *server, label string) []*executorv1.Run {
		got, err := s.exec.ListRuns(t.Context(), &executorv1.ListRunsRequest{Labels: map[string]string{"who": label}, PageSize: 1000})
		if err != nil {
			return nil
		}
		return got.GetRuns()
	}

	s := w.launch()
	testkit.Within(t, timeout, 10*time.Millisecond, func() bool {
		_, err := start(s, "bystander", "http", slow.URL)
		return err == nil
	})
	for range bystanders - 1 {
		_, err := start(s, "bystander", "http", slow.URL)
		require.NoError(t, err)
	}
	allOpen()
	_, _ = start(s, "guilty", "poison", "") // whether the answer is quicker than the end is all the same
	deaths := 0
	for {
		var guilty *executorv1.Run
		testkit.Within(t, 2*timeout, 20*time.Millisecond, func() bool {
			if s.dead() {
				return true
			}
			if rs := list(s, "guilty"); len(rs) == 1 && rs[0].GetState() == executorv1.RunState_RUN_STATE_QUARANTINED {
				guilty = rs[0]
			}
			return guilty != nil
		}, "it neither dies nor is anything quarantined")
		if guilty != nil {
			require.Equal(t, 3, deaths)
			x, err := s.exec.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: guilty.GetId()})
			require.NoError(t, err)
			require.Contains(t, x.GetSummary(), "poison at n1")
			break
		}
		deaths++
		require.LessOrEqual(t, deaths, 3, "the guilty one is not found")
		s.kill()
		s = w.launch()
	}
	for range 3 {
		allOpen()
		s.kill()
		s = w.launch()
	}
	allOpen()
	for _, r := range list(s, "bystander") {
		require.Equal(t, executorv1.RunState_RUN_STATE_RUNNING, r.GetState())
	}
	release()
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		rs, done := list(s, "bystander"), 0
		for _, r := range rs {
			if r.GetState() == executorv1.RunState_RUN_STATE_COMPLETED {
				done++
			}
		}
		return done == bystanders
	}, "not all of the others complete")
}
