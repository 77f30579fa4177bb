package epic

import "time"

// OrderKind is what an order asks for. Its numbers are those of the API and of the stores.
type OrderKind int16

// The kinds of orders.
const (
	// OrderCancel: the work on the task is not wanted any more. No other order replaces it.
	OrderCancel OrderKind = iota + 1
	// OrderPause: the epic was paused.
	OrderPause
	// OrderResume: the epic goes on.
	OrderResume
	// OrderStart: the task is to be started. The order has no run.
	OrderStart
)

// OrderPrefix starts the id of every order.
const OrderPrefix = "or"

// The reasons of orders, with ReasonClaimLost; they are also the run's.
const (
	// ReasonTaskCanceled: its task was canceled.
	ReasonTaskCanceled = "TASK_CANCELED"
	// ReasonEpicCanceled: the epic of its task was canceled.
	ReasonEpicCanceled = "EPIC_CANCELED"
	// ReasonTaskDeleted: its task was deleted, alone or with its epic.
	ReasonTaskDeleted = "TASK_DELETED"
	// ReasonEpicPaused: the epic of its task was paused. Only runs that are paused for this reason are
	// resumed with the epic.
	ReasonEpicPaused = "EPIC_PAUSED"
	// ReasonEpicResumed: the epic of its task goes on.
	ReasonEpicResumed = "EPIC_RESUMED"
	// ReasonTaskReady: its epic runs by itself, and nothing keeps the task waiting.
	ReasonTaskReady = "TASK_READY"
)

// DefaultParallel is how many tasks of an epic are worked on at once if nobody says.
const DefaultParallel = 4

// Order is what the registry wants of the run of a task, and has not happened yet. A run has at most
// one, and so has a task that is to be started.
type Order struct {
	// ID distinguishes it from others to the same run.
	ID   string
	Kind OrderKind
	// RunID is empty in an order to start.
	Namespace, TaskID, RunID string
	Reason                   string
	// Time is when it came to be, by the database's clock.
	Time time.Time
	// Confirmed says that the run was recorded: it confirmed its claim.
	Confirmed bool
}

// RefusedStart is an order to start that cannot be carried out.
type RefusedStart struct {
	Order
	// Cause and Message say why.
	Cause, Message string
}

// Ready is a task that can be started.
type Ready struct {
	TaskID string
	// RetryCount is how often it was tried again.
	RetryCount int32
	// EstimatedTokens is what it is thought to use; 0 if nobody says.
	EstimatedTokens int64
}

// maxRetryPause is the longest pause before a task is tried again.
const maxRetryPause = time.Minute

// Pause is how long a failed task waits before it is tried again: a second, and twice as long each
// time.
func (r Ready) Pause() time.Duration {
	if r.RetryCount <= 0 {
		return 0
	}
	return min(time.Second<<min(r.RetryCount-1, 10), maxRetryPause)
}
