package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// scanPause is the pause between two looks for schedules whose job was lost, lag how long a job may take
	// to come.
	scanPause = time.Second
	lag       = time.Second
	// overdue is how many schedules one look finds.
	overdue = 500
	// forgetPause is the pause between two rounds of forgetting.
	forgetPause = 10 * time.Minute
	// atOnce is how many starts of one schedule are carried out side by side, handful how many in one round.
	atOnce  = 16
	handful = 256
	// rounds is how many batches of times one change may decide.
	rounds = 8
	// minPause and maxPause bound how long a start waits that cannot be carried out just now.
	minPause = 250 * time.Millisecond
	maxPause = 15 * time.Second
)

// Runs starts and cancels runs. It must be safe for concurrent use.
type Runs interface {
	// Start starts the run of st, under the id st.RunID; a second call for the same start starts nothing, and
	// is no error. It returns the id of the run, which is another one if an open run takes the place of the
	// new one.
	Start(ctx context.Context, s Schedule, st Start) (runID string, err error)
	// Cancel asks for the end of a run; one that has ended is no error.
	Cancel(ctx context.Context, namespace, runID, reason string) error
	// Exists reports whether there is such a run.
	Exists(ctx context.Context, namespace, runID string) (bool, error)
}

// Controller carries schedules out. It is safe for concurrent use, and so are any number of controllers on
// one store.
type Controller struct {
	store  Store
	runs   Runs
	most   int // schedules of one namespace
	log    *slog.Logger
	starts metric.Int64Counter
	delay  metric.Float64Histogram
}

// New returns a controller.
func New(store Store, runs Runs, most int, log *slog.Logger, meters metric.MeterProvider) (*Controller, error) {
	m := meters.Meter("github.com/epigraph-run/epigraph/services/executor/internal/schedule")
	k := &Controller{store: store, runs: runs, most: most, log: log}
	var e1, e2 error
	k.starts, e1 = m.Int64Counter("epigraph.schedule.starts", metric.WithDescription("starts of schedules, by what became of them"))
	k.delay, e2 = m.Float64Histogram("epigraph.schedule.delay", metric.WithUnit("s"), metric.WithDescription("from the time of a start to when it was carried out or left out"))
	return k, errors.Join(e1, e2)
}

// Run handles schedules whose job was lost, and deletes old starts, until ctx ends.
func (k *Controller) Run(ctx context.Context) error {
	scan, forget := time.NewTicker(scanPause), time.NewTicker(forgetPause)
	defer scan.Stop()
	defer forget.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-scan.C:
			if _, err := k.store.Overdue(ctx, dbkit.Now().Add(-lag), overdue); err != nil && ctx.Err() == nil {
				k.log.WarnContext(ctx, "overdue schedules not found", "err", err)
			}
		case <-forget.C:
			for ctx.Err() == nil {
				n, err := k.store.Forget(ctx, dbkit.Now().Add(-Memory), 1000)
				if err != nil && ctx.Err() == nil {
					k.log.WarnContext(ctx, "old starts of schedules not forgotten", "err", err)
				}
				if err != nil || n < 1000 {
					break
				}
			}
		}
	}
}

// outcome is what became of trying to start something.
type outcome struct {
	turn  int64
	runID string
	err   error
}

// Fire does everything that is due for a schedule. It is the work of its job. A start that fails for now gets
// another job.
func (k *Controller) Fire(ctx context.Context, key Key) error {
	return k.fire(ctx, key, (*position).take)
}

