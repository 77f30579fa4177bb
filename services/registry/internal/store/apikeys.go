package store

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
	"github.com/epigraph-run/epigraph/internal/page"
)

// ReasonKeyNotFound names a key that the namespace does not have.
const ReasonKeyNotFound = "KEY_NOT_FOUND"

// APIKey is a key as its row.
type APIKey struct {
	Namespace, ID, Name string
	Scopes              []access.Scope
	Hash                [sha256.Size]byte
	// Principal made it, and RevokedBy ended it.
	Principal, RevokedBy string
	// ExpireTime, RevokeTime and LastUseTime are zero for never.
	CreateTime, ExpireTime, RevokeTime, LastUseTime time.Time
}

// Ended reports whether the key opens nothing any more.
func (k APIKey) Ended(now time.Time) bool {
	return !k.RevokeTime.IsZero() || !k.ExpireTime.IsZero() && !now.Before(k.ExpireTime)
}

// Size implements page.Row.
func (k APIKey) Size() int { return 512 }

// KeyNotFound is the error for a key that is not there.
func KeyNotFound(id string) error {
	return errs.New(errs.NotFound, ReasonKeyNotFound, "there is no key %.80q", id).Hint(idkind.Hint(id, "key", "ListKeys lists the existing ones"))
}

// APIKeyQuery narrows a list of keys.
type APIKeyQuery struct {
	Namespace string
	After     page.Cursor
	Limit     int
}

// APIKeyReader reads keys.
type APIKeyReader interface {
	APIKey(ctx context.Context, namespace, id string) (APIKey, error)
	// APIKeys lists the newest first.
	APIKeys(ctx context.Context, q APIKeyQuery) ([]APIKey, error)
}

// APIKeyTx changes keys.
type APIKeyTx interface {
	// CountAPIKeys counts the keys of a namespace that have not ended, up to most.
	CountAPIKeys(ctx context.Context, namespace string, now time.Time, most int) (int, error)
	InsertAPIKey(ctx context.Context, k APIKey) error
	// RevokeAPIKey ends a key as of now. One that was revoked before stays as it is.
	RevokeAPIKey(ctx context.Context, namespace, id string, now time.Time, principal string) error
	// UseAPIKey records a use, unless a later one is recorded.
	UseAPIKey(ctx context.Context, namespace, id string, now time.Time) error
}
