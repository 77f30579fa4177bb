package cataloging

import (
	"context"
	"fmt"
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

const (
	// maxForecasts is how many different workflows, requirements and definitions are looked at for one epic.
	maxForecasts = 100
	// maxForecastBytes bounds the definitions that are compiled for one epic, together: each is compiled in a
	// turn of its namespace, which a request must not take for minutes.
	maxForecastBytes = 1 << 20
	// tasksRead is how many tasks are read at once.
	tasksRead = 200
)

// ForecastEpic tells what the tasks of an epic that have not ended may need. parallel is how many are worked
// on at once, and workflow that of tasks that name none; what is zero is as the epic has it.
func (c *Catalog) ForecastEpic(ctx context.Context, namespace, id string, parallel int, fallback string) (f catalog.EpicForecast, err error) {
	e, err := view(ctx, c, namespace, func(ctx context.Context, r store.Reader) (epic.Epic, error) { return r.Epic(ctx, namespace, id) })
	if err != nil {
		return f, err
	}
	if f.Parallel = parallel; f.Parallel == 0 {
		f.Parallel = int(e.Parallel)
	}
	if f.Parallel == 0 {
		f.Parallel = epic.DefaultParallel
	}
	if fallback == "" {
		fallback = e.WorkflowSlug
	}
	s := &pieces{catalog: c, namespace: namespace, key: e.UserID, fallback: fallback, at: map[string]int{}, known: map[worker]catalog.Piece{}}
	q := store.TaskQuery{Namespace: namespace, EpicID: id, Limit: tasksRead, States: []epic.TaskState{epic.TaskPending, epic.TaskBlocked, epic.TaskRunning}}
	for {
		found, err := view(ctx, c, namespace, func(ctx context.Context, r store.Reader) (store.Found[epic.Task], error) { return r.Tasks(ctx, q) })
		if err != nil {
			return f, err
		}
		for i := range found.Rows {
			if err := s.add(ctx, &found.Rows[i]); err != nil {
				return f, err
			}
		}
		if n := len(found.Rows); n == tasksRead {
			q.After = page.Cursor{CreateTime: found.Rows[n-1].CreateTime, ID: found.Rows[n-1].ID}
		} else if q.After = found.Stopped; q.After.ID == "" {
			break
		}
	}
	f.Pieces = s.linked()
	left := func(budget *int64, spent int64) *int64 {
		if budget == nil {
			return nil
		}
		n := max(*budget-spent, 0)
		return &n
	}
	f.Sum(left(e.BudgetNanoUSD, e.Spent.NanoUSD), left(e.BudgetTokens, e.Spent.Tokens))
	return f, nil
}

// pieces makes pieces of tasks, each workflow looked up once.
type pieces struct {
	catalog             *Catalog
	namespace, fallback string
	// key chooses among the versions of an alias, as the start of a task does.
	key string
	all []catalog.Piece
	// after are the ids of what each depends on, and at the places of ids.
	after [][]string
	at    map[string]int
	known map[worker]catalog.Piece
	// compiled is how many bytes of definitions were compiled.
	compiled int
}

// worker is what would work on a task: its definition, a workflow by reference, or the best workflow for
// requirements. At most one field is set.
type worker struct{ definition, ref, requirements string }

// workerOf chooses in the order of the start of a task.
func (s *pieces) workerOf(t *epic.Task) worker {
	switch {
	case t.Definition != "":
		return worker{definition: t.Definition}
	case t.WorkflowSlug != "":
		return worker{ref: t.WorkflowSlug}
	case len(t.Requirements) > 0:
		return worker{requirements: string(t.Requirements)}
	}
	return worker{ref: s.fallback}
}

func (s *pieces) add(ctx context.Context, t *epic.Task) error {
	by := s.workerOf(t)
	p, known := s.known[by]
	if !known {
		if len(s.known) < maxForecasts {
			var err error
			if p, err = s.piece(ctx, by); err != nil {
				return err
			}
			s.known[by] = p
		} else {
			p = catalog.Piece{Unknown: fmt.Sprintf("the tasks of the epic have more than %d different workflows; no others are looked at", maxForecasts)}
		}
	}
	p.TaskID, p.Title, p.Priority = t.ID, t.Title, int(t.Priority)
	s.at[t.ID] = len(s.all)
	s.all, s.after = append(s.all, p), append(s.after, t.DependsOn)
	return nil
}

// piece is what is known of a task by what works on it.
func (s *pieces) piece(ctx context.Context, by worker) (catalog.Piece, error) {
	ref := by.ref
	switch {
	case by.definition != "":
		if s.compiled += len(by.definition); s.compiled > maxForecastBytes {
			return catalog.Piece{Unknown: fmt.Sprintf("the tasks of the epic have more than %d bytes of definitions; no others are compiled", maxForecastBytes)}, nil
		}
		f, err := s.catalog.ForecastText(ctx, s.namespace, draftOf(by.definition))
		return pieceOf(f, "", err)
	case by.requirements != "":
		found, why, err := s.match(ctx, []byte(by.requirements))
		if err != nil || found == "" {
			return catalog.Piece{Unknown: why}, err
		}
		ref = found
	case ref == "":
		return catalog.Piece{Unknown: "it names neither a workflow nor requirements, and its epic no workflow"}, nil
	}
	r, err := catalog.ParseRef(ref)
	if err != nil {
		return catalog.Piece{Unknown: errs.From(err).Message}, nil
	}
	f, at, err := s.catalog.Forecast(ctx, s.namespace, r, s.key)
	return pieceOf(f, at, err)
}

// draftOf is the text of a task as a draft.
func draftOf(text string) Draft {
	if workflow.IsGraph([]byte(text)) {
		return Draft{Form: catalog.Graph, Source: text}
	}
	return Draft{Form: catalog.Definition, Source: text}
}

// pieceOf makes a piece of a forecast of the version at, or of its error. What is wrong with a workflow
// leaves it unknown, and says why.
func pieceOf(f catalog.Forecast, at string, err error) (catalog.Piece, error) {
	switch {
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.InvalidArgument), errs.Is(err, errs.FailedPrecondition):
		return catalog.Piece{Unknown: errs.Clip(errs.From(err).Message, 300)}, nil
	case err != nil:
		return catalog.Piece{}, err
	}
	p := catalog.Piece{Workflow: at, Basis: f.Basis, Cost: f.Cost, Tokens: f.Tokens, DurationMS: f.DurationMS}
	switch {
	case f.Basis == catalog.FromGraph:
		p.Unknown = "no run of its workflow has ended yet"
		// The sums of an epic are made of runs alone.
		for _, a := range []*catalog.Amount{&p.Cost, &p.Tokens, &p.DurationMS} {
			a.P50, a.P90 = nil, nil
		}
	case f.Cost.P50 == nil:
		p.Unknown = "the cost of no run of its workflow is known"
	}
	return p, nil
}

// match is the workflow that a start would choose for requirements, or why it would choose none.
func (s *pieces) match(ctx context.Context, needs []byte) (ref, why string, err error) {
	r, faults := discover.ReadRequirements(needs)
	if len(faults) > 0 {
		return "", "its requirements cannot be read: " + errs.Clip(faults[0].Message, 200), nil
	}
	found, _, err := s.catalog.Discover(ctx, s.namespace, discover.Query{Requirements: r, Limit: 1})
	switch {
	case err != nil:
		return "", "", err
	case len(found) == 0 || found[0].Score < discover.ReuseScore:
		return "", fmt.Sprintf("no workflow meets its requirements with a score of %.2f", discover.ReuseScore), nil
	}
	return catalog.At(found[0].Workflow.Slug, found[0].Workflow.Latest), "", nil
}

// linked are the pieces with what they wait for. Tasks that have ended hold up nothing.
func (s *pieces) linked() []catalog.Piece {
	for i, after := range s.after {
		for _, id := range after {
			if at, open := s.at[id]; open && !slices.Contains(s.all[i].After, at) {
				s.all[i].After = append(s.all[i].After, at)
			}
		}
	}
	return s.all
}
