package socket

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

const (
	// ringEvents and ringBytes bound what a hub keeps of the newest events, for those who come with
	// a cursor close behind them.
	ringEvents, ringBytes = 1024, 1 << 20
	// firstPause and lastPause bound the pause before a series is followed again that broke off.
	firstPause, lastPause = 50 * time.Millisecond, 5 * time.Second
)

// source is where the events of a hub come from.
type source interface {
	// watch gives the events behind a position until ctx ends or the source breaks off. nil begins
	// where the source begins by itself. As soon as the source has not refused the watch, it calls
	// begin with where it begins. The error is io.EOF after the last event.
	watch(ctx context.Context, from position, begin func(position), take func(*event)) error
	// replay gives the events of a channel behind a position, which it moves with what it gave. Now
	// and then it calls on, also in silence, and stops if that says so. The events are the caller's.
	replay(ctx context.Context, channel string, at position, give func(*event) error, on func() (stop bool)) error
	// cursor is what stands for a position, as clients know it.
	cursor(position) string
}

// hub follows one source for all who listen to one of its channels on this gateway. Its events are
// told in their order; who has no room for one goes on by reading what it missed. It is safe for
// concurrent use.
type hub struct {
	server *Server
	key    hubKey
	src    source
	stop   context.CancelFunc
	// uses counts subscriptions; the server's lock is held for it.
	uses int

	mu   sync.Mutex
	subs map[string]map[*subscription]struct{}
	// begun is closed when it is known where the hub begins: head is how far it has come, and gone
	// what the ring does not have any more.
	begun      chan struct{}
	head, gone position
	// shared says that somebody reads head without the lock, so that it is copied before it changes.
	shared    bool
	ring      []*event
	ringBytes int64
	// dead says that nobody uses it any more, over that the source has ended, failed why it cannot
	// be followed.
	dead   bool
	over   bool
	failed error
}

func newHub(s *Server, key hubKey, src source) *hub {
	return &hub{server: s, key: key, src: src, subs: map[string]map[*subscription]struct{}{}, begun: make(chan struct{})}
}

// begin says where the hub begins, once.
func (h *hub) begin(from position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.head == nil {
		h.head, h.gone = from.clone(), from.clone()
		close(h.begun)
	}
}

func (h *hub) position() position {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.head == nil {
		return nil
	}
	return h.head.clone()
}

// reaches reports whether the hub has come to a position.
func (h *hub) reaches(at position) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.head.reaches(at)
}

