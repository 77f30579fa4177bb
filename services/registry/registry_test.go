package registry_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func sqliteConfig(t *testing.T) registry.Config {
	cfg := registry.DefaultConfig()
	cfg.SQLitePath = filepath.Join(t.TempDir(), "registry.db")
	return cfg
}

func postgresConfig(t *testing.T) registry.Config {
	cfg := registry.DefaultConfig()
	cfg.Store, cfg.PostgresURL = "postgres", conf.NewSecret(pgtest.New(t))
	return cfg
}

// onBothStores makes configurations of registries, by the name of their database.
func onBothStores() map[string]func(*testing.T) registry.Config {
	return map[string]func(*testing.T) registry.Config{"SQLite": sqliteConfig, "Postgres": postgresConfig}
}

// serve opens a registry behind the real interceptor chain and returns a client of it.
func serve(t *testing.T, cfg registry.Config) registryv1.RegistryServiceClient {
	t.Helper()
	return serveKeys(t, cfg, grpckit.AuthConfig{})("")
}

// serveKeys is serve for clients that show credentials; it returns what makes a client of one.
func serveKeys(t *testing.T, cfg registry.Config, keys grpckit.AuthConfig) func(key string) registryv1.RegistryServiceClient {
	t.Helper()
	client, _ := serveAs(t, cfg, keys, nil)
	return client
}

// serveAs is serveKeys for a registry whose service and server log to tel, which may be nil. It returns the
// service too.
func serveAs(t *testing.T, cfg registry.Config, keys grpckit.AuthConfig, tel *obs.Telemetry) (func(key string) registryv1.RegistryServiceClient, *registry.Service) {
	t.Helper()
	dial, s := serveConn(t, cfg, keys, tel)
	return func(key string) registryv1.RegistryServiceClient {
		return registryv1.NewRegistryServiceClient(dial(key))
	}, s
}

// serveConn is serveAs for a test that makes its clients itself.
func serveConn(t testing.TB, cfg registry.Config, keys grpckit.AuthConfig, tel *obs.Telemetry) (func(key string) *grpc.ClientConn, *registry.Service) {
	t.Helper()
	s, err := registry.Open(t.Context(), cfg, registry.Deps{Telemetry: tel})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	server, err := grpckit.NewServer(grpckit.Options{Auth: keys, Telemetry: tel})
	require.NoError(t, err)
	s.Register(server)
	var network grpckit.BufNet
	lis, err := network.Listen("registry")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return func(key string) *grpc.ClientConn {
		conn, err := grpckit.Dial("registry", grpckit.DialOptions{Buf: &network, Token: conf.NewSecret(key)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		return conn
	}, s
}

func requireError(t *testing.T, err error, kind errs.Kind, reason string) *errs.Error {
	t.Helper()
	bad, ok := errors.AsType[*errs.Error](err)
	require.True(t, ok, "got %v", err)
	require.Equal(t, kind, bad.Kind, "got %v", err)
	require.Equal(t, reason, bad.Reason, "got %v", err)
	return bad
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

func newTask(t *testing.T, c registryv1.RegistryServiceClient, task *registryv1.Task) *registryv1.Task {
	t.Helper()
	if task.GetEpicId() == "" {
		e, err := c.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
		require.NoError(t, err)
		task.EpicId = e.GetId()
	}
	got, err := c.CreateTask(t.Context(), &registryv1.CreateTaskRequest{Task: task})
	require.NoError(t, err)
	return got
}

func TestAPI(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T) registry.Config{
		"sqlite": sqliteConfig,
		"postgres": func(t *testing.T) registry.Config {
			cfg := registry.DefaultConfig()
			cfg.Store, cfg.PostgresURL, cfg.MaxConns = "postgres", conf.NewSecret(pgtest.New(t)), 4
			return cfg
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, config(t))
			for name, run := range map[string]func(*testing.T, registryv1.RegistryServiceClient){
				"Epic/FieldsSurviveTheWay": epicFields, "Epic/UpdateByMask": epicMask, "Epic/EtagAndRequestID": epicEtag,
				"Task/FieldsSurviveTheWay": taskFields, "Task/WorkedOnByARun": taskWork, "Task/CanceledWithItsRun": cancellations, "Errors/NameWhatIsWrong": apiErrors,
				"List/PagesAreBoundToTheirQuery": pages, "Namespace/IsTheCallers": namespaces, "Price/Book": prices,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					run(t, c)
				})
			}
			t.Run("Epic/RunsByItself", func(t *testing.T) {
				t.Parallel()
				epicRuns(t, serve(t, config(t))) // others would lease its orders
			})
		})
	}
}

