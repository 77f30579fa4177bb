package remember_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/remember"
	"github.com/epigraph-run/epigraph/workgraph"
)

// meanings is a model whose vector of a text has its length; texts with "bad" in them are refused.
type meanings struct {
	mu    sync.Mutex
	calls [][]string
	of    []string
	err   error
}

func (m *meanings) Embed(ctx context.Context, texts []string) (out llm.Vectors, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.of = append(m.calls, texts), append(m.of, llm.CallerOf(ctx))
	if m.err != nil {
		return out, m.err
	}
	out.Model = "vec"
	for _, text := range texts {
		if strings.Contains(text, "bad") {
			return llm.Vectors{}, &llm.Error{Class: llm.Permanent, Code: "REFUSED"}
		}
		out.Values = append(out.Values, []float32{float32(len(text))})
	}
	out.Spent = []llm.Spent{{Provider: "openai", Model: "vec-1", Usage: llm.Usage{Input: 3}}}
	return out, nil
}

func embedding(t *testing.T, k *kept, e remember.Embedder, name string) actor.Spec {
	t.Helper()
	list := remember.Specs(k, e)
	i := slices.IndexFunc(list, func(s actor.Spec) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0)
	return list[i]
}

func outcome(t *testing.T, s actor.Spec, args string, change ...func(*workgraph.Start)) workgraph.Outcome {
	t.Helper()
	out, err := actortest.Call(t, s, args, change...)
	require.NoError(t, err)
	return out
}

func TestVectors(t *testing.T) {
	t.Parallel()
	booked := []workgraph.Usage{{Provider: "openai", Model: "vec-1", InputTokens: 3, Call: "embed"}}
	t.Run("Write/HasTheVectorOfAllThatIsSaid", func(t *testing.T) {
		t.Parallel()
		k, e := &kept{}, &meanings{}
		out := outcome(t, embedding(t, k, e, "memory_write"), `{"key": "drink", "value": {"likes": "tea"}, "text": "likes tea", "tags": "a,b"}`, ada)
		require.Equal(t, [][]string{{"drink\na b\nlikes tea\n" + `{"likes": "tea"}`}}, e.calls)
		require.Equal(t, &remember.Vector{Model: "vec", Values: []float32{float32(len(e.calls[0][0]))}}, k.entry.Vector)
		require.Equal(t, booked, out.Usage)
	})
	t.Run("Write/GoesOnWithoutAVector", func(t *testing.T) {
		t.Parallel()
		k, e := &kept{}, &meanings{err: &llm.Error{Class: llm.Unknown, Used: []llm.Spent{{Provider: "openai", Model: "vec-1", Usage: llm.Usage{Input: 3}}}}}
		out := outcome(t, embedding(t, k, e, "memory_write"), `{"key": "k", "value": "x"}`, ada)
		require.Contains(t, string(out.Values[0]), `"success":true`)
		require.Nil(t, k.entry.Vector)
		require.Equal(t, booked, out.Usage, "what a failed call used is booked")
	})
	t.Run("Read/HasTheVectorOfTheQuery", func(t *testing.T) {
		t.Parallel()
		k, e := &kept{}, &meanings{}
		out := outcome(t, embedding(t, k, e, "memory_read"), `{"query": "what", "about": "tea"}`, ada)
		require.Equal(t, [][]string{{"what tea"}}, e.calls)
		require.Equal(t, &remember.Vector{Model: "vec", Values: []float32{8}}, k.search.Vector)
		require.NotContains(t, string(out.Values[0]), "note")
		require.Equal(t, booked, out.Usage)
	})
	t.Run("Read/GoesOnByWordsAndSaysSo", func(t *testing.T) {
		t.Parallel()
		k, e := &kept{found: []remember.Entry{{Key: "k", Text: "tea"}}}, &meanings{err: errors.New("down")}
		got := actortest.Value(t, embedding(t, k, e, "memory_read"), `{"query": "tea"}`, ada)
		require.Contains(t, got, `"key":"k"`)
		require.Contains(t, got, "found by words alone")
		require.Nil(t, k.search.Vector)
	})
	for name, args := range map[string]string{"NoWords": `{}`, "Key": `{"key": "k", "query": "x"}`} {
		t.Run("Read/NeedsNone/"+name, func(t *testing.T) {
			t.Parallel()
			e := &meanings{}
			actortest.Value(t, embedding(t, &kept{}, e, "memory_read"), args, ada)
			require.Empty(t, e.calls)
		})
	}
}

// bare is a registry with entries that have no vectors. Entries that changed refuse theirs.
type bare struct {
	mu   sync.Mutex
	list []remember.Bare
	set  []string
}

func (b *bare) Lease(_ context.Context, model string, limit int) ([]remember.Bare, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if model != "vec" {
		return nil, errors.New("another model")
	}
	n := min(limit, len(b.list))
	out := b.list[:n:n]
	b.list = b.list[n:]
	return out, nil
}

func (b *bare) Embed(_ context.Context, e remember.Bare, v remember.Vector) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Etag == "old" {
		return errs.New(errs.Conflict, "ETAG_MISMATCH", "changed")
	}
	b.set = append(b.set, e.Namespace+"/"+e.ID)
	return nil
}

func TestFill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		entry := func(namespace, id, text, etag string) remember.Bare {
			return remember.Bare{Namespace: namespace, ID: id, Etag: etag, Entry: remember.Entry{Text: text}}
		}
		b, e := &bare{list: []remember.Bare{entry("a", "1", "x", "1"), entry("a", "2", "bad", "1"), entry("a", "3", "y", "old"), entry("b", "4", "z", "1")}}, &meanings{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			remember.Fill(ctx, b, e, "vec", time.Minute, slog.New(slog.DiscardHandler))
		}()
		synctest.Wait()
		require.ElementsMatch(t, []string{"a/1", "b/4"}, b.set, "neither one that is refused nor one that changed keeps others waiting")
		require.ElementsMatch(t, []string{"a", "a", "a", "a", "b"}, e.of, "each call is that of a namespace")
		b.mu.Lock()
		for range 100 {
			b.list = append(b.list, entry("a", "n", "x", "1"))
		}
		b.mu.Unlock()
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		synctest.Wait()
		require.Len(t, b.set, 102, "it goes on while there is more")
		stop()
		<-done
	})
}