// follow takes the events of the source until ctx ends. A source that breaks off is followed again
// from where it was.
func (h *hub) follow(ctx context.Context) {
	pause := firstPause
	for {
		began := time.Now()
		err := h.src.watch(ctx, h.position(), h.begin, h.take)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, io.EOF):
			h.finish()
			return
		case final(err):
			h.end(err)
			return
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		h.server.Log.DebugContext(ctx, "events are followed again", "err", err)
		if !sleep.For(ctx, pause/2+rand.N(pause)) { //nolint:gosec // a pause needs no secret
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// reasonTooManyWatches is the reason of executors and registries that watch as much for a namespace
// as they may.
const reasonTooManyWatches = "TOO_MANY_WATCHES"

// final reports whether trying again would end in the same way. Whether there is room for one more
// watch is up to the clients, who must hear of it.
func final(err error) bool {
	if errs.ReasonOf(err) == reasonTooManyWatches {
		return true
	}
	switch errs.From(err).Kind {
	case errs.NotFound, errs.FailedPrecondition, errs.InvalidArgument, errs.PermissionDenied, errs.Unauthenticated:
		return true
	}
	return false
}

// take tells an event to those who listen.
func (h *hub) take(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.seq > 0 && e.seq <= h.head[e.series] {
		return
	}
	if h.dead {
		return
	}
	size := e.size()
	held := h.server.Budget.Try(h.key.namespace, size)
	e.hold = newHold(func() {
		if held {
			h.server.Budget.Add(h.key.namespace, -size)
		}
	})
	defer e.hold.release()
	h.tell(e, held)
	if e.seq == 0 {
		return
	}
	if h.shared {
		h.head, h.shared = h.head.clone(), false
	}
	h.head[e.series] = e.seq
	if !held {
		// Who has not seen it reads it.
		h.drop(len(h.ring))
		h.gone[e.series] = e.seq
		return
	}
	e.hold.keep()
	h.ring = append(h.ring, e)
	h.ringBytes += size
	n := 0
	for left := h.ringBytes; n < len(h.ring) && (left > ringBytes || len(h.ring)-n > ringEvents); n++ {
		left -= h.ring[n].size()
	}
	h.drop(n)
}

// drop forgets the oldest events. The lock is held.
func (h *hub) drop(n int) {
	for i, e := range h.ring[:n] {
		h.gone[e.series] = e.seq
		h.ringBytes -= e.size()
		e.hold.release()
		h.ring[i] = nil
	}
	h.ring = h.ring[n:]
	if len(h.ring) == 0 {
		h.ring = nil
	}
}

// tell offers an event to all who get it, if it is held. The lock is held.
func (h *hub) tell(e *event, held bool) {
	each := func(channel string) {
		subs := h.subs[channel]
		if len(subs) == 0 {
			return
		}
		for s := range subs {
			if s.ahead != nil && h.head.reaches(s.ahead) {
				s.ahead = nil
			}
			switch {
			case e.seq > 0 && e.seq <= s.ahead[e.series]:
			case held && s.client.offer(s, e, e.messagesTo(channel, h.key.run, s.ahead)):
			case e.seq > 0: // what has no sequence may be lost
				delete(subs, s)
				h.shared = true
				s.lag(h.head)
			}
		}
	}
	if e.channels == nil {
		for channel := range h.subs {
			each(channel)
		}
		return
	}
	for _, channel := range e.channels {
		each(channel)
	}
}

// join adds a subscription to those who listen, if everything behind its position is in the ring or
// is to come, and tells it what is there. full says that there was no room for all of that; from moves
// with what was told, and belongs to the hub once the subscription has joined.
func (h *hub) join(s *subscription, from position) (joined, full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !from.reaches(h.gone) {
		return false, false
	}
	for _, e := range h.ring {
		if e.seq <= from[e.series] {
			continue
		}
		if e.channels == nil || slices.Contains(e.channels, s.channel) {
			if !s.client.offer(s, e, e.messagesTo(s.channel, h.key.run, from)) {
				return false, true
			}
		}
		from[e.series] = e.seq
	}
	s.ahead = nil
	if !h.head.reaches(from) {
		s.ahead = from
	}
	if h.over {
		s.client.control(s, message("end", s.channel, time.Now(), h.src.cursor(from), nil, false))
	}
	if h.subs[s.channel] == nil {
		h.subs[s.channel] = map[*subscription]struct{}{}
	}
	h.subs[s.channel][s] = struct{}{}
	return true, false
}

func (h *hub) leave(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if subs := h.subs[s.channel]; subs != nil {
		delete(subs, s)
		if len(subs) == 0 {
			delete(h.subs, s.channel)
		}
	}
}

// end ends the hub with the error for which its source cannot be followed. Who comes next gets
// another hub.
func (h *hub) end(err error) {
	h.server.forget(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = err
	h.drop(len(h.ring))
	if h.head == nil {
		h.head, h.gone = position{}, position{}
		close(h.begun)
	}
	for _, subs := range h.subs {
		for s := range subs {
			h.server.work.Go(func() { s.fail(err) })
		}
	}
	clear(h.subs)
}

// finish tells that nothing comes any more.
func (h *hub) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for channel, subs := range h.subs {
		for s := range subs {
			s.client.control(s, message("end", channel, time.Now(), h.src.cursor(h.head), nil, false))
		}
	}
}

// clear gives back what the ring holds.
func (h *hub) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	h.drop(len(h.ring))
}

func (h *hub) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}
