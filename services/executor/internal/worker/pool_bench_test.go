package worker

import (
	"fmt"
	"testing"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// BenchmarkPoolAmongWaiting is what room for one actor costs while other actors of its namespace wait for
// theirs. The pool is locked for all of it.
func BenchmarkPoolAmongWaiting(b *testing.B) {
	route := []journal.WorkerRoute{{Executor: journal.Owner{ID: "far"}, Addr: "x", Slots: 1}}
	a := name{"ns", "a"}
	for _, waiting := range []int{1, 100, 10_000} {
		crowd := func() *pool {
			p := newPool()
			for i := range waiting {
				p.enter(name{"ns", fmt.Sprint("other", i)}, false, func(*slot) {})
			}
			return p
		}
		b.Run(fmt.Sprintf("Found/waiting=%d", waiting), func(b *testing.B) {
			p := crowd()
			for b.Loop() {
				p.found(a, route)
				p.enter(a, false, func(pl *slot) { pl.release() })
			}
		})
		b.Run(fmt.Sprintf("FoundNobody/waiting=%d", waiting), func(b *testing.B) {
			p := crowd()
			for b.Loop() {
				p.found(a, nil)
			}
		})
		b.Run(fmt.Sprintf("Session/waiting=%d", waiting), func(b *testing.B) {
			p := crowd()
			p.add(newSession(p, 1, map[string]int{"a": 0}))
			for b.Loop() {
				p.enter(a, false, func(pl *slot) { pl.release() })
			}
		})
	}
	// A worker that serves all those who wait.
	b.Run("Wide/waiting=1000/slots=1000", func(b *testing.B) {
		actors := map[string]int{}
		for i := range 1000 {
			actors[fmt.Sprint("a", i)] = 0
		}
		for b.Loop() {
			p := newPool()
			for actor := range actors {
				p.enter(name{"ns", actor}, false, func(*slot) {})
			}
			p.add(newSession(p, 1000, actors))
		}
	})
}
