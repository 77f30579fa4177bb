package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// RunState is what became of a run, in the words of the outbox.
type RunState string

// The states that are told.
const (
	Started RunState = "STARTED"
	Paused  RunState = "PAUSED"
	Resumed RunState = "RESUMED"
	Ended   RunState = "ENDED"
	Amended RunState = "AMENDED"
	Removed RunState = "DELETED"
)

// RunChange tells the feed, and of an end the catalog, what became of a run.
//
// The outbox carries it, and the executor has no feed of its own: readers have one cursor for epics and
// runs. The price is that the order between runs is that of the deliveries.
type RunChange struct {
	RunID string `json:"run_id"`
	// Parent is the run that spawned it; empty for a root.
	Parent string `json:"parent,omitempty"`
	// Workflow is SLUG@VERSION; empty for a run of a plan or a graph.
	Workflow string   `json:"workflow,omitempty"`
	State    RunState `json:"state,omitempty"`
	// Seq is that of the event of the run.
	Seq  int64     `json:"seq,omitempty"`
	Time time.Time `json:"time,omitzero"`
	// Task is the task that it works on, or that pays for it, and Epic the epic that has the task or pays.
	// Both may be empty.
	Task string `json:"task_id,omitempty"`
	Epic string `json:"epic_id,omitempty"`
	// Reason is why it failed, was canceled, paused or resumed.
	Reason string `json:"reason,omitempty"`
	// Outcome is how it ended.
	Outcome Outcome `json:"outcome,omitempty"`
	// Used is what a run that has ended and all below it used, if it is known with the end: it is for a run
	// that made no calls. Otherwise it is known when the calls are booked.
	Used *Used `json:"used,omitempty"`
	// Activity sums up what a run that has ended did.
	Activity *Activity `json:"activity,omitempty"`
	// Runs is how many runs are gone with one that was deleted, itself included.
	Runs  int64 `json:"runs,omitempty"`
	Trace Trace `json:"trace,omitzero"`
	// Resumed is of items of kindPaused.
	Resumed bool `json:"resumed,omitempty"`
}

// Activity sums up what a run has done.
type Activity struct {
	Nodes journal.NodeCounts `json:"nodes"`
	Calls int64              `json:"calls,omitempty"`
	// Duration is the time from the start of the run to its end; nil for a run that never started.
	Duration *time.Duration `json:"duration,omitempty"`
}

// OfDeleted is the stored form of the deletion of a run that had ended, with which n runs are gone. It is not
// told of a run of which nothing else was: see Told.
func OfDeleted(r *journal.Run, n int) ([]journal.Out, error) {
	if !Told(r.ParentID, r.WorkflowVersion) {
		return nil, nil
	}
	o, err := RunChange{RunID: r.ID, Parent: r.ParentID, Workflow: r.WorkflowVersion, State: Removed, Seq: r.LastSeq + 1, Time: dbkit.Now(),
		Task: r.TaskID, Epic: r.EpicID, Runs: int64(n)}.Out()
	return []journal.Out{o}, err
}

// Told reports whether changes of a run are told. Roots are told, and runs below them that are of a workflow
// of the catalog. Other runs below are parts of the work of a run that is told.
func Told(parent, workflow string) bool { return parent == "" || workflow != "" }

// Used is what a run and all below it used.
type Used struct {
	NanoUSD       int64 `json:"nano_usd,omitempty"`
	Tokens        int64 `json:"tokens,omitempty"`
	UnpricedCalls int64 `json:"unpriced_calls,omitempty"`
	// Duration is the time from the start of the run to its end; nil if it is not known.
	Duration *time.Duration `json:"duration,omitempty"`
}

// Out is the stored form of a change.
func (c RunChange) Out() (journal.Out, error) { return encode(KindRun, c) }

// Changes are changes of runs and threads.
type Changes struct {
	Runs    []RunChange
	Threads []ThreadChange
}

func (c *Changes) count() int { return len(c.Runs) + len(c.Threads) }

