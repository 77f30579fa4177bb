// Package schedule owns schedules: the times that one means, the result of each, and the guarantee that every
// time starts at most one run and, within the catch-up window, at least one, over any failures of executors.
// It holds the rules, the contract of the store and the controller that carries them out. It must not know
// the database of the schedules, the content of a run, nor the API.
package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Reasons of refusals.
const (
	// ReasonNotFound is the reason when there is no such schedule in the namespace.
	ReasonNotFound = "SCHEDULE_NOT_FOUND"
	// ReasonExists is the reason when the id is taken.
	ReasonExists = "SCHEDULE_ALREADY_EXISTS"
	// ReasonInvalid is the reason of a schedule that makes no sense; its violations name the fields.
	ReasonInvalid = "SCHEDULE_INVALID"
	// ReasonTooMany is the reason when a namespace has as many schedules as it may.
	ReasonTooMany = "TOO_MANY_SCHEDULES"
	// ReasonBusy is the reason of a backfill while as many starts of the schedule wait as may.
	ReasonBusy = "SCHEDULE_BUSY"
	// ReasonSpanInvalid is the reason of a backfill over no span of the past.
	ReasonSpanInvalid = "BACKFILL_SPAN_INVALID"
	// ReasonSpanTooLong is the reason of a backfill of more times than one takes.
	ReasonSpanTooLong = "BACKFILL_SPAN_TOO_LONG"
)

const (
	// DefaultMax is how many schedules a namespace may have unless the configuration says otherwise.
	DefaultMax = 1000
	// MaxQueue is how many starts of one schedule may wait. Beyond it no more are decided, or they are left
	// out, as the policy says.
	MaxQueue = 1000
	// MaxBackfill is how many times one backfill takes.
	MaxBackfill = 1000
	// MaxRecent is how many starts a schedule shows.
	MaxRecent = 10
	// DefaultCatchup is how late a start may be caught up when nothing is said.
	DefaultCatchup = time.Minute
	// MinCatchup lets a start be a little late, as every start is.
	MinCatchup = 10 * time.Second
	// MaxCatchup is the longest catch-up window that may be asked for.
	MaxCatchup = 366 * 24 * time.Hour
	// MaxJitter is the longest jitter that may be asked for.
	MaxJitter = 24 * time.Hour
	// Memory is how long it is known which times were started, and what a trigger was answered.
	Memory = 35 * 24 * time.Hour
	// maxMessage bounds the stored text of a failure.
	maxMessage = 300
)

// Overlap decides about a time at which a run of the schedule is still open. The numbers are those of the API
// and never change.
type Overlap int32

// The policies.
const (
	Skip        Overlap = 1
	QueueOne    Overlap = 2
	QueueAll    Overlap = 3
	CancelOther Overlap = 4
	Allow       Overlap = 5
)

// Result is what became of a time.
type Result string

// The results, as in the API. A Queued start waits for an open run, or is just being carried out.
const (
	Queued         Result = "QUEUED"
	Started        Result = "STARTED"
	SkippedOverlap Result = "SKIPPED_OVERLAP"
	SkippedLate    Result = "SKIPPED_LATE"
	Failed         Result = "FAILED"
)

// Key names a schedule.
type Key struct{ Namespace, ID string }

// Spec is what the caller says of a schedule.
type Spec struct {
	Cron    string        `json:"cron"`
	Zone    string        `json:"zone,omitempty"`
	Overlap Overlap       `json:"overlap"`
	Catchup time.Duration `json:"catchup"`
	Jitter  time.Duration `json:"jitter,omitempty"`
	Begin   time.Time     `json:"begin,omitzero"`
	End     time.Time     `json:"end,omitzero"`
	Paused  bool          `json:"paused,omitempty"`
	Note    string        `json:"note,omitempty"`
	// Trigger is the trigger of a workflow whose schedule it is; empty for one that a caller made.
	Trigger string `json:"trigger,omitempty"`
}

// sameTimes reports whether both mean the same times.
func (s *Spec) sameTimes(o *Spec) bool {
	return s.Cron == o.Cron && s.Zone == o.Zone && s.Jitter == o.Jitter && s.Begin.Equal(o.Begin) && s.End.Equal(o.End)
}

