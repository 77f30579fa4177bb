package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type eventsCmd struct {
	Epic     string   `help:"Events of this epic and its tasks." placeholder:"ID"`
	Workflow string   `help:"Events of this workflow." placeholder:"SLUG"`
	OfRun    string   `help:"Events of this run, and of what was changed within it." name:"run" placeholder:"ID"`
	Thread   string   `help:"Events of this thread." placeholder:"ID"`
	Kinds    []string `help:"Events of these kinds, like task_updated." name:"kind" placeholder:"KIND"`
	From     *int64   `help:"Events behind this cursor; 0 begins with the oldest that is kept. Without it: all that are kept, or with --follow what happens from now on." placeholder:"CURSOR"`
	Follow   bool     `help:"Go on with what happens, until Ctrl-C." short:"f"`
}

// Help says how to go on.
func (eventsCmd) Help() string {
	return `The first column is the cursor: a command that goes on behind the last one misses nothing and repeats nothing.

    epigraph events --epic ep_01… --follow
    epigraph events --from 1234 --json`
}

// Run shows the feed.
func (c *eventsCmd) Run(e *env) error {
	if c.Follow {
		return c.follow(e)
	}
	var after int64
	if c.From != nil {
		after = *c.From
	}
	for end := false; !end; {
		err := e.with(func(ctx context.Context, s *services) error {
			r, err := s.registry.ListEvents(ctx, &registryv1.ListEventsRequest{
				After: after, EpicId: c.Epic, WorkflowSlug: c.Workflow, RunId: c.OfRun, ThreadId: c.Thread, Kinds: c.Kinds, PageSize: 200,
			})
			if err != nil {
				return c.knownKinds(err)
			}
			after, end = r.GetCursor(), r.GetEnd()
			for _, ev := range r.GetEvents() {
				if err := c.show(e, ev); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// follow shows what happens. A stream that breaks is resumed behind the last event.
func (c *eventsCmd) follow(e *env) error {
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	after := c.From
	for tries := 0; ; tries++ {
		stream, err := s.registry.WatchEvents(e.ctx, &registryv1.WatchEventsRequest{After: after, EpicId: c.Epic, WorkflowSlug: c.Workflow, RunId: c.OfRun, ThreadId: c.Thread, Kinds: c.Kinds})
		for err == nil {
			var ev *registryv1.FeedEvent
			if ev, err = stream.Recv(); err != nil {
				break
			}
			tries = 0
			cursor := ev.GetSeq()
			if alive := ev.GetKeepAlive(); alive != nil {
				cursor = alive.GetCursor()
			} else if err := c.show(e, ev); err != nil {
				return err
			}
			after = &cursor
		}
		if e.ctx.Err() != nil {
			return e.ctx.Err()
		}
		if !errs.Is(err, errs.Unavailable) || tries == 10 {
			return c.knownKinds(err)
		}
		select {
		case <-time.After(min(100*time.Millisecond<<tries, 3*time.Second)):
		case <-e.ctx.Done():
			return e.ctx.Err()
		}
	}
}

// knownKinds adds to the refusal of a kind of events which one was meant, or which there are.
func (c *eventsCmd) knownKinds(err error) error {
	if errs.ReasonOf(err) != "EVENT_KIND_UNKNOWN" {
		return err
	}
	fields := (&registryv1.FeedEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("event").Fields()
	var all []string
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); name != "keep_alive" {
			all = append(all, name)
		}
	}
	for _, given := range c.Kinds {
		for _, name := range all {
			if d, ok := near.Within(given, name, 3); ok && d > 0 && !slices.Contains(all, given) {
				return errs.From(err).Hint("did you mean " + name + "?")
			}
		}
	}
	return errs.From(err).Hint("there are " + strings.Join(all, ", "))
}

// show prints an event as one line.
func (c *eventsCmd) show(e *env, ev *registryv1.FeedEvent) error {
	if e.json {
		return printJSON(e.io.Out, ev)
	}
	_, err := fmt.Fprintf(e.io.Out, "%s  %s  %s\n", strconv.FormatInt(ev.GetSeq(), 10), ev.GetTime().AsTime().Format(time.RFC3339), eventLine(ev))
	return err
}

// eventLine says what happened.
func eventLine(ev *registryv1.FeedEvent) string {
	name := "event"
	if f := ev.ProtoReflect().WhichOneof(ev.ProtoReflect().Descriptor().Oneofs().ByName("event")); f != nil {
		name = string(f.Name())
	}
	epic := func(x *registryv1.Epic) string {
		return x.GetId() + "  " + view.Word(x.GetState().String(), "EPIC_STATE_") + "  " + view.OneLine(x.GetTitle(), 60)
	}
	task := func(x *registryv1.Task) string {
		return x.GetId() + "  " + view.Word(x.GetState().String(), "TASK_STATE_") + "  " + view.OneLine(x.GetTitle(), 60)
	}
	what := ev.GetEpicId()
	switch x := ev.GetEvent().(type) {
	case *registryv1.FeedEvent_EpicCreated:
		what = epic(x.EpicCreated)
	case *registryv1.FeedEvent_EpicUpdated:
		what = epic(x.EpicUpdated)
	case *registryv1.FeedEvent_TaskCreated:
		what = task(x.TaskCreated)
	case *registryv1.FeedEvent_TaskUpdated:
		what = task(x.TaskUpdated)
	case *registryv1.FeedEvent_TaskDeleted:
		what = x.TaskDeleted.GetTaskId()
	case *registryv1.FeedEvent_UsageBooked:
		what = view.Plural(len(x.UsageBooked.GetEntries()), "call") + "  " + ev.GetEpicId()
	case *registryv1.FeedEvent_BudgetReached:
		what = x.BudgetReached.GetLevel() + " " + x.BudgetReached.GetResourceId()
	case *registryv1.FeedEvent_PriceCreated:
		what = x.PriceCreated.GetProvider() + "/" + x.PriceCreated.GetModel()
	case *registryv1.FeedEvent_RunEnded:
		what = runLine(x.RunEnded)
	case *registryv1.FeedEvent_RunStarted:
		what = runLine(x.RunStarted)
	case *registryv1.FeedEvent_RunPaused:
		what = runLine(x.RunPaused)
	case *registryv1.FeedEvent_RunResumed:
		what = runLine(x.RunResumed)
	case *registryv1.FeedEvent_RunAmended:
		what = runLine(x.RunAmended)
	case *registryv1.FeedEvent_RunDeleted:
		what = runLine(x.RunDeleted)
		if n := x.RunDeleted.GetRuns(); n > 1 {
			what += "  " + view.Plural(int(n), "run")
		}
	case *registryv1.FeedEvent_ThreadCreated:
		what = threadLine(x.ThreadCreated)
	case *registryv1.FeedEvent_ThreadMessage:
		what = threadLine(x.ThreadMessage)
	case *registryv1.FeedEvent_ThreadDeleted:
		what = threadLine(x.ThreadDeleted)
	case *registryv1.FeedEvent_WorkflowPublished:
		what = x.WorkflowPublished.GetSlug() + "  " + view.Word(x.WorkflowPublished.GetChange().String(), "PUBLICATION_")
	case *registryv1.FeedEvent_MemoryWritten:
		what = x.MemoryWritten.GetMemoryId() + "  " + view.OneLine(x.MemoryWritten.GetScope(), 40) + "  " + view.OneLine(x.MemoryWritten.GetKey(), 60)
	case *registryv1.FeedEvent_MemoryDeleted:
		what = strings.Join(x.MemoryDeleted.GetMemoryIds(), " ")
	}
	return name + "  " + what
}

func threadLine(c *registryv1.ThreadChanged) string {
	out := c.GetThreadId()
	if c.GetSequence() > 0 {
		out += "  " + strconv.FormatInt(c.GetSequence(), 10)
	}
	for _, text := range []string{c.GetRole(), c.GetAgent(), c.GetTitle()} {
		if text != "" {
			out += "  " + view.OneLine(text, 60)
		}
	}
	return out
}

func runLine(r *registryv1.RunChanged) string {
	out := r.GetRunId()
	if r.GetWorkflow() != "" {
		out += "  " + r.GetWorkflow()
	}
	if r.GetTaskId() != "" {
		out += "  " + r.GetTaskId()
	}
	if r.GetOutcome() != registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_UNSPECIFIED {
		out += "  " + view.Word(r.GetOutcome().String(), "WORKFLOW_RUN_OUTCOME_")
	}
	if r.GetReason() != "" {
		out += "  " + r.GetReason()
	}
	return out
}
