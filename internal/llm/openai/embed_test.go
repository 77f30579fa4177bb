package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/openai"
)

// embedding is a set of a server that answers every request with a status and a text, and makes vectors.
func embedding(t *testing.T, status int, text string) (*llm.Set, func() (path string, body map[string]any)) {
	t.Helper()
	set, sent, body := answering(t, status, text)
	_, p, err := set.Resolve("", "")
	require.NoError(t, err)
	c := llm.DefaultConfig()
	c.Profiles["vectors"] = p
	c.Embeds = "vectors"
	embeds, err := llm.Open(c, map[string]llm.Provider{"openai": openai.Open}, llm.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, embeds.Close()) })
	return embeds, func() (string, map[string]any) {
		var got map[string]any
		require.NoError(t, json.Unmarshal(*body, &got))
		return sent.URL.Path, got
	}
}

func TestEmbed(t *testing.T) {
	t.Parallel()
	t.Run("Vectors/AreInTheOrderOfTheTexts", func(t *testing.T) {
		t.Parallel()
		set, sent := embedding(t, 200, `{"model": "m-1", "data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2.5]}], "usage": {"prompt_tokens": 7, "total_tokens": 7}}`)
		require.True(t, set.Embeds())
		require.Equal(t, "m", set.EmbeddingModel())
		got, err := set.Embed(t.Context(), []string{"a", "b"})
		require.NoError(t, err)
		require.Equal(t, llm.Vectors{
			Model: "m", Values: [][]float32{{1, 2.5}, {3, 4}},
			Spent: []llm.Spent{{Profile: "vectors", Provider: "openai", Model: "m-1", Usage: llm.Usage{Input: 7, Known: true}}},
		}, got)
		path, body := sent()
		require.Equal(t, "/v1/embeddings", path)
		require.Equal(t, map[string]any{"model": "m", "input": []any{"a", "b"}, "encoding_format": "float"}, body)
	})
	for name, answer := range map[string]string{
		"NoVectors": `{"data": []}`, "OneOfTwo": `{"data": [{"index": 0, "embedding": [1]}]}`, "Twice": `{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}`,
		"OfNoText": `{"data": [{"index": 0, "embedding": [1]}, {"index": 2, "embedding": [1]}]}`, "Empty": `{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": []}]}`,
		"Uneven": `{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}`,
		"Long":   `{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [` + strings.Repeat("1,", 4096) + `1]}]}`,
	} {
		t.Run("Malformed/"+name, func(t *testing.T) {
			t.Parallel()
			set, _ := embedding(t, 200, answer)
			_, err := set.Embed(t.Context(), []string{"a", "b"})
			e, ok := err.(*llm.Error) //nolint:errorlint // that is what it returns
			require.True(t, ok, "%v", err)
			require.Equal(t, "MALFORMED", e.Code)
		})
	}
	t.Run("Refusal/IsTyped", func(t *testing.T) {
		t.Parallel()
		set, _ := embedding(t, 429, `{"error": {"message": "slow down"}}`)
		_, err := set.Embed(t.Context(), []string{"a"})
		e, ok := err.(*llm.Error) //nolint:errorlint // that is what it returns
		require.True(t, ok, "%v", err)
		require.Equal(t, llm.Retryable, e.Class)
	})
	t.Run("Config/NamesAProfileOfTheProtocol", func(t *testing.T) {
		t.Parallel()
		for name, change := range map[string]func(*llm.Config){
			"none": func(c *llm.Config) { c.Embeds = "none" }, "protocol": func(c *llm.Config) {
				c.Change("other", func(p *llm.Profile) { p.Provider, p.Model = "anthropic", "m" })
				c.Embeds = "other"
			},
		} {
			c := llm.DefaultConfig()
			change(&c)
			require.ErrorContains(t, c.Validate([]string{"openai", "anthropic"}), "embeds is ", name)
		}
	})
	t.Run("Set/WithoutAProfileMakesNone", func(t *testing.T) {
		t.Parallel()
		set, _, _ := answering(t, 200, `{}`)
		require.False(t, set.Embeds())
		_, err := set.Embed(t.Context(), []string{"a"})
		require.ErrorContains(t, err, "models.embeds")
		require.NotEqual(t, errs.NotFound, errs.KindOf(err))
	})
}
