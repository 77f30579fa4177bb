package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// bookingTime is how long a finished run's costs may take to be booked before it is shown without them.
const bookingTime = 5 * time.Second

// display is what a watched run is shown on.
type display interface {
	// event shows what happened.
	event(ev *executorv1.RunEvent) error
	// progress shows how the run stands, about once a second.
	progress(r *executorv1.Run)
	// tick is called ten times a second.
	tick()
	// end shows the run as it ended or stands still, with its booked usage.
	end(r *executorv1.Run, booked []*registryv1.UsageEntry) error
}

// watch shows a run until it ends or stands still and returns the exit that says how. Ending e's context
// stops the watching, not the run.
func (e *env) watch(s *services, runID string, g *graphv1.Graph, after int64, descendants bool) error {
	var show display = jsonLines{e.io.Out}
	if !e.json {
		show = &screen{e: e, tree: view.NewTree(runID, g)}
		descendants = descendants || view.HasAgent(g) // whose work is in runs below
	}
	below, err := e.observe(s, runID, after, descendants, show)
	if err != nil && e.ctx.Err() == nil {
		return err
	}
	if e.ctx.Err() != nil {
		return e.leave(runID)
	}
	r, booked, err := e.settled(s, runID)
	switch {
	case e.ctx.Err() != nil:
		return e.leave(runID)
	case err != nil:
		return err
	}
	if err := show.end(r, booked); err != nil {
		return err
	}
	if below != nil && !over(r) && !standsStill(r) {
		if !e.json {
			e.note("%s\nhelp: %s", below.text(), below.advice())
		}
		return exit(exitPaused)
	}
	return exitOf(r)
}

// exitOf is how a command ends with a run that moves no more.
func exitOf(r *executorv1.Run) error {
	switch r.GetState() {
	case executorv1.RunState_RUN_STATE_COMPLETED:
		return nil
	case executorv1.RunState_RUN_STATE_CANCELED:
		return exit(exitCanceled)
	case executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_QUARANTINED:
		return exit(exitPaused)
	}
	return exit(exitFailed)
}

// leave reminds a user who stops watching that the run goes on.
func (e *env) leave(runID string) error {
	if e.json {
		x := errs.New(errs.Canceled, "INTERRUPTED", "interrupted")
		if !e.passing {
			x = errs.New(errs.Canceled, "INTERRUPTED", "interrupted; %s goes on", runID).Hint(fmt.Sprintf("`epigraph runs watch %s` shows it, `epigraph runs cancel %s` ends it", runID, runID))
		}
		e.printError(x)
		return exit(exitInterrupted)
	}
	fmt.Fprintln(e.io.Err) // after ^C
	if !e.passing {
		e.note("The run goes on.\n  see it:   `epigraph runs watch %s`\n  stop it:  `epigraph runs cancel %s`", runID, runID)
	}
	return exit(exitInterrupted)
}

// observe shows a run's events until there will be no more of them, or the run stands still, or waits for
// nothing but paused runs below it, which it returns.
func (e *env) observe(s *services, runID string, after int64, descendants bool, show display) (*standing, error) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	events := make(chan *executorv1.RunEvent)
	failed := make(chan error, 1)
	go func() {
		defer close(events)
		failed <- follow(ctx, s, runID, after, descendants, events)
	}()
	looks, told := make(chan looked), false
	go poll(ctx, s, runID, looks)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case ev, open := <-events:
			if !open {
				return nil, <-failed
			}
			if err := show.event(ev); err != nil {
				return nil, err
			}
			if ev.GetRunPaused() == nil || ev.GetRunId() != runID {
				continue
			}
			// An old pause may be over, and the run paused again; the events in between are shown first.
			if r, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: runID}); err == nil && standsStill(r) && r.GetLastSeq() <= ev.GetSeq() {
				return nil, nil
			}
		case l := <-looks:
			switch {
			case standsStill(l.run):
				return nil, nil
			case l.below != nil && !l.below.timed:
				return l.below, nil
			case l.below != nil && !told && !e.json:
				told = true
				e.note("%s, until its time is over\nhelp: %s", l.below.text(), l.below.advice())
			}
			show.progress(l.run)
		case <-tick.C:
			show.tick()
		}
	}
}

// standsStill reports whether a run waits for somebody to do something.
func standsStill(r *executorv1.Run) bool {
	return r.GetState() == executorv1.RunState_RUN_STATE_PAUSED && !unsettled(r) || r.GetState() == executorv1.RunState_RUN_STATE_QUARANTINED
}

// unsettled reports whether a run waits for the prices of its calls, after which it goes on by itself.
func unsettled(r *executorv1.Run) bool {
	return r.GetState() == executorv1.RunState_RUN_STATE_PAUSED && r.GetStateReason() == "BUDGET_UNSETTLED"
}

// over reports whether a run has ended.
func over(r *executorv1.Run) bool {
	switch r.GetState() {
	case executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED, executorv1.RunState_RUN_STATE_CANCELED:
		return true
	}
	return false
}

// looked is how a run stands, with what it waits for if that is only paused runs below it.
type looked struct {
	run   *executorv1.Run
	below *standing
}

// poll sends how a run stands once a second. A server that does not answer is follow's to report.
func poll(ctx context.Context, s *services, runID string, out chan<- looked) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: runID})
		if err != nil {
			continue
		}
		l := looked{run: r}
		if r.GetState() == executorv1.RunState_RUN_STATE_WAITING {
			l.below = standingBelow(ctx, s, runID)
		}
		select {
		case out <- l:
		case <-ctx.Done():
			return
		}
	}
}

