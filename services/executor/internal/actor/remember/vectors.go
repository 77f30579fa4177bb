package remember

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Embedder makes vectors of texts. Its errors are *llm.Error.
type Embedder interface {
	Embed(ctx context.Context, texts []string) (llm.Vectors, error)
}

// Vector stands for the meaning of a text.
type Vector struct {
	Model  string
	Values []float32
}

// maxMeaning bounds the text of which a vector is made, in bytes: models take about 8,000 tokens.
const maxMeaning = 8 << 10

// embedTime is the longest time for the vector of one call, which goes on without it.
const embedTime = 10 * time.Second

// Meaning is the text for which the vector of an entry stands.
func (e *Entry) Meaning() string {
	parts := []string{e.Key, strings.Join(e.Tags, " "), e.Text, string(e.Value)}
	return errs.Clip(strings.TrimSpace(strings.Join(parts, "\n")), maxMeaning)
}

// desk is a memory with the model that makes vectors, nil for none.
type desk struct {
	Memory
	embedder Embedder
}

// made is a vector that was made for a call, or was to be, and what that used.
type made struct {
	vector *Vector
	failed bool
	used   []workgraph.Usage
}

// vector makes the vector of a text.
func (d desk) vector(ctx context.Context, text string) (out made) {
	if d.embedder == nil || text == "" {
		return out
	}
	ctx, stop := context.WithTimeout(llm.WithCaller(ctx, actor.NamespaceOf(ctx)), embedTime)
	defer stop()
	got, err := d.embedder.Embed(ctx, []string{text})
	spent := got.Spent
	if e, ok := errors.AsType[*llm.Error](err); ok {
		spent = e.Used
	}
	for _, s := range spent {
		out.used = append(out.used, workgraph.Usage{Provider: s.Provider, Model: s.Model, InputTokens: s.Usage.Input, Call: workgraph.EmbeddingCall})
	}
	if err != nil || len(got.Values) == 0 {
		out.failed = true
		return out
	}
	out.vector = &Vector{Model: got.Model, Values: got.Values[0]}
	return out
}

// booked adds what the vector used to an outcome.
func (m made) booked(out workgraph.Outcome, err error) (workgraph.Outcome, error) {
	if e, ok := errors.AsType[*workgraph.Error](err); ok {
		e.Usage = append(e.Usage, m.used...)
	}
	out.Usage = append(out.Usage, m.used...)
	return out, err
}

// MostUsed is how many tokens the vector of a call of one of the actors has at most; 0 if it needs none.
func MostUsed(s *workgraph.Start) int64 {
	of, most := []string{"key", "tags", "text", "value"}, maxMeaning
	switch s.Actor {
	case WriteName, ShareName:
	case ReadName:
		if of, most = []string{"query", "about"}, delegation.MaxQuery; len(s.Named["key"]) > len(`""`) {
			return 0
		}
	default:
		return 0
	}
	bytes := 0
	for _, name := range of {
		bytes += len(s.Named[name])
	}
	if bytes == 0 {
		return 0
	}
	return Tokens(min(bytes, most))
}
