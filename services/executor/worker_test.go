package executor_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

const (
	keyAcme, keyOther = "key-of-acme", "key-of-other"
	keyHands          = "key-of-hands" // in the namespace of acme, with the scope worker alone
	keyTalks          = "key-of-talks" // in the namespace of acme, with the scope run alone
	serviceToken      = "token-of-services"
)

// replica is an executor behind TLS on a real port.
type replica struct {
	log    testkit.LogBuffer // from level WARN on
	t      *testing.T
	id     string
	addr   string
	tls    *tls.Config
	cancel context.CancelFunc
	server *grpckit.Server
	done   chan struct{}
}

// authority is a certificate for 127.0.0.1 and who trusts it.
func authority(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
}

func open(t *testing.T, id string, change func(*executor.Config), deps ...func(*executor.Deps)) *replica {
	t.Helper()
	server, client := authority(t)
	return openWith(t, id, server, client, change, deps...)
}

func openWith(t *testing.T, id string, serverTLS, clientTLS *tls.Config, change func(*executor.Config), deps ...func(*executor.Deps)) *replica {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &replica{t: t, id: id, addr: lis.Addr().String(), tls: clientTLS, done: make(chan struct{})}
	tel := obs.Noop()
	tel.Logger = slog.New(slog.NewMultiHandler(testkit.Logger(t).Handler(), slog.NewJSONHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	cfg := executor.DefaultConfig()
	cfg.ID, cfg.Addr, cfg.SQLitePath = id, r.addr, filepath.Join(t.TempDir(), "executor.db")
	cfg.ScanInterval, cfg.Drain, cfg.KeepAlive = 50*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	if change != nil {
		change(&cfg)
	}
	with := executor.Deps{Telemetry: tel, Peer: func(addr string) (*grpc.ClientConn, error) {
		return grpckit.Dial(addr, grpckit.DialOptions{TLS: clientTLS, Token: conf.NewSecret(serviceToken)})
	}}
	for _, more := range deps {
		more(&with)
	}
	svc, err := executor.Open(t.Context(), cfg, with)
	require.NoError(t, err)
	r.server, err = grpckit.NewServer(grpckit.Options{Telemetry: tel, TLS: serverTLS, Auth: grpckit.AuthConfig{
		ServiceToken: conf.NewSecret(serviceToken), Keys: []grpckit.APIKey{
			{Name: "acme", Namespace: "acme", Secret: conf.NewSecret(keyAcme), Scopes: access.Scopes()},
			{Name: "hands", Namespace: "acme", Secret: conf.NewSecret(keyHands), Scopes: []access.Scope{access.Worker}},
			{Name: "talks", Namespace: "acme", Secret: conf.NewSecret(keyTalks), Scopes: access.DefaultScopes()},
			{Name: "other", Namespace: "other", Secret: conf.NewSecret(keyOther), Scopes: access.Scopes()}}}})
	require.NoError(t, err)
	svc.Register(r.server)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.server.Serve(lis) })
	wg.Go(func() { _ = svc.Run(ctx) })
	go func() {
		wg.Wait()
		_ = svc.Close()
		close(r.done)
	}()
	t.Cleanup(func() {
		r.server.Stop()
		r.cancel()
		<-r.done
	})
	c := r.client(keyAcme)
	testkit.Eventually(t, func() bool {
		_, err := c.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "warm", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}})})
		return err == nil
	})
	return r
}

func (r *replica) dial(key string) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpckit.Dial(r.addr, grpckit.DialOptions{TLS: r.tls, Token: conf.NewSecret(key)})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *replica) client(key string) executorv1.ExecutorServiceClient {
	return executorv1.NewExecutorServiceClient(r.dial(key))
}

// raw is a worker that does what the test says.
type raw struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[executorv1.WorkRequest, executorv1.WorkResponse]
	cancel context.CancelFunc
	got    chan *executorv1.WorkResponse
	err    error // once got is closed
	mu     sync.Mutex
}

