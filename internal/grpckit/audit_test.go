package grpckit_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// logbook keeps what is recorded.
type logbook struct {
	mu      sync.Mutex
	entries []audit.Entry
	refused []bool
}

func (l *logbook) Record(e audit.Entry, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.refused = append(l.entries, e), append(l.refused, refused)
}

// take returns what was recorded since the last call.
func (l *logbook) take() (entries []audit.Entry, refused []bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, refused = l.entries, l.refused
	l.entries, l.refused = nil, nil
	return entries, refused
}

// audited is a service of which each method ends in another way.
type audited struct {
	executorv1.UnimplementedExecutorServiceServer
	registryv1.UnimplementedKeyServiceServer
	registryv1.UnimplementedRegistryServiceServer
}

func (audited) StartRun(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: "run_1"}, nil
}

func (audited) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{}, nil
}

func (audited) CancelRun(_ context.Context, req *executorv1.CancelRunRequest) (*executorv1.Run, error) {
	return nil, errs.New(errs.NotFound, "RUN_NOT_FOUND", "no run %s", req.GetRunId())
}

func (audited) PauseRun(context.Context, *executorv1.PauseRunRequest) (*executorv1.Run, error) {
	panic("pause")
}

func (audited) CreateKey(context.Context, *registryv1.CreateKeyRequest) (*registryv1.CreateKeyResponse, error) {
	return &registryv1.CreateKeyResponse{Key: &registryv1.Key{Id: "key_1"}, Secret: "epk_secret"}, nil
}

func (audited) CreateEpic(context.Context, *registryv1.CreateEpicRequest) (*registryv1.Epic, error) {
	return &registryv1.Epic{Id: "ep_1"}, nil
}

func (audited) RecordUsage(context.Context, *registryv1.RecordUsageRequest) (*registryv1.RecordUsageResponse, error) {
	return &registryv1.RecordUsageResponse{}, nil
}

func (audited) ClaimTask(context.Context, *registryv1.ClaimTaskRequest) (*registryv1.ClaimTaskResponse, error) {
	return &registryv1.ClaimTaskResponse{}, nil
}

