package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// page is what every list asks.
type page struct {
	Limit int32  `help:"Show this many." default:"50" short:"l"`
	Token string `help:"Token of the wanted page, as the page before printed it." name:"page-token" placeholder:"TOKEN"`
}

// more says how to get the next page.
func (e *env) more(token string) {
	if token != "" && !e.json {
		fmt.Fprintf(e.io.Err, "more: --page-token=%s\n", token)
	}
}

type runsLsCmd struct {
	page
	State    []string          `help:"Runs in any of these states; open means every run that has not ended." placeholder:"STATE"`
	Task     string            `help:"Runs for this task." placeholder:"ID" xor:"of"`
	Epic     string            `help:"Runs for the tasks of this epic." placeholder:"ID" xor:"of"`
	Workflow string            `help:"Runs of this workflow of the catalog, or of one version of it." placeholder:"NAME[@VERSION]"`
	User     string            `help:"Runs for this user." placeholder:"ID"`
	Chat     string            `help:"Runs of this conversation." placeholder:"ID"`
	Key      string            `help:"Runs with this business key." name:"business-key" placeholder:"KEY"`
	Parent   string            `help:"Runs that this run spawned." placeholder:"ID"`
	Schedule string            `help:"Runs that this schedule started." placeholder:"ID"`
	Labels   map[string]string `help:"Runs with all of these labels." name:"label" placeholder:"NAME=VALUE"`
	After    string            `help:"Runs created at or after this time, or this long ago (2h)." placeholder:"TIME"`
	Before   string            `help:"Runs created before this time, or this long ago (2h)." placeholder:"TIME"`
}

// Help gives examples.
func (runsLsCmd) Help() string {
	return `With --epic it lists the runs of each task of the epic, up to 1,000 tasks. Runs of deleted tasks are not found.

    epigraph runs ls --state failed --after 2h
    epigraph runs ls --epic ep_01…`
}

// openStates are the states of runs that have not ended; "open" stands for them.
var openStates = []executorv1.RunState{
	executorv1.RunState_RUN_STATE_PENDING, executorv1.RunState_RUN_STATE_RUNNING, executorv1.RunState_RUN_STATE_WAITING,
	executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_QUARANTINED,
}

// runStates reads states to filter by.
func runStates(words []string) ([]executorv1.RunState, error) {
	var out []executorv1.RunState
	for _, w := range words {
		if strings.EqualFold(w, "open") {
			out = append(out, openStates...)
			continue
		}
		one, err := enums[executorv1.RunState]("--state", "RUN_STATE_", executorv1.RunState_value, []string{w}, "open")
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Run lists.
func (c *runsLsCmd) Run(e *env) error {
	states, err := runStates(c.State)
	if err != nil {
		return err
	}
	after, err := instant("--after", c.After)
	if err != nil {
		return err
	}
	before, err := instant("--before", c.Before)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		req := &executorv1.ListRunsRequest{
			PageSize: c.Limit, PageToken: c.Token, States: states, TaskId: c.Task, Workflow: c.Workflow, UserId: c.User, ChatId: c.Chat,
			BusinessKey: c.Key, ParentRunId: c.Parent, ScheduleId: c.Schedule, Labels: c.Labels, CreatedAfter: after, CreatedBefore: before,
		}
		var r *executorv1.ListRunsResponse
		var err error
		if c.Epic != "" {
			r, err = runsOfEpic(ctx, s, c.Epic, req)
		} else {
			r, err = s.executor.ListRuns(ctx, req)
		}
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetRuns()) == 0 {
				return "no runs\n"
			}
			var rows [][]string
			for _, x := range r.GetRuns() {
				took := ""
				if x.GetEndTime() != nil && x.GetStartTime() != nil {
					took = view.Took(x.GetEndTime().AsTime().Sub(x.GetStartTime().AsTime()))
				}
				state := view.Word(x.GetState().String(), "RUN_STATE_")
				if x.GetStateReason() != "" {
					state += " " + x.GetStateReason()
				}
				n := x.GetNodes()
				rows = append(rows, []string{
					x.GetId(), state, view.OneLine(x.GetGraphName(), 30), fmt.Sprintf("%d/%d", n.GetCompleted(), n.GetTotal()),
					view.When(x.GetCreateTime()), took, cost(x.GetUsage()), x.GetTaskId(), view.OneLine(pairs(x.GetLabels()), 40),
				})
			}
			return view.Table(e.io.style(), []string{"RUN", "STATE", "GRAPH", "NODES", "CREATED", "TOOK", "COST", "TASK", "LABELS"}, rows)
		})
	})
}

