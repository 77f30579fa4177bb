package grpckit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"buf.build/go/protovalidate"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/goroutine"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/turns"
)

const scope = "github.com/epigraph-run/epigraph/internal/grpckit"

// ReasonTooManyCalls is the reason when a namespace has as many calls under way as it may.
const ReasonTooManyCalls = "TOO_MANY_CALLS"

// call is one RPC on its way through the chain. Unary and streaming calls are treated by the same
// links: next runs the rest of the chain with a changed context.
type call struct {
	method string
	stream bool
	// principal is who calls, for the log; empty before that is known.
	principal string
	// audited is set for calls that the audit log has entries of.
	audited *caught
	// check is set by the validation link and applied to every message that comes in.
	check func(m any, o ...protovalidate.ValidationOption) error
	// header sends one response header.
	header func(metadata.MD) error
}

// checkRequest checks the one message of a call.
func (c *call) checkRequest(m any, o ...protovalidate.ValidationOption) error {
	return c.checkBut(m, nil, o...)
}

// checkBut is checkRequest, but looks at no text in the field except, if that is not nil.
func (c *call) checkBut(m any, except protoreflect.FieldDescriptor, o ...protovalidate.ValidationOption) error {
	if err := c.check(m, o...); err != nil {
		return err
	}
	if msg, ok := m.(proto.Message); ok {
		return checkText(msg, except)
	}
	return nil
}

type link struct {
	name string
	run  func(ctx context.Context, c *call, next func(context.Context) error) error
}

// chain holds the links of a server, outer to inner. Recovery stands just inside the translation to
// statuses, so that a panic in authentication or validation too is masked, counted and logged.
type chain struct {
	log     *slog.Logger
	auth    *Authenticator
	auditor Auditor // nil for none
	timeout time.Duration
	budget  *inflight.Budget
	maxRecv int
	// writeTimeout is for how long the caller of a connection of its own may refuse to take a piece of what
	// it asked for.
	writeTimeout time.Duration
	validator    protovalidate.Validator
	duration     metric.Float64Histogram
	panics       metric.Int64Counter
	// drain is closed when the server begins to stop.
	drain chan struct{}
	// calls are those under way, by namespace.
	calls    *turns.Turns
	maxCalls int
	interned *interned
	conns    *conns.List
	links    []link
	// late is what a call gets that took longer than timeout.
	late *errs.Error
	// measured are the labels of calls that came before, by method and code.
	measured sync.Map
	// away limits the log lines about calls that failed because something does not answer.
	away obs.Seldom
}

func newChain(o Options, auth *Authenticator) (*chain, error) {
	tel, timeout := o.Telemetry, o.UnaryTimeout
	v, err := protovalidate.New(protovalidate.WithFailFast())
	if err != nil {
		return nil, fmt.Errorf("make validator: %w", err)
	}
	m := tel.Meter(scope)
	duration, err := m.Float64Histogram("epigraph.rpc.duration", metric.WithUnit("s"),
		metric.WithDescription("Time a served call took, by method and code."),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30))
	if err != nil {
		return nil, err
	}
	panics, err := m.Int64Counter("epigraph.rpc.panics", metric.WithDescription("Panics caught while serving."))
	if err != nil {
		return nil, err
	}
	k := &chain{log: o.Logger, auth: auth, auditor: o.Audit, timeout: timeout, budget: o.Budget, maxRecv: o.MaxRecvBytes, writeTimeout: o.WriteTimeout, validator: v, duration: duration, panics: panics,
		drain: make(chan struct{}), calls: turns.New(o.MaxCalls), maxCalls: o.MaxCalls, interned: newInterned(), conns: o.Connections.List()}
	k.links = k.order()
	k.late = errs.New(errs.DeadlineExceeded, "SERVER_TIMEOUT", "the call took longer than the server allows (%s)", timeout)
	return k, nil
}

func (k *chain) order() []link {
	return []link{
		{"request-id", k.requestID},
		{"metrics", k.metrics},
		{"access-log", k.accessLog},
		{"to-status", k.toStatus},
		{"audit", k.audit},
		{"recovery", k.recovery},
		{"auth", k.authenticate},
		{"timeout", k.bound},
		{"protovalidate", k.validate},
	}
}

