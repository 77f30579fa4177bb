package cli

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReachable(t *testing.T) {
	t.Parallel()
	var own []net.Addr
	for _, a := range []string{"127.0.0.1/8", "10.0.0.7/24", "::1/128", "fe80::1/64", "2001:db8::7/64", "10.0.0.8/24", "10.0.0.9/24"} {
		ip, n, err := net.ParseCIDR(a)
		require.NoError(t, err)
		own = append(own, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	all := []string{"127.0.0.1:80", "10.0.0.7:80", "[2001:db8::7]:80", "10.0.0.8:80"}
	for addr, want := range map[string][]string{
		"0.0.0.0:80": all, "[::]:80": all, ":80": all, "127.0.0.1:80": {"127.0.0.1:80"}, "10.0.0.7:80": {"10.0.0.7:80"}, "[::1]:80": {"[::1]:80"}, "odd": {"odd"},
	} {
		require.Equal(t, want, reachable(addr, own), addr)
	}
	require.Equal(t, []string{"127.0.0.1:80"}, reachable(":80", nil))
}

func TestKeyNote(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rest, grpc, want string }{
		{"127.0.0.1:1", "[::1]:2", "not needed"}, {"[::]:1", "127.0.0.1:2", "needed for REST"}, {"127.0.0.1:1", "10.0.0.1:2", "needed for gRPC"}, {"[::]:1", "[::]:2", "needed, also"},
	} {
		require.Contains(t, keyNote(c.rest, c.grpc), c.want, "%+v", c)
	}
}
