// Package feed publishes what happens in runs: to watchers, to webhooks, and to readers of accounting. It
// reads the journal, and live runs publish to it as a faster way. It decides nothing about runs.
package feed

import (
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Feed delivers the events of runs to their watchers. It is safe for concurrent use.
type Feed struct {
	journal  journal.Journal
	booked   *Booked
	live     Live
	opts     Options
	hub      *hub
	watchers *watchers
	// elsewhere is nil if there are no other executors.
	elsewhere Elsewhere
}

// Live gives access to the runs in the memory of this process.
type Live interface {
	// Here returns the root of a live run and the last sequence that is durable. ok is false for an ended
	// run, and for a run of which nothing is durable yet.
	Here(namespace, runID string) (root string, last int64, ok bool)
	// Holds reports whether the run is in memory, so that all its events are published.
	Holds(runID string) bool
}

// Options configure watches.
type Options struct {
	// Poll is how often a watch reads the journal of a run that another replica owns.
	Poll time.Duration
	// KeepAlive is the longest silence of a watch.
	KeepAlive time.Duration
	// Watches bounds the watches of one namespace.
	Watches int
}

// New returns a feed. It reads from the journal what is not published.
func New(j journal.Journal, booked *Booked, live Live, o Options) *Feed {
	return &Feed{journal: j, booked: booked, live: live, opts: o, hub: newHub(), watchers: &watchers{limit: o.Watches, count: map[string]int{}}}
}

// Publish delivers events of this process's runs to their watchers.
func (f *Feed) Publish(events ...Event) { f.hub.publish(false, events...) }
