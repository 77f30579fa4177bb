package socket

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

// subscription is one channel of one connection. Either its hub tells it events, or one goroutine
// reads what it has missed.
type subscription struct {
	client *client
	// channel is as the client wrote it, of a kind and with a name.
	channel, kind, name string

	ctx    context.Context //nolint:containedctx // it ends with the subscription
	cancel context.CancelFunc

	// gone says that the client does not want it any more; the client's lock is held for it.
	gone bool
	// ahead is a position that the hub has not come to; the hub's lock is held for it.
	ahead position

	mu    sync.Mutex
	hub   *hub
	ended bool
}

// begin finds the hub and goes on from a cursor, or from now on. A run goes on from its beginning.
func (s *subscription) begin(from position) {
	c := s.client
	if from == nil {
		if err := c.known(s.ctx, s.kind, s.name); err != nil {
			s.fail(err)
			return
		}
	}
	h, err := c.Server.enter(hubKey{namespace: c.namespace, run: s.run()}, from)
	if err != nil {
		s.fail(err)
		return
	}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		c.Server.leave(h)
		return
	}
	s.hub = h
	s.mu.Unlock()
	select {
	case <-h.begun:
	case <-s.ctx.Done():
		return
	}
	var at position
	switch {
	case from != nil:
		at = from.clone()
	case s.kind == runChannel:
		at = position{}
	default:
		at = h.position()
	}
	if err := h.failure(); err != nil {
		s.fail(err)
		return
	}
	c.control(s, message("subscribed", s.channel, now(), h.src.cursor(at), nil, false))
	s.follow(at, h.reaches(at))
}

// run is the run of the channel, empty for those of the feed.
func (s *subscription) run() string {
	if s.kind == runChannel {
		return s.name
	}
	return ""
}

// follow reads the events behind a position until the hub can go on with them. One that the hub has
// not come to may be wrong unless it is known, and the source tells.
func (s *subscription) follow(at position, known bool) {
	h, c := s.hub, s.client
	for pause := firstPause; ; {
		if err := h.failure(); err != nil {
			s.fail(err)
			return
		}
		var joined, full bool
		if known {
			if joined, full = h.join(s, at); joined {
				return
			}
		}
		if c.await(s.ctx) != nil {
			return
		}
		if full {
			continue
		}
		joined, err := s.replay(at)
		switch {
		case joined || s.ctx.Err() != nil:
			return
		case errors.Is(err, io.EOF):
			c.control(s, message("end", s.channel, now(), h.src.cursor(at), nil, false))
			return
		case err == nil:
			pause, known = firstPause, true
			continue
		case errs.ReasonOf(err) == reasonTooManyWatches:
			// The hub has a watch: what is missed can be read as soon as there is room for one more.
		case final(err):
			s.fail(err)
			return
		}
		if !sleep.For(s.ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// replay reads the events behind a position, which moves with what was told, until the hub can go on.
func (s *subscription) replay(at position) (joined bool, err error) {
	h, c := s.hub, s.client
	leave, err := c.Server.replays.Enter(s.ctx, c.namespace)
	if err != nil {
		return false, err
	}
	defer leave()
	give := func(e *event) error {
		for !c.offer(s, e, e.messages(s.channel)) {
			if err := c.await(s.ctx); err != nil {
				return err
			}
		}
		return s.ctx.Err()
	}
	err = h.src.replay(s.ctx, s.channel, at, give, func() bool {
		var full bool
		joined, full = h.join(s, at)
		return joined || full
	})
	return joined, err
}

// lag tells that there was no room for an event, and reads from there on what the client missed.
// The hub's lock is held: head is copied later, as it has an entry for each descendant of a run.
func (s *subscription) lag(head position) {
	ahead, src := s.ahead, s.hub.src
	s.ahead = nil
	s.client.Server.work.Go(func() {
		at := head.clone()
		for series, seq := range ahead {
			at[series] = max(at[series], seq)
		}
		s.client.control(s, message("lagged", s.channel, time.Now(), src.cursor(at), nil, false))
		s.follow(at, true)
	})
}

// fail tells why the channel cannot be followed, and ends it.
func (s *subscription) fail(err error) {
	c := s.client
	if s.ctx.Err() == nil {
		c.refuse(s.channel, err)
	}
	c.mu.Lock()
	if c.subs[s.channel] == s {
		delete(c.subs, s.channel)
	}
	s.gone = true
	c.mu.Unlock()
	s.end()
}

// end leaves the hub. It is idempotent.
func (s *subscription) end() {
	s.cancel()
	s.mu.Lock()
	h, ended := s.hub, s.ended
	s.ended = true
	s.mu.Unlock()
	if h == nil || ended {
		return
	}
	h.leave(s)
	s.client.Server.leave(h)
}
