package egress_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestGuard(t *testing.T) {
	t.Parallel()
	closed := egress.Guard{}
	some, err := egress.NewGuard([]string{"10.1.0.0/16", "::1/128"})
	require.NoError(t, err)
	all, err := egress.NewGuard([]string{"all"})
	require.NoError(t, err)
	for _, c := range []struct {
		host               string
		closed, some, open bool
	}{
		{"example.com", true, true, true},
		{"8.8.8.8", true, true, true},
		{"2001:4860:4860::8888", true, true, true},
		{"127.0.0.1", false, false, true},
		{"10.1.2.3", false, true, true},
		{"10.2.2.3", false, false, true},
		{"::ffff:10.1.2.3", false, true, true},
		{"169.254.169.254", false, false, true},
		{"::1", false, true, true},
		{"fe80::1%eth0", false, false, true},
		{"localhost", false, true, true},
		{"LocalHost.", false, true, true},
		{"x.localhost", false, true, true},
		{"0.0.0.0", false, false, true},
		{"100.64.0.1", false, false, true},
		{"::127.0.0.1", false, false, true},
		{"::a9fe:a9fe", false, false, true},
		{"fec0::1", false, false, true},
		{"2001:0:a01:203::1", false, false, true},
	} {
		require.Equal(t, c.closed, closed.CheckHost(c.host) == nil, c.host)
		require.Equal(t, c.some, some.CheckHost(c.host) == nil, c.host)
		require.Equal(t, c.open, all.CheckHost(c.host) == nil, c.host)
	}
	_, err = egress.NewGuard([]string{"10.0.0.0/8", "private", "10.0.0.1"})
	require.ErrorContains(t, err, `"private"`)
	require.ErrorContains(t, err, `"10.0.0.1"`)
	require.Error(t, closed.Check(netip.MustParseAddr("192.168.1.1")))
}

func TestTransport(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	get := func(g egress.Guard, url string) error {
		tr := g.Transport()
		t.Cleanup(tr.CloseIdleConnections)
		resp, err := (&http.Client{Transport: tr}).Get(url)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	t.Run("Refuses/WhatIsDialed", func(t *testing.T) {
		var refusal *egress.Refusal
		require.ErrorAs(t, get(egress.Guard{}, srv.URL), &refusal)
		require.ErrorAs(t, get(egress.Guard{}, strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)), &refusal, "whatever it is called")
	})
	t.Run("Reaches/WhatIsAllowed", func(t *testing.T) {
		g, err := egress.NewGuard([]string{"127.0.0.0/8"})
		require.NoError(t, err)
		require.NoError(t, get(g, srv.URL))
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{"": 0, "x": 0, "-3": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "999999999999": time.Hour,
		"Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		require.Equal(t, want, egress.RetryAfter(in), in)
	}
	require.Equal(t, time.Hour, egress.RetryAfter(time.Now().Add(48*time.Hour).UTC().Format(http.TimeFormat)))
	soon := egress.RetryAfter(time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat))
	require.Greater(t, soon, 25*time.Second)
	require.LessOrEqual(t, soon, 30*time.Second)
}
