// Package remember has the actors that read and write the memory of the registry. It owns which scopes
// a run may read and write, and how entries are told to a model; it must not know where they are kept.
package remember

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/delegation"
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

// learnedLimit is how many entries are told of what one agent has learned.
const learnedLimit = 100

// Scope is whose memory an entry belongs to. Level is one of delegation.Scopes.
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

// readSchema is that of the actor that reads.
func readSchema() string {
	return delegation.Object(``, delegation.SoughtProperties+`,
    "scope": {"type": "string", "description": "Only what is kept for the user, the epic, the workflow or the namespace; all of them when absent."},
    "agent": {"type": "string", "maxLength": 256, "description": "Only what this agent has learned, such as agent/NAME; read from the node's own arguments only."}, `+delegation.SureProperty+`,
    "limit": {"type": "integer", "description": "How many are told, from 1 to 50; 10 when absent. With an agent from 1 to 100, all of them when absent."}`)
}

// writeSchema is that of an actor that writes, which describes its scopes as a JSON text.
func writeSchema(scopes string) string {
	return delegation.Object(``, delegation.KeptProperties+`, "scope": {"type": "string", "description": `+scopes+`}, `+delegation.HeldProperties)
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
		spec(ReadName, workgraph.Pure, "Tells what is remembered for the user, the epic, the workflow and everybody: facts, preferences, and procedures by which goals were reached before.", readSchema(), read),
		spec(WriteName, workgraph.Idempotent, "Remembers something beyond this run, under a key, for its user or its epic.", writeSchema(`"user or epic; the user when absent"`), written(false)),
		spec(ShareName, workgraph.Idempotent, "Remembers something beyond this run, under a key, for all runs of its workflow or of the namespace.", writeSchema(`"workflow or namespace; the workflow when absent"`), written(true)),
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
	var f delegation.Faults
	s := Search{Text: strings.TrimSpace(a.Query + " " + a.About), Key: a.Key, MinConfidence: f.Part("min_confidence", a.AtLeast), Limit: delegation.MemoriesTold, Run: call.RunID, Node: errs.Clip(call.Node, 200), User: call.UserID}
	f.Bound("query", s.Text, delegation.MaxQuery)
	f.Bound("key", s.Key, delegation.MaxKey)
	if kind := f.Word("fact_type", a.Type, delegation.Kinds()); kind != "" {
		s.Kinds = []string{kind}
	}
	most := float64(delegation.MaxMemories)
	if s.Agent, _ = actor.Text(call.Own, "agent"); s.Agent != "" {
		s.Limit, most = learnedLimit, learnedLimit
		f.Bound("agent", s.Agent, delegation.MaxKey)
	}
	if a.Limit != nil {
		s.Limit = int(min(max(*a.Limit, 1), most))
	}
	level := f.Word("scope", a.Scope, delegation.Scopes())
	if len(f) > 0 {
		return catalog.Refuse("%s", f)
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

// tell has the entries, and a note about how they were looked for.
func tell(found []Entry, note string) (workgraph.Outcome, error) {
	told := make([]delegation.Memory, len(found))
	for i := range found {
		e := &found[i]
		told[i] = delegation.Memory{Key: e.Key, Kind: e.Kind, Scope: e.Scope.Level, Text: e.Text, Value: e.Value, Tags: e.Tags, Confidence: e.Confidence, Written: e.Written}
	}
	out := delegation.MemoriesFound(told)
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
	var a delegation.Kept
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var f delegation.Faults
	kept := a.Memory(&f)
	for _, prefix := range []string{"procedure:", "learned:"} {
		if strings.HasPrefix(kept.Key, prefix) {
			f.Add("a key must not begin with %s: such keys are written by the system", prefix)
		}
	}
	e := Entry{Key: kept.Key, Kind: kept.Kind, Text: kept.Text, Value: kept.Value, Tags: kept.Tags, Confidence: kept.Confidence, Life: kept.Life, Source: call.RunID, User: call.UserID}
	level := target(ctx, &f, call, a.Scope, shares)
	if len(f) > 0 {
		return catalog.Refuse("%s", f)
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
func target(ctx context.Context, f *delegation.Faults, call *workgraph.Call, said string, shares bool) string {
	level, usual := f.Word("scope", said, delegation.Scopes()), "namespace"
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
		f.Add("this tool keeps for the workflow or the namespace; %s keeps for the %s", WriteName, level)
	case !shares && shared && level != usual:
		f.Add("this tool keeps for the %s when scope is absent, or for the epic, not for the %s: others would read it", usual, level)
	}
	return level
}
