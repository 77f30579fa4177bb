// Package builtin assembles the actors that every executor has. Adding one is one line here and one
// package beside it.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/a2a"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/chat"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/epics"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/fail"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/flow"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/http"
	actorllm "github.com/epigraph-run/epigraph/services/executor/internal/actor/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/mcp"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/remember"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/starlark"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/template"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/tool"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Config configures the actors that have something to configure.
type Config struct {
	LLM      actorllm.Config `conf:"llm"`
	HTTP     http.Config     `conf:"http"`
	MCP      mcp.Config      `conf:"mcp"`
	A2A      a2a.Config      `conf:"a2a"`
	Starlark starlark.Config `conf:"starlark"`
	// Agents are agents with names.
	Agents agent.Config `conf:"agents" help:"agents by name; NAME is the actor agent/NAME"`
	// Tools are actors with arguments that the operator fixes.
	Tools tool.Config `conf:"tools" help:"tools by name, each an actor with fixed arguments; NAME is the actor tool/NAME: docs/actors.md"`
}

// DefaultConfig lets the http actor reach public addresses only.
func DefaultConfig() Config {
	return Config{HTTP: http.DefaultConfig(), Starlark: starlark.DefaultConfig()}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	return errors.Join(c.HTTP.Validate(), c.MCP.Validate(), c.A2A.Validate(), c.Starlark.Validate())
}

// Set is the actors. What is known of MCP servers and of remote agents changes while the process runs.
type Set struct {
	*actor.Registry
	mcp *mcp.Servers
	a2a *a2a.Agents
}

// Deps are what the actors use. They stay the caller's.
type Deps struct {
	Models *llm.Set
	// Threads reads threads.
	Threads thread.Reader
	// Memory keeps lists of tools and cards of remote agents.
	Memory mcp.Memory
	// Catalog keeps workflows; nil means that there is none.
	Catalog catalog.Catalog
	// Workflows finds workflows by name; nil means that there is none.
	Workflows spawn.Workflows
	// Epics keeps epics and tasks; nil means that there is none.
	Epics epics.Registry
	// Remembered is the memory of the registry; nil means that there is none.
	Remembered remember.Memory
	// Telemetry nil means none.
	Telemetry *obs.Telemetry
}

// New makes the actors.
func New(cfg Config, d Deps) (*Set, error) {
	models, threads, tel := d.Models, d.Threads, d.Telemetry
	if tel == nil {
		tel = obs.Noop()
	}
	if name := cfg.LLM.Profile; name != "" {
		if _, _, err := models.Resolve(name, ""); err != nil {
			return nil, errs.New(errs.InvalidArgument, "LLM_CONFIG_INVALID", "actors.llm.profile: %v", err)
		}
	}
	web, err := http.Spec(cfg.HTTP, tel.TracerProvider, tel.Propagator)
	if err != nil {
		return nil, err
	}
	limits := func(profile, model string) (context, answer int64) {
		if profile == "" && model == "" {
			profile = cfg.LLM.Profile
		}
		return models.Limits(profile, model)
	}
	script := attaching(starlark.Spec(cfg.Starlark))
	web = attaching(web)
	specs := append(slices.Concat(agent.Specs(threads, limits), team.Specs(threads), []actor.Spec{chat.Spec(threads), chat.ReplySpec(threads)}), actorllm.Spec(cfg.LLM, models), web, attaching(cel.Spec()), attaching(template.Spec()), script, sleep.Spec(), fail.Spec(),
		wait.Human(), wait.Signal(), wait.Completion(), spawn.Spec(d.Epics), spawn.Expand(), spawn.Chosen(d.Workflows, d.Epics))
	named, err := cfg.Agents.Specs(limits)
	if err != nil {
		return nil, err
	}
	tools, err := cfg.Tools.Specs(web, script)
	if err != nil {
		return nil, err
	}
	agents, err := a2a.New(cfg.A2A, a2aDeps(cfg, tel, d.Memory))
	if err != nil {
		return nil, err
	}
	r, err := actor.NewRegistry(slices.Concat(specs, agents.Parts(), flow.Specs(), catalog.Specs(d.Catalog), epics.Specs(d.Epics), remember.Specs(d.Remembered, embedder(d.Models)), named, tools)...)
	if err != nil {
		return nil, err
	}
	deps := mcpDeps(cfg, tel)
	deps.Memory = d.Memory
	servers, err := mcp.New(cfg.MCP, deps)
	if err != nil {
		return nil, err
	}
	return &Set{Registry: r, mcp: servers, a2a: agents}, nil
}

