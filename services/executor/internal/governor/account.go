package governor

import (
	"slices"
	"time"
)

const (
	// slotsPer is into how many slots an interval is cut for counting.
	slotsPer = 240
	// holdsPer is the part of the interval by which a call may be sent late.
	holdsPer = 240
	// retriesPer is the part of the interval that passes until an executor asks again by itself.
	retriesPer = 60
	// burstsPer is which part of the interval an account may catch up with at once.
	burstsPer = 20
	// askTimeout is how long an executor whose turn it is, but that does not ask, keeps others out.
	askTimeout = 2 * time.Second
	// slowest is the least part of its limits that an account is slowed to.
	slowest = 1. / 64
	// maxPause bounds what a provider can ask for by Retry-After.
	maxPause = 10 * time.Minute
	// maxGrants is how many calls one exchange lets begin.
	maxGrants = 500
)

// keep is how long an attempt at the gate keeps its room. A call that begins later than hold counts from
// then.
func (l Limits) keep() time.Duration { return max(l.Interval/12, l.hold()) }

// hold is how late a call may be sent after it took room, and count from when it took it.
func (l Limits) hold() time.Duration {
	return min(max(l.Interval/holdsPer, 50*time.Millisecond), time.Second)
}

// travel is for how long one call may be on its way to the provider longer than another.
func (l Limits) travel() time.Duration { return 2 * l.hold() }

func (l Limits) slot() time.Duration { return max(l.Interval/slotsPer, time.Millisecond) }

// cover is how long what was taken counts: the interval, the inaccuracy of a slot, and the times by which a
// call may be sent late, and arrive late.
func (l Limits) cover() time.Duration { return l.Interval + l.slot() + l.hold() + l.travel() }

// retry is how often is asked again, in case a wake-up was lost.
func (l Limits) retry() time.Duration {
	return min(max(l.Interval/retriesPer, 50*time.Millisecond), time.Second)
}

// State is what an account has given. Its JSON is kept by stores. The zero value has given nothing.
//
// Two rules hold a call back. The window counts what was taken within the interval before, so no stretch of
// that length has more than the limit. The pace spreads the calls evenly, but for a twentieth of the interval
// that may be caught up with: providers refuse bursts long before a minute is over, and a call of another
// namespace waits for a few calls only.
type State struct {
	// Now is the time of the last exchange. All times are in microseconds.
	Now int64 `json:"now"`
	// Slots are what was taken, by time.
	Slots []Slot `json:"slots,omitempty"`
	// Paced is until when what was taken lasts, if it is spread evenly.
	Paced [kinds]int64 `json:"paced"`
	// Turns is how much namespaces have had, as a part of the account, where it is more than Turn: what the
	// namespace had that came last.
	Turns map[string]float64 `json:"turns,omitempty"`
	Turn  float64            `json:"turn"`
	// Pause is until when the provider wants no calls. Slow is to what part of the limits the account was
	// slowed, at the time Slowed; 0 means never.
	Pause  int64   `json:"pause,omitempty"`
	Slow   float64 `json:"slow,omitempty"`
	Slowed int64   `json:"slowed,omitempty"`
}

// Slot is what was taken in a slot that begins at At.
type Slot struct {
	At   int64 `json:"a"`
	Used Cost  `json:"u"`
}

// Decision is what a driver writes and answers.
type Decision struct {
	Answer Answer
	// Waits is what the asking executor waits for from now on, and Held what it has under way.
	Waits []Waits
	Held  int
	// Notify says that other executors must hear of it.
	Notify bool
}

// Decide says what becomes of an ask at the moment now, and changes s by it. fresh says that the corrections
// were not seen before. before is what the executor held until now, others are the other live executors.
func (s *State) Decide(now time.Time, a Ask, fresh bool, before int, others []Standing) Decision {
	s.Now = max(s.Now, now.UnixMicro())
	l := a.Limits
	s.Slots = slices.DeleteFunc(s.Slots, func(x Slot) bool { return x.At+l.cover().Microseconds() <= s.Now })
	var d Decision
	if fresh {
		refunds := s.correct(l, a.Corrections)
		if a.Refused != nil && s.refused(l, *a.Refused) || refunds {
			d.Notify = true
		}
	}
	d.Notify = d.Notify || l.MaxConcurrent > 0 && a.Held < before
	d.Notify = d.Notify && slices.ContainsFunc(others, func(o Standing) bool { return len(o.Waits) > 0 })
	d.Answer = Answer{Granted: make([]int, len(a.Lines)), At: s.slotAt(l), Again: l.retry(), Paused: time.Duration(max(s.Pause-s.Now, 0)) * time.Microsecond}
	d.Held = a.Held
	s.grant(&d, a, others)
	for i, x := range a.Lines {
		if n := x.Calls - d.Answer.Granted[i]; n > 0 {
			var sum Cost
			for _, c := range x.Costs {
				sum = sum.plus(c)
			}
			for k := range sum {
				sum[k] /= int64(max(len(x.Costs), 1))
			}
			d.Waits = append(d.Waits, Waits{Namespace: x.Namespace, Calls: n, Mean: sum, Since: now.Add(-x.Age)})
		}
	}
	d.Answer.UnderWay = d.Held
	for _, o := range others {
		d.Answer.UnderWay += o.Held
	}
	d.Answer.Speed = s.speed(l)
	used := s.used()
	for k, n := range l.Per {
		if n > 0 {
			d.Answer.Used[k] = float64(used[k]) / float64(n)
		}
	}
	s.forget()
	return d
}

