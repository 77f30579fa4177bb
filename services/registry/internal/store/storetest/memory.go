package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/remembering"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

func everybody() memory.Scope { return memory.Scope{Level: memory.OfNamespace} }

func of(user string) memory.Scope { return memory.Scope{Level: memory.OfUser, Subject: user} }

func (f *fixture) memories() *remembering.Memories { return remembering.New(f.store) }

// remember writes an entry, with confidence 1 if it has none.
func (f *fixture) remember(t testing.TB, e memory.Entry) memory.Entry {
	t.Helper()
	if e.Confidence == 0 {
		e.Confidence = 1
	}
	out, removed, err := f.memories().Write(f.ctx, ns, request.Change{}, e)
	require.NoError(t, err)
	require.Empty(t, removed)
	return out
}

// recall returns the keys of what a search finds, the best first.
func (f *fixture) recall(t testing.TB, q memory.Query) (keys []string) {
	t.Helper()
	q.Namespace = ns
	if q.Limit == 0 {
		q.Limit = 100
	}
	found, err := f.memories().Search(f.ctx, q, memory.Read{})
	require.NoError(t, err)
	for _, h := range found.Hits {
		keys = append(keys, h.Entry.Key)
	}
	return keys
}

func memoryCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Memory/KeepsAllOfAnEntry":                   memoryWhole,
		"Memory/AKeyIsWrittenOver":                   memoryOver,
		"Memory/ARepeatedRequestWritesOnce":          memoryRepeated,
		"Memory/WritersOfOneKeyLeaveOneEntry":        memoryTogether,
		"Memory/OneScopeIsNotReadForAnother":         memoryScopes,
		"Memory/RanksByWordsThenWeightAndConfidence": memoryRanks,
		"Memory/AllFiltersHold":                      memoryFilters,
		"Memory/WhatHasExpiredIsNotTold":             memoryExpired,
		"Memory/CommonWordsFindTheNewest":            memoryCommon,
		"Memory/AnOldProcedureIsFoundBehindFacts":    memoryBehind,
		"Memory/ManyCommonWordsFindTheOneWithARare":  memoryManyCommon,
		"Memory/TheLeastCertainGivesWay":             memoryBounds,
		"Memory/ANamespaceIsBounded":                 memoryFull,
		"Memory/TotalsAreThoseOfTheEntries":          memoryTotals,
		"Memory/WhatExpiresIsRemovedInTurns":         memoryExpiredInTurns,
		"Memory/RequestsNameNoScope":                 memoryRequests,
		"Memory/PagesHoldEachOnce":                   memoryPages,
		"Memory/ReadsAreRecorded":                    memoryReads,
		"Memory/RecordsOfReadsAreBounded":            memoryReadsSwept,
		"Memory/WritesAndRemovalsAreEvents":          memoryEvents,
	}
}

func memoryWhole(t *testing.T, f *fixture) {
	in := memory.Entry{
		Scope: of("ada"), Key: "drink", Kind: memory.Preference, Text: "likes tea\x00", Value: []byte(`{"b": 1,  "a": [2]}`), Tags: []string{"b", "a", "b"},
		Origin: memory.ByRun, Source: "run_1", UserID: "ada", Confidence: 0.1234, ExpireTime: dbkit.Now().Add(time.Hour),
	}
	out := f.remember(t, in)
	got, err := f.memories().Get(f.ctx, ns, out.ID)
	require.NoError(t, err)
	require.Equal(t, out, got)
	in.Namespace, in.ID, in.CreateTime, in.UpdateTime, in.Revision = ns, out.ID, out.CreateTime, out.UpdateTime, 1
	in.Text, in.Tags, in.Confidence = "likes tea", []string{"b", "a"}, 0.123
	require.Equal(t, in, got)
	_, err = f.memories().Get(f.ctx, "other", out.ID)
	requireError(t, err, errs.NotFound, memory.ReasonNotFound)
}

