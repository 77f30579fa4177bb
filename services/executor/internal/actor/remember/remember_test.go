package remember_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/remember"
	"github.com/epigraph-run/epigraph/workgraph"
)

// kept notes what it is asked, and answers always the same.
type kept struct {
	entry    remember.Entry
	search   *remember.Search
	found    []remember.Entry
	left     int64
	gaveWay  []string
	requests []string
	err      error
}

func (k *kept) Write(_ context.Context, _ string, e remember.Entry, request string) (remember.Entry, []string, error) {
	k.entry, k.requests = e, append(k.requests, request)
	return e, k.gaveWay, k.err
}

func (k *kept) Search(_ context.Context, _ string, s remember.Search) ([]remember.Entry, int64, error) {
	k.search = &s
	return k.found, k.left, k.err
}

func (k *kept) EpicOf(_ context.Context, _, task string) (string, error) {
	if task == "tk_gone" {
		return "", nil
	}
	return "ep_of_" + task, nil
}

func spec(t *testing.T, m remember.Memory, name string) actor.Spec {
	t.Helper()
	for _, s := range remember.Specs(m, nil) {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no actor", name)
	return actor.Spec{}
}

// within has a call made within a workflow of the catalog.
func within(s actor.Spec, slug string) actor.Spec {
	inner := s.Actor
	s.Actor = workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		return inner.Call(actor.WithWorkflow(ctx, slug+"@3"), c)
	})
	return s
}

func ada(s *workgraph.Start) { s.UserID = "ada" }

func onTask(s *workgraph.Start) { s.TaskID = "tk_1" }

func TestRead(t *testing.T) {
	t.Parallel()
	everybody, user := remember.Scope{Level: "namespace"}, remember.Scope{Level: "user", Subject: "ada"}
	t.Run("Scopes/AreThoseOfTheRun", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			args string
			run  []func(*workgraph.Start)
			want []remember.Scope
		}{
			"NoUser":    {`{}`, nil, []remember.Scope{everybody, {Level: "workflow", Subject: "digest"}}},
			"User":      {`{"query": "tea"}`, []func(*workgraph.Start){ada}, []remember.Scope{everybody, user, {Level: "workflow", Subject: "digest"}}},
			"Task":      {`{}`, []func(*workgraph.Start){ada, onTask}, []remember.Scope{everybody, user, {Level: "epic", Subject: "ep_of_tk_1"}, {Level: "workflow", Subject: "digest"}}},
			"TaskGone":  {`{"scope": "epic"}`, []func(*workgraph.Start){func(s *workgraph.Start) { s.TaskID = "tk_gone" }}, nil},
			"Narrow":    {`{"scope": "User"}`, []func(*workgraph.Start){ada, onTask}, []remember.Scope{user}},
			"NoneOfOne": {`{"scope": "user"}`, nil, nil},
		} {
			k := &kept{}
			got := actortest.Value(t, within(spec(t, k, "memory_read"), "digest"), c.args, c.run...)
			require.JSONEq(t, `{"success": true, "memories": [], "action_memory": {"memory": ""}}`, got, name)
			if c.want == nil {
				require.Nil(t, k.search, "%s: nothing is searched", name)
				continue
			}
			require.Equal(t, c.want, k.search.Scopes, name)
		}
	})
	t.Run("Search/TellsWhoReads", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		actortest.Value(t, spec(t, k, "memory_read"), `{"query": " tea ", "about": "milk", "key": "k", "fact_type": "Procedure", "min_confidence": 0.5, "limit": 1000}`, ada)
		require.Equal(t, remember.Search{Text: "tea  milk", Key: "k", Scopes: []remember.Scope{everybody, user}, Kinds: []string{"procedure"}, MinConfidence: 0.5, Limit: 50,
			Run: "run_1", Node: "n", User: "ada"}, *k.search)
	})
	t.Run("Agent/IsThatOfTheNode", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			args, passed string
			agent        string
			limit        int
		}{
			"All":     {`{"agent": "agent/x", "about": "tea"}`, `{}`, "agent/x", 100},
			"Few":     {`{"agent": "agent/x", "limit": 2}`, `{}`, "agent/x", 2},
			"Bounded": {`{"agent": "agent/x", "limit": 1000}`, `{}`, "agent/x", 100},
			"Passed":  {`{}`, `{"agent": "agent/x"}`, "", 10},
		} {
			k := &kept{}
			actortest.Value(t, spec(t, k, "memory_read"), c.args, ada, func(s *workgraph.Start) {
				s.Own = maps.Clone(s.Named) // what a result passes on is not the node's own
				require.NoError(t, json.Unmarshal([]byte(c.passed), &s.Named), name)
			})
			require.Equal(t, []any{c.agent, c.limit, []remember.Scope{everybody, user}}, []any{k.search.Agent, k.search.Limit, k.search.Scopes}, name)
		}
	})
	t.Run("Answer/HasTextsAndValues", func(t *testing.T) {
		t.Parallel()
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		k := &kept{found: []remember.Entry{
			{Scope: user, Key: "drink", Kind: "preference", Text: "likes tea", Tags: []string{"taste"}, Confidence: 0.5, Written: at},
			{Scope: everybody, Key: "procedure:ep_1", Kind: "procedure", Value: json.RawMessage(`{"goal":"x"}`), Confidence: 1, Written: at},
		}}
		require.JSONEq(t, `{"success": true, "memories": [
			{"key": "drink", "fact_type": "preference", "scope": "user", "text": "likes tea", "tags": ["taste"], "confidence": 0.5, "written": "2026-01-02T03:04:05Z"},
			{"key": "procedure:ep_1", "fact_type": "procedure", "scope": "namespace", "value": {"goal": "x"}, "confidence": 1, "written": "2026-01-02T03:04:05Z"}],
			"action_memory": {"memory": "- likes tea\n- procedure:ep_1: {\"goal\":\"x\"}"}}`, actortest.Value(t, spec(t, k, "memory_read"), `{}`))
	})
	t.Run("Answer/IsBounded", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		for range 50 {
			k.found = append(k.found, remember.Entry{Text: strings.Repeat("x", 8<<10)})
		}
		got := actortest.Value(t, spec(t, k, "memory_read"), `{}`)
		require.Contains(t, got, `"left_out":42`)
	})
}