func (s *State) slotAt(l Limits) int64 { return s.Now - s.Now%l.slot().Microseconds() }

func (s *State) used() (sum Cost) {
	for _, x := range s.Slots {
		sum = sum.plus(x.Used)
	}
	return sum
}

// slotOf is the slot that begins at a time, which is made if it is not there and add is set.
func (s *State) slotOf(at int64, add bool) *Slot {
	i, ok := slices.BinarySearchFunc(s.Slots, at, func(x Slot, at int64) int { return int(x.At - at) })
	if !ok {
		if !add {
			return nil
		}
		s.Slots = slices.Insert(s.Slots, i, Slot{At: at})
	}
	return &s.Slots[i]
}

// correct applies corrections, and reports whether one gave something back. What a call used beyond its
// estimate counts from now on, as it does at a provider that learns it at the end.
func (s *State) correct(l Limits, cs []Correction) (refunds bool) {
	for _, c := range cs {
		if c.To != 0 {
			s.move(c)
			continue
		}
		for k, n := range c.Delta {
			switch {
			case n > 0:
				s.slotOf(s.slotAt(l), true).Used[k] += n
			case n < 0:
				refunds = true
				if x := s.slotOf(c.At, false); x != nil {
					x.Used[k] = max(x.Used[k]+n, 0)
				}
			}
			paced := s.Paced[k] + s.spread(l, k, n, 1)
			if n > 0 { // more than the limit lasts no longer than the limit
				paced = max(s.Paced[k], min(paced, s.Now+l.cover().Microseconds()))
			}
			s.Paced[k] = paced
		}
	}
	return refunds
}

// move counts a call from when it began.
func (s *State) move(c Correction) {
	if x := s.slotOf(c.At, false); x != nil {
		for k, n := range c.Delta {
			x.Used[k] = max(x.Used[k]-n, 0)
		}
	}
	to := s.slotOf(c.To, true)
	to.Used = to.Used.plus(c.Delta)
}

// spread is how long n of a kind last at a speed, in microseconds.
func (s *State) spread(l Limits, k int, n int64, speed float64) int64 {
	if l.Per[k] == 0 {
		return 0
	}
	return int64(float64(n) / float64(l.Per[k]) / speed * float64(l.cover().Microseconds()))
}

// speed is the part of the limits that may be used now: it grows from Slow by a half in each interval after
// the pause.
func (s *State) speed(l Limits) float64 {
	if s.Slow == 0 {
		return 1
	}
	since := float64(max(s.Now-s.Pause, 0)) / float64(l.Interval.Microseconds())
	return min(s.Slow+since/2, 1)
}

// refused slows the account after a refusal, once for all calls that were under way when it was slowed.
func (s *State) refused(l Limits, r Refusal) bool {
	pause := min(r.RetryAfter, maxPause)
	if pause <= 0 {
		pause = l.Interval / 30
	}
	if began := s.Now - r.Age.Microseconds(); s.Slowed == 0 || began > s.Slowed {
		s.Slow, s.Slowed = max(s.speed(l)/2, slowest), s.Now
	}
	s.Pause = max(s.Pause, s.Now+pause.Microseconds())
	for k := range s.Paced {
		s.Paced[k] = max(s.Paced[k], s.Pause)
	}
	return true
}

// room says from when on a call of this cost has room, as far as is known; not after s.Now if it has room
// now.
func (s *State) room(l Limits, paced [kinds]int64, used, c Cost) int64 {
	at := s.Pause
	for k, n := range l.Per {
		if n == 0 {
			continue
		}
		at = max(at, paced[k])
		over := used[k] + c[k] - n
		if over <= 0 || used[k] == 0 {
			continue // a call that needs more than all begins alone
		}
		for _, x := range s.Slots {
			if over -= x.Used[k]; over <= 0 {
				at = max(at, x.At+l.cover().Microseconds())
				break
			}
		}
		if over > 0 { // it waits for calls that this exchange lets begin
			at = max(at, s.Now+l.cover().Microseconds())
		}
	}
	return at
}

// share is which part of the account a call takes.
func share(l Limits, c Cost) float64 {
	most := 1e-6
	for k, n := range l.Per {
		if n > 0 {
			most = max(most, float64(c[k])/float64(n))
		}
	}
	return most
}

