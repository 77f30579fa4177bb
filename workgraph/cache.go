package workgraph

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"
)

// maxKeptOutcomes bounds the memory of outcomes that runs in memory reuse.
const maxKeptOutcomes = 16 << 20

// OutcomeCache keeps what calls of nodes with a cache gave, for equal calls to reuse. It is bounded: what was not used for the
// longest time goes first. It reads no clock and is safe for concurrent use.
type OutcomeCache struct {
	maxBytes int

	mu    sync.Mutex
	byKey map[string]*list.Element
	used  list.List // of *cachedOutcome, the last used first
	bytes int
}

type cachedOutcome struct {
	key   string
	out   Outcome
	until time.Time
	size  int
}

// NewOutcomeCache returns an empty cache for about so many bytes of values.
func NewOutcomeCache(maxBytes int) *OutcomeCache {
	return &OutcomeCache{maxBytes: maxBytes, byKey: map[string]*list.Element{}}
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
	el := c.byKey[key]
	if el == nil {
		return Outcome{}, false
	}
	kept := el.Value.(*cachedOutcome)
	if !now.Before(kept.until) {
		c.drop(el)
		return Outcome{}, false
	}
	c.used.MoveToFront(el)
	return kept.out, true
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
	if el := c.byKey[key]; el != nil {
		c.drop(el)
	}
	c.byKey[key] = c.used.PushFront(&cachedOutcome{key, out, until, size})
	for c.bytes += size; c.bytes > c.maxBytes; {
		c.drop(c.used.Back())
	}
}

func (c *OutcomeCache) drop(el *list.Element) {
	kept := c.used.Remove(el).(*cachedOutcome)
	delete(c.byKey, kept.key)
	c.bytes -= kept.size
}
