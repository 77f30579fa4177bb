package sched

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// door is a gate that the test opens.
type door struct {
	kind    GateKind
	entered []GateRequest
	ready   []func(Pass)
	freed   int
	left    int
	open    bool
}

func (d *door) Kind() GateKind                      { return d.kind }
func (d *door) Concerns(r GateRequest) bool         { return r.Actor == "gated" }
func (d *door) WaitOf(GateRequest) (GateWait, bool) { return GateWait{Kind: d.kind, Name: "x"}, true }
func (d *door) pass(until time.Time) Pass           { return Pass{Release: func() { d.freed++ }, Until: until} }
func (d *door) Enter(r GateRequest, f func(Pass)) func() {
	d.entered, d.ready = append(d.entered, r), append(d.ready, f)
	if d.open {
		f(d.pass(time.Time{}))
	}
	return func() { d.left++ }
}

// run is what the tasks of one lane share.
type run struct {
	namespace, id string
	priority      int
}

func (r *run) task(req GateRequest) *Task {
	req.Namespace, req.RunID, req.Priority, req.Queued = r.namespace, r.id, r.priority, time.Now()
	return &Task{Lane: r, Request: req}
}

// stage is a scheduler whose attempts are listed when they begin and end when the test says so.
type stage struct {
	*Scheduler
	begun chan *Task
	n     int
}

func newStage(t *testing.T, limit, remote int, gates ...Gate) *stage {
	st := &stage{begun: make(chan *Task, 1000)}
	st.Scheduler = New(limit, remote, gates, func(a *Task) { st.begun <- a })
	t.Cleanup(func() { st.Stop() })
	return st
}

func (st *stage) queue(r *run, actor string, remote bool) *Task {
	st.n++
	a := r.task(GateRequest{Ref: workgraph.Ref{Node: fmt.Sprint(st.n)}, Actor: actor, Remote: remote})
	st.Add(a)
	return a
}

func (st *stage) runs(t *testing.T, want ...*Task) {
	t.Helper()
	synctest.Wait()
	require.Len(t, st.begun, len(want))
	got := map[*Task]bool{}
	for range want {
		got[<-st.begun] = true
	}
	for _, a := range want {
		require.True(t, got[a], "attempt %s did not begin", a.Request.Ref.Node)
	}
}

