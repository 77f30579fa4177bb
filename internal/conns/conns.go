// Package conns owns the decision which connections to a process stay open. It bounds unauthenticated
// connections, those of each namespace and all together; where there is no room, it closes the connection
// that is idle longest. An HTTP/2 connection that sends many frames without work is read more slowly. The
// package must not know the calls on a connection, nor how a caller is authenticated.
//
// Frames are counted here, from their headers in passing, because the Framer of x/net decodes a stream that
// it owns.
package conns

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// ReasonTooMany is the reason when a namespace has as many connections as it may, each with a call under way.
const ReasonTooMany = "TOO_MANY_CONNECTIONS"

// unsentBytes is how much of an answer the kernel may hold that it could not send yet.
const unsentBytes = 128 << 10

// Bounds are how many connections there may be.
type Bounds struct {
	// Strangers bounds the connections to one server on which nobody has shown valid credentials.
	Strangers int
	// Namespace bounds the connections of one namespace, Total those of all namespaces, to all servers of the
	// process.
	Namespace, Total int
}

// Pool is what the servers of a process share. It is safe for concurrent use.
type Pool struct {
	bounds Bounds

	mu         sync.Mutex
	namespaces map[string]*group
	total      int
}

// New returns an empty pool.
func New(b Bounds) *Pool { return &Pool{bounds: b, namespaces: map[string]*group{}} }

// List returns the list of one server's connections.
func (p *Pool) List() *List {
	l := &List{pool: p, byAddr: map[string]*Conn{}}
	l.strangers.idle.sources, l.strangers.busy.sources = map[netip.Prefix]int{}, map[netip.Prefix]int{}
	return l
}

// Known is how many connections of a namespace there are.
func (p *Pool) Known(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.namespaces[namespace]; g != nil {
		return g.len()
	}
	return 0
}

// group are the connections that are bounded together: the strangers of a server, or those of a namespace.
type group struct {
	namespace  string
	idle, busy queue
	frames     allowance
}

func (g *group) len() int { return g.idle.Len() + g.busy.Len() }

// queue are connections that are idle or busy, that which is so longest first.
type queue struct {
	list.List // of *Conn
	// sources is how many of them come from each address, where they are strangers.
	sources map[netip.Prefix]int
}

// enter and leave count a connection in and out of the queue where it belongs. The lock is held.
func (c *Conn) enter() {
	q := c.queue()
	c.place = q.PushBack(c)
	if q.sources != nil {
		q.sources[c.source]++
	}
}

func (c *Conn) leave() {
	q := c.queue()
	q.Remove(c.place)
	if q.sources == nil {
		return
	}
	if q.sources[c.source]--; q.sources[c.source] == 0 {
		delete(q.sources, c.source)
	}
}

// oldestOfMost is the connection that gives way in a queue of strangers: of the address with the most of them
// the one that waits longest, so that a flood from one address shuts out nobody else. The lock is held.
func (q *queue) oldestOfMost() *Conn {
	most := 0
	for _, n := range q.sources {
		most = max(most, n)
	}
	place := q.Front()
	for q.sources[place.Value.(*Conn).source] < most {
		place = place.Next()
	}
	return place.Value.(*Conn)
}

// sourceOf is the address that a connection counts for: with IPv6 the network, because one caller has all its
// addresses.
func sourceOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip, bits := tcp.AddrPort().Addr().Unmap().WithZone(""), 64
	if ip.Is4() {
		bits = ip.BitLen()
	}
	p, _ := ip.Prefix(bits) // an invalid address gives the zero prefix
	return p
}

// List are the connections to one server. It is safe for concurrent use.
type List struct {
	pool *Pool
	// The pool's lock guards these.
	strangers group
	byAddr    map[string]*Conn
}

// Strangers is how many connections there are on which nobody has shown valid credentials.
func (l *List) Strangers() int {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.strangers.len()
}

// Listen returns lis such that the list hears of its connections.
func (l *List) Listen(lis net.Listener) net.Listener { return &listener{lis, l} }

// listener registers the connections that it accepts.
type listener struct {
	net.Listener
	list *List
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		// other connections have no address and stay on the machine
		boundUnsent(c)
		return l.list.admit(c), nil
	}
	return c, nil
}

// Conn is one connection.
type Conn struct {
	net.Conn
	list   *List
	addr   string
	source netip.Prefix
	pace   pace
	reads  incoming
	writes outgoing
	// The pool's lock guards these.
	in      *group // nil when it is not counted: it is closed, or a service's
	place   *list.Element
	calls   int
	trusted bool
}

// Close closes the connection, which is counted no more.
func (c *Conn) Close() error {
	c.list.pool.mu.Lock()
	c.list.forget(c)
	c.list.pool.mu.Unlock()
	return c.end()
}

// end closes the connection, which is in no list any more.
func (c *Conn) end() error {
	c.pace.once.Do(func() { close(c.pace.closed) })
	return c.Conn.Close()
}

