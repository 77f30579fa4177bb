package workflow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// base is what the forks of the tests are based on.
const base = `name: Research bot
description: Reads and writes.
trigger: manual
model: small
agents:
  helper: {instructions: Help., tools: [http]}
steps:
  - {id: fetch, type: http, url: "https://example.org"}
  - {id: old, type: wait, delay: 5s}
  - id: writer
    type: agent
    prompt: |
      Answer in English.
      Be brief: {{ fetch.body }}
    tools: [run/command, {actor: mcp/files/read, name: read}]
  - {id: ask, type: human, message: "Send {{ writer }}?", choices: ["yes", "no"], needs: [writer, old]}
  - parallel:
      - {id: a, type: transform, template: 1}
      - - {id: b, type: transform, template: 2}
        - {id: c, type: code, code: "result = 3"}
  - id: which
    type: switch
    rules:
      - {field: ask, value: "yes", route: send}
      - {field: ask, value: maybe, steps: [{id: later, type: wait, delay: 1h}]}
    default: continue
  - {id: send, type: actor, actor: mail}
  - {type: merge}
outputs: {letter: "{{ writer }}"}
`

// forked is the text of a fork without faults, which compiles.
func forked(t testing.TB, src, patches string) string {
	t.Helper()
	out, faults := workflow.Fork([]byte(src), []byte("based_on: research-bot@2\npatches:\n"+patches))
	require.Empty(t, faults)
	again, faults := workflow.Fork([]byte(src), []byte("based_on: research-bot@2\npatches:\n"+patches))
	require.Empty(t, faults)
	require.Equal(t, string(out), string(again))
	compiled(t, string(out))
	return string(out)
}

// TestB8 has the situations of the original's fork mode, each by name.
func TestB8(t *testing.T) {
	t.Parallel()
	require.Empty(t, faultsOf(base))
	for name, c := range map[string]struct {
		patch string
		// has and hasNot are pieces of the result.
		has, hasNot []string
	}{
		"update_prompt":                   {`- {action: update_prompt, step_id: writer, prompt: "Answer in German"}`, []string{"prompt: Answer in German"}, []string{"English"}},
		"update_prompt of a code step":    {`- {action: update_prompt, step_id: c, snippet: "result = 4"}`, []string{"code: result = 4"}, []string{"result = 3"}},
		"update_prompt of a human step":   {`- {action: update_prompt, step_id: ask, prompt: "Really?"}`, []string{`message: Really?`, `choices: ["yes", "no"]`}, nil},
		"update_prompt of an agent":       {`- {action: update_prompt, agent_id: helper, prompt: "Help more."}`, []string{"instructions: Help more."}, nil},
		"add_step behind another":         {`- {action: add_step, after: fetch, step: {id: clean, type: code, snippet: "return fetch"}}`, []string{"{id: clean, type: code, snippet: return fetch}"}, nil},
		"add_step at the end, default id": {`- {action: add_step, step: {type: wait, delay: 1s}}`, []string{"{id: wait_added, type: wait, delay: 1s}"}, nil},
		"remove_step":                     {`- {action: remove_step, step_id: old}`, []string{"needs: [writer, fetch]"}, []string{"id: old"}},
		"add_tool":                        {`- {action: add_tool, step_id: writer, tool: {type: memory_read}}`, []string{"- {type: memory_read}"}, nil},
		"add_tool by the other name":      {`- {action: add_tool, agent_id: helper, tool_type: mail}`, []string{"tools: [http, mail]"}, nil},
		"remove_tool by its node":         {`- {action: remove_tool, tool_node_id: run_command_writer_1}`, []string{"tools:\n      - {actor: mcp/files/read, name: read}"}, []string{"run/command"}},
		"remove_tool by its name":         {`- {action: remove_tool, step_id: writer, tool: read}`, []string{"tools: [run/command]"}, []string{"files/read"}},
		"remove the last tool":            {`- {action: remove_tool, step_id: helper, tool: http}`, []string{"helper: {instructions: Help.}"}, nil},
		"update_config":                   {`- {action: update_config, step_id: writer, config: {max_rounds: 4, tools: null}}`, []string{"max_rounds: 4"}, []string{"files/read"}},
		"update_trigger":                  {`- {action: update_trigger, trigger: {type: manual}}`, []string{"trigger: {type: manual}"}, []string{"trigger: manual"}},
		"update_model":                    {`- {action: update_model, model: large}`, []string{"model: large\nagents:"}, []string{"model: small"}},
		"update_model of a step":          {`- {action: update_model, step_id: writer, model: large}`, []string{"model: small\n", "    model: large\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := forked(t, base, c.patch)
			require.Contains(t, out, "name: Research bot (fork)\n")
			for _, piece := range c.has {
				require.Contains(t, out, piece)
			}
			for _, piece := range c.hasNot {
				require.NotContains(t, out, piece)
			}
		})
	}
}

