package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

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
		{"fe80::1%eth0", false, false, false},
		{"localhost", false, true, true},
		{"LocalHost.", false, true, true},
		{"x.localhost", false, true, true},
		{"0.0.0.0", false, false, true},
		{"100.64.0.1", false, false, true},
		{"::127.0.0.1", false, false, true},
		{"::a9fe:a9fe", false, false, true},
		{"fec0::1", false, false, true},
		{"2001:0:a01:203::1", false, false, true},
		{"::ffff:0:127.0.0.1", false, false, true},
		{"[::ffff:0:a00:1]", false, false, true},
		{"64:ff9b::10.0.0.1", false, false, true},
		{"64:ff9b:1::a00:1", false, false, true},
		{"2002:a00:1::", false, false, true},
		{"2607:f8b0::5efe:10.0.0.1", false, false, true},
		{"2607:f8b0::200:5efe:a00:1", false, false, true},
		{"192.88.99.1", false, false, true},
		{"3fff::1", false, false, true},
		{"5f00::1", false, false, true},
		{"127.0.0.1.", false, false, true},
		{"8.8.8.8.", true, true, true},
		{"2607:f8b0:4005:805::200e", true, true, true},
		{"xn--bcher-kva.example", true, true, true},
		{"bücher.example", true, true, true},
		{"a_b.example", true, true, true},
	} {
		require.Equal(t, c.closed, closed.CheckHost(c.host) == nil, c.host)
		require.Equal(t, c.some, some.CheckHost(c.host) == nil, c.host)
		require.Equal(t, c.open, all.CheckHost(c.host) == nil, c.host)
	}
	for _, odd := range []string{
		"2130706433", "0x7f000001", "0X7F.1", "0x", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01", "0x8.8.8.8", "8.8.8.0x8", "1.2.3.4.5", "256.1.1.1", "example.1", "2130706433.",
		"１２７.0.0.1", "127。0。0。1", "127.0.0.1。", "①②⑦.0.0.1", "::1%lo", "fe80::1%25eth0", "2607:f8b0::1%eth0", "::ffff:0x7f.0.0.1", "[::1", "1::2::3", "a\u202eb.example",
		"", ".", "..", "example..com", ".example.com",
	} {
		for _, g := range []egress.Guard{closed, all} {
			if g.CheckHost("127.0.0.1") == nil && (odd == "127.0.0.1。" || odd == "１２７.0.0.1" || odd == "127。0。0。1" || odd == "①②⑦.0.0.1" || odd == "[::1") {
				continue // they are read as what they mean, which all lets through
			}
			require.Error(t, g.CheckHost(odd), odd)
		}
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

// TestWords holds errors of the network against their texts: none may name an address of ours.
func TestWords(t *testing.T) {
	t.Parallel()
	inner := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 443}
	dial := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://x/?key=s3cret", Err: &net.OpError{Op: "dial", Net: "tcp", Source: inner, Addr: inner, Err: err}}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{dial(&net.DNSError{Err: "no such host", Name: "x.svc.cluster.local", Server: "10.0.0.10:53", IsNotFound: true}), "no host of that name"},
		{dial(&net.DNSError{Err: "i/o timeout", Name: "x", Server: "10.0.0.10:53", IsTimeout: true}), "looked up in time"},
		{dial(&net.DNSError{Err: "server misbehaving", Name: "x", Server: "10.0.0.10:53"}), "could not be looked up"},
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "refused the connection"},
		{dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), "cannot be reached"},
		{dial(os.ErrDeadlineExceeded), "took no connection in time"},
		{dial(&egress.Refusal{}), "not a public address"},
		{dial(errors.New("10.0.0.1 says no")), "no connection could be made"},
		{&net.OpError{Op: "read", Net: "tcp", Source: inner, Addr: inner, Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "connection broke"},
		{&net.OpError{Op: "read", Net: "tcp", Source: inner, Addr: inner, Err: errors.New("10.0.0.1")}, "connection broke"},
		{io.EOF, "connection broke"},
		{context.DeadlineExceeded, "in time"},
	} {
		got := egress.Words(tt.err)
		require.Contains(t, got, tt.want)
		require.NotContains(t, got, "10.")
		require.NotContains(t, got, "s3cret")
		require.NotContains(t, got, "cluster.local")
	}
}
