package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// flowTests runs `epigraph workflows test`, which needs no server.
func flowTests(t *testing.T, want int, args ...string) (out, notes string) {
	t.Helper()
	var o, e bytes.Buffer
	code := cli.Main(t.Context(), build, append([]string{"workflows", "test"}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
	require.Equal(t, want, code, "%s%s", o.String(), e.String())
	return o.String(), e.String()
}

// TestExamplesOfWorkflows runs the tests of the example workflows.
func TestExamplesOfWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/workflow/*.test.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	out, _ := flowTests(t, 0, append(files, "--parallel", "2")...)
	require.Contains(t, out, " 0 failed")
}

// filesIn returns what writes a file into a folder of the test, and returns its name.
func filesIn(t *testing.T) func(name, text string) string {
	t.Helper()
	dir := t.TempDir()
	return func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
}

// TestFlowTests looks at what is told of tests that fail, and at what a test must not do.
func TestFlowTests(t *testing.T) {
	t.Parallel()
	file := filesIn(t)
	file("w.yaml", `name: W
inputs: {topic: {type: string}}
steps:
  - {id: page, type: http, url: "https://example.org/{{ inputs.topic }}", on_error: {value: {body: none}}}
  - {id: long, type: wait, delay: 30d}
  - {id: said, type: agent, prompt: "Sum up {{ page.body }}", on_error: {value: nothing}}
outputs: {said: "{{ said }}", list: "{{ page.body }}"}
`)
	tests := file("w.test.yaml", `workflow: w.yaml
cases:
  - {name: passes, inputs: {topic: tea}, actors: {http: {body: b}}, model: [{match: Sum up b, text: ok}], expect: {output: {said: ok}, route: [page, long, said], steps: {page: {arguments: {url: "https://example.org/tea"}}}}}
  - {name: differs, inputs: {topic: tea}, actors: {http: {body: [1, 2]}}, model: [{text: ok}], expect: {state: failed, output: {said: no, list: [1, 3], more: 1}, route: [said], steps: {page: {calls: 2, expr: result.body.size() > 2}}, max_calls: 0}}
  - {name: reaches out, inputs: {topic: tea}}
  - {name: fails twice, inputs: {topic: tea}, actors: {http: {fail: {reason: AWAY, message: gone}}}, model: [{text: ok}], expect: {output: {list: none}}}
`)
	t.Run("TellsEveryDifference", func(t *testing.T) {
		t.Parallel()
		report := filepath.Join(t.TempDir(), "r.xml")
		out, _ := flowTests(t, 1, tests, "--run", "passes|differs", "--junit", report)
		for _, want := range []string{
			"ok   passes", "FAIL differs", "state: expected FAILED, got COMPLETED", "route: expected said\n", "got page → long → said",
			`output.said: expected "no", got "ok"`, "output.list[1]: expected 3, got 2", "output.more: expected 1, got nothing",
			"steps.page.calls: expected 2, got 1", "steps.page.expr: result.body.size() > 2 gives false", "max_calls: expected 0 at most, got 1", "1 passed, 1 failed",
		} {
			require.Contains(t, out, want)
		}
		raw, err := os.ReadFile(report)
		require.NoError(t, err)
		var got struct {
			Suites []struct {
				Tests    int `xml:"tests,attr"`
				Failures int `xml:"failures,attr"`
			} `xml:"testsuite"`
		}
		require.NoError(t, xml.Unmarshal(raw, &got))
		require.Equal(t, 2, got.Suites[0].Tests)
		require.Equal(t, 1, got.Suites[0].Failures)
	})
	t.Run("RefusesWhatWouldReachTheWorld", func(t *testing.T) {
		t.Parallel()
		out, _ := flowTests(t, 1, tests, "--run", "reaches", "--json")
		var got struct {
			Failed int
			Cases  []struct{ Failures []string }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Equal(t, 1, got.Failed)
		all := strings.Join(got.Cases[0].Failures, "\n")
		require.Contains(t, all, "the step \"page\" calls the actor `http`, which has no stand-in", "also where the step goes on after a failure")
		require.Contains(t, all, "no reply of `model` matches")
	})
	t.Run("RepliesThatNobodyAsksForAreTold", func(t *testing.T) {
		t.Parallel()
		unsaid := file("unsaid.test.yaml", `workflow: w.yaml
cases:
  - {name: said, inputs: {topic: tea}, actors: {http: {body: b}}, model: [{match: Sum up, text: ok}, {match: Never, text: x, optional: true}]}
  - {name: unsaid, inputs: {topic: tea}, actors: {http: {body: b}}, model: [{match: Sum up, text: ok}, {match: Sum up, text: again}, {match: Never, text: x}]}
`)
		out, _ := flowTests(t, 1, unsaid)
		require.Contains(t, out, "ok   said")
		require.Contains(t, out, `model[1]: no model has asked for the reply to "Sum up"`)
		require.Contains(t, out, `model[2]: no model has asked for the reply to "Never"`)
		require.Contains(t, out, "1 passed, 1 failed")
	})
	t.Run("StandInsFail", func(t *testing.T) {
		t.Parallel()
		flowTests(t, 0, tests, "--run", "fails twice")
	})
	t.Run("FaultsOfTheFileAreTold", func(t *testing.T) {
		t.Parallel()
		bad := file("bad.test.yaml", "workflow: w.yaml\ncases:\n  - name: x\n    expect: {steps: {pgae: {calls: 1}}}\n")
		_, notes := flowTests(t, 1, bad)
		require.Contains(t, notes, "bad.test.yaml:4:")
		require.Contains(t, notes, "did you mean `page`?")
	})
	t.Run("PrintsItsSchema", func(t *testing.T) {
		t.Parallel()
		out, _ := flowTests(t, 0, "--schema")
		require.True(t, json.Valid([]byte(out)))
	})
}

// TestFlowTestsRecord records what a server says, and plays it without one.
func TestFlowTestsRecord(t *testing.T) {
	model := fakellm.New(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
		return fakellm.Reply{Text: "Tea is warm."}, true
	}})
	base, err := model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	stop := sync.OnceValue(model.Close)
	t.Cleanup(func() { _ = stop() })
	t.Setenv("OPENAI_BASE_URL", base)
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	write("w.yaml", "name: W\ninputs: {topic: {type: string}}\nsteps:\n  - {id: said, type: agent, prompt: \"Say {{ inputs.topic }}\"}\noutputs: {said: \"{{ said }}\"}\n")
	const text = "workflow: w.yaml\ncases:\n  - {name: tea, inputs: {topic: tea}, cassette: tea.jsonl, expect: {output: {said: \"Tea is warm.\"}, max_calls: 1}}\n"
	tests := write("w.test.yaml", text)
	t.Run("Cassette/IsRecorded", func(t *testing.T) {
		flowTests(t, 0, tests, "--record")
		raw, err := os.ReadFile(filepath.Join(dir, "tea.jsonl"))
		require.NoError(t, err)
		require.Contains(t, string(raw), "Tea is warm.")
		require.NotContains(t, string(raw), "sk-secret")
	})
	t.Run("Cassette/IsRecordedAnew", func(t *testing.T) {
		flowTests(t, 0, tests, "--record")
	})
	t.Run("Cassette/IsPlayedWithoutTheServer", func(t *testing.T) {
		require.NoError(t, stop())
		flowTests(t, 0, tests)
	})
	t.Run("Cassette/WithoutTheCallFails", func(t *testing.T) {
		other := write("other.test.yaml", strings.Replace(text, "topic: tea", "topic: milk", 1))
		out, _ := flowTests(t, 1, other)
		require.Contains(t, out, "FAIL tea")
	})
}