func memoryOver(t *testing.T, f *fixture) {
	one := f.remember(t, memory.Entry{Scope: everybody(), Key: "k", Text: "alpha", Tags: []string{"old"}})
	two := f.remember(t, memory.Entry{Scope: everybody(), Key: "k", Text: "beta"})
	require.Equal(t, one.ID, two.ID)
	require.Equal(t, []any{int64(2), one.CreateTime, "beta"}, []any{two.Revision, two.CreateTime, two.Text})
	require.Empty(t, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "alpha old"}), "the words of before are gone")
	require.Equal(t, []string{"k"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "beta"}))
	_, _, err := f.memories().Write(f.ctx, ns, request.Change{Etag: epic.Etag(1)}, memory.Entry{Scope: everybody(), Key: "k", Text: "gamma"})
	requireError(t, err, errs.Conflict, epic.ReasonEtagMismatch)
	_, _, err = f.memories().Write(f.ctx, ns, request.Change{Etag: epic.Etag(2)}, memory.Entry{Scope: everybody(), Key: "k", Text: "gamma"})
	require.NoError(t, err)
	_, _, err = f.memories().Write(f.ctx, ns, request.Change{Etag: epic.Etag(1)}, memory.Entry{Scope: everybody(), Key: "new", Text: "gamma"})
	requireError(t, err, errs.NotFound, memory.ReasonNotFound)
	requireError(t, f.memories().Delete(f.ctx, ns, one.ID, epic.Etag(1)), errs.Conflict, epic.ReasonEtagMismatch)
	require.NoError(t, f.memories().Delete(f.ctx, ns, one.ID, epic.Etag(3)))
	requireError(t, f.memories().Delete(f.ctx, ns, one.ID, ""), errs.NotFound, memory.ReasonNotFound)
}

func memoryRepeated(t *testing.T, f *fixture) {
	c := request.Change{Once: request.Once{ID: "req", BodyHash: [32]byte{1}}}
	one, _, err := f.memories().Write(f.ctx, ns, c, memory.Entry{Scope: of("ada"), Key: "k", Text: "alpha", Confidence: 1})
	require.NoError(t, err)
	two, _, err := f.memories().Write(f.ctx, ns, c, memory.Entry{Scope: of("ada"), Key: "k", Text: "alpha", Confidence: 1})
	require.NoError(t, err)
	require.Equal(t, one, two)
	c.BodyHash = [32]byte{2}
	_, _, err = f.memories().Write(f.ctx, ns, c, memory.Entry{Scope: of("ada"), Key: "k", Text: "beta", Confidence: 1})
	requireError(t, err, errs.InvalidArgument, request.ReasonReused)
}

func memoryTogether(t *testing.T, f *fixture) {
	failed := together(8, func(i int) error {
		_, _, err := f.memories().Write(f.ctx, ns, request.Change{}, memory.Entry{Scope: everybody(), Key: "k", Text: fmt.Sprintf("word%d", i), Confidence: 1})
		return err
	})
	require.Equal(t, 8, count(failed, succeeded), "%v", failed)
	all, err := f.memories().List(f.ctx, store.MemoryQuery{Namespace: ns, Limit: 10})
	require.NoError(t, err)
	require.Len(t, all.Rows, 1)
	require.EqualValues(t, 8, all.Rows[0].Revision)
	found := 0
	for i := range 8 {
		found += len(f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: fmt.Sprintf("word%d", i)}))
	}
	require.Equal(t, 1, found, "it is found by the words of the last write only")
}

func memoryScopes(t *testing.T, f *fixture) {
	all := []memory.Scope{
		everybody(), of("ada"), of("bob"), of("ada/bob"), {Level: memory.OfEpic, Subject: "ada"}, {Level: memory.OfWorkflow, Subject: "ada"},
	}
	for _, s := range all {
		f.remember(t, memory.Entry{Scope: s, Key: "in " + s.Place(), Text: "secret"})
	}
	for _, s := range all {
		for how, q := range map[string]memory.Query{
			"words": {Text: "secret"}, "last": {}, "key of another": {Key: "in user/bob"},
		} {
			q.Scopes = []memory.Scope{s}
			want := []string{"in " + s.Place()}
			if q.Key != "" && s != of("bob") {
				want = nil
			}
			require.Equal(t, want, f.recall(t, q), "%s of %s", how, s.Place())
		}
	}
	got := f.recall(t, memory.Query{Scopes: []memory.Scope{everybody(), of("ada"), of("ada")}, Text: "secret"})
	require.ElementsMatch(t, []string{"in namespace", "in user/ada"}, got)
	_, err := f.memories().Search(f.ctx, memory.Query{Namespace: ns, Limit: 1}, memory.Read{})
	requireError(t, err, errs.InvalidArgument, remembering.ReasonSearchEmpty)
	_, err = f.memories().Search(f.ctx, memory.Query{Namespace: ns, Scopes: []memory.Scope{{Level: memory.OfUser}}, Limit: 1}, memory.Read{})
	requireError(t, err, errs.InvalidArgument, memory.ReasonScopeInvalid)
	found, err := f.memories().Search(f.ctx, memory.Query{Namespace: "other", Scopes: all, Text: "secret", Limit: 9}, memory.Read{})
	require.NoError(t, err)
	require.Empty(t, found.Hits)
}

