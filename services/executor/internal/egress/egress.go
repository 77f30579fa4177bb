// Package egress owns the way out to addresses that users and models name: which of them may be reached, and the transport that refuses the others
// at the moment it connects. It must not know what is sent, nor what an answer means.
package egress

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Guard refuses addresses that are not public. It looks at the address that is really dialed, after the name was resolved, so that a name cannot
// change its meaning in between. The zero value lets public addresses through and no others.
type Guard struct {
	all  bool
	nets []netip.Prefix
}

// NewGuard lets these networks, like 10.0.0.0/8, through as well; "all" lets everything through. The error names every text that is no network.
func NewGuard(allow []string) (Guard, error) {
	var g Guard
	var bad []error
	for _, s := range allow {
		if s == "all" {
			g.all = true
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			bad = append(bad, fmt.Errorf("%q is no network like 10.0.0.0/8", s))
			continue
		}
		g.nets = append(g.nets, p.Masked())
	}
	return g, errors.Join(bad...)
}

// Refusal says that an address may not be reached.
type Refusal struct{ Address string }

// Error says what may be done about it.
func (r *Refusal) Error() string {
	return r.Address + " is not a public address; an operator may allow its network with executor.actors.http.allow_private"
}

// Check refuses an address. It says nothing of names: what they stand for is known when they are dialed.
func (g Guard) Check(ip netip.Addr) error {
	ip = ip.Unmap()
	if g.all || public(ip) || slices.ContainsFunc(g.nets, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	return &Refusal{ip.String()}
}

// CheckHost refuses a host of a URL of which it is certain before it is dialed: an address, or a name of this machine.
func (g Guard) CheckHost(host string) error {
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return g.Check(ip.WithZone(""))
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
		return nil
	}
	if g.Check(netip.MustParseAddr("127.0.0.1")) == nil || g.Check(netip.IPv6Loopback()) == nil {
		return nil
	}
	return &Refusal{host}
}

// Transport returns one that connects to nothing that the guard refuses, and by no proxy. It is the caller's to change before it is used.
func (g Guard) Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: g.control}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 10, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

func (g Guard) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Refusal{address}
	}
	return g.Check(ap.Addr().WithZone(""))
}

// special are networks that are not for the public but that netip does not call private.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	// Forms of old that hold an address of another kind, and what was private before there was a better form.
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("fec0::/10"),
}

func public(ip netip.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// MaxRetryAfter is the longest pause that the other side may ask for.
const MaxRetryAfter = time.Hour

// RetryAfter is the pause that a header of that name asks for, 0 if none.
func RetryAfter(header string) time.Duration {
	if n, err := strconv.ParseInt(strings.TrimSpace(header), 10, 64); err == nil {
		return time.Duration(max(0, min(n, int64(MaxRetryAfter/time.Second)))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, min(time.Until(at), MaxRetryAfter))
	}
	return 0
}