// TestForkRefused has the situations of the original's errors, which are told, each at its place in the
// text of the fork.
func TestForkRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ patch, code, message string }{
		"not a mapping":               {`- 7`, "NOT_A_MAPPING", "a patch"},
		"no action":                   {`- {step_id: a}`, "MISSING_KEY", "`action`"},
		"unknown action":              {`- {action: update_promt, step_id: a}`, "UNKNOWN_WORD", "update_promt"},
		"update_prompt without step":  {`- {action: update_prompt, prompt: x}`, "MISSING_KEY", "`step_id`"},
		"unknown step":                {`- {action: update_prompt, step_id: writr, prompt: x}`, "UNKNOWN_STEP", "writr"},
		"remove_step of an unknown":   {`- {action: remove_step, step_id: writr}`, "UNKNOWN_STEP", "writr"},
		"update_config of an unknown": {`- {action: update_config, step_id: writr, config: {max_rounds: 4}}`, "UNKNOWN_STEP", "writr"},
		"Unknown tool type":           {`- {action: add_tool, step_id: writer, tool: {type: get_totp_code, issuer: x}}`, "NOT_SUPPORTED", "get_totp_code"},
		"an unknown tool by its name": {`- {action: add_tool, step_id: writer, tool_type: scheduler_tools}`, "NOT_SUPPORTED", "scheduler_tools"},
		"add_step without step":       {`- {action: add_step, after: fetch}`, "MISSING_KEY", "`step`"},
		"add_step of an unknown type": {`- {action: add_step, step: {type: waits}}`, "UNKNOWN_WORD", "waits"},
		"add_step behind nothing":     {`- {action: add_step, after: nobody, step: {type: wait, delay: 1s}}`, "UNKNOWN_STEP", "nobody"},
		"add_step with an id twice":   {`- {action: add_step, step: {id: fetch, type: wait, delay: 1s}}`, "DUPLICATE_ID", "fetch"},
		"remove_step that others use": {`- {action: remove_step, step_id: writer}`, "UNKNOWN_STEP", "this patch removes it"},
		"route to a removed step":     {`- {action: remove_step, step_id: send}`, "UNKNOWN_ROUTE", "this patch removes it"},
		"use of a removed step":       {"- {action: remove_step, step_id: old}\n- {action: update_prompt, step_id: old, prompt: x}", "UNKNOWN_STEP", "was removed by the patch in line 3"},
		"add_tool without tool":       {`- {action: add_tool, step_id: writer}`, "MISSING_KEY", "`tool`"},
		"add_tool to a wait":          {`- {action: add_tool, step_id: old, tool: http}`, "NO_TOOLS", "type wait"},
		"add_tool twice":              {`- {action: add_tool, step_id: writer, tool: run/command}`, "DUPLICATE_ID", "run_command"},
		"remove_tool of nothing":      {`- {action: remove_tool, tool_node_id: x_writer_9}`, "UNKNOWN_TOOL", "x_writer_9"},
		"remove_tool of an unknown":   {`- {action: remove_tool, step_id: writer, tool: x}`, "UNKNOWN_TOOL", "x"},
		"update_config without":       {`- {action: update_config, step_id: writer}`, "MISSING_KEY", "`config`"},
		"update_config of the id":     {`- {action: update_config, step_id: writer, config: {id: x}}`, "NOT_CHANGEABLE", "id"},
		"update_config of a new key":  {`- {action: update_config, step_id: writer, config: {max_steps: 4}}`, "UNKNOWN_KEY", "max_steps"},
		"update_trigger unknown":      {`- {action: update_trigger, trigger: whenever}`, "UNKNOWN_WORD", "whenever"},
		"prompt of a wait":            {`- {action: update_prompt, step_id: old, prompt: x}`, "NO_PROMPT", "wait"},
		"prompt of a code step":       {`- {action: update_prompt, step_id: c, prompt: x}`, "FIELD_NOT_USED", "prompt"},
		"unknown key":                 {`- {action: remove_step, step_id: old, force: true}`, "UNKNOWN_KEY", "force"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, faults := workflow.Fork([]byte(base), []byte("based_on: research-bot\npatches:\n"+c.patch))
			require.Nil(t, out)
			require.NotEmpty(t, faults)
			require.Equal(t, c.code, faults[0].Code, "%v", faults)
			require.Contains(t, faults[0].Message, c.message)
			require.GreaterOrEqual(t, faults[0].Line, 3, "%v", faults)
		})
	}
	t.Run("all patches that cannot be applied are told", func(t *testing.T) {
		t.Parallel()
		_, faults := workflow.Fork([]byte(base), []byte("based_on: x\npatches:\n- {action: remove_step, step_id: q}\n- {action: remove_step, step_id: old}\n- {action: add_tool, step_id: z, tool: y}"))
		require.Len(t, faults, 2)
		require.Equal(t, []int{3, 5}, []int{faults[0].Line, faults[1].Line})
	})
	for src, code := range map[string]string{
		"patches: []": "MISSING_KEY", "based_on: x": "MISSING_KEY", "based_on: 7\npatches: []": "WRONG_TYPE", "based_on: x\npatches: 7": "WRONG_TYPE", "based_on: ''\npatches: []": "BAD_NAME",
		"based_on: x\npatches: []\nsteps: []": "UNKNOWN_KEY", "": "EMPTY", "based_on: x\npatches: [" + strings.Repeat("7,", 201) + "]": "TOO_LARGE",
	} {
		_, faults := workflow.ReadFork([]byte(src))
		require.NotEmpty(t, faults, src)
		require.Equal(t, code, faults[0].Code, src)
	}
	_, faults := workflow.Fork([]byte("name: x"), []byte("based_on: x\npatches: []"))
	require.Equal(t, "BASE_FAULTY", faults[0].Code)
}