func epicFields(t *testing.T, c registryv1.RegistryServiceClient) {
	zero := int64(0)
	in := &registryv1.Epic{
		Id: "ignored", Title: "t", Description: "d", Tags: []string{"x"}, Priority: registryv1.Priority_PRIORITY_LOW, BudgetTokens: &zero,
		ResultSummary: "r", WorkflowSlug: "w", UserId: "u", CreatedByNodeId: "n", Labels: map[string]string{"k": "v"},
		State: registryv1.EpicState_EPIC_STATE_FAILED, SpentTokens: 99, Etag: `"9"`,
	}
	got, err := c.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: in})
	require.NoError(t, err)
	want := &registryv1.Epic{
		Id: got.GetId(), Namespace: "default", Title: "t", Description: "d", Tags: []string{"x"}, State: registryv1.EpicState_EPIC_STATE_PLANNING,
		Priority: registryv1.Priority_PRIORITY_LOW, BudgetTokens: &zero, ResultSummary: "r", WorkflowSlug: "w", UserId: "u",
		CreatedByNodeId: "n", Labels: map[string]string{"k": "v"}, CreateTime: got.GetCreateTime(), UpdateTime: got.GetCreateTime(), Etag: `"1"`, Principal: "open", MakerPrincipal: "open",
		DependencyPolicy: registryv1.DependencyPolicy_DEPENDENCY_POLICY_BLOCK,
	}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	again, err := c.GetEpic(t.Context(), &registryv1.GetEpicRequest{EpicId: got.GetId()})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, again, protocmp.Transform()))
	_, err = c.DeleteEpic(t.Context(), &registryv1.DeleteEpicRequest{EpicId: got.GetId(), Etag: `"1"`})
	require.NoError(t, err)
	_, err = c.GetEpic(t.Context(), &registryv1.GetEpicRequest{EpicId: got.GetId()})
	requireError(t, err, errs.NotFound, "EPIC_NOT_FOUND")
}

func epicMask(t *testing.T, c registryv1.RegistryServiceClient) {
	ten := int64(10)
	e, err := c.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "a", Description: "b", BudgetTokens: &ten}})
	require.NoError(t, err)
	update := func(in *registryv1.Epic, m *fieldmaskpb.FieldMask) (*registryv1.Epic, error) {
		in.Id = e.GetId()
		return c.UpdateEpic(t.Context(), &registryv1.UpdateEpicRequest{Epic: in, UpdateMask: m})
	}
	got, err := update(&registryv1.Epic{Title: "populated", State: registryv1.EpicState_EPIC_STATE_FAILED}, nil)
	require.NoError(t, err)
	require.Equal(t, "populated", got.GetTitle())
	require.Equal(t, "b", got.GetDescription())
	require.Equal(t, registryv1.EpicState_EPIC_STATE_PLANNING, got.GetState())
	got, err = update(&registryv1.Epic{}, mask("description", "budget_tokens"))
	require.NoError(t, err)
	require.Empty(t, got.GetDescription())
	require.Nil(t, got.BudgetTokens)
	require.Equal(t, "populated", got.GetTitle())
	got, err = update(&registryv1.Epic{Description: "all"}, mask("*"))
	require.NoError(t, err)
	require.Empty(t, got.GetTitle())
	require.Equal(t, "all", got.GetDescription())
	for _, path := range []string{"state", "id", "nothing", "spent_tokens"} {
		_, err = update(&registryv1.Epic{}, mask("title", path))
		bad := requireError(t, err, errs.InvalidArgument, "UPDATE_MASK_INVALID")
		require.Len(t, bad.Violations, 1)
		require.Contains(t, bad.Violations[0].Message, path)
	}
}

