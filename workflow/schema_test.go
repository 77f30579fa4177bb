package workflow

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

const schemaFile = "../docs/workflow.schema.json"

// TestSchemaIsPublished compares the schema with the file that editors use.
func TestSchemaIsPublished(t *testing.T) {
	t.Parallel()
	if os.Getenv("UPDATE_SCHEMA") != "" {
		require.NoError(t, os.WriteFile(schemaFile, Schema(), 0o644))
	}
	want, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.Equal(t, string(want), string(Schema()), "the readers ask for other keys, or shapeOf says otherwise what they look like. "+
		"Say in shapeOf and about of schema.go what a new key looks like and means, add an entry of its own keys to probes if it has some, and write the file: UPDATE_SCHEMA=1 go test ./workflow -run SchemaIsPublished")
}

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("workflow.json", doc))
	s, err := c.Compile("workflow.json")
	require.NoError(t, err)
	return s
}

// checked is the error of a value against the schema.
func checked(t testing.TB, s *jsonschema.Schema, v *value) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.json()))
	require.NoError(t, err)
	return s.Validate(doc)
}

// texts are definitions of the examples and the tests.
func schemaTexts(t testing.TB) [][]byte {
	out := [][]byte{
		[]byte(`{name: x, version: 1.2, triggers: [manual, {type: manual}], budget: {usd: 1}, steps: [{type: wait, delay: 1, delay_unit: days, on_error: continue}, {type: wait, for: 2s, on_error: {value: 1}}, {type: code, code: "1", timeout: 5s}]}`),
		[]byte(`{name: x, triggers: [{type: webhook, path: a/b, signature: github, inputs: {a: "{{ event.body }}"}}, {type: cron, every: 15m, overlap: allow}, {type: cron, cron: "@daily", timezone: Europe/Berlin}, chat, {type: telegram, bot: b, chats: [1, "-2"], commands: start}, {type: workflow, workflow: y, on: ended}, {type: error, workflows: [y]}, {type: event, kinds: [task_updated, epic_updated], epic: ep_1, workflow: y, when: "event.seq > 1"}, {type: event, kinds: task_created}], steps: [{type: wait, delay: 1}]}`),
		[]byte(`{name: x, tags: a, model: null, steps: [{parallel: [{type: transform, template: 1}, [{type: reply_chat, message: {a: 1}, needs: []}]]}, {type: merge, from: a, mode: list}]}`),
		[]byte(`{name: x, steps: [{id: s, type: switch, rules: [{field: inputs.a, value: 1, steps: [{type: human, message: q, schema: {type: string}, default: 1}]}], default: [{type: http, url: u, body: {a: 1}}]}]}`),
		[]byte(`{name: x, agents: {a: {instructions: i, tools: [t, {actor: b, with: {c: 1}}]}}, steps: [{type: agent, agent: a, prompt: p}, {type: categorizer, prompt: p, categories: [a, {name: b, description: c}]}]}`),
		[]byte(`{name: x, steps: [{type: assertion, rules: [{field: inputs.a, operator: exists}], pass_threshold: 0.5}, {type: filter, over: inputs.l, rules: [{field: a, value: 1}]}, {type: workflow, workflow: a@1, payload: {b: 1}}]}`),
		[]byte(`{name: x, steps: [{type: extractor, prompt: p, schema: {a: {type: string}}}, {type: code, code: "result = 1", language: starlark}, {type: actor, actor: a, with: {b: 1}}]}`),
		[]byte(`{name: x, agents: {a: {instructions: i, thread: t, tools: [{name: s, set: {k: "{{ v }}"}, parameters: {v: {type: string}}, reply: "{v}"}]}, b: {human: true, choices: [x]}, c: {actor: d, on_error: tell}}, state: {k: {type: string}}, graph: {start: a, transitions: ["a -> b", {from: b, to: [a, c], when: {any: [{text: x}, "true"]}, join: any}], loops: [{between: [a, b], while: else}]}, router: [{from: any, to: a, ttl: 1h}], stop: {any: [{max_messages: 3, then: pause}, {text: x, from: a}]}, max_turns: 5, task: t}`),
		[]byte(`{name: x, agents: {a: {instructions: i}, b: {workflow: {name: y, graph: [c, d], agents: {c: {instructions: i}, d: {workflow: z@1}}}}}, graph: {choose: {prompt: "{participants} {history}", repeat: true, attempts: 2}}, stop: {timeout: 1h, usd: 0.5}}`),
		[]byte(`{name: x, agents: {a: {instructions: i}, b: {instructions: i}}, steps: [{type: team, agents: [a, b], graph: {handoffs: any, otherwise: end}, task: t}]}`),
	}
	for _, pattern := range []string{"../examples/workflow/*.yaml", "testdata/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, ".test.yaml") {
				continue
			}
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			out = append(out, src)
		}
	}
	return out
}

