package worker

import (
	"fmt"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/workgraph"
)

var _ sched.Gate = (*Server)(nil)

// attempt identifies an attempt of an executor.
type attempt struct {
	run     string
	ref     workgraph.Ref
	attempt int
}

// Kind implements sched.Gate.
func (s *Server) Kind() sched.GateKind { return sched.GateWorker }

// Concerns implements sched.Gate.
func (s *Server) Concerns(req sched.GateRequest) bool { return req.Remote }

// Enter implements sched.Gate. The slot that the pass stands for is what Actor's call uses.
func (s *Server) Enter(req sched.GateRequest, ready func(sched.Pass)) func() {
	key := attempt{req.RunID, req.Ref, req.Attempt}
	return s.pool.enter(name{req.Namespace, req.Actor}, false, func(pl *slot) {
		s.pool.reserveFor(key, pl)
		ready(sched.Pass{Release: func() {
			s.pool.drop(key, pl)
			pl.release()
		}})
	})
}

// Holding implements sched.Gate.
func (s *Server) WaitOf(req sched.GateRequest) (sched.GateWait, bool) {
	b := sched.GateWait{Kind: sched.GateWorker, Name: req.Actor, Since: req.Queued}
	if n := s.pool.holding(name{req.Namespace, req.Actor}); n == 0 {
		b.Message = fmt.Sprintf("no worker that serves actor %q is connected", req.Actor)
	} else {
		b.Message = fmt.Sprintf("the workers that serve actor %q have no room", req.Actor)
	}
	return b, true
}

func (p *pool) reserveFor(key attempt, pl *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved[key] = pl
}

func (p *pool) drop(key attempt, pl *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved[key] == pl {
		delete(p.reserved, key)
	}
}

// takeOut is the slot that was kept for an attempt, or nil.
func (p *pool) takeOut(key attempt) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := p.reserved[key]
	delete(p.reserved, key)
	return pl
}