func (k *chain) run(ctx context.Context, c *call, handler func(context.Context) error) error {
	next := handler
	for i := len(k.links) - 1; i >= 0; i-- {
		l, inner := k.links[i], next
		next = func(ctx context.Context) error { return l.run(ctx, c, inner) }
	}
	return next(ctx)
}

// unary serves a unary method. All links run before the message is read, so that the caller is known before
// any byte of it is.
func (k *chain) unary(method string, m grpc.MethodDesc) grpc.MethodDesc {
	serve, deletes := m.Handler, deletionOf(method)
	m.Handler = func(srv any, ctx context.Context, receive func(any) error, _ grpc.UnaryServerInterceptor) (resp any, err error) {
		goroutine.Reserve()
		c := &call{method: method}
		c.header = func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }
		err = k.run(context.WithValue(ctx, drainKey{}, k.drain), c, func(ctx context.Context) error {
			in := k.receiver(ctx, c, receive)
			defer in.end()
			out := k.budget.Answer(Namespace(ctx))
			sent := false
			defer func() {
				if !sent {
					out.Free()
				}
			}()
			resp, err = serve(srv, out.Context(ctx), func(m any) error { return in.last(ctx, m) },
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					ctx, err := k.checked(ctx, c, req)
					if err != nil {
						return nil, err
					}
					c.audited.about(c.method, req)
					resp, err := k.handle(ctx, c, deletes, req, handler)
					if err == nil {
						c.audited.made(c.method, resp)
					}
					return resp, err
				})
			in.end() // the answer must not wait for its own request
			if err == nil {
				resp, err = k.answer(ctx, resp, out)
			}
			sent = err == nil
			return err
		})
		if err != nil {
			if o, ok := resp.(*outgoing); ok {
				o.held.Free()
			}
			return nil, err
		}
		return resp, nil
	}
	return m
}

// answer has an answer of some size count until it is written.
func (k *chain) answer(ctx context.Context, resp any, out *inflight.Answer) (any, error) {
	m, ok := resp.(proto.Message)
	if !ok {
		out.Free()
		return resp, nil
	}
	n := proto.Size(m)
	if n <= tinyAnswer {
		out.Free()
		return resp, nil
	}
	if err := out.Hold(ctx, answerMemory*int64(n)); err != nil {
		return nil, err
	}
	return k.send(ctx, m, out), nil
}

// receiver reads the messages of c. Callers that need no credentials may send little, and have little time.
func (k *chain) receiver(ctx context.Context, c *call, plain func(any) error) *receiver {
	most, timeout := k.maxRecv, k.timeout
	if exempt(c.method) {
		most, timeout = maxExempt, exemptTimeout
	}
	return newReceiver(ctx, k.interned, k.budget, most, timeout, plain)
}

// checked validates a request, but not again what it shares with requests that came before.
func (k *chain) checked(ctx context.Context, c *call, req any) (context.Context, error) {
	shared, rest := k.interned.of(req)
	switch {
	case shared == nil:
		return ctx, c.checkRequest(req)
	case shared.valid.Load():
		if err := c.checkBut(req, shared.field, protovalidate.WithFilter(rest)); err != nil {
			return ctx, err
		}
	default:
		if err := c.checkRequest(req); err != nil {
			return ctx, err
		}
		shared.valid.Store(true)
	}
	return context.WithValue(ctx, sharedKey{}, shared), nil
}

func (k *chain) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	goroutine.Reserve()
	c := &call{method: info.FullMethod, stream: true, header: ss.SetHeader}
	return k.run(context.WithValue(ss.Context(), drainKey{}, k.drain), c, func(ctx context.Context) error {
		check := c.check
		if !info.IsClientStream { // else one bad text would cut off all that the stream carries
			check = c.checkRequest
		}
		in := k.receiver(ctx, c, ss.RecvMsg)
		in.frames.Patient = info.IsClientStream
		if !info.IsClientStream {
			whole := check
			check = func(m any, o ...protovalidate.ValidationOption) error {
				err := whole(m, o...)
				if err == nil {
					c.audited.about(c.method, m)
				}
				return err
			}
		}
		defer in.end()
		held := k.budget.Answer(Namespace(ctx))
		defer held.Free()
		return handler(srv, &serverStream{ServerStream: ss, chain: k, ctx: held.Stream(ctx), in: in, check: check})
	})
}

