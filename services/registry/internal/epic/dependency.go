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

// Unmet lists which of the ids are not completed, in their order. A failed or canceled task keeps
// its dependents waiting.
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

// CheckCycle returns FailedPrecondition with the whole cycle if task, once it depends on these ids,
// would wait for itself. edges tells what every other task of the epic depends on.
func CheckCycle(task string, dependsOn []string, edges map[string][]string) error {
	// came is also the set of what has been seen; a path is read back along it.
	came := map[string]string{}
	var queue []string
	for _, d := range dependsOn {
		if _, ok := came[d]; !ok {
			came[d] = task
			queue = append(queue, d)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at == task {
			path := []string{task}
			for n := came[task]; n != task; n = came[n] {
				path = append(path, n)
			}
			path = append(path, task)
			text := strings.Join(path, " <- ")
			return errs.New(errs.FailedPrecondition, ReasonDependencyCycle, "tasks would wait for each other: %s", text).
				Set("cycle", text).Violate("task.depends_on", ReasonDependencyCycle, text).Hint("leave one of these out of depends_on")
		}
		for _, d := range edges[at] {
			if _, ok := came[d]; !ok {
				came[d] = at
				queue = append(queue, d)
			}
		}
	}
	return nil
}

// Reevaluate blocks or unblocks a task that has not begun, by the states of what it depends on, and
// reports whether that changed it.
func (t *Task) Reevaluate(states map[string]TaskState) bool {
	was := t.State
	waits := len(Unmet(t.DependsOn, states)) > 0
	switch {
	case was == TaskPending && waits:
		t.State = TaskBlocked
	case was == TaskBlocked && !waits:
		t.State = TaskPending
	}
	return t.State != was
}