func hello(slots int, actors ...*executorv1.WorkerActor) *executorv1.WorkerHello {
	return &executorv1.WorkerHello{Actors: actors, Slots: int32(slots), UserAgent: "test/1"}
}

func serves(name string, effect graphv1.Effect) *executorv1.WorkerActor {
	return &executorv1.WorkerActor{Name: name, Effect: effect, Version: "1"}
}

func pure(name string) *executorv1.WorkerActor { return serves(name, graphv1.Effect_EFFECT_PURE) }

func unsafe(name string) *executorv1.WorkerActor { return serves(name, graphv1.Effect_EFFECT_UNSAFE) }

// connect says hello and returns the first answer or how the stream ended.
func (r *replica) connect(t *testing.T, key string, h *executorv1.WorkerHello) (*raw, *executorv1.WorkerWelcome, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := executorv1.NewWorkerServiceClient(r.dial(key)).Work(ctx)
	require.NoError(t, err)
	w := &raw{t: t, stream: stream, cancel: cancel, got: make(chan *executorv1.WorkResponse, 1000)}
	w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Hello{Hello: h}})
	m, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	go func() {
		defer close(w.got)
		for {
			m, err := stream.Recv()
			if err != nil {
				w.err = err
				return
			}
			w.got <- m
		}
	}()
	return w, m.GetWelcome(), nil
}

func (r *replica) worker(t *testing.T, h *executorv1.WorkerHello) *raw {
	t.Helper()
	w, welcome, err := r.connect(t, keyAcme, h)
	require.NoError(t, err)
	require.NotNil(t, welcome)
	require.Equal(t, r.id, welcome.GetExecutorId())
	return w
}

func (w *raw) say(m *executorv1.WorkRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		w.t.Errorf("send: %v", err)
	}
}

func (w *raw) next() *executorv1.WorkResponse {
	w.t.Helper()
	select {
	case m, ok := <-w.got:
		if !ok { // the stream's error may be read from now on
			w.t.Fatalf("the stream ended: %v", w.err)
		}
		return m
	case <-time.After(60 * time.Second):
		w.t.Fatal("nothing came")
		return nil
	}
}

func (w *raw) visit() *executorv1.Attempt {
	w.t.Helper()
	for {
		m := w.next()
		if m.GetHeartbeat() != nil {
			continue
		}
		require.NotNil(w.t, m.GetAttempt(), "got %v", m)
		return m.GetAttempt()
	}
}

func (w *raw) answer(token string, values ...string) {
	out := &executorv1.Outcome{}
	for _, v := range values {
		out.Values = append(out.Values, value(v))
	}
	w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Outcome{Outcome: &executorv1.AttemptOutcome{Token: token, Outcome: out}}})
}

func (w *raw) fail(token string, e *executorv1.AttemptError) {
	w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Error{Error: &executorv1.AttemptFailure{Token: token, Error: e}}})
}

// echo answers every visit with its node's name until the stream ends, and obeys cancels.
func (w *raw) echo() {
	for m := range w.got {
		if c := m.GetCancel(); c != nil {
			w.fail(c.GetToken(), &executorv1.AttemptError{})
		}
		if v := m.GetAttempt(); v != nil {
			w.answer(v.GetToken(), fmt.Sprintf("%q", v.GetVisit().GetNodeId()))
		}
	}
}

type run struct {
	t *testing.T
	c executorv1.ExecutorServiceClient
	*executorv1.Run
}

func start(t *testing.T, c executorv1.ExecutorServiceClient, g *graphv1.Graph) run {
	t.Helper()
	r, err := c.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
	require.NoError(t, err)
	return run{t, c, r}
}

func (r run) is(want executorv1.RunState) *executorv1.Run {
	r.t.Helper()
	var got *executorv1.Run
	testkit.Eventually(r.t, func() bool {
		var err error
		got, err = r.c.GetRun(r.t.Context(), &executorv1.GetRunRequest{RunId: r.GetId()})
		return err == nil && got.GetState() == want
	}, "run is %v", got)
	return got
}

