package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Step is one step of a workflow.
type Step struct {
	// ID is what others call it by. It defaults to the type and the place, such as "code_3".
	ID, Type string
	// Parallel are sequences that run beside each other; the step has no other parts then.
	Parallel [][]*Step
	Retry    int
	Timeout  time.Duration
	OnError  workgraph.OnError
	body     body
	// cache is how long its results are kept for equal calls, nil for never.
	cache *caching
	// set are keys of the state that are set behind it, nil for none.
	set *value

	at *value
	// needs are the steps that it follows, if needsAt is not nil; others follow what stands before
	// them.
	needsAt *value
	needs   []*value
}

// within are the sequences of steps in a step.
func (s *Step) within() [][]*Step {
	out := slices.Clone(s.Parallel)
	switch b := s.body.(type) {
	case *switchBody:
		for _, r := range b.rules {
			out = append(out, r.steps)
		}
		out = append(out, b.rest)
	case *unreadBody:
		out = append(out, b.within...)
	case *loopBody:
		out = append(out, b.steps)
	case *mapBody:
		out = append(out, b.steps)
	case *bestBody:
		out = append(out, b.steps)
	}
	return out
}

// body is what a step of a type has besides.
type body interface {
	// node fills in the node of a step.
	node(c *compiler, s *Step, n *workgraph.Node)
}

// types are the step types by name, with how each is read.
var types = map[string]func(t *teller, o *object) body{
	"actor": readActor, "agent": readAgent, "assertion": readAssertion, "best_of": readBest, "categorizer": readCategorizer, "code": readCode, "deep_agent": readDeepAgent, "extractor": readExtractor,
	"filter": readFilter, "http": readHTTP, "human": readHuman, "identify_user": readUser, "loop": readLoop, "map": readMap, "merge": readMerge, "reply_chat": readReply,
	"router": readRouter, "set": readSet, "switch": readSwitch, "team": readTeam, "transform": readTransform, "wait": readWait, "workflow": readWorkflow,
}

func typeNames() []string { return slices.Sorted(maps.Keys(types)) }

// steps reads the steps of a workflow.
func (t *teller) steps(o *object, v *value) []*Step {
	if v == nil {
		if !o.bad {
			t.at(o.v, "MISSING_KEY", "list what is to be done", "a workflow needs `steps`")
		}
		return nil
	}
	count := 0
	out := t.sequence(v, "", &count)
	if v.kind == list && len(v.items) == 0 {
		t.at(v, "EMPTY", "list what is to be done", "`steps` is empty")
	}
	return out
}

