package epic

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonInvalidTransition refuses a move that the transition table does not have.
	ReasonInvalidTransition = "INVALID_TRANSITION"
	// ReasonRetriesExhausted refuses to try a task again.
	ReasonRetriesExhausted = "RETRIES_EXHAUSTED"
)

// State is where an epic stands. Its numbers are those of the API and of the stores.
type State int16

// The states of an epic.
const (
	Planning State = iota + 1
	Active
	Paused
	Completed
	Failed
	Canceled
)

// TaskState is where a task stands. Its numbers are those of the API and of the stores.
type TaskState int16

// The states of a task.
const (
	TaskPending TaskState = iota + 1
	TaskBlocked
	TaskRunning
	TaskCompleted
	TaskFailed
	TaskCanceled
)

// Next lists what may follow s; it is empty for an end. This and TaskState.Next are the one
// transition table. Planning to Completed passes through Active: the goal was reached without a task.
func (s State) Next() []State {
	switch s {
	case Planning:
		return []State{Active, Completed, Canceled}
	case Active:
		return []State{Paused, Completed, Failed, Canceled}
	case Paused:
		return []State{Active, Canceled}
	}
	return nil
}

// Next lists what may follow s; it is empty for an end. TaskPending to TaskCompleted passes through
// TaskRunning. TaskBlocked to TaskFailed is what the policy Fail does, and anybody may who knows that what it
// waits for will not come.
func (s TaskState) Next() []TaskState {
	switch s {
	case TaskPending:
		return []TaskState{TaskBlocked, TaskRunning, TaskCompleted, TaskCanceled}
	case TaskBlocked:
		return []TaskState{TaskPending, TaskFailed, TaskCanceled}
	case TaskRunning:
		return []TaskState{TaskCompleted, TaskFailed, TaskCanceled}
	case TaskFailed:
		return []TaskState{TaskPending}
	}
	return nil
}

// Ended reports whether the epic takes no more work.
func (s State) Ended() bool { return s == Completed || s == Failed || s == Canceled }

// Ended reports whether work on the task is over; a failed one may yet be tried again.
func (s TaskState) Ended() bool { return s == TaskCompleted || s == TaskFailed || s == TaskCanceled }

// OpenTaskStates lists the states that end when their epic is canceled.
func OpenTaskStates() []TaskState { return []TaskState{TaskPending, TaskBlocked, TaskRunning} }

// String spells the state as the API does, without its prefix.
func (s State) String() string {
	return word(int(s), "PLANNING", "ACTIVE", "PAUSED", "COMPLETED", "FAILED", "CANCELED")
}

// String spells the state as the API does, without its prefix.
func (s TaskState) String() string {
	return word(int(s), "PENDING", "BLOCKED", "RUNNING", "COMPLETED", "FAILED", "CANCELED")
}

// Move takes the epic to another state if the table has that step.
func (e *Epic) Move(to State, now time.Time) error {
	if err := checkMove("epic", e.ID, e.State, to, e.State.Next()); err != nil {
		return err
	}
	e.State = to
	if to.Ended() {
		e.EndTime = now
	}
	return nil
}

// Move takes the task to another state if the table has that step. Trying a failed task again is
// counted, and refused when it has been tried often enough.
func (t *Task) Move(to TaskState, now time.Time) error {
	if err := checkMove("task", t.ID, t.State, to, t.State.Next()); err != nil {
		return err
	}
	switch {
	case t.State == TaskPending && to == TaskCompleted:
		t.StartTime = now
	case to == TaskRunning:
		t.StartTime, t.EndTime = now, time.Time{}
	case t.State == TaskFailed && to == TaskPending:
		if limit := max(t.MaxRetries, 0); t.RetryCount >= limit {
			return errs.New(errs.FailedPrecondition, ReasonRetriesExhausted,
				"task %s was tried again %d times and may be %d times", t.ID, t.RetryCount, limit).
				Set("retry_count", strconv.Itoa(int(t.RetryCount))).Set("max_retries", strconv.Itoa(int(t.MaxRetries))).
				Hint("raise max_retries of the task")
		}
		t.RetryCount++
		t.EndTime, t.EndedBy = time.Time{}, ""
	}
	if to.Ended() {
		t.EndTime = now
	}
	t.State = to
	return nil
}

type state interface {
	comparable
	String() string
}

func checkMove[S state](what, id string, from, to S, allowed []S) error {
	if slices.Contains(allowed, to) {
		return nil
	}
	words := make([]string, len(allowed))
	for i, s := range allowed {
		words[i] = s.String()
	}
	list := strings.Join(words, ", ")
	text, hint := what+" "+id+" cannot go from "+from.String()+" to "+to.String(), "from "+from.String()+" it may go to: "+list
	if list == "" {
		hint = from.String() + " is an end: nothing is allowed from here"
	}
	if from == to {
		text = what + " " + id + " is " + from.String() + " already"
		if list == "" {
			hint = "nothing is to be done; for more work create another " + what
		}
	}
	return errs.New(errs.FailedPrecondition, ReasonInvalidTransition, "%s; %s", text, hint).
		Set("from", from.String()).Set("to", to.String()).Set("allowed", list).Hint(hint)
}

func word(n int, words ...string) string {
	if n < 1 || n > len(words) {
		return "UNSPECIFIED"
	}
	return words[n-1]
}