func memoryRanks(t *testing.T, f *fixture) {
	for _, e := range []memory.Entry{
		{Key: "both", Text: "alpha beta"}, {Key: "unsure", Text: "alpha", Confidence: 0.2}, {Key: "old", Text: "alpha"}, {Key: "new", Text: "alpha"},
		{Key: "tag", Text: "x", Tags: []string{"alpha"}}, {Key: "value", Value: []byte(`{"beta": "alpha"}`)},
	} {
		e.Scope = everybody()
		f.remember(t, e)
	}
	require.Equal(t, []string{"both", "tag", "new", "old", "value", "unsure"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "Alphas BETA"}))
	require.Equal(t, []string{"both", "tag"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "Alphas BETA", Limit: 2}))
	require.Equal(t, []string{"value", "tag", "new"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Limit: 3}), "without words the last ones")
}

func memoryFilters(t *testing.T, f *fixture) {
	f.remember(t, memory.Entry{Scope: everybody(), Key: "one", Kind: memory.Procedure, Text: "goal", Tags: []string{"a", "b"}, Confidence: 0.5})
	f.remember(t, memory.Entry{Scope: everybody(), Key: "two", Text: "goal", Tags: []string{"b"}, Confidence: 0.499})
	for name, q := range map[string]memory.Query{
		"kind": {Kinds: []memory.Kind{memory.Procedure}}, "tag": {AnyTag: []string{"a", "z"}}, "confidence": {MinConfidence: 0.5},
		"all": {Kinds: []memory.Kind{memory.Procedure, memory.Fact}, AnyTag: []string{"b"}, MinConfidence: 0.5},
	} {
		for _, text := range []string{"goal", ""} {
			q.Scopes, q.Text = []memory.Scope{everybody()}, text
			require.Equal(t, []string{"one"}, f.recall(t, q), name)
		}
	}
	require.Empty(t, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Key: "two", MinConfidence: 0.5}))
}

func memoryExpired(t *testing.T, f *fixture) {
	_, _, err := f.memories().Write(f.ctx, ns, request.Change{}, memory.Entry{Scope: everybody(), Key: "k", Text: "goal", ExpireTime: dbkit.Now()})
	requireError(t, err, errs.InvalidArgument, memory.ReasonInvalid)
	f.remember(t, memory.Entry{Scope: everybody(), Key: "stays", Text: "goal", ExpireTime: dbkit.Now().Add(time.Hour)})
	e, err := memory.New(ns, memory.Entry{Scope: everybody(), Key: "over", Text: "goal", Confidence: 1}, dbkit.Now())
	require.NoError(t, err)
	e.ExpireTime = dbkit.Now().Add(-time.Second)
	require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.InsertMemory(ctx, e)
		return err
	}))
	for _, q := range []memory.Query{{Text: "goal"}, {}, {Key: "over"}} {
		q.Scopes = []memory.Scope{everybody()}
		require.NotContains(t, f.recall(t, q), "over")
	}
	_, err = f.memories().Get(f.ctx, ns, e.ID)
	requireError(t, err, errs.NotFound, memory.ReasonNotFound)
	list, err := f.memories().List(f.ctx, store.MemoryQuery{Namespace: ns, Limit: 10})
	require.NoError(t, err)
	require.Len(t, list.Rows, 1)
	swept, _, err := f.memories().Sweep(f.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, swept)
	require.Equal(t, []string{"stays"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "goal"}))
	require.Equal(t, int64(1), f.remember(t, memory.Entry{Scope: everybody(), Key: "over", Text: "goal"}).Revision, "its key is free again")
}

func memoryCommon(t *testing.T, f *fixture) {
	var entries []memory.Entry
	for i := range memory.MaxFound/2 + 10 {
		entries = append(entries, memory.Entry{Scope: everybody(), Key: fmt.Sprintf("key %d", i), Text: "goal"})
	}
	entries[5].Text = "rare goal"
	f.fill(t, entries...)
	got := f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "goal rare", Limit: memory.MaxFound})
	require.Equal(t, "key 5", got[0], "which has both, though many newer ones have one of them")
	require.Contains(t, got, entries[len(entries)-1].Key)
	require.NotContains(t, got, entries[0].Key)
	require.LessOrEqual(t, len(got), memory.MaxFound)
}

