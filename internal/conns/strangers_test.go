package conns_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conns"
)

// caller is a connection from an address, which remembers that it was closed.
type caller struct {
	net.Conn
	addr   *net.TCPAddr
	here   net.Conn // as its server has it
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return c.addr }
func (c *caller) Close() error         { c.closed = true; return nil }

func TestStrangers(t *testing.T) {
	t.Parallel()
	const bound = 4
	type server struct {
		list *conns.List
		port int
	}
	start := func() *server {
		return &server{list: conns.New(conns.Bounds{Strangers: bound, Namespace: 10, Total: 20}).List()}
	}
	connect := func(s *server, ip string) *caller {
		s.port++
		c := &caller{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: s.port}}
		lis := once{conns: make(chan net.Conn, 1)}
		lis.conns <- c
		c.here, _ = s.list.Listen(lis).Accept()
		return c
	}
	closed := func(cs []*caller) (n int) {
		for _, c := range cs {
			if c.closed {
				n++
			}
		}
		return n
	}
	t.Run("ThoseOfTheAddressWithTheMostAreClosed", func(t *testing.T) {
		t.Parallel()
		s := start()
		neighbor := connect(s, "192.0.2.1")
		var flood []*caller
		for range 20 {
			flood = append(flood, connect(s, "192.0.2.2"))
		}
		require.False(t, neighbor.closed, "the connection of another address")
		require.Equal(t, 20-(bound-1), closed(flood))
		require.Zero(t, closed(flood[20-(bound-1):]), "the latest")
	})
	t.Run("ANetworkOfIPv6CountsAsOneAddress", func(t *testing.T) {
		t.Parallel()
		s := start()
		neighbor := connect(s, "2001:db8:0:1::1")
		for _, host := range []string{"a", "b", "c", "d", "e"} {
			connect(s, "2001:db8:0:2::"+host)
		}
		require.False(t, neighbor.closed)
	})
	t.Run("TheOldestIsClosedWhereNoAddressHasMore", func(t *testing.T) {
		t.Parallel()
		s := start()
		var all []*caller
		for _, ip := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"} {
			all = append(all, connect(s, ip))
		}
		require.True(t, all[0].closed)
		require.Equal(t, 1, closed(all))
	})
	t.Run("WhoHasGoneCountsNoMore", func(t *testing.T) {
		t.Parallel()
		s := start()
		neighbor := connect(s, "192.0.2.1")
		for range 10 {
			require.NoError(t, connect(s, "192.0.2.2").here.Close())
		}
		for range bound {
			connect(s, "192.0.2.1")
		}
		require.True(t, neighbor.closed, "its own address has the most")
		require.Equal(t, bound, s.list.Strangers())
	})
}
