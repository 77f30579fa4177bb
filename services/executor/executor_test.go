package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakeRegistry is a registry that records its calls.
type fakeRegistry struct {
	registryv1.UnimplementedRegistryServiceServer
	down atomic.Bool

	mu sync.Mutex
	// refuse, if not nil, is the answer to every claim.
	refuse  error
	claimed map[string]string
	// databases are those of the last claims, by task.
	databases map[string]string
	log       []string
	// entries are the booked entries, the last of each node; booked is all of them.
	entries map[string]*registryv1.UsageEntry
	booked  []*registryv1.UsageEntry
	settled []*registryv1.SettleClaimRequest
	// confirmed are the claims that were confirmed.
	confirmed []*registryv1.ConfirmClaimRequest
	changes   []*registryv1.RunChange
	threads   []*registryv1.ThreadChange
	// unwanted are orders to runs; onClaim, if not nil, is called with every claim for longer than a
	// moment.
	unwanted []*registryv1.Order
	onClaim  func(task, run string)
	// tasks are those to start, refused those that could not be, leased how often orders were asked
	// for.
	tasks   map[string]*registryv1.Task
	epics   map[string]*registryv1.Epic
	refused []*registryv1.RefusedStart
	leased  int
}

func (b *fakeRegistry) do(what string, f func() error) error {
	if b.down.Load() {
		return errs.New(errs.Unavailable, "DOWN", "down")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, what)
	return f()
}

func (b *fakeRegistry) ClaimTask(_ context.Context, r *registryv1.ClaimTaskRequest) (*registryv1.ClaimTaskResponse, error) {
	return &registryv1.ClaimTaskResponse{Task: &registryv1.Task{Id: r.GetTaskId(), EpicId: "ep_of_" + r.GetTaskId()}}, b.do("claim", func() error {
		if b.claimed == nil {
			b.claimed, b.databases = map[string]string{}, map[string]string{}
		}
		if b.refuse != nil && r.GetLease().AsDuration() >= time.Second {
			return b.refuse
		}
		if holder := b.claimed[r.GetTaskId()]; holder != "" && holder != r.GetRunId() {
			return errs.New(errs.FailedPrecondition, "TASK_NOT_CLAIMABLE", "claimed").Set("run_id", holder)
		}
		b.claimed[r.GetTaskId()] = r.GetRunId()
		b.databases[r.GetTaskId()] = r.GetDatabase()
		if r.GetLease().AsDuration() < time.Second {
			delete(b.claimed, r.GetTaskId())
		} else if b.onClaim != nil {
			b.onClaim(r.GetTaskId(), r.GetRunId())
		}
		return nil
	})
}

func (b *fakeRegistry) ConfirmClaim(_ context.Context, r *registryv1.ConfirmClaimRequest) (*registryv1.Task, error) {
	return &registryv1.Task{}, b.do("confirm", func() error {
		b.confirmed = append(b.confirmed, r)
		return nil
	})
}

func (b *fakeRegistry) SettleClaim(_ context.Context, r *registryv1.SettleClaimRequest) (*registryv1.Task, error) {
	return &registryv1.Task{}, b.do("settle", func() error {
		b.settled = append(b.settled, r)
		if b.claimed[r.GetTaskId()] == r.GetRunId() {
			delete(b.claimed, r.GetTaskId())
		}
		return nil
	})
}

func (b *fakeRegistry) RecordUsage(ctx context.Context, r *registryv1.RecordUsageRequest) (*registryv1.RecordUsageResponse, error) {
	resp := &registryv1.RecordUsageResponse{}
	return resp, b.do("usage "+grpckit.Namespace(ctx), func() error {
		for _, e := range r.GetEntries() {
			e = priced(e)
			if b.entries == nil {
				b.entries = map[string]*registryv1.UsageEntry{}
			}
			b.entries[e.GetNodeId()] = e
			b.booked = append(b.booked, e)
			resp.Entries = append(resp.Entries, e)
		}
		return nil
	})
}

