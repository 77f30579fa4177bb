package actor

import (
	"context"
	"encoding/json"
)

// Reporter receives the reports of an attempt under way. They are ephemeral: they reach only present
// watchers. Implementations are safe for concurrent use and never block for long.
type Reporter interface {
	// Text is a piece of text that a model has just written for people.
	Text(piece string)
	// Raw is a piece of text that a model has just written in a form for programs. What it says to people is
	// reported by Text as well.
	Raw(piece string)
	// Progress says how far the attempt is.
	Progress(at json.RawMessage)
	// Watched reports whether somebody watches the run at this moment, at whichever executor.
	Watched() bool
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
func (silent) Raw(string)               {}
func (silent) Watched() bool            { return false }
func (silent) Progress(json.RawMessage) {}
