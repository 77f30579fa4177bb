package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	namespace = "chaos"
	// price is what a million tokens cost, in nano-USD; a token costs a thousand.
	price = 1_000_000_000
)

func TestKill(t *testing.T) {
	t.Parallel()
	for _, store := range killed() {
		t.Run(store+"/NothingIsLostOrRepeated", func(t *testing.T) {
			t.Parallel()
			url := ""
			if store == "postgres" {
				url = pgtest.New(t)
			}
			torture(t, store, url)
		})
	}
}

// plan is a graph with what must come of it.
type plan struct {
	wire   *graphv1.Graph
	nodes  []string
	result string
	task   string
	run    string
}

// makePlan draws a graph of 8 to 12 nodes with one sink, and works out its result by hand.
func makePlan(t *testing.T, i int) *plan {
	rnd := rand.New(rand.NewPCG(uint64(i), 7))
	n := 8 + rnd.IntN(5)
	g := &workgraph.Graph{Name: fmt.Sprintf("plan %d", i)}
	values := make([]string, n)
	used := make([]bool, n)
	p := &plan{}
	for k := range n {
		id := fmt.Sprintf("p%d-n%d", i, k)
		p.nodes = append(p.nodes, id)
		g.Nodes = append(g.Nodes, workgraph.Node{ID: id, Actor: "work"})
		var parents []string
		for from := range k {
			// The last node takes everything that nobody has taken.
			if k == n-1 && !used[from] || k < n-1 && rnd.IntN(k+2) == 0 {
				g.Edges = append(g.Edges, workgraph.Edge{From: p.nodes[from], To: id})
				parents = append(parents, values[from])
				used[from] = true
			}
		}
		values[k] = result(id, parents)
	}
	p.result = values[n-1]
	var err error
	p.wire, err = graphpb.ToProto(g)
	require.NoError(t, err)
	return p
}

// server is one process under test, from start to kill.
type server struct {
	cmd  *exec.Cmd
	conn *grpc.ClientConn
	exec executorv1.ExecutorServiceClient
	reg  registryv1.RegistryServiceClient
	logs *bytes.Buffer
	once sync.Once
}

type world struct {
	t          *testing.T
	dir        string
	store, url string
	life       int
	parallel   int    // 0 is the usual
	agent      string // the address of a remote agent, or empty
	mu         sync.Mutex
	now        *server
}

func (w *world) launch() *server {
	w.life++
	w.t.Helper()
	s := &server{logs: &bytes.Buffer{}}
	s.cmd = exec.Command(os.Args[0], "-test.run=^$")
	s.cmd.Env = append(os.Environ(), envDir+"="+w.dir, envStore+"="+w.store, envURL+"="+w.url, envLife+"="+strconv.Itoa(w.life), envParallel+"="+strconv.Itoa(w.parallel), envAgent+"="+w.agent)
	s.cmd.Stderr = s.logs
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.t, s.cmd.Start())
	w.t.Cleanup(s.kill)
	var addr string
	testkit.Within(w.t, timeout, time.Millisecond, func() bool {
		b, err := os.ReadFile(filepath.Join(w.dir, "addr"))
		life, rest, _ := strings.Cut(string(b), " ")
		addr = rest
		return err == nil && life == strconv.Itoa(w.life)
	}, "the child does not serve: %s", s.logs)
	var err error
	s.conn, err = grpckit.Dial(addr, grpckit.DialOptions{Namespace: namespace})
	require.NoError(w.t, err)
	s.exec, s.reg = executorv1.NewExecutorServiceClient(s.conn), registryv1.NewRegistryServiceClient(s.conn)
	w.mu.Lock()
	w.now = s
	w.mu.Unlock()
	return s
}

func (w *world) current() *server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// kill is kill -9.
func (s *server) kill() {
	s.once.Do(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		if s.conn != nil {
			_ = s.conn.Close()
		}
	})
}