// tellable are the changes that an item tells, if it can be told without waiting for others.
func tellable(it journal.OutboxItem) (c Changes, ok bool) {
	switch it.Kind {
	case KindThread:
		list, err := threadChanges(it)
		return Changes{Threads: list}, err == nil
	case KindRun, kindEnded, kindPaused:
		r, err := changeOf(it)
		return Changes{Runs: []RunChange{r}}, err == nil && r.known()
	}
	return c, false
}

// Urgent reports whether any of the items is more than a change for the feed, whose readers are told of
// it a moment later in any case: others are waited for by the ends of runs, by tasks, or by budgets.
func Urgent(items []journal.Out) bool {
	return slices.ContainsFunc(items, func(o journal.Out) bool { return o.Kind != KindRun && o.Kind != KindThread })
}

// changeOf is the change that an item tells.
func changeOf(it journal.OutboxItem) (RunChange, error) {
	c, err := decode[RunChange](it)
	switch it.Kind {
	case kindEnded:
		c.State, c.Seq = Ended, it.Seq
	case kindPaused:
		c.State = Paused
		if c.Resumed {
			c.State = Resumed
		}
	}
	return c, err
}

// known reports whether a change can be told without waiting for usage.
func (c *RunChange) known() bool { return c.State != Ended || c.Used != nil }

// maxChanges is how many changes are told at once. One item has fewer.
const maxChanges = 500

// early tells changes that stand first in the order of their runs or threads, those of many at once:
// most runs make no calls, and have nothing else to tell. It returns what is left of the groups. A
// change that must wait for usage, and all behind it, is left. So is everything if the registry
// refuses: then each is told by itself.
func (d *Deliverer) early(ctx context.Context, groups [][]journal.OutboxItem, down *outage) (acks []journal.OutboxAck, rest [][]journal.OutboxItem) {
	var (
		list Changes
		// of are the items of the list, and in are their groups.
		of []journal.OutboxAck
		in []int
	)
	rest = make([][]journal.OutboxItem, 0, len(groups))
	told, refused := make([]int, len(groups)), make([]bool, len(groups))
	tell := func() {
		done := len(of) > 0 && ctx.Err() == nil && !down.hits(groups[0][0].Namespace)
		if done {
			call, cancel := context.WithTimeout(ctx, d.o.CallTimeout)
			err := d.reg.RecordChanges(call, groups[0][0].Namespace, list)
			cancel()
			if done = err == nil; !done {
				down.hears(groups[0][0].Namespace, err)
			}
		}
		for i, at := range in {
			if !done {
				refused[at] = true
				continue
			}
			acks = append(acks, of[i])
			told[at]++
		}
		list, of, in = Changes{}, nil, nil
	}
	for i, g := range groups {
		for _, it := range g {
			c, ok := tellable(it)
			if !ok {
				break
			}
			if len(of) > 0 && list.count()+c.count() > maxChanges {
				tell()
			}
			if refused[i] {
				break
			}
			list.Runs, list.Threads = append(list.Runs, c.Runs...), append(list.Threads, c.Threads...)
			of, in = append(of, journal.OutboxAck{ID: it.ID}), append(in, i)
		}
	}
	tell()
	for i, g := range groups {
		if told[i] < len(g) {
			rest = append(rest, g[told[i]:])
		}
	}
	return acks, rest
}

// change tells one change, after the usage that it tells was booked.
func (d *Deliverer) change(ctx context.Context, it journal.OutboxItem) (err error) {
	c, err := changeOf(it)
	if err != nil {
		return err
	}
	ctx, end := d.begin(ctx, "run", c.Trace, it)
	defer func() { end(err) }()
	if !c.known() {
		if c.Used, err = d.reg.Spent(ctx, it.Namespace, c.RunID); err != nil {
			return err
		}
	}
	return d.reg.RecordChanges(ctx, it.Namespace, Changes{Runs: []RunChange{c}})
}

// ErrLater is the error of a Registry for an item that waits for others to be delivered. It is tried again,
// and says nothing of the registry.
var ErrLater = errs.New(errs.Conflict, "WAITS_FOR_USAGE", "usage of the run or of one below it is not booked yet")
