package workflow

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// everyStep is examples/workflow/every.yaml, written in Go.
func everyStep() *Spec {
	usd, tokens := 1.0, int64(200_000)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	writer := Agent{Name: "writer", Description: "Writes short letters.", Instructions: "You write short and plain letters.", MaxRounds: 5}
	return &Spec{
		Name: "Every step", Version: "1.0", Description: "Each type of step in one workflow, in the order in which one meets them.", Tags: []string{"example"},
		Inputs: raw(`{"url": {"type": "string"}, "words": {"type": "array"}}`),
		State:  []StateKey{{Name: "notes", Type: "array", Reducer: workgraph.Append}, {Name: "rounds", Type: "integer", Reducer: workgraph.Add}},
		Budget: Budget{USD: &usd, Tokens: &tokens}, Agents: []Agent{writer},
		Steps: Steps{
			{ID: "who", Do: UserStep{}},
			{ID: "length", Do: CodeStep{Code: "return len(inputs['words'])"}},
			{ID: "words", Do: TransformStep{Expr: "{{ inputs.words }}.map(w, {'word': w, 'long': w.size() > 3})"}},
			{ID: "long", Do: FilterStep{Over: "words", Rules: []Rule{{Field: "long", Operator: "is_true"}}}},
			{ID: "sure", Do: AssertionStep{Rules: []Rule{{Field: "words", Operator: "is_not_empty"}}}},
			{ID: "page", Do: HTTPStep{URL: "{{ inputs.url }}"}, OnError: &Fallback{Value: raw(`{"body": "nothing"}`)}},
			{ID: "echo", Do: ActorStep{Actor: "cel", With: raw(`{"expr": "1 + 1"}`)}},

			{ID: "kind", Do: CategorizerStep{Prompt: "What are these words about? {{ inputs.words }}", Categories: []Category{{Name: "drinks"}, {Name: "other"}}}},
			{ID: "facts", Do: ExtractorStep{Prompt: "Take the first word out of {{ inputs.words }}", Schema: raw(`{"first": {"type": "string"}}`)}},
			{ID: "letter", Do: AgentStep{Agent: "writer", Prompt: "Write about {{ facts.first }}"}},
			{ID: "planned", Do: &DeepAgentStep{AgentStep: AgentStep{Prompt: "Plan a letter about {{ facts.first }} and have it written.", SystemPrompt: "You plan."}, Todos: true, Subagents: []Helper{{Name: "writer"}}}},

			{ID: "turn", Do: SwitchStep{Rules: []RouteRule{{Rule: Rule{Field: "kind.category", Value: "drinks"}, Route: "drink"}}, Default: "continue"}},
			{ID: "drink", Do: SetStep{State: raw(`{"notes": "drink"}`)}},
			{ID: "way", Do: RouterStep{Field: "kind.category", Values: []ValueRoute{{"drinks", "pour"}, {"other", "look"}}, Default: "continue"}},
			{ID: "pour", Do: TransformStep{Template: "poured"}},
			{ID: "look", Do: TransformStep{Template: "looked"}},
			{ID: "one", Do: MergeStep{From: []string{"pour", "look"}, Mode: "first"}},
			{Do: ParallelStep{
				{{ID: "nap", Do: WaitStep{Delay: 10 * time.Millisecond}}},
				{{ID: "ask", Do: HumanStep{Message: "Shall we go on with {{ facts.first }}?", Question: Question{Choices: []string{"yes", "no"}}}}},
			}},

			{ID: "each", Do: LoopStep{Over: "words", As: "word", Body: Steps{
				{ID: "note", Do: TransformStep{Template: "{{ each.index }}: {{ word.word }}"}, Set: raw(`{"notes": "{{ note }}"}`)},
				{ID: "sure_of", Do: SwitchStep{Rules: []RouteRule{{Rule: Rule{Field: "word.long", Operator: "is_true"}, Steps: Steps{
					{ID: "check", Do: HumanStep{Message: "Is {{ word.word }} right?", Question: Question{Schema: raw(`{"type": "string"}`)}}},
				}}}, Default: "continue"}},
			}}},
			{ID: "again", Do: LoopStep{Until: &LoopTest{Expr: "{{ state.rounds }} >= 3"}, MaxIterations: 2, Body: Steps{{Do: SetStep{State: raw(`{"rounds": 1}`)}}}}},
			{ID: "beside", Do: MapStep{Over: "words", As: "word", MaxParallel: 2, Body: Steps{
				{ID: "upper", Do: CodeStep{Code: "return word['word'].upper()"}},
				{ID: "both", Do: TransformStep{Template: "{{ upper }} ({{ kind.category }})"}},
			}}},
			{ID: "other", Do: MapStep{Over: []int{1, 2}, Body: Steps{{Do: TransformStep{Expr: "{{ item }} * 2"}}}}},
			{ID: "top", Do: BestOfStep{N: 3, Score: "{{ item }}", Body: Steps{{Do: TransformStep{Expr: "{{ item }} * 3"}}}}},
			{ID: "sub", Do: WorkflowStep{Workflow: "double@1", Payload: map[string]any{"n": "{{ length }}"}}},
			{ID: "chat", Do: TeamStep{Graph: NewGraph().AddAgent(writer), Task: "Say it again: {{ letter }}"}},
			{ID: "said", Do: ReplyStep{Message: "{{ letter }}"}},
		},
		Outputs: raw(`{"said": "{{ said }}", "planned": "{{ planned }}", "user": "{{ who.user_id }}", "way": "{{ one }}", "notes": "{{ state.notes }}", "rounds": "{{ state.rounds }}",
			"checked": "{{ each }}", "beside": "{{ beside }}", "doubled": "{{ other }}", "long": "{{ long }}", "length": "{{ length }}", "sub": "{{ sub }}", "chat": "{{ chat.text }}"}`),
	}
}

