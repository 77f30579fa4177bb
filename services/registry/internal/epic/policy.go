package epic

import (
	"slices"
	"time"
)

// DependencyPolicy says what becomes of a task that waits for one which has failed or was canceled. Its
// numbers are those of the API and of the stores. The zero value of a task is the policy of its epic, that
// of an epic is Block.
type DependencyPolicy int16

// The policies.
const (
	// Block lets it wait: the other one may yet be tried again, or be taken out of what it depends on.
	Block DependencyPolicy = iota + 1
	// Skip cancels it.
	Skip
	// Fail fails it.
	Fail
)

// In is the policy that holds for a task of an epic with another one.
func (p DependencyPolicy) In(epics DependencyPolicy) DependencyPolicy {
	if p == 0 {
		p = epics
	}
	return max(p, Block)
}

// Ends is the state in which a task ends by this policy; false if it goes on waiting.
func (p DependencyPolicy) Ends() (TaskState, bool) {
	switch p {
	case Skip:
		return TaskCanceled, true
	case Fail:
		return TaskFailed, true
	}
	return 0, false
}

// Dead reports whether what depends on a task in this state can only go on if something is done about it.
func (s TaskState) Dead() bool { return s == TaskFailed || s == TaskCanceled }

// Dead lists which of the ids have failed or were canceled, in their order.
func Dead(dependsOn []string, states map[string]TaskState) []string {
	var out []string
	for _, id := range dependsOn {
		if states[id].Dead() {
			out = append(out, id)
		}
	}
	return out
}

// Decide ends a blocked task by its policy if one that it depends on has failed or was canceled. epics is
// the policy of its epic.
func (t *Task) Decide(epics DependencyPolicy, states map[string]TaskState, now time.Time) error {
	dead := Dead(t.DependsOn, states)
	to, ends := t.DependencyPolicy.In(epics).Ends()
	if t.State != TaskBlocked || len(dead) == 0 || !ends {
		return nil
	}
	t.EndedBy = dead[0]
	return t.Move(to, now)
}

// Decide ends a blocked task that depends on one of those that are gone, by the policy that holds for it, and
// reports whether it did.
func (d *Dependent) Decide(gone func(id string) bool) bool {
	to, ends := d.Policy.Ends()
	i := slices.IndexFunc(d.DependsOn, gone)
	if d.State != TaskBlocked || i < 0 || !ends {
		return false
	}
	d.State, d.EndedBy = to, d.DependsOn[i]
	return true
}
