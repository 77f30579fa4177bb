package engine

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/descendants"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// childStarts is how many children of a namespace are being started at once. The commit that records them
// wakes their starters all at the same time; with thousands, everything else would wait for a processor.
const childStarts = 32

// InterruptPrefix is the prefix of ids of interrupts.
const InterruptPrefix = "int"

// prepare completes an outcome that asks for more than its values, before the machine gets it: it assigns
// ids, which must be in the journal, replaces references by graphs, and refuses what cannot be done. It
// changes out.
func (t *session) prepare(ctx context.Context, a *attempt, info *program.ActorInfo, out *workgraph.Outcome) *workgraph.Error {
	if out.Expand != nil {
		if err := t.prepareExpansion(ctx, a, out); err != nil {
			return err
		}
	}
	if len(out.Threads) > 0 {
		if err := t.prepareThreads(ctx, a, out.Threads); err != nil {
			return err
		}
	}
	if out.Wait == nil {
		return nil
	}
	w := *out.Wait
	out.Wait = &w
	if w.Interrupt != nil {
		q := *w.Interrupt
		w.Interrupt = &q
		return t.prepareInterrupt(ctx, a, info, &q)
	}
	if w.Children != nil {
		c := *w.Children
		c.Runs = append([]workgraph.Child(nil), c.Runs...)
		w.Children = &c
		return t.prepareChildren(ctx, a, info, &c)
	}
	return nil
}

func (t *session) prepareInterrupt(ctx context.Context, a *attempt, info *program.ActorInfo, q *workgraph.Interrupt) *workgraph.Error {
	// The internal actors that work here are the steps of an agent's loop. What a remote agent asks is no
	// question of ours, which a message to us would answer.
	q.ID, q.Workflows, q.OfAgent = ids.New(InterruptPrefix), nil, info.Internal && !info.Elsewhere
	if n := len(q.Prompt) + len(q.Schema) + len(q.Default) + len(q.Approve); n > t.e.cfg.MaxPayload {
		return workgraph.Errorf(workgraph.Permanent, journal.ReasonPayloadTooLarge, "the interrupt has %d bytes, the limit is %d", n, t.e.cfg.MaxPayload)
	}
	if len(q.Schema) > 0 {
		leave, err := t.e.computing.Enter(ctx, a.run.namespace)
		if err != nil {
			return notPerformed(err)
		}
		_, err = workgraph.CompileSchema(ctx, q.Schema)
		leave()
		if err != nil {
			return workgraph.Errorf(workgraph.Permanent, ReasonInterruptInvalid, "the schema of the answer cannot be used: %v", err)
		}
	}
	if len(q.Approve) == 0 {
		return nil
	}
	var err *workgraph.Error
	q.Workflows, err = t.coveredWorkflows(ctx, a)
	return err
}

