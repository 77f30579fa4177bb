package grpckit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type executor struct {
	executorv1.UnimplementedExecutorServiceServer
	get    func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error)
	cancel func(context.Context, *executorv1.CancelRunRequest) (*executorv1.Run, error)
	watch  func(*executorv1.WatchRunRequest, grpc.ServerStreamingServer[executorv1.RunEvent]) error
	remove func(context.Context, *executorv1.DeleteRunRequest) error
	// bulk removes runs, and names them.
	bulk func(context.Context) error
}

func (e *executor) GetRun(ctx context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return e.get(ctx, r)
}

func (e *executor) CancelRun(ctx context.Context, r *executorv1.CancelRunRequest) (*executorv1.Run, error) {
	return e.cancel(ctx, r)
}

func (e *executor) WatchRun(r *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
	return e.watch(r, s)
}

type rig struct {
	net    *grpckit.BufNet
	svc    *executor
	server *grpckit.Server
	log    *testkit.LogBuffer
}

func start(t *testing.T, o grpckit.Options) *rig {
	t.Helper()
	r := &rig{log: &testkit.LogBuffer{}, svc: &executor{
		get: func(_ context.Context, req *executorv1.GetRunRequest) (*executorv1.Run, error) {
			return &executorv1.Run{Id: req.GetRunId()}, nil
		},
	}}
	o.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	r.server, err = grpckit.NewServer(o)
	require.NoError(t, err)
	executorv1.RegisterExecutorServiceServer(r.server, r.svc)
	r.net = buffered(t, r.server, "executor")
	return r
}

// buffered serves under a name, in memory, until the test ends.
func buffered(t *testing.T, server *grpckit.Server, name string) *grpckit.BufNet {
	t.Helper()
	net := &grpckit.BufNet{}
	lis, err := net.Listen(name)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis)
	}()
	t.Cleanup(func() { server.Stop(); <-done })
	return net
}

func (r *rig) client(t *testing.T, o grpckit.DialOptions) executorv1.ExecutorServiceClient {
	t.Helper()
	return executorv1.NewExecutorServiceClient(r.conn(t, o))
}

