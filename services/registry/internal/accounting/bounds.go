package accounting

import "github.com/epigraph-run/epigraph/internal/errs"

// Reasons of things that are refused since a namespace has as many as it may.
const (
	ReasonTooManyEpics        = "TOO_MANY_EPICS"
	ReasonTooManyTasks        = "TOO_MANY_TASKS"
	ReasonTooManyPrices       = "TOO_MANY_PRICES"
	ReasonTooManyDependencies = "TOO_MANY_DEPENDENCIES"
	// ReasonTooManyReservations refuses more reservations, or more runs of one, than a request may have.
	ReasonTooManyReservations = "TOO_MANY_RESERVATIONS"
	// ReasonNoCapsOfRuns refuses to set the caps of a run in the ledger.
	ReasonNoCapsOfRuns = "NO_CAPS_OF_RUNS"
)

// Bounds are how many of everything there may be. Of several that come at the same time a few more may get
// in.
type Bounds struct {
	// Epics and Prices are those of a namespace.
	Epics, Prices int
	// Tasks are those of an epic, Dependencies those of all of its tasks together.
	Tasks, Dependencies int
	// Watches are those of the feed of a namespace at one replica.
	Watches int
}

// DefaultBounds are those of a registry.
func DefaultBounds() Bounds {
	return Bounds{Epics: 100_000, Prices: 10_000, Tasks: 10_000, Dependencies: 100_000, Watches: 1000}
}

// Within returns accounts over the same store with these bounds.
func (b *Accounts) Within(bounds Bounds) *Accounts {
	return &Accounts{store: b.store, bounds: bounds, tails: newTails(bounds.Watches), changed: b.changed}
}

// room refuses one more where there are as many as may be.
func room(have, most int, reason, whose, what string) error {
	if have < most {
		return nil
	}
	return errs.New(errs.ResourceExhausted, reason, "%s may have %d %s", whose, most, what).Hint("delete " + what + " that are not needed any more")
}
