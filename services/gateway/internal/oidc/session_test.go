package oidc_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
)

func secrets(texts ...string) (out []conf.Secret) {
	for _, s := range texts {
		out = append(out, conf.NewSecret(s))
	}
	return out
}

const public = "http://127.0.0.1:8080"

func withLogin(t *testing.T, i *issuer, set func(*oidc.Config)) *oidc.Users {
	t.Helper()
	cfg := i.config()
	cfg.SessionKeys = secrets(strings.Repeat("k", 32))
	if set != nil {
		set(&cfg)
	}
	require.Empty(t, cfg.Validate(public))
	u, err := oidc.New(cfg, public, false)
	require.NoError(t, err)
	return u
}

func TestLogin(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	users := withLogin(t, i, nil)
	for _, tc := range []struct{ name, query, reason string }{
		{"Root", "", ""},
		{"APage", "?return_to=/runs/run_1%3Fx=1", ""},
		{"AnotherServer", "?return_to=https://evil.example/", "RETURN_INVALID"},
		{"AnotherServerWithoutAScheme", "?return_to=//evil.example", "RETURN_INVALID"},
		{"AnotherServerByBackslashes", "?return_to=/%5Cevil.example", "RETURN_INVALID"},
		{"AnotherServerBehindATab", "?return_to=/%09/evil.example", "RETURN_INVALID"},
		{"NoPath", "?return_to=evil", "RETURN_INVALID"},
		{"AScript", "?return_to=javascript:alert(1)", "RETURN_INVALID"},
		{"TooLong", "?return_to=/" + strings.Repeat("x", 600), "RETURN_INVALID"},
		{"UnknownIssuer", "?issuer=other", "ISSUER_UNKNOWN"},
		{"UnknownParameter", "?next=/", "INVALID_QUERY"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			err := users.Login(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, public+oidc.LoginPath+tc.query, nil))
			require.Equal(t, tc.reason, errs.ReasonOf(err), "%v", err)
			if tc.reason != "" {
				require.Empty(t, w.Header().Get("Location"))
				return
			}
			require.Equal(t, http.StatusSeeOther, w.Code)
			to := w.Result().Header.Get("Location")
			require.True(t, strings.HasPrefix(to, i.URL+"/authorize?"), to)
			for _, part := range []string{"code_challenge_method=S256", "code_challenge=", "state=", "nonce=", "response_type=code", "scope=openid+"} {
				require.Contains(t, to, part)
			}
			set := w.Result().Cookies()
			require.Len(t, set, 1)
			require.True(t, set[0].HttpOnly)
			require.Equal(t, http.SameSiteLaxMode, set[0].SameSite)
		})
	}
	t.Run("NotOffered", func(t *testing.T) {
		t.Parallel()
		none, err := oidc.New(i.config(), public, false)
		require.NoError(t, err)
		err = none.Login(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, public+oidc.LoginPath, nil))
		require.Equal(t, "LOGIN_NOT_OFFERED", errs.ReasonOf(err))
		require.Empty(t, none.Offers())
	})
}

func TestCallbackRefuses(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	users := withLogin(t, i, nil)
	w := httptest.NewRecorder()
	require.NoError(t, users.Login(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, public+oidc.LoginPath, nil)))
	begun := w.Result().Cookies()[0]
	to, err := w.Result().Location()
	require.NoError(t, err)
	state := to.Query().Get("state")
	for _, tc := range []struct {
		name, query, reason string
		cookie              *http.Cookie
	}{
		{"WithoutALogin", "?state=" + state + "&code=c", "LOGIN_STATE_INVALID", nil},
		{"WithAForgedState", "?state=forged&code=c", "LOGIN_STATE_INVALID", begun},
		{"WithoutAState", "?code=c", "LOGIN_STATE_INVALID", begun},
		{"FromAnotherIssuer", "?code=c&iss=https://evil.example&state=" + state, "LOGIN_STATE_INVALID", begun},
		{"WithAForgedCookie", "?code=c&state=" + state, "LOGIN_STATE_INVALID", &http.Cookie{Name: begun.Name, Value: "AAAA" + begun.Value[4:]}},
		{"RefusedByTheIssuer", "?error=access_denied&state=" + state, "LOGIN_REFUSED", begun},
		{"WithoutACode", "?state=" + state, "LOGIN_REFUSED", begun},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, public+oidc.CallbackPath+tc.query, nil)
			if tc.cookie != nil {
				r.AddCookie(tc.cookie)
			}
			w := httptest.NewRecorder()
			_, err := users.Callback(w, r)
			require.Equal(t, tc.reason, errs.ReasonOf(err), "%v", err)
			require.Empty(t, w.Header().Get("Location"))
		})
	}
	t.Run("ALoginIsNoSession", func(t *testing.T) {
		t.Parallel()
		_, _, err := users.Session(httptest.NewRequestWithContext(t.Context(), http.MethodGet, public+"/v1/runs", nil), begun.Value)
		require.Equal(t, oidc.ReasonEnded, errs.ReasonOf(err))
	})
}

func TestCookiesOfAnEncryptedServer(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	cfg := i.config()
	cfg.SessionKeys = secrets(strings.Repeat("k", 32))
	users, err := oidc.New(cfg, "https://epigraph.example", false)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	require.NoError(t, users.Login(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, oidc.LoginPath, nil)))
	c := w.Result().Cookies()[0]
	require.True(t, c.Secure)
	require.True(t, strings.HasPrefix(c.Name, "__Host-"), c.Name)
	require.Equal(t, "/", c.Path)
}
