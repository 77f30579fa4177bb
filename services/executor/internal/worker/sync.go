package worker

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// syncEvery is how often the load of the workers here is published to other executors, if it has changed.
	syncEvery = 2 * time.Second
	// syncPause lets changes of one moment go out together.
	syncPause = 20 * time.Millisecond
	// lookEvery is how often other executors' workers are looked for while somebody waits.
	lookEvery = 250 * time.Millisecond
	// seenEvery is how often the actors of workers that stay connected are marked as seen.
	seenEvery = 6 * time.Hour
)

// Run publishes the workers here to other executors and looks for theirs, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.publishWorkers(ctx); return nil })
	g.Go(func() error { s.lookFor(ctx); return nil })
	return g.Wait()
}

// here describes the workers that are connected here.
func (s *Server) here() []journal.Worker {
	s.mu.Lock()
	var all []*session
	for _, m := range s.sessions {
		for _, sess := range m {
			all = append(all, sess)
		}
	}
	s.mu.Unlock()
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	out := make([]journal.Worker, 0, len(all))
	for _, sess := range all {
		out = append(out, journal.Worker{ID: sess.id, Namespace: sess.namespace, Actors: sess.names, Slots: sess.slots, Busy: sess.used,
			ConnectTime: dbkit.Micros(sess.connected), UserAgent: sess.userAgent, Draining: sess.closed})
	}
	return out
}

// routes says how many visits of each actor the workers here take.
func (s *Server) routes() map[name]journal.NamedRoute {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	out := map[name]journal.NamedRoute{}
	for n, sv := range s.pool.served {
		r := journal.NamedRoute{Namespace: n.namespace, Actor: n.actor}
		for _, sess := range sv.sessions {
			slots, busy := sess.slots, sess.used
			if limit := sess.actors[n.actor]; limit > 0 && limit < slots {
				slots, busy = limit, sess.busy[n.actor]
			}
			r.Slots += slots
			r.Busy += min(busy, slots)
		}
		if r.Slots > 0 {
			out[n] = r
		}
	}
	return out
}

// same reports whether others would see the same of a worker. The actors of one that stays connected are the
// same slice.
func same(a, b journal.Worker) bool {
	return len(a.Actors) == len(b.Actors) && (len(a.Actors) == 0 || &a.Actors[0] == &b.Actors[0]) && a.Slots == b.Slots && a.Busy == b.Busy && a.Draining == b.Draining && a.ConnectTime.Equal(b.ConnectTime)
}

// publishWorkers keeps the journal's picture of the workers here up to date.
func (s *Server) publishWorkers(ctx context.Context) {
	t := publisher{journal: s.journal, log: s.log}
	seen := time.Now()
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
			sleep.For(ctx, syncPause)
		case <-tick.C:
			s.peers.sweep()
			if time.Since(seen) > seenEvery {
				seen = time.Now()
				s.markSeen(ctx)
			}
		}
		owner := s.owner()
		if owner.IsZero() {
			continue
		}
		more, err := t.publish(ctx, owner, time.Now(), s.here(), s.routes())
		if err != nil {
			if ctx.Err() == nil {
				s.log.WarnContext(ctx, "workers here were not published", "err", err)
			}
			sleep.For(ctx, time.Second)
		}
		if more || err != nil {
			s.touch()
		}
	}
}

// markSeen keeps actors from being forgotten while their workers stay connected for long.
func (s *Server) markSeen(ctx context.Context) {
	served := map[string][]string{}
	for n := range s.routes() {
		served[n.namespace] = append(served[n.namespace], n.actor)
	}
	for ns, names := range served {
		actors, err := s.journal.RemoteActors(ctx, ns, names)
		if err == nil {
			for i := range actors {
				actors[i].LastSeen = dbkit.Now()
			}
			err = s.journal.PutActors(ctx, s.owner(), ns, actors, s.cfg.Lease, s.cfg.MaxActors)
		}
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "actors not marked as seen", "err", err, "namespace", ns)
		}
	}
}

// lookFor finds workers of other executors for whoever waits.
func (s *Server) lookFor(ctx context.Context) {
	if s.peers.dial == nil {
		<-ctx.Done()
		return
	}
	wakes, err := s.journal.WorkerWakes(ctx)
	if err != nil {
		s.log.WarnContext(ctx, "other executors' workers are looked for by polling", "err", err)
	}
	// One look of a namespace at a time, each by itself: one that waits for many actors, or for its turn to
	// read, holds up no other.
	var look sync.WaitGroup
	defer look.Wait()
	looking := newLooking()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pool.look:
		case _, ok := <-wakes:
			if !ok {
				wakes = nil
			}
		case <-tick.C:
		}
		for namespace, actors := range s.pool.wanted() {
			if looking.begin(namespace) {
				look.Go(func() {
					s.lookForOne(ctx, namespace, actors)
					if looking.end(namespace) {
						s.pool.lookAround()
					}
				})
			}
		}
		// At most so often, however many begin to wait.
		sleep.For(ctx, 5*time.Millisecond)
	}
}

// lookForOne finds workers of other executors for the waiters of a namespace.
func (s *Server) lookForOne(ctx context.Context, namespace string, actors []string) {
	me := s.owner().ID
	for _, actor := range actors {
		routes, err := s.journal.Routes(ctx, namespace, actor, s.cfg.Lease)
		if err != nil {
			if ctx.Err() == nil {
				s.log.WarnContext(ctx, "other executors' workers not found", "err", err, "namespace", namespace)
			}
			return
		}
		s.pool.found(name{namespace, actor}, slices.DeleteFunc(routes, func(r journal.WorkerRoute) bool { return r.Executor.ID == me || r.Addr == "" }))
	}
}

// looking are the namespaces with a lookup under way, and whether another one was requested meanwhile.
type looking struct {
	mu sync.Mutex
	at map[string]bool
}

func newLooking() *looking { return &looking{at: map[string]bool{}} }

// begin reports whether nobody looks yet, and makes the caller the one who does.
func (l *looking) begin(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, taken := l.at[namespace]
	l.at[namespace] = taken
	return !taken
}

// end reports whether another lookup was requested meanwhile.
func (l *looking) end(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.at[namespace]
	delete(l.at, namespace)
	return again
}

func sortWorkers(ws []*executorv1.WorkerInfo) {
	slices.SortFunc(ws, func(a, b *executorv1.WorkerInfo) int {
		return cmp.Or(strings.Compare(a.GetWorkerId(), b.GetWorkerId()), strings.Compare(a.GetExecutorId(), b.GetExecutorId()))
	})
}
