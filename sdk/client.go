// Package epigraph is the client of an Epigraph installation for Go programs: it reads plans, starts graphs,
// watches, steers and amends runs, answers their interrupts, and keeps schedules, limits, epics, tasks and
// prices. It is a thin layer over the generated clients, which it lends for everything else. Workers are in
// sdk/worker, help for tests of graphs in sdk/epigraphtest. It must not know how the services work inside.
//
// A program that is built against a clone replaces two modules, this one and proto: README.md says how.
package epigraph

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/sdk/resolve"
)

const (
	headerAuthorization = "authorization"
	headerNamespace     = "x-epigraph-namespace"
	// attempts is how often a repeatable call is made before its error is returned.
	attempts = 5
	// findTime is for how long a call that may be repeated is made again while nobody is reached, and
	// longestPause the longest pause between two of its tries: servers that took the place of others are
	// found within about a second.
	findTime     = 3 * time.Second
	longestPause = 500 * time.Millisecond
)

// Client talks to one installation. It is safe for concurrent use.
type Client struct {
	// Executor is the generated client. Requests that leave request_id empty are given one, and are repeated
	// while the service cannot be reached.
	Executor executorv1.ExecutorServiceClient
	// Planner and Registry are the generated clients of the other services, as Executor is.
	Planner  plannerv1.PlannerServiceClient
	Registry registryv1.RegistryServiceClient
	// Workflows is the generated client of the catalog of workflows, as Executor is.
	Workflows registryv1.WorkflowServiceClient
	// Memories is the generated client of the memory, as Executor is.
	Memories registryv1.MemoryServiceClient
	conn     *grpc.ClientConn
	// book is the connection to the registry.
	book grpc.ClientConnInterface
	more []*grpc.ClientConn
}

// Option changes how Dial connects.
type Option func(*options)

type options struct {
	key, namespace string
	tls            *tls.Config
	grpc           []grpc.DialOption
	maxMessage     int
	// planner and registry are empty where they are served at the address of Dial.
	planner, registry string
	lookup            resolve.Lookup // nil for that of this process
}

// WithKey shows an API key, which names the namespace too.
func WithKey(key string) Option { return func(o *options) { o.key = key } }

// WithNamespace names the namespace where no key does: in an open installation, or with the token of
// services.
func WithNamespace(namespace string) Option { return func(o *options) { o.namespace = namespace } }

// WithTLS secures the connection; nil trusts the system's authorities. Without it the connection is plain
// text.
func WithTLS(cfg *tls.Config) Option {
	return func(o *options) {
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		o.tls = cfg
	}
}

// WithPlanner names the address of a planner that is served apart; without it the address of Dial serves
// plans, too.
func WithPlanner(target string) Option { return func(o *options) { o.planner = target } }

// WithRegistry names the address of a registry that is served apart; without it the address of Dial serves
// epics, usage and prices, too.
func WithRegistry(target string) Option { return func(o *options) { o.registry = target } }

// WithGRPC adds options of gRPC itself, such as interceptors and stats handlers.
func WithGRPC(more ...grpc.DialOption) Option {
	return func(o *options) { o.grpc = append(o.grpc, more...) }
}

// WithMaxMessage bounds the size of a received message; the default is 64 MiB.
func WithMaxMessage(bytes int) Option { return func(o *options) { o.maxMessage = bytes } }

// Dial returns a client of host:port, or dns:///host:port for several replicas. It connects when first used.
// Close it.
func Dial(target string, opts ...Option) (*Client, error) {
	o := options{maxMessage: 64 << 20}
	for _, f := range opts {
		f(&o)
	}
	conn, err := o.dial(target)
	if err != nil {
		return nil, err
	}
	c := &Client{Executor: executorv1.NewExecutorServiceClient(conn), conn: conn}
	apart := func(other string) (grpc.ClientConnInterface, error) {
		if other == "" || other == target {
			return conn, nil
		}
		more, err := o.dial(other)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.more = append(c.more, more)
		return more, nil
	}
	planner, err := apart(o.planner)
	if err != nil {
		return nil, err
	}
	registry, err := apart(o.registry)
	if err != nil {
		return nil, err
	}
	c.book = registry
	c.Planner, c.Registry = plannerv1.NewPlannerServiceClient(planner), registryv1.NewRegistryServiceClient(registry)
	c.Workflows, c.Memories = registryv1.NewWorkflowServiceClient(registry), registryv1.NewMemoryServiceClient(registry)
	return c, nil
}

// idleTimeout is how long a connection without calls is kept at least, and twice that at most. A gateway
// closes it after two minutes, and the balancer would then connect again although nobody calls.
const idleTimeout = 45 * time.Second

// dial opens a connection that connects when it is first used.
func (o *options) dial(target string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if o.tls != nil {
		creds = credentials.NewTLS(o.tls)
	}
	if err := resolve.Check(target); err != nil {
		return nil, &Error{Reason: "TARGET_INVALID", Message: "cannot dial " + target, Hint: "host:port, or several as host:port,host:port", cause: err}
	}
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithResolvers(resolve.Builder{Lookup: o.lookup}),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.maxMessage)),
		grpc.WithChainUnaryInterceptor(o.unary),
		grpc.WithChainStreamInterceptor(o.stream),
	}, o.grpc...)...)
	if err != nil {
		return nil, &Error{Reason: "TARGET_INVALID", Message: "cannot dial " + target, Hint: "host:port, or several as host:port,host:port", cause: err}
	}
	return conn, nil
}

