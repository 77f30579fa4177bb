package limit

import (
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Holding is the row of one executor and one limit.
type Holding struct {
	Owner         journal.Owner
	Held, Waiting int
	// Since is when the first waiter began to wait, with the handicap of its priority. Asked is when its
	// executor last reported it.
	Since, Asked time.Time
	Runs         string
}

// State is the state of a limit; drivers read it and hand it to Decide.
type State struct {
	// Limit is nil when none was put.
	Limit *Limit
	// Mine is the asking executor's row, zero if it has none. Others are those of other live executors.
	Mine   Holding
	Others []Holding
	// Last is when the last call was to begin. Rate only.
	Last time.Time
	// Open counts the open runs of the namespace, up to its bound. Only for the limit of the namespace
	// itself.
	Open int64
	// Also is how the second limit stands, if the ask names one. Of it Limit and Last count.
	Also *State
}

// Decision is what a driver writes and answers.
type Decision struct {
	Grant Grant
	// Row is to be written if Write is set; a row without places and waiters is to be deleted.
	Row   Holding
	Write bool
	// Last is to be written if it is another than before, for both limits. Rate only.
	Last time.Time
	// Notify says that other executors must hear of it.
	Notify bool
}

const (
	// handicap is how much later a waiter counts as having arrived for each step of its priority. So the
	// urgent go first, and a waiter that has waited for long enough goes before all that come after.
	handicap = 5 * time.Second
	// askTimeout is how long an executor that is first in the queue, but does not ask, keeps others out.
	askTimeout = 2 * time.Second
	// horizon is how far beginnings are granted ahead, so that a busy rate needs an exchange only so often.
	horizon = 250 * time.Millisecond
	// maxRuns is how many holders are remembered for explanations.
	maxRuns = 8
)

// Decide says what becomes of an ask at the moment now.
func Decide(s State, a Ask, owner journal.Owner, now time.Time) Decision {
	if a.Rate {
		return decideRate(s, a, now)
	}
	if a.Name == Namespace {
		return decideQuota(s, a, owner, now)
	}
	bound := bound(s.Limit, a.Key)
	d := Decision{Row: Holding{Owner: owner, Held: a.Held, Waiting: a.Want, Since: now.Add(-a.Age), Asked: now, Runs: joinRuns(a.Runs)}}
	if bound == 0 {
		d.Grant = Grant{N: a.Want, Unbounded: true}
		d.Row.Held, d.Row.Waiting = 0, 0
		d.Write = s.Mine.Held != 0 || s.Mine.Waiting != 0
		return d
	}
	free, ahead, waits, holds := bound-a.Held, 0, 0, 0
	for _, o := range s.Others {
		free -= o.Held
		holds += o.Held
		if o.Waiting == 0 {
			continue
		}
		waits++
		if age := now.Sub(o.Since); !d.Grant.Rival || age > d.Grant.RivalAge {
			d.Grant.Rival, d.Grant.RivalAge = true, age
		}
		if now.Sub(o.Asked) < askTimeout && (o.Since.Before(d.Row.Since) || o.Since.Equal(d.Row.Since) && o.Owner.ID < owner.ID) {
			ahead++
		}
	}
	d.Grant.Over = max(-free, 0)
	d.Grant.N = max(min(a.Want, free-ahead), 0)
	d.Row.Held += d.Grant.N
	d.Row.Waiting -= d.Grant.N
	d.Write = d.Row.Waiting > 0 || d.Row.Held != s.Mine.Held || d.Row.Waiting != s.Mine.Waiting || d.Row.Runs != s.Mine.Runs
	// A waiter is woken for a free place, and a holder for the first waiter.
	d.Notify = waits > 0 && free-d.Grant.N > 0 || d.Row.Waiting > 0 && s.Mine.Waiting == 0 && holds > 0
	return d
}

// decideQuota lets runs begin while fewer are open than may be. The places held are room for runs whose start
// is not durable yet; nobody waits.
func decideQuota(s State, a Ask, owner journal.Owner, now time.Time) Decision {
	d := Decision{Row: Holding{Owner: owner, Held: a.Held, Since: now, Asked: now}}
	if s.Limit == nil || s.Limit.MaxOpenRuns == 0 {
		d.Grant = Grant{N: a.Want, Unbounded: true}
		d.Row.Held, d.Write = 0, s.Mine.Held != 0
		return d
	}
	free := s.Limit.MaxOpenRuns - s.Open - int64(a.Held)
	for _, o := range s.Others {
		free -= int64(o.Held)
	}
	d.Grant.N = int(max(min(int64(a.Want), free), 0))
	d.Row.Held += d.Grant.N
	d.Write = d.Row.Held != s.Mine.Held
	return d
}

// bound is how many calls may run at once; 0 means any number.
func bound(l *Limit, k Key) int {
	switch {
	case l != nil:
		return int(l.MaxConcurrent)
	case strings.HasPrefix(k.Name, keys):
		return 1
	}
	return 0
}

// rate is what a limit says of beginnings: their distance, how late one may be, and when the next can be.
func (s *State) rate() (every, slack time.Duration, next time.Time, ok bool) {
	if s == nil || s.Limit == nil || s.Limit.MaxRate == 0 {
		return 0, 0, time.Time{}, false
	}
	every, slack = Spacing(s.Limit.MaxRate, s.Limit.RateInterval)
	if !s.Last.IsZero() {
		next = s.Last.Add(every)
	}
	return every, slack, next, true
}

// decideRate grants starts at even distances. No interval has more starts than the limit, even if each is
// late by the slack: the distance makes up for it. Calls under two limits get starts that suit both.
func decideRate(s State, a Ask, now time.Time) Decision {
	d := Decision{Last: s.Last}
	every, slack, next, ok := s.rate()
	if every2, slack2, next2, ok2 := s.Also.rate(); ok2 && ok {
		every, slack, next = max(every, every2), min(slack, slack2), later(next, next2)
	} else if ok2 {
		every, slack, next, ok = every2, slack2, next2, true
	}
	if !ok {
		d.Grant = Grant{N: a.Want, Unbounded: true}
		return d
	}
	first := later(now, next)
	d.Grant.Every, d.Grant.Slack, d.Grant.First = every, slack, first.Sub(now)
	for at := first; d.Grant.N < a.Want && at.Sub(now) <= horizon; at = at.Add(every) {
		d.Grant.N++
		d.Last = at
	}
	if d.Grant.N < a.Want {
		next = first
		if d.Grant.N > 0 {
			next = d.Last.Add(every)
		}
		// Not as soon as the next one can be had, but when several can.
		d.Grant.Again = max(next.Sub(now)-horizon+min(horizon/2, 16*every), time.Millisecond)
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Spacing is the distance of starts so that no interval has more than n, and how late one may be.
func Spacing(n int32, interval time.Duration) (every, slack time.Duration) {
	slack = min(max(interval/20, time.Millisecond), 500*time.Millisecond)
	every = (interval + slack + time.Duration(n) - 1) / time.Duration(n)
	// Databases keep microseconds.
	return (every + time.Microsecond - 1).Truncate(time.Microsecond), slack
}

func joinRuns(runs []string) string {
	if len(runs) > maxRuns {
		runs = runs[:maxRuns]
	}
	return strings.Join(runs, ",")
}

// Figure sums up the rows of one limit.
func (s State) Figure(k Key, now time.Time) Figure {
	f := Figure{Key: k}
	for _, h := range s.Others {
		f.Running += h.Held
		f.Waiting += h.Waiting
		if h.Held > 0 {
			f.Holders = append(f.Holders, h.Owner.ID)
			if h.Runs != "" {
				f.Runs = append(f.Runs, strings.Split(h.Runs, ",")...)
			}
		}
	}
	slices.Sort(f.Holders)
	slices.Sort(f.Runs)
	f.Runs = slices.Compact(f.Runs)
	if s.Limit != nil && s.Limit.MaxRate > 0 && !s.Last.IsZero() {
		every, _ := Spacing(s.Limit.MaxRate, s.Limit.RateInterval)
		f.Next = max(s.Last.Add(every).Sub(now), 0)
	}
	return f
}
