package worker

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

var _ program.Actors = (*Server)(nil)

// freshFor is how long a read description of a remote actor is used before it is read again.
const freshFor = time.Second

// actorCache remembers remote actors. It is safe for concurrent use.
type actorCache struct {
	mu     sync.Mutex
	actors map[name]cachedActor
	// bytes is what all of them count for.
	bytes int64
}

type cachedActor struct {
	journal.RemoteActor
	at time.Time
}

// maxKnown and maxKnownBytes bound the memory for remote actors; a dropped entry is read again.
const (
	maxKnown      = 20_000
	maxKnownBytes = 4 * journal.MaxActorBytes
)

func newKnown() *actorCache { return &actorCache{actors: map[name]cachedActor{}} }

func (k *actorCache) get(n name, fresh bool) (journal.RemoteActor, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.actors[n]
	if !ok || fresh && time.Since(a.at) > freshFor {
		return journal.RemoteActor{}, false
	}
	return a.RemoteActor, true
}

func (k *actorCache) put(namespace string, actors []journal.RemoteActor) {
	k.mu.Lock()
	defer k.mu.Unlock()
	added := int64(0)
	for i := range actors {
		added += actors[i].Size()
	}
	if len(k.actors)+len(actors) > maxKnown || k.bytes+added > maxKnownBytes {
		clear(k.actors)
		k.bytes = 0
	}
	for _, a := range actors {
		n := name{namespace, a.Name}
		k.drop(n)
		k.actors[n] = cachedActor{a, time.Now()}
		k.bytes += a.Size()
	}
}

// drop forgets one. It is called with k.mu held.
func (k *actorCache) drop(n name) {
	if a, ok := k.actors[n]; ok {
		k.bytes -= a.Size()
		delete(k.actors, n)
	}
}

func (k *actorCache) forget(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for n := range k.actors {
		if n.namespace == namespace {
			k.drop(n)
		}
	}
}

func info(a journal.RemoteActor) program.ActorInfo {
	return program.ActorInfo{ActorInfo: workgraph.ActorInfo{Effect: workgraph.Effect(a.Effect), Description: a.Description, Version: a.Version, Schema: json.RawMessage(a.Schema)}, Changes: true}
}

