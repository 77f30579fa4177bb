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
		require.Equal(t, []StepPath{{{ID: "b", Item: -1}}}, c.Expect.NotRan)
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
		faults = f.Check(d, nil)
		require.Len(t, faults, 1)
		require.Contains(t, faults[0].String(), "did you mean `letter`?")
	})
}

// TestStepsOfTests looks at what is told of the steps and members that a file of tests names.
func TestStepsOfTests(t *testing.T) {
	t.Parallel()
	d, faults := Read([]byte(`name: x
inputs: {words: {type: array}}
agents:
  ada: {instructions: a}
  bob: {instructions: b}
  eve: {workflow: {name: e, inputs: {task: {type: string}}, steps: [{id: heard, type: transform, template: a}]}}
steps:
  - {id: each, type: map, over: inputs.words, body: [{id: did, type: transform, template: a}, {id: inner, type: map, over: inputs.words, body: [{id: deep, type: transform, template: a}]}]}
  - {id: best, type: best_of, n: 2, body: {id: draft, type: transform, template: a}, score: "{{ best.item }}"}
  - {id: called, type: workflow, workflow: known@1}
  - {id: other, type: workflow, workflow: unknown@1}
  - {id: talk, type: team, task: Talk, graph: {transitions: ["ada -> bob -> eve"]}}
`))
	require.Empty(t, faults)
	known, faults := Read([]byte("name: k\nsteps: [{id: one, type: transform, template: a}, {id: again, type: workflow, workflow: self}]"))
	require.Empty(t, faults)
	stored := map[string]*Definition{"known@1": known}
	check := func(t *testing.T, expect string) string {
		f, faults := ReadTest([]byte("workflow: a.yaml\ncases:\n  - name: x\n    expect: " + expect))
		if len(faults) > 0 {
			return faults.Error()
		}
		return f.Check(d, stored).Error()
	}
	for _, path := range []string{
		"each", "each/did", "each[3]/did", "each/inner/deep", "each[0]/inner[12]/deep", "best/draft", "best[1]/draft", "called/one", "called/again/again/one",
		"other/anything", "other[1]/anything", "talk/ada", "talk/eve/heard", "inputs",
	} {
		t.Run("Known/"+path, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, check(t, `{steps: {"`+path+`": {calls: 1}}, route: {ran: ["`+path+`"]}}`))
		})
	}
	for name, c := range map[string]struct{ expect, want string }{
		"Body":             {`{steps: {each/dit: {}}}`, "4:22: error[UNKNOWN_STEP]: `each` has no step `dit`; did you mean `each/did`?"},
		"BodyOfItem":       {`{steps: {"each[0]/zzzzzz": {}}}`, "4:22: error[UNKNOWN_STEP]: `each[0]` has no step `zzzzzz`; there is `did` and `inner`"},
		"WithoutItsStep":   {`{steps: {did: {}}}`, "4:22: error[UNKNOWN_STEP]: the workflow has no step `did`; it stands within another step: write `each/did`"},
		"DeeplyWithout":    {`{steps: {deep: {}}}`, "4:22: error[UNKNOWN_STEP]: the workflow has no step `deep`; it stands within another step: write `each/inner/deep`"},
		"Member":           {`{steps: {talk/bbo: {}}}`, "4:22: error[UNKNOWN_AGENT]: `talk` has no member `bbo`; did you mean `talk/bob`?"},
		"StepOfMember":     {`{steps: {talk/eve/herd: {}}}`, "4:22: error[UNKNOWN_STEP]: `talk/eve` has no step `herd`; did you mean `talk/eve/heard`?"},
		"Called":           {`{steps: {called/onne: {}}}`, "4:22: error[UNKNOWN_STEP]: `called` has no step `onne`; did you mean `called/one`?"},
		"NothingWithin":    {`{steps: {talk/ada/x: {}}}`, "4:22: error[UNKNOWN_STEP]: nothing stands within `talk/ada` that a test sees; name `talk/ada` alone"},
		"ItemOfNone":       {`{steps: {"talk[0]/ada": {}}}`, "4:22: error[FIELD_NOT_USED]: `talk` has no items; leave `[0]` out"},
		"ItemAlone":        {`{steps: {"each[0]": {}}}`, "4:22: cases[0].expect.steps.each[0]: error[BAD_ID]"},
		"NoPath":           {`{steps: {each//did: {}}}`, `"each//did" is no place of a step: "" is no step; write the id of a step`},
		"TooDeep":          {`{steps: {` + strings.Repeat("a/", maxPathParts) + `a: {}}}`, "a path has 16 steps at most"},
		"InAList":          {`{route: [each/did]}`, "4:22: error[NOT_SUPPORTED]: `each/did` stands within a step; a list has the steps of the workflow itself"},
		"InARoute":         {`{route: {not_ran: [each, each/dit]}}`, "4:38: error[UNKNOWN_STEP]: `each` has no step `dit`; did you mean `each/did`?"},
		"SpeakerIsUnknown": {`{steps: {talk: {spoke: [ada, bbo]}}}`, "4:42: error[UNKNOWN_AGENT]: `talk` has no member `bbo`; did you mean `talk/bob`?"},
		"SpokeInNoTeam":    {`{steps: {each: {spoke: [ada]}}}`, "4:22: error[FIELD_NOT_USED]: `each` is no team"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, check(t, c.expect), c.want)
		})
	}
}

// FuzzReadStepPath looks for paths that are not written as they were read.
func FuzzReadStepPath(f *testing.F) {
	for _, text := range []string{"a", "a/b", "a[0]/b", "a[12]/b[3]/c", "a[01]/b", "a[]", "/", "a[999999999]/b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path, err := ReadStepPath(text)
		if err != nil {
			require.Nil(t, path)
			return
		}
		require.LessOrEqual(t, len(path), maxPathParts)
		require.Equal(t, text, path.String())
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
