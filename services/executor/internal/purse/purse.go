// Package purse asks the registry for what model calls may use, before they are made. It asks for many
// calls at a time, remembers for a moment what no cap bounds, and decides what holds while the registry
// is away. It must not know runs or prices.
package purse

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

const (
	// maxBatch is how many calls one request names.
	maxBatch = 256
	// askTime bounds one request.
	askTime = 2 * time.Second
	// Fresh is how long calls of a task are made without a question after the answer that no cap bounds
	// them. So a first cap holds after that time at the latest.
	Fresh = time.Second
	// pause is how long requests for a namespace stop after one got no answer.
	pause = time.Second
	// maxReleases bounds the releases of a namespace that wait for the registry.
	maxReleases = 10_000
)

// ReasonAway is the reason of a refusal while the registry does not answer.
const ReasonAway = "REGISTRY_AWAY"

// Registry keeps the budgets.
type Registry interface {
	// Reserve answers for each of at most maxBatch calls, in their order. If askOnly is set nothing is
	// reserved.
	Reserve(ctx context.Context, namespace string, calls []Call, askOnly bool) ([]Answer, error)
	// Release gives back what was reserved for at most maxBatch calls.
	Release(ctx context.Context, namespace string, calls []outbox.Entry) error
}

// Call is what one call may use at most.
type Call struct {
	outbox.Entry
	// Runs are the runs with budgets that it counts on: its own, and those above it.
	Runs []RunBudget
	// Unlimited says that it states no limit of its own answer, so that the registry estimates its output
	// tokens.
	Unlimited bool
}

// payer is the task, or else the epic, that a call is booked on.
func (c *Call) payer() string { return cmp.Or(c.TaskID, c.EpicID) }

// RunBudget is what a run may use. A cap that is nil does not bound.
type RunBudget struct {
	RunID           string
	Tokens, NanoUSD *int64
	// SpentTokens and SpentNanoUSD are what the run and those below it have used by now, as far as it is
	// known.
	SpentTokens, SpentNanoUSD int64
}

// Answer is that for one call.
type Answer struct {
	// Capped says that a cap bounds the call, or may. If it is granted then, something may be reserved
	// for it, and is given back if the call uses nothing.
	Capped bool
	// Refusal is nil if the call may be made.
	Refusal *Refusal
	// OverSoft are the budgets that are over a soft cap by the call.
	OverSoft []string
}

// Refusal says which budget leaves no room for a call.
type Refusal struct{ Budget, Reason, Message string }

// Purse is safe for concurrent use. Its goroutines end by themselves when nothing is asked for.
type Purse struct {
	registry Registry
	log      *slog.Logger
	memory   memory
}

// line is what waits for one namespace. At most one request of it is under way; what comes meanwhile
// goes together into the next.
type line struct {
	// askOnly lines reserve nothing, and have no releases.
	askOnly  bool
	busy     bool
	asks     []*ask
	releases map[callKey]outbox.Entry
	// away is until when no request is made, after one got no answer.
	away time.Time
}

// callKey is what the registry knows a call by.
type callKey struct {
	run, node                  string
	visit, item, attempt, call int
}

func keyOf(e outbox.Entry) callKey {
	return callKey{e.RunID, e.Node, e.Visit, e.Item, e.Attempt, e.Call}
}

type ask struct {
	call Call
	// answered is closed after answer is set.
	answered chan struct{}
	answer   Answer
	// left is set if nobody waits for the answer any more.
	left bool
}

// holds reports whether something may be reserved for the call by the answer.
func (a *ask) holds() bool { return a.answer.Capped && a.answer.Refusal == nil }

// New returns a purse that asks a registry.
func New(r Registry, log *slog.Logger) *Purse {
	return &Purse{registry: r, log: log, memory: memory{namespaces: map[string]*namespace{}}}
}

// Try asks for what a call may use at most, before it is made. A call that was granted before is
// granted again. If no run bounds it, and no cap the task's calls by an answer of a moment ago, nothing is
// asked. While the registry is away, calls that runs bound are refused with ReasonAway, and so are those of a
// namespace that has caps, unless none bounded those of their task when it answered last. All others are
// granted. An error is the cause
// of the end of ctx; nothing is reserved then.
func (p *Purse) Try(ctx context.Context, namespace string, call Call) (Answer, error) {
	n := p.memory.locked(namespace)
	if len(call.Runs) == 0 && n.uncapped(call.payer(), Fresh) {
		n.mu.Unlock()
		return Answer{}, nil
	}
	return p.ask(ctx, n, &n.reserving, call)
}

// Room reports whether Try would be granted now. It reserves nothing. Without an answer of the registry
// there is no room: whoever asks was refused before.
//
// Calls of which one request asks count as if each before them were made. So room for one call lets one
// run go on, and not all that wait for it. Their order is random: one that cannot go on for another
// reason is not always before the others.
func (p *Purse) Room(ctx context.Context, namespace string, call Call) (Answer, error) {
	n := p.memory.locked(namespace)
	return p.ask(ctx, n, &n.asking, call)
}