// fire decides times by take, which reports whether there are more, and carries out ready starts until there
// are none.
func (k *Controller) fire(ctx context.Context, key Key, take func(*position) bool) error {
	var done []outcome
	for {
		var (
			s      Schedule
			starts []Start
			cancel []string
			more   bool
			ended  []Start
			left   error
		)
		err := k.store.Change(ctx, key, func(ctx context.Context, tx Tx, row *Schedule) (Change, error) {
			p, err := look(ctx, tx, row, dbkit.Now())
			if err != nil {
				return Change{}, err
			}
			left = p.applyOutcomes(done)
			more = take(p)
			starts, cancel = p.ready()
			c, err := p.close()
			s, ended = *row, p.put
			return c, err
		})
		if err != nil {
			return err
		}
		k.measure(ctx, ended)
		for _, id := range cancel {
			if err := k.runs.Cancel(ctx, key.Namespace, id, "schedule "+key.ID+" starts another run"); err != nil {
				return fmt.Errorf("cancel run %s: %w", id, err)
			}
		}
		if left != nil {
			k.log.InfoContext(ctx, "start of a schedule put off", "err", left, "schedule_id", key.ID)
			return nil
		}
		if len(starts) == 0 && !more {
			return nil
		}
		done = k.carryOut(ctx, s, starts[:min(len(starts), handful)])
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// carryOut starts runs.
func (k *Controller) carryOut(ctx context.Context, s Schedule, starts []Start) []outcome {
	out := make([]outcome, len(starts))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, st := range starts {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			id, err := k.runs.Start(ctx, s, st)
			if err != nil && !final(err) && !st.Tried.IsZero() && time.Since(st.Tried) > s.Catchup {
				// It has been tried for long enough. Perhaps an earlier try did it and nobody heard of it.
				if there, xerr := k.runs.Exists(ctx, s.Namespace, st.RunID); xerr == nil && there {
					id, err = st.RunID, nil
				} else if xerr == nil {
					err = errs.New(errs.FailedPrecondition, errs.ReasonOf(err), "could not be started for %s: %v", s.Catchup, err)
				}
			}
			out[i] = outcome{turn: st.Turn, runID: id, err: err}
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	return out
}

// final reports whether trying again would not help.
func final(err error) bool {
	switch errs.KindOf(err) {
	case errs.InvalidArgument, errs.NotFound, errs.AlreadyExists, errs.FailedPrecondition:
		return true
	}
	return false
}

// applyOutcomes takes notice of what became of starts, and returns the first error that is not final.
func (p *position) applyOutcomes(done []outcome) (left error) {
	for _, o := range done {
		i := slices.IndexFunc(p.queue, func(st Start) bool { return st.Turn == o.turn })
		if i < 0 {
			continue // another executor was faster, or the schedule dropped it
		}
		st := p.queue[i]
		switch {
		case o.err == nil:
			st.RunID = o.runID
			p.end(st, Started, "")
		case final(o.err):
			st.RunID = ""
			e := errs.From(o.err)
			p.end(st, Failed, e.Reason+": "+e.Message)
		default:
			if left == nil {
				left = o.err
			}
			if st.Tried.IsZero() {
				st.Tried = p.now
				p.queue[i] = st
				p.write(st)
			}
			p.late = []time.Time{p.now.Add(min(max(p.now.Sub(st.Tried)/4, minPause), maxPause))}
			continue
		}
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	return left
}

func (k *Controller) measure(ctx context.Context, put []Start) {
	for _, st := range put {
		if st.Result != Queued {
			k.starts.Add(ctx, 1, metric.WithAttributes(attribute.String("result", string(st.Result))))
			if st.Origin == FromClock {
				k.delay.Record(ctx, st.Actual.Sub(st.Time).Seconds())
			}
		}
	}
}

// after carries out the starts that a change made ready. Failed ones are left to the schedule's job, since
// the change itself is durable. So are times that become due meanwhile: a caller would wait for ever where
// the clock is faster than the starts.
func (k *Controller) after(ctx context.Context, key Key) {
	if err := k.fire(ctx, key, func(*position) bool { return false }); err != nil && ctx.Err() == nil {
		k.log.InfoContext(ctx, "start of a schedule put off", "err", err, "schedule_id", key.ID)
	}
}

// Create makes a schedule. s must be valid; only Key, Spec and Start count.
func (k *Controller) Create(ctx context.Context, s Schedule) (Schedule, error) {
	now := dbkit.Now()
	s = Schedule{Key: s.Key, UID: ids.New("sch"), Spec: s.Spec, Start: s.Start, Done: now, Revision: 1, CreateTime: now, UpdateTime: now, Principal: access.Of(ctx).String()}
	line, err := s.Timeline(s.UID)
	if err != nil {
		return s, err
	}
	s.Due = (&position{s: &s, line: line}).next()
	return s, k.store.Create(ctx, s, k.most)
}

// Get reads a schedule. ReasonNotFound.
func (k *Controller) Get(ctx context.Context, key Key) (Schedule, error) {
	return k.store.Get(ctx, key)
}

// List reads schedules by id, without what they start.
func (k *Controller) List(ctx context.Context, namespace, after string, limit int) ([]Schedule, error) {
	return k.store.List(ctx, namespace, after, limit)
}

// Delete removes a schedule; its runs stay. A revision other than 0 must be the present one.
func (k *Controller) Delete(ctx context.Context, key Key, revision int64) error {
	return k.store.Delete(ctx, key, revision)
}

// edit changes what a schedule says. Times that were due before are decided by what it said until then.
func (k *Controller) edit(ctx context.Context, key Key, revision int64, f func(*Schedule)) (Schedule, error) {
	err := k.store.Change(ctx, key, func(ctx context.Context, tx Tx, s *Schedule) (Change, error) {
		now := dbkit.Now()
		if revision != 0 && revision != s.Revision {
			return Change{}, EtagMismatch(key.ID)
		}
		p, err := look(ctx, tx, s, now)
		if err != nil {
			return Change{}, err
		}
		was := s.Spec
		f(s)
		if said := s.Spec; !said.Paused {
			s.Spec = was
			p.takeAll()
			s.Spec = said
		}
		s.Revision++
		s.UpdateTime, s.Principal = now, access.Of(ctx).String()
		p.changed, p.moved = true, true
		if !was.sameTimes(&s.Spec) {
			// Not back, though: the clock of the executor that decided last may be ahead of this one's.
			s.Done, s.Ahead = later(now, later(s.Done, s.Ahead)), time.Time{}
			if p.line, err = s.Timeline(s.UID); err != nil {
				return Change{}, err
			}
		}
		// A pause that ends lets the times since its beginning be decided, by what the schedule says now.
		p.takeAll()
		return p.close()
	})
	if err != nil {
		return Schedule{}, err
	}
	k.after(ctx, key)
	return k.store.Get(ctx, key)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// takeAll decides the times that are due, as many as one change may.
func (p *position) takeAll() {
	for n := 0; n < rounds && p.take(); n++ {
		continue
	}
}

// Update replaces the spec of a schedule. A revision other than 0 must be the present one. If the times from
// now on change, those that passed during a pause are not caught up.
func (k *Controller) Update(ctx context.Context, key Key, revision int64, spec Spec, start []byte) (Schedule, error) {
	return k.edit(ctx, key, revision, func(s *Schedule) { s.Spec, s.Start = spec, start })
}

// Pause stops the starts of a schedule by the clock until Resume. A note that is not empty replaces the
// present one.
func (k *Controller) Pause(ctx context.Context, key Key, note string) (Schedule, error) {
	return k.edit(ctx, key, 0, func(s *Schedule) { s.pause(true, note) })
}

// Resume ends a pause: see Pause.
func (k *Controller) Resume(ctx context.Context, key Key, note string) (Schedule, error) {
	return k.edit(ctx, key, 0, func(s *Schedule) { s.pause(false, note) })
}

func (s *Schedule) pause(paused bool, note string) {
	if s.Paused = paused; note != "" {
		s.Note = note
	}
}

// Trigger starts a run now, as the schedule's policy allows, even during a pause. A repeated request id
// starts nothing and returns the same start again.
func (k *Controller) Trigger(ctx context.Context, key Key, request string) (Start, error) {
	var st Start
	err := k.store.Change(ctx, key, func(ctx context.Context, tx Tx, s *Schedule) (Change, error) {
		if request != "" {
			uid, earlier, found, err := tx.Request(ctx, request)
			if err != nil {
				return Change{}, err
			}
			if found {
				if st = earlier; uid != s.UID {
					return Change{}, errs.New(errs.InvalidArgument, journal.ReasonRequestIDReused, "request id %q triggered another schedule before", request).
						Hint("use a new request_id for a new request")
				}
				return Change{}, ErrUnchanged
			}
		}
		p, err := look(ctx, tx, s, dbkit.Now())
		if err != nil {
			return Change{}, err
		}
		st = p.decideStart(Start{Time: p.now, Origin: FromTrigger, Overlap: s.Overlap, Request: request, Principal: access.Of(ctx).String()})
		return p.close()
	})
	if err != nil {
		return Start{}, err
	}
	if st.Result != Queued {
		return st, nil
	}
	k.after(ctx, key)
	s, err := k.store.Get(ctx, key)
	if err != nil {
		return Start{}, err
	}
	if i := slices.IndexFunc(s.Recent, func(o Start) bool { return o.Turn == st.Turn }); i >= 0 {
		return s.Recent[i], nil
	}
	return st, nil
}

// Backfill starts the runs of the times from begin on and before end; ReasonSpanTooLong if they are more than
// MaxBackfill. Times that were started before, by the clock or by a backfill, are not started again; their
// starts are among the answers, which are in order of time. If ctx ends before all are started, the rest is
// left to the schedule's job. ReasonBusy if as many starts wait as may.
func (k *Controller) Backfill(ctx context.Context, key Key, begin, end time.Time, o Overlap) ([]Start, error) {
	now := dbkit.Now()
	switch {
	case !begin.Before(end):
		return nil, errs.New(errs.InvalidArgument, ReasonSpanInvalid, "end_time must be after begin_time").Violate("end_time", ReasonSpanInvalid, "is not after begin_time")
	case end.After(now):
		return nil, errs.New(errs.InvalidArgument, ReasonSpanInvalid, "end_time is in the future").Violate("end_time", ReasonSpanInvalid, "is in the future").
			Hint("a backfill makes up for past times; those to come start by themselves")
	}
	var left map[int64]Start
	var times []time.Time
	caller := ctx
	err := k.store.Change(ctx, key, func(ctx context.Context, tx Tx, s *Schedule) (Change, error) {
		left, times = map[int64]Start{}, nil
		if caller.Err() != nil {
			// a caller that left the queue for the row asks for nothing
			return Change{}, context.Cause(caller)
		}
		p, err := look(ctx, tx, s, now)
		if err != nil {
			return Change{}, err
		}
		if len(p.queue) >= MaxQueue {
			return Change{}, Busy(key.ID)
		}
		for t := p.line.Next(begin.Add(-time.Microsecond)); !t.IsZero() && t.Before(end); t = p.line.Next(t) {
			if len(times) == MaxBackfill {
				return Change{}, tooLong(t)
			}
			times = append(times, t)
		}
		if len(times) == 0 {
			return Change{}, ErrUnchanged
		}
		last := times[len(times)-1]
		list, err := tx.Times(ctx, times[0], last.Add(time.Microsecond))
		if err != nil {
			return Change{}, err
		}
		known := decided(list)
		for _, t := range times {
			if known[t.UnixMicro()] {
				continue
			}
			if st := p.decideStart(Start{Time: t, Origin: FromBackfill, Overlap: o, Principal: access.Of(ctx).String()}); st.Result != Queued {
				left[t.UnixMicro()] = st
			}
		}
		if last.After(s.Done) && last.After(s.Ahead) {
			s.Ahead, p.changed = last, true
		}
		return p.close()
	})
	if err != nil || len(times) == 0 {
		return nil, err
	}
	k.after(ctx, key)
	var list []Start
	err = k.store.Change(ctx, key, func(ctx context.Context, tx Tx, _ *Schedule) (_ Change, err error) {
		if list, err = tx.Times(ctx, times[0], times[len(times)-1].Add(time.Microsecond)); err != nil {
			return Change{}, err
		}
		return Change{}, ErrUnchanged
	})
	if err != nil {
		return nil, err
	}
	for _, st := range list {
		left[st.Time.UnixMicro()] = st // the last of a time is what counts
	}
	out := make([]Start, 0, len(times))
	for _, t := range times {
		if st, ok := left[t.UnixMicro()]; ok {
			out = append(out, st)
		}
	}
	return out, nil
}

// Next are the next n times of a schedule, none while it is paused.
func (s *Schedule) Next(n int) ([]time.Time, error) {
	if s.Paused {
		return nil, nil
	}
	line, err := s.Timeline(s.UID)
	if err != nil {
		return nil, err
	}
	var out []time.Time
	for t := line.Next(s.Done); !t.IsZero() && len(out) < n; t = line.Next(t) {
		out = append(out, t)
	}
	return out, nil
}
