package engine

import (
	"context"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// A run that this executor owns and that is not in memory is brought there: it is read, and goes on. Three
// things that runs share may be missing for a while: the turn of suspects, a turn to compute, and room.

// loading is a load that is under way; whoever wants the same run waits for it.
type loading struct {
	done chan struct{}
	err  error
	// again says that mail was passed over that may have come after the run was read, wanted that somebody
	// wants the run who may have claimed it after it was read. The term's mu guards both.
	again, wanted bool
}

// places are the turns that are held for a run which is brought.
type places struct {
	// suspect gives back the turn of suspects, compute one to compute; nil is for one that is not held.
	suspect, compute func()
}

func (p *places) giveBack() {
	for _, leave := range []func(){p.compute, p.suspect} {
		if leave != nil {
			leave()
		}
	}
	*p = places{}
}

// The pauses between tries to read a run grow from one to the other.
const (
	soonestTry = 20 * time.Millisecond
	latestTry  = time.Minute
)

// bringSoon makes a run live beside everything else; as many at once as RecoverParallel says. One that cannot
// be read takes a place only while it is tried again.
func (t *term) bringSoon(id string) {
	t.mu.Lock()
	l := t.loading[id]
	if l != nil {
		l.again, l.wanted = true, true
	}
	mine := l == nil && t.brings(id)
	t.mu.Unlock()
	if mine {
		t.spawn(func() { t.bring(id, nil) })
	}
}

// brings makes the caller the one that brings a run, unless somebody does. The caller holds t.mu.
func (t *term) brings(id string) bool {
	if t.closed || t.bringing[id] {
		return false
	}
	t.bringing[id] = true
	return true
}

// brought says that nobody waits to bring the run.
func (t *term) brought(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.bringing, id)
}

// bring tries until the run is live, stands in line for room, or is not this term's to bring. Of a run for
// which there is room now, granted says how much was kept for it.
func (t *term) bring(id string, granted *noRoomError) {
	var has places
	defer has.giveBack()
	for wait := soonestTry; ; wait = min(2*wait, latestTry) {
		err := t.bringInTurn(id, &has)
		t.forfeit(id, granted)
		granted = nil
		if err == nil {
			return
		}
		t.mu.Lock()
		mine := t.brings(id)
		t.mu.Unlock()
		if !mine {
			return
		}
		busy, computes := errors.AsType[*noTurnError](err)
		lacks, tooLarge := errors.AsType[*noRoomError](err)
		switch {
		case computes:
			if has.compute != nil {
				has.compute() // who read the run meanwhile had none
			}
			has.compute, err = t.e.computing.Enter(t.background, busy.namespace)
		case errors.Is(err, errSuspectAtWork):
			has.giveBack() // the turn of suspects comes first, here as everywhere
			has.suspect, err = t.e.suspects.take(t.background)
		case tooLarge:
			has.giveBack()
			t.standInLine(id, lacks)
			return
		default:
			has.giveBack()
			if !t.rest(wait) {
				return
			}
			continue
		}
		if err != nil {
			return
		}
		wait = soonestTry
	}
}

// bringInTurn tries once to bring a run when there is a place. It returns nil if nothing is left to do.
func (t *term) bringInTurn(id string, has *places) error {
	select {
	case t.loads <- struct{}{}:
		defer func() { <-t.loads }()
	case <-t.background.Done():
	}
	t.brought(id)
	return t.tryBring(id, has)
}

// tryBring tries once to make a run live that this term owns. There is no error if it is live, or not this
// term's to bring. A noRoomError, a noTurnError or errSuspectAtWork says what is missing; turns that are free
// are taken and left in has.
func (t *term) tryBring(id string, has *places) error {
	err := t.load(t.background, id, has)
	if err == nil || t.background.Err() != nil || journal.IsFenced(err) {
		return nil
	}
	_, full := errors.AsType[*noRoomError](err)
	if _, busy := errors.AsType[*noTurnError](err); !full && !busy && !errors.Is(err, errSuspectAtWork) {
		t.e.log.ErrorContext(t.background, "run cannot be read", "err", err, "run_id", id)
	}
	return err
}

// load reads a run and sets it going, unless it has ended or is somebody else's.
func (t *term) load(ctx context.Context, id string, has *places) error {
	t.mu.Lock()
	for r := t.runs[id]; r != nil || t.closed; r = t.runs[id] {
		t.mu.Unlock()
		if r == nil || !r.leaving(ctx) {
			return nil
		}
		t.mu.Lock()
		if t.runs[id] == r {
			t.mu.Unlock()
			return nil
		}
	}
	if l := t.loading[id]; l != nil {
		t.mu.Unlock()
		<-l.done
		return l.err
	}
	l := &loading{done: make(chan struct{})}
	t.loading[id] = l
	t.mu.Unlock()
	l.err = t.read(ctx, id, has)
	t.mu.Lock()
	delete(t.loading, id)
	// What was found to be somebody else's, or nobody's, may have been claimed since. Whoever has an error
	// tries again anyway.
	claimed := l.wanted && l.err == nil && t.runs[id] == nil
	t.mu.Unlock()
	close(l.done)
	if l.again {
		t.pokeMail()
	}
	if claimed {
		t.bringSoon(id)
	}
	return l.err
}