// fill writes entries past the use cases.
func (f *fixture) fill(t testing.TB, entries ...memory.Entry) {
	t.Helper()
	for some := range slices.Chunk(entries, 500) {
		require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
			for _, e := range some {
				e.Confidence = 1
				e, err := memory.New(ns, e, dbkit.Now())
				if err != nil {
					return err
				}
				if _, err := tx.InsertMemory(ctx, e); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func memoryBehind(t *testing.T, f *fixture) {
	entries := []memory.Entry{
		{Scope: everybody(), Key: "heavy", Text: "goal", Tags: []string{"goal"}}, {Scope: everybody(), Key: "how", Kind: memory.Procedure, Text: "goal"},
	}
	for i := range memory.MaxFound + 10 {
		entries = append(entries, memory.Entry{Scope: everybody(), Key: fmt.Sprintf("key %d", i), Text: "goal"})
	}
	f.fill(t, entries...)
	for _, text := range []string{"goal", ""} {
		q := memory.Query{Scopes: []memory.Scope{everybody()}, Text: text, Kinds: []memory.Kind{memory.Procedure, memory.Procedure}}
		require.Equal(t, []string{"how"}, f.recall(t, q), "query %q", text)
		q.Kinds, q.Limit = nil, memory.MaxFound
		require.Contains(t, f.recall(t, q), "how", "query %q", text)
	}
	require.Equal(t, "heavy", f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "goal"})[0], "in which the word weighs most, though it is old")
}

func memoryManyCommon(t *testing.T, f *fixture) {
	common := []string{"bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india"}
	entries := []memory.Entry{{Scope: everybody(), Key: "all", Text: "rare " + strings.Join(common, " ")}}
	for i := range 4 {
		for j := range 180 {
			entries = append(entries, memory.Entry{Scope: everybody(), Key: fmt.Sprintf("key %d %d", i, j), Text: strings.Join(common[2*i:2*i+2], " ")})
		}
	}
	f.fill(t, entries...)
	found, err := f.memories().Search(f.ctx, memory.Query{Namespace: ns, Scopes: []memory.Scope{everybody()}, Text: "rare " + strings.Join(common, " "), Limit: 1}, memory.Read{})
	require.NoError(t, err)
	require.Equal(t, "all", found.Hits[0].Entry.Key, "though there are more candidates than are looked up")
	require.Len(t, found.Hits[0].Weights, 9)
}

func memoryBounds(t *testing.T, f *fixture) {
	m := f.memories().Within(memory.Bounds{Namespace: 3, Subject: 2})
	write := func(s memory.Scope, key string, confidence float64) []string {
		_, removed, err := m.Write(f.ctx, ns, request.Change{}, memory.Entry{Scope: s, Key: key, Text: key, Confidence: confidence})
		require.NoError(t, err)
		var keys []string
		for _, e := range removed {
			keys = append(keys, e.Key)
		}
		return keys
	}
	for i, key := range []string{"a", "b", "c"} {
		require.Empty(t, write(everybody(), key, []float64{0.9, 0.5, 0.9}[i]))
	}
	require.Empty(t, write(everybody(), "a", 0.9), "a key that is there takes no room")
	require.Equal(t, []string{"b"}, write(everybody(), "d", 0.1), "the least certain gives way, but not to itself")
	require.Equal(t, []string{"d"}, write(everybody(), "e", 0.9))
	require.Equal(t, []string{"c"}, write(everybody(), "f", 0.9), "of equals the one that was written longest ago")
	require.Empty(t, write(of("ada"), "a", 1))
	require.Empty(t, write(of("ada"), "b", 1))
	require.Equal(t, []string{"a"}, write(of("ada"), "c", 1))
	require.ElementsMatch(t, []string{"a", "e", "f"}, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}}))
}

