package workgraph

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/lru"
)

// maxKeptOutcomes bounds, in bytes, the outcomes that in-memory runs of one program keep for reuse.
const maxKeptOutcomes = 16 << 20

// OutcomeCache keeps outcomes of nodes with a cache, for equal calls to reuse. Its size is bounded; the least
// recently used outcome goes first. It reads no clock and is safe for concurrent use.
type OutcomeCache struct {
	maxBytes int

	mu    sync.Mutex
	byKey *lru.Cache[string, cachedOutcome]
}

type cachedOutcome struct {
	out   Outcome
	until time.Time
}

// NewOutcomeCache returns an empty cache for about maxBytes bytes of values.
func NewOutcomeCache(maxBytes int) *OutcomeCache {
	return &OutcomeCache{maxBytes: maxBytes, byKey: lru.New[string, cachedOutcome](int64(maxBytes))}
}

// MayBeCached reports whether the call may be answered from a cache: its node has one, and this is the first
// attempt. Further ones are made because an earlier result was not good enough.
func (s *Start) MayBeCached() bool {
	return s.Cache != nil && s.Cache.TTL > 0 && (s.Effect == Pure || s.Effect == Idempotent) && s.Attempt <= 1
}

// CacheKey is equal exactly for calls of one actor with equal input, arguments, sources and messages, for
// whom the scope of the node's cache does not tell apart, in any run. others is what else tells calls apart:
// a tenant, the actor's version and, for an actor that SeesPlace, the visit. If own is not nil it takes the
// place of the input. The key is empty if the call may not be answered from a cache.
func (s *Start) CacheKey(own json.RawMessage, others ...string) string {
	if !s.MayBeCached() {
		return ""
	}
	input := []any{s.Args, s.Named, s.Upstream, s.Messages}
	if own != nil {
		input = []any{"key", own, s.Own}
	}
	raw, err := json.Marshal([]any{others, s.forWhom(), s.Actor, s.Kind, input})
	if err != nil {
		return "" // an argument is not JSON; its actor reports that
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// forWhom is what tells apart for whom calls are made. Its length is that of the scope, so that no two scopes
// share an outcome.
func (s *Start) forWhom() []string {
	switch s.Cache.Scope {
	case CacheForNamespace:
		return []string{}
	case CacheForUser:
		return []string{s.UserID}
	}
	return []string{s.UserID, s.ChatID, s.Thread}
}

// Get returns the outcome of an equal call if it is still valid. It has no usage, since nothing was called.
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

// Put keeps an outcome until the given time. An outcome that waits, expands, has items for threads or is too
// large is not kept.
func (c *OutcomeCache) Put(key string, out Outcome, until time.Time) {
	size := len(key)
	for _, v := range out.Values {
		size += len(v)
	}
	for k, v := range out.State {
		size += len(k) + len(v)
	}
	if key == "" || out.Wait != nil || out.Expand != nil || len(out.Threads) > 0 || size > c.maxBytes/4 {
		return
	}
	out.Usage = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey.Put(key, cachedOutcome{out, until}, int64(size))
}
