package graphpb_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

func full() *workgraph.Graph {
	return &workgraph.Graph{
		Name: "all fields",
		Nodes: []workgraph.Node{{
			ID: "a", Name: "A", Kind: workgraph.SummarizerKind, Actor: "llm",
			Args:      []json.RawMessage{json.RawMessage(`9007199254740993`), json.RawMessage(`{"z": 1, "a":[ ]}`)},
			Named:     map[string]json.RawMessage{"model": json.RawMessage(`"m<&>"`)},
			Bind:      map[string]workgraph.Binding{"q": {Value: json.RawMessage(`"in $b.x"`), Uses: []workgraph.ResultUse{{Mark: "$b.x", Node: "b", Field: "x", OrWhole: true}}}},
			Transform: "values[0]", PassDown: workgraph.Key("k"),
			Join: workgraph.Join{Mode: workgraph.Quorum, N: 2, Losers: workgraph.CancelLosers},
			When: "true", On: &workgraph.Trigger{Inbox: &workgraph.Inbox{From: []string{"b"}, BatchSize: 3, TTL: workgraph.Duration(time.Second)}},
			Retry: workgraph.Retry{MaxAttempts: 4, InitialBackoff: workgraph.Duration(time.Millisecond), Multiplier: 1.5,
				MaxBackoff: workgraph.Duration(time.Minute), Jitter: -1},
			Check:   &workgraph.Check{Schema: json.RawMessage(`{"type":"string"}`), CEL: "result != ''"},
			Timeout: workgraph.Duration(time.Hour), IdleTimeout: workgraph.Duration(time.Minute),
			OnError:   workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage(`null`)},
			Map:       &workgraph.Map{Over: "args[0]", As: "item", MaxParallel: 5, OnItemError: workgraph.QuorumItems, Quorum: 2, Until: "true"},
			MaxVisits: workgraph.Unlimited, Cache: &workgraph.Cache{TTL: workgraph.Duration(time.Hour)},
			ConcurrencyKey: "'x'", Thread: "t", Effect: workgraph.Unsafe,
		}, {ID: "b", Actor: "cel"}},
		Edges: []workgraph.Edge{{From: "a", To: "b", Kind: workgraph.ErrorEdge, When: "false", PassDown: workgraph.Merge("{}")},
			{From: "b", To: "b", Kind: workgraph.BackEdge, PassDown: workgraph.LeadingArgs()}, {From: "b", To: "a"}},
		State: map[string]workgraph.StateKey{"s": {Reducer: workgraph.AppendByID, Initial: json.RawMessage(`[]`)}, "t": {}},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Run("AllFields/AreKept", func(t *testing.T) {
		wire, err := graphpb.ToProto(full())
		require.NoError(t, err)
		bytes, err := proto.Marshal(wire)
		require.NoError(t, err)
		back := &graphv1.Graph{}
		require.NoError(t, proto.Unmarshal(bytes, back))
		got, err := graphpb.FromProto(back)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(full(), got))
	})
	t.Run("EveryGraph/ComesBackEqual", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			g := genGraph(rt)
			wire, err := graphpb.ToProto(g)
			require.NoError(rt, err)
			got, err := graphpb.FromProto(wire)
			require.NoError(rt, err)
			require.Empty(rt, cmp.Diff(g, got))
			again, err := graphpb.ToProto(got)
			require.NoError(rt, err)
			require.Empty(rt, cmp.Diff(wire, again, protocmp.Transform()))
		})
	})
	t.Run("AbsentPayload/IsNullWhereAValueIsNeeded", func(t *testing.T) {
		got, err := graphpb.FromProto(&graphv1.Graph{Nodes: []*graphv1.Node{{Id: "a",
			Args: []*graphv1.Payload{{}, nil}, Named: map[string]*graphv1.Payload{"k": {}}}}})
		require.NoError(t, err)
		require.Equal(t, []json.RawMessage{json.RawMessage("null"), json.RawMessage("null")}, got.Nodes[0].Args)
		require.Equal(t, map[string]json.RawMessage{"k": json.RawMessage("null")}, got.Nodes[0].Named)
	})
}

