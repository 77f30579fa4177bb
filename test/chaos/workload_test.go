package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// outside is the world outside, in which calls have effects. It records every call under its idempotency key.
type outside struct {
	url string

	mu sync.Mutex
	// unsafe and safe count calls by key.
	unsafe, safe map[string]int
	answers      map[string]string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{unsafe: map[string]int{}, safe: map[string]int{}, answers: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: o, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	o.url = "http://" + l.Addr().String()
	return o
}

func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	_, _ = io.Copy(io.Discard, r.Body)
	o.mu.Lock()
	if r.Method == http.MethodPost {
		o.unsafe[key]++
	} else {
		o.safe[key]++
	}
	o.mu.Unlock()
	pause := time.NewTimer(rand.N(20 * time.Millisecond))
	select {
	case <-pause.C:
	case <-r.Context().Done():
	}
	pause.Stop()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, strconv.Quote(key))
}

// performed reports whether an UNSAFE call of this visit came in.
func (o *outside) performed(run, node string, visit int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.unsafe {
		if strings.HasPrefix(key, fmt.Sprintf("%s/%s/%d/", run, node, visit)) {
			return true
		}
	}
	return false
}

// calls counts all calls that came.
func (o *outside) calls() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.unsafe {
		n += k
	}
	for _, k := range o.safe {
		n += k
	}
	return n
}

// twice lists the keys under which an UNSAFE call came more than once, and counts those that came.
func (o *outside) twice() (keys []string, total int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, n := range o.unsafe {
		if n > 1 {
			keys = append(keys, fmt.Sprintf("%s: %d times", k, n))
		}
	}
	return keys, len(o.unsafe)
}

// job is a graph with what must have happened when it has completed.
type job struct {
	shape string
	wire  *graphv1.Graph
	task  string
	run   string
	// posts are the nodes that make an UNSAFE call, each exactly once.
	posts []string
	// reused are the nodes whose visits are reused from another run, so that they call nothing.
	reused []string
}

// shapes are the kinds of graphs in the workload.
var shapes = []string{"unsafe", "remote", "map", "children", "interrupt", "amend", "signal", "fork", "task", "loop", "timer", "budget"}

func quoted(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a text always marshals
	return b
}

