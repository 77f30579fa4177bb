package foreign_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/foreign"
)

const n8n = `{"name": "Letters", "nodes": [
  {"name": "Hook", "type": "n8n-nodes-base.webhook", "parameters": {"path": "x"}},
  {"name": "Good?", "type": "n8n-nodes-base.if", "parameters": {"conditions": {"a": "={{ $json.b }}"}, "options": {"deep": true}}},
  {"name": "Send it", "type": "n8n-nodes-base.slack", "parameters": {"text": "Hi", "to": "={{ $json.to }}"}, "credentials": {"slackApi": {}}},
  {"name": "Think", "type": "@n8n/n8n-nodes-langchain.agent", "parameters": {"text": "Write a letter"}},
  {"name": "Calculator", "type": "@n8n/n8n-nodes-langchain.toolCalculator"},
  {"name": "Model", "type": "@n8n/n8n-nodes-langchain.lmChatOpenAi"},
  {"name": "Pause", "type": "n8n-nodes-base.wait", "parameters": {"amount": 5, "unit": "minutes"}},
  {"name": "Get", "type": "n8n-nodes-base.httpRequest", "parameters": {"url": "https://example.org"}},
  {"name": "Both", "type": "n8n-nodes-base.merge"},
  {"name": "Note", "type": "n8n-nodes-base.stickyNote"}],
 "connections": {"Hook": {"main": [[{"node": "Good?"}]]},
  "Good?": {"main": [[{"node": "Send it"}], [{"node": "Think"}, {"node": "Pause"}]]},
  "Send it": {"main": [[{"node": "Both"}]]}, "Think": {"main": [[{"node": "Both"}]]}, "Pause": {"main": [[{"node": "Get"}]]}, "Both": {"main": [[{"node": "Good?"}, {"node": "gone"}]]},
  "Calculator": {"ai_tool": [[{"node": "Think"}]]}, "Model": {"ai_languageModel": [[{"node": "Think"}]]}}}`

const argo = `
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: flip-}
spec:
  entrypoint: main
  templates:
    - name: main
      steps:
        - - {name: flip, template: coin}
        - - {name: heads, template: show, when: "{{steps.flip.outputs.result}} == heads"}
          - {name: other, template: diamond, when: "{{steps.flip.outputs.result}} =~ tai"}
        - - {name: again, template: main}
          - {name: ok, template: approve}
    - name: diamond
      dag:
        tasks:
          - {name: D, template: show, depends: "B && C.Succeeded"}
          - {name: A, template: show}
          - {name: B, template: show, dependencies: [A]}
          - {name: C, template: show, dependencies: [A], withItems: [1, 2]}
    - {name: coin, script: {image: python, source: "print('heads')"}}
    - {name: show, container: {image: busybox}}
    - {name: approve, suspend: {}}
`

const github = `
name: CI
on: {push: {branches: [main]}}
jobs:
  test:
    runs-on: ubuntu-latest
    strategy: {matrix: {go: [1, 2]}}
    steps:
      - uses: actions/checkout@v4
      - {name: Unit tests, run: "go test ./...", if: "${{ matrix.go == 1 }}"}
  release:
    needs: [test]
    if: github.ref == 'refs/heads/main'
    uses: ./.github/workflows/release.yml
`