// Conn is the connection to the address of Dial, for generated clients such as those of schedules and limits.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Close ends the connections.
func (c *Client) Close() error {
	err := c.conn.Close()
	for _, more := range c.more {
		err = errors.Join(err, more.Close())
	}
	return err
}

func (o *options) outgoing(ctx context.Context) context.Context {
	if o.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, headerAuthorization, "Bearer "+o.key)
	}
	if md, _ := metadata.FromOutgoingContext(ctx); o.namespace != "" && len(md.Get(headerNamespace)) == 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, headerNamespace, o.namespace)
	}
	return ctx
}

func (o *options) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx = o.outgoing(ctx)
	tries, begun := 1, time.Now()
	m, ok := req.(proto.Message)
	again := ok && repeatable(m.ProtoReflect(), method)
	if again {
		tries = attempts
	}
	pause := 50 * time.Millisecond
	for {
		err := invoke(ctx, method, req, reply, cc, opts...)
		tries--
		wait := pause/2 + rand.N(pause)
		switch status.Code(err) {
		case codes.Unavailable:
			if again && time.Since(begun) < findTime {
				tries = max(tries, 1)
				wait = min(wait, longestPause)
			}
		case codes.ResourceExhausted:
			asked := retryAfter(err)
			if asked <= 0 || asked > maxRetryAfter {
				return fromStatus(err, cc.Target())
			}
			wait += asked
		default:
			return fromStatus(err, cc.Target())
		}
		if end, ok := ctx.Deadline(); tries == 0 || ok && time.Until(end) < wait {
			return fromStatus(err, cc.Target())
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fromStatus(err, cc.Target())
		}
		pause = min(2*pause, 2*time.Second)
	}
}

func (o *options) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(o.outgoing(ctx), desc, cc, method, opts...)
	if err != nil {
		return nil, fromStatus(err, cc.Target())
	}
	return clientStream{s, cc.Target(), desc.ClientStreams}, nil
}

type clientStream struct {
	grpc.ClientStream
	target string
	many   bool // requests
}

func (s clientStream) RecvMsg(m any) error { return fromStatus(s.ClientStream.RecvMsg(m), s.target) }

// SendMsg returns io.EOF if the server has answered already, and RecvMsg returns the answer. For a stream
// with one request that is no error: generated code calls RecvMsg only after a send without an error.
func (s clientStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if errors.Is(err, io.EOF) && !s.many {
		return nil
	}
	return fromStatus(err, s.target)
}

// maxRetryAfter is the longest pause that is waited for when a service is full and says when to try again.
const maxRetryAfter = 10 * time.Second

// retryAfter is when a service that is full wants to be asked again; 0 if it does not say.
func retryAfter(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			return r.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// repeatable reports whether a request may be sent twice, and gives it the id that makes it so.
func repeatable(m protoreflect.Message, method string) bool {
	if f := m.Descriptor().Fields().ByName("request_id"); f != nil && f.Kind() == protoreflect.StringKind {
		if m.Get(f).String() == "" {
			m.Set(f, protoreflect.ValueOfString(randomID()))
		}
		return true
	}
	if f := m.Descriptor().Fields().ByName("start"); f != nil && f.Message() != nil && m.Has(f) {
		return repeatable(m.Mutable(f).Message(), method)
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, read := range []string{"Get", "List", "Explain", "Parse", "Compile", "Validate"} {
		if strings.HasPrefix(name, read) {
			return true
		}
	}
	return false
}

// Error is the answer of a service to a failed call. Programs act on Reason, which is stable.
type Error struct {
	// Reason is a stable upper-case word, such as RUN_NOT_FOUND.
	Reason  string
	Message string
	// Hint says how to correct the call; it may be empty.
	Hint string
	// Violations name every faulty field of the request.
	Violations []Violation
	// Metadata are more facts, such as the id of a run that is in the way.
	Metadata map[string]string
	cause    error
}

// Violation is one faulty field of a request.
type Violation struct{ Field, Reason, Message string }

// Error returns everything in one line without repetition: the message may equal the only fault, and a fault
// may equal the hint.
func (e *Error) Error() string {
	parts := []string{e.Message}
	if len(e.Violations) == 1 {
		said, _, _ := strings.Cut(e.Violations[0].Message, "\n")
		if said = strings.TrimSuffix(said, "; "+e.Hint); said != "" && strings.HasSuffix(e.Message, said) {
			parts = nil
		}
	}
	for _, v := range e.Violations {
		parts = append(parts, v.Field+": "+v.Message)
	}
	text := e.Reason + ": " + strings.Join(parts, "; ")
	if e.Hint != "" && !strings.Contains(text, e.Hint) {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Unwrap is the status as gRPC gave it.
func (e *Error) Unwrap() error { return e.cause }

// ReasonOf is the reason of an *Error or a *RunError in err's tree, or empty.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	if e, ok := errors.AsType[*RunError](err); ok {
		return e.Reason
	}
	return ""
}

// fromStatus is an error of a call to target in the words of this package.
func fromStatus(err error, target string) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok { // without what gRPC wrapped it in, such as how often it tried
		return errorOf(s.GRPCStatus(), target, err)
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	return errorOf(st, target, err)
}
