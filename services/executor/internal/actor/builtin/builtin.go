// Package builtin assembles the actors that every executor has. Adding one is one line here and one package
// beside it.
package builtin

import (
	"errors"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/fail"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/http"
	actorllm "github.com/epigraph-run/epigraph/services/executor/internal/actor/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/starlark"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/template"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// Config configures the actors that have something to configure.
type Config struct {
	LLM      actorllm.Config `conf:"llm"`
	HTTP     http.Config     `conf:"http"`
	Starlark starlark.Config `conf:"starlark"`
	// Agents are agents with names.
	Agents agent.Config `conf:"agents" help:"agents by name; NAME is the actor agent/NAME"`
}

// DefaultConfig is usable once the model server's key is set.
func DefaultConfig() Config {
	return Config{LLM: actorllm.DefaultConfig(), HTTP: http.DefaultConfig(), Starlark: starlark.DefaultConfig()}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if err := c.LLM.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("llm: %w", err))
	}
	return errors.Join(append(faults, c.HTTP.Validate(), c.Starlark.Validate())...)
}

// Set is the actors with what they hold.
type Set struct {
	*actor.Registry
	model *llm.Client
}

// New makes the actors, which read threads by way of threads. Telemetry nil means none.
func New(cfg Config, threads thread.Reader, tel *obs.Telemetry) (*Set, error) {
	if tel == nil {
		tel = obs.Noop()
	}
	model, err := llm.New(cfg.LLM.Server, tel)
	if err != nil {
		return nil, err
	}
	web, err := http.Spec(cfg.HTTP, tel.TracerProvider, tel.Propagator)
	if err != nil {
		return nil, err
	}
	specs := append(agent.Specs(threads), actorllm.Spec(cfg.LLM, model), web, cel.Spec(), template.Spec(), starlark.Spec(cfg.Starlark), sleep.Spec(), fail.Spec(),
		wait.Human(), wait.Signal(), wait.Completion(), spawn.Spec(), spawn.Expand())
	named, err := cfg.Agents.Specs()
	if err != nil {
		return nil, err
	}
	r, err := actor.NewRegistry(append(specs, named...)...)
	if err != nil {
		return nil, err
	}
	return &Set{Registry: r, model: model}, nil
}

// Close drops idle connections.
func (s *Set) Close() error { return s.model.Close() }