const conductor = `{"name": "orders", "version": 1, "tasks": [
  {"name": "check_order", "taskReferenceName": "check", "type": "SIMPLE", "inputParameters": {"id": "${workflow.input.id}", "deep": true}},
  {"name": "s", "taskReferenceName": "kind", "type": "SWITCH", "evaluatorType": "value-param", "expression": "k", "inputParameters": {"k": "${check.output.kind}"},
   "decisionCases": {"small": [{"name": "t", "taskReferenceName": "send", "type": "HTTP", "inputParameters": {"http_request": {"uri": "https://example.org", "method": "POST"}}}],
     "bad": [{"name": "t", "taskReferenceName": "stop", "type": "TERMINATE"}]}},
  {"name": "f", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[{"name": "x", "taskReferenceName": "nap", "type": "WAIT", "inputParameters": {"duration": "10 seconds"}}],
     [{"name": "x", "taskReferenceName": "ask", "type": "HUMAN"}], [{"name": "x", "taskReferenceName": "side", "type": "SIMPLE"}]]},
  {"name": "j", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["nap", "ask"]},
  {"name": "w", "taskReferenceName": "below", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "mail", "version": 2}},
  {"name": "l", "taskReferenceName": "loop", "type": "DO_WHILE", "loopCondition": "$.n < 3", "loopOver": [{"name": "b", "taskReferenceName": "body"}]}]}`

const pipelit = `
name: Digest
description: What happened.
trigger: chat
model: {discover: true}
steps:
  - {id: kind, type: categorizer, prompt: "{{ trigger.text }}", categories: [urgent, later]}
  - id: way
    type: switch
    rules:
      - {field: node_outputs.kind.category, operator: equals, value: urgent, route: ask}
      - {field: kind.category, operator: contains, value: lat, route: rest}
    default: nobody
  - {id: ask, type: human, message: "Now?"}
  - {id: rest, type: wait, duration: 2}
  - {id: think, type: agent, prompt: Think, memory: true, tools: [calculator, whoami, {type: web_search, count: 3}]}
  - {id: odd, type: switch, rules: [{field: nothing.here, value: 1, route: call}], default: say}
  - {id: call, type: workflow, workflow: message-processor}
  - {id: say, type: reply_chat, message: "Done"}
  - {id: run, type: code, snippet: "return 1"}
`

const pipelitNodes = `{"name": "Team", "slug": "team", "nodes": [
  {"node_id": "t", "component_type": "trigger_chat", "config": {}},
  {"node_id": "a", "component_type": "deep_agent", "config": {"system_prompt": "You are A.", "extra_config": {"input_template": "{{ t.text }}", "conversation_memory": true}}},
  {"node_id": "m", "component_type": "ai_model", "config": {"model_name": "gpt"}},
  {"node_id": "v", "component_type": "validate", "config": {}},
  {"node_id": "s", "component_type": "switch", "config": {"extra_config": {"rules": [{"id": "ok", "field": "node_outputs.a.output", "operator": "contains", "value": "fine"}]}}},
  {"node_id": "c", "component_type": "assertion", "config": {"extra_config": {"rules": [{"field": "node_outputs.a.output", "operator": "contains", "value": "x"}]}}},
  {"node_id": "b", "component_type": "transform", "config": {"extra_config": {"template": "Bye"}}},
  {"node_id": "j", "component_type": "merge", "config": {}}],
 "edges": [{"source_node_id": "t", "target_node_id": "a", "edge_label": ""}, {"source_node_id": "m", "target_node_id": "a", "edge_label": "llm"}, {"source_node_id": "v", "target_node_id": "a", "edge_label": "tool"},
  {"source_node_id": "a", "target_node_id": "s", "edge_label": ""}, {"source_node_id": "s", "target_node_id": "c", "condition_value": "ok"}, {"source_node_id": "s", "target_node_id": "b", "condition_value": "__other__"},
  {"source_node_id": "c", "target_node_id": "j", "edge_label": ""}, {"source_node_id": "b", "target_node_id": "j", "edge_label": ""}, {"source_node_id": "j", "target_node_id": "gone", "edge_label": ""}]}`