func (r *rig) conn(t *testing.T, o grpckit.DialOptions) *grpc.ClientConn {
	t.Helper()
	o.Buf = r.net
	conn, err := grpckit.Dial("executor", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

var ask = &executorv1.GetRunRequest{RunId: "run_1"}

func TestErrors(t *testing.T) {
	t.Parallel()
	t.Run("RoundTrip/EveryKindKeepsItsFacts", func(t *testing.T) {
		t.Parallel()
		r := start(t, grpckit.Options{})
		c := r.client(t, grpckit.DialOptions{})
		for k := errs.InvalidArgument; k <= errs.Canceled; k++ {
			if k == errs.Unavailable {
				continue // retried, see below
			}
			r.svc.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
				return nil, fmt.Errorf("load run: %w", errs.New(k, "SOME_REASON", "public text").Hint("do this").Set("etag", "7").
					Violate("run_id", "BAD", "is bad").With(errors.New("private cause")))
			}
			_, err := c.GetRun(grpckit.WithRequestID(t.Context(), "req-7"), ask)
			e := errs.From(err)
			require.Equal(t, k, e.Kind, "%v", err)
			require.Equal(t, "SOME_REASON", e.Reason)
			require.Equal(t, "public text", e.Message)
			require.Equal(t, map[string]string{"hint": "do this", "etag": "7", "request_id": "req-7"}, e.Meta)
			require.Equal(t, []errs.Violation{{Field: "run_id", Reason: "BAD", Message: "is bad"}}, e.Violations)
			require.NotContains(t, err.Error(), "private cause")
			require.NotContains(t, err.Error(), "load run")
		}
	})
	t.Run("Internal/MaskedAndLoggedOnce", func(t *testing.T) {
		t.Parallel()
		r := start(t, grpckit.Options{})
		r.svc.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
			// A wrapped status of another service must not leak either.
			return nil, fmt.Errorf("select host=db1: %w", status.Error(codes.NotFound, "secret text"))
		}
		_, err := r.client(t, grpckit.DialOptions{}).GetRun(t.Context(), ask)
		e := errs.From(err)
		require.Equal(t, errs.Internal, e.Kind)
		require.Equal(t, "internal error", e.Message)
		require.NotContains(t, err.Error(), "db1")
		require.Contains(t, r.log.String(), "select host=db1")
		require.Equal(t, 1, strings.Count(r.log.String(), "level=ERROR"))
		require.Contains(t, r.log.String(), "request_id="+e.Meta[grpckit.MetaRequestID])
	})
	t.Run("Panic/BecomesInternalInUnaryAndStream", func(t *testing.T) {
		t.Parallel()
		r := start(t, grpckit.Options{})
		r.svc.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) { panic("ouch") }
		r.svc.watch = func(*executorv1.WatchRunRequest, grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			panic("ouch")
		}
		c := r.client(t, grpckit.DialOptions{})
		_, err := c.GetRun(t.Context(), ask)
		require.Equal(t, "internal error", errs.From(err).Message)
		s, err := c.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: "run_1"})
		require.NoError(t, err)
		_, err = s.Recv()
		require.True(t, errs.Is(err, errs.Internal))
		require.Contains(t, r.log.String(), "grpckit_test.go", "the stack is logged")
	})
	t.Run("Validation/NamesTheField", func(t *testing.T) {
		t.Parallel()
		r := start(t, grpckit.Options{})
		c := r.client(t, grpckit.DialOptions{})
		_, err := c.GetRun(t.Context(), &executorv1.GetRunRequest{})
		e := errs.From(err)
		require.Equal(t, "REQUEST_INVALID", e.Reason)
		require.Len(t, e.Violations, 1)
		require.Equal(t, "run_id", e.Violations[0].Field)
		require.Equal(t, "STRING_MIN_LEN", e.Violations[0].Reason)
		s, err := c.WatchRun(t.Context(), &executorv1.WatchRunRequest{})
		require.NoError(t, err)
		_, err = s.Recv()
		require.Equal(t, "REQUEST_INVALID", errs.ReasonOf(err))
	})
	t.Run("Validation/EndsAtTheFirstFault", func(t *testing.T) {
		t.Parallel()
		r := start(t, grpckit.Options{})
		g := &graphv1.Graph{}
		for range 1000 {
			g.Nodes = append(g.Nodes, &graphv1.Node{Id: strings.Repeat("x", 257)})
		}
		_, err := r.client(t, grpckit.DialOptions{}).StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
		e := errs.From(err)
		require.Equal(t, "REQUEST_INVALID", e.Reason)
		require.Len(t, e.Violations, 1, "the others cost a caller nothing and us a lot")
	})
	t.Run("Unreachable/IsUnavailableWithoutAddresses", func(t *testing.T) {
		t.Parallel()
		conn, err := grpckit.Dial("nobody", grpckit.DialOptions{Buf: &grpckit.BufNet{}})
		require.NoError(t, err)
		defer conn.Close()
		_, err = executorv1.NewExecutorServiceClient(conn).CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: "r"})
		require.True(t, errs.Is(err, errs.Unavailable))
		require.Equal(t, "SERVICE_UNAVAILABLE", errs.ReasonOf(err))
		require.NotContains(t, errs.From(err).Message, "nobody")
	})
	t.Run("NotReady/IsAskedAgainWhateverTheMethod", func(t *testing.T) {
		t.Parallel()
		r, calls := start(t, grpckit.Options{}), 0
		r.svc.cancel = func(context.Context, *executorv1.CancelRunRequest) (*executorv1.Run, error) {
			if calls++; calls < 3 {
				return nil, errs.New(errs.Unavailable, errs.ReasonNotReady, "soon")
			}
			return nil, errs.New(errs.Unavailable, "DATABASE_UNREACHABLE", "who knows")
		}
		_, err := r.client(t, grpckit.DialOptions{}).CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: "r"})
		require.Equal(t, "DATABASE_UNREACHABLE", errs.ReasonOf(err))
		require.Equal(t, 3, calls, "nothing but a replica that is not ready is asked again")
	})
	t.Run("ToStatus/OneErrorInfo", func(t *testing.T) {
		t.Parallel()
		st := grpckit.ToStatus(t.Context(), errs.New(errs.Conflict, "ETAG_MISMATCH", "stale"))
		require.Equal(t, codes.Aborted, st.Code())
		require.Len(t, st.Details(), 1)
		info := st.Details()[0].(*errdetails.ErrorInfo)
		require.Equal(t, "epigraph.run", info.GetDomain())
		require.Nil(t, grpckit.ToStatus(t.Context(), nil))
		require.NoError(t, grpckit.FromStatus(nil))
	})
}