// openOne opens an executor that soon misses the heartbeats of workers.
func openOne(t *testing.T) *replica {
	t.Helper()
	return open(t, "one", func(c *executor.Config) {
		c.Workers.HeartbeatInterval, c.Workers.HeartbeatTimeout = time.Second, 3*time.Second
		c.Workers.MaxStreams = 12
	})
}

// alive keeps the heart of a worker beating until the test ends.
func alive(t *testing.T, w *raw) {
	t.Helper()
	go func() {
		for n := int64(1); w.stream.Context().Err() == nil; n++ {
			w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Heartbeat{Heartbeat: &executorv1.WorkerHeartbeat{Number: n}}})
			select {
			case <-w.stream.Context().Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
}

func workNode(id, actor string) *graphv1.Node { return &graphv1.Node{Id: id, Actor: actor} }

func TestWorkersVisitCarriesAllAndOutcomeTravels(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(2, pure("carry"), pure("carried")))
	got := start(t, c, nodes(
		&graphv1.Node{Id: "a", Actor: "carry", Args: []*graphv1.Payload{value(`1`)}, Named: map[string]*graphv1.Payload{"x": value(`{"y":[1]}`)},
			ResultPassDownMode: &graphv1.PassDown{Mode: &graphv1.PassDown_ResultAsFirstArg{ResultAsFirstArg: &graphv1.ResultAsFirstArg{}}}},
		workNode("b", "carried")))
	v := w.visit()
	require.Equal(t, got.GetId(), v.GetRunId())
	require.Equal(t, []any{"a", int32(1), "carry", "1", `{"y":[1]}`, graphv1.Effect_EFFECT_PURE},
		[]any{v.GetVisit().GetNodeId(), v.GetAttempt(), v.GetActor(), string(v.GetArgs()[0].GetJson()), string(v.GetNamed()["x"].GetJson()), v.GetEffect()})
	require.NotEmpty(t, v.GetEffectKey())
	w.answer(v.GetToken(), `"from a"`)
	v = w.visit()
	require.Equal(t, `"from a"`, string(v.GetArgs()[0].GetJson()))
	require.Equal(t, "a", v.GetUpstream()[0].GetNodeId())
	w.answer(v.GetToken(), `"end"`)
	require.Equal(t, `"end"`, string(got.is(done).GetResult().GetJson()))
	w.answer(v.GetToken(), `"again"`)
	require.Equal(t, v.GetToken(), w.next().GetStale().GetToken(), "a second answer changes nothing")
	w.answer("no-token-at-all", `1`)
	require.Equal(t, "no-token-at-all", w.next().GetStale().GetToken())
}

func TestWorkersHelloFaultsAreToldAllAtOnce(t *testing.T) {
	r := openOne(t)
	bad := &executorv1.WorkerActor{Name: "ok", ArgsSchema: value(`{"type": 7}`)}
	_, _, err := r.connect(t, keyAcme, hello(1, pure("cel"), pure("mcp/files/read"), pure("a b"), bad, pure("ok")))
	require.Equal(t, "HELLO_INVALID", errs.ReasonOf(err), "got %v", err)
	var reasons []string
	for _, v := range errs.From(err).Violations {
		reasons = append(reasons, v.Field+" "+v.Reason)
	}
	require.Equal(t, []string{"hello.actors[0].name ACTOR_NAME_RESERVED", "hello.actors[1].name ACTOR_NAME_RESERVED", "hello.actors[2].name ACTOR_NAME_INVALID",
		"hello.actors[3].args_schema SCHEMA_INVALID", "hello.actors[4].name ACTOR_REPEATED"}, reasons)
	_, _, err = r.connect(t, keyAcme, hello(0, pure("x")))
	require.Equal(t, "REQUEST_INVALID", errs.ReasonOf(err), "got %v", err)
	_, _, err = r.connect(t, "key-of-nobody", hello(1, pure("x")))
	require.Equal(t, "CREDENTIALS_INVALID", errs.ReasonOf(err), "got %v", err)
}

