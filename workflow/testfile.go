package workflow

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// TestFile is a file of tests of a workflow, as it was written.
type TestFile struct {
	// Workflow is a file, as seen from that of the tests, or a name of the catalog.
	Workflow string
	// Workflows are the files of the workflows that its steps name, by NAME@VERSION.
	Workflows map[string]string
	Cases     []TestCase
}

// TestCase is one run of the workflow and what is expected of it.
type TestCase struct {
	Name string
	// Place is where it stands in the text.
	Place  Place
	Inputs map[string]json.RawMessage
	User   string
	// Cassette is the file of the recorded model calls that answer; Model answers without one.
	Cassette string
	Model    []ScriptedReply
	// Actors stand in for actors, by name.
	Actors map[string][]StandIn
	// Answers are those to the questions of steps, by id: one for each question, the last one again and
	// again.
	Answers map[string][]json.RawMessage
	// Allow are the actors with effects that are called for real.
	Allow  []string
	Budget Budget
	// Timeout is how long the case may take; 0 is the default.
	Timeout time.Duration
	Expect  Expectation
}

// ScriptedReply is what a model says to a request that has Match somewhere in its texts.
type ScriptedReply struct {
	Match string
	Text  string
	Calls []ScriptedCall
	// Optional says that the case passes without it, too.
	Optional bool
}

// ScriptedCall is a call of a tool that a model asks for.
type ScriptedCall struct {
	Name      string
	Arguments json.RawMessage
}

// StandIn is what one call of an actor gives: a result, or else a failure.
type StandIn struct {
	Result json.RawMessage
	Fail   *StandInFailure
}

// StandInFailure is how a call fails.
type StandInFailure struct {
	Type            workgraph.ErrorType
	Reason, Message string
}

// Expectation is what is expected of a case. What is empty or nil is not looked at.
type Expectation struct {
	// State is how the run ends: COMPLETED, unless it is said; FAILED, CANCELED, PAUSED, or WAITING for
	// somebody whose answer the case does not have.
	State string
	// Route are all steps of the workflow itself that ran, in the order in which they first ended. Ran
	// and NotRan may name steps within others.
	Route       []string
	Ran, NotRan []StepPath
	// Output is the result of the run; keys of mappings that it leaves out may have any value.
	Output json.RawMessage
	// Error is the reason of the failure, or a part of its message.
	Error string
	Steps []StepExpectation
	// USD is the most that it may cost, and MaxCalls how many calls of models it may make.
	USD      *float64
	MaxCalls *int

	named []placedStep
}

// StepExpectation is what is expected of a step: of the last time that it ran, unless it says otherwise.
//
// Of a step within others all runs count, in the order of the items: the last time is that of the last
// item.
type StepExpectation struct {
	Path  StepPath
	Place Place
	// Result is compared as Expectation.Output is, and so are Arguments: those of the last call of the
	// step's actor, which has a stand-in.
	Result, Arguments json.RawMessage
	Error             string
	// Calls is how often the step ran.
	Calls *int
	// Spoke are the members of a team who spoke, in order, nil if that is not looked at. Those of one
	// turn are in the order of their names.
	Spoke []string
	// Expr is a CEL expression over result, named (the arguments) and visit (how often it ran).
	Expr string
}

// maxCases bounds the cases of a file, and maxReplies what is scripted of one.
const maxCases, maxReplies = 1000, 1000

// ReadTest reads a file of tests, in YAML or JSON. Every fault is told at once, in the order of the text.
func ReadTest(src []byte) (*TestFile, Faults) {
	t := &teller{}
	v := readSource(t, src)
	if v == nil {
		return nil, t.faults.sorted()
	}
	f := t.testFile(v)
	if len(t.faults) > 0 {
		return nil, t.faults.sorted()
	}
	return f, nil
}

