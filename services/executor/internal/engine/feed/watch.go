package feed

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// WatchRequest selects what to watch.
type WatchRequest struct {
	Namespace, RunID string
	// After is the sequence of the last event that the watcher has. The events of descendants are delivered
	// from their beginning.
	After       int64
	Descendants bool
	DurableOnly bool
	// Stop, when closed, ends the watch with ErrWatchStopped. Nil never does.
	Stop <-chan struct{}
	// Begun is called once, when the watch is not refused any more and before its first event. Nil is not
	// called.
	Begun func()
}

// ErrWatchStopped is the end of a watch whose WatchRequest.Stop was closed.
var ErrWatchStopped = errors.New("engine: the watch was stopped")

// Watcher receives the events of a watch, one call at a time. An error ends the watch.
type Watcher interface {
	Event(Event) error
	// KeepAlive is called after a silence, with the last sequence of the watched run that was delivered.
	KeepAlive(lastSeq int64) error
}

// source is one run of a watch.
type source struct {
	runID, rootID string
	cursor        int64
	sub           *subscription
	// early are ephemeral events that came before the run was known here.
	early []Event
	over  bool
	// read is set once the journal was read, or need not be.
	read bool
}

type watch struct {
	f       *Feed
	req     WatchRequest
	to      Watcher
	wake    chan struct{}
	sources []*source
	byID    map[string]*source
	undo    []func()
	// newcomers is nil unless descendants are watched with their ephemeral events.
	newcomers *newcomers
	// far says that other executors were asked for their events.
	far       bool
	delivered bool
	// held counts the events that were read and not delivered yet. Their delivery may take any time.
	held *inflight.Answer
	// used reports that the watched run may have used something that is booked.
	used bool
}

// Watch delivers every durable event after the cursor exactly once and in order, and ephemeral events as
// they come. It returns nil after the end of the run, and of its descendants if they are watched.
func (f *Feed) Watch(ctx context.Context, req WatchRequest, to Watcher) error {
	w := &watch{f: f, req: req, to: to, wake: make(chan struct{}, 1), used: req.After > 0, held: inflight.OfStream(ctx), byID: map[string]*source{}}
	defer func() {
		for _, undo := range w.undo {
			undo()
		}
	}()
	first := w.add(req.RunID, "", req.After)
	root, last, held := f.live.Here(req.Namespace, req.RunID)
	live := held && req.After <= last
	var row journal.Run
	if !live {
		// A run that does not exist is told as such also where the watches are at their limit: who asks for
		// it need not ask again.
		var err error
		if row, err = w.find(ctx); err != nil {
			return err
		}
	}
	leave, err := f.watchers.enter(req.Namespace)
	if err != nil {
		return err
	}
	defer leave()
	if req.Begun != nil {
		req.Begun()
	}
	if live {
		// Later events are published from now on.
		first.rootID, first.read = root, req.After == last
	} else if err := w.begin(first, row); err != nil {
		return err
	}
	if req.Descendants && !req.DurableOnly && !first.over {
		w.meetNewcomers(first.rootID)
	}
	// The hub delivers the events of this process's runs. Polling finds what other replicas and earlier
	// owners wrote. It slows down while it finds nothing.
	wait := f.opts.Poll
	poll := time.NewTimer(wait)
	defer poll.Stop()
	quiet := time.NewTimer(f.opts.KeepAlive)
	defer quiet.Stop()
	look := true
	for {
		w.delivered = false
		over, err := w.round(ctx, look)
		if err != nil || over {
			return err
		}
		if w.delivered {
			quiet.Reset(f.opts.KeepAlive)
			if wait > f.opts.Poll {
				wait = f.opts.Poll
				poll.Reset(wait)
			}
		}
		look = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-req.Stop:
			return ErrWatchStopped
		case <-w.wake:
		case <-poll.C:
			look = true
			wait = min(2*wait, 5*f.opts.Poll)
			poll.Reset(wait)
		case <-quiet.C:
			if err := to.KeepAlive(first.cursor); err != nil {
				return err
			}
			quiet.Reset(f.opts.KeepAlive)
		}
	}
}

// find reads the row of a run that is not live here.
func (w *watch) find(ctx context.Context) (journal.Run, error) {
	row, err := w.f.journal.Head(ctx, w.req.Namespace, w.req.RunID)
	if err != nil {
		return row, err
	}
	if w.req.After > row.LastSeq {
		return row, errs.New(errs.InvalidArgument, ReasonSeqNotReached, "run %q has come to event %d, not to %d", row.ID, row.LastSeq, w.req.After).
			Hint("send the sequence of an event of this run, or 0 to begin at the beginning").Set("last_seq", strconv.FormatInt(row.LastSeq, 10))
	}
	return row, nil
}

// begin begins the watch of a run that is not live here.
func (w *watch) begin(s *source, row journal.Run) error {
	s.rootID = row.RootID
	switch {
	case !row.State.Ended():
		w.askElsewhere(s)
	case w.req.After == row.LastSeq:
		s.over = true
	}
	if row.State == journal.StatePending && !w.req.DurableOnly {
		return w.to.Event(Event{RunID: row.ID, RootID: row.RootID, Ephemeral: &Ephemeral{At: row.CreateTime, Queued: queued(row)}})
	}
	return nil
}