// ask puts a question into a line of a namespace, which is locked by the caller and unlocked by ask.
func (p *Purse) ask(ctx context.Context, n *namespace, l *line, call Call) (Answer, error) {
	if time.Now().Before(l.away) {
		defer n.mu.Unlock()
		return n.unanswered(l, &call), nil
	}
	a := &ask{call: call, answered: make(chan struct{})}
	l.asks = append(l.asks, a)
	p.serve(n, l)
	n.mu.Unlock()
	select {
	case <-a.answered:
		return a.answer, nil
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.left = true; a.holds() && !l.askOnly { // the answer came at this moment
		l.release(call.Entry)
		p.serve(n, l)
	}
	return Answer{}, context.Cause(ctx)
}

// Release gives back what was reserved for a call that was not made. It does not wait for the registry.
// What is lost on the way is booked by the registry after its lease.
func (p *Purse) Release(namespace string, call outbox.Entry) {
	n := p.memory.locked(namespace)
	defer n.mu.Unlock()
	n.reserving.release(call)
	p.serve(n, &n.reserving)
}

// release lets a call be given back with the next request. The caller holds the lock of the namespace.
func (l *line) release(call outbox.Entry) {
	if len(l.releases) >= maxReleases {
		return
	}
	if l.releases == nil {
		l.releases = map[callKey]outbox.Entry{}
	}
	if k := keyOf(call); call.Incarnation >= l.releases[k].Incarnation {
		l.releases[k] = call
	}
}

// serve starts the goroutine of a line unless it runs. The caller holds the lock of the namespace.
func (p *Purse) serve(n *namespace, l *line) {
	if !l.busy {
		l.busy = true
		go p.run(n, l)
	}
}

// run makes the requests of a line, one after the other, until nothing waits.
func (p *Purse) run(n *namespace, l *line) {
	for {
		n.mu.Lock()
		if wait := time.Until(l.away); wait > 0 && len(l.asks) == 0 && len(l.releases) > 0 {
			n.mu.Unlock()
			<-time.After(wait) // only releases wait
			continue
		}
		asks, releases := l.next()
		if len(asks)+len(releases) == 0 {
			l.busy = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		// A call that was given back may be asked for again meanwhile. It is not asked for before the
		// registry has taken it back, which would take the new reservation.
		if len(releases) > 0 && !p.giveBack(n, l, releases) {
			p.unasked(n, l, asks)
			continue
		}
		if len(asks) > 0 {
			p.request(n, l, asks)
		}
	}
}

// next takes what the next requests name out of a line: some asks, and releases, those of the same calls
// among them. The caller holds the lock of the namespace.
func (l *line) next() (asks []*ask, releases []outbox.Entry) {
	if l.askOnly {
		rand.Shuffle(len(l.asks), func(i, j int) { l.asks[i], l.asks[j] = l.asks[j], l.asks[i] })
	}
	asks = l.asks[:min(len(l.asks), maxBatch)]
	l.asks = l.asks[len(asks):]
	take := func(k callKey) {
		if e, ok := l.releases[k]; ok {
			releases = append(releases, e)
			delete(l.releases, k)
		}
	}
	for _, a := range asks {
		take(keyOf(a.call.Entry))
	}
	for k := range l.releases {
		if len(releases) >= maxBatch {
			break
		}
		take(k)
	}
	return asks, releases
}

// request asks for a batch. If the answer is lost, what may have been reserved for calls that are not
// made is given back. That is at least pause later, when the registry has ended a request that was late.
func (p *Purse) request(n *namespace, l *line, asks []*ask) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	calls := make([]Call, len(asks))
	for i, a := range asks {
		calls[i] = a.call
	}
	answers, err := p.registry.Reserve(ctx, n.name, calls, l.askOnly)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		p.log.WarnContext(ctx, "the registry does not answer for budgets; calls that they bounded wait", "err", err, "namespace", n.name)
		l.away = time.Now().Add(pause)
	}
	for i, a := range asks {
		switch {
		case err == nil:
			a.answer = answers[i]
			if len(a.call.Runs) == 0 { // else it is not said what bounds it
				n.learn(a.call.payer(), a.answer.Capped)
			}
			p.tell(ctx, n, a.answer.OverSoft)
		default:
			a.answer = n.unanswered(l, &a.call)
			a.answer.Capped = true
		}
		if unused := err != nil && a.answer.Refusal != nil || a.left && a.holds(); unused && !l.askOnly {
			l.release(a.call.Entry)
		}
		close(a.answered)
	}
}

// unasked answers for a batch that is not asked for, since the registry is away.
func (p *Purse) unasked(n *namespace, l *line, asks []*ask) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range asks {
		a.answer = n.unanswered(l, &a.call)
		close(a.answered)
	}
}

// giveBack releases a batch, or puts it back if the registry does not answer.
func (p *Purse) giveBack(n *namespace, l *line, calls []outbox.Entry) bool {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	err := p.registry.Release(ctx, n.name, calls)
	if err == nil {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l.away = time.Now().Add(pause)
	for _, c := range calls {
		l.release(c)
	}
	return false
}

// tell says that budgets are over their soft caps, once in a while. The caller holds the lock of the
// namespace.
func (p *Purse) tell(ctx context.Context, n *namespace, over []string) {
	for _, budget := range over {
		if n.tells(budget) {
			p.log.WarnContext(ctx, "a budget is over its soft cap", "namespace", n.name, "budget", budget)
		}
	}
}