// makeJob builds the graph of a shape.
func makeJob(t *testing.T, o *outside, shape string) *job {
	t.Helper()
	j := &job{shape: shape}
	g := &workgraph.Graph{Name: shape}
	call := func(id, method string) workgraph.Node {
		if method == http.MethodPost {
			j.posts = append(j.posts, id)
		}
		return workgraph.Node{ID: id, Actor: "http", Named: map[string]json.RawMessage{"url": quoted(o.url), "method": quoted(method)}}
	}
	node := func(id, actor, name, value string) workgraph.Node {
		return workgraph.Node{ID: id, Actor: actor, Named: map[string]json.RawMessage{name: json.RawMessage(value)}}
	}
	chain := func(nodes ...workgraph.Node) {
		for i, n := range nodes {
			g.Nodes = append(g.Nodes, n)
			if i > 0 {
				g.Edges = append(g.Edges, workgraph.Edge{From: nodes[i-1].ID, To: n.ID})
			}
		}
	}
	switch shape {
	case "unsafe":
		chain(call("p1", "POST"), node("c", "cel", "expr", `"1 + 1"`), call("p2", "POST"), call("p3", "POST"))
	case "map":
		m := call("m", "PUT")
		m.Map = &workgraph.Map{Over: "[1, 2, 3, 4, 5, 6]", As: "json", MaxParallel: 3}
		chain(node("c", "cel", "expr", `"1"`), m, call("p", "POST"))
	case "children":
		child := fmt.Sprintf(`{"nodes": [{"id": "u", "actor": "http", "named": {"url": %q, "method": "PUT"}}, {"id": "s", "actor": "sleep", "named": {"seconds": 0.05}},
			{"id": "x", "actor": "http", "named": {"url": %q, "method": "POST"}}], "edges": [{"from": "u", "to": "s"}, {"from": "s", "to": "x"}]}`, o.url, o.url)
		chain(call("u", "PUT"), node("kids", "spawn", "runs", `[{"graph": `+child+`}, {"graph": `+child+`}]`), call("p", "POST"))
	case "interrupt":
		chain(call("p", "POST"), node("q", "human", "prompt", `"go on?"`), call("u", "PUT"))
	case "remote":
		far := func(id, actor string) workgraph.Node { return node(id, actor, "url", string(quoted(o.url))) }
		chain(far("u", remotePut), far("x", remotePost), call("p", "POST"), far("y", remotePost))
		j.posts = append(j.posts, "x", "y")
	case "budget":
		// The first call comes to the cap; see load.help.
		chain(node("u", remotePut, "url", string(quoted(o.url))), call("p", "POST"))
	case "amend":
		// A node is added behind the last one while the second one waits; see load.amend.
		chain(call("u", "PUT"), node("w", "signal", "name", `"go"`), call("p", "POST"))
		j.posts = append(j.posts, amended)
	case "fork":
		// Once it has completed it is run again from its second node on; see load.fork.
		chain(call("p", "POST"), call("u", "PUT"), node("c", "cel", "expr", `"1 + 1"`))
	case "timer":
		chain(call("u", "PUT"), node("s", "sleep", "seconds", "1.5"), call("p", "POST"))
	case "signal":
		chain(node("s", "sleep", "seconds", "0.2"), node("w", "signal", "name", `"go"`), call("p", "POST"))
	case "task":
		chain(call("u", "PUT"), workgraph.Node{ID: "w", Actor: "completion"}, call("p", "POST"))
	case "long":
		nodes := make([]workgraph.Node, 40)
		for i := range nodes {
			nodes[i] = call(fmt.Sprintf("u%d", i), "PUT")
		}
		chain(nodes...)
	case "loop":
		chain(node("a", "cel", "expr", `"visit"`), call("u", "PUT"), call("p", "POST"))
		g.Edges[1].When = "visit >= 3"
		g.Edges = append(g.Edges, workgraph.Edge{From: "u", To: "a", Kind: workgraph.BackEdge, When: "visit < 3"})
	}
	var err error
	j.wire, err = graphpb.ToProto(g)
	require.NoError(t, err)
	return j
}

// load is a workload that runs until it is stopped.
type load struct {
	c       *cluster
	o       *outside
	gap     time.Duration
	shapes  []string
	stop    chan struct{}
	starts  sync.WaitGroup
	helpers sync.WaitGroup
	stopped atomic.Bool

	mu   sync.Mutex
	jobs []*job
	errs []string
	seen map[string]time.Time
	// extra says that runs were started besides.
	extra bool
	// settled counts UNSAFE calls of unknown outcome that were settled, and resumed quarantined runs.
	settled, resumed atomic.Int64
	// crowd is the number of open runs at the last count, and of those started since.
	crowd atomic.Int64
}

// amended is the node that is added to runs of shape "amend".
const amended = "more"

// newLoad starts runs of all shapes, one every gap, and does for them what people and systems outside do.
func newLoad(ctx context.Context, c *cluster, o *outside, gap time.Duration, only ...string) *load {
	if len(only) == 0 {
		only = shapes
	}
	if (slices.Contains(only, "remote") || slices.Contains(only, "budget")) && len(c.remotes) == 0 {
		c.employ(2)
	}
	l := &load{c: c, o: o, gap: gap, shapes: only, stop: make(chan struct{}), seen: map[string]time.Time{}}
	l.starts.Go(func() { l.start(ctx) })
	l.helpers.Go(func() { l.attend(ctx) })
	return l
}

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) < 50 {
		l.errs = append(l.errs, fmt.Sprintf(format, args...))
	}
}

const (
	// maxOpen bounds how many starts are under way, so that a crowd cannot build up while everything is down.
	maxOpen = 24
	// maxRuns bounds how many runs are open: a machine that is slow gets fewer, not ever more of them.
	maxRuns = 100
)

