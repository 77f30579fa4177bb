package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
)

const (
	// batch is how many times one transaction decides, counted how many late ones it counts.
	batch   = 1000
	counted = 1_000_000
	// carryOut is how long the executor that decided a start has for it before others take it over, recheck
	// how often a start that waits for the end of a run is checked, in addition to the message of that end.
	carryOut = 3 * time.Second
	recheck  = 30 * time.Second
	// maxOpen is how many open runs are looked at.
	maxOpen = MaxQueue + 2
)

// position is a schedule in the middle of a transaction. Its decisions follow from its fields alone.
type position struct {
	s     *Schedule
	line  *Timeline
	now   time.Time
	runID func() string

	queue []Start
	open  []string
	// backfilled are times after Done that a backfill decided.
	backfilled map[int64]bool

	put     []Start
	changed bool
	// moved says that the next time of the clock has changed, late that another job is needed for a time.
	moved bool
	late  []time.Time
}

// look reads what there is of s.
func look(ctx context.Context, tx Tx, s *Schedule, now time.Time) (*position, error) {
	line, err := s.Timeline(s.UID)
	if err != nil {
		return nil, fmt.Errorf("times of schedule %s: %w", s.ID, err)
	}
	p := &position{s: s, line: line, now: now, runID: func() string { return ids.New("run") }}
	if p.queue, err = tx.Queue(ctx); err != nil {
		return nil, err
	}
	if p.open, err = tx.Open(ctx, maxOpen); err != nil {
		return nil, err
	}
	if s.Ahead.After(s.Done) {
		list, err := tx.Times(ctx, s.Done, s.Ahead.Add(time.Microsecond))
		if err != nil {
			return nil, err
		}
		p.backfilled = decided(list)
	}
	return p, nil
}

// decided are the times among starts that need no other start.
func decided(list []Start) map[int64]bool {
	out := make(map[int64]bool, len(list))
	for _, st := range list {
		if st.Result != Failed {
			out[st.Time.UnixMicro()] = true
		}
	}
	return out
}

// busy reports whether a run is open, or about to be.
func (p *position) busy() bool { return len(p.open)+len(p.queue) > 0 }

// waiting counts the starts that wait for the end of a run.
func (p *position) waiting() int {
	n := 0
	for i, st := range p.queue {
		if st.Overlap != Allow && (i > 0 || p.blocked(st)) {
			n++
		}
	}
	return n
}

// blocked reports whether another run than that of st is open.
func (p *position) blocked(st Start) bool {
	return slices.ContainsFunc(p.open, func(id string) bool { return id != st.RunID })
}

// left reports whether a time would be left out now, and all later ones too until something else happens.
func (p *position) left(o Overlap) bool {
	switch o {
	case Skip:
		return p.busy()
	case QueueOne:
		return p.waiting() > 0
	case QueueAll:
		return p.waiting() >= MaxQueue
	}
	return false
}

// decideStart decides one start and returns what became of it.
func (p *position) decideStart(st Start) Start {
	if p.left(st.Overlap) {
		return p.leave(st, SkippedOverlap, 1)
	}
	if st.Overlap == CancelOther {
		var stay []Start
		for i, old := range p.queue {
			// One that nothing stands before may be under way already.
			if old.Overlap != CancelOther || i == 0 && !p.blocked(old) {
				stay = append(stay, old)
				continue
			}
			old.RunID = ""
			p.end(old, SkippedOverlap, "a later start took its place")
			p.s.Skipped++
		}
		p.queue = stay
	}
	p.s.Turns++
	st.Turn, st.Result, st.RunID = p.s.Turns, Queued, p.runID()
	p.queue = append(p.queue, st)
	p.write(st)
	return st
}

// leave leaves n times out; st is the last of them.
func (p *position) leave(st Start, why Result, n int64) Start {
	p.s.Turns++
	p.s.Skipped += n
	st.Turn, st.Result, st.Actual = p.s.Turns, why, p.now
	if n > 1 {
		st.Message = fmt.Sprintf("the last of %d times", n)
	}
	p.changed = true
	p.s.note(st)
	if st.Request != "" {
		p.put = append(p.put, st)
	}
	return st
}

