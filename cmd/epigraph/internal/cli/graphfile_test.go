package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindGraph(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"AGraph":        {`{"nodes": [{"id": "a", "actor": "x"}]}`, `{"nodes": [{"id": "a", "actor": "x"}]}`},
		"AnAnswer":      {`{"graph": {"nodes": [{"actor": "x"}]}, "graphHash": "h", "plan": {}}`, `{"nodes": [{"actor": "x"}]}`},
		"APlan":         {`A -> B`, ``},
		"APlanOfNodes":  {`{"nodes": [{"id": "a"}], "edges": []}`, ``},
		"APlanInAGraph": {`{"graph": {"nodes": [{"id": "a"}], "edges": []}}`, ``},
		"APlanOfTasks":  {`[{"task_id": "1", "actor": "x"}]`, ``},
		// A text that was meant to be a graph is one, so that its faults are shown.
		"Misspelled/Actor":   {`{"nodes": [{"id": "a", "actr": "x"}]}`, `{"nodes": [{"id": "a", "actr": "x"}]}`},
		"Misspelled/Edges":   {`{"nodes": [{"id": "a", "actr": "x"}], "edges": []}`, `{"nodes": [{"id": "a", "actr": "x"}], "edges": []}`},
		"Misspelled/Nodes":   {`{"nodez": [{"id": "a", "actor": "x"}]}`, `{"nodez": [{"id": "a", "actor": "x"}]}`},
		"Misspelled/Both":    {`{"name": "x", "nodes": [{"idd": "a", "aktor": "x"}]}`, `{"name": "x", "nodes": [{"idd": "a", "aktor": "x"}]}`},
		"Misspelled/FarAway": {`{"nodes": [{"id": "a", "agent": "x"}]}`, `{"nodes": [{"id": "a", "agent": "x"}]}`},
		"Misspelled/Answer":  {`{"graph": {"nodes": [{"id": "a", "actr": "x"}]}}`, `{"nodes": [{"id": "a", "actr": "x"}]}`},
		"Fields/OfGraphs":    {`{"nodes": [{"id": "a", "onError": {}}], "edges": []}`, `{"nodes": [{"id": "a", "onError": {}}], "edges": []}`},
		"Nodes/NoList":       {`{"nodes": 7}`, `{"nodes": 7}`},
	} {
		t.Run("FindGraph/"+name, func(t *testing.T) {
			got, err := findGraph(c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
	_, err := findGraph(`{"graph": {"nodes": [{"actor": "x"}]}, "requestId": "r"}`)
	require.ErrorContains(t, err, `"requestId" beside the graph is not read`)
}