// TestImport shows the edges of small definitions of each platform.
func TestImport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src, edges string
		reports    []string
		has        []string
	}{
		"pipelit": {
			pipelit, `inputs -> kind, kind -> way, way -> way_rule_1 [way_rule_1], way -> way_rule_2 [way_rule_2], way -> way_rest [way_rest], way_rule_2 -> rest, rest -> think, think -> odd, odd -> odd_way, odd_way -> odd_0 [odd_0], ` +
				`odd_way -> odd_rest [odd_rest], odd_rest -> say, say -> run, odd_0 -> call, way_rule_1 -> ask`,
			[]string{"trigger", "model", "connection", "text", "tool", "condition", "script", "version"},
			[]string{"operator: contains\n        value: lat\n        route: way_rule_2", "categories: [urgent, later]", "message: Now?", "delay: 2\n    delay_unit: seconds", "workflow: message-processor@1", "memory: true",
				"tools:\n      - {actor: pipelit/calculator}\n      - whoami\n      - {actor: pipelit/web_search}", "actor: pipelit/code"},
		},
		"pipelit nodes": {
			pipelitNodes, `inputs -> a, a -> s, s -> s_rule_1 [s_rule_1], s -> s_rest [s_rest], s_rest -> b, s_rule_1 -> c, c -> j, b -> j`,
			[]string{"connection", "part", "part", "trigger", "text"},
			[]string{"system_prompt: You are A.", "memory: true", "- {actor: pipelit/validate}", "{field: a, operator: contains, value: x}", "template: Bye"},
		},
		"n8n": {
			n8n, `inputs -> Good, Good -> Good_way, Good_way -> Good_0 [0], Good_way -> Good_1 [1], Good_1 -> Pause, Pause -> Get, Good_1 -> Think, Good_0 -> Send_it, Send_it -> Both, Think -> Both`,
			[]string{"connection", "loop", "part", "part", "trigger", "condition", "expression", "credentials", "expression"},
			[]string{"delay: 5\n    delay_unit: minutes", "actor: n8n/slack\n    with: {text: Hi}", "tools:\n      - {actor: n8n/toolcalculator, name: Calculator}", "with:\n      options: {deep: true}"},
		},
		"argo": {
			argo, `inputs -> flip, flip -> heads_when, heads_when -> heads_yes [heads_yes], heads_when -> heads_no [heads_no], heads_yes -> heads, flip -> other_when, other_when -> other_when_way, other_when_way -> other_when_yes [other_when_yes], ` +
				`other_when_way -> other_when_no [other_when_no], other_when_yes -> A, A -> B, A -> C, B -> D, C -> D, heads -> again, heads_no -> again, D -> again, other_when_no -> again, heads -> ok, heads_no -> ok, D -> ok, other_when_no -> ok`,
			[]string{"condition", "loop", "condition", "loop"},
			[]string{"{field: flip, value: heads, route: heads_yes}", "type: human", "actor: argo/show"},
		},
		"github_actions": {
			github, `inputs -> test_actions_checkout, test_actions_checkout -> test_Unit_tests_if, test_Unit_tests_if -> test_Unit_tests_if_way, test_Unit_tests_if_way -> test_Unit_tests_if_yes [test_Unit_tests_if_yes], test_Unit_tests_if_way -> test_Unit_tests_if_no [test_Unit_tests_if_no], ` +
				`test_Unit_tests_if_yes -> test_Unit_tests, test_Unit_tests -> release_if, test_Unit_tests_if_no -> release_if, release_if -> release_if_way, release_if_way -> release_if_yes [release_if_yes], release_if_way -> release_if_no [release_if_no], release_if_yes -> release`,
			[]string{"trigger", "loop", "condition", "condition"},
			[]string{"actor: github/actions-checkout", "with: {run: go test ./...}", "actor: github/github-workflows-release.yml"},
		},
		"conductor": {
			conductor, `inputs -> check, check -> kind, kind -> kind_small [kind_small], kind -> kind_bad [kind_bad], kind -> kind_default [kind_default], kind_small -> send, kind_bad -> stop, send -> fork, kind_default -> fork, ` +
				`fork -> nap, fork -> ask, fork -> side, nap -> join, ask -> join, join -> below, below -> loop_2, loop_2 -> body`,
			[]string{"expression", "end", "loop"},
			[]string{"{field: check.kind, value: small, route: kind_small}", "workflow: mail@2", "actor: conductor/check_order\n    with: {deep: true}", "url: https://example.org", "delay: 10\n    delay_unit: seconds"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := foreign.Import([]byte(c.src))
			require.NoError(t, err)
			require.Equal(t, strings.TrimSuffix(name, " nodes"), string(got.Platform))
			d, faults := workflow.Read(got.YAML)
			require.Empty(t, faults)
			g, faults := workflow.Compile(d)
			require.Empty(t, faults)
			var edges []string
			for _, e := range g.Edges {
				s := e.From + " -> " + e.To
				if e.When != "" {
					route := strings.TrimSuffix(strings.TrimPrefix(e.When, `result.route == "`), `"`)
					s += " [" + strings.TrimPrefix(route, "Good_") + "]"
				}
				edges = append(edges, s)
			}
			require.Equal(t, c.edges, strings.Join(edges, ", "), string(got.YAML))
			var what []string
			for _, item := range got.Report {
				what = append(what, item.What)
			}
			require.Equal(t, c.reports, what, "%v", got.Report)
			for _, piece := range c.has {
				require.Contains(t, string(got.YAML), piece)
			}
		})
	}
}