func TestWrite(t *testing.T) {
	t.Parallel()
	t.Run("Scope/IsThatOfTheUserUnlessTheToolShares", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			tool, args string
			run        []func(*workgraph.Start)
			want       remember.Scope
			says       string
		}{
			"User":               {"memory_write", `{"value": "x"}`, []func(*workgraph.Start){ada}, remember.Scope{Level: "user", Subject: "ada"}, ""},
			"Epic":               {"memory_write", `{"value": "x", "scope": "epic"}`, []func(*workgraph.Start){ada, onTask}, remember.Scope{Level: "epic", Subject: "ep_of_tk_1"}, ""},
			"NoEpic":             {"memory_write", `{"value": "x", "scope": "epic"}`, []func(*workgraph.Start){ada}, remember.Scope{}, "this run has no epic"},
			"ForAll":             {"memory_write", `{"value": "x", "scope": "namespace"}`, []func(*workgraph.Start){ada}, remember.Scope{}, "others would read it"},
			"ForWorkflow":        {"memory_write", `{"value": "x", "scope": "workflow"}`, []func(*workgraph.Start){ada}, remember.Scope{}, "others would read it"},
			"NoUser":             {"memory_write", `{"value": "x"}`, nil, remember.Scope{Level: "workflow", Subject: "digest"}, ""},
			"NoUserForAll":       {"memory_write", `{"value": "x", "scope": "namespace"}`, nil, remember.Scope{}, "not for the namespace: others would read it"},
			"NoUserForWorkflow":  {"memory_write", `{"value": "x", "scope": "workflow"}`, nil, remember.Scope{Level: "workflow", Subject: "digest"}, ""},
			"NoUserForUser":      {"memory_write", `{"value": "x", "scope": "user"}`, nil, remember.Scope{}, "this run has no user"},
			"Shared":             {"memory_share", `{"value": "x"}`, []func(*workgraph.Start){ada}, remember.Scope{Level: "workflow", Subject: "digest"}, ""},
			"SharedWithAll":      {"memory_share", `{"value": "x", "scope": "namespace"}`, []func(*workgraph.Start){ada}, remember.Scope{Level: "namespace"}, ""},
			"SharedWithNoScope":  {"memory_share", `{"value": "x", "scope": "user"}`, []func(*workgraph.Start){ada}, remember.Scope{}, "memory_write keeps for the user"},
			"SharedUnknownScope": {"memory_share", `{"value": "x", "scope": "team"}`, []func(*workgraph.Start){ada}, remember.Scope{}, "Must be one of"},
		} {
			k := &kept{}
			got := actortest.Value(t, within(spec(t, k, c.tool), "digest"), c.args, c.run...)
			if c.says != "" {
				require.Contains(t, got, `"success":false`, name)
				require.Contains(t, got, c.says, name)
				require.Empty(t, k.requests, name)
				continue
			}
			require.Contains(t, got, `"success":true`, name)
			require.Equal(t, c.want, k.entry.Scope, name)
		}
	})
	t.Run("Entry/HasAllThatIsGiven", func(t *testing.T) {
		t.Parallel()
		k := &kept{gaveWay: []string{"old"}}
		got := actortest.Value(t, spec(t, k, "memory_write"), `{"key": " drink ", "value": {"likes": "tea"}, "text": "likes tea", "fact_type": "preference", "tags": "a, b,,a", "confidence": 0.5, "expires_in_days": 1}`, ada)
		require.JSONEq(t, `{"success": true, "key": "drink", "scope": "user", "fact_type": "preference", "gave_way": ["old"]}`, got)
		require.Equal(t, remember.Entry{Scope: remember.Scope{Level: "user", Subject: "ada"}, Key: "drink", Kind: "preference", Text: "likes tea", Value: json.RawMessage(`{"likes": "tea"}`),
			Tags: []string{"a", "b"}, Confidence: 0.5, Life: 24 * time.Hour, Source: "run_1", User: "ada"}, k.entry)
	})
	t.Run("Key/IsThatOfTheEffect", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		for _, change := range []func(*workgraph.Start){func(*workgraph.Start) {}, func(s *workgraph.Start) { s.Attempt = 2 }, func(s *workgraph.Start) { s.Visit = 2 }} {
			actortest.Value(t, spec(t, k, "memory_write"), `{"value": "x"}`, change)
		}
		require.Equal(t, k.requests[0], k.requests[1], "another attempt of the same call writes no second time")
		require.NotEqual(t, k.requests[0], k.requests[2])
	})
	for name, c := range map[string]struct{ args, says string }{
		"Nothing":    {`{"key": "k"}`, "value is missing"},
		"Procedure":  {`{"key": "procedure:ep_1", "value": "x"}`, "a key must not begin with procedure:"},
		"Learned":    {`{"key": " learned:f", "value": "x"}`, "a key must not begin with learned:"},
		"LongText":   {`{"value": "` + strings.Repeat("x", 8<<10+1) + `"}`, "text has 8193 bytes"},
		"LongValue":  {`{"value": ["` + strings.Repeat("x", 16<<10) + `"]}`, "value has"},
		"LongKey":    {`{"key": "` + strings.Repeat("x", 257) + `", "value": 1}`, "key has 257 bytes"},
		"Kind":       {`{"value": 1, "fact_type": "dream"}`, "Must be one of: fact, preference, procedure"},
		"Confidence": {`{"value": 1, "confidence": 2}`, "confidence must be from 0 to 1"},
		"Days":       {`{"value": 1, "expires_in_days": 0}`, "expires_in_days"},
		"Tags":       {`{"value": 1, "tags": {}}`, "tags must be a list"},
	} {
		t.Run("Refuses/"+name, func(t *testing.T) {
			t.Parallel()
			k := &kept{}
			got := actortest.Value(t, spec(t, k, "memory_write"), c.args, ada)
			require.Contains(t, got, `"success":false`)
			require.Contains(t, got, c.says)
			require.Empty(t, k.requests)
		})
	}
	t.Run("Registry/RefusalIsAnAnswer", func(t *testing.T) {
		t.Parallel()
		k := &kept{err: errs.New(errs.InvalidArgument, "MEMORY_INVALID", "no").Hint("mend it")}
		require.JSONEq(t, `{"success": false, "error": "no", "reason": "MEMORY_INVALID", "hint": "mend it"}`, actortest.Value(t, spec(t, k, "memory_write"), `{"value": 1}`))
	})
	t.Run("Registry/AwayKeepsTheKey", func(t *testing.T) {
		t.Parallel()
		k := &kept{err: errs.New(errs.Unavailable, "DOWN", "down")}
		require.Equal(t, workgraph.Unknown, actortest.Fails(t, spec(t, k, "memory_write"), `{"value": 1}`).Type)
		require.Equal(t, "NO_MEMORY", actortest.Fails(t, spec(t, nil, "memory_read"), `{}`).Reason)
	})
}
