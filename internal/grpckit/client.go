package grpckit

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/sdk/resolve"
)

// ErrCallersTime is the cause of a context that ended since the time had passed which a caller gave for
// its call. It says nothing of a service.
var ErrCallersTime = errors.New("the time that the caller gave for the call has passed")

// DialOptions configure a client connection; the zero value is plain text without credentials.
type DialOptions struct {
	// Token is the service token or an API key.
	Token conf.Secret
	// OnBehalf calls the services, with the service token, for the principal of the context, with its
	// rights and no others. A call without a principal is refused.
	OnBehalf bool
	// Namespace is used for calls whose context names none; empty sends none.
	Namespace string
	// Telemetry reports spans and metrics and carries trace context on; nil means none.
	Telemetry *obs.Telemetry
	// TLS secures the connection; nil means plain text.
	TLS *tls.Config
	// Lookup finds the addresses of a host, again every second; nil asks the resolver of this process.
	Lookup resolve.Lookup
	// Buf, if set, makes the target a name in this in-memory network.
	Buf *BufNet
	// Meet is how long a call waits for a server when none has ever been found: the processes of one
	// installation start in any order. 0 means no longer than for a server that is briefly unreachable.
	Meet time.Duration
	// MaxRecvBytes is what the other side takes as one request; default 16 MiB. An answer may be
	// answerFactor times as long.
	MaxRecvBytes int
}

// firstPause and lastPause are the pauses before such a call is sent again, from one to the other
// doubled each time: together 3.2 s.
const firstPause, lastPause = 50 * time.Millisecond, 1600 * time.Millisecond

// meetPause is the longest pause before a call is sent again to a server that was never found.
const meetPause = 200 * time.Millisecond

// idleTimeout is how long a connection without calls is kept at least, and twice that at most. A server
// closes it after maxConnectionIdle, and the balancer would then connect again although nobody calls.
const idleTimeout = maxConnectionIdle/2 - 30*time.Second

// answerFactor is how much longer an answer may be than a request: the answer about a run has all its
// inputs and, twice, its outputs.
const answerFactor = 4

// Dial returns a connection that connects when first used, to target, which is host:port or several of
// them separated by commas. Calls go round all addresses that serve, and names are looked up every
// second. Calls on it carry the credential, the namespace and request id of their context and the
// trace, and return *errs.Error values. Reads and idempotent methods are sent again if the server is
// unavailable, others only after errs.ReasonNotReady or errs.MetaNothingDone, or if they were sent to
// nobody. An executor without memory for a run is left for the next one.
func Dial(target string, o DialOptions) (*grpc.ClientConn, error) {
	if o.Telemetry == nil {
		o.Telemetry = obs.Noop()
	}
	if o.MaxRecvBytes <= 0 {
		o.MaxRecvBytes = 16 << 20
	}
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	sc, err := serviceConfig(protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	k := caller{token: o.Token, namespace: o.Namespace, onBehalf: o.OnBehalf && !o.Token.IsZero(), meet: o.Meet, met: &atomic.Bool{}, large: &large{}}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithResolvers(resolve.Builder{Lookup: o.Lookup}),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(o.Telemetry.TracerProvider),
			otelgrpc.WithMeterProvider(o.Telemetry.MeterProvider), otelgrpc.WithPropagators(o.Telemetry.Propagator),
			otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool { return !exempt(i.FullMethodName) && !polled(i.FullMethodName) }))),
		grpc.WithUnaryInterceptor(k.unary),
		grpc.WithStreamInterceptor(k.stream),
		grpc.WithDefaultServiceConfig(sc),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// A restarted service is found again within seconds, not after gRPC's two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerFactor * o.MaxRecvBytes)),
	}
	if o.Buf != nil {
		target = "passthrough:///" + target
		opts = append(opts, grpc.WithContextDialer(o.Buf.DialContext))
	}
	err = resolve.Check(target)
	var conn *grpc.ClientConn
	if err == nil {
		conn, err = grpc.NewClient(target, opts...)
	}
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "TARGET_INVALID", "cannot dial %q", target).
			Hint("host:port, or several as host:port,host:port").With(err)
	}
	k.large.dial = func() (*grpc.ClientConn, error) { return grpc.NewClient(target, opts...) }
	return conn, nil
}