type runsGetCmd struct {
	ID string `arg:"" help:"The run."`
}

// Help says what --json leaves out.
func (runsGetCmd) Help() string {
	return `With --json it prints only the run; "epigraph runs visits" lists its visits.`
}

// firstVisits is how many visits are shown with a run.
const firstVisits = 200

// Run shows a run and its visits.
func (c *runsGetCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: c.ID})
		if err != nil {
			return err
		}
		if e.json {
			return printJSON(e.io.Out, r)
		}
		v, err := s.executor.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: c.ID, PageSize: firstVisits})
		if err != nil {
			return err
		}
		facts := []string{fmt.Sprintf("graph %s (%.12s)", view.OneLine(r.GetGraphName(), 60), r.GetGraphHash()), "created " + view.When(r.GetCreateTime())}
		for _, f := range [][2]string{
			{"task", r.GetTaskId()}, {"user", r.GetUserId()}, {"principal", r.GetPrincipal()}, {"key", r.GetBusinessKey()}, {"parent", r.GetParentRunId()},
			{"thread", threadOf(r)},
			{"forked from", r.GetForkedFromRunId()}, {"schedule", r.GetScheduleId()}, {"priority", priority(r)}, {"goes on", whenSet(r.GetWakeTime())},
			{"deadline", whenSet(r.GetDeadline())}, {"budget", budgetText(r.GetBudget())}, {"webhooks", hooksText(r.GetWebhooks())}, {"graph revision", number(r.GetGraphRevision())}, {"trace", r.GetTraceId()}, {"labels", pairs(r.GetLabels())},
		} {
			if f[1] != "" {
				facts = append(facts, f[0]+" "+view.OneLine(f[1], 80))
			}
		}
		open, err := openInterrupts(ctx, e, s, r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(e.io.Out, summary(e, r), e.io.style().Fit(strings.Join(facts, "  ")), "\n\n", visitTable(e, v.GetVisits()), open)
		if v.GetNextPageToken() != "" {
			e.note("there are more visits: `epigraph runs visits %s`", c.ID)
		}
		e.noteUnbooked(r)
		if !over(r) && err == nil {
			e.help("`epigraph runs explain %s` says why it does not move", c.ID)
		}
		return err
	})
}

// threadOf is the thread of a run: that of its start, or of the agent whose run it is.
func threadOf(r *executorv1.Run) string {
	var agent struct {
		Thread string `json:"thread"`
	}
	if r.GetThreadId() != "" || r.GetParentRunId() == "" || json.Unmarshal(r.GetNamed()["agent"].GetJson(), &agent) != nil {
		return r.GetThreadId()
	}
	return agent.Thread
}

// openInterrupts lists the open interrupts of a run and of its descendants.
func openInterrupts(ctx context.Context, e *env, s *services, r *executorv1.Run) (string, error) {
	if r.GetOpenInterrupts() == 0 {
		return "", nil
	}
	list, err := s.executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: r.GetId(), PageSize: 20})
	if err != nil {
		return "", err
	}
	out := "\n" + interruptTable(e, list.GetInterrupts())
	if n := int(r.GetOpenInterrupts()) - len(list.GetInterrupts()); n > 0 {
		out += fmt.Sprintf("… and %d more: epigraph runs interrupts %s\n", n, r.GetId())
	}
	return out, nil
}

