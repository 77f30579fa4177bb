// Package flowtest owns the running of tests of workflows: each case on a suite of its own in this process,
// with scripted models, and with stand-ins for actors that would do something to the world. It must not know
// how its caller shows what came of them.
package flowtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/cassette"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/workflowfiles"
	"github.com/epigraph-run/epigraph/workflow"
)

// DefaultTimeout is how long a case may take that says nothing else.
const DefaultTimeout = 2 * time.Minute

var profileName = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?$`)

// opening bounds how long the suite of a case takes to begin and to end. It is none of the case's own time.
const opening = 2 * time.Minute

// Suite is a file of tests with the workflow that they are about.
type Suite struct {
	// Dir is that of the file: cassettes are looked for there.
	Dir        string
	Definition *workflow.Definition
	Graph      *graphv1.Graph
	// Stored are the texts of the workflows that steps name, definitions or graphs, by NAME@VERSION or
	// NAME@ALIAS.
	Stored map[string]string
	// Record has the model that the environment names answer, and writes cassettes. IgnoreEnv are variables
	// that are no settings of a server.
	Record    bool
	IgnoreEnv []string
}

// Result is what came of a case.
type Result struct {
	Name string
	// Failures are the differences from what was expected, none if the case passed.
	Failures []string
	Took     time.Duration
}

// Run runs a case. It never panics for what a workflow does; what keeps it from running is a failure.
func (s *Suite) Run(ctx context.Context, c *workflow.TestCase) Result {
	began := time.Now()
	r := Result{Name: c.Name}
	w := &world{suite: s, c: c}
	seen, err := w.play(ctx)
	if err != nil {
		r.Failures = append(r.Failures, message(err))
	}
	r.Failures = append(r.Failures, w.refusals()...)
	if seen != nil {
		r.Failures = append(r.Failures, compare(c, seen, w.calls())...)
		r.Failures = append(r.Failures, w.unsaid()...)
	}
	r.Took = time.Since(began)
	return r
}

// message is an error for people, with everything that the server tells of it.
func message(err error) string {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return err.Error()
	}
	lines := []string{e.Message}
	for _, v := range e.Violations {
		lines = append(lines, strings.TrimSpace(v.Field+": "+v.Message))
	}
	if h := e.HintText(); h != "" {
		lines = append(lines, "help: "+h)
	}
	return strings.Join(lines, "\n")
}

// world is what one case runs in.
type world struct {
	suite *Suite
	c     *workflow.TestCase

	mu      sync.Mutex
	refused []string
	called  []call
	// asked are the open questions for which the case has no answer.
	asked []string
	// counts is how often something was asked for, by what it is.
	counts map[string]int
}

// refuse notes something that a test must not do, once.
func (w *world) refuse(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	for _, was := range w.refused {
		if was == text {
			return
		}
	}
	w.refused = append(w.refused, text)
}

func (w *world) refusals() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// next counts how often something was asked for before, by its name.
func (w *world) next(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts = map[string]int{}
	}
	n := w.counts[what]
	w.counts[what]++
	return n
}

// play runs the case on a suite of its own. What was seen is nil unless the run began.
func (w *world) play(ctx context.Context) (_ *seen, err error) {
	dir, err := os.MkdirTemp("", "epigraph-test-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg, stopModel, err := w.config(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopModel()) }()
	octx, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	d, err := stack.OpenDev(octx, stack.DevOptions{DataDir: dir, HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Config: cfg, Actors: w.actors()})
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	sctx, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	go func() { served <- d.Run(sctx) }()
	defer func() { stopServing(); err = errors.Join(err, <-served) }()
	if err := d.Ready(octx); err != nil {
		return nil, err
	}
	conn, err := dial(d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := w.store(octx, registryv1.NewWorkflowServiceClient(conn)); err != nil {
		return nil, err
	}
	return w.run(ctx, executorv1.NewExecutorServiceClient(conn))
}

// config is the configuration of the suite. Nothing of the environment is in it, except while a model is
// recorded.
func (w *world) config(dir string) (cfg stack.Config, stop func() error, err error) {
	stop = func() error { return nil }
	cfg = stack.DevConfig()
	cfg.Telemetry.LogLevel = "error"
	cfg.Executor.RiverUI = false
	src := conf.Sources{Env: []string{}}
	if w.suite.Record {
		src.Env, src.IgnoreEnv = nil, w.suite.IgnoreEnv
	}
	if err := stack.Load(&cfg, src); err != nil {
		return cfg, stop, err
	}
	tape := &cfg.Models.Cassette
	if w.c.Cassette != "" {
		tape.Mode, tape.Path = cassette.Replay, filepath.Join(w.suite.Dir, w.c.Cassette)
		if w.suite.Record {
			tape.Mode = cassette.Record
			if err := os.Remove(tape.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return cfg, stop, err
			}
		}
	}
	if w.suite.Record && w.c.Cassette != "" {
		return cfg, stop, nil
	}
	model := fakellm.New(fakellm.Script{Answer: w.answer})
	base, err := model.Listen("127.0.0.1:0")
	if err != nil {
		return cfg, stop, err
	}
	for _, profile := range append(w.suite.Definition.Uses().Models, cfg.Models.Default) {
		if !profileName.MatchString(profile) { // the name of a model, and not of a profile
			continue
		}
		cfg.Models.Change(profile, func(p *llm.Profile) {
			p.Provider, p.Model, p.BaseURL, p.APIKey, p.PriceKey = "openai", "scripted-1", base, conf.NewSecret("scripted"), "scripted"
		})
	}
	return cfg, model.Close, nil
}

// store puts the workflows that steps name into the catalog, of each the older versions first.
func (w *world) store(ctx context.Context, c registryv1.WorkflowServiceClient) error {
	var files []workflowfiles.File
	for ref := range w.suite.Stored {
		files = append(files, workflowfiles.Named(ref))
	}
	slices.SortFunc(files, workflowfiles.File.Compare)
	for _, f := range files {
		ref := f.Path
		n, err := workflowfiles.Keep(ctx, workflowfiles.Client{WorkflowServiceClient: c}, f, w.suite.Stored[ref])
		if err == nil && f.Version == 0 {
			_, alias, _ := strings.Cut(ref, "@")
			_, err = c.SetWorkflowAlias(ctx, &registryv1.SetWorkflowAliasRequest{Workflow: f.Slug, Alias: alias, Versions: []*registryv1.WorkflowWeight{{Version: n}}})
		}
		if err != nil {
			return fmt.Errorf("workflow %s of the test: %w", ref, err)
		}
	}
	return nil
}

// request starts the run of the case.
func (w *world) request() *executorv1.StartRunRequest {
	req := &executorv1.StartRunRequest{Graph: w.suite.Graph, Named: graphpb.PayloadMap(w.c.Inputs), UserId: w.c.User}
	b := w.c.Budget
	if b.USD == nil && b.Tokens == nil {
		b = w.suite.Definition.Budget
	}
	if b.USD != nil || b.Tokens != nil {
		req.Budget = &executorv1.RunBudget{NanoUsd: b.NanoUSD(), Tokens: b.Tokens}
	}
	req.Timeout = durationpb.New(w.limit())
	return req
}

func (w *world) limit() time.Duration {
	if w.c.Timeout > 0 {
		return w.c.Timeout
	}
	return DefaultTimeout
}

// seen is what is known of a run when its case is over.
type seen struct {
	run *executorv1.Run
	// state is that of the run, without its prefix.
	state  string
	visits []*executorv1.Visit
	// found are the visits of the steps that the case names, and spoke who spoke in teams, by paths.
	found map[string][]*executorv1.Visit
	spoke map[string][]string
	// asked are the questions that nobody answered.
	asked []string
}

// pause is how often a run is looked at.
const pause = 20 * time.Millisecond

// run starts the run, answers its questions, and looks at what has come of it.
func (w *world) run(ctx context.Context, x executorv1.ExecutorServiceClient) (*seen, error) {
	ctx, cancel := context.WithTimeout(ctx, w.limit()+opening)
	defer cancel()
	r, err := x.StartRun(ctx, w.request())
	if errs.ReasonOf(err) == "INPUT_INVALID" { // a case may expect it
		return refused(errs.From(err)), nil
	}
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if r, err = x.GetRun(ctx, &executorv1.GetRunRequest{RunId: r.GetId()}); err != nil {
			return nil, err
		}
		over, err := w.over(ctx, x, r)
		if err != nil {
			return nil, err
		}
		if over {
			return w.look(ctx, x, r)
		}
		select {
		case <-ctx.Done():
			return nil, errs.New(errs.InvalidArgument, "TEST_TIMEOUT", "the run did not end within %s", w.limit()).Hint("`timeout` gives the case more")
		case <-tick.C:
		}
	}
}

// refused is what is seen of a case whose inputs are refused: a run that failed before any step.
func refused(e *errs.Error) *seen {
	text := e.Message
	for _, v := range e.Violations {
		text += "; " + v.Message
	}
	return &seen{run: &executorv1.Run{State: executorv1.RunState_RUN_STATE_FAILED, Error: &executorv1.RunError{Reason: e.Reason, Message: text}}, state: "FAILED"}
}

// over reports whether nothing more can happen: the run has ended or is paused, or waits for answers that
// the case does not have.
func (w *world) over(ctx context.Context, x executorv1.ExecutorServiceClient, r *executorv1.Run) (bool, error) {
	switch r.GetState() {
	case executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED, executorv1.RunState_RUN_STATE_CANCELED:
		return r.GetUsage().GetUnbookedAttempts() == 0, nil // its cost is known
	case executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_QUARANTINED:
		return true, nil
	}
	if r.GetOpenInterrupts() == 0 {
		return false, nil
	}
	list, err := x.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: r.GetId(), PageSize: 1000})
	if err != nil {
		return false, err
	}
	answered := 0
	w.asked = nil
	for _, q := range list.GetInterrupts() {
		asker := strings.TrimPrefix(q.GetVisit().GetNodeId(), memberPart) // a member of a team
		answers := w.c.Answers[asker]
		if len(answers) == 0 {
			w.asked = append(w.asked, fmt.Sprintf("%q asks %s", asker, clip(string(raw(q.GetPrompt())))))
			continue
		}
		answered++
		n := w.next("question " + asker)
		if err := answer(ctx, x, q, answers[min(n, len(answers)-1)]); err != nil {
			return false, fmt.Errorf("the answer to %q: %w", asker, err)
		}
	}
	return answered == 0 && len(list.GetInterrupts()) > 0 && r.GetState() == executorv1.RunState_RUN_STATE_WAITING, nil
}

// answer answers a question. Approvals are answered by true and false.
func answer(ctx context.Context, x executorv1.ExecutorServiceClient, q *executorv1.Interrupt, with json.RawMessage) error {
	req := &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), By: "test"}
	if q.GetApprove() == nil {
		req.Answer = graphpb.Payload(with)
	} else if req.Decision = executorv1.Decision_DECISION_REJECTED; string(with) == "true" {
		req.Decision = executorv1.Decision_DECISION_APPROVED
	}
	_, err := x.AnswerInterrupt(ctx, req)
	return err
}

// look reads what the case wants to know of a run and of those below it.
func (w *world) look(ctx context.Context, x executorv1.ExecutorServiceClient, r *executorv1.Run) (*seen, error) {
	s := &seen{run: r, state: strings.TrimPrefix(r.GetState().String(), "RUN_STATE_"), asked: w.asked}
	if err := s.look(ctx, &tree{x: x, root: &node{id: r.GetId()}}, &w.c.Expect); err != nil {
		return nil, err
	}
	return s, nil
}

// dial connects to a suite of this process.
func dial(d *stack.Dev) (*grpc.ClientConn, error) { return connect(d.GRPCAddr(), d.APIKey()) }