// priced is an entry with the price of the one model that has one.
func priced(e *registryv1.UsageEntry) *registryv1.UsageEntry {
	e = proto.CloneOf(e)
	if e.GetModel() == "priced" {
		e.CostNanoUsd = proto.Int64(7 * e.GetInputTokens())
	}
	return e
}

func (b *fakeRegistry) PriceUsage(_ context.Context, r *registryv1.PriceUsageRequest) (*registryv1.PriceUsageResponse, error) {
	resp := &registryv1.PriceUsageResponse{}
	for _, e := range r.GetEntries() {
		resp.Entries = append(resp.Entries, priced(e))
	}
	return resp, nil
}

// fixture is an executor behind real gRPC, with a registry beside it.
type fixture struct {
	catalog fakeCatalog
	executorv1.ExecutorServiceClient
	triggers executorv1.TriggerServiceClient
	registry *fakeRegistry
	conn     *grpc.ClientConn
	spans    *tracetest.InMemoryExporter
	metrics  *sdkmetric.ManualReader
	server   *grpckit.Server
}

func value(s string) *graphv1.Payload { return &graphv1.Payload{Json: []byte(s)} }

func serve(t *testing.T, actors workgraph.Actors, change ...func(*executor.Config)) *fixture {
	t.Helper()
	return serveBeside(t, &fakeRegistry{}, actors, change...)
}

// serveBeside is serve with a registry that others may use as well.
func serveBeside(t *testing.T, registry *fakeRegistry, actors workgraph.Actors, change ...func(*executor.Config)) *fixture {
	t.Helper()
	f := &fixture{registry: registry, spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(f.spans))
	tel := obs.Noop()
	tel.TracerProvider, tel.Logger = provider, testkit.Logger(t)
	tel.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(f.metrics))
	var buf grpckit.BufNet

	regServer, err := grpckit.NewServer(grpckit.Options{Telemetry: tel})
	require.NoError(t, err)
	registryv1.RegisterRegistryServiceServer(regServer, f.registry)
	registryv1.RegisterWorkflowServiceServer(regServer, &f.catalog)
	regConn, err := grpckit.Dial("registry", grpckit.DialOptions{Buf: &buf, Telemetry: tel})
	require.NoError(t, err)

	cfg := executor.DefaultConfig()
	cfg.SQLitePath, cfg.ScanInterval, cfg.KeepAlive, cfg.Drain = filepath.Join(t.TempDir(), "executor.db"), 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	for _, f := range change {
		f(&cfg)
	}
	svc, err := executor.Open(t.Context(), cfg, executor.Deps{Registry: registryv1.NewRegistryServiceClient(regConn), Catalog: registryv1.NewWorkflowServiceClient(regConn), Actors: actors, Telemetry: tel})
	require.NoError(t, err)
	server, err := grpckit.NewServer(grpckit.Options{Telemetry: tel})
	require.NoError(t, err)
	svc.Register(server)
	f.server = server
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for name, s := range map[string]*grpckit.Server{"registry": regServer, "executor": server} {
		l, err := buf.Listen(name)
		require.NoError(t, err)
		wg.Go(func() { _ = s.Serve(l) })
	}
	wg.Go(func() { _ = svc.Run(ctx) })
	conn, err := grpckit.Dial("executor", grpckit.DialOptions{Buf: &buf, Namespace: "acme", Telemetry: tel})
	require.NoError(t, err)
	f.conn = conn
	f.ExecutorServiceClient, f.triggers = executorv1.NewExecutorServiceClient(conn), executorv1.NewTriggerServiceClient(conn)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		server.Stop()
		regServer.Stop()
		wg.Wait()
		require.NoError(t, regConn.Close())
		require.NoError(t, svc.Close())
		require.NoError(t, svc.Close(), "closing twice")
	})
	testkit.Eventually(t, func() bool {
		_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "warm", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}})})
		return err == nil
	})
	return f
}