func TestMeet(t *testing.T) {
	t.Parallel()
	const beginning = 4500 * time.Millisecond
	for name, tc := range map[string]struct {
		meet time.Duration
		want string
	}{
		"ACallWaitsForAServerThatBegins": {5 * time.Second, ""},
		"AsOthersDo":                     {0, "SERVICE_UNAVAILABLE"},
		"NoLongerThanItMay":              {4 * time.Second, "SERVICE_UNAVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := &grpckit.BufNet{}
				conn, err := grpckit.Dial("executor", grpckit.DialOptions{Buf: net, Meet: tc.meet})
				require.NoError(t, err)
				server, err := grpckit.NewServer(grpckit.Options{})
				require.NoError(t, err)
				executorv1.RegisterExecutorServiceServer(server, &executor{cancel: func(context.Context, *executorv1.CancelRunRequest) (*executorv1.Run, error) {
					return &executorv1.Run{}, nil
				}})
				done := make(chan error, 1)
				time.AfterFunc(beginning, func() {
					lis, err := net.Listen("executor")
					if err == nil {
						err = server.Serve(lis)
					}
					done <- err
				})
				_, err = executorv1.NewExecutorServiceClient(conn).CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: "r"})
				require.Equal(t, tc.want, errs.ReasonOf(err))
				require.NoError(t, conn.Close())
				time.Sleep(beginning) //nolint:forbidigo // the time of the bubble
				server.Stop()
				require.NoError(t, <-done)
			})
		})
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, _ *executorv1.GetRunRequest) (*executorv1.Run, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("wait: %w", ctx.Err())
	}
	t.Run("Timeout/OursSaysSo", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := start(t, grpckit.Options{UnaryTimeout: time.Hour})
			r.svc.get = slow
			begin := time.Now()
			_, err := r.client(t, grpckit.DialOptions{}).GetRun(t.Context(), ask)
			require.Equal(t, "SERVER_TIMEOUT", errs.ReasonOf(err), "got %v", err)
			require.GreaterOrEqual(t, time.Since(begin), time.Hour)
		})
	})
	t.Run("Timeout/CallersOwn", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := start(t, grpckit.Options{UnaryTimeout: time.Hour})
			r.svc.get = slow
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.client(t, grpckit.DialOptions{}).GetRun(ctx, ask)
			require.True(t, errs.Is(err, errs.DeadlineExceeded))
			require.NotEqual(t, "SERVER_TIMEOUT", errs.ReasonOf(err))
		})
	})
	t.Run("Timeout/ASubTimeoutOfTheHandlerIsInternal", func(t *testing.T) {
		t.Parallel()
		r := start(t, grpckit.Options{})
		r.svc.get = func(ctx context.Context, _ *executorv1.GetRunRequest) (*executorv1.Run, error) {
			return nil, fmt.Errorf("ask database: %w", context.DeadlineExceeded)
		}
		_, err := r.client(t, grpckit.DialOptions{}).GetRun(t.Context(), ask)
		require.True(t, errs.Is(err, errs.Internal))
	})
	t.Run("Retry/OnlyIdempotentAndOnlyUnavailable", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := start(t, grpckit.Options{})
			calls := 0
			fail := errs.Unavailable
			r.svc.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
				if calls++; calls < 3 {
					return nil, errs.New(fail, "BUSY", "busy")
				}
				return &executorv1.Run{}, nil
			}
			c := r.client(t, grpckit.DialOptions{})
			_, err := c.GetRun(t.Context(), ask)
			require.NoError(t, err)
			require.Equal(t, 3, calls)
			calls, fail = 0, errs.Conflict
			_, err = c.GetRun(t.Context(), ask)
			require.True(t, errs.Is(err, errs.Conflict))
			require.Equal(t, 1, calls)
		})
	})
}

