package conns_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conns"
)

// TestUnsent reads back how much the kernel takes of an answer that nobody reads.
func TestUnsent(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close()
	lis = conns.New(conns.DefaultBounds()).List().Listen(lis)
	client, err := net.Dial("tcp", lis.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	c, err := lis.Accept()
	require.NoError(t, err)
	defer c.Close()
	raw, err := c.(*conns.Conn).Conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	var got int
	var failed error
	require.NoError(t, raw.Control(func(fd uintptr) { got, failed = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, 0x19) }))
	require.NoError(t, failed)
	require.Equal(t, 128<<10, got)
}
