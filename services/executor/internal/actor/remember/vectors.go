package remember

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/sleep"
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
		out.used = append(out.used, workgraph.Usage{Provider: s.Provider, Model: s.Model, InputTokens: s.Usage.Input, Call: "embed"})
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

// Unembedded are entries of the memory that have no vector of a model.
type Unembedded interface {
	// Lease hands out some of them, which nobody else gets for a while.
	Lease(ctx context.Context, model string, limit int) ([]Bare, error)
	// Embed sets a vector, unless the entry was written since.
	Embed(ctx context.Context, b Bare, v Vector) error
}

// Bare is an entry without a vector.
type Bare struct {
	Entry
	Namespace, ID, Etag string
}

// filledAtOnce is how many entries one model call makes vectors of.
const filledAtOnce = 32

// Fill makes vectors of what has none, such as procedures and what people write, until ctx ends. It waits
// between looks when there is nothing, and when the registry or the model does not answer.
func Fill(ctx context.Context, u Unembedded, e Embedder, model string, every time.Duration, log *slog.Logger) {
	for {
		n, err := fill(ctx, u, e, model)
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "entries of the memory have no vectors yet", slog.Any("err", err))
		}
		if (n == 0 || err != nil) && !sleep.For(ctx, every) || ctx.Err() != nil {
			return
		}
	}
}

// fill makes the vectors of some entries and returns how many it was handed.
func fill(ctx context.Context, u Unembedded, e Embedder, model string) (int, error) {
	list, err := u.Lease(ctx, model, filledAtOnce)
	of := map[string][]Bare{}
	for _, b := range list {
		of[b.Namespace] = append(of[b.Namespace], b)
	}
	for namespace, some := range of {
		err = errors.Join(err, embed(llm.WithCaller(ctx, namespace), u, e, some))
	}
	return len(list), err
}

// embed makes the vectors of entries of one namespace. One text that the model refuses does not keep the
// others from theirs.
func embed(ctx context.Context, u Unembedded, e Embedder, some []Bare) (err error) {
	texts := make([]string, len(some))
	for i := range some {
		texts[i] = some[i].Meaning()
	}
	got, err := e.Embed(ctx, texts)
	if refused, ok := errors.AsType[*llm.Error](err); ok && refused.Class == llm.Permanent && len(some) > 1 {
		err = nil
		for i := range some {
			err = errors.Join(err, embed(ctx, u, e, some[i:i+1]))
		}
		return err
	}
	for i := range got.Values {
		switch failed := u.Embed(ctx, some[i], Vector{Model: got.Model, Values: got.Values[i]}); errs.KindOf(failed) {
		case errs.Conflict, errs.NotFound: // it was written or removed since
		default:
			err = errors.Join(err, failed)
		}
	}
	return err
}