func memoryFull(t *testing.T, f *fixture) {
	small := int64(memory.Entry{Scope: of("ada"), Key: "a", Text: "x"}.Size())
	for name, b := range map[string]memory.Bounds{"entries": {Entries: 3}, "bytes": {Bytes: 3*small + 50}} {
		namespace := "full-" + name
		b.Namespace, b.Subject = 100, 100
		m := f.memories().Within(b)
		write := func(user, key, text string) (removed []memory.Entry, err error) {
			_, removed, err = m.Write(f.ctx, namespace, request.Change{}, memory.Entry{Scope: of(user), Key: key, Text: text, Confidence: 1})
			return removed, err
		}
		for _, key := range []string{"a", "b", "c"} {
			removed, err := write("ada", key, "x")
			require.NoError(t, err, name)
			require.Empty(t, removed, name)
		}
		_, err := write("bob", "a", "x")
		hint := requireError(t, err, errs.FailedPrecondition, memory.ReasonFull).HintText()
		require.Contains(t, hint, "registry.memory_"+name, "no other scope gives way")
		removed, err := write("ada", "d", "x")
		require.NoError(t, err, name)
		require.Len(t, removed, 1, name)
		require.Equal(t, "a", removed[0].Key, "its own scope gives way by its rule")
		if b.Bytes > 0 {
			removed, err = write("ada", "d", strings.Repeat("x", int(small)))
			require.NoError(t, err)
			require.Len(t, removed, 1, "what grows needs room, too")
			require.Equal(t, "b", removed[0].Key)
			_, err = write("ada", "d", strings.Repeat("x", int(3*small)))
			requireError(t, err, errs.FailedPrecondition, memory.ReasonFull)
			_, err = write("ada", "c", "")
			require.Error(t, err)
			removed, err = write("ada", "d", "y")
			require.NoError(t, err)
			require.Empty(t, removed, "what shrinks needs none")
		}
	}
}

func memoryTotals(t *testing.T, f *fixture) {
	check := func(step string) {
		t.Helper()
		found, err := f.memories().List(f.ctx, store.MemoryQuery{Namespace: ns, Limit: 1000})
		require.NoError(t, err)
		var want, got memory.Total
		for _, e := range found.Rows {
			want.Entries++
			want.Bytes += int64(e.Size())
		}
		require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) (err error) {
			got, err = r.MemoryTotal(ctx, ns)
			return err
		}))
		require.Equal(t, want, got, step)
	}
	check("nothing")
	one := f.remember(t, memory.Entry{Scope: of("ada"), Key: "a", Text: "ü goal", Tags: []string{"one", "two"}, Value: []byte(`{"a": 1}`), Source: "run_1", UserID: "ada"})
	f.remember(t, memory.Entry{Scope: everybody(), Key: "b", Text: "goal", UserID: "ada"})
	f.remember(t, memory.Entry{Scope: of("bob"), Key: "c", Text: "goal"})
	check("written")
	f.remember(t, memory.Entry{Scope: of("ada"), Key: "a", Text: "another goal"})
	check("written over")
	_, removed, err := f.memories().Within(memory.Bounds{Subject: 1}).Write(f.ctx, ns, request.Change{}, memory.Entry{Scope: of("bob"), Key: "d", Text: "goal"})
	require.NoError(t, err)
	require.Len(t, removed, 1)
	check("gave way")
	require.NoError(t, f.memories().Delete(f.ctx, ns, one.ID, ""))
	check("deleted")
	_, _, err = f.memories().Forget(f.ctx, ns, store.Forget{UserID: "ada"})
	require.NoError(t, err)
	check("forgotten")
	f.remember(t, memory.Entry{Scope: everybody(), Key: "over", Text: "x", ExpireTime: dbkit.Now().Add(time.Minute)})
	_, _, err = f.store.SweepMemory(f.ctx, store.DefaultMemoryBounds(), dbkit.Now().Add(time.Hour), 10)
	require.NoError(t, err)
	check("swept")
}