func (t *session) prepareChildren(ctx context.Context, a *attempt, info *program.ActorInfo, c *workgraph.Children) *workgraph.Error {
	cfg, r := &t.e.cfg, a.run
	c.Keep = a.keepAs
	r.lock()
	_, _, covers := r.State.ApprovedAt(a.start.Ref)
	r.mu.Unlock()
	if slices.ContainsFunc(c.Runs, func(run workgraph.Child) bool { return r.lineage.ChildDepth(&run) > cfg.MaxDepth }) {
		return workgraph.Errorf(workgraph.Permanent, ReasonDepthExceeded,
			"the run stands at depth %d below its root, and children may stand at %d at most: do the work here, or raise max_depth", r.lineage.Depth, cfg.MaxDepth)
	}
	if slices.ContainsFunc(c.Runs, func(run workgraph.Child) bool {
		return run.Ref == refSelf && r.lineage.ChildDepth(&run) > cfg.MaxRecursion
	}) {
		return workgraph.Errorf(workgraph.Permanent, ReasonDepthExceeded,
			"the run stands at depth %d below its root, and children with its own graph may stand at %d at most: do the work here, or raise max_recursion", r.lineage.Depth, cfg.MaxRecursion)
	}
	most := cfg.MaxFanOut
	if n := t.e.quotas.FanOut(r.namespace); n > 0 {
		most = min(most, n)
	}
	if len(c.Runs) > most {
		return workgraph.Errorf(workgraph.Permanent, ReasonFanOutExceeded, "%d children at once, the limit is %d: spawn them in batches", len(c.Runs), most)
	}
	type version struct {
		version string
		graph   *workgraph.Graph
	}
	found := map[string]version{} // by name: all children have the same version of an alias
	var faults []string
	from, source := tracing.Of(ctx), program.FromCaller
	if info.MakesInternal {
		source = program.FromActor
	}
	for i := range c.Runs {
		run := &c.Runs[i]
		run.ID, run.TraceParent, run.TraceState, run.Workflow, run.WorkflowHash, run.WorkflowVersion = ids.New(command.IDPrefix), from.Parent, from.State, "", "", ""
		if run.Apart = len(c.Runs) > 1; !info.MakesInternal {
			run.Agent = nil
		}
		if (run.Graph == nil) == (run.Ref == "") {
			faults = append(faults, childFault(i, "give exactly one of graph and ref"))
			continue
		}
		if run.Ref != "" && run.Ref != refSelf {
			f, known := found[run.Ref]
			if !known {
				var err *workgraph.Error
				if f.version, f.graph, err = r.workflow(ctx, run.Ref); err != nil {
					return err
				}
				found[run.Ref] = f
			}
			if err := r.recordWorkflow(run, run.Ref, f.graph); err != nil {
				return err
			}
			if f.version != run.Ref {
				run.WorkflowVersion = f.version
			}
			run.Graph, run.Ref = f.graph, ""
		}
		if run.Ref == refSelf && covers {
			if err := r.recordWorkflow(run, refSelf, r.ownGraph()); err != nil {
				return err
			}
		}
		if n := record.Oversize(t.e.cfg.MaxPayload, run.Input.Args, run.Input.Named); n > 0 {
			faults = append(faults, childFault(i, errs.New(errs.InvalidArgument, journal.ReasonPayloadTooLarge, "an input has %d bytes, the limit is %d", n, cfg.MaxPayload).Message))
		}
		if err := command.CheckLabels(run.Labels); err != nil {
			faults = append(faults, childFault(i, errs.From(err).Message))
		}
		if run.Graph == nil {
			continue
		}
		var p *program.Program
		err := t.untilAnswered(ctx, func() (err error) {
			p, err = t.e.programs.Compile(ctx, r.namespace, run.Graph, nil, &run.Input, source)
			return err
		})
		if list, ok := errors.AsType[workgraph.Faults](err); ok {
			for _, f := range list {
				faults = append(faults, childFault(i, f.String()))
			}
			continue
		}
		if err != nil {
			return workgraph.Errorf(workgraph.Retryable, errs.ReasonOf(err), "child %d: %v", i+1, errs.From(err).Message)
		}
		run.Graph = p.Machine.Graph() // with effects, so that it is the same graph wherever it is compiled
	}
	if len(faults) > 0 {
		return workgraph.Errorf(workgraph.Permanent, ReasonChildInvalid, "%s", strings.Join(faults, "\n"))
	}
	return t.admitChildren(ctx, r, c.Runs)
}

// admitChildren refuses children for which the root of the run has no room.
func (t *session) admitChildren(ctx context.Context, r *run, children []workgraph.Child) *workgraph.Error {
	most := descendants.Runs{All: t.e.cfg.MaxDescendants, Open: t.e.cfg.MaxOpenDescendants}
	var runs descendants.Runs
	var ok bool
	err := t.untilAnswered(ctx, func() (err error) {
		runs, ok, err = t.e.quota.Admit(ctx, r.root, children, most, func(most int) (n descendants.Runs, err error) {
			leave, err := t.e.counts.Enter(ctx, r.namespace)
			if err != nil {
				return n, err
			}
			defer leave()
			n.All, n.Open, err = t.e.journal.CountBelow(ctx, r.namespace, r.root, most)
			return n, err
		})
		return err
	})
	switch {
	case err != nil:
		return workgraph.Errorf(workgraph.Retryable, errs.ReasonOf(err), "the descendants of the root cannot be counted just now: %v", errs.From(err).Message)
	case ok:
		return nil
	case runs.All+len(children) <= most.All:
		return workgraph.Errorf(workgraph.Permanent, descendants.ReasonDescendantQuota,
			"%d more children are too many: %d runs of %s and its descendants are open already, the limit is %d: spawn in batches, or raise max_open_descendants",
			len(children), min(runs.Open, most.Open), r.root, most.Open)
	}
	return workgraph.Errorf(workgraph.Permanent, descendants.ReasonDescendantQuota,
		"%d more children are too many: run %s and its descendants are %d runs already, the limit is %d: do the work in fewer runs, start another root, or raise max_descendants",
		len(children), r.root, min(runs.All, most.All), most.All)
}

func childFault(i int, what string) string {
	return "child " + strconv.Itoa(i+1) + ": " + what
}

