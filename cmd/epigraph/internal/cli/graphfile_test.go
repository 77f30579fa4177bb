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
		"APlanInAGraph": {`{"graph": {"nodes": [{"id": "a"}]}}`, ``},
		"APlanOfTasks":  {`[{"task_id": "1", "actor": "x"}]`, ``},
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
