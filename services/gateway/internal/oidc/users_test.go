package oidc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
)

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	other := newIssuer(t)
	users, err := oidc.New(i.config(), "", false)
	require.NoError(t, err)
	for _, tc := range []struct {
		name, token, reason, text string
		user                      string
		scopes                    []access.Scope
	}{
		{name: "Good", token: i.token(t, nil), user: "user:ada", scopes: []access.Scope{access.Run}},
		{name: "AudienceAmongSeveral", token: i.token(t, map[string]any{"aud": []string{"x", clientID}}), user: "user:ada", scopes: []access.Scope{access.Run}},
		{name: "SeveralRoles", token: i.token(t, map[string]any{"groups": []string{"leads", "builders", "else"}}), user: "user:ada", scopes: []access.Scope{access.Run, access.Approve}},
		{name: "ExpiredWithinTheSkew", token: i.token(t, map[string]any{"exp": time.Now().Add(-30 * time.Second).Unix()}), user: "user:ada", scopes: []access.Scope{access.Run}},
		{name: "Expired", token: i.token(t, map[string]any{"exp": time.Now().Add(-2 * time.Minute).Unix()}), reason: "CREDENTIALS_INVALID", text: "expired"},
		{name: "WithoutAnEnd", token: i.token(t, map[string]any{"exp": nil}), reason: "CREDENTIALS_INVALID", text: "expired"},
		{name: "NotYet", token: i.token(t, map[string]any{"nbf": time.Now().Add(2 * time.Minute).Unix()}), reason: "CREDENTIALS_INVALID", text: "not valid yet"},
		{name: "FromTheFuture", token: i.token(t, map[string]any{"iat": time.Now().Add(2 * time.Minute).Unix()}), reason: "CREDENTIALS_INVALID", text: "not valid yet"},
		{name: "ForOthers", token: i.token(t, map[string]any{"aud": "mail"}), reason: "CREDENTIALS_INVALID", text: "audience"},
		{name: "ForNobody", token: i.token(t, map[string]any{"aud": nil}), reason: "CREDENTIALS_INVALID", text: "audience"},
		{name: "UnknownIssuer", token: other.token(t, nil), reason: "CREDENTIALS_INVALID", text: "not accepted here"},
		{name: "SignedByAnother", token: sign(t, jose.ES256, other.key(), i.claims(nil)), reason: "CREDENTIALS_INVALID", text: "signature"},
		{name: "SignedByNobody", token: unsigned(t, i.claims(nil)), reason: "CREDENTIALS_INVALID", text: "signature"},
		{name: "SignedWithASecret", token: sign(t, jose.HS256, []byte(strings.Repeat("k", 32)), i.claims(nil)), reason: "CREDENTIALS_INVALID", text: "algorithm"},
		{name: "Altered", token: alter(i.token(t, nil)), reason: "CREDENTIALS_INVALID", text: "signature"},
		{name: "NoJSON", token: "eyJx.eyJx.x", reason: "CREDENTIALS_INVALID", text: "cannot be read"},
		{name: "TooLong", token: i.token(t, map[string]any{"x": strings.Repeat("x", 20_000)}), reason: "CREDENTIALS_INVALID", text: "bytes"},
		{name: "OfALogout", token: i.token(t, map[string]any{"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}), reason: "CREDENTIALS_INVALID", text: "none of a user"},
		{name: "NameWithControlCharacters", token: i.token(t, map[string]any{"sub": "ada\nadmin"}), reason: "CREDENTIALS_INVALID", text: "printable"},
		{name: "NoGroup", token: i.token(t, map[string]any{"groups": nil}), reason: "USER_WITHOUT_ROLE"},
		{name: "UnknownGroup", token: i.token(t, map[string]any{"groups": []string{"cooks"}}), reason: "USER_WITHOUT_ROLE"},
		{name: "GroupOfEveryoneIsNoClaim", token: i.token(t, map[string]any{"groups": []string{"*"}}), reason: "USER_WITHOUT_ROLE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.True(t, users.Token(tc.token))
			u, err := users.Authenticate(t.Context(), tc.token)
			require.Equal(t, tc.reason, errs.ReasonOf(err), "%v", err)
			if tc.reason != "" {
				require.ErrorContains(t, err, tc.text)
				return
			}
			p, namespace, err := u.In("team-a")
			require.NoError(t, err)
			require.Equal(t, []any{tc.user, "team-a", tc.scopes}, []any{p.String(), namespace, p.Scopes})
		})
	}
}

// alter changes the claims of a token and leaves its signature.
func alter(token string) string {
	parts := strings.Split(token, ".")
	other := "A"
	if strings.HasSuffix(parts[2], other) {
		other = "Q"
	}
	parts[2] = other + parts[2][1:]
	return strings.Join(parts, ".")
}

func TestNamespaceOfAUser(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	users, err := oidc.New(i.config(), "", false)
	require.NoError(t, err)
	one, err := users.Authenticate(t.Context(), i.token(t, nil))
	require.NoError(t, err)
	two, err := users.Authenticate(t.Context(), i.token(t, map[string]any{"groups": "leads"}))
	require.NoError(t, err)
	for _, tc := range []struct {
		name, asked, want, reason string
		user                      oidc.User
	}{
		{"TheOnlyOne", "", "team-a", "", one},
		{"TheOneThatIsAskedFor", "team-b", "team-b", "", two},
		{"OneOfSeveralIsNotGuessed", "", "", "NAMESPACE_REQUIRED", two},
		{"Foreign", "team-b", "", "NAMESPACE_DENIED", one},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, got, err := tc.user.In(tc.asked)
			require.Equal(t, tc.reason, errs.ReasonOf(err))
			require.Equal(t, tc.want, got)
		})
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	for _, tc := range []struct {
		name   string
		set    func(*oidc.Issuer)
		claims map[string]any
		user   string
		text   string
	}{
		{"Email", func(c *oidc.Issuer) { c.UserClaim = "email" }, map[string]any{"email": "ada@example.com", "email_verified": true}, "user:ada@example.com", ""},
		{"EmailOfWhichNothingIsSaid", func(c *oidc.Issuer) { c.UserClaim = "email" }, map[string]any{"email": "ada@example.com"}, "user:ada@example.com", ""},
		{"EmailThatIsNotVerified", func(c *oidc.Issuer) { c.UserClaim = "email" }, map[string]any{"email": "ada@example.com", "email_verified": "false"}, "", "not verified"},
		{"Missing", func(c *oidc.Issuer) { c.UserClaim = "email" }, nil, "", `"email"`},
		{"NameOfTheIssuer", func(c *oidc.Issuer) { c.Name = "corp" }, nil, "user:corp/ada", ""},
		{"NestedGroups", func(c *oidc.Issuer) { c.GroupsClaim = "realm_access.roles" }, map[string]any{"groups": nil, "realm_access": map[string]any{"roles": []string{"builders"}}}, "user:ada", ""},
		{"GroupsByAClaimWithDots", func(c *oidc.Issuer) { c.GroupsClaim = "https://example.com/groups" }, map[string]any{"groups": nil, "https://example.com/groups": []string{"builders"}}, "user:ada", ""},
		{"Everyone", func(c *oidc.Issuer) { c.Grants = []oidc.Grant{{Group: "*", Namespace: "team-a", Role: "viewer"}} }, map[string]any{"groups": nil}, "user:ada", ""},
		{"AnotherAudience", func(c *oidc.Issuer) { c.Audiences = []string{"api"} }, map[string]any{"aud": "api"}, "user:ada", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := i.config()
			tc.set(&cfg.Issuers[0])
			users, err := oidc.New(cfg, "", false)
			require.NoError(t, err)
			u, err := users.Authenticate(t.Context(), i.token(t, tc.claims))
			if tc.text != "" {
				require.ErrorContains(t, err, tc.text)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.user, "user:"+u.Name)
		})
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	t.Run("AreFetchedOnce", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		users, err := oidc.New(i.config(), "", false)
		require.NoError(t, err)
		for range 10 {
			_, err := users.Authenticate(t.Context(), i.token(t, nil))
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, i.fetches.Load())
	})
	t.Run("UnknownOnesCauseFewFetches", func(t *testing.T) {
		t.Parallel()
		i, other := newIssuer(t), newIssuer(t)
		users, err := oidc.New(i.config(), "", false)
		require.NoError(t, err)
		other.rotate(t, "unknown")
		began := time.Now()
		for range 100 {
			_, err := users.Authenticate(t.Context(), sign(t, jose.ES256, other.key(), i.claims(nil)))
			require.Error(t, err)
		}
		require.LessOrEqual(t, i.fetches.Load(), 2+int64(time.Since(began)/time.Second))
	})
	t.Run("RotatedOnesAreFetched", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		users, err := oidc.New(i.config(), "", false)
		require.NoError(t, err)
		old := i.token(t, nil)
		_, err = users.Authenticate(t.Context(), old)
		require.NoError(t, err)
		i.rotate(t, "second")
		testkit.Eventually(t, func() bool {
			_, err := users.Authenticate(t.Context(), i.token(t, nil))
			return err == nil
		})
		_, err = users.Authenticate(t.Context(), old)
		require.Equal(t, "CREDENTIALS_INVALID", errs.ReasonOf(err), "the issuer has withdrawn its key")
	})
	t.Run("KnownOnesHoldWhileTheIssuerFails", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		users, err := oidc.New(i.config(), "", false)
		require.NoError(t, err)
		_, err = users.Authenticate(t.Context(), i.token(t, nil))
		require.NoError(t, err)
		i.failing.Store(true)
		_, err = users.Authenticate(t.Context(), i.token(t, nil))
		require.NoError(t, err)
	})
	t.Run("NobodyIsRefusedForAnIssuerThatFails", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		i.failing.Store(true)
		users, err := oidc.New(i.config(), "", false)
		require.NoError(t, err)
		for range 3 {
			_, err = users.Authenticate(t.Context(), i.token(t, nil))
			require.Equal(t, oidc.ReasonAway, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.Unavailable))
		}
		require.LessOrEqual(t, i.fetches.Load(), int64(2))
	})
	t.Run("TooLongAnAnswerIsNotRead", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		i.extra = `,"x":"` + strings.Repeat("x", 300<<10) + `"`
		users, err := oidc.New(i.config(), "", false)
		require.NoError(t, err)
		_, err = users.Authenticate(t.Context(), i.token(t, nil))
		require.Equal(t, oidc.ReasonAway, errs.ReasonOf(err))
	})
}

