package query

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Visit is the n-th entry of a run into a node, as the journal has it.
type Visit struct {
	Node   string
	Visit  int
	Status workgraph.VisitStatus
	Actor  string
	Effect workgraph.Effect
	// Attempts counts the attempts that began, of all items together.
	Attempts int
	Values   []json.RawMessage
	Error    *workgraph.Error
	Usage    []workgraph.Usage
	Start    time.Time
	End      time.Time
	EndSeq   int64
	// ItemsTotal is 0 if the visit is not mapped.
	ItemsTotal, ItemsDone int
	// ItemsWaiting counts the items that wait.
	ItemsWaiting int
	// Duration is the sum of the durations of the attempts.
	Duration time.Duration

	// Wait is the present or last wait. It is nil for a mapped visit, whose items wait for themselves.
	Wait *record.VisitWait
	// Cached reports that the values come from the node cache. Reused reports that they come from the run
	// that this one was forked from.
	Cached, Reused bool
	// Progress is the last progress that the call reported.
	Progress json.RawMessage
	// SkipReason and SkipMessage say why the visit was skipped; see workgraph.Skips.
	SkipReason, SkipMessage string
	// Generation is the generation of the last intent, for workgraph.EffectKey. It is 0 without an intent,
	// and for a mapped visit, whose items have their own.
	Generation int

	begin visitOrder
	end   visitOrder
	// items has the status of each item of a mapped visit that has begun and not ended.
	items map[int]workgraph.VisitStatus
	// counts counts the items by status.
	counts map[workgraph.VisitStatus]int
	// base is the sequence from which the page after this visit must be read.
	base int64
}

// Size implements page.Row.
func (v Visit) Size() int {
	n := 512
	for _, x := range v.Values {
		n += len(x)
	}
	return n
}

// visitOrder orders visits by the event, then by the step in it.
type visitOrder struct {
	seq  int64
	step int
}

func (p visitOrder) compare(q visitOrder) int {
	return cmp.Or(cmp.Compare(p.seq, q.seq), cmp.Compare(p.step, q.step))
}

// VisitsRequest asks for one page of a run's visits.
type VisitsRequest struct {
	Namespace, RunID, Node string
	Size                   int32
	Token                  string
}

// Visits lists the ended visits in the order of their ends, then the visits under way in the order of their
// beginnings. A page is read from the beginning of the oldest visit that was under way at the end of the
// page before. So its cost does not grow with the history, unless visits may have been reset after their
// end.
func (q *Query) Visits(ctx context.Context, req VisitsRequest) (visits []Visit, next string, err error) {
	pg, err := page.Parse(req.Size, req.Token, page.Query{Method: "ListVisits", Parent: req.Namespace + "/" + req.RunID, Filter: req.Node})
	if err != nil {
		return nil, "", err
	}
	from, err := parseCursor(pg.After.ID)
	if err != nil {
		return nil, "", err
	}
	row, err := q.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return nil, "", err
	}
	nodes, err := q.engine.Positions().Nodes(ctx, row)
	if err != nil {
		return nil, "", err
	}
	f := newFolder(nodes, req.Node)
	back, err := q.lastResets(ctx, row)
	if err != nil {
		return nil, "", err
	}
	var gauge page.Gauge
	add := func(v *Visit) {
		visits = append(visits, *v)
		// A page of large visits ends before its limit. The position after it shows that there are more.
		if full := gauge.Add(v); full && len(visits) <= pg.Limit {
			pg.Limit = len(visits) - 1
		}
	}
	chunk := min(max(2*pg.Limit, 32), 500)
	for after := max(from.base-1, 0); len(visits) <= pg.Limit; chunk = min(2*chunk, 500) {
		evs, err := q.engine.Feed().Events(ctx, row, after, chunk)
		if err != nil {
			return nil, "", err
		}
		for _, ev := range evs {
			for _, v := range f.apply(ev.Durable) {
				void := v.end.compare(back[workgraph.Ref{Node: v.Node, Visit: v.Visit}]) < 0
				if len(visits) <= pg.Limit && !from.open && v.end.compare(from.visitOrder) > 0 && !void {
					v.base = f.oldest(v)
					add(v)
				}
			}
		}
		if len(evs) == 0 {
			break
		}
		if after = evs[len(evs)-1].Durable.Seq; after >= row.LastSeq {
			break
		}
	}
	if len(visits) <= pg.Limit {
		rest := make([]*Visit, 0, len(f.open))
		for _, v := range f.open {
			rest = append(rest, v)
		}
		slices.SortFunc(rest, func(a, b *Visit) int { return a.begin.compare(b.begin) })
		base := int64(0)
		if len(rest) > 0 {
			base = rest[0].begin.seq
		}
		if row.State == journal.StatePaused {
			if err := q.heldVisits(ctx, row, rest); err != nil {
				return nil, "", err
			}
		}
		flights := q.flights(req.Namespace, req.RunID)
		for _, v := range rest {
			v.base = base
			if len(visits) <= pg.Limit && (!from.open || v.begin.compare(from.visitOrder) > 0) {
				v.overlay(flights[workgraph.Ref{Node: v.Node, Visit: v.Visit}])
				add(v)
			}
		}
	}
	visits, next = page.Cut(pg, visits, func(v Visit) page.Cursor { return page.Cursor{ID: formatCursor(v)} })
	return visits, next, nil
}

