// Package bucket owns token buckets that are kept by key: how often each key may do something. It must
// not know what that is.
package bucket

import (
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/lru"
)

// Buckets has a bucket for each key that was seen lately. A key that is forgotten, because of too many
// others, begins again with a full one. It is safe for concurrent use.
type Buckets[K comparable] struct {
	perSecond, burst float64

	mu   sync.Mutex
	kept *lru.Cache[K, *bucket]
}

type bucket struct {
	tokens float64
	at     time.Time
	left   int64
}

// New returns buckets of burst tokens each, to which perSecond are added in a second. keys is how many are
// kept.
func New[K comparable](perSecond, burst float64, keys int64) *Buckets[K] {
	return &Buckets[K]{perSecond: perSecond, burst: burst, kept: lru.New[K, *bucket](keys)}
}

// Take takes a token of a key. ok is false if it has none; then the refusal is counted.
func (b *Buckets[K]) Take(key K) (ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	k, found := b.kept.Get(key)
	if !found {
		k = &bucket{tokens: b.burst, at: now}
		b.kept.Put(key, k, 1)
	}
	k.tokens, k.at = min(b.burst, k.tokens+b.perSecond*now.Sub(k.at).Seconds()), now
	if k.tokens < 1 {
		k.left++
		return false
	}
	k.tokens--
	return true
}

// Give gives a token of a key back.
func (b *Buckets[K]) Give(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k, found := b.kept.Get(key); found {
		k.tokens = min(b.burst, k.tokens+1)
	}
}

// Left returns how often Take refused the key since the last call of Left.
func (b *Buckets[K]) Left(key K) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, found := b.kept.Get(key)
	if !found {
		return 0
	}
	n := k.left
	k.left = 0
	return n
}
