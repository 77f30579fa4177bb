package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// changes are what a transaction has changed. They become events of the feed as its last statements: an
// epic or a task one event, however often it was written, as it is in the end.
type changes struct {
	order     []changed
	at        map[changed]*change
	entries   []usage.Entry
	prices    []usage.Price
	workflows []*workflowChange
	// memories were written, forgotten were removed. memory is what this adds to the total.
	memories  []feed.Memory
	forgotten []forgotten
	memory    memory.Total
	// runs are the events of runs and threads.
	runs []feed.Event
	// before are accounts as they were when they were locked first, after as they were written last.
	before, after map[ledger.ID]ledger.Account
}

// changed names an epic or a task.
type changed struct {
	task bool
	id   string
}

// change is what became of an epic or a task.
type change struct {
	created, deleted bool
	// whole says that the task was written, and not only its state or what it depends on: because of
	// others that were. There may be thousands of those, and their long texts are as they were.
	whole  bool
	epicID string
	// gone is what is told of one that was deleted.
	gone feed.Gone
}

type workflowChange struct {
	catalog.Workflow
	created bool
	version int64
}

func newChanges() *changes {
	return &changes{at: map[changed]*change{}, before: map[ledger.ID]ledger.Account{}, after: map[ledger.ID]ledger.Account{}}
}

func (c *changes) of(what changed) *change {
	if c.at[what] == nil {
		c.at[what] = &change{}
		c.order = append(c.order, what)
	}
	return c.at[what]
}

func (c *changes) epic(id string) *change { return c.of(changed{id: id}) }

func (c *changes) task(id string) *change { return c.of(changed{task: true, id: id}) }

func (c *changes) workflow(id string) *workflowChange {
	for _, w := range c.workflows {
		if w.ID == id {
			return w
		}
	}
	w := &workflowChange{Workflow: catalog.Workflow{ID: id}}
	c.workflows = append(c.workflows, w)
	return w
}

func (c *changes) lockedAccounts(accounts []ledger.Account) {
	for _, a := range accounts {
		if _, known := c.before[a.ID]; !known {
			c.before[a.ID] = a
		}
	}
}

func (c *changes) putAccounts(accounts []ledger.Account) {
	for _, a := range accounts {
		c.after[a.ID] = a
	}
}

// reached are the caps of accounts that were not reached before the transaction and are after it.
func (c *changes) reached(namespace string) (out []feed.Event) {
	ids := make([]ledger.ID, 0, len(c.after))
	for id := range c.after {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, ledger.ID.Compare)
	for _, id := range ids {
		before, a := c.before[id], c.after[id]
		told := func(was, is *int64, spentBefore, spent int64, b feed.Budget) {
			if is == nil || spent < *is || was != nil && spentBefore >= *was {
				return
			}
			if b.Level, b.Name = id.Level.String(), id.Name; id.Level == ledger.Namespace {
				b.Name = namespace
			}
			e := feed.Event{Kind: feed.BudgetReached, Body: feed.Body{Budget: &b}}
			if id.Level == ledger.Epic {
				e.EpicID = id.Name
			}
			out = append(out, e)
		}
		for _, hard := range []bool{false, true} {
			was, is := before.Soft, a.Soft
			if hard {
				was, is = before.Hard, a.Hard
			}
			told(was.Tokens, is.Tokens, before.Spent.Tokens, a.Spent.Tokens, feed.Budget{Hard: hard, Tokens: is.Tokens})
			told(was.NanoUSD, is.NanoUSD, before.Spent.NanoUSD, a.Spent.NanoUSD, feed.Budget{Hard: hard, NanoUSD: is.NanoUSD})
		}
	}
	return out
}

// booked are the events of new usage entries: one for each epic, and one for those of none.
func (c *changes) booked() (out []feed.Event) {
	at := map[string]int{}
	for _, e := range c.entries {
		i, known := at[e.EpicID]
		if !known {
			i = len(out)
			at[e.EpicID] = i
			out = append(out, feed.Event{Kind: feed.UsageBooked, EpicID: e.EpicID})
		}
		out[i].Body.Usage = append(out[i].Body.Usage, e)
	}
	return out
}

func (c *changes) published() (out []feed.Event) {
	for _, w := range c.workflows {
		b := feed.Body{Workflow: &w.Workflow, Version: w.version, Change: feed.WorkflowChanged}
		switch {
		case w.created:
			b.Change = feed.WorkflowCreated
		case w.State == catalog.Deleted:
			b.Change = feed.WorkflowDeleted
		case w.version > 0:
			b.Change = feed.WorkflowVersioned
		}
		out = append(out, feed.Event{Kind: feed.WorkflowPublished, Slug: w.Slug, Body: b})
	}
	return out
}

// TellRun implements store.Tx.
func (t tx) TellRun(slug, epicID string, kind feed.Kind, state feed.RunState) {
	t.changes.runs = append(t.changes.runs, feed.Event{Kind: kind, EpicID: epicID, Slug: slug, Body: feed.Body{State: &state, Run: state.RunID}})
}

// TellThread implements store.Tx.
func (t tx) TellThread(threadID string, kind feed.Kind, state feed.ThreadState) {
	t.changes.runs = append(t.changes.runs, feed.Event{Kind: kind, ThreadID: threadID, Body: feed.Body{Thread: &state, Run: state.RunID}})
}

