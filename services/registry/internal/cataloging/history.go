package cataloging

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// RunChange is a change of a run, as its executor tells it.
type RunChange struct {
	Kind feed.Kind
	// Seq is that of the event of the run.
	Seq int64
	// Time is when the run changed.
	Time          time.Time
	RunID, Parent string
	// Ref is the version that the run is of; its name is empty for a run of none.
	Ref catalog.Ref
	// TaskID is the task that it works on, or that pays for it, and EpicID the epic that has the task or
	// pays. Both may be empty.
	TaskID, EpicID string
	// Reason is why it failed, was canceled, paused or resumed.
	Reason string
	// History counts a run that has ended. Whole says that it has what the run and all below it used. Else
	// what is booked of the run alone is counted.
	History catalog.History
	Whole   bool
	// Sampled is what forecasts are made of besides.
	Sampled catalog.Sampled
	// Activity sums up what a run that has ended did; it may be nil.
	Activity *feed.Activity
	// Runs is how many runs are gone with one that was deleted.
	Runs int64
}

// ThreadChange is a change of a thread, as its executor tells it.
type ThreadChange struct {
	Kind     feed.Kind
	ThreadID string
	State    feed.ThreadState
}

// place is where the change stands among those of its thread: the thread is made before its messages, and
// nothing comes after its end.
func (c *ThreadChange) place() store.Place {
	p := store.Place{Source: "thread/" + c.ThreadID, Seq: math.MaxInt64}
	if c.Kind != feed.ThreadDeleted {
		p.Seq = min(c.State.Seq, math.MaxInt64-2) + 1
	}
	return p
}

// counts reports whether the change is the end of a run of a version.
func (c RunChange) counts() bool { return c.Kind == feed.RunEnded && c.Ref.Name != "" }

// version identifies a version in a namespace.
type version struct {
	workflow string
	number   int64
}

// RecordChanges tells the feed of changes of runs and threads, each once, and returns how many were
// new. Changes of one run, or thread, come in its order: one that is not behind the last that was
// recorded of it is known. Ends of runs of versions are added to the history with what was booked of
// their calls, and those that were not canceled are kept as samples for forecasts. A workflow or a
// version that is not there any more has no history.
func (c *Catalog) RecordChanges(ctx context.Context, namespace string, list []RunChange, threads ...ThreadChange) (fresh int, err error) {
	now := dbkit.Now()
	err = c.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		fresh = 0
		sums := newSums(tx, namespace, now)
		// The lock of the catalog comes first, as for those who change workflows.
		if err := sums.lock(ctx, list); err != nil {
			return err
		}
		places := make([]store.Place, 0, len(list)+len(threads))
		for i := range list {
			places = append(places, store.Place{Source: list[i].RunID, Seq: list[i].Seq})
		}
		for i := range threads {
			places = append(places, threads[i].place())
		}
		isNew, err := tx.Advance(ctx, namespace, places, now)
		if err != nil {
			return err
		}
		for i, r := range list {
			if !isNew[i] {
				continue
			}
			if r.Kind == feed.RunEnded && !r.Whole {
				used, err := tx.RunTotals(ctx, namespace, r.RunID)
				if err != nil {
					return err
				}
				r.History.NanoUSD, r.History.Tokens = used.NanoUSD, used.Tokens
			}
			if r.counts() {
				if is, err := sums.add(ctx, r); err != nil || !is {
					if err != nil {
						return err
					}
					continue // it was counted and told before changes had places
				}
			}
			fresh++
			tx.TellRun(r.Ref.Name, r.EpicID, r.Kind, feed.RunState{RunID: r.RunID, Parent: r.Parent, Time: r.Time, Version: r.Ref.Version, History: r.History, Reason: r.Reason,
				TaskID: r.TaskID, Activity: r.Activity, Runs: r.Runs})
		}
		for i := range threads {
			if isNew[len(list)+i] {
				fresh++
				tx.TellThread(threads[i].ThreadID, threads[i].Kind, threads[i].State)
			}
		}
		return sums.write(ctx)
	})
	return fresh, err
}

// sums are what ends of runs add to the histories of versions.
type sums struct {
	tx        store.Tx
	namespace string
	now       time.Time
	change    int64
	known     map[catalog.Ref]version
	of        map[version]catalog.History
	samples   map[version][]catalog.Sample
	order     []version
}

func newSums(tx store.Tx, namespace string, now time.Time) *sums {
	return &sums{tx: tx, namespace: namespace, now: now, known: map[catalog.Ref]version{}, of: map[version]catalog.History{}, samples: map[version][]catalog.Sample{}}
}

// lock locks the catalog of the namespace if one of the changes counts.
func (s *sums) lock(ctx context.Context, list []RunChange) (err error) {
	for i := range list {
		if list[i].counts() {
			s.change, err = s.tx.NextChange(ctx, s.namespace)
			return err
		}
	}
	return nil
}

// add adds the end of a run of a version that is there. It reports false for one that was counted.
func (s *sums) add(ctx context.Context, r RunChange) (is bool, err error) {
	v, err := s.version(ctx, r.Ref)
	if err != nil || v.workflow == "" {
		return true, err
	}
	if is, err := s.tx.CountRun(ctx, s.namespace, r.RunID, v.workflow, v.number, s.now); err != nil || !is {
		return false, err
	}
	if _, ok := s.of[v]; !ok {
		s.order = append(s.order, v)
	}
	s.of[v] = s.of[v].Plus(r.History)
	if r.History.Canceled == 0 {
		s.samples[v] = append(s.samples[v], catalog.NewSample(r.History, r.Sampled, r.Whole))
	}
	return true, nil
}

// write writes the sums.
func (s *sums) write(ctx context.Context) (err error) {
	for i, v := range s.order {
		// Each has a change of its own: readers go on behind the last one that they have seen.
		if i > 0 {
			if s.change, err = s.tx.NextChange(ctx, s.namespace); err != nil {
				return err
			}
		}
		if err := s.tx.AddHistory(ctx, s.namespace, v.workflow, v.number, s.of[v], s.change); err != nil {
			return err
		}
		if err := s.tx.AddSamples(ctx, s.namespace, v.workflow, v.number, s.samples[v]); err != nil {
			return err
		}
	}
	return nil
}

// version looks a reference up, once. It returns none for what is not there.
func (s *sums) version(ctx context.Context, ref catalog.Ref) (version, error) {
	if v, ok := s.known[ref]; ok {
		return v, nil
	}
	var v version
	w, err := s.tx.Workflow(ctx, s.namespace, ref.Name)
	switch {
	case missing(err):
	case err != nil:
		return v, err
	default:
		have, err := s.tx.VersionsAmong(ctx, s.namespace, w.ID, []int64{ref.Version})
		if err != nil {
			return v, err
		}
		if len(have) > 0 {
			v = version{w.ID, ref.Version}
		}
	}
	s.known[ref] = v
	return v, nil
}

func missing(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Kind == errs.NotFound
}
