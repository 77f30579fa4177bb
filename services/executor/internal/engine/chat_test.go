package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/chat"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// saidBook keeps the jobs about what was said in a chat that became durable.
type saidBook struct {
	mu   sync.Mutex
	jobs map[string][][]byte // by thread
}

func (b *saidBook) watch(j journal.Journal) journal.Journal { return saidBy{j, b} }

type saidBy struct {
	journal.Journal
	book *saidBook
}

func (s saidBy) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	res, err := s.Journal.Commit(ctx, o, ws)
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	for i := 0; err == nil && i < len(ws); i++ {
		if res[i].Err != nil || ws[i].Start != nil {
			continue
		}
		for _, j := range ws[i].Append.Jobs {
			if a, err := webhook.DecodeArgs(j.Args); err == nil && a.Event == webhook.ChatSaid {
				s.book.jobs[a.Thread] = append(s.book.jobs[a.Thread], j.Args)
			}
		}
	}
	return res, err
}

// of are the jobs of a thread.
func (b *saidBook) of(id string) [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.jobs[id])
}

// chats adds the actors of chats to these.
func chats(t *testing.T, s store, own actors) actors {
	t.Helper()
	threads := thread.NewCache(s.open(t), 0)
	for _, sp := range []actor.Spec{chat.Spec(threads), chat.ReplySpec(threads), wait.Human()} {
		own[sp.Name] = pureActor{sp.Actor}
	}
	own["spawn"] = spawner{}
	return own
}

// turn starts the run of a turn, whose workflow does these nodes one after another, in the chat of a bot.
func (l *live) turn(t *testing.T, id string, nodes ...workgraph.Node) string {
	t.Helper()
	if _, err := l.j.Thread(t.Context(), ns, id); errs.ReasonOf(err) == thread.ReasonNotFound {
		_, err := l.j.CreateThread(t.Context(), thread.Create{Thread: thread.Thread{ID: id, Namespace: ns, Lifetime: workgraph.ThreadConversation, CreateTime: dbkit.Now()}})
		require.NoError(t, err)
	}
	below := workgraph.Graph{Nodes: nodes}
	for i := 1; i < len(nodes); i++ {
		below.Edges = append(below.Edges, workgraph.Edge{From: nodes[i-1].ID, To: nodes[i].ID, PassDown: workgraph.Merge("{'args': [], 'named': {}}")})
	}
	raw, err := json.Marshal(below)
	require.NoError(t, err)
	g, err := chat.Graph(id, "hello", "talk@1", nil)
	require.NoError(t, err)
	g.Nodes[1].Named = map[string]json.RawMessage{"graph": raw, "input": json.RawMessage("{}")}
	return l.start(t, g, func(r *command.StartRequest) {
		r.ThreadID, r.Lineage = id, record.Lineage{TurnOf: "talk@1"}
		r.Webhooks = []webhook.Hook{{Chat: &webhook.Chat{Bot: "b", ID: "1"}, Events: []webhook.Event{webhook.RunEnded, webhook.InterruptOpened, webhook.ChatSaid}}}
	})
}

func reply(id, text string) workgraph.Node {
	b, _ := json.Marshal(text)
	return workgraph.Node{ID: id, Actor: "flow/reply", Named: map[string]json.RawMessage{"value": b}, Retry: workgraph.Retry{MaxAttempts: 10}}
}

// answerAll answers the questions below a run, until it has ended or its executor is dead.
func (l *live) answerAll(t *testing.T, id string, dead <-chan struct{}) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		select {
		case <-dead:
			return true
		default:
		}
		row, err := l.j.Head(t.Context(), ns, id)
		if err != nil || row.State.Ended() {
			return err == nil
		}
		below, err := l.j.Descendants(t.Context(), ns, id)
		for i := 0; err == nil && i < len(below); i++ {
			var open []journal.Interrupt
			open, err = l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: below[i].RunID, States: []journal.InterruptState{journal.InterruptOpen}}, page.Cursor{}, 10)
			for k := 0; err == nil && k < len(open); k++ {
				_, err = l.Answer(t.Context(), command.AnswerRequest{Namespace: ns, InterruptID: open[k].ID, Answer: json.RawMessage(`"yes"`)})
			}
		}
		return false
	})
}

