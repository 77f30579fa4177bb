package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	const planning = `{"user_input": "shop", "reasoner": "r", "dispatch": "plan", "solver": {"actor": "s"}}`
	t.Run("Faults/AreToldAndNeverRun", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"<ProblemGraph>A -> B\nB -> A</ProblemGraph><Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem><Problem><Request>b</Request><ProblemID>B</ProblemID></Problem></Problems>",
			"<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem></Problems><ProblemGraph>A</ProblemGraph>", "All done."}}
		s := says(`"solved"`)
		e := newEnv(t, workgraph.Actors{"r": r, "s": s})
		done(t, e.run(t, planning), `"All done."`)
		require.Contains(t, r.prompt(t, 2), "the plan has faults and was not done")
		require.Contains(t, r.prompt(t, 2), "CYCLE")
		require.Contains(t, r.prompt(t, 2), "The plan was:\n&lt;ProblemGraph&gt;A -&gt; B\n", "no model remembers what it wrote")
		require.Len(t, s.calls, 1)
		require.JSONEq(t, `[{"action": "A", "ok": "solved"}]`, e.told(t, 2))
	})
	t.Run("Faults/AreMendedInAnyNotation", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"1. Buy tea (needs 2)\n2. Buy milk (needs 1)", `[{"id": "tea", "request": "Buy tea", "needs": ["sugar"]}]`, `[{"id": "tea", "request": "Buy tea", "needs": []}]`, "Done."}}
		s := says(`"ok"`)
		e := newEnv(t, workgraph.Actors{"r": r, "s": s})
		done(t, e.run(t, planning), `"Done."`)
		require.Contains(t, r.prompt(t, 3), "UNKNOWN_REFERENCE")
		require.Len(t, s.calls, 1)
		require.JSONEq(t, `[{"action": "tea", "ok": "ok"}]`, e.told(t, 3))
	})
	t.Run("Answer/WithAListIsNoPlan", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"1. Buy tea\n2. Buy milk", "Done:\n1. tea\n2. milk"}}
		s := says(`"ok"`)
		done(t, work(t, workgraph.Actors{"r": r, "s": s}, planning), `"Done:\n1. tea\n2. milk"`)
		require.Len(t, s.calls, 2)
	})
	t.Run("Answer/WithAnArrowIsNoPlan", func(t *testing.T) {
		t.Parallel()
		for _, answer := range []string{"OSL -> BER costs 99", "Cheapest: OSL -> BER", "- OSL -> BER\n- OSL -> CPH, if it rains"} {
			r, s := &reasoner{script: []string{"1. Compare flights", answer}}, says(`"ok"`)
			done(t, work(t, workgraph.Actors{"r": r, "s": s}, planning), encoded(t, answer))
			require.Len(t, s.calls, 1, answer)
		}
	})
	t.Run("Later/AnArrowBetweenIDsIsAPlan", func(t *testing.T) {
		t.Parallel()
		r, s := &reasoner{script: []string{"1. Look", "FETCH_URLS, PRICES -> COMPARE\r\nCOMPARE->END", "Done."}}, says(`"ok"`)
		done(t, work(t, workgraph.Actors{"r": r, "s": s}, planning), `"Done."`)
		require.Len(t, s.calls, 5)
	})
	t.Run("Tool/IsNoActor", func(t *testing.T) {
		t.Parallel()
		model, other := says(`"model"`), says(`"other"`)
		r, s := &reasoner{script: []string{`[{"id": "a", "request": "x", "tool": "llm", "needs": []}, {"id": "b", "request": "y", "tool": "other", "needs": []}, {"id": "c", "request": "z", "tool": "s", "args": {"q": 1}, "needs": []}]`, "Done."}}, says(`"ok"`)
		done(t, work(t, workgraph.Actors{"r": r, "s": s, "llm": model, "other": other}, planning), `"Done."`)
		require.Len(t, s.calls, 3, "the solver does each problem")
		require.Empty(t, model.calls)
		require.Empty(t, other.calls)
	})
	t.Run("Graph/OfTheReasonerIsNoPlan", func(t *testing.T) {
		t.Parallel()
		evil := says(`"evil"`)
		r := &reasoner{script: []string{"1. Buy tea", `{"graph": {"nodes": [{"id": "x", "actor": "evil"}]}}`, "Done."}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": says(`"ok"`), "evil": evil})
		done(t, e.run(t, planning), `"Done."`)
		require.Empty(t, evil.calls, "only a plan names nothing but the solver")
		require.Contains(t, r.prompt(t, 3), "graphs are not allowed here")
	})
	t.Run("FailedProblem/IsToldWithTheOthers", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem><Problem><Request>b</Request><ProblemID>B</ProblemID></Problem><Problem><Request>c</Request><ProblemID>C</ProblemID></Problem></Problems><ProblemGraph>A -> B\nC</ProblemGraph>", "Sorry."}}
		s := &tool{upon: func(named map[string]json.RawMessage) (workgraph.Outcome, error) {
			if string(named["request"]) == `"a"` {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO_TEA", "sold out")
			}
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"ok"`)}}, nil
		}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": s})
		done(t, e.run(t, planning), `"Sorry."`)
		require.JSONEq(t, `[{"action":"A","error":{"type":"PERMANENT","reason":"NO_TEA","message":"sold out"}},{"action":"B","skipped":"an action before it did not succeed"},{"action":"C","ok":"ok"}]`, e.told(t, 1))
	})
	t.Run("Remarks/BesideThePlan", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"<StructuredResponse><NewTask>true</NewTask><InstantResponse>I plan.</InstantResponse><TaskStatus>Completed</TaskStatus><TaskStatusDescription>planned</TaskStatusDescription>" +
			"<InstantLearnings><LearningID>l1</LearningID><LearningContent>likes tea</LearningContent></InstantLearnings>" +
			"<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem></Problems></StructuredResponse>", "Done."}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": says(`"ok"`)})
		done(t, e.run(t, planning), `"Done."`)
		require.Contains(t, r.prompt(t, 2), "Current state of the task:\nplanned\n\nConversation:\nUser: shop\nAgent: I plan.")
		first := e.threads.states(t, e.threads.root(t))[0]
		require.True(t, first.NewTask)
		require.EqualValues(t, "Ongoing", first.Status, "there is something to do")
		require.Len(t, first.Response.InstantLearnings, 1)
		require.Contains(t, string(first.Response.Graph), `"named":{"request":"a"}`, "the plan, without the arguments of the solver")
		require.Nil(t, first.Response.NextActions)
	})
	t.Run("Pending/ComesBeforeThePlan", func(t *testing.T) {
		t.Parallel()
		const plan = "<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem></Problems>"
		r, s := &reasoner{script: []string{"<TaskStatus>Pending</TaskStatus><InstantResponse>For how many?</InstantResponse>" + plan, plan, "Done."}}, says(`"ok"`)
		e := newEnv(t, workgraph.Actors{"r": r, "s": s})
		e.options = append(e.options, workgraph.WithInterrupts(func(_ context.Context, q workgraph.OpenedInterrupt) (workgraph.Answer, error) {
			require.Equal(t, `"For how many?"`, string(q.Interrupt.Prompt))
			require.Empty(t, s.calls)
			return workgraph.Answer{Value: json.RawMessage(`"two"`)}, nil
		}))
		done(t, e.run(t, planning), `"Done."`)
		require.Len(t, s.calls, 1)
	})
	t.Run("References/ReachTheSolver", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"Plan: look it up\n#E1 = Search[tower]\nPlan: ask\n#E2 = LLM[how old is #E1]", "Done."}}
		s := &reasoner{when: []reply{{"how old", "old"}, {"tower", "a tower"}}}
		done(t, work(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)}, `{"user_input": "find", "reasoner": "r", "dispatch": "plan", "solver": {"actor": "agent", "reasoner": "s", "actions": {"x": {}}}}`), `"Done."`)
		require.Contains(t, s.prompt(t, 2), "\n\nReferences:\n#E1 is the result of \"E1\"")
		require.Contains(t, s.prompt(t, 2), "<Attachment id=\"E1\" description=\"The result of the 'E1' agent\">\na tower\n</Attachment>")
	})
	t.Run("NoPlan/AnswerThatSaysSo", func(t *testing.T) {
		t.Parallel()
		for _, said := range []string{"<InstantResponse>You are welcome.</InstantResponse><TaskStatus>Completed</TaskStatus>", `{"task_status": "Completed", "instant_response": "You are welcome."}`,
			"<InstantResponse>You are welcome.</InstantResponse><TaskStatus>Completed</TaskStatus><TaskStatusDescription>1. first\n2. second</TaskStatusDescription>"} {
			r := &reasoner{script: []string{said}}
			done(t, work(t, workgraph.Actors{"r": r, "s": says(`1`)}, planning), `"You are welcome."`)
			require.Contains(t, string(r.asked[0]["system"]), "When there is nothing to plan")
		}
	})
	t.Run("NoPlan/InAConversation", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem></Problems>", "Done.", "You are welcome."}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": says(`1`)})
		done(t, e.run(t, planning), `"Done."`)
		done(t, e.run(t, strings.Replace(planning, `"shop"`, `"thanks", "thread_id": "`+e.threads.root(t)+`"`, 1)), `"You are welcome."`)
	})
	t.Run("NoPlan/IsTold", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"Hm.", "<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem></Problems>", "Done."}}
		done(t, work(t, workgraph.Actors{"r": r, "s": says(`1`)}, planning), `"Done."`)
		require.Contains(t, r.prompt(t, 2), "there is no plan")
	})
}
