package response

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const whole = `Let me see.
` + "```xml" + `
<StructuredResponse>
  <NewTask>true</NewTask>
  <InstantResponse>I'll help you place both orders & pay if 1 < 2.</InstantResponse>
  <TaskStatus>Ongoing</TaskStatus>
  <TaskStatusDescription>Ordering</TaskStatusDescription>
  <TaskStatusDescriptionExtended>Ordering <b>both</b> at once.</TaskStatusDescriptionExtended>
  <ImmediateNextActions>
    <Action><Type>Look.Up</Type></Action>
    <AlternativeActions>
      <Action>
        <Type>Order.Starbucks</Type>
        <Target>coffee</Target>
        <Reasoning>Need to order</Reasoning>
        <IsFollowUp>true</IsFollowUp>
        <MemoryTarget>orders</MemoryTarget>
        <Args><size>large</size><extra>milk</extra><extra>sugar</extra><note><![CDATA[a </note> b]]></note></Args>
      </Action>
      <Action>
        <Type>Order.McDonalds</Type>
        <Args>{"n": 9007199254740993}</Args>
      </Action>
    </AlternativeActions>
    <AlternativeActions></AlternativeActions>
  </ImmediateNextActions>
  <InstantLearnings>
    <InstantLearning><LearningID>l1</LearningID><LearningContent>likes milk</LearningContent></InstantLearning>
    <LearningID>l2</LearningID><LearningContent>&lt;b&gt;</LearningContent>
  </InstantLearnings>
</StructuredResponse>
` + "```" + `
Done.`

func quoted(s string) json.RawMessage {
	b, _ := json.Marshal(s) // texts always marshal
	return b
}

