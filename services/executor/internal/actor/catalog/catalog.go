// Package catalog has the actors that make workflows and look for them. It owns what they take, and how they
// tell it to a model; it must not know where workflows are kept.
package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Names of the actors.
const (
	CreateName   = "workflow_create"
	DiscoverName = "workflow_discover"
)

// Bounds of one call.
const (
	// maxText bounds a definition in bytes. People may keep longer ones.
	maxText = 256 << 10
	// maxEscaped is how many bytes of JSON a byte of a text may be, as \u000a.
	maxEscaped = 6
	// maxRequirements, maxQuery and maxLimit bound a search.
	maxRequirements, maxQuery, maxLimit, maxExclude = 64 << 10, 4 << 10, 20, 99
	// maxFaults and maxExcerpt bound what is told of a faulty text: how many faults, and how long a line is.
	maxFaults, maxExcerpt = 20, 120
	// maxDescription bounds what is told of the description of a workflow that was found, in bytes.
	maxDescription = 400
)

// Draft is a text that is to become a workflow.
type Draft struct {
	// Text is a definition or, with Fork, the document of a fork.
	Text string
	Fork bool
	Slug string
	// RequestID is the same for calls that may repeat one effect.
	RequestID string
}

// Created is a workflow that was made.
type Created struct {
	ID, Slug, Name string
	Version        int64
	Nodes, Edges   int32
}

// Query says what a workflow must be able to do.
type Query struct {
	Text string
	// Requirements is a JSON object as a text, or empty.
	Requirements string
	Limit        int
	Exclude      []string
}

// Match is a workflow that was found.
type Match struct {
	ID             string          `json:"workflow_id"`
	Slug           string          `json:"slug"`
	Version        int64           `json:"version"`
	Workflow       string          `json:"workflow"`
	Ref            string          `json:"ref"`
	Name           string          `json:"name"`
	Description    string          `json:"description"`
	Tags           []string        `json:"tags"`
	Score          float64         `json:"match_score"`
	Recommendation string          `json:"recommendation"`
	Has            []string        `json:"has"`
	Missing        []string        `json:"missing"`
	Extra          []string        `json:"extra"`
	HasOf          json.RawMessage `json:"has_capabilities"`
	MissingOf      json.RawMessage `json:"missing_capabilities"`
	ExtraOf        json.RawMessage `json:"extra_capabilities"`
	SuccessRate    float64         `json:"success_rate"`
	Executions     int64           `json:"execution_count"`
	NanoUSD        int64           `json:"nano_usd"`
	Relevance      float64         `json:"relevance"`
}

// Catalog keeps the workflows of namespaces. It is safe for concurrent use.
type Catalog interface {
	// CreateWorkflow keeps a text as a new workflow, once for each RequestID. A text with faults is refused
	// with errs.InvalidArgument and a violation for each, whose field begins with LINE:COLUMN.
	CreateWorkflow(ctx context.Context, namespace string, d Draft) (Created, error)
	// DiscoverWorkflows finds workflows, the best first, and how many it has looked at.
	DiscoverWorkflows(ctx context.Context, namespace string, q Query) ([]Match, int64, error)
}

// reasonNoCatalog is the reason where no registry is configured.
const reasonNoCatalog = "NO_CATALOG"

const createSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["dsl"],
  "properties": {
    "dsl": {"description": "The definition of the workflow, YAML as a text or JSON: name, description, tags, triggers, inputs, steps. Or a fork of another one: based_on, name, patches."},
    "slug": {"type": "string", "maxLength": 100, "description": "What it is called by; made of its name when absent."}
  }
}`

const discoverSchema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "query": {"type": "string", "description": "Words to look for in names, descriptions and tags."},
    "requirements": {"description": "What the workflow must have, as an object or its JSON as a text: triggers, node_types, tools, tags (each a list), description, model_capability."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many are told; 5 when absent."},
    "exclude": {"type": "array", "items": {"type": "string", "maxLength": 100}, "maxItems": 99, "description": "Slugs of workflows to leave out; that within which the call is made is left out always."}
  }
}`

// Specs describe the actors over a catalog; nil stands for none, with which calls fail.
func Specs(c Catalog) []actor.Spec {
	unavailable := ""
	if c == nil {
		unavailable = "no registry is configured: upstream.registry"
	}
	return []actor.Spec{
		{
			Name: CreateName, Version: "1", Effect: workgraph.Idempotent, SeesPlace: true, Elsewhere: true, Schema: createSchema, Unavailable: unavailable,
			Uncached:    func(*workgraph.Node) string { return "each call makes a workflow" },
			Description: "Makes a workflow of a definition, or of a fork with patches, and answers its reference, by which it can be run. Faults of the text are told with line and column, so that it can be written again.",
			Actor: workgraph.ActorFunc(func(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
				return create(ctx, c, call)
			}),
		},
		{
			Name: DiscoverName, Version: "1", Effect: workgraph.Pure, SeesPlace: true, Elsewhere: true, Schema: discoverSchema, Unavailable: unavailable,
			Description: "Finds workflows that can do something, best first, with what each has, what it misses, and whether to reuse it (reuse), to change it (fork_and_patch) or to make a new one (create_new).",
			Actor: workgraph.ActorFunc(func(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
				return discover(ctx, c, call)
			}),
		},
	}
}

