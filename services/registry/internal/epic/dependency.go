package epic

import (
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonDependencyUnknown names tasks to depend on that are not in the epic.
	ReasonDependencyUnknown = "DEPENDENCY_UNKNOWN"
	// ReasonDependencyCycle refuses tasks that wait for each other.
	ReasonDependencyCycle = "DEPENDENCY_CYCLE"
	// ReasonDependenciesUnmet refuses to unblock a task that still waits.
	ReasonDependenciesUnmet = "DEPENDENCIES_UNMET"
	// ReasonDependenciesFixed refuses to change what a task depends on once work has begun.
	ReasonDependenciesFixed = "DEPENDENCIES_FIXED"
)

// Unmet lists which of the ids are not completed, in their order.
func Unmet(dependsOn []string, states map[string]TaskState) []string {
	var out []string
	for _, id := range dependsOn {
		if states[id] != TaskCompleted {
			out = append(out, id)
		}
	}
	return out
}

// CheckDependencies returns InvalidArgument if one of the ids has no state, which means that it is
// not a task of the epic.
func CheckDependencies(epicID string, dependsOn []string, states map[string]TaskState) error {
	var missing []string
	for _, id := range dependsOn {
		if _, ok := states[id]; !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, ", ")
	return errs.New(errs.InvalidArgument, ReasonDependencyUnknown, "epic %s has no task %s", epicID, list).
		Violate("task.depends_on", ReasonDependencyUnknown, "not a task of the epic: "+list).
		Hint("depend on tasks of the same epic only, and create them first")
}

// Edges returns the dependencies of tasks; tasks without any may be left out.
type Edges func(ids []string) (map[string][]string, error)

// walkBatch is how many tasks are asked for at once on the way along their dependencies: of 1,000
// dependencies each, they fill some megabytes.
const walkBatch = 100

// CheckCycle returns FailedPrecondition with the whole cycle if task, once it depends on these ids as
// well, would wait for itself. It asks for the edges of each task that is reached, once.
func CheckCycle(task string, added []string, edges Edges) error {
	// came is also the set of what has been seen; a path is read back along it.
	came := map[string]string{}
	var queue []string
	reach := func(from string, to []string) (found bool) {
		for _, d := range to {
			if _, ok := came[d]; ok {
				continue
			}
			came[d] = from
			if d == task {
				return true
			}
			queue = append(queue, d)
		}
		return false
	}
	if reach(task, added) {
		return cycle(task, came)
	}
	for len(queue) > 0 {
		batch := queue[:min(walkBatch, len(queue))]
		queue = queue[len(batch):]
		next, err := edges(batch)
		if err != nil {
			return err
		}
		for _, at := range batch {
			if reach(at, next[at]) {
				return cycle(task, came)
			}
		}
	}
	return nil
}

// cycle is the error for a way from a task back to itself, read along what came from where.
func cycle(task string, came map[string]string) error {
	path := []string{task}
	for n := came[task]; n != task; n = came[n] {
		path = append(path, n)
	}
	path = append(path, task)
	text := strings.Join(path, " <- ")
	return errs.New(errs.FailedPrecondition, ReasonDependencyCycle, "tasks would wait for each other: %s", text).
		Set("cycle", text).Violate("task.depends_on", ReasonDependencyCycle, text).Hint("leave one of these out of depends_on")
}

// Dependent is what decides whether a task that has not begun still waits, and nothing of its body.
type Dependent struct {
	ID        string
	State     TaskState
	DependsOn []string
	Revision  int64
	// Policy is the one that holds for it, and EndedBy the task that it waits for in vain. Both are empty
	// where neither matters.
	Policy  DependencyPolicy
	EndedBy string
}

// Reevaluate blocks or unblocks a task that has not begun, by the states of what it depends on, and
// reports whether that changed it.
func (d *Dependent) Reevaluate(states map[string]TaskState) bool {
	was := d.State
	waits := len(Unmet(d.DependsOn, states)) > 0
	switch {
	case was == TaskPending && waits:
		d.State = TaskBlocked
	case was == TaskBlocked && !waits:
		d.State = TaskPending
	}
	return d.State != was
}

// Reevaluate blocks or unblocks the task as it does a Dependent.
func (t *Task) Reevaluate(states map[string]TaskState) bool {
	d := Dependent{State: t.State, DependsOn: t.DependsOn}
	changed := d.Reevaluate(states)
	t.State = d.State
	return changed
}
