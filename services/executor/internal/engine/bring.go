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

// bringing is a run that is to be brought. However many there are, each waits as an entry in a line, and
// RecoverParallel are read at once: those for which room is kept or a turn is held first, then of one
// namespace after the other.
type bringing struct {
	namespace, id string
	has           places
	// wait is the pause after the next try that fails.
	wait time.Duration
}

// bringLine are the runs that wait to be read. The term's mu guards it.
type bringLine struct {
	reading int
	first   []*bringing
	spaces  map[string][]*bringing
	// order are the namespaces in spaces, the one whose turn it is first.
	order []string
}

func (l *bringLine) push(b *bringing, first bool) {
	switch {
	case first:
		l.first = append(l.first, b)
	case len(l.spaces[b.namespace]) == 0:
		if l.spaces == nil {
			l.spaces = map[string][]*bringing{}
		}
		l.order = append(l.order, b.namespace)
		fallthrough
	default:
		l.spaces[b.namespace] = append(l.spaces[b.namespace], b)
	}
}

// pop is the run whose turn it is; nil if there is none.
func (l *bringLine) pop() (b *bringing) {
	if len(l.first) > 0 {
		b, l.first[0] = l.first[0], nil
		l.first = l.first[1:]
		return b
	}
	if len(l.order) == 0 {
		return nil
	}
	ns := l.order[0]
	l.order = l.order[1:]
	line := l.spaces[ns]
	b, line[0] = line[0], nil
	if line = line[1:]; len(line) > 0 {
		l.spaces[ns] = line
		l.order = append(l.order, ns)
	} else {
		delete(l.spaces, ns)
	}
	return b
}

// bringSoon makes a run of a namespace live beside everything else. One that cannot be read takes a place
// only while it is tried again.
func (t *term) bringSoon(namespace, id string) {
	t.mu.Lock()
	l := t.loading[id]
	if l != nil {
		l.again, l.wanted = true, true
	}
	mine := l == nil && t.brings(id)
	t.mu.Unlock()
	if mine {
		t.bring(&bringing{namespace: namespace, id: id, wait: soonestTry}, false)
	}
}

// bring has a run read in its turn, or before all others. The caller is the one to bring it.
func (t *term) bring(b *bringing, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		b.has.giveBack()
	case t.reads.reading < t.e.cfg.RecoverParallel:
		t.reads.reading++
		t.work.Go(func() { t.bringInTurn(b) })
	default:
		t.reads.push(b, first)
	}
}

// bringInTurn brings one run after the other, as long as there are any.
func (t *term) bringInTurn(b *bringing) {
	for b != nil {
		t.brought(b.id)
		err := t.tryBring(b.namespace, b.id, &b.has)
		t.memory.forfeit(b.id, b.namespace)
		if err == nil || !t.bringAgain(b, err) {
			b.has.giveBack()
		}
		t.mu.Lock()
		if b = t.reads.pop(); b == nil {
			t.reads.reading--
		}
		t.mu.Unlock()
	}
}

// bringAgain sees that a run which could not be brought is tried again when what was missing is there. It
// reports whether it is, with the turns that are held for it.
func (t *term) bringAgain(b *bringing, err error) bool {
	t.mu.Lock()
	mine := t.brings(b.id)
	t.mu.Unlock()
	if !mine {
		return false
	}
	busy, computes := errors.AsType[*noTurnError](err)
	lacks, full := errors.AsType[*noRoomError](err)
	if computes {
		if b.has.compute != nil {
			b.has.compute() // who read the run meanwhile had none
			b.has.compute = nil
		}
	} else {
		b.has.giveBack() // the turn of suspects comes first, here as everywhere
	}
	if full {
		t.standInLine(b.id, lacks)
		return true
	}
	return t.spawn(func() {
		switch {
		case computes:
			b.has.compute, err = t.e.computing.Enter(t.background, busy.namespace)
		case errors.Is(err, errSuspectAtWork):
			b.has.suspect, err = t.e.suspects.take(t.background)
		case t.rest(b.wait):
			b.wait = min(2*b.wait, latestTry)
			t.bring(b, false)
			return
		default:
			return
		}
		if err != nil {
			b.has.giveBack()
			return
		}
		b.wait = soonestTry
		t.bring(b, true)
	})
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

// tryBring tries once to make a run live that this term owns. There is no error if it is live, or not this
// term's to bring. A noRoomError, a noTurnError or errSuspectAtWork says what is missing; turns that are free
// are taken and left in has.
func (t *term) tryBring(namespace, id string, has *places) error {
	err := t.load(t.background, namespace, id, has)
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
func (t *term) load(ctx context.Context, namespace, id string, has *places) error {
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
		t.bringSoon(namespace, id)
	}
	return l.err
}