// call repeats f against the present process until it works.
func call[T any](ctx context.Context, w *world, f func(context.Context, *server) (T, error)) (T, error) {
	for {
		c, cancel := context.WithTimeout(ctx, 10*time.Second)
		v, err := f(c, w.current())
		cancel()
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		switch errs.KindOf(err) {
		case errs.Unavailable, errs.DeadlineExceeded, errs.Canceled, errs.Conflict:
		default:
			// A claim of a start that was cut off must end with its lease first.
			if errs.ReasonOf(err) != "TASK_NOT_CLAIMABLE" {
				return v, err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// attemptKey names an attempt in the journal and in the log of effects.
type attemptKey struct {
	run, node      string
	visit, attempt int
}

// torture starts the plans, kills the process again and again while they run, and counts.
func torture(t *testing.T, store, url string) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	w := &world{t: t, dir: t.TempDir(), store: store, url: url}
	ps := make([]*plan, plans)
	total := 0
	for i := range ps {
		ps[i] = makePlan(t, i)
		total += len(ps[i].nodes)
	}
	w.launch()
	epic := w.prepare(ctx, ps)
	started := w.start(ctx, ps)

	// moment holds, for every kill, the attempts whose end was in the journal, and how long the log of
	// effects was.
	type moment struct {
		durable map[attemptKey]bool
		offset  int64
	}
	moments := make([]moment, 0, kills)
	log := filepath.Join(w.dir, "effects.log")
	for k := range kills {
		// The kills are spread evenly over the work.
		want := total * (k + 1) / (kills + 1)
		testkit.Within(t, timeout, time.Millisecond, func() bool { return ends(t, log) >= want }, "no progress in life %d", w.life)
		jitter := time.NewTimer(rand.N(20 * time.Millisecond))
		<-jitter.C
		w.current().kill()
		info, err := os.Stat(log)
		require.NoError(t, err)
		m := moment{offset: info.Size(), durable: map[attemptKey]bool{}}
		for _, key := range w.ended(ctx) {
			m.durable[key] = true
		}
		moments = append(moments, m)
		w.launch()
	}
	require.NoError(t, <-started)
	w.awaitEnds(ctx, ps)

	// Stopped in good order, it leaves with success, and nothing is left to be sent.
	last := w.current()
	usage := w.usage(ctx, ps)
	runs := w.rows(ctx, ps)
	tasks := w.tasks(ctx, epic)
	require.NoError(t, last.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, last.cmd.Wait(), "%s", last.logs)

	promises := []string{"runs not completed", "results lost", "finished visits executed again", "costs booked twice", "costs lost", "runs whose costs differ",
		"tasks not completed by their run", "journals with gaps", "not exactly one end", "attempts ended twice", "runs beyond those asked for", "outbox left"}
	c := w.count(ctx, ps)
	for _, what := range promises {
		c[what] += 0
	}
	for _, m := range moments {
		for _, key := range begun(t, log, m.offset) {
			if m.durable[key] {
				c["finished visits executed again"]++
			}
		}
	}
	interrupted := len(begun(t, log, 0)) - total
	for _, p := range ps {
		run := runs[p.run]
		if run.GetState() != executorv1.RunState_RUN_STATE_COMPLETED {
			c["runs not completed"]++
			t.Logf("run %s is %s %s %v", p.run, run.GetState(), run.GetStateReason(), run.GetError())
		}
		if string(run.GetResult().GetJson()) != p.result {
			c["results lost"]++
		}
		var cost int64
		seen := map[string]int{}
		for _, e := range usage[p.run] {
			seen[e.GetNodeId()]++
			cost += e.GetCostNanoUsd()
		}
		var due int64
		for _, n := range p.nodes {
			due += (tokens(n) + 1) * price / 1_000_000
			if seen[n] == 0 {
				c["costs lost"]++
			}
			c["costs booked twice"] += max(seen[n]-1, 0)
		}
		if cost != due || run.GetUsage().GetCostNanoUsd() != due || tasks[p.task].GetActualNanoUsd() != due || run.GetUsage().GetUnpricedCalls() != 0 {
			c["runs whose costs differ"]++
			t.Logf("run %s: due %d, booked %d, on the run %d, on the task %d", p.run, due, cost, run.GetUsage().GetCostNanoUsd(), tasks[p.task].GetActualNanoUsd())
		}
		if tasks[p.task].GetState() != registryv1.TaskState_TASK_STATE_COMPLETED {
			c["tasks not completed by their run"]++
		}
	}
	for range kills {
		totals.kill("executor with registry, kill -9 at random")
	}
	totals.trial(plans, total, 0, 0, c)
	t.Logf("%s: %d plans, %d visits, %d kills, %d attempts begun more than once because a kill cut them off, %s",
		store, plans, total, kills, interrupted, time.Since(begin).Round(100*time.Millisecond))
	for _, what := range promises {
		t.Logf("  %-34s %d", what, c[what])
		require.Zero(t, c[what], what)
	}
}

// prepare makes a price, an epic and a task for each plan.
func (w *world) prepare(ctx context.Context, ps []*plan) (epic string) {
	w.t.Helper()
	reg := w.current().reg
	_, err := reg.CreatePrice(ctx, &registryv1.CreatePriceRequest{Price: &registryv1.Price{
		Provider: "chaos", Model: "chaos-model", ValidFrom: timestamppb.New(time.Now().Add(-time.Hour)), InputPerMillion: price, OutputPerMillion: price}})
	require.NoError(w.t, err)
	e, err := reg.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "chaos"}})
	require.NoError(w.t, err)
	for i, p := range ps {
		task, err := reg.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: e.GetId(), Title: fmt.Sprintf("plan %d", i)}})
		require.NoError(w.t, err)
		p.task = task.GetId()
	}
	return e.GetId()
}