func TestAuth(t *testing.T) {
	t.Parallel()
	auth := grpckit.AuthConfig{
		Keys: []grpckit.APIKey{
			{Name: "ada", Namespace: "team-a", Secret: conf.NewSecret("key-a")},
			{Name: "bob", Namespace: "team-b", Secret: conf.NewSecret("key-b")},
			{Name: "wes", Namespace: "team-b", Secret: conf.NewSecret("key-w"), Scopes: []access.Scope{access.Worker}},
		},
		ServiceToken:     conf.NewSecret("svc"),
		OldServiceTokens: []conf.Secret{conf.NewSecret("svc-old")},
	}
	r := start(t, grpckit.Options{Auth: auth})
	r.svc.get = func(ctx context.Context, _ *executorv1.GetRunRequest) (*executorv1.Run, error) {
		p := grpckit.PrincipalOf(ctx)
		return &executorv1.Run{Id: p.Kind + ":" + p.Name + "@" + grpckit.Namespace(ctx)}, nil
	}
	open := start(t, grpckit.Options{})
	open.svc.get = r.svc.get
	free := auth
	free.Anonymous = true
	anonymous := start(t, grpckit.Options{Auth: free})
	anonymous.svc.get = r.svc.get
	for name, c := range map[string]struct {
		rig       *rig
		token, ns string
		want      string
		reason    string
	}{
		"Key/OpensItsNamespace":     {r, "key-a", "", "key:ada@team-a", ""},
		"Key/MayRepeatItsNamespace": {r, "key-b", "team-b", "key:bob@team-b", ""},
		"Key/OpensNoOther":          {r, "key-a", "team-b", "", "NAMESPACE_DENIED"},
		"Key/Unknown":               {r, "key-c", "", "", "CREDENTIALS_INVALID"},
		"Key/Missing":               {r, "", "team-a", "", "CREDENTIALS_MISSING"},
		"Service/AnyNamespace":      {r, "svc", "team-b", "service:@team-b", ""},
		"Service/Default":           {r, "svc", "", "service:@default", ""},
		"Service/Old":               {r, "svc-old", "team-b", "service:@team-b", ""},
		"Scope/Missing":             {r, "key-w", "", "", "SCOPE_MISSING"},
		"Service/BadNamespace":      {r, "svc", "Team B", "", "NAMESPACE_INVALID"},
		"Open/Default":              {open, "", "", "open:@default", ""},
		"Open/Header":               {open, "whatever", "x-1", "open:@x-1", ""},
		"Anonymous/Default":         {anonymous, "", "", "open:@default", ""},
		"Anonymous/Header":          {anonymous, "", "x-1", "open:@x-1", ""},
		"Anonymous/AKeyCounts":      {anonymous, "key-a", "", "key:ada@team-a", ""},
		"Anonymous/AKeyIsChecked":   {anonymous, "key-c", "", "", "CREDENTIALS_INVALID"},
		"Open/BadNamespace":         {open, "", strings.Repeat("a", 64), "", "NAMESPACE_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			run, err := c.rig.client(t, grpckit.DialOptions{Token: conf.NewSecret(c.token), Namespace: c.ns}).GetRun(t.Context(), ask)
			if c.reason != "" {
				require.Equal(t, c.reason, errs.ReasonOf(err), "got %v", err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, run.GetId())
		})
	}
	raw := func(t *testing.T, token string, header ...string) (string, error) {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(t.Context(), header...)
		run, err := r.client(t, grpckit.DialOptions{Token: conf.NewSecret(token)}).GetRun(ctx, ask)
		return run.GetId(), err
	}
	zoe := access.Principal{Kind: access.Key, Name: "Zoë", Scopes: []access.Scope{access.Run}}
	t.Run("Principal/AClientCannotSetIt", func(t *testing.T) {
		for _, token := range []string{"key-a", "key-w"} {
			_, err := raw(t, token, grpckit.HeaderPrincipal, zoe.Encode())
			require.Equal(t, "PRINCIPAL_DENIED", errs.ReasonOf(err), "got %v", err)
		}
		_, err := raw(t, "", grpckit.HeaderPrincipal, zoe.Encode())
		require.Equal(t, "CREDENTIALS_MISSING", errs.ReasonOf(err), "got %v", err)
	})
	t.Run("Principal/AServicePassesItOnWithItsRights", func(t *testing.T) {
		front := r.client(t, grpckit.DialOptions{Token: conf.NewSecret("svc"), OnBehalf: true})
		run, err := front.GetRun(grpckit.WithPrincipal(t.Context(), zoe), ask)
		require.NoError(t, err)
		require.Equal(t, "key:Zoë@default", run.GetId())
		worker := access.Principal{Kind: access.Key, Name: "w", Scopes: []access.Scope{access.Worker}}
		_, err = front.GetRun(grpckit.WithPrincipal(t.Context(), worker), ask)
		require.Equal(t, access.ReasonScope, errs.ReasonOf(err), "got %v", err)
		_, err = front.GetRun(t.Context(), ask)
		require.Equal(t, "PRINCIPAL_INVALID", errs.ReasonOf(err), "a call of nobody is not one of the service: %v", err)
	})
	t.Run("Principal/NobodyActsForAService", func(t *testing.T) {
		for _, bad := range []string{"kind=service", "", "kind=key%zz"} {
			_, err := raw(t, "svc", grpckit.HeaderPrincipal, bad)
			require.Equal(t, "PRINCIPAL_INVALID", errs.ReasonOf(err), "got %v", err)
		}
		_, err := raw(t, "svc", grpckit.HeaderPrincipal, zoe.Encode(), grpckit.HeaderPrincipal, zoe.Encode())
		require.Equal(t, "HEADER_REPEATED", errs.ReasonOf(err), "got %v", err)
	})
	t.Run("Order/AuthBeforeValidation", func(t *testing.T) {
		_, err := r.client(t, grpckit.DialOptions{}).GetRun(t.Context(), &executorv1.GetRunRequest{})
		require.True(t, errs.Is(err, errs.Unauthenticated))
	})
	t.Run("Stream/HasTheNamespaceToo", func(t *testing.T) {
		r.svc.watch = func(_ *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			return errs.New(errs.NotFound, "RUN_NOT_FOUND", "in %s", grpckit.Namespace(s.Context()))
		}
		s, err := r.client(t, grpckit.DialOptions{Token: conf.NewSecret("key-a")}).WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: "x"})
		require.NoError(t, err)
		_, err = s.Recv()
		require.Equal(t, "in team-a", errs.From(err).Message)
	})
	t.Run("Health/KnowsNoSuchService", func(t *testing.T) {
		before := r.log.String()
		_, err := healthpb.NewHealthClient(r.conn(t, grpckit.DialOptions{})).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"})
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		require.NotContains(t, strings.TrimPrefix(r.log.String(), before), "level=ERROR")
	})
	t.Run("Health/NeedsNoKeyAndFollowsSetServing", func(t *testing.T) {
		h := healthpb.NewHealthClient(r.conn(t, grpckit.DialOptions{}))
		for _, serving := range []bool{false, true} {
			r.server.SetServing(serving)
			res, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "epigraph.executor.v1.ExecutorService"})
			require.NoError(t, err)
			require.Equal(t, serving, res.GetStatus() == healthpb.HealthCheckResponse_SERVING)
		}
		require.Contains(t, r.log.String(), "level=DEBUG msg=served method=/grpc.health.v1.Health/Check")
	})
	t.Run("Header/RepeatedIsRefused", func(t *testing.T) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), grpckit.HeaderAuthorization, "Bearer key-a", grpckit.HeaderAuthorization, "Bearer svc")
		_, err := r.client(t, grpckit.DialOptions{}).GetRun(ctx, ask)
		require.Equal(t, "HEADER_REPEATED", errs.ReasonOf(err))
	})
	t.Run("Config/BadKeysAreRefused", func(t *testing.T) {
		_, err := grpckit.NewServer(grpckit.Options{Auth: grpckit.AuthConfig{Keys: []grpckit.APIKey{
			{Name: "a", Namespace: "UP", Secret: conf.NewSecret("x")}, {Name: "b", Namespace: "b", Secret: conf.NewSecret("x")}, {Name: "c", Namespace: "c"},
		}}})
		for _, text := range []string{`"UP" is not valid`, "same secret", "no secret"} {
			require.ErrorContains(t, err, text)
		}
	})
	t.Run("Log/HasNoSecrets", func(t *testing.T) {
		require.NotContains(t, r.log.String(), "key-a")
		require.NotRegexp(t, `\bsvc\b`, r.log.String()) // an id may contain these letters by chance
	})
}

