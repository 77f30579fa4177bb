package openai

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/llm"
)

var _ llm.Embedder = (*model)(nil)

// embeddingsPath is that of the method that makes vectors.
const embeddingsPath = "embeddings"

// Embed implements llm.Embedder.
func (m *model) Embed(ctx context.Context, name string, texts []string) ([][]float32, llm.Response, error) {
	body, err := json.Marshal(map[string]any{"model": name, "input": texts, "encoding_format": "float"})
	if err != nil {
		return nil, llm.Response{}, err
	}
	var res struct {
		Model string `json:"model"`
		Data  []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
		Usage *struct {
			PromptTokens int64 `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := m.post(ctx, embeddingsPath, body, &res); err != nil {
		return nil, llm.Response{}, err
	}
	out := llm.Response{Model: res.Model, FinishReason: llm.FinishStop}
	if res.Usage != nil {
		out.Usage = llm.Usage{Input: res.Usage.PromptTokens, Known: true}
	}
	vectors := make([][]float32, len(texts))
	for _, d := range res.Data {
		if d.Index < 0 || d.Index >= len(texts) || vectors[d.Index] != nil {
			return nil, out, llm.Malformed("the answer has a vector for no text, or two for one")
		}
		vectors[d.Index] = d.Embedding
	}
	return vectors, out, nil
}
