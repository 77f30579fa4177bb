package facts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/facts"
	"github.com/epigraph-run/epigraph/services/executor/internal/fact"
	"github.com/epigraph-run/epigraph/workgraph"
)

// kept are the facts of agents, newest first.
type kept []fact.Fact

func (k kept) ListFacts(_ context.Context, _ string, f fact.Filter, after page.Cursor, limit int) (out []fact.Fact, err error) {
	if k == nil {
		return nil, errors.New("no database")
	}
	passed := after.IsZero()
	for _, one := range k {
		if passed && one.Agent == f.Agent && one.User == *f.User && len(out) < limit {
			out = append(out, one)
		}
		passed = passed || one.ID == after.ID
	}
	return out, nil
}

func (kept) DeleteFact(context.Context, string, string) error { return nil }

func TestCall(t *testing.T) {
	t.Parallel()
	var store kept
	add := func(agent, user, name, content string) {
		f := fact.New("ns", fact.Owner{Agent: agent, User: user}, name, content)
		f.Time = time.Unix(int64(1000-len(store)), 0).UTC()
		store = append(store, f)
	}
	add("agent/x", "ann", "drink", "Likes tea")
	add("agent/x", "bob", "drink", "Likes milk")
	add("agent/y", "ann", "drink", "Likes water")
	add("agent/x", "ann", "city", "Lives in Oslo")
	for i := range 450 {
		add("agent/z", "ann", fmt.Sprint(i), "x")
	}
	call := func(from fact.Store, user, named string) (out struct {
		Facts  []struct{ Name, Content string }
		Memory struct{ Memory string } `json:"action_memory"`
	}, err error) {
		var own map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(named), &own))
		c := workgraph.NewCall(workgraph.Start{UserID: user, Own: own, Named: own}, workgraph.CallOptions{})
		o, err := facts.Spec(from).Actor.Call(t.Context(), c)
		if err == nil {
			require.NoError(t, json.Unmarshal(o.Values[0], &out))
		}
		return out, err
	}
	for name, c := range map[string]struct {
		user, named, memory string
		facts               int
	}{
		"OfTheUser": {"ann", `{"agent": "agent/x"}`, "- Likes tea\n- Lives in Oslo", 2},
		"About":     {"ann", `{"agent": "agent/x", "about": "OSLO lives"}`, "- Lives in Oslo", 1},
		"ByName":    {"ann", `{"agent": "agent/x", "about": "drink"}`, "- Likes tea", 1},
		"None":      {"", `{"agent": "agent/x"}`, "", 0},
		"Limit":     {"ann", `{"agent": "agent/x", "limit": 1}`, "- Likes tea", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := call(store, c.user, c.named)
			require.NoError(t, err)
			require.Equal(t, c.memory, got.Memory.Memory)
			require.Len(t, got.Facts, c.facts)
		})
	}
	t.Run("Pages/AreAllRead", func(t *testing.T) {
		t.Parallel()
		got, err := call(store, "ann", `{"agent": "agent/z", "limit": 1000}`)
		require.NoError(t, err)
		require.Len(t, got.Facts, 450)
	})
	for name, c := range map[string]struct{ named, want string }{
		"NoAgent": {`{}`, "agent is missing"}, "Limit": {`{"agent": "a", "limit": 1001}`, "limit must be from 1 to 1000"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := call(store, "ann", c.named)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("Unavailable/IsTriedAgain", func(t *testing.T) {
		t.Parallel()
		_, err := call(kept(nil), "ann", `{"agent": "a"}`)
		var bad *workgraph.Error
		require.ErrorAs(t, err, &bad)
		require.Equal(t, workgraph.Retryable, bad.Type)
	})
}
