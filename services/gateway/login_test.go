package gateway_test

import (
	"context"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/oidctest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// people is a gateway at which the users of a provider log in.
type people struct {
	*rig

	provider *oidctest.Provider
}

// tell answers with who calls, as the executor was told.
func tell(ctx context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: r.GetRunId(), Namespace: grpckit.Namespace(ctx), UserId: grpckit.PrincipalOf(ctx).String()}, nil
}

func startPeople(t *testing.T) *people {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	public := "http://" + lis.Addr().String()
	p := &people{provider: oidctest.Start(t, public+"/auth/callback")}
	p.rig = start(t, options{
		config: func(c *gateway.Config) {
			c.PublicURL = public
			c.OIDC.SessionKeys = []conf.Secret{conf.NewSecret(strings.Repeat("s", 32))}
			c.OIDC.Issuers = p.issuers()
		},
		deps:   func(d *gateway.Deps) { d.Listener = lis },
		behalf: true,
	})
	p.executor.get, p.executor.start = tell, echoRun
	return p
}

// issuers are the provider alone.
func (p *people) issuers() []gateway.Issuer {
	return []gateway.Issuer{{
		URL: p.provider.URL, ClientID: oidctest.ClientID, ClientSecret: conf.NewSecret(oidctest.ClientSecret), UserClaim: "email",
		Grants: []gateway.Grant{{Group: "builders", Namespace: "team-a", Role: "operator"}, {Group: "leads", Namespace: "team-b", Role: "viewer"}},
	}}
}

// browser has a jar of cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// as has the rig call with the cookies of a browser.
func (p *people) as(b *http.Client) *rig {
	out := *p.rig
	out.client = b
	return &out
}

const startOfRun = `{"graph":{"nodes":[{"id":"n","actor":"a"}]}}`

func TestLogin(t *testing.T) {
	t.Parallel()
	p := startPeople(t)
	t.Run("InfoOffersIt", func(t *testing.T) {
		t.Parallel()
		res := p.call(t, "GET", "/v1/info", "")
		require.Equal(t, http.StatusOK, res.status)
		require.JSONEq(t, `{"login":[{"url":"/auth/login"}],"logout":"/auth/logout"}`, res.body)
	})
	t.Run("AnotherRequestNeedsCredentials", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "CREDENTIALS_MISSING", p.call(t, "GET", "/v1/runs/run_1", "").error(t).Reason)
	})
	t.Run("ASessionThatHasEndedGetsTheCardOfAStranger", func(t *testing.T) {
		t.Parallel()
		res := p.call(t, "GET", "/.well-known/agent-card.json", "", "Cookie", "epigraph_session=ended")
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.Contains(t, res.body, `"skills":[]`)
		require.Contains(t, res.header.Get("Set-Cookie"), "epigraph_session=;", "the browser forgets it")
	})
	t.Run("WithACookie", func(t *testing.T) {
		t.Parallel()
		b := browser(t)
		res, body := p.provider.Walk(t, b, p.url+"/auth/login?return_to=/v1/runs/run_1", "ada")
		require.Equal(t, http.StatusOK, res.StatusCode, body)
		require.Equal(t, "/v1/runs/run_1", res.Request.URL.Path)
		require.Contains(t, body, `"userId":"user:ada@example.com"`)
		require.Contains(t, body, `"namespace":"team-a"`)
		at, err := url.Parse(p.url)
		require.NoError(t, err)
		var names []string
		for _, c := range b.Jar.Cookies(at) { // those of the provider are among them: ports share cookies
			if strings.HasPrefix(c.Name, "epigraph_") {
				names = append(names, c.Name)
			}
		}
		require.Equal(t, []string{"epigraph_session"}, names, "the login's own cookie is gone")
		own := p.as(b)
		t.Run("Starts", func(t *testing.T) {
			require.Equal(t, http.StatusOK, own.call(t, "POST", "/v1/runs", startOfRun, "Sec-Fetch-Site", "same-origin").status)
		})
		t.Run("StartsNothingFromAnotherSite", func(t *testing.T) {
			require.Equal(t, "CROSS_ORIGIN", own.call(t, "POST", "/v1/runs", startOfRun, "Sec-Fetch-Site", "cross-site").error(t).Reason)
			require.Equal(t, "CROSS_ORIGIN", own.call(t, "POST", "/v1/runs", startOfRun, "Origin", "https://evil.example").error(t).Reason)
		})
		t.Run("MayWhatTheRoleMay", func(t *testing.T) {
			e := own.call(t, "PATCH", "/v1/limits/model/gpt", `{"concurrency":1}`).error(t)
			require.Equal(t, "SCOPE_MISSING", e.Reason)
			require.Contains(t, e.Message, `the user "ada@example.com"`)
		})
		t.Run("InfoTellsTheNamespaces", func(t *testing.T) {
			require.Contains(t, own.call(t, "GET", "/v1/info", "").body, `"namespaces":["team-a"]`)
		})
		t.Run("OtherNamespacesStayClosed", func(t *testing.T) {
			require.Equal(t, "NAMESPACE_DENIED", own.call(t, "GET", "/v1/runs/run_1", "", "X-Epigraph-Namespace", "team-b").error(t).Reason)
		})
		t.Run("OpensASocketFromAPageOfTheServerAlone", func(t *testing.T) {
			require.NoError(t, own.socket(t, p.url))
			require.Error(t, own.socket(t, "https://evil.example"))
		})
		t.Run("EndsWithTheLogout", func(t *testing.T) {
			require.Equal(t, "CROSS_ORIGIN", own.call(t, "POST", "/auth/logout", "", "Sec-Fetch-Site", "cross-site").error(t).Reason)
			require.Equal(t, http.StatusNoContent, own.call(t, "POST", "/auth/logout", "", "Sec-Fetch-Site", "same-origin").status)
			require.Equal(t, "CREDENTIALS_MISSING", own.call(t, "GET", "/v1/runs/run_1", "").error(t).Reason)
		})
	})
	t.Run("WithoutARole", func(t *testing.T) {
		t.Parallel()
		res, body := p.provider.Walk(t, browser(t), p.url+"/auth/login", "eve")
		require.Equal(t, http.StatusForbidden, res.StatusCode)
		require.Contains(t, body, "USER_WITHOUT_ROLE")
	})
	t.Run("WithACodeThatWasShown", func(t *testing.T) {
		t.Parallel()
		b := browser(t)
		var back *http.Request
		var pending []*http.Cookie
		b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if r.URL.Path == "/auth/callback" {
				back, pending = r, b.Jar.Cookies(r.URL)
			}
			return nil
		}
		_, body := p.provider.Walk(t, b, p.url+"/auth/login?return_to=/v1/runs/run_1", "ada")
		require.Contains(t, body, "user:ada@example.com")
		require.NotEmpty(t, pending)
		again := browser(t)
		again.Jar.SetCookies(back.URL, pending) // as it was before the code was shown
		res := p.as(again).call(t, "GET", back.URL.RequestURI(), "")
		require.Equal(t, "LOGIN_REFUSED", res.error(t).Reason)
	})
	t.Run("WithAForgedState", func(t *testing.T) {
		t.Parallel()
		b := browser(t)
		b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		require.Equal(t, http.StatusSeeOther, p.as(b).call(t, "GET", "/auth/login", "").status)
		require.Equal(t, "LOGIN_STATE_INVALID", p.as(b).call(t, "GET", "/auth/callback?code=c&state=forged", "").error(t).Reason)
	})
}