type serverStream struct {
	grpc.ServerStream
	chain *chain
	ctx   context.Context
	in    *receiver
	check func(any, ...protovalidate.ValidationOption) error
}

func (s *serverStream) Context() context.Context { return s.ctx }

// SendMsg waits for room for the message: the stream may hold messages that nobody has taken.
func (s *serverStream) SendMsg(m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return s.ServerStream.SendMsg(m)
	}
	n := proto.Size(p)
	if n <= tinyAnswer {
		return s.ServerStream.SendMsg(m)
	}
	out := s.chain.budget.Answer(Namespace(s.ctx))
	err := out.Await(s.ctx, int64(n))
	if err == nil {
		err = s.ServerStream.SendMsg(s.chain.send(s.ctx, p, out))
	}
	if err != nil {
		out.Free()
	}
	return err
}

func (s *serverStream) RecvMsg(m any) error {
	read := s.in.last
	if s.in.frames.Patient {
		read = s.in.next
	}
	if err := read(s.ctx, m); err != nil {
		return err
	}
	return s.check(m)
}

func (k *chain) requestID(ctx context.Context, c *call, next func(context.Context) error) error {
	id := strings.Join(metadata.ValueFromIncomingContext(ctx, HeaderRequestID), ",")
	if !ValidRequestID(id) {
		id = ids.New("req")
	}
	head := metadata.Pairs(HeaderRequestID, id)
	if c.stream {
		if err := c.header(head); err != nil {
			return err
		}
		return next(WithRequestID(ctx, id))
	}
	// A header ahead of an error would forbid the client's transport to retry; the error carries the
	// id in its details anyway.
	if err := next(WithRequestID(ctx, id)); err != nil {
		return err
	}
	return c.header(head)
}

func (k *chain) metrics(ctx context.Context, c *call, next func(context.Context) error) error {
	start := time.Now()
	err := next(ctx)
	k.duration.Record(ctx, time.Since(start).Seconds(), k.labels(served{c.method, status.Code(err)}))
	return err
}

// served is the label set of counted calls. Only methods of the server come to the chain, so there are few.
type served struct {
	method string
	code   codes.Code
}

func (k *chain) labels(s served) metric.MeasurementOption {
	if o, ok := k.measured.Load(s); ok {
		return o.(metric.MeasurementOption)
	}
	o := metric.WithAttributeSet(attribute.NewSet(attribute.String("rpc.method", strings.TrimPrefix(s.method, "/")), attribute.String("code", s.code.String())))
	if s.code <= codes.Unauthenticated {
		k.measured.Store(s, o)
	}
	return o
}

func (k *chain) accessLog(ctx context.Context, c *call, next func(context.Context) error) error {
	start := time.Now()
	err := next(ctx)
	level := slog.LevelInfo
	if exempt(c.method) || err == nil && polled(c.method) {
		level = slog.LevelDebug
	}
	if !k.log.Enabled(ctx, level) {
		return err
	}
	attrs := []slog.Attr{
		slog.String("method", c.method), slog.String("code", status.Code(err).String()),
		slog.Duration("took", time.Since(start)), slog.String("request_id", RequestID(ctx)),
	}
	if c.principal != "" {
		attrs = append(attrs, slog.String("principal", c.principal))
	}
	if err != nil {
		if e := errs.From(FromStatus(err)); e.Reason != "" {
			attrs = append(attrs, slog.String("reason", e.Reason))
		}
	}
	k.log.LogAttrs(ctx, level, "served", attrs...)
	return err
}

// toStatus is the only place that logs private causes. An Internal error is a bug of ours; an Unavailable one
// names the dependency that is down.
func (k *chain) toStatus(ctx context.Context, c *call, next func(context.Context) error) error {
	err := next(ctx)
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is && !strings.HasPrefix(c.method, "/epigraph.") {
		return err // the services of gRPC itself, for health and reflection, answer with statuses
	}
	st := ToStatus(ctx, withFate(c.method, err))
	attrs := []slog.Attr{slog.String("method", c.method), slog.String("request_id", RequestID(ctx)), slog.Any("err", err)}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	switch st.Code() {
	case codes.Internal:
		k.log.LogAttrs(ctx, slog.LevelError, "internal error", attrs...)
	case codes.Unavailable: // every call has its line of the access log besides
		reason := errs.ReasonOf(err)
		level, left := slog.LevelDebug, 0 // nothing is down: this server is stopping
		if reason != errs.ReasonStopping {
			level, left = k.away.Level(reason, slog.LevelWarn)
		}
		k.log.LogAttrs(ctx, level, "unavailable", append(attrs, slog.Int("lines_left_out", left))...)
	}
	return st.Err()
}

