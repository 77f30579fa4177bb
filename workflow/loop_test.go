package workflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// result is that of a text whose run completes.
func result(t *testing.T, src, input string) string {
	t.Helper()
	res := run(t, src, input)
	require.Equal(t, workgraph.StatusCompleted, res.Status, "%s %s\n%s", res.Reason, res.Message, drawn(t, src))
	return string(res.Result)
}

func drawn(t *testing.T, src string) string {
	t.Helper()
	raw, err := json.MarshalIndent(compiled(t, src), "", " ")
	require.NoError(t, err)
	return string(raw)
}

// TestLoop goes round for each item of a list, in the graph itself.
func TestLoop(t *testing.T) {
	t.Parallel()
	t.Run("items", func(t *testing.T) {
		t.Parallel()
		src := `
name: T
steps:
  - {id: src, type: transform, template: {items: "{{ inputs.list }}"}}
  - id: lp
    type: loop
    over: src.items
    as: word
    body:
      - {id: twice, type: transform, expr: "{{ word }} + {{ lp.item }}"}
      - {id: told, type: transform, template: "{{ lp.index }}: {{ twice }} of {{ src.items }}"}
  - {id: done, type: transform, value: {all: "{{ lp }}", first: "{{ lp[0] }}", last: "{{ lp.last }}"}}
`
		require.Equal(t, []string{
			"inputs -> src", "src -> lp.list", "lp.list -> lp", "lp -> twice [!result.done]", "twice -> told", "told -> lp [true]", "lp -> lp.results [result.done]", "lp.results -> done",
		}, edges(compiled(t, src)))
		require.JSONEq(t, `{"all": ["0: aa of [\"a\",\"b,]\"]", "1: b,]b,] of [\"a\",\"b,]\"]"], "first": "0: aa of [\"a\",\"b,]\"]", "last": "1: b,]b,] of [\"a\",\"b,]\"]"}`, result(t, src, `{"list": ["a", "b,]"]}`))
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[]`, result(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: inputs.l, body: [{type: transform, template: 1}]}\n  - {type: transform, template: \"{{ lp }}\"}\n", `{"l": []}`))
	})
	t.Run("more than allowed", func(t *testing.T) {
		t.Parallel()
		res := run(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: inputs.l, max_iterations: 2, body: [{type: transform, template: 1}]}\n", `{"l": [1, 2, 3]}`)
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, "LIST_TOO_LONG: the list has 3 items, the step goes through 2 at most")
	})
	t.Run("no list", func(t *testing.T) {
		t.Parallel()
		res := run(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: inputs.l, body: [{type: transform, template: 1}]}\n", `{"l": 7}`)
		require.Contains(t, res.Message, "NOT_A_LIST")
	})
	t.Run("a list as text, and one that is written", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[1, 2]`, result(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: inputs.l, body: [{type: transform, expr: \"{{ item }}\"}]}\n  - {type: transform, template: \"{{ lp }}\"}\n", `{"l": "[1, 2]"}`))
		require.JSONEq(t, `["x", 7]`, result(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: [x, \"{{ inputs.n }}\"], body: [{type: transform, template: \"{{ item }}\"}]}\n  - {type: transform, template: \"{{ lp }}\"}\n", `{"n": 7}`))
	})
	t.Run("nested", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[["a1", "a2"], [], ["c1"]]`, result(t, `
name: T
steps:
  - id: outer
    type: loop
    over: inputs.rows
    as: row
    body:
      - id: inner
        type: loop
        over: row.cells
        body:
          - {id: cell, type: transform, template: "{{ row.name }}{{ item }}"}
      - {id: keep, type: transform, template: "{{ inner }}"}
  - {id: end, type: transform, template: "{{ outer }}"}
`, `{"rows": [{"name": "a", "cells": [1, 2]}, {"name": "b", "cells": []}, {"name": "c", "cells": [1]}]}`))
	})
	t.Run("a loop as the last step of a loop", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[[1, 2], [3]]`, result(t, "name: T\nsteps:\n  - {id: o, type: loop, over: inputs.l, as: row, body: [{id: i, type: loop, over: row, body: [{type: transform, template: \"{{ item }}\"}]}]}\n  - {type: transform, template: \"{{ o }}\"}\n",
			`{"l": [[1, 2], [3]]}`))
	})
	t.Run("branches of a round", func(t *testing.T) {
		t.Parallel()
		// What an earlier round gave does not count in a later one.
		require.JSONEq(t, `["big", "small", "big"]`, result(t, `
name: T
steps:
  - id: lp
    type: loop
    over: inputs.l
    body:
      - {id: sw, type: switch, rules: [{field: item, operator: gt, value: 5, route: big}], default: small}
      - {id: big, type: transform, template: big}
      - {id: small, type: transform, template: small}
      - {id: one, type: merge, mode: first}
  - {type: transform, template: "{{ lp }}"}
`, `{"l": [9, 1, 7]}`))
	})
	t.Run("several ends", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[{"a": 1, "b": "x1"}, {"a": 2, "b": "x2"}]`, result(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: inputs.l, body: [{parallel: [{id: a, type: transform, template: \"{{ item }}\"}, {id: b, type: transform, template: \"x{{ item }}\"}]}]}\n  - {type: transform, template: \"{{ lp }}\"}\n",
			`{"l": [1, 2]}`))
	})
	t.Run("a switch alone", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[{"big": 9}, {"big": null}]`, result(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: inputs.l, body: [{type: switch, rules: [{field: item, operator: gt, value: 5, steps: [{id: big, type: transform, template: \"{{ item }}\"}]}], default: continue}]}\n  - {type: transform, template: \"{{ lp }}\"}\n",
			`{"l": [9, 1]}`))
	})
	t.Run("within a switch", func(t *testing.T) {
		t.Parallel()
		src := "name: T\nsteps:\n  - id: sw\n    type: switch\n    rules: [{field: inputs.l, operator: exists, steps: [{id: lp, type: loop, over: [1, 2], body: [{type: transform, template: \"{{ item }}\"}]}]}]\n    default: continue\n  - {type: merge, mode: first}\n"
		require.JSONEq(t, `[1, 2]`, result(t, src, `{"l": 1}`))
	})
}

// TestWhile goes round for as long as a condition says.
func TestWhile(t *testing.T) {
	t.Parallel()
	const head = "name: T\nstate: {n: {type: integer, reducer: add}}\nsteps:\n"
	const body = "body: [{id: step, type: set, state: {n: 2}}, {id: now, type: transform, expr: \"{{ state.n }}\"}]}\n  - {type: transform, value: {all: \"{{ lp }}\", last: \"{{ lp.last }}\"}}\n"
	for name, c := range map[string]struct{ loop, want string }{
		"while a rule":           {"while: {field: state.n, operator: lt, value: 5}", `{"all": [2, 4, 6], "last": 6}`},
		"until an expression":    {"until: \"{{ state.n }} >= 4\"", `{"all": [2, 4], "last": 4}`},
		"until a step":           {"until: \"{{ now }} > 2\"", `{"all": [2, 4], "last": 4}`},
		"until a rule of a step": {"until: {field: now, operator: gte, value: 2}", `{"all": [2], "last": 2}`},
		"while a rule of a step": {"while: {any: [{field: now, operator: not_exists}, {field: now, operator: lt, value: 6}]}", `{"all": [2, 4, 6], "last": 6}`},
		"while the index":        {"while: \"{{ lp.index }} < 2\"", `{"all": [2, 4], "last": 4}`},
		"all and any":            {"while: {all: [{field: lp.index, operator: lt, value: 9}], expr: \"{{ state.n }} < 3\"}", `{"all": [2, 4], "last": 4}`},
		"goes on at the limit":   {"while: \"true\", max_iterations: 3, on_limit: continue", `{"all": [2, 4, 6], "last": 6}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.JSONEq(t, c.want, result(t, head+"  - {id: lp, type: loop, "+c.loop+", "+body, ""))
		})
	}
	t.Run("fails at the limit", func(t *testing.T) {
		t.Parallel()
		res := run(t, head+"  - {id: lp, type: loop, while: \"true\", max_iterations: 3, on_limit: fail, "+body, "")
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, "MAX_ITERATIONS: the loop has gone round 3 times; the last round gave: 6")
	})
	t.Run("pauses at the limit", func(t *testing.T) {
		t.Parallel()
		res := run(t, head+"  - {id: lp, type: loop, while: \"true\", max_iterations: 3, "+body, "")
		require.Equal(t, []any{workgraph.StatusPaused, "MAX_ITERATIONS"}, []any{res.Status, res.Reason})
	})
	t.Run("in another loop", func(t *testing.T) {
		t.Parallel()
		// Each time anew: neither the rounds nor the results of the last time count.
		require.JSONEq(t, `[[0, 1], [], [0, 1, 2]]`, result(t, `
name: T
steps:
  - id: outer
    type: loop
    over: [2, 0, 3]
    as: most
    body:
      - {id: inner, type: loop, while: "{{ inner.index }} < {{ most }}", body: [{id: i, type: transform, template: "{{ inner.index }}"}]}
  - {type: transform, template: "{{ outer }}"}
`, ""))
	})
}

// TestMap runs a body for all items side by side, each in a run of its own.
func TestMap(t *testing.T) {
	t.Parallel()
	t.Run("items", func(t *testing.T) {
		t.Parallel()
		src := `
name: T
state: {greeting: {type: string, initial: Hello}}
steps:
  - {id: src, type: transform, template: {names: "{{ inputs.names }}", mark: "!"}}
  - id: all
    type: map
    over: "{{ src.names }}"
    as: name
    max_parallel: 2
    body:
      - {id: hi, type: transform, template: "{{ state.greeting }} {{ name }}{{ src.mark }}"}
      - {type: switch, rules: [{field: name, value: Bob, steps: [{id: bob, type: transform, template: "{{ hi }} ({{ all.index }} of {{ inputs.names }})"}]}], default: continue}
      - {id: said, type: transform, expr: "has(nodes.bob) ? nodes.bob.result : {{ hi }}"}
  - {type: transform, value: {all: "{{ all }}", second: "{{ all[1] }}"}}
`
		require.JSONEq(t, `{"all": ["Hello Ann!", "Hello Bob! (1 of [\"Ann\",\"Bob\"])"], "second": "Hello Bob! (1 of [\"Ann\",\"Bob\"])"}`, result(t, src, `{"names": ["Ann", "Bob"]}`))
		golden(t, "map.json", drawn(t, src)+"\n")
	})
	t.Run("loops and maps within", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[[["a1", "a2"]], [["b1", "b2"], ["c1", "c2"]]]`, result(t, `
name: T
steps:
  - id: m
    type: map
    over: inputs.rows
    as: row
    body:
      - id: l
        type: loop
        over: row
        as: cell
        body:
          - {id: n, type: map, over: "{{ inputs.numbers }}", as: k, body: [{type: transform, template: "{{ cell }}{{ k }}"}]}
  - {type: transform, template: "{{ m }}"}
`, `{"rows": [["a"], ["b", "c"]], "numbers": [1, 2]}`))
	})
	t.Run("an item that fails", func(t *testing.T) {
		t.Parallel()
		const src = "name: T\nsteps:\n  - {id: m, type: map, over: inputs.l, BOTH body: [{id: x, type: assertion, rules: [{field: item, operator: gt, value: 1}]}, {type: transform, template: \"{{ item }}\"}]}\n  - {type: transform, template: \"{{ m }}\"}\n"
		require.JSONEq(t, `[null, 2]`, result(t, strings.Replace(src, "BOTH", "on_item_error: continue,", 1), `{"l": [1, 2]}`))
		res := run(t, strings.Replace(src, "BOTH", "", 1), `{"l": [1, 2]}`)
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, "CHECK_FAILED")
	})
	t.Run("an item whose error is kept", func(t *testing.T) {
		t.Parallel()
		const src = "name: T\nsteps:\n  - {id: m, type: map, over: inputs.l, on_item_error: keep, body: [{id: x, type: assertion, rules: [{field: item, operator: gt, value: 1}]}, {type: transform, template: \"{{ item }}\"}]}\n"
		got := result(t, src+"  - {type: transform, template: \"{{ m }}\"}\n", `{"l": [1, 2]}`)
		require.Contains(t, got, `{"ok":2}`)
		require.Contains(t, result(t, src+"  - {type: transform, template: \"{{ m[0].error.message }}\"}\n", `{"l": [1, 2]}`), "CHECK_FAILED")
		require.Equal(t, `2`, result(t, src+"  - {type: transform, template: \"{{ m[1].ok }}\"}\n", `{"l": [1, 2]}`))
		require.Equal(t, "UNKNOWN_FIELD", faultsOf(src + "  - {type: transform, template: \"{{ m[1].okay }}\"}\n")[0].Code)
	})
	t.Run("a quorum of items", func(t *testing.T) {
		t.Parallel()
		const src = "name: T\nsteps:\n  - {id: m, type: map, over: inputs.l, quorum: 2, body: [{id: x, type: assertion, rules: [{field: item, operator: gt, value: 1}]}, {type: transform, template: \"{{ item }}\"}]}\n  - {type: transform, template: \"{{ m }}\"}\n"
		require.JSONEq(t, `[null, 2, 3]`, result(t, src, `{"l": [1, 2, 3]}`))
		res := run(t, src, `{"l": [1, 2]}`)
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, "QUORUM_UNREACHABLE")
		require.Equal(t, "FIELD_NOT_USED", faultsOf(strings.Replace(src, "quorum: 2", "quorum: 2, on_item_error: fail", 1))[0].Code)
	})
	t.Run("in a loop", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[["a1"], ["b1"]]`, result(t, "name: T\nsteps:\n  - {id: l, type: loop, over: [a, b], as: x, body: [{id: m, type: map, over: [1], body: [{type: transform, template: \"{{ x }}{{ item }}\"}]}]}\n  - {type: transform, template: \"{{ l }}\"}\n", ""))
	})
}

// TestState sets and reads keys of the state.
func TestState(t *testing.T) {
	t.Parallel()
	src := `
name: T
state:
  topics: {type: array, reducer: append, initial: [start]}
  people: {reducer: append_by_id}
  count: {type: integer, reducer: add}
  last: {type: string}
steps:
  - {id: one, type: set, state: {topics: tea, count: 2, people: {id: a, n: 1}}}
  - {id: two, type: transform, template: "{{ state.topics[0] }}", set: {last: "{{ two }}", count: 1, topics: ["{{ inputs.t }}", x], people: [{id: a, n: 2}, {id: b}]}}
  - parallel: [{id: p, type: set, state: {count: 1}}, {id: q, type: set, state: {count: 1}}]
  - {id: sw, type: switch, rules: [{field: state.count, operator: gte, value: 5, route: yes_}], default: continue}
  - {id: yes_, type: transform, expr: "{{ state.count }} * 10"}
  - {id: end, type: merge, from: [yes_], mode: first}
  - {id: all, type: transform, value: {t: "{{ state.topics }}", n: "{{ state.count }}", l: "{{ state.last }}", p: "{{ state.people }}", e: "{{ end }}", in: "{{ inputs.t }}"}}
`
	require.JSONEq(t, `{"t": ["start", "tea", "cake", "x"], "n": 5, "l": "start", "p": [{"id": "a", "n": 2}, {"id": "b"}], "e": 50, "in": "cake"}`, result(t, src, `{"t": "cake"}`))
	golden(t, "state.json", drawn(t, src)+"\n")
	t.Run("of another type", func(t *testing.T) {
		t.Parallel()
		res := run(t, "name: T\nstate: {n: {type: integer}}\nsteps:\n  - {type: set, state: {n: \"{{ inputs.x }}\"}}\n", `{"x": "seven"}`)
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, `STATE_TYPE: the key "n" of the state is of the type integer, not "seven"`)
	})
}

// TestRouter leads to the step that a value names.
func TestRouter(t *testing.T) {
	t.Parallel()
	src := "name: T\nsteps:\n  - {id: r, type: router, field: inputs.to, routes: ROUTES, default: continue}\n  - {id: a, type: transform, template: A}\n  - {id: b, type: transform, template: B}\n  - {id: end, type: merge, mode: list}\n"
	for _, c := range []struct{ routes, to, want string }{
		{"[a, b]", `"a"`, `["A"]`}, {"[a, b]", `"b"`, `["B"]`}, {"[a, b]", `"c"`, `[]`}, {"{x: a, y: b, z: b}", `"z"`, `["B"]`}, {"{x: a, y: b}", `7`, `[]`},
	} {
		require.JSONEq(t, c.want, result(t, strings.Replace(src, "ROUTES", c.routes, 1), `{"to": `+c.to+`}`), "%+v", c)
	}
}

// TestLoopRefused refuses what a loop, a map or the state could not mean.
func TestLoopRefused(t *testing.T) {
	t.Parallel()
	const lp = "  - {id: lp, type: loop, over: [1], body: [{id: x, type: transform, template: 1}]}\n"
	loop := func(rest string) string { return "  - {id: lp, type: loop, " + rest + "}\n" }
	for name, c := range map[string]struct{ steps, code, says string }{
		"nothing to go through":      {loop("body: [{type: transform, template: 1}]"), "MISSING_KEY", "needs `over`"},
		"two things to go through":   {loop("over: [1], while: \"true\", body: [{type: transform, template: 1}]"), "SEVERAL_FORMS", "not both"},
		"no body":                    {loop("over: [1]"), "MISSING_KEY", "needs `body`"},
		"an empty body":              {loop("over: [1], body: []"), "EMPTY", "is empty"},
		"no reference":               {loop("over: \"a b\", body: [{type: transform, template: 1}]"), "BAD_REFERENCE", "\"a b\""},
		"a list that is not there":   {loop("over: src.items, body: [{type: transform, template: 1}]"), "UNKNOWN_STEP", "\"src\""},
		"a limit of a list":          {loop("over: [1], on_limit: fail, body: [{type: transform, template: 1}]"), "FIELD_NOT_USED", "max_iterations"},
		"an item of no list":         {loop("while: \"true\", as: x, body: [{type: transform, template: 1}]"), "FIELD_NOT_USED", "no items"},
		"an item read without one":   {loop("while: \"true\", body: [{type: transform, template: \"{{ item }}\"}]"), "UNKNOWN_STEP", "\"item\""},
		"an item after the loop":     {lp + "  - {type: transform, template: \"{{ item }}\"}", "UNKNOWN_STEP", "\"item\""},
		"a field after the loop":     {lp + "  - {type: transform, template: \"{{ lp.item }}\"}", "UNKNOWN_FIELD", "\"item\""},
		"a step of a loop after it":  {lp + "  - {type: transform, template: \"{{ x }}\"}", "IN_LOOP", "stands within \"lp\""},
		"a step of a loop merged":    {lp + "  - {type: merge, from: [x]}", "IN_LOOP", "stands within \"lp\""},
		"the round before":           {loop("over: [1], body: [{id: x, type: transform, template: \"{{ y }}\"}, {id: y, type: transform, template: 1}]"), "NOT_BEFORE", "kept in `state`"},
		"the loop as a whole in it":  {loop("over: [1], body: [{type: transform, template: \"{{ lp }}\"}]"), "UNKNOWN_FIELD", "only parts"},
		"needs from outside":         {"  - {id: a, type: wait, delay: 1}\n" + loop("over: [1], body: [{type: transform, template: 1, needs: [a]}]"), "NEEDS_ACROSS_LOOP", "same loop"},
		"needs into it":              {lp + "  - {type: wait, delay: 1, needs: [x]}", "NEEDS_ACROSS_LOOP", "same loop"},
		"needs of nothing in it":     {loop("over: [1], body: [{type: wait, delay: 1, needs: []}]"), "NEEDS_ACROSS_LOOP", "begins with the round"},
		"a route out of it":          {loop("over: [1], body: [{type: switch, rules: [{field: item, value: 1, route: out}], default: continue}]") + "  - {id: out, type: wait, delay: 1}", "ROUTE_LEAVES_LOOP", "\"out\""},
		"while a step of the body":   {loop("while: \"{{ x }} > 1\", body: [{id: x, type: transform, template: 1}]"), "MAY_NOT_RUN", "may not have run"},
		"until behind a switch":      {loop("until: \"{{ x }} > 1\", body: [{type: switch, rules: [{field: lp.index, value: 1, steps: [{id: x, type: transform, template: 1}]}], default: continue}]"), "MAY_NOT_RUN", "may not have run"},
		"an empty condition":         {loop("while: {}, body: [{type: transform, template: 1}]"), "MISSING_KEY", "needs `all`"},
		"a condition that is none":   {loop("while: 7, body: [{type: transform, template: 1}]"), "WRONG_TYPE", ""},
		"a bad expression":           {loop("while: \"1 +\", body: [{type: transform, template: 1}]"), "BAD_EXPRESSION", ""},
		"ids that are there twice":   {loop("over: [1], body: [{id: lp, type: transform, template: 1}]"), "DUPLICATE_ID", "\"lp\""},
		"a retried loop":             {loop("over: [1], retry: 2, body: [{type: transform, template: 1}]"), "FIELD_NOT_USED", "no `retry`"},
		"a name with a meaning":      {loop("over: [1], as: state, body: [{type: transform, template: 1}]"), "BAD_ID", "\"state\""},
		"a step of a map after it":   {"  - {id: m, type: map, over: [1], body: [{id: x, type: transform, template: 1}]}\n  - {type: transform, template: \"{{ x }}\"}", "IN_LOOP", "once for each item"},
		"a map that sets":            {"  - {id: m, type: map, over: [1], body: [{type: set, state: {n: 1}}]}", "SET_IN_MAP", ""},
		"a key that is not there":    {"  - {type: set, state: {m: 1}}", "UNKNOWN_STATE", "no key \"m\""},
		"a key of another type":      {"  - {type: set, state: {n: many}}", "WRONG_TYPE", "`integer`"},
		"a key read that is none":    {"  - {type: transform, template: \"{{ state.m }}\"}", "UNKNOWN_STATE", "no key \"m\""},
		"all of the state":           {"  - {type: transform, template: \"{{ state }}\"}", "UNKNOWN_STATE", "state.n"},
		"nothing set":                {"  - {type: set, state: {}}", "EMPTY", ""},
		"set beside a switch":        {"  - {type: switch, set: {n: 1}, rules: [{field: state.n, value: 1, steps: []}], default: continue}", "FIELD_NOT_USED", "type set"},
		"unknown routes of a router": {"  - {type: router, field: inputs.n, routes: [nowhere], default: continue}", "UNKNOWN_ROUTE", "nowhere"},
		"a router without routes":    {"  - {type: router, field: state.n}", "MISSING_KEY", "routes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := faultsOf("name: x\nstate: {n: {type: integer}}\nsteps:\n" + c.steps + "\n")
			require.NotEmpty(t, faults)
			require.Equal(t, c.code, faults[0].Code, "%s", faults)
			require.Contains(t, faults[0].String(), c.says)
			require.Positive(t, faults[0].Line)
		})
	}
	for name, c := range map[string]struct{ state, code string }{
		"a text that is appended": {"{x: {type: string, reducer: append}}", "WRONG_TYPE"}, "a reducer that there is not": {"{x: {reducer: max}}", "UNKNOWN_WORD"},
		"an initial value": {"{x: {type: integer, initial: many}}", "WRONG_TYPE"}, "a key": {"{\"a b\": {}}", "BAD_ID"}, "no keys": {"[x]", "WRONG_TYPE"}, "a type": {"{x: {type: text}}", "UNKNOWN_WORD"},
		"a sum of texts": {"{x: {reducer: add, initial: a}}", "WRONG_TYPE"}, "a list to add to": {"{x: {reducer: append, initial: 1}}", "WRONG_TYPE"},
	} {
		t.Run("state: "+name, func(t *testing.T) {
			t.Parallel()
			faults := faultsOf("name: x\nstate: " + c.state + "\nsteps: [{type: wait, delay: 1}]\n")
			require.NotEmpty(t, faults)
			require.Equal(t, c.code, faults[0].Code, "%s", faults)
		})
	}
}

// BenchmarkLoop goes round often. A round must cost the same whatever came before it.
func BenchmarkLoop(b *testing.B) {
	src := `
name: T
steps:
  - id: lp
    type: loop
    over: inputs.l
    max_iterations: 100000
    body:
      - {id: a, type: transform, template: "{{ item.text }} {{ lp.index }}"}
      - {id: b, type: transform, template: "{{ a }}"}
  - {type: transform, expr: "{{ lp }}.size()"}
`
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, err := workgraph.Compile(b.Context(), compiled(b, src), actors(b))
			require.NoError(b, err)
			in := workgraph.Input{Named: map[string]json.RawMessage{"l": json.RawMessage("[" + strings.TrimSuffix(many(`{"text": "item number %d"},`, n), ",") + "]")}}
			for b.Loop() {
				res, err := p.Run(b.Context(), actors(b), in)
				require.NoError(b, err)
				require.Equal(b, workgraph.StatusCompleted, res.Status, "%+v", res)
				require.Equal(b, fmt.Sprint(n), string(res.Result))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/round")
		})
	}
}
