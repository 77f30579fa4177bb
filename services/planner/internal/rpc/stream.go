package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/author"
	"github.com/epigraph-run/epigraph/services/planner/internal/early"
	"github.com/epigraph-run/epigraph/workgraph"
)

// UseExecutor sets what runs plans while they are written. It must be called before requests are served.
func (s *Server) UseExecutor(c executorv1.ExecutorServiceClient) { s.executor = c }

// StreamPlan has a model write a plan, tells what is certain of it meanwhile, and runs it if it is asked to.
func (s *Server) StreamPlan(req *plannerv1.StreamPlanRequest, stream grpc.ServerStreamingServer[plannerv1.StreamPlanResponse]) error {
	if req.GetRun() != nil && s.executor == nil {
		return errs.New(errs.FailedPrecondition, "PLAN_RUN_NOT_CONFIGURED", "this planner reaches no executor, so that it cannot run a plan while it is written").
			Hint("set upstream.executor of the planner, or create the plan and start it")
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	order, err := s.orderOf(ctx, req.GetPlan())
	if err != nil {
		return err
	}
	w := &writing{server: s, req: req, fail: cancel, events: &events{wake: make(chan struct{}, 1)}}
	if req.GetRun() != nil {
		w.executor = &executor{client: s.executor, how: req.GetRun()}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- w.run(ctx, s.author, order)
	}()
	for {
		select {
		case <-w.events.wake:
			if err := w.events.send(stream); err != nil {
				cancel(err)
				<-ended
				return err
			}
		case err := <-ended:
			if sent := w.events.send(stream); sent != nil && err == nil {
				return sent
			}
			return err
		}
	}
}

// writing is the plan of one request while it is written. It implements author.Listener.
type writing struct {
	server   *Server
	req      *plannerv1.StreamPlanRequest
	executor *executor // nil without a run
	events   *events
	fail     context.CancelCauseFunc
	launch   *early.Launch // nil before the run begins
}

var _ author.Listener = (*writing)(nil)

// errExisting ends an authoring that an earlier request has done.
var errExisting = errors.New("the run was started by an earlier request")

// run writes the plan, and completes or cancels its run.
func (w *writing) run(ctx context.Context, a *author.Author, order author.Order) error {
	made, report, err := a.Stream(ctx, order, w)
	traced(ctx, report)
	if errors.Is(err, errExisting) {
		return nil
	}
	var result *plannerv1.CreatePlanResponse
	if err == nil {
		result, err = created(made, report)
	}
	if err == nil && made.Graph != nil && w.launch != nil {
		if err = w.launch.Finish(ctx, made.Graph); err != nil {
			err = fmt.Errorf("complete run: %w", err)
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if w.launch != nil && (err != nil || made.Graph == nil) {
		w.launch.Cancel(ctx, reason(err, report))
	}
	if err != nil {
		return err
	}
	w.events.add(&plannerv1.StreamPlanResponse{Event: &plannerv1.StreamPlanResponse_Result{Result: result}})
	return nil
}

// reason says why a run gets no plan, for readers of its history.
func reason(err error, r author.Report) string {
	switch {
	case err == nil:
		return "no plan came (" + strings.ToLower(strings.ReplaceAll(string(r.End), "_", " ")) + "): " + r.Message
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "the caller went away before its plan was complete"
	}
	return "the plan was not completed: " + errs.From(err).Message
}

// Begin implements author.Listener.
func (w *writing) Begin(ctx context.Context, limit time.Duration) error {
	if w.executor == nil {
		return nil
	}
	mark, err := w.mark()
	if err != nil {
		return err
	}
	name := w.req.GetPlan().GetName()
	if name == "" {
		name = "plan"
	}
	l, err := early.Begin(ctx, w.executor, name, mark, limit, w.batch, w.fail)
	if err != nil {
		return err
	}
	run := l.Run()
	w.events.add(&plannerv1.StreamPlanResponse{Event: &plannerv1.StreamPlanResponse_Run{Run: &plannerv1.PlanRunStarted{RunId: run.ID, Existing: run.Existing}}})
	if run.Existing {
		return errExisting
	}
	w.launch = l
	return nil
}

// mark identifies what is asked, so that a request_id does not stand for two plans.
func (w *writing) mark() (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(w.req)
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

// Text implements author.Listener.
func (w *writing) Text(round int, text string) { w.events.text(int32(round), text) } //nolint:gosec // a few rounds

// Round implements author.Listener.
func (w *writing) Round(r *author.Round) {
	w.events.add(&plannerv1.StreamPlanResponse{Event: &plannerv1.StreamPlanResponse_Round{Round: roundOf(r)}})
}

// Usable implements author.Listener.
func (w *writing) Usable(ctx context.Context, nodes []workgraph.Node) ([]bool, error) {
	if w.launch != nil {
		return w.launch.Usable(ctx, nodes)
	}
	out := make([]bool, len(nodes))
	for i := range out {
		out[i] = true
	}
	return out, nil
}

// Part implements author.Listener.
func (w *writing) Part(p author.Part) {
	if w.launch != nil {
		w.launch.Add(p.Nodes, p.Edges)
		return
	}
	w.batch(early.Batch{Nodes: p.Nodes, Edges: p.Edges})
}

// Check implements author.Listener.
func (w *writing) Check(ctx context.Context, g *workgraph.Graph) ([]workgraph.Fault, error) {
	if w.launch == nil {
		return w.server.startable(ctx, g)
	}
	return w.launch.Check(ctx, g)
}

func (w *writing) batch(b early.Batch) {
	g, err := graphpb.ToProto(&workgraph.Graph{Nodes: b.Nodes, Edges: b.Edges})
	if err != nil {
		return // compiled nodes always have a wire form
	}
	w.events.add(&plannerv1.StreamPlanResponse{Event: &plannerv1.StreamPlanResponse_Part{
		Part: &plannerv1.PlanPart{Nodes: g.GetNodes(), Edges: g.GetEdges(), Started: b.Started, Waits: b.Waits}}})
}

// events wait for the caller. Pieces of text that wait are put together, so that a slow caller holds up
// neither the model nor the run. They come to no more than the answers.
type events struct {
	wake chan struct{}

	mu   sync.Mutex
	list []*plannerv1.StreamPlanResponse
	// said is the text at the end of the list, of a round.
	said  strings.Builder
	round int32
}

func (e *events) add(m *plannerv1.StreamPlanResponse) {
	e.mu.Lock()
	e.flush()
	e.list = append(e.list, m)
	e.mu.Unlock()
	e.notify()
}

func (e *events) text(round int32, text string) {
	e.mu.Lock()
	if round != e.round {
		e.flush()
		e.round = round
	}
	e.said.WriteString(text)
	e.mu.Unlock()
	e.notify()
}

// flush makes an event of the text that waits.
func (e *events) flush() {
	if e.said.Len() > 0 {
		e.list = append(e.list, &plannerv1.StreamPlanResponse{Event: &plannerv1.StreamPlanResponse_Text{Text: &plannerv1.PlanText{Round: e.round, Text: e.said.String()}}})
		e.said.Reset()
	}
}

func (e *events) notify() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// send sends everything that waits.
func (e *events) send(stream grpc.ServerStreamingServer[plannerv1.StreamPlanResponse]) error {
	e.mu.Lock()
	e.flush()
	list := e.list
	e.list = nil
	e.mu.Unlock()
	for _, m := range list {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}
