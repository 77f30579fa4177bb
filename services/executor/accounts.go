package executor

import (
	"context"
	"fmt"
	"slices"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/obs"
	actorllm "github.com/epigraph-run/epigraph/services/executor/internal/actor/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/remember"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	governorpg "github.com/epigraph-run/epigraph/services/executor/internal/governor/pg"
	governorsqlite "github.com/epigraph-run/epigraph/services/executor/internal/governor/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/workgraph"
)

// openGovernor opens the accounts that are kept beside j; nil if the configuration names none.
func (s *Service) openGovernor(ctx context.Context, cfg Config, j journal.Journal, tel *obs.Telemetry) (*governor.Governor, error) {
	if len(cfg.Models.Accounts) == 0 {
		return nil, nil //nolint:nilnil // nothing is governed
	}
	var store governor.Store
	if file, ok := j.(*sqlite.Store); ok {
		store = governorsqlite.New(file)
	} else {
		p, err := governorpg.Open(ctx, cfg.PostgresURL.Reveal(), tel.TracerProvider)
		if err != nil {
			return nil, fmt.Errorf("open accounts of executor: %w", err)
		}
		s.opened(p)
		store = p
	}
	g := governor.New(store, governor.Options{Logger: tel.Logger})
	return g, g.Meter(tel.MeterProvider)
}

func governorOrNil(g *governor.Governor) llm.Governor {
	if g == nil {
		return nil
	}
	return g
}

// govern has attempts that call the actor llm wait at a gate for room in their accounts. Other calls of
// models wait within their attempts.
func govern(d *engine.Deps, g *governor.Governor, cfg Config, models *llm.Set) {
	// Passes of the last gate, which is that of rates, expire sooner.
	d.Gates = slices.Insert(slices.Clone(d.Gates), len(d.Gates)-1, g.Gate(models.Account))
	d.ModelCall = func(s *workgraph.Start) (m sched.ModelCall) {
		if s.Actor == "llm" {
			e := actorllm.Estimate(cfg.Actors.LLM, models, s)
			m.Profile, m.Input, m.Output = e.Profile, e.Input, e.Output
		}
		return m
	}
}

// mostUsed says what a call of the actor llm may use at most: the limit of its answer, and about as
// many tokens as its prompt has. It is booked on the model of its profile, unless a fallback
// answers. A call of an actor of the memory uses what its vector does.
func mostUsed(cfg Config, models *llm.Set) func(*workgraph.Start) (workgraph.Usage, bool) {
	return func(s *workgraph.Start) (most workgraph.Usage, ok bool) {
		if s.Actor != "llm" {
			input := remember.MostUsed(s)
			if input == 0 || !models.Embeds() {
				return most, false
			}
			booked := models.EmbeddingBooked()
			// An output of 0 stands for one that states no limit.
			return workgraph.Usage{Provider: booked.Provider, Model: booked.Model, InputTokens: input, OutputTokens: 1, Call: workgraph.EmbeddingCall}, true
		}
		if most.Provider, most.Model, ok = actorllm.Booked(cfg.Actors.LLM, models, s); ok {
			e := actorllm.Estimate(cfg.Actors.LLM, models, s)
			most.InputTokens, most.OutputTokens, most.Unlimited = e.Input, e.Output, e.Usual
		}
		return most, ok
	}
}
