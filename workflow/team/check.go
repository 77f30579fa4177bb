package team

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Check reports the fault of a state that comes from elsewhere and was kept at a sequence of the log:
// what it holds is bounded, and no sequence in it is after that one. Whether it is that of a certain
// team it cannot say: Begin fits a state to its team.
func (st *State) Check(seq int64) error {
	at := func(place string, n int64) error {
		if n < 0 || n > seq {
			return fmt.Errorf("%s is %d, and must be from 0 to %d", place, n, seq)
		}
		return nil
	}
	if err := at("seq", st.Seq); err != nil {
		return err
	}
	for name, n := range st.Heard {
		if err := at(fmt.Sprintf("heard of %q", clip(name)), n); err != nil {
			return err
		}
	}
	for name, list := range st.Missed {
		for _, p := range list {
			if err := errors.Join(at(fmt.Sprintf("missed of %q", clip(name)), p.After), at(fmt.Sprintf("missed of %q", clip(name)), p.Last)); err != nil || len(list) > maxMissed {
				return cmp.Or(err, fmt.Errorf("missed of %q has %d spans, the limit is %d", clip(name), len(list), maxMissed))
			}
		}
	}
	waiting := 0
	queue := func(place, name string, q []Queued) error {
		if waiting += len(q); waiting > maxQueued {
			return fmt.Errorf("its inboxes hold more than %d messages", maxQueued)
		}
		for i := range q {
			if err := at(fmt.Sprintf("%s of %q", place, clip(name)), q[i].Seq); err != nil {
				return err
			}
		}
		return nil
	}
	for name, q := range st.Queues {
		if err := queue("queues", name, q); err != nil {
			return err
		}
	}
	for i := range st.Speaking {
		s := &st.Speaking[i]
		for _, err := range []error{at("after", s.After), at("last", s.Last), at("missed", s.Missed), queue("took", s.Name, s.Took)} {
			if err != nil {
				return err
			}
		}
	}
	return st.sizes()
}

// sizes reports lists that are longer than any team makes them.
func (st *State) sizes() error {
	for place, n := range map[string]int{"heard": len(st.Heard), "missed": len(st.Missed), "queues": len(st.Queues), "ready": len(st.Ready), "speaking": len(st.Speaking)} {
		if n > MaxMembers {
			return fmt.Errorf("%s has %d members, a team may have %d", place, n, MaxMembers)
		}
	}
	for key, parts := range st.Arrived {
		sorted := slices.Sorted(slices.Values(parts))
		if len(slices.Compact(sorted)) < len(parts) || len(parts) > 0 && sorted[0] < 0 {
			return fmt.Errorf("arrived of %q names a transition twice, or one that cannot be", clip(key))
		}
	}
	if st.Turns < 0 || st.Messages < 0 {
		return fmt.Errorf("it has %d turns and %d messages", st.Turns, st.Messages)
	}
	return nil
}
