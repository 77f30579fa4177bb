package workflow_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workgraph"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// compiled is the graph of a text that has no fault.
func compiled(t testing.TB, src string) *workgraph.Graph {
	t.Helper()
	d, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	return g
}

// faultsOf are the faults of a text, in reading or else in compiling it.
func faultsOf(src string) workflow.Faults {
	d, faults := workflow.Read([]byte(src))
	if d == nil {
		return faults
	}
	_, faults = workflow.Compile(d)
	return faults
}

// edges are those of a graph, in order, conditions in brackets.
func edges(g *workgraph.Graph) []string {
	var out []string
	for _, e := range g.Edges {
		s := e.From + " -> " + e.To
		if e.When != "" {
			s += " [" + e.When + "]"
		}
		out = append(out, s)
	}
	return out
}

// actors are what the steps of these tests call. Those that would ask somebody answer with what they
// are asked.
func actors(t testing.TB) workgraph.Actors {
	echo := func(args ...string) workgraph.Actor {
		return workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			for _, name := range args {
				if v := c.Named[name]; v != nil {
					return workgraph.Outcome{Values: []json.RawMessage{v}}, nil
				}
			}
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage("null")}}, nil
		})
	}
	all := workgraph.Actors{
		"cel": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			var src string
			if err := json.Unmarshal(c.Named["expr"], &src); err != nil {
				return workgraph.Outcome{}, err
			}
			e, err := workgraph.CompileExpr(ctx, src)
			if err != nil {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "EXPR", "%v", err)
			}
			v, err := e.EvalIn(ctx, c)
			if err != nil {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "EXPR", "%v", err)
			}
			return workgraph.Outcome{Values: []json.RawMessage{v}}, nil
		}),
		"agent": echo("user_input"), "llm": echo("request"), "human": echo("prompt"), "sleep": echo("seconds"), "http": echo("url"), "starlark": echo("script"), "spawn": workgraph.ActorFunc(spawn), "echo": echo("say"),
	}
	maps.Copy(all, flow.Actors())
	return all
}

// spawn runs the graph that it is given as a run of its own; of a workflow by name it gives the input.
func spawn(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	if c.Named["graph"] == nil {
		return workgraph.Outcome{Values: []json.RawMessage{c.Named["input"]}}, nil
	}
	g, err := workgraph.Decode(c.Named["graph"])
	if err != nil {
		return workgraph.Outcome{}, err
	}
	var in workgraph.Input
	if err := json.Unmarshal(c.Named["input"], &in); err != nil {
		return workgraph.Outcome{}, err
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{{Graph: g, Input: in}}, AsResult: true}}}, nil
}

// run runs a text with an input and returns its result.
func run(t testing.TB, src, input string) workgraph.Result {
	t.Helper()
	var in workgraph.Input
	if input != "" {
		require.NoError(t, json.Unmarshal([]byte(input), &in.Named))
	}
	res, err := workgraph.Run(t.Context(), compiled(t, src), actors(t), in)
	require.NoError(t, err)
	return res
}

func TestSequence(t *testing.T) {
	t.Parallel()
	g := compiled(t, `
name: Nightly digest
trigger: {type: manual}
steps:
  - {id: pull, type: code, snippet: "return 1"}
  - {id: sum, type: agent, prompt: "Summarize", tools: [http, {actor: mcp/files/read, name: read, with: {scope: team}}]}
  - {type: transform, template: "Digest: {{ sum }} of {{ pull.output }}"}
`)
	require.Equal(t, []string{"inputs -> pull", "pull -> sum", "sum -> transform_3"}, edges(g))
	require.Equal(t, "Nightly digest", g.Name)
	var script string
	require.NoError(t, json.Unmarshal(g.Nodes[1].Named["script"], &script))
	require.Equal(t, "def main(inputs):\n    return 1", script)
	require.JSONEq(t, `{"http": {"actor": "http"}, "read": {"actor": "mcp/files/read", "named": {"scope": "team"}}}`, string(g.Nodes[2].Named["actions"]))
	require.Equal(t, []workgraph.ResultUse{{Mark: "{{ sum }}", Node: "sum"}, {Mark: "{{ pull.output }}", Node: "pull"}}, g.Nodes[3].Bind["value"].Uses)
}

const switched = `
name: T
steps:
  - {id: cls, type: transform, expr: "{'category': input.named.c}"}
  - id: sw
    type: switch
    rules: [{field: cls.category, value: x, route: bx}, {field: cls.category, value: y, route: by}]
    default: bz
  - {id: bx, type: transform, template: 1}
  - {id: by, type: transform, template: 2}
  - {id: bz, type: transform, template: 3}
  - {id: after, type: merge, mode: first}
`

