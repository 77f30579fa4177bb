// Package remember has the actors that read and write the memory of the registry. It owns which scopes
// a run may read and write, and how entries are told to a model; it must not know where they are kept.
package remember

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The names of the actors.
const (
	ReadName  = "memory_read"
	WriteName = "memory_write"
	// ShareName is what writes for others than the user of the run.
	ShareName = "memory_share"
)

// Bounds of one call.
const (
	maxQuery, maxKey, maxText, maxValue = 4 << 10, 256, 8 << 10, 16 << 10
	// defaultLimit is how many entries are told, maxLimit how many at most, and learnedLimit how many of
	// what one agent has learned. maxTold bounds their texts and values together, in bytes.
	defaultLimit, maxLimit, learnedLimit, maxTold = 10, 50, 100, 64 << 10
	// maxDays is the longest life of an entry that is given one.
	maxDays = 3650
)

// Scopes are the words for scopes, in the order of the numbers that the registry has for them, from 1.
func Scopes() []string { return []string{"namespace", "user", "epic", "workflow"} }

// Kinds are the words for kinds, in the order of their numbers, from 1.
func Kinds() []string { return []string{"fact", "procedure", "preference"} }

// Scope is whose memory an entry belongs to. Level is one of Scopes.
type Scope struct{ Level, Subject string }

// Entry is an entry as an actor writes and tells it.
type Entry struct {
	Scope     Scope
	Key, Kind string
	Text      string
	// Value is one JSON value, or empty.
	Value      json.RawMessage
	Tags       []string
	Confidence float64
	// Life is how long it is remembered; 0 is for ever.
	Life time.Duration
	// Written is when it was written last.
	Written time.Time
	// Source is the run that writes, and User its user.
	Source, User string
	// Vector stands for the meaning; nil if no model makes one.
	Vector *Vector
}

// Search says what is looked for; all that is set must hold.
type Search struct {
	Text, Key string
	// Agent has learned the entries; empty for any.
	Agent         string
	Scopes        []Scope
	Kinds         []string
	MinConfidence float64
	Limit         int
	// Vector stands for the meaning of the text; nil for a search by words alone.
	Vector *Vector
	// Run, Node and User are who reads, for the record.
	Run, Node, User string
}

// Memory is the memory of namespaces. It is safe for concurrent use.
type Memory interface {
	// Write keeps an entry, once for each request id. It returns the keys of those that gave way.
	Write(ctx context.Context, namespace string, e Entry, request string) (written Entry, gaveWay []string, err error)
	// Search finds entries, the best first. notCompared is how many more there are that were not compared by
	// their meaning.
	Search(ctx context.Context, namespace string, s Search) (found []Entry, notCompared int64, err error)
	// EpicOf is the epic of a task, empty if there is no such task.
	EpicOf(ctx context.Context, namespace, task string) (string, error)
}

const readSchema = `{"type": "object", "additionalProperties": false, "properties": {
    "query": {"type": "string", "maxLength": 4096, "description": "Words to look for; the latest entries when absent."},
    "about": {"type": "string", "maxLength": 4096, "description": "The same as query."},
    "key": {"type": "string", "maxLength": 256, "description": "The key of one entry."},
    "fact_type": {"type": "string", "description": "Only fact, procedure or preference."},
    "scope": {"type": "string", "description": "Only what is kept for the user, the epic, the workflow or the namespace; all of them when absent."},
    "agent": {"type": "string", "maxLength": 256, "description": "Only what this agent has learned, such as agent/NAME; read from the node's own arguments only."},
    "min_confidence": {"type": "number", "minimum": 0, "maximum": 1},
    "limit": {"type": "integer", "description": "How many are told, from 1 to 50; 10 when absent. With an agent from 1 to 100, all of them when absent."}}}`