func nodes(ns ...*graphv1.Node) *graphv1.Graph {
	g := &graphv1.Graph{Name: "test", Nodes: ns}
	for i := 1; i < len(ns); i++ {
		g.Edges = append(g.Edges, &graphv1.Edge{From: ns[i-1].GetId(), To: ns[i].GetId()})
	}
	return g
}

func (f *fixture) wait(t *testing.T, id string, want executorv1.RunState) *executorv1.Run {
	t.Helper()
	var (
		run *executorv1.Run
		err error
	)
	testkit.Eventually(t, func() bool {
		run, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
		return err != nil || run.GetState() == want
	}, "run %s", id)
	require.NoError(t, err)
	return run
}

func (f *fixture) watch(t *testing.T, req *executorv1.WatchRunRequest) []*executorv1.RunEvent {
	t.Helper()
	stream, err := f.WatchRun(t.Context(), req)
	require.NoError(t, err)
	var out []*executorv1.RunEvent
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, ev)
	}
}

func model(name string, fail bool) workgraph.Actor {
	return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		usage := []workgraph.Usage{{Provider: "p", Model: name, InputTokens: 10, OutputTokens: 3, CachedTokens: 2, ReasoningTokens: 1}}
		if fail {
			e := workgraph.Errorf(workgraph.Permanent, "REFUSED", "no")
			e.Usage = usage
			return workgraph.Outcome{}, e
		}
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"said"`)}, Usage: usage}, nil
	})
}

func TestService(t *testing.T) {
	block := make(chan struct{})
	f := serve(t, workgraph.Actors{"model": model("priced", false), "odd": model("unknown", false), "refuses": model("priced", true),
		"blocks": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			select {
			case <-ctx.Done():
				return workgraph.Outcome{}, ctx.Err()
			case <-block:
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`1`)}}, nil
			}
		})})

	t.Run("StartRun/KeepsWhatWasGiven", func(t *testing.T) {
		req := &executorv1.StartRunRequest{
			Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"}), Args: []*graphv1.Payload{value(`9007199254740993`)}, Named: map[string]*graphv1.Payload{"k": value(`{"a":1}`)},
			UserId: "u", ChatId: "c", Context: value(`{"x":[1]}`), Metadata: map[string]string{"m": "1"}, Labels: map[string]string{"team": "red"},
			BusinessKey: "order-1", Attachments: []*executorv1.Attachment{{Id: "d", Description: "doc", MediaType: "text/plain", Content: value(`"hi"`), Uri: "file:x"}},
		}
		run, err := f.StartRun(t.Context(), req)
		require.NoError(t, err)
		got := f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		require.Equal(t, "acme", got.GetNamespace())
		require.Equal(t, got.GetId(), got.GetRootRunId())
		require.Equal(t, "test", got.GetGraphName())
		require.Equal(t, `"said"`, string(got.GetResult().GetJson()))
		require.Equal(t, `"said"`, string(got.GetOutputs()["a"].GetJson()))
		require.NotEmpty(t, got.GetEtag())
		require.Len(t, got.GetTraceId(), 32)
		require.NotNil(t, got.GetEndTime())
		back := &executorv1.StartRunRequest{Graph: req.GetGraph(), Args: got.GetArgs(), Named: got.GetNamed(), UserId: got.GetUserId(), ChatId: got.GetChatId(),
			Context: got.GetContext(), Metadata: got.GetMetadata(), Labels: got.GetLabels(), BusinessKey: got.GetBusinessKey(), Attachments: got.GetAttachments()}
		require.Empty(t, cmp.Diff(req, back, protocmp.Transform()))
		graph, err := f.GetRunGraph(t.Context(), &executorv1.GetRunGraphRequest{RunId: run.GetId()})
		require.NoError(t, err)
		require.Equal(t, got.GetGraphHash(), graph.GetGraphHash())
		require.Equal(t, "a", graph.GetGraph().GetNodes()[0].GetId())
	})
	t.Run("StartRun/AllFaultsAtOnce", func(t *testing.T) {
		_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{
			Nodes: []*graphv1.Node{{Id: "a", Actor: "modl"}, {Id: "b", Actor: "cel", Args: []*graphv1.Payload{value(`{`)}}},
			Edges: []*graphv1.Edge{{From: "a", To: "b"}, {From: "b", To: "a"}, {From: "b", To: "nowhere"}}}})
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
		got := map[string]string{}
		for _, v := range errs.From(err).Violations {
			got[v.Reason] = v.Field + ": " + v.Message
		}
		require.Contains(t, got["UNKNOWN_ACTOR"], "graph.nodes[a]")
		require.Contains(t, got["UNKNOWN_ACTOR"], "did you mean model")
		require.Contains(t, got, "PAYLOAD_INVALID")
		require.Contains(t, got, "UNKNOWN_NODE")
	})
	t.Run("StartRun/SameRequestIDSameRun", func(t *testing.T) {
		req := &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"}), RequestId: "once", TaskId: "tk_once"}
		first, err := f.StartRun(t.Context(), req)
		require.NoError(t, err)
		again, err := f.StartRun(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, first.GetId(), again.GetId())
		req.Graph.Name = "other"
		_, err = f.StartRun(t.Context(), req)
		require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(err))
	})
	t.Run("WatchRun/MatchesTheJournal", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"}, &graphv1.Node{Id: "b", Actor: "model"})})
		require.NoError(t, err)
		evs := f.watch(t, &executorv1.WatchRunRequest{RunId: run.GetId(), DurableOnly: true})
		// How often nothing happened for a while is a matter of what else the machine does.
		evs = slices.DeleteFunc(evs, func(ev *executorv1.RunEvent) bool { return ev.GetKeepAlive() != nil })
		require.Len(t, evs, 4)
		for i, ev := range evs {
			require.Equal(t, int64(i+1), ev.GetSeq())
			require.Equal(t, run.GetId(), ev.GetRunId())
		}
		require.Equal(t, []string{"a"}, evs[0].GetRunStarted().GetStartNodes())
		require.Equal(t, run.GetGraphHash(), evs[0].GetRunStarted().GetGraphHash())
		end := evs[1].GetAttemptEnded()
		require.Equal(t, executorv1.VisitState_VISIT_STATE_COMPLETED, end.GetState())
		require.Equal(t, "model", end.GetActor())
		require.Equal(t, []string{"b"}, end.GetReadyNodes())
		require.Equal(t, int64(10), end.GetUsage().GetInputTokens())
		require.NotNil(t, end.GetStartTime())
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, evs[3].GetRunEnded().GetState())
		rest := f.watch(t, &executorv1.WatchRunRequest{RunId: run.GetId(), AfterSeq: 2, IncludeDescendants: true})
		require.Len(t, rest, 2)
		visits, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: run.GetId(), PageSize: 1})
		require.NoError(t, err)
		require.NotEmpty(t, visits.GetNextPageToken())
		require.Equal(t, "a", visits.GetVisits()[0].GetNodeId())
		require.Equal(t, graphv1.Effect_EFFECT_IDEMPOTENT, visits.GetVisits()[0].GetEffect())
	})
	t.Run("CancelRun/EndsTheCall", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "blocks"})})
		require.NoError(t, err)
		_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: run.GetId(), Etag: `"999"`})
		require.Equal(t, "ETAG_MISMATCH", errs.ReasonOf(err))
		_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: run.GetId(), Etag: "nonsense"})
		require.True(t, errs.Is(err, errs.Conflict))
		_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: run.GetId(), Reason: "changed my mind"})
		require.NoError(t, err)
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_CANCELED)
	})
	t.Run("WatchRun/TellsThatItHasBegunBeforeAnythingHappens", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"})})
		require.NoError(t, err)
		evs := f.watch(t, &executorv1.WatchRunRequest{RunId: run.GetId(), DurableOnly: true})
		last := evs[len(evs)-1].GetSeq()
		for name, c := range map[string]struct {
			id    string
			begun bool
		}{"Silent": {run.GetId(), true}, "None": {"run_none", false}} {
			stream, err := f.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: c.id, AfterSeq: last})
			require.NoError(t, err, name)
			head, err := stream.Header()
			require.NoError(t, err, name)
			require.Equal(t, c.begun, grpckit.Watching(head), name)
			_, err = stream.Recv()
			require.Equal(t, c.begun, errors.Is(err, io.EOF), "%s: %v", name, err)
		}
	})
	t.Run("KeepAlive/ShowsTheCursor", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "blocks"})})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := f.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: run.GetId()})
		require.NoError(t, err)
		for {
			ev, err := stream.Recv()
			require.NoError(t, err)
			if ev.GetKeepAlive() != nil {
				require.Equal(t, int64(1), ev.GetKeepAlive().GetLastSeq())
				break
			}
		}
	})
	t.Run("ListRuns/FiltersAndPages", func(t *testing.T) {
		for range 3 {
			_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"}), Labels: map[string]string{"page": "yes"}})
			require.NoError(t, err)
		}
		var got []string
		req := &executorv1.ListRunsRequest{PageSize: 2, Labels: map[string]string{"page": "yes"}, CreatedAfter: timestamppb.New(time.Now().Add(-time.Hour))}
		for {
			page, err := f.ListRuns(t.Context(), req)
			require.NoError(t, err)
			for _, r := range page.GetRuns() {
				got = append(got, r.GetId())
			}
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		require.Len(t, got, 3)
		first, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{PageSize: 1})
		require.NoError(t, err)
		_, err = f.ListRuns(t.Context(), &executorv1.ListRunsRequest{PageSize: 1, PageToken: first.GetNextPageToken(), UserId: "x"})
		require.Equal(t, "PAGE_TOKEN_MISMATCH", errs.ReasonOf(err))
		_, err = f.ListRuns(t.Context(), &executorv1.ListRunsRequest{PageToken: "nonsense"})
		require.Equal(t, "PAGE_TOKEN_INVALID", errs.ReasonOf(err))
		other, err := f.ListRuns(grpckit.WithNamespace(t.Context(), "other"), &executorv1.ListRunsRequest{})
		require.NoError(t, err)
		require.Empty(t, other.GetRuns())
	})
	t.Run("GetRun/NotFound", func(t *testing.T) {
		_, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "run_none"})
		require.Equal(t, "RUN_NOT_FOUND", errs.ReasonOf(err))
	})
	t.Run("ListActors/HasBuiltInAndAdded", func(t *testing.T) {
		resp, err := f.ListActors(t.Context(), &executorv1.ListActorsRequest{})
		require.NoError(t, err)
		byName := map[string]*executorv1.ActorInfo{}
		for _, a := range resp.GetActors() {
			byName[a.GetName()] = a
		}
		for _, name := range []string{"llm", "http", "cel", "template", "starlark", "sleep", "fail", "model"} {
			require.Contains(t, byName, name)
		}
		require.NotEmpty(t, byName["llm"].GetDescription())
		require.True(t, json.Valid(byName["http"].GetArgsSchema().GetJson()))
	})
	t.Run("Task/IsClaimedPaidAndSettled", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "x", Actor: "model"}, &graphv1.Node{Id: "y", Actor: "odd"}), TaskId: "tk_1"})
		require.NoError(t, err)
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		var got *executorv1.Run
		testkit.Eventually(t, func() bool {
			got, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			return got.GetUsage().GetCostNanoUsd() == 70 && got.GetUsage().GetUnpricedCalls() == 1
		})
		require.Equal(t, int64(20), got.GetUsage().GetInputTokens())
		require.Equal(t, int64(4), got.GetUsage().GetCachedInputTokens())
		require.Equal(t, int64(2), got.GetUsage().GetCalls())
		testkit.Eventually(t, func() bool {
			f.registry.mu.Lock()
			defer f.registry.mu.Unlock()
			return len(f.registry.settled) > 0 && f.registry.settled[len(f.registry.settled)-1].GetRunId() == run.GetId()
		})
		f.registry.mu.Lock()
		defer f.registry.mu.Unlock()
		s := f.registry.settled[len(f.registry.settled)-1]
		require.Equal(t, registryv1.TaskState_TASK_STATE_COMPLETED, s.GetState())
		require.Equal(t, "said", s.GetResultSummary())
		require.Equal(t, "tk_1", f.registry.entries["x"].GetTaskId())
		require.Equal(t, int32(1), f.registry.entries["x"].GetAttempt())
	})
	t.Run("End/IsToldWithAllThatItCost", func(t *testing.T) {
		for i := range 16 {
			run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "x", Actor: "model"}, &graphv1.Node{Id: "y", Actor: "model"}), TaskId: fmt.Sprint("tk_end_", i)})
			require.NoError(t, err)
			evs := f.watch(t, &executorv1.WatchRunRequest{RunId: run.GetId(), DurableOnly: true})
			require.NotNil(t, evs[len(evs)-1].GetRunEnded())
			require.Zero(t, evs[len(evs)-1].GetRunEnded().GetUnbookedAttempts())
			sum := evs[len(evs)-1].GetRunEnded().GetActivitySummary()
			require.Equal(t, []int64{2, 2, 2, 140}, []int64{int64(sum.GetNodes().GetTotal()), int64(sum.GetNodes().GetCompleted()), sum.GetUsage().GetCalls(), sum.GetUsage().GetCostNanoUsd()})
			require.NotNil(t, sum.GetDuration())
			got, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			require.Equal(t, int64(140), got.GetUsage().GetCostNanoUsd(), "try %d", i)
			require.Zero(t, got.GetUsage().GetUnbookedAttempts())
		}
	})
	t.Run("End/SaysWhatIsNotBookedWhileTheRegistryIsAway", func(t *testing.T) {
		f.registry.down.Store(true)
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "x", Actor: "model"}, &graphv1.Node{Id: "y", Actor: "model"})})
		require.NoError(t, err)
		evs := f.watch(t, &executorv1.WatchRunRequest{RunId: run.GetId(), DurableOnly: true})
		require.EqualValues(t, 2, evs[len(evs)-1].GetRunEnded().GetUnbookedAttempts())
		got, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId()})
		require.NoError(t, err)
		require.EqualValues(t, 2, got.GetUsage().GetUnbookedAttempts())
		f.registry.down.Store(false)
		testkit.Eventually(t, func() bool {
			got, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId()})
			return err == nil && got.GetUsage().GetUnbookedAttempts() == 0 && got.GetUsage().GetCostNanoUsd() == 140
		})
	})
	t.Run("Failure/IsBookedToo", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "bad", Actor: "refuses"})})
		require.NoError(t, err)
		got := f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_FAILED)
		require.Equal(t, "REFUSED", got.GetError().GetReason())
		require.Equal(t, executorv1.ErrorType_ERROR_TYPE_PERMANENT, got.GetError().GetType())
		testkit.Eventually(t, func() bool {
			f.registry.mu.Lock()
			defer f.registry.mu.Unlock()
			return f.registry.entries["bad"].GetFailed()
		})
	})
	t.Run("Registry/DownRefusesTasksOnly", func(t *testing.T) {
		f.registry.down.Store(true)
		_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "late", Actor: "model"}), TaskId: "tk_2"})
		require.True(t, errs.Is(err, errs.Unavailable), "got %v", err)
		require.NotEmpty(t, errs.From(err).HintText())
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "late", Actor: "model"})})
		require.NoError(t, err)
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		f.registry.down.Store(false)
		testkit.Eventually(t, func() bool {
			f.registry.mu.Lock()
			defer f.registry.mu.Unlock()
			return f.registry.entries["late"] != nil
		}, "costs of the time without registry were lost")
	})
	t.Run("Refused/GivesTheClaimBack", func(t *testing.T) {
		key := func(task string) *executorv1.StartRunRequest {
			return &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "blocks"}), BusinessKey: "one", TaskId: task}
		}
		_, err := f.StartRun(t.Context(), key("tk_3"))
		require.NoError(t, err)
		_, err = f.StartRun(t.Context(), key("tk_4"))
		require.Equal(t, "BUSINESS_KEY_IN_USE", errs.ReasonOf(err))
		f.registry.mu.Lock()
		defer f.registry.mu.Unlock()
		require.Empty(t, f.registry.claimed["tk_4"])
	})
}

func TestTrace(t *testing.T) {
	f := serve(t, workgraph.Actors{"model": model("priced", false)})
	f.spans.Reset()
	run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"}), TaskId: "tk_9"})
	require.NoError(t, err)
	f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	parents := map[string]string{}
	testkit.Eventually(t, func() bool {
		names := map[string]string{}
		var spans []tracetest.SpanStub
		for _, s := range f.spans.GetSpans() {
			if s.SpanContext.TraceID().String() == run.GetTraceId() {
				spans = append(spans, s)
				names[s.SpanContext.SpanID().String()] = s.Name + " " + s.SpanKind.String()
			}
		}
		for _, s := range spans {
			parents[s.Name+" "+s.SpanKind.String()] = names[s.Parent.SpanID().String()]
		}
		return parents["epigraph.registry.v1.RegistryService/SettleClaim server"] != "" && parents["epigraph.registry.v1.RegistryService/RecordUsage server"] != ""
	}, "the trace does not reach the registry")
	for child, parent := range map[string]string{
		"epigraph.executor.v1.ExecutorService/StartRun server": "epigraph.executor.v1.ExecutorService/StartRun client",
		"run.start internal": "epigraph.executor.v1.ExecutorService/StartRun server",
		"epigraph.registry.v1.RegistryService/ClaimTask client":   "run.start internal",
		"invoke model internal":                                   "run.start internal",
		"outbox.usage producer":                                   "invoke model internal",
		"epigraph.registry.v1.RegistryService/RecordUsage client": "outbox.usage producer",
		"epigraph.registry.v1.RegistryService/RecordUsage server": "epigraph.registry.v1.RegistryService/RecordUsage client",
		"outbox.confirm producer":                                 "run.start internal",
		"journal.commit client":                                   "run.start internal",
		"outbox.settle producer":                                  "run.start internal",
	} {
		require.Equal(t, parent, parents[child], "parent of %s", child)
	}
}

func TestWatchRunEndsWhenTheServerBeginsToStop(t *testing.T) {
	f := serve(t, nil)
	run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "nap", Actor: "sleep", Named: map[string]*graphv1.Payload{"duration": value(`"1h"`)}})})
	require.NoError(t, err)
	stream, err := f.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: run.GetId()})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	f.server.Drain()
	for err == nil {
		_, err = stream.Recv()
	}
	require.Equal(t, "SERVER_STOPPING", errs.ReasonOf(err))
	require.True(t, errs.Is(err, errs.Unavailable))
}

func TestConfig(t *testing.T) {
	t.Run("Validate/ReportsAllFaults", func(t *testing.T) {
		cfg := executor.DefaultConfig()
		require.NoError(t, cfg.Validate())
		cfg.Store, cfg.Parallel, cfg.Lease = "paper", 0, -1
		err := cfg.Validate()
		require.ErrorContains(t, err, "paper")
		require.ErrorContains(t, err, "parallel must be positive")
		require.ErrorContains(t, err, "lease must be positive")
		_, err = executor.Open(t.Context(), cfg, executor.Deps{})
		require.True(t, errs.Is(err, errs.InvalidArgument))
	})
	t.Run("Open/RefusesAnOldSchema", func(t *testing.T) {
		cfg := executor.DefaultConfig()
		cfg.Migrate, cfg.SQLitePath = false, filepath.Join(t.TempDir(), "x.db")
		_, err := executor.Open(t.Context(), cfg, executor.Deps{})
		require.True(t, errs.Is(err, errs.FailedPrecondition), "got %v", err)
	})
}