// TestSwitch joins the ends of all branches, as the author means it.
func TestSwitch(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"inputs -> cls", "cls -> sw", `sw -> bx [result.route == "bx"]`, `sw -> by [result.route == "by"]`, `sw -> bz [result.route == "bz"]`,
		"bx -> after", "by -> after", "bz -> after",
	}, edges(compiled(t, switched)))
	for c, want := range map[string]string{`"x"`: "1", `"y"`: "2", `"z"`: "3", `7`: "3"} {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			res := run(t, switched, `{"c": `+c+`}`)
			require.Equal(t, workgraph.StatusCompleted, res.Status, "%s", res.Reason)
			require.JSONEq(t, want, string(res.Result))
		})
	}
	t.Run("without a default", func(t *testing.T) {
		t.Parallel()
		src := strings.Replace(switched, "    default: bz\n", "", 1)
		src = strings.Replace(src, "  - {id: bz, type: transform, template: 3}\n", "", 1)
		res := run(t, src, `{"c": "q"}`)
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, "sw: CHECK_FAILED")
	})
	t.Run("steps of its own", func(t *testing.T) {
		t.Parallel()
		src := `
name: T
steps:
  - id: sw
    type: switch
    rules:
      - field: inputs.n
        operator: gt
        value: 10
        steps:
          - {id: large, type: transform, expr: "nodes.inputs.result.n * 2"}
          - {id: larger, type: transform, expr: "{{ large }} + 1"}
    default: continue
  - {id: end, type: transform, expr: "has(nodes.larger) ? nodes.larger.result : -1"}
`
		require.JSONEq(t, "41", string(run(t, src, `{"n": 20}`).Result))
		require.JSONEq(t, "-1", string(run(t, src, `{"n": 2}`).Result))
	})
}

// TestOperators evaluates every operator of rules.
func TestOperators(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, operator, with, want string }{
		{`"a"`, "equals", `a`, "true"}, {`1`, "equals", `1.0`, "true"}, {`"1"`, "equals", `1`, "false"}, {`null`, "equals", `null`, "true"},
		{`"a"`, "not_equals", `b`, "true"}, {`3`, "gt", `2`, "true"}, {`2`, "gte", `2`, "true"}, {`1.5`, "lt", `2`, "true"}, {`2`, "lte", `1`, "false"},
		{`"abc"`, "contains", `b`, "true"}, {`["a", "b"]`, "contains", `b`, "true"}, {`{"k": 1}`, "contains", `k`, "true"}, {`"abc"`, "not_contains", `z`, "true"},
		{`"abc"`, "starts_with", `ab`, "true"}, {`"abc"`, "ends_with", `bc`, "true"}, {`"a1"`, "matches", `"[a-z][0-9]"`, "true"},
		{`"a"`, "in", `[a, b]`, "true"}, {`"c"`, "not_in", `[a, b]`, "true"}, {`true`, "is_true", ``, "true"}, {`false`, "is_false", ``, "true"}, {`0`, "is_false", ``, "false"},
		{`""`, "is_empty", ``, "true"}, {`[]`, "is_empty", ``, "true"}, {`{}`, "is_empty", ``, "true"}, {`[0]`, "is_not_empty", ``, "true"}, {`0`, "exists", ``, "true"}, {`0`, "not_exists", ``, "false"},
		{`"abc"`, "not_starts_with", `b`, "true"}, {`"abc"`, "not_starts_with", `a`, "false"}, {`"abc"`, "not_ends_with", `b`, "true"}, {`"a1"`, "not_matches", `"[a-z][0-9]"`, "false"}, {``, "not_matches", `a`, "true"},
		{`"2026-01-31T18:00:00+02:00"`, "before", `"2026-01-31T17:00:00Z"`, "true"}, {`"2026-01-31"`, "before_or_equal", `"2026-01-31"`, "true"}, {`"2026-02-01"`, "after", `"2026-01-31T23:59:59Z"`, "true"},
		{`"2026-01-31"`, "after_or_equal", `"2026-02-01"`, "false"}, {`"2026-13-01"`, "after", `"2026-01-31"`, "false"}, {`"soon"`, "before", `"2026-01-31"`, "false"}, {`5`, "before", `"2026-01-31"`, "false"},
		{`"abc"`, "length_eq", `3`, "true"}, {`[1, 2]`, "length_neq", `2`, "false"}, {`{"a": 1}`, "length_gt", `0`, "true"}, {`[]`, "length_gte", `0`, "true"}, {`"ab"`, "length_lt", `2`, "false"}, {`"ab"`, "length_lte", `2`, "true"},
		{`5`, "length_eq", `1`, "false"}, {``, "length_neq", `1`, "true"},
		// A field that is not there satisfies what is negative.
		// One of another type satisfies nothing else.
		{`"x"`, "gt", `1`, "false"}, {`1`, "lt", `b`, "false"}, {`"a"`, "lt", `b`, "true"}, {`null`, "starts_with", `n`, "false"}, {`[1]`, "matches", `x`, "false"}, {`null`, "contains", `n`, "false"},
		{``, "equals", `a`, "false"}, {``, "not_equals", `a`, "true"}, {``, "exists", ``, "false"}, {``, "not_exists", ``, "true"}, {``, "is_empty", ``, "true"}, {``, "gt", `1`, "false"},
	} {
		t.Run(c.value+" "+c.operator+" "+c.with, func(t *testing.T) {
			t.Parallel()
			with := ""
			if c.with != "" {
				with = ", value: " + c.with
			}
			in := `{}`
			if c.value != "" {
				in = `{"x": {"y": [` + c.value + `]}}`
			}
			res := run(t, `
name: T
steps:
  - {id: check, type: assertion, rules: [{field: "{{ inputs . x.y[0] }}", operator: `+c.operator+with+`}], pass_threshold: 0}
  - {id: end, type: transform, expr: "{{ check.results }}[0]"}
`, in)
			require.Equal(t, workgraph.StatusCompleted, res.Status, "%+v", res)
			require.JSONEq(t, c.want, string(res.Result))
		})
	}
}

