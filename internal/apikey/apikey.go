// Package apikey owns the keys that are resources: how their secrets are written, and what a process
// keeps of them for the calls that show one. It must not know where keys are stored, nor how a call
// is made.
package apikey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/lru"
)

// Prefix begins every secret, so that scanners recognize one that lies where it should not.
const Prefix = "epk_"

// IDPrefix begins every id.
const IDPrefix = "key"

// secretBytes is the length of the random part of a secret. Nobody can try enough of 256 bits, so
// their SHA-256 needs no salt and no slow hash.
const secretBytes = 32

// maxToken bounds what is read as a secret, in bytes.
const maxToken = 256

// ReasonAway refuses a call whose key nobody can look up now.
const ReasonAway = "KEYS_UNAVAILABLE"

// Token is what the holder of a key shows: epk_NAMESPACE_ID_SECRET. The namespace says who knows the
// key.
type Token struct {
	Namespace, ID string
	// Hash is the SHA-256 of the whole text.
	Hash [sha256.Size]byte
}

// New makes a secret for the key of an id, and its hash.
func New(namespace, id string) (secret string, hash [sha256.Size]byte) {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	secret = Prefix + namespace + "_" + strings.TrimPrefix(id, IDPrefix+"_") + "_" + base64.RawURLEncoding.EncodeToString(b[:])
	return secret, sha256.Sum256([]byte(secret))
}

// Parse reads a secret. ok is false if it cannot be one of a key of a registry.
func Parse(s string) (t Token, ok bool) {
	rest, ok := strings.CutPrefix(s, Prefix)
	if !ok || len(s) > maxToken {
		return t, false
	}
	namespace, rest, _ := strings.Cut(rest, "_")
	id, secret, _ := strings.Cut(rest, "_")
	if b, err := base64.RawURLEncoding.DecodeString(secret); namespace == "" || id == "" || err != nil || len(b) != secretBytes {
		return t, false
	}
	return Token{Namespace: namespace, ID: IDPrefix + "_" + id, Hash: sha256.Sum256([]byte(s))}, true
}

// Key is what a key opens.
type Key struct {
	Hash   [sha256.Size]byte
	Name   string
	Scopes []access.Scope
	// Expires is zero for a key that does not end by itself.
	Expires time.Time
}

// Lookup finds a key that was not revoked; found is false if there is none.
type Lookup func(ctx context.Context, t Token) (k Key, found bool, err error)

// Bounds of what a ring keeps.
const (
	// fresh is for how long an answer holds, and so how long a revoked key may still open.
	fresh = 5 * time.Second
	// stale is for how long the last answer holds while nobody answers.
	stale = time.Minute
	// kept is how many answers are kept, those that there is no key too.
	kept = 10_000
	// asking is how many lookups are under way at once.
	asking = 16
	// patience is how long a lookup may take.
	patience = 5 * time.Second
)

// Ring knows the keys that were shown to this process lately. It is safe for concurrent use.
type Ring struct {
	lookup  Lookup
	flights singleflight.Group
	asks    chan struct{}

	mu      sync.Mutex
	answers *lru.Cache[place, answer]
}

type place struct{ namespace, id string }

type answer struct {
	key   Key
	found bool
	at    time.Time
}

// NewRing returns a ring without an answer.
func NewRing(l Lookup) *Ring {
	return &Ring{lookup: l, asks: make(chan struct{}, asking), answers: lru.New[place, answer](kept)}
}

// Authenticate returns who shows a secret. found is false if it opens nothing. An answer holds for
// any secret of the same id, so that wrong ones are compared here and asked about once.
func (r *Ring) Authenticate(ctx context.Context, t Token) (who access.Principal, found bool, err error) {
	p := place{t.Namespace, t.ID}
	r.mu.Lock()
	a, known := r.answers.Get(p)
	r.mu.Unlock()
	if age := time.Since(a.at); !known || age >= fresh {
		now, err := r.ask(ctx, p, t)
		switch {
		case err == nil:
			a = now
		case !known || age >= stale:
			return who, false, err
		}
	}
	if !a.found || subtle.ConstantTimeCompare(a.key.Hash[:], t.Hash[:]) != 1 || !a.key.Expires.IsZero() && !time.Now().Before(a.key.Expires) {
		return who, false, nil
	}
	return access.Principal{Kind: access.Key, Name: a.key.Name, Scopes: a.key.Scopes}, true, nil
}

// ask looks a key up, once for all who ask at the same time. It outlives the call that began it,
// since others wait for it, too.
func (r *Ring) ask(ctx context.Context, p place, t Token) (answer, error) {
	done := r.flights.DoChan(p.namespace+"/"+p.id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		select {
		case r.asks <- struct{}{}:
		case <-ctx.Done():
			return nil, away(ctx.Err())
		}
		defer func() { <-r.asks }()
		k, found, err := r.lookup(ctx, t)
		if err != nil {
			return nil, away(err)
		}
		a := answer{key: k, found: found, at: time.Now()}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answers.Put(p, a, 1)
		return a, nil
	})
	select {
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case res := <-done:
		if res.Err != nil {
			return answer{}, res.Err
		}
		a, ok := res.Val.(answer)
		if !ok {
			return answer{}, errors.New("a lookup of a key has no answer")
		}
		return a, nil
	}
}

func away(err error) error {
	return errs.New(errs.Unavailable, ReasonAway, "the API key cannot be looked up: the registry does not answer").
		Hint("nothing was done; try again when the registry is back").Set(errs.MetaNothingDone, "true").With(err)
}
