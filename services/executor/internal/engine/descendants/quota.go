// Package descendants bounds how many runs one root run may have below it. It counts runs through a
// function of its caller and knows no journal.
package descendants

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonDescendantQuota is the reason when a visit spawns more children than the quota of its root leaves.
const ReasonDescendantQuota = "DESCENDANT_QUOTA_EXCEEDED"

const (
	// grantShare and grantLeast size a grant: the part of a root's free quota, as a divisor, that is
	// granted before the next count, and its least size. Without the minimum every spawn near the bound
	// would count. countAge is how long a count is valid, and countAgePerRun by how much longer for each run
	// that it found, some thousand times what it takes: what a spawn costs does not grow with the root.
	grantShare     = 16
	grantLeast     = 64
	countAge       = 10 * time.Second
	countAgePerRun = 30 * time.Millisecond
	// countRest bounds how often a full root is counted: the pause after a count is this many times the
	// count's duration, and countRestMost at most.
	countRest     = 4
	countRestMost = 500 * time.Millisecond
	// recordTime is how long a requested child counts without being recorded. Its parent may have moved to
	// another executor, and then this one does not learn of the child.
	recordTime = time.Minute
	// spawnTries is how often a spawn that does not fit waits for children that are being recorded and may
	// be counted twice. spawnPause is the pause between two tries.
	spawnTries = 20
	spawnPause = 50 * time.Millisecond
)

// Runs are how many runs there are of one root, or how many there may be.
type Runs struct {
	// All are those that have ended, too, and Open those that have not.
	All, Open int
}

// with are the runs and so many more, which have not ended.
func (r Runs) with(more int) Runs { return Runs{r.All + more, r.Open + more} }

// Left is how many more runs there may be, which is negative if there are too many.
func (r Runs) Left(most Runs) int { return min(most.All-r.All, most.Open-r.Open) }

// Quota bounds how many runs one root may have below it. It counts recorded runs and adds those that this
// executor has admitted but not recorded yet. It does not see what other executors have admitted, so the
// bound may be exceeded by that much. One caller at a time counts a root, and callers that wait use its
// count. The zero value is usable. It is safe for concurrent use.
type Quota struct {
	mu    sync.Mutex
	roots map[string]*rootRuns
	swept time.Time
}

type rootRuns struct {
	// room is how many more children the last count allows. found are the root and what that count found
	// below it, at its time.
	room  int
	found Runs
	at    time.Time
	// starting are the admitted children that no count has found yet, with the time of their admission.
	// recorded are those of them that the next count will find if they exist.
	starting map[string]time.Time
	recorded []string
	// counting has an element while the root is counted. counts is the number of counts begun.
	counting chan struct{}
	counts   int
	expired  time.Time
	// again is when a full root may be counted again.
	again time.Time
}

// Admit reserves quota for children. If there is none, ok is false and runs are the present ones, the root
// included. count counts the runs below the root, up to a bound of all.
func (k *Quota) Admit(ctx context.Context, root string, children []workgraph.Child, most Runs, count func(most int) (Runs, error)) (runs Runs, ok bool, err error) {
	for try := 0; ; try++ {
		k.mu.Lock()
		f := k.of(root)
		arrived := f.counts
		runs, ok, full := f.takeLast(children, most)
		counting := f.counting
		k.mu.Unlock()
		if ok || full {
			return runs, ok, nil
		}
		select {
		case counting <- struct{}{}:
		case <-ctx.Done():
			return runs, false, context.Cause(ctx)
		}
		runs, ok, last, err := k.recount(root, children, most, arrived, count)
		<-counting
		if err != nil || ok || last || try == spawnTries {
			return runs, ok, err
		}
		if !sleep.For(ctx, spawnPause) {
			return runs, false, context.Cause(ctx)
		}
	}
}

// takeLast takes from the last count's room. full reports that the last count leaves no room. The caller
// holds k.mu.
func (f *rootRuns) takeLast(children []workgraph.Child, most Runs) (runs Runs, ok, full bool) {
	if time.Since(f.at) < f.age() && len(children) <= f.room {
		f.take(children)
		return f.found, true, false
	}
	return f.found, false, f.full(len(children), most)
}

