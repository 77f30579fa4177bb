package executor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestOpenWorkflows(t *testing.T) {
	t.Parallel()
	t.Run("Deps/GoBeforeTheFolder", func(t *testing.T) {
		w, err := openWorkflows("/nowhere", Deps{Workflows: func(_ context.Context, namespace, ref string) (*workgraph.Graph, error) {
			return &workgraph.Graph{Name: namespace + " " + ref}, nil
		}})
		require.NoError(t, err)
		_, g, err := w.orNil().Workflow(t.Context(), "acme", "workflow/a@1", "")
		require.NoError(t, err)
		require.Equal(t, "acme workflow/a@1", g.Name)
		require.NoError(t, w.Close())
	})
	t.Run("None/IsNil", func(t *testing.T) {
		w, err := openWorkflows("", Deps{})
		require.NoError(t, err)
		require.Nil(t, w.orNil())
		require.NoError(t, w.Close())
	})
}
