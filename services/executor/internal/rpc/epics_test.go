package rpc_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/epics"
	"github.com/epigraph-run/epigraph/services/executor/internal/rpc"
)

// paged answers searches with one epic a page, without an end, and notes what it is asked.
type paged struct {
	registryv1.RegistryServiceClient
	asked []*registryv1.SearchEpicsRequest
}

func (p *paged) SearchEpics(_ context.Context, r *registryv1.SearchEpicsRequest, _ ...grpc.CallOption) (*registryv1.SearchEpicsResponse, error) {
	p.asked = append(p.asked, &registryv1.SearchEpicsRequest{Query: r.GetQuery(), OpenToUserId: r.GetOpenToUserId(), PageToken: r.GetPageToken()})
	n := strconv.Itoa(len(p.asked))
	return &registryv1.SearchEpicsResponse{
		Matches:       []*registryv1.EpicMatch{{Epic: &registryv1.Epic{Id: "ep_" + n}, WorkflowSlugs: []string{"w" + n}}},
		NextPageToken: "after " + n,
	}, nil
}

func TestSearchEpics(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"WithAQuery": "fair", "WithoutAQuery": ""} {
		t.Run(name+"/FollowsThePagesOfTheUser", func(t *testing.T) {
			t.Parallel()
			p := &paged{}
			found, err := rpc.NewEpics(p).SearchEpics(t.Context(), "ns", epics.Search{Text: text, User: "ada", Limit: 3})
			require.NoError(t, err)
			require.Len(t, found, 3)
			require.Equal(t, []any{"ep_3", []string{"w3"}}, []any{found[2].ID, found[2].Workflows})
			require.Equal(t, []any{text, "ada", "after 2"}, []any{p.asked[2].GetQuery(), p.asked[2].GetOpenToUserId(), p.asked[2].GetPageToken()})
		})
	}
	t.Run("ReadsSomePagesAtMost", func(t *testing.T) {
		t.Parallel()
		p := &paged{}
		found, err := rpc.NewEpics(p).SearchEpics(t.Context(), "ns", epics.Search{Limit: 100})
		require.NoError(t, err)
		require.Len(t, found, 5)
		require.Len(t, p.asked, 5)
	})
}