// TestForkOrder looks at the order of steps that patches leave.
func TestForkOrder(t *testing.T) {
	t.Parallel()
	step := `{id: new, type: transform, template: 0}`
	for name, c := range map[string]struct{ src, patch, want string }{
		"between two":             {base, `- {action: add_step, after: fetch, step: ` + step + `}`, "inputs -> fetch, fetch -> new, new -> old"},
		"in a branch of one step": {base, `- {action: add_step, after: a, step: ` + step + `}`, "ask -> a, a -> new, ask -> b, b -> c"},
		"in a branch of several":  {base, `- {action: add_step, after: b, step: ` + step + `}`, "b -> new, new -> c"},
		"in the steps of a rule":  {base, `- {action: add_step, after: later, step: ` + step + `}`, "later -> new, which -> send [result.route == \"send\"], new -> merge_8, "},
		"behind one of a switch":  {switched, `- {action: add_step, after: by, step: ` + step + `}`, `by -> new, sw -> bz [result.route == "bz"], bx -> after, new -> after, bz -> after`},
		"a branch is removed":     {base, `- {action: remove_step, step_id: a}`, "ask -> b, b -> c, c -> which"},
		"all branches are removed": {base, "- {action: remove_step, step_id: a}\n- {action: remove_step, step_id: b}\n- {action: remove_step, step_id: c}",
			"writer -> ask, old -> ask, ask -> which"},
		"those that need it need what it needed": {"name: T\nsteps:\n- {id: p, type: transform, template: 1}\n- {id: q, type: transform, template: 1, needs: []}\n- {id: r, type: transform, template: 1, needs: [p, q]}\n- {id: s, type: transform, template: 1, needs: [r, q]}",
			`- {action: remove_step, step_id: r}`, "inputs -> p, inputs -> q, p -> s, q -> s"},
		"the first step": {"name: T\nsteps:\n- {id: p, type: transform, template: 1}\n- {id: q, type: transform, template: 1, needs: [p]}", `- {action: remove_step, step_id: p}`, "inputs -> q"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := forked(t, c.src, c.patch)
			require.Contains(t, strings.Join(edges(compiled(t, out)), ", "), c.want, out)
		})
	}
	t.Run("default ids stay", func(t *testing.T) {
		t.Parallel()
		out := forked(t, "name: T\nsteps:\n- {type: transform, template: 1}\n- {type: transform, template: '{{ transform_1 }}'}", "- {action: add_step, after: transform_1, step: {type: wait, delay: 1s}}\n- {action: update_prompt, step_id: transform_2, prompt: x}")
		require.Equal(t, []string{"inputs -> transform_1", "transform_1 -> wait_added", "wait_added -> transform_2"}, edges(compiled(t, out)))
	})
	t.Run("steps that a config replaces", func(t *testing.T) {
		t.Parallel()
		config := `- {action: update_config, step_id: which, config: {rules: [{field: ask, value: "no", steps: [{id: never, type: wait, delay: 2h}]}, {field: ask, value: "yes", route: send}]}}`
		out := forked(t, base, config+"\n- {action: update_config, step_id: never, config: {delay: 3h}}")
		require.Contains(t, out, "delay: 3h")
		_, faults := workflow.Fork([]byte(base), []byte("based_on: x\npatches:\n"+config+"\n- {action: update_config, step_id: later, config: {delay: 3h}}"))
		require.Equal(t, "UNKNOWN_STEP", faults[0].Code)
	})
}

