package thread

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonQueueFull is the reason of a turn while as many of its thread wait as may.
	ReasonQueueFull = "THREAD_QUEUE_FULL"
	// ReasonNoAgent is the reason of a turn of a thread that names no agent.
	ReasonNoAgent = "THREAD_WITHOUT_AGENT"
	// ReasonAgentUnknown is the reason of a thread, or a turn of one, whose agent is no actor.
	ReasonAgentUnknown = "THREAD_AGENT_UNKNOWN"
	// ReasonTurnNotFound is the reason when a thread has no such turn.
	ReasonTurnNotFound = "TURN_NOT_FOUND"
	// maxAdvance is how many steps Advance takes at once; a turn takes one or two.
	maxAdvance = 1000
	// maxTurnError bounds the stored text of a failure.
	maxTurnError = 1000
)

// TurnState is where a turn stands. The numbers are those of the API and never change.
type TurnState int32

// The states of a turn.
const (
	TurnQueued   TurnState = 1
	TurnStarted  TurnState = 2
	TurnAnswered TurnState = 3
	TurnFailed   TurnState = 4
)

// Turn is a message to the agent of a thread.
type Turn struct {
	Namespace, Thread string
	// Number orders the turns of a thread, from 1.
	Number int64
	State  TurnState
	// RunID is the run that the turn starts if it answers no question. InterruptID is the question that it
	// answers; a queued turn may have answered it.
	RunID, InterruptID string
	// AskedBy is the run at work on the thread when the question was answered.
	AskedBy string
	Message []byte
	// Principal is who sent it, from the API key that was shown.
	Principal string
	// AnswersAny says that the sender could also answer what others than the agent ask: its key had the scope
	// approve.
	AnswersAny            bool
	Error                 string
	CreateTime, StartTime time.Time
}

// Weight is what the turn counts in the usage of its namespace.
func (t *Turn) Weight() int64 { return int64(len(t.Message)) + Overhead }

// Size implements page.Row.
func (t Turn) Size() int { return 512 + len(t.Message) + len(t.Error) }

// Name names a thread.
type Name struct{ Namespace, ID string }

// Line is what decides about the next turn of a thread.
type Line struct {
	Thread Thread
	// Next is the first queued turn; nil if none waits. Began says that the run of the turn is there: an
	// earlier try came to its end after the start.
	Next  *Turn
	Began bool
	// Runs are the open runs at work on the thread: its holder, and the runs that its last turns started.
	Runs []string
}

// Bounds are those of a turn to be queued: how many of its thread may wait, and what the namespace may have.
// Refused, if not nil, is the error of a turn that is no repetition.
type Bounds struct {
	Queued  int
	Room    Room
	Refused error
}

// Turns keeps the turns of threads. Store embeds it.
type Turns interface {
	// QueueTurn adds a turn, whose Number it chooses, within bounds. A repeated request returns the turn
	// that it made. ReasonNotFound, ReasonNoAgent, ReasonQueueFull, ReasonTooLarge.
	QueueTurn(ctx context.Context, t Turn, q Request, b Bounds) (Turn, error)
	// NextTurn reads what decides about the next turn. ReasonNotFound.
	NextTurn(ctx context.Context, namespace, id string) (Line, error)
	// SettleTurn writes the state, the interrupt, who asked, the error and the start time of a queued turn. A
	// turn that is not queued stays as it is.
	SettleTurn(ctx context.Context, t Turn) error
	// Turn returns one turn. ReasonNotFound, ReasonTurnNotFound.
	Turn(ctx context.Context, namespace, id string, number int64) (Turn, error)
	// ListTurns returns up to limit turns after a number, in order. ReasonNotFound.
	ListTurns(ctx context.Context, namespace, id string, after int64, limit int) ([]Turn, error)
	// HeldTurns lists up to limit threads after an id for which turns wait and that a run, or one above it,
	// holds or held last, by id.
	HeldTurns(ctx context.Context, namespace, runID, after string, limit int) ([]string, error)
	// OverdueTurns lists up to limit threads after an id with turns that wait since before a time, by id.
	OverdueTurns(ctx context.Context, before time.Time, after string, limit int) ([]Name, error)
}

// QueueFull is the error of one turn too many.
func QueueFull(id string, most int) error {
	return errs.New(errs.ResourceExhausted, ReasonQueueFull, "%d messages wait for the agent of thread %q, which is as many as may", most, id).
		Hint("send again when the agent has taken some").RetryAfter(5 * time.Second)
}

// NoAgent is the error of a turn of a thread without an agent.
func NoAgent(id string) error {
	return errs.New(errs.FailedPrecondition, ReasonNoAgent, "thread %q has no agent that takes messages", id).
		Hint("make a thread with an agent, or fork this one with one")
}

// AgentUnknown is the error of an agent that is no actor; near are actors with similar names.
func AgentUnknown(agent string, near []string) error {
	hint := "`epigraph actors` lists those that there are; those of a worker are known once it has connected"
	if len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return errs.New(errs.InvalidArgument, ReasonAgentUnknown, "the agent of the thread is no actor: there is no %q", agent).Hint(hint)
}

