// Package cells owns the routing of a call to the cell of its namespace: a cell is one database with the
// executors and the registry that work on it. Each cell has connections, a bound on calls under way, and a
// breaker of its own, so that a cell that is down or hangs costs the others nothing. It must not know the
// meaning of calls, nor how placements are configured.
//
// The breaker is written here, as two functions over two atomics: gobreaker refuses all calls while a probe
// hangs, and this one probes again after each pause.
package cells

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/turns"
)

// Reasons of calls that did not reach a cell.
const (
	// ReasonAway: the cell's service cannot be reached, or did not answer lately.
	ReasonAway = "CELL_UNAVAILABLE"
	// ReasonBusy: as many calls are under way to the cell as may be.
	ReasonBusy = "CELL_BUSY"
	// ReasonMoving: the namespace takes no changes while it is moved.
	ReasonMoving = "NAMESPACE_MOVING"
)

// Place is the cell of a namespace.
type Place struct {
	// Cell is the name of a cell.
	Cell string
	// Closed lets reads pass and refuses everything else.
	Closed bool
}

// Placement says where namespaces live. It is asked at every call, by many at once, and must not block. Its
// errors go to the caller.
type Placement interface {
	Place(namespace string) (Place, error)
}

// Cell is the connections to one cell, which are used by no other.
type Cell struct {
	Name               string
	Executor, Registry *grpc.ClientConn
}

// Services of a cell.
const (
	Executor = "executor"
	Registry = "registry"
)

// Options tune a Router; all are required.
type Options struct {
	// MaxInFlight bounds the calls under way to one service of one cell, half of them of one namespace;
	// streams are not counted.
	MaxInFlight int
	// Pause is how long a service that failed Failures times in a row is left alone before one call tries it
	// again.
	Pause    time.Duration
	Failures int
	Meter    metric.Meter
}

// Router sends calls to cells. It is safe for concurrent use.
type Router struct {
	placement Placement
	cells     []Cell
	lanes     map[string]map[string]*lane // by cell and service
	refused   metric.Int64Counter
	named     bool
}

// Single routes everything to one cell without a name. Errors of its services stay as they are, and it is
// tried at every call, since there is no other to be kept from harm.
func Single(executor, registry *grpc.ClientConn, o Options) (*Router, error) {
	o.Failures = math.MaxInt
	r, err := New(everywhere{}, []Cell{{Executor: executor, Registry: registry}}, o)
	if err == nil {
		r.named = false
	}
	return r, err
}

type everywhere struct{}

func (everywhere) Place(string) (Place, error) { return Place{}, nil }

// New routes by placement among cells, whose names must differ.
func New(p Placement, all []Cell, o Options) (*Router, error) {
	r := &Router{placement: p, cells: slices.Clone(all), lanes: map[string]map[string]*lane{}, named: true}
	var err error
	if r.refused, err = o.Meter.Int64Counter("epigraph.gateway.cell.refused",
		metric.WithDescription("Calls that did not reach their cell, by cell and reason.")); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	for _, c := range all {
		if _, twice := r.lanes[c.Name]; twice {
			return nil, errs.New(errs.InvalidArgument, "CELL_TWICE", "there are two cells named %q", c.Name)
		}
		r.lanes[c.Name] = map[string]*lane{}
		for service, conn := range map[string]*grpc.ClientConn{Executor: c.Executor, Registry: c.Registry} {
			r.lanes[c.Name][service] = &lane{cell: c.Name, service: service, conn: conn, Options: o, shares: turns.New(o.MaxInFlight / 2)}
		}
	}
	return r, nil
}

// Cells are those that there are, in the order given.
func (r *Router) Cells() []Cell { return slices.Clone(r.cells) }

// Named reports whether cells have names: false for Single.
func (r *Router) Named() bool { return r.named }

// Conn is a connection to this service of the cell that the namespace of a call is placed in.
func (r *Router) Conn(service string) grpc.ClientConnInterface { return &conn{r, service} }

type conn struct {
	*Router
	service string
}

// Invoke makes a unary call.
func (c *conn) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	l, err := c.choose(ctx, method)
	if err != nil {
		return c.refuse(ctx, l, err)
	}
	leave, ok := l.enter(grpckit.Namespace(ctx))
	if !ok {
		return c.refuse(ctx, l, errs.New(errs.ResourceExhausted, ReasonBusy, "%d calls to the %s%s are under way already, or half as many of this namespace", l.MaxInFlight, l.service, l.of()).
			Hint("try again in a moment").RetryAfter(time.Second))
	}
	defer leave()
	probe, err := l.admit(time.Now())
	if err != nil {
		return c.refuse(ctx, l, c.nameCell(ctx, l, err))
	}
	err = l.conn.Invoke(ctx, method, in, out, opts...)
	l.learn(ctx, err, probe)
	return c.nameCell(ctx, l, err)
}

