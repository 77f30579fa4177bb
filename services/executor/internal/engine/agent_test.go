package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// reasoner decides by round what its script says, and counts the calls of each round.
type reasoner struct {
	mu     sync.Mutex
	asked  map[int]int
	told   map[int]string
	script []string
	before func(round int)
	fails  func(round int) error
}

func (r *reasoner) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	r.mu.Lock()
	if r.asked == nil {
		r.asked, r.told = map[int]int{}, map[int]string{}
	}
	r.asked[c.Visit]++
	r.told[c.Visit] = string(c.Named["request"])
	r.mu.Unlock()
	if r.before != nil {
		r.before(c.Visit)
	}
	if r.fails != nil {
		if err := r.fails(c.Visit); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(r.script[c.Visit-1])},
		Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 100}}}, nil
}

func (r *reasoner) rounds() map[int]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[int]int{}
	for k, v := range r.asked {
		out[k] = v
	}
	return out
}

type pureActor struct{ workgraph.Actor }

func (pureActor) Info() workgraph.ActorInfo {
	return workgraph.ActorInfo{Effect: workgraph.Pure, MakesInternal: true}
}

// agents adds the agent and the steps of its loop to these actors.
func agents(t *testing.T, s store, own actors) actors {
	for _, sp := range agent.Specs(thread.NewCache(s.open(t), 0), nil) {
		own[sp.Name] = pureActor{sp.Actor}
	}
	return own
}

// agentOf is a graph of one agent, followed by an "ok".
func agentOf(t *testing.T, named string) *workgraph.Graph {
	t.Helper()
	n := workgraph.Node{ID: "agent", Actor: "agent", PassDown: workgraph.Key("answer")}
	require.NoError(t, json.Unmarshal([]byte(named), &n.Named))
	return &workgraph.Graph{Nodes: []workgraph.Node{n, {ID: "after", Actor: "ok"}}, Edges: []workgraph.Edge{{From: "agent", To: "after"}}}
}

// child is the only child of a run.
func (l *live) child(t *testing.T, id string) journal.Run {
	t.Helper()
	below, err := l.j.Descendants(t.Context(), ns, id)
	require.NoError(t, err)
	require.NotEmpty(t, below)
	return l.row(t, below[0].RunID)
}

// learned are what the items of the outbox tell the memory of what agents have learned. The items are gone
// then.
func (l *live) learned(t *testing.T) (out []outbox.Learning) {
	t.Helper()
	for {
		items, err := l.j.ClaimOutbox(t.Context(), 100, time.Minute)
		require.NoError(t, err)
		if len(items) == 0 {
			return out
		}
		acks := make([]journal.OutboxAck, len(items))
		for i, it := range items {
			acks[i].ID = it.ID
			if it.Kind == outbox.KindLearned {
				var told outbox.Learned
				require.NoError(t, json.Unmarshal(it.Body, &told))
				out = append(out, told.Learnings...)
			}
		}
		require.NoError(t, l.j.AckOutbox(t.Context(), acks))
	}
}

// remembered are the entries of the thread of an agent's run, in the order of their names.
func (l *live) remembered(t *testing.T, row journal.Run) []string {
	t.Helper()
	return slices.Sorted(slices.Values(l.entries(t, row)))
}

// entries are the items of the thread of an agent's run, with the rounds of its states.
func (l *live) entries(t *testing.T, row journal.Run) []string {
	t.Helper()
	all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 1000)
	require.NoError(t, err)
	at := slices.IndexFunc(all, func(th thread.Thread) bool { return th.Holder == row.ID })
	require.GreaterOrEqual(t, at, 0)
	items, err := thread.NewCache(l.j, 0).Items(t.Context(), ns, all[at].ID, thread.Query{})
	require.NoError(t, err)
	var out []string
	for _, it := range slices.Backward(items) {
		switch it.Kind {
		case workgraph.ThreadState:
			var st struct {
				Round int `json:"round"`
			}
			require.NoError(t, json.Unmarshal(it.Body, &st))
			out = append(out, fmt.Sprintf("STATE %d", st.Round))
		case workgraph.ThreadSummary:
			var span struct {
				First, Last int64
			}
			require.NoError(t, json.Unmarshal(it.Brief, &span))
			out = append(out, fmt.Sprintf("SUMMARY %d to %d", span.First, span.Last))
		case workgraph.ThreadLearning:
			out = append(out, "LEARNING")
		default:
			out = append(out, "MESSAGE")
		}
	}
	return out
}