// large is the connection for large requests. On a shared connection a small request would wait behind
// megabytes of another. It is made on first use, and closed with the other one.
type large struct {
	dial func() (*grpc.ClientConn, error)
	once sync.Once
	conn *grpc.ClientConn // nil if it cannot be made
}

type requestSizeKey struct{}

// WithRequestSize announces the size of the first message of a stream that is about to be opened.
func WithRequestSize(ctx context.Context, bytes int) context.Context {
	return context.WithValue(ctx, requestSizeKey{}, bytes)
}

// requestSize is how many bytes a request has: a message, or one that is passed on as it is.
func requestSize(req any) int {
	switch m := req.(type) {
	case proto.Message:
		return proto.Size(m)
	case *[]byte:
		return len(*m)
	}
	return 0
}

// of is the connection on which a request of so many bytes is to be sent.
func (l *large) of(cc *grpc.ClientConn, bytes int) *grpc.ClientConn {
	if bytes <= inflight.Small {
		return cc
	}
	l.once.Do(func() {
		conn, err := l.dial()
		if err != nil {
			return
		}
		l.conn = conn
		go func() {
			for s := cc.GetState(); s != connectivity.Shutdown; s = cc.GetState() {
				cc.WaitForStateChange(context.Background(), s)
			}
			_ = conn.Close()
		}()
	})
	if l.conn == nil {
		return cc
	}
	return l.conn
}

type caller struct {
	token     conf.Secret
	namespace string
	onBehalf  bool
	meet      time.Duration
	met       *atomic.Bool // a server took a call
	large     *large
}

func (k caller) outgoing(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	add := func(key, value string) {
		if value != "" && len(md.Get(key)) == 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, key, value)
		}
	}
	if !k.token.IsZero() {
		add(HeaderAuthorization, "Bearer "+k.token.Reveal())
	}
	ns := k.namespace
	if own, ok := ctx.Value(namespaceKey{}).(string); ok {
		ns = own
	}
	add(HeaderNamespace, ns)
	add(HeaderRequestID, RequestID(ctx))
	add(HeaderRun, access.RunOf(ctx))
	add(HeaderMaker, access.MakerOf(ctx).Encode())
	if k.onBehalf && PrincipalOf(ctx).Kind != access.Internal { // see AsService
		add(HeaderPrincipal, PrincipalOf(ctx).Encode())
		if o := access.OriginOf(ctx); o != (access.Origin{}) {
			add(HeaderOrigin, access.Origin{Remote: audit.Cut(o.Remote, audit.MaxRemote), UserAgent: audit.Cut(o.UserAgent, audit.MaxUserAgent)}.Encode())
		}
	}
	return ctx
}

func (k caller) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cc = k.outgoing(ctx), k.large.of(cc, requestSize(req))
	began := time.Now()
	var full []string // addresses of executors that have no room
	for pause := firstPause; ; pause *= 2 {
		var to peer.Peer
		with := append(slices.Clone(opts), grpc.Peer(&to))
		err := invoke(ctx, method, req, reply, cc, with...)
		if unanswered(err) {
			err = ask(ctx, method, req, reply, cc, with...)
		}
		err = FromStatus(err)
		if to.Addr != nil && !k.met.Load() {
			k.met.Store(true)
		}
		late := pause > lastPause
		if !k.met.Load() && k.meet > 0 {
			pause, late = min(pause, meetPause), time.Since(began) >= k.meet
		}
		switch {
		case elsewhere(err, to.Addr, full):
			full = append(full, to.Addr.String())
			pause /= 2
			continue
		case late:
			return err
		case errs.ReasonOf(err) == errs.ReasonNotReady, nothingDone(err):
		case errs.ReasonOf(err) == ReasonServiceAway && to.Addr == nil && !exempt(method):
			// It was sent to nobody: all replicas were away at this moment, as when the last old one
			// stops just before the address of a new one is known.
		default:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		if !k.met.Load() && k.meet > 0 {
			cc.ResetConnectBackoff() // the pauses between its own tries grow longer than a call may wait
		}
	}
}