func TestWorkersHelloEffectStaysWhileServed(t *testing.T) {
	r := openOne(t)
	w := r.worker(t, hello(1, pure("steady")))
	_, _, err := r.connect(t, keyAcme, hello(1, unsafe("steady")))
	require.Equal(t, "ACTOR_EFFECT_CONFLICT", errs.ReasonOf(err), "got %v", err)
	_, _, err = r.connect(t, keyOther, hello(1, unsafe("steady")))
	require.NoError(t, err, "another namespace has its own actors")
	w.cancel()
	testkit.Eventually(t, func() bool {
		_, _, err := r.connect(t, keyAcme, hello(1, unsafe("steady")))
		return err == nil
	})
}

func TestWorkersActorsArePerNamespaceAndKnownWithoutWorkers(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	_, err := c.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(workNode("a", "sumarize"))})
	require.Equal(t, "GRAPH_INVALID", errs.ReasonOf(err))
	w := r.worker(t, hello(1, &executorv1.WorkerActor{Name: "summarize", Effect: graphv1.Effect_EFFECT_PURE, ArgsSchema: value(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}))
	w.cancel()
	_, err = c.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(workNode("a", "sumarize"))})
	require.Contains(t, errs.From(err).Violations[0].Message, "summarize", "near names are told")
	_, err = c.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "summarize", Named: map[string]*graphv1.Payload{"n": value(`"x"`)}})})
	require.Equal(t, "GRAPH_INVALID", errs.ReasonOf(err), "the schema is checked")
	_, err = r.client(keyOther).StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(workNode("a", "summarize"))})
	require.Equal(t, "GRAPH_INVALID", errs.ReasonOf(err), "not known elsewhere")
	got := start(t, c, nodes(workNode("a", "summarize")))
	list, err := c.ListActors(t.Context(), &executorv1.ListActorsRequest{})
	require.NoError(t, err)
	var names []string
	for _, a := range list.GetActors() {
		names = append(names, a.GetName())
	}
	require.Subset(t, names, []string{"cel", "summarize"})
	w = r.worker(t, hello(1, pure("summarize")))
	w.answer(w.visit().GetToken(), `1`)
	got.is(done)
}

func TestWorkersSlotsAreRespected(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	limited := pure("narrow")
	limited.Slots = 1
	w := r.worker(t, hello(3, limited, pure("wide")))
	alive(t, w)
	var g graphv1.Graph
	for i := range 3 {
		g.Nodes = append(g.Nodes, workNode(fmt.Sprintf("n%d", i), "narrow"), workNode(fmt.Sprintf("w%d", i), "wide"))
	}
	got := start(t, c, &g)
	open := map[string]int{}
	var tokens []string
	for len(tokens) < 3 {
		if v := w.next().GetAttempt(); v != nil {
			open[v.GetActor()]++
			tokens = append(tokens, v.GetToken())
		}
	}
	require.Equal(t, map[string]int{"narrow": 1, "wide": 2}, open)
	for _, token := range tokens {
		w.answer(token, `1`)
	}
	go w.echo()
	got.is(done)
}

func TestWorkersErrorsKeepTheirType(t *testing.T) {
	const failed = executorv1.RunState_RUN_STATE_FAILED
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(1, unsafe("fails")))
	got := start(t, c, nodes(workNode("a", "fails")))
	w.fail(w.visit().GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_PERMANENT, Reason: "NO_CREDIT", Message: "pay first"})
	e := got.is(failed).GetError()
	require.Equal(t, []string{"NO_CREDIT", "pay first"}, []string{e.GetReason(), e.GetMessage()})
}

