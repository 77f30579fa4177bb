package chaos_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// timeout bounds every wait, far above the usual time, for a busy machine.
const timeout = 5 * time.Minute

// workshop is where the command is built, until TestMain removes it.
var workshop = filepath.Join(os.TempDir(), fmt.Sprintf("epigraph-chaos-%d", os.Getpid()))

// binary builds the command once per test process, with the points at which it can be killed.
var binary = sync.OnceValues(func() (string, error) {
	out := filepath.Join(workshop, "epigraph")
	text, err := exec.Command("go", "build", "-tags", "chaos", "-ldflags", "-s -w", "-o", out, "github.com/epigraph-run/epigraph/cmd/epigraph").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return out, nil
})

// cluster is a registry and some executors on one database, each a process.
type cluster struct {
	t     *testing.T
	bin   string
	dir   string
	store string
	// executors is where the executors' SQLite file is.
	executors string
	// url is that of the database; execURL, if set, is the one that the executors get.
	url, execURL string
	settings     []string // for every process, KEY=VALUE
	registry     *replica
	reg          registryv1.RegistryServiceClient
	replicas     []*replica
	remotes      []*remote
	// kills counts every process that was killed, by whomever.
	kills  atomic.Int64
	points sync.Map // failpoint.Point -> *atomic.Int64
	// pool is for queries to the database; made when first needed.
	pool *pgxpool.Pool
}

// clusterOptions change a cluster before it starts.
type clusterOptions struct {
	store     string
	url       string
	execURL   string
	replicas  int
	settings  []string
	executors string // directory of the executor's SQLite file, if not the cluster's own
	// server, if set, is the PostgreSQL server to make the database on.
	server *pgtest.Server
}

// newCluster migrates a fresh database and starts everything.
func newCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	bin, err := binary()
	require.NoError(t, err)
	c := &cluster{t: t, bin: bin, dir: t.TempDir(), store: o.store, url: o.url, execURL: o.execURL, settings: o.settings}
	if o.server != nil {
		c.url = o.server.URL("")
	} else if o.store == "postgres" && c.url == "" {
		c.url = pgtest.New(t)
	}
	if c.execURL == "" {
		c.execURL = c.url
	}
	if c.executors = o.executors; c.executors == "" {
		c.executors = c.dir
	}
	require.NoError(t, os.WriteFile(c.config(), fmt.Appendf(nil, `
telemetry: {log_level: warn, log_format: json}
admin: {addr: ""}
grpc: {grace: 300ms}
upstream: {planner: "", executor: "", registry: %q}
registry: {store: %s, sqlite_path: %q, postgres_url: %q, migrate: false}
executor:
  store: %[2]s
  sqlite_path: %[5]q
  postgres_url: %[4]q
  migrate: false
  drain: 1s
  parallel: 64
  actors: {http: {allow_private: [all], timeout: 5s}}
`, c.addr("registry"), c.store, filepath.Join(c.dir, "registry.db"), c.url, filepath.Join(c.executors, "executor.db")), 0o600))
	text, err := exec.Command(bin, "migrate", "--config="+c.config()).CombinedOutput()
	require.NoError(t, err, "%s", text)
	t.Cleanup(c.stop)
	c.registry = c.newReplica("registry", "registry")
	c.registry.launch(nil)
	c.reg = registryv1.NewRegistryServiceClient(c.registry.conn)
	for i := range o.replicas {
		r := c.newReplica("executor", fmt.Sprintf("executor-%d", i))
		c.replicas = append(c.replicas, r)
		r.launch(nil)
	}
	return c
}

func (c *cluster) config() string { return filepath.Join(c.dir, "epigraph.yaml") }

// addr is the port of a process, found free once and kept over its restarts.
func (c *cluster) addr(name string) string {
	file := filepath.Join(c.dir, name+".addr")
	if b, err := os.ReadFile(file); err == nil {
		return string(b)
	}
	at := testkit.FreeAddress(c.t)
	require.NoError(c.t, os.WriteFile(file, []byte(at), 0o600))
	return at
}

