// Package oidctest is an OpenID provider for tests, npm's oidc-provider, which
// scripts/ensure-mcp-servers installs. It must not know what is tested.
package oidctest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// The client that the provider knows.
const (
	ClientID     = "epigraph"
	ClientSecret = "secret-of-the-client-at-the-provider"
)

// Provider is an OpenID provider that runs until its test ends. Its users are ada of the groups
// builders and others, bob of the group leads, and eve of none.
type Provider struct{ URL string }

// Start starts a provider that sends browsers back to one address. Where it is not installed the
// test is skipped, or fails with TESTS_NO_SKIPS=1.
func Start(t testing.TB, redirect string) *Provider {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	modules := filepath.Join(filepath.Dir(here), "../../../bin/mcp/node_modules")
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, "oidc-provider/package.json"))
	}
	if err != nil && os.Getenv("TESTS_NO_SKIPS") == "" {
		t.Skip("the npm package oidc-provider is not installed: run scripts/ensure-mcp-servers, which needs npm and its registry")
	}
	require.NoError(t, err, "run scripts/ensure-mcp-servers")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	cmd := exec.Command(node, filepath.Join(filepath.Dir(here), "provider.mjs"))
	cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", port), "MODULES="+modules, "REDIRECT="+redirect, "NODE_ENV=test")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	p := &Provider{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
	testkit.Eventually(t, func() bool {
		resp, err := http.Get(p.URL + "/.well-known/openid-configuration")
		if err == nil {
			_ = resp.Body.Close() // nothing of it is read
		}
		return err == nil
	}, "the provider does not listen")
	return p
}

// Rotate replaces the key of the provider.
func (p *Provider) Rotate(t testing.TB) { p.post(t, "/test/rotate", "") }

// Sign signs claims with the key of the provider. The issuer is added.
func (p *Provider) Sign(t testing.TB, claims map[string]any) string {
	b, err := json.Marshal(claims)
	require.NoError(t, err)
	return p.post(t, "/test/sign", string(b))
}

func (p *Provider) post(t testing.TB, path, body string) string {
	t.Helper()
	resp, err := http.Post(p.URL+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }() // it was read
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

var (
	action = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	prompt = regexp.MustCompile(`name="prompt" value="([a-z]+)"`)
)

// Walk begins at an address that leads to the provider, fills its forms in as a user does, and
// returns the answer that the browser comes to in the end, with its body. The client needs a jar of
// cookies.
func (p *Provider) Walk(t testing.TB, client *http.Client, start, user string) (*http.Response, string) {
	t.Helper()
	resp, body := read(t)(client.Get(start))
	for range 4 {
		form, kind := action.FindStringSubmatch(body), prompt.FindStringSubmatch(body)
		if form == nil || kind == nil {
			break
		}
		to, err := resp.Request.URL.Parse(strings.ReplaceAll(form[1], "&amp;", "&"))
		require.NoError(t, err)
		resp, body = read(t)(client.PostForm(to.String(), url.Values{"prompt": {kind[1]}, "login": {user}, "password": {"any"}}))
	}
	return resp, body
}

func read(t testing.TB) func(*http.Response, error) (*http.Response, string) {
	return func(resp *http.Response, err error) (*http.Response, string) {
		t.Helper()
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }() // it was read
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp, string(b)
	}
}