// allActions are one of each type.
func allActions() []Action {
	return []Action{
		ActorStep{}, AgentStep{}, AssertionStep{}, BestOfStep{}, CategorizerStep{}, CodeStep{}, DeepAgentStep{}, ExtractorStep{}, FilterStep{}, HTTPStep{}, HumanStep{}, LoopStep{}, MapStep{},
		MergeStep{}, ReplyStep{}, RouterStep{}, SetStep{}, SwitchStep{}, TeamStep{}, TransformStep{}, UserStep{}, WaitStep{}, WorkflowStep{},
	}
}

// TestNewEveryStep has every type of step be built in Go.
func TestNewEveryStep(t *testing.T) {
	t.Parallel()
	t.Run("Types", func(t *testing.T) {
		t.Parallel()
		var kinds []string
		for _, do := range allActions() {
			kind, _ := do.step()
			kinds = append(kinds, kind)
		}
		slices.Sort(kinds)
		require.Equal(t, StepTypes(), kinds)
	})
	t.Run("Graph", func(t *testing.T) {
		t.Parallel()
		src, err := os.ReadFile("../examples/workflow/every.yaml")
		require.NoError(t, err)
		d, text, faults := New(everyStep())
		require.Empty(t, faults)
		want, faults := Read(src)
		require.Empty(t, faults)
		compiled := func(d *Definition) string {
			g, faults := Compile(d)
			require.Empty(t, faults)
			raw, err := json.MarshalIndent(g, "", " ")
			require.NoError(t, err)
			return string(raw)
		}
		require.Equal(t, compiled(want), compiled(d))
		again, faults := Read(text)
		require.Empty(t, faults)
		require.Empty(t, Diff(d, again), "the text says the same")
		require.Equal(t, want.Budget, d.Budget)
		require.Equal(t, []string{want.Version, want.Description}, []string{d.Version, d.Description})
		for _, kind := range StepTypes() {
			require.False(t, each(d.Steps, func(s *Step) bool { return s.Type != kind }), "no step is of the type %s", kind)
		}
	})
}

