package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/otlptest"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// cell is a database with its registry and its executor.
type cell struct {
	*suite
	url string
}

// serveCell migrates a database of its own and starts what belongs to it.
func serveCell(t *testing.T, base *suite, dir, name string) *cell {
	t.Helper()
	c := &cell{suite: &suite{bin: base.bin, env: base.env, procs: map[string]*process{}}, url: pgtest.New(t)}
	c.config = filepath.Join(dir, name+".yaml")
	url, err := json.Marshal(c.url)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.config, fmt.Appendf(nil, `
telemetry: {log_level: info, log_format: json}
admin: {addr: ""}
auth: {service_token: shared-by-the-services}
grpc: {executor_addr: "127.0.0.1:0", registry_addr: "127.0.0.1:0", grace: 300ms}
registry: {store: postgres, postgres_url: %[1]s, migrate: false}
executor: {store: postgres, postgres_url: %[1]s, migrate: false, id: %[2]s, drain: 5s}
`, url, name), 0o600))
	text, err := c.command("migrate").CombinedOutput()
	require.NoError(t, err, string(text))
	c.serve(t, "registry", "")
	c.serve(t, "executor", "")
	ended(t, c.suite)
	return c
}

// ended stops the processes of a suite at the end of the test.
func ended(t *testing.T, s *suite) {
	t.Cleanup(func() {
		for _, name := range []string{"gateway", "planner", "executor", "registry"} {
			if p := s.procs[name]; p != nil {
				if c := p.complaints(); c != "" && t.Failed() {
					t.Log(c)
				}
				p.kill()
			}
		}
	})
}

// gateway starts one before the cells with these placements, in place of the one that there is.
func (s *suite) gateway(t *testing.T, dir, placements string, east, west *cell) {
	t.Helper()
	if p := s.procs["gateway"]; p != nil {
		p.stop(t)
	}
	s.config = filepath.Join(dir, "gateway.yaml")
	require.NoError(t, os.WriteFile(s.config, fmt.Appendf(nil, `
telemetry: {log_level: info, log_format: json}
admin: {addr: ""}
auth: {service_token: shared-by-the-services}
grpc: {planner_addr: "127.0.0.1:0"}
gateway:
  addr: 127.0.0.1:0
  health_timeout: 1s
  cells:
    - {name: east, executor: %q, registry: %q}
    - {name: west, executor: %q, registry: %q}
  placements: [%s]
  keys:
    - {name: a, namespace: %s, secret: %s, scopes: [run, worker, approve, admin]}
    - {name: b, namespace: %s, secret: %s, scopes: [run, worker, approve, admin]}
`, east.procs["executor"].addr, east.procs["registry"].addr, west.procs["executor"].addr, west.procs["registry"].addr, placements,
		namespaceA, keyA, namespaceB, keyB), 0o600))
	if s.procs["planner"] == nil {
		s.serve(t, "planner", "")
	}
	s.serve(t, "gateway", "")
	s.awaitReady(t)
}

const interruptGraph = `{"graph":{"name":"ask","nodes":[{"id":"ask","actor":"human","named":{"prompt":"May it move?"}},
	{"id":"after","actor":"cel","named":{"expr":"1 + 1"}}],"edges":[{"from":"ask","to":"after"}]}}`

