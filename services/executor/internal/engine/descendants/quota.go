// Package descendants bounds how many runs one root run may have below it in all.
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

// ReasonDescendantQuota is the reason when a visit asks for children beyond what all runs of one root may be.
const ReasonDescendantQuota = "DESCENDANT_QUOTA_EXCEEDED"

const (
	// grantShare is the part of the room in a family, as its divisor, that is given out before the family is
	// counted again, grantLeast the least that is, while there is as much: else each spawn near to the bound
	// counts. countAge is how long a count is good.
	grantShare = 16
	grantLeast = 64
	countAge   = 10 * time.Second
	// countRest is how many times as long as a count took a family that is full by it is not counted again,
	// countRestMost the longest it is not.
	countRest     = 4
	countRestMost = 500 * time.Millisecond
	// recordTime is how long a child that was asked for counts though it is not recorded: if its parent went
	// on elsewhere nobody here hears of it.
	recordTime = time.Minute
	// spawnTries is how often a spawn that does not fit waits for those that are just being recorded, and may
	// count twice, spawnPause for how long.
	spawnTries = 20
	spawnPause = 50 * time.Millisecond
)

// Quota bounds how many runs one root may have below it in all. It counts what is recorded, and
// adds what this executor has asked for and not recorded yet. What other executors are just about to record
// it does not see: as much may come on top. Each family is counted by one at a time, and whoever waits
// meanwhile uses that count. The zero value is usable, and safe for concurrent use.
type Quota struct {
	mu    sync.Mutex
	roots map[string]*family
	swept time.Time
}

type family struct {
	// room is how many more may be given out by the last count, below what it found, at its time.
	room, below int
	at          time.Time
	// starting are children that no count has found yet, by the time at which they were asked for; recorded
	// are those of them that the next count finds, if they are there at all.
	starting map[string]time.Time
	recorded []string
	// counting is full while the family is counted, counts how many counts have begun.
	counting chan struct{}
	counts   int
	expired  time.Time
	// again is before when a family that is full is not counted again.
	again time.Time
}

// Admit reserves room for children, or reports how many runs there are when there is none. count counts the
// runs below the root, up to a number.
func (k *Quota) Admit(ctx context.Context, root string, children []workgraph.Child, most int, count func(most int) (int, error)) (runs int, ok bool, err error) {
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
			return 0, false, context.Cause(ctx)
		}
		runs, ok, last, err := k.recount(root, children, most, arrived, count)
		<-counting
		if err != nil || ok || last || try == spawnTries {
			return runs, ok, err
		}
		if !sleep.For(ctx, spawnPause) {
			return 0, false, context.Cause(ctx)
		}
	}
}

// takeLast takes room that the last count left, or reports that it was too full already. The caller holds
// k.mu.
func (f *family) takeLast(children []workgraph.Child, most int) (runs int, ok, full bool) {
	if time.Since(f.at) >= countAge {
		return 0, false, false
	}
	if len(children) <= f.room {
		f.take(children)
		return 0, true, false
	}
	return 1 + f.below, false, 1+f.below+len(children) > most
}

// recount counts the family and takes room. It does not count when another count has begun since arrived was
// read, unless that one failed. last says that waiting makes no room. The caller holds the turn to count.
func (k *Quota) recount(root string, children []workgraph.Child, most, arrived int, count func(most int) (int, error)) (runs int, ok, last bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.of(root)
	if runs, ok, last = f.takeLast(children, most); ok || last {
		return runs, ok, last, nil
	}
	found := f.recorded
	// A count that failed has told nothing: whoever waited for it counts again.
	if (f.counts == arrived || time.Since(f.at) >= countAge) && f.tells(len(found), len(children), most) {
		f.counts++
		k.mu.Unlock()
		began := time.Now()
		below, err := count(most + 1)
		k.mu.Lock()
		if err != nil {
			return 0, false, true, err
		}
		f.below, f.at, f.room = below, time.Now(), 0
		f.again = f.at.Add(min(countRest*f.at.Sub(began), countRestMost))
		for _, id := range found {
			delete(f.starting, id)
		}
		f.recorded = slices.Clone(f.recorded[len(found):]) // more may have come meanwhile
	}
	f.expire(time.Now())
	runs = 1 + f.below + len(f.starting)
	if runs+len(children) <= most {
		left := most - runs - len(children)
		f.room = min(left, max(left/grantShare, grantLeast)) + len(children)
		f.take(children)
		return runs, true, true, nil
	}
	return runs, false, 1+f.below+len(children) > most || len(f.starting) == 0, nil
}

// tells reports whether a count would tell more than the last one: it is old, or left room, or would find
// children that count twice until then. The caller holds k.mu.
func (f *family) tells(found, children, most int) bool {
	now := time.Now()
	if now.Sub(f.at) >= countAge || 1+f.below+len(f.starting)+children <= most {
		return true
	}
	return found > 0 && !now.Before(f.again)
}

// of is what is known of a root's family. What is old is forgotten on the way. The caller holds k.mu.
func (k *Quota) of(root string) *family {
	now := time.Now()
	if k.roots == nil {
		k.roots = map[string]*family{}
	}
	if now.Sub(k.swept) > recordTime {
		k.swept = now
		for id, f := range k.roots {
			if f.expire(now); len(f.starting) == 0 && len(f.counting) == 0 && now.Sub(f.at) > countAge {
				delete(k.roots, id)
			}
		}
	}
	f := k.roots[root]
	if f == nil {
		f = &family{starting: map[string]time.Time{}, counting: make(chan struct{}, 1)}
		k.roots[root] = f
	}
	return f
}

// expire forgets children that nobody has recorded for too long. Whoever waits calls it again and again: it
// looks once in spawnPause.
func (f *family) expire(now time.Time) {
	if now.Sub(f.expired) < spawnPause {
		return
	}
	f.expired = now
	maps.DeleteFunc(f.starting, func(_ string, asked time.Time) bool { return now.Sub(asked) > recordTime })
}

func (f *family) take(children []workgraph.Child) {
	f.room -= len(children)
	now := time.Now()
	for i := range children {
		f.starting[children[i].ID] = now
	}
}

// Recorded says that a child counts by itself from now on, or will never be there.
func (k *Quota) Recorded(root, child string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.roots[root]; f != nil {
		if _, ok := f.starting[child]; ok {
			f.recorded = append(f.recorded, child)
		}
	}
}
