package feed

import (
	"slices"
	"sync"
)

// hub passes events on to watchers: those of this process's runs, and ephemeral ones that come from other
// executors. It is only the fast way for durable ones: a watcher that misses an event reads it from the
// journal.
type hub struct {
	mu sync.RWMutex
	// runs are interested in one run, trees in the ephemeral events of all runs below a root.
	runs, trees map[string]map[sink]struct{}
	// saying are the attempts under way that have written text, by run, and sayingBelow by root.
	saying, sayingBelow map[string]map[*Said]struct{}
}

// sink takes events. It never blocks.
type sink interface {
	// put takes an event; far ones come from another executor. The caller holds the lock of the hub.
	put(ev Event, far bool)
	// wantsText reports whether ephemeral events are wanted.
	wantsText() bool
}

func newHub() *hub {
	return &hub{runs: map[string]map[sink]struct{}{}, trees: map[string]map[sink]struct{}{},
		saying: map[string]map[*Said]struct{}{}, sayingBelow: map[string]map[*Said]struct{}{}}
}

func (h *hub) publish(far bool, events ...Event) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	h.pass(far, events...)
}

// pass is publish for a caller that holds the lock.
func (h *hub) pass(far bool, events ...Event) {
	if len(h.runs) == 0 && len(h.trees) == 0 {
		return
	}
	for i := range events {
		ev := &events[i]
		of := h.runs[ev.RunID]
		for s := range of {
			s.put(*ev, far)
		}
		if ev.Durable != nil {
			continue
		}
		for s := range h.trees[ev.RootID] {
			if _, twice := of[s]; !twice {
				s.put(*ev, far)
			}
		}
	}
}

// watched reports whether somebody wants the ephemeral events of a run.
func (h *hub) watched(runID, rootID string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.trees[rootID]) > 0 {
		return true
	}
	for s := range h.runs[runID] {
		if s.wantsText() {
			return true
		}
	}
	return false
}

// ofRun adds a sink for a run, and calls with at the same instant unless it is nil. With recalls the sink
// gets what attempts have said so far.
func (h *hub) ofRun(id string, s sink, recalls bool, with func()) (undo func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	enter(h.runs, id, s)
	if with != nil {
		with()
	}
	if recalls && s.wantsText() {
		recall(h.saying[id], s)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		leave(h.runs, id, s)
	}
}

// ofTree adds a sink for the runs below a root, which gets what their attempts have said so far.
func (h *hub) ofTree(id string, s sink) (undo func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	enter(h.trees, id, s)
	recall(h.sayingBelow[id], s)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		leave(h.trees, id, s)
	}
}

// Bounds of what is kept in memory for a slow reader. One event is always kept.
const (
	maxHeld      = 1024
	maxHeldBytes = 1 << 20
	// maxMerged bounds a text that is made of several.
	maxMerged = 1 << 10
)

// buffer holds events for a reader. When it is full the older half of the ephemeral events gives way to a new
// one, while a durable event is left to the journal.
type buffer struct {
	mu     sync.Mutex
	events []Event
	bytes  int
	missed bool
}

func (b *buffer) add(ev Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.merge(ev) {
		return
	}
	n := ev.size()
	if !b.fits(n) && ev.Ephemeral != nil {
		b.shed()
	}
	switch {
	case b.fits(n):
		b.events = append(b.events, ev)
		b.bytes += n
	case ev.Durable != nil:
		b.missed = true
	}
}

func (b *buffer) fits(n int) bool {
	return len(b.events) == 0 || len(b.events) < maxHeld && b.bytes+n <= maxHeldBytes
}

// merge adds a text to the one before it, if both are of one attempt.
func (b *buffer) merge(ev Event) bool {
	if len(b.events) == 0 || ev.Ephemeral == nil || ev.Ephemeral.Text == "" {
		return false
	}
	last, e := &b.events[len(b.events)-1], ev.Ephemeral
	p := last.Ephemeral
	if p == nil || p.Text == "" || last.RunID != ev.RunID || p.Ref != e.Ref || p.Attempt != e.Attempt || p.Raw != e.Raw ||
		p.Offset+int64(len(p.Text)) != e.Offset || len(p.Text)+len(e.Text) > maxMerged {
		return false
	}
	both := *p // others hold it, too
	both.Text += e.Text
	last.Ephemeral = &both
	b.bytes += len(e.Text)
	return true
}

// shed drops the older half of the ephemeral events.
func (b *buffer) shed() {
	n := 0
	for i := range b.events {
		if b.events[i].Ephemeral != nil {
			n++
		}
	}
	n = (n + 1) / 2
	b.events = slices.DeleteFunc(b.events, func(ev Event) bool {
		if ev.Ephemeral == nil || n == 0 {
			return false
		}
		n--
		b.bytes -= ev.size()
		return true
	})
}

func (b *buffer) take() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	evs := b.events
	b.events, b.bytes, b.missed = nil, 0, false
	return evs
}

// subscription is the interest of one watcher in one run.
type subscription struct {
	buffer
	wake chan<- struct{}
	// after and durable limit what the watcher gets: only events after this sequence, and only durable
	// ones.
	after   int64
	durable bool
}

func (s *subscription) put(ev Event, _ bool) {
	if ev.Durable == nil && s.durable || ev.Durable != nil && ev.Durable.Seq <= s.after {
		return
	}
	s.add(ev)
	signal(s.wake)
}

func (s *subscription) wantsText() bool { return !s.durable }

// newcomers is the interest of a watcher in the runs below a root that it does not know yet.
type newcomers struct {
	buffer
	wake chan<- struct{}
	// known changes under the lock of the hub alone.
	known map[string]bool
}

func (n *newcomers) put(ev Event, _ bool) {
	if n.known[ev.RunID] {
		return
	}
	n.add(ev)
	signal(n.wake)
}

func (*newcomers) wantsText() bool { return true }

func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
