package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// summarizer says "sum 1", "sum 2" and so on, and keeps its requests.
type summarizer struct {
	mu    sync.Mutex
	asked []string
	fails error
}

func (s *summarizer) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var request string
	if err := json.Unmarshal(c.Named["request"], &request); err != nil {
		return workgraph.Outcome{}, err
	}
	s.asked = append(s.asked, request)
	if s.fails != nil {
		return workgraph.Outcome{}, s.fails
	}
	raw, err := json.Marshal(fmt.Sprintf("sum %d", len(s.asked)))
	return workgraph.Outcome{Values: []json.RawMessage{raw}, Usage: []workgraph.Usage{{Model: "m", InputTokens: 10}}}, err
}

// word is a text of 50 tokens that begins with a number.
func word(n int) string { return fmt.Sprintf("%-4d", n) + strings.Repeat("x", 196) }

// toolCall is a message that calls an action, and toolAnswer the answer to it. They have 121 tokens together.
func toolCall(n int) string {
	return fmt.Sprintf(`{"content":"on it","role":"assistant","tool_calls":[{"arguments":{"x":%d},"id":"c%d","name":"a"}]}`, n, n)
}

func toolAnswer(n int) string {
	return fmt.Sprintf(`{"content":%q,"role":"tool","tool_call_id":"c%d"}`, word(n)+word(n), n)
}

func userSays(s string) string { return fmt.Sprintf(`{"content":%q,"role":"user"}`, s) }

// ordered is JSON with its keys in order.
func ordered(t *testing.T, raw []byte) string {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	return encoded(t, v)
}

// inTools runs so many rounds of one tool call each in the tools form, and says goodbye.
func inTools(t *testing.T, rounds int, history string, own workgraph.Actors) (*reasoner, *env) {
	t.Helper()
	r := &reasoner{}
	for n := 1; n <= rounds; n++ {
		r.script = append(r.script, toolCall(n))
	}
	r.script = append(r.script, `{"role":"assistant","content":"bye"}`)
	n := 0
	own["r"] = r
	own["tool"] = &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
		n++
		raw, err := json.Marshal(word(n) + word(n))
		return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
	}}
	e := newEnv(t, own)
	done(t, e.run(t, `{"user_input": "go", "reasoner": "r", "form": "tools", "max_rounds": 1000, "actions": {"a": {"actor": "tool"}}, "history": `+history+`}`), `"bye"`)
	return r, e
}

// inPrompts runs so many rounds in the prompt form. What each of them says has 50 tokens, and so has its
// state.
func inPrompts(t *testing.T, rounds int, history string, own workgraph.Actors) (*reasoner, *env) {
	t.Helper()
	r := &reasoner{}
	for n := 1; n <= rounds; n++ {
		r.script = append(r.script, `<TaskStatusDescription>`+word(n)+`</TaskStatusDescription><InstantResponse>`+word(n)+`</InstantResponse><ImmediateNextActions><Action><Type>a</Type></Action></ImmediateNextActions>`)
	}
	r.script = append(r.script, completed)
	own["r"], own["tool"] = r, says(`1`)
	e := newEnv(t, own)
	done(t, e.run(t, `{"user_input": "go", "reasoner": "r", "max_rounds": 1000, "max_no_progress": 0, "actions": {"a": {"actor": "tool"}}, "history": `+history+`,
		"template": "Before: {previous_states}\nNow: {current_state}\n{conversation}"}`), `"done"`)
	return r, e
}

// messages are the texts of the messages that were sent in a round, from 1.
func (r *reasoner) messages(t *testing.T, round int) []string {
	t.Helper()
	var all []json.RawMessage
	require.GreaterOrEqual(t, len(r.asked), round)
	require.NoError(t, json.Unmarshal(r.asked[round-1]["messages"], &all))
	out := make([]string, len(all))
	for i := range all {
		out[i] = ordered(t, all[i])
	}
	return out
}

