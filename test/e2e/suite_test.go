// Package e2e_test runs the built binary as in production: four processes on real ports, over SQLite and over
// PostgreSQL, called over REST. It owns the checks that need everything together; it must not know any
// package of the services.
package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/otlptest"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// binaryVariable names a binary to test in place of building one.
const binaryVariable = "E2E_BINARY"

// timeout bounds every wait, far above the usual time.
const timeout = 2 * time.Minute

const (
	keyA, namespaceA = "key-of-team-a", "team-a"
	keyB, namespaceB = "key-of-team-b", "team-b"
)

// stores are what every test of the whole suite runs on.
var stores = []string{"sqlite", "postgres"}

var workDir string

func TestMain(m *testing.M) {
	var err error
	if workDir, err = os.MkdirTemp("", "epigraph-e2e-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(workDir)
	os.Exit(code)
}

// binary builds the command once per test process, with the race detector if the tests have it.
var binary = sync.OnceValues(func() (string, error) {
	if b := os.Getenv(binaryVariable); b != "" {
		return b, nil
	}
	out := filepath.Join(workDir, "epigraph")
	args := append([]string{"build"}, buildFlags...)
	text, err := exec.Command("go", append(args, "-o", out, "github.com/epigraph-run/epigraph/cmd/epigraph")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, text)
	}
	return out, nil
})

// suite is four running processes, and a model server that they ask.
type suite struct {
	bin, config string
	env         []string
	url         string // of the gateway
	model       *fakellm.Server
	otlp        *otlptest.Receiver
	procs       map[string]*process
}

// environment is that of the processes that keep their files in dir.
func environment(dir string) []string {
	// Else a process that was built with the race detector takes a second to end.
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "GORACE=atexit_sleep_ms=0"}
}

// options change a suite before it starts.
type options struct {
	store  string // sqlite or postgres
	script fakellm.Script
	env    []string // for every process
	keys   string   // further API keys of the gateway, as lines of its configuration
}

// start migrates fresh databases and starts the services.
func start(t *testing.T, o options) *suite {
	t.Helper()
	bin, err := binary()
	require.NoError(t, err)
	s := &suite{bin: bin, model: fakellm.New(o.script), otlp: otlptest.New(t), procs: map[string]*process{}}
	modelURL, err := s.model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.model.Close()) })

	dir := t.TempDir()
	url := ""
	if o.store == "postgres" {
		url = pgtest.New(t)
	}
	s.config = filepath.Join(dir, "epigraph.yaml")
	quote := func(v string) string { b, _ := json.Marshal(v); return string(b) } // a string always marshals
	require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, `
telemetry: {log_level: info, log_format: json, otlp_endpoint: %s}
admin: {addr: ""}
auth: {service_token: shared-by-the-services}
gateway:
  addr: 127.0.0.1:0
  retry: 50ms
  max_body_bytes: 256KiB
  keys:
    - {name: a, namespace: %s, secret: %s, scopes: [run, worker, approve, admin]}
    - {name: b, namespace: %s, secret: %s, scopes: [run, worker, approve, admin]}
%[11]sgrpc: {planner_addr: "127.0.0.1:0", executor_addr: "127.0.0.1:0", registry_addr: "127.0.0.1:0", grace: 300ms}
registry: {store: %[6]s, sqlite_path: %[7]s, postgres_url: %[8]s, migrate: false}
executor:
  store: %[6]s
  sqlite_path: %[9]s
  postgres_url: %[8]s
  migrate: false
  id: e2e
  drain: 5s
  max_payload: 64KiB
  actors: {http: {allow_private: [127.0.0.1/32]}}
models: {profiles: {default: {base_url: %[10]s, api_key: unused}}}
`, quote("http://"+s.otlp.Endpoint()), namespaceA, keyA, namespaceB, keyB, o.store,
		quote(filepath.Join(dir, "registry.db")), quote(url), quote(filepath.Join(dir, "executor.db")), quote(modelURL), o.keys), 0o600))
	s.env = append(environment(dir), "OTEL_BSP_SCHEDULE_DELAY=100")
	s.env = append(s.env, o.env...)

	t.Cleanup(func() {
		for _, name := range []string{"gateway", "planner", "executor", "registry"} {
			p := s.procs[name]
			if p == nil {
				continue
			}
			defer p.kill()
			if c := p.complaints(); c != "" && t.Failed() {
				t.Log(c)
			}
			if !p.ended() {
				p.stop(t)
			}
		}
	})

	text, err := s.command("migrate").CombinedOutput()
	require.NoError(t, err, string(text))
	s.serve(t, "registry", "")
	s.serve(t, "planner", "")
	s.serve(t, "executor", "")
	s.serve(t, "gateway", "")
	s.awaitReady(t)
	return s
}

