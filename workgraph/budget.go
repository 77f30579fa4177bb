package workgraph

import (
	"fmt"
	"math"
	"time"
)

// Budget is what a run may use, its children included as they end. A cap that is nil does not exist. A run that has come to a cap starts
// nothing more: what is in flight ends and is journaled, and the run is paused with BUDGET_EXHAUSTED. Under a cap of 0 nothing starts at all.
// What a call uses is known once it has ended, so a run may use more than its budget by what was in flight when it came to a cap.
type Budget struct {
	// NanoUSD caps money. Calls of which nobody knows the price do not count; Spent tells how many there were.
	NanoUSD *int64 `json:"nano_usd,omitempty"`
	// Tokens caps input and output tokens together.
	Tokens *int64 `json:"tokens,omitempty"`
}

// Spent is what counts against a budget. Sums that do not fit into 64 bits stay at the largest number that does.
type Spent struct {
	NanoUSD int64 `json:"nano_usd,omitempty"`
	Tokens  int64 `json:"tokens,omitempty"`
	// Unpriced counts calls that used tokens at a price that nobody knows.
	Unpriced int64 `json:"unpriced,omitempty"`
}

// IsZero reports whether b, which may be nil, caps nothing.
func (b *Budget) IsZero() bool { return b == nil || b.NanoUSD == nil && b.Tokens == nil }

// Fault says what is wrong with a budget, and is empty when nothing is.
func (b *Budget) Fault() string {
	if b == nil {
		return ""
	}
	if b.NanoUSD != nil && *b.NanoUSD < 0 {
		return "nano_usd is below 0"
	}
	if b.Tokens != nil && *b.Tokens < 0 {
		return "tokens is below 0"
	}
	return ""
}

// With is b with the caps of o in place of its own, where o has one. Either may be nil; neither is changed.
func (b *Budget) With(o *Budget) *Budget {
	return b.merge(o, func(_, given int64) int64 { return given })
}

// raised is b with the caps of o where those are higher or b has none.
func (b *Budget) raised(o *Budget) *Budget {
	return b.merge(o, func(own, given int64) int64 { return max(own, given) })
}

// lowered is b with the caps of o where those are lower or b has none.
func (b *Budget) lowered(o *Budget) *Budget {
	return b.merge(o, func(own, given int64) int64 { return min(own, given) })
}

// merge combines two budgets cap by cap.
func (b *Budget) merge(o *Budget, both func(own, given int64) int64) *Budget {
	if b.IsZero() {
		b = &Budget{}
	}
	if o.IsZero() {
		o = &Budget{}
	}
	one := func(own, given *int64) *int64 {
		var n int64
		switch {
		case own == nil && given == nil:
			return nil
		case own == nil:
			n = *given
		case given == nil:
			n = *own
		default:
			n = both(*own, *given)
		}
		return &n
	}
	out := &Budget{NanoUSD: one(b.NanoUSD, o.NanoUSD), Tokens: one(b.Tokens, o.Tokens)}
	if out.IsZero() {
		return nil
	}
	return out
}

// UsedUp reports whether so much comes to a cap of b, which may be nil.
func (b *Budget) UsedUp(by Spent) bool {
	return b != nil && (b.NanoUSD != nil && by.NanoUSD >= *b.NanoUSD || b.Tokens != nil && by.Tokens >= *b.Tokens)
}

// left is what of b is not used yet.
func (b *Budget) left(used Spent) *Budget {
	if b.IsZero() {
		return nil
	}
	out := &Budget{}
	if b.NanoUSD != nil {
		n := max(*b.NanoUSD-used.NanoUSD, 0)
		out.NanoUSD = &n
	}
	if b.Tokens != nil {
		n := max(*b.Tokens-used.Tokens, 0)
		out.Tokens = &n
	}
	return out
}

// add counts what calls used. What is below 0 does not count.
func (u *Spent) add(us []Usage) {
	for i := range us {
		tokens := plus(max(us[i].InputTokens, 0), max(us[i].OutputTokens, 0))
		u.Tokens = plus(u.Tokens, tokens)
		switch cost := us[i].CostNanoUSD; {
		case cost != nil:
			u.NanoUSD = plus(u.NanoUSD, max(*cost, 0))
		case tokens > 0:
			u.Unpriced = plus(u.Unpriced, 1)
		}
	}
}

