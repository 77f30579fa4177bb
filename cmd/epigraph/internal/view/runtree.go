package view

import (
	"fmt"
	"slices"
	"strings"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// RunTree is a run with its visits, what they cost, and the runs that they spawned.
type RunTree struct {
	Run    *executorv1.Run
	Visits []*executorv1.Visit
	// Booked is the usage of the run itself, as the registry has it.
	Booked []*registryv1.UsageEntry
	Below  []*RunTree
	// More says that there are visits or runs below that are not here.
	More bool
}

// visitKey names a visit.
type visitKey struct {
	node  string
	visit int32
}

// Text draws the tree. A visit has what it used itself, and a run what it and the runs below it used. Visits
// that nothing leads to are left out.
func (t *RunTree) Text(s Style) string {
	rows := [][]string{{"RUN OR VISIT", "ACTOR", "TOOK", "TOKENS", "COST", "RESULT"}}
	t.rows("", &rows)
	wide := make([]int, len(rows[0]))
	for _, r := range rows {
		for j, c := range r {
			wide[j] = max(wide[j], Columns(c))
		}
	}
	var b strings.Builder
	for i, r := range rows {
		var parts []string
		for j, c := range r {
			parts = append(parts, pad(c, wide[j]))
		}
		line := shorten(strings.TrimRight(strings.Join(parts, columnGap), " "), s.Width)
		if i == 0 {
			line = s.dim(line)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// rows appends the lines of the tree, in cells that are fit to be printed.
func (t *RunTree) rows(indent string, rows *[][]string) {
	r := t.Run
	state := Word(r.GetState().String(), "RUN_STATE_")
	took := ""
	if r.GetStartTime() != nil && r.GetEndTime() != nil {
		took = Took(r.GetEndTime().AsTime().Sub(r.GetStartTime().AsTime()))
	}
	name := r.GetId()
	if g := OneLine(r.GetGraphName(), 24); g != "" {
		name += " " + g
	}
	u := r.GetUsage()
	cost := ""
	if calls := max(u.GetCalls(), u.GetBookedCalls()); calls > 0 {
		cost = Cost(u.GetCostNanoUsd(), calls > u.GetUnpricedCalls(), u.GetUnpricedCalls(), u.GetUnbookedAttempts())
	}
	what := state
	if r.GetStateReason() != "" {
		what += " " + r.GetStateReason()
	}
	*rows = append(*rows, []string{indent + name, "", took, tokensOf(u), sum(cost), OneLine(what, 60)})
	costs := map[visitKey]nodeCost{}
	for _, b := range t.Booked {
		k := visitKey{b.GetNodeId(), b.GetVisit()}
		c := costs[k]
		if b.CostNanoUsd != nil {
			c.nano, c.known = c.nano+b.GetCostNanoUsd(), true
		} else {
			c.unpriced++
		}
		costs[k] = c
	}
	below := map[visitKey][]*RunTree{}
	var rest []*RunTree
	shown := map[visitKey]bool{}
	for _, v := range t.Visits {
		shown[visitKey{v.GetNodeId(), v.GetVisit()}] = true
	}
	for _, c := range t.Below {
		k := visitKey{c.Run.GetParentVisit().GetNodeId(), c.Run.GetParentVisit().GetVisit()}
		if !shown[k] {
			rest = append(rest, c)
			continue
		}
		below[k] = append(below[k], c)
	}
	for _, v := range t.Visits {
		if v.GetState() == executorv1.VisitState_VISIT_STATE_SKIPPED && v.GetSkipReason() == "NO_LIVE_INPUT" {
			continue
		}
		k := visitKey{v.GetNodeId(), v.GetVisit()}
		*rows = append(*rows, visitRow(indent+"  ", v, costs[k]))
		for _, c := range below[k] {
			c.rows(indent+"    ", rows)
		}
	}
	for _, c := range rest {
		c.rows(indent+"    ", rows)
	}
	if t.More {
		*rows = append(*rows, []string{indent + "  … and more"})
	}
}

// sum marks an amount that includes others of the tree.
func sum(cost string) string {
	if cost == "" {
		return ""
	}
	return "Σ " + cost
}

func tokensOf(u *executorv1.Usage) string {
	if u.GetCalls() == 0 {
		return ""
	}
	return Count(u.GetInputTokens()) + "→" + Count(u.GetOutputTokens())
}

func visitRow(indent string, v *executorv1.Visit, c nodeCost) []string {
	name := indent + Style{}.mark(v.GetState(), still) + " " + OneLine(v.GetNodeId(), 40)
	if v.GetVisit() > 1 {
		name += fmt.Sprintf(" (visit %d)", v.GetVisit())
	}
	took := ""
	if v.GetDuration() != nil {
		took = Took(v.GetDuration().AsDuration())
	}
	what := ""
	switch {
	case v.GetState() == executorv1.VisitState_VISIT_STATE_SKIPPED:
		what = Skipped(v.GetSkipReason(), v.GetSkipMessage())
	case v.GetState() != executorv1.VisitState_VISIT_STATE_COMPLETED && v.GetError() != nil:
		what = errorText(v.GetError())
	case v.GetState() == executorv1.VisitState_VISIT_STATE_WAITING:
		what = "waits for " + waitText(v.GetWait())
	case len(v.GetValues()) > 0:
		what = jsonText(v.GetValues()[0].GetJson())
	}
	cost := ""
	if c.known || c.unpriced > 0 {
		cost = Cost(c.nano, c.known, c.unpriced, 0)
	}
	return []string{name, OneLine(v.GetActor(), 24), took, tokensOf(v.GetUsage()), cost, OneLine(what, 60)}
}

// SortBelow orders the runs below by the time at which they began, oldest first.
func (t *RunTree) SortBelow() {
	slices.SortStableFunc(t.Below, func(a, b *RunTree) int {
		if c := a.Run.GetCreateTime().AsTime().Compare(b.Run.GetCreateTime().AsTime()); c != 0 {
			return c
		}
		return strings.Compare(a.Run.GetId(), b.Run.GetId())
	})
}
