package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// grpc calls the gateway with a key.
func (r *rig) grpc(key string, secure *tls.Config) executorv1.ExecutorServiceClient {
	_, addr, _ := strings.Cut(r.url, "://")
	conn, err := grpckit.Dial(addr, grpckit.DialOptions{Token: conf.NewSecret(key), TLS: secure})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, conn.Close()) })
	return executorv1.NewExecutorServiceClient(conn)
}

// listening reads what workers say.
type listening struct {
	executorv1.UnimplementedWorkerServiceServer
}

func (listening) Work(s grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}

const keyOfA = "key-of-team-a-000"

func keyed(c *gateway.Config) {
	c.Keys = []grpckit.APIKey{{Name: "ci", Namespace: "team-a", Secret: conf.NewSecret(keyOfA), Scopes: []access.Scope{access.Run}}}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	t.Run("Unary/GoesThroughWithHeadersAndTrailers", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		r.executor.get = func(ctx context.Context, req *executorv1.GetRunRequest) (*executorv1.Run, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			require.Equal(t, "team-a", grpckit.Namespace(ctx))
			require.Equal(t, []string{"yes"}, md.Get("x-mine"))
			require.Equal(t, []string{"\x00\xff"}, md.Get("x-mine-bin"))
			require.NotContains(t, md.Get("authorization"), "Bearer "+keyOfA)
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Less(t, time.Until(deadline), 21*time.Second)
			require.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("x-head", "1")))
			require.NoError(t, grpc.SetTrailer(ctx, metadata.Pairs("x-trail-bin", "\x01\x02")))
			return &executorv1.Run{Id: req.GetRunId()}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "x-mine", "yes", "x-mine-bin", "\x00\xff", "x-epigraph-principal", "forged")
		var head, trail metadata.MD
		run, err := r.grpc(keyOfA, nil).GetRun(ctx, &executorv1.GetRunRequest{RunId: "run_1"}, grpc.Header(&head), grpc.Trailer(&trail))
		require.NoError(t, err)
		require.Equal(t, "run_1", run.GetId())
		require.Equal(t, []string{"1"}, head.Get("x-head"))
		require.Equal(t, []string{"\x01\x02"}, trail.Get("x-trail-bin"))
	})
	t.Run("Error/KeepsItsReasonAndDetails", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		r.executor.start = func(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
			return nil, errs.New(errs.ResourceExhausted, "EXECUTOR_MEMORY_FULL", "voll, für jetzt").Hint("later").RetryAfter(2*time.Second).Violate("graph", "X", "why")
		}
		_, err := r.grpc(keyOfA, nil).StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "n", Actor: "a"}}}})
		e := errs.From(err)
		require.Equal(t, errs.ResourceExhausted, e.Kind)
		require.Equal(t, "EXECUTOR_MEMORY_FULL", e.Reason)
		require.Equal(t, "voll, für jetzt", e.Message)
		require.Equal(t, "2", e.Meta[errs.MetaRetryAfter])
		require.Len(t, e.Violations, 1)
	})
	t.Run("Error/AMethodThatIsNotThereIsUnimplemented", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		_, addr, _ := strings.Cut(r.url, "://")
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+keyOfA)
		for _, method := range []string{"/epigraph.executor.v1.PeerService/ExplainLocal", executorv1.ScheduleService_ListSchedules_FullMethodName} {
			err := conn.Invoke(ctx, method, &executorv1.ListSchedulesRequest{}, &executorv1.ListSchedulesResponse{})
			require.Equal(t, codes.Unimplemented, status.Code(err), "got %v", err)
		}
	})
	t.Run("Stream/EventsComeAsTheyAreMadeAndCancelReachesTheService", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		next, gone := make(chan int64), make(chan struct{})
		r.executor.watch = func(req *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			defer close(gone)
			for {
				select {
				case n := <-next:
					if err := s.Send(&executorv1.RunEvent{RunId: req.GetRunId(), Seq: n}); err != nil {
						return err
					}
				case <-s.Context().Done():
					return s.Context().Err()
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watch, err := r.grpc(keyOfA, nil).WatchRun(ctx, &executorv1.WatchRunRequest{RunId: "run_1"})
		require.NoError(t, err)
		for n := range int64(3) {
			next <- n + 1
			ev, err := watch.Recv()
			require.NoError(t, err)
			require.Equal(t, n+1, ev.GetSeq())
		}
		cancel()
		<-gone
	})
	t.Run("Stream/EndsWhenTheGatewayStops", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		r.executor.watch = func(_ *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			if err := s.Send(&executorv1.RunEvent{Seq: 1}); err != nil {
				return err
			}
			<-s.Context().Done()
			return s.Context().Err()
		}
		watch, err := r.grpc(keyOfA, nil).WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: "run_1"})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.NoError(t, err)
		r.stop()
		_, err = watch.Recv()
		require.True(t, errs.Is(err, errs.Unavailable), "got %v", err)
	})
	t.Run("Service/AwayIsNamed", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		r.servers["executor"].Stop()
		_, err := r.grpc(keyOfA, nil).GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "run_1"})
		e := errs.From(err)
		require.Equal(t, "SERVICE_UNAVAILABLE", e.Reason)
		require.Equal(t, "the executor cannot be reached", e.Message)
		require.Equal(t, "executor", e.Meta["service"])
		watch, err := r.grpc(keyOfA, nil).WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: "run_1"})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.Equal(t, "executor", errs.From(err).Meta["service"], "%v", err)
	})
	t.Run("Stranger/IsToldBeforeAByteIsRead", func(t *testing.T) {
		t.Parallel()
		budget := inflight.New(64 << 20)
		r := start(t, options{config: keyed, deps: func(d *gateway.Deps) { d.Budget = budget }})
		for _, key := range []string{"", "wrong-key-of-team-a"} {
			_, err := r.grpc(key, nil).GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "x"})
			require.True(t, errs.Is(err, errs.Unauthenticated), "got %v", err)
		}
		// The message never comes; the answer does.
		body, w := io.Pipe()
		defer w.Close()
		res := r.raw(t, "/epigraph.executor.v1.ExecutorService/StartRun", body)
		require.Equal(t, "16", res.Header.Get("Grpc-Status"))
		require.Zero(t, budget.Used())
	})
	t.Run("Scopes/AreThoseOfTheKey", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		_, addr, _ := strings.Cut(r.url, "://")
		conn, err := grpckit.Dial(addr, grpckit.DialOptions{Token: conf.NewSecret(keyOfA)})
		require.NoError(t, err)
		defer conn.Close()
		_, err = executorv1.NewLimitServiceClient(conn).UpdateLimit(t.Context(), &executorv1.UpdateLimitRequest{})
		require.True(t, errs.Is(err, errs.PermissionDenied), "got %v", err)
	})
	t.Run("Message/IsBounded", func(t *testing.T) {
		t.Parallel()
		budget := inflight.New(64 << 20)
		r := start(t, options{config: func(c *gateway.Config) { keyed(c); c.MaxBodyBytes = 1 << 20 }, deps: func(d *gateway.Deps) { d.Budget = budget }})
		big := &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "n", Actor: "a", Args: []*graphv1.Payload{{Json: make([]byte, 2<<20)}}}}}
		_, err := r.grpc(keyOfA, nil).StartRun(t.Context(), &executorv1.StartRunRequest{Graph: big})
		require.Equal(t, grpckit.ReasonMessageTooLarge, errs.ReasonOf(err))
		for name, frame := range map[string][]byte{"Compressed": {1, 0, 0, 0, 1, 0}, "CutOff": {0, 0, 0, 0, 9, 1}, "Two": {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "None": {}} {
			res := r.raw(t, "/epigraph.executor.v1.ExecutorService/GetRun", strings.NewReader(string(frame)), "Authorization", "Bearer "+keyOfA)
			require.Equal(t, "3", res.Header.Get("Grpc-Status"), name)
		}
		res := r.raw(t, "/epigraph.executor.v1.ExecutorService/GetRun", strings.NewReader(string(binary.BigEndian.AppendUint32([]byte{0}, 0))), "Authorization", "Bearer "+keyOfA,
			"Grpc-Timeout", "soon")
		require.Equal(t, "3", res.Header.Get("Grpc-Status"))
		require.Zero(t, budget.Used())
	})
	t.Run("Message/OfAStreamMustNotStall", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: func(c *gateway.Config) {
			keyed(c)
			c.Keys[0].Scopes, c.BodyTimeout = []access.Scope{access.Worker}, 100*time.Millisecond
		}})
		body, w := io.Pipe()
		defer w.Close()
		go func() { _, _ = w.Write([]byte{0, 0, 0, 0, 9, 1}) }() // the rest never comes
		res := r.raw(t, "/epigraph.executor.v1.WorkerService/Work", body, "Authorization", "Bearer "+keyOfA)
		require.Equal(t, "4", res.Header.Get("Grpc-Status")+res.Trailer.Get("Grpc-Status"))
	})
	t.Run("Method/Unknown", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: keyed})
		res := r.raw(t, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", strings.NewReader(""), "Authorization", "Bearer "+keyOfA)
		require.Equal(t, "12", res.Header.Get("Grpc-Status"))
		require.Equal(t, "application/grpc", res.Header.Get("Content-Type"))
	})
}