// TestOperatorsByOtherNames tells what to write in place of the names of other platforms.
func TestOperatorsByOtherNames(t *testing.T) {
	t.Parallel()
	for other, here := range map[string]string{"does_not_exist": "not_exists", "matches_regex": "matches", "greater_than": "gt", "==": "equals"} {
		_, faults := workflow.Read([]byte("name: T\nsteps: [{id: a, type: assertion, rules: [{field: inputs.x, operator: '" + other + "', value: 1}]}]"))
		require.Len(t, faults, 1)
		require.Equal(t, "write `"+here+"`", faults[0].Hint)
		require.Equal(t, 1, strings.Count(faults[0].String(), "error["))
	}
	_, faults := workflow.Read([]byte("name: T\nsteps: [{id: a, type: assertion, rules: [{field: inputs.x, operator: before, value: soon}, {field: inputs.x, operator: length_gt, value: -1}]}]"))
	require.Len(t, faults, 2)
	require.Equal(t, []string{"BAD_TIME", "OUT_OF_RANGE"}, []string{faults[0].Code, faults[1].Code})
}

// TestSteps runs one workflow with every type of step.
func TestSteps(t *testing.T) {
	t.Parallel()
	src := `
name: Everything
version: 1.2
description: Every type of step once.
tags: [all, test]
inputs: {topic: {type: string}}
triggers: [manual, {type: manual}]
model: small
budget: {usd: 0.5, tokens: 10000}
agents:
  writer: {instructions: You write., tools: [agent/helper], max_rounds: 4}
steps:
  - {id: fetch, type: http, url: "https://example.org/{{ inputs.topic }}", retry: 5, timeout: 30s}
  - parallel:
      - {id: kind, type: categorizer, prompt: "What is {{ fetch }}?", categories: [news, {name: tea, description: All about tea}]}
      - - {id: facts, type: extractor, prompt: "{{ fetch }}", schema: {city: {type: string}}}
        - {id: count, type: code, code: "result = len(facts)"}
  - {id: both, type: merge}
  - {id: list, type: transform, value: [{n: 1, t: "{{ inputs.topic }}"}, {n: 5, t: x}]}
  - {id: some, type: filter, over: list, rules: [{field: n, operator: gt, value: 2}]}
  - {id: sure, type: assertion, rules: [{field: "some[0].n", value: 5}, {field: some, operator: is_not_empty}]}
  - {id: write, type: agent, agent: writer, prompt: "Write about {{ inputs.topic }}: {{ some[0].t }}"}
  - {id: own, type: agent, prompt: "Look at it.", system_prompt: Be brief., on_error: {value: nothing}}
  - {id: ask, type: human, message: "Shall we send {{ write }}?", choices: [yes it is, no]}
  - {id: nap, type: wait, delay: 2, delay_unit: minutes}
  - {id: other, type: workflow, workflow: send-mail@1, payload: {text: "{{ write }}"}}
  - {id: any, type: actor, actor: echo, with: {say: {deep: ["{{ ask }}"]}}, needs: [ask, nap]}
  - {id: reply, type: reply_chat, message: "Sent: {{ write }}", needs: [other, any]}
outputs: {said: "{{ reply }}", from: "{{ inputs.topic }}", passed: "{{ sure.passed }}"}
`
	res := run(t, src, `{"topic": "tea"}`)
	require.Equal(t, workgraph.StatusCompleted, res.Status, "%+v", res)
	require.JSONEq(t, `{"said": "Sent: Write about tea: x", "from": "tea", "passed": true}`, string(res.Result))
	g := compiled(t, src)
	raw, err := json.MarshalIndent(g, "", "  ")
	require.NoError(t, err)
	golden(t, "everything.json", string(raw)+"\n")
	t.Run("what is said about it", func(t *testing.T) {
		t.Parallel()
		d, faults := workflow.Read([]byte(src))
		require.Empty(t, faults)
		require.Equal(t, []string{"1.2", "Every type of step once.", "all test", "said from passed"},
			[]string{d.Version, d.Description, strings.Join(d.Tags, " "), strings.Join(d.Outputs, " ")})
		require.EqualValues(t, 500_000_000, *d.Budget.NanoUSD())
		require.EqualValues(t, 10_000, *d.Budget.Tokens)
		place, ok := d.Place("facts")
		require.True(t, ok)
		require.Equal(t, 16, place.Line)
		place, ok = d.Place("inputs")
		require.True(t, ok)
		require.Equal(t, 6, place.Line)
		_, ok = d.Place("nobody")
		require.False(t, ok)
	})
}

