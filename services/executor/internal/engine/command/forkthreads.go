package command

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Bounds of what is looked at to find where the threads of a run end for its fork: runs that it was forked
// from, runs above the one that wrote an item, and items read at once.
const maxForksAbove, maxAboveItem, maxItemsAtOnce = 16, 64, 1_000

// standingOfFork is where the fork of a run stands: in its place, with the threads that its agents shared up
// to where the fork goes on.
func (h *Handler) standingOfFork(ctx context.Context, row journal.Run, g *workgraph.Graph, reused []workgraph.ReusedVisit) (workgraph.Standing, error) {
	f, err := record.LineageOf(row)
	if err != nil {
		return workgraph.Standing{}, err
	}
	before := f.Standing.Before
	f.Standing.Before = nil
	if row.ThreadID != "" && !f.Standing.Apart {
		return f.Standing, nil // they are parts of the thread of the run, with which the fork goes on
	}
	var c *cutter
	for _, name := range sharedThreads(g) {
		end := before[name]
		switch t, err := h.journal.ThreadByKey(ctx, row.Namespace, thread.SharedKey(row.ID, name)); {
		case err == nil:
			end = workgraph.ThreadEnd{Thread: t.ID, Seq: t.Last}
		case errs.ReasonOf(err) != thread.ReasonNotFound:
			return f.Standing, err
		}
		if end.Seq == 0 {
			continue
		}
		if c == nil {
			if c, err = h.newCutter(ctx, row, reused); err != nil {
				return f.Standing, err
			}
		}
		if end.Seq, err = c.last(ctx, end); err != nil {
			return f.Standing, err
		}
		if end.Seq > 0 {
			if f.Standing.Before == nil {
				f.Standing.Before = map[string]workgraph.ThreadEnd{}
			}
			f.Standing.Before[name] = end
		}
	}
	return f.Standing, nil
}

// holdShared keeps the threads that a fork of a run goes on after as long as the fork is open. One
// that an open run holds is kept by that run.
func (h *Handler) holdShared(ctx context.Context, start StartRequest, id string) {
	for _, end := range start.Lineage.Standing.Before {
		if err := h.journal.HoldThread(ctx, start.Namespace, end.Thread, []string{id}); err != nil && errs.ReasonOf(err) != thread.ReasonBusy {
			h.log.WarnContext(ctx, "thread of the forked run cannot be held", "err", err)
		}
	}
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
