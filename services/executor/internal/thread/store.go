package thread

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
)

// Reader reads threads on behalf of actors. It is safe for concurrent use. All errors but those of the
// database have one of this package's reasons.
type Reader interface {
	// Thread returns a thread of the namespace. ReasonNotFound.
	Thread(ctx context.Context, namespace, id string) (Thread, error)
	// ThreadByKey returns the thread that has the key. ReasonNotFound.
	ThreadByKey(ctx context.Context, namespace, key string) (Thread, error)
	// Items returns items of a thread, newest first, and those of the threads above it up to the forks,
	// without their origin. ReasonNotFound.
	Items(ctx context.Context, namespace, id string, q Query) ([]Item, error)
	// Item returns one item of a thread, which may be that of a thread above it, without its origin.
	// ReasonNotFound is of the thread, ReasonInvalid of the sequence.
	Item(ctx context.Context, namespace, id string, seq int64) (Item, error)
	// HoldThread lets runs hold the thread, by the rule of Hold: from the root down to the run of the agent
	// that works there, at least one. Nobody needs to let go of it, since runs that have ended hold nothing.
	// ReasonBusy, ReasonNotFound.
	HoldThread(ctx context.Context, namespace, id string, runs []string) error
}

// Query says which items are read.
type Query struct {
	// Kinds are alternatives; none means any.
	Kinds []Kind
	// Before is exclusive; 0 begins with the last item.
	Before int64
	// Limit is how many are read at most; 0 means all.
	Limit int
	// MaxBytes ends the reading before the items together have more bytes, but for the first; 0 means no
	// limit.
	MaxBytes int
	// Briefs leaves the bodies out.
	Briefs bool
}

// Selection says what of a segment is read.
type Selection struct {
	// Kinds are alternatives; none means any.
	Kinds []Kind
	// Limit is how many items are read at most.
	Limit int
	// Body and Origin tell what is read of an item besides its sequence, kind and brief. The origin is its
	// time, run, node and visit.
	Body, Origin bool
}

// Segment is the part of a lineage that one thread holds: its own items from First to Last. It is empty if
// Last is before First.
type Segment struct {
	Thread      string
	First, Last int64
}

// Filter narrows a list of threads; all set fields must hold.
type Filter struct {
	Agent, ParentID string
	// KeyPrefix is what keys begin with.
	KeyPrefix string
	// Lifetime is one lifetime; 0 means any.
	Lifetime Lifetime
}

// Create is a request for a new thread.
type Create struct {
	// Thread carries what the caller says of it, and ID and CreateTime. With ParentID set and ParentSeq 0 it
	// is a fork after the last item of the parent.
	Thread
	Request Request
	// Room is what the namespace may have, with this thread.
	Room Room
	// Refused, if not nil, is the error of a request that is no repetition.
	Refused error
}

// Request identifies a request that may come twice.
type Request struct {
	// Method keeps the ids of different calls apart, and ID is the client's; an empty one is not repeatable.
	Method, ID string
	// BodyHash is the same exactly for equal bodies.
	BodyHash string
}

// Store keeps threads beside the journal, whose commits append to them. Implementations are safe for
// concurrent use.
type Store interface {
	Turns
	// Thread returns a thread of the namespace. ReasonNotFound.
	Thread(ctx context.Context, namespace, id string) (Thread, error)
	// ThreadByKey returns the thread that has the key. ReasonNotFound.
	ThreadByKey(ctx context.Context, namespace, key string) (Thread, error)
	// ThreadsByKeys returns the threads that have these keys, in no order. There are at most
	// MaxAppends of them.
	ThreadsByKeys(ctx context.Context, namespace string, keys []string) ([]Thread, error)
	// ListThreads returns up to limit threads after a cursor, newest first by (CreateTime, ID).
	ListThreads(ctx context.Context, namespace string, f Filter, after page.Cursor, limit int) ([]Thread, error)
	// ThreadUsage returns what the threads of a namespace take.
	ThreadUsage(ctx context.Context, namespace string) (Usage, error)
	// CreateThread makes a thread, or a fork of one. A repeated request returns the thread that it made.
	// ReasonExists, ReasonTooMany; of a fork ReasonNotFound, ReasonTooDeep, ReasonInvalid.
	CreateThread(ctx context.Context, c Create) (Thread, error)
	// ImportThreads makes threads with their items, all or none. A repeated request returns the whole that it
	// made. ReasonExists, ReasonTooMany, ReasonTooLarge.
	ImportThreads(ctx context.Context, m Import) (Thread, error)
	// Family returns a thread and its parts, however deep, as they are at one moment: the whole first, and
	// then up to limit in all by id. The items up to their Last never change. ReasonNotFound.
	Family(ctx context.Context, namespace, id string, limit int) ([]Relative, error)
	// DeleteThread removes a thread with its parts, or none of them. The thread is gone at once, and
	// its parts follow in transactions of bounded size. Their items stay as long as forks need them.
	// ReasonNotFound; ReasonBusy is of any of them.
	DeleteThread(ctx context.Context, namespace, id string) error
	// HoldThread is that of Reader.
	HoldThread(ctx context.Context, namespace, id string, runs []string) error
	// Lineage returns the segments of a thread, its own first. All but that, which ends with the last item,
	// are the same as long as the thread is there. ReasonNotFound.
	Lineage(ctx context.Context, namespace, id string) ([]Segment, error)
	// SegmentItems returns items of a segment, newest first, and fewer than the limit where page.MaxBytes are
	// full.
	SegmentItems(ctx context.Context, namespace string, s Segment, q Selection) ([]Item, error)
	// SweepThreads hides up to limit threads whose time is over: ephemeral ones that were not used since a
	// time, and those of runs that have ended. Threads that an open run holds stay, unused parts of a thread
	// which is there, and those that a failed
	// run held, which may be retried, as long as its rows are there. It returns how many it hid and the place
	// to go on from, which is empty after the last one.
	SweepThreads(ctx context.Context, unusedSince time.Time, after string, limit int) (hidden int, next string, err error)
	// HideParts hides the parts of up to limit hidden threads after an id, in transactions of limit
	// rows: those of a deletion that was cut off. Parts that an open run holds stay. It returns the
	// place to go on from, which is empty after the last one.
	HideParts(ctx context.Context, after string, limit int) (next string, err error)
	// PurgeThreads removes up to limit rows of threads that are hidden, of which all parts are, and
	// that no fork needs. It reports whether there is more to do.
	PurgeThreads(ctx context.Context, limit int) (more bool, err error)
}
