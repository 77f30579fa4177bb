package stack

import (
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/epigraph-run/epigraph/services/executor"
)

// pages are what only operators may see, at a time when the service that makes them may not be open yet.
type pages struct {
	admin   Admin
	handler atomic.Pointer[http.Handler]
}

// guardPages refuses to show the jobs of all namespaces to whoever reaches the address.
func (c Config) guardPages() error {
	if c.Executor.RiverUI && c.Admin.Addr != "" && !loopback(c.Admin.Addr) && c.Admin.Password.IsZero() {
		return errors.New("river_ui on an address that others can reach needs admin.password: it shows the jobs of all namespaces and lets them be canceled")
	}
	return nil
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

// ServeHTTP shows the pages to who knows the password, or comes from this machine if there is none.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := p.handler.Load()
	if h == nil {
		http.Error(w, "no job pages here, or not yet: executor.river_ui turns them on", http.StatusNotFound)
		return
	}
	if p.admin.Password.IsZero() {
		// Under another name this address could be asked by any page that made up that name.
		if !local(r.Host) {
			http.Error(w, "ask by a loopback address, or set admin.password", http.StatusForbidden)
			return
		}
	} else if _, password, ok := r.BasicAuth(); !ok || subtle.ConstantTimeCompare([]byte(password), []byte(p.admin.Password.Reveal())) != 1 {
		w.Header().Set("WWW-Authenticate", `Basic realm="epigraph operators"`)
		http.Error(w, "the password is that of admin.password", http.StatusUnauthorized)
		return
	}
	(*h).ServeHTTP(w, r)
}

func local(hostport string) bool {
	if _, _, err := net.SplitHostPort(hostport); err != nil {
		hostport = net.JoinHostPort(hostport, "80")
	}
	return loopback(hostport)
}
