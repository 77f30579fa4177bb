package epic

import "time"

// The reasons why a run is canceled, with ReasonClaimLost; they are also the run's.
const (
	// ReasonTaskCanceled: its task was canceled.
	ReasonTaskCanceled = "TASK_CANCELED"
	// ReasonEpicCanceled: the epic of its task was canceled.
	ReasonEpicCanceled = "EPIC_CANCELED"
	// ReasonTaskDeleted: its task was deleted, alone or with its epic.
	ReasonTaskDeleted = "TASK_DELETED"
)

// Cancellation is a run that is to be canceled and has not been yet, since the work on its task is not wanted
// any more.
type Cancellation struct {
	Namespace, TaskID, RunID string
	Reason                   string
	// Time is when it came to be, by the database's clock.
	Time time.Time
	// Confirmed says that the run was recorded: it confirmed its claim.
	Confirmed bool
}