func memoryExpiredInTurns(t *testing.T, f *fixture) {
	var many []memory.Entry
	for i := range 30 {
		many = append(many, memory.Entry{Scope: of("ada"), Key: fmt.Sprint(i), Text: "x", ExpireTime: dbkit.Now().Add(time.Hour)})
	}
	f.fill(t, many...)
	other, _, err := f.memories().Write(f.ctx, "zother", request.Change{}, memory.Entry{Scope: everybody(), Text: "x", ExpireTime: dbkit.Now().Add(time.Hour)})
	require.NoError(t, err)
	stays := f.remember(t, memory.Entry{Scope: of("ada"), Key: "stays", Text: "x"})
	swept, _, err := f.store.SweepMemory(f.ctx, store.DefaultMemoryBounds(), dbkit.Now().Add(2*time.Hour), 1)
	require.NoError(t, err)
	require.EqualValues(t, 21, swept, "one namespace has 20 turns, and keeps no other waiting")
	_, err = f.memories().Get(f.ctx, "zother", other.ID)
	requireError(t, err, errs.NotFound, memory.ReasonNotFound)
	swept, _, err = f.store.SweepMemory(f.ctx, store.DefaultMemoryBounds(), dbkit.Now().Add(2*time.Hour), 3)
	require.NoError(t, err)
	require.EqualValues(t, 10, swept, "it goes on until nothing is left")
	_, err = f.memories().Get(f.ctx, ns, stays.ID)
	require.NoError(t, err)
}

func memoryRequests(t *testing.T, f *fixture) {
	c := request.Change{Once: request.Once{ID: "req", BodyHash: [32]byte{1}}}
	for _, id := range []string{"one", "two"} {
		c.ID = id
		e, _, err := f.memories().Write(f.ctx, ns, c, memory.Entry{Scope: of("ada"), Key: "k", Text: "x"})
		require.NoError(t, err)
		require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) error {
			got, seen, err := r.Request(ctx, ns, "WriteMemory", id)
			require.True(t, seen)
			require.Equal(t, e.ID, got.Resource, "which is no name of a user, and is there when the user is forgotten")
			return err
		}))
	}
	_, _, err := f.memories().Forget(f.ctx, ns, store.Forget{UserID: "ada"})
	require.NoError(t, err)
	_, _, err = f.memories().Write(f.ctx, ns, c, memory.Entry{Scope: of("ada"), Key: "k", Text: "x"})
	requireError(t, err, errs.NotFound, memory.ReasonNotFound)
}

func memoryPages(t *testing.T, f *fixture) {
	var want []string
	for i := range 25 {
		want = append(want, f.remember(t, memory.Entry{Scope: of([]string{"ada", "bob"}[i%2]), Key: fmt.Sprint(i), Text: "x", UserID: "ada", Kind: memory.Kind(1 + i%3)}).ID)
	}
	list := func(q store.MemoryQuery) (ids []string) {
		q.Namespace, q.Limit = ns, 4
		for {
			found, err := f.memories().List(f.ctx, q)
			require.NoError(t, err)
			for _, e := range found.Rows {
				ids = append(ids, e.ID)
				q.After = page.Cursor{CreateTime: e.CreateTime, ID: e.ID}
			}
			if len(found.Rows) < q.Limit {
				return ids
			}
		}
	}
	require.Equal(t, want, list(store.MemoryQuery{Oldest: true}))
	slices.Reverse(want)
	require.Equal(t, want, list(store.MemoryQuery{}))
	require.Len(t, list(store.MemoryQuery{Place: of("bob").Place()}), 12)
	require.Len(t, list(store.MemoryQuery{Place: of("bob").Place(), Kinds: []memory.Kind{memory.Fact}, UserID: "ada"}), 4)
	require.Empty(t, list(store.MemoryQuery{UserID: "bob"}))
}

func memoryReads(t *testing.T, f *fixture) {
	e := f.remember(t, memory.Entry{Scope: of("ada"), Key: "k", Text: "goal"})
	_, err := f.memories().Search(f.ctx, memory.Query{Namespace: ns, Scopes: []memory.Scope{everybody(), of("ada")}, Text: strings.Repeat("goal ", 1000), Limit: 5},
		memory.Read{RunID: "run_1", NodeID: "n", UserID: "ada"})
	require.NoError(t, err)
	reads, err := f.memories().Reads(f.ctx, store.MemoryReadQuery{Namespace: ns, Limit: 10})
	require.NoError(t, err)
	require.Len(t, reads, 1)
	r := reads[0]
	require.Equal(t, []any{"run_1", "n", "ada", []string{"namespace", "user/ada"}, []string{e.ID}}, []any{r.RunID, r.NodeID, r.UserID, r.Scopes, r.Entries})
	require.LessOrEqual(t, len(r.Query), memory.MaxReadQuery+len("…"))
	f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Key: "none"})
	reads, err = f.memories().Reads(f.ctx, store.MemoryReadQuery{Namespace: ns, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, []any{"none", []string(nil)}, []any{reads[0].Query, reads[0].Entries}, "what found nothing is recorded, too")
	reads, err = f.memories().Reads(f.ctx, store.MemoryReadQuery{Namespace: ns, Limit: 5, After: page.Cursor{CreateTime: reads[0].Time, ID: reads[0].ID}})
	require.NoError(t, err)
	require.Equal(t, []memory.Read{r}, reads)
}

