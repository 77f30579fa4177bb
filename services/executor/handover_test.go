package executor_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/workgraph"
)

// decider is a reasoner that decides by the last line of the conversation, and keeps its prompts.
type decider struct {
	mu      sync.Mutex
	prompts []string
	says    func(last string) string
}

func (d *decider) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var prompt string
	if err := json.Unmarshal(c.Named["request"], &prompt); err != nil {
		return workgraph.Outcome{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prompts = append(d.prompts, prompt)
	last := prompt[strings.LastIndex(prompt, "User: ")+len("User: "):]
	last, _, _ = strings.Cut(last, "\n")
	raw, err := json.Marshal(d.says(last))
	return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
}

func (d *decider) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.prompts[len(d.prompts)-1]
}

// An agent hands a conversation over to another one, which takes the turns from then on and may hand it back.
func TestHandOver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		const to = `<InstantResponse>I pass you on.</InstantResponse><ImmediateNextActions><Action><Type>pass</Type></Action></ImmediateNextActions>`
		front, back := &decider{}, &decider{}
		front.says = func(last string) string {
			if strings.Contains(last, "refund") {
				return to
			}
			return "front: " + last
		}
		back.says = func(last string) string {
			if strings.Contains(last, "parcel") {
				return to
			}
			return "back: " + last
		}
		f := talking{fixture: serve(t, workgraph.Actors{"front": front, "back": back}, store, func(c *executor.Config) {
			c.Actors.Agents = agent.Config{
				"front": {Definition: `{"reasoner": "front", "actions": {"pass": {"actor": "agent/back", "hand_over": true}}}`},
				"back":  {Definition: `{"reasoner": "back", "actions": {"pass": {"actor": "agent/front", "hand_over": true}}}`},
			}
		})}
		f.threads = executorv1.NewThreadServiceClient(f.conn)
		id := f.create(t, "agent/front")
		// turn sends a message, and returns the answer and who takes the next one.
		turn := func(message string) (answer, agent string) {
			sent := f.becomes(t, f.send(t, id, `"`+message+`"`), started)
			run := f.ends(t, sent.GetRunId())
			require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, run.GetState(), "%v", run.GetError())
			th, err := f.threads.GetThread(t.Context(), &executorv1.GetThreadRequest{ThreadId: id})
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(run.GetResult().GetJson(), &answer))
			return answer, th.GetAgent()
		}
		for _, c := range []struct{ say, answer, agent string }{
			{"hello", "front: hello", "agent/front"},
			{"a refund, please", "back: a refund, please", "agent/back"},
			{"how long?", "back: how long?", "agent/back"},
			{"where is my parcel?", "front: where is my parcel?", "agent/front"},
			{"thanks", "front: thanks", "agent/front"},
		} {
			answer, agent := turn(c.say)
			require.Equal(t, []string{c.answer, c.agent}, []string{answer, agent})
		}
		require.Len(t, front.prompts, 4)
		require.Len(t, back.prompts, 3)
		require.Contains(t, front.last(), "Conversation:\nUser: hello\nAgent: front: hello\nUser: a refund, please\nAgent: I pass you on.\nAgent: back: a refund, please\n"+
			"User: how long?\nAgent: back: how long?\nUser: where is my parcel?\nAgent: I pass you on.\nAgent: front: where is my parcel?\nUser: thanks")
	})
}