func TestPropagation(t *testing.T) {
	t.Parallel()
	rec := tracetest.NewSpanRecorder()
	tel := obs.Noop()
	tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
	second := start(t, grpckit.Options{Auth: grpckit.AuthConfig{ServiceToken: conf.NewSecret("svc")}, Telemetry: tel})
	seen := map[string]string{}
	second.svc.get = func(ctx context.Context, _ *executorv1.GetRunRequest) (*executorv1.Run, error) {
		seen["namespace"], seen["request"] = grpckit.Namespace(ctx), grpckit.RequestID(ctx)
		return &executorv1.Run{}, nil
	}
	behind := second.client(t, grpckit.DialOptions{Token: conf.NewSecret("svc"), Telemetry: tel})
	first := start(t, grpckit.Options{Telemetry: tel})
	first.svc.get = func(ctx context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
		return behind.GetRun(ctx, r)
	}

	ctx, root := tel.Tracer("test").Start(t.Context(), "root")
	var header metadata.MD
	_, err := first.client(t, grpckit.DialOptions{Namespace: "team-a", Telemetry: tel}).GetRun(ctx, ask, grpc.Header(&header))
	require.NoError(t, err)
	root.End()
	require.Equal(t, "team-a", seen["namespace"])
	require.Equal(t, []string{seen["request"]}, header.Get(grpckit.HeaderRequestID))

	// The server's span ends after the client has its answer.
	testkit.Eventually(t, func() bool { return len(rec.Ended()) == 5 })
	parents := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	for _, s := range rec.Ended() {
		parents[s.SpanContext().SpanID()] = s
	}
	depth := 0
	for _, s := range rec.Ended() {
		d := 0
		for p, ok := parents[s.Parent().SpanID()]; ok; p, ok = parents[p.Parent().SpanID()] {
			d++
		}
		depth = max(depth, d)
		require.Equal(t, root.SpanContext().TraceID(), s.SpanContext().TraceID())
	}
	require.Equal(t, 4, depth, "root > client > server > client > server")
}

func TestBufNet(t *testing.T) {
	t.Parallel()
	var n grpckit.BufNet
	l, err := n.Listen("a")
	require.NoError(t, err)
	_, err = n.Listen("a")
	require.ErrorContains(t, err, "taken")
	require.NoError(t, l.Close())
	_, err = n.DialContext(t.Context(), "a")
	require.ErrorContains(t, err, "nobody listens")
	l, err = n.Listen("a")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
