// Package trigger owns the triggers of workflows that were activated, and their deliveries: what each was
// told, and the one run that came of it, over any failures of executors. It holds the contract of the store
// and the controller that carries deliveries out. It must not know the database, the content of a run, nor
// how events come in.
package trigger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
	"github.com/epigraph-run/epigraph/workflow"
)

// Reasons of refusals.
const (
	// ReasonNotFound is the reason when there is no such trigger in the namespace.
	ReasonNotFound = "TRIGGER_NOT_FOUND"
	// ReasonDeliveryNotFound is the reason when there is no such delivery in the namespace.
	ReasonDeliveryNotFound = "TRIGGER_DELIVERY_NOT_FOUND"
	// ReasonNotActive is the reason when the triggers of a workflow are not on.
	ReasonNotActive = "TRIGGER_NOT_ACTIVE"
	// ReasonInvalid is the reason of triggers or events that make no sense.
	ReasonInvalid = "TRIGGER_INVALID"
	// ReasonTooMany is the reason when a namespace has as many triggers as it may.
	ReasonTooMany = "TOO_MANY_TRIGGERS"
	// ReasonPathTaken is the reason when another trigger of the namespace has the path of a webhook.
	ReasonPathTaken = "TRIGGER_PATH_TAKEN"
	// ReasonBusy is the reason when as many deliveries of a namespace wait as may.
	ReasonBusy = "TOO_MANY_DELIVERIES"
	// ReasonEventTooLarge is the reason of an event that has more bytes than one may.
	ReasonEventTooLarge = "EVENT_TOO_LARGE"
	// ReasonTooDeep is the reason of a delivery at the end of a chain of runs that start each other.
	ReasonTooDeep = "TRIGGER_CHAIN_TOO_LONG"
	// ReasonTooManyEvents is the reason when a namespace has as many event triggers as it may.
	ReasonTooManyEvents = "TOO_MANY_EVENT_TRIGGERS"
	// ReasonNothing is the reason of a workflow that nothing but a call starts.
	ReasonNothing = "NO_TRIGGERS"
)

const (
	// Prefix starts the id of every trigger.
	Prefix = "trg"
	// DeliveryPrefix starts the id of every delivery.
	DeliveryPrefix = "tdl"
	// MaxEvent bounds an event, in bytes.
	MaxEvent = workflow.MaxEvent
	// MaxEventID bounds what names an event, in bytes.
	MaxEventID = 256
	// MaxDepth is how many runs may follow each other that triggers start.
	MaxDepth = 16
	// MaxWaiting is how many deliveries of a namespace may wait to be carried out.
	MaxWaiting = 10_000
	// Patience is how long a delivery is tried.
	Patience = 24 * time.Hour
)

// Key names a trigger or a delivery.
type Key struct{ Namespace, ID string }

// State is that of an activation or a trigger.
type State string

// The states. What has ended begins again when the triggers of the workflow are activated again.
const (
	Active State = "ACTIVE"
	Ended  State = "ENDED"
)

// Activation says that the triggers of a workflow are on.
type Activation struct {
	Namespace string
	// Workflow is the slug. WorkflowID tells it from a later workflow of the same name.
	Workflow, WorkflowID string
	// Ref is what was activated: SLUG, SLUG@ALIAS or SLUG@VERSION. Version is what it stood for last.
	Ref     string
	Version int64
	State   State
	// Reason is why it has ended, or why a newer version is not followed.
	Reason string
	// Settled is false while schedules may differ from what the triggers say.
	Settled bool
	// Checked is when it was last asked what Ref stands for.
	Checked                time.Time
	CreateTime, UpdateTime time.Time
	// Principal is who activated or deactivated it last.
	Principal string
}

// Trigger is a trigger of an activated workflow.
type Trigger struct {
	Key
	Workflow string
	Version  int64
	// Spec is what the workflow says of it.
	Spec workflow.Trigger
	// Path is where a webhook is called, and Secret what its callers prove themselves with.
	Path, Secret           string
	State                  State
	Reason                 string
	CreateTime, UpdateTime time.Time
	// Since is the cursor of the feed behind which the events are that it hears.
	Since int64
	// Fresh says that Activate made the secret. It is not kept.
	Fresh bool
}

// Ref is the version whose runs it starts.
func (t *Trigger) Ref() string { return fmt.Sprintf("%s@%d", t.Workflow, t.Version) }

// Size implements page.Row.
func (t Trigger) Size() int { return 512 + len(t.Path) + len(t.Spec.Inputs) }

