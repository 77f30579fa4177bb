// Package foreign makes workflows of definitions of other systems: n8n, Argo Workflows, GitHub Actions,
// Conductor and Pipelit. It carries over their structure: steps, their order, joins, branches, parallel
// parts, waits, people and workflows that call others. What a step does becomes the call of an actor
// that is named after it, such as n8n/slack, unless this language has a step of the kind. What is not
// carried over is told.
package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow"
)

// Platform is the system that a definition was written for.
type Platform string

// The platforms.
const (
	N8N           Platform = "n8n"
	Argo          Platform = "argo"
	GitHubActions Platform = "github_actions"
	Conductor     Platform = "conductor"
	Pipelit       Platform = "pipelit"
)

// ErrUnknown says that a text is the definition of no platform that is known here.
var ErrUnknown = errors.New("this is no definition of n8n, Argo Workflows, GitHub Actions, Conductor or Pipelit")

// Item is something that was not carried over.
type Item struct {
	// What it is, such as "expression", "trigger" or "loop".
	What string `json:"what"`
	// Where names the step or the part of the definition.
	Where string `json:"where"`
	// Why says what becomes of it.
	Why string `json:"why"`
}

// maxItems bounds a report.
const maxItems = 1000

// Result is an imported definition.
type Result struct {
	Platform Platform
	// YAML is a definition that has no faults. A server may not have its actors.
	YAML []byte
	// Report tells what was not carried over, in the order of the definition, 1,000 items at most.
	Report []Item
	// Steps are the ids of the steps that were made of each step of the original, by its name there.
	// The tasks of an Argo template and the steps of a job have the name of that before theirs, with a
	// slash.
	Steps map[string][]string
}

// Import makes a workflow of a definition in JSON or YAML. The platform is told by the keys. An error
// says why there is none: ErrUnknown, a text that cannot be read, or one that is beyond the bounds of a
// workflow.
func Import(src []byte) (Result, error) {
	docs, err := documents(src)
	if err != nil {
		return Result{}, fmt.Errorf("read the definition: %w", err)
	}
	for i, v := range docs {
		platform := detect(v)
		if platform == "" {
			continue
		}
		if platform == Pipelit && own(src) {
			return Result{}, errOwn
		}
		out, err := imported(platform, docs, i, false)
		if _, faulty := errors.AsType[workflow.Faults](err); faulty && platform == Pipelit {
			return imported(platform, docs, i, true) // its rules mean something else here
		}
		return out, err
	}
	return Result{}, ErrUnknown
}

// errOwn is for a workflow that needs no import.
var errOwn = errors.New("this is a workflow of this language already: create it as it is")

// own reports whether a text is a workflow as it stands.
func own(src []byte) bool {
	d, _ := workflow.Read(src)
	if d == nil {
		return false
	}
	_, faults := workflow.Compile(d)
	return len(faults) == 0
}

// imported makes a workflow of one of some documents.
func imported(platform Platform, docs []*value, i int, cautious bool) (Result, error) {
	b := &builder{platform: platform, cautious: cautious, used: map[string]bool{}, next: map[string]int{}, calling: map[string]bool{}, steps: map[string][]string{}}
	for k := range docs {
		if k != i {
			b.report("document", "document "+strconv.Itoa(k+1), "only the first workflow of a text is imported")
		}
	}
	switch v := docs[i]; platform {
	case N8N:
		b.n8n(v)
	case Argo:
		b.argo(v)
	case GitHubActions:
		b.github(v)
	case Conductor:
		b.conductor(v)
	case Pipelit:
		b.pipelit(v)
	}
	return b.result()
}

func detect(v *value) Platform {
	switch {
	case v.get("nodes").is(list) && v.get("connections") != nil:
		return N8N
	case strings.HasPrefix(v.get("apiVersion").str(), "argoproj.io/") && (v.get("spec", "templates").is(list) || v.get("spec", "workflowSpec", "templates").is(list)):
		return Argo
	case v.get("jobs").is(mapping):
		return GitHubActions
	case v.get("tasks").is(list) && v.get("name") != nil:
		return Conductor
	case isPipelit(v):
		return Pipelit
	}
	return ""
}