func epicEtag(t *testing.T, c registryv1.RegistryServiceClient) {
	req := &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "once", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}, RequestId: "create " + t.Name()}
	e, err := c.CreateEpic(t.Context(), req)
	require.NoError(t, err)
	again, err := c.CreateEpic(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, e.GetId(), again.GetId())
	req.Epic.Title = "twice"
	_, err = c.CreateEpic(t.Context(), req)
	requireError(t, err, errs.InvalidArgument, "REQUEST_ID_REUSED")
	moved, err := c.TransitionEpic(t.Context(), &registryv1.TransitionEpicRequest{EpicId: e.GetId(), State: registryv1.EpicState_EPIC_STATE_ACTIVE, Etag: e.GetEtag()})
	require.NoError(t, err)
	require.Equal(t, `"2"`, moved.GetEtag())
	_, err = c.UpdateEpic(t.Context(), &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: e.GetId(), Title: "late", Etag: e.GetEtag()}})
	bad := requireError(t, err, errs.Conflict, "ETAG_MISMATCH")
	require.Equal(t, `"2"`, bad.Meta["etag"])
	_, err = c.TransitionEpic(t.Context(), &registryv1.TransitionEpicRequest{EpicId: e.GetId(), State: registryv1.EpicState_EPIC_STATE_PLANNING})
	bad = requireError(t, err, errs.FailedPrecondition, "INVALID_TRANSITION")
	require.Contains(t, bad.Message, "ACTIVE to PLANNING")
	require.Contains(t, bad.HintText(), "PAUSED, COMPLETED, FAILED, CANCELED")
}

func taskFields(t *testing.T, c registryv1.RegistryServiceClient) {
	first := newTask(t, c, &registryv1.Task{Title: "first"})
	at := timestamppb.New(time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC))
	in := &registryv1.Task{
		EpicId: first.GetEpicId(), Title: "t", Description: "d", Tags: []string{"x"}, Priority: registryv1.Priority_PRIORITY_CRITICAL,
		DependsOn: []string{first.GetId()}, Requirements: &graphv1.Payload{Json: []byte(`{"n": 12345678901234567890}`)}, WorkflowSlug: "w",
		WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_CREATED, EstimatedTokens: 5, MaxRetries: 7, ResultSummary: "r",
		ErrorMessage: "e", Notes: []*registryv1.Note{{Time: at, Author: "a", Text: "n"}}, CreatedByNodeId: "n", Labels: map[string]string{"k": "v"},
	}
	got := newTask(t, c, in)
	want := &registryv1.Task{
		Id: got.GetId(), Namespace: "default", EpicId: in.GetEpicId(), Title: "t", Description: "d", Tags: []string{"x"},
		State: registryv1.TaskState_TASK_STATE_BLOCKED, Priority: in.GetPriority(), DependsOn: in.GetDependsOn(), Requirements: in.GetRequirements(),
		WorkflowSlug: "w", WorkflowSource: in.GetWorkflowSource(), EstimatedTokens: 5, MaxRetries: 7, ResultSummary: "r", ErrorMessage: "e",
		Notes: []*registryv1.Note{{Time: at, Author: "a", Text: "n", Principal: "open"}}, CreatedByNodeId: "n", Labels: in.GetLabels(), CreateTime: got.GetCreateTime(), UpdateTime: got.GetCreateTime(), Etag: `"1"`, Principal: "open",
	}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	again, err := c.GetTask(t.Context(), &registryv1.GetTaskRequest{TaskId: got.GetId()})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, again, protocmp.Transform()))
	got, err = c.UpdateTask(t.Context(), &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: got.GetId()}, UpdateMask: mask("depends_on", "requirements")})
	require.NoError(t, err)
	require.Equal(t, registryv1.TaskState_TASK_STATE_PENDING, got.GetState())
	require.Nil(t, got.GetRequirements())
	_, err = c.DeleteTask(t.Context(), &registryv1.DeleteTaskRequest{TaskId: got.GetId()})
	require.NoError(t, err)
	list, err := c.ListTasks(t.Context(), &registryv1.ListTasksRequest{EpicId: in.GetEpicId()})
	require.NoError(t, err)
	require.Len(t, list.GetTasks(), 1)
}

