package workflow_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestB7 tells of the situations that a platform with a language of this kind refuses, each with its
// place and what to write.
func TestB7(t *testing.T) {
	t.Parallel()
	const head = "name: T\nsteps:\n"
	for name, c := range map[string]struct{ src, code, says string }{
		"DSL must be a YAML mapping":              {"- a\n", "NOT_A_WORKFLOW", "a workflow is keys and values, not a list"},
		"requires a name":                         {"steps: [{type: wait, delay: 1}]", "MISSING_KEY", "needs `name`"},
		"requires a steps list":                   {"name: T", "MISSING_KEY", "needs `steps`"},
		"steps must be a non-empty list":          {"name: T\nsteps: []", "EMPTY", "`steps` is empty"},
		"steps must be a list":                    {"name: T\nsteps: {a: 1}", "WRONG_TYPE", "must be a list, not keys and values"},
		"Unknown trigger type":                    {"name: T\ntrigger: webhok\nsteps: [{type: wait, delay: 1}]", "UNKNOWN_WORD", "`webhok`"},
		"Step must be a mapping":                  {head + "  - {id: a, type: wait, delay: 1}\n  - 7\n", "NOT_A_MAPPING", "steps[1]"},
		"Step missing type":                       {head + "  - {id: a}\n", "MISSING_KEY", "needs `type`"},
		"Unknown step type":                       {head + "  - {id: a, type: cod}\n", "UNKNOWN_WORD", "did you mean `code`?"},
		"Duplicate step ID":                       {head + "  - {id: a, type: wait, delay: 1}\n  - {id: a, type: wait, delay: 1}\n", "DUPLICATE_ID", "\"a\" already, in line 3"},
		"Duplicate step ID of a default":          {head + "  - {id: wait_2, type: wait, delay: 1}\n  - {type: wait, delay: 1}\n", "DUPLICATE_ID", "\"wait_2\" already"},
		"Duplicate step ID of a body":             {head + "  - {id: lp, type: loop, over: [1], body: [{id: lp, type: wait, delay: 1}]}\n", "DUPLICATE_ID", "\"lp\" already"},
		"Loop step requires a non-empty body":     {head + "  - {id: lp, type: loop, over: [1], body: []}\n", "EMPTY", "the body of a loop is empty"},
		"Unknown inline tool type":                {head + "  - {type: agent, prompt: x, tools: [{type: telefax}]}\n", "NOT_SUPPORTED", "no tool of the type `telefax`"},
		"Tool must be a string or mapping":        {head + "  - {type: agent, prompt: x, tools: [7]}\n", "WRONG_TYPE", "must be a text, not a number"},
		"Invalid YAML":                            {"name: [", "SYNTAX", "not valid YAML"},
		"A tool of the platform":                  {head + "  - {type: agent, prompt: x, tools: [run_command]}\n", "NOT_SUPPORTED", "register a worker"},
		"A tool with its configuration":           {head + "  - {type: agent, prompt: x, tools: [{type: memory_read, scope: team}]}\n", "UNKNOWN_WORD", "no scope `team`"},
		"All tools of a server":                   {head + "  - {type: agent, prompt: x, tools: [mcp/files/*]}\n", "NOT_SUPPORTED", "name each tool"},
		"Servers of an agent":                     {head + "  - {type: agent, prompt: x, mcp_servers: [\"files/*\"]}\n", "BAD_NAME", "no name of an MCP server"},
		"Skills":                                  {head + "  - {type: agent, prompt: x, skills: [cooking]}\n", "NOT_SUPPORTED", "agent/NAME"},
		"A file system":                           {head + "  - {type: deep_agent, prompt: x, enable_filesystem: true}\n", "NOT_SUPPORTED", "mcp/SERVER/TOOL"},
		"A model by discovery":                    {"name: T\nmodel: {discover: true, preference: cheapest}\nsteps: [{type: wait, delay: 1}]", "NOT_SUPPORTED", "`discover`"},
		"A model by preference":                   {head + "  - {type: agent, prompt: x, model: {preference: fastest}}\n", "NOT_SUPPORTED", "nothing is chosen by price or speed"},
		"A model by two names":                    {head + "  - {type: agent, prompt: x, model: {capability: gpt-4, model_name: gpt-5}}\n", "SEVERAL_FORMS", "`model_name` or `capability`"},
		"A model inherited and named":             {head + "  - {type: agent, prompt: x, model: {inherit: true, model_name: m}}\n", "FIELD_NOT_USED", "leave it or `inherit` out"},
		"A model inherited and discovered":        {head + "  - {type: agent, prompt: x, model: {inherit: true, discover: true}}\n", "NOT_SUPPORTED", "`discover`"},
		"A model inherited by a word":             {head + "  - {type: agent, prompt: x, model: {inherit: all}}\n", "WRONG_TYPE", "true or false"},
		"The interface of the platform":           {head + "  - {type: agent, prompt: x, tools: [{type: platform_api, base: x}]}\n", "NOT_SUPPORTED", "use the actor `http`"},
		"Schedules by an agent":                   {head + "  - {type: agent, prompt: x, tools: [scheduler_tools]}\n", "NOT_SUPPORTED", "`epigraph schedules`"},
		"The health of the system":                {head + "  - {type: agent, prompt: x, tools: [system_health]}\n", "NOT_SUPPORTED", "what is to be looked at"},
		"One-time passwords":                      {head + "  - {type: agent, prompt: x, tools: [get_totp_code]}\n", "NOT_SUPPORTED", "credentials stay out of workflows"},
		"A place to write memories to":            {head + "  - {type: agent, prompt: x, tools: [{type: memory_write, scope: team}]}\n", "UNKNOWN_WORD", "no scope `team`"},
		"A tool that runs any workflow":           {head + "  - {type: agent, prompt: x, tools: [{type: spawn_and_await}]}\n", "MISSING_KEY", "workflows: [NAME"},
		"A name of a tool that runs any workflow": {head + "  - {type: agent, prompt: x, tools: [spawn_and_await]}\n", "MISSING_KEY", "workflow: NAME@VERSION"},
		"A list of workflows that names none":     {head + "  - {type: agent, prompt: x, tools: [{type: spawn_and_await, workflows: []}]}\n", "EMPTY", "no workflow may be run"},
		"A list of workflows and a single one":    {head + "  - {type: agent, prompt: x, tools: [{type: spawn_and_await, workflows: [a], workflow: b@1}]}\n", "SEVERAL_FORMS", "both given"},
		"A list of workflows with a bad name":     {head + "  - {type: agent, prompt: x, tools: [{type: spawn_and_await, workflows: [\"a*b\"]}]}\n", "BAD_NAME", "names no workflows"},
		"A tool that runs an unnamed version":     {head + "  - {type: agent, prompt: x, tools: [{type: spawn_and_await, workflow: digest}]}\n", "BAD_NAME", "`digest@1` for a version"},
		"A workflow by its name alone":            {head + "  - {type: workflow, workflow: digest}\n", "BAD_NAME", "each new version would change"},
		"A schedule as a trigger":                 {"name: T\ntrigger: schedule\nsteps: [{type: wait, delay: 1}]", "UNKNOWN_WORD", "use `cron`"},
		"The keys of no trigger":                  {"name: T\ntrigger_config: {path: x}\nsteps: [{type: wait, delay: 1}]", "FIELD_NOT_USED", "`trigger_config`"},
		"The keys of a trigger twice":             {"name: T\ntrigger: {type: webhook}\ntrigger_config: {path: x}\nsteps: [{type: wait, delay: 1}]", "FIELD_NOT_USED", "beside its `type`"},
		"The keys of another trigger":             {"name: T\ntrigger: chat\ntrigger_config: {path: x}\nsteps: [{type: wait, delay: 1}]", "UNKNOWN_KEY", "trigger_config.path"},
		"Keys of a trigger that are none":         {"name: T\ntrigger: chat\ntrigger_config: x\nsteps: [{type: wait, delay: 1}]", "WRONG_TYPE", "trigger_config"},
		"The type of a trigger twice":             {"name: T\ntrigger: cron\ntrigger_config: {type: chat, every: 1m}\nsteps: [{type: wait, delay: 1}]", "SEVERAL_FORMS", "leave it out"},
		"A model by credential":                   {head + "  - {type: agent, prompt: x, model: {credential_id: 7, model_name: m}}\n", "NOT_SUPPORTED", "`credential_id`"},
		"A step that nothing leads to":            {head + "  - {id: a, type: wait, delay: 1}\n  - {type: switch, rules: [{field: a, value: 1, route: c}], default: c}\n  - {id: b, type: wait, delay: 1}\n  - {id: c, type: wait, delay: 1}\n", "ORPHAN_STEP", "\"b\""},
		"A route that leads nowhere":              {head + "  - {id: a, type: wait, delay: 1}\n  - {type: switch, rules: [{field: a, value: 1, route: c}], default: continue}\n", "UNKNOWN_ROUTE", "\"c\""},
		"An unknown subagent":                     {head + "  - {type: deep_agent, prompt: x, subagents: [nobody]}\n", "UNKNOWN_AGENT", "\"nobody\""},
		"A subagent without instructions":         {head + "  - {type: deep_agent, prompt: x, subagents: [{name: a}]}\n", "MISSING_KEY", "`instructions`"},
		"Two subagents of one name":               {head + "  - {type: deep_agent, prompt: x, subagents: [{name: a, instructions: x}, {name: a, instructions: y}]}\n", "DUPLICATE_ID", "\"a\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := faultsOf(c.src)
			require.NotEmpty(t, faults)
			require.Equal(t, c.code, faults[0].Code, "%s", faults)
			require.Contains(t, faults[0].String(), c.says)
		})
	}
	// Forms that mean the same as the ones of this language.
	for name, c := range map[string]struct{ theirs, ours string }{
		"A model that is inherited is that of the workflow": {"model: small\nsteps: [{type: agent, prompt: x, model: {inherit: true}}]", "model: small\nsteps: [{type: agent, prompt: x}]"},
		"A model that is not inherited":                     {"model: small\nsteps: [{type: agent, prompt: x, model: {inherit: false, profile: big}}]", "model: small\nsteps: [{type: agent, prompt: x, model: big}]"},
		"A model by capability":                             {"steps: [{type: agent, prompt: x, model: {capability: gpt-4, temperature: 1}}]", "steps: [{type: agent, prompt: x, model: {model_name: gpt-4, temperature: 1}}]"},
		"Memories about something":                          {"steps: [{type: agent, prompt: x, tools: [{type: memory_read, about: tea, limit: 3}]}]", "steps: [{type: agent, prompt: x, tools: [{actor: memory_read, with: {about: tea, limit: 3}}]}]"},
		"What one agent has learned":                        {"steps: [{type: agent, prompt: x, tools: [{type: memory_read, agent: T, about: tea}]}]", "steps: [{type: agent, prompt: x, tools: [{actor: memory_read, description: Tells what is known of the user., with: {agent: T, about: tea}}]}]"},
		"Memories that a user has":                          {"steps: [{type: agent, prompt: x, tools: [{type: memory_write, scope: user, fact_type: preference}]}]", "steps: [{type: agent, prompt: x, tools: [{actor: memory_write, with: {scope: user, fact_type: preference}}]}]"},
		"Memories that others read":                         {"steps: [{type: agent, prompt: x, tools: [{type: memory_write, scope: workflow}]}]", "steps: [{type: agent, prompt: x, tools: [{actor: memory_share, name: memory_write, with: {scope: workflow}}]}]"},
		"Few workflows":                                     {"steps: [{type: agent, prompt: x, tools: [{type: workflow_discover, limit: 3}]}]", "steps: [{type: agent, prompt: x, tools: [{actor: workflow_discover, name: workflow_discover, with: {limit: 3}}]}]"},
		"A workflow that an agent runs":                     {"steps: [{type: agent, prompt: x, tools: [{type: spawn_and_await, workflow: digest@1}]}]", "steps: [{type: agent, prompt: x, tools: [{actor: workflow/digest@1, name: spawn_and_await}]}]"},
		"Workflows that an agent chooses among":             {"steps: [{type: agent, prompt: x, tools: [{type: spawn_and_await, workflows: [digest, \"mail-*\"], timeout: 1h}]}]", "steps: [{type: agent, prompt: x, tools: [{actor: spawn_and_await, with: {workflows: [digest, \"mail-*\"], timeout: 1h}}]}]"},
		"Epics by both names":                               {"steps: [{type: agent, prompt: x, tools: [create_epic, {type: update_task}, list_tasks]}]", "steps: [{type: agent, prompt: x, tools: [{actor: epic_create, name: create_epic}, {actor: task_update, name: update_task}, {actor: task_list, name: list_tasks}]}]"},
		"No trigger":                                        {"trigger: none\nsteps: [{type: wait, delay: 1}]", "steps: [{type: wait, delay: 1}]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, compiled(t, "name: T\n"+c.ours), compiled(t, "name: T\n"+c.theirs))
		})
	}
	t.Run("A trigger with its keys beside it", func(t *testing.T) {
		t.Parallel()
		d, faults := workflow.Read([]byte("name: T\ntrigger: webhook\ntrigger_config: {path: orders/new, signature: github}\nsteps: [{type: wait, delay: 1}]"))
		require.Empty(t, faults)
		require.Equal(t, "orders/new github", d.Triggers()[0].Path+" "+d.Triggers()[0].Signature)
		none, faults := workflow.Read([]byte("name: T\ntrigger: none\nsteps: [{type: wait, delay: 1}]"))
		require.Empty(t, faults)
		require.Empty(t, none.Triggers())
		require.Equal(t, []string{"manual"}, none.Uses().Triggers)
	})
}

