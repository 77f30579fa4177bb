package stash

import (
	"container/list"
	"sync"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// cache keeps what was read last, up to a number of bytes.
type cache struct {
	max int

	mu    sync.Mutex
	bytes int
	order *list.List // of cached, the latest first
	at    map[journal.BlobName]*list.Element
}

type cached struct {
	key  journal.BlobName
	data []byte
}

func newCache(limit int) *cache {
	return &cache{max: limit, order: list.New(), at: map[journal.BlobName]*list.Element{}}
}

func (c *cache) get(key journal.BlobName) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[key]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(cached).data
}

func (c *cache) put(key journal.BlobName, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[key] != nil || len(data) > c.max {
		return
	}
	c.at[key] = c.order.PushFront(cached{key, data})
	for c.bytes += len(data); c.bytes > c.max; {
		e := c.order.Back()
		old := c.order.Remove(e).(cached)
		delete(c.at, old.key)
		c.bytes -= len(old.data)
	}
}
