package workflow

import (
	"encoding/json"
	"slices"
	"strings"
)

// Schema is the JSON Schema of definitions, for editors: which keys there are, what they mean and what
// their values look like. It accepts all that Read accepts. What it does not know, such as whether a
// reference leads anywhere, is for Read and Compile.
//
// The keys are those that the readers ask for, so that there is no second list of them: readers are
// given a definition, and note what they ask. Only what values look like is said here, in shapeOf and
// about; a key that is not there may have any value.
func Schema() []byte {
	s := schemaWriter{known: map[string][]string{}}
	top := s.asked(`{"name": "x", "model": {}, "triggers": [{}, {"type": "webhook", "inputs": {}}, {"type": "event"}], "agents": {"a": {"model": {}, "tools": [{}, {"type": "memory_read"}, {"type": "memory_write"}, {"type": "workflow_discover"}, {"type": "spawn_and_await", "workflow": "a@1"}, {"type": "spawn_and_await", "workflows": ["a"]}]}}, "budget": {}, "state": {"a": {}}, "threads": {"a": {}}, "steps": []}`)
	s.note(top, "workflow")
	teams := s.asked(`{"name": "x", "agents": {"a": {"hears": [{}], "tools": [{"set": {}}, {"ask": ["b"]}]}}, "graph": {"transitions": [{"when": {}}], "loops": [{}], "choose": {}, "handoffs": {}}, "router": [{}], "stop": {}}`)
	s.note(teams, "workflow")
	for _, key := range teams["a workflow"] {
		if !slices.Contains(top["a workflow"], key) {
			top["a workflow"] = append(top["a workflow"], key)
		}
	}
	// A loop reads one of its forms.
	for _, when := range []string{`"while": {"all": [{}]}`, `"until": {"field": "x"}`} {
		s.note(s.asked(`{"name": "x", "steps": [{"type": "loop", `+when+`, "body": []}]}`), "loop")
	}
	steps := map[string][]string{}
	for _, name := range typeNames() {
		asked := s.step(name)
		steps[name] = asked["a step of the type "+name]
		s.note(asked, name)
	}
	defs := shape{"steps": shape{"type": "array", "items": refTo("step")}}
	for name, keys := range s.known {
		defs[name] = s.object(keys, name)
	}
	var choices []any
	for _, name := range typeNames() {
		step := s.object(steps[name], name)
		step["required"] = []string{"type"}
		defs["step_"+name] = step
		choices = append(choices, shape{"if": shape{"properties": shape{"type": shape{"const": name}}, "required": []string{"type"}}, "then": refTo("step_" + name)})
	}
	choices = append(choices, shape{"if": shape{"properties": shape{"parallel": shape{"not": shape{"type": "null"}}}, "required": []string{"parallel"}}, "then": s.object([]string{"parallel"}, "parallel"),
		"else": shape{"required": []string{"type"}}})
	defs["step"] = shape{"type": "object", "properties": shape{"type": shape{"enum": typeNames(), "description": about["type"]}, "parallel": shape{"description": about["parallel"]}}, "allOf": choices}
	root := s.object(top["a workflow"], "workflow")
	root["$schema"], root["title"] = "http://json-schema.org/draft-07/schema#", "A workflow of Epigraph"
	root["required"], root["definitions"] = []string{"name"}, defs
	if slices.Equal(s.without(top["a workflow"]), []string{"steps"}) {
		root["anyOf"] = []any{shape{"required": []string{"steps"}}, shape{"required": []string{"graph"}}, shape{"required": []string{"router"}}}
	}
	out, _ := json.MarshalIndent(root, "", "  ") // it has a JSON form
	return append(out, '\n')
}

// shape is a part of a schema.
type shape = map[string]any

// refTo is the part of a name.
func refTo(name string) shape { return shape{"$ref": "#/definitions/" + name} }

// note notes which keys a reader has asked for.
func (t *teller) note(what string, keys []string) {
	if t.asked == nil {
		return
	}
	for _, key := range keys {
		if !slices.Contains(t.asked[what], key) {
			t.asked[what] = append(t.asked[what], key)
		}
	}
}

// schemaWriter knows the keys of what stands within steps and workflows, by the names of their parts.
type schemaWriter struct{ known map[string][]string }

// parts are the names of the parts of a schema for what readers read.
var parts = map[string]string{"a tool": "tool", "an agent": "agent", "a trigger": "trigger", "a budget": "budget", "a category": "category", "`on_error`": "on_error", "`cache`": "cache",
	"a model": "model", "a judge": "judge", "a subagent": "subagent", "a condition": "condition", "a key of the state": "state_key", "a thread": "thread",
	"`graph`": "graph", "a transition": "transition", "a loop of a graph": "loop_of_graph", "a condition on a message": "when", "`choose`": "choose", "a route": "route", "`stop`": "stop", "what is heard of somebody": "hearing", "a tool that ends a turn": "signal"}