// sequence reads a list of steps. Default ids of steps within others begin with the id of those.
func (t *teller) sequence(v *value, within string, count *int) []*Step {
	if !t.is(v, list) {
		return nil
	}
	var out []*Step
	for i, item := range v.items {
		if t.full() {
			return out
		}
		if *count++; *count > maxSteps {
			t.at(item, "TOO_LARGE", "move steps into workflows of their own", "a workflow may have %d steps", maxSteps)
			return out
		}
		if s := t.step(item, within, i+1, count); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func (t *teller) step(v *value, within string, at int, count *int) *Step {
	o := t.object(v, "a step")
	if o.bad {
		return t.unreadStep(v)
	}
	s := &Step{at: v}
	if p := o.value("parallel"); p != nil {
		if t.is(p, list) {
			for i, branch := range p.items {
				if branch.kind != list { // a single step
					branch = &value{kind: list, items: []*value{branch}, at: branch.at, under: branch.under, index: branch.index}
				}
				if len(branch.items) == 0 {
					t.at(branch, "EMPTY", "give it a step, or remove it", "the branch is empty")
				}
				s.Parallel = append(s.Parallel, t.sequence(branch, fmt.Sprintf("%sparallel_%d_%d_", within, at, i+1), count))
			}
		}
		if o.done(); len(s.Parallel) == 0 {
			t.at(p, "EMPTY", "list steps, or lists of steps", "`parallel` is empty")
			return t.unreadStep(v)
		}
		return s
	}
	kind := o.value("type")
	if kind == nil {
		t.at(v, "MISSING_KEY", "use "+words(typeNames(), "or"), "a step needs `type`")
		return t.unreadStep(v)
	}
	if !t.is(kind, text) {
		return t.unreadStep(v)
	}
	read := types[kind.text]
	if read == nil {
		t.word(kind, "the type of a step", typeNames())
		return t.unreadStep(v)
	}
	lost := t.lost()
	s.Type = kind.text
	o.what = "a step of the type " + s.Type
	if s.ID = o.line("id", maxName); s.ID == "" {
		if s.ID = within + s.Type + "_" + strconv.Itoa(at); strings.HasSuffix(within, bodySuffix) {
			s.ID = within + strconv.Itoa(at)
		}
	} else if !idPattern.MatchString(s.ID) {
		t.at(v.get("id"), "BAD_ID", idHint, "%q cannot be the id of a step", clip(s.ID))
	}
	t.unread.steps = t.unread.steps || t.lost() > lost // it may have another id
	t.common(o, s)
	s.body = read(t, o)
	t.unused(o, s)
	lost = t.lost() - lost
	switch b := s.body.(type) {
	case *switchBody:
		for i, r := range b.rules {
			if r.inline != nil {
				b.rules[i].steps = t.sequence(r.inline, fmt.Sprintf("%s_%d_", s.ID, i+1), count)
			}
		}
		if b.otherwise != nil {
			b.rest = t.sequence(b.otherwise, s.ID+"_default_", count)
		}
	case *loopBody:
		if b.inline != nil {
			b.steps = t.sequence(b.inline, s.ID+bodySuffix, count)
		}
	case *mapBody, *bestBody:
		if m := s.mapped(); m.inline != nil {
			m.steps = t.sequence(m.inline, s.ID+bodySuffix, count)
		}
	}
	if o.done(); lost > 0 {
		s.unknown()
	}
	return s
}

// unused tells of keys of all steps that mean nothing for the type of this one.
func (t *teller) unused(o *object, s *Step) {
	refuse := func(key, why string) {
		if v := o.v.get(key); v != nil {
			t.at(v, "FIELD_NOT_USED", "remove it", "%s %s", o.what, why)
		}
	}
	if why := uncached(s.Type); why != "" {
		refuse("cache", why)
	}
	switch s.Type {
	case "assertion", "switch", "router":
		refuse("retry", "would give the same again")
	case "loop", "map", "best_of":
		for _, key := range []string{"retry", "timeout"} {
			refuse(key, "has no `"+key+"`: the steps of its body have")
		}
	case "agent", "deep_agent", "team", "workflow", "wait":
		refuse("timeout", "only waits, and a timeout bounds calls: bound an agent by `max_rounds`, and the whole by the timeout of the run")
	case "human":
		refuse("timeout", "has `answer_within` for that")
	}
	switch s.Type {
	case "loop":
		refuse("on_error", "has no `on_error`: the steps of its body have")
	case "switch", "router", "set":
		refuse("set", "gives nothing to set: use a step of the type set")
	}
}

// common reads what steps of all types have.
func (t *teller) common(o *object, s *Step) {
	s.needsAt, s.needs = o.value("needs"), o.texts("needs")
	s.set = o.value("set")
	t.updates(s.set)
	s.Retry = o.whole("retry", 1, 100, 0)
	s.Timeout, _ = o.duration("timeout")
	s.cache = t.cache(o, true)
	if v := o.value("on_error"); v != nil {
		switch {
		case v.kind == mapping:
			in := t.object(v, "`on_error`")
			given := v.get("value")
			if in.value("value"); given == nil {
				in.missing("value", "the value that stands for the result")
			} else {
				t.unfilled(given)
				s.OnError = workgraph.OnError{Action: workgraph.Fallback, Value: given.json()}
			}
			in.done()
		case v.kind == text && v.text == "fail":
		case v.kind == text && v.text == "continue":
			s.OnError = workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage("null")}
		case v.kind == text && v.text == "keep":
			s.OnError = workgraph.OnError{Action: workgraph.Fallback}
		default:
			t.at(v, "UNKNOWN_WORD", "use `fail`, `continue`, `keep`, or `{value: …}` that stands for the result", "`on_error` cannot be %s", clip(v.text))
		}
	}
}

// one is the first of some keys that is there, with its name. Several are told.
func (o *object) one(keys ...string) (v *value, key string) {
	for _, k := range keys {
		x := o.value(k)
		switch {
		case x == nil:
		case v != nil:
			o.t.at(x, "SEVERAL_FORMS", "leave one of them out", "give `%s` or `%s`, not both", key, k)
		default:
			v, key = x, k
		}
	}
	return v, key
}

// must is one, and tells if there is none.
func (o *object) must(keys ...string) *value {
	v, _ := o.one(keys...)
	if v == nil {
		o.missing(keys[0], "")
	}
	return v
}

// mustText is a text that must be there.
func (o *object) mustText(keys ...string) *value {
	if v := o.must(keys...); v != nil && o.t.is(v, text) {
		return v
	}
	return nil
}

// codeBody runs a script.
type codeBody struct{ script *value }

func readCode(t *teller, o *object) body {
	b := &codeBody{script: o.mustText("code", "snippet")}
	switch language := o.value("language"); {
	case language == nil:
	case t.is(language, text) && language.text != "starlark":
		t.at(language, "UNKNOWN_WORD", "Starlark reads like Python, without imports; other code runs in a worker, by the type `actor`", "the language of a step is `starlark`, not %q", clip(language.text))
	}
	return b
}

const fence = "```"

func (b *codeBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "starlark"
	if b.script == nil {
		return
	}
	code := b.script.text
	if trimmed := strings.TrimSpace(code); strings.HasPrefix(trimmed, fence) && strings.HasSuffix(trimmed, fence) && strings.Contains(trimmed, "\n") {
		code = strings.TrimSuffix(trimmed[strings.IndexByte(trimmed, '\n')+1:], fence) // as models write it
	}
	names, refs := c.variables(s)
	code, err := script(code, names)
	if err != nil {
		c.at(b.script, "BAD_SCRIPT", "", "%v", err)
		return
	}
	n.Named = map[string]json.RawMessage{"script": jsonText(code)}
	for i, name := range names {
		argument(n, name, nil, refs[i:i+1])
	}
}

// variables are what a script gets by name: the inputs, the items of the loops and maps around it, and
// the results of the steps right before that always ran.
func (c *compiler) variables(s *Step) (names []string, refs []ref) {
	give := func(name string) {
		r := ref{step: name, at: s.at.at}
		if !slices.Contains(names, name) && c.known(s, &r, s.at, true) {
			names, refs = append(names, name), append(refs, r)
		}
	}
	give(inputsID)
	for l := c.loop[s.ID]; l != nil; l = c.loop[l.ID] {
		if b, ok := l.body.(*loopBody); ok && b.over != nil {
			give(b.as)
		}
	}
	if c.above != nil {
		give(c.as)
	}
	for _, id := range c.direct(s) {
		if id != s.ID && c.certain(c.resultNode(c.steps[id]), s.ID) {
			give(id)
		}
	}
	return names, refs
}

// jsonText is a text as JSON.
func jsonText(s string) json.RawMessage { return json.RawMessage(literal(s)) }

// actorBody calls any actor.
type actorBody struct {
	actor string
	with  []entry
}

func readActor(t *teller, o *object) body {
	b := &actorBody{}
	if v := o.mustText("actor"); v != nil {
		b.actor = strings.TrimSpace(v.text)
		if name, is := strings.CutPrefix(b.actor, workflowPrefix); is {
			t.versioned(v, name)
			return &workflowBody{name: name, input: o.entries("with")}
		}
	}
	b.with = o.entries("with")
	return b
}

func (b *actorBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = b.actor
	for _, e := range b.with {
		refs := c.argument(s, n, e.key, e.value)
		if w, ok := wanted(b.actor, e.key); ok {
			c.filledFits(e.value, refs, w)
		}
	}
}

func readHTTP(_ *teller, o *object) body {
	b := &actorBody{actor: "http"}
	if o.value("url") == nil {
		o.missing("url", "")
	}
	for _, key := range []string{"url", "method", "headers", "query", "json", "body"} {
		if v := o.value(key); v != nil {
			b.with = append(b.with, entry{key: key, value: v})
		}
	}
	return b
}

// transformBody makes a value: a text or any value with references, or an expression.
type transformBody struct{ template, expr *value }

func readTransform(_ *teller, o *object) body {
	v, key := o.one("template", "value", "expr")
	switch {
	case v == nil:
		o.missing("template", "a text or a value with {{ STEP.FIELD }}, or `expr`, an expression")
	case key == "expr":
		if o.t.is(v, text) {
			return &transformBody{expr: v}
		}
	}
	return &transformBody{template: v}
}

func (b *transformBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "cel"
	if b.expr != nil {
		c.expression(s, n, b.expr)
		return
	}
	n.Named = map[string]json.RawMessage{"expr": jsonText("named.value")}
	if refs := c.argument(s, n, "value", b.template); b.template != nil {
		c.stepsAre[s.ID] = valueType(b.template, refs)
	}
}

// replyBody says something.
type replyBody struct{ message *value }

func readReply(_ *teller, o *object) body { return &replyBody{o.must("message", "template")} }

// replyTries is how often what is said is tried: of two replies side by side one comes first.
const replyTries = 10

func (b *replyBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = flow.ReplyActor
	if n.Retry.MaxAttempts == 0 {
		n.Retry.MaxAttempts = replyTries
	}
	if refs := c.argument(s, n, flow.ReplyValue, b.message); b.message != nil {
		c.stepsAre[s.ID] = valueType(b.message, refs)
	}
}

var delayUnits = []string{"seconds", "minutes", "hours", "days"}

func readWait(t *teller, o *object) body {
	b := &actorBody{actor: "sleep"}
	v := o.must("delay", "for")
	if v == nil {
		return b
	}
	wait := func(seconds float64) {
		b.with = []entry{{key: "seconds", value: &value{kind: number, text: strconv.FormatFloat(seconds, 'f', -1, 64), at: v.at, under: v.under, key: v.key}}}
	}
	if unit := o.v.get("delay_unit"); unit != nil && v.kind != number {
		t.at(unit, "FIELD_NOT_USED", "write the unit into the delay, or give a number", "`delay_unit` belongs to a delay that is a number")
	}
	switch unit := o.word("delay_unit", "seconds", delayUnits...); v.kind {
	case number:
		n, err := strconv.ParseFloat(v.text, 64)
		if err != nil || n < 0 {
			t.at(v, "OUT_OF_RANGE", "", "a delay is a number from 0 on")
			break
		}
		wait(n * map[string]float64{"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}[unit])
	case text:
		d, ok := readDuration(v.text)
		switch {
		case ok:
			wait(d.Seconds())
		case marks.MatchString(v.text):
			b.with = []entry{{key: "seconds", value: v}}
		default:
			t.at(v, "BAD_DURATION", "write for example 500ms, 30s, 1h or 2d", "%q is no time", clip(v.text))
		}
	default:
		t.is(v, number)
	}
	return b
}

// readHuman reads a step that asks a person.
func readHuman(_ *teller, o *object) body {
	b := &actorBody{actor: "human"}
	if v := o.must("message", "prompt"); v != nil {
		b.with = append(b.with, entry{key: "prompt", value: v})
	}
	for _, key := range []string{"schema", "choices", "multiple", "approve", "answer_within", "default"} {
		if v := o.value(key); v != nil {
			if key == "answer_within" {
				key = "timeout"
			}
			b.with = append(b.with, entry{key: key, value: v})
		}
	}
	return b
}

// mergeBody puts results together: those of the steps before, or those that it names.
type mergeBody struct {
	from []*value
	mode string
}

func readMerge(_ *teller, o *object) body {
	return &mergeBody{from: o.texts("from"), mode: o.word("mode", "map", "map", "list", "first")}
}

func (b *mergeBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "cel"
	ids := c.direct(s)
	refs, most := c.merged(s, ids), len(ids)
	if b.from != nil {
		refs, most = nil, len(b.from)
		for _, v := range b.from {
			id := strings.TrimSpace(v.text)
			if r := (ref{mark: id, step: id, at: v.at}); c.known(s, &r, v, false) {
				refs = append(refs, r)
			}
		}
	}
	if len(refs) == most { // of others the faults are told
		c.stepsAre[s.ID] = mergedType(b.mode, refs)
	}
	c.evaluatesOwn(n, s.at, mergeExpr(b.mode, refs))
}

// mergedType is what is known of results that are put together.
func mergedType(mode string, refs []ref) typing.Type {
	of := map[string]typing.Type{}
	var all typing.Type
	for i, r := range refs {
		of[r.mark] = r.is.Or(typing.Of(typing.Null))
		if all = all.Or(r.is); i == 0 {
			all = r.is
		}
	}
	switch mode {
	case "map":
		return typing.Record(of)
	case "list":
		return typing.List(all)
	}
	return all
}

// mergeExpr is the results of steps, whose marks are their ids, as one value. In a map the result of a
// step that did not run is null; a list leaves it out.
func mergeExpr(mode string, refs []ref) string {
	if len(refs) == 0 && mode != "map" {
		return "[]"
	}
	parts := make([]string, len(refs))
	for i, r := range refs {
		if mode == "map" {
			parts[i] = literal(r.mark) + ": " + r.present() + " ? dyn(" + r.expr() + ") : null"
		} else {
			parts[i] = "(" + r.present() + " ? [dyn(" + r.expr() + ")] : [])"
		}
	}
	if mode == "map" {
		return "{" + strings.Join(parts, ", ") + "}"
	}
	list := strings.Join(parts, " + ") + " + []"
	if mode == "first" {
		return "(" + list + ")[0]"
	}
	return list
}

// versioned is what the name of a workflow with its version looks like.
var versioned = regexp.MustCompile(`^[^@{}\s]+@[^@{}\s]+$`)

// workflowBody runs another workflow and takes its result.
type workflowBody struct {
	name  string
	input []entry
}

// workflowPrefix begins the names of workflows where actors are named.
const workflowPrefix = "workflow/"

// versioned tells of a name that is none of a version of a workflow.
func (t *teller) versioned(v *value, name string) {
	if !versioned.MatchString(name) {
		hint := "write NAME@VERSION or NAME@ALIAS, such as send-mail@1 or send-mail@prod"
		if name != "" && !strings.ContainsAny(name, "@{} ") {
			hint = "write `" + clip(name) + "@1` for a version, or `" + clip(name) + "@ALIAS`: with the name alone each new version would change what this one does"
		}
		t.at(v, "BAD_NAME", hint, "%q names no version of a workflow", clip(name))
	}
}

func readWorkflow(_ *teller, o *object) body {
	b := &workflowBody{}
	if v := o.mustText("workflow"); v != nil {
		b.name = strings.TrimPrefix(strings.TrimSpace(v.text), "workflow/")
		if b.name != "self" {
			o.t.versioned(v, b.name)
		}
	}
	b.input = o.entries("payload")
	return b
}

func (b *workflowBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "spawn"
	name := b.name
	if name != "self" {
		name = "workflow/" + name
	}
	n.Named = map[string]json.RawMessage{"ref": jsonText(name), "as_result": json.RawMessage("true")}
	in := &value{kind: mapping, entries: []entry{{key: "named", value: &value{kind: mapping, entries: b.input, at: s.at.at, under: s.at, key: "payload"}}}, at: s.at.at, under: s.at, key: "payload"}
	if refs := c.argument(s, n, "input", in); name == "self" && c.d.Inputs != nil {
		c.ownInputs(s, b.input, refs)
	}
}

// StepTypes are the names of all types of steps, sorted.
func StepTypes() []string { return typeNames() }
