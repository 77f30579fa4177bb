package rest

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// Proxies are the addresses of proxies whose word on the address of a caller is heard.
type Proxies []netip.Prefix

// maxHops is how many addresses of X-Forwarded-For are looked at.
const maxHops = 20

func (p Proxies) has(address string) bool {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	for _, prefix := range p {
		if prefix.Contains(ip.Unmap()) {
			return true
		}
	}
	return false
}

// Remote is the address of whoever made a request: that of the connection, or, if that is a trusted proxy,
// the last one of X-Forwarded-For that is none.
func (p Proxies) Remote(r *http.Request) string {
	at := grpckit.Host(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && len(hops)-i <= maxHops && p.has(at); i-- {
		ip, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		at = ip.Unmap().String()
	}
	return at
}

// origin is where a request comes from.
func (s *Server) origin(r *http.Request) access.Origin {
	return access.Origin{Remote: s.Proxies.Remote(r), UserAgent: r.Header.Get("User-Agent")}
}

// authorize refuses a call that the caller has no right to. What is refused of changes is in the audit
// log; what comes of others is recorded where they are served.
func (s *Server) authorize(ctx context.Context, who grpckit.Principal, namespace, method string) error {
	err := access.Authorize(who, method)
	if err != nil && s.Audit != nil && access.Changes(method) {
		e := grpckit.AuditEntry(ctx, method, who, namespace, time.Now(), err)
		o := access.OriginOf(ctx)
		e.Remote, e.UserAgent = o.Remote, o.UserAgent
		s.Audit.Record(e, true)
	}
	return err
}
