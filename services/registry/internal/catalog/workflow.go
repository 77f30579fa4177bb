// Package catalog owns the rules of the catalog of workflows: slugs, versions, aliases, references,
// and what is kept of a definition. It must not know any database, protocol or clock.
package catalog

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

const (
	// Prefix starts the id of every workflow.
	Prefix = "wf"

	// ReasonVersionTaken refuses a number that is not greater than that of the newest version.
	ReasonVersionTaken = "WORKFLOW_VERSION_TAKEN"
	// ReasonAliasInvalid refuses an alias for versions that the workflow does not have, or for one twice.
	ReasonAliasInvalid = "WORKFLOW_ALIAS_INVALID"
	// ReasonAliasNotFound names an alias that the workflow does not have.
	ReasonAliasNotFound = "WORKFLOW_ALIAS_NOT_FOUND"
	// ReasonTooManyAliases refuses one more alias than a workflow may have.
	ReasonTooManyAliases = "TOO_MANY_ALIASES"
	// ReasonAliasExposed refuses to delete the alias by which a workflow is exposed.
	ReasonAliasExposed = "WORKFLOW_ALIAS_EXPOSED"
	// ReasonTooManyExposed refuses one more exposed workflow than a namespace may have.
	ReasonTooManyExposed = "TOO_MANY_EXPOSED"

	maxAliases = 100
	// MaxExposed is how many workflows of a namespace may be exposed: clients get them all in one list.
	MaxExposed = 100
	// Latest stands for the newest version where an exposure names one.
	Latest = "latest"
)

// State is the state of a workflow. Its numbers are those of the API and of the stores.
type State int16

// The states. Deleted is none of the API: a deleted workflow is seen by nobody.
const (
	Active State = iota + 1
	Deprecated
	Deleted
)

// Extent is the size of a version's graph.
type Extent struct{ Nodes, Edges int32 }

// History counts runs that have ended, and sums up what they used.
type History struct {
	Completed, Failed, Canceled int64
	NanoUSD, Tokens             int64
}

// Plus is the sum of two histories.
func (h History) Plus(o History) History {
	return History{
		Completed: h.Completed + o.Completed, Failed: h.Failed + o.Failed, Canceled: h.Canceled + o.Canceled,
		NanoUSD: h.NanoUSD + o.NanoUSD, Tokens: h.Tokens + o.Tokens,
	}
}

// SuccessRate is completed / (completed + failed). ok is false if none has ended so.
func (h History) SuccessRate() (rate float64, ok bool) {
	if h.Completed+h.Failed == 0 {
		return 0, false
	}
	return float64(h.Completed) / float64(h.Completed+h.Failed), true
}

// Workflow is a workflow without its versions. Name, description, tags, extent and capabilities are those of
// its newest version.
type Workflow struct {
	Namespace, ID, Slug string
	// Base and Number are what the slug is made of: Number is 1 for a slug without one.
	Base   string
	Number int64
	Name   string
	// Description and Tags are those of the definition.
	Description string
	Tags        []string
	State       State
	Deprecation string
	// Exposed is the version that clients of other protocols run: Latest, an alias, or a number. It is empty
	// if the workflow is not exposed.
	Exposed string
	// Latest is the number of the newest version, Versions how many there are.
	Latest   int64
	Versions int32
	Aliases  []Alias
	// ForkedFrom is ID@VERSION, or empty: a slug may be that of another workflow some day.
	ForkedFrom string
	Can        discover.Capabilities
	Extent     Extent
	History    History
	// Change is the number of the last change in the namespace that concerns the workflow, runs included.
	Change                             int64
	CreateTime, UpdateTime, DeleteTime time.Time
	// Principal is who made it or changed it last.
	Principal string
	// Revision counts changes from 1; runs leave it alone.
	Revision int64
}

// Alias is a name that stands for versions.
type Alias struct {
	Name     string   `json:"name"`
	Versions []Weight `json:"versions"`
}

// Weight is a version with its share.
type Weight struct {
	Version int64 `json:"version"`
	Weight  int64 `json:"weight"`
}

// Version is a version of a workflow. Only its history changes.
type Version struct {
	Namespace, WorkflowID string
	Number                int64
	Content
	History    History
	CreateTime time.Time
	Principal  string
}

// New returns a fresh workflow without a version.
func New(namespace string, now time.Time, principal string) Workflow {
	return Workflow{Namespace: namespace, ID: ids.New(Prefix), State: Active, CreateTime: now, UpdateTime: now, Principal: principal, Revision: 1}
}

// Etag is the quoted revision.
func (w *Workflow) Etag() string { return epic.Etag(w.Revision) }

// CheckEtag returns a Conflict unless want is empty, "*" or the present etag.
func (w *Workflow) CheckEtag(want string) error {
	return epic.CheckEtag("workflow "+w.Slug, w.Revision, want)
}