// TestFaults tells all faults at once, each with its place and how to mend it.
func TestFaults(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "faults")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".yaml")
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile(filepath.Join(dir, f.Name()))
			require.NoError(t, err)
			faults := faultsOf(string(src))
			require.NotEmpty(t, faults)
			var b strings.Builder
			lines := strings.Split(string(src), "\n")
			for _, x := range faults {
				b.WriteString(x.String() + "\n")
				if x.Line > 0 && x.Line <= len(lines) {
					fmt.Fprintf(&b, "    %s\n    %s^\n", lines[x.Line-1], strings.Repeat(" ", x.Column-1))
				}
			}
			golden(t, filepath.Join("faults", name+".txt"), b.String())
		})
	}
}

// TestRefused refuses what would mean something else than it says.
func TestRefused(t *testing.T) {
	t.Parallel()
	const sw = "  - {id: a, type: wait, delay: 1}\n  - {id: sw, type: switch, rules: [{field: a.x, value: 1, route: b}], default: continue}\n"
	for name, c := range map[string]struct{ steps, code string }{
		"an empty parallel":            {"  - parallel: []", "EMPTY"},
		"empty branches":               {"  - {id: a, type: wait, delay: 1}\n" + strings.Repeat("  - parallel: [[],[],[],[],[],[],[],[],[],[]]\n", 12), "EMPTY"},
		"too many ways":                {"  - parallel: [" + strings.Repeat("{type: wait, delay: 1},", 300) + "]\n  - parallel: [" + strings.Repeat("{type: wait, delay: 1},", 300) + "]", "TOO_LARGE"},
		"a tag that claims to be true": {"  - {id: a, type: wait, delay: 1}\n  - {type: assertion, rules: [{field: a, value: !!bool \"1) || (true\"}]}", "BAD_TAG"},
		"a tag of a number":            {"  - {type: transform, template: !!int \"[[1]]\"}", "BAD_TAG"},
		"needs beside a route":         {sw + "  - {id: b, type: wait, delay: 1, needs: [a]}", "NEEDS_BESIDE_ROUTE"},
		"needs within a switch":        {"  - {id: a, type: wait, delay: 1}\n  - {type: switch, rules: [{field: a.x, value: 1, steps: [{type: wait, delay: 1, needs: [a]}]}], default: continue}", "NEEDS_BESIDE_ROUTE"},
		"a branch that may not run":    {sw + "  - {id: b, type: wait, delay: 1}\n  - {type: transform, template: \"{{ b }}\"}", "MAY_NOT_RUN"},
		"a route into a switch":        {"  - {id: a, type: wait, delay: 1}\n  - {type: switch, rules: [{field: a.x, value: 1, steps: [{id: x, type: wait, delay: 1}]}, {field: a.x, value: 2, route: x}], default: continue}", "ROUTE_LEADS_INTO"},
		"a word of expressions":        {"  - {id: in, type: wait, delay: 1}", "BAD_ID"},
		"the name of a route":          {"  - {id: rule_1, type: wait, delay: 1}", "BAD_ID"},
		"a reference in a rule":        {"  - {id: a, type: wait, delay: 1}\n  - {type: assertion, rules: [{field: a.x, value: \"{{ a.y }}\"}]}", "REFERENCE_NOT_FILLED"},
		"a reference in instructions":  {"  - {type: agent, system_prompt: \"{{ a }}\"}", "REFERENCE_NOT_FILLED"},
		"a workflow without version":   {"  - {type: workflow, workflow: send-mail}", "BAD_NAME"},
		"a unit without a number":      {"  - {type: wait, delay: 3h, delay_unit: days}", "FIELD_NOT_USED"},
		"a mark within a text":         {"  - {id: a, type: wait, delay: 1}\n  - {type: transform, expr: \"'Hi {{ a }}'\"}", "BAD_REFERENCE"},
		"an expression":                {"  - {type: transform, expr: \"1 +\"}", "BAD_EXPRESSION"},
		"a script":                     {"  - {type: code, code: \"def (\"}", "BAD_SCRIPT"},
		"an assertion tried again":     {"  - {id: a, type: wait, delay: 1}\n  - {type: assertion, retry: 3, rules: [{field: a.x, value: 1}]}", "FIELD_NOT_USED"},
		"an item that there is not":    {"  - {type: switch, rules: [{field: item.x, value: 1, steps: [{type: wait, delay: 1}]}], default: continue}", "UNKNOWN_STEP"},
		"an input that may be missing": {"  - {type: transform, template: \"{{ inputs.y }}\"}", "MAY_BE_MISSING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := faultsOf("name: x\ninputs: {type: object, required: [x], properties: {x: {type: string}, y: {type: string}}}\nsteps:\n" + c.steps + "\n")
			require.NotEmpty(t, faults)
			require.Equal(t, c.code, faults[0].Code, "%s", faults)
		})
	}
	t.Run("an agent told in every step", func(t *testing.T) {
		t.Parallel()
		faults := faultsOf("name: x\nagents: {w: {instructions: \"" + strings.Repeat("x", 500_000) + "\"}}\nsteps:\n" + many("  - {id: s%d, type: agent, agent: w}\n", 5_000))
		require.Equal(t, "TOO_LARGE", faults[0].Code)
	})
}

