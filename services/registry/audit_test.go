package registry_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// auditWorld has an administrator of acme, an operator, one of other, and the services.
type auditWorld struct {
	admin, operator, eve, service registryv1.AuditServiceClient
}

func TestAudit(t *testing.T) {
	t.Parallel()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{
				{Name: "ada", Namespace: "acme", Secret: conf.NewSecret("secret-of-ada"), Role: access.Administrator},
				{Name: "ben", Namespace: "acme", Secret: conf.NewSecret("secret-of-ben"), Role: access.Operator},
				{Name: "eve", Namespace: "other", Secret: conf.NewSecret("secret-of-eve"), Role: access.Administrator},
			}}, nil)
			client := func(key string) registryv1.AuditServiceClient { return registryv1.NewAuditServiceClient(dial(key)) }
			w := &auditWorld{admin: client("secret-of-ada"), operator: client("secret-of-ben"), eve: client("secret-of-eve"), service: client("of-services")}
			for name, run := range map[string]func(*testing.T, context.Context, *auditWorld){
				"Entry/ComesBackWhole": auditWhole, "Entry/IsNeverReplaced": auditOnce, "Entry/OfAClockAheadGrowsOld": auditAhead,
				"List/NewestFirstByPages": auditPages, "List/FiltersByTheShortMethod": auditMethod, "Rights/OnlyAdministratorsReadAndServicesWrite": auditRights,
				"Faults/AreRefused": auditFaults,
			} {
				t.Run(name, func(t *testing.T) { run(t, t.Context(), w) })
			}
		})
	}
}

// record stores entries of acme as a service does, and returns them.
func (w *auditWorld) record(t *testing.T, entries ...*registryv1.AuditEntry) []*registryv1.AuditEntry {
	t.Helper()
	_, err := w.service.RecordAudit(grpckit.WithNamespace(t.Context(), "acme"), &registryv1.RecordAuditRequest{Entries: entries})
	require.NoError(t, err)
	return entries
}

func (w *auditWorld) list(t *testing.T, req *registryv1.ListAuditRequest) []*registryv1.AuditEntry {
	t.Helper()
	r, err := w.admin.ListAudit(t.Context(), req)
	require.NoError(t, err)
	return r.GetEntries()
}

func auditWhole(t *testing.T, _ context.Context, w *auditWorld) {
	large := strings.Repeat("ü", 128)
	want := w.record(t, &registryv1.AuditEntry{
		Id: "aud_whole", Time: timestamppb.New(time.Now().Truncate(time.Microsecond)), Principal: "key:" + strings.Repeat("p", 396), Method: "epigraph.executor.v1.ExecutorService/CancelRun",
		Resource: large, RunId: "run_1", RequestId: strings.Repeat("r", 128), Code: "PermissionDenied", Reason: "SCOPE_MISSING", Remote: "2001:db8::1",
		UserAgent: strings.Repeat("u", 200), LeftOut: 1 << 40,
	})
	got := w.list(t, &registryv1.ListAuditRequest{Resource: large})
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	r, err := w.eve.ListAudit(t.Context(), &registryv1.ListAuditRequest{Resource: large})
	require.NoError(t, err)
	require.Empty(t, r.GetEntries(), "another namespace")
}

func auditOnce(t *testing.T, _ context.Context, w *auditWorld) {
	w.record(t, &registryv1.AuditEntry{Id: "aud_once", Time: timestamppb.Now(), Principal: "key:eve", Resource: "once"})
	w.record(t, &registryv1.AuditEntry{Id: "aud_once", Time: timestamppb.Now(), Principal: "key:ada", Resource: "once"})
	got := w.list(t, &registryv1.ListAuditRequest{Resource: "once"})
	require.Len(t, got, 1)
	require.Equal(t, "key:eve", got[0].GetPrincipal())
}

func auditAhead(t *testing.T, _ context.Context, w *auditWorld) {
	w.record(t, &registryv1.AuditEntry{Id: "aud_ahead", Time: timestamppb.New(time.Now().AddDate(50, 0, 0)), Resource: "ahead"})
	got := w.list(t, &registryv1.ListAuditRequest{Resource: "ahead"})
	require.WithinDuration(t, time.Now().Add(time.Hour), got[0].GetTime().AsTime(), time.Minute)
}

func auditPages(t *testing.T, ctx context.Context, w *auditWorld) {
	at := time.Now().Add(-time.Hour)
	var want []string
	for _, id := range []string{"aud_p1", "aud_p2", "aud_p3"} {
		w.record(t, &registryv1.AuditEntry{Id: id, Time: timestamppb.New(at), Principal: "key:paged"})
		want = append(want, id)
	}
	slices.Reverse(want)
	var got []string
	req := &registryv1.ListAuditRequest{PageSize: 2, Principal: "key:paged", StartTime: timestamppb.New(at.Add(-time.Minute)), EndTime: timestamppb.New(at.Add(time.Minute))}
	for more := true; more; more = req.PageToken != "" {
		r, err := w.admin.ListAudit(ctx, req)
		require.NoError(t, err)
		for _, e := range r.GetEntries() {
			got = append(got, e.GetId())
		}
		req.PageToken = r.GetNextPageToken()
		if req.PageToken != "" {
			_, err = w.admin.ListAudit(ctx, &registryv1.ListAuditRequest{PageToken: req.GetPageToken()})
			require.True(t, errs.Is(err, errs.InvalidArgument), "a token is of one query")
		}
	}
	require.Equal(t, want, got)
}

func auditMethod(t *testing.T, _ context.Context, w *auditWorld) {
	w.record(t, &registryv1.AuditEntry{Id: "aud_m", Time: timestamppb.Now(), Method: "epigraph.executor.v1.ExecutorService/PauseRun"})
	for _, method := range []string{"PauseRun", "epigraph.executor.v1.ExecutorService/PauseRun"} {
		require.Len(t, w.list(t, &registryv1.ListAuditRequest{Method: method}), 1, method)
	}
	require.Empty(t, w.list(t, &registryv1.ListAuditRequest{Method: "ResumeRun"}))
}

func auditRights(t *testing.T, ctx context.Context, w *auditWorld) {
	_, err := w.operator.ListAudit(ctx, &registryv1.ListAuditRequest{})
	requireError(t, err, errs.PermissionDenied, access.ReasonScope)
	for _, c := range []registryv1.AuditServiceClient{w.admin, w.operator} {
		_, err = c.RecordAudit(ctx, &registryv1.RecordAuditRequest{})
		requireError(t, err, errs.PermissionDenied, access.ReasonScope)
	}
}

func auditFaults(t *testing.T, ctx context.Context, w *auditWorld) {
	for name, req := range map[string]*registryv1.RecordAuditRequest{
		"NoID":     {Entries: []*registryv1.AuditEntry{{}}},
		"LongText": {Entries: []*registryv1.AuditEntry{{Id: "aud_1", UserAgent: strings.Repeat("u", 201)}}},
		"TooMany":  {Entries: slices.Repeat([]*registryv1.AuditEntry{{Id: "aud_1"}}, 501)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.service.RecordAudit(ctx, req)
			require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
		})
	}
	t.Run("LongFilter", func(t *testing.T) {
		_, err := w.admin.ListAudit(ctx, &registryv1.ListAuditRequest{Principal: strings.Repeat("p", 401)})
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
	})
}