// raw sends bytes as a gRPC call, over HTTP/2 without TLS.
func (r *rig) raw(t *testing.T, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	t.Cleanup(tr.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/grpc")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res
}

func TestTLS(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	r := start(t, options{config: keyed, deps: func(d *gateway.Deps) {
		d.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	}})
	r.executor.get = func(_ context.Context, req *executorv1.GetRunRequest) (*executorv1.Run, error) {
		return &executorv1.Run{Id: req.GetRunId()}, nil
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	run, err := r.grpc(keyOfA, trust).GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "run_1"})
	require.NoError(t, err)
	require.Equal(t, "run_1", run.GetId())
	r.url = "https" + strings.TrimPrefix(r.url, "http")
	for _, http2 := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: http2}
		r.client = &http.Client{Transport: tr}
		require.Equal(t, http.StatusOK, r.call(t, http.MethodGet, "/v1/runs/run_1", "", "Authorization", "Bearer "+keyOfA).status)
		tr.CloseIdleConnections()
	}
	r.client = &http.Client{Transport: &http.Transport{}}
	plain, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+strings.TrimPrefix(r.url, "https")+"/healthz", nil)
	require.NoError(t, err)
	res, err := r.client.Do(plain)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusBadRequest, res.StatusCode, "plain text is not answered")
}
