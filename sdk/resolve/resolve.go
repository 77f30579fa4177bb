// Package resolve looks up the addresses of a gRPC server every second, so that a client follows replicas
// that come and go. gRPC's own resolver looks only after a failure, and at most every 30 seconds. A target
// may list several servers, separated by commas. The package must not know the services that are called.
package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/resolver"
)

// Interval is the pause between two looks.
const Interval = time.Second

// timeout bounds one look.
const timeout = 5 * time.Second

// Lookup finds the addresses of a host, as net.Resolver.LookupHost does.
type Lookup func(ctx context.Context, host string) ([]string, error)

// Builder replaces gRPC's resolver of the scheme dns in one connection: pass it to grpc.WithResolvers. The
// target is host:port or host:port,host:port, with or without dns:/// before it. The zero value uses the
// resolver of this process.
type Builder struct {
	// Lookup is nil for that of net.DefaultResolver.
	Lookup Lookup
}

// Scheme is the scheme of targets that state none.
func (Builder) Scheme() string { return "dns" }

// OverrideAuthority names the first server of a list; the others are named with their addresses.
func (Builder) OverrideAuthority(t resolver.Target) string {
	first, _, _ := strings.Cut(t.Endpoint(), ",")
	return strings.TrimSpace(first)
}

// Build checks the target and begins to look.
func (b Builder) Build(t resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	if t.URL.Host != "" {
		return nil, fmt.Errorf("the target %q names a DNS server of its own, which is not supported", t.URL.Redacted())
	}
	servers, err := parse(t.Endpoint())
	if err != nil {
		return nil, err
	}
	lookup := b.Lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &watcher{servers: servers, lookup: lookup, cc: cc, cancel: cancel, done: make(chan struct{})}
	go r.run(ctx)
	return r, nil
}

// Check reports whether a target is well formed, without a lookup. Targets of schemes other than dns are not
// checked.
func Check(target string) error {
	if rest, ok := strings.CutPrefix(target, "dns:"); ok {
		if target, ok = strings.CutPrefix(rest, "///"); !ok {
			return fmt.Errorf("the target dns:%s is not of the form dns:///host:port", rest)
		}
	} else if strings.Contains(target, ":///") || strings.HasPrefix(target, "unix:") {
		return nil
	}
	_, err := parse(target)
	return err
}

func parse(list string) ([]server, error) {
	var servers []server
	for part := range strings.SplitSeq(list, ",") {
		host, port, err := net.SplitHostPort(strings.TrimSpace(part))
		if err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("%q is no host:port", strings.TrimSpace(part))
		}
		servers = append(servers, server{host: host, port: port})
	}
	return servers, nil
}

type server struct {
	host, port string
	// found are the last addresses of each host. A failed lookup keeps them: an unreachable resolver says
	// nothing about servers.
	found []string
}

type watcher struct {
	servers []server
	lookup  Lookup
	cc      resolver.ClientConn
	told    []resolver.Address
	cancel  context.CancelFunc
	done    chan struct{}
}

// ResolveNow does nothing: the next lookup is at most a second away.
func (*watcher) ResolveNow(resolver.ResolveNowOptions) {}

// Close ends the looking.
func (w *watcher) Close() {
	w.cancel()
	<-w.done
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		changes := w.look(ctx)
		if ctx.Err() != nil || !changes {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reports changed addresses to the connection, and returns whether the addresses can change.
func (w *watcher) look(ctx context.Context) (changes bool) {
	var faults []error
	var all []resolver.Address
	// All names are looked up at the same time, so that a slow one does not delay the others.
	var looks sync.WaitGroup
	wrong := make([]error, len(w.servers))
	for i := range w.servers {
		s := &w.servers[i]
		if _, err := netip.ParseAddr(s.host); err == nil {
			s.found = []string{s.host}
			continue
		}
		changes = true
		looks.Go(func() { wrong[i] = s.find(ctx, w.lookup) })
	}
	looks.Wait()
	for i := range w.servers {
		s := &w.servers[i]
		if wrong[i] != nil {
			faults = append(faults, wrong[i])
		}
		for _, ip := range s.found {
			a := resolver.Address{Addr: net.JoinHostPort(ip, s.port)}
			if len(w.servers) > 1 {
				a.ServerName = net.JoinHostPort(s.host, s.port)
			}
			all = append(all, a)
		}
	}
	if ctx.Err() != nil {
		return changes
	}
	if len(all) == 0 {
		w.cc.ReportError(errors.Join(faults...))
		return changes
	}
	if !slices.EqualFunc(all, w.told, func(a, b resolver.Address) bool { return a.Addr == b.Addr && a.ServerName == b.ServerName }) {
		w.told = all
		_ = w.cc.UpdateState(resolver.State{Addresses: all}) // calls report what the balancer rejects
	}
	return changes
}

func (s *server) find(ctx context.Context, lookup Lookup) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := lookup(ctx, s.host)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%s has no address", s.host)
	}
	slices.Sort(found) // servers of names give them in any order
	s.found = slices.Compact(found)
	return nil
}