// withFate adds the fate of the call, which follows from the method, to the error of an unreachable database.
func withFate(method string, err error) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Reason != errs.ReasonDatabaseUnreachable || e.HintText() != "" {
		return err
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	reads := slices.ContainsFunc([]string{"Get", "List", "Watch", "Explain", "Validate"}, func(verb string) bool { return strings.HasPrefix(name, verb) })
	if reads || e.Meta[errs.MetaNothingDone] != "" {
		return e.Hint("nothing was changed; try again when the database is back")
	}
	return e.Hint("the change may have been made: look when the database is back, or repeat the call with the same request_id")
}

type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (k *chain) recovery(ctx context.Context, c *call, next func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			k.panics.Add(ctx, 1, metric.WithAttributes(attribute.String("rpc.method", strings.TrimPrefix(c.method, "/"))))
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return next(ctx)
}

func (k *chain) authenticate(ctx context.Context, c *call, next func(context.Context) error) error {
	defer conns.Begin(ctx)()
	if exempt(c.method) {
		k.auth.greet(ctx)
		done, err := check(ctx)
		if err != nil {
			return err
		}
		defer done()
		return next(ctx)
	}
	ctx, err := k.auth.incoming(ctx, c.method)
	c.audited.from(ctx)
	if err != nil {
		return err
	}
	c.principal = PrincipalOf(ctx).String()
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("epigraph.namespace", Namespace(ctx)))
	if PrincipalOf(ctx).IsService() {
		return next(ctx)
	}
	leave, ok := k.calls.Try(Namespace(ctx))
	if !ok {
		return TooManyCalls(k.maxCalls)
	}
	defer leave()
	return next(ctx)
}

// TooManyCalls is the error of a call of a namespace that has most calls under way already.
func TooManyCalls(most int) error {
	return errs.New(errs.ResourceExhausted, ReasonTooManyCalls, "%d calls of this namespace are under way already, streams among them", most).
		Hint("end streams that nobody needs, or try again in a moment").RetryAfter(time.Second)
}

// bound gives unary calls a time limit of ours. If that one fired, and not the caller's, we say so.
func (k *chain) bound(ctx context.Context, c *call, next func(context.Context) error) error {
	if c.stream || k.timeout <= 0 {
		return next(ctx)
	}
	inner, cancel := context.WithTimeoutCause(ctx, k.timeout, k.late)
	defer cancel()
	err := next(inner)
	if err != nil && errs.Is(err, errs.Internal) && ctx.Err() == nil && errors.Is(context.Cause(inner), k.late) &&
		errors.Is(err, context.DeadlineExceeded) {
		return k.late.With(err)
	}
	return err
}

func (k *chain) validate(ctx context.Context, c *call, next func(context.Context) error) error {
	c.check = func(m any, o ...protovalidate.ValidationOption) error {
		msg, ok := m.(proto.Message)
		if !ok {
			return nil
		}
		return invalid(k.validator.Validate(msg, o...))
	}
	return next(ctx)
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	bad, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		return fmt.Errorf("validate request: %w", err)
	}
	e := errs.New(errs.InvalidArgument, "REQUEST_INVALID", "the request is not valid")
	for _, v := range bad.Violations {
		e.Violations = append(e.Violations, errs.Violation{
			Field:   protovalidate.FieldPathString(v.Proto.GetField()),
			Reason:  reasonText(v.Proto.GetRuleId()),
			Message: v.Proto.GetMessage(),
		})
	}
	return e
}

// exempt calls need no credentials and are logged at level Debug. Watch is not one of them: it has no end.
func exempt(method string) bool { return method == healthpb.Health_Check_FullMethodName }

// polled reports whether services call a method every second, mostly for nothing. Such calls are neither
// logged nor traced.
func polled(method string) bool {
	return method == "/epigraph.registry.v1.RegistryService/LeaseOrders"
}
