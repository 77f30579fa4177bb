package oidc

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
)

const internalURL = "http://127.0.0.1:8080"

func sessionUsers(t *testing.T, keys ...string) *Users {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Issuers = []Issuer{{URL: "https://id.example", ClientID: "c", Grants: []Grant{{Group: "g", Namespace: "team-a", Role: "operator"}, {Group: "h", Namespace: "team-b", Role: "viewer"}}}}
	for _, k := range keys {
		cfg.SessionKeys = append(cfg.SessionKeys, conf.NewSecret(strings.Repeat(k, 32)))
	}
	require.Empty(t, cfg.Validate(internalURL))
	u, err := New(cfg, internalURL, false)
	require.NoError(t, err)
	return u
}

// begin seals the session of somebody who logs in now.
func begin(t *testing.T, u *Users, groups ...string) string {
	t.Helper()
	text, err := u.seals.seal(forSession, session{Issuer: "https://id.example", Name: "ada", Groups: groups, Namespace: "team-a", Began: time.Now().Unix(), Seen: time.Now().Unix()})
	require.NoError(t, err)
	return text
}

func show(t *testing.T, u *Users, method, text string, headers ...string) (User, *http.Cookie, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, internalURL+"/v1/runs", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return u.Session(r, text)
}

func TestSession(t *testing.T) {
	t.Parallel()
	t.Run("TellsWho", func(t *testing.T) {
		t.Parallel()
		u := sessionUsers(t, "k")
		who, cookie, err := show(t, u, http.MethodGet, begin(t, u, "g"))
		require.NoError(t, err)
		require.Nil(t, cookie)
		p, namespace, err := who.In("")
		require.NoError(t, err)
		require.Equal(t, []string{"user:ada", "team-a"}, []string{p.String(), namespace})
	})
	t.Run("OpensAtAnotherReplica", func(t *testing.T) {
		t.Parallel()
		_, _, err := show(t, sessionUsers(t, "k"), http.MethodGet, begin(t, sessionUsers(t, "k"), "g"))
		require.NoError(t, err)
	})
	t.Run("OpensWithAnOlderKey", func(t *testing.T) {
		t.Parallel()
		_, _, err := show(t, sessionUsers(t, "n", "k"), http.MethodGet, begin(t, sessionUsers(t, "k"), "g"))
		require.NoError(t, err)
	})
	for name, text := range map[string]string{
		"SealedWithAnotherKey": begin(t, sessionUsers(t, "x"), "g"),
		"NoSeal":               "bm9uZQ",
		"TooLong":              strings.Repeat("A", 5000),
	} {
		t.Run(name+"/IsRefusedAndForgotten", func(t *testing.T) {
			t.Parallel()
			_, cookie, err := show(t, sessionUsers(t, "k"), http.MethodGet, text)
			require.Equal(t, ReasonEnded, errs.ReasonOf(err))
			require.NotNil(t, cookie)
			require.Negative(t, cookie.MaxAge)
		})
	}
	t.Run("RolesAreThoseOfNow", func(t *testing.T) {
		t.Parallel()
		u := sessionUsers(t, "k")
		text := begin(t, u, "g")
		u.providers[0].issuer.Grants = u.providers[0].issuer.Grants[1:]
		_, _, err := show(t, u, http.MethodGet, text)
		require.Equal(t, "USER_WITHOUT_ROLE", errs.ReasonOf(err))
	})
}

func TestSessionTimes(t *testing.T) {
	t.Parallel()
	t.Run("EndsWithoutRequests", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			u := sessionUsers(t, "k")
			text := begin(t, u, "g")
			time.Sleep(59 * time.Minute) //nolint:forbidigo // fake time
			_, _, err := show(t, u, http.MethodGet, text)
			require.NoError(t, err)
			time.Sleep(2 * time.Minute) //nolint:forbidigo // fake time
			_, _, err = show(t, u, http.MethodGet, text)
			require.Equal(t, ReasonEnded, errs.ReasonOf(err))
		})
	})
	t.Run("IsRenewedByRequestsUntilItsEnd", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			u := sessionUsers(t, "k")
			text, renewals := begin(t, u, "g"), 0
			began := time.Now()
			for {
				_, cookie, err := show(t, u, http.MethodGet, text)
				if err != nil {
					require.Equal(t, ReasonEnded, errs.ReasonOf(err))
					break
				}
				if cookie != nil {
					text = cookie.Value
					renewals++
				}
				time.Sleep(10 * time.Minute) //nolint:forbidigo // fake time
			}
			require.Equal(t, 12*time.Hour, time.Since(began))
			require.Equal(t, 35, renewals, "at every second request, after a quarter of the idle time")
		})
	})
}

func TestSessionOrigins(t *testing.T) {
	t.Parallel()
	u := sessionUsers(t, "k")
	text := begin(t, u, "g")
	for _, tc := range []struct {
		name, method, reason string
		headers              []string
	}{
		{"ReadFromAnotherSite", http.MethodGet, "", []string{"Sec-Fetch-Site", "cross-site"}},
		{"WriteFromAnotherSite", http.MethodPost, "CROSS_ORIGIN", []string{"Sec-Fetch-Site", "cross-site"}},
		{"WriteFromASiblingHost", http.MethodPost, "CROSS_ORIGIN", []string{"Sec-Fetch-Site", "same-site"}},
		{"WriteWithAnotherOrigin", http.MethodDelete, "CROSS_ORIGIN", []string{"Origin", "https://evil.example"}},
		{"WriteFromAPageOfTheServer", http.MethodPost, "", []string{"Sec-Fetch-Site", "same-origin"}},
		{"WriteWithTheOriginOfTheServer", http.MethodPost, "", []string{"Origin", internalURL}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := show(t, u, tc.method, text, tc.headers...)
			require.Equal(t, tc.reason, errs.ReasonOf(err))
		})
	}
}