// Event is something that a trigger is told.
type Event struct {
	Trigger Key
	// ID dedupes: a trigger takes an event of the same id once.
	ID string
	// Body is what references to `event` read. It is JSON, of MaxEvent bytes at most.
	Body json.RawMessage
	At   time.Time
	// Details say for whom the run is; all may be empty.
	Details
	// Depth is how many runs that triggers started stand before it.
	Depth int
	// Spare is for how long no job carries the event out, because its caller does.
	Spare time.Duration
	// Refusal, if it is set, is why the event starts nothing.
	Refusal *errs.Error
}

// Details are what a run is given beside its inputs.
type Details struct {
	User        string `json:"user,omitempty"`
	Chat        string `json:"chat,omitempty"`
	BusinessKey string `json:"business_key,omitempty"`
	// Thread is that of the chat with which the delivery is deleted; empty for none. See ThreadEvent.
	Thread string `json:"thread,omitempty"`
	// Principal is who wrote the message of a chat, and Approves says that its key had the scope approve.
	// Who repeats the delivery takes its place, also of a message to a bot.
	Principal string `json:"principal,omitempty"`
	Approves  bool   `json:"approves,omitempty"`
	// Request and BodyHash are those of the request with the message, if it had an id. A repetition is
	// another request.
	Request  string `json:"request,omitempty"`
	BodyHash string `json:"body_hash,omitempty"`
}

// ThreadEvent is the id of the event that a request about a thread is, whatever the request is called. The
// thread begins it, so that the deliveries of a thread are found.
func ThreadEvent(thread, request string) string {
	sum := sha256.Sum256([]byte(request))
	return thread + "/" + hex.EncodeToString(sum[:])
}

// Status is what became of a delivery.
type Status string

// The states of deliveries, as in the API.
const (
	Received Status = "RECEIVED"
	Started  Status = "STARTED"
	Refused  Status = "REFUSED"
	Failed   Status = "FAILED"
)

// Delivery is an event that a trigger was told, and what became of it.
type Delivery struct {
	Key
	Trigger string
	EventID string
	Event   json.RawMessage
	Details
	Status Status
	// RunID is the run that is started, known before it is.
	RunID string
	// Reason and Message say why it was refused or has failed, or what the last try failed of.
	Reason, Message string
	Attempts        int
	// Repeats is how often the same event came again, RepeatOf the delivery that this one repeats.
	Repeats  int
	RepeatOf string
	Depth    int
	// Due is when it is to be tried next, zero when it has ended.
	ReceiveTime, Due, EndTime time.Time
	// Repeated says that the event had come before. It is not kept.
	Repeated bool
}

// Size implements page.Row.
func (d Delivery) Size() int { return 512 + len(d.Event) + len(d.Message) }

// Filter chooses deliveries; empty fields choose all.
type Filter struct {
	Trigger string
	Status  Status
}

// Room is how many ended deliveries of a namespace are kept, and how many bytes they may have together, each
// with DeliveryBytes beside its event.
type Room struct {
	Deliveries int
	Bytes      int64
}

// DeliveryBytes is what a delivery counts beside its event.
const DeliveryBytes = 512

// ErrChanged is returned for an activation that is not as it was seen.
var ErrChanged = errs.New(errs.Conflict, "TRIGGERS_CHANGED", "the activation has changed")

