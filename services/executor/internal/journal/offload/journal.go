package offload

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// Journal is a journal whose readers see plain bytes. It embeds only what returns no packed value. The
// methods that read runs, graphs and events are written out, so that a new one does not compile until it
// unpacks what it returns.
type Journal struct {
	journal.Members
	journal.Interrupts
	journal.Jobs
	journal.Outbox
	journal.Deletion
	journal.Blobs
	journal.Retention
	remotes
	journal.OutcomeCache
	journal.ToolLists
	thread.Turns

	rows journal.Journal
	s    *Offload
}

// remotes has another name than journal.Workers, whose method of that name the field would hide.
type remotes = journal.Workers

var _ journal.Journal = Journal{}

// Around returns j as its readers should see it. What is written to it must have been packed.
func (s *Offload) Around(j journal.Journal) Journal {
	return Journal{Members: j, Interrupts: j, Jobs: j, Outbox: j, Deletion: j, Blobs: j, Retention: j, remotes: j, OutcomeCache: j, ToolLists: j, Turns: j, rows: j, s: s}
}

// What thread.Store says. Only items have values that are packed.

// Thread implements thread.Store.
func (j Journal) Thread(ctx context.Context, namespace, id string) (thread.Thread, error) {
	return j.rows.Thread(ctx, namespace, id)
}

// ThreadsByKeys implements thread.Store.
func (j Journal) ThreadsByKeys(ctx context.Context, namespace string, keys []string) ([]thread.Thread, error) {
	return j.rows.ThreadsByKeys(ctx, namespace, keys)
}

// ThreadByKey implements thread.Store.
func (j Journal) ThreadByKey(ctx context.Context, namespace, key string) (thread.Thread, error) {
	return j.rows.ThreadByKey(ctx, namespace, key)
}

// ThreadUsage implements thread.Store.
func (j Journal) ThreadUsage(ctx context.Context, namespace string) (thread.Usage, error) {
	return j.rows.ThreadUsage(ctx, namespace)
}

// ListThreads implements thread.Store.
func (j Journal) ListThreads(ctx context.Context, namespace string, f thread.Filter, after page.Cursor, limit int) ([]thread.Thread, error) {
	return j.rows.ListThreads(ctx, namespace, f, after, limit)
}

// CreateThread implements thread.Store.
func (j Journal) CreateThread(ctx context.Context, c thread.Create) (thread.Thread, error) {
	return j.rows.CreateThread(ctx, c)
}

// ImportThreads implements thread.Store. Values are compressed and stay in the rows.
func (j Journal) ImportThreads(ctx context.Context, m thread.Import) (thread.Thread, error) {
	p := packing{s: j.s}
	m.Threads = p.threads(m.Threads)
	return j.rows.ImportThreads(ctx, m)
}

// Family implements thread.Store.
func (j Journal) Family(ctx context.Context, namespace, id string, limit int) ([]thread.Relative, error) {
	return j.rows.Family(ctx, namespace, id, limit)
}

// DeleteThread implements thread.Store.
func (j Journal) DeleteThread(ctx context.Context, namespace, id string) error {
	return j.rows.DeleteThread(ctx, namespace, id)
}

// HoldThread implements thread.Store.
func (j Journal) HoldThread(ctx context.Context, namespace, id string, runs []string) error {
	return j.rows.HoldThread(ctx, namespace, id, runs)
}

// Lineage implements thread.Store.
func (j Journal) Lineage(ctx context.Context, namespace, id string) ([]thread.Segment, error) {
	return j.rows.Lineage(ctx, namespace, id)
}

// SegmentItems implements thread.Store.
func (j Journal) SegmentItems(ctx context.Context, namespace string, g thread.Segment, q thread.Selection) ([]thread.Item, error) {
	items, err := j.rows.SegmentItems(ctx, namespace, g, q)
	for i := range items {
		if err == nil {
			err = j.all(ctx, namespace, &items[i].Brief, &items[i].Body)
		}
	}
	return items, err
}

// SweepThreads implements thread.Store.
func (j Journal) SweepThreads(ctx context.Context, unusedSince time.Time, after string, limit int) (hidden int, next string, err error) {
	return j.rows.SweepThreads(ctx, unusedSince, after, limit)
}

// HideParts implements thread.Store.
func (j Journal) HideParts(ctx context.Context, after string, limit int) (next string, err error) {
	return j.rows.HideParts(ctx, after, limit)
}

// PurgeThreads implements thread.Store.
func (j Journal) PurgeThreads(ctx context.Context, limit int) (more bool, err error) {
	return j.rows.PurgeThreads(ctx, limit)
}

// Close implements journal.Journal.
func (j Journal) Close() error { return j.rows.Close() }

func (j Journal) all(ctx context.Context, namespace string, vs ...*[]byte) error {
	for _, v := range vs {
		if err := j.s.unpack(ctx, namespace, v); err != nil {
			return err
		}
	}
	return nil
}

// run unpacks the values of a run, which count for the answer that they are read for.
func (j Journal) run(ctx context.Context, r *journal.Run) error {
	return j.all(ctx, r.Namespace, &r.Args, &r.Named, &r.Context, &r.Attachments, &r.Result, &r.Outputs)
}

func (j Journal) events(ctx context.Context, namespace string, es []journal.Event) error {
	for i := range es {
		if err := j.s.unpack(ctx, namespace, &es[i].Data); err != nil {
			return err
		}
	}
	return nil
}