// priority is shown only if it is not the usual one.
func priority(r *executorv1.Run) string {
	if p := r.GetPriority(); p != 0 && p != 2 {
		return fmt.Sprint(p)
	}
	return ""
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func whenSet(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return view.When(t)
}

// waitsFor says what a visit waits for, with what has to be typed for it.
func waitsFor(w *executorv1.WaitInfo) string {
	due := ""
	if w.GetDueTime() != nil {
		due = ", until " + view.When(w.GetDueTime())
	}
	switch w.GetKind() {
	case executorv1.WaitKind_WAIT_KIND_TIMER:
		return "timer" + due
	case executorv1.WaitKind_WAIT_KIND_CHILDREN:
		return "child runs " + some(w.GetChildRunIds(), 3) + due
	case executorv1.WaitKind_WAIT_KIND_INTERRUPT:
		return "answer to " + w.GetInterruptId() + due
	case executorv1.WaitKind_WAIT_KIND_COMPLETION:
		return "work outside, token " + w.GetAttemptToken() + due
	case executorv1.WaitKind_WAIT_KIND_SIGNAL:
		return "signal " + view.OneLine(w.GetSignal(), 40) + due
	}
	return ""
}

func visitTable(e *env, visits []*executorv1.Visit) string {
	if len(visits) == 0 {
		return "no visits yet\n"
	}
	var rows [][]string
	for _, x := range visits {
		what, most := "", 60
		switch {
		case x.GetWait() != nil && x.GetState() == executorv1.VisitState_VISIT_STATE_WAITING:
			what = waitsFor(x.GetWait())
		case x.GetState() == executorv1.VisitState_VISIT_STATE_SKIPPED:
			what, most = view.Skipped(x.GetSkipReason(), x.GetSkipMessage()), 160
		case x.GetError() != nil && x.GetState() != executorv1.VisitState_VISIT_STATE_COMPLETED:
			if what = x.GetError().GetReason(); x.GetError().GetMessage() != "" {
				what += ": " + view.Message(x.GetError().GetMessage())
			}
		case len(x.GetValues()) > 0:
			if what = string(x.GetValues()[0].GetJson()); strings.HasPrefix(what, `"`) {
				what = pretty([]byte(what))
			}
			if x.GetError() != nil {
				what += " (instead of " + x.GetError().GetReason() + ")"
			}
		}
		tokens := ""
		if u := x.GetUsage(); u.GetCalls() > 0 {
			tokens = view.Count(u.GetInputTokens()) + "→" + view.Count(u.GetOutputTokens())
		}
		took := ""
		if x.GetDuration() != nil {
			took = view.Took(x.GetDuration().AsDuration())
		}
		state := strings.ReplaceAll(view.Word(x.GetState().String(), "VISIT_STATE_"), "_", " ")
		switch {
		case x.GetReused():
			state += " (reused)"
		case x.GetCached():
			state += " (cached)"
		case x.GetState() == executorv1.VisitState_VISIT_STATE_CANCELED && x.GetEffect() == graphv1.Effect_EFFECT_UNSAFE && x.GetError().GetType() == executorv1.ErrorType_ERROR_TYPE_UNKNOWN:
			state += " (maybe performed)"
		}
		if x.GetState() == executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION && x.GetEffectKey() != "" {
			// the effect key is for looking up the call at its target
			what, most = "key "+x.GetEffectKey()+", "+what, 400
		}
		if x.GetWait() != nil {
			most = 160 // ids and tokens are there to be copied
		}
		rows = append(rows, []string{
			view.OneLine(x.GetNodeId(), 32), fmt.Sprint(x.GetVisit()), state,
			view.OneLine(x.GetActor(), 16), fmt.Sprint(x.GetAttempts()), took, tokens, view.OneLine(what, most),
		})
	}
	return view.Table(e.io.style(), []string{"NODE", "VISIT", "STATE", "ACTOR", "TRIES", "TOOK", "TOKENS", "RESULT"}, rows)
}

type runsVisitsCmd struct {
	page
	ID   string `arg:"" help:"The run."`
	Node string `help:"Visits of this node." placeholder:"ID"`
}

// Run lists.
func (c *runsVisitsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: c.ID, PageSize: c.Limit, PageToken: c.Token, NodeId: c.Node})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string { return visitTable(e, r.GetVisits()) })
	})
}

type runsWatchCmd struct {
	ID          string `arg:"" help:"The run."`
	After       int64  `help:"Show the events after this sequence." default:"0" placeholder:"SEQ"`
	Descendants bool   `help:"Show its child runs as well."`
}

// Help says what the exit code means.
func (runsWatchCmd) Help() string {
	return `The exit code depends on the end of the run, as for "epigraph run". Ctrl-C stops watching (130); the run continues. A run that is paused with CAP_REACHED continues once "epigraph budgets set" has raised the cap: "epigraph runs explain" has the command.`
}

