package command

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Bounds of what is looked at to find where the threads of a run end for its fork: runs that it was forked
// from, runs above the one that wrote an item, and items read at once.
const maxForksAbove, maxAboveItem, maxItemsAtOnce = 16, 64, 1_000

// ReasonForkTooManyThreads is the reason when the agents of a graph share threads by too many names.
const ReasonForkTooManyThreads = "FORK_TOO_MANY_THREADS"

// standingOfFork is where the fork of a run stands: in its place. shared are where the threads end
// that its agents share and go on with, by their names.
func (h *Handler) standingOfFork(ctx context.Context, row journal.Run, g *workgraph.Graph, reused []workgraph.ReusedVisit) (at workgraph.Standing, shared map[string]SharedEnd, err error) {
	f, err := record.LineageOf(row)
	if err != nil {
		return at, nil, err
	}
	if row.ThreadID != "" && !f.Standing.Apart {
		return f.Standing, nil, nil // they are parts of the thread of the run, with which the fork goes on
	}
	names := sharedThreads(g)
	if len(names) == 0 {
		return f.Standing, nil, nil
	}
	if len(names) > thread.MaxAppends {
		return at, nil, errs.New(errs.FailedPrecondition, ReasonForkTooManyThreads, "the agents of the graph share threads by %d names, and a fork goes on with %d at most", len(names), thread.MaxAppends).
			Hint("start another run, or fork with a graph whose agents share fewer threads")
	}
	of, keys := make(map[string]string, len(names)), make([]string, len(names))
	for i, name := range names {
		keys[i] = thread.SharedKey(row.ID, name)
		of[keys[i]] = name
	}
	list, err := h.journal.ThreadsByKeys(ctx, row.Namespace, keys)
	if err != nil || len(list) == 0 {
		return f.Standing, nil, err
	}
	c, err := h.newCutter(ctx, row, reused)
	if err != nil {
		return at, nil, err
	}
	for i := range list {
		t := &list[i]
		end := workgraph.ThreadEnd{Thread: t.ID, Seq: t.Last}
		if end.Seq, err = c.last(ctx, end); err != nil {
			return at, nil, err
		}
		if end.Seq > 0 {
			if shared == nil {
				shared = map[string]SharedEnd{}
			}
			shared[of[t.Key]] = SharedEnd{ThreadEnd: end, Agent: t.Agent}
		}
	}
	return f.Standing, shared, nil
}

// SharedEnd is where a thread ends that agents share, and the actor that takes its turns.
type SharedEnd struct {
	workgraph.ThreadEnd
	Agent string
}

// SharedThreads make the threads that the agents of a fork share, as forks of those of the run that it
// is forked from. The run of this id, which is a root, holds them from the beginning.
func (r *StartRequest) SharedThreads(runID string, now time.Time) (out []thread.Append) {
	for _, name := range slices.Sorted(maps.Keys(r.Shared)) {
		end := r.Shared[name]
		out = append(out, thread.Append{Thread: ids.New(thread.IDPrefix), After: end.Seq, Time: now, Create: &workgraph.ThreadCreate{
			Parent: end.Thread, ParentSeq: end.Seq, Lifetime: workgraph.ThreadEphemeral, Agent: end.Agent, Key: thread.SharedKey(runID, name),
			OfRoot: true, Root: runID, UserID: r.UserID, ChatID: r.ChatID,
		}})
	}
	return out
}

// sharedThreads are the names of the threads that agents of a graph share within a run.
func sharedThreads(g *workgraph.Graph) (names []string) {
	seen := map[string]bool{}
	for i := range g.Nodes {
		var of struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(g.Nodes[i].Named["thread"], &of) == nil && of.Name != "" && !seen[of.Name] {
			seen[of.Name] = true
			names = append(names, of.Name)
		}
	}
	return names
}

// cutter finds the last items of threads that come of visits which a fork reuses. The steps on a thread
// follow each other, so that what comes after that is of visits that are made again.
type cutter struct {
	h         *Handler
	namespace string
	// of are the run that is forked and those that it was forked from.
	of    map[string]bool
	taken map[workgraph.Ref]bool
	known map[string]bool // by the run that wrote an item
}

func (h *Handler) newCutter(ctx context.Context, row journal.Run, reused []workgraph.ReusedVisit) (*cutter, error) {
	c := &cutter{h: h, namespace: row.Namespace, of: map[string]bool{row.ID: true}, taken: make(map[workgraph.Ref]bool, len(reused)), known: map[string]bool{}}
	for i := range reused {
		c.taken[reused[i].Ref] = true
	}
	for id := row.ForkedFrom; id != "" && len(c.of) < maxForksAbove; {
		c.of[id] = true
		above, err := h.journal.Head(ctx, row.Namespace, id)
		if errs.Is(err, errs.NotFound) {
			break
		} else if err != nil {
			return nil, err
		}
		id = above.ForkedFrom
	}
	return c, nil
}

// last is the sequence of the last item of a thread that the fork goes on after; 0 if there is none.
func (c *cutter) last(ctx context.Context, end workgraph.ThreadEnd) (int64, error) {
	segments, err := c.h.journal.Lineage(ctx, c.namespace, end.Thread)
	if errs.ReasonOf(err) == thread.ReasonNotFound {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	for _, g := range segments {
		for g.Last = min(g.Last, end.Seq); g.Last >= g.First; {
			items, err := c.h.journal.SegmentItems(ctx, c.namespace, g, thread.Selection{Limit: maxItemsAtOnce, Origin: true})
			if err != nil {
				return 0, err
			}
			for i := range items {
				if kept, err := c.keeps(ctx, items[i].RunID); err != nil || kept {
					return items[i].Seq, err
				}
			}
			if len(items) == 0 {
				break
			}
			g.Last = items[len(items)-1].Seq - 1
		}
	}
	return 0, nil
}

// keeps reports whether a run stands below a visit that the fork reuses.
func (c *cutter) keeps(ctx context.Context, runID string) (bool, error) {
	if kept, ok := c.known[runID]; ok {
		return kept, nil
	}
	kept, err := c.below(ctx, runID)
	if err == nil {
		c.known[runID] = kept
	}
	return kept, err
}

func (c *cutter) below(ctx context.Context, runID string) (bool, error) {
	for range maxAboveItem {
		row, err := c.h.journal.Head(ctx, c.namespace, runID)
		if errs.Is(err, errs.NotFound) {
			return false, nil // deleted: nobody knows of which visit it was
		} else if err != nil {
			return false, err
		}
		if row.ParentID == "" {
			return false, nil
		}
		if !c.of[row.ParentID] {
			runID = row.ParentID
			continue
		}
		f, err := record.LineageOf(row)
		f.Ref.Item = 0 // visits are reused as a whole
		return c.taken[f.Ref], err
	}
	return false, nil
}
