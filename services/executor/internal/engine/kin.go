package engine

import (
	"context"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonFamilyExceeded is the reason when a visit asks for children beyond what all runs of one root may be.
const ReasonFamilyExceeded = "FAMILY_EXCEEDED"

const (
	// kinShare is the part of the room in a family, as its divisor, that is given out before the family is counted again: far from the bound
	// counts are few, near to it each spawn counts. kinFor is how long a count is good.
	kinShare = 16
	kinFor   = 10 * time.Second
	// kinStart is how long a child that was asked for counts though it is not recorded: if its parent went on elsewhere nobody here hears of it.
	kinStart = time.Minute
	// kinTries is how often a spawn that does not fit waits for those that are just being recorded, and may count twice, kinPause for how long.
	kinTries = 20
	kinPause = 50 * time.Millisecond
)

// kin bounds how many runs one root may have below it in all. It counts what is recorded, and adds what this executor has asked for and not recorded
// yet. What other executors are just about to record it does not see: as much may come on top. The zero value is usable, and safe for concurrent use.
type kin struct {
	mu       sync.Mutex
	families map[string]*kinship
	swept    time.Time
}

type kinship struct {
	// room is how many more may be given out by the last count.
	room int
	at   time.Time
	// starting are children that are not recorded yet, with the time when they were asked for.
	starting map[string]time.Time
}

// admit reserves room for children, or reports how many runs there are when there is none. count counts the runs below the root, up to a number.
func (k *kin) admit(ctx context.Context, root string, children []workgraph.Child, most int, count func(most int) (int, error)) (runs int, ok bool, err error) {
	for try := 0; ; try++ {
		k.mu.Lock()
		f := k.of(root)
		if time.Since(f.at) < kinFor && len(children) <= f.room {
			f.take(children)
			k.mu.Unlock()
			return 0, true, nil
		}
		before := make(map[string]bool, len(f.starting))
		for id := range f.starting {
			before[id] = true
		}
		k.mu.Unlock()
		below, err := count(most + 1)
		if err != nil {
			return 0, false, err
		}
		k.mu.Lock()
		f = k.of(root)
		for id := range f.starting {
			before[id] = true
		}
		runs = 1 + below + len(before)
		if runs+len(children) <= most {
			f.room, f.at = (most-runs-len(children))/kinShare+len(children), time.Now()
			f.take(children)
			k.mu.Unlock()
			return runs, true, nil
		}
		f.room = 0
		k.mu.Unlock()
		if len(before) == 0 || try == kinTries {
			return runs, false, nil
		}
		pause := time.NewTimer(kinPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return 0, false, ctx.Err()
		}
	}
}

// of is what is known of a root's family. What is old is forgotten on the way. The caller holds k.mu.
func (k *kin) of(root string) *kinship {
	now := time.Now()
	if k.families == nil {
		k.families = map[string]*kinship{}
	}
	if now.Sub(k.swept) > kinStart {
		k.swept = now
		for id, f := range k.families {
			if f.expire(now); len(f.starting) == 0 && now.Sub(f.at) > kinFor {
				delete(k.families, id)
			}
		}
	}
	f := k.families[root]
	if f == nil {
		f = &kinship{starting: map[string]time.Time{}}
		k.families[root] = f
	}
	return f
}

func (f *kinship) expire(now time.Time) {
	for id, at := range f.starting {
		if now.Sub(at) > kinStart {
			delete(f.starting, id)
		}
	}
}

func (f *kinship) take(children []workgraph.Child) {
	f.room -= len(children)
	now := time.Now()
	for i := range children {
		f.starting[children[i].ID] = now
	}
}

// recorded says that a child counts by itself from now on, or will never be there.
func (k *kin) recorded(root, child string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.families[root]; f != nil {
		delete(f.starting, child)
	}
}