// Run watches a run.
func (c *runsWatchCmd) Run(e *env) error {
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	g, err := s.executor.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: c.ID})
	if err != nil {
		return err
	}
	return e.watch(s, c.ID, g.GetGraph(), c.After, c.Descendants)
}

type runsCancelCmd struct {
	ID      string `arg:"" help:"The run."`
	Reason  string `help:"Reason, for the history." short:"r"`
	Instead string `help:"Have the team of the run leave what its members do, and go on with this." placeholder:"TEXT"`
}

// Help says what goes on.
func (runsCancelCmd) Help() string {
	return `Calls under way are canceled, and the run ends without a result. With --instead the run goes on: what the members of its team do is canceled, and the team hears the text as a new task.

    epigraph runs cancel run_01… --reason 'the wrong order'
    epigraph runs cancel run_01… --instead 'Never mind. What is open?'`
}

// Run cancels.
func (c *runsCancelCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: c.ID, Reason: c.Reason, Instead: c.Instead})
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			state := view.Word(r.GetState().String(), "RUN_STATE_")
			if c.Instead != "" {
				return fmt.Sprintf("%s goes on with that\n", r.GetId())
			}
			if !over(r) {
				return fmt.Sprintf("%s will stop; it is %s still\n", r.GetId(), state)
			}
			return fmt.Sprintf("%s is %s\n", r.GetId(), state)
		})
	})
}

type runsResumeCmd struct {
	ID     string `arg:"" help:"The run."`
	Reason string `help:"Reason, for the history." short:"r"`
	Step   bool   `help:"Pause it again after one round of a loop, such as a round of an agent."`
	runBudget
	RequestID string `help:"Make the command repeatable: the same id resumes once." placeholder:"ID"`
}

// Help says what stands in the way.
func (runsResumeCmd) Help() string {
	return `A loop that has reached its max_visits gets as many visits again. If a call has an unknown outcome, "epigraph runs reconcile" must come first. A run at a cap of its namespace, epic or task (CAP_REACHED) goes on by itself once "epigraph budgets set" has raised the cap; "epigraph runs explain" has the command. A run that has used up its own budget needs a larger one. The budget of a run that is not paused can be changed too. Children under way may use the rest of the new budget. A run that waits for paused runs below it has them resumed, whatever paused them; with a new budget only the budget is changed.

    epigraph runs resume run_01… --budget-usd 5
    epigraph runs resume run_01… --step`
}

// Run resumes.
func (c *runsResumeCmd) Run(e *env) error {
	budget, err := c.runBudget.message()
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: c.ID, Reason: c.Reason, Step: c.Step, Budget: budget, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		if err := e.print(r, func() string { return resumedText(r) }); err != nil {
			return err
		}
		if standsStill(r) && !unapplied(r, "RESUME") {
			e.help("%s", advice(r))
		}
		if r.GetState() == executorv1.RunState_RUN_STATE_WAITING && !e.json {
			if below := standingBelow(ctx, s, r.GetId()); below != nil {
				e.note("%s\nhelp: %s", below.text(), below.advice())
			}
		}
		return nil
	})
}

// resumedText describes the state of a run after a resume: it may be paused again by then.
func resumedText(r *executorv1.Run) string {
	switch {
	case unapplied(r, "RESUME"):
		return recorded(r, "resume")
	case standsStill(r):
		return strings.TrimSuffix(stands(r), "\n") + " again (" + view.OneLine(r.GetStateReason(), 0) + ")\n"
	case unsettled(r):
		return fmt.Sprintf("%s goes on as soon as it is known what its calls cost\n", r.GetId())
	case over(r):
		return stands(r)
	}
	return fmt.Sprintf("%s goes on; it is %s\n", r.GetId(), view.Word(r.GetState().String(), "RUN_STATE_"))
}

type runsReconcileCmd struct {
	ID           string  `arg:"" help:"The run."`
	Node         string  `arg:"" help:"The node of the attempt."`
	Visit        int32   `help:"Visit of the node." default:"1" placeholder:"N"`
	Item         int32   `help:"Item of the node's map." placeholder:"N"`
	Performed    *string `help:"The attempt was performed and returned this, as JSON or text." placeholder:"VALUE" xor:"outcome" required:""`
	Failed       *string `help:"The attempt was performed and failed for good, with this reason." placeholder:"REASON" xor:"outcome" required:""`
	NotPerformed bool    `help:"The attempt was not performed: repeat it under the same effect key." xor:"outcome" required:""`
	By           string  `help:"Name of the person who reports it, for the history." placeholder:"NAME"`
}

