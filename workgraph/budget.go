package workgraph

import (
	"fmt"
	"math"
	"time"
)

// Budget is what a run may use, including its children as they end. A nil cap is no cap. A run that has
// reached a cap starts nothing more: attempts in flight end and are journaled, and the run is paused with
// BUDGET_EXHAUSTED. Under a cap of 0 nothing starts. The usage of a call is known only after its end, so a
// run may exceed its budget by what was in flight when it reached the cap.
type Budget struct {
	// NanoUSD caps money. Calls whose price is not known do not count; Spent counts how many there were.
	// Under this cap nothing starts while some usage is Unsettled.
	NanoUSD *int64 `json:"nano_usd,omitempty"`
	// Tokens caps input and output tokens together.
	Tokens *int64 `json:"tokens,omitempty"`
}

// Spent is what counts against a budget. A sum that does not fit into 64 bits stays at the largest number.
type Spent struct {
	NanoUSD int64 `json:"nano_usd,omitempty"`
	Tokens  int64 `json:"tokens,omitempty"`
	// Unpriced counts calls that used tokens and whose price is not known.
	Unpriced int64 `json:"unpriced,omitempty"`
}

// Unsettled is usage that counts against a cap in money and has no price yet, because the price book could
// not be asked. It is that of one call or, if a cap came later, the sum of all earlier calls of a model.
type Unsettled struct {
	// Usage has in CostNanoUSD the cost that the calls reported. It holds if the price book has no price.
	Usage Usage `json:"usage"`
	// At is the time of use, since prices change.
	At time.Time `json:"at"`
}

// Refused is a call that was not begun because a cap above the run, such as that of its epic, leaves no
// room for it.
type Refused struct {
	Ref
	Attempt int `json:"attempt"`
	// Wanted is what the call may use at most.
	Wanted Usage `json:"wanted"`
	// Message says whose cap it is.
	Message string `json:"message,omitempty"`
	// At is when it was refused.
	At time.Time `json:"at"`
}

// IsZero reports whether b, which may be nil, caps nothing.
func (b *Budget) IsZero() bool { return b == nil || b.NanoUSD == nil && b.Tokens == nil }

// Fault says what is wrong with a budget. It is empty if nothing is.
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

// With is b with its caps replaced by those that o has. Either may be nil; neither is changed.
func (b *Budget) With(o *Budget) *Budget {
	return b.merge(o, func(_, given int64) int64 { return given })
}

// raised is b with the caps of o that are higher than those of b or that b does not have.
func (b *Budget) raised(o *Budget) *Budget {
	return b.merge(o, func(own, given int64) int64 { return max(own, given) })
}

// Lowered is b with the caps of o that are lower than those of b or that b does not have. Either may be nil;
// neither is changed.
func (b *Budget) Lowered(o *Budget) *Budget {
	return b.merge(o, func(own, given int64) int64 { return min(own, given) })
}

// merge combines two budgets cap by cap. both gives the cap if each budget has one.
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

// UsedUp reports whether this much reaches a cap of b, which may be nil.
func (b *Budget) UsedUp(by Spent) bool {
	return b != nil && (b.NanoUSD != nil && by.NanoUSD >= *b.NanoUSD || b.Tokens != nil && by.Tokens >= *b.Tokens)
}

// capsMoney reports whether b, which may be nil, has a cap in money.
func (b *Budget) capsMoney() bool { return b != nil && b.NanoUSD != nil }

// equal reports whether both budgets, either of which may be nil, have the same caps.
func (b *Budget) equal(o *Budget) bool {
	if b.IsZero() || o.IsZero() {
		return b.IsZero() && o.IsZero()
	}
	same := func(x, y *int64) bool { return (x == nil) == (y == nil) && (x == nil || *x == *y) }
	return same(b.NanoUSD, o.NanoUSD) && same(b.Tokens, o.Tokens)
}

// left is the unused part of b. No money is left while some usage is unsettled.
func (b *Budget) left(used Spent, unsettled bool) *Budget {
	if b.IsZero() {
		return nil
	}
	out := &Budget{}
	if b.NanoUSD != nil {
		n := max(*b.NanoUSD-used.NanoUSD, 0)
		if unsettled {
			n = 0
		}
		out.NanoUSD = &n
	}
	if b.Tokens != nil {
		n := max(*b.Tokens-used.Tokens, 0)
		out.Tokens = &n
	}
	return out
}

// add counts the usage of calls. Negative numbers count as 0.
func (u *Spent) add(us []Usage) {
	for i := range us {
		tokens := us[i].tokens()
		u.Tokens = plus(u.Tokens, tokens)
		switch cost := us[i].CostNanoUSD; {
		case cost != nil:
			u.NanoUSD = plus(u.NanoUSD, max(*cost, 0))
		case tokens > 0:
			u.Unpriced = plus(u.Unpriced, 1)
		}
	}
}

// tokens is what counts against a cap in tokens.
func (u *Usage) tokens() int64 { return plus(max(u.InputTokens, 0), max(u.OutputTokens, 0)) }

