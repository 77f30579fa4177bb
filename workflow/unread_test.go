package workflow_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

// TestUnread tells of what could not be read and of what the rest means, and of nothing that follows from
// the former.
func TestUnread(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, codes string }{
		"a step of an unknown type":      {"steps:\n  - {id: a, type: cod}\n  - {type: transform, template: '{{ a.b }} {{ c }}'}", "UNKNOWN_WORD UNKNOWN_STEP"},
		"a step without a known id":      {"steps:\n  - {type: cod}\n  - {type: transform, template: '{{ code_1 }}', needs: [b]}", "UNKNOWN_WORD"},
		"a step that is none":            {"steps:\n  - 7\n  - {type: transform, template: '{{ a }} {{ inputs }} {{ state.x }}'}", "NOT_A_MAPPING UNKNOWN_STATE"},
		"a switch":                       {"steps:\n  - {id: a, type: wait, delay: 1}\n  - {type: switch, rules: [{field: a, route: c}], default: b}\n  - {id: b, type: wait, delay: 1}\n  - {id: c, type: transform, template: '{{ b }} {{ d }}'}", "MISSING_KEY UNKNOWN_STEP"},
		"what a switch may lead to":      {"steps:\n  - {id: a, type: wait, delay: 1}\n  - {id: s, type: switch, rules: [{field: a, value: 1, route: b}], default: b}\n  - {id: c, type: transform, template: '{{ d }}'}\n  - {id: b, type: swich, rules: [{route: c}]}\n  - {type: transform, template: '{{ c }} {{ e }}'}", "UNKNOWN_WORD UNKNOWN_STEP"},
		"a route to a step without id":   {"steps:\n  - {id: a, type: wait, delay: 1}\n  - {id: s, type: switch, rules: [{field: a, value: 1, route: b}], default: continue}\n  - {id: 'b c', type: wait, delay: 1}", "BAD_ID"},
		"a loop":                         {"steps:\n  - {id: l, type: loop, body: [{id: a, type: transform, template: '{{ item }}'}]}\n  - {type: transform, template: '{{ a }} {{ l.last }}'}", "MISSING_KEY"},
		"within a loop":                  {"steps:\n  - {id: l, type: loop, over: [1], body: [{id: a, type: transfrm}, {id: b, type: transform, template: '{{ a }} {{ item.x }}'}]}", "UNKNOWN_WORD WRONG_TYPE"},
		"within a map":                   {"steps:\n  - {id: l, type: map, over: [1], body: [{id: a, type: transfrm}, {id: b, type: transform, template: '{{ a }} {{ item.x }}'}]}", "UNKNOWN_WORD WRONG_TYPE"},
		"the condition of a loop":        {"steps:\n  - {id: l, type: loop, until: '{{ a.x }} > {{ b }}', body: [{id: a, type: transfrm}]}", "UNKNOWN_STEP UNKNOWN_WORD"},
		"needs":                          {"steps:\n  - {id: a, type: wait, delay: 1}\n  - {id: b, type: transform, template: '{{ a }}', needs: {a: 1}}\n  - {type: transform, template: '{{ b }}', needs: [b, c]}", "WRONG_TYPE UNKNOWN_STEP"},
		"the state":                      {"state: {'a b': {}, n: {type: txt}}\nsteps:\n  - {type: set, state: {x: 1, n: 2}}\n  - {type: transform, template: '{{ state.y }} {{ z }}'}", "BAD_ID UNKNOWN_WORD UNKNOWN_STEP"},
		"the inputs":                     {"inputs: [a]\nsteps:\n  - {type: transform, template: '{{ inputs.y }} {{ z }}'}", "WRONG_TYPE UNKNOWN_STEP"},
		"agents":                         {"agents: {a: [x]}\nsteps:\n  - {type: agent, agent: b, prompt: '{{ z }}'}\n  - {type: team, agents: [a, c], task: '{{ y }}', graph: [a, c]}", "NOT_A_MAPPING UNKNOWN_STEP UNKNOWN_STEP"},
		"an agent of a team":             {"agents: {a: {instructions: 7, thread: x}, b: {instructions: i}}\ngraph: [a, b]", "WRONG_TYPE"},
		"a team":                         {"agents: {a: {instructions: i, thread: x}, b: {instructions: i}}\ngraph: [a, b]\nmax_turns: many\noutputs: {x: '{{ team.text }} {{ z }}'}", "WRONG_TYPE UNKNOWN_STEP"},
		"a workflow within a workflow":   {"state: {n: {type: txt}}\nagents: {a: {workflow: {name: y, state: {m: {}}, steps: [{type: cod}]}}, b: {instructions: i}}\nsteps:\n  - {type: transform, template: '{{ state.k }} {{ z }}'}", "UNKNOWN_WORD UNKNOWN_WORD UNKNOWN_STEP"},
		"outputs":                        {"steps: [{id: a, type: transform, template: '{{ z }}'}]\noutputs: 7", "UNKNOWN_STEP WRONG_TYPE"},
		"no steps":                       {"outputs: {x: '{{ z }}'}", "MISSING_KEY UNKNOWN_STEP"},
		"what takes nothing away":        {"steps: [{id: a, type: agent, prompt: p, skills: [x]}, {id: sw, type: switch, retry: 2, rules: [{field: a.x, value: 1, route: b}], default: c}]", "NOT_SUPPORTED FIELD_NOT_USED UNKNOWN_ROUTE UNKNOWN_ROUTE"},
		"a step that many read by needs": {"steps:\n  - {id: a, type: human}\n  - {id: b, type: wait, delay: 1, needs: [a]}\n  - {id: c, type: merge, from: [a, b, d]}", "MISSING_KEY UNKNOWN_STEP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var codes []string
			faults := faultsOf("name: x\n" + c.src + "\n")
			for _, f := range faults {
				codes = append(codes, f.Code)
			}
			require.Equal(t, c.codes, strings.Join(codes, " "), "%s", faults)
		})
	}
}

// stepType is the type of a step in a text.
var stepType = regexp.MustCompile(`\btype: ([a-z_]+)`)

// TestUnreadSteps misspells the type of each step of each example. That is the only fault then, and any step
// may be missing so.
func TestUnreadSteps(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/workflow/*.yaml")
	require.NoError(t, err)
	seen := 0
	for _, name := range files {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		src := string(raw)
		if workflow.IsFork(raw) || strings.HasSuffix(name, ".test.yaml") {
			continue
		}
		for _, at := range stepType.FindAllStringSubmatchIndex(src, -1) {
			faults := faultsOf(src[:at[3]] + "x" + src[at[3]:])
			if len(faults) == 0 || faults[0].Code != "UNKNOWN_WORD" || !strings.Contains(faults[0].Message, "the type of a step") {
				continue // it is that of something else
			}
			seen++
			require.Len(t, faults, 1, "%s: %s", name, faults)
		}
	}
	require.Greater(t, seen, 40)
}