// TestOrder keeps the order that the text states.
func TestOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps string
		want  []string
	}{
		"parallel behind needs": {"  - {id: a, type: wait, delay: 1}\n  - {id: b, type: wait, delay: 1, needs: [a]}\n  - parallel: [{id: c, type: wait, delay: 1}, {id: d, type: wait, delay: 1}]\n",
			[]string{"inputs -> a", "a -> b", "b -> c", "b -> d"}},
		"switches within branches": {"  - {id: a, type: wait, delay: 1}\n  - parallel:\n" +
			"    - [{id: b, type: wait, delay: 1}, {id: s, type: switch, rules: [{field: a.x, value: 1, steps: [{id: t, type: switch, rules: [{field: a.y, value: 1, steps: [{id: u, type: wait, delay: 1}]}], default: continue}]}], default: continue}]\n" +
			"    - {id: c, type: wait, delay: 1}\n  - {id: d, type: transform, template: \"{{ b }} {{ c }}\"}\n",
			[]string{"inputs -> a", "a -> b", "b -> s", `s -> t [result.route == "rule_1"]`, `t -> u [result.route == "rule_1"]`, "a -> c",
				"u -> d", `t -> d [result.route == "continue"]`, `s -> d [result.route == "continue"]`, "c -> d"}},
		"needs of nothing": {"  - {id: a, type: wait, delay: 1, needs: []}\n  - {id: b, type: wait, delay: 1, needs: []}\n  - {id: c, type: merge}\n",
			[]string{"inputs -> a", "inputs -> b", "a -> c", "b -> c"}},
		"all routes of a switch": {"  - {id: a, type: wait, delay: 1}\n  - {id: s, type: switch, rules: [{field: a.x, value: 1, route: b}], default: c}\n  - {id: b, type: wait, delay: 1}\n  - {id: c, type: wait, delay: 1}\n" +
			"  - {id: d, type: wait, delay: 1}\n  - {id: e, type: transform, template: \"{{ a }} {{ d }} {{ s.route }}\"}\n",
			[]string{"inputs -> a", "a -> s", `s -> b [result.route == "b"]`, `s -> c [result.route == "c"]`, "b -> d", "c -> d", "d -> e"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, edges(compiled(t, "name: x\nsteps:\n"+c.steps)))
		})
	}
}

// TestScripts writes scripts so that the actor takes them.
func TestScripts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ code, want string }{
		"statements":        {"result = inputs['a']", "inputs, b = named[\"inputs\"], named[\"b\"]\nresult = inputs['a']"},
		"a body":            {"return b + 1\n", "def main(inputs, b):\n    return b + 1\n"},
		"an indented body":  {"if b:\n  return 1\nelse:\n  return 2\n", "def main(inputs, b):\n    if b:\n      return 1\n    else:\n      return 2\n"},
		"return in a text":  {"result = \"\"\"\nreturn\n\"\"\"\n", "inputs, b = named[\"inputs\"], named[\"b\"]\nresult = \"\"\"\nreturn\n\"\"\"\n"},
		"texts keep blanks": {"x = \"\"\"a\nb\"\"\"\nreturn x\n", "def main(inputs, b):\n    x = \"\"\"a\nb\"\"\"\n    return x\n"},
		"a function":        {"def f():\n  return 1\nresult = f()", "inputs, b = named[\"inputs\"], named[\"b\"]\ndef f():\n  return 1\nresult = f()"},
		"fenced":            {"```python\nreturn 1\n```", "def main(inputs, b):\n    return 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := json.Marshal(c.code)
			require.NoError(t, err)
			g := compiled(t, `{"name": "x", "steps": [{"id": "b", "type": "wait", "delay": 1}, {"type": "code", "code": `+string(raw)+`}]}`)
			var got string
			require.NoError(t, json.Unmarshal(g.Nodes[2].Named["script"], &got))
			require.Equal(t, c.want, got)
		})
	}
}

// TestPlaces finds the same places in JSON.
func TestPlaces(t *testing.T) {
	t.Parallel()
	faults := faultsOf("{\n  \"name\": \"ö\", \"stepz\": [],\n  \"steps\": [\n    {\"type\": \"code\", \"code\": \"1\", \"x\": {\"y\": 1}},\n    {\"type\": \"cod\"}\n  ]\n}")
	require.Equal(t, "2:16: stepz: error[UNKNOWN_KEY]: a workflow has no key `stepz`; did you mean `steps`?\n"+
		"4:35: steps[0].x: error[UNKNOWN_KEY]: a step of the type code has no key `x`; use `parallel`, `type`, `id`, `needs`, `set`, `retry`, `timeout`, `cache`, `on_error`, `code`, `snippet` or `language`\n"+
		"5:14: steps[1].type: error[UNKNOWN_WORD]: the type of a step cannot be `cod`; did you mean `code`?", faults.Error())
}