// spawnChildren starts the children of a durable decision, one after the other.
func (t *session) spawnChildren(r *run, spawns []workgraph.Spawn, again bool) {
	by := map[workgraph.Ref]*record.Approval{}
	for i := range spawns {
		ref := spawns[i].Ref
		if _, known := by[ref]; !known {
			r.lock()
			by[ref] = r.approvalFor(ref)
			r.mu.Unlock()
		}
		t.spawnChild(r, &spawns[i], by[ref], again)
	}
	r.lock()
	idle, idleTimer := !r.gone.Load() && r.pending == 0 && r.idle(), r.idleTTL()
	r.mu.Unlock()
	if idle {
		t.evictIdleSoon(r, idleTimer)
	}
}

// spawnChild starts one child; repeated calls start it once. It retries until the child is recorded, turns
// out to be impossible, or is no longer wanted.
func (t *session) spawnChild(r *run, s *workgraph.Spawn, by *record.Approval, again bool) {
	defer t.e.quota.Recorded(r.root, s.Child.ID)
	wait := 10 * time.Millisecond
	for r.wantsChild(s.Child.ID) {
		leave, err := t.e.starts.Enter(t.background, r.namespace)
		if err != nil {
			return
		}
		err = t.startChild(r, s, by, again)
		leave()
		switch {
		case err == nil:
			r.lock()
			if _, wanted := r.children[s.Child.ID]; wanted {
				r.children[s.Child.ID] = true
			}
			stopping := r.State.Stopping()
			if r.early { // it may be left now
				t.pollCommandsSoon()
			}
			r.mu.Unlock()
			if stopping {
				t.stopChild(r, s.Child.ID)
			}
			return
		case errors.Is(err, errUnwanted), errors.Is(err, errPaused), journal.IsFenced(err), errs.ReasonOf(err) == journal.ReasonWriterStopped, t.background.Err() != nil:
			return
		case !transient(err):
			t.childNotStarted(r, s, err)
			return
		}
		t.e.log.WarnContext(t.background, "child not started yet", "err", err, "run_id", r.id, "child", s.Child.ID)
		if !sleep.For(t.background, wait) {
			return
		}
		wait = min(2*wait, 5*time.Second)
		again = true
	}
}

// stopChild stops a child that started after its parent was asked to stop: the stop of the parent may have
// come before there was a child to hear it. After a crash the start of the child is repeated, and so is this.
func (t *session) stopChild(r *run, id string) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := t.e.Stop(t.background, command.StopRequest{Namespace: r.namespace, RunID: id, Reason: workgraph.ReasonParentStopped})
		if !transient(err) || !sleep.For(t.background, wait) {
			return
		}
	}
}

var (
	errUnwanted = errors.New("engine: the child is not wanted any more")
	// errPaused keeps a child from starting. A pause reaches the children that are recorded; this one would
	// miss it.
	errPaused = errors.New("engine: the run is paused")
)

// goOnSpawning returns the children that are to be started now that the run is not paused any more. The
// caller holds r.mu.
func (r *run) goOnSpawning() (list []workgraph.Spawn) {
	if st, _ := r.State.Status(); !r.held || st == workgraph.StatusPaused {
		return nil
	}
	r.held = false
	for _, s := range r.State.Spawns() {
		if recorded, wanted := r.children[s.Child.ID]; wanted && !recorded {
			list = append(list, s)
		}
	}
	return list
}

func (r *run) wantsChild(child string) bool {
	r.lock()
	defer r.mu.Unlock()
	recorded, wanted := r.children[child]
	return wanted && !recorded && !r.gone.Load()
}