func (s *suite) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, append(args, "--config="+s.config)...)
	cmd.Env = s.env
	return cmd
}

// serve starts a service, at addr if that is given, and returns when it has taken its port.
func (s *suite) serve(t *testing.T, service, addr string) {
	t.Helper()
	cmd := s.command("serve", service)
	for _, name := range []string{"registry", "planner", "executor"} {
		if p := s.procs[name]; p != nil {
			cmd.Env = append(cmd.Env, "EPIGRAPH_UPSTREAM_"+strings.ToUpper(name)+"="+p.addr)
		}
	}
	if addr == "" && service != "gateway" {
		addr = ownHost() + ":0"
	}
	if addr != "" {
		cmd.Env = append(cmd.Env, "EPIGRAPH_GRPC_"+strings.ToUpper(service)+"_ADDR="+addr)
	}
	p := launch(t, cmd)
	s.procs[service] = p
	p.await(t, "starting", func(line logLine) bool { p.addr = line.Addr; return line.Msg == "starting" })
	if service == "gateway" {
		s.url = "http://" + p.addr
	}
}

var hosts atomic.Uint32

// ownHost is a loopback address that no other server listens on, where the system has more than one. The port
// of a service that is killed stays free until it is started again.
func ownHost() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return net.IPv4(127, 1+byte(os.Getpid()>>8)%254, byte(os.Getpid()), 1+byte(hosts.Add(1)%254)).String()
}

// dial connects to a service that was started, and waits until it serves.
func (s *suite) dial(t *testing.T, service string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpckit.Dial(s.procs[service].addr, grpckit.DialOptions{Token: conf.NewSecret("shared-by-the-services"), Namespace: "default"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
	})
	return conn
}

// restart starts a service that has ended again, where it was.
func (s *suite) restart(t *testing.T, service string) {
	t.Helper()
	s.serve(t, service, s.procs[service].addr)
	s.awaitReady(t)
}

func (s *suite) awaitReady(t *testing.T) {
	t.Helper()
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		status, body := s.do(t, request{path: "/readyz"})
		return status == http.StatusOK && strings.Contains(string(body), `"status":"READY"`)
	})
}

// process is a started command and its log.
type process struct {
	cmd  *exec.Cmd
	addr string
	done chan struct{}

	mu    sync.Mutex
	text  bytes.Buffer
	lines []logLine
	err   error
}

type logLine struct {
	Msg, Addr string
}

func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(t, cmd.Start())
	go func() {
		sc := bufio.NewScanner(r)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var l logLine
			_ = json.Unmarshal(sc.Bytes(), &l) // a line that is no JSON is kept as text only
			p.mu.Lock()
			p.text.Write(append(sc.Bytes(), '\n'))
			p.lines = append(p.lines, l)
			p.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	go func() {
		err := cmd.Wait()
		_ = w.Close()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(p.done)
	}()
	return p
}

// kill ends a process that has not ended by itself.
func (p *process) kill() {
	if !p.ended() {
		_ = p.cmd.Process.Kill() // fails only if it has ended meanwhile
	}
	<-p.done
}

// await returns when a log line satisfies cond.
func (p *process) await(t *testing.T, what string, cond func(logLine) bool) {
	t.Helper()
	testkit.Within(t, timeout, 5*time.Millisecond, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range p.lines {
			if cond(l) {
				return true
			}
		}
		return false
	}, "no log line %q of %v", what, p)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop sends SIGTERM and requires the exit code 0 in time.
func (p *process) stop(t *testing.T) {
	t.Helper()
	begin := time.Now()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(timeout):
		require.FailNow(t, "still running after SIGTERM", "%v", p)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NoError(t, p.err, "%s", p.text.String())
	t.Logf("%s stopped after %s", p.cmd.Args[2], time.Since(begin).Round(time.Millisecond))
}

// exitCode waits for the end.
func (p *process) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(timeout):
		require.FailNow(t, "still running", "%v", p)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return e.ExitCode()
	}
	require.NoError(t, p.err)
	return 0
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// complaints are the lines of its log that are more than information; that it is not ready yet is none.
func (p *process) complaints() string {
	var b strings.Builder
	for line := range strings.Lines(p.output()) {
		if !strings.Contains(line, `"level":"INFO"`) && !strings.Contains(line, "GET /readyz") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// String is for messages of failed tests.
func (p *process) String() string { return strings.Join(p.cmd.Args, " ") + "\n" + p.complaints() }

func within(t *testing.T) context.Context { return testkit.Context(t, timeout) }