func (l *load) start(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	gate := make(chan struct{}, maxOpen)
	epic := ""
	for i := 0; ; i++ {
		pause := time.NewTimer(l.gap)
		select {
		case <-l.stop:
			return
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if l.crowd.Load() >= maxRuns {
			i--
			continue
		}
		l.crowd.Add(1)
		gate <- struct{}{}
		j := makeJob(l.c.t, l.o, l.shapes[i%len(l.shapes)])
		wg.Go(func() {
			defer func() { <-gate }()
			id := fmt.Sprintf("start-%d", i)
			req := &executorv1.StartRunRequest{Graph: j.wire, RequestId: id, Labels: map[string]string{"shape": j.shape}}
			if j.shape == "budget" {
				least := int64(1)
				req.Budget = &executorv1.RunBudget{Tokens: &least}
			}
			if j.shape == "unsafe" {
				j.task = l.task(ctx, &epic)
				req.TaskId = j.task
			}
			run, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
				return e.StartRun(ctx, req)
			})
			if err != nil {
				l.fault("start %s: %v", id, err)
				return
			}
			j.run = run.GetId()
			l.mu.Lock()
			l.jobs = append(l.jobs, j)
			l.mu.Unlock()
			if j.shape == "fork" {
				l.starts.Go(func() { l.fork(ctx, j) })
			}
		})
	}
}

// fork waits until a run has completed and lets what follows its first visit happen again, in another run.
func (l *load) fork(ctx context.Context, j *job) {
	for ctx.Err() == nil {
		run, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
			return e.GetRun(ctx, &executorv1.GetRunRequest{RunId: j.run})
		})
		if err == nil && run.GetState() >= executorv1.RunState_RUN_STATE_COMPLETED && run.GetState() != executorv1.RunState_RUN_STATE_QUARANTINED {
			break
		}
		still(300 * time.Millisecond)
	}
	run, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
		return e.ForkRun(ctx, &executorv1.ForkRunRequest{RunId: j.run, Visit: &executorv1.VisitRef{NodeId: "u"}, RequestId: "fork-" + j.run})
	})
	if err != nil {
		l.fault("fork %s: %v", j.run, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, &job{shape: "forked", run: run.GetId(), reused: []string{"p"}})
}

// amend adds a node to a run that waits, and reports whether it is there.
func (l *load) amend(ctx context.Context, r *executorv1.Run) bool {
	if r.GetGraphRevision() > 0 {
		return true
	}
	more := &graphv1.Node{Id: amended, Actor: "http", Named: map[string]*graphv1.Payload{"url": {Json: quoted(l.o.url)}, "method": {Json: quoted(http.MethodPost)}}}
	req := &executorv1.AmendRunRequest{RunId: r.GetId(), ExpectedRevision: r.GetGraphRevision(), By: "chaos",
		Patch:     &executorv1.GraphPatch{PutNodes: []*graphv1.Node{more}, AddEdges: []*graphv1.Edge{{From: "p", To: amended}}},
		RequestId: fmt.Sprintf("amend-%s-%d", r.GetId(), time.Now().UnixNano())}
	_, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.AmendRunResponse, error) {
		out, err := e.AmendRun(ctx, req)
		if errs.KindOf(err) == errs.Conflict || errs.ReasonOf(err) == "AMEND_UNSETTLED" {
			// It has moved on, or applies no commands since it is quarantined by now: the next look shows its
			// state.
			err = errs.New(errs.FailedPrecondition, errs.ReasonOf(err), "%v", err)
		}
		return out, err
	})
	if k := errs.KindOf(err); err != nil && k != errs.FailedPrecondition && ctx.Err() == nil {
		l.fault("amend %s: %v", r.GetId(), err)
	}
	return err == nil
}

// task makes a task at the registry, which is never killed here.
func (l *load) task(ctx context.Context, epic *string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *epic == "" {
		e, err := l.c.reg.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "chaos"}})
		if err != nil {
			return ""
		}
		*epic = e.GetId()
	}
	task, err := l.c.reg.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: *epic, Title: "work"}})
	if err != nil {
		return ""
	}
	return task.GetId()
}

