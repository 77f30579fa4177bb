package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/archive"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

const (
	// maintenanceEvery is the period of maintenance, maintenanceTime the time for one turn of it: less than a
	// job may take, so that a crash is noticed soon.
	maintenanceEvery = 10 * time.Minute
	maintenanceTime  = 20 * time.Second
	// maintenancePause is the pause before the next look if there is more to do.
	maintenancePause = time.Second
	// expiredBatch is how many trees are examined at once, movedRows how many events may be moved to empty a
	// partition.
	expiredBatch = 100
	movedRows    = 50_000
	// graphPage is how many graphs are looked at in one go, graphPages how many times that in one look.
	graphPage, graphPages = 500, 20
)

// reasonArchived is the reason when a run that is asked for was archived.
const reasonArchived = "RUN_ARCHIVED"

// maintenance keeps the journal from growing without bound.
type maintenance struct {
	journal   journal.Journal
	plain     journal.Reader
	retention time.Duration
	// limits say how long namespaces keep their runs that have a word of their own on it; nil without.
	limits    *limit.Limiter
	partition time.Duration
	// ephemeral is how long ephemeral threads are kept after their last use.
	ephemeral time.Duration
	archive   *blob.Store // nil without
	log       *slog.Logger
	now       func() time.Time

	// graphs is where the next look at graphs goes on.
	graphs       atomic.Pointer[journal.Key]
	parts, stray atomic.Int64
	removed      metric.Int64Counter
}

func openMaintenance(ctx context.Context, cfg Config, j journal.Journal, plain journal.Reader, tel *obs.Telemetry) (u *maintenance, err error) {
	u = &maintenance{journal: j, plain: plain, retention: cfg.Retention, partition: cfg.Partition, ephemeral: cfg.Threads.EphemeralAge, log: tel.Logger, now: dbkit.Now}
	if cfg.Archive != "" {
		if u.archive, err = blob.Open(ctx, cfg.Archive); err != nil {
			return nil, fmt.Errorf("open archive of executor: %w", err)
		}
	}
	m := tel.MeterProvider.Meter("github.com/epigraph-run/epigraph/services/executor")
	if u.removed, err = m.Int64Counter("epigraph.executor.runs.expired", metric.WithDescription("runs removed since they ended longer ago than runs are kept")); err != nil {
		return nil, err
	}
	parts, err := m.Int64ObservableGauge("epigraph.executor.journal.partitions", metric.WithDescription("partitions of the journal"))
	if err != nil {
		return nil, err
	}
	stray, err := m.Int64ObservableGauge("epigraph.executor.journal.stray_events", metric.WithDescription("events that have no partition of their own, up to 1,000; it should be 0"))
	if err != nil {
		return nil, err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		if n := u.parts.Load(); n > 0 {
			o.ObserveInt64(parts, n)
			o.ObserveInt64(stray, u.stray.Load())
		}
		return nil
	}, parts, stray)
	return u, err
}

// Close lets go of the archive.
func (u *maintenance) Close() error {
	if u.archive == nil {
		return nil
	}
	return u.archive.Close()
}

// work is one look.
func (u *maintenance) work(ctx context.Context, _ dispatch.Job) error {
	begin := time.Now()
	p, err := u.journal.Extend(ctx, u.partition, 2*u.partition)
	if err != nil {
		return fmt.Errorf("make partitions: %w", err)
	}
	u.parts.Store(int64(p.Count))
	u.stray.Store(int64(p.Stray))
	if p.Stray > 0 {
		u.log.WarnContext(ctx, "events have no partition of their own", "events", p.Stray, "partitions_end", p.End)
	}
	var before time.Time
	more := false
	if u.retention > 0 {
		before = u.now().Add(-u.retention)
	}
	if u.retention > 0 || u.limits != nil && u.limits.Retains() {
		if more, err = u.expire(ctx, u.keptSince(), begin.Add(maintenanceTime)); err != nil {
			return err
		}
	}
	if !more { // trees that are still to be removed refer to graphs, too
		if err := u.sweepGraphs(ctx, begin.Add(maintenanceTime)); err != nil {
			return err
		}
	}
	if err := u.sweepThreads(ctx, begin.Add(maintenanceTime)); err != nil {
		return err
	}
	shrink, err := u.journal.Shrink(ctx, before, movedRows)
	if err != nil {
		return fmt.Errorf("give back space: %w", err)
	}
	if more || shrink {
		return dispatch.Later(maintenancePause)
	}
	return nil
}