// TestBounds refuses what is too large before work is done on it.
func TestBounds(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for name, c := range map[string]struct{ src, code string }{
		"long":           {"name: " + strings.Repeat("x", workflow.MaxBytes), "TOO_LARGE"},
		"deep YAML":      {"name: x\nsteps: " + deep, "TOO_DEEP"},
		"deep JSON":      {`{"name": "x", "steps": ` + deep + `}`, "TOO_DEEP"},
		"very deep":      {"a: " + strings.Repeat("[", 100_000), "SYNTAX"},
		"many values":    {"name: x\nsteps: [" + strings.Repeat("1,", 200_000) + "1]", "TOO_LARGE"},
		"many keys":      {"name: x\n" + strings.Repeat("k: 1\n", 60_000), "DUPLICATE_KEY"},
		"alias":          {"name: &a x\nsteps: [*a]", "ALIAS"},
		"merge":          {"name: x\n<<: {a: 1}\nsteps: []", "BAD_KEY"},
		"not text":       {"name: \xff", "NOT_TEXT"},
		"empty":          {"", "EMPTY"},
		"two documents":  {"name: x\n---\nname: y", "SEVERAL_DOCUMENTS"},
		"no mapping":     {"- a", "NOT_A_WORKFLOW"},
		"infinite":       {"name: x\nsteps: [.inf]", "BAD_NUMBER"},
		"many refs":      {"name: x\nsteps: [{type: transform, template: \"" + many("{{ s%d }}", 200) + "\"}]", "TOO_LARGE"},
		"many faults":    {"name: x\nsteps: [" + strings.Repeat("{type: x},", 1000) + "]", "UNKNOWN_WORD"},
		"a bomb of refs": {"name: x\nsteps: [{type: transform, template: \"" + strings.Repeat("{{", 300_000) + "\"}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := faultsOf(c.src)
			require.LessOrEqual(t, len(faults), 100)
			if c.code == "" {
				require.Empty(t, faults)
				return
			}
			require.NotEmpty(t, faults)
			require.Equal(t, c.code, faults[0].Code, "%s", faults[0])
			require.Less(t, len(faults.Error()), 64<<10)
		})
	}
}

// many are n texts of a format with a number.
func many(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// chain is a workflow of n steps, each with the result of the one before.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("name: Chain\nsteps:\n  - {id: s0, type: transform, template: 0}\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, "  - {id: s%d, type: transform, template: \"after {{ s%d }}\"}\n", i, i-1)
	}
	return b.String()
}

// mixed has n steps of many kinds that name each other, 20 in each round: values, models, ways that part and
// join, loops, maps and calls.
func mixed(n int) string {
	var b strings.Builder
	b.WriteString(`name: Mixed
inputs: {url: {type: string}, words: {type: array}}
state: {notes: {type: array, reducer: append}}
agents: {writer: {description: Writes letters., instructions: You write., max_rounds: 5}}
steps:
`)
	for i := range n / 20 {
		b.WriteString(strings.ReplaceAll(`  - {id: words_N, type: transform, expr: "{{ inputs.words }}.map(w, {'word': w, 'round': N, 'long': w.size() > 3})"}
  - {id: long_N, type: filter, over: words_N, rules: [{field: long, operator: is_true}]}
  - {id: sure_N, type: assertion, rules: [{field: words_N, operator: is_not_empty}]}
  - {id: length_N, type: code, code: "return len(inputs['words'])"}
  - {id: page_N, type: http, url: "{{ inputs.url }}/N", on_error: {value: {body: nothing}}}
  - {id: kind_N, type: categorizer, prompt: "What is {{ page_N.body }} about?", categories: [drinks, other]}
  - {id: facts_N, type: extractor, prompt: "Take the first word out of {{ long_N }}", schema: {first: {type: string}}}
  - {id: letter_N, type: agent, agent: writer, prompt: "Write about {{ facts_N.first }}"}
  - {id: way_N, type: router, field: kind_N.category, routes: {drinks: pour_N, other: look_N}, default: continue}
  - {id: pour_N, type: transform, template: "poured {{ letter_N }}"}
  - {id: look_N, type: transform, template: looked}
  - {id: one_N, type: merge, from: [pour_N, look_N], mode: first}
  - parallel:
      - {id: nap_N, type: wait, delay: 0.01}
      - {id: ask_N, type: human, message: "Go on with {{ facts_N.first }}?", choices: ["yes", "no"]}
  - {id: each_N, type: loop, over: words_N, as: word, body: [{id: note_N, type: transform, template: "{{ each_N.index }}: {{ word.word }}", set: {notes: "{{ note_N }}"}}]}
  - {id: beside_N, type: map, over: words_N, as: word, body: [{id: loud_N, type: transform, template: "{{ word.word }}!"}]}
  - {id: sub_N, type: workflow, workflow: double@1, payload: {n: "{{ length_N }}"}}
  - {id: said_N, type: set, state: {notes: "{{ letter_N }} {{ one_N }} {{ length_N }}"}}
`, "N", fmt.Sprint(i)))
	}
	return b.String()
}