// unanswered reports whether gRPC has lost what a server answered before it had read the request: in
// the last of its tries it found the stream closed, and gives that as the error, which is no status.
func unanswered(err error) bool {
	_, answered := original(err)
	return !answered && errors.Is(err, io.EOF)
}

// ask makes a call and hears its answer even if the request cannot be sent any more.
func ask(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{}, method, opts...)
	if err != nil {
		return err
	}
	if err := s.SendMsg(req); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(reply)
}

// nothingDone reports whether the server promises that it did nothing.
func nothingDone(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Kind == errs.Unavailable && e.Meta[errs.MetaNothingDone] != ""
}

// maxFull is how many executors without room one call asks.
const maxFull = 3

// elsewhere reports whether another executor may have the room that the one at an address has not: the
// next call goes to the next one.
func elsewhere(err error, at net.Addr, full []string) bool {
	return errs.ReasonOf(err) == errs.ReasonMemoryFull && errs.Is(err, errs.ResourceExhausted) && at != nil && len(full) < maxFull-1 && !slices.Contains(full, at.String())
}

func (k caller) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	first, _ := ctx.Value(requestSizeKey{}).(int)
	s, err := open(k.outgoing(ctx), desc, k.large.of(cc, first), method, opts...)
	if err != nil {
		return nil, FromStatus(err)
	}
	return clientStream{s, desc.ClientStreams}, nil
}

type clientStream struct {
	grpc.ClientStream
	many bool // requests
}

// RecvMsg leaves io.EOF alone, since it is no status.
func (s clientStream) RecvMsg(m any) error { return FromStatus(s.ClientStream.RecvMsg(m)) }

// SendMsg returns io.EOF if the server has answered already, and RecvMsg returns the answer. For a
// stream with one request that is no error: generated code calls RecvMsg only after a send without an
// error.
func (s clientStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	switch {
	case !unanswered(err):
		return FromStatus(err)
	case s.many:
		return io.EOF
	}
	return nil
}

func (s clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, FromStatus(err)
}

// serviceConfig lists the methods of the suite that may be retried: those declared idempotent, and
// unary reads by their standard names.
func serviceConfig(files *protoregistry.Files) (string, error) {
	type name struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	}
	var names []name
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "epigraph.") {
			return true
		}
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				if m := s.Methods().Get(j); idempotent(m) {
					names = append(names, name{Service: string(s.FullName()), Method: string(m.Name())})
				}
			}
		}
		return true
	})
	cfg := map[string]any{"loadBalancingConfig": []any{map[string]any{"round_robin": map[string]any{}}}}
	if len(names) > 0 {
		slices.SortFunc(names, func(a, b name) int { return strings.Compare(a.Service+a.Method, b.Service+b.Method) })
		cfg["methodConfig"] = []any{map[string]any{
			"name": names,
			"retryPolicy": map[string]any{
				"maxAttempts": 4, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2,
				"retryableStatusCodes": []string{"UNAVAILABLE"},
			},
		}}
	}
	b, err := json.Marshal(cfg)
	if err != nil {
		return "", fmt.Errorf("write service config: %w", err)
	}
	return string(b), nil
}

func idempotent(m protoreflect.MethodDescriptor) bool {
	if m.IsStreamingClient() || m.IsStreamingServer() {
		return false
	}
	if o, ok := m.Options().(*descriptorpb.MethodOptions); ok && o.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
		return true
	}
	n := string(m.Name())
	return strings.HasPrefix(n, "Get") || strings.HasPrefix(n, "List")
}