// TestOwn needs no import, and a rule that means something else here becomes an actor.
func TestOwn(t *testing.T) {
	t.Parallel()
	_, err := foreign.Import([]byte("name: x\nsteps: [{type: wait, delay: 1}]"))
	require.ErrorContains(t, err, "of this language already")
	got, err := foreign.Import([]byte("name: x\nsteps:\n  - {id: k, type: categorizer, prompt: p, categories: [a, b]}\n  - {id: s, type: switch, rules: [{field: k, operator: gt, value: 1, route: e}], default: e}\n  - {id: e, type: code}\n"))
	require.NoError(t, err)
	require.Contains(t, string(got.YAML), "actor: pipelit/switch", "nothing is greater than 1 of what a categorizer gives")
}

// TestRefused has texts that are no definitions, and those beyond the bounds.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, src := range []string{"", "a: b", "{}", "[]", "7", `{"nodes": []}`, "name: x\nsteps: []"} {
		_, err := foreign.Import([]byte(src))
		require.ErrorIs(t, err, foreign.ErrUnknown, src)
	}
	wide := `{"name": "x", "tasks": [` + strings.Repeat(`{"name": "t"},`, 10_001) + `{}]}`
	var first, second strings.Builder
	for i := range 300 {
		fmt.Fprintf(&first, "{name: a%d, template: b},", i)
		fmt.Fprintf(&second, "{name: b%d, template: b},", i)
	}
	for src, want := range map[string]string{
		strings.Repeat("x", foreign.MaxBytes+1): "the limit is",
		"\xff":                                  "UTF-8",
		"a: [":                                  "read the definition",
		strings.Repeat("[", 100) + strings.Repeat("]", 100): "nested too deep",
		"a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e]": "too many values",
		wide:                               "more than 10000 steps",
		`{"nodes": [], "connections": {}}`: "no steps",
		"apiVersion: argoproj.io/v1\nspec: {entrypoint: m, templates: [{name: m, steps: [[" + first.String() + "], [" + second.String() + "]]}]}": "50000 ways",
	} {
		_, err := foreign.Import([]byte(src))
		require.ErrorContains(t, err, want, "%.50s", src)
	}
}

// FuzzImport makes no workflow that has faults.
func FuzzImport(f *testing.F) {
	for _, src := range []string{n8n, argo, github, conductor, pipelit, pipelitNodes} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := foreign.Import(src)
		if err != nil {
			require.NotContains(t, err.Error(), "cannot be a workflow here", "%s", src)
			return
		}
		d, faults := workflow.Read(got.YAML)
		require.Empty(t, faults)
		_, faults = workflow.Compile(d)
		require.Empty(t, faults)
	})
}