// note notes the keys of what stands within something. Rules of different types of steps differ.
func (s schemaWriter) note(asked map[string][]string, of string) {
	for what, keys := range asked {
		name := parts[what]
		if what == "a rule" {
			name = "rule_of_" + of
		}
		for _, key := range keys {
			if name != "" && !slices.Contains(s.known[name], key) {
				s.known[name] = append(s.known[name], key)
			}
		}
	}
}

// of is the part of a name, or any keys and values if there is no such part.
func (s schemaWriter) of(name string) shape {
	if s.known[name] == nil {
		return shape{"type": "object"}
	}
	return refTo(name)
}

// asked are the keys that are asked for in reading a definition, by what has them.
func (schemaWriter) asked(src string) map[string][]string {
	t := &teller{asked: map[string][]string{}}
	if v := readSource(t, []byte(src)); v != nil {
		t.definition(v)
	}
	return t.asked
}

// without are the keys of a definition that must be there besides its name, as the reader says.
func (schemaWriter) without(keys []string) []string {
	_, faults := Read([]byte("name: x"))
	var out []string
	for _, f := range faults {
		for _, key := range keys {
			if f.Code == "MISSING_KEY" && strings.Contains(f.Message, "`"+key+"`") {
				out = append(out, key)
			}
		}
	}
	return out
}

// step are the keys that are asked for in reading a step of a type. Some are asked only where others
// are there, so it is read again with all of those that are known.
func (s schemaWriter) step(name string) map[string][]string {
	what := "a step of the type " + name
	asked := map[string][]string{}
	for n := -1; n < len(asked[what]); {
		n = len(asked[what])
		step := shape{}
		for _, key := range asked[what] {
			step[key] = "x"
			if inside := probes[key]; inside != nil {
				step[key] = inside
			}
		}
		step["type"], step["id"] = name, "x"
		src, _ := json.Marshal(shape{"name": "x", "steps": []any{step}}) // it has a JSON form
		asked = s.asked(string(src))
		// A step with `parallel` has no other keys, and no type.
		asked[what] = slices.DeleteFunc(asked[what], func(key string) bool { return key == "parallel" })
	}
	return asked
}

// probes are values whose own keys are asked for. All others are a text.
var probes = map[string]any{"rules": []any{shape{}}, "tools": []any{shape{}}, "categories": []any{shape{}}, "on_error": shape{}, "cache": shape{}, "model": shape{}, "judge": shape{}, "subagents": []any{shape{}},
	"while": shape{"all": []any{shape{}}}, "until": shape{"field": "x"}}

// object is the schema of keys and values. of says whose they are.
func (s schemaWriter) object(keys []string, of string) shape {
	properties := shape{}
	for _, key := range keys {
		p := shape{}
		for name, v := range s.shapeOf(of, key) {
			p[name] = v
		}
		if kind, ok := p["type"].(string); ok {
			p["type"] = []string{kind, "null"} // as if it were not there
		}
		if words, ok := p["enum"].([]string); ok {
			p["enum"] = append([]any{nil}, anys(words)...)
		}
		if text := about[of+"."+key]; text != "" {
			p["description"] = text
		} else if text := about[key]; text != "" && (key != "type" || types[of] != nil) {
			p["description"] = text
		}
		properties[key] = p
	}
	return shape{"type": "object", "additionalProperties": false, "properties": properties}
}

func anys(words []string) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out
}