// An executor dies after each call of a turn in which a workflow speaks before a question and after it,
// before the outcome is durable. Everything is said once and in order, and sent once.
func TestRepliesKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			book := &saidBook{jobs: map[string][][]byte{}}
			ask := workgraph.Node{ID: "ask", Actor: "human", Named: map[string]json.RawMessage{"prompt": json.RawMessage(`"Go on?"`)}}
			mortal{
				open:   open,
				actors: func(t *testing.T, s store) actors { return chats(t, s, actors{}) },
				start: func(t *testing.T, l *live) string {
					return l.turn(t, ids.New(thread.IDPrefix), reply("first", "I look."), ask, reply("last", "It is done."))
				},
				watch:     book.watch,
				meanwhile: func(t *testing.T, l *live, id string, dead <-chan struct{}) { l.answerAll(t, id, dead) },
				ends: func(t *testing.T, l *live, id string) {
					row := l.wait(t, id, journal.StateCompleted)
					require.JSONEq(t, `"It is done."`, string(row.Result))
					require.Equal(t, []string{"user: hello", ": I look.", ": It is done."}, l.said(t, row.ThreadID))
					require.Equal(t, []string{"I look.", "It is done."}, sent(t, l, book.of(row.ThreadID)))
				},
				atOnce: 1,
			}.test(t)
		})
	}
}

// sent are the texts that jobs send. Of those in the wrong order the later one waits.
func sent(t *testing.T, l *live, jobs [][]byte) (out []string) {
	t.Helper()
	d := feed.NewDeliveries(l.j, nil)
	for len(jobs) > 0 {
		waiting := [][]byte{}
		for _, args := range slices.Backward(jobs) {
			x, err := d.Of(t.Context(), args)
			require.NoError(t, err)
			waits, err := d.Waits(t.Context(), x)
			require.NoError(t, err)
			if waits {
				waiting = append(waiting, args)
				continue
			}
			out = append(out, x.Message.Text)
			require.NoError(t, d.Sent(t.Context(), x))
		}
		require.Less(t, len(waiting), len(jobs), "all wait for each other")
		jobs = waiting
	}
	return out
}

func TestReplies(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		book := &saidBook{jobs: map[string][][]byte{}}
		l := mortal{actors: func(t *testing.T, s store) actors { return chats(t, s, actors{"ok": &recorder{}}) }, watch: book.watch}.
			executor(t, s, "a", &calls{of: map[string]int{}}, func(j journal.Journal) journal.Journal { return j })
		t.Run("WhatFollowsIsSaidToo", func(t *testing.T) {
			id := ids.New(thread.IDPrefix)
			l.wait(t, l.turn(t, id, reply("first", "I look."), workgraph.Node{ID: "more", Actor: "ok"}), journal.StateCompleted)
			all := l.said(t, id)
			require.Len(t, all, 3, "%v", all)
			require.Equal(t, ": I look.", all[1])
			testkit.Eventually(t, func() bool { return len(book.of(id)) == 2 })
		})
		t.Run("ATurnWaitsForWhatTheOneBeforeSaid", func(t *testing.T) {
			id := ids.New(thread.IDPrefix)
			first := l.wait(t, l.turn(t, id, reply("only", "It takes long.")), journal.StateCompleted)
			second := l.wait(t, l.turn(t, id, reply("only", "This one not.")), journal.StateCompleted)
			jobs := book.of(id)
			require.Len(t, jobs, 2)
			for _, run := range []journal.Run{first, second} {
				jobs = append(jobs, webhook.Args{Namespace: ns, RunID: run.ID, Event: webhook.RunEnded, Seq: run.LastSeq}.Job().Args)
			}
			d := feed.NewDeliveries(l.j, nil)
			wait := func() (out [4]bool) {
				for i, args := range jobs {
					x, err := d.Of(t.Context(), args)
					require.NoError(t, err)
					out[i], err = d.Waits(t.Context(), x)
					require.NoError(t, err)
				}
				return out
			}
			done := func(i int) {
				x, err := d.Of(t.Context(), jobs[i])
				require.NoError(t, err)
				require.NoError(t, d.Sent(t.Context(), x))
			}
			require.Equal(t, [4]bool{false, true, true, true}, wait())
			done(0)
			require.Equal(t, [4]bool{false, false, false, true}, wait(), "the end of the first turn does not wait for the second")
			done(1)
			require.Equal(t, [4]bool{}, wait())
		})
		t.Run("OutsideOfATurnItIsAValue", func(t *testing.T) {
			g := workgraph.Graph{Nodes: []workgraph.Node{reply("only", "I look.")}}
			row := l.wait(t, l.start(t, &g), journal.StateCompleted)
			require.JSONEq(t, `"I look."`, string(row.Result))
		})
		t.Run("ADeletedThreadHasNothingToSend", func(t *testing.T) {
			id := ids.New(thread.IDPrefix)
			l.wait(t, l.turn(t, id, reply("only", "I look.")), journal.StateCompleted)
			require.Len(t, book.of(id), 1)
			require.NoError(t, l.j.DeleteThread(t.Context(), ns, id))
			x, err := feed.NewDeliveries(l.j, nil).Of(t.Context(), book.of(id)[0])
			require.NoError(t, err)
			require.Nil(t, x)
		})
	})
}
