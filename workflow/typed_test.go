package workflow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

// TestTypes refuses a reference whose value cannot be what is wanted, and takes its neighbors.
func TestTypes(t *testing.T) {
	t.Parallel()
	const head = `
name: x
inputs: {n: {type: integer}, s: {type: string}, b: {type: boolean}, l: {type: array, items: {type: number}}, o: {type: object, properties: {in: {type: object, properties: {x: {type: array}}}}}, m: {type: [string, "null"]}, u: {}}
state: {count: {reducer: add}, title: {type: string}, log: {reducer: append}, free: {}}
steps:
  - {id: ask, type: extractor, prompt: p, schema: {t: {type: string}, deep: {type: object, properties: {k: {type: integer}}, additionalProperties: true}}}
  - {id: go, type: code, code: "return 1"}
  - {id: may, type: extractor, prompt: p, on_error: {value: [1]}, schema: {t: {type: string}}}
`
	const body = ", body: [{type: transform, template: \"{{ item }}\"}]}"
	over := func(what string) string { return "{type: loop, over: \"" + what + "\"" + body }
	rule := func(is string) string { return "{type: assertion, rules: [{" + is + "}]}" }
	for step, says := range map[string]string{
		// What is gone through.
		over("{{ ask }}"): "`over` wants a list, and `ask` is keys and values; the step \"ask\" in line 6 gives it",
		over("inputs.n"):  "is a whole number; `inputs` declares it", over("{{ inputs.l }}"): "", over("{{ inputs.s }}"): "", over("{{ go }}"): "", over("{{ inputs.u }}"): "",
		over("{{ may }}"): "", over("{{ state.log }}"): "", over("{{ inputs.m }}"): "", over("state.count"): "`state` declares it",
		"{type: filter, over: inputs.s, rules: [{field: item, value: 1}]}":                                                                                                    "`over` wants a list",
		"{type: filter, over: inputs.l, rules: [{field: item, value: 1}]}":                                                                                                    "",
		"{type: filter, over: inputs.l, rules: [{field: item, value: one}]}":                                                                                                  "the items of the list have it",
		"{type: filter, over: inputs.o, rules: [{field: item, value: in}]}":                                                                                                   "",
		"{type: map, over: inputs.l, body: [{type: loop, over: \"{{ item }}\"" + body + "]}":                                                                                  "is a number; it is an item of what",
		"{type: map, over: inputs.u, body: [{type: loop, over: \"{{ item }}\"" + body + "]}":                                                                                  "",
		"{id: m, type: map, over: inputs.l, body: [{type: loop, over: \"{{ m.index }}\"" + body + "]}":                                                                        "the items are counted by it",
		"{id: lp, type: loop, over: inputs.l, body: [{type: loop, over: \"{{ lp.index }}\"" + body + "]}":                                                                     "the loop counts its rounds by it",
		"{id: lp, type: loop, over: inputs.l, body: [{type: transform, value: 1}]}\n  - " + over("{{ lp.last }}"):                                                             "is a whole number",
		"{id: lp, type: loop, over: inputs.l, body: [{type: transform, value: 1}]}\n  - " + over("{{ lp }}"):                                                                  "",
		"{id: lp, type: loop, over: inputs.l, body: [{parallel: [{type: set, state: {log: 1}}, {type: code, code: \"return [1]\"}]}]}\n  - " + over("{{ lp.last.code_1_2 }}"): "",
		"{id: mp, type: map, over: inputs.l, on_item_error: continue, body: [{type: transform, value: 1}]}\n  - " + over("{{ mp[0] }}"):                                       "is a whole number or nothing",
		"{id: b, type: best_of, n: 2, body: {id: x, type: transform, value: {p: 1}}, score: \"{{ x.p }}\"}\n  - " + over("{{ b.best.p }}"):                                    "is a whole number",
		"{id: b, type: best_of, n: 2, body: {id: x, type: transform, value: {p: a}}, score: \"{{ x.p }}\"}":                                                                   "`score` wants a number",
		"{id: v, type: transform, value: {a: [\"{{ inputs.n }}\", x]}}\n  - " + over("{{ v.a[0] }}"):                                                                          "",
		"{id: v, type: transform, value: {a: [\"{{ inputs.n }}\", 2]}}\n  - " + over("{{ v.a[0] }}"):                                                                          "is a whole number",
		"{id: v, type: transform, value: \"{{ inputs.n }} of them\"}\n  - " + rule("field: v, operator: gt, value: 1"):                                                        "`gt` wants a number, and `v` is a text",
		"{id: v, type: transform, expr: \"{{ inputs.n }}\"}\n  - " + over("{{ v }}"):                                                                                          "is a whole number",
		"{id: v, type: merge, from: [ask, go]}\n  - " + over("{{ v.ask }}"):                                                                                                   "keys and values or nothing",
		"{id: v, type: merge, from: [ask, go]}\n  - " + over("{{ v.go }}"):                                                                                                    "",
		"{id: v, type: merge, from: [ask, may], mode: list}\n  - " + over("{{ v[0] }}"):                                                                                       "",
		"{id: v, type: merge, from: [ask], mode: first}\n  - " + over("{{ v }}"):                                                                                              "keys and values",
		// Parts.
		over("{{ inputs.o.in.x }}"): "", over("{{ inputs.o.in.y }}"): "`inputs.o.in` has no field", over("{{ ask.deep.k }}"): "is a whole number", over("{{ ask.deep.other }}"): "",
		over("{{ inputs.n.x }}"): "`inputs.n` is a whole number, which has no `.x`", over("{{ inputs.l.x }}"): "`inputs.l` is a list, which has no `.x`", over("{{ inputs.l[0] }}"): "is a number",
		over("{{ inputs.s.x }}"): "", over("{{ inputs.b[0] }}"): "true or false, which has no `[0]`", over("{{ inputs.m.x }}"): "", over("{{ go.a.b[0] }}"): "",
		// Rules.
		rule("field: inputs.n, operator: gt, value: 1"): "", rule("field: inputs.b, operator: gt, value: 1"): "`gt` wants a number", rule("field: inputs.s, operator: gt, value: b"): "",
		rule("field: inputs.s, operator: lte, value: 1"): "is a text", rule("field: inputs.m, operator: equals, value: null"): "", rule("field: inputs.n, value: \"1\""): "without quotes",
		rule("field: inputs.n, value: 1.5"): "", rule("field: inputs.o, operator: contains, value: in"): "", rule("field: inputs.n, operator: starts_with, value: \"1\""): "",
		rule("field: inputs.l, operator: matches, value: a"): "`matches` wants a text", rule("field: inputs.n, operator: length_gt, value: 1"): "`length_gt` wants", rule("field: inputs.m, operator: length_gt, value: 1"): "",
		rule("field: inputs.n, operator: is_true"): "`is_true` wants true or false", rule("field: inputs.b, operator: is_true"): "", rule("field: inputs.n, operator: before, value: \"2026-01-31\""): "wants a text",
		rule("field: inputs.s, operator: in, value: [1, 2]"): "`in` wants a number", rule("field: inputs.s, operator: in, value: [1, a]"): "", rule("field: inputs.s, operator: not_in, value: [null]"): "",
		rule("field: inputs.n, operator: is_empty"): "", rule("field: inputs.n, operator: exists"): "", rule("field: ask.t, operator: equals, value: [1]"): "wants a list",
		"{type: router, field: inputs.n, routes: {\"1\": z}, default: z}\n  - {id: z, type: wait, delay: 1}": "in a rule of a `switch`",
		"{type: router, field: inputs.s, routes: {\"1\": z}, default: z}\n  - {id: z, type: wait, delay: 1}": "",
		// The state.
		"{type: set, state: {title: \"{{ inputs.n }}\"}}": "the key `title` of the state wants a text", "{type: set, state: {title: \"{{ inputs.n }}!\"}}": "", "{type: set, state: {title: \"{{ go }}\"}}": "",
		"{type: set, state: {count: \"{{ inputs.n }}\"}}": "", "{type: set, state: {count: \"{{ inputs.s }}\"}}": "wants a number", "{type: set, state: {log: \"{{ inputs.s }}\"}}": "", "{type: set, state: {free: \"{{ inputs.s }}\"}}": "",
		"{type: wait, delay: 1, set: {title: \"{{ inputs.l }}\"}}": "wants a text", "{type: set, state: {title: \"{{ inputs.m }}\"}}": "",
		// Arguments.
		"{type: wait, delay: \"{{ inputs.n }}\"}": "", "{type: wait, delay: \"{{ inputs.s }}\"}": "`delay` wants a number", "{type: wait, delay: \"{{ inputs.n }}s\"}": "write the reference alone",
		"{type: categorizer, categories: [a, b], prompt: \"{{ inputs.l }}\"}": "`prompt` wants a text", "{type: categorizer, categories: [a, b], prompt: \"Of {{ inputs.l }}\"}": "",
		"{type: agent, prompt: \"{{ inputs.l }}\"}": "", "{type: agent, prompt: p, thread_id: \"{{ inputs.n }}\"}": "`thread_id` wants a text", "{type: human, message: \"{{ inputs.o }}\", choices: \"{{ inputs.l }}\"}": "",
		"{type: http, url: \"{{ inputs.l }}\"}": "`url` wants a text", "{type: http, url: x, headers: \"{{ inputs.o }}\"}": "", "{type: http, url: x, headers: {a: \"{{ inputs.l }}\"}}": "",
		"{type: actor, actor: http, with: {url: \"{{ inputs.n }}\"}}": "`url` wants a text", "{type: actor, actor: mine, with: {url: \"{{ inputs.n }}\"}}": "",
		"{type: loop, until: \"{{ y }}\", body: [{id: y, type: transform, value: 1}]}": "the condition wants true or false", "{type: loop, until: \"{{ y }}\", body: [{id: y, type: transform, value: true}]}": "",
		"{type: loop, until: {field: y, operator: gt, value: 1}, body: [{id: y, type: transform, value: a}]}":            "`gt` wants a number",
		"{type: workflow, workflow: self, payload: {n: \"{{ inputs.s }}\", s: a, b: true, l: [], o: {}, m: null, u: 1}}": "the input `n` wants a whole number", "{type: workflow, workflow: self, payload: {n: 1, s: a, b: true, l: [], o: {}, m: x, u: 1}}": "",
		"{type: workflow, workflow: self, payload: {n: 1, s: a, b: yes please, l: [], o: {}, m: x, u: 1}}": "wants true or false, and this is a text", "{type: workflow, workflow: self, payload: {n: 1, s: a, l: [], o: {}, m: x, u: 1}}": "needs the input \"b\"",
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			faults := faultsOf(head + "  - " + step + "\n")
			if says == "" {
				require.Empty(t, faults)
				return
			}
			require.Len(t, faults, 1)
			require.Contains(t, faults[0].String(), says)
			require.Greater(t, faults[0].Line, 8)
		})
	}
	t.Run("AMemberHearsAText", func(t *testing.T) {
		t.Parallel()
		const team = "name: x\nagents: {a: {instructions: i}, b: {workflow: {name: y, inputs: {task: {type: %}}, steps: [{type: wait, delay: 1}]}}}\ngraph: [a, b]\n"
		require.Empty(t, faultsOf(strings.Replace(team, "%", "string", 1)))
		faults := faultsOf(strings.Replace(team, "%", "integer", 1))
		require.Len(t, faults, 1)
		require.Contains(t, faults[0].String(), "the agent \"b\" hears a text")
	})
	t.Run("ToolsOfATeamSetWhatTheyLike", func(t *testing.T) {
		t.Parallel()
		const src = "name: x\nstate: {n: {type: integer}}\nagents: {a: {instructions: i, tools: [{name: put, parameters: {n: {}}, set: {n: \"{n}\"}}]}, b: {instructions: i}}\nsteps:\n  - {type: team, task: t, graph: [a, b]}\n  - {type: loop, over: state.n, body: [{type: wait, delay: 1}]}\n"
		require.Empty(t, faultsOf(src))
	})
}

// TestExamplesHaveTheirTypes compiles every example.
func TestExamplesHaveTheirTypes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/workflow/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		if workflow.IsFork(src) || strings.HasSuffix(name, ".test.yaml") {
			continue
		}
		require.Empty(t, faultsOf(string(src)), name)
	}
}
