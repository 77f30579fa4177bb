package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// turnsEvery is the pause between two looks for turns whose job was lost, and turnsLate how long a turn
	// must have waited for that.
	turnsEvery, turnsLate = 10 * time.Second, 10 * time.Second
	// threadPage is how many threads, or rows of one, a sweep takes at once.
	threadPage = 500
)

// nextTurn works a job about a thread.
func (s *Service) nextTurn(ctx context.Context, j dispatch.Job) error {
	var args journal.ThreadArgs
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return dispatch.Never(fmt.Errorf("decode job: %w", err))
	}
	err := s.advance(ctx, args)
	if errs.Is(err, errs.Unavailable) || errs.Is(err, errs.ResourceExhausted) {
		return dispatch.Later(jobPause)
	}
	return err
}

// advance gives turns of the threads of a job to their agents. A turn that cannot be given now keeps no other
// one back.
func (s *Service) advance(ctx context.Context, args journal.ThreadArgs) error {
	var first error
	if args.ThreadID != "" {
		first = s.threads.Advance(ctx, args.Namespace, args.ThreadID)
	}
	for after := ""; args.RunID != ""; {
		ids, err := s.journal.HeldTurns(ctx, args.Namespace, args.RunID, after, threadPage)
		if err != nil {
			return cmp.Or(first, err)
		}
		for _, id := range ids {
			after, first = id, cmp.Or(first, s.threads.Advance(ctx, args.Namespace, id))
		}
		if len(ids) < threadPage {
			break
		}
	}
	return first
}

// resumeTurns looks after turns that wait for long: the executor that queued one may have died before it
// started its run.
func (s *Service) resumeTurns(ctx context.Context) error {
	for sleep.For(ctx, turnsEvery) {
		for after := ""; ctx.Err() == nil; {
			names, err := s.journal.OverdueTurns(ctx, dbkit.Now().Add(-turnsLate), after, threadPage)
			if err != nil {
				if ctx.Err() == nil {
					s.log.WarnContext(ctx, "messages that wait for agents cannot be listed", "err", err)
				}
				break
			}
			for _, n := range names {
				after = n.ID
				s.threads.Try(ctx, n.Namespace, n.ID)
			}
			if len(names) < threadPage {
				break
			}
		}
	}
	return nil
}

// sweepThreads hides threads whose time is over and parts of those that are hidden, and removes hidden
// ones that no fork needs, until time is up.
func (u *maintenance) sweepThreads(ctx context.Context, until time.Time) error {
	for after, more := "", true; more && time.Now().Before(until); more = after != "" {
		_, next, err := u.journal.SweepThreads(ctx, u.now().Add(-u.ephemeral), after, threadPage)
		if err != nil {
			return fmt.Errorf("look for threads whose time is over: %w", err)
		}
		after = next
	}
	for after, more := "", true; more && time.Now().Before(until); more = after != "" {
		next, err := u.journal.HideParts(ctx, after, threadPage)
		if err != nil {
			return fmt.Errorf("look for parts of deleted threads: %w", err)
		}
		after = next
	}
	for more := true; more && time.Now().Before(until); {
		var err error
		if more, err = u.journal.PurgeThreads(ctx, threadPage); err != nil {
			return fmt.Errorf("remove threads: %w", err)
		}
	}
	return nil
}