// TestNewKnowsAllKeys has what is written in Go know every key of the language, but those that are
// another word for one of them.
func TestNewKnowsAllKeys(t *testing.T) {
	t.Parallel()
	var root struct {
		Properties  map[string]any
		Definitions map[string]struct{ Properties map[string]any }
	}
	require.NoError(t, json.Unmarshal(Schema(), &root))
	one := 1.0
	all := StopCondition{Pause: true}
	human, inner := Agent{Human: &Question{}}, Agent{Inner: &Spec{}, Tells: true}
	graph := NewGraph().HandoffToAny().Choose(Choice{}).Otherwise(Agent{Name: "a"})
	// What a key of the language is called in Go, by where it stands.
	known := map[string][]any{
		"workflow": {&Spec{}}, "agent": {&human, &inner}, "tool": {&Tool{Name: "x"}}, "signal": {&Tool{Name: "x"}}, "subagent": {&Helper{Name: "x", Instructions: "x"}}, "graph": {graph},
		"transition": {&transitionSpec{}}, "loop_of_graph": {pairs{{"between", 1}, {"while", 1}}}, "choose": {&Choice{}}, "route": {&routeSpec{}}, "stop": {&all}, "cache": {&Cache{}},
		"when": {pairs{{"text", 1}, {"expr", 1}, {"handoff", 1}, {"any", 1}, {"all", 1}, {"not", 1}}}, "judge": {&Judge{}}, "category": {&Category{}}, "hearing": {&Hearing{}}, "condition": {&LoopTest{}, &Rule{}},
		"rule_of_loop": {&Rule{}}, "rule_of_assertion": {&Rule{}}, "rule_of_filter": {&Rule{}}, "rule_of_switch": {&RouteRule{}}, "rule_of_router": {&Rule{}},
		"on_error": {pairs{{"value", 1}}}, "budget": {&Budget{}}, "model": {&Model{Temperature: &one}}, "thread": {pairs{{"memory", 1}}}, "state_key": {pairs{{"type", 1}, {"reducer", 1}, {"initial", 1}}}, "trigger": {&Trigger{}},
	}
	for _, do := range allActions() {
		kind, _ := do.step()
		known["step_"+kind] = []any{&StepSpec{Do: do, OnError: &Fallback{}}}
	}
	// Other words for a key, and forms that other platforms have and that are refused. The keys of a
	// trigger stand in it, not in trigger_config; capability is model_name; a model that is inherited is
	// the zero Model; what stands beside the type of a tool is With of an actor, such as spawn.
	other := map[string][]string{
		"": {"snippet", "language", "delay_unit", "skills", "list", "every", "type"}, "step_transform": {"value"}, "step_reply_chat": {"template"}, "step_human": {"prompt"}, "step_wait": {"for"},
		"workflow": {"trigger", "trigger_config"}, "model": {"capability", "inherit"},
		"tool": {"workflow", "timeout", "agent", "about", "limit", "exclude", "workflows", "query", "key", "fact_type", "scope", "min_confidence", "tags", "confidence", "expires_in_days"}, "step_deep_agent": {"enable_filesystem", "filesystem_backend", "filesystem_root_dir"},
	}
	check := func(part string, keys map[string]any) {
		require.Contains(t, known, part, "a part of the language that nothing in Go writes")
		var written []string
		for _, x := range known[part] {
			list, ok := x.(pairs)
			if s, is := x.(sourcer); is {
				list, _ = s.source().(pairs)
			} else if v := reflect.Indirect(reflect.ValueOf(x)); !ok {
				if list = pairsOf(x); list == nil {
					for i := range v.NumField() {
						name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
						list = append(list, pair{name, 1})
					}
				}
			}
			for _, p := range list {
				written = append(written, p.key)
			}
		}
		for key := range keys {
			if !slices.Contains(other[""], key) && !slices.Contains(other[part], key) {
				require.Contains(t, written, key, "nothing in Go writes this key of %q: add a field", part)
			}
		}
	}
	check("workflow", root.Properties)
	for part, def := range root.Definitions {
		if part != "step" && part != "steps" {
			check(part, def.Properties)
		}
	}
}

// TestNewEmptyValues has values that are empty and mean something.
func TestNewEmptyValues(t *testing.T) {
	t.Parallel()
	_, text, faults := New(&Spec{Name: "x", Inputs: json.RawMessage(`{"l": {"type": "array"}}`), Steps: Steps{
		{ID: "some", Do: FilterStep{Over: "{{ inputs.l }}", Rules: []Rule{
			{Field: "n", Operator: "gt", Value: 0}, {Field: "b", Operator: "equals", Value: false}, {Field: "s", Operator: "equals", Value: ""}}}},
		{ID: "ask", Do: HumanStep{Message: "Yes?", Question: Question{Default: false, AnswerWithin: time.Minute}}},
		{ID: "nothing", Do: ActorStep{Actor: "cel", With: json.RawMessage(nil)}},
	}})
	require.Empty(t, faults)
	for _, want := range []string{"value: 0}", "value: false}", `value: ""}`, "default: false", "{id: nothing, type: actor, actor: cel}"} {
		require.Contains(t, string(text), want)
	}
}
