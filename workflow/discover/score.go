package discover

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow"
)

// Capabilities are what a workflow has. Each list has no name twice.
type Capabilities struct {
	Triggers  []string `json:"triggers"`
	NodeTypes []string `json:"node_types"`
	Tools     []string `json:"tools"`
	Models    []string `json:"model_names"`
}

// MarshalJSON writes empty lists, rather than null, for what there is not.
func (c Capabilities) MarshalJSON() ([]byte, error) {
	type plain Capabilities
	for _, names := range []*[]string{&c.Triggers, &c.NodeTypes, &c.Tools, &c.Models} {
		if *names == nil {
			*names = []string{}
		}
	}
	return json.Marshal(plain(c))
}

// names are those of all kinds, in order, each once.
func (c Capabilities) names() []string {
	out := slices.Concat([]string{}, c.Triggers, c.NodeTypes, c.Tools, c.Models)
	slices.Sort(out)
	return slices.Compact(out)
}

// CapabilitiesOf are those of a definition.
func CapabilitiesOf(d *workflow.Definition) Capabilities {
	u := d.Uses()
	return Capabilities{Triggers: u.Triggers, NodeTypes: u.Types, Tools: u.Tools, Models: u.Models}
}

// History is what became of the runs of a workflow that ended.
type History struct {
	Completed, Failed, Canceled int64
	// NanoUSD is what all of them cost, in billionths of a dollar.
	NanoUSD int64
}

// Executions is how many runs ended.
func (h History) Executions() int64 { return h.Completed + h.Failed + h.Canceled }

// SuccessRate is the share of completed runs among those that completed or failed. It is 0.5 if there
// are none.
func (h History) SuccessRate() float64 {
	if h.Completed+h.Failed <= 0 {
		return 0.5
	}
	return float64(h.Completed) / float64(h.Completed+h.Failed)
}

// Tier says what to do with a workflow that fits so well.
type Tier string

// The tiers.
const (
	// Reuse is for a workflow that fits as it is.
	Reuse Tier = "reuse"
	// ForkAndPatch is for one that needs a change.
	ForkAndPatch Tier = "fork_and_patch"
	// CreateNew is for one that is too far away.
	CreateNew Tier = "create_new"
)

// ReuseScore is the score from which on a workflow fits as it is.
const ReuseScore = float64(reuseFrom) / scale

// The weights of a score.
const (
	ofCapability, ofTags, ofSuccess, ofDescription = 0.8, 0.1, 0.1, 0.05
	// scale is the scores' precision: they are told in four decimals, and compared as they are told.
	scale = 10_000
	// reuseFrom and forkFrom are where tiers begin, in parts of scale.
	reuseFrom, forkFrom = 9_500, 5_000
)

// score is a score in parts of scale.
type score int32

func scoreOf(x float64) score { return score(math.Round(min(x, 1) * scale)) }

func (s score) float() float64 { return float64(s) / scale }

func (s score) tier() Tier {
	switch {
	case s >= reuseFrom:
		return Reuse
	case s >= forkFrom:
		return ForkAndPatch
	}
	return CreateNew
}

// Match says how well a workflow fits, and where it differs.
type Match struct {
	ID string `json:"workflow_id"`
	// Score is from 0 to 1, in four decimals.
	Score float64 `json:"match_score"`
	// Relevance is how much of a query's words the workflow has, from 0 to 1, rare words first. It is 0
	// without a query.
	Relevance float64 `json:"relevance"`
	// Has, Missing and Extra are the capabilities that are required and there, required and not there,
	// and there without being required.
	Has     Capabilities `json:"has_capabilities"`
	Missing Capabilities `json:"missing_capabilities"`
	Extra   Capabilities `json:"extra_capabilities"`
	Tier    Tier         `json:"recommendation"`
	// SuccessRate is that of History, in four decimals.
	SuccessRate float64 `json:"success_rate"`
	// Executions is how many runs ended, and NanoUSD what they cost.
	Executions int64 `json:"execution_count"`
	NanoUSD    int64 `json:"nano_usd"`
}

