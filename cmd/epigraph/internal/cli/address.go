package cli

import (
	"net"
	"net/netip"
)

// maxOwn is how many addresses of this machine are shown.
const maxOwn = 3

// reachable are the addresses, host:port, at which a listener on addr can be reached: addr itself, or for a
// listener on every interface those of this machine, loopback first.
func reachable(addr string, own []net.Addr) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return []string{addr}
	}
	ip, err := netip.ParseAddr(host)
	if host != "" && (err != nil || !ip.IsUnspecified()) {
		return []string{addr}
	}
	out := []string{net.JoinHostPort("127.0.0.1", port)}
	for _, a := range own {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsGlobalUnicast() || len(out) > maxOwn {
			continue
		}
		out = append(out, net.JoinHostPort(p.Addr().String(), port))
	}
	return out
}

// ownAddresses are those of this machine; none if the system does not report them.
func ownAddresses() []net.Addr {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	return own
}

// onlyHere reports whether nobody else than this machine reaches addr.
func onlyHere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// keyNote says where development mode requires the key: at every address that others can reach too, also from
// this machine.
func keyNote(rest, grpc string) string {
	switch {
	case onlyHere(rest) && onlyHere(grpc):
		return "not needed from this machine"
	case onlyHere(grpc):
		return "needed for REST, also from this machine: others reach it too"
	case onlyHere(rest):
		return "needed for gRPC, also from this machine: others reach it too"
	}
	return "needed, also from this machine: others reach it too"
}