// heldVisits marks the visits that wait for the end of a pause. The events have their entry, but only the
// machine knows whether they have begun.
func (q *Query) heldVisits(ctx context.Context, row journal.Run, open []*Visit) error {
	if !slices.ContainsFunc(open, func(v *Visit) bool { return v.Status == workgraph.VisitRunning }) {
		return nil
	}
	look, _, err := q.engine.Inspect(ctx, row.Namespace, row.ID)
	if err != nil {
		return err
	}
	held := map[workgraph.Ref]bool{}
	look(func(s *workgraph.State) {
		s.Visits(func(v workgraph.VisitInfo) bool {
			if v.Status == workgraph.VisitHeld {
				held[v.Ref] = true
			}
			return true
		})
	})
	for _, v := range open {
		if v.Status == workgraph.VisitRunning && held[workgraph.Ref{Node: v.Node, Visit: v.Visit}] {
			v.Status = workgraph.VisitHeld
		}
	}
	return nil
}

type visitCursor struct {
	open bool
	visitOrder
	base int64
}

func formatCursor(v Visit) string {
	if v.EndSeq == 0 {
		return fmt.Sprintf("o.%d.%d.%d", v.begin.seq, v.begin.step, v.base)
	}
	return fmt.Sprintf("e.%d.%d.%d", v.end.seq, v.end.step, v.base)
}

func parseCursor(s string) (c visitCursor, err error) {
	if s == "" {
		return visitCursor{visitOrder: visitOrder{seq: -1}}, nil
	}
	part := strings.Split(s, ".")
	bad := errs.New(errs.InvalidArgument, page.ReasonInvalid, "page_token is not valid")
	if len(part) != 4 || part[0] != "o" && part[0] != "e" {
		return c, bad
	}
	c.open = part[0] == "o"
	if c.seq, err = strconv.ParseInt(part[1], 10, 64); err != nil {
		return c, bad.With(err)
	}
	if c.step, err = strconv.Atoi(part[2]); err != nil {
		return c, bad.With(err)
	}
	if c.base, err = strconv.ParseInt(part[3], 10, 64); err != nil || c.base > c.seq {
		return c, bad.With(err)
	}
	return c, nil
}

// flights are the attempts of a live run by visit. Attempts of items belong to the mapped visit.
func (q *Query) flights(namespace, runID string) map[workgraph.Ref][]engine.Flight {
	out := map[workgraph.Ref][]engine.Flight{}
	for _, f := range q.engine.InFlight(namespace, runID) {
		visit := workgraph.Ref{Node: f.Ref.Node, Visit: f.Ref.Visit}
		out[visit] = append(out[visit], f)
	}
	return out
}