func (t *teller) testFile(v *value) *TestFile {
	o := t.object(v, "a test file")
	f := &TestFile{Workflow: o.line("workflow", 1000)}
	if f.Workflow == "" {
		o.missing("workflow", "the file of the workflow, such as `workflow: digest.yaml`, or its name in the catalog")
	}
	for _, e := range o.entries("workflows") {
		if t.is(e.value, text) {
			if f.Workflows == nil {
				f.Workflows = map[string]string{}
			}
			f.Workflows[e.key] = e.value.text
			if !workflowRef.MatchString(e.key) {
				t.at(e.value, "BAD_NAME", "such as `digest@1: digest.yaml`", "%q is no NAME@VERSION", clip(e.key))
			}
		}
	}
	cases := o.list("cases")
	if len(cases) == 0 {
		o.missing("cases", "a list of {name, inputs, expect}")
	}
	if len(cases) > maxCases {
		t.at(cases[maxCases], "TOO_LARGE", "move some into another file", "a file may have %d cases", maxCases)
		cases = cases[:maxCases]
	}
	names := map[string]bool{}
	for _, c := range cases {
		one := t.testCase(c)
		if names[one.Name] && one.Name != "" {
			t.at(c, "DUPLICATE_ID", "give one of them another `name`", "there is a case %q already", clip(one.Name))
		}
		names[one.Name] = true
		f.Cases = append(f.Cases, one)
	}
	o.done()
	return f
}