// shapeOf is what the value of a key looks like, empty for any. of is the type of the step, or what
// else has the key.
func (s schemaWriter) shapeOf(of, key string) shape {
	texts := shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, shape{"type": "array", "items": shape{"type": "string"}}}}
	switch of + "." + key {
	case "switch.default", "router.default":
		return shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, refTo("steps")}}
	case "loop.body", "map.body":
		return shape{"anyOf": []any{shape{"type": "null"}, refTo("steps")}}
	case "best_of.body":
		return shape{"anyOf": []any{shape{"type": "null"}, refTo("steps"), refTo("step")}}
	case "best_of.judge":
		return shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, s.of("judge")}}
	case "best_of.n":
		return shape{"type": "integer", "minimum": 1, "maximum": maxAttempts}
	case "best_of.enough":
		return shape{"type": "number"}
	case "best_of.score":
		return shape{"type": "string"}
	case "workflow.steps", "rule_of_switch.steps":
		return shape{"anyOf": []any{shape{"type": "null"}, refTo("steps")}}
	case "parallel.parallel":
		return shape{"type": "array", "items": shape{"anyOf": []any{refTo("steps"), refTo("step")}}}
	case "workflow.state":
		return shape{"type": "object", "additionalProperties": s.of("state_key")}
	case "workflow.threads":
		return shape{"anyOf": []any{texts, shape{"type": "object", "additionalProperties": shape{"anyOf": []any{shape{"type": "null"}, s.of("thread")}}}}}
	case "deep_agent.subagents":
		return shape{"type": "array", "items": shape{"anyOf": []any{shape{"type": "string"}, s.of("subagent")}}}
	case "loop.while", "loop.until":
		return shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, s.of("condition"), shape{"type": "array", "items": s.of("rule_of_loop")}}}
	case "trigger.type":
		return shape{"enum": triggerNames()}
	case "trigger.workflow", "trigger.path", "trigger.cron", "trigger.timezone", "trigger.bot", "trigger.epic", "trigger.when":
		return shape{"type": "string"}
	case "trigger.signature":
		return shape{"enum": []string{"standard", "github", "token"}}
	case "cache.scope":
		return shape{"enum": cacheScopes}
	case "cache.ttl":
		return shape{"type": []string{"string", "number"}}
	case "cache.key":
		return shape{"type": "string"}
	case "trigger.overlap":
		return shape{"enum": overlaps()}
	case "trigger.on":
		return shape{"enum": endWords()}
	case "trigger.chats":
		return shape{"type": "array", "items": shape{"type": []string{"string", "integer"}}}
	case "trigger.kinds":
		kind := shape{"enum": EventKinds()}
		return shape{"anyOf": []any{kind, shape{"type": "array", "items": kind}}}
	case "trigger.commands", "trigger.workflows":
		return texts
	case "tool.name", "category.name", "workflow.name", "tool.description", "category.description", "workflow.description", "workflow.workflow":
		return shape{"type": "string"}
	}
	if p := s.shapeOfTeam(of, key); p != nil {
		return p
	}
	switch key {
	case "type":
		if types[of] == nil {
			return shape{"type": "string"}
		}
		return shape{"const": of}
	case "id":
		return shape{"type": "string", "pattern": `^\s*([A-Za-z_][A-Za-z0-9_]{0,63})?\s*$`}
	case "actor", "agent", "code", "expr", "field", "instructions", "language", "route", "snippet", "system_prompt":
		return shape{"type": "string"}
	case "needs", "from", "tags", "mcp_servers":
		return texts
	case "operator":
		return shape{"enum": operatorNames()}
	case "delay_unit":
		return shape{"enum": delayUnits}
	case "mode":
		return shape{"enum": []string{"map", "list", "first"}}
	case "memory", "share_thread":
		return shape{"type": "boolean"}
	case "retry", "max_rounds", "tokens":
		return shape{"type": "integer", "minimum": 0}
	case "pass_threshold", "usd":
		return shape{"type": "number", "minimum": 0}
	case "version":
		return shape{"type": []string{"string", "number", "null"}}
	case "with", "payload", "outputs", "inputs", "schema":
		if of != "human" {
			return shape{"type": "object"}
		}
	case "rules":
		return shape{"type": "array", "items": s.of("rule_of_" + of)}
	case "tools":
		return shape{"type": "array", "items": shape{"anyOf": []any{shape{"type": "string"}, s.of("tool"), s.of("signal")}}}
	case "categories":
		return shape{"type": "array", "items": shape{"anyOf": []any{shape{"type": "string"}, s.of("category")}}}
	case "agents":
		return shape{"type": "object", "additionalProperties": s.of("agent")}
	case "budget":
		return shape{"anyOf": []any{shape{"type": "null"}, s.of("budget")}}
	case "model":
		return shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, s.of("model")}}
	case "cache":
		return shape{"anyOf": []any{shape{"type": []string{"string", "number", "null"}}, s.of("cache")}}
	case "on_error":
		return shape{"anyOf": []any{shape{"enum": []any{"fail", "continue", "keep", nil}}, s.of("on_error")}}
	case "trigger", "triggers":
		one := []any{shape{"type": []string{"string", "null"}}, s.of("trigger")}
		return shape{"anyOf": append(one, shape{"type": "array", "items": shape{"anyOf": one}})}
	case "timeout", "delay":
		return shape{"type": []string{"string", "number", "null"}}
	}
	return shape{}
}

