package workflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

func read(t testing.TB, src string) *workflow.Definition {
	t.Helper()
	d, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	return d
}

// TestDiff tells what patches have changed.
func TestDiff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ patch, want string }{
		"nothing": {`[]`, ""},
		"prompt":  {`[{action: update_prompt, step_id: writer, prompt: "Answer in English.\nBe short: {{ fetch.body }}\n"}]`, "step writer: prompt changed from \"Answer in English.\\nBe brief: {{ fetch.body }}\\n\" to \"Answer in English.\\nBe short: {{ fetch.body }}\\n\"\n"},
		"long":    {`[{action: update_config, step_id: which, config: {rules: [{field: ask, value: "yes", route: send}, {field: ask, value: perhaps, steps: []}]}}]`, "step later removed: {\"type\":\"wait\",\"delay\":\"1h\"}\nstep which: rules changed from …k\",\"value\":\"maybe\",\"steps\":[]}] to …k\",\"value\":\"perhaps\",\"steps\":[]}]\n"},
		"short":   {`[{action: update_model, model: large}, {action: update_config, step_id: old, config: {delay: 6s}}]`, "model changed from \"small\" to \"large\"\nstep old: delay changed from \"5s\" to \"6s\"\n"},
		"added":   {`[{action: add_step, after: later, step: {id: new, type: wait, delay: 1s}}]`, "step new added: {\"type\":\"wait\",\"delay\":\"1s\"}\n"},
		"removed": {`[{action: remove_step, step_id: old}]`, "step old removed: {\"type\":\"wait\",\"delay\":\"5s\"}\nstep ask: needs changed from [\"writer\",\"old\"] to [\"writer\",\"fetch\"]\n"},
		"agent":   {`[{action: add_tool, step_id: helper, tool: mail}, {action: update_config, step_id: helper, config: {max_rounds: 3}}]`, "agent helper: tools changed from [\"http\"] to [\"http\",\"mail\"]\nagent helper: max_rounds added: 3\n"},
		"tools":   {`[{action: update_config, step_id: writer, config: {tools: null}}]`, "step writer: tools removed: [\"run/command\",{\"actor\":\"mcp/files/read\",\"name\":\"read\"}]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, faults := workflow.Fork([]byte(base), []byte("based_on: x\nname: Research bot\npatches: "+c.patch))
			require.Empty(t, faults)
			got := workflow.Diff(read(t, base), read(t, string(out)))
			require.Equal(t, c.want, got.String())
			back := workflow.Diff(read(t, string(out)), read(t, base))
			require.Len(t, back, len(got))
		})
	}
	t.Run("moved", func(t *testing.T) {
		t.Parallel()
		const src = "name: T\nsteps: [{id: a, type: wait, delay: 1s}, {id: b, type: wait, delay: 1s}, {id: c, type: wait, delay: 1s}, {parallel: [{id: d, type: wait, delay: 1s}, {id: e, type: wait, delay: 1s}]}]"
		moved := "name: T\nsteps: [{id: b, type: wait, delay: 1s}, {id: c, type: wait, delay: 1s}, {id: a, type: wait, delay: 1s}, {parallel: [[{id: e, type: wait, delay: 1s}, {id: d, type: wait, delay: 1s}]]}]"
		require.Equal(t, "step a moved, was first, is behind c\nstep e moved, was first of branch 2, is first of branch 1\n",
			workflow.Diff(read(t, src), read(t, moved)).String())
		require.Empty(t, workflow.Diff(read(t, src), read(t, src)))
	})
	t.Run("keys in another order", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, workflow.Diff(read(t, "{name: T, model: m, budget: {usd: 1, tokens: 2}, steps: [{id: a, type: transform, template: {x: 1, y: [{p: 1, q: 2}]}}]}"),
			read(t, "{budget: {tokens: 2, usd: 1}, model: m, name: T, steps: [{type: transform, template: {y: [{q: 2, p: 1}], x: 1}, id: a}]}")))
	})
	t.Run("steps within others", func(t *testing.T) {
		t.Parallel()
		got := workflow.Diff(read(t, base), read(t, strings.Replace(base, "delay: 1h", "delay: 2h", 1)))
		require.Equal(t, workflow.Changes{{Path: "steps.later.delay", Kind: workflow.Changed, Before: `"1h"`, After: `"2h"`}}, got)
	})
}

// BenchmarkDiff compares two definitions of 10,000 steps in opposite order.
func BenchmarkDiff(b *testing.B) {
	var up, down strings.Builder
	up.WriteString("name: T\nsteps:\n")
	down.WriteString("name: T\nsteps:\n")
	for i := range 10_000 {
		fmt.Fprintf(&up, "- {id: s%d, type: wait, delay: 1s}\n", i)
		fmt.Fprintf(&down, "- {id: s%d, type: wait, delay: 1s}\n", 10_000-i)
	}
	x, y := read(b, up.String()), read(b, down.String())
	for b.Loop() {
		if len(workflow.Diff(x, y)) < 9_000 {
			b.Fatal("too few")
		}
	}
}

// FuzzDiff finds no change from a definition to itself, and as many there as back.
func FuzzDiff(f *testing.F) {
	for _, src := range definitions(f) {
		f.Add([]byte(src), []byte(base))
	}
	f.Fuzz(func(t *testing.T, p, q []byte) {
		a, _ := workflow.Read(p)
		b, _ := workflow.Read(q)
		if a == nil || b == nil {
			return
		}
		require.Empty(t, workflow.Diff(a, a))
		there, back := workflow.Diff(a, b), workflow.Diff(b, a)
		if len(there) > 0 || len(back) > 0 {
			require.NotEmpty(t, there)
			require.NotEmpty(t, back)
		}
		_ = there.String()
	})
}

// TestDiffOfManyKeys compares texts near the bound on values. The cost must grow with the keys, not with
// their square, which is ten billion.
func TestDiffOfManyKeys(t *testing.T) {
	t.Parallel()
	keys := func(value int) string {
		var b strings.Builder
		b.WriteString(`{"name": "x", "steps": [{"type": "transform", "template": {`)
		for i := range 95_000 {
			fmt.Fprintf(&b, `"%d":%d,`, i, value)
		}
		b.WriteString(`"":0}}]}`)
		return b.String()
	}
	require.Len(t, workflow.Diff(read(t, keys(1)), read(t, keys(2))), 95_000)
}