// kinds counts the items of a thread by kind.
func (e *env) kinds(id string) map[workgraph.ThreadKind]int {
	out := map[workgraph.ThreadKind]int{}
	for _, it := range e.threads.items[id] {
		out[it.Kind]++
	}
	return out
}

const sumLead = "Summary of what came before:\n"

func TestHistory(t *testing.T) {
	t.Parallel()
	t.Run("Messages/InTheToolsForm", func(t *testing.T) {
		t.Parallel()
		r, e := inTools(t, 5, `{"messages": 5}`, workgraph.Actors{})
		require.Equal(t, []string{userSays("go"), toolCall(1), toolAnswer(1), toolCall(2), toolAnswer(2)}, r.messages(t, 3))
		require.Equal(t, []string{userSays("go"), toolCall(4), toolAnswer(4), toolCall(5), toolAnswer(5)}, r.messages(t, 6),
			"no call without its answers, and never without what the user wants")
		require.Equal(t, map[workgraph.ThreadKind]int{workgraph.ThreadMessage: 12, workgraph.ThreadState: 6}, e.kinds(e.threads.root(t)), "the thread has all of it")
	})
	t.Run("Messages/InThePromptForm", func(t *testing.T) {
		t.Parallel()
		r, e := inPrompts(t, 4, `{"messages": 2}`, workgraph.Actors{})
		require.Equal(t, "Before: "+word(1)+"\nNow: "+word(2)+"\nUser: go\nAgent: "+word(1)+"\nAgent: "+word(2), r.prompt(t, 3))
		require.Equal(t, "Before: "+word(3)+"\nNow: "+word(4)+"\nUser: go\nAgent: "+word(3)+"\nAgent: "+word(4), r.prompt(t, 5))
		require.Equal(t, 5, e.kinds(e.threads.root(t))[workgraph.ThreadState])
	})
	t.Run("Tokens/InTheToolsForm", func(t *testing.T) {
		t.Parallel()
		r, _ := inTools(t, 5, `{"tokens": 256}`, workgraph.Actors{})
		require.Equal(t, []string{userSays("go"), toolCall(1), toolAnswer(1), toolCall(2), toolAnswer(2)}, r.messages(t, 3))
		require.Equal(t, []string{userSays("go"), toolCall(4), toolAnswer(4), toolCall(5), toolAnswer(5)}, r.messages(t, 6))
	})
	t.Run("Tokens/InThePromptForm", func(t *testing.T) {
		t.Parallel()
		r, _ := inPrompts(t, 5, `{"tokens": 400}`, workgraph.Actors{})
		require.Equal(t, "Before: "+word(4)+"\n\n"+word(3)+"\nNow: "+word(5)+"\nUser: go\nAgent: "+word(3)+"\nAgent: "+word(4)+"\nAgent: "+word(5), r.prompt(t, 6))
	})
	t.Run("Tokens/ShortenTheLastAnswersIfNothingElseFits", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{toolCall(1), `{"role":"assistant","content":"bye"}`}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`"` + strings.Repeat("y", 9000) + `"`)})
		done(t, e.run(t, `{"user_input": "go", "reasoner": "r", "form": "tools", "actions": {"a": {"actor": "tool"}}, "history": {"tokens": 256}}`), `"bye"`)
		cut := (256 - (4 + 1) - 17) * 4
		require.Equal(t, []string{userSays("go"), toolCall(1), `{"content":"` + strings.Repeat("y", cut) + `…","role":"tool","tool_call_id":"c1"}`}, r.messages(t, 2))
		require.Contains(t, string(e.threads.items[e.threads.root(t)][3].Body), strings.Repeat("y", 9000), "what is stored is whole")
	})
	t.Run("Summarize/InTheToolsForm", func(t *testing.T) {
		t.Parallel()
		s := &summarizer{}
		r, e := inTools(t, 7, `{"tokens": 1000, "summarize": {"above": 400, "keep": 130, "actor": "s", "prompt": "Shorten:\n{conversation}"}}`, workgraph.Actors{"s": s})
		line := func(n int) string {
			return fmt.Sprintf("\nAgent: on it\nAgent calls a: {\"x\":%d}\nResult: %s", n, word(n)+word(n))
		}
		require.Equal(t, []string{"Shorten:\nUser: go" + line(1) + line(2) + line(3), "Shorten:\n" + sumLead + "sum 1\n" + line(4) + line(5) + line(6)}, s.asked,
			"a later summary is made of the earlier one and of what came since")
		require.Equal(t, []string{userSays("go"), toolCall(1), toolAnswer(1), toolCall(2), toolAnswer(2), toolCall(3), toolAnswer(3)}, r.messages(t, 4))
		require.Equal(t, []string{userSays(sumLead + "sum 1"), userSays("go"), toolCall(4), toolAnswer(4)}, r.messages(t, 5))
		require.Equal(t, []string{userSays(sumLead + "sum 1"), userSays("go"), toolCall(4), toolAnswer(4), toolCall(5), toolAnswer(5), toolCall(6), toolAnswer(6)}, r.messages(t, 7))
		require.Equal(t, []string{userSays(sumLead + "sum 2"), userSays("go"), toolCall(7), toolAnswer(7)}, r.messages(t, 8))
		id := e.threads.root(t)
		require.Equal(t, map[workgraph.ThreadKind]int{workgraph.ThreadMessage: 16, workgraph.ThreadState: 8, workgraph.ThreadSummary: 2}, e.kinds(id))
		var sums []string
		for _, it := range e.threads.items[id] {
			if it.Kind == workgraph.ThreadSummary {
				sums = append(sums, string(it.Brief)+string(it.Body))
			}
		}
		require.Equal(t, []string{`{"first":1,"last":10}{"first":1,"last":10,"summary":"sum 1"}`, `{"first":1,"last":20}{"first":1,"last":20,"summary":"sum 2"}`}, sums)
	})
	t.Run("Summarize/InThePromptForm", func(t *testing.T) {
		t.Parallel()
		s := &summarizer{}
		r, e := inPrompts(t, 5, `{"tokens": 1000, "summarize": {"above": 350, "keep": 110, "actor": "s", "prompt": "Shorten:\n{conversation}"}}`, workgraph.Actors{"s": s})
		line := func(n int) string { return "\nAgent: " + word(n) + "\nState: " + word(n) }
		require.Equal(t, []string{"Shorten:\nUser: go" + line(1) + line(2) + line(3)}, s.asked)
		require.Equal(t, "Now: "+word(4)+"\n"+sumLead+"sum 1\nUser: go\nAgent: "+word(4), r.prompt(t, 5))
		require.Equal(t, "Before: "+word(4)+"\nNow: "+word(5)+"\n"+sumLead+"sum 1\nUser: go\nAgent: "+word(4)+"\nAgent: "+word(5), r.prompt(t, 6))
		require.Equal(t, 6, e.kinds(e.threads.root(t))[workgraph.ThreadState])
	})
	t.Run("Summarize/IsTheReasonersModelUnlessToldOtherwise", func(t *testing.T) {
		t.Parallel()
		model := &tool{upon: func(named map[string]json.RawMessage) (workgraph.Outcome, error) {
			say := toolCall(1)
			if len(named["request"]) > 0 {
				say = `"in short"`
			} else if strings.Contains(string(named["messages"]), "in short") {
				say = `"bye"`
			}
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(say)}}, nil
		}}
		for _, c := range [][2]string{{`{}`, `"model":"m","profile":"p"`}, {`{"profile": "small"}`, `"profile":"small"`}} {
			model.calls = nil
			done(t, work(t, workgraph.Actors{"llm": model, "tool": says(`1`)}, `{"user_input": "go", "form": "tools", "reasoner_args": {"profile": "p", "model": "m", "temperature": 1},
				"actions": {"a": {"actor": "tool"}}, "history": {"messages": 2, "summarize": `+c[0]+`}}`), `"bye"`)
			require.Len(t, model.calls, 3)
			require.Contains(t, model.calls[1], "Summarize the conversation below")
			require.Contains(t, model.calls[1], `{`+c[1]+`,"request":`)
			require.Contains(t, model.calls[1], `"upstream":false}`)
		}
	})
	t.Run("Summarize/BeforeTheFirstRoundOfATurn", func(t *testing.T) {
		t.Parallel()
		s, r := &summarizer{}, &reasoner{script: []string{"one", "two", "three", "four"}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
		turn := func(said, id, want string) {
			done(t, e.run(t, `{"user_input": "`+said+`", "thread_id": "`+id+`", "reasoner": "r", "form": "tools", "actions": {"x": {}}, "history": {"messages": 4, "summarize": {"actor": "s", "prompt": "{conversation}"}}}`), want)
		}
		turn("1", "", `"one"`)
		id := e.threads.root(t)
		turn("2", id, `"two"`)
		turn("3", id, `"three"`)
		require.Equal(t, []string{"User: 1\nAgent: one\nUser: 2"}, s.asked)
		const two, three = `{"content":"two","role":"assistant"}`, `{"content":"three","role":"assistant"}`
		require.Equal(t, []string{userSays(sumLead + "sum 1"), two, userSays("3")}, r.messages(t, 3))
		t.Run("Fork/SharesTheSummary", func(t *testing.T) {
			e.threads.put(t, thread.Thread{ID: "thr_fork", ParentID: id, ParentSeq: e.threads.last(id)})
			turn("4", "thr_fork", `"four"`)
			require.Len(t, s.asked, 1, "no call is made for it")
			require.Equal(t, []string{userSays(sumLead + "sum 1"), two, userSays("3"), three, userSays("4")}, r.messages(t, 4))
		})
	})
	t.Run("Summarize/ItsFailureLeavesOutWhatDoesNotFit", func(t *testing.T) {
		t.Parallel()
		s := &summarizer{fails: workgraph.Errorf(workgraph.Permanent, "NO_MODEL", "gone")}
		r, e := inTools(t, 8, `{"messages": 3, "summarize": {"actor": "s"}}`, workgraph.Actors{"s": s})
		require.Equal(t, []string{userSays("go"), toolCall(8), toolAnswer(8)}, r.messages(t, 9))
		require.Len(t, s.asked, 2, "after a failure it is left alone for some rounds")
		var failed []int
		for _, st := range e.threads.states(t, e.threads.root(t)) {
			if st.Sent.Failed != "" {
				failed = append(failed, st.Round)
				require.Equal(t, "NO_MODEL: gone", st.Sent.Failed)
			}
		}
		require.Equal(t, []int{3, 8}, failed)
		require.Zero(t, e.kinds(e.threads.root(t))[workgraph.ThreadSummary])
	})
	t.Run("Summarize/IsPaidFromTheBudget", func(t *testing.T) {
		t.Parallel()
		run := func(budget int) (workgraph.Result, *reasoner, *summarizer) {
			s, r := &summarizer{}, &reasoner{script: []string{toolCall(1), toolCall(2), toolCall(3), `"bye"`}}
			return work(t, workgraph.Actors{"r": r, "s": s, "tool": says(`1`)}, fmt.Sprintf(`{"user_input": "go", "reasoner": "r", "form": "tools", "actions": {"a": {"actor": "tool"}},
				"budget": {"tokens": %d}, "history": {"messages": 5, "summarize": {"actor": "s"}}}`, budget)), r, s
		}
		res, _, _ := run(100)
		done(t, res, `"bye"`)
		require.EqualValues(t, 50, res.Usage[0].InputTokens, "four calls of the reasoner and one for a summary")
		res, r, s := run(35)
		require.Contains(t, res.Error.Message, workgraph.ReasonBudget)
		require.Len(t, s.asked, 1)
		require.Len(t, r.asked, 3, "the call that follows is held back")
	})
	t.Run("Input/OfSeveralMessagesIsToldWhole", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{toolCall(1), toolCall(2), `"bye"`}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		done(t, e.run(t, `{"user_input": ["one", "two"], "reasoner": "r", "form": "tools", "actions": {"a": {"actor": "tool"}}, "history": {"messages": 3}}`), `"bye"`)
		require.Equal(t, []string{userSays("one"), userSays("two"), toolCall(1), `{"content":"1","role":"tool","tool_call_id":"c1"}`}, r.messages(t, 2))
		require.Equal(t, []string{userSays("one"), userSays("two"), toolCall(2), `{"content":"1","role":"tool","tool_call_id":"c2"}`}, r.messages(t, 3))
		states := e.threads.states(t, e.threads.root(t))
		require.Equal(t, &state.Span{First: 1, Last: 1}, states[1].Sent.Input, "the second one is among the newest three messages")
		require.Equal(t, &state.Span{First: 1, Last: 2}, states[2].Sent.Input)
	})
	t.Run("Sent/IsEnoughToRebuildIt", func(t *testing.T) {
		t.Parallel()
		s := &summarizer{}
		r, e := inTools(t, 7, `{"tokens": 1000, "summarize": {"above": 400, "keep": 130, "actor": "s"}}`, workgraph.Actors{"s": s})
		states := e.threads.states(t, e.threads.root(t))
		require.Len(t, states, 8)
		for i := range states {
			require.Equal(t, r.messages(t, i+1), e.rebuilt(t, &states[i]), "round %d: %+v", i+1, states[i].Sent)
		}
		require.Equal(t, &state.Sent{First: 11, Last: 12, Input: &state.Span{First: 1, Last: 1}, Summary: 14, Messages: 100, Tokens: 1000, Above: 400, Keep: 130}, states[4].Sent)
	})
	t.Run("Sent/HasWhatIsToldInEveryRoundByReference", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{toolCall(1), toolCall(2), `"bye"`}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		done(t, e.run(t, `{"user_input": "go", "context": "It is late.", "reasoner": "r", "form": "tools", "actions": {"a": {"actor": "tool"}}}`), `"bye"`)
		states := e.threads.states(t, e.threads.root(t))
		for i := range states {
			require.Equal(t, r.messages(t, i+1), e.rebuilt(t, &states[i]), "round %d", i+1)
		}
		require.Equal(t, "Context:\nIt is late.", states[0].ReasonerInput)
		require.Empty(t, states[1].ReasonerInput)
		require.EqualValues(t, 4, states[2].Sent.About)
	})
	t.Run("Cost/IsTheSameInEveryRound", func(t *testing.T) {
		t.Parallel()
		for name, form := range map[string]func(*testing.T, int, string, workgraph.Actors) (*reasoner, *env){"tools": inTools, "prompt": inPrompts} {
			s := &summarizer{}
			r, e := form(t, 60, `{"tokens": 1000, "summarize": {"above": 400, "keep": 130, "actor": "s"}}`, workgraph.Actors{"s": s})
			most := func(from, to int) (read, sent int) {
				for i := from; i < to; i++ {
					sent = max(sent, len(r.asked[i]["messages"])+len(r.asked[i]["request"]))
				}
				for _, q := range e.threads.reads[from*len(e.threads.reads)/60 : to*len(e.threads.reads)/60] {
					read = max(read, q)
				}
				return read, sent
			}
			read, sent := most(10, 20)
			later, more := most(50, 60)
			require.LessOrEqual(t, later, read, "%s: items of the thread in one read", name)
			require.LessOrEqual(t, more, sent+sent/20, "%s: bytes that are sent", name)
			require.InDelta(t, 20, len(s.asked), 2, name)
		}
	})
}