// builder makes the steps of a workflow. Every step names what it follows, so that the order is that of
// the original exactly.
type builder struct {
	platform    Platform
	name, about string
	tags        []string
	out         []*value
	// used are ids that are taken, and next is the number to try next for a name.
	used  map[string]bool
	next  map[string]int
	items []Item
	steps map[string][]string
	// ways is how many ways there are between steps, and looked how often it was asked what is before a
	// step.
	ways, looked int
	// calling are the Argo templates that are being looked into.
	calling map[string]bool
	// cautious says that no rules are carried over.
	cautious bool
	tooLarge bool
}

// maxSteps is how many steps an imported workflow may have, and maxWays how many ways between them.
// They are those of workflows.
const maxSteps, maxWays = 10_000, 50_000

func (b *builder) report(what, where, why string) {
	if len(b.items) < maxItems {
		b.items = append(b.items, Item{what, clip(where), why})
	}
}

func clip(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

var (
	notID   = regexp.MustCompile(`[^A-Za-z0-9_]+`)
	notName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// id is an id that no other step has, like a name.
func (b *builder) id(name string) string {
	base := strings.Trim(notID.ReplaceAllString(name, "_"), "_")
	if base == "" || base[0] >= '0' && base[0] <= '9' {
		base = "step_" + base
	}
	base = strings.TrimRight(base[:min(len(base), 50)], "_")
	id := base
	for n := max(2, b.next[base]); b.used[id] || !workflow.UsableID(id); n++ {
		id = base + "_" + strconv.Itoa(n)
		b.next[base] = n + 1
	}
	b.used[id] = true
	return id
}

// actor is the name of the actor for a kind of step.
func (b *builder) actor(kind string) string {
	kind = strings.ToLower(strings.Trim(notName.ReplaceAllString(kind, "-"), "-."))
	if kind == "" {
		kind = "step"
	}
	prefix := string(b.platform)
	if b.platform == GitHubActions {
		prefix = "github"
	}
	return prefix + "/" + kind[:min(len(kind), 100)]
}

// field is a key of a step with its value.
type field struct {
	key   string
	value *value
}

func str(s string) *value { return &value{kind: text, text: s} }

func strs(texts []string) *value {
	v := &value{kind: list}
	for _, s := range texts {
		v.items = append(v.items, str(s))
	}
	return v
}

// add adds a step of a type that follows others, and returns its id. source is its name in the
// original, empty for a step that there is not.
func (b *builder) add(source, name, kind string, needs []string, fields ...field) string {
	if b.ways += len(needs); len(b.out) >= maxSteps || b.ways > maxWays {
		b.tooLarge = true
		return ""
	}
	id := b.id(name)
	step := newMapping()
	step.put("id", str(id))
	step.put("type", str(kind))
	for _, f := range fields {
		if f.value != nil {
			step.put(f.key, f.value)
		}
	}
	if needs != nil {
		step.put("needs", strs(unique(needs)))
	}
	b.out = append(b.out, step)
	if source != "" {
		b.steps[source] = append(b.steps[source], id)
	}
	return id
}

func unique(ids []string) []string {
	seen := map[string]bool{"": true}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		was := seen[id]
		seen[id] = true
		return was
	})
}

// call adds the call of an actor with those of its arguments that hold no expressions.
func (b *builder) call(source, name, kind string, needs []string, arguments *value) string {
	return b.add(source, name, "actor", orStart(needs), field{"actor", str(b.actor(kind))}, field{"with", b.plain(name, arguments)})
}

// orStart are the steps that a step follows, where none means that it begins at once.
func orStart(needs []string) []string {
	if needs == nil {
		return []string{}
	}
	return needs
}

// pass adds a step that does nothing.
func (b *builder) pass(source, name string, needs []string) string {
	return b.add(source, name, "transform", needs, field{"template", newMapping()})
}

// choice is one way that a switch can choose: where a field has a value, or by a rule.
type choice struct {
	field, value, name string
	rule               *value
}

