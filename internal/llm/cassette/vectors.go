package cassette

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

// vector is what a recorded call made of one text.
type vector struct {
	values []float32
	// from is the call, and input the tokens of it that are of this text.
	from  *take
	input int64
}

// check reports whether a recorded call for vectors can be played.
func (e *entry) check() error {
	switch {
	case e.Embed.Model == "" || len(e.Embed.Texts) == 0:
		return errors.New("a call for vectors has a model and texts")
	case e.Error == nil && len(e.Embed.Vectors) != len(e.Embed.Texts):
		return errors.New("a call for vectors has one for each text, or an error")
	}
	return nil
}

// sumOf is what a call for vectors, or the vector of one text, is found by. Secrets have no part in it,
// as they have none in a file.
func (p *player) sumOf(model string, texts ...string) (sum, error) {
	raw, err := json.Marshal(embed{Model: model, Texts: texts})
	return sha256.Sum256(p.hide.json(raw)), err
}

// loadVectors takes in a recorded call for vectors.
func (p *player) loadVectors(e *entry) error {
	t := &take{entry: *e}
	key, err := p.sumOf(e.Embed.Model, e.Embed.Texts...)
	if err != nil {
		return err
	}
	p.tried[key] = append(p.tried[key], t)
	if e.Error != nil {
		return nil
	}
	var input int64
	for _, s := range e.Embed.Spent {
		input += s.Usage.Input
	}
	bytes := 0
	for _, text := range e.Embed.Texts {
		bytes += len(text)
	}
	for i, text := range e.Embed.Texts {
		key, err := p.sumOf(e.Embed.Model, text)
		if err != nil {
			return err
		}
		p.vectors[key] = vector{values: e.Embed.Vectors[i], from: t, input: input * int64(len(text)) / int64(max(1, bytes))}
	}
	return nil
}

// Embed implements llm.Tape. A call that was recorded comes as it was. What is made of a text does not
// depend on the texts beside it, nor on how often it is asked for: so texts that come in other calls
// than those that were recorded have their vectors all the same.
func (p *player) Embed(ctx context.Context, model string, texts []string, _ func(context.Context) (llm.Vectors, error)) (llm.Vectors, error) {
	key, err := p.sumOf(model, texts...)
	if err != nil {
		return llm.Vectors{}, err
	}
	p.mu.Lock()
	t := unplayed(p.tried[key])
	if t != nil {
		t.played = true
	}
	p.mu.Unlock()
	if t == nil {
		return p.gather(model, texts)
	}
	if p.cfg.Pace && !sleep.For(ctx, time.Duration(t.Took)*time.Millisecond) {
		return llm.Vectors{}, ended(ctx)
	}
	if t.Error != nil {
		return llm.Vectors{}, t.Error.error()
	}
	return llm.Vectors{Model: model, Values: t.Embed.Vectors, Spent: t.Embed.Spent}, nil
}

// gather has the vectors of texts from the calls that made them.
func (p *player) gather(model string, texts []string) (llm.Vectors, error) {
	out := llm.Vectors{Model: model}
	var spent llm.Spent
	for _, text := range texts {
		key, err := p.sumOf(model, text)
		if err != nil {
			return llm.Vectors{}, err
		}
		v, there := p.vectors[key]
		if !there {
			return llm.Vectors{}, faulty("no vector of model %s is recorded in %s for the text %q: record the run again", model, p.cfg.Path, errs.Clip(text, maxNamed))
		}
		if n := len(v.from.Embed.Spent); n > 0 {
			last := v.from.Embed.Spent[n-1]
			spent.Profile, spent.Provider, spent.Model, spent.Usage.Known = last.Profile, last.Provider, last.Model, last.Usage.Known
		}
		spent.Usage.Input += v.input
		out.Values = append(out.Values, v.values)
	}
	out.Spent = []llm.Spent{spent}
	return out, nil
}

// maxNamed bounds the text that an error names, in bytes.
const maxNamed = 200