// attaching is for actors that read named arguments alone, and not what came before them.
func attaching(s actor.Spec) actor.Spec {
	s.Actor = actor.Attaching(s.Actor)
	return s
}

func mcpDeps(cfg Config, tel *obs.Telemetry) mcp.Deps {
	return mcp.Deps{AllowPrivate: cfg.HTTP.AllowPrivate, Logger: tel.Logger, TracerProvider: tel.TracerProvider, Propagator: tel.Propagator}
}

func a2aDeps(cfg Config, tel *obs.Telemetry, m a2a.Memory) a2a.Deps {
	return a2a.Deps{AllowPrivate: cfg.HTTP.AllowPrivate, Logger: tel.Logger, TracerProvider: tel.TracerProvider, Propagator: tel.Propagator, Memory: m}
}

// CheckA2A reads the card of every configured remote agent once, and returns a line for each that fails.
func CheckA2A(ctx context.Context, cfg Config) ([]string, error) {
	return a2a.Check(ctx, cfg.A2A, a2aDeps(cfg, obs.Noop(), nil))
}

// CheckMCP reaches every configured MCP server once, and returns a line for each that fails.
func CheckMCP(ctx context.Context, cfg Config) ([]string, error) {
	return mcp.Check(ctx, cfg.MCP, mcpDeps(cfg, obs.Noop()))
}

// outside are actors that other parties make, of whom more may become known while the process runs.
type outside interface {
	ActorInfo(name string) (workgraph.ActorInfo, bool)
	Learn(ctx context.Context, name string)
	Absent(name string) bool
	Actor(name string) (workgraph.Actor, bool)
	Specs() []actor.Spec
}

// outside is whose actor a name is, or nil if it is one of the registry.
func (s *Set) outside(name string) outside {
	switch {
	case strings.HasPrefix(name, mcp.Prefix):
		return s.mcp
	case strings.HasPrefix(name, a2a.Prefix):
		return s.a2a
	}
	return nil
}

// ActorInfo is what validation and compilation ask for.
func (s *Set) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	if o := s.outside(name); o != nil {
		return o.ActorInfo(name)
	}
	return s.Registry.ActorInfo(name)
}

// Learn waits until as much is known of an actor as can be soon after a start.
func (s *Set) Learn(ctx context.Context, name string) {
	if o := s.outside(name); o != nil {
		o.Learn(ctx, name)
	}
}

// Absent reports whether a name stands for a tool that its MCP server does not list, or for a remote agent
// that is not configured. It is an actor for the runs that call it already, and none for a new graph.
func (s *Set) Absent(name string) bool {
	o := s.outside(name)
	return o != nil && o.Absent(name)
}

// Changes reports whether what is known of the actor may change while the process runs.
func (s *Set) Changes(name string) bool { return s.outside(name) != nil }

// Actor is the actor of that name.
func (s *Set) Actor(name string) (workgraph.Actor, bool) {
	if o := s.outside(name); o != nil {
		a, ok := o.Actor(name)
		if ok {
			a = actor.Attaching(a)
		}
		return a, ok
	}
	return s.Registry.Actor(name)
}

// Specs lists all actors by name.
func (s *Set) Specs() []actor.Spec {
	return slices.SortedFunc(slices.Values(slices.Concat(s.Registry.Specs(), s.mcp.Specs(), s.a2a.Specs())), func(a, b actor.Spec) int { return strings.Compare(a.Name, b.Name) })
}

// Unfinished hears that a run of that graph ended otherwise than completed, with its state.
func (s *Set) Unfinished(p *workgraph.Program, state map[string]json.RawMessage) {
	s.a2a.Unfinished(p, state)
}

// Run keeps MCP servers connected, and the cards of remote agents fresh, until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.mcp.Run(ctx) })
	g.Go(func() error { return s.a2a.Run(ctx) })
	return g.Wait()
}

// Close ends the connections to MCP servers and remote agents, and the servers that were started.
func (s *Set) Close() error { return errors.Join(s.mcp.Close(), s.a2a.Close()) }

// embedder makes vectors for the memory, or is nil.
func embedder(models *llm.Set) remember.Embedder {
	if models == nil || !models.Embeds() {
		return nil
	}
	return models
}
