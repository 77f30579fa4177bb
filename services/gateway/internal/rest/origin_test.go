package rest

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProxies(t *testing.T) {
	t.Parallel()
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, tt := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"Plain", "192.0.2.1:99", nil, "192.0.2.1"},
		{"Lie/OfWhoIsNoProxy", "192.0.2.1:99", []string{"203.0.113.5"}, "192.0.2.1"},
		{"Proxy/NamesTheCaller", "10.1.1.1:99", []string{"203.0.113.5"}, "203.0.113.5"},
		{"Proxy/WithoutAHeader", "10.1.1.1:99", nil, "10.1.1.1"},
		{"Proxies/Several", "10.1.1.1:99", []string{"203.0.113.5, 10.2.2.2"}, "203.0.113.5"},
		{"Proxies/WithAHeaderEach", "[fd00::1]:99", []string{"203.0.113.5", "10.2.2.2"}, "203.0.113.5"},
		{"Lie/BeforeTheProxy", "10.1.1.1:99", []string{"198.51.100.1, 203.0.113.5"}, "203.0.113.5"},
		{"Proxy/SaysNoAddress", "10.1.1.1:99", []string{"203.0.113.5, unknown"}, "10.1.1.1"},
		{"Mapped", "10.1.1.1:99", []string{"::ffff:203.0.113.5"}, "203.0.113.5"},
		{"Long/IsNotReadToItsEnd", "10.1.1.1:99", []string{"203.0.113.5" + strings.Repeat(",10.2.2.2", 1000)}, "10.2.2.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &http.Request{RemoteAddr: tt.remote, Header: http.Header{}}
			for _, f := range tt.forwarded {
				r.Header.Add("X-Forwarded-For", f)
			}
			require.Equal(t, tt.want, proxies.Remote(r))
		})
	}
	t.Run("None/NobodyIsBelieved", func(t *testing.T) {
		t.Parallel()
		r := &http.Request{RemoteAddr: "10.1.1.1:99", Header: http.Header{"X-Forwarded-For": {"203.0.113.5"}}}
		require.Equal(t, "10.1.1.1", Proxies(nil).Remote(r))
	})
}