// ReasonSeqNotReached is the reason when a watch starts after an event that the run has not reached.
const ReasonSeqNotReached = "SEQ_NOT_REACHED"

// ReasonTooManyWatches is the reason when a namespace has reached its limit of watches at this replica.
const ReasonTooManyWatches = "TOO_MANY_WATCHES"

// watchers counts watches by namespace. It is safe for concurrent use.
type watchers struct {
	limit int
	mu    sync.Mutex
	count map[string]int
}

func (w *watchers) enter(namespace string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[namespace] >= w.limit {
		return nil, errs.New(errs.ResourceExhausted, ReasonTooManyWatches, "%d watches of the namespace go on at this replica, which is the limit", w.limit).
			Hint("end one, or watch a root run with include_descendants instead of each of its children")
	}
	w.count[namespace]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.count[namespace]--; w.count[namespace] == 0 {
			delete(w.count, namespace)
		}
	}, nil
}

// Queued says why a run has not begun.
type Queued struct {
	// Reason is START_TIME or BACKLOG.
	Reason    string
	StartTime time.Time
}

func queued(row journal.Run) *Queued {
	if row.WakeTime.After(time.Now()) {
		return &Queued{Reason: "START_TIME", StartTime: row.WakeTime}
	}
	if row.Reason != "" {
		return &Queued{Reason: row.Reason}
	}
	return &Queued{Reason: "BACKLOG"}
}

func (w *watch) add(runID, rootID string, after int64) *source {
	s := &source{runID: runID, rootID: rootID, cursor: after, sub: &subscription{wake: w.wake, after: after, durable: w.req.DurableOnly}}
	// What a run that is found later has said so far came to the newcomers.
	w.undo = append(w.undo, w.f.hub.ofRun(runID, s.sub, w.newcomers == nil, func() {
		if w.newcomers != nil {
			w.newcomers.known[runID] = true
		}
	}))
	w.sources = append(w.sources, s)
	w.byID[runID] = s
	return s
}

// meetNewcomers has the ephemeral events of descendants delivered from their first one on, before the journal
// is read.
func (w *watch) meetNewcomers(rootID string) {
	w.newcomers = &newcomers{wake: w.wake, known: map[string]bool{}}
	for _, s := range w.sources {
		w.newcomers.known[s.runID] = true
	}
	w.undo = append(w.undo, w.f.hub.ofTree(rootID, w.newcomers))
}

// askElsewhere asks the other executors, once, for the ephemeral events of what is watched. The run is not in
// memory here, and whoever owns it may change.
func (w *watch) askElsewhere(s *source) {
	if w.far || w.req.DurableOnly || w.f.elsewhere == nil {
		return
	}
	w.far = true
	i := Interest{Namespace: w.req.Namespace, RunID: w.req.RunID}
	if w.req.Descendants {
		i.RunID, i.Tree = s.rootID, true
	}
	w.undo = append(w.undo, w.f.elsewhere.Want(i))
}

// meet takes in the runs of which ephemeral events came before the journal told of them. Below another run
// than the root the journal must say whether they are descendants.
func (w *watch) meet() {
	for evs := w.newcomers.take(); len(evs) > 0; evs = w.newcomers.take() {
		for _, ev := range evs {
			s := w.byID[ev.RunID]
			if s == nil && w.sources[0].rootID == w.req.RunID {
				s = w.add(ev.RunID, ev.RootID, 0)
			}
			if s != nil {
				s.early = append(s.early, ev)
			}
		}
	}
}

// round delivers what there is. With look it reads the journal, too.
func (w *watch) round(ctx context.Context, look bool) (over bool, err error) {
	if w.newcomers != nil {
		w.meet()
	}
	if w.req.Descendants && (look || w.sources[0].over) {
		if err := w.findDescendants(ctx); err != nil {
			return false, err
		}
	}
	over = true
	for _, s := range w.sources {
		if s.over {
			continue
		}
		away := look && !w.f.live.Holds(s.runID)
		if away {
			w.askElsewhere(s)
		}
		if !s.read || away {
			s.read = true
			if err := w.read(ctx, s); err != nil {
				return false, err
			}
		}
		gap, err := w.deliverLive(ctx, s)
		if err != nil {
			return false, err
		}
		if gap && !s.over {
			if err := w.read(ctx, s); err != nil {
				return false, err
			}
		}
		over = over && s.over
	}
	if over && w.req.Descendants {
		// A further child may have appeared during the delivery.
		n := len(w.sources)
		if err := w.findDescendants(ctx); err != nil {
			return false, err
		}
		over = len(w.sources) == n
	}
	return over, nil
}

