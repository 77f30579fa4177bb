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

// maxKeptResets bounds what is remembered of visits that were taken back: each run counts as one, and each of
// its visits that was as another.
const maxKeptResets = 50_000

// resets remembers where visits of runs were taken back, so that a page of visits reads what was written
// since the last one instead of the whole history. It is safe for concurrent use.
type resets struct {
	mu    sync.Mutex
	byRun *lru.Cache[string, *resetsOf]
}

// resetsOf is what was found in a run's history up to an event. It is immutable.
type resetsOf struct {
	run string
	seq int64
	// last is where each visit was taken back for the last time.
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
		return // somebody has read further
	}
	r.byRun.Put(of.run, of, int64(1+len(of.last)))
}

// takenBack finds where visits were taken back for the last time: the list has each visit once, as the run
// has it now, so that what had ended before that is not shown. Only what follows from an approval is taken
// back after its end, so that nothing is read for a run that has asked nothing and reused nothing; of others
// the history is read once here, and after that what has come since.
func (q *Query) takenBack(ctx context.Context, row journal.Run) (map[workgraph.Ref]visitOrder, error) {
	if row.ForkedFrom == "" {
		asked, err := q.journal.ListInterrupts(ctx, row.Namespace, journal.InterruptFilter{RunID: row.ID}, page.Cursor{}, 1)
		if err != nil || len(asked) == 0 {
			return nil, err
		}
	}
	known := q.resets.get(row.ID)
	found := resetsOf{run: row.ID, seq: known.seq, last: known.last}
	own := false // whether last is a copy, since what is known must not change
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
		if len(evs) < chunk {
			break
		}
	}
	if found.seq > known.seq {
		q.resets.put(&found)
	}
	return found.last, nil
}
