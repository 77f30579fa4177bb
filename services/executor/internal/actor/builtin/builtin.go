// Package builtin assembles the actors that every executor has. Adding one is one line here and one package
// beside it.
package builtin

import (
	"errors"

	"github.com/epigraph-run/epigraph/internal/errs"
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

// DefaultConfig lets the http actor reach public addresses only.
func DefaultConfig() Config {
	return Config{HTTP: http.DefaultConfig(), Starlark: starlark.DefaultConfig()}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error { return errors.Join(c.HTTP.Validate(), c.Starlark.Validate()) }

// Set is the actors.
type Set struct{ *actor.Registry }

// New makes the actors, which read threads by way of threads. The models stay the caller's. Telemetry nil
// means none.
func New(cfg Config, models *llm.Set, threads thread.Reader, tel *obs.Telemetry) (*Set, error) {
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
	specs := append(agent.Specs(threads), actorllm.Spec(cfg.LLM, models), web, cel.Spec(), template.Spec(), starlark.Spec(cfg.Starlark), sleep.Spec(), fail.Spec(),
		wait.Human(), wait.Signal(), wait.Completion(), spawn.Spec(), spawn.Expand())
	named, err := cfg.Agents.Specs()
	if err != nil {
		return nil, err
	}
	r, err := actor.NewRegistry(append(specs, named...)...)
	if err != nil {
		return nil, err
	}
	return &Set{Registry: r}, nil
}