// choose adds a switch behind a step, and returns a step for each of its ways. With a name for the
// rest, the last way is taken if no other one is; without, none is.
func (b *builder) choose(source, name string, needs []string, choices []choice, rest string) []string {
	rules := &value{kind: list}
	at := len(b.out)
	b.add(source, name, "switch", orStart(needs))
	var ways []string
	for _, c := range choices {
		way := b.pass("", c.name, nil)
		ways = append(ways, way)
		rule := c.rule
		if rule == nil {
			rule = newMapping()
			rule.put("field", str(c.field))
			rule.put("value", str(c.value))
		}
		rule.put("route", str(way))
		rules.items = append(rules.items, rule)
	}
	otherwise := "continue"
	if rest != "" {
		otherwise = b.pass("", rest, nil)
		ways = append(ways, otherwise)
	}
	if b.tooLarge {
		return ways
	}
	sw := b.out[at]
	follows := sw.values["needs"]
	sw.keys = slices.DeleteFunc(sw.keys, func(key string) bool { return key == "needs" })
	delete(sw.values, "needs") // so that it is written last
	sw.put("rules", rules)
	sw.put("default", str(otherwise))
	sw.put("needs", follows)
	return ways
}

// decide adds an actor that evaluates a condition of the original, with a switch behind it: the actor's
// result has a `route`, which is one of the names of the ways.
func (b *builder) decide(source, name, kind string, needs, names []string, rest string, arguments *value) []string {
	id := b.call(source, name, kind, needs, arguments)
	choices := make([]choice, len(names))
	for i, way := range names {
		choices[i] = choice{field: id + ".route", value: way, name: id + "_" + way}
	}
	if rest != "" {
		rest = id + "_" + rest
	}
	return b.choose("", id+"_way", []string{id}, choices, rest)
}

// isAmount reports whether a value is written as a number of something.
func isAmount(v *value) bool {
	return v.is(scalar) && v.text != "" && v.text[0] >= '0' && v.text[0] <= '9'
}

// isUnit reports whether a word is a unit of time as a step that waits knows it.
func isUnit(word string) bool {
	return slices.Contains([]string{"seconds", "minutes", "hours", "days"}, word)
}

// hasExpression reports whether a value holds an expression of any platform.
func hasExpression(v *value) bool {
	switch {
	case v == nil:
		return false
	case v.kind == text:
		return strings.Contains(v.text, "{{") || strings.Contains(v.text, "${") || strings.HasPrefix(v.text, "=")
	case v.kind == mapping:
		for _, key := range v.keys {
			if hasExpression(v.values[key]) {
				return true
			}
		}
	}
	return slices.ContainsFunc(v.items, hasExpression)
}

// plain are the keys of arguments whose values hold no expressions. The others are told.
func (b *builder) plain(where string, arguments *value) *value {
	if !arguments.is(mapping) {
		return nil
	}
	out := newMapping()
	var left []string
	for _, key := range arguments.keys {
		switch v := arguments.values[key]; {
		case hasExpression(v):
			left = append(left, key)
		case v.kind != null:
			out.put(key, v)
		}
	}
	if len(left) > 0 {
		b.report("expression", where, "these arguments are computed there, and left out: "+strings.Join(left, ", "))
	}
	if len(out.keys) == 0 {
		return nil
	}
	return out
}

// result writes the workflow, and looks whether it has faults.
func (b *builder) result() (Result, error) {
	if b.tooLarge {
		return Result{}, fmt.Errorf("it has more than %d steps, or %d ways between them", maxSteps, maxWays)
	}
	if len(b.out) == 0 {
		return Result{}, errors.New("it has no steps that can be imported")
	}
	w := newMapping()
	name := strings.TrimSpace(b.name)
	if name == "" {
		name = "Imported from " + string(b.platform)
	}
	w.put("name", str(strings.ToValidUTF8(name[:min(len(name), 200)], "")))
	if b.about = strings.TrimSpace(b.about); b.about != "" {
		w.put("description", str(b.about))
	}
	if len(b.tags) > 0 {
		w.put("tags", strs(b.tags[:min(len(b.tags), 100)]))
	}
	w.put("steps", &value{kind: list, items: b.out})
	src, err := json.Marshal(w)
	if err != nil {
		return Result{}, err
	}
	out, faults := workflow.Format(src)
	if len(faults) == 0 {
		var d *workflow.Definition
		if d, faults = workflow.Read(out); d != nil {
			_, faults = workflow.Compile(d)
		}
	}
	if len(faults) > 0 {
		return Result{}, fmt.Errorf("it cannot be a workflow here: %w", faults)
	}
	return Result{b.platform, out, b.items, b.steps}, nil
}