func TestCells(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	s := &suite{bin: bin, otlp: otlptest.New(t), procs: map[string]*process{}}
	s.env = environment(dir)
	east, west := serveCell(t, s, dir, "east"), serveCell(t, s, dir, "west")
	ended(t, s)
	s.gateway(t, dir, "{namespaces: "+namespaceA+", cell: east}, {namespaces: team-*, cell: west}", east, west)

	begin := func(t *testing.T, key, body string) (r run) {
		s.ask(t, request{path: "/v1/runs", body: body, key: key}, &r)
		return r
	}
	const sum = `{"graph":{"name":"sum","nodes":[{"id":"sum","actor":"cel","named":{"expr":"20 + 22"}}]}}`
	var a, b run

	t.Run("Namespaces/LiveInTheirCellsAlone", func(t *testing.T) {
		for key, ns := range map[string]string{keyA: namespaceA, keyB: namespaceB} {
			var epic struct{ ID string }
			s.ask(t, request{path: "/v1/epics", body: `{"title":"books of ` + ns + `"}`, key: key}, &epic)
			r := begin(t, key, sum)
			testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
				s.ask(t, request{path: "/v1/runs/" + r.ID, key: key}, &r)
				return r.ended()
			})
			require.Equal(t, "RUN_STATE_COMPLETED", r.State)
			require.JSONEq(t, "42", string(r.Result))
			if key == keyA {
				a = r
			} else {
				b = r
			}
		}
		for _, tc := range []struct {
			c       *cell
			has, no string
		}{{east, namespaceA, namespaceB}, {west, namespaceB, namespaceA}} {
			for _, table := range []string{"executor.runs", "executor.events", "registry.epics"} {
				require.Equal(t, "t|f", psql(t, tc.c.url, "SELECT bool_or(namespace = '"+tc.has+"'), bool_or(namespace = '"+tc.no+"') FROM "+table), table)
			}
		}
		status, body := s.do(t, request{path: "/v1/runs/" + a.ID, key: keyB})
		require.Equal(t, http.StatusNotFound, status, string(body))
	})

	t.Run("Cell/DownIsNamedAndHarmsNoOther", func(t *testing.T) {
		addr := west.procs["executor"].addr
		west.procs["executor"].kill()
		for range 10 {
			status, body := s.do(t, request{path: "/v1/runs", body: sum, key: keyB})
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, string(body), "CELL_UNAVAILABLE")
			require.Contains(t, string(body), `"cell":"west"`)
			begin(t, keyA, sum) // a request that waits for the other cell times out
		}
		status, body := s.do(t, request{path: "/v1/runs/" + b.ID + "/events", key: keyB})
		require.Equal(t, http.StatusServiceUnavailable, status, string(body))
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
			status, body := s.do(t, request{path: "/readyz"})
			return status == http.StatusOK && strings.Contains(string(body), `"status":"DEGRADED"`)
		})
		west.serve(t, "executor", addr)
		testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
			status, _ := s.do(t, request{path: "/v1/runs/" + b.ID, key: keyB})
			return status == http.StatusOK
		})
	})

	t.Run("Namespace/MovesWithItsWaitingRuns", func(t *testing.T) {
		asks := begin(t, keyA, interruptGraph)
		// However slow this machine is, one of them comes due soon after the copy.
		var naps []run
		for d := 10 * time.Second; d <= 5*time.Minute; d += 10 * time.Second {
			naps = append(naps, begin(t, keyA, `{"graph":{"name":"nap","nodes":[{"id":"nap","actor":"sleep","named":{"duration":"`+d.String()+`"}}]}}`))
		}
		move := func(verb string, args ...string) (string, error) {
			out, err := exec.Command("../../scripts/move-namespace", append([]string{verb}, args...)...).CombinedOutput()
			return string(out), err
		}
		// Each call holds what rests, so that only naps that are near are left to wait for.
		atRest := func(verb string, args ...string) {
			var out string
			t.Cleanup(func() { t.Log(verb, out) })
			testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
				var err error
				if out, err = move(verb, args...); err != nil {
					require.Contains(t, out, "is at work")
				}
				return err == nil
			})
		}
		closed := "{namespaces: " + namespaceA + ", cell: east, closed: true}, {namespaces: team-*, cell: west}"
		s.gateway(t, dir, closed, east, west)
		status, body := s.do(t, request{path: "/v1/runs", body: sum})
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, string(body), "NAMESPACE_MOVING")
		s.ask(t, request{path: "/v1/runs/" + asks.ID}, nil)

		const held = "SELECT count(*) FROM executor.runs WHERE state = 5 AND state_reason LIKE 'MOVED:3:%'"
		atRest("hold", east.url, namespaceA)
		atRest("copy", east.url, west.url, namespaceA)
		require.NotEqual(t, "0", psql(t, east.url, held), "open runs stand still in the old cell")
		_, err := move("copy", east.url, west.url, namespaceA)
		require.Error(t, err, "it is there already")

		atRest("clean", west.url, namespaceA)
		out, err := move("reopen", east.url, namespaceA)
		require.NoError(t, err, out)
		require.Equal(t, "0", psql(t, east.url, held), "the way back")

		atRest("copy", east.url, west.url, namespaceA)
		var left []run
		for _, nap := range naps {
			if psql(t, east.url, "SELECT state FROM executor.runs WHERE run_id = '"+nap.ID+"'") == "5" {
				left = append(left, nap)
			}
		}
		require.NotEmpty(t, left)
		s.gateway(t, dir, "{namespaces: team-*, cell: west}", east, west)
		out, err = move("clean", east.url, namespaceA)
		require.NoError(t, err, out)
		require.Equal(t, "0", psql(t, east.url, "SELECT count(*) FROM executor.events"))

		var open struct{ Interrupts []struct{ ID string } }
		s.ask(t, request{path: "/v1/runs/" + asks.ID + "/interrupts"}, &open)
		require.Len(t, open.Interrupts, 1)
		s.ask(t, request{path: "/v1/interrupts/" + open.Interrupts[0].ID + ":answer", body: `{"answer":"yes"}`}, nil)
		require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, asks.ID).State)
		require.JSONEq(t, "42", string(s.awaitEnd(t, a.ID).Result), "what had ended can be read")
		var r run
		testkit.Within(t, 10*timeout, 200*time.Millisecond, func() bool {
			for _, nap := range left {
				if s.ask(t, request{path: "/v1/runs/" + nap.ID}, &r); r.ended() {
					return true
				}
			}
			return false
		})
		require.Equal(t, "RUN_STATE_COMPLETED", r.State, "the timer came due in the new cell")
	})
}

func psql(t *testing.T, url, query string) string {
	t.Helper()
	out, err := exec.Command("psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", url, "-c", query).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out[:max(len(out)-1, 0)])
}
