package query

import (
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// maxTraceBytes bounds the cache of compared runs.
	maxTraceBytes = 32 << 20
	// tracedBytes is what a visit takes beside its texts.
	tracedBytes = 768
	// usageBytes is what the usage of one call takes.
	usageBytes = 256
)

// traces caches the visits of runs that were compared, so that a page of a comparison does not read both
// histories again. It is safe for concurrent use.
type traces struct {
	mu    sync.Mutex
	byRun *lru.Cache[string, *tracedRun]
}

func newTraces() *traces { return &traces{byRun: lru.New[string, *tracedRun](maxTraceBytes)} }

// get returns the visits of a run as its row has them, or nil.
func (c *traces) get(row journal.Run) *tracedRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.byRun.Get(row.ID); ok && t.seq == row.LastSeq {
		return t
	}
	return nil
}

// put keeps the visits of a run, which are immutable from then on.
func (c *traces) put(t *tracedRun) {
	weight := int64(0)
	for _, v := range t.visits {
		weight += tracedBytes + int64(len(v.Node)+len(v.Actor)+len(v.SkipMessage)) + usageBytes*int64(len(v.Usage))
		if v.Error != nil {
			weight += int64(len(v.Error.Message))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byRun.Put(t.run, t, weight)
}
