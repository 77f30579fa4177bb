package actor

import (
	"context"
	"encoding/json"
)

// Reporter receives the reports of an attempt under way. They are ephemeral: they reach only present
// watchers. Implementations are safe for concurrent use and never block for long.
type Reporter interface {
	// Text is a piece of text that a model has just written.
	Text(piece string)
	// Progress says how far the attempt is.
	Progress(at json.RawMessage)
}

type reporterKey struct{}

// WithReporter returns a context whose calls report to r.
func WithReporter(ctx context.Context, r Reporter) context.Context {
	return context.WithValue(ctx, reporterKey{}, r)
}

// ReporterOf is the reporter of ctx; one that drops everything if there is none.
func ReporterOf(ctx context.Context) Reporter {
	if r, ok := ctx.Value(reporterKey{}).(Reporter); ok {
		return r
	}
	return silent{}
}

type silent struct{}

func (silent) Text(string)              {}
func (silent) Progress(json.RawMessage) {}