// Validate adds a violation to fault for every field that cannot be used, and fills in defaults. fault is
// that of the whole request; it is returned with the violations.
func (s *Spec) Validate(fault *errs.Error) *errs.Error {
	violate := func(field, format string, args ...any) {
		fault = fault.Violate("schedule."+field, ReasonInvalid, fmt.Sprintf(format, args...))
	}
	if s.Overlap == 0 {
		s.Overlap = Skip
	}
	if s.Overlap < Skip || s.Overlap > Allow {
		violate("overlap", "%d is no policy", s.Overlap)
	}
	if s.Catchup == 0 {
		s.Catchup = DefaultCatchup
	}
	if s.Catchup < MinCatchup || s.Catchup > MaxCatchup {
		violate("catchup_window", "must be from %s to %s, since every start is a little late", MinCatchup, MaxCatchup)
	}
	if s.Jitter < 0 || s.Jitter > MaxJitter {
		violate("jitter", "must be from 0s to %s", MaxJitter)
	}
	if !s.Begin.IsZero() && !s.End.IsZero() && s.End.Before(s.Begin) {
		violate("end_time", "is before begin_time")
	}
	_, zoneErr := loadZone(s.Zone)
	if zoneErr != nil {
		violate("time_zone", "%q is no time zone of the IANA database, such as Europe/Berlin", s.Zone)
	}
	line, every, err := parseCron(s.Cron)
	if cerr := checkCron(strings.TrimSpace(s.Cron)); cerr != nil && !strings.Contains(s.Cron, "TZ=") {
		err = cerr // its text is better
	}
	if err == nil && line == nil && (every > MaxEvery || s.wanted()%time.Second != 0) {
		err = fmt.Errorf("an interval is whole seconds, at most %s", MaxEvery)
	}
	if err != nil {
		violate("cron", "%q cannot be read: %v; give five fields (minute, hour, day of month, month, day of week), or @daily, or @every 15m", s.Cron, err)
	} else if line != nil && line.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		violate("cron", "%q names a day that never comes", s.Cron)
	}
	return fault
}

// Start is one start of a schedule, or what became of a time instead.
type Start struct {
	// Turn orders the starts of a schedule as they were decided.
	Turn int64 `json:"turn"`
	// Time is the scheduled time, Actual the time of the start, zero while it is queued, and Tried that of
	// its first failure.
	Time    time.Time `json:"time"`
	Tried   time.Time `json:"tried,omitzero"`
	Actual  time.Time `json:"actual,omitzero"`
	RunID   string    `json:"run_id,omitempty"`
	Result  Result    `json:"result"`
	Message string    `json:"message,omitempty"`
	// Origin is who wants it.
	Origin Origin `json:"origin,omitempty"`
	// Overlap is the policy by which it goes, and Request the caller's id of a trigger.
	Overlap Overlap `json:"overlap,omitempty"`
	Request string  `json:"request,omitempty"`
	// Principal is who triggered it or asked for the backfill, from the API key that was shown.
	Principal string `json:"principal,omitempty"`
}

// Origin is where a start comes from.
type Origin int32

// The origins.
const (
	FromClock    Origin = 0
	FromBackfill Origin = 1
	FromTrigger  Origin = 2
)

// Schedule is a schedule as it is kept.
type Schedule struct {
	Key
	// UID is never used twice, so that a schedule created again under an old id is another one.
	UID string
	Spec
	// Start is the opaque description of the run.
	Start []byte
	// Done is the last time that was decided.
	Done time.Time
	// Ahead is the last time that a backfill decided, if that is after Done.
	Ahead time.Time
	// Due is when the schedule needs attention; zero means never.
	Due time.Time
	// Turns counts the starts, Skipped the times left out.
	Turns   int64
	Skipped int64
	// Recent are the last starts, newest first.
	Recent []Start
	// Revision rises with every change by a caller. The etag is made of it.
	Revision               int64
	CreateTime, UpdateTime time.Time
	// Principal is who made or changed it last, from the API key that was shown.
	Principal string
}