// writeSchema is that of an actor that writes, which describes its scopes as a JSON text.
func writeSchema(scopes string) string {
	return `{"type": "object", "additionalProperties": false, "properties": {
    "key": {"type": "string", "maxLength": 256, "description": "Its name: what was kept under it before is replaced."},
    "value": {"description": "What is kept: a text, or any JSON."},
    "text": {"type": "string", "description": "What is kept in words, beside a value."},
    "fact_type": {"type": "string", "description": "fact, procedure or preference; fact when absent."},
    "scope": {"type": "string", "description": ` + scopes + `},
    "tags": {"description": "A list of words, or words with commas between them; 20 at most."},
    "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "How sure it is; 1 when absent."},
    "expires_in_days": {"type": "number", "description": "After how many days it is forgotten; never when absent."}}}`
}

// Specs describe the actors over a memory; nil stands for none, with which calls fail. Without an embedder
// searches go by words alone.
func Specs(m Memory, v Embedder) []actor.Spec {
	unavailable := ""
	if m == nil {
		unavailable = "no registry is configured: upstream.registry"
	}
	spec := func(name string, effect workgraph.Effect, description, schema string, does func(context.Context, desk, *workgraph.Call) (workgraph.Outcome, error)) actor.Spec {
		return actor.Spec{
			Name: name, Version: "1", Effect: effect, SeesPlace: true, Elsewhere: true, Schema: schema, Unavailable: unavailable, Description: description,
			Uncached: func(*workgraph.Node) string { return "the memory changes between two calls" },
			Actor: workgraph.ActorFunc(func(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
				if m == nil {
					return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO_MEMORY", "this executor reaches no registry, so it has no memory")
				}
				return does(ctx, desk{m, v}, call)
			}),
		}
	}
	return []actor.Spec{
		spec(ReadName, workgraph.Pure, "Tells what is remembered for the user, the epic, the workflow and everybody: facts, preferences, and procedures by which goals were reached before.", readSchema, read),
		spec(WriteName, workgraph.Idempotent, "Remembers something beyond this run, under a key, for its user or its epic.", writeSchema(`"user or epic; the user when absent"`), written(false)),
		spec(ShareName, workgraph.Idempotent, "Remembers something beyond this run, under a key, for all runs of its workflow or of the namespace.", writeSchema(`"workflow or namespace; the workflow when absent"`), written(true)),
	}
}

type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f *faults) String() string { return strings.Join(*f, "; ") }

// word is one of some words, empty if it is absent.
func (f *faults) word(name, s string, words []string) string {
	if s = strings.ToLower(strings.TrimSpace(s)); s != "" && !slices.Contains(words, s) {
		f.add("Invalid %s %q. Must be one of: %s", name, errs.Clip(s, 60), strings.Join(words, ", "))
	}
	return s
}

func (f *faults) bound(name, s string, most int) {
	if len(s) > most {
		f.add("%s has %d bytes, the limit is %d", name, len(s), most)
	}
}

// scopes are those of a run: what is kept for everybody, its user, its epic and its workflow. The epic
// is asked for only if it is wanted.
func scopes(ctx context.Context, m Memory, call *workgraph.Call, level string) (out []Scope, err error) {
	wants := func(l string) bool { return level == "" || level == l }
	if wants("namespace") {
		out = append(out, Scope{Level: "namespace"})
	}
	if wants("user") && call.UserID != "" {
		out = append(out, Scope{"user", call.UserID})
	}
	if wants("epic") && call.TaskID != "" {
		epic, err := m.EpicOf(ctx, actor.NamespaceOf(ctx), call.TaskID)
		if err != nil {
			return nil, err
		}
		if epic != "" {
			out = append(out, Scope{"epic", epic})
		}
	}
	if slug := actor.WorkflowOf(ctx); wants("workflow") && slug != "" {
		out = append(out, Scope{"workflow", slug})
	}
	return out, nil
}