// deliverLive delivers events from the hub. gap reports that events between the cursor and those are
// missing.
func (w *watch) deliverLive(ctx context.Context, s *source) (gap bool, err error) {
	s.sub.mu.Lock()
	missed := s.sub.missed
	s.sub.mu.Unlock()
	evs := s.sub.take()
	if len(s.early) > 0 {
		evs, s.early = append(s.early, evs...), nil
	}
	for _, ev := range evs {
		switch {
		case s.over:
			return false, nil
		case ev.Durable == nil:
			if !w.req.DurableOnly && !gap {
				err = w.deliver(ctx, s, ev)
			}
		case ev.Durable.Seq == s.cursor+1:
			err = w.deliver(ctx, s, ev)
		case ev.Durable.Seq > s.cursor+1:
			gap = true
		}
		if err != nil {
			return false, err
		}
	}
	return gap || missed, nil
}

const (
	// firstRead and maxRead are how many events are read at once, the first time and at most. readBytes is
	// the size aimed at for one read.
	firstRead = 16
	maxRead   = 500
	readBytes = 256 << 10
)

// read delivers the events of the journal after the cursor. One read is limited to what a slow watcher may
// hold in memory, and is counted.
func (w *watch) read(ctx context.Context, s *source) error {
	for size := firstRead; ; {
		rows, asked, err := w.page(ctx, s, size)
		if err != nil {
			return err
		}
		left := int64(0)
		for i := range rows {
			left += int64(len(rows[i].Data))
		}
		next := nextRead(asked, left)
		for i := range rows {
			d, err := record.DecodeEvent(rows[i])
			if err != nil {
				return err
			}
			// From here on the event is counted as its message.
			left -= int64(len(rows[i].Data))
			rows[i] = journal.Event{}
			w.held.Shrink(left)
			if err := w.deliver(ctx, s, Event{RunID: s.runID, RootID: s.rootID, Durable: d}); err != nil {
				return err
			}
		}
		if len(rows) < asked || s.over {
			return nil
		}
		size = next
	}
}

// page reads up to size events after the cursor, or fewer if there is no room for so many. It returns how
// many it asked for. The stream holds the events.
func (w *watch) page(ctx context.Context, s *source, size int) ([]journal.Event, int, error) {
	for room := int64(readBytes); ; {
		rows, err := w.f.journal.Events(w.held.Context(ctx), w.req.Namespace, s.runID, s.cursor, size)
		if errs.ReasonOf(err) != inflight.ReasonBusy {
			return rows, size, err
		}
		w.held.Shrink(0)
		if size > 1 {
			size = 1
			continue
		}
		// The size of the event is unknown, so page tries again whenever more room is free.
		if err := w.held.Await(ctx, room); err != nil {
			return nil, 0, err
		}
		w.held.Shrink(0)
		room *= 2
	}
}

// nextRead is how many events to read next, if size of them took so many bytes.
func nextRead(size int, bytes int64) int {
	fit := int64(size) * readBytes / max(bytes, 1)
	return int(min(max(fit, 1), int64(4*size), maxRead))
}

func (w *watch) deliver(ctx context.Context, s *source, ev Event) error {
	ev.Namespace = w.req.Namespace
	if d := ev.Durable; d != nil {
		w.used = w.used || HasUsage(d)
		// After the end the costs are complete, in the run and in its task and epic.
		if d.Kind == workgraph.RunEnded && s == w.sources[0] && w.used {
			b, err := w.f.booked.Await(ctx, w.req.Namespace, s.runID, bookTime)
			if err != nil {
				return err
			}
			ev.Unbooked = b.Waiting
		}
		if d.Kind == workgraph.RunEnded && s == w.sources[0] {
			row, err := w.f.journal.Head(w.held.Context(ctx), w.req.Namespace, s.runID)
			switch {
			case err == nil:
				ev.Ended = &row
			case errs.ReasonOf(err) != journal.ReasonRunNotFound: // it was deleted meanwhile
				return err
			}
		}
	}
	if err := w.to.Event(ev); err != nil {
		return err
	}
	w.delivered = true
	if d := ev.Durable; d != nil {
		s.cursor = d.Seq
		s.over = d.Kind == workgraph.RunEnded
	}
	return nil
}

func (w *watch) findDescendants(ctx context.Context) error {
	below, err := w.f.journal.Descendants(ctx, w.req.Namespace, w.req.RunID)
	if err != nil {
		return err
	}
	for _, d := range below {
		if w.byID[d.RunID] == nil {
			w.add(d.RunID, w.sources[0].rootID, 0)
		}
	}
	return nil
}

// Events returns a page of a run's journal. A run of another namespace has no events.
func (f *Feed) Events(ctx context.Context, run journal.Run, after int64, limit int) ([]Event, error) {
	rows, err := f.journal.Events(ctx, run.Namespace, run.ID, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]Event, 0, len(rows))
	for _, row := range rows {
		d, err := record.DecodeEvent(row)
		if err != nil {
			return nil, err
		}
		out = append(out, Event{Namespace: run.Namespace, RunID: run.ID, RootID: run.RootID, Durable: d})
	}
	return out, nil
}