// grant lets calls begin in the order of their namespaces' turns, over all executors. Those that wait
// elsewhere are left their part.
func (s *State) grant(d *Decision, a Ask, others []Standing) {
	l, speed := a.Limits, s.speed(a.Limits)
	lines := s.lineUp(a, others)
	held := a.Held
	for _, o := range others {
		held += o.Held
	}
	paced, used, turn := s.Paced, s.used(), s.Turn
	for k := range paced {
		paced[k] = max(paced[k], s.Now-l.Interval.Microseconds()/burstsPer)
	}
	for range maxGrants {
		next := first(lines, turn)
		if next == nil {
			d.Answer.Again = l.retry()
			return
		}
		from := next.source()
		c := from.cost()
		if l.MaxConcurrent > 0 && held >= l.MaxConcurrent {
			return
		}
		if at := s.room(l, paced, used, c); at > s.Now {
			d.Answer.Again = s.again(l, lines, turn, at, speed)
			return
		}
		turn = max(next.turn, turn)
		next.turn = turn + share(l, c)
		from.taken++
		held++
		used = used.plus(c)
		for k := range c {
			paced[k] += s.spread(l, k, c[k], speed)
		}
		if from.line < 0 {
			continue
		}
		d.Answer.Granted[from.line]++
		d.Held++
		s.take(l, c, speed)
		s.Turn = max(s.Turn, turn)
		if s.Turns == nil {
			s.Turns = map[string]float64{}
		}
		s.Turns[next.namespace] = next.turn
	}
	d.Answer.Again = time.Millisecond
}

// take counts a call.
func (s *State) take(l Limits, c Cost, speed float64) {
	x := s.slotOf(s.slotAt(l), true)
	x.Used = x.Used.plus(c)
	for k := range c {
		s.Paced[k] = max(s.Paced[k], s.Now-l.Interval.Microseconds()/burstsPer) + s.spread(l, k, c[k], speed)
	}
}

// again is when the first call of the asking executor may have its turn, if the next of all has it at a time.
func (s *State) again(l Limits, lines []*queue, turn float64, at int64, speed float64) time.Duration {
	for range maxGrants {
		next := first(lines, turn)
		if next == nil {
			return l.retry()
		}
		from := next.source()
		wait := time.Duration(at-s.Now) * time.Microsecond
		if from.line >= 0 || wait > l.retry() {
			return min(wait, l.retry())
		}
		turn = max(next.turn, turn)
		next.turn = turn + share(l, from.cost())
		c := from.cost()
		from.taken++
		var most int64
		for k := range c {
			most = max(most, s.spread(l, k, c[k], speed))
		}
		at += most
	}
	return l.retry()
}

// queue is the waiting calls of a namespace at all executors.
type queue struct {
	namespace string
	turn      float64
	sources   []*source
}

// source is the waiting calls of a namespace at one executor.
type source struct {
	line  int // in Ask.Lines, -1 elsewhere
	calls int
	costs []Cost
	mean  Cost
	since time.Time
	taken int
}

func (s *source) left() bool {
	if s.line >= 0 {
		return s.taken < len(s.costs)
	}
	return s.taken < s.calls
}

func (s *source) cost() Cost {
	if s.line >= 0 {
		return s.costs[s.taken]
	}
	return s.mean
}

// source is the executor whose call is next: they alternate, beginning with the one that has waited longest.
func (q *queue) source() (next *source) {
	for _, x := range q.sources {
		if x.left() && (next == nil || x.taken < next.taken || x.taken == next.taken && x.since.Before(next.since)) {
			next = x
		}
	}
	return next
}

// first is the namespace that had least; among equals the one that has waited longest.
func first(lines []*queue, turn float64) (next *queue) {
	var least float64
	var since time.Time
	for _, q := range lines {
		x := q.source()
		if x == nil {
			continue
		}
		t := max(q.turn, turn)
		if next == nil || t < least || t == least && x.since.Before(since) {
			next, least, since = q, t, x.since
		}
	}
	return next
}

// lineUp puts all waiting calls in line.
func (s *State) lineUp(a Ask, others []Standing) (lines []*queue) {
	byName := map[string]*queue{}
	add := func(namespace string, x *source) {
		q := byName[namespace]
		if q == nil {
			q = &queue{namespace: namespace, turn: s.Turns[namespace]}
			byName[namespace] = q
			lines = append(lines, q)
		}
		q.sources = append(q.sources, x)
	}
	now := time.UnixMicro(s.Now)
	for i, x := range a.Lines {
		if len(x.Costs) > 0 {
			add(x.Namespace, &source{line: i, calls: x.Calls, costs: x.Costs, since: now.Add(-x.Age)})
		}
	}
	for _, o := range others {
		if now.Sub(o.Asked) >= askTimeout {
			continue
		}
		for _, w := range o.Waits {
			add(w.Namespace, &source{line: -1, calls: min(w.Calls, maxGrants), mean: w.Mean, since: w.Since})
		}
	}
	return lines
}

// forget drops the turns of namespaces that had no more than the others.
func (s *State) forget() {
	for namespace, turn := range s.Turns {
		if turn <= s.Turn {
			delete(s.Turns, namespace)
		}
	}
	if s.Turn < 1e6 {
		return
	}
	for namespace := range s.Turns { // keeps the precision
		s.Turns[namespace] -= s.Turn
	}
	s.Turn = 0
}