func taskWork(t *testing.T, c registryv1.RegistryServiceClient) {
	v := newTask(t, c, &registryv1.Task{Title: "work"})
	claimed, err := c.ClaimTask(t.Context(), &registryv1.ClaimTaskRequest{TaskId: v.GetId(), RunId: "run_1"})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Minute), claimed.GetLeaseExpireTime().AsTime(), 30*time.Second)
	_, err = c.ClaimTask(t.Context(), &registryv1.ClaimTaskRequest{TaskId: v.GetId(), RunId: "run_2"})
	bad := requireError(t, err, errs.FailedPrecondition, "TASK_NOT_CLAIMABLE")
	require.Equal(t, "run_1", bad.Meta["run_id"])
	start := timestamppb.New(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC))
	got, err := c.ConfirmClaim(t.Context(), &registryv1.ConfirmClaimRequest{TaskId: v.GetId(), RunId: "run_1", StartTime: start, Workflow: "digest@3"})
	require.NoError(t, err)
	require.Equal(t, registryv1.TaskState_TASK_STATE_RUNNING, got.GetState())
	require.Equal(t, "digest@3", got.GetRunWorkflow())
	require.Equal(t, "run_1", got.GetRunId())
	record := &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{{
		RunId: "run_1", NodeId: "a", Visit: 1, Attempt: 1, TaskId: v.GetId(), Kind: registryv1.UsageKind_USAGE_KIND_MODEL,
		Provider: "openai", Model: "gpt-4o-mini", InputTokens: 1000, CachedInputTokens: 500, OutputTokens: 100, Time: start,
	}}}
	for range 2 {
		booked, err := c.RecordUsage(t.Context(), record)
		require.NoError(t, err)
		require.EqualValues(t, 500*150+500*75+100*600, booked.GetEntries()[0].GetCostNanoUsd())
		require.Equal(t, v.GetEpicId(), booked.GetEntries()[0].GetEpicId())
	}
	got, err = c.SettleClaim(t.Context(), &registryv1.SettleClaimRequest{
		TaskId: v.GetId(), RunId: "run_1", State: registryv1.TaskState_TASK_STATE_COMPLETED, ResultSummary: "done", Duration: durationpb.New(2 * time.Second),
	})
	require.NoError(t, err)
	require.Equal(t, registryv1.TaskState_TASK_STATE_COMPLETED, got.GetState())
	require.EqualValues(t, 1100, got.GetActualTokens())
	require.EqualValues(t, 1, got.GetLlmCalls())
	require.Equal(t, 2*time.Second, got.GetDuration().AsDuration())
	e, err := c.GetEpic(t.Context(), &registryv1.GetEpicRequest{EpicId: v.GetEpicId()})
	require.NoError(t, err)
	require.EqualValues(t, 1100, e.GetSpentTokens())
	require.EqualValues(t, 172_500, e.GetSpentNanoUsd())
	require.EqualValues(t, 1, e.GetCompletedTasks())
	list, err := c.ListUsage(t.Context(), &registryv1.ListUsageRequest{TaskId: v.GetId()})
	require.NoError(t, err)
	require.Len(t, list.GetEntries(), 1)
}

