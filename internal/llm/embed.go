package llm

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/genai"
)

// maxDimensions bounds a vector.
const maxDimensions = 4096

// Vectors are texts as a model sees their meaning, one for each text, of equal lengths.
type Vectors struct {
	// Model is that of the profile. Vectors of different models cannot be compared.
	Model  string
	Values [][]float32
	// Spent is what the calls used.
	Spent []Spent
}

// Embedder is what a Model of a provider is besides, if its servers make vectors of texts.
type Embedder interface {
	// Embed makes a vector of each text. What it used is in the response, which has no message.
	Embed(ctx context.Context, model string, texts []string) (vectors [][]float32, used Response, err error)
}

// Embeds reports whether a profile makes vectors.
func (s *Set) Embeds() bool { return s.cfg.Embeds != "" }

// EmbeddingModel is the model that makes vectors; empty if none does.
func (s *Set) EmbeddingModel() string { return s.profiles[s.cfg.Embeds].own() }

// EmbeddingBooked is what a call for vectors is booked as, without usage.
func (s *Set) EmbeddingBooked() (out Spent) {
	if p := s.profiles[s.cfg.Embeds]; p != nil {
		out.Profile = p.name
		out.Provider, out.Model = p.cfg.Booked(p.cfg.Model)
	}
	return out
}

func (p *profile) own() string {
	if p == nil {
		return ""
	}
	return p.cfg.Model
}

// Embed makes a vector of each text, by the profile for that. Its calls are governed, retried, observed and
// booked as others are, and have no fallback: vectors of another model could not be compared. A cassette has
// none. Errors are *Error.
func (s *Set) Embed(ctx context.Context, texts []string) (Vectors, error) {
	p := s.profiles[s.cfg.Embeds]
	if p == nil || p.embedder == nil {
		return Vectors{}, &Error{Class: Permanent, Code: codeProfile, Message: "no model profile makes vectors: set models.embeds"}
	}
	if s.plays {
		return Vectors{}, &Error{Class: Permanent, Code: codeNotRecorded, Message: "a cassette is played, which has no vectors"}
	}
	as, out := *p, Vectors{Model: p.cfg.Model}
	as.model = embedding{p.embedder, texts, &out.Values}
	req := Request{MaxOutputTokens: 1}
	for _, text := range texts {
		req.Messages = append(req.Messages, Message{Role: User, Content: text})
	}
	began := false
	res, err := as.answer(ctx, as.asked(&req, p.cfg.Model), nil, &began)
	if err != nil {
		return Vectors{}, err
	}
	res.Usage.Output = 0
	out.Spent = append(res.Earlier, Spent{Profile: res.Profile, Provider: res.Provider, Model: res.Model, Usage: res.Usage})
	return out, nil
}

// embedding is a call for vectors in the place of one for an answer.
type embedding struct {
	from  Embedder
	texts []string
	into  *[][]float32
}

// Generate implements Model.
func (e embedding) Generate(ctx context.Context, req Request) (Response, error) {
	vectors, out, err := e.from.Embed(ctx, req.Model, e.texts)
	if err != nil {
		return Response{}, err
	}
	out.Usage = out.Usage.believed()
	if len(vectors) != len(e.texts) {
		return out, Malformed(fmt.Sprintf("the answer has %d vectors for %d texts", len(vectors), len(e.texts)))
	}
	for _, v := range vectors {
		if len(v) == 0 || len(v) > maxDimensions || len(v) != len(vectors[0]) {
			return out, Malformed(fmt.Sprintf("the answer has a vector of %d dimensions: there are from 1 to %d, and all have as many", len(v), maxDimensions))
		}
	}
	*e.into = vectors
	return out, nil
}

// Stream implements Model.
func (e embedding) Stream(ctx context.Context, req Request, _ func(Delta) error) (Response, error) {
	return e.Generate(ctx, req)
}

// operation is what the calls of a profile do, by the words of the GenAI conventions.
func (p *profile) operation() string {
	if _, embeds := p.model.(embedding); embeds {
		return genai.Embeddings
	}
	return genai.Chat
}
