package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// a2aError is an error of the protocol, with the reason of the suite.
type a2aError struct {
	Error struct {
		Code int
		Data []struct {
			Metadata map[string]string
		}
	}
}

func TestA2A(t *testing.T) {
	t.Parallel()
	r := start(t, options{config: func(c *gateway.Config) {
		c.PublicURL = "https://agents.example"
		for _, s := range []access.Scope{access.Run, access.Worker} {
			c.Keys = append(c.Keys, grpckit.APIKey{Name: string(s), Namespace: "team-a", Secret: conf.NewSecret("key-with-scope-" + string(s)), Scopes: []access.Scope{s}})
		}
	}})
	r.executor.get = func(_ context.Context, req *executorv1.GetRunRequest) (*executorv1.Run, error) {
		return &executorv1.Run{Id: req.GetRunId(), State: executorv1.RunState_RUN_STATE_RUNNING}, nil
	}
	const get = `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"run_1"}}`
	as := func(key string) []string { return []string{"Authorization", "Bearer key-with-scope-" + key} }
	t.Run("AStrangerGetsACardWithoutSkills", func(t *testing.T) {
		t.Parallel()
		for path, url := range map[string]string{"": "/a2a", "/a2a/desk": "/a2a/desk", "/a2a/agent/desk": "/a2a/agent/desk"} {
			p := r.call(t, http.MethodGet, path+"/.well-known/agent-card.json", "")
			require.Equal(t, http.StatusOK, p.status, p.body)
			var card struct {
				URL             string
				Skills          []any
				SecuritySchemes map[string]any
			}
			require.NoError(t, json.Unmarshal([]byte(p.body), &card))
			require.Equal(t, "https://agents.example"+url, card.URL)
			require.Empty(t, card.Skills)
			require.NotEmpty(t, card.SecuritySchemes)
		}
	})
	t.Run("AWrongKeyGetsNoCard", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, http.StatusUnauthorized, r.call(t, http.MethodGet, "/.well-known/agent-card.json", "", as("none")...).status)
	})
	t.Run("WithoutAKey", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, http.StatusUnauthorized, r.call(t, http.MethodPost, "/a2a", get).status)
		require.Equal(t, http.StatusUnauthorized, r.call(t, http.MethodGet, "/a2a/tasks", "").status)
	})
	for name, c := range map[string]struct {
		key    string
		code   int
		reason string
	}{
		"ARunWithoutAThreadIsNoTask":     {"run", -32001, "TASK_NOT_FOUND"},
		"AMethodNeedsTheScopeOfItsCalls": {"worker", -31403, "SCOPE_MISSING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := r.call(t, http.MethodPost, "/a2a", get, as(c.key)...)
			require.Equal(t, http.StatusOK, p.status, p.body)
			var e a2aError
			require.NoError(t, json.Unmarshal([]byte(p.body), &e))
			require.Equal(t, c.code, e.Error.Code, p.body)
			require.Equal(t, c.reason, e.Error.Data[len(e.Error.Data)-1].Metadata["reason"])
		})
	}
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		reason             string
	}{
		"ABodyThatIsLarge":      {http.MethodPost, "/a2a", strings.Repeat(" ", 1<<20+1), http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE"},
		"ManyValues":            {http.MethodPost, "/a2a", `[` + strings.Repeat("0,", 20_000) + `0]`, http.StatusBadRequest, "BODY_TOO_COMPLEX"},
		"DeepValues":            {http.MethodPost, "/a2a", strings.Repeat("[", 65), http.StatusBadRequest, "BODY_TOO_COMPLEX"},
		"ALongName":             {http.MethodPost, "/a2a/" + strings.Repeat("x", 300), get, http.StatusBadRequest, "AGENT_INVALID"},
		"NothingToGetForAnyone": {http.MethodGet, "/a2a/desk", "", http.StatusNotFound, "PATH_NOT_FOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := r.call(t, c.method, c.path, c.body, as("run")...)
			require.Equal(t, c.status, p.status, p.body)
			require.Equal(t, c.reason, p.error(t).Reason)
		})
	}
	t.Run("TextsMayHaveManyCommas", func(t *testing.T) {
		t.Parallel()
		p := r.call(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":"`+strings.Repeat(",[", 30_000)+`","method":"GetTask","params":{"id":"run_1"}}`, as("run")...)
		require.Equal(t, http.StatusOK, p.status)
	})
}