func cancellations(t *testing.T, c registryv1.RegistryServiceClient) {
	v := newTask(t, c, &registryv1.Task{Title: "unwanted"})
	_, err := c.ClaimTask(t.Context(), &registryv1.ClaimTaskRequest{TaskId: v.GetId(), RunId: "run_9"})
	require.NoError(t, err)
	_, err = c.TransitionTask(t.Context(), &registryv1.TransitionTaskRequest{TaskId: v.GetId(), State: registryv1.TaskState_TASK_STATE_CANCELED})
	require.NoError(t, err)
	lease := &registryv1.LeaseOrdersRequest{MaxCount: 10, Lease: durationpb.New(time.Hour)}
	got, err := c.LeaseOrders(t.Context(), lease)
	require.NoError(t, err)
	require.Len(t, got.GetOrders(), 1)
	x := got.GetOrders()[0]
	require.Equal(t, []string{v.GetNamespace(), v.GetId(), "run_9", "TASK_CANCELED"}, []string{x.GetNamespace(), x.GetTaskId(), x.GetRunId(), x.GetReason()})
	require.WithinDuration(t, time.Now(), x.GetCreateTime().AsTime(), time.Minute)
	got, err = c.LeaseOrders(t.Context(), lease)
	require.NoError(t, err)
	require.Empty(t, got.GetOrders())
	_, err = c.AcknowledgeOrders(t.Context(), &registryv1.AcknowledgeOrdersRequest{Orders: []*registryv1.Order{x}})
	require.NoError(t, err)
	for _, bad := range []time.Duration{-1, 25 * time.Hour} {
		_, err = c.LeaseOrders(t.Context(), &registryv1.LeaseOrdersRequest{Lease: durationpb.New(bad)})
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
	}
}

func epicRuns(t *testing.T, c registryv1.RegistryServiceClient) {
	v := newTask(t, c, &registryv1.Task{Title: "ready", Input: &graphv1.Payload{Json: []byte(`{"topic": "cats"}`)}})
	require.JSONEq(t, `{"topic": "cats"}`, string(v.GetInput().GetJson()))
	e, err := c.RunEpic(t.Context(), &registryv1.RunEpicRequest{EpicId: v.GetEpicId(), Parallel: 2, WorkflowSlug: "greet"})
	require.NoError(t, err)
	require.EqualValues(t, 2, e.GetParallel())
	require.Equal(t, "greet", e.GetWorkflowSlug())
	start := func() *registryv1.Order {
		var found *registryv1.Order
		testkit.Eventually(t, func() bool {
			got, err := c.LeaseOrders(t.Context(), &registryv1.LeaseOrdersRequest{MaxCount: 100, Lease: durationpb.New(time.Millisecond)})
			require.NoError(t, err)
			for _, o := range got.GetOrders() {
				if o.GetTaskId() == v.GetId() {
					found = o
				}
			}
			return found != nil
		})
		return found
	}
	o := start()
	require.Equal(t, registryv1.OrderKind_ORDER_KIND_START, o.GetKind())
	require.Empty(t, o.GetRunId())
	_, err = c.AcknowledgeOrders(t.Context(), &registryv1.AcknowledgeOrdersRequest{Refused: []*registryv1.RefusedStart{{Order: o, Reason: "BUDGET_EXHAUSTED"}}})
	require.NoError(t, err)
	e, err = c.GetEpic(t.Context(), &registryv1.GetEpicRequest{EpicId: v.GetEpicId()})
	require.NoError(t, err)
	require.Equal(t, registryv1.EpicState_EPIC_STATE_PAUSED, e.GetState())
	require.Equal(t, "BUDGET_EXHAUSTED", e.GetPauseReason())
	_, err = c.TransitionEpic(t.Context(), &registryv1.TransitionEpicRequest{EpicId: v.GetEpicId(), State: registryv1.EpicState_EPIC_STATE_ACTIVE})
	require.NoError(t, err)
	_, err = c.AcknowledgeOrders(t.Context(), &registryv1.AcknowledgeOrdersRequest{Refused: []*registryv1.RefusedStart{{Order: start(), Reason: "WORKFLOW_NOT_FOUND", Message: "no such workflow"}}})
	require.NoError(t, err)
	v, err = c.GetTask(t.Context(), &registryv1.GetTaskRequest{TaskId: v.GetId()})
	require.NoError(t, err)
	require.Equal(t, registryv1.TaskState_TASK_STATE_FAILED, v.GetState())
	require.Equal(t, "not started: WORKFLOW_NOT_FOUND: no such workflow", v.GetErrorMessage())
	for _, bad := range []int32{-1, 65} {
		_, err = c.RunEpic(t.Context(), &registryv1.RunEpicRequest{EpicId: v.GetEpicId(), Parallel: bad})
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
	}
	for _, bad := range []string{`[1]`, `null`, `{`} {
		_, err = c.CreateTask(t.Context(), &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: v.GetEpicId(), Title: "x", Input: &graphv1.Payload{Json: []byte(bad)}}})
		require.Equal(t, "JSON_INVALID", errs.ReasonOf(err), "%s: %v", bad, err)
	}
}