// counts reports whether the usage may have cost money.
func (u *Usage) counts() bool { return u.tokens() > 0 || u.CostNanoUSD != nil }

// charge adds the cost of a call to a sum. One unknown cost makes the sum unknown.
func (u *Usage) charge(cost *int64) {
	if cost == nil || u.CostNanoUSD == nil {
		u.CostNanoUSD = nil
		return
	}
	sum := *u.CostNanoUSD + *cost
	u.CostNanoUSD = &sum
}

// plus adds two numbers that are not negative. It stays at the largest number instead of overflowing.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Budget is what the run may use, or nil. It must not be changed.
func (s *State) Budget() *Budget { return s.budget }

// Spent is what counts against the run's budget so far. It is zero without a budget. The cost of Unsettled
// usage is not in it.
func (s *State) Spent() Spent { return s.spent }

// Unsettled is the usage that a Settled command must price before the run goes on, oldest first. It must not
// be changed.
func (s *State) Unsettled() []Unsettled { return s.unsettled }

// EndsByItself reports whether a pause for a reason ends without anybody's doing: when usage is priced, or
// when there is room under a cap. Another pause takes its place.
func EndsByItself(reason string) bool { return reason == ReasonUnsettled || reason == ReasonCap }

// Refused is the call for which there must be room before a run that is paused with ReasonCap goes on
// by itself. It is nil if the run is not paused for that. It must not be changed.
func (s *State) Refused() *Refused {
	if st, reason := s.Status(); st != StatusPaused || reason != ReasonCap {
		return nil
	}
	return s.noRoom
}

// BudgetBlocker is the reason why nothing may begin under the run's budget: ReasonBudget, ReasonUnsettled, or
// empty. It does not depend on other pauses.
func (s *State) BudgetBlocker() string {
	switch {
	case s.budget.UsedUp(s.spent):
		return ReasonBudget
	case len(s.unsettled) > 0:
		return ReasonUnsettled
	}
	return ""
}

// Under is the budget that the run would have with the caps of b, which may be nil, and what counts against
// it.
func (s *State) Under(b *Budget) (*Budget, Spent) {
	used := s.spent
	if s.budget == nil {
		used.add(s.usage)
	}
	return s.budget.With(b), used
}

// Allowance is the budget of a child that is started now: what it asks for, and at most what this run has
// left. Nil stands for no budget. While some usage is unsettled the child gets no money; Allowances gives its
// budget when that is over.
func (s *State) Allowance(own *Budget) *Budget {
	return own.Lowered(s.budget.left(s.spent, len(s.unsettled) > 0))
}

// Allowances calls yield with every child that a visit waits for and its Allowance, until yield returns
// false.
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

// Prior is what a Resume with Price and the budget b, which may be nil, would have priced first.
func (s *State) Prior(b *Budget, at time.Time) []Unsettled { return s.prior(s.budget.With(b), at) }

// prior is the usage to price before the run goes on under its first cap in money: that of earlier calls, by
// model. The price of a sum is that of its calls except for rounding.
func (s *State) prior(budget *Budget, at time.Time) (out []Unsettled) {
	if s.budget.capsMoney() || !budget.capsMoney() {
		return nil
	}
	for i := range s.usage {
		if u := s.usage[i]; u.counts() {
			out = append(out, Unsettled{Usage: u, At: at})
		}
	}
	return out
}

// applyBudget puts the run under a budget. For a run that had none, the sums of earlier usage count; later
// calls count one by one. Unsettled usage replaces the cost that was counted before.
func (s *State) applyBudget(b *Budget, unsettled []Unsettled) {
	if b.IsZero() {
		return
	}
	_, s.spent = s.Under(nil)
	s.budget = b
	if len(unsettled) == 0 {
		return
	}
	s.spent.NanoUSD, s.spent.Unpriced = 0, 0
	for i := range s.usage {
		if s.usage[i].counts() {
			s.usage[i].CostNanoUSD = new(int64)
		}
	}
	s.unsettled = append(s.unsettled, unsettled...)
}

// put counts the cost of unsettled usage. If cost is nil, the cost that the call reported counts.
func (s *State) put(u *Usage, cost *int64) {
	if cost == nil {
		cost = u.CostNanoUSD
	}
	for i := range s.usage {
		if t := &s.usage[i]; t.Provider == u.Provider && t.Model == u.Model {
			t.charge(cost)
		}
	}
	switch {
	case !s.budget.capsMoney():
	case cost != nil:
		s.spent.NanoUSD = plus(s.spent.NanoUSD, max(*cost, 0))
	case u.tokens() > 0:
		s.spent.Unpriced = plus(s.spent.Unpriced, 1)
	}
}

// applySettled prices the oldest unsettled usage.
func (s *State) applySettled(costs []*int64) error {
	if len(costs) == 0 || len(costs) > len(s.unsettled) {
		return fmt.Errorf("%w: %d prices for %d calls", ErrState, len(costs), len(s.unsettled))
	}
	for i, cost := range costs {
		s.put(&s.unsettled[i].Usage, cost)
	}
	s.unsettled = s.unsettled[len(costs):]
	if len(s.unsettled) == 0 {
		s.unsettled = nil
	}
	return nil
}

