// Package egress owns the way out to addresses that users and models name: which of them may be reached, and
// the transport that refuses the others when it connects. It must not know the content of requests and
// answers. It is written here because it is one hook of a dialer, and the same rule must hold where an
// address is accepted and where it is dialed.
package egress

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/net/idna"
)

// Guard refuses addresses that are not public. It looks at the address that is really dialed, after the name
// was resolved, so that a name cannot change its meaning in between. The zero value lets public addresses
// through and no others.
type Guard struct {
	all  bool
	nets []netip.Prefix
}

// NewGuard lets these networks, like 10.0.0.0/8, through as well; "all" lets everything through. The error
// names every text that is no network.
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

// Refusal says that an address may not be reached. It never reveals the address behind a name.
type Refusal struct {
	// Host is the host as it was asked for; empty if only the address that it stands for is known.
	Host string
	// why replaces the usual reason.
	why string
}

// Error says what may be done about it.
func (r *Refusal) Error() string {
	if r.why != "" {
		return r.Host + " " + r.why
	}
	const allow = " is not a public address; an operator may allow its network with executor.actors.http.allow_private"
	if r.Host == "" {
		return "what the name stands for" + allow
	}
	return r.Host + allow
}

// Check refuses an address. Names are resolved and checked when they are dialed.
func (g Guard) Check(ip netip.Addr) error {
	ip = ip.Unmap()
	if g.all || public(ip) || slices.ContainsFunc(g.nets, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	return &Refusal{Host: ip.String()}
}

// CheckHost refuses a host of a URL that is certainly refused when dialed: an address, a name of this
// machine, or an address that is not in the one usual form. Resolvers and libraries read the odd forms
// (0x7f.1, 2130706433, 0177.0.0.1) differently, so their meaning is unknown.
func (g Guard) CheckHost(host string) error {
	name, err := plain(host)
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return g.Check(ip)
	}
	if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
		return nil
	}
	if g.Check(netip.MustParseAddr("127.0.0.1")) == nil || g.Check(netip.IPv6Loopback()) == nil {
		return nil
	}
	return &Refusal{Host: host}
}

// plain is the host as it will be dialed: without brackets and the dot at its end, in lower case, other
// scripts' letters and digits as ASCII. It refuses a text that resembles an address and is not in its usual
// form.
func plain(host string) (string, error) {
	odd := &Refusal{Host: fmt.Sprintf("%.80q", host), why: "is an address in an unusual form: write it like 192.0.2.1 or 2001:db8::1, without a zone"}
	name := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.ContainsAny(name, ":%") {
		if ip, err := netip.ParseAddr(name); err == nil && ip.Zone() == "" {
			return name, nil
		}
		return "", odd
	}
	name, err := idna.Lookup.ToASCII(strings.TrimRight(name, "."))
	if err != nil {
		// Names that only some resolvers take, with underscores for example, are none of our business; other
		// scripts are.
		if name = strings.TrimRight(host, "."); strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
			return "", &Refusal{Host: fmt.Sprintf("%.80q", host), why: "is no name of a host"}
		}
	}
	name = strings.TrimRight(strings.ToLower(name), ".")
	if name == "" || strings.HasPrefix(name, ".") || strings.Contains(name, "..") {
		// nothing can be of that name
		return "", &Refusal{Host: fmt.Sprintf("%.80q", host), why: "is no name of a host"}
	}
	// Browsers do the same: a name that ends in a number is an address.
	last := name[strings.LastIndexByte(name, '.')+1:]
	if number(last) {
		if _, err := netip.ParseAddr(name); err != nil {
			return "", odd
		}
	}
	return name, nil
}

// number reports whether the end of a host makes it an address: digits, or 0x and hexadecimal digits, which
// may be missing.
func number(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// Transport returns one that connects to nothing that the guard refuses, and by no proxy. It is the caller's
// to change before it is used.
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
		return &Refusal{}
	}
	if g.Check(ap.Addr().WithZone("")) != nil {
		return &Refusal{} // the address belongs to a name, and the names of this network are private
	}
	return nil
}

// special are networks that are not for the public but that netip does not call private. Of IPv6 they are
// those within public6.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	// Protocol assignments, Teredo and ORCHID among them; documentation; 6to4, which holds an address of
	// IPv4.
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("3fff::/20"), netip.MustParsePrefix("2002::/16"),
}

// public6 is the only IPv6 network from which public addresses are assigned. Outside of it are all forms that
// contain an IPv4 address (::/96, ::ffff:0:0:0/96, 64:ff9b::/96), the former site-local network, and reserved
// ones.
var public6 = netip.MustParsePrefix("2000::/3")

func public(ip netip.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return false
	}
	if ip.Is6() && (!public6.Contains(ip) || isatap(ip)) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// isatap reports whether the lower half holds an address of IPv4 (RFC 5214), in whatever network.
func isatap(ip netip.Addr) bool {
	b := ip.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
