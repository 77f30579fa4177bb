package inflight

import (
	"context"
	"sync"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Answer is what one answer holds, from the first row that is read for it until it is written. It is safe for
// concurrent use. A nil Answer counts nothing.
type Answer struct {
	mu    sync.Mutex
	share Share
	freed bool
}

// Answer returns the answer to a request of a namespace, which holds nothing yet.
func (b *Budget) Answer(namespace string) *Answer { return &Answer{share: b.Share(namespace)} }

type answerKey struct{}

// Context returns a context in which Read counts for a.
func (a *Answer) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// Read counts n bytes that were read, or are about to be, for the answer that ctx is for; without one it does
// nothing. It never waits, since its callers hold connections to a database.
func Read(ctx context.Context, n int64) error {
	a, _ := ctx.Value(answerKey{}).(*Answer)
	if a == nil || n <= 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.freed {
		return nil
	}
	return a.share.Take(a.most(a.share.held+n) - a.share.held)
}

// most is n, but no more than what one request may hold: an answer that is larger than that is given all the
// same, while nothing else is.
func (a *Answer) most(n int64) int64 {
	if a.share.budget == nil {
		return n
	}
	return min(n, a.share.budget.Most())
}

// Hold makes the answer hold n bytes at least. These bytes exist already, so answers wait for room for
// seconds only while the waiting ones of the namespace are together a quarter of its share; beyond that they
// are refused at once.
func (a *Answer) Hold(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	add := a.most(n) - a.share.held
	if a.freed || add <= 0 {
		return nil
	}
	err := a.share.Take(add)
	b := a.share.budget
	if errs.ReasonOf(err) != ReasonBusy || !b.wait(a.share.namespace, add) {
		return err
	}
	defer b.wait(a.share.namespace, -add)
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	return a.share.Wait(ctx, add)
}

// Await is Hold, but waits until there is room or ctx ends: for who makes one message after another, and none
// while this one waits.
func (a *Answer) Await(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if add := a.most(n) - a.share.held; !a.freed && add > 0 {
		return a.share.Wait(ctx, add)
	}
	return nil
}

// Shrink gives back what the answer holds beyond n bytes.
func (a *Answer) Shrink(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.share.shrink(n)
}

// Free gives back what the answer holds; it holds nothing any more after that. It is idempotent.
func (a *Answer) Free() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freed = true
	a.share.Free()
}

type streamKey struct{}

// Stream returns a context whose OfStream is a, for what a stream holds between its messages. Read does not
// count for it.
func (a *Answer) Stream(ctx context.Context) context.Context {
	return context.WithValue(ctx, streamKey{}, a)
}

// OfStream is what the stream of ctx holds beside the message under way; nil, which counts nothing, where ctx
// is of none.
func OfStream(ctx context.Context) *Answer {
	a, _ := ctx.Value(streamKey{}).(*Answer)
	return a
}

// Apart returns a context in which Read does nothing: for data that is dropped before the answer is made.
func Apart(ctx context.Context) context.Context {
	return context.WithValue(ctx, answerKey{}, (*Answer)(nil))
}
