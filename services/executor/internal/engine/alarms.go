package engine

import (
	"container/heap"
	"sync"
	"time"
)

// alarms are runs that this executor has claimed and not read yet, because their time is near but has not
// come. Each costs an id and a time, and one timer serves all. It is safe for concurrent use.
type alarms struct {
	ring func(namespace, id string)

	mu    sync.Mutex
	heap  alarmHeap
	timer *time.Timer
	over  bool
}

type alarm struct {
	at            time.Time
	namespace, id string
}

type alarmHeap []alarm

func (h alarmHeap) Len() int { return len(h) }

func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h alarmHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *alarmHeap) Push(x any) { *h = append(*h, x.(alarm)) }

func (h *alarmHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = alarm{}
	*h = old[:len(old)-1]
	return last
}

func newAlarms(ring func(namespace, id string)) *alarms { return &alarms{ring: ring} }

func (a *alarms) set(namespace, id string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	heap.Push(&a.heap, alarm{at, namespace, id})
	a.arm()
}

// arm sets the timer to the first alarm. The caller holds a.mu.
func (a *alarms) arm() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if len(a.heap) > 0 && !a.over {
		a.timer = time.AfterFunc(time.Until(a.heap[0].at), a.due)
	}
}

func (a *alarms) due() {
	a.mu.Lock()
	var due []alarm
	for now := time.Now(); len(a.heap) > 0 && !a.heap[0].at.After(now); {
		due = append(due, heap.Pop(&a.heap).(alarm))
	}
	a.arm()
	a.mu.Unlock()
	for _, x := range due {
		a.ring(x.namespace, x.id)
	}
}

func (a *alarms) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.heap = true, nil
	a.arm()
}