// Get implements journal.Reader.
func (j Journal) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := j.rows.Get(ctx, namespace, runID)
	if err == nil {
		err = j.run(ctx, &r)
	}
	return r, err
}

// Head implements journal.Reader. Its run comes without the columns that are packed.
func (j Journal) Head(ctx context.Context, namespace, runID string) (journal.Run, error) {
	return j.rows.Head(ctx, namespace, runID)
}

// Graph implements journal.Reader.
func (j Journal) Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error) {
	if hash, body, err = j.rows.Graph(ctx, namespace, runID); err == nil {
		err = j.s.unpack(ctx, namespace, &body)
	}
	return hash, body, err
}

// GraphBody implements journal.Reader.
func (j Journal) GraphBody(ctx context.Context, namespace, hash string) ([]byte, error) {
	body, err := j.rows.GraphBody(ctx, namespace, hash)
	if err == nil {
		err = j.s.unpack(ctx, namespace, &body)
	}
	return body, err
}

// Requested implements journal.Reader.
func (j Journal) Requested(ctx context.Context, namespace, method, requestID string) (runID, bodyHash string, err error) {
	return j.rows.Requested(ctx, namespace, method, requestID)
}

// List implements journal.Reader. Its rows come without the columns that are packed.
func (j Journal) List(ctx context.Context, namespace string, f journal.Filter, after page.Cursor, limit int) ([]journal.Run, error) {
	return j.rows.List(ctx, namespace, f, after, limit)
}

// OpenBelow implements journal.Reader.
func (j Journal) OpenBelow(ctx context.Context, namespace, runID, graphName string, limit int) ([]string, error) {
	return j.rows.OpenBelow(ctx, namespace, runID, graphName, limit)
}

// Descendants implements journal.Reader.
func (j Journal) Descendants(ctx context.Context, namespace, runID string) ([]journal.Descendant, error) {
	return j.rows.Descendants(ctx, namespace, runID)
}

// CountBelow implements journal.Reader.
func (j Journal) CountBelow(ctx context.Context, namespace, runID string, most int) (all, open int, err error) {
	return j.rows.CountBelow(ctx, namespace, runID, most)
}

// Events implements journal.Reader.
func (j Journal) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]journal.Event, error) {
	es, err := j.rows.Events(ctx, namespace, runID, afterSeq, limit)
	if err != nil {
		return nil, err
	}
	// What is kept elsewhere may be much longer than its row.
	var g page.Gauge
	for i := range es {
		if err := j.s.unpack(ctx, namespace, &es[i].Data); err != nil {
			return nil, err
		}
		if g.Add(es[i]) {
			return es[:i+1], nil
		}
	}
	return es, nil
}

// Readers implements journal.Reader.
func (j Journal) Readers() int { return j.rows.Readers() }

// Load implements journal.Log.
func (j Journal) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	l, err := j.rows.Load(ctx, runID)
	return j.loaded(ctx, l, err)
}

// LoadFor implements journal.Reader.
func (j Journal) LoadFor(ctx context.Context, namespace, runID string) (journal.Loaded, error) {
	l, err := j.rows.LoadFor(ctx, namespace, runID)
	return j.loaded(ctx, l, err)
}

func (j Journal) loaded(ctx context.Context, l journal.Loaded, err error) (journal.Loaded, error) {
	if err != nil {
		return l, err
	}
	ns := l.Run.Namespace
	if err = j.run(ctx, &l.Run); err == nil {
		if err = j.all(ctx, ns, &l.Graph, &l.Snapshot); err == nil {
			err = j.events(ctx, ns, l.Events)
		}
	}
	return l, err
}

// Commit implements journal.Log.
func (j Journal) Commit(ctx context.Context, owner journal.Owner, writes []journal.Write) ([]journal.Result, error) {
	return j.rows.Commit(ctx, owner, writes)
}

// SweepRequestIDs implements journal.Log.
func (j Journal) SweepRequestIDs(ctx context.Context, before time.Time) (int, error) {
	return j.rows.SweepRequestIDs(ctx, before)
}

// Enqueue implements journal.Commands.
func (j Journal) Enqueue(ctx context.Context, p journal.EnqueueRequest) (journal.Enqueued, error) {
	posted, err := j.rows.Enqueue(ctx, p)
	if err == nil {
		err = j.run(ctx, &posted.Run)
	}
	return posted, err
}

// PendingCommands implements journal.Commands.
func (j Journal) PendingCommands(ctx context.Context, owner journal.Owner, look journal.CommandQuery) ([]journal.Command, error) {
	return j.rows.PendingCommands(ctx, owner, look)
}

// Outstanding implements journal.Commands.
func (j Journal) Outstanding(ctx context.Context, namespace, runID string) (journal.Outstanding, error) {
	return j.rows.Outstanding(ctx, namespace, runID)
}

// UnappliedCommands implements journal.Commands.
func (j Journal) UnappliedCommands(ctx context.Context, namespace, runID string, limit int) ([]journal.Command, error) {
	return j.rows.UnappliedCommands(ctx, namespace, runID, limit)
}

// FindCommand implements journal.Commands.
func (j Journal) FindCommand(ctx context.Context, namespace, runID string, kind journal.CommandKind, key string, whole bool) (journal.Command, bool, error) {
	return j.rows.FindCommand(ctx, namespace, runID, kind, key, whole)
}

// CommandWakes implements journal.Commands.
func (j Journal) CommandWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	return j.rows.CommandWakes(ctx, owner)
}