func create(ctx context.Context, c Catalog, call *workgraph.Call) (workgraph.Outcome, error) {
	if c == nil {
		return workgraph.Outcome{}, none()
	}
	var a struct {
		DSL  json.RawMessage `json:"dsl"`
		Slug string          `json:"slug"`
	}
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if len(a.DSL) > maxEscaped*maxText+2 { // no text within its bound has a longer JSON form
		return Refuse("the definition is too long: it may have %d bytes", maxText)
	}
	d := Draft{Text: delegation.Text(a.DSL), Slug: a.Slug}
	switch {
	case strings.TrimSpace(d.Text) == "":
		return Refuse("dsl is empty: give the definition of a workflow, with name and steps")
	case len(d.Text) > maxText:
		return Refuse("the definition has %d bytes, the limit is %d", len(d.Text), maxText)
	}
	if at, shares := workflow.Shares([]byte(d.Text)); shares { // a model would widen what it may write
		return Refuse("line %d: memory_share, or memory_write with the scope workflow or namespace, writes for others than the user, and a workflow made by this tool may not: use memory_write without scope or with scope epic", at.Line)
	}
	d.Fork = workflow.IsFork([]byte(d.Text))
	d.RequestID = RequestID(call)
	w, err := c.CreateWorkflow(ctx, actor.NamespaceOf(ctx), d)
	if err != nil {
		return Answer(ctx, err, d.Text)
	}
	mode := "created"
	if d.Fork {
		mode = "forked"
	}
	at := w.Slug + "@" + strconv.FormatInt(w.Version, 10)
	return actor.Value(map[string]any{
		"success": true, "workflow_id": w.ID, "slug": w.Slug, "version": w.Version, "workflow": at, "ref": "workflow/" + at, "name": w.Name,
		"node_count": w.Nodes, "edge_count": w.Edges, "mode": mode,
	})
}

// RequestID is the id of the request that a call makes: attempts that may repeat one effect share it.
func RequestID(call *workgraph.Call) string {
	sum := sha256.Sum256([]byte(call.EffectKey()))
	return hex.EncodeToString(sum[:])
}

func discover(ctx context.Context, c Catalog, call *workgraph.Call) (workgraph.Outcome, error) {
	if c == nil {
		return workgraph.Outcome{}, none()
	}
	var a struct {
		Query        string          `json:"query"`
		Requirements json.RawMessage `json:"requirements"`
		Limit        int             `json:"limit"`
		Exclude      []string        `json:"exclude"`
	}
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if len(a.Requirements) > maxEscaped*maxRequirements+2 {
		return Refuse("requirements are too long: they may have %d bytes", maxRequirements)
	}
	q := Query{Text: a.Query, Requirements: strings.TrimSpace(delegation.Text(a.Requirements)), Limit: a.Limit, Exclude: a.Exclude}
	switch {
	case len(q.Text) > maxQuery:
		return Refuse("query has %d bytes, the limit is %d", len(q.Text), maxQuery)
	case len(q.Requirements) > maxRequirements:
		return Refuse("requirements have %d bytes, the limit is %d", len(q.Requirements), maxRequirements)
	case q.Limit < 0 || q.Limit > maxLimit:
		return Refuse("limit must be from 1 to %d", maxLimit)
	case len(q.Exclude) > maxExclude:
		return Refuse("exclude has %d names, the limit is %d", len(q.Exclude), maxExclude)
	}
	if own := actor.WorkflowOf(ctx); own != "" && !slices.Contains(q.Exclude, own) {
		q.Exclude = append(slices.Clone(q.Exclude), own)
	}
	found, total, err := c.DiscoverWorkflows(ctx, actor.NamespaceOf(ctx), q)
	if err != nil {
		return Answer(ctx, err, "")
	}
	for i := range found {
		m := &found[i]
		m.Description = errs.Clip(m.Description, maxDescription)
		m.Workflow = m.Slug + "@" + strconv.FormatInt(m.Version, 10)
		m.Ref = "workflow/" + m.Workflow
		for _, list := range []*[]string{&m.Tags, &m.Has, &m.Missing, &m.Extra} {
			if *list == nil {
				*list = []string{}
			}
		}
	}
	if found == nil {
		found = []Match{}
	}
	return actor.Value(map[string]any{"success": true, "matches": found, "total_searched": total})
}

func none() error {
	return workgraph.Errorf(workgraph.Permanent, reasonNoCatalog, "this executor reaches no registry, so it knows no workflows by name")
}