// TestNamesOfTheWhole has references whose first part is a name for all of a result, or a field of that name.
func TestNamesOfTheWhole(t *testing.T) {
	t.Parallel()
	src := func(steps string) string {
		return "name: T\ninputs: {result: {type: string}, list: {type: array}}\nstate: {output: {type: string}}\nsteps:\n" + steps
	}
	field := func(t *testing.T, steps string) string {
		t.Helper()
		g := compiled(t, src(steps))
		i := slices.IndexFunc(g.Nodes, func(n workgraph.Node) bool { return n.ID == "last" })
		require.GreaterOrEqual(t, i, 0)
		return g.Nodes[i].Bind["value"].Uses[0].Field
	}
	for steps, want := range map[string]string{
		"  - {id: a, type: http, url: u}\n  - {id: last, type: transform, template: \"x {{ a.result }}\"}":                                           "",
		"  - {id: a, type: http, url: u}\n  - {id: last, type: transform, template: \"x {{ a.output.body }}\"}":                                      "body",
		"  - {id: a, type: workflow, workflow: b@1}\n  - {id: last, type: transform, template: \"x {{ a.result.result }}\"}":                         "result",
		"  - {id: a, type: extractor, prompt: p, schema: {result: {type: string}}}\n  - {id: last, type: transform, template: \"x {{ a.result }}\"}": "result",
		"  - {id: a, type: extractor, prompt: p, schema: {other: {type: string}}}\n  - {id: last, type: transform, template: \"x {{ a.result }}\"}":  "",
		"  - {id: a, type: transform, value: {output: 1}}\n  - {id: last, type: transform, template: \"x {{ a.output }}\"}":                          "output",
		"  - {id: last, type: transform, template: \"x {{ inputs.result }}\"}":                                                                       "result",
		"  - {id: l, type: loop, over: inputs.list, as: one, body: [{id: last, type: transform, template: \"x {{ one.result }}\"}]}":                 "item.result",
	} {
		t.Run(steps, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, field(t, steps))
		})
	}
	t.Run("ItemsOfMaps", func(t *testing.T) {
		t.Parallel()
		g := compiled(t, src("  - {id: m, type: map, over: inputs.list, as: one, body: [{type: transform, template: \"x {{ one.output }}\"}]}"))
		m := slices.IndexFunc(g.Nodes, func(n workgraph.Node) bool { return n.Map != nil })
		require.Contains(t, string(g.Nodes[m].Named["graph"]), `"one.output"`)
	})
	t.Run("State", func(t *testing.T) {
		t.Parallel()
		compiled(t, src("  - {type: set, state: {output: a}}\n  - {type: transform, template: \"{{ state.output }}\"}"))
	})
}