func TestWorkersAnswerThatCannotBeUsedFailsItsVisitAlone(t *testing.T) {
	const done, failed = executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(1, pure("odd")))
	got := start(t, c, nodes(workNode("a", "odd")))
	v := w.visit()
	w.answer(v.GetToken(), `not json`)
	refused := w.next().GetRefused()
	require.Equal(t, []string{v.GetToken(), "BAD_OUTCOME"}, []string{refused.GetToken(), refused.GetReason()})
	require.Contains(t, refused.GetMessage(), "values[0]")
	require.Equal(t, "BAD_OUTCOME", got.is(failed).GetError().GetReason())

	got = start(t, c, nodes(workNode("a", "odd")))
	v = w.visit()
	w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Outcome{Outcome: &executorv1.AttemptOutcome{Token: v.GetToken(),
		Outcome: &executorv1.Outcome{Wait: &executorv1.Wait{}}}}})
	require.NotNil(t, w.next().GetRefused(), "a broken rule of shape")
	require.Equal(t, "BAD_OUTCOME", got.is(failed).GetError().GetReason())
	got = start(t, c, nodes(workNode("a", "odd")))
	w.answer(w.visit().GetToken(), `1`)
	got.is(done)
}

func TestWorkersLostGoesToAnother(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	first := r.worker(t, hello(1, pure("moves")))
	got := start(t, c, nodes(workNode("a", "moves")))
	v := first.visit()
	first.cancel()
	second := r.worker(t, hello(1, pure("moves")))
	alive(t, second)
	next := second.visit()
	require.Equal(t, []any{int32(2), v.GetEffectKey()}, []any{next.GetAttempt(), next.GetEffectKey()})
	second.answer(v.GetToken(), `"late"`)
	for { // heartbeats are answered too
		if m := second.next(); m.GetStale() != nil {
			break
		}
	}
	second.answer(next.GetToken(), `"second"`)
	require.Equal(t, `"second"`, string(got.is(done).GetResult().GetJson()))
}

func TestWorkersLostUsesUpNoTry(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	r.worker(t, hello(1, pure("dies"))).cancel() // now it is known
	got := start(t, c, nodes(soonAgain(workNode("a", "dies"))))
	for range 5 {
		w := r.worker(t, hello(1, pure("dies")))
		w.visit()
		w.cancel()
	}
	w := r.worker(t, hello(1, pure("dies")))
	w.answer(w.visit().GetToken(), `"at last"`)
	require.Equal(t, `"at last"`, string(got.is(done).GetResult().GetJson()))
}

func TestWorkersLostCannotBeClaimedByAnActor(t *testing.T) {
	const failed = executorv1.RunState_RUN_STATE_FAILED
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(1, pure("claims")))
	got := start(t, c, nodes(soonAgain(workNode("a", "claims"))))
	for range 3 {
		w.fail(w.visit().GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_UNKNOWN, Reason: "LOST"})
	}
	got.is(failed)
}

func TestWorkersDeclinedGoesToAnotherAsTheSameAttempt(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	first := r.worker(t, hello(1, unsafe("declines")))
	got := start(t, c, nodes(workNode("a", "declines")))
	v := first.visit()
	first.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Declined{Declined: &executorv1.AttemptDeclined{Token: v.GetToken()}}})
	for range first.got {
	}
	require.ErrorIs(t, first.err, io.EOF, "it takes no more visits")
	second := r.worker(t, hello(1, unsafe("declines")))
	next := second.visit()
	require.Equal(t, []any{int32(1), v.GetEffectKey()}, []any{next.GetAttempt(), next.GetEffectKey()})
	second.answer(next.GetToken(), `1`)
	got.is(done)
}

func TestWorkersLostUnsafeIsNeverRepeated(t *testing.T) {
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(1, unsafe("once")))
	got := start(t, c, nodes(workNode("a", "once")))
	w.visit()
	w.cancel()
	got.is(executorv1.RunState_RUN_STATE_PAUSED)
	vs, err := c.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: got.GetId()})
	require.NoError(t, err)
	require.Equal(t, executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION, vs.GetVisits()[0].GetState())
}