// TurnNotFound is the error of a turn that is not there.
func TurnNotFound(id string, number int64) error {
	return errs.New(errs.NotFound, ReasonTurnNotFound, "thread %q has no turn %d", id, number).Hint("ListTurns tells those that there are")
}

// Runs starts and asks runs on behalf of a Conductor. It is safe for concurrent use.
type Runs interface {
	// Start starts the run of a turn on its thread. A run that was started by an earlier try is no error.
	Start(ctx context.Context, th Thread, t Turn) error
	// Question returns the oldest open question of a run and all below it that the turn can answer; empty if
	// there is none.
	Question(ctx context.Context, t Turn, runID string) (interruptID string, err error)
	// Answer answers it with the message of the turn. A question that has that answer already is no error.
	// One that is closed otherwise is errs.FailedPrecondition or errs.NotFound.
	Answer(ctx context.Context, t Turn, interruptID string) error
	// Failed tells whoever wrote the turn that it is taken never, where somebody waits for that. The turn is
	// settled after it, so that a crash between both tells it twice.
	Failed(ctx context.Context, t Turn)
}

// Conductor gives turns to the agents of threads, one at a time and in order. It is safe for concurrent use,
// also of several executors on one database.
type Conductor struct {
	store Store
	runs  Runs
	log   *slog.Logger
	now   func() time.Time
}

// NewConductor returns a conductor of the turns in a store. Logger nil discards.
func NewConductor(s Store, r Runs, log *slog.Logger, now func() time.Time) *Conductor {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Conductor{store: s, runs: r, log: log, now: now}
}

// Advance gives turns of a thread to its agent, as long as the agent can take one now. A turn that somebody
// else took meanwhile is not taken again. errs.Unavailable and errs.ResourceExhausted leave the turn in
// the queue.
func (c *Conductor) Advance(ctx context.Context, namespace, id string) error {
	for range maxAdvance {
		line, err := c.store.NextTurn(ctx, namespace, id)
		if errs.ReasonOf(err) == ReasonNotFound {
			return nil
		}
		if err != nil || line.Next == nil {
			return err
		}
		if again, err := c.give(ctx, line); err != nil || !again {
			return err
		}
	}
	return nil
}

// Try is Advance for a caller whose answer does not depend on it: what fails is logged, and tried again by
// whoever looks after turns that wait.
func (c *Conductor) Try(ctx context.Context, namespace, id string) {
	switch err := c.Advance(ctx, namespace, id); {
	case err == nil || ctx.Err() != nil:
	case errs.Is(err, errs.Unavailable) || errs.Is(err, errs.ResourceExhausted):
		c.log.InfoContext(ctx, "message to an agent waits", "err", err, "thread_id", id)
	default:
		c.log.WarnContext(ctx, "message to an agent waits", "err", err, "thread_id", id)
	}
}

// give gives the next turn of a line to its agent. It reports whether another turn may follow at once.
func (c *Conductor) give(ctx context.Context, line Line) (again bool, err error) {
	t := *line.Next
	t.StartTime = c.now()
	if line.Began {
		// The message would else answer what its own run asks.
		t.State, t.InterruptID, t.AskedBy = TurnStarted, "", ""
		return true, c.store.SettleTurn(ctx, t)
	}
	if t.InterruptID != "" {
		// An earlier try may have come to its end after the answer.
		err := c.runs.Answer(ctx, t, t.InterruptID)
		if err == nil {
			t.State = TurnAnswered
			return true, c.store.SettleTurn(ctx, t)
		}
		if !closed(err) {
			return true, c.failed(ctx, t, err)
		}
		t.InterruptID, t.AskedBy = "", ""
	}
	if len(line.Runs) == 0 {
		if err := c.runs.Start(ctx, line.Thread, t); err != nil {
			return true, c.failed(ctx, t, err)
		}
		t.State = TurnStarted
		return true, c.store.SettleTurn(ctx, t)
	}
	for _, run := range line.Runs {
		question, err := c.runs.Question(ctx, t, run)
		if err != nil {
			return false, err
		}
		if question != "" {
			// What is answered is written down first, so that a crash after the answer does not give the
			// message to the next question as well.
			t.InterruptID, t.AskedBy = question, run
			return true, c.store.SettleTurn(ctx, t)
		}
	}
	return false, nil
}

// closed reports whether a question takes no answer any more.
func closed(err error) bool {
	return errs.Is(err, errs.FailedPrecondition) || errs.Is(err, errs.NotFound)
}

// failed settles a turn that can be taken never. A turn that could be taken later stays queued.
func (c *Conductor) failed(ctx context.Context, t Turn, err error) error {
	if ctx.Err() != nil || errs.Is(err, errs.Unavailable) || errs.Is(err, errs.ResourceExhausted) || errs.Is(err, errs.Internal) {
		return err
	}
	c.log.InfoContext(ctx, "message to an agent failed", "err", err, "thread_id", t.Thread, "turn", t.Number)
	t.State, t.Error = TurnFailed, errs.Clip(errs.From(err).Message, maxTurnError)
	c.runs.Failed(ctx, t)
	return c.store.SettleTurn(ctx, t)
}