// shapeOfTeam is shapeOf for what is said of teams. Nil if it knows nothing of the key.
func (s schemaWriter) shapeOfTeam(of, key string) shape {
	names := shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, shape{"type": "array", "items": shape{"type": "string"}}}}
	list := func(of any) shape { return shape{"type": "array", "items": of} }
	switch of + "." + key {
	case "agent.workflow":
		return shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, shape{"$ref": "#"}}}
	case "agent.on_error":
		return shape{"enum": []string{"fail", "tell"}}
	case "agent.hears":
		return list(shape{"anyOf": []any{shape{"type": "string"}, s.of("hearing")}})
	case "hearing.from":
		return names
	case "hearing.first", "hearing.last":
		return shape{"type": "integer", "minimum": 1}
	case "agent.set":
		return shape{"type": "object"}
	case "agent.human", "choose.repeat":
		return shape{"type": "boolean"}
	case "graph.transitions":
		return list(shape{"anyOf": []any{shape{"type": "string"}, s.of("transition")}})
	case "graph.loops":
		return list(s.of("loop_of_graph"))
	case "graph.choose":
		return shape{"anyOf": []any{shape{"type": "null"}, s.of("choose")}}
	case "graph.handoffs":
		return shape{"type": []string{"string", "object", "null"}}
	case "graph.start", "transition.from", "transition.to", "loop_of_graph.between", "route.from", "route.to", "stop.from", "stop.answered", "team.agents":
		return names
	case "transition.when", "loop_of_graph.while", "when.not":
		return shape{"anyOf": []any{shape{"type": []string{"string", "null"}}, s.of("when")}}
	case "when.any", "when.all":
		return list(shape{"anyOf": []any{shape{"type": "string"}, s.of("when")}})
	case "stop.any", "stop.all":
		return list(s.of("stop"))
	case "transition.join":
		return shape{"enum": []string{"any", "all"}}
	case "stop.then":
		return shape{"enum": []string{"end", "pause"}}
	case "route.batch_size", "stop.max_messages", "stop.max_turns", "stop.tokens", "stop.input_tokens", "stop.output_tokens", "choose.attempts":
		return shape{"type": "integer", "minimum": 1}
	case "signal.ask", "agent.capabilities":
		return names
	case "signal.set", "signal.parameters":
		return shape{"type": "object"}
	}
	switch key {
	case "graph":
		return shape{"anyOf": []any{shape{"type": "null"}, list(shape{"type": "string"}), s.of("graph")}}
	case "router":
		return shape{"anyOf": []any{shape{"type": "null"}, list(s.of("route"))}}
	case "stop":
		return shape{"anyOf": []any{shape{"type": "null"}, s.of("stop")}}
	case "max_turns":
		return shape{"type": "integer", "minimum": 1}
	case "handoff", "group", "candidates", "otherwise", "thread":
		return shape{"type": "string"}
	}
	return nil
}

