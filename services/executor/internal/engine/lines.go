package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
)

// loading is a load in progress. Further loads of the same run wait for it.
type loading struct {
	done chan struct{}
	err  error
	// again is set if a look for commands left the run out. Its commands may be newer than what was read, so
	// another look follows the load. wanted is set if loadSoon was called meanwhile. The run may have been
	// claimed after it was read, so a load that found another owner is repeated. The session's mu guards both
	// while the load is in session.loading.
	again, wanted bool
}

// turnsHeld are the turns that are held for a run during its load, each as the function that gives it back;
// nil if it is not held. read also takes turns that are free.
type turnsHeld struct {
	suspect, compute func()
}

func (p *turnsHeld) release() {
	for _, leave := range []func(){p.compute, p.suspect} {
		if leave != nil {
			leave()
		}
	}
	*p = turnsHeld{}
}

// pendingLoad is a run that waits for its load. It is an entry of the session's loadLine, without a
// goroutine, since there may be very many. RecoverParallel runs are read at once.
type pendingLoad struct {
	namespace, id string
	has           turnsHeld
	// wait is the pause after the next failed try.
	wait time.Duration
}

// loadLine are the runs that wait to be read. The session's mu guards it.
type loadLine struct {
	// reading counts the goroutines of loadInTurn.
	reading int
	// first are the runs for which room is reserved or a turn is held. They go before those in byNamespace.
	first       []*pendingLoad
	byNamespace map[string][]*pendingLoad
	// order are the namespaces in byNamespace, the next one first.
	order []string
}

func (l *loadLine) push(b *pendingLoad, first bool) {
	switch {
	case first:
		l.first = append(l.first, b)
	case len(l.byNamespace[b.namespace]) == 0:
		if l.byNamespace == nil {
			l.byNamespace = map[string][]*pendingLoad{}
		}
		l.order = append(l.order, b.namespace)
		fallthrough
	default:
		l.byNamespace[b.namespace] = append(l.byNamespace[b.namespace], b)
	}
}

// pop takes out the next run; nil if there is none.
func (l *loadLine) pop() (b *pendingLoad) {
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
	line := l.byNamespace[ns]
	b, line[0] = line[0], nil
	if line = line[1:]; len(line) > 0 {
		l.byNamespace[ns] = line
		l.order = append(l.order, ns)
	} else {
		delete(l.byNamespace, ns)
	}
	return b
}

// roomLines are the runs that wait for room. The session's mu guards them and their entries.
type roomLines struct {
	by    map[string]*inLine // by run id
	byKey map[lineKey]*spaceLine
	// watched is set while releaseWaiting is at work.
	watched bool
}

// lineKey names a line: that of the canceled runs of a namespace, or of its other runs.
type lineKey struct {
	namespace string
	canceled  bool
}

// inLine is a run that waits for room.
type inLine struct {
	id    string
	lacks *memory.FullError
	since time.Time
	// stop ends its wait with the budget; nil while the run is in the queue.
	stop context.CancelCauseFunc
	// left is set if the entry is void. The queue may still contain it.
	left bool
	// hasCommands is set if the run has commands. Looks leave the run out, since its load applies them.
	hasCommands bool
	// canceled is set if the run is in the line of canceled runs, or moves there.
	canceled bool
}

// spaceLine is one line of a namespace.
type spaceLine struct {
	waiting int // goroutines of waitInTurn, roomWaiters at most
	queue   []*inLine
}

// lineOf names the line for what a run lacks.
func lineOf(lacks *memory.FullError) lineKey { return lineKey{lacks.Namespace, lacks.Canceled} }

// While the journal fails, the pause between two tries to read a run doubles from soonestTry to latestTry.
const (
	soonestTry = 20 * time.Millisecond
	latestTry  = time.Minute
)