// open lists the runs that have not ended.
func (l *load) open(ctx context.Context) (out []*executorv1.Run, err error) {
	for token := ""; ; {
		page, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.ListRunsResponse, error) {
			return e.ListRuns(ctx, &executorv1.ListRunsRequest{PageSize: 500, PageToken: token, States: []executorv1.RunState{
				executorv1.RunState_RUN_STATE_PENDING, executorv1.RunState_RUN_STATE_RUNNING, executorv1.RunState_RUN_STATE_WAITING,
				executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_QUARANTINED}})
		})
		if err != nil {
			return nil, err
		}
		out = append(out, page.GetRuns()...)
		if token = page.GetNextPageToken(); token == "" {
			return out, nil
		}
	}
}

// attend answers interrupts, gives signals, completes tasks, and settles what nobody knows.
func (l *load) attend(ctx context.Context) {
	for {
		pause := time.NewTimer(150 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		runs, err := l.open(ctx)
		if err != nil {
			continue
		}
		l.crowd.Store(int64(len(runs)))
		if len(runs) == 0 && l.stopped.Load() {
			return
		}
		var wg sync.WaitGroup
		gate := make(chan struct{}, 4)
		for _, r := range runs {
			switch r.GetState() {
			case executorv1.RunState_RUN_STATE_WAITING, executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_QUARANTINED:
			default:
				continue
			}
			gate <- struct{}{}
			wg.Go(func() {
				l.help(ctx, r)
				<-gate
			})
		}
		wg.Wait()
	}
}

// help does for one run what it waits for.
func (l *load) help(ctx context.Context, r *executorv1.Run) {
	id := r.GetId()
	tell := func(what string, f func(context.Context, executorv1.ExecutorServiceClient) error) {
		_, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (struct{}, error) {
			return struct{}{}, f(ctx, e)
		})
		switch errs.KindOf(err) {
		case errs.FailedPrecondition, errs.NotFound, errs.AlreadyExists: // it has moved on meanwhile
		default:
			if err != nil && ctx.Err() == nil {
				l.fault("%s %s: %v", what, id, err)
			}
		}
	}
	if r.GetState() == executorv1.RunState_RUN_STATE_QUARANTINED {
		l.resumed.Add(1)
		tell("resume", func(ctx context.Context, e executorv1.ExecutorServiceClient) error {
			_, err := e.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: id})
			return err
		})
		return
	}
	visits, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.ListVisitsResponse, error) {
		return e.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: id, PageSize: 100})
	})
	if err != nil {
		return
	}
	unsettled := 0
	for _, v := range visits.GetVisits() {
		w := v.GetWait()
		switch {
		case v.GetState() == executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION:
			unsettled++
			// A check must let a call that is still on its way arrive.
			key := fmt.Sprintf("%s/%s/%d", id, v.GetNodeId(), v.GetVisit())
			l.mu.Lock()
			first, ok := l.seen[key]
			if !ok {
				first = time.Now()
				l.seen[key] = first
			}
			l.mu.Unlock()
			if time.Since(first) < time.Second {
				continue
			}
			req := &executorv1.ReconcileVisitRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: v.GetNodeId(), Visit: v.GetVisit()}, By: "chaos"}
			if l.o.performed(id, v.GetNodeId(), v.GetVisit()) {
				req.Outcome = &executorv1.ReconcileVisitRequest_Performed{Performed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{{Json: []byte(`"found"`)}}}}
			} else {
				req.Outcome = &executorv1.ReconcileVisitRequest_NotPerformed{NotPerformed: &executorv1.AttemptNotPerformed{}}
			}
			l.mu.Lock()
			delete(l.seen, key)
			l.mu.Unlock()
			l.settled.Add(1)
			tell("reconcile", func(ctx context.Context, e executorv1.ExecutorServiceClient) error {
				_, err := e.ReconcileVisit(ctx, req)
				return err
			})
		case v.GetState() != executorv1.VisitState_VISIT_STATE_WAITING || w == nil:
		case w.GetKind() == executorv1.WaitKind_WAIT_KIND_INTERRUPT && w.GetInterruptId() != "":
			tell("answer", func(ctx context.Context, e executorv1.ExecutorServiceClient) error {
				_, err := e.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: w.GetInterruptId(), Answer: &graphv1.Payload{Json: []byte(`"yes"`)}, By: "chaos"})
				return err
			})
		case w.GetKind() == executorv1.WaitKind_WAIT_KIND_COMPLETION && w.GetAttemptToken() != "":
			tell("complete", func(ctx context.Context, e executorv1.ExecutorServiceClient) error {
				_, err := e.CompleteAttempt(ctx, &executorv1.CompleteAttemptRequest{AttemptToken: w.GetAttemptToken(), By: "chaos",
					Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{{Json: []byte(`"done"`)}}}}})
				return err
			})
		case w.GetKind() == executorv1.WaitKind_WAIT_KIND_SIGNAL && r.GetLabels()["shape"] == "amend" && !l.amend(ctx, r):
		case w.GetKind() == executorv1.WaitKind_WAIT_KIND_SIGNAL:
			tell("signal", func(ctx context.Context, e executorv1.ExecutorServiceClient) error {
				_, err := e.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: id, Name: "go", Payload: &graphv1.Payload{Json: []byte(`1`)}, RequestId: "go-" + id})
				return err
			})
		}
	}
	if unsettled == 0 && r.GetState() == executorv1.RunState_RUN_STATE_PAUSED {
		req := &executorv1.ResumeRunRequest{RunId: id}
		if r.GetStateReason() == "BUDGET_EXHAUSTED" {
			more := int64(1_000_000)
			req.Budget, req.RequestId = &executorv1.RunBudget{Tokens: &more}, "more-"+id
		}
		tell("resume", func(ctx context.Context, e executorv1.ExecutorServiceClient) error {
			_, err := e.ResumeRun(ctx, req)
			return err
		})
	}
}