// plus adds two numbers that are not negative and stays at the largest there is.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Budget is what the run may use, or nil. It is not to be changed.
func (s *State) Budget() *Budget { return s.budget }

// Spent is what counts against the run's budget so far; zero without one.
func (s *State) Spent() Spent { return s.spent }

// Under is the budget that the run would have with the caps of b, which may be nil, and what counts against it.
func (s *State) Under(b *Budget) (*Budget, Spent) {
	used := s.spent
	if s.budget == nil {
		used.add(s.usage)
	}
	return s.budget.With(b), used
}

// Allowance is the budget of a child that would be started now: what it asks for itself, and at most what this run has left. Either is nil
// for none.
func (s *State) Allowance(own *Budget) *Budget { return own.lowered(s.budget.left(s.spent)) }

// Allowances calls yield with every child that is waited for and what it may use, as Allowance says, until yield returns false.
func (s *State) Allowances(yield func(child string, b *Budget) bool) {
	for _, u := range s.openWaits() {
		w := u.try().wait
		for i, sl := range w.slots {
			if sl == nil && !yield(w.out.Wait.Children.Runs[i].ID, s.Allowance(w.out.Wait.Children.Runs[i].Budget)) {
				return
			}
		}
	}
}

// applyBudget puts the run under a budget. One that had none has used what is known in sums; from here on calls count one by one.
func (s *State) applyBudget(b *Budget) {
	if b.IsZero() {
		return
	}
	_, s.spent = s.Under(nil)
	s.budget = b
}

// heed stops new starts when the budget is used up; settle tells of it unless the run ends. An event is open.
func (s *State) heed() {
	if s.drain != "" || s.paused || !s.budget.UsedUp(s.spent) {
		return
	}
	s.record(Step{Op: OpPause, Note: ReasonBudget})
	s.applyPause(ReasonBudget)
	s.halted = true
}

// unspent reports whether an attempt was not begun because the budget had been used up by then.
func (s *State) unspent(u unit, err *Error) bool {
	return err != nil && err.Type == NotPerformed && err.Reason == ReasonBudget && s.paused && s.drain == "" && !u.ns.resolved() &&
		u.try().status == VisitRunning && s.budget.UsedUp(s.spent)
}

// putBack journals that an attempt was not begun; the same attempt starts when the pause is over.
func (s *State) putBack(u unit, attempt int, err *Error, now time.Time) {
	ev := s.openEvent(AttemptEnded, now)
	ev.Ref, ev.Attempt, ev.Error = s.ref(u.ns, u.item), attempt, err
	s.applyEnded(u, nil, err)
	s.restart(u)
}

// resume ends a pause, changes the budget, or both.
func (s *State) resume(c Resume) error {
	if fault := c.Budget.Fault(); fault != "" {
		return fmt.Errorf("%w: the budget's %s", ErrState, fault)
	}
	given := !c.Budget.IsZero()
	switch {
	case s.drain != "":
		return fmt.Errorf("%w: the run is ending", ErrState)
	case !s.paused && !given:
		return fmt.Errorf("%w: the run is not paused", ErrState)
	case s.paused && s.unknown > 0 && !c.Raise:
		return ErrReconcile
	}
	budget, spent := s.Under(c.Budget)
	if c.Raise {
		budget = s.budget.raised(c.Budget)
	}
	enough := !budget.UsedUp(spent)
	if s.paused && !enough && !c.Raise {
		return ErrBudget
	}
	now := instant(c.Now)
	if !s.paused || c.Raise && (s.reason != ReasonBudget || !enough || s.unknown > 0) {
		ev := s.openEvent(BudgetChanged, now)
		ev.Reason, ev.Budget = c.Reason, budget
		s.applyBudget(budget)
		s.heed()
		s.settle(now)
		return nil
	}
	ev := s.openEvent(RunResumed, now)
	ev.Reason = c.Reason
	if given {
		ev.Budget = budget
		s.applyBudget(budget)
	}
	s.applyResume()
	for range len(s.limited) {
		if s.drain != "" {
			break
		}
		s.unlimit(s.limited[0]) // takes it out; one that comes to its limit again goes to the end
		s.runQueues()
	}
	s.settle(now)
	return nil
}
