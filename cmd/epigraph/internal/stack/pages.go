package stack

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/services/executor"
)

// pages are what only operators may see, at a time when the service that makes them may not be open yet.
type pages struct {
	handler atomic.Pointer[http.Handler]
}

// guardAdmin refuses to serve more than probes and metrics to anybody who reaches the address: the jobs of
// all namespaces, and the memory of the process.
func (c Config) guardAdmin(service string) error {
	if c.Admin.Addr == "" || loopback(c.Admin.Addr) || !c.Admin.Password.IsZero() {
		return nil
	}
	var faults []error
	if c.Executor.RiverUI && service == Executor {
		faults = append(faults, errors.New("river_ui on an address that others can reach needs admin.password: it shows the jobs of all namespaces and lets them be canceled"))
	}
	if c.Admin.Pprof {
		faults = append(faults, errors.New("admin.pprof on an address that others can reach needs admin.password: profiles show the memory of the process, and making them slows it"))
	}
	return errors.Join(faults...)
}

// show takes the pages of a service that has any.
func (p *pages) show(s any) {
	if e, ok := s.(*executor.Service); ok {
		if h := e.JobPages(); h != nil {
			// A page of another site must not work on jobs through an operator's browser.
			h = http.NewCrossOriginProtection().Handler(h)
			p.handler.Store(&h)
		}
	}
}

// ServeHTTP shows the pages. The guard of the port has checked the caller by then.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := p.handler.Load()
	if h == nil {
		http.Error(w, "no job pages here, or not yet: executor.river_ui turns them on", http.StatusNotFound)
		return
	}
	(*h).ServeHTTP(w, r)
}

// protect passes probes. Everything else needs the password or, if there is none, a known name of this port
// in the request: a page could make up a name for this address, and then read the answers in the browser.
func (a Admin) protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/livez" || r.URL.Path == "/readyz":
		case a.Password.IsZero():
			if !a.named(r.Host) {
				http.Error(w, "ask by an address or a name of admin.hosts, or set admin.password", http.StatusForbidden)
				return
			}
		case !a.authenticated(r):
			w.Header().Set("WWW-Authenticate", `Basic realm="epigraph operators"`)
			http.Error(w, "the password is that of admin.password, as basic authentication or bearer token", http.StatusUnauthorized)
			return
		default:
			conns.Trust(r.Context())
		}
		h.ServeHTTP(w, r)
	})
}

// authenticated reports whether a request shows the password.
func (a Admin) authenticated(r *http.Request) bool {
	if _, password, ok := r.BasicAuth(); ok {
		return a.Password.Equal(password)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "bearer") && a.Password.Equal(strings.TrimSpace(token))
}

// named reports whether a Host header names this machine or is an address, which no page can make up.
func (a Admin) named(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	own, err := os.Hostname()
	return err == nil && strings.EqualFold(host, own) || slices.ContainsFunc(a.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}
