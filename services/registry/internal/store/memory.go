package store

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
)

// MemoryQuery filters entries of the memory; all filters that are set must hold. Those that have
// expired are left out.
type MemoryQuery struct {
	Namespace string
	// Place is that of one scope.
	Place  string
	Kinds  []memory.Kind
	UserID string
	// Agent has learned the entries; empty for any.
	Agent string
	// Oldest says that the list begins with the oldest.
	Oldest bool
	Now    time.Time
	After  page.Cursor
	Limit  int
	// Look is how many entries are looked at; 0 is MaxLook.
	Look int
}

// MemoryReadQuery pages through the records of who has read the memory.
type MemoryReadQuery struct {
	Namespace string
	After     page.Cursor
	Limit     int
}

// Forget says what is forgotten: the entries of a place, those of a user and those that are about the
// user, or, if neither is set, all of a namespace.
type Forget struct{ Place, UserID string }

// MemoryReader reads what is remembered. Entries that have expired are there until a sweep removes
// them.
type MemoryReader interface {
	Memory(ctx context.Context, namespace, id string) (memory.Entry, error)
	// MemoriesAt returns those of the entries of places that have a key.
	MemoriesAt(ctx context.Context, namespace string, places []string, key string) ([]memory.Entry, error)
	// Memories lists by the time of the first write.
	Memories(ctx context.Context, q MemoryQuery) (Found[memory.Entry], error)
	// FindMemories returns what has one of the words of a query and passes its filters at a time, or
	// without words the last entries of each scope, in no order and without texts. Of each word, scope
	// and kind it looks at the entries in which the word weighs most, of equals at those that were first
	// written last: memory.MaxFound together. Of at most 2,048 pairs of an entry and another word that
	// more entries have it looks up whether the entry has the word, too.
	FindMemories(ctx context.Context, q memory.Query, words []string, now time.Time) ([]memory.Hit, error)
	// SimilarMemories returns those entries of the scopes of a query that have a vector of its model
	// and pass its filters at a time, without texts: the memory.MaxSimilar most similar ones, the most
	// similar first. It reads as many vectors as the query says, of as many dimensions as that of the
	// query: those of the entries that were first written last. It says how many more there are.
	SimilarMemories(ctx context.Context, q memory.Query, now time.Time) (memory.Found, error)
	// MemoriesOf reads those of the entries that there are.
	MemoriesOf(ctx context.Context, namespace string, ids []string) (map[string]memory.Entry, error)
	// MemoryTotal is what a namespace remembers, with what this transaction has changed.
	MemoryTotal(ctx context.Context, namespace string) (memory.Total, error)
	// MemoryReads lists who has read, the newest first.
	MemoryReads(ctx context.Context, q MemoryReadQuery) ([]memory.Read, error)
}

// MemoryTx changes what is remembered. Writes and removals become events of the feed by themselves.
type MemoryTx interface {
	// LockMemory locks the entry of a place that has a key; found is false if there is none.
	LockMemory(ctx context.Context, namespace, place, key string) (e memory.Entry, found bool, err error)
	// InsertMemory adds an entry with its words, unless its place has one of this key: then added is
	// false.
	InsertMemory(ctx context.Context, e memory.Entry) (added bool, err error)
	// PutMemory overwrites a locked entry and its words.
	PutMemory(ctx context.Context, e memory.Entry) error
	// MakeRoom removes entries of a place beyond a number, and so many that as much is removed as over
	// says, and returns them: those of the lowest confidence, of these the ones that were written longest
	// ago, but not the one with the id kept. It removes at most 100. Entries that others change meanwhile
	// stay.
	MakeRoom(ctx context.Context, namespace, place, kept string, most int, over memory.Total) (removed []memory.Entry, err error)
	// DeleteMemory removes an entry; with a revision that is not 0 only that one. Otherwise it is a
	// Conflict.
	DeleteMemory(ctx context.Context, namespace, id string, revision int64) error
	// ForgetMemories removes at most limit entries, and of a user or a namespace also at most limit
	// records of their reads. It returns how many of each there were.
	ForgetMemories(ctx context.Context, namespace string, f Forget, limit int) (entries, reads int, err error)
	// RefuseVector records that a model made no vector of an entry that still has a revision; false if it has
	// not. memory.EmbedRetry says when the entry is handed out again, and whether.
	RefuseVector(ctx context.Context, namespace, id string, revision int64, f memory.Fault) (bool, error)
	// EmbedMemory sets the vector of an entry that still has a revision; false if it has not.
	EmbedMemory(ctx context.Context, namespace, id string, revision int64, v *memory.Embedding) (bool, error)
	InsertMemoryRead(ctx context.Context, r memory.Read) error
}

// MemoryBounds say how long records of reads are kept, and how many of a namespace.
type MemoryBounds struct {
	ReadAge time.Duration
	Reads   int
}

// DefaultMemoryBounds are those of a registry.
func DefaultMemoryBounds() MemoryBounds {
	return MemoryBounds{ReadAge: 30 * 24 * time.Hour, Reads: 10_000}
}
