package sched

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHold bounds a namespace to one attempt at a time, and then to none.
func TestHold(t *testing.T) {
	t.Parallel()
	began := make(chan *Task, 16)
	end := make(chan struct{})
	var s *Scheduler
	s = New(8, 8, nil, func(a *Task) {
		defer s.Done(a)
		began <- a
		<-end
	})
	held, free := &run{namespace: "held"}, &run{namespace: "free"}
	s.Hold(map[string]int{"held": 1})
	var waiting []*Task
	for range 3 {
		waiting = append(waiting, held.task(GateRequest{}))
		s.Add(waiting[len(waiting)-1])
		s.Add(free.task(GateRequest{}))
	}
	count := map[*run]int{}
	var running *Task // of the bounded namespace
	for range 4 {
		a := <-began
		if count[a.Lane.(*run)]++; a.Lane == held {
			running = a
		}
	}
	require.Equal(t, map[*run]int{held: 1, free: 3}, count)
	require.Equal(t, 2, s.Backlog())
	require.Nil(t, s.HeldUntil("free"))
	until := s.HeldUntil("held")
	require.NotNil(t, until)

	require.False(t, s.Withdraw(waiting), "one of them runs, so all stay")
	require.Equal(t, 2, s.Backlog())
	require.True(t, s.Withdraw(waiting[2:]))
	require.Equal(t, 1, s.Backlog())

	s.Hold(map[string]int{"held": 0})
	<-until
	s.Done(running)
	require.Equal(t, 1, s.Backlog(), "no other one begins")
	require.NotNil(t, s.HeldUntil("held"))

	s.Hold(nil)
	require.Equal(t, held, (<-began).Lane)
	require.Nil(t, s.HeldUntil("held"))
	close(end)
	<-s.Stop()
}