// socket opens a WebSocket with the cookies of the client, as a page of an origin does. It fails if the
// server closes it at once.
func (r *rig) socket(t *testing.T, origin string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, r.url+"/v1/live", &websocket.DialOptions{HTTPClient: r.client, HTTPHeader: http.Header{"Origin": {origin}}})
	if res != nil && res.Body != nil {
		_ = res.Body.Close() // nothing of it is read
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }() // the test is over
	_, _, err = conn.Read(ctx)
	if websocket.CloseStatus(err) == -1 && ctx.Err() != nil {
		return nil // it stays open and has nothing to say
	}
	return err
}

func TestTokens(t *testing.T) {
	t.Parallel()
	p := startPeople(t)
	token := func(others map[string]any) string {
		claims := map[string]any{"aud": oidctest.ClientID, "sub": "ada", "email": "ada@example.com", "groups": []string{"builders"}, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
		for k, v := range others {
			claims[k] = v
		}
		return p.provider.Sign(t, claims)
	}
	get := func(token string) reply {
		return p.call(t, "GET", "/v1/runs/run_1", "", "Authorization", "Bearer "+token)
	}
	t.Run("REST", func(t *testing.T) {
		require.Contains(t, get(token(nil)).body, `"userId":"user:ada@example.com"`)
	})
	t.Run("GRPC", func(t *testing.T) {
		run, err := p.grpc(token(nil), nil).GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "run_1"})
		require.NoError(t, err)
		require.Equal(t, []string{"user:ada@example.com", "team-a"}, []string{run.GetUserId(), run.GetNamespace()})
		_, err = p.grpc(token(map[string]any{"aud": "mail"}), nil).GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "run_1"})
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	})
	t.Run("MCP", func(t *testing.T) {
		const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
		head := []string{"Accept", "application/json, text/event-stream", "Authorization"}
		require.Equal(t, http.StatusOK, p.call(t, "POST", "/mcp", list, append(head, "Bearer "+token(nil))...).status)
		require.Equal(t, http.StatusUnauthorized, p.call(t, "POST", "/mcp", list, append(head, "Bearer "+token(map[string]any{"aud": "mail"}))...).status)
	})
	t.Run("WrongAudience", func(t *testing.T) {
		require.Equal(t, "CREDENTIALS_INVALID", get(token(map[string]any{"aud": "mail"})).error(t).Reason)
	})
	t.Run("Expired", func(t *testing.T) {
		e := get(token(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})).error(t)
		require.Equal(t, "CREDENTIALS_INVALID", e.Reason)
		require.Contains(t, e.Message, "expired")
	})
	t.Run("WithoutASignature", func(t *testing.T) {
		parts := strings.Split(token(nil), ".")
		require.Equal(t, "CREDENTIALS_INVALID", get("eyJhbGciOiJub25lIn0."+parts[1]+".").error(t).Reason)
	})
	t.Run("OfARotatedKey", func(t *testing.T) {
		old := token(nil)
		require.Equal(t, http.StatusOK, get(old).status)
		p.provider.Rotate(t)
		testkit.Eventually(t, func() bool { return get(token(nil)).status == http.StatusOK }, "the new key is not fetched")
		require.Equal(t, "CREDENTIALS_INVALID", get(old).error(t).Reason)
	})
}