func memoryReadsSwept(t *testing.T, f *fixture) {
	for range 5 {
		f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}})
	}
	_, err := f.memories().Search(f.ctx, memory.Query{Namespace: "zother", Scopes: []memory.Scope{everybody()}, Limit: 1}, memory.Read{})
	require.NoError(t, err)
	left := func(namespace string) int {
		reads, err := f.memories().Reads(f.ctx, store.MemoryReadQuery{Namespace: namespace, Limit: 10})
		require.NoError(t, err)
		return len(reads)
	}
	_, n, err := f.store.SweepMemory(f.ctx, store.MemoryBounds{ReadAge: time.Hour, Reads: 3}, dbkit.Now(), 100)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, []int{3, 1}, []int{left(ns), left("zother")})
	_, n, err = f.store.SweepMemory(f.ctx, store.MemoryBounds{ReadAge: time.Hour, Reads: 3}, dbkit.Now().Add(2*time.Hour), 3)
	require.NoError(t, err)
	require.EqualValues(t, 4, n, "in as many transactions as it takes")
}

func memoryEvents(t *testing.T, f *fixture) {
	end := f.end(t)
	e := f.remember(t, memory.Entry{Scope: memory.Scope{Level: memory.OfEpic, Subject: "ep_1"}, Key: "k", Text: "a secret"})
	require.NoError(t, f.memories().Delete(f.ctx, ns, e.ID, ""))
	events := f.events(t, end)
	require.Len(t, events, 2)
	require.Equal(t, []feed.Kind{feed.MemoryWritten, feed.MemoryDeleted}, []feed.Kind{events[0].Kind, events[1].Kind})
	require.Equal(t, feed.Memory{ID: e.ID, Key: "k", Kind: memory.Fact, Scope: e.Scope, Revision: 1}, *events[0].Body.Memory)
	require.Equal(t, "ep_1", events[0].EpicID)
	require.Equal(t, []string{e.ID}, events[1].Body.IDs)
	require.Equal(t, "ep_1", events[1].EpicID, "whoever follows the epic hears of it")
	_, _, err := f.memories().Write(f.ctx, ns, request.Change{Etag: epic.Etag(7)}, memory.Entry{Scope: everybody(), Key: "k", Text: "x"})
	require.Error(t, err)
	require.Len(t, f.events(t, end), 2, "what is refused is not told")
	end = f.end(t)
	var gone []string
	for _, s := range []memory.Scope{{Level: memory.OfWorkflow, Subject: "w"}, {Level: memory.OfEpic, Subject: "ep_1"}, of("ada"), everybody(), {Level: memory.OfWorkflow, Subject: "w"}} {
		gone = append(gone, f.remember(t, memory.Entry{Scope: s, Key: fmt.Sprint(len(gone)), Text: "x"}).ID)
	}
	_, _, err = f.memories().Forget(f.ctx, ns, store.Forget{})
	require.NoError(t, err)
	told := map[string][]string{}
	for _, ev := range f.events(t, end)[5:] {
		require.Equal(t, feed.MemoryDeleted, ev.Kind)
		told[ev.EpicID+"/"+ev.Slug] = append(told[ev.EpicID+"/"+ev.Slug], ev.Body.IDs...)
	}
	require.Len(t, told, 3)
	require.ElementsMatch(t, []string{gone[0], gone[4]}, told["/w"])
	require.ElementsMatch(t, []string{gone[1]}, told["ep_1/"])
	require.ElementsMatch(t, []string{gone[2], gone[3]}, told["/"])
}

