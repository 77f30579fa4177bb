package flowtest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

// maxRuns bounds the runs that are looked at to find the steps of a case.
const maxRuns = 10_000

// Parts of the ids of nodes, as the compiler of workflows and the actor of teams give them.
const (
	attempts   = ".attempts"
	teamActor  = "team"
	memberPart = "speak."
	turnNode   = "turn"
)

// tree reads a run and those below it, each once and when something asks for it.
type tree struct {
	x    executorv1.ExecutorServiceClient
	root *node
	read int
}

// node is a run of the tree. team says that it is that of a team.
type node struct {
	id     string
	parent *executorv1.VisitRef
	team   bool

	visits []*executorv1.Visit
	looked bool
	below  []*node
	listed bool
}

// visitsOf are the visits of a run.
func (t *tree) visitsOf(ctx context.Context, n *node) ([]*executorv1.Visit, error) {
	if n.looked {
		return n.visits, nil
	}
	if t.read++; t.read > maxRuns {
		return nil, errs.New(errs.ResourceExhausted, "TOO_LARGE", "the case asks for steps of more than %d runs", maxRuns).Hint("choose items, such as `STEP[0]/STEP`, or give the case fewer")
	}
	req := &executorv1.ListVisitsRequest{RunId: n.id, PageSize: 1000}
	for {
		page, err := t.x.ListVisits(ctx, req)
		if err != nil {
			return nil, err
		}
		n.visits = append(n.visits, page.GetVisits()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			n.looked = true
			return n.visits, nil
		}
	}
}

// belowOf are the runs right below a run, in the order of the visits that spawned them, and of their
// items.
func (t *tree) belowOf(ctx context.Context, n *node) ([]*node, error) {
	if n.listed {
		return n.below, nil
	}
	visits, err := t.visitsOf(ctx, n)
	if err != nil {
		return nil, err
	}
	teams := map[string]bool{}
	for _, v := range visits {
		if v.GetActor() == teamActor {
			teams[v.GetNodeId()] = true
		}
	}
	req := &executorv1.ListRunsRequest{ParentRunId: n.id, PageSize: 1000}
	for {
		page, err := t.x.ListRuns(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, r := range page.GetRuns() {
			at := r.GetParentVisit()
			n.below = append(n.below, &node{id: r.GetId(), parent: at, team: teams[at.GetNodeId()]})
		}
		if len(n.below) > maxRuns {
			return nil, errs.New(errs.ResourceExhausted, "TOO_LARGE", "a run of the case has more than %d runs below it", maxRuns)
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	slices.SortFunc(n.below, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.parent.GetVisit(), b.parent.GetVisit()), cmp.Compare(a.parent.GetItem(), b.parent.GetItem()), strings.Compare(a.id, b.id))
	})
	n.listed = true
	return n.below, nil
}

// named is the node of a part of a path in a run.
func (n *node) named(part workflow.PathPart) string {
	if n.team {
		return memberPart + part.ID
	}
	return part.ID
}

// within are the runs in which what a part of a path names does what stands within it.
func (t *tree) within(ctx context.Context, n *node, part workflow.PathPart) ([]*node, error) {
	all, err := t.belowOf(ctx, n)
	var out []*node
	id := n.named(part)
	for _, below := range all {
		at := below.parent
		if (at.GetNodeId() == id || at.GetNodeId() == id+attempts) && (part.Item < 0 || int(at.GetItem()) == part.Item+1) {
			out = append(out, below)
		}
	}
	return out, err
}

// find are the visits of the step that a path names, in the order of the items, and the runs that may
// have the step.
func (t *tree) find(ctx context.Context, path workflow.StepPath) (visits []*executorv1.Visit, runs []*node, err error) {
	at := []*node{t.root}
	for _, part := range path[:len(path)-1] {
		var next []*node
		for _, n := range at {
			in, err := t.within(ctx, n, part)
			if err != nil {
				return nil, nil, err
			}
			next = append(next, in...)
		}
		at = next
	}
	last := path[len(path)-1]
	for _, n := range at {
		all, err := t.visitsOf(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		for _, v := range all {
			if v.GetNodeId() == n.named(last) {
				visits = append(visits, v)
			}
		}
	}
	return visits, at, nil
}

// spoke are the members who spoke in the last run of a team, those of one turn in the order of their
// names.
func (t *tree) spoke(ctx context.Context, path workflow.StepPath) ([]string, error) {
	_, at, err := t.find(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, n := range slices.Backward(at) {
		teams, err := t.within(ctx, n, path[len(path)-1])
		if err != nil {
			return nil, err
		}
		if len(teams) > 0 {
			visits, err := t.visitsOf(ctx, teams[len(teams)-1])
			return speakers(visits), err
		}
	}
	return []string{}, nil
}

// speakers are the members who spoke in the run of a team.
func speakers(visits []*executorv1.Visit) []string {
	visits = slices.SortedFunc(slices.Values(visits), func(a, b *executorv1.Visit) int { return cmp.Compare(a.GetEndSeq(), b.GetEndSeq()) })
	out, turn := []string{}, 0
	for _, v := range visits {
		name, member := strings.CutPrefix(v.GetNodeId(), memberPart)
		switch {
		case v.GetNodeId() == turnNode:
			slices.Sort(out[turn:])
			turn = len(out)
		case member && ran(v):
			out = append(out, name)
		}
	}
	slices.Sort(out[turn:])
	return out
}

// look finds what a case wants to know of its steps, while the suite is there.
func (s *seen) look(ctx context.Context, t *tree, e *workflow.Expectation) (err error) {
	s.found, s.spoke = map[string][]*executorv1.Visit{}, map[string][]string{}
	if s.visits, err = t.visitsOf(ctx, t.root); err != nil {
		return err
	}
	paths := slices.Concat(e.Ran, e.NotRan)
	for i := range e.Steps {
		path := e.Steps[i].Path
		if paths = append(paths, path); e.Steps[i].Spoke == nil {
			continue
		}
		if s.spoke[path.String()], err = t.spoke(ctx, path); err != nil {
			return err
		}
	}
	for _, path := range paths {
		if s.found[path.String()], _, err = t.find(ctx, path); err != nil {
			return err
		}
	}
	return nil
}