// TestTools has tools by the names that other platforms have for them.
func TestTools(t *testing.T) {
	t.Parallel()
	src := `
name: T
triggers: [webhook]
agents: {a: {tools: [{type: code}, http_request, workflow_create], mcp_servers: [files]}}
steps:
  - {type: agent, agent: a, prompt: p}
`
	g := compiled(t, src)
	for _, want := range []string{`"code":{"actor":"starlark"`, `"http_request":{"actor":"http"`, `"workflow_create":{"actor":"workflow_create"`} {
		require.Contains(t, string(g.Nodes[1].Named["actions"]), want)
	}
	d, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	require.Equal(t, []string{"code", "http", "mcp/files", "workflow_create"}, d.Uses().Tools)
	d, faults = workflow.Read([]byte("name: T\nsteps: [{type: code, code: '1'}, {type: http, url: u}, {type: wait, delay: 1}]"))
	require.Empty(t, faults)
	require.Equal(t, []string{"code", "http"}, d.Uses().Tools)
	d, faults = workflow.Read([]byte("name: T\nagents: {a: {instructions: i}, b: {instructions: i}}\ngraph: {choose: {model: {profile: small}}}"))
	require.Empty(t, faults)
	require.Equal(t, []string{"small"}, d.Uses().Models)
}