func TestAgent(t *testing.T) {
	t.Parallel()
	const actions = `"goal": "all of it", "reasoner": "reasoner", "branch": false, "actions": {"work": {}, "ask": {}}`
	eachStore(t, func(t *testing.T, s store) {
		t.Run("Crash/RepeatsNoCallThatHadFinished", func(t *testing.T) {
			t.Parallel()
			var wire *line
			// Each executor dies during a call: the first one during an action of round 1, the second one
			// during the reasoner of round 2.
			next := func(id string, r *reasoner, work workgraph.Actor) *live {
				wire = &line{}
				mine := wire
				l := run(t, s, agents(t, s, actors{"reasoner": r, "work": work, "ok": &recorder{}, "ask": work}), named(id), func(c *engine.Config, d *engine.Deps) {
					c.Lease = shortLease
					mine.Journal, d.Journal = d.Journal, mine
				})
				l.jobs(t)
				return l
			}
			script := []string{`[["work", "work"]]`, `["work"]`, `{"result": "all"}`}
			first, g := &reasoner{script: script}, newGate()
			once := &recorder{}
			l := next("a", first, workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				if c.Node == "1.1-work" {
					return once.Call(ctx, c)
				}
				return g.Call(ctx, c)
			}))
			id := l.start(t, agentOf(t, `{`+actions+`}`))
			require.Equal(t, "1.2-work", g.next(t).Node)
			testkit.Eventually(t, func() bool {
				for _, ev := range kinds(l.events(t, l.child(t, l.child(t, id).ID).ID), workgraph.AttemptEnded) {
					if ev.Node == "1.1-work" {
						return true
					}
				}
				return false
			})
			wire.cut.Store(true)

			held := make(chan struct{})
			asked := make(chan int, 10)
			second := &reasoner{script: script, before: func(round int) { asked <- round; <-held }}
			rest := &recorder{}
			next("b", second, rest)
			require.Equal(t, 2, <-asked)
			wire.cut.Store(true)
			close(held)

			third, last := &reasoner{script: script}, &recorder{}
			l = next("c", third, last)
			row := l.wait(t, id, journal.StateCompleted)
			require.Equal(t, map[int]int{1: 1}, first.rounds())
			require.Equal(t, map[int]int{2: 1}, second.rounds())
			require.Equal(t, map[int]int{2: 1, 3: 1}, third.rounds(), "only the call that had not finished is made again")
			require.Equal(t, 1, once.of("1.1-work"))
			require.Equal(t, 1, rest.of("1.2-work"))
			require.Zero(t, rest.of("1.1-work"))
			require.Equal(t, 1, last.of("do.work@2"))
			child := l.child(t, id)
			require.Contains(t, string(child.Result), `"all"`)
			require.EqualValues(t, 300, row.Usage.InputTokens, "what the reasoner used is booked once")
			l.events(t, child.ID)
			l.sound(t, id)
			l.sound(t, child.ID)
			require.Equal(t, []string{"MESSAGE", "MESSAGE", "STATE 1", "STATE 2", "STATE 3"}, l.remembered(t, child), "nothing is in the thread twice")
		})
		r := &reasoner{}
		work := &recorder{}
		forbidden := &recorder{}
		asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
		brancher := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			say := `[["work", "work", "work"]]`
			switch told := string(c.Named["request"]); {
			case strings.Contains(told, "ActionGroup"):
				say = `{"result": "joined"}`
			case strings.Contains(told, "ActionResults"):
				say = `{"task_status": "Completed"}`
			}
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(say)}, Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 100}}}, nil
		})
		l := run(t, s, agents(t, s, actors{"reasoner": r, "brancher": brancher, "work": work, "forbidden": forbidden, "ok": &recorder{}, "ask": asks,
			"never":  &reasoner{script: []string{`["work"]`, `["work"]`, `["work"]`, `{"result": 1}`}},
			"deeper": spawns(workgraph.Child{Graph: chain(1, "ok")}),
			"below":  spawns(workgraph.Child{Graph: chain(1, "lower")}),
			"lower": spawns(workgraph.Child{Graph: agentOf(t, `{"goal": "x", "reasoner": "reasoner", "max_rounds": 100, "allow_graph": true, "branch": false,
				"history": {"tokens": 250000}, "actions": {"work": {}, "deeper": {}}}`)})}), func(c *engine.Config, _ *engine.Deps) { c.EvictAfter, c.MaxDepth = 10*time.Millisecond, 3 })
		l.jobs(t)
		t.Run("Refused/IsReportedAndNotDone", func(t *testing.T) {
			r.script = []string{`["work", "forbidden"]`, `{"graph": {"nodes": [{"id": "x", "actor": "forbidden"}]}}`, `{"result": "well"}`}
			id := l.start(t, agentOf(t, `{`+actions+`}`))
			require.JSONEq(t, `"done after"`, string(l.wait(t, id, journal.StateCompleted).Result))
			require.Empty(t, forbidden.calls)
			require.Empty(t, work.calls)
			require.Contains(t, r.told[2], `there is no action \"forbidden\"`)
			require.Contains(t, r.told[3], `graphs are not allowed`)
		})
		t.Run("UnknownActor/IsNotTheReasonersFault", func(t *testing.T) {
			r.script = []string{`["gone"]`, `{"result": "well"}`}
			id := l.start(t, agentOf(t, `{"goal": "x", "reasoner": "reasoner", "actions": {"gone": {"actor": "no/such"}}}`))
			got := string(l.wait(t, id, journal.StateFailed).Error)
			require.Contains(t, got, agent.ReasonActionsUnusable)
			require.Contains(t, got, `there is no actor`)
		})
		t.Run("Interrupt/IsEvictedAndTheAnswerIsTheResult", func(t *testing.T) {
			r.script = []string{`["ask"]`, `{"result": "asked"}`}
			id := l.start(t, agentOf(t, `{`+actions+`}`))
			l.evicted(t, id, journal.StateWaiting)
			child := l.evicted(t, l.child(t, id).ID, journal.StateWaiting)
			var question string
			for _, ev := range kinds(l.events(t, child.ID), workgraph.AttemptEnded) {
				if o := ev.Outcome; o != nil && o.Wait != nil && o.Wait.Interrupt != nil {
					question = o.Wait.Interrupt.ID
				}
			}
			l.commands(t, child.ID, journal.CommandAnswer, record.Payload{InterruptID: question, Payload: json.RawMessage(`"you may"`), By: "ada"})
			l.wait(t, id, journal.StateCompleted)
			require.Contains(t, r.told[2], `you may`)
		})
		t.Run("Limit/PausesAndGoesOn", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"goal": "x", "reasoner": "never", "max_rounds": 2, "actions": {"work": {}}}`))
			l.evicted(t, id, journal.StateWaiting)
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Branches/GoOnBeyondTheLimitWhenResumed", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"goal": "all of it", "reasoner": "brancher", "max_branches": 2, "actions": {"work": {}}}`))
			l.evicted(t, id, journal.StateWaiting)
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			require.Equal(t, agent.ReasonBranches, child.Reason)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID}))
			row := l.wait(t, id, journal.StateCompleted)
			require.EqualValues(t, 500, row.Usage.InputTokens, "five calls of the reasoner")
			require.JSONEq(t, `"joined"`, string(l.child(t, id).Result))
			below, err := l.j.Descendants(t.Context(), ns, id)
			require.NoError(t, err)
			require.Len(t, below, 5, "the agent's run, the round's, and one for each branch")
			all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 3)
			require.NoError(t, err)
			for _, th := range all {
				require.Equal(t, 1, th.Depth, "each branch has a fork of the thread")
			}
			for _, b := range below {
				l.sound(t, b.RunID)
			}
		})
		t.Run("Steps/GoOnOneByOne", func(t *testing.T) {
			r.script = []string{`["work"]`, `["work"]`, `{"result": "stepped"}`}
			r.asked = nil
			id := l.start(t, agentOf(t, `{`+actions+`, "step_by_step": true}`))
			l.evicted(t, id, journal.StateWaiting)
			for round := 1; round <= 2; round++ {
				child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
				require.Equal(t, agent.ReasonStep, child.Reason)
				require.Len(t, r.rounds(), round)
				require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID}))
			}
			l.wait(t, id, journal.StateCompleted)
			l.sound(t, l.child(t, id).ID)
		})
		t.Run("Pause/OfTheRunAboveReachesTheAgent", func(t *testing.T) {
			r.script = []string{`[["ask", "ask"]]`, `{"result": "asked"}`}
			r.asked = nil
			id := l.start(t, agentOf(t, `{`+actions+`}`))
			l.evicted(t, id, journal.StateWaiting)
			below := l.child(t, id).ID
			l.evicted(t, below, journal.StateWaiting)
			var asks []string
			testkit.Eventually(t, func() bool {
				asks = nil
				for _, ev := range kinds(l.events(t, l.child(t, below).ID), workgraph.AttemptEnded) {
					if o := ev.Outcome; o != nil && o.Wait != nil && o.Wait.Interrupt != nil {
						asks = append(asks, o.Wait.Interrupt.ID)
					}
				}
				return len(asks) == 2
			})
			lowest := l.child(t, below).ID
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Reason: "LUNCH"}))
			for _, run := range []string{below, lowest} {
				require.Equal(t, workgraph.ReasonParentPaused, l.evicted(t, run, journal.StatePaused).Reason)
			}
			for _, ask := range asks {
				l.commands(t, lowest, journal.CommandAnswer, record.Payload{InterruptID: ask, Payload: json.RawMessage(`"yes"`), By: "ada"})
			}
			testkit.Eventually(t, func() bool { return len(kinds(l.events(t, lowest), workgraph.InterruptClosed)) == 2 })
			require.Len(t, r.rounds(), 1, "nothing begins below a paused run")
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.wait(t, id, journal.StateCompleted)
			require.Len(t, r.rounds(), 2)
			for _, run := range []string{id, below, lowest} {
				l.sound(t, run)
			}
		})
		t.Run("Pause/OfTheAgentItselfOutlivesThatOfTheRunAbove", func(t *testing.T) {
			r.script = []string{`["work"]`, `{"result": "stepped"}`}
			id := l.start(t, agentOf(t, `{`+actions+`, "step_by_step": true}`))
			l.evicted(t, id, journal.StateWaiting)
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Reason: "LUNCH"}))
			l.evicted(t, id, journal.StatePaused)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.evicted(t, id, journal.StateWaiting)
			child = l.evicted(t, child.ID, journal.StatePaused)
			require.Equal(t, agent.ReasonStep, child.Reason)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Retry/OfTheAgentsRunGoesOnFromWhatItHad", func(t *testing.T) {
			failing := true
			r.script = []string{`["work", "work"]`, `["work"]`, `{"result": "late"}`}
			r.fails = func(round int) error {
				if round == 3 && failing {
					return workgraph.Errorf(workgraph.Permanent, "NO_MODEL", "gone")
				}
				return nil
			}
			id := l.start(t, agentOf(t, `{`+actions+`}`))
			require.Contains(t, string(l.wait(t, id, journal.StateFailed).Error), "NO_MODEL")
			failing, r.asked = false, nil
			work.calls = nil
			again, err := l.Retry(t.Context(), command.RetryRequest{Namespace: ns, RunID: l.child(t, id).ID, Request: journal.Request{ID: "r" + id, BodyHash: "x"}})
			require.NoError(t, err)
			require.JSONEq(t, `"late"`, string(l.wait(t, again, journal.StateCompleted).Result))
			require.Equal(t, map[int]int{3: 1}, r.rounds())
			require.Empty(t, work.calls)
			require.Contains(t, r.told[3], `done do.work`)
			r.fails = nil
		})
		t.Run("Fork/OfTheAgentsRunGoesOnWithAForkOfTheThread", func(t *testing.T) {
			r.script = []string{`{"instant_response": "I begin.", "actions": ["work"]}`, `{"instant_response": "Once more.", "actions": ["work"]}`, `{"result": "first"}`}
			id := l.start(t, agentOf(t, `{`+actions+`}`))
			l.wait(t, id, journal.StateCompleted)
			was := l.child(t, id)
			r.asked = nil
			r.script[1], r.script[2] = `{"task_status": "Pending", "instant_response": "Which one?"}`, `{"result": "second"}`
			again, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: was.ID, From: &workgraph.Ref{Node: "reason", Visit: 2}})
			require.NoError(t, err)
			var question string
			testkit.Eventually(t, func() bool {
				for _, ev := range kinds(l.events(t, again), workgraph.AttemptEnded) {
					if o := ev.Outcome; o != nil && o.Wait != nil && o.Wait.Interrupt != nil {
						question = o.Wait.Interrupt.ID
					}
				}
				return question != ""
			})
			require.Equal(t, []string{"MESSAGE", "MESSAGE", "MESSAGE", "STATE 1"}, l.remembered(t, l.row(t, again)), "the question is there while it is open")
			l.commands(t, again, journal.CommandAnswer, record.Payload{InterruptID: question, Payload: json.RawMessage(`"you may"`), By: "ada"})
			require.JSONEq(t, `"second"`, string(l.wait(t, again, journal.StateCompleted).Result))
			require.Equal(t, map[int]int{2: 1, 3: 1}, r.rounds())
			require.Equal(t, []string{"MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2", "STATE 3"}, l.remembered(t, was), "the thread of the first run is as it was")
			require.Equal(t, []string{"MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2", "STATE 3"}, l.remembered(t, l.row(t, again)))
			require.Contains(t, r.told[3], `Agent: I begin.\nAgent: Which one?\nUser: you may\n`, "and what was said after the fork is not in its own")
		})
		t.Run("Retry/OfTheRunAboveRepeatsNoUnsafeCallUnasked", func(t *testing.T) {
			r.script = []string{`["send"]`, `["send"]`}
			r.fails = func(round int) error {
				if round == 2 {
					return workgraph.Errorf(workgraph.Permanent, "NO_MODEL", "gone")
				}
				return nil
			}
			work.calls = nil
			id := l.start(t, agentOf(t, `{"goal": "x", "reasoner": "reasoner", "actions": {"send": {"actor": "work", "effect": "UNSAFE"}}}`))
			l.wait(t, id, journal.StateFailed)
			require.Equal(t, 1, work.of("do.send"))
			_, err := l.Retry(t.Context(), command.RetryRequest{Namespace: ns, RunID: id})
			require.ErrorContains(t, err, "UNSAFE calls that were performed would be made again: do.send of "+l.child(t, id).ID)
			again, err := l.Retry(t.Context(), command.RetryRequest{Namespace: ns, RunID: l.child(t, id).ID})
			require.NoError(t, err, "the agent's own run takes over what it did")
			l.wait(t, again, journal.StateFailed)
			require.Equal(t, 1, work.of("do.send"))
			again, err = l.Retry(t.Context(), command.RetryRequest{Namespace: ns, RunID: id, AllowUnsafe: true})
			require.NoError(t, err)
			l.wait(t, again, journal.StateFailed)
			require.Equal(t, 2, work.of("do.send"))
			r.fails = nil
		})
		t.Run("Cancel/ReachesTheActions", func(t *testing.T) {
			r.script = []string{`["ask"]`}
			id := l.start(t, agentOf(t, `{`+actions+`}`))
			l.evicted(t, id, journal.StateWaiting)
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
			l.wait(t, l.child(t, id).ID, journal.StateCanceled)
		})
		t.Run("Rounds/CountNothingTowardTheDepth", func(t *testing.T) {
			r.script = []string{`[["work", "work"]]`, `{"graph": {"nodes": [{"id": "w", "actor": "work"}]}}`, `["work"]`, `["deeper"]`, `{"result": "deep"}`}
			work.calls = nil
			// The agent is at depth 2 and its own run at depth 3, which is the last allowed.
			id := l.start(t, chain(1, "below"))
			row := l.wait(t, id, journal.StateCompleted)
			require.NotContains(t, string(row.Result), `"FAILED"`)
			require.Equal(t, 1, work.of("1.1-work"))
			require.Equal(t, 1, work.of("w"))
			require.Contains(t, r.told[5], engine.ReasonDepthExceeded, "what an action spawns is counted")
		})
		t.Run("Rounds/ManyAreNotDear", func(t *testing.T) {
			const rounds, room = 200, 1024
			r.script = nil
			for i := range rounds {
				of := `["work"]`
				if i%20 == 0 {
					of = `["work", "work", "work"]` // a run of its own
				}
				r.script = append(r.script, fmt.Sprintf(`{"instant_response": "Round %d%s", "actions": %s}`, i+1, strings.Repeat(", word by word", 10), of))
			}
			r.script = append(r.script, `{"result": 200}`)
			id := l.start(t, agentOf(t, fmt.Sprintf(`{%s, "max_rounds": 1000, "history": {"tokens": %d}, "max_no_progress": 0}`, actions, room)))
			l.wait(t, id, journal.StateCompleted)
			child := l.child(t, id)
			require.Equal(t, fmt.Sprint(rounds), string(child.Result))
			begun := map[int]int{} // the events before each round
			for i, ev := range l.events(t, child.ID) {
				if ev.Durable.Kind == workgraph.AttemptEnded && ev.Durable.Node == "reason" {
					begun[ev.Durable.Visit] = i
				}
			}
			events := func(round int) int { return begun[round+1] - begun[round] }
			require.Equal(t, 4, events(10), "reason, act, work and observe end")
			require.Equal(t, events(10), events(rounds), "no later round costs more")
			items := l.entries(t, child)
			ends := map[int]int{} // the items up to the end of each round
			for i, item := range items {
				var round int
				if n, _ := fmt.Sscanf(item, "STATE %d", &round); n == 1 {
					ends[round] = i
				}
			}
			require.Equal(t, 2, ends[10]-ends[9], "what was said, and the state")
			require.Equal(t, 2, ends[rounds]-ends[rounds-1])
			for round := 10; round <= rounds; round++ {
				require.Less(t, len(r.told[round]), 5*room, "round %d", round)
			}
			require.Contains(t, r.told[rounds], fmt.Sprintf("Round %d,", rounds-1))
		})
	})
}
