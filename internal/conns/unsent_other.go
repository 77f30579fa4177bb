//go:build !linux

package conns

import "net"

// boundUnsent does nothing where the kernel has no such bound that we know.
func boundUnsent(net.Conn) {}
