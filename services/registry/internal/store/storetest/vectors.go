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
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
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
			found, err := f.memories().Search(f.ctx, q, memory.Read{})
			require.NoError(t, err)
			require.Empty(t, found.Hits)
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
			f.remember(t, memory.Entry{Scope: everybody(), Key: "has", Text: "x", Vector: north(t), Origin: memory.ByRun})
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
				f.remember(t, memory.Entry{Scope: everybody(), Key: "of " + model, Text: "x", Vector: vector(t, model, 1), Origin: memory.ByRun})
			}
			require.Len(t, lease("m", 1), 1, "so many at once")
			require.Len(t, lease("m", 10), 2, "what was written over, and those of models before it and behind it")
			require.Equal(t, []string{"has"}, lease("q", 10), "of another model all that nobody works on")
		},
		"Vectors/AreComparedWithinABound": func(t *testing.T, f *fixture) {
			for i := range 5 {
				f.remember(t, memory.Entry{Scope: everybody(), Key: fmt.Sprint(i), Text: "x", Vector: vector(t, "m", 1, float32(i))})
			}
			f.remember(t, memory.Entry{Scope: of("ada"), Key: "of ada", Kind: memory.Preference, Text: "x", Vector: north(t)})
			f.remember(t, memory.Entry{Scope: everybody(), Key: "longer", Text: "x", Vector: vector(t, "m", 1, 0, 0)})
			search := func(bytes int, q memory.Query) (keys []string, left int) {
				b := memory.DefaultBounds()
				b.Compared = bytes
				q.Namespace, q.Limit, q.Vector, q.Scopes = ns, 10, north(t), []memory.Scope{everybody(), of("ada")}
				found, err := f.memories().Within(b).Search(f.ctx, q, memory.Read{})
				require.NoError(t, err)
				for _, h := range found.Hits {
					keys = append(keys, h.Entry.Key)
				}
				return keys, found.NotCompared
			}
			all := []string{"of ada", "0", "1", "2", "3", "4"}
			for name, c := range map[string]struct {
				vectors, left int
				q             memory.Query
				want          []string
			}{
				"all of them":                    {vectors: 6, want: all},
				"more than there are":            {vectors: 7, want: all},
				"those that were written last":   {vectors: 3, left: 3, want: []string{"of ada", "3", "4"}},
				"one":                            {vectors: 1, left: 5, want: []string{"of ada"}},
				"none":                           {vectors: 0, left: 6},
				"those that pass the filters":    {vectors: 1, q: memory.Query{Kinds: []memory.Kind{memory.Preference}}, want: []string{"of ada"}},
				"some that pass the filters":     {vectors: 2, left: 3, q: memory.Query{Kinds: []memory.Kind{memory.Fact}}, want: []string{"3", "4"}},
				"others by words all the same":   {vectors: 1, left: 5, q: memory.Query{Text: "2"}, want: []string{"of ada", "2"}},
				"none where an entry has no key": {vectors: 1, q: memory.Query{Key: "nothing"}},
			} {
				got, left := search(8*c.vectors, c.q)
				require.ElementsMatch(t, c.want, got, name)
				require.Equal(t, c.left, left, name)
			}
		},
		"Vectors/OfClientsStay": func(t *testing.T, f *fixture) {
			lease := func() (keys []string) {
				list, err := f.store.LeaseUnembedded(f.ctx, "m", 100, 0)
				require.NoError(t, err)
				for _, e := range list {
					keys = append(keys, e.Key)
				}
				return keys
			}
			for i := range 70 { // more models than are looked at
				f.remember(t, memory.Entry{Scope: everybody(), Key: fmt.Sprint(i), Text: "x", Vector: vector(t, fmt.Sprintf("a%02d", i), 1)})
			}
			e := f.remember(t, memory.Entry{Scope: everybody(), Key: "of a run", Text: "x", Vector: vector(t, "old", 1), Origin: memory.ByRun})
			require.Equal(t, []string{"of a run"}, lease(), "models that clients name keep nobody waiting")
			require.Equal(t, []string{"7"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Vector: vector(t, "a07", 1)}))
			require.NoError(t, f.memories().Embed(f.ctx, ns, e.ID, epic.Etag(e.Revision), north(t)))
			require.Empty(t, lease())
			f.remember(t, memory.Entry{Scope: everybody(), Key: "7", Text: "y"})
			require.Equal(t, []string{"7"}, lease(), "what is written over without a vector gets one")
			f.remember(t, memory.Entry{Scope: everybody(), Key: "of a run", Text: "y", Vector: vector(t, "b", 1)})
			require.Equal(t, []string{"7"}, lease(), "a client has written over the entry with its own")
			f.remember(t, memory.Entry{Scope: everybody(), Key: "of a run", Text: "y", Vector: vector(t, "b", 1), Origin: memory.ByRun})
			require.ElementsMatch(t, []string{"7", "of a run"}, lease(), "and a run after it")
		},
		"Vectors/AreBooked": func(t *testing.T, f *fixture) {
			e := entry("run", 0, "", 10, 0)
			e.Kind = usage.Embedding
			out, err := f.RecordUsage(f.ctx, ns, []usage.Entry{e})
			require.NoError(t, err)
			require.Len(t, out, 1)
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.EqualValues(t, 10, total.Tokens)
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
			e := f.remember(t, memory.Entry{Scope: everybody(), Key: "bad", Text: "x", Vector: vector(t, "old", 1), Origin: memory.ByRun})
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