// NewStream opens a stream.
func (c *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	l, err := c.choose(ctx, method)
	if err != nil {
		return nil, c.refuse(ctx, l, err)
	}
	probe, err := l.admit(time.Now())
	if err != nil {
		return nil, c.refuse(ctx, l, c.nameCell(ctx, l, err))
	}
	s, err := l.conn.NewStream(ctx, desc, method, opts...)
	l.learn(ctx, err, probe)
	if err != nil {
		return nil, c.nameCell(ctx, l, err)
	}
	return &stream{s, c, l}, nil
}

// stream adds the cell's name to errors that come later.
type stream struct {
	grpc.ClientStream
	c *conn
	l *lane
}

// RecvMsg leaves io.EOF alone, since it is no error.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.c.nameCell(s.Context(), s.l, err)
}

func (c *conn) choose(ctx context.Context, method string) (*lane, error) {
	ns := grpckit.Namespace(ctx)
	place, err := c.placement.Place(ns)
	if err != nil {
		return nil, err
	}
	l := c.lanes[place.Cell][c.service]
	if l == nil {
		return nil, errs.New(errs.Internal, "CELL_UNKNOWN", "namespace %q is placed in cell %q, which is not known", ns, place.Cell)
	}
	if place.Closed && !reads(method) {
		return l, errs.New(errs.Unavailable, ReasonMoving, "namespace %q is being moved and takes no changes just now", ns).
			Hint("repeat it with the same request_id in a few minutes; reads go on").RetryAfter(30 * time.Second)
	}
	return l, nil
}

// reads reports, by its standard name, whether a method changes nothing.
func reads(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, p := range []string{"Get", "List", "Watch", "Explain"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func (c *conn) refuse(ctx context.Context, l *lane, err error) error {
	cell := ""
	if l != nil {
		cell = l.cell
	}
	c.refused.Add(ctx, 1, metric.WithAttributes(attribute.String("cell", cell), attribute.String("reason", errs.ReasonOf(err))))
	return err
}

// nameCell adds the cell to an error about an unreachable service.
func (c *conn) nameCell(ctx context.Context, l *lane, err error) error {
	if err == nil || !c.named || errs.ReasonOf(err) != grpckit.ReasonServiceAway {
		return err
	}
	return errs.New(errs.Unavailable, ReasonAway, "the %s of cell %q, where namespace %q lives, cannot be reached", l.service, l.cell, grpckit.Namespace(ctx)).
		Set("cell", l.cell).Set("service", l.service).Hint("try again in a moment; other cells are not touched, and /readyz says which are away").With(err)
}

// lane is the way to one service of one cell.
type lane struct {
	Options
	cell, service string
	conn          *grpc.ClientConn
	underWay      atomic.Int64
	shares        *turns.Turns // of namespaces
	failures      atomic.Int64
	until         atomic.Int64 // Unix nanoseconds; it is left alone before that
}

// enter counts a call under way, unless there are too many of all or of its namespace.
func (l *lane) enter(namespace string) (leave func(), ok bool) {
	free, ok := l.shares.Try(namespace)
	if !ok {
		return nil, false
	}
	if l.underWay.Add(1) > int64(l.MaxInFlight) {
		l.underWay.Add(-1)
		free()
		return nil, false
	}
	return func() {
		l.underWay.Add(-1)
		free()
	}, true
}

func (l *lane) of() string {
	if l.cell == "" {
		return ""
	}
	return fmt.Sprintf(" of cell %q", l.cell)
}

// admit fails at once while the service is left alone. Of those that come after that, one goes ahead and the
// others wait for what it finds.
func (l *lane) admit(now time.Time) (probe bool, err error) {
	if l.failures.Load() < int64(l.Failures) {
		return false, nil
	}
	until := l.until.Load()
	if now.UnixNano() >= until && l.until.CompareAndSwap(until, now.Add(l.Pause).UnixNano()) {
		return true, nil
	}
	return false, errs.New(errs.Unavailable, grpckit.ReasonServiceAway, "the %s cannot be reached", l.service)
}

// learn counts failures in a row. A caller that hung up, or that gave its call too little time, says nothing
// about the service; a service that took longer than the gateway lets it does.
func (l *lane) learn(ctx context.Context, err error, probe bool) {
	switch {
	case errs.ReasonOf(err) == grpckit.ReasonServiceAway, errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(context.Cause(ctx), grpckit.ErrCallersTime):
		if n := l.failures.Add(1); n == int64(l.Failures) {
			l.until.Store(time.Now().Add(l.Pause).UnixNano())
		}
	case ctx.Err() != nil:
		if probe { // it found out nothing: let the next one try
			l.until.Store(0)
		}
	default:
		l.failures.Store(0)
	}
}