func apiErrors(t *testing.T, c registryv1.RegistryServiceClient) {
	v := newTask(t, c, &registryv1.Task{})
	for name, tc := range map[string]struct {
		call   func(context.Context) error
		kind   errs.Kind
		reason string
		field  string
	}{
		"no epic": {func(ctx context.Context) error {
			_, err := c.CreateEpic(ctx, &registryv1.CreateEpicRequest{})
			return err
		}, errs.InvalidArgument, "REQUEST_INVALID", "epic"},
		"task without epic": {func(ctx context.Context) error {
			_, err := c.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{}})
			return err
		}, errs.InvalidArgument, "EPIC_ID_REQUIRED", "task.epic_id"},
		"unknown epic": {func(ctx context.Context) error {
			_, err := c.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: "ep_no"}})
			return err
		}, errs.NotFound, "EPIC_NOT_FOUND", ""},
		"unknown priority": {func(ctx context.Context) error {
			_, err := c.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Priority: 65537}})
			return err
		}, errs.InvalidArgument, "ENUM_INVALID", "epic.priority"},
		"a NUL in a text": {func(ctx context.Context) error {
			_, err := c.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "a\x00b"}})
			return err
		}, errs.InvalidArgument, "TEXT_INVALID", "epic.title"},
		"requirements that are no JSON": {func(ctx context.Context) error {
			_, err := c.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: v.GetId(), Requirements: &graphv1.Payload{Json: []byte("{")}}})
			return err
		}, errs.InvalidArgument, "JSON_INVALID", "task.requirements"},
		"a dependency that is not there": {func(ctx context.Context) error {
			_, err := c.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: v.GetId(), DependsOn: []string{"tk_no"}}})
			return err
		}, errs.InvalidArgument, "DEPENDENCY_UNKNOWN", "task.depends_on"},
		"waiting for itself": {func(ctx context.Context) error {
			_, err := c.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: v.GetId(), DependsOn: []string{v.GetId()}}})
			return err
		}, errs.FailedPrecondition, "DEPENDENCY_CYCLE", "task.depends_on"},
		"negative tokens": {func(ctx context.Context) error {
			_, err := c.RecordUsage(ctx, &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{{RunId: "r", InputTokens: -1}}})
			return err
		}, errs.InvalidArgument, "REQUEST_INVALID", "entries[0].input_tokens"},
		"an unknown state": {func(ctx context.Context) error {
			_, err := c.ListTasks(ctx, &registryv1.ListTasksRequest{States: []registryv1.TaskState{1, 0}})
			return err
		}, errs.InvalidArgument, "ENUM_INVALID", "states[1]"},
		"a negative page size": {func(ctx context.Context) error {
			_, err := c.ListPrices(ctx, &registryv1.ListPricesRequest{PageSize: -1})
			return err
		}, errs.InvalidArgument, page.ReasonSize, "page_size"},
		"a star inside a model": {func(ctx context.Context) error {
			_, err := c.CreatePrice(ctx, &registryv1.CreatePriceRequest{Price: &registryv1.Price{Model: "a*b", ValidFrom: timestamppb.Now()}})
			return err
		}, errs.InvalidArgument, "MODEL_PATTERN_INVALID", "price.model"},
		"a time out of range": {func(ctx context.Context) error {
			_, err := c.ConfirmClaim(ctx, &registryv1.ConfirmClaimRequest{TaskId: v.GetId(), RunId: "r", StartTime: &timestamppb.Timestamp{Seconds: 1 << 50}})
			return err
		}, errs.InvalidArgument, "TIME_INVALID", "start_time"},
		"a run of a workflow without a version": {func(ctx context.Context) error {
			_, err := c.ConfirmClaim(ctx, &registryv1.ConfirmClaimRequest{TaskId: v.GetId(), RunId: "r", Workflow: "digest"})
			return err
		}, errs.InvalidArgument, "WORKFLOW_REF_INVALID", "workflow"},
		"a negative duration": {func(ctx context.Context) error {
			_, err := c.SettleClaim(ctx, &registryv1.SettleClaimRequest{TaskId: v.GetId(), RunId: "r", State: 4, Duration: durationpb.New(-1)})
			return err
		}, errs.InvalidArgument, "DURATION_INVALID", "duration"},
		"a claim that was never made": {func(ctx context.Context) error {
			_, err := c.SettleClaim(ctx, &registryv1.SettleClaimRequest{TaskId: v.GetId(), RunId: "r", State: 4})
			return err
		}, errs.FailedPrecondition, "CLAIM_NOT_FOUND", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bad := requireError(t, tc.call(t.Context()), tc.kind, tc.reason)
			if tc.field != "" {
				require.NotEmpty(t, bad.Violations)
				require.Equal(t, tc.field, bad.Violations[0].Field)
			}
		})
	}
}

