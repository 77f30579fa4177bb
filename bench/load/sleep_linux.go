package load

import (
	"container/heap"
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Sleep pauses the goroutine for d, as a node that waits for something outside does: the kernel's timer makes
// a descriptor readable at the instant. time.Sleep wakes a process that has nothing else to do at whole
// milliseconds, up to 1 ms late, which is as much as an engine may cost at each level of a graph.
func Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	a := theAlarm()
	if a == nil {
		time.Sleep(d)
		return
	}
	<-a.add(time.Now().Add(d))
}

// theAlarm is the alarm of the process; nil if the kernel has none.
var theAlarm = sync.OnceValue(newAlarm)

// alarm is a kernel timer that is always set to the earliest of those who sleep.
type alarm struct {
	fd   int
	file *os.File // of fd, so that the runtime waits for it as for a connection

	mu       sync.Mutex
	sleepers sleepers
}

func newAlarm() *alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	a := &alarm{fd: fd, file: os.NewFile(uintptr(fd), "alarm")}
	go a.run()
	return a
}

func (a *alarm) add(due time.Time) <-chan struct{} {
	s := sleeper{due: due, done: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	heap.Push(&a.sleepers, s)
	if a.sleepers[0].done == s.done {
		a.set()
	}
	return s.done
}

// set sets the timer to the earliest sleeper. The caller holds a.mu.
func (a *alarm) set() {
	in := max(time.Until(a.sleepers[0].due), 1)
	if err := unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(in.Nanoseconds())}, nil); err != nil {
		panic(err) // the descriptor is ours and the time positive
	}
}

func (a *alarm) run() {
	for {
		if err := binary.Read(a.file, binary.NativeEndian, new(uint64)); err != nil {
			panic(err) // as in set
		}
		a.mu.Lock()
		for now := time.Now(); len(a.sleepers) > 0 && !a.sleepers[0].due.After(now); {
			close(heap.Pop(&a.sleepers).(sleeper).done)
		}
		if len(a.sleepers) > 0 {
			a.set()
		}
		a.mu.Unlock()
	}
}

type sleeper struct {
	due  time.Time
	done chan struct{}
}

// sleepers is a heap, the earliest first.
type sleepers []sleeper

func (s sleepers) Len() int           { return len(s) }
func (s sleepers) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s sleepers) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *sleepers) Push(x any)        { *s = append(*s, x.(sleeper)) }
func (s *sleepers) Pop() any {
	old := *s
	last := old[len(old)-1]
	*s = old[:len(old)-1]
	return last
}
