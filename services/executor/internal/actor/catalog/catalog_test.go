package catalog_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

// kept is a catalog that answers always the same.
type kept struct {
	drafts  []catalog.Draft
	queries []catalog.Query
	found   []catalog.Match
	err     error
}

func (k *kept) CreateWorkflow(_ context.Context, _ string, d catalog.Draft) (catalog.Created, error) {
	k.drafts = append(k.drafts, d)
	return catalog.Created{ID: "wf_1", Slug: "tea", Name: "Tea", Version: 1, Nodes: 3, Edges: 2}, k.err
}

func (k *kept) DiscoverWorkflows(_ context.Context, _ string, q catalog.Query) ([]catalog.Match, int64, error) {
	k.queries = append(k.queries, q)
	return k.found, 7, k.err
}

func specs(c catalog.Catalog) (create, discover actor.Spec) {
	all := catalog.Specs(c)
	return all[0], all[1]
}

func named(t *testing.T, key string, v any) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{key: v})
	require.NoError(t, err)
	return string(raw)
}

func TestCreate(t *testing.T) {
	t.Parallel()
	const text = "name: Tea\nsteps:\n  - {id: a, type: transphorm, template: x}\n"
	t.Run("Answer/CanBeSpawned", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		create, _ := specs(k)
		require.JSONEq(t, `{"success": true, "workflow_id": "wf_1", "slug": "tea", "version": 1, "workflow": "tea@1", "ref": "workflow/tea@1", "name": "Tea",
			"node_count": 3, "edge_count": 2, "mode": "created"}`, actortest.Value(t, create, named(t, "dsl", text)))
	})
	t.Run("Text/FenceAndObjectAndFork", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		create, _ := specs(k)
		actortest.Value(t, create, named(t, "dsl", "```yaml\n"+text+"```\n"))
		actortest.Value(t, create, named(t, "dsl", map[string]any{"name": "Tea"}))
		require.Contains(t, actortest.Value(t, create, named(t, "dsl", "based_on: tea\npatches: []\n")), `"forked"`)
		actortest.Value(t, create, named(t, "dsl", `{"name": "x", "steps": [{"based_on": 1}]}`))
		require.Equal(t, []string{strings.TrimSpace(text), `{"name":"Tea"}`}, []string{k.drafts[0].Text, k.drafts[1].Text})
		require.Equal(t, []bool{false, false, true, false}, []bool{k.drafts[0].Fork, k.drafts[1].Fork, k.drafts[2].Fork, k.drafts[3].Fork})
	})
	t.Run("Text/ThatSharesMemoryIsRefused", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		create, _ := specs(k)
		got := actortest.Value(t, create, named(t, "dsl", text+"  - {id: b, type: agent, prompt: x, tools: [{type: memory_write, scope: namespace}]}\n"))
		require.Contains(t, got, `"success":false`)
		require.Contains(t, got, "line 4: memory_share")
		require.Empty(t, k.drafts)
	})
	t.Run("Key/IsThatOfTheEffect", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		create, _ := specs(k)
		for _, change := range []func(*workgraph.Start){func(*workgraph.Start) {}, func(s *workgraph.Start) { s.Attempt = 2 }, func(s *workgraph.Start) { s.Visit = 2 },
			func(s *workgraph.Start) { s.Node = strings.Repeat("long", 100) }} {
			actortest.Value(t, create, named(t, "dsl", text), change)
		}
		require.Equal(t, k.drafts[0].RequestID, k.drafts[1].RequestID, "another attempt of the same intent")
		require.NotEqual(t, k.drafts[0].RequestID, k.drafts[2].RequestID)
		require.Len(t, k.drafts[3].RequestID, 64)
	})
	t.Run("Faults/AreToldWithCaret", func(t *testing.T) {
		t.Parallel()
		refused := errs.New(errs.InvalidArgument, "WORKFLOW_INVALID", "the workflow has 2 faults").
			Violate("3:18 steps[0].type", "UNKNOWN_TYPE", "there is no type `transphorm`; did you mean `transform`?").Violate("name", "MISSING_KEY", "no name")
		create, _ := specs(&kept{err: refused})
		require.JSONEq(t, `{"success": false, "error": "the workflow has 2 faults", "reason": "WORKFLOW_INVALID", "faults": [
			{"code": "UNKNOWN_TYPE", "line": 3, "column": 18, "path": "steps[0].type", "message": "there is no type `+"`transphorm`; did you mean `transform`?"+`",
			 "at": ["  - {id: a, type: transphorm, template: x}", "                 ^"]},
			{"code": "MISSING_KEY", "path": "name", "message": "no name"}]}`, actortest.Value(t, create, named(t, "dsl", text)))
	})
	t.Run("Faults/AreBounded", func(t *testing.T) {
		t.Parallel()
		refused := errs.New(errs.InvalidArgument, "WORKFLOW_INVALID", "the workflow has 100 faults")
		for range 100 {
			refused = refused.Violate("1:1 "+strings.Repeat("p", 5000), "X", strings.Repeat("m", 5000))
		}
		create, _ := specs(&kept{err: refused})
		got := actortest.Value(t, create, named(t, "dsl", strings.Repeat("x", 10_000)))
		require.Less(t, len(got), 32<<10)
		require.Contains(t, got, "the first 20 are told")
	})
	t.Run("Text/IsBoundedBeforeTheWork", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		create, _ := specs(k)
		for _, text := range []string{strings.Repeat("x", 257<<10), strings.Repeat("\n", 256<<10) + "x", ""} {
			require.Contains(t, actortest.Value(t, create, named(t, "dsl", text)), `"success":false`)
		}
		require.Empty(t, k.drafts)
	})
	t.Run("Text/IsBoundedAsItIsMeant", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		create, _ := specs(k)
		escaped := strings.Repeat(`\u000a`, 256<<10-len("name: Tea")) // 1.5 MiB of JSON
		actortest.Value(t, create, `{"dsl": "name: Tea`+escaped+`"}`)
		require.Len(t, k.drafts, 1)
		require.Len(t, k.drafts[0].Text, 256<<10)
		require.Contains(t, actortest.Value(t, create, `{"dsl": "name: Tea`+escaped+`\u000a"}`), `"success":false`)
		require.Len(t, k.drafts, 1)
	})
	t.Run("Registry/AwayKeepsTheKey", func(t *testing.T) {
		t.Parallel()
		for _, kind := range []errs.Kind{errs.Unavailable, errs.Internal, errs.ResourceExhausted} {
			create, _ := specs(&kept{err: errs.New(kind, "DOWN", "down")})
			require.Equal(t, workgraph.Unknown, actortest.Fails(t, create, named(t, "dsl", text)).Type, "an earlier attempt may have made it")
		}
		for kind, want := range map[errs.Kind]string{errs.Unavailable: "CATALOG_UNREACHABLE", errs.DeadlineExceeded: "CATALOG_UNREACHABLE", errs.Internal: "BROKEN", errs.ResourceExhausted: "BROKEN", errs.PermissionDenied: "BROKEN"} {
			create, _ := specs(&kept{err: errs.New(kind, "BROKEN", "it is broken")})
			got := actortest.Fails(t, create, named(t, "dsl", text))
			require.Equal(t, want, got.Reason, kind)
			require.Contains(t, got.Message, "it is broken")
			require.Equal(t, kind == errs.PermissionDenied, got.Type == workgraph.Permanent, kind)
		}
		create, _ := specs(&kept{err: errs.New(errs.ResourceExhausted, "TOO_MANY_WORKFLOWS", "a namespace may have 7 workflows")})
		require.Contains(t, actortest.Value(t, create, named(t, "dsl", text)), "may have 7")
		none, _ := specs(nil)
		require.Equal(t, "NO_CATALOG", actortest.Fails(t, none, named(t, "dsl", text)).Reason)
		require.NotEmpty(t, none.Unavailable)
	})
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	t.Run("Answer/HasBothViews", func(t *testing.T) {
		t.Parallel()
		lists := json.RawMessage(`{"tools": []}`)
		k := &kept{found: []catalog.Match{{ID: "wf_1", Slug: "tea", Version: 3, Score: 0.95, Recommendation: "reuse", Has: []string{"code"}, HasOf: lists, MissingOf: lists, ExtraOf: lists,
			SuccessRate: 0.92, Description: strings.Repeat("d", 5000)}}}
		_, discover := specs(k)
		var got struct {
			Success bool
			Total   int `json:"total_searched"`
			Matches []map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, discover, `{"query": "tea", "requirements": "{\"trigger\": \"webhook\"}", "limit": 3, "exclude": ["me"]}`)), &got))
		require.Equal(t, []any{true, 7}, []any{got.Success, got.Total})
		m := got.Matches[0]
		require.Equal(t, []any{"tea", 0.95, []any{"code"}, []any{}, []any{}, 0.92, "reuse", "workflow/tea@3"},
			[]any{m["slug"], m["match_score"], m["has"], m["missing"], m["extra"], m["success_rate"], m["recommendation"], m["ref"]})
		require.LessOrEqual(t, len(m["description"].(string)), 410)
		require.Equal(t, []catalog.Query{{Text: "tea", Requirements: `{"trigger": "webhook"}`, Limit: 3, Exclude: []string{"me"}}}, k.queries)
	})
	t.Run("Exclude/HasTheWorkflowOfTheCall", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		_, discover := specs(k)
		of := actor.WithWorkflow(t.Context(), "me@3")
		for _, args := range []string{`{}`, `{"exclude": ["you"]}`, `{"exclude": ["me", "you"]}`} {
			var named map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(args), &named))
			_, err := discover.Actor.Call(of, workgraph.NewCall(workgraph.Start{Named: named}, workgraph.CallOptions{}))
			require.NoError(t, err)
		}
		require.Equal(t, [][]string{{"me"}, {"you", "me"}, {"me", "you"}}, [][]string{k.queries[0].Exclude, k.queries[1].Exclude, k.queries[2].Exclude})
	})
	t.Run("Requirements/AsAnObject", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		_, discover := specs(k)
		require.JSONEq(t, `{"success": true, "matches": [], "total_searched": 7}`, actortest.Value(t, discover, `{"requirements": {"tools": ["code"]}}`))
		require.JSONEq(t, `{"tools": ["code"]}`, k.queries[0].Requirements)
	})
	t.Run("Arguments/AreBounded", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		_, discover := specs(k)
		for _, args := range []string{`{"limit": 21}`, `{"limit": -1}`, named(t, "query", strings.Repeat("x", 5000)), named(t, "requirements", strings.Repeat("x", 70<<10)),
			named(t, "exclude", make([]string, 101))} {
			require.Contains(t, actortest.Value(t, discover, args), `"success":false`)
		}
		require.Empty(t, k.queries)
	})
}
