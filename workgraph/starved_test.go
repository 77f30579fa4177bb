package workgraph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStarvedJoinFailsTheRun breaks the machine on purpose. No sequence of commands is known that leaves a
// join waiting. If one is ever found, the run must fail instead of ending as if it were complete.
func TestStarvedJoinFailsTheRun(t *testing.T) {
	p, err := Compile(t.Context(), &Graph{Nodes: []Node{{ID: "A", Actor: "x", Effect: Pure}, {ID: "B", Actor: "x", Effect: Pure}},
		Edges: []Edge{{From: "A", To: "B"}}}, nil)
	require.NoError(t, err)
	s := New(p, "run")
	_, _, err = s.Advance(Begin{})
	require.NoError(t, err)
	s.root.nodes[1].join.seen = -1
	_, fx, err := s.Advance(Ended{Ref: Ref{Node: "A", Visit: 1}, Attempt: 1, Outcome: &Outcome{Values: oneValue}})
	require.NoError(t, err)
	require.Equal(t, StatusFailed, fx.Ended.Status)
	require.Equal(t, ReasonStarved, fx.Ended.Reason)
	require.Contains(t, fx.Ended.Message, "B")
	require.Equal(t, "1", string(fx.Ended.Outputs["A"]), "what was done is kept")
}