// about says what keys mean, as editors show it: a key of something, or a key wherever it stands.
var about = map[string]string{
	"workflow.name": "What people call the workflow.", "version": "A label of the author's.", "tags": "Words to find it by.", "workflow.description": "What the workflow is for.",
	"inputs": "The named arguments of a run: a JSON Schema, or its properties alone, all of which must be given then.", "outputs": "The result of the run by name, with references. Without it the last steps give the result.",
	"workflow.trigger": "What starts it beside a call: a type, or {type, …}.", "workflow.triggers": "What starts it beside a call: types, or {type, …}.",
	"trigger.type": "What kind of event starts a run.", "trigger.id": "What it is called within the workflow.", "trigger.inputs": "The inputs of the run, with references to {{ event }}.",
	"trigger.kinds": "Which events of the feed start it.", "trigger.epic": "The epic whose events are heard; all without it.", "trigger.when": "A CEL expression over event that must hold.",
	"trigger.path": "Where it is called, below /v1/hooks/NAMESPACE/.", "trigger.signature": "How the caller proves itself.", "trigger.cron": "Minute, hour, day of month, month, day of week; or @daily.", "trigger.every": "How often, such as 15m.",
	"trigger.timezone": "The time zone of cron, such as Europe/Berlin.", "trigger.overlap": "What happens while a run is open.", "trigger.bot": "The name of a bot in the configuration.", "trigger.chats": "The chats that are heard; all without it.",
	"trigger.commands": "The commands that are heard; all messages without it.", "trigger.workflow": "The workflow whose ends, or whose events, are heard.", "trigger.on": "Which ends are heard.", "trigger.workflows": "The workflows whose failures are heard; all others without it.", "model": "A model profile.", "agents": "Agents by name.", "workflow.steps": "What is done, in order.",
	"budget": "What a run may use. It is paused there.", "usd": "In dollars.", "tokens": "In tokens.",
	"id": "What other steps call it by.", "type": "What the step does.", "parallel": "Steps, or lists of steps, that run side by side.", "needs": "The steps that it follows, in place of what stands before it.",
	"retry": "How often it is called in all.", "timeout": "How long a call may take, such as 30s.", "on_error": "What a failure means: fail, continue with null, keep the error as {error: …}, or {value: …} that stands for the result.",
	"prompt": "What it is told. {{ STEP.FIELD }} stands for a result.", "agent": "One of `agents`, or agent/NAME of the configuration.", "system_prompt": "What the model is told of its task.",
	"instructions": "What the agent is told of its task.", "tools": "What the agent may call: names of actors, or {actor, name, description, with}.", "max_rounds": "How often the agent may reason.",
	"categories": "The names to choose from.", "schema": "A JSON Schema, or its properties alone.", "code": "A Starlark script.", "snippet": "A Starlark script.", "url": "Where the request goes.",
	"actor": "The actor that is called.", "with": "The arguments of the actor.", "template": "A value with references.", "expr": "An expression.", "message": "What is said or asked.",
	"rules": "Comparisons; the first that holds decides, or all must hold.", "field": "STEP.FIELD, the value that is compared.", "operator": "How it is compared; equals without it.", "route": "The id of the step that follows.",
	"over": "The list: STEP.FIELD.", "delay": "How long: 90s, 2d, or a number with delay_unit.", "workflow.workflow": "NAME@VERSION, or self.", "payload": "The inputs of the other workflow.",
	"graph": "Who of the agents speaks after whom: names in a row, or transitions, loops, choose or handoffs.", "router": "Who hears whom. Without it everybody hears everybody else.",
	"stop": "What ends the team. Several keys are alternatives.", "max_turns": "After how many turns the team pauses: 100 without it and without a limit in stop.", "task": "What the team is told.", "thread_id": "The thread that is worked on.",
	"transitions": "`a -> b -> c`, or {from, to, when, join}.", "loops": "{between: [a, b], while: …}: both speak in turn for as long as the condition holds.", "choose": "A model chooses who speaks.",
	"handoffs": "Who may hand over to whom, or `any`.", "otherwise": "Who speaks if nobody is handed over to: again, end, or a name.", "when": "A condition on what was said: an expression, else, or {text, handoff, expr, any, all, not}.",
	"batch_size": "How many messages call the agent: 1 without it.", "ttl": "How long a message waits to be heard.", "thread": "A name; agents with the same one share a thread.", "mcp_servers": "MCP servers of the configuration, all of whose tools the agent may call.", "share_thread": "Whether the agent works on the thread of the one who calls it.", "memory": "Whether the agent goes on with its thread from run to run, for each user and chat.", "threads": "The threads that agents share by name.", "thread.memory": "Whether the thread is kept from run to run, for each user and chat.", "human": "A person is asked.",
	"hears": "Whose messages it hears, each turn: names, or {from, first, last}. Without it those of all.", "hearing.first": "How many of the first messages.", "hearing.last": "How many of the last messages.",
	"input_tokens": "Tokens that models are given.", "output_tokens": "Tokens that models give.", "agent.workflow": "NAME@VERSION, or a workflow as keys and values.", "agent.on_error": "What a failure means: fail, or tell the others.", "agent.task": "An expression over result and state that gives what it is told, in place of what it hears.", "agent.set": "Keys of the state that are set when it has answered.", "signal.ask": "Agents whom it asks, by name or by what they can do; any is all others.", "agent.capabilities": "Words for what it can do, by which others ask it.", "signal.set": "Keys of the state that are set; {{ ARGUMENT }} is what the model gives.",
	"cache": "How long a result is kept for equal calls, such as 1h, or {ttl, scope, key}.", "cache.ttl": "How long a result is kept.", "cache.scope": "Who shares it: runs of one chat of a user, of a user, or of the namespace.", "cache.key": "An expression whose value stands for what the call is given.",
	"n": "How many attempts are made.", "score": "An expression that gives the score of an attempt; the highest is the best.", "judge": "A model that chooses the best attempt: a prompt, or {prompt, model}.",
	"enough": "The score with which an attempt ends the step: the others are canceled.", "on_item_error": "What the failure of one means: fail, continue with null, or keep it as {error: …}.", "quorum": "How many items must succeed.",
	"choices": "What can be answered.", "answer_within": "How long an answer is waited for.",
}