// Store keeps activations, triggers and deliveries. Implementations are safe for concurrent use.
type Store interface {
	// Activate writes an activation and the triggers of its version: one that the workflow has already under
	// its name keeps id, secret and create time, the others are made, and those that are not named end. It
	// returns the triggers as they are kept, with those that ended. If was is set, the activation must be as
	// it was updated then, and active, else ErrChanged. ReasonTooMany, ReasonPathTaken.
	Activate(ctx context.Context, a Activation, triggers []Trigger, most int, was time.Time) ([]Trigger, error)
	// End ends an activation and its triggers; was is as for Activate. One that has ended stays as it is.
	// ReasonNotActive.
	End(ctx context.Context, a Activation, was time.Time) (Activation, error)
	// Activation reads one. ReasonNotActive if there never was one.
	Activation(ctx context.Context, namespace, workflow string) (Activation, error)
	// Unchecked reads up to limit activations that were last checked before a time, or are not settled, those
	// first that were not checked for longest.
	Unchecked(ctx context.Context, before time.Time, limit int) ([]Activation, error)
	// Checked notes that an activation was looked at, if it still has this version.
	Checked(ctx context.Context, a Activation) error
	// Trigger reads one. ReasonNotFound.
	Trigger(ctx context.Context, k Key) (Trigger, error)
	// ByPath reads the active webhook of a path. ReasonNotFound.
	ByPath(ctx context.Context, namespace, path string) (Trigger, error)
	// List reads up to limit triggers of a namespace after an id; a workflow other than "" chooses its own.
	List(ctx context.Context, namespace, workflow, after string, limit int) ([]Trigger, error)
	// Active reads up to limit active triggers of a kind after a key, by namespace and id; of one namespace
	// alone if that is not empty.
	Active(ctx context.Context, kind, namespace string, after Key, limit int) ([]Trigger, error)
	// SetSecret replaces the secret of an active trigger. ReasonNotFound.
	SetSecret(ctx context.Context, k Key, secret string, now time.Time) (Trigger, error)
	// Receive writes a delivery with the job that carries it out, unless it has ended already. Of an event
	// that came before, the first delivery is returned, and counts the repeat. ReasonBusy if most wait.
	Receive(ctx context.Context, d Delivery, most int) (Delivery, error)
	// Record writes a delivery that was carried out otherwise, in place of an earlier one of the same event
	// that started nothing.
	Record(ctx context.Context, d Delivery) error
	// Delivery reads one. ReasonDeliveryNotFound.
	Delivery(ctx context.Context, k Key) (Delivery, error)
	// Deliveries reads up to limit deliveries with an id below before, newest first; an empty one is above
	// all.
	Deliveries(ctx context.Context, namespace string, f Filter, before string, limit int) ([]Delivery, error)
	// Tried writes what a try came to, with a job for the next one if the delivery still waits. It does
	// nothing if the delivery no longer waits or was tried meanwhile: attempts is how often it had been.
	Tried(ctx context.Context, d Delivery, attempts int) error
	// Overdue inserts jobs for up to limit deliveries that were due before a time and returns how many.
	Overdue(ctx context.Context, before time.Time, limit int) (int, error)
	// Forget removes up to limit deliveries that ended before a time, and triggers that ended before it and
	// have none. If those are fewer, it removes those of which a namespace has more than room for, the oldest
	// first, in transactions of limit rows. It returns how many.
	Forget(ctx context.Context, before time.Time, room Room, limit int) (int, error)
	// FeedCursor reads how far the feed of a namespace was followed; 0 if it never was. Activate sets it to
	// Since of the triggers when the namespace has its first event trigger, or has one again.
	FeedCursor(ctx context.Context, namespace string) (int64, error)
	// MoveFeed moves the cursor, if it still is where it was read; ok is false if not.
	MoveFeed(ctx context.Context, namespace string, from, to int64, now time.Time) (ok bool, err error)
	// ResetFeed is MoveFeed to any cursor. With anew all event triggers hear what is behind it, wherever
	// they were turned on.
	ResetFeed(ctx context.Context, namespace string, from, to int64, anew bool, now time.Time) error
	// Close ends what the store opened itself.
	Close() error
}

// NotFound is the error of a trigger that is not there.
func NotFound(id string) error {
	return errs.New(errs.NotFound, ReasonNotFound, "trigger %q not found", errs.Clip(id, 200)).Hint(idkind.Hint(id, Prefix, "ListTriggers lists the existing ones"))
}

// DeliveryNotFound is the error of a delivery that is not there.
func DeliveryNotFound(id string) error {
	return errs.New(errs.NotFound, ReasonDeliveryNotFound, "delivery %q not found", errs.Clip(id, 200)).
		Hint(idkind.Hint(id, DeliveryPrefix, "ListTriggerDeliveries lists the existing ones; they are kept for a time only"))
}

// NotActive is the error of a workflow whose triggers are not on.
func NotActive(name string) error {
	return errs.New(errs.NotFound, ReasonNotActive, "the triggers of workflow %q are not active", errs.Clip(name, 200)).Hint("ListTriggers lists those that are")
}

// TooMany is the error of one trigger too many.
func TooMany(most int) error {
	return errs.New(errs.ResourceExhausted, ReasonTooMany, "a namespace may have %d active triggers", most).Hint("deactivate those of other workflows, or have executor.triggers.max raised")
}

// TooManyEvents is the error of one event trigger too many.
func TooManyEvents() error {
	return errs.New(errs.ResourceExhausted, ReasonTooManyEvents, "a namespace may have %d active triggers of the type event", MaxEventTriggers).
		Hint("deactivate those of other workflows, or let one trigger hear more kinds")
}

// PathTaken is the error of a webhook whose path another one has.
func PathTaken(path, by string) error {
	return errs.New(errs.AlreadyExists, ReasonPathTaken, "the path %q is that of a webhook of workflow %q", path, by).Hint("give the trigger another `path`")
}

// Busy is the error of a delivery while enough of the namespace wait.
func Busy(most int) error {
	return errs.New(errs.ResourceExhausted, ReasonBusy, "%d deliveries of the namespace wait to be carried out, which is as many as may", most).
		Hint("send it again in a moment").RetryAfter(5 * time.Second)
}
