package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workflow"
)

// TestSDKWorkflows builds a team in Go, keeps it in the catalog, runs it by name, and finds it.
func TestSDKWorkflows(t *testing.T) {
	d := serve(t, fakellm.Script{Default: fakellm.Reply{Text: "APPROVE"}})
	c, err := epigraph.Dial(d.GRPCAddr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ctx := t.Context()

	poet := workflow.Agent{Name: "poet", Instructions: "Write the poem."}
	critic := workflow.Agent{Name: "critic", Instructions: "Say APPROVE, or what can be better."}
	graph := workflow.NewGraph().AddAgent(poet, critic).Start(poet).AddLoop(poet, critic)
	stop := workflow.StopCondition{Text: "APPROVE", From: []string{"critic"}, MaxMessages: 20}
	_, text, faults := workflow.New(&workflow.Spec{Name: "Haiku", Graph: graph, Stop: stop})
	require.Empty(t, faults)
	w, err := c.CreateWorkflow(ctx, string(text))
	require.NoError(t, err)

	t.Run("Run/GivesWhatTheTeamSaid", func(t *testing.T) {
		run, err := c.RunWorkflow(ctx, w.GetSlug(), epigraph.Named("task", "A haiku about tea"))
		require.NoError(t, err)
		result, err := epigraph.Result[struct{ Text, From string }](ctx, run)
		require.NoError(t, err)
		require.Equal(t, "APPROVE", result.Text)
		require.Equal(t, "critic", result.From)
	})
	t.Run("Run/TakesAListOfMessages", func(t *testing.T) {
		run, err := c.RunWorkflow(ctx, w.GetSlug(), epigraph.Named("task", []string{"A haiku", "about tea"}))
		require.NoError(t, err)
		result, err := epigraph.Result[struct{ Messages int }](ctx, run)
		require.NoError(t, err)
		require.Equal(t, 4, result.Messages, "two that it is told, and one of each agent")
	})
	t.Run("Discover/TakesWords", func(t *testing.T) {
		found := func(query string, r *registryv1.WorkflowRequirements) (slugs []string) {
			matches, err := c.DiscoverWorkflows(ctx, query, r, 5)
			require.NoError(t, err)
			for _, m := range matches {
				slugs = append(slugs, m.GetSlug())
			}
			return slugs
		}
		require.Equal(t, []string{w.GetSlug()}, found("haiku", nil))
		require.Empty(t, found("invoices", nil), "without requirements the words are what is looked for")
		require.Equal(t, []string{w.GetSlug()}, found("", &registryv1.WorkflowRequirements{NodeTypes: []string{"team"}}))
	})
}
