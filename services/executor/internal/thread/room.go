package thread

import (
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonTooMany is the reason of a thread while the namespace has as many as it may.
	ReasonTooMany = "TOO_MANY_THREADS"
	// ReasonTooLarge is the reason of an item or a message while those of the namespace together have as many
	// bytes as they may.
	ReasonTooLarge = "THREADS_TOO_LARGE"
	// Overhead is what an item or a message counts besides its own bytes.
	Overhead = 256
)

// Usage is what the threads of a namespace take: how many there are, and the bytes of their items and
// messages. Deleted ones count until they are removed. A fork counts what it adds to its parent.
type Usage struct{ Threads, Bytes int64 }

// Plus is the sum of both.
func (u Usage) Plus(more Usage) Usage { return Usage{u.Threads + more.Threads, u.Bytes + more.Bytes} }

// Room bounds the usage of a namespace; 0 bounds nothing.
type Room struct{ Threads, Bytes int64 }

// Check returns the error of what is to be added where it does not fit: ReasonTooMany or ReasonTooLarge.
func (r Room) Check(used, more Usage) error {
	now := used.Plus(more)
	switch {
	case r.Threads > 0 && more.Threads > 0 && now.Threads > r.Threads:
		return errs.New(errs.ResourceExhausted, ReasonTooMany, "a namespace may have %d threads", r.Threads).
			Hint("delete some and wait ten minutes, or have executor.threads.max_threads raised")
	case r.Bytes > 0 && more.Bytes > 0 && now.Bytes > r.Bytes:
		return errs.New(errs.ResourceExhausted, ReasonTooLarge, "the threads of a namespace may have %s, and have %d bytes", conf.Bytes(r.Bytes), used.Bytes).
			Hint("delete some and wait ten minutes, or have executor.threads.max_bytes raised")
	}
	return nil
}

// Full reports whether an error is that of a namespace without room.
func Full(err error) bool {
	reason := errs.ReasonOf(err)
	return reason == ReasonTooMany || reason == ReasonTooLarge
}
