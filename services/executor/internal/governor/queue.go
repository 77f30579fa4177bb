package governor

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// maxWithin is how many calls of a namespace wait for one account within their attempts, and how long.
	maxWithin  = 1000
	waitWithin = 2 * time.Minute
	// patience is for how long a pause calls wait that may be made elsewhere or later.
	patience = 10 * time.Second
	// maxLines and maxCosts bound an ask: namespaces, and calls of each.
	maxLines = 256
	maxCosts = 64
	// maxTokens is more than any call has.
	maxTokens = 1 << 40
	// maxKnown is for how many namespaces an account knows how their estimates are off.
	maxKnown = 1000
	// exchange is how long one exchange may take, sweep how often leftovers are removed.
	exchange = 10 * time.Second
	sweep    = 10 * time.Minute
	// handicap is how much later a call counts as having arrived for each step of its priority.
	handicap = 5 * time.Second
)

// Options adjust a Governor. The zero value is for use.
type Options struct {
	// Interval is what limits count in; 0 means a minute. It is for tests.
	Interval time.Duration
	// Logger nil logs nothing.
	Logger *slog.Logger
}

// Governor is one executor's part: the calls that wait here, and those under way. It exchanges both with the
// store, many at a time. It is an llm.Governor, and safe for concurrent use.
type Governor struct {
	store    Store
	log      *slog.Logger
	interval time.Duration
	wake     chan struct{}

	mu       sync.Mutex
	owner    journal.Owner
	accounts map[string]*account
}

var _ llm.Governor = (*Governor)(nil)

// New returns a governor that lets nothing begin until Run runs and a session has begun.
func New(store Store, o Options) *Governor {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Governor{store: store, log: o.Logger, interval: cmp.Or(o.Interval, time.Minute), wake: make(chan struct{}, 1), accounts: map[string]*account{}}
}

// account is what this executor knows of one account. Governor.mu guards it.
type account struct {
	name   string
	limits Limits
	lines  map[string]*line
	held   int
	within map[string]int // how many calls wait within their attempts, by namespace
	guess  [2]guess       // of all namespaces

	// due is when to exchange next; the zero time means when something happens. last is when that was done.
	due, last time.Time
	// busy says that an exchange is under way, or waits for its turn.
	busy bool
	// until is until when it is not exchanged after a fault; fault is how long that is.
	until time.Time
	fault time.Duration
	// pending are corrections that were not sent. sent are those of the turn, which are sent until they are
	// answered.
	pending, sent map[int64]Cost
	// moves are calls that began late, movesSent those of the turn.
	moves, movesSent []Correction
	refused          *refusal
	refusedSent      *refusal
	turn             int64

	seen   Answer
	seenAt time.Time
}

// refusal is a Refusal by this executor's clock.
type refusal struct {
	began      time.Time
	retryAfter time.Duration
}

// line is the calls of one namespace.
type line struct {
	waiting []*waiter
	flying  int
	guess   [2]guess // of prompts and of answers
	// begun are the outcomes to learn from, in the order in which the calls began; ended is how many of them
	// have ended.
	begun []*outcome
	ended int
}

type waiter struct {
	estimate llm.Usage
	cost     Cost // of the last ask
	queued   time.Time
	// ready is called without the lock, on any goroutine: with nil if leaves is set, and the account pauses.
	ready  func(*permit)
	leaves bool
	gone   bool
}

// permit is room that a call took.
type permit struct {
	g         *Governor
	account   *account
	namespace string
	owner     journal.Owner
	estimate  llm.Usage
	cost      Cost
	at        int64
	began     time.Time
	// taken is when it took the room, or shortly before; until is when it loses it.
	taken, until time.Time
	outcome      *outcome
	// state is guarded by Governor.mu.
	state permitState
}

type permitState int

const (
	granted permitState = iota // for an attempt that has not called yet
	begun                      // the call is under way
	ended
)

func (g *Governor) account(a llm.Account) *account {
	x := g.accounts[a.Name]
	if x == nil {
		x = &account{name: a.Name, lines: map[string]*line{}, within: map[string]int{}, pending: map[int64]Cost{}, seen: Answer{Speed: 1}}
		g.accounts[a.Name] = x
	}
	x.limits = limitsOf(a.AccountLimits, g.interval)
	return x
}

func (x *account) line(namespace string) *line {
	l := x.lines[namespace]
	if l != nil {
		return l
	}
	if len(x.lines) >= maxKnown {
		for name, other := range x.lines {
			if len(other.waiting) == 0 && other.flying == 0 {
				delete(x.lines, name)
				break
			}
		}
	}
	l = &line{guess: [2]guess{x.guess[0].heir(), x.guess[1].heir()}}
	x.lines[namespace] = l
	return l
}

