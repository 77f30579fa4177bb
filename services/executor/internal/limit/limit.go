// Package limit owns limits on what a namespace may have under way, over all executors of one database: how
// many calls of an actor or of a concurrency key run at once and begin in an interval, and how much the
// namespace has open. It holds the rules, the contract of the store, and the gates that attempts pass. It
// must not know the database of the limits, nor the API.
package limit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Reasons of refusals.
const (
	// ReasonNotFound is the reason when there is no limit of that name.
	ReasonNotFound = "LIMIT_NOT_FOUND"
	// ReasonInvalid is the reason of a limit that makes no sense; its violations name the fields.
	ReasonInvalid = "LIMIT_INVALID"
	// ReasonTooMany is the reason when a namespace has as many limits as it may.
	ReasonTooMany = "TOO_MANY_LIMITS"
	// ReasonQuota is the reason of a start for which the namespace has no room.
	ReasonQuota = "QUOTA_EXCEEDED"
	// ReasonStale is the reason of a Sync that comes after a later one.
	ReasonStale = "SYNC_STALE"
)

const (
	// Namespace is the name of the limit that bounds a namespace as a whole.
	Namespace = "namespace"
	actors    = "actor/"
	keys      = "key/"

	// MaxLimits is how many limits a namespace may have, since every executor keeps them in memory.
	MaxLimits = 10_000
	// DefaultMaxPending is how many runs may wait as PENDING when nothing is said.
	DefaultMaxPending = 100_000
	// MaxInterval is the longest rate interval.
	MaxInterval = 24 * time.Hour
	// MinRetention keeps a slip of the pen from emptying a namespace.
	MinRetention = time.Minute
	// MaxRetention means for ever.
	MaxRetention = 100 * 365 * 24 * time.Hour
)

// Key names a limit in its namespace.
type Key struct{ Namespace, Name string }

// ActorKey is the limit of calls of an actor.
func ActorKey(namespace, actor string) Key { return Key{namespace, actors + actor} }

// ConcurrencyKey is the limit of calls with a concurrency key.
func ConcurrencyKey(namespace, key string) Key { return Key{namespace, keys + key} }

// Limit is one limit. A number of 0 does not bound.
type Limit struct {
	Key
	// MaxConcurrent and MaxRate bound calls, of an actor or of a key.
	MaxConcurrent, MaxRate int32
	// RateInterval is what MaxRate counts in.
	RateInterval time.Duration
	// What follows bounds the namespace as a whole.
	MaxOpenRuns    int64
	MaxFanOut      int32
	MaxBytes       int64
	MaxPendingRuns int64
	// Retention is how long runs of the namespace are kept after their end; 0 is the default of the
	// installation.
	Retention time.Duration

	UpdateTime time.Time
	// Principal is who put it, from the API key that was shown.
	Principal string
}

// Validate names every field that cannot be used, and fills in the interval that is meant when none is given.
func (l *Limit) Validate() error {
	fault := errs.New(errs.InvalidArgument, ReasonInvalid, "the limit %q cannot be kept as it is", l.Name)
	n := 0
	violate := func(field, format string, args ...any) {
		n++
		fault = fault.Violate("limit."+field, ReasonInvalid, fmt.Sprintf(format, args...))
	}
	calls := l.MaxConcurrent != 0 || l.MaxRate != 0
	whole := l.MaxOpenRuns != 0 || l.MaxFanOut != 0 || l.MaxBytes != 0 || l.MaxPendingRuns != 0 || l.Retention != 0
	switch name := strings.TrimPrefix(strings.TrimPrefix(l.Name, actors), keys); {
	case l.Name == Namespace:
		if calls {
			violate("name", "a namespace bounds runs, not calls: give max_concurrent and max_rate to \"actor/NAME\" or \"key/VALUE\"")
		}
	case name == l.Name || name == "":
		violate("name", "a limit is named \"namespace\", \"actor/NAME\" or \"key/VALUE\"")
	case whole:
		violate("name", "max_open_runs, max_fan_out, max_bytes, max_pending_runs and retention are for the limit named \"namespace\"")
	}
	if strings.ContainsFunc(l.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		violate("name", "control characters are not allowed")
	}
	if !calls && !whole {
		violate("name", "nothing is bounded; to lift a limit delete it")
	}
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"max_concurrent", int64(l.MaxConcurrent)}, {"max_rate", int64(l.MaxRate)}, {"max_open_runs", l.MaxOpenRuns},
		{"max_fan_out", int64(l.MaxFanOut)}, {"max_bytes", l.MaxBytes}, {"max_pending_runs", l.MaxPendingRuns},
	} {
		if f.v < 0 {
			violate(f.name, "must not be negative")
		}
	}
	if l.Retention != 0 && (l.Retention < MinRetention || l.Retention > MaxRetention) {
		violate("retention", "must be from %s to %s", MinRetention, MaxRetention)
	}
	switch {
	case l.MaxRate == 0 && l.RateInterval != 0:
		violate("rate_interval", "is of no use without max_rate")
	case l.MaxRate != 0 && l.RateInterval == 0:
		l.RateInterval = time.Second
	case l.MaxRate != 0 && (l.RateInterval < time.Millisecond || l.RateInterval > MaxInterval):
		violate("rate_interval", "must be from 1ms to %s", MaxInterval)
	}
	if l.MaxRate > 0 && l.RateInterval > 0 && l.RateInterval/time.Duration(l.MaxRate) < 10*time.Microsecond {
		violate("max_rate", "at most 100,000 calls a second can be counted")
	}
	if n > 0 {
		return fault
	}
	return nil
}