func (l *List) admit(n net.Conn) *Conn {
	c := &Conn{Conn: n, list: l, addr: n.RemoteAddr().String(), source: sourceOf(n.RemoteAddr()), pace: pace{closed: make(chan struct{})}}
	l.pool.mu.Lock()
	if before := l.byAddr[c.addr]; before != nil {
		l.forget(before)
	}
	l.byAddr[c.addr] = c
	l.pool.put(c, &l.strangers)
	var gone *Conn
	if l.strangers.len() > l.pool.bounds.Strangers {
		// Connections that have sent nothing are closed before probes that are being answered, but the probes
		// must not keep the list to themselves either.
		from := &l.strangers.idle
		if l.strangers.busy.Len() > l.pool.bounds.Strangers/2 {
			from = &l.strangers.busy
		}
		gone = from.oldestOfMost()
		l.forget(gone)
	}
	l.pool.mu.Unlock()
	closeAll(gone)
	return c
}

// put counts a connection in a group. The lock is held.
func (p *Pool) put(c *Conn, g *group) {
	p.take(c)
	c.in = g
	c.enter()
	if g != &c.list.strangers {
		p.total++
		p.namespaces[g.namespace] = g
	}
}

// take counts a connection out of its group. The lock is held.
func (p *Pool) take(c *Conn) {
	g := c.in
	if g == nil {
		return
	}
	c.leave()
	c.in, c.place = nil, nil
	if g == &c.list.strangers {
		return
	}
	p.total--
	if g.len() == 0 {
		delete(p.namespaces, g.namespace)
	}
}

func (c *Conn) queue() *queue {
	if c.calls > 0 {
		return &c.in.busy
	}
	return &c.in.idle
}

// forget takes a connection that ends out of everything. The lock is held.
func (l *List) forget(c *Conn) {
	l.pool.take(c)
	if l.byAddr[c.addr] == c {
		delete(l.byAddr, c.addr)
	}
}

func closeAll(cs ...*Conn) {
	for _, c := range cs {
		if c != nil {
			_ = c.end() // it may have gone by itself
		}
	}
}

type connKey struct{}

// Of is the connection of a call, or nil.
func Of(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Tag ties a context to the connection from an address.
func (l *List) Tag(ctx context.Context, from net.Addr) context.Context {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	c := l.byAddr[from.String()]
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, c)
}

// Begin marks the connection of a call, found by its context, as busy until end is called.
func Begin(ctx context.Context) (end func()) {
	c := Of(ctx)
	if c == nil {
		return func() {}
	}
	c.count(1)
	return func() { c.count(-1) }
}

// count counts calls under way.
func (c *Conn) count(n int) {
	p := c.list.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	g, before := c.in, c.calls
	if g == nil || (before > 0) == (before+n > 0) {
		c.calls += n
		return
	}
	c.leave()
	c.calls += n
	c.enter()
}

// Trust lifts the bounds from the connection of a call by a service of the installation or an operator.
func Trust(ctx context.Context) {
	c := Of(ctx)
	if c == nil {
		return
	}
	p := c.list.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.trusted = true
	p.take(c)
}

// Know counts the connection of a call with valid credentials for the namespace. If there is no room it
// closes the connection that is idle longest: of this namespace if that has all it may, else of the namespace
// with the most. If none is idle the error is ResourceExhausted, and the connection stays unauthenticated.
func Know(ctx context.Context, namespace string) error {
	c := Of(ctx)
	if c == nil {
		return nil
	}
	p := c.list.pool
	p.mu.Lock()
	if c.trusted || c.in == nil || c.in != &c.list.strangers && c.in.namespace == namespace {
		p.mu.Unlock()
		return nil
	}
	g := p.namespaces[namespace]
	if g == nil {
		g = &group{namespace: namespace}
	}
	gone, ok := p.room(g, c.in != &c.list.strangers)
	if ok {
		p.put(c, g)
	}
	p.mu.Unlock()
	closeAll(gone)
	if !ok {
		return errs.New(errs.ResourceExhausted, ReasonTooMany, "this namespace has as many connections as it may, and calls are under way on all of them").
			Hint("make calls over connections that are there, or try again in a moment").RetryAfter(time.Second)
	}
	return nil
}

// room makes room for one more connection in a group, and says which one is to be closed for it, if any.
// counted says that the connection counts in the total already. The lock is held.
func (p *Pool) room(g *group, counted bool) (gone *Conn, ok bool) {
	from := g
	switch {
	case g.len() >= p.bounds.Namespace:
	case !counted && p.total >= p.bounds.Total:
		from = p.largest(g)
	default:
		return nil, true
	}
	place := from.idle.Front()
	if place == nil && from != g {
		place = from.busy.Back()
	}
	if place == nil {
		return nil, false
	}
	gone = place.Value.(*Conn)
	gone.list.forget(gone)
	return gone, true
}

// largest is the namespace with the most connections and more than g, one that has idle ones if there is any;
// else it is g. The lock is held.
func (p *Pool) largest(g *group) *group {
	found := g
	for _, o := range p.namespaces {
		idle, better := o.idle.Len() > 0, found != g && found.idle.Len() > 0
		if o.len() > g.len() && (found == g || idle && !better || idle == better && o.len() > found.len()) {
			found = o
		}
	}
	return found
}
