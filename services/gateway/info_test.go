package gateway_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/gateway"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	const key = "key-of-acme-with-32-characters-00"
	r := start(t, options{config: func(c *gateway.Config) {
		c.Keys = []grpckit.APIKey{{Name: "a", Namespace: "acme", Secret: conf.NewSecret(key)}}
		c.Console.TraceURL = "https://traces.example/t/{trace_id}"
	}})
	t.Run("Links/ThoseThatAreSet", func(t *testing.T) {
		res := r.call(t, "GET", "/v1/info", "", "Authorization", "Bearer "+key)
		require.Equal(t, http.StatusOK, res.status)
		require.JSONEq(t, `{"version": "", "namespace": "acme", "links": {"trace": "https://traces.example/t/{trace_id}"}}`, res.body)
	})
	t.Run("Key/IsNeeded", func(t *testing.T) {
		require.Equal(t, "CREDENTIALS_MISSING", r.call(t, "GET", "/v1/info", "").error(t).Reason)
	})
}

func TestLinksAreValid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, template, fault string }{
		{"Good", "https://traces.example:8443/t/{trace_id}?from={from}&to={to}&run={run_id}&ns={namespace}", ""},
		{"NoScheme", "traces.example/{trace_id}", "is no address"},
		{"Script", "javascript:alert({trace_id})", "is no address"},
		{"UnknownPlace", "https://traces.example/{span}", "{span} is not known"},
		{"PlaceInHost", "https://{namespace}.example/{trace_id}", "in the name of its host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, set := range []func(*gateway.Config){func(g *gateway.Config) { g.Console.TraceURL = c.template }, func(g *gateway.Config) { g.Console.LogsURL = c.template }} {
				cfg := gateway.DefaultConfig()
				set(&cfg)
				if c.fault == "" {
					require.NoError(t, cfg.Validate())
					continue
				}
				require.ErrorContains(t, cfg.Validate(), c.fault)
			}
		})
	}
}
