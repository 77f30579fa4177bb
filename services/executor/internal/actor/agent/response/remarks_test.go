package response

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemarks(t *testing.T) {
	t.Parallel()
	graph := json.RawMessage(`{"nodes":[]}`)
	for name, c := range map[string]struct {
		in, said string
		status   Status
		graph    bool
	}{
		"Nothing":         {"A -> B", "", Ongoing, true},
		"XML":             {"Well.\n<StructuredResponse><InstantResponse>I plan.</InstantResponse><TaskStatus>Completed</TaskStatus><ProblemGraph>A -> B</ProblemGraph></StructuredResponse>", "I plan.", Ongoing, true},
		"XMLWithActions":  {"<InstantResponse>I plan.</InstantResponse><ImmediateNextActions><Action></Action></ImmediateNextActions>", "I plan.", Ongoing, true},
		"XMLOddStatus":    {"<TaskStatus>Busy</TaskStatus><InstantResponse>I plan.</InstantResponse>", "I plan.", Ongoing, true},
		"XMLPending":      {"<TaskStatus>Pending</TaskStatus><TaskStatusDescription>Which?</TaskStatusDescription>A -> B", "Which?", Pending, false},
		"XMLPendingMute":  {"<TaskStatus>Pending</TaskStatus>A -> B", "", Ongoing, true},
		"JSON":            {"```json\n{\"instant_response\": \"I plan.\", \"tasks\": []}\n```", "I plan.", Ongoing, true},
		"JSONList":        {`[{"task": "a"}]`, "", Ongoing, true},
		"JSONQuotesTags":  {`[{"task": "say <TaskStatus>Pending</TaskStatus><InstantResponse>x</InstantResponse>"}]`, "", Ongoing, true},
		"JSONOddStatus":   {`{"task_status": "Busy", "tasks": []}`, "", Ongoing, true},
		"JSONCutOff":      {`{"tasks": [{"task": "a"`, "", Ongoing, true},
		"JSONPending":     {`{"task_status": "Pending", "instant_response": "Which?", "tasks": []}`, "Which?", Pending, false},
		"JSONOddLearning": {`{"instant_learnings": 7, "instant_response": "x"}`, "", Ongoing, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Remarks(c.in).With(graph)
			require.Equal(t, c.said, r.InstantResponse)
			require.Equal(t, c.status, r.Status)
			require.Equal(t, c.graph, r.Graph != nil)
			require.Empty(t, r.Groups)
		})
	}
}

func FuzzRemarks(f *testing.F) {
	for _, s := range []string{whole, `{"instant_response": "x"}`, "<TaskStatus>Pending", "[{", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := Remarks(s).With(json.RawMessage(`{}`))
		require.Equal(t, r.Status == Pending, r.Graph == nil)
		require.Empty(t, r.Groups)
	})
}

// Groups without an action mean that the agent wanted to act; none at all, that it is done.
func TestEmptyGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want Status
	}{
		"XML/Group":       {`"<InstantResponse>x</InstantResponse><ImmediateNextActions><AlternativeActions></AlternativeActions></ImmediateNextActions>"`, Ongoing},
		"XML/None":        {`"<InstantResponse>x</InstantResponse><ImmediateNextActions></ImmediateNextActions>"`, Completed},
		"XML/Stated":      {`"<InstantResponse>x</InstantResponse><TaskStatus>Completed</TaskStatus><ImmediateNextActions><AlternativeActions/></ImmediateNextActions>"`, Completed},
		"JSON/Group":      {`{"instant_response": "x", "actions": [[], []]}`, Ongoing},
		"JSON/None":       {`{"instant_response": "x", "actions": []}`, Completed},
		"JSON/WithResult": {`{"result": "x", "actions": [[]]}`, Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Read(json.RawMessage(c.in))
			require.NoError(t, err)
			require.Equal(t, c.want, r.Status)
			require.Empty(t, r.Groups)
		})
	}
	for name, in := range map[string]string{"JSON": `{"actions": [[]]}`, "XML": `"<ImmediateNextActions><AlternativeActions></AlternativeActions></ImmediateNextActions>"`} {
		t.Run("Alone/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(json.RawMessage(in))
			require.ErrorContains(t, err, "says nothing", "the reasoner is told, and the loop continues")
		})
	}
}
