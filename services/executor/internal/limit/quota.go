package limit

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// pump is how often room for pending runs is looked for.
	pump = 500 * time.Millisecond
	// strand is how often runs are looked for that wait though nothing bounds their namespace any more.
	strand = 15 * time.Second
	// tally is how long what a namespace holds is taken as known: it is counted from the tables.
	tally = 5 * time.Second
	// starts is how many pending runs are begun in one round.
	starts = 100
)

// Pending is a run that waits for room.
type Pending struct{ Namespace, RunID string }

// counted is a recent count of a namespace.
type counted struct {
	bytes, pending     int64
	bytesAt, pendingAt time.Time
}

var _ engine.Quotas = (*Quotas)(nil)

// Quotas holds starts to what namespaces may have open. It is an engine.Quotas.
type Quotas struct {
	l      *Limiter
	notify chan struct{}

	mu      sync.Mutex
	counted map[string]*counted
}

// Quotas are those that l knows.
func (l *Limiter) Quotas() *Quotas {
	return &Quotas{l: l, notify: make(chan struct{}, 1), counted: map[string]*counted{}}
}

func exceeded(format string, args ...any) *errs.Error {
	return errs.New(errs.ResourceExhausted, ReasonQuota, format, args...)
}

// Admit reserves room for one more open run. The room is kept until release is called, which must be when its
// start is durable or has failed. ok is false if there is none. A namespace without such a quota costs a look
// into a map, and release is nil.
func (q *Quotas) Admit(ctx context.Context, namespace string) (release func(), ok bool, err error) {
	if x, has := q.l.Quota(namespace); !has || x.MaxOpenRuns == 0 {
		return nil, true, nil
	}
	type answer struct {
		pass sched.Pass
		ok   bool
	}
	got := make(chan answer, 1)
	w := &waiter{seniority: time.Now(), ready: func(p sched.Pass) { got <- answer{p, true} }, refuse: func() { got <- answer{} }}
	cancel := q.l.admit(Key{namespace, Namespace}, w)
	select {
	case a := <-got:
		if a.ok && a.pass.Release == nil {
			a.pass.Release = func() {}
		}
		return a.pass.Release, a.ok, nil
	case <-ctx.Done():
	}
	cancel()
	select {
	case a := <-got: // it came all the same
		if a.ok && a.pass.Release != nil {
			a.pass.Release()
		}
	default:
	}
	return nil, false, ctx.Err()
}

// admit puts w into the queue of a namespace.
func (l *Limiter) admit(k Key, w *waiter) (cancel func()) {
	l.mu.Lock()
	b := l.places[k]
	if b == nil {
		b = &localLimit{key: k, kind: sched.GateQuota}
		l.places[k] = b
	}
	b.push(w)
	l.mark(b)
	return l.entered(b, w, nil)
}

// Room reports whether it is worth while to ask for room for a pending run.
func (q *Quotas) Room(ctx context.Context, namespace string) (bool, error) {
	x, has := q.l.Quota(namespace)
	if !has || x.MaxOpenRuns == 0 {
		return true, nil
	}
	open, _, err := q.l.store.OpenRuns(ctx, namespace, x.MaxOpenRuns)
	return open < x.MaxOpenRuns, err
}

// Accept refuses a start that its namespace may not make, whether it begins now or later.
func (q *Quotas) Accept(ctx context.Context, namespace string, nodes int) error {
	x, has := q.l.Quota(namespace)
	if !has {
		return nil
	}
	if n := int(x.MaxFanOut); n > 0 && nodes > n {
		return exceeded("the graph has %d nodes, in this namespace it may have %d", nodes, n).Hint("split the work, or raise max_fan_out of the limit \"namespace\"")
	}
	if x.MaxBytes == 0 {
		return nil
	}
	c, err := q.count(ctx, namespace, true)
	if err != nil {
		return err
	}
	if c.bytes >= x.MaxBytes {
		return exceeded("the open runs of this namespace hold %d bytes, they may hold %d", c.bytes, x.MaxBytes).
			Hint("wait until some have ended, or raise max_bytes of the limit \"namespace\"")
	}
	return nil
}

