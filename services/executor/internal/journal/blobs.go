package journal

import (
	"context"
	"time"
)

// BlobHash is the SHA-256 of a value that is kept outside of the database.
type BlobHash [32]byte

// BlobRef is what a write refers to.
type BlobRef struct {
	Hash BlobHash
	Size int64
	// Snapshot says that it is the run's snapshot that refers to it: the next snapshot ends that.
	Snapshot bool
	// Thread is the thread that refers to it; empty means the run.
	Thread string
}

// BlobState is what is known of a blob before it is stored.
type BlobState uint8

const (
	// BlobNew is one that is to be stored.
	BlobNew BlobState = iota
	// BlobKept is one that is stored, and that nothing removes before the grace time is over.
	BlobKept
	// BlobDoomed is one that is being removed at this moment: it can be neither stored nor referred to.
	BlobDoomed
)

// BlobName names a blob.
type BlobName struct {
	Namespace string
	Hash      BlobHash
}

// Blobs keeps account of the values outside of the database. Each has a row before it is stored, so that a
// crash leaves none unknown. References are written with the rows that refer. Journal embeds it.
type Blobs interface {
	// NoteBlobs records that these blobs are about to be stored and referred to, and returns the state of
	// each. From now on none of them is removed until the grace time of OrphanBlobs has passed, unless it
	// is BlobDoomed.
	NoteBlobs(ctx context.Context, namespace string, refs []BlobRef) ([]BlobState, error)
	// OrphanBlobs dooms up to limit blobs to which nothing refers and that were not noted within grace, and
	// returns them. It also returns blobs that were doomed longer than again ago, whose removal got stuck.
	// Each is returned to one caller. References of snapshots that have been replaced are dropped first.
	OrphanBlobs(ctx context.Context, grace, again time.Duration, limit int) ([]BlobName, error)
	// ForgetBlobs removes the rows of doomed blobs whose objects are gone.
	ForgetBlobs(ctx context.Context, names []BlobName) error
}

// Packer gives values the form in which they are kept.
type Packer interface {
	// Pack returns w in that form. It is cheap when no value is large. If store is not nil, the write to
	// commit is what store returns: it stores the values that go outside, ends soon after its context does,
	// and always returns a write that may be committed.
	Pack(w Write) (packed Write, store func(ctx context.Context) Write)
}
