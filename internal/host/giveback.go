package host

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often a process looks for memory that it does not need any more.
	lookEvery = 10 * time.Second
	// keptMemory is how much more than its live heap the process keeps at least.
	keptMemory = 64 << 20
	// restShare is the largest part of its memory that a process at rest allocates between two looks: a small
	// load must not keep the memory of a large one.
	restShare = 4
	// restLooks is the number of looks at rest after which memory is returned once in any case: the known
	// size of the live heap is from the last collection, which may have been under load.
	restLooks = 3
	// againAfter is for how long a process at rest keeps what it still held after memory was last given back:
	// much of that may have become garbage since.
	againAfter = time.Minute
)

// GiveMemoryBack returns memory to the system when a process has come to rest after a time in which it needed
// much more than now, until ctx ends. Go by itself collects garbage of a process at rest every two minutes,
// and keeps what that frees up to the size at which it collects again, which is large where there is a limit.
func GiveMemoryBack(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var k memoryWatch
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if k.rests(readUsed()) {
			debug.FreeOSMemory()
			k.gaveBack(readUsed())
		}
	}
}

// used is what a process has of the system's memory.
type used struct {
	at time.Time
	// held is what it has, allocated all that was ever allocated, live what the last collection found alive.
	held, allocated, live uint64
}

func readUsed() used {
	s := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(s)
	return used{at: time.Now(), held: s[0].Value.Uint64() - s[1].Value.Uint64(), allocated: s[2].Value.Uint64(), live: s[3].Value.Uint64()}
}

// memoryWatch remembers the figures of the last look.
type memoryWatch struct {
	// last is the number of bytes allocated by then, least the memory held after the last return, which was
	// at gave.
	last, least uint64
	gave        time.Time
	// looks is how many looks in a row found the process at rest; more than restLooks once it has given back.
	looks int
}

// rests reports whether memory should be returned: little is allocated, and the process holds much more than
// after the last return or, when that is a while ago, than its live heap. At each rest it returns true once.
func (k *memoryWatch) rests(u used) bool {
	quiet := k.last > 0 && u.allocated-k.last < max(keptMemory, u.held/restShare)
	k.last = u.allocated
	if !quiet {
		k.looks = 0
		return false
	}
	k.looks++
	return muchMore(u.held, k.least) || k.looks == restLooks && u.held > 2*keptMemory ||
		u.at.Sub(k.gave) >= againAfter && muchMore(u.held, u.live)
}

func muchMore(held, needed uint64) bool { return held > needed+needed/2+keptMemory }

func (k *memoryWatch) gaveBack(u used) {
	k.least, k.last, k.gave, k.looks = u.held, u.allocated, u.at, restLooks
}
