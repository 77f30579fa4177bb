package workgraph

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/lru"
)

// maxKeptOutcomes bounds the memory of outcomes that runs in memory reuse.
const maxKeptOutcomes = 16 << 20

// OutcomeCache keeps what calls of nodes with a cache gave, for equal calls to reuse. It is bounded: what was not used for the
// longest time goes first. It reads no clock and is safe for concurrent use.
type OutcomeCache struct {
	maxBytes int

	mu    sync.Mutex
	byKey *lru.Cache[string, cachedOutcome]
}

type cachedOutcome struct {
	out   Outcome
	until time.Time
}

// NewOutcomeCache returns an empty cache for about so many bytes of values.
func NewOutcomeCache(maxBytes int) *OutcomeCache {
	return &OutcomeCache{maxBytes: maxBytes, byKey: lru.New[string, cachedOutcome](int64(maxBytes))}
}

// CacheKey is the same exactly for calls of one actor with equal input: arguments, sources, messages and thread, wherever in
// whatever run they are made. The scope is what else tells calls apart: a tenant, the actor's version and, for an actor that
// SeesPlace, the visit. It is empty when the call may not be answered from a cache: the node has none, or this is not the first
// attempt, which is made because a result was not good enough.
func (s *Start) CacheKey(scope ...string) string {
	if s.CacheTTL <= 0 || s.Effect != Pure && s.Effect != Idempotent || s.Attempt > 1 {
		return ""
	}
	raw, err := json.Marshal([]any{scope, s.Actor, s.Kind, s.Thread, s.Args, s.Named, s.Upstream, s.Messages})
	if err != nil {
		return "" // an argument that is no JSON; its actor will say so
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Get returns what an equal call gave, if that may still be used. No usage comes with it, since nothing was called.
func (c *OutcomeCache) Get(key string, now time.Time) (Outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.byKey.Get(key)
	if ok && !now.Before(kept.until) {
		c.byKey.Delete(key)
		return Outcome{}, false
	}
	return kept.out, ok
}

// Put keeps an outcome until then. One that waits, or that is too large, is not kept.
func (c *OutcomeCache) Put(key string, out Outcome, until time.Time) {
	size := len(key)
	for _, v := range out.Values {
		size += len(v)
	}
	for k, v := range out.State {
		size += len(k) + len(v)
	}
	if key == "" || out.Wait != nil || out.Expand != nil || size > c.maxBytes/4 {
		return
	}
	out.Usage = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey.Put(key, cachedOutcome{out, until}, int64(size))
}
