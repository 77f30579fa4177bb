// Package purse asks the registry for what model calls may use, before they are made. It asks for many
// calls at a time, remembers for a moment what no cap bounds, and decides what holds while the registry
// is away. It must not know runs or prices.
package purse

import (
	"context"
	"log/slog"
	"slices"
	"sync"
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
	// remembered is how long it is remembered that a cap bounds the calls of a task, while the registry
	// is away.
	remembered = 24 * time.Hour
	// maxKnown bounds the tasks that are remembered, and maxReleases the releases that wait for the
	// registry.
	maxKnown, maxReleases = 100_000, 10_000
	// told is how often it is told that a budget is over its soft cap.
	told = time.Minute
)

// ReasonAway is the reason of a refusal while the registry does not answer.
const ReasonAway = "REGISTRY_AWAY"

// Registry keeps the budgets.
type Registry interface {
	// Reserve answers for each of at most maxBatch calls, in their order. If askOnly is set nothing is
	// reserved.
	Reserve(ctx context.Context, namespace string, calls []outbox.Entry, askOnly bool) ([]Answer, error)
	// Release gives back what was reserved for at most maxBatch calls.
	Release(ctx context.Context, namespace string, calls []outbox.Entry) error
}

// Answer is that for one call.
type Answer struct {
	// Capped says that a cap bounds the call. If it is granted then, something is reserved for it.
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

	mu    sync.Mutex
	lines map[lineKey]*line
	known map[levels]knowledge
	// soft is when it was told last that a budget is over its soft cap.
	soft map[levels]time.Time
}

// lineKey names a line: questions that reserve nothing are asked apart.
type lineKey struct {
	namespace string
	askOnly   bool
}

// levels names the calls that have the same budgets: those of a task. Of a soft cap it names the
// budget.
type levels struct{ namespace, task string }

// knowledge is the last answer about the calls of a task.
type knowledge struct {
	capped bool
	until  time.Time
}

// line is what waits for one namespace. At most one request of it is under way; what comes meanwhile
// goes together into the next.
type line struct {
	busy     bool
	asks     []*ask
	releases []outbox.Entry
	// away is until when no request is made, after one got no answer.
	away time.Time
}

type ask struct {
	call outbox.Entry
	// answered is closed after answer and err are set.
	answered chan struct{}
	answer   Answer
	err      error
	// left is set if nobody waits for the answer any more.
	left bool
}

// New returns a purse that asks a registry.
func New(r Registry, log *slog.Logger) *Purse {
	return &Purse{registry: r, log: log, lines: map[lineKey]*line{}, known: map[levels]knowledge{}, soft: map[levels]time.Time{}}
}

// Try asks for what a call may use at most, before it is made. A call that was granted before is
// granted again. If no cap bounds the task's calls by an answer of a moment ago, nothing is asked.
// While the registry is away, calls that were bounded when it answered last are refused with
// ReasonAway, and all others are granted. An error is the cause of the end of ctx; nothing is reserved
// then.
func (p *Purse) Try(ctx context.Context, namespace string, call outbox.Entry) (Answer, error) {
	p.mu.Lock()
	if k, ok := p.known[levels{namespace, call.TaskID}]; ok && !k.capped && time.Now().Before(k.until) {
		p.mu.Unlock()
		return Answer{}, nil
	}
	p.mu.Unlock()
	return p.ask(ctx, lineKey{namespace: namespace}, call)
}

// Room reports whether Try would be granted now. It reserves nothing. Without an answer of the registry there
// is no room: whoever asks was refused before.
func (p *Purse) Room(ctx context.Context, namespace string, call outbox.Entry) (Answer, error) {
	return p.ask(ctx, lineKey{namespace, true}, call)
}

func (p *Purse) ask(ctx context.Context, key lineKey, call outbox.Entry) (Answer, error) {
	a := &ask{call: call, answered: make(chan struct{})}
	p.mu.Lock()
	l := p.line(key)
	if time.Now().Before(l.away) {
		p.mu.Unlock()
		return p.unanswered(key, call.TaskID), nil
	}
	l.asks = append(l.asks, a)
	p.serve(key, l)
	p.mu.Unlock()
	select {
	case <-a.answered:
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.left = true; a.err == nil && a.answer.Capped && a.answer.Refusal == nil && !key.askOnly {
			p.release(key, l, call) // the answer came at this moment
		}
		return Answer{}, context.Cause(ctx)
	}
	if a.err != nil {
		return p.unanswered(key, call.TaskID), nil
	}
	return a.answer, nil
}

