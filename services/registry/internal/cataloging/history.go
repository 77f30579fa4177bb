package cataloging

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// Run is the end of a run of a version.
type Run struct {
	ID      string
	Ref     catalog.Ref
	History catalog.History
	// Whole says that History has what the run and all below it used. Else what is booked of the run alone
	// is counted.
	Whole bool
	// Sampled is what forecasts are made of besides.
	Sampled catalog.Sampled
	// Reason is why it failed or was canceled.
	Reason string
}

// Pause says that a run of a version was paused or resumed.
type Pause struct {
	RunID string
	Ref   catalog.Ref
	// Seq is that of the event of the run.
	Seq     int64
	Resumed bool
	Reason  string
}

// RecordPauses tells the feed of pauses, each once, and returns how many were new. Those of workflows or
// versions that are not there any more are left out, as ends are.
func (c *Catalog) RecordPauses(ctx context.Context, namespace string, pauses []Pause) (fresh int, err error) {
	now := dbkit.Now()
	err = c.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		fresh = 0
		found := known{tx: tx, namespace: namespace, of: map[catalog.Ref]version{}}
		for _, p := range pauses {
			// Ids of runs have no slash, so that this one is no end.
			_, is, err := found.first(ctx, p.Ref, p.RunID+"/"+strconv.FormatInt(p.Seq, 10), now)
			if err != nil {
				return err
			}
			if !is {
				continue
			}
			fresh++
			kind := feed.RunPaused
			if p.Resumed {
				kind = feed.RunResumed
			}
			tx.TellRun(p.Ref.Name, kind, feed.RunState{RunID: p.RunID, Version: p.Ref.Version, Reason: p.Reason})
		}
		return nil
	})
	return fresh, err
}

// version identifies a version in a namespace.
type version struct {
	workflow string
	number   int64
}

// RecordRuns adds ends of runs to the history, each run once, with what was booked of its calls, and
// returns how many were new. Those that were not canceled are kept as samples for forecasts. Runs of
// workflows or versions that are not there any more are left out: nobody would see them.
func (c *Catalog) RecordRuns(ctx context.Context, namespace string, runs []Run) (fresh int, err error) {
	now := dbkit.Now()
	err = c.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		fresh = 0
		change, err := tx.NextChange(ctx, namespace) // it locks the catalog of the namespace
		if err != nil {
			return err
		}
		sums, order := map[version]catalog.History{}, []version(nil)
		samples := map[version][]catalog.Sample{}
		found := known{tx: tx, namespace: namespace, of: map[catalog.Ref]version{}}
		for _, r := range runs {
			v, is, err := found.first(ctx, r.Ref, r.ID, now)
			if err != nil {
				return err
			}
			if !is {
				continue
			}
			fresh++
			if !r.Whole {
				used, err := tx.RunTotals(ctx, namespace, r.ID)
				if err != nil {
					return err
				}
				r.History.NanoUSD, r.History.Tokens = used.NanoUSD, used.Tokens
			}
			if _, ok := sums[v]; !ok {
				order = append(order, v)
			}
			sums[v] = sums[v].Plus(r.History)
			if r.History.Canceled == 0 {
				samples[v] = append(samples[v], catalog.NewSample(r.History, r.Sampled, r.Whole))
			}
			tx.TellRun(r.Ref.Name, feed.RunEnded, feed.RunState{RunID: r.ID, Version: r.Ref.Version, History: r.History, Reason: r.Reason})
		}
		for i, v := range order {
			// Each has a change of its own: readers go on behind the last one that they have seen.
			if i > 0 {
				if change, err = tx.NextChange(ctx, namespace); err != nil {
					return err
				}
			}
			if err := tx.AddHistory(ctx, namespace, v.workflow, v.number, sums[v], change); err != nil {
				return err
			}
			if err := tx.AddSamples(ctx, namespace, v.workflow, v.number, samples[v]); err != nil {
				return err
			}
		}
		return nil
	})
	return fresh, err
}

// known looks references up, each once.
type known struct {
	tx        store.Tx
	namespace string
	of        map[catalog.Ref]version
}

// version returns none for what is not there.
func (k *known) version(ctx context.Context, ref catalog.Ref) (version, error) {
	if v, ok := k.of[ref]; ok {
		return v, nil
	}
	var v version
	w, err := k.tx.Workflow(ctx, k.namespace, ref.Name)
	switch {
	case missing(err):
	case err != nil:
		return v, err
	default:
		have, err := k.tx.VersionsAmong(ctx, k.namespace, w.ID, []int64{ref.Version})
		if err != nil {
			return v, err
		}
		if len(have) > 0 {
			v = version{w.ID, ref.Version}
		}
	}
	k.of[ref] = v
	return v, nil
}

// first notes what is told of a run of a version under an id, and reports whether that is new and the version
// is there.
func (k *known) first(ctx context.Context, ref catalog.Ref, id string, now time.Time) (v version, is bool, err error) {
	if v, err = k.version(ctx, ref); err != nil || v.workflow == "" {
		return v, false, err
	}
	is, err = k.tx.CountRun(ctx, k.namespace, id, v.workflow, v.number, now)
	return v, is, err
}

func missing(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Kind == errs.NotFound
}