// follow sends a run's events until it has ended. A broken stream is resumed after its last event.
func follow(ctx context.Context, s *services, runID string, after int64, descendants bool, out chan<- *executorv1.RunEvent) error {
	for tries := 0; ; tries++ {
		stream, err := s.executor.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: runID, AfterSeq: after, IncludeDescendants: descendants})
		for err == nil {
			var ev *executorv1.RunEvent
			if ev, err = stream.Recv(); err != nil {
				break
			}
			tries = 0
			if ev.GetRunId() == runID && ev.GetSeq() > 0 {
				after = ev.GetSeq()
			}
			select {
			case out <- ev:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			var r *executorv1.Run
			if r, err = s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: runID}); err == nil && (over(r) || standsStill(r)) {
				return nil
			}
			if err == nil { // the server that showed it stopped; another one goes on
				err = errs.New(errs.Unavailable, "STREAM_ENDED", "the events of %s ended before the run did", runID)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errs.Is(err, errs.Unavailable) || tries == 10 {
			return err
		}
		select {
		case <-time.After(min(100*time.Millisecond<<tries, 3*time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// jsonLines shows a run as one JSON value per line: its events, and at last the run.
type jsonLines struct{ out io.Writer }

func (j jsonLines) event(ev *executorv1.RunEvent) error { return printJSON(j.out, ev) }
func (jsonLines) progress(*executorv1.Run)              {}
func (jsonLines) tick()                                 {}
func (j jsonLines) end(r *executorv1.Run, _ []*registryv1.UsageEntry) error {
	return printJSON(j.out, r)
}

// screen shows a tree: on a terminal as a picture that moves, elsewhere as lines that only grow.
type screen struct {
	e     *env
	tree  *view.Tree
	drawn []int // columns of the lines of the picture that is there
	turn  int
}

func (v *screen) event(ev *executorv1.RunEvent) error {
	line := v.tree.Apply(v.e.io.style(), ev)
	if line == "" || v.e.io.Interactive {
		return nil
	}
	return v.e.say(line + "\n")
}

func (v *screen) progress(r *executorv1.Run) { v.tree.Spend(r.GetUsage()) }

func (v *screen) tick() {
	v.turn++
	if v.e.io.Interactive {
		v.draw(false)
	}
}

func (v *screen) end(r *executorv1.Run, booked []*registryv1.UsageEntry) error {
	for _, u := range booked {
		v.tree.Book(u.GetNodeId(), u.GetCostNanoUsd(), u.CostNanoUsd != nil)
	}
	v.tree.Spend(r.GetUsage())
	v.tree.Miss(r.GetUsage().GetUnbookedAttempts())
	if v.e.io.Interactive {
		v.draw(true)
	} else {
		fmt.Fprint(v.e.io.Out, "\n"+v.tree.Render(v.e.io.style(), view.Frame{Width: v.e.io.Width, Turn: -1, Now: time.Now()}))
	}
	_, err := fmt.Fprint(v.e.io.Out, summary(v.e, r))
	if h := advice(r); h != "" {
		v.e.note("help: %s", h)
	}
	v.e.noteUnbooked(r)
	return err
}

// draw replaces the picture that is there. The last one may be taller than the terminal, since nothing is
// drawn over it.
func (v *screen) draw(last bool) {
	columns, lines := v.e.io.Size()
	f := view.Frame{Width: columns - 1, Turn: v.turn, Now: time.Now()}
	if !last {
		f.Height = lines - 1
	}
	var b strings.Builder
	// A terminal that became narrower has broken the lines.
	up := 0
	for _, n := range v.drawn {
		up += max(1, (n+columns-1)/columns)
	}
	if up = min(up, lines-1); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	v.drawn = v.drawn[:0]
	for l := range strings.Lines(v.tree.Render(v.e.io.style(), f)) {
		// Line by line, since some terminals keep what a cleared screen showed.
		b.WriteString("\x1b[2K" + l)
		v.drawn = append(v.drawn, view.Columns(view.Plain(strings.TrimSuffix(l, "\n"))))
	}
	b.WriteString("\x1b[0J")
	fmt.Fprint(v.e.io.Out, b.String())
}

// settled is a run that ended or stands still, once all usage of it and of the runs below it is booked, and
// that usage. If the registry does not book it in time, only the run is returned, which says how much is
// missing.
func (e *env) settled(s *services, runID string) (*executorv1.Run, []*registryv1.UsageEntry, error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	for begun := time.Now(); ; {
		r, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: runID})
		switch {
		case err != nil || r.GetUsage().GetCalls() == 0:
			return r, nil, err
		case r.GetUsage().GetUnbookedAttempts() == 0:
			ask, stop := context.WithTimeout(ctx, bookingTime)
			defer stop()
			booked, _ := usageOf(ask, s, runID) // the run has its sum without them
			return r, booked, nil
		case time.Since(begun) > bookingTime || r.GetEndTime() != nil && time.Since(r.GetEndTime().AsTime()) > bookingTime:
			return r, nil, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// tellUnbooked says when the cost that was shown is not the whole.
func (e *env) noteUnbooked(r *executorv1.Run) {
	if n := r.GetUsage().GetUnbookedAttempts(); n > 0 {
		e.note("help: the registry has not booked %s yet, whose cost is missing above; `epigraph runs show %s` tells it later", view.Plural(int(n), "attempt"), r.GetId())
	}
}

// usageOf is everything that is booked for a run.
func usageOf(ctx context.Context, s *services, runID string) ([]*registryv1.UsageEntry, error) {
	var out []*registryv1.UsageEntry
	req := &registryv1.ListUsageRequest{RunId: runID, PageSize: 1000}
	for {
		page, err := s.registry.ListUsage(ctx, req)
		if err != nil {
			return nil, err
		}
		out = append(out, page.GetEntries()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return out, nil
		}
	}
}