func (c *cluster) stop() {
	for _, r := range append(c.replicas, c.registry) {
		if r == nil {
			continue
		}
		if !c.t.Failed() {
			r.end()
			continue
		}
		r.dump()
		if b, err := os.ReadFile(r.log); err == nil {
			said, stacks, _ := strings.Cut(string(b), "SIGQUIT: quit")
			lines := strings.Split(strings.TrimSpace(said), "\n")
			c.t.Logf("the last words of %s:\n%s", r.name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
			c.t.Logf("what stands still in %s:\n%s", r.name, strings.Join(stuck(stacks), "\n\n"))
		}
	}
}

// stuck are the goroutines of a dump that have waited for a minute or more in code of the executor.
func stuck(dump string) (out []string) {
	for g := range strings.SplitSeq(dump, "\n\n") {
		head, _, _ := strings.Cut(g, "\n")
		if strings.HasPrefix(head, "goroutine ") && strings.Contains(head, " minutes]") && strings.Contains(g, "/services/executor/") && len(out) < 60 {
			out = append(out, g)
		}
	}
	return out
}

// replica is a slot for a process: processes follow each other there, under one address.
type replica struct {
	c             *cluster
	service, name string
	log           string
	conn          *grpc.ClientConn
	exec          executorv1.ExecutorServiceClient

	mu         sync.Mutex
	cmd        *exec.Cmd
	ended      chan struct{}
	generation int
	// id is the name of the present executor.
	id string
	// settings are its own, over those of the cluster.
	settings []string
}

func (c *cluster) newReplica(service, name string) *replica {
	r := &replica{c: c, service: service, name: name, log: filepath.Join(c.dir, name+".log")}
	var err error
	r.conn, err = grpckit.Dial(c.addr(name), grpckit.DialOptions{Namespace: namespace})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = r.conn.Close() })
	r.exec = executorv1.NewExecutorServiceClient(r.conn)
	return r
}

// start starts a process with these points armed. It does not wait until the process serves.
func (r *replica) start(points map[failpoint.Point]int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.id = r.name
	args := []string{"serve", r.service, "--config=" + r.c.config(), "--set", "grpc." + r.service + "_addr=" + r.c.addr(r.name)}
	if r.service == "executor" {
		// Every other process has another name: then the runs are taken over, and not only taken back.
		if r.generation%2 == 0 {
			r.id += "-other"
		}
		args = append(args, "--set", "executor.id="+r.id, "--set", "executor.postgres_url="+r.c.execURL)
	}
	for _, s := range slices.Concat(r.c.settings, r.settings) {
		args = append(args, "--set", s)
	}
	var armed []string
	for p, n := range points {
		armed = append(armed, fmt.Sprintf("%s=%d", p, n))
	}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(r.c.bin, args...)
	cmd.Env = append(os.Environ(), failpoint.Env+"="+strings.Join(armed, ","), "GOMAXPROCS=2", "GOMEMLIMIT=256MiB")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	r.cmd, r.ended = cmd, ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// launch starts a process and waits until it serves.
func (r *replica) launch(points map[failpoint.Point]int) {
	r.c.t.Helper()
	require.NoError(r.c.t, r.start(points))
	testkit.Within(r.c.t, timeout, 10*time.Millisecond, r.serves, "%s does not serve", r.name)
}

func (r *replica) serves() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if r.service == "executor" {
		_, err := r.exec.ListRuns(ctx, &executorv1.ListRunsRequest{PageSize: 1})
		return err == nil
	}
	_, err := registryv1.NewRegistryServiceClient(r.conn).ListEpics(ctx, &registryv1.ListEpicsRequest{PageSize: 1})
	return err == nil
}

// over is closed when the present process has ended.
func (r *replica) over() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

func (r *replica) signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(s)
	}
}

// kill is kill -9.
func (r *replica) kill() {
	r.signal(syscall.SIGKILL)
	<-r.over()
	r.c.kills.Add(1)
	totals.kill("executor, kill -9 at random")
}

// end ends the process without counting it as a kill.
func (r *replica) end() {
	if r.over() == nil {
		return
	}
	r.signal(syscall.SIGCONT)
	r.signal(syscall.SIGKILL)
	<-r.over()
}

// dump ends the process and lets it write down what its goroutines do.
func (r *replica) dump() {
	if r.over() == nil {
		return
	}
	r.signal(syscall.SIGCONT)
	r.signal(syscall.SIGQUIT)
	select {
	case <-r.over():
	case <-time.After(10 * time.Second):
		r.end()
	}
}

// code is the exit code of the last process; -1 if a signal ended it.
func (r *replica) code() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cmd.ProcessState.ExitCode()
}

// died counts a kill at a point.
func (c *cluster) died(p failpoint.Point) {
	c.kills.Add(1)
	totals.kill("executor, at point " + string(p))
	n, _ := c.points.LoadOrStore(p, &atomic.Int64{})
	n.(*atomic.Int64).Add(1)
}

// ask calls one executor after the other until one answers with more than that it is not there.
func ask[T any](ctx context.Context, c *cluster, f func(context.Context, executorv1.ExecutorServiceClient) (T, error)) (T, error) {
	i := int(turn.Add(1))
	return persist(ctx, func(ctx context.Context) (T, error) {
		i++
		return f(ctx, c.replicas[i%len(c.replicas)].exec)
	})
}

// persist repeats a call until it works. It gives up where another try cannot help.
func persist[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		v, err := f(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		switch errs.KindOf(err) {
		case errs.Unavailable, errs.DeadlineExceeded, errs.Canceled, errs.Conflict, errs.Internal:
		default:
			if errs.ReasonOf(err) != "TASK_NOT_CLAIMABLE" {
				return v, err
			}
		}
		pause := time.NewTimer(30 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// turn spreads calls over the executors.
var turn atomic.Int64