// start starts every plan, each with a request id, so that a start that a kill cut off can be sent again.
func (w *world) start(ctx context.Context, ps []*plan) <-chan error {
	done := make(chan error, 1)
	var (
		wg    sync.WaitGroup
		first atomic.Pointer[error]
	)
	gate := make(chan struct{}, 16)
	for i, p := range ps {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			run, err := call(ctx, w, func(ctx context.Context, s *server) (*executorv1.Run, error) {
				return s.exec.StartRun(ctx, &executorv1.StartRunRequest{Graph: p.wire, TaskId: p.task, RequestId: fmt.Sprintf("start-%d", i),
					Labels: map[string]string{"plan": strconv.Itoa(i)}})
			})
			if err != nil {
				first.CompareAndSwap(nil, &err)
				return
			}
			p.run = run.GetId()
		})
	}
	go func() {
		wg.Wait()
		if err := first.Load(); err != nil {
			done <- *err
			return
		}
		done <- nil
	}()
	return done
}

// awaitEnds waits until every run has ended and everything has reached the registry.
// awaitEnds waits until all runs have ended. Those that no executor outlived often enough are resumed, as an
// operator would: the kills hit whichever run is under way.
func (w *world) awaitEnds(ctx context.Context, ps []*plan) {
	w.t.Helper()
	testkit.Within(w.t, timeout, 20*time.Millisecond, func() bool {
		open, err := w.current().exec.ListRuns(ctx, &executorv1.ListRunsRequest{PageSize: 1000, States: []executorv1.RunState{
			executorv1.RunState_RUN_STATE_PENDING, executorv1.RunState_RUN_STATE_RUNNING, executorv1.RunState_RUN_STATE_WAITING, executorv1.RunState_RUN_STATE_QUARANTINED}})
		for _, r := range open.GetRuns() {
			if r.GetState() == executorv1.RunState_RUN_STATE_QUARANTINED {
				_, err := w.current().exec.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: r.GetId()})
				w.t.Logf("run %s is resumed from quarantine: %v", r.GetId(), err)
			}
		}
		return err == nil && len(open.GetRuns()) == 0
	}, "runs do not end")
	testkit.Within(w.t, timeout, 20*time.Millisecond, func() bool { return w.left(ctx) == 0 }, "the outbox does not empty")
}

func (w *world) usage(ctx context.Context, ps []*plan) map[string][]*registryv1.UsageEntry {
	out := map[string][]*registryv1.UsageEntry{}
	for token := ""; ; {
		page, err := w.current().reg.ListUsage(ctx, &registryv1.ListUsageRequest{PageSize: 1000, PageToken: token})
		require.NoError(w.t, err)
		for _, e := range page.GetEntries() {
			out[e.GetRunId()] = append(out[e.GetRunId()], e)
		}
		if token = page.GetNextPageToken(); token == "" {
			return out
		}
	}
}

func (w *world) rows(ctx context.Context, ps []*plan) map[string]*executorv1.Run {
	out := map[string]*executorv1.Run{}
	for _, p := range ps {
		run, err := w.current().exec.GetRun(ctx, &executorv1.GetRunRequest{RunId: p.run})
		require.NoError(w.t, err)
		out[p.run] = run
	}
	return out
}

