package offload

import (
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// cache keeps what was read last, up to a number of bytes. It is safe for concurrent use.
type cache struct {
	mu   sync.Mutex
	kept *lru.Cache[journal.BlobName, []byte]
}

func newCache(limit int) *cache {
	return &cache{kept: lru.New[journal.BlobName, []byte](int64(limit))}
}

func (c *cache) get(key journal.BlobName) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, _ := c.kept.Get(key)
	return data
}

func (c *cache) put(key journal.BlobName, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Put(key, data, int64(len(data)))
}