func within(seq int64, s *state.Span) bool { return s != nil && seq >= s.First && seq <= s.Last }

// rebuilt are the messages that were sent in a round, by what its state says.
func (e *env) rebuilt(t *testing.T, st *state.Item) (out []string) {
	t.Helper()
	id := e.threads.root(t)
	about := st.ReasonerInput
	for _, it := range e.threads.items[id] {
		if it.Seq == st.Sent.About && it.Kind == workgraph.ThreadState {
			var first state.Item
			require.NoError(t, json.Unmarshal(it.Body, &first))
			about = first.ReasonerInput
		}
	}
	if about != "" {
		out = append(out, userSays(about))
	}
	for _, it := range e.threads.items[id] {
		if it.Seq == st.Sent.Summary {
			var sum struct {
				Summary string `json:"summary"`
			}
			require.NoError(t, json.Unmarshal(it.Body, &sum))
			out = append(out, userSays(sumLead+sum.Summary))
		}
	}
	for _, it := range e.threads.items[id] {
		if it.Kind == workgraph.ThreadMessage && (within(it.Seq, st.Sent.Input) || within(it.Seq, &state.Span{First: st.Sent.First, Last: st.Sent.Last})) {
			out = append(out, ordered(t, it.Body))
		}
	}
	return out
}