func pages(t *testing.T, c registryv1.RegistryServiceClient) {
	v := newTask(t, c, &registryv1.Task{})
	want := []string{v.GetId()}
	for range 4 {
		want = append(want, newTask(t, c, &registryv1.Task{EpicId: v.GetEpicId(), Tags: []string{"x"}}).GetId())
	}
	req := &registryv1.ListTasksRequest{EpicId: v.GetEpicId(), PageSize: 2}
	var got []string
	for {
		resp, err := c.ListTasks(t.Context(), req)
		require.NoError(t, err)
		for _, v := range resp.GetTasks() {
			got = append(got, v.GetId())
		}
		if resp.GetNextPageToken() == "" {
			break
		}
		req.PageToken, req.PageSize = resp.GetNextPageToken(), 1
	}
	require.Equal(t, want, got)
	req.Tags = []string{"x"}
	_, err := c.ListTasks(t.Context(), req)
	requireError(t, err, errs.InvalidArgument, page.ReasonMismatch)
	_, err = c.ListEpics(t.Context(), &registryv1.ListEpicsRequest{PageToken: "nonsense"})
	requireError(t, err, errs.InvalidArgument, page.ReasonInvalid)
}

func namespaces(t *testing.T, c registryv1.RegistryServiceClient) {
	ctx := grpckit.WithNamespace(t.Context(), "tenant")
	e, err := c.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "theirs"}})
	require.NoError(t, err)
	require.Equal(t, "tenant", e.GetNamespace())
	_, err = c.GetEpic(t.Context(), &registryv1.GetEpicRequest{EpicId: e.GetId()})
	requireError(t, err, errs.NotFound, "EPIC_NOT_FOUND")
	_, err = c.RecordUsage(ctx, &registryv1.RecordUsageRequest{Entries: []*registryv1.UsageEntry{{RunId: "r", EpicId: e.GetId(), Model: "who", InputTokens: 3}}})
	require.NoError(t, err)
	got, err := c.GetNamespaceUsage(ctx, &registryv1.GetNamespaceUsageRequest{})
	require.NoError(t, err)
	want := &registryv1.NamespaceUsage{Namespace: "tenant", SpentTokens: 3, UnpricedCalls: 1, Calls: 1}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	list, err := c.ListEpics(ctx, &registryv1.ListEpicsRequest{Query: "THEIRS"})
	require.NoError(t, err)
	require.Len(t, list.GetEpics(), 1)
	require.EqualValues(t, 3, list.GetEpics()[0].GetSpentTokens())
}

