package cli

import (
	"context"
	"fmt"
	"strings"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

const (
	// maxLooks bounds the runs below one that are looked at, and maxBelow their depth. A run with more is
	// taken to move.
	maxLooks, maxBelow = 100, 16
)

// standing is what keeps a run waiting: paused runs below it, and nothing else.
type standing struct {
	run    *executorv1.Run
	paused []*executorv1.Run
	// timed says that a wait for them ends by itself.
	timed bool
}

// standingBelow looks twice whether a run waits for nothing but paused runs below it, and returns nil unless
// both looks find the same: a run may have gone on in the middle of a look.
func standingBelow(ctx context.Context, s *services, runID string) *standing {
	first := lookBelow(ctx, s, runID)
	if first == nil {
		return nil
	}
	again := lookBelow(ctx, s, runID)
	if again == nil || len(again.paused) != len(first.paused) || again.run.GetLastSeq() != first.run.GetLastSeq() {
		return nil
	}
	for i, r := range again.paused {
		if f := first.paused[i]; r.GetId() != f.GetId() || r.GetLastSeq() != f.GetLastSeq() {
			return nil
		}
	}
	return again
}

func lookBelow(ctx context.Context, s *services, runID string) *standing {
	l := look{s: s, left: maxLooks}
	r, stands := l.at(ctx, runID, 0)
	if !stands || len(l.found.paused) == 0 || standsStill(r) {
		return nil
	}
	l.found.run = r
	return &l.found
}

// look is one look at a run and the runs below it.
type look struct {
	s     *services
	left  int
	found standing
}

// at reports whether a run stands still, or waits for nothing but runs that do.
func (l *look) at(ctx context.Context, id string, depth int) (*executorv1.Run, bool) {
	if l.left == 0 || depth == maxBelow {
		return nil, false
	}
	l.left--
	r, err := l.s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
	switch {
	case err != nil || len(r.GetPendingCommands()) > 0:
		return r, false
	case standsStill(r):
		l.found.paused = append(l.found.paused, r)
		return r, true
	case r.GetState() != executorv1.RunState_RUN_STATE_WAITING || r.GetOpenInterrupts() > 0:
		return r, false
	}
	page, err := l.s.executor.ListRuns(ctx, &executorv1.ListRunsRequest{ParentRunId: id, States: openStates, PageSize: maxLooks})
	if err != nil || len(page.GetRuns()) == 0 || page.GetNextPageToken() != "" {
		return r, false
	}
	open := map[string]bool{}
	for _, c := range page.GetRuns() {
		open[c.GetId()] = true
		if c.GetState() == executorv1.RunState_RUN_STATE_RUNNING || c.GetState() == executorv1.RunState_RUN_STATE_PENDING {
			return r, false
		}
	}
	for _, c := range page.GetRuns() {
		if _, stands := l.at(ctx, c.GetId(), depth+1); !stands {
			return r, false
		}
	}
	return r, l.waitsFor(ctx, id, open)
}

// waitsFor reports whether nothing holds a run up but these children.
func (l *look) waitsFor(ctx context.Context, id string, children map[string]bool) bool {
	x, err := l.s.executor.ExplainRun(ctx, &executorv1.ExplainRunRequest{RunId: id})
	if err != nil || x.GetMore() > 0 {
		return false
	}
	waits := false
	for _, b := range x.GetBlockers() {
		switch b.GetKind() {
		case executorv1.BlockerKind_BLOCKER_KIND_CHILDREN:
			waits = true
			l.found.timed = l.found.timed || b.GetUntil() != nil
		case executorv1.BlockerKind_BLOCKER_KIND_BUDGET: // of children
		case executorv1.BlockerKind_BLOCKER_KIND_DEPENDENCY, executorv1.BlockerKind_BLOCKER_KIND_AMEND_REFUSED:
			continue
		default:
			return false
		}
		for _, c := range b.GetRunIds() {
			if !children[c] {
				return false // it has ended, or is being started
			}
		}
	}
	return waits
}

// text says what is paused.
func (p *standing) text() string {
	var names []string
	for _, r := range p.paused[:min(len(p.paused), 3)] {
		names = append(names, fmt.Sprintf("%s (%s)", r.GetId(), r.GetStateReason()))
	}
	if n := len(p.paused) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	are := "are"
	if len(p.paused) == 1 {
		are = "is"
	}
	return fmt.Sprintf("%s waits for what %s paused: %s", p.run.GetId(), are, strings.Join(names, ", "))
}

// advice is what may be typed.
func (p *standing) advice() string {
	for _, r := range p.paused {
		switch reason := r.GetStateReason(); {
		case reason == capReached:
			return raiseCap(r.GetId()) + fmt.Sprintf("; `epigraph runs cancel %s` ends all of it", p.run.GetId())
		case r.GetState() != executorv1.RunState_RUN_STATE_PAUSED, reason == "NEEDS_RECONCILIATION", reason == "BUDGET_EXHAUSTED":
			return fmt.Sprintf("`epigraph runs explain %s` says what it needs, `epigraph runs cancel %s` ends all of it", r.GetId(), p.run.GetId())
		}
	}
	id := p.run.GetId()
	return fmt.Sprintf("`epigraph runs resume %s` goes on, `epigraph runs stop %s` ends it with what it has, `epigraph runs explain %s` says more", id, id, id)
}

// note is both, on one line.
func (p *standing) note() string { return p.text() + "; " + p.advice() }

// awaitStanding waits until a run waits for nothing but paused runs below it. It returns nil when ctx ends.
func awaitStanding(ctx context.Context, s *services, runID string) *standing {
	looks := make(chan looked)
	go poll(ctx, s, runID, looks)
	for {
		select {
		case l := <-looks:
			if l.below != nil {
				return l.below
			}
		case <-ctx.Done():
			return nil
		}
	}
}