func TestHistoryIsChecked(t *testing.T) {
	t.Parallel()
	// refused is the fault of a graph with an agent of these arguments.
	refused := func(t *testing.T, named string) string {
		t.Helper()
		n := workgraph.Node{ID: "agent", Actor: "agent"}
		require.NoError(t, json.Unmarshal([]byte(named), &n.Named))
		_, err := workgraph.Run(t.Context(), &workgraph.Graph{Nodes: []workgraph.Node{n}}, newEnv(t, nil).all, workgraph.Input{})
		require.Error(t, err)
		return err.Error()
	}
	for name, c := range map[string][2]string{
		"Messages":         {`{"messages": 0}`, "history.messages must be from 1 to 1000"},
		"Tokens":           {`{"tokens": 10}`, "history.tokens must be from 256 to 400000"},
		"Unknown":          {`{"bytes": 10}`, `additional properties 'bytes' not allowed`},
		"AboveTokens":      {`{"tokens": 1000, "summarize": {"above": 2000}}`, "history.summarize.above is more than history.tokens"},
		"LittleAbove":      {`{"summarize": {"above": 5}}`, "history.summarize.above must be from 128 to 400000"},
		"KeepTooMuch":      {`{"summarize": {"above": 1000, "keep": 501}}`, "history.summarize.keep must be at most half of above"},
		"KeepAlone":        {`{"summarize": {"keep": 501}}`, "history.summarize.keep must be at most half of above"},
		"ActorAndModel":    {`{"summarize": {"actor": "s", "profile": "p"}}`, "give one of profile and actor"},
		"NoConversation":   {`{"summarize": {"prompt": "Shorten it!"}}`, "show what is summarized as {conversation}"},
		"OtherPlaceholder": {`{"summarize": {"prompt": "{conversation} {tools}"}}`, "which is the only placeholder here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, refused(t, `{`+search+`, "history": `+c[0]+`}`), c[1])
		})
	}
	t.Run("Template/WithoutAPlaceForTheSummary", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, refused(t, `{`+search+`, "template": "{user_input}", "history": {"summarize": {}}}`), "the template has no {conversation}")
	})
	t.Run("Summarizer/ThatDoesNotExist", func(t *testing.T) {
		t.Parallel()
		res := work(t, workgraph.Actors{"r": &reasoner{}, "tool": says(`1`)}, `{`+search+`, "history": {"summarize": {"actor": "nobody"}}}`)
		require.Contains(t, res.Error.Message, `history.summarize: there is no actor "nobody"`)
	})
}