// Touch records a change that callers see in the etag, and who made it unless that is empty.
func (w *Workflow) Touch(now time.Time, principal string) {
	if principal != "" {
		w.Principal = principal
	}
	w.Revision++
	w.UpdateTime = now
}

// Add makes c the newest version, under this number or, if it is 0, the next.
func (w *Workflow) Add(c Content, number int64, now time.Time, principal string) (Version, error) {
	if number == 0 {
		number = w.Latest + 1
	}
	if number <= w.Latest {
		return Version{}, errs.New(errs.AlreadyExists, ReasonVersionTaken, "version %d of workflow %q is not newer than the newest, %d", number, w.Slug, w.Latest).
			Hint("versions never change: leave the number out to get the next")
	}
	w.Latest, w.Versions = number, w.Versions+1
	w.Name, w.Description, w.Tags, w.Extent, w.Can = c.Name, c.Description, c.Tags, c.Extent, c.Can
	return Version{Namespace: w.Namespace, WorkflowID: w.ID, Number: number, Content: c, CreateTime: now, Principal: principal}, nil
}

// SetAlias lets a name stand for these versions. Which of them exist is for the caller to know.
func (w *Workflow) SetAlias(name string, to []Weight) error {
	if name == Latest {
		return errs.New(errs.InvalidArgument, ReasonAliasInvalid, "%q is no alias: it stands for the newest version where a workflow is exposed", name).Hint("take another name")
	}
	a := Alias{Name: name}
	for _, v := range to {
		if v.Weight == 0 {
			v.Weight = 1
		}
		if slices.ContainsFunc(a.Versions, func(o Weight) bool { return o.Version == v.Version }) {
			return errs.New(errs.InvalidArgument, ReasonAliasInvalid, "the alias names version %d twice", v.Version).Hint("give its weights as one")
		}
		a.Versions = append(a.Versions, v)
	}
	i, found := w.alias(name)
	switch {
	case found:
		w.Aliases[i] = a
	case len(w.Aliases) >= maxAliases:
		return errs.New(errs.ResourceExhausted, ReasonTooManyAliases, "a workflow may have %d aliases", maxAliases).Hint("delete aliases that are not needed any more")
	default:
		w.Aliases = slices.Insert(w.Aliases, i, a)
	}
	return nil
}

// Expose lets clients of other protocols run a version: Latest, which is also what an empty one means, an
// alias, or a number. Whether there is a version of that number is for the caller to know.
func (w *Workflow) Expose(version string) (number int64, err error) {
	if version == "" {
		version = Latest
	}
	if n, err := strconv.ParseInt(version, 10, 64); err == nil {
		number, version = n, strconv.FormatInt(n, 10)
	} else if _, found := w.alias(version); version != Latest && !found {
		return 0, w.noAlias(version)
	}
	w.Exposed = version
	return number, nil
}

// DeleteAlias removes an alias.
func (w *Workflow) DeleteAlias(name string) error {
	i, found := w.alias(name)
	if !found {
		return w.noAlias(name)
	}
	if w.Exposed == name {
		return errs.New(errs.FailedPrecondition, ReasonAliasExposed, "workflow %q is exposed by its alias %q", w.Slug, name).
			Hint("expose another version first, or take the exposure back")
	}
	w.Aliases = slices.Delete(w.Aliases, i, i+1)
	if len(w.Aliases) == 0 {
		w.Aliases = nil
	}
	return nil
}

func (w *Workflow) alias(name string) (int, bool) {
	return slices.BinarySearchFunc(w.Aliases, name, func(a Alias, name string) int { return strings.Compare(a.Name, name) })
}

func (w *Workflow) noAlias(name string) error {
	have := make([]string, 0, len(w.Aliases))
	for _, a := range w.Aliases {
		have = append(have, a.Name)
	}
	hint := "it has no aliases; " + w.Slug + " alone is its newest version"
	if len(have) > 0 {
		hint = "it has " + errs.Clip(strings.Join(have, ", "), 400)
	}
	return errs.New(errs.NotFound, ReasonAliasNotFound, "workflow %q has no alias %q", w.Slug, errs.Clip(name, 80)).Hint(hint)
}

// rowSize is what a workflow or a version takes beside its texts.
const rowSize = 512

// Size implements page.Row.
func (w Workflow) Size() int {
	n := rowSize + len(w.Name) + len(w.Description) + len(w.Deprecation) + 64*len(w.Aliases)
	for _, t := range w.Tags {
		n += 16 + len(t)
	}
	return n
}

// Size implements page.Row.
func (v Version) Size() int { return rowSize + len(v.Name) + len(v.Description) + len(v.Source) }