// Help says what comes next.
func (runsReconcileCmd) Help() string {
	return `"epigraph runs visits" shows the visits that need it. The run stays paused until "epigraph runs resume", unless the recorded outcome ends it.`
}

// Run records the outcome.
func (c *runsReconcileCmd) Run(e *env) error {
	req := &executorv1.ReconcileVisitRequest{RunId: c.ID, Visit: &executorv1.VisitRef{NodeId: c.Node, Visit: c.Visit, Item: c.Item}, By: c.By}
	switch {
	case c.Performed != nil:
		given, err := finalValue(*c.Performed)
		if err != nil {
			return err
		}
		req.Outcome = &executorv1.ReconcileVisitRequest_Performed{Performed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{given}}}
	case c.Failed != nil:
		req.Outcome = &executorv1.ReconcileVisitRequest_Failed{Failed: &executorv1.AttemptFailed{Reason: *c.Failed}}
	default:
		req.Outcome = &executorv1.ReconcileVisitRequest_NotPerformed{NotPerformed: &executorv1.AttemptNotPerformed{}}
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.ReconcileVisit(ctx, req)
		if err != nil {
			return err
		}
		if err := e.print(r, func() string {
			if unapplied(r, "RECONCILE") {
				return fmt.Sprintf("recorded; the executor that owns %s has not applied it yet\n", r.GetId())
			}
			return stands(r)
		}); err != nil {
			return err
		}
		if r.GetState() == executorv1.RunState_RUN_STATE_PAUSED && !e.json {
			e.help("`epigraph runs resume %s` continues it once no visit needs reconciliation", r.GetId())
		}
		return nil
	})
}

type runsGraphCmd struct {
	ID      string `arg:"" help:"The run."`
	Mermaid bool   `help:"Print a Mermaid flowchart (the default)." xor:"form"`
	Dot     bool   `help:"Print for Graphviz." xor:"form"`
}

// Help says what --json is good for.
func (runsGraphCmd) Help() string {
	return `With --json it prints the pinned graph of the run with all defaults filled in, in the form of the REST API. "epigraph run" accepts it.`
}

// Run shows the graph.
func (c *runsGraphCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: c.ID})
		if err != nil {
			return err
		}
		return e.drawGraph(r.GetGraph(), c.Dot)
	})
}

type actorsCmd struct{}

// Run lists actors.
func (actorsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.ListActors(ctx, &executorv1.ListActorsRequest{})
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			var rows [][]string
			for _, a := range r.GetActors() {
				what := view.OneLine(a.GetDescription(), 200)
				if why := a.GetUnavailable(); why != "" {
					what = "unavailable: " + view.OneLine(why, 200)
				}
				rows = append(rows, []string{a.GetName(), view.Word(a.GetEffect().String(), "EFFECT_"), a.GetVersion(), what})
			}
			return view.Table(e.io.style(), []string{"ACTOR", "EFFECT", "VERSION", "WHAT IT DOES"}, rows)
		})
	})
}

// enums reads words like "completed" as values of an enum. what is the flag or the argument with the words.
func enums[E ~int32](what, prefix string, known map[string]int32, words []string, besides ...string) ([]E, error) {
	var out []E
	for _, w := range words {
		name := strings.ToUpper(strings.ReplaceAll(w, "-", "_"))
		if name == "CANCELLED" { //nolint:misspell // people may type either spelling; the API has one
			name = "CANCELED"
		}
		v, ok := known[prefix+name]
		if !ok || v == 0 {
			all := slices.Clone(besides)
			for k, n := range known {
				if n != 0 {
					all = append(all, view.Word(k, prefix))
				}
			}
			x := errs.New(errs.InvalidArgument, "VALUE_UNKNOWN", "%s: %q is not one of %s", what, w, sortedList(all))
			for _, word := range all {
				if _, ok := near.Within(strings.ToLower(w), word, max(1, len(word)/3)); ok {
					x = x.Hint("did you mean " + word + "?")
					break
				}
			}
			return nil, usage(x)
		}
		out = append(out, E(v))
	}
	return out, nil
}
