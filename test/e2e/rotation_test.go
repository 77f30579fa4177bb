package e2e_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// TestKeyRotation replaces an API key by the steps of docs/operations.md, over REST and gRPC, with a rolling
// restart at each, and checks the page's promise for each step.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	const before, after = "key-of-ci-before", "key-of-ci-after"
	entry := func(secret string) string {
		return "{name: ci, namespace: " + namespaceA + ", secret: " + secret + ", scopes: [run]}"
	}
	s := start(t, options{store: "sqlite", env: []string{"EPIGRAPH_AUTH_KEYS=[" + entry(before) + "]"}})
	// roll starts every process that knows the keys again, one after the other.
	roll := func(t *testing.T, entries ...string) {
		t.Helper()
		for i, v := range s.env {
			if strings.HasPrefix(v, "EPIGRAPH_AUTH_KEYS=") {
				s.env[i] = "EPIGRAPH_AUTH_KEYS=[" + strings.Join(entries, ", ") + "]"
			}
		}
		for _, service := range []string{"registry", "planner", "executor"} {
			s.procs[service].stop(t)
			s.restart(t, service)
		}
		s.procs["gateway"].stop(t)
		s.serve(t, "gateway", "")
		s.awaitReady(t)
	}
	const graph = `{"graph":{"name":"g","nodes":[{"id":"n","actor":"signal","named":{"name":"go"}}]}}`
	type owned struct{ ID, Principal string }
	begin := func(t *testing.T, key string) (r owned) {
		t.Helper()
		s.ask(t, request{path: "/v1/runs", key: key, body: graph}, &r)
		return r
	}
	// opens calls an executor by itself, too, as clients of gRPC may.
	opens := func(t *testing.T, key, runID string) error {
		t.Helper()
		c, err := epigraph.Dial(s.procs["executor"].addr, epigraph.WithKey(key))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		_, err = c.Run(runID).Get(within(t))
		return err
	}
	first := begin(t, before)
	require.Equal(t, "key:ci", first.Principal)
	status, _ := s.do(t, request{path: "/v1/runs/" + first.ID, key: after})
	require.Equal(t, http.StatusUnauthorized, status)

	t.Run("BothEntries/OpenTheSame", func(t *testing.T) {
		roll(t, entry(before), entry(after))
		for _, key := range []string{before, after} {
			require.Equal(t, "key:ci", begin(t, key).Principal, "what they do is recorded under the same principal")
			s.ask(t, request{path: "/v1/runs/" + first.ID, key: key}, nil)
			require.NoError(t, opens(t, key, first.ID))
		}
	})
	t.Run("OldEntry/RemovedOpensNothing", func(t *testing.T) {
		roll(t, entry(after))
		status, body := s.do(t, request{path: "/v1/runs/" + first.ID, key: before})
		require.Equal(t, http.StatusUnauthorized, status, string(body))
		require.Error(t, opens(t, before, first.ID))
		require.NoError(t, opens(t, after, first.ID))
		s.ask(t, request{path: "/v1/runs/" + first.ID + ":signal", key: after, body: `{"name":"go","payload":1}`}, nil)
	})
	t.Run("Entries/OfOneNameWithOneSecretAreRefused", func(t *testing.T) {
		cmd := s.command("serve", "gateway")
		cmd.Env = append(cmd.Env, "EPIGRAPH_AUTH_KEYS=["+entry(after)+", "+entry(after)+"]")
		p := launch(t, cmd)
		t.Cleanup(p.kill)
		require.Equal(t, 1, p.exitCode(t), p.output())
	})
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for _, step := range []string{
		"1. Add a second entry to `auth.keys` (`gateway.keys`) with the same `name` and `namespace` and another `secret`. Both are accepted.",
		"2. Give the new secret to its users. What they do is recorded under the same principal.",
		"3. Remove the entry with the old secret. A call with it gets 401 from then on.",
	} {
		require.Contains(t, strings.Join(strings.Fields(string(page)), " "), step, "the test follows the page")
	}
}
