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
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/bucket"
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

// ReasonGuessing refuses an address from which too many unknown keys were shown.
const ReasonGuessing = "TOO_MANY_UNKNOWN_KEYS"

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
	// kept is how many answers are kept: of keys, and as many that there is none.
	kept = 10_000
	// guesses is how many look-ups that found no key an address may cause at once, and guessesPerSecond
	// how many a second after that. It is known of sources addresses.
	guesses, guessesPerSecond, sources = 50, 5, 10_000
	// asking is how many lookups are under way at once.
	asking = 16
	// patience is how long a lookup may take, and so how long a call waits for a registry that hangs.
	patience = time.Second
)

// Ring knows the keys that were shown to this process lately. It is safe for concurrent use.
type Ring struct {
	lookup  Lookup
	flights singleflight.Group
	asks    chan struct{}

	guesses *bucket.Buckets[string]

	mu sync.Mutex
	// good are answers that there is a key, bad are those that there is none: whoever shows ids at random
	// fills the one, and keeps nobody out of the other.
	good, bad *lru.Cache[place, answer]
}

type place struct{ namespace, id string }

type answer struct {
	key   Key
	found bool
	at    time.Time
}

// NewRing returns a ring without an answer.
func NewRing(l Lookup) *Ring {
	return &Ring{lookup: l, asks: make(chan struct{}, asking), guesses: bucket.New[string](guessesPerSecond, guesses, sources),
		good: lru.New[place, answer](kept), bad: lru.New[place, answer](kept)}
}

// Authenticate returns who shows a secret. found is false if it opens nothing. An answer holds for
// any secret of the same id, so that wrong ones are compared here and asked about once.
func (r *Ring) Authenticate(ctx context.Context, t Token) (who access.Principal, found bool, err error) {
	p := place{t.Namespace, t.ID}
	a, known := r.known(p)
	if age := time.Since(a.at); !known || age >= fresh {
		now, err := r.askFrom(ctx, p, t, known && a.opens(t))
		switch {
		case errs.ReasonOf(err) == ReasonGuessing:
			return who, false, err
		case err == nil:
			a = now
		case !known || age >= stale:
			return who, false, err
		}
	}
	if !a.opens(t) {
		return who, false, nil
	}
	return access.Principal{Kind: access.Key, Name: a.key.Name, Scopes: a.key.Scopes, Expires: a.key.Expires}, true, nil
}

// opens reports whether a secret is that of the key, which has not ended.
func (a answer) opens(t Token) bool {
	return a.found && subtle.ConstantTimeCompare(a.key.Hash[:], t.Hash[:]) == 1 && (a.key.Expires.IsZero() || time.Now().Before(a.key.Expires))
}

// known is the last answer about a key.
func (r *Ring) known(p place) (a answer, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, known = r.good.Get(p); known {
		return a, true
	}
	return r.bad.Get(p)
}

// learn keeps an answer.
func (r *Ring) learn(p place, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to, from := r.good, r.bad
	if !a.found {
		to, from = from, to
	}
	from.Delete(p)
	to.Put(p, a, 1)
}

// askFrom asks, unless too many secrets that open nothing came from where this one does. A key that
// opened lately is asked about in any case.
func (r *Ring) askFrom(ctx context.Context, p place, t Token, good bool) (answer, error) {
	from := Source(access.OriginOf(ctx).Remote)
	if !good && !r.guesses.Take(from) {
		return answer{}, errs.New(errs.ResourceExhausted, ReasonGuessing, "too many unknown API keys were shown from this address").
			Hint("show a key that there is, or try again in a moment").RetryAfter(time.Second)
	}
	a, err := r.ask(ctx, p, t)
	if !good && (err != nil || a.opens(t)) {
		r.guesses.Give(from)
	}
	return a, err
}

// Source is what counts as one address: of IPv6 the network of 64 bits, which one caller has to itself.
func Source(remote string) string {
	ip, err := netip.ParseAddr(remote)
	if err != nil || ip.Unmap().Is4() {
		return remote
	}
	network, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return remote
	}
	return network.String()
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
		r.learn(p, a)
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
