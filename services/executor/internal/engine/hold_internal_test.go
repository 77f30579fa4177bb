package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHold holds a namespace to one attempt at a time.
func TestHold(t *testing.T) {
	t.Parallel()
	began := make(chan *attempt, 16)
	end := make(chan struct{})
	var s *scheduler
	s = newScheduler(8, 8, nil, func(a *attempt) {
		defer s.done(a)
		began <- a
		<-end
	})
	held, free := &run{namespace: "held"}, &run{namespace: "free"}
	s.hold(map[string]bool{"held": true})
	var waiting []*attempt
	for range 3 {
		waiting = append(waiting, &attempt{run: held})
		s.add(waiting[len(waiting)-1])
		s.add(&attempt{run: free})
	}
	count := map[*run]int{}
	for range 4 {
		count[(<-began).run]++
	}
	require.Equal(t, map[*run]int{held: 1, free: 3}, count)
	require.Equal(t, 2, s.backlog())
	require.Nil(t, s.heldUntil("free"))
	until := s.heldUntil("held")
	require.NotNil(t, until)

	require.False(t, s.withdraw(waiting), "one of them runs, so all stay")
	require.Equal(t, 2, s.backlog())
	require.True(t, s.withdraw(waiting[2:]))
	require.Equal(t, 1, s.backlog())

	s.hold(nil)
	<-until
	require.Equal(t, held, (<-began).run)
	require.Nil(t, s.heldUntil("held"))
	close(end)
	<-s.stop()
}
