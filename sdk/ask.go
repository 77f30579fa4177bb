package epigraph

import (
	"context"
	"encoding/json"
	"time"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// Reply is what an agent gives for a message: an answer, or a question of its own.
type Reply struct {
	// Run is the run that took the message.
	Run *Run
	// Answer is the result of the run, encoded as JSON. It is nil if Question is not.
	Answer json.RawMessage
	// Question waits for an answer, and the run with it. If it is the agent's own (of_agent), the next
	// message answers it. The answer to another one, such as that of a tool that asks for an approval,
	// takes Client.Answer or Client.Decide.
	Question *executorv1.Interrupt
}

// Text is the answer, or the question's text. A JSON text is given without its quotes, null as nothing, and
// other JSON as it is.
func (r *Reply) Text() string {
	raw := r.Answer
	if r.Question != nil {
		raw = r.Question.GetPrompt().GetJson()
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// turnPoll and maxTurnPoll are the shortest and the longest pause between two looks at a turn in line.
const turnPoll, maxTurnPoll = 50 * time.Millisecond, time.Second

// Ask sends a message to the agent and waits until it answers or asks something itself: see Send and
// Await.
func (t *Thread) Ask(ctx context.Context, content any, requestID string) (*Reply, error) {
	turn, err := t.Send(ctx, content, requestID)
	if err != nil {
		return nil, err
	}
	return t.Await(ctx, turn)
}

// Await waits until a message that was sent is answered, or a question waits. While the agent is paused
// it waits, too, until ctx ends. A run that does not complete is a *RunError, a message that no run
// could take an error of this kind with the reason TURN_FAILED.
func (t *Thread) Await(ctx context.Context, turn *executorv1.Turn) (*Reply, error) {
	for pause := turnPoll; ; pause = min(2*pause, maxTurnPoll) {
		switch turn.GetState() {
		case executorv1.TurnState_TURN_STATE_STARTED, executorv1.TurnState_TURN_STATE_ANSWERED:
			return t.c.Run(turn.GetRunId()).reply(ctx)
		case executorv1.TurnState_TURN_STATE_FAILED:
			return nil, &RunError{RunID: turn.GetRunId(), State: executorv1.RunState_RUN_STATE_FAILED, Reason: "TURN_FAILED", Message: turn.GetError()}
		}
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
		var err error
		if turn, err = t.Turn(ctx, turn.GetNumber()); err != nil {
			return nil, err
		}
	}
}

// reply waits for the end of a run, or for a question of it or of a run below.
func (r *Run) reply(ctx context.Context) (*Reply, error) {
	for ev, err := range r.EventsAfter(ctx, &executorv1.WatchRunRequest{IncludeDescendants: true}) {
		if err != nil {
			return nil, err
		}
		opened := ev.GetInterruptOpened().GetInterruptId()
		if opened == "" {
			continue
		}
		q, err := r.c.Executor.GetInterrupt(ctx, &executorv1.GetInterruptRequest{InterruptId: opened})
		if err != nil {
			return nil, err
		}
		if q.GetState() == executorv1.InterruptState_INTERRUPT_STATE_OPEN { // others are older
			return &Reply{Run: r, Question: q}, nil
		}
	}
	answer, err := Result[json.RawMessage](ctx, r)
	if err != nil {
		return nil, err
	}
	return &Reply{Run: r, Answer: answer}, nil
}
