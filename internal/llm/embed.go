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

// Tape is what Options.Around returns besides, if it has calls for vectors as well.
type Tape interface {
	// Embed makes a vector of each text, by a model. live asks the profile; a tape that plays does not
	// call it. Errors are *Error.
	Embed(ctx context.Context, model string, texts []string, live func(context.Context) (Vectors, error)) (Vectors, error)
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

// Embed makes a vector of each text, by the profile for that. Its calls are governed, retried, observed
// and booked as others are, and have no fallback: vectors of another model could not be compared.
// Errors are *Error.
func (s *Set) Embed(ctx context.Context, texts []string) (Vectors, error) {
	p := s.profiles[s.cfg.Embeds]
	if p == nil || p.embedder == nil {
		return Vectors{}, &Error{Class: Permanent, Code: codeProfile, Message: "no model profile makes vectors: set models.embeds"}
	}
	as := *p
	switch {
	case s.tape != nil && s.plays:
		return as.played(ctx, s.tape, texts)
	case s.plays:
		return Vectors{}, &Error{Class: Permanent, Code: codeNotRecorded, Message: "what is played has no vectors"}
	case s.tape != nil:
		return s.tape.Embed(ctx, p.cfg.Model, texts, func(ctx context.Context) (Vectors, error) { return as.embed(ctx, texts) })
	}
	return as.embed(ctx, texts)
}

// embed makes a vector of each text. It changes the model of p, which is a copy.
func (p *profile) embed(ctx context.Context, texts []string) (Vectors, error) {
	out := Vectors{Model: p.cfg.Model}
	p.model = embedding{p.embedder, texts, &out.Values}
	began := false
	res, err := p.answer(ctx, p.forVectors(texts), nil, &began)
	if err != nil {
		return Vectors{}, err
	}
	res.Usage.Output = 0
	out.Spent = append(res.Earlier, Spent{Profile: res.Profile, Provider: res.Provider, Model: res.Model, Usage: res.Usage})
	return out, nil
}

// forVectors is a call for vectors as a request, for estimates and records.
func (p *profile) forVectors(texts []string) *Request {
	req := Request{MaxOutputTokens: 1}
	for _, text := range texts {
		req.Messages = append(req.Messages, Message{Role: User, Content: text})
	}
	return p.asked(&req, p.cfg.Model)
}

// played has vectors from a tape, observed as calls of the profile are. It changes the model of p,
// which is a copy.
func (p *profile) played(ctx context.Context, tape Tape, texts []string) (out Vectors, err error) {
	p.model = embedding{player{tape, &out}, texts, &out.Values}
	if _, err = p.observer.observe(ctx, p, p.forVectors(texts), nil); err != nil {
		return Vectors{}, err
	}
	return out, nil
}

// player is a tape that is played, in the place of an embedder. It leaves what it has played in out.
type player struct {
	tape Tape
	out  *Vectors
}

// Embed implements Embedder.
func (p player) Embed(ctx context.Context, model string, texts []string) ([][]float32, Response, error) {
	var err error
	if *p.out, err = p.tape.Embed(ctx, model, texts, nil); err != nil {
		return nil, Response{}, err
	}
	res := Response{Model: model, FinishReason: FinishStop}
	for _, s := range p.out.Spent {
		res.Model, res.Usage = s.Model, s.Usage
	}
	return p.out.Values, res, nil
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
