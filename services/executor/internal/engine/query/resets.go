package query

import (
	"context"
	"maps"
	"sync"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxKeptResets bounds the cache. A run counts as one, and each of its reset visits as another.
const maxKeptResets = 50_000

// resets caches where visits of runs were reset, so that a page of visits reads only the events since the
// last page. It is safe for concurrent use.
type resets struct {
	mu    sync.Mutex
	byRun *lru.Cache[string, *resetsOf]
}

// resetsOf are the resets in a run's history up to an event. It is immutable.
type resetsOf struct {
	run string
	seq int64
	// last is the last reset of each visit.
	last map[workgraph.Ref]visitOrder
}

func newResets() *resets { return &resets{byRun: lru.New[string, *resetsOf](maxKeptResets)} }

func (r *resets) get(run string) *resetsOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of, ok := r.byRun.Get(run); ok {
		return of
	}
	return &resetsOf{run: run}
}

func (r *resets) put(of *resetsOf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, ok := r.byRun.Get(of.run); ok && was.seq >= of.seq {
		return // another reader has read further
	}
	r.byRun.Put(of.run, of, int64(1+len(of.last)))
}

// lastResets returns the last reset of each visit. The list of visits shows each visit once, in its present
// form, so visits that ended before their reset are left out. Only visits that follow from an approval are
// reset after their end, so nothing is read for a run without interrupts and reused visits. For other runs
// the history is read once, and later only its new events.
func (q *Query) lastResets(ctx context.Context, row journal.Run) (map[workgraph.Ref]visitOrder, error) {
	if row.ForkedFrom == "" {
		asked, err := q.journal.ListInterrupts(ctx, row.Namespace, journal.InterruptFilter{RunID: row.ID}, page.Cursor{}, 1)
		if err != nil || len(asked) == 0 {
			return nil, err
		}
	}
	known := q.resets.get(row.ID)
	found := resetsOf{run: row.ID, seq: known.seq, last: known.last}
	own := false // whether last is a copy: cached values must not change
	const chunk = 500
	for {
		evs, err := q.engine.Feed().Events(ctx, row, found.seq, chunk)
		if err != nil {
			return nil, err
		}
		for _, ev := range evs {
			d := ev.Durable
			found.seq = d.Seq
			for i := range d.Steps {
				s := &d.Steps[i]
				if s.Op != workgraph.OpReset && s.Op != workgraph.OpReopen {
					continue
				}
				if !own {
					found.last, own = maps.Clone(found.last), true
				}
				if found.last == nil {
					found.last = map[workgraph.Ref]visitOrder{}
				}
				found.last[workgraph.Ref{Node: s.Node, Visit: s.Visit}] = visitOrder{d.Seq, i}
			}
		}
		if len(evs) == 0 || found.seq >= row.LastSeq {
			break
		}
	}
	if found.seq > known.seq {
		q.resets.put(&found)
	}
	return found.last, nil
}
