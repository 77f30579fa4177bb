package graphpb_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestRead(t *testing.T) {
	t.Run("BothForms/AreOneGraph", func(t *testing.T) {
		rest, err := graphpb.Read([]byte(`{"name": "g", "nodes": [
			{"id": "a", "actor": "x", "args": [12345678901234567890, null], "named": {"k": {"json": "e30="}}, "timeout": "1.5s",
			 "retry": {"maxAttempts": 2, "initialInterval": "0.1s"}, "onError": {"kind": "ON_ERROR_KIND_FALLBACK", "fallback": null},
			 "join": {"kind": "JOIN_KIND_QUORUM", "quorum": 1}, "resultPassDownMode": {"key": "r"}}],
			"edges": [{"from": "a", "to": "a", "kind": "EDGE_KIND_BACK", "when": "false"}], "state": {"s": {"initial": [1]}}}`))
		require.NoError(t, err)
		model, err := graphpb.Read([]byte(`{"name": "g", "nodes": [
			{"id": "a", "actor": "x", "args": [12345678901234567890, null], "named": {"k": {"json": "e30="}}, "timeout": "1.5s",
			 "retry": {"max_attempts": 2, "initial_backoff": "100ms"}, "on_error": {"action": "FALLBACK", "value": null},
			 "join": {"mode": "QUORUM", "n": 1}, "result_pass_down_mode": {"mode": "KEY", "key": "r"}}],
			"edges": [{"from": "a", "to": "a", "kind": "BACK", "when": "false"}], "state": {"s": {"initial": [1]}}}`))
		require.NoError(t, err)
		require.Empty(t, diffText(t, rest, model))
		require.Equal(t, "12345678901234567890", string(rest.GetNodes()[0].GetArgs()[0].GetJson()))
		require.Equal(t, "null", string(rest.GetNodes()[0].GetArgs()[1].GetJson()))
	})

	t.Run("Model/OfBothForms", func(t *testing.T) {
		rest, err := graphpb.ReadModel([]byte(`{"nodes": [{"id": "a", "actor": "x", "maxVisits": 3}]}`))
		require.NoError(t, err)
		model, err := graphpb.ReadModel([]byte(`{"nodes": [{"id": "a", "actor": "x", "max_visits": 3}]}`))
		require.NoError(t, err)
		require.Equal(t, model.Nodes[0].MaxVisits, rest.Nodes[0].MaxVisits)
		require.Equal(t, 3, rest.Nodes[0].MaxVisits)
		_, err = graphpb.ReadModel([]byte(`{"nodes": 7}`))
		require.ErrorContains(t, err, "graph.nodes")
	})

	t.Run("Example/NeedsNoOtherForm", func(t *testing.T) {
		raw, err := os.ReadFile("../../examples/rounds/graph.json")
		require.NoError(t, err)
		_, err = workgraph.Decode(raw)
		require.Error(t, err, "the example is in the documented form")
		_, err = graphpb.Read(raw)
		require.NoError(t, err)
	})

	t.Run("Faults/AllAtOnceWithTheirPlaces", func(t *testing.T) {
		_, err := graphpb.Read([]byte(`{"nodes": [{"id": "a", "actor": "x", "retry": {"initialInterval": "100ms", "tries": 1}}, 7],
			"edges": {}, "state": [], "nams": 1}`))
		x, ok := err.(*errs.Error) //nolint:errorlint // it is what the function returns
		require.True(t, ok)
		require.Equal(t, graphpb.ReasonGraphInvalid, x.Reason)
		var got []string
		for _, v := range x.Violations {
			got = append(got, v.Field+" "+v.Reason)
		}
		require.Equal(t, []string{
			"graph.nodes[0].retry.initialInterval WRONG_TYPE", "graph.nodes[0].retry.tries UNKNOWN_FIELD", "graph.nodes[1] WRONG_TYPE",
			"graph.edges WRONG_TYPE", "graph.state WRONG_TYPE", "graph.nams UNKNOWN_FIELD",
		}, got)
	})

	t.Run("Faults/LeaveTheRestToBeLookedAt", func(t *testing.T) {
		g, err := graphpb.Read([]byte(`{"nodes": [{"id": "a", "actor": 5, "maxVisit": 3, "when": true, "retry": {"maxAttempts": true}, "named": {"x": {"y": 1}}}], "egdes": []}`))
		x, ok := err.(*errs.Error) //nolint:errorlint // it is what the function returns
		require.True(t, ok)
		got := map[string]string{}
		for _, v := range x.Violations {
			got[v.Field] = v.Message
		}
		require.Equal(t, map[string]string{
			"graph.nodes[0].actor":             "this must be a text in double quotes, not 5",
			"graph.nodes[0].maxVisit":          `Node has no field "maxVisit"; did you mean "maxVisits"?`,
			"graph.nodes[0].when":              "this must be a text in double quotes, not true",
			"graph.nodes[0].retry.maxAttempts": "this must be a whole number of 32 bits, not true",
			"graph.egdes":                      `Graph has no field "egdes"; did you mean "edges"?`,
		}, got)
		require.Equal(t, "a", g.GetNodes()[0].GetId())
		require.JSONEq(t, `{"y": 1}`, string(g.GetNodes()[0].GetNamed()["x"].GetJson()))
	})

	t.Run("Faults/OfTheProtobuf", func(t *testing.T) {
		for _, c := range []struct {
			raw  string
			want map[string]string
		}{
			{`{"nodes": [{"id": "a", "retry": {"maxAttempts": "x"}, "timeout": "10"}]}`, map[string]string{
				"graph.nodes[0].retry.maxAttempts": `this must be a whole number of 32 bits, not "x"`, "graph.nodes[0].timeout": `"10" is no duration; write it as "1.5s"`}},
			{`{"nodes": [{"id": "a", "id": "b", "actor": "x", "maxVisits": 0.5}]}`, map[string]string{
				"graph.nodes[0].id": `the field "id" is given twice`, "graph.nodes[0].maxVisits": "this must be a whole number of 32 bits, not 0.5"}},
			{`{"nodes": [{"id": "a", "actor": "x", "resultPassDownMode": {"key": "a", "merge": "b"}}]}`, map[string]string{
				"graph.nodes[0].resultPassDownMode.merge": `only one of "key" and "merge" may be given`}},
			{`{"nodes": [{"id": "a", "named": {"k": 1, "k": 2}, "retry": {"backoffFactor": "much"}}]}`, map[string]string{
				"graph.nodes[0].named.k": `the key "k" is given twice`, "graph.nodes[0].retry.backoffFactor": `this must be a number, not "much"`}},
		} {
			g, err := graphpb.Read([]byte(c.raw))
			got := map[string]string{}
			for _, v := range errs.From(err).Violations {
				got[v.Field] = v.Message
			}
			require.Equal(t, c.want, got, c.raw)
			require.Equal(t, "a", g.GetNodes()[0].GetId(), "the rest can be looked at")
		}
	})
	t.Run("Faults/AreBounded", func(t *testing.T) {
		_, err := graphpb.Read([]byte(`{"nodes": [{"id": "a"}` + strings.Repeat(`, 7`, 1000) + `]}`))
		faults := errs.From(err).Violations
		require.Len(t, faults, workgraph.MaxFaults+1)
		require.Equal(t, "and 900 more faults", faults[workgraph.MaxFaults].Message)
	})
	t.Run("Enums/InFullOrWithoutTheirPrefix", func(t *testing.T) {
		g, err := graphpb.Read([]byte(`{"nodes": [{"id": "a", "actor": "x", "join": {"kind": "ANY"}, "onError": {"kind": "ON_ERROR_KIND_CONTINUE"}, "effect": "PURE", "tries": 3}],
			"edges": [{"from": "a", "to": "a", "kind": "BACK"}, {"from": "a", "to": "b", "kind": "BCK"}]}`))
		var got []string
		for _, v := range errs.From(err).Violations {
			got = append(got, v.Field+": "+v.Message)
		}
		require.Len(t, got, 2)
		require.Contains(t, got[0], "graph.nodes[0].tries: ")
		require.Equal(t, `graph.edges[1].kind: "BCK" is no EdgeKind; use one of EDGE_KIND_DATA, EDGE_KIND_ERROR, EDGE_KIND_BACK`, got[1])
		require.Equal(t, graphv1.JoinKind_JOIN_KIND_ANY, g.GetNodes()[0].GetJoin().GetKind())
		require.Equal(t, graphv1.OnErrorKind_ON_ERROR_KIND_CONTINUE, g.GetNodes()[0].GetOnError().GetKind())
		require.Equal(t, graphv1.Effect_EFFECT_PURE, g.GetNodes()[0].GetEffect())
		require.Equal(t, graphv1.EdgeKind_EDGE_KIND_BACK, g.GetEdges()[0].GetKind())
	})
	t.Run("Numbers/AsTexts", func(t *testing.T) {
		g, err := graphpb.Read([]byte(`{"nodes": [{"id": "a", "actor": "x", "maxVisits": "3", "retry": {"backoffFactor": "1.5", "maxAttempts": 2.0}}]}`))
		require.NoError(t, err)
		require.EqualValues(t, 3, g.GetNodes()[0].GetMaxVisits())
	})
}

// diffText describes the difference of two graphs; it is empty if they are equal.
func diffText(t *testing.T, a, b *graphv1.Graph) string {
	t.Helper()
	ga, err := graphpb.FromProto(a)
	require.NoError(t, err)
	gb, err := graphpb.FromProto(b)
	require.NoError(t, err)
	ca, err := ga.Canonical()
	require.NoError(t, err)
	cb, err := gb.Canonical()
	require.NoError(t, err)
	if string(ca) == string(cb) {
		return ""
	}
	return string(ca) + "\n" + string(cb)
}