// cost is what a call of the line takes.
func (x *account) cost(l *line, e llm.Usage) Cost {
	in, out := x.taking(l, 0, e.Input), x.taking(l, 1, e.Output)
	under := int64(max(x.held, x.seen.UnderWay) + 1)
	spare := func(k int) int64 { return x.limits.Per[k] / sparePer / under }
	c := Cost{1, in.plus(out).with(spare(1)), in.with(spare(2)), out.with(spare(3))}
	for k, n := range x.limits.Per {
		c[k] = min(c[k], n) // with the whole limit it begins alone
	}
	return c
}

// taking is what a call of the line is expected to use of prompt or answer. While little is known of the
// line, it is expected to use what calls of other lines do, if that is more.
func (x *account) taking(l *line, of int, estimate int64) taking {
	estimate = min(estimate, maxTokens)
	t := l.guess[of].of(estimate, l.flying)
	if l.guess[of].known < reliable {
		t = t.atLeast(x.guess[of].of(estimate, l.flying))
	}
	return t
}

// enter puts a call in line.
func (g *Governor) enter(a llm.Account, namespace string, w *waiter) (cancel func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.account(a)
	l := x.line(namespace)
	i, _ := slices.BinarySearchFunc(l.waiting, w, func(o, w *waiter) int {
		if o.queued.After(w.queued) {
			return 1
		}
		return -1
	})
	l.waiting = slices.Insert(l.waiting, i, w)
	if i == 0 {
		g.soon(x)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		w.gone = true
		if i := slices.Index(l.waiting, w); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
		}
	}
}

// soon has the account exchanged at the next opportunity. The caller holds g.mu.
func (g *Governor) soon(x *account) {
	at := x.last.Add(g.gap())
	if at.Before(x.until) {
		at = x.until
	}
	if x.due.IsZero() || at.Before(x.due) {
		x.due = at
		g.notify()
	}
}

// gap is the least time between two exchanges about an account.
func (g *Governor) gap() time.Duration {
	return min(max(g.interval/1200, 5*time.Millisecond), 50*time.Millisecond)
}

func (g *Governor) notify() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

type permitKey struct{}

// Admit implements llm.Governor. A call whose attempt took room at the gate uses that.
func (g *Governor) Admit(ctx context.Context, a llm.Account, namespace string, estimate llm.Usage) (llm.Permit, error) {
	if p, ok := ctx.Value(permitKey{}).(*permit); ok && p.g == g && p.namespace == namespace && p.begin(a, estimate) {
		return p, nil
	}
	g.mu.Lock()
	x := g.account(a)
	n := x.within[namespace]
	if n >= maxWithin {
		g.mu.Unlock()
		return nil, busy(a, g.pause(a.Name), "%d calls of the namespace wait for it", n)
	}
	x.within[namespace]++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if x.within[namespace]--; x.within[namespace] == 0 {
			delete(x.within, namespace)
		}
	}()
	got := make(chan *permit, 1)
	line := func() func() {
		return g.enter(a, namespace, &waiter{estimate: estimate, queued: time.Now(), leaves: true, ready: func(p *permit) { got <- p }})
	}
	cancel := line()
	late := time.NewTimer(waitWithin)
	defer late.Stop()
	var err error
	for {
		select {
		case p := <-got:
			if p == nil {
				return nil, busy(a, g.pause(a.Name), "the provider refused calls and wants none for now")
			}
			if p.begin(a, estimate) {
				return p, nil
			}
			cancel = line()
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-late.C:
			err = busy(a, g.interval/retriesPer, "the call had no turn for %s", waitWithin)
		}
		break
	}
	cancel()
	select {
	case p := <-got: // it came all the same
		if p != nil {
			p.unused()
		}
	default:
	}
	return nil, err
}

// pause is how much longer the provider wants no calls.
func (g *Governor) pause(account string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.accounts[account]
	return max(x.seen.Paused-time.Since(x.seenAt), time.Second)
}

func busy(a llm.Account, after time.Duration, format string, args ...any) error {
	return &llm.Error{
		Class: llm.NotPerformed, Code: "ACCOUNT_LIMIT", RetryAfter: after,
		Message: "the account " + a.Name + " has no room: " + errs.New(errs.ResourceExhausted, "", format, args...).Message,
	}
}

// begin starts the call; false if the room was taken for another account, was used before or is too old.
func (p *permit) begin(a llm.Account, estimate llm.Usage) bool {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	x := p.account
	if p.state != granted || a.Name != x.name || p.owner != g.owner {
		return false
	}
	l, now := x.line(p.namespace), p.cost
	if estimate != p.estimate { // what the gate could not know
		now = x.cost(l, estimate)
	}
	if time.Now().After(p.until) || x.farAbove(now, p.cost) {
		g.end(p, Cost{}.minus(p.cost))
		return false
	}
	p.state, p.began = begun, time.Now()
	p.late(p.began)
	if more := now.minus(p.cost); more != (Cost{}) {
		p.estimate, p.cost = estimate, now
		g.correct(x, p.at, more)
	}
	p.outcome = &outcome{estimate: [2]int64{estimate.Input, estimate.Output}}
	l.begun = append(l.begun, p.outcome)
	return true
}

// Sent implements llm.Permit.
func (p *permit) Sent() {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.state == begun && p.owner == p.g.owner {
		p.late(time.Now())
	}
}

