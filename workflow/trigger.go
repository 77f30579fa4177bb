package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// The types of triggers.
const (
	ManualTrigger   = "manual"
	WebhookTrigger  = "webhook"
	CronTrigger     = "cron"
	ChatTrigger     = "chat"
	TelegramTrigger = "telegram"
	WorkflowTrigger = "workflow"
	ErrorTrigger    = "error"
	EventTrigger    = "event"
)

// Trigger is something that starts a workflow. Which fields count depends on the type. It has a JSON form.
type Trigger struct {
	// ID is its name within the workflow.
	ID   string `json:"id"`
	Type string `json:"type"`
	// Path is where a webhook is called; empty means the workflow's slug, a slash and the id.
	Path string `json:"path,omitempty"`
	// Signature is how a webhook proves who calls: standard, github or token.
	Signature string `json:"signature,omitempty"`
	// Cron is five fields of cron, or @daily, @every 15m and the like, in Timezone, which is UTC if it is
	// empty.
	Cron     string `json:"cron,omitempty"`
	Timezone string `json:"timezone,omitempty"`
	// Overlap says what happens while a run that the clock started is open: skip, queue_one, queue_all,
	// cancel_other or allow.
	Overlap string `json:"overlap,omitempty"`
	// Bot is a name in the configuration. Without Chats it hears all chats, without Commands all messages.
	Bot      string   `json:"bot,omitempty"`
	Chats    []string `json:"chats,omitempty"`
	Commands []string `json:"commands,omitempty"`
	// Workflow is the one whose ends are heard, On which of them: completed, failed, canceled or ended. Of an
	// event trigger it is the workflow that the events are of, if they are not of all.
	Workflow string `json:"workflow,omitempty"`
	On       string `json:"on,omitempty"`
	// Workflows are those whose failures are heard; none means all but this one.
	Workflows []string `json:"workflows,omitempty"`
	// Kinds are the events of the feed that are heard, of the epic Epic alone if it is set. When is a CEL
	// expression over `event`; empty means all.
	Kinds []string `json:"kinds,omitempty"`
	Epic  string   `json:"epic,omitempty"`
	When  string   `json:"when,omitempty"`
	// Inputs are the inputs of the run with references to `event`; nil leaves them to the event: see Fill.
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// Accepts are the names of the workflow's inputs; none means any.
	Accepts []string `json:"accepts,omitempty"`
}

// MaxTriggers is how many triggers a workflow may have.
const MaxTriggers = 20

const (
	// maxHookPath bounds the path of a webhook, in bytes.
	maxHookPath = 100
	// maxWhen bounds the condition of a trigger, in bytes: it is compiled when the workflow is read.
	maxWhen = 2000
	// eventID is what references in the inputs of a trigger read.
	eventID = "event"
)

var hookPath = regexp.MustCompile(`^[a-z0-9_-]+(/[a-z0-9_-]+)*$`)

// triggerTypes are the types with what reads their keys.
func triggerTypes() map[string]func(*teller, *object, *Trigger) {
	return map[string]func(*teller, *object, *Trigger){
		ManualTrigger: nil, ChatTrigger: func(*teller, *object, *Trigger) {}, WebhookTrigger: (*teller).webhookTrigger, CronTrigger: (*teller).cronTrigger,
		TelegramTrigger: (*teller).telegramTrigger, WorkflowTrigger: (*teller).workflowTrigger, ErrorTrigger: (*teller).errorTrigger, EventTrigger: (*teller).eventTrigger,
	}
}

func triggerNames() []string {
	return []string{ManualTrigger, WebhookTrigger, CronTrigger, ChatTrigger, TelegramTrigger, WorkflowTrigger, ErrorTrigger, EventTrigger}
}

// Triggers are what starts the workflow beside calls, in the order of the text.
func (d *Definition) Triggers() []Trigger { return slices.Clone(d.triggers) }

// triggers reads `trigger` or `triggers`. A call, the trigger `manual`, needs no word.
func (t *teller) triggers(o *object, inputs json.RawMessage) []Trigger {
	v, key := o.one("triggers", "trigger")
	if config := o.value("trigger_config"); config != nil {
		v = t.configured(v, key, config)
	}
	if v == nil {
		return nil
	}
	items := []*value{v}
	if v.kind == list {
		items = v.items
	}
	if len(items) > MaxTriggers {
		t.at(items[MaxTriggers], "TOO_LARGE", "move some into workflows of their own", "a workflow may have %d triggers", MaxTriggers)
		items = items[:MaxTriggers]
	}
	accepts := inputNames(inputs)
	var out []Trigger
	seen := map[string]*value{}
	for i, item := range items {
		x := Trigger{Accepts: accepts}
		if !t.trigger(item, i, &x) {
			continue
		}
		if other := seen[x.ID]; other != nil {
			t.at(item, "DUPLICATE_ID", "give one of them another `id`", "there is a trigger %q already in `%s`, in line %d", x.ID, key, other.at.Line)
			continue
		}
		seen[x.ID] = item
		if x.Type != ManualTrigger {
			out = append(out, x)
		}
	}
	return out
}

