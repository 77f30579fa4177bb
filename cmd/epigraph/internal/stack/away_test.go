package stack_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// answer is the last one of a probe, for messages.
type answer struct {
	code int
	body string
}

// TestDatabaseUnreachable starts services whose PostgreSQL server is not running yet, and stops it later.
func TestDatabaseUnreachable(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t, 3*time.Minute)
	db, err := pgtest.Start(ctx, "", pgtest.Options{NoFsync: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Stop()) })
	require.NoError(t, db.Crash())

	const wait = 30 * time.Second // it takes a second or two
	c := base(t)
	log := &testkit.LogBuffer{}
	c.Telemetry.LogWriter, c.Telemetry.LogLevel, c.Telemetry.LogFormat = log, "info", "json"
	c.StartTimeout = 0
	c.Registry.Store, c.Registry.PostgresURL = "postgres", conf.NewSecret(db.URL(""))
	c.Executor.Store, c.Executor.PostgresURL = "postgres", conf.NewSecret(db.URL(""))
	c.Upstream = stack.Upstream{}
	open := func(service string) *stack.Process {
		p, err := stack.Open(t.Context(), service, c)
		require.NoError(t, err)
		run(t, p)
		return p
	}
	registry := open(stack.Registry)
	c.Upstream.Registry = registry.Addr()
	executor, planner := open(stack.Executor), open(stack.Planner)
	c.Upstream.Executor, c.Upstream.Planner = executor.Addr(), planner.Addr()
	gateway := open(stack.Gateway)

	stored := map[string]*stack.Process{"registry": registry, "executor": executor}
	alive := func(t *testing.T, p *stack.Process) {
		t.Helper()
		code, body := get(t, "http://"+p.AdminAddr()+"/livez")
		require.Equal(t, http.StatusOK, code, body)
	}
	comes := func(t *testing.T, p *stack.Process, code int, text string) {
		t.Helper()
		var last answer
		testkit.Within(t, wait, 20*time.Millisecond, func() bool {
			last.code, last.body = get(t, "http://"+p.AdminAddr()+"/readyz")
			return last.code == code && strings.Contains(last.body, text)
		}, "%v", &last)
	}
	// front waits until the gateway names exactly these services, each with this reason.
	front := func(t *testing.T, status, reason string, away ...string) {
		t.Helper()
		var last answer
		testkit.Within(t, wait, 50*time.Millisecond, func() bool {
			last.code, last.body = get(t, "http://"+gateway.Addr()+"/readyz")
			var out struct {
				Status string
				Away   []struct{ Service, Reason string }
			}
			if last.code != http.StatusOK || json.Unmarshal([]byte(last.body), &out) != nil || out.Status != status {
				return false
			}
			var names []string
			for _, a := range out.Away {
				if a.Reason != reason {
					return false
				}
				names = append(names, a.Service)
			}
			return strings.Join(names, " ") == strings.Join(away, " ")
		}, "%v", &last)
	}

	for name, p := range stored {
		t.Run("Start/LivesAndSaysWhatIsAway/"+name, func(t *testing.T) {
			comes(t, p, http.StatusServiceUnavailable, "cannot reach PostgreSQL")
			alive(t, p)
		})
	}
	// refused waits until a call is refused for this reason.
	refused := func(t *testing.T, method, path, body, reason, message string) {
		t.Helper()
		var last answer
		testkit.Within(t, wait, 20*time.Millisecond, func() bool {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+gateway.Addr()+path, strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer func() { require.NoError(t, res.Body.Close()) }()
			raw, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			last = answer{res.StatusCode, string(raw)}
			return strings.Contains(last.body, `"reason":"`+reason+`","message":"`+message+`","hint":"`)
		}, "%v", &last)
	}
	const start = `{"graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "1"}}]}}`
	t.Run("Start/CallersAreToldOfTheDatabase", func(t *testing.T) {
		front(t, "DEGRADED", "DATABASE_UNREACHABLE", "executor", "registry")
		refused(t, "GET", "/v1/runs", "", "DATABASE_UNREACHABLE", "the database of the executor does not answer")
		refused(t, "POST", "/v1/runs", start, "DATABASE_UNREACHABLE", "the database of the executor does not answer")
		refused(t, "GET", "/v1/epics", "", "DATABASE_UNREACHABLE", "the database of the registry does not answer")
	})
	t.Run("Start/WhoNeedsNoDatabaseIsReady", func(t *testing.T) { comes(t, planner, http.StatusOK, "ok") })
	t.Run("Start/BecomesReadyWhenTheDatabaseComes", func(t *testing.T) {
		require.NoError(t, db.Restart(ctx))
		for _, p := range stored {
			comes(t, p, http.StatusOK, "ok")
		}
		front(t, "READY", "")
	})
	// The log lines from here on are about the outage.
	before := len(log.Lines(t))
	t.Run("Crash/IsToldApartFromAServiceThatIsAway", func(t *testing.T) {
		require.NoError(t, db.Crash())
		front(t, "DEGRADED", "DATABASE_UNREACHABLE", "executor", "registry")
		for _, p := range stored {
			comes(t, p, http.StatusServiceUnavailable, "the connection to the database broke")
			alive(t, p)
		}
		comes(t, planner, http.StatusOK, "ok")
		refused(t, "GET", "/v1/runs", "", "DATABASE_UNREACHABLE", "the database of the executor does not answer")
		refused(t, "POST", "/v1/runs", start, "DATABASE_UNREACHABLE", "the database of the executor does not answer")
	})
	t.Run("Crash/CallsAreRefusedAndTried", func(t *testing.T) {
		for range 20 {
			for _, path := range []string{"/v1/runs", "/v1/epics", "/v1/usage", "/v1/schedules", "/v1/limits"} {
				code, body := get(t, "http://"+gateway.Addr()+path)
				require.Equal(t, http.StatusServiceUnavailable, code, body)
			}
		}
	})
	t.Run("Restart/ReadyAgain", func(t *testing.T) {
		require.NoError(t, db.Restart(ctx))
		for _, p := range stored {
			comes(t, p, http.StatusOK, "ok")
		}
		front(t, "READY", "")
	})
	t.Run("Log/OfAllServicesHasAFewLinesOfTheOutage", func(t *testing.T) {
		testkit.Within(t, wait, 20*time.Millisecond, func() bool {
			_, registry := log.Line(t, "the registry's database answers again")
			_, executor := log.Line(t, "the executor's database answers again")
			return registry && executor
		})
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(log.String())
			}
		})
		var grave, bad []testkit.LogLine
		for _, l := range log.Lines(t)[before:] {
			switch l.Level {
			case "ERROR":
				grave = append(grave, l)
			case "WARN":
				bad = append(bad, l)
			}
		}
		require.ElementsMatch(t, []testkit.LogLine{{Level: "ERROR", Msg: "the executor's database does not answer"},
			{Level: "ERROR", Msg: "the registry's database does not answer"}}, grave)
		require.LessOrEqual(t, len(bad), 15, "%+v", bad)
	})
}
