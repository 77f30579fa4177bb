// Package places owns who may work at jobs of a kind at once, so that a namespace with many of them does
// not hold up the others: each has a share of the places, and its jobs beyond that come again at the rate
// at which its places become free. It must not know what the jobs are.
package places

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Config says how many places there are. All fields must be positive.
type Config struct {
	// Total is the number of places, Each how many of them one namespace may have.
	Total, Each int
	// MinPause and MaxPause bound how long a job is put off for which there is no place.
	MinPause, MaxPause time.Duration
}

// Places are what jobs take. They are safe for concurrent use.
type Places struct {
	cfg Config

	mu    sync.Mutex
	total int
	lines map[string]*line
}

// line is the jobs of one namespace.
type line struct {
	busy int
	// took is about how long a job takes, end when the last of those that were put off comes again.
	took time.Duration
	end  time.Time
}

// New returns places that nobody has.
func New(cfg Config) *Places { return &Places{cfg: cfg, lines: map[string]*line{}} }

// Enter takes a place for a job of a namespace, before anything is read for it: then leave must be called.
// Without a place leave is nil, and the job is to come again after the pause. The postponed jobs of a
// namespace come again at the rate of its places, however many they are, so that they do not block those of
// others.
func (p *Places) Enter(namespace string) (leave func(), pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	l := p.lines[namespace]
	if l == nil {
		l = &line{}
		p.lines[namespace] = l
	}
	// A namespace has no more places than are left for the others then, so that some are left for whoever
	// comes next.
	if l.busy >= min(p.cfg.Each, p.cfg.Total-p.total) {
		return nil, p.putOff(l, now)
	}
	l.busy++
	p.total++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		l.busy--
		if took := time.Since(now); l.took == 0 {
			l.took = took
		} else {
			l.took += (took - l.took) / 8
		}
		p.forget(time.Now())
	}), 0
}

// putOff is how long one more job waits behind all that were put off.
func (p *Places) putOff(l *line, now time.Time) time.Duration {
	if soonest := now.Add(p.cfg.MinPause); l.end.Before(soonest) {
		l.end = soonest
	}
	if l.end.Sub(now) >= p.cfg.MaxPause {
		return p.cfg.MaxPause/2 + rand.N(p.cfg.MaxPause/2)
	}
	l.end = l.end.Add(max(l.took, time.Millisecond) / time.Duration(p.cfg.Each))
	return l.end.Sub(now)
}

// forget drops the lines of namespaces that have nothing under way and nothing put off. The lock is held.
func (p *Places) forget(now time.Time) {
	for namespace, l := range p.lines {
		if l.busy == 0 && !l.end.After(now) {
			delete(p.lines, namespace)
		}
	}
}