func TestXML(t *testing.T) {
	t.Parallel()
	t.Run("Whole/EveryField", func(t *testing.T) {
		t.Parallel()
		r, err := Read(quoted(whole))
		require.NoError(t, err)
		require.Equal(t, `Look.Up{} > Order.Starbucks{"extra":["milk","sugar"],"note":"a \u003c/note\u003e b","size":"large","target":"coffee"}+Order.McDonalds{"n":9007199254740993}`, shown(r))
		require.True(t, r.NewTask)
		require.Equal(t, Ongoing, r.Status)
		require.Equal(t, "I'll help you place both orders & pay if 1 < 2.", r.InstantResponse)
		require.Equal(t, "Ordering", r.Description)
		require.Equal(t, "Ordering <b>both</b> at once.", r.DescriptionExtended)
		require.Equal(t, []Learning{{"l1", "likes milk"}, {"l2", "<b>"}}, r.Learnings)
		a := r.Groups[1][0]
		require.Equal(t, []any{"Need to order", true, "orders", true}, []any{a.Reasoning, a.FollowUp, a.Memory, a.Texts()})
		require.False(t, r.Groups[1][1].Texts(), "JSON has types of its own")
	})
	for name, c := range map[string]struct {
		in, actions string
		status      Status
		said        string
	}{
		"Completed":          {`<StructuredResponse><TaskStatus>completed</TaskStatus><InstantResponse>all done</InstantResponse></StructuredResponse>`, "result ", Completed, "all done"},
		"NoStatusNoActions":  {`<InstantResponse>Hello.</InstantResponse>`, "result ", Completed, "Hello."},
		"CompletedWithWork":  {`<TaskStatus>Completed</TaskStatus><ImmediateNextActions><Action><Type>a</Type></Action></ImmediateNextActions>`, "a{}", Ongoing, ""},
		"OngoingWithout":     {`<TaskStatus>Ongoing</TaskStatus>`, "result ", Ongoing, ""},
		"PendingQuestion":    {`<TaskStatus>Pending</TaskStatus><InstantResponse>Which size?</InstantResponse>`, "result ", Pending, "Which size?"},
		"PendingBeforeWork":  {`<TaskStatus>Pending</TaskStatus><InstantResponse>May I?</InstantResponse><ImmediateNextActions><Action><Type>a</Type></Action></ImmediateNextActions>`, "result ", Pending, "May I?"},
		"AskingAction":       {`<ImmediateNextActions><Action><Type>UserInputsRequired.Text</Type><Target>Your name?</Target></Action></ImmediateNextActions>`, "result ", Pending, "Your name?"},
		"UnclosedActions":    {`<ImmediateNextActions><AlternativeActions><Action><Type>a</Type><Action><Type>b`, "a{}+b{}", Ongoing, ""},
		"UnclosedLeaf":       {`<ImmediateNextActions><Action><Type>a<Target>x</Action><Action><Type>b</Type></Action>`, `a{"target":"x"} > b{}`, Ongoing, ""},
		"BareAction":         {`<ImmediateNextActions><Action>a</Action></ImmediateNextActions>`, "a{}", Ongoing, ""},
		"OtherTagsAreText":   {`<InstantResponse>Use <div> and <Type>x</Type> & go</InstantResponse>`, "result ", Completed, "Use <div> and <Type>x</Type> & go"},
		"AnyCase":            {`<instantresponse>hi</INSTANTRESPONSE>`, "result ", Completed, "hi"},
		"TwoInstantResponse": {`<InstantResponse>a</InstantResponse><InstantResponse>b</InstantResponse>`, "result ", Completed, "a\nb"},
		"EmptyArgs":          {`<ImmediateNextActions><Action><Type>a</Type><Args/></Action></ImmediateNextActions>`, "a{}", Ongoing, ""},
		"TagsInJSON":         {`{"result": "write <b>"}`, `result "write <b>"`, Completed, "write <b>"},
	} {
		t.Run("Understood/"+name, func(t *testing.T) {
			t.Parallel()
			r, err := Read(quoted(c.in))
			require.NoError(t, err)
			require.Equal(t, c.actions, shown(r))
			require.Equal(t, c.status, r.Status)
			require.Equal(t, c.said, r.InstantResponse)
		})
	}
	for name, c := range map[string]struct{ in, want string }{
		"NoType":       {`<ImmediateNextActions><Action><Target>x</Target></Action></ImmediateNextActions>`, "group 1: an Action has no Type"},
		"BadArgs":      {`<ImmediateNextActions><Action><Type>a</Type><Args>x=1</Args></Action></ImmediateNextActions>`, `the Args of "a"`},
		"BrokenJSON":   {`<ImmediateNextActions><Action><Type>a</Type><Args>{"x": </Args></Action></ImmediateNextActions>`, `the Args of "a"`},
		"BadStatus":    {`<TaskStatus>Nearly</TaskStatus>`, `TaskStatus "Nearly" is none of`},
		"SaysNothing":  {`<StructuredResponse></StructuredResponse>`, "says nothing"},
		"AsksNothing":  {`<TaskStatus>Pending</TaskStatus>`, "nothing is asked"},
		"ManyTags":     {"<ImmediateNextActions>" + strings.Repeat("<Type>", maxTags), "there are more than 20000 tags"},
		"ManyGroups":   {"<ImmediateNextActions>" + strings.Repeat("<Action>a</Action>", maxGroups+1), "there are 1001 groups, far too many"},
		"JSONNoStatus": {`{"task_status": "Nearly"}`, `TaskStatus "Nearly"`},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(quoted(c.in))
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("Hostile/IsReadInTime", func(t *testing.T) {
		t.Parallel()
		for name, part := range map[string]string{"Open": "<Type>", "Brackets": "<", "Actions": "<Action>", "Args": "<Args><x>", "Ends": "</Type>", "CDATA": "<![CDATA[", "Nested": "<AlternativeActions><Action>"} {
			begin := time.Now()
			in := quoted("<ImmediateNextActions><Action><Type>a</Type>" + strings.Repeat(part, 500_000/len(part)))
			_, _ = Read(in) // whatever it says
			require.Less(t, time.Since(begin), 5*time.Second, name)
		}
	})
}

// What a response takes to be read grows with its length, not with the square of it. No other test runs
// beside this one, which looks at all that is allocated.
func TestHostileMemory(t *testing.T) {
	calls := make([]string, maxActions)
	for i := range calls {
		calls[i] = `{"id": "c", "name": "ask_user", "arguments": {"question": "` + strings.Repeat("x", 30) + `"}}`
	}
	for name, in := range map[string]json.RawMessage{
		"Responses": quoted(strings.Repeat("<StructuredResponse>", maxTags)),
		"Said":      quoted(strings.Repeat("<InstantResponse>"+strings.Repeat("x", 70)+"</InstantResponse>", maxTags/2)),
		"Tags":      quoted("<ImmediateNextActions>" + strings.Repeat("<Args>", 170_000)),
		"Questions": json.RawMessage(`{"role": "assistant", "tool_calls": [` + strings.Join(calls, ",") + `]}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if r, err := Read(in); err == nil {
			r.TakeTaskCalls(TaskTools())
			r.TakeSignals(func(string, map[string]json.RawMessage) (string, bool, error) { return "noted", true, nil })
		}
		Remarks(string(in))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100*MaxBytes), name)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	t.Run("ToolCalls/AreOneGroup", func(t *testing.T) {
		t.Parallel()
		r, err := Read(json.RawMessage(`{"role": "assistant", "content": "on it", "tool_calls": [{"id": "c1", "name": "a", "arguments": {"x": 1}}, {"id": "c2", "name": "b", "arguments": "{}"}, {"id": "c3", "name": "c", "arguments": ""}]}`))
		require.NoError(t, err)
		require.Equal(t, `a{"x":1}+b{}+c{}`, shown(r))
		require.Equal(t, []any{Ongoing, "on it", true, "c2"}, []any{r.Status, r.InstantResponse, r.Calls, r.Groups[0][1].Call})
	})
	t.Run("Text/IsReadAsAnyText", func(t *testing.T) {
		t.Parallel()
		r, err := Read(json.RawMessage(`{"role": "assistant", "content": "It is sunny."}`))
		require.NoError(t, err)
		require.Equal(t, `result "It is sunny."`, shown(r))
		require.Equal(t, Completed, r.Status)
	})
	t.Run("Nothing/IsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := Read(json.RawMessage(`{"role": "assistant", "content": ""}`))
		require.ErrorContains(t, err, "no text and calls no tool")
		_, err = Read(json.RawMessage(`{"role": "assistant", "tool_calls": [{"name": "a", "arguments": "[1]"}]}`))
		require.ErrorContains(t, err, `the arguments of "a" must be a JSON object`)
	})
	t.Run("Remarks/OfAJSONDecision", func(t *testing.T) {
		t.Parallel()
		r, err := Read(json.RawMessage(`{"actions": ["a"], "new_task": true, "task_status": "Completed", "task_status_description": "d", "task_status_description_extended": "e",
			"instant_response": "hi", "instant_learnings": [{"id": "1", "content": "c"}]}`))
		require.NoError(t, err)
		require.Equal(t, []any{true, Ongoing, "d", "e", "hi", []Learning{{"1", "c"}}}, []any{r.NewTask, r.Status, r.Description, r.DescriptionExtended, r.InstantResponse, r.Learnings})
		r, err = Read(json.RawMessage(`{"task_status": "Pending", "instant_response": "Which?", "result": null}`))
		require.NoError(t, err)
		require.Equal(t, []any{Pending, "Which?"}, []any{r.Status, r.InstantResponse})
	})
}