// TestB7Example1 has an agent with a memory and tools between two other steps.
func TestB7Example1(t *testing.T) {
	t.Parallel()
	src := `
name: Nightly digest
trigger: {type: manual}
steps:
  - {id: pull, type: code, snippet: "return 1"}
  - {id: sum, type: agent, prompt: "Summarize", memory: true, tools: [whoami, {type: memory_read}, memory_write]}
  - {type: transform, template: "Digest: {{ sum }}"}
`
	g := compiled(t, src)
	require.Equal(t, []string{"inputs -> pull", "pull -> sum", "sum -> transform_3"}, edges(g))
	require.JSONEq(t, `{"lifetime": "CONVERSATION", "name": "Nightly digest/steps/sum"}`, string(g.Nodes[2].Named["thread"]))
	require.JSONEq(t, `{
		"memory_read": {"actor": "memory_read"}, "memory_write": {"actor": "memory_write"},
		"whoami": {"actor": "flow/user", "description": "Tells for whom this is done."}
	}`, string(g.Nodes[2].Named["actions"]))
	refused := faultsOf(strings.Replace(src, "whoami, {type: memory_read}", "run_command, {type: memory_read, scope: team}", 1))
	require.Len(t, refused, 2, "what the example has and this language has not")
	require.Equal(t, "NOT_SUPPORTED UNKNOWN_WORD", refused[0].Code+" "+refused[1].Code)
}