func read(ctx context.Context, m desk, call *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Query   string   `json:"query"`
		About   string   `json:"about"`
		Key     string   `json:"key"`
		Type    string   `json:"fact_type"`
		Scope   string   `json:"scope"`
		AtLeast float64  `json:"min_confidence"`
		Limit   *float64 `json:"limit"`
	}
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	s := Search{Text: strings.TrimSpace(a.Query + " " + a.About), Key: a.Key, MinConfidence: a.AtLeast, Limit: defaultLimit, Run: call.RunID, Node: errs.Clip(call.Node, 200), User: call.UserID}
	f.bound("query", s.Text, maxQuery)
	f.bound("key", s.Key, maxKey)
	if kind := f.word("fact_type", a.Type, Kinds()); kind != "" {
		s.Kinds = []string{kind}
	}
	if !(a.AtLeast >= 0 && a.AtLeast <= 1) {
		f.add("min_confidence must be from 0 to 1")
	}
	most := float64(maxLimit)
	if s.Agent, _ = actor.Text(call.Own, "agent"); s.Agent != "" {
		s.Limit, most = learnedLimit, learnedLimit
		f.bound("agent", s.Agent, maxKey)
	}
	if a.Limit != nil {
		s.Limit = int(min(max(*a.Limit, 1), most))
	}
	level := f.word("scope", a.Scope, Scopes())
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	var err error
	if s.Scopes, err = scopes(ctx, m, call, level); err != nil {
		return catalog.Answer(ctx, err, "")
	}
	var found []Entry
	var notCompared int64
	var made made
	if len(s.Scopes) > 0 && s.Key == "" && s.Text != "" {
		made = m.vector(ctx, s.Text)
		s.Vector = made.vector
	}
	if len(s.Scopes) > 0 { // a run without a user has nothing in the scope of one
		if found, notCompared, err = m.Search(ctx, actor.NamespaceOf(ctx), s); err != nil {
			return made.booked(catalog.Answer(ctx, err, ""))
		}
	}
	return made.booked(tell(found, note(made.failed, notCompared)))
}

// note tells what a search by meaning did not do; empty if it did all.
func note(byWordsAlone bool, notCompared int64) string {
	switch {
	case byWordsAlone:
		return "The model for searches by meaning did not answer: these were found by words alone."
	case notCompared > 0:
		return fmt.Sprintf("There are more entries than one search compares by their meaning: the %d that were first written longest ago were looked for by words alone. Name a scope to search in fewer.", notCompared)
	}
	return ""
}

// tell has the entries, and the same as the memory of an action, which prompts show as {action_memory}.
func tell(found []Entry, note string) (workgraph.Outcome, error) {
	list := []map[string]any{}
	var lines strings.Builder
	told, left := 0, 0
	for i := range found {
		e := &found[i]
		if told += len(e.Text) + len(e.Value); told > maxTold && len(list) > 0 {
			left = len(found) - i
			break
		}
		m := map[string]any{"key": e.Key, "fact_type": e.Kind, "scope": e.Scope.Level, "confidence": e.Confidence, "written": e.Written}
		line := e.Text
		if e.Text != "" {
			m["text"] = e.Text
		}
		if len(e.Value) > 0 {
			if m["value"] = e.Value; line == "" {
				line = e.Key + ": " + string(e.Value)
			}
		}
		if len(e.Tags) > 0 {
			m["tags"] = e.Tags
		}
		list = append(list, m)
		lines.WriteString("- " + line + "\n")
	}
	out := map[string]any{"success": true, "memories": list, "action_memory": map[string]any{"memory": strings.TrimSuffix(lines.String(), "\n")}}
	if left > 0 {
		out["left_out"] = left
	}
	if note != "" {
		out["note"] = note
	}
	return actor.Value(out)
}

// written has what one who writes may share, or not.
func written(shares bool) func(context.Context, desk, *workgraph.Call) (workgraph.Outcome, error) {
	return func(ctx context.Context, m desk, call *workgraph.Call) (workgraph.Outcome, error) {
		return write(ctx, m, call, shares)
	}
}

