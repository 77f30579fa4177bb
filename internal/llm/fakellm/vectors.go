package fakellm

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"time"
)

// dimensions are those of a vector that no rule gives.
const dimensions = 8

// embeddings answers a request for vectors.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var in struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
	}
	if err != nil || json.Unmarshal(body, &in) != nil || len(in.Input) == 0 {
		openai.fail(w, http.StatusBadRequest, "invalid_request", "the body is no request for vectors", 0)
		return
	}
	req := Request{Protocol: "embeddings", Model: in.Model, Header: r.Header.Clone(), Body: body, At: time.Now()}
	var tokens int64
	for _, text := range in.Input {
		req.Messages = append(req.Messages, Message{Role: "user", Content: text})
		tokens += Tokens(text)
	}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	rules := s.script.Vectors
	s.mu.Unlock()
	data := make([]any, len(in.Input))
	for i, text := range in.Input {
		v := vectorOf(rules, text)
		if v.Fault != "" {
			s.fault(w, r, openai, &req, Reply{Fault: v.Fault})
			return
		}
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": v.Values}
	}
	write(w, http.StatusOK, map[string]any{"object": "list", "model": in.Model, "data": data, "usage": map[string]any{"prompt_tokens": tokens, "total_tokens": tokens}})
}

// vectorOf is the vector of a text by the first rule that fits.
func vectorOf(rules []Vector, text string) Vector {
	for _, v := range rules {
		if strings.Contains(text, v.Match) {
			return v
		}
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, text)
	out := Vector{Values: make([]float32, dimensions)}
	for i, n := 0, h.Sum64(); i < dimensions; i, n = i+1, n>>8 {
		out.Values[i] = float32(n&0xff) + 1
	}
	return out
}