// TestAudit checks which calls the audit log has an entry of, and what that says.
func TestAudit(t *testing.T) {
	t.Parallel()
	token, book := conf.NewSecret("svc"), &logbook{}
	key := func(name string, scopes ...access.Scope) grpckit.APIKey {
		return grpckit.APIKey{Name: name, Namespace: "a", Secret: conf.NewSecret("of-" + name), Scopes: scopes}
	}
	s, err := grpckit.NewServer(grpckit.Options{Audit: book, Auth: grpckit.AuthConfig{ServiceToken: token, Keys: []grpckit.APIKey{key("ada", access.Run, access.Admin), key("eve", access.Read)}}})
	require.NoError(t, err)
	executorv1.RegisterExecutorServiceServer(s, audited{})
	registryv1.RegisterKeyServiceServer(s, audited{})
	registryv1.RegisterRegistryServiceServer(s, audited{})
	net := buffered(t, s, "all")
	type client struct {
		executorv1.ExecutorServiceClient
		keys registryv1.KeyServiceClient
		reg  registryv1.RegistryServiceClient
	}
	dial := func(secret string, behalf bool) client {
		conn, err := grpckit.Dial("all", grpckit.DialOptions{Token: conf.NewSecret(secret), OnBehalf: behalf, Buf: net})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		return client{executorv1.NewExecutorServiceClient(conn), registryv1.NewKeyServiceClient(conn), registryv1.NewRegistryServiceClient(conn)}
	}
	ada, eve, service, gateway := dial("of-ada", false), dial("of-eve", false), dial("svc", false), dial("svc", true)
	cancel := func(ctx context.Context, c client) error {
		_, err := c.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: "run_7"})
		return err
	}
	const executor = "epigraph.executor.v1.ExecutorService/"
	ben := grpckit.WithPrincipal(grpckit.WithNamespace(t.Context(), "b"), access.Principal{Kind: access.Key, Name: "ben", Scopes: []access.Scope{access.Run}})
	for _, tt := range []struct {
		name    string
		call    func(ctx context.Context) error
		want    *audit.Entry // without id, time and request id; nil for no entry
		refused bool
	}{
		{"Made/ByTheAnswer", func(ctx context.Context) error {
			_, err := ada.StartRun(ctx, &executorv1.StartRunRequest{})
			return err
		}, &audit.Entry{Namespace: "a", Principal: "key:ada", Method: executor + "StartRun", Resource: "run_1", Code: "OK"}, false},
		{"Made/WithoutItsSecret", func(ctx context.Context) error {
			_, err := ada.keys.CreateKey(ctx, &registryv1.CreateKeyRequest{Name: "ci"})
			return err
		}, &audit.Entry{Namespace: "a", Principal: "key:ada", Method: "epigraph.registry.v1.KeyService/CreateKey", Resource: "key_1", Code: "OK"}, false},
		{"Failed/SaysWhy", func(ctx context.Context) error { return cancel(ctx, ada) },
			&audit.Entry{Namespace: "a", Principal: "key:ada", Method: executor + "CancelRun", Resource: "run_7", Code: "NotFound", Reason: "RUN_NOT_FOUND"}, true},
		{"Panicked/IsNotTakenForRefused", func(ctx context.Context) error {
			_, err := ada.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: "run_7"})
			return err
		}, &audit.Entry{Namespace: "a", Principal: "key:ada", Method: executor + "PauseRun", Resource: "run_7", Code: "Internal", Reason: "INTERNAL"}, false},
		{"Refused/BeforeItsRequestIsRead", func(ctx context.Context) error { return cancel(ctx, eve) },
			&audit.Entry{Namespace: "a", Principal: "key:eve", Method: executor + "CancelRun", Code: "PermissionDenied", Reason: "SCOPE_MISSING"}, true},
		{"PassedOn/WithItsOrigin", func(context.Context) error {
			return cancel(access.WithOrigin(ben, access.Origin{Remote: "192.0.2.7", UserAgent: "curl/8 " + strings.Repeat("x", 1000)}), gateway)
		}, &audit.Entry{Namespace: "b", Principal: "key:ben", Method: executor + "CancelRun", Resource: "run_7", Code: "NotFound", Reason: "RUN_NOT_FOUND",
			Remote: "192.0.2.7", UserAgent: "curl/8 " + strings.Repeat("x", 193)}, true},
		{"WithinARun/IsTheRuns", func(ctx context.Context) error {
			_, err := service.reg.CreateEpic(access.WithRun(grpckit.WithNamespace(ctx, "b"), "run_9"), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "t"}})
			return err
		}, &audit.Entry{Namespace: "b", Principal: "run", RunID: "run_9", Method: "epigraph.registry.v1.RegistryService/CreateEpic", Resource: "ep_1", Code: "OK"}, false},
		{"Read/HasNone", func(ctx context.Context) error {
			_, err := ada.GetRun(ctx, &executorv1.GetRunRequest{RunId: "run_7"})
			return err
		}, nil, false},
		{"Service/ForItselfHasNone", func(ctx context.Context) error { return cancel(ctx, service) }, nil, false},
		{"Service/AmongThemselvesHasNone", func(ctx context.Context) error {
			_, err := service.reg.ClaimTask(access.WithRun(ctx, "run_9"), &registryv1.ClaimTaskRequest{TaskId: "task_1", RunId: "run_9"})
			return err
		}, nil, false},
		{"UsageOfARun/HasNone", func(ctx context.Context) error {
			_, err := service.reg.RecordUsage(access.WithRun(ctx, "run_9"), &registryv1.RecordUsageRequest{})
			return err
		}, nil, false},
		{"Nobody/HasNone", func(ctx context.Context) error { return cancel(ctx, dial("wrong", false)) }, nil, false},
		{"Lie/OriginOfAKeyIsNotHeard", func(ctx context.Context) error {
			return cancel(withHeader(ctx, grpckit.HeaderOrigin, access.Origin{Remote: "192.0.2.66"}.Encode()), eve)
		}, &audit.Entry{Namespace: "a", Principal: "key:eve", Method: executor + "CancelRun", Code: "PermissionDenied", Reason: "SCOPE_MISSING"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_ = tt.call(t.Context()) // its outcome is in the entry
			got, refused := book.take()
			if tt.want == nil {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.NotEmpty(t, got[0].RequestID)
			require.False(t, got[0].Time.IsZero())
			require.Equal(t, []bool{tt.refused}, refused)
			got[0].RequestID, got[0].Time = "", tt.want.Time
			if tt.want.Remote == "" && tt.want.RunID == "" {
				require.Contains(t, got[0].UserAgent, "grpc-go", "a caller of the service itself")
				require.NotContains(t, got[0].Remote, "192.0.2.66")
				got[0].Remote, got[0].UserAgent = "", ""
			}
			require.Equal(t, *tt.want, got[0])
		})
	}
}

func withHeader(ctx context.Context, key, value string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, key, value)
}
