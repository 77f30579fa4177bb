package gateway_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// TestScopes makes one call of each scope over REST, with keys that have one scope each.
func TestScopes(t *testing.T) {
	t.Parallel()
	scopes := access.Scopes()
	r := start(t, options{config: func(c *gateway.Config) {
		for _, s := range scopes {
			c.Keys = append(c.Keys, grpckit.APIKey{Name: string(s), Namespace: "team-a", Secret: conf.NewSecret("key-with-scope-" + string(s)), Scopes: []access.Scope{s}})
		}
	}})
	r.executor.start = echoRun
	for _, tc := range []struct {
		name, method, path, body string
		// needs are the scopes of which the call needs one; text is their form in a refusal.
		needs []access.Scope
		text  string
	}{
		{"Run", http.MethodPost, "/v1/runs", `{"graph":{"nodes":[{"id":"n","actor":"a"}]}}`, []access.Scope{access.Run}, "run"},
		{"Worker", http.MethodGet, "/v1/workers", "", []access.Scope{access.Read, access.Run, access.Worker}, "read or run or worker"},
		{"Approve", http.MethodPost, "/v1/interrupts/int_1:answer", `{"answer":true}`, []access.Scope{access.Approve}, "approve"},
		{"Admin", http.MethodPatch, "/v1/limits/model/gpt", `{"concurrency":1}`, []access.Scope{access.Admin}, "admin"},
		{"DeleteLimit", http.MethodDelete, "/v1/limits/model/gpt", "", []access.Scope{access.Admin}, "admin"},
		{"CreatePrice", http.MethodPost, "/v1/prices", `{"provider":"p","model":"m"}`, []access.Scope{access.Admin}, "admin"},
	} {
		for _, has := range scopes {
			key := []string{"Authorization", "Bearer key-with-scope-" + string(has)}
			if slices.Contains(tc.needs, has) {
				t.Run(tc.name+"/OpenTo/"+string(has), func(t *testing.T) {
					t.Parallel()
					require.NotEqual(t, http.StatusForbidden, r.call(t, tc.method, tc.path, tc.body, key...).status)
				})
				continue
			}
			t.Run(tc.name+"/RefusedTo/"+string(has), func(t *testing.T) {
				t.Parallel()
				p := r.call(t, tc.method, tc.path, tc.body, key...)
				require.Equal(t, http.StatusForbidden, p.status, p.body)
				e := p.error(t)
				require.Equal(t, "SCOPE_MISSING", e.Reason)
				require.Equal(t, "PERMISSION_DENIED", e.Status)
				require.Equal(t, tc.text, e.Metadata["scope"])
				require.Contains(t, e.Message, `"`+string(has)+`"`)
				require.Contains(t, e.Hint, "scopes")
			})
		}
	}
}
