package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestObserveFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  *workgraph.Error
		want string
	}{
		"Refused":  {workgraph.Errorf(workgraph.Permanent, workgraph.ReasonExpandRefused, "too large"), `[{"round":1,"decision":["a"],"refused":"EXPAND_REFUSED: too large"}]`},
		"BrokeOff": {workgraph.Errorf(workgraph.Permanent, workgraph.ReasonChildFailed, "child x ended CANCELED"), `[{"round":1,"decision":["a"],"failed":"CHILD_FAILED: child x ended CANCELED"}]`},
	} {
		t.Run("Act/"+name, func(t *testing.T) {
			t.Parallel()
			own := map[string]json.RawMessage{"limits": json.RawMessage(`{"result_bytes": 1000, "history_bytes": 5000}`)}
			out, err := observe(t.Context(), workgraph.NewCall(workgraph.Start{Ref: workgraph.Ref{Node: nodeObserve, Visit: 1}, Own: own, Upstream: []workgraph.Upstream{
				{Node: nodeReason, Outcome: workgraph.VisitCompleted, Values: []json.RawMessage{json.RawMessage(`["a"]`)}},
				{Node: nodeAct, Outcome: workgraph.VisitFailed, Error: c.err}}}, workgraph.CallOptions{}))
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(out.Values[0]))
			require.Equal(t, []string{nodeReason}, out.Select.Names)
		})
	}
}