// overlay adds to a visit under way what only the owner's memory has: the attempts that have begun.
func (v *Visit) overlay(flights []engine.Flight) {
	for _, f := range flights {
		if f.Start.IsZero() {
			continue
		}
		v.Attempts++
		if v.Start.IsZero() || f.Start.Before(v.Start) {
			v.Start = f.Start
		}
	}
}

// folder applies a journal's events and keeps the visits under way.
type folder struct {
	nodes map[string]workgraph.Node
	only  string
	open  map[workgraph.Ref]*Visit
	done  []*Visit
}

func newFolder(nodes map[string]workgraph.Node, only string) *folder {
	return &folder{nodes: nodes, only: only, open: map[workgraph.Ref]*Visit{}}
}

// oldest is the sequence of the beginning of the oldest visit that is under way after v ended. Visits that
// end by the same event may be on the next page, so they count.
func (f *folder) oldest(v *Visit) int64 {
	base := v.end.seq
	for _, o := range f.open {
		base = min(base, o.begin.seq)
	}
	for _, o := range f.done {
		base = min(base, o.begin.seq)
	}
	return base
}

// apply applies one event and returns the visits that it ended, in order. The result is valid until the
// next call.
func (f *folder) apply(d *record.Durable) []*Visit {
	f.done = f.done[:0]
	if d.PutBack() { // the attempt left no trace
		return nil
	}
	switch d.Kind {
	case workgraph.AttemptStarted:
		if v := f.open[d.Ref]; v != nil {
			v.Generation = d.Generation
		}
	case workgraph.AttemptEnded, workgraph.Reconciled:
		f.attempt(d)
	}
	var skips workgraph.Skips
	for i := range d.Steps {
		f.step(d, i, &skips)
	}
	if d.Kind == workgraph.RunEnded {
		rest := make([]*Visit, 0, len(f.open))
		for _, v := range f.open {
			rest = append(rest, v)
		}
		slices.SortFunc(rest, func(a, b *Visit) int { return a.begin.compare(b.begin) })
		for i, v := range rest {
			f.finish(d, len(d.Steps)+i, v, workgraph.VisitCanceled)
		}
	}
	return f.done
}

func (f *folder) attempt(d *record.Durable) {
	v := f.open[workgraph.Ref{Node: d.Node, Visit: d.Visit}]
	if v == nil {
		return
	}
	if d.Kind == workgraph.AttemptEnded {
		if !d.NeverBegan() {
			v.Attempts++
		}
	} else if d.Item == 0 {
		v.Status = workgraph.VisitRunning
	}
	if !d.StartTime.IsZero() {
		if v.Start.IsZero() || d.StartTime.Before(v.Start) {
			v.Start = d.StartTime
		}
		v.Duration += max(d.At.Sub(d.StartTime), 0)
	}
	v.Cached = d.Cached && d.Item == 0
	if d.Actor != "" {
		v.Actor = d.Actor
	}
	switch {
	case d.Outcome != nil:
		v.Usage = append(v.Usage, d.Outcome.Usage...)
	case d.Error != nil:
		v.Usage = append(v.Usage, d.Error.Usage...)
		v.Error = d.Error
	}
}