// definitions are texts without faults, from the examples and the tests.
func definitions(t testing.TB) map[string]string {
	out := map[string]string{"base": base, "switch": switched, "json": `{"name": "😀 a: b", "steps": [{"type": "transform", "template": {"x": ["\u0001", "yes", 1e5, 1E400, " a\n  b \n\n", null, true, "0x1f", "2001-01-01"]}}]}`}
	files, err := filepath.Glob("../examples/workflow/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if strings.HasSuffix(file, ".test.yaml") {
			continue
		}
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		out[file] = string(src)
	}
	return out
}

// TestForkOfNothing has the graph of the base, but for the name.
func TestForkOfNothing(t *testing.T) {
	t.Parallel()
	for name, src := range definitions(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, got := compiled(t, src), compiled(t, forked(t, src, "  []"))
			require.Equal(t, want.Name+" (fork)", got.Name)
			got.Name = want.Name
			a, err := json.Marshal(want)
			require.NoError(t, err)
			b, err := json.Marshal(got)
			require.NoError(t, err)
			require.Equal(t, string(a), string(b))
		})
	}
}

// BenchmarkForkWorst applies as many patches as a fork may have to as many steps as a workflow may have.
func BenchmarkForkWorst(b *testing.B) {
	var src, fork strings.Builder
	src.WriteString("name: T\nsteps:\n")
	fork.WriteString("based_on: x\npatches:\n")
	for i := range 9_000 {
		fmt.Fprintf(&src, "- {id: s%d, type: wait, delay: 1s}\n", i)
	}
	for i := range 100 {
		fmt.Fprintf(&fork, "- {action: add_step, after: s%d, step: {type: wait, delay: 2s}}\n- {action: remove_step, step_id: s%d}\n", i*2, i*2+1)
	}
	for b.Loop() {
		if _, faults := workflow.Fork([]byte(src.String()), []byte(fork.String())); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}

// FuzzFork never makes a text that has faults.
func FuzzFork(f *testing.F) {
	for _, src := range definitions(f) {
		f.Add([]byte(src), []byte("based_on: x\nname: y\npatches: [{action: remove_step, step_id: a}, {action: add_step, after: b, step: {type: wait, delay: 1s}}]"))
	}
	f.Add([]byte(base), []byte("based_on: x\npatches: [{action: add_tool, step_id: writer, tool: {type: z, k: 1}}, {action: update_config, step_id: which, config: {rules: null}}]"))
	f.Add([]byte(base), []byte("based_on: x\npatches: [{action: update_model, model: null}, {action: remove_tool, tool_node_id: read_writer_2}, {action: update_trigger, triggers: [manual]}]"))
	f.Fuzz(func(t *testing.T, src, fork []byte) {
		out, faults := workflow.Fork(src, fork)
		if len(faults) > 0 {
			require.Nil(t, out)
			return
		}
		require.Empty(t, faultsOf(string(out)))
	})
}

// TestForkKeeps has parts of a workflow that forks of it must not lose.
func TestForkKeeps(t *testing.T) {
	t.Parallel()
	t.Run("Conditions", func(t *testing.T) {
		t.Parallel()
		const src = "name: x\nsteps:\n  - {id: a, type: wait, delay: 1}\n  - id: sw\n    type: switch\n    rules:\n      - {field: a, value: 1, steps: [{id: p, type: wait, delay: 1}, {id: q, type: wait, delay: 1}]}\n    default: continue\n  - {id: z, type: wait, delay: 1}\n"
		out := forked(t, src, "- {action: remove_step, step_id: p}")
		require.Equal(t, []string{"inputs -> a", "a -> sw", `sw -> q [result.route == "rule_1"]`, "q -> z", `sw -> z [result.route == "continue"]`}, edges(compiled(t, out)))
	})
	t.Run("APauseForAPerson", func(t *testing.T) {
		t.Parallel()
		const src = "name: x\nsteps:\n  - {id: draft, type: transform, template: A letter}\n  - {id: ask, type: human, message: \"Send {{ draft }}?\", choices: [\"yes\", \"no\"]}\n  - {id: send, type: actor, actor: echo, with: {say: \"{{ ask }}\"}}\n"
		out := forked(t, src, "- {action: update_config, step_id: draft, config: {template: A poem}}\n- {action: add_step, after: draft, step: {id: more, type: wait, delay: 1}}")
		g := compiled(t, out)
		require.Equal(t, []string{"inputs -> draft", "draft -> more", "more -> ask", "ask -> send"}, edges(g))
		asked := g.Nodes[slices.IndexFunc(g.Nodes, func(n workgraph.Node) bool { return n.ID == "ask" })]
		require.Equal(t, "human", asked.Actor)
		require.JSONEq(t, `["yes", "no"]`, string(asked.Named["choices"]))
		require.Equal(t, `"Send A poem?"`, result(t, out, ""), "the person is asked, and the answer goes on")
	})
}
