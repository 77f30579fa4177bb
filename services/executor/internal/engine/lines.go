package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
)

// loading is a load that is under way; whoever wants the same run waits for it.
type loading struct {
	done chan struct{}
	err  error
	// again says that a look for commands left the run out. Its commands may be newer than what was read, so
	// another look follows the load. wanted says that loadSoon was called meanwhile: the run may have been
	// claimed after it was read, so a load that found it to be somebody else's is repeated. The term's mu
	// guards both as long as the load is in term.loading.
	again, wanted bool
}

// turnsHeld are the turns that are held for a run while it is brought, each as the function that gives it
// back; nil if it is not held. read takes turns that are free, too.
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

// pendingLoad is a run that is to be brought. It waits as an entry of the term's loadLine, without a
// goroutine, since there may be very many. RecoverParallel runs are read at once.
type pendingLoad struct {
	namespace, id string
	has           turnsHeld
	// wait is the pause after the next try that fails.
	wait time.Duration
}

// loadLine are the runs that wait to be read. The term's mu guards it.
type loadLine struct {
	// reading counts the goroutines of loadInTurn.
	reading int
	// first are the runs for which room is kept or a turn is held: they go before those in spaces.
	first       []*pendingLoad
	byNamespace map[string][]*pendingLoad
	// order are the namespaces in spaces, the one whose turn it is first.
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

// pop is the run whose turn it is; nil if there is none.
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

// roomLines are the runs that stand in line. The term's mu guards them and what is in them.
type roomLines struct {
	by    map[string]*inLine // by the run's id
	lines map[lineKey]*spaceLine
	// watched says that releaseWaiting is at work.
	watched bool
}

// lineKey names a line: that of the canceled runs of a namespace, or of its other runs.
type lineKey struct {
	namespace string
	canceled  bool
}

// inLine is a run that stands in line.
type inLine struct {
	id    string
	lacks *memory.FullError
	since time.Time
	// stop ends its wait with the budget; nil while the run is in the queue.
	stop context.CancelCauseFunc
	// left says that the entry is void: the queue may still have it.
	left bool
	// hasCommands says that there is commands for the run: looks for commands leave it out, since the run
	// takes its commands up when it is read.
	hasCommands bool
	// canceled says that the run stands in the line of canceled runs, or is on the way there.
	canceled bool
}

// spaceLine is a line of a namespace.
type spaceLine struct {
	waiting int // goroutines of waitInTurn, roomWaiters at most
	queue   []*inLine
}

// lineOf names the line in which a run waits that lacks room.
func lineOf(lacks *memory.FullError) lineKey { return lineKey{lacks.Namespace, lacks.Canceled} }

// The pause between two tries to read a run, when the journal fails, doubles from soonestTry to latestTry.
const (
	soonestTry = 20 * time.Millisecond
	latestTry  = time.Minute
)
