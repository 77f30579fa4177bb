// Package planner is the service that turns what a model wrote into a graph that can run. It is stateless:
// any number of replicas may serve, and none knows another.
package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/providers"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/plan"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/author"
	"github.com/epigraph-run/epigraph/services/planner/internal/restate"
	"github.com/epigraph-run/epigraph/services/planner/internal/rpc"
	"github.com/epigraph-run/epigraph/services/planner/internal/rpc/accounts"
)

// Config bounds what one request may ask for.
type Config struct {
	// MaxTextBytes bounds the text of a plan; the rest is not read, and the answer says so.
	MaxTextBytes int `conf:"max_text_bytes" help:"maximum size of the text of a plan, in bytes"`
	// MaxProblems bounds the problems of a plan.
	MaxProblems int `conf:"max_problems" help:"maximum number of problems in a plan"`
	// MaxEdges bounds the dependencies of a plan.
	MaxEdges int `conf:"max_edges" help:"maximum number of dependencies in a plan"`
	// Restate says which model restates plans, if any.
	Restate restate.Config `conf:"restate"`
	// Author says which model writes plans, and within which limits.
	Author author.Config `conf:"author"`
	// Models are the models that may be asked. They are configured for all services at once.
	Models providers.Config `conf:"-"`
}

// DefaultConfig is what suits plans that models write.
func DefaultConfig() Config {
	return Config{
		MaxTextBytes: 1 << 20, MaxProblems: 10_000, MaxEdges: 100_000, Restate: restate.DefaultConfig(),
		Author: author.DefaultConfig(), Models: providers.DefaultConfig(),
	}
}

// Validate reports every bound that is not positive, and every fault in the settings of the model.
func (c Config) Validate() error {
	var errList []error
	for _, f := range []struct {
		name  string
		value int
	}{{"max_text_bytes", c.MaxTextBytes}, {"max_problems", c.MaxProblems}, {"max_edges", c.MaxEdges}} {
		if f.value <= 0 {
			errList = append(errList, errors.New("planner."+f.name+" must be positive"))
		}
	}
	if err := c.Restate.Validate(); err != nil {
		errList = append(errList, fmt.Errorf("planner.restate: %w", err))
	}
	if err := c.Author.Validate(); err != nil {
		errList = append(errList, fmt.Errorf("planner.author: %w", err))
	}
	if err := c.Models.Validate(); err != nil {
		errList = append(errList, fmt.Errorf("models: %w", err))
	}
	return errors.Join(errList...)
}

// Deps are the planner's collaborators. It needs none.
type Deps struct {
	// Admission is shared by all services of the process; nil means one of the planner's own.
	Admission *admission.Control
	// Computing is shared by all services of the process; nil means one of the planner's own.
	Computing *turns.Turns
	// Telemetry records the calls of the model, and has the logger; nil means none.
	Telemetry *obs.Telemetry
	// Registry prices and books the calls of models; nil means that costs are not known.
	Registry registryv1.RegistryServiceClient
	// Accounts asks executors for room in model accounts; nil means that no account limits the planner's
	// calls. Its connection must have the services' token.
	Accounts executorv1.PeerServiceClient
	// Executor runs plans while they are written, for the callers of StreamPlan; nil refuses that. Its
	// connection must call on behalf of the caller.
	Executor executorv1.ExecutorServiceClient
}

// Service is an open planner.
type Service struct {
	server *rpc.Server
	models *llm.Set
}

// Open validates cfg.
func Open(_ context.Context, cfg Config, d Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if d.Admission == nil {
		d.Admission = &admission.Control{}
	}
	log := slog.New(slog.DiscardHandler)
	if d.Telemetry != nil {
		log = d.Telemetry.Logger
	}
	if d.Computing == nil {
		d.Computing = turns.NewComputing(host.Processors())
	}
	o := llm.Options{Telemetry: d.Telemetry}
	if d.Accounts != nil {
		o.Governor = accounts.New(d.Accounts)
	}
	models, err := providers.Open(cfg.Models, o)
	if err != nil {
		return nil, err
	}
	model, err := restate.New(cfg.Restate, models)
	if err != nil {
		return nil, errors.Join(err, models.Close())
	}
	limits := plan.Limits{MaxBytes: cfg.MaxTextBytes, MaxProblems: cfg.MaxProblems, MaxEdges: cfg.MaxEdges}
	server := rpc.New(limits, d.Admission, d.Computing, model)
	var ledger author.Ledger
	if d.Registry != nil {
		ledger = rpc.NewLedger(d.Registry)
	}
	writer, err := author.New(cfg.Author, models, limits, ledger, server.Compute, log)
	if err != nil {
		return nil, errors.Join(err, models.Close())
	}
	server.UseAuthor(writer)
	if d.Executor != nil {
		server.UseExecutor(d.Executor)
	}
	return &Service{server: server, models: models}, nil
}

// Register adds the planner's API to r.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	plannerv1.RegisterPlannerServiceServer(r, s.server)
}

// Run waits for ctx: the planner has no background work.
func (s *Service) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close drops the connections to models' servers.
func (s *Service) Close() error { return s.models.Close() }