func TestFaults(t *testing.T) {
	t.Run("FromProto/NamesEveryPlace", func(t *testing.T) {
		wire := &graphv1.Graph{
			Nodes: []*graphv1.Node{{
				Id: "a", Kind: 77, Args: []*graphv1.Payload{{Json: []byte(`{`)}}, Named: map[string]*graphv1.Payload{"b": {Json: []byte("\xff")}, "a": {Json: []byte("1 2")}},
				Timeout: &durationpb.Duration{Seconds: math.MaxInt64},
			}},
			Edges: []*graphv1.Edge{{From: "a", To: "b", Kind: -1}},
			State: map[string]*graphv1.StateKey{"s": {Reducer: 9}, "r": {Initial: &graphv1.Payload{Json: []byte("x")}}},
		}
		got, err := graphpb.FromProto(wire)
		require.NotNil(t, got)
		faults, ok := errors.AsType[workgraph.Faults](err)
		require.True(t, ok, "got %v", err)
		var places []string
		for _, f := range faults {
			require.NotEmpty(t, f.Hint)
			places = append(places, f.Code+" "+graphpb.FaultPath(f))
		}
		require.ElementsMatch(t, []string{
			"VALUE_UNKNOWN graph.nodes[a].kind", "PAYLOAD_INVALID graph.nodes[a].args[0]",
			"PAYLOAD_INVALID graph.nodes[a].named.a", "PAYLOAD_INVALID graph.nodes[a].named.b",
			"DURATION_INVALID graph.nodes[a].timeout",
			"VALUE_UNKNOWN graph.edges[a -> b].kind", "PAYLOAD_INVALID graph.state.r.initial", "VALUE_UNKNOWN graph.state.s.reducer",
		}, places)
	})
	t.Run("ToProto/RefusesUnknownWords", func(t *testing.T) {
		_, err := graphpb.ToProto(&workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Kind: "NO", PassDown: workgraph.PassDown{Mode: "NO"}, MaxVisits: math.MaxInt64}}})
		faults, ok := errors.AsType[workgraph.Faults](err)
		require.True(t, ok, "got %v", err)
		require.Len(t, faults, 3)
	})
	t.Run("FaultError/ListsThemAsViolations", func(t *testing.T) {
		err := graphpb.FaultError([]workgraph.Fault{
			{Code: "CYCLE", From: "a", To: "b", Message: "a cycle", Hint: "make one edge BACK"},
			{Code: "NO_NODES", Message: "empty"},
		})
		require.True(t, errs.Is(err, errs.InvalidArgument))
		require.Equal(t, []errs.Violation{
			{Field: "graph.edges[a -> b]", Reason: "CYCLE", Message: "a cycle; make one edge BACK"},
			{Field: "graph", Reason: "NO_NODES", Message: "empty"},
		}, err.Violations)
		require.Equal(t, "make one edge BACK", err.HintText())
	})
	t.Run("Fault/HasAWireForm", func(t *testing.T) {
		got := graphpb.Fault(workgraph.Fault{Code: "C", From: "a", To: "b", Field: "f", Message: "m", Hint: "h"})
		require.Empty(t, cmp.Diff(&graphv1.Fault{Code: "C", Edge: "a -> b", Field: "f", Message: "m", Hint: "h"}, got, protocmp.Transform()))
	})
	t.Run("Lists/ReportAll", func(t *testing.T) {
		_, err := graphpb.RawList("args", []*graphv1.Payload{{Json: []byte("x")}, {Json: []byte("1")}, {Json: []byte("y")}})
		faults, ok := errors.AsType[workgraph.Faults](err)
		require.True(t, ok)
		require.Len(t, faults, 2)
		m, err := graphpb.RawMap("named", map[string]*graphv1.Payload{"a": {Json: []byte("1")}})
		require.NoError(t, err)
		require.Equal(t, map[string]json.RawMessage{"a": json.RawMessage("1")}, m)
		require.Empty(t, cmp.Diff(map[string]*graphv1.Payload{"a": {Json: []byte("1")}}, graphpb.PayloadMap(m), protocmp.Transform()))
		require.Equal(t, graphv1.Effect_EFFECT_UNSAFE, graphpb.Effect(workgraph.Unsafe))
	})
}