// configured is a trigger that is named alone, with its keys, which stand beside it.
func (t *teller) configured(v *value, key string, config *value) *value {
	if v == nil || key != "trigger" || v.kind != text {
		t.at(config, "FIELD_NOT_USED", "write the keys into the trigger, beside its `type`", "`trigger_config` is for a `trigger` that is a word alone")
		return v
	}
	if !t.is(config, mapping) {
		return v
	}
	out := &value{kind: mapping, at: v.at, under: v.under, key: v.key, entries: []entry{{key: "type", at: v.at, value: v}}}
	for _, e := range config.entries {
		if e.key == "type" {
			t.at(e.value, "SEVERAL_FORMS", "leave it out", "`trigger` says of which type it is")
			continue
		}
		out.entries = append(out.entries, e)
	}
	return out
}

// trigger reads one: the name of its type, or keys and values.
func (t *teller) trigger(v *value, at int, x *Trigger) bool {
	// The name alone is a trigger without keys, so that the same reader tells what is missing.
	kind, o := v, &object{t: t, v: &value{kind: mapping, at: v.at, under: v.under, key: v.key, index: v.index}, what: "a trigger"}
	if v.kind == mapping {
		o = t.object(v, "a trigger")
		if kind = o.value("type"); kind == nil {
			o.missing("type", "write "+words(triggerNames(), "or"))
			t.everyTrigger(o)
			o.done()
			return false
		}
	}
	if !t.is(kind, text) {
		return false
	}
	if kind.text == "none" { // it is called, as everything may be
		manual := *kind
		manual.text = ManualTrigger
		kind = &manual
	}
	read, there := triggerTypes()[kind.text]
	if !there {
		hint := ""
		if kind.text == "schedule" {
			hint = "use `cron`"
		}
		t.triggerWord(kind, hint)
		return false
	}
	if x.Type, x.ID = kind.text, o.line("id", maxName); x.ID == "" {
		x.ID = fmt.Sprintf("%s_%d", x.Type, at+1)
	} else if !idPattern.MatchString(x.ID) {
		t.at(o.v.get("id"), "BAD_ID", idHint, "%q is no id of a trigger", clip(x.ID))
	}
	if read != nil {
		read(t, o, x)
		x.Inputs = t.eventInputs(o, x.Accepts)
	}
	o.done()
	return true
}

func (t *teller) triggerWord(v *value, hint string) {
	if hint == "" {
		t.word(v, "a trigger", triggerNames())
		return
	}
	t.at(v, "UNKNOWN_WORD", hint, "a trigger cannot be `%s`", clip(v.text))
}

// everyTrigger asks for the keys of all types, so that none is told as unknown where the type is.
func (t *teller) everyTrigger(o *object) {
	for _, key := range []string{"id", "inputs", "path", "signature", "cron", "every", "timezone", "overlap", "bot", "chats", "commands", "workflow", "on", "workflows", "kinds", "epic", "when"} {
		o.value(key)
	}
}

func (t *teller) webhookTrigger(o *object, x *Trigger) {
	x.Path, x.Signature = strings.Trim(o.plain("path"), "/"), o.word("signature", "standard", "standard", "github", "token")
	if x.Path != "" && (len(x.Path) > maxHookPath || !hookPath.MatchString(x.Path)) {
		t.at(o.v.get("path"), "BAD_PATH", "use small letters, digits, _ and -, with / between parts, 100 at most, as in orders/new", "%q is no path of a webhook", clip(x.Path))
	}
}

// overlaps are the policies of schedules.
func overlaps() []string { return []string{"skip", "queue_one", "queue_all", "cancel_other", "allow"} }

func (t *teller) cronTrigger(o *object, x *Trigger) {
	x.Timezone, x.Overlap = o.line("timezone", maxName), o.word("overlap", "skip", overlaps()...)
	v, key := o.one("cron", "every")
	switch {
	case v == nil:
		o.missing("cron", "such as `cron: 0 8 * * 1-5`, or `every: 15m`")
	case key == "every":
		if d, ok := o.duration("every"); ok && (d < time.Second || d%time.Second != 0 || d > 366*day) {
			t.at(v, "OUT_OF_RANGE", "", "`every` is whole seconds, from 1s to 366d")
		} else if ok {
			x.Cron = "@every " + d.String()
		}
	default:
		x.Cron = o.line("cron", maxName)
		if n := len(strings.Fields(x.Cron)); n != 5 && !strings.HasPrefix(x.Cron, "@") {
			t.at(v, "BAD_CRON", "give minute, hour, day of month, month and day of week, as in 0 8 * * 1-5, or @daily", "%q has %d fields, not five", clip(x.Cron), n)
		}
	}
}