// TestB7Example2 joins the ends of all branches of a switch, and has no dead ends.
func TestB7Example2(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"inputs -> cls", "cls -> sw", `sw -> bx [result.route == "bx"]`, `sw -> by [result.route == "by"]`, `sw -> bz [result.route == "bz"]`,
		"bx -> after", "by -> after", "bz -> after",
	}, edges(compiled(t, `
name: T
steps:
  - {id: cls, type: categorizer, prompt: p, categories: [x, y]}
  - id: sw
    type: switch
    rules: [{field: cls.category, value: x, route: bx}, {field: cls.category, value: y, route: by}]
    default: bz
  - {id: bx, type: code, code: "1"}
  - {id: by, type: code, code: "2"}
  - {id: bz, type: code, code: "3"}
  - {id: after, type: code, code: "4"}
`)))
}

// TestB7Example3 goes round a body of a script and an agent, with the ids that they have by default.
func TestB7Example3(t *testing.T) {
	t.Parallel()
	for _, over := range []string{`"{{ src.items }}"`, `"{{ src . items }}"`, "src.items"} {
		g := compiled(t, `
name: T
steps:
  - {id: src, type: code, code: "return {'items': [1, 2]}"}
  - {id: lp, type: loop, over: `+over+`, body: [{type: code, code: "return item + 1"}, {type: agent, prompt: "Say {{ lp_body_1 }}", tools: [http]}]}
  - {id: done, type: code, code: "return lp"}
`)
		require.Equal(t, []string{
			"inputs -> src", "src -> lp.list", "lp.list -> lp", "lp -> lp_body_1 [!result.done]", "lp_body_1 -> lp_body_2", "lp_body_2 -> lp [true]",
			"lp -> lp.results [result.done]", "lp.results -> done",
		}, edges(g))
		require.Equal(t, "items", g.Nodes[2].Bind["over"].Uses[0].Field)
		require.JSONEq(t, `{"http": {"actor": "http"}}`, string(g.Nodes[5].Named["actions"]), "an agent of a body keeps its tools")
		require.Contains(t, g.Nodes[4].Bind, "item")
	}
	deeper := compiled(t, "name: T\nsteps:\n  - {id: a, type: code, code: \"return {'b': {'c': [1]}}\"}\n  - {type: loop, over: a.b.c, body: [{type: wait, delay: 1}]}\n")
	require.Equal(t, "b.c", deeper.Nodes[2].Bind["over"].Uses[0].Field)
	none := faultsOf("name: T\nsteps:\n  - {type: loop, over: \"\", body: [{type: wait, delay: 1}]}\n")
	require.Len(t, none, 1)
	require.Equal(t, "BAD_REFERENCE", none[0].Code)
	whole := compiled(t, "name: T\nsteps:\n  - {id: src, type: code, code: \"return [1]\"}\n  - {type: loop, over: src.output, body: [{type: wait, delay: 1}]}\n")
	require.Empty(t, whole.Nodes[2].Bind["over"].Uses[0].Field)
}