func write(ctx context.Context, m desk, call *workgraph.Call, shares bool) (workgraph.Outcome, error) {
	var a struct {
		Key        string          `json:"key"`
		Value      json.RawMessage `json:"value"`
		Text       string          `json:"text"`
		Type       string          `json:"fact_type"`
		Scope      string          `json:"scope"`
		Tags       json.RawMessage `json:"tags"`
		Confidence *float64        `json:"confidence"`
		Days       *float64        `json:"expires_in_days"`
	}
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f faults
	e := Entry{Key: strings.TrimSpace(a.Key), Kind: f.word("fact_type", a.Type, Kinds()), Text: a.Text, Tags: f.tags(a.Tags), Confidence: 1, Source: call.RunID, User: call.UserID}
	var text string
	switch {
	case len(a.Value) == 0 || string(a.Value) == "null":
	case json.Unmarshal(a.Value, &text) == nil && e.Text == "":
		e.Text = text // a value that is a text is what people read
	default:
		e.Value = a.Value
	}
	f.bound("key", e.Key, maxKey)
	for _, prefix := range []string{"procedure:", "learned:"} {
		if strings.HasPrefix(e.Key, prefix) {
			f.add("a key must not begin with %s: such keys are written by the system", prefix)
		}
	}
	f.bound("text", e.Text, maxText)
	f.bound("value", string(e.Value), maxValue)
	if e.Text == "" && len(e.Value) == 0 && len(f) == 0 {
		f.add("value is missing: what is to be remembered")
	}
	if a.Confidence != nil {
		if e.Confidence = *a.Confidence; !(e.Confidence >= 0 && e.Confidence <= 1) {
			f.add("confidence must be from 0 to 1")
		}
	}
	if a.Days != nil {
		if *a.Days <= 0 || *a.Days > maxDays {
			f.add("expires_in_days must be more than 0 and at most %d", maxDays)
		} else {
			e.Life = time.Duration(*a.Days * 24 * float64(time.Hour))
		}
	}
	level := f.target(ctx, call, a.Scope, shares)
	if len(f) > 0 {
		return catalog.Refuse("%s", f.String())
	}
	all, err := scopes(ctx, m, call, level)
	if err != nil {
		return catalog.Answer(ctx, err, "")
	}
	if len(all) == 0 {
		return catalog.Refuse("this run has no %s, so nothing can be kept for it", level)
	}
	e.Scope = all[0]
	made := m.vector(ctx, e.Meaning())
	e.Vector = made.vector // without one the executor makes it later
	e, gaveWay, err := m.Write(ctx, actor.NamespaceOf(ctx), e, catalog.RequestID(call))
	if err != nil {
		return made.booked(catalog.Answer(ctx, err, ""))
	}
	out := map[string]any{"success": true, "key": e.Key, "scope": e.Scope.Level, "fact_type": e.Kind}
	if len(gaveWay) > 0 {
		out["gave_way"] = gaveWay
	}
	return made.booked(actor.Value(out))
}

// target is the scope that an entry is kept in. What a run keeps for its user, or its epic, is not
// told to others. That something is shared is said by whoever gives an agent the actor that shares,
// not by a model. A run without a user has nobody to keep it for: what it keeps is for its workflow, or
// outside of the catalog for the namespace, and a model cannot widen that either.
func (f *faults) target(ctx context.Context, call *workgraph.Call, said string, shares bool) string {
	level, usual := f.word("scope", said, Scopes()), "namespace"
	switch {
	case call.UserID != "" && !shares:
		usual = "user"
	case actor.WorkflowOf(ctx) != "":
		usual = "workflow"
	}
	shared := level == "namespace" || level == "workflow"
	switch {
	case level == "":
		return usual
	case shares && !shared:
		f.add("this tool keeps for the workflow or the namespace; %s keeps for the %s", WriteName, level)
	case !shares && shared && level != usual:
		f.add("this tool keeps for the %s when scope is absent, or for the epic, not for the %s: others would read it", usual, level)
	}
	return level
}

// tags are a list of texts, or a text with commas between its parts.
func (f *faults) tags(raw json.RawMessage) (out []string) {
	var parts []string
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case len(raw) > 8<<10:
		f.add("tags are too long")
		return nil
	case json.Unmarshal(raw, &text) == nil:
		parts = strings.Split(text, ",")
	case json.Unmarshal(raw, &parts) != nil:
		f.add("tags must be a list of texts, or a text with commas between them")
		return nil
	}
	for _, s := range parts {
		if s = strings.TrimSpace(s); s == "" || slices.Contains(out, s) {
			continue
		}
		if f.bound("a tag", s, 128); len(out) == 20 {
			f.add("Too many tags specified. Maximum is 20.")
			return nil
		}
		out = append(out, s)
	}
	return out
}