var workflowRef = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,127}@[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func (t *teller) testCase(v *value) TestCase {
	o := t.object(v, "a case")
	c := TestCase{Name: o.line("name", maxName), Place: v.at, Inputs: o.named("inputs"), User: o.line("user", maxName), Cassette: o.line("cassette", 1000)}
	if c.Name == "" {
		o.missing("name", "what is tested, such as `name: a complaint is asked about`")
	}
	c.Model = t.scripted(o)
	if c.Cassette != "" && len(c.Model) > 0 {
		t.at(v.get("model"), "CONTRADICTION", "leave one of them out", "a `cassette` and a `model` both answer for models")
	}
	for _, e := range o.entries("actors") {
		if c.Actors == nil {
			c.Actors = map[string][]StandIn{}
		}
		c.Actors[e.key] = t.standIns(e.value)
	}
	for _, e := range o.entries("answers") {
		if c.Answers == nil {
			c.Answers = map[string][]json.RawMessage{}
		}
		for _, item := range onePerCall(e.value) {
			c.Answers[e.key] = append(c.Answers[e.key], item.json())
		}
	}
	for _, a := range o.texts("allow") {
		if a.text != "http" {
			t.at(a, "NOT_SUPPORTED", "give it a stand-in in `actors`", "`http` alone can be allowed: a test has no configuration with other actors")
		}
		c.Allow = append(c.Allow, a.text)
	}
	c.Budget = t.budget(o.value("budget"))
	c.Timeout, _ = o.duration("timeout")
	if e := o.value("expect"); e != nil {
		c.Expect = t.expectation(e)
	} else {
		c.Expect.State = testStates[0]
	}
	o.done()
	return c
}

// onePerCall are the items of a list, and any other value alone.
func onePerCall(v *value) []*value {
	if v.kind == list {
		return v.items
	}
	return []*value{v}
}

func (t *teller) scripted(o *object) []ScriptedReply {
	items := o.list("model")
	if len(items) > maxReplies {
		t.at(items[maxReplies], "TOO_LARGE", "", "a case may have %d replies", maxReplies)
		items = items[:maxReplies]
	}
	var out []ScriptedReply
	for _, v := range items {
		in := t.object(v, "a reply")
		r := ScriptedReply{Match: in.text("match")}
		if said := in.value("text"); said != nil {
			if r.Text = said.text; said.kind != text {
				r.Text = string(said.json())
			}
		}
		for _, call := range in.list("tool_calls") {
			inner := t.object(call, "a call of a tool")
			sc := ScriptedCall{Name: inner.line("name", maxName), Arguments: json.RawMessage("{}")}
			if sc.Name == "" {
				inner.missing("name", "the name of the tool")
			}
			if args := inner.value("arguments"); args != nil && t.is(args, mapping) {
				sc.Arguments = args.json()
			}
			inner.done()
			r.Calls = append(r.Calls, sc)
		}
		if in.value("text") == nil && len(r.Calls) == 0 {
			in.missing("text", "what the model says, or `tool_calls`")
		}
		if may := in.value("optional"); may != nil && t.is(may, boolean) {
			r.Optional = may.text == "true"
		}
		in.done()
		out = append(out, r)
	}
	return out
}

// standIns are what the calls of an actor give: a list is one for each call, the last one again and again.
func (t *teller) standIns(v *value) []StandIn {
	items := onePerCall(v)
	if len(items) == 0 {
		t.at(v, "MISSING_KEY", "write one result for each call; `[[]]` is one call that gives an empty list", "the list has no result")
	}
	var out []StandIn
	for _, item := range items {
		if item.kind == mapping && len(item.entries) == 1 && item.entries[0].key == "fail" {
			out = append(out, StandIn{Fail: t.failure(item.entries[0].value)})
			continue
		}
		out = append(out, StandIn{Result: item.json()})
	}
	return out
}

// failure reads how a stand-in fails: a message, or {type, reason, message}.
func (t *teller) failure(v *value) *StandInFailure {
	f := &StandInFailure{Type: workgraph.Permanent, Reason: "STAND_IN", Message: "the stand-in fails"}
	if v.kind == text {
		f.Message = v.text
		return f
	}
	o := t.object(v, "a failure")
	f.Type = workgraph.ErrorType(o.word("type", string(workgraph.Permanent), string(workgraph.Permanent), string(workgraph.Retryable)))
	if reason := o.line("reason", maxName); reason != "" {
		f.Reason = reason
	}
	if message := o.text("message"); message != "" {
		f.Message = message
	}
	o.done()
	return f
}

// testStates are those in which a case may end, the usual one first.
var testStates = []string{"COMPLETED", "FAILED", "CANCELED", "PAUSED", "WAITING"}

func (t *teller) expectation(v *value) Expectation {
	o := t.object(v, "what is expected")
	e := Expectation{State: testStates[0]}
	if s := o.value("state"); s != nil && t.is(s, text) {
		if e.State = strings.ToUpper(s.text); !slices.Contains(testStates, e.State) {
			t.word(s, "`state`", lower(testStates))
		}
	}
	t.route(o, &e)
	e.Error = o.text("error")
	if e.Error != "" && v.get("state") == nil {
		e.State = "FAILED"
	}
	if out := o.value("output"); out != nil {
		e.Output = out.json()
	}
	for _, entry := range o.entries("steps") {
		e.Steps = append(e.Steps, t.stepExpectation(&e, entry))
	}
	if usd, ok := o.amount("cost"); ok {
		e.USD = &usd
	}
	e.MaxCalls = o.count("max_calls")
	o.done()
	return e
}

// route reads `route`: a list of all that ran, or {ran, not_ran}.
func (t *teller) route(o *object, e *Expectation) {
	v := o.value("route")
	switch {
	case v == nil:
	case v.kind == mapping:
		in := t.object(v, "a route")
		for _, id := range in.texts("ran") {
			e.Ran = append(e.Ran, t.testedStep(e, id.text, id, id.at, false))
		}
		for _, id := range in.texts("not_ran") {
			e.NotRan = append(e.NotRan, t.testedStep(e, id.text, id, id.at, false))
		}
		in.done()
	case t.is(v, list):
		for _, id := range o.texts("route") {
			e.Route = append(e.Route, t.testedStep(e, id.text, id, id.at, true).String())
		}
	}
}

// count is the whole number of a key, or nil if it is not there.
func (o *object) count(key string) *int {
	if o.value(key) == nil {
		return nil
	}
	n := o.whole(key, 0, 1<<31-1, 0)
	return &n
}

func (t *teller) stepExpectation(of *Expectation, e entry) StepExpectation {
	o := t.object(e.value, "what is expected of a step")
	s := StepExpectation{Path: t.testedStep(of, e.key, e.value, e.at, false), Place: e.at, Error: o.text("error"), Calls: o.count("calls"), Expr: o.text("expr")}
	t.spoke(o, of, &s)
	if v := o.value("result"); v != nil {
		s.Result = v.json()
	}
	if v := o.value("arguments"); v != nil && t.is(v, mapping) {
		s.Arguments = v.json()
	}
	if s.Expr != "" {
		if _, err := workgraph.CompileExpr(context.Background(), s.Expr); err != nil {
			t.at(o.v.get("expr"), "EXPRESSION_INVALID", "it may read result, named and visit", "%v", err)
		}
	}
	o.done()
	return s
}

// spoke reads who spoke in a team.
func (t *teller) spoke(o *object, of *Expectation, s *StepExpectation) {
	v := o.value("spoke")
	if v == nil {
		return
	}
	s.Spoke = []string{}
	var names []placedName
	for _, name := range o.texts("spoke") {
		s.Spoke, names = append(s.Spoke, name.text), append(names, placedName{name.text, name.at})
	}
	if s.Path != nil {
		of.named[len(of.named)-1].spoke = append([]placedName{}, names...)
	}
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

// TestSchema is the JSON Schema of files of tests, for editors. Its keys are those that the readers ask
// for, as in Schema.
func TestSchema() []byte {
	t := &teller{asked: map[string][]string{}}
	const sample = `{"workflow": "x", "cases": [{"name": "x", "model": [{"tool_calls": [{}]}], "actors": {"a": {"fail": {}}}, "budget": {}, "expect": {"route": {}, "steps": {"a": {}}}}]}`
	if v := readSource(t, []byte(sample)); v != nil {
		t.testFile(v)
	}
	shapes := map[string]shape{
		"cases":      {"type": "array", "items": refTo("case"), "minItems": 1},
		"model":      {"type": "array", "items": refTo("reply"), "description": "What the model says: of the replies with the first text that fits, the next one, and the last one again."},
		"optional":   {"type": "boolean", "description": "Whether the case passes if no model asks for the reply."},
		"match":      {"type": "string", "description": "A text that is somewhere in what the model is told."},
		"tool_calls": {"type": "array", "items": refTo("tool_call")},
		"actors":     {"type": "object", "description": "What actors give, by name: a result, {fail: …}, or a list of one for each call."},
		"answers":    {"type": "object", "description": "The answers to the questions of steps, by id."},
		"allow":      {"type": "array", "items": shape{"const": "http"}},
		"expect":     refTo("expect"), "budget": refTo("budget"),
		"state":     {"enum": lower(testStates)},
		"route":     {"anyOf": []any{shape{"type": "array", "items": shape{"type": "string"}}, refTo("route")}, "description": "The steps that run, in the order in which they first end, or {ran, not_ran}."},
		"steps":     {"type": "object", "additionalProperties": refTo("step"), "description": "What is expected of steps, by id; results/did is the step did within results, results[0]/did that of the first item, and talk/ada a member of the team talk."},
		"spoke":     {"type": []string{"array", "string"}, "items": shape{"type": "string"}, "description": "The members of the team who speak, in order; those of one turn by name."},
		"expr":      {"type": "string", "description": "A CEL expression over result, named (the arguments) and visit (how often it ran)."},
		"cost":      {"type": "number", "minimum": 0, "description": "The most that it may cost, in US dollars."},
		"max_calls": {"type": "integer", "minimum": 0, "description": "The most calls of models."},
	}
	names := map[string]string{"a case": "case", "a reply": "reply", "a call of a tool": "tool_call", "what is expected": "expect", "a route": "route", "what is expected of a step": "step", "a budget": "budget"}
	object := func(what string) shape {
		properties := shape{}
		for _, key := range t.asked[what] {
			properties[key] = true
			if s, ok := shapes[key]; ok && what != "a step" {
				properties[key] = s
			}
		}
		return shape{"type": "object", "properties": properties, "additionalProperties": false}
	}
	defs := shape{}
	for what, name := range names {
		defs[name] = object(what)
	}
	root := object("a test file")
	root["$schema"], root["title"] = "http://json-schema.org/draft-07/schema#", "Tests of a workflow of Epigraph"
	root["required"], root["definitions"] = []string{"workflow", "cases"}, defs
	out, _ := json.MarshalIndent(root, "", "  ") // it has a JSON form
	return append(out, '\n')
}
