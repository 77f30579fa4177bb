package remember_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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
		switch {
		case strings.Contains(text, "bad"):
			return llm.Vectors{}, &llm.Error{Class: llm.Permanent, Status: 400, Message: "bad words"}
		case strings.Contains(text, "busy"):
			return llm.Vectors{}, &llm.Error{Class: llm.Retryable, Status: 429, Message: "too many"}
		case strings.Contains(text, "slow"):
			m.mu.Unlock()
			<-ctx.Done()
			m.mu.Lock()
			return llm.Vectors{}, &llm.Error{Class: llm.Unknown, Code: "TIMEOUT", Message: "late"}
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
	t.Run("Read/SaysHowManyWereNotCompared", func(t *testing.T) {
		t.Parallel()
		k := &kept{found: []remember.Entry{{Key: "k", Text: "tea"}}, left: 7}
		require.Contains(t, actortest.Value(t, embedding(t, k, &meanings{}, "memory_read"), `{"query": "tea"}`, ada), "the 7 that were first written longest ago were looked for by words alone")
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

func TestMostUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		actor string
		named map[string]string
		want  int64
	}{
		"Read":       {"memory_read", map[string]string{"query": `"12345"`, "about": `"1"`}, 4},
		"ReadNoText": {"memory_read", map[string]string{"limit": `3`}, 0},
		"ReadByKey":  {"memory_read", map[string]string{"query": `"x"`, "key": `"k"`}, 0},
		"Write":      {"memory_write", map[string]string{"key": `"k"`, "value": `{"a":1}`}, 4},
		"Share":      {"memory_share", map[string]string{"text": `"` + strings.Repeat("x", 100_000) + `"`}, 8<<10/3 + 1},
		"Other":      {"http", map[string]string{"text": `"x"`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &workgraph.Start{Actor: c.actor, Named: map[string]json.RawMessage{}}
			for k, v := range c.named {
				s.Named[k] = json.RawMessage(v)
			}
			require.Equal(t, c.want, remember.MostUsed(s))
		})
	}
}
