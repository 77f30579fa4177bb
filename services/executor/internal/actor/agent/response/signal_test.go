package response

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTakeSignals(t *testing.T) {
	t.Parallel()
	signal := func(name string, arguments map[string]json.RawMessage) (string, bool, error) {
		switch {
		case name != "go":
			return "", false, nil
		case len(arguments) > 0:
			return "", true, errors.New("no arguments, please")
		}
		return "going", true, nil
	}
	taken := func(t *testing.T, calls string) *Response {
		t.Helper()
		r, err := ReadCalls(json.RawMessage(`{"role": "assistant", "tool_calls": `+calls+`}`), false)
		require.NoError(t, err)
		r.TakeTaskCalls(TaskTools())
		r.TakeSignals(signal)
		return r
	}
	r := taken(t, `[{"id": "1", "name": "a"}, {"id": "2", "name": "task_status", "arguments": {"description": "d"}}, {"id": "3", "name": "go"}, {"id": "4", "name": "go", "arguments": {"x": 1}}, {"id": "5", "name": "b"}]`)
	require.Equal(t, "a{}+b{}", shown(r))
	require.Equal(t, []Signal{{Name: "go", Arguments: map[string]json.RawMessage{}}}, r.Signals)
	require.Equal(t, []TaskCall{{Call: "2", Index: 1, Answer: "noted"}, {Call: "3", Index: 2, Answer: "going", Signal: true},
		{Call: "4", Index: 3, Answer: "no arguments, please", Failed: true}}, r.TaskCalls, "each in its place")
	require.False(t, TaskCall{Signal: true}.Asks(), "a signal without words is no question")

	r = taken(t, `[{"id": "1", "name": "go"}]`)
	require.False(t, r.Acts())
	require.Len(t, r.Signals, 1)
	r = taken(t, `[{"id": "1", "name": "go"}, {"id": "2", "name": "ask_user", "arguments": {"question": "?"}}]`)
	require.Empty(t, r.Signals, "the question comes first")
	r, err := Read(json.RawMessage(`{"actions": ["go"]}`))
	require.NoError(t, err)
	r.TakeSignals(signal)
	require.Equal(t, "go{}", shown(r), "only calls of tools are answered")
}
