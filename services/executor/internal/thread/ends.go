package thread

import (
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxEnds is how many threads an Ends remembers.
const maxEnds = 10_000

// Ends remembers where threads end to which an executor appended, so that it need not ask before it appends
// again. What it knows may be outdated: the commit decides. It is safe for concurrent use; nil knows nothing.
type Ends struct {
	mu   sync.Mutex
	last *lru.Cache[nameKey, int64]
}

// NewEnds returns an empty Ends.
func NewEnds() *Ends { return &Ends{last: lru.New[nameKey, int64](maxEnds)} }

// Committed notes appends that are durable.
func (e *Ends) Committed(namespace string, as []Append) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range as {
		e.last.Put(nameKey{namespace, as[i].Thread}, as[i].Last(), 1)
	}
}

// Refused forgets the threads of appends that were refused.
func (e *Ends) Refused(namespace string, as []Append) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range as {
		e.last.Delete(nameKey{namespace, as[i].Thread})
	}
}

// allow reports whether all threads are known to end where an outcome appends.
func (e *Ends) allow(namespace string, of []workgraph.ThreadAppend) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range of {
		a := &of[i]
		last, ok := e.last.Get(nameKey{namespace, a.Thread})
		for _, b := range of[:i] {
			if b.Thread == a.Thread {
				last = b.After + int64(len(b.Items))
			}
		}
		if !ok || a.Create != nil || last != a.After {
			return false
		}
	}
	return true
}
