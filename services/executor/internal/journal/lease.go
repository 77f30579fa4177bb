package journal

import (
	"context"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

// DefaultLease is how old a heartbeat may get before others take over.
const DefaultLease = 3 * time.Second

// Lease keeps one owner alive and says, by this process's monotonic clock, whether the owner may
// still act. It counts from before a heartbeat was sent and ends at half the lease, so that it is
// over before any other executor may take over. Safe for concurrent use.
type Lease struct {
	m     Members
	owner Owner
	life  time.Duration
	lost  chan struct{}

	mu      sync.Mutex
	renewed time.Time
	err     error
}

// NewLease returns a lease that counts from registered, which is a time before Register was called.
// Run must be running for it to last.
func NewLease(m Members, owner Owner, life time.Duration, registered time.Time) *Lease {
	return &Lease{m: m, owner: owner, life: life, renewed: registered, lost: make(chan struct{})}
}

// Held reports whether the owner may still act. Check it right before anything with an effect.
func (l *Lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && time.Since(l.renewed) < l.life/2
}

// Await waits until the owner may act, and reports whether it may. It returns at once unless a heartbeat is
// late, and false if the lease is lost for good or ctx ends first. A late heartbeat may still arrive, so a
// caller that finds the lease not held must ask again, and not take it for lost.
func (l *Lease) Await(ctx context.Context) bool {
	for !l.Held() {
		pause := time.NewTimer(l.life / 100)
		select {
		case <-pause.C:
		case <-l.lost:
		case <-ctx.Done():
		}
		pause.Stop()
		if l.Err() != nil || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// Lost is closed when the lease is lost for good: fenced, or not renewed for half its life while
// Run was running.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err says why the lease was lost; nil while it is not.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Beat is the time between two heartbeats of a lease of this length: an eighth of it, and one second at
// most.
func Beat(life time.Duration) time.Duration { return min(life/8, time.Second) }

// Run sends heartbeats until ctx ends (nil) or the lease is lost (the reason,
// ReasonFenced in either case). A heartbeat that fails or hangs is tried again while there is time.
func (l *Lease) Run(ctx context.Context) error {
	beat := Beat(l.life)
	for {
		left := l.left()
		if left <= 0 {
			return l.lose(errs.From(Fenced(l.owner)).With(context.DeadlineExceeded))
		}
		sent := time.Now()
		err := l.heartbeat(ctx, min(left, 2*beat))
		switch {
		case err == nil:
			l.mu.Lock()
			l.renewed = sent
			l.mu.Unlock()
		case IsFenced(err):
			return l.lose(err)
		case ctx.Err() != nil:
			return nil
		}
		wait := beat
		if err != nil {
			wait = min(beat/4, max(l.left(), 0))
		}
		if !sleep.For(ctx, wait) {
			return nil
		}
	}
}

func (l *Lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life/2 - time.Since(l.renewed)
}

func (l *Lease) heartbeat(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return l.m.Heartbeat(ctx, l.owner)
}

func (l *Lease) lose(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.lost)
	}
	return l.err
}