// age is how long the last count is valid.
func (f *rootRuns) age() time.Duration {
	return max(countAge, time.Duration(f.found.All)*countAgePerRun)
}

// full reports that the last count leaves no room for children, and still holds. Runs end at any time, so
// that a count of too many open ones holds for a moment only.
func (f *rootRuns) full(children int, most Runs) bool {
	now := time.Now()
	if all := f.found.All + children; all <= most.All {
		return f.found.Left(most) < children && now.Before(f.again)
	}
	return now.Sub(f.at) < countAge
}

// recount counts the runs of the root and takes from the result. It does not count if another count has
// begun since arrived was read, unless that one failed. last reports that waiting makes no room. The caller
// holds the turn to count.
func (k *Quota) recount(root string, children []workgraph.Child, most Runs, arrived int, count func(most int) (Runs, error)) (runs Runs, ok, last bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.of(root)
	if runs, ok, last = f.takeLast(children, most); ok || last {
		return runs, ok, last, nil
	}
	found := f.recorded
	// After a failed count, callers that waited for it count again.
	if (f.counts == arrived || time.Since(f.at) >= f.age()) && f.needsCount(len(found), len(children), most) {
		f.counts++
		k.mu.Unlock()
		began := time.Now()
		below, err := count(most.All + 1)
		k.mu.Lock()
		if err != nil {
			return runs, false, true, err
		}
		f.found, f.at, f.room = below.with(1), time.Now(), 0
		f.again = f.at.Add(min(countRest*f.at.Sub(began), countRestMost))
		for _, id := range found {
			delete(f.starting, id)
		}
		f.recorded = slices.Clone(f.recorded[len(found):]) // more may have been recorded meanwhile
	}
	f.expire(time.Now())
	runs = f.found.with(len(f.starting))
	if left := runs.Left(most) - len(children); left >= 0 {
		f.room = min(left, max(left/grantShare, grantLeast)) + len(children)
		f.take(children)
		return runs, true, true, nil
	}
	return runs, false, f.found.Left(most) < len(children) || len(f.starting) == 0, nil
}

// needsCount reports whether a count may find more room than the last one: the last one is old, or left
// room, or would now find children that are counted twice. The caller holds k.mu.
func (f *rootRuns) needsCount(found, children int, most Runs) bool {
	now := time.Now()
	runs := f.found.with(len(f.starting) + children)
	if now.Sub(f.at) >= countAge || runs.Left(most) >= 0 {
		return true
	}
	return (found > 0 || runs.All <= most.All) && !now.Before(f.again)
}

// of returns the entry of a root and drops old entries. The caller holds k.mu.
func (k *Quota) of(root string) *rootRuns {
	now := time.Now()
	if k.roots == nil {
		k.roots = map[string]*rootRuns{}
	}
	if now.Sub(k.swept) > recordTime {
		k.swept = now
		for id, f := range k.roots {
			if f.expire(now); len(f.starting) == 0 && len(f.counting) == 0 && now.Sub(f.at) > f.age() {
				delete(k.roots, id)
			}
		}
	}
	f := k.roots[root]
	if f == nil {
		f = &rootRuns{starting: map[string]time.Time{}, counting: make(chan struct{}, 1)}
		k.roots[root] = f
	}
	return f
}

// expire drops admitted children that were not recorded within recordTime. Waiting callers call it often,
// so it looks once per spawnPause.
func (f *rootRuns) expire(now time.Time) {
	if now.Sub(f.expired) < spawnPause {
		return
	}
	f.expired = now
	maps.DeleteFunc(f.starting, func(_ string, asked time.Time) bool { return now.Sub(asked) > recordTime })
}

func (f *rootRuns) take(children []workgraph.Child) {
	f.room -= len(children)
	now := time.Now()
	for i := range children {
		f.starting[children[i].ID] = now
	}
}

// Recorded reports that an admitted child is recorded, or never will be, and need not be counted
// separately.
func (k *Quota) Recorded(root, child string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.roots[root]; f != nil {
		if _, ok := f.starting[child]; ok {
			f.recorded = append(f.recorded, child)
		}
	}
}