func TestScheduler(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, f)
		})
	}
	bubble("Priority/UrgentRunsGoFirstAndNoneStarves", func(t *testing.T) {
		st := newStage(t, 1, 1)
		low, urgent := &run{namespace: "n", priority: 4}, &run{namespace: "n", priority: 1}
		st.runs(t, st.queue(&run{namespace: "n"}, "a", false))
		waits := st.queue(low, "a", false)
		holder := (&run{namespace: "n"}).task(GateRequest{})
		holder.dispatched = true
		begun, turns := time.Now(), 0
		for {
			next := st.queue(urgent, "a", false)
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // fake time
			st.Done(holder)
			synctest.Wait()
			if holder = <-st.begun; holder == waits {
				break
			}
			require.Same(t, urgent, holder.Lane)
			_ = next
			turns++
			require.Less(t, turns, 100)
		}
		require.GreaterOrEqual(t, time.Since(begun), 3*passOverTime)
		require.Less(t, time.Since(begun), 4*passOverTime)
	})
	bubble("Priority/IsOfOneNamespaceOnly", func(t *testing.T) {
		st := newStage(t, 1, 1)
		first := st.queue(&run{namespace: "a", priority: 1}, "a", false)
		st.runs(t, first)
		st.queue(&run{namespace: "a", priority: 1}, "a", false)
		other := st.queue(&run{namespace: "b", priority: 4}, "a", false)
		st.queue(&run{namespace: "a", priority: 1}, "a", false)
		st.Done(first)
		synctest.Wait()
		second := <-st.begun
		st.Done(second)
		st.runs(t, other)
	})
	bubble("Gates/NoPlaceIsHeldThere", func(t *testing.T) {
		one, two := &door{kind: GateKey}, &door{kind: GateRate}
		st := newStage(t, 1, 1, one, two)
		r := &run{namespace: "n", id: "r"}
		gated := st.queue(r, "gated", false)
		free := st.queue(r, "free", false)
		st.runs(t, free)
		require.Zero(t, st.Backlog())
		b, ok := st.WaitOf(gated)
		require.True(t, ok)
		require.Equal(t, GateKey, b.Kind)
		one.ready[0](one.pass(time.Time{}))
		two.ready[0](two.pass(time.Time{}))
		require.Equal(t, 1, st.Backlog(), "it waits for a place now")
		b, _ = st.WaitOf(gated)
		require.Equal(t, GateSlot, b.Kind)
		later := st.queue(r, "free", false)
		st.Done(free)
		st.runs(t, gated)
		_, ok = st.WaitOf(gated)
		require.False(t, ok)
		st.Done(gated)
		st.Done(gated)
		st.runs(t, later)
		require.Equal(t, 1, one.freed)
		require.Equal(t, 1, two.freed)
	})
	bubble("Gates/WhoLeavesGivesAllBack", func(t *testing.T) {
		one, two := &door{kind: GateKey, open: true}, &door{kind: GateRate}
		st := newStage(t, 1, 1, one, two)
		a := st.queue(&run{namespace: "n"}, "gated", false)
		require.True(t, st.Remove(a))
		require.False(t, st.Remove(a))
		require.Equal(t, 1, one.freed)
		require.Equal(t, 1, two.left)
		two.ready[0](two.pass(time.Time{})) // too late
		require.Equal(t, 1, two.freed)
		st.runs(t)
	})
	bubble("Gates/StalePassIsNotUsed", func(t *testing.T) {
		one, two := &door{kind: GateKey}, &door{kind: GateRate}
		st := newStage(t, 1, 1, one, two)
		r := &run{namespace: "n"}
		gated, free := st.queue(r, "gated", false), st.queue(r, "free", false)
		st.runs(t, free)
		one.ready[0](one.pass(time.Time{}))
		two.ready[0](two.pass(time.Now().Add(time.Second)))
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
		st.Done(free)
		st.runs(t)
		require.Len(t, two.entered, 2)
		require.Len(t, one.entered, 1)
		require.Equal(t, 1, two.freed)
		two.ready[1](two.pass(time.Now().Add(time.Second)))
		st.runs(t, gated)
	})
	bubble("Gates/StopEmptiesThem", func(t *testing.T) {
		one := &door{kind: GateKey}
		st := newStage(t, 1, 1, one)
		st.queue(&run{namespace: "n"}, "gated", false)
		<-st.Stop()
		require.Equal(t, 1, one.left)
		one.ready[0](one.pass(time.Time{}))
		require.Equal(t, 1, one.freed)
		st.runs(t)
	})
	bubble("Gates/KeyIsHandedOnInOrder", func(t *testing.T) {
		st := newStage(t, 10, 1, NewKeyGate())
		r := &run{namespace: "n", id: "r"}
		var as []*Task
		for range 4 {
			a := r.task(GateRequest{Actor: "a", Key: "k"})
			as = append(as, a)
			st.Add(a)
		}
		st.runs(t, as[0])
		b, ok := st.WaitOf(as[2])
		require.True(t, ok)
		require.Equal(t, GateWait{Kind: GateKey, Name: "k", Since: b.Since, HolderRunIDs: []string{"r"}}, b)
		require.True(t, st.Remove(as[1]))
		st.Done(as[0])
		st.runs(t, as[2])
		st.Done(as[2])
		st.runs(t, as[3])
	})
	bubble("Remote/HasPlacesOfItsOwn", func(t *testing.T) {
		st := newStage(t, 1, 2)
		r := &run{namespace: "n"}
		here := st.queue(r, "a", false)
		st.queue(r, "a", false)
		far, farther := st.queue(r, "b", true), st.queue(r, "b", true)
		st.runs(t, here, far, farther)
		third := st.queue(r, "b", true)
		st.Done(far)
		st.runs(t, third)
		require.Equal(t, 1, st.Backlog())
	})
}

func TestSchedulerConclude(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, 100, 1)
		r := &run{namespace: "n"}
		left := 10
		st.AfterTask = func() {
			if left--; left > 0 {
				st.queue(r, "a", false)
			}
		}
		first := st.queue(r, "a", false)
		synctest.Wait()
		require.Len(t, st.begun, 10)
		require.Same(t, first, <-st.begun)
	})
}

func BenchmarkScheduler(b *testing.B) {
	done := make(chan *Task)
	s := New(256, 1, []Gate{NewKeyGate()}, func(a *Task) { done <- a })
	r := &run{namespace: "n", id: "r"}
	b.ReportAllocs()
	for b.Loop() {
		s.Add(r.task(GateRequest{Actor: "a"}))
		s.Done(<-done)
	}
}
