package journal

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// Job is a hint that some executor is to do something, not before a time. Jobs are at-least-once.
type Job struct {
	Kind JobKind
	// RunID is the run that it is about; empty means the run of the write that inserts it.
	RunID string
	// Priority is 1 (first) to 4; 0 means the usual 2.
	Priority int
	// At is when it is due; the zero time is at once.
	At time.Time
	// Args is what the handler gets; nil means JobArgs of the run.
	Args []byte
}

// JobWorkerPrefix begins the name under which a process of an executor works jobs. Names of other forms are
// not ours.
const JobWorkerPrefix = "executor/"

// JobKind says what a job is for.
type JobKind string

// The kinds of jobs that the journal itself inserts.
const (
	// JobWake asks for an evicted run to be claimed and loaded.
	JobWake JobKind = "wake"
	// JobStart asks for a pending run to be claimed and begun.
	JobStart JobKind = "start"
	// JobMaintenance keeps the journal from growing without bound.
	JobMaintenance JobKind = "maintenance"
	// JobSchedule asks for somebody to look after a schedule: its time has come, or a run of it has ended.
	JobSchedule JobKind = "schedule"
	// JobThread asks for the next turn of threads: the run at work on them has ended, or asks a question.
	JobThread JobKind = "thread"
	// JobWebhook asks for what happened in a run to be told to an address outside.
	JobWebhook JobKind = "webhook"
	// JobTrigger asks for a delivery of a trigger to be carried out, or for the end of a run to be told to
	// the triggers that wait for it.
	JobTrigger JobKind = "trigger"
	// JobTriggers asks what activated workflows stand for now.
	JobTriggers JobKind = "triggers"
)

// TriggerArgs is what a job about triggers carries: a delivery, or the end of a run.
type TriggerArgs struct {
	Namespace  string `json:"namespace"`
	DeliveryID string `json:"delivery_id,omitempty"`
	RunID      string `json:"run_id,omitempty"`
}

// DeliveryJob asks for a delivery of a trigger to be carried out, not before due.
func DeliveryJob(namespace, id string, due time.Time) Job {
	// Two texts always marshal.
	args, _ := json.Marshal(TriggerArgs{Namespace: namespace, DeliveryID: id})
	return Job{Kind: JobTrigger, At: dbkit.Micros(due), Args: args}
}

// EndJob asks for the end of a run to be told to the triggers that wait for it.
func EndJob(namespace, runID string) Job {
	// Two texts always marshal.
	args, _ := json.Marshal(TriggerArgs{Namespace: namespace, RunID: runID})
	return Job{Kind: JobTrigger, RunID: runID, Args: args}
}

// ScheduleArgs is what a job about a schedule carries.
type ScheduleArgs struct {
	Namespace  string `json:"namespace"`
	ScheduleID string `json:"schedule_id"`
	// Due is the time that it is for; the zero time is at once.
	Due time.Time `json:"due,omitzero"`
}

// ScheduleEarly is how long before its time a job of a schedule is due, so that the executor that takes it
// can act on the instant.
const ScheduleEarly = time.Second

// ScheduleJob asks for a schedule to be looked after, not before due.
func ScheduleJob(namespace, id string, due time.Time) Job {
	due = dbkit.Micros(due)
	// Two texts and a time of this era always marshal.
	args, _ := json.Marshal(ScheduleArgs{Namespace: namespace, ScheduleID: id, Due: due})
	j := Job{Kind: JobSchedule, At: due, Args: args}
	if !due.IsZero() {
		j.At = due.Add(-ScheduleEarly)
	}
	return j
}

// ThreadArgs is what a job about a thread carries.
type ThreadArgs struct {
	Namespace string `json:"namespace"`
	ThreadID  string `json:"thread_id,omitempty"`
	// RunID stands for the threads that the run, or one above it, holds.
	RunID string `json:"run_id,omitempty"`
}

// ThreadJob asks for the next turn of a thread, of those that a run or one above it holds, or of both.
func ThreadJob(namespace, id, runID string) Job {
	// Three texts always marshal.
	args, _ := json.Marshal(ThreadArgs{Namespace: namespace, ThreadID: id, RunID: runID})
	return Job{Kind: JobThread, Args: args}
}

// JobArgs is what a job about a run carries.
type JobArgs struct {
	Namespace string `json:"namespace"`
	RunID     string `json:"run_id"`
}

// Queue is the queue of jobs of this kind. Wake-ups do not wait behind a backlog of starts, and nothing
// waits behind slow receivers of webhooks or many deliveries of triggers.
func (k JobKind) Queue() string {
	switch k {
	case JobWake, JobStart, JobSchedule, JobWebhook, JobTrigger:
		return string(k)
	}
	return "work"
}

// Queues are the queues of all kinds of jobs.
func Queues() []string {
	return []string{JobWake.Queue(), JobStart.Queue(), JobSchedule.Queue(), JobWebhook.Queue(), JobTrigger.Queue(), JobKind("").Queue()}
}

// WakeEarly is how long before its time a wake-up for a timer is due, so that the executor that takes it
// can act on the instant.
const WakeEarly = 2 * time.Second

// JobRow is a job as its row. Drivers only.
type JobRow struct {
	// RunID is the run whose write inserts it.
	RunID    string
	Kind     string
	Queue    string
	Args     []byte
	Priority int16
	At       time.Time
	// Unique is the key under which no second job waits.
	Unique []byte
}

// MakeJob renders a job of a run's write. Drivers only.
func MakeJob(namespace, runID string, j Job) JobRow {
	about := j.RunID
	if about == "" {
		about = runID
	}
	if j.Args == nil {
		// Two texts always marshal.
		j.Args, _ = json.Marshal(JobArgs{Namespace: namespace, RunID: about})
	}
	r := JobRow{RunID: runID, Kind: string(j.Kind), Queue: j.Kind.Queue(), Args: j.Args, Priority: int16(min(max(j.Priority, 0), 4)), At: dbkit.Micros(j.At)}
	if r.Priority == 0 {
		r.Priority = 2
	}
	h := sha256.New()
	h.Write([]byte(r.Kind))
	h.Write([]byte{0})
	h.Write(r.Args)
	if !r.At.IsZero() {
		h.Write([]byte(r.At.Format(time.RFC3339Nano)))
	}
	r.Unique = h.Sum(nil)
	return r
}

// Jobs inserts jobs that no other write of the journal causes.
type Jobs interface {
	// InsertJobs inserts jobs in one transaction. A job that waits already with the same kind, arguments
	// and time is not inserted again.
	InsertJobs(ctx context.Context, namespace string, jobs []Job) error
}
