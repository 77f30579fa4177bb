package worker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// syncBytes is about how much is published in one transaction, and of one namespace in one round.
	syncBytes = 256 << 10
	// rowBytes is what a row takes besides its texts.
	rowBytes = 128
	// syncRest is the pause for a namespace whose rows were refused.
	syncRest = time.Second
)

// publisher keeps the journal's record of the workers here up to date. In a round each namespace publishes a
// bounded share of its changes, so that none waits until another has published thousands of workers; a
// namespace whose rows are refused delays no other.
type publisher struct {
	journal journal.Workers
	log     *slog.Logger
	// owner is the owner that published.
	owner     journal.Owner
	published map[string]*picture // by namespace
}

// picture is what there is of one namespace: its workers by id, and its routes by actor. A zero value says
// that it is not known what the journal has, if anything.
type picture struct {
	workers map[string]journal.Worker
	routes  map[string]journal.NamedRoute
	// rest is the end of a pause in which nothing is published.
	rest time.Time
}

func newPicture() *picture {
	return &picture{workers: map[string]journal.Worker{}, routes: map[string]journal.NamedRoute{}}
}

// share is the part of one namespace in a round.
type share struct {
	namespace string
	change    journal.WorkerSync
	size      int
}

// publish carries out one round. more says that a namespace has more to publish. An error is one of the
// journal as a whole.
func (t *publisher) publish(ctx context.Context, owner journal.Owner, now time.Time, workers []journal.Worker, routes map[name]journal.NamedRoute) (more bool, err error) {
	if owner != t.owner {
		// Nothing of an earlier ownership session counts. At its beginning, an executor without workers has
		// no rows.
		if !t.owner.IsZero() || len(workers)+len(routes) > 0 {
			if err := t.journal.SyncWorkers(ctx, owner, journal.WorkerSync{All: true}); err != nil {
				return false, err
			}
		}
		t.owner, t.published = owner, map[string]*picture{}
	}
	here := arrange(workers, routes)
	for namespace := range t.published {
		if here[namespace] == nil {
			here[namespace] = newPicture()
		}
	}
	var batch []share
	size := 0
	for _, namespace := range slices.Sorted(maps.Keys(here)) {
		published := t.published[namespace]
		if published == nil {
			published = newPicture()
			t.published[namespace] = published
		}
		if published.rest.After(now) {
			continue
		}
		s, left := news(namespace, published, here[namespace])
		more = more || left
		if s.size == 0 {
			if len(published.workers)+len(published.routes) == 0 {
				delete(t.published, namespace)
			}
			continue
		}
		if len(batch) > 0 && size+s.size > syncBytes {
			if err := t.send(ctx, now, batch); err != nil {
				return false, err
			}
			batch, size = nil, 0
		}
		batch, size = append(batch, s), size+s.size
	}
	return more, t.send(ctx, now, batch)
}

func arrange(workers []journal.Worker, routes map[name]journal.NamedRoute) map[string]*picture {
	out := map[string]*picture{}
	of := func(namespace string) *picture {
		if out[namespace] == nil {
			out[namespace] = newPicture()
		}
		return out[namespace]
	}
	for _, w := range workers {
		of(w.Namespace).workers[w.ID] = w
	}
	for n, r := range routes {
		of(n.namespace).routes[n.actor] = r
	}
	return out
}

// news is the next share of what others do not know of a namespace, routes first: calls wait for them. left
// says that there is more.
func news(namespace string, published, here *picture) (s share, left bool) {
	s.namespace = namespace
	fits := func(bytes int) bool {
		if s.size > 0 && s.size+rowBytes+bytes > syncBytes {
			left = true
			return false
		}
		s.size += rowBytes + bytes
		return true
	}
	actors := slices.AppendSeq(slices.Collect(maps.Keys(published.routes)), maps.Keys(here.routes))
	slices.Sort(actors)
	for _, actor := range slices.Compact(actors) {
		r, ok := here.routes[actor]
		if !ok {
			r = journal.NamedRoute{Namespace: namespace, Actor: actor}
		}
		if old, known := published.routes[actor]; known && ok && old == r {
			continue
		}
		if !fits(len(actor)) {
			return s, left
		}
		s.change.Routes = append(s.change.Routes, r)
	}
	for _, id := range slices.Sorted(maps.Keys(published.workers)) {
		if _, ok := here.workers[id]; !ok {
			if !fits(len(id)) {
				return s, left
			}
			s.change.Drop = append(s.change.Drop, journal.WorkerID{Namespace: namespace, ID: id})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(here.workers)) {
		w := here.workers[id]
		if old, ok := published.workers[id]; ok && same(old, w) {
			continue
		}
		bytes := len(id) + len(w.UserAgent)
		for _, a := range w.Actors {
			bytes += len(a)
		}
		if !fits(bytes) {
			return s, left
		}
		s.change.Put = append(s.change.Put, w)
	}
	return s, left
}

// send publishes shares in one transaction. If that fails, each is published alone.
func (t *publisher) send(ctx context.Context, now time.Time, batch []share) error {
	if len(batch) == 0 {
		return nil
	}
	var all journal.WorkerSync
	for _, s := range batch {
		all.Routes, all.Drop, all.Put = append(all.Routes, s.change.Routes...), append(all.Drop, s.change.Drop...), append(all.Put, s.change.Put...)
	}
	err := t.journal.SyncWorkers(ctx, t.owner, all)
	for _, s := range batch {
		t.published[s.namespace].note(s.change, err == nil)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || errs.ReasonOf(err) == journal.ReasonFenced || errs.Is(err, errs.Unavailable):
		return err
	case len(batch) == 1:
		t.log.WarnContext(ctx, "workers here were not published", "err", err, "namespace", batch[0].namespace)
		t.published[batch[0].namespace].rest = now.Add(syncRest)
		return nil
	}
	for _, s := range batch {
		if err := t.send(ctx, now, []share{s}); err != nil {
			return err
		}
	}
	return nil
}

// note updates the picture by what was published. A share that failed may have been written all the same.
func (p *picture) note(c journal.WorkerSync, taken bool) {
	for _, r := range c.Routes {
		switch {
		case !taken:
			p.routes[r.Actor] = journal.NamedRoute{}
		case r.Slots == 0:
			delete(p.routes, r.Actor)
		default:
			p.routes[r.Actor] = r
		}
	}
	for _, d := range c.Drop {
		if taken {
			delete(p.workers, d.ID)
		} else {
			p.workers[d.ID] = journal.Worker{}
		}
	}
	for _, w := range c.Put {
		if !taken {
			w = journal.Worker{ID: w.ID}
		}
		p.workers[w.ID] = w
	}
}