func TestWorkersLostSilenceCounts(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(1, pure("quiet")))
	got := start(t, c, nodes(workNode("a", "quiet")))
	w.visit()
	for range w.got {
	}
	require.Equal(t, "WORKER_SILENT", errs.ReasonOf(w.err), "got %v", w.err)
	other := r.worker(t, hello(1, pure("quiet")))
	alive(t, other)
	other.answer(other.visit().GetToken(), `1`)
	got.is(done)
}

func TestWorkersCancelReachesTheWorker(t *testing.T) {
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(1, unsafe("long")))
	got := start(t, c, nodes(workNode("a", "long")))
	v := w.visit()
	_, err := c.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: got.GetId()})
	require.NoError(t, err)
	cancel := w.next().GetCancel()
	require.Equal(t, []string{v.GetToken(), "CANCELED"}, []string{cancel.GetToken(), cancel.GetReason()})
	w.fail(v.GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_NOT_PERFORMED})
	got.is(executorv1.RunState_RUN_STATE_CANCELED)
}

func TestWorkersProgressIsSeenAndGoesToTheNextAttempt(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(1, pure("steps")))
	alive(t, w)
	got := start(t, c, nodes(workNode("a", "steps")))
	stream, err := c.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: got.GetId()})
	require.NoError(t, err)
	v := w.visit()
	seen := make(chan string, 100)
	go func() {
		for {
			ev, err := stream.Recv()
			if err != nil {
				return
			}
			if tok := ev.GetTokenDelta(); tok != nil {
				seen <- tok.GetText()
			}
		}
	}()
	testkit.Eventually(t, func() bool {
		w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Tokens{Tokens: &executorv1.AttemptTokens{Token: v.GetToken(), Text: "word"}}})
		select {
		case s := <-seen:
			return s == "word"
		default:
			return false
		}
	})
	w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Progress{Progress: &executorv1.AttemptHeartbeat{Token: v.GetToken(), Details: value(`{"page":3}`)}}})
	w.fail(v.GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_RETRYABLE, Reason: "AGAIN"})
	v = w.visit()
	require.JSONEq(t, `{"page":3}`, string(v.GetDetails().GetJson()))
	require.EqualValues(t, 2, v.GetAttempt())
	require.Equal(t, got.GetId(), v.GetRootRunId())
	w.answer(v.GetToken(), `1`)
	got.is(done)
}

func TestWorkersDrainLetsVisitsEnd(t *testing.T) {
	const done = executorv1.RunState_RUN_STATE_COMPLETED
	r := openOne(t)
	c := r.client(keyAcme)
	w := r.worker(t, hello(2, pure("leaves")))
	got := start(t, c, nodes(workNode("a", "leaves"), workNode("b", "leaves")))
	v := w.visit()
	w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Drain{Drain: &executorv1.WorkerDrain{}}})
	testkit.Eventually(t, func() bool {
		list, err := executorv1.NewWorkerServiceClient(r.dial(keyAcme)).ListWorkers(t.Context(), &executorv1.ListWorkersRequest{})
		require.NoError(t, err)
		for _, i := range list.GetWorkers() {
			if i.GetActors()[0] == "leaves" {
				require.EqualValues(t, 1, i.GetBusy())
				return i.GetDraining()
			}
		}
		return false
	})
	w.answer(v.GetToken(), `1`)
	for range w.got {
	}
	require.ErrorIs(t, w.err, io.EOF)
	w = r.worker(t, hello(1, pure("leaves")))
	w.answer(w.visit().GetToken(), `2`)
	got.is(done)
}

// soonAgain lets a node try again at once.
func soonAgain(n *graphv1.Node) *graphv1.Node {
	n.Retry = &graphv1.Retry{InitialInterval: durationpb.New(time.Millisecond), MaxInterval: durationpb.New(time.Millisecond)}
	return n
}