func (w *world) tasks(ctx context.Context, epic string) map[string]*registryv1.Task {
	out := map[string]*registryv1.Task{}
	for token := ""; ; {
		page, err := w.current().reg.ListTasks(ctx, &registryv1.ListTasksRequest{EpicId: epic, PageSize: 1000, PageToken: token})
		require.NoError(w.t, err)
		for _, task := range page.GetTasks() {
			out[task.GetId()] = task
		}
		if token = page.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// rows of the journal's tables, whichever store keeps them.
func (w *world) query(ctx context.Context, sql string, row func(scan func(...any) error) error) {
	w.t.Helper()
	if w.store == "postgres" {
		pool, err := dbkit.OpenPostgres(ctx, w.url, "executor", dbkit.PostgresOptions{})
		require.NoError(w.t, err)
		defer pool.Close()
		rows, err := pool.Query(ctx, sql)
		require.NoError(w.t, err)
		defer rows.Close()
		for rows.Next() {
			require.NoError(w.t, row(rows.Scan))
		}
		require.NoError(w.t, rows.Err())
		return
	}
	db, err := dbkit.OpenSQLite(ctx, filepath.Join(w.dir, "executor.db"))
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, db.Close()) }()
	rows, err := db.Read.QueryContext(ctx, sql)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, rows.Close()) }()
	for rows.Next() {
		require.NoError(w.t, row(rows.Scan))
	}
	require.NoError(w.t, rows.Err())
}

// ended reads the ends of attempts from the journal.
func (w *world) ended(ctx context.Context) []attemptKey {
	var out []attemptKey
	w.query(ctx, `SELECT run_id, data FROM events WHERE kind = 12`, func(scan func(...any) error) error {
		var (
			run  string
			data []byte
			rec  struct {
				Event struct {
					Node    string `json:"node"`
					Visit   int    `json:"visit"`
					Attempt int    `json:"attempt"`
				} `json:"event"`
			}
		)
		if err := scan(&run, &data); err != nil {
			return err
		}
		if err := json.Unmarshal(data, &rec); err != nil {
			return err
		}
		out = append(out, attemptKey{run, rec.Event.Node, rec.Event.Visit, rec.Event.Attempt})
		return nil
	})
	return out
}

func (w *world) left(ctx context.Context) (n int) {
	w.query(ctx, `SELECT count(*) FROM outbox`, func(scan func(...any) error) error { return scan(&n) })
	return n
}

// count looks for faults in the journal itself.
func (w *world) count(ctx context.Context, ps []*plan) map[string]int {
	c := map[string]int{"outbox left": w.left(ctx)}
	known := map[string]bool{}
	for _, p := range ps {
		known[p.run] = true
	}
	w.query(ctx, `SELECT r.run_id, r.last_seq, count(*), min(e.seq), max(e.seq), sum(CASE WHEN e.kind = 17 THEN 1 ELSE 0 END)
		FROM runs r JOIN events e ON e.run_id = r.run_id GROUP BY r.run_id, r.last_seq`, func(scan func(...any) error) error {
		var (
			run                            string
			last, events, low, high, finis int64
		)
		if err := scan(&run, &last, &events, &low, &high, &finis); err != nil {
			return err
		}
		if low != 1 || high != last || events != last {
			c["journals with gaps"]++
		}
		if finis != 1 {
			c["not exactly one end"]++
		}
		if !known[run] {
			c["runs beyond those asked for"]++
		}
		return nil
	})
	seen := map[attemptKey]bool{}
	for _, key := range w.ended(ctx) {
		if seen[key] {
			c["attempts ended twice"]++
		}
		seen[key] = true
	}
	return c
}

// ends counts finished work in the log of effects.
func ends(t *testing.T, log string) int {
	b, err := os.ReadFile(log)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return bytes.Count(b, []byte("end "))
}

// begun lists the calls that the log of effects shows from an offset on.
func begun(t *testing.T, log string, offset int64) []attemptKey {
	f, err := os.Open(log)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Seek(offset, 0)
	require.NoError(t, err)
	var out []attemptKey
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var (
			what string
			key  attemptKey
			life int
		)
		n, err := fmt.Sscan(lines.Text(), &what, &key.run, &key.node, &key.visit, &key.attempt, &life)
		if err == nil && n == 6 && what == "begin" {
			out = append(out, key)
		}
	}
	require.NoError(t, lines.Err())
	return out
}