func prices(t *testing.T, c registryv1.RegistryServiceClient) {
	cached := int64(0)
	from := timestamppb.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	req := &registryv1.CreatePriceRequest{
		Price:     &registryv1.Price{Provider: "me", Model: "mine*", ValidFrom: from, InputPerMillion: 7, CachedInputPerMillion: &cached, OutputPerMillion: 9},
		RequestId: "price",
	}
	first, err := c.CreatePrice(t.Context(), req)
	require.NoError(t, err)
	require.Nil(t, first.ReasoningPerMillion)
	again, err := c.CreatePrice(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(first, again, protocmp.Transform()))
	req.RequestId = ""
	_, err = c.CreatePrice(t.Context(), req)
	requireError(t, err, errs.AlreadyExists, "PRICE_EXISTS")
	req.Price.ValidFrom = timestamppb.New(from.AsTime().Add(time.Hour))
	_, err = c.CreatePrice(t.Context(), req)
	require.NoError(t, err)
	list, err := c.ListPrices(t.Context(), &registryv1.ListPricesRequest{Provider: "me"})
	require.NoError(t, err)
	require.Len(t, list.GetPrices(), 2)
	require.Equal(t, req.GetPrice().GetValidFrom().AsTime(), list.GetPrices()[0].GetValidUntil().AsTime())
	require.Nil(t, list.GetPrices()[1].GetValidUntil())
	shipped, err := c.ListPrices(t.Context(), &registryv1.ListPricesRequest{Model: "gpt-4o"})
	require.NoError(t, err)
	require.Len(t, shipped.GetPrices(), 2)
}

func TestService(t *testing.T) {
	t.Parallel()
	t.Run("Config/AllFaultsAtOnce", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, registry.DefaultConfig().Validate())
		err := registry.Config{Store: "mysql", MaxConns: -1}.Validate()
		require.ErrorContains(t, err, "mysql")
		require.ErrorContains(t, err, "max_conns")
		require.ErrorContains(t, err, "sweep_interval")
		require.ErrorContains(t, registry.Config{Store: "postgres", SweepInterval: 1}.Validate(), "postgres_url")
		_, err = registry.Open(t.Context(), registry.Config{}, registry.Deps{})
		require.Error(t, err)
	})
	t.Run("Open/RefusesAnOldSchemaUnlessItMayMigrate", func(t *testing.T) {
		t.Parallel()
		cfg := sqliteConfig(t)
		cfg.Migrate = false
		_, err := registry.Open(t.Context(), cfg, registry.Deps{})
		requireError(t, err, errs.FailedPrecondition, dbkit.ReasonSchemaOld)
		cfg.Migrate = true
		for range 2 {
			s, err := registry.Open(t.Context(), cfg, registry.Deps{})
			require.NoError(t, err)
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
			cfg.Migrate = false
		}
	})
	t.Run("Run/ForgetsRequestsAfterTheirLife", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			cfg := sqliteConfig(t)
			cfg.SweepInterval = time.Hour
			s, err := registry.Open(t.Context(), cfg, registry.Deps{})
			require.NoError(t, err)
			h := &local{}
			s.Register(h)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			create := func(title string) error {
				_, err := h.server.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: title}, RequestId: "r"})
				return err
			}
			require.NoError(t, create("a"))
			time.Sleep(71 * time.Hour) //nolint:forbidigo // in a bubble
			require.True(t, errs.Is(create("b"), errs.InvalidArgument))
			time.Sleep(2*time.Hour + time.Minute) //nolint:forbidigo // in a bubble; past the sweep, not at its instant
			require.NoError(t, create("b"))
			cancel()
			require.NoError(t, <-done)
			require.NoError(t, s.Close())
		})
	})
}

// local takes the server that a service registers, to call it without a network.
type local struct {
	server registryv1.RegistryServiceServer
}

func (l *local) RegisterService(_ *grpc.ServiceDesc, impl any) {
	if server, ok := impl.(registryv1.RegistryServiceServer); ok {
		l.server = server
	}
}