// toldAtOnce is how many epics and tasks are read and told at once. An epic that is canceled may end
// ten thousand tasks, each with large texts.
const toldAtOnce = 100

// tell writes the events of a transaction. It comes last, because it locks the feed of the namespace,
// which everybody wants, until the commit: with that lock seq has no gaps and grows in the order of
// commits, so that whoever has read as far as a sequence never finds an event before it later. A
// sequence of the database would be handed out before the commit, and readers would have to wait for
// those who may still commit a smaller one. The price is that commits of one namespace that change
// anything come one after the other. Bookings do so anyway, over the totals of the namespace.
func (t tx) tell(ctx context.Context, namespace string) (told bool, err error) {
	c := t.changes
	write := func(events []feed.Event) error {
		if len(events) == 0 {
			return nil
		}
		told = true
		for i := range events {
			events[i].Body.Run = cmp.Or(events[i].Body.Run, access.RunOf(ctx))
		}
		return t.appendFeed(ctx, namespace, events)
	}
	if err := t.countMemory(ctx, namespace); err != nil {
		return false, err
	}
	for some := range slices.Chunk(c.order, toldAtOnce) {
		events, err := t.changedEvents(ctx, namespace, some)
		if err != nil {
			return false, err
		}
		if err := write(events); err != nil {
			return false, err
		}
	}
	rest := slices.Concat(c.booked(), c.published(), c.remembered(), c.runs)
	for i := range c.prices {
		rest = append(rest, feed.Event{Kind: feed.PriceCreated, Body: feed.Body{Price: &c.prices[i]}})
	}
	reached, err := t.epicsOfTasks(ctx, namespace, c.reached(namespace))
	if err != nil {
		return false, err
	}
	return told, write(append(rest, reached...))
}

// epicsOfTasks sets the epics of the budgets of tasks.
func (t tx) epicsOfTasks(ctx context.Context, namespace string, events []feed.Event) ([]feed.Event, error) {
	var ids []string
	for _, e := range events {
		if e.Body.Budget.Level == ledger.Task.String() {
			ids = append(ids, e.Body.Budget.Name)
		}
	}
	if len(ids) == 0 {
		return events, nil
	}
	of, err := t.TaskTotals(ctx, namespace, ids)
	for i, e := range events {
		if e.Body.Budget.Level == ledger.Task.String() {
			events[i].EpicID = of[e.Body.Budget.Name].EpicID
		}
	}
	return events, err
}

// changedEvents are the events of some epics and tasks. Those that came and went in the transaction
// have none, nor have tasks that went with their epic.
func (t tx) changedEvents(ctx context.Context, namespace string, some []changed) (out []feed.Event, err error) {
	var epicIDs, taskIDs, briefIDs []string
	for _, what := range some {
		switch c := t.changes.at[what]; {
		case c.deleted:
		case what.task && !c.whole:
			briefIDs = append(briefIDs, what.id)
		case what.task:
			taskIDs = append(taskIDs, what.id)
		default:
			epicIDs = append(epicIDs, what.id)
		}
	}
	epics, err := t.EpicsOf(ctx, namespace, epicIDs)
	if err != nil {
		return nil, err
	}
	tasks := map[string]epic.Task{}
	if err := t.tasksInto(ctx, tasks, taskColumns, t.bodies(), namespace, taskIDs); err != nil {
		return nil, err
	}
	if err := t.tasksInto(ctx, tasks, briefColumns(), ``, namespace, briefIDs); err != nil {
		return nil, err
	}
	for _, what := range some {
		c := t.changes.at[what]
		if c.deleted {
			if c.created {
				continue
			}
			e := feed.Event{Kind: feed.EpicDeleted, EpicID: what.id, Body: feed.Body{ID: what.id, Gone: &c.gone}}
			if what.task {
				e.Kind, e.EpicID = feed.TaskDeleted, c.epicID
			}
			out = append(out, e)
			continue
		}
		kinds := [2]feed.Kind{feed.EpicUpdated, feed.EpicCreated}
		if what.task {
			kinds = [2]feed.Kind{feed.TaskUpdated, feed.TaskCreated}
		}
		e := feed.Event{Kind: kinds[0]}
		if c.created {
			e.Kind = kinds[1]
		}
		if what.task {
			v, there := tasks[what.id]
			if !there {
				continue
			}
			e.EpicID, e.Body.Task, e.Body.Brief = v.EpicID, &v, !c.whole
		} else {
			v, there := epics[what.id]
			if !there {
				continue
			}
			e.EpicID, e.Body.Epic = v.ID, &v
		}
		out = append(out, e)
	}
	return out, nil
}

// briefColumns are taskColumns without what is in the bodies of tasks.
func briefColumns() string {
	return strings.NewReplacer(` description,`, ` '',`, ` requirements,`, ` NULL,`, ` result_summary,`, ` '',`, `error_message,`, `'',`, ` notes,`, ` '[]',`, `ended_by, input, definition,`, `ended_by, NULL, '',`).
		Replace(taskColumns)
}

// tasksInto reads those of the tasks that there are.
func (t tx) tasksInto(ctx context.Context, out map[string]epic.Task, columns, rest, namespace string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return t.each(ctx, func(row dbkit.Scanner) error {
		v, err := scanTask(row)
		out[v.ID] = v
		return err
	}, `SELECT `+columns+` FROM tasks t`+rest+` WHERE t.namespace = $1 AND `+t.d.In(`t.id`, `$2`), namespace, ids)
}
