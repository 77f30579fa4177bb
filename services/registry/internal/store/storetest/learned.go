package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/learned"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

func learnedCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Learned/IsFoundByItsAgent":           learnedFound,
		"Learned/IsNotHiddenByOtherEntries":   learnedAmongMany,
		"Learned/IsListedByItsAgent":          learnedListed,
		"Learned/AgentsOfOtherNamesAreOthers": learnedOthers,
	}
}

// learn writes what an agent has learned.
func (f *fixture) learn(t testing.TB, s memory.Scope, agent, name, text string) memory.Entry {
	t.Helper()
	return f.remember(t, memory.Entry{Scope: s, Key: learned.Key(agent, name), Text: text, Origin: memory.ByAgent, Source: "run_1", UserID: s.Subject})
}

func learnedFound(t *testing.T, f *fixture) {
	drink := f.learn(t, of("ann"), "agent/x", "drink", "likes tea").Key
	city := f.learn(t, of("ann"), "agent/x", "city", "lives in Oslo").Key
	rule := f.learn(t, everybody(), "agent/x", "rule", "tea is at four").Key
	f.learn(t, of("ann"), "agent/y", "drink", "likes tea")
	f.learn(t, of("bob"), "agent/x", "drink", "likes tea")
	f.remember(t, memory.Entry{Scope: of("ann"), Key: "drink", Text: "likes tea"})
	for name, c := range map[string]struct {
		q    memory.Query
		want []string
	}{
		"All":     {memory.Query{Scopes: []memory.Scope{everybody(), of("ann")}}, []string{rule, city, drink}},
		"OfAUser": {memory.Query{Scopes: []memory.Scope{of("ann")}}, []string{city, drink}},
		"Words":   {memory.Query{Scopes: []memory.Scope{everybody(), of("ann")}, Text: "likes tea"}, []string{drink, rule}},
		"Name":    {memory.Query{Scopes: []memory.Scope{of("ann")}, Text: "city"}, []string{city}},
		"None":    {memory.Query{Scopes: []memory.Scope{of("ann")}, Text: "coffee"}, nil},
		"Kind":    {memory.Query{Scopes: []memory.Scope{of("ann")}, Kinds: []memory.Kind{memory.Procedure}}, nil},
		"Key":     {memory.Query{Scopes: []memory.Scope{of("ann")}, Key: "drink"}, nil},
	} {
		c.q.Agent = "agent/x"
		require.Equal(t, c.want, f.recall(t, c.q), name)
	}
	f.learn(t, of("ann"), "agent/x", "drink", "likes milk")
	require.Equal(t, []string{drink, city}, f.recall(t, memory.Query{Scopes: []memory.Scope{of("ann")}, Agent: "agent/x"}), "that which was learned last comes first")
}

func learnedAmongMany(t *testing.T, f *fixture) {
	key := f.learn(t, of("ann"), "agent/x", "drink", "likes tea").Key
	for i := range 300 {
		f.remember(t, memory.Entry{Scope: of("ann"), Key: fmt.Sprint(i), Text: "one two three four five six seven eight nine ten eleven twelve thirteen tea"})
	}
	require.Equal(t, []string{key}, f.recall(t, memory.Query{Scopes: []memory.Scope{of("ann")}, Agent: "agent/x", Text: "one two three four five six seven eight nine ten eleven twelve thirteen tea"}))
}

func learnedListed(t *testing.T, f *fixture) {
	for i := range 3 {
		f.learn(t, of("ann"), "agent/x", fmt.Sprint(i), "x")
		f.learn(t, of("bob"), "agent/x", fmt.Sprint(i), "x")
		f.learn(t, of("ann"), "agent/y", fmt.Sprint(i), "x")
	}
	for name, c := range map[string]struct {
		q    store.MemoryQuery
		want int
	}{
		"Agent": {store.MemoryQuery{Agent: "agent/x"}, 6}, "Scope": {store.MemoryQuery{Agent: "agent/x", Place: of("ann").Place()}, 3},
		"User": {store.MemoryQuery{Agent: "agent/y", UserID: "ann"}, 3}, "Nobody": {store.MemoryQuery{Agent: "agent/z"}, 0},
	} {
		c.q.Namespace, c.q.Limit = ns, 100
		got, err := f.memories().List(f.ctx, c.q)
		require.NoError(t, err)
		require.Len(t, got.Rows, c.want, name)
	}
}

func learnedOthers(t *testing.T, f *fixture) {
	for _, agent := range []string{"a", "ab", "a:b", "a;", "A"} {
		f.learn(t, everybody(), agent, "n", "x")
	}
	for _, agent := range []string{"a", "ab", "a:b", "a;", "A"} {
		require.Equal(t, []string{learned.Key(agent, "n")}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Agent: agent}), agent)
	}
}
