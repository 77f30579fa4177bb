// Package feed tells what happens in runs: to those who watch them, to webhooks, and how much of what runs
// used the registry has booked. It reads the journal; live runs publish to it what is faster than that.
package feed

import (
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Feed tells what happens in runs to those who watch them. It is safe for concurrent use.
type Feed struct {
	journal  journal.Journal
	booked   *Booked
	live     Live
	opts     Options
	hub      *hub
	watchers *watchers
}

// Live are the runs in this process's memory.
type Live interface {
	// Here returns the root of a live run and how far its journal is durable. It is false for a run that has
	// ended, and for one of which nothing is durable yet.
	Here(namespace, runID string) (root string, last int64, ok bool)
	// Holds reports whether the run is in memory, so that whatever happens to it is published.
	Holds(runID string) bool
}

// Options bound watches.
type Options struct {
	// Poll is how often a watcher looks for events of a run that another replica owns.
	Poll time.Duration
	// KeepAlive is the longest silence of a watch.
	KeepAlive time.Duration
	// Watches is how many watches of one namespace there are at once.
	Watches int
}

// New returns a feed that reads from a journal what nobody publishes.
func New(j journal.Journal, booked *Booked, live Live, o Options) *Feed {
	return &Feed{journal: j, booked: booked, live: live, opts: o, hub: newHub(), watchers: &watchers{limit: o.Watches, count: map[string]int{}}}
}

// Publish tells events of runs of this process to those who watch these.
func (f *Feed) Publish(events ...Event) { f.hub.publish(events...) }