// TestModels hands what is said of a model to what asks it.
func TestModels(t *testing.T) {
	t.Parallel()
	g := compiled(t, `
name: T
model: {profile: small, temperature: 0.5, max_tokens: 100}
agents:
  w: {description: Writes., instructions: Write., model: big}
steps:
  - {id: a, type: agent, prompt: x}
  - {id: b, type: categorizer, prompt: x, categories: [a, b], model: {model_name: gpt-x}}
  - {id: c, type: deep_agent, system_prompt: Plan., enable_todos: true, subagents: [w, {name: r, description: Reads., instructions: Read., tools: [http]}]}
`)
	require.JSONEq(t, `{"profile": "small", "temperature": 0.5, "max_output_tokens": 100}`, string(g.Nodes[1].Named["reasoner_args"]))
	require.JSONEq(t, `"gpt-x"`, string(g.Nodes[2].Named["model"]))
	require.Nil(t, g.Nodes[2].Named["profile"])
	var actions map[string]struct {
		Actor, Description string
		Named              map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(g.Nodes[3].Named["actions"], &actions))
	require.Equal(t, "agent Writes.", actions["w"].Actor+" "+actions["w"].Description)
	require.JSONEq(t, `{"profile": "big"}`, string(actions["w"].Named["reasoner_args"]))
	require.JSONEq(t, `{"http": {"actor": "http"}}`, string(actions["r"].Named["actions"]))
	require.Contains(t, string(g.Nodes[3].Named["system"]), "`todos`")
}
