package graphpb_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func TestGate(t *testing.T) {
	large := &graphv1.Graph{Nodes: make([]*graphv1.Node, 15_000), Edges: make([]*graphv1.Edge, 15_000)}
	g := graphpb.NewGate()
	leave, err := g.Enter(t.Context(), large)
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	t.Run("Large/OneAtATime", func(t *testing.T) {
		_, err := g.Enter(ended, large)
		require.Equal(t, graphpb.ReasonGraphsBusy, errs.ReasonOf(err))
	})
	t.Run("Small/PassesBesideIt", func(t *testing.T) {
		leave, err := g.Enter(ended, &graphv1.Graph{Nodes: make([]*graphv1.Node, 20_000)})
		require.NoError(t, err)
		leave()
	})
	leave()
	t.Run("Large/IsLetInAfterwards", func(t *testing.T) {
		leave, err := g.Enter(t.Context(), large)
		require.NoError(t, err)
		leave()
	})
}
