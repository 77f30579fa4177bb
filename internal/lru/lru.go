// Package lru owns the one cache that drops the least recently used values. It must not know the values, the
// meaning of their weights or its users. It is pure: it reads no clock and takes no locks, so that the pure
// packages may import it.
//
// It is written here because kept libraries bound the number of values (golang-lru) or have goroutines and a
// clock of their own (otter, ristretto).
package lru

// Cache keeps values up to a weight. It is not safe for concurrent use: most of its users look and change in
// one step, under a lock of their own. Make it by New.
type Cache[K comparable, V any] struct {
	most, weight int64
	byKey        map[K]*entry[K, V]
	ring         entry[K, V] // older than it is the last used entry, newer the first to go
	dropped      func(K, V)
}

type entry[K comparable, V any] struct {
	key          K
	value        V
	weight       int64
	newer, older *entry[K, V]
}

// New returns an empty cache for values that weigh up to most together.
func New[K comparable, V any](most int64) *Cache[K, V] {
	c := &Cache[K, V]{most: most, byKey: map[K]*entry[K, V]{}}
	c.ring.newer, c.ring.older = &c.ring, &c.ring
	return c
}

// OnDrop has f called with all that leaves the cache, replaced values too. It must not use the cache.
func (c *Cache[K, V]) OnDrop(f func(K, V)) { c.dropped = f }

// Get returns the value under the key, and counts as a use.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	e := c.byKey[key]
	if e == nil {
		var none V
		return none, false
	}
	if c.ring.older != e {
		e.unlink()
		c.front(e)
	}
	return e.value, true
}

// Put keeps a value in the place of the one that has the key, and forgets others until all weigh no more than
// they may. A value that weighs more than that alone is not kept.
func (c *Cache[K, V]) Put(key K, v V, weight int64) {
	c.Delete(key)
	if weight > c.most {
		return
	}
	e := &entry[K, V]{key: key, value: v, weight: weight}
	c.byKey[key] = e
	c.front(e)
	for c.weight += weight; c.weight > c.most; {
		c.drop(c.ring.newer)
	}
}

// Delete removes the value under the key, if there is one.
func (c *Cache[K, V]) Delete(key K) {
	if e := c.byKey[key]; e != nil {
		c.drop(e)
	}
}

// Len is how many values are kept.
func (c *Cache[K, V]) Len() int { return len(c.byKey) }

// Weight is what they weigh together.
func (c *Cache[K, V]) Weight() int64 { return c.weight }

func (c *Cache[K, V]) drop(e *entry[K, V]) {
	e.unlink()
	delete(c.byKey, e.key)
	c.weight -= e.weight
	if c.dropped != nil {
		c.dropped(e.key, e.value)
	}
}

func (c *Cache[K, V]) front(e *entry[K, V]) {
	e.newer, e.older = &c.ring, c.ring.older
	e.newer.older, e.older.newer = e, e
}

func (e *entry[K, V]) unlink() { e.newer.older, e.older.newer = e.older, e.newer }
