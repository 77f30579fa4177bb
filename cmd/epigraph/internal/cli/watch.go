package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// watch shows a run until it ends or stands still and returns the exit that says how. Ending ctx stops the watching, not the run.
func (e *env) watch(s *services, runID string, g *graphv1.Graph, after int64, descendants bool) error {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	events := make(chan *executorv1.RunEvent)
	failed := make(chan error, 1)
	go func() {
		defer close(events)
		failed <- follow(ctx, s, runID, after, descendants, events)
	}()
	if e.json {
		for ev := range events {
			if err := printJSON(e.io.Out, ev); err != nil {
				return err
			}
			if ev.GetRunPaused() != nil {
				cancel()
			}
		}
	} else {
		screen := newScreen(e, view.NewTree(runID, g))
		screen.show(ctx, s, runID, events, cancel)
	}
	if err := <-failed; err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return err
	}
	if e.ctx.Err() != nil {
		fmt.Fprintf(e.io.Err, "\nthe run goes on: watch it with `epigraph runs watch %s`, stop it with `epigraph runs cancel %s`\n", runID, runID)
		return nil
	}
	return e.conclude(s, runID)
}

// conclude shows how a run stands once its costs are booked, and says it by the exit code.
func (e *env) conclude(s *services, runID string) error {
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	r, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: runID})
	if err != nil {
		return err
	}
	if e.json {
		if err := printJSON(e.io.Out, r); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e.io.Out, summary(e, r))
	}
	switch r.GetState() {
	case executorv1.RunState_RUN_STATE_COMPLETED:
		return nil
	case executorv1.RunState_RUN_STATE_CANCELLED:
		return exit(exitCancelled)
	case executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_QUARANTINED:
		return exit(exitPaused)
	}
	return exit(exitFailed)
}

// follow sends a run's events until it has ended. A stream that breaks is taken up again after its last event.
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
			return nil
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

// screen shows a tree: on a terminal as a picture that moves, elsewhere as lines that only grow.
type screen struct {
	e     *env
	tree  *view.Tree
	drawn int
	frame int
}

func newScreen(e *env, tree *view.Tree) *screen { return &screen{e: e, tree: tree} }

func (v *screen) show(ctx context.Context, s *services, runID string, events <-chan *executorv1.RunEvent, cancel func()) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	style := v.e.io.style()
	for {
		select {
		case ev, open := <-events:
			if !open {
				if v.tree.Ended() != nil || v.tree.Paused() != "" {
					v.book(ctx, s, runID)
				}
				v.draw(true)
				return
			}
			line := v.tree.Apply(style, ev)
			if line != "" && !v.e.io.Interactive {
				fmt.Fprintln(v.e.io.Out, line)
			}
			if v.tree.Paused() != "" {
				cancel() // nothing will happen until somebody does something
			}
		case <-tick.C:
			v.frame++
			v.draw(false)
		}
	}
}

// draw replaces the picture that is there.
func (v *screen) draw(last bool) {
	if !v.e.io.Interactive {
		if last {
			fmt.Fprint(v.e.io.Out, v.tree.Render(v.e.io.style(), 0, 0, time.Now()))
		}
		return
	}
	width, height := 100, 50
	if w, h, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		width, height = w, h
	}
	text := v.tree.Render(v.e.io.style(), width-1, v.frame, time.Now())
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if !last && len(lines) > height-1 {
		lines = lines[:height-1]
	}
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	for _, l := range lines {
		b.WriteString("\x1b[2K" + l + "\n")
	}
	b.WriteString("\x1b[0J")
	v.drawn = len(lines)
	fmt.Fprint(v.e.io.Out, b.String())
}

// book waits a moment for the costs of all calls to reach the registry and puts them into the tree. Without a registry there are
// none.
func (v *screen) book(ctx context.Context, s *services, runID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancel()
	for {
		r, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: runID})
		if err != nil || r.GetUsage().GetCalls() == 0 {
			return
		}
		entries, err := usageOf(ctx, s, runID)
		if err != nil {
			return
		}
		v.tree.ResetCosts()
		for _, u := range entries {
			v.tree.Book(u.GetNodeId(), u.GetCostNanoUsd(), u.CostNanoUsd != nil)
		}
		if int64(len(entries)) >= r.GetUsage().GetCalls() && (r.GetUsage().GetCostNanoUsd() > 0 || r.GetUsage().GetUnpricedCalls() >= 0 && allUnpriced(entries)) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

func allUnpriced(entries []*registryv1.UsageEntry) bool {
	for _, u := range entries {
		if u.CostNanoUsd != nil && u.GetCostNanoUsd() > 0 {
			return false
		}
	}
	return true
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