// finish starts nothing more, waits until every run has ended, and returns the started jobs.
func (l *load) finish(ctx context.Context) []*job {
	l.c.t.Helper()
	close(l.stop)
	l.starts.Wait()
	l.stopped.Store(true)
	begin := time.Now()
	testkit.Within(l.c.t, timeout, 100*time.Millisecond, func() bool {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		left, err := l.open(ctx)
		return err == nil && len(left) == 0
	}, "runs do not end: %s", lazily(func() string { return l.stuck(ctx) }))
	l.helpers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l.c.t, l.errs, "%s", lazily(func() string { return l.c.stories(ctx, l.o, l.errs...) }))
	totals.helped(int(l.settled.Load()), int(l.resumed.Load()))
	l.c.t.Logf("all runs had ended %s after the last start", time.Since(begin).Round(10*time.Millisecond))
	return l.jobs
}

type lazily func() string

// String calls the function only when the text is needed.
func (f lazily) String() string { return f() }

// stuck reports the runs that have not ended: their state, by the answers of explain, and their stories.
func (l *load) stuck(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	open, err := l.c.query(ctx, `SELECT run_id || ' ' || `+stateName+` || ' ' || state_reason || ' ' || graph_name FROM runs WHERE state < 6 ORDER BY run_id`)
	if err != nil {
		return fmt.Sprintf("which ones is not known: %v", err)
	}
	for i, line := range open[:min(len(open), 5)] {
		id := runID.FindString(line)
		why, err := ask(ctx, l.c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.ExplainRunResponse, error) {
			return e.ExplainRun(ctx, &executorv1.ExplainRunRequest{RunId: id})
		})
		open[i] += fmt.Sprintf(": %v %v", why, err)
	}
	return fmt.Sprintf("%d runs\n%s%s", len(open), strings.Join(open, "\n"), l.c.stories(ctx, l.o, open...))
}