// Tx is what can be seen of one schedule in the transaction that changes it.
type Tx interface {
	// Open lists open runs of the schedule, at most n.
	Open(ctx context.Context, n int) ([]string, error)
	// Queue lists the starts that wait, in their order.
	Queue(ctx context.Context) ([]Start, error)
	// Times lists the starts for times from begin on and before end that clock or backfill made, by time and
	// turn.
	Times(ctx context.Context, begin, end time.Time) ([]Start, error)
	// Request finds the start that a trigger with this request id made in the namespace, and its schedule.
	Request(ctx context.Context, id string) (uid string, st Start, found bool, err error)
}

// Change is what a transaction does besides changing the schedule's row.
type Change struct {
	// Put are starts to be written, each under its turn.
	Put []Start
	// Jobs are when a job is to look after the schedule.
	Jobs []time.Time
}

// Store keeps schedules. Implementations are safe for concurrent use.
type Store interface {
	// Create writes a new schedule with a job at its Due, unless its namespace has most already.
	// ReasonExists, ReasonTooMany.
	Create(ctx context.Context, s Schedule, most int) error
	// Get reads a schedule. ReasonNotFound.
	Get(ctx context.Context, k Key) (Schedule, error)
	// List reads up to limit schedules of a namespace after an id, by id, without what they start.
	List(ctx context.Context, namespace, after string, limit int) ([]Schedule, error)
	// Change locks the schedule's row and calls f, whose result is written in the same transaction. f may be
	// called more than once and must have no other effect. If f returns ErrUnchanged nothing is written, and
	// there is no error. ReasonNotFound.
	Change(ctx context.Context, k Key, f func(ctx context.Context, tx Tx, s *Schedule) (Change, error)) error
	// Delete removes a schedule and its waiting starts. A revision other than 0 must be the present one.
	// ReasonNotFound.
	Delete(ctx context.Context, k Key, revision int64) error
	// Overdue inserts jobs for up to limit schedules that were due before a time and returns how many it
	// found.
	Overdue(ctx context.Context, before time.Time, limit int) (int, error)
	// Forget removes up to limit starts that were carried out before a time, and returns how many.
	Forget(ctx context.Context, before time.Time, limit int) (int, error)
	// Close ends what the store opened itself.
	Close() error
}

// ErrUnchanged lets Store.Change write nothing.
var ErrUnchanged = errs.New(errs.Internal, "SCHEDULE_UNCHANGED", "nothing changes")

// NotFound is the error of a schedule that is not there.
func NotFound(id string) error {
	return errs.New(errs.NotFound, ReasonNotFound, "schedule %q not found", id).Hint(idkind.Hint(id, "sch", "ListSchedules lists the existing ones"))
}

// Exists is the error of an id that is taken.
func Exists(id string) error {
	return errs.New(errs.AlreadyExists, ReasonExists, "there is a schedule %q already", id).Hint("update it, or choose another id")
}

// TooMany is the error of one schedule too many.
func TooMany(most int) error {
	return errs.New(errs.ResourceExhausted, ReasonTooMany, "a namespace may have %d schedules", most).Hint("delete those that are over, or have executor.max_schedules raised")
}

// Busy is the error of a backfill of a schedule that has enough to do.
func Busy(id string) error {
	return errs.New(errs.ResourceExhausted, ReasonBusy, "%d starts of schedule %q wait to be carried out, which is as many as may", MaxQueue, id).
		Hint("ask again when they have begun").RetryAfter(5 * time.Second)
}

// EtagMismatch is the error of a schedule that has changed since it was read.
func EtagMismatch(id string) error {
	return errs.New(errs.Conflict, journal.ReasonEtagMismatch, "schedule %q has changed", id).Hint("read it again and retry with its new etag")
}

// Size implements page.Row.
func (s Schedule) Size() int { return 512 + len(s.Start) + 128*len(s.Recent) }

// tooLong is the error of a backfill that would have to be cut before a time. It starts nothing: a caller
// would take a part for the whole.
func tooLong(next time.Time) *errs.Error {
	at := next.UTC().Format(time.RFC3339)
	return errs.New(errs.InvalidArgument, ReasonSpanTooLong, "the span holds more than %d times", MaxBackfill).
		Violate("end_time", ReasonSpanTooLong, "lies after "+at).Set("end_time", at).
		Hint("nothing was started: end this backfill at " + at + ", and begin the next one there")
}
