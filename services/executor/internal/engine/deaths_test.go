package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxDeaths bounds the calls of one run at which executors die under the race detector, which makes each
// death several times slower.
const maxDeaths = 6

// deaths are the calls, from first to last, at which executors die: all of them, or under the race detector
// some, evenly apart, other ones each time.
func deaths(first, last int) []int {
	step := 1
	if n := last - first + 1; raced && n > maxDeaths {
		step = (n + maxDeaths - 1) / maxDeaths
	}
	var at []int
	for n := first + rand.IntN(step); n <= last; n += step {
		at = append(at, n)
	}
	return at
}

// calls counts the calls of all actors, by node and visit, and tells when the n-th one has been made.
type calls struct {
	mu sync.Mutex
	of map[string]int
	// order are the nodes of the calls in the order in which they ended.
	order []string
	made  int
	n     int
	then  func()
}

func (k *calls) around(a workgraph.Actor) workgraph.Actor {
	return pureActor{workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		out, err := a.Call(ctx, c)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.of[c.Ref.String()]++
		k.order = append(k.order, c.Node)
		if k.made++; k.made == k.n {
			k.then()
		}
		return out, err
	})}
}

// heir takes runs over from every executor that is not heard of at this moment.
type heir struct{ journal.Journal }

func (h heir) TakeOver(ctx context.Context, self journal.Owner, o journal.TakeOverOptions) (journal.TakeOverResult, error) {
	o.Lease = time.Millisecond
	return h.Journal.TakeOver(ctx, self, o)
}

// mortal is a run whose executor dies after a call, before the outcome of it is durable, and that another
// executor finishes.
type mortal struct {
	open func(testing.TB) store
	// actors are those of one executor; calls of them are counted unless uncounted changes them.
	actors    func(*testing.T, store) actors
	uncounted func(actors)
	start     func(*testing.T, *live) string
	// watch sees what an executor writes; nil for nobody.
	watch func(journal.Journal) journal.Journal
	// meanwhile acts on the run until it has ended or the executor is dead; nil for nothing to do.
	meanwhile func(t *testing.T, l *live, id string, dead <-chan struct{})
	// ends waits for the end of the run, and checks what has become of it.
	ends func(t *testing.T, l *live, id string)
	// dies says at which calls of the run without a death there is one; nil is deaths of all of them.
	dies func(undead *calls) []int
	// atOnce is how many calls may be under way at a time: so many are repeated at most.
	atOnce int
	// exact says that the run always makes the same calls.
	exact bool
}

// test lets the run go through once, and then die at its calls.
func (m mortal) test(t *testing.T) {
	undead := &calls{of: map[string]int{}}
	// A test of its own, whose executor is gone when the deaths begin.
	require.True(t, t.Run("Undead", func(t *testing.T) {
		l := m.executor(t, m.open(t), "a", undead, func(j journal.Journal) journal.Journal { return j })
		id := m.start(t, l)
		m.acts(t, l, id, nil)
		m.ends(t, l, id)
	}))
	t.Logf("%d calls", undead.made)
	at := deaths(1, undead.made)
	if m.dies != nil {
		at = m.dies(undead)
	}
	require.NotEmpty(t, at)
	began, died := atomic.Int64{}, atomic.Int64{}
	t.Run("Deaths", func(t *testing.T) { // returns when all of them are over
		for _, n := range at {
			t.Run(fmt.Sprintf("Call%d", n), func(t *testing.T) {
				t.Parallel()
				began.Add(1)
				m.killedAt(t, n, undead, &died)
			})
		}
	})
	t.Logf("%d of %d executors died", died.Load(), began.Load())
	require.Equal(t, began.Load(), died.Load(), "runs ended before the call at which their executor dies")
}

func (m mortal) killedAt(t *testing.T, n int, undead *calls, died *atomic.Int64) {
	s, wire, dead := m.open(t), &line{}, make(chan struct{})
	first := &calls{of: map[string]int{}, n: n, then: func() {
		wire.cut.Store(true)
		close(dead)
	}}
	l := m.executor(t, s, "a", first, func(j journal.Journal) journal.Journal {
		wire.Journal = j
		return wire
	})
	id := m.start(t, l)
	m.acts(t, l, id, dead)
	<-dead
	died.Add(1)
	second := &calls{of: map[string]int{}}
	l = m.executor(t, s, "b", second, func(j journal.Journal) journal.Journal { return heir{j} })
	m.acts(t, l, id, nil)
	m.ends(t, l, id)
	both := maps.Clone(first.of)
	for ref, made := range second.of {
		both[ref] += made
	}
	repeated := 0
	for ref, made := range both {
		if m.exact {
			require.Contains(t, undead.of, ref)
			require.LessOrEqual(t, made, undead.of[ref]+m.atOnce, ref)
		}
		repeated += made - undead.of[ref]
	}
	if m.exact {
		require.Positive(t, repeated, "the call that was under way is made again")
		require.Len(t, both, len(undead.of))
	}
	require.LessOrEqual(t, repeated, m.atOnce, "%v after %v", second.of, first.of)
	l.sound(t, id)
	below, err := l.j.Descendants(t.Context(), ns, id)
	require.NoError(t, err)
	for i := range below {
		l.sound(t, below[i].RunID)
	}
}

func (m mortal) acts(t *testing.T, l *live, id string, dead <-chan struct{}) {
	t.Helper()
	if m.meanwhile != nil {
		m.meanwhile(t, l, id, dead)
	}
}

func (m mortal) executor(t *testing.T, s store, id string, k *calls, over func(journal.Journal) journal.Journal) *live {
	t.Helper()
	own := m.actors(t, s)
	for name, one := range own {
		own[name] = k.around(one)
	}
	if m.uncounted != nil {
		m.uncounted(own)
	}
	l := run(t, s, own, named(id), func(_ *engine.Config, d *engine.Deps) {
		d.Claims = books{} // a registry is there, so that the outbox is written
		if d.Journal = over(d.Journal); m.watch != nil {
			d.Journal = m.watch(d.Journal)
		}
	})
	l.jobs(t)
	return l
}