// end writes what became of a start that was queued.
func (p *position) end(st Start, r Result, message string) {
	st.Result, st.Actual, st.Message = r, p.now, errs.Clip(message, maxMessage)
	p.write(st)
}

func (p *position) write(st Start) {
	p.changed = true
	p.put = append(p.put, st)
	p.s.note(st)
}

// note shows a start among the recent ones.
func (s *Schedule) note(st Start) {
	if i := slices.IndexFunc(s.Recent, func(o Start) bool { return o.Turn == st.Turn }); i >= 0 {
		s.Recent[i] = st
		return
	}
	s.Recent = slices.Insert(s.Recent, 0, st)
	s.Recent = s.Recent[:min(len(s.Recent), MaxRecent)]
}

// take decides the times that are due. It reports whether there are more of them.
func (p *position) take() (more bool) {
	s := p.s
	if s.Paused {
		return false
	}
	horizon := p.now.Add(-s.Catchup)
	skip := func(to time.Time, why Result) bool {
		n, last := p.line.Count(s.Done, to, counted)
		if n > 0 {
			s.Done, p.moved = last, true
			p.leave(Start{Time: last, Overlap: s.Overlap}, why, n)
		}
		return n == counted
	}
	// Times that are late under every jitter need not be examined one by one.
	if len(p.backfilled) == 0 && skip(horizon.Add(-s.Jitter-time.Microsecond), SkippedLate) {
		return true
	}
	for range batch {
		if s.Overlap == Allow && len(p.queue) >= MaxQueue {
			// The rest is decided when some of these are carried out.
			starts, _ := p.ready()
			return len(starts) > 0
		}
		if len(p.backfilled) == 0 && p.left(s.Overlap) && !s.Done.Before(horizon) && skip(p.now.Add(-s.Jitter), SkippedOverlap) {
			return true
		}
		t := p.line.Next(s.Done)
		if t.IsZero() || t.After(p.now) {
			return false
		}
		due := p.line.Due(t)
		if due.After(p.now) {
			return false
		}
		s.Done, p.moved, p.changed = t, true, true
		switch {
		case p.backfilled[t.UnixMicro()]:
		case due.Before(horizon):
			p.leave(Start{Time: t, Overlap: s.Overlap}, SkippedLate, 1)
		default:
			p.decideStart(Start{Time: t, Origin: FromClock, Overlap: s.Overlap})
		}
	}
	return true
}

// held reports whether a start waits for the end of a pause.
func (p *position) held(st Start) bool { return p.s.Paused && st.Origin == FromClock }

// ready returns the starts that can be carried out, and the runs to be canceled for others.
func (p *position) ready() (starts []Start, cancel []string) {
	first, wanted := true, false
	for _, st := range p.queue {
		if p.held(st) {
			continue
		}
		switch {
		case st.Overlap == Allow, first && !p.blocked(st):
			starts = append(starts, st)
		case st.Overlap == CancelOther:
			wanted = true
		}
		first = false
	}
	if wanted {
		for _, id := range p.open {
			if !slices.ContainsFunc(p.queue, func(st Start) bool { return st.RunID == id && st.Overlap == Allow }) {
				cancel = append(cancel, id)
			}
		}
	}
	return starts, cancel
}

// next is when the clock has something to do.
func (p *position) next() time.Time {
	if p.s.Paused {
		return time.Time{}
	}
	t := p.line.Next(p.s.Done)
	if t.IsZero() {
		return t
	}
	return p.line.Due(t)
}

// close ends the transaction: it sets when the schedule is due again. ErrUnchanged if nothing is to be
// written.
func (p *position) close() (Change, error) {
	next := p.next()
	due := next
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	starts, _ := p.ready()
	if len(starts) > 0 {
		sooner(p.now.Add(carryOut))
	} else if slices.ContainsFunc(p.queue, func(st Start) bool { return !p.held(st) }) {
		sooner(p.now.Add(recheck))
	}
	was := p.s.Due
	if !p.changed && !p.moved && len(p.late) == 0 && due.IsZero() == was.IsZero() && !due.Before(was) && !was.Before(p.now) {
		return Change{}, ErrUnchanged
	}
	p.s.Due = due
	c := Change{Put: p.put, Jobs: p.late}
	if !next.IsZero() && p.moved {
		c.Jobs = append(c.Jobs, next)
	}
	return c, nil
}
