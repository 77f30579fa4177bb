package sched

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHold holds a namespace to one attempt at a time.
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
	s.Hold(map[string]bool{"held": true})
	var waiting []*Task
	for range 3 {
		waiting = append(waiting, held.task(GateRequest{}))
		s.Add(waiting[len(waiting)-1])
		s.Add(free.task(GateRequest{}))
	}
	count := map[*run]int{}
	for range 4 {
		count[(<-began).Lane.(*run)]++
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

	s.Hold(nil)
	<-until
	require.Equal(t, held, (<-began).Lane)
	require.Nil(t, s.HeldUntil("held"))
	close(end)
	<-s.Stop()
}
