package oidc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const clientID = "epigraph"

// issuer is an OpenID provider that has a description, keys and nothing else.
type issuer struct {
	*httptest.Server

	mu      sync.Mutex
	keys    []jose.JSONWebKey // with their private parts
	extra   string            // of the answer with the keys
	failing atomic.Bool
	fetches atomic.Int64
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.rotate(t, "first")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
			"token_endpoint": i.URL + "/token", "id_token_signing_alg_values_supported": []string{"none", "HS256", "ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		if i.failing.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		set := jose.JSONWebKeySet{}
		for _, k := range i.keys {
			set.Keys = append(set.Keys, k.Public())
		}
		b, _ := json.Marshal(set)
		_, _ = w.Write([]byte(strings.TrimSuffix(string(b), "}") + i.extra + "}"))
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		i.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return i
}

// rotate replaces the keys by a new one.
func (i *issuer) rotate(t *testing.T, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []jose.JSONWebKey{{Key: key, KeyID: id, Algorithm: "ES256", Use: "sig"}}
}

func (i *issuer) key() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// claims are those of a good token, with some others.
func (i *issuer) claims(others map[string]any) map[string]any {
	out := map[string]any{"iss": i.URL, "aud": clientID, "sub": "ada", "groups": []string{"builders"}, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(out, others)
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	require.NoError(t, err)
	b, err := json.Marshal(claims)
	require.NoError(t, err)
	j, err := s.Sign(b)
	require.NoError(t, err)
	text, err := j.CompactSerialize()
	require.NoError(t, err)
	return text
}

func (i *issuer) token(t *testing.T, others map[string]any) string {
	t.Helper()
	return sign(t, jose.ES256, i.key(), i.claims(others))
}

func (i *issuer) config() oidc.Config {
	c := oidc.DefaultConfig()
	c.Issuers = []oidc.Issuer{{URL: i.URL, ClientID: clientID, Grants: []oidc.Grant{
		{Group: "builders", Namespace: "team-a", Role: "operator"},
		{Group: "leads", Namespace: "team-a", Role: "approver"},
		{Group: "leads", Namespace: "team-b", Role: "viewer"},
	}}}
	return c
}

// unsigned is a token whose header says that it has no signature.
func unsigned(t *testing.T, claims map[string]any) string {
	t.Helper()
	b, err := json.Marshal(claims)
	require.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(b) + "."
}

func weakKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	return k
}
