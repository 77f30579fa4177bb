package exposed_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/exposed"
)

// catalog has workflows, and the triggers of what references stand for.
type catalog struct {
	registryv1.WorkflowServiceClient

	all      []*registryv1.Workflow
	triggers map[string][]string
	fails    error
	resolved int
}

func (c *catalog) ListWorkflows(_ context.Context, r *registryv1.ListWorkflowsRequest, _ ...grpc.CallOption) (*registryv1.ListWorkflowsResponse, error) {
	if !r.GetExposed() {
		return nil, errs.New(errs.InvalidArgument, "TEST", "the exposed ones are wanted")
	}
	return &registryv1.ListWorkflowsResponse{Workflows: c.all}, nil
}

func (c *catalog) ResolveWorkflow(_ context.Context, r *registryv1.ResolveWorkflowRequest, _ ...grpc.CallOption) (*registryv1.ResolveWorkflowResponse, error) {
	c.resolved++
	if c.fails != nil {
		return nil, c.fails
	}
	t, ok := c.triggers[r.GetRef()]
	if !ok || !r.GetTriggers() {
		return nil, errs.New(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no workflow %q", r.GetRef())
	}
	return &registryv1.ResolveWorkflowResponse{Triggers: t}, nil
}

func newCatalog() *catalog {
	return &catalog{
		all: []*registryv1.Workflow{
			{Id: "wf_1", Slug: "desk", Exposed: "prod", Etag: "1"}, {Id: "wf_2", Slug: "nightly", Exposed: "latest", Etag: "1"},
			{Id: "wf_3", Slug: "plain", Exposed: "3", Etag: "1"}, {Id: "wf_4", Slug: "gone", Exposed: "latest", Etag: "1"},
		},
		triggers: map[string][]string{"desk@prod": {`{"type":"webhook"}`, `{"type":"chat"}`}, "nightly": {`{"type":"schedule"}`}, "plain@3": nil},
	}
}

func listed(t *testing.T, w *exposed.Workflows) (out []string) {
	t.Helper()
	all, err := w.Chats(t.Context())
	require.NoError(t, err)
	for _, f := range all {
		out = append(out, exposed.Ref(f))
	}
	return out
}

func TestChats(t *testing.T) {
	t.Parallel()
	t.Run("OnlyThoseThatAChatStarts", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"workflow/desk@prod"}, listed(t, exposed.New(newCatalog())))
	})
	t.Run("AWorkflowIsLookedAtOnceUntilItChanges", func(t *testing.T) {
		t.Parallel()
		c := newCatalog()
		c.all = c.all[:2]
		w := exposed.New(c)
		listed(t, w)
		require.Equal(t, []string{"workflow/desk@prod"}, listed(t, w))
		require.Equal(t, 2, c.resolved)
		c.all[1].Etag, c.triggers["nightly"] = "2", []string{`{"type":"chat"}`}
		require.Equal(t, []string{"workflow/desk@prod", "workflow/nightly"}, listed(t, w))
		require.Equal(t, 3, c.resolved)
	})
	t.Run("AnErrorIsToldAndNotRemembered", func(t *testing.T) {
		t.Parallel()
		c := newCatalog()
		c.fails = errs.New(errs.Unavailable, "TEST", "away")
		w := exposed.New(c)
		_, err := w.Chats(t.Context())
		require.ErrorIs(t, err, c.fails)
		c.fails = nil
		require.Equal(t, []string{"workflow/desk@prod"}, listed(t, w))
	})
}