func TestLong(t *testing.T) {
	t.Parallel()
	require.Len(t, compiled(t, chain(1000)).Nodes, 1001)
	compiled(t, mixed(1000))
}

func BenchmarkCompile(b *testing.B) {
	for name, of := range map[string]func(int) string{"chain": chain, "mixed": mixed} {
		for _, n := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				src := []byte(of(n))
				b.SetBytes(int64(len(src)))
				for b.Loop() {
					d, faults := workflow.Read(src)
					require.Empty(b, faults)
					_, faults = workflow.Compile(d)
					require.Empty(b, faults)
				}
			})
		}
	}
}

// FuzzRead looks for texts that make reading or compiling fail in another way than by faults, and for
// graphs that the machine refuses.
func FuzzRead(f *testing.F) {
	f.Add(switched)
	f.Add(`{"name": "x", "steps": [{"type": "wait", "delay": "1m"}]}`)
	f.Add("name: x\nsteps:\n  - parallel: [{type: code, code: 'result = 1'}, [{type: merge, from: [code_1]}]]\n  - {type: filter, over: \"{{ a.b[0] }}\", rules: [{field: x, operator: in, value: [1]}]}")
	f.Add("name: x\nstate: {n: {type: integer, reducer: add}, l: {reducer: append}}\nsteps:\n  - {id: l, type: loop, over: inputs.a, as: x, body: [{id: i, type: loop, until: \"{{ state.n }} > {{ i.index }}\", on_limit: fail, body: [{type: set, state: {n: 1}}, {parallel: [{type: transform, template: \"{{ x }}\"}, {type: wait, delay: 1}]}]}]}\n  - {type: transform, template: \"{{ l.last[0] }}\", set: {l: \"{{ l }}\"}}")
	f.Add("name: x\nstate: {n: {}}\nsteps:\n  - {id: m, type: map, over: [1], as: y, on_item_error: continue, body: [{id: r, type: router, field: y, routes: {a: b}, default: continue}, {id: b, type: code, code: 'return y'}, {type: map, over: inputs.l, body: [{type: transform, template: \"{{ y }} {{ state.n }} {{ m.index }}\"}]}]}\n  - {type: deep_agent, prompt: \"{{ m[0] }}\", subagents: [{name: a, instructions: b}]}")
	f.Add("name: x\nsteps:\n  - {id: l, type: loop, while: {any: [{field: a, operator: not_exists}], all: [{field: l.index, operator: lt, value: 3}], expr: \"true\"}, body: [{id: a, type: identify_user}, {type: switch, rules: [{field: a.user_id, value: x, steps: [{type: merge}]}], default: continue}]}")
	f.Fuzz(func(t *testing.T, src string) {
		d, faults := workflow.Read([]byte(src))
		if d == nil {
			require.NotEmpty(t, faults)
			return
		}
		g, faults := workflow.Compile(d)
		if g == nil {
			require.NotEmpty(t, faults)
			return
		}
		runs(t, g, src)
	})
}

// runs requires that the machine takes a graph, and those within it.
func runs(t *testing.T, g *workgraph.Graph, src string) {
	if len(g.Nodes) > 200 {
		return
	}
	_, err := workgraph.Compile(t.Context(), g, known{})
	var found workgraph.Faults
	if err != nil {
		require.ErrorAs(t, err, &found)
		for _, x := range found {
			require.Contains(t, []string{"BAD_EXPRESSION", "BAD_ACTOR", "BAD_SCHEMA", "BAD_CHECK", "BAD_BINDING", "BAD_ARGUMENT", "BAD_TIMEOUT", "OUT_OF_RANGE"}, x.Code, "%v\n%s", x, src)
		}
	}
	for i := range g.Nodes {
		if raw := g.Nodes[i].Named["graph"]; g.Nodes[i].Map != nil && raw != nil {
			child, err := workgraph.Decode(raw)
			require.NoError(t, err)
			runs(t, child, src)
		}
	}
}

// known knows every actor.
type known struct{}

func (known) ActorInfo(string) (workgraph.ActorInfo, bool) {
	return workgraph.ActorInfo{Effect: workgraph.Pure}, true
}