func genGraph(t *rapid.T) *workgraph.Graph {
	word := rapid.StringMatching(`[a-z]{0,6}`)
	raw := rapid.SampledFrom([]json.RawMessage{json.RawMessage(`1`), json.RawMessage(`null`), json.RawMessage(`{"a" : [1.50, "é"]}`), json.RawMessage(`""`)})
	opt := func(label string) json.RawMessage {
		if rapid.Bool().Draw(t, label) {
			return raw.Draw(t, label)
		}
		return nil
	}
	dur := rapid.Custom(func(t *rapid.T) workgraph.Duration { return workgraph.Duration(rapid.Int64().Draw(t, "d")) })
	small := rapid.IntRange(-1, math.MaxInt32)
	pass := rapid.Custom(func(t *rapid.T) workgraph.PassDown {
		switch rapid.IntRange(0, 5).Draw(t, "mode") {
		case 1:
			return workgraph.PassDown{Mode: workgraph.NoPassDown}
		case 2:
			return workgraph.FirstArg()
		case 3:
			return workgraph.LeadingArgs()
		case 4:
			return workgraph.Key(word.Draw(t, "key"))
		case 5:
			return workgraph.Merge(word.Draw(t, "expr"))
		}
		return workgraph.PassDown{}
	})
	g := &workgraph.Graph{Name: word.Draw(t, "name")}
	for range rapid.IntRange(0, 4).Draw(t, "nodes") {
		n := workgraph.Node{
			ID: word.Draw(t, "id"), Name: word.Draw(t, "name"), Actor: word.Draw(t, "actor"), Transform: word.Draw(t, "transform"),
			Kind:     rapid.SampledFrom([]workgraph.Kind{"", workgraph.ActionKind, workgraph.AgentKind, workgraph.SummarizerKind, workgraph.ProblemKind}).Draw(t, "kind"),
			PassDown: pass.Draw(t, "pass"), When: word.Draw(t, "when"),
			Join: workgraph.Join{Mode: rapid.SampledFrom([]workgraph.JoinMode{"", workgraph.All, workgraph.Any, workgraph.Quorum}).Draw(t, "join"),
				N: small.Draw(t, "n"), Losers: rapid.SampledFrom([]workgraph.Losers{"", workgraph.CancelLosers, workgraph.FinishLosers}).Draw(t, "losers")},
			Retry: workgraph.Retry{MaxAttempts: small.Draw(t, "ma"), InitialBackoff: dur.Draw(t, "ib"), MaxBackoff: dur.Draw(t, "mb"),
				Multiplier: rapid.Float64().Draw(t, "m"), Jitter: rapid.Float64().Draw(t, "j")},
			Timeout: dur.Draw(t, "timeout"), IdleTimeout: dur.Draw(t, "idle"),
			OnError:   workgraph.OnError{Action: rapid.SampledFrom([]workgraph.ErrorAction{"", workgraph.Fail, workgraph.Continue, workgraph.Fallback, workgraph.Route}).Draw(t, "oe"), Value: opt("fb")},
			MaxVisits: small.Draw(t, "mv"), ConcurrencyKey: word.Draw(t, "ck"), Thread: word.Draw(t, "thread"),
			Effect: rapid.SampledFrom([]workgraph.Effect{"", workgraph.Pure, workgraph.Idempotent, workgraph.Unsafe}).Draw(t, "effect"),
		}
		n.Args = rapid.SliceOfN(raw, 1, 3).Draw(t, "args")
		if rapid.Bool().Draw(t, "hasNamed") {
			n.Named = rapid.MapOfN(word, raw, 1, 3).Draw(t, "named")
		}
		if rapid.Bool().Draw(t, "hasBind") {
			n.Bind = map[string]workgraph.Binding{word.Draw(t, "bound"): {Value: opt("bv"), Uses: []workgraph.ResultUse{{Mark: word.Draw(t, "mark"),
				Node: word.Draw(t, "use"), Field: word.Draw(t, "field"), OrWhole: rapid.Bool().Draw(t, "ow")}}}}
		}
		if rapid.Bool().Draw(t, "hasMap") {
			n.Map = &workgraph.Map{Over: word.Draw(t, "over"), As: word.Draw(t, "as"), MaxParallel: small.Draw(t, "mp"), Quorum: small.Draw(t, "q"),
				OnItemError: rapid.SampledFrom([]workgraph.ItemErrors{"", workgraph.FailFast, workgraph.ContinueItems, workgraph.QuorumItems}).Draw(t, "ie")}
		}
		if rapid.Bool().Draw(t, "hasCheck") {
			n.Check = &workgraph.Check{Schema: opt("schema"), CEL: word.Draw(t, "cel")}
		}
		if rapid.Bool().Draw(t, "hasCache") {
			n.Cache = &workgraph.Cache{TTL: dur.Draw(t, "ttl"), Key: word.Draw(t, "cachekey"), Scope: rapid.SampledFrom([]workgraph.CacheScope{"", workgraph.CacheForChat, workgraph.CacheForUser, workgraph.CacheForNamespace}).Draw(t, "scope")}
		}
		if rapid.Bool().Draw(t, "hasOn") {
			n.On = &workgraph.Trigger{}
			if rapid.Bool().Draw(t, "hasInbox") {
				n.On.Inbox = &workgraph.Inbox{From: rapid.SliceOfN(word, 1, 2).Draw(t, "from"), BatchSize: small.Draw(t, "bs"), TTL: dur.Draw(t, "ittl")}
			}
		}
		g.Nodes = append(g.Nodes, n)
	}
	for range rapid.IntRange(0, 4).Draw(t, "edges") {
		g.Edges = append(g.Edges, workgraph.Edge{From: word.Draw(t, "from"), To: word.Draw(t, "to"), When: word.Draw(t, "when"), PassDown: pass.Draw(t, "pass"),
			Kind: rapid.SampledFrom([]workgraph.EdgeKind{"", workgraph.DataEdge, workgraph.ErrorEdge, workgraph.BackEdge}).Draw(t, "ek")})
	}
	if rapid.Bool().Draw(t, "hasState") {
		g.State = map[string]workgraph.StateKey{word.Draw(t, "sk"): {Reducer: rapid.SampledFrom([]workgraph.Reducer{"", workgraph.Replace, workgraph.Append, workgraph.AppendByID, workgraph.Add}).Draw(t, "red"), Initial: opt("init")}}
	}
	return g
}

func TestFaultErrorSpeaksOfTheWireForm(t *testing.T) {
	err := graphpb.FaultError([]workgraph.Fault{{Code: workgraph.CodeBadQuorum, Node: "j", Field: "join.n", Message: "n belongs to the mode QUORUM", Hint: "set join.mode to QUORUM, or drop n"}})
	require.Equal(t, "graph.nodes[j].join.quorum", err.Violations[0].Field)
	require.Equal(t, "quorum belongs to the kind QUORUM; set join.kind to QUORUM, or drop quorum", err.Violations[0].Message)
}
