package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// runStart are the flags of every command that starts a run of something new.
type runStart struct {
	Args        []string          `help:"Positional input, as JSON or text." name:"arg" placeholder:"VALUE" sep:"none"`
	Named       map[string]string `help:"Named input, as JSON or text." name:"input" placeholder:"NAME=VALUE"`
	Context     string            `help:"Context for conditions, as JSON." placeholder:"JSON"`
	Attachments []string          `help:"Document for the run, read as text." name:"attach" placeholder:"FILE" type:"existingfile"`

	Task        string            `help:"Task that the run works on." placeholder:"ID" xor:"task"`
	Epic        string            `help:"Create a task for the run in this epic: an id, or the title of an open epic, which is created if there is none." placeholder:"ID|TITLE" xor:"task"`
	User        string            `help:"User for whom it runs." placeholder:"ID"`
	Chat        string            `help:"Conversation that starts the run." placeholder:"ID"`
	Labels      map[string]string `help:"Label to filter by." name:"label" placeholder:"NAME=VALUE"`
	Metadata    map[string]string `help:"Metadata, returned as given." name:"metadata" placeholder:"NAME=VALUE"`
	BusinessKey string            `help:"Business key; at most one open run has it." placeholder:"KEY"`
	RequestID   string            `help:"Make the command repeatable: the same id starts one run." placeholder:"ID"`
	Priority    int32             `help:"Priority from 1 (first) to 4, for runs that wait for room." placeholder:"N"`
	Deadline    time.Duration     `help:"End the run as failed this long after its start." placeholder:"DURATION"`
	runBudget
	runWebhooks

	made    *registryv1.Task // the task that was made for the run, if one was
	newEpic bool             // whether its epic was made with it
}

// request is built from the flags alone, so that a wrong flag is reported before anything is read or asked.
func (f *runStart) request() (*executorv1.StartRunRequest, error) {
	req := &executorv1.StartRunRequest{
		TaskId: f.Task, UserId: f.User, ChatId: f.Chat, Labels: f.Labels, Metadata: f.Metadata, BusinessKey: f.BusinessKey,
		RequestId: f.RequestID, Named: payloads(f.Named), Priority: f.Priority, Webhooks: f.runWebhooks.messages(),
	}
	for _, a := range f.Args {
		req.Args = append(req.Args, &graphv1.Payload{Json: value(a)})
	}
	if f.Context != "" {
		if !json.Valid([]byte(f.Context)) {
			return nil, usage(errs.New(errs.InvalidArgument, "CONTEXT_INVALID", "--context is not JSON"))
		}
		req.Context = &graphv1.Payload{Json: []byte(f.Context)}
	}
	if f.Deadline > 0 {
		req.Timeout = durationpb.New(f.Deadline)
	}
	var err error
	req.Budget, err = f.runBudget.message()
	return req, err
}

// stated reports whether any of the flags was given; req is what request returned.
func (f *runStart) stated(req *executorv1.StartRunRequest) bool {
	return f.Epic != "" || len(f.Attachments)+len(f.WebhookOn) > 0 || proto.Size(req) > 0
}

// attach adds the documents to a request.
func (f *runStart) attach(e *env, req *executorv1.StartRunRequest) error {
	for _, name := range f.Attachments {
		body, err := e.readText(name)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		req.Attachments = append(req.Attachments, &executorv1.Attachment{Id: name, MediaType: "text/plain", Content: &graphv1.Payload{Json: raw}})
	}
	return nil
}

// book makes the task that --epic asks for, and has the run work on it. undo removes it again if the start of
// the run was refused with err; one that may have started all the same keeps it.
func (f *runStart) book(ctx context.Context, s *services, req *executorv1.StartRunRequest, title string) (undo func(ctx context.Context, err error), err error) {
	undo = func(context.Context, error) {}
	if f.Epic == "" {
		return undo, nil
	}
	made, remove, err := f.task(ctx, s, title)
	if err != nil {
		return undo, err
	}
	f.made, req.TaskId = made, made.GetId()
	return func(ctx context.Context, err error) {
		kind := errs.KindOf(err)
		_, nothing := errors.AsType[exit](err) // to be started
		if nothing || !slices.Contains([]errs.Kind{errs.Internal, errs.Unavailable, errs.DeadlineExceeded, errs.Canceled}, kind) {
			remove(ctx)
		}
	}, nil
}

// planRun is a start in the form of a plan that is run while it is written.
func planRun(r *executorv1.StartRunRequest) *plannerv1.PlanRun {
	return &plannerv1.PlanRun{
		Args: r.GetArgs(), Named: r.GetNamed(), TaskId: r.GetTaskId(), UserId: r.GetUserId(), ChatId: r.GetChatId(), Context: r.GetContext(),
		Attachments: r.GetAttachments(), Metadata: r.GetMetadata(), Labels: r.GetLabels(), BusinessKey: r.GetBusinessKey(), RequestId: r.GetRequestId(),
		Priority: r.GetPriority(), Timeout: r.GetTimeout(), Budget: r.GetBudget(), Webhooks: r.GetWebhooks(),
	}
}

// show shows a run that was started: its id alone if it is detached, and else all that happens in it.
func (f *runStart) show(e *env, s *services, r *executorv1.Run, g *graphv1.Graph, detach bool) error {
	if detach {
		if f.made != nil && !e.json { // the output is the run alone, for scripts
			e.note("%s", f.paysFrom(r))
		}
		return e.print(r, func() string { return r.GetId() + "\n" })
	}
	if !e.json {
		if r.GetTaskId() != "" {
			_ = e.say(f.paysFrom(r) + "\n")
		}
		_ = e.say(fmt.Sprintf("%s  %s  %s\n", e.io.style().Bold(r.GetId()), view.OneLine(r.GetGraphName(), 60), view.Plural(len(g.GetNodes()), "node")))
	}
	return e.watch(s, r.GetId(), g, 0, false)
}