func (t *teller) telegramTrigger(o *object, x *Trigger) {
	if x.Bot = o.line("bot", maxName); x.Bot == "" {
		o.missing("bot", "the name of a bot in the configuration, under executor.telegram.bots")
	}
	if chats := o.value("chats"); chats != nil && t.is(chats, list) {
		for _, v := range o.few("chats", chats.items) {
			switch {
			case v.kind == number && !strings.ContainsAny(v.text, ".eE"), v.kind == text && v.text != "":
				x.Chats = append(x.Chats, v.text)
			default:
				t.at(v, "WRONG_TYPE", "such as 123456789 or -1001234", "this must be the number of a chat")
			}
		}
	}
	for _, v := range o.few("commands", o.texts("commands")) {
		x.Commands = append(x.Commands, strings.TrimPrefix(strings.TrimSpace(v.text), "/"))
	}
}

// endWords are the ends that can be heard. The last but one is another spelling of the last.
func endWords() []string {
	return []string{"completed", "failed", "ended", "cancelled", "canceled"} //nolint:misspell // people may write either
}

func (t *teller) workflowTrigger(o *object, x *Trigger) {
	if x.On = o.word("on", "completed", endWords()...); x.On == endWords()[3] {
		x.On = "canceled"
	}
	v := o.mustText("workflow")
	if v == nil {
		return
	}
	x.Workflow = t.watched(v)
}

func (t *teller) errorTrigger(o *object, x *Trigger) {
	for _, v := range o.few("workflows", o.texts("workflows")) {
		x.Workflows = append(x.Workflows, t.watched(v))
	}
}

// EventKinds are the events of the feed that start runs. The events of calls, of prices, of the memory and
// of messages are not among them: each round of an agent makes some, so that an agent which they start would
// start itself. Neither are deletions of threads: those that a run had are deleted after its end, by nobody,
// so that nothing says what the new run is the consequence of.
func EventKinds() []string {
	return []string{
		"epic_created", "epic_updated", "epic_deleted", "task_created", "task_updated", "task_deleted", "budget_reached", "workflow_published",
		"run_started", "run_ended", "run_paused", "run_resumed", "thread_created",
	}
}

func (t *teller) eventTrigger(o *object, x *Trigger) {
	kinds := o.few("kinds", o.texts("kinds"))
	if len(kinds) == 0 && (o.v.get("kinds") == nil || o.v.get("kinds").kind == list) {
		o.missing("kinds", "such as [task_updated]")
	}
	for _, v := range kinds {
		name := strings.TrimSpace(v.text)
		switch {
		case !slices.Contains(EventKinds(), name):
			t.word(v, "an event", EventKinds())
		case !slices.Contains(x.Kinds, name):
			x.Kinds = append(x.Kinds, name)
		}
	}
	if x.Epic = o.line("epic", maxName); strings.ContainsAny(x.Epic, " {}") {
		t.at(o.v.get("epic"), "BAD_NAME", "give the id of one epic, such as ep_01ARZ3NDEKTSV4RRFFQ69G5FAV; `when` chooses among several", "%q is no id of an epic", clip(x.Epic))
	}
	if v := o.value("workflow"); v != nil && t.is(v, text) {
		x.Workflow = t.watched(v)
	}
	if x.When = o.line("when", maxWhen); x.When != "" {
		if _, err := workgraph.CompileEventExpr(context.Background(), x.When); err != nil {
			t.at(o.v.get("when"), "BAD_EXPRESSION", "it is CEL over `event`, as in event.task.status == \"failed\"", "the condition cannot be used: %v", err)
		}
	}
}

// watched is the name of a workflow whose ends are heard, whatever their versions.
func (t *teller) watched(v *value) string {
	name := strings.TrimSpace(v.text)
	if name == "" || len(name) > maxName || strings.ContainsAny(name, "@/ {}") {
		t.at(v, "BAD_NAME", "give the name in the catalog alone: all its versions are heard", "%q is no name of a workflow", clip(name))
	}
	return name
}

// eventInputs are the inputs of a trigger. Their references are checked in form.
func (t *teller) eventInputs(o *object, accepts []string) json.RawMessage {
	entries := o.entries("inputs")
	v := o.v.get("inputs")
	if v == nil || v.kind != mapping {
		return nil
	}
	for _, e := range entries {
		if accepts != nil && !slices.Contains(accepts, e.key) {
			hint := "it has " + words(accepts, "and")
			if best := nearest(e.key, accepts); best != "" {
				hint = "did you mean `" + best + "`?"
			}
			t.add(Fault{Code: "UNKNOWN_INPUT", Place: e.at, Path: e.value.path(), Message: fmt.Sprintf("the workflow has no input %q", clip(e.key)), Hint: hint})
		}
	}
	var refs []ref
	t.collect(v, &refs)
	if len(refs) > maxRefs {
		t.at(v, "TOO_LARGE", "hand on `{{ event }}` whole", "a value may have %d references", maxRefs)
	}
	for _, r := range refs {
		if r.step != eventID {
			t.add(Fault{Code: "UNKNOWN_STEP", Place: r.at, Path: v.path(), Message: clip(r.mark) + " is not known before the run",
				Hint: "what started it is `event`, as in {{ event.body }}"})
		}
	}
	return v.json()
}

// inputNames are the properties of the schema of inputs; nil for one that names none.
func inputNames(schema json.RawMessage) []string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil || len(s.Properties) == 0 {
		return nil
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