// step applies the i-th step of an event. skips has the steps before it.
func (f *folder) step(d *record.Durable, i int, skips *workgraph.Skips) {
	s := &d.Steps[i]
	reason, message := skips.Step(s)
	if f.only != "" && s.Node != f.only || s.Node == "" {
		return
	}
	ref := workgraph.Ref{Node: s.Node, Visit: s.Visit}
	v := f.open[ref]
	det := s.Detail
	if det == nil {
		det = &workgraph.Detail{}
	}
	switch s.Op {
	case workgraph.OpEnter:
		v = f.enter(d, i, ref)
		v.Status = workgraph.VisitRunning
		if det.Mapped {
			v.ItemsTotal = len(det.Items)
		}
		return
	case workgraph.OpReuse:
		v = f.enter(d, i, ref)
		v.Status, v.Reused = workgraph.VisitRunning, true
		return
	case workgraph.OpSkip:
		v = f.enter(d, i, ref)
		v.SkipReason, v.SkipMessage = reason, message
		f.finish(d, i, v, workgraph.VisitSkipped)
		return
	case workgraph.OpComplete, workgraph.OpFail:
		v = f.enter(d, i, ref) // it may end before it begins: its condition, list, key or quorum failed
	case workgraph.OpDrop:
		if s.Item == 0 {
			v = f.enter(d, i, ref) // it may be dropped before it begins
		}
	}
	if v == nil {
		return
	}
	switch s.Op {
	// The visit has not begun. If it begins later, it does so afresh.
	case workgraph.OpReset, workgraph.OpReopen:
		delete(f.open, ref)
	case workgraph.OpComplete:
		v.Values, v.Error = d.ValuesOf(s), det.Error
		status := workgraph.VisitCompleted
		if det.Stop == workgraph.AbstainResult {
			status = workgraph.VisitAbstained
		}
		f.finish(d, i, v, status)
	case workgraph.OpFail:
		if det.Error != nil {
			v.Error = det.Error
		}
		status := workgraph.VisitFailed
		if s.Note == workgraph.ReasonCanceled {
			status = workgraph.VisitCanceled
		}
		f.finish(d, i, v, status)
	case workgraph.OpItem:
		v.ItemsDone++
		v.setStatus(s.Item, "")
	case workgraph.OpRetry:
		v.setStatus(s.Item, workgraph.VisitBackoff)
	case workgraph.OpWait:
		if s.Item == 0 {
			v.Wait = d.WaitOf()
		}
		v.setStatus(s.Item, workgraph.VisitWaiting)
	case workgraph.OpStart:
		v.setStatus(s.Item, workgraph.VisitRunning)
	case workgraph.OpReconcile:
		v.setStatus(s.Item, workgraph.VisitReconciliation)
	case workgraph.OpCancel:
		if s.Item == 0 {
			v.Status = workgraph.VisitCanceling
		}
	case workgraph.OpDrop:
		if s.Item == 0 {
			f.finish(d, i, v, workgraph.VisitCanceled)
		} else {
			v.setStatus(s.Item, "")
		}
	}
}

// setStatus sets the status of the visit, or of an item; an ended item has the empty status. A mapped visit
// is running while a call of an item is, and waiting when all items that have begun wait.
func (v *Visit) setStatus(item int, at workgraph.VisitStatus) {
	if item == 0 {
		v.Status = at
		return
	}
	if v.items == nil {
		v.items, v.counts = map[int]workgraph.VisitStatus{}, map[workgraph.VisitStatus]int{}
	}
	if was := v.items[item]; was != "" {
		v.counts[was]--
	}
	if at == "" {
		delete(v.items, item)
	} else {
		v.items[item] = at
		v.counts[at]++
	}
	v.ItemsWaiting, v.Status = v.counts[workgraph.VisitWaiting], workgraph.VisitRunning
	switch {
	case v.counts[workgraph.VisitReconciliation] > 0:
		v.Status = workgraph.VisitReconciliation
	case v.counts[workgraph.VisitRunning] > 0:
	case v.ItemsWaiting > 0:
		v.Status = workgraph.VisitWaiting
	case v.counts[workgraph.VisitBackoff] > 0:
		v.Status = workgraph.VisitBackoff
	}
}

func (f *folder) enter(d *record.Durable, i int, ref workgraph.Ref) *Visit {
	v := f.open[ref]
	if v == nil {
		n := f.nodes[ref.Node]
		v = &Visit{Node: ref.Node, Visit: ref.Visit, Actor: n.Actor, Effect: n.Effect, begin: visitOrder{d.Seq, i}}
		f.open[ref] = v
	}
	return v
}

func (f *folder) finish(d *record.Durable, i int, v *Visit, s workgraph.VisitStatus) {
	v.Status, v.End, v.EndSeq, v.end = s, d.At, d.Seq, visitOrder{d.Seq, i}
	delete(f.open, workgraph.Ref{Node: v.Node, Visit: v.Visit})
	f.done = append(f.done, v)
}