// lookup is what the namespace knows of remote actors with these names.
func (s *Server) lookup(ctx context.Context, namespace string, names []string) (map[string]journal.RemoteActor, error) {
	out := make(map[string]journal.RemoteActor, len(names))
	var ask []string
	for _, n := range names {
		if a, ok := s.cache.get(name{namespace, n}, true); ok {
			out[n] = a
		} else {
			ask = append(ask, n)
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	found, err := s.journal.RemoteActors(ctx, namespace, ask)
	if err != nil {
		return nil, err
	}
	s.cache.put(namespace, found)
	for _, a := range found {
		out[a.Name] = a
	}
	return out, nil
}

// Find implements engine.Actors.
func (s *Server) Find(ctx context.Context, namespace string, names []string) (map[string]program.ActorInfo, error) {
	out := make(map[string]program.ActorInfo, len(names))
	var ask []string
	for _, n := range names {
		switch info, ok := s.builtin.ActorInfo(n); {
		case !ok:
			ask = append(ask, n)
		case !s.builtin.Absent(n):
			out[n] = program.ActorInfo{ActorInfo: info, Changes: s.builtin.Changes(n)}
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	found, err := s.lookup(ctx, namespace, ask)
	if err != nil {
		return nil, err
	}
	for n, a := range found {
		out[n] = info(a)
	}
	return out, nil
}

// Learn implements program.Learner.
func (s *Server) Learn(ctx context.Context, names []string) {
	for _, n := range names {
		s.builtin.Learn(ctx, n)
	}
}

// Actor implements engine.Actors. An actor that some worker once served waits for one.
func (s *Server) Actor(ctx context.Context, namespace, actorName string) (workgraph.Actor, program.ActorInfo, bool, error) {
	if info, ok := s.builtin.ActorInfo(actorName); ok {
		a, ok := s.builtin.Actor(actorName)
		return a, program.ActorInfo{ActorInfo: info}, ok, nil
	}
	a, ok := s.cache.get(name{namespace, actorName}, false)
	if !ok {
		found, err := s.lookup(ctx, namespace, []string{actorName})
		if err != nil {
			return nil, program.ActorInfo{}, false, err
		}
		if a, ok = found[actorName]; !ok {
			return nil, program.ActorInfo{}, false, nil
		}
	}
	return remote{s, namespace}, info(a), true, nil
}

// Names implements engine.Actors.
func (s *Server) Names(ctx context.Context, namespace string) ([]string, error) {
	found, err := s.journal.ActorNames(ctx, namespace)
	if err != nil {
		return nil, err
	}
	out := append(s.builtin.Names(), found...)
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Remote reports whether calls of an actor go to workers. It is for engine.Deps.
func (s *Server) Remote(_, actorName string) bool {
	_, ok := s.builtin.ActorInfo(actorName)
	return !ok
}

// Registered lists the actors that workers of the namespace serve or served, by name.
func (s *Server) Registered(ctx context.Context, namespace string) ([]actor.Spec, error) {
	found, err := s.journal.RemoteActors(ctx, namespace, nil)
	if err != nil {
		return nil, err
	}
	out := make([]actor.Spec, len(found))
	for i, a := range found {
		out[i] = actor.Spec{Name: a.Name, Description: a.Description, Version: a.Version, Effect: workgraph.Effect(a.Effect), Schema: string(a.Schema)}
	}
	return out, nil
}

// remote is the actors of a namespace that workers serve.
type remote struct {
	s         *Server
	namespace string
}

// Call implements workgraph.Actor.
func (r remote) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	n := name{r.namespace, c.Actor}
	pl := r.s.pool.takeOut(attempt{c.RunID, c.Ref, c.Attempt})
	report := actor.ReporterOf(ctx)
	beat := func(details json.RawMessage) { c.Heartbeat(details) }
	for {
		if pl == nil {
			// Nobody makes the call meanwhile, so its time does not pass.
			resume := engine.HoldTimeouts(ctx)
			pl = r.s.pool.wait(ctx, n, false)
			resume()
			if pl == nil {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "ended before a worker had room: %v", context.Cause(ctx))
			}
		}
		var a answer
		var refuse func(*workgraph.Error)
		if pl.s != nil {
			var v *visit
			sess := pl.s
			a, v = sess.perform(ctx, pl, taskOf(ctx, c), r.s.reason, beat, report.Text)
			refuse = func(e *workgraph.Error) { sess.refuse(v, e) }
		} else {
			a = r.s.hop(ctx, pl, r.namespace, taskOf(ctx, c), beat, report.Text)
			refuse = func(*workgraph.Error) {} // the other executor has
		}
		if a.lost == lostUnsent && ctx.Err() == nil {
			pl = nil
			continue
		}
		engine.ReportedBy(ctx, a.by)
		return r.s.conclude(ctx, a, refuse)
	}
}

// wait is room for a visit; nil when ctx ends first.
func (p *pool) wait(ctx context.Context, n name, hop bool) *slot {
	got := make(chan *slot, 1)
	cancel := p.enter(n, hop, func(pl *slot) { got <- pl })
	select {
	case pl := <-got:
		return pl
	case <-ctx.Done():
	}
	cancel()
	select {
	case pl := <-got:
		pl.release()
	default:
	}
	return nil
}

// conclude turns an answer into what the engine understands. refuse is called when the answer cannot be used.
func (s *Server) conclude(ctx context.Context, a answer, refuse func(*workgraph.Error)) (workgraph.Outcome, error) {
	switch {
	case a.lost == lostUnsent:
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "ended before it reached a worker: %v", context.Cause(ctx))
	case a.lost == lostSent:
		return workgraph.Outcome{}, workgraph.Lostf(workgraph.Unknown, "the worker was lost while the attempt was with it")
	case a.refused != nil:
		e := bad("the answer breaks the rules: %s", violations(a.refused))
		refuse(e)
		return workgraph.Outcome{}, e
	case a.fail != nil:
		return workgraph.Outcome{}, errorOf(a.fail)
	}
	// An outcome is read even if the call is not wanted any more.
	out, e := s.reader.read(context.WithoutCancel(ctx), a.out)
	if e != nil {
		refuse(e)
		return workgraph.Outcome{}, e
	}
	return out, nil
}

// violations is what a request breaks, in a sentence.
func violations(err error) string {
	e := errs.From(err)
	if len(e.Violations) == 0 {
		return e.Message
	}
	v := e.Violations[0]
	return v.Field + ": " + v.Message
}

var _ executorv1.WorkerServiceServer = (*Server)(nil)