// startChild records the run of a spawn.
func (t *session) startChild(r *run, s *workgraph.Spawn, by *record.Approval, again bool) error {
	c := &s.Child
	if again {
		// After a take-over the child is mostly recorded already.
		if _, err := t.e.journal.Head(t.background, r.namespace, c.ID); errs.ReasonOf(err) != journal.ReasonRunNotFound {
			return err
		}
	}
	facts, _ := callScope{r: r}.Var("context")
	if string(facts) == "null" {
		facts = nil
	}
	r.lock()
	budget, allowed := r.allowance(c.Budget)
	r.mu.Unlock()
	req := command.StartRequest{
		// The outcome that asks for the child was checked by prepareChildren.
		Namespace: r.namespace, Graph: c.Graph, Source: program.FromActor, Budget: budget, Input: c.Input, Context: facts, TaskID: c.TaskID, UserID: r.lineage.User, ChatID: r.lineage.Chat,
		ThreadID: r.lineage.Thread, Labels: c.Labels, Priority: r.priority, ID: c.ID, Deadline: r.deadline, RootID: r.root,
		Lineage: record.Lineage{Parent: r.id, Ref: s.Ref, Depth: r.lineage.ChildDepth(c), Delegated: r.lineage.ChildDelegated(c), Approved: by, Asks: r.lineage.Asks, User: r.lineage.User, Chat: r.lineage.Chat,
			Thread: r.lineage.Thread, Maker: r.lineage.Maker, Agent: c.Agent, Workflow: versionOf(c), Within: r.lineage.Cataloged(), Standing: r.lineage.Standing.Below(s.Ref, c)},
		Before: func() error {
			// Under the parent's lock, nothing comes between this check and the start's place in the queue of
			// the writer. A later cancel is written later, and finds the child.
			if recorded, wanted := r.children[c.ID]; !wanted || recorded || r.gone.Load() {
				return errUnwanted
			}
			if st, _ := r.State.Status(); st == workgraph.StatusPaused {
				r.held = true
				return errPaused
			}
			if _, now := r.allowance(c.Budget); now != allowed {
				return errBudgetChanged
			}
			return nil
		}, Lock: wholeLock{r},
	}
	if c.Ref == refSelf {
		req.Graph, req.Source = r.ownGraph(), program.FromCaller
		if c.WorkflowHash != "" {
			if hash, err := req.Graph.Hash(); err != nil || hash != c.WorkflowHash {
				return errs.New(errs.FailedPrecondition, workgraph.ReasonApprovalVoid, "the run's own graph has changed since the child was requested")
			}
		}
	}
	if req.TaskID == "" && r.task != "" {
		req.TaskID, req.EpicID, req.Lineage.Borrowed = r.task, r.epic, true
	}
	if req.TaskID == "" {
		req.Lineage.Payer = r.payer.Load()
	}
	// The span of the call that asked for the child, whichever executor made that call.
	caller := tracing.Span(outbox.Trace{Parent: c.TraceParent, State: c.TraceState})
	if !caller.IsValid() {
		caller = r.trace
	}
	_, err := t.e.begin(trace.ContextWithRemoteSpanContext(t.background, caller), t, req)
	if errs.ReasonOf(err) == journal.ReasonRunExists {
		return nil
	}
	return err
}

// childNotStarted ends the wait of the run for a child that cannot be started.
func (t *session) childNotStarted(r *run, s *workgraph.Spawn, cause error) {
	e := errs.From(cause)
	slot := workgraph.ChildSlot{RunID: s.Child.ID, Status: workgraph.StatusFailed, Reason: e.Reason,
		Error: workgraph.Errorf(workgraph.Permanent, e.Reason, "the child was not started: %s", e.Message)}
	if faults, ok := errors.AsType[workgraph.Faults](cause); ok {
		slot.Reason = ReasonChildInvalid
		slot.Error = workgraph.Errorf(workgraph.Permanent, ReasonChildInvalid, "the child was not started: %v", faults)
	}
	leave, err := r.step(t.background)
	if err != nil {
		return
	}
	defer leave()
	delete(r.children, s.Child.ID)
	err = r.advance(workgraph.ChildEnded{Ref: s.Ref, Slot: slot, Now: time.Now().UTC()}, extra{})
	if err != nil && !errors.Is(err, errDropped) && !errors.Is(err, workgraph.ErrStale) && !errors.Is(err, workgraph.ErrEnded) {
		t.e.log.ErrorContext(t.background, "end of a child refused", "err", err, "run_id", r.id, "child", s.Child.ID)
	}
}

// prepareExpansion checks the sub-graph against the actors of the namespace, and adds their effects.
// References to nodes around it are checked when it is inserted.
func (t *session) prepareExpansion(ctx context.Context, a *attempt, out *workgraph.Outcome) *workgraph.Error {
	g := out.Expand.Clone()
	most := t.e.cfg.MaxNodes
	if n := t.e.quotas.FanOut(a.run.namespace); n > 0 {
		most = min(most, n)
	}
	if len(g.Nodes) > most {
		return workgraph.Errorf(workgraph.Permanent, workgraph.ReasonExpandRefused, "the sub-graph has %d nodes, the limit is %d", len(g.Nodes), most)
	}
	var known program.ActorSet
	err := t.untilAnswered(ctx, func() (err error) {
		known, err = t.e.programs.KnownActors(ctx, a.run.namespace, program.ActorsOf(g), program.FromCaller)
		return err
	})
	if err != nil {
		return workgraph.Errorf(workgraph.Retryable, errs.ReasonOf(err), "the sub-graph's actors cannot be looked up: %v", errs.From(err).Message)
	}
	leave, err := t.e.computing.Enter(ctx, a.run.namespace)
	if err != nil {
		return notPerformed(err)
	}
	effects, faults, err := workgraph.ValidatePart(ctx, g, known)
	leave()
	if err != nil {
		return notPerformed(err)
	}
	if len(faults) > 0 {
		return workgraph.RefusedExpansion(t.e.programs.Hints(ctx, a.run.namespace, g, faults))
	}
	for i := range g.Nodes {
		g.Nodes[i].Effect = effects[i]
	}
	out.Expand = g
	return nil
}