func TestWeakKeys(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.keys = []jose.JSONWebKey{{Key: weakKey(t), KeyID: "weak", Algorithm: "RS256", Use: "sig"}}
	users, err := oidc.New(i.config(), "", false)
	require.NoError(t, err)
	_, err = users.Authenticate(t.Context(), sign(t, jose.RS256, i.key(), i.claims(nil)))
	require.Equal(t, oidc.ReasonAway, errs.ReasonOf(err), "keys that are too short are none")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := oidc.Issuer{URL: "https://id.example/realm", ClientID: "c", Grants: []oidc.Grant{{Group: "g", Namespace: "n", Role: "viewer"}}}
	for _, tc := range []struct {
		name, fault string
		set         func(*oidc.Config)
	}{
		{"Good", "", func(*oidc.Config) {}},
		{"PlainTextOnThisMachine", "", func(c *oidc.Config) { c.Issuers[0].URL = "http://127.0.0.1:9000" }},
		{"PlainText", "not https", func(c *oidc.Config) { c.Issuers[0].URL = "http://id.example" }},
		{"NoAddress", "no address", func(c *oidc.Config) { c.Issuers[0].URL = "id.example" }},
		{"NoAudience", "client_id or audiences", func(c *oidc.Config) { c.Issuers[0].ClientID = "" }},
		{"NoGrant", "grants", func(c *oidc.Config) { c.Issuers[0].Grants = nil }},
		{"UnknownRole", "viewer, operator, approver or admin", func(c *oidc.Config) {
			c.Issuers[0].Grants = []oidc.Grant{{Group: "g", Namespace: "n", Role: "root"}}
		}},
		{"SeveralWithoutNames", "needs a name", func(c *oidc.Config) {
			other := good
			other.URL = "https://other.example"
			c.Issuers = append(c.Issuers, other)
		}},
		{"ShortKey", "fewer than 32", func(c *oidc.Config) { c.SessionKeys = secrets("short") }},
		{"IdleBeyondTheLifetime", "session_lifetime", func(c *oidc.Config) { c.SessionLifetime = time.Minute }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := oidc.DefaultConfig()
			c.Issuers = []oidc.Issuer{good}
			tc.set(&c)
			var texts []string
			for _, f := range c.Validate("https://epigraph.example") {
				texts = append(texts, f.Error())
			}
			if tc.fault == "" {
				require.Empty(t, texts)
				return
			}
			require.Contains(t, strings.Join(texts, "\n"), tc.fault)
		})
	}
	t.Run("LoginWithoutAPublicURL", func(t *testing.T) {
		c := oidc.DefaultConfig()
		c.Issuers, c.SessionKeys = []oidc.Issuer{good}, secrets(strings.Repeat("k", 32))
		require.ErrorContains(t, c.Validate("")[0], "public_url")
	})
}