// FanOut is how many children one wait may have; 0 does not bound.
func (q *Quotas) FanOut(namespace string) int {
	x, _ := q.l.Quota(namespace)
	return int(x.MaxFanOut)
}

// AcceptPending refuses a run that would wait, when as many wait as may.
func (q *Quotas) AcceptPending(ctx context.Context, namespace string) error {
	x, has := q.l.Quota(namespace)
	if !has {
		return nil
	}
	most := x.MaxPendingRuns
	if most == 0 {
		most = DefaultMaxPending
	}
	c, err := q.count(ctx, namespace, false)
	if err != nil {
		return err
	}
	if c.pending >= most {
		return exceeded("%d runs of this namespace wait for room, as many as may", most).Hint("wait until some have ended, or raise max_pending_runs of the limit \"namespace\"")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counted[namespace].pending++ // until it is counted again
	return nil
}

// count renews counts that are too old. It counts few pending runs at a time, so that a small bound is exact.
func (q *Quotas) count(ctx context.Context, namespace string, bytes bool) (counted, error) {
	q.mu.Lock()
	c := q.counted[namespace]
	if c == nil {
		c = &counted{}
		q.counted[namespace] = c
	}
	now := *c
	q.mu.Unlock()
	var err error
	switch {
	case bytes && time.Since(now.bytesAt) > tally:
		now.bytes, err = q.l.store.Bytes(ctx, namespace)
		now.bytesAt = time.Now()
	case !bytes && (now.pending < 1000 || time.Since(now.pendingAt) > tally/5):
		_, now.pending, err = q.l.store.OpenRuns(ctx, namespace, math.MaxInt32)
		now.pendingAt = time.Now()
	default:
		return now, nil
	}
	if err != nil {
		return now, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if bytes {
		c.bytes, c.bytesAt = now.bytes, now.bytesAt
	} else {
		c.pending, c.pendingAt = now.pending, now.pendingAt
	}
	return now, nil
}

// Ended says that a run of the namespace has ended here, so that there may be room for another.
func (q *Quotas) Ended(namespace string) {
	if x, has := q.l.Quota(namespace); has && x.MaxOpenRuns > 0 {
		select {
		case q.notify <- struct{}{}:
		default:
		}
	}
}

// Run starts pending runs by priority when there is room, through start, which gets journal.JobArgs, until
// ctx ends. Any number of executors may do so: the one that claims a run has it.
func (q *Quotas) Run(ctx context.Context, start func(ctx context.Context, args []byte) error) error {
	tick, slow := time.NewTicker(pump), time.NewTicker(strand)
	defer tick.Stop()
	defer slow.Stop()
	for {
		bounded := true
		select {
		case <-ctx.Done():
			return nil
		case <-q.notify:
		case <-tick.C:
		case <-slow.C:
			bounded = false
		}
		if err := q.round(ctx, bounded, start); err != nil && ctx.Err() == nil {
			q.l.log.WarnContext(ctx, "pending runs not begun", "err", err)
		}
	}
}

func (q *Quotas) round(ctx context.Context, bounded bool, start func(context.Context, []byte) error) error {
	var next []Pending
	if !bounded {
		var err error
		if next, err = q.l.store.Stranded(ctx, strand, starts); err != nil {
			return err
		}
	}
	for ns, x := range q.l.table.Load().namespaces {
		if !bounded || x.MaxOpenRuns == 0 {
			continue
		}
		more, err := q.l.store.Next(ctx, ns, x.MaxOpenRuns, starts)
		if err != nil {
			return err
		}
		next = append(next, more...)
	}
	for _, p := range next {
		args, err := json.Marshal(journal.JobArgs{Namespace: p.Namespace, RunID: p.RunID})
		if err != nil {
			return err
		}
		if err := start(ctx, args); err != nil && !errs.Is(err, errs.Unavailable) {
			return err
		}
	}
	return nil
}