// BenchmarkWorst compiles texts that were made to take long.
func BenchmarkWorst(b *testing.B) {
	for name, src := range map[string]string{
		"independent": "name: x\nsteps:\n" + many("  - {id: s%d, type: wait, delay: 1, needs: []}\n", 10_000),
		"one join":    "name: x\nsteps:\n  - parallel:\n" + many("    - {id: s%d, type: wait, delay: 1}\n", 9_000) + "  - {type: merge, mode: list}\n",
		"switches":    "name: x\nsteps:\n  - {id: a, type: wait, delay: 1}\n  - parallel:\n" + many("    - {id: s%d, type: switch, rules: [{field: a.x, value: 1, steps: []}], default: continue}\n", 4_000) + "  - {type: wait, delay: 1}\n",
		"faults":      "name: x\nsteps:\n" + many("  - {id: s%d, type: transform, template: \"{{ nobody }}\"}\n", 10_000),
		"long rules":  "name: x\nsteps:\n  - {id: a, type: wait, delay: 1}\n  - type: assertion\n    rules:\n" + strings.Repeat("      - {field: a"+strings.Repeat(".b", 110)+", value: 1}\n", 3_000),
		"bad refs":    "name: x\nsteps:\n  - {type: transform, template: \"" + strings.Repeat("{{ ! }} ", 100_000) + "\"}\n",
		"deep loops":  "name: x\nsteps: " + strings.Repeat("[{type: loop, over: [1], body: ", 20) + "[{type: wait, delay: 1}]" + strings.Repeat("}]", 20),
		"deep maps":   "name: x\nsteps: " + strings.Repeat("[{type: map, over: [1], body: ", 20) + "[{type: transform, template: \"" + strings.Repeat("x", 900_000) + "\"}]" + strings.Repeat("}]", 20),
		"loops":       "name: x\nsteps:\n" + many("  - {id: l%d, type: loop, over: [1], body: [{type: transform, template: \"{{ item }}\"}]}\n", 2_400),
		"maps":        "name: x\nsteps:\n" + many("  - {id: m%d, type: map, over: [1], body: [{type: transform, template: \"{{ item }} {{ inputs.a }}\"}]}\n", 2_400),
		"states":      "name: x\nstate: {" + many("k%d: {},", 99) + "k99: {}}\nsteps:\n" + many("  - {id: s%d, type: transform, template: \"{{ state.k1 }}\", set: {k1: 1}}\n", 5_000),
		"long loop":   "name: x\nsteps:\n  - {id: l, type: loop, over: [1], body: [" + many("{id: s%d, type: transform, template: \"{{ item }}\"},", 4_800) + "]}",
		"quotes":      "name: \"" + strings.Repeat(`\"`, 400_000) + "\"\nsteps: []\n",
		"brackets":    "name: x\nsteps: [" + strings.Repeat("[],", 90_000) + "]\n",
		"keys":        "name: x\n" + many("k%d: 1\n", 90_000),
		"flow":        "name: {a: {b: {c: " + strings.Repeat("{d: ", 60) + strings.Repeat("}", 63),
		"indent":      "name: x\nsteps:\n" + strings.Repeat(" ", 500_000) + "x",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				faultsOf(src)
			}
		})
	}
}

// TestWorkflowsAsActors names a workflow where an actor is named: by a step, a tool and a member of a team.
func TestWorkflowsAsActors(t *testing.T) {
	t.Parallel()
	graph := func(t *testing.T, src string) string {
		t.Helper()
		d, faults := workflow.Read([]byte(src))
		require.Empty(t, faults)
		g, faults := workflow.Compile(d)
		require.Empty(t, faults)
		raw, err := json.Marshal(g)
		require.NoError(t, err)
		return string(raw)
	}
	t.Run("AStep", func(t *testing.T) {
		t.Parallel()
		const step = "name: x\nsteps: [{id: a, type: %s, %s: {topic: tea}}]"
		require.Equal(t, graph(t, fmt.Sprintf(step, "workflow, workflow: digest@1", "payload")), graph(t, fmt.Sprintf(step, "actor, actor: workflow/digest@1", "with")))
	})
	t.Run("ATool", func(t *testing.T) {
		t.Parallel()
		got := graph(t, "name: x\nsteps: [{id: a, type: agent, prompt: p, tools: [workflow/digest@1, {actor: workflow/mail@2, name: send, with: {to: ada}}]}]")
		require.Contains(t, got, `"digest_1":{"actor":"spawn"`)
		require.Contains(t, got, `"ref":"workflow/digest@1"`)
		require.Contains(t, got, `"input":{"named":{"to":"ada"}}`)
	})
	t.Run("AMember", func(t *testing.T) {
		t.Parallel()
		const team = "name: x\nagents: {a: {instructions: i}, b: {%s: %sdigest@1}}\ngraph: [a, b]"
		require.Equal(t, graph(t, fmt.Sprintf(team, "workflow", "")), graph(t, fmt.Sprintf(team, "actor", "workflow/")))
	})
	t.Run("ItsVersionIsNamed", func(t *testing.T) {
		t.Parallel()
		_, faults := workflow.Read([]byte("name: x\nagents: {b: {actor: workflow/digest}}\nsteps: [{id: a, type: actor, actor: workflow/digest}, {id: b, type: agent, prompt: p, tools: [workflow/digest]}]"))
		require.Len(t, faults, 3)
		for _, f := range faults {
			require.Equal(t, "BAD_NAME", f.Code)
		}
	})
}
