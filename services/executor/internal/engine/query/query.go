// Package query answers questions about runs: why a run does not go on, which visits it made, whether its
// journal is sound. It reads the journal, and asks the engine for what only the owner's memory has. It
// changes nothing.
package query

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Query answers questions about the runs of one journal. It is safe for concurrent use.
type Query struct {
	engine  *engine.Engine
	journal journal.Journal
	resets  *resets
	traces  *traces
}

// New returns a Query over the journal of an engine.
func New(e *engine.Engine) *Query {
	return &Query{engine: e, journal: e.RunJournal(), resets: newResets(), traces: newTraces()}
}