// Flat is the short view of a match: names without their kinds.
type Flat struct {
	ID          string   `json:"workflow_id"`
	Score       float64  `json:"match_score"`
	Has         []string `json:"has"`
	Missing     []string `json:"missing"`
	Extra       []string `json:"extra"`
	SuccessRate float64  `json:"success_rate"`
}

// Flat is the match in its short view. The names are sorted, each once: a step type that is required
// as a tool of that name is not an extra one.
func (m Match) Flat() Flat {
	has := m.Has.names()
	extra := slices.DeleteFunc(m.Extra.names(), func(name string) bool { return slices.Contains(has, name) })
	return Flat{m.ID, m.Score, has, m.Missing.names(), extra, m.SuccessRate}
}

// Score says how well one workflow fits. An index gives the same for each of its workflows.
func Score(r Requirements, w Workflow) Match {
	m := Match{ID: w.ID}
	m.difference(r, w.Capabilities)
	required := len(m.Has.Triggers) + len(m.Has.NodeTypes) + len(m.Has.Tools)
	missing := len(m.Missing.Triggers) + len(m.Missing.NodeTypes) + len(m.Missing.Tools)
	if r.ModelCapability != "" {
		required += min(1, len(m.Has.Models))
		missing += len(m.Missing.Models)
	}
	tags := unique(r.Tags)
	both := 0
	for _, tag := range tags {
		if slices.Contains(w.Tags, tag) {
			both++
		}
	}
	s := weigh(share(required, required+missing), jaccard(both, len(tags), len(unique(w.Tags))), w.History, described(r.Description, strings.ToLower(w.Description)))
	m.rate(s, w.History)
	return m
}

func (m *Match) rate(s score, h History) {
	m.Score, m.Tier = s.float(), s.tier()
	m.SuccessRate, m.Executions, m.NanoUSD = scoreOf(h.SuccessRate()).float(), h.Executions(), h.NanoUSD
}

// difference compares what is required with what is there.
func (m *Match) difference(r Requirements, c Capabilities) {
	m.Has.Triggers, m.Missing.Triggers, m.Extra.Triggers = compared(r.Triggers, c.Triggers)
	m.Has.NodeTypes, m.Missing.NodeTypes, m.Extra.NodeTypes = compared(r.NodeTypes, c.NodeTypes)
	m.Has.Tools, m.Missing.Tools, m.Extra.Tools = compared(toolNames(r.Tools), c.Tools)
	part := strings.ToLower(r.ModelCapability)
	for _, name := range unique(c.Models) {
		if part != "" && strings.Contains(strings.ToLower(name), part) {
			m.Has.Models = append(m.Has.Models, name)
		} else {
			m.Extra.Models = append(m.Extra.Models, name)
		}
	}
	if part != "" && len(m.Has.Models) == 0 {
		m.Missing.Models = []string{r.ModelCapability}
	}
}

// toolNames are names of tools as the index has them.
func toolNames(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = workflow.ToolName(name)
	}
	return out
}

// compared splits names into those on both sides, the wanted ones alone, and the others. All are
// sorted.
func compared(wanted, there []string) (has, missing, extra []string) {
	wanted, there = unique(wanted), unique(there)
	for _, name := range wanted {
		if slices.Contains(there, name) {
			has = append(has, name)
		} else {
			missing = append(missing, name)
		}
	}
	for _, name := range there {
		if !slices.Contains(wanted, name) {
			extra = append(extra, name)
		}
	}
	return has, missing, extra
}

// unique are names in order, each once.
func unique(names []string) []string {
	out := slices.Sorted(slices.Values(names))
	return slices.Compact(out)
}

// share is a part of a whole, all of it if there is no whole.
func share(part, whole int) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}

// jaccard is the share of tags that both sides have among all of them, 1 if none are wanted.
func jaccard(both, wanted, there int) float64 {
	if wanted == 0 {
		return 1
	}
	return share(both, wanted+there-both)
}

func described(part, lowered string) bool {
	return part != "" && strings.Contains(lowered, strings.ToLower(part))
}

func weigh(capability, tags float64, h History, described bool) score {
	x := ofCapability*capability + ofTags*tags + ofSuccess*h.SuccessRate()
	if described {
		x += ofDescription
	}
	return scoreOf(x)
}