// keptSince returns the time before which ended runs of a namespace are not kept; zero if all are.
func (u *maintenance) keptSince() func(namespace string) time.Time {
	now := u.now()
	return func(namespace string) time.Time {
		keep := u.retention
		if u.limits != nil {
			if own := u.limits.Retention(namespace); own > 0 {
				keep = own
			}
		}
		if keep == 0 {
			return time.Time{}
		}
		return now.Add(-keep)
	}
}

// expire removes trees of runs that ended before the retention of their namespace, until time is up, and
// reports whether there is more.
func (u *maintenance) expire(ctx context.Context, before func(namespace string) time.Time, until time.Time) (more bool, err error) {
	var after journal.Ended
	for {
		ends, err := u.journal.Expired(ctx, before, after, expiredBatch)
		if err != nil {
			return false, fmt.Errorf("look for runs that are kept no longer: %w", err)
		}
		for _, e := range ends {
			after = e
			if e.Skipped {
				continue
			}
			if time.Now().After(until) {
				return true, nil
			}
			if err := u.remove(ctx, e); err != nil {
				return false, fmt.Errorf("remove run %s: %w", e.RunID, err)
			}
		}
		if len(ends) < expiredBatch {
			return false, nil
		}
	}
}

// sweepGraphs removes graphs without a run that no run used for as long as runs are kept, until time is up or
// the share of one turn was examined.
func (u *maintenance) sweepGraphs(ctx context.Context, until time.Time) error {
	before := u.now().Add(-max(u.retention, 0) - journal.GraphRest)
	var at journal.Key
	if last := u.graphs.Load(); last != nil {
		at = *last
	}
	for range graphPages {
		removed, next, err := u.journal.SweepGraphs(ctx, before, at, graphPage)
		if err != nil {
			return fmt.Errorf("remove graphs that nobody refers to: %w", err)
		}
		if removed > 0 {
			u.log.InfoContext(ctx, "graphs that no run refers to were removed", "graphs", removed)
		}
		at = next
		u.graphs.Store(&next)
		if next == (journal.Key{}) || time.Now().After(until) {
			return nil
		}
	}
	return nil
}

// remove archives a tree and deletes it. It is deleted only when all of it is archived; after a crash in
// between the work is repeated.
func (u *maintenance) remove(ctx context.Context, e journal.Ended) error {
	if u.archive != nil {
		below, err := u.journal.Descendants(ctx, e.Namespace, e.RunID)
		if err != nil {
			return err
		}
		ids := []string{e.RunID}
		for _, d := range below {
			ids = append(ids, d.RunID)
		}
		for _, id := range ids {
			switch err := archive.Put(ctx, u.archive, disclosed{u.plain}, e.Namespace, id); {
			case errs.ReasonOf(err) == journal.ReasonRunNotFound:
				continue // deleted meanwhile
			case err != nil:
				return err
			}
			if err := u.journal.NoteArchive(ctx, e.Namespace, id, u.archive.Where()+"/"+archive.Name(e.Namespace, id)); err != nil {
				return err
			}
		}
	}
	n, err := u.journal.DeleteRun(ctx, e.Namespace, e.RunID, 0, nil)
	if errs.ReasonOf(err) == journal.ReasonRunNotFound {
		return nil
	}
	u.removed.Add(ctx, int64(n))
	return err
}

// archived is a journal that says of runs that it has no more where they are.
type archived struct{ journal.Journal }

// Get implements journal.Reader.
func (a archived) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := a.Journal.Get(ctx, namespace, runID)
	if errs.ReasonOf(err) != journal.ReasonRunNotFound {
		return r, err
	}
	place, perr := a.ArchiveOf(ctx, namespace, runID)
	switch {
	case perr != nil:
		return r, errors.Join(err, perr)
	case place == "":
		return r, err
	}
	return r, errs.New(errs.NotFound, reasonArchived, "run %q was archived to %s", runID, place).Set("archive", place).
		Hint("it is kept there as one compressed file of JSON lines")
}

// disclosed reads runs without what must not leave the executor.
type disclosed struct{ journal.Reader }

// Get implements journal.Reader.
func (d disclosed) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := d.Reader.Get(ctx, namespace, runID)
	if err != nil {
		return r, err
	}
	r.Metadata, err = record.WithoutSecrets(r.Metadata)
	return r, err
}