// unanswered is the answer in place of that of a registry that is away.
func (p *Purse) unanswered(key lineKey, task string) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.known[levels{key.namespace, task}]; !key.askOnly && (!k.capped || time.Now().After(k.until)) {
		return Answer{}
	}
	return Answer{Capped: true, Refusal: &Refusal{Reason: ReasonAway, Message: "a budget bounds the call, and the registry, which keeps it, does not answer"}}
}

// Release gives back what was reserved for a call that was not made. It does not wait for the registry.
// What is lost on the way is booked by the registry after its lease.
func (p *Purse) Release(namespace string, call outbox.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := lineKey{namespace: namespace}
	p.release(key, p.line(key), call)
}

// release is Release for a caller that holds p.mu.
func (p *Purse) release(key lineKey, l *line, call outbox.Entry) {
	if len(l.releases) < maxReleases {
		l.releases = append(l.releases, call)
	}
	p.serve(key, l)
}

// line returns the line of a namespace. The caller holds p.mu.
func (p *Purse) line(key lineKey) *line {
	l := p.lines[key]
	if l == nil {
		l = &line{}
		p.lines[key] = l
	}
	return l
}

// serve starts the goroutine of a line unless it runs. The caller holds p.mu.
func (p *Purse) serve(key lineKey, l *line) {
	if !l.busy {
		l.busy = true
		go p.run(key, l)
	}
}

// run makes the requests of a line, one after the other, until nothing waits.
func (p *Purse) run(key lineKey, l *line) {
	for {
		p.mu.Lock()
		if wait := time.Until(l.away); wait > 0 && len(l.asks) == 0 && len(l.releases) > 0 {
			p.mu.Unlock()
			<-time.After(wait) // only releases wait
			continue
		}
		asks := l.asks[:min(len(l.asks), maxBatch)]
		l.asks = l.asks[len(asks):]
		releases := l.releases[:min(len(l.releases), maxBatch)]
		l.releases = l.releases[len(releases):]
		if len(asks)+len(releases) == 0 {
			if l.busy = false; time.Now().After(l.away) {
				delete(p.lines, key)
			}
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		// A call that was given back may be asked for again meanwhile.
		if len(releases) > 0 {
			p.giveBack(key, l, releases)
		}
		if len(asks) > 0 {
			p.request(key, l, asks)
		}
	}
}

// request asks for a batch.
func (p *Purse) request(key lineKey, l *line, asks []*ask) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	calls := make([]outbox.Entry, len(asks))
	for i, a := range asks {
		calls[i] = a.call
	}
	answers, err := p.registry.Reserve(ctx, key.namespace, calls, key.askOnly)
	if err != nil {
		p.log.WarnContext(ctx, "the registry does not answer for budgets; calls that they bounded wait", "err", err, "namespace", key.namespace)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		l.away = time.Now().Add(pause)
	}
	for i, a := range asks {
		if a.err = err; err == nil {
			a.answer = answers[i]
			p.learn(levels{key.namespace, a.call.TaskID}, answers[i].Capped)
			p.tell(ctx, key.namespace, answers[i].OverSoft)
			if a.left && a.answer.Capped && a.answer.Refusal == nil && !key.askOnly {
				l.releases = append(l.releases, a.call)
			}
		}
		close(a.answered)
	}
}

// learn remembers whether a cap bounds the calls of a task. The caller holds p.mu.
func (p *Purse) learn(of levels, capped bool) {
	now := time.Now()
	if len(p.known) >= maxKnown {
		for k, v := range p.known {
			if now.After(v.until) || len(p.known) >= maxKnown && !v.capped {
				delete(p.known, k)
			}
		}
		if len(p.known) >= maxKnown {
			return
		}
	}
	k := knowledge{capped, now.Add(Fresh)}
	if capped {
		k.until = now.Add(remembered)
	}
	p.known[of] = k
}

// tell says that budgets are over their soft caps, once in a while. The caller holds p.mu.
func (p *Purse) tell(ctx context.Context, namespace string, over []string) {
	now := time.Now()
	for _, budget := range over {
		of := levels{namespace, budget}
		if now.Sub(p.soft[of]) < told {
			continue
		}
		if len(p.soft) >= maxKnown {
			clear(p.soft)
		}
		p.soft[of] = now
		p.log.WarnContext(ctx, "a budget is over its soft cap", "namespace", namespace, "budget", budget)
	}
}

// giveBack releases a batch, or puts it back if the registry does not answer.
func (p *Purse) giveBack(key lineKey, l *line, calls []outbox.Entry) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	err := p.registry.Release(ctx, key.namespace, calls)
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.away = time.Now().Add(pause)
	if len(l.releases) < maxReleases {
		l.releases = slices.Concat(calls, l.releases)
	}
}