// TestSchemaAccepts accepts what Read accepts.
func TestSchemaAccepts(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	for _, src := range schemaTexts(t) {
		tell := &teller{}
		v := readSource(tell, src)
		require.NotNil(t, v, "%v", tell.faults)
		d, faults := Read(src)
		require.NotNil(t, d, "%v", faults)
		require.NoError(t, checked(t, s, v), "%s", src)
	}
}

// TestSchemaRefuses refuses a key that Read does not know, wherever it stands.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	places := map[string]bool{}
	for _, src := range schemaTexts(t) {
		root := readSource(&teller{}, src)
		var visit func(v *value)
		visit = func(v *value) {
			if v.kind == mapping {
				v.entries = append(v.entries, entry{key: "surprise", value: &value{kind: text, text: "x", under: v, key: "surprise"}})
				tell := &teller{}
				if tell.definition(root); len(tell.faults) > 0 && tell.faults[0].Code == "UNKNOWN_KEY" {
					places[tell.faults[0].Message] = true
					require.Error(t, checked(t, s, root), "%s: %s", tell.faults[0], root.json())
				}
				v.entries = v.entries[:len(v.entries)-1]
			}
			for _, in := range v.inside() {
				visit(in)
			}
		}
		visit(root)
	}
	require.Greater(t, len(places), len(types)+5, "%v", places)
	for _, src := range []string{
		`{}`, `[]`, `{"name": "x", "steps": 7}`, `{"name": "x", "steps": [{}]}`, `{"name": "x", "steps": [{"type": "waits"}]}`, `{"name": "x", "steps": [{"type": "merge", "mode": "lists"}]}`,
		`{"name": "x", "steps": [{"type": "assertion", "rules": [{"field": "a", "operator": "like"}]}]}`, `{"name": "x", "steps": [{"type": "code", "code": 7}]}`,
	} {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(src)))
		require.NoError(t, err)
		require.Error(t, s.Validate(doc), src)
	}
}

// TestSchemaKnowsAllKeys has every step type with the keys that its reader asks for, and says what most
// mean.
func TestSchemaKnowsAllKeys(t *testing.T) {
	t.Parallel()
	var root struct {
		Definitions map[string]struct{ Properties map[string]json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(Schema(), &root))
	for _, name := range typeNames() {
		step := root.Definitions["step_"+name]
		for _, key := range []string{"id", "type", "needs", "retry", "timeout", "on_error"} {
			require.Contains(t, step.Properties, key, name)
		}
	}
	require.Contains(t, root.Definitions["step_wait"].Properties, "delay_unit", "asked only beside `delay`")
	require.Contains(t, root.Definitions["rule_of_switch"].Properties, "route")
	require.NotContains(t, root.Definitions["rule_of_assertion"].Properties, "route")
}

// FuzzSchema accepts what Read accepts.
func FuzzSchema(f *testing.F) {
	for _, src := range schemaTexts(f) {
		f.Add(src)
	}
	s := compiledSchema(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		if d, _ := Read(src); d == nil {
			return
		}
		require.NoError(t, checked(t, s, readSource(&teller{}, src)), "%s", src)
	})
}