// NotFound is the error of a limit that is not there.
func NotFound(name string) error {
	return errs.New(errs.NotFound, ReasonNotFound, "there is no limit %q", name).Hint("ListLimits lists the existing ones")
}

// TooMany is the error of one limit too many.
func TooMany() error {
	return errs.New(errs.ResourceExhausted, ReasonTooMany, "a namespace may have %d limits", MaxLimits)
}

// Stale is the error of a Sync that was overtaken by a later one, so that nothing of it counts.
func Stale() error {
	return errs.New(errs.Conflict, ReasonStale, "a later exchange with the limits was faster")
}

// Change makes another limit of one that was found, or a new one.
type Change func(l Limit, found bool) (Limit, error)

// To is the change that replaces whatever is there by l.
func To(l Limit) Change { return func(Limit, bool) (Limit, error) { return l, nil } }

// Store keeps limits and the places held under them. Implementations are safe for concurrent use. All times
// are those of the database's clock.
type Store interface {
	// Sync records the places that owner holds and wants, and returns its grants, in one transaction that
	// first locks owner's row. All numbers are absolute, so the next Sync corrects one whose answer was lost.
	// turn rises with each, and one that is overtaken is refused with ReasonStale. Places count only while
	// their owner is registered with this incarnation; ReasonFenced after a take-over.
	Sync(ctx context.Context, owner journal.Owner, turn int64, asks []Ask) ([]Grant, error)
	// All reads every limit there is, if the version is another than have.
	All(ctx context.Context, have int64) (version int64, limits []Limit, err error)
	// Wakes returns a channel that gets the key of a limit after a place of it was released or is wanted, and
	// the zero Key after limits were changed, on any replica. It is a hint: keys may be lost or come for
	// nothing. It is closed when ctx ends.
	Wakes(ctx context.Context) (<-chan Key, error)

	// Update replaces the limit with key k by what change makes of it, in one transaction, and returns it
	// as it is kept. change gets the limit as it is; if there is none, found is false and only the key is
	// set. It may run more than once and must have no other effect. Its error is returned and leaves
	// everything as it was. ReasonTooMany.
	Update(ctx context.Context, k Key, change Change) (Limit, error)
	// Delete removes a limit. ReasonNotFound.
	Delete(ctx context.Context, k Key) error
	// List reads up to most limits of a namespace behind a name, by name.
	List(ctx context.Context, namespace, after string, most int) ([]Limit, error)
	// Figures returns the use of these limits, in their order.
	Figures(ctx context.Context, keys []Key) ([]Figure, error)
	// OpenRuns counts the open runs of a namespace, and those that are PENDING, up to a bound each.
	OpenRuns(ctx context.Context, namespace string, bound int64) (open, pending int64, err error)
	// Next returns the pending runs of a namespace that may begin while fewer than most are open, at most n:
	// the most urgent first, then the oldest.
	Next(ctx context.Context, namespace string, most int64, n int) ([]Pending, error)
	// Stranded returns runs that have waited for longer than age in namespaces that do not bound open runs
	// (any more).
	Stranded(ctx context.Context, age time.Duration, n int) ([]Pending, error)
	// Bytes sums up what the open runs of a namespace hold in the journal.
	Bytes(ctx context.Context, namespace string) (int64, error)
	// Backlog counts the jobs that are due, up to a bound, and the executors. Webhooks do not count:
	// executors do not delay them.
	Backlog(ctx context.Context) (jobs, executors int64, err error)
	// Sweep forgets what executors held that are gone, and rates that nobody used for a day.
	Sweep(ctx context.Context) error
	// Close ends what the store opened itself.
	Close() error
}

// Ask is what an executor says of one limit.
type Ask struct {
	Key
	// Rate asks for Want starts instead of places; Held and Runs mean nothing then. Also names a second limit
	// of the namespace whose rate applies too; empty if there is none.
	Rate bool
	Also string
	// Held is how many calls it has running, Want how many more could begin.
	Held, Want int
	// Age is how long the first waiter has waited, less the handicap of its priority; so it may be negative.
	Age time.Duration
	// Runs are some that hold, for explanations.
	Runs []string
}

// AlsoKey is the second limit.
func (a Ask) AlsoKey() Key { return Key{a.Namespace, a.Also} }

// Grant answers an Ask.
type Grant struct {
	// N is how many may begin.
	N int
	// Over is how many of those that are held are too many: a limit was lowered.
	Over int
	// Rival says that another executor waits, and RivalAge for how long, as in Ask.
	Rival    bool
	RivalAge time.Duration
	// Unbounded says that nothing bounds these calls any more.
	Unbounded bool
	// First is when the first of N starts is, from the moment of the exchange on, and Every the distance
	// between them. Rate only.
	First, Every time.Duration
	// Slack is how much later than its time a beginning may be. Rate only.
	Slack time.Duration
	// Again is when to ask for those that were not granted; 0 means that a wake announces it.
	Again time.Duration
}

// Figure is the use of one limit.
type Figure struct {
	Key
	Running, Waiting int
	// Holders are executors, and Runs some of the runs, that hold.
	Holders, Runs []string
	// Next is the time until the next start. Rate only.
	Next time.Duration
}

// Size implements page.Row.
func (l Limit) Size() int { return 256 + len(l.Name) + len(l.Principal) }
