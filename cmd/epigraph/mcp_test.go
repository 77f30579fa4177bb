package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// TestMCPToolsOfAgents compares the tools of delegation with the actors that agents have under the
// same names: a model must not learn two ways. Clients have request_id besides.
func TestMCPToolsOfAgents(t *testing.T) {
	d := serve(t, fakellm.Script{})
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + d.HTTPAddr() + "/mcp", HTTPClient: http.DefaultClient}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() }) // the server keeps nothing of it
	list, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	conn, err := grpckit.Dial(d.GRPCAddr(), grpckit.DialOptions{Token: conf.NewSecret(d.APIKey())})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	actors, err := executorv1.NewExecutorServiceClient(conn).ListActors(t.Context(), &executorv1.ListActorsRequest{})
	require.NoError(t, err)
	known := map[string]*executorv1.ActorInfo{}
	for _, a := range actors.GetActors() {
		known[a.GetName()] = a
	}
	compared := 0
	for _, tool := range list.Tools {
		if !strings.HasPrefix(tool.Name, "epic_") && !strings.HasPrefix(tool.Name, "task_") && !strings.HasPrefix(tool.Name, "workflow_") {
			continue
		}
		compared++
		t.Run(tool.Name, func(t *testing.T) {
			actor := known[tool.Name]
			require.NotNil(t, actor, "agents have no such tool")
			require.Equal(t, actor.GetDescription(), tool.Description)
			schema := tool.InputSchema.(map[string]any)
			properties := schema["properties"].(map[string]any)
			delete(properties, "request_id")
			var want map[string]any
			require.NoError(t, json.Unmarshal(actor.GetArgsSchema().GetJson(), &want))
			// A call of an actor is made within a workflow, which is left out of a search.
			for _, s := range []map[string]any{properties, want["properties"].(map[string]any)} {
				if e, ok := s["exclude"].(map[string]any); ok {
					delete(e, "description")
				}
			}
			require.Equal(t, want["properties"], schema["properties"])
			if required, ok := want["required"].([]any); ok && len(required) > 0 {
				require.Equal(t, required, schema["required"])
			}
		})
	}
	require.Equal(t, 10, compared)
}