// late counts the call from now on, if that is later than what it took allows for. The caller holds
// Governor.mu.
func (p *permit) late(now time.Time) {
	x := p.account
	late := now.Sub(p.taken)
	if late <= x.limits.hold() {
		return
	}
	slot := x.limits.slot()
	if whole := late.Truncate(slot); whole < late {
		late = whole + slot
	}
	to := p.at + late.Microseconds()
	x.moves = append(x.moves, Correction{At: p.at, To: to, Delta: p.cost})
	p.at, p.taken = to, p.taken.Add(late)
	p.g.soon(x)
}

// farAbove reports whether a call costs so much more than it was expected to that it must wait for that.
func (x *account) farAbove(cost, expected Cost) bool {
	for k, n := range x.limits.Per {
		if cost[k]-expected[k] > max(expected[k]/2, n/100) {
			return true
		}
	}
	return false
}

// unused gives room back that no call used.
func (p *permit) unused() {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.state == granted {
		p.g.end(p, Cost{}.minus(p.cost))
	}
}

// Done implements llm.Permit.
func (p *permit) Done(used llm.Usage, failed *llm.Error) {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.state != begun {
		return
	}
	x, l := p.account, p.account.line(p.namespace)
	var delta Cost
	p.outcome.ended = true
	if p.owner == g.owner && !p.outcome.passed {
		l.ended++
	}
	switch {
	case failed == nil && used.Known:
		fresh := max(used.Input-used.CachedInput, 0)
		counted := used.Input
		if x.limits.Per[2] > 0 {
			counted = fresh
		}
		p.outcome.known, p.outcome.used = true, [2]int64{counted, used.Output}
		delta = Cost{1, used.Input + used.Output, fresh, used.Output}.minus(p.cost)
	case failed != nil && failed.Class == llm.NotPerformed:
		delta = Cost{}.minus(p.cost)
	case failed != nil && failed.Status >= http.StatusBadRequest && failed.Class != llm.Unknown:
		// Providers count the request, not the tokens.
		delta = Cost{1}.minus(p.cost)
	}
	l.settle(&x.guess)
	if failed != nil && overloaded(failed) && p.owner == g.owner {
		r := &refusal{began: p.began, retryAfter: failed.RetryAfter}
		if x.refused != nil {
			r.retryAfter = max(r.retryAfter, x.refused.retryAfter)
			if x.refused.began.After(r.began) {
				r.began = x.refused.began
			}
		}
		x.refused = r
		g.soon(x)
	}
	g.end(p, delta)
}

// overloaded reports whether the provider wants fewer calls.
func overloaded(e *llm.Error) bool {
	if e.Class != llm.Retryable {
		return false
	}
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		return true
	}
	code := strings.ToLower(e.Code)
	return strings.Contains(code, "overloaded") || strings.Contains(code, "rate_limit") || code == "resource_exhausted"
}

// end gives back what a call held. The caller holds g.mu.
func (g *Governor) end(p *permit, delta Cost) {
	p.state = ended
	if p.owner != g.owner {
		return
	}
	x := p.account
	x.held--
	x.line(p.namespace).flying--
	g.correct(x, p.at, delta)
	if x.limits.MaxConcurrent > 0 {
		g.soon(x)
	}
}

// correct notes a correction. The caller holds g.mu.
func (g *Governor) correct(x *account, at int64, delta Cost) {
	for k, n := range x.limits.Per {
		if n == 0 {
			delta[k] = 0
		}
	}
	if delta == (Cost{}) {
		return
	}
	x.pending[at] = x.pending[at].plus(delta)
	g.soon(x)
}

// begin starts the session of owner: room that was taken for an earlier one stays taken until it is too old.
func (g *Governor) begin(owner journal.Owner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owner == owner {
		return
	}
	g.owner = owner
	for _, x := range g.accounts {
		x.held, x.turn, x.fault, x.until = 0, 0, 0, time.Time{}
		x.pending, x.sent, x.refused, x.refusedSent, x.moves, x.movesSent = map[int64]Cost{}, nil, nil, nil, nil, nil
		for _, l := range x.lines {
			l.flying, l.begun, l.ended = 0, nil, 0
		}
		g.soon(x)
	}
}

// Wait is how an account stands, as of the last exchange of this executor.
type Wait struct {
	// Ahead is how many calls of the namespace wait here.
	Ahead int
	// Until is when the account takes calls again after a refusal; zero if it does.
	Until time.Time
	Speed float64
}

func (g *Governor) wait(name, namespace string) (Wait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.accounts[name]
	if x == nil {
		return Wait{}, false
	}
	w := Wait{Speed: x.seen.Speed}
	if l := x.lines[namespace]; l != nil {
		w.Ahead = len(l.waiting)
	}
	if until := x.seenAt.Add(x.seen.Paused); x.seen.Paused > 0 && time.Now().Before(until) {
		w.Until = until
	}
	return w, true
}

var _ sched.SessionGate = (*gate)(nil)
