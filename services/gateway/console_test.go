package gateway_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// TestConsole asks a gateway that needs keys for the pages of the console, which need none.
func TestConsole(t *testing.T) {
	t.Parallel()
	r := start(t, options{config: func(c *gateway.Config) {
		c.Keys = []grpckit.APIKey{{Name: "a", Namespace: "acme", Secret: conf.NewSecret("key-of-acme-with-32-characters-00")}}
	}})
	t.Run("Page/NeedsNoKey", func(t *testing.T) {
		for _, path := range []string{"/", "/runs", "/runs/run_1"} {
			res := r.call(t, "GET", path, "", "Accept", "text/html")
			require.Equal(t, http.StatusOK, res.status)
			require.Contains(t, res.body, `<div id="root">`)
			require.NotEmpty(t, res.header.Get("Content-Security-Policy"))
			require.NotEmpty(t, res.header.Get("X-Request-Id"))
		}
	})
	t.Run("Head/HasNoBody", func(t *testing.T) {
		res := r.call(t, "HEAD", "/", "")
		require.Equal(t, http.StatusOK, res.status)
		require.Empty(t, res.body)
	})
	t.Run("API/KeepsItsErrors", func(t *testing.T) {
		require.Equal(t, "PATH_NOT_FOUND", r.call(t, "GET", "/v1/rnus", "", "Accept", "text/html").error(t).Reason)
		require.Equal(t, "PATH_NOT_FOUND", r.call(t, "GET", "/nowhere", "").error(t).Reason)
		require.Equal(t, "CREDENTIALS_MISSING", r.call(t, "GET", "/v1/runs", "", "Accept", "text/html").error(t).Reason)
	})
}
