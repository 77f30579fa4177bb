package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

func vector(t testing.TB, model string, values ...float32) *memory.Embedding {
	t.Helper()
	v, err := memory.NewEmbedding(model, values)
	require.NoError(t, err)
	return v
}

// vectorSuspects are the entries that a doctor tells of.
func vectorSuspects(t *testing.T, f *fixture) []string {
	t.Helper()
	in, ok := f.store.(store.Inspector)
	require.True(t, ok)
	found, err := in.Suspects(f.ctx, store.SuspectVectors, 0, 10)
	require.NoError(t, err)
	return found
}

func vectorCases() map[string]func(*testing.T, *fixture) {
	north := func(t *testing.T) *memory.Embedding { return vector(t, "m", 1, 0) }
	return map[string]func(*testing.T, *fixture){
		"Vectors/FindByMeaning": func(t *testing.T, f *fixture) {
			for key, v := range map[string]*memory.Embedding{
				"same": vector(t, "m", 2, 0.1), "near": vector(t, "m", 1, 1), "far": vector(t, "m", -1, 0), "other model": vector(t, "n", 1, 0), "longer": vector(t, "m", 1, 0, 0), "none": nil,
			} {
				f.remember(t, memory.Entry{Scope: everybody(), Key: key, Text: "x", Vector: v})
			}
			f.remember(t, memory.Entry{Scope: of("ada"), Key: "of ada", Text: "x", Vector: north(t)})
			q := memory.Query{Scopes: []memory.Scope{everybody()}, Text: "beverage", Vector: north(t)}
			require.Equal(t, []string{"same", "near", "far"}, f.recall(t, q))
			q.Text = ""
			require.Equal(t, []string{"same", "near", "far"}, f.recall(t, q), "without words the newest have no place")
			q.Text, q.Scopes = "none", []memory.Scope{everybody(), of("ada"), of("ada")}
			require.ElementsMatch(t, []string{"of ada", "none", "same", "near", "far"}, f.recall(t, q), "by words or by meaning")
			q.Text = "far"
			require.Equal(t, "far", f.recall(t, q)[0], "by both")
			q.Namespace, q.Limit = "other", 5
			hits, err := f.memories().Search(f.ctx, q, memory.Read{})
			require.NoError(t, err)
			require.Empty(t, hits)
		},
		"Vectors/AllFiltersHold": func(t *testing.T, f *fixture) {
			for i := range memory.MaxSimilar + 1 {
				f.remember(t, memory.Entry{Scope: everybody(), Key: fmt.Sprint(i), Text: "x", Vector: north(t)})
			}
			f.remember(t, memory.Entry{Scope: everybody(), Key: "one", Kind: memory.Preference, Tags: []string{"a"}, Confidence: 0.5, Text: "x", Vector: vector(t, "m", 0, 1)})
			for name, q := range map[string]memory.Query{"kind": {Kinds: []memory.Kind{memory.Preference}}, "tag": {AnyTag: []string{"a"}}} {
				q.Scopes, q.Vector = []memory.Scope{everybody()}, north(t)
				require.Equal(t, []string{"one"}, f.recall(t, q), name)
				q.MinConfidence = 0.6
				require.Empty(t, f.recall(t, q), name)
			}
		},
		"Vectors/GoWithWhatTheyStandFor": func(t *testing.T, f *fixture) {
			q := memory.Query{Scopes: []memory.Scope{everybody()}, Vector: north(t)}
			e := f.remember(t, memory.Entry{Scope: everybody(), Key: "k", Text: "x", Vector: north(t)})
			require.Len(t, f.recall(t, q), 1)
			f.remember(t, memory.Entry{Scope: everybody(), Key: "k", Text: "y"})
			require.Empty(t, f.recall(t, q), "the entry says something else")
			f.remember(t, memory.Entry{Scope: everybody(), Key: "k", Text: "x", Vector: north(t)})
			require.Len(t, f.recall(t, q), 1)
			require.NoError(t, f.memories().Delete(f.ctx, ns, e.ID, ""))
			require.Empty(t, f.recall(t, q))
		},
		"Vectors/AreMadeForWhatHasNone": func(t *testing.T, f *fixture) {
			m := f.memories()
			lease := func(model string, limit int) (keys []string) {
				list, err := f.store.LeaseUnembedded(f.ctx, model, limit, time.Hour)
				require.NoError(t, err)
				for _, e := range list {
					keys = append(keys, e.Key)
				}
				return keys
			}
			f.remember(t, memory.Entry{Scope: everybody(), Key: "has", Text: "x", Vector: north(t)})
			e := f.remember(t, memory.Entry{Scope: everybody(), Key: "none", Text: "goal", Tags: []string{"a"}, Value: []byte(`{"a":1}`)})
			list, err := m.Unembedded(f.ctx, "m", 10)
			require.NoError(t, err)
			require.Equal(t, []memory.Entry{{Namespace: ns, ID: e.ID, Key: "none", Text: "goal", Value: []byte(`{"a":1}`), Tags: []string{"a"}, Revision: 1}}, list)
			require.Empty(t, lease("m", 10), "nobody else is asked meanwhile")
			require.NoError(t, m.Embed(f.ctx, ns, e.ID, epic.Etag(1), north(t)))
			require.Equal(t, []string{"has", "none"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Vector: vector(t, "m", 1, 0), Text: "has"}))
			f.remember(t, memory.Entry{Scope: everybody(), Key: "none", Text: "another goal"})
			requireError(t, m.Embed(f.ctx, ns, e.ID, epic.Etag(1), north(t)), errs.Conflict, epic.ReasonEtagMismatch)
			requireError(t, m.Embed(f.ctx, ns, "mem_none", epic.Etag(1), north(t)), errs.NotFound, memory.ReasonNotFound)
			for _, model := range []string{"a", "z"} {
				f.remember(t, memory.Entry{Scope: everybody(), Key: "of " + model, Text: "x", Vector: vector(t, model, 1)})
			}
			require.Len(t, lease("m", 1), 1, "so many at once")
			require.Len(t, lease("m", 10), 2, "what was written over, and those of models before it and behind it")
			require.Equal(t, []string{"has"}, lease("q", 10), "of another model all that nobody works on")
		},
		"Vectors/AreMadeForEachNamespaceInTurn": func(t *testing.T, f *fixture) {
			write := func(namespace, key string) {
				_, _, err := f.memories().Write(f.ctx, namespace, request.Change{}, memory.Entry{Scope: everybody(), Key: key, Text: "x", Confidence: 1})
				require.NoError(t, err)
			}
			for i := range 20 {
				write("loud", fmt.Sprintf("%02d", i))
			}
			write("quiet", "a")
			write("silent", "b")
			lease := func(limit int) (got []string) {
				list, err := f.store.LeaseUnembedded(f.ctx, "m", limit, time.Hour)
				require.NoError(t, err)
				for _, e := range list {
					got = append(got, e.Namespace+" "+e.Key)
				}
				return got
			}
			require.ElementsMatch(t, []string{"loud 00", "loud 01", "quiet a", "silent b"}, lease(4), "those of the others come with the first, and what they leave is for the loud one")
			write("quiet", "c")
			require.ElementsMatch(t, []string{"loud 02", "quiet c"}, lease(2), "the oldest first, of each an equal share")
			write("quiet", "d")
			require.Equal(t, []string{"loud 03"}, lease(1), "the one that waits longest")
		},
		"Vectors/AreGivenUpOfWhatTheModelRefuses": func(t *testing.T, f *fixture) {
			m := f.memories()
			e := f.remember(t, memory.Entry{Scope: everybody(), Key: "bad", Text: "x", Vector: vector(t, "old", 1)})
			refuse := func(model string) error {
				return m.Refuse(f.ctx, ns, e.ID, epic.Etag(e.Revision), memory.Fault{Model: model, Message: "too odd"})
			}
			waits := func(model string) bool {
				list, err := f.store.LeaseUnembedded(f.ctx, model, 10, 0)
				require.NoError(t, err)
				return len(list) > 0
			}
			told := func() string {
				got, err := m.Get(f.ctx, ns, e.ID)
				require.NoError(t, err)
				return got.VectorFault
			}
			require.True(t, waits("m"))
			require.Empty(t, told())
			require.NoError(t, refuse("m"))
			require.False(t, waits("m"), "there is a pause before the next try")
			require.Equal(t, "the model is asked again: too odd", told())
			for range 5 {
				require.Empty(t, vectorSuspects(t, f))
				require.NoError(t, refuse("m"))
			}
			require.Contains(t, told(), "is not asked again: too odd")
			require.Equal(t, []string{ns + ", " + e.ID + ": too odd"}, vectorSuspects(t, f))
			require.False(t, waits("m"))
			require.Empty(t, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Vector: vector(t, "old", 1)}), "the vector of another model is gone as after a change of models")
			require.NoError(t, m.Embed(f.ctx, ns, e.ID, epic.Etag(e.Revision), north(t)))
			require.Empty(t, told(), "a vector ends it")
			for range 6 {
				require.NoError(t, refuse("m"))
			}
			e = f.remember(t, memory.Entry{Scope: everybody(), Key: "bad", Text: "good"})
			require.Empty(t, told())
			require.True(t, waits("m"), "what is written again is tried again")
			requireError(t, m.Refuse(f.ctx, ns, e.ID, epic.Etag(1), memory.Fault{Model: "m", Message: "x"}), errs.Conflict, epic.ReasonEtagMismatch)
		},
	}
}
