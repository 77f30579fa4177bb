package auth_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/gateway/internal/auth"
)

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	keys := []grpckit.APIKey{
		{Name: "ci", Namespace: "team-a", Secret: conf.NewSecret("key-of-team-a-000")},
		{Name: "ops", Namespace: "team-b", Secret: conf.NewSecret("key-of-team-b-000")},
	}
	closed, err := auth.New(keys, nil, nil, false)
	require.NoError(t, err)
	open, err := auth.New(keys, nil, nil, true)
	require.NoError(t, err)
	keyless, err := auth.New(nil, nil, nil, true)
	require.NoError(t, err)
	for _, tc := range []struct {
		name      string
		ring      *auth.Keyring
		method    string
		host      string
		headers   map[string]string
		namespace string
		reason    string
	}{
		{name: "Bearer", ring: closed, headers: map[string]string{"Authorization": "Bearer key-of-team-a-000"}, namespace: "team-a"},
		{name: "BearerInAnyCase", ring: closed, headers: map[string]string{"Authorization": "bearer  key-of-team-b-000 "}, namespace: "team-b"},
		{name: "ApiKey", ring: closed, headers: map[string]string{"X-Api-Key": "key-of-team-b-000"}, namespace: "team-b"},
		{name: "BothTheSame", ring: closed, headers: map[string]string{"X-Api-Key": "key-of-team-b-000", "Authorization": "Bearer key-of-team-b-000"}, namespace: "team-b"},
		{name: "BothDifferent", ring: closed, headers: map[string]string{"X-Api-Key": "key-of-team-a-000", "Authorization": "Bearer key-of-team-b-000"}, reason: "CREDENTIALS_AMBIGUOUS"},
		{name: "Missing", ring: closed, reason: "CREDENTIALS_MISSING"},
		{name: "Wrong", ring: closed, headers: map[string]string{"X-Api-Key": "key-of-team-a-00"}, reason: "CREDENTIALS_INVALID"},
		{name: "Basic", ring: closed, headers: map[string]string{"Authorization": "Basic a2V5"}, reason: "CREDENTIALS_UNREADABLE"},
		{name: "AnonymousOnLoopback", ring: open, host: "127.0.0.1:8080", namespace: "default"},
		{name: "AnonymousOnLocalhost", ring: open, host: "localhost", namespace: "default"},
		{name: "AnonymousOnIPv6", ring: open, host: "[::1]:8080", namespace: "default"},
		{name: "AnonymousByARebindingName", ring: open, host: "evil.example:8080", reason: "HOST_NOT_LOOPBACK"},
		{name: "AnonymousCrossOriginWrite", ring: open, method: "POST", host: "localhost:8080", headers: map[string]string{"Sec-Fetch-Site": "cross-site"}, reason: "CROSS_ORIGIN"},
		{name: "AnonymousWithAWrongKey", ring: open, host: "localhost", headers: map[string]string{"X-Api-Key": "nope"}, reason: "CREDENTIALS_INVALID"},
		{name: "ForeignNamespace", ring: closed, headers: map[string]string{"X-Api-Key": "key-of-team-a-000", "X-Epigraph-Namespace": "team-b"}, reason: "NAMESPACE_DENIED"},
		{name: "AnonymousChoosesANamespace", ring: open, host: "localhost", headers: map[string]string{"X-Epigraph-Namespace": "team-c"}, namespace: "team-c"},
		{name: "AnonymousWithABadNamespace", ring: open, host: "localhost", headers: map[string]string{"X-Epigraph-Namespace": "no such"}, reason: "NAMESPACE_INVALID"},
		{name: "KeyWhereNoneIsKnown", ring: keyless, host: "localhost", headers: map[string]string{"X-Api-Key": "x"}, reason: "CREDENTIALS_INVALID"},
		{name: "AnonymousWithAKey", ring: open, host: "localhost", headers: map[string]string{"X-Api-Key": "key-of-team-a-000"}, namespace: "team-a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			method := tc.method
			if method == "" {
				method = "GET"
			}
			r := httptest.NewRequest(method, "/v1/runs", nil)
			r.Host = tc.host
			for k, v := range tc.headers {
				r.Header.Set(k, v)
			}
			id, err := tc.ring.Authenticate(r)
			require.Equal(t, tc.reason, errs.ReasonOf(err))
			require.Equal(t, tc.namespace, id.Namespace)
		})
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Epigraph-Namespace"} {
		t.Run("Repeated/"+name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "/v1/runs", nil)
			r.Header.Set("X-Api-Key", "key-of-team-a-000")
			r.Header.Set(name, map[string]string{"Authorization": "Bearer key-of-team-a-000", "X-Api-Key": "key-of-team-a-000", "X-Epigraph-Namespace": "team-a"}[name])
			_, err := closed.Authenticate(r)
			require.NoError(t, err)
			r.Header.Add(name, "Bearer key-of-team-b-000")
			_, err = closed.Authenticate(r)
			require.Equal(t, "HEADER_REPEATED", errs.ReasonOf(err))
		})
	}
}

// TestAuthenticateMadeKeys shows keys that were made by the API.
func TestAuthenticateMadeKeys(t *testing.T) {
	t.Parallel()
	secret, hash := apikey.New("team-a", "key_1")
	ring := apikey.NewRing(func(_ context.Context, k apikey.Token) (apikey.Key, bool, error) {
		return apikey.Key{Name: "made", Hash: hash, Scopes: []access.Scope{access.Read}}, k.ID == "key_1", nil
	})
	unreachable := apikey.NewRing(func(context.Context, apikey.Token) (apikey.Key, bool, error) {
		return apikey.Key{}, false, errors.New("away")
	})
	configured := []grpckit.APIKey{{Name: "ci", Namespace: "team-b", Secret: conf.NewSecret("key-of-team-b-000")}}
	unknown, _ := apikey.New("team-a", "key_2")
	for _, tc := range []struct {
		name      string
		keys      []grpckit.APIKey
		ring      grpckit.Resolver
		secret    string
		namespace string // that the request names
		want      string // the principal
		reason    string
	}{
		{name: "Opens", keys: configured, ring: ring, secret: secret, want: "key:made"},
		{name: "OpensWithoutKeysOfTheConfiguration", ring: ring, secret: secret, want: "key:made"},
		{name: "UnknownID", keys: configured, ring: ring, secret: unknown, reason: "CREDENTIALS_INVALID"},
		{name: "NoSuchKeyWhereNoneIsConfigured", ring: ring, secret: "guess", reason: "CREDENTIALS_INVALID"},
		{name: "OtherNamespace", keys: configured, ring: ring, secret: secret, namespace: "team-b", reason: "NAMESPACE_DENIED"},
		{name: "RegistryAway", keys: configured, ring: unreachable, secret: secret, reason: "KEYS_UNAVAILABLE"},
		{name: "RegistryAwayAndAKeyOfTheConfiguration", keys: configured, ring: unreachable, secret: "key-of-team-b-000", want: "key:ci"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			k, err := auth.New(tc.keys, tc.ring, nil, false)
			require.NoError(t, err)
			r := httptest.NewRequest("GET", "/v1/runs", nil)
			r.Header.Set("X-Api-Key", tc.secret)
			r.Header.Set("X-Epigraph-Namespace", tc.namespace)
			id, err := k.Authenticate(r)
			require.Equal(t, tc.reason, errs.ReasonOf(err))
			require.Equal(t, tc.want, id.Principal.String())
		})
	}
}