// settled prices usage. A run that stood still for that goes on, or pauses for a reason that came up
// meanwhile.
func (s *State) settled(c Settled) error {
	if len(c.Costs) == 0 || len(c.Costs) > len(s.unsettled) {
		return s.applySettled(c.Costs)
	}
	now := instant(c.Now)
	s.openEvent(UsageSettled, now).Costs = c.Costs
	if err := s.applySettled(c.Costs); err != nil {
		return err
	}
	s.checkBudget()
	if s.drain == "" && s.paused && s.reason == ReasonUnsettled && len(s.unsettled) == 0 {
		why := ""
		switch {
		case s.unknown > 0:
			why = ReasonReconciliation
		case s.budget.UsedUp(s.spent):
			why = ReasonBudget
		case len(s.limited) > 0:
			why = ReasonMaxVisits
		}
		if why != "" {
			s.openEvent(RunPaused, now).Reason = why
			s.applyPause(why)
		} else {
			s.openEvent(RunResumed, now).Reason = ReasonSettled
			s.applyResume()
		}
	}
	s.conclude(now)
	return nil
}

// checkBudget stops new starts if the budget is used up or if that is not known. conclude then records the
// pause, unless the run ends. An event must be open.
func (s *State) checkBudget() {
	if s.drain != "" || s.paused {
		return
	}
	if why := s.BudgetBlocker(); why != "" {
		s.record(Step{Op: OpPause, Note: why})
		s.applyPause(why)
		s.halted = true
	}
}

// blocked reports whether an attempt was not begun because the run's budget, or a cap above the run, blocked
// it.
func (s *State) blocked(u unit, err *Error, capped bool) bool {
	if err == nil || err.Type != NotPerformed || s.drain != "" || u.ns.resolved() || u.try().status != VisitRunning {
		return false
	}
	switch err.Reason {
	case ReasonBudget:
		return s.paused && s.budget.UsedUp(s.spent)
	case ReasonUnsettled:
		return s.paused && len(s.unsettled) > 0
	}
	return err.Reason == ReasonCap && capped
}

// putBack journals that an attempt was not begun. The same attempt starts when the pause ends. Where a cap
// above the run blocked it, the run pauses.
func (s *State) putBack(u unit, attempt int, err *Error, now time.Time) {
	ev := s.openEvent(AttemptEnded, now)
	ev.Ref, ev.Attempt, ev.Error = s.ref(u.ns, u.item), attempt, err
	s.applyEnded(u, nil, err)
	s.applyRefused(ev)
	if err.Reason == ReasonCap && !s.paused {
		s.record(Step{Op: OpPause, Note: ReasonCap})
		s.applyPause(ReasonCap)
		s.halted = true
	}
	s.restart(u)
}

// applyRefused remembers the first call for which a cap above the run left no room.
func (s *State) applyRefused(ev *Event) {
	if err := ev.Error; s.noRoom == nil && err != nil && err.Type == NotPerformed && err.Reason == ReasonCap && err.Wanted != nil {
		s.noRoom = &Refused{Ref: ev.Ref, Attempt: ev.Attempt, Wanted: *err.Wanted, Message: err.Message, At: ev.At}
	}
}

// pricing reports whether the run stands still until its calls are priced. A caller may pause a run under the
// same reason.
func (s *State) pricing() bool {
	return s.paused && s.reason == ReasonUnsettled && len(s.unsettled) > 0
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
	case s.pricing() && !given:
		return ErrUnsettled
	}
	budget, spent := s.Under(c.Budget)
	if c.Raise {
		budget = s.budget.raised(c.Budget)
	}
	now := instant(c.Now)
	var prior []Unsettled
	if c.Price {
		if prior = s.prior(budget, now); len(prior) > 0 {
			spent.NanoUSD = 0
		}
	}
	enough := !budget.UsedUp(spent)
	if s.paused && !enough && !c.Raise {
		return ErrBudget
	}
	ends := s.paused && !s.pricing() && (!c.Raise || (s.reason == ReasonBudget || s.reason == ReasonCap) && enough && s.unknown == 0)
	if c.Raise && !ends && budget.equal(s.budget) {
		return nil
	}
	kind := BudgetChanged
	if ends {
		kind = RunResumed
	}
	ev := s.openEvent(kind, now)
	ev.Reason = c.Reason
	if given {
		ev.Budget, ev.Unsettled = budget, prior
		s.applyBudget(budget, prior)
	}
	if !ends {
		s.checkBudget()
		s.conclude(now)
		return nil
	}
	ev.Step = c.Step
	s.goOn(ev, now)
	return nil
}

// goOn ends a pause within its event. Loops at their limit get as many visits again.
func (s *State) goOn(ev *Event, now time.Time) {
	s.applyResume()
	s.applyStepping(ev)
	for range len(s.limited) {
		if s.drain != "" {
			break
		}
		// This takes it out. A visit that reaches its limit again goes to the end of the list.
		s.unlimit(s.limited[0])
		s.runQueues()
	}
	s.halted = s.paused
	s.conclude(now)
}
