package workflow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

const testSchemaFile = "../docs/workflow.test.schema.json"

func TestReadTest(t *testing.T) {
	t.Parallel()
	t.Run("AllOfIt", func(t *testing.T) {
		t.Parallel()
		f, faults := ReadTest([]byte(`
workflow: digest.yaml
cases:
  - name: one
    inputs: {topic: tea}
    user: ada
    model: [{match: a, text: {b: 1}, optional: true}, {text: x, tool_calls: [{name: t, arguments: {c: 2}}]}]
    actors: {http: [{status: 200}, {fail: away}, {fail: {type: RETRYABLE, reason: BUSY}}], mail: null}
    answers: {ask: [1, 2], other: yes}
    allow: http
    budget: {usd: 1}
    timeout: 5s
    expect:
      state: failed
      route: {ran: [a], not_ran: b}
      output: {x: 1}
      error: BUSY
      steps: {a: {result: 1, arguments: {u: 1}, calls: 2, expr: result == 1}}
      cost: 0.5
      max_calls: 3
`))
		require.Empty(t, faults)
		c := f.Cases[0]
		require.Equal(t, "digest.yaml", f.Workflow)
		require.Equal(t, []ScriptedReply{{Match: "a", Text: `{"b":1}`, Optional: true}, {Text: "x", Calls: []ScriptedCall{{"t", json.RawMessage(`{"c":2}`)}}}}, c.Model)
		require.Len(t, c.Actors["http"], 3)
		require.Equal(t, &StandInFailure{Type: "PERMANENT", Reason: "STAND_IN", Message: "away"}, c.Actors["http"][1].Fail)
		require.Equal(t, "BUSY", c.Actors["http"][2].Fail.Reason)
		require.JSONEq(t, "null", string(c.Actors["mail"][0].Result))
		require.Len(t, c.Answers["ask"], 2)
		require.Equal(t, 5*time.Second, c.Timeout)
		require.Equal(t, "FAILED", c.Expect.State)
		require.Equal(t, []string{"b"}, c.Expect.NotRan)
		require.Equal(t, 3, *c.Expect.MaxCalls)
		require.Equal(t, 2, *c.Expect.Steps[0].Calls)
	})
	t.Run("ARunThatIsExpectedToFailNeedsNoState", func(t *testing.T) {
		t.Parallel()
		f, faults := ReadTest([]byte("workflow: a.yaml\ncases: [{name: x, expect: {error: E}}, {name: y}]"))
		require.Empty(t, faults)
		require.Equal(t, "FAILED", f.Cases[0].Expect.State)
		require.Equal(t, "COMPLETED", f.Cases[1].Expect.State)
	})
	t.Run("FaultsAreToldAtOnceWithTheirPlaces", func(t *testing.T) {
		t.Parallel()
		_, faults := ReadTest([]byte("workflow: a.yaml\ncases:\n  - name: x\n    cassette: c\n    model: [{text: a}]\n    allow: [mail]\n    expect: {state: done, steps: {a: {expr: \"1 +\"}}}\n  - name: x\n    inptus: {}\n"))
		var got []string
		for _, f := range faults {
			got = append(got, f.Code)
			require.Positive(t, f.Line)
		}
		require.Equal(t, []string{"CONTRADICTION", "NOT_SUPPORTED", "UNKNOWN_WORD", "EXPRESSION_INVALID", "DUPLICATE_ID", "UNKNOWN_KEY"}, got)
		require.Contains(t, faults.Error(), "did you mean `inputs`?")
	})
	t.Run("StepsThatTheWorkflowDoesNotHave", func(t *testing.T) {
		t.Parallel()
		d, faults := Read([]byte("name: x\nsteps: [{id: letter, type: transform, template: a}]"))
		require.Empty(t, faults)
		f, faults := ReadTest([]byte("workflow: a.yaml\ncases: [{name: x, expect: {route: [letter], steps: {leter: {calls: 1}}}}]"))
		require.Empty(t, faults)
		faults = f.Check(d)
		require.Len(t, faults, 1)
		require.Contains(t, faults[0].String(), "did you mean `letter`?")
	})
}

// TestTestSchemaIsPublished compares the schema of tests with the file that editors use.
func TestTestSchemaIsPublished(t *testing.T) {
	t.Parallel()
	if os.Getenv("UPDATE_SCHEMA") != "" {
		require.NoError(t, os.WriteFile(testSchemaFile, TestSchema(), 0o644))
	}
	want, err := os.ReadFile(testSchemaFile)
	require.NoError(t, err)
	require.Equal(t, string(want), string(TestSchema()), "write the file: UPDATE_SCHEMA=1 go test ./workflow -run SchemaIsPublished")
}

// testFiles are the tests of the examples.
func testFiles(t testing.TB) [][]byte {
	files, err := filepath.Glob("../examples/workflow/*.test.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	out := make([][]byte, len(files))
	for i, file := range files {
		out[i], err = os.ReadFile(file)
		require.NoError(t, err)
	}
	return out
}

func TestTestSchema(t *testing.T) {
	t.Parallel()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(TestSchema())))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("test.json", doc))
	s, err := c.Compile("test.json")
	require.NoError(t, err)
	t.Run("AcceptsTheExamples", func(t *testing.T) {
		t.Parallel()
		for _, src := range testFiles(t) {
			_, faults := ReadTest(src)
			require.Empty(t, faults, "%s", src)
			require.NoError(t, checked(t, s, readSource(&teller{}, src)), "%s", src)
		}
	})
	t.Run("RefusesAnUnknownKey", func(t *testing.T) {
		t.Parallel()
		require.Error(t, checked(t, s, readSource(&teller{}, []byte("workflow: a\ncases: [{name: x, expect: {outptu: 1}}]"))))
	})
}

// FuzzReadTest looks for texts on which the reader panics, or gives neither tests nor faults.
func FuzzReadTest(f *testing.F) {
	for _, src := range testFiles(f) {
		f.Add(src)
	}
	f.Add([]byte("workflow: a\ncases: [{name: x, actors: {a: {fail: {}}}, expect: {route: {}, steps: {a: {expr: 1}}}}]"))
	f.Fuzz(func(t *testing.T, src []byte) {
		got, faults := ReadTest(src)
		require.Equal(t, got == nil, len(faults) > 0)
		require.LessOrEqual(t, len(faults), maxFaults)
		if got != nil {
			require.NotEmpty(t, got.Cases)
		}
	})
}