func forgetCases() map[string]func(*testing.T, *fixture) {
	fill := func(t *testing.T, f *fixture) {
		f.remember(t, memory.Entry{Scope: of("ada"), Key: "a", Text: "goal"})
		f.remember(t, memory.Entry{Scope: everybody(), Key: "b", Text: "goal", UserID: "ada"})
		f.remember(t, memory.Entry{Scope: of("bob"), Key: "c", Text: "goal"})
		f.remember(t, memory.Entry{Scope: everybody(), Key: "d", Text: "goal"})
		for _, user := range []string{"ada", "bob"} {
			_, err := f.memories().Search(f.ctx, memory.Query{Namespace: ns, Scopes: []memory.Scope{of(user)}, Limit: 1}, memory.Read{UserID: user})
			require.NoError(t, err)
		}
	}
	left := func(t *testing.T, f *fixture) string {
		found, err := f.memories().List(f.ctx, store.MemoryQuery{Namespace: ns, Oldest: true, Limit: 1000})
		require.NoError(t, err)
		keys := ""
		for _, e := range found.Rows {
			keys += e.Key
		}
		return keys
	}
	return map[string]func(*testing.T, *fixture){
		"Forget/AUserIsForgottenInEveryScope": func(t *testing.T, f *fixture) {
			fill(t, f)
			entries, reads, err := f.memories().Forget(f.ctx, ns, store.Forget{UserID: "ada"})
			require.NoError(t, err)
			require.Equal(t, []any{2, 1, "cd"}, []any{entries, reads, left(t, f)})
		},
		"Forget/AScopeLeavesTheOthers": func(t *testing.T, f *fixture) {
			fill(t, f)
			entries, reads, err := f.memories().Forget(f.ctx, ns, store.Forget{Place: "namespace"})
			require.NoError(t, err)
			require.Equal(t, []any{2, 0, "ac"}, []any{entries, reads, left(t, f)})
		},
		"Forget/ANamespaceForgetsAllOfItsOwn": func(t *testing.T, f *fixture) {
			fill(t, f)
			theirs, _, err := f.memories().Write(f.ctx, "other", request.Change{}, memory.Entry{Scope: everybody(), Key: "k", Text: "goal", Confidence: 1})
			require.NoError(t, err)
			end := f.end(t)
			entries, reads, err := f.memories().Forget(f.ctx, ns, store.Forget{})
			require.NoError(t, err)
			require.Equal(t, []any{4, 2, ""}, []any{entries, reads, left(t, f)})
			require.Len(t, f.events(t, end)[0].Body.IDs, 4)
			require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) error {
				hits, err := r.FindMemories(ctx, memory.Query{Namespace: ns, Scopes: []memory.Scope{everybody(), of("ada")}}, []string{"goal"}, dbkit.Now())
				require.Empty(t, hits, "nothing is left of their words")
				return err
			}))
			_, err = f.memories().Get(f.ctx, "other", theirs.ID)
			require.NoError(t, err)
		},
		"Forget/IsRecordedWithoutWhatWasForgotten": func(t *testing.T, f *fixture) {
			fill(t, f)
			for _, what := range []store.Forget{{UserID: "ada"}, {Place: "user/bob"}, {}} {
				_, _, err := f.memories().Forget(f.ctx, ns, what)
				require.NoError(t, err)
			}
			require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) error {
				reads, err := r.MemoryReads(ctx, store.MemoryReadQuery{Namespace: ns, Limit: 10})
				require.NoError(t, err)
				var got []any
				for _, by := range reads {
					require.Empty(t, by.Entries)
					got = append(got, []any{by.Method, by.Query, by.Scopes, by.Told})
				}
				require.Equal(t, []any{
					[]any{"ForgetMemory", "everything", []string(nil), 1}, []any{"ForgetMemory", "", []string{"user/bob"}, 1}, []any{"ForgetMemory", "ada", []string(nil), 2},
				}, got, "forgetting everything leaves them")
				return nil
			}))
		},
		"Forget/ManyGoInSeveralTransactions": func(t *testing.T, f *fixture) {
			require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				for i := range 450 {
					e, err := memory.New(ns, memory.Entry{Scope: of("ada"), Key: fmt.Sprint(i), Text: "x", Confidence: 1}, dbkit.Now())
					if err != nil {
						return err
					}
					if _, err := tx.InsertMemory(ctx, e); err != nil {
						return err
					}
				}
				return nil
			}))
			end := f.end(t)
			entries, _, err := f.memories().Forget(f.ctx, ns, store.Forget{UserID: "ada"})
			require.NoError(t, err)
			require.Equal(t, 450, entries)
			require.Empty(t, left(t, f))
			told := 0
			for _, ev := range f.events(t, end) {
				require.LessOrEqual(t, len(ev.Body.IDs), 100)
				told += len(ev.Body.IDs)
			}
			require.Equal(t, 450, told)
		},
	}
}
