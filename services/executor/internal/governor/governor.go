// Package governor keeps model calls within the limits of accounts at providers, over all executors of one
// database and fair over namespaces: how much an account takes in a minute, and how long it wants nothing
// after a refusal. It holds the rules, the contract of the store, the queue of one executor and the gate that
// attempts pass. It must not know the database, nor any provider.
package governor

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// ReasonStale is the reason of an exchange that comes after a later one.
const ReasonStale = "EXCHANGE_STALE"

// Stale is the error of an exchange that was overtaken by a later one, so that nothing of it counts.
func Stale() error {
	return errs.New(errs.Conflict, ReasonStale, "a later exchange about the account was faster")
}

// kinds is how many things an account limits: requests, tokens, tokens of prompts and tokens of answers.
const kinds = 4

// Cost is what a call takes of an account: a request, its tokens, those of the prompt and those of the
// answer.
type Cost [kinds]int64

func (c Cost) plus(d Cost) Cost {
	for k := range c {
		c[k] += d[k]
	}
	return c
}

func (c Cost) minus(d Cost) Cost {
	for k := range c {
		c[k] -= d[k]
	}
	return c
}

// Limits are what an account takes in an interval; 0 does not bound.
type Limits struct {
	Per           Cost
	MaxConcurrent int
	Interval      time.Duration
}

func limitsOf(a llm.AccountLimits, interval time.Duration) Limits {
	return Limits{
		Per:           Cost{a.RequestsPerMinute, a.TokensPerMinute, a.InputTokensPerMinute, a.OutputTokensPerMinute},
		MaxConcurrent: a.MaxConcurrent, Interval: interval,
	}
}

// Store keeps what accounts have given. Implementations are safe for concurrent use. All times are those of
// the database's clock.
type Store interface {
	// Exchange corrects what owner took of an account, records what it waits for, and takes what it may, in
	// one transaction that first locks owner's row. The turn of an ask rises with each that brings other
	// corrections: they are applied once, so that an ask whose answer was lost is sent again. ReasonStale for
	// an earlier turn, ReasonFenced after a take-over. Calls under way and waiting calls count only while
	// their executor is registered with this incarnation; what was taken counts until it is too old.
	Exchange(ctx context.Context, owner journal.Owner, ask Ask) (Answer, error)
	// Wakes returns a channel that gets the name of an account that may have room again, or refused calls, on
	// any replica. It is a hint: names may be lost or come for nothing. It is closed when ctx ends.
	Wakes(ctx context.Context) (<-chan string, error)
	// Sweep forgets what executors waited for that are gone, and accounts that nobody used for a day.
	Sweep(ctx context.Context) error
}

// Ask is what an executor says of one account.
type Ask struct {
	Account string
	Limits  Limits
	// Turn is the number of the corrections. Corrections and Refused are ignored when it was seen before.
	Turn        int64
	Corrections []Correction
	// Refused is what the provider refused since, nil if nothing.
	Refused *Refusal
	// Held is how many calls are under way here.
	Held int
	// Lines are the calls that wait here, by namespace.
	Lines []Line
}

// Correction is the difference between what a call took and what it used.
type Correction struct {
	// At is when it took it: Answer.At.
	At    int64
	Delta Cost
	// To, if not zero, is when the call began, since it was later. Delta is what it took then.
	To int64
}

// Refusal is a call that the provider refused for its rate.
type Refusal struct {
	// Age is how long ago the call began.
	Age time.Duration
	// RetryAfter is for how long the provider wants no calls, 0 if it did not say.
	RetryAfter time.Duration
}

// Line is the calls of a namespace that wait at one executor.
type Line struct {
	Namespace string
	// Calls is how many wait, Costs is what the first of them take.
	Calls int
	Costs []Cost
	// Age is how long the first of them has waited.
	Age time.Duration
}

// Answer is what an executor may begin.
type Answer struct {
	// Granted is how many calls of each line may begin, in the order of Ask.Lines.
	Granted []int
	// At is when they took it, in microseconds of the database's clock.
	At int64
	// Again is when to ask for the others, if nothing happens before.
	Again time.Duration
	// Paused is how much longer the account pauses after a refusal; Speed is the part of its limits that is
	// used after one, 1 as a rule.
	Paused time.Duration
	Speed  float64
	// UnderWay is how many calls are under way at all executors, with those that may begin now.
	UnderWay int
	// Used is the part of each limit that the calls of the last interval took.
	Used [kinds]float64
}

// Standing is what another executor holds of an account and waits for.
type Standing struct {
	Owner journal.Owner
	Held  int
	// Asked is when it said so.
	Asked time.Time
	Waits []Waits
}

// Waits are the calls of a namespace that wait at another executor.
type Waits struct {
	Namespace string    `json:"n"`
	Calls     int       `json:"c"`
	Mean      Cost      `json:"m"`
	Since     time.Time `json:"s"`
}
